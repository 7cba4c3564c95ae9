"""How good the answer is, whether more labels would pay, and which labels look wrong."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from partwise.classify import query
from partwise.classify.explain import Explanation
from partwise.classify.parts_classifier import PartsClassifier
from partwise.knowledge.labels import Labels

#: Labels ahead of which the gain is foretold.
AHEAD = 20
#: Points below which that gain is not worth the labels.
ENOUGH = 0.5
PARTS = 3


@dataclass(frozen=True)
class Point:
    """Share of right held-out labels, with a 95 % interval, at a number of labels."""

    labels: int
    right: float
    low: float
    high: float


@dataclass(frozen=True)
class Review:
    """What the progress page shows.

    ``right`` is the share of right held-out labels of each class, ``contradicted`` are samples,
    what they were given, what the rest says, and how sure.
    """

    headline: str = ""
    text: str = "Label two samples of two classes at least."
    history: list[Point] = field(default_factory=list)
    right: dict[str, float] = field(default_factory=dict)
    contradicted: list[tuple[int, str, str, float]] = field(default_factory=list)


class Reviewed(NamedTuple):
    """A review, the weights of its heads (an answer without them), and of which codes it is."""

    review: Review
    weights: dict[str, Any]
    edition: int = 0


def encoded(labels: Mapping[int, str], n: int) -> Labels:
    """Labels by the number of the sample, for all n samples."""
    names = sorted(set(labels.values()))
    place = {name: c for c, name in enumerate(names)}
    codes = np.full(n, -1, dtype=np.int64)
    codes[list(labels)] = [place[name] for name in labels.values()]
    return Labels(np.array(names, dtype=object), codes)


def found(model: PartsClassifier, labels: Mapping[int, str], history: list[Point]) -> Reviewed:
    """Weigh the heads by cross-validation, and say how good the answer is."""
    model.relabel(encoded(labels, len(model.embedding_)))
    answer = model._state["answer"]
    bare = [head | {"A": None, "b": None, "scores": None} for head in answer["heads"]]
    return Reviewed(review(model, history, labels), answer | {"heads": bare})


def review(model: PartsClassifier, history: list[Point], labels: Mapping[int, str]) -> Review:
    """Judge the answer by labels that were held out; ``history`` grows by a point."""
    rows, p, truth = model.held_out_
    if not len(rows):
        return Review(text="Each class needs two labels before the answer can be judged.")
    expected = model.expected_accuracy_
    now = with_unseen(len(labels), expected, list(labels.values()))
    others = [point for point in history if point.labels != now.labels]
    history[:] = sorted([*others, now], key=lambda point: point.labels)
    right = p.argmax(axis=1) == truth
    classes = [str(name) for name in model.classes_]
    shares = {
        name: float(right[truth == c].mean())
        for c, name in enumerate(classes)
        if (truth == c).any()
    }
    wrong = [
        (doubt.sample, labels[doubt.sample], str(doubt.suggested), doubt.probability)
        for doubt in model.doubtful_labels_
        if doubt.sample in labels
    ]
    said = f"Expected accuracy: {now.right:.0%} ({now.low:.0%} to {now.high:.0%})."
    once = sum(count == 1 for count in Counter(labels.values()).values())
    more = f"{once} classes have one label each; the lower end allows for further classes. "
    text = (
        f"{said} {more if once else ''}{f'{expected.caution} ' if expected.caution else ''}"
        f"{_forecast(model, right.mean(), labels)} Cross-validation predicted "
        f"{right.mean():.0%} of your labels correctly. These samples are harder than average, "
        "so the expected accuracy also uses the probabilities of all samples."
    )
    return Review(said, text, list(history), shares, wrong)


def with_unseen(n: int, found: tuple[float, float, float], names: list[str]) -> Point:
    """Samples of classes that were not met yet cannot get a right name.

    Were labels drawn at random, their share would be that of the labels whose class was met once
    (Good 1953). The queue looks for new classes and meets them sooner: half of that share is taken
    off the middle, and all of it off the lower end.
    """
    new = query.unseen(np.array(names))
    return Point(n, found[0] * (1 - new / 2), found[1] * (1 - new), found[2])


def _forecast(model: PartsClassifier, share: float, labels: Mapping[int, str]) -> str:
    """What the next labels should bring: the error as a power of the number of labels."""
    half = _with_half(model, labels)
    if half is None:
        return ""
    n, error, before = len(labels), max(1 - share, 1e-3), max(1 - half, 1e-3)
    # cross-validation learns from four fifths of the labels, the other number from half of them
    power = float(np.clip(np.log(before / error) / np.log(1.6), 0.0, 1.0))
    gain = 100 * error * (1 - ((n + AHEAD) / n) ** -power)
    word = "Enough: the" if gain < ENOUGH else "The"
    return f"{word} next {AHEAD} labels are expected to gain {gain:.1f} points."


def _with_half(model: PartsClassifier, labels: Mapping[int, str]) -> float | None:
    """Share of right names for one half of the labels when only the other is known."""
    rows = np.fromiter(labels, dtype=np.int64, count=len(labels))
    names = np.array([labels[int(i)] for i in rows], dtype=object)
    order = np.argsort(names, kind="stable")  # every other label of each class
    right = total = 0
    for side in (0, 1):
        seen = np.zeros(len(rows), dtype=bool)
        seen[order[side::2]] = True
        if len(set(names[seen])) < 2 or seen.all():
            return None
        known = dict(zip(rows[seen].tolist(), names[seen]))
        less = copy.copy(model)
        kept = {name: model._cache[name] for name in ("spread", "walk")}
        less._state, less._cache = dict(model._state), kept
        less.relabel(encoded(known, len(model.embedding_)), weigh=False)
        right += int((less.transduction_[rows[~seen]] == names[~seen]).sum())
        total += int((~seen).sum())
    return right / total if total else None


def because(found: Explanation, names: Mapping[int, str], words: bool) -> list[str]:
    """The parts that speak most for a sample's class, and against it."""
    lines = []
    for word, side in (("for", found.supporting), ("against", found.opposing)):
        for part in side[:PARTS]:
            name = names.get(part.part, f"Part {part.part + 1}")
            about = f" ({', '.join(part.features[:4])})" if words else ""
            lines.append(f"{name}{about} speaks {word} {found.name}: {part.effect:+.1f}")
    return lines
