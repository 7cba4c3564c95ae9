"""Tests with hundreds of damaged files, full disks, killed processes, and foreign cookies.

Everything that may crash runs in a new process. A failure prints the seed that creates the same
file again.
"""

import errno
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from partwise import io as pio

pytest.importorskip("resource", reason="limits of memory are for Unix")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FILES = 300


def matrix():
    X = sp.random_array((40, 50), density=0.2, random_state=0, format="csr")
    X.data = np.ceil(5 * X.data)
    return X


# -- damaged sparse files --------------------------------------------------------------------------


def write(path, X, layout="csr"):
    """Write X in the file format that the suffix of the path states."""
    if path.suffix == ".npz":
        sp.save_npz(path, X.asformat(layout), compressed=False)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {"fea": sp.csc_matrix(X)}, do_compression=False)
    elif path.suffix == ".mtx":
        scipy.io.mmwrite(path, X)
    elif path.suffix == ".partwise":
        import partwise

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            partwise.GNMF(3, max_iter=5, random_state=0).fit(X).save(path)
    else:
        anndata = pytest.importorskip("anndata", reason="needs anndata")
        kind = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[layout]
        anndata.AnnData(kind(X)).write_h5ad(path)


def damaged(rng, data):
    """Return the bytes with some of them changed, removed, doubled or moved."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(data))), int(rng.integers(1, 9))
        how = rng.integers(5)
        if how == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            data[at : at + length] = rng.bytes(length)
        elif how == 2:
            data[at : at + length] = b"\xff" * length
        elif how == 3:
            del data[at : at + length]
        else:
            del data[max(at, 10) :]
    return bytes(data)


def invalid_csr(rng, X, ways=(0, 1, 2, 3, 4)):
    """Return CSR arrays of X with one impossible index or pointer."""
    p = {"data": X.data.copy(), "indices": X.indices.copy(), "indptr": X.indptr.copy()}
    at = int(rng.integers(1, X.indptr.size - 1))
    far = int(rng.choice([X.shape[1], X.shape[1] + 9, 2**30, -1, -(2**31)]))
    how = rng.choice(ways)
    if how == 0:
        p["indices"][rng.integers(X.nnz)] = far
    elif how == 1:
        p["indptr"][at] = rng.choice([X.nnz + 1, 2**30, -5])
    elif how == 2:
        p["indptr"][at] = p["indptr"][at + 1] + 1
        p["indptr"][-1] = max(p["indptr"][-1], p["indptr"][at])
    elif how == 3:
        p["indptr"][-1] -= rng.integers(1, 9)
    else:
        p["indptr"][:] = 0
        p["indptr"][at] = rng.choice([7, 2**30])
    return p


def rewrite(path, p):
    """Replace the CSR arrays in a valid .npz or .h5ad file."""
    if path.suffix == ".npz":
        np.savez(path, **p, shape=np.array([40, 50]), format=b"csr")
        return
    import h5py

    with h5py.File(path, "r+") as file:
        for name, values in p.items():
            file["X"][name][...] = values


READER = """
import sys, traceback, warnings
if sys.platform == "linux":
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
import numpy as np, scipy.sparse as sp
warnings.simplefilter("ignore")
import partwise
from partwise import io as pio
for path in sys.argv[1:]:
    print(path, end=" ", flush=True)
    try:
        if path.endswith(".partwise"):
            model = partwise.load(path)
            V = model.transform(np.ones((2, model.n_features_in_)))
        else:
            X = pio.read_samples(path).X
            X = sp.csr_array(X)
            Y = X.copy()
            Y.sum_duplicates()
            assert Y.nnz == X.nnz and X.indptr[-1] == X.nnz == X.indices.size
            assert X.nnz == 0 or 0 <= X.indices.min() <= X.indices.max() < X.shape[1]
            assert (np.diff(X.indptr) >= 0).all() and np.isfinite(X.data).all()
            if X.shape[0] * X.shape[1] > 10**7 or (X.data < 0).any() or not X.nnz:
                print("sound", flush=True)
                continue
            V = partwise.NMF(2, max_iter=2, random_state=0).fit_transform(X)
        assert np.isfinite(V).all() and V.min() >= 0
        print("sound", flush=True)
    except (ValueError, OSError) as error:
        named = path in str(error) or "X holds" in str(error)
        short = named and len(str(error)) < 1200
        print("refused" if short else f"UNNAMED {str(error)!r}", flush=True)
    except BaseException as error:
        print("BAD", type(error).__name__, repr(str(error)[:200]), flush=True)
