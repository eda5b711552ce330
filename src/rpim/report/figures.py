"""The figures of the report as plotly figures, for notebooks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.report.facts import captions, class_facts
from rpim.report.page_map import colours, quick_map
from rpim.report.run_facts import compare, curves
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery


def map_figure(discovery: Discovery, features: FeatureSet) -> Any:
    """2-D map of the rows, coloured by class: discs for known classes, rings for new ones.

    With more than 10,000 rows, a stratified sample is shown.

    Parameters
    ----------
    discovery : Discovery
        The result to show.
    features : FeatureSet
        The rows of the discovery, in order.

    Returns
    -------
    plotly.graph_objects.Figure
        A trace per class.
    """
    plotly = _graph_objects()
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
