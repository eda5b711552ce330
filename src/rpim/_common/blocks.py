"""Rows a block at a time, so that a matrix larger than memory is never copied whole."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_VALUES = 1 << 18  # 2 MB as float64: about what a cache holds


def row_blocks(n_rows: int, n_features: int, block_values: int | None = None) -> Iterator[slice]:
    """Slices of the rows small enough that a copy of one block never matters.

    >>> [(block.start, block.stop) for block in row_blocks(5, BLOCK_VALUES // 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, (block_values or BLOCK_VALUES) // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
