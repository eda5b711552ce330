"""The web page on which a person looks at a run, names, merges, splits, corrects, and exports what was decided."""
