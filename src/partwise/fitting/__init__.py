"""A fit in four plain functions over a frozen `Description`: check, state, solve, publish.

An estimator describes what it minimises (``_describe``); this package does the rest. A method with
another kind of problem (concepts, tensors) replaces `state` and `solve` by its own functions, and
keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import one_blas_thread
from partwise.fitting.checking import check
from partwise.fitting.description import Checked, Description, FitInputs, Found, Knowledge, Problem
from partwise.fitting.progress import Progress, all_or_nothing
from partwise.fitting.publishing import factors, publish
from partwise.fitting.solving import finish, solutions, solve
from partwise.fitting.stating import state
from partwise.solvers.checkpoint import Checkpoint, identify

__all__ = [
    "Checked",
    "Description",
    "FitInputs",
    "Found",
    "Knowledge",
    "Problem",
    "check",
    "described",
    "every_start",
    "finish",
    "fit",
    "publish",
    "solve",
    "state",
]

#: Arguments of `fit` that a repetition of it needs as well; labels belong to the data.
REPEATED = ("sample_weight", "entry_weight", "graph", "must_link", "cannot_link")


def fit(estimator: Any, X: Any, y: Any = None, **given: Any) -> AnyArray:
    """Fit an estimator and return V; an error or an interrupt leaves it as it was.

    ``given`` are the fields of `FitInputs`.
    """
    inputs = FitInputs(y, **given)
    with all_or_nothing(estimator):
        spec = described(estimator)
        checked = check(estimator, spec, X, inputs)
        problem = state(spec, checked)
        progress = Progress(estimator, checked.X, y, len(problem.starts))
        with one_blas_thread:  # products with X are cut for threads of ours
            keeper = checkpoint(estimator, spec, problem, inputs)
            found = solve(spec, problem, progress, keeper)
            V = publish(estimator, spec, checked, problem, found)
        estimator._fit_arguments = [name for name in REPEATED if getattr(inputs, name) is not None]
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
        progress = Progress(estimator, checked.X, y, len(problem.starts))
        with one_blas_thread:
            for end in solutions(problem, progress):
                yield factors(checked, problem, end.Z, end.U)


def checkpoint(
    estimator: Any, spec: Description, problem: Problem, given: FitInputs
) -> Checkpoint | None:
    """Return where the loop saves its state, if requested; it resumes the same problem only."""
    if spec.checkpoint is None:
        return None
    if len(problem.starts) > 1:
        raise ValueError(f"checkpoint needs n_init=1, got n_init={spec.n_init}.")
    free = ("checkpoint", "max_iter", "verbose", "device")
    named = {name: v for name, v in estimator.get_params().items() if name not in free}
    inputs = dict(vars(given), y=None)
    if spec.init != "custom":
        inputs.update(W=None, H=None)
    named.update(inputs, estimator=spec.estimator_name, labels=problem.knowledge.labels)
    return Checkpoint(spec.checkpoint, problem.model.R, identify(problem.model.data, named))
