"""What is said where no cluster can be had."""

import os
import sys
from unittest.mock import Mock

import pytest

from rpim._common.errors import InputError
from rpim._common.ray import connected, is_address


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "workers", "message"),
    [
        ("127.0.0.1:1", None, "No Ray cluster answers at 127.0.0.1:1 .*: start one with ray start --head there"),
        ("ray://127.0.0.1:1", 2, "is for Ray's client, which has no Ray Data: call rpim on a machine of the cluster"),
        ("10.0.0.1", None, "'10.0.0.1' is no address of a Ray cluster: give HOST:PORT"),
        ("rows.npy", None, "'rows.npy' is no address of a Ray cluster: give HOST:PORT"),
        ("local", 0, "0 workers were asked for"),
    ],
)
def test_no_cluster(address, workers, message, monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test may have started one
    with pytest.raises(InputError, match=message), connected(address, workers):
        pytest.fail("there is none")


@pytest.mark.ray
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("Could not find any."), "This machine is part of no Ray cluster: start one with ray start"),
        (RuntimeError("Version mismatch."), r"The Ray cluster at auto cannot be joined \(Version mismatch\)\.$"),
    ],
)
def test_a_cluster_that_cannot_be_joined(error, message, monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", Mock(side_effect=error))
    with pytest.raises(InputError, match=message), connected("auto"):
        pytest.fail("there is none")


def test_the_ray_of_this_process(ray_here):
    with connected(workers=2) as workers:
        assert workers == 2
    with connected() as workers:
        assert workers == ray_here
    with pytest.raises(InputError, match="has 3 cores and 400 workers were asked for"), connected(workers=400):
        pytest.fail("there are not so many")
    with pytest.raises(InputError, match="was asked for, but this process is part of"), connected("127.0.0.1:1"):
        pytest.fail("it is another")


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="--ray needs ray, which is not installed: pip install"), connected():
        pytest.fail("it is not there")


def test_addresses():
    assert all(map(is_address, ["local", "auto", "10.0.0.1:6379", "ray://head:10001", "[::1]:6379", "10.0.0.1"]))
    assert not any(map(is_address, ["", "rows.npy", "C:/rows", "a/b:1", "host:", "-o"]))


def test_a_ray_of_ours_listens_on_this_machine_alone(ray_here):
    import ray

    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}


@pytest.mark.ray
def test_the_loopback_is_for_a_ray_of_ours_alone(monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1.0})
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr("rpim._common.ray._check_reachable", lambda *_: None)
    monkeypatch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    seen = []
    monkeypatch.setattr(
        ray,
        "init",
        lambda **_: seen.append(
            (ray._private.ray_constants.ENABLE_RAY_CLUSTER, os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"))
        ),
    )
    for address in ("local", "10.0.0.1:6379"):
        with connected(address):
            pass
    assert seen == [(False, "0"), (True, None)]
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
