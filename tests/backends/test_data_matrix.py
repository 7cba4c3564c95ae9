"""Tests of matrix products of each DataMatrix class against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from partwise.backends import SMALL_SPARSE, arrays, as_data
from partwise.backends.numpy import dense
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.kernels.divergence import LINE, lined
from partwise.backends.numpy.sparse import SparseData
from partwise.model.subproblems import Quadratic
from partwise.solvers.steps import hals
from problems import BACKENDS, DTYPES, SUMS, factors, slow_newton, zeros_in

BETAS = [0.5, 1.5, 3.0]


@pytest.fixture(params=[None, 100], ids=["one block", "small blocks"])
def block_size(request, monkeypatch):
    """Set the block size; products must not depend on it."""
    if request.param:
        monkeypatch.setattr(arrays, "BLOCK_ENTRIES", request.param)
        monkeypatch.setattr(dense, "BLOCK", request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.usefixtures("block_size", "threads_or_none")
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
        """Dense and sparse data give the same second-order KL steps, for either factor."""
        data, X, V, U = case
        ridge = np.zeros((1, 1))
        for transposed in (False, True):
            Z, B = (U, V) if transposed else (V, U)
            cost = B.sum(axis=0, dtype=float)[None, :]
            new, xlogy = data.kl_newton(V, U, cost, ridge, 2, False, transposed=transposed)
            X2 = X.T if transposed else X
            expected = slow_newton(X2, Z, B, cost, ridge, 2)
            # Second-order steps amplify rounding by the ratio of curvatures, which is about 100
            # here.
            np.testing.assert_allclose(new, expected, rtol=100 * SUMS[dtype], atol=SUMS[dtype])
            if transposed:  # the function value is not used after the V step
                now = np.where(X2 > 0, X2 * np.log(np.maximum(new.astype(float) @ B.T, 1e-30)), 0)
                error = 10 * SUMS[dtype] * (1 + np.abs(now.sum(axis=1)).sum())
                assert abs(xlogy.sum() - now.sum()) <= error


@pytest.mark.parametrize("width", [0, 1, 16, 1021, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_begin_on_cache_lines(width, dtype):
    room = lined(3, width, np.dtype(dtype))
    places = [row.ctypes.data for row in room]
    assert room.shape[1] >= width and not any(place % LINE for place in places)
    # Different places modulo 4096 avoid 4K aliasing of stores and loads.
    assert len({place % 4096 for place in places}) == 3


def test_small_sparse_is_made_dense_and_large_is_not():
    side = int(np.sqrt(SMALL_SPARSE))
    assert type(as_data(sp.csr_array((side, side)))) is DenseData
    assert type(as_data(sp.csr_array((side + 1, side + 1)))) is SparseData


@pytest.mark.parametrize("layout", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.coo_matrix])
def test_large_sparse_is_canonical_and_the_original_untouched(layout, rng):
    rows, columns = rng.integers(0, 250, 3000), rng.integers(0, 200, 3000)
    # The values contain explicit zeros and duplicates.
    values = rng.integers(0, 3, 3000).astype(float)
    X = layout(sp.coo_array((values, (rows, columns)), shape=(250, 200)))
    # The conversion to CSR sums duplicates, so this matrix gets new ones.
    if layout is sp.csr_array:
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
    with pytest.raises(TypeError, match="list"):
        as_data([[1.0]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_kl_pass_in_threads_is_the_serial_one(rng, dtype, use_threads):
    """Check that KL products of sparse data in three threads equal those in one thread exactly.

    TestProducts compares the result of one thread with the formula.
    """
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
@pytest.mark.parametrize("shape", [(10_103, 7), (20_303, 7), (13, 4_099), (5, 6)])
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
        monkeypatch.setattr(dense, "threads_for", lambda *work: threads)  # noqa: B023
        blas = order == "F" and dtype == np.float64  # in this case BLAS is faster
        assert (dense.narrow_product(X, U) is None) == blas
        data = DenseData(X)
        results.append((data.dot(U), data.tdot(V)))
    # In both sums, the rounding of n terms of one sign grows like √n eps.
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25])
def test_the_sum_of_squares_is_that_of_the_rows(rng, dtype, order, size):
    n, p, k = 700, 300, 4  # sizes that give two blocks of work
    X = np.asarray(size * rng.uniform(size=(n, p)), dtype=dtype, order=order)
    V, U = (np.sqrt(size) * rng.uniform(size=(m, k)).astype(dtype) for m in (n, p))
    data, Y = as_data(X), V.astype(float) @ U.T
    # Sums within a short run of numbers have the dtype of X; their rounding sets the tolerance.
    near = 1e-6 if dtype == np.float32 else 1e-13
    assert data.total_squares() == pytest.approx(np.sum(X.astype(float) ** 2), rel=near)
    assert data.total_squares(V, U) == pytest.approx(np.sum((X - Y) ** 2), rel=near)
    assert as_data(X[::2]).total_squares() == pytest.approx(
        data.row_sq_norms()[::2].sum(), rel=near
    )
