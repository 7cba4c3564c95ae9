"""Held-out entries of X and held-out labels, to measure predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from partwise.backends import in_memory_or_dask
from partwise.backends.arrays import AnyArray, is_missing, to_numpy
from partwise.model.losses import beta_of

#: Maximum number of array entries that are computed at a time, to save memory.
PIECE = 1_000_000


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The entries of X that `hold_out` hid from a fit.

    If X is a Dask array, all attributes are Dask arrays, computed chunk by chunk.

    Parameters
    ----------
    X : ndarray, csr_array or Dask array of shape (n_samples, n_features)
        The samples, with ``missing_values`` instead of each hidden entry.
    rows, columns : arrays of shape (n_hidden,)
        Positions of the hidden entries.
    values : array of shape (n_hidden,)
        Values of the hidden entries.
    weights : array of shape (n_hidden,) or None
        Weights of the hidden entries in `error`. None: all count the same.
    missing_values : float
        The value to pass to the estimator as ``missing_values``.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.metrics import hold_out
    >>> held = hold_out(np.arange(20.0).reshape(4, 5), 0.2, random_state=0)
    >>> int(np.isnan(held.X).sum()) == len(held.values) == len(held.rows)
    True
    """

    X: Any
    rows: Any
    columns: Any
    values: Any
    weights: Any = None
    missing_values: float = np.nan

    def error(self, model: Any) -> float:
        """Return the mean loss of a model at the hidden entries.

        Parameters
        ----------
        model : estimator
            Fitted to ``X`` with the same ``missing_values``.

        Returns
        -------
        error : float
            Mean of ½ (x - y)², or of x log(x/y) - x + y under Kullback-Leibler, weighted by
            ``weights``. Under Kullback-Leibler y is at least a millionth of the mean of
            ``values``, since a single zero would make the mean infinite.
        """
        loss = getattr(model, "beta_loss", "frobenius")
        beta = 2.0 if isinstance(loss, str) and loss == "l21" else beta_of(loss)
        if beta not in (1.0, 2.0):
            raise ValueError(
                f"HeldOut.error needs beta_loss 'frobenius' or 'kullback-leibler', got {loss!r}."
            )
        k = model.embedding_.shape[1]
        H = np.asarray(to_numpy(model.inverse_transform(np.eye(k))), dtype=np.float64)
        count, total = self._totals
        if not count:
            raise ValueError("no entry is hidden; pass a larger share or a larger X.")
        least = max(1e-6 * total / count, 1e-300) if beta == 1 else None
        sums = np.sum(self._losses(model.embedding_, H, least), axis=0)
        return float(sums[0] / sums[1])

    @cached_property
    def _totals(self) -> tuple[int, float]:
        """Number of hidden entries, and the sum of their values."""
        count, total = (self.rows >= 0).sum(), self.values.sum(dtype=np.float64)
        return int(count), float(total)  # computes the sums of Dask arrays

    def _losses(self, V: Any, H: AnyArray, least: float | None) -> list[tuple[float, float]]:
        """Return the sum of losses and the sum of weights for each block of rows."""
        entries = (self.rows, self.columns, self.values, self.weights)
        if not hasattr(self.X, "to_delayed"):
            return [_loss(0, entries, to_numpy(V), H, least)]
        import dask

        starts = np.cumsum([0, *self.X.chunks[0]])[:-1]
        blocks = [None if a is None else a.to_delayed() for a in entries]
        codes = V.rechunk((self.X.chunks[0], -1)).to_delayed()[:, 0]
        call = dask.delayed(_loss, pure=False)
        calls = [
            call(int(start), [None if b is None else b[i] for b in blocks], codes[i], H, least)
            for i, start in enumerate(starts)
        ]
        return list(dask.compute(*calls))


