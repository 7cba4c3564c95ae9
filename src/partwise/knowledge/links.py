"""Must-links and cannot-links between samples, checked for contradictions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from partwise.knowledge.labels import Labels

__all__ = ["Links", "check_links"]

Pairs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of samples; each occurs once, with the smaller index first.

    Attributes
    ----------
    must, cannot : int64 ndarrays of shape (m, 2)
        Pairs of samples that belong together, and pairs that belong to different groups.
    n_samples : int
    """

    must: Pairs
    cannot: Pairs
    n_samples: int

    @property
    def must_graph(self) -> sp.csr_array:
        """The must-link pairs as a symmetric graph with weights of one."""
        return _graph(self.must, self.n_samples)

    @property
    def cannot_graph(self) -> sp.csr_array:
        """The cannot-link pairs as a symmetric graph with weights of one."""
        return _graph(self.cannot, self.n_samples)

    def groups(self, labels: Labels | None = None) -> Labels:
        """Return the group of each sample, by must-links and labels; -1 without a group.

        The classes are the first groups, in their order. Without must-links, the groups are
        therefore the labels.
        """
        n, classes = self.n_samples, 0 if labels is None else labels.n_classes
        _, found = connected_components(_joined(self.must, labels, n), directed=False)
        codes = np.full(n, -1, dtype=np.int64)
        many = np.bincount(found[:n], minlength=found.max(initial=0) + 1) > 1
        order = {int(found[n + c]): c for c in range(classes)}
        for sample in range(n):
            part = int(found[sample])
            if many[part] or part in order:
                codes[sample] = order.setdefault(part, len(order))
        return Labels(np.arange(len(order)), codes)

    def __repr__(self) -> str:
        return f"Links({len(self.must)} must, {len(self.cannot)} cannot)"


def check_links(
    must_link: Any, cannot_link: Any, n_samples: int, labels: Labels | None = None
) -> Links | None:
    """Check pairs of samples; return None if there are none.

    Parameters
    ----------
    must_link, cannot_link : array-like of shape (m, 2), or None
        Row numbers of X. A pair may occur twice and in either order.
    n_samples : int
    labels : Labels, optional
        Samples with the same label count as must-linked, those with different labels as
        cannot-linked.

    Raises
    ------
    ValueError
        If a row number is out of range, a sample is linked with itself, or links contradict each
        other or the labels; the message lists the chain.
    TypeError
        If row numbers are not integers.

    Examples
    --------
    >>> from partwise.knowledge.links import check_links
    >>> check_links([(0, 1), (1, 2)], [(3, 0)], 4)
    Links(2 must, 1 cannot)
    >>> check_links([(0, 1), (1, 2)], [(2, 0)], 4)
    Traceback (most recent call last):
    ValueError: links contradict each other: 0 must 1, 1 must 2, but 0 cannot 2; remove one.
    """
    must = _pairs(must_link, "must_link", n_samples)
    cannot = _pairs(cannot_link, "cannot_link", n_samples)
    if not len(must) and not len(cannot):
        return None
    _refuse_contradictions(must, cannot, labels, n_samples)
    return Links(must, cannot, n_samples)


def _pairs(given: Any, name: str, n: int) -> Pairs:
    if given is None:
        return np.empty((0, 2), dtype=np.int64)
    try:
        values = np.asarray(list(given) if not hasattr(given, "shape") else given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a list of pairs (i, j) of samples.") from error
    if values.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if values.ndim != 2 or values.shape[1] != 2:
        raise ValueError(
            f"{name} must have shape (m, 2), one pair (i, j) of samples per row; got "
            f"{values.shape}."
        )
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integer row numbers, got dtype {values.dtype}.")
    outside = np.flatnonzero(((values < 0) | (values >= n)).any(axis=1))
    if outside.size:
        i, j = values[outside[0]]
        raise ValueError(
            f"{name}[{outside[0]}] = ({i}, {j}), but X has the rows 0 to {n - 1}. Pairs are row "
            "numbers of the X of this fit; cross-validation passes other rows."
        )
    alone = np.flatnonzero(values[:, 0] == values[:, 1])
    if alone.size:
        i = values[alone[0], 0]
        raise ValueError(f"{name}[{alone[0]}] = ({i}, {i}) links a sample with itself; remove it.")
    pairs: Pairs = np.unique(np.sort(values.astype(np.int64), axis=1), axis=0)
    return pairs


def _graph(pairs: Pairs, n: int) -> sp.csr_array:
    ones = np.ones(2 * len(pairs))
    i, j = pairs.T
    return sp.csr_array((ones, (np.append(i, j), np.append(j, i))), shape=(n, n))


def _joined(must: Pairs, labels: Labels | None, n: int) -> sp.csr_array:
    """Return a graph of samples and classes, connected by must-links and labels."""
    rows, columns = must.T
    size = n
    if labels is not None:
        known = np.flatnonzero(labels.mask)
        rows, columns = np.append(rows, known), np.append(columns, n + labels.codes[known])
        size = n + labels.n_classes
    ends = np.append(rows, columns), np.append(columns, rows)
    return sp.csr_array((np.ones(len(ends[0])), ends), shape=(size, size))


def _refuse_contradictions(must: Pairs, cannot: Pairs, labels: Labels | None, n: int) -> None:
    graph = _joined(must, labels, n)
    _, found = connected_components(graph, directed=False)
    if labels is not None:
        parts, count = np.unique(found[n:], return_counts=True)
        for part in parts[count > 1]:
            a, b = n + np.flatnonzero(found[n:] == part)[:2]
            chain = _describe_path(_path(graph, int(a), int(b))[1:-1], labels, n)
            first, last = (labels.classes[node - n] for node in (a, b))
            raise ValueError(
                f"must_link joins the labels {first!s} and {last!s}: {chain}; remove one of them."
            )
    same = np.flatnonzero(found[cannot[:, 0]] == found[cannot[:, 1]])
    if same.size:
        i, j = (int(k) for k in cannot[same[0]])
        chain = _describe_path(_path(graph, i, j), labels, n)
        raise ValueError(f"links contradict each other: {chain}, but {i} cannot {j}; remove one.")


def _path(graph: sp.csr_array, start: int, end: int) -> list[int]:
    """Return the shortest path from one node to another, both included."""
    before = {start: start}
    waiting = deque([start])
    while end not in before:
        node = waiting.popleft()
        for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]:
            if int(other) not in before:
                before[int(other)] = node
                waiting.append(int(other))
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]


def _describe_path(way: list[int], labels: Labels | None, n: int) -> str:
    """Describe a path of samples and classes in words, for an error message."""
    parts = []
    for i, node in enumerate(way[:-1]):
        following = way[i + 1]
        if node < n and following < n:
            parts.append(f"{node} must {following}")
        elif following >= n and labels is not None and i + 2 < len(way):
            name = labels.classes[following - n]
            parts.append(f"{node} and {way[i + 2]} have the label {name!s}")
    return ", ".join(parts)
