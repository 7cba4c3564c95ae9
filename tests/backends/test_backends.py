"""Tests that fits to any array type (memmap, Torch, Dask, sparse) agree with fits to ndarrays.

All fits begin at the same initial values.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import partwise
from backends import (
    KINDS,
    METHODS,
    Forms,
    fitted,
    method,
    missing,
    needs,
    product,
    q,
    two_workers,
)
from methods import FROBENIUS, KL
from partwise import backends as data_module
from partwise.backends.arrays import to_numpy
from partwise.backends.data_matrix import Swept
from partwise.backends.numpy.blocks import split_rows
from partwise.backends.numpy.memmap import MemmapData
from partwise.fitting import stating
from partwise.knowledge.graph import neighbor_graph
from partwise.knowledge.labels import encode_labels
from partwise.model.maps import SharedRows

if not missing("torch"):
    import torch

PRODUCT, OBJECTIVE = 1e-6, 1e-3  # tolerances for solvers without and with extrapolation


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    return Forms(q.X, tmp_path_factory.mktemp("memmap"))


@pytest.fixture(scope="module")
def cluster():
    if missing("distributed"):
        pytest.skip("distributed is not installed: partwise[dask]")
    yield from two_workers(processes=False)


@pytest.fixture
def client(cluster):
    """Yield a client of two worker processes."""
    with cluster.as_current():
        yield cluster


@pytest.fixture(scope="module")
def expected():
    """Return a function that fits a method to ndarrays and keeps the result for later tests."""
    known = {}

    def get(method, solver="mu", **params):
        key = (method.name, solver, tuple(params.items()))
        if key not in known:
            known[key] = fitted(method, q.X, solver, **params)
        return known[key]

    return get


@pytest.fixture(scope="module")
def worst(request):
    """Collect the largest difference per array type, which ``pytest -v`` prints at the end."""
    found = {}

    def note(what, kind, value):
        found[what, kind] = max(float(value), found.get((what, kind), 0.0))
        return value

    yield note
    if request.config.get_verbosity() > 0:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            for (what, kind), value in found.items():
                print(f"\n{what:35} {kind:10} {value:.1e}", end="")


# -- every method on every array type ------------------------------------------------------------


def assert_same_product(got, base, kind, worst):
    gap = np.abs(product(got) - product(base)).max()
    assert worst("product, mu", kind, gap) <= PRODUCT
    assert got.objective_ == pytest.approx(base.objective_, rel=1e-9)
    assert got.kkt_residual_ == pytest.approx(base.kkt_residual_, rel=1e-6)


def assert_same_objective(got, base, kind, worst):
    gap = abs(got.objective_ / base.objective_ - 1)
    assert worst(f"objective, {base.solver_}", kind, gap) <= OBJECTIVE


def matrix(methods):
    """Return pairs of a method and an array type; pairs that repeat code are marked `long`."""
    few = ("NMF", "CNMF-KL", "any-f")
    cells = []
    for m in methods:
        for kind in KINDS:
            again = kind in ("dask-csr", "torch-csr") and m.name not in few
            marks = [pytest.mark.long] if again else []
            cells.append(pytest.param(m, kind, marks=marks, id=f"{m.name}-{kind}"))
    return cells


def on_workers(methods, often):
    """Return the methods to test on two processes; those not in ``often`` are marked `long`."""
    return [
        pytest.param(m, marks=[] if m.name in often else [pytest.mark.long], id=m.name)
        for m in methods
    ]


def faster(loss):
    """Return the methods that have an extrapolating solver for this loss."""
    return [m for m in METHODS if m.loss == loss and m.faster]


@pytest.mark.parametrize(("method", "kind"), matrix(METHODS))
def test_same_product(method, kind, forms, expected, worst, monkeypatch):
    monkeypatch.setattr(data_module, "SMALL_SPARSE", 0)
    assert_same_product(fitted(method, forms[kind]), expected(method), kind, worst)


@pytest.mark.parametrize("method", on_workers(METHODS, ("CNMF", "NMF-KL")))
def test_same_product_on_workers(method, forms, expected, client, worst):
    assert_same_product(fitted(method, forms["dask"]), expected(method), "workers", worst)


@pytest.mark.parametrize(("method", "kind"), matrix(faster(FROBENIUS)))
def test_same_objective_with_extrapolation(method, kind, forms, expected, worst, monkeypatch):
    monkeypatch.setattr(data_module, "SMALL_SPARSE", 0)
    got = fitted(method, forms[kind], "hals")
    assert_same_objective(got, expected(method, "hals"), kind, worst)


@pytest.mark.parametrize("method", faster(KL), ids=lambda m: m.name)
def test_same_divergence_with_extrapolation(method, forms, expected, worst, monkeypatch):
    monkeypatch.setattr(data_module, "SMALL_SPARSE", 0)
    got = fitted(method, forms["csr"], "newton")
    assert_same_objective(got, expected(method, "newton"), "csr", worst)


# The second-order steps differ: ndarrays use sweeps over rows and columns, Dask sums Hessians of
# columns, and devices use Hessians for both. For NMF all of them reach the same divergence. With
# hard labels or class costs they reach one of several local minima.
@pytest.mark.parametrize("kind", ("memmap", "torch", pytest.param("dask", marks=pytest.mark.long)))
@pytest.mark.parametrize("method", faster(KL), ids=lambda m: m.name)
def test_divergences_end_together(method, kind, forms, expected, worst):
    many = {"max_iter": 300}
    got, base = fitted(method, forms[kind], "auto", **many), expected(method, "auto", **many)
    gap = worst("objective, KL, to the end", kind, abs(got.objective_ / base.objective_ - 1))
    assert gap <= (OBJECTIVE if method.name == "NMF-KL" else 2e-2)


@pytest.mark.parametrize(
    "kind", ("memmap", "dask", pytest.param("dask-csr", marks=pytest.mark.long))
)
def test_divergences_of_nearly_low_rank_samples_end_together(kind, tmp_path, worst):
    """Check that "newton" reaches the same divergence on every array type for nearly low-rank X.

    With multiplicative steps for the parts, the divergence was up to 130 times as high after 300
    iterations.
    """
    rng = np.random.default_rng(0)
    V, H = rng.gamma(0.5, size=(60, 3)), rng.gamma(0.5, size=(3, 40))
    X = V @ H * (1 + 1e-2 * rng.standard_normal((60, 40)))
    model = partwise.NMF(3, beta_loss=KL, random_state=0)
    base = model.fit(X).objective_
    gap = model.fit(Forms(X, tmp_path)[kind]).objective_ / base - 1
    assert worst("objective, KL, nearly low rank", kind, abs(gap)) <= OBJECTIVE


@pytest.mark.parametrize("method", on_workers(faster(FROBENIUS), ()))
def test_same_objective_on_workers(method, forms, expected, client, worst):
    got = fitted(method, forms["dask"], "hals")
    assert_same_objective(got, expected(method, "hals"), "workers", worst)


@pytest.mark.parametrize("method", on_workers(faster(KL), ()))
def test_same_divergence_on_workers(method, forms, client, worst):
    """Check that worker processes give the same result as Dask's threads."""
    got, base = fitted(method, forms["dask"], "newton"), fitted(method, forms["memmap"], "newton")
    assert_same_objective(got, base, "workers", worst)


