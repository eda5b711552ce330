"""The web app for a run: inspect, rename, merge, split and correct its classes, refit, and export the decisions."""
