"""The kind of values in X, and the scale on which samples are compared, without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from sklearn.preprocessing import normalize

from partwise.backends.arrays import AnyArray
from partwise.classify import ordered

#: The preparation of an X on disk, on a device or on a cluster.
REMOTE = "as it is"
#: Fewer features than this are a table: the length of a row says something there.
TABLE = 50
#: So many columns, or more than samples, are one kind of measurement (genes): a column that hardly
#: varies is noise there, and dividing it by its spread would make it count.
WIDE = 1000
#: Columns are in one unit where the middle one reaches this share of the largest value of all.
UNITS = 0.2
#: A dense array of whole numbers with more zeros than this holds counts of words or the like.
SPARSE = 0.9
#: log(1 + x) where it at least halves a skewness beyond this.
SKEW = 1.5
#: Values of a column that ranks go by.
KNOTS = 512
#: Beyond so many samples, or values in a dense array, one preparation must do.
MANY, LARGE = 10_000, 50_000_000


@dataclass
class Preparation:
    """Transformation of samples to the scale on which they are compared.

    ``kind`` is "tf-idf" (counts), "log counts" (the same, all words alike), "scaled" (counts, each
    column divided by its spread), "unit rows" (images, spectra, expression, embeddings), "columns"
    (tables: every column centred and divided by its
    spread), "centred" (all divided by one) or "ranks" (every column as normal quantiles of its
    ranks among ``knots``, values of the training samples in order); log(1 + x) comes first where
    ``log``. Where columns follow on each other, "edges" (of pictures with ``width`` columns),
    "differences" or "frequencies" (of series and spectra).
    """

    kind: str
    signed: bool
    log: bool = False
    center: AnyArray | None = None
    scale: AnyArray | None = None
    knots: AnyArray | None = None
    width: int = 0

    @property
    def table(self) -> bool:
        """True if the length of a row is informative."""
        return self.kind in ("columns", "centred", "ranks", "scaled")

    def plain(self, X: Any) -> Any:
        """Return samples as the linear classifiers and the graph use them."""
        if self.kind == REMOTE:
            return X
        if self.kind == "scaled":
            return sp.csr_array(sp.csr_array(X).multiply(self.scale[None, :]))  # type: ignore[index]
        if self.kind in ("tf-idf", "log counts"):
            X = sp.csr_array(X, copy=True)
            X.data = 1.0 + np.log(X.data, out=np.zeros_like(X.data), where=X.data > 0)
            if self.kind == "log counts":
                return normalize(X, copy=False)
            return normalize(X.multiply(self.scale[None, :]).tocsr(), copy=False)  # type: ignore[index]
        if self.kind == "ranks":
            return normal_ranks(X, self.knots) - self.center
        if self.kind == "edges":
            return unit_rows(ordered.edges(X, self.width))
        if self.kind == "differences":
            return unit_rows(ordered.differences(X))
        if self.kind == "frequencies":
            return ordered.frequencies(X) - self.center
        if self.log:
            X = np.log1p(np.maximum(X, 0))
        if self.table:
            return (X - self.center) / self.scale
        return normalize(X) if sp.issparse(X) else unit_rows(X)

    def unit(self, Z: AnyArray) -> AnyArray:
        """Scale rows to length one unless the length of a row is informative."""
        return Z if self.table else unit_rows(Z)

    def parts_input(self, plain: Any) -> Any:
        """Return the input of the factorization: >= 0, with two sides per signed column."""
        if not self.signed:
            return plain
        if sp.issparse(plain):
            return sp.csr_array(sp.hstack([plain.maximum(0), (-plain).maximum(0)]))
        return np.hstack([np.maximum(plain, 0), np.maximum(-plain, 0)])

    def components(self, H: AnyArray) -> AnyArray:
        """Return parts over the columns of X; high minus low sides if X is signed."""
        p = H.shape[1] // 2
        return H[:, :p] - H[:, p:] if self.signed else H


def is_local(X: Any) -> bool:
    """Return whether X is an array in memory."""
    return sp.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))


def unit_rows(Z: AnyArray) -> AnyArray:
    """Scale rows to length one; a zero row stays zero."""
    length = np.sqrt(np.sum(Z * Z, axis=1, keepdims=True))
    return np.asarray(Z / np.where(length > 0, length, 1))


def unpacked(X: Any) -> Any:
    """Return a dense array if sparse storage saves nothing.

    It saves nothing for few columns, or if most values are not zero. So a table is prepared as a
    table, whatever container it comes in.
    """
    if sp.issparse(X) and (X.shape[1] < TABLE or 2 * X.nnz > X.shape[0] * X.shape[1]):
        return X.toarray()
    return X


def choose_preparation(X: Any) -> Preparation:
    """Return the preparation for a checked X, from its numbers alone."""
    values = X.data if sp.issparse(X) else X
    signed = bool(values.size) and bool(values.min() < 0)
    whole = not signed and _whole(values)
    entries = max(X.shape[0] * X.shape[1], 1)
    if (
        whole
        and X.shape[1] >= TABLE
        and (sp.issparse(X) or 1 - np.count_nonzero(values) / entries > SPARSE)
    ):
        found = np.asarray((X != 0).sum(axis=0)).ravel()
        idf = np.log(X.shape[0] / np.maximum(found, 1))
        if idf[found > 0].max(initial=0.0) > 0:
            return Preparation("tf-idf", False, scale=idf.astype(X.dtype))
    if sp.issparse(X):
        return Preparation("unit rows", signed)
    if X.shape[1] >= TABLE and _one_unit(X):
        return Preparation("unit rows", signed)
    log = not signed and _skewed(X)
    if X.shape[1] >= max(TABLE, min(X.shape[0], WIDE)):
        return Preparation("unit rows", signed, log)
    return _columns(X, log)


def other_preparations(X: Any, first: Preparation) -> dict[str, Preparation]:
    """Return further preparations of X; held-out labels determine their weights.

    If rows were scaled, columns are standardised instead, and the reverse. Ranks limit the effect
    of outliers. Counts are also prepared with equal weights of all words, and with rows that keep
    their length. Pictures, series and spectra get features of `ordered`. There are no further
    preparations of sparse values that are no counts, and of very many samples or values.
    """
    if X.shape[0] > MANY or X.shape[0] * X.shape[1] > LARGE * (100 if sp.issparse(X) else 1):
        return {}
    if first.kind == "tf-idf":
        alike = Preparation("log counts", False)
        return {"log counts": alike, "scaled": Preparation("scaled", False, scale=_inverse(X))}
    if sp.issparse(X):
        return {}
    made = _columns(X, first.log)
    if first.kind == "columns":
        spread = np.sqrt(np.mean(np.square(made.scale, dtype=float)))  # type: ignore[arg-type]
        made = Preparation("centred", True, first.log, made.center, np.full(X.shape[1], spread))
    knots = np.sort(X, axis=0)
    if len(knots) > KNOTS:
        knots = knots[np.linspace(0, len(knots) - 1, KNOTS).round().astype(int)]
    center = normal_ranks(knots, knots).mean(axis=0)
    found = {made.kind: made, "ranks": Preparation("ranks", True, center=center, knots=knots)}
    for kind, width in ordered.descriptions(X).items():
        if kind == "edges":
            del found[made.kind]  # they take out the light, and more
        found[kind] = Preparation(kind, kind != "edges", width=width)
        if kind == "frequencies":
            found[kind].center = ordered.frequencies(X).mean(axis=0)
    return found


def normal_ranks(X: AnyArray, knots: AnyArray) -> AnyArray:
    """Return normal quantiles of the shares of knots below each value; ties count half."""
    below = np.empty(X.shape)
    for j in range(X.shape[1]):
        ordered = knots[:, j]
        below[:, j] = np.searchsorted(ordered, X[:, j]) + np.searchsorted(ordered, X[:, j], "right")
    k = len(knots)
    return np.asarray(ndtri(np.clip(below / (2 * k), 0.5 / k, 1 - 0.5 / k)))


def _inverse(X: Any) -> AnyArray:
    """Return one over the spread of each column of counts; rows get mean square length one."""
    middle = np.asarray(X.mean(axis=0), dtype=float).ravel()
    square = np.asarray(sp.csr_array(X).power(2).mean(axis=0), dtype=float).ravel()
    variance = square - middle**2
    varies = variance > X.shape[0] * np.finfo(float).eps * square  # beyond what rounding leaves
    return np.where(varies, 1 / np.sqrt(X.shape[1] * np.where(varies, variance, 1)), 0)


def _columns(X: AnyArray, log: bool) -> Preparation:
    Z = np.log1p(X) if log else X
    # in float64: sums of many samples lose digits in float32, and large squares overflow
    center, spread = Z.mean(axis=0, dtype=float), Z.std(axis=0, dtype=float)
    flat = spread <= 1e-9 * np.maximum(np.abs(center), 1e-300)
    scale = np.where(flat, 1, spread).astype(X.dtype)
    return Preparation("columns", True, log, center.astype(X.dtype), scale)


def _one_unit(X: AnyArray) -> bool:
    """Return whether columns that vary at all have values of one size, as pixels do."""
    high, low = X.max(axis=0), X.min(axis=0)
    reach = np.maximum(np.abs(high), np.abs(low))[high > low]
    return reach.size > 0 and bool(np.median(reach) >= UNITS * reach.max())


def _whole(values: AnyArray) -> bool:
    """Return whether all values are whole numbers; the first ones are checked first.

    Every float beyond one over eps is whole, so such values do not count.
    """
    head = values.ravel()[:1000]
    if not ((head == np.rint(head)).all() and (values == np.rint(values)).all()):
        return False
    least = values.min(initial=np.inf, where=values > 0)
    return bool(least * np.finfo(values.dtype).eps < 1 or not np.isfinite(least))


def _skewed(X: AnyArray) -> bool:
    """Return whether log(1 + x) makes the columns much more symmetric."""
    columns = X[:, :: max(X.shape[1] // 500, 1)].astype(np.float64)
    raw, logged = (_skewness(Z) for Z in (columns, np.log1p(columns)))
    return raw > SKEW and logged < raw / 2


def _skewness(Z: AnyArray) -> float:
    """Return the median over the columns of |skewness|."""
    Z = Z[:, np.ptp(Z, axis=0) > 0]
    if not Z.size:
        return 0.0
    # divided by the deviation first, since the third power of a large number overflows
    return float(np.median(np.abs((((Z - Z.mean(axis=0)) / Z.std(axis=0)) ** 3).mean(axis=0))))
