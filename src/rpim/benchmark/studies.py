"""The tables of the paper as studies: methods, parameters and seeds, and how their records are laid out.

A row that is in the paper too has the name by which `paper_results` finds its published accuracy. Parameters that a row
does not set keep their defaults, so equal rows of different studies are one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rpim._common.errors import InputError, choose, some
from rpim.benchmark.entries import Method
from rpim.benchmark.results import (
    ACCURACY,
    CONFUSION,
    NOTHING,
    PAPER_NOTE,
    PAPER_SETS,
    STATISTICS,
    TEST_ACCURACY,
    TUNED_WEIGHT_DECAYS,
    Record,
    Results,
    Table,
    accuracy_column,
    average_column,
    formatted,
    paper_average,
    paper_results,
    percent,
    published_name,
    shares,
    spread,
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

OTHERS = "What is not said is at its default"
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
    note = " ".join([f"{OTHERS}.", *left_out])
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
            (Method("RPIM", "rpim"), Method("PIM", "pim")),
            seeds=SEEDS,
            note="Here the seed draws the labelled rows too, and the known classes where no list gives them. The paper "
            "tried the seeds 0 to 5 for the method alone and reports the same result for each.",
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


AVERAGE = "average"
PAPER_AVERAGE = "average of the paper's six sets"
CHOSEN = ("trade_off", "beta", "weight_decay")


def by_method(study: Study, results: Results) -> list[Table]:
    """All/Known/Unknown on the rows without a label, and on the rows that no method has seen."""
    found = []
    if results.measured:
        found.append(_accuracy(study, results))
    if results.tested:
        found.append(_test_accuracy(study, results))
    return found


def _accuracy(study: Study, results: Results) -> Table:
    columns: dict[str, dict[str, str]] = {}
    published = False
    for name in results.measured:
        columns[name] = accuracy_column(results, name)
        beside = {method: paper_results(study.paper, _row(method), name) for method in results.methods}
        if any(beside.values()):
            published = True
            columns[f"{name}, paper"] = {method: _published(values) for method, values in beside.items()}
    if len(results.measured) > 1 and not results.without_truth:
        columns[AVERAGE] = average_column(results, results.measured)
    if published:
        average = {method: paper_average(study.paper, _row(method)) for method in results.methods}
        columns[PAPER_AVERAGE] = {method: _published(values) for method, values in average.items()}
    columns["confusion"] = {
        method: shares(results.average(method, results.measured, part) for part in CONFUSION)
        for method in results.methods
    }
    note = [
        study.note,
        f"All/Known/Unknown (GCD accuracy v2 in %, rows without a label){_over(results)}; the best in bold.",
        "Confusion: the share in % of rows of unknown classes that end in known ones / the reverse"
        + (", mean over sets." if len(results.measured) > 1 else "."),
        PAPER_NOTE if published else "",
    ]
    rows = _rows(results, columns)
    if published and "main" in study.paper:
        rows.insert(_place_of_orca(rows), _row_of_the_paper_alone("ORCA, its own encoder", results.measured, columns))
    return Table(study.title, _joined(note), ["method", *columns], rows)


def _row(method: str) -> str:
    """The name of a method's row in the paper."""
    return method.removesuffix(f", {PUBLISHED}").removesuffix(f", {SHIPPED}")


def _place_of_orca(rows: Sequence[Sequence[str]]) -> int:
    return next((i for i, row in enumerate(rows) if row[0] == "ORCA"), len(rows))


def _row_of_the_paper_alone(setting: str, sets: Sequence[str], columns: Mapping[str, Any]) -> list[str]:
    """A row that the paper has and we have not."""
    there = {f"{name}, paper": _published(paper_results(("main",), setting, name)) for name in sets}
    there[PAPER_AVERAGE] = _published(paper_average(("main",), setting))
    return [f"{setting} (the paper alone)", *(there.get(column, NOTHING) for column in columns)]


def paper_data(results: Results) -> list[Table]:
    """The paper's table of statistics and its tuned weight decays, beside ours; for the sets that are its own."""
    names = {name: published_name(name, PAPER_SETS) for name in results.sets}
    rows = []
    for name, published in names.items():
        if published is None:
            continue
        ours = next((r for r in results.done if r["set"] == name and r.get("labelled") is not None), {})
        size = STATISTICS[published]
        rows.append(
            [
                name,
                f"{size.known} of {size.classes}",
                f"{size.labelled:,}/{size.unlabelled:,}",
                f"{ours['labelled']:,}/{ours['rows'] - ours['labelled']:,}" if ours else NOTHING,
                f"{TUNED_WEIGHT_DECAYS[published]:g}",
            ]
        )
    if not rows:
        return []
    header = ["set", "known classes, paper", "labelled/unlabelled rows, paper", "here", "tuned weight decay, paper"]
    note = "The paper's statistics, in hundreds of rows, and the weight decay that its search found, halved."
    return [Table("The paper's data sets", note, header, rows)]


