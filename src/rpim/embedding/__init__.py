"""From files to features: what is to be embedded, the encoders, and the work of embedding."""
