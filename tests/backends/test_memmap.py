"""Tests of large .npy files, which are read from disk in blocks: results and memory.

Samples and models must equal those of the same file read into memory.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from backends import PEAK, linux
from partwise.apps.cli import app
from partwise.backends import arrays
from partwise.io import _common, read_samples
from partwise.io._common import SCALES
from partwise.solvers import steps

RUN = CliRunner()


@pytest.fixture
def small(monkeypatch):
    """Treat every .npy file as large, and read it in blocks of a few rows."""
    monkeypatch.setattr(_common, "STREAM_FROM", 0)
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", 300)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    X = rng.random((60, 4)) @ rng.random((4, 30)) + 0.1 * rng.random((60, 30))
    X[5], X[:, 2] = 0, 0
    return X


def saved(folder, X, name="X.npy"):
    np.save(folder / name, X)
    return folder / name


def read_both(path, monkeypatch, **options):
    """Read a file twice: once into memory, and once as a memory-mapped file."""
    with monkeypatch.context() as here:
        here.setattr(_common, "STREAM_FROM", 10**12)
        loaded = read_samples(path, **options)
    return loaded, read_samples(path, **options)


# scale="range" is for tables, which are never memory-mapped.
@pytest.mark.parametrize("scale", [scale for scale in SCALES if scale != "range"])
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.uint8))
def test_same_samples(scale, dtype, small, samples, tmp_path, monkeypatch):
    X = (200 * samples).astype(dtype)
    loaded, streamed = read_both(saved(tmp_path, X), monkeypatch, scale=scale)
    assert isinstance(streamed.X, np.memmap) and not isinstance(loaded.X, np.memmap)
    # Sums of columns are computed in another order.
    np.testing.assert_allclose(np.asarray(streamed.X), loaded.X, rtol=1e-6, atol=1e-9)
    assert streamed.recipe["scale"] == loaded.recipe["scale"]
    again = read_samples(tmp_path / "X.npy", recipe=streamed.recipe)
    np.testing.assert_array_equal(again.X, streamed.X)


def test_signed_and_counts(small, samples, tmp_path, monkeypatch):
    loaded, streamed = read_both(saved(tmp_path, samples - 0.5), monkeypatch)
    assert streamed.recipe["scale"] == loaded.recipe["scale"] == "none"
    path = saved(tmp_path, np.rint(5 * samples))
    loaded, streamed = read_both(path, monkeypatch, kind="counts")
    assert streamed.recipe["target"] == pytest.approx(loaded.recipe["target"])


def test_images(small, tmp_path, monkeypatch):
    X = np.random.default_rng(0).integers(0, 255, (20, 6, 5)).astype(np.uint8)
    loaded, streamed = read_both(saved(tmp_path, X), monkeypatch)
    assert isinstance(streamed.X, np.memmap) and streamed.image_shape == (6, 5)
    np.testing.assert_allclose(np.asarray(streamed.X), loaded.X)
    assert streamed.thumbnails(3) == loaded.thumbnails(3)


def test_the_scaled_copy_goes_with_the_samples(small, samples, tmp_path):
    read = read_samples(saved(tmp_path, samples))
    copy = Path(read.X.filename)
    assert copy.is_file() and "read from disk by blocks" in read.preparation
    del read
    assert not copy.parent.exists()
    as_it_is = read_samples(tmp_path / "X.npy", scale="none")
    assert Path(as_it_is.X.filename) == tmp_path / "X.npy"


def test_what_cannot_stay_on_disk(small, samples, tmp_path, monkeypatch):
    path = saved(tmp_path, samples)
    assert not isinstance(read_samples(path, transpose=True).X, np.memmap)
    assert not isinstance(read_samples(saved(tmp_path, samples.astype("f2"))).X, np.memmap)
    samples[50, 3] = np.nan
    with pytest.raises(ValueError, match=r"X\.npy"):
        read_samples(saved(tmp_path, samples))
    samples[50, 3] = 0
    path = saved(tmp_path, samples)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match=r"TMPDIR.*--scale none"):
        read_samples(path)


def run(*words):
    result = RUN.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def test_commands_give_the_same_on_disk(samples, tmp_path, monkeypatch):
    path = saved(tmp_path, samples)
    summaries, codes = [], []
    for stream in (10**12, 0):
        monkeypatch.setattr(_common, "STREAM_FROM", stream)
        out = tmp_path / f"out{stream}"
        fit = ("cluster", path, "-k", 3, "--method", "gnmf", "--runs", 0, "--json")
        summaries.append(json.loads(run(*fit, "--out", out).stdout))
        V = tmp_path / f"codes{stream}.npy"
        run("transform", out / "model.partwise", path, "--out", V)
        run("predict", out / "model.partwise", path, "--out", tmp_path / f"p{stream}.csv")
        codes.append(np.load(V))
    np.testing.assert_allclose(codes[1], codes[0], atol=1e-6)
    loaded, streamed = summaries
    assert streamed["objective"] == pytest.approx(loaded["objective"], rel=1e-6)
    assert streamed["clusters"] == loaded["clusters"]
    assert "read from disk" in streamed["preparation"]


def test_a_method_that_loads_says_so(small, samples, tmp_path):
    path, out = saved(tmp_path, samples), tmp_path / "m.partwise"
    done = run("fit", path, "-k", 3, "--method", "cf", "--out", out, "--json")
    notes = json.loads(done.stdout)["notes"]
    assert any(note.startswith("cf loads the whole matrix") for note in notes)
    done = run("fit", path, "-k", 3, "--method", "nmf", "--out", out, "--json", "--force")
    assert not any("loads" in note for note in json.loads(done.stdout)["notes"])


def test_a_file_cut_short_in_mid_fit_leaves_nothing(small, samples, tmp_path, monkeypatch):
    path = saved(tmp_path, samples)
    step = steps.STEPS["hals"]

    def cut(*given, **options):
        os.truncate(path, 3000)
        return step(*given, **options)

    monkeypatch.setitem(steps.STEPS, "hals", replace(step, move=cut, extrapolated=None))
    words = ("cluster", path, "-k", 3, "--method", "nmf", "--scale", "none", "--out")
    result = RUN.invoke(app, [*map(str, words), str(tmp_path / "out")])
    assert isinstance(result.exception, OSError)
    assert all(word in str(result.exception) for word in ("X.npy", "3000"))
    assert [p.name for p in tmp_path.iterdir()] == ["X.npy"]


@linux
@pytest.mark.long
@pytest.mark.parametrize("method", ("nmf", "gnmf"))
def test_memory_of_a_command(method, tmp_path):
    """Check that fitting a file of 200 MB needs less memory than the file.

    Memory is measured after libraries and kernels are loaded.
    """
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (12_500, 4_000))
    parts = rng.random((8, 4_000), dtype=np.float32)
    for at in range(0, 12_500, 500):
        X[at : at + 500] = rng.random((500, 8), dtype=np.float32) @ parts
    X.flush()
    np.save(tmp_path / "small.npy", X[:3_000, :50])
    del X
    code = """
        import sys
        from typer.testing import CliRunner
        from partwise.apps.cli import app

        def fit(name):
            words = ["fit", f"{name}.npy", "-k", "8", "--method", sys.argv[1], "--max-iter", "3"]
            result = CliRunner().invoke(app, [*words, "--out", f"{name}.partwise"])
            assert result.exit_code == 0, result.output
            return peak()

        print(-fit("small") + fit("X"))
    """
    done = subprocess.run(
        [sys.executable, "-c", PEAK + textwrap.dedent(code), method],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    print(f"{method}: {float(done.stdout):.0f} MB beyond the libraries")
    # The search for neighbours holds a few blocks of 1,024 rows in float64, of 33 MB each.
    assert float(done.stdout) < (60 if method == "nmf" else 190)
