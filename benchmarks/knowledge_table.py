"""The results of `benchmarks.knowledge` as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HEAD = """# What a person knows

Made by `python -m benchmarks.knowledge --data FOLDER`; everything measured is in `knowledge.json`.
Times are medians of runs in turns in one process.
"""


def write_page(held: dict[str, Any], path: Path) -> None:
    """All rows that were measured, as markdown."""
    makers = {"masks": _masks, "peers": _peers, "samson": _samson, "topics": _topics}
    parts = [HEAD] + [make(held[name]) for name, make in makers.items() if name in held]
    path.write_text("\n".join(parts), encoding="utf-8")


def _table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _named(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: row for name, row in rows.items() if name != "machine"}


def _masks(rows: dict[str, Any]) -> str:
    lines = [
        [
            name,
            f"{row['error']:.4f}",
            f"{row['time']:.2f} ({row['iterations']} and {row['plain iterations']})",
            *(
                [
                    f"{row['time to tol']:.2f} ({row['iterations to tol']} and "
                    f"{row['plain iterations to tol']})",
                    f"{row['error at tol']:.4f}",
                ]
                if "time to tol" in row
                else ["not run", ""]
            ),
        ]
        for name, row in _named(rows).items()
    ]
    heading = ["data and loss", "error", "time to 0.5 %", "time to tol=1e-3", "error there"]
    return f"""## Entries that were not seen

*error*: the mean loss at hidden entries after 100 iterations, over that of the naive updates after
1,000 from the same start (dense sets: tests/reference.py; sparse ones: `solver="mu"`, which the
tests hold equal to it). At most 1.005 was asked for. *time*: processor time over that of a fit of
the whole X, each until it is and stays within 0.5 % of its own naive reference (iterations in
brackets), and of fits to the same `tol`, at most 300 iterations. At 10 % hidden at most 1.3 was
asked for. One thread. Machine: {rows["machine"]}.

{_table(heading, lines)}"""


def _peers(rows: dict[str, Any]) -> str:
    lines = []
    for name, peers in _named(rows).items():
        for peer, row in peers.items():
            if "skipped" in row:
                lines.append([name, peer, f"skipped: {row['skipped']}", "", ""])
                continue
            more = "" if row.get("reached", True) else ", its best"
            error = f"{row['error']:.4f}{more}"
            lines.append([name, peer, f"{row['seconds']:.3f}", row["iterations"], error])
    return f"""## Peers, Frobenius

Processor seconds, with one thread, until the error at hidden entries is within 0.5 % of the naive
reference's, and the error there over the reference's; no seen entry of ORL is zero. 10 parts: with
20, RcppML took 26 to 33 s an iteration. scikit-learn: ten iterations, then the gaps are filled with
its product, until it is there. RcppML has `mask_zeros`, draws its own start, and is tried at 5,
10, 20, 40 and 80 iterations, a minute each at most; its setting up counts. Machine:
{rows["machine"]}.

{_table(["data", "package", "seconds", "iterations", "error"], lines)}"""


def _samson(rows: dict[str, Any]) -> str:
    lines = []
    for name, row in _named(rows).items():
        other = row["pymcr"]
        said = other.get("skipped") or f"{other['degrees']:.1f}° ({other['seconds']:.2f} s)"
        known = f"{row['known']:.1f}° ({row['seconds']:.2f} s)"
        lines.append([name, known, f"{row['plain']:.1f}°", said])
    return f"""## Samson: two spectra known, the third found

Degrees between the third and its reference; plain NMF: the closest of its three parts; pymcr: 50
iterations of NNLS.

{_table(["", "two known", "plain NMF", "pymcr, two fixed"], lines)}"""


def _topics(rows: dict[str, Any]) -> str:
    lines = []
    for name, values in _named(rows).items():
        if name != "topics":
            values = np.atleast_1d(values)
            lines.append(
                [name, f"{values.mean():.1%}", f"{values.min():.1%}", f"{values.max():.1%}"]
            )
    words = "; ".join(f"{name}: {', '.join(some)}" for name, some in rows["topics"].items())
    return f"""## BBC news: five topics from three words each

The share of documents whose topic is right, over five seeds (logistic regression: 20 draws of five
labels a class). The words were chosen before any share was looked at, from what sections of a
newspaper are about (the set has stems): {words}.

{_table(["", "mean", "least", "most"], lines)}"""
