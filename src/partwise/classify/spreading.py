"""Label spreading over a neighbour graph by compiled conjugate gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.threads import each, threads_for

#: Maximum number of products with the graph per label, and the usual number.
MOST, ABOUT = 200, 50


class Walk(NamedTuple):
    """Matrix S = D^-½ W D^-½ with its rows sorted by their number of entries, for speed.

    ``rows`` holds the index of the sample of each row. All indices are unsigned, so that compiled
    code need not test for negative ones.
    """

    starts: AnyArray
    indices: AnyArray
    weights: AnyArray
    rows: AnyArray

    @classmethod
    def of(cls, S: sp.csr_array) -> Walk:
        order = np.argsort(np.diff(S.indptr), kind="stable")
        S = sp.csr_array(S)[order]
        starts, indices, rows = (a.astype(np.uint32) for a in (S.indptr, S.indices, order))
        return cls(starts, indices, S.data.astype(np.float32), rows)


def propagate(
    walk: Walk, E: sp.csr_array, shares: tuple[float, ...], tol: float = 1e-4
) -> AnyArray:
    """Return (1 - α)(I - αS)⁻¹ e for all rows e of E (m, n) and all ``shares`` α.

    The result has the shape (m, n_shares, n). S is symmetric with norm one. Conjugate gradients
    solve the system with the largest α. The matrices of the other systems differ from it by a
    multiple of I, so they need no further products: their residuals are multiples ζ of its residual
    (B. Jegerlehner, "Krylov space solvers for shifted linear systems").
    """
    alpha, (m, n) = np.array(shares), E.shape
    first = int(alpha.argmax())
    shifts = 1 / alpha - 1 / alpha[first]
    found = np.zeros((m, alpha.size, n), np.float32)

    def run(j: int) -> None:
        R, mine = np.zeros(n, np.float32), slice(E.indptr[j], E.indptr[j + 1])
        R[E.indices[mine]] = E.data[mine]
        D, room = np.tile(R, (alpha.size, 1)), np.empty_like(R)
        scale, fall = np.ones((2, alpha.size))
        _gradients(*walk, 1 / alpha[first], first, shifts, tol, scale, fall, R, room, D, found[j])
        found[j] *= ((1 - alpha) / alpha)[:, None]
        np.maximum(found[j], 0, out=found[j])

    work = float(ABOUT) * (walk.weights.size + 5 * (1 + alpha.size) * n) * m
    each(run, [(j,) for j in range(m)], threads_for(work))
    return found


@compiled(**OPTIONS)
def _gradients(  # type: ignore[no-untyped-def]
    starts, indices, weights, rows, top, first, shifts, tol, scale, fall, R, Q, D, F
):
    """Solve (top + shift_k - S) F_k = e for all shifts k, where shift ``first`` is zero.

    At the start, R and all D_k equal e. ``scale`` holds ζ of each shift, and ``fall`` holds the
    last factor of ζ, which stays between zero and one.
    """
    n = R.size
    old, step, ratio = 0.0, 1.0, 0.0
    for i in range(n):
        old += R[i] * R[i]
    for _ in range(MOST):
        across = 0.0
        for i in range(n):
            r = rows[i]
            total = np.float32(0)
            for q in range(starts[i], starts[i + 1]):
                total += weights[q] * D[first, indices[q]]
            Q[r] = np.float32(top) * D[first, r] - total
            across += D[first, r] * Q[r]
        before, step = step, old / across
        new = 0.0
        for i in range(n):
            R[i] -= np.float32(step) * Q[i]
            new += R[i] * R[i]
        last, ratio = ratio, new / old
        for k in range(shifts.size):
            fall[k] = before / (step * last * (1 - fall[k]) + before * (1 + shifts[k] * step))
            scale[k] *= fall[k]
            a, b = np.float32(step * fall[k]), np.float32(ratio * fall[k] * fall[k])
            c = np.float32(scale[k])
            for i in range(n):
                F[k, i] += a * D[k, i]
                D[k, i] = b * D[k, i] + c * R[i]
        old = new
        if not new > tol * tol:
            break
