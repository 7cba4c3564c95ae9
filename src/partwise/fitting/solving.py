"""Third and fourth steps of a fit: run the restarts and publish the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from partwise.backends import as_data
from partwise.backends.array_api import DeviceDense, DeviceSparse
from partwise.backends.arrays import (
    AnyArray,
    Array,
    cast,
    clip_at_zero,
    column_sums64,
    contiguous,
    float64,
    inner64,
    namespace,
    norm64,
    to_numpy,
)
from partwise.backends.data_matrix import InNumpy
from partwise.backends.numpy.float64_products import FromSingle
from partwise.backends.threads import one_blas_thread
from partwise.evaluation.groups import Groups
from partwise.fitting.description import (
    Checked,
    Description,
    FittedFactors,
    Knowledge,
    Problem,
    warn,
)
from partwise.fitting.new_samples import code_model, parts_divisor, solve_new
from partwise.fitting.stating import component_owners, step_for
from partwise.model.factor_model import FactorModel, column_lengths, unit_columns
from partwise.model.graph_terms import GraphDivergence
from partwise.model.l21 import RowLengths
from partwise.model.subproblems import Quadratic, Subproblem
from partwise.solvers.checkpoint import Checkpoint
from partwise.solvers.loop import Solution, alternate, residual_at, shifted
from partwise.solvers.many_starts import solve_many
from partwise.solvers.steps import STEPS, solve_codes

#: Number of power iterations that compute a new part to replace an empty one.
POWERS = 10
_suppressed: ContextVar[bool] = ContextVar("suppressed", default=False)
#: Number of iterations of each restart in the procedure of the GNMF paper's authors. Only the best
#: restart continues after them.
TRIAL_ITER = 30

#: Function that takes the number of a restart, and returns the function to call in each of its
#: iterations. None if there are no callbacks and no verbose output.
Report = Callable[[int], Callable[[int, Solution], bool]] | None


def solve(
    spec: Description, problem: Problem, report: Report = None, keeper: Checkpoint | None = None
) -> FittedFactors:
    """Return the final factors of the best restart, with their objective."""
    # Partwise's own threads divide large products, so BLAS is limited to one thread. Setting that
    # limit for each product would take as long as a small product.
    with one_blas_thread if isinstance(problem.model.R, InNumpy) else nullcontext():
        if spec.printed:
            solution = as_printed(problem, report, keeper)
        else:
            # `min` returns the first of several equal objectives
            runs = solutions(problem, report, keeper)
            solution = min(runs, key=lambda solution: solution.history[-1])
            by_hand = STEPS[problem.solver].multiplicative or spec.project or spec.free_parts
            if solution.converged and not by_hand:
                solution = with_empty_parts_filled(spec, problem, solution)
        return finish(spec, problem, solution)


def solutions(
    problem: Problem, report: Report = None, keeper: Checkpoint | None = None
) -> Iterator[Solution]:
    """Yield the solution of each restart; restarts run in parallel if that is faster."""
    model, settings = problem.model, problem.settings
    if len(problem.starts) > 1 and report is None and model.loss.beta == 2:
        yield from solve_many(model, problem.starts, settings)
        return
    for number, start in enumerate(problem.starts):
        Z, U, step = start()
        yield alternate(model, Z, U, step, settings, report and report(number), keeper)


def with_empty_parts_filled(spec: Description, problem: Problem, solution: Solution) -> Solution:
    """Return the solution, improved by replacing parts that a penalty set to zero.

    If a part and its part weights are both zero, no single step can change either of them, even if
    the part would explain much of X. Such a part is set to explain the residual, and the fit
    continues as long as this lowers the objective.
    """
    model, settings = problem.model, problem.settings
    if model.loss.beta != 2 or model.project:
        return solution
    rng, step = np.random.RandomState(0), step_for(spec, problem.solver, np.random.RandomState(0))
    while solution.converged and settings.max_iter > solution.n_iter:
        begun = _filled(model, solution.Z, solution.U, rng)
        if begun is None:
            break
        new = alternate(model, *begun, step, replace(settings, done=solution.n_iter))
        if not new.history[-1] < (1 - settings.tol) * solution.history[-1]:
            break
        # the earlier solution stays the best until the new objective is lower
        new.history = [*solution.history, *np.minimum(new.history, solution.history[-1]).tolist()]
        solution = new
    return solution


def _filled(
    model: FactorModel, Z: Array, U: Array, rng: np.random.RandomState
) -> tuple[Array, Array] | None:
    """Return the factors with each empty part replaced by a part of the residual.

    The new part is the positive part of the residual's first singular vectors, computed by the
    power method. Its scale is divided between V and U as for the other parts. The result is None if
    no part is empty, or if the residual is zero.
    """
    of_V, of_U = (to_numpy(float64(column_lengths(F, 2))) for F in (Z, U))
    live = of_V * of_U > 0
    if live.all() or not live.any():
        return None
    lean = float(np.exp(0.5 * np.mean(np.log(of_V[live] / of_U[live]))))
    filled, dtype = False, model.data.dtype
    for j in np.flatnonzero(~live):
        here = model.data.small(np.eye(1, len(live), int(j), dtype=dtype))
        Z, U = Z * (1 - here), U * (1 - here)
        u = model.data.small(rng.uniform(size=U.shape).astype(dtype)) * here
        for _ in range(POWERS):
            v = _left(model.subproblem("V", Z, U + u), Z) * here
            v = v / (norm64(v) or 1.0)
            sub = model.subproblem("U", Z + v, U)
            u = _left(sub, U) * here
            length = norm64(u)
            if not length:
                break
            u = u / length
        else:
            assert isinstance(sub, Quadratic)
            # Use a Python float, because a numpy float64 would convert float32 factors to float64.
            root = float(np.sqrt(length / float(to_numpy(sub.G)[j, j])))
            Z, U, filled = Z + v * (root * lean), U + u * (root / lean), True
    return (Z, U) if filled else None


def _left(sub: Subproblem, F: Array) -> Array:
    """Return the positive part of the negative gradient with respect to a factor."""
    neg, pos = sub.halves(F)
    return clip_at_zero(neg - pos)


def as_printed(
    problem: Problem, report: Report = None, keeper: Checkpoint | None = None
) -> Solution:
    """Return the solution by the paper authors' procedure.

    Each restart begins with columns of length one and runs 30 iterations. The best one then
    continues.
    """
    model, settings = problem.model, problem.settings
    begun = []
    for start in problem.starts:
        Z, U, step = start()
        history: list[float] = []
        if len(problem.starts) > 1:
            trial = alternate(model, Z, U, step, replace(settings, max_iter=TRIAL_ITER))
            Z, U, history = trial.Z, trial.U, trial.history
        begun.append((Z, U, step, history))
    Z, U, step, history = min(begun, key=lambda run: run[-1][-1:])
    rest = replace(settings, max_iter=max(0, settings.max_iter - len(history)))
    solution = alternate(model, Z, U, step, rest, report and report(0), keeper)
    solution.history = [*history, *solution.history]
    solution.n_iter = len(solution.history)
    solution.status = f"ran {solution.n_iter} iterations as printed, without a tolerance"
    if not model.S.delta:
        solution.Z, solution.U = unit_columns(solution.Z, solution.U, model.loss.unit_norm)
        solution.value = None  # rescaling V changed its penalties
    solution.converged = True
    return solution


def finish(spec: Description, problem: Problem, solution: Solution) -> FittedFactors:
    """Return the factors after a final solve for V, with their KKT residual.

    The final solve is skipped if the model does not allow it or the updates are multiplicative.
    """
    model, solver = problem.model, problem.solver
    Z, U = solution.Z, solution.U
    objective = model.exact_value(Z, U) if solution.value is None else solution.value
    codes, coupled = None, any(term.couples for term in model.terms["V"])
    if STEPS[solver].multiplicative:
        Z, U, objective = _flush(model, Z, U, objective)
    elif model.rows is None and not (model.project.get("V") or coupled):
        step, codes = STEPS[solver], model.subproblem("V", Z, U)
        final, _ = solve_codes(model, Z, U, step, tol=spec.tol, max_iter=spec.max_iter, sub=codes)
        value = _value_after(model, codes, final, Z, U, objective)
        if value <= objective * (1 + 1e-9):
            Z, objective = final, value
            # the history ends at the returned objective
            solution.history[-1] = min(value, solution.history[-1])
    codes = None if codes is None or codes.local else codes
    residual = residual_at(model, {"V": Z, "U": U}, objective, spec.tol, codes)
    if solution.converged and problem.settings.stationary and residual > problem.settings.tol > 0:
        # The solve for V lowered the objective, but the parts may be farther from stationary now.
        solution.status += f"; {residual:.1e} with the codes solved to the end"
    warn_unless_converged(spec, solution)
    if isinstance(model.data, FromSingle):
        Z, U, objective = _rounded(problem, Z, U, objective, solution)
    return FittedFactors(Z, U, objective, residual, solution)


def _rounded(
    problem: Problem, Z: Array, U: Array, objective: float, solution: Solution
) -> tuple[Array, Array, float]:
    """Return the factors rounded to the user's float type, and their objective.

    The objective is computed again, because rounding can change it. If neighbours agree to five
    digits, for example, rounding to float32 changes a graph penalty by about 1%.
    """
    model = problem.model
    Z, U = (cast(model.data.result(F), F.dtype) for F in (Z, U))
    value = model.exact_value(Z, U)
    least = value if problem.settings.guard else -np.inf
    solution.history[:] = shifted(solution.history, value - objective, least)
    return Z, U, value


def _value_after(
    model: FactorModel,
    codes: Subproblem,
    new: Array,
    old: Array,
    U: Array,
    objective: float,
) -> float:
    """Return the objective at (new, U), computed from the objective at (old, U).

    If the difference is not exact enough, the objective is computed directly.
    """
    if codes.measures_change and not codes.local:
        value = objective + float(codes.change(new, old))
        rounding = 0.0
        if model.eps >= 1e-10:  # in float32, products with X have larger rounding errors
            xp, C = namespace(new), codes.C  # type: ignore[attr-defined]
            rounding = model.eps * float(inner64(xp.abs(C), xp.abs(new - old)))
        if value > 0.5 * objective and rounding <= 1e-6 * value:
            return value
    return model.exact_value(new, U)


@contextmanager
def suppress_convergence_warning() -> Iterator[None]:
    """Suppress convergence warnings of fits in this thread.

    Python's warning filters belong to the whole process, so another thread could reset them.
    """
    token = _suppressed.set(True)
    try:
        yield
    finally:
        _suppressed.reset(token)


def warn_unless_converged(spec: Description, solution: Solution) -> None:
    """Warn if the fit used ``max_iter`` iterations without converging."""
    if _suppressed.get():
        return
    if not solution.converged and spec.tol > 0 and solution.n_iter >= spec.max_iter:
        warn(
            f"Maximum number of iterations {spec.max_iter} reached. "
            "Increase it to improve convergence.",
            ConvergenceWarning,
        )


def _flush(model: FactorModel, Z: Array, U: Array, objective: float) -> tuple[Array, Array, float]:
    """Set entries below the rounding error to zero if the objective does not increase."""
    small = float(np.finfo(model.data.dtype).eps)
    Zf, Uf = (_without_small(M, small) for M in (Z, U))
    value = model.exact_value(Zf, Uf)
    # If such an entry has a penalty, setting the entry to zero can change the objective.
    return (Zf, Uf, value) if value <= objective * (1 + 1e-9) else (Z, U, objective)


def _without_small(M: Array, small: float) -> Array:
    """Return M with zeros in place of entries that are tiny relative to their column."""
    xp = namespace(M)
    size = xp.abs(M)
    return cast(xp.where(small * xp.max(size, axis=0) > size, 0, M), M.dtype)


# -- fourth step of a fit: set attributes of the estimator ----------------------------------------


def publish(
    estimator: Any, spec: Description, checked: Checked, problem: Problem, found: FittedFactors
) -> AnyArray:
    """Set the fitted attributes of the estimator and return V."""
    vars(estimator).pop("_neighborhood", None)
    if problem.knowledge.neighbors is not None and spec.graph_reg:
        estimator._neighborhood = dict(vars(problem.knowledge.neighbors))
    for term in problem.model.terms["V"]:
        if isinstance(term, GraphDivergence):
            estimator.cg_iterations_ = term.cg_iterations
    # Part weights, parts and objective are scaled back to the units of X and of the sample weights.
    model, Z, U = problem.model, found.Z, found.U
    loss = found.objective
    if model.terms["V"] or model.terms["U"]:
        loss = loss - model.penalty("V", Z, U) - model.penalty("U", Z, U)
    grow = checked.factor**model.loss.degree * checked.weight_scale
    V, H = factors(checked, problem, *with_unit_weights(spec, checked, model, Z, U))
    estimator._n_components = estimator.n_components_ = checked.k
    estimator.components_, estimator.embedding_ = H, V
    vars(estimator).pop("l21_epsilon_", None)
    if isinstance(model.loss, RowLengths):
        estimator.l21_epsilon_ = model.loss.epsilon * checked.factor
    estimator.objective_ = found.objective * grow
    estimator.objective_history_ = np.asarray(found.solution.history) * grow
    estimator.reconstruction_err_ = float(np.sqrt(2 * max(loss, 0.0)) * np.sqrt(grow))
    publish_ending(estimator, problem.solver, found)
    if spec.mixed_labels:
        publish_distributions(estimator, problem)
    if spec.labelled:
        publish_groups(estimator, spec, problem.knowledge, checked.k)
        if problem.knowledge.labels is not None or model.weights is not None:
            _refine_groups(estimator, spec, checked, problem)
    return V


def factors(checked: Checked, problem: Problem, Z: Array, U: Array) -> tuple[AnyArray, AnyArray]:
    """Return V and H = Uᵀ in the user's scale, as arrays for the user."""
    data = problem.model.data
    V, H = problem.model.expand(Z), contiguous(U.T)
    if checked.factor != 1:
        V, H = (F * np.sqrt(checked.factor).astype(F.dtype) for F in (V, H))
    if problem.known is not None:
        V, H = problem.known.finish(data, V, H)
    return data.result(V), data.result(H)


