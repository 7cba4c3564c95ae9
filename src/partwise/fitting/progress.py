"""Output of a fit while it runs: scikit-learn's callbacks, and ``verbose``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from partwise.backends.arrays import NO_MEMORY, contiguous
from partwise.solvers.loop import Solution

#: Set by scikit-learn during a fit and taken away by its own clean-up.
_CALLBACK_STATE = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the estimator if the fit ends in an error or an interrupt."""
    before = dict(vars(estimator))
    try:
        with full_device(type(estimator).__name__), in_range(estimator):
            yield
    except BaseException:
        state = {name: vars(estimator)[name] for name in _CALLBACK_STATE if name in vars(estimator)}
        vars(estimator).clear()
        vars(estimator).update(before | state)
        raise


#: Errors that arithmetic on infinities raises.
_UNBOUNDED = (ArithmeticError, np.linalg.LinAlgError, RuntimeWarning, RuntimeError)


@contextmanager
def in_range(estimator: Any) -> Iterator[None]:
    """Turn any error of numbers outside their type's range into one sentence.

    An overflow alone is no error, because products set the processor's flags for unused lanes.
    Only a fit that then fails, or ends in a value that is not a number, is refused.
    """
    seen: list[str] = []
    text = (
        f"{type(estimator).__name__}: values of X are too large for this model (an overflow on the "
        "way); divide X by its maximum, or give it in float64."
    )
    try:
        with np.errstate(over="call", call=lambda kind, flag: seen.append(kind)):
            yield
    except _UNBOUNDED as error:
        if not seen or (isinstance(error, RuntimeError) and "singular" not in str(error)):
            raise
        raise ValueError(text) from error
    if seen and not np.isfinite(getattr(estimator, "objective_", 0.0)):
        raise ValueError(text)
    U = getattr(estimator, "components_", None)
    floats = isinstance(U, np.ndarray) and U.dtype.kind == "f"
    if U is not None and floats and estimator._describe().penalized:  # `transform` squares them
        longest = float(np.abs(U).max(initial=0.0))
        if longest > np.sqrt(np.finfo(U.dtype).max / max(1, U.shape[-1])):
            raise ValueError(text)


@contextmanager
def full_device(estimator_name: str) -> Iterator[None]:
    """Turn any out-of-memory error of a device into one sentence."""
    try:
        yield
    except RuntimeError as error:  # torch's OutOfMemoryError is one
        text = str(error)
        if "out of memory" not in text and "allocate memory" not in text:
            raise
        raise MemoryError(
            f"{estimator_name} ran out of memory outside the products with X "
            f"({text.splitlines()[0][:120]}); "
            f"{NO_MEMORY}"
        ) from error


class Progress:
    """Tasks of callbacks: one for the fit, for each of several starts, and for each iteration."""

    def __init__(self, estimator: Any, X: Any, y: Any, n_starts: int) -> None:
        self.estimator, self.X, self.y = estimator, X, y
        self.callbacks = hasattr(estimator, "_skl_callbacks")
        self.nested = n_starts > 1
        self.root: Any = None
        self.context: Any = None
        self.began = time.perf_counter()
        if self.callbacks:
            subtasks = n_starts if self.nested else estimator.max_iter
            self.root = self.context = estimator._init_callback_context(max_subtasks=subtasks)
            self._begin(self.root)

    def _begin(self, context: Any) -> None:
        context.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)

    def _end(self, context: Any, **kw: Any) -> bool:
        stop = context.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y, **kw)
        return bool(stop)

    @property
    def watched(self) -> bool:
        """True if callbacks or verbose output need each iteration."""
        return bool(self.callbacks or self.estimator.verbose)

    def __call__(self, number: int) -> Callable[[int, Solution], bool] | None:
        """Return the function to call after each iteration of start ``number``."""
        if not self.watched:
            return None
        self._end_start()
        if self.callbacks and self.nested:
            subtasks = self.estimator.max_iter
            self.context = self.root.subcontext(task_name="start", max_subtasks=subtasks)
            self._begin(self.context)
        return self._iteration

    def _end_start(self) -> None:
        if self.context is not self.root:
            self._end(self.context)
            self.context = self.root

    def _iteration(self, n: int, solution: Solution) -> bool:
        if self.estimator.verbose and n % 10 == 0:
            seconds = time.perf_counter() - self.began
            print(f"iteration {n:4d}, {seconds:.3f} s, objective {solution.history[-1]:.6g}")
        if not self.callbacks:
            return False
        task = self.context.subcontext(task_name="iteration")
        self._begin(task)
        return self._end(task, reconstruction_attributes=lambda: partial_attributes(solution))

    def finish(self) -> None:
        """End the tasks of the callbacks, after the fit has set its attributes."""
        if self.callbacks:
            self._end_start()
            self._end(self.root)


def partial_attributes(solution: Solution) -> dict[str, Any]:
    """Return the attributes of an estimator whose fit would end here."""
    parts, k = contiguous(solution.U.T), solution.U.shape[1]
    sizes: dict[str, Any] = {"n_components_": k, "_n_components": k, "n_iter_": solution.n_iter}
    sizes["objective_"] = solution.history[-1]
    return {"components_": parts, **sizes}
