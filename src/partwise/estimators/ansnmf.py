"""AnsNMF: non-smooth NMF whose smoothing matrix adapts to the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.estimators._base import GroupedFactorizer
from partwise.estimators._parameters import SHARE, estimator
from partwise.fitting import (
    FitInputs,
    Problem,
    all_or_nothing,
    check,
    described,
    finish,
    publish,
    state,
)
from partwise.fitting.callbacks import with_callbacks
from partwise.solvers.loop import Solution
from partwise.solvers.unmixing import unmix_codes, unmix_parts

# Iterations without smoothing before the smoothing matrix is first estimated. A larger number gives
# a more stable first estimate.
WARMUP = 10
FLOOR = 1e-9  # constant in numerators and denominators of the multiplicative updates
LIFT = 1e-12  # added to both factors, so that an entry can leave zero


@estimator
class AnsNMF(GroupedFactorizer):
    r"""Adaptive non-smooth NMF: linear programs make both factors sparse.

    .. math:: \min_{V,S,U\ge0}\ \tfrac12\|X - V S U^T\|^2, \qquad \textstyle\sum_j u_{jk} = 1

    The iterations are multiplicative updates as in `NSNMF`. The first and the last iteration also
    unmix the factors. V becomes V Bᵀ and S becomes B⁻ᵀS, where B has the largest determinant such
    that V Bᵀ is non-negative up to a slack, its columns sum to one and B⁻¹ >= 0. U and S follow in
    the same way. X must be non-negative.

    Parameters
    ----------
    {n_components}
    slack_W, slack_H : float, default=0.001
        How far below zero a linear program may move V and U before they are clipped, as a share
        of their largest entry. Larger values give sparser factors. In the last iteration the first
        is multiplied by 2⁻¹⁰ and the second by a half. The authors' program tries 0.001 to 0.5;
        the papers print no value.
    init : str, default=None
        Initialization method, as in `NMF`; "custom" uses W and H of `fit`.
    max_iter : int, default=100
        Number of iterations; there is no tolerance.
    {groups}

    Attributes
    ----------
    {attributes}
    mixing_ : ndarray of shape (n_components, n_components)
        S, the smoothing matrix.
    basis_ : ndarray of shape (n_components, n_features)
        Uᵀ, whose rows sum to one; ``components_`` is S Uᵀ.

    Notes
    -----
    The matrices V, W, Φ and H of the authors' program are Xᵀ, U, Sᵀ and Vᵀ here. As in that
    program, the columns of U are scaled to sum one without a change of V, so an iteration may raise
    the objective. The program has a formula without slack for two components; Partwise uses the
    linear programs.

    References
    ----------
    Z. Yang, Y. Xiang, K. Xie, Y. Lai: Adaptive method for nonsmooth nonnegative matrix
    factorization, IEEE TNNLS 28(4), 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import AnsNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = AnsNMF(3, random_state=0).fit(X)
    >>> model.mixing_.shape, model.basis_.sum(axis=1).round(6).tolist()
    ((3, 3), [1.0, 1.0, 1.0])
    """

    slack_W: float = 0.001
    slack_H: float = 0.001
    init: str | None = None
    max_iter: int = 100
    n_clusters: int | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints = {"slack_W": [SHARE], "slack_H": [SHARE]}
    beta_loss = "frobenius"
    own_fit = True
    solver = "mu"
    tol = 0.0

    local = True

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, W: Any = None, H: Any = None) -> Any:  # type: ignore[override]
        """Learn components and part weights.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,), default=None
            Class labels for the groups; they do not change the factorization.
        W, H : array-like, default=None
            The initial factors, if ``init="custom"``.

        Returns
        -------
        self
        """
        # These are the steps of `partwise.fitting.fit`. The iterations also update S by linear
        # programs.
        with all_or_nothing(self):
            spec = described(self)
            checked = check(self, spec, X, FitInputs(y, W, H))
            problem = state(spec, checked)
            solution, S, U = self._adapt(problem)
            publish(self, spec, checked, problem, finish(spec, problem, solution))
            self.basis_ = np.ascontiguousarray(U.T)
            total = float((S @ self.basis_).sum())  # `components_` also contains the scale of X
            self.mixing_ = S * (float(self.components_.sum()) / total if total else 1.0)
        return self

    def _adapt(self, problem: Problem) -> tuple[Solution, AnyArray, AnyArray]:
        """Return the fitted factors, the smoothing matrix S and the unsmoothed parts U."""
        V, U = (np.asarray(factor) for factor in problem.starts[0]()[:2])
        data, dtype, S = problem.model.data, V.dtype, np.eye(problem.k)

        def product(name: str, factor: AnyArray) -> AnyArray:
            """Return X or Xᵀ times a factor, in float64."""
            return np.asarray(getattr(data, name)(factor.astype(dtype)), dtype=np.float64)

        V, U, history = V.astype(np.float64), _sum_one(U.astype(np.float64)), []
        slack_V = slack_U = lift = 0.0
        for t in range(1 - WARMUP, self.max_iter + 1):
            if t == 1:
                slack_V, slack_U, lift = self.slack_W * V.max(), self.slack_H * U.max(), LIFT
            moves = 0 if t not in (1, self.max_iter) or problem.k == 1 else 1 + (t > 1)
            P = U @ S.T
            V = (V + lift) * (product("dot", P) + FLOOR) / (V @ (P.T @ P) + FLOOR)
            if moves:
                B = unmix_codes(V, slack_V / moves**10)
                V, S = np.maximum(V @ B.T, 0), np.maximum(np.linalg.inv(B), 0).T @ S
            Q = V @ S
            XQ = product("tdot", Q)
            U = _sum_one((U + lift) * (XQ + FLOOR) / (U @ (Q.T @ Q) + FLOOR))
            if moves:
                B = unmix_parts(U, slack_U / moves)
                U, S = _sum_one(np.maximum(U @ B.T, 0)), S @ np.maximum(np.linalg.inv(B), 0)
                Q = V @ S
                XQ = product("tdot", Q)
            if t > 0:  # ½‖X - QUᵀ‖²
                value = (
                    problem.model.constant - (XQ * U).sum() + 0.5 * ((Q.T @ Q) * (U.T @ U)).sum()
                )
                history.append(max(float(value), 0.0))
        status = f"ran {self.max_iter} iterations as printed, without a tolerance"
        P = U @ S.T
        solution = Solution(V.astype(dtype), P.astype(dtype), history, len(history), True, status)
        return solution, S.astype(dtype), U.astype(dtype)


def _sum_one(U: AnyArray) -> AnyArray:
    """Return U with each column divided by its sum."""
    total = U.sum(axis=0)
    return U / np.where(total > 0, total, 1.0)
