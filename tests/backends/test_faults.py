"""Tests of failing disks, devices and clusters: errors, complete files, and continued fits."""

import gc
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import partwise
from backends import PEAK, Forms, linux, missing, needs, q, two_workers
from partwise.backends.arrays import compat
from partwise.solvers.checkpoint import Checkpoint

if not missing("torch"):
    import torch


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    return Forms(q.X, tmp_path_factory.mktemp("memmap"))


@pytest.fixture
def client():
    """Yield a client of two worker processes, which the test may kill."""
    for client in two_workers():
        with client.as_current():
            yield client


@pytest.fixture
def after_save(monkeypatch):
    """Return a function that plans an action after the checkpoint of an iteration is saved."""
    save = Checkpoint.save

    def plan(iteration, action):
        def saved(self, state):
            save(self, state)
            if state.n == iteration:
                action()

        monkeypatch.setattr(Checkpoint, "save", saved)

    return plan


def interrupt():
    raise KeyboardInterrupt


# -- faulty X -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ("memmap", "torch", "torch-csr", "dask", "dask-csr"))
def test_a_bad_entry_is_named(kind, tmp_path):
    for value, words in ((np.nan, "NaN or infinity: nan"), (-1.5, r"-1\.5")):
        X = q.X.copy()
        X[41, 7] = value
        place = rf"{words} at row 41, column 7"
        if kind.startswith("dask"):
            place += f".*row chunk {2 if kind == 'dask' else 1}"
        folder = tmp_path / str(value)
        folder.mkdir()
        for model in (partwise.NMF(2), partwise.GNMF(2)):
            with pytest.raises(ValueError, match=place):
                model.fit(Forms(X, folder)[kind])
            assert not hasattr(model, "components_")


def test_a_memmap_cut_short(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, q.X)
    X = np.load(path, mmap_mode="r")
    os.truncate(path, 9000)
    with pytest.raises(OSError, match=r"X\.npy.*9000"):
        partwise.NMF(2).fit(X)


def test_a_memmap_cut_short_in_mid_fit(tmp_path, after_save):
    path = tmp_path / "X.npy"
    np.save(path, q.X)
    whole = path.read_bytes()
    model = partwise.NMF(4, solver="mu", random_state=0, max_iter=20, tol=0)
    history = model.fit(q.X).objective_history_
    model = partwise.NMF(4, solver="mu", random_state=0, max_iter=20, tol=0)
    model.set_params(checkpoint=tmp_path / "state")
    after_save(10, lambda: os.truncate(path, 9000))
    with pytest.raises(OSError, match="9000"):
        model.fit(np.load(path, mmap_mode="r"))
    assert not hasattr(model, "components_")
    path.write_bytes(whole)
    after_save(0, interrupt)
    model.fit(np.load(path, mmap_mode="r"))
    np.testing.assert_allclose(model.objective_history_, history, rtol=1e-9)


def test_refusals_are_one_sentence(forms):
    for kind in ("dask", "torch"):
        if not missing(kind):
            with pytest.raises(ValueError, match="numpy"):
                partwise.NMF(3, beta_loss=0.5, solver="mu").fit(forms[kind])
    with pytest.raises(ValueError, match="n_init=1"):
        partwise.NMF(3, n_init=2, checkpoint="x").fit(q.X)


@needs("dask")
def test_chunks_of_unknown_size_are_refused(forms):
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        partwise.NMF(3).fit(forms["dask"][forms["dask"][:, 0] > 0])


# -- a full device --------------------------------------------------------------------------------


@needs("torch")
@pytest.mark.parametrize(
    "place",
    (
        "torch.Tensor.__matmul__",
        "torch.Tensor.new_zeros",
        # The copy of array-api-compat in scikit-learn, if the package is not installed.
        f"{compat.__name__}.torch.linalg.qr",
        "torch.Tensor.clamp",
    ),
)
def test_a_full_gpu(place, forms, monkeypatch):
    """Check that a full GPU is reported from products, penalties, sums, starts and steps."""
    X = forms["torch"]

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    models = [
        partwise.NMF(2, max_iter=3, tol=0),
        partwise.CNMF(2, max_iter=3, tol=0),
        partwise.GNMF(3, max_iter=3, tol=0, solver="mu"),
    ]
    monkeypatch.setattr(place, full)
    stopped = 0
    for model in models:
        given = {} if isinstance(model, partwise.NMF) else {"y": q.y}
        try:
            model.fit(X, **given)
        except MemoryError as error:
            stopped += 1
            assert "memory" in str(error) and "use float32, a smaller n_components" in str(error)
            assert not hasattr(model, "components_")
    assert stopped, f"nothing calls {place}"


@needs("torch")
def test_a_full_gpu_names_the_product(forms, monkeypatch):
    X, multiply = forms["torch"], torch.Tensor.__matmul__

    def full(self, other):
        if self.shape == X.shape:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return multiply(self, other)

    model = partwise.NMF(2, init="random", max_iter=3)
    monkeypatch.setattr(torch.Tensor, "__matmul__", full)
    with pytest.raises(MemoryError, match=r"cpu.*X U"):
        model.fit(X)
    assert not hasattr(model, "components_")


