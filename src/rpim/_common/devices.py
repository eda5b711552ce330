"""Torch devices."""

from __future__ import annotations

import torch

from rpim._common.errors import InputError, first_line


def device_of(name: str | None) -> torch.device:
    """The device of that name; by default a GPU if there is one, else the CPU."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def checked_device(name: str | None) -> torch.device:
    """The same, or an InputError if the device is not available."""
    try:
        device = device_of(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name!r} is not there ({first_line(error)}).") from error
