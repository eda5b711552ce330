"""Rows in blocks, so that a large matrix is never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_VALUES = 1 << 18  # 2 MB as float64: about the size of a CPU cache


def row_blocks(n_rows: int, n_features: int, block_values: int | None = None) -> Iterator[slice]:
    """Slices of the rows, small enough that the copy of a block is negligible.

    >>> [(block.start, block.stop) for block in row_blocks(5, BLOCK_VALUES // 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, (block_values or BLOCK_VALUES) // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
