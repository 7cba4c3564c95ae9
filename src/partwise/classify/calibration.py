"""Probabilities that mean something: how sure a mixture of heads may be, from held-out labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import each, one_blas_thread, pieces, threads_for
from partwise.classify.features import of_blocks
from partwise.classify.heads import log_softmax, softmax

#: Inverse temperatures that are tried for a head, and for the mixture.
HEATS = np.exp(np.linspace(-7, 3, 41))
MIXED_HEATS = np.exp(np.linspace(-2, 2, 33))
#: A held-out label costs no head more than this, in log loss.
WORST = 12.0
#: Slopes that are tried for the confidence, and the spread of a normal prior on their log.
SLOPES, PRIOR = np.exp(np.linspace(-1.2, 1.2, 17)), 0.5
#: Mixtures that a thread looks at together, and what each of their entries costs, in multiply-adds.
ROWS, COST = 4000, 50.0
#: Rounds of estimating how common the classes are, and what even shares count beside the labels of
#: a class, in labels.
ROUNDS, EVEN = 3, 4.0


#: The logit of the share of right names, in `expected`: a constant, the logit of the mean
#: probability, the same over √labels, the logit of the heads' agreement, the same over √labels.
SHARE = (-0.48, 1.12, -1.7, 0.04, 1.27)
#: The log of how far its 95 % interval reaches below and above: constants, then what log labels a
#: class adds to each. By `python -m benchmarks.expected --fit`: the share on two thirds of sets;
#: the width later, beside that share, on two or three draws of all, with an upper end between those
#: of two such fits.
WIDTH = (1.06, 0.03, -0.48, 0.08)
#: Shares are taken between this and one less this before their logit is; ends reach as much beyond.
EDGE = 0.005


#: Why nothing is to be expected, unless another reason is given.
FEW = "give labels of two classes, and two of one at least (copies of a sample are one)."


class _Interval(NamedTuple):
    accuracy: float
    low: float
    high: float


class Expected(_Interval):
    """Expected accuracy with a 95% interval; it prints as a sentence.

    Attributes
    ----------
    accuracy, low, high : float
        Expected accuracy on the unlabelled samples and its interval, if all belong to labelled
        classes. NaN, 0 and 1 if no class has two labels or there is only one class.
    balanced : float
        Expected balanced accuracy: the mean over the classes of their recall.
    commonest : float
        Accuracy of always predicting the most frequent class.
    name : object
        Most frequent class.
    why : str
        Advice if the accuracy is NaN.
    """

    balanced: float
    commonest: float
    name: Any
    why: str

    def __new__(
        cls,
        accuracy: float,
        low: float,
        high: float,
        balanced: float = float("nan"),
        commonest: float = float("nan"),
        name: Any = None,
        why: str = FEW,
    ) -> Expected:
        if not (np.isnan(accuracy) or 0 <= low <= accuracy <= high <= 1):
            raise ValueError(
                f"The expected accuracy {accuracy} is not in its interval {low} to {high}; please "
                "report it."
            )
        self = super().__new__(cls, accuracy, low, high)
        self.balanced, self.commonest, self.name, self.why = balanced, commonest, name, why
        return self

    @property
    def is_better_than_commonest(self) -> bool | None:
        """Whether the names are better than the commonest one for all; None where that is open."""
        if np.isnan(self.accuracy):
            return None
        if self.accuracy <= self.commonest:
            return False
        return True if self.low > self.commonest else None

    def __str__(self) -> str:
        if np.isnan(self.accuracy):
            return f"The expected accuracy is unknown: {self.why}"
        text = (
            f"About {self.accuracy:.0%} of the unlabelled samples should have the correct label "
            f"(95% interval: {self.low:.0%} to {self.high:.0%}), if all belong to a labelled class."
        )
        return f"{text} {self.caution}".rstrip()

    @property
    def caution(self) -> str:
        """Warning if always predicting the most frequent class is, or may be, as accurate."""
        better = self.is_better_than_commonest
        if better is True or np.isnan(self.accuracy):
            return ""
        would = "would" if better is False else "might"
        return (
            f"Always predicting the most frequent class, {str(self.name)!r}, {would} be as "
            f"accurate ({self.commonest:.0%})."
        )


@dataclass
class Calibration:
    """From the mixture to probabilities, in four steps.

    ``heat``: the inverse temperature of least log loss on held-out labels. ``doubt``: nothing is
    surer than the number of labels allows. ``tilt``: classes that the answer finds more often are
    more probable, as far as there are labels to believe it. ``slope`` and ``shift``: the logit of
    the best class's probability is stretched, so that the sure are right as often as they say.
    """

    heat: float
    doubt: float
    tilt: AnyArray
    slope: float = 1.0
    shift: float = 0.0

    def tilted(self, mixed: AnyArray) -> AnyArray:
        p = tempered(mixed, self.heat, self.doubt) * self.tilt
        return p / p.sum(axis=1, keepdims=True)

    def apply(self, mixed: AnyArray) -> AnyArray:
        return by_rows(self._apply, mixed)

    def _apply(self, mixed: AnyArray) -> AnyArray:
        p = self.tilted(mixed)
        if (self.slope, self.shift) == (1.0, 0.0) or not len(p) or p.shape[1] < 2:
            return p
        rows, best = np.arange(len(p)), p.argmax(axis=1)
        top = p[rows, best]
        new = _sigmoid(self.slope * _logit(top) + self.shift)
        p *= ((1 - new) / np.maximum(1 - top, 1e-12))[:, None]
        p[rows, best] = 0
        p[rows, best] = np.maximum(new, 1.001 * p.max(axis=1))  # the best class stays the best
        return p / p.sum(axis=1, keepdims=True)


def calibrate(
    mixed: AnyArray,
    held: AnyArray,
    known: AnyArray,
    counts: AnyArray,
    last: Calibration | None,
    priors: AnyArray | None = None,
) -> Calibration:
    """The calibration of a mixture (n, c), from its probabilities of held-out labels.

    ``counts`` (c,) are the labels of each class. With ``last`` only the tilt is new. ``priors`` are
    shares of the classes (c,), estimated from the answers where None.
    """

    def tilt_of(p: AnyArray) -> AnyArray:
        return class_tilt(p, counts) if priors is None else p.shape[1] * priors

    c = mixed.shape[1]
    doubt = 1.0 / (counts.sum() + 2)
    if last is not None:
        tilt = tilt_of(by_rows(lambda some: tempered(some, last.heat, last.doubt), mixed))
        return Calibration(last.heat, doubt, tilt, last.slope, last.shift)
    heat = 1.0
    if known.size:
        rows = np.arange(known.size)
        p = [tempered(held, each, doubt)[rows, known] for each in MIXED_HEATS]
        # a prior on log heat, worth one label
        cost = [-np.log(q).sum() + np.log(h) ** 2 for q, h in zip(p, MIXED_HEATS, strict=True)]
        heat = float(MIXED_HEATS[int(np.argmin(cost))])
    tilt = tilt_of(by_rows(lambda some: tempered(some, heat, doubt), mixed))
    made = Calibration(heat, doubt, tilt)
    if known.size and c > 1:
        p = made.tilted(held)
        made.slope, made.shift = bend(p.max(axis=1), p.argmax(axis=1) == known)
    return made


def check_probabilities(p: AnyArray, what: str) -> AnyArray:
    """p as it came; an error where its rows are not probabilities, which has no first class."""
    if not np.isfinite(p).all():
        raise ValueError(
            f"The {what} are not finite, so there is no answer; please report it, with the data if "
            "you can. Samples that are scaled, or fewer columns, may do meanwhile."
        )
    sums = p.sum(axis=1)
    # a row of c quotients, each rounded, and their sum: (c + 2) eps
    worst = float(sums[np.abs(sums - 1).argmax()]) if len(p) else 1.0
    if abs(worst - 1) > 4 * (p.shape[1] + 2) * np.finfo(p.dtype).eps or p.min(initial=0.0) < 0:
        raise ValueError(f"The {what} add up to {worst:g} and not to 1; please report it.")
    return p


def by_rows(make: Callable[[AnyArray], AnyArray], mixed: AnyArray) -> AnyArray:
    """What is made of each row of mixtures (n, c), some rows at a time, in threads."""
    made = np.empty(mixed.shape)

    def run(lo: int, hi: int) -> None:
        made[lo:hi] = make(mixed[lo:hi])

    each(run, pieces(len(mixed), ROWS, len(mixed)), threads_for(COST * mixed.size))
    return made


def tempered(mixed: AnyArray, heat: float, doubt: float) -> AnyArray:
    p = softmax(heat * np.log(np.maximum(mixed, 1e-12)))
    return (1 - doubt) * p + doubt / p.shape[1]


def class_tilt(p: AnyArray, counts: AnyArray) -> AnyArray:
    """How much more probable each class is than one of c equal ones, from the answers themselves.

    p (n, c) are answers that count classes alike, ``counts`` (c,) the labels behind them. The share
    of each class is estimated by a few rounds of EM (M. Saerens, P. Latinne and C. Decaestecker,
    "Adjusting the outputs of a classifier to new a priori probabilities"). It comes in with the
    exponent m/(m + 4) · (s - 1/c)/(1 - 1/c), m the harmonic mean of the counts and s the mean
    confidence: with one or two labels, or where answers are hardly better than chance, nothing is
    known of the shares.
    """
    c = p.shape[1]
    if c == 1:
        return np.ones(1)
    shares = np.full(c, 1 / c)
    with one_blas_thread:
        for _ in range(ROUNDS):
            shares = shares * sum(of_blocks(lambda A: (1 / (A @ shares)) @ A, p)) / len(p)  # noqa: B023
    m = 1 / np.mean(1 / np.maximum(counts, 1))
    sure = sum(of_blocks(lambda A: float(A.max(axis=1).sum()), p)) / len(p)
    better = (sure - 1 / c) / (1 - 1 / c)
    return np.asarray((c * shares) ** (m / (m + EVEN) * max(better, 0.0)))


def bend(sure: AnyArray, right: AnyArray) -> tuple[float, float]:
    """Slope and shift of the logit of confidence.

    The mean confidence goes half of the way to the share of right ones: that share is of few
    labels, and each of them was named with fewer labels than there are.
    """
    z = SLOPES[:, None] * _logit(sure)
    mean = (float(sure.mean()) + (right.sum() + 0.5) / (right.size + 1)) / 2
    shift = _shift(z, mean)
    z += shift[:, None]
    cost = np.logaddexp(0, np.where(right, -z, z)).sum(axis=1)
    best = int(np.argmin(cost + 0.5 * (np.log(SLOPES) / PRIOR) ** 2))
    return float(SLOPES[best]), float(shift[best])


def _shift(z: AnyArray, mean: float) -> AnyArray:
    """The numbers that, added to the rows of z, give sigmoids with this mean."""
    low, high = np.full(len(z), -20.0), np.full(len(z), 20.0)
    for _ in range(30):
        middle = (low + high) / 2
        below = _sigmoid(z + middle[:, None]).mean(axis=1) < mean
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def temper(log_p: AnyArray, y: AnyArray) -> float:
    """The inverse temperature of a head with the least log loss on held-out labels."""
    if not y.size:
        return 1.0
    p = log_softmax(HEATS[:, None, None] * log_p)[:, np.arange(y.size), y]
    return float(HEATS[np.maximum(p, -WORST).sum(axis=1).argmax()])


def _sigmoid(z: AnyArray) -> AnyArray:
    return 1 / (1 + np.exp(-z))


def _logit(p: AnyArray) -> AnyArray:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


def expected(
    sure: float, agreement: float, n_labels: int, n_classes: int
) -> tuple[float, float, float]:
    """Share of right names among samples without a label, with a 95 % interval.

    ``sure`` is the mean probability of their names, which held-out labels calibrate, and
    ``agreement`` how far the heads give the same names, which does not hang on a few labels.
    Held-out labels alone are few, named with fewer labels than there are, and often harder than
    the rest (`suggest` asks for doubtful samples): their share was right within 7 points, and its
    binomial interval held the truth in 80 of 100 cases. Logits are added with constants that were
    fitted to public sets (`SHARE`, `WIDTH`).
    """
    s, h, few = _edged(sure), _edged(agreement), 1 / np.sqrt(n_labels)
    z = float(np.dot(SHARE, [1, s, s * few, h, h * few]))
    each = np.log(n_labels / n_classes)
    ends = z, z - np.exp(WIDTH[0] + WIDTH[2] * each), z + np.exp(WIDTH[1] + WIDTH[3] * each)
    middle, low, high = (float(_sigmoid(np.float64(end))) for end in ends)
    return middle, max(low - EDGE, 0.0), min(high + EDGE, 1.0)


def _edged(share: float) -> float:
    return float(_logit(np.clip(np.float64(share), EDGE, 1 - EDGE)))


def recalls(p: AnyArray) -> AnyArray:
    """Share of each class that is found, if p (n, c) are the probabilities; NaN where none is."""
    best = p.argmax(axis=1)
    found = np.bincount(best, p[np.arange(len(p)), best], minlength=p.shape[1])
    with np.errstate(invalid="ignore"):
        return np.asarray(found / p.sum(axis=0))
