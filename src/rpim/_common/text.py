"""Numbers, texts and paths as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plural(n: int, noun: str) -> str:
    """'1 row', '1,797 rows', '2 new classes'."""
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def short(value: Any, width: int = 24) -> str:
    """A text on one line and not too long."""
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def end_of(path: str, width: int = 24) -> str:
    """A file with the folder that it is in; where that is too long, the end, which tells files apart.

    >>> end_of("/home/ann/birds/wren/1.jpg"), end_of("/birds/Winter_Wren/Winter_Wren_0118.jpg")
    ('wren/1.jpg', '…en/Winter_Wren_0118.jpg')
    """
    end = "/".join(Path(path).parts[-2:])
    return end if len(end) <= width else "…" + end[1 - width :]
