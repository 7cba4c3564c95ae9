"""Initial values: random, NNDSVD and its variants, and k-means."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import DataMatrix
from partwise.backends.arrays import (
    AnyArray,
    cast,
    namespace,
    orthonormal,
    squares_in_range,
    to_numpy,
)
from partwise.backends.numpy.float64_products import double_products

INITS = ("random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "custom")


def start(
    data: DataMatrix, k: int, init: str, rng: np.random.RandomState, weights: AnyArray | None = None
) -> tuple[AnyArray, AnyArray]:
    """Return (V, U) >= 0 of shapes (n, k), (p, k) in the dtype of the data.

    A sample with weight 2 gets the same initial values as two equal samples, so that weights are
    equivalent to repeated samples.
    """
    if init == "random":
        return random_starts(data, k, [rng], weights)[0]
    dtype, data = data.dtype, data if data.lack is None else data.filled()
    mean = _mean(data, weights)
    if init == "kmeans":
        V, U = _kmeans(data, k, rng)
    else:
        V, U = _nndsvd(data, k, rng, weights)
        if not isinstance(V, np.ndarray):
            return _filled(data, V, U, init, mean)
        if init == "nndsvda":
            V[V == 0], U[U == 0] = mean, mean
        elif init == "nndsvdar":
            for Z in (V, U):
                Z[Z == 0] = np.abs(mean * rng.standard_normal(int((Z == 0).sum())) / 100)
    if init == "kmeans":
        V, U = data.rows(V.astype(dtype, copy=False)), data.small(U)
    return cast(V, dtype), cast(U, dtype)


def _filled(
    data: DataMatrix, V: AnyArray, U: AnyArray, init: str, mean: float
) -> tuple[AnyArray, AnyArray]:
    """Replace the zeros of NNDSVD in factors that are not numpy arrays."""
    if init == "nndsvdar":
        raise ValueError(
            "init='nndsvdar' needs X as a numpy or scipy array; use init='nndsvda' or 'random'."
        )
    if init == "nndsvda":
        V, U = (namespace(Z).where(Z == 0, mean, Z) for Z in (V, U))
    return cast(V, data.dtype), cast(U, data.dtype)


def _mean(data: DataMatrix, weights: AnyArray | None) -> float:
    sums = data.row_sums()
    if not isinstance(sums, np.ndarray):
        if weights is None:
            return float(sums.sum()) / data.shape[0] / data.shape[1]
        return float(sums @ data.rows(weights)) / float(weights.sum()) / data.shape[1]
    return float(np.average(sums, weights=weights) / data.shape[1])


def random_starts(
    data: DataMatrix, k: int, rngs: Sequence[np.random.RandomState], weights: AnyArray | None = None
) -> list[tuple[AnyArray, AnyArray]]:
    """Return half-normal random parts, and random part weights for each sample.

    The random numbers of a sample are the fractional part of a large random projection of the
    sample. They are equal for equal samples, and differ between others. The result therefore does
    not depend on the order of the samples, and a sample with weight 2 gets the same values as two
    equal samples. All starts share one pass over X.
    """
    dtype = data.dtype
    # float64, because float32 has too few digits for the fraction of a large number
    data = double_products(data).filled()
    mean = _mean(data, weights)
    scale = np.sqrt(mean / k)
    # Use a power of two near 1/mean, so that rounding of the mean does not change the random
    # numbers.
    turn = 1000 * 2.0 ** -np.round(np.log2(mean)) if mean > 0 else 0.0
    parts, spins = [], []
    for rng in rngs:
        parts.append(scale * np.abs(rng.standard_normal((k, data.shape[1]))))
        spins.append(turn * rng.standard_normal((data.shape[1], k)))
    turns = data.dot(data.small(np.concatenate(spins, axis=1).astype(data.dtype)))
    found = []
    for number, U in enumerate(parts):
        own = turns[:, number * k : (number + 1) * k]
        noise = 1 - (own - namespace(own).floor(own))  # in (0, 1]: mu cannot leave zero
        V = noise * float(1.6 * scale)  # the mean of the parts
        found.append((cast(V, dtype), cast(data.small(np.ascontiguousarray(U.T)), dtype)))
    return found


def _svd(
    data: DataMatrix, k: int, rng: np.random.RandomState, weights: AnyArray | None
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Compute a randomised truncated SVD (Halko and others 2011) from products with X.

    With sample weights, return the SVD of Γ^½ X, with the rows of the left vectors divided by Γ^½.
    """
    if weights is not None:
        root = np.sqrt(weights)
        left, s, right = _svd(data.weighted(root, None, data.shape[0]), k, rng, None)
        scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        return left * data.rows(scale[:, None].astype(data.dtype)), s, right
    n, p = data.shape
    width = min(k + 10, n, p)
    Q = data.small(rng.standard_normal((p, width)).astype(data.dtype))
    for _ in range(4 if k < 0.1 * min(n, p) else 7):
        Q = orthonormal(data.dot(Q))
        Q = orthonormal(data.tdot(Q))
    Q = orthonormal(data.dot(Q))
    left, s, right = np.linalg.svd(to_numpy(data.tdot(Q)).T, full_matrices=False)
    left = Q @ data.small(np.ascontiguousarray(left))
    # the entry of each column with the largest absolute value becomes positive
    xp = namespace(left)
    high, low = xp.max(left, axis=0), xp.min(left, axis=0)
    one = namespace(high).ones_like(high)
    sign = namespace(high).where(high >= -low, one, -one)
    right = data.small((right[:k] * to_numpy(sign)[:k, None]).T)
    return left[:, :k] * sign[:k], s[:k], right


