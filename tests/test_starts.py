"""Several starts made into one."""

import pytest
import torch

from rpim import starts
from rpim.engine import InMemory
from rpim.metrics import clustering_accuracy
from rpim.optimise import optimise
from rpim.starts import consensus, consensus_start, single_start


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


TAU = 25.0


def voters(*members):
    """An engine, and prototypes that give each row these very probabilities: row i is the i-th unit vector."""
    n, k = members[0].shape
    engine = InMemory(torch.eye(n, dtype=torch.float64), torch.empty(0, dtype=torch.long), k)
    return engine, [torch.log(m.double().clamp_min(1e-30)).T / TAU for m in members]


def together(*members, reference=0, n_known=0):
    engine, prototypes = voters(*members)
    return consensus(engine, prototypes, reference, n_known, TAU), prototypes


def probabilities(n=12, k=5, seed=0):
    # Sharp, with every class in use, so that a column is most like itself.
    own = torch.arange(n) % k
    logits = torch.randn(n, k, generator=seeded(seed), dtype=torch.float64)
    return torch.softmax(logits + 5.0 * torch.eye(k, dtype=torch.float64)[own], dim=1)


def test_consensus_by_hand():
    # One known class, two new ones; the second and the third have the new ones the other way round.
    first = torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.0, 0.1, 0.9], [0.0, 0.6, 0.4]])
    second = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.0, 0.8], [0.0, 0.6, 0.4], [0.1, 0.9, 0.0]])
    third = torch.tensor([[0.3, 0.4, 0.3], [0.0, 0.3, 0.7], [0.1, 0.8, 0.1], [0.0, 0.7, 0.3]])
    (labels, agreement), _ = together(first, second, third, n_known=1)
    # Row 3: 0.6 + 0.0 + 0.3 for the first new class, 0.4 + 0.9 + 0.7 for the second.
    assert labels.tolist() == [0, 1, 2, 2]
    # Against that the first has row 3 otherwise, the third row 0.
    assert agreement == pytest.approx(10 / 12)


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_consensus_of_permuted_copies(reference):
    z = probabilities()
    copies = [z, z[:, [0, 1, 4, 2, 3]], z[:, [0, 1, 3, 4, 2]]]
    (labels, agreement), members = together(*copies, reference=reference, n_known=2)
    assert labels.tolist() == copies[reference].argmax(dim=1).tolist()
    assert agreement == 1.0
    for member in members:  # every member has been put into the reference's order
        torch.testing.assert_close(member, members[reference])


def test_known_classes_are_not_matched():
    z = probabilities()
    swapped = 0.9 * z[:, [1, 0, 2, 3, 4]] + 0.02  # a little less sure, so that no vote is a tie
    (labels, _), members = together(z, swapped, n_known=2)
    assert labels.tolist() == z.argmax(dim=1).tolist()
    assert torch.equal(members[1], voters(swapped)[1][0]), "nothing has moved"


@pytest.mark.parametrize("n_known", [4, 5])
def test_one_new_class_or_none(n_known):
    z, other = probabilities(seed=0), probabilities(seed=1)
    assert together(z, other, n_known=n_known)[0][0].tolist() == (z + other).argmax(dim=1).tolist()


def test_consensus_of_one():
    z = probabilities()
    assert together(z, n_known=2)[0][0].tolist() == z.argmax(dim=1).tolist()


def test_consensus_in_blocks_is_the_same(monkeypatch):
    members = [probabilities(n=40, seed=seed) for seed in range(4)]
    whole = together(*members, n_known=2)[0]
    engine, prototypes = voters(*members)
    engine._slices = [slice(i, min(i + 7, 40)) for i in range(0, 40, 7)]
    labels, agreement = consensus(engine, prototypes, 0, 2, TAU)
    assert labels.tolist() == whole[0].tolist()
    assert agreement == whole[1]


@pytest.fixture
def problem(blobs):
    """Two known classes of five, half of each labelled, the labelled rows first."""
    x, truth = blobs([20, 20, 16, 12, 8], n_features=8)
    labelled = torch.cat([torch.arange(0, 10), torch.arange(20, 30)])
    rest = torch.tensor(sorted(set(range(len(x))) - set(labelled.tolist())))
    rows = torch.cat([labelled, rest])
    return x[rows], truth[labelled], truth[rows]


def start(problem, n_starts=3, on_start=lambda: None):
    x, labels, _ = problem
    return consensus_start(
        x, labels, 5, n_starts=n_starts, temperature=TAU, generator=seeded(), on_start=on_start
    )


def test_consensus_start_finds_blobs(problem):
    x, _, truth = problem
    heard = []
    found = start(problem, on_start=lambda: heard.append(1))
    assert found.prototypes.shape == (5, 8)
    nearest = torch.cdist(x, found.prototypes).argmin(dim=1)
    assert (nearest[truth < 2] == truth[truth < 2]).all(), "known classes keep their place"
    assert clustering_accuracy(truth.numpy(), nearest.numpy()) == 1.0
    for k in range(5):  # and each prototype is the mean of its blob
        torch.testing.assert_close(found.prototypes[nearest[truth == k][0]], x[truth == k].mean(dim=0))
    assert found.agreement == 1.0
    assert len(heard) == 3


def test_labelled_rows_stay_in_their_class(problem):
    x, labels, truth = problem
    x = x.clone()
    x[0] = torch.eye(8)[7]  # nothing like its class
    found = start((x, labels, truth))
    for k in (0, 1):
        torch.testing.assert_close(found.prototypes[k], x[truth == k].mean(dim=0))


def test_starts_that_differ(monkeypatch):
    references, objectives = [], []

    def spy(engine, members, reference, n_known, temperature):
        references.append(reference)
        return consensus(engine, members, reference, n_known, temperature)

    def listen(engine, head, objective, schedule):
        history = optimise(engine, head, objective, schedule)
        if schedule is starts.SETTLE:
            objectives.append(history[-1]["objective"])
        return history

    monkeypatch.setattr(starts, "consensus", spy)
    monkeypatch.setattr(starts, "optimise", listen)
    x = torch.nn.functional.normalize(torch.randn(80, 6, generator=seeded()), dim=1)
    found = start((x, torch.tensor([0, 1]), None), n_starts=4)
    assert 0.0 < found.agreement < 1.0
    assert len(set(objectives)) == 4
    assert references == [objectives.index(min(objectives))], "the lowest objective leads"
    assert torch.isfinite(found.prototypes).all()


def test_consensus_start_of_one_start_agrees_with_itself(problem):
    assert start(problem, n_starts=1).agreement == 1.0


def test_the_same_seed_gives_the_same_start(problem):
    first, again = start(problem, n_starts=2), start(problem, n_starts=2)
    assert torch.equal(first.prototypes, again.prototypes)
    assert first.agreement == again.agreement


def test_single_start(problem):
    x, labels, truth = problem
    found = single_start(x, labels, 5, n_init=10, generator=seeded())
    nearest = torch.cdist(x, found.prototypes).argmin(dim=1)
    assert clustering_accuracy(truth.numpy(), nearest.numpy()) == 1.0
    assert found.agreement == 1.0
