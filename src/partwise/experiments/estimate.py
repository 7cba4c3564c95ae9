"""How long a table takes: what was measured once, scaled to this machine.

``timings.toml`` holds, for each table, the mean seconds of a cell on a reference machine, and the
seconds that `partwise.experiments.machine.speed` took there. The ratio of speeds carries one over
to the other. Where this folder already has results of the table, those are used.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from partwise.experiments.cells import Cell
from partwise.experiments.machine import speed
from partwise.experiments.store import Store

SAMPLE = 60  # stored results that are read for an estimate


@cache
def _timings() -> dict[str, Any]:
    source = resources.files("partwise.experiments") / "timings.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def seconds_left(todo: list[Cell], jobs: int, store: Store | None = None) -> float | None:
    """Estimated seconds to run these cells in ``jobs`` processes; None where nothing is known."""
    if not todo:
        return 0.0
    table = todo[0].table
    own = _own_mean(store, table) if store else None
    if own is None:
        known = _timings().get("cells", {}).get(table)
        if known is None:
            return None
        own = known * speed() / _timings()["speed"]
    return own * len(todo) / jobs


def _own_mean(store: Store, table: str) -> float | None:
    folder = store.folder / "cells" / table
    if not folder.is_dir():
        return None
    files = sorted(folder.glob("*.json"))
    if len(files) < 5:
        return None
    chosen = files[:: max(1, len(files) // SAMPLE)]
    walls = [json.loads(path.read_text(encoding="utf-8")).get("wall_seconds") for path in chosen]
    return float(np.mean([wall for wall in walls if wall is not None] or [np.nan]))


def words(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None or not np.isfinite(seconds):
        return "not measured yet"
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
