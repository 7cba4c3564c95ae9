"""Validation of the input of `PartsClassifier`: samples, further arrays, labels and priors."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import validate_data

from partwise.backends import back_end
from partwise.backends.arrays import AnyArray
from partwise.backends.masks import refuse_masks
from partwise.classify.features import sample_digests
from partwise.classify.preparation import is_local
from partwise.fitting.checking import in_plain_words
from partwise.fitting.knowledge_checks import warn_of_unknown_as_class
from partwise.fitting.special_arrays import check_special
from partwise.knowledge.labels import Labels, as_ndarray, encode_labels

#: Largest size in bytes of a file that is read into memory.
IN_MEMORY = 200_000_000


def check_samples(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a float array or a CSR array; data on disk or on a device stay there."""
    on_disk = isinstance(X, np.memmap) and X.nbytes > IN_MEMORY
    if on_disk or back_end(X) is not None:
        special = check_special(estimator, X, reset=reset, beta=2.0)
        if special is not None:  # Dask arrays come back wrapped, but GNMF needs the original
            return X if hasattr(special, "tdot") else special
    with in_plain_words(estimator, X):
        how = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        X = validate_data(estimator, X, reset=reset, **how)
    return sp.csr_array(X) if sp.issparse(X) else X


def check_also(also: Any, X: Any, fitted: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Check the further arrays of the samples, and return them by name, such as "also[0]".

    ``fitted`` maps the name of each array to its number of columns in `fit`; None during `fit`.
    """
    if also is not None and not isinstance(also, (Mapping, list, tuple)):
        raise TypeError(
            f"also must be a list or mapping of arrays, got {type(also).__name__}; write also=[Z]."
        )
    pairs = also.items() if isinstance(also, Mapping) else enumerate(also or ())
    given = {f"also[{name!r}]": Z for name, Z in pairs}
    wanted = dict.fromkeys(given) if fitted is None else fitted
    if given.keys() != wanted.keys():
        had, got = (", ".join(["X", *names]) for names in (wanted, given))
        raise ValueError(
            f"The model was fitted with {had}, got {got}; pass the same arrays for new samples."
        )
    if given and not is_local(X):
        raise ValueError(
            "also needs an X that is a numpy array or a sparse matrix in memory; got "
            f"{type(X).__name__}."
        )
    checked = {}
    for name, columns in wanted.items():
        refuse_masks(given[name], name)
        Z = check_array(
            given[name], accept_sparse="csr", dtype=[np.float64, np.float32], input_name=name
        )
        shape = (X.shape[0], Z.shape[1] if columns is None else columns)
        if Z.shape != shape:
            raise ValueError(
                f"{name} has shape {Z.shape}, expected {shape}: one row per sample of X, and the "
                "columns that fit received."
            )
        checked[name] = sp.csr_array(Z) if sp.issparse(Z) else Z
    return checked


def check_labels(y: Any, n: int) -> Labels:
    """Check the labels of n samples, of which at least one must be known."""
    if isinstance(y, Labels):
        return y
    if y is None:
        raise ValueError(
            "PartsClassifier requires y to be passed, but the target y is None; pass -1 or None "
            "for samples whose label is unknown."
        )
    y = as_ndarray(y)
    if getattr(y, "ndim", 1) == 2 and np.shape(y)[1] == 1:
        y = column_or_1d(y, warn=True)
    labels = encode_labels(y, n)
    assert labels is not None
    warn_of_unknown_as_class(labels)
    classes = labels.classes
    if classes.dtype.kind == "f" and (classes != np.rint(classes)).any():
        raise ValueError(
            "Unknown label type: continuous. PartsClassifier predicts classes, but y contains "
            "numbers with a fraction."
        )
    if labels.n_classes < 1:
        raise ValueError(
            "PartsClassifier needs a label, and every entry of y is unknown (-1, None or NaN)."
        )
    return labels


def check_priors(priors: Any, n_classes: int) -> AnyArray | None:
    """Return known class shares, which must sum to one; None if they are estimated."""
    if isinstance(priors, str):
        return np.full(n_classes, 1 / n_classes) if priors == "uniform" else None
    shares = np.asarray(priors, dtype=float)
    if shares.shape != (n_classes,):
        raise ValueError(
            f"priors must contain a share for each of the {n_classes} classes, in the order of the "
            f"sorted classes; got {shares.size}."
        )
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise ValueError(f"priors must all be above 0, got {shares.tolist()}.")
    return np.asarray(shares / shares.sum())


def check_drawn(drawn: Any, priors: Any, labels: Labels) -> AnyArray | None:
    """Return a mask of labelled samples drawn at random; None unless priors="measured"."""
    measured = isinstance(priors, str) and priors == "measured"
    if not measured:
        if drawn is not None:
            raise ValueError(f"drawn needs priors='measured', got priors={priors!r}.")
        return None
    if drawn is None:
        counts = labels.counts[labels.counts > 0]
        if counts.size > 2 and counts.min() == counts.max() > 1:
            warnings.warn(
                f"Every class has {counts[0]} labels, so you probably chose samples of each class. "
                "Then priors='measured' is wrong: pass the samples that were drawn at random as "
                "drawn, or use priors='estimated'.",
                UserWarning,
                stacklevel=4,
            )
        return labels.mask
    mask, rows = np.zeros(labels.mask.size, dtype=bool), np.asarray(drawn)
    if rows.dtype != bool and not (rows.size and rows.dtype.kind in "iu"):
        raise TypeError(f"drawn must hold indices of samples or be a mask, got {drawn!r}.")
    mask[rows] = True
    if not mask.any() or not labels.mask[mask].all():
        sample = np.flatnonzero(mask & ~labels.mask)[:1]
        raise ValueError(
            f"drawn must hold labelled samples only, got {sample.tolist()} without a label."
        )
    return mask


def one_class_warning(label: Any, n: int, all_known: bool) -> str:
    """Return the warning for n labels that all belong to one class."""
    only = f"All {n} labels are {str(label)!r}" if n > 1 else f"The only label is {str(label)!r}"
    message = (
        f"{only}, so every sample gets that label and its probability is unknown: label samples "
        "of a second class, too."
    )
    number = isinstance(label, (int, float, np.number)) and not isinstance(label, bool)
    if number and label == 1 and not all_known:
        message += (
            " -1 in y means unknown: where it is your second class, give it another number, as "
            "np.where(y == -1, 0, y) does."
        )
    return message


def fingerprint(arrays: Mapping[str, Any]) -> str:
    """Return a digest of named arrays. Only the shape counts for arrays outside memory."""
    digest = hashlib.blake2b()
    for name, X in arrays.items():
        if X is None:
            continue
        digest.update(f"{name} {type(X).__name__} {tuple(X.shape)}".encode())
        if is_local(X):
            digest.update(f"{X.dtype}".encode() + sample_digests([X]).tobytes())
    return digest.hexdigest()
