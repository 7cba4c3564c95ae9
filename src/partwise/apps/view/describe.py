"""What a part or a cluster is about, in a few words, and what a model says of its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.io.genes import specificity, top_features
from partwise.io.samples import Samples

__all__ = [
    "about",
    "names_classes",
    "naming",
    "number_like_parts",
    "specificity",
    "top_features",
    "words_of_parts",
]

#: A feature must differ by this many standard deviations of the column to be worth a word.
WORTH = 0.4
#: Samples to label next, labels that look wrong, and samples far from all labels, as are listed.
NEXT, ODD, FAR = 10, 5, 10
#: Samples are far where so many of the labelled classes should be nearer; more than twice as many
#: as that lets expect are said.
BEYOND = 0.95


def about(samples: Samples, groups: Sequence[str], most: int = 4) -> dict[str, list[str]]:
    """For each cluster what its members have and others lack; empty where features are nameless."""
    levels = list(dict.fromkeys(groups))
    if samples.feature_names is None or len(levels) < 2:
        return {}
    column = np.asarray(groups, dtype=object)
    rows = [np.flatnonzero(column == level) for level in levels]
    means = np.stack([np.asarray(samples.X[here].mean(axis=0)).ravel() for here in rows])
    if not samples.columns:
        return dict(zip(levels, top_features(means, samples.feature_names, most)))
    return dict(zip(levels, _columns(samples, means, most)))


def _columns(samples: Samples, means: NDArray[Any], most: int) -> list[list[str]]:
    """For a table: "high revenue", "low age", "country = DE"."""
    X, names = np.asarray(samples.X), samples.feature_names
    assert names is not None
    spread = X.std(axis=0)
    z = (means - X.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    yes_no = {f"{name} = yes": name for name, kind, _ in samples.columns if kind == "yes/no"}
    dates = {name for name, kind, _ in samples.columns if kind == "date"}
    described = []
    for row in z:
        found: list[str] = []
        for j in np.argsort(-np.abs(row), kind="stable"):
            if abs(row[j]) < WORTH or len(found) == most:
                break
            name = names[j]
            if name in yes_no:
                found.append(name if row[j] > 0 else f"{yes_no[name]} = no")
            elif " = " in name:
                if row[j] > 0:  # what a cluster is not helps little
                    found.append(name)
            else:
                words = ("early", "late") if name in dates else ("low", "high")
                found.append(f"{words[int(row[j] > 0)]} {name}")
        described.append(found)
    return described


def number_like_parts(centers: NDArray[Any]) -> list[int]:
    """A number from 1 for each cluster, that of the part which it uses most, one to one.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.apps.view.describe import number_like_parts
    >>> number_like_parts(np.array([[0.1, 0.9], [0.8, 0.2]]))
    [2, 1]
    """
    from scipy.optimize import linear_sum_assignment

    scale = np.abs(centers).max(axis=0)
    shares = centers / np.where(scale > 0, scale, 1)
    clusters, parts = linear_sum_assignment(shares, maximize=True)
    numbers = dict(zip(clusters.tolist(), (parts + 1).tolist()))
    # more clusters than parts: those left over come after
    rest = iter(range(centers.shape[1] + 1, centers.shape[1] + len(centers) + 1))
    taken = [numbers.get(c) or next(rest) for c in range(len(centers))]
    return taken


def words_of_parts(H: Any, samples: Samples, most: int = 3) -> list[str]:
    """A few words for each part, or "" where features are nameless."""
    if H is None or samples.feature_names is None:
        return []
    return [", ".join(words) for words in top_features(H, samples.feature_names, most)]


# -- models that name samples by class -------------------------------------------------------------


def names_classes(model: Any) -> bool:
    """Whether a model gives classes with probabilities, and not clusters."""
    return hasattr(model, "predict_proba")


def naming(model: Any, ids: Sequence[str]) -> dict[str, Any] | None:
    """Agreement with given labels, the accuracy to expect, what to label next, what was tried.

    None for a model that forms clusters.
    """
    if not names_classes(model):
        return None
    _, p, truth = model.held_out_
    right = p.argmax(axis=1) == truth
    expected = model.expected_accuracy_
    share, low, high = expected
    return {
        "held_out": int(truth.size),
        "agreed": int(right.sum()),
        "expected": None if np.isnan(share) else round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "balanced": None if np.isnan(share) else round(expected.balanced, 4),
        "said": str(expected),
        "caution": expected.caution,
        "odd_labels": [
            {
                "id": ids[doubt.sample],
                "given": str(doubt.given),
                "looks_like": str(doubt.suggested),
                "probability": round(doubt.probability, 4),
            }
            for doubt in model.doubtful_labels_[:ODD]
        ],
        "none_of_these": _far(model, ids),
        "label_next": [
            {
                "id": ids[i],
                "looks_like": str(model.transduction_[i]),
                "probability": round(float(model.label_distributions_[i].max()), 4),
            }
            for i in model.suggest(NEXT)
        ],
        "candidates": [row._asdict() for row in model.candidates_],
    }


def _far(model: Any, ids: Sequence[str]) -> dict[str, Any] | None:
    """Samples that are far from everything labelled; None where too few labels can tell."""
    try:
        far, found = model.outlyingness(), model.others_found_
    except ValueError:
        return None
    far[model.labelled_] = 0
    beyond = far > BEYOND
    rest = len(far) - len(model.labelled_)
    order = np.argsort(-far, kind="stable")[: int(beyond.sum())]
    many = beyond.sum() > 2 * (1 - BEYOND) * rest
    said = (
        f"{int(beyond.sum())} of {rest} samples are farther from every label than {BEYOND:.0%} of "
        "samples of these classes should be: perhaps they are none of these."
    )
    return {
        "samples": int(beyond.sum()),
        "found": None if np.isnan(found) else round(found, 4),
        "said": said if many else "",
        "farthest": [ids[i] for i in order[:FAR]],
    }