"""


def read_all(paths, seconds=600):
    """Read each file in a new process, and report every file that ends the process."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", READER, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=env,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, (run.returncode, lines[-1:], run.stderr[-2000:])
    found = [line.split(" ", 1) for line in lines]
    assert [name for name, _ in found] == [str(path) for path in paths]
    bad = [(name, what) for name, what in found if what not in ("sound", "refused")]
    assert not bad, "\n".join(map(str, bad[:10]))
    return [what for _, what in found]


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5ad", ".mtx", ".partwise"])
def test_torn_files(tmp_path, suffix):
    """Check that damaged files are refused or give a valid matrix.

    They must not crash the process or need much memory.
    """
    write(tmp_path / f"whole{suffix}", matrix())
    whole = (tmp_path / f"whole{suffix}").read_bytes()
    paths = []
    for number in range(FILES):
        paths.append(tmp_path / f"{number}{suffix}")
        paths[-1].write_bytes(damaged(np.random.default_rng(number), whole))
    found = read_all(paths)
    assert found.count("refused") > FILES // 10
    assert read_all([tmp_path / f"whole{suffix}"]) == ["sound"]


@pytest.mark.parametrize("suffix", [".npz", ".h5ad"])
def test_impossible_indices_are_refused(tmp_path, suffix):
    """Check that .npz and .h5ad files with impossible indices are refused."""
    paths = []
    write(tmp_path / f"whole{suffix}", matrix())
    for number in range(FILES):
        paths.append(tmp_path / f"{number}{suffix}")
        shutil.copy(tmp_path / f"whole{suffix}", paths[-1])
        rewrite(paths[-1], invalid_csr(np.random.default_rng(number), matrix()))
    assert set(read_all(paths)) == {"refused"}


def test_impossible_indices_of_mat_files_are_refused(tmp_path):
    """Check that MATLAB files with impossible indices are refused."""
    X = sp.csc_array(matrix())
    write(tmp_path / "whole.mat", X)
    whole = (tmp_path / "whole.mat").read_bytes()
    arrays = [X.indices.astype("<i4").tobytes(), X.indptr.astype("<i4").tobytes()]
    assert all(whole.count(part) == 1 for part in arrays)
    paths = []
    for number in range(FILES):
        # Pointers that end early are allowed in .mat files, which reserve space for more entries.
        p = invalid_csr(np.random.default_rng(number), sp.csr_array(X.T), (0, 1, 2, 4))
        data = whole
        for old, name in zip(arrays, ("indices", "indptr")):
            data = data.replace(old, p[name].astype("<i4").tobytes())
        paths.append(tmp_path / f"{number}.mat")
        paths[-1].write_bytes(data)
    assert set(read_all(paths)) == {"refused"}


# -- the same samples in several file formats ------------------------------------------------------


def test_every_container_gives_the_same_samples(tmp_path):
    """Check that every file format gives the same samples, in the order of the rows."""
    X, order = matrix(), np.random.default_rng(1).permutation(40)
    names = ["a.npz", "b.npz", "c.mat", "d.mtx", "e.h5ad", "f.h5ad", "g.npy"]
    for name in names:
        layout = "csc" if name[0] in "bf" else "csr"
        for Y, what in ((X, name), (sp.csr_array(X[order]), f"p{name}")):
            if name.endswith(".npy"):
                np.save(tmp_path / what, Y.toarray())
            else:
                write(tmp_path / what, Y, layout)
        for scale in ("none", "unit", "total", "log"):
            read = pio.read_samples(tmp_path / name, scale=scale).X
            moved = pio.read_samples(tmp_path / f"p{name}", scale=scale).X
            dense, other = (A.toarray() if sp.issparse(A) else np.asarray(A) for A in (read, moved))
            if scale == "none":
                assert np.array_equal(dense, X.toarray()), name
            # Sums over a row have another order in memory, so they differ by a few units in the
            # last place.
            np.testing.assert_allclose(other, dense[order], rtol=1e-14, atol=0)


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of one megabyte, to test a full disk."""
    at = tmp_path / "small"
    at.mkdir()
    if os.name == "nt" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(at)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.strip()}")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


def fill_disk(folder):
    """Fill the file system of a folder completely."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return path


def test_a_full_disk_and_the_journal(small_disk):
    from partwise.apps.studio.journal import Journal

    journal, kept = Journal(small_disk / "j"), {}
    for turn in range(20):
        filler = fill_disk(small_disk)
        refused = 0
        for i in range(30):  # the file system's free space may hold some of these records
            try:
                journal.set({f"{turn}-{i}": "x" * 400}, window="w")
                kept[f"{turn}-{i}"] = "x" * 400
            except OSError as error:
                assert error.errno == errno.ENOSPC
                refused += 1
        assert refused > 10
        filler.unlink()
        journal.set({f"{turn}": "y"}, window="w")
        kept[f"{turn}"] = "y"
    assert journal.labels == kept
    journal.close()
    again = Journal(small_disk / "j")
    assert again.labels == kept
    again.close()


