"""Samples in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Points that the map shows at most: more make a page slow and its file large.
MAX_POINTS = 5000
#: Fewer samples than this have no neighbourhoods worth an embedding of their own.
MIN_TSNE = 30


@dataclass(frozen=True, eq=False)
class Layout:
    """Two coordinates for some of the samples."""

    shown: NDArray[np.int64]  #: the samples that have a place, in order
    points: NDArray[np.float64]
    method: str  #: a sentence on what the coordinates are
    axes: tuple[str, str] | None = None  #: their names, where they mean something by themselves


def lay_out(V: Any, groups: Any, *, random_state: int = 0, max_points: int = MAX_POINTS) -> Layout:
    """Lay the codes V out in two dimensions, by t-SNE or, for many samples, by PCA.

    Where there are more than ``max_points`` samples, each of the ``groups`` keeps its share.
    """
    V = np.asarray(V, dtype=np.float64)
    n, k = V.shape
    shown = np.arange(n) if n <= max_points else _share(groups, max_points, random_state)
    if k == 1:
        height = np.random.default_rng(random_state).uniform(-1, 1, n)
        points = np.column_stack([V[:, 0], height])
        text = "Left to right: the single part. The height is random, so that points stay apart."
        return Layout(shown, points[shown], text, ("part 1", ""))
    if k == 2:
        return Layout(shown, V[shown], "The two parts themselves.", ("part 1", "part 2"))
    if n > max_points or n < MIN_TSNE:
        points, share = _principal(V)
        text = f"The first two principal components of the codes: {share:.0%} of their variance."
        return Layout(shown, points[shown], text, ("first", "second"))
    text = (
        "t-SNE of the codes: samples that are close here have similar codes; distances between "
        "groups, and their sizes, mean little."
    )
    return Layout(shown, _tsne(V, random_state), text)


def _principal(V: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    centred = V - V.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)  # ascending; k is small
    total = values.sum()
    return centred @ axes[:, :-3:-1], float(values[-2:].sum() / total) if total > 0 else 1.0


def _tsne(V: NDArray[np.float64], random_state: int) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # a tiny spread: equal codes (hard labels) would otherwise sit exactly on each other
    spread = 1e-4 * (V.std() or 1.0)
    V = V + np.random.default_rng(random_state).normal(scale=spread, size=V.shape)
    start = _principal(V)[0]
    start *= 1e-4 / (start[:, 0].std() or 1.0)  # as scikit-learn scales init="pca"
    perplexity = min(30.0, (len(V) - 1) / 3)
    model = TSNE(
        perplexity=perplexity,
        init=start.astype(np.float32),
        max_iter=500,
        random_state=random_state,
    )
    # threads gain little at this size, and wait for each other on a busy machine
    with threadpool_limits(limits=1, user_api="openmp"):
        points: NDArray[np.float64] = model.fit_transform(V).astype(np.float64)
    return points


def _share(groups: Any, size: int, random_state: int) -> NDArray[np.int64]:
    """A sample of about ``size``, every group in proportion and at least one of each."""
    rng = np.random.default_rng(random_state)
    codes = np.unique(np.asarray([str(g) for g in groups]), return_inverse=True)[1]
    keep = []
    for code in range(codes.max() + 1):
        members = np.flatnonzero(codes == code)
        keep.append(rng.permutation(members)[: max(1, size * len(members) // len(codes))])
    return np.sort(np.concatenate(keep))
