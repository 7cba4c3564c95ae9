"""Active learning: the samples to label next.

The method follows uncertainty herding (Bae, Oliveira, Sutherland 2024). The gain of sample i is
Σ_j doubt_j max(0, k(i, j) - max_l k(l, j)) over samples j, where l are the samples that have a
label or were chosen before. So one sum combines doubt, density and diversity. The sum is
submodular, so a greedy choice is nearly as good as the best set of samples. The Gaussian kernel k
becomes narrower with more labels: the first labels represent all samples, and later labels small
regions. While new classes still appear, all samples count as doubtful (`unseen`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.classify.preparation import unit_rows

#: Upper limits that keep the choice fast: the samples j in the sum, the unlabelled samples that may
#: be chosen, and the samples whose gain is computed.
WITNESSES, OPEN, CANDIDATES = 1000, 4000, 400


@dataclass
class Space:
    """Coordinates in which `label_next` compares samples.

    Attributes
    ----------
    Z : array of shape (n_samples, d)
        Rows of length one; squared distances are 2 - 2 Z Zᵀ.
    order : int array of shape (n_samples,)
        The samples in random order. The first `WITNESSES` of them are the samples j in the sum.
    reach : array
        Median squared distance from a witness to its 0th, 1st, ... nearest witness.
    """

    Z: AnyArray
    order: AnyArray
    reach: AnyArray

    @property
    def witnesses(self) -> AnyArray:
        return self.order[:WITNESSES]


def make_space(view: AnyArray, seed: int = 0) -> Space:
    """Return samples on principal axes, each divided by the root of its deviation.

    This is halfway between no scaling and whitening. The strongest directions (lighting of images,
    length of texts) often have little to do with the classes, and the weakest are noise.
    """
    Z = view - view.mean(axis=0)
    values, Q = np.linalg.eigh(Z.T @ Z / max(len(Z), 1))
    deviation = np.sqrt(np.maximum(values, 0))
    Z = unit_rows(Z @ (Q / np.sqrt(deviation + 1e-3 * deviation.max(initial=0.0) + 1e-12)))
    Z = np.ascontiguousarray(Z, dtype=np.float32)
    order = np.random.RandomState(seed).permutation(len(Z))
    W = Z[order[:WITNESSES]]
    reach = np.median(np.sort(_distances(W, W), axis=1), axis=0)
    return Space(Z, order, reach)


def _distances(A: AnyArray, B: AnyArray) -> AnyArray:
    return np.maximum(2 - 2 * (A @ B.T), 0)


def margins(p: AnyArray) -> AnyArray:
    """Return one minus the difference of the two largest probabilities of each row."""
    if p.shape[1] < 2:
        return np.ones(len(p))
    top = np.partition(p, p.shape[1] - 2, axis=1)
    return np.asarray(1 - (top[:, -1] - top[:, -2]))


def unseen(y: AnyArray) -> float:
    """Return the probability that the next label is of a new class (Good 1953).

    ``y`` are the labels given until now.
    """
    if not len(y):
        return 1.0
    counts = np.unique(y, return_counts=True)[1]
    return float((counts == 1).sum() / len(y))


def label_next(space: Space, doubt: AnyArray, closed: AnyArray, n: int) -> AnyArray:
    """Return at most n samples to label, the most useful first.

    Parameters
    ----------
    space : Space
    doubt : array of shape (n_samples,)
        Uncertainty of the prediction for each sample.
    closed : bool array of shape (n_samples,)
        Samples that have a label or must not be chosen.
    n : int
        Number of samples to choose.
    """
    told = space.Z[closed]
    able = space.order[~closed[space.order]][:OPEN]
    count = min(n, len(able))
    share = len(space.reach) / (len(told) + max(count, 1))
    width = max(float(space.reach[min(len(space.reach) - 1, max(1, round(share)))]), 1e-9)
    if len(able) > CANDIDATES:
        alone = 1 - _covered(space.Z[able], told, width)
        best = np.argpartition(-doubt[able] * alone, CANDIDATES)
        able = able[np.sort(best[:CANDIDATES])]
    W = space.witnesses
    kernel = np.exp(_distances(space.Z[able], space.Z[W]) / -width)
    weights = doubt[W].astype(kernel.dtype)
    return able[_greedy(kernel, _covered(space.Z[W], told, width), weights, count)]


def _covered(Z: AnyArray, told: AnyArray, width: float) -> AnyArray:
    """Return the kernel between each row of Z and its closest labelled sample."""
    if not len(told):
        return np.zeros(len(Z), Z.dtype)
    return np.asarray(np.exp(_distances(Z, told).min(axis=1) / -width))


def _greedy(kernel: AnyArray, covered: AnyArray, weights: AnyArray, n: int) -> AnyArray:
    """Choose the rows of the kernel with the largest gains, one after the other.

    Gains never increase while rows are chosen. So only the row with the largest known gain needs to
    be computed again.
    """
    gain = np.maximum(kernel - covered, 0) @ weights
    picked: list[int] = []
    while len(picked) < n:
        best = int(gain.argmax())
        old, gain[best] = gain[best], -np.inf
        now = float(np.maximum(kernel[best] - covered, 0) @ weights)
        if now < gain.max(initial=-np.inf) and now < old:
            gain[best] = now
            continue
        picked.append(best)
        covered = np.maximum(covered, kernel[best])
    return np.array(picked, dtype=np.intp)
