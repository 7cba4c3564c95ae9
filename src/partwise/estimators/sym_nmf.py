"""SymNMF, a factorization of a similarity matrix for clustering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from partwise._sklearn import StrOptions
from partwise.backends.arrays import AnyArray
from partwise.estimators._base import GroupedFactorizer
from partwise.estimators._parameters import LoopParameters, estimator
from partwise.fitting import (
    Checked,
    Description,
    FitInputs,
    FittedFactors,
    all_or_nothing,
    check,
    described,
    watched,
)
from partwise.fitting.callbacks import with_callbacks
from partwise.fitting.checking import check_start
from partwise.fitting.description import warn
from partwise.fitting.solving import publish_ending, publish_groups, warn_unless_converged
from partwise.solvers.loop import Solution
from partwise.solvers.symmetric import Symmetric, descend


@estimator
class SymNMF(LoopParameters, GroupedFactorizer):
    r"""Symmetric NMF: clusters from a matrix of similarities.

    .. math:: \min_{V\ge0}\ \tfrac12\|S - VV^T\|^2

    S of shape (n, n) is symmetric and non-negative: a kernel, a graph or co-occurrence counts. Row
    i of V is the membership of sample i in each cluster. Each step moves one entry of V to the
    minimum of its quartic, so the objective never rises. S may be dense or sparse; it is neither
    copied nor made dense. If you have the samples themselves, `NMF` uses more information.

    Parameters
    ----------
    {n_components}
    init : {"random", "custom"}, default="random"
        Initialization method: random numbers scaled to S, or W of `fit`.
    max_iter : int, default=300
        Maximum number of sweeps.
    n_init : int, default=1
        Number of starts. The result with the lowest objective is kept.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    {groups}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    ``components_`` is Vᵀ. ``transform`` takes the similarities of new samples to the training
    samples, (n_new, n), and solves :math:`\min_{v\ge0} \|s - Vv\|^2`. After convergence it
    returns V for the training samples.

    References
    ----------
    D. Kuang, C. Ding, H. Park: Symmetric nonnegative matrix factorization for graph clustering,
    SDM 2012. A. Vandaele, N. Gillis, Q. Lei, K. Zhong, I. Dhillon: Efficient and non-convex
    coordinate descent for symmetric nonnegative matrix factorization, IEEE TSP 64(21), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import SymNMF
    >>> S = np.kron(np.eye(3), np.ones((4, 4))) + 0.1
    >>> model = SymNMF(3, n_init=5, random_state=0).fit(S)
    >>> [len(set(model.labels_[i : i + 4])) for i in (0, 4, 8)], len(set(model.labels_))
    ([1, 1, 1], 3)
    """

    init: str = "random"
    max_iter: int = 300

    _parameter_constraints = {"init": [StrOptions({"random", "custom"})]}
    beta_loss = "frobenius"
    own_fit = True
    solver = "hals"

    local = True

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, W: Any = None) -> Any:  # type: ignore[override]
        """Learn clusters from similarities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_samples)
            Similarities, symmetric and non-negative.
        y : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            Class labels or class probabilities for the groups; they do not change the
            factorization.
        W : array-like of shape (n_samples, n_components), default=None
            The initial V, if ``init="custom"``.

        Returns
        -------
        self
        """
        with all_or_nothing(self):  # the steps of `fitting.fit`, for one factor
            spec = described(self)
            checked = check(self, spec, X, FitInputs(y, W=W))
            S = similarities(checked, spec.estimator_name)
            progress = watched(self, checked.X, y, spec.n_init)
            starts = self._starts(spec, checked, S)
            runs = []
            for number, V in enumerate(starts):
                report = progress(number) if progress else None
                runs.append(descend(Symmetric(S), V, spec.max_iter, spec.tol, report))
            solution = min(runs, key=lambda run: run.history[-1])
            warn_unless_converged(spec, solution)
            self._publish(spec, checked, Symmetric(S), solution)
            if progress is not None:
                progress.finish()
        return self

    def _starts(self, spec: Description, checked: Checked, S: Any) -> Iterator[AnyArray]:
        """Yield the initial V of each restart."""
        n, k = S.shape[0], checked.k
        if spec.init == "custom":
            if checked.W is None:
                raise ValueError("init='custom' needs W.")
            yield check_start(checked.W, (n, k), S.dtype, "W", spec.estimator_name)
            return
        if checked.W is not None:
            warn(
                "When init!='custom', provided W is ignored. Set init='custom' to use it.",
                RuntimeWarning,
            )
        rng = check_random_state(spec.random_state)
        for _ in range(spec.n_init):
            yield 2 * np.sqrt(float(S.mean()) / k) * rng.uniform(size=(n, k))

    def _publish(
        self, spec: Description, checked: Checked, model: Symmetric, solution: Solution
    ) -> None:
        """Set the fitted attributes of the estimator, in the units of S."""
        V, value, factor = solution.Z, solution.history[-1], checked.factor
        residual = model.residual(V, value, spec.tol)
        V = (V * np.sqrt(factor)).astype(model.S.dtype)
        self._n_components = self.n_components_ = checked.k
        self.embedding_, self.components_ = V, np.ascontiguousarray(V.T)
        self.objective_ = value * factor**2
        self.objective_history_ = np.asarray(solution.history) * factor**2
        self.reconstruction_err_ = float(np.sqrt(2 * self.objective_))
        publish_ending(self, spec.solver, FittedFactors(V, V, value, residual, solution))
        publish_groups(self, spec, checked.knowledge, checked.k)
        self._groups.unit = (
            # Samples with many neighbours have long rows of V, so that clusters compare only their
            # directions.
            True
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        return tags


def similarities(checked: Checked, estimator_name: str) -> Any:
    """Return the similarity matrix S, after checking that it is square and symmetric."""
    S: Any = checked.data.whole()
    n, p = S.shape
    if n != p:
        raise ValueError(
            f"{estimator_name} needs a square similarity matrix, got shape ({n}, {p}); pass a "
            "kernel "
            "matrix or a neighbour graph."
        )
    S = sp.csr_array(S) if sp.issparse(S) else np.ascontiguousarray(S)
    apart = abs(S - S.T)
    most = 1e-6 if S.dtype == np.float32 else 1e-9
    if apart.max() > most * S.max():
        at = int(apart.argmax())
        i, j = sorted((at // n, at % n))
        raise ValueError(
            f"{estimator_name} needs a symmetric matrix, got {S[i, j]:g} at ({i}, {j}) and "
            f"{S[j, i]:g} at "
            f"({j}, {i}); use (X + X.T) / 2 if the difference is only rounding."
        )
    return S
