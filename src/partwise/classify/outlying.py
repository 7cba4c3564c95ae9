"""Outlyingness: how far a sample is from all labelled samples.

The score averages two distances, which do not depend on the classes. One is log(1 - cosine) between
the part weights of a sample and of its nearest labelled sample. The other is -log of the influence
of all labels on the sample, spread over the neighbour graph.

Each label whose class has another label is held out in turn. The distances of these samples to the
other labels give the mean and the spread of each distance. Two samples that are nearest to each
other share one distance, which counts once. With few labels a spread may be small by chance, so it
is averaged with usual values. The distances are skewed, so the deviation is that above the mean.
Each class is also held out in turn, to estimate how many samples of other classes score higher.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.stats import t as student

from partwise.backends.arrays import AnyArray
from partwise.classify.classifiers import Walk, propagate
from partwise.classify.features import normalized
from partwise.classify.preparation import unit_rows

#: Share α of label spreading; a larger value spreads labels farther over the graph.
SHARE = 0.9
#: Constants that avoid log(0): added to 1 - cosine, and to the influence of the labels.
CLOSE, LITTLE = 1e-3, 1e-6
#: Number of labels that are spread together, to limit the memory.
BLOCK = 256
#: Smallest number of held-out labels from which the distances can be estimated.
FEWEST = 3
#: Usual values from public data sets: the spreads of the two distances, and the variance of the
#: standardised score. COUNTS is the weight of these values, in labels.
USUAL, OF_MEAN, COUNTS = np.array([0.8, 0.6]), 0.75, 2.0


@dataclass
class Outlying:
    """Labelled samples, and the scale of the distances of other samples to them.

    Attributes
    ----------
    told : array of shape (n_labelled, k)
        Part weights of the labelled samples, scaled to length one.
    reach : array of shape (n_samples,)
        Influence of all labels on each training sample.
    middle, spread : arrays of shape (2,)
        Mean and standard deviation of each of the two distances over the held-out labels.
    deviation : float
        Standard deviation of the mean of both distances after they were standardised.
    held : int
        Number of held-out distances.
    found : float
        Share of labels that score above 0.95 when their class is held out; NaN for one class.
    """

    told: AnyArray
    reach: AnyArray
    middle: AnyArray
    spread: AnyArray
    deviation: float
    held: int
    found: float

    def score(self, codes: AnyArray, near: sp.csr_array | None = None) -> AnyArray:
        """Return the share of samples of labelled classes that lie closer to the labels.

        The share is between 0 and 1; a large one means that the sample is unusual.
        """
        cosine = unit_rows(np.asarray(codes, dtype=float)) @ self.told.T
        reach = self.reach if near is None else near @ self.reach
        return self._placed(_distances(cosine.max(axis=1), reach))

    def _placed(self, distances: AnyArray) -> AnyArray:
        """Return the quantile of distances (n, 2) in the distribution of held-out distances."""
        score = ((distances - self.middle) / self.spread).mean(axis=1)
        width = self.deviation * np.sqrt(1 + 1 / self.held)
        return np.asarray(student.cdf(score / width, self.held + COUNTS - 1))


def measure(codes: AnyArray, graph: sp.csr_array, labelled: AnyArray, y: AnyArray) -> Outlying:
    """Measure the distances between labelled samples, whose class codes are y."""
    told = unit_rows(np.asarray(codes[labelled], dtype=float))
    cosine = told @ told.T
    reach, among = _reach(graph, labelled)
    same = y[:, None] == y
    once = same.sum(axis=1) == 1
    if np.sum(~once) < FEWEST:
        raise ValueError(
            "outlyingness needs at least three labels whose class has another label, got "
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
    """Return the distances (m, 2) of labels to others, except where ``hidden`` (m, m)."""
    return _distances(
        np.where(hidden, -1.0, cosine).max(axis=1), np.where(hidden, 0.0, among).sum(axis=0)
    )


def _distances(cosine: AnyArray, reach: AnyArray) -> AnyArray:
    closeness = np.log(np.maximum(1 - cosine, 0) + CLOSE)
    return np.stack([closeness, -np.log(np.maximum(reach, 0) + LITTLE)], axis=1)


def _reach(graph: sp.csr_array, labelled: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the labels' total influence on each sample (n,), and on each label (m, m)."""
    walk = Walk.of(normalized(graph))
    total, among = np.zeros(graph.shape[0]), []
    E = sp.eye_array(graph.shape[0], format="csr")[labelled]
    for first in range(0, labelled.size, BLOCK):
        G = propagate(walk, E[first : first + BLOCK], (SHARE,))[:, 0]
        total += G.sum(axis=0, dtype=float)
        among.append(G[:, labelled].astype(float))
    return total, np.vstack(among)
