"""What a fit leaves behind: the discovery, its folder, predictions, summaries and a person's decisions."""
