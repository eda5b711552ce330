"""What RIM, TIM, PIM and RPIM share: a committee of short fits, or one fit from one start."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.parallel import parallel_map
from rpim.core.checkpoint import Checkpoint
from rpim.core.distillation import SCHEDULE as DISTILLATION
from rpim.core.distillation import distil, initial_head, matching_factor
from rpim.core.exemplars import select_exemplars
from rpim.core.head import Head
from rpim.core.initialization import Start, merged_start, single_start
from rpim.core.objective import Objective
from rpim.core.sampling import sample_rows
from rpim.core.training import Schedule, train
from rpim.core.transforms import TRANSFORMS
from rpim.data.labels import IntArray
from rpim.estimators import committee
from rpim.estimators.base import DiscoveryEstimator, FitProblem
from rpim.estimators.held_out import HeldOutSplit, can_split, held_out_split
from rpim.estimators.label_checks import LabelCheck, LabelIssue
from rpim.estimators.paper_search import TRADE_OFFS, WEIGHT_DECAYS, paper_trade_off
from rpim.estimators.presets import AUTO, DEFAULTS, PRESETS, SCHEDULES, Hyperparameters

COMMITTEE_ROWS = 50_000
"""Members see no more rows than this, or a hundred a class: what they cost does not grow with the data."""

FACTOR_ROWS = 20_000
"""About so many rows settle the factor of the logits after a training on all rows: one number."""


@dataclass(frozen=True)
class Beginning:
    """What a training on all rows begins with."""

    head: Head
    setting: Hyperparameters
    shares: Tensor | None  # (K,)


class InfoMaxEstimator(DiscoveryEstimator):
    """Full-batch InfoMax with a linear head. RIM, TIM, PIM and RPIM differ in their parameters alone."""

    preset: str
    h: str
    rank: int | None
    pseudo_labels: bool
    mixed_labels: bool
    supervision: Any
    trade_off: Any
    beta: Any
    weight_decay: Any
    class_sizes: Any
    eta: float
    threshold: float
    temperature: float
    sinkhorn_epsilon: float
    sinkhorn_iterations: int
    search: str
    n_members: Any
    n_init: Any
    schedule: str
    learning_rate: Any
    max_iter: Any
    low_memory: bool
    streams = True
    marginal_rows: Literal["all", "unlabelled"] = "all"
    search_: dict[str, dict[Any, float]]

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DiscoveryEstimator._parameter_constraints,
        "preset": [StrOptions(set(PRESETS))],
        "trade_off": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "weight_decay": [StrOptions({AUTO}), Interval(Real, 0, None, closed="left")],
        "class_sizes": [StrOptions({AUTO, "equal", "estimated"})],
        "search": [StrOptions({AUTO, "paper"})],
        "n_members": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_init": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "schedule": [StrOptions({AUTO, *SCHEDULES})],
        "learning_rate": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "max_iter": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_components": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "low_memory": ["boolean"],
    }

    def _resolved(self, name: str) -> Any:
        """The parameter, or what the settings make of "auto" (which stays "auto" where it is searched or varied)."""
        value = getattr(self, name)
        return PRESETS[self.preset].get(name, AUTO) if isinstance(value, str) and value == AUTO else value

    def _n_components(self) -> int | None:
        n_components: int | None = self._resolved("n_components")
        return n_components

    def _objective(self, setting: Hyperparameters, class_shares: Tensor | None = None) -> Objective:
        return Objective(
            trade_off=setting.trade_off,
            eta=self.eta,
            beta=setting.beta,
            threshold=self.threshold,
            pseudo_labels=self.pseudo_labels,
            mixed_labels=self.mixed_labels,
            supervision=self.supervision,
            sinkhorn_epsilon=self.sinkhorn_epsilon,
            sinkhorn_iterations=self.sinkhorn_iterations,
            marginal_rows=self.marginal_rows,
            class_shares=class_shares,
        )

    def _schedule(self, setting: Hyperparameters) -> Schedule:
        schedule = dict(SCHEDULES[self._resolved("schedule")])
        given = {name: getattr(self, name) for name in ("learning_rate", "max_iter")}
        schedule.update({name: value for name, value in given.items() if value != AUTO})
        return Schedule(weight_decay=setting.weight_decay, **schedule)

    def _new_head(self, prototypes: Tensor) -> Head:
        # The low-rank bias starts at random numbers, the same ones for every training of a fit.
        transform = TRANSFORMS[self.h].initial(prototypes, self.rank, torch.Generator().manual_seed(0))
        return Head(prototypes.clone(), transform, self.temperature)

    def _discover(self, problem: FitProblem) -> Head:
        checkpoint = problem.checkpoint
        begun = None if checkpoint is None else checkpoint.start()
        beginning = self._begin(problem, checkpoint) if begun is None else self._begin_again(problem, *begun)
        head, setting = beginning.head, beginning.setting
        self.trade_off_, self.beta_, self.weight_decay_ = setting.trade_off, setting.beta, setting.weight_decay
        self.class_sizes_ = setting.class_sizes
        if self.n_members_ > 1 and self._committee_rows(problem) is None and problem.is_whole:
            return head
        if checkpoint is not None and begun is None:
            checkpoint.save_start(*self._beginning(problem, beginning))
        schedule = self._schedule(setting)
        step = _step_cost(problem.x, problem.n_classes, self.h)
        problem.progress.expect(step * schedule.max_iter)
        problem.progress.stage("training")
        trained = Head(
            head.prototypes.clone(),
            type(head.transform)({name: value.clone() for name, value in head.transform.parameters.items()}),
            head.temperature,
        )
        self.history_ = problem.train(
            trained,
            self._objective(setting, beginning.shares),
            schedule,
            cache=not self.low_memory,
            on_step=lambda: problem.progress.advance(step),
        )
        self.n_iter_ = len(self.history_)
        if self.n_members_ > 1:
            every = max(1, len(problem.x) // FACTOR_ROWS)
            trained.calibration = self.calibration_ = matching_factor(trained, head, problem.x[::every])
        return trained

    def _begin(self, problem: FitProblem, checkpoint: Checkpoint | None) -> Beginning:
        """What the training on all rows starts with: a distilled committee, or the start of a single fit."""
        n_members = self._resolved("n_members")
        if self.n_members == AUTO:
            n_members = min(n_members, len(problem.x))
        if n_members > len(problem.x):
            raise InputError(
                f"n_members={n_members} is larger than the number of rows ({len(problem.x)}): "
                "give fewer; 16 do for most data."
            )
        # Where there is nothing to discover, and nothing without a label, a committee has nothing to say.
        self.n_members_ = n_members if len(problem.x) > len(problem.labels) else 1
        self.search_: dict[str, dict[Any, float]] = {}
        self.calibration_ = 1.0
        for name in ("stability_", "expected_accuracy_"):  # of an earlier fit; a single one has none
            if hasattr(self, name):
                delattr(self, name)
        if self.n_members_ > 1:
            return self._fit_committee(problem, checkpoint)
        setting = self._search(problem)
        problem.progress.stage("finding a start")
        start = self._start(problem)
        shares = start.shares(setting.class_sizes)
        return Beginning(self._new_head(start.prototypes), setting, shares)

    def _fit_committee(self, problem: FitProblem, checkpoint: Checkpoint | None) -> Beginning:
        """Train the members, combine them, and distil them into one head."""
        setting = self._search(problem)
        sample = self._committee_rows(problem)
        x = problem.x if sample is None else problem.x[sample]
        labels = problem.labels if sample is None else problem.labels[sample[sample < len(problem.labels)]]
        seeds = torch.randint(2**31, (3,), generator=problem.generator).tolist()
        if self._varied("class_sizes"):
            setting = replace(setting, class_sizes=committee.sizes_at_start(x, labels, problem.n_classes, seeds[0]))
        plans = committee.plan_members(
            self.n_members_,
            seeds[0],
            n_directions=min(committee.N_DIRECTIONS, x.shape[1]),
            class_sizes=setting.class_sizes,
            trade_offs=None if self._varied("trade_off") else (setting.trade_off,),
        )
        trainer = committee.Trainer(
            x,
            labels,
            committee.label_folds(labels, seeds[1]),
            problem.n_classes,
            self._objective(setting),
            setting.weight_decay,
            self._new_head,
            cache=not self.low_memory,
        )
        members = self._train_members(trainer, plans, problem, checkpoint)
        problem.progress.stage("combining the members")
        combined = committee.combine(trainer, members, problem.n_known, seeds[2])
        problem.progress.stage("distilling the committee")
        step = _step_cost(x, problem.n_classes, self.h)
        problem.progress.expect(step * DISTILLATION.max_iter)
        head = initial_head(x, combined.probabilities, self.temperature)
        distil(x, combined.probabilities, head, on_step=lambda: problem.progress.advance(step))
        self.history_ = committee.mean_history(members)
        self.n_iter_ = len(self.history_)
        self.stability_: NDArray[np.float64] = combined.stability.double().cpu().numpy()
        self._label_check = combined.label_check
        self._labelled_rows = np.arange(len(labels)) if sample is None else sample[: len(labels)].cpu().numpy()
        self.expected_accuracy_ = self._label_check.accuracy
        if np.isnan(self.expected_accuracy_):
            warnings.warn(
                "No known class has more than one labelled row, so that none could be hidden: what accuracy to expect "
                "is unknown, and the labels are unchecked. Label more rows.",
                UserWarning,
                stacklevel=5,
            )
        _warn_of_members(combined, problem.n_known)
        return Beginning(head, setting, combined.shares)

    def _train_members(
        self,
        trainer: committee.Trainer,
        plans: list[committee.MemberPlan],
        problem: FitProblem,
        checkpoint: Checkpoint | None,
    ) -> list[committee.Member]:
        """Train the members that a checkpoint does not have, each a task of its own."""
        device = problem.x.device
        found: dict[int, committee.Member] = {}
        if checkpoint is not None:
            kept = {number: committee.Member.from_bytes(data, device) for number, data in checkpoint.members().items()}
            found = {number: member for number, member in kept.items() if [member.plan] == plans[number : number + 1]}
        costs = [
            _step_cost(trainer.x[:, : plan.n_directions], problem.n_classes, self.h) * committee.SCHEDULE.max_iter
            for plan in plans
        ]
        problem.progress.expect(sum(costs))
        problem.progress.stage(f"training {len(plans)} members")
        problem.progress.advance(sum(costs[number] for number in found))
        missing = [number for number in range(len(plans)) if number not in found]

        def done(position: int, member: committee.Member) -> None:
            number = missing[position]
            if checkpoint is not None:
                checkpoint.save_member(number, member.to_bytes())
            problem.progress.advance(costs[number])

        trained = parallel_map(trainer, [plans[number] for number in missing], done)
        found |= dict(zip(missing, trained, strict=True))
        return [found[number] for number in range(len(plans))]

    def _committee_rows(self, problem: FitProblem) -> Tensor | None:
        """Numbers of the rows that members see; None where they see all."""
        most = max(COMMITTEE_ROWS, 100 * problem.n_classes)
        if len(problem.x) <= most:
            return None
        codes = np.full(len(problem.x), -1)
        codes[: len(problem.labels)] = problem.labels.cpu().numpy()
        rows = sample_rows(codes, most, problem.generator.initial_seed())
        return torch.from_numpy(rows).to(problem.x.device)

    def _beginning(self, problem: FitProblem, beginning: Beginning) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What `_begin` found, to be kept."""
        tensors = {f"head.{name}": value for name, value in beginning.head.tensors().items()}
        tensors["generator"] = problem.generator.get_state()
        if beginning.shares is not None:
            tensors["shares"] = beginning.shares
        facts: dict[str, Any] = {
            "setting": vars(beginning.setting),
            "transform": beginning.head.transform_name,
            "n_members": self.n_members_,
            "search": {name: list(scores.items()) for name, scores in self.search_.items()},
        }
        if self.n_members_ > 1:
            tensors |= {f"check.{name}": value for name, value in self._label_check.tensors().items()}
            tensors["labelled_rows"] = torch.from_numpy(self._labelled_rows)
            tensors["stability"] = torch.from_numpy(self.stability_)
        return tensors, facts

    def _begin_again(self, problem: FitProblem, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Beginning:
        """What `_begin` gave before the stop, with everything as it left it."""
        device = problem.x.device
        self.search_ = {name: dict(map(tuple, scores)) for name, scores in facts["search"].items()}
        self.n_members_, self.calibration_ = facts["n_members"], 1.0
        problem.generator.set_state(tensors["generator"])
        of_head = {
            name.removeprefix("head."): value.to(device) for name, value in tensors.items() if name.startswith("head.")
        }
        head = Head.from_tensors(of_head, facts["transform"], self.temperature)
        if self.n_members_ > 1:
            self._label_check = LabelCheck.from_tensors(
                {name.removeprefix("check."): value for name, value in tensors.items() if name.startswith("check.")}
            )
            self._labelled_rows = tensors["labelled_rows"].numpy()
            self.stability_, self.expected_accuracy_ = tensors["stability"].numpy(), self._label_check.accuracy
        shares = tensors.get("shares")
        return Beginning(head, Hyperparameters(**facts["setting"]), None if shares is None else shares.to(device))

    def extend(self, X: ArrayLike, y: ArrayLike | None = None) -> InfoMaxEstimator:
        """Go on with new rows: classes that are there keep their names, new ones are added where rows call for them.

        Nothing but the model is needed: it remembers some rows of each class, which hold the classes in their place
        while it is trained on. After it ``labels_`` are the classes of these rows, and ``classes_`` has the new ones.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows that the model has not seen.
        y : array-like of shape (n_rows,), optional
            Labels that a person has given some of them: a class that is there, discovered or not, or a new name. A new
            name for rows that are mostly in one discovered class renames that class; else it is a class of its own.

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

    def _setting(self) -> Hyperparameters:
        """What the fit has used."""
        return Hyperparameters(self.trade_off_, self.beta_, self.weight_decay_, self.class_sizes_)

    def _keep_exemplars(self, problem: FitProblem, classes: Tensor) -> None:
        scores = self.head_.outlier_scores(problem.x)
        self.exemplars_ = select_exemplars(
            problem.x, classes, len(problem.labels), problem.n_classes, scores, problem.generator
        )

    def _finish(self, order: IntArray, assigned: IntArray) -> None:
        super()._finish(order, assigned)
        self.label_issues_: list[LabelIssue] = []
        self.label_quality_ = np.full(len(assigned), np.nan, dtype=np.float32)
        if self.n_members_ == 1:
            return
        check, rows = self._label_check, order[self._labelled_rows]
        del self._label_check, self._labelled_rows
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

    def _start(self, problem: FitProblem) -> Start:
        """Merged clusters, or as published the best of several restarts of semi-supervised k-means."""
        n_init = self._resolved("n_init")
        if n_init is not None:
            return single_start(
                problem.x, problem.labels, problem.n_classes, n_init=n_init, generator=problem.generator
            )
        return merged_start(problem.x, problem.labels, problem.n_classes, generator=problem.generator)

    def _varied(self, name: str) -> bool:
        """Whether the members of a committee differ in it: where it was neither given nor searched."""
        return self._resolved(name) == AUTO and name not in self.search_

    def _fixed_setting(self) -> Hyperparameters:
        """The parameters as they were given, and the defaults of those that were not."""
        given = {name: self._resolved(name) for name in DEFAULTS}
        if not self.mixed_labels:
            given["beta"] = 0.0
        return Hyperparameters(**{name: DEFAULTS[name] if value == AUTO else value for name, value in given.items()})

    def _search(self, problem: FitProblem) -> Hyperparameters:
        """Choose what was left at "auto" as the paper does, where that is asked for."""
        setting = self._fixed_setting()
        if self._resolved("search") != "paper":
            return setting
        problem.progress.stage("searching lambda and the weight decay")
        n_init = self._resolved("n_init") or PRESETS["paper"]["n_init"]
        if self._resolved("trade_off") == AUTO:
            schedule = self._schedule(setting)
            work = _step_cost(problem.x, problem.n_classes, "none") * schedule.max_iter
            problem.progress.expect(work * len(TRADE_OFFS))
            trade_off, self.search_["trade_off"] = paper_trade_off(
                problem.x,
                problem.labels,
                problem.n_classes,
                self._objective(setting),
                schedule,
                temperature=self.temperature,
                n_init=n_init,
                generator=problem.generator,
                on_trial=lambda: problem.progress.advance(work),
            )
            setting = replace(setting, trade_off=trade_off)
        if self._resolved("weight_decay") == AUTO and can_split(problem.labels):
            division = held_out_split(problem.x[: len(problem.labels)], problem.labels, problem.generator)
            start = single_start(
                division.x, division.labels, division.n_classes, n_init=n_init, generator=problem.generator
            )
            candidates = [replace(setting, weight_decay=value) for value in WEIGHT_DECAYS]
            work = _step_cost(division.x, division.n_classes, self.h) * self._schedule(setting).max_iter
            problem.progress.expect(work * len(candidates))
            scores = parallel_map(
                lambda candidate: self._score(division, start, candidate),
                candidates,
                lambda *_: problem.progress.advance(work),
            )
            self.search_["weight_decay"] = dict(zip(WEIGHT_DECAYS, scores, strict=True))
            best = candidates[int(np.argmax(scores))]
            # The whole problem is about twice the size of the divided one, so the paper halves it.
            setting = replace(setting, weight_decay=best.weight_decay / 2)
        return setting

    def _score(self, division: HeldOutSplit, start: Start, setting: Hyperparameters) -> float:
        """Train on a divided problem and score the classes of its hidden rows."""
        head, objective = self._new_head(start.prototypes), self._objective(setting, start.shares(setting.class_sizes))
        train(division.engine(), head, objective, self._schedule(setting))
        return division.score(head.predict(division.x))


def _warn_of_members(combined: committee.Combined, n_known: int) -> None:
    """Say where the members could not agree, or most of them lost a class."""
    losers = int((combined.lost > 0).sum())
    if 2 * losers > len(combined.lost):
        warnings.warn(
            f"{losers} of {len(combined.lost)} members of the committee ended with classes that no row is in "
            f"({float(combined.lost.double().mean()):.1f} on average): there may be fewer classes. Give a smaller "
            "n_classes, or None to have it estimated.",
            UserWarning,
            stacklevel=6,
        )
    alone = torch.nonzero(combined.supporters[n_known:] < 2).flatten()
    there = ~combined.stability[n_known:].isnan()
    alone = alone[there[alone]]
    if len(alone):
        warnings.warn(
            f"{len(alone)} of {len(there)} new classes were found by fewer than two members of the committee: there "
            "may be fewer classes, or more rows are needed to tell them apart (stability_ says which).",
            UserWarning,
            stacklevel=6,
        )


class PlainInfoMaxEstimator(InfoMaxEstimator):
    """Without RPIM's transformation, pseudo-labels and mixed labels: what RIM, TIM and PIM are."""

    h = "none"
    rank = None
    pseudo_labels = False
    mixed_labels = False
    supervision = "mixed"
    class_sizes = "equal"
    beta = 0.0
    eta = 0.0
    threshold = 0.5
    sinkhorn_epsilon = 1.0
    sinkhorn_iterations = 3


def _step_cost(x: Tensor, n_classes: int, h: str) -> float:
    """Multiplications of one step over the rows, the unit in which progress is counted."""
    n, d = x.shape
    return float(n * d) * (2.0 * n_classes if h == "none" else 3.0 * n_classes + 2.0 * d)
