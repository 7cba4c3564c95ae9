"""Folds for cross-validation that do not bias scores with two labels per class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from partwise.backends.arrays import AnyArray


@dataclass
class Folds:
    """Folds of the labels, and their weights in training.

    If only one class loses a label, its mean becomes less accurate than the means of the other
    classes. A classifier that uses class means then predicts the held-out label worse than a new
    sample, and worse than chance with two labels per class. So when a label of one class is held
    out, every other class loses a label, too.

    Attributes
    ----------
    fold : int array of shape (n_labelled,)
        The fold in which a label is held out; -1 for the only label of a class.
    means, spread : float arrays of shape (n_folds + 1, n_labelled)
        Training weights of the labels in each fold. In ``means`` all classes lose the same number
        of labels. ``spread`` leaves out only the held-out labels and serves statistics that all
        classes share. The last row is for the fit to all labels.
    """

    fold: AnyArray
    means: AnyArray
    spread: AnyArray

    @property
    def n_folds(self) -> int:
        return len(self.means) - 1

    @property
    def scored(self) -> AnyArray:
        """Mask of the labels that are held out in some fold."""
        return self.fold >= 0

    def held_out(self, scores: AnyArray, labelled: AnyArray) -> AnyArray:
        """Return the scores of each held-out label from the fold without this label.

        ``scores`` has the shape (n_folds + 1, n, c), and ``labelled`` holds the index of each label
        along its second axis.
        """
        keep = np.flatnonzero(self.scored)
        return scores[self.fold[keep], labelled[keep]]


def make_folds(y: AnyArray, weights: AnyArray, n_folds: int, rng: np.random.RandomState) -> Folds:
    """Return folds for class codes ``y`` (0 to c-1); 0 folds hold no label out."""
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
