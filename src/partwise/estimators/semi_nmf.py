"""SemiNMF: codes >= 0 and parts of any sign, for data with signs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise._sklearn import StrOptions
from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import GraphParameters, estimator
from partwise.fitting import Description


@estimator
class SemiNMF(GraphParameters, GraphFactorizer):
    r"""Semi-NMF: non-negative codes beside parts of any sign, for data with signs.

    .. math:: \min_{V\ge0,\,U}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)
              + \tfrac\gamma2 \langle D, V\rangle, \qquad V = A Z

    X may have negative entries: sentence embeddings, PCA scores, differences. The parts are a
    least-squares solve, :math:`U = X^T V (V^T V)^{-1}`, a ridge solve where a penalty on V needs
    parts of length one. Labels, a graph and links act on the codes as in `ConstrainedNMF`. Where X
    is centred, parts can cancel each other and codes grow without a limit: a graph holds them, and
    clusters look at codes of length one. X must be in memory.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    {knowledge}
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        How the codes move: "mu" is the paper's, (9), "hals" ("auto") and "nesterov" minimise the
        same objective faster.
    n_init : int, default=1
        Number of starts, each from k-means; the one with the lowest objective is kept.
    max_iter : int, default=200
        Most iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    n_clusters : int, default=None
        Clusters of `cluster_labels_`. None: the classes in y, else k.
    must_link_reg : float, default=None
    cannot_link_reg : float, default=0.1
        What links cost, as in `NMF`.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0
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

    def _describe(self) -> Description:
        return replace(super()._describe(), local=True, signed=True, free_parts=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = False
        return tags
