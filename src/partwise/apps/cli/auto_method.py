"""Choice of a method from properties of the data, for ``--method auto``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.io._common import lowest
from partwise.knowledge.labels import encode_labels

#: Number of samples above which no graph is used, because it takes longer than the factorization.
GRAPH_SAMPLES = 20_000
#: Number of samples below which no graph is used, because five neighbours are too large a share of
#: them.
FEW_SAMPLES = 30
#: Lowest agreement of neighbours for which a graph is used. It is the share of labelled samples
#: whose closest labelled sample has the same class. On Yale with two labels per class it is 13%,
#: and a graph lowers the accuracy by 11 points. On digits, COIL20, iris, wine and breast cancer it
#: is 33% to 100%, and a graph gains up to 16 points or costs nothing.
ALIKE = 0.3
#: Number of samples per class below which no graph is used, because neighbours then belong to other
#: classes. On ORL (10 per class) a graph lowers the accuracy by 8 to 13 points.
CLASS_SIZE = 15


@dataclass(frozen=True)
class Profile:
    """Properties of the data that ``--method auto`` uses."""

    n_samples: int
    n_features: int
    kind: str = "table"  # "images", "texts", "table" or "counts"
    lowest: float = 0.0  # smallest value of X, or 0 if no value is negative
    n_labelled: int = 0
    n_classes: int = 0
    # share of labelled samples whose closest labelled sample has their class, or None
    alike: float | None = None


@dataclass(frozen=True)
class MethodChoice:
    """Chosen method, with the reason in one sentence."""

    method: str
    reason: str


def choose(profile: Profile, k: int | None = None) -> MethodChoice:
    """Return the method that suits data with this profile.

    With labels, a classifier is chosen unless the user asks for more clusters than classes.

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
    """Return the name of a method, and the reason for it as part of a sentence."""
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
    """Return the numbers of labels and classes in words."""
    if not p.n_labelled:
        return "no labels"
    a, b = ("s" if p.n_labelled != 1 else ""), ("es" if p.n_classes != 1 else "")
    return f"{p.n_labelled} label{a} of {p.n_classes} class{b}"


def profile(X: Any, y: Any = None, *, kind: str = "table") -> Profile:
    """Return the properties of X and of the labels y, in which None means unknown."""
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
    """Return how often the closest labelled sample of a sample has its class.

    Similarity is measured by the cosine. At most ``most`` labelled samples are compared.
    """
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
