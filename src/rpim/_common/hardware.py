"""What the machine has: memory, torch devices, and blocks of rows that fit into a cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rpim._common.errors import InputError, first_line
from rpim._common.progress import set_context

if TYPE_CHECKING:
    import torch

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?", re.IGNORECASE)
SHARE = 0.6
"""The share of the free memory that is used by default: other programs need some too."""
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def as_bytes(size: str | int) -> int:
    """Convert a size to bytes: KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024.

    The B may be left out, and case does not matter.

    >>> as_bytes("4GB"), as_bytes("4GiB"), as_bytes("1.5 M"), as_bytes(1000)
    (4000000000, 4294967296, 1500000, 1000)
    """
    match = _SIZE.fullmatch(str(size).strip())
    n_bytes = 0
    if match is not None:
        number, prefix, binary = match.groups(default="")
        n_bytes = int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix.upper() or " "))
    if n_bytes <= 0:
        raise InputError(f"The memory {size!r} is no size: give a number with a unit, such as 4GB or 500MB.")
    return n_bytes


def format_bytes(n_bytes: float) -> str:
    """Format a size for a message.

    >>> format_bytes(4e9), format_bytes(123_456_789), format_bytes(5000)
    ('4.0GB', '123MB', '5KB')
    """
    if n_bytes < 1e6:
        return f"{n_bytes / 1e3:.0f}KB"
    return f"{n_bytes / 1e9:.1f}GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f}MB"


_limit: ContextVar[int | None] = ContextVar("limit", default=None)


def memory_limit(n_bytes: int | None) -> AbstractContextManager[None]:
    """Context in which this is the memory budget, for rows in memory as well; None for the default.

    >>> with memory_limit(4_000_000_000):
    ...     default_memory_budget()
    4000000000
    """
    return set_context(_limit, n_bytes)


def default_memory_budget() -> int:
    """`SHARE` of the memory that is free on this machine, or that this container may use, if that is less."""
    limit = _limit.get()
    return int(min([_free_memory(), *_cgroup_limits()]) * SHARE) if limit is None else limit


def bytes_of_fit(n_rows: int, n_features: int, itemsize: int) -> int:
    """The memory that a fit takes: the rows as stored, normalized and projected, and some hundred classes."""
    return n_rows * (n_features * (itemsize + 8) + 2000)


_ON_DISK = "save the rows as .npy or .parquet (a column of lists), which may stay on disk, or allow more"


def check_memory(path: Path, n_bytes: int, memory: int | None = None, hint: str = _ON_DISK) -> None:
    """Check that the contents of a file fit into the memory budget, before they are read."""
    budget = memory or default_memory_budget()
    if n_bytes > budget:
        raise InputError(
            f"{path} takes about {format_bytes(n_bytes)} of memory, and {format_bytes(budget)} may be used: {hint}."
        )


def _free_memory() -> int:
    try:
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(4e9 / SHARE)  # a small laptop


def _cgroup_limits() -> Iterator[int]:
    """The memory limits of the control groups that this process is in, and of those above them; versions 1 and 2."""
    try:
        groups = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        groups = []
    for group in groups:  # such as 0::/user.slice (version 2) or 9:memory:/docker/3f (version 1)
        _, controllers, path = group.split(":", 2)
        if not controllers:
            root, file = _CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = _CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        # Within a container, its own group is the root, and the path may be one of the machine outside.
        for folder in (inside, *inside.parents):
            try:
                limit = (root / folder / file).read_text().strip()
            except OSError:
                continue
            if limit.isdigit():  # "max" is no limit
                yield int(limit)


def device_of(name: str | None) -> torch.device:
    """The device of that name; by default a GPU if there is one, else the CPU."""
    import torch

    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def checked_device(name: str | None) -> torch.device:
    """The same, or an InputError if the device is not available."""
    import torch

    try:
        device = device_of(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name!r} is not there ({first_line(error)}).") from error


BLOCK_VALUES = 1 << 18  # 2 MB as float64: about the size of a CPU cache


def row_blocks(n_rows: int, n_features: int, block_values: int | None = None) -> Iterator[slice]:
    """Slices of the rows, small enough that the copy of a block is negligible.

    >>> [(block.start, block.stop) for block in row_blocks(5, BLOCK_VALUES // 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, (block_values or BLOCK_VALUES) // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
