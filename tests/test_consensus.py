"""Many starts at once, parts that come back, and how many there are."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import CNMF, GNMF, NMF, SparseNMF
from partwise.engine.solvers import batch
from partwise.engine.solvers.loop import alternate
from partwise.estimators import _base


def planted(n=60, p=40, k=3, *, noise=0.05, seed=0):
    """X >= 0 of k sparse parts, the parts, and the codes."""
    rng = np.random.RandomState(seed)
    V = rng.gamma(0.5, size=(n, k))
    H = rng.gamma(0.5, size=(k, p)) * (rng.uniform(size=(k, p)) < 0.5)
    X = V @ H
    return np.maximum(X + noise * X.mean() * rng.standard_normal(X.shape), 0), H, V


def one_by_one(model, starts, settings):
    for start in starts:
        yield alternate(model, *start(), settings)


def ends(estimator, X, **given):
    """Every start's end and the estimator, fitted."""
    found = []
    estimator._on_solution = lambda model, solution: found.append(solution)
    estimator.fit(X, **given)
    return found, estimator


def as_is(X):
    return X


def as_torch(X):
    return pytest.importorskip("torch").asarray(X)


def as_dask(X):
    return pytest.importorskip("dask.array").from_array(X, chunks=(25, -1))


@pytest.mark.parametrize("kind", [as_is, sp.csr_array, as_torch, as_dask])
def test_starts_side_by_side_are_the_starts_alone(kind, monkeypatch):
    X, _, _ = planted()
    monkeypatch.setattr(batch, "WIDEST", 9)  # 5 starts of 3 parts: a group of 3, one of 2
    args = {"n_init": 5, "random_state": 0, "tol": 1e-2, "max_iter": 60}
    many, model = ends(NMF(3, **args), kind(X))
    monkeypatch.setattr(_base, "solve_many", one_by_one)
    single, alone = ends(NMF(3, **args), kind(X))
    assert len(many) == len(single) == 5
    assert len({run.n_iter for run in many}) > 1  # some drop out before the others
    for one, other in zip(many, single, strict=True):
        assert one.status == other.status
        np.testing.assert_allclose(one.history, other.history, rtol=1e-9)  # rounding of products
    np.testing.assert_allclose(model.components_, alone.components_, atol=1e-7)


def gappy(k, **args):
    return NMF(k, alpha_W=0.1, missing_values=np.nan, **args)


def sparse(k, **args):
    return SparseNMF(k, sparseness_H=0.5, **args)


@pytest.mark.parametrize("make", [CNMF, GNMF, gappy, sparse])
def test_labels_graphs_gaps_and_projections_go_side_by_side_too(make, monkeypatch):
    X, _, V = planted()
    if make is gappy:
        X[::7, ::5] = np.nan
    y = np.where(np.arange(60) % 3 == 0, V.argmax(axis=1), -1)
    given = {"y": y} if make is CNMF else {}
    args = {"n_init": 3, "random_state": 1, "max_iter": 12, "tol": 0}
    many, _ = ends(make(3, **args), X, **given)
    monkeypatch.setattr(_base, "solve_many", one_by_one)
    single, _ = ends(make(3, **args), X, **given)
    for one, other in zip(many, single, strict=True):
        np.testing.assert_allclose(one.history, other.history, rtol=1e-9)


def test_a_group_is_as_wide_as_memory_allows(monkeypatch):
    data = _base.as_data(np.ones((1000, 100)))
    assert batch.group_size(data, 10) == batch.WIDEST // 10
    assert batch.group_size(data, 1000) == 1
    monkeypatch.setattr(batch, "ROOM", 0)  # 8 arrays of 1100 rows of 5 in the 100,000 of X: 2
    assert batch.group_size(data, 5) == 2
