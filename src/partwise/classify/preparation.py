"""Checks of the input of `PartsClassifier`, and the scale on which samples are compared.

The scale is chosen from the values in X without labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from sklearn.preprocessing import normalize
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import validate_data

from partwise.backends import back_end
from partwise.backends.arrays import AnyArray
from partwise.backends.masks import refuse_masks
from partwise.fitting.checking import in_plain_words
from partwise.fitting.knowledge_checks import warn_of_unknown_as_class
from partwise.fitting.special_arrays import check_special
from partwise.knowledge.labels import Labels, as_ndarray, encode_labels
from partwise.persistence.values import may_be_saved

#: Largest size in bytes of a file that is read into memory.
IN_MEMORY = 200_000_000
#: Name of the preparation for data on disk, on a device or on a cluster, which are not changed.
REMOTE = "as it is"
#: With fewer columns than this, X counts as a table, where the length of a row is informative.
TABLE = 50
#: With at least this many columns, or more columns than samples, all columns count as one kind of
#: measurement (genes, for example). A column that hardly varies is then noise, and dividing it by
#: its spread would amplify the noise.
WIDE = 1000
#: Columns share one unit if the median of their largest values is at least this share of the
#: overall largest value.
UNITS = 0.2
#: A dense array of whole numbers counts as word counts if more than this share of it is zero.
SPARSE = 0.9
#: log(1 + x) is applied if the median skewness is larger than this and the logarithm halves it.
SKEW = 1.5
#: Number of training values per column from which the ranks of new values are computed.
KNOTS = 512
#: With more than MANY samples, or LARGE values in a dense array, only one preparation is used, to
#: limit time and memory.
MANY, LARGE = 10_000, 50_000_000
#: Samples count as series if neighbouring columns correlate at least NEIGHBORS on average, and if
#: there are at least FEWEST columns.
NEIGHBORS, FEWEST = 0.7, 20
#: Smallest number of columns for which frequencies are computed.
WAVES = 50
#: Samples count as images under four conditions: at least SIDE rows and columns of pixels; one side
#: at most OBLONG times the other; a mean correlation of at least ADJACENT between adjacent pixels;
#: and a correlation that is larger by MORE than between pixels half a row apart.
SIDE, OBLONG, ADJACENT, MORE = 8, 2, 0.4, 0.1
#: Number of edge directions, and of windows along the longer side of an image.
DIRECTIONS, WINDOWS = 8, 8
#: Added to amplitudes before the logarithm, in units of their root mean square.
FLOOR = 1e-2
#: Number of samples that are tested for an order of the columns, and of images that `edges`
#: processes together.
SAMPLES, BLOCK = 500, 250


@may_be_saved
@dataclass
class Preparation:
    """Transformation of samples to the scale on which they are compared.

    ``kind`` is one of the following:

    - "tf-idf" and "log counts" (the same with equal weights of all words) for counts;
    - "scaled" for counts, with each column divided by its standard deviation;
    - "unit rows" for images, spectra, gene expression and embeddings;
    - "columns" for tables, with each column centred and divided by its standard deviation;
    - "centred", with each column centred and all columns divided by one number;
    - "ranks", with values replaced by normal quantiles of their ranks among ``knots``, which are
      sorted values of the training samples;
    - "edges" for images that are ``width`` pixels wide;
    - "differences" and "frequencies" for series and spectra.

    If ``log`` is true, log(1 + x) is applied first.
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
            return unit_rows(edges(X, self.width))
        if self.kind == "differences":
            return unit_rows(np.diff(X, axis=1))
        if self.kind == "frequencies":
            return frequencies(X) - self.center
        if self.log:
            X = np.log1p(np.maximum(X, 0))
        if self.table:
            return (X - self.center) / self.scale
        return normalize(X) if sp.issparse(X) else unit_rows(X)

    def unit(self, Z: AnyArray) -> AnyArray:
        """Scale rows to length one unless the length of a row is informative."""
        return Z if self.table else unit_rows(Z)

    def parts_input(self, plain: Any) -> Any:
        """Return the non-negative input of the factorization.

        A column with signs becomes two columns: its positive and its negative values.
        """
        if not self.signed:
            return plain
        if sp.issparse(plain):
            return sp.csr_array(sp.hstack([plain.maximum(0), (-plain).maximum(0)]))
        return np.hstack([np.maximum(plain, 0), np.maximum(-plain, 0)])

    def components(self, H: AnyArray) -> AnyArray:
        """Return parts over the columns of X. For signed X, subtract the negative side."""
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

    It saves nothing for few columns, or if most values are not zero. So a table is prepared in the
    same way in a dense and in a sparse array.
    """
    if sp.issparse(X) and (X.shape[1] < TABLE or 2 * X.nnz > X.shape[0] * X.shape[1]):
        return X.toarray()
    return X


def choose_preparation(X: Any) -> Preparation:
    """Choose the preparation for a checked X from its values."""
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

    If the first preparation scales rows, a further one standardises columns. If the first one
    standardises columns, a further one only centres them. Ranks limit the effect of outliers.
    Counts are also prepared with equal weights of all words, and with rows that keep their length.
    Images, series and spectra get the features of `ordered`. Sparse values that are not counts, and
    arrays with very many samples or values, have no further preparations.
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
    for kind, width in descriptions(X).items():
        if kind == "edges":
            del found[made.kind]  # edges remove the lighting better
        found[kind] = Preparation(kind, kind != "edges", width=width)
        if kind == "frequencies":
            found[kind].center = frequencies(X).mean(axis=0)
    return found


def normal_ranks(X: AnyArray, knots: AnyArray) -> AnyArray:
    """Return the normal quantile of the share of knots below each value; ties count half."""
    below = np.empty(X.shape)
    for j in range(X.shape[1]):
        ordered = knots[:, j]
        below[:, j] = np.searchsorted(ordered, X[:, j]) + np.searchsorted(ordered, X[:, j], "right")
    k = len(knots)
    return np.asarray(ndtri(np.clip(below / (2 * k), 0.5 / k, 1 - 0.5 / k)))


def _inverse(X: Any) -> AnyArray:
    """Return scales that divide columns by their spread, for rows of mean square length one."""
    middle = np.asarray(X.mean(axis=0), dtype=float).ravel()
    square = np.asarray(sp.csr_array(X).power(2).mean(axis=0), dtype=float).ravel()
    variance = square - middle**2
    varies = variance > X.shape[0] * np.finfo(float).eps * square  # more than rounding errors
    return np.where(varies, 1 / np.sqrt(X.shape[1] * np.where(varies, variance, 1)), 0)


def _columns(X: AnyArray, log: bool) -> Preparation:
    Z = np.log1p(X) if log else X
    # Use float64, since sums of many samples lose digits in float32 and large squares overflow.
    center, spread = Z.mean(axis=0, dtype=float), Z.std(axis=0, dtype=float)
    flat = spread <= 1e-9 * np.maximum(np.abs(center), 1e-300)
    scale = np.where(flat, 1, spread).astype(X.dtype)
    return Preparation("columns", True, log, center.astype(X.dtype), scale)


def _one_unit(X: AnyArray) -> bool:
    """Return whether the columns that vary have values of similar size, as pixels do."""
    high, low = X.max(axis=0), X.min(axis=0)
    reach = np.maximum(np.abs(high), np.abs(low))[high > low]
    return reach.size > 0 and bool(np.median(reach) >= UNITS * reach.max())


def _whole(values: AnyArray) -> bool:
    """Return whether all values are whole numbers.

    Every float above 1/eps is whole, so the result is False if all positive values are that large.
    A sample of the values is tested first to save time.
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
    """Return the median of |skewness| over the columns."""
    Z = Z[:, np.ptp(Z, axis=0) > 0]
    if not Z.size:
        return 0.0
    # Divide by the deviation first, since the third power of a large number overflows.
    return float(np.median(np.abs((((Z - Z.mean(axis=0)) / Z.std(axis=0)) ** 3).mean(axis=0))))


