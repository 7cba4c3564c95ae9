"""Labels that the rest contradicts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Doubt(NamedTuple):
    """A label that is more likely wrong than right."""

    sample: int
    given: Any
    suggested: Any  #: the class that the rest says
    probability: float  #: that the label is wrong


def error_share(p: NDArray[Any], given: NDArray[Any], rest: NDArray[Any] | None = None) -> float:
    """Share ε of labels that are wrong, at most a half: of those that are not the likeliest class.

    Labels of samples that were asked for because they are hard are contradicted often, and seldom
    wrong. With ``rest``, probabilities of samples without a label, only labels count where what
    speaks is as sure as it is of half of the rest; few of these are weighed by half an error in
    five. Else all count, and at least 0.05 is taken.
    """
    contradicted = p.argmax(axis=1) != given
    if rest is None or not len(rest):
        return float(np.clip(contradicted.mean(), 0.05, 0.5))
    clear = p.max(axis=1) >= np.median(rest.max(axis=1))
    share = (contradicted[clear].sum() + 0.5) / (clear.sum() + 5)
    return float(np.clip(share, 0.0, 0.5))


def doubts(
    rows: NDArray[Any],
    p: NDArray[Any],
    given: NDArray[Any],
    classes: NDArray[Any],
    rest: NDArray[Any] | None = None,
) -> list[Doubt]:
    r"""Labels that are more likely wrong than right, the most doubtful first.

    Who gives labels is taken to err in a share ε of them, to any other class alike. Then what is
    learnt from such labels says p = (1 - ε) r + ε/(c - 1) (1 - r) of a sample whose true class has
    the probabilities r, which gives r, and

    .. math:: P(\text{wrong} \mid x, \text{given } g) =
        \frac{(1 - r_g)\,\varepsilon/(c-1)}{(1 - r_g)\,\varepsilon/(c-1) + r_g (1 - \varepsilon)}.

    ε is `error_share`.

    Parameters
    ----------
    rows : (m,) array of int
        The labelled samples.
    p : (m, n_classes) array
        Their probabilities, from those who do not know their labels.
    given : (m,) array of int
        Positions of their labels in ``classes``.
    classes : (n_classes,) array
    rest : (n, n_classes) array, default=None
        Probabilities of the samples without a label.
    """
    count = len(classes)
    if not len(rows) or count < 2:
        return []
    at = np.arange(len(p))
    share = error_share(p, given, rest)
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
