"""Accuracies by hand where the three readings differ, then against every matching there is."""

from itertools import permutations
from math import isnan, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim._common.errors import InputError
from rpim.metrics import (
    GCDAccuracy,
    adjusted_rand_index,
    clustering_accuracy,
    contingency,
    expected_calibration_error,
    gcd_accuracy,
    gcd_accuracy_v1,
    normalized_mutual_information,
    orca_accuracy,
)

# Rows of three true classes, 0 being known:      predicted:  p   q   0
#                                           true 0            1   0   3
TRUTH = [0] * 4 + [1] * 4 + [2] * 2  #           1            1   1   2
PREDICTED = list("p000") + list("pq00") + list("00")  # 2     0   0   2


def accuracies(result):
    return result.all, result.known, result.unknown


def test_three_readings_of_one_example():
    truth = [str(t) for t in TRUTH]
    # v2, one matching: 0-"0" (3), 1-p or 1-q (1), 2-the other (0) is 4 of 10;
    #     2-"0" (2), 0-p (1), 1-q (1) is 4 as well; 1-"0" (2), 0-p (1), 2-q (0) is 3. So All is 0.4 either way.
    v2 = gcd_accuracy(truth, PREDICTED, known=["0"])
    assert v2.all == 0.4
    assert accuracies(v2) in [(0.4, 3 / 4, 1 / 6), (0.4, 1 / 4, 3 / 6)]
    # v1, two matchings: known 0-"0" (3 of 4); unknown 2-"0" (2), 1-p (1): 3 of 6. All 6 of 10.
    assert accuracies(gcd_accuracy_v1(truth, PREDICTED, known=["0"])) == (0.6, 0.75, 0.5)
    # ORCA: known by name, 3 of 4; unknown as v1; All as v2.
    assert accuracies(orca_accuracy(truth, PREDICTED, known=["0"])) == (0.4, 0.75, 0.5)


def test_orca_wants_the_name_where_the_others_match():
    truth, predicted = ["a", "a", "b", "b", "c", "c"], ["b", "b", "a", "a", "c", "c"]
    assert accuracies(gcd_accuracy(truth, predicted, known=["a", "b"])) == (1.0, 1.0, 1.0)
    assert accuracies(gcd_accuracy_v1(truth, predicted, known=["a", "b"])) == (1.0, 1.0, 1.0)
    assert accuracies(orca_accuracy(truth, predicted, known=["a", "b"])) == (1.0, 0.0, 1.0)


def test_v1_lets_a_predicted_class_serve_twice():
    # Everything in one class: v2 matches it once (2 of 4), v1 once on each side.
    truth, predicted = [0, 0, 1, 1], [5, 5, 5, 5]
    v2 = gcd_accuracy(truth, predicted, known=[0])
    assert v2.all == 0.5
    assert {v2.known, v2.unknown} == {0.0, 1.0}
    assert accuracies(gcd_accuracy_v1(truth, predicted, known=[0])) == (1.0, 1.0, 1.0)


def test_fewer_predicted_classes_than_true():
    # 0-x (2), 2-y (2); nothing is left for 1.
    assert accuracies(gcd_accuracy([0, 0, 1, 2, 2], list("xxxyy"), known=[0, 1])) == (4 / 5, 2 / 3, 1.0)


def test_more_predicted_classes_than_true():
    # 0-x (2 of 3), 1-z (2 of 3); y and w go unmatched.
    assert accuracies(gcd_accuracy([0, 0, 0, 1, 1, 1], list("xxyzzw"), known=[0])) == (4 / 6, 2 / 3, 2 / 3)


def test_a_share_without_rows_is_nan():
    result = gcd_accuracy([0, 1, 1], [0, 1, 0], known=[0, 1])
    assert accuracies(result)[:2] == (2 / 3, 2 / 3)
    assert isnan(result.unknown)
    for reading in (gcd_accuracy, gcd_accuracy_v1, orca_accuracy):
        assert isnan(reading([0, 1], [0, 1], known=[0, 1]).unknown)
        assert isnan(reading([0, 1], [0, 1], known=[]).known)
        assert not isnan(reading([0, 1], [0, 1], known=[0]).unknown)


def test_known_classes_without_rows_do_not_matter():
    assert gcd_accuracy([3, 3, 4], [0, 0, 1], known=[3, 77]) == gcd_accuracy([3, 3, 4], [0, 0, 1], known=[3])


def test_contingency_by_hand():
    counts = contingency(np.array([0, 0, 1, 1]), np.array([2, 2, 0, 2]), 2, 3)
    assert counts.tolist() == [[0, 0, 2], [1, 0, 1]]


def test_clustering_accuracy_by_hand():
    assert clustering_accuracy(["a", "a", "b", "b"], [7, 7, 3, 7]) == 0.75


def test_as_text_and_as_numbers():
    result = GCDAccuracy(0.5, 0.25, 1.0)
    assert str(result) == "All 50.0%  Known 25.0%  Unknown 100.0%"
    assert result.as_dict() == {"all": 0.5, "known": 0.25, "unknown": 1.0}


# -- properties -----------------------------------------------------------------------------------------------------

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=14)


def every_matching(truth, predicted, known):
    """(hits over all, over known, over unknown) of every one-to-one naming of the predicted classes 0 .. 4."""
    for names in permutations(range(5)):  # true classes 0 .. 3, and 4 for "none of them"
        hits = np.array([names[p] == t for t, p in zip(truth, predicted, strict=True)])
        is_known = np.isin(truth, known)
        yield int(hits.sum()), int(hits[is_known].sum()), int(hits[~is_known].sum())


