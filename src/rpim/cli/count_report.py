"""The output of ``rpim estimate``: the number of classes as text, JSON and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rpim._common.errors import InputError, in_halves, interval, plural
from rpim._common.files import StrPath, check_writable, replacing
from rpim.estimators.problem import ClassCount

_PICTURES = (".png", ".svg")
_CURVES = {
    "neighbors": ("neighbors of a labelled row", "classes"),
    "max-acc": ("clusters", "accuracy on the labelled rows"),
    "max-acc-pim": ("classes", "accuracy on the labelled rows"),
    "groups": ("groups", "agreement of two halves"),
}
"""The x and y axes of each method's curve."""


def as_text(count: ClassCount, n_known: int, method: str, preset: str = "default") -> str:
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


def as_dict(count: ClassCount, n_known: int, method: str) -> dict[str, Any]:
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


def check_picture(path: StrPath, overwrite: bool = False) -> Path:
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


def draw(count: ClassCount, n_known: int, method: str, path: Path) -> None:
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
