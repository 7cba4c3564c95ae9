"""Given parts: which of them a sample uses, and which known ones they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array

from partwise.backends import in_memory
from partwise.backends.arrays import AnyArray, ratio
from partwise.backends.sweeps import solve_rows
from partwise.estimators.nmf import non_negative_factorization
from partwise.evaluation.groups import unit_rows
from partwise.fitting.checking.arrays import check_non_negative


def refit(
    X: Any, parts: Any, *, threshold: float = 0.05, beta_loss: str | float = "frobenius"
) -> AnyArray:
    r"""Codes with few parts a sample: small ones are left out, and the others fitted again.

    Solves :math:`\min_{v \ge 0} d_\beta(x, v H)` for each sample (non-negative least squares by
    default). The part with the least share of :math:`\sum_j (vH)_j` is left out if that is below
    ``threshold``, and the sample is fitted again with the others, until none is.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Non-negative samples.
    parts : array-like of shape (k, n_features)
        Non-negative parts H, such as signatures.
    threshold : float, default=0.05
        Least share of a sample, between 0 and 1; 0 leaves none out.
    beta_loss : float or str, default="frobenius"
        The loss, as in `NMF`.

    Returns
    -------
    V : ndarray of shape (n_samples, k)

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import refit
    >>> H = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0.1, 1]])
    >>> refit([[10.0, 5, 0.2]], H, threshold=0.05).round(2).tolist()
    [[10.0, 5.0, 0.0]]
    """
    X = in_memory(X)
    H = check_array(parts, dtype=X.dtype, input_name="parts")
    check_non_negative(X, "refit")
    check_non_negative(H, "refit, parts")
    if H.shape[1] != X.shape[1]:
        raise ValueError(f"parts must have {X.shape[1]} features, as X has; got {H.shape[1]}.")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must be a number from 0 to below 1; got {threshold!r}.")
    used = np.ones((X.shape[0], len(H)), bool)
    V = np.zeros(used.shape, X.dtype)
    rows = np.arange(len(used))
    mass = H.sum(axis=1)
    while len(rows):
        _solve(X, H, used, V, rows, beta_loss)
        weight = V[rows] * mass
        total = np.broadcast_to(weight.sum(axis=1, keepdims=True), weight.shape)
        share = np.where(used[rows], ratio(weight, total), np.inf)
        least = share.argmin(axis=1)
        small = (share.min(axis=1) < threshold) & (used[rows].sum(axis=1) > 1)
        rows, least = rows[small], least[small]
        used[rows, least] = False
    return V


def _solve(
    X: Any, H: AnyArray, used: AnyArray, V: AnyArray, rows: AnyArray, beta_loss: Any
) -> None:
    """The codes of these samples with the parts that each may use; all of one pattern at once."""
    patterns, which = np.unique(used[rows], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        at = rows[which.ravel() == number]
        V[at] = 0
        fixed = np.ascontiguousarray(H[pattern])
        if beta_loss in ("frobenius", 2):  # to the minimum itself, however alike parts are
            B = fixed.astype(float)
            start = np.zeros((len(at), len(B)))
            found = solve_rows(start, X[at] @ B.T, B @ B.T, None, np.zeros((1, 1)), 2000, 1e-9)
        else:
            given = {"H": fixed, "update_H": False, "beta_loss": beta_loss}
            found = non_negative_factorization(X[at], **given)[0]
        V[np.ix_(at, np.flatnonzero(pattern))] = found


def match_parts(parts: Any, reference: Any, *, names: Any = None, threshold: float = 0.9) -> Any:
    """Which reference each part is, by the cosine of their angle.

    Parameters
    ----------
    parts : array-like of shape (k, n_features)
    reference : array-like of shape (m, n_features)
        What is known, such as a catalogue of signatures, with the same features.
    names : sequence of str, default=None
        Names of the references. None: their numbers.
    threshold : float, default=0.9
        Least cosine of a match.

    Returns
    -------
    table : pandas.DataFrame
        A row for each part: ``closest``, the reference at the largest cosine, and ``cosine``;
        ``match`` is its partner in the best one-to-one assignment, or None where their cosine is
        below the threshold.

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
        raise ValueError(f"parts have {H.shape[1]} features and reference {R.shape[1]}.")
    names = list(range(len(R))) if names is None else list(names)
    if len(names) != len(R):
        raise ValueError(f"names must be {len(R)}, one a reference; got {len(names)}.")
    cosine = unit_rows(H) @ unit_rows(R).T
    match: list[Any] = [None] * len(H)
    for row, column in zip(*linear_sum_assignment(-cosine), strict=True):
        if cosine[row, column] >= threshold:
            match[row] = names[column]
    closest = [names[at] for at in cosine.argmax(axis=1)]
    partners = pd.Series(match, dtype=object)  # else pandas makes NaN of None
    return pd.DataFrame({"closest": closest, "cosine": cosine.max(axis=1), "match": partners})
