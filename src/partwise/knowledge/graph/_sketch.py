"""A narrow copy of an X whose rows lie on many machines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from partwise.backends import as_data
from partwise.backends.arrays import cast, to_numpy

#: Columns of the sketch: 512 bytes a sample come to this machine.
WIDTH = 128
#: Passes over X that turn the columns towards its largest directions.
PASSES = 4
#: Up to so many samples all pairs of the sketch are compared.
COMPARE_ALL = 50_000


def sketch(X: Any, random_state: Any) -> NDArray[np.float32]:
    """Return X Q, (n, min(p, WIDTH)): Q is orthonormal, near the leading directions.

    Block power iteration with XᵀX: each pass brings (p, WIDTH), the last one (n, WIDTH). Distances
    shrink by what lies outside Q: nothing where p <= WIDTH or the rank of X is no larger.
    """
    data = as_data(X)
    return project(data, directions(data, random_state))


def directions(data: Any, random_state: Any) -> NDArray[Any]:
    """Return Q, (p, min(p, WIDTH))."""
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
