"""The engine piece by piece: products, kernels, terms, subproblems, steps, starts, the loop."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq, nnls

import partwise
import reference
from partwise.backends import SMALL_SPARSE, arrays, as_data
from partwise.backends.numpy import dense, kernels
from partwise.backends.numpy.dense import LINE, DenseData, lined
from partwise.backends.numpy.sparse import SparseData
from partwise.backends.sweeps import sweep_rows
from partwise.knowledge.labels import encode_labels
from partwise.model.factor_model import FactorModel, unit_columns
from partwise.model.graph_terms import Graph, GraphDivergence, Neighbors
from partwise.model.losses import Beta, Frobenius, KullbackLeibler
from partwise.model.maps import SharedRows
from partwise.model.subproblems import Divergence, Quadratic, kkt_residual
from partwise.model.terms import Linear, Ridge
from partwise.solvers import init, loop, wide
from partwise.solvers.codes import solve_codes
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import STEPS, hals, make_step, mu, nesterov, newton

# Sums of a few hundred terms of order one, reordered by BLAS and fastmath: some 100 eps.
SUMS = {np.float64: 1e-12, np.float32: 1e-4}
DTYPES = [np.float64, np.float32]


def assert_same(one, two):
    """Equal but for the last bits: of two functions that share a loop the compiler may fuse a
    multiplication and an addition in one and not in the other.
    """
    one, two = np.asarray(one), np.asarray(two)
    limit = 100 * np.finfo(two.dtype).eps
    np.testing.assert_allclose(one, two, rtol=limit, atol=limit * np.abs(two).max(initial=0))


def zeros_in(rng, n, p, density=0.4, dtype=np.float64):
    """Non-negative data with zero entries, one zero row and one zero column."""
    X = rng.uniform(0.1, 2.0, (n, p)) * (rng.uniform(size=(n, p)) < density)
    X[n // 2] = 0
    X[:, p // 3] = 0
    return X.astype(dtype)


def factors(rng, n, p, k, dtype=np.float64):
    V, U = rng.uniform(0.1, 1.0, (n, k)), rng.uniform(0.1, 1.0, (p, k))
    return V.astype(dtype), U.astype(dtype)


# --------------------------------------------------------------------------------------------
# Products: every back end against numpy on the dense matrix, in float64
# --------------------------------------------------------------------------------------------

BACKENDS = {
    "dense": DenseData,
    "fortran": lambda X: DenseData(np.asfortranarray(X)),
    "sparse": lambda X: SparseData(sp.csr_array(X)),
}
BETAS = [0.5, 1.5, 3.0]


@pytest.fixture(params=[None, 100], ids=["one block", "small blocks"])
def block_size(request, monkeypatch):
    """Products over blocks must not depend on where the blocks are cut."""
    if request.param:
        monkeypatch.setattr(arrays, "BLOCK_ENTRIES", request.param)


@pytest.fixture(params=[1, 3], ids=["serial", "threads"])
def threads(request, use_threads):
    use_threads(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("block_size", "threads")
class TestProducts:
    @pytest.fixture
    def case(self, rng, backend, dtype):
        X = zeros_in(rng, 31, 17, dtype=dtype)
        V, U = factors(rng, 31, 17, 4, dtype)
        return BACKENDS[backend](X), X.astype(float), V, U

    def check(self, got, expected, dtype):
        np.testing.assert_allclose(got, expected, rtol=SUMS[dtype], atol=SUMS[dtype])

    def test_linear(self, case, dtype):
        data, X, V, U = case
        assert data.shape == X.shape and data.dtype == dtype
        for got, expected in [(data.dot(U), X @ U), (data.tdot(V), X.T @ V)]:
            assert got.dtype == dtype
            self.check(got, expected, dtype)

    def test_by_row(self, case, dtype):
        data, X, V, U = case
        entries = np.where(X > 0, X * np.log(np.where(X > 0, X, 1)), 0)
        for got, expected in [
            (data.row_sq_norms(), (X**2).sum(axis=1)),
            (data.row_sums(), X.sum(axis=1)),
            (data.row_xlogx(), entries.sum(axis=1)),
            (data.row_sq_residuals(V, U), ((X - V @ U.T) ** 2).sum(axis=1)),
        ]:
            assert got.dtype == np.float64
            self.check(got, expected, dtype)

    def test_kl(self, case, dtype):
        data, X, V, U = case
        Y = V.astype(float) @ U.T
        product, xlogy = data.kl_dot(V, U)
        self.check(product, (X / Y) @ U, dtype)
        self.check(xlogy, (X * np.log(Y)).sum(axis=1), dtype)
        self.check(data.kl_tdot(V, U), (X / Y).T @ V, dtype)
        assert product.dtype == dtype and xlogy.dtype == np.float64

    @pytest.mark.parametrize("beta", BETAS)
    def test_beta(self, case, dtype, beta):
        data, X, V, U = case
        Y = V.astype(float) @ U.T
        num, den, rows = data.beta_dot(V, U, beta)
        P, Q = X * Y ** (beta - 2), Y ** (beta - 1)
        self.check(num, P @ U, dtype)
        self.check(den, Q @ U, dtype)
        self.check(rows, reference.beta_entries(X, Y, beta).sum(axis=1), dtype)
        num, den = data.beta_tdot(V, U, beta)
        self.check(num, P.T @ V, dtype)
        self.check(den, Q.T @ V, dtype)

    @pytest.mark.parametrize("with_weights", [False, True])
    @pytest.mark.parametrize("with_index", [False, True])
    def test_weighted(self, case, dtype, rng, with_weights, with_index):
        data, X, _, U = case
        weights = rng.uniform(0, 2, 31) if with_weights else None
        index = rng.integers(0, 9, 31) if with_index else None
        A = np.eye(31) if index is None else np.eye(9)[index]
        G = np.eye(31) if weights is None else np.diag(weights)
        made = data.weighted(weights, index, A.shape[1])
        assert made.dtype == dtype and made.shape == (A.shape[1], 17)
        self.check(made.dot(U), A.T @ G @ X @ U, dtype)

    def test_newton(self, case, dtype):
        """Dense and sparse rows take the same steps, on either factor."""
        data, X, V, U = case
        ridge = np.zeros((1, 1))
        for transposed in (False, True):
            Z, B = (U, V) if transposed else (V, U)
            cost = B.sum(axis=0, dtype=float)[None, :]
            new, xlogy = data.kl_newton(V, U, cost, ridge, 2, False, transposed=transposed)
            X2 = X.T if transposed else X
            expected = slow_newton(X2, Z, B, cost, ridge, 2)
            # second-order steps amplify rounding by their curvature ratio, about 100 here
            np.testing.assert_allclose(new, expected, rtol=100 * SUMS[dtype], atol=SUMS[dtype])
            if transposed:  # after the V step of an iteration nobody asks for it
                now = np.where(X2 > 0, X2 * np.log(np.maximum(new.astype(float) @ B.T, 1e-30)), 0)
                np.testing.assert_allclose(
                    xlogy, now.sum(axis=1), rtol=10 * SUMS[dtype], atol=10 * SUMS[dtype]
                )


@pytest.mark.parametrize("width", [0, 1, 16, 1021, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_begin_on_cache_lines(width, dtype):
    room = lined(3, width, np.dtype(dtype))
    places = [row.ctypes.data for row in room]
    assert room.shape[1] >= width and not any(place % LINE for place in places)
    assert len({place % 4096 for place in places}) == 3  # stores to one do not hold up loads


def test_small_sparse_is_made_dense_and_large_is_not():
    side = int(np.sqrt(SMALL_SPARSE))
    assert type(as_data(sp.csr_array((side, side)))) is DenseData
    assert type(as_data(sp.csr_array((side + 1, side + 1)))) is SparseData


@pytest.mark.parametrize("layout", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.coo_matrix])
def test_large_sparse_is_canonical_and_the_original_untouched(layout, rng):
    rows, columns = rng.integers(0, 250, 3000), rng.integers(0, 200, 3000)
    values = rng.integers(0, 3, 3000).astype(float)  # explicit zeros and duplicates
    X = layout(sp.coo_array((values, (rows, columns)), shape=(250, 200)))
    if layout is sp.csr_array:  # coo -> csr sums duplicates: put some back
        X = sp.csr_array(
            (np.ones(400), np.repeat(np.arange(100), 4), np.minimum(np.arange(251) * 2, 400)),
            shape=(250, 200),
        )
    before = X.copy()
    data = as_data(X)
    assert data.X.has_canonical_format and (data.X.data != 0).all()
    np.testing.assert_array_equal(data.X.toarray(), before.toarray())
    assert X.nnz == before.nnz
    np.testing.assert_array_equal(X.data, before.data)


def test_unknown_arrays_are_refused():
    with pytest.raises(TypeError, match="got list"):
        as_data([[1.0]])


# --------------------------------------------------------------------------------------------
# Kernels against slow loops
# --------------------------------------------------------------------------------------------


def slow_coordinate_descent(Z, C, G, d, r, sweeps):
    """min ½ d zᵀGz + ½ r·z² - cᵀz, z >= 0, one coordinate of one row at a time."""
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
        B[:, 1] = 0  # a part that is all zero: no curvature
    G = B.T @ B
    C = rng.uniform(-0.2, 2.0, (n, 2 * k + 3)) @ B
    if k > 2:
        C[::2, 1] = -1.0  # a linear cost sends it to zero
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
@pytest.mark.parametrize("n", [1, 64, 150])
def test_hals_rows_is_coordinate_descent(rng, n, k, weighted, dtype):
    Z, C, G, d, r = quadratic_problem(rng, n, k, dtype, weighted=weighted)
    expected = slow_coordinate_descent(Z, C, G, d, r, 3)
    kernels.hals_rows(Z, C, G, d, r, r, 3, 0.0, 0.0)
    np.testing.assert_allclose(Z, expected, rtol=10 * SUMS[dtype], atol=10 * SUMS[dtype])


def test_hals_rows_sees_nothing_of_the_rows_before(rng):
    for k in (8, 4):
        Z, C, G, d, r = quadratic_problem(rng, 64, k, np.float64, weighted=False)
        kernels.hals_rows(Z, C * np.nan, G, d, r, r, 1, 0.0, 0.0)
        assert np.isnan(Z).any()  # nor is what is no number made one
    Z, C, G, d, r = quadratic_problem(rng, 30, 5, np.float64, weighted=False)
    expected = slow_coordinate_descent(Z, C, G, d, r, 3)
    kernels.hals_rows(Z, C, G, d, r, r, 3, 0.0, 0.0)
    np.testing.assert_allclose(Z, expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hals_rows_ends_at_the_non_negative_least_squares_solution(rng, dtype):
    B, X = rng.uniform(size=(20, 5)), rng.uniform(-1, 1, (30, 20))
    Z = np.full((30, 5), 0.5, dtype)
    C, G = (X @ B).astype(dtype), (B.T @ B).astype(dtype)
    none = np.zeros((1, 1), dtype)
    kernels.hals_rows(Z, C, G, np.ones(1, dtype), none, none, 5000, 0.0, 0.0)
    expected = np.array([nnls(B, x)[0] for x in X])
    # condition of G is about 100; float32 products carry 1e-6
    np.testing.assert_allclose(Z, expected, atol=1e-9 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, "by row", "by entry"])
@pytest.mark.parametrize("threads", [2, 3])
def test_hals_rows_in_threads_is_the_serial_one(rng, dtype, weighted, threads):
    Z, *rest = quadratic_problem(rng, 777, 7, dtype, weighted=weighted)
    serial, parallel = Z.copy(), Z.copy()
    rest.append(rest[-1])
    kernels.hals_rows(serial, *rest, 8, 0.1, 0.0)
    kernels.hals_rows(parallel, *rest, 8, 0.1, 0.0, threads)
    np.testing.assert_array_equal(serial, parallel)
    assert not np.array_equal(serial, Z)


def kl_row_values(X, Z, B, cost, ridge):
    """f of each row: Σ (a + ½ ridge z) z - Σ x log y."""
    with np.errstate(divide="ignore"):
        logs = np.where(X > 0, X * np.log(np.where(X > 0, Z @ B.T, 1.0)), 0.0)
    return ((cost + 0.5 * ridge * Z) * Z).sum(axis=1) - logs.sum(axis=1)


def slow_newton(X, Z, B, cost, ridge, sweeps):
    """The step that `_newton_row` describes, with y made anew for each coordinate."""
    X, Z, B = X.astype(float), Z.astype(float).copy(), B.astype(float)
    cost = np.broadcast_to(cost, Z.shape)
    ridge = np.broadcast_to(ridge, Z.shape)
    for i in range(len(Z)):
        for _ in range(sweeps):
            for j in range(Z.shape[1]):
                y = B @ Z[i]
                t = np.divide(B[:, j], y, out=np.zeros_like(y), where=X[i] > 0)
                N, h = X[i] @ t, X[i] @ t**2
                old, a = Z[i, j], cost[i, j]
                if old == 0 and N <= a:
                    continue
                if h > 0:  # the larger root of (a + ridge z)(q + z) = p
                    p, q = N**2 / h, max(N / h - old, 0.0)
                    new = max(
                        np.roots(np.trim_zeros([ridge[i, j], a + ridge[i, j] * q, a * q - p], "f"))
                    )
                else:
                    new = 0.0 if a + ridge[i, j] * old > 0 else old
                if new <= 0:
                    new = 0.0
                    alone = (X[i] > 0) & (y - old * B[:, j] <= 1e-3 * y)
                    if old > 0 and alone.any():
                        new = 0.1 * old
                Z[i, j] = new
    return Z


def newton_problem(rng, dtype, *, ridge):
    X = zeros_in(rng, 60, 25, dtype=dtype)
    Z, B = factors(rng, 60, 25, 5, dtype)
    B[rng.uniform(size=B.shape) < 0.3] = 0
    cost = B.sum(axis=0, dtype=float) + rng.uniform(0, 1, (60, 5))
    width = {True: 1, "by entry": 5}.get(ridge, 1)
    return X, Z, B, cost, rng.uniform(0.1, 1, (60, width)) if ridge else np.zeros((1, 1))


def run_newton(kind, X, Z, B, cost, ridge, sweeps):
    """Sweeps on V, and Σ x log y from the same sweeps on the transposed problem."""
    new, _ = BACKENDS[kind](X).kl_newton(Z, B, cost, ridge, sweeps, False, transposed=False)
    flipped = np.ascontiguousarray(X.T)
    again, xlogy = BACKENDS[kind](flipped).kl_newton(
        B, Z, cost, ridge, sweeps, False, transposed=True
    )
    # the one place where transposed data meets other strides: nothing but the order of sums
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
        Z[::3] *= 30  # far too large, and far too small
        Z[1::3] *= 1e-3
        keep = (X > 0) <= (B.sum(axis=1) > 0)  # x > 0 where no part reaches cannot be explained
        X = np.where(keep, X, 0).astype(dtype)
        before = kl_row_values(X, Z.astype(float), B, cost, r)
        first = before
        for _ in range(12):
            Z, _ = run_newton(kind, X, Z, B, cost, r, 1)
            after = kl_row_values(X, Z.astype(float), B, cost, r)
            # rounding of sums of size |f|, in the dtype of the kernel
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
        # costs are of order ten; first-order sweeps in float32 stop at its rounding
        limit = 1e-6 if dtype == np.float64 else 1e-2
        assert (gradient > -limit).all()
        assert (np.abs(gradient * Z) < limit).all()
        logs = np.where(X > 0, X * np.log(np.where(X > 0, Y, 1)), 0).sum(axis=1)
        np.testing.assert_allclose(xlogy, logs, rtol=SUMS[dtype], atol=SUMS[dtype])

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
    # what it reports is the exact value of where it ended
    _, logs = DenseData(X.T).kl_newton(B, Z, cost, r, 2, True, transposed=True)
    Y = np.maximum(rough @ B.T, 1e-30)
    np.testing.assert_allclose(logs, (X * np.log(Y)).sum(axis=1), rtol=1e-10, atol=1e-10)


def test_rough_steps_end_where_exact_ones_do(rng, monkeypatch):
    """They are for the way there; the last digits are the exact step's."""
    monkeypatch.setattr("partwise.backends.numpy.dense.ROUGH_WORK", 0)
    X = rng.random((60, 5)) @ rng.random((5, 40)) + 0.05 * rng.random((60, 40))
    V, U = factors(rng, 60, 40, 5, np.float64)
    ends = []
    for rough in (None, make_step("newton", rough=True)):
        model = FactorModel(DenseData(X), KullbackLeibler())
        settings = Settings(3000, 1e-6, warmup=3, rough=rough)
        solution = alternate(model, V, U, newton, settings)
        assert solution.converged and "KKT" in solution.status
        assert np.all(np.diff(solution.history) <= 0)
        ends.append(solution.history[-1])
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("n, groups", [(7, 32), (64, 32), (150, 32), (300, 2)])
def test_rows_of_a_graph_take_turns(rng, n, groups, width, dtype):
    """Groups one after the other, each exact given the rest; edges inside one by their bound."""
    W = sp.csr_array(graph_of(rng, n))
    Z, C = rng.random((n, K)).astype(dtype), rng.random((n, K)).astype(dtype) * 5
    A = rng.random((9, K))
    G, d = (A.T @ A).astype(dtype), rng.random(n).astype(dtype)
    r = rng.random((n, width)).astype(dtype)
    blocks = min(groups, -(-n // kernels.LANES))
    args = (W.indptr, W.indices, W.data.astype(dtype), dtype(0.7), blocks, 2, 0.0)
    got, threads = Z.copy(), Z.copy()
    kernels.hals_graph(got, C, G, d, r, *args)
    kernels.hals_graph(threads, C, G, d, r, *args, 3)
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
            now = hals(sub, now)
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_kl_pass_in_threads_is_the_serial_one(rng, dtype, use_threads):
    """TestProducts holds both to the formula."""
    X = zeros_in(rng, 50, 30, dtype=dtype)
    V, U = factors(rng, 50, 30, 6, dtype)
    results = []
    for count in (1, 3):
        use_threads(count)
        data = SparseData(sp.csr_array(X))
        results.append((*data.kl_dot(V, U), data.kl_tdot(V, U)))
    for serial, parallel in zip(*results):
        np.testing.assert_array_equal(serial, parallel)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(10_103, 7), (13, 4_099), (5, 6)])
