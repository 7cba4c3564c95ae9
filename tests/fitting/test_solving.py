"""The best of the starts, the same ones again whatever the threads, and products alone."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

from partwise import NMF
from partwise.backends import as_data
from partwise.fitting import checking
from plain_fits import (
    FAST,
    FAST_IDS,
    KL,
    SOLVER_IDS,
    SOLVERS,
    SPARSE,
    data_for,
    make,
    make_data,
    make_sparse,
    one_blas_thread,  # noqa: F401
)


@pytest.mark.parametrize(("solver", "rule", "loss"), FAST, ids=FAST_IDS)
def test_n_init_keeps_the_best_of_its_starts(solver, rule, loss):
    X = make_data(positive=True)
    one = make(solver, rule, loss, n_components=6, max_iter=15)
    several = clone(one).set_params(n_init=6).fit(X)
    again = clone(several).fit(X)
    np.testing.assert_array_equal(several.components_, again.components_)
    seeds = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=6)
    runs = [clone(one).set_params(random_state=int(seed)).fit(X) for seed in seeds]
    values = [run.objective_history_[-1] for run in runs]
    assert max(values) > min(values) * (1 + 1e-6)  # otherwise there is nothing to choose
    best = runs[int(np.argmin(values))]
    same = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)  # rounding of wide products
    same(several.components_, best.components_)
    same(several.embedding_, best.embedding_)
    same(several.objective_history_, best.objective_history_)


@pytest.mark.parametrize("init", ["random", "nndsvd", "nndsvda", "nndsvdar", "kmeans"])
@pytest.mark.parametrize(("solver", "rule", "loss"), SOLVERS, ids=SOLVER_IDS)
def test_the_same_random_state_gives_the_same_arrays(solver, rule, loss, init):
    X = data_for(loss)
    if init == "nndsvd" and solver == "mu":
        init = "nndsvdar"  # zeros of the start would stay
    first, second = (
        make(solver, rule, loss, init=init, max_iter=10, random_state=7).fit(X) for _ in range(2)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.embedding_, second.embedding_)
    other = make(solver, rule, loss, init="random", max_iter=10, random_state=8).fit(X)
    assert not np.array_equal(first.components_, other.components_)


@pytest.mark.parametrize(
    ("solver", "rule", "loss"),
    [row for row in SOLVERS if row[2] in ("frobenius", KL)],
    ids=[i for i, row in zip(SOLVER_IDS, SOLVERS) if row[2] in ("frobenius", KL)],
)
@pytest.mark.parametrize("sparse", SPARSE)
def test_the_number_of_threads_changes_no_digit(solver, rule, loss, sparse, use_threads):
    X = make_sparse() if sparse else make_data(n=200)
    results = []
    for count in (1, 2, 5):
        use_threads(count)
        results.append(make(solver, rule, loss, max_iter=15).fit(X))
    one, *others = results
    for other in others:
        np.testing.assert_array_equal(other.components_, one.components_)
        np.testing.assert_array_equal(other.embedding_, one.embedding_)


class Counting:
    """A DataMatrix that counts its products and gives X itself to nobody."""

    def __init__(self, data):
        self.data, self.calls = data, {}

    def __getattr__(self, name):
        if name in ("data", "calls"):
            raise AttributeError(name)
        assert name != "X", "X itself was asked for"
        self.calls[name] = self.calls.get(name, 0) + 1
        return getattr(self.data, name)


@pytest.mark.parametrize("init", ["random", "nndsvda"])
@pytest.mark.parametrize(
    ("solver", "loss", "per_iteration"),
    [
        ("hals", "frobenius", {"dot": 1, "tdot": 1}),
        ("nesterov", "frobenius", {"dot": 1, "tdot": 1}),
        ("mu", "frobenius", {"dot": 1, "tdot": 1}),
        ("mu", KL, {"kl_dot": 1, "kl_tdot": 1}),
        ("newton", KL, {"kl_newton": 2}),
        ("mu", 1.5, {"beta_dot": 1, "beta_tdot": 1}),
    ],
)
def test_products_of_a_whole_fit(solver, loss, per_iteration, init, monkeypatch):
    made = []

    def counting(X):
        made.append(Counting(as_data(X)))
        return made[-1]

    monkeypatch.setattr(checking, "as_data", counting)
    X = make_data(positive=True)
    calls = []
    for max_iter in (6, 16):
        model = make(solver, None, loss, n_components=8, init=init, max_iter=max_iter).fit(X)
        assert model.n_iter_ == max_iter
        calls.append(made[-1].calls)
    few, many = calls
    products = {"dot", "tdot", "kl_dot", "kl_tdot", "kl_newton", "beta_dot", "beta_tdot"}
    for name in products:
        if solver == "newton" and name == "kl_newton":
            # the last V solve runs up to max_iter more sweeps, twice at most
            assert many[name] - few[name] <= 10 * (2 + 2)
            continue
        grown = many.get(name, 0) - few.get(name, 0)
        if solver == "newton" and name == "kl_dot":
            assert grown <= 4  # the last V solve looks at its residual every five sweeps
            continue
        # the value is summed once more where the last V solve halves it
        assert abs(grown - 10 * per_iteration.get(name, 0)) <= (name == "dot"), name


def test_a_fit_takes_little_beside_X(rng):
    """Neither its checks nor its looks make an array of X's shape; a mask would be a quarter."""
    X = rng.random((4000, 1500), dtype=np.float32)
    model = NMF(3, max_iter=2, tol=0, init="random", random_state=0)
    model.fit(X[:500])
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * X.nbytes
