"""Rows, labels and metadata, in memory and in files."""