def test_products_of_a_large_array_with_few_columns(rng, monkeypatch, dtype, order, shape):
    X = np.asarray(rng.random(shape), dtype, order=order)
    V, U = (rng.random((m, 7)).astype(dtype) for m in shape)
    assert dense.narrow_product(X, U) is None, "small ones compile nothing"
    monkeypatch.setattr(dense, "NARROW", 0)
    monkeypatch.setattr(dense, "LONG", 1)
    monkeypatch.setattr(dense, "_many_registers", lambda: True)
    exact = X.astype(float) @ U.astype(float), X.astype(float).T @ V.astype(float)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(dense, "threads_for", lambda work: threads)  # noqa: B023
        blas = order == "F" and dtype == np.float64  # BLAS is faster there
        assert (dense.narrow_product(X, U) is None) == blas
        data = DenseData(X)
        results.append((data.dot(U), data.tdot(V)))
    # errors of a sum of n terms of one sign walk at random: √n eps, the same in what it is held to
    rtol = max(16, np.sqrt(max(shape))) * np.finfo(dtype).eps
    for one, three, want in zip(*results, exact):
        assert one.flags.c_contiguous and one.dtype == dtype
        np.testing.assert_allclose(one, want, rtol=rtol)
        np.testing.assert_array_equal(one, three)


