"""The tables of new-intent discovery: ours on the test rows, and under them what others have published."""

from __future__ import annotations

from collections.abc import Iterable

from rpim.benchmark.carried import carried, published_name
from rpim.benchmark.results import NOTHING, TEST_ACCURACY, Results, Table, accuracy_column
from rpim.benchmark.studies import Study

SETS = {"banking": "BANKING77", "banking77": "BANKING77", "clinc": "CLINC150", "clinc150": "CLINC150"}
"""What people call the sets of the published figures, in small letters and figures alone."""

_ALL, _KNOWN, _NOVEL = TEST_ACCURACY
_METRICS = {_ALL: "ACC all", _KNOWN: "Known", _NOVEL: "Novel"}

NOTE = (
    "Rows with a source are published figures, found with BERT-base encoders tuned on the task; ours stand on frozen "
    "sentence embeddings of another pre-training, with the number of classes given unless said, so the two do not "
    "compare methods alone."
)


def by_known_share(study: Study, results: Results) -> list[Table]:
    """All, then Known/Novel: a column for each set and share of known classes."""
    everything = results.done + results.failed
    found = []
    for title, parts in (("All", (_ALL,)), ("Known/Novel", (_KNOWN, _NOVEL))):
        columns: dict[str, dict[str, str]] = {}
        for name in results.sets:
            for share in sorted({record["known_share"] for record in everything}):
                own = Results([r for r in everything if (r["set"], r["known_share"]) == (name, share)])
                ours, others = accuracy_column(own, name, parts), _published(name, share, parts)
                columns[f"{name}, {share:.0%} known"] = ours | others
        names = dict.fromkeys([*results.methods, *(row for column in columns.values() for row in column)])
        rows = [[row, *(column.get(row, NOTHING) for column in columns.values())] for row in names]
        over = f", mean over {len(results.seeds)} seeds ± standard deviation" if len(results.seeds) > 1 else ""
        what = f"{title} (GCD accuracy v2 in % on the test rows, one matching over them){over}"
        if len(parts) > 1 and over:
            what += " of Known"
        note = " ".join(part for part in (study.note, f"{what}; the best of ours in bold.", NOTE) if part)
        found.append(Table(f"{study.title}: {title}", note, ["method", *columns], rows))
    return found


def _published(data_set: str, share: float, parts: Iterable[str]) -> dict[str, str]:
    """The published figures of a set at a share of known classes, by method and source."""
    known_as = published_name(data_set, SETS)
    lines = [line for line in carried("nid_published.csv")
             if line["dataset"] == known_as and float(line["known_ratio"]) == share]  # fmt: skip
    at = {(f"{line['method']} ({line['source']})", line["metric"]): f"{float(line['value']):.1f}" for line in lines}
    rows = dict.fromkeys(row for row, _ in at)
    texts = {row: [at.get((row, _METRICS[part])) for part in parts] for row in rows}
    return {row: "/".join(value or NOTHING for value in found) for row, found in texts.items() if any(found)}