# -- continuing from a checkpoint ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ("numpy", "memmap", "torch", "dask"))
@pytest.mark.parametrize("solver", ("hals", "mu"))
def test_a_fit_goes_on_from_its_checkpoint(kind, solver, forms, tmp_path, after_save):
    X = forms[kind]
    model = partwise.NMF(4, solver=solver, random_state=0, max_iter=20, tol=0)
    whole = model.set_params(checkpoint=tmp_path / "whole").fit(X).objective_history_
    model = partwise.NMF(4, solver=solver, random_state=0, max_iter=20, tol=0)
    model.set_params(checkpoint=tmp_path / "state")
    after_save(15, interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert not hasattr(model, "components_")
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["checkpoint.npz"]
    np.testing.assert_array_equal(model.fit(X).objective_history_, whole)


def test_a_checkpoint_is_whole_or_the_one_before(tmp_path, monkeypatch):
    model = partwise.NMF(4, solver="mu", random_state=0, max_iter=20, tol=0)
    whole = model.fit(q.X).objective_history_
    model.set_params(checkpoint=tmp_path)
    write, calls = np.savez, []

    def full(file, **contents):
        calls.append(file)
        if len(calls) < 3:
            return write(file, **contents)
        file.write(b"PK half of a state")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        model.fit(q.X)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.npz"]
    monkeypatch.undo()
    np.testing.assert_array_equal(model.fit(q.X).objective_history_, whole)


def test_a_checkpoint_belongs_to_one_fit(tmp_path):
    model = partwise.NMF(4, random_state=0, max_iter=10, tol=0, checkpoint=tmp_path)
    model.fit(q.X)
    with pytest.raises(ValueError, match="another fit"):
        model.fit(q.X * 2)
    (tmp_path / "checkpoint.npz").write_bytes(b"half")
    with pytest.raises(ValueError, match="checkpoint"):
        model.fit(q.X)


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
@pytest.mark.long
@needs("distributed")
@pytest.mark.parametrize("constants", ("in tasks", "scattered"))
def test_a_worker_is_killed(constants, client, forms, tmp_path, after_save, monkeypatch):
    if constants == "scattered":
        monkeypatch.setattr("partwise.backends.dask.dask_runners.SCATTER", 0)
    model = partwise.NMF(4, solver="mu", init="random", random_state=0, max_iter=20, tol=0)
    whole = model.fit(q.X).objective_history_
    pids = list(client.run(os.getpid).values())
    model.set_params(checkpoint=tmp_path)
    after_save(10, lambda: os.kill(pids[0], signal.SIGKILL))
    try:
        model.fit(forms["dask"])
    except RuntimeError as error:
        assert "a Dask worker was lost" in str(error)
        after_save(0, interrupt)
        client.wait_for_workers(2)
        model.fit(forms["dask"])
    np.testing.assert_allclose(model.objective_history_, whole, rtol=1e-6)


# -- bytes sent and memory ------------------------------------------------------------------------


@linux
@pytest.mark.long
def test_memory_stays_at_factors_and_a_block(tmp_path):
    """Check that a fit to a memory-mapped X of 640 MB needs less than 300 MB.

    Memory is measured after the libraries are loaded; it holds the factors and a block of X.
    """
    code = """
        import sys
        import numpy as np
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
        import sys
        import numpy as np
        import partwise
        partwise.NMF(3, max_iter=2, tol=0).fit(np.random.rand(300, 200).astype(np.float32))
        before = peak()
        X = np.load(sys.argv[1], mmap_mode="r")
        partwise.NMF(20, max_iter=3, tol=0, random_state=0).fit(X)
        print(peak() - before)
    """
    done = subprocess.run(
        [*run, PEAK + textwrap.dedent(fit), path], check=True, capture_output=True, text=True
    )
    print(f"{float(done.stdout):.0f} MB beyond the libraries")
    assert float(done.stdout) < 300


@pytest.mark.long
@needs("distributed")
@pytest.mark.parametrize("n_workers", (1, 2, 4))
def test_bytes_moved_each_iteration(n_workers, monkeypatch):
    """Check the bytes that workers receive and send in each iteration.

    Each half of an iteration sends U to each worker and returns (p, k) and (k, k) arrays. V is
    never sent.
    """
    import dask.array as da
    from distributed import Client, LocalCluster

    from partwise import fitting
    from partwise.backends.dask import dask_data
    from partwise.solvers.loop import alternate

    monkeypatch.setattr(dask_data, "SMALL_BLOCK", 1)  # merging the chunks would move X once
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
            what = model._describe()
            problem = fitting.state(what, fitting.Checked(X, data, k, "mu", fitting.Knowledge()))
            alternate(problem.model, *problem.starts[0](), problem.settings)
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
        # There are 12 iterations and two starts. Sending V as well would add 12 n k numbers.
        assert between < 16 * (out + back), "V travels"
    gc.collect()
