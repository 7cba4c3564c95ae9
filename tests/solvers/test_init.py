"""Tests that a start depends on the seed and X, but not on precision or array type."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from backends import KINDS, Forms
from partwise.backends import as_data
from partwise.backends.arrays import to_numpy
from partwise.backends.gaps import MaskedData, WeightDeficit
from partwise.backends.numpy.dense import DenseData
from partwise.solvers import init
from problems import BACKENDS, DTYPES, factors, zeros_in

EPS = np.finfo(np.float32).eps


def random_start(data, k=5):
    V, U = init.start(data, k, "random", np.random.RandomState(3))
    assert V.dtype == U.dtype and str(V.dtype).endswith(data.dtype.name)
    return to_numpy(V), to_numpy(U)


def assert_same(found, expected):
    """Check that pairs of arrays agree up to the rounding of float32."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2 * EPS, atol=EPS * b.max())


@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_float32_and_float64_have_the_same_start(kind):
    """Check that float32 and float64 data have the same random start.

    X is so wide that a projection in float32 would have no correct digit after the decimal point.
    """
    X = sp.random_array(
        (500, 100_000), density=2e-4, format="csr", random_state=0, dtype=np.float32
    )
    if kind == "dense":
        X = X[:50].toarray()
    single, double = (random_start(as_data(X.astype(t))) for t in (np.float32, np.float64))
    _, counts = np.unique(single[0], return_counts=True)
    assert counts.max() < 0.01 * single[0].size, "one number for many codes is no random start"
    assert np.corrcoef(single[0].ravel(), double[0].ravel())[0, 1] > 1 - 1e-6
    assert_same(single, double)


X = np.random.default_rng(0).gamma(0.3, size=(60, 900)).astype(np.float32)
X[X < 0.1] = 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_back_end_begins_alike(kind, dtype, tmp_path):
    expected = random_start(as_data(X.astype(np.float64)))
    assert_same(random_start(as_data(Forms(X.astype(dtype), tmp_path)[kind])), expected)


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_starts_fill_missing_entries_alike(kind, seen, tmp_path):
    """Check that the start fills missing entries with means for every array type."""
    hidden = np.random.default_rng(1).random(X.shape) < 0.2

    def masked(kind, dtype, folder):
        base, places = np.where(hidden, 0, X).astype(dtype), (hidden ^ seen).astype(dtype)
        (folder / "places").mkdir(parents=True, exist_ok=True)
        there = (
            as_data(Forms(*both)[kind]) for both in ((base, folder), (places, folder / "places"))
        )
        base, places = there
        return MaskedData(base, WeightDeficit(places, seen=seen))

    expected = random_start(masked("numpy", np.float64, tmp_path / "double"))
    assert_same(random_start(masked(kind, np.float32, tmp_path / "single")), expected)


def test_many_starts_on_a_device_share_a_pass_over_X(monkeypatch):
    """Check that the starts of many runs are drawn in one pass over X on a device.

    Otherwise the conversion to float64 takes hundreds of GPU kernels per pass. For 1,100 runs on a
    million cells, the starts took longer than the runs.
    """
    torch = pytest.importorskip("torch")
    from partwise import NMF
    from partwise.backends.numpy.float64_products import DoubleProducts
    from partwise.fitting import every_start

    passes, dot = [], DoubleProducts.dot
    monkeypatch.setattr(DoubleProducts, "dot", lambda *a: (passes.append(1), dot(*a))[1])
    model = NMF(3, init="random", n_init=6, max_iter=1, tol=0.0, random_state=0)
    there = torch.from_numpy(X)
    together = list(every_start(model, there))
    assert len(passes) == 1
    # Each start equals the one computed alone, up to the rounding of a product.
    apart = [next(iter(every_start(model, there, only=[i]))) for i in range(6)]
    for (V, H), (V1, H1) in zip(together, apart, strict=True):
        np.testing.assert_allclose(to_numpy(V), to_numpy(V1), atol=100 * EPS * float(V1.max()))
        np.testing.assert_allclose(to_numpy(H), to_numpy(H1), atol=100 * EPS * float(H1.max()))
    assert not np.allclose(to_numpy(together[0][0]), to_numpy(together[1][0]), rtol=0.1)


def test_starts_at_once_are_those_one_by_one():
    data = as_data(X)
    at_once = init.random_starts(data, 4, [np.random.RandomState(s) for s in (3, 5)])
    for seed, found in zip((3, 5), at_once, strict=True):
        one = init.start(data, 4, "random", np.random.RandomState(seed))
        assert_same(tuple(map(to_numpy, found)), tuple(map(to_numpy, one)))


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
        # The randomised SVD is exact for rank 4, and entries below 1e-6 of the maximum are dropped.
        np.testing.assert_allclose(np.outer(V[:, j], U[:, j]), s[j] * best, atol=1e-5 * s[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_back_end_has_the_nndsvd_of_ndarrays(kind, weighted, tmp_path):
    """Check NNDSVD for every array type on two groups of samples without a common feature.

    Singular vectors are zero on one of the groups.
    """
    # With this seed, the negative halves of two singular pairs are larger.
    rng = np.random.default_rng(2)
    A, B = factors(rng, 60, 40, 6)
    X = A @ B.T
    X[:25, 15:] = X[25:, :15] = 0
    weights = rng.random(60) if weighted else None
    expected, found = (
        init.start(as_data(there), 5, "nndsvd", np.random.RandomState(0), weights)
        for there in (X, Forms(X, tmp_path)[kind])
    )
    for Z, Z0 in zip(found, expected, strict=True):
        assert (Z0 > 0).any(axis=0).all()
        # The randomised SVD has six correct digits of these entries, with 10 columns for a rank of
        # 12.
        np.testing.assert_allclose(to_numpy(Z), Z0, atol=1e-5 * Z0.max())


def test_kmeans_sums_in_one_order(rng, monkeypatch):
    """Check that k-means as start uses one OpenMP thread.

    With several threads, which of equally good k-means runs wins would be random.
    """
    import sklearn.cluster
    from threadpoolctl import threadpool_info

    import partwise

    seen = []

    class Watched(sklearn.cluster.KMeans):
        def fit(self, X, y=None, sample_weight=None):
            seen.append({p["num_threads"] for p in threadpool_info() if p["user_api"] == "openmp"})
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(sklearn.cluster, "KMeans", Watched)
    for kind in (partwise.CF, partwise.NMF):
        kind(2, init="kmeans", random_state=0, tol=1e-2).fit(rng.random((9, 3)))
    assert seen == [{1}, {1}]
