"""Labels that the rest contradicts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Doubt(NamedTuple):
    """A label that is more likely wrong than right.

    Attributes
    ----------
    sample : int
    given, suggested : object
        The label, and the class that the rest says.
    probability : float
        That the label is wrong.
    """

    sample: int
    given: Any
    suggested: Any
    probability: float


def doubts(
    rows: NDArray[Any], p: NDArray[Any], given: NDArray[Any], classes: NDArray[Any]
) -> list[Doubt]:
    r"""Labels that are more likely wrong than right, the most doubtful first.

    Who gives labels is taken to err in a share ε of them, to any other class alike. Then what is
    learnt from such labels says p = (1 - ε) r + ε/(c - 1) (1 - r) of a sample whose true class has
    the probabilities r, which gives r, and

    .. math:: P(\text{wrong} \mid x, \text{given } g) =
        \frac{(1 - r_g)\,\varepsilon/(c-1)}{(1 - r_g)\,\varepsilon/(c-1) + r_g (1 - \varepsilon)}.

    ε is the share of labels that are not the likeliest class; at least 0.05, at most a half.

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
    at = np.arange(len(p))
    share = float(np.clip((p.argmax(axis=1) != given).mean(), 0.05, 0.5))
    apiece = share / (count - 1)
    truth = np.maximum(p - apiece, 1e-3) / max(1 - share - apiece, 1e-3)
    truth /= truth.sum(axis=1, keepdims=True)
    own = truth[at, given]
    wrong = (1 - own) * apiece
    wrong /= wrong + own * (1 - share)
    truth[at, given] = -1
    best = truth.argmax(axis=1)
    listed = np.flatnonzero(wrong > 0.5)
    return [
        Doubt(int(rows[i]), classes[given[i]], classes[best[i]], float(wrong[i]))
        for i in listed[np.argsort(-wrong[listed], kind="stable")]
    ]
