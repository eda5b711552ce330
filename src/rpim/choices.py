"""A name that is not there, and the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rpim.errors import InputError


def choose(what: str, value: str, choices: Iterable[str]) -> str:
    """`value`, if it is one of the choices.

    >>> choose("The method", "pim", ["pim", "rim"])
    'pim'
    >>> choose("The method", "gdc", ["pim", "gcd"])
    Traceback (most recent call last):
    rpim.errors.InputError: The method 'gdc' is unknown: did you mean gcd?
    """
    listed = list(choices)
    if value in listed:
        return value
    hint = meant(value, listed) or f"choose among {', '.join(listed)}."
    raise InputError(f"{what} {value!r} is unknown: {hint}")


def meant(value: str, choices: Iterable[str]) -> str:
    """'did you mean …?', or nothing where no choice is close.

    >>> meant("Banking.npz", ["banking.npz", "clinc.npz"])
    'did you mean banking.npz?'
    """
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(value.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[close[0]]}?" if close else ""
