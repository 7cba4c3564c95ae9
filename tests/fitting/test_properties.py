"""Hypothesis tests of NMF on arrays of any shape, dtype, sparsity and scale."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

import reference
from partwise import NMF
from partwise.backends import arrays
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.sparse import SparseData
from partwise.model.losses import beta_of
from partwise.model.subproblems import Quadratic, kkt_residual

KL = "kullback-leibler"
SOLVER_LOSS = [
    ("hals", "frobenius"), ("nesterov", "frobenius"), ("mu", "frobenius"),
    ("newton", KL), ("mu", KL), ("mu", 0.5), ("mu", 1.5), ("mu", 3.0),
]  # fmt: skip

# The settings set no time limit and do not shrink examples: shrinking takes minutes, and the arrays
# are small anyway.
common = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    max_examples=45,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    """Limit BLAS to one thread, because several test processes share the processor's cores."""
    with threadpool_limits(1, user_api="blas"):
        yield


@st.composite
def matrices(draw, dtypes=(np.float64, np.float32), biggest=12):
    """Draw small non-negative matrices with many zeros and entries from 1e-4 to 1e4."""
    shape = draw(st.tuples(st.integers(1, biggest), st.integers(1, biggest)))
    dtype = draw(st.sampled_from(dtypes))
    values = st.one_of(
        st.just(0.0),
        st.floats(2.0**-13, 2.0**13, width=32),
        st.integers(0, 3).map(float),
    )
    return draw(hnp.arrays(np.float64, shape, elements=values)).astype(dtype)


def problems():
    return st.tuples(
        matrices(),
        st.sampled_from(SOLVER_LOSS),
        st.integers(1, 5),
        st.sampled_from(["random", "nndsvda", "nndsvdar", "kmeans"]),
        st.booleans(),
        st.sampled_from([0.0, 1e-3]),
        st.sampled_from([0.0, 0.5, 1.0]),
    )


# Example found by hypothesis: with one feature the objective falls to 4e-25, and the shift of the
# history by 1.5e-8 added rounding errors.
ONE_FEATURE = np.float32([[2363.4805, 0, 3, 7912.6089, 1.01, 2, 2578.6104, 873.84955, 100]]).T


def fit(X, solver, loss, k, init="random", *, max_iter=8, **params):
    if init.startswith("nndsvd") and k > min(X.shape):
        init = "random"
    model = NMF(
        k, solver=solver, beta_loss=loss, init=init, max_iter=max_iter, tol=0.0, random_state=0,
        **params,
    )  # fmt: skip
    return model.fit(X)


@common
@given(problems())
@example(
    (np.zeros((1, 1)), ("newton", KL), 1, "nndsvda", True, 0.0, 0.0),
)
@example((np.zeros((3, 2), np.float32), ("hals", "frobenius"), 5, "random", False, 1e-3, 1.0))
@example((ONE_FEATURE, ("hals", "frobenius"), 1, "kmeans", False, 0.0, 0.5))
def test_any_fit_is_finite_non_negative_and_honest(problem):
    X, (solver, loss), k, init, sparse, alpha, ratio = problem
    model = fit(
        sp.csr_array(X) if sparse else X, solver, loss, k, init, alpha_W=alpha, l1_ratio=ratio
    )
    V, H = model.embedding_, model.components_
    assert V.shape == (X.shape[0], k) and H.shape == (k, X.shape[1])
    assert V.dtype == H.dtype == X.dtype
    for Z in (V, H):
        assert np.isfinite(Z).all() and (Z >= 0).all()
    history = model.objective_history_
    assert np.isfinite(history).all() and 1 <= len(history) == model.n_iter_ <= 8
    assert 0 <= model.kkt_residual_ <= 1
    # The tolerance covers the rounding of sums of about a hundred terms as large as the data.
    X = X.astype(float)
    eps = np.finfo(V.dtype).eps
    Y = V.astype(float) @ H
    beta = beta_of(loss)
    size = max((X**beta).sum(), (Y**beta).sum(), history[0], (X * np.abs(np.log(X + 1e-9))).sum())
    assert np.diff(history).max(initial=0) <= (100 * eps * size if solver == "mu" else 0)
    low = X.mean() * (1e-25 if V.dtype == np.float64 else 1e-10)
    if (Y <= low).any() and (beta < 1 or (beta == 1 and (Y <= low)[X > 0].any())):
        return  # the exact objective is infinite or nearly so, and the floor of VUᵀ changes it
    n, p = X.shape
    expected = reference.objective_beta(
        X, V.astype(float), H.T.astype(float), beta,
        l1_V=alpha * ratio * p, l2_V=alpha * (1 - ratio) * p,
        l1_U=alpha * ratio * n, l2_U=alpha * (1 - ratio) * n,
    )  # fmt: skip
    assert model.objective_ == pytest.approx(expected, rel=1e-6, abs=100 * eps * size)


