"""CDNMF, a class-driven factorization in which each component belongs to a class."""

from __future__ import annotations

from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._parameters import CommonParameters, LossParameters, estimator


@estimator
class CDNMF(LossParameters, CommonParameters, ConstrainedFactorizer):
    r"""Class-driven NMF: using components of another class has a cost.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \langle D, V\rangle

    D_ik is 1 if sample i has a label and component k belongs to another class, and 0 otherwise.
    The paper minimises twice this objective. The Kullback-Leibler loss has the penalty γ⟨D, V⟩,
    as in equation (23) of the paper. One label per class is enough, unlike for `CNMF`. X must
    be non-negative.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    class_reg : float, default=None
        λ or γ. Larger values tie components to classes more strictly. None uses the values of
        the paper: 1 for Frobenius and 10 for Kullback-Leibler.
    components_per_class : int, default=1
        Number of components of each class, in the order of ``classes_``. Components beyond
        these belong to no class and have no cost. A class without components has no cost either.
    {scale} "mu" updates U before V, in the order of (11) and (12).
    {beta_loss}
    {solver}
    {common}

    Attributes
    ----------
    {attributes}
    component_classes_ : ndarray of shape (n_components,)
        The class of each component; None for a component without a class.

    Notes
    -----
    ======  ===========  ==============================
    paper   Partwise     meaning
    ======  ===========  ==============================
    X       Xᵀ           data, features x samples
    W       U            basis
    S       V            coefficients
    D       D            inhomogeneous cost indicator
    λ, γ    class_reg    weight of the cost
    ======  ===========  ==============================

    References
    ----------
    Y.-H. Xiao, Z.-F. Zhu, Y. Zhao, Y.-C. Wei: Class-driven non-negative matrix factorization for
    image representation, JCST 28(5), 2013, (11)(12) and (22)(23).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import CDNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> y[20:] = -1
    >>> model = CDNMF(random_state=0).fit(X, y)
    >>> model.component_classes_.tolist()
    [0, 1, 2]
    """

    class_reg: float | None = None
    components_per_class: int = 1
    scale: str = "unit"
