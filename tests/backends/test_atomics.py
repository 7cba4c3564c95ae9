"""Tests of atomic counters and of BLAS calls by address, in compiled code and in Python."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from partwise.backends.numpy.kernels import _atomics
from partwise.backends.numpy.kernels._atomics import add, compare_exchange, load
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.numpy.kernels.products import gemm, multiply
from problems import DTYPES

FRESH = {**OPTIONS, "cache": False}


@compiled(**FRESH)
def _counts(counters):
    for _ in range(100_000):
        add(counters, 1, 3)
    took = compare_exchange(counters, 0, 0, 7)
    took = took + 2 * compare_exchange(counters, 0, 0, 8)
    return took, load(counters, 0), load(counters, 1)


@compiled(**FRESH)
def _multiply_rows(function, A, B, out, lo, hi):
    multiply(function, A[lo:hi], B, out[lo:hi])


def test_counters_lose_nothing_between_threads():
    counters, found = np.zeros(2, np.int64), []
    callers = [Thread(target=lambda: found.append(_counts(counters))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    np.testing.assert_array_equal(counters, [7, 4 * 100_000 * 3])
    assert sorted(took for took, _, _ in found) == [0, 0, 0, 1]
    assert {first for _, first, _ in found} == {7}


def test_python_counts_as_compiled_code_does():
    counters = np.array([5, 2], np.int64)
    assert _atomics._add_in_python(counters, 0, -4) == 5
    assert _atomics._exchange_in_python(counters, 1, 2, 9)
    assert not _atomics._exchange_in_python(counters, 1, 2, 8)
    np.testing.assert_array_equal(counters, [1, 9])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 4, 3), (7, 1, 3), (7, 4, 1), (0, 4, 3), (7, 0, 3)])
def test_blas_takes_rows_columns_and_distances_between_them(shape, dtype, rng):
    m, k, n = shape
    A, B = rng.random((m, k)).astype(dtype), rng.random((k, n)).astype(dtype)
    place, lo = gemm(np.dtype(dtype))[0], m // 3
    for left in (A, np.asfortranarray(A), np.hstack([A, A])[:, :k]):
        for right in (B, np.asfortranarray(B)):
            room = np.full((m, n + 2), 7, dtype)
            _multiply_rows(place, left, right, room[:, :n], lo, m)
            np.testing.assert_allclose(room[lo:, :n], A[lo:] @ B, rtol=1e-5)
            assert (room[:lo] == 7).all() and (room[:, n:] == 7).all()
