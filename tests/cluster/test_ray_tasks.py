"""What is done side by side as tasks of a cluster: the same results, caches that hold, and nothing done twice."""

import functools
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from rpim import RPIM
from rpim.cluster.tasks import spread_tasks
from rpim.errors import InputError
from rpim.parallel import side_by_side
from rpim.progress import Progress, told_to
from rpim.stability import stability


@pytest.fixture(autouse=True)
def sent_by_value(ray_here):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it


def noted(notes: Path, what) -> None:
    with open(notes, "a") as file:
        file.write(f"{what}\n")


def test_tasks_run_elsewhere_on_one_core_in_the_order_of_the_items():
    with spread_tasks():
        found = side_by_side(lambda i: (i * i, os.getpid() != here, torch.get_num_threads()), range(6))
    assert found == [(i * i, True, 1) for i in range(6)]
    assert side_by_side(lambda _: os.getpid(), [0]) == [here]


here = os.getpid()


def test_what_a_cached_function_gave_in_one_task_is_known_to_all(tmp_path):
    notes = tmp_path / "notes"
    rows = torch.arange(1000.0)

    @functools.cache
    def start(kind):
        noted(notes, kind)
        return float(rows.sum()) if kind == "sum" else len(rows)

    @functools.cache
    def judge(factor):
        noted(notes, factor)
        return factor * start("sum") + start("size")

    expected = [factor * 499500 + 1000 for factor in (1, 2, 3)]
    with spread_tasks():
        assert side_by_side(lambda one: one("sum"), [start]) == [499500.0]
        assert side_by_side(judge, [1]) == expected[:1]
        assert side_by_side(judge, [1, 2, 3]) == expected
        assert side_by_side(judge, [3, 1]) == [expected[2], expected[0]]
    assert sorted(notes.read_text().split()) == ["1", "2", "3", "size", "sum"]


def test_errors_are_raised_as_they_are_and_input_errors_are_one_sentence():
    def work(i):
        if i == 1:
            raise KeyError("no luck")
        if i == 2:
            raise InputError("A row is odd: mend it.")
        return i

    with spread_tasks():
        with pytest.raises(KeyError, match=r"^'no luck'$"):
            side_by_side(work, [0, 1])
        with pytest.raises(InputError, match=r"^A row is odd: mend it\.$"):
            side_by_side(work, [0, 2])
        assert side_by_side(work, [0]) == [0]


def test_progress_goes_on_where_it_is_shown():
    told = []
    with told_to(lambda _, share: told.append(share)), Progress() as progress, spread_tasks():
        progress.expect(4)
        side_by_side(lambda work: progress.advance(work), [1, 2])
    assert told == [0.25, 0.75]


def test_a_search_chooses_the_same_with_the_same_scores_bit_for_bit():
    X, truth = make_blobs(300, n_features=16, centers=8, cluster_std=4.0, random_state=0)
    y = np.where((truth < 5) & (np.arange(300) % 2 == 0), truth, -1)

    def fitted():
        model = RPIM(n_classes=8, n_starts=2, n_init=1, max_iter=20, random_state=0).fit(X, y)
        return model, stability(model, X, y, n_resamples=2)

    here, stable_here = fitted()
    with spread_tasks():
        there, stable_there = fitted()
    assert here.search_.keys() == {"trade_off", "class_sizes", "beta", "weight_decay"}
    assert there.search_ == here.search_
    for name in ("trade_off_", "class_sizes_", "beta_", "weight_decay_", "calibration_", "calibration_error_"):
        assert getattr(there, name) == getattr(here, name)
    assert there.predict_proba(X).tobytes() == here.predict_proba(X).tobytes()
    np.testing.assert_array_equal(stable_there, stable_here)
