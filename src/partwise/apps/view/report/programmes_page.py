"""The report of `partwise consensus`: which numbers are stable, and what each programme is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from partwise._versions import versions
from partwise.apps.view.plot import (
    in_groups,
    leading_scores,
    part_intervals,
    parts_in_place,
    stability_and_error,
)
from partwise.apps.view.report.pictures import figure_uri, heat_uri, new_figure, render

#: matplotlib's figures are for one thread.
_figures = Lock()


@dataclass(frozen=True)
class Drawn:
    """Rows and pictures of the programmes of one k."""

    k: int
    stability: float
    error: float
    rows: list[dict[str, Any]]
    clustergram: str
    heatmap: str
    places: str


def drawn(one: Any, places: Any = None) -> Drawn:
    """Return the data of the page for one k; with ``places`` (coordinates), usages are included."""
    at_places = ""
    if places is not None:
        with _figures:
            at_places = places_uri(one.found.usages, places)
    pictures = _clustergram(one.found), _gene_heatmap(one), at_places
    return Drawn(one.k, one.stability, one.error, programme_rows(one), *pictures)


def programmes_page(
    numbers: Sequence[Drawn],
    *,
    title: str,
    source: str = "",
    command: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return a self-contained HTML page for the programmes of one or more k."""
    stable = [one.stability for one in numbers]
    best = numbers[int(np.nanargmax(stable))].k if np.isfinite(stable).any() else numbers[0].k
    return render(
        "programmes.html",
        title=title,
        source=source,
        notes=notes,
        numbers=numbers,
        best=best,
        curve=_curve(numbers) if len(numbers) > 1 else "",
        command=command,
        versions=versions(),
    )


def programme_rows(one: Any) -> list[dict[str, Any]]:
    """Return a row per programme: stability, runs that found it, share of usage, top genes."""
    found, rows = one.found, []
    total = found.usages.sum(axis=1, keepdims=True)
    share = np.divide(found.usages, total, out=np.zeros_like(found.usages), where=total > 0)
    runs = len(found.pooled) // one.per_run
    run_of = np.arange(len(found.pooled)) // one.per_run
    for j, genes in enumerate(one.top_genes(12)):
        rows.append(
            {
                "programme": j + 1,
                "stability": None if np.isnan(found.stability[j]) else float(found.stability[j]),
                "runs": int(np.unique(run_of[found.groups == j]).size),
                "of": runs,
                "usage": float(share[:, j].mean()),
                "genes": genes,
            }
        )
    return rows


def _curve(found: Sequence[Any]) -> str:
    figure, axes = new_figure((7.2, 3.2))
    stability_and_error(found, ax=axes)
    return figure_uri(figure, "png")


def _clustergram(found: Any) -> str:
    """Draw the same as `plot.clustergram`, a hundred times faster."""
    distances, ends, names = in_groups(found)
    middles = (np.append(0, ends[:-1]) + ends) / 2
    rows = dict(zip(names, middles / max(ends[-1], 1), strict=True))
    cuts = ends[:-1] / max(ends[-1], 1)
    return heat_uri(distances, "magma", (0, 1.5), rows, {}, cuts, "distance", (480, 480))


def _gene_heatmap(one: Any) -> str:
    scores, genes = leading_scores(one)
    if not genes:  # none rises with a usage
        return ""
    top = float(np.abs(scores).max(initial=0)) or 1.0
    rows = {name: (i + 0.5) / len(genes) for i, name in enumerate(genes)}
    columns = {str(j + 1): (j + 0.5) / one.k for j in range(one.k)}
    size = (max(360, 26 * one.k), max(60, 15 * len(genes)))
    return heat_uri(scores, "RdBu_r", (-top, top), rows, columns, (), "score", size)


def places_uri(V: Any, places: Any) -> str:
    """Draw part weights at the samples' positions, one image per part."""
    if len(places) == len(V):
        known = np.isfinite(places).all(axis=1)
        V, places = V[known], np.asarray(places)[known]
    figure, axes = _grid(V.shape[1], 4, 2.2)
    parts_in_place(V, places, axes=axes)
    return figure_uri(figure, "png")


def intervals_uri(found: Any, names: Any = None) -> str:
    """Draw the largest entries of the first parts with their intervals."""
    k = min(len(found.parts), 24)
    figure, axes = _grid(k, 3, 3.0)
    for part, ax in enumerate(axes):
        if part < k:
            part_intervals(found, part, names=names, most=12, ax=ax)
            ax.tick_params(labelsize=7)
        else:
            ax.set_axis_off()
    return figure_uri(figure, "png")


def _grid(k: int, most: int, size: float) -> tuple[Any, Any]:
    columns = min(most, k)
    rows = -(-k // columns)
    grid = {"nrows": rows, "ncols": columns, "squeeze": False}
    figure, axes = new_figure((size * columns, size * rows), **grid)
    return figure, axes.ravel()
