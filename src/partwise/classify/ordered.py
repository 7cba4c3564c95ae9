"""Features of columns whose order matters: pictures, series and spectra.

If columns are compared one by one, an image is far from a copy of it that is shifted by one pixel,
and a series is far from a copy that begins later. Image and signal processing use features that
avoid this: edges in small windows, strengths of frequencies, and differences between neighbours.
"""

from __future__ import annotations

import numpy as np

from partwise.backends.arrays import AnyArray

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


def differences(X: AnyArray) -> AnyArray:
    """Return the differences between neighbouring columns."""
    return np.diff(X, axis=1)


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
