"""What to ask next: the sample whose label settles most doubt around it.

Asking for i gains Σ_j doubt_j max(0, k(i, j) - max_l k(l, j)) over samples j, where l are those
that have a label or were asked for before: doubt, density and diversity in one sum. It is
submodular, so that asking greedily is nearly as good as asking for the best set. The kernel is a
Gaussian whose width shrinks as labels come: each label stands for its share of the samples, so the
first ones cover them all and later ones look closely. While classes are met for the first time the
answer cannot know what it has not seen: then all samples are doubtful (`unseen`).

The idea is that of uncertainty herding (Bae, Oliveira, Sutherland 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.classify.preparation import unit_rows

#: Samples whose doubt counts, those that may be asked for, and those of them looked at closely.
WITNESSES, OPEN, CANDIDATES = 1000, 4000, 400


@dataclass
class Space:
    """Where samples are compared for asking.

    Attributes
    ----------
    Z : array of shape (n_samples, d)
        Rows of length one; squared distances are 2 - 2 Z Zᵀ.
    order : int array of shape (n_samples,)
        The samples in random order; the first ones are witnesses.
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
    """Return samples on their principal axes, each divided by the root of its deviation.

    Half of the way to whitening: a few strong directions (light in pictures, length in texts) say
    little of classes, and the weakest are noise.
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
    """One minus the distance between the two best classes' probabilities, for each row."""
    if p.shape[1] < 2:
        return np.ones(len(p))
    top = np.partition(p, p.shape[1] - 2, axis=1)
    return np.asarray(1 - (top[:, -1] - top[:, -2]))


def unseen(y: AnyArray) -> float:
    """Probability that the next label is of a new class: the share of classes met once (Good 1953).

    ``y`` are the labels so far.
    """
    if not len(y):
        return 1.0
    counts = np.unique(y, return_counts=True)[1]
    return float((counts == 1).sum() / len(y))


def label_next(space: Space, doubt: AnyArray, closed: AnyArray, n: int) -> AnyArray:
    """At most n samples to ask for, the most useful first.

    Parameters
    ----------
    space : Space
    doubt : array of shape (n_samples,)
    closed : bool array of shape (n_samples,)
        Samples that have a label, or are not to be asked for.
    n : int
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
    """How far the closest of those that were told speaks for each row of Z."""
    if not len(told):
        return np.zeros(len(Z), Z.dtype)
    return np.asarray(np.exp(_distances(Z, told).min(axis=1) / -width))


def _greedy(kernel: AnyArray, covered: AnyArray, weights: AnyArray, n: int) -> AnyArray:
    """Rows of the kernel that cover most, one after the other.

    A gain only falls as others are picked, so that only the best of the old gains is looked at
    again.
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
