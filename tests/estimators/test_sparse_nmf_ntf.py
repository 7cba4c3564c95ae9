"""Tests of SparseNMF, which projects factors onto a given sparseness, and of NTF."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import reference
from methods import make_problem, rise
from partwise import NTF, SparseNMF
from partwise.evaluation.metrics import sparseness
from partwise.model.sparseness import project_columns, project_sparse

Q = make_problem(seed=6, n=30, p=20)
WANTED = [0.05, 0.3, 0.6, 0.9]


# --------------------------------------------------------------------------------------------
# The projection onto a given sparseness
# --------------------------------------------------------------------------------------------

VECTORS = {
    "random": lambda rng, n: rng.random(n),
    "signed": lambda rng, n: rng.normal(size=n),
    "negative": lambda rng, n: -rng.random(n),
    "sparse": lambda rng, n: rng.random(n) * (rng.random(n) < 0.2),
    "constant": lambda rng, n: np.ones(n),
    "zero": lambda rng, n: np.zeros(n),
    "huge": lambda rng, n: 1e150 * rng.random(n),
    "tiny": lambda rng, n: 1e-150 * rng.random(n),
}


@pytest.mark.parametrize("n", [2, 3, 10, 500])
@pytest.mark.parametrize("wanted", [0.0, *WANTED, 1.0])
@pytest.mark.parametrize("kind", VECTORS)
def test_projection_has_the_sparseness(kind, wanted, n, rng):
    got = project_sparse(VECTORS[kind](rng, n), wanted)
    assert (got >= 0).all() and np.isfinite(got).all()
    # Sparseness is (√n - ‖·‖₁)/(√n - 1) for a vector of norm 1. For n = 2 it divides by √2 - 1.
    assert np.linalg.norm(got) == pytest.approx(1, abs=1e-9)
    assert reference.sparseness(got) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("kind", ["random", "signed", "negative"])
def test_projection_is_hoyers(kind, wanted, rng):
    for n in (4, 25, 200):
        x = VECTORS[kind](rng, n)
        l1 = reference.l1_for_sparseness(n, wanted)
        expected = reference.hoyer_projection(x / np.linalg.norm(x), l1, 1.0)
        np.testing.assert_allclose(project_sparse(x, wanted), expected, atol=1e-8)


@pytest.mark.parametrize("wanted", WANTED)
def test_projection_is_the_closest(wanted, rng):
    """Check that the projection is closest to x among vectors of its norm and sparseness.

    The closest one has the largest inner product with x.
    """
    x = rng.random(12)
    best = x @ project_sparse(x, wanted)
    others = [project_sparse(x + rng.normal(scale=s, size=12), wanted) for s in (0.01, 0.1, 1)]
    others += [project_sparse(rng.random(12), wanted) for _ in range(200)]
    assert max(x @ other for other in others) <= best + 1e-9


@pytest.mark.parametrize("wanted", WANTED)
def test_columns_keep_the_length_that_is_nearest(wanted, rng):
    Z = rng.random((15, 4)) * [1, 10, 0.1, 3]
    unit, scaled = (project_columns(Z, wanted, unit=u) for u in (True, False))
    np.testing.assert_allclose(np.linalg.norm(unit, axis=0), 1, rtol=1e-9)
    lengths = np.linalg.norm(scaled, axis=0)
    np.testing.assert_allclose(scaled / lengths, unit, atol=1e-9)
    for factor in (0.99, 1.01):  # any other length is farther from Z
        distance = np.linalg.norm(Z - factor * scaled, axis=0)
        assert (np.linalg.norm(Z - scaled, axis=0) < distance).all()


# --------------------------------------------------------------------------------------------
# SparseNMF
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "on_W, on_H", [(None, 0.3), (None, 0.8), (0.4, None), (0.7, None), (0.5, 0.5)]
)
def test_sparseness_is_held(on_W, on_H, dtype):
    est = SparseNMF(
        4, sparseness_W=on_W, sparseness_H=on_H, max_iter=60, tol=0, random_state=0
    ).fit(Q.X.astype(dtype))
    tolerance = 1e-6 if dtype == np.float64 else 1e-4
    if on_H is not None:
        got = sparseness(est.components_, axis=1)
        np.testing.assert_allclose(got, on_H, atol=tolerance)
        np.testing.assert_allclose(np.linalg.norm(est.components_, axis=1), 1, atol=tolerance)
    if on_W is not None:
        np.testing.assert_allclose(sparseness(est.embedding_, axis=0), on_W, atol=tolerance)
    assert rise(est.objective_history_) <= (1e-12 if dtype == np.float64 else 1e-5)
    V, U = est.embedding_.astype(float), est.components_.T.astype(float)
    expected = reference.objective_frobenius(Q.X, V, U)
    assert est.objective_ == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("on_W, on_H", [(None, 0.3), (None, 0.7), (0.4, None), (0.5, 0.5)])
def test_as_low_as_hoyers_own_algorithm(on_W, on_H):
    """Compare SparseNMF with Hoyer's gradient steps with a line search, from the same start.

    Hoyer's H is our V and has unit columns, which does not affect the product. The sparseness of a
    vector does not depend on its length, so both models agree if both factors are constrained.
    """
    V, U, history = reference.hoyer_sparse_nmf(
        Q.X, Q.V, Q.U, 400, sparseness_V=on_W, sparseness_U=on_H
    )
    est = SparseNMF(
        4, sparseness_W=on_W, sparseness_H=on_H, init="custom", max_iter=200, tol=0
    ).fit(Q.X, W=Q.V, H=Q.U.T.copy())
    assert reference.objective_frobenius(Q.X, V, U) == pytest.approx(history[-1], rel=1e-10)
    # The problem is not convex, so another local minimum may be a few per cent higher.
    assert est.objective_ <= 1.05 * history[-1]


def test_more_sparseness_costs_more():
    values = [
        SparseNMF(4, sparseness_H=s, max_iter=100, tol=0, random_state=0).fit(Q.X).objective_
        for s in (0.5, 0.8, 0.95)
    ]
    assert values == sorted(values)


def test_transform_codes_with_the_parts_fixed():
    from scipy.optimize import nnls

    est = SparseNMF(4, sparseness_H=0.6, tol=1e-8, max_iter=2000, random_state=0)
    est.fit(Q.X)
    expected = np.array([nnls(est.components_.T, x)[0] for x in Q.X])
    np.testing.assert_allclose(est.transform(Q.X), expected, atol=1e-6)
    np.testing.assert_allclose(est.embedding_, expected, atol=1e-6)


@pytest.mark.parametrize("value", [-0.1, 1.1, "much"])
def test_sparseness_outside_its_range_is_refused(value):
    with pytest.raises(ValueError, match="sparseness_H"):
        SparseNMF(3, sparseness_H=value).fit(Q.X)


def test_extremes():
    one = SparseNMF(4, sparseness_H=1.0, max_iter=30, tol=0, random_state=0).fit(Q.X)
    assert ((one.components_ > 0).sum(axis=1) == 1).all()
    flat = SparseNMF(4, sparseness_H=0.0, max_iter=30, tol=0, random_state=0).fit(Q.X)
    np.testing.assert_allclose(flat.components_, 1 / np.sqrt(20), atol=1e-6)


# --------------------------------------------------------------------------------------------
# NTF
# --------------------------------------------------------------------------------------------


def stack(seed=0, n=24, height=7, width=5, k=3):
    """Return n images that are weighted sums of k rank-one images, and the three factors."""
    rng = np.random.default_rng(seed)
    V, A, B = (rng.random((m, k)) * (rng.random((m, k)) < 0.6) + 0.05 for m in (n, height, width))
    return np.einsum("nk,ik,jk->nij", V, A, B), V, A, B


class TestNTF:
    @pytest.fixture(autouse=True)
    def needs_tensorly(self):
        pytest.importorskip("tensorly")

    def test_recovers_an_exact_stack(self):
        T, _, A, B = stack()
        X = T.reshape(len(T), -1)
        runs = [
            NTF(3, image_shape=(7, 5), max_iter=3000, tol=1e-12, random_state=s).fit(X)
            for s in range(3)
        ]
        est = min(runs, key=lambda m: m.objective_)
        # Runs that found the exact parts have errors near the tolerance, other runs of a few per
        # cent.
        assert est.reconstruction_err_ <= 1e-3 * np.linalg.norm(X)
        parts = np.einsum("ik,jk->kij", A, B).reshape(3, -1)
        parts /= np.linalg.norm(parts, axis=1, keepdims=True)
        found = est.components_ / np.linalg.norm(est.components_, axis=1, keepdims=True)
        cosines = parts @ found.T
        assert (cosines.max(axis=1) > 0.999).all() and (cosines.max(axis=0) > 0.999).all()

    def test_every_part_is_an_outer_product(self):
        est = NTF(4, image_shape=(4, 5), max_iter=50, random_state=0).fit(Q.X)
        for part in est.components_:
            values = np.linalg.svd(part.reshape(4, 5), compute_uv=False)
            assert values[1] <= 1e-10 * values[0]
        assert (est.components_ >= 0).all() and (est.embedding_ >= 0).all()

    def test_objective_and_history(self):
        est = NTF(4, image_shape=(4, 5), max_iter=60, random_state=0).fit(Q.X)
        expected = reference.objective_frobenius(Q.X, est.embedding_, est.components_.T)
        assert est.objective_ == pytest.approx(expected, rel=1e-9)
        # tensorly computes its error as the root of a difference, so only half of its digits are
        # correct.
        assert rise(est.objective_history_) <= 1e-6
        assert est.objective_ <= est.objective_history_[-1] * (1 + 1e-6)

    @pytest.mark.parametrize("shape", [(4, -1), (-1, 5), [4, 5]])
    def test_shapes(self, shape):
        got = NTF(3, image_shape=shape, max_iter=10, tol=0, random_state=0).fit(Q.X)
        expected = NTF(3, image_shape=(4, 5), max_iter=10, tol=0, random_state=0).fit(Q.X)
        np.testing.assert_array_equal(got.components_, expected.components_)

    @pytest.mark.parametrize("shape", [None, (3, 7), (3, -1), (-1, -1), (0, 20), (-4, -5)])
    def test_shapes_that_do_not_hold_the_features(self, shape):
        with pytest.raises(ValueError, match="20"):
            NTF(3, image_shape=shape).fit(Q.X)

    def test_the_svd_start_of_odd_stacks_is_finite_and_warns_of_nothing(self):
        """Check init="svd" for unusual stacks of images: the factors are finite and nothing warns.

        tensorly's own SVD start divides by the norm of a part's positive or negative half, which
        may be zero.
        """
        rng = np.random.default_rng(0)
        single = np.zeros((3, 4))
        single[0, 1] = 0.2
        rank_one = np.outer(rng.random(9), rng.random(12))
        fewer_rows = rng.random((20, 4)) * (rng.random((20, 4)) < 0.5)
        for X, shape, k in ((single, (2, 2), 2), (rank_one, (3, 4), 3), (fewer_rows, (2, 2), 3)):
            for dtype in (np.float64, np.float32):
                settings = {"image_shape": shape, "init": "svd", "n_clusters": 1}
                est = NTF(k, **settings, max_iter=30, tol=0, random_state=0).fit(X.astype(dtype))
                assert np.isfinite(est.components_).all() and np.isfinite(est.embedding_).all()
                # Each of these stacks is a sum of k outer products, or close to one (`fewer_rows`).
                share = est.reconstruction_err_ / np.linalg.norm(X)
                assert share <= (0.5 if X is fewer_rows else 1e-3), share

    def test_the_svd_start_is_a_good_one(self):
        """Check that init="svd" after one iteration is better than the mean of random starts."""
        T, *_ = stack()
        X = T.reshape(len(T), -1)
        settings = {"image_shape": (7, 5), "max_iter": 1, "tol": 0, "n_clusters": 1}
        ends = [NTF(3, **settings, random_state=s).fit(X).objective_ for s in range(20)]
        assert NTF(3, **settings, init="svd", random_state=0).fit(X).objective_ < np.mean(ends)

    def test_square_images_need_no_shape(self):
        T, *_ = stack(height=5, width=5)
        X = T.reshape(len(T), -1)
        est = NTF(3, random_state=0, max_iter=20, tol=0).fit(X)
        assert est.transform(X).shape == (24, 3) and est.labels_.shape == (24,)

    def test_names_its_clusters(self):
        rng = np.random.default_rng(0)
        y = np.arange(20) % 2
        images = np.zeros((20, 4, 4))
        images[y == 0, :2] = 1 + rng.random((10, 2, 4))
        images[y == 1, 2:] = 1 + rng.random((10, 2, 4))
        known = np.where(np.arange(20) < 6, np.array(["up", "down"], dtype=object)[y], None)
        est = NTF(max_iter=50, random_state=0).fit(images.reshape(20, -1), known)
        assert est.labels_.tolist() == [["up", "down"][c] for c in y]


def test_without_tensorly_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorly.decomposition", None)
    with pytest.raises(ImportError, match=r"pip install partwise\[tensor\]"):
        NTF(3, image_shape=(4, 5)).fit(Q.X)
