"""Projection of a Dask array on a few directions, for the search for neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from partwise.backends import as_data
from partwise.backends.arrays import cast, to_numpy

#: Number of columns of the sketch, which needs 512 bytes per sample in this process.
WIDTH = 128
#: Number of passes over X, each of which turns the columns of the sketch closer to the main
#: directions of X.
PASSES = 4
#: Up to this number of samples, all pairs of the sketch are compared.
COMPARE_ALL = 50_000


def sketch(X: Any, random_state: Any) -> NDArray[np.float32]:
    """Return X Q of shape (n, min(p, WIDTH)), for orthonormal main directions Q.

    Q is computed by block power iteration with XᵀX. Distances in the sketch are smaller than those
    in X by the part of X outside Q. They are equal if p <= WIDTH, or if the rank of X is at most
    WIDTH.
    """
    data = as_data(X)
    return project(data, directions(data, random_state))


def directions(data: Any, random_state: Any) -> NDArray[Any]:
    """Return the orthonormal main directions Q of shape (p, min(p, WIDTH))."""
    p = data.shape[1]
    if p <= WIDTH:
        return np.eye(p)
    start = check_random_state(random_state).standard_normal((p, WIDTH))
    Q = np.linalg.qr(start)[0]
    for _ in range(PASSES):
        Q = np.linalg.qr(to_numpy(data.tdot(data.dot(_basis(data, Q)))))[0]
    return Q


def project(data: Any, Q: NDArray[Any]) -> NDArray[np.float32]:
    """Return X Q in this process, in float32."""
    return np.asarray(to_numpy(cast(data.dot(_basis(data, Q)), np.float32)))


def _basis(data: Any, Q: Any) -> Any:
    return data.small(np.ascontiguousarray(Q, dtype=data.dtype))
