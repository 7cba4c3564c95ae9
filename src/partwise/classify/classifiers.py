"""Classifiers of the ensemble: a score for every class from a view and a few labels.

Each classifier is fitted to all folds together. Except for label spreading, each one is linear in
the features Z of its view: the scores are Z A + b. Every class has the same total weight, since
labels of a few chosen samples do not show the class sizes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import softmax

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import each, threads_for
from partwise.classify.features import times

#: Inverse penalty of logistic regression (C in scikit-learn). Samples have mean squared length one.
STRENGTH = 10.0
#: Penalty of least squares on all columns. Samples have mean squared length one.
RIDGE = 1e-3
#: Largest difference between the scores of two class means. Larger differences are scaled down, so
#: that rounding in single precision does not decide between classes.
STEEPEST = 1e3
#: Number of samples whose scores are computed together, to limit the memory of float64 copies.
SOME = 10_000
#: Shrinkage of the covariance within classes towards a multiple of the identity: for a covariance
#: of labelled samples only, and of all samples.
SHRINK, SHRINK_ALL = 0.2, 0.1


class Linear(NamedTuple):
    """Linear classifiers of all folds, with scores Z A + b.

    Attributes
    ----------
    A : array of shape (n_folds + 1, d, n_classes)
    b : array of shape (n_folds + 1, n_classes)
    """

    A: AnyArray
    b: AnyArray

    def scores(self, Z: AnyArray) -> AnyArray:
        """Return (n_folds + 1, n, n_classes) scores minus the largest score of each sample.

        The scores are computed in float64, since scores of similar classes are differences of
        large numbers. They are stored class by class, for fast sums and maxima over few classes.
        """
        out = np.empty((*self.b.shape, len(Z)), Z.dtype)
        A = self.A.swapaxes(1, 2).astype(float)
        for lo in range(0, len(Z), SOME):
            raw = np.matmul(A, Z[lo : lo + SOME].T.astype(float)) + self.b[:, :, None]
            out[:, :, lo : lo + SOME] = raw - raw.max(axis=1, keepdims=True)
        return out.swapaxes(1, 2)


def class_means(Z: AnyArray, Y: AnyArray, weights: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return means (n_classes, d) and total weights (n_classes,); Y is (n, n_classes)."""
    W = Y * weights[:, None]
    total = W.sum(axis=0)
    return (W.T @ Z) / np.where(total > 0, total, 1)[:, None], total


def logistic(
    Z: AnyArray, y: AnyArray, weights: AnyArray, n_classes: int, start: AnyArray | None = None
) -> Linear:
    """Minimise ½‖A‖² + C Σ_i w_i log-loss_i for every row of ``weights``.

    L-BFGS solves all folds as one problem, since they share the products with the samples.
    """
    n, (f, d) = y.size, (weights.shape[0], Z.shape[1])
    Z1 = np.hstack([Z, np.ones((n, 1), Z.dtype)])
    Y = np.eye(n_classes, dtype=Z.dtype)[y]
    totals = weights @ Y
    present = np.maximum((totals > 0).sum(axis=1), 1)
    even = weights / np.where(totals > 0, totals, 1)[:, y]
    even = (STRENGTH * even * (weights.sum(axis=1) / present)[:, None]).astype(Z.dtype)[:, :, None]
    penalty = np.ones((d + 1, 1), Z.dtype)
    penalty[-1] = 1e-3  # the intercept has almost no penalty
    rows = np.arange(n)

    def value(flat: AnyArray) -> tuple[float, AnyArray]:
        B = flat.astype(Z.dtype).reshape(f, d + 1, n_classes)
        S = np.matmul(Z1, B)
        S -= S.max(axis=2, keepdims=True)
        E = np.exp(S)
        total = E.sum(axis=2, keepdims=True)
        loss = -float((even[:, :, 0] * (S[:, rows, y] - np.log(total[:, :, 0]))).sum(dtype=float))
        E /= total
        E -= Y
        E *= even
        G = np.matmul(Z1.T, E) + penalty * B
        loss += 0.5 * float((penalty * B * B).sum(dtype=float))
        return loss, G.ravel().astype(float)

    first = np.zeros(f * (d + 1) * n_classes) if start is None else start.ravel()
    options = {"maxiter": 40, "ftol": 1e-5}
    B = minimize(value, first, jac=True, method="L-BFGS-B", options=options).x
    B = B.reshape(f, d + 1, n_classes).astype(Z.dtype)
    return Linear(B[:, :-1], B[:, -1])


