"""The four steps of every fit: check input, state problem, solve, publish.

An estimator returns a `Description` of what it minimises from its method ``_describe``. The
functions of this package use only that description. Estimators with another kind of problem
(concept or tensor factorization) replace `state` and `solve` by their own functions.
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
from partwise.fitting.checking import check, refuse_full_device
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

#: Arguments of an estimator's `fit` that must be passed again when the fit is repeated on the same
#: samples. Labels are not in this list because they belong to the data.
REPEATED = ("sample_weight", "entry_weight", "graph", "must_link", "cannot_link")
#: Attributes that scikit-learn's callbacks set on an estimator during a fit. scikit-learn removes
#: them itself, so that restoring an estimator after an error must keep them.
_CALLBACK_STATE = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
#: Exception types that numpy and scipy raise when intermediate values overflow to infinity.
_UNBOUNDED = (ArithmeticError, np.linalg.LinAlgError, RuntimeWarning, RuntimeError)


def fit(estimator: Any, X: Any, y: Any = None, **given: Any) -> AnyArray:
    """Fit an estimator to X and return the part weights V.

    An error or an interrupt leaves the estimator as it was before the fit. The keyword arguments
    are the fields of `FitInputs`.
    """
    inputs = FitInputs(y, **given)
    with all_or_nothing(estimator):
        spec = described(estimator)
        checked = check(estimator, spec, X, inputs)
        problem = state(spec, checked)
        progress = watched(estimator, checked.X, y, len(problem.starts))
        # Partwise's own threads divide products with X, so BLAS gets one thread
        with one_blas_thread:
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
    """Return the estimator's `Description`, after validating its parameters."""
    estimator._validate_params()
    spec: Description = estimator._describe()
    return spec


def every_start(
    estimator: Any, X: Any, y: Any = None, *, only: Sequence[int] | None = None, **given: Any
) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Yield the final (V, H) of each restart, without setting estimator attributes.

    ``only`` contains the indices of the restarts to run; every restart has its own random seed.
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
    """Return the checkpoint to which the solver saves its state between iterations.

    The checkpoint contains an identifier of the data, parameters and arguments of the fit. A saved
    state is resumed only if they are the same.
    """
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


# -- restoring an estimator after errors and interrupts --------------------------------------------


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the estimator's attributes after an error or interrupt in its fit.

    If numbers overflow, the error message asks the user to rescale X. An overflow alone is not an
    error, because vectorised products can set the overflow flag for unused elements. The fit is
    refused only if it then fails, or if its objective or parts are too large to use.
    """
    before, seen, name = dict(vars(estimator)), list[str](), type(estimator).__name__
    text = (
        f"{name}: values of X are too large for this model (an overflow on the way); divide X by "
        "its maximum, or give it in float64."
    )
    try:
        try:
            with np.errstate(over="call", call=lambda kind, flag: seen.append(kind)):
                yield
        except _UNBOUNDED as error:
            refuse_full_device(error, name)
            if not seen or (isinstance(error, RuntimeError) and "singular" not in str(error)):
                raise
            raise ValueError(text) from error
        if seen and not np.isfinite(getattr(estimator, "objective_", 0.0)):
            raise ValueError(text)
        U = getattr(estimator, "components_", None)
        if isinstance(U, np.ndarray) and U.dtype.kind == "f":
            most = np.sqrt(np.finfo(U.dtype).max / max(1, U.shape[-1]))
            if np.abs(U).max(initial=0.0) > most and estimator._describe().penalized:
                # `transform` computes squares of the parts, which would overflow
                raise ValueError(text)
    except BaseException:
        state = {name: vars(estimator)[name] for name in _CALLBACK_STATE if name in vars(estimator)}
        vars(estimator).clear()
        vars(estimator).update(before | state)
        raise


# -- scikit-learn's callbacks, and ``verbose`` ---------------------------------------------------


def watched(estimator: Any, X: Any, y: Any, n_starts: int) -> Progress | None:
    """Return an object that is called in each iteration, or None if none is needed.

    It is needed only if the estimator has scikit-learn callbacks or ``verbose`` output.
    """
    if estimator.verbose or hasattr(estimator, "_skl_callbacks"):
        return Progress(estimator, X, y, n_starts)
    return None


class Progress:
    """Calls of scikit-learn's callbacks and ``verbose`` output during one fit.

    The callbacks receive a task for the fit, one for each restart if there are several, and one
    for each iteration.
    """

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
        """Call the callbacks at the beginning of a task."""
        context.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)

    def _end(self, context: Any, **kw: Any) -> bool:
        """Call the callbacks at the end of a task; return whether one requests a stop."""
        stop = context.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y, **kw)
        return bool(stop)

    def __call__(self, number: int) -> Callable[[int, Solution], bool]:
        """Return the function to call after each iteration of restart ``number``."""
        self._end_start()
        if self.callbacks and self.nested:
            subtasks = self.estimator.max_iter
            self.context = self.root.subcontext(task_name="start", max_subtasks=subtasks)
            self._begin(self.context)
        return self._iteration

    def _end_start(self) -> None:
        """End the callbacks' task of the current restart, if one is running."""
        if self.context is not self.root:
            self._end(self.context)
            self.context = self.root

    def _iteration(self, n: int, solution: Solution) -> bool:
        """Report iteration ``n``; return whether a callback requests the end of the fit."""
        if self.estimator.verbose and n % 10 == 0:
            seconds = time.perf_counter() - self.began
            print(f"iteration {n:4d}, {seconds:.3f} s, objective {solution.history[-1]:.6g}")
        if not self.callbacks:
            return False
        task = self.context.subcontext(task_name="iteration")
        self._begin(task)
        return self._end(task, reconstruction_attributes=lambda: partial_attributes(solution))

    def finish(self) -> None:
        """End the callbacks' tasks, after the fit has set the estimator's attributes."""
        if self.callbacks:
            self._end_start()
            self._end(self.root)


def partial_attributes(solution: Solution) -> dict[str, Any]:
    """Return the attributes that the estimator would have if the fit ended now."""
    parts, k = contiguous(solution.U.T), solution.U.shape[1]
    sizes: dict[str, Any] = {"n_components_": k, "_n_components": k, "n_iter_": solution.n_iter}
    sizes["objective_"] = solution.history[-1]
    return {"components_": parts, **sizes}
