"""Measure the time of the solver's iterations alone.

Starts, graphs, k-means and checks of the input are not counted.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class LoopTime:
    """Seconds and iterations that one fit spent in the solver loop."""

    seconds: float = 0.0
    iterations: int = 0

    @property
    def each(self) -> float:
        """Seconds per iteration of the solver loop."""
        return self.seconds / max(1, self.iterations)


@contextmanager
def loop_clock() -> Iterator[LoopTime]:
    """Measure the time of every call of `loop.alternate` while the context is open."""
    from partwise.solvers import loop

    original, spent = loop.alternate, LoopTime()

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        solution = original(*args, **kwargs)
        spent.seconds += time.perf_counter() - began
        spent.iterations += solution.n_iter
        return solution

    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("partwise") and getattr(module, "alternate", None) is original
    ]
    for module in users:
        module.alternate = timed  # type: ignore[attr-defined]
    try:
        yield spent
    finally:
        for module in users:
            module.alternate = original  # type: ignore[attr-defined]


def timed_fit(model: Any, *args: Any, **kwargs: Any) -> tuple[LoopTime, Any]:
    """Fit a model, and return the time of its solver loop and the model."""
    with loop_clock() as spent, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*args, **kwargs)
    if not spent.iterations:
        raise RuntimeError(f"{type(model).__name__} did not run the loop")
    return spent, model
