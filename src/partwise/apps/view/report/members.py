"""Single samples in a report: pictures, texts, table rows, and which ones to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.view.report import charts
from partwise.apps.view.report.pictures import picture_uri
from partwise.apps.view.rows import Rows
from partwise.io import Samples

#: Limits of a report: number of pictures, bytes of all pictures together, and bytes of one picture.
MAX_THUMBNAILS, MAX_BYTES, MAX_PICTURE = 2000, 12_000_000, 40_000
#: Number of typical and of uncertain samples that are shown per class or cluster.
MEMBERS = 8
TEXT_LENGTH = 300
#: Number of columns that are shown for a table row: identifying ones, and those that contribute
#: most.
IDENTIFYING, CONTRIBUTING = 2, 4


class Thumbnails:
    """Thumbnails of samples as ``data:`` URLs, within the size limit of the page."""

    def __init__(self, dataset: Samples) -> None:
        self._draw = dataset.thumbnails
        self._made: dict[int, str | None] = {}
        self._bytes = 0
        self.exist = dataset.thumbnails is not None

    def __call__(self, i: int) -> str | None:
        """Return the ``data:`` URL of the image of sample i, or None."""
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
        """Number of images that were made so far."""
        return sum(uri is not None for uri in self._made.values())


class TableRows:
    """Table rows with the columns that identify them or contribute to predictions."""

    def __init__(self, rows: Rows, P: NDArray[Any]) -> None:
        self.rows, self.best = rows.fit(P), P.argmax(axis=1)

    def columns(self, members: Iterable[int]) -> list[str]:
        """Return the names of the columns to show for some rows."""
        total: Counter[str] = Counter()
        for i in members:
            found = self.rows.contributions(i, int(self.best[i]))
            total.update({name: abs(value) for name, value in found.items()})
        return [
            *self.rows.identifying[:IDENTIFYING],
            *(name for name, _ in total.most_common(CONTRIBUTING)),
        ]

    def cells(self, i: int, columns: Sequence[str]) -> list[tuple[str, bool]]:
        """Return the values of a row, and whether each contributes to its prediction."""
        values = dict(self.rows.values(i))
        found = self.rows.contributions(i, int(self.best[i]))
        largest = max(found.values(), default=0.0)
        return [
            (values[name], largest > 0 and found.get(name, 0.0) >= largest / 2) for name in columns
        ]


def main_parts(V: NDArray[Any], most: int = 3) -> list[str]:
    """Return for each sample its largest parts with their shares, as text."""
    total = V.sum(axis=1)
    order = np.argsort(-V, axis=1, kind="stable")[:, :most]
    found = []
    for row, best, whole in zip(V, order, total):
        shares = [(j, row[j] / whole) for j in best if whole > 0 and row[j] >= 0.05 * whole]
        found.append(", ".join(f"{j + 1} ({share:.0%})" for j, share in shares) or "none")
    return found


def typical_and_doubtful(
    members: NDArray[np.int64], confidence: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the samples of a group with the highest and the lowest confidence."""
    if confidence is None:
        return members[:MEMBERS], members[:0]
    order = members[np.argsort(-confidence[members], kind="stable")]
    half = min(MEMBERS, (len(order) + 1) // 2)
    return order[:half], order[half:][::-1][:MEMBERS]


def to_label_next(
    groups: Sequence[str],
    confidence: NDArray[np.float64] | None,
    known: Sequence[str | None] | None,
    texts: Sequence[str] | None = None,
    *,
    most: int = 12,
    each: int = 3,
) -> list[int]:
    """Return the least certain unlabelled samples, at most ``each`` per group."""
    if confidence is None:
        return []
    taken: Counter[str] = Counter()
    found: list[int] = []
    seen: set[str] = set()
    for i in np.argsort(confidence, kind="stable").tolist():
        text = "" if texts is None else texts[i]
        if (known is not None and known[i] is not None) or (text and text in seen):
            continue
        seen.add(text)
        if taken[groups[i]] < each:
            taken[groups[i]] += 1
            found.append(i)
    return found[:most]


def composition(labels: Iterable[str | None]) -> list[tuple[str, int]]:
    """Return the labels of a group with their counts, the most frequent first."""
    counts = Counter(label for label in labels if label is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], charts.natural(item[0])))
