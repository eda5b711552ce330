"""The mathematics in torch, independent of estimators and commands."""
