"""Tests of compiled kernels against slow Python loops or NumPy."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

from partwise.backends.numpy import sparse
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.kernels import hals, pivot, products, sums
from partwise.backends.sweeps import quadratic_change
from partwise.backends.threads import one_blas_thread
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import Graph, GraphDivergence, Neighbors
from partwise.model.losses import Frobenius
from partwise.model.subproblems import Quadratic, _lengths
from partwise.solvers.steps import hals as hals_step
from problems import (
    BACKENDS,
    DTYPES,
    SUMS,
    Hidden,
    K,
    factors,
    graph_of,
    slow_newton,
    zeros_in,
)


def slow_coordinate_descent(Z, C, G, d, r, sweeps):
    """Minimise ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0 by coordinate descent, row by row."""
    Z = Z.astype(float).copy()
    for i in range(len(Z)):
        di, ri = d[i if len(d) > 1 else 0], np.broadcast_to(r, Z.shape)[i]
        for _ in range(sweeps):
            for j in range(Z.shape[1]):
                gradient = di * (G[j] @ Z[i]) + ri[j] * Z[i, j] - C[i, j]
                curvature = di * G[j, j] + ri[j]
                if curvature > 0:
                    Z[i, j] = max(0.0, Z[i, j] - gradient / curvature)
                elif gradient > 0:
                    Z[i, j] = 0.0
    return Z


def quadratic_problem(rng, n, k, dtype, *, weighted):
    B = rng.uniform(size=(2 * k + 3, k))
    if k > 2:
        B[:, 1] = 0  # a part of zeros has no curvature
    G = B.T @ B
    C = rng.uniform(-0.2, 2.0, (n, 2 * k + 3)) @ B
    if k > 2:
        C[::2, 1] = -1.0  # this linear cost sends the coordinate to zero
    d = rng.uniform(0, 2, n) if weighted else np.ones(1)
    width = {"by row": 1, "by entry": k}.get(weighted, 1)
    r = np.zeros((1, 1))
    if weighted:
        r = rng.uniform(0, 1, (n, width)) * (rng.uniform(size=(n, width)) < 0.5)
    Z = rng.uniform(size=(n, k)) * (rng.uniform(size=(n, k)) < 0.7)
    return tuple(np.ascontiguousarray(a, dtype) for a in (Z, C, G, d, r))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, "by row", "by entry"])
@pytest.mark.parametrize("k", [1, 3, 4, 9])
@pytest.mark.parametrize("n", [0, 1, 64, 150])
def test_hals_rows_is_coordinate_descent(rng, n, k, weighted, dtype):
    Z, C, G, d, r = quadratic_problem(rng, n, k, dtype, weighted=weighted)
    expected = slow_coordinate_descent(Z, C, G, d, r, 3)
    hals.hals_rows(Z, C, G, d, r, r, 3, 0.0, 0.0)
    np.testing.assert_allclose(Z, expected, rtol=10 * SUMS[dtype], atol=10 * SUMS[dtype])


def test_hals_rows_does_not_depend_on_earlier_calls(rng):
    for k in (8, 4):
        Z, C, G, d, r = quadratic_problem(rng, 64, k, np.float64, weighted=False)
        hals.hals_rows(Z, C * np.nan, G, d, r, r, 1, 0.0, 0.0)
        assert np.isnan(Z).any()  # NaN in the input must stay NaN
    Z, C, G, d, r = quadratic_problem(rng, 30, 5, np.float64, weighted=False)
    expected = slow_coordinate_descent(Z, C, G, d, r, 3)
    hals.hals_rows(Z, C, G, d, r, r, 3, 0.0, 0.0)
    np.testing.assert_allclose(Z, expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hals_rows_ends_at_the_non_negative_least_squares_solution(rng, dtype):
    B, X = rng.uniform(size=(20, 5)), rng.uniform(-1, 1, (30, 20))
    Z = np.full((30, 5), 0.5, dtype)
    C, G = (X @ B).astype(dtype), (B.T @ B).astype(dtype)
    none = np.zeros((1, 1), dtype)
    hals.hals_rows(Z, C, G, np.ones(1, dtype), none, none, 5000, 0.0, 0.0)
    expected = np.array([nnls(B, x)[0] for x in X])
    # The condition number of G is about 100, and float32 products have errors of 1e-6.
    np.testing.assert_allclose(Z, expected, atol=1e-9 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("shift", [-0.5, 0.0, 2.0])  # these values give most, some and few zeros
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_pivoting_ends_at_the_minimum_with_and_without_the_inverse(rng, shift, weighted, ridge):
    n, k = 40, 12
    B, d = rng.uniform(size=(30, k)), rng.uniform(0.5, 2, n if weighted else 1)
    G, r = B.T @ B, np.full((1, 1), ridge)
    C = (rng.normal(size=(n, k)) + shift) @ G
    H, w, s, K = pivot.inverse_of(G, d, r)
    assert len(K) == (0 if weighted and ridge else k)
    for inverse in (K, K[:0]):
        Z, found, rows = rng.uniform(size=(n, k)), np.zeros(n, bool), rng.permutation(n)
        own = w if len(w) == 1 else w[rows]
        pivot.pivot_rows(Z, C, rows, H, own, s, inverse, 1e-15, found)
        assert found.all()
        for i in range(n):
            L = np.linalg.cholesky(d[i % len(d)] * G + ridge * np.eye(k))
            # The condition number of G is about 1e3.
            np.testing.assert_allclose(Z[i], nnls(L.T, np.linalg.solve(L, C[i]))[0], atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_pivoting_in_threads_moves_these_rows_alone_and_as_one_does(rng, dtype, weighted):
    n, k = 1000, 9
    B, d = rng.uniform(size=(30, k)), rng.uniform(0.5, 2, n if weighted else 1)
    G, r = B.T @ B, rng.uniform(size=(n if weighted else 1, k))
    start, C = rng.uniform(size=(n, k)).astype(dtype), (rng.normal(size=(n, k)) @ G).astype(dtype)
    rows = rng.permutation(n)[:700]
    H, w, s, K = pivot.inverse_of(G, d, r)
    w, s = (a if len(a) == 1 else a[rows] for a in (w, s))
    found = []
    for threads in (1, 2, 5):
        Z, ended = start.copy(), np.zeros(len(rows), bool)
        with one_blas_thread:
            pivot.pivot_rows(Z, C, rows, H, w, s, K, 1e-15, ended, threads)
        assert ended.all()
        found.append(Z)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    others = np.setdiff1d(np.arange(n), rows)
    np.testing.assert_array_equal(found[0][others], start[others])
    for i in rows[::50]:
        L = np.linalg.cholesky(d[i % len(d)] * G + np.diag(r[i % len(r)]))
        expected = nnls(L.T, np.linalg.solve(L, C[i].astype(np.float64)))[0]
        np.testing.assert_allclose(
            found[0][i], expected, atol=1e-10 if dtype == np.float64 else 1e-6
        )


def test_an_inverse_that_has_few_digits_is_not_used(rng):
    B = rng.uniform(size=(30, 6))
    for twice in (B[:, :1], B[:, :1] + 1e-5 * B[:, 1:2]):
        A = np.hstack([B, twice])
        assert len(pivot.inverse_of(A.T @ A, np.ones(1), np.zeros((1, 1)))[3]) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, "by row", "by entry"])
@pytest.mark.parametrize("threads", [2, 3])
def test_hals_rows_in_threads_is_the_serial_one(rng, dtype, weighted, threads):
    Z, *rest = quadratic_problem(rng, 777, 7, dtype, weighted=weighted)
    serial, parallel = Z.copy(), Z.copy()
    rest.append(rest[-1])
    hals.hals_rows(serial, *rest, 8, 0.1, 0.0)
    hals.hals_rows(parallel, *rest, 8, 0.1, 0.0, threads)
    np.testing.assert_array_equal(serial, parallel)
    assert not np.array_equal(serial, Z)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_part_without_curvature_moves_only_to_zero(rng, threads, dtype):
    Z, C, G, d, r = quadratic_problem(rng, 150, 9, dtype, weighted=False)
    G[-1], G[:, -1] = 0, 0
    C[:, -1] = rng.choice([-1, 0, 1], 150)
    before = Z.copy()
    hals.hals_rows(Z, C, G, d, r, r, 3, 0.0, 0.0, threads)
    np.testing.assert_array_equal(Z[:, -1], np.where(C[:, -1] < 0, 0, before[:, -1]))
    expected = slow_coordinate_descent(before, C, G, d, r, 3)
    np.testing.assert_allclose(Z, expected, rtol=10 * SUMS[dtype], atol=10 * SUMS[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (128, 3), (9000, 9)])
def test_change_of_a_quadratic_is_the_difference_of_its_values(
    rng, dtype, weighted, n, k, use_threads
):
    old, C, G, d, _ = quadratic_problem(rng, n, k, dtype, weighted=weighted)
    new = old + rng.random((n, k)).astype(dtype)

    def value(Z):
        Z = Z.astype(float)
        return 0.5 * np.sum(d[:, None] * (Z @ G) * Z) - np.sum(C * Z)

    args = (new, old, C, G, d if weighted else None)
    found = quadratic_change(*args)
    use_threads(3)
    assert found == quadratic_change(*args)
    assert found == pytest.approx(value(new) - value(old), rel=100 * SUMS[dtype])


def kl_row_values(X, Z, B, cost, ridge):
    """Return the KL objective of each row: Σ (a + ½ ridge z) z - Σ x log y."""
    with np.errstate(divide="ignore"):
        logs = np.where(X > 0, X * np.log(np.where(X > 0, Z @ B.T, 1.0)), 0.0)
    return ((cost + 0.5 * ridge * Z) * Z).sum(axis=1) - logs.sum(axis=1)


def newton_problem(rng, dtype, *, ridge):
    X = zeros_in(rng, 60, 25, dtype=dtype)
    Z, B = factors(rng, 60, 25, 5, dtype)
    B[rng.uniform(size=B.shape) < 0.3] = 0
    cost = B.sum(axis=0, dtype=float) + rng.uniform(0, 1, (60, 5))
    width = {True: 1, "by entry": 5}.get(ridge, 1)
    return X, Z, B, cost, rng.uniform(0.1, 1, (60, width)) if ridge else np.zeros((1, 1))


def run_newton(kind, X, Z, B, cost, ridge, sweeps):
    """Return V after some Newton sweeps, and Σ x log y of the same sweeps on transposed data."""
    new, _ = BACKENDS[kind](X).kl_newton(Z, B, cost, ridge, sweeps, False, transposed=False)
    flipped = np.ascontiguousarray(X.T)
    again, xlogy = BACKENDS[kind](flipped).kl_newton(
        B, Z, cost, ridge, sweeps, False, transposed=True
    )
    # Transposed data has other strides, so only the order of sums differs.
    tolerance = SUMS[Z.dtype.type]
    np.testing.assert_allclose(again, new, rtol=100 * tolerance, atol=tolerance)
    return new, xlogy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ridge", [False, True, "by entry"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
class TestNewton:
    def test_against_slow_loops(self, rng, kind, ridge, dtype):
        X, Z, B, cost, r = newton_problem(rng, dtype, ridge=ridge)
        got, _ = run_newton(kind, X, Z, B, cost, r, 1)
        expected = slow_newton(X, Z, B, cost, r, 1)
        np.testing.assert_allclose(got, expected, rtol=100 * SUMS[dtype], atol=SUMS[dtype])

    def test_every_row_goes_down_at_every_sweep(self, rng, kind, ridge, dtype):
        X, Z, B, cost, r = newton_problem(rng, dtype, ridge=ridge)
        Z[::3] *= 30  # some rows start far too large, others far too small
        Z[1::3] *= 1e-3
        keep = (X > 0) <= (B.sum(axis=1) > 0)  # a positive entry of X needs a positive component
        X = np.where(keep, X, 0).astype(dtype)
        before = kl_row_values(X, Z.astype(float), B, cost, r)
        first = before
        for _ in range(12):
            Z, _ = run_newton(kind, X, Z, B, cost, r, 1)
            after = kl_row_values(X, Z.astype(float), B, cost, r)
            # The tolerance is the rounding of sums of size |f| in the dtype of the kernel.
            assert (after <= before + 0.1 * SUMS[dtype] * (1 + np.abs(before))).all()
            before = after
        assert (after[np.r_[:30, 31:60]] < first[np.r_[:30, 31:60]]).all()

    def test_ends_at_a_stationary_point(self, rng, kind, ridge, dtype):
        X, Z, B, cost, r = newton_problem(rng, dtype, ridge=ridge)
        X = np.where(B.sum(axis=1) > 0, X, 0).astype(dtype)
        Z, xlogy = run_newton(kind, X, Z, B, cost, r, 300)
        Y = Z.astype(float) @ B.T
        R = np.divide(X, Y, out=np.zeros(X.shape), where=X > 0)
        gradient = cost + r * Z - R @ B
        # The costs are about ten, and sweeps in float32 stop at the rounding of such numbers.
        limit = 1e-6 if dtype == np.float64 else 1e-2
        assert (gradient > -limit).all()
        assert (np.abs(gradient * Z) < limit).all()
        logs = np.where(X > 0, X * np.log(np.where(X > 0, Y, 1)), 0).sum(axis=1)
        assert abs(xlogy.sum() - logs.sum()) <= SUMS[dtype] * (len(logs) + np.abs(logs).sum())

    def test_parallel_is_serial(self, rng, kind, ridge, dtype, use_threads):
        problem = newton_problem(rng, dtype, ridge=ridge)
        serial = run_newton(kind, *problem, 2)
        use_threads(3)
        parallel = run_newton(kind, *problem, 2)
        np.testing.assert_array_equal(serial[0], parallel[0])
        np.testing.assert_array_equal(serial[1], parallel[1])


def test_rough_newton_is_newton_in_single_precision(rng, monkeypatch):
    monkeypatch.setattr("partwise.backends.numpy.dense.ROUGH_WORK", 0)
    X, Z, B, cost, r = newton_problem(rng, np.float64, ridge=True)
    data = DenseData(X)
    exact, _ = data.kl_newton(Z, B, cost, r, 2, False, transposed=False)
    rough, _ = data.kl_newton(Z, B, cost, r, 2, True, transposed=False)
    assert rough.dtype == np.float64
    off = np.abs(rough - exact)
    assert 0 < off.max() < 1e-3 * exact.max() and np.median(off) < 1e-5 * exact.max()
    # The reported value is the exact one for the final factors.
    _, logs = DenseData(X.T).kl_newton(B, Z, cost, r, 2, True, transposed=True)
    Y = np.maximum(rough @ B.T, 1e-30)
    np.testing.assert_allclose(logs.sum(), (X * np.log(Y)).sum(), rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("n, groups", [(7, 32), (64, 32), (150, 32), (300, 2)])
def test_groups_of_rows_of_a_graph_move_in_turn(rng, n, groups, width, dtype):
    """Check coordinate descent with a graph term, in which groups of rows move in turn.

    Each group is minimised given the others; edges within a group are replaced by an upper bound.
    """
    W = sp.csr_array(graph_of(rng, n))
    Z, C = rng.random((n, K)).astype(dtype), rng.random((n, K)).astype(dtype) * 5
    A = rng.random((9, K))
    G, d = (A.T @ A).astype(dtype), rng.random(n).astype(dtype)
    r = rng.random((n, width)).astype(dtype)
    blocks = min(groups, -(-n // hals.LANES))
    args = (W.indptr, W.indices, W.data.astype(dtype), dtype(0.7), blocks, 2, 0.0)
    got, threads = Z.copy(), Z.copy()
    hals.hals_graph(got, C, G, d, r, *args)
    hals.hals_graph(threads, C, G, d, r, *args, 3)
    np.testing.assert_array_equal(got, threads)
    want, dense = Z.astype(float), W.toarray()
    for _ in range(2):
        for b in range(blocks):
            rows = np.arange(b, n, blocks)
            inside = dense[np.ix_(rows, rows)].sum(axis=1)
            near = dense[rows] @ want + inside[:, None] * want[rows]
            z = want[rows]
            for j in range(K):
                ridge = r[rows, j % width] + 0.7 * (dense[rows].sum(axis=1) + inside)
                slope = d[rows] * (z @ G[j]) + ridge * z[:, j] - C[rows, j] - 0.7 * near[:, j]
                z[:, j] = np.maximum(z[:, j] - slope / (d[rows] * G[j, j] + ridge), 0)
            want[rows] = z
    np.testing.assert_allclose(got, want, rtol=20 * SUMS[dtype], atol=20 * SUMS[dtype])


def test_rows_that_take_turns_go_down_and_end_where_bounds_do(rng):
    W = sp.csr_array(graph_of(rng, 90))
    X = rng.random((90, 20))
    Z, U = factors(rng, 90, 20, K, np.float64)
    written = Graph(Neighbors(W), W.sum(axis=1), 0.8)
    hidden = Graph(Hidden(W), W.sum(axis=1), 0.8)
    assert written.edges is not None and hidden.edges is None
    ends = []
    for term in (written, hidden):
        sub = FactorModel(DenseData(X), Frobenius(), terms_V=[term]).subproblem("V", Z, U)
        sub.sweeps = 5
        now, values = Z, [sub.value(Z)]
        for _ in range(200):
            now = hals_step(sub, now)
            values.append(sub.value(now))
        assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]))
        ends.append(now)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_of_a_graph_are_solved(rng, dtype, count, same, use_threads):
    use_threads(count)
    W = sp.csr_array(graph_of(rng, 40))
    degrees = W.sum(axis=1)
    b, c = rng.random((40, 1 if same else K)) + 0.1, rng.random((40, K))
    b = np.broadcast_to(b, c.shape)
    Z = rng.random((40, K)).astype(dtype)
    term = GraphDivergence(Neighbors(W), degrees.astype(dtype), 3.0)
    before = Z.copy()
    got = term._conjugate_gradient(b.astype(dtype), c.astype(dtype), Z)
    np.testing.assert_array_equal(Z, before)
    L = np.diag(degrees) - W.toarray()
    want = np.stack([np.linalg.solve(np.diag(b[:, j]) + 3 * L, c[:, j]) for j in range(K)], axis=1)
    limit = 1e-10 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    assert got.dtype == dtype
    assert term.cg_iterations == 0 if same else 0 < term.cg_iterations < 100


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(1, 1), (3, 40_000), (300, 70)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_of_logarithms_is_that_of_its_formula(rng, dtype, shape, order, use_threads):
    X = np.asarray(rng.random(shape), dtype, order=order)
    V, U = (np.exp(rng.uniform(-40, 40, (m, 4))).astype(dtype) for m in shape)
    V[0] = 0  # zeros are replaced by the smallest allowed value
    data = DenseData(X).part_of(1e-20, X.size)
    Y = np.maximum(V.astype(float) @ U.astype(float).T, data._low)
    terms = X * np.log(Y)
    want, limit = terms.sum(dtype=float), 4e-16 * np.abs(terms).sum() * np.sqrt(2 + X.size)
    found = data.log_sum(V, U)
    assert abs(found - want) <= limit
    use_threads(3)
    assert data.log_sum(V, U) == found
    use_threads(1)
    U[0, 0], V[-1] = np.inf, 1
    with np.errstate(invalid="ignore"):  # infinity times zero
        assert not np.isfinite(data.log_sum(V, U))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(200, 30), (7, 90), (50, 1)])
def test_a_transpose_is_scipys_whatever_the_runs(rng, dtype, index, shape):
    X = sp.random_array(shape, density=0.2, format="csr", dtype=dtype, random_state=rng)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    expected = X.T.tocsr()
    for cuts in ([0, shape[0]], [0, 3, 3, shape[0]], np.arange(shape[0] + 1).tolist()):
        runs = list(itertools.pairwise(cuts))
        for threads in (1, 2):
            found = products.transpose(X.indptr, X.indices, X.data, shape[1], runs, threads)
            for mine, theirs in zip(found, (expected.indptr, expected.indices, expected.data)):
                np.testing.assert_array_equal(mine, theirs)
                assert mine.dtype == (dtype if mine is found[2] else index)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 31, 32, 40_000, 100_003])
def test_an_overview_is_numpys_whatever_the_threads(rng, dtype, size):
    a, b = (rng.standard_normal(size).astype(dtype) for _ in range(2))
    least, most, total = sums.overview(a, b)
    assert (least, most) == (a.min(), a.max())
    assert total == pytest.approx(a.astype(float) @ b.astype(float), rel=1e-12, abs=1e-12)
    for threads in (2, 5):
        assert sums.overview(a, b, threads) == (least, most, total)
    a[size // 2] = np.nan
    assert np.isnan(sums.overview(a, a)[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (127, 5), (128, 16), (300, 37), (1513, 64)])
def test_norms_of_a_kkt_residual_are_those_of_its_formula(rng, dtype, n, k, use_threads):
    Z = np.maximum(rng.standard_normal((n, k)), 0).astype(dtype)
    B, C = rng.random((k + 3, k)).astype(dtype), (k * rng.random((n, k))).astype(dtype)
    G, scale = B.T @ B, rng.uniform(0.1, 3, k).astype(dtype)
    found = _lengths(Quadratic(C, G), Z, scale)
    use_threads(3)
    assert (_lengths(Quadratic(C, G), Z, scale) == found).all()
    z, c, pull = Z.astype(float), C.astype(float), Z.astype(float) @ G
    share = np.where(pull <= c, 1.0, np.minimum(1.0, z * scale))
    wanted = [np.linalg.norm(share * part) for part in (pull - c, c, pull)]
    # the norms are relative to the largest of one run of rows
    ratios = [found[0] * wanted[1] / found[1], found[2] * wanted[1] / found[1]]
    limit = 1e-4 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(ratios, [wanted[0], wanted[2]], rtol=limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (700, 3), (3, 700), (600, 900)])
def test_squares_of_a_residual_are_those_of_its_formula(rng, dtype, shape, use_threads):
    X, V, B = (rng.random(s).astype(dtype) for s in (shape, (shape[0], 4), (4, shape[1])))
    found = DenseData(X).total_squares(V, B.T)
    use_threads(3)
    assert DenseData(X).total_squares(V, B.T) == found
    left = X.astype(float) - V.astype(float) @ B.astype(float)
    assert found == pytest.approx((left**2).sum(), rel=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("k", [1, 8, 15, 16, 17, 24, 33, 48, 64, 67, 130])
def test_a_sparse_product_is_that_of_its_entries(rng, dtype, index, k):
    X = rng.random((57, 40)) * (rng.random((57, 40)) < 0.2)
    X[[0, 56]] = 0  # rows without entries
    X[3] = rng.random(40)
    S, B = sp.csr_array(X.astype(dtype)), rng.random((40, k)).astype(dtype)
    S.indptr, S.indices = S.indptr.astype(index), S.indices.astype(index)
    wanted = S.toarray().astype(float) @ B.astype(float)
    runs = [(0, 1), (1, 30), (30, 57)]
    found = [
        products.spmm(S.indptr, S.indices, S.data, B, lines, runs, threads)
        for lines in (4, 2, 1)
        for threads in (1, 3)
    ]
    # A sum of 40 terms, in which each product and each sum is rounded once.
    np.testing.assert_allclose(found[0], wanted, rtol=40 * np.finfo(dtype).eps)
    assert found[0].dtype == dtype
    assert all((other == found[0]).all() for other in found)


def test_nested_sparse_products_do_not_affect_each_other(rng, monkeypatch):
    X = sp.csr_array(sp.random_array((50, 40), density=0.3, random_state=rng, format="csr"))
    B, rows = rng.random((40, 9)), products.crew.rows
    product = partial(products.spmm, X.indptr, X.indices, X.data, runs=[(0, 50)], lines=4)
    wanted = product(B)

    def interrupted(*args):
        rows(*args)
        monkeypatch.undo()
        product(-B)  # a nested call, as from a signal handler

    monkeypatch.setattr(products.crew, "rows", interrupted)
    assert (product(B) == wanted).all()


def test_slabs_of_a_factor_fit_into_half_of_the_cache(rng, monkeypatch):
    monkeypatch.setattr(sparse, "last_cache", lambda: 64 * 1000)
    lines = [sparse.slab_lines(rows, 64) for rows in (1, 125, 126, 250, 251, 10**6)]
    assert lines == [4, 4, 2, 2, 1, 1]
    X = sp.csr_array(sp.random_array((2000, 300), density=0.1, random_state=rng, format="csr"))
    V = rng.random((2000, 40))
    found = sparse.multiply(X.T.tocsr(), V)
    monkeypatch.undo()
    assert sparse.last_cache() >= 1 << 18
    assert (found == sparse.multiply(X.T.tocsr(), V)).all()
    np.testing.assert_allclose(found, X.toarray().T @ V, rtol=1e-12)
    single = sparse.multiply(X.T.tocsr(), V.astype(np.float32))
    assert single.dtype == X.dtype  # scipy keeps the dtype, too
    np.testing.assert_allclose(single, found, rtol=1e-6)
