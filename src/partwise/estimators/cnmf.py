"""CNMF: samples that share a label share a code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._docstrings import documented
from partwise.fitting import Description


@documented
class CNMF(ConstrainedFactorizer):
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

    _parameter_constraints: dict[str, Any] = {
        **ConstrainedFactorizer._parameter_constraints,
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        beta_loss: str = "frobenius",
        solver: str = "auto",
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
        checkpoint: Any = None,
        missing_values: float | None = None,
        fixed_components: Any = None,
        seed_components: Any = None,
        must_link_reg: float | None = None,
        cannot_link_reg: float = 0.1,
    ) -> None:
        self.n_components = n_components
        self.beta_loss = beta_loss
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.checkpoint = checkpoint
        self.missing_values = missing_values
        self.fixed_components = fixed_components
        self.seed_components = seed_components
        self.must_link_reg = must_link_reg
        self.cannot_link_reg = cannot_link_reg

    def _describe(self) -> Description:
        return replace(super()._describe(), hard_labels=True)
