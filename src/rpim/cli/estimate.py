"""``rpim estimate``: the number of classes as text, JSON and a plot."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError, choose, in_halves, interval, plural
from rpim._common.files import StrPath, check_writable, replacing
from rpim.cli.embed import EncoderNames, TextColumn, Weights
from rpim.cli.terminal import FeatureColumn, LabelColumn, LabelsFile, Overwrite, Seed, Source, echo

if TYPE_CHECKING:
    from rpim.estimators.problem import ClassCount

_PICTURES = (".png", ".svg")
_CURVES = {
    "neighbors": ("neighbors of a labelled row", "classes"),
    "max-acc": ("clusters", "accuracy on the labelled rows"),
    "max-acc-pim": ("classes", "accuracy on the labelled rows"),
    "groups": ("groups", "agreement of two halves"),
}
"""The x and y axes of each method's curve."""


def estimate(
    data: Source,
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    encoder: EncoderNames = None,
    weights: Weights = None,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="neighbors, or a baseline: max-acc (GCD), max-acc-pim (PIM)."),
    ] = "neighbors",
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="paper: Max-ACC with the published budget, not the shortened one.")
    ] = "default",
    at_least: Annotated[int | None, typer.Option(metavar="K", help="Lower bound of the search.")] = None,
    at_most: Annotated[int | None, typer.Option(metavar="K", help="Upper bound of the search.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the curve behind the estimate: .png or .svg.")
    ] = None,
    seed: Seed = 0,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Ignore labels, if there are any: estimate the number of groups.")
    ] = False,
    no_normalize: Annotated[
        bool, typer.Option("--no-normalize", help="Do not normalize the rows to unit length.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Estimate the number of classes in DATA, known and new, with a confidence interval."""
    from rpim.estimators.count_classes import ESTIMATORS
    from rpim.estimators.search import BUDGETS

    choose("--method", method, ESTIMATORS)
    choose("--preset", preset, BUDGETS)
    if preset == "paper" and method == "neighbors":
        raise InputError("--preset paper is for Max-ACC: give --method max-acc or max-acc-pim too, or leave it out.")
    picture = None if plot is None else _check_picture(plot, overwrite)
    from rpim.cli.embed import embedded, read_data
    from rpim.cli.fitting import check_problem
    from rpim.data.feature_set import FeatureSet

    features = read_data(
        data,
        labels,
        label_column=label_column,
        feature_column=feature_column,
        text_column=text_column,
        encoder=encoder,
        weights=weights,
    )
    if no_labels:
        features = dataclasses.replace(features, labels=None)
    n_known = check_problem(features, data, no_labels=no_labels)
    if not isinstance(features, FeatureSet):
        features = embedded(features, encoder, weights, quiet=as_json)
        n_known = check_problem(features, data, no_labels=no_labels)  # some may have been skipped
    if n_known == 0 and method != "neighbors":
        raise InputError(f"{data} has no labelled row, and --method {method} needs some: leave it out.")
    import numpy as np

    from rpim.estimators.rpim import estimate_n_classes

    found = estimate_n_classes(
        features.rows(normalize=not no_normalize),
        np.full(len(features), "") if n_known == 0 else np.asarray(features.labels),
        method=method,
        preset=preset,
        at_least=at_least,
        at_most=at_most,
        normalize=False if no_normalize else "auto",
        random_state=seed,
        verbose=True,
        widths=features.widths,
    )
    counted = method if n_known else "groups"
    if picture is not None:
        _draw(found, n_known, counted, picture)
    echo(json.dumps(_as_dict(found, n_known, counted)) if as_json else _as_text(found, n_known, counted, preset))


def _as_text(count: ClassCount, n_known: int, method: str, preset: str = "default") -> str:
    """The estimate with its interval, then the curve, one line per point."""
    along, up = _CURVES[method]
    new = count.n_classes - n_known
    lines = [f"{plural(count.n_classes, 'class')} ({interval(count.low, count.high)}): {n_known:,} known, {new:,} new."]
    if method == "groups":
        lines = [
            f"{plural(count.n_classes, 'group')}, estimated without labels ({in_halves(count.low, count.high)}). "
            "Finer classes may exist."
        ]
    if method.startswith("max-acc") and preset == "default":
        lines.append("The search was shortened; --preset paper has the published budget.")
    if count.curve:
        lines += ["", f"{along}  {up}"]
        for point, value in count.curve.items():
            shown = f"{value:.1f}" if method == "neighbors" else f"{value:.1%}"
            mark = "  <- chosen" if point == count.chosen else ""
            lines.append(f"{point:>{len(along)},}  {shown:>{len(up)}}{mark}")
    return "\n".join(lines)


def _as_dict(count: ClassCount, n_known: int, method: str) -> dict[str, Any]:
    """JSON-serializable."""
    along, up = _CURVES[method]
    return {
        "n_classes": count.n_classes,
        "low": count.low,
        "high": count.high,
        "n_known": n_known,
        "method": method,
        "curve": [{along: point, up: value} for point, value in count.curve.items()],
        "chosen": count.chosen,
    }


def _check_picture(path: StrPath, overwrite: bool = False) -> Path:
    """Check that the plot can be drawn and written; return its path."""
    target = Path(path)
    if target.suffix.lower() not in _PICTURES:
        raise InputError(f"{path} has the suffix {target.suffix!r}, which is not a plot format: give .png or .svg.")
    check_writable(path, overwrite)
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(f"{path} needs matplotlib, which is not installed: pip install 'rpim[figures]'.") from error
    return target


def _draw(count: ClassCount, n_known: int, method: str, path: Path) -> None:
    """Plot the curve, the chosen point and the interval; the suffix gives the format."""
    import matplotlib
    from matplotlib.figure import Figure

    from rpim.benchmark.drawing import KNOWN, QUIET, STYLE, UNKNOWN, encoded, layout

    along, up = _CURVES[method]
    points, values = list(count.curve), list(count.curve.values())
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout=layout())
        ax = figure.subplots()
        within = (in_halves if method == "groups" else interval)(count.low, count.high)
        ax.set_title(f"{plural(count.n_classes, 'class')}, {within}")
        ax.plot(points, values, "o-", color=KNOWN, markersize=4)
        if method == "neighbors":
            ax.axhspan(count.low, count.high, color=UNKNOWN, alpha=0.15, linewidth=0)
            ax.axhline(count.n_classes, color=UNKNOWN, linewidth=1.2)
            ax.axhline(n_known, color=QUIET, linewidth=0.8, linestyle="--")
            ax.annotate("known", (1.0, n_known), xycoords=("axes fraction", "data"), ha="right", va="bottom")
            ax.set_ylim(0, max(*values, count.high, n_known) * 1.1)
        else:
            ax.axvspan(count.low, count.high, color=UNKNOWN, alpha=0.15, linewidth=0)
            ax.axvline(count.n_classes, color=UNKNOWN, linewidth=1.2)
            ax.yaxis.set_major_formatter("{x:.0%}")
        ax.set_xlabel(along)
        ax.set_ylabel(up)
        with replacing(path) as file:
            file.write(encoded(figure, path.suffix.lower().removeprefix(".")))
