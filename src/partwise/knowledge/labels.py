"""Class labels of any type, checked and encoded as integers.

Partwise uses integer codes internally; results contain the classes as the user passed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg

from partwise.backends import back_end
from partwise.backends.arrays import to_numpy
from partwise.backends.compressed import check_array
from partwise.backends.masks import is_masked

__all__ = ["Labels", "encode_labels", "propagate", "read_labels", "says_unknown"]

#: Texts that usually mean that a label is unknown.
NO_LABEL = {
    *("?", "??", "???", "-", "--", "–", "—", ".", "n/a", "na", "n.a.", "#n/a", "nan", "none"),
    *("null", "nil", "unknown", "unk", "unlabeled", "unlabelled", "unsure", "undefined"),
    *("unclear", "missing", "tbd", "todo", "k.a.", "unbekannt", "unklar", "inconnu"),
    *("inconnue", "desconocido", "desconocida", "desconhecido", "sconosciuto", "onbekend"),
    *("okänd", "ukjent", "неизвестно", "不明", "未知", "不详", "not sure", "no label"),
    *("not labelled", "not labeled", "don't know", "keine angabe", "k. a."),
}


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes, and the class of each labelled sample.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The sorted classes, in the dtype that the user passed.
    codes : int64 ndarray of shape (n_samples,)
        Position of the class of each sample in ``classes``, the most probable one if the label is
        a probability; -1 for an unlabelled sample.
    shares : float64 ndarray of shape (n_samples, n_classes) or None
        Class probabilities, zeros for unlabelled samples; None if all labels are certain.
    """

    classes: NDArray[Any]
    codes: NDArray[np.int64]
    shares: NDArray[np.float64] | None = None

    def check(self) -> None:
        """Raise ValueError if arrays from a file are not valid labels."""
        check_array(self.codes, "i", 1)
        if np.ndim(self.classes) != 1:
            raise ValueError("the classes are not a one-dimensional array")
        c = len(self.classes)
        if self.codes.dtype != np.int64 or self.codes.size == 0:
            raise ValueError("there are no labels")
        if not -1 <= self.codes.min() <= self.codes.max() < c:
            raise ValueError("a label is not one of the classes")
        if self.shares is not None:
            check_array(self.shares, "f", 2)
            if self.shares.shape != (self.codes.size, c) or self.shares.min() < 0:
                raise ValueError("the label probabilities do not fit the labels")

    @property
    def n_classes(self) -> int:
        """Number of classes that occur."""
        return int(self.classes.shape[0])

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a sample is labelled."""
        return self.codes >= 0

    @property
    def n_labelled(self) -> int:
        """Number of labelled samples."""
        return int(np.count_nonzero(self.mask))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of labelled samples of each class."""
        return np.bincount(self.codes[self.mask], minlength=self.n_classes)

    @property
    def doubtful(self) -> bool:
        """True if some labels are class probabilities."""
        return self.shares is not None

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Class probabilities of shape (n_samples, n_classes); zeros for unlabelled samples."""
        if self.shares is not None:
            return self.shares
        return np.equal.outer(self.codes, np.arange(self.n_classes)).astype(np.float64)


def with_unknown(a: Any) -> Any:
    """Return an ndarray with NaN or NaT, or a list with None, where a mask hides an entry."""
    if not np.ma.is_masked(a):
        return a
    if a.dtype.kind in "fmM":
        return a.filled(np.nan if a.dtype.kind == "f" else np.array("NaT", a.dtype))
    return a.tolist()


def as_ndarray(a: Any) -> Any:
    """Return arguments of `fit` (labels, weights, initial factors) as ndarrays."""
    if a is None or type(a) is np.ndarray:
        return a
    a = with_unknown(a.compute() if is_masked(a) and hasattr(a, "compute") else a)
    return a if back_end(a) is None else to_numpy(a)


def encode_labels(y: ArrayLike | None, n_samples: int) -> Labels | None:
    """Encode labels of any type as integers, with -1 for unlabelled samples.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, 1), or None
        Numbers, where -1 and NaN mark unlabelled samples. Or strings, booleans, dates, pandas
        columns or sortable objects, where None, NaN, NaT and ``pandas.NA`` mark unlabelled
        samples. The strings "" and "-1" are refused because their meaning is unclear. Samples may
        come in any order.
    n_samples : int
        The number of rows of X.

    Returns
    -------
    Labels or None
        None if y is None; without classes if every sample is unlabelled.

    Raises
    ------
    ValueError
        If y has another length, has several columns, or holds infinity, "" or "-1".
    TypeError
        If the labels cannot be sorted together, like 1 and "1".

    Examples
    --------
    >>> from partwise.knowledge.labels import encode_labels
    >>> labels = encode_labels(["dog", None, "cat", "dog"], 4)
    >>> labels.classes.tolist(), labels.codes.tolist()
    (['cat', 'dog'], [1, -1, 0, 1])
    """
    if y is None:
        return None
    values = _as_column(y, n_samples)
    if values.dtype.kind == "O":
        return _encode_objects(values, keep_object=hasattr(y, "dtype"))
    known = np.ones(n_samples, dtype=bool)
    if values.dtype.kind in "iuf":
        known = values != -1
    if values.dtype.kind == "f":
        known &= ~np.isnan(values)
        _refuse_infinity(values[known])
    elif values.dtype.kind in "mM":
        known = ~np.isnat(values)
    elif values.dtype.kind not in "biuUS":
        raise TypeError(
            f"y must hold integers, floats, booleans, strings or sortable objects, got dtype "
            f"{values.dtype}; give each class a name or a number."
        )
    codes = np.full(n_samples, -1, dtype=np.int64)
    classes, codes[known] = np.unique(values[known], return_inverse=True)
    _refuse_blank_classes(classes)
    return Labels(classes, codes)


def _as_column(y: Any, n_samples: int) -> NDArray[Any]:
    """Return y as a 1-D array of objects if numpy would turn None or NaN into text."""
    y = with_unknown(y)
    if hasattr(getattr(y, "dtype", None), "na_value"):
        y = y.astype(object)  # pandas would turn integers with missing values into floats
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise ValueError(
            f"y must have one label per sample, got a nested sequence; pass a column of length "
            f"{n_samples}."
        ) from error
    text_from_list = values.dtype.kind in "US" and not hasattr(y, "dtype")
    if text_from_list or values.dtype.kind == "T":
        values = np.asarray(y, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(
            f"y must have one label per sample, got shape {values.shape}; pass a column of length "
            f"{n_samples}, for example y.argmax(axis=1) for indicator columns."
        )
    if values.shape[0] != n_samples:
        raise ValueError(
            f"y must have one entry for each of the {n_samples} samples of X, got "
            f"{values.shape[0]}; mark unlabelled samples with -1, None or NaN."
        )
    return values


def _refuse_blank_classes(classes: Any) -> None:
    """Refuse the strings "" and "-1", which nearly always mark unlabelled samples."""
    for name in classes:
        if isinstance(name, str) and name.strip() in ("", "-1"):
            raise ValueError(
                f"y contains the string {str(name)!r}, which may mark an unlabelled sample; use "
                "None for unlabelled samples, or rename the class."
            )


def _encode_objects(values: NDArray[Any], *, keep_object: bool) -> Labels:
    """Encode Python objects; strings keep dtype object if the user passed it."""
    items: list[Any] = values.tolist()
    known = np.array([not is_missing(item) for item in values], dtype=bool)
    kinds = {type(item) for item, is_known in zip(items, known, strict=True) if is_known}
    numbers = all(issubclass(kind, (Real, np.bool_)) for kind in kinds)
    if numbers:
        known &= [not is_known or item != -1 for item, is_known in zip(items, known, strict=True)]
    found = [item for item, is_known in zip(items, known, strict=True) if is_known]
    try:
        ordered = sorted(set(found))
    except TypeError as error:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(
            f"y must hold labels that can be sorted together, got types {names}; convert them to "
            "one type, for example with str."
        ) from error
    _refuse_blank_classes(ordered)
    position = {item: code for code, item in enumerate(ordered)}
    codes = np.full(len(items), -1, dtype=np.int64)
    codes[known] = [position[item] for item in found]
    return Labels(_class_array(ordered, numbers=numbers, keep_object=keep_object), codes)


def _class_array(ordered: list[Any], *, numbers: bool, keep_object: bool) -> NDArray[Any]:
    """Return the sorted classes as an array of numbers, strings or objects."""
    if ordered and numbers:
        classes = np.array(ordered)
        if classes.dtype.kind == "f":
            _refuse_infinity(classes)
        return classes
    if ordered and not keep_object and all(isinstance(item, str) for item in ordered):
        return np.array(ordered)
    objects = np.empty(len(ordered), dtype=object)
    objects[:] = ordered
    return objects


def is_missing(item: Any) -> bool:
    """Return True for None, NaN, NaT and pandas.NA."""
    if item is None or type(item).__name__ == "NAType":
        return True
    unequal = item != item  # NaN and NaT only
    return isinstance(unequal, (bool, np.bool_)) and bool(unequal)


def says_unknown(label: Any) -> bool:
    """Return whether a label is a text such as "unknown" or "n/a"."""
    return isinstance(label, str) and " ".join(label.split()).casefold() in NO_LABEL


def _refuse_infinity(values: NDArray[Any]) -> None:
    if np.isinf(values).any():
        raise ValueError(
            "y contains infinity, which is not a label; mark unlabelled samples with NaN."
        )


#: Allowed distance of a sum of probabilities from one. Larger values accept coarser rounding;
#: tables often have three digits.
SLACK = 1e-3


def read_labels(y: Any, n_samples: int) -> Labels | None:
    """Encode class labels or class probabilities.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_classes), or None
        With two or more columns, each row holds class probabilities, which sum to one, or only NaN
        for an unlabelled sample. Classes are 0, 1, ... or the columns of a DataFrame. A class with
        probability 0 for all samples is dropped. Otherwise y is as in `encode_labels`.
    n_samples : int

    Raises
    ------
    ValueError
        If y has the wrong length, or a row that contains negative or infinite values, does not sum
        to one, or is partly NaN.

    Examples
    --------
    >>> from partwise.knowledge.labels import read_labels
    >>> labels = read_labels([[0.9, 0.1], [float("nan")] * 2, [0.0, 1.0]], 3)
    >>> labels.codes.tolist(), labels.shares.tolist()
    ([0, -1, 1], [[0.9, 0.1], [0.0, 0.0], [0.0, 1.0]])
    """
    y = with_unknown(y)
    columns = getattr(y, "columns", None)
    shape = _shape(y)
    if len(shape) != 2 or shape[1] < 2:
        return encode_labels(y, n_samples)
    names = np.arange(shape[1]) if columns is None else np.asarray(columns)
    try:
        P = np.array(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y of shape {shape} must hold probabilities of {shape[1]} classes, got dtype "
            f"{np.asarray(y).dtype}; pass one label per sample, or numbers that sum to one."
        ) from None
    if len(P) != n_samples:
        raise ValueError(
            f"y must have a row for each of the {n_samples} samples of X, got {len(P)}; mark "
            "unlabelled samples with a row of NaN."
        )
    known = _check_rows(P)
    P[known] /= P[known].sum(axis=1, keepdims=True)
    P[~known] = 0.0
    occur = P.any(axis=0)
    P, names = np.ascontiguousarray(P[:, occur]), names[occur]
    codes = np.where(known, P.argmax(axis=1) if occur.any() else 0, -1).astype(np.int64)
    certain = bool((P.max(axis=1, initial=0.0)[known] == 1).all())
    return Labels(names, codes, None if certain else P)


def _shape(y: Any) -> tuple[int, ...]:
    """Return the shape of y; () for nested sequences of different lengths."""
    try:
        return np.asarray(y).shape
    except ValueError:
        return ()


def _check_rows(P: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the labelled rows; refuse rows that are not probabilities."""
    gaps = np.isnan(P)
    known: NDArray[np.bool_] = np.logical_not(gaps.all(axis=1))
    bad = np.flatnonzero(known & gaps.any(axis=1))
    if bad.size:
        raise ValueError(
            f"row {bad[0]} of y is partly NaN; pass all probabilities of a sample, or a row of NaN "
            "for an unlabelled sample."
        )
    low = P.min(axis=1, initial=0.0)
    bad = np.flatnonzero(known & ~((low >= 0) & np.isfinite(P).all(axis=1)))
    if bad.size:
        raise ValueError(
            f"y must hold probabilities, got {P[bad[0]].tolist()} in row {bad[0]}; none may be "
            "negative or infinite."
        )
    total = P.sum(axis=1)
    bad = np.flatnonzero(known & ~(np.abs(total - 1) <= SLACK * (1 + 1e-9)))
    if bad.size:
        raise ValueError(
            f"probabilities in y must sum to one, got {total[bad[0]]:g} in row {bad[0]}; divide "
            "each row by its sum."
        )
    return known


