"""Given labels that the other samples contradict."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

#: Beta prior of the share of wrong labels (mean 5%, median 0.6%), and the shares that are tried. A
#: larger first number expects more wrong labels.
ERRORS, SHARES = (0.2, 4.0), np.geomspace(1e-6, 0.5, 60)
#: Probabilities for a held-out label come from fewer labels, some of them wrong, and are too flat.
#: They are sharpened by the power SHARPER[0] + SHARPER[1] ε, which was estimated on public data
#: sets with up to 30% wrong labels (`python -m benchmarks.expected --doubts`).
SHARPER = (1.35, 3.0)
#: Smallest probability of a class. Larger values make contradictions count less.
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

    An unknown share ε of the labels is wrong, and each other class is equally likely then. Let r be
    the class probabilities of a sample, p sharpened. The probability of its label g is

    .. math:: \ell_g(\varepsilon) = (1 - \varepsilon) r_g + \varepsilon\,\frac{1 - r_g}{c - 1},

    where the second term is a mistake. ε has a Beta prior (`ERRORS`). Its posterior given all
    labels weights the share of the second term. A single contradicted label among many is therefore
    as likely a difficult sample as a mistake; many contradicted labels are mistakes.

    Parameters
    ----------
    rows : (m,) array of int
        Row numbers of the labelled samples.
    p : (m, n_classes) array
        Their held-out class probabilities.
    given : (m,) array of int
        Positions of their labels in ``classes``.
    classes : (n_classes,) array
    """
    count = len(classes)
    if not len(rows) or count < 2:
        return []
    at, log_p, odds = np.arange(len(p)), np.log(np.maximum(p, MIN_PROBABILITY)), []
    log_post = ERRORS[0] * np.log(SHARES) + (ERRORS[1] - 1) * np.log1p(-SHARES)  # over log ε
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
