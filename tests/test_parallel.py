"""Trainings side by side."""

import threading

import pytest
import torch

from rpim.parallel import side_by_side


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items():
    assert side_by_side(lambda i: i * i, range(20)) == [i * i for i in range(20)]
    assert side_by_side(lambda i: i, []) == []


def test_two_items_run_at_the_same_time_with_one_core_each():
    meeting = threading.Barrier(2, timeout=30)

    def work(_):
        meeting.wait()  # would never pass if they ran one after the other
        return torch.get_num_threads()

    assert side_by_side(work, range(2)) == [1, 1]
    assert torch.get_num_threads() == 2


def test_an_error_reaches_the_caller_and_the_threads_come_back():
    def work(i):
        if i == 3:
            raise ValueError("no luck")
        return i

    with pytest.raises(ValueError, match="no luck"):
        side_by_side(work, range(5))
    assert torch.get_num_threads() == 2


def test_the_bits_do_not_depend_on_the_number_of_threads():
    a = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    two = side_by_side(lambda i: (a * i) @ a, range(4))
    torch.set_num_threads(1)
    one = side_by_side(lambda i: (a * i) @ a, range(4))
    assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))
