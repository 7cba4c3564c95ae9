"""CDNMF: parts belong to classes."""

from __future__ import annotations

from typing import Any

from partwise.estimators._base import (
    CLASS_CONSTRAINTS,
    SCALE_CONSTRAINTS,
    ConstrainedFactorizer,
)
from partwise.estimators._docstrings import documented


@documented
class CDNMF(ConstrainedFactorizer):
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
    {beta_loss}
    {solver}
    {scale} "mu" moves U before V, as the paper lists (11) and (12).
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

    _parameter_constraints: dict[str, Any] = {
        **ConstrainedFactorizer._parameter_constraints,
        **CLASS_CONSTRAINTS,
        **SCALE_CONSTRAINTS,
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        class_reg: float | None = None,
        components_per_class: int = 1,
        beta_loss: str = "frobenius",
        solver: str = "auto",
        scale: str = "unit",
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
        self.class_reg = class_reg
        self.components_per_class = components_per_class
        self.beta_loss = beta_loss
        self.solver = solver
        self.scale = scale
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
