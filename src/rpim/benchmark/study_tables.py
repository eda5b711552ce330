"""The records of a study as tables: by method, seed or share of known classes, with published figures and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rpim._common.errors import some
from rpim.benchmark.protocol import NID_SETS
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
    published_results,
    shares,
    spread,
)
from rpim.benchmark.studies import PUBLISHED, SHIPPED, Study

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
    columns["confusion"] = dict.fromkeys(results.methods, NOTHING) | {
        method: shares(results.average(method, results.measured, part) for part in CONFUSION)
        for method in results.complete(results.measured)
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


_ALL, _KNOWN, _NOVEL = TEST_ACCURACY
_NID_METRICS = {_ALL: "ACC all", _KNOWN: "Known", _NOVEL: "Novel"}

_NID_NOTE = (
    "Rows with a source are published figures, found with BERT-base encoders tuned on the task; ours stand on frozen "
    "sentence embeddings of another pre-training, with the number of classes given unless said, so the two do not "
    "compare methods alone."
)


def column_name(record: Record) -> str:
    """What a record is about: its set, with the share of known classes where the protocol varies it."""
    share = record.get("known_share")
    return str(record["set"]) if share is None else f"{record['set']}, {share:.0%} known"


def by_known_share(study: Study, results: Results) -> list[Table]:
    """All, then Known/Novel: a column for each set and share of known classes."""
    share_of = {record["set"]: record["known_share"] for record in results.done + results.failed}
    over = f", mean over {len(results.seeds)} seeds ± standard deviation" if len(results.seeds) > 1 else ""
    found = []
    for title, parts in (("All", (_ALL,)), ("Known/Novel", (_KNOWN, _NOVEL))):
        columns = {
            name: accuracy_column(results, name, parts) | _published_nid(name, share_of[name], parts)
            for name in results.sets
        }
        names = dict.fromkeys([*results.methods, *(row for column in columns.values() for row in column)])
        rows = [[row, *(column.get(row, NOTHING) for column in columns.values())] for row in names]
        of_known = " of Known" if over and len(parts) > 1 else ""
        what = f"{title} (GCD accuracy v2 in % on the test rows, one matching over them){over}{of_known}"
        note = " ".join(part for part in (study.note, f"{what}; the best of ours in bold.", _NID_NOTE) if part)
        found.append(Table(f"{study.title}: {title}", note, ["method", *columns], rows))
    return found


def _published_nid(data_set: str, share: float, parts: Iterable[str]) -> dict[str, str]:
    """The published figures of a set at a share of known classes, by method and source."""
    known_as = published_name(data_set, NID_SETS)
    lines = [
        line
        for line in published_results("nid_published.csv")
        if line["dataset"] == known_as and float(line["known_ratio"]) == share
    ]
    at = {(f"{line['method']} ({line['source']})", line["metric"]): f"{float(line['value']):.1f}" for line in lines}
    rows = dict.fromkeys(row for row, _ in at)
    texts = {row: [at.get((row, _NID_METRICS[part])) for part in parts] for row in rows}
    return {row: "/".join(value or NOTHING for value in found) for row, found in texts.items() if any(found)}
