"""Results of `choose_k` or `select`: rows, chart and HTML page."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise._versions import versions
from partwise.apps.view.plot import choice as draw_choice
from partwise.apps.view.plot import selection as draw_selection
from partwise.apps.view.report.pictures import figure_uri, new_figure, render


def _points(found: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Return all tried parameters of a search, the good ones, and the best one.

    ``found`` is a `Choice` or a `Selection`.
    """
    if not _counts(found):
        return found.grid, found.good, dict(found.best)
    numbers = [{"k": int(k)} for k in found.numbers]
    return numbers, [{"k": int(k)} for k in found.good], {"k": found.k}


def rows_of(found: Any) -> list[dict[str, Any]]:
    """Return a row of plain values for each tried number or parameter combination."""
    points, good, best = _points(found)
    rows = []
    for at, point in enumerate(points):
        above, error = (float(value) for value in found.excess[at])
        row = {**point, "error": float(found.errors[at].mean()), "above_best": above}
        row["standard_error"] = error
        for name in ("stability", "cophenetic") if _counts(found) else ():
            value = float(getattr(found, name)[at])
            row[name] = value if np.isfinite(value) else None
        rows.append({**row, "good": point in good, "chosen": point == best})
    return rows


def answer_of(found: Any) -> dict[str, Any]:
    """Return the parameters that a search chose."""
    return _points(found)[2]


def sentence(found: Any) -> str:
    """Return sentences about the chosen parameters and equally good ones."""
    _, good, best = _points(found)
    if _counts(found):
        words = f"{found.k} part{'s' if found.k > 1 else ''}"
        why = "the smallest number whose error at hidden entries is within one standard error of "
        why += "the lowest"
        others = ", ".join(str(k) for k in found.good if k != found.k)
    else:
        words, *rest = (
            ", ".join(f"{name} = {value}" for name, value in point.items())
            for point in [best, *(point for point in good if point != best)]
        )
        hidden = (
            "wrong names of hidden labels" if found.by == "labels" else "error at hidden entries"
        )
        why, others = f"the lowest {hidden}", "; ".join(rest)
    also = f"As good: {others}." if others else "No other is as good."
    return " ".join([f"{words}: {why}. {also}", *(found.remarks() if _counts(found) else ())])


def shown_rows(found: Any) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of a table of all tried parameters.

    Excess and its standard error are percentages of the lowest error, unless that is zero.
    """
    rows = rows_of(found)
    least = float(found.errors.mean(axis=1).min())
    names = [name for name in rows[0] if name not in ("good", "chosen")]
    names = [name for name in names if any(row[name] is not None for row in rows)]
    cells = [
        [
            *(_text(row[name], least if name in HEADS else 0) for name in names),
            "chosen" if row["chosen"] else "as good" if row["good"] else "",
        ]
        for row in rows
    ]
    return [HEADS.get(name, name) for name in names], cells


#: Column headings that differ from the names of the values.
HEADS = {"above_best": "above best", "standard_error": "± s.e."}


def _text(value: Any, least: float) -> str:
    """Return a value as text, as a percentage of ``least`` if that is positive."""
    if least > 0:
        share = 100 * value / least
        return f"{share:.0f} %" if share >= 100 else f"{share:.2g} %"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def choice_facts(found: Any) -> dict[str, Any]:
    """Return the sentence, the plot and the table of a search for its page."""
    heads, rows = shown_rows(found)
    figure, axes = new_figure((7.2, 3.4))
    (draw_choice if _counts(found) else draw_selection)(found, ax=axes)
    return {"said": sentence(found), "uri": figure_uri(figure), "heads": heads, "rows": rows}


def choice_page(found: Any, *, title: str, command: str = "", source: str = "") -> str:
    """Return a self-contained HTML page about a search, with its plot and table."""
    return render(
        "choice.html",
        title=title,
        source=source,
        choice=choice_facts(found),
        counts=_counts(found),
        n_splits=found.errors.shape[1],
        by="entries" if _counts(found) else found.by,
        command=command,
        versions=versions(),
    )


def _counts(found: Any) -> bool:
    """Return whether a search chose the number of parts, not other parameters."""
    return hasattr(found, "numbers")
