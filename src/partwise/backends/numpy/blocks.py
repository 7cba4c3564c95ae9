"""Functions of one dense block of rows, for back ends that read X block by block."""

from __future__ import annotations

import numpy as np

from partwise.backends.arrays import AnyArray, floor


def split_rows(index: AnyArray, n_rows: int) -> tuple[int, AnyArray]:
    """Return the layout of Aᵀ X: ``head`` rows that sum several samples, then single samples.

    ``index`` holds the row of each sample. The result is ``head``, and the sample of each later
    row.
    """
    counts = np.bincount(index, minlength=n_rows)
    sample = np.zeros(n_rows, dtype=np.int64)
    sample[index] = np.arange(len(index))
    head = int(np.max(np.flatnonzero(counts != 1), initial=-1)) + 1
    falls = np.flatnonzero(np.diff(sample[head:]) < 0)
    head += int(np.max(falls, initial=-1)) + 1
    return head, sample[head:]


def xlogx(X: AnyArray) -> AnyArray:
    """Return Σ_j x_ij log x_ij of each row in float64, with 0 log 0 = 0."""
    X = np.asarray(X, dtype=np.float64)
    return (X * np.log(X, out=np.zeros_like(X), where=X > 0)).sum(axis=1)


def kl_ratio(X: AnyArray, V: AnyArray, U: AnyArray, low: float) -> tuple[AnyArray, AnyArray]:
    """Return X / VUᵀ and VUᵀ, with a lower limit of the denominator."""
    Y = V @ U.T
    np.maximum(Y, Y.dtype.type(low), out=Y)
    return X / Y, Y


def log_sums(X: AnyArray, Y: AnyArray, V: AnyArray, U: AnyArray) -> AnyArray:
    """Return Σ_j x log y by row in float64; Y = VUᵀ is overwritten.

    In float32 a logarithm far from zero loses digits, so y is divided by its mean. Rounding of y is
    corrected, too: near x = y it changes Σ x log y about as much as Σ y (times the weight of the
    row, if any), and the exact Σ y is known.
    """
    if Y.dtype == np.float64:
        np.log(Y, out=Y)
        return np.einsum("ij,ij->i", X, Y)
    rounded = Y.sum(axis=1, dtype=np.float64)
    right = V.astype(np.float64) @ U.sum(axis=0, dtype=np.float64)
    unit = 2.0 ** np.round(np.log2(rounded.sum() / max(1, Y.size)))
    Y *= Y.dtype.type(1 / unit)
    np.log(Y, out=Y)
    logs = np.einsum("ij,ij->i", X, Y, dtype=np.float64, casting="unsafe")
    sums = X.sum(axis=1, dtype=np.float64)
    # a larger difference is due to the lower limit
    near = (np.abs(right - rounded) <= 1e-3 * right) & (right > 0)
    less = np.divide(right - rounded, right, out=np.zeros_like(right), where=near)
    return logs + (np.log(unit) + less) * sums


def powers(X: AnyArray, beta: float) -> AnyArray:
    """Return Σ_j x^β by row in float64, over x > 0."""
    X = np.asarray(X, dtype=np.float64)
    return np.power(X, beta, out=np.zeros_like(X), where=X > 0).sum(axis=1)


def beta_parts(
    X: AnyArray, V: AnyArray, U: AnyArray, beta: float
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return X ∘ Y^(β-2), Y^(β-1) and Y = VUᵀ with a floor against overflow (X is near one)."""
    Y = V @ U.T
    # powers of the lower limit with exponents up to |β - 2| must be finite
    power = max(1.0, abs(beta - 2.0), abs(beta - 1.0))
    low = floor(Y.dtype) ** (0.5 / power) if beta < 2 else floor(Y.dtype)
    np.maximum(Y, min(low, np.finfo(Y.dtype).eps ** 2), out=Y)
    return X * Y ** (beta - 2.0), Y ** (beta - 1.0), Y


def beta_divergence(X: AnyArray, Y: AnyArray, beta: float) -> AnyArray:
    """Return Σ_j d_β(x_ij | y_ij) by row, float64; the caller keeps x > 0 where β <= 0."""
    X = np.asarray(X, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    if beta == 0:
        R = X / Y
        return (R - np.log(R) - 1.0).sum(axis=1)
    if beta == 1:
        return xlogx(X) - (X * np.log(Y)).sum(axis=1) + (Y - X).sum(axis=1)
    with np.errstate(divide="ignore"):
        XB = np.where(X > 0, X**beta, 0.0) if beta > 0 else X**beta
    total = XB + (beta - 1.0) * Y**beta - beta * X * Y ** (beta - 1.0)
    return total.sum(axis=1) / (beta * (beta - 1.0))


def weighed_sums(X: AnyArray, w: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return Σ_j w x² and Σ_j w x log x of each row; X may be anything where w is zero."""
    there = (w > 0) & (X > 0)
    x = np.where(there, X, 1).astype(np.float64)
    return (w * x * x * there).sum(axis=1), (w * x * np.log(x) * there).sum(axis=1)
