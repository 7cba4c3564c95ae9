"""ConstrainedNMF: any combination of the constraints."""

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
    {knowledge}
    smoothing : float, default=0.0
        δ of S, as in `NSNMF` and `NMFDC`.
    alpha_W, alpha_H, l1_ratio : float, default=0.0
        Penalties as in `NMF`; ``alpha_H="same"`` copies ``alpha_W``.
    terms, basis_terms : list of `partwise.terms.Term`, default=None
        Penalties of your own on the codes V and on the parts U = ``components_.T``, added as they
        are. With hard labels a term is still one on V = A Z. New samples are coded with those terms
        that hold nothing for each sample and do not join samples. Terms are code: `save` refuses
        them.
    {scale} It matters where V alone is penalised; with ``alpha_H > 0`` or ``basis_terms`` nothing
        is held: penalise V as well, or U shrinks while V grows. With smoothing, which mixes the
        columns, only their common scale is held.
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, as in `NMF`.
    {graph}
    {beta_loss}
    {solver} With a graph, Kullback-Leibler has "mu" only.
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
