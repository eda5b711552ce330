"""The file formats that feature sets and labels come in."""
