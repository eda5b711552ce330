"""Where the rows of a fit are: in memory, on disk, or on Ray workers."""