def _test_accuracy(study: Study, results: Results) -> Table:
    columns = {name: accuracy_column(results, name, TEST_ACCURACY) for name in results.tested}
    if len(columns) > 1:
        columns[AVERAGE] = average_column(results, results.tested, TEST_ACCURACY)
    note = (
        "All/Known/Unknown (GCD accuracy v2 in %) of the classes predicted for the rows called test, which no method "
        f"has seen{_over(results)}; the best in bold."
    )
    return Table(f"{study.title}, rows never seen", note, ["method", *columns], _rows(results, columns))


def by_seed(study: Study, results: Results) -> list[Table]:
    """A row for each seed, and one for all of them."""
    pairs = [(name, method) for name in results.measured for method in results.methods]
    if not pairs:
        return []
    at = {(r["set"], r["method"], r["seed"]): shares(r[part] for part in ACCURACY) for r in results.done}
    rows = [[str(seed), *(at.get((*pair, seed), NOTHING) for pair in pairs)] for seed in results.seeds]
    every = [(results.values(method, name, "all"), method, name) for name, method in pairs]
    rows.append(
        ["mean", *(f"{percent(results.mean(method, name, 'all'))}{spread(values)}" for values, method, name in every)]
    )
    note = [
        study.note,
        "All/Known/Unknown (GCD accuracy v2 in %, rows without a label); below, mean ± standard deviation of All.",
    ]
    return [Table(study.title, _joined(note), ["seed", *(f"{name}, {method}" for name, method in pairs)], rows)]


def chosen(results: Results) -> list[Table]:
    """Lambda, beta and weight decay that the methods were given or found; the range over seeds."""
    methods = [m for m in results.methods if any(results.values(m, name, "trade_off") for name in results.sets)]
    if not methods:
        return []
    rows = [
        [method, *("/".join(_range(results.values(method, name, part)) for part in CHOSEN) for name in results.sets)]
        for method in methods
    ]
    note = "lambda/beta/weight decay, given or found by the search; from the smallest to the largest over seeds."
    return [Table("Chosen parameters", note, ["method", *results.sets], rows)]


def costs(results: Results) -> Table:
    """Confusion set by set, and how large, slow and hungry each method is."""
    rows = []
    for name in results.sets:
        for method in results.methods:
            confusion = [percent(results.mean(method, name, part)) for part in CONFUSION]
            classes, size = (results.values(method, name, part) for part in ("n_classes_used", "trained_parameters"))
            seconds, peak = (results.mean(method, name, part) for part in ("seconds", "peak_mb"))
            rows.append(
                [
                    name,
                    method,
                    *confusion,
                    some(sorted({*classes})) or NOTHING,
                    some(f"{value:,}" for value in sorted({*size})) or NOTHING,
                    formatted(seconds, ".1f"),
                    formatted(peak, ".0f"),
                ]
            )
    batches = any("batch" in record for record in results.done)
    over, of = ("seeds and batches", "a batch") if batches else ("seeds", "the fit")
    header = ["set", "method", "unknown in known", "known in unknown", "classes", "parameters", "seconds", "peak MB"]
    note = (
        "Confusion: the share in % of rows of unknown classes that end in known ones, and the reverse; means over "
        f"{over}. Parameters are the numbers trained, seconds those of {of}, peak MB that of the whole process."
    )
    return Table("Confusion, size, time and memory", note, header, rows)


def _rows(results: Results, columns: dict[str, dict[str, str]]) -> list[list[str]]:
    return [[method, *(column[method] for column in columns.values())] for method in results.methods]


def _over(results: Results) -> str:
    n = len(results.seeds)
    return f", mean over {n} seeds ± standard deviation of All" if n > 1 else ""


def _published(values: Sequence[float] | None) -> str:
    return NOTHING if values is None else "/".join(f"{value:.1f}" for value in values)


def _range(values: Sequence[float]) -> str:
    """The only value, or the smallest and the largest.

    >>> _range([0.1, 0.1]), _range([0.2, 0.05]), _range([])
    ('0.1', '0.05–0.2', '—')
    """
    return "–".join(f"{value:g}" for value in sorted({*values})[:: max(1, len({*values}) - 1)]) or NOTHING


def _joined(sentences: Sequence[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


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
