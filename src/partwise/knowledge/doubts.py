"""Detection of given labels that are probably wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

#: Parameters of the Beta prior of the share of wrong labels (mean 5%, median 0.6%), and the shares
#: at which the posterior is evaluated. A larger first number expects more wrong labels.
ERRORS, SHARES = (0.2, 4.0), np.geomspace(1e-6, 0.5, 60)
#: The class probabilities of a held-out sample are too close to each other, because the classifier
#: had fewer labels, and some of these are wrong. They are raised to the power
#: SHARPER[0] + SHARPER[1] ε, which was estimated on public data sets with up to 30% wrong labels
#: (`python -m benchmarks.expected --doubts`).
SHARPER = (1.35, 3.0)
#: Lower limit of class probabilities. With a larger value, a label that contradicts the
#: other labels counts less.
MIN_PROBABILITY = 1e-3


class Doubt(NamedTuple):
    """A label that is probably wrong."""

    sample: int
    given: Any
    suggested: Any  #: the class that the other samples suggest
    probability: float  #: probability that the label is wrong


def doubts(
    rows: NDArray[Any], p: NDArray[Any], given: NDArray[Any], classes: NDArray[Any]
) -> list[Doubt]:
    r"""Return labels that are probably wrong, the most doubtful first.

    The model assumes that an unknown share ε of the labels is wrong, and that each other class is
    then equally likely. Let r be the class probabilities p of a sample after sharpening. The
    probability of its label g is

    .. math:: \ell_g(\varepsilon) = (1 - \varepsilon) r_g + \varepsilon\,\frac{1 - r_g}{c - 1},

    where the second term is the probability of a wrong label. ε has a Beta prior (`ERRORS`), and
    the probability that a label is wrong is averaged over its posterior given all labels. If a
    single label among many is contradicted, it may therefore also be a difficult sample; if many
    are contradicted, they are probably wrong.

    Parameters
    ----------
    rows : (m,) array of int
        Row numbers of the labelled samples.
    p : (m, n_classes) array
        Class probabilities of these samples, predicted without their labels.
    given : (m,) array of int
        Positions of their labels in ``classes``.
    classes : (n_classes,) array
    """
    count = len(classes)
    if not len(rows) or count < 2:
        return []
    at, log_p, odds = np.arange(len(p)), np.log(np.maximum(p, MIN_PROBABILITY)), []
    # density over log ε
    log_post = ERRORS[0] * np.log(SHARES) + (ERRORS[1] - 1) * np.log1p(-SHARES)
    for j, share in enumerate(SHARES):
        own = softmax((SHARPER[0] + SHARPER[1] * share) * log_p, axis=1)[at, given]
        mistake = share * (1 - own) / (count - 1)
        likely = mistake + (1 - share) * own
        log_post[j] += np.log(likely).sum()
        odds.append(mistake / likely)
    wrong = softmax(log_post) @ np.array(odds)
    log_p[at, given] = -np.inf
    best = log_p.argmax(axis=1)
    listed = np.flatnonzero(wrong > 0.5)
    return [
        Doubt(int(rows[i]), classes[given[i]], classes[best[i]], float(wrong[i]))
        for i in listed[np.argsort(-wrong[listed], kind="stable")]
    ]
