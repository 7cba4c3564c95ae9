"""Tests of model selection on Dask arrays, which works by chunks without loading X."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import (
    NMF,
    MiniBatchNMF,
    PartsClassifier,
    bootstrap_intervals,
    choose_k,
    consensus,
    refit,
    select,
)
from partwise.backends import memory
from partwise.backends.numpy.dense import DenseData
from partwise.metrics import hold_out

da = pytest.importorskip("dask.array")
dask_data = pytest.importorskip("partwise.backends.dask.dask_data")
dask_runners = pytest.importorskip("partwise.backends.dask.dask_runners")
N, P, ROWS = 90, 20, 30


def counts(k=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(6 * rng.gamma(0.5, size=(N, k)) @ rng.gamma(0.5, size=(k, P))).astype(float)


def chunked(X, kind):
    return da.from_array(X, chunks=(ROWS, P)).map_blocks(kind) if kind else da.from_array(X, ROWS)


@pytest.fixture(autouse=True)
def no_loading(monkeypatch):
    """Fail the test if more than a few numbers per sample are loaded into this process."""
    compute, run = da.Array.compute, dask_runners.Threads.run

    def small(X, **how):
        found = compute(X, **how)
        assert found.size < N * P / 2
        return found

    def kept(self, *args):
        share, values = run(self, *args)
        assert not any(isinstance(value, DenseData) for made, _ in values for value in made)
        return share, values

    monkeypatch.setattr(da.Array, "compute", small)
    monkeypatch.setattr(da.Array, "__array__", lambda X, *how: small(X))
    monkeypatch.setattr(dask_runners.Threads, "run", kept)
    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1)  # each chunk is a block of its own


KINDS = [None, sp.csr_matrix]


@pytest.mark.parametrize("kind", KINDS)
def test_choose_k_fits_by_chunks(kind, tmp_path):
    X = chunked(counts(), kind)
    given = {"n_splits": 2, "random_state": 0, "results": tmp_path / "results.jsonl"}
    given |= {"estimator": NMF(tol=0, max_iter=6)}
    with pytest.warns(UserWarning, match="largest"):
        found = choose_k(X, [1, 2], n_runs=2, **given)
    assert found.errors[1].mean() < found.errors[0].mean()
    assert np.isfinite(found.stability[1:]).all() and np.isfinite(found.cophenetic[1:]).all()
    with pytest.warns(UserWarning, match="largest"):
        again = choose_k(X, [1, 2], n_runs=2, **given)
    np.testing.assert_array_equal(again.errors, found.errors)
    with pytest.raises(ValueError, match="results"):
        choose_k(X + 1 if kind is None else X * 2, [1, 2], n_runs=2, **given)


def test_large_data_are_fitted_in_single_precision_and_run_on_a_sample(monkeypatch):
    from partwise.selection import rank

    monkeypatch.setattr(rank, "LARGE", N * P // 3)
    seen = []
    fit = NMF.fit
    monkeypatch.setattr(
        NMF, "fit", lambda s, X, *a, **k: seen.append(X.dtype) or fit(s, X, *a, **k)
    )
    found = choose_k(chunked(counts(), None), [2], n_splits=2, random_state=0)
    assert np.isfinite(found.stability[0]) and set(seen) == {np.dtype(np.float32)}


def test_select_fits_by_chunks():
    X = chunked(counts(), None)
    model = NMF(2, tol=0, max_iter=6)
    found = select(X, model, {"alpha_W": [0.0, 50.0]}, n_splits=2, random_state=0)
    assert found.by == "entries" and found.best == {"alpha_W": 0.0}
    y = np.where(np.arange(N) % 3 == 0, np.arange(N) % 2, -1)
    found = select(X, model, {"n_components": [1, 2]}, y=y, n_splits=2, random_state=0)
    assert found.by == "labels" and found.errors.shape == (2, 2)


def test_hold_out_hides_by_chunks():
    held = hold_out(chunked(counts(), None), 0.1, random_state=0)
    assert held.X.chunks == ((ROWS,) * 3, (P,))
    model = NMF(2, missing_values=np.nan, random_state=0, tol=1e-2).fit(held.X)
    assert 0 < held.error(model) < counts().var()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_refit_solves_by_chunks(kind, loss):
    H = np.random.default_rng(0).gamma(0.5, size=(3, P))
    V = refit(chunked(counts(), kind), H, threshold=0.1, beta_loss=loss)
    assert V.chunks == ((ROWS,) * 3, (3,))
    here = refit(counts(), H, threshold=0.1, beta_loss=loss)
    blocks = np.concatenate([V[i : i + ROWS].compute() for i in range(0, N, ROWS)])
    # The KL divergence is minimised to tol=1e-4, starting from the mean of a chunk.
    np.testing.assert_allclose(
        blocks, here, atol=1e-9 if loss == "frobenius" else 1e-2 * here.max()
    )
    with pytest.raises(ValueError, match="Negative"):
        refit(chunked(-counts(), kind), H)[:ROWS].compute()


def test_consensus_runs_by_chunks():
    X = chunked(counts(), None)
    found = consensus(X, 2, n_runs=3, estimator=NMF(tol=1e-2), random_state=0)
    assert found.usages.shape == (N, 2) and found.stability.min() > 0.5


def test_intervals_refuse_with_the_memory_that_they_need():
    X = counts()
    model = NMF(2, random_state=0, tol=1e-2).fit(X)
    with pytest.raises(ValueError, match=r"X.*GiB"):
        bootstrap_intervals(chunked(X, None), model)


def test_weights_and_missing_values_are_applied_by_chunks():
    """Check weights and missing values of a Dask array against the fit of an ndarray."""
    X, rng = counts() + 1, np.random.default_rng(0)
    X[rng.random(X.shape) < 0.2] = np.nan
    given = {"sample_weight": rng.random(N) + 0.5, "entry_weight": rng.random(X.shape) + 0.5}
    start = {"W": rng.random((N, 2)), "H": rng.random((2, P))}
    how = {"init": "custom", "missing_values": np.nan, "max_iter": 5, "tol": 0, "solver": "mu"}
    for names in ([], ["sample_weight"], ["entry_weight"], list(given)):
        some = {name: given[name] for name in names}
        there = NMF(2, **how).fit(chunked(X, None), **start, **some)
        here = NMF(2, **how).fit(X, **start, **some)
        np.testing.assert_allclose(there.components_, here.components_, rtol=1e-6)
    single = NMF(2, missing_values=np.nan, max_iter=3, tol=0).fit(chunked(X, None).astype("f4"))
    V, H = np.asarray(single.embedding_, float), single.components_.astype(float)
    naive = 0.5 * np.nansum((X - V @ H) ** 2)
    # X in single precision is rounded to 6e-8.
    assert single.objective_ == pytest.approx(naive, rel=1e-4)


@pytest.mark.parametrize(
    ("fit", "need"),
    [
        (lambda X: MiniBatchNMF(2, max_iter=99).fit(X), N * (2 * 8 + 8)),
        (lambda X: MiniBatchNMF(2).partial_fit(X[:ROWS]).transform(X), N * (2 * 8 + 8)),
        (lambda X: PartsClassifier(2).fit(X, np.arange(N) % 2), 8 * N * (3 * (P + 2) + 4 * 5)),
    ],
)
def test_arrays_that_exceed_the_free_memory_are_refused(fit, need, monkeypatch):
    """Check that X is refused if a step that needs arrays in memory would exceed the free memory.

    Such arrays are part weights or features of all samples.
    """
    X = chunked(counts(), None)
    monkeypatch.setattr(memory, "free_memory", lambda: need - 1.0)
    with pytest.raises(ValueError, match=rf"{N} samples.* {memory.in_units(need)}"):
        fit(X)
    monkeypatch.setattr(memory, "free_memory", lambda: float(need))
    fit(X)


def test_bytes_are_written_with_a_unit():
    sizes = [-1, 1, 999, 1000, 1.5e9, 2e18, np.inf]
    wanted = ["0 B", "1 B", "999 B", "1 kB", "1.5 GB", "2e+03 PB", "any amount"]
    assert [memory.in_units(size) for size in sizes] == wanted
    assert 2**20 < memory.free_memory() < np.inf
