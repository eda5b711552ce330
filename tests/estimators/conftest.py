"""scikit-learn's checks of an estimator, as a fixture."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator as run_checks

EXPECTED_FAILURES = {
    "check_classifiers_classes": "it labels rows with -1 and 1, and -1 means unlabelled here (as in scikit-learn's own "
    "semi-supervised classifiers, which the check exempts by name)"
}
WITHOUT_LABELS = {"check_supervised_y_no_nan": "NaN means unlabelled, and rows without any label are clustered"}


@pytest.fixture
def check_estimator():
    """The estimator passes scikit-learn's checks."""

    def check(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "every row has a label", mostly
            expected = EXPECTED_FAILURES if estimator.needs_labels else EXPECTED_FAILURES | WITHOUT_LABELS
            results = run_checks(estimator, expected_failed_checks=expected, on_fail=None)
        assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []
        assert sum(r["status"] == "passed" for r in results) > 50

    return check
