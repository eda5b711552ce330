"""What RIM, TIM, PIM and RPIM share: search the settings, find a start, train the head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import torch
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from rpim.calibration import Fold, HiddenRows, calibrate, enough_rows, folds
from rpim.directions import principal_directions
from rpim.engine import InMemory
from rpim.head import Head
from rpim.memory import remember
from rpim.methods.base import DiscoveryEstimator, Problem
from rpim.methods.settings import AUTO, GRID, SCHEDULES, SETTINGS, Setting
from rpim.optimise import Objective, Schedule, optimise
from rpim.parallel import side_by_side
from rpim.places import present_place
from rpim.row_files import RowFiles
from rpim.search.held_out import Division, best_setting, can_divide, divide
from rpim.search.paper import TRADE_OFFS, WEIGHT_DECAYS, paper_trade_off
from rpim.starts import STEPS, TRADE_OFF, ClassSizes, Start, consensus_start, single_start
from rpim.transforms import TRANSFORMS
from rpim.unfinished import fit_under_way

N_DIVISIONS = 8
_SEARCH_DIRECTIONS = 128
_SEARCH_SCHEDULE = Schedule(learning_rate=1e-2, max_iter=40)
_SEARCH_STARTS = 2
"""What makes a trial cheap: fewer directions, steps and starts than in the real training."""


class InfoMaxEstimator(DiscoveryEstimator):
    """Full-batch InfoMax with a linear head. RIM, TIM, PIM and RPIM differ in their parameters alone."""

    settings: str
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
    n_starts: Any
    n_init: Any
    schedule: str
    learning_rate: Any
    max_iter: Any
    low_memory: bool
    calibrate: bool
    marginal_rows: Literal["all", "unlabelled"] = "all"
    search_: dict[str, dict[Any, float]]

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DiscoveryEstimator._parameter_constraints,
        "settings": [StrOptions(set(SETTINGS))],
        "trade_off": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "weight_decay": [StrOptions({AUTO}), Interval(Real, 0, None, closed="left")],
        "class_sizes": [StrOptions({AUTO, *GRID["class_sizes"]})],
        "search": [StrOptions({AUTO, "held-out", "paper"})],
        "n_starts": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_init": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "schedule": [StrOptions({AUTO, *SCHEDULES})],
        "learning_rate": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "max_iter": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_components": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "low_memory": ["boolean"],
        "calibrate": ["boolean"],
    }

    def _resolved(self, name: str) -> Any:
        """The parameter, or what the settings make of "auto" (which stays "auto" where it is searched)."""
        value = getattr(self, name)
        return SETTINGS[self.settings].get(name, AUTO) if isinstance(value, str) and value == AUTO else value

    def parameters_of_a_repetition(self) -> dict[str, Any]:
        short = {
            "trade_off": self.trade_off_, "beta": self.beta_, "weight_decay": self.weight_decay_,
            "class_sizes": self.class_sizes_, "n_starts": _SEARCH_STARTS, "n_components": _SEARCH_DIRECTIONS,
            "schedule": "fast", "calibrate": False,
            "learning_rate": _SEARCH_SCHEDULE.learning_rate, "max_iter": _SEARCH_SCHEDULE.max_iter, "abstain": 0.0,
        }  # fmt: skip
        known = self.get_params(deep=False)
        return super().parameters_of_a_repetition() | {name: value for name, value in short.items() if name in known}

    def _n_components(self) -> int | None:
        n_components: int | None = self._resolved("n_components")
        return n_components

    def _objective(self, setting: Setting, class_shares: Tensor | None = None) -> Objective:
        return Objective(
            trade_off=setting.trade_off, eta=self.eta, beta=setting.beta, threshold=self.threshold,
            pseudo_labels=self.pseudo_labels, mixed_labels=self.mixed_labels, supervision=self.supervision,
            sinkhorn_epsilon=self.sinkhorn_epsilon, sinkhorn_iterations=self.sinkhorn_iterations,
            marginal_rows=self.marginal_rows, class_shares=class_shares,
        )

    def _schedule(self, setting: Setting) -> Schedule:
        schedule = dict(SCHEDULES[self._resolved("schedule")])
        given = {name: getattr(self, name) for name in ("learning_rate", "max_iter")}
        schedule.update({name: value for name, value in given.items() if value != AUTO})
        return Schedule(weight_decay=setting.weight_decay, **schedule)

    def _new_head(self, prototypes: Tensor) -> Head:
        # The low-rank bias starts at random numbers, the same ones for every training of a fit.
        transform = TRANSFORMS[self.h].initial(prototypes, self.rank, torch.Generator().manual_seed(0))
        return Head(prototypes.clone(), transform, self.temperature)

    def _discover(self, problem: Problem) -> Head:
        unfinished = fit_under_way()
        begun = None if unfinished is None else unfinished.start()
        setting, prototypes, shares = self._begin(problem) if begun is None else self._begin_again(problem, *begun)
        if unfinished is not None and begun is None:
            unfinished.keep_start(*self._beginning(problem, setting, prototypes, shares))
        schedule = self._schedule(setting)
        step = _step_cost(problem.x, problem.n_classes, self.h)
        problem.progress.stage("training")
        head = self._new_head(prototypes)
        self.history_ = problem.train(
            head, self._objective(setting, shares), schedule, keep=not self.low_memory,
            on_step=lambda: problem.progress.advance(step), unfinished=unfinished,
        )  # fmt: skip
        self.n_iter_ = len(self.history_)
        self.trade_off_, self.beta_, self.weight_decay_ = setting.trade_off, setting.beta, setting.weight_decay
        self.class_sizes_ = setting.class_sizes
        self.calibration_error_: dict[str, float] = {}
        head.calibration = self.calibration_ = self._calibrate(problem, head, setting) if self.calibrate else 1.0
        return head

    def _begin(self, problem: Problem) -> tuple[Setting, Tensor, Tensor | None]:
        """What the training is to be done with: the setting, the first prototypes (K, D), the classes' shares (K,)."""
        problem.progress.stage("searching the settings")
        setting = self._search(problem)
        n_starts = self._resolved("n_starts")
        member = _step_cost(problem.x, problem.n_classes, "none") * STEPS
        problem.progress.expect(member * n_starts + self._training_cost(problem, setting))
        problem.progress.stage("finding a start")
        start = self._start(problem, setting.class_sizes, n_starts, lambda: problem.progress.advance(member))
        self.agreement_ = start.agreement
        return setting, start.prototypes, start.shares(setting.class_sizes)

    def _training_cost(self, problem: Problem, setting: Setting) -> float:
        return _step_cost(problem.x, problem.n_classes, self.h) * self._schedule(setting).max_iter

    def _beginning(
        self, problem: Problem, setting: Setting, prototypes: Tensor, shares: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What `_begin` found, to be kept."""
        tensors = {"prototypes": prototypes, "generator": problem.generator.get_state()}
        if shares is not None:
            tensors["shares"] = shares
        search = {name: list(scores.items()) for name, scores in self.search_.items()}
        return tensors, {"setting": asdict(setting), "search": search, "agreement": self.agreement_}

    def _begin_again(
        self, problem: Problem, tensors: dict[str, Tensor], facts: dict[str, Any]
    ) -> tuple[Setting, Tensor, Tensor | None]:
        """What `_begin` gave before the stop, with everything as it left it."""
        self.search_ = {name: dict(map(tuple, scores)) for name, scores in facts["search"].items()}
        self.agreement_ = facts["agreement"]
        problem.generator.set_state(tensors["generator"])
        device, shares = problem.x.device, tensors.get("shares")
        setting = Setting(**facts["setting"])
        problem.progress.expect(self._training_cost(problem, setting))
        return setting, tensors["prototypes"].to(device), None if shares is None else shares.to(device)

    def _calibrate(self, problem: Problem, head: Head, setting: Setting) -> float:
        """The factor that makes the probabilities of rows with hidden labels come true; see calibration.py."""
        parts = folds(problem.labels, problem.generator, hide_classes=problem.n_new > 0)
        if not parts:
            return 1.0
        problem.progress.stage("calibrating")
        n_labelled, n_classes = len(problem.labels), problem.n_classes
        labelled, free = problem.x[:n_labelled], problem.x[n_labelled:]
        if len(free) > enough_rows(n_classes):
            some = torch.randperm(len(free), generator=problem.generator)[: enough_rows(n_classes)]
            free = free[some.to(free.device)]
        x = torch.cat([labelled, free])
        if x.shape[1] > _SEARCH_DIRECTIONS:
            x = x @ principal_directions(problem.x, _SEARCH_DIRECTIONS)
        step = _step_cost(x, n_classes, self.h)
        problem.progress.expect(step * self.n_iter_ * len(parts))
        seeds = torch.randint(2**31, (len(parts),), generator=problem.generator).tolist()
        schedule = replace(self._schedule(setting), max_iter=self.n_iter_, tol=0.0)  # as long as the real one

        def train(numbered: tuple[Fold, int]) -> HiddenRows:
            fold, seed = numbered
            rows = torch.cat([x[fold.rows], x[n_labelled:]])
            hidden = rows[len(fold.labels) : n_labelled]
            start = consensus_start(
                rows, fold.labels, n_classes, n_starts=_SEARCH_STARTS, temperature=self.temperature,
                generator=torch.Generator().manual_seed(seed), class_sizes=setting.class_sizes,
                keep=not self.low_memory,
            )  # fmt: skip
            trained = self._new_head(start.prototypes)
            engine = InMemory(rows, fold.labels, n_classes, keep=not self.low_memory)
            objective = self._objective(setting, start.shares(setting.class_sizes))
            optimise(engine, trained, objective, schedule, lambda *_: problem.progress.advance(step))
            logits = trained.logits(hidden).double().cpu().numpy()
            is_new = (fold.truth >= fold.n_known).cpu().numpy()
            return HiddenRows(logits, fold.targets(logits.argmax(axis=1)), is_new)

        to_new = head.predict(problem.x[n_labelled:]) >= problem.n_known
        share_new = float(to_new.sum()) / max(len(to_new), 1)
        found = calibrate(side_by_side(train, zip(parts, seeds, strict=True)), share_new)
        self.calibration_error_ = {"before": found.error_before, "after": found.error_after}
        return found.factor

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
        from rpim.methods.extending import extend

        extend(self, X, y)
        return self

    def _fit_where_they_are(self, X: RowFiles | ArrayLike, y: ArrayLike) -> None:
        from rpim.methods.streaming import Here, fit_where_they_are

        rows = X if isinstance(X, RowFiles) else self._validate(X, y)[0]
        fit_where_they_are(self, rows, y, present_place() or Here())

    def _setting(self) -> Setting:
        """What the fit has used."""
        return Setting(self.trade_off_, self.beta_, self.weight_decay_, self.class_sizes_)

    def _remember(self, problem: Problem, classes: Tensor) -> None:
        scores = self.head_.outlier_scores(problem.x)
        self.memory_ = remember(
            problem.x, classes, len(problem.labels), problem.n_classes, scores, problem.generator
        )

    def _start(
        self, problem: Problem, class_sizes: ClassSizes, n_starts: int, on_start: Callable[[], None]
    ) -> Start:
        if n_starts > 1 and problem.n_new > 0:
            return consensus_start(
                problem.x, problem.labels, problem.n_classes, n_starts=n_starts, temperature=self.temperature,
                generator=problem.generator, class_sizes=class_sizes, keep=not self.low_memory, on_start=on_start,
            )  # fmt: skip
        start = single_start(
            problem.x, problem.labels, problem.n_classes, n_init=self._resolved("n_init"), generator=problem.generator
        )
        on_start()
        return start

    def _search(self, problem: Problem) -> Setting:
        """Choose what was left at "auto" among the parameters of `GRID`, by the labelled rows alone."""
        given = {name: self._resolved(name) for name in GRID}
        if given["trade_off"] != AUTO and given["class_sizes"] == AUTO:
            given["class_sizes"] = "equal"  # lambda and the sizes answer the same question: both are searched, or none
        if not self.mixed_labels:
            given["beta"] = 0.0
        setting = Setting(**{name: GRID[name][0] if value == AUTO else value for name, value in given.items()})
        wanted = [name for name, value in given.items() if value == AUTO]
        self.search_ = {}
        if not wanted:
            return setting
        if self._resolved("search") == "paper":
            return self._search_as_the_paper(problem, setting, wanted)
        if not can_divide(problem.labels):
            return setting  # too few known classes to hide half of them: the values that did best on average
        labelled = problem.x[: len(problem.labels)]
        if labelled.shape[1] > _SEARCH_DIRECTIONS:
            labelled = labelled @ principal_directions(problem.x, _SEARCH_DIRECTIONS)
        share_new = problem.n_new / problem.n_classes
        divisions = [divide(labelled, problem.labels, problem.generator, share_new) for _ in range(N_DIVISIONS)]
        seeds = torch.randint(2**31, (N_DIVISIONS,), generator=problem.generator).tolist()
        work = _step_cost(divisions[0].x, problem.n_known, self.h) * _SEARCH_SCHEDULE.max_iter
        trials = sum(len(GRID[name]) for name in wanted)
        problem.progress.expect(work * trials * N_DIVISIONS)  # at most: whoever trails is not tried again

        def start(division: Division, seed: int, class_sizes: ClassSizes) -> Start:
            return consensus_start(
                division.x, division.labels, division.n_classes, n_starts=_SEARCH_STARTS,
                temperature=self.temperature, generator=torch.Generator().manual_seed(seed), trade_off=TRADE_OFF / 2,
                class_sizes=class_sizes,
            )  # fmt: skip

        def judge(division: Division, start_for: Callable[[ClassSizes], Start], candidate: Setting) -> float:
            candidate = candidate.for_a_division()
            schedule = replace(_SEARCH_SCHEDULE, weight_decay=candidate.weight_decay)
            return self._score(division, start_for(candidate.class_sizes), candidate, schedule)

        # Cached: every trial of a division starts alike, and where the search stands is scored with every parameter.
        starts = [cache(partial(start, *pair)) for pair in zip(divisions, seeds, strict=True)]
        side_by_side(lambda start_for: start_for(setting.class_sizes), starts)
        judges = [cache(partial(judge, *pair)) for pair in zip(divisions, starts, strict=True)]
        for name in wanted:
            candidates = [replace(setting, **{name: value}) for value in GRID[name]]
            setting, scores = best_setting(candidates, judges, lambda n: problem.progress.advance(n * work))
            self.search_[name] = dict(zip(GRID[name], scores, strict=True))
        return setting

    def _search_as_the_paper(self, problem: Problem, setting: Setting, wanted: list[str]) -> Setting:
        if "trade_off" in wanted:
            schedule = self._schedule(setting)
            work = _step_cost(problem.x, problem.n_classes, "none") * schedule.max_iter
            problem.progress.expect(work * len(TRADE_OFFS))
            trade_off, self.search_["trade_off"] = paper_trade_off(
                problem.x, problem.labels, problem.n_classes, self._objective(setting), schedule,
                temperature=self.temperature, n_init=self._resolved("n_init"), generator=problem.generator,
                on_trial=lambda: problem.progress.advance(work),
            )
            setting = replace(setting, trade_off=trade_off)
        if "weight_decay" in wanted and can_divide(problem.labels):
            division = divide(problem.x[: len(problem.labels)], problem.labels, problem.generator)
            start = single_start(division.x, division.labels, division.n_classes, n_init=self._resolved("n_init"),
                                 generator=problem.generator)
            candidates = [replace(setting, weight_decay=value) for value in WEIGHT_DECAYS]
            work = _step_cost(division.x, division.n_classes, self.h) * self._schedule(setting).max_iter
            problem.progress.expect(work * len(candidates))
            best, scores = best_setting(
                candidates, [lambda c: self._score(division, start, c, self._schedule(c))],
                lambda n: problem.progress.advance(n * work),
            )  # fmt: skip
            self.search_["weight_decay"] = dict(zip(WEIGHT_DECAYS, scores, strict=True))
            # The whole problem is about twice the size of the divided one, so the paper halves it.
            setting = replace(setting, weight_decay=best.weight_decay / 2)
        return setting

    def _score(self, division: Division, start: Start, setting: Setting, schedule: Schedule) -> float:
        """Train on a divided problem and score the classes of its hidden rows."""
        head = self._new_head(start.prototypes)
        optimise(division.engine(), head, self._objective(setting, start.shares(setting.class_sizes)), schedule)
        return division.score(head.predict(division.x))


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
