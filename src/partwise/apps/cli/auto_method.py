"""``--method auto``: which method for which data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.io._common import lowest
from partwise.knowledge.labels import encode_labels

#: Beyond this many samples the neighbour graph takes longer than the factorization.
GRAPH_SAMPLES = 20_000
#: With fewer samples, five neighbours are no neighbourhood.
FEW_SAMPLES = 30
#: Share of labelled samples whose closest labelled sample is of their class, below which the
#: neighbours of a sample are not taken to be alike. It is 0.13 on Yale with two labels a class,
#: where a graph costs 11 points of accuracy, and 0.33 to 1 on digits, COIL20, iris, wine and
#: breast cancer, where it gains up to 16 or costs nothing.
ALIKE = 0.3
#: Samples a class below which five neighbours reach into other classes: on ORL (10 a class) a graph
#: costs 8 to 13 points, however alike the labelled samples are.
CLASS_SIZE = 15


@dataclass(frozen=True)
class Profile:
    """Properties of the data that ``--method auto`` uses."""

    n_samples: int
    n_features: int
    kind: str = "table"  # or images, texts, counts
    lowest: float = 0.0  # the least value, 0 where none is negative
    n_labelled: int = 0
    n_classes: int = 0
    alike: float | None = None  # share whose closest labelled sample has their label; None: unknown


@dataclass(frozen=True)
class MethodChoice:
    """The name of a method, and the reason in one sentence."""

    method: str
    reason: str


def choose(profile: Profile, k: int | None = None) -> MethodChoice:
    """Return the method for some data, from its profile alone.

    With labels samples are named by their class, unless more clusters than classes are wanted.

    Examples
    --------
    >>> from partwise.apps.cli.auto_method import Profile, choose
    >>> choose(Profile(500, 20, lowest=-1.5)).method
    'lcf'
    >>> choose(Profile(500, 20, kind="counts")).method
    'nmf-kl'
    >>> choose(Profile(500, 20, n_labelled=10, n_classes=5)).method
    'classify'
    """
    method, why = _method(profile, k)
    return MethodChoice(method, f"{method}, since {why}.")


def _method(p: Profile, k: int | None) -> tuple[str, str]:
    """Return the method, and why, as the end of a sentence."""
    labels = _labels(p)
    if p.n_labelled and (k is None or k <= p.n_classes):
        return (
            "classify",
            f"there are {labels}: it predicts a label for every sample and estimates the accuracy",
        )
    if p.lowest < 0:
        unused = "; labels only name the clusters" if p.n_labelled else ""
        low = f"negative values (down to {p.lowest:.3g})"
        return "lcf", f"there are {low}, which the other methods refuse{unused}"
    if p.kind == "counts":
        method = "cdnmf-kl" if p.n_labelled else "nmf-kl"
        return method, f"these are counts with {labels}"
    against = _against_graph(p)
    if not p.n_labelled:
        enough = f"few enough samples ({p.n_samples}) for a neighbour graph"
        return ("nmf" if against else "gnmf"), f"there are {labels} and {against or enough}"
    if against:
        return "cdnmf", f"there are {labels}, and {against}"
    near = ""
    if p.alike is not None:
        near = f", and {p.alike:.0%} of these have their closest one in the same class"
    return "combined", f"there are {labels}{near}"


def _against_graph(p: Profile) -> str:
    """Return why the data has no useful neighbour graph, or "" if it may have one."""
    if not FEW_SAMPLES <= p.n_samples <= GRAPH_SAMPLES:
        size = "few" if p.n_samples < FEW_SAMPLES else "too many"
        return f"{size} samples ({p.n_samples}) for a neighbour graph"
    if p.alike is not None and p.alike < ALIKE:
        return (
            f"only {p.alike:.0%} of the labelled samples have a closest labelled sample of their "
            "class, so that a neighbour graph would mislead"
        )
    if p.n_samples < CLASS_SIZE * p.n_classes:
        return f"too few samples a class ({p.n_samples / p.n_classes:.0f}) for a neighbour graph"
    return ""


def _labels(p: Profile) -> str:
    if not p.n_labelled:
        return "no labels"
    a, b = ("s" if p.n_labelled != 1 else ""), ("es" if p.n_classes != 1 else "")
    return f"{p.n_labelled} label{a} of {p.n_classes} class{b}"


def profile(X: Any, y: Any = None, *, kind: str = "table") -> Profile:
    """Look at data and labels, which are None where unknown."""
    labels = encode_labels(y, X.shape[0])
    known = None if labels is None or not labels.n_labelled else labels
    return Profile(
        n_samples=X.shape[0],
        n_features=X.shape[1],
        kind=kind,
        lowest=lowest(X),
        n_labelled=0 if known is None else known.n_labelled,
        n_classes=0 if known is None else known.n_classes,
        alike=None if known is None else _alike(X, known),
    )


def _alike(X: Any, labels: Any, most: int = 2000) -> float | None:
    """Return how often the closest labelled sample, by angle, has the same label."""
    from sklearn.metrics.pairwise import cosine_similarity

    shared = labels.mask & np.isin(labels.codes, np.flatnonzero(labels.counts > 1))
    rows = np.flatnonzero(labels.mask)
    if not shared.any():
        return None
    if rows.size > most:
        rows = np.random.RandomState(0).permutation(rows)[:most]
    similar = cosine_similarity(X[rows])
    np.fill_diagonal(similar, -2)
    codes = labels.codes[rows]
    asked = shared[rows]
    return float(np.mean(codes[similar.argmax(axis=1)][asked] == codes[asked]))
