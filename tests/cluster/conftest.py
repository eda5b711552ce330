"""A Ray of two workers on this machine, started once: that takes seconds."""

import pytest


@pytest.fixture(scope="session")
def ray_here():
    pytest.importorskip("ray", reason="ray is not installed")
    from rpim.cluster.connection import connected

    with connected(workers=2) as workers:
        yield workers
