"""GNMF and SemiGNMF: neighbours in a graph get similar codes."""

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
    {scale} The authors' code moves V before U, and so does "mu".
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
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

    graph_reg: float = 1.0
    scale: str = "unit"
    sample_weighting: str | None = None


@estimator
class SemiGNMF(GraphParameters, LossParameters, CommonParameters, GraphFactorizer):
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
    {scale} V moves before U.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
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

    graph_reg: float = 1.0
    label_weight: float = 1.0
    scale: str = "unit"

    _parameter_constraints = {"label_weight": [AT_LEAST_ZERO]}
