"""The progress bar on a terminal whose clock the test sets."""

import contextlib
import io
import re
import threading
import time

import pytest
import torch

from rpim._common.progress import Progress, parallel_map


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Do some of a hundred units of work, each of so many seconds: the last bar, or "" if there was none."""
    now = [100.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def run(n_steps, seconds, *, show=True, stream=None):
        stream = stream or Terminal()
        with contextlib.redirect_stderr(stream), Progress(show, "preparing") as progress:
            progress.expect(100)
            progress.stage("training")
            for _ in range(n_steps):
                now[0] += seconds
                progress.advance(1)
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", stream.getvalue()).split("\n")
        words = [word.strip() for word in lines if word.strip()]
        return " ".join(words[max(i for i, word in enumerate(words) if word == "training") :]) if words else ""

    return run


def test_elapsed_and_remaining_time_are_named(shown):
    bar = shown(25, seconds=2.0)
    assert bar.startswith("training ")
    assert bar.endswith(" 25% 0:00:50 elapsed, 0:02:30 left")


def test_remaining_time_is_unknown_after_a_single_step(shown):
    assert shown(1, seconds=3.0).endswith(" 1% 0:00:03 elapsed, -:--:-- left")


def test_short_work_shows_no_bar(shown):
    assert shown(25, seconds=0.05) == ""


def test_no_bar_unless_asked_for_and_on_a_terminal(shown):
    assert shown(25, seconds=2.0, show=False) == ""
    assert shown(25, seconds=2.0, stream=io.StringIO()) == ""


def test_remaining_time_is_known_where_a_step_takes_minutes(shown):
    assert shown(4, seconds=100.0).endswith(" 4% 0:06:40 elapsed, 2:40:00 left")


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
    meeting = threading.Barrier(2, timeout=120)

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
