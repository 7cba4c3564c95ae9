"""Why a sample has its name: which parts speak for a class and which against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from partwise.engine.numeric import Array

#: Ridge of the linear picture, relative to the mean squared use of a part.
RIDGE = 1e-2


class Evidence(NamedTuple):
    """A part, how far it moves the log-odds of the class, and its strongest features."""

    part: int
    effect: float
    features: tuple[str, ...]


@dataclass
class Explanation:
    """What speaks for and against a class; it prints as text.

    Attributes
    ----------
    subject : str
        The class, or the sample, that is explained.
    name : object
        The class in question.
    supporting, opposing : list of Evidence
        Parts that raise and that lower its log-odds, the strongest first.
    probabilities : dict
        Of a sample: its most probable classes.
    fidelity : float
        Share of the training samples whose name the parts alone, added up, give as well: how far
        the explanation is the whole story.
    """

    subject: str
    name: Any
    supporting: list[Evidence]
    opposing: list[Evidence]
    fidelity: float
    probabilities: dict[Any, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [self.subject]
        if self.probabilities:
            shares = ", ".join(f"{name} {p:.2f}" for name, p in self.probabilities.items())
            lines.append(f"  probabilities: {shares}")
        for word, side in (("for", self.supporting), ("against", self.opposing)):
            for part in side:
                what = ", ".join(part.features)
                lines.append(f"  {word:>7}  {part.effect:+.2f}  part {part.part}: {what}")
        lines.append(f"  parts alone give {self.fidelity:.0%} of all samples the same name")
        return "\n".join(lines)


def linear_picture(codes: Array, p: Array) -> tuple[Array, Array, float]:
    """Log-odds of all classes as a sum over parts, by ridge regression on the answers.

    Returns the effects (k, c) of a unit of each part, the mean codes, and the fidelity.
    """
    log_odds = np.log(np.maximum(p, 1e-12))
    log_odds = log_odds - log_odds.mean(axis=1, keepdims=True)
    middle = codes.mean(axis=0)
    Z = codes - middle
    G = Z.T @ Z
    G[np.diag_indices_from(G)] += RIDGE * max(float(np.trace(G)) / len(G), 1e-12)
    B = np.linalg.solve(G, Z.T @ (log_odds - log_odds.mean(axis=0)))
    again = (Z @ B + log_odds.mean(axis=0)).argmax(axis=1)
    return B, middle, float(np.mean(again == p.argmax(axis=1)))


def strongest_features(components: Array, names: list[str], n: int) -> list[tuple[str, ...]]:
    """For each part the features with the largest weights; "low ..." where they are negative."""
    found = []
    for row in components:
        order = np.argsort(-np.abs(row), kind="stable")[:n]
        chosen = [j for j in order if row[j] != 0]
        found.append(tuple(names[j] if row[j] > 0 else f"low {names[j]}" for j in chosen))
    return found


def evidence(effects: Array, words: list[tuple[str, ...]], n: int) -> tuple[list, list]:
    """The n parts that speak most for, and most against."""
    order = np.argsort(-effects, kind="stable")
    rows = [Evidence(int(k), float(effects[k]), words[k]) for k in order]
    return (
        [row for row in rows[:n] if row.effect > 0],
        [row for row in rows[::-1][:n] if row.effect < 0],
    )


def label_next(p: Array, view: Array, density: Array, labelled: Array, n: int) -> Array:
    """Samples whose label would teach most: doubtful, typical, and unlike each other.

    Greedy: doubt (one minus the margin between the two best classes) times density, times the
    angle to the closest sample that was picked before.
    """
    top = np.sort(p, axis=1)
    doubt = 1 - (top[:, -1] - (top[:, -2] if p.shape[1] > 1 else 0.0))
    score = doubt * density
    score[labelled] = -1.0
    length = np.sqrt(np.sum(view * view, axis=1, keepdims=True))
    Z = view / np.where(length > 0, length, 1)
    away = np.ones(len(p))
    picked: list[int] = []
    for _ in range(min(n, len(p) - labelled.size)):
        best = int(np.argmax(np.where(score < 0, -1.0, score * away)))
        picked.append(best)
        score[best] = -1.0
        away = np.minimum(away, 1 - np.clip(Z @ Z[best], 0, 1))
    return np.array(picked, dtype=np.intp)
