"""Figures drawn like the papers': curves, convergence, basis images, points.

matplotlib is imported when the first figure is drawn.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from partwise.apps.papers.claims import histories
from partwise.apps.papers.printed import FAR, Comparison
from partwise.apps.papers.summary import Summary, pick
from partwise.apps.papers.trials import NO_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {
    "ac": "accuracy (%)",
    "nmi": "normalised mutual information (%)",
    "ari": "adjusted Rand index (%)",
    "clusters": "number of clusters",
    "graph_reg": "λ",
    "class_reg": "λ (Frobenius), γ (KL)",
    "n_neighbors": "neighbours p",
    "smoothing": "δ",
    "sparseness_V": "sparseness",
    "sparseness_U": "sparseness of the basis",
    "max_iter": "iterations",
}
MARKERS = "osv^D<>P*X"


def draw_figures(summary: Summary) -> dict[str, Figure]:
    """The figures of a protocol by file stem; empty where it has none.

    Where nothing was run a figure of printed columns shows those alone.
    """
    protocol = summary.protocol
    kind = protocol.view.get("type")
    if kind not in VIEWS or not (summary.results or (kind == "curves" and protocol.printed)):
        return {}
    return VIEWS[kind](summary)


def svg(figure: Figure) -> str:
    """The figure as SVG text without a date, so that equal results give equal files."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "partwise", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().decode("utf-8")


def _new(columns: int, rows: int = 1, size: tuple[float, float] = (5.2, 3.8)) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _curves(summary: Summary) -> dict[str, Figure]:
    """A figure for each label budget and metric: two beside each other, or below on a phone."""
    protocol = summary.protocol
    by_clusters = protocol.view["x"] == "clusters"
    sets = [None] if by_clusters else list(dict.fromkeys(d for d, _ in summary.rows()))
    budgets, figures = summary.budgets(), {}
    for budget, metric in itertools.product(budgets, protocol.metrics):
        figure, axes = _new(1, len(sets))
        for ax, data in zip(axes[:, 0], sets, strict=True):
            if by_clusters:
                _against_clusters(ax, summary, metric, budget)
            else:
                _against_parameter(ax, summary, metric, budget, data)
            ax.set_ylabel(AXES.get(metric, metric))
            ax.grid(alpha=0.3)
            if len(sets) > 1:
                ax.set_title(data)
        axes[0, 0].legend(fontsize=8)
        labels = "" if budget == NO_LABELS else f" (labels: {budget})"
        figure.suptitle(textwrap.fill(protocol.title + labels, 60), fontsize=10)
        parts = [metric] if len(protocol.metrics) > 1 else []
        parts += [budget] if len(budgets) > 1 else []
        figures["-".join(["figure", *(re.sub(r"\W", "_", part) for part in parts)])] = figure
    return figures


def _against_clusters(ax: Axes, summary: Summary, metric: str, budget: str) -> None:
    ks = sorted({k for _, k in summary.rows()})
    for number, method in enumerate(summary.protocol.methods):
        colour = f"C{number}"
        stats = [(k, summary.stat(method.name, metric, budget=budget, k=k)) for k in ks]
        found = [(k, s.mean) for k, s in stats if s is not None]
        marker = MARKERS[number % len(MARKERS)]
        if found:
            ax.plot(*zip(*found, strict=True), color=colour, marker=marker, label=method.name)
        cells = [c for c in summary.protocol.printed if c.metric == metric and c.k != "avg"]
        points = [(int(c.k), c.mean) for c in cells if c.method == method.name]
        if points:
            label = None if found else f"{method.name} (print)"
            ax.plot(
                *zip(*points, strict=True), color=colour, ls=":", marker=marker, mfc="none",
                alpha=0.55, lw=1, ms=4, label=label,
            )  # fmt: skip
    ax.set_xlabel("number of clusters (solid: measured, dotted: print)")


