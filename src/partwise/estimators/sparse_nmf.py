"""SparseNMF, which gives components or part weights a chosen sparseness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from partwise._sklearn import StrOptions
from partwise.backends.arrays import AnyArray
from partwise.estimators._base import GroupedFactorizer
from partwise.estimators._parameters import SHARE, LoopParameters, estimator
from partwise.fitting import Description
from partwise.model.sparseness import project_columns


@estimator
class SparseNMF(LoopParameters, GroupedFactorizer):
    r"""NMF with a given sparseness of components, part weights or both, by projection.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|X - VU^T\|^2 \quad
              \text{with}\ \mathrm{sp}(u_k) = s_H,\ \mathrm{sp}(v_k) = s_W,\qquad
              \mathrm{sp}(x) = \frac{\sqrt n - \|x\|_1/\|x\|_2}{\sqrt n - 1}

    X must be non-negative.

    Parameters
    ----------
    {n_components}
    sparseness_W : float in [0, 1], default=None
        Sparseness of each column of W. Larger values mean that fewer samples use a component.
        None does not constrain W.
    sparseness_H : float in [0, 1], default=None
        Sparseness of each row of H, which then has length one. Larger values give smaller
        components. None does not constrain H.
    solver : {"auto"}, default="auto"
        Projected gradients for constrained factors, coordinate descent for the other factor.
    {loop}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    The paper keeps the length of a projected column of W. Partwise uses the nearest point of any
    length: this is the exact projection, so the objective does not rise. ``transform`` keeps the
    components fixed. It does not impose ``sparseness_W``, which is a property of a set of
    samples.

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

    sparseness_W: float | None = None
    sparseness_H: float | None = None
    solver: str = "auto"

    _parameter_constraints = {
        "solver": [StrOptions({"auto"})],
        "sparseness_W": [SHARE, None],
        "sparseness_H": [SHARE, None],
    }
    beta_loss = "frobenius"

    def _describe(self) -> Description:
        project: dict[str, Callable[[AnyArray], AnyArray]] = {}
        if self.sparseness_W is not None:
            project["V"] = partial(project_columns, sparseness=self.sparseness_W, unit=False)
        if self.sparseness_H is not None:
            project["U"] = partial(project_columns, sparseness=self.sparseness_H, unit=True)
        return replace(super()._describe(), project=project, local=True)
