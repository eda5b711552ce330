"""Where tensors are computed."""

from __future__ import annotations

import torch

from rpim._common.errors import InputError, first_line


def device_of(name: str | None) -> torch.device:
    """The device of that name, or a GPU where there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def checked_device(name: str | None) -> torch.device:
    """The same for a command, which says in one sentence where it is not there."""
    try:
        device = device_of(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name!r} is not there ({first_line(error)}).") from error
