"""Draw the figures of a benchmark from arrays to image bytes.

Figures have a white background and need no display. Text is not parsed as math.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from rpim.data.labels import IntArray
from rpim.runs.evaluation import Confusion
from rpim.runs.maps import palette

INK, QUIET, KNOWN, UNKNOWN = "#1f2328", "#6b7280", "#0072b2", "#d55e00"
LEGEND_CLASSES = 20
"""With more classes, the legend is omitted."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#9aa1ab",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
    "svg.hashsalt": "rpim",
    "legend.frameon": False,
}
_SHADES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#a9cde6", "#0072b2", "#08264a"])

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Map:
    """2-D positions of rows with their true classes."""

    title: str
    points: Array  # (S, 2)
    classes: IntArray  # (S,)
    is_known: NDArray[np.bool_]  # (S,)


@dataclass(frozen=True, eq=False)
class Leanings:
    """log(p best known / p best new) for the rows of one unknown class, of known classes, and of other unknown ones."""

    title: str
    of_class: Array
    of_known: Array
    of_others: Array


def draw_maps(maps: Sequence[Map], names: Mapping[int, str], focus: Sequence[int] = (), columns: int = 2) -> bytes:
    """Maps side by side, coloured by class; with `focus`, a second row colours only those classes. PNG"""
    classes = np.unique(np.concatenate([one.classes for one in maps])).tolist()
    colours = dict(zip(classes, palette(len(classes)), strict=True))
    columns = min(columns, len(maps))
    n_rows = math.ceil(len(maps) / columns)
    side = 4.6 if columns == 2 else 3.4
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(side * columns, (side * n_rows) * (2 if focus else 1) + 0.7), layout=layout())
        axes = figure.subplots(n_rows * (2 if focus else 1), columns, squeeze=False).ravel()
        for ax, one in zip(axes, maps, strict=False):
            ax.set_title(one.title)
            _scatter(ax, one, colours)
        below = axes[n_rows * columns :]
        if focus:
            strong = dict(zip(focus, palette(len(focus)), strict=True))
            for ax, one in zip(below, maps, strict=False):
                ax.set_title(f"{one.title}: classes that are confused", fontweight="normal")
                _scatter(ax, one, strong)
        for ax in axes:
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            ax.set_aspect("equal", "datalim")
        named = strong if focus else colours if len(classes) <= LEGEND_CLASSES else {}
        known = {c: bool(one.is_known[one.classes == c][0]) for one in maps for c in named if c in one.classes}
        handles = [_dot(named[c], known.get(c, True), names[c]) for c in named]
        kinds = [_dot(QUIET, True, "known class"), _dot(QUIET, False, "unknown class")]
        figure.legend(handles=[*kinds, *handles], loc="outside lower center", ncols=6, fontsize=8.5)
        return encoded(figure, "png")


def _scatter(ax: Any, one: Map, colours: Mapping[int, Any]) -> None:
    """Dots for known classes, rings for unknown ones; classes without a colour are grey, in the background."""
    size = 14 if len(one.points) < 800 else 8
    coloured = np.isin(one.classes, list(colours))
    rgb = np.array([colours.get(c, (0.84, 0.85, 0.87)) for c in one.classes.tolist()])
    for where, bigger in ((~coloured, 1.0), (coloured, 1.0 if coloured.all() else 2.2)):
        known, unknown = where & one.is_known, where & ~one.is_known
        ax.scatter(*one.points[known].T, s=size * bigger, c=rgb[known], linewidths=0)
        ax.scatter(
            *one.points[unknown].T,
            s=size * bigger,
            facecolors="none",
            edgecolors=rgb[unknown],
            linewidths=0.8 if bigger == 1.0 else 1.3,
        )


def _dot(colour: Any, filled: bool, label: str) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="",
        marker="o",
        markersize=5.5,
        markeredgewidth=1.1,
        markeredgecolor=colour,
        markerfacecolor=colour if filled else "none",
        label=shortened(label),
    )


def draw_confusions(titled: Mapping[str, Confusion], names: Mapping[int, str]) -> bytes:
    """Confusion matrices side by side, with the share of rows in each of the four blocks. PNG"""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.9 * len(titled), 4.9), layout=layout())
        axes = figure.subplots(1, len(titled), squeeze=False)[0]
        for ax, (title, confusion) in zip(axes, titled.items(), strict=True):
            image = ax.imshow(
                100 * confusion.shares,
                cmap=_SHADES,
                norm=PowerNorm(0.5, 0, 100),
                interpolation="nearest",
                aspect="auto",
            )
            ax.set_title(title)
            _label_blocks(ax, confusion)
            _label_classes(ax, confusion, names)
        bar = figure.colorbar(image, ax=axes, shrink=0.7, ticks=[0, 5, 25, 50, 100])
        bar.set_label("% of the rows of a true class")
        bar.outline.set_visible(False)
        return encoded(figure, "png")


