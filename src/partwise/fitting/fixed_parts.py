"""Parts that the user knows before the fit: fixed parts, or initial values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, Array, namespace, to_numpy
from partwise.knowledge.labels import with_unknown
from partwise.model.factor_model import column_lengths

#: Initial value where a seed part is zero, relative to the seed's mean. It is positive because
#: multiplicative updates cannot leave zero.
LIFT = 1e-3


class Known:
    """Fixed parts and seed parts of a fit.

    Fixed parts come first among the k parts, then seed parts, then the parts to be learnt.

    Parameters
    ----------
    fixed, seeds : array-like of shape (m, p), or None
        Known entries of the parts; NaN marks an unknown entry.
    shape : (k, p)
        Number of parts and number of features.
    dtype : dtype of X
    unit_norm : 1, 2 or None
        The norm that is one for each part during the fit, if the fit normalises parts.
    root : float
        Divisor of the factors. X is divided by its square if X has extreme values.
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
        """Fixed entries of U in the scale of the solver; NaN marks entries to be learnt."""
        if np.isnan(self.H).all():
            return None
        return np.ascontiguousarray((self.H / self.scale[:, None] / self.root).T)

    def start(
        self, data: DataMatrix, V: Array, U: Array, *, custom: bool
    ) -> tuple[AnyArray, AnyArray]:
        """Return initial V and U with seed parts in U.

        A user's custom V refers to fixed parts in their original scale, so V is rescaled to match.
        """
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
        """Return part weights V and parts H in the user's scale, with exact fixed entries."""
        if np.isnan(self.H).all():
            return V, H
        scale = data.small(self.scale)
        known = data.small((~np.isnan(self.H)).astype(self.H.dtype))
        H = namespace(H).where(known > 0, data.small(np.nan_to_num(self.H)), H * scale[:, None])
        return V / scale, H


def _check(values: Any, name: str, p: int, dtype: Any) -> AnyArray:
    """Return the known parts as a checked array, with NaN for unknown entries.

    Without values, the array has no rows.
    """
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
        raise ValueError(f"{name} has {H.shape[1]} features, but X has {p}.")
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