def _loss(
    first: int, entries: Any, V: AnyArray, H: AnyArray, least: float | None
) -> tuple[float, float]:
    """Return the weighted sum of losses at some entries, and the sum of weights.

    ``entries`` contains rows, columns, values and weights. ``first`` is the row of X at which V
    begins.
    """
    rows, columns, values, weights = entries
    rows = rows - first
    V, U, total = np.asarray(V, dtype=np.float64), np.ascontiguousarray(H.T), 0.0
    step = max(1, PIECE // V.shape[1])
    for start in range(0, len(values), step):
        at = slice(start, start + step)
        y = np.einsum("ij,ij->i", V[rows[at]], U[columns[at]])
        x = values[at].astype(np.float64)
        if least is None:
            loss = 0.5 * (x - y) ** 2
        else:
            y = np.maximum(y, least)
            logs, off = np.log(x / y, out=np.zeros_like(x), where=x > 0), y - x
            # Near 0 the terms would cancel in rounding, so the loss is computed from the
            # difference.
            near = np.abs(off) < 0.5 * x
            logs[near] = -np.log1p(off[near] / x[near])
            loss = np.maximum(x * logs + off, 0)
        total += float(loss.sum() if weights is None else loss @ weights[at])
    return total, float(len(values) if weights is None else weights.sum())


def hold_out(
    X: Any,
    share: float = 0.1,
    *,
    missing_values: float | None = None,
    sample_weight: Any = None,
    entry_weight: Any = None,
    random_state: Any = None,
) -> HeldOut:
    """Hide random entries of X, to measure how well a model predicts them.

    In an array, a share of the observed entries is hidden. In a sparse matrix, a share of the
    stored entries and as many zeros are hidden, since zeros alone contain little information; with
    ``missing_values=0`` or a sparse ``entry_weight`` only observed entries are hidden. At least
    one observed entry of each sample and of each feature remains. In a Dask array, each chunk is
    processed separately, and keeps one observed entry of each feature.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask array} of shape (n_samples, n_features)
        Samples.
    share : float, default=0.1
        Share of the entries to hide, between 0 and 1.
    missing_values : float, default=None
        The value that marks missing entries in X, as in the estimator. Hidden entries are marked
        in the same way. None: X is complete, and NaN marks hidden entries.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples in the error.
    entry_weight : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Weights of the entries in the error. Entries of weight 0 are not observed.
    random_state : int, RandomState instance or None, default=None
        Random seed.

    Returns
    -------
    held : HeldOut

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF
    >>> from partwise.metrics import hold_out
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((50, 3)) @ rng.random((3, 30))
    >>> held = hold_out(X, 0.1, random_state=0)
    >>> errors = [
    ...     held.error(NMF(k, missing_values=np.nan, random_state=0).fit(held.X)) for k in (1, 2, 3)
    ... ]
    >>> int(np.argmin(errors)) + 1
    3
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, got {share!r}.")
    X = in_memory_or_dask(X, missing_values)
    n, p = X.shape
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    by_sample = _weights(sample_weight, (n,), "sample_weight")
    by_entry = _weights(entry_weight, (n, p), "entry_weight")
    mark = np.nan if missing_values is None else missing_values
    if hasattr(X, "to_delayed"):
        return _from_dask(X, share, mark, missing_values, by_sample, by_entry, seed)
    hidden = _hidden(X, 0, 0, share, missing_values, by_sample, by_entry, seed)
    return HeldOut(_marked(X, 0, *hidden[:2], mark), *hidden, mark)


def _weights(weight: Any, shape: tuple[int, ...], name: str) -> Any:
    """Return the checked weights as a numpy or CSR array, or None."""
    if weight is None:
        return None
    weight = sp.csr_array(weight) if sp.issparse(weight) else np.asarray(to_numpy(weight))
    values = weight.data if sp.issparse(weight) else weight
    if weight.shape != shape or not np.all(values >= 0) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"{name} must be finite, non-negative and of shape {shape}; got shape {weight.shape}."
        )
    return weight


def _from_dask(
    X: Any, share: float, mark: float, missing: float | None, by_sample: Any, by_entry: Any,
    seed: int,
) -> HeldOut:  # fmt: skip
    """Return a Dask array's held-out entries, chosen when each chunk is computed."""
    import dask
    import dask.array as da

    hide, put = (dask.delayed(f, pure=False) for f in (_hidden, _marked))
    blocks, parts, start = [], [], 0
    for number, (chunk, size) in enumerate(zip(X.to_delayed()[:, 0], X.chunks[0], strict=True)):
        here = slice(start, start + size)
        own = [None if weight is None else weight[here] for weight in (by_sample, by_entry)]
        hidden = hide(chunk, start, number, share, missing, *own, seed)
        block = put(chunk, start, hidden[0], hidden[1], mark)
        blocks.append(da.from_delayed(block, (size, X.shape[1]), X.dtype, meta=X._meta))
        parts.append(hidden)
        start += size

    def joined(at: int, dtype: Any) -> Any:
        """Return one result of all chunks as one Dask array."""
        return da.concatenate([da.from_delayed(part[at], (np.nan,), dtype) for part in parts])

    weighted = by_sample is not None or by_entry is not None
    return HeldOut(
        da.concatenate(blocks), joined(0, np.int64), joined(1, np.int64), joined(2, X.dtype),
        joined(3, np.float64) if weighted else None, mark,
    )  # fmt: skip


def _hidden(
    X: Any, start: int, number: int, share: float, missing: float | None, by_sample: Any,
    by_entry: Any, seed: int,
) -> tuple[AnyArray, AnyArray, AnyArray, Any]:  # fmt: skip
    """Return row, column, value and weight of the entries to hide in a block of rows.

    ``start`` is the position of the block's first row in X, and ``number`` the number of the block.
    """
    if sp.issparse(X) or hasattr(X, "tocsr"):
        X = _canonical(X)
        rng = np.random.default_rng([seed, number])
        rows, columns = _sparse_places(X, rng, share, missing, by_entry)
    else:
        seen = np.ones(X.shape, bool) if missing is None else ~is_missing(X, missing)
        if by_entry is not None:
            seen &= (by_entry.toarray() if sp.issparse(by_entry) else by_entry) > 0
        # Each entry of X has its own random number, so the result does not depend on the chunks.
        rng = np.random.Generator(np.random.PCG64(seed).advance(start * X.shape[1]))
        rows, columns = _dense_places(seen, rng, share, alone=start == 0)
    values, weights = _at(X, rows, columns), None
    if by_sample is not None or by_entry is not None:
        weights = np.ones(len(rows)) if by_sample is None else by_sample[rows].astype(np.float64)
        if by_entry is not None:
            weights = weights * _at(by_entry, rows, columns)
    return rows + start, columns, values, weights


def _at(X: Any, rows: AnyArray, columns: AnyArray) -> AnyArray:
    """Return some entries of X; scipy would return a matrix if there are none."""
    return np.asarray(X[rows, columns]).ravel() if len(rows) else np.empty(0, X.dtype)


def _dense_places(
    seen: AnyArray, rng: np.random.Generator, share: float, *, alone: bool
) -> tuple[AnyArray, AnyArray]:
    """Return rows and columns of a random share of the observed entries."""
    hidden = seen & (rng.random(seen.shape) < share)
    for axis in (1, 0):  # keep one observed entry of each row, then of each column
        lost = np.flatnonzero(hidden.any(axis) & ~(seen & ~hidden).any(axis))
        first = hidden.argmax(axis)[lost]
        hidden[(lost, first) if axis == 1 else (first, lost)] = False
    if alone and not hidden.any():  # hide at least one entry, also of a very small X
        spare = seen & (seen.sum(1) > 1)[:, None] & (seen.sum(0) > 1)
        if spare.any():
            hidden.flat[rng.choice(np.flatnonzero(spare))] = True
    rows, columns = np.nonzero(hidden)
    return rows, columns


def _canonical(X: Any) -> sp.csr_array:
    """Return a CSR copy of X without duplicates and stored zeros."""
    X = sp.csr_array(X.tocsr(), copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _sparse_places(
    X: sp.csr_array, rng: np.random.Generator, share: float, missing: float | None, weight: Any
) -> tuple[AnyArray, AnyArray]:
    """Return rows and columns of some stored entries, and of as many zeros."""
    n, p = X.shape
    stored = _flat(X)
    gone = stored[is_missing(X.data, missing)] if missing else stored[:0]
    if weight is not None:
        seen = _flat(sp.csr_array(weight))[sp.csr_array(weight).data > 0]
        seen = np.intersect1d(seen, stored) if missing == 0 else np.setdiff1d(seen, gone)
    else:
        seen = np.setdiff1d(stored, gone, assume_unique=True)
    pick = rng.random(len(seen)) < share
    if len(seen) and min(n, p) > 1 and not pick.any():
        pick[rng.integers(len(seen))] = True
    places = seen[pick]
    if missing != 0 and weight is None:  # entries that are not stored are observed zeros
        places = np.concatenate([places, _zeros(stored, n * p, len(places), rng)])
        per_row = p - np.bincount(gone // p, minlength=n)
        per_column = n - np.bincount(gone % p, minlength=p)
    else:
        per_row, per_column = (
            np.bincount(seen // p, minlength=n),
            np.bincount(seen % p, minlength=p),
        )
    places = _without_lost(places, places // p, per_row)
    places = _without_lost(places, places % p, per_column)
    return places // p, places % p


def _flat(X: sp.csr_array) -> AnyArray:
    """Return the position of each stored entry in X, counted row by row."""
    rows = np.repeat(np.arange(X.shape[0], dtype=np.int64), np.diff(X.indptr))
    return rows * X.shape[1] + X.indices


def _without_lost(places: AnyArray, owner: AnyArray, observed: AnyArray) -> AnyArray:
    """Return the positions to hide, without some that must stay visible.

    ``owner`` is the row (or column) of each position, and ``observed`` is the number of observed
    entries in each row. If all observed entries of a row would be hidden, one of them stays.
    """
    owners, first, counts = np.unique(owner, return_index=True, return_counts=True)
    return np.delete(places, first[counts >= observed[owners]])


def _zeros(stored: AnyArray, size: int, wanted: int, rng: np.random.Generator) -> AnyArray:
    """Return random positions of entries that a sparse matrix does not store."""
    wanted = min(wanted, (size - len(stored)) // 2)
    if size <= PIECE:
        drawn = np.arange(size)
    else:  # draw twice as many as needed, because of duplicates and stored entries
        often = 2 * wanted * size // (size - len(stored)) + 16
        drawn = np.unique(rng.integers(size, size=often))
    return rng.permutation(np.setdiff1d(drawn, stored, assume_unique=True))[:wanted]


def _marked(X: Any, start: int, rows: AnyArray, columns: AnyArray, mark: float) -> Any:
    """Return a block of rows in which the hidden entries are marked as missing."""
    rows = rows - start
    if not (sp.issparse(X) or hasattr(X, "tocsr")):
        X = X.copy()
        X[rows, columns] = mark
        return X
    X = _canonical(X)
    stored, hidden = _flat(X), rows * X.shape[1] + columns
    rest = ~np.isin(stored, hidden)
    values, places = X.data[rest], stored[rest]
    if mark:
        values = np.concatenate([values, np.full(len(hidden), mark, X.dtype)])
        places = np.concatenate([places, hidden])
    return sp.csr_array((values, (places // X.shape[1], places % X.shape[1])), shape=X.shape)


def label_folds(codes: AnyArray, n_folds: int, rng: np.random.RandomState) -> AnyArray:
    """Return the cross-validation fold in which each label is held out.

    Each class is spread over the folds, which are numbered from 0. The only label of a class is
    never held out: its fold is -1.
    """
    fold, place = np.full(len(codes), -1), 0
    for code in np.unique(codes):
        mine = rng.permutation(np.flatnonzero(codes == code))
        if mine.size > 1:
            fold[mine] = (place + np.arange(mine.size)) % n_folds
            place = (place + mine.size) % n_folds
    used = np.unique(fold[fold >= 0])
    fold[fold >= 0] = np.searchsorted(used, fold[fold >= 0])
    return fold
