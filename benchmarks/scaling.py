"""Time of an iteration against n, p, k and the number of non-zeros, each varied alone."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cases import KL, made_dense, made_sparse, start
from benchmarks.clock import timed_fit
from benchmarks.rows import row
from benchmarks.settings import Settings

DENSE = {"n": 8_000, "p": 1_000, "k": 20}
SPARSE = {"n": 20_000, "p": 5_000, "k": 20, "nnz": 1_000_000}
STEPS = (0.5, 1, 2, 4)


def scaling(settings: Settings) -> dict[str, Any]:
    """Return slopes of log time against log size, by least squares; 1 is proportional."""
    series = []
    for loss, short in (("frobenius", "Frobenius"), (KL, "KL")):
        for kind, base, make in (("dense", DENSE, _dense), ("sparse", SPARSE, _sparse)):
            shrink = 8 if settings.quick else 1
            sizes = {name: max(5, size // shrink) for name, size in base.items()}
            for axis in sizes:
                name = f"{short}, {kind}, {axis}"
                series.append(_vary(name, sizes, axis, make, loss, settings))
    rows = [
        row(
            f"slope, {line['name']}",
            line["slope"],
            1.1,
            at_most=True,
            unit="",
            note=", ".join(f"{t * 1e3:.3g}" for t in line["seconds"]) + " ms",
        )
        for line in series
    ]
    return {"kind": "scaling", "series": series, "rows": rows}


def _dense(n: int, p: int, k: int) -> Any:
    return made_dense(n, p, 20)


def _sparse(n: int, p: int, k: int, nnz: int) -> Any:
    return made_sparse(n, p, 20, nnz / (n * p))


def _vary(
    name: str,
    base: dict[str, int],
    axis: str,
    make: Callable[..., Any],
    loss: str,
    settings: Settings,
) -> dict[str, Any]:
    points = [{**base, axis: max(2, int(base[axis] * step))} for step in STEPS]
    lasting = 0.05 if settings.quick else 0.4
    seconds = [
        _iteration(make(**point), point["k"], loss, lasting, settings.runs) for point in points
    ]
    sizes = [point[axis] for point in points]
    return {"name": name, "sizes": sizes, "seconds": seconds, "slope": slope(sizes, seconds)}


def _iteration(X: Any, k: int, loss: str, lasting: float, runs: int) -> float:
    import partwise

    W, H = start(X, k)

    def each(m: int) -> float:
        model = partwise.NMF(k, init="custom", beta_loss=loss, tol=0, max_iter=m)
        return timed_fit(model, X, W=W, H=H)[0].each

    each(5)  # compiles the kernels; with the KL loss, the first three iterations use "mu"
    m = int(np.clip(lasting / each(5), 10, 100))
    return median(each(m) for _ in range(runs))


def slope(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
