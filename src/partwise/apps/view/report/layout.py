"""Positions of samples on a two-dimensional map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maximum number of points on the map; more make the page slow and its file large.
MAX_POINTS = 5000
#: Minimum number of samples for t-SNE; fewer have no meaningful neighbourhoods.
MIN_TSNE = 30


@dataclass(frozen=True, eq=False)
class Layout:
    """Two-dimensional coordinates of some of the samples."""

    shown: NDArray[np.int64]  #: samples with coordinates, in order
    points: NDArray[np.float64]
    method: str  #: a sentence that explains the coordinates
    axes: tuple[str, str] | None = None  #: names of the axes, if they have a meaning


def lay_out(V: Any, groups: Any, *, random_state: int = 0, max_points: int = MAX_POINTS) -> Layout:
    """Return two-dimensional coordinates of the part weights V, by t-SNE or PCA.

    If there are more than ``max_points`` samples, each of the ``groups`` keeps its share.
    """
    V = np.asarray(V, dtype=np.float64)
    n, k = V.shape
    shown = np.arange(n) if n <= max_points else _share(groups, max_points, random_state)
    if k == 1:
        height = np.random.default_rng(random_state).uniform(-1, 1, n)
        points = np.column_stack([V[:, 0], height])
        text = "The horizontal position is the weight of the only part; the height is random."
        return Layout(shown, points[shown], text, ("part 1", ""))
    if k == 2:
        return Layout(
            shown, V[shown], "The axes are the weights of the two parts.", ("part 1", "part 2")
        )
    if n > max_points or n < MIN_TSNE:
        from sklearn.decomposition import PCA

        axes = PCA(2).fit(V)
        points, share = axes.transform(V), np.nan_to_num(axes.explained_variance_ratio_).sum()
        text = (
            "The axes are the first two principal components of the part weights "
            f"({share:.0%} of their variance)."
        )
        return Layout(shown, points[shown], text, ("first", "second"))
    text = (
        "Samples that are close have similar part weights (t-SNE). Distances between groups and "
        "their sizes mean little."
    )
    return Layout(shown, _tsne(V, random_state), text)


def _tsne(V: NDArray[np.float64], random_state: int) -> NDArray[np.float64]:
    """Return t-SNE coordinates of the part weights V."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # Equal part weights, which hard labels cause, would coincide on the map. A tiny random shift
    # separates them.
    spread = 1e-4 * (V.std() or 1.0)
    V = V + np.random.default_rng(random_state).normal(scale=spread, size=V.shape)
    perplexity = min(30.0, (len(V) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=random_state)
    # Several threads gain little for so few samples, and slow each other down on a busy machine.
    with threadpool_limits(limits=1, user_api="openmp"):
        points: NDArray[np.float64] = model.fit_transform(V).astype(np.float64)
    return points


def _share(groups: Any, size: int, random_state: int) -> NDArray[np.int64]:
    """Return about ``size`` random samples, in proportion to the size of each group."""
    rng = np.random.default_rng(random_state)
    codes = np.unique(np.asarray([str(g) for g in groups]), return_inverse=True)[1]
    keep = []
    for code in range(codes.max() + 1):
        members = np.flatnonzero(codes == code)
        keep.append(rng.permutation(members)[: max(1, size * len(members) // len(codes))])
    return np.sort(np.concatenate(keep))
