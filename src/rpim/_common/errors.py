"""Errors in one sentence, and numbers, texts and paths as people read them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """What was given cannot be used.

    The message is one sentence for the user: what was given, what is wrong with it, and what to do. The command
    line prints it without a traceback and exits with 2.
    """


class MissingColumn(InputError):
    """A table has no column of the expected name.

    Parameters
    ----------
    message : str
    options : dict of str to str
        The options of the command line that name the columns, as far as these can be guessed.
    """

    def __init__(self, message: str, options: Mapping[str, str]) -> None:
        super().__init__(message)
        self.options = dict(options)


_MAX_LISTED, _N_NEAREST = 30, 6
BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
"""The exit codes of the commands: what the user can mend, what they cannot, and Ctrl-C."""


def some(values: Iterable[Any]) -> str:
    """The first five values, for a message.

    >>> some(range(9))
    '0, 1, 2, 3, 4, ...'
    """
    listed = list(values)
    return ", ".join(str(value) for value in listed[:5]) + (", ..." if len(listed) > 5 else "")


def some_rows(rows: Sequence[int]) -> str:
    """How many rows, and which.

    >>> some_rows([4]), some_rows(range(12))
    ('1 row (4)', '12 rows (0, 1, 2, 3, 4, ...)')
    """
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({some(rows)})"


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""A text without control characters but tabs and newlines, for the terminal.

    Labels and file names come from files, and an escape sequence in one could move the cursor, retitle the window or
    hide what is printed. Marks that change the direction of the text count as well.

    >>> printable("ant\x1b[2J\r, \u202eeeb")
    'ant�[2J�, �eeb'
    """
    return _CONTROL.sub("�", text)


def first_line(error: BaseException) -> str:
    """What an error says in its first line, without a full stop; its type where it says nothing.

    >>> first_line(ValueError("No such type.\\nSee the manual."))
    'No such type'
    """
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__


def choose(what: str, value: str, choices: Iterable[str]) -> str:
    """`value`, if it is one of the choices.

    >>> choose("The method", "pim", ["pim", "rim"])
    'pim'
    >>> choose("The method", "gdc", ["pim", "gcd"])
    Traceback (most recent call last):
    rpim._common.errors.InputError: The method 'gdc' is unknown: did you mean gcd?

    Of many choices only the nearest are named.

    >>> choose("The model", "nosuch", [f"model-{k}" for k in range(1000)])
    Traceback (most recent call last):
    rpim._common.errors.InputError: The model 'nosuch' is unknown: of 1,000 the nearest are model-...
    """
    listed = list(choices)
    if value in listed:
        return value
    if len(listed) > _MAX_LISTED:
        nearest = difflib.get_close_matches(value.lower(), listed, n=_N_NEAREST, cutoff=0.0)
        all_of_them = f"of {len(listed):,} the nearest are {', '.join(nearest)}."
    else:
        all_of_them = f"choose among {', '.join(listed)}."
    hint = meant(value, listed) or all_of_them
    raise InputError(f"{what} {value!r} is unknown: {hint}")


def meant(value: str, choices: Iterable[str]) -> str:
    """'did you mean …?', or nothing where no choice is close.

    >>> meant("Banking.npz", ["banking.npz", "clinc.npz"])
    'did you mean banking.npz?'
    """
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(value.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[close[0]]}?" if close else ""


def plural(n: int, noun: str) -> str:
    """'1 row', '1,797 rows', '2 new classes'."""
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def interval(low: int, high: int) -> str:
    """An interval of the number of classes; it may hold one number alone.

    >>> interval(5, 1200), interval(7, 7)
    ('95 % interval 5 to 1,200', 'the 95 % interval holds no other number')
    """
    return "the 95 % interval holds no other number" if low == high else f"95 % interval {low:,} to {high:,}"


def in_halves(low: int, high: int) -> str:
    """What the halves of the rows say of the number of groups.

    >>> in_halves(5, 9), in_halves(7, 7)
    ('5 to 9 in halves of the rows', '7 in every half of the rows')
    """
    return f"{low:,} in every half of the rows" if low == high else f"{low:,} to {high:,} in halves of the rows"


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
