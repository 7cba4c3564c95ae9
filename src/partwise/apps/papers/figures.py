"""The papers' figures: curves, convergence, basis images and points.

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
import pandas as pd

from partwise.apps.papers.claims import histories
from partwise.apps.papers.protocol import titles
from partwise.apps.papers.summary import Summary, pick
from partwise.apps.papers.trials import NO_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOLID = [f"{marker}-" for marker in "osv^D<>P*X"]
DOTTED = [style.replace("-", ":") for style in SOLID]
DASHED = [style.replace("-", "--") for style in SOLID]


def draw_figures(summary: Summary) -> dict[str, Figure]:
    """Return the figures of a paper's table or figure, by the name of their files.

    Without results, a figure with printed columns shows only the printed numbers.
    """
    protocol = summary.protocol
    kind = protocol.view.get("type")
    if kind not in VIEWS or not (summary.results or (kind == "curves" and protocol.printed)):
        return {}
    return VIEWS[kind](summary)


def svg(figure: Figure) -> str:
    """Return the figure as SVG without a date, so that equal results give equal files."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "partwise", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().decode("utf-8")


def _new(columns: int, rows: int = 1, size: tuple[float, float] = (5.2, 3.8)) -> tuple[Figure, Any]:
    """Return a figure with a grid of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _curves(summary: Summary) -> dict[str, Figure]:
    """Return one plot of means for each number of labels and each metric."""
    protocol, figures = summary.protocol, {}
    by_clusters = protocol.view["x"] == "clusters"
    sets = [None] if by_clusters else summary.sets()
    for budget, metric in itertools.product(summary.budgets(), protocol.metrics):
        figure, axes = _new(1, len(sets))
        for ax, data in zip(axes[:, 0], sets, strict=True):
            frame = _means(summary, metric, budget, data)
            _plot(ax, frame, SOLID, logx=bool(protocol.view.get("log")))
            if by_clusters:
                _plot(ax, _printed(summary, metric), DOTTED, alpha=0.55, legend=frame.empty)
            for name in protocol.view.get("flat", []):
                stat = summary.stat(name, metric, budget=budget, data=data)
                if stat is not None:
                    ax.axhline(stat.mean, color="0.4", ls="--", lw=1, label=name)
            names = titles()["axes"][protocol.view["x"]], titles()["metrics"][metric]
            ax.set(xlabel=names[0], ylabel=names[1], title=data)
            ax.grid(alpha=0.3)
            ax.legend(fontsize=8)
        labels = "" if budget == NO_LABELS else f" (labels: {budget})"
        figure.suptitle(textwrap.fill(protocol.title + labels, 60), fontsize=10)
        parts = [metric] if len(protocol.metrics) > 1 else []
        parts += [budget] if len(summary.budgets()) > 1 else []
        figures["-".join(["figure", *(re.sub(r"\W+", "_", part) for part in parts)])] = figure
    return figures


def _plot(ax: Axes, frame: pd.DataFrame, styles: list[str], **settings: Any) -> None:
    """Plot a data frame as one curve per column."""
    if not frame.empty:
        colours = [f"C{i}" for i in range(frame.shape[1])]
        frame.plot(ax=ax, style=styles[: frame.shape[1]], color=colours, ms=4, **settings)


def _means(summary: Summary, metric: str, budget: str, data: str | None) -> pd.DataFrame:
    """Return the means of each method by number of clusters or parameter value."""
    view, found = summary.protocol.view, dict[str, dict[float, float]]()
    low, high = view.get("range", (-np.inf, np.inf))
    for method in summary.protocol.methods:
        if view["x"] == "clusters":
            ks = sorted({k for _, k in summary.rows()})
            stats = {k: summary.stat(method.name, metric, budget=budget, k=k) for k in ks}
        elif method.name in view.get("flat", []):
            continue
        else:
            stats = {
                c.setting[view["x"]]: summary.stat(c.name, metric, budget=budget, data=data)
                for c in method.columns()
                if low <= c.setting[view["x"]] <= high
            }
        found[method.name] = {x: stat.mean for x, stat in stats.items() if stat}
    return pd.DataFrame(found).dropna(how="all").sort_index()


def _printed(summary: Summary, metric: str) -> pd.DataFrame:
    """Return each method's printed means by number of clusters."""
    found: dict[str, dict[int, float]] = {m.name: {} for m in summary.protocol.methods}
    for number in summary.protocol.printed:
        if number.metric == metric and number.k != "avg":
            found[number.method][int(number.k)] = number.mean
    return pd.DataFrame(found).sort_index()


