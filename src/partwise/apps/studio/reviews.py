"""Reviews: cross-validated accuracy, benefit of more labels, doubtful labels."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from partwise import PartsClassifier

#: Number of further labels for which the improvement is estimated.
AHEAD = 20
#: Conditions under which labelling may stop. ENOUGH: further labels improve the accuracy by less
#: than these percentage points. PER_CLASS: each class has this many labels. NARROW: the 95%
#: interval ends at most this far below the expected accuracy.
ENOUGH, PER_CLASS, NARROW = 0.5, 3, 0.05


@dataclass(frozen=True)
class Point:
    """Expected accuracy with its 95% interval, for a number of labels."""

    labels: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Review:
    """Content of the progress page.

    ``recall`` is the share of correctly predicted labels per class. ``contradicted`` contains
    samples with their given label, the predicted label, and the probability that the given label is
    wrong.
    """

    headline: str = ""
    sentences: tuple[str, ...] = ("Label at least two samples of two classes.",)
    history: list[Point] = field(default_factory=list)
    recall: dict[str, float] = field(default_factory=dict)
    contradicted: list[tuple[int, str, str, float]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Latest expected accuracy, or 1 if it was not estimated yet."""
        return self.history[-1].accuracy if self.history else 1.0


class Reviewed(NamedTuple):
    """A review, the classifier weights it found, and the version of the part weights."""

    review: Review
    weighting: dict[str, Any]
    edition: int = 0


def column(labels: Mapping[int, str], n: int) -> Any:
    """Return the label of each of n samples, None for unlabelled samples."""
    y = np.full(n, None, dtype=object)
    y[list(labels)] = list(labels.values())
    return y


def relabel(
    model: PartsClassifier,
    labels: Mapping[int, str],
    random: Sequence[int] = (),
    weigh: bool | Mapping[str, Any] = True,
) -> PartsClassifier:
    """Return the model after predicting from these labels.

    Labels of ``random`` samples, which were drawn at random, measure the class sizes. ``weigh``
    sets the classifier weights, or whether cross-validation computes them.
    """
    drawn = [i for i in random if i in labels]
    model.priors = "measured" if drawn else "estimated"
    return model.relabel(column(labels, len(model.embedding_)), weigh=weigh, drawn=drawn or None)


def review(
    model: PartsClassifier,
    labels: Mapping[int, str],
    history: list[Point],
    random: Sequence[int] = (),
) -> Reviewed:
    """Return a review: classifier weights and accuracy by cross-validation."""
    relabel(model, labels, random)
    rows, p, truth = model.held_out_
    if not len(rows):
        text = "Give one class a second label; then the accuracy can be estimated."
        return Reviewed(Review("", (text,), history), model.weighting_)
    expected = model.expected_accuracy_
    now = with_unseen(expected, labels)
    others = [point for point in history if point.labels != now.labels]
    history = sorted([*others, now], key=lambda point: point.labels)
    correct = p.argmax(axis=1) == truth
    recall = {
        str(name): float(correct[truth == c].mean())
        for c, name in enumerate(model.classes_)
        if (truth == c).any()
    }
    wrong = [
        (doubt.sample, labels[doubt.sample], str(doubt.suggested), doubt.probability)
        for doubt in model.doubtful_labels_
        if doubt.sample in labels
    ]
    headline = f"Expected accuracy: {now.accuracy:.0%} ({now.low:.0%} to {now.high:.0%})."
    sentences = (
        headline,
        expected.caution,
        advice(model, labels, now, float(correct.mean())),
        f"Cross-validation predicted {correct.sum():,} of {correct.size:,} labels correctly. The "
        "studio asks for difficult samples, so the expected accuracy is usually higher.",
    )
    shown = Review(headline, tuple(filter(None, sentences)), history, recall, wrong)
    return Reviewed(shown, model.weighting_)


def with_unseen(expected: tuple[float, float, float], labels: Mapping[int, str]) -> Point:
    """Return the expected accuracy, lowered for classes that have no label yet.

    Such classes are never predicted. In a random draw of labels, the share of samples of unseen
    classes is estimated by the share of classes with one label (Good 1953). The studio asks for new
    classes first and finds them sooner. Half of this share is therefore subtracted from the
    accuracy, and all of it from the lower end of the interval.
    """
    counts = Counter(labels.values())
    new = sum(count == 1 for count in counts.values()) / max(len(labels), 1)
    return Point(len(labels), expected[0] * (1 - new / 2), expected[1] * (1 - new), expected[2])


def advice(model: PartsClassifier, labels: Mapping[int, str], now: Point, share: float) -> str:
    """Return sentences about the expected gain from more labels, and whether to stop."""
    n = len(labels)
    counts = Counter(labels.values())
    few = [name for name, count in counts.items() if count < PER_CLASS]
    newest = max(list(labels.values()).index(name) for name in counts)
    half = share_with_half(model, labels)
    if half is None:
        return ""
    low, high = gain(n, share, half)
    text = f"The next {AHEAD} labels should add {low:.1f} to {high:.1f} percentage points."
    if high == 0:  # with half of the labels the result is as good, so there are too few to estimate
        text = f"There are too few labels to estimate what the next {AHEAD} would add."
    if few:
        names = ", ".join(few[:3]) + (" and others" if len(few) > 3 else "")
        return f"{text} Continue: there are fewer than {PER_CLASS} labels of {names}."
    if n - newest <= AHEAD:
        return f"{text} Continue: a new class appeared recently, and there may be others."
    if high >= ENOUGH or now.accuracy - now.low > NARROW:
        return text
    return f"{text} You have enough labels."


def gain(n: int, share: float, share_with_half: float) -> tuple[float, float]:
    """Return a range for the percentage points that the next labels add.

    The error decreases like a power of the number of labels n. The power is estimated from two
    shares of correct predictions: with 80% of the labels (cross-validation) and with 50%. For the
    upper end of the range, one more label counts as wrong in each share, and both errors are raised
    by a standard error.
    """

    def fall(error: float, power: float) -> float:
        """Return by how many percentage points the error decreases with more labels."""
        return float(100 * error * (1 - ((n + AHEAD) / n) ** -power))

    def power(error: float, before: float) -> float:
        """Return the power of n with which the error decreases."""
        return float(np.clip(np.log(max(before, 1e-3) / max(error, 1e-3)) / np.log(1.6), 0, 1))

    errors = np.array([1 - share, 1 - share_with_half])
    likely = (n * errors + 1) / (n + 2)
    above = likely + np.sqrt(likely * (1 - likely) / n)
    low = fall(errors[0], power(*errors))
    return low, max(low, fall(above[0], power(likely[0], above[1])))


def share_with_half(model: PartsClassifier, labels: Mapping[int, str]) -> float | None:
    """Return the share of labels that the other half of the labels predicts correctly.

    The result is None if one half has labels of only one class.
    """
    rows = np.fromiter(labels, dtype=np.int64, count=len(labels))
    names = np.array([labels[int(i)] for i in rows], dtype=object)
    order = np.argsort(names, kind="stable")  # each half gets every second label of each class
    correct = 0
    for side in (0, 1):
        seen = np.zeros(len(rows), dtype=bool)
        seen[order[side::2]] = True
        if len(set(names[seen])) < 2:
            return None
        half = copy.copy(model)
        known = dict(zip(rows[seen].tolist(), names[seen]))
        relabel(half, known, weigh=False)
        correct += int((half.transduction_[rows[~seen]] == names[~seen]).sum())
    return correct / len(rows)
