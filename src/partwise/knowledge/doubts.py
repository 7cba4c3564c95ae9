"""Labels that the rest contradicts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

#: Beta prior of the share of labels that are wrong: 5 % in the mean, below 0.6 % in half of the
#: cases; and the shares that are tried.
ERRORS, SHARES = (0.2, 4.0), np.geomspace(1e-6, 0.5, 60)
#: Who judges a label has fewer labels than there are, and wrong ones among them: the truth is surer
#: by the power of the first and, times ε, the second. By public sets with up to 30 % of labels made
#: wrong (`python -m benchmarks.expected --doubts`); but nothing is surer than `LEAST`.
SHARPER, LEAST = (1.35, 3.0), 1e-3


class Doubt(NamedTuple):
    """A label that is more likely wrong than right."""

    sample: int
    given: Any
    suggested: Any  #: the class that the rest says
    probability: float  #: that the label is wrong


def doubts(
    rows: NDArray[Any], p: NDArray[Any], given: NDArray[Any], classes: NDArray[Any]
) -> list[Doubt]:
    r"""Labels that are more likely wrong than right, the most doubtful first.

    Who gives labels errs in an unknown share ε of them, to any other class alike. If r are the
    probabilities of a sample's classes, p sharpened, its label g is given with

    .. math:: \ell_g(\varepsilon) = (1 - \varepsilon) r_g + \varepsilon\,\frac{1 - r_g}{c - 1},

    of which the second term is a mistake. ε has a Beta prior (`ERRORS`), and what it is after all
    labels were seen weighs the share of the second term. So one label that the rest contradicts
    among many that it does not is a hard sample as likely as a mistake; many are mistakes.

    Parameters
    ----------
    rows : (m,) array of int
        The labelled samples.
    p : (m, n_classes) array
        Their probabilities, from those who do not know their labels.
    given : (m,) array of int
        Positions of their labels in ``classes``.
    classes : (n_classes,) array
    """
    count = len(classes)
    if not len(rows) or count < 2:
        return []
    at, log_p, odds = np.arange(len(p)), np.log(np.maximum(p, LEAST)), []
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