def _budgets(summary: Summary) -> dict[str, Figure]:
    """Return a plot of accuracy against the share of labels, with one curve per K."""
    protocol = summary.protocol
    figure, axes = _new(1, size=(6.5, 4.5))
    method, metric = protocol.methods[0].name, protocol.metrics[0]
    shares = {b.name: 100.0 * (b.share or 0.0) for b in protocol.budgets}
    for scope, styles in (("all", SOLID), ("unlabelled", DASHED)):
        found: dict[str, dict[float, float]] = {}
        for k, name in itertools.product(sorted({k for _, k in summary.rows()}), shares):
            stat = summary.stat(method, metric, budget=name, k=k, scope=scope)
            if stat is not None:
                found.setdefault(f"c = {k}", {})[shares[name]] = stat.mean
        _plot(axes[0, 0], pd.DataFrame(found), styles, legend=scope == "all")
    words = "labelled samples (%); solid: all samples, dashed: the unlabelled"
    axes[0, 0].set(xlabel=words, ylabel=titles()["metrics"][metric], title=protocol.title)
    axes[0, 0].grid(alpha=0.3)
    return {"figure": figure}


def _convergence(summary: Summary) -> dict[str, Figure]:
    """Return plots of the objective against the number of iterations."""
    sets, names = summary.sets(), [m.name for m in summary.protocol.methods]
    figure, axes = _new(len(names), len(sets), size=(3.8, 2.9))
    for ax, (data, name) in zip(axes.flat, itertools.product(sets, names), strict=True):
        for point, history in histories(summary, name, summary.budgets()[0]):
            if point[0] == data:
                ax.plot(history.at, history.values, lw=1.2)
        ax.set(title=f"{data}, {name}", xlabel="iteration", ylabel="objective")
    figure.suptitle(summary.protocol.title, fontsize=10)
    return {"figure": figure}


def _closeness(summary: Summary) -> dict[str, Figure]:
    """Return plots of the distance from the lowest objective, against seconds."""
    sets = summary.sets()
    figure, axes = _new(len(sets), size=(4.2, 3.6))
    for ax, data in zip(axes[0], sets, strict=True):
        for number, method in enumerate(summary.protocol.methods):
            for point, (at, values, each) in histories(summary, method.name, summary.budgets()[0]):
                if (point[0], point[2]) == (data, 0):
                    above = values / values.min() - 1 + 1e-6
                    ax.loglog(at * each, above, color=f"C{number}", label=method.name)
        for level in (0.05, 0.01):
            ax.axhline(level, color="0.7", lw=0.8, ls="--")
        ax.set(title=data, xlabel="seconds of one thread")
    axes[0, 0].set_ylabel("relative distance from its own lowest objective")
    axes[0, 0].legend(fontsize=7)
    return {"figure": figure}


def _basis(summary: Summary) -> dict[str, Figure]:
    """Return plots of sparseness against iterations, and pictures of the parts."""
    view, columns = summary.protocol.view, 5
    height, width = view["image"]
    figures = _curves(summary)
    for result in summary.results:
        cell, kept = result["cell"], result.get("components")
        if not kept or cell["run"] != 0 or cell["setting"] != {"max_iter": view["at"]}:
            continue
        raw = np.frombuffer(base64.b64decode(kept["uint8"]), dtype=np.uint8)
        images = raw.reshape(kept["shape"])[: view.get("show", 20)]
        figure, axes = _new(columns, -(-len(images) // columns), size=(0.9, 0.9))
        for ax in axes.ravel():
            ax.axis("off")
        for ax, image in zip(axes.ravel(), images, strict=False):
            # Large values are dark, as in the paper. Pixels are stored column by column.
            ax.imshow(255 - image.reshape(width, height).T, cmap="gray", vmin=0, vmax=255)
        value = result["shapes"].get("sparseness_U", float("nan"))
        title = f"{cell['method']} after {view['at']} iterations: sparseness {value:.3f}"
        figure.suptitle(title, fontsize=9)
        figures[f"figure-{cell['method']}"] = figure
    return figures


def _points(summary: Summary) -> dict[str, Figure]:
    """Return a plot of samples in the plane, with the basis vectors of each method."""
    shown = [r for r in summary.results if r["cell"]["run"] == 0 and "points" in r]
    if not shown:
        return {}
    figure, axes = _new(len(shown), size=(4.2, 4.0))
    for ax, result in zip(axes.ravel(), shown, strict=True):
        ax.scatter(*np.transpose(result["points"]), c=result["truth"], cmap="tab10", s=12)
        if result.get("basis") is not None:
            ax.scatter(*np.transpose(result["basis"]), marker="D", c="black", s=60)
        name = result["cell"]["method"]
        accuracy = pick(result, summary.protocol.method(name))["all"]["ac"]
        ax.set(title=f"{name}, accuracy {accuracy:.1f}%", aspect="equal")
    return {"figure": figure}


VIEWS: dict[str, Callable[[Summary], dict[str, Any]]] = {
    "curves": _curves,
    "budgets": _budgets,
    "convergence": _convergence,
    "basis": _basis,
    "closeness": _closeness,
    "points": _points,
}
