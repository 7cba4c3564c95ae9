"""Cross-validation over labels, fair to heads when there are two labels a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partwise.backends.arrays import AnyArray


@dataclass
class Folds:
    """Who is held out when, and who trains.

    Leaving a label out leaves its class with fewer labels than the others, and a head that looks
    at class means then errs on it more often than it will on a new sample (below chance, with two
    labels a class). So in a fold where some class is held out, every other class loses a label too.

    Attributes
    ----------
    fold : int array of shape (n_labelled,)
        The fold in which a label is held out; -1 for the only label of a class.
    means, spread : float arrays of shape (n_folds + 1, n_labelled)
        Weights of the labels in training. ``means``: the same number less of every class.
        ``spread``: all but those held out, for what is common to all classes. The last row is
        the fit to all labels.
    """

    fold: AnyArray
    means: AnyArray
    spread: AnyArray

    @property
    def n_folds(self) -> int:
        return len(self.means) - 1

    @property
    def scored(self) -> AnyArray:
        """Labels that are held out once."""
        return self.fold >= 0

    def held_out(self, scores: AnyArray, labelled: AnyArray) -> AnyArray:
        """Rows of the scored labels from the fold in which they were held out.

        ``scores`` is (n_folds + 1, n, c), ``labelled`` the rows of the labels in it.
        """
        keep = np.flatnonzero(self.scored)
        return scores[self.fold[keep], labelled[keep]]


def make_folds(y: AnyArray, weights: AnyArray, n_folds: int, rng: np.random.RandomState) -> Folds:
    """Folds for codes ``y`` (0 .. c-1) of the labelled samples; none where ``n_folds`` is 0."""
    n, c = y.size, int(y.max()) + 1
    fold, place = np.full(n, -1), 0
    members = [rng.permutation(np.flatnonzero(y == j)) for j in range(c)]
    for j in rng.permutation(c):
        m = members[j].size
        if m > 1 and n_folds:
            fold[members[j]] = (place + np.arange(m)) % n_folds
            place = (place + m) % n_folds
    means, spread = np.ones((n_folds + 1, n)), np.ones((n_folds + 1, n))
    for f in range(n_folds):
        means[f, fold == f] = spread[f, fold == f] = 0
        for mine in members:
            if mine.size > 1 and not (fold[mine] == f).any():
                means[f, mine[f % mine.size]] = 0
    return Folds(fold, means * weights, spread * weights)
