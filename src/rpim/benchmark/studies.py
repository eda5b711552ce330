"""The tables of the paper as studies: methods, parameters and seeds.

A row that is in the paper too has the name by which `paper_results` finds its published accuracy. Parameters that a row
does not set keep their defaults, so equal rows of different studies are one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rpim._common.errors import InputError, choose
from rpim.benchmark.entries import Method
from rpim.benchmark.results import (
    Record,
)
from rpim.runs.saved_model import METHODS

FIXED_WEIGHT_DECAY = 0.01
WEIGHT_DECAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
"""The grid of the paper's search."""
ETAS = (0.01, 0.02, 0.03, 0.04, 0.05)
SEEDS = (0, 1, 2, 3, 4, 5)

SYSTEMS = {
    "kmeans": "K-means",
    "rankstats": "RankStats+",
    "uno": "UNO+",
    "orca": "ORCA",
    "gcd": "GCD",
    "rim": "RIM",
    "tim": "TIM",
    "pim": "PIM",
    "rpim": "RPIM",
}
"""The paper's systems in its order."""

PRACTICE = {"selftraining": "Self-training", "spreadlabels": "Label spreading", "umaphdbscan": "UMAP + HDBSCAN"}
"""What is not in the paper, but used in practice."""

TRANSFORMATIONS = {
    "linear": "Linear layer without bias",
    "linear-bias": "Linear layer with bias",
    "mlp": "Two linear layers with bias",
    "semantic-scale-bias": "Learned input conditioned weight and bias",
    "semantic-bias": "Semantic bias (RPIM)",
}

OTHERS = "Other parameters have their defaults"
SINGLE = "Every row is a single fit (n_members=1)"
PUBLISHED, SHIPPED = "as published", "as shipped"
"""How the rows of a method are called apart where both of its presets are run."""


@dataclass(frozen=True)
class Study:
    """One question, one table: some methods over some seeds."""

    name: str
    title: str
    methods: tuple[Method, ...]
    seeds: tuple[int, ...] | None = None
    """None: given by the plan."""
    note: str = ""
    paper: tuple[str, ...] = ()
    """The tables of the paper whose figures stand beside ours."""
    layout: Literal["methods", "seeds", "nid", "batches"] = "methods"
    only_published: bool = False
    """Whether the study has rows of the published procedure alone."""


def studies_of(name: str, preset: str = "default") -> tuple[Study, ...]:
    """The studies that ``--paper NAME --preset PRESET`` asks for.

    Examples
    --------
    >>> [study.name for study in studies_of("ablation", "paper")]
    ['ablation-fixed', 'ablation-tuned']
    """
    choose("The study", name, (*STUDIES, "all"))
    studies = [study for each in (STUDIES if name == "all" else [name]) for study in STUDIES[each]()]
    if preset == "paper":
        return tuple(map(with_published, studies))
    return tuple(study for study in studies if not study.only_published)


def with_published(study: Study) -> Study:
    """The study with both presets of each method that has a published procedure.

    >>> study = Study("one", "One", (Method("PIM", "pim"), Method("UNO+", "uno")))
    >>> [method.name for method in with_published(study).methods]
    ['PIM, as published', 'PIM, as shipped', 'UNO+']
    """
    methods: list[Method] = []
    for method in study.methods:
        if "preset" not in METHODS[method.method]().get_params() or "preset" in method.parameters:
            methods.append(method)
            continue
        # The published procedure is a single fit anyway; without saying so, equal rows of two studies are one cell.
        parameters = {name: value for name, value in method.parameters.items() if name != "n_members"}
        published = Method(f"{method.name}, {PUBLISHED}", method.method, {"preset": "paper", **parameters})
        if _is_allowed(published):
            methods.append(published)
        if not study.only_published:
            methods.append(replace(method, name=f"{method.name}, {SHIPPED}"))
    return replace(study, methods=tuple(methods))


def _is_allowed(method: Method) -> bool:
    """Whether the parameters do not contradict the preset, as another beta than the paper's does."""
    try:
        method.estimator()._validate_params()
    except InputError:
        return False
    return True


def _main() -> tuple[Study, ...]:
    # What the paper does not have stands after k-means: simple methods first, RPIM last.
    others = [name for name in METHODS if name not in SYSTEMS]
    first, *rest = SYSTEMS
    methods, left_out = [], []
    for name in (first, *others, *rest):
        missing = METHODS[name].missing_extra()
        shown = {**SYSTEMS, **PRACTICE}.get(name, METHODS[name].__name__)
        if missing is None:
            methods.append(Method(shown, name))
        else:
            left_out.append(f"{shown} is left out: {missing}")
    note = " ".join(["All parameters have their defaults.", *left_out])
    return (Study("main", "Methods compared", tuple(methods), note=note, paper=("main",)),)