@settings(deadline=None, max_examples=40)
@given(rows=rows, known=st.sets(st.integers(0, 3)))
def test_v2_is_the_best_of_all_matchings(rows, known):
    truth, predicted = (list(column) for column in zip(*rows, strict=True))
    known = sorted(known)
    n_known = sum(t in known for t in truth)
    result = gcd_accuracy(truth, predicted, known)
    found = (
        round(result.all * len(truth)),
        0 if n_known == 0 else round(result.known * n_known),
        0 if n_known == len(truth) else round(result.unknown * (len(truth) - n_known)),
    )
    matchings = set(every_matching(truth, predicted, known))
    assert found[0] == max(matchings)[0]
    assert found in matchings, "Known and Unknown belong to that same matching"


@settings(deadline=None, max_examples=40)
@given(rows=rows, names=st.permutations(["a", "b", "c", "d", "e"]))
def test_names_of_predicted_classes_do_not_matter(rows, names):
    truth, predicted = (list(column) for column in zip(*rows, strict=True))
    renamed = [names[p] for p in predicted]
    known = [0, 1]
    assert gcd_accuracy(truth, renamed, known).all == gcd_accuracy(truth, predicted, known).all
    for ours, theirs in zip(
        accuracies(gcd_accuracy_v1(truth, renamed, known)),
        accuracies(gcd_accuracy_v1(truth, predicted, known)),
        strict=True,
    ):
        assert ours == theirs or (isnan(ours) and isnan(theirs))


@settings(deadline=None, max_examples=40)
@given(rows=rows)
def test_v1_reads_no_lower_than_v2(rows):
    truth, predicted = (list(column) for column in zip(*rows, strict=True))
    v1, v2, orca = (f(truth, predicted, [0, 1]) for f in (gcd_accuracy_v1, gcd_accuracy, orca_accuracy))
    assert v1.all >= v2.all
    assert orca.all == v2.all
    assert isnan(v1.known) or orca.known <= v1.known


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 6, 200), rng.integers(0, 7, 200)
    order = rng.permutation(200)
    known = [0, 1, 2]
    assert gcd_accuracy(truth[order], predicted[order], known) == gcd_accuracy(truth, predicted, known)


@pytest.mark.slow
def test_a_million_rows_and_five_thousand_classes():
    rng = np.random.default_rng(0)
    n, k = 1_000_000, 5_000
    truth = rng.integers(0, k, n)
    right = rng.random(n) < 0.9
    renamed = (7 * truth + 3) % k  # one-to-one, for 7 and 5000 share no divisor
    predicted = np.where(right, renamed, rng.integers(0, k, n))
    result = gcd_accuracy(truth, predicted, known=np.arange(k // 2))
    expected = predicted == renamed
    assert accuracies(result) == pytest.approx(
        (expected.mean(), expected[truth < k // 2].mean(), expected[truth >= k // 2].mean()), abs=1e-12
    )


# -- NMI and ARI ----------------------------------------------------------------------------------------------------


def test_nmi_by_hand():
    assert normalized_mutual_information([0, 0, 1, 1], ["b", "b", "a", "a"]) == pytest.approx(1.0)
    assert normalized_mutual_information([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0.0, abs=1e-12)
    # I = log 2 (the prediction tells the truth), entropies log 2 and log 4: log 2 / (1.5 log 2) = 2/3
    assert normalized_mutual_information([0, 0, 1, 1], [0, 1, 2, 3]) == pytest.approx(log(2) / (1.5 * log(2)))


def test_ari_by_hand():
    assert adjusted_rand_index([0, 0, 1, 1], ["b", "b", "a", "a"]) == pytest.approx(1.0)
    # Pairs together in both: 1 of {01, 23} x {01}. Expected 2 * 1 / 6 = 1/3, most possible (2 + 1) / 2 = 3/2:
    # (1 - 1/3) / (3/2 - 1/3) = 4/7
    assert adjusted_rand_index([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)
    # Together in both: none. (0 - 2 * 2 / 6) / (2 - 2/3) = -1/2
    assert adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


# -- errors ---------------------------------------------------------------------------------------------------------

EVERYTHING = [
    lambda t, p: gcd_accuracy(t, p, []),
    lambda t, p: gcd_accuracy_v1(t, p, []),
    lambda t, p: orca_accuracy(t, p, []),
    clustering_accuracy,
    normalized_mutual_information,
    adjusted_rand_index,
]


@pytest.mark.parametrize("measure", EVERYTHING)
def test_errors(measure):
    with pytest.raises(InputError, match=r"truth has shape \(3,\) and the predictions \(2,\).* same length"):
        measure([0, 1, 2], [0, 1])
    with pytest.raises(InputError, match=r"shape \(1, 2\)"):
        measure([[0, 1]], [[0, 1]])
    with pytest.raises(InputError, match="no rows to evaluate"):
        measure([], [])


def test_expected_calibration_error_by_hand():
    # Two bins: (0.2 + 0.4) said, 1 right of 2; (0.9 + 0.7 + 0.8) said, 3 right of 3.
    said, right = [0.2, 0.4, 0.9, 0.7, 0.8], [True, False, True, True, True]
    assert expected_calibration_error(said, right, n_bins=2) == pytest.approx((0.4 + 0.6) / 5)
    # In one bin the gaps of both cancel: 3.0 said, 4 right.
    assert expected_calibration_error(said, right, n_bins=1) == pytest.approx(1.0 / 5)
    # A row that counts twice is as good as two.
    assert expected_calibration_error(said, right, 2, weights=[2, 1, 1, 1, 1]) == pytest.approx(
        expected_calibration_error([0.2, *said], [True, *right], 2)
    )
    assert expected_calibration_error([1.0], [True]) == 0.0  # a probability of one has a bin
    with pytest.raises(InputError, match=r"shape \(2,\) and what is right \(1,\)"):
        expected_calibration_error([0.5, 0.5], [True])