def test_row_kernels_do_not_depend_on_the_number_of_threads(rng, use_threads):
    X = zeros_in(rng, 300, 40)
    V, U = factors(rng, 300, 40, 6)
    cost, ridge = U.sum(axis=0)[None, :], np.zeros((1, 1))
    results = []
    for count in (1, 2, 7):
        use_threads(count)
        sparse, full = SparseData(sp.csr_array(X)), DenseData(X)
        sub = Quadratic(X @ U, U.T @ U, sweeps=5)
        results.append(
            [
                hals(sub, V),
                *sparse.kl_dot(V, U),
                *sparse.kl_newton(V, U, cost, ridge, 1, False, transposed=False),
                *full.kl_newton(V, U, cost, ridge, 1, False, transposed=False),
            ]
        )
    for one, *others in zip(*results):
        for other in others:
            np.testing.assert_array_equal(one, other)


# --------------------------------------------------------------------------------------------
# Terms
# --------------------------------------------------------------------------------------------

N, P, K = 9, 7, 3


class Hidden:
    """A graph that is only known by its products."""

    edges = None

    def __init__(self, W):
        self.product = lambda Z: W @ Z
        self.degrees = np.asarray(W.sum(axis=1))

    def __call__(self, Z):
        return self.product(Z)

    def laplacian(self, Z):
        return self.degrees[:, None] * Z - self.product(Z)