def _ablation() -> tuple[Study, ...]:
    fixed = {"weight_decay": FIXED_WEIGHT_DECAY}
    baseline = Method("Baseline (PIM)", "pim", fixed)
    return (
        Study(
            "ablation-fixed",
            "Parts of RPIM, weight decay 0.01",
            (baseline, *_parts(fixed)),
            note=f"Each part alone and together. {SINGLE}. {OTHERS}.",
            paper=("ablation_fixed_wd_0.01",),
        ),
        Study(
            "ablation-tuned",
            "Parts of RPIM, weight decay searched",
            (baseline, _rpim("Baseline tuned (PIM)", **_WITHOUT_PARTS), *_parts({})),
            note="The first row alone has weight decay 0.01, as in the paper.",
            paper=("ablation_tuned_wd",),
            only_published=True,
        ),
    )


def _parts(shared: dict[str, Any]) -> list[Method]:
    """RPIM with some of its three parts; without any it is PIM."""
    rows = []
    for h, l_r, l_s in [(0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]:
        name = "+".join(part for part, there in (("h", h), ("L_R", l_r), ("L_S", l_s)) if there)
        whole = h and l_r and l_s
        parts = {"h": "semantic-bias" if h else "none", "pseudo_labels": bool(l_r), "mixed_labels": bool(l_s)}
        rows.append(_rpim(f"{name} (RPIM)" if whole else name, **parts, **shared))
    return rows


def _transforms() -> tuple[Study, ...]:
    rows = [_rpim(shown, h=h) for h, shown in TRANSFORMATIONS.items()]
    rows += [_rpim(f"{shown}, random start", h=h, h_init="random") for h, shown in TRANSFORMATIONS.items()]
    return (
        Study(
            "transforms",
            "Transformations of the embedding",
            (Method("Baseline", "pim", {"weight_decay": FIXED_WEIGHT_DECAY}), *rows),
            note="RPIM with another h that starts as the identity, or with weights and biases as torch draws them for "
            "linear layers (random start). The baseline is PIM at weight decay 0.01, as in the paper. "
            f"{SINGLE}. {OTHERS}.",
            paper=("transformations", "transformations_mlp"),
        ),
    )


def _eta() -> tuple[Study, ...]:
    rows = tuple(_rpim(f"eta={eta}", eta=eta) for eta in ETAS)
    note = f"RPIM with another weight of L_R. {SINGLE}. {OTHERS}."
    return (Study("eta", "Sensitivity to eta", rows, note=note, paper=("eta_sensitivity",)),)


def _weight_decay() -> tuple[Study, ...]:
    rows = tuple(_rpim(f"weight decay {value}", weight_decay=value) for value in WEIGHT_DECAYS)
    note = f"RPIM at each value of the paper's search, which halves the best. {SINGLE}. {OTHERS}."
    return (Study("weight-decay", "Sensitivity to the weight decay", rows, note=note),)


def _readings() -> tuple[Study, ...]:
    rows = tuple(
        _rpim(f"L_S {what} CE, beta {beta}", supervision=supervision, beta=beta)
        for supervision, what in (("mixed", "in the place of"), ("added", "added to"))
        for beta in (0.05, 0.2)
    )
    note = f"What the paper leaves open: whether L_S replaces the cross-entropy, and beta. {SINGLE}. {OTHERS}."
    return (Study("readings", "Readings of L_S", rows, note=note),)


def _seeds() -> tuple[Study, ...]:
    return (
        Study(
            "seeds",
            "Sensitivity to the seed",
            (_rpim("RPIM"), Method("PIM", "pim")),
            seeds=SEEDS,
            note="Here the seed draws the labelled rows too, and the known classes where no list gives them. The paper "
            f"tried the seeds 0 to 5 for the method alone and reports the same result for each. {SINGLE}.",
            layout="seeds",
        ),
    )


def _rpim(name: str, **changed: Any) -> Method:
    """A single fit of RPIM with these parameters, without those that are at their defaults.

    As in the paper, whose baseline is a single fit too: a committee against it would show what a committee is worth.
    """
    given = {key: value for key, value in changed.items() if value != _RPIM_DEFAULTS[key]}
    return Method(name, "rpim", {"n_members": 1, **given})


_WITHOUT_PARTS: dict[str, Any] = {"h": "none", "pseudo_labels": False, "mixed_labels": False}
_RPIM_DEFAULTS = {name.removeprefix("objective__"): value for name, value in METHODS["rpim"]().get_params().items()}

STUDIES: dict[str, Callable[[], tuple[Study, ...]]] = {
    "main": _main,
    "ablation": _ablation,
    "transforms": _transforms,
    "eta": _eta,
    "weight-decay": _weight_decay,
    "seeds": _seeds,
    "readings": _readings,
}
"""What ``--paper`` may ask for."""


def of_study(study: Study, records: Sequence[Record]) -> list[Record]:
    """Its records, under the names that it gives to the methods."""
    return [
        {**record, "method": method.name}
        for method in study.methods
        for record in records
        if what_ran(method) == (record["estimator"], record["parameters"])
        and (study.seeds is None or record["seed"] in study.seeds)
    ]


def what_ran(method: Method) -> tuple[str, dict[str, Any]]:
    """Estimator and parameters of a method: two names of the same are one cell."""
    return method.method, method.parameters