def propagate(W: sp.csr_array, labels: Labels) -> Labels:
    """Spread labels over a graph by the mean of the neighbours.

    Solve F_i = Σ_j w_ij F_j / Σ_j w_ij for all unlabelled samples, with the labelled ones fixed
    (X. Zhu, Z. Ghahramani, J. Lafferty 2003). Samples that no label reaches stay unlabelled.

    Parameters
    ----------
    W : csr_array of shape (n_samples, n_samples)
        Symmetric non-negative graph.
    labels : Labels

    Returns
    -------
    Labels
        With ``shares``; ``codes`` are -1 only for samples that no label reaches.
    """
    P = labels.probabilities.copy()
    _, part = connected_components(W, directed=False)
    reached = np.isin(part, part[labels.mask])
    free = np.flatnonzero(reached & ~labels.mask)
    if free.size:
        W = sp.csr_array(W, dtype=np.float64)
        among, given = W[free][:, free], W[free] @ P
        degrees = np.asarray(W[free].sum(axis=1)).ravel()
        system = sp.csr_array(sp.diags_array(degrees) - among)
        by_degree = sp.diags_array(1 / degrees)
        for c in range(P.shape[1]):
            P[free, c] = cg(system, given[:, c], rtol=1e-10, maxiter=1000, M=by_degree)[0]
        # For samples far from all labels, all values may be below the tolerance of the solver.
        P[free] = np.maximum(P[free], 1e-12)
        P[free] /= P[free].sum(axis=1, keepdims=True)
    codes = np.where(reached, P.argmax(axis=1), -1).astype(np.int64)
    return Labels(labels.classes, codes, P)
