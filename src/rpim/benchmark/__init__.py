"""Methods compared on equal terms: methods x feature sets x seeds, with their tables."""
