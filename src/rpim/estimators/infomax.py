"""What RIM, TIM, PIM and RPIM share: a committee of short fits, or one fit from one start."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.hardware import format_bytes
from rpim.core.checkpoint import START_FILE, Checkpoint
from rpim.core.head import Head
from rpim.core.kmeans import PIM_RULE, ClassSizes, Start, merged_start, single_start
from rpim.core.preprocessing import Normalization, suits_square_root
from rpim.core.sampling import sample_rows, select_exemplars
from rpim.core.training import SCHEDULE as DISTILLATION
from rpim.core.training import Schedule, distil, factor_rows, initial_head, matching_factor
from rpim.data.labels import IntArray, column_slices
from rpim.engines.base import Engine, bytes_of_committee, first_block
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.committee import Combined, LabelCheck, LabelIssue, combine, sizes_at_start, warn_of_disagreement
from rpim.estimators.members import (
    N_DIRECTIONS,
    Member,
    MemberPlan,
    Trainer,
    label_folds,
    mean_history,
    plan_members,
    train_members,
)
from rpim.estimators.members import SCHEDULE as MEMBER_SCHEDULE
from rpim.estimators.objective import (
    AUTO,
    PRESETS,
    Hyperparameters,
    InfoMaxObjective,
    InfoMaxParameters,
    decay_among,
)
from rpim.estimators.problem import (
    CommitteeFindings,
    FitProblem,
    Search,
    TrainingProgress,
    TrainingStart,
    caches_probabilities,
    step_cost,
)
from rpim.estimators.search import paper_search

COMMITTEE_ROWS = 50_000
"""Largest number of rows that members see, or a hundred per class: their cost does not grow with the data. Where that
does not fit into memory, a half or a quarter; where a quarter does not fit, there is no committee."""

FIRST_MEMBERS = 4
"""With few labels or none, members whose classes the others whiten their rows by."""


class InfoMaxEstimator(InfoMaxParameters, DiscoveryEstimator):
    """Full-batch InfoMax with a linear head. RIM, TIM, PIM and RPIM differ in their parameters alone."""

    search: str
    n_members: Any
    n_init: Any
    learning_rate: Any
    max_iter: Any
    streams = True
    needs_labels = False
    search_: Search

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DiscoveryEstimator._parameter_constraints,
        "normalize": ["boolean", StrOptions({"sqrt", AUTO})],
        "preset": [StrOptions(set(PRESETS))],
        "objective": [None, InfoMaxObjective],
        "search": [StrOptions({AUTO, "paper"})],
        "n_members": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_init": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "max_iter": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_components": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
    }

    def _normalization(self, engine: Engine) -> Normalization | tuple[Normalization, ...]:
        """How rows are normalized: square roots pay where members centre and whiten them, not in a single fit."""
        given: Normalization = self._resolved("normalize")
        if given != AUTO:
            return given
        if self._resolved("n_members") == 1:
            return True
        rows = first_block(engine.rows)
        found = tuple("sqrt" if suits_square_root(rows[:, part]) else True for part in column_slices(self.widths_))
        return found[0] if len(set(found)) == 1 else found

    def _discover(self, problem: FitProblem) -> Head:
        checkpoint = problem.checkpoint
        saved = None if checkpoint is None else checkpoint.start()
        trains_on_all = self._trains_on_all_rows(problem)
        spares_passes = self._resolved("n_members") > 1  # a single fit that was asked for is as published
        uses_sample = spares_passes and not problem.is_whole
        cost = step_cost(problem.x, problem.n_classes, self._resolved("h"))
        schedule = self._schedule(self._hyperparameters(problem.n_classes))
        on_sample, on_all = (
            TrainingProgress(problem.progress, cost * share, schedule if trains else Schedule(max_iter=0))
            for trains, share in ((uses_sample, 1.0), (trains_on_all, problem.engine.shape[0] / len(problem.x)))
        )
        if checkpoint is None or saved is None:
            start = self._start(problem)
        else:
            with checkpoint.reading(START_FILE):
                start = TrainingStart.from_state(*saved, problem.generator, self._untrained_start(problem))
        problem.start = start
        self._set_found(start)
        head, found = start.head, start.hyperparameters
        if not trains_on_all:
            return head
        if checkpoint is not None and saved is None:
            checkpoint.save_start(*start.to_state(problem.generator))
        schedule = replace(self._schedule(found), keep_classes=self._decay_is_free)
        objective = replace(self._training_objective(found, start.shares), pipelined=spares_passes)
        trained = head.copy()
        if uses_sample:
            # After as many steps as it takes on a sample in memory, a few on all rows are enough.
            problem.progress.stage("training on a sample")
            steps = problem.train_on_sample(trained, objective, schedule, on_step=on_sample.step)
            schedule = replace(schedule, check_every=5, weight_decay=steps[-1]["weight_decay"])
        problem.progress.stage("training")
        self.history_ = problem.train(trained, objective, schedule, on_step=on_all.step)
        self.n_iter_, self.weight_decay_ = len(self.history_), self.history_[-1]["weight_decay"]
        if start.n_members > 1:
            some = problem.x[factor_rows(len(problem.x))]
            trained.calibration = self.calibration_ = matching_factor(trained, some, head.proba_and_score(some)[0])
        return trained

    def _trains_on_all_rows(self, problem: FitProblem) -> bool:
        """Whether the start is trained further: not where a committee has seen all rows."""
        return self._n_members(problem) == 1 or self._committee_rows(problem) is not None or not problem.is_whole

    def _set_found(self, start: TrainingStart) -> None:
        """The fitted attributes that are known before the training on all rows."""
        found = start.hyperparameters
        self.trade_off_, self.beta_, self.weight_decay_ = found.trade_off, found.beta, found.weight_decay
        self.class_sizes_ = found.class_sizes
        self.n_members_, self.search_, self.calibration_ = start.n_members, start.search, 1.0
        if start.committee is not None:
            self.stability_ = start.committee.stability
            self.expected_accuracy_ = start.committee.label_check.accuracy
            return
        for name in ("stability_", "expected_accuracy_"):  # of an earlier fit; a single one has none
            if hasattr(self, name):
                delattr(self, name)

    def _start(self, problem: FitProblem) -> TrainingStart:
        """A distilled committee, or the initial head of a single fit."""
        n_members = self._n_members(problem)
        found, search = self._hyperparameters(problem.n_classes), Search()
        if self._resolved("search") == "paper":
            found, search = paper_search(self, problem, found)
        if n_members > 1:
            return self._fit_committee(problem, n_members, found, search)
        if self._lacks_memory(problem):
            warnings.warn(
                f"{self._too_many_classes(problem)}: this is a single fit, without stability, expected accuracy and "
                "checked labels.",
                UserWarning,
                stacklevel=4,
            )
        problem.progress.stage("finding a start")
        start = self._initial_clusters(problem)
        return TrainingStart(
            self._new_head(start.prototypes), found, start.shares(found.class_sizes), n_members=1, search=search
        )

    def _n_members(self, problem: FitProblem) -> int:
        n_members: int = self._resolved("n_members")
        if self.n_members == AUTO:
            n_members = min(n_members, len(problem.x))
        if n_members > len(problem.x):
            raise InputError(
                f"n_members={n_members} is larger than the number of rows ({len(problem.x)}): "
                "give fewer; 16 do for most data."
            )
        if self._lacks_memory(problem):
            if self.n_members != AUTO:
                raise InputError(f"{self._too_many_classes(problem)}: give n_members=1, or a smaller n_classes.")
            return 1
        return n_members if self._wants_committee(problem) else 1

    def _wants_committee(self, problem: FitProblem) -> bool:
        """Whether there is to be a committee: where every row has a label, it has nothing to add."""
        n_members: int = self._resolved("n_members")
        return n_members > 1 and len(problem.x) > len(problem.labels)

    def _lacks_memory(self, problem: FitProblem) -> bool:
        """Whether there would be a committee, but it cannot be combined within the memory budget."""
        return self._wants_committee(problem) and not _rows_members_may_see(problem)

    def _too_many_classes(self, problem: FitProblem) -> str:
        needed = format_bytes(_bytes_of_committee(problem, parts=4))
        return (
            f"A committee of {problem.n_classes:,} classes needs {needed} of memory, "
            f"and {format_bytes(problem.memory)} may be used"
        )

    def _untrained_start(self, problem: FitProblem) -> TrainingStart:
        """A start with the tensors of this fit, of zeros; NaN where a number may be unknown."""
        n_members, found, n_classes = (
            self._n_members(problem),
            self._hyperparameters(problem.n_classes),
            problem.n_classes,
        )
        if n_members == 1:
            prototypes = problem.x.new_zeros(n_classes, problem.x.shape[1])
            return TrainingStart(self._new_head(prototypes), found, shares=None)
        _, labels, labelled_rows = self._committee_problem(problem)
        check = LabelCheck.of(problem.x.new_full((len(labels), n_classes), torch.nan), labels)
        findings = CommitteeFindings(np.full(n_classes, np.nan), check, labelled_rows)
        head = initial_head(problem.x[:0], problem.x.new_zeros(0, n_classes), self._resolved("temperature"))
        return TrainingStart(head, found, None, n_members, committee=findings)

    def _initial_clusters(self, problem: FitProblem) -> Start:
        """Merged clusters, or as published the best of several restarts of semi-supervised k-means."""
        n_init = self._resolved("n_init")
        if n_init is not None:
            rule = PIM_RULE if self.preset == "paper" else None
            return single_start(
                problem.x, problem.labels, problem.n_classes, n_init=n_init, rule=rule, generator=problem.generator
            )
        return merged_start(problem.x, problem.labels, problem.n_classes, generator=problem.generator)

    def _fit_committee(
        self, problem: FitProblem, n_members: int, found: Hyperparameters, search: Search
    ) -> TrainingStart:
        """Train the members, combine them, and distil them into one head."""

        def varied(name: str) -> bool:  # neither given nor searched, so the members differ in it
            return self._resolved(name) == AUTO and name not in search

        x, labels, labelled_rows = self._committee_problem(problem)
        seeds = torch.randint(2**31, (3,), generator=problem.generator).tolist()
        class_sizes: tuple[ClassSizes, ...] = (found.class_sizes,)
        if varied("class_sizes"):
            class_sizes = sizes_at_start(x, labels, problem.n_classes, seeds[0])
        plans = plan_members(
            n_members,
            seeds[0],
            n_directions=min(N_DIRECTIONS, x.shape[1]),
            class_sizes=class_sizes,
            trade_offs=None if varied("trade_off") else (found.trade_off,),
            n_embeddings=len(problem.preprocess.columns),
        )
        trainer = Trainer(
            x,
            labels,
            label_folds(labels, seeds[1]),
            problem.n_classes,
            self._training_objective(found),
            replace(MEMBER_SCHEDULE, weight_decay=found.weight_decay, keep_classes=self._decay_is_free),
            self._new_head,
            # Each sees about half of the rows, and there is one per thread.
            cache=caches_probabilities(len(x) * torch.get_num_threads() // 2, problem.n_classes, problem.memory),
            embeddings=problem.preprocess.columns,
        )
        asked_for = None if varied("class_sizes") else found.class_sizes
        n_first = FIRST_MEMBERS if trainer.has_few_labels else 0
        distillation_step = step_cost(x, problem.n_classes, self._resolved("h"))

        def cost(plan: MemberPlan) -> float:
            return trainer.n_steps * step_cost(x[:, : plan.n_directions], problem.n_classes, self._resolved("h"))

        def committee(
            trainer: Trainer, plans: list[MemberPlan], checkpoint: Checkpoint | None
        ) -> tuple[list[Member], Combined]:
            members = train_members(trainer, plans, cost, problem.progress, checkpoint)
            problem.progress.stage("combining the members")
            return members, combine(trainer, members, seeds[2], asked_for)

        trainings = sum(cost(plan) for plan in [*plans[:n_first], *plans])
        problem.progress.expect(trainings + distillation_step * DISTILLATION.max_iter)
        if n_first:
            # Whitening needs classes: those of a few members that do without it, or with few labels.
            _, first = committee(trainer, plans[:n_first], None)
            trainer = replace(trainer, clusters=first.probabilities.argmax(dim=1))
        members, combined = committee(trainer, plans, problem.checkpoint)
        found = replace(
            found,
            class_sizes="equal" if combined.shares is None else "estimated",
            weight_decay=float(np.median([member.history[-1]["weight_decay"] for member in members])),
        )
        problem.progress.stage("distilling the committee")
        head = initial_head(x, combined.probabilities, self._resolved("temperature"))
        schedule = replace(DISTILLATION, weight_decay=decay_among(problem.n_classes, DISTILLATION.weight_decay))
        distil(x, combined.probabilities, head, schedule, on_step=lambda: problem.progress.advance(distillation_step))
        some = factor_rows(len(x))
        head.prototypes.mul_(matching_factor(head, x[some], combined.probabilities[some]))  # weight decay shrank them
        self.history_ = mean_history(members)
        self.n_iter_ = len(self.history_)
        if len(labels) and np.isnan(combined.label_check.accuracy):
            warnings.warn(
                "No known class has more than one labelled row, so that none could be hidden: what accuracy to expect "
                "is unknown, and the labels are unchecked. Label more rows.",
                UserWarning,
                stacklevel=5,
            )
        warn_of_disagreement(combined, problem.n_known)
        findings = CommitteeFindings(combined.stability.double().cpu().numpy(), combined.label_check, labelled_rows)
        return TrainingStart(head, found, combined.shares, n_members, search, findings)

    def _committee_problem(self, problem: FitProblem) -> tuple[Tensor, Tensor, IntArray]:
        """The rows that members see, the labels of the first of them, and the numbers of these."""
        sample = self._committee_rows(problem)
        if sample is None:
            return problem.x, problem.labels, np.arange(len(problem.labels))
        labelled = sample[sample < len(problem.labels)]
        return problem.x[sample], problem.labels[labelled], labelled.cpu().numpy()

    def _committee_rows(self, problem: FitProblem) -> Tensor | None:
        """Numbers of the rows that members see; None where they see all."""
        most = _rows_members_may_see(problem)
        if len(problem.x) <= most:
            return None
        codes = np.full(len(problem.x), -1)
        codes[: len(problem.labels)] = problem.labels.cpu().numpy()
        rows = sample_rows(codes, most, problem.generator.initial_seed())
        return torch.from_numpy(rows).to(problem.x.device)

    def extend(self, X: ArrayLike, y: ArrayLike | None = None) -> InfoMaxEstimator:
        """Learn from new rows: existing classes keep their names, and new classes are added where rows call for them.

        Only the model is needed: it keeps exemplars of each class, which are trained on together with the new rows.
        Afterwards ``labels_`` are the classes of these rows, and ``classes_`` has the new ones.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows that the model has not seen.
        y : array-like of shape (n_rows,), optional
            Labels of some of them: an existing class, discovered or not, or a new name. A new name for rows that are
            mostly in one discovered class renames that class; otherwise it is a new class.

        Returns
        -------
        InfoMaxEstimator
            The extended estimator itself.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from rpim import RPIM
        >>> X, y = make_blobs(600, n_features=16, centers=6, random_state=0)
        >>> early = y < 5   # class 5 comes later
        >>> seen = [c if c < 4 and i % 2 else -1 for i, c in enumerate(y)]
        >>> model = RPIM(n_classes=5, random_state=0).fit(X[early], [c for c, e in zip(seen, early) if e])
        >>> model.extend(X[~early]).new_classes_.tolist()
        [4, 5]
        """
        from rpim.estimators.extending import extend

        extend(self, X, y)
        return self

    def _keep_exemplars(self, problem: FitProblem, classes: Tensor) -> None:
        scores = self.head_.outlier_scores(problem.x)
        self.exemplars_ = select_exemplars(
            problem.x, classes, len(problem.labels), problem.n_classes, scores, problem.generator
        )

    def _finish(self, problem: FitProblem, assigned: IntArray) -> None:
        super()._finish(problem, assigned)
        self.label_issues_: list[LabelIssue] = []
        self.label_quality_: NDArray[np.float32] = np.full(len(assigned), np.nan, dtype=np.float32)
        if problem.start is None or problem.start.committee is None:
            return
        check = problem.start.committee.label_check
        rows = problem.rows[problem.start.committee.labelled_rows]
        self.label_quality_[rows] = check.quality.cpu().numpy()
        for i in check.ranked():
            self.label_issues_.append(
                LabelIssue(
                    int(rows[i]),
                    self.classes_[assigned[rows[i]]],
                    self.classes_[int(check.predicted[i])],
                    float(check.quality[i]),
                    float(check.confidence[i]),
                )
            )


def _rows_members_may_see(problem: FitProblem) -> int:
    """The largest number of rows for a committee; zero where the memory does not allow one."""
    fitting = (parts for parts in (1, 2, 4) if _bytes_of_committee(problem, parts) <= problem.memory)
    parts = next(fitting, None)
    return 0 if parts is None else _committee_size(problem.n_classes) // parts


def _bytes_of_committee(problem: FitProblem, parts: int) -> int:
    """The memory budget that a committee needs whose members see one of so many parts of the usual rows."""
    n_rows = min(_committee_size(problem.n_classes) // parts, len(problem.x))
    return bytes_of_committee(problem.engine.shape, n_rows, problem.n_classes)


def _committee_size(n_classes: int) -> int:
    return max(COMMITTEE_ROWS, 100 * n_classes)
