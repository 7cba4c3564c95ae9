"""The model of ConstrainedNMF, of which the papers' estimators are named combinations.

An estimator says which pieces it uses (`Pieces`); this file turns labels and a graph into the
map A and the terms, clusters the representation, and codes and names new samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from partwise.engine.arrays import own, to_numpy
from partwise.engine.data import as_data
from partwise.engine.graph_terms import (
    Anchored,
    AnchoredDivergence,
    Graph,
    GraphDivergence,
    Neighbors,
)
from partwise.engine.losses import beta_of, make_loss
from partwise.engine.numeric import Array
from partwise.engine.problem import FactorModel, column_lengths, unit_columns
from partwise.engine.solvers.loop import Settings, alternate
from partwise.engine.solvers.steps import STEPS, check_step
from partwise.engine.terms import Guest, Linear, Term
from partwise.estimators import _inputs
from partwise.estimators._base import elastic_net
from partwise.estimators._callbacks import with_callbacks
from partwise.estimators._grouped import GroupedFactorizer, Knowledge
from partwise.knowledge.graph import check_edges, check_graph, semi_supervised_graph
from partwise.knowledge.graph.neighborhood import Neighborhood, learn_neighborhood
from partwise.knowledge.labels import Labels, SharedRows

GRAPH_CONSTRAINTS: dict[str, Any] = {
    "graph_reg": [Interval(Real, 0, None, closed="left")],
    "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    "weighting": [StrOptions({"binary", "heat", "dot"})],
    "bandwidth": [Interval(Real, 0, None, closed="neither"), None],
}
SCALE_CONSTRAINTS: dict[str, Any] = {"scale": [StrOptions({"unit", "paper"})]}
CLASS_CONSTRAINTS: dict[str, Any] = {
    "class_reg": [Interval(Real, 0, None, closed="left"), None],
    "components_per_class": [Interval(Integral, 1, None, closed="left")],
}


@dataclass(frozen=True)
class Pieces:
    """Which constraints a model has, in the units of the papers."""

    hard_labels: bool = False
    graph_reg: float = 0.0
    label_weight: float | None = None  # None: labels do not change the graph
    class_reg: float = 0.0
    components_per_class: int = 1
    smoothing: float = 0.0
    alpha_W: float = 0.0
    alpha_H: float = 0.0
    l1_ratio: float = 0.0

    @property
    def uses_labels(self) -> bool:
        """Whether labels change the codes, and not only what is made of them."""
        return bool(self.hard_labels or self.class_reg or self.label_weight is not None)

    @property
    def paper_order(self) -> str:
        """Which factor the papers' own updates move first: U in CNMF and cdNMF, V elsewhere."""
        plain = not (self.graph_reg or self.smoothing)
        return "UV" if plain and (self.hard_labels or self.class_reg) else "VU"


