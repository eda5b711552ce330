"""The report: one self-contained HTML file without external requests or scripts."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rpim._common.errors import InputError
from rpim._common.files import StrPath, check_writable, replacing
from rpim._version import __version__
from rpim.data.feature_set import FeatureSet
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.report import run_facts
from rpim.report.facts import (
    MAX_LEAVES,
    ByColumn,
    ClassFacts,
    by_column,
    class_facts,
    class_tree,
    label_issue_items,
    overview,
)
from rpim.report.pictures import PageMap, Thumbnails, check_rows, colours, for_the_page, picture_sheet, quick_map
from rpim.report.run_facts import Comparison, compare
from rpim.runs.assignments import UNSTABLE
from rpim.runs.discovery import Discovery

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

REPORT_FILE = "report.html"
HOW_TO_GET_IT = (
    "No report was written, because jinja2 is not installed: pip install 'rpim[report]', then rpim report RUN."
)
NO_FEATURES = "There is no map, because the features are not available: use rpim report RUN --features FILE."
_NAME_PARTS = re.compile(r"[^_/.-]*[_/.-]+|[^_/.-]+")
_TEMPLATE, _STYLE, _SCRIPT = "report.html.jinja", "report.css", "report.js"


def can_be_made() -> bool:
    """Whether jinja2 is installed."""
    return importlib.util.find_spec("jinja2") is not None


def check_report(path: StrPath, overwrite: bool = False) -> Path:
    """Check that the report may be written; return its path.

    Raises
    ------
    InputError
        If it is not an .html file, exists and may not be replaced, or jinja2 is missing.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            f"{path} has the suffix {target.suffix!r}, but the report is an HTML page: give a name with .html."
        )
    check_writable(path, overwrite)
    if not can_be_made():
        raise InputError(f"{path} needs jinja2, which is not installed: pip install 'rpim[report]'.")
    return target


