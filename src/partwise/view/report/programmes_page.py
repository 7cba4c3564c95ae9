"""The report of `partwise consensus`: which numbers are stable, and what each programme is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partwise._versions import versions
from partwise.view.plot import (
    clustergram,
    gene_heatmap,
    part_intervals,
    parts_in_place,
    stability_and_error,
)
from partwise.view.report.pictures import figure_uri, new_figure, render


def programmes_page(
    found: Sequence[Any],
    *,
    title: str,
    source: str = "",
    command: str = "",
    notes: Sequence[str] = (),
    places: Any = None,
) -> str:
    """One self-contained HTML page for the programmes of one or more k.

    With ``places``, coordinates of the cells, the usages are drawn there.
    """
    stable = [one.stability for one in found]
    numbers = [
        {
            "k": one.k,
            "rows": programme_rows(one),
            "clustergram": _drawn(clustergram, one.found, size=(6.4, 5.0)),
            "heatmap": _drawn(gene_heatmap, one, size=(7.2, 0.9 + 0.22 * min(5 * one.k, 60))),
            "places": "" if places is None else places_uri(one.found.usages, places),
        }
        for one in found
    ]
    best = found[int(np.nanargmax(stable))].k if np.isfinite(stable).any() else found[0].k
    return render(
        "programmes.html",
        title=title,
        source=source,
        notes=notes,
        numbers=numbers,
        best=best,
        curve=_drawn(stability_and_error, found, size=(7.2, 3.2)) if len(found) > 1 else "",
        command=command,
        versions=versions(),
    )


def programme_rows(one: Any) -> list[dict[str, Any]]:
    """A row for each programme: stability, runs that found it, share of usage, top genes."""
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


def _drawn(draw: Any, what: Any, *, size: tuple[float, float]) -> str:
    """A picture of ours as PNG: clustergrams have too many squares for SVG."""
    figure, axes = new_figure(size)
    draw(what, ax=axes)
    axes.set_aspect("auto")  # the layout cuts off labels beside a square
    return figure_uri(figure, "png")


def places_uri(V: Any, places: Any) -> str:
    """Codes where the samples are, one picture a part; those of unknown places are left out."""
    if len(places) == len(V):
        known = np.isfinite(places).all(axis=1)
        V, places = V[known], np.asarray(places)[known]
    figure, axes = _grid(V.shape[1], 4, 2.2)
    parts_in_place(V, places, axes=axes)
    return figure_uri(figure, "png")


def intervals_uri(found: Any, names: Any = None) -> str:
    """The largest entries of the first parts with their intervals."""
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
