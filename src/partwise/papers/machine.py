"""The machine that a result was made on, and how fast it is."""

from __future__ import annotations

import os
import platform
import time
from functools import lru_cache

import numpy as np


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
