"""Comparison with known parts: which parts a sample uses, and which were found."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array

from partwise.backends import in_memory_or_dask
from partwise.backends.arrays import AnyArray, ratio
from partwise.backends.sweeps import solve_rows
from partwise.estimators.nmf import NMF
from partwise.evaluation.groups import unit_rows
from partwise.fitting.checking import check_non_negative
from partwise.selection.refits import Refits


def refit(
    X: Any,
    parts: Any,
    *,
    threshold: float = 0.05,
    beta_loss: str | float = "frobenius",
    missing_values: float | None = None,
) -> Any:
    r"""Compute part weights with few parts per sample, for fixed parts.

    Solves :math:`\min_{v \ge 0} d_\beta(x, v H)` for each sample (non-negative least squares by
    default). If the part with the smallest share of :math:`\sum_j (vH)_j` is below ``threshold``,
    it is removed and the sample is solved again with the others, until none is.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask array} of shape (n_samples, n_features)
        Non-negative samples.
    parts : array-like of shape (k, n_features)
        Non-negative parts H, such as signatures.
    threshold : float, default=0.05
        Smallest share of a part in a sample, between 0 and 1; larger values leave fewer parts, and
        0 keeps all.
    beta_loss : float or str, default="frobenius"
        The loss, as in `NMF`.
    missing_values : float, default=None
        The value that marks missing entries of X, as in `NMF`; the loss leaves them out.

    Returns
    -------
    V : ndarray of shape (n_samples, k)
        For a Dask X, a Dask array that solves each chunk of rows when it is computed.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import refit
    >>> H = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0.1, 1]])
    >>> refit([[10.0, 5, 0.2]], H, threshold=0.05).round(2).tolist()
    [[10.0, 5.0, 0.0]]
    """
    X = in_memory_or_dask(X, missing_values)
    H = check_array(parts, dtype=X.dtype, input_name="parts")
    check_non_negative(H, "refit, parts")
    if H.shape[1] != X.shape[1]:
        raise ValueError(f"parts must have {X.shape[1]} features, as X has; got {H.shape[1]}.")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must be at least 0 and less than 1; got {threshold!r}.")
    loss = {"beta_loss": beta_loss, "missing_values": missing_values}
    if hasattr(X, "to_delayed"):
        meta = np.empty((0, len(H)), X.dtype)
        chunks = (X.chunks[0], (len(H),))
        return X.map_blocks(_refit_block, H, threshold, loss, chunks=chunks, meta=meta)
    return _refit_block(X, H, threshold, loss)


def _refit_block(X: Any, H: AnyArray, threshold: float, loss: dict[str, Any]) -> AnyArray:
    """Return the part weights of some samples, with few parts per sample."""
    X, refits = Refits(NMF(**loss), "refit").samples(X)
    check_non_negative(X, "refit")
    used = np.ones((X.shape[0], len(H)), bool)
    V = np.zeros(used.shape, X.dtype)
    rows = np.arange(len(used))
    mass = H.sum(axis=1)
    while len(rows):
        _solve(X, H, used, V, rows, refits)
        weight = V[rows] * mass
        total = np.broadcast_to(weight.sum(axis=1, keepdims=True), weight.shape)
        share = np.where(used[rows], ratio(weight, total), np.inf)
        least = share.argmin(axis=1)
        small = (share.min(axis=1) < threshold) & (used[rows].sum(axis=1) > 1)
        rows, least = rows[small], least[small]
        used[rows, least] = False
    return V


def _solve(
    X: Any, H: AnyArray, used: AnyArray, V: AnyArray, rows: AnyArray, refits: Refits
) -> None:
    """Compute the part weights ``V`` of some samples, each with its allowed parts.

    Samples with the same set of allowed parts are solved together.
    """
    plain = refits.estimator.beta_loss in ("frobenius", 2) and refits.missing_values is None
    patterns, which = np.unique(used[rows], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        at = rows[which.ravel() == number]
        V[at] = 0
        fixed = np.ascontiguousarray(H[pattern])
        if plain:  # solve to the exact minimum, even if parts are similar
            B = fixed.astype(float)
            start = np.zeros((len(at), len(B)))
            found = solve_rows(start, X[at] @ B.T, B @ B.T, None, np.zeros((1, 1)), 2000, 1e-9)
        else:
            found = refits.codes(X[at], fixed)
        V[np.ix_(at, np.flatnonzero(pattern))] = found


def match_parts(parts: Any, reference: Any, *, names: Any = None, threshold: float = 0.9) -> Any:
    """Match parts with known ones by cosine similarity.

    Parameters
    ----------
    parts : array-like of shape (k, n_features)
        Parts to match.
    reference : array-like of shape (m, n_features)
        Known parts with the same features, such as a catalogue of signatures.
    names : sequence of str, default=None
        Names of the known parts. None: their numbers.
    threshold : float, default=0.9
        Smallest cosine of a match.

    Returns
    -------
    table : pandas.DataFrame
        One row per part: ``closest`` is the known part with the largest cosine, and ``cosine`` that
        cosine. ``match`` is its partner in the best one-to-one assignment, or None if their cosine
        is below the threshold.

    Examples
    --------
    >>> from partwise import match_parts
    >>> match_parts([[0, 1.1], [1, 0.2]], [[1, 0], [0, 1]], names=["A", "B"])
      closest  cosine match
    0       B  1.0...     B
    1       A  0.98...    A
    """
    import pandas as pd

    H, R = (check_array(a, dtype=np.float64, input_name=name) for a, name in
            ((parts, "parts"), (reference, "reference")))  # fmt: skip
    if H.shape[1] != R.shape[1]:
        raise ValueError(f"parts have {H.shape[1]} features, but reference has {R.shape[1]}.")
    names = list(range(len(R))) if names is None else list(names)
    if len(names) != len(R):
        raise ValueError(f"names must have {len(R)} entries, one per reference; got {len(names)}.")
    cosine = unit_rows(H) @ unit_rows(R).T
    match: list[Any] = [None] * len(H)
    for row, column in zip(*linear_sum_assignment(-cosine), strict=True):
        if cosine[row, column] >= threshold:
            match[row] = names[column]
    closest = [names[at] for at in cosine.argmax(axis=1)]
    # without dtype=object, pandas would replace None by NaN
    partners = pd.Series(match, dtype=object)
    return pd.DataFrame({"closest": closest, "cosine": cosine.max(axis=1), "match": partners})
