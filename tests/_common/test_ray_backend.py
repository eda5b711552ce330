"""The Ray backend of the parallel map: the same results bit for bit, and no item computed twice."""

import os
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from rpim import RPIM, InfoMaxObjective
from rpim._common.errors import InputError
from rpim._common.progress import Progress, parallel_map, progress_listener
from rpim._common.ray import ray_backend
from rpim.core import checkpoint as checkpoint_module
from rpim.core.checkpoint import Checkpoint
from rpim.estimators import members


@pytest.fixture(autouse=True)
def sent_by_value(ray_here):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it


def test_tasks_run_in_other_processes_on_one_core_in_the_order_of_the_items():
    with ray_backend():
        found = parallel_map(lambda i: (i * i, os.getpid() != here, torch.get_num_threads()), range(6))
    assert found == [(i * i, True, 1) for i in range(6)]
    assert parallel_map(lambda _: os.getpid(), [0]) == [here]


here = os.getpid()


def test_every_result_is_reported_with_its_number():
    reported = []
    with ray_backend():
        parallel_map(lambda i: (10 * i, os.getpid() != here), range(5), lambda *result: reported.append(result))
    assert sorted(reported) == [(i, (10 * i, True)) for i in range(5)]


def test_errors_are_raised_as_they_are_and_input_errors_are_one_sentence():
    def work(i):
        if i == 1:
            raise KeyError("no luck")
        if i == 2:
            raise InputError("A row is odd: mend it.")
        return i

    with ray_backend():
        with pytest.raises(KeyError, match=r"^'no luck'$"):
            parallel_map(work, [0, 1])
        with pytest.raises(InputError, match=r"^A row is odd: mend it\.$"):
            parallel_map(work, [0, 2])
        assert parallel_map(work, [0]) == [0]


def test_progress_reaches_the_process_that_shows_it():
    reported = []
    with progress_listener(lambda _, share: reported.append(share)), Progress() as progress, ray_backend():
        progress.expect(4)
        parallel_map(lambda work: progress.advance(work), [1, 2])
    assert reported in ([0.25, 0.75], [0.5, 0.75])  # whichever ended first


@pytest.mark.parametrize("h", ["semantic-bias", "none"])
def test_a_committee_is_the_same_bit_for_bit(h):
    X, truth = make_blobs(300, n_features=16, centers=8, cluster_std=4.0, random_state=0)
    y = np.where((truth < 5) & (np.arange(300) % 2 == 0), truth, -1)

    def fitted():
        return RPIM(n_classes=8, objective=InfoMaxObjective(h=h), n_members=4, random_state=0).fit(X, y)

    here = fitted()
    with ray_backend():
        there = fitted()
    assert there.predict_proba(X).tobytes() == here.predict_proba(X).tobytes()
    assert there.history_ == here.history_
    assert there.label_issues_ == here.label_issues_
    np.testing.assert_array_equal(there.label_quality_, here.label_quality_)
    np.testing.assert_array_equal(there.stability_, here.stability_)
    assert there.expected_accuracy_ == here.expected_accuracy_


def test_saved_members_are_not_trained_again_by_tasks(tmp_path, monkeypatch):
    X, truth = make_blobs(200, n_features=8, centers=6, random_state=0)
    y = np.where((truth < 4) & (np.arange(200) % 2 == 0), truth, -1)
    monkeypatch.setattr(checkpoint_module, "SAVE_EVERY", 0.0)
    model = RPIM(n_classes=6, n_members=4, random_state=0)
    checkpoint = Checkpoint(tmp_path / "run", {})
    with ray_backend():
        first = model.fit(X, y, checkpoint=checkpoint).predict_proba(X)
    assert sorted(checkpoint.members()) == [0, 1, 2, 3]
    (checkpoint.folder / "member-2.safetensors").unlink()
    checkpoint.close()
    sent = []
    real = members.parallel_map
    monkeypatch.setattr(members, "parallel_map", lambda work, items, *a: sent.extend(items) or real(work, items, *a))
    with ray_backend():
        again = model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {})).predict_proba(X)
    assert [plan.representation for plan in sent] == 2 * ["mildly whitened"], "the third alone, and its representation"
    assert again.tobytes() == first.tobytes()


def test_the_search_of_the_paper_gives_the_same_scores_bit_for_bit():
    X, truth = make_blobs(200, n_features=8, centers=6, cluster_std=4.0, random_state=0)
    y = np.where((truth < 4) & (np.arange(200) % 2 == 0), truth, -1)

    def fitted():
        return RPIM(6, n_members=1, search="paper", n_init=1, max_iter=10, random_state=0).fit(X, y)

    here = fitted()
    with ray_backend():
        there = fitted()
    assert here.search_.keys() == {"trade_off", "weight_decay"}
    assert there.search_ == here.search_
    assert there.predict_proba(X).tobytes() == here.predict_proba(X).tobytes()
