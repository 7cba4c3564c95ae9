"""Resampling of counts for the bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray

KINDS = ("poisson", "multinomial")
#: Maximum number of entries that are checked together; a larger value needs more memory.
PIECE = 2**24


def check_counts(X: Any, estimator_name: str) -> None:
    """Raise ValueError if X contains other values than counts and NaN.

    Tensors are checked on their device.
    """
    values = X.data if sp.issparse(X) else X
    step = PIECE if values.ndim == 1 else max(1, PIECE // values.shape[1])
    for start in range(0, values.shape[0], step):
        block = values[start : start + step]
        odd = ((block < 0) | (block != block.round())) & (block == block)  # NaN is missing
        if odd.any():
            value = float(block[odd][0])
            raise ValueError(f"{estimator_name} needs counts, whole numbers; X has {value:g}.")


def resample(X: Any, kind: str, rng: np.random.RandomState) -> Any:
    """Return X with each count drawn again from its distribution.

    NaN entries stay NaN. "poisson" draws each count from a Poisson distribution whose mean is the
    count. "multinomial" keeps the total of each sample and distributes it by the sample's
    proportions.
    """
    if kind not in KINDS:
        raise ValueError(f"bootstrap must be None, 'poisson' or 'multinomial'; got {kind!r}.")

    def draw(row: AnyArray) -> AnyArray:
        """Return one sample with its observed counts drawn again."""
        drawn, seen = row.copy(), ~np.isnan(row)
        counts = row[seen].astype(np.float64)
        if kind == "poisson":
            drawn[seen] = rng.poisson(counts)
        elif counts.any():
            drawn[seen] = rng.multinomial(int(counts.sum()), counts / counts.sum())
        return drawn

    if not sp.issparse(X):
        return np.stack([draw(row) for row in X]).astype(X.dtype)
    drawn = X.copy()
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        drawn.data[start:stop] = draw(X.data[start:stop])
    drawn.eliminate_zeros()
    return drawn
