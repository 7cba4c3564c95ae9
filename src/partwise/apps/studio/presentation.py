"""Content that the studio's page shows: samples, parts, map and progress."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.studio.predictions import Predictions, Predictor
from partwise.apps.studio.reviews import Review
from partwise.apps.view.describe import two_sides
from partwise.apps.view.report.charts import natural
from partwise.apps.view.report.layout import lay_out
from partwise.apps.view.rows import Rows
from partwise.io import Samples

__all__ = ["expected_seconds", "lay_out_all", "natural", "part", "progress", "sample"]

#: Number of samples that t-SNE places on the map; other samples are placed near their neighbours.
LANDMARKS = 4000
#: Maximum number of characters of a short and of a whole text, and of pixels of an enlarged
#: picture.
MAX_TEXT, WHOLE_TEXT, WHOLE_PICTURE = 1500, 1_000_000, 1600
#: Number of the largest values that are shown for a sample of a matrix.
MAX_VALUES = 14
WORDS = 8
#: Smallest contribution of a column that is highlighted, relative to the largest one of the row.
CONTRIBUTES = 0.2


def expected_seconds(n: int) -> int:
    """Return the approximate seconds to prepare n samples on two cores."""
    return round(2 + 8 * min(n, LANDMARKS) / LANDMARKS + n / 2000)


def lay_out_all(weights: NDArray[Any]) -> NDArray[np.float32]:
    """Return coordinates of all samples on the map.

    t-SNE places some of the samples. The others are placed near their neighbours.
    """
    from sklearn.neighbors import NearestNeighbors

    n = len(weights)
    if n <= LANDMARKS:
        return np.asarray(lay_out(weights, np.zeros(n), max_points=n).points, dtype=np.float32)
    rng = np.random.default_rng(0)
    landmarks = np.sort(rng.choice(n, LANDMARKS, replace=False))
    placed = lay_out(weights[landmarks], np.zeros(LANDMARKS), max_points=LANDMARKS).points
    rest = np.setdiff1d(np.arange(n), landmarks)
    search = NearestNeighbors(n_neighbors=3).fit(weights[landmarks])
    near = placed[search.kneighbors(weights[rest])[1]]
    points = np.empty((n, 2), dtype=np.float32)
    points[landmarks] = placed
    spread = 0.15 * np.abs(near - near.mean(axis=1, keepdims=True)).mean(axis=1)
    points[rest] = near.mean(axis=1) + spread * rng.standard_normal((len(rest), 2))
    return points


def sample(samples: Samples, i: int, rows: Rows | None, label: int) -> dict[str, Any]:
    """Return a sample for the page, as picture, text or table row.

    ``label`` is the index of its predicted class.
    """
    shown: dict[str, Any] = {"i": i, "id": samples.ids[i]}
    if samples.thumbnails is not None:
        return shown | {"picture": f"/api/picture/sample/{i}"}
    if samples.texts is not None:
        text = (samples.whole_texts or samples.texts)[i]
        return shown | {"text": text[:MAX_TEXT]} | ({"more": True} if text[MAX_TEXT:] else {})
    if rows is not None:
        found = rows.contributions(i, label) if label >= 0 else {}
        largest = max(map(abs, found.values()), default=0.0) or 1.0
        shares = {name: round(value / largest, 3) for name, value in found.items()}
        kept = {name: share for name, share in shares.items() if abs(share) >= CONTRIBUTES}
        return shown | {"values": [[*pair, kept.get(pair[0], 0)] for pair in rows.values(i)]}
    row = samples.X[[i]]
    row = np.asarray(row.toarray() if samples.is_sparse else row, dtype=np.float64).ravel()
    order = np.argsort(-np.abs(row), kind="stable")[:MAX_VALUES]
    names = samples.feature_names
    values = [[names[j] if names else f"column {j + 1}", f"{row[j]:.4g}", 0] for j in order]
    return shown | {"values": values}


def part(
    samples: Samples, predictor: Predictor, j: int, predictions: Predictions
) -> dict[str, Any]:
    """Return a part for the page: its name, words or picture, and classes that use it."""
    H = predictor.parts[j]
    words = None
    if samples.feature_names is not None:
        sides, names = two_sides(H[None], samples.feature_names)
        top = np.argsort(-sides[0], kind="stable")[:WORDS]
        words = ", ".join(names[t] for t in top if sides[0, t] > 0)
    name = predictor.settings.names.get(j)
    address = f"/api/picture/part/{j}?{predictor.edition}"
    return {
        "number": j,
        "name": name or f"Part {j + 1}",
        "named": name,
        "frozen": j in predictor.settings.frozen,
        "words": words,
        "picture": address if samples.image_shape else None,
        "classes": _users(predictor.weights[:, j], predictions),
    }


def _users(weights: NDArray[Any], predictions: Predictions) -> list[list[Any]]:
    """Return the classes that use a part most, with their shares of its weight."""
    known = predictions.label >= 0
    total = float(weights[known].sum())
    if not predictions.classes or total <= 0:
        return []
    count = len(predictions.classes)
    use = np.bincount(predictions.label[known], weights[known], minlength=count) / total
    order = np.argsort(-use, kind="stable")[:3]
    return [[predictions.classes[c], float(use[c])] for c in order if use[c] > 0.05]


def progress(
    samples: Samples, review: Review, counts: dict[str, dict[str, int]], confirmed: set[str]
) -> dict[str, Any]:
    """Return the last review for the page.

    Labels that the user confirmed are not listed as contradicted.
    """
    points = review.history
    return {
        "sentences": list(review.sentences),
        "curve": {
            "x": [point.labels for point in points],
            "y": [point.accuracy for point in points],
            "low": [point.low for point in points],
            "high": [point.high for point in points],
        },
        "classes": [
            {"name": name, "recall": review.recall.get(name), **count}
            for name, count in counts.items()
        ],
        "contradicted": [
            {"i": i, "id": samples.ids[i], "given": given, "predicted": predicted, "wrong": wrong}
            for i, given, predicted, wrong in review.contradicted
            if samples.ids[i] not in confirmed
        ],
    }
