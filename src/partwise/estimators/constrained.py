"""ConstrainedNMF, which combines constraints and penalties of other estimators."""

from __future__ import annotations

from collections.abc import Sequence

from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import (
    CommonParameters,
    GraphParameters,
    LossParameters,
    estimator,
)
from partwise.model.terms import Term


@estimator
class ConstrainedNMF(GraphParameters, LossParameters, CommonParameters, GraphFactorizer):
    r"""Combine hard labels, a graph, class-specific components, smoothing and sparsity.

    .. math:: \min_{Z,U\ge0}\ d(X, V S U^T) + \tfrac\lambda2 \mathrm{tr}(V^T L V)
              + \tfrac\gamma2 \langle D, V\rangle
              + \alpha_W p\,\Omega(V) + \alpha_H n\,\Omega(U), \qquad V = A Z

    with :math:`\Omega(Z) = \ell\|Z\|_1 + \tfrac{1-\ell}2\|Z\|^2`.
    `NMF`, `GNMF`, `SemiGNMF`, `CNMF`, `CDNMF`, `NMFDC` and `NSNMF` are special cases. Each weight
    has the units of its paper: under Kullback-Leibler, γ is not halved and the graph term is that
    of `GNMF`. X must be non-negative.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    {knowledge}
    smoothing : float, default=0.0
        δ of S, as in `NSNMF` and `NMFDC`. Larger values give sparser factors.
    alpha_W, alpha_H, l1_ratio : float, default=0.0
        Penalties on V and U, as in `NMF`; ``alpha_H="same"`` uses ``alpha_W``.
    terms, basis_terms : list of `partwise.terms.Term`, default=None
        Your own penalties on V and on U = ``components_.T``, added to the objective unscaled. With
        hard labels a term still applies to V = A Z. `transform` uses the terms that store nothing
        per sample and do not join samples. Terms are code, so `save` refuses them.
    {scale} It matters if only V has a penalty. With ``alpha_H > 0`` or ``basis_terms`` the columns
        are free: penalise V as well, or U shrinks while V grows. Smoothing mixes the columns, so
        only their common scale is kept.
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler supports only "mu".
    {common}

    Attributes
    ----------
    {attributes}
    component_classes_ : ndarray of shape (n_components,)
        As in `CDNMF`.

    References
    ----------
    See the special cases.

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

    hard_labels: bool = False
    graph_reg: float = 0.0
    label_weight: float | None = None
    class_reg: float | None = 0.0
    components_per_class: int = 1
    smoothing: float = 0.0
    alpha_W: float = 0.0
    alpha_H: float | str = 0.0
    l1_ratio: float = 0.0
    terms: Sequence[Term] | None = None
    basis_terms: Sequence[Term] | None = None
    scale: str = "unit"
    sample_weighting: str | None = None

    _parameter_constraints = {"terms": [list, tuple, None], "basis_terms": [list, tuple, None]}
