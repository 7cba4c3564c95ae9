"""SemiNMF, with non-negative part weights and signed components."""

from __future__ import annotations

from typing import Any

from partwise._sklearn import StrOptions
from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import GraphParameters, estimator


@estimator
class SemiNMF(GraphParameters, GraphFactorizer):
    r"""Semi-NMF: non-negative part weights and signed components, for signed data.

    .. math:: \min_{V\ge0,\,U}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)
              + \tfrac\gamma2 \langle D, V\rangle, \qquad V = A Z

    X may have negative entries, for example embeddings, PCA scores or differences. The components
    are a least-squares solution, :math:`U = X^T V (V^T V)^{-1}`, or a ridge solution if a penalty
    on V requires components of length one. Labels, a graph and links act on V as in
    `ConstrainedNMF`. If X is centred, components can cancel each other and V can grow without a
    limit; a graph prevents this. Clusters use part weights at unit length. X must be in memory.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    {knowledge}
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        Update of V. "mu" is update (9) of the paper. "hals" ("auto") and "nesterov" minimise the
        same objective faster.
    n_init : int, default=1
        Number of starts, each from k-means. The result with the lowest objective is kept.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    n_clusters : int, default=None
        Number of clusters in `cluster_labels_`. None uses the number of classes in y, or k
        without labels.
    must_link_reg : float, default=None
    cannot_link_reg : float, default=0.1
        Weights of the penalties on links, as in `NMF`.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of k-means.
    verbose : int, default=0
        1 prints a line for each fit, larger values print progress.
    {graph}

    Attributes
    ----------
    {attributes}

    References
    ----------
    C. Ding, T. Li, M. Jordan: Convex and semi-nonnegative matrix factorizations, IEEE PAMI 32(1),
    2010, (8)(9).

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import SemiNMF
    >>> X = np.random.default_rng(0).normal(size=(30, 5))
    >>> model = SemiNMF(n_components=3, max_iter=2000, random_state=0).fit(X)
    >>> bool((model.embedding_ >= 0).all()), bool((model.components_ < 0).any())
    (True, True)
    """

    hard_labels: bool = False
    graph_reg: float = 0.0
    label_weight: float | None = None
    class_reg: float | None = 0.0
    components_per_class: int = 1
    solver: str = "auto"
    n_init: int = 1
    max_iter: int = 200
    tol: float = 1e-4
    n_clusters: int | None = None
    must_link_reg: float | None = None
    cannot_link_reg: float = 0.1
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints = {"solver": [StrOptions({"auto", "mu", "hals", "nesterov"})]}
    beta_loss = "frobenius"
    init = "kmeans"

    local = signed = free_parts = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = False
        return tags
