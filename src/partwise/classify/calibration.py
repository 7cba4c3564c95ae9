"""Calibrated probabilities, class shares and expected accuracy, from held-out labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, log_softmax, logit, softmax

from partwise.backends.arrays import AnyArray
from partwise.persistence.values import may_be_saved

#: Candidate inverse temperatures for each classifier, and for the mixture of all classifiers.
HEATS = np.exp(np.linspace(-7, 3, 41))
MIXED_HEATS = np.exp(np.linspace(-2, 2, 33))
#: Upper limit for the log loss of one held-out label, so that one wrong label cannot dominate the
#: mean.
WORST = 12.0
#: Candidate slopes for the logit of the confidence. PRIOR is the standard deviation of the normal
#: prior on the logarithm of the slope.
SLOPES, PRIOR = np.exp(np.linspace(-1.2, 1.2, 17)), 0.5
#: Estimating the class shares when held-out labels do not determine them: iterations of EM, the
#: weight of equal shares (in labels per class), and the number of samples that EM uses.
ROUNDS, EVEN, SAMPLES = 3, 4.0, 4000
#: Candidate strengths of the prior towards equal shares, in labels per class.
STRENGTHS = np.exp(np.linspace(np.log(0.5), np.log(200), 15))
#: Shares count as determined if their standard errors are below this fraction of an equal share.
DETERMINED = 0.5
#: Number of EM iterations, and half width of a 95% interval in standard errors.
CONVERGED, SIDE = 100, 1.96
#: Coefficients of the logit of the expected accuracy. They multiply a constant, the logit of the
#: mean probability, this logit divided by √n_labels, the logit of the agreement, and that logit
#: divided by √n_labels.
SHARE = (-0.48, 1.12, -1.7, 0.04, 1.27)
#: Coefficients of the log width of the 95% interval below and above the expected accuracy: two
#: constants, then two coefficients of the log number of labels per class. SHARE and WIDTH were
#: fitted with `python -m benchmarks.expected --fit`.
WIDTH = (1.06, 0.03, -0.48, 0.08)
#: The confidence and the agreement of the classifiers are clipped to [EDGE, 1 - EDGE] before their
#: logits are computed. The 95% interval of the expected accuracy is wider by EDGE at both ends.
EDGE = 0.005
#: Advice to the user if the expected accuracy cannot be estimated.
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
    by_shares : tuple of float
        Smallest and largest expected accuracy over all plausible class sizes. Equal to the
        interval if the labels determine the class sizes.
    """

    balanced: float
    commonest: float
    name: Any
    why: str
    by_shares: tuple[float, float]

    def __new__(
        cls,
        accuracy: float,
        low: float,
        high: float,
        balanced: float = float("nan"),
        commonest: float = float("nan"),
        name: Any = None,
        why: str = FEW,
        by_shares: tuple[float, float] | None = None,
    ) -> Expected:
        self = super().__new__(cls, accuracy, low, high)
        self.balanced, self.commonest, self.name, self.why = balanced, commonest, name, why
        self.by_shares = by_shares or (low, high)
        return self

    @property
    def is_better_than_commonest(self) -> bool | None:
        """True if the accuracy exceeds that of the most frequent class; None if undecided."""
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
        return " ".join(filter(None, (text, self.caution, self.shares_note)))

    @property
    def shares_note(self) -> str:
        """Sentence with the range of the accuracy, for class sizes that are not known."""
        low, high = self.by_shares
        if np.isnan(self.accuracy) or (low, high) == (self.low, self.high):
            return ""
        return (
            "The labels do not determine the class sizes: depending on these, the accuracy may be "
            f"between {low:.0%} and {high:.0%}. Labels of 20 samples drawn at random measure them."
        )

    @property
    def caution(self) -> str:
        """Warning if always predicting the most frequent class may be as accurate."""
        better = self.is_better_than_commonest
        if better is True or np.isnan(self.accuracy):
            return ""
        would = "would" if better is False else "might"
        return (
            f"Always predicting the most frequent class, {str(self.name)!r}, {would} be as "
            f"accurate ({self.commonest:.0%})."
        )