def discriminant(
    Z: AnyArray, y: AnyArray, means: AnyArray, spread: AnyArray, n_classes: int
) -> Linear:
    """Fit a linear discriminant analysis with a shrunken covariance to the labelled samples.

    Σ = (1 - g) S_w + g tr(S_w)/d I, where S_w is the pooled covariance within classes. ``means``
    and ``spread`` are the weights of the samples in class means and in S_w.
    """
    dtype, noise, Z = Z.dtype, _digits(Z), Z.astype(np.float64)
    Y = np.eye(n_classes)[y]
    # Rounding changes a mean of n samples by up to n eps times their size.
    noise += (y.size * np.finfo(float).eps) ** 2 * float(np.sum(Z * Z))
    made = []
    for mine, all_but in zip(means, spread, strict=True):
        M, total = class_means(Z, Y, all_but)
        R = (Z - M[y]) * np.sqrt(all_but)[:, None]
        freedom = max(all_but.sum() - (total > 0).sum(), 1.0)
        made.append(_gaussian(R.T @ R / freedom, class_means(Z, Y, mine)[0], SHRINK, noise))
    return Linear(*(np.stack(part).astype(dtype) for part in zip(*made, strict=True)))


def ridge(
    P: Any, at: AnyArray, y: AnyArray, weights: AnyArray, n_classes: int
) -> tuple[AnyArray, Linear]:
    """Fit least squares on all columns of P, dense or sparse.

    Minimise Σ_i w_i ‖Aᵀ(x_i - m) - (e_y - 1/c)‖² + λ‖A‖², where m is the mean of P. A lies in the
    span of the labelled rows ``at``, so that only products with these rows are needed. Return
    scores (n_folds + 1, n, n_classes) and the classifier of the last row of ``weights``.
    """
    mine, rounding = P[at].astype(float), float(np.finfo(P.dtype).eps)
    middle = np.asarray(P.mean(axis=0), dtype=float).ravel()
    if sp.issparse(P):
        G, far = (P @ mine.T).toarray().astype(float, copy=False), np.asarray(P @ middle)
    else:
        G = times(P, np.column_stack([mine.T, middle]))
        G, far = G[:, :-1], G[:, -1]
    raw = float(np.mean(G[at, np.arange(y.size)]))
    G += middle @ middle - far[:, None] - far[at][None]
    size = float(np.mean(G[at, np.arange(y.size)]))
    Y = np.eye(n_classes)[y]
    scores, last = [], np.zeros((y.size, n_classes))
    if not RIDGE * size > y.size * rounding * raw:  # the labelled samples are equal up to rounding
        scores, weights = [G @ last] * len(weights), weights[:0]
    for w in weights:
        known = np.flatnonzero(w > 0)
        even = w[known] / (w[known] @ Y[known])[y[known]]
        inner = G[np.ix_(at[known], known)] / size
        inner[np.diag_indices(known.size)] += RIDGE * even.mean() / even
        last = np.zeros((y.size, n_classes))
        last[known] = np.linalg.solve(inner, Y[known] - 1 / n_classes) / size
        scores.append(G @ last)
    A = np.asarray(mine.T @ last, dtype=float) - np.outer(middle, last.sum(axis=0))
    return np.stack(scores), Linear(A[None], -(middle @ A)[None])


def _digits(Z: AnyArray) -> float:
    """Return the squared rounding error of a sample in the dtype of Z."""
    size = float(np.square(Z, dtype=np.float64).sum()) / max(1, len(Z))
    return float((4 * np.finfo(Z.dtype).eps) ** 2) * size


