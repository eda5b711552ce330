"""The head as tensors; outliers: the score by hand, junk found, and exactly the share left out."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.utils._param_validation import InvalidParameterError

from rpim import PIM, RPIM, Discovery, FeatureSet, InfoMaxObjective
from rpim.core.head import Head, least_fitting, softmax_of
from rpim.core.transforms import Transform
from rpim.data.labels import name_rows
from rpim.estimators import GCD
from rpim.runs.evaluation import evaluate

QUICK = {
    "n_classes": 6,
    "objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
    "n_members": 1,
    "max_iter": 20,
    "random_state": 0,
}
LABELS = {
    "int": (lambda c: c, -1),
    "uint8": (lambda c: c.astype(np.uint8), -1),
    "float": (lambda c: c.astype(float), np.nan),
    "text": (lambda c: np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[c], ""),
}


@pytest.fixture(scope="module")
def problem():
    """Six groups, the last two without any label, and 20 junk rows that point anywhere."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 30)
    X = np.concatenate([np.eye(6, 40)[truth] + 0.08 * random.randn(180, 40), 0.3 * random.randn(20, 40)])
    truth = np.append(truth, [-1] * 20)
    y = np.where((truth >= 0) & (truth < 4) & (np.arange(200) % 2 == 0), truth, -1)
    return X, y, truth


@pytest.mark.parametrize("name", ["none", "semantic-bias", "low-rank", "linear-bias", "semantic-scale-bias", "mlp"])
@pytest.mark.parametrize("offsets", [None, torch.tensor([0.5, -0.25, 0.0], dtype=torch.float64)])
def test_a_head_from_its_tensors(name, offsets, make_transform):
    generator = torch.Generator().manual_seed(0)
    x, prototypes = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (7, 3))
    head = Head(prototypes, make_transform(name, 5), 3.0, offsets, 1.5)
    stored = {**head.tensors(), "components": torch.ones(2)}  # a file may hold other tensors
    again = Head.from_tensors(stored, head.transform_name, 3.0, 1.5)
    assert type(again.transform) is type(head.transform)
    for one, other in zip(again.proba_and_score(x), head.proba_and_score(x), strict=True):
        assert torch.equal(one, other)


def test_a_head_from_the_wrong_tensors():
    tensors = Head(torch.eye(2), Transform({})).tensors()
    with pytest.raises(KeyError, match="Sigmoid"):
        Head.from_tensors(tensors, "Sigmoid", 25.0)
    with pytest.raises(KeyError, match="prototypes"):
        Head.from_tensors({}, "Transform", 25.0)


def test_the_score_by_hand():
    head = Head(torch.eye(2), Transform({}), temperature=2.0)
    x = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 0.0]])
    expected = [-np.log(np.exp(2) + 1), -np.log(2 * np.exp(1)), -np.log(np.exp(-2) + 1)]
    np.testing.assert_allclose(head.outlier_scores(x), expected, rtol=1e-6)
    z, scores = head.proba_and_score(x)
    torch.testing.assert_close(scores, head.outlier_scores(x))
    torch.testing.assert_close(z, torch.softmax(2.0 * x, dim=1))


def test_with_offsets_the_score_falls_with_the_distance_to_the_nearest_centroid():
    centroids = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    head = Head(centroids, Transform({}), 25.0, -0.5 * (centroids**2).sum(dim=1))
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, -1.0]])  # <x, c> alone would call the third the best
    squared = torch.cdist(x, centroids) ** 2
    torch.testing.assert_close(head.outlier_scores(x), -torch.logsumexp(-12.5 * squared, dim=1), rtol=1e-4, atol=1e-3)
    assert head.outlier_scores(x).argsort().tolist() == [0, 1, 3, 2]


def test_least_fitting():
    scores = np.array([0.0, 3.0, 1.0, 2.0], dtype=np.float32)
    rows, threshold = least_fitting(scores, 0.25)
    assert (rows.tolist(), threshold) == ([1], 2.5)
    assert least_fitting(scores, 0.1)[0].tolist() == []
    assert least_fitting(scores, 0.1)[1] == np.inf
    assert len(least_fitting(np.zeros(10, dtype=np.float32), 0.3)[0]) == 3, "exactly the share, even among equals"


@pytest.mark.parametrize(
    "model",
    [
        RPIM(**QUICK),
        pytest.param(RPIM(**{**QUICK, "n_members": 4}), marks=pytest.mark.slow),
        PIM(**QUICK),
        GCD(6, random_state=0),
    ],
    ids=["RPIM", "RPIM, 4 members", "PIM", "GCD"],
)
def test_junk_rows_have_the_highest_scores(model, problem):
    X, y, truth = problem
    scores = model.fit(X, y).outlier_scores(X)
    assert roc_auc_score(truth < 0, scores) > 0.99
    # And on rows that the model has never seen.
    random = np.random.RandomState(1)
    new = np.concatenate([np.eye(6, 40) + 0.08 * random.randn(6, 40), 0.3 * random.randn(6, 40)])
    assert roc_auc_score([0] * 6 + [1] * 6, model.outlier_scores(new)) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", LABELS)
