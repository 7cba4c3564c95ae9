"""What the report says about single samples: thumbnails, texts, and who is typical of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.io.samples import Samples
from partwise.view.report.charts import natural
from partwise.view.report.pictures import picture_uri

MAX_THUMBNAILS = 2000
#: Bytes of pictures that a page embeds at most, and of one picture.
MAX_BYTES = 12_000_000
MAX_PICTURE = 40_000
MEMBERS = 8
MAX_CLUSTERS = 60
TEXT_LENGTH = 300


class Thumbnails:
    """Pictures of samples as addresses, made once each, within the page's budget."""

    def __init__(self, dataset: Samples) -> None:
        self._draw = dataset.thumbnails
        self._made: dict[int, str | None] = {}
        self._bytes = 0
        self.exist = dataset.thumbnails is not None

    def __call__(self, i: int) -> str | None:
        """The address of sample i's picture; None beyond the budget, or where there is none."""
        if i not in self._made:
            draw = self._draw
            room = self.count < MAX_THUMBNAILS and self._bytes < MAX_BYTES
            content = draw(i) if draw is not None and room else None
            if content is not None and len(content) > MAX_PICTURE:
                content = None
            self._bytes += len(content or b"")
            self._made[i] = None if content is None else picture_uri(content)
        return self._made[i]

    @property
    def count(self) -> int:
        return sum(uri is not None for uri in self._made.values())


def main_parts(V: NDArray[Any], most: int = 3) -> list[str]:
    """For each sample the parts that make up most of its code, with their shares."""
    total = V.sum(axis=1)
    order = np.argsort(-V, axis=1, kind="stable")[:, :most]
    said = []
    for row, best, whole in zip(V, order, total):
        shares = [(j, row[j] / whole) for j in best if whole > 0 and row[j] >= 0.05 * whole]
        said.append(", ".join(f"{j + 1} ({share:.0%})" for j, share in shares) or "none")
    return said


def typical_and_doubtful(
    members: NDArray[np.int64], confidence: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The members of highest and of lowest confidence, no one twice."""
    if confidence is None:
        return members[:MEMBERS], members[:0]
    order = members[np.argsort(-confidence[members], kind="stable")]
    half = min(MEMBERS, (len(order) + 1) // 2)
    return order[:half], order[half:][::-1][:MEMBERS]


def to_label_next(
    clusters: Sequence[str],
    confidence: NDArray[np.float64] | None,
    known: Sequence[str | None] | None,
    texts: Sequence[str] | None = None,
    *,
    most: int = 12,
    each: int = 3,
) -> list[int]:
    """The samples without a label that are least clear, at most three of a cluster, none twice."""
    if confidence is None:
        return []
    taken: Counter[str] = Counter()
    found: list[int] = []
    said: set[str] = set()
    for i in np.argsort(confidence, kind="stable").tolist():
        if len(found) == most:
            break
        text = "" if texts is None else texts[i]
        if (known is not None and known[i] is not None) or (text and text in said):
            continue
        said.add(text)
        if taken[clusters[i]] < each:
            taken[clusters[i]] += 1
            found.append(i)
    return found


def composition(labels: Iterable[str | None]) -> list[tuple[str, int]]:
    """Labels of a cluster's members with their numbers, the most frequent first."""
    counts = Counter(label for label in labels if label is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], natural(item[0])))
