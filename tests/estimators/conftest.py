"""scikit-learn's checks of an estimator, and trainers of committee members, as fixtures."""

import warnings

import pytest
import torch

from rpim import RPIM, InfoMaxObjective
from rpim.core.objective import Objective
from rpim.estimators.members import SCHEDULE, Trainer, label_folds

EXPECTED_FAILURES = {
    "check_classifiers_classes": "it labels rows with -1 and 1, and -1 means unlabelled here (as in scikit-learn's own "
    "semi-supervised classifiers, which the check exempts by name)"
}
WITHOUT_LABELS = {"check_supervised_y_no_nan": "NaN means unlabelled, and rows without any label are clustered"}


@pytest.fixture
def check_estimator():
    """The estimator passes scikit-learn's checks."""
    from sklearn.utils.estimator_checks import check_estimator as run_checks  # takes long to import

    def check(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "every row has a label", mostly
            expected = EXPECTED_FAILURES if estimator.needs_labels else EXPECTED_FAILURES | WITHOUT_LABELS
            results = run_checks(estimator, expected_failed_checks=expected, on_fail=None)
        assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
        assert sum(r["status"] == "passed" for r in results) > 50

    return check


@pytest.fixture
def trainer(blobs):
    """A maker of trainers on five blobs, three of them known, the labelled rows first."""

    def make(spread=0.2, **parameters):
        x, truth = blobs([30] * 5, 8, spread=spread)
        labelled = torch.nonzero((truth < 3) & (torch.arange(150) % 2 == 0)).flatten()
        rest = torch.tensor(sorted(set(range(150)) - set(labelled.tolist())))
        order = torch.cat([labelled, rest])
        labels = truth[labelled]
        new_head = RPIM(objective=InfoMaxObjective(**parameters))._new_head
        return Trainer(x[order], labels, label_folds(labels, 0), 5, Objective(), SCHEDULE, new_head)

    return make