def write_report(
    discovery: Discovery,
    path: StrPath,
    *,
    features: FeatureSet | None = None,
    truth: ArrayLike | None = None,
    pictures: Sequence[Any] | None = None,
    on_map: PageMap | None = None,
    no_map: str = NO_FEATURES,
    notes: Sequence[str] = (),
    by: str | None = None,
    since: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report atomically.

    Parameters
    ----------
    discovery : Discovery
        The result to show.
    path : path of the .html file
        The file to write.
    features : FeatureSet, optional
        The rows of the discovery, in order: for the map, and for the true classes if they have them.
    truth : array-like, optional
        One true class per row, for display only; -1, NaN or "" if unknown.
    pictures : sequence, optional
        For each row the path of its image or its pixels (uint8), if the discovery has no paths.
    on_map : PageMap, optional
        The map (default: a quick one computed from `features`).
    no_map : str
        Text shown instead of the map without features.
    notes : sequence of str, optional
        Sentences below the introduction, such as which version of the run it shows.
    by : str, optional
        A metadata column of `features`: a section shows the classes by its values, or over time if it holds dates.
    since : str, optional
        With dates, the day from which on classes are compared with those before, such as 2024-01-31.
    overwrite : bool
        Replace an existing file.

    Returns
    -------
    path
        The file written.

    Raises
    ------
    InputError
        If the file exists or cannot be written, or `features` or `truth` do not match the discovery.
    """
    target = check_report(path, overwrite)
    if features is not None:
        check_rows(discovery, features)
    if by is not None and features is None:
        raise InputError(f"The metadata column {by!r} needs the features: give them.")
    section = None if by is None or features is None else by_column(discovery, features, by, since)
    if on_map is None and features is not None:
        on_map = quick_map(discovery, features)
    true_classes = None if truth is None else np.asarray(truth)
    compared = None if true_classes is None else compare(discovery, true_classes)
    if true_classes is None and features is not None and features.truth is not None:
        true_classes, compared = features.truth, _compared(discovery, features)
    thumbnails = Thumbnails(pictures if pictures is not None else discovery.assignments.paths)
    classes = class_facts(discovery, None if compared is None else true_classes)
    text = render(discovery, classes, thumbnails, compared, on_map, no_map, notes, section)
    with replacing(target, overwrite) as file:
        file.write(text.encode("utf-8", "replace"))  # lone surrogates are shown as ?
    return target


def _compared(discovery: Discovery, features: FeatureSet) -> Comparison | None:
    """Compare with the truth of the features; None if it is invalid, since it was not requested."""
    try:
        return compare(discovery, np.asarray(features.truth))
    except InputError:
        return None


def render(
    discovery: Discovery,
    classes: list[ClassFacts],
    thumbnails: Thumbnails,
    compared: Comparison | None,
    on_map: PageMap | None,
    no_map: str = NO_FEATURES,
    decided: Sequence[str] = (),
    by: ByColumn | None = None,
) -> str:
    """Render the page; names and texts of the user are escaped."""
    new = sorted(
        (one for one in classes if not one.summary.known and one.summary.rows), key=lambda one: -one.summary.rows
    )
    known = [one for one in classes if one.summary.known]
    label_issues = label_issue_items(discovery)
    # If not all images fit the budget, typical rows come first.
    shown = [
        *(one.typical for one in new),
        *(one.typical[:1] for one in known),
        [one.item for one in label_issues],
        *(one.doubtful for one in new),
    ]
    for item in itertools.chain(*shown):
        thumbnails.of(item.row)
    sheet = None if on_map is None else picture_sheet(thumbnails.contents, on_map.rows.tolist())
    chosen = run_facts.parameters(discovery.model)
    environment = _environment()
    style, script = (_source(environment, name) for name in (_STYLE, _SCRIPT))
    return environment.get_template(_TEMPLATE).render(
        overview=overview(discovery, classes),
        titles=[one.title for one in classes],
        titles_known=[one.summary.known for one in classes],
        by=by,
        new=new,
        known=known,
        tree=class_tree(discovery),
        max_leaves=MAX_LEAVES,
        colours=colours(len(classes)),
        thumbnails=thumbnails,
        compared=compared,
        n_rows=len(discovery),
        unstable=UNSTABLE,
        has_texts=discovery.assignments.texts is not None,
        decided=decided,
        map=on_map,
        no_map=no_map,
        sheet=sheet,
        map_json=None if on_map is None else for_the_page(on_map, discovery, classes, sheet),
        curves=run_facts.curves(discovery),
        parameters=chosen,
        searches=run_facts.searches(discovery.model),
        count=run_facts.count(discovery.model),
        is_infomax=isinstance(discovery.model, InfoMaxEstimator),
        paper_search=any(one.name == "search" and one.value == "paper" for one in chosen),
        provenance=run_facts.provenance(discovery),
        path_of=run_facts.path_of,
        n_members=getattr(discovery.model, "n_members_", 1),
        averages_members=run_facts.averages_members(discovery),
        label_issues=label_issues,
        n_label_issues=len(discovery.label_issues()),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        version=__version__,
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("rpim.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "percent": percent,
        "number": lambda value: f"{value:,}",
        "figure": lambda value: f"{value:.4g}",
        "breakable": breakable,
    }
    return found


def breakable(name: Any) -> Markup:
    """An escaped name with line-break opportunities between its parts.

    >>> breakable("top_up<b>")
    Markup('top_<wbr>up&lt;b&gt;')
    """
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in _NAME_PARTS.findall(str(name)))


def percent(share: float, places: int = 0) -> str:
    """Format a share as a percentage.

    >>> percent(0.876), percent(0.876, 1), percent(math.nan)
    ('88%', '87.6%', '—')
    """
    return "—" if math.isnan(share) else f"{share:.{places}%}"


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _hash(text: str) -> str:
    """Hash of an inline style or script for the content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
