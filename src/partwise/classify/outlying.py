"""Outlyingness: how far a sample is from all labelled samples.

Two distances do not depend on the classes: log(1 - cosine) of the part weights to the nearest
label, and -log of what reaches a sample from all labels over the neighbour graph. Labels are held
out in turn if their class has another label, and their distances to the rest give the scale. Two
labels that are nearest to each other have one distance, which counts once. With few labels a spread
may be small by chance, so usual values count in addition. Distances are skewed, so the deviation is
that of the upper side. Each class is held out in turn to estimate how many samples of other classes
are farther away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.stats import t as student

from partwise.backends.arrays import AnyArray
from partwise.classify import spreading
from partwise.classify.features import normalized
from partwise.classify.preparation import unit_rows

#: How far labels spread over the graph.
SHARE = 0.9
#: What is added before a logarithm: to 1 - cosine, and to what reaches a sample.
CLOSE, LITTLE = 1e-3, 1e-6
#: Labels that spread at once, for memory.
BLOCK = 256
#: Number of labels that must be held out to estimate distances.
FEWEST = 3
#: Spreads of the two distances as they are on public sets, the squared deviation of their mean in
#: these units, and what they count, in labels.
USUAL, OF_MEAN, COUNTS = np.array([0.8, 0.6]), 0.75, 2.0


@dataclass
class Outlying:
    """Labels, what reaches each sample from them, and their distances.

    Attributes
    ----------
    told : array of shape (n_labelled, k)
        Part weights of the labelled samples, at length one.
    reach : array of shape (n_samples,)
        What reaches each training sample from all labels.
    middle, spread : arrays of shape (2,)
        Mean and deviation of the two distances of labels that were held out.
    deviation : float
        The same of the mean of both, in these units; ``held`` is of how many.
    found : float
        Share of labels beyond 95 % of the others when their class is held out; NaN for one class.
    """

    told: AnyArray
    reach: AnyArray
    middle: AnyArray
    spread: AnyArray
    deviation: float
    held: int
    found: float

    def score(self, codes: AnyArray, near: sp.csr_array | None = None) -> AnyArray:
        """Return the share of samples of the labelled classes that are nearer, in [0, 1]."""
        cosine = unit_rows(np.asarray(codes, dtype=float)) @ self.told.T
        reach = self.reach if near is None else near @ self.reach
        return self._placed(_distances(cosine.max(axis=1), reach))

    def _placed(self, distances: AnyArray) -> AnyArray:
        """Return the position of distances (n, 2) in the distribution of those of a label."""
        score = ((distances - self.middle) / self.spread).mean(axis=1)
        width = self.deviation * np.sqrt(1 + 1 / self.held)
        return np.asarray(student.cdf(score / width, self.held + COUNTS - 1))


def measure(codes: AnyArray, graph: sp.csr_array, labelled: AnyArray, y: AnyArray) -> Outlying:
    """Measure the distances between labelled samples; y are codes of their classes."""
    told = unit_rows(np.asarray(codes[labelled], dtype=float))
    cosine = told @ told.T
    reach, among = _reach(graph, labelled)
    same = y[:, None] == y
    once = same.sum(axis=1) == 1
    if np.sum(~once) < FEWEST:
        raise ValueError(
            "outlyingness needs three labels whose class has another one, got "
            f"{np.sum(~once)}; label more samples of the classes with one label."
        )
    itself = np.eye(y.size, dtype=bool)
    apart = _held_out(cosine, among, itself)[~once]
    nearest = np.where(itself, -1.0, cosine).argmax(axis=1)
    pairs = np.sort(np.stack([np.arange(y.size), nearest]), axis=0)[:, ~once]
    held = np.unique(pairs, axis=1).shape[1]
    middle = apart.mean(axis=0)
    spread = np.sqrt((held * apart.var(axis=0) + COUNTS * USUAL**2) / (held + COUNTS))
    score = ((apart - middle) / spread).mean(axis=1)
    above = np.maximum(score, 0)
    square = max(float(score.var()), float(above @ above) / max(int(np.sum(above > 0)), 1))
    square = (held * square + COUNTS * OF_MEAN) / (held + COUNTS - 1)
    made = Outlying(told, reach, middle, spread, square**0.5, held, float("nan"))
    if not same.all():
        made.found = float(np.mean(made._placed(_held_out(cosine, among, same)) > 0.95))
    return made


def _held_out(cosine: AnyArray, among: AnyArray, hidden: AnyArray) -> AnyArray:
    """Return the distances (m, 2) of labels to those that are not ``hidden`` (m, m)."""
    return _distances(
        np.where(hidden, -1.0, cosine).max(axis=1), np.where(hidden, 0.0, among).sum(axis=0)
    )


def _distances(cosine: AnyArray, reach: AnyArray) -> AnyArray:
    closeness = np.log(np.maximum(1 - cosine, 0) + CLOSE)
    return np.stack([closeness, -np.log(np.maximum(reach, 0) + LITTLE)], axis=1)


def _reach(graph: sp.csr_array, labelled: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the sum of the labels' influence on every sample (n,), and on each label (m, m)."""
    walk = spreading.Walk.of(normalized(graph))
    total, among = np.zeros(graph.shape[0]), []
    E = sp.eye_array(graph.shape[0], format="csr")[labelled]
    for first in range(0, labelled.size, BLOCK):
        G = spreading.propagate(walk, E[first : first + BLOCK], (SHARE,))[:, 0]
        total += G.sum(axis=0, dtype=float)
        among.append(G[:, labelled].astype(float))
    return total, np.vstack(among)
