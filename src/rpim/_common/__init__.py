"""Shared by all layers: errors, files, progress, parallel work, devices, memory, the connection to Ray."""
