"""Functions that check the free memory of this computer."""

from __future__ import annotations

import math


def free_memory() -> float:
    """Return the bytes that this machine has left; infinite if psutil is not installed."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:
        return math.inf
    return float(psutil.virtual_memory().available)


def check_memory(need: float, estimator_name: str, what: str, instead: str) -> None:
    """Raise if ``need`` bytes are more than this machine has left."""
    free = free_memory()
    if need > free:
        raise ValueError(
            f"{estimator_name} keeps {what} in the memory of this process, which needs "
            f"{in_units(need)}, but only {in_units(free)} are free. {instead}"
        )


def in_units(size: float) -> str:
    """Return a number of bytes as text, for example "1.5 GB"."""
    if not math.isfinite(size):
        return "any amount"
    size = max(size, 0)
    step = min(int(math.log(max(size, 1), 1000)), 5)
    return f"{size / 1000**step:.3g} {['B', 'kB', 'MB', 'GB', 'TB', 'PB'][step]}"
