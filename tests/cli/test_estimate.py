"""``rpim estimate`` without labels."""

from pathlib import Path

import numpy as np

from rpim import FeatureSet


def test_the_number_of_groups_is_estimated_without_labels(command, refused):
    X = np.repeat(np.eye(5), 30, axis=0) + np.random.RandomState(0).normal(scale=0.1, size=(150, 5))
    FeatureSet.from_arrays(X, labels=np.repeat(list("abcde"), 30)).write("rows.npz")
    code, out, _ = command("estimate", "rows.npz", "--no-labels", "--plot", "curve.png")
    assert (code, out.split(",")[0]) == (0, "5 groups")
    assert "agreement of two halves" in out
    assert "95 %" not in out
    assert Path("curve.png").stat().st_size > 1000
    refused(
        "rows.npz has no labelled row, and --method max-acc needs some: leave it out.",
        *("estimate", "rows.npz", "--no-labels", "--method", "max-acc"),
    )
