"""A fit in four plain functions over a frozen `Description`: check, state, solve, publish.

An estimator describes what it minimises (``_describe``); this package does the rest. A method with
another kind of problem (concepts, tensors) replaces `state` and `solve` by its own functions, and
keeps the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from partwise.backends.arrays import AnyArray, contiguous
from partwise.backends.threads import one_blas_thread
from partwise.fitting.checking import check, full_device
from partwise.fitting.description import (
    Checked,
    Description,
    FitInputs,
    FittedFactors,
    Knowledge,
    Problem,
)
from partwise.fitting.solving import factors, finish, publish, solutions, solve
from partwise.fitting.stating import state
from partwise.solvers.checkpoint import Checkpoint, identify
from partwise.solvers.loop import Solution

__all__ = [
    "Checked",
    "Description",
    "FitInputs",
    "FittedFactors",
    "Knowledge",
    "Problem",
    "Progress",
    "all_or_nothing",
    "check",
    "described",
    "every_start",
    "finish",
    "fit",
    "publish",
    "solve",
    "state",
    "watched",
]

#: Arguments of `fit` that a repetition of it needs as well; labels belong to the data.
REPEATED = ("sample_weight", "entry_weight", "graph", "must_link", "cannot_link")
#: Set by scikit-learn during a fit and taken away by its own clean-up.
_CALLBACK_STATE = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
#: Errors that arithmetic on infinities raises.
_UNBOUNDED = (ArithmeticError, np.linalg.LinAlgError, RuntimeWarning, RuntimeError)


def fit(estimator: Any, X: Any, y: Any = None, **given: Any) -> AnyArray:
    """Fit an estimator and return V; an error or an interrupt leaves it as it was.

    ``given`` are the fields of `FitInputs`.
    """
    inputs = FitInputs(y, **given)
    with all_or_nothing(estimator):
        spec = described(estimator)
        checked = check(estimator, spec, X, inputs)
        problem = state(spec, checked)
        progress = watched(estimator, checked.X, y, len(problem.starts))
        with one_blas_thread:  # products with X are cut for threads of ours
            keeper = None
            if spec.checkpoint is not None:
                keeper = checkpoint(estimator, spec, problem, inputs)
            found = solve(spec, problem, progress, keeper)
            V = publish(estimator, spec, checked, problem, found)
        estimator._fit_arguments = [name for name in REPEATED if getattr(inputs, name) is not None]
        if progress is not None:
            progress.finish()
    return V


def described(estimator: Any) -> Description:
    """Return what an estimator minimises, with its parameters checked."""
    estimator._validate_params()
    spec: Description = estimator._describe()
    return spec


def every_start(
    estimator: Any, X: Any, y: Any = None, *, only: Sequence[int] | None = None, **given: Any
) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Yield the final (V, H) of each start, without setting attributes.

    ``only``: the numbers of the starts that are wanted; each has a seed of its own.
    """
    with all_or_nothing(estimator):
        spec = described(estimator)
        checked = check(estimator, spec, X, FitInputs(y, **given))
        problem = state(spec, checked)
        if only is not None:
            problem = replace(problem, starts=[problem.starts[i] for i in only])
        progress = watched(estimator, checked.X, y, len(problem.starts))
        with one_blas_thread:
            for end in solutions(problem, progress):
                yield factors(checked, problem, end.Z, end.U)


def checkpoint(estimator: Any, spec: Description, problem: Problem, given: FitInputs) -> Checkpoint:
    """Return where the loop saves its state; it resumes the same problem only."""
    assert spec.checkpoint is not None
    if len(problem.starts) > 1:
        raise ValueError(f"checkpoint needs n_init=1, got n_init={spec.n_init}.")
    free = ("checkpoint", "max_iter", "verbose", "device")
    named = {name: v for name, v in estimator.get_params().items() if name not in free}
    inputs = dict(vars(given), y=None)
    if spec.init != "custom":
        inputs.update(W=None, H=None)
    named.update(inputs, estimator=spec.estimator_name, labels=problem.knowledge.labels)
    return Checkpoint(spec.checkpoint, problem.model.R, identify(problem.model.data, named))


# -- errors and interrupts -------------------------------------------------------------------------


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the estimator if the fit ends in an error or an interrupt.

    An error of numbers outside their type's range becomes one sentence. An overflow alone is no
    error, because products set the processor's flags for unused lanes. Only a fit that then fails,
    or ends in a value that is not a number, is refused.
    """
    before, seen, name = dict(vars(estimator)), list[str](), type(estimator).__name__
    text = (
        f"{name}: values of X are too large for this model (an overflow on the way); divide X by "
        "its maximum, or give it in float64."
    )
    try:
        with full_device(name):
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
            if isinstance(U, np.ndarray) and U.dtype.kind == "f":
                most = np.sqrt(np.finfo(U.dtype).max / max(1, U.shape[-1]))
                if np.abs(U).max(initial=0.0) > most and estimator._describe().penalized:
                    raise ValueError(text)  # `transform` squares them
    except BaseException:
        state = {name: vars(estimator)[name] for name in _CALLBACK_STATE if name in vars(estimator)}
        vars(estimator).clear()
        vars(estimator).update(before | state)
        raise


# -- scikit-learn's callbacks, and ``verbose`` ---------------------------------------------------


def watched(estimator: Any, X: Any, y: Any, n_starts: int) -> Progress | None:
    """Return what receives each iteration; None without callbacks and verbose output."""
    if estimator.verbose or hasattr(estimator, "_skl_callbacks"):
        return Progress(estimator, X, y, n_starts)
    return None


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

    def __call__(self, number: int) -> Callable[[int, Solution], bool]:
        """Return the function to call after each iteration of start ``number``."""
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
