"""GNMF and SemiGNMF, which give neighbouring samples similar part weights."""

from __future__ import annotations

from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import (
    AT_LEAST_ZERO,
    CommonParameters,
    GraphParameters,
    LossParameters,
    estimator,
)


@estimator
class GNMF(GraphParameters, LossParameters, CommonParameters, GraphFactorizer):
    r"""Graph regularized NMF: neighbours in a graph get similar part weights.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)

    The paper minimises twice this objective, with the same λ = ``graph_reg``. X must be
    non-negative.

    Under Kullback-Leibler the graph term is the symmetric divergence between the part weights of
    neighbours, equation (7). The paper loses a factor 2 at (35), so update (21) is approximately
    the step for half of λ. It also replaces log x by 1 - 1/x, so its fixed points are stationary
    for neither form. Partwise implements (21) as printed, reports the objective with the halved
    term, and stops when the factors stop changing. The objective can then rise slightly.

    Parameters
    ----------
    {n_components}
    graph_reg : float, default=1.0
        λ, the weight of the graph. Larger values make neighbours more similar; the experiments
        of the paper use 100.
    {scale} The authors' code updates V before U, and so does "mu".
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler supports only "mu".
    {common}

    Attributes
    ----------
    {attributes}
    cg_iterations_ : int
        Kullback-Leibler: the largest number of conjugate-gradient iterations of a solve of (21).

    Notes
    -----
    ======  ===========  ==========================
    paper   Partwise     meaning
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

    graph_reg: float = 1.0
    scale: str = "unit"
    sample_weighting: str | None = None


@estimator
class SemiGNMF(GraphParameters, LossParameters, CommonParameters, GraphFactorizer):
    r"""Semi-supervised GNMF: labels add edges to the neighbour graph.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V)

    An edge of weight ``label_weight`` joins samples with the same label; samples with different
    labels have no edge. All other pairs are as in `GNMF`. Edges within a class are never
    stored. The remarks on Kullback-Leibler in `GNMF` apply. X must be non-negative.

    Parameters
    ----------
    {n_components}
    graph_reg : float, default=1.0
        λ, the weight of the graph; the experiments of the paper use 100.
    label_weight : float, default=1.0
        Weight of an edge between two samples with the same label.
    {scale} V is updated before U.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler supports only "mu".
    {common}

    Attributes
    ----------
    {attributes}
    cg_iterations_ : int
        As in `GNMF`.

    Notes
    -----
    The symbols are those of `GNMF`.

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

    graph_reg: float = 1.0
    label_weight: float = 1.0
    scale: str = "unit"

    _parameter_constraints = {"label_weight": [AT_LEAST_ZERO]}