def _nndsvd(
    data: DataMatrix, k: int, rng: np.random.RandomState, weights: AnyArray | None
) -> tuple[AnyArray, AnyArray]:
    """Return NNDSVD: the larger of the two signed parts of each singular pair.

    The method is that of Boutsidis & Gallopoulos (2008).
    """
    left, s, right = _svd(data, k, rng, weights)
    root = 1.0 if weights is None else np.sqrt(weights)
    if not isinstance(left, np.ndarray):
        return _nndsvd_elsewhere(data, left, s, right, root)
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
    for Z in (V, U):  # set rounding errors of the SVD to zero
        Z[1e-6 * Z.max(initial=0) > Z] = 0
    return V, U


def _nndsvd_elsewhere(
    data: DataMatrix, left: AnyArray, s: AnyArray, right: AnyArray, root: Any
) -> tuple[AnyArray, AnyArray]:
    """Compute NNDSVD for tensors and Dask arrays, for all columns at once."""
    norms = {}
    for sign in (1, -1):
        halves = [namespace(A).maximum(sign * A, 0) for A in (left, right)]
        weight = halves[0] * halves[0]
        weight = weight if isinstance(root, float) else weight * data.rows(root * root)[:, None]
        norms[sign] = [
            np.sqrt(to_numpy(part.sum(axis=0)).astype(np.float64))
            for part in (weight, halves[1] * halves[1])
        ]
    positive = norms[1][0] * norms[1][1] >= norms[-1][0] * norms[-1][1]
    side = np.where(positive, 1.0, -1.0)
    na, nb = (np.where(positive, a, b) for a, b in zip(norms[1], norms[-1], strict=True))
    size = np.sqrt(s * na * nb)
    factors = []
    for A, norm in ((left, na), (right, nb)):
        scale = np.divide(side * size, norm, out=np.zeros_like(norm), where=norm > 0)
        Z = namespace(A).maximum(A * data.small(scale.astype(data.dtype)), 0)
        low = 1e-6 * float(Z.max())
        factors.append(namespace(A).where(Z < low, 0.0, Z))
    return factors[0], factors[1]


def clustered(X: AnyArray, k: int, n_init: int, rng: np.random.RandomState) -> Any:
    """Run k-means with k clusters, or one cluster per sample if there are fewer."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # One thread adds in a fixed order. Otherwise rounding would decide between equally good
    # results.
    with threadpool_limits(limits=1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than parts
        return KMeans(n_clusters=min(k, X.shape[0]), n_init=n_init, random_state=rng).fit(X)


def _kmeans(data: Any, k: int, rng: np.random.RandomState) -> tuple[AnyArray, AnyArray]:
    """Return cluster centres as parts, and part weights 1.2 (own cluster) or 0.2."""
    n = data.shape[0]
    X = to_numpy(data.whole())
    if not isinstance(X, np.ndarray) and not sp.issparse(X):
        raise ValueError("init='kmeans' needs X in memory; use init='nndsvda' or 'random'.")
    result = clustered(squares_in_range(X), k, 3, rng)
    V = np.full((n, k), 0.2)
    V[np.arange(n), result.labels_] += 1.0
    U = np.zeros((data.shape[1], k))
    U[:, : result.cluster_centers_.shape[0]] = result.cluster_centers_.T
    U = np.maximum(U, 0)
    mean = U.mean() or 1.0
    return V, U + 1e-3 * mean * rng.uniform(size=U.shape)
