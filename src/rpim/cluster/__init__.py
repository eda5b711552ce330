"""Work spread over a Ray cluster, or over the cores of one machine by a Ray of its own (``rpim[ray]``)."""