def graph_of(rng, n=N):
    W = np.triu(rng.uniform(size=(n, n)) * (rng.uniform(size=(n, n)) < 0.4), 1)
    W[:, 0] = 0
    W[0] = 0  # a sample without neighbours
    return W + W.T


TERMS = {
    "l1": lambda rng: Linear(np.full((1, 1), 0.3)),
    "class cost": lambda rng: Linear(rng.uniform(size=(N, K))),
    "l2": lambda rng: Ridge(np.full((1, 1), 0.7)),
    "l2 by row": lambda rng: Ridge(rng.uniform(size=(N, 1))),
    "l2 by entry": lambda rng: Ridge(rng.uniform(size=(N, K))),
    "l2 by column": lambda rng: Ridge(rng.uniform(size=(1, K))),
    "graph": lambda rng: (lambda W: Graph(Neighbors(W), W.sum(axis=1), 0.8))(
        sp.csr_array(graph_of(rng))
    ),
    "hidden graph": lambda rng: (lambda W: Graph(Hidden(W), W.sum(axis=1), 0.8))(graph_of(rng)),
}


def term_value(name, term, Z):
    """The formula, independent of the class's methods."""
    if isinstance(term, Linear):
        return (np.broadcast_to(term.cost, Z.shape) * Z).sum()
    if isinstance(term, Ridge):
        return 0.5 * (np.broadcast_to(term.weight, Z.shape) * Z**2).sum()
    W = term.neighbors(np.eye(N))
    pairs = sum(W[i, j] * ((Z[i] - Z[j]) ** 2).sum() for i in range(N) for j in range(N))
    return 0.5 * term.weight * 0.5 * pairs  # λ/2 tr(ZᵀLZ) = λ/4 Σ_ij W_ij ‖z_i - z_j‖²


