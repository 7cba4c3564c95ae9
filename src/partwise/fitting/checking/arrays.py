"""Check X, custom starts and part weights as arrays: shape, type, sign and finite values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import validate_data

from partwise._sklearn import check_n_features
from partwise.backends import as_data, back_end
from partwise.backends.arrays import AnyArray, limits, to_numpy
from partwise.backends.data_matrix import ZEROS, Swept
from partwise.backends.gaps import MaskedData
from partwise.backends.masks import as_missing, is_masked
from partwise.backends.numpy import memmap
from partwise.backends.numpy.memmap import check_memmap
from partwise.fitting.checking.missing import masked, weighed, with_gaps, without_gaps
from partwise.fitting.description import Description
from partwise.knowledge.graph import IncompleteSamples
from partwise.knowledge.labels import with_unknown


def check_matrix(
    estimator: Any, spec: Description, X: Any, entry_weight: Any = None, *, reset: bool
) -> Any:
    """Return the checked X, or incomplete data if entries have different weights."""
    if spec.missing_values is not None:
        X = as_missing(X, spec.missing_values)
    if spec.local:
        check_local(X, spec.estimator_name)
    if not (spec.signed or spec.dense):
        special = check_special(estimator, X, reset=reset, beta=spec.beta)
        if special is not None:
            if entry_weight is None:
                return special
            return weighed(X, special, entry_weight, spec.missing_values)
    whole = True if spec.missing_values is None else "allow-nan"
    ours = whole is True and isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32)
    with in_plain_words(estimator, X):
        if ours and X.ndim == 2 and not np.isfinite(limits(X)).all():  # in threads
            assert_all_finite(X, estimator_name=spec.estimator_name, input_name="X")
        X = validate_data(
            estimator,
            X,
            accept_sparse=False if spec.dense else ("csr", "csc"),
            dtype=[np.float64, np.float32],
            ensure_all_finite=False if ours else whole,
            reset=reset,
        )
    return X if spec.signed else _non_negative(spec, X, entry_weight)


def _non_negative(spec: Description, X: Any, entry_weight: Any) -> Any:
    """Return X, checked for negative values, as incomplete data if entries are missing."""
    X, places, seen = without_gaps(X, spec.missing_values)
    if spec.missing_values is not None:  # else it was checked before
        check_finite(X)
    check_non_negative(X, spec.estimator_name)
    if spec.beta <= 0 and (X.min() == 0):
        raise ValueError(ZEROS)
    wrap = as_data if spec.device is None else partial(move, device=spec.device)
    if places is None and entry_weight is None:
        return X if spec.device is None else wrap(X)
    if spec.beta not in (1.0, 2.0):
        raise ValueError(
            f"missing_values and entry_weight need beta_loss 'frobenius' or "
            f"'kullback-leibler', got {spec.beta_loss!r}."
        )
    found = with_gaps(X, places, seen, entry_weight, wrap)
    return wrap(found) if found is X and spec.device is not None else found


def check_special(estimator: Any, X: Any, *, reset: bool, beta: float) -> Any | None:
    """Return X checked by its back end; None if scikit-learn's validation should check it."""
    name = type(estimator).__name__
    device, missing = estimator.device, getattr(estimator, "missing_values", None)
    on_disk = isinstance(X, np.memmap) and device is None
    if on_disk and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
            return None
        check_shape(estimator, X, reset)
        if missing is not None:
            kept, hidden = memmap.gaps(X, missing)
            check_memmap(kept, name)
            return masked(kept, hidden, seen=False)
        check_memmap(X, name, positive=beta <= 0)
        return X
    found = back_end(X)
    if found is None:
        return None
    if device is not None:
        raise ValueError(
            f"device={device!r} moves numpy and scipy input; {found.kind} are used where they "
            "are, so leave device out."
        )
    found.look(X)
    if beta not in (1.0, 2.0):
        raise ValueError(
            f"beta_loss={beta:g} needs X as a numpy or scipy array; {found.kind} have "
            "'frobenius' and 'kullback-leibler'."
        )
    check_shape(estimator, X, reset)
    if "complex" in str(X.dtype):
        raise ValueError(f"Complex data not supported: X must be real, got {X.dtype}.")
    if missing is None:
        return found.check(X, name)
    if found.gaps is None:
        raise ValueError(f"missing_values is not for {found.kind}; use {found.home}.")
    base, places, seen = found.gaps(X, missing, name)
    return masked(base, places, seen=seen)


