"""Marks for the tests of the mathematics."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests of the objective "epsilon 0.3" run Sinkhorn-Knopp for 500 rounds a step: they are slow."""
    for item in items:
        if "epsilon 0.3" in getattr(getattr(item, "callspec", None), "params", {}).values():
            item.add_marker(pytest.mark.slow)
