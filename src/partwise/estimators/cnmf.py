"""CNMF, a factorization in which samples with the same label share part weights."""

from __future__ import annotations

from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._parameters import CommonParameters, LossParameters, estimator


@estimator
class CNMF(LossParameters, CommonParameters, ConstrainedFactorizer):
    r"""Constrained NMF: samples with the same label share their part weights.

    .. math:: \min_{Z,U\ge0}\ \tfrac12\|X - A Z U^T\|^2, \qquad V = A Z

    A maps all labelled samples of a class to one row of Z. The paper minimises twice this
    objective. The Kullback-Leibler loss replaces the squares. With at most one label per class, A
    is the identity and CNMF equals NMF; a warning reports this case. X must be non-negative.

    Parameters
    ----------
    {n_components}
    {beta_loss}
    {solver} "mu" updates U before Z, as equations (10) and (11) of the paper do.
    {common}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    ======  ======  ======================================
    paper   ours    meaning
    ======  ======  ======================================
    X       Xᵀ      data, features x samples
    U       U       basis
    A       A       label constraints, never built
    Z       Z       free part weights
    AZ      V       representation
    ======  ======  ======================================

    References
    ----------
    H. Liu, Z. Wu: Non-negative matrix factorization with constraints, AAAI 2010, (10)(11).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import CNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> y[10:] = -1
    >>> V = CNMF(random_state=0).fit_transform(X, y)
    >>> same = V[:10][y[:10] == 0]
    >>> bool((same == same[0]).all())
    True
    """

    hard_labels = True
