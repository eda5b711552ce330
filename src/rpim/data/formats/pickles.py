"""A safe reader of pickles of lists, dicts and arrays: it never imports or calls what a pickle names."""

from __future__ import annotations

import collections
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import must_exist


def load_pickle(path: Path, what: str, hint: str) -> Any:
    """Load a pickle of lists, dicts, sets, strings, integers, and arrays of bytes (as `PickledBytes`).

    Strings of Python 2 are read as latin1.

    Parameters
    ----------
    path : path of the pickle
    what : str
        What it should be, for errors.
    hint : str
        What to do if it is something else.

    Raises
    ------
    InputError
        If it cannot be read, or names anything else; none of its code has run.
    """
    must_exist(path)
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except _Refused as refused:
        raise InputError(
            f"{path} holds {refused}, and of a pickle nothing but lists, dicts, text, whole numbers and arrays of "
            f"bytes is ever loaded: {hint}."
        ) from refused
    # A damaged or hostile pickle may raise anything; none of it has run more than the stand-ins below.
    except Exception as error:
        raise InputError(f"{path} cannot be read as {what} ({first_line(error)}): {hint}.") from error


class PickledBytes:
    """Stands for ``numpy.ndarray``, as far as an array of uint8 needs it."""

    values: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, data = state
        if not isinstance(kind, _IntegerType) or kind.code != "u1" or by_columns:
            raise TypeError("an array that is not of bytes, row by row")
        raw = _bytes(data, "latin1") if isinstance(data, str) else data
        if not isinstance(raw, bytes) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise TypeError("a damaged array")
        if len(raw) != math.prod(shape):
            raise TypeError(f"an array of {len(raw):,} bytes for a shape of {shape}")
        self.values = np.frombuffer(raw, dtype=np.uint8).reshape(shape)


class _Refused(Exception):
    """A name that is not allowed."""


class _PlainUnpickler(pickle.Unpickler):
    """Every name in the pickle that has no stand-in is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name in the pickle: never what the name says."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


class _IntegerType:
    """Stands for ``numpy.dtype``, as far as integers in a pickle need it: their size, byte order and sign."""

    def __init__(self, code: str, *rest: Any) -> None:
        if not isinstance(code, str) or code.strip("<>=|")[:1] not in ("i", "u"):
            raise TypeError("numbers that are not whole")
        self.code = code.strip("<>=|")
        self.signed = self.code.startswith("i")
        self.big = False

    def __setstate__(self, state: Any) -> None:
        self.big = state[1] == ">"


def _array(kind: Any, shape: Any, code: Any) -> PickledBytes:
    """Stands for the function that makes an empty numpy array, which its state then fills."""
    if kind is not PickledBytes:
        raise TypeError("a damaged array")
    return PickledBytes()


def _integer(kind: Any, data: Any) -> int:
    """Stands for the function that makes a numpy scalar of its type and its bytes."""
    raw = _bytes(data, "latin1") if isinstance(data, str) else data
    if not isinstance(kind, _IntegerType) or not isinstance(raw, bytes):
        raise TypeError("a damaged number")
    return int.from_bytes(raw, "big" if kind.big else "little", signed=kind.signed)


def _bytes(text: Any, encoding: Any) -> bytes:
    """Stands for ``codecs.encode``, by which the oldest pickles write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise TypeError("text that is not latin1")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,  # as protocols before 3 spell it
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "frozenset"): frozenset,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("numpy", "dtype"): _IntegerType,
    ("numpy", "ndarray"): PickledBytes,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy.core.multiarray", "scalar"): _integer,
    ("numpy._core.multiarray", "scalar"): _integer,
    ("_codecs", "encode"): _bytes,
}