def _gaussian(
    within: AnyArray, M: AnyArray, shrink: float, noise: float
) -> tuple[AnyArray, AnyArray]:
    """Return A = Σ⁻¹Mᵀ and b = -½ diag(M Σ⁻¹ Mᵀ); a trace below ``noise`` counts as zero."""
    d = within.shape[0]
    size = float(np.trace(within)) / d
    if not size * d > noise:  # with one label per class the covariance is unknown
        return M.T, -0.5 * (M * M).sum(axis=1)
    S = (1 - shrink) * within
    S[np.diag_indices(d)] += shrink * size
    A = np.linalg.solve(S, M.T)
    b = -0.5 * (M.T * A).sum(axis=0)
    flat = min(1.0, STEEPEST / max(float(np.ptp(M @ A + b)), 1.0))
    return flat * A, flat * b


def mixture(
    Z: AnyArray, labelled: AnyArray, y: AnyArray, weights: AnyArray, start: AnyArray, rounds: int
) -> list[Linear]:
    """Fit Gaussian classes with one covariance to all samples, by EM from given probabilities.

    Parameters
    ----------
    Z : array of shape (n, d)
    labelled, y : int arrays of shape (n_labelled,)
        Rows of the labelled samples, which keep their class, and their classes.
    weights : array of shape (n_folds + 1, n_labelled)
        Weights of the labels in each fold.
    start : array of shape (n_folds + 1, n, n_classes)
        Initial class probabilities.
    rounds : int
        Number of EM iterations.

    Returns
    -------
    list of Linear
        The classifiers after the first and after the last iteration.
    """
    n, c = Z.shape[0], start.shape[2]
    Y, wide = np.eye(c)[y], Z.astype(np.float64)
    ZZ = wide.T @ wide
    # The spread is a difference of two sums; this is its rounding error.
    noise = _digits(Z) + n * np.finfo(float).eps * float(np.trace(ZZ)) / n
    fits: list[list[tuple[AnyArray, AnyArray]]] = [[] for _ in start]

    def run(fold: int) -> None:
        P, known, mine = start[fold].astype(np.float64), weights[fold] > 0, fits[fold]
        P /= P.sum(axis=1, keepdims=True)
        for step in range(rounds):
            P[labelled[known]] = Y[known]
            total = np.maximum(P.sum(axis=0), 1e-6)
            M = (P.T @ wide) / total[:, None]
            within = (ZZ - (M.T * total) @ M) / n
            A, b = _gaussian(within, M, SHRINK_ALL, noise)
            mine.append((A, b))
            if step + 1 < rounds:
                P = softmax((A.T @ wide.T).T + b, axis=1)

    threads = threads_for(2.0 * rounds * Z.shape[1] * start.size)
    each(run, [(fold,) for fold in range(len(start))], threads)
    return [
        Linear(*(np.stack([fit[step][i] for fit in fits]).astype(Z.dtype) for i in (0, 1)))
        for step in (0, -1)
    ]


def class_shares(y: AnyArray, weights: AnyArray, n_classes: int) -> AnyArray:
    """Return each label's share of the weight of its class (n_folds + 1, c, n_labelled)."""
    W = np.eye(n_classes)[y].T * weights[:, None]
    total = W.sum(axis=2, keepdims=True)
    return np.asarray(W / np.where(total > 0, total, 1))


def even_masses(H: AnyArray) -> AnyArray:
    """Return the scores of label spreading, after giving each class the same total mass.

    H (n_folds + 1, n_classes, n) holds the influence of each class on each sample. The scores have
    the shape (n_folds + 1, n, n_classes).
    """
    H = np.maximum(H, 1e-30)
    H /= H.sum(axis=1, keepdims=True)
    H /= H.sum(axis=2, keepdims=True)
    H /= H.sum(axis=1, keepdims=True)
    return np.log(np.maximum(H, 1e-6)).swapaxes(1, 2)
