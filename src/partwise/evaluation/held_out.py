"""Entries hidden from a fit, and how well the model tells what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from partwise.backends import in_memory
from partwise.backends.arrays import AnyArray, to_numpy

#: Entries of the model made at a time.
PIECE = 1_000_000


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What `hold_out` hid.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        The samples with NaN where an entry is hidden.
    rows, columns : ndarrays of shape (n_hidden,)
        Where.
    values : ndarray of shape (n_hidden,)
        What is there.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.metrics import hold_out
    >>> held = hold_out(np.arange(20.0).reshape(4, 5), 0.2, random_state=0)
    >>> int(np.isnan(held.X).sum()) == len(held.values) == len(held.rows)
    True
    """

    X: Any
    rows: AnyArray
    columns: AnyArray
    values: AnyArray

    def error(self, model: Any) -> float:
        """The model's loss at the hidden entries, mean over them.

        Parameters
        ----------
        model : estimator
            Fitted to ``X`` with ``missing_values=np.nan``.

        Returns
        -------
        error : float
            ½ (x - y)², or x log(x/y) - x + y under Kullback-Leibler, in the mean. There y is at
            least a millionth of the mean of ``values``: a single zero would make it infinite.
        """
        V = np.asarray(to_numpy(model.embedding_), dtype=np.float64)
        H = np.asarray(to_numpy(model.inverse_transform(np.eye(V.shape[1]))), dtype=np.float64)
        if not len(self.values):
            raise ValueError(
                "nothing is hidden: with one sample or one feature every entry is needed, and "
                "elsewhere a share this small hides none; give a larger share."
            )
        B, total = np.ascontiguousarray(H.T), 0.0
        divergence = getattr(model, "beta_loss", "frobenius") in ("kullback-leibler", 1)
        low = max(1e-6 * float(self.values.mean(dtype=np.float64)), 1e-300)
        step = max(1, PIECE // V.shape[1])
        for start in range(0, len(self.values), step):
            at = slice(start, start + step)
            y = np.einsum("ij,ij->i", V[self.rows[at]], B[self.columns[at]])
            x = self.values[at].astype(np.float64)
            if not divergence:
                total += 0.5 * float(((x - y) ** 2).sum())
                continue
            y = np.maximum(y, low)
            logs, off = np.log(x / y, out=np.zeros_like(x), where=x > 0), y - x
            near = np.abs(off) < 0.5 * x  # the terms cancel: from what they differ by
            logs[near] = -np.log1p(off[near] / x[near])
            total += float(np.maximum(x * logs + off, 0).sum())
        return total / len(self.values)


def hold_out(X: Any, share: float = 0.1, *, random_state: Any = None) -> HeldOut:
    """Hide some entries of X, to see how well a model that did not see them tells what they are.

    Of an array, a share of all entries; of a sparse matrix, a share of the stored ones and as many
    of the others, since zeros alone would say little. One entry of each sample and of each feature
    is always left.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    share : float, default=0.1
        Between 0 and 1.
    random_state : int, RandomState instance or None, default=None

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
    X = in_memory(X)
    rng = check_random_state(random_state)
    if not sp.issparse(X):
        hidden = rng.uniform(size=X.shape) < share
        hidden[np.arange(X.shape[0]), rng.randint(X.shape[1], size=X.shape[0])] = False
        hidden[rng.randint(X.shape[0], size=X.shape[1]), np.arange(X.shape[1])] = False
        if min(X.shape) > 1 and not hidden.any():  # of so few entries one at least
            hidden[rng.randint(X.shape[0]), rng.randint(X.shape[1])] = True
        rows, columns = np.nonzero(hidden)
        return HeldOut(np.where(hidden, np.nan, X), rows, columns, X[rows, columns])
    return _from_sparse(sp.csr_array(X), share, rng)


def _from_sparse(X: sp.csr_array, share: float, rng: np.random.RandomState) -> HeldOut:
    X.sum_duplicates()
    X.eliminate_zeros()
    n, p = X.shape
    stored = X.tocoo()
    where = stored.coords[0].astype(np.int64) * p + stored.coords[1]
    pick = rng.uniform(size=X.nnz) < share
    if X.nnz and min(n, p) > 1 and not pick.any():
        pick[rng.randint(X.nnz)] = True
    wanted = min(int(pick.sum()), (n * p - X.nnz) // 2)
    if n * p <= PIECE:
        drawn = np.arange(n * p)
    else:  # twice as many as are needed: some come twice, some are stored
        often = 2 * wanted * n * p // (n * p - X.nnz) + 16
        drawn = np.unique(rng.randint(n * p, size=often, dtype=np.int64))
    zeros = rng.permutation(np.setdiff1d(drawn, where, assume_unique=True))[:wanted]
    places = np.concatenate([where[pick], zeros])
    values = np.concatenate([stored.data[pick], np.zeros(len(zeros), X.dtype)])
    # one entry of each sample and feature stays
    rows, columns = places // p, places % p
    full = (np.bincount(rows, minlength=n)[rows] < p) & (
        np.bincount(columns, minlength=p)[columns] < n
    )
    if min(n, p) > 1 and not full.any():
        full[:1] = True
    rows, columns, values = rows[full], columns[full], values[full]
    rest = np.isin(where, rows * p + columns, invert=True)
    data = np.concatenate([stored.data[rest], np.full(len(rows), np.nan, X.dtype)])
    at = (
        np.concatenate([stored.coords[0][rest], rows]),
        np.concatenate([stored.coords[1][rest], columns]),
    )
    return HeldOut(sp.csr_array((data, at), shape=X.shape), rows, columns, values)


def label_folds(codes: AnyArray, n_folds: int, rng: np.random.RandomState) -> AnyArray:
    """The fold in which each label is hidden, every class spread over them.

    The only label of a class is never hidden: -1. Folds are numbered without gaps.
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
