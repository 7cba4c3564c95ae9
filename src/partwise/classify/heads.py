"""Heads: from a view of the samples and a few labels to a score for every class.

Each is fitted to all folds at once, and (but for propagation) is linear in its view: scores are
Z A + b, so that new samples cost a product. Class sizes never enter: labels are given where people
looked, which says little of how common a class is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import each, threads_for
from partwise.classify.features import times

#: Inverse strength of the ridge in logistic regression; samples have mean squared length one.
STRENGTH = 10.0
#: λ of least squares on all columns, where samples have mean squared length one.
RIDGE = 1e-3
#: Log-densities of class means farther apart than this are scaled down to it: classes are as clear
#: then, and what single precision rounds off a score decides no tie.
STEEPEST = 1e3
#: Samples whose scores are made at a time: what is in float64 stays small.
SOME = 10_000
#: Share of the sphere in the covariance within classes: of labels alone, and of all samples.
SHRINK, SHRINK_ALL = 0.2, 0.1


@dataclass
class LinearScores:
    """Scores Z A + b in every fold: ``A`` (n_folds + 1, d, c), ``b`` (n_folds + 1, c).

    Scores lie in memory class by class: sums and maxima over a few classes are then fast.
    """

    A: AnyArray
    b: AnyArray

    def scores(self, Z: AnyArray) -> AnyArray:
        """(n_folds + 1, n, c), less the largest score of each sample.

        In float64, some samples at a time: scores of classes that lie close together are
        differences of large numbers.
        """
        out = np.empty((*self.b.shape, len(Z)), Z.dtype)
        A = self.A.swapaxes(1, 2).astype(float)
        for lo in range(0, len(Z), SOME):
            raw = np.matmul(A, Z[lo : lo + SOME].T.astype(float)) + self.b[:, :, None]
            out[:, :, lo : lo + SOME] = raw - raw.max(axis=1, keepdims=True)
        return out.swapaxes(1, 2)


def class_means(Z: AnyArray, Y: AnyArray, weights: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Means (c, d) and summed weights (c,) of classes; Y is (n, c)."""
    W = Y * weights[:, None]
    total = W.sum(axis=0)
    return (W.T @ Z) / np.where(total > 0, total, 1)[:, None], total


def logistic(
    Z: AnyArray, y: AnyArray, weights: AnyArray, n_classes: int, start: AnyArray | None = None
) -> LinearScores:
    """argmin ½‖A‖² + C Σ_i w_i log-loss_i, classes counted alike, for every row of ``weights``.

    All folds are one problem for L-BFGS: they share its products.
    """
    n, (f, d) = y.size, (weights.shape[0], Z.shape[1])
    Z1 = np.hstack([Z, np.ones((n, 1), Z.dtype)])
    Y = np.eye(n_classes, dtype=Z.dtype)[y]
    totals = weights @ Y
    present = np.maximum((totals > 0).sum(axis=1), 1)
    even = weights / np.where(totals > 0, totals, 1)[:, y]
    even = (STRENGTH * even * (weights.sum(axis=1) / present)[:, None]).astype(Z.dtype)[:, :, None]
    ridge = np.ones((d + 1, 1), Z.dtype)
    ridge[-1] = 1e-3  # the intercept is all but free
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
        G = np.matmul(Z1.T, E) + ridge * B
        loss += 0.5 * float((ridge * B * B).sum(dtype=float))
        return loss, G.ravel().astype(float)

    first = np.zeros(f * (d + 1) * n_classes) if start is None else start.ravel()
    options = {"maxiter": 40, "ftol": 1e-5}
    B = minimize(value, first, jac=True, method="L-BFGS-B", options=options).x
    B = B.reshape(f, d + 1, n_classes).astype(Z.dtype)
    return LinearScores(B[:, :-1], B[:, -1])


def discriminant(
    Z: AnyArray, y: AnyArray, means: AnyArray, spread: AnyArray, n_classes: int
) -> LinearScores:
    """Gaussian classes of one covariance, from the labels: log-densities up to a constant.

    Σ = (1 - g) S_w + g tr(S_w)/d I, S_w the pooled covariance within classes.
    """
    dtype, noise, Z = Z.dtype, _digits(Z), Z.astype(np.float64)
    Y = np.eye(n_classes)[y]
    # a mean of n samples is off by n eps of their size, a square of what is left by its square
    noise += (y.size * np.finfo(float).eps) ** 2 * float(np.sum(Z * Z))
    made = []
    for mine, all_but in zip(means, spread, strict=True):
        M, total = class_means(Z, Y, all_but)
        R = (Z - M[y]) * np.sqrt(all_but)[:, None]
        freedom = max(all_but.sum() - (total > 0).sum(), 1.0)
        made.append(_gaussian(R.T @ R / freedom, class_means(Z, Y, mine)[0], SHRINK, noise))
    return LinearScores(*(np.stack(part).astype(dtype) for part in zip(*made, strict=True)))