def _against_parameter(
    ax: Axes, summary: Summary, metric: str, budget: str, data: str | None
) -> None:
    view = summary.protocol.view
    low, high = view.get("range", (-np.inf, np.inf))
    for number, method in enumerate(summary.protocol.methods):
        if method.name in view.get("flat", []):
            stat = summary.stat(method.name, metric, budget=budget, data=data)
            if stat is not None:
                ax.axhline(stat.mean, color=f"C{number}", ls="--", lw=1, label=method.name)
            continue
        points = []
        for variant in method.variants():
            value = float(variant.setting[view["x"]])
            stat = summary.stat(variant.name, metric, budget=budget, data=data)
            if stat is not None and low <= value <= high:
                points.append((value, stat.mean))
        if points:
            marker = MARKERS[number % len(MARKERS)]
            ax.plot(*zip(*points, strict=True), color=f"C{number}", marker=marker,
                    label=method.name)  # fmt: skip
    if view.get("log"):
        ax.set_xscale("log")
    ax.set_xlabel(AXES.get(view["x"], view["x"]))


def _budgets(summary: Summary) -> dict[str, Figure]:
    metric = summary.protocol.metrics[0]
    method = summary.protocol.methods[0].name
    figure, axes = _new(1, size=(6.5, 4.5))
    ax = axes[0, 0]
    names = summary.budgets()
    shares = [100.0 * (b.share or 0.0) for b in summary.protocol.budgets]
    for number, k in enumerate(sorted({k for _, k in summary.rows()})):
        for scope, style in (("all", "-"), ("unlabelled", "--")):
            stats = [summary.stat(method, metric, budget=b, scope=scope, k=k) for b in names]
            points = [(x, s.mean) for x, s in zip(shares, stats, strict=True) if s is not None]
            if points:
                label = f"c = {k}" if scope == "all" else None
                ax.plot(*zip(*points, strict=True), style, color=f"C{number}", label=label,
                        marker=MARKERS[number % 10], ms=4)  # fmt: skip
    ax.set_xlabel("labelled samples (%); solid: all samples, dashed: the unlabelled")
    ax.set_ylabel(AXES.get(metric, metric))
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, ncols=2)
    ax.set_title(summary.protocol.title, fontsize=10)
    return {"figure": figure}


def _convergence(summary: Summary) -> dict[str, Figure]:
    sets = list(dict.fromkeys(d for d, _ in summary.rows()))
    names = [m.name for m in summary.protocol.methods]
    figure, axes = _new(len(names), len(sets), size=(3.8, 2.9))
    for result in summary.results:
        cell, history = result["cell"], result.get("history")
        if not history:
            continue
        ax = axes[sets.index(cell["data"]), names.index(cell["method"])]
        values = history["values"]
        ax.plot(1 + np.arange(len(values)) * history["step"], values, lw=1.2)
        ax.set_title(f"{cell['data']}, {cell['method']}", fontsize=9)
        ax.set_xlabel("iteration", fontsize=8)
        ax.set_ylabel("objective", fontsize=8)
    figure.suptitle(summary.protocol.title, fontsize=10)
    return {"figure": figure}


def _closeness(summary: Summary) -> dict[str, Figure]:
    """How far each method is above its own lowest objective, against seconds."""
    sets = list(dict.fromkeys(d for d, _ in summary.rows()))
    figure, axes = _new(len(sets), size=(4.2, 3.6))
    for ax, data in zip(axes[0], sets, strict=True):
        for number, method in enumerate(summary.protocol.methods):
            for point, (at, values, each) in histories(summary, method.name, summary.budgets()[0]):
                if (point[0], point[2]) == (data, 0):
                    above = values / values.min() - 1 + 1e-6
                    ax.loglog(at * each, above, color=f"C{number}", label=method.name)
        for level in (0.05, 0.01):
            ax.axhline(level, color="0.7", lw=0.8, ls="--")
        ax.set_title(data, fontsize=9)
        ax.set_xlabel("seconds of one thread")
    axes[0, 0].set_ylabel("above its own lowest objective, relative")
    axes[0, 0].legend(fontsize=7)
    return {"figure": figure}