def with_unit_weights(
    spec: Description, checked: Checked, model: FactorModel, Z: Array, U: Array
) -> tuple[Array, Array]:
    """Scale components so that each column of V has a root mean square of one.

    Without a penalty, multiplying a column of V by c and dividing the column of U by c costs
    nothing, so a fit has to choose c. This choice gives classifiers and k-means part weights of
    equal size, whatever the units of X and the number of samples and features. Nothing changes if
    the scale of a component matters: with penalties, constraints, smoothing, fixed entries, the
    paper's procedure, or an estimator with its own loop.
    """
    scaled = spec.printed or spec.own_fit or spec.project or model.unit or model.S.delta
    if scaled or model.terms["V"] or model.terms["U"]:
        return Z, U
    lengths = root_mean_squares(model.expand(Z), model.weights)
    lengths = lengths * float(np.sqrt(checked.factor))  # `factors` multiplies V by this root later
    if model.held is not None:
        lengths = lengths * model.held.columns + (1 - model.held.columns)
    return Z / lengths, U * lengths


def root_mean_squares(V: AnyArray, weights: AnyArray | None = None) -> Array:
    """Return the root mean square of each column of V; 1 for columns of zeros.

    ``weights`` are sample weights.
    """
    xp = namespace(V)
    largest = xp.max(xp.abs(V), axis=0)
    xp = namespace(largest)  # sums over a distributed array are local arrays
    largest = xp.where(largest > 0, largest, 1.0)
    shares = V / cast(largest, V.dtype)
    total = V.shape[0] if weights is None else weights.sum()
    squares = column_sums64(shares * shares, weights) / total
    return cast(xp.where(squares > 0, xp.sqrt(squares) * largest, 1.0), V.dtype)


