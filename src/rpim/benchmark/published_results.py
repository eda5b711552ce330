"""The files of published figures that the package carries: comma-separated, after lines of # that name the source."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from importlib import resources


def carried(name: str) -> list[dict[str, str]]:
    """The lines of a file beside this one, by column."""
    text = resources.files("rpim.benchmark").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def published_name(name: str, aliases: Mapping[str, str]) -> str | None:
    """What the publications call a set of this name, by the whole of it or by its first words.

    >>> aliases = {"cub200": "CUB", "stanfordcars": "Stanford Cars"}
    >>> [published_name(name, aliases) for name in ("CUB-200_dino", "stanford_cars", "cubs")]
    ['CUB', 'Stanford Cars', None]
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    starts = ("".join(words[:n]) for n in range(len(words), 0, -1))
    return next((aliases[start] for start in starts if start in aliases), None)