@may_be_saved
@dataclass
class Calibration:
    """Transformation of the ensemble's averaged predictions to calibrated probabilities.

    Attributes
    ----------
    heat : float
        Inverse temperature with the smallest log loss on held-out labels.
    doubt : float
        Weight of equal class probabilities in the result. It limits the confidence with few labels.
    tilt : array of shape (n_classes,)
        Factor for each class probability: the estimated share of the class times n_classes.
    slope, shift : float
        Linear transform of the logit of the largest probability. It brings the confidence closer
        to the accuracy on held-out labels.
    error : array of shape (n_classes,)
        Standard errors of the class shares; 1 where held-out labels do not determine a share.
    """

    heat: float
    doubt: float
    tilt: AnyArray
    slope: float = 1.0
    shift: float = 0.0
    error: AnyArray = field(default_factory=lambda: np.ones(1))

    def tilted(self, mixed: AnyArray) -> AnyArray:
        """Return the probabilities before the slope and the shift are applied."""
        p = tempered(mixed, self.heat, self.doubt) * self.tilt
        return p / p.sum(axis=1, keepdims=True)

    def apply(self, mixed: AnyArray) -> AnyArray:
        """Return calibrated probabilities from averaged predictions ``mixed`` (n, n_classes)."""
        p = self.tilted(mixed)
        if (self.slope, self.shift) == (1.0, 0.0) or not len(p) or p.shape[1] < 2:
            return p
        rows, best = np.arange(len(p)), p.argmax(axis=1)
        top = p[rows, best]
        new = expit(self.slope * _logit(top) + self.shift)
        p *= ((1 - new) / np.maximum(1 - top, 1e-12))[:, None]
        p[rows, best] = 0
        p[rows, best] = np.maximum(new, 1.001 * p.max(axis=1))  # the predicted class stays the same
        return p / p.sum(axis=1, keepdims=True)


