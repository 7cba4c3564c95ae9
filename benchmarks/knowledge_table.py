"""Write the results of `benchmarks.knowledge`, on NMF with prior knowledge, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HEAD = """# Benchmarks: prior knowledge

To repeat: `python -m benchmarks.knowledge --data FOLDER`; all results are in `knowledge.json`.
Times are medians of alternating runs in one process.
"""


def write_page(held: dict[str, Any], path: Path) -> None:
    """Write the page with all results of `benchmarks.knowledge` in Markdown."""
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
    heading = ["data and loss", "error", "time to 0.5%", "time to tol=1e-3", "error there"]
    return f"""## Missing entries

After 100 iterations, the error at hidden entries is at most 1.005 times that of the naive updates.

- *error*: the mean loss at hidden entries after 100 iterations, divided by that of the naive
  updates after 1,000 iterations from the same start. Dense sets use tests/reference.py, and
  sparse sets `solver="mu"`, which a test compares with it.
- *time to 0.5%*: processor time divided by that of a fit of the complete X. Each fit runs until it
  stays within 0.5% of its own naive reference; iterations are in brackets.
- *time to tol*: the same ratio for fits to equal `tol`, with at most 300 iterations. The goal for
  10% hidden entries was 1.3.

One thread. Machine: {rows["machine"]}.

{_table(heading, lines)}"""


def _peers(rows: dict[str, Any]) -> str:
    lines = []
    for name, peers in _named(rows).items():
        for peer, row in peers.items():
            if "skipped" in row:
                lines.append([name, peer, f"skipped: {row['skipped']}", "", ""])
                continue
            more = "" if row.get("reached", True) else ", its lowest"
            error = f"{row['error']:.4f}{more}"
            lines.append([name, peer, f"{row['seconds']:.3f}", row["iterations"], error])
    return f"""## Other packages, Frobenius

The table lists processor seconds with one thread until the error at hidden entries is within 0.5%
of the naive reference, and the ratio of the two errors. No observed entry of ORL is zero. There are
10 parts, because RcppML took 26 to 33 s per iteration with 20.

- scikit-learn: after every ten iterations, its product fills the missing entries.
- RcppML: has `mask_zeros` and draws its own start. It runs 5, 10, 20, 40 and 80 iterations, for at
  most a minute each, including its set-up.

Machine: {rows["machine"]}.

{_table(["data", "package", "seconds", "iterations", "error"], lines)}"""


def _samson(rows: dict[str, Any]) -> str:
    lines = []
    for name, row in _named(rows).items():
        other = row["pymcr"]
        angle = other.get("skipped") or f"{other['degrees']:.1f}° ({other['seconds']:.2f} s)"
        known = f"{row['known']:.1f}° ({row['seconds']:.2f} s)"
        lines.append([name, known, f"{row['plain']:.1f}°", angle])
    return f"""## Samson: find a third spectrum from two known ones

The table lists the angle between the third spectrum and its reference in degrees. For plain NMF it
is that of the closest of three parts; pymcr runs 50 iterations of NNLS.

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

The table lists the share of documents with the correct topic, over five seeds (logistic regression:
20 draws of five labels per class). The words describe sections of a newspaper and were chosen
before any share was computed (the data set contains stems): {words}.

{_table(["", "mean", "least", "most"], lines)}"""
