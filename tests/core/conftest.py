"""A small problem, and the objective of docs/method.md line by line, to be differentiated by autograd."""

import pytest
import torch
from torch.nn import functional


@pytest.fixture
def random_problem():
    """Rows of unit length, labels of the first ones, and four prototypes, in double precision."""

    def problem(n=40, n_labelled=14, n_features=5, n_known=2, seed=0, n_classes=4):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(n, n_features, generator=generator, dtype=torch.float64)
        x = x / x.norm(dim=1, keepdim=True)
        labels = torch.randint(n_known, (n_labelled,), generator=generator)
        prototypes = torch.randn(n_classes, n_features, generator=generator, dtype=torch.float64)
        return x, labels, prototypes

    return problem


@pytest.fixture
def plain_terms():
    """The objective, its terms by name, and the share of U in T."""
    return _plain_terms


def _plain_shares(objective, k):
    return torch.full((k,), 1 / k, dtype=torch.float64) if objective.class_shares is None else objective.class_shares


def _plain_sinkhorn(z, objective):
    y = z.detach() ** (1.0 / objective.sinkhorn_epsilon)
    n, k = y.shape
    for _ in range(objective.sinkhorn_iterations):
        y = y / y.sum(dim=0, keepdim=True) * n * _plain_shares(objective, k)
        y = y / y.sum(dim=1, keepdim=True)
    return y


def _plain_terms(parameters, h, x, labels, objective, temperature):
    """docs/method.md, line by line, to be differentiated by autograd."""
    log_z = torch.log_softmax(temperature * h(parameters, x) @ parameters["prototypes"].T, dim=1)
    z = log_z.exp()
    n_labelled = len(labels)
    over_u = objective.marginal_rows == "unlabelled" and n_labelled < len(x)
    marginal = z[n_labelled:].mean(dim=0) if over_u else z.mean(dim=0)
    entropies = -(z * log_z).sum(dim=1)
    y = _plain_sinkhorn(z, objective)
    zero = z.new_zeros(())

    terms = dict.fromkeys(("M", "C", "L_R", "CE", "L_S"), zero)
    k = z.shape[1]
    terms["M"] = (marginal * (marginal / (k * _plain_shares(objective, k))).log()).sum()
    if n_labelled < len(x):
        terms["C"] = entropies[n_labelled:].mean()
    in_t = y.amax(dim=1) > objective.threshold
    in_t[:n_labelled] = False
    if objective.pseudo_labels and in_t.any():
        terms["L_R"] = objective.eta * objective.trade_off * entropies[in_t].mean()
    if objective.labels and n_labelled:
        if not objective.mixed_labels or objective.supervision == "added":
            terms["CE"] = functional.nll_loss(log_z[:n_labelled], labels)
        if objective.mixed_labels:
            onehot = functional.one_hot(labels, z.shape[1]).to(z.dtype)
            mix = (1 - objective.beta) * onehot + objective.beta * y[:n_labelled]
            terms["L_S"] = -(mix * log_z[:n_labelled]).sum(dim=1).mean()
    total = terms["M"] + objective.trade_off * terms["C"] + terms["L_R"] + terms["CE"] + terms["L_S"]
    share = float(in_t.sum()) / max(len(x) - n_labelled, 1) if objective.pseudo_labels else 0.0
    return total, terms, share
