"""Arrays whose headers declare what is not there."""

import numpy as np
import pytest

from rpim import FeatureSet
from rpim._common.errors import InputError
from rpim.data.feature_stream import FeatureStream
from rpim.data.formats.arrays import load_npy
from rpim.data.row_files import RowFiles


def npy_bytes(shape, data=b"\0" * 24, descr="'<f4'"):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "shape",
    [
        "(-1, 3)",
        "(2, -3)",
        "(True, 3)",
        "(2.0, 3)",
        "(10**9, 3)",
        "(9999999999999999999999, 3)",
        "('2', 3)",
        "2",
        "(3, 3)",
    ],
)
@pytest.mark.parametrize("read", [load_npy, FeatureSet.read, RowFiles, lambda path: list(FeatureStream(path))])
def test_odd_shapes_are_one_sentence(tmp_path, shape, read):
    (tmp_path / "x.npy").write_bytes(npy_bytes(shape))
    with pytest.raises(InputError, match=r"x\.npy") as error:
        read(tmp_path / "x.npy")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("descr", ["[]", "{}", "3", "'<f4,<f4'", "[('a', '<f4')]", "'|O'", "'<U0'"])
def test_odd_types_are_one_sentence(tmp_path, descr):
    (tmp_path / "x.npy").write_bytes(npy_bytes("(2, 3)", descr=descr))
    with pytest.raises(InputError):
        FeatureSet.read(tmp_path / "x.npy")


def test_an_array_without_columns_is_one_sentence(tmp_path):
    np.save(tmp_path / "x.npy", np.empty((5, 0), np.float32))
    for read in (FeatureSet.read, RowFiles):
        with pytest.raises(InputError, match=r"x\.npy"):
            read(tmp_path / "x.npy")