def check_local(X: Any, estimator_name: str) -> None:
    """Refuse what would be copied here without a word."""
    found = back_end(X)
    if found is not None:
        found.look(X)
        raise ValueError(
            f"{estimator_name} needs X as a numpy or scipy array or a memmap and takes no "
            f"{found.kind}; use "
            f"{found.home}, or NMF, NSNMF, GNMF, SemiGNMF, CNMF, CDNMF, NMFDC or ConstrainedNMF, "
            "which fit X where it is."
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
    """Move a numpy or scipy X to a torch device; results are returned as ndarrays."""
    try:
        from partwise.backends.torch import torch_data
    except ImportError as error:
        raise ImportError(f'device={device!r} needs torch: pip install "partwise[gpu]"') from error
    return torch_data.move(X, device)


def searchable(X: Any) -> tuple[Any, Literal["exact", "approximate"]]:
    """Return X as the search for neighbours needs it, and the method of that search."""
    if isinstance(X, MaskedData):
        if X.base.whole() is not None and X.lack.entries.whole() is not None:
            return IncompleteSamples.of(X), "exact"
        return X.filled(), "approximate"
    if isinstance(X, Swept):
        X = X.filled()
        whole = X.whole()
        return (X, "approximate") if whole is None else (to_numpy(whole), "exact")
    return to_numpy(X), "exact"


def as_ndarray(a: Any) -> AnyArray:
    """Return labels, weights and starts as ndarrays."""
    a = with_unknown(a.compute() if is_masked(a) and hasattr(a, "compute") else a)
    return a if back_end(a) is None else to_numpy(a)


NAMED = (
    "Input X contains NaN. {estimator_name} takes entries that were not measured with "
    "missing_values=np.nan; otherwise fill them in or leave those samples out."
)


@contextmanager
def in_plain_words(estimator: Any, X: Any) -> Iterator[None]:
    """Extend errors: for NaN with the setting that accepts it, for numpy with the input."""
    try:
        yield
    except (TypeError, ValueError) as error:
        said = str(error)
        if "contains NaN" in said and "missing_values" in estimator.get_params(deep=False):
            raise ValueError(NAMED.format(estimator_name=type(estimator).__name__)) from error
        if "could not convert" in said or "argument must be a string or a" in said:
            came = f"got {type(X).__name__}"
            if hasattr(X, "select_dtypes"):
                others = X.select_dtypes(exclude=["number", "bool"]).columns
                came = "without: " + ", ".join(f"column {name!r}" for name in others[:5])
            raise type(error)(f"X must hold numbers, samples in rows; {came} ({said}).") from error
        raise


SIGNED = "SemiNMF, CF and LCF take signed data"


def check_finite(X: Any) -> None:
    """Raise where X has NaN or infinity."""
    values = X.data if sp.issparse(X) else X
    if not np.isfinite(limits(values)).all():
        raise ValueError("Input X contains NaN or infinity in addition to its missing values.")


def check_non_negative(X: Any, estimator_name: str) -> None:
    """Raise an error with the position of the lowest entry of X if it is negative."""
    values = X.data if sp.issparse(X) else X
    if not limits(values)[0] < 0:
        return
    if sp.issparse(X):
        X = X.tocoo()
        at = int(X.data.argmin())
        row, column, low = int(X.coords[0][at]), int(X.coords[1][at]), X.data[at]
    else:
        row, column = (int(i) for i in np.unravel_index(X.argmin(), X.shape))
        low = X[row, column]
    raise ValueError(
        f"Negative values in data passed to {estimator_name}: the lowest is {low:g} at row {row}, "
        f"column {column}; {SIGNED}."
    )


def check_start(
    Z: Any,
    shape: tuple[int, int],
    dtype: Any,
    name: str,
    estimator_name: str,
    *,
    zeros: bool = False,
) -> AnyArray:
    """Check a custom start: shape, dtype, non-negative, not all zero."""
    Z = check_array(Z, dtype=[np.float64, np.float32], input_name=name)
    for axis, word in enumerate(("first", "second")):
        if Z.shape[axis] != shape[axis]:
            raise ValueError(
                f"Array with wrong {word} dimension passed to {estimator_name} (input {name}). "
                f"Expected {shape[axis]}, but got {Z.shape[axis]}."
            )
    if Z.dtype != dtype:
        raise TypeError(f"{name} should have the same dtype as X. Got {Z.dtype}, expected {dtype}.")
    if (Z < 0).any():
        raise ValueError(f"Negative values in data passed to {estimator_name} (input {name})")
    if not zeros and not Z.any():
        raise ValueError(f"Array passed to {estimator_name} (input {name}) is full of zeros.")
    return Z


def check_codes(V: Any, k: int) -> Any:
    """Return V with one column per part, of any kind of array."""
    if isinstance(V, (list, tuple)) or hasattr(V, "iloc"):
        V = np.asarray(V)
    shape = tuple(getattr(V, "shape", ()))
    if len(shape) != 2 or shape[1] != k:
        raise ValueError(
            f"X must hold codes, of shape (n_samples, {k}), got shape {shape}; "
            "transform makes them."
        )
    return V
