"""The contract that every discovery method keeps: a scikit-learn classifier that may find classes of its own."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.hardware import device_of, row_blocks
from rpim._common.progress import Progress
from rpim.core.checkpoint import Checkpoint
from rpim.core.head import Head, least_fitting
from rpim.core.preprocessing import Normalization, SumOfSquares, check_scale, directions_of_each
from rpim.data.labels import (
    UNLABELLED,
    IntArray,
    are_several,
    checked_widths,
    encode_labels,
    name_new_classes,
    name_rows,
    side_by_side,
    unit_rows,
)
from rpim.data.row_files import RowFiles
from rpim.engines.base import Engine
from rpim.engines.in_memory import InMemoryEngine
from rpim.estimators.count_classes import count_classes
from rpim.estimators.fitted import FittedEstimator, FloatArray
from rpim.estimators.problem import ClassCount, FitProblem


class DiscoveryEstimator(FittedEstimator):
    """Shared by all methods; a subclass offers ``_discover``, from a `Problem` to a trained `Head`."""

    n_classes: int | None
    normalize: Any
    n_components: Any
    device: str | None
    random_state: Any
    verbose: bool
    abstain: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_classes": [None, Interval(Integral, 2, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "n_components": [None, Interval(Integral, 1, None, closed="left")],
        "normalize": ["boolean", StrOptions({"sqrt"})],
        "abstain": [Interval(Real, 0, 1, closed="left")],
        "device": [None, str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    needs_labels: ClassVar[bool] = True
    """Whether some rows must have a label."""
    streams: ClassVar[bool] = False
    """Whether the rows may stay on disk, or be spread over workers."""
    uses_views: ClassVar[bool] = False
    """Whether the method compares two views of an item, and so can use those that a feature set stores."""

    absent_terms: ClassVar[dict[str, Any]] = {}
    """Parameters of `InfoMaxObjective` that the method does not have, each with the value that leaves its term out."""

    @classmethod
    def missing_extra(cls) -> str | None:
        """What has to be installed before the method can be used, in a sentence; None where nothing has to."""
        return None

    def fit(
        self,
        X: ArrayLike | RowFiles | Engine,
        y: ArrayLike | None = None,
        views: Sequence[ArrayLike] = (),
        *,
        widths: Sequence[int] = (),
        checkpoint: Checkpoint | None = None,
    ) -> DiscoveryEstimator:
        """Find the class of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), RowFiles, or what `on_ray` gives
            Embeddings. `RowFiles` stay on disk, and with `on_ray` they are spread over workers (RIM, TIM, PIM, RPIM).
            A list of several matrices has the embeddings of several encoders: each is normalized and projected on its
            own, and all have the same weight. The members of a committee take turns to see one of them, and the model
            sees all; a single fit, like every other method, sees all side by side.
        y : array-like of shape (n_rows,), optional
            The labels of the rows that have one; -1, None, NaN or "" for the others. Without any label the rows are
            clustered (RIM, TIM, PIM, RPIM, KMeans).
        views : sequence of array-likes of the shape of X
            Further views of the same items (e.g. of another augmentation), for the methods that compare two.
        widths : sequence of int
            The number of columns of each embedding, where X is one matrix with several side by side.
        checkpoint : Checkpoint, optional
            Where to save the progress of the fit, and to resume from (RIM, TIM, PIM, RPIM).

        Returns
        -------
        DiscoveryEstimator
            The fitted estimator itself.
        """
        self._validate_params()
        with Progress(self.verbose, "preparing") as progress:
            problem, known = self._problem(X, y, progress, widths)
            problem.n_classes = self._n_classes(problem)
            problem.checkpoint = checkpoint
            problem.views = tuple(self._view(view, k, problem) for k, view in enumerate(views, start=2))
            self.head_ = self._discover(problem)
            progress.stage("assigning")
            classes, scores = self._assign(problem)
        self._name_classes(known)
        unlabelled = np.flatnonzero(problem.codes < 0)
        left_out, self.outlier_threshold_ = least_fitting(
            scores[unlabelled] if self.abstain else scores[:0], self.abstain
        )
        classes[unlabelled[left_out]] = UNLABELLED
        classes = np.where(problem.codes >= 0, problem.codes, classes)
        self.labels_ = name_rows(classes, self.classes_)
        self._keep_exemplars(problem, torch.from_numpy(classes[problem.rows]).to(problem.x.device))
        self._finish(problem, classes)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike) -> NDArray[Any]:
        """Fit, and return ``labels_``: the class of every row; labelled rows keep their label.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Embeddings.
        y : array-like of shape (n_rows,)
            The labels of the rows that have one; -1, None, NaN or "" for the others.

        Returns
        -------
        ndarray of shape (n_rows,)
            Classes, in the type of the labels.
        """
        labels: NDArray[Any] = self.fit(X, y).labels_
        return labels

    def _problem(
        self, X: ArrayLike | RowFiles | Engine, y: ArrayLike | None, progress: Progress, widths: Sequence[int] = ()
    ) -> tuple[FitProblem, NDArray[Any]]:
        """The rows as methods see them and the known classes; the number of classes is still to be set."""
        if y is None and self.needs_labels:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; "
                "give a label for each row, with -1, None, NaN or '' for the unlabelled ones."
            )
        if are_several(X):
            X, found = side_by_side(X)
            if len(widths):
                raise InputError("widths are for one matrix, but X is a list of embeddings: leave them out.")
            widths = found
        engine = self._engine(X)
        self.widths_ = checked_widths(widths, engine.shape[1]) if len(widths) else (engine.shape[1],)
        codes, known = self._check_labels(engine.shape[0], np.full(engine.shape[0], UNLABELLED) if y is None else y)
        generator, device = self._generator(), device_of(self.device)
        sample = engine.sample(codes, self.n_classes or 2 * len(known), int(generator.initial_seed()))
        self.sample_rows_ = len(sample)
        self._set_components(None)
        self.normalize_ = self._normalization(engine)
        kept, n_rows = self._n_components(), engine.shape[0]
        fewer = kept is not None and kept < max(self.widths_) and len(sample) < n_rows
        values, gram = engine.scan(sample, self._preparation(device), directions=fewer)
        check_scale(values, self.normalize)
        self._check_distinct(values, len(known))
        order = np.concatenate([np.flatnonzero(codes[sample] >= 0), np.flatnonzero(codes[sample] < 0)])
        if gram is not None and kept is not None:
            # In single precision, so that its last bits do not depend on how the rows were cut into shards.
            self._set_components(directions_of_each(gram.float(), kept, self.widths_).to(device))
            x = self._ordered(values, order, device)
        else:
            x = self._prepare(values, order, device)
        rows = sample[order]
        labels = torch.from_numpy(codes[rows][codes[rows] >= 0]).to(device)
        prepare = self._preparation(device)
        return FitProblem(x, labels, len(known), 0, generator, progress, engine, codes, rows, prepare), known

    def _engine(self, X: Any) -> Engine:
        """Where the rows are."""
        if not isinstance(X, RowFiles | Engine):
            rows = validate_data(self, X, dtype=[np.float32, np.float64], order="C", ensure_min_samples=2)
            return InMemoryEngine(rows)
        if not self.streams:
            raise InputError(
                f"{type(self).__name__} needs its rows in memory; only rim, tim, pim and rpim can leave them on disk "
                "or spread them over workers."
            )
        from rpim.engines.on_disk import OnDiskEngine

        engine: Engine = OnDiskEngine(X) if isinstance(X, RowFiles) else X
        self.n_features_in_ = engine.shape[1]
        return engine

    def _assign(self, problem: FitProblem) -> tuple[IntArray, FloatArray]:
        """The class of each row by number, and its outlier score where rows may be left out. (N,), (N,)"""
        return problem.engine.assign(self.head_, problem.preprocess, scores=self.abstain > 0)

    def _finish(self, problem: FitProblem, assigned: IntArray) -> None:
        """Check the result, and set the attributes that need it.

        Parameters
        ----------
        assigned : (N,)
            The class of every row, by number.
        """
        counts = np.bincount(assigned[assigned >= 0], minlength=self.n_classes_)
        empty = int((counts == 0).sum())
        if empty:
            warnings.warn(
                f"{empty} of {self.n_classes_} classes ended without a row: there may be fewer classes. Give "
                f"n_classes={self.n_classes_ - empty}, or None to have it estimated.",
                UserWarning,
                stacklevel=3,
            )

    def _name_classes(self, known: NDArray[Any]) -> None:
        n_classes = len(self.head_.prototypes)  # a method that does not take a number may have found another
        self.known_classes_ = known
        self.classes_ = name_new_classes(known, n_classes - len(known))
        self.new_classes_ = self.classes_[len(known) :]
        self.n_classes_ = n_classes

    def _n_classes(self, problem: FitProblem) -> int:
        """The number of classes: as given, or estimated."""
        for name in ("n_classes_curve_", "n_classes_low_", "n_classes_high_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if self.n_classes is not None:
            return self.n_classes
        found = count_classes(problem.x, problem.labels, generator=problem.generator, progress=problem.progress)
        self.n_classes_curve_, self.n_classes_low_, self.n_classes_high_ = found.curve, found.low, found.high
        return found.n_classes

    def _count_classes(
        self,
        X: ArrayLike,
        y: ArrayLike,
        method: str,
        preset: str,
        at_least: int | None,
        at_most: int | None,
        widths: Sequence[int] = (),
    ) -> ClassCount:
        """The number of classes as `fit` would estimate it, or by another method or within bounds."""
        self._validate_params()
        with Progress(self.verbose, "preparing") as progress:
            problem, _ = self._problem(X, y, progress, widths)
            return count_classes(
                problem.x,
                problem.labels,
                method=method,
                preset=preset,
                at_least=at_least,
                at_most=at_most,
                generator=problem.generator,
                progress=progress,
            )

    def _generator(self) -> torch.Generator:
        """The source of all that is drawn in a fit."""
        return torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31 - 1)))

    @abstractmethod
    def _discover(self, problem: FitProblem) -> Head:
        """Train on the problem; sets ``history_``, ``n_iter_`` and the method's other fitted attributes."""

    def _keep_exemplars(self, problem: FitProblem, classes: Tensor) -> None:
        """Keep the rows that ``extend`` needs."""

    def _n_components(self) -> int | None:
        """How many principal directions of the rows to keep; None keeps all."""
        n_components: int | None = self._resolved("n_components")
        return n_components

    def _normalization(self, engine: Engine) -> Normalization | tuple[Normalization, ...]:
        """How rows are normalized; the embeddings one by one where they differ in it."""
        normalization: Normalization = self._resolved("normalize")
        return normalization

    def _resolved(self, name: str) -> Any:
        """The value of a parameter; methods with presets look up there what "auto" stands for."""
        return getattr(self, name)

    def _check_distinct(self, rows: NDArray[Any], n_known: int) -> None:
        """Raise where all rows are the same, and warn where fewer of them differ than there are classes.

        It reads no further than it has to: a block of rows, except in such data.
        """
        n_classes = max(self.n_classes or 0, n_known)
        distinct: set[bytes] = set()
        for block in row_blocks(*rows.shape):
            part = rows[block]
            if self.normalize and rows.shape[1] > 1:  # rows that differ in length alone are the same to the method
                part = np.round(unit_rows(part, np.float64), 6) + 0.0
            distinct.update(row.tobytes() for row in part)
            if len(distinct) >= n_classes:
                return
        if len(distinct) == 1:
            raise InputError(
                f"All {len(rows)} rows are the same, so no class can be told from another: check how they were made."
            )
        warnings.warn(
            f"Only {len(distinct)} of {len(rows)} rows are different, fewer than there are classes ({n_classes}), and "
            "rows that are the same get the same class: check how the rows were made, or give a smaller n_classes.",
            UserWarning,
            stacklevel=4,
        )

    def _check_labels(self, n_rows: int, y: ArrayLike) -> tuple[IntArray, NDArray[Any]]:
        """The code of each row's class, -1 where it has no label, and the known classes."""
        values = column_or_1d(y if hasattr(y, "dtype") else np.asarray(y, dtype=object), warn=True)
        if len(values) != n_rows:
            raise InputError(f"There are {len(values)} labels but {n_rows} rows; give one label per row.")
        if values.dtype.kind == "f" and np.isinf(values).any():
            raise InputError("The labels hold infinity; use integers or text, and -1 or NaN for unlabelled rows.")
        if values.dtype.kind == "f" and (values[~np.isnan(values)] % 1 != 0).any():
            raise InputError("Unknown label type: continuous values; use integers or text as labels.")
        codes, known = encode_labels(values)
        if len(known) == 0 and self.needs_labels:
            raise InputError(
                f"No row has a label, and {type(self).__name__} needs some: label rows of at least two classes, or use "
                "RPIM, which clusters rows without labels."
            )
        if len(known) == 1:
            raise InputError(
                f"The labelled rows hold only one class, {known.tolist()[0]!r}; label rows of at least two classes."
            )
        if self.n_classes is not None and self.n_classes < len(known):
            raise InputError(
                f"n_classes={self.n_classes} is smaller than the number of known classes ({len(known)}); "
                f"give at least {len(known)}, or None to have it estimated."
            )
        if self.n_classes is not None and self.n_classes > n_rows:
            raise InputError(
                f"n_classes={self.n_classes} is larger than the number of rows ({n_rows}): give fewer, or None to have "
                "it estimated."
            )
        if (codes >= 0).all():
            warnings.warn("Every row has a label, so there is nothing to discover.", UserWarning, stacklevel=4)
        return codes, known

    def _prepare(self, rows: NDArray[Any], order: IntArray, device: torch.device) -> Tensor:
        """Find the principal directions and give the rows in this order, normalized and projected."""
        n_rows, n_features = rows.shape
        kept = self._n_components()
        if kept is not None and kept < max(self.widths_):
            gram, scaled = SumOfSquares(n_features, device), self._preparation(device).normalized
            for block in row_blocks(n_rows, n_features):
                gram.add(scaled(rows[block]))
            self._set_components(directions_of_each(gram.total, kept, self.widths_))
        return self._ordered(rows, order, device)

    def _ordered(self, rows: NDArray[Any], order: IntArray, device: torch.device) -> Tensor:
        """The rows in this order, normalized and projected block by block: there is never a second copy of all."""
        n_features = rows.shape[1]
        x = torch.empty(
            len(order), n_features if self._directions is None else self._directions.shape[1], device=device
        )
        prepare = self._preparation(device)
        for block in row_blocks(len(order), n_features):
            x[block] = prepare(rows[order[block]])
        return x

    def _view(self, view: ArrayLike, number: int, problem: FitProblem) -> Tensor:
        rows = side_by_side(view, f"view {number}")[0] if are_several(view) else view
        rows = check_array(rows, dtype=[np.float32, np.float64], order="C", input_name=f"view {number}")
        if rows.shape != problem.engine.shape:
            raise InputError(
                f"View {number} has shape {rows.shape}, but X has {problem.engine.shape}; "
                "a view holds the same rows and features as X."
            )
        return self._ordered(rows, problem.rows, problem.x.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.needs_labels
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
