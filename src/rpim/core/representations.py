"""Representations of the rows for the members of a committee.

No representation is best on every data set: raw rows are those of the encoder, centred ones lack the direction that all
rows share, whitened ones shrink the directions in which rows of *one* class differ. A committee uses several.

Each is an affine map and a normalization, so that a linear head with the semantic bias can represent any of them:

    r(x) = (A x + b) / norm        A: d x D

    raw        A = V^T                         b = 0
    centred    A = V^T                         b = -V^T mu
    whitened   A = V^T S^-p                    b = -V^T S^-p mu

mu is the mean of the rows, S their within-class covariance, shrunk, and V the d leading principal directions of the
rows after the map (Fisher's discriminant analysis whitens with S^-1/2; a smaller power trusts the labels less).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rpim.core.kmeans import class_means
from rpim.core.preprocessing import principal_directions

KINDS = {"raw": None, "centred": 0.0, "mildly whitened": 0.25, "whitened": 0.5}
"""The power p of each kind; None means no centring."""


def uses_labels(kind: str) -> bool:
    """Whether the labels matter: raw and centred rows are the same for all."""
    return bool(KINDS[kind])


SHRINKAGE = 0.5
"""The minimum share of the isotropic covariance in S: full whitening would amplify directions of pure noise."""


@dataclass(frozen=True)
class Representation:
    """r(x) = (A x + b) / norm.

    Parameters
    ----------
    matrix : (d, D)
        A
    shift : (d,)
        b
    """

    matrix: Tensor
    shift: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Map some rows. (n, d)"""
        return normalize(torch.addmm(self.shift, x, self.matrix.T), dim=1, eps=1e-12)


def fit_representation(
    kind: str, x: Tensor, labels: Tensor, n_directions: int | None = None, *, whitening: Whitening | None = None
) -> Representation:
    """Fit a representation to the rows.

    Parameters
    ----------
    kind : one of `KINDS`
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        The codes of the first rows.
    n_directions : int, optional
        d, the number of principal directions; all D by default.
    whitening : Whitening, optional
        `Whitening.of` the same rows, if it is already computed.
    """
    n_features = x.shape[1]
    power = KINDS[kind]
    if not power:
        matrix = torch.eye(n_features, dtype=x.dtype, device=x.device)
        shift = x.new_zeros(n_features) if power is None else -x.mean(dim=0)
    else:
        found = Whitening.of(x, labels) if whitening is None else whitening
        matrix = found.matrix(power).to(x.dtype)
        shift = -(matrix @ found.mean)
    if n_directions is not None and n_directions < n_features:
        directions = principal_directions(Representation(matrix, shift)(x), n_directions)  # (D, d)
        matrix, shift = directions.T @ matrix, directions.T @ shift
    return Representation(matrix.contiguous(), shift)


@dataclass(frozen=True)
class Whitening:
    """The mean of the rows, and the eigenvalues and eigenvectors of their within-class covariance.

    Parameters
    ----------
    mean : (D,)
    values : (D,)
        Eigenvalues of S, relative to their mean.
    vectors : (D, D)
        Eigenvectors, one per column.
    """

    mean: Tensor
    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, x: Tensor, labels: Tensor) -> Whitening:
        """Estimate S from the labelled rows, which come first: (1 - a) S + a tr(S)/D I.

        The share a is one half, and larger for few rows: D / (D + n) with n degrees of freedom. With one labelled row
        per class S is isotropic, and whitened rows are centred ones.
        """
        labelled, n_features = x[: len(labels)].double(), x.shape[1]
        n_classes = int(labels.max()) + 1 if len(labels) else 0
        means = class_means(labelled, labels, labelled.new_zeros(n_classes, n_features))
        apart = labelled - means[labels]
        covariance = apart.T @ apart
        trace = float(covariance.trace())
        degrees = len(labels) - n_classes
        isotropic = torch.eye(n_features, dtype=torch.float64, device=x.device)
        if degrees > 0 and trace > 1e-12 * len(labels):
            share = max(SHRINKAGE, n_features / (n_features + degrees))
            covariance = (1.0 - share) * covariance * (n_features / trace) + share * isotropic
        else:
            covariance = isotropic
        values, vectors = torch.linalg.eigh(covariance)
        return cls(x.mean(dim=0), values, vectors)

    def matrix(self, power: float) -> Tensor:
        """S^-power. (D, D)"""
        return (self.vectors * self.values**-power) @ self.vectors.T
