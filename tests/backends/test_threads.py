"""Tests of the thread pool: results, limits, and use from threads, processes and forks."""

import multiprocessing
import operator
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_info, threadpool_limits

import partwise
from partwise.backends import arrays, threads
from partwise.backends.arrays import orthonormal
from partwise.backends.numpy.dense import DenseData
from partwise.backends.threads import add_in_order, each, in_threads, pieces

KL = "kullback-leibler"
rng = np.random.default_rng(0)
DENSE = rng.gamma(0.5, 1, (700, 450))
SPARSE = sp.csr_array(DENSE * (DENSE > 1))
GRAPH = sp.csr_array(np.abs(np.subtract.outer(np.arange(700), np.arange(700))) == 1).astype(float)


def fit(X=DENSE, **options):
    return partwise.NMF(5, init="random", random_state=0, tol=0, max_iter=8, **options).fit(X)


def working():
    return [t for t in threading.enumerate() if t.name == "partwise"]


# -- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [50, 40_000])
def test_an_orthonormal_basis_from_blocks_of_rows(dtype, n):
    Y = np.random.default_rng(0).standard_normal((n, 7)).astype(dtype)
    Y[:, 3] = Y[:, 2]  # the rank is reduced by one, so any vector may complete the basis
    Y[:, 5] *= 1e-3
    found = []
    for count in (1, 2):
        with threadpool_limits(count):
            found.append(orthonormal(Y))
    Q = found[0]
    eps = np.finfo(dtype).eps
    np.testing.assert_array_equal(found[1], Q)
    # The rounding of Householder reflections is at most k n eps, and less if errors are
    # independent.
    close = 10 * 7 * n**0.5 * eps
    np.testing.assert_allclose(Q.T @ Q, np.eye(7), atol=close)
    np.testing.assert_allclose(Q @ (Q.T @ Y), Y, atol=close * np.abs(Y).max())


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("n, block", [(0, 1), (1, 1), (100, 1), (100, 64), (103, 5)])
def test_every_row_is_done_once(n, block, count):
    done = np.zeros(n, int)
    begins = []

    def run(lo, hi):
        begins.append(lo)
        done[lo:hi] += 1

    in_threads(run, n, block, count)
    assert (done == 1).all()
    assert all(lo % block == 0 for lo in begins)


def test_pieces_cover_the_rows_and_are_not_small():
    for n in (0, 1, 191, 192, 1000, 100_000):
        parts = pieces(n, 192, 64)
        assert [lo for lo, _ in parts] == [0, *(hi for _, hi in parts[:-1])] and parts[-1][1] == n
        assert len(parts) == 1 or min(hi - lo for lo, hi in parts) >= 192


def test_results_are_added_in_order():
    added = []

    def make(i):
        time.sleep(0.002 * (i % 3))
        return i

    add_in_order(make, added.append, ((i,) for i in range(30)), 5)
    assert added == list(range(30))


def test_an_error_ends_tasks_that_wait(use_threads):
    """Check that an error in the first task ends the tasks that wait for its result."""
    use_threads(8)  # other tests may have left idle threads
    second_is_made, added, raised = threading.Event(), [], []

    def make(i):
        if i == 0:
            assert second_is_made.wait(20)
            raise ZeroDivisionError
        second_is_made.set()
        return i

    def work():
        with pytest.raises(ZeroDivisionError):
            add_in_order(make, added.append, ((i,) for i in range(2)), 2)
        raised.append(True)

    caller = threading.Thread(target=work, daemon=True)
    caller.start()
    caller.join(20)
    assert raised and not added


def test_tasks_are_generated_when_threads_take_them():
    """Check that tasks are generated only as threads take them, because X may exceed memory."""
    here, most, lock = 0, 0, threading.Lock()

    def tasks():
        nonlocal here, most
        for _ in range(40):
            with lock:
                here += 1
                most = max(most, here)
            yield (1,)

    def run(_):
        nonlocal here
        time.sleep(0.001)
        with lock:
            here -= 1

    each(run, tasks(), 3)
    assert here == 0 and most <= 4


