"""Counts drawn again: how much a result owes to chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray

KINDS = ("poisson", "multinomial")
#: Entries that are looked at at a time.
PIECE = 2**24


def check_counts(X: Any, whom: str) -> None:
    """Raise where X holds something else than counts; a tensor is looked at where it is."""
    values = X.data if sp.issparse(X) else X
    step = PIECE if values.ndim == 1 else max(1, PIECE // values.shape[1])
    for start in range(0, values.shape[0], step):
        block = values[start : start + step]
        odd = (block < 0) | (block != block.round())
        if odd.any():
            raise ValueError(
                f"{whom} needs counts, whole numbers of 0 or more; X holds "
                f"{float(block[odd][0]):g}."
            )


def resample(X: Any, kind: str, rng: np.random.RandomState) -> Any:
    """X with each count drawn again.

    "poisson": around the count itself. "multinomial": each sample keeps its total, which is shared
    out anew by the proportions that it has.
    """
    if kind not in KINDS:
        raise ValueError(f"bootstrap must be None, 'poisson' or 'multinomial'; got {kind!r}.")

    def draw(row: AnyArray) -> AnyArray:
        return np.asarray(rng.poisson(row)) if kind == "poisson" else _shared_out(row, rng)

    if not sp.issparse(X):
        return np.stack([draw(row) for row in X]).astype(X.dtype)
    drawn = X.copy()
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        drawn.data[start:stop] = draw(X.data[start:stop])
    drawn.eliminate_zeros()
    return drawn


def _shared_out(row: AnyArray, rng: np.random.RandomState) -> AnyArray:
    total = float(row.sum(dtype=np.float64))
    return rng.multinomial(int(total), row.astype(np.float64) / total) if total > 0 else row
