"""SparseNMF: the sparseness of parts or codes is held at a given value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from partwise.engine.losses import Frobenius
from partwise.engine.numeric import Array
from partwise.engine.problem import FactorModel
from partwise.engine.solvers.loop import Settings
from partwise.engine.solvers.steps import Step, hals
from partwise.engine.sparseness import project_columns
from partwise.engine.subproblems import Quadratic
from partwise.estimators import _inputs
from partwise.estimators._docs import documented
from partwise.estimators._grouped import GroupedFactorizer


class SparseModel(FactorModel):
    """FactorModel whose factors may be projected: ``project`` maps "V", "U" to a function."""

    def __init__(self, data: Any, project: dict[str, Any], weights: Array | None = None) -> None:
        super().__init__(data, Frobenius(), weights=weights)
        self.project = project

    def subproblems(self, side: str, points: Sequence[tuple[Array, Array]]) -> Any:
        subs = super().subproblems(side, points)
        for sub in subs:
            sub.project = self.project.get(side)
        return subs

    def feasible(self, Z: Array, U: Array) -> tuple[Array, Array]:
        Z = self.project["V"](Z) if "V" in self.project else Z
        return Z, self.project["U"](U) if "U" in self.project else U


def projected_step(sub: Quadratic, Z: Array, steps: int = 5) -> Array:
    """Projected gradient where the factor is projected, coordinate descent where it is not.

    A step of 1/L minimises a majoriser over the constraint set, so the objective never rises.
    """
    project = sub.project
    if project is None:
        return hals(sub, Z)
    lipschitz = sub.lipschitz()
    if lipschitz == 0:
        return Z
    for _ in range(steps):
        neg, pos = sub.split(Z)
        Z = project(Z - (pos - neg) / Z.dtype.type(lipschitz))
    return Z


PROJECTED = Step("projected", projected_step, {"frobenius": ("lipschitz",)})


@documented
class SparseNMF(GroupedFactorizer):
    r"""NMF with the sparseness of parts and/or codes held by projection.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 \quad
              \text{with}\ \mathrm{sp}(u_k) = s_H,\ \mathrm{sp}(v_k) = s_W,\qquad
              \mathrm{sp}(x) = \frac{\sqrt n - \|x\|_1/\|x\|_2}{\sqrt n - 1}

    X must be >= 0.

    Parameters
    ----------
    {n_components}
    sparseness_W : float in [0, 1], default=None
        Sparseness of each column of W: how few samples use a part. None: free.
    sparseness_H : float in [0, 1], default=None
        Sparseness of each row of H: how small a part is. None: free. Rows have length one then.
    solver : {"auto"}, default="auto"
        Projected gradients on the constrained factors, coordinate descent on the others.
    {common}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    Where the paper keeps the length of a projected column of W, we take the length nearest to it,
    which is the exact projection and keeps the objective from rising. ``transform`` codes new
    samples with the parts fixed; ``sparseness_W`` is a property of a set of samples and is not
    imposed on them.

    References
    ----------
    P. Hoyer: Non-negative matrix factorization with sparseness constraints, JMLR 5, 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import SparseNMF
    >>> from partwise.metrics import sparseness
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = SparseNMF(n_components=5, sparseness_H=0.7, max_iter=50, tol=0, random_state=0)
    >>> sparseness(model.fit(X).components_, axis=1).round(3).tolist()
    [0.7, 0.7, 0.7, 0.7, 0.7]
    """

    _parameter_constraints: dict[str, Any] = {
        **GroupedFactorizer._parameter_constraints,
        "solver": [StrOptions({"auto"})],
        "sparseness_W": [Interval(Real, 0, 1, closed="both"), None],
        "sparseness_H": [Interval(Real, 0, 1, closed="both"), None],
    }
    beta_loss = "frobenius"

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        sparseness_W: float | None = None,
        sparseness_H: float | None = None,
        solver: str = "auto",
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sparseness_W = sparseness_W
        self.sparseness_H = sparseness_H
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.verbose = verbose

    def _check_X(self, X: Any, *, reset: bool) -> Any:
        _inputs.check_local(X, type(self).__name__)
        return super()._check_X(X, reset=reset)

    def _model(self, data: Any, k: int, weights: Array | None, extra: Any) -> FactorModel:
        project: dict[str, Any] = {}
        if self.sparseness_W is not None and extra is not None:
            project["V"] = partial(project_columns, sparseness=self.sparseness_W, unit=False)
        if self.sparseness_H is not None and extra is not None:
            project["U"] = partial(project_columns, sparseness=self.sparseness_H, unit=True)
        return SparseModel(data, project, weights)

    def _step(self, solver: str, rng: np.random.RandomState) -> Step:
        return PROJECTED

    def _settings(self, solver: str, model: FactorModel) -> Settings:
        free = self.sparseness_W is None and self.sparseness_H is None
        # a multiplicative update would leave the constraint set: no last resort but to stay
        return Settings(
            max_iter=self.max_iter, tol=self.tol, extrapolate=free, stationary=free, safe=None
        )

    def _ends_with_codes(self, model: FactorModel) -> bool:
        return self.sparseness_W is None
