"""The tables of the paper as studies: which methods, with which parameters, over which seeds.

A row that is in the paper too has the name by which `paper_results` finds its published accuracy. Parameters that a row
does not set keep their defaults, so equal rows of different studies are one cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rpim._common.errors import choose
from rpim.benchmark.entries import Method
from rpim.runs.saved_model import METHODS

FIXED_WEIGHT_DECAY = 0.01
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

OWN_SEARCH = "lambda, beta and what else is not said are searched by this package's default"


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


def studies_of(name: str) -> tuple[Study, ...]:
    """The studies that ``--paper NAME`` asks for.

    Examples
    --------
    >>> [study.name for study in studies_of("ablation")]
    ['ablation-fixed', 'ablation-tuned']
    """
    choose("The study", name, (*STUDIES, "all"))
    chosen = STUDIES if name == "all" else [name]
    return tuple(study for each in chosen for study in STUDIES[each]())


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
    note = " ".join(["Every method as it is by default.", *left_out])
    return (Study("main", "Methods compared", tuple(methods), note=note, paper=("main",)),)


def _ablation() -> tuple[Study, ...]:
    fixed = {"weight_decay": FIXED_WEIGHT_DECAY}
    baseline = Method("Baseline (PIM)", "pim", fixed)
    return (
        Study(
            "ablation-fixed",
            "SplitFeatures of RPIM, weight decay 0.01",
            (baseline, *_parts(fixed)),
            note=f"Each part alone and together; {OWN_SEARCH}.",
            paper=("ablation_fixed_wd_0.01",),
        ),
        Study(
            "ablation-tuned",
            "SplitFeatures of RPIM, weight decay searched",
            (baseline, Method("Baseline tuned (PIM)", "pim"), *_parts({})),
            note=f"The first row alone has weight decay 0.01, as in the paper; {OWN_SEARCH}.",
            paper=("ablation_tuned_wd",),
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
    return (
        Study(
            "transforms",
            "Transformations of the embedding",
            (Method("Baseline", "pim", {"weight_decay": FIXED_WEIGHT_DECAY}), *rows),
            note=f"RPIM with another h; the baseline is PIM at weight decay 0.01, as in the paper; {OWN_SEARCH}.",
            paper=("transformations", "transformations_mlp"),
        ),
    )


def _eta() -> tuple[Study, ...]:
    rows = tuple(_rpim(f"eta={eta}", eta=eta) for eta in ETAS)
    note = f"RPIM with another weight of L_R; {OWN_SEARCH}."
    return (Study("eta", "Sensitivity to eta", rows, note=note, paper=("eta_sensitivity",)),)


def _seeds() -> tuple[Study, ...]:
    return (
        Study(
            "seeds",
            "Sensitivity to the seed",
            (Method("RPIM", "rpim"), Method("PIM", "pim")),
            seeds=SEEDS,
            note="Here the seed draws the labelled rows too, and the known classes where no list gives them. The paper "
            "tried the seeds 0 to 5 for the method alone and reports the same result for each.",
            layout="seeds",
        ),
    )


def _rpim(name: str, **changed: Any) -> Method:
    """RPIM with these parameters, of which those that are so anyway are left out."""
    return Method(name, "rpim", {key: value for key, value in changed.items() if value != _RPIM_DEFAULTS[key]})


_RPIM_DEFAULTS = {name.removeprefix("objective__"): value for name, value in METHODS["rpim"]().get_params().items()}

STUDIES: dict[str, Callable[[], tuple[Study, ...]]] = {
    "main": _main,
    "ablation": _ablation,
    "transforms": _transforms,
    "eta": _eta,
    "seeds": _seeds,
}
"""What ``--paper`` may ask for."""
