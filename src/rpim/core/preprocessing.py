"""From the user's rows to the rows that a head takes: normalized, and projected onto principal directions.

Several embeddings of the same rows, of several encoders, are one matrix with known columns. Each embedding is
normalized and projected on its own, and all get the same length: otherwise the one with the largest values would decide
alone which rows are similar.

**Representations.** No representation is best on every data set: raw rows are those of the encoder, centred ones lack
the direction that all rows share, whitened ones shrink the directions in which rows of *one* class differ. A committee
uses several. Each is an affine map and a normalization, so that a linear head with the semantic bias can represent any
of them:

    r(x) = (A x + b) / norm        A: d x D

    raw        A = V^T                         b = 0
    centred    A = V^T                         b = -V^T mu
    whitened   A = V^T S^-p                    b = -V^T S^-p mu

mu is the mean of the rows, S their within-class covariance, shrunk, and V the d leading principal directions of the
rows after the map (Fisher's discriminant analysis whitens with S^-1/2; a smaller power trusts the labels less).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rpim._common.errors import InputError
from rpim.core.kmeans import class_means
from rpim.data.labels import column_slices, unit_rows


def single_precision(rows: NDArray[Any]) -> NDArray[Any]:
    """Half-precision rows in single precision, others as they are: torch converts fifty times as fast as numpy.

    The memory is numpy's: aligned blocks of torch's among smaller ones fragment the heap, by gigabytes in a long pass.
    """
    if rows.dtype != np.float16:
        return rows
    values = np.empty(rows.shape, dtype=np.float32)
    torch.from_numpy(values).copy_(torch.from_numpy(rows if rows.flags.writeable else rows.copy()))
    return values


class SumOfSquares:
    """The Gram matrix X^T X, summed block by block in double precision.

    Directions with almost equal eigenvalues rotate with the last bits of this sum, so these must not depend on the
    block boundaries.
    """

    def __init__(self, n_features: int, device: torch.device) -> None:
        self.total = torch.zeros(n_features, n_features, dtype=torch.float64, device=device)  # (D, D)

    def add(self, x: Tensor) -> None:
        """Add the rows of a block."""
        x = x.double()
        self.total.addmm_(x.T, x)


def principal_directions(x: Tensor, n_directions: int) -> Tensor:
    """The leading principal directions of the rows, not centred so that angles are kept. (D, n)"""
    return leading_directions(x.T @ x, n_directions).to(x.dtype)


def leading_directions(gram: Tensor, n_directions: int) -> Tensor:
    """The same from the Gram matrix, in single precision. (D, n)"""
    directions: Tensor = torch.linalg.eigh(gram.double())[1]
    return directions[:, -n_directions:].flip(1).float().contiguous()


def directions_of_each(gram: Tensor, n_directions: int, widths: Sequence[int]) -> Tensor:
    """The leading principal directions of each of several embeddings, as one block-diagonal matrix. (D, n)

    An embedding with fewer columns is kept as it is.

    >>> directions_of_each(torch.diag(torch.tensor([1.0, 2.0, 3.0])), 1, [2, 1]).abs().tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    blocks = [gram[columns, columns] for columns in column_slices(widths)]
    kept = [min(n_directions, len(block)) for block in blocks]
    directions = torch.zeros(len(gram), sum(kept), device=gram.device)
    for block, rows, columns in zip(blocks, column_slices(widths), column_slices(kept), strict=True):
        is_whole = len(block) <= n_directions
        directions[rows, columns] = (
            torch.eye(len(block)).to(gram) if is_whole else leading_directions(block, n_directions)
        )
    return directions


LARGEST, SMALLEST = 1e15, 1e-15
"""Of values that are not normalized: the squares of others leave the range of single precision."""


def check_scale(rows: NDArray[Any], normalize: bool) -> None:
    """Raise where rows that are not normalized are too large or too small to compute with.

    >>> check_scale(np.array([[1e20, 0.0]]), normalize=False)
    Traceback (most recent call last):
    rpim._common.errors.InputError: The largest value of the rows is 1e+20, ...
    """
    largest = 0.0 if normalize or not rows.size else max(float(rows.max()), -float(rows.min()))
    if largest and not SMALLEST <= largest <= LARGEST:
        raise InputError(
            f"The largest value of the rows is {largest:.3g}, beyond the range of single precision: have them "
            "normalized (normalize=True, no --no-normalize), or scale them."
        )


Normalization = bool | str


@dataclass(frozen=True)
class Preprocessing:
    """The same preprocessing for the rows of a fit and for new rows."""

    normalize: Normalization | tuple[Normalization, ...]  # "sqrt": of the square roots; one for each embedding
    components: Tensor | None  # (D, d) principal directions, None to keep all features
    device: torch.device
    widths: tuple[int, ...] = ()  # D of each embedding, if there are several

    @functools.cached_property
    def columns(self) -> tuple[slice, ...]:
        """The columns of each embedding in a preprocessed row."""
        before = column_slices(self.widths)
        if self.components is None or len(before) == 1:
            return before
        return column_slices([int(self.components[rows].any(dim=0).sum()) for rows in before])

    def __call__(self, rows: NDArray[Any]) -> Tensor:
        """Preprocess some rows. (n, d)"""
        x = self.normalized(rows)
        if self.components is None:
            return x
        x = x @ self.components
        if self.normalize:
            for columns in self.columns:
                part = x[:, columns]
                part.div_(part.norm(dim=1, keepdim=True).clamp_min_(1e-12))
            if len(self.columns) > 1:
                x /= len(self.columns) ** 0.5
        return x

    def normalized(self, rows: NDArray[Any]) -> Tensor:
        """Normalize some rows, where that is asked for, without projecting them. (n, D)"""
        rows = single_precision(rows)
        if self.normalize:
            unit = unit_rows(rows, widths=self.widths)
            parts = column_slices(self.widths)
            how = self.normalize if isinstance(self.normalize, tuple) else (self.normalize,) * len(parts)
            if "sqrt" in how:
                for part in (unit[:, columns] for columns, each in zip(parts, how, strict=True) if each == "sqrt"):
                    part[:] = np.copysign(np.sqrt(np.abs(part)), part)
                unit = unit_rows(unit, widths=self.widths)
            return torch.from_numpy(unit).to(self.device)
        with np.errstate(over="ignore"):
            values = np.array(rows, dtype=np.float32)  # a copy: the user's array may be read-only
        if np.abs(values).max(initial=0.0) > LARGEST:
            check_scale(np.asarray(rows), normalize=False)
        return torch.from_numpy(values).to(self.device)


HEAVY_TAIL = 6.0
"""E[x^4] / E[x^2]^2 of an exponential distribution; 3 is a half-normal one."""


def suits_square_root(rows: NDArray[np.floating]) -> bool:
    """Whether no value is negative and a few large values dominate, as in the features of a network after a ReLU.

    The square root of such features evens out the large values of a row. The inner product of two rows is then
    Hellinger's affinity (for images: Arandjelović and Zisserman, "Three things everyone should know to improve object
    retrieval", CVPR 2012).

    >>> sparse = np.eye(8) + 0.01
    >>> suits_square_root(sparse), suits_square_root(-sparse), suits_square_root(np.ones((8, 8)))
    (True, False, False)
    """
    if bool((rows < 0).any()):
        return False
    squares = unit_rows(rows).astype(np.float64) ** 2
    return bool((squares**2).mean() > HEAVY_TAIL * squares.mean() ** 2)


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
