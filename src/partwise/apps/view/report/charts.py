"""Charts of the report, as plotly figures in plain dictionaries.

All texts from the data pass through `plain`, because plotly interprets some HTML tags.
"""

from __future__ import annotations

import base64
import gzip
import html
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.view.report.layout import Layout
from partwise.apps.view.report.stability import Stability
from partwise.io.genes import specificity

# Ten colours of Tableau that are readable on white and on black. Grey marks samples without a
# label.
COLOURS = (
    *("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2"),
    *("#b279a2", "#eeca3b", "#ff9da6", "#9d755d", "#7b6fd0"),
)
NO_LABEL = "#9aa0a6"
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
ACCENT = "#4c78a8"
TERMS = 12
MAX_LEVELS = 60


def need_plotly() -> None:
    """Raise an error if plotly is not installed."""
    if importlib.util.find_spec("plotly") is None:
        raise ImportError("The report needs plotly: pip install plotly")


@cache
def script() -> str:
    """Return plotly's JavaScript, compressed and as base64 text for the page."""
    from plotly.offline import get_plotlyjs

    packed = gzip.compress(get_plotlyjs().encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def templates() -> dict[str, Any]:
    """Return the light and the dark plotly template, with a transparent background."""
    import plotly.io as pio

    clear = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
    bar = {"bgcolor": "rgba(0,0,0,0)"}
    looks = {}
    for name, base, ink, line in (
        ("light", "plotly_white", "#1c1e21", "#e3e6ea"),
        ("dark", "plotly_dark", "#e8eaed", "#343a42"),
    ):
        look = pio.templates[base].to_plotly_json()
        axis = {"gridcolor": line, "linecolor": line, "zerolinecolor": line, "tickcolor": line}
        look["layout"].update(clear)
        look["layout"]["modebar"] = {**bar, "color": "#8a929c", "activecolor": ACCENT}
        look["layout"]["font"] = {"color": ink, "family": "system-ui, sans-serif", "size": 13}
        for side in ("xaxis", "yaxis"):
            look["layout"].setdefault(side, {}).update(axis)
        look["data"] = {}
        looks[name] = look
    return looks


def plain(text: Any, length: int = 40) -> str:
    """Return a text cut to a maximum length, with HTML characters escaped."""
    words = " ".join(str(text).split())
    short = words if len(words) <= length else words[: length - 1] + "…"
    return html.escape(short, quote=False)


def distinct(names: Sequence[str], length: int) -> list[str]:
    """Return shortened names that stay different from each other."""
    short = [plain(name, length) for name in names]
    twice = {text for text, count in Counter(short).items() if count > 1}
    for i, name in enumerate(names):
        if short[i] in twice:
            words = " ".join(str(name).split())
            half = (length - 1) // 2
            short[i] = plain(f"{words[:half]}…{words[-half:]}" if len(words) > length else words)
    taken: Counter[str] = Counter()
    for i, text in enumerate(short):
        taken[text] += 1
        if taken[text] > 1:
            short[i] = f"{text} ({taken[text]})"
    return short


def colours(levels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker symbol for each name.

    The symbol changes when colours repeat.
    """
    n = len(COLOURS)
    return {
        name: (COLOURS[i % n], SYMBOLS[(i // n) % len(SYMBOLS)]) for i, name in enumerate(levels)
    }


def samples_map(
    layout: Layout,
    clusters: Sequence[str],
    labels: Sequence[str | None] | None,
    colours: Mapping[str, tuple[str, str]],
    legend: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the map of the samples by cluster and, initially hidden, by label.

    In each plotly trace, ``customdata`` contains the positions of its points among all points
    shown, and ``meta`` is "cluster" or "label". ``legend`` maps clusters to longer entries for the
    legend.
    """
    traces = _traces(layout, "cluster", clusters, colours, legend)
    if labels is not None:
        traces += _traces(layout, "label", labels, colours)
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False}
    axes = [{"title": {"text": name}} for name in layout.axes or ("", "")]
    return _figure(
        traces,
        560,
        margin={"l": 24, "r": 8, "t": 32, "b": 24},
        legend={"itemsizing": "constant", "tracegroupgap": 0},
        hovermode="closest",
        dragmode="pan",
        xaxis=bare | axes[0],
        yaxis=bare | axes[1] | ({} if layout.axes else {"scaleanchor": "x"}),
    )


def _traces(
    layout: Layout,
    view: str,
    names: Sequence[str | None],
    colours: Mapping[str, tuple[str, str]],
    legend: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the points of each class or cluster as plotly traces."""
    size = 8 if len(layout.shown) < 600 else 6 if len(layout.shown) < 2500 else 4
    levels: list[str | None] = sorted({n for n in names if n is not None}, key=natural)
    if None in names:
        levels.insert(0, None)  # unlabelled samples are drawn first, below the others
    titles = dict(legend or {})
    shown = [titles.get(level, level) if level else "no label" for level in levels]
    traces = []
    for level, title in zip(levels, distinct(shown, 48)):
        here = [i for i, name in enumerate(names) if name == level]
        colour, symbol = (NO_LABEL, "circle") if level is None else colours[level]
        x, y = np.round(layout.points[here], 4).T.tolist()
        opacity = 0.35 if level is None else 0.85
        marker = {"color": colour, "symbol": symbol, "size": size, "opacity": opacity}
        trace = {"type": "scatter", "mode": "markers", "name": title, "x": x, "y": y}
        trace |= {"marker": marker, "customdata": here, "hoverinfo": "none"}
        traces.append(trace | {"meta": view, "visible": view == "cluster"})
    return traces


def top_terms(H: NDArray[Any], names: Sequence[str], titles: Sequence[str]) -> list[dict[str, Any]]:
    """Return the features that distinguish each part, with shares and weights.

    Shares are relative to the largest `specificity`, because features that are common everywhere
    have large weights in every part.
    """
    found = []
    for row, score, title in zip(H, specificity(H), titles):
        order = np.argsort(-score, kind="stable")[:TERMS]
        order = order[score[order] > 0]
        top = float(score[order].max(initial=0.0)) or 1.0
        terms = [(names[j], float(score[j]) / top, float(row[j])) for j in order]
        found.append({"title": title, "terms": terms})
    return found


def confusion(
    table: NDArray[np.int64],
    labels: Sequence[str],
    clusters: Sequence[str],
    predicted: bool = False,
) -> dict[str, Any]:
    """Return a chart of the confusion matrix, coloured by shares of each label."""
    group = "predicted" if predicted else "cluster"
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    heat = _heat(
        share,
        # Axes use positions instead of names, because equal names would share a row.
        list(range(len(clusters))),
        list(range(len(labels))),
        text=[[str(v) if v else "" for v in row] for row in table.tolist()],
        texttemplate="%{text}" if max(table.shape) <= 30 else None,
        customdata=[
            [[v, plain(label, 80), plain(cluster, 80)] for v, cluster in zip(row, clusters)]
            for row, label in zip(table.tolist(), labels)
        ],
        hovertemplate=f"label %{{customdata[1]}}, {group} %{{customdata[2]}}: %{{customdata[0]}} "
        "(%{z:.0%})<extra></extra>",
    )
    side = min(28, max(14, 560 // max(table.shape[0], 1)))
    return _figure(
        [heat],
        max(220, table.shape[0] * side + 110),
        xaxis=_axis(group, **_named(clusters, 28)),
        yaxis=_axis("label", autorange="reversed", **_named(labels, 28)),
    )


def _named(names: Sequence[str], length: int) -> dict[str, Any]:
    """Return the settings of a plotly axis with names at positions 0, 1, ..."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": distinct(names, length),
        "showgrid": False,
        "zeroline": False,
    }


def agreement(found: Stability) -> dict[str, Any]:
    """Return a heat map of the adjusted Rand index between pairs of runs."""
    names = list(found.names)
    heat = _heat(
        found.agreement,
        names,
        names,
        texttemplate="%{z:.2f}",
        hovertemplate="%{y} and %{x}: %{z:.3f}<extra></extra>",
    )
    axes = {"xaxis": _axis(showgrid=False), "yaxis": _axis(showgrid=False, autorange="reversed")}
    return _figure([heat], 34 * len(names) + 90, **axes)


def convergence(history: Sequence[float]) -> dict[str, Any]:
    """Return a chart of the objective after each iteration."""
    n = len(history)
    line = {
        "type": "scatter",
        "x": list(range(1, n + 1)),
        "y": [float(value) for value in history],
        "mode": "lines" if n > 1 else "markers",
        "line": {"color": ACCENT, "width": 2},
        "hovertemplate": "iteration %{x}: %{y:.6g}<extra></extra>",
    }
    x = _axis("iteration")
    if n > 20:
        ticks = [m * 10**e for e in range(7) for m in (1, 2, 5) if m * 10**e <= n]
        x |= {"type": "log", "tickvals": ticks, "ticktext": [f"{t:,}" for t in ticks]}
    return _figure([line], 320, xaxis=x, yaxis=_axis("objective"))


def natural(name: str | None) -> tuple[int, float, str]:
    """Return a sort key that orders "block 9" before "block 10", numbers first."""
    text = "" if name is None else name
    padded = re.sub(r"\d+", lambda digits: digits[0].zfill(12), text)
    try:
        number = float(text)
    except ValueError:
        return 1, 0.0, padded
    return (0, number, text) if math.isfinite(number) else (1, 0.0, padded)


def _heat(z: NDArray[Any], x: list[Any], y: list[Any], **how: Any) -> dict[str, Any]:
    """Return a plotly heat map of values from 0 to 1."""
    ramp = [[0.0, "rgba(76,120,168,0.06)"], [1.0, "rgba(76,120,168,1)"]]
    shown = {"colorscale": ramp, "zmin": 0, "zmax": 1, "showscale": False, "xgap": 1, "ygap": 1}
    return {"type": "heatmap", "z": np.round(z, 4).tolist(), "x": x, "y": y, **shown, **how}


def _axis(title: str = "", **how: Any) -> dict[str, Any]:
    """Return the settings of a plotly axis."""
    return {"automargin": True, **how} | ({"title": {"text": title}} if title else {})


def _figure(traces: Any, height: float, **layout: Any) -> dict[str, Any]:
    """Return a plotly figure as a dictionary."""
    margin = {"l": 8, "r": 8, "t": 8, "b": 8}
    return {"data": list(traces), "layout": {"height": height, "margin": margin, **layout}}
