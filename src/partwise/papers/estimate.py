"""How long a table takes: what was measured once, scaled to this machine.

``timings.toml`` holds, for each table, the seconds of a cell over K to the power 1.5 on a reference
machine, and the seconds that `partwise.papers.machine.speed` took there. The ratio of speeds
carries one over to the other. Where a folder already has results of the table, those are used.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from partwise.papers.cells import Cell
from partwise.papers.machine import speed
from partwise.papers.store import Store

SAMPLE = 100  # stored results that are read for an estimate
GROWTH = 1.5  # between 1 (overheads) and 2 (products of n x p and p x k with n ~ k)
HEAD = (
    "# Seconds of computing of a cell (fit, k-means, scores) on one thread over K ** 1.5, on the",
    "# machine where `speed` was taken. `partwise reproduce --list` scales them to another.",
)


@cache
def _timings() -> dict[str, Any]:
    source = resources.files("partwise.papers") / "timings.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def seconds_left(todo: list[Cell], jobs: int, store: Store | None = None) -> float | None:
    """Estimated seconds to run these cells in ``jobs`` processes; None where nothing is known."""
    if not todo:
        return 0.0
    table = todo[0].table
    own = cost(store, table) if store else None
    if own is None:
        known = _timings().get("cells", {}).get(table)
        if known is None:
            return None
        own = known * speed() / _timings()["speed"]
    return own * sum(work(cell.k) for cell in todo) / jobs


def work(k: int) -> float:
    """How the time of a cell grows with its K: samples and factors both do."""
    return float(k) ** GROWTH


def cost(store: Store, table: str, *, least: int = 4) -> float | None:
    """Seconds of computing for one unit of `work`; None with fewer than ``least`` results."""
    folder = store.folder / "cells" / table
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if len(files) < least:
        return None
    chosen = files[:: max(1, len(files) // SAMPLE)]
    results = [json.loads(path.read_text(encoding="utf-8")) for path in chosen]
    spent = sum(r.get("cpu_seconds", 0.0) for r in results)
    return spent / sum(work(r["cell"]["k"]) for r in results)


def timings_text(store: Store, tables: list[str]) -> str:
    """A new ``timings.toml`` from the results of a folder made on this machine."""
    lines = [*HEAD, f"speed = {speed():.4f}", "", "[cells]"]
    for table in tables:
        value = cost(store, table, least=1)
        if value is not None:
            lines.append(f'"{table}" = {value:.3g}')
    return "\n".join(lines) + "\n"


def words(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None or not np.isfinite(seconds):
        return "not measured yet"
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
