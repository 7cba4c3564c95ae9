"""Extremes and sums of products over whole arrays.

Arrays are divided into pieces that depend on their shape alone. Each piece has a separate sum, and
the sums are added in order, so the number of threads changes no digit.
"""

from __future__ import annotations

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.threads import pieces

WIDE = 512  # number of columns to which an array is reshaped
PIECES, LEAST = 64, 1024  # pieces of an array, and the least number of WIDE rows of a piece


@compiled(**OPTIONS)
def _overview(a, b, found, lo, hi):
    """Compute (min a, max a, Σ a b) over rows lo to hi of arrays with WIDE columns."""
    least, most = a[lo].copy(), a[lo].copy()
    total = 0.0
    for i in range(lo, hi):
        for t in range(WIDE):
            x = a[i, t]
            least[t] = x if x < least[t] else least[t]
            most[t] = x if x > most[t] else most[t]
        for t in range(WIDE):
            total += np.float64(a[i, t]) * np.float64(b[i, t])
    found[0], found[1], found[2] = least.min(), most.max(), total


def overview(a, b, threads=1):
    """Return the smallest and the largest entry of a, and Σ a b in float64.

    Both arrays are contiguous and of one dtype. With b = a the sum is NaN if an entry is NaN, and
    the extremes are then undefined.
    """
    a, b = a.reshape(-1), b.reshape(-1)
    whole = a.size // WIDE
    rows = (x[: whole * WIDE].reshape(whole, WIDE) for x in (a, b))
    parts = pieces(whole, LEAST, PIECES) if whole else []
    found = np.empty((len(parts), 3))
    if parts:
        crew.run(_overview, tuple(rows), parts, threads, own=(found,))
    x, y = (s[whole * WIDE :].astype(float) for s in (a, b))
    least = min(s.min(initial=np.inf) for s in (found[:, 0], x))
    most = max(s.max(initial=-np.inf) for s in (found[:, 1], x))
    return float(least), float(most), float(found[:, 2].sum() + x @ y)