@pytest.fixture
def one_sweep(monkeypatch):
    """Run "hals" without extrapolation and with one sweep per factor.

    Otherwise blocks of rows may stop after different numbers of sweeps.
    """
    plain = stating.settings_for
    monkeypatch.setattr(
        stating, "settings_for", lambda *args: replace(plain(*args), extrapolate=False)
    )
    monkeypatch.setattr(Swept, "sweeps", lambda data, size, k: 1)


@pytest.mark.parametrize("kind", ("memmap", "torch", "torch-csr", "dask"))
def test_same_product_by_sweeps(kind, forms, one_sweep):
    for name in ("NMF", "CNMF", "CDNMF"):
        got, base = fitted(method(name), forms[kind], "hals"), fitted(method(name), q.X, "hals")
        # Each fit ends with a solve for V, which is accurate to the solver's own tolerance.
        np.testing.assert_allclose(product(got), product(base), atol=1e-6)


# -- starts, transform, array types of results ----------------------------------------------------


@pytest.mark.parametrize("kind", ("torch", "torch-csr", "dask", "memmap"))
def test_starts_transform_and_predict(kind, forms):
    X = forms[kind]
    plain, here = (partwise.NMF(4, random_state=0).fit(data) for data in (q.X, X))
    assert here.objective_ == pytest.approx(plain.objective_, rel=1e-3)
    V = np.asarray(to_numpy(here.transform(X)))
    np.testing.assert_allclose(V @ to_numpy(here.components_), product(here), atol=2e-2)
    assert here.score(X) == pytest.approx(plain.score(q.X), rel=1e-3)
    random = partwise.CDNMF(4, init="random", random_state=0, max_iter=30, tol=0).fit(X, q.y)
    assert random.predict(X).shape == (60,) and random.labels_.shape == (60,)


@needs("torch")
def test_results_are_tensors_for_tensors(forms):
    model = partwise.NMF(3, max_iter=5, tol=0).fit(forms["torch"])
    assert isinstance(model.components_, torch.Tensor)
    assert isinstance(model.embedding_, torch.Tensor)