class ConstrainedFactorizer(GroupedFactorizer):
    """Base of the estimators that take labels or a graph; a subclass has `_pieces`."""

    _parameter_constraints: dict[str, Any] = {
        **GroupedFactorizer._parameter_constraints,
        "beta_loss": [StrOptions({"frobenius", "kullback-leibler"})],
    }
    scale = "unit"

    def _pieces(self) -> Pieces:
        raise NotImplementedError

    def _penalized(self) -> bool:
        pieces = self._pieces()
        named = pieces.graph_reg or pieces.class_reg or pieces.alpha_W or pieces.alpha_H
        return bool(named or self._own_terms("V") or self._own_terms("U"))

    def _own_terms(self, side: str) -> list[Term]:
        """The user's own terms on V or U; ConstrainedNMF has some."""
        return []

    def _terms_for(self, data: Any, k: int, rows: SharedRows | None, *, new: bool) -> list[Term]:
        """The user's terms, on Z by the chain rule through V = A Z; for new samples what can be."""
        n = data.shape[0]
        terms = [(f"terms[{i}]", term) for i, term in enumerate(self._own_terms("V"))]
        terms = [(name, term) for name, term in terms if not (new and term.of_samples)]
        for name, term in terms:
            term.check((n, k), name)
        return [term if rows is None else Guest(term, rows) for _, term in terms]

    # -- labels and graph ---------------------------------------------------------------------

    def _prepare(self, X: Any, y: Any, **given: Any) -> Knowledge:
        pieces, name = self._pieces(), type(self).__name__
        labels = super()._prepare(X, y).labels
        if pieces.uses_labels and (labels is None or labels.n_labelled == 0):
            warnings.warn(
                f"{name} was given no label: it is the model without labels.",
                UserWarning,
                stacklevel=4,
            )
        elif pieces.hard_labels and labels is not None and labels.counts.max() < 2:
            warnings.warn(
                f"{name}: no class has two labelled samples, so hard labels change nothing; "
                "label at least two samples of a class.",
                UserWarning,
                stacklevel=4,
            )
        graph = given.get("graph")
        neighbors = None
        if graph is not None:
            neighbors = Neighborhood(check_graph(graph, X.shape[0]))
        elif pieces.graph_reg:
            samples, method = _inputs.searchable(X)
            how = (self.n_neighbors, self.weighting, self.bandwidth, method)
            neighbors = learn_neighborhood(samples, *how, self._seed())
        return Knowledge(labels, neighbors)

    def _per_class(self) -> int:
        return self._pieces().components_per_class

    # -- the model ----------------------------------------------------------------------------

    def _model(self, data: Any, k: int, weights: Array | None, extra: Any) -> FactorModel:
        pieces = self._pieces()
        n, p = data.shape
        labels = None if extra is None else extra.labels
        rows = SharedRows(labels, n) if pieces.hard_labels and labels is not None else None
        if rows is not None and rows.is_identity:
            rows = None
        counts = np.ones(1) if rows is None else rows.counts
        terms: list[Term] = elastic_net(
            pieces.alpha_W * p, pieces.l1_ratio, data.dtype, counts[:, None]
        )
        frobenius = beta_of(self.beta_loss) == 2
        if pieces.class_reg and labels is not None and labels.n_labelled:
            # cdNMF (10), (23): the printed λ is halved under ½‖·‖² and γ stays whole under KL
            weight = 0.5 * pieces.class_reg if frobenius else pieces.class_reg
            D = weight * class_cost(labels, k, pieces.components_per_class)
            terms.append(Linear((D if rows is None else rows.reduce(D)).astype(data.dtype)))
        if pieces.graph_reg and extra is not None and extra.graph is not None:
            # GNMF (6): λ tr(VᵀLV) beside ‖·‖² is λ/2 tr(VᵀLV) beside ½‖·‖², which Graph has
            parts = graph_operator(extra.graph, labels, pieces.label_weight, rows, data.dtype)
            make = Graph if frobenius else GraphDivergence
            terms.append(make(*parts, pieces.graph_reg))
        terms += self._terms_for(data, k, rows, new=extra is None)
        terms_U = elastic_net(pieces.alpha_H * n, pieces.l1_ratio, data.dtype)
        for i, term in enumerate(self._own_terms("U")):
            term.check((p, k), f"basis_terms[{i}]")
            terms_U.append(term)
        return FactorModel(
            data,
            make_loss(self.beta_loss),
            rows=rows,
            weights=weights,
            smoothing=pieces.smoothing,
            terms_V=terms,
            terms_U=terms_U,
            unit=self.scale == "unit" and bool(terms) and not terms_U,
        )

    def _code_model(self, data: Any, X: Any, **given: Any) -> FactorModel:
        model = super()._code_model(data, X)
        model.unit = False  # the basis is fixed
        kept = getattr(self, "_neighborhood", None)
        if kept is None or not self._pieces().graph_reg:
            if given.get("graph") is not None:
                raise ValueError("graph is for models that were fitted on one: graph_reg > 0.")
            return model
        W = self._edges(Neighborhood(**kept), X, given.get("graph")).astype(data.dtype)
        V = to_numpy(self.embedding_).astype(data.dtype, copy=False)
        make = Anchored if beta_of(self.beta_loss) == 2 else AnchoredDivergence
        term = make.to(W, V, self._pieces().graph_reg)
        model.add_term("V", term)
        return model

    def _edges(self, neighbors: Neighborhood, X: Any, graph: Any) -> sp.csr_array:
        """Weights between new samples and those of the fit."""
        n, stored = X.shape[0], neighbors.graph.shape[0]
        if graph is not None:
            return check_edges(graph, n, stored)
        if neighbors.samples is None:
            raise ValueError(
                f"{type(self).__name__} was fitted on a graph of your own, so new samples need "
                f"theirs: graph of shape ({n}, {stored}), the weights between new samples and "
                "those of the fit."
            )
        if neighbors.directions is not None:
            return neighbors.edges(X, self.n_neighbors, self.weighting)
        samples, method = _inputs.searchable(X)
        if method == "approximate":
            raise ValueError(
                "new samples of a Dask array are searched for neighbours on its cluster, where a "
                "model that was fitted here has no samples; use X.compute(), by parts if need be."
            )
        return neighbors.edges(samples, self.n_neighbors, self.weighting)

    def _basis(self) -> Array:
        delta = self._pieces().smoothing
        H = self.components_
        return H if delta == 0 else (1 - delta) * H + delta * H.mean(axis=0, keepdims=True)

    def _solver_name(self) -> str:
        name = super()._solver_name()
        beta = beta_of(self.beta_loss)
        own = [*self._own_terms("V"), *self._own_terms("U")]
        if self._pieces().graph_reg and beta == 1:
            if self.solver not in ("auto", "mu"):
                raise ValueError(
                    f"solver={self.solver!r} cannot minimise the KL divergence with a graph; "
                    "solvers that can: mu."
                )
            name = "mu"
        elif self.solver == "auto":
            able = [s for s in (name, "nesterov", "mu") if STEPS[s].does(beta)]
            fits = (s for s in able if all(STEPS[s].takes(term, beta) for term in own))
            name = next(fits, name)
        check_step(name, self.beta_loss, beta, own)
        return name

    def _settings(self, solver: str, model: FactorModel) -> Settings:
        plain = solver == "mu"
        paper = self.scale == "paper"
        stationary = not any(isinstance(t, GraphDivergence) for t in model.terms["V"])
        informed = model.rows is not None or bool(model.terms["V"])  # else it is plain NMF
        return replace(
            super()._settings(solver, model),
            tol=0.0 if paper else self.tol,
            order=self._pieces().paper_order if plain and informed else "VU",
            extrapolate=not plain and not paper,
            guard=not plain and not paper,
            stationary=stationary,
        )

    def _starts(
        self, data: Any, k: int, W: Any, H: Any, weights: Array | None
    ) -> list[Callable[[], tuple[Array, Array, np.random.RandomState]]]:
        if self.scale != "paper" or self.init not in (None, "random"):
            return super()._starts(data, k, W, H, weights)
        # the authors' start: uniform numbers, whatever the scale of X
        n, p = data.shape
        rng = check_random_state(self.random_state)
        several = self.n_init > 1
        seeds = rng.randint(np.iinfo(np.int32).max, size=self.n_init) if several else [None]

        def one(seed: Any) -> tuple[Array, Array, np.random.RandomState]:
            child = np.random.RandomState(seed) if several else rng
            U = child.uniform(size=(p, k)).astype(data.dtype)
            V = child.uniform(size=(n, k)).astype(data.dtype)
            return data.rows(V), data.small(U), child

        return [lambda s=s: one(s) for s in seeds]  # type: ignore[misc]

    def _solve(
        self,
        model: FactorModel,
        makes: list[Callable[[], tuple[Array, Array, np.random.RandomState]]],
        solver: str,
        report: Any,
        keeper: Any,
    ) -> Any:
        if self.scale != "paper":
            if self.init != "custom":
                makes = [partial(start_by_class, model, make) for make in makes]
            return super()._solve(model, makes, solver, report, keeper)
        return self._solve_as_printed(model, makes, solver, report, keeper)

    def _solve_as_printed(
        self, model: FactorModel, makes: list[Any], solver: str, report: Any, keeper: Any
    ) -> Any:
        """The authors' procedure: unit columns, starts of 30 iterations, the best goes on."""
        settings = self._settings(solver, model)
        norm = model.loss.unit_norm
        begun: list[tuple[float, Array, Array, Any, list[float]]] = []
        for make in makes:
            V, U, rng = make()
            if not model.S.delta:
                V, U = unit_columns(V, U, norm)
            step = self._step(solver, rng)
            Z = model.reduce(V)
            if len(makes) == 1:
                begun.append((0.0, Z, U, step, []))
                continue
            trial = alternate(model, Z, U, step, replace(settings, max_iter=30))
            begun.append((trial.history[-1], trial.Z, trial.U, step, trial.history))
        _, Z, U, step, history = min(begun, key=lambda run: run[0])
        rest = max(0, self.max_iter - len(history))
        settings = replace(settings, max_iter=rest)
        solution = alternate(model, Z, U, step, settings, report(0), keeper)
        solution.history = [*history, *solution.history]
        solution.n_iter = len(solution.history)
        solution.status = f"ran {solution.n_iter} iterations as printed, without a tolerance"
        if not model.S.delta:
            solution.Z, solution.U = unit_columns(solution.Z, solution.U, norm)
        solution.converged = True
        return solution

    def _store(self, model: FactorModel, solution: Any, solver: str, k: int, extra: Any) -> Array:
        self.__dict__.pop("_neighborhood", None)
        if extra.neighbors is not None and self._pieces().graph_reg:
            self._neighborhood = dict(vars(extra.neighbors))
        for term in model.terms["V"]:
            if isinstance(term, GraphDivergence):
                self.cg_iterations_ = term.cg_iterations
        V = super()._store(model, solution, solver, k, extra)
        pieces, labels = self._pieces(), extra.labels
        if labels is not None and pieces.class_reg:
            per_class = pieces.components_per_class
            self._groups.owners = component_owners(labels.n_classes, k, per_class)
        if labels is not None and labels.n_labelled and pieces.uses_labels:
            self._groups.labelled = self._as_if_unlabelled(model, labels, extra.graph)
        return V

    def _as_if_unlabelled(self, model: FactorModel, labels: Labels, graph: Any) -> Array:
        """Codes of the labelled samples by `transform`, which does not look at their labels.

        A label bends a sample's code away from those of its class that have none, and what is
        learnt on bent codes does not hold for the others.
        """
        rows, given = np.flatnonzero(labels.mask), {}
        X: Any = getattr(model.data, "X", None)
        local = isinstance(X, np.ndarray) or sp.issparse(X)  # elsewhere all are coded
        data = as_data(X[rows]) if local else model.data
        if graph is not None and self._pieces().graph_reg:
            given["graph"] = graph[rows] if local else graph
        coded = self._code_model(data, data, **given)
        codes = coded.data.result(self._solve_codes(coded, model.factor))
        codes = np.asarray(to_numpy(codes)) * np.sqrt(model.factor)
        return codes if local else codes[rows]

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        entry_weight: Any = None,
        W: Any = None,
        H: Any = None,
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,), default=None
            Labels in any order; -1, None or NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss.
        entry_weight : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Weights >= 0 of the entries in the loss; 0 is an entry not seen.
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        self._fit(X, y, W, H, sample_weight, entry_weight=entry_weight)
        return self

    @with_callbacks
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        *,
        sample_weight: Any = None,
        entry_weight: Any = None,
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        return own(self._fit(X, y, W, H, sample_weight, entry_weight=entry_weight))


