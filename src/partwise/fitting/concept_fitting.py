"""Fits of CF and LCF, which approximate X by V Cᵀ X from inner products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from partwise.backends import as_data
from partwise.backends.arrays import AnyArray, ratio
from partwise.fitting import all_or_nothing, described, watched
from partwise.fitting.checking import check, check_scale, check_squares, check_start
from partwise.fitting.description import Checked, Description, FitInputs, FittedFactors, warn
from partwise.fitting.sample_kernels import Kernel
from partwise.fitting.solving import (
    Report,
    publish_ending,
    publish_groups,
    warn_unless_converged,
)
from partwise.model.concept_model import Codes, ConceptModel, code_problem
from partwise.solvers.init import clustered
from partwise.solvers.loop import Settings, Solution, alternate, residual_at
from partwise.solvers.steps import FOR_CONCEPTS, STEPS, solve_exactly


@dataclass(frozen=True, eq=False)
class ConceptProblem:
    """Objective, solver, settings and restarts of a concept factorization.

    Each function in ``starts`` returns initial part weights V and concept weights C.
    """

    model: ConceptModel
    kernel: Kernel
    solver: str
    settings: Settings
    starts: Sequence[Callable[[], tuple[AnyArray, AnyArray]]]


def fit_concepts(
    estimator: Any, kernel: Kernel, X: Any, y: Any = None, *, W: Any = None, C: Any = None
) -> AnyArray:
    """Fit CF or LCF and return the part weights V, as `partwise.fitting.fit` does."""
    with all_or_nothing(estimator):
        spec = described(estimator)
        checked = check(estimator, spec, X, FitInputs(y, W, None if C is None else C.T))
        problem = state_concepts(spec, kernel, estimator.locality, checked)
        progress = watched(estimator, checked.X, y, len(problem.starts))
        found = solve_concepts(spec, problem, progress)
        V = publish_concepts(estimator, spec, checked, problem, found)
        if progress is not None:
            progress.finish()
    return V


# -- second step of a fit: state the problem ----------------------------------------------------


def state_concepts(
    spec: Description, kernel: Kernel, locality: float, checked: Checked
) -> ConceptProblem:
    """Return the optimization problem of CF or LCF for a kernel and locality weight."""
    solver = FOR_CONCEPTS if spec.solver == "auto" else spec.solver
    if kernel.kind == "linear":
        check_squares(checked.X, spec.estimator_name)
    plain = STEPS[solver].multiplicative  # the published updates
    model = ConceptModel(kernel.gram(checked.X), locality, balance=not plain, sweeps=4)
    check_scale(model.constant, True, spec.estimator_name)
    settings = Settings(
        max_iter=spec.max_iter, tol=spec.tol, order="UV", extrapolate=not plain, guard=not plain
    )
    return ConceptProblem(model, kernel, solver, settings, starts(spec, checked))


def starts(spec: Description, checked: Checked) -> list[Callable[[], tuple[AnyArray, AnyArray]]]:
    """Return functions that return the initial V and C, one function per restart."""
    X, k, W, H = checked.X, checked.k, checked.W, checked.H
    rng = check_random_state(spec.random_state)
    if spec.init == "custom":
        if W is None or H is None:
            raise ValueError("init='custom' needs both W and C.")
        shape = (X.shape[0], k)
        V0 = check_start(W, shape, X.dtype, "W", spec.estimator_name)
        C0 = check_start(H.T, shape, X.dtype, "C", spec.estimator_name)
        return [lambda: (V0.copy(), C0.copy())]
    if W is not None or H is not None:
        warn(
            "When init!='custom', provided W or C are ignored. Set init='custom' to use them.",
            RuntimeWarning,
        )
    make = _from_clusters if spec.init == "kmeans" else _random
    seeds = rng.randint(np.iinfo(np.int32).max, size=spec.n_init)
    return [partial(make, X, k, seed) for seed in seeds]


def _random(X: Any, k: int, seed: int) -> tuple[AnyArray, AnyArray]:
    """Return uniformly random V and C, with columns of C that sum to one."""
    V, C = np.random.RandomState(seed).uniform(size=(2, X.shape[0], k)).astype(X.dtype)
    return V, C / C.sum(axis=0)


def _from_clusters(X: Any, k: int, seed: int) -> tuple[AnyArray, AnyArray]:
    """Return initial V and C from a k-means clustering of the samples.

    V is the cluster membership plus 0.2, and C computes the cluster means. With a kernel, the
    samples are clustered and not their images; with a precomputed kernel, the rows of K are
    clustered.
    """
    n = X.shape[0]
    labels = clustered(X, k, 10, np.random.RandomState(seed)).labels_
    member = np.zeros((n, k), dtype=X.dtype)
    member[np.arange(n), labels] = 1
    V = member + X.dtype.type(0.2)
    sizes = np.maximum(member.sum(axis=0), 1)
    return V, (member + X.dtype.type(0.2 / k)) / sizes


# -- third step of a fit: solve the problem -----------------------------------------------------


def solve_concepts(
    spec: Description, problem: ConceptProblem, report: Report = None
) -> FittedFactors:
    """Return V and C with the lowest objective of all restarts."""
    model = problem.model
    runs = [_run(problem, number, report) for number in range(len(problem.starts))]
    found = min(runs, key=lambda run: run.history[-1])
    if not found.history[-1] >= -1e-3 * abs(model.constant):
        problem.kernel.refuse(found.history[-1])
    V, C, objective = found.Z, found.U, found.history[-1]
    if not STEPS[problem.solver].multiplicative:
        sub = model.codes(C)
        # The last solve for V begins where `transform` begins, if the result is no worse. If
        # concepts are almost collinear, equally good part weights can be far apart.
        # the size of rounding errors
        slack = 1e-9 * abs(objective) + 32 * model.eps * model.constant
        for start in (code_start(sub), V):
            final = solve_exactly(sub, start)
            if sub.value(final) <= objective + slack:
                V, objective = final, sub.value(final)
                found.history[-1] = min(objective, found.history[-1])
                break
    residual = residual_at(model, {"V": V, "U": C}, objective, spec.tol)
    warn_unless_converged(spec, found)
    return FittedFactors(V, C, objective, residual, found)


def _run(problem: ConceptProblem, number: int, report: Report) -> Solution:
    """Return the solution of one restart."""
    model, settings = problem.model, problem.settings
    V, C = problem.starts[number]()
    # The columns of C sum to one, so that the concepts are averages of samples. If concepts were
    # far from all samples, the locality penalty would set V to zero.
    if not STEPS[problem.solver].multiplicative:
        C = C / np.maximum(C.sum(axis=0), np.finfo(C.dtype).tiny)
        V = model.fit_scale(V, C)
    try:
        return alternate(model, V, C, STEPS[problem.solver], settings, report and report(number))
    except np.linalg.LinAlgError:  # the factors became infinite
        if problem.kernel.kind == "linear":
            raise
        problem.kernel.refuse(-np.inf)


# -- fourth step of a fit: set attributes -------------------------------------------------------


def publish_concepts(
    estimator: Any,
    spec: Description,
    checked: Checked,
    problem: ConceptProblem,
    found: FittedFactors,
) -> AnyArray:
    """Set the fitted attributes of the CF or LCF estimator and return V."""
    X, model, C = checked.X, problem.model, found.U
    publish_groups(estimator, spec, checked.knowledge, checked.k)
    estimator._n_components = estimator.n_components_ = checked.k
    estimator.concept_weights_, estimator.embedding_ = C, found.Z
    estimator._basis_gram = C.T @ model.product(C)
    for name in ("components_", "_X_fit"):
        vars(estimator).pop(name, None)
    if problem.kernel.kind == "linear":
        estimator.components_ = np.ascontiguousarray((X.T @ C).T)
    elif problem.kernel.kind != "precomputed":
        estimator._X_fit = X.copy()  # a copy, because the user may change X
    estimator.objective_ = max(found.objective, 0.0)
    # negative values are rounding errors
    estimator.objective_history_ = np.maximum(found.solution.history, 0)
    estimator.reconstruction_err_ = float(np.sqrt(2 * estimator.objective_))
    publish_ending(estimator, problem.solver, found)
    return found.Z


# -- part weights of new samples ----------------------------------------------------------------


def code_start(sub: Codes) -> AnyArray:
    """Return initial part weights for the subproblem in V."""
    k, G = sub.C.shape[1], np.asarray(sub.G)
    lengths = np.broadcast_to(np.diag(G), sub.C.shape)
    return np.maximum(ratio(sub.C, k * lengths), 0).astype(sub.C.dtype)


def new_codes(estimator: Any, kernel: Kernel, X: Any) -> Codes:
    """Return the problem of the part weights of new samples, for a fitted CF or LCF."""
    C, locality = estimator.concept_weights_, estimator.locality
    if kernel.kind == "linear":
        KC = np.asarray(X @ estimator.components_.T.astype(X.dtype, copy=False))
        a = np.asarray(as_data(X).row_sq_norms(), dtype=X.dtype)
    elif kernel.kind == "precomputed":
        if locality:
            raise ValueError(
                "LCF with kernel='precomputed' cannot transform new samples, because it needs "
                "k(x, x) of each; use a named kernel."
            )
        KC = np.asarray(X @ C)
        # k(x, x) is constant and does not change the minimiser
        a = np.zeros(X.shape[0], dtype=X.dtype)
    else:
        KC = kernel.matrix(X, estimator._X_fit) @ C
        a = kernel.diagonal(X)
    return code_problem(a, KC, estimator._basis_gram.astype(X.dtype, copy=False), locality)
