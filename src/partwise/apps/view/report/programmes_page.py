"""Report of `partwise consensus`, with the stability and genes of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np

from partwise._versions import versions
from partwise.apps.view.plot import (
    clustergram,
    gene_heatmap,
    leading_scores,
    parts_in_place,
    stability_and_error,
)
from partwise.apps.view.report.pictures import figure_uri, new_figure, render

#: Lock for drawing, because matplotlib is not thread-safe.
_figures = Lock()


def drawn(one: Any, places: Any = None) -> dict[str, str]:
    """Return the pictures for one number of programs k.

    With ``places`` (coordinates of cells), a map of the usages is included.
    """
    genes = leading_scores(one)[1]  # empty if no gene has a positive score
    size = (max(4.2, 1.5 + 0.3 * one.k), 1 + 0.13 * len(genes))
    with _figures:
        return {
            "clustergram": _picture(clustergram, one.found, (6.2, 5.0)),
            "heatmap": _picture(gene_heatmap, one, size) if genes else "",
            "places": "" if places is None else places_uri(one.found.usages, places),
        }


def programmes_page(numbers: Sequence[dict[str, Any]], **context: Any) -> str:
    """Return a self-contained HTML page for the programs of one or more k.

    Each of ``numbers`` has the items of `drawn`, ``k``, ``stability`` (None if unknown), ``error``
    and, as ``programmes``, the rows of `programme_rows`. ``context`` are the title, source,
    command and notes of the page.
    """
    stable = [-1 if one["stability"] is None else one["stability"] for one in numbers]
    curve = ""
    if len(numbers) > 1:
        curve = _picture(stability_and_error, [SimpleNamespace(**o) for o in numbers], (7.2, 3.2))
    best = numbers[int(np.argmax(stable))]["k"]
    return render(
        "programmes.html", numbers=numbers, best=best, curve=curve, versions=versions(), **context
    )


def programme_rows(one: Any) -> list[dict[str, Any]]:
    """Return one row per program: stability, runs, share of usage and top genes."""
    found = one.found
    total = found.usages.sum(axis=1, keepdims=True)
    share = np.divide(found.usages, total, out=np.zeros_like(found.usages), where=total > 0)
    run_of = np.arange(len(found.pooled)) // one.per_run
    return [
        {
            "programme": j + 1,
            "stability": None if np.isnan(found.stability[j]) else float(found.stability[j]),
            "runs": int(np.unique(run_of[found.groups == j]).size),
            "of": len(found.pooled) // one.per_run,
            "usage": float(share[:, j].mean()),
            "genes": genes,
        }
        for j, genes in enumerate(one.top_genes(12))
    ]


def _picture(draw: Callable[..., Any], content: Any, size: tuple[float, float]) -> str:
    """Return the ``data:`` URL of what a function of `partwise.plot` draws."""
    figure, axes = new_figure(size)
    draw(content, ax=axes)
    return figure_uri(figure, "png")


def places_uri(V: Any, places: Any) -> str:
    """Return a picture of part weights at the positions of samples."""
    known = np.isfinite(places).all(axis=1)
    columns = min(4, V.shape[1])
    rows = -(-V.shape[1] // columns)
    figure, axes = new_figure((2.2 * columns, 2.2 * rows), nrows=rows, ncols=columns, squeeze=False)
    parts_in_place(V[known], places[known], axes=axes)
    return figure_uri(figure, "png")