def descriptions(X: AnyArray) -> dict[str, int]:
    """Return the kinds of features that suit X, each with the image width (0 for a series)."""
    Z = _standard(X)
    width = picture_width(Z)
    if width:
        return {"edges": width}
    if X.shape[1] < FEWEST or _correlation(Z, 1) < NEIGHBORS:
        return {}
    return {"differences": 0} | ({"frequencies": 0} if X.shape[1] >= WAVES else {})


def picture_width(Z: AnyArray) -> int:
    """Return the width of the images in the rows of Z; 0 if the rows are not images.

    In an image, a pixel correlates more with the adjacent pixels on the right and below than with a
    pixel half a row away.
    """
    p, best = Z.shape[1], (ADJACENT, 0)
    for width in range(SIDE, p // SIDE + 1):
        sides = width, p // width
        if p % width or max(sides) > OBLONG * min(sides):
            continue
        below, adjacent, away = (_correlation(Z, lag) for lag in (width, 1, width // 2))
        if min(below, adjacent) > max(away + MORE, ADJACENT):
            best = max(best, (below, width))
    return best[1]


def _standard(X: AnyArray) -> AnyArray:
    """Standardise columns to mean zero and unit length; a constant column becomes zero."""
    Z = np.asarray(X[:: max(len(X) // SAMPLES, 1)], dtype=float)
    Z = Z - Z.mean(axis=0)
    # Divide by the largest value first, so that squares neither overflow nor vanish.
    Z /= np.maximum(np.abs(Z).max(axis=0), np.finfo(float).tiny)
    length = np.sqrt(np.sum(Z * Z, axis=0))
    return np.asarray(Z / np.where(length > 0, length, 1))


def _correlation(Z: AnyArray, lag: int) -> float:
    """Return the mean correlation of columns ``lag`` apart, without constant columns."""
    varies = Z.any(axis=0)
    both = varies[lag:] & varies[:-lag]
    return float(np.sum(Z[:, lag:] * Z[:, :-lag])) / both.sum() if both.any() else 0.0


def frequencies(X: AnyArray) -> AnyArray:
    """Return the log strength of each frequency relative to the sample's mean strength.

    The result does not depend on when a series begins. All frequencies of a constant sample get the
    same value.
    """
    Z = np.asarray(X, dtype=float)
    size = np.abs(Z).max(axis=1, keepdims=True)
    Z = Z / np.where(size > 0, size, 1)
    Z = Z - Z.mean(axis=1, keepdims=True)
    F = np.abs(np.fft.rfft(Z, axis=1))[:, 1:]
    power = np.sqrt(np.mean(F * F, axis=1, keepdims=True))
    rounding = X.shape[1] * np.finfo(X.dtype).eps
    return np.log(np.where(power > rounding, F / np.maximum(power, rounding), 0) + FLOOR)


def edges(X: AnyArray, width: int) -> AnyArray:
    """Return histograms of the directions of edges in windows, scaled in blocks.

    The method follows N. Dalal and B. Triggs, "Histograms of oriented gradients". The strength of
    each edge is split between the two nearest of `DIRECTIONS` directions and summed over square
    windows. Division by the length of every block of 2 x 2 windows removes differences in lighting.
    """
    height = X.shape[1] // width
    side = max(round(max(height, width) / WINDOWS), 1)
    rows, columns = height // side, width // side
    made = np.zeros((len(X), rows, columns, DIRECTIONS))
    i, j = (np.arange(size * side) // side for size in (rows, columns))
    window = (i[:, None] * columns + j) * DIRECTIONS
    for start in range(0, len(X), BLOCK):
        mine = made[start : start + BLOCK]
        Z = X[start : start + BLOCK].reshape(len(mine), height, width)
        Z = Z / np.maximum(np.abs(Z).max(axis=(1, 2), keepdims=True), np.finfo(X.dtype).tiny)
        down, across = np.zeros_like(Z), np.zeros_like(Z)
        down[:, 1:-1] = Z[:, 2:] - Z[:, :-2]
        across[:, :, 1:-1] = Z[:, :, 2:] - Z[:, :, :-2]
        down, across = (G[:, : rows * side, : columns * side] for G in (down, across))
        strength = np.hypot(across, down)
        turn = np.arctan2(down, across) * (DIRECTIONS / (2 * np.pi)) + DIRECTIONS
        first = turn.astype(np.int64)
        share = turn - first
        at = window + (np.arange(len(mine)) * mine[0].size)[:, None, None]
        for part, k in ((1 - share, first), (share, first + 1)):
            sums = np.bincount((at + k % DIRECTIONS).ravel(), (strength * part).ravel(), mine.size)
            mine += sums.reshape(mine.shape)
    squares = np.sum(made**2, axis=3)
    block = squares[:, :-1] + squares[:, 1:]
    block = block[:, :, :-1] + block[:, :, 1:]
    block += 1e-3 * squares.mean(axis=(1, 2), keepdims=True)  # do not amplify faint edges
    length = np.sqrt(np.where(block > 0, block, 1))[..., None]
    corners = [
        made[:, i : rows - 1 + i, j : columns - 1 + j] / length for i in (0, 1) for j in (0, 1)
    ]
    return np.stack(corners, axis=1).reshape(len(X), -1)


def check_samples(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a float array or a CSR array; data on disk or on a device stay there."""
    on_disk = isinstance(X, np.memmap) and X.nbytes > IN_MEMORY
    if on_disk or (type(X) is not np.ndarray and back_end(X) is not None):
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