def publish_ending(estimator: Any, solver: str, found: FittedFactors) -> None:
    """Set the attributes that describe how the solver ended, such as ``n_iter_``."""
    estimator.n_iter_ = found.solution.n_iter
    estimator.kkt_residual_ = found.residual
    estimator.status_ = found.solution.status
    estimator.solver_ = solver


def publish_distributions(estimator: Any, problem: Problem) -> None:
    """Store the class probabilities of labelled samples, NaN for unlabelled ones."""
    vars(estimator).pop("label_distributions_", None)
    labels = problem.knowledge.labels
    if labels is not None:
        P, mask = labels.probabilities, labels.mask[:, None]
        estimator.label_distributions_ = np.where(mask, P, np.nan)


def publish_groups(estimator: Any, spec: Description, knowledge: Knowledge, k: int) -> None:
    """Store the settings with which `labels_` and `predict` compute clusters."""
    labels = knowledge.labels
    vars(estimator).pop("classes_", None)
    if labels is not None:
        estimator.classes_ = labels.classes
        if k < labels.n_classes:
            warn(
                f"{spec.estimator_name} has {k} parts for {labels.n_classes} classes, so classes "
                "share parts and differ only in their part weights."
            )
    size = spec.n_clusters or knowledge.n_classes or k
    # The size of part weights has no meaning if parts with negative entries can cancel each other.
    unit, links = spec.free_parts, knowledge.links
    estimator._groups = Groups(int(size), spec.seed, labels, links=links, unit=unit)