@common
@given(matrices(dtypes=(np.float64,)), st.sampled_from(SOLVER_LOSS), st.integers(1, 4))
def test_input_is_never_modified_and_dense_is_sparse(X, solver_loss, k):
    solver, loss = solver_loss
    kept = X.copy()
    X.flags.writeable = False
    dense = fit(X, solver, loss, k, max_iter=4)
    np.testing.assert_array_equal(X, kept)
    for layout in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        S = layout(kept)
        sparse = fit(S, solver, loss, k, max_iter=4)
        np.testing.assert_array_equal(S.toarray(), kept)
        scale = max(dense.components_.max(), 1e-300)
        np.testing.assert_allclose(sparse.components_ / scale, dense.components_ / scale, atol=1e-7)


@common
@given(
    matrices(dtypes=(np.float64,)),
    st.sampled_from(SOLVER_LOSS[:5]),
    st.integers(1, 3),
    st.integers(-60, 60),
)
def test_scale_equivariance(X, solver_loss, k, exponent):
    """Check that scaling X by 4^e scales the parts by 4^e, up to the rounding of logarithms."""
    solver, loss = solver_loss
    assume(X.any())
    plain, scaled = fit(X, solver, loss, k), fit(X * 4.0**exponent, solver, loss, k)
    used = plain.embedding_.any(axis=0)  # unused parts keep a scale that depends on the solver
    for a, b in (
        (plain.embedding_[:, used], scaled.embedding_[:, used]),
        (plain.components_[used], scaled.components_[used] / 4.0**exponent),
    ):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6 * a.max(initial=0))
    assert scaled.kkt_residual_ == pytest.approx(plain.kkt_residual_, rel=1e-3, abs=1e-9)


@common
@given(matrices(dtypes=(np.float64,)), st.sampled_from(SOLVER_LOSS[:5]), st.data())
def test_order_of_samples_does_not_matter(X, solver_loss, data):
    solver, loss = solver_loss
    order = data.draw(st.permutations(range(len(X))))
    a, b = fit(X, solver, loss, 2, max_iter=4), fit(X[order], solver, loss, 2, max_iter=4)
    # For a perfect fit, rounding decides which solution is found.
    assume(a.objective_ > 1e-9 * np.square(X).sum())
    scale = max(a.components_.max(), 1e-300)
    np.testing.assert_allclose(b.components_ / scale, a.components_ / scale, atol=1e-7)
    scale = max(a.embedding_.max(), 1e-300)
    np.testing.assert_allclose(b.embedding_ / scale, a.embedding_[order] / scale, atol=1e-7)


@common
@given(
    matrices(),
    st.sampled_from(SOLVER_LOSS),
    st.sampled_from([np.nan, np.inf, -np.inf, -1.0, -1e-30, -1e30]),
    st.booleans(),
    st.data(),
)
def test_a_bad_value_anywhere_is_refused(X, solver_loss, bad, sparse, data):
    solver, loss = solver_loss
    X = X.astype(float)
    i, j = (data.draw(st.integers(0, size - 1)) for size in X.shape)
    X[i, j] = bad
    given = sp.csr_array(X) if sparse else X
    message = (
        f"Negative values in data.*row {i}, column {j}" if np.isfinite(bad) else "NaN|infinity"
    )
    with pytest.raises(ValueError, match=message):
        fit(given, solver, loss, 1)
    model = fit(np.ones((2, X.shape[1])), solver, loss, 1)
    with pytest.raises(ValueError, match=message):
        model.transform(given)


