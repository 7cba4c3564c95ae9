"""Tests of Dask arrays: chunks do not change results, and unsuitable arrays are refused."""

import os
import signal

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from backends import two_workers
from methods import FROBENIUS, KL, make_problem
from partwise.backends.arrays import to_numpy

da = pytest.importorskip("dask.array", reason="dask is not installed: partwise[dask]")

q = make_problem(0, n=210, p=40)


@pytest.mark.parametrize("sparse", (False, True), ids=("dense", "csr"))
@pytest.mark.parametrize("loss", (FROBENIUS, KL))
@pytest.mark.parametrize("estimator", ("NMF", "CNMF"))
def test_chunks_do_not_change_iterates(estimator, loss, sparse, monkeypatch):
    from partwise.backends.dask import dask_data
    from partwise.backends.numpy import dense

    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1, raising=False)
    # Some chunks have less work than this limit, others more.
    monkeypatch.setattr(dense, "ROUGH_WORK", 100 * 40 * 4)

    def fit(X, rows):
        X = da.from_array(X, chunks=(rows, 40))
        X = X.map_blocks(sp.csr_array) if sparse else X
        # NNDSVD would depend more on the order of sums than these iterates do.
        how = {"beta_loss": loss, "init": "random", "random_state": 0, "max_iter": 6, "tol": 0}
        model = getattr(partwise, estimator)(4, **how)
        model.fit(X, **({} if estimator == "NMF" else {"y": q.y}))
        return model.objective_history_, model.components_, to_numpy(model.embedding_)

    whole = fit(q.X, 210)
    # Chunks change the order of sums, so their effect may be as large as that of rounding X: the
    # last bits of sums of 210 terms, or of float32 if sweeps use it. Newton steps can amplify this
    # a thousandfold on some processors. Fits of a perturbed X measure by how much.
    eps = np.finfo(np.float32).eps if loss == KL and not sparse else 210 * np.finfo(float).eps
    limit = [eps * np.abs(part).max() for part in whole]
    # Each block of rows stops once a sweep changes V Uᵀ by less than 1e-9 of X.
    ending = 1e-9 * np.linalg.norm(q.X) / np.linalg.svd(whole[1], compute_uv=False).min()
    limit[2] += ending
    # Parts are scaled by the root mean squares of their part weights.
    limit[1] += ending * np.abs(whole[1]).max()
    for seed in range(3):
        noise = np.random.default_rng(seed).uniform(-eps, eps, q.X.shape)
        rounded = fit(q.X * (1 + noise), 210)
        limit = [max(a, np.abs(x - y).max()) for a, x, y in zip(limit, rounded, whole, strict=True)]
    for part, expected, near in zip(fit(q.X, (102, 64, 23, 21)), whole, limit, strict=True):
        # Three random perturbations show the typical size of such a change, not the largest one.
        np.testing.assert_allclose(part, expected, rtol=0, atol=10 * near)


@pytest.mark.parametrize("sparse", (False, True), ids=("dense", "csr"))
def test_small_chunks_are_merged(sparse, monkeypatch):
    from partwise.backends.dask.dask_data import Threads, as_dask_data

    monkeypatch.setattr(Threads, "threads", 2)

    def cut(rows, columns):
        X = da.from_array(q.X, chunks=(rows, columns))
        return X.map_blocks(sp.csr_array) if sparse else X

    X = cut(5, 20)
    data = as_dask_data(X)
    assert data.layout.sizes == [105, 105]  # small chunks are merged into one block per thread
    np.testing.assert_allclose(to_numpy(data.dot(q.U)), q.X @ q.U)
    model = partwise.NMF(3, max_iter=3, tol=0, random_state=0).fit(X)
    assert model.embedding_.chunks == model.transform(X).chunks == ((5,) * 42, (3,))
    whole = partwise.NMF(3, max_iter=3, tol=0, random_state=0).fit(cut(210, 40))
    np.testing.assert_allclose(to_numpy(model.embedding_), to_numpy(whole.embedding_), atol=1e-9)


