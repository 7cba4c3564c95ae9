"""Part weights of new samples, computed with the parts of a fitted estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from partwise.backends import DataMatrix
from partwise.backends.arrays import Array, to_numpy
from partwise.backends.numpy.float64_products import in_double
from partwise.backends.sweeps import nearly_collinear
from partwise.fitting.checking import (
    check_matrix,
    extreme_factor,
    refuse_full_device,
    rescale_extremes,
    searchable,
    solver_name,
)
from partwise.fitting.description import Description, Knowledge
from partwise.fitting.stating import objective, step_for
from partwise.knowledge.graph import Neighborhood, check_edges
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import Anchored, AnchoredDivergence
from partwise.model.l21 import RowLengths
from partwise.solvers.steps import solve_codes, start_codes


@dataclass(frozen=True, eq=False)
class Coded:
    """Part weights of new samples, with the model that they minimise.

    ``factor`` and ``parts_divisor`` are the numbers by which X and the parts were divided.
    """

    model: FactorModel
    Z: Array
    U: Array
    factor: float = 1.0
    parts_divisor: float = 1.0

    @property
    def codes(self) -> Array:
        """Part weights V in the user's scale."""
        codes, grow = self.model.data.result(self.Z), self.factor / self.parts_divisor
        return codes if grow == 1 else codes * codes.dtype.type(grow)

    @property
    def value(self) -> float:
        """Objective of the new samples, including penalties."""
        grow = float(self.factor**self.model.loss.degree)
        return self.model.exact_value(self.Z, self.U) * grow


def code(estimator: Any, X: Any, graph: Any = None, entry_weight: Any = None) -> Coded:
    """Return the part weights of new samples, for the parts of a fitted estimator."""
    spec = estimator._describe()
    try:
        X, peak = check_matrix(estimator, spec, X, entry_weight, reset=False)
        data, _, _, factor = rescale_extremes(spec, X, peak=peak)
        divisor = parts_divisor(estimator, spec)
        H = to_numpy(estimator.components_).astype(np.float64) / divisor
        data = in_double(data) if nearly_collinear(H @ H.T) else data
        model = code_model(estimator, spec, data, X, graph, factor)
        return Coded(model, *solve_new(estimator, spec, model, divisor), factor, divisor)
    except RuntimeError as error:
        refuse_full_device(error, spec.estimator_name)
        raise


def parts_divisor(estimator: Any, spec: Description) -> float:
    """Return a power of four near the largest entry of the parts if extreme, else 1."""
    if spec.penalized:  # penalties depend on the size of part weights, so nothing is rescaled
        return 1.0
    return extreme_factor(to_numpy(estimator.components_))


def code_model(
    estimator: Any, spec: Description, data: DataMatrix, X: Any, graph: Any, factor: float = 1.0
) -> FactorModel:
    """Return the objective for part weights of new samples.

    It has no labels. A graph penalty connects the new samples with training samples.
    """
    loss = spec.loss
    if isinstance(loss, RowLengths):
        known = vars(estimator).get("l21_epsilon_")  # missing if the parts were set without a fit
        loss = RowLengths(None if known is None else known / factor)
    k = estimator.components_.shape[0]
    pieces = objective(spec, data, k, Knowledge(), new=True)
    kept = vars(estimator).get("_neighborhood")
    if kept is not None and spec.graph_reg:
        W = _edges(spec, Neighborhood(**kept), X, graph).astype(data.dtype)
        V = to_numpy(estimator.embedding_).astype(data.dtype, copy=False)
        make = Anchored if spec.beta == 2 else AnchoredDivergence
        pieces["terms_V"].append(make.to(W, V, spec.graph_reg))
    elif graph is not None:
        raise ValueError("graph needs a model that was fitted with graph_reg > 0.")
    return FactorModel(data, loss, **pieces)


def solve_new(
    estimator: Any, spec: Description, model: FactorModel, divisor: float = 1.0
) -> tuple[Array, Array]:
    """Return part weights of new samples, and the parts divided by ``divisor``.

    Both are on the device of the data.
    """
    data, solver = model.data, solver_name(spec, model.data)
    H = to_numpy(estimator.components_).astype(data.dtype, copy=False)
    if divisor != 1:
        H = H / H.dtype.type(divisor)
    U = data.small(np.ascontiguousarray(H.T))
    step = step_for(spec, solver, check_random_state(spec.random_state))
    Z = start_codes(data, U)
    return solve_codes(model, Z, U, step, tol=spec.tol, max_iter=spec.max_iter)[0], U


def _edges(spec: Description, neighbors: Neighborhood, X: Any, graph: Any) -> sp.csr_array:
    """Return the graph weights between new samples and training samples."""
    n, stored = X.shape[0], neighbors.graph.shape[0]
    if graph is not None:
        return check_edges(graph, n, stored)
    if neighbors.samples is None:
        raise ValueError(
            f"{spec.estimator_name} was fitted with your own graph, so new samples need a graph "
            f"too: pass graph of shape ({n}, {stored}) with the weights between new and training "
            "samples."
        )
    if neighbors.directions is not None:
        return neighbors.edges(X, spec.n_neighbors, spec.weighting)
    samples, method = searchable(X)
    if method == "approximate":
        raise ValueError(
            "neighbours of new samples in a Dask array are searched on its cluster, which does "
            "not hold the training samples of this model; pass X.compute(), if necessary for some "
            "rows at a time."
        )
    return neighbors.edges(samples, spec.n_neighbors, spec.weighting)