def calibrate(
    mixed: AnyArray,
    held: AnyArray,
    truth: AnyArray,
    counts: AnyArray,
    last: Calibration | None,
    priors: AnyArray | None = None,
    drawn: AnyArray | None = None,
) -> Calibration:
    """Fit the calibration of the ensemble's averaged predictions.

    Parameters
    ----------
    mixed, held : arrays of shape (n, n_classes) and (n_held_out, n_classes)
        Averaged predictions for all samples, and for held-out labels.
    truth : int array of shape (n_held_out,)
    counts : array of shape (n_classes,)
        Number of labels of each class.
    last : Calibration or None
        Earlier calibration. If it is given, only its ``tilt`` is estimated again.
    priors : array of shape (n_classes,), default=None
        Known shares of the classes.
    drawn : int array of shape (n_classes,), default=None
        Number of labels of each class among samples that were drawn at random. Such labels
        measure the class shares.
    """
    c, doubt = mixed.shape[1], 1.0 / (counts.sum() + 2)
    heat = 1.0 if last is None else last.heat
    if truth.size and last is None:
        rows = np.arange(truth.size)
        p = [tempered(held, each, doubt)[rows, truth] for each in MIXED_HEATS]
        # The second term is a prior on the log temperature with the weight of about one label.
        cost = [-np.log(q).sum() + np.log(h) ** 2 for q, h in zip(p, MIXED_HEATS, strict=True)]
        heat = float(MIXED_HEATS[int(np.argmin(cost))])
    p = tempered(mixed, heat, doubt if last is None else last.doubt)
    if priors is not None:
        tilt, error = c * priors, np.zeros(c)
    else:
        some = p[:: max(len(p) // SAMPLES, 1)]
        before = None if last is None else last.error
        shares, error = find_shares(some, tempered(held, heat, doubt), truth, drawn, before)
        known = drawn is not None or is_determined(error)
        tilt = c * shares if known else class_tilt(p, counts)
    if last is not None:
        return Calibration(heat, doubt, tilt, last.slope, last.shift, error)
    made = Calibration(heat, doubt, tilt, error=error)
    if truth.size and c > 1:
        p = made.tilted(held)
        made.slope, made.shift = bend(p.max(axis=1), p.argmax(axis=1) == truth)
    return made


def check_probabilities(p: AnyArray, what: str) -> AnyArray:
    """Return p, or raise a ValueError if its rows are not probabilities."""
    if not np.isfinite(p).all():
        raise ValueError(
            f"The {what} are not finite. Scale X or remove columns, and please report this error."
        )
    sums = p.sum(axis=1)
    # Rounding of c quotients and of their sum can change the sum of a row by (c + 2) eps.
    worst = float(sums[np.abs(sums - 1).argmax()]) if len(p) else 1.0
    if abs(worst - 1) > 4 * (p.shape[1] + 2) * np.finfo(p.dtype).eps or p.min(initial=0.0) < 0:
        raise ValueError(f"The {what} sum to {worst:g} and not to 1; please report this error.")
    return p


def tempered(mixed: AnyArray, heat: float, doubt: float) -> AnyArray:
    """Apply the inverse temperature ``heat``, then mix with equal probabilities.

    The equal probabilities 1/c get the weight ``doubt``.
    """
    p = softmax(heat * np.log(np.maximum(mixed, 1e-12)), axis=1)
    return (1 - doubt) * p + doubt / p.shape[1]


def class_tilt(p: AnyArray, counts: AnyArray) -> AnyArray:
    """Return the ratio of each class's share to 1/c, estimated from predictions.

    ``p`` (n, c) are probabilities under equal class shares, and ``counts`` (c,) are the numbers of
    labels. The shares come from a few iterations of EM. The ratio is raised to the power
    m/(m + 4) · (s - 1/c)/(1 - 1/c), where m is the harmonic mean of the counts and s the mean
    confidence. So the ratio stays near 1 with one or two labels per class, or if the predictions
    are hardly better than chance.
    """
    c = p.shape[1]
    if c == 1:
        return np.ones(1)
    shares = estimated_shares(p, ROUNDS)
    m = 1 / np.mean(1 / np.maximum(counts, 1))
    better = (float(p.max(axis=1).mean()) - 1 / c) / (1 - 1 / c)
    return np.asarray((c * shares) ** (m / (m + EVEN) * max(better, 0.0)))


def bend(confidence: AnyArray, correct: AnyArray) -> tuple[float, float]:
    """Return slope and shift of the logit of the confidence.

    The mean confidence moves half of the way to the accuracy on held-out labels. It does not move
    all the way, since held-out labels are few and were predicted from fewer labels than available.
    """
    z = SLOPES[:, None] * _logit(confidence)
    mean = (float(confidence.mean()) + (correct.sum() + 0.5) / (correct.size + 1)) / 2
    low, high = np.full(len(z), -20.0), np.full(len(z), 20.0)
    for _ in range(30):  # bisection for the shift of each slope
        shift = (low + high) / 2
        below = expit(z + shift[:, None]).mean(axis=1) < mean
        low, high = np.where(below, shift, low), np.where(below, high, shift)
    shift = (low + high) / 2
    z += shift[:, None]
    cost = np.logaddexp(0, np.where(correct, -z, z)).sum(axis=1)
    best = int(np.argmin(cost + 0.5 * (np.log(SLOPES) / PRIOR) ** 2))
    return float(SLOPES[best]), float(shift[best])


def temper(log_p: AnyArray, y: AnyArray) -> float:
    """Return the inverse temperature that minimises the log loss of a classifier."""
    if not y.size:
        return 1.0
    p = log_softmax(HEATS[:, None, None] * log_p, axis=2)[:, np.arange(y.size), y]
    return float(HEATS[np.maximum(p, -WORST).sum(axis=1).argmax()])


def _logit(p: AnyArray) -> AnyArray:
    return np.asarray(logit(np.clip(p, 1e-6, 1 - 1e-6)))


class Shares(NamedTuple):
    """Shares of the classes among all samples; it prints as a sentence.

    Attributes
    ----------
    classes, shares, low, high : array of shape (n_classes,)
        Class labels, their estimated shares and 95% intervals.
    known : bool
        Whether the labels determine the shares well enough.
    """

    classes: AnyArray
    shares: AnyArray
    low: AnyArray
    high: AnyArray
    known: bool

    def __str__(self) -> str:
        if not self.known:
            return (
                "The class sizes are unknown, because the labels do not determine them. Label at "
                'least 20 samples drawn at random and use priors="measured".'
            )
        rows = zip(self.classes, self.shares, self.low, self.high, strict=True)
        return "Class sizes: " + ", ".join(
            f"{name} {share:.0%} ({low:.0%} to {high:.0%})" for name, share, low, high in rows
        )


def is_determined(error: AnyArray) -> bool:
    """Return whether standard errors (n_classes,) are small compared with an equal share."""
    return bool(error.max() < DETERMINED / error.size)


def measured_shares(counts: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Estimate class shares from labels of random samples, with standard errors.

    ``counts`` (n_classes,) has a Dirichlet-multinomial distribution around equal shares. The result
    is the posterior mean if all `STRENGTHS` of the Dirichlet distribution are equally probable a
    priori. So shares differ clearly only if the differences between counts exceed chance.
    """
    a, n = STRENGTHS[:, None], counts.sum()
    total = STRENGTHS * counts.size
    log_likelihood = gammaln(total) - gammaln(total + n)
    log_likelihood += (gammaln(counts + a) - gammaln(a)).sum(axis=1)
    weights = softmax(log_likelihood)
    means = (counts + a) / (n + total)[:, None]
    squares = means**2 + means * (1 - means) / (n + total + 1)[:, None]
    shares = weights @ means
    return shares, np.sqrt(weights @ squares - shares**2)


def estimated_shares(p: AnyArray, rounds: int = CONVERGED) -> AnyArray:
    """Return the shares that maximise the likelihood of the samples, by EM.

    ``p`` (n, n_classes) are probabilities under equal class shares. The method is that of M.
    Saerens, P. Latinne and C. Decaestecker, "Adjusting the outputs of a classifier to new a priori
    probabilities".
    """
    shares = np.full(p.shape[1], 1 / p.shape[1])
    for _ in range(rounds):
        shares = shares * ((1 / (p @ shares)) @ p) / len(p)
    return np.asarray(shares)


def standard_errors(shares: AnyArray, held: AnyArray, truth: AnyArray) -> AnyArray:
    """Return the standard errors, at most 1, of shares estimated from predictions.

    The mean prediction is Cᵀs for shares s, where row j of C is the mean prediction for samples of
    class j. C is estimated from held-out labels, and its error is propagated to s through C⁻¹. One
    additional label per class with a uniform prediction keeps the error above zero.
    """
    c = len(shares)
    if c < 2 or not truth.size:
        return np.ones(c)
    C, total = np.empty((c, c)), np.zeros((c, c))
    for j in range(c):
        mine = np.vstack([held[truth == j], np.full(c, 1 / c)])
        C[j] = mine.mean(axis=0)
        second = mine[:-1].T @ mine[:-1] + np.eye(c) / c
        total += shares[j] ** 2 * (second / len(mine) - np.outer(C[j], C[j])) / len(mine)
    if np.linalg.matrix_rank(C) < c:
        return np.ones(c)
    inverse = np.linalg.inv(C)
    return np.sqrt(np.clip(np.diag(inverse.T @ total @ inverse), 0, 1))


def find_shares(
    p: AnyArray,
    held: AnyArray,
    truth: AnyArray,
    drawn: AnyArray | None,
    error: AnyArray | None = None,
) -> tuple[AnyArray, AnyArray]:
    """Return measured or estimated shares, or both combined, and their standard errors.

    ``p`` and ``held`` are probabilities under equal class shares, for samples and for held-out
    labels. ``drawn`` are the numbers of labels per class among random samples, and ``error`` are
    the standard errors of an earlier fit. If ``drawn`` is given, estimated shares are combined with
    the measured ones only if held-out labels determine them.
    """
    if drawn is not None and error is not None:
        return measured_shares(drawn)
    shares = estimated_shares(p)
    if error is None:
        error = standard_errors(shares, held, truth)
    if drawn is None:
        return shares, error
    measured, own = measured_shares(drawn)
    if not is_determined(error):
        return measured, own
    precision, more = 1 / np.maximum(own, 1e-6) ** 2, 1 / np.maximum(error, 1e-6) ** 2
    both = (precision * measured + more * shares) / (precision + more)
    return both / both.sum(), 1 / np.sqrt(precision + more)


def accuracy_range(recalls: AnyArray, low: AnyArray, high: AnyArray) -> tuple[float, float]:
    """Return the range of Σ_j s_j r_j over shares s within bounds whose sum is one."""
    ends = []
    for order in (np.argsort(recalls), np.argsort(-recalls)):
        s, left = low.copy(), 1 - low.sum()
        for j in order:
            more = min(high[j] - low[j], left)
            s[j] += more
            left -= more
        ends.append(float(s @ recalls))
    return ends[0], ends[1]


def expected(
    confidence: float, agreement: float, n_labels: int, n_classes: int
) -> tuple[float, float, float]:
    """Return the expected accuracy on unlabelled samples with a 95% interval.

    ``confidence`` is the mean probability of the predicted classes of these samples, and
    ``agreement`` is how often the classifiers agree. The accuracy on held-out labels alone would be
    misleading: these labels are few, they were predicted from fewer labels than available, and
    `suggest` asks for labels of difficult samples. The coefficients `SHARE` and `WIDTH` were fitted
    to public data sets.
    """
    s, h = (float(logit(np.clip(share, EDGE, 1 - EDGE))) for share in (confidence, agreement))
    few, each = 1 / np.sqrt(n_labels), np.log(n_labels / n_classes)
    z = float(np.dot(SHARE, [1, s, s * few, h, h * few]))
    ends = z, z - np.exp(WIDTH[0] + WIDTH[2] * each), z + np.exp(WIDTH[1] + WIDTH[3] * each)
    middle, low, high = (float(expit(end)) for end in ends)
    return middle, max(low - EDGE, 0.0), min(high + EDGE, 1.0)


def recalls(p: AnyArray) -> AnyArray:
    """Return the expected recall of each class for calibrated p; NaN if it is undefined."""
    best = p.argmax(axis=1)
    found = np.bincount(best, p[np.arange(len(p)), best], minlength=p.shape[1])
    with np.errstate(invalid="ignore"):
        return np.asarray(found / p.sum(axis=0))
