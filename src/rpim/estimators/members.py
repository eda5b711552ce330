"""The members of a committee: short fits that differ in representation, lambda, seed and the labels that they see.

`plan_members` draws what each member varies; a `Trainer` trains one. Members are independent of each other, so
`train_members` trains them as tasks, in threads or on Ray. `committee.py` combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from rpim._common.progress import Progress, parallel_map
from rpim.core.checkpoint import MEMBER_FILE, Checkpoint, History, check_tensors, checked_history, pack, unpack
from rpim.core.head import Head
from rpim.core.kmeans import ClassSizes, merged_start
from rpim.core.neighbor_pairs import STEPS as PAIR_STEPS
from rpim.core.neighbor_pairs import train_on_pairs
from rpim.core.objective import Objective
from rpim.core.preprocessing import KINDS, Representation, fit_representation, uses_labels
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train

N_FOLDS = 8
"""A member does not see an eighth of the labels of each class."""

ROW_SHARE = 0.5
"""A member is trained on this share of the rows whose labels it does not see, drawn without replacement."""

LEAST_ROWS = 25
"""Of these rows per class, on average, a member is trained on at least so many, or on all."""

FEW_LABELS = 2
"""With at most so many labels per known class, on average, members are trained as without any: see `Trainer`."""

N_DIRECTIONS = 128
"""Number of principal directions of the rows of a member: more are no better, and cost twice as much."""

TRADE_OFFS = {"equal": (0.1,), "estimated": (0.1, 0.2, 0.5, 1.0)}
"""The values of lambda: where classes differ in size, M pulls them together, and a larger lambda holds against it."""

SCHEDULE = Schedule(learning_rate=1e-2, max_iter=40)
"""A member trains for a short while: longer ones are better alone, but not together."""


@dataclass(frozen=True)
class MemberPlan:
    """What sets a member apart from the others."""

    representation: str
    n_directions: int
    trade_off: float
    class_sizes: ClassSizes
    fold: int
    """The part of the labels that it does not see; -1 where it sees all."""
    seed: int
    embedding: int = 0
    """Which embedding of the rows it sees, where there are several."""


def plan_members(
    n_members: int,
    seed: int,
    *,
    n_directions: int,
    class_sizes: Sequence[ClassSizes] = ("equal",),
    trade_offs: Sequence[float] | None = None,
    n_embeddings: int = 1,
) -> list[MemberPlan]:
    """Plan what each member varies. Every four members have every representation, every eight hide every label once.

    Parameters
    ----------
    seed : int
        Where the seeds of the members are drawn from.
    n_directions : int
        Principal directions that a member keeps.
    class_sizes : sequence
        What members assume in turn of the sizes of the classes.
    trade_offs : sequence of float, optional
        The values of lambda to go through, where they are not those of `TRADE_OFFS`.
    """
    kinds = list(KINDS)
    generator = torch.Generator().manual_seed(seed)
    seeds = torch.randint(2**31, (n_members,), generator=generator).tolist()
    plans = []
    for m in range(n_members):
        turn = m // len(kinds)
        # Shifted in every turn, so that each representation meets each of them.
        sizes = class_sizes[(m + turn) % len(class_sizes)]
        values = TRADE_OFFS[sizes] if trade_offs is None else trade_offs
        plans.append(
            MemberPlan(
                representation=kinds[m % len(kinds)],
                n_directions=n_directions,
                trade_off=values[(m // len(class_sizes) + turn) % len(values)],
                class_sizes=sizes,
                fold=m % N_FOLDS,
                seed=seeds[m],
                # Shifted, so that each embedding meets every representation, and every label is hidden from each.
                embedding=(m % len(kinds) + turn + turn // n_embeddings) % n_embeddings,
            )
        )
    return plans


def label_folds(labels: Tensor, seed: int) -> Tensor:
    """The fold of each label, evenly in each class; -1 for the one label of a class, which is never hidden. (n,)"""
    generator = torch.Generator().manual_seed(seed)
    folds = torch.empty_like(labels)
    shift = 0
    for c in range(int(labels.max()) + 1 if len(labels) else 0):
        rows = torch.nonzero(labels == c).flatten()
        place = torch.randperm(len(rows), generator=generator).to(labels.device)
        folds[rows] = (place + shift) % N_FOLDS if len(rows) > 1 else -1
        shift += len(rows)  # small classes begin where others ended, so that every fold has about as many labels
    return folds


@dataclass(frozen=True)
class Member:
    """A trained member: its representation and its head."""

    plan: MemberPlan
    representation: Representation
    head: Head
    history: History = field(repr=False)

    def __call__(self, x: Tensor) -> Tensor:
        """The probabilities of a block of rows. (n, K)"""
        return torch.softmax(self.head.logits(self.representation(x)), dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """Those of the representation and of the head."""
        of_head = {f"head.{name}": value for name, value in self.head.tensors().items()}
        return {"matrix": self.representation.matrix, "shift": self.representation.shift, **of_head}

    def to_bytes(self) -> bytes:
        """As a file."""
        return pack(self.tensors(), {"plan": asdict(self.plan), "history": self.history})

    @classmethod
    def from_bytes(cls, data: bytes, like: Member) -> Member | None:
        """What `to_bytes` gave, on the device of `like`; None if the member has another plan.

        Raises
        ------
        ValueError
            If the data are damaged, or the tensors have other names, shapes or dtypes than those of `like`.
        """
        tensors, facts = unpack(data)
        if not isinstance(facts, dict) or facts.get("plan") != asdict(like.plan):
            return None
        check_tensors(tensors, like.tensors())
        history = checked_history(facts.get("history"))
        if len(history) != SCHEDULE.max_iter:
            raise ValueError(f"its history has {len(history)} steps and not {SCHEDULE.max_iter}")
        tensors = {name: value.to(like.head.prototypes.device) for name, value in tensors.items()}
        of_head = {name.removeprefix("head."): v for name, v in tensors.items() if name.startswith("head.")}
        head = Head.from_tensors(of_head, like.head.transform_name, like.head.temperature)
        return cls(like.plan, Representation(tensors["matrix"], tensors["shift"]), head, history)


@dataclass(frozen=True)
class Trainer:
    """Trains any member: what all of them share. It can be sent to another process.

    Where there are few labels or none, members are also trained on pairs of neighbors, and their rows can be whitened
    by the classes of an earlier committee.
    """

    x: Tensor  # (N, D), the labelled rows first; the embeddings side by side where there are several
    labels: Tensor  # (n_labelled,)
    folds: Tensor  # (n_labelled,)
    n_classes: int
    objective: Objective
    schedule: Schedule
    new_head: Callable[[Tensor], Head]
    cache: bool = True
    embeddings: tuple[slice, ...] = (slice(None),)
    """The columns of each embedding."""
    clusters: Tensor | None = None
    """The classes that an earlier committee gave to the rows. (N,)"""

    @property
    def has_few_labels(self) -> bool:
        """Whether there are too few labels to learn much from, or none."""
        n_known = int(self.labels.max()) + 1 if len(self.labels) else 0
        return len(self.labels) <= FEW_LABELS * n_known

    @property
    def n_steps(self) -> int:
        """Steps of the training of a member."""
        return self.schedule.max_iter + (PAIR_STEPS if self.has_few_labels else 0)

    @property
    def whitened_by(self) -> Tensor:
        """The classes of the first rows, within which rows are whitened. (n,)"""
        return self.labels if self.clusters is None else self.clusters

    def __call__(self, plan: MemberPlan, representation: Representation | None = None) -> Member:
        """Train a member; ``representation`` is what `fit_representation` gives, if it is already there."""
        representation = self.fit_representation(plan) if representation is None else representation
        rows, labels = self._rows_of(plan)
        x = representation(self.x[rows])
        head, history = train_from_clusters(
            x,
            labels,
            self.n_classes,
            replace(self.objective, trade_off=plan.trade_off),
            self.new_head,
            class_sizes=plan.class_sizes,
            seed=plan.seed,
            schedule=self.schedule,
            cache=self.cache,
        )
        if self.has_few_labels:
            train_on_pairs(x, labels, head, plan.seed)
        return Member(plan, representation, head, history)

    def untrained(self, plan: MemberPlan) -> Member:
        """A member of this plan before its training, with tensors of zeros."""
        width = min(plan.n_directions, self.x[:, self.embeddings[plan.embedding]].shape[1])
        representation = Representation(self.x.new_zeros(width, self.x.shape[1]), self.x.new_zeros(width))
        return Member(plan, representation, self.new_head(self.x.new_zeros(self.n_classes, width)), [])

    def representation_key(self, plan: MemberPlan) -> tuple[str, int, int, int]:
        """Members with the same key have the same representation. Only whitening depends on the labels they see."""
        fold = plan.fold if self._is_whitened_by_labels(plan) else -1
        return plan.representation, plan.n_directions, plan.embedding, fold

    def _is_whitened_by_labels(self, plan: MemberPlan) -> bool:
        return uses_labels(plan.representation) and self.clusters is None and len(self.labels) > 0

    def fit_representation(self, plan: MemberPlan) -> Representation:
        """Fit the representation that all members with the same `representation_key` share."""
        x, labels = self.x[:, self.embeddings[plan.embedding]], self.whitened_by
        if self._is_whitened_by_labels(plan):
            # The covariance of all labelled rows would tell a member of the labels that it is not to see.
            order, labels = self._without_fold(plan.fold)
            x = x[order]
        found = fit_representation(plan.representation, x, labels, plan.n_directions)
        return self._of_all_columns(found, plan.embedding)

    def _rows_of(self, plan: MemberPlan) -> tuple[Tensor, Tensor]:
        """The rows that a member is trained on, those whose labels it sees first, and these labels."""
        order, labels = self._without_fold(plan.fold)
        seen, others = order[: len(labels)], order[len(labels) :]
        n_drawn = max(round(ROW_SHARE * len(others)), LEAST_ROWS * self.n_classes)
        drawn = torch.randperm(len(others), generator=torch.Generator().manual_seed(plan.seed + 1))[:n_drawn]
        return torch.cat([seen, others[drawn.sort().values.to(others.device)]]), labels

    def _without_fold(self, fold: int) -> tuple[Tensor, Tensor]:
        """The rows in the order of a member, those whose labels it sees first, and these labels."""
        hidden = self.folds == fold
        seen, unseen = torch.nonzero(~hidden).flatten(), torch.nonzero(hidden).flatten()
        unlabelled = torch.arange(len(self.labels), len(self.x), device=self.x.device)
        return torch.cat([seen, unseen, unlabelled]), self.labels[seen]

    def _of_all_columns(self, representation: Representation, embedding: int) -> Representation:
        """The same representation, of rows with all embeddings: zeros for the columns of the others."""
        if len(self.embeddings) == 1:
            return representation
        matrix = representation.matrix.new_zeros(len(representation.matrix), self.x.shape[1])
        matrix[:, self.embeddings[embedding]] = representation.matrix
        return Representation(matrix, representation.shift)


def train_from_clusters(
    x: Tensor,
    labels: Tensor,
    n_classes: int,
    objective: Objective,
    new_head: Callable[[Tensor], Head],
    *,
    class_sizes: ClassSizes,
    seed: int,
    schedule: Schedule,
    cache: bool = True,
) -> tuple[Head, History]:
    """Train a head from merged clusters."""
    start = merged_start(x, labels, n_classes, generator=torch.Generator().manual_seed(seed))
    if class_sizes == "estimated":
        objective = replace(objective, class_shares=start.shares(class_sizes))
    head = new_head(start.prototypes)
    engine = InMemoryBlocks(x, labels, n_classes, cache=cache)
    return head, train(engine, head, objective, schedule)


def train_members(
    trainer: Trainer,
    plans: list[MemberPlan],
    cost: Callable[[MemberPlan], float],
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> list[Member]:
    """Train the members that the checkpoint does not have, each as a task; their ``cost`` is already expected."""
    found = {} if checkpoint is None else _kept_members(trainer, plans, checkpoint)
    costs = [cost(plan) for plan in plans]
    progress.stage(f"training {len(plans)} members")
    progress.advance(sum(costs[number] for number in found))
    missing = [number for number in range(len(plans)) if number not in found]

    def done(position: int, member: Member) -> None:
        number = missing[position]
        if checkpoint is not None:
            checkpoint.save_member(number, member.to_bytes())
        progress.advance(costs[number])

    first = {trainer.representation_key(plans[number]): plans[number] for number in missing}
    shared = dict(zip(first, parallel_map(trainer.fit_representation, first.values()), strict=True))

    def train_member(plan: MemberPlan) -> Member:
        return trainer(plan, shared[trainer.representation_key(plan)])

    trained = parallel_map(train_member, [plans[number] for number in missing], done)
    found |= dict(zip(missing, trained, strict=True))
    return [found[number] for number in range(len(plans))]


def _kept_members(trainer: Trainer, plans: list[MemberPlan], checkpoint: Checkpoint) -> dict[int, Member]:
    """The members with these plans that the checkpoint has, by number."""
    kept = {}
    for number, data in checkpoint.members().items():
        for plan in plans[number : number + 1]:
            with checkpoint.reading(MEMBER_FILE.format(number)):
                member = Member.from_bytes(data, trainer.untrained(plan))
            if member is not None:
                kept[number] = member
    return kept


def mean_history(members: Sequence[Member]) -> History:
    """The terms of the objective at every step, averaged over the members."""
    histories = [member.history for member in members]
    return [
        {name: sum(float(step[name]) for step in steps) / len(steps) for name in steps[0]}
        for steps in zip(*histories, strict=True)
    ]