def _label_blocks(ax: Any, confusion: Confusion) -> None:
    """Lines between known and unknown, and in each block its share."""
    (n_rows, n_columns), k = confusion.counts.shape, confusion.n_known
    ax.axhline(k - 0.5, color=UNKNOWN, linewidth=1.2)
    ax.axvline(k - 0.5, color=UNKNOWN, linewidth=1.2)
    for i, (top, bottom) in enumerate(((0, k), (k, n_rows))):
        for j, (left, right) in enumerate(((0, k), (k, n_columns))):
            share = confusion.blocks[i, j]
            if bottom > top and right > left and not math.isnan(share):
                # In the corner that the diagonal does not reach.
                ax.annotate(
                    f"{100 * share:.1f} %",
                    (right - 0.5, top - 0.5),
                    (-5, -5),
                    textcoords="offset points",
                    ha="right",
                    va="top",
                    fontsize=10,
                    fontweight="bold",
                    bbox={"boxstyle": "round,pad=0.25", "facecolor": "#ffffffb8", "edgecolor": "#9aa1ab"},
                )


def _label_classes(ax: Any, confusion: Confusion, names: Mapping[int, str]) -> None:
    (n_rows, n_columns), k = confusion.counts.shape, confusion.n_known
    if n_rows <= LEGEND_CLASSES:
        texts = [shortened(names[c], 14) for c in confusion.classes.tolist()]
        ax.set_yticks(range(n_rows), texts, fontsize=7.5)
        ax.set_xticks(range(n_rows), texts, fontsize=7.5, rotation=90)
        ax.tick_params(length=0)
        ax.set(xlabel="found (known first)", ylabel="true (known first)")
        return
    ax.set_xticks([(k - 1) / 2, (k + n_columns - 1) / 2], ["known", "unknown"])
    ax.set_yticks([(k - 1) / 2, (k + n_rows - 1) / 2], ["known", "unknown"], rotation=90, va="center")
    ax.tick_params(length=0)
    ax.set(xlabel="found", ylabel="true")


def draw_leanings(panels: Sequence[Leanings], name: str) -> bytes:
    """Stacked density histograms with a shared x axis. SVG"""
    ends = np.concatenate([part for one in panels for part in (one.of_class, one.of_known, one.of_others)])
    low, high = np.floor(ends.min()), np.ceil(ends.max())
    bins = np.linspace(min(low, -1.0), max(high, 1.0), 41)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.3 * len(panels) + 0.9), layout=layout())
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for ax, one in zip(axes, panels, strict=True):
            if len(one.of_others):
                ax.hist(one.of_others, bins, density=True, histtype="step", color=QUIET, linewidth=1.1)
            if len(one.of_known):  # none where every row of the known classes is labelled
                ax.hist(one.of_known, bins, density=True, histtype="stepfilled", color=KNOWN, alpha=0.55)
            ax.hist(one.of_class, bins, density=True, histtype="stepfilled", color=UNKNOWN, alpha=0.65)
            ax.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
            confused = f"{100 * (one.of_class > 0).mean():.0f} %"
            ax.set_title(f"{one.title}: {confused} of {shortened(name)} end in known classes")
            ax.set_ylabel("density")
        axes[-1].set_xlabel("← taken for unknown     log(p best known class / p best new class)     taken for known →")
        handles = [
            Line2D([], [], color=KNOWN, alpha=0.55, linewidth=7, label="known classes"),
            Line2D([], [], color=UNKNOWN, alpha=0.65, linewidth=7, label=shortened(name)),
            Line2D([], [], color=QUIET, linewidth=1.1, label="other unknown classes"),
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=3)
        return encoded(figure, "svg")


def draw_averages(values: Mapping[str, Sequence[float | None]], parts: Sequence[str]) -> bytes:
    """Bar charts of All, Known and Unknown per method; the best is highlighted. SVG"""
    methods = list(values)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.2, 0.32 * len(methods) + 0.75), layout=layout())
        axes = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
        for ax, part, column in zip(axes, parts, zip(*values.values(), strict=True), strict=True):
            texts = ["—" if share is None else f"{100 * share:.1f}" for share in column]
            best = max((text for text in texts if text != "—"), key=float, default="")
            colours = [KNOWN if text == best else "#a9cde6" for text in texts]
            bars = ax.barh(range(len(methods)), [100 * (share or 0.0) for share in column], height=0.72, color=colours)
            ax.bar_label(bars, texts, padding=3, fontsize=8.5)
            ax.set_title(part)
            ax.set(xlim=(0, 112), xticks=[0, 50, 100])
            ax.spines[["left", "bottom"]].set_visible(False)
            ax.tick_params(length=0)
            ax.grid(axis="x", color="#e5e7eb", linewidth=0.8)
            ax.set_axisbelow(True)
        axes[0].set_yticks(range(len(methods)), [shortened(name, 34) for name in methods])
        axes[0].invert_yaxis()
        return encoded(figure, "svg")


def layout() -> ConstrainedLayoutEngine:
    """The layout engine of all figures."""
    return ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.03, hspace=0.03)


def shortened(text: str, length: int = 24) -> str:
    """Shorten text to one line of at most `length` characters.

    >>> shortened("a very long name of a class", 12)
    'a very long…'
    """
    plain = " ".join(text.split())
    return plain if len(plain) <= length else plain[: length - 1].rstrip() + "…"


def encoded(figure: Figure, form: str) -> bytes:
    """Encode the figure reproducibly."""
    out = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font has not
        figure.savefig(out, format=form, dpi=200, metadata=metadata, facecolor="white")
    return out.getvalue()
