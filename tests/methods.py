"""List of methods for tests, each with its naive formula; a new method needs one entry.

A `Problem` contains all inputs of methods; a `Method` defines which of them the estimator and
`reference` use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

import partwise
import reference

FROBENIUS, KL = "frobenius", "kullback-leibler"
LOSSES = (FROBENIUS, KL)
#: Faster solvers for each loss, in addition to "mu".
FASTER = {FROBENIUS: ("hals", "nesterov"), KL: ("newton",)}


@dataclass(frozen=True)
class Problem:
    """Samples with zeros, labels of three classes, a weighted graph, and initial factors."""

    X: np.ndarray
    y: np.ndarray
    W: np.ndarray
    gamma: np.ndarray
    V: np.ndarray
    U: np.ndarray
    C: np.ndarray

    @property
    def k(self) -> int:
        return self.V.shape[1]

    @property
    def graph(self) -> sp.csr_array:
        return sp.csr_array(self.W)

    @property
    def A(self) -> np.ndarray:
        return reference.label_matrix(self.y)

    def D(self, per_class: int = 1) -> np.ndarray:
        """Return the class costs; unlike in the papers, classes without components cost 0."""
        D = reference.class_cost(self.y, self.k, per_class)
        D[self.y >= -(-self.k // per_class)] = 0.0
        return D

    def S(self, delta: float) -> np.ndarray:
        return reference.smoothing_matrix(self.k, delta)

    def labelled_graph(self, weight: float) -> np.ndarray:
        return reference.label_graph(self.W, self.y, weight)


def make_problem(seed: int = 0, n: int = 28, p: int = 17, k: int = 4, *, gaps: bool = True):
    """Return a problem with noisy parts.

    With `gaps` it has many zeros, a zero sample and a zero feature. There are four components for
    three classes, so that one component belongs to no class.
    """
    rng = np.random.default_rng(seed)
    parts = rng.exponential(size=(k, p)) * (rng.random((k, p)) < 0.5)
    X = rng.exponential(size=(n, k)) @ parts + 0.2 * rng.random((n, p))
    if gaps:
        X *= rng.random((n, p)) < 0.7
        X[5], X[:, 2] = 0.0, 0.0
    y = np.where(rng.random(n) < 0.5, rng.integers(0, 3, size=n), -1)
    y[:6] = [2, 0, -1, 1, 0, 2]
    W = np.triu(rng.random((n, n)) < 4 / n, 1) * rng.integers(1, 4, size=(n, n)) / 2
    return Problem(
        X=X,
        y=y,
        W=W + W.T,
        gamma=0.5 + rng.random(n),
        V=0.1 + rng.random((n, k)),
        U=0.1 + rng.random((p, k)),
        C=(0.1 + rng.random((n, k))) / n,
    )


def make_clear_problem(seed: int = 0, n: int = 40, p: int = 24, k: int = 4) -> Problem:
    """Return samples that each use one block of features, and a start close to these blocks.

    There is one local minimum, so that results of solvers can be compared.
    """
    rng = np.random.default_rng(seed)
    member, block = np.arange(n) % k, np.arange(p) % k
    V, U = 0.1 * rng.random((n, k)), 0.1 * rng.random((p, k))
    V[np.arange(n), member] += 1 + rng.random(n)
    U[np.arange(p), block] += 1 + rng.random(p)
    same = member[:, None] == member[None, :]
    W = np.triu(same & (rng.random((n, n)) < 0.4), 1).astype(float)
    return Problem(
        X=V @ U.T + 0.05 * rng.random((n, p)),
        y=np.where((rng.random(n) < 0.4) & (member < 3), member, -1),
        W=W + W.T,
        gamma=0.5 + rng.random(n),
        V=0.5 + 0.5 * rng.random((n, k)) + 0.5 * np.eye(k)[member],
        U=0.5 + 0.5 * rng.random((p, k)) + 0.5 * np.eye(k)[block],
        C=(0.1 + rng.random((n, k))) / n,
    )


@dataclass(frozen=True)
class Method:
    """One estimator with parameters, and its naive formula.

    `naive(problem, V, U, n_iter)` is the paper's procedure from `reference`, without scaling.
    `terms(problem)` are the keyword arguments of `reference.objective_*`, and `A` of V = A Z for
    hard labels.
    """

    name: str
    estimator: Any
    params: dict[str, Any]
    naive: Callable[..., Any]
    terms: Callable[[Problem], dict[str, Any]] = lambda q: {}
    labels: bool = False
    graph: bool = False
    weights: bool = False
    hard: bool = False
    paper_solver: str = "mu"
    unscaled: bool = False  # as S mixes columns, scale="paper" does not change their norms
    # Solvers in addition to "mu"; if empty, all solvers of the loss.
    solvers: tuple[str, ...] = field(default=())
    everywhere: bool = False  # tests compare all back ends with this method, entry by entry

    @property
    def loss(self) -> str:
        return self.params.get("beta_loss", FROBENIUS)

    @property
    def faster(self) -> tuple[str, ...]:
        if self.solvers:
            return self.solvers
        return () if self.graph and self.loss == KL else FASTER[self.loss]

    @property
    def has_scale(self) -> bool:
        return "scale" in inspect.signature(self.estimator).parameters

    @property
    def exact(self) -> bool:
        """Whether the update never raises the objective: all but (21) of the GNMF paper."""
        return not (self.graph and self.loss == KL)

    @property
    def norm(self) -> int:
        return 2 if self.loss == FROBENIUS else 1

    def make(self, solver: str = "mu", scale: str = "paper", **params: Any) -> Any:
        settings = {"tol": 0.0, "random_state": 0, **self.params, "solver": solver, **params}
        if self.has_scale:
            settings["scale"] = scale
        return self.estimator(settings.pop("n_components", 4), **settings)

    def data(self, q: Problem) -> dict[str, Any]:
        """Return y, graph and sample_weight as far as the method uses them."""
        given: dict[str, Any] = {"y": q.y} if self.labels else {}
        if self.graph:
            given["graph"] = q.graph
        if self.weights:
            given["sample_weight"] = q.gamma
        return given

    def fit(self, q: Problem, solver: str = "mu", scale: str = "paper", **params: Any) -> Any:
        """Fit the estimator from the initial factors of the problem."""
        model = self.make(solver, scale, init="custom", **params)
        return model.fit(q.X, W=q.V, H=np.ascontiguousarray(q.U.T), **self.data(q))

    def objective(self, q: Problem, V: np.ndarray, U: np.ndarray) -> float:
        value = reference.objective_frobenius if self.loss == FROBENIUS else reference.objective_kl
        return value(q.X, V, U, **self.terms(q))

    def model(self, q: Problem, scale: str = "paper") -> Any:
        """Return the `FactorModel` that the estimator builds for the problem."""
        from partwise.backends import as_data
        from partwise.fitting.description import FitInputs
        from partwise.fitting.knowledge_checks import check_knowledge
        from partwise.fitting.stating import objective
        from partwise.model.factor_model import FactorModel
        from partwise.model.losses import make_loss

        what, given, data = self.make("mu", scale)._describe(), self.data(q), as_data(q.X)
        knowledge = check_knowledge(what, FitInputs(**given), len(q.X), "mu")
        pieces = objective(what, data, q.k, knowledge)
        weights = given.get("sample_weight")
        return FactorModel(data, make_loss(self.loss), weights=weights, **pieces)


def combination(
    loss: str,
    *,
    hard: bool = False,
    graph: float = 0.0,
    label_weight: float | None = None,
    class_reg: float = 0.0,
    per_class: int = 1,
    smoothing: float = 0.0,
    elastic: tuple[float, float, float] | None = None,
    weights: bool = False,
    name: str = "",
) -> Method:
    """Return a `Method` for `ConstrainedNMF` with a set of constraints."""

    def terms(q: Problem) -> dict[str, Any]:
        n, p = q.X.shape
        out: dict[str, Any] = {}
        if graph:
            # Edges between samples that share a row of Z cost nothing, and our step leaves them out
            # too.
            weight = 0.0 if hard else label_weight
            W = q.W if label_weight is None else q.labelled_graph(weight)
            out |= {"W": W, "lam": graph}
        if class_reg:
            out |= {"D": q.D(per_class), "class_reg": class_reg}
        if smoothing:
            out["S"] = q.S(smoothing)
        if weights:
            out["gamma"] = q.gamma
        if elastic:  # penalties are scaled by the size of the other side, as in scikit-learn
            on_V, on_U, l1 = elastic[0] * p, elastic[1] * n, elastic[2]
            out |= {"l1_V": on_V * l1, "l2_V": on_V * (1 - l1)}
            out |= {"l1_U": on_U * l1, "l2_U": on_U * (1 - l1)}
        return out

    # The programs of GNMF, nsNMF and NMF-DC update V first. CNMF and cdNMF print U first.
    order = "UV" if (hard or class_reg) and not (graph or smoothing) else "VU"
    run = reference.constrained_frobenius if loss == FROBENIUS else reference.constrained_kl

    def naive(q: Problem, V: np.ndarray, U: np.ndarray, n_iter: int) -> Any:
        A = q.A if hard else None
        return run(q.X, V, U, n_iter, A=A, order=order, **terms(q))

    params: dict[str, Any] = {"beta_loss": loss, "hard_labels": hard, "graph_reg": graph}
    params |= {"label_weight": label_weight, "class_reg": class_reg, "smoothing": smoothing}
    params["components_per_class"] = per_class
    if elastic:
        params |= dict(zip(("alpha_W", "alpha_H", "l1_ratio"), elastic))
    chosen = [
        word
        for word, there in {
            "hard": hard,
            "graph": graph,
            "cliques": label_weight is not None,
            "class": class_reg,
            "smooth": smoothing,
            "net": elastic,
            "weights": weights,
        }.items()
        if there
    ]
    return Method(
        name or "+".join(["any", *chosen, loss[:1]]),
        partwise.ConstrainedNMF,
        params,
        naive,
        terms,
        labels=bool(hard or class_reg or label_weight is not None),
        graph=bool(graph),
        weights=weights,
        hard=hard,
        unscaled=bool(smoothing),
    )


GRAPH, CLASS, DELTA, CLIQUE = 3.0, 1.5, 0.4, 0.7


def _kl(**params: Any) -> dict[str, Any]:
    return {"beta_loss": KL, **params}


def _graph_terms(q: Problem) -> dict[str, Any]:
    return {"W": q.W, "lam": GRAPH}


def _weighted_graph_terms(q: Problem) -> dict[str, Any]:
    return {"W": q.W, "lam": GRAPH, "gamma": q.gamma}


def _clique_terms(q: Problem) -> dict[str, Any]:
    return {"W": q.labelled_graph(CLIQUE), "lam": GRAPH}


def _class_terms(q: Problem) -> dict[str, Any]:
    return {"D": q.D(), "class_reg": CLASS}


def _smooth_terms(q: Problem) -> dict[str, Any]:
    return {"S": q.S(DELTA)}


def _semi(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, V, U, n: run(q.X, V, U, n, W=q.W, y=q.y, lam=GRAPH, label_weight=CLIQUE)


def _plain(run: Callable[..., Any], terms: Callable[[Problem], dict[str, Any]]) -> Any:
    return lambda q, V, U, n: run(q.X, V, U, n, **terms(q))


def _hard(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, V, U, n: run(q.X, V, U, n, A=q.A)


_R, _P = reference, partwise
#: Methods of the papers, each with its naive formula.
NAMED = [
    Method("NMF", _P.NMF, {}, _plain(_R.nmf_frobenius, lambda q: {}), everywhere=True),
    Method("NMF-KL", _P.NMF, _kl(), _plain(_R.nmf_kl, lambda q: {}), everywhere=True),
    Method("GNMF", _P.GNMF, {"graph_reg": GRAPH}, _plain(_R.gnmf_frobenius, _graph_terms),
           _graph_terms, graph=True, everywhere=True),
    Method("GNMF-weighted", _P.GNMF, {"graph_reg": GRAPH},
           _plain(_R.gnmf_frobenius, _weighted_graph_terms), _weighted_graph_terms,
           graph=True, weights=True),
    Method("GNMF-KL", _P.GNMF, _kl(graph_reg=GRAPH), _plain(_R.gnmf_kl, _graph_terms),
           _graph_terms, graph=True, everywhere=True),
    Method("GNMF-KL-weighted", _P.GNMF, _kl(graph_reg=GRAPH),
           _plain(_R.gnmf_kl, _weighted_graph_terms), _weighted_graph_terms,
           graph=True, weights=True),
    Method("SemiGNMF", _P.SemiGNMF, {"graph_reg": GRAPH, "label_weight": CLIQUE},
           _semi(_R.semi_gnmf_frobenius), _clique_terms, graph=True, labels=True),
    Method("SemiGNMF-KL", _P.SemiGNMF, _kl(graph_reg=GRAPH, label_weight=CLIQUE),
           _semi(_R.semi_gnmf_kl), _clique_terms, graph=True, labels=True),
    Method("CNMF", _P.CNMF, {}, _hard(_R.cnmf_frobenius), labels=True, hard=True,
           everywhere=True),
    Method("CNMF-KL", _P.CNMF, _kl(), _hard(_R.cnmf_kl), labels=True, hard=True,
           everywhere=True),
    Method("CDNMF", _P.CDNMF, {"class_reg": CLASS}, _plain(_R.cdnmf_frobenius, _class_terms),
           _class_terms, labels=True, everywhere=True),
    Method("CDNMF-KL", _P.CDNMF, _kl(class_reg=CLASS), _plain(_R.cdnmf_kl, _class_terms),
           _class_terms, labels=True, everywhere=True),
    Method("NMFDC", _P.NMFDC, {"smoothing": DELTA, "inner_iter": 7},
           lambda q, V, U, n: _R.nmfdc_nesterov(q.X, V, U, n, A=q.A, delta=DELTA, inner_iter=7),
           _smooth_terms, labels=True, hard=True, paper_solver="nesterov", everywhere=True),
    Method("NSNMF", _P.NSNMF, {"smoothing": DELTA},
           lambda q, V, U, n: _R.nsnmf_frobenius(q.X, V, U, n, delta=DELTA), _smooth_terms),
    Method("NSNMF-KL", _P.NSNMF, _kl(smoothing=DELTA),
           lambda q, V, U, n: _R.nsnmf_kl(q.X, V, U, n, delta=DELTA), _smooth_terms),
]  # fmt: skip

#: Every subset of six constraints under both losses: 128 methods.
EVERY_COMBINATION = [
    combination(
        loss,
        hard=bool(bits & 1),
        graph=GRAPH if bits & 2 else 0.0,
        class_reg=CLASS if bits & 4 else 0.0,
        smoothing=DELTA if bits & 8 else 0.0,
        elastic=(0.004, 0.003, 0.4) if bits & 16 else None,
        weights=bool(bits & 32),
    )
    for loss in LOSSES
    for bits in range(64)
]

#: A few combinations of constraints for slower tests.
COMBINED = [
    combination(FROBENIUS, graph=GRAPH, class_reg=CLASS),
    combination(FROBENIUS, hard=True, graph=GRAPH, label_weight=CLIQUE, class_reg=CLASS),
    combination(FROBENIUS, hard=True, class_reg=CLASS, smoothing=DELTA),
    combination(FROBENIUS, graph=GRAPH, label_weight=CLIQUE, elastic=(0.004, 0.0, 0.5)),
    combination(FROBENIUS, hard=True, graph=GRAPH, elastic=(0.004, 0.003, 0.4), weights=True),
    combination(FROBENIUS, class_reg=CLASS, per_class=2, weights=True),
    combination(KL, hard=True, class_reg=CLASS),
    combination(KL, class_reg=CLASS, smoothing=DELTA, elastic=(0.004, 0.0, 0.5)),
    combination(KL, hard=True, graph=GRAPH, class_reg=CLASS),
    combination(KL, hard=True, class_reg=CLASS, elastic=(0.004, 0.003, 0.4), weights=True),
]
METHODS = NAMED + COMBINED


def names(methods: list[Method]) -> list[str]:
    return [m.name for m in methods]


def assert_close(got: Any, expected: Any, tolerance: float) -> None:
    """Check that entries agree to `tolerance` times the largest one; small ones may cancel."""
    scale = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=scale)


def rise(history: Any, start: float = np.inf) -> float:
    """Return the largest relative rise from one objective to the next, or 0."""
    values = np.concatenate([[start] if np.isfinite(start) else [], history])
    return float(np.max(np.diff(values) / np.abs(values[:-1]), initial=0.0))
