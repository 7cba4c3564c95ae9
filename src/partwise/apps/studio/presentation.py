"""How samples, parts and progress look on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.view.report.charts import natural
from partwise.apps.view.report.layout import lay_out
from partwise.io.samples import Samples

if TYPE_CHECKING:
    from partwise.apps.studio.answers import Judge, Opinion
    from partwise.apps.studio.reviews import Review

__all__ = ["lay_out_all", "natural", "part", "progress", "sample"]

#: Samples that t-SNE places; the others come to lie among their neighbours.
LANDMARKS = 4000
MOST_TEXT = 4000
#: Characters of a text that the page is given at most, and pixels of a picture that is enlarged.
WHOLE_TEXT, WHOLE_PICTURE = 1_000_000, 1600
MOST_VALUES = 14
WORDS = 8


def lay_out_all(codes: NDArray[Any]) -> NDArray[np.float32]:
    """Two coordinates for every sample: t-SNE of some, and the rest among their neighbours."""
    from sklearn.neighbors import NearestNeighbors

    n = len(codes)
    if n <= LANDMARKS:
        return np.asarray(lay_out(codes, np.zeros(n), max_points=n).points, dtype=np.float32)
    rng = np.random.default_rng(0)
    landmarks = np.sort(rng.choice(n, LANDMARKS, replace=False))
    placed = lay_out(codes[landmarks], np.zeros(LANDMARKS), max_points=LANDMARKS).points
    rest = np.setdiff1d(np.arange(n), landmarks)
    near = NearestNeighbors(n_neighbors=3).fit(codes[landmarks]).kneighbors(codes[rest])[1]
    points = np.empty((n, 2), dtype=np.float32)
    points[landmarks] = placed
    spread = 0.15 * np.abs(placed[near] - placed[near].mean(axis=1, keepdims=True)).mean(axis=1)
    points[rest] = placed[near].mean(axis=1) + spread * rng.standard_normal((len(rest), 2))
    return points


def sample(samples: Samples, i: int) -> dict[str, Any]:
    """A sample as the page shows it: a picture, a text, or its largest values."""
    shown: dict[str, Any] = {"i": i, "id": samples.ids[i]}
    if samples.thumbnails is not None:
        return shown | {"picture": f"/api/picture/sample/{i}"}
    if samples.texts is not None:
        begin, texts = samples.texts[i][:MOST_TEXT], samples.whole_texts
        more = texts is not None and len(texts[i]) > len(begin) + 20  # beside spaces
        return shown | {"text": begin} | ({"more": True} if more else {})
    row = samples.X[[i]]
    row = np.asarray(row.toarray() if samples.is_sparse else row, dtype=np.float64).ravel()
    order = np.argsort(-np.abs(row), kind="stable")[:MOST_VALUES]
    names = samples.feature_names
    return shown | {
        "values": [
            [names[j] if names else f"column {j + 1}", f"{row[j]:.4g}"] for j in order if row[j]
        ]
    }


def part(samples: Samples, judge: Judge, j: int, opinion: Opinion) -> dict[str, Any]:
    """A part: its name, its words or picture, and the classes that use it most."""
    H = judge.components[j]
    words = None
    if samples.feature_names is not None:
        top = np.argsort(-H, kind="stable")[:WORDS]
        words = ", ".join(samples.feature_names[t] for t in top if H[t] > 0)
    named = judge.wishes.names.get(j)
    return {
        "number": j,
        "name": named or f"Part {j + 1}",
        "named": named,
        "frozen": j in judge.wishes.frozen,
        "words": words,
        "picture": f"/api/picture/part/{j}?{judge.edition}" if samples.image_shape else None,
        "classes": _users(judge.codes[:, j], opinion),
    }


def _users(code: NDArray[Any], opinion: Opinion) -> list[list[Any]]:
    """Classes by the share of a part's use."""
    known = opinion.names >= 0
    total = float(code[known].sum())
    if not opinion.classes or total <= 0:
        return []
    use = np.bincount(opinion.names[known], code[known], minlength=len(opinion.classes)) / total
    order = np.argsort(-use, kind="stable")[:3]
    return [[opinion.classes[c], float(use[c])] for c in order if use[c] > 0.05]


def progress(samples: Samples, review: Review, counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The review as the page shows it."""
    known = review.history
    return {
        "text": review.text,
        "curve": {
            "x": [point.labels for point in known],
            "y": [point.right for point in known],
            "low": [point.low for point in known],
            "high": [point.high for point in known],
        },
        "classes": [
            {"name": name, "right": review.right.get(name), **count}
            for name, count in counts.items()
        ],
        "contradicted": [
            {"i": i, "id": samples.ids[i], "given": given, "rest": rest, "sure": sure}
            for i, given, rest, sure in review.contradicted
        ],
    }