def test_abstain_leaves_out_exactly_the_share_in_the_users_label_type(kind, problem, tmp_path):
    X, y, truth = problem
    of_code, missing = LABELS[kind]
    labels = np.array([of_code(np.array(c)).item() if c >= 0 else None for c in y], dtype=object)
    plain, model = (RPIM(**QUICK, abstain=share).fit(X, labels) for share in (0.0, 0.1))
    n_out = round(0.1 * (y < 0).sum())
    out = np.array([value != value or value == missing for value in model.labels_.tolist()])
    assert out.sum() == n_out
    assert (truth[out] < 0).all(), "the junk goes first"
    np.testing.assert_array_equal(model.labels_[~out], plain.labels_[~out])
    np.testing.assert_array_equal(model.outlier_scores(X), plain.outlier_scores(X))
    assert sorted(np.flatnonzero(model.outlier_scores(X)[y < 0] > model.outlier_threshold_).tolist()) == sorted(
        np.flatnonzero(out[y < 0]).tolist()
    )
    # The threshold holds for new rows: these fit less than all that were left out.
    far = -np.eye(6, 40).sum(axis=0, keepdims=True)
    predicted = model.predict(far).tolist()[0]
    assert predicted == missing or predicted != predicted
    features = FeatureSet.from_arrays(X, labels=labels)
    before = Discovery.from_fit(model, features)
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run")
    np.testing.assert_array_equal(after.labels, model.labels_)
    np.testing.assert_array_equal(after.assignments.left_out, out)
    np.testing.assert_array_equal(after.predict(X), model.predict(X))
    assert after.model.outlier_threshold_ == model.outlier_threshold_


def test_labelled_rows_keep_their_label_however_little_they_fit(problem):
    X, y, _ = problem
    y = y.copy()
    y[-20:] = 0  # the junk rows now carry labels
    model = RPIM(**QUICK, abstain=0.5).fit(X, y)
    np.testing.assert_array_equal(model.labels_[y >= 0], y[y >= 0])
    assert (model.labels_ == -1).sum() == round(0.5 * (y < 0).sum())


def test_rows_left_out_in_all_that_follows(problem, tmp_path):
    X, y, truth = problem
    features = FeatureSet.from_arrays(X, labels=y)
    discovery = Discovery.from_fit(RPIM(**QUICK, abstain=0.13).fit(X, y), features)
    out = discovery.assignments.left_out
    assert out.sum() == 18
    assert not discovery.known[out].any()
    assert (discovery.confidence[out] == 0).all()
    z = discovery.model.predict_proba(features.rows())[out]
    np.testing.assert_array_equal(discovery.assignments.runner_up[out], discovery.classes[z.argmax(axis=1)])
    np.testing.assert_array_equal(discovery.assignments.runner_up_confidence[out], z.max(axis=1))
    assert sum(row.rows for row in discovery.classes_table()) == 200 - 18
    everything = np.where(truth < 0, 99, truth)
    result = evaluate(discovery, everything)
    assert (result.rows, result.left_out) == ((y < 0).sum() - 18, 18)
    assert result.all > 0.97  # two junk rows are left
    discovery.export(tmp_path / "rows.csv")
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert sum(line.split(",")[1] == "" for line in lines[1:]) == 18


def test_names_of_rows():
    assert name_rows(np.array([0, -1]), np.array([True, False])).tolist() == [1, -1]
    assert name_rows(np.array([0, 1]), np.array([7, 8], dtype=np.uint8)).dtype == np.uint8


@pytest.mark.parametrize("abstain", [-0.1, 1.0, 5, "some"])
def test_bad_values_of_abstain(abstain, problem):
    X, y, _ = problem
    with pytest.raises(InvalidParameterError, match=r"'abstain' parameter of RPIM must be a float in the range \[0"):
        RPIM(**QUICK, abstain=abstain).fit(X, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_of_logits_far_apart(dtype):
    logits = torch.tensor([[0.0, 1.0, 2.0], [300.0, -300.0, 299.0], [-1e4, 0.0, 1e4], [5.0, 5.0, 5.0]], dtype=dtype)
    z, log_z = torch.empty_like(logits), torch.empty_like(logits)
    softmax_of(logits, z, log_z)
    torch.testing.assert_close(z, torch.softmax(logits, dim=1), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(log_z, torch.log_softmax(logits, dim=1))
