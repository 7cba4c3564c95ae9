"""Tests of the search for nearest neighbours against brute force, and of neighbour graphs."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from partwise.backends import as_data
from partwise.knowledge.graph import (
    _compiled,
    _search,
    _sketch,
    check_graph,
    nearest_neighbors,
    neighbor_graph,
    semi_supervised_graph,
)
from partwise.knowledge.labels import encode_labels

DTYPES = [np.float32, np.float64]
SPARSE = [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.coo_array]


def brute_distances(X, k):
    """Return the k smallest distances of each sample to the others, computed in float64."""
    D = cdist(X.astype(np.float64), X.astype(np.float64))
    np.fill_diagonal(D, np.inf)
    return np.sort(D, axis=1)[:, :k]


def assert_neighbors(X, k, indices, distances, rtol=1e-12):
    """Check that distances are the smallest, match the indices, and exclude the sample."""
    dense = (X.toarray() if sp.issparse(X) else np.asarray(X)).astype(np.float64)
    n = dense.shape[0]
    assert indices.shape == distances.shape == (n, k)
    assert indices.dtype == np.int64 and distances.dtype == np.float64
    # Both are computed in float64, but in another order of summation.
    np.testing.assert_allclose(distances, brute_distances(dense, k), rtol=rtol, atol=1e-300)
    own = np.linalg.norm(dense[:, None] - dense[indices], axis=2)
    np.testing.assert_allclose(distances, own, rtol=1e-12, atol=1e-300)
    assert (indices != np.arange(n)[:, None]).all()
    assert all(len(set(row)) == k for row in indices.tolist())


@pytest.fixture
def compiled(monkeypatch):
    """Use the compiled search also for small data, and split them into many blocks."""
    monkeypatch.setattr(_search, "SMALL", 0)
    monkeypatch.setattr(_search, "BLOCK", 32)
    monkeypatch.setattr(_search.cuts, "__defaults__", (32,))


@pytest.fixture(params=["numpy", "compiled"])
def search(request):
    """Run a test with the NumPy search for small data, and with the compiled search."""
    if request.param == "compiled":
        request.getfixturevalue("compiled")
    return request.param


def cases():
    rng = np.random.default_rng(1)
    few = rng.random((5, 6))[rng.integers(0, 5, 150)]
    outlier = rng.random((150, 6))
    outlier[3] = 1e12
    zeros = rng.random((150, 6))
    zeros[::3] = 0
    return {
        "random": rng.random((150, 6)),
        "signed": rng.normal(size=(150, 20)),
        "wide": rng.random((140, 700)),
        "one feature": rng.random((150, 1)),
        "integers, many ties": rng.integers(0, 3, (150, 4)).astype(float),
        "line, ties": np.arange(150.0)[:, None],
        "copies": few,
        "one point": np.ones((150, 3)),
        "all zero": np.zeros((150, 3)),
        "zero rows": zeros,
        "tight clusters": 100 * few + 1e-5 * rng.random((150, 6)),
        "far from zero": 1e8 + rng.random((150, 6)),
        "one outlier": outlier,
        "tiny": 1e-120 * rng.random((150, 6)),
        "huge": 1e120 * rng.random((150, 6)),
        "unequal rows": np.geomspace(1e-30, 1, 150)[:, None] * rng.random((150, 6)),
        "unequal features": np.geomspace(1e-30, 1, 6) * rng.random((150, 6)),
    }


CASES = cases()


@pytest.mark.parametrize("k", [1, 5, 30])
@pytest.mark.parametrize("case", CASES)
def test_dense(case, k, search):
    X = CASES[case]
    assert_neighbors(X, k, *nearest_neighbors(X, k))


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("case", CASES)
def test_sparse(case, k, search):
    """Check sparse data of low and of high density, for which the compiled search differs."""
    X = CASES[case] * (np.random.default_rng(2).random(CASES[case].shape) < 0.3)
    assert_neighbors(X, k, *nearest_neighbors(sp.csr_array(X), k))
    wide = np.zeros((X.shape[0], 12 * X.shape[1]))
    wide[:, ::12] = X
    assert_neighbors(wide, k, *nearest_neighbors(sp.csr_array(wide), k))


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("make", SPARSE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_formats(make, dtype, k, search, rng):
    X = (rng.random((80, 30)) * (rng.random((80, 30)) < 0.05)).astype(dtype)
    indices, distances = nearest_neighbors(make(X), k)
    assert_neighbors(X, k, indices, distances)
    # Ties may be resolved differently, so only the distances are compared.
    np.testing.assert_allclose(distances, nearest_neighbors(X, k)[1], rtol=1e-12, atol=1e-300)


def test_sparse_with_doubled_and_unsorted_entries(search):
    """Check that duplicate and unsorted entries of a CSR array are summed in a copy."""
    indptr, columns = np.array([0, 3, 4, 6]), np.array([2, 0, 2, 1, 1, 0])
    values = np.array([1.0, 5.0, 2.0, 4.0, 1.0, 5.0])
    X = sp.csr_array((values.copy(), columns.copy(), indptr.copy()), shape=(3, 3))
    assert_neighbors(X.toarray(), 2, *nearest_neighbors(X, 2))
    np.testing.assert_array_equal(X.indices, columns)
    np.testing.assert_array_equal(X.data, values)


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [*DTYPES, np.int64, np.uint8, np.float16])
def test_dtypes_and_layouts(dtype, order, search, rng):
    X = np.asarray(rng.integers(0, 200, (90, 12)), dtype=dtype, order=order)
    X.flags.writeable = False
    before = X.copy()
    assert_neighbors(X, 6, *nearest_neighbors(X, 6))
    np.testing.assert_array_equal(X, before)


@given(
    st.integers(2, 40),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
@settings(max_examples=60, deadline=None)
def test_random_lattices(n, p, k, seed, offset):
    """Check the search for points on a small lattice, which have many duplicates and ties."""
    X = np.random.default_rng(seed).integers(0, 3, (n, p)) + offset
    k = min(k, n - 1)
    assert_neighbors(X, k, *nearest_neighbors(X, k))


def test_ties_are_ordered_by_index(search):
    X = np.array([[0.0], [1.0], [-1.0], [1.0], [-1.0], [0.0]])
    indices, _ = nearest_neighbors(X, 5)
    assert indices[0].tolist() == [5, 1, 2, 3, 4]
    assert indices[1].tolist() == [3, 0, 5, 2, 4]


def test_rows_in_doubt_are_searched_again(compiled, monkeypatch):
    """Check that samples are searched again only if rounding could change their neighbours.

    The first search uses float32.
    """
    used = []
    original = _search.search_rows
    monkeypatch.setattr(
        _search, "search_rows", lambda X, rows, k: used.append(rows.size) or original(X, rows, k)
    )
    nearest_neighbors(CASES["random"], 5)
    assert used == []
    # One distant sample makes all others equal in float32 and even in float64.
    nearest_neighbors(CASES["one outlier"], 5)
    assert used and used[0] >= 140


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_lower_bounds_hold(compiled, device, monkeypatch):
    """Check that no lower bound of the float32 search exceeds the true squared distance."""
    if device is not None:
        pytest.importorskip("torch")
        monkeypatch.setattr(_search, "THERE", 2000)  # the search runs in several blocks
    for case in ("random", "wide", "signed", "far from zero", "unequal rows"):
        X = CASES[case]
        candidates, bounds = _search.candidates_dense(X, 5, device)
        true = cdist(X, X, "sqeuclidean")
        rows = np.arange(X.shape[0])[:, None]
        assert (bounds <= true[rows, candidates] * (1 + 1e-12)).all()
        others = true.copy()
        others[rows, candidates] = np.inf
        np.fill_diagonal(others, np.inf)
        assert (others.min(axis=1) >= bounds[:, -1]).all()


def test_a_device_finds_the_same_neighbours(compiled):
    torch = pytest.importorskip("torch")
    for case in ("random", "wide", "signed", "far from zero", "unequal rows", "one outlier"):
        for X in (CASES[case], CASES[case].astype(np.float32)):
            here, there = _search.search_all(X, 5), _search.search_all(X, 5, torch.device("cpu"))
            np.testing.assert_array_equal(there[1], here[1])
            if len(np.unique(X, axis=0)) == len(X):  # of copies, any may be returned
                np.testing.assert_array_equal(there[0], here[0])


def test_blocks_may_come_in_any_order(rng):
    """Check that the order in which blocks are searched does not affect ties."""
    points = rng.integers(0, 3, (40, 2)).astype(float)
    low = (points**2).sum(axis=1)
    blocks = [(a, b) for a in range(0, 40, 10) for b in range(a, 40, 10)]

    def kept(order):
        best, who = np.full((40, 4), np.inf), np.full((40, 4), 40)
        worst = np.full(40, np.inf)
        for a, b in order:
            G = points[a : a + 10] @ points[b : b + 10].T
            _compiled.keep_nearest(G, low, a, b, best, who, worst)  # this runs as plain Python
        return who

    D = cdist(points, points, "sqeuclidean")
    np.fill_diagonal(D, np.inf)
    expected = np.argsort(D, axis=1, kind="stable")[:, :4]
    for _ in range(5):
        np.testing.assert_array_equal(kept(rng.permutation(blocks)), expected)


def test_same_result_on_any_number_of_threads(compiled, rng):
    from threadpoolctl import threadpool_limits

    X = rng.integers(0, 3, (300, 5)).astype(float)
    with threadpool_limits(1):
        one = nearest_neighbors(X, 4)
    with threadpool_limits(4):
        many = nearest_neighbors(X, 4)
    np.testing.assert_array_equal(one[0], many[0])
    np.testing.assert_array_equal(one[1], many[1])


def test_large_data_against_scikit_learn(rng):
    """Compare with scikit-learn on enough samples for the compiled search and several blocks."""
    X = rng.random((3000, 10)) @ rng.random((10, 60)) + 0.1 * rng.random((3000, 60))
    theirs = NearestNeighbors(n_neighbors=6, algorithm="kd_tree").fit(X).kneighbors()
    indices, distances = nearest_neighbors(X, 6)
    np.testing.assert_array_equal(indices, theirs[1])
    np.testing.assert_allclose(distances, theirs[0], rtol=1e-12)
    single = nearest_neighbors(X.astype(np.float32), 6)
    np.testing.assert_allclose(single[1], distances, rtol=1e-5)  # rounding of X to float32
    scattered = X * (rng.random(X.shape) < 0.05)
    np.testing.assert_allclose(
        nearest_neighbors(sp.csr_array(scattered), 6)[1],
        nearest_neighbors(scattered, 6)[1],
        rtol=1e-12,
    )


# --- the neighbour graph ----------------------------------------------------------------------


def naive_graph(X, k, weighting, bandwidth=None):
    """Return the dense neighbour graph by its definition, for data without ties."""
    n = X.shape[0]
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    nearest = np.argsort(D, axis=1)[:, :k]
    t = bandwidth or np.mean([D[i, j] for i in range(n) for j in nearest[i]])
    W = np.zeros((n, n))
    for i in range(n):
        for j in nearest[i]:
            heat = np.exp(-(D[i, j] ** 2) / (2 * t**2))
            value = {"binary": 1.0, "heat": heat, "dot": X[i] @ X[j]}[weighting]
            W[i, j] = W[j, i] = max(0.0, value)
    return W


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, *SPARSE])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighting", ["binary", "heat", "dot"])
def test_graph_is_its_definition(weighting, dtype, make, search, rng):
    X = rng.normal(size=(60, 40)).astype(dtype)
    X[rng.random(X.shape) < 0.8] = 0
    W = neighbor_graph(make(X), 4, weighting=weighting)
    assert isinstance(W, sp.csr_array) and W.dtype == dtype and W.shape == (60, 60)
    assert W.has_sorted_indices and (W.data > 0).all()
    rtol = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(
        W.toarray(), naive_graph(X.astype(float), 4, weighting), rtol=rtol, atol=rtol
    )
    assert abs(W - W.T).max() == 0 and W.diagonal().sum() == 0


def test_bandwidth(rng):
    X = rng.random((40, 3))
    W = neighbor_graph(X, 3, weighting="heat", bandwidth=0.2)
    np.testing.assert_allclose(W.toarray(), naive_graph(X, 3, "heat", 0.2), rtol=1e-12)
    # The bandwidth is so small that every weight underflows, and zeros are not stored.
    assert neighbor_graph(X, 3, weighting="heat", bandwidth=1e-5).nnz == 0


def test_copies_have_heat_one(search):
    X = np.ones((12, 3))
    W = neighbor_graph(X, 3, weighting="heat")
    assert set(W.data.tolist()) == {1.0} and (W.sum(axis=1) >= 3).all()


def test_dot_is_never_negative_nor_stored_as_zero():
    W = neighbor_graph(np.array([[1.0, 0.0], [-1.0, 0.1], [0.0, 0.0]]), 2, weighting="dot")
    assert W.nnz == 0


def test_integers_give_float64(rng):
    assert neighbor_graph(rng.integers(0, 9, (20, 3)), 2).dtype == np.float64


def test_more_neighbors_than_samples(rng):
    X = rng.random((4, 2))
    with pytest.warns(UserWarning, match="n_neighbors=5.*3.*4"):
        W = neighbor_graph(X, 5)
    np.testing.assert_array_equal(W.toarray(), 1 - np.eye(4))


@pytest.mark.parametrize("weighting", ["binary", "heat", "dot"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_one_sample(weighting, make):
    with pytest.warns(UserWarning, match=r"n_neighbors.*\b0\b"):
        W = neighbor_graph(make([[1.0, 2.0]]), weighting=weighting)
    assert W.shape == (1, 1) and W.nnz == 0


def test_two_samples():
    W = neighbor_graph(np.array([[1.0], [2.0]]), 1)
    assert W.toarray().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"n_neighbors": 0}, ValueError, "n_neighbors.*0"),
        ({"n_neighbors": 2.5}, TypeError, "integer, got 2.5"),
        ({"n_neighbors": True}, TypeError, "True"),
        ({"weighting": "cosine"}, ValueError, "'binary', 'heat'.*'dot'.*'cosine'"),
        ({"weighting": "heat", "bandwidth": 0.0}, ValueError, r"0\.0"),
        ({"method": "fast"}, ValueError, "'exact'.*'approximate'.*'fast'"),
    ],
)
def test_refused(arguments, error, message, rng):
    with pytest.raises(error, match=message):
        neighbor_graph(rng.random((9, 2)), **arguments)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_samples_must_be_finite(make):
    with pytest.raises(ValueError, match="NaN"):
        neighbor_graph(make([[1.0], [np.nan], [2.0]]), 1)


def test_memory_stays_far_below_all_pairs(rng):
    """Check that the search needs far less memory than all distances.

    The 6,000² distances would need 144 MB in float32.
    """
    import tracemalloc

    X = rng.random((6000, 20))
    nearest_neighbors(X, 5)  # compiled code is loaded before memory is counted
    tracemalloc.start()
    neighbor_graph(X, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize("weighting", ["binary", "heat", "dot"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_a_memmap_gives_the_same_graph(search, weighting, dtype, tmp_path, rng):
    X = (100 * rng.random((150, 7))).astype(dtype)
    X[20:30] = X[0]
    np.save(tmp_path / "X.npy", X)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    W = neighbor_graph(on_disk, 4, weighting=weighting)
    expected = neighbor_graph(X, 4, weighting=weighting)
    assert W.dtype == expected.dtype
    # Copies of a sample tie for the last neighbour. The copies that are kept may differ, but not
    # their distances.
    np.testing.assert_allclose(W.sum(), expected.sum(), rtol=1e-5)
    apart = np.flatnonzero(np.arange(150) // 10 != 2)[1:]
    np.testing.assert_allclose(
        W.toarray()[np.ix_(apart, apart)], expected.toarray()[np.ix_(apart, apart)], rtol=1e-6
    )


def test_a_memmap_with_nan_is_refused(tmp_path, rng):
    X = rng.random((20, 3))
    X[4, 1] = np.nan
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match=r"NaN.*0 to 19"):
        neighbor_graph(np.load(tmp_path / "X.npy", mmap_mode="r"), 2)


# --- approximate search -----------------------------------------------------------------------


@pytest.mark.long  # compiling pynndescent takes half a minute
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_approximate(make, rng, monkeypatch):
    pytest.importorskip("pynndescent")
    monkeypatch.setattr(_search, "SMALL", 100)
    X = rng.random((400, 4))
    X[:40] = X[0]  # more copies than requested neighbours
    indices, distances = nearest_neighbors(make(X), 5, method="approximate", random_state=0)
    assert indices.shape == (400, 5) and (indices != np.arange(400)[:, None]).all()
    own = np.linalg.norm(X[:, None] - X[indices], axis=2)
    np.testing.assert_allclose(distances, own, rtol=1e-12, atol=1e-300)
    exact = brute_distances(X, 5)
    assert (distances >= exact * (1 - 1e-12)).all()
    # At this size, the approximate search finds more than 90% of the neighbours.
    assert np.mean(distances <= exact * (1 + 1e-12)) > 0.9
    again = nearest_neighbors(make(X), 5, method="approximate", random_state=0)
    np.testing.assert_array_equal(again[0], indices)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_results_of_pynndescent_are_corrected(make, rng, monkeypatch):
    """Check that results of pynndescent are corrected.

    Its results may contain the sample itself or too few neighbours, and have float32 distances.
    """
    X = rng.random((8, 3))
    order = np.argsort(cdist(X, X), axis=1)
    found = order[:, :4].copy()
    found[1] = order[1, 1:5]  # the sample itself is missing, though it is the closest
    found[2] = order[2, [1, 0, 2, 3]]  # the sample itself is second, as with a copy at distance 0
    found[3] = [3, order[3, 1], -1, -1]  # two neighbours are missing
    found[4] = order[4, [0, 1, 2, 5]]  # one of the nearest is missed, as approximate searches do

    class Descent:
        def __init__(self, data, n_neighbors, random_state):
            assert data.shape == X.shape and n_neighbors == 4
            self.neighbor_graph = found, np.zeros((8, 4), dtype=np.float32)

    monkeypatch.setattr(_search, "SMALL", 5)
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Descent))
    indices, distances = nearest_neighbors(make(X), 3, method="approximate", random_state=0)
    expected = order[:, 1:4].copy()
    expected[4] = order[4, [1, 2, 5]]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances, np.take_along_axis(cdist(X, X), expected, 1), rtol=1e-12)


def test_approximate_without_pynndescent(monkeypatch, rng):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match=r"pip install partwise\[graph\]"):
        neighbor_graph(rng.random((9, 2)), 2, method="approximate")


def test_the_sketch_turns_to_the_largest_directions(monkeypatch, rng):
    """Check that a sketch of X is close to its leading singular directions after four passes."""
    monkeypatch.setattr(_sketch, "WIDTH", 6)
    left, right = (np.linalg.qr(rng.normal(size=(n, 30)))[0] for n in (80, 40))
    data = as_data((left * 0.9 ** np.arange(30)) @ right.T)
    passes, tdot = [], type(data).tdot
    monkeypatch.setattr(type(data), "tdot", lambda self, V: passes.append(V.shape) or tdot(self, V))
    Q = _sketch.directions(data, 0)
    assert passes == [(80, 6)] * 4
    np.testing.assert_allclose(Q.T @ Q, np.eye(6), atol=1e-12)
    caught = np.linalg.norm(_sketch.project(data, Q)) ** 2 / np.sum(0.81 ** np.arange(6))
    assert 0.97 < caught <= 1 + 1e-6


# --- graphs passed by the user ----------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, *SPARSE])
def test_check_graph_accepts(make):
    given_graph = make(np.array([[3.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]))
    W = check_graph(given_graph, 3)
    assert isinstance(W, sp.csr_array)
    assert W.toarray().tolist() == [[0, 1, 0], [1, 0, 0.5], [0, 0.5, 0]] and W.nnz == 4
    before = given_graph.toarray() if sp.issparse(given_graph) else given_graph
    assert before[0, 0] == 3.0


@pytest.mark.parametrize(
    "dtype, expected",
    [(np.float32, np.float32), (bool, np.float64), (np.int8, np.float64), (float, np.float64)],
)
def test_check_graph_dtype(dtype, expected):
    W = check_graph(sp.csr_array(np.array([[0, 1], [1, 0]], dtype=dtype)), 2)
    assert W.dtype == expected and W.toarray().tolist() == [[0, 1], [1, 0]]


def test_check_graph_adds_doubled_entries_and_drops_zeros():
    W = sp.coo_array(([1.0, 1.0, 2.0, 0.0], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 3))
    checked = check_graph(W, 3)
    assert checked.toarray().tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]] and checked.nnz == 2


def test_check_graph_evens_out_roundings():
    near = np.nextafter(1.0, 2.0)
    W = check_graph(np.array([[0.0, 1.0], [near, 0.0]]), 2)
    assert W[0, 1] == W[1, 0] == near


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_check_graph_tells_roundings_from_differences(dtype, size):
    """Check that `check_graph` accepts an asymmetry of about a hundred rounding errors.

    The rounding errors are those of the largest weight; twice this asymmetry is refused.
    """
    eps = float(np.finfo(dtype).eps)
    W = np.array([[0, 1, 0.5], [1, 0, 0], [0.5, 0, 0]], dtype=dtype)
    W[2, 0] += dtype(150 * eps)
    assert (check_graph(dtype(size) * W, 3) != check_graph(dtype(size) * W, 3).T).nnz == 0
    W[2, 0] += dtype(150 * eps)
    with pytest.raises(ValueError, match="symmetric"):
        check_graph(dtype(size) * W, 3)


def test_check_graph_of_ours_is_itself(rng):
    W = neighbor_graph(rng.random((50, 3)), 4, weighting="heat")
    again = check_graph(W, 50)
    assert again is not W and abs(again - W).max() == 0
    assert check_graph(sp.csr_array((4, 4)), 4).nnz == 0


@pytest.mark.parametrize(
    "bad, error, message",
    [
        (np.ones((3, 2)), ValueError, r"square, got shape \(3, 2\)"),
        (np.ones(3), ValueError, r"square, got shape \(3,\)"),
        (np.ones((2, 2)), ValueError, r"3 samples of X, got shape \(2, 2\)"),
        (np.array([[0, np.nan, 0]] * 3), ValueError, "finite"),
        (np.array([[0, -2.0, 0], [-2.0, 0, 0], [0, 0, 0]]), ValueError, r"got -2 at \(0, 1\)"),
        (np.array([[0, 1.0, 0], [0.5, 0, 0], [0, 0, 0]]), ValueError, r"graph\.maximum\(graph\.T"),
        (np.array([[0, 1.0, 0], [0, 0, 0], [0, 0, 0]]), ValueError, r"1 at \(0, 1\) but 0 at"),
        (np.array([["a"] * 3] * 3), TypeError, "real numbers"),
        ("knn", TypeError, "got 'knn'"),
        (None, TypeError, "got None"),
    ],
)
def test_check_graph_refuses(bad, error, message):
    with pytest.raises(error, match="(?s)affinity.*" + message):
        check_graph(bad, 3, name="affinity")


def test_semi_supervised_graph():
    W = sp.csr_array(1.0 - np.eye(5))
    labels = encode_labels(["a", "a", "b", None, None], 5)
    kept = semi_supervised_graph(W, labels)
    expected = 1.0 - np.eye(5)
    expected[:3, :3] = 0  # samples 0 and 1 share a class; 2 has another one
    assert isinstance(kept, sp.csr_array)
    np.testing.assert_array_equal(kept.toarray(), expected)
    assert kept.nnz == 14 and W.nnz == 20


def test_semi_supervised_graph_at_the_ends(rng):
    W = neighbor_graph(rng.random((20, 3)).astype(np.float32), 3)
    assert semi_supervised_graph(W, None) is W
    unknown = semi_supervised_graph(W, encode_labels([-1] * 20, 20))
    assert abs(unknown - W).max() == 0 and unknown.dtype == np.float32
    assert semi_supervised_graph(W, encode_labels(np.arange(20), 20)).nnz == 0
    with pytest.raises(ValueError, match=r"20.*3"):
        semi_supervised_graph(W, encode_labels([1, 2, 3], 3))
