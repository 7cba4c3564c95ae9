"""Starts: random, NNDSVD and its two fillings, k-means. X is seen through its products."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from partwise._numeric import Array
from partwise.data import DataMatrix

INITS = ("random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "custom")


def start(
    data: DataMatrix, k: int, init: str, rng: np.random.RandomState, weights: Array | None = None
) -> tuple[Array, Array]:
    """(V, U) >= 0 of shapes (n, k), (p, k) in the dtype of the data.

    A sample of weight 2 starts like two equal samples, so that weights mean repetition.
    """
    mean = _mean(data, weights)
    if init == "random":
        V, U = _random(data, k, rng, mean)
    elif init == "kmeans":
        V, U = _kmeans(data, k, rng)
    else:
        V, U = _nndsvd(data, k, rng, weights)
        if init == "nndsvda":
            V[V == 0], U[U == 0] = mean, mean
        elif init == "nndsvdar":
            for Z in (V, U):
                Z[Z == 0] = np.abs(mean * rng.standard_normal(int((Z == 0).sum())) / 100)
    return V.astype(data.dtype, copy=False), U.astype(data.dtype, copy=False)


def _mean(data: DataMatrix, weights: Array | None) -> float:
    return float(np.average(data.row_sums(), weights=weights) / data.shape[1])


def _random(
    data: DataMatrix, k: int, rng: np.random.RandomState, mean: float
) -> tuple[Array, Array]:
    """Half-normal parts; every sample starts from one and the same half-normal code.

    The parts alone break the symmetry, and a code that does not depend on a sample's position
    makes the result independent of the order of the samples.
    """
    scale = np.sqrt(mean / k)
    U = scale * np.abs(rng.standard_normal((k, data.shape[1])))
    V = np.tile(scale * np.abs(rng.standard_normal(k)), (data.shape[0], 1))
    return V, np.ascontiguousarray(U.T)


def _svd(
    data: DataMatrix, k: int, rng: np.random.RandomState, weights: Array | None
) -> tuple[Array, Array, Array]:
    """Randomised truncated SVD (Halko, Martinsson & Tropp 2011) from products with X alone.

    With weights, that of Γ^½ X, and the rows of the left vectors divided by Γ^½ again.
    """
    if weights is not None:
        root = np.sqrt(weights)
        left, s, right = _svd(data.weighted(root, None, data.shape[0]), k, rng, None)
        scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        return left * scale[:, None].astype(left.dtype), s, right
    n, p = data.shape
    width = min(k + 10, n, p)
    Q = rng.standard_normal((p, width)).astype(data.dtype)
    for _ in range(4 if k < 0.1 * min(n, p) else 7):
        Q, _ = np.linalg.qr(data.dot(Q))
        Q, _ = np.linalg.qr(data.tdot(Q))
    Q, _ = np.linalg.qr(data.dot(Q))
    left, s, right = np.linalg.svd(data.tdot(Q).T, full_matrices=False)
    left = Q @ left
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])])
    return left[:, :k] * signs[:k], s[:k], (right[:k] * signs[:k, None]).T


def _nndsvd(
    data: DataMatrix, k: int, rng: np.random.RandomState, weights: Array | None
) -> tuple[Array, Array]:
    """Boutsidis & Gallopoulos (2008): the larger signed part of each singular pair."""
    left, s, right = _svd(data, k, rng, weights)
    root = 1.0 if weights is None else np.sqrt(weights)
    V, U = np.zeros_like(left), np.zeros_like(right)
    V[:, 0] = np.sqrt(s[0]) * np.abs(left[:, 0])
    U[:, 0] = np.sqrt(s[0]) * np.abs(right[:, 0])
    for j in range(1, k):
        pairs = []
        for sign in (1, -1):
            a, b = np.maximum(sign * left[:, j], 0), np.maximum(sign * right[:, j], 0)
            pairs.append((np.linalg.norm(a * root), np.linalg.norm(b), a, b))
        na, nb, a, b = max(pairs, key=lambda pair: pair[0] * pair[1])
        if na * nb > 0:
            scale = np.sqrt(s[j] * na * nb)
            V[:, j] = scale * a / na
            U[:, j] = scale * b / nb
    for Z in (V, U):  # rounding of the SVD is not a part
        Z[1e-6 * Z.max(initial=0) > Z] = 0
    return V, U


def _kmeans(data: Any, k: int, rng: np.random.RandomState) -> tuple[Array, Array]:
    """Centres as parts, membership + 0.2 as codes, as is usual for CF and convex NMF."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    n = data.shape[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than parts
        result = KMeans(n_clusters=min(k, n), n_init=3, random_state=rng).fit(data.X)
    V = np.full((n, k), 0.2)
    V[np.arange(n), result.labels_] += 1.0
    U = np.zeros((data.shape[1], k))
    U[:, : result.cluster_centers_.shape[0]] = result.cluster_centers_.T
    U = np.maximum(U, 0)
    mean = U.mean() or 1.0
    return V, U + 1e-3 * mean * rng.uniform(size=U.shape)
