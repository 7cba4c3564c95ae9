"""The same model on every kind of X: same start, same numbers."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from methods import FROBENIUS, KL, NAMED, combination, make_problem
from partwise import data as data_module
from partwise._arrays import to_numpy
from partwise.data.blocks import split_rows
from partwise.data.memmap import MemmapData
from partwise.estimators import _base
from partwise.labels import SharedRows, encode_labels
from partwise.solvers.checkpoint import Checkpoint

torch = pytest.importorskip("torch", reason="torch is not installed: partwise[gpu]")
da = pytest.importorskip("dask.array", reason="Dask is not installed: partwise[dask]")
pytest.importorskip("distributed", reason="distributed is not installed: partwise[dask]")
torch.set_num_threads(1)

WANTED = ("NMF", "NMF-KL", "GNMF", "GNMF-KL", "CNMF", "CNMF-KL", "CDNMF", "CDNMF-KL", "NMFDC")
ANY = [
    combination(loss, hard=True, class_reg=1.5, smoothing=0.4, elastic=(0.004, 0.003, 0.4),
                weights=True, name=f"any-{loss[:1]}")
    for loss in (FROBENIUS, KL)
]  # fmt: skip
METHODS = [m for m in NAMED if m.name in WANTED] + ANY
HERE = ("csr", "memmap", "torch", "torch-csr", "dask", "dask-csr")
q = make_problem(0, n=60, p=40)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """X in every form but the first, on this machine."""
    path = tmp_path_factory.mktemp("memmap") / "X.npy"
    np.save(path, q.X)
    tensor = torch.from_numpy(q.X.copy())
    return {
        "numpy": q.X,
        "csr": sp.csr_array(q.X),
        "memmap": np.load(path, mmap_mode="r"),
        "torch": tensor,
        "torch-csr": tensor.to_sparse_csr(),
        "dask": da.from_array(q.X, chunks=(17, 40)),
        "dask-csr": da.from_array(q.X, chunks=(23, 20)).map_blocks(sp.csr_array),
    }


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def fitted(method, X, solver="mu", scale="unit", **params):
    settings = {"max_iter": 20, "tol": 0.0, **params}
    model = method.make(solver, scale, init="custom", **settings)
    return model.fit(X, W=q.V, H=np.ascontiguousarray(q.U.T), **method.data(q))


def product(model):
    return np.asarray(to_numpy(model.embedding_)) @ to_numpy(model.components_)


@pytest.fixture(scope="module")
def expected():
    """Fits of ndarrays, once each."""
    known = {}

    def get(method, solver="mu", **params):
        key = (method.name, solver, tuple(params))
        if key not in known:
            known[key] = fitted(method, q.X, solver, **params)
        return known[key]

    return get


@pytest.fixture
def one_sweep(monkeypatch):
    """hals without extrapolation and with one sweep, so that blocks cannot stop at another time."""
    for cls in {type(m.make()) for m in METHODS}:
        for base in cls.__mro__:
            if "_settings" in vars(base):
                plain = vars(base)["_settings"]
                monkeypatch.setattr(
                    base,
                    "_settings",
                    lambda self, solver, model, plain=plain: replace(
                        plain(self, solver, model), extrapolate=False
                    ),
                )
    monkeypatch.setattr(_base, "_set_sweeps", lambda model, data, k: None)


def matrix():
    """Every method on every kind; what repeats the same code, or solves for long, is `long`."""
    few = ("NMF", "CNMF-KL", "any-f")
    for method in METHODS:
        for kind in HERE:
            again = kind in ("dask-csr", "torch-csr") and method.name not in few
            slow = again or (kind == "dask" and method.name == "GNMF-KL")
            marks = [pytest.mark.long] if slow else []
            yield pytest.param(method, kind, marks=marks, id=f"{method.name}-{kind}")


@pytest.mark.parametrize(("method", "kind"), list(matrix()))
def test_same_product(method, kind, kinds, expected, monkeypatch):
    monkeypatch.setattr(data_module, "SMALL_SPARSE", 0)
    got, base = fitted(method, kinds[kind]), expected(method)
    np.testing.assert_allclose(product(got), product(base), atol=1e-6)
    assert got.objective_ == pytest.approx(base.objective_, rel=1e-9)
    assert got.kkt_residual_ == pytest.approx(base.kkt_residual_, rel=1e-6)


@pytest.mark.parametrize("kind", ("memmap", "torch", "torch-csr", "dask"))
def test_same_product_by_sweeps(kind, kinds, one_sweep):
    for name in ("NMF", "CNMF", "CDNMF"):
        method = next(m for m in METHODS if m.name == name)
        got, base = fitted(method, kinds[kind], "hals"), fitted(method, q.X, "hals")
        # each fit ends with a solve for V to its own accuracy
        np.testing.assert_allclose(product(got), product(base), atol=1e-6)


@pytest.mark.parametrize("kind", ("csr", "memmap", "torch", "dask"))
def test_same_objective_with_extrapolation(kind, kinds, expected):
    for name in ("NMF", "GNMF", "CNMF", "CDNMF", "NMFDC", "any-f"):
        method = next(m for m in METHODS if m.name == name)
        got = fitted(method, kinds[kind], "hals")
        assert got.objective_ == pytest.approx(expected(method, "hals").objective_, rel=1e-3)


@pytest.mark.parametrize("kind", ("torch", "torch-csr", "dask", "memmap"))
def test_starts_transform_and_predict(kind, kinds):
    X = kinds[kind]
    plain, here = (partwise.NMF(4, random_state=0).fit(data) for data in (q.X, X))
    assert here.objective_ == pytest.approx(plain.objective_, rel=1e-3)
    V = np.asarray(to_numpy(here.transform(X)))
    np.testing.assert_allclose(V @ to_numpy(here.components_), product(here), atol=2e-2)
    assert here.score(X) == pytest.approx(plain.score(q.X), rel=1e-3)
    random = partwise.CDNMF(4, init="random", random_state=0, max_iter=30, tol=0).fit(X, q.y)
    assert random.predict(X).shape == (60,) and random.labels_.shape == (60,)


def test_results_live_where_the_data_does(kinds):
    model = partwise.NMF(3, max_iter=5, tol=0).fit(kinds["torch"])
    assert isinstance(model.components_, torch.Tensor) and isinstance(
        model.embedding_, torch.Tensor
    )
    model = partwise.NMF(3, max_iter=5, tol=0).fit(kinds["dask"])
    assert isinstance(model.embedding_, da.Array) and model.embedding_.chunks[0] == (17, 17, 17, 9)
    model = partwise.NMF(3, max_iter=5, tol=0, device="cpu").fit(kinds["csr"])
    assert isinstance(model.components_, np.ndarray)
    assert isinstance(model.transform(q.X), np.ndarray)
    V = partwise.NMF(3, max_iter=5, tol=0, device="cpu").fit_transform(q.X.astype(np.float32))
    assert V.dtype == np.float32
    pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.long
def test_same_product_on_workers(method, kinds, expected, client):
    got = fitted(method, kinds["dask"])
    np.testing.assert_allclose(product(got), product(expected(method)), atol=1e-6)


def test_a_fit_on_two_worker_processes(kinds, expected, client):
    method = next(m for m in METHODS if m.name == "CNMF")
    got = fitted(method, kinds["dask"])
    np.testing.assert_allclose(product(got), product(expected(method)), atol=1e-6)


# -- faults ------------------------------------------------------------------------------------


def test_a_chunk_with_nan_is_named(kinds, tmp_path):
    X = q.X.copy()
    X[41, 7] = np.nan
    np.save(tmp_path / "X.npy", X)
    forms = [da.from_array(X, chunks=(17, 40)), torch.from_numpy(X)]
    forms.append(np.load(tmp_path / "X.npy", mmap_mode="r"))
    for form in forms:
        with pytest.raises(ValueError, match=r"NaN or infinity: nan at row 41, column 7"):
            partwise.NMF(2).fit(form)
    X[41, 7] = -1.5
    np.save(tmp_path / "X.npy", X)
    forms = [da.from_array(X, chunks=(17, 40)), torch.from_numpy(X).to_sparse_csr()]
    forms.append(np.load(tmp_path / "X.npy", mmap_mode="r"))
    for form in forms:
        with pytest.raises(ValueError, match=r"-1\.5 at row 41, column 7"):
            partwise.NMF(2).fit(form)


def test_a_memmap_cut_short(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, q.X)
    X = np.load(path, mmap_mode="r")
    os.truncate(path, 9000)
    with pytest.raises(OSError, match=r"X\.npy has been cut short: 9000 bytes of \d+"):
        partwise.NMF(2).fit(X)


def test_a_full_gpu(kinds, monkeypatch):
    X, multiply = kinds["torch"], torch.Tensor.__matmul__

    def full(self, other):
        if self.shape == X.shape:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return multiply(self, other)

    model = partwise.NMF(2, init="random", max_iter=3)
    monkeypatch.setattr(torch.Tensor, "__matmul__", full)
    with pytest.raises(MemoryError, match=r"cpu has too little memory for X U"):
        model.fit(X)
    assert not hasattr(model, "components_")


def test_refusals_are_one_sentence(kinds):
    with pytest.raises(ValueError, match="give it with graph="):
        partwise.GNMF(3).fit(kinds["dask"])
    for kind in ("dask", "torch"):
        with pytest.raises(ValueError, match="needs X as a numpy or scipy array"):
            partwise.NMF(3, beta_loss=0.5, solver="mu").fit(kinds[kind])
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        partwise.NMF(3).fit(kinds["dask"][kinds["dask"][:, 0] > 0])
    with pytest.raises(ValueError, match="n_init=1"):
        partwise.NMF(3, n_init=2, checkpoint="x").fit(q.X)


@pytest.fixture
def after_save(monkeypatch):
    """Have something happen once the state of an iteration is saved."""
    save = Checkpoint.save

    def plan(iteration, action):
        def saved(self, n, *rest):
            save(self, n, *rest)
            if n == iteration:
                action()

        monkeypatch.setattr(Checkpoint, "save", saved)

    return plan


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("solver", ("hals", "mu"))
def test_a_fit_goes_on_from_its_checkpoint(tmp_path, solver, after_save):
    model = partwise.NMF(4, solver=solver, random_state=0, max_iter=30, tol=0)
    whole = model.fit(q.X).objective_history_
    model = partwise.NMF(4, solver=solver, random_state=0, max_iter=30, tol=0)
    model.set_params(checkpoint=tmp_path / "state")
    after_save(15, interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(q.X)
    assert not hasattr(model, "components_")
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["checkpoint.npz"]
    np.testing.assert_array_equal(model.fit(q.X).objective_history_, whole)
    with pytest.raises(ValueError, match="belongs to another fit"):
        model.fit(q.X * 2)
    (tmp_path / "state" / "checkpoint.npz").write_bytes(b"half")
    with pytest.raises(ValueError, match="is no checkpoint"):
        model.fit(q.X)


@pytest.mark.long
@pytest.mark.parametrize("constants", ("in tasks", "scattered"))
def test_a_worker_is_killed(constants, kinds, client, tmp_path, after_save, monkeypatch):
    if constants == "scattered":
        monkeypatch.setattr("partwise.data.dask_data.SCATTER", 0)
    model = partwise.NMF(4, solver="mu", init="random", random_state=0, max_iter=20, tol=0)
    whole = model.fit(q.X).objective_history_
    pids = list(client.run(os.getpid).values())
    model.set_params(checkpoint=tmp_path)
    after_save(10, lambda: os.kill(pids[0], signal.SIGKILL))
    try:
        model.fit(kinds["dask"])
    except RuntimeError as error:
        assert "a Dask worker was lost" in str(error)
        after_save(0, interrupt)
        client.wait_for_workers(2)
        model.fit(kinds["dask"])
    np.testing.assert_allclose(model.objective_history_, whole, rtol=1e-6)


# -- pieces ------------------------------------------------------------------------------------


def test_split_rows_lays_shared_rows_first():
    rows = SharedRows(encode_labels([5, -1, 7, 5, -1, 3], 6), 6)
    head, sample = split_rows(rows.index, rows.n_rows)
    assert sample.tolist() == [1, 4] and head == 3


def test_memmap_blocks_are_small(kinds, monkeypatch):
    from partwise.data import blocks

    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", 7 * 40)
    data = MemmapData(kinds["memmap"])
    assert max(len(block) for _, block in data.read()) == 7
    np.testing.assert_allclose(data.dot(q.U), q.X @ q.U)
    np.testing.assert_allclose(data.tdot(q.V), q.X.T @ q.V)


@pytest.mark.long
def test_memory_stays_at_factors_and_a_block(tmp_path):
    """40,000 x 4,000 float32, 640 MB on disk; libraries are loaded before the count begins."""
    code = """
        import resource, sys
        import numpy as np
        import partwise
        partwise.NMF(3, max_iter=2, tol=0).fit(np.random.rand(300, 200).astype(np.float32))
        X = np.lib.format.open_memmap(sys.argv[1], "w+", np.float32, (40_000, 4_000))
        rng = np.random.default_rng(0)
        for lo in range(0, 40_000, 1000):
            X[lo : lo + 1000] = rng.random((1000, 4_000), dtype=np.float32)
        X.flush()
        del X
    """
    run = [sys.executable, "-c"]
    path = str(tmp_path / "X.npy")
    subprocess.run([*run, textwrap.dedent(code), path], check=True)
    fit = """
        import resource, sys
        import numpy as np
        import partwise
        partwise.NMF(3, max_iter=2, tol=0).fit(np.random.rand(300, 200).astype(np.float32))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        X = np.load(sys.argv[1], mmap_mode="r")
        partwise.NMF(20, max_iter=3, tol=0, random_state=0).fit(X)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    done = subprocess.run(
        [*run, textwrap.dedent(fit), path], check=True, capture_output=True, text=True
    )
    assert float(done.stdout) < 300


