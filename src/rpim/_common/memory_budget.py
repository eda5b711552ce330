"""How much memory may be used: as a person says it, or as the machine has it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rpim._common.errors import InputError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", re.IGNORECASE)
SHARE = 0.6
"""Of the memory that is free, what is used where nothing is said: others want some too."""


def as_bytes(said: str | int) -> int:
    """A size in bytes.

    >>> as_bytes("4GB"), as_bytes("1.5 M"), as_bytes(1000)
    (4000000000, 1500000, 1000)
    """
    match = _SIZE.fullmatch(str(said).strip())
    size = 0 if match is None else int(float(match[1]) * _UNITS[match[2].upper()])
    if size <= 0:
        raise InputError(f"The memory {said!r} is no size: give a number with a unit, such as 4GB or 500MB.")
    return size


def in_words(n_bytes: float) -> str:
    """A size for a message.

    >>> in_words(4e9), in_words(123_456_789)
    ('4.0GB', '123MB')
    """
    return f"{n_bytes / 1e9:.1f}GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f}MB"


def usual_budget() -> int:
    """A share of the memory that is free on this machine."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(int(line.split()[1]) * 1024 * SHARE)
    except OSError:
        pass
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * SHARE)
    return 4 * 10**9