def test_an_error_ends_the_work_and_is_raised():
    seen = []

    def run(i):
        seen.append(i)
        if i == 3:
            raise ZeroDivisionError("the third")

    with pytest.raises(ZeroDivisionError, match="third"):
        each(run, [(i,) for i in range(1000)], 4)
    assert len(seen) < 1000
    with pytest.raises(ZeroDivisionError):
        add_in_order(lambda i: 1 // (i - 5), lambda _: None, ((i,) for i in range(50)), 4)

    def broken():
        yield (1,)
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        each(lambda i: None, broken(), 4)


CASES = {
    "dense": lambda: fit(),
    "columns": lambda: fit(np.asfortranarray(DENSE)),
    "dense32": lambda: fit(DENSE.astype(np.float32)),
    "sparse": lambda: fit(SPARSE),
    "dense KL": lambda: fit(beta_loss=KL, solver="auto"),
    "dense KL mu": lambda: fit(beta_loss=KL, solver="mu"),
    "dense IS mu": lambda: fit(DENSE + 0.1, beta_loss="itakura-saito", solver="mu"),
    "sparse KL": lambda: fit(SPARSE, beta_loss=KL, solver="auto"),
    "many starts": lambda: fit(n_init=4),
    "graph": lambda: partwise.GNMF(5, random_state=0, tol=0, max_iter=8).fit(DENSE, graph=GRAPH),
    "gaps": lambda: fit(np.where(DENSE > 3, np.nan, DENSE), missing_values=np.nan),
    "wide": lambda: partwise.NMF(40, random_state=0, tol=0, max_iter=4).fit(DENSE),
}


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_threads_changes_no_digit(case, use_threads):
    found = []
    for count in (1, 2, 5):
        use_threads(count)
        model = CASES[case]()
        found.append((model.embedding_, model.components_, model.objective_history_))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_products_do_not_depend_on_blas_threads():
    X = rng.random((3000, 500))
    U, V = rng.random((500, 7)), rng.random((3000, 7))
    found = []
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"):
            data = DenseData(X)
            found.append((data.dot(U), data.tdot(V)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


# -- limits on the number of threads -----------------------------------------------------------


VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def test_environment_variables_limit_threads():
    """Check that environment variables limit the number of threads.

    BLAS reads them once, so the test uses new processes.
    """
    code = """
import os
from partwise.backends.threads import allowed
print(allowed())
for name, value in (("OMP_NUM_THREADS", "1,4"), ("NUMBA_NUM_THREADS", "1")):
    os.environ[name] = value  # a list has one number per nesting level
    print(allowed())
    del os.environ[name]
print(allowed())
"""
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    found = []
    for env in ({}, {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}):
        run = subprocess.run([sys.executable, "-c", code], env=clean | env, capture_output=True)
        assert run.returncode == 0, run.stderr.decode()
        found.append([int(line) for line in run.stdout.split()])
    most = found[0][0]
    assert found == [[most, 1, 1, most], [1] * 4]
    assert most == threads.cores()


def test_threadpoolctl_limits_threads():
    """Check that limits of threadpoolctl are obeyed.

    The test uses a new process, since threads of other tests may be inside a limit.
    """
    code = """
from threadpoolctl import threadpool_limits
from partwise.backends import threads
import numpy, scipy.linalg
threads._numba_limit = lambda: 8
with threadpool_limits(3):
    assert threads.allowed() == 3, threads.allowed()
    with threads.one_blas_thread:
        assert threads.allowed() == 3, "our own limit on BLAS is none on us"
    with threadpool_limits(1):
        assert threads.allowed() == 1, threads.allowed()
"""
    clean = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    run = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_one_blas_thread_works_in_every_thread():
    """Check that `one_blas_thread` limits BLAS for every thread that enters it.

    threadpoolctl 3.8 would ignore all threads but the first. A product whose BLAS uses two threads
    differs in the last digits on many processors.
    """
    code = """
from concurrent.futures import ThreadPoolExecutor
from threadpoolctl import threadpool_limits
from partwise.backends import threads
import numpy, scipy.linalg
def told():
    return [pool.num_threads for pool in threads._pools().lib_controllers]
def inside():
    with threads.one_blas_thread:
        return told()
usual, ones = told(), [1] * len(told())
assert inside() == ones and told() == usual, told()
with ThreadPoolExecutor(1) as pool, threads.one_blas_thread:
    with threadpool_limits(2):  # a limit of the caller
        assert pool.submit(inside).result() == ones
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(inside).result() == ones, "in another thread"
    assert told() == usual, told()
    with threadpool_limits(1):
        assert told() == ones, "a limit of the user's beside a thread that had one"
        assert pool.submit(inside).result() == ones
    assert told() == usual == threads._blas(), told()
    for blas in threads._pools().lib_controllers:  # as one is told that is not OpenBLAS
        pool.submit(threads._set_threads, blas, 1).result()
    assert told() == ones == threads._blas(), told()
"""
    env = os.environ | dict.fromkeys(VARIABLES, "2")
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_last_thread_restores_the_limit_of_blas_threads():
    """Check that the last thread to leave restores the user's limit of BLAS threads."""

    def enter_and_leave():
        with threads.one_blas_thread:
            pass

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as pool:
        with threads.one_blas_thread:
            pool.submit(enter_and_leave).result()
        found = {blas["num_threads"] for blas in threadpool_info() if blas["user_api"] == "blas"}
    assert found == {2}


def test_threads_for_returns_few_threads_close_to_the_shortest_time(monkeypatch):
    waits = {1: 0.0, 2: 1e-4, 4: 2e-4, 8: 4e-4, 16: 2e-3}
    monkeypatch.setattr(threads, "allowed", lambda: 16)
    monkeypatch.setattr(threads, "costs", lambda most, _: threads.Costs(waits, step=1e-10))
    assert threads.threads_for(1e4) == 1
    # The work takes 100 µs, as long as a second thread takes to start.
    assert threads.threads_for(1e6) == 1
    assert threads.threads_for(1e7) == 4  # 450 µs with four threads, 525 with eight, 600 with two
    # 700 µs with four threads; 650 with eight are not worth the threads.
    assert threads.threads_for(2e7) == 4
    # 4.15 ms with eight threads; 3.875 with sixteen are not worth the threads.
    assert threads.threads_for(3e8) == 8
    assert threads.threads_for(1e9) == 16


def test_costs_are_sane_and_kept():
    waits, step = cost = threads.costs(3)
    assert list(waits) == [1, 2, 3] and waits[1] == 0
    assert list(waits.values()) == sorted(waits.values())
    assert waits[3] < 1 and 1e-12 < step < 1e-5
    assert threads.costs(3) is cost


def test_threads_stay_and_let_go_of_what_they_worked_on():
    import gc
    import weakref

    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    each(lambda i, big=big: time.sleep(0.001), [(i,) for i in range(8)], 3)
    before = len(working())
    del big
    for _ in range(20):
        each(lambda i: time.sleep(0.0005), [(i,) for i in range(4)], 3)
    gc.collect()
    assert gone() is None
    assert len(working()) == before >= 2


# -- use from threads, processes and forks -----------------------------------------------------


@pytest.fixture
def four_cores(use_threads):
    """Simulate four cores and return the parts of a fit, for comparison."""
    use_threads(4)
    return fit().components_


def test_simultaneous_fits_share_the_threads_of_one_fit(use_threads):
    """Check that fits in a user's thread pool do not deadlock, and share the threads of one fit."""
    use_threads(4)
    busy, most, lock = 0, 0, threading.Lock()

    def run(_):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.002)
        with lock:
            busy -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: each(run, [(i,) for i in range(16)], 4), range(8)))
    assert most <= 4 + 3  # at most four callers and three helper threads of one of them run


