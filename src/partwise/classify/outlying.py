"""None of these: how far a sample is from everything that was labelled.

Two distances that no class enters: in the codes, log(1 - cosine) to the nearest label; over the
neighbour graph, -log of what reaches a sample from all labels. Both are measured in units of the
labels themselves: each label whose class has another one is held out, and its distances to the
rest are how far samples of the labelled classes are. Two labels that are each other's nearest are
as far by one distance, and count once. With few labels a spread may be small by chance, so that
what it is elsewhere counts beside them, and samples are more often far than near by as much: the
deviation is that of the upper side. A class held out in turn says how many samples of other classes
are farther.
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
#: Labels that must be held out before they say how far samples are.
FEWEST = 3
#: Spreads of the two distances as they are on public sets, the squared deviation of their mean in
#: these units, and what they count, in labels.
USUAL, OF_MEAN, COUNTS = np.array([0.8, 0.6]), 0.75, 2.0


@dataclass
class Outlying:
    """Labels, what they reach, and how far they are from each other.

    Attributes
    ----------
    told : array of shape (n_labelled, k)
        Codes of the labelled samples, at length one.
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
        """Share of samples of the labelled classes that are nearer to the labels, in [0, 1]."""
        cosine = unit_rows(np.asarray(codes, dtype=float)) @ self.told.T
        reach = self.reach if near is None else near @ self.reach
        return self._placed(_distances(cosine.max(axis=1), reach))

    def _placed(self, distances: AnyArray) -> AnyArray:
        """Where distances (n, 2) lie in the predictive distribution of another label's."""
        score = ((distances - self.middle) / self.spread).mean(axis=1)
        width = self.deviation * np.sqrt(1 + 1 / self.held)
        return np.asarray(student.cdf(score / width, self.held + COUNTS - 1))


def measure(codes: AnyArray, graph: sp.csr_array, labelled: AnyArray, y: AnyArray) -> Outlying:
    """How far labelled samples are from each other; y are codes of their classes."""
    told = unit_rows(np.asarray(codes[labelled], dtype=float))
    cosine = told @ told.T
    reach, among = _reach(graph, labelled)
    same = y[:, None] == y
    once = same.sum(axis=1) == 1
    if np.sum(~once) < FEWEST:
        raise ValueError(
            "outlyingness needs three labels whose class has another one, got "
            f"{np.sum(~once)}: how far samples of a class are from each other is not known yet."
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
    """Distances (m, 2) of labels to those that are not ``hidden`` (m, m) from them."""
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
