"""``python -m rpim.explorer.mapping ROWS.npy MAP.npy``: the map of the rows, in a process of its own.

UMAP compiles for seconds and then keeps Python's lock for minutes, in which a server could answer nobody.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from rpim._common.files import load_npy
from rpim.explorer.jobs import tell
from rpim.runs.maps import two_dimensional


def main() -> None:
    """Read rows, write their places."""
    rows, target = sys.argv[1:]
    np.save(Path(target), two_dimensional(load_npy(Path(rows))), allow_pickle=False)
    tell(done=True)


if __name__ == "__main__":
    main()