@needs("torch")
def test_results_come_back_from_a_device(forms):
    model = partwise.NMF(3, max_iter=5, tol=0, device="cpu").fit(forms["csr"])
    assert isinstance(model.components_, np.ndarray)
    assert isinstance(model.transform(q.X), np.ndarray)
    V = partwise.NMF(3, max_iter=5, tol=0, device="cpu").fit_transform(q.X.astype(np.float32))
    assert V.dtype == np.float32
    pickle.loads(pickle.dumps(model))


@needs("dask")
def test_codes_of_a_dask_array_keep_its_chunks(forms):
    import dask.array as da

    model = partwise.NMF(3, max_iter=5, tol=0).fit(forms["dask"])
    assert isinstance(model.embedding_, da.Array) and model.embedding_.chunks[0] == (17, 17, 17, 9)


@pytest.mark.gpu
@needs("torch")
@pytest.mark.skipif(
    missing("torch") or not torch.cuda.is_available(), reason="torch sees no CUDA device"
)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_same_product_on_a_gpu(method, expected, worst):
    X = torch.from_numpy(q.X).cuda()
    got = fitted(method, X)
    assert got.components_.is_cuda and got.embedding_.is_cuda
    assert_same_product(got, expected(method), "cuda", worst)


@pytest.mark.long
def test_a_graph_is_built_on_workers(forms, client):
    W = neighbor_graph(forms["dask"], 5, method="approximate", random_state=0)
    assert abs(W - neighbor_graph(q.X, 5)).nnz == 0


# -- the neighbour graph --------------------------------------------------------------------------


@needs("dask")
@pytest.mark.parametrize("kind", ("dask", "dask-csr"))
@pytest.mark.parametrize("estimator", (partwise.GNMF, partwise.ConstrainedNMF))
def test_a_graph_is_built_from_a_dask_array(kind, estimator, forms):
    params = {"graph_reg": 0.5, "solver": "mu", "init": "random", "random_state": 0}
    model = estimator(3, max_iter=20, tol=0, **params)
    built = model.fit(forms[kind])
    W = neighbor_graph(forms[kind], 5, method="approximate", random_state=0)
    given = estimator(3, max_iter=20, tol=0, **params).fit(q.X, graph=W)
    np.testing.assert_allclose(product(built), product(given), atol=1e-6)
    # The approximate search uses a random projection, which up to 128 features is a rotation of X,
    # so it is exact.
    assert abs(W - neighbor_graph(q.X, 5)).nnz == 0


@needs("dask")
# NumPy 2.0 sets the overflow flag for unused vector lanes of float32 products.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")
def test_most_neighbours_are_found_in_a_sketch(digits):
    """Check that the approximate search finds most neighbours of image-like samples.

    The samples are 64 pixels, blurred into 400 columns, plus noise, which gives the spectrum of
    images.
    """
    import dask.array as da

    rng = np.random.default_rng(0)
    X = digits.X[:600] @ rng.random((64, 400)) + rng.random((600, 400))
    exact = neighbor_graph(X, 5)
    W = neighbor_graph(da.from_array(X, chunks=(250, 100)), 5, method="approximate", random_state=0)
    assert W.multiply(exact).nnz > 0.95 * exact.nnz
    with pytest.raises(ValueError, match="method='approximate'"):
        neighbor_graph(da.from_array(X, chunks=250), 5)
    X[3, 4] = np.inf
    with pytest.raises(ValueError, match="NaN"):
        neighbor_graph(da.from_array(X, chunks=250), 5, method="approximate")


def test_the_graph_of_a_memmap_is_the_exact_one(forms):
    params = {"graph_reg": 0.5, "solver": "mu", "init": "random", "random_state": 0}
    here, plain = (partwise.GNMF(3, max_iter=20, tol=0, **params).fit(X)
                   for X in (forms["memmap"], q.X))  # fmt: skip
    np.testing.assert_allclose(product(here), product(plain), atol=1e-12)


# -- internal functions ------------------------------------------------------------------------


def test_split_rows_lays_shared_rows_first():
    rows = SharedRows(encode_labels([5, -1, 7, 5, -1, 3], 6).codes, 6)
    head, sample = split_rows(rows.index, rows.n_rows)
    assert sample.tolist() == [1, 4] and head == 3


def test_memmap_blocks_are_small(forms, monkeypatch):
    from partwise.backends import arrays

    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", 7 * 40)
    data = MemmapData(forms["memmap"])
    assert max(len(block) for _, block in data.read()) == 7
    np.testing.assert_allclose(data.dot(q.U), q.X @ q.U)
    np.testing.assert_allclose(data.tdot(q.V), q.X.T @ q.V)
