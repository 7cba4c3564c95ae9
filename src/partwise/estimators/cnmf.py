"""CNMF: samples that share a label share a code."""

from __future__ import annotations

from dataclasses import replace

from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._parameters import CommonParameters, LossParameters, estimator
from partwise.fitting import Description


@estimator
class CNMF(LossParameters, CommonParameters, ConstrainedFactorizer):
    r"""Constrained NMF: samples that share a label share a code.

    .. math:: \min_{Z,U\ge0}\ \tfrac12\|X - A Z U^T\|^2, \qquad V = A Z

    where A sends all labelled samples of a class to one row of Z. Half of the paper's objective;
    under Kullback-Leibler the same with the divergence. With at most one label a class A is the
    identity and CNMF is NMF; a warning says so. X must be >= 0.

    Parameters
    ----------
    {n_components}
    {beta_loss}
    {solver} "mu" moves U before Z, as the paper lists (10) and (11).
    {common}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    ======  ======  ======================================
    paper   here    what it is
    ======  ======  ======================================
    X       Xᵀ      data, features x samples
    U       U       basis
    A       A       label constraints, never built
    Z       Z       free codes
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

    def _describe(self) -> Description:
        return replace(super()._describe(), hard_labels=True)