def test_a_task_may_have_tasks_of_its_own(use_threads):
    use_threads(4)
    done = []
    each(lambda i: each(lambda j: done.append((i, j)), [(j,) for j in range(4)], 4),
         [(i,) for i in range(4)], 4)  # fmt: skip
    assert sorted(done) == [(i, j) for i in range(4) for j in range(4)]


def test_tasks_of_a_task_have_the_threads_that_are_left(use_threads):
    use_threads(8)
    all_three = threading.Barrier(3, timeout=20)

    def outer(number):
        if number == 0:
            each(lambda _: all_three.wait(), [(j,) for j in range(3)], 8)

    each(outer, [(0,), (1,)], 8)  # the barrier raises an error unless three tasks run together


def test_fits_in_a_users_threads(four_cores):
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: fit().components_, range(8)):
            np.testing.assert_array_equal(found, four_cores)


def test_fits_in_threads_of_joblib(four_cores):
    run = joblib.Parallel(n_jobs=4, backend="threading")
    for found in run(joblib.delayed(lambda: fit().components_)() for _ in range(8)):
        np.testing.assert_array_equal(found, four_cores)


def in_a_worker():
    from partwise.backends.threads import allowed

    return fit().components_, allowed()


def test_fits_in_processes_of_joblib(four_cores, monkeypatch):
    """Check that workers of joblib get a share of the threads, so that all fits share the cores."""
    for name in VARIABLES:  # joblib keeps variables that are set
        monkeypatch.delenv(name, raising=False)
    get_reusable_executor(kill_workers=True).shutdown(wait=True)
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(in_a_worker)() for _ in range(3))
    for components, allowed in found:
        np.testing.assert_array_equal(components, four_cores)
        assert allowed <= max(1, threads.cores() // 2)


def test_a_grid_search(four_cores):
    search = GridSearchCV(
        partwise.NMF(init="random", random_state=0, tol=0, max_iter=3),
        {"n_components": [2, 5]}, cv=2, n_jobs=2, scoring=lambda model, X, y=None: 0.0,
    )  # fmt: skip
    search.fit(DENSE)
    assert search.best_estimator_.components_.shape[1] == DENSE.shape[1]


def test_fits_in_tasks_of_dask(four_cores):
    dask = pytest.importorskip("dask")
    found = dask.compute(*[dask.delayed(lambda: fit().components_)() for _ in range(6)],
                         scheduler="threads", num_workers=3)  # fmt: skip
    for components in found:
        np.testing.assert_array_equal(components, four_cores)


@pytest.mark.long
def test_fits_on_workers_of_dask(monkeypatch):
    distributed = pytest.importorskip("distributed")
    for name in VARIABLES:  # Dask keeps variables that are set
        monkeypatch.delenv(name, raising=False)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = client.gather([client.submit(in_a_worker, pure=False) for _ in range(4)])
    for components, allowed in found:
        np.testing.assert_array_equal(components, found[0][0])
        assert allowed == 1, "dask sets OMP_NUM_THREADS=1 for its workers"


def _child(queue):
    queue.put(fit().components_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_a_fit_can_fit(four_cores):
    """Check that a forked child can fit: it has no thread of its parent and starts its own."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(found, four_cores)


def test_a_cached_property_is_computed_beside_that_of_another_object():
    """Check that two threads can compute a cached property of two objects at the same time.

    In Python 3.11, `functools.cached_property` has one lock for all objects, which a fork could
    inherit in its locked state.
    """
    both = threading.Barrier(2, timeout=10)

    class Data:
        @threads.cached_property
        def size(self):
            both.wait()
            return [1]

    one, other = Data(), Data()
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda data: data.size, (one, other))) == [[1], [1]]
    assert one.size is one.size is not other.size
    assert isinstance(Data.size, threads.cached_property)


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_fits():
    """Check that a fork while another thread fits does not deadlock.

    A child inherits locks in their current state. The test forks in a new process.
    """
    code = textwrap.dedent(
        """
        import os, sys, threading, warnings
        warnings.simplefilter("ignore")
        import numpy as np, partwise
        from partwise.backends import threads
        threads.allowed = lambda: 4
        threads.costs = lambda most, _: threads.Costs({most: 0.0}, 1.0)
        X = np.random.default_rng(0).random((700, 450))
        def fit():
            return partwise.NMF(5, init="random", random_state=0, tol=0, max_iter=20).fit(X)
        want = fit().components_
        beside = threading.Thread(target=lambda: [fit() for _ in range(6)])
        beside.start()
        for _ in range(3):
            child = os.fork()
            if not child:
                os._exit(0 if (fit().components_ == want).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
        beside.join()
        print("done")
        """
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "done", run.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_is_in_its_first_fit():
    """Check that a fork while another thread runs its first fit does not deadlock.

    The first fit imports and compiles, and a child must not inherit the locks of either.
    """
    code = textwrap.dedent(
        """
        import os, signal, sys, threading, time, warnings
        warnings.simplefilter("ignore")
        import numpy as np, scipy.sparse as sp
        from partwise import CF, GNMF, NMF, SymNMF
        from numba.core.compiler_lock import global_compiler_lock
        X = np.random.default_rng(0).random((60, 40))
        gaps = np.where(X < 0.1, np.nan, X)
        known = set(sys.modules)
        for loss in ("frobenius", "kullback-leibler"):
            for data in (X, sp.csr_array(X), gaps):
                NMF(2, max_iter=2, beta_loss=loss, missing_values=np.nan).fit(data)
        for model, data in ((CF(2), X), (GNMF(2, n_neighbors=3), X), (SymNMF(2), X @ X.T)):
            model.set_params(max_iter=2).fit(data)
        # numba imports its compiler while it holds its lock.
        print([m for m in set(sys.modules) - known if not m.startswith("numba.")])
        taken = threading.Event()
        def compile():
            with global_compiler_lock:
                taken.set()
                time.sleep(0.2)
        beside = threading.Thread(target=compile)
        beside.start()
        taken.wait()
        child = os.fork()
        if not child:
            signal.alarm(10)
            global_compiler_lock.acquire()
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        beside.join()
        """
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.split() == ["[]", "0"], run.stdout + run.stderr


def test_an_end_of_the_process_waits_for_nobody():
    code = (
        "from partwise.backends.threads import each\n"
        "import time\n"
        "each(lambda i: time.sleep(0.001), [(i,) for i in range(8)], 4)\n"
        "print('done')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0 and run.stdout.strip() == "done" and not run.stderr


def test_a_package_that_is_still_being_imported_is_ignored(monkeypatch):
    """Check that numba is ignored while another thread is still importing it."""
    monkeypatch.setitem(sys.modules, "numba.np.ufunc.parallel", type(sys)("parallel"))
    monkeypatch.setitem(sys.modules, "numba", type(sys)("numba"))
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert threads.allowed() == 1
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    assert threads.allowed() >= 1


def test_what_numba_was_told_is_obeyed():
    code = (
        "import numba; numba.set_num_threads(1)\n"
        "from partwise.backends.threads import allowed; print(allowed())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "1", run.stderr


def test_tasks_side_by_side_share_the_threads(monkeypatch):
    monkeypatch.setattr(threads, "_numba_limit", lambda: 7)
    monkeypatch.setattr(threads, "_by_variable", lambda: 1 << 20)
    monkeypatch.setattr(threads, "_blas", lambda: [7])
    for tasks, each_has in ((1, 7), (2, 3), (3, 2), (20, 1)):
        seen = []
        threads.side_by_side(
            lambda task, seen=seen: seen.append((task, threads.allowed())),
            [(task,) for task in range(tasks)],
            7,
        )
        assert sorted(seen) == [(task, each_has) for task in range(tasks)]
        assert threads.allowed() == 7


@pytest.mark.parametrize("shape", [(7, 3), (3,), (1, 3), (7, 1), (1, 1)])
def test_entries_beside_rows_and_columns(shape, use_threads, rng):
    use_threads(3)
    a, b = rng.random((7, 3)), rng.random(shape)
    np.testing.assert_array_equal(arrays.entrywise(operator.mul, a, b), a * b)


BLAS_AWAKE = """
import os, threading, time, warnings
import numpy as np, scipy.sparse as sp
import partwise

def ticks():
    ours = {thread.native_id for thread in threading.enumerate()}
    found = 0
    for name in os.listdir("/proc/self/task"):
        if int(name) not in ours:
            with open(f"/proc/self/task/{name}/stat") as file:
                found += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return found

warnings.simplefilter("ignore")
X = sp.random_array((300, 30_000), density=0.01, rng=0, format="csr")
partwise.NMF(5, init="random", random_state=0, max_iter=3).fit(X)
for kind in ("fit", "blas"):
    time.sleep(0.5)  # wait until the threads of BLAS are idle
    before = ticks()
    if kind == "fit":
        partwise.NMF(5, init="random", random_state=0, max_iter=3).fit(X)
    else:
        np.ones(30_000) @ np.ones(30_000)
    time.sleep(0.2)
    print(ticks() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the test needs /proc")
def test_a_fit_wakes_no_thread_of_blas():
    """Check that a fit does not wake the threads of BLAS.

    They spin for a tenth of a second and would slow the first iterations.
    """
    env = {name: value for name, value in os.environ.items() if "THREAD" not in name}
    run = subprocess.run(
        [sys.executable, "-c", BLAS_AWAKE], env=env | {"OPENBLAS_NUM_THREADS": "2"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    fit, blas = map(int, run.stdout.split())
    if blas < 3:
        pytest.skip("this BLAS has no threads, or they sleep immediately")
    assert fit <= blas // 3
