"""The class `Samples`, which every reader returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp


def repeated(ids: Sequence[str]) -> str:
    """Return an error text for the first id that several samples have, or ""."""
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if not twice:
        return ""
    first, second, *_ = (row for row, name in enumerate(ids, 1) if name == twice[0])
    more = f", and {len(twice) - 1} other ids" if len(twice) > 1 else ""
    return f"the id {twice[0]!r} occurs more than once (rows {first} and {second}{more})"


@dataclass(frozen=True, repr=False)
class Samples:
    """Samples prepared for a factorization, with their ids, labels and descriptions.

    Parameters
    ----------
    X : ndarray, numpy.memmap or scipy.sparse.csr_array of shape (n_samples, n_features)
    ids : list of str
        One unique name per sample: a path in the folder, the id of a row, or a number as text.
    kind : {"images", "texts", "table", "counts"}
    feature_names : list of str or None
        Words, columns or genes; None for pixels and matrices without names.
    image_shape : tuple of int or None
        (height, width) or (height, width, 3); a row of X or of ``components_`` is an image
        stored row by row, so that ``row.reshape(image_shape)`` shows it upright.
    thumbnails : callable or None
        ``thumbnails(i)`` returns a small PNG or WebP file of sample i as bytes, and
        ``thumbnails(i, side)`` one with at most ``side`` pixels per side. The default draws X if
        there is an ``image_shape``.
    texts : list of str or None
        The beginning of each text, about 300 characters.
    whole_texts : sequence of str or None
        The texts themselves.
    also : ndarray of shape (n_samples, m) or None
        Vectors in addition to X, for ``PartsClassifier.fit(X, y, also=[...])``.
    y : ndarray of object or None
        The class labels of the source as text, with None for samples without a label; None if the
        source has no labels. Use `partwise.io.keep_share` to fit a model to some of them.
    source : str
        The folder or file that was read.
    preparation : str
        A sentence that describes how the data was prepared.
    recipe : mapping
        The same in machine-readable form; `read_samples` uses it to prepare new data equally.
    options : mapping
        The options of `read_samples` that differ from the defaults.
    notes : tuple of str
        Notes for the user, for example on columns or files that were left out.
    columns : tuple of (name, type, conversion)
        For a table, every column, including those that were left out.
    skipped : tuple of (id, reason)
        Samples that could not be used: files that cannot be read, empty texts, and rows with
        missing values under ``missing="drop"``.
    table : pandas.DataFrame or None
        For a table, the unchanged row of each sample.
    rows : ndarray of int or None
        For a table with skipped rows, the row number of each sample, counted from 0.
    unjoinable : str
        The reason why labels and links cannot be joined to these samples by id; "" if they can.

    Examples
    --------
    >>> from partwise.io import read_samples
    >>> samples = read_samples("digits")
    >>> samples
    Samples('digits': 1,797 images, 64 features, 1,797 labels)
    >>> samples.n_samples, samples.is_sparse
    (1797, False)
    """

    X: Any
    ids: list[str]
    kind: str
    feature_names: list[str] | None = None
    image_shape: tuple[int, ...] | None = None
    thumbnails: Callable[..., bytes] | None = None
    texts: list[str] | None = None
    whole_texts: Sequence[str] | None = None
    also: np.ndarray | None = None
    y: np.ndarray | None = None
    source: str = ""
    preparation: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    columns: tuple[tuple[str, str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    table: Any = None
    rows: np.ndarray | None = None
    unjoinable: str = ""

    def __repr__(self) -> str:
        n, p = self.X.shape
        known = 0 if self.y is None else sum(label is not None for label in self.y)
        labels = f", {known:,} labels" if known else ""
        sparse = ", sparse" if self.is_sparse else ""
        return f"Samples({self.source!r}: {n:,} {self.kind}, {p:,} features{sparse}{labels})"

    def __post_init__(self) -> None:
        n, p = self.X.shape
        for name in ("ids", "texts", "whole_texts", "y", "table", "feature_names"):
            value = getattr(self, name)
            if value is not None and len(value) != (p if name == "feature_names" else n):
                raise ValueError(f"{name} has {len(value)} entries for X of shape {self.X.shape}.")
        if len(set(self.ids)) != n:
            raise ValueError(f"{self.source}: {repeated(self.ids)}; ids must differ.")
        if self.thumbnails is None and self.image_shape is not None:
            from partwise.io.images import array_thumbnails  # which makes Samples itself

            own = array_thumbnails(self.X, self.image_shape)
            object.__setattr__(self, "thumbnails", own)

    @property
    def n_samples(self) -> int:
        """Number of rows of X."""
        return int(self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """True if X is a sparse matrix."""
        return bool(sp.issparse(self.X))
