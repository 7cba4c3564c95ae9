"""Time of an iteration of CF and LCF compared with NMF, and their peak memory."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from benchmarks.cases import made_dense, start
from benchmarks.clock import timed_fit
from benchmarks.processes import peak_memory
from benchmarks.rows import failed, row
from benchmarks.settings import Settings


def concept_costs(settings: Settings) -> dict[str, Any]:
    """Compare CF and LCF with NMF for one solver and k, on synthetic data of 10,000 x 1,000."""
    import partwise

    n, p, k = (1000, 200, 10) if settings.quick else (10_000, 1_000, 20)
    iterations = 5 if settings.quick else 20
    X = made_dense(n, p, k, dtype=np.float64)
    W, H = start(X, k)
    C = np.random.default_rng(1).random((n, k)) / n
    rows = []
    for solver in ("mu", "hals", "nesterov"):
        options: dict[str, Any] = {"init": "custom", "tol": 0, "solver": solver}
        for kind in ("CF", "LCF"):
            what = f"one iteration, {kind} / NMF, {solver}, n={n:,}, k={k}"

            def pair(m: int, kind: str = kind, options: Any = options) -> tuple[float, float]:
                concepts = getattr(partwise, kind)(k, n_clusters=1, max_iter=m, **options)
                nmf = partwise.NMF(k, max_iter=m, **options)
                theirs = timed_fit(concepts, X, W=W, C=C)[0].each
                return theirs, timed_fit(nmf, X, W=W, H=H)[0].each

            try:
                pair(2)
                pairs = [pair(iterations) for _ in range(settings.runs)]
            except (ValueError, RuntimeError) as error:
                rows.append(failed(what, error, 3, at_most=True))
                continue
            seconds = {"theirs": [a for a, _ in pairs], "nmf": [b for _, b in pairs]}
            seen = median(a / b for a, b in pairs)
            rows.append(row(what, seen, 3, at_most=True, seconds=seconds))
    square = n * n * X.itemsize
    for kind in ("CF", "LCF"):
        fit = {"kind": kind, "n": n, "p": p, "k": k, "dtype": "float64", "max_iter": 5}
        seen = peak_memory(fit, settings.runs)
        what = f"{kind} n={n:,}: peak memory beyond X over that of an n x n array"
        note = f"{seen / 2**20:.0f} MiB of {square / 2**20:.0f} MiB"
        rows.append(row(what, seen / square, 0.5, at_most=True, note=note))
    return {"kind": "rows", "rows": rows}