def test_a_full_disk_and_files_that_are_replaced(small_disk):
    from partwise import NMF, load
    from partwise.persistence.atomic import write_whole

    warnings.simplefilter("ignore", ConvergenceWarning)
    X = matrix().toarray()
    model = NMF(2, max_iter=5, random_state=0).fit(X)
    model.save(small_disk / "m.partwise")
    write_whole(small_disk / "a.txt", "old")
    fill_disk(small_disk)
    for _ in range(5):
        with pytest.raises(OSError, match="space"):
            write_whole(small_disk / "a.txt", "new" * 100_000, force=True)
        with pytest.raises(OSError, match="space"):
            NMF(40, max_iter=1, random_state=0).fit(X).save(small_disk / "m.partwise")
    assert (small_disk / "a.txt").read_text() == "old"
    assert np.array_equal(load(small_disk / "m.partwise").components_, model.components_)
    assert sorted(p.name for p in small_disk.iterdir()) == ["a.txt", "filler", "m.partwise"]


def test_a_full_disk_and_the_studio(small_disk):
    from partwise.apps.studio.workspace import Workspace
    from partwise.io.samples import Samples

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 12)) + 2 * np.eye(3, 12)[np.arange(60) % 3]
    samples = Samples(X, [str(i) for i in range(60)], "table", source="made")
    told = []
    workspace = Workspace(samples, small_disk / "p")
    workspace.listener = lambda kind, content: told.append((kind, content))
    fill_disk(
        small_disk
    )  # files of part weights, map and curve cannot be written, but the studio runs
    workspace.prepare()
    assert workspace.ready and any(kind == "trouble" for kind, _ in told)
    refused = 0
    for i in range(12):
        try:
            workspace.label([i], f"{'long ' * 30}{i % 3}", window="w")
        except OSError:
            refused += 1
    assert refused == 12 - len(workspace.labels) > 0
    (small_disk / "filler").unlink()
    for i in range(12):
        workspace.label([i], f"g{i % 3}", window="w")
    workspace.wait()
    labels = workspace.labels
    workspace.close()
    again = Workspace(samples, small_disk / "p")
    again.prepare()
    assert again.labels == labels and len(labels) == 12
    again.close()


# -- killed processes ------------------------------------------------------------------------------

WRITER = """
import sys
from partwise.apps.studio.journal import Journal
journal = Journal(sys.argv[1])
first = len(journal.entries)
for i in range(first, first + 100_000):
    key = f"k{i}"
    journal.set({str(i % 997): f"label {i}"}, window="w", key=key)
    print(key, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
def test_killed_studios_store_each_action_once(tmp_path):
    """Check that a killed studio has stored every acknowledged action exactly once.

    At most one further action per kill may be stored.
    """
    from partwise.apps.studio.journal import Journal

    rng, told = np.random.default_rng(0), []
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "j")], stdout=subprocess.PIPE, text=True
        )
        told.append(process.stdout.readline().strip())
        time.sleep(float(rng.uniform(0.01, 0.3)))
        os.kill(process.pid, signal.SIGKILL)
        told += process.stdout.read().split()
        process.wait()
        process.stdout.close()
        journal = Journal(tmp_path / "j")
        keys = [act.key for act in journal.entries]
        journal.close()
        assert len(set(keys)) == len(keys) and set(told) <= set(keys)
        assert keys == [f"k{i}" for i in range(len(keys))]
        # Per kill, at most one entry was written but not reported.
        assert len(keys) - len(told) <= 12


KEEPER = """
import sys, numpy as np
from partwise.persistence.atomic import write_whole
for i in range(100_000):
    write_whole(sys.argv[1], (f"{i % 10}" * 50_000), force=True)
    if i == 0:
        print("on", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
def test_kills_leave_whole_files(tmp_path):
    from partwise.persistence.atomic import sweep

    path, rng = tmp_path / "a.txt", np.random.default_rng(0)
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(path)], stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        time.sleep(float(rng.uniform(0, 0.2)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        text = path.read_text()
        assert len(text) == 50_000 and len(set(text)) == 1
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


# -- cookies over a real connection ----------------------------------------------------------------


def test_a_jar_of_other_programs_cookies(tmp_path):
    pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")
    from test_studio import COOKIES, cookie_of, made

    from partwise.studio import start

    with start(made()[0], tmp_path / "p") as studio:
        port = int(re.search(r":(\d+)/", studio.url)[1])
        ours = cookie_of(studio)
        sound = [c.encode("latin-1", "ignore") for c in COOKIES if "\x01" not in c]
        for others in ([c] for c in sound), [sound[:12]], [sound[12:]]:
            for jar in others:
                line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                line.putrequest("GET", "/api/state")
                jar = [jar] if isinstance(jar, bytes) else jar
                line.putheader("Cookie", b"; ".join([*jar, ours.encode()]))
                line.endheaders()
                answer = line.getresponse()
                assert answer.status == 200, jar
                assert json.loads(answer.read())["kind"] == "table"
                line.close()