def ridge(
    P: Any, at: AnyArray, y: AnyArray, weights: AnyArray, n_classes: int
) -> tuple[AnyArray, LinearScores]:
    """Least squares on all columns of P, dense or sparse, and not on a few directions alone.

    argmin Σ_i w_i ‖A'(x_i - m) - (e_y - 1/c)‖² + λ‖A‖², classes counted alike, m the mean of P. A
    lies in the span of the labelled rows, so that only products with these are needed. Returns
    scores (n_folds + 1, n, c) and the coefficients of the last row of weights, (1, p, c).
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
    if not RIDGE * size > y.size * rounding * raw:  # the labelled ones are all but the same
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
    return np.stack(scores), LinearScores(A[None], -(middle @ A)[None])


def _digits(Z: AnyArray) -> float:
    """What the rounding of samples, in the digits that they came with, is in their spread."""
    size = float(np.square(Z, dtype=np.float64).sum()) / max(1, len(Z))
    return float((4 * np.finfo(Z.dtype).eps) ** 2) * size


def _gaussian(
    within: AnyArray, M: AnyArray, shrink: float, noise: float
) -> tuple[AnyArray, AnyArray]:
    """A = Σ⁻¹Mᵀ and b = -½ diag(M Σ⁻¹ Mᵀ); a trace up to ``noise`` is rounding."""
    d = within.shape[0]
    size = float(np.trace(within)) / d
    if not size * d > noise:  # one label a class: nothing is known of the spread
        return M.T, -0.5 * (M * M).sum(axis=1)
    S = (1 - shrink) * within
    S[np.diag_indices(d)] += shrink * size
    A = np.linalg.solve(S, M.T)
    b = -0.5 * (M.T * A).sum(axis=0)
    flat = min(1.0, STEEPEST / max(float(np.ptp(M @ A + b)), 1.0))
    return flat * A, flat * b


def mixture(
    Z: AnyArray, labelled: AnyArray, y: AnyArray, weights: AnyArray, start: AnyArray, rounds: int
) -> list[LinearScores]:
    """The same Gaussian classes, from all samples: EM from the probabilities in ``start``.

    Labelled samples stay with their class. Returns the fits after the first and the last round.
    Z (n, d) are the samples, ``labelled`` the rows of the labels in it, and
    ``start`` is (n_folds + 1, n, c).
    """
    n, c = Z.shape[0], start.shape[2]
    Y, wide = np.eye(c)[y], Z.astype(np.float64)
    ZZ = wide.T @ wide
    # what a difference of sums leaves
    noise = _digits(Z) + n * np.finfo(float).eps * float(np.trace(ZZ)) / n
    fits: list[list[tuple[AnyArray, AnyArray]]] = [[] for _ in start]

    def run(fold: int) -> None:
        P, known, mine = start[fold].astype(np.float64), weights[fold] > 0, fits[fold]
        P /= P.sum(axis=1, keepdims=True)
        for turn in range(rounds):
            P[labelled[known]] = Y[known]
            total = np.maximum(P.sum(axis=0), 1e-6)
            M = (P.T @ wide) / total[:, None]
            within = (ZZ - (M.T * total) @ M) / n
            A, b = _gaussian(within, M, SHRINK_ALL, noise)
            mine.append((A, b))
            if turn + 1 < rounds:
                P = softmax((A.T @ wide.T).T + b)

    threads = threads_for(2.0 * rounds * Z.shape[1] * start.size)
    each(run, [(fold,) for fold in range(len(start))], threads)
    return [
        LinearScores(
            np.stack([fit[which][0] for fit in fits]).astype(Z.dtype),
            np.stack([fit[which][1] for fit in fits]).astype(Z.dtype),
        )
        for which in (0, -1)
    ]


def class_shares(y: AnyArray, means: AnyArray, n_classes: int) -> AnyArray:
    """What each label counts for its class, (n_folds, c, n_labelled): a class counts one."""
    W = np.eye(n_classes)[y].T * means[:, None]
    total = W.sum(axis=2, keepdims=True)
    return np.asarray(W / np.where(total > 0, total, 1))


def even_masses(H: AnyArray) -> AnyArray:
    """Scores of propagation: log of class shares after classes got the same mass.

    H (n_folds, c, n) is what reaches each sample from each class; scores are (n_folds, n, c).
    """
    H = np.maximum(H, 1e-30)
    H /= H.sum(axis=1, keepdims=True)
    H /= H.sum(axis=2, keepdims=True)
    H /= H.sum(axis=1, keepdims=True)
    return np.log(np.maximum(H, 1e-6)).swapaxes(1, 2)


def softmax(S: AnyArray) -> AnyArray:
    """exp(S) over its sum along the last axis."""
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    E /= E.sum(axis=-1, keepdims=True)
    return E


def log_softmax(S: AnyArray) -> AnyArray:
    S = S - S.max(axis=-1, keepdims=True)
    S -= np.log(np.exp(S).sum(axis=-1, keepdims=True))
    return S