@pytest.mark.parametrize("name", TERMS)
class TestTerms:
    @pytest.fixture
    def term(self, rng, name):
        return TERMS[name](rng)

    def test_value(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        assert term.value(Z) == pytest.approx(term_value(name, term, Z), rel=1e-12)

    def test_split_is_the_gradient(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        neg, pos = term.split(Z)
        assert (neg >= 0).all() and (pos >= 0).all()
        expected = reference.numerical_gradient(lambda A: term_value(name, term, A), Z)
        # central differences with step 1e-6 are good to about 1e-9
        np.testing.assert_allclose(np.broadcast_to(pos - neg, Z.shape), expected, atol=1e-7)
        slope = np.broadcast_to(term.gradient(Z), Z.shape)
        np.testing.assert_allclose(slope, expected, atol=1e-7)

    def test_bound_touches_and_majorises(self, name, term, rng):
        Z = rng.uniform(size=(N, K)) * (rng.uniform(size=(N, K)) < 0.7)
        linear, ridge = term.bound(Z).about_zero(Z)
        assert ridge.shape in ((1, 1), (N, 1), (1, K), (N, K)) and (ridge >= 0).all()

        def bound(A):
            return (linear * A).sum() + 0.5 * (ridge * A**2).sum()

        offset = term_value(name, term, Z) - bound(Z)
        for scale in (0.01, 0.3, 1.0, 10.0):
            for _ in range(20):
                A = np.maximum(Z + scale * rng.standard_normal(Z.shape), 0)
                value = term_value(name, term, A)
                assert bound(A) + offset >= value - 1e-12 * (1 + abs(value))
        slope = reference.numerical_gradient(bound, Z)
        expected = reference.numerical_gradient(lambda A: term_value(name, term, A), Z)
        np.testing.assert_allclose(slope, expected, atol=1e-7)

    def test_lipschitz_bounds_the_hessian_and_is_no_larger_than_twice_it(self, name, term):
        columns = [
            np.broadcast_to(np.subtract(*term.split(e)[::-1]), (N, K)).ravel()
            for e in np.eye(N * K).reshape(-1, N, K)
        ]
        at_zero = np.subtract(*term.split(np.zeros((N, K)))[::-1])
        hessian = np.array(columns) - np.broadcast_to(at_zero, (N, K)).ravel()
        largest = np.linalg.eigvalsh(hessian).max()
        assert largest <= term.lipschitz() + 1e-12
        if largest > 1e-12:  # a loose bound would make gradient steps crawl
            assert term.lipschitz() <= 2 * largest + 1e-12

    def test_degree_and_coupling(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        assert term.value(3 * Z) == pytest.approx(3**term.degree * term.value(Z), rel=1e-12)
        if not term.couples:
            moved = Z.copy()
            moved[4] += 1
            before, after = (np.subtract(*term.split(A)[::-1]) for A in (Z, moved))
            before, after = (np.broadcast_to(g, Z.shape) for g in (before, after))
            np.testing.assert_array_equal(np.delete(before, 4, 0), np.delete(after, 4, 0))


# --------------------------------------------------------------------------------------------
# Subproblems and models: value and gradient against the naive objective
# --------------------------------------------------------------------------------------------


LABELS = np.array([0, 0, 1, -1, 2, 2, -1, 2, 1])


def naive_value(X, Z, U, loss, *, index=None, gamma=None, delta=0.0, terms_V=(), terms_U=()):
    A = np.eye(len(X)) if index is None else np.eye(len(Z))[index]
    S = reference.smoothing_matrix(U.shape[1], delta)
    Y = A @ Z @ S @ U.T
    value = reference.weighted_sum(reference.beta_entries(X, Y, loss.beta), gamma)
    value += sum(t.value(Z) for t in terms_V)  # tested above against formulas
    return value + sum(t.value(U) for t in terms_U)


def l1_l2():
    return [Linear(np.full((1, 1), 0.2)), Ridge(np.full((1, 1), 0.3))]


MODELS = {
    "plain": {},
    "weights": {"gamma": True},
    "penalties": {"terms_V": l1_l2(), "terms_U": l1_l2()},
    "labels": {"labels": True},
    "smoothing": {"delta": 0.4},
    "graph": {"graph": True},
    "all": {
        "gamma": True,
        "labels": True,
        "delta": 0.4,
        "terms_V": l1_l2(),
        "terms_U": l1_l2(),
    },
}
LOSSES = [Frobenius(), KullbackLeibler()]
LOSS_IDS = ["frobenius", "kl"]


def make_case(rng, name, loss, kind="dense"):
    """A model, its naive objective as a function of (Z, U), and a positive point."""
    spec = dict(MODELS[name])
    X = zeros_in(rng, N, P, density=0.7)
    gamma = rng.uniform(0.2, 2.0, N) if spec.pop("gamma", False) else None
    if spec.pop("graph", False):
        W = graph_of(rng)
        spec["terms_V"] = [Graph(Hidden(W), W.sum(axis=1), 0.8)]
    delta = spec.pop("delta", 0.0)
    rows = SharedRows(encode_labels(LABELS, N).codes, N) if spec.pop("labels", False) else None
    index = None if rows is None else rows.index
    model = FactorModel(BACKENDS[kind](X), loss, weights=gamma, rows=rows, smoothing=delta, **spec)

    def naive(Z, U):
        return naive_value(X, Z, U, loss, index=index, gamma=gamma, delta=delta, **spec)

    Z, U = factors(rng, N if rows is None else rows.n_rows, P, K)
    return model, naive, Z, U


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", MODELS)
def test_model_value_and_gradients(rng, name, loss, kind):
    model, naive, Z, U = make_case(rng, name, loss, kind)
    expected = naive(Z, U)
    # the expansion of the square cancels terms about ten times the value
    assert model.value(Z, U) == pytest.approx(expected, rel=1e-12)
    assert model.exact_value(Z, U) == pytest.approx(expected, rel=1e-12)
    for side, at, f in (("V", Z, lambda A: naive(A, U)), ("U", U, lambda A: naive(Z, A))):
        sub = model.subproblem(side, Z, U)
        assert sub.value(at) == pytest.approx(expected, rel=1e-12)
        other = at * rng.uniform(0.5, 1.5, at.shape)
        assert sub.value(other) == pytest.approx(f(other), rel=1e-12)
        neg, pos = model.subproblem(side, Z, U).split(at)
        assert (neg >= 0).all() and (pos >= 0).all()
        gradient = np.broadcast_to(pos - neg, at.shape)
        # central differences of values near 30 with step 1e-6 carry 30 eps / 1e-6 = 1e-8
        np.testing.assert_allclose(
            gradient, reference.numerical_gradient(f, at), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("beta", [0.5, 1.5, 3.0])
def test_beta_model_value_and_gradients(rng, beta):
    loss = Beta(beta)
    model, naive, Z, U = make_case(rng, "penalties", loss)
    assert model.value(Z, U) == pytest.approx(naive(Z, U), rel=1e-12)
    for side, at, f in (("V", Z, lambda A: naive(A, U)), ("U", U, lambda A: naive(Z, A))):
        neg, pos = model.subproblem(side, Z, U).split(at)
        np.testing.assert_allclose(
            pos - neg, reference.numerical_gradient(f, at), rtol=1e-6, atol=1e-6
        )


def test_exact_value_of_a_perfect_fit(rng):
    """The expanded square leaves eps ‖X‖²; summed residuals leave eps² ‖X‖²."""
    V, U = factors(rng, 40, 30, 3)
    model = FactorModel(DenseData(V @ U.T), Frobenius())
    assert 0 <= model.exact_value(V, U) <= 1e-28 * model.constant


def test_reduce_and_expand_are_means_over_shared_rows(rng):
    rows = SharedRows(encode_labels(LABELS, N).codes, N)
    model = FactorModel(DenseData(np.ones((N, P))), Frobenius(), rows=rows)
    V = rng.uniform(size=(N, K))
    A = reference.label_matrix(LABELS)
    Z = model.reduce(V)
    np.testing.assert_allclose(Z, reference.shared_rows(A, V), rtol=1e-14)
    np.testing.assert_array_equal(model.expand(Z), A @ Z)


def naive_kkt(Z, neg, pos, slopes, misfit):
    """The residual as its docstring states it, entry by entry."""
    parts = np.zeros(3 + len(slopes))
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            each = [slope[i, j] for slope in slopes]
            g, share = pos[i, j] - neg[i, j] + sum(each), 1.0
            if g > 0:
                mean = Z[:, j].mean()
                share = min(1.0, Z[i, j] / mean) if mean > 0 else 0.0
            parts += (share * np.array([g, pos[i, j], neg[i, j], *each])) ** 2
    g, p, n, *rest = np.sqrt(parts)
    return min(1.0, g / (misfit * (p + n) + sum(rest)))


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", ["plain", "penalties", "smoothing", "graph"])
def test_kkt_residual(rng, name, loss):
    model, _, Z, U = make_case(rng, name, loss)
    Z[rng.uniform(size=Z.shape) < 0.3] = 0
    Z[:, 0] += 0.1  # every row keeps a part, for the ratios of KL
    for side, at in (("V", Z), ("U", U)):
        sub = model.subproblem(side, Z, U)
        halves = (np.broadcast_to(a, at.shape) for a in sub.halves(at))
        slopes = [np.broadcast_to(np.subtract(*t.split(at)[::-1]), at.shape) for t in sub.terms]
        neg, pos = halves
        for misfit in (1.0, 0.01):
            got = kkt_residual(sub, at, misfit)
            expected = naive_kkt(at, neg, pos, slopes, misfit)
            assert got == pytest.approx(expected, rel=1e-12)
            assert 0 < got <= 1
        minus, plus = sub.split(at)
        total = pos - neg + sum(slopes)
        np.testing.assert_allclose(total, plus - minus + 0 * at, rtol=1e-9, atol=1e-12)


def test_kkt_residual_counts_a_weighted_row_like_repeated_rows(rng):
    X = zeros_in(rng, N, P, density=0.7)
    Z, U = factors(rng, N, P, K)
    counts = rng.integers(1, 4, N)
    for loss in LOSSES:
        once = FactorModel(DenseData(X), loss, weights=counts.astype(float))
        often = FactorModel(DenseData(np.repeat(X, counts, axis=0)), loss)
        Z2 = np.repeat(Z, counts, axis=0)
        for side in "VU":
            a = kkt_residual(once.subproblem(side, Z, U), Z if side == "V" else U)
            b = kkt_residual(often.subproblem(side, Z2, U), Z2 if side == "V" else U)
            assert a == pytest.approx(b, rel=1e-12)


def test_kkt_residual_is_zero_at_a_minimum(rng):
    B, X = rng.uniform(size=(20, 4)), rng.uniform(-1, 1, (15, 20))
    Z = np.array([nnls(B, x)[0] for x in X])
    assert (Z == 0).any()
    assert kkt_residual(Quadratic(X @ B, B.T @ B), Z) < 1e-12


def test_quadratic_lipschitz_and_row_weights(rng):
    G = (lambda B: B.T @ B)(rng.uniform(size=(8, 3)))
    d = rng.uniform(0, 2, N)
    sub = Quadratic(rng.uniform(size=(N, 3)), G, d=d, terms=[Ridge(np.full((1, 1), 0.5))])
    hessian = np.kron(np.diag(d), G) + 0.5 * np.eye(3 * N)
    assert sub.lipschitz() == pytest.approx(np.linalg.eigvalsh(hessian).max(), rel=1e-12)


# --------------------------------------------------------------------------------------------
# Steps
# --------------------------------------------------------------------------------------------

STEP_LOSS = [
    ("mu", Frobenius()),
    ("hals", Frobenius()),
    ("nesterov", Frobenius()),
    ("mu", KullbackLeibler()),
    ("newton", KullbackLeibler()),
    ("mu", Beta(0.5)),
    ("mu", Beta(1.5)),
    ("mu", Beta(3.0)),
]


# newton is for terms that do not couple rows, the graph of KL is a term of its own, and the other
# divergences are for the plain model
STEP_CASES = [
    pytest.param(step, loss, name, id=f"{step}-{loss.beta:g}-{name}")
    for step, loss in STEP_LOSS
    for name in MODELS
    if (name in ("plain", "penalties") if isinstance(loss, Beta) else True)
    and not (loss.beta == 1 and name == "graph")
]


@pytest.mark.parametrize(("step", "loss", "name"), STEP_CASES)
def test_steps_descend_are_pure_and_stay_non_negative(rng, step, loss, name):
    model, naive, Z, U = make_case(rng, name, loss)
    for _ in range(5):
        for side in "VU":
            sub = model.subproblem(side, Z, U)
            at = Z if side == "V" else U
            kept = at.copy()
            new = STEPS[step](sub, at)
            np.testing.assert_array_equal(at, kept)
            assert (new >= 0).all() and np.isfinite(new).all()
            before = naive(Z, U)
            Z, U = (new, U) if side == "V" else (Z, new)
            # rounding of a value near 30
            assert naive(Z, U) <= before * (1 + 1e-13)


@pytest.mark.parametrize("name", ["plain", "weights", "penalties", "labels", "smoothing"])
@pytest.mark.parametrize(
    ("step", "loss", "rounds"),
    [
        ("hals", Frobenius(), 400),
        ("nesterov", Frobenius(), 400),
        ("newton", KullbackLeibler(), 400),
    ],
    ids=["hals", "nesterov", "newton"],
)
def test_steps_solve_the_convex_half(rng, name, step, loss, rounds):
    """With the basis fixed every step ends at a KKT point, and so at the one minimum."""
    model, _, Z, U = make_case(rng, name, loss)
    for _ in range(rounds):
        Z = STEPS[step](model.subproblem("V", Z, U), Z)
    gradient = np.subtract(*model.subproblem("V", Z, U).split(Z)[::-1])
    # gradients are of order one; nesterov from a stationary start converges linearly to 1e-7
    assert gradient.min() > -1e-6
    assert np.abs(gradient * Z).max() < 1e-6


def test_hals_shuffled_order_solves_the_same_problem(rng):
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    sub = model.subproblem("V", Z, U)
    sub.sweeps = 1000
    straight = hals(sub, Z, stop=0.0)
    shuffled = hals(sub, Z, stop=0.0, order=np.array([2, 0, 1]))
    np.testing.assert_allclose(straight, shuffled, atol=1e-9)  # the minimum is unique


def test_nesterov_against_the_reference(rng):
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    got = nesterov(model.subproblem("V", Z, U), Z, inner_iter=7)
    X, G = model.data.X, U.T @ U
    expected = reference.accelerated(
        lambda A: A @ G - X @ U, np.linalg.norm(G, 2), Z.copy(), inner_iter=7
    )
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def test_nesterov_without_curvature_stays():
    Z = np.ones((3, 2))
    np.testing.assert_array_equal(nesterov(Quadratic(np.zeros((3, 2)), np.zeros((2, 2))), Z), Z)


@pytest.mark.parametrize("beta", [-0.5, 0.0, 0.5, 1.0, 1.3, 1.8])
def test_em_with_ridge_solves_its_equation(rng, beta):
    """cost q^max(β-1,0) + ridge Z q = product q^min(β-2,0): its root by bisection."""
    Z, product, cost = (rng.uniform(0.05, 3.0, (6, 4)) for _ in range(3))
    ridge = 0.7
    sub = Divergence(
        lambda: product,
        cost,
        beta=beta,
        terms=[Linear(np.full((1, 1), 0.2)), Ridge(np.full((1, 1), ridge))],
        evaluate=lambda Z: 0.0,
    )
    got = mu(sub, Z)
    for index in np.ndindex(Z.shape):
        b, c, z = cost[index] + 0.2, product[index], Z[index]
        root = brentq(
            lambda q: b * q ** max(beta - 1, 0) + ridge * z * q - c * q ** min(beta - 2, 0),  # noqa: B023
            1e-6,
            1e6,
            xtol=1e-15,
            rtol=1e-15,
        )
        assert got[index] == pytest.approx(z * root, rel=1e-10)


def test_newton_needs_few_sweeps_of_a_poisson_mean():
    """One coordinate, many counts: the minimiser is Σx / Σb, reached from far away."""
    x, b = np.array([[3.0, 1.0, 5.0, 2.0]]), np.array([[1.0, 0.5, 2.0, 1.0]]).T
    model = FactorModel(DenseData(x), KullbackLeibler())
    for start in (1e-4, 1.0, 1e4):
        Z = np.full((1, 1), start)
        for _ in range(6):
            Z = newton(model.subproblem("V", Z, b), Z)
        assert Z[0, 0] == pytest.approx(x.sum() / b.sum(), rel=1e-9)


# --------------------------------------------------------------------------------------------
# Unit scale, the loop, codes
# --------------------------------------------------------------------------------------------

UNIT_TERMS = {
    "l1": lambda rng, n: [Linear(np.full((1, 1), 0.2))],
    "l2": lambda rng, n: [Ridge(np.full((1, 1), 0.3))],
    "class cost": lambda rng, n: [Linear(rng.integers(0, 2, (n, K)).astype(float))],
    "graph": lambda rng, n: [(lambda W: Graph(Hidden(W), W.sum(axis=1), 0.8))(graph_of(rng, n))],
}


@pytest.mark.parametrize("norm", [1, 2])
def test_unit_columns(rng, norm):
    Z, U = factors(rng, N, P, K)
    U[:, 1] = 0
    Z2, U2 = unit_columns(Z, U, norm)
    np.testing.assert_allclose(np.linalg.norm(U2, norm, axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(Z2 @ U2.T, Z @ U.T, rtol=1e-13)


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", UNIT_TERMS)
def test_moving_the_length_over_keeps_the_unit_objective(rng, name, loss):
    X = zeros_in(rng, N, P, density=0.7)
    terms = UNIT_TERMS[name](rng, N)
    model = FactorModel(DenseData(X), loss, terms_V=terms, unit=True)
    Z, U = factors(rng, N, P, K)
    Z1, U1 = model.normalize(Z, U)
    expected = naive_value(X, Z1, U1, loss, terms_V=terms)
    assert model.value(Z1, U1) == pytest.approx(expected, rel=1e-12)
    assert model.value(Z, U) == pytest.approx(expected, rel=1e-12)


UNIT_CASES = [
    pytest.param(step, loss, name, id=f"{step}-{loss.beta:g}-{name}")
    for step, loss in STEP_LOSS
    for name in UNIT_TERMS
    if not isinstance(loss, Beta) and not (loss.beta == 1 and name == "graph")
]


@pytest.mark.parametrize(("step", "loss", "name"), UNIT_CASES)
def test_unit_loop_holds_the_constraint_and_never_rises(rng, step, loss, name):
    X = zeros_in(rng, 30, 12, density=0.7)
    terms = UNIT_TERMS[name](rng, 30)
    model = FactorModel(DenseData(X), loss, terms_V=terms, unit=True)
    Z, U = factors(rng, 30, 12, K)
    settings = Settings(max_iter=60, tol=0.0, extrapolate=step != "mu")
    result = alternate(model, Z, U, STEPS[step], settings)
    assert np.diff(result.history).max() <= 0
    assert result.history[-1] < 0.99 * model.value(Z, U)
    np.testing.assert_allclose(np.linalg.norm(result.U, loss.unit_norm, axis=0), 1, rtol=1e-12)
    expected = naive_value(X, result.Z, result.U, loss, terms_V=terms)
    assert result.history[-1] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
def test_loop_takes_the_half_steps_in_order(rng, order, loss):
    model, _, Z, U = make_case(rng, "plain", loss)
    settings = Settings(max_iter=10, tol=0.0, order=order, extrapolate=False, guard=False)
    result = alternate(model, Z, U, mu, settings)
    run = reference.nmf_frobenius if loss.beta == 2 else reference.nmf_kl
    V, B, history = run(model.data.X, Z, U, 10, order=order)
    np.testing.assert_allclose(result.Z, V, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.U, B, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.history, history, rtol=1e-11)
    assert result.n_iter == 10 and not result.converged


def test_loop_stops_on_change_where_fixed_points_are_not_stationary(rng):
    model, _, Z, U = make_case(rng, "plain", KullbackLeibler())
    settings = Settings(max_iter=5000, tol=1e-3, stationary=False, extrapolate=False, guard=False)
    result = alternate(model, Z, U, mu, settings)
    assert result.converged and "relative change of the factors" in result.status
    assert 1 < result.n_iter < 5000


def test_loop_undoes_a_step_that_rises(rng):
    """A step that always goes up is taken back and in the end replaced by mu."""
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    settings = Settings(max_iter=40, tol=0.0)
    start = model.value(Z, U)
    result = alternate(model, Z, U, lambda sub, A: 10 * A, settings)
    assert (np.diff(result.history) <= 0).all()
    # the start is summed by itself, the history shifted to its exact end: sums of X.size terms
    assert result.history[0] <= start + model.data.X.size * model.eps * model.size
    assert result.history[-1] == pytest.approx(model.value(result.Z, result.U), rel=1e-12)


def test_a_history_that_is_shifted_or_joined_never_rises(rng):
    """``value + (exact - value)`` is a last bit below exact as often as above it."""
    below = 0
    for value, exact in rng.uniform(0.1, 1.0, (200, 2)):
        below += value + (exact - value) < exact
        history = loop.shifted([value * 1.5, value, value], exact - value, exact)
        assert (np.diff([*history, exact]) <= 0).all()
        assert (np.diff(loop.joined([1.5 * value, value], [np.nextafter(value, 1)])) <= 0).all()
    assert below > 0


def test_starts_side_by_side_are_shifted_so_that_none_rises(rng):
    model = FactorModel(DenseData(rng.random((12, 8))), Frobenius())
    runs = wide.Wide(model, Settings(max_iter=9, tol=0.0))
    runs.begin([(*factors(rng, 12, 8, K), hals) for _ in range(40)], 0)
    for _ in range(3):
        runs.advance(look=False)
    for r in range(40):
        # added up, a perfect fit's value can be off by more than all of it
        runs.value[r] *= 3 + rng.random()
        runs.history[r].append(float(runs.value[r]))
        runs.sum_again(r)
        assert (np.diff([*runs.history[r], runs.value[r]]) <= 0).all()


@pytest.mark.parametrize("estimator", ["NMF", "GNMF", "CDNMF"])
def test_what_a_device_begins_before_its_value_is_known_is_taken_back(rng, monkeypatch, estimator):
    X = rng.random((60, 30)).astype(np.float32)
    y = np.where(np.arange(60) < 12, np.arange(60) % 3, -1)
    given = {} if estimator == "NMF" else {"y": y}
    monkeypatch.setattr(wide, "can", lambda *problem: False)  # that is no loop of a device
    model = getattr(partwise, estimator)(4, max_iter=80, tol=0, init="random", random_state=0)
    plain = model.fit(X, **given)
    known, back = dict(vars(plain)), []
    monkeypatch.setattr(loop, "coming", lambda value: lambda: float(value))
    take_back = loop._take_back
    monkeypatch.setattr(
        loop, "_take_back", lambda state, how: (back.append(state.n), take_back(state, how))
    )
    guessed = model.fit(X, **given)
    assert back  # momentum goes too far at least once
    for name in ("objective_history_", "components_", "embedding_"):
        np.testing.assert_array_equal(getattr(guessed, name), known[name])


@pytest.mark.parametrize("name", ["plain", "weights", "penalties", "smoothing"])
def test_solve_codes_is_non_negative_least_squares(rng, name):
    model, _, Z, U = make_case(rng, name, Frobenius())
    got, _ = solve_codes(model, Z, U, hals, tol=1e-6, max_iter=200)
    S = reference.smoothing_matrix(K, model.S.delta)
    B, X = U @ S.T, model.data.X
    for i, x in enumerate(X):
        if name == "penalties":  # ½‖x - Bz‖² + 0.2 Σz + 0.15‖z‖² as least squares
            A = np.linalg.cholesky(B.T @ B + 0.3 * np.eye(K)).T
            expected = nnls(A, np.linalg.solve(A.T, B.T @ x - 0.2))[0]
        else:
            expected = nnls(B, x)[0]
        np.testing.assert_allclose(got[i], expected, atol=1e-6)  # sweeps stop at 1e-3 tol


# --------------------------------------------------------------------------------------------
# Starts
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [i for i in init.INITS if i != "custom"])
def test_starts(rng, name, dtype, kind):
    data = BACKENDS[kind](zeros_in(rng, 40, 25, dtype=dtype))
    first, again = (init.start(data, 5, name, np.random.RandomState(3)) for _ in range(2))
    for Z, Z2, shape in zip(first, again, ((40, 5), (25, 5))):
        assert Z.shape == shape and Z.dtype == dtype
        assert (Z >= 0).all() and np.isfinite(Z).all() and Z.any()
        np.testing.assert_array_equal(Z, Z2)
        if name in ("random", "nndsvda", "nndsvdar", "kmeans"):
            assert (Z > 0).all()  # a multiplicative update cannot leave zero


def test_nndsvd_recovers_rank_one_and_agrees_with_an_exact_svd(rng):
    v, u = factors(rng, 30, 20, 1)
    V, U = init.start(DenseData(v @ u.T), 1, "nndsvd", np.random.RandomState(0))
    np.testing.assert_allclose(V @ U.T, v @ u.T, rtol=1e-12)
    A, B = factors(rng, 30, 20, 4)
    X = A @ B.T
    V, U = init.start(DenseData(X), 4, "nndsvd", np.random.RandomState(0))
    left, s, right = np.linalg.svd(X, full_matrices=False)
    for j in range(4):
        best = max(
            (np.outer(np.maximum(e * left[:, j], 0), np.maximum(e * right[j], 0)) for e in (1, -1)),
            key=np.linalg.norm,
        )
        # the randomised SVD is exact for rank 4; entries below 1e-6 of the maximum are dropped
        np.testing.assert_allclose(np.outer(V[:, j], U[:, j]), s[j] * best, atol=1e-5 * s[0])


# --------------------------------------------------------------------------------------------
# X is touched only through the products, and seldom
# --------------------------------------------------------------------------------------------


class Recorder:
    """A DataMatrix that counts the calls of its products."""

    PRODUCTS = ("dot", "tdot", "kl_dot", "kl_tdot", "kl_newton", "beta_dot", "beta_tdot")

    def __init__(self, data):
        self.data, self.counts = data, dict.fromkeys(self.PRODUCTS, 0)

    def __getattr__(self, name):
        if name in ("data", "counts"):
            raise AttributeError(name)
        if name == "X":
            raise AssertionError("X itself was asked for")
        if name in self.PRODUCTS:
            self.counts[name] += 1
        return getattr(self.data, name)


ONE_OF_EACH = {
    ("hals", Frobenius): {"dot": 1, "tdot": 1},
    ("nesterov", Frobenius): {"dot": 1, "tdot": 1},
    ("mu", Frobenius): {"dot": 1, "tdot": 1},
    ("mu", KullbackLeibler): {"kl_dot": 1, "kl_tdot": 1},
    ("newton", KullbackLeibler): {"kl_newton": 2},
}


@pytest.mark.parametrize(("solver", "loss"), ONE_OF_EACH)
def test_products_per_iteration(rng, solver, loss):
    X = zeros_in(rng, 50, 30)
    V, U = factors(rng, 50, 30, 4)
    counts = []
    for max_iter in (10, 30):
        recorder = Recorder(DenseData(X))
        model = FactorModel(recorder, loss())
        plain = solver == "mu"
        settings = Settings(max_iter=max_iter, tol=0.0, extrapolate=not plain, guard=not plain)
        result = alternate(model, V, U, STEPS[solver], settings)
        assert result.n_iter == max_iter
        counts.append(recorder.counts)
    few, many = counts
    expected = ONE_OF_EACH[solver, loss]
    for name in Recorder.PRODUCTS:
        assert many[name] - few[name] == 20 * expected.get(name, 0), name
        assert few[name] <= 10 * expected.get(name, 0) + 2, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_wide_problem_is_solved_to_the_end(rng, dtype, weighted):
    """Against scipy's active-set method, on a Hessian that sweeps are slow on."""
    n, k = 70, 40
    B = (rng.uniform(size=(60, k)) + 2).astype(dtype)  # near-parallel columns
    X = rng.uniform(size=(n, 60)).astype(dtype)
    d = rng.uniform(0.5, 2, n).astype(dtype) if weighted else None
    scale = np.ones(n) if d is None else d
    r = np.full((1, 1), 0.1, dtype)
    G, C = B.T @ B, (X @ B) * scale[:, None].astype(dtype)
    got = sweep_rows(np.ones((n, k), dtype), C, G, d, r, 2000, 1e-9)
    for i in (0, 33, 69):
        H = np.linalg.cholesky(scale[i] * G.astype(float) + 0.1 * np.eye(k))
        exact = nnls(H.T, np.linalg.solve(H, C[i].astype(float)))[0]
        np.testing.assert_allclose(got[i], exact, atol=1e-9 if dtype == np.float64 else 2e-3)


def test_a_wide_singular_problem_still_goes_to_its_minimum(rng):
    B = rng.uniform(size=(50, 20))
    B = np.hstack([B, B])  # every part twice: no Cholesky factor
    X = rng.uniform(size=(30, 50))
    got = sweep_rows(np.ones((30, 40)), X @ B, B.T @ B, None, np.zeros((1, 1)), 2000, 1e-9)
    exact = [nnls(B[:, :20], x)[1] for x in X]
    np.testing.assert_allclose(np.linalg.norm(X - got @ B.T, axis=1), exact, rtol=1e-6)
