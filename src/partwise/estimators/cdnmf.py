"""CDNMF: parts belong to classes."""

from __future__ import annotations

from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._parameters import CommonParameters, LossParameters, estimator


@estimator
class CDNMF(LossParameters, CommonParameters, ConstrainedFactorizer):
    r"""Class-driven NMF: parts belong to classes, and using another class's parts costs.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 + \tfrac\lambda2 \langle D, V\rangle

    with D_ik = 1 where sample i has a label and part k belongs to another class. Half of the
    paper's objective; under Kullback-Leibler the divergence plus γ⟨D, V⟩, the cost counted once,
    as in (23). One label a class is enough for this cost, unlike for hard labels. X must be >= 0.

    Parameters
    ----------
    {n_components} Times ``components_per_class``.
    class_reg : float, default=None
        λ or γ. None: the paper's, 1 for Frobenius and 10 for Kullback-Leibler.
    components_per_class : int, default=1
        Parts of each class, in the order of ``classes_``. Parts beyond all classes belong to none
        and cost nothing; a class that k leaves without parts costs nothing either.
    {scale} "mu" moves U before V, as the paper lists (11) and (12).
    {beta_loss}
    {solver}
    {common}

    Attributes
    ----------
    {attributes}
    component_classes_ : ndarray of shape (n_components,)
        The class of each part, None for those of no class.

    Notes
    -----
    ======  ===========  ==============================
    paper   here         what it is
    ======  ===========  ==============================
    X       Xᵀ           data, features x samples
    W       U            basis
    S       V            coefficients
    D       D            inhomogeneous cost indicator
    λ, γ    class_reg    its weight
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
