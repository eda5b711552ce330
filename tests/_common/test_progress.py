"""The progress bar on a terminal whose clock the test sets."""

import contextlib
import io
import re

import pytest

from rpim._common.progress import Progress


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
