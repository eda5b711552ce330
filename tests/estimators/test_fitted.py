"""score and gcd_scorer: known classes by name, new ones matched, rows without a label ignored."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rpim import GCD, InputError, gcd_accuracy, gcd_scorer
from rpim.estimators.fitted import discovery_accuracy

KNOWN, NEW = np.array(["ant", "bee"]), np.array(["new-1", "new-2"])


@pytest.fixture(scope="module")
def problem():
    """Five separated groups, the last two without labels, and a model of them."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(5), 20)
    X = np.eye(5, 8)[truth] + 0.1 * random.randn(100, 8)
    y = np.where((truth < 3) & (np.arange(100) % 2 == 0), truth, -1)
    return X, y, truth, GCD(5, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("y", "predicted", "expected"),
    [
        (["ant", "bee", "bee"], ["ant", "bee", "ant"], 2 / 3),
        (["ant", "bee"], ["bee", "ant"], 0.0),  # known classes count under their own name alone
        (["ant", "ant"], ["new-1", "new-1"], 0.0),  # a known class is not matched with a new one
        (["cow", "cow", "dog"], ["ant", "ant", "new-1"], 1 / 3),  # nor the other way round
        (["cow", "cow", "dog", "dog"], ["new-2", "new-2", "new-1", "new-2"], 3 / 4),
        (["cow", "dog", "eel"], ["new-1", "new-1", "new-1"], 1 / 3),  # one to one
        (["cow", "cow"], ["new-1", "new-2"], 1 / 2),
        (["new-1", "cow"], ["new-2", "new-1"], 1.0),  # names of new classes mean nothing
        (["ant", "", None], ["ant", "new-1", "bee"], 1.0),  # rows without a label are ignored
        (["ant", "cow", "cow"], ["ant", "", "new-1"], 2 / 3),  # a row without a class is wrong
    ],
)
def test_by_hand(y, predicted, expected):
    assert discovery_accuracy(y, np.array(predicted), KNOWN, NEW) == pytest.approx(expected)


def test_it_is_the_gcd_accuracy_where_known_classes_keep_their_name(problem):
    X, _, truth, model = problem
    other = np.where(truth > 2, truth + 10, truth)  # what new classes are called in truth does not matter
    assert model.score(X, other) == 1.0
    assert model.score(X, other) == gcd_accuracy(other, model.predict(X), model.known_classes_).all


def test_unlabelled_rows_do_not_count(problem):
    X, y, _, model = problem
    assert model.score(X, y) == 1.0
    wrong = y.copy()
    wrong[np.flatnonzero(y == 0)[:3]] = 1
    assert model.score(X, wrong) == pytest.approx(1 - 3 / 30)
    assert model.score(X, np.where(wrong < 0, np.nan, wrong)) == pytest.approx(1 - 3 / 30)


def test_the_scorer_is_the_score_also_of_pipelines_and_other_classifiers(problem):
    X, y, truth, model = problem
    assert gcd_scorer(model, X, truth) == model.score(X, truth)
    pipeline = make_pipeline(StandardScaler(), GCD(5, random_state=0)).fit(X, y)
    assert gcd_scorer(pipeline, X, truth) == pipeline.score(X, truth)
    seen = y >= 0
    plain = LogisticRegression().fit(X[seen], y[seen])
    assert gcd_scorer(plain, X, truth) == pytest.approx(0.6), "it knows three classes of five"


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (lambda y: np.full_like(y, -1), "No row of y has a label"),
        (lambda y: y[:7], "There are 7 labels but 100 rows"),
        (lambda y: y.astype(str), "The labels of y are of type <U"),
    ],
)
def test_bad_labels_are_one_sentence(y, message, problem):
    X, codes, _, model = problem
    with pytest.raises(InputError, match=message):
        model.score(X, y(codes))
