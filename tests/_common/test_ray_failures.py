"""Failures of a cluster as InputErrors of one sentence; other errors pass unchanged."""

import errno
import os
import subprocess
import sys

import pytest

from rpim._common.errors import InputError
from rpim._common.ray import explain_ray_errors

pytestmark = pytest.mark.ray


@pytest.fixture
def exceptions():
    """Ray's, imported when a test needs them: importing Ray takes seconds."""
    return pytest.importorskip("ray.exceptions", reason="ray is not installed")


@pytest.mark.parametrize(
    ("name", "said", "message"),
    [
        ("ObjectStoreFullError", ["no room"], "The object store of Ray is full: start Ray with a larger"),
        ("OutOfDiskError", ["no room"], "and so is the disk to which it moves what does not fit: start"),
        ("OutOfMemoryError", ["killed"], "has run out of memory: ask for fewer workers"),
        ("WorkerCrashedError", [], "A worker was lost, for want of memory or disk perhaps"),
        ("ActorDiedError", [], "A worker was lost, for want of memory or disk perhaps"),
        ("OSError", [errno.ENOSPC, os.strerror(errno.ENOSPC)], r"A disk of the cluster is full \(\[Errno 28\]"),
        ("RaySystemError", ["gone"], r"The cluster was lost \(System error: gone\): call it again"),
    ],
)
def test_what_a_user_can_do_something_about_is_a_sentence(exceptions, name, said, message):
    error = getattr(exceptions, name, OSError)(*said)
    assert type(error).__name__ == name
    with pytest.raises(InputError, match=message) as raised, explain_ray_errors():
        raise error
    assert "\n" not in str(raised.value)


def test_what_was_raised_in_a_task_is_not_blamed_on_the_cluster(exceptions):
    def failed(cause):
        return exceptions.RayTaskError("work", "Traceback ...", cause)

    with pytest.raises(InputError, match=r"^A row is odd: mend it\.$"), explain_ray_errors():
        raise failed(InputError("A row is odd: mend it."))
    with pytest.raises(exceptions.RayTaskError), explain_ray_errors():
        raise failed(ZeroDivisionError())
    with pytest.raises(KeyError), explain_ray_errors():
        raise KeyError("ours")


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
import numpy as np
from rpim import PIM, InfoMaxObjective, InputError, on_ray
from rpim.core.checkpoint import Checkpoint

random = np.random.default_rng(0)
truth = random.integers(0, 6, 300)
X = 2.0 * random.standard_normal((6, 2048))[truth] + random.standard_normal((300, 2048))
y = np.where((truth < 3) & (random.random(300) < 0.5), truth, -1)
objective = InfoMaxObjective(trade_off=0.1, weight_decay=0.01)
model = PIM(6, objective=objective, n_members=1, n_init=1, n_components=None, max_iter=9)
with on_ray(workers=2) as spread:
    try:
        model.fit(spread(X), y, checkpoint=Checkpoint(Path(sys.argv[1], "run"), {}))
    except InputError as error:
        print(error)
"""


@pytest.mark.usefixtures("exceptions")
def test_a_disk_that_is_full_in_the_training(tmp_path):
    """A real one, of 100 kB: room for where the training starts, 48 kB, and not for where it ends as well."""
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=100k none "$0"'
    try:
        subprocess.run([*unshare, mount, tmp_path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not allow mounting a disk")
    done = subprocess.run(
        [*unshare, f'{mount} && exec "$@"', tmp_path, sys.executable, "-c", ON_A_SMALL_DISK, tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == (
        f"{tmp_path}/run.checkpoint/workers was not written, no space left on its disk: free some of it, and call it "
        "again to resume.\n"
    ), done.stderr
    assert "Traceback" not in done.stderr
