"""Agglomerative clustering that respects must-links and cannot-links.

k-means violates few random links, so links would hardly change it. In agglomerative clustering, a
cannot-link between two samples separates the whole groups that they are in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.knowledge.links import Links

#: Maximum number of initial groups. Memory grows with its square. With more groups, fewer links are
#: violated.
MAX_GROUPS = 2000


def linked_clusters(
    V: NDArray[Any], n_clusters: int, links: Links, *, random_state: Any = None
) -> NDArray[np.int64]:
    """Return clusters of the rows of V that respect must-links and cannot-links.

    The initial groups are must-linked rows and single rows. Each step joins the two groups whose
    union adds least to Σ ‖v_i - mean‖² and violates no cannot-link, until ``n_clusters`` are left
    (Ward's method with links; Davidson & Ravi 2005). If no union is allowed, the one that violates
    the fewest cannot-links is chosen. With more than 2,000 groups, k-means first groups the rows
    without a link.
    """
    V = np.asarray(V, dtype=np.float64)
    group = _first_groups(V, links, random_state)
    count = int(group.max()) + 1
    size = np.bincount(group, minlength=count).astype(np.float64)
    centers = np.zeros((count, V.shape[1]))
    np.add.at(centers, group, V)
    centers /= size[:, None]
    apart = np.zeros((count, count), dtype=np.int32)
    i, j = group[links.cannot].T
    np.add.at(apart, (np.append(i, j), np.append(j, i)), 1)
    merged = _merge(centers, size, apart, n_clusters)
    _, clusters = np.unique(merged[group], return_inverse=True)
    return np.asarray(clusters, dtype=np.int64)


def _first_groups(V: NDArray[Any], links: Links, random_state: Any) -> NDArray[np.int64]:
    """Return the initial group of each row of V, as `linked_clusters` describes."""
    group = links.groups().codes.copy()
    alone = np.flatnonzero(group < 0)
    most = group.max(initial=-1) + 1
    few = most + len(alone) <= MAX_GROUPS
    linked = few | np.isin(alone, links.cannot)
    held, free = alone[linked], alone[~linked]
    group[held] = most + np.arange(len(held))
    most += len(held)
    many = min(len(free), max(MAX_GROUPS - most, MAX_GROUPS // 4))
    found = np.arange(len(free))
    if many < len(free):
        from sklearn.cluster import MiniBatchKMeans

        model = MiniBatchKMeans(many, n_init=1, random_state=random_state)
        found = np.unique(model.fit_predict(V[free]), return_inverse=True)[1]
    group[free] = most + found
    return group


def _merge(
    centers: NDArray[Any], size: NDArray[Any], apart: NDArray[Any], n_clusters: int
) -> NDArray[np.int64]:
    """Return the final group of each initial group, after merging by Ward's method."""
    count = len(centers)
    squares = (centers**2).sum(axis=1)
    cost = np.maximum(squares[:, None] + squares - 2 * centers @ centers.T, 0)
    cost *= size[:, None] * size / (size[:, None] + size)
    np.fill_diagonal(cost, np.inf)
    root = np.arange(count)
    alive = np.ones(count, dtype=bool)
    allowed = np.where(apart > 0, np.inf, cost)
    nearest = allowed.argmin(axis=1)
    least = allowed[np.arange(count), nearest]
    for _ in range(count - n_clusters):
        i = int(least.argmin())
        j = int(nearest[i])
        if not np.isfinite(least[i]):
            i, j = _fewest(cost, apart, alive)
        both, gap = size[i] + size[j], cost[i, j]
        # The Lance-Williams formula gives the cost of merging the new group with any other group.
        new = ((size[i] + size) * cost[i] + (size[j] + size) * cost[j] - size * gap) / (both + size)
        new[~alive] = np.inf
        new[[i, j]] = np.inf
        cost[i], cost[:, i] = new, new
        cost[j], cost[:, j] = np.inf, np.inf
        apart[i] += apart[j]
        apart[:, i] = apart[i]
        apart[i, i] = 0
        size[i], alive[j] = both, False
        root[root == j] = i
        allowed[i] = allowed[:, i] = np.where(apart[i] > 0, np.inf, new)
        allowed[j] = allowed[:, j] = np.inf
        least[j] = np.inf
        again = np.flatnonzero(alive & ((nearest == i) | (nearest == j)))
        again = np.union1d(again, [i])
        nearest[again] = allowed[again].argmin(axis=1)
        least[again] = allowed[again, nearest[again]]
        closer = allowed[:, i] < least
        nearest[closer], least[closer] = i, allowed[closer, i]
    return root


def _fewest(cost: NDArray[Any], apart: NDArray[Any], alive: NDArray[Any]) -> tuple[int, int]:
    """Return the cheapest pair of groups whose union violates the fewest cannot-links."""
    rows = np.flatnonzero(alive)
    broken = np.where(np.isfinite(cost[np.ix_(rows, rows)]), apart[np.ix_(rows, rows)], np.inf)
    price = np.where(broken == broken.min(), cost[np.ix_(rows, rows)], np.inf)
    i, j = np.unravel_index(int(price.argmin()), price.shape)
    return int(rows[i]), int(rows[j])