def _refine_groups(estimator: Any, spec: Description, checked: Checked, problem: Problem) -> None:
    """Add sample weights, owners of components and label effects to the clustering."""
    groups, labels, model = estimator._groups, problem.knowledge.labels, problem.model
    if model.weights is not None:
        groups.weights = np.asarray(to_numpy(model.weights), dtype=np.float64)
    if labels is None:
        return
    if spec.class_weight:
        groups.owners = component_owners(labels.n_classes, checked.k, spec.components_per_class)
    own = checked.knowledge.labels
    if own is not None and own is not labels:
        groups.given = own.mask
    if labels.n_labelled and spec.uses_labels:
        groups.labelled = _as_if_unlabelled(estimator, spec, checked, problem)


def _as_if_unlabelled(
    estimator: Any, spec: Description, checked: Checked, problem: Problem
) -> AnyArray:
    """Return the part weights of the labelled samples as `transform` computes them.

    During the fit, a label moves a sample's part weights away from those of unlabelled samples of
    the same class. A classifier trained on such part weights would not fit the unlabelled samples.
    """
    labels, graph = problem.knowledge.labels, problem.knowledge.graph
    assert labels is not None
    rows, data = np.flatnonzero(labels.mask), problem.model.data
    X: Any = getattr(data, "X", None)
    on_device = isinstance(data, DeviceDense) and not isinstance(data, DeviceSparse)
    # other arrays: transform all rows
    local = on_device or isinstance(X, np.ndarray) or sp.issparse(X)
    if local:
        data = as_data(X[data.rows(rows) if on_device else rows])
        graph = None if graph is None else graph[rows]
    edges = graph if spec.graph_reg else None
    model = code_model(estimator, spec, data, data, edges, checked.factor)
    divisor = parts_divisor(estimator, spec)
    codes = model.data.result(solve_new(estimator, spec, model, divisor)[0])
    codes = np.asarray(to_numpy(codes)) * (checked.factor / divisor)
    return codes if local else codes[rows]
