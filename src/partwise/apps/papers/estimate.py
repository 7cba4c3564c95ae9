"""How long a table takes: what was measured once, scaled to this machine.

A cell's seconds are c · effort · K^g: ``timings.toml`` holds (c, g) for every table, data set and
method, from a machine on which `speed` took ``speed`` seconds; the effort
is its number of iterations. The ratio of speeds carries one machine over to the other. Where a
folder already has results of the table, their ratio to the estimate is used instead.
"""

from __future__ import annotations

import math
import os
import platform
import time
import tomllib
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from partwise.apps.papers.protocol import ComparedMethod
from partwise.apps.papers.representations import TRIAL_ITER, USUAL_STOP
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import Cell


@lru_cache(maxsize=1)
def machine() -> dict[str, str]:
    """The machine in words."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            lines = [line for line in handle if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    except OSError:
        pass
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": model,
        "cores": str(os.cpu_count()),
    }


@lru_cache(maxsize=1)
def speed() -> float:
    """Seconds of computing for a fixed small factorisation on one thread.

    Multiplicative steps on 400 x 1024: the mix of products and elementwise work of a cell. It is
    the process's own time, so another program beside it does not matter.
    """
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    X, V, U = rng.random((400, 1024)), rng.random((400, 10)), rng.random((1024, 10))
    best = np.inf
    with threadpool_limits(1):
        for _ in range(3):
            began = time.process_time()
            for _ in range(20):
                V = V * (X @ U) / (V @ (U.T @ U))
                U = U * (X.T @ V) / (U @ (V.T @ V))
            best = min(best, time.process_time() - began)
    return best


SAMPLE = 100  # stored results that are read for an estimate
UNKNOWN = (0.02, 1.5)  # a table that was never measured


@cache
def _timings() -> dict[str, Any]:
    source = resources.files("partwise.apps.papers") / "timings.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def effort(method: ComparedMethod, params: dict[str, Any]) -> float:
    """Iterations of a cell in hundreds; 1 for what does not iterate in our way."""
    if "max_iter" not in params or not method.estimator[:1].isupper():
        return float(method.subruns)
    trials = TRIAL_ITER * method.restarts if method.restarts > 1 else 0
    last = USUAL_STOP if method.stop else params["max_iter"]
    return method.subruns * (trials + float(last)) / 100.0


def cell_seconds(cell: Cell) -> float:
    """A cell's seconds on the machine where the timings were taken."""
    method = cell.variant.method
    known = _timings().get("cells", {}).get(cell.table, {})
    c, g = known.get(f"{cell.data.name}, {method.name}", UNKNOWN)
    return float(c * effort(method, cell.variant.params(cell.data.name)) * cell.k**g)


def seconds_left(todo: list[Cell], jobs: int, store: Store | None = None) -> float | None:
    """Estimated seconds to run these cells in ``jobs`` processes; None where nothing is known."""
    if not todo:
        return 0.0
    ratio = measured_ratio(store, todo) if store else None
    if ratio is None:
        if todo[0].table not in _timings().get("cells", {}):
            return None
        ratio = speed() / _timings()["speed"]
    each = [cell_seconds(cell) for cell in todo]
    return start_seconds() + ratio * max(sum(each) / jobs, *each)


def start_seconds() -> float:
    """What a process takes here to import the libraries and compile the kernels."""
    return float(_timings()["start"] * speed() / _timings()["speed"])


def measured_ratio(store: Store, todo: list[Cell], *, least: int = 4) -> float | None:
    """Measured over estimated seconds of this table's stored cells; None with too few of them."""
    done = [cell for cell in todo if store.has(cell)] or _stored_like(store, todo)
    if len(done) < least:
        return None
    chosen = done[:: max(1, len(done) // SAMPLE)]
    spent = sum(float((store.get(cell) or {}).get("cpu_seconds", 0.0)) for cell in chosen)
    return spent / sum(cell_seconds(cell) for cell in chosen)


def _stored_like(store: Store, todo: list[Cell]) -> list[Cell]:
    """Cells of other runs of the same rows that the folder holds."""
    runs = range(store.stored_runs(todo[0].table))
    kinds = {(c.k, c.variant.name, c.budget_name, c.data.name): c for c in todo}
    others = (replace(cell, run=run) for cell in kinds.values() for run in runs)
    return [cell for cell in others if store.has(cell)]


def words(seconds: float | None) -> str:
    """A duration as people say it."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
