"""The tables of new-intent discovery: ours on the test rows, and under them what others have published."""

from __future__ import annotations

from collections.abc import Iterable

from rpim.benchmark.published_results import carried, published_name
from rpim.benchmark.results import NOTHING, TEST_ACCURACY, Record, Results, Table, accuracy_column
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
            name: accuracy_column(results, name, parts) | _published(name, share_of[name], parts)
            for name in results.sets
        }
        names = dict.fromkeys([*results.methods, *(row for column in columns.values() for row in column)])
        rows = [[row, *(column.get(row, NOTHING) for column in columns.values())] for row in names]
        of_known = " of Known" if over and len(parts) > 1 else ""
        what = f"{title} (GCD accuracy v2 in % on the test rows, one matching over them){over}{of_known}"
        note = " ".join(part for part in (study.note, f"{what}; the best of ours in bold.", NOTE) if part)
        found.append(Table(f"{study.title}: {title}", note, ["method", *columns], rows))
    return found


def _published(data_set: str, share: float, parts: Iterable[str]) -> dict[str, str]:
    """The published figures of a set at a share of known classes, by method and source."""
    known_as = published_name(data_set, SETS)
    lines = [
        line
        for line in carried("nid_published.csv")
        if line["dataset"] == known_as and float(line["known_ratio"]) == share
    ]
    at = {(f"{line['method']} ({line['source']})", line["metric"]): f"{float(line['value']):.1f}" for line in lines}
    rows = dict.fromkeys(row for row, _ in at)
    texts = {row: [at.get((row, _METRICS[part])) for part in parts] for row in rows}
    return {row: "/".join(value or NOTHING for value in found) for row, found in texts.items() if any(found)}
