"""The figures of the report as plotly figures, for notebooks."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rpim._common.errors import InputError, plural
from rpim.data.feature_set import FeatureSet
from rpim.report.facts import captions, class_facts, percent
from rpim.report.pictures import colours, quick_map
from rpim.report.run_facts import compare, curves
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.discovery_tables import features_of_discovery

MAX_BARS = 100
N_BINS = 20


def map_figure(discovery: Discovery, features: FeatureSet | None = None) -> Any:
    """2-D map of the rows, coloured by class: discs for known classes, rings for new ones.

    With more than 10,000 rows, a stratified sample is shown.

    Parameters
    ----------
    discovery : Discovery
        The result to show.
    features : FeatureSet, optional
        The rows of the discovery, in order; by default those of the fit, or those that its run folder records.

    Returns
    -------
    plotly.graph_objects.Figure
        A trace per class.
    """
    plotly = _graph_objects()
    features = features_of_discovery(discovery) if features is None else features
    if features is None:
        raise InputError("The discovery holds no features and was not saved: give features=, the rows of the fit.")
    found = quick_map(discovery, features)
    codes = class_codes(discovery.labels, discovery.classes)[found.rows]
    said, classes = captions(discovery, found.rows.tolist()), class_facts(discovery)
    figure = plotly.Figure()
    for one, colour in zip(classes, colours(len(classes)), strict=True):
        here = np.flatnonzero(codes == one.number)
        figure.add_scattergl(
            x=found.places[here, 0],
            y=found.places[here, 1],
            mode="markers",
            name=escape(one.title),
            marker={"size": 5, "color": colour, "symbol": "circle" if one.summary.known else "circle-open"},
            customdata=discovery.confidence[found.rows[here]],
            hovertext=[escape(said[i]) for i in here],
            hovertemplate="%{hovertext}<br>%{customdata:.0%} confidence",
        )
    return figure.update_layout(
        title=f"{len(found.rows):,} of {len(discovery):,} rows by {found.kind}",
        xaxis={"visible": False},
        yaxis={"visible": False, "scaleanchor": "x"},
        legend={"itemsizing": "constant"},
        plot_bgcolor="white",
    )


def class_sizes_figure(discovery: Discovery) -> Any:
    """Number of rows of every class, largest first; at most 100 classes are shown.

    Parameters
    ----------
    discovery : Discovery
        The result to show.

    Returns
    -------
    plotly.graph_objects.Figure
        Horizontal bars: a trace for known and one for new classes.
    """
    plotly = _graph_objects()
    classes = sorted(class_facts(discovery), key=lambda one: -one.summary.rows)
    shown, figure = classes[:MAX_BARS], plotly.Figure()
    for kind, is_known, colour in zip(("known", "new"), (True, False), colours(2), strict=True):
        some = [one for one in shown if one.summary.known == is_known]
        figure.add_bar(
            x=[one.summary.rows for one in some],
            y=[escape(one.title) for one in some],
            orientation="h",
            name=f"{kind} classes",
            marker={"color": colour},
            customdata=[(one.summary.labelled, percent(one.summary.mean_confidence)) for one in some],
            hovertemplate="%{y}: %{x:,} rows, %{customdata[0]:,} labelled, confidence %{customdata[1]}<extra></extra>",
        )
    figure.update_xaxes(title_text="rows")
    figure.update_yaxes(
        type="category",
        automargin=True,
        categoryorder="array",
        categoryarray=[escape(one.title) for one in shown[::-1]],
    )
    which = f"The {len(shown):,} largest of {len(classes):,} classes" if len(shown) < len(classes) else "Class sizes"
    return figure.update_layout(title=which, height=140 + 20 * len(shown), barmode="overlay")


def confidence_figure(discovery: Discovery) -> Any:
    """Histogram of the confidence of the unlabelled rows, in known and in new classes.

    Parameters
    ----------
    discovery : Discovery
        The result to show.

    Returns
    -------
    plotly.graph_objects.Figure
        Stacked bars: a trace for rows in known and one for rows in new classes.
    """
    plotly = _graph_objects()
    rows, figure = discovery.assignments, plotly.Figure()
    counted = ~rows.labelled & ~rows.left_out
    edges = np.linspace(0, 1, N_BINS + 1)
    for kind, chosen, colour in zip(("known", "new"), (rows.known, ~rows.known), colours(2), strict=True):
        counts, _ = np.histogram(rows.confidence[counted & chosen].clip(0, 1), edges)
        figure.add_bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=1 / N_BINS,
            name=f"in {kind} classes",
            marker={"color": colour},
            customdata=[f"{a:.0%} to {b:.0%}" for a, b in itertools.pairwise(edges)],
            hovertemplate="%{y:,} rows with a confidence of %{customdata}<extra></extra>",
        )
    figure.update_xaxes(title_text="confidence", range=[0, 1], tickformat=".0%")
    figure.update_yaxes(title_text="rows")
    title = f"Confidence of {plural(int(counted.sum()), 'unlabelled row')}"
    return figure.update_layout(title=title, barmode="stack")


def history_figure(discovery: Discovery) -> Any:
    """Plot the terms of the objective over the steps, one subplot each.

    Parameters
    ----------
    discovery : Discovery
        The result to show.

    Returns
    -------
    plotly.graph_objects.Figure
        A subplot per term.
    """
    plotly = _graph_objects()
    found = curves(discovery)
    if not found:
        name = type(discovery.model).__name__
        raise InputError(f"{name} has no training history, so there is nothing to plot: use another method.")
    figure = plotly.Figure().set_subplots(len(found), 1, shared_xaxes=True, subplot_titles=[one.name for one in found])
    for k, one in enumerate(found, start=1):
        steps = [step for step, _ in one.points]
        figure.add_scatter(x=steps, y=one.values, name=one.name, hovertext=one.meaning, row=k, col=1)
    figure.update_xaxes(title_text="step", row=len(found), col=1)
    return figure.update_layout(showlegend=False, height=120 * len(found) + 120)


def confusion_figure(discovery: Discovery, truth: ArrayLike) -> Any:
    """Row-normalized confusion matrix of the unlabelled rows, known classes first.

    Parameters
    ----------
    discovery : Discovery
        The result to show.
    truth : array-like
        One true class per row; -1, NaN or "" if unknown.

    Returns
    -------
    plotly.graph_objects.Figure
        A heat map.
    """
    plotly = _graph_objects()
    found = compare(discovery, np.asarray(truth))
    shares = found.confusion.shares  # (K, K or more)
    names = [escape(name) for name in found.names]
    beyond = [f"unmatched {k}" for k in range(1, shares.shape[1] - len(names) + 1)]
    figure = plotly.Figure(
        plotly.Heatmap(
            z=shares,
            x=[*names, *beyond],
            y=names,
            zmin=0,
            zmax=1,
            colorscale="Blues",
            colorbar={"tickformat": ".0%"},
            hovertemplate="true %{y}, found %{x}: %{z:.1%}<extra></extra>",
        )
    )
    figure.update_xaxes(type="category", title_text="found")
    figure.update_yaxes(type="category", title_text="true", autorange="reversed")
    return figure.update_layout(title=str(found.evaluation))


def escape(text: str) -> str:
    """Escape text for plotly.

    >>> escape("<b>a & b</b>")
    '&lt;b&gt;a &amp; b&lt;/b&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _graph_objects() -> Any:
    try:
        return importlib.import_module("plotly.graph_objects")
    except ModuleNotFoundError as error:
        raise InputError("Figures need plotly, which is not installed: pip install 'rpim[notebook]'.") from error
