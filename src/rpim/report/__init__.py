"""The HTML report of a discovery, and plotly figures for notebooks."""