@pytest.mark.long
@pytest.mark.parametrize("n_workers", (1, 2, 4))
def test_bytes_moved_each_iteration(n_workers):
    """U goes to each worker for each half-step, (p, k) and (k, k) come back from each: no V."""
    from distributed import Client, LocalCluster

    from partwise.data import dask_data

    n, p, k = 4000, 500, 8
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        X = da.random.default_rng(0).random((n, p), chunks=(500, p))
        data = dask_data.as_dask_data(X)
        runner = data.layout.runner
        model = partwise.NMF(k, init="random", solver="mu", random_state=0, tol=0)
        moved = []
        for n_iter in (4, 8):
            runner.moved.update(out=0, back=0, rounds=0)
            model.set_params(max_iter=n_iter)
            dense = model._model(data, k, None, None)
            V, U, rng = model._starts(data, k, None, None, None)[0]()
            from partwise.solvers.loop import alternate

            settings = model._settings("mu", dense)
            alternate(dense, V, U, model._step("mu", rng), settings)
            moved.append(dict(runner.moved))
        each = {key: (moved[1][key] - moved[0][key]) / 4 for key in moved[0]}
        workers = len(set(runner.homes))
        out, back = workers * p * k * 8, workers * (p * k + k * k) * 8
        assert each["out"] == pytest.approx(out, rel=0.2), (each, out)
        assert each["back"] == pytest.approx(back, rel=0.1), (each, back)
        print(
            f"{workers} workers: out {each['out']:.0f} of {out}, back {each['back']:.0f} of {back}"
        )
        between = sum(
            client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values()
        )
        # 12 iterations and two starts; V in each of them would add 12 n k numbers
        assert between < 16 * (out + back), "V travels"
    gc.collect()
