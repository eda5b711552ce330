"""Sizes as users write them, and the default budget on a machine and in a container."""

import pytest

from rpim._common import hardware
from rpim._common.errors import InputError
from rpim._common.hardware import as_bytes, default_memory_budget

GIB = 2**30


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [
        ("4KB", 4 * 10**3),
        ("4MB", 4 * 10**6),
        ("4GB", 4 * 10**9),
        ("4TB", 4 * 10**12),
        ("4KiB", 4 * 2**10),
        ("4MiB", 4 * 2**20),
        ("4GiB", 4 * 2**30),
        ("4TiB", 4 * 2**40),
        ("4G", 4 * 10**9),
        ("4Gi", 4 * 2**30),
        ("4gb", 4 * 10**9),
        ("4gib", 4 * 2**30),
        ("4g", 4 * 10**9),
        (" 1.5 MiB ", 3 * 2**19),
        ("1.5 M", 1_500_000),
        ("12B", 12),
        ("12", 12),
        (1000, 1000),
    ],
)
def test_sizes(size, n_bytes):
    assert as_bytes(size) == n_bytes


@pytest.mark.parametrize("size", ["", "GB", "four GB", "-1GB", "0", 0, "4 PB", "4iB", "4GBi", "1e9"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(InputError, match="is no size: give a number with a unit, such as 4GB or 500MB"):
        as_bytes(size)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 10 GiB of free memory; `groups` and `limits` are the files of its control groups."""
    monkeypatch.setattr(hardware, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(hardware, "_CGROUPS", tmp_path / "cgroup")

    def budget(groups=None, **limits):
        files = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {10 * 2**20} kB\n"}
        if groups is not None:
            files["proc/self/cgroup"] = groups
        files |= {f"cgroup/{path}": f"{limit}\n" for path, limit in limits.items()}
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return default_memory_budget() / hardware.SHARE

    return budget


CASES = {
    "no control groups": (None, {}, 10 * GIB),
    "version 2 without limit": ("0::/\n", {"memory.max": "max"}, 10 * GIB),
    "version 2 in a container": ("0::/\n", {"memory.max": 2 * GIB}, 2 * GIB),
    "version 2, a group of a machine": ("0::/user/job\n", {"user/job/memory.max": 3 * GIB}, 3 * GIB),
    "version 2, the group above is smaller": (
        "0::/user/job\n",
        {"user/memory.max": GIB, "user/job/memory.max": 3 * GIB},
        GIB,
    ),
    "version 2, more than is free": ("0::/\n", {"memory.max": 64 * GIB}, 10 * GIB),
    "version 1 without limit": ("9:memory:/\n", {"memory/memory.limit_in_bytes": 2**63 - 4096}, 10 * GIB),
    "version 1": ("9:memory:/job\n3:cpu:/\n", {"memory/job/memory.limit_in_bytes": 2 * GIB}, 2 * GIB),
    "version 1 in a container": ("9:memory:/docker/3f\n", {"memory/memory.limit_in_bytes": 2 * GIB}, 2 * GIB),
    "another controller": ("3:cpu:/\n", {"memory/memory.limit_in_bytes": 2 * GIB}, 10 * GIB),
    "both versions": (
        "9:memory:/\n0::/\n",
        {"memory/memory.limit_in_bytes": 5 * GIB, "memory.max": 4 * GIB},
        4 * GIB,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_default_budget_respects_the_limits_of_containers(machine, case):
    groups, limits, expected = CASES[case]
    assert machine(groups, **limits) == pytest.approx(expected, abs=2)