@common
@given(matrices(dtypes=(np.float64,)), st.integers(0, 3))
def test_integers_and_booleans_are_their_floats(X, k):
    whole = np.round(np.minimum(X, 1e4))
    for dtype in (np.int64, np.uint16, bool):
        a = fit(whole.astype(dtype), "hals", "frobenius", k + 1, max_iter=3)
        b = fit(whole.astype(dtype).astype(float), "hals", "frobenius", k + 1, max_iter=3)
        np.testing.assert_array_equal(a.components_, b.components_)


@common
@given(matrices(), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**31))
def test_products_of_both_back_ends(X, k, block, seed):
    rng = np.random.default_rng(seed)
    V, U = (rng.uniform(0.1, 1, (size, k)).astype(X.dtype) for size in X.shape)
    dense, sparse = DenseData(X), SparseData(sp.csr_array(X))
    before, arrays.BLOCK_ENTRIES = arrays.BLOCK_ENTRIES, block
    try:
        pairs = [
            (dense.dot(U), sparse.dot(U), X.astype(float) @ U),
            (dense.tdot(V), sparse.tdot(V), X.astype(float).T @ V),
            (dense.kl_dot(V, U)[0], sparse.kl_dot(V, U)[0], (X / (V.astype(float) @ U.T)) @ U),
            (dense.kl_tdot(V, U), sparse.kl_tdot(V, U), (X / (V.astype(float) @ U.T)).T @ V),
            (dense.row_sums(), sparse.row_sums(), X.astype(float).sum(axis=1)),
            (dense.row_sq_norms(), sparse.row_sq_norms(), (X.astype(float) ** 2).sum(axis=1)),
        ]
    finally:
        arrays.BLOCK_ENTRIES = before
    tolerance = 100 * np.finfo(X.dtype).eps  # rounding of sums of at most 12 products
    for a, b, expected in pairs:
        np.testing.assert_allclose(a, expected, rtol=tolerance)
        np.testing.assert_allclose(b, expected, rtol=tolerance)


@common
@given(
    hnp.arrays(np.float64, (5, 3), elements=st.floats(0, 1e3)),
    hnp.arrays(np.float64, (5, 3), elements=st.floats(-1e3, 1e3)),
    hnp.arrays(np.float64, (4, 3), elements=st.floats(0, 10)),
    st.integers(-40, 40),
)
def test_kkt_residual_is_between_0_and_1_and_free_of_scale(Z, C, B, exponent):
    """Check that the KKT residual lies in [0, 1] and does not depend on the units of C and Z."""
    G = B.T @ B
    C = np.maximum(C, 0)
    residual = kkt_residual(Quadratic(C, G), Z)
    assert 0 <= residual <= 1
    s = 2.0**exponent
    assert kkt_residual(Quadratic(C * s, G), Z * s) == pytest.approx(residual, rel=1e-9, abs=1e-12)
    assert kkt_residual(Quadratic(C * s, G * s), Z) == pytest.approx(residual, rel=1e-9, abs=1e-12)


@common
@given(
    matrices(dtypes=(np.float64,)), st.sampled_from(SOLVER_LOSS[:5]), st.integers(1, 3), st.data()
)
def test_weight_zero_removes_a_sample_from_the_basis(X, solver_loss, k, data):
    solver, loss = solver_loss
    assume(len(X) > 1)
    i = data.draw(st.integers(0, len(X) - 1))
    weights = np.ones(len(X))
    weights[i] = 0
    rest = np.delete(X, i, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NMF(
            k, solver=solver, beta_loss=loss, init="random", max_iter=4, tol=0.0, random_state=0
        )
        a = model.fit(X, sample_weight=weights).components_
        b = model.fit(rest).components_
    scale = max(b.max(), 1e-300)
    if solver != "hals":  # the number of sweeps of "hals" depends on the number of samples
        np.testing.assert_allclose(a / scale, b / scale, atol=1e-6)
    assert np.isfinite(a).all()
