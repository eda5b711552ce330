"""The mathematics, in torch: nothing here knows of estimators, files or commands."""
