"""The table of classes that come later: for each arrival the ways beside each other."""

from __future__ import annotations

from rpim.benchmark.arrivals import GROUPS, N_ARRIVALS
from rpim.benchmark.layouts import AVERAGE
from rpim.benchmark.results import Record, Results, Table, accuracy_column, average_column, plain
from rpim.benchmark.studies import Study

PARTS = ("all", *GROUPS)

NOTE = (
    "A first fit sees six tenths of the classes, four tenths with labels; a third of the others comes with each of "
    "three arrivals, without a label and beside more rows of earlier classes. predict: the first model gives its "
    "classes to all that comes later. extend: each arrival extends the model before, which sees earlier rows no more. "
    "refit: all rows so far are fitted from scratch. The first fit alone may be told how many classes there are. "
    "All/known/earlier/newest in % of an arrival's own rows: all of them, and those of classes with labels, of classes "
    "that were there before without a name, and of classes that come with it. Found classes are matched with the true "
    "ones over all rows without a label so far, so a class that changes its name is wrong."
)


def row_name(record: Record) -> str:
    """Who a record is about: its method, with the way it took where the protocol has several."""
    way = record.get("way")
    return str(record["method"]) if way is None else f"{record['method']}, {way}"


def by_arrival(study: Study, results: Results) -> list[Table]:
    """A row for each arrival, method and way; for each set accuracy, and how many classes were found of how many."""
    rows: list[list[str]] = []
    columns: dict[str, dict[str, str]] = {}
    for arrival in range(1, N_ARRIVALS + 1):
        # A failed cell has no arrivals, and is missing in each of them.
        own = Results([one for one in (*results.done, *results.failed) if one.get("arrival", arrival) == arrival])
        columns = {}
        for name in results.sets:
            columns[name] = accuracy_column(own, name, PARTS)
            columns[f"{name}, classes"] = {method: _classes(own, method, name) for method in own.methods}
        if len(results.sets) > 1:
            columns[AVERAGE] = average_column(own, results.sets, PARTS)
        columns["seconds"] = {
            method: plain(own.average(method, results.sets, "seconds"), ".1f") for method in own.methods
        }
        rows += [[method, str(arrival), *(column[method] for column in columns.values())] for method in results.methods]
    n = len(results.seeds)
    over = f"Mean over {n} seeds ± standard deviation of All; the" if n > 1 else "The"
    note = f"{NOTE} {over} best of each arrival in bold. Classes: found/true. Seconds: of the arrival, mean over sets."
    return [Table(study.title, note, ["method", "arrival", *columns], rows)]


def _classes(results: Results, method: str, data_set: str) -> str:
    counts = (results.mean(method, data_set, name) for name in ("n_classes_used", "n_classes_true"))
    return "/".join(plain(count, ".0f") for count in counts)
