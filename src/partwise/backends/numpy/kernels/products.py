"""Products by BLAS, and products of sparse matrices."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
from numba.extending import get_cython_function_address

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import gemm_at, in_python, registers, wide_vectors
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, UNROLLED, compiled

LINE = 64  # bytes of a cache line: a vector that crosses two takes twice as long to load or store


def aligned(rows, columns, dtype):
    """Return an uninitialised matrix whose memory begins on a cache line."""
    size = rows * columns * dtype.itemsize
    room = np.empty(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(rows, columns)


@compiled(**OPTIONS)
def _fill(B, slab, first, lo, hi):
    """Copy columns from ``first`` on of rows lo to hi of B to ``slab``, padded with zeros."""
    left = min(slab.shape[1], B.shape[1] - first)
    for i in range(lo, hi):
        for t in range(left):
            slab[i, t] = B[i, first + t]
        for t in range(left, slab.shape[1]):
            slab[i, t] = 0


@cache
def _gather(width):
    """Return the kernel of `spmm` for slabs (blocks of columns of B) of this width.

    With a constant width, the compiler can unroll the inner loops.
    """

    @compiled(**UNROLLED)
    def gather(indptr, indices, x, slab, out, first, lo, hi):
        """Compute out[i, first + t] = Σ_e x[e] slab[indices[e], t] for rows lo to hi."""
        wide_vectors()
        total, other = registers(out), registers(out)  # two sums hide the latency of additions
        row = registers(out)
        one, two = np.uintp(1), np.uintp(2)  # numba compares other indices with zero
        for i in range(lo, hi):
            begin, end = np.uintp(indptr[i]), np.uintp(indptr[i + 1])
            odd = (end - begin) % two
            for t in range(width):
                total[t] = 0
                other[t] = 0
            for e in range(begin + odd, end, two):
                a, b = x[e], x[e + one]
                p, q = np.uintp(indices[e]), np.uintp(indices[e + one])
                for t in range(width):
                    total[t] += a * slab[p, t]
                    other[t] += b * slab[q, t]
            if odd:
                a, p = x[begin], np.uintp(indices[begin])
                for t in range(width):
                    total[t] += a * slab[p, t]
            for t in range(width):
                row[t] = total[t] + other[t]
            to = out[i, first : first + width]
            for t in range(len(to)):
                to[t] = row[t]

    return gather


def spmm(indptr, indices, x, B, lines, runs, threads=1):
    """Return X B of CSR X, whose rows are divided into ``runs``.

    X is read once for each slab of B, which has ``lines`` cache lines of each row. Reading rows is
    several times as fast if the slab fits into the cache.
    """
    (rows, k), size = B.shape, LINE // B.itemsize
    out = np.empty((len(indptr) - 1, k), B.dtype)
    for first in range(0, k, lines * size):
        on = min(lines, -(-(k - first) // size))
        slab = aligned(rows, size * (on if on < 3 else 4), B.dtype)  # three lines are slower
        crew.rows(_fill, (B, slab, first), rows, 16, threads)
        crew.run(_gather(slab.shape[1]), (indptr, indices, x, slab, out, first), runs, threads)
    return out


@compiled(**OPTIONS)
def _transpose_rows(indptr, indices, x, rows, values, write, places, lo, hi):
    """Advance places[j] by the number of entries of column j in rows lo to hi of CSR X.

    With ``write`` each entry is stored at the place its column has reached.
    """
    for i in range(lo, hi):
        for e in range(indptr[i], indptr[i + 1]):
            at = places[indices[e]]
            places[indices[e]] = at + 1
            if write:
                rows[at], values[at] = i, x[e]


def transpose(indptr, indices, x, p, runs, threads):
    """Return the transpose of a CSR matrix of p columns, as indptr, indices, entries.

    ``runs`` are the bounds of runs of rows of X.

    Each run of rows counts its entries by column. The sums of these counts are the places in Xᵀ
    where the entries of each run begin.
    """
    rows, values = np.empty_like(indices), np.empty_like(x)
    args, places = (indptr, indices, x, rows, values), np.zeros((len(runs), p), indices.dtype)
    crew.run(_transpose_rows, (*args, 0), runs, threads, [places])
    ends = np.cumsum(places.T.ravel(), dtype=indices.dtype)
    begins = np.append(0, ends).astype(indices.dtype)
    places = np.array(begins[:-1].reshape(p, -1).T, order="C")
    crew.run(_transpose_rows, (*args, 1), runs, threads, [places])
    return begins[:: len(runs)].copy(), rows, values


@cache
def gemm(dtype):
    """Return the address of BLAS's product for a dtype, and whether numpy has it.

    If numpy contains no BLAS, it is the address in scipy's BLAS.
    """
    name = "sgemm" if dtype == np.float32 else "dgemm"
    own = Path(np.__file__).parent.with_name("numpy.libs")
    for path in own.glob("*openblas*"):
        library = ctypes.CDLL(str(path))  # numpy has loaded it already
        for symbol in (f"scipy_{name}_64_", f"scipy_{name}_"):
            if hasattr(library, symbol):
                return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value, True
    return get_cython_function_address("scipy.linalg.cython_blas", name), False


@compiled(**HELPER)
def _leading(A, turned):
    """Return the distance in memory, in entries, between successive rows of A.

    If ``turned``, A is stored by columns, and the distance is that between successive columns.
    """
    across = 1 if turned else 0
    return max(A.strides[across] // A.itemsize, A.shape[1 - across], 1)


@in_python(lambda gemm, A, B, out: np.matmul(A, B, out=out), compiled(**HELPER))
def multiply(gemm, A, B, out):
    """Compute out = A B by the BLAS function at the address that `gemm` returns.

    All arrays are matrices of one dtype. Each row of ``out`` is contiguous. A and B may have
    contiguous rows or contiguous columns, and any distance between them.
    """
    a, b = A.strides[1] != A.itemsize, B.strides[1] != B.itemsize
    (m, k), n = A.shape, B.shape[1]
    # BLAS stores matrices by columns, so this is outᵀ = Bᵀ Aᵀ
    gemm_at(
        gemm, out, b + 2 * a, n, m, k, B.ctypes.data, _leading(B, b), A.ctypes.data,
        _leading(A, a), out.ctypes.data, _leading(out, False),
    )  # fmt: skip


@compiled(**OPTIONS)
def _multiply_part(gemm, A, B, out, r, top, bottom, first, last, left, right):
    out = out[r, top:bottom, left:right]
    multiply(gemm, A[top:bottom, first:last], B[first:last, left:right], out)


def multiply_parts(A, B, out, parts, threads):
    """BLAS's products of parts of A and B, in threads that take no lock of the interpreter.

    Each part is (r, rows, terms, columns), where all but r are pairs: out[r, rows, columns] =
    A[rows, terms] B[terms, columns].
    """
    tasks = [(r, *rows, *terms, *columns) for r, rows, terms, columns in parts]
    crew.run(_multiply_part, (gemm(out.dtype)[0], A, B, out), tasks, threads)


@compiled(**OPTIONS)
def _add_up(sums, out, lo, hi):
    """Compute Σ_b sums[b]ᵀ on rows lo to hi of ``out``; sums[0] holds the partial sums."""
    for b in range(1, sums.shape[0]):
        for j in range(out.shape[1]):
            for e in range(lo, hi):
                sums[0, j, e] += sums[b, j, e]
    for e in range(lo, hi):
        for j in range(out.shape[1]):
            out[e, j] = sums[0, j, e]


def add_up(sums, out, threads):
    """Compute Σ_b sums[b]ᵀ (p, k); this overwrites ``sums``, which is (any, k or more, p)."""
    crew.rows(_add_up, (sums, out), len(out), 16, threads)
