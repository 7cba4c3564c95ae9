"""Shares of the classes among all samples, with their uncertainty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, softmax

from partwise.backends.arrays import AnyArray

#: Candidate strengths of the prior towards equal shares, in labels per class.
STRENGTHS = np.exp(np.linspace(np.log(0.5), np.log(200), 15))
#: Shares count as determined if their standard errors are below this fraction of an equal share.
DETERMINED = 0.5
#: Number of EM iterations, and half width of a 95% interval in standard errors.
ROUNDS, SIDE = 100, 1.96


class Shares(NamedTuple):
    """Shares of the classes among all samples; it prints as a sentence.

    Attributes
    ----------
    classes, shares, low, high : array of shape (n_classes,)
        Class labels, their estimated shares and 95% intervals.
    known : bool
        Whether the labels determine the shares well enough.
    """

    classes: AnyArray
    shares: AnyArray
    low: AnyArray
    high: AnyArray
    known: bool

    def __str__(self) -> str:
        if not self.known:
            return (
                "The class sizes are unknown, because the labels do not determine them. Label at "
                'least 20 samples drawn at random and use priors="measured".'
            )
        rows = zip(self.classes, self.shares, self.low, self.high, strict=True)
        return "Class sizes: " + ", ".join(
            f"{name} {share:.0%} ({low:.0%} to {high:.0%})" for name, share, low, high in rows
        )


def is_determined(error: AnyArray) -> bool:
    """Return whether standard errors (n_classes,) are small compared with an equal share."""
    return bool(error.max() < DETERMINED / error.size)


def measured_shares(counts: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Estimate class shares from labels of random samples, with standard errors.

    ``counts`` (n_classes,) has a Dirichlet-multinomial distribution around equal shares. The result
    is the posterior mean if all `STRENGTHS` of the Dirichlet distribution are equally probable a
    priori. So shares differ clearly only if the differences between counts exceed chance.
    """
    a, n = STRENGTHS[:, None], counts.sum()
    total = STRENGTHS * counts.size
    log_likelihood = gammaln(total) - gammaln(total + n)
    log_likelihood += (gammaln(counts + a) - gammaln(a)).sum(axis=1)
    weights = softmax(log_likelihood)
    means = (counts + a) / (n + total)[:, None]
    squares = means**2 + means * (1 - means) / (n + total + 1)[:, None]
    shares = weights @ means
    return shares, np.sqrt(weights @ squares - shares**2)


def estimated_shares(p: AnyArray, rounds: int = ROUNDS) -> AnyArray:
    """Return the shares that maximise the likelihood of the samples, by EM.

    ``p`` (n, n_classes) are probabilities under equal class shares. The method is that of M.
    Saerens, P. Latinne and C. Decaestecker, "Adjusting the outputs of a classifier to new a priori
    probabilities".
    """
    shares = np.full(p.shape[1], 1 / p.shape[1])
    for _ in range(rounds):
        shares = shares * ((1 / (p @ shares)) @ p) / len(p)
    return np.asarray(shares)


def standard_errors(shares: AnyArray, held: AnyArray, truth: AnyArray) -> AnyArray:
    """Return the standard errors, at most 1, of shares estimated from predictions.

    The mean prediction is Cᵀs for shares s, where row j of C is the mean prediction for samples of
    class j. C is estimated from held-out labels, and its error is propagated to s through C⁻¹. One
    additional label per class with a uniform prediction keeps the error above zero.
    """
    c = len(shares)
    if c < 2 or not truth.size:
        return np.ones(c)
    C, total = np.empty((c, c)), np.zeros((c, c))
    for j in range(c):
        mine = np.vstack([held[truth == j], np.full(c, 1 / c)])
        C[j] = mine.mean(axis=0)
        second = mine[:-1].T @ mine[:-1] + np.eye(c) / c
        total += shares[j] ** 2 * (second / len(mine) - np.outer(C[j], C[j])) / len(mine)
    if np.linalg.matrix_rank(C) < c:
        return np.ones(c)
    inverse = np.linalg.inv(C)
    return np.sqrt(np.clip(np.diag(inverse.T @ total @ inverse), 0, 1))


def find_shares(
    p: AnyArray,
    held: AnyArray,
    truth: AnyArray,
    drawn: AnyArray | None,
    error: AnyArray | None = None,
) -> tuple[AnyArray, AnyArray]:
    """Return measured or estimated shares, or both combined, and their standard errors.

    ``p`` and ``held`` are probabilities under equal class shares, for samples and for held-out
    labels. ``drawn`` are the numbers of labels per class among random samples, and ``error`` are
    the standard errors of an earlier fit. If ``drawn`` is given, estimated shares are combined with
    the measured ones only if held-out labels determine them.
    """
    if drawn is not None and error is not None:
        return measured_shares(drawn)
    shares = estimated_shares(p)
    if error is None:
        error = standard_errors(shares, held, truth)
    if drawn is None:
        return shares, error
    measured, own = measured_shares(drawn)
    if not is_determined(error):
        return measured, own
    precision, more = 1 / np.maximum(own, 1e-6) ** 2, 1 / np.maximum(error, 1e-6) ** 2
    both = (precision * measured + more * shares) / (precision + more)
    return both / both.sum(), 1 / np.sqrt(precision + more)


def accuracy_range(recalls: AnyArray, low: AnyArray, high: AnyArray) -> tuple[float, float]:
    """Return the range of Σ_j s_j r_j over shares s within bounds whose sum is one."""
    ends = []
    for order in (np.argsort(recalls), np.argsort(-recalls)):
        s, left = low.copy(), 1 - low.sum()
        for j in order:
            more = min(high[j] - low[j], left)
            s[j] += more
            left -= more
        ends.append(float(s @ recalls))
    return ends[0], ends[1]
