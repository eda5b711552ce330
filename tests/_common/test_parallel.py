"""The parallel map: order, errors, results as they come, and the same bits on any number of threads."""

import threading
import time

import pytest
import torch

from rpim._common.parallel import parallel_map


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items():
    assert parallel_map(lambda i: i * i, range(20)) == [i * i for i in range(20)]
    assert parallel_map(lambda i: i, []) == []


def test_two_items_run_at_the_same_time_with_one_core_each():
    meeting = threading.Barrier(2, timeout=30)

    def work(_):
        meeting.wait()  # would never pass if they ran one after the other
        return torch.get_num_threads()

    assert parallel_map(work, range(2)) == [1, 1]
    assert torch.get_num_threads() == 2


def test_an_error_reaches_the_caller_and_the_threads_come_back():
    def work(i):
        if i == 3:
            raise ValueError("no luck")
        return i

    with pytest.raises(ValueError, match="no luck"):
        parallel_map(work, range(5))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_result_is_reported_with_its_number(n_threads):
    torch.set_num_threads(n_threads)
    reported = []
    found = parallel_map(lambda i: 10 * i, range(5, 10), lambda number, result: reported.append((number, result)))
    assert found == [50, 60, 70, 80, 90]
    assert sorted(reported) == [(0, 50), (1, 60), (2, 70), (3, 80), (4, 90)]


def test_results_are_reported_one_at_a_time():
    inside = []

    def reported(number, result):
        inside.append(number)
        time.sleep(0.01)
        assert inside == [number], "another one is being reported"
        inside.clear()

    assert parallel_map(lambda i: i, range(6), reported) == list(range(6))


def test_an_error_in_on_result_reaches_the_caller():
    def reported(number, result):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        parallel_map(lambda i: i, range(5), reported)
    assert torch.get_num_threads() == 2


def test_the_bits_do_not_depend_on_the_number_of_threads():
    a = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    two = parallel_map(lambda i: (a * i) @ a, range(4))
    torch.set_num_threads(1)
    one = parallel_map(lambda i: (a * i) @ a, range(4))
    assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))
