"""Descriptions of parts and clusters in words, and facts about a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.io.encoders import recommended
from partwise.io.genes import top_features
from partwise.io.samples import Samples

#: A column describes a cluster if its mean there differs from the overall mean by this number of
#: standard deviations.
WORTH = 0.4
#: Maximum number of samples in three lists: samples to label next, doubtful labels, and samples far
#: from all labels.
NEXT, ODD, FAR = 10, 5, 10
#: Outlyingness above which a sample is far from all labels. Such samples are reported if there are
#: more than twice as many as expected in the labelled classes.
BEYOND = 0.95
#: Expected accuracy below which pixels or words are probably the wrong features.
POOR = 0.6


def about(samples: Samples, groups: Sequence[str], most: int = 4) -> dict[str, list[str]]:
    """Return words that distinguish each cluster; empty if features have no names."""
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
    """Return words for clusters of a table, such as "high revenue" or "country = DE"."""
    X, names = np.asarray(samples.X), samples.feature_names
    assert names is not None
    spread = X.std(axis=0)
    z = (means - X.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    yes_no = {f"{name} = yes": name for name, kind, _ in samples.columns if kind == "yes/no"}
    dates = {name for name, kind, _ in samples.columns if kind == "date"}
    described = []
    for row in z:
        order = np.argsort(-np.abs(row), kind="stable")
        found = [_side(names[j], row[j] > 0, yes_no, dates) for j in order if abs(row[j]) >= WORTH]
        described.append([words for words in found if words][:most])
    return described


def _side(name: str, high: bool, yes_no: dict[str, str], dates: set[str]) -> str:
    """Return words for a high or low mean of a feature, such as "low age".

    A category that is rare in the cluster gives "".
    """
    if name in yes_no:
        return name if high else f"{yes_no[name]} = no"
    if " = " in name:  # the absence of a category does not describe a cluster
        return name if high else ""
    words = ("early", "late") if name in dates else ("low", "high")
    return f"{words[int(high)]} {name}"


def number_like_parts(centers: NDArray[Any]) -> list[int]:
    """Return for each cluster the number of the part that it uses most, from 1.

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
    # Each part is assigned once. Clusters without a part get the numbers after those of the parts.
    rest = iter(range(centers.shape[1] + 1, centers.shape[1] + len(centers) + 1))
    return [numbers.get(c) or next(rest) for c in range(len(centers))]


def words_of_parts(H: Any, samples: Samples, most: int = 3) -> list[str]:
    """Return the top words of each part, or an empty list if features have no names."""
    if H is None or samples.feature_names is None:
        return []
    return [", ".join(words) for words in top_features(*two_sides(H, samples.feature_names), most)]


def two_sides(H: NDArray[Any], names: Sequence[str]) -> tuple[NDArray[Any], list[str]]:
    """Return parts with their positive and negative entries as separate features.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.apps.view.describe import two_sides
    >>> two_sides(np.array([[2.0, -1.0]]), ["age", "town = Ulm"])[1]
    ['high age', 'town = Ulm', 'low age', 'town ≠ Ulm']
    """
    if not (np.asarray(H) < 0).any():
        return H, list(names)
    high = [name if " = " in name else f"high {name}" for name in names]
    low = [name.replace(" = ", " ≠ ", 1) if " = " in name else f"low {name}" for name in names]
    return np.hstack([np.maximum(H, 0), np.maximum(-H, 0)]), high + low


# -- classifiers -----------------------------------------------------------------------------------


def names_classes(model: Any) -> bool:
    """Return whether a model predicts classes with probabilities, and not clusters."""
    return hasattr(model, "predict_proba")


def embeddings_hint(samples: Samples, accuracy: float, doubtful: bool = False) -> str:
    """Return advice to use embeddings, or "" if pixels or words predict classes well.

    ``doubtful`` is true if always predicting the most frequent class may be as accurate.
    """
    words = {"image files": "Pixels", "texts": "Words"}.get(samples.recipe.get("reader", ""))
    if words is None or samples.also is not None or not (doubtful or accuracy < POOR):
        return ""
    return (
        f"{words} may not separate these classes well. Embeddings of a pretrained encoder usually "
        f"do: start again with --encoder {recommended(samples.kind, 'good')}."
    )


def naming(model: Any, samples: Samples) -> dict[str, Any] | None:
    """Return a classifier's expected accuracy, doubtful labels and next samples.

    The result is None for a model that finds clusters.
    """
    if not names_classes(model):
        return None
    ids = samples.ids
    _, p, truth = model.held_out_
    right = p.argmax(axis=1) == truth
    expected = model.expected_accuracy_
    share, low, high = expected
    hint = embeddings_hint(samples, share, bool(expected.caution))
    return {
        "held_out": int(truth.size),
        "agreed": int(right.sum()),
        "expected": None if np.isnan(share) else round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "balanced": None if np.isnan(share) else round(expected.balanced, 4),
        "said": str(expected),
        "shares": str(model.class_shares_),
        "caution": " ".join(filter(None, (expected.caution, expected.shares_note, hint))),
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
    """Return samples that are far from all labels; None if there are too few labels."""
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
        "samples of these classes should be. They may belong to none of the classes."
    )
    return {
        "samples": int(beyond.sum()),
        "found": None if np.isnan(found) else round(found, 4),
        "said": said if many else "",
        "farthest": [ids[i] for i in order[:FAR]],
    }