@pytest.mark.parametrize("pairs", (3, 512), ids=("in bands", "at once"))
@pytest.mark.parametrize("sparse", (False, True), ids=("dense", "csr"))
def test_blocks_sum_the_hessians_of_columns(sparse, pairs, monkeypatch):
    from partwise.backends.curvature import places
    from partwise.backends.dask import dask_data

    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1)
    monkeypatch.setattr(dask_data, "PAIRS", pairs)
    X = da.from_array(q.X, chunks=(50, 40))
    data = dask_data.as_dask_data(X.map_blocks(sp.csr_array) if sparse else X)
    V, U = q.V + 0.1, q.U + 0.1
    found = data.kl_curvature(data.rows(V), U, transposed=True)
    weights = q.X / (V @ U.T) ** 2
    expected = np.einsum("ij,ia,ib->jab", weights, V, V)
    np.testing.assert_allclose(found[:, places(V.shape[1])], expected, rtol=1e-12)


def test_blocks_stay_large_enough_and_no_larger():
    from partwise.backends.dask.dask_data import merged

    assert merged((8,) * 6, 10, 80) == [[i] for i in range(6)]
    assert merged((2,) * 8, 10, 80) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert merged((1,) * 2000, 10, 10**6) == [list(range(2000))]
    assert merged((8, 1, 1, 9), 10, 80) == [[0], [1, 2], [3]]


def test_a_bad_entry_names_the_chunk_that_the_user_made():
    X = q.X.copy()
    X[41, 7] = -1.5
    with pytest.raises(ValueError, match=r"41.*7.*4"):
        partwise.NMF(2).fit(da.from_array(X, chunks=(10, 40)))


def test_what_is_no_real_matrix_of_known_shape_says_so():
    X = da.from_array(q.X, chunks=(30, 20))
    with pytest.raises(ValueError, match=r"X\.compute_chunk_sizes"):
        partwise.NMF(2).fit(X[:, X[0] > 0])
    model = partwise.NMF(2)
    with pytest.raises(ValueError, match=r"X\.compute_chunk_sizes"):
        model.fit(X[X[:, 0] > 0])
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(ValueError, match="Complex"):
        partwise.NMF(2).fit(X.astype(np.complex128))
    with pytest.raises(ValueError, match=r"2D.*1D"):
        partwise.NMF(2).fit(X[0])
    with pytest.raises(ValueError, match="dtype <U"):
        partwise.NMF(2).fit(X.astype(str))


def test_a_dask_dataframe_is_told_what_to_do():
    pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame(q.X), npartitions=3)
    for model in (partwise.NMF(2), partwise.CF(2)):
        with pytest.raises(TypeError, match=r"X\.to_dask_array\(lengths=True\)"):
            model.fit(frame)
    partwise.NMF(2, max_iter=2, tol=0).fit(frame.to_dask_array(lengths=True))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "here", (True, pytest.param(False, marks=pytest.mark.long)), ids=("small", "large")
)
@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
def test_part_weights_survive_a_killed_worker(here, monkeypatch):
    pytest.importorskip("distributed")
    from partwise.backends.dask import dask_data

    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1, raising=False)
    if not here:
        monkeypatch.setattr(dask_data, "BROUGHT", 0, raising=False)
    # Processes take seconds to start, so the short test uses threads.
    for client in two_workers(processes=not here):
        with client.as_current():
            X = da.from_array(q.X, chunks=(30, 40))
            model = partwise.NMF(3, max_iter=3, tol=0, random_state=0).fit(X)
            V = np.asarray(model.embedding_)
            if here:
                client.sync(client.cluster.workers[0].close)
            else:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            np.testing.assert_array_equal(np.asarray(model.embedding_), V)
    if here:  # the part weights are in local memory
        np.testing.assert_array_equal(np.asarray(model.embedding_), V)
