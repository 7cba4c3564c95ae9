"""The last step of a fit: what it found, as attributes of the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import as_data
from partwise.backends.array_api import DeviceDense, DeviceSparse
from partwise.backends.arrays import (
    AnyArray,
    Array,
    cast,
    column_sums64,
    contiguous,
    namespace,
    to_numpy,
)
from partwise.evaluation.groups import Groups
from partwise.fitting.checking.warning import warn
from partwise.fitting.description import Checked, Description, Found, Knowledge, Problem
from partwise.fitting.new_samples import code_model, parts_divisor, solve_new
from partwise.fitting.stating import component_owners
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import GraphDivergence
from partwise.model.l21 import RowLengths


def publish(
    estimator: Any, spec: Description, checked: Checked, problem: Problem, found: Found
) -> AnyArray:
    """Set the attributes; returns V."""
    vars(estimator).pop("_neighborhood", None)
    if problem.knowledge.neighbors is not None and spec.graph_reg:
        estimator._neighborhood = dict(vars(problem.knowledge.neighbors))
    for term in problem.model.terms["V"]:
        if isinstance(term, GraphDivergence):
            estimator.cg_iterations_ = term.cg_iterations
    V = publish_factors(estimator, spec, checked, problem, found)
    publish_ending(estimator, problem.solver, found)
    if spec.mixed_labels:
        publish_distributions(estimator, problem)
    if spec.labelled:
        publish_groups(estimator, spec, problem.knowledge, checked.k)
        _refine_groups(estimator, spec, checked, problem)
    return V


def publish_factors(
    estimator: Any, spec: Description, checked: Checked, problem: Problem, found: Found
) -> AnyArray:
    """Set part weights, parts and objective in the units of X and of the sample weights."""
    model, Z, U = problem.model, found.Z, found.U
    loss = found.objective - model.penalty("V", Z, U) - model.penalty("U", Z, U)
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
    return V


def factors(checked: Checked, problem: Problem, Z: Array, U: Array) -> tuple[AnyArray, AnyArray]:
    """Return V and H = Uᵀ for the user."""
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

    Without a penalty, v_k and u_k can be multiplied by c and 1/c at no cost, so a fit has to choose
    c. This choice gives classifiers and k-means on V part weights of equal size, whatever the units
    and the number of samples and features are. Nothing changes if the scale of a component matters:
    with penalties, constraints, smoothing, known entries, the authors' procedure, or a loop of the
    estimator's own.
    """
    scaled = spec.printed or spec.own_fit or spec.project or model.unit or model.S.delta
    if scaled or model.terms["V"] or model.terms["U"]:
        return Z, U
    lengths = root_mean_squares(model.expand(Z), model.weights)
    lengths = lengths * float(np.sqrt(checked.factor))  # `factors` multiplies by that
    if model.held is not None:
        lengths = lengths * model.held.columns + (1 - model.held.columns)
    return Z / lengths, U * lengths


def root_mean_squares(V: AnyArray, weights: AnyArray | None = None) -> Array:
    """Return the root mean square of each column, over weighted samples; 1 for zero columns."""
    xp = namespace(V)
    largest = xp.max(xp.abs(V), axis=0)
    xp = namespace(largest)  # on a cluster, sums over its samples are here
    largest = xp.where(largest > 0, largest, 1.0)
    shares = V / cast(largest, V.dtype)
    total = V.shape[0] if weights is None else weights.sum()
    squares = column_sums64(shares * shares, weights) / total
    return cast(xp.where(squares > 0, xp.sqrt(squares) * largest, 1.0), V.dtype)


def publish_ending(estimator: Any, solver: str, found: Found) -> None:
    """Store how the solver ended, and warn if it did not converge."""
    estimator.n_iter_ = found.solution.n_iter
    estimator.kkt_residual_ = found.residual
    estimator.status_ = found.solution.status
    estimator.solver_ = solver


def publish_distributions(estimator: Any, problem: Problem) -> None:
    """Store the class probabilities of the fit, with NaN for unlabelled samples."""
    vars(estimator).pop("label_distributions_", None)
    labels = problem.knowledge.labels
    if labels is not None:
        P, mask = labels.probabilities, labels.mask[:, None]
        estimator.label_distributions_ = np.where(mask, P, np.nan)


def publish_groups(estimator: Any, spec: Description, knowledge: Knowledge, k: int) -> None:
    """Store what `labels_` and `predict` need; they compute on first use."""
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
    # part weights have no meaningful size if parts cancel each other
    unit, links = spec.free_parts, knowledge.links
    estimator._groups = Groups(int(size), spec.seed, labels, links=links, unit=unit)


def _refine_groups(estimator: Any, spec: Description, checked: Checked, problem: Problem) -> None:
    """Refine groups with what a factorization of X itself provides."""
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
    """Return part weights of the labelled samples by `transform`, which ignores their labels.

    A label bends a sample's code away from those of its class that have none, and what is
    learnt on bent codes does not hold for the others.
    """
    labels, graph = problem.knowledge.labels, problem.knowledge.graph
    assert labels is not None
    rows, data = np.flatnonzero(labels.mask), problem.model.data
    X: Any = getattr(data, "X", None)
    on_device = isinstance(data, DeviceDense) and not isinstance(data, DeviceSparse)
    local = on_device or isinstance(X, np.ndarray) or sp.issparse(X)  # elsewhere all are coded
    if local:
        data = as_data(X[data.rows(rows) if on_device else rows])
        graph = None if graph is None else graph[rows]
    edges = graph if spec.graph_reg else None
    model = code_model(estimator, spec, data, data, edges, checked.factor)
    divisor = parts_divisor(estimator, spec)
    codes = model.data.result(solve_new(estimator, spec, model, divisor)[0])
    codes = np.asarray(to_numpy(codes)) * (checked.factor / divisor)
    return codes if local else codes[rows]