class GraphFactorizer(ConstrainedFactorizer):
    """Base of the estimators that take a graph and sample weights."""

    @with_callbacks
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        graph: Any = None,
        sample_weight: Any = None,
        entry_weight: Any = None,
        W: Any = None,
        H: Any = None,
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,), default=None
            Labels in any order; -1, None or NaN where unknown.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            A symmetric non-negative neighbour graph; None builds one where the model uses it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss.
        entry_weight : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Weights >= 0 of the entries in the loss; 0 is an entry not seen.
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        self._fit(X, y, W, H, sample_weight, entry_weight=entry_weight, graph=graph)
        return self

    @with_callbacks
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        *,
        graph: Any = None,
        sample_weight: Any = None,
        entry_weight: Any = None,
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        return own(self._fit(X, y, W, H, sample_weight, entry_weight=entry_weight, graph=graph))

    def transform(self, X: Any, *, graph: Any = None) -> Array:
        r"""Code new samples beside their neighbours, with the basis fixed.

        .. math:: \min_{v\ge0}\ \tfrac12\|x - USv\|^2
                  + \tfrac\lambda2 \sum_j w_j \|v - v_j\|^2

        over the ``n_neighbors`` training samples j nearest to x, with the weights of the training
        graph (its bandwidth, for heat). Under Kullback-Leibler it is
        :math:`D(x\,\|\,USv) + \lambda \sum_j w_j D(v_j\,\|\,v)`, whose solutions are the fixed
        points of GNMF (21) with the neighbours held. A sample that equals one of the fit keeps the
        neighbours it has there. Labels play no part.

        For this the model keeps the training samples and their graph: a copy of X (sparse as it
        came, an ndarray for a tensor), also in its file; for a memmap the map itself, which only
        a file copies; for a Dask array 512 bytes a sample and 128 directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        graph : sparse matrix of shape (n_samples, n_training_samples), default=None
            Weights between new samples and those of the fit. Needed where the fit was given a
            graph; elsewhere it takes the place of the search for neighbours.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return self._plain_transform(X, graph=graph)

    def predict(self, X: Any, *, graph: Any = None) -> Array:
        """The class of each new sample, or its cluster where the fit had no labels.

        As in `CNMF`; ``graph`` as in `transform`.
        """
        return self._predict(X, graph=graph)

    def predict_confidence(self, X: Any, *, graph: Any = None) -> Array:
        """How clear `predict` is about each new sample, in [0, 1]; as in `CNMF`."""
        return self._predict_confidence(X, graph=graph)

    def score(self, X: Any, y: Any = None, *, graph: Any = None) -> float:
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        check_is_fitted(self)
        return self._score(X, graph=graph)


def start_by_class(model: FactorModel, make: Callable[[], Any]) -> tuple[Array, Array, Any]:
    """The start with its components in the order in which the class cost ⟨D, V⟩ is least.

    All else in the objective is the same for any order. Without this a component may begin as
    another class's part, and a strong cost then holds it there.
    """
    V, U, rng = make()
    costs = [t.cost for t in model.terms["V"] if isinstance(t, Linear) and min(t.cost.shape) > 1]
    if costs:
        from scipy.optimize import linear_sum_assignment

        Z = to_numpy(model.reduce(V)) * to_numpy(column_lengths(U, model.loss.unit_norm))
        order = linear_sum_assignment(to_numpy(costs[0]).T @ Z)[1]
        turn = model.data.small(np.eye(len(order), dtype=Z.dtype)[:, order])
        V, U = V @ turn, U @ turn
    return V, U, rng


def component_owners(n_classes: int, k: int, per_class: int) -> Array:
    """Class of each component, in order, ``per_class`` each; -1 for those beyond all classes."""
    owner = np.arange(k) // per_class
    return np.where(owner < n_classes, owner, -1)


def class_cost(labels: Labels, k: int, per_class: int) -> Array:
    """cdNMF's D (n, k): 1 where a labelled sample would use another class's component.

    A class that has no component of its own (k too small) costs nothing.
    """
    owner = component_owners(labels.n_classes, k, per_class)
    codes = labels.codes[:, None]
    D = (codes >= 0) & (owner[None, :] >= 0) & (owner[None, :] != codes)
    homeless = ~np.isin(labels.codes, owner)
    D[homeless] = False
    return D.astype(np.float64)


def graph_operator(
    W: sp.csr_array, labels: Labels | None, label_weight: float | None, rows: Any, dtype: Any
) -> tuple[Neighbors, Array]:
    """Z -> W Z and the degrees, with label cliques implicit and rows shared where they are.

    With ``label_weight``, samples of one label are joined by that weight, samples of different
    labels by none; the clique of a class is its sum minus the sample itself.
    """
    W = sp.csr_array(W).astype(dtype)
    clique = label_weight is not None and labels is not None and labels.n_labelled > 0
    if clique:
        assert labels is not None
        W = semi_supervised_graph(W, labels).astype(dtype)
    degrees = np.asarray(W.sum(axis=1)).ravel().astype(dtype)
    if rows is not None:  # AᵀWA; a clique inside one shared row costs nothing
        coo = W.tocoo()
        r, c = rows.index[coo.coords[0]], rows.index[coo.coords[1]]
        W = sp.csr_array((coo.data, (r, c)), shape=(rows.n_rows, rows.n_rows))
        return Neighbors(W), rows.reduce(degrees).astype(dtype)
    if not clique:
        return Neighbors(W), degrees
    assert labels is not None and label_weight is not None
    mask, codes, weight = labels.mask, labels.codes[labels.mask], dtype.type(label_weight)
    members = sp.csr_array(
        (np.ones(codes.size, dtype=dtype), (codes, np.flatnonzero(mask))),
        shape=(labels.n_classes, mask.size),
    )
    degrees = degrees.copy()
    degrees[mask] += weight * (labels.counts[codes] - 1).astype(dtype)
    return Neighbors(W, members, mask, codes, weight), degrees
