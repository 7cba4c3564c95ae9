"""Cross-validation over labels that is fair with two labels per class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partwise.backends.arrays import AnyArray


@dataclass
class Folds:
    """Folds of the labels, and their weights in training.

    A class without its held-out label has fewer labels than the others. A classifier that uses
    class means then errs on this label more often than on a new sample, below chance with two
    labels per class. So in a fold with a held-out label of some class, every other class loses a
    label, too.

    Attributes
    ----------
    fold : int array of shape (n_labelled,)
        The fold in which a label is held out; -1 for the only label of a class.
    means, spread : float arrays of shape (n_folds + 1, n_labelled)
        Weights of the labels in training. In ``means`` all classes lose the same number of
        labels. In ``spread`` only held-out labels are left out; it is for statistics that all
        classes share. The last row is the fit to all labels.
    """

    fold: AnyArray
    means: AnyArray
    spread: AnyArray

    @property
    def n_folds(self) -> int:
        return len(self.means) - 1

    @property
    def scored(self) -> AnyArray:
        """Mask of the labels that are held out once."""
        return self.fold >= 0

    def held_out(self, scores: AnyArray, labelled: AnyArray) -> AnyArray:
        """Return rows of the scored labels from the fold in which they were held out.

        ``scores`` is (n_folds + 1, n, c), ``labelled`` the rows of the labels in it.
        """
        keep = np.flatnonzero(self.scored)
        return scores[self.fold[keep], labelled[keep]]


def make_folds(y: AnyArray, weights: AnyArray, n_folds: int, rng: np.random.RandomState) -> Folds:
    """Return folds for class codes ``y`` (0 to c-1); none if ``n_folds`` is 0."""
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
