"""Checks of sparse matrices from files, before compiled code uses their indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def csr_of(data: Any, indices: Any, indptr: Any, shape: Any, layout: str = "csr") -> sp.csr_array:
    """Return a sparse matrix without repeated entries; raise if its arrays are invalid.

    scipy's readers accept invalid files, and `check_format` stops checking if ``indptr`` ends with
    0. Compiled code would then read outside of the arrays.
    """
    data, indices, indptr = np.asarray(data), np.asarray(indices), np.asarray(indptr)
    size = tuple(int(length) for length in shape)
    wrong = _misfit(data, indices, indptr, size if layout == "csr" else size[::-1])
    if wrong:
        raise ValueError(f"damaged sparse matrix: {wrong}.")
    # small unsigned indices save space on disk; scipy works with signed ones
    wide = np.int32 if max(*size, data.size) < 2**31 else np.int64
    kind = sp.csr_array if layout == "csr" else sp.csc_array
    X = kind((data, indices.astype(wide, copy=False), indptr.astype(wide, copy=False)), shape=size)
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()  # the caller may use the arrays elsewhere
        X.sum_duplicates()
    return X


def _misfit(data: Any, indices: Any, indptr: Any, size: tuple[int, ...]) -> str | None:
    """Return what is wrong with the arrays of a sparse matrix; None if valid."""
    if len(size) != 2 or not all(0 <= length < 2**62 for length in size):
        return f"its shape is {size}"
    if not data.ndim == indices.ndim == indptr.ndim == 1:
        return "data, indices and indptr are not one-dimensional"
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        return f"its indices are {indices.dtype}, its indptr {indptr.dtype}, no whole numbers"
    if indptr.size != size[0] + 1:
        return f"indptr has {indptr.size} entries, not {size[0] + 1}"
    if indices.size != data.size:
        return f"{data.size} values but {indices.size} indices"
    if indptr[0] != 0 or indptr[-1] != data.size:
        return f"indptr goes from {indptr[0]} to {indptr[-1]}, not from 0 to {data.size}"
    if not (indptr[1:] >= indptr[:-1]).all():
        return "indptr falls"
    if data.size and not 0 <= int(indices.min()) <= int(indices.max()) < size[1]:
        return f"indices from {indices.min()} to {indices.max()} in {size[1]} places"
    return None


def checked_csr(X: Any) -> sp.csr_array:
    """Return any sparse matrix as CSR; raise if its arrays do not fit each other."""
    if X.format in ("csr", "csc"):
        return csr_of(X.data, X.indices, X.indptr, X.shape, X.format)
    if X.format == "bsr":
        X.check_format(full_check=True)
    return sp.csr_array(sp.coo_array(X))  # coo_array checks the coordinates


def check_array(a: Any, kind: str, ndim: int) -> None:
    """Raise unless ``a`` is an array of finite numbers of this kind and number of dimensions."""
    if not (isinstance(a, np.ndarray) and a.ndim == ndim and a.dtype.kind == kind):
        raise ValueError(f"an array of kind {kind!r} with {ndim} dimensions is missing")
    if not np.isfinite(a).all():
        raise ValueError("an array holds NaN or infinity")
