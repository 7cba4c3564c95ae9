"""Results of a search for parameters: rows, chart and page."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise._versions import versions
from partwise.apps.view.plot import choice as draw_choice
from partwise.apps.view.plot import selection as draw_selection
from partwise.apps.view.report.pictures import figure_uri, new_figure, render


def rows_of(found: Any) -> list[dict[str, Any]]:
    """Return a row for each point of a `Choice` or `Selection`, with plain values."""
    rows = []
    for at, (above, error) in enumerate(found.excess):
        row: dict[str, Any] = {"k": int(found.numbers[at])} if _counts(found) else found.grid[at]
        row = {**row, "error": float(found.errors[at].mean())}
        row |= {"above_best": float(above), "standard_error": float(error)}
        if _counts(found):
            signs = {"stability": found.stability[at], "cophenetic": found.cophenetic[at]}
            row |= {name: float(v) if np.isfinite(v) else None for name, v in signs.items()}
        point = int(found.numbers[at]) if _counts(found) else found.grid[at]
        best = found.k if _counts(found) else found.best
        rows.append({**row, "good": point in found.good, "chosen": point == best})
    return rows


def answer_of(found: Any) -> dict[str, Any]:
    """Return the chosen parameters."""
    return {"k": found.k} if _counts(found) else dict(found.best)


def sentence(found: Any) -> str:
    """Return a sentence with the answer and equally good values."""
    if _counts(found):
        rest = [k for k in found.good if k != found.k]
        also = f" As good: {', '.join(map(str, rest))}." if rest else " No other is as good."
        said = (
            f"{found.k} part{'s' if found.k > 1 else ''}: the smallest number whose error at "
            f"hidden entries is within one standard error of the lowest.{also}"
        )
        return " ".join([said, *found.remarks()])
    what = "wrong names of hidden labels" if found.by == "labels" else "error at hidden entries"
    words = [
        ", ".join(f"{name} = {value}" for name, value in point.items())
        for point in [found.best, *(p for p in found.good if p != found.best)]
    ]
    also = f" As good: {'; '.join(words[1:])}." if words[1:] else " No other is as good."
    return f"{words[0]}: the lowest {what}.{also}"


def shown_rows(found: Any) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells for a reader; the last cell marks the chosen row.

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


#: Headings of the columns.
HEADS = {"above_best": "above best", "standard_error": "± s.e."}


def _text(value: Any, least: float) -> str:
    if least > 0:
        share = 100 * value / least
        return f"{share:.0f} %" if share >= 100 else f"{share:.2g} %"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def choice_facts(found: Any) -> dict[str, Any]:
    """Return the sentence, curve and table of a search for its page."""
    heads, rows = shown_rows(found)
    figure, axes = new_figure((7.2, 3.4))
    (draw_choice if _counts(found) else draw_selection)(found, ax=axes)
    return {"said": sentence(found), "uri": figure_uri(figure), "heads": heads, "rows": rows}


def choice_page(found: Any, *, title: str, command: str = "", source: str = "") -> str:
    """Return a self-contained HTML page with the curve and the table."""
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
    """Return whether it is a number of parts that was looked for."""
    return hasattr(found, "numbers")
