"""Tests of fits on two Dask worker processes: results, memory, tasks and bytes sent."""

import contextlib
import time
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from backends import METHODS, fitted, product, q, two_workers
from methods import FROBENIUS, KL
from partwise.backends.arrays import to_numpy

da = pytest.importorskip("dask.array", reason="dask is not installed: partwise[dask]")
pytest.importorskip("distributed", reason="distributed is not installed: partwise[dask]")


@pytest.fixture(scope="module")
def workers():
    """Yield a client of two worker processes, which all tests of this file share."""
    yield from two_workers()


@pytest.fixture
def client(workers, monkeypatch):
    from partwise.backends.dask import dask_data

    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1)  # small chunks are not merged
    with workers.as_current():
        yield workers


def on_cluster(X, rows, columns=None, sparse=False):
    X = da.from_array(X, chunks=(rows, X.shape[1] if columns is None else columns))
    return X.map_blocks(sp.csr_array) if sparse else X


@contextlib.contextmanager
def counted(client):
    """Count the tasks that the workers run inside the context."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Count(SchedulerPlugin):
        def transition(self, key, start, finish, *args, **kwargs):
            found["tasks"] += (start, finish) == ("processing", "memory")

    found, plugin, scheduler = Counter(), Count(), client.cluster.scheduler
    scheduler.add_plugin(plugin, name="count")
    try:
        yield found
    finally:
        scheduler.remove_plugin("count")


#: Costs of one iteration, as documented in `array_types.md`: passes that keep values on the
#: workers, other passes, and the numbers sent to and from each worker, for p features and k parts.
#: In every fifth iteration, coordinate descent computes the residual, which takes one more pass.
COSTS = {
    (FROBENIUS, "hals"): (1, 0.2, lambda p, k: p * k, lambda p, k: p * k + k * k),
    (KL, "newton"): (2, 3, lambda p, k: 4 * p * k, lambda p, k: p * k + p * k * (k + 1) // 2),
    (KL, "mu"): (2, 2, lambda p, k: 3 * p * k, lambda p, k: p * k),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("loss", "solver"),
    [(FROBENIUS, "hals"), (KL, "newton"), pytest.param(KL, "mu", marks=pytest.mark.long)],
)
def test_tasks_and_bytes_of_an_iteration(loss, solver, client, monkeypatch):
    from partwise.backends.dask import dask_runners

    # Send U once to each worker rather than with each task, as for a large U.
    monkeypatch.setattr(dask_runners, "SCATTER", 100)
    runners = []
    run = dask_runners.Workers._run
    monkeypatch.setattr(
        dask_runners.Workers, "_run", lambda self, *args: runners.append(self) or run(self, *args)
    )
    n, p, k, chunks, times = 320, 200, 8, 8, 5
    X = on_cluster(np.random.default_rng(0).random((n, p)), n // chunks).persist()

    def cost(n_iter):
        model = partwise.NMF(
            k, beta_loss=loss, solver=solver, init="random", random_state=0, tol=0, max_iter=n_iter
        )
        with counted(client) as found:
            model.fit(X)
        return found["tasks"], *runners[-1].moved.values()

    each = (np.array(cost(5 + times)) - cost(5)) / times
    keeping, others, out, back = COSTS[loss, solver]
    rounds = keeping + others
    # Each pass runs one task per chunk and one per worker; a pass that keeps values runs one more
    # task per chunk.
    workers = len(set(runners[-1].homes))  # a slow worker may hold no chunk
    tasks = chunks * (rounds + keeping) + workers * rounds
    print(f"{each[0] / chunks:.1f} tasks a chunk, {each[3]} passes, {each[1:3]} bytes")
    assert each[3] == pytest.approx(rounds, abs=0.3)
    assert each[0] == pytest.approx(tasks, rel=0.1)
    assert each[1] == pytest.approx(workers * 8 * out(p, k), rel=0.15)
    assert each[2] == pytest.approx(workers * 8 * back(p, k), rel=0.05)


# -- results --------------------------------------------------------------------------------------

LAYOUTS = {
    "sparse": {"rows": 23, "sparse": True},
    "feature chunks": {"rows": 30, "columns": 16},
}


def each_method():
    """Yield each method with sparse chunks and with chunks of features.

    test_backends.py tests dense chunks.
    """
    for method in METHODS:
        for layout in LAYOUTS:
            marks = () if (method.name, layout) == ("any-k", "sparse") else pytest.mark.long
            yield pytest.param(method, layout, id=f"{method.name}-{layout}", marks=marks)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*label:UserWarning")
@pytest.mark.parametrize(("method", "layout"), each_method())
def test_results_are_those_of_an_array_in_memory(method, layout, client):
    here, there = fitted(method, q.X), fitted(method, on_cluster(q.X, **LAYOUTS[layout]))
    V = np.asarray(to_numpy(there.embedding_))
    np.testing.assert_allclose(V @ to_numpy(there.components_), product(here), atol=1e-6)
    np.testing.assert_allclose(there.objective_history_, here.objective_history_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1))]
)
def test_second_order_steps_reach_the_same_divergence(seed, client):
    """Check that second-order steps on workers reach the divergence of a fit in memory.

    X has nearly low rank. With multiplicative steps for U, the divergence was 34% to 700% higher.
    """
    rng = np.random.default_rng(seed)
    low_rank = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.5, size=(3, 25))
    X = low_rank * np.exp(0.01 * rng.standard_normal(low_rank.shape))
    settings = {"beta_loss": KL, "init": "random", "random_state": 0, "tol": 0, "max_iter": 25}
    here, there = (partwise.NMF(3, **settings).fit(Z) for Z in (X, on_cluster(X, 30)))
    assert there.objective_ == pytest.approx(here.objective_, rel=0.02)


def test_shares_are_summed_in_groups(client, monkeypatch):
    """Check that a worker sums the results of its blocks in groups of at most four.

    Regression test: a worker with many blocks once held a (p, k) array per block until the last one
    was done.
    """
    from partwise.backends.dask import dask_runners

    data = partwise.backends.as_data(on_cluster(q.X, 2))
    V = np.random.default_rng(0).random((60, 3))
    groups, combine = [], dask_runners._combine
    monkeypatch.setattr(dask_runners, "MANY", 4)
    submit = type(client).submit

    def watched(self, function, *args, **how):
        if function is combine:
            groups.append(len(args[1]))
        return submit(self, function, *args, **how)

    monkeypatch.setattr(type(client), "submit", watched)
    np.testing.assert_allclose(data.tdot(data.rows(V)), q.X.T @ V, rtol=1e-12)
    assert sum(groups) == 30 and max(groups) == 4


# -- memory ---------------------------------------------------------------------------------------


@pytest.fixture
def small_workers(client, monkeypatch):
    """Return a function that makes each worker report `size` bytes of free memory."""
    from partwise.backends.dask import dask_runners

    def limit(size):
        monkeypatch.setattr(
            dask_runners.Workers, "room", lambda self: dict.fromkeys(self.client.nthreads(), size)
        )

    return limit


def keeps_blocks(client):
    """Return whether any worker holds a block of X."""
    from partwise.backends.numpy.dense import DenseData

    def look(dask_worker):
        return any(isinstance(value, DenseData) for value in dask_worker.data.values())

    return any(client.run(look).values())


FEW = {"init": "random", "solver": "mu", "max_iter": 4, "tol": 0, "random_state": 0}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sparse", [False, True])
def test_an_x_larger_than_the_cluster_is_computed_in_each_pass(
    sparse, small_workers, client, monkeypatch
):
    from partwise.backends.dask.dask_runners import Workers

    held, run = [], Workers.run

    def watched(self, *args):
        held.append(keeps_blocks(client))
        return run(self, *args)

    monkeypatch.setattr(Workers, "run", watched)
    X = np.random.default_rng(0).poisson(0.2, (200, 300)).astype(float)
    X[0] += 1
    size = 12 * (X != 0).sum() if sparse else 8 * X.size
    chunked, weights = on_cluster(X, 10, sparse=sparse), np.linspace(0.5, 2, 200)
    model = partwise.NMF(3, **FEW)
    small_workers(0.45 * size)  # memory of each of two workers
    with pytest.warns(UserWarning, match="2 workers"):
        there = model.fit(chunked, sample_weight=weights)
    assert len(held) > 4 and not any(held)
    here = partwise.NMF(3, **FEW).fit(X, sample_weight=weights)
    np.testing.assert_allclose(there.objective_history_, here.objective_history_, rtol=1e-8)
    with pytest.warns(UserWarning, match="2 workers"):
        assert there.transform(chunked).shape == (200, 3)
    small_workers(2 * size)
    held.clear()
    model.fit(chunked)
    assert all(held)


def test_a_shortage_is_reported_before_the_fit(small_workers, client, monkeypatch):
    from partwise.backends.dask.dask_runners import Workers

    monkeypatch.setattr(Workers, "run", lambda *args: pytest.fail("a pass was started"))
    X = on_cluster(np.random.default_rng(0).random((200, 30)), 10)
    small_workers(4 * 10 * 30 * 8)  # memory for four chunks, while a task needs five
    with pytest.raises(ValueError, match="chunk"):
        partwise.NMF(3, **FEW).fit(X)
    monkeypatch.undo()
    data = partwise.backends.as_data(X)
    small_workers(200 * 3 * 8)
    with pytest.raises(ValueError, match="200 samples"):
        data.dot(np.ones((30, 3)))


def test_room_is_the_limit_of_a_worker_less_what_it_uses(client):
    from partwise.backends.dask.dask_runners import Workers

    def limit(size):
        def change(dask_worker):
            before = dask_worker.memory_manager.memory_limit
            dask_worker.memory_manager.memory_limit = size
            return before

        return client.run(change)

    before = limit(None)
    try:
        assert set(Workers(client).room().values()) == {np.inf}
        limit(2**34)
        room = Workers(client).room()
        assert len(room) == 2
        used = 0.7 * 2**34 - np.array(list(room.values()))
        assert (used > 2**25).all() and (used < 2**32).all()
    finally:
        limit(next(iter(before.values())))


def test_workers_that_stay_paused_end_the_fit(client, monkeypatch):
    from partwise.backends.dask import dask_runners

    def pause(share):
        def change(dask_worker):
            dask_worker.memory_manager.memory_pause_fraction = share

        client.run(change)

    monkeypatch.setattr(dask_runners, "PATIENCE", 4)
    runner = dask_runners.Workers(client)
    pause(1e-6)
    try:
        while set(client.run_on_scheduler(dask_runners._status).values()) != {"paused"}:
            time.sleep(0.1)
        with pytest.raises(RuntimeError, match="paused"):
            runner._gather([client.submit(int)])
    finally:
        pause(0.8)
    assert runner._gather([client.submit(int)]) == [0]
