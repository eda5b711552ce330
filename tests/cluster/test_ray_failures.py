"""What is said where a cluster fails: one sentence each, and other errors as they are."""

import pytest

from rpim.errors import InputError

exceptions = pytest.importorskip("ray.exceptions", reason="ray is not installed")

from rpim.cluster.failures import in_a_sentence  # noqa: E402


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (exceptions.ObjectStoreFullError("no room"), "The object store of Ray is full: start Ray with a larger"),
        (exceptions.OutOfDiskError("no room"), "does not fit into memory is full: free some of it"),
        (exceptions.OutOfMemoryError("killed"), "has run out of memory: ask for fewer workers"),
        (exceptions.WorkerCrashedError(), "A worker was lost, for want of memory perhaps"),
        (exceptions.ActorDiedError(), "A worker was lost, for want of memory perhaps"),
        (exceptions.RaySystemError("gone"), r"The cluster was lost \(System error: gone\): call it again"),
    ],
)
def test_what_a_user_can_do_something_about_is_a_sentence(error, message):
    with pytest.raises(InputError, match=message) as raised, in_a_sentence():
        raise error
    assert "\n" not in str(raised.value)


def test_what_was_raised_in_a_task_is_not_blamed_on_the_cluster():
    def failed(cause):
        return exceptions.RayTaskError("work", "Traceback ...", cause)

    with pytest.raises(InputError, match=r"^A row is odd: mend it\.$"), in_a_sentence():
        raise failed(InputError("A row is odd: mend it."))
    with pytest.raises(exceptions.RayTaskError), in_a_sentence():
        raise failed(ZeroDivisionError())
    with pytest.raises(KeyError), in_a_sentence():
        raise KeyError("ours")
