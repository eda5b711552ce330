"""The tables of a benchmark: results.csv with a row for each cell, results.md for people.

Both depend on the plan and on what the cells say alone, never on the order in which they finished.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from rpim.benchmark.cells import Cell, CellFile, Record
from rpim.files import replacing
from rpim.messages import some

CSV_FILE, MARKDOWN_FILE = "results.csv", "results.md"

ACCURACY = ("all", "known", "unknown")
CONFUSION = ("unknown_in_known", "known_in_unknown")
_KEY = ("method", "estimator", "parameters", "set", "seed")
_FACTS = (
    "seconds", "peak_mb", "rows", "labelled", "evaluated", "n_classes", "n_classes_used", "trade_off", "beta",
    "weight_decay", "agreement", "n_iter", "trained_parameters", "threads",
)  # fmt: skip

_NOTHING = "—"


def write_tables(folder: Path, cells: Sequence[Cell], kept: CellFile) -> str:
    """Write both files, each whole or not at all, and give the text of results.md."""
    records = [record for cell in cells if (record := kept.find(cell)) is not None]
    text = markdown(records)
    for name, content in ((CSV_FILE, as_csv(records)), (MARKDOWN_FILE, text)):
        with replacing(folder / name) as file:
            file.write(content.encode())
    return text


def as_csv(records: Sequence[Record]) -> str:
    """A row for each record; without the columns of accuracy where no record has a truth to go by."""
    measured = any(record.get("all") is not None for record in records)
    columns = (*_KEY, *(ACCURACY + CONFUSION if measured else ()), *_FACTS, "rpim", "torch", "error")
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        parameters = json.dumps(record["parameters"], sort_keys=True)
        writer.writerow({**record.get("versions", {}), **record, "parameters": parameters})
    return out.getvalue()


def markdown(records: Sequence[Record]) -> str:
    """The main table, one on confusion, time and memory, and what has to be said about them."""
    results = Results(records)
    parts = [part for part in (_main_table(results), _second_table(results), _notes(results)) if part]
    return "# Benchmark\n\n" + "\n".join(parts)


class Results:
    """The records by method and set."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.done = [record for record in records if "error" not in record]
        self.failed = [record for record in records if "error" in record]
        self.methods = list(dict.fromkeys(record["method"] for record in records))
        self.sets = list(dict.fromkeys(record["set"] for record in records))
        self.seeds = sorted({record["seed"] for record in records})
        tried = [(record["set"], record) for record in self.done]
        without = {name for name, _ in tried} - {name for name, record in tried if record["all"] is not None}
        self.without_truth = [name for name in self.sets if name in without]
        self.measured = [name for name in self.sets if name not in without]

    def values(self, method: str, data_set: str, name: str) -> list[float]:
        """What the cells of this method on this set say, seed by seed."""
        chosen = [record for record in self.done if (record["method"], record["set"]) == (method, data_set)]
        return [record[name] for record in chosen if record[name] is not None]

    def mean(self, method: str, data_set: str, name: str) -> float | None:
        """Over seeds."""
        values = self.values(method, data_set, name)
        return fmean(values) if values else None

    def whole(self, method: str, data_set: str) -> bool:
        """Whether there is a cell for every seed, so that the mean may be compared with others."""
        return len(self.values(method, data_set, "all")) == len(self.seeds)


def _main_table(results: Results) -> str:
    if not results.measured:
        return ""
    columns = {name: _set_column(results, name) for name in results.measured}
    if len(columns) > 1 and not results.without_truth:
        columns["average"] = _average_column(results)
    rows = [[method, *(column[method] for column in columns.values())] for method in results.methods]
    over = f", mean over {len(results.seeds)} seeds ± standard deviation of All" if len(results.seeds) > 1 else ""
    return f"All/Known/Unknown (GCD accuracy v2 in %, rows without a label){over}; the best All in bold.\n\n" + _table(
        ["method", *columns], rows
    )


def _set_column(results: Results, data_set: str) -> dict[str, str]:
    """A cell for each method, the best All of those with every seed in bold."""
    texts, compared = {}, {}
    for method in results.methods:
        values = results.values(method, data_set, "all")
        if not values:
            texts[method] = _NOTHING
            continue
        texts[method] = _shares([results.mean(method, data_set, part) for part in ACCURACY])
        if len(values) > 1:
            texts[method] += f" ±{100 * pstdev(values):.1f}"
        if results.whole(method, data_set):
            compared[method] = fmean(values)
        else:
            texts[method] += f" ({len(values)} of {len(results.seeds)} seeds)"
    return _best_in_bold(texts, compared)


def _average_column(results: Results) -> dict[str, str]:
    """The mean over sets, for the methods that have them all."""
    texts, compared = dict.fromkeys(results.methods, _NOTHING), {}
    for method in results.methods:
        if all(results.whole(method, name) for name in results.sets):
            parts = [[results.mean(method, name, part) for name in results.sets] for part in ACCURACY]
            means = [_mean_of_all(part) for part in parts]
            texts[method] = _shares(means)
            compared[method] = means[0] or 0.0
    return _best_in_bold(texts, compared)


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if len(there) == len(values) else None


def _best_in_bold(texts: dict[str, str], compared: dict[str, float]) -> dict[str, str]:
    """Methods that the table cannot tell from the best are in bold as well."""
    best = max((_percent(value) for value in compared.values()), key=float, default="")
    return {
        method: f"**{text}**" if method in compared and _percent(compared[method]) == best else text
        for method, text in texts.items()
    }


def _second_table(results: Results) -> str:
    rows = []
    for data_set in results.sets:
        for method in results.methods:
            numbers = [_percent(results.mean(method, data_set, name)) for name in CONFUSION]
            seconds, peak = (results.mean(method, data_set, name) for name in ("seconds", "peak_mb"))
            found = {*results.values(method, data_set, "n_classes_used")}
            classes = some(sorted(found)) if found else _NOTHING
            rows.append([data_set, method, *numbers, classes, _plain(seconds, ".1f"), _plain(peak, ".0f")])
    return (
        "Confusion: the share in % of rows of unknown classes that end in known ones, and the reverse; means over "
        "seeds.\nSeconds are those of the fit, peak MB that of the whole process.\n\n"
    ) + _table(["set", "method", "unknown in known", "known in unknown", "classes", "seconds", "peak MB"], rows)


def _notes(results: Results) -> str:
    missing = results.without_truth
    notes = [f"{name} has no truth for its unlabelled rows, so its accuracy is left out." for name in missing]
    told = {record["set"] for record in results.done if record["n_classes"] is not None}
    estimated = [name for name in results.sets if any(r["set"] == name for r in results.done) and name not in told]
    if estimated:
        notes.append(f"The number of classes was estimated on {', '.join(estimated)}.")
    versions = sorted({record["versions"]["rpim"] for record in results.done})
    if len(versions) > 1:
        notes.append(f"These cells come from different versions of rpim: {', '.join(versions)}.")
    notes += [f"Failed: {describe_failure(record)}" for record in results.failed]
    return "".join(f"* {note}\n" for note in notes)


def describe_failure(record: Record) -> str:
    """Which cell it was, and what went wrong, in one line."""
    return f"{record['method']} on {record['set']}, seed {record['seed']}: {record['error']}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, in columns for those who read it as it stands."""
    cells = [[_escaped(text) for text in row] for row in (header, *rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in cells]
    padded.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(row)} |\n" for row in padded)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _shares(values: Sequence[float | None]) -> str:
    return "/".join(map(_percent, values))


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{100 * value:.1f}"


def _plain(value: float | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)