def _basis(summary: Summary) -> dict[str, Figure]:
    """Sparseness against iterations, and the parts themselves after one number of them."""
    view = summary.protocol.view
    height, width = view["image"]
    figures = _curves(summary)
    for result in summary.results:
        cell, kept = result["cell"], result.get("components")
        if not kept or cell["run"] != 0 or cell["setting"] != {"max_iter": view["at"]}:
            continue
        raw = np.frombuffer(base64.b64decode(kept["uint8"]), dtype=np.uint8)
        images = raw.reshape(kept["shape"])[: view.get("show", 20)]
        columns = 5
        rows = -(-len(images) // columns)
        figure, axes = _new(columns, rows, size=(0.9, 0.9))
        for ax in axes.ravel():
            ax.axis("off")
        for ax, image in zip(axes.ravel(), images, strict=False):
            # Dark is large, as in the paper; pixels are stored column by column.
            ax.imshow(255 - image.reshape(width, height).T, cmap="gray", vmin=0, vmax=255)
        value = result["shapes"].get("sparseness_U", float("nan"))
        title = f"{cell['method']} after {view['at']} iterations: sparseness {value:.3f}"
        figure.suptitle(title, fontsize=9)
        figures[f"figure-{cell['method']}"] = figure
    return figures


def _points(summary: Summary) -> dict[str, Figure]:
    shown = [r for r in summary.results if r["cell"]["run"] == 0 and "points" in r]
    if not shown:
        return {}
    figure, axes = _new(len(shown), size=(4.2, 4.0))
    for ax, result in zip(axes.ravel(), shown, strict=True):
        X, truth = np.asarray(result["points"]), np.asarray(result["truth"])
        for label in np.unique(truth):
            ax.scatter(*X[truth == label].T, s=12, alpha=0.7)
        if result.get("basis") is not None:
            ax.scatter(*np.asarray(result["basis"]).T, marker="D", c="black", s=60)
        name = result["cell"]["method"]
        accuracy = pick(result, summary.protocol.method(name))["all"]["ac"]
        ax.set_title(f"{name}, accuracy {accuracy:.1f} %")
        ax.set_aspect("equal")
    return {"figure": figure}


def scatter(panels: dict[str, list[Comparison]], *, columns: int | None = None) -> Figure:
    """Measured averages against printed ones with error bars, a panel for each paper."""
    columns = columns or len(panels)
    figure, axes = _new(columns, -(-len(panels) // columns), size=(2.6, 3.1))
    colours = {"ac": "C0", "nmi": "C1", "ari": "C2"}
    drawn: dict[str, Any] = {}  # by metric, for one legend
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (title, found) in zip(axes.flat, panels.items(), strict=False):
        values = [v for c in found for v in (c.printed, c.stat.mean)]
        low, high = min(values) - 4, max(values) + 4
        line = np.array([low, high])
        ax.fill_between(line, line - FAR, line + FAR, color="0.92", lw=0)
        ax.plot(line, line, color="0.6", lw=0.8)
        for metric in dict.fromkeys(c.metric for c in found):
            own = [c for c in found if c.metric == metric]
            x, y = [c.printed for c in own], [c.stat.mean for c in own]
            drawn[metric] = ax.errorbar(x, y, yerr=[np.nan_to_num(2 * c.stat.se) for c in own],
                        xerr=[np.nan_to_num(2 * c.printed_se) for c in own], fmt="o", ms=3, lw=0.7,
                        color=colours.get(metric, "C3"), label=metric.upper())  # fmt: skip
        near = sum(c.near for c in found)
        ax.set_title(f"{title.split(' (')[0]}: {near} of {len(found)}", fontsize=9)
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.set_xlabel("printed", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.set_aspect("equal")
    axes[0, 0].set_ylabel("measured (bars: two standard errors)", fontsize=8)
    axes[0, 0].legend(drawn.values(), [m.upper() for m in drawn], fontsize=7, loc="upper left")
    return figure


VIEWS: dict[str, Callable[[Summary], dict[str, Any]]] = {
    "curves": _curves,
    "budgets": _budgets,
    "convergence": _convergence,
    "basis": _basis,
    "closeness": _closeness,
    "points": _points,
}
