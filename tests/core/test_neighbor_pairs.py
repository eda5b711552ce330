"""Training on pairs of neighbors."""

import pytest
import torch

from rpim.core.committee import nearest_neighbors
from rpim.core.head import Head
from rpim.core.neighbor_pairs import pair_gradient, train_on_pairs
from rpim.core.transforms import TRANSFORMS

NO_LABELS = torch.empty(0, dtype=torch.long)


def test_the_gradient_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    pairs = torch.tensor([1, 0, 3, 3, 2, 1, 8, 0, 1])  # some rows are drawn by several, some by none
    z = torch.softmax(logits, dim=1)
    expected = -torch.log(((z * z[pairs]) ** 0.6 / z.mean(dim=0)).sum(dim=1)).mean()
    expected.backward()
    loss, gradient = pair_gradient(torch.log_softmax(logits.detach(), dim=1), pairs)
    assert loss == pytest.approx(expected.item())
    torch.testing.assert_close(gradient, logits.grad)


def test_a_class_without_mass_stays_finite():
    log_z = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]]).clamp_min(-200.0)
    loss, gradient = pair_gradient(log_z, torch.tensor([1, 0]))
    assert torch.tensor(loss).isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("h", ["none", "semantic-bias"])
def test_neighbors_come_to_agree(blobs, h):
    x, _ = blobs([30] * 4, 12, spread=0.15)
    prototypes = torch.nn.functional.normalize(torch.randn(4, 12, generator=torch.Generator().manual_seed(1)), dim=1)
    neighbors = nearest_neighbors(x, 5)

    def agreement(head):
        classes = head.predict(x)
        return float((classes[neighbors] == classes[:, None]).double().mean())

    heads = [Head(prototypes.clone(), TRANSFORMS[h].initial(prototypes), 25.0) for _ in range(2)]
    before = agreement(heads[0])
    losses, again = (train_on_pairs(x, NO_LABELS, head, seed=0) for head in heads)
    assert losses == again
    assert torch.equal(heads[0].prototypes, heads[1].prototypes), "the seed decides"
    assert losses[-1] < losses[0] - 0.1
    assert not torch.equal(heads[0].prototypes, prototypes)
    assert agreement(heads[0]) > before + 0.1
    assert heads[0].predict(x).unique().numel() == 4, "and no class is lost"


def test_one_row_has_no_neighbor():
    prototypes = torch.eye(2, 3)
    head = Head(prototypes.clone(), TRANSFORMS["none"].initial(prototypes), 25.0)
    assert train_on_pairs(torch.ones(1, 3), NO_LABELS, head, seed=0) == []
    assert torch.equal(head.prototypes, prototypes)


def test_labels_decide_which_class_is_which(blobs):
    x, truth = blobs([30] * 4, 12, spread=0.15)
    first = torch.cat([torch.nonzero(truth == c)[:1, 0] for c in range(4)])
    others = torch.tensor([row for row in range(120) if row not in first.tolist()])
    x, truth = torch.cat([x[first], x[others]]), torch.cat([truth[first], truth[others]])
    means = torch.stack([x[truth == c].mean(dim=0) for c in range(4)])
    start = torch.nn.functional.normalize(means.mean(dim=0) + 0.05 * means, dim=1)  # nearly one point
    accuracy = []
    for labels in (truth[:4], (truth[:4] + 1) % 4):
        head = Head(start.clone(), TRANSFORMS["none"].initial(start), 25.0)
        train_on_pairs(x, labels, head, seed=0, steps=200)
        accuracy.append(float((head.predict(x) == (truth + labels[0]) % 4).double().mean()))
    assert min(accuracy) > 0.9
