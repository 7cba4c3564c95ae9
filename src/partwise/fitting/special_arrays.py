"""Checks of X in tensors, Dask arrays or memory maps, and data with entry weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from partwise._sklearn import check_n_features
from partwise.backends import DataMatrix, as_data, back_end
from partwise.backends.arrays import AnyArray, is_missing, row_blocks, to_numpy
from partwise.backends.gaps import MaskedData, WeightDeficit
from partwise.backends.numpy import memmap
from partwise.backends.numpy.sparse import SparseData

#: Largest share of missing or of observed entries for which their positions are stored as a sparse
#: matrix.
FEW = 0.25


def check_special(estimator: Any, X: Any, *, reset: bool, beta: float) -> Any | None:
    """Return X checked by its back end, or None if scikit-learn should validate X.

    Back ends handle memory maps, tensors and Dask arrays.
    """
    name = type(estimator).__name__
    device, missing = estimator.device, getattr(estimator, "missing_values", None)
    on_disk = isinstance(X, np.memmap) and device is None
    if on_disk and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
            return None
        check_shape(estimator, X, reset)
        if missing is not None:
            kept, hidden = memmap.gaps(X, missing)
            memmap.check_memmap(kept, name)
            return masked(kept, hidden, seen=False)
        memmap.check_memmap(X, name, positive=beta <= 0)
        return X
    found = back_end(X)
    if found is None:
        return None
    if device is not None:
        raise ValueError(
            f"device={device!r} applies to numpy and scipy arrays; {found.kind} are fitted on "
            "their own device, so leave device out."
        )
    found.look(X)
    if beta not in (1.0, 2.0):
        raise ValueError(
            f"beta_loss={beta:g} needs X as a numpy or scipy array; {found.kind} support "
            "'frobenius' and 'kullback-leibler'."
        )
    check_shape(estimator, X, reset)
    if "complex" in str(X.dtype):
        raise ValueError(f"Complex data not supported: X must be real, got {X.dtype}.")
    if missing is None:
        return found.check(X, name)
    if found.gaps is None:
        raise ValueError(f"missing_values does not support {found.kind}; use {found.home}.")
    base, places, seen = found.gaps(X, missing, name)
    return masked(base, places, seen=seen)


def check_local(X: Any, estimator_name: str) -> None:
    """Raise an error if X is a tensor or Dask array, which would have to be copied."""
    found = back_end(X)
    if found is not None:
        found.look(X)
        raise ValueError(
            f"{estimator_name} needs X as a numpy array, scipy array or memmap, and does not "
            f"support {found.kind}; use {found.home}, or NMF, NSNMF, GNMF, SemiGNMF, CNMF, CDNMF, "
            "NMFDC or ConstrainedNMF, which do."
        )


def check_shape(estimator: Any, X: Any, reset: bool) -> None:
    """Check that X has samples and features, and as many features as in the fit."""
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead.")
    if 0 in X.shape:
        raise ValueError(f"X must have samples and features, got shape {tuple(X.shape)}.")
    check_n_features(estimator, X, reset=reset)
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def move(X: Any, device: str) -> Any:
    """Return X on a torch device; results of the fit are returned as numpy arrays."""
    try:
        from partwise.backends.torch import torch_data
    except ImportError as error:
        raise ImportError(f'device={device!r} needs torch: pip install "partwise[gpu]"') from error
    return torch_data.move(X, device)


def weighed(X: Any, checked: Any, entry_weight: Any, missing_values: float | None) -> Any:
    """Return data with entry weights, for an X that is not a numpy or scipy array."""
    found = back_end(X)
    # computed from a copy in this process's memory
    if found is not None and found.bring is not None:
        bring: Callable[[Any, Any], DataMatrix] = found.bring
        here = to_numpy(X)
        if here.dtype not in (np.float32, np.float64):
            here = here.astype(np.float32 if here.dtype == np.float16 else np.float64)
        here, places, seen = without_gaps(here, missing_values)
        made = with_gaps(here, places, seen, entry_weight, lambda a: bring(a, X))
        return checked if made is here else made
    make = memmap.weighed if found is None else found.weighed
    if make is None:
        raise ValueError(f"entry_weight does not support {found.kind}; use {found.home}.")  # type: ignore[union-attr]
    _check_weights(entry_weight, X.shape)
    base, lack, d, squares, logs = make(X, entry_weight, missing_values)
    _check_rows(d)
    moments = base.rows(squares), base.rows(logs)
    return MaskedData(
        base, WeightDeficit(lack, seen=False, d=base.rows(np.asarray(d, base.dtype))), moments
    )


def _check_weights(W: Any, shape: tuple[int, int]) -> None:
    """Check entry weights, which may be in a file, some rows at a time."""
    if np.shape(W) != tuple(shape):
        raise ValueError(
            f"entry_weight has shape {np.shape(W)}, but X has shape {tuple(shape)}; pass one "
            "weight per entry."
        )
    for rows in row_blocks(*shape):
        w = W[rows].data if sp.issparse(W) else np.asarray(W[rows])
        if not np.isfinite(w).all():
            raise ValueError("Input entry_weight contains NaN or infinity.")
        if w.min(initial=0) < 0:
            raise ValueError(f"entry_weight must be >= 0, got {w.min():g}.")


def masked(base: DataMatrix, places: DataMatrix, *, seen: bool) -> Any:
    """Return data with missing entries, or ``base`` if no entry is missing.

    ``places`` marks the observed entries if ``seen`` is true, else the missing ones.
    """
    ones = places.small(np.ones((places.shape[1], 1), places.dtype))
    count = np.asarray(to_numpy(places.dot(ones)))[:, 0]
    if not seen and not count.any():
        return base
    _check_rows(count if seen else places.shape[1] - count)
    return MaskedData(base, WeightDeficit(places, seen=seen))


def without_gaps(X: Any, missing_values: float | None) -> tuple[Any, Any, bool]:
    """Return X with zeros for missing entries, and the positions of these entries.

    The second result marks positions; it is None if nothing is missing. The third result is true if
    the positions are those of observed entries: that is so for a sparse X with zeros as missing
    values.
    """
    if missing_values is None:
        return sp.csr_array(X) if sp.issparse(X) else X, None, False
    if not sp.issparse(X):
        hidden = is_missing(X, missing_values)
        return (
            (np.where(hidden, X.dtype.type(0), X), hidden, False)
            if hidden.any()
            else (X, None, False)
        )
    X = sp.csr_array(X)
    if missing_values == 0:
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
        places = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
        return X, places, True
    hidden = is_missing(X.data, missing_values)
    if not hidden.any():
        return X, None, False
    places = _some(X, hidden)
    places.data[:] = 1
    return _some(X, ~hidden & (X.data != 0)), places, False


def _some(X: Any, kept: AnyArray) -> Any:
    """Return a CSR matrix with only the stored entries that ``kept`` selects."""
    before = np.zeros(len(kept) + 1, dtype=X.indptr.dtype)  # keep the dtype of indices
    np.cumsum(kept, out=before[1:])
    at = np.flatnonzero(kept)  # Indexing twice by positions is faster than by a mask.
    return sp.csr_array((X.data[at], X.indices[at], before[X.indptr]), shape=X.shape)


def check_entry_weight(entry_weight: Any, shape: tuple[int, int], dtype: Any) -> Any:
    """Return the checked entry weights, a non-negative array or CSR array."""
    W = check_array(
        entry_weight, accept_sparse="csr", dtype=dtype, input_name="entry_weight", copy=True
    )
    _check_weights(W, shape)
    if sp.issparse(W):
        W = sp.csr_array(W)
        W.sum_duplicates()
        W.eliminate_zeros()
    return W


def with_gaps(
    X: Any, places: Any, seen: bool, entry_weight: Any, wrap: Callable[[Any], DataMatrix] = as_data
) -> Any:
    """Return X with its entry weights and missing entries; X itself without any."""
    if entry_weight is not None:
        W = check_entry_weight(entry_weight, X.shape, X.dtype)
        if places is not None:
            hidden = places.toarray() if sp.issparse(places) and not seen else places
            W = _times(W, places if seen else 1.0 - hidden)
        values = W.data if sp.issparse(W) else W
        if not ((values == 0) | (values == 1)).all():
            return _weighed(X, W, wrap)
        places, seen = (W, True) if sp.issparse(W) else (W == 0, False)
        X = _times(X, W)
    if places is None or (not seen and not _count(places).any()):
        return X
    _check_rows(_count(places) if seen else X.shape[1] - _count(places))
    places, seen = _smaller(places, seen, X)
    return MaskedData(wrap(X), WeightDeficit(_wrapped(places, X.dtype, wrap), seen=seen))


def _wrapped(places: Any, dtype: Any, wrap: Callable[[Any], DataMatrix]) -> DataMatrix:
    """Return the positions or weights of entries as a data matrix."""
    places = places.astype(dtype)
    return SparseData(places) if sp.issparse(places) and wrap is as_data else wrap(places)


def _count(places: Any) -> AnyArray:
    """Return the number of marked entries in each row."""
    if sp.issparse(places):
        return np.diff(places.indptr)
    return np.count_nonzero(places, axis=1)


def _smaller(places: Any, seen: bool, X: Any) -> tuple[Any, bool]:
    """Return positions of the missing or of the observed entries, whichever are fewer.

    If neither are few, the positions stay in one dense array.
    """
    if sp.issparse(places):
        if sp.issparse(X) or places.nnz <= FEW * X.shape[0] * X.shape[1]:
            return places, seen
        places = places.toarray() != 0
    share = float(places.mean())
    if share <= FEW:
        return sp.csr_array(places), seen
    return (sp.csr_array(~places), not seen) if share >= 1 - FEW else (places, seen)


def _times(X: Any, W: Any) -> Any:
    """Return the entry-wise product X ∘ W, which is sparse if X is sparse."""
    if not sp.issparse(X) and not sp.issparse(W):
        return X * W
    sparse, other = (X, W) if sp.issparse(X) else (W, X)
    out = sp.csr_array(sparse.multiply(other)).astype(X.dtype)
    out.sum_duplicates()
    out.eliminate_zeros()
    return out if sp.issparse(X) else out.toarray()


def _weighed(X: Any, W: Any, wrap: Callable[[Any], DataMatrix]) -> MaskedData:
    """Return X as data with entry weights.

    The weights of a row are stored as differences from the row's largest weight.
    """
    d = np.asarray(W.max(axis=1).todense() if sp.issparse(W) else W.max(axis=1)).ravel()
    _check_rows(d)
    base = _times(X, W)
    if sp.issparse(base):
        pairs = sp.csr_array((base.data.astype(np.float64), base.indices, base.indptr), base.shape)
        squares = np.asarray(pairs.multiply(X).sum(axis=1)).ravel()
        logs = sp.csr_array(X, copy=True).astype(np.float64)
        logs.data = np.log(logs.data, out=np.zeros_like(logs.data), where=logs.data > 0)
        moments = squares, np.asarray(pairs.multiply(logs).sum(axis=1)).ravel()
    else:
        X64 = np.asarray(X, dtype=np.float64)
        logs = np.log(X64, out=np.zeros_like(X64), where=X64 > 0)
        moments = (base * X64).sum(axis=1), (base * logs).sum(axis=1)
    lack = W if sp.issparse(W) else d[:, None] - W
    data = wrap(base)
    lack = WeightDeficit(_wrapped(lack, X.dtype, wrap), seen=sp.issparse(W), d=data.rows(d))
    return MaskedData(data, lack, tuple(data.rows(m) for m in moments))  # type: ignore[arg-type]


def _check_rows(weight: AnyArray) -> None:
    """Raise an error if all entries of a sample are missing or have weight zero."""
    empty = np.flatnonzero(weight == 0)
    if empty.size:
        more = f" and {empty.size - 1} others" if empty.size > 1 else ""
        raise ValueError(
            f"row {empty[0]} of X{more}: every entry is missing; leave this sample out."
        )
