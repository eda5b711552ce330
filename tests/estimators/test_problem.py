"""What a training announces: a bar that is over before the work is, or never begins, is of no use."""

import pytest

from rpim import RPIM, RowFiles
from rpim._common.progress import Progress, progress_listener
from rpim.core.training import Schedule
from rpim.engines import base as engine_base
from rpim.estimators.problem import TrainingProgress, caches_probabilities


@pytest.mark.parametrize(
    ("schedule", "steps", "announced"),
    [
        (Schedule(max_iter=300, tol=1e-3), 11, 20),
        (Schedule(max_iter=300, tol=1e-3), 20, 20),
        (Schedule(max_iter=300, tol=1e-3), 21, 30),
        (Schedule(max_iter=25, tol=1e-3), 25, 25),
        (Schedule(max_iter=8, tol=1e-3), 8, 8),
        (Schedule(max_iter=40), 3, 40),
        (Schedule(max_iter=8, tol=1e-3), 10, 16),  # it started again
        (Schedule(max_iter=40), 41, 50),
    ],
)
def test_steps_are_announced_as_they_are_needed(schedule, steps, announced):
    heard = []
    with progress_listener(lambda _, share: heard.append(share)), Progress() as progress:
        training = TrainingProgress(progress, 2.0, schedule)
        for _ in range(steps):
            training.step()
    assert heard[-1] == pytest.approx(steps / announced)


def test_probabilities_are_kept_where_two_matrices_of_them_take_a_quarter_of_the_memory():
    assert caches_probabilities(180, 6, memory=4 * 2 * 4 * 180 * 6)
    assert not caches_probabilities(180, 6, memory=4 * 2 * 4 * 180 * 6 - 1)


@pytest.mark.slow
def test_the_training_on_all_rows_is_announced_before_the_members_are_trained(partly_labelled, monkeypatch):
    _, y, folder = partly_labelled
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 240)
    heard = []
    with progress_listener(lambda stage, share: heard.append((stage, share))):
        model = RPIM(12, n_members=4, random_state=0).fit(RowFiles(folder), y)
    shares = {stage: [share for name, share in heard if name == stage] for stage, _ in heard}
    assert list(shares)[-5:] == [
        "combining the members",
        "distilling the committee",
        "training on a sample",
        "training",
        "assigning",
    ]
    assert max(shares["combining the members"]) < 0.9, "the training is still to come"
    assert len(shares["training"]) == 1 + model.n_iter_
