"""ConstrainedNMF: any combination of the constraints."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from partwise._sklearn import Interval, StrOptions
from partwise.estimators._base import (
    CLASS_CONSTRAINTS,
    GRAPH_CONSTRAINTS,
    SCALE_CONSTRAINTS,
    GraphFactorizer,
)
from partwise.estimators._docstrings import documented
from partwise.model.terms import Term


@documented
class ConstrainedNMF(GraphFactorizer):
    r"""Any combination of hard labels, a graph, class parts, smoothing and sparsity.

    .. math:: \min_{Z,U\ge0}\ d(X, V S U^T) + \tfrac\lambda2 \mathrm{tr}(V^T L V)
              + \tfrac\gamma2 \langle D, V\rangle
              + \alpha_W p\,\Omega(V) + \alpha_H n\,\Omega(U), \qquad V = A Z

    with :math:`\Omega(Z) = \ell\|Z\|_1 + \tfrac{1-\ell}2\|Z\|^2`.
    `NMF`, `GNMF`, `SemiGNMF`, `CNMF`, `CDNMF`, `NMFDC` and `NSNMF` are special cases; each weight
    is in the units of its paper (under Kullback-Leibler γ is whole and the graph term is that of
    `GNMF`). X must be >= 0.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    hard_labels : bool, default=False
        Samples that share a label share a code, as in `CNMF`.
    graph_reg : float, default=0.0
        Weight λ of the neighbour graph, as in `GNMF`.
    label_weight : float, default=None
        Labels in the graph, as in `SemiGNMF`; None leaves the graph without them.
    {graph}
    class_reg : float, default=0.0
        Cost γ of another class's parts, as in `CDNMF`. None: that paper's value.
    components_per_class : int, default=1
        As in `CDNMF`.
    smoothing : float, default=0.0
        δ of S, as in `NSNMF` and `NMFDC`.
    alpha_W, alpha_H, l1_ratio : float, default=0.0
        Penalties as in `NMF`; ``alpha_H="same"`` copies ``alpha_W``.
    terms, basis_terms : list of `partwise.terms.Term`, default=None
        Penalties of your own on the codes V and on the parts U = ``components_.T``, added as they
        are. With hard labels a term is still one on V = A Z. New samples are coded with those terms
        that hold nothing for each sample and do not join samples. Terms are code: `save` refuses
        them.
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
    {scale} It matters where V alone is penalised; with ``alpha_H > 0`` or ``basis_terms`` both
        factors are and nothing is held. With smoothing, which mixes the columns, only their common
        scale is held.
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {common}

    Attributes
    ----------
    {attributes}
    component_classes_ : ndarray of shape (n_components,)
        As in `CDNMF`.

    References
    ----------
    Those of the special cases.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import ConstrainedNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> y[20:] = -1
    >>> model = ConstrainedNMF(class_reg=1.0, graph_reg=0.1, n_neighbors=3, random_state=0)
    >>> model.fit_predict(X, y).shape
    (537,)
    """

    _parameter_constraints: dict[str, Any] = {
        **GraphFactorizer._parameter_constraints,
        **GRAPH_CONSTRAINTS,
        **SCALE_CONSTRAINTS,
        **CLASS_CONSTRAINTS,
        "hard_labels": ["boolean"],
        "label_weight": [Interval(Real, 0, None, closed="left"), None],
        "smoothing": [Interval(Real, 0, 1, closed="both")],
        "alpha_W": [Interval(Real, 0, None, closed="left")],
        "alpha_H": [Interval(Real, 0, None, closed="left"), StrOptions({"same"})],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "terms": [list, tuple, None],
        "basis_terms": [list, tuple, None],
        "sample_weighting": [StrOptions({"ncw"}), None],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        hard_labels: bool = False,
        graph_reg: float = 0.0,
        label_weight: float | None = None,
        n_neighbors: int = 5,
        weighting: str = "binary",
        bandwidth: float | None = None,
        class_reg: float | None = 0.0,
        components_per_class: int = 1,
        smoothing: float = 0.0,
        alpha_W: float = 0.0,
        alpha_H: float | str = 0.0,
        l1_ratio: float = 0.0,
        terms: Sequence[Term] | None = None,
        basis_terms: Sequence[Term] | None = None,
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
        self.hard_labels = hard_labels
        self.graph_reg = graph_reg
        self.label_weight = label_weight
        self.n_neighbors = n_neighbors
        self.weighting = weighting
        self.bandwidth = bandwidth
        self.class_reg = class_reg
        self.components_per_class = components_per_class
        self.smoothing = smoothing
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.terms = terms
        self.basis_terms = basis_terms
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
