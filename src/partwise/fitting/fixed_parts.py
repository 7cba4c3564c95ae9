"""Parts that are known before the fit: fixed, or used as its start."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, Array, namespace, to_numpy
from partwise.knowledge.labels import with_unknown
from partwise.model.factor_model import column_lengths

#: Start at zeros of a seed, relative to its mean, because multiplicative steps cannot leave 0.
LIFT = 1e-3


class Known:
    """Fixed parts first, then seeded ones, then those to be found.

    Parameters
    ----------
    fixed, seeds : array-like of shapes (m, p), or None
        NaN where nothing is known.
    shape : (k, p)
    dtype : dtype of X
    unit_norm : 1, 2 or None
        The norm of parts that are held at length one.
    root : float
        What the factors are divided by, where X is divided by its square.
    """

    def __init__(
        self,
        fixed: Any,
        seeds: Any,
        shape: tuple[int, int],
        dtype: Any,
        *,
        unit_norm: int | None = None,
        root: float = 1.0,
    ) -> None:
        fixed = _check(fixed, "fixed_components", shape[1], dtype)
        seeds = _check(seeds, "seed_components", shape[1], dtype)
        count = len(fixed) + len(seeds)
        if count > shape[0]:
            raise ValueError(
                f"fixed_components and seed_components have {count} parts, more than "
                f"n_components={shape[0]}, which counts them."
            )
        self.H, self.seeds = np.full((2, *shape), np.nan, dtype=dtype)
        self.H[: len(fixed)] = fixed
        self.seeds[len(fixed) : count] = seeds
        self.root = self.H.dtype.type(root)
        self.scale = np.ones(shape[0], dtype=dtype)
        if unit_norm is not None:
            lengths = to_numpy(column_lengths(np.nan_to_num(self.H.T), unit_norm))
            self.scale = np.where(lengths > 0, lengths, 1).astype(dtype)

    @property
    def held(self) -> AnyArray | None:
        """Fixed entries of U, scaled with parts of unit length; NaN where free."""
        if np.isnan(self.H).all():
            return None
        return np.ascontiguousarray((self.H / self.scale[:, None] / self.root).T)

    def start(
        self, data: DataMatrix, V: Array, U: Array, *, custom: bool
    ) -> tuple[AnyArray, AnyArray]:
        """Return a start at the seeds; the user's part weights belong to unscaled fixed parts."""
        seeds = self.seeds / self.root
        if not np.isnan(seeds).all():
            means = np.nanmean(np.where(np.isnan(seeds).all(axis=1)[:, None], 0, seeds), axis=1)
            seeds = np.ascontiguousarray(np.maximum(seeds, LIFT * means[:, None]).T)
            there = data.small((~np.isnan(seeds)).astype(seeds.dtype))
            U = namespace(U).where(there > 0, data.small(np.nan_to_num(seeds)), U)
        if custom and (self.scale != 1).any():
            V = V * data.small(self.scale)
        return V, U

    def finish(self, data: DataMatrix, V: Array, H: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return part weights and parts for the user; fixed entries are exactly as given."""
        if np.isnan(self.H).all():
            return V, H
        scale = data.small(self.scale)
        known = data.small((~np.isnan(self.H)).astype(self.H.dtype))
        H = namespace(H).where(known > 0, data.small(np.nan_to_num(self.H)), H * scale[:, None])
        return V / scale, H


def _check(values: Any, name: str, p: int, dtype: Any) -> AnyArray:
    """Return parts (m, p) >= 0, NaN where free; m is 0 without values."""
    if values is None:
        return np.empty((0, p), dtype=dtype)
    H = check_array(
        with_unknown(to_numpy(values)),
        dtype=dtype,
        input_name=name,
        ensure_all_finite="allow-nan",
        copy=True,
    )
    if H.shape[1] != p:
        raise ValueError(f"{name} must have {p} features as X, got {H.shape[1]}.")
    if np.nanmin(H, initial=0) < 0:
        row, column = (int(i) for i in np.argwhere(H < 0)[0])
        raise ValueError(
            f"{name} must be >= 0, got {H[row, column]:g} at row {row}, column {column}; use NaN "
            "for entries that are not known."
        )
    empty = np.flatnonzero((H == 0).all(axis=1))
    if empty.size:
        raise ValueError(f"{name}: part {empty[0]} is zero everywhere; leave it out.")
    return H
