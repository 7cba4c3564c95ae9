"""GNMF and SemiGNMF: neighbours in a graph get similar codes."""

from __future__ import annotations

from numbers import Real
from typing import Any

from partwise._sklearn import Interval, StrOptions
from partwise.estimators._base import (
    GRAPH_CONSTRAINTS,
    SCALE_CONSTRAINTS,
    GraphFactorizer,
)
from partwise.estimators._docstrings import documented


@documented
class GNMF(GraphFactorizer):
    r"""Graph regularized NMF: neighbours in a graph get similar codes.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)

    Half of (6) in the paper, so that its λ is ours. Under Kullback-Leibler the graph term is the
    symmetric divergence between neighbours' codes, (7). There the printed derivation loses a
    factor 2 at (35), so that (21) is approximately the step for half of λ, and it replaces log x by
    1 - 1/x, so that its fixed points are stationary for neither form: we implement (21) as
    printed, report the objective with the halved term, and stop when the factors stop changing.
    The objective can then rise a little. X must be >= 0.

    Parameters
    ----------
    {n_components}
    graph_reg : float, default=1.0
        λ, the weight of the graph; the paper's experiments have 100.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
    {scale} The authors' code moves V before U, and so does "mu".
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {common}

    Attributes
    ----------
    {attributes}
    cg_iterations_ : int
        Kullback-Leibler: the most conjugate-gradient iterations that one solve of (21) took.

    Notes
    -----
    ======  ===========  ==========================
    paper   here         what it is
    ======  ===========  ==========================
    X       Xᵀ           data, features x samples
    U       U            basis
    V       V            representation
    W       graph        neighbour graph
    λ       graph_reg    weight of the graph
    p       n_neighbors  neighbours
    ======  ===========  ==========================

    References
    ----------
    D. Cai, X. He, J. Han, T. Huang: Graph regularized nonnegative matrix factorization for data
    representation, IEEE PAMI 33(8), 2011, (14)(15) and (20)(21).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import GNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = GNMF(n_components=3, random_state=0).fit(X)
    >>> model.embedding_.shape
    (537, 3)
    """

    _parameter_constraints: dict[str, Any] = {
        **GraphFactorizer._parameter_constraints,
        **GRAPH_CONSTRAINTS,
        **SCALE_CONSTRAINTS,
        "sample_weighting": [StrOptions({"ncw"}), None],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        graph_reg: float = 1.0,
        n_neighbors: int = 5,
        weighting: str = "binary",
        bandwidth: float | None = None,
        beta_loss: str = "frobenius",
        solver: str = "auto",
        scale: str = "unit",
        sample_weighting: str | None = None,
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        checkpoint: Any = None,
        missing_values: float | None = None,
        fixed_components: Any = None,
        seed_components: Any = None,
        must_link_reg: float | None = None,
        cannot_link_reg: float = 0.1,
    ) -> None:
        self.n_components = n_components
        self.graph_reg = graph_reg
        self.n_neighbors = n_neighbors
        self.weighting = weighting
        self.bandwidth = bandwidth
        self.beta_loss = beta_loss
        self.solver = solver
        self.scale = scale
        self.sample_weighting = sample_weighting
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.checkpoint = checkpoint
        self.missing_values = missing_values
        self.fixed_components = fixed_components
        self.seed_components = seed_components
        self.must_link_reg = must_link_reg
        self.cannot_link_reg = cannot_link_reg


@documented
class SemiGNMF(GraphFactorizer):
    r"""GNMF on a graph that knows labels.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)

    Samples with the same label are joined with ``label_weight``, samples with different labels
    are not joined, and other pairs as in `GNMF`. The cliques of the classes are kept implicit.
    Everything said of Kullback-Leibler in `GNMF` holds here. X must be >= 0.

    Parameters
    ----------
    {n_components}
    graph_reg : float, default=1.0
        λ, the weight of the graph; the paper's experiments have 100.
    label_weight : float, default=1.0
        Weight of an edge between two samples of one label.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
    {scale} V moves before U.
    {common}

    Attributes
    ----------
    {attributes}
    cg_iterations_ : int
        As in `GNMF`.

    Notes
    -----
    Letters as in `GNMF`.

    References
    ----------
    D. Cai, X. He, J. Han, T. Huang, IEEE PAMI 33(8), 2011; H. Liu, Z. Wu, X. Li, D. Cai, T. Huang:
    Constrained nonnegative matrix factorization for image representation, IEEE PAMI 34(7), 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import SemiGNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> y[5:] = -1
    >>> model = SemiGNMF(random_state=0).fit(X, y)
    >>> model.components_.shape
    (3, 64)
    """

    _parameter_constraints: dict[str, Any] = {
        **GraphFactorizer._parameter_constraints,
        **GRAPH_CONSTRAINTS,
        **SCALE_CONSTRAINTS,
        "label_weight": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        graph_reg: float = 1.0,
        label_weight: float = 1.0,
        n_neighbors: int = 5,
        weighting: str = "binary",
        bandwidth: float | None = None,
        beta_loss: str = "frobenius",
        solver: str = "auto",
        scale: str = "unit",
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        checkpoint: Any = None,
        missing_values: float | None = None,
        fixed_components: Any = None,
        seed_components: Any = None,
        must_link_reg: float | None = None,
        cannot_link_reg: float = 0.1,
    ) -> None:
        self.n_components = n_components
        self.graph_reg = graph_reg
        self.label_weight = label_weight
        self.n_neighbors = n_neighbors
        self.weighting = weighting
        self.bandwidth = bandwidth
        self.beta_loss = beta_loss
        self.solver = solver
        self.scale = scale
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.checkpoint = checkpoint
        self.missing_values = missing_values
        self.fixed_components = fixed_components
        self.seed_components = seed_components
        self.must_link_reg = must_link_reg
        self.cannot_link_reg = cannot_link_reg
