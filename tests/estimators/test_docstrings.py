"""Every parameter and every fitted attribute of every estimator is documented."""

import inspect
import re

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import rpim
from rpim import InfoMaxObjective, estimators

METHODS = [getattr(estimators, name) for name in estimators.__all__]
FITTED = [pytest.param(one, marks=pytest.mark.slow) if one is estimators.UMAPHDBSCAN else one for one in METHODS]


def section(documented, name):
    """The entries of a section of a numpydoc docstring, each with its description."""
    lines = inspect.getdoc(documented).splitlines()
    start = next((k for k, line in enumerate(lines[:-1]) if line == name and set(lines[k + 1]) == {"-"}), None)
    assert start is not None, f"{documented.__name__} has no section {name}"
    entries = {}
    for line in lines[start + 2 :]:
        if line and set(line) == {"-"}:
            break
        if line and not line.startswith(" "):
            names = [one.strip() for one in line.split(" : ")[0].split(",")]
            entries |= dict.fromkeys(names, "")
        elif line:
            entries |= {one: entries[one] + line for one in names}
    return entries


@pytest.mark.parametrize("method", [*METHODS, InfoMaxObjective])
def test_every_parameter_is_documented_and_no_other(method):
    documented = section(method, "Parameters")
    parameters = list(inspect.signature(method).parameters)
    described = [name for name, text in documented.items() if text]
    assert [name for name in parameters if name not in described] == []
    assert [name for name in described if name not in parameters] == []


@pytest.mark.parametrize("method", FITTED)
def test_every_attribute_that_a_fit_sets_is_documented_and_no_other(method):
    X, truth = make_blobs(100, n_features=8, centers=5, random_state=0)
    committee = {"n_members": 2} if "n_members" in inspect.signature(method).parameters else {}
    model = method(random_state=0, **committee).fit(X, np.where((truth < 3) & (np.arange(100) % 2 == 0), truth, -1))
    documented = {name for name in section(method, "Attributes") if name != "Examples"}
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert fitted == documented


def test_the_sections_are_read_as_they_stand():
    documented = section(estimators.RPIM, "Parameters")
    assert documented["preset"].strip().startswith("What a parameter left at")
    assert not re.search(r"\blow_memory\b", " ".join(documented))


def test_public_names_can_be_imported():
    assert {"InfoMaxObjective", "gcd_scorer"} < set(rpim.__all__)
    for name in rpim.__all__:
        assert getattr(rpim, name) is not None
