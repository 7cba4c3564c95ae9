"""Tests of malicious files: code in files, huge unpacked sizes, links, spreadsheet formulas."""

import csv
import io
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.io

from partwise import io as pio
from partwise.io import archives, datasets
from partwise.io.sheets import csv_text, quoted, unquoted

# -- images ----------------------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_a_png_that_holds_eps_starts_no_program(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    from PIL import EpsImagePlugin

    called = []
    for name in ("Ghostscript", "has_ghostscript"):
        monkeypatch.setattr(EpsImagePlugin, name, lambda *a, **k: called.append(1))
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a program was started"))
    image.new("L", (8, 8), 100).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(EPS)
    with pytest.raises(ValueError, match=r"b\.png"):
        pio.read_samples(tmp_path, strict=True)
    assert not called


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tif", "webp", "pgm", "ppm"])
def test_the_named_formats_are_read(tmp_path, suffix):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    for name, grey in (("a", 50), ("b", 200)):
        made = image.new(
            "RGB" if suffix == "ppm" else "L", (8, 8), grey if suffix != "ppm" else (grey,) * 3
        )
        made.save(tmp_path / f"{name}.{suffix}")
    X = pio.read_samples(tmp_path, scale="none").X
    assert np.allclose(X, np.array([[50 / 255], [200 / 255]]), atol=0.02)


# -- compressed files that unpack to very large sizes ----------------------------------------------


@pytest.fixture
def low_limit(monkeypatch):
    """Lower the limit on unpacked sizes to 500 kB, a thousandth of its value."""
    monkeypatch.setattr(archives, "FREE", 500_000)


def bomb(path):
    zeros = np.zeros((200, 1000))
    if path.suffix == ".npz":
        np.savez_compressed(path, X=zeros)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {"fea": zeros}, do_compression=True)
    elif path.suffix == ".parquet":
        pandas = pytest.importorskip("pandas", reason="needs pandas")
        pytest.importorskip("pyarrow", reason="needs pyarrow")
        pandas.DataFrame({"a": np.arange(200_000) % 2.0}).to_parquet(path)
    else:
        anndata = pytest.importorskip("anndata", reason="needs anndata")
        anndata.AnnData(zeros).write_h5ad(path, compression="gzip", compression_opts=9)


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".parquet", ".h5ad"])
def test_small_files_that_unpack_to_very_much_are_refused(tmp_path, low_limit, suffix, monkeypatch):
    path = tmp_path / f"x{suffix}"
    bomb(path)
    if suffix == ".h5ad":  # the other arrays of an .h5ad file need some 20 kB
        monkeypatch.setattr(archives, "TIMES", 10)
    with pytest.raises(ValueError, match=r"\.npy") as error:
        pio.read_samples(path)
    assert str(error.value).count(str(path)) == 1
    monkeypatch.setattr(archives, "FREE", 500_000_000)
    assert pio.read_samples(path, scale="none").n_samples in (200, 200_000)


def test_zip_files_with_a_false_size_are_refused(tmp_path, low_limit):
    """Check that a zip file with a false size in its directory is read only up to that size."""
    path = tmp_path / "x.npz"
    bomb(path)
    data = path.read_bytes()
    size = (200 * 1000 * 8 + 128).to_bytes(4, "little")
    assert data.count(size) >= 1
    path.write_bytes(data.replace(size, (100).to_bytes(4, "little")))
    with pytest.raises(ValueError, match="damaged"):
        datasets.read(path)


# -- cells that spreadsheets would run as formulas -------------------------------------------------

DANGEROUS = ["=1+1", "+49 170", "-x", "@me", "=cmd|' /C calc'!A0", "'=1", "''-a", "-inf", "\t=1"]
HARMLESS = ["a", "", "-5", "+3.5", "-1e-5", ".5", "-.5", "1=1", "'a", "'", "'-5", "x@y", 3, -2.5]


@pytest.mark.parametrize("cell", DANGEROUS + HARMLESS)
def test_cells_come_back_unchanged(cell):
    assert unquoted(quoted(cell)) == cell
    assert (quoted(cell) != cell) == (cell in DANGEROUS)


def test_no_text_cell_of_a_csv_file_is_a_formula():
    rows = [[cell, 0.5, "-0.25"] for cell in DANGEROUS]
    for row in list(csv.reader(io.StringIO(csv_text(["id", "a", "b"], rows))))[1:]:
        assert row[0].startswith("'") and row[1:] == ["0.5", "-0.25"]


def test_ids_and_labels_go_out_and_come_back(tmp_path):
    pytest.importorskip("pandas", reason="tables need pandas")
    ids = ["=a", "+b c", "-d", "@e", "plain", "-5"]
    kinds = ["=x", "-y", "@z"] * 2
    rows = [[name, *row, kind] for name, row, kind in zip(ids, np.eye(6).tolist(), kinds)]
    heading = ["id", *(f"f{j}" for j in range(6)), "kind"]
    path = tmp_path / "t.csv"
    path.write_text(csv_text(heading, rows))
    samples = pio.read_samples(path, id_column="id", label_column="kind")
    assert samples.ids == ids
    assert samples.y.tolist() == kinds
    labels = tmp_path / "labels.csv"
    labels.write_text(csv_text(["id", "label"], [[row[0], row[-1]] for row in rows]))
    assert pio.read_labels(labels, ids).tolist() == kinds


def test_the_command_writes_no_formula(tmp_path, command):
    pytest.importorskip("pandas", reason="tables need pandas")
    rng = np.random.default_rng(0)
    path, out = tmp_path / "t.csv", tmp_path / "out"
    lines = [f"=name{i},{','.join(f'{v:.3f}' for v in rng.random(4))}" for i in range(12)]
    path.write_text("id,a,b,c,d\n" + "\n".join(lines))
    assert not command("cluster", path, "-k", 2, "--out", out, "--no-report", "--runs", 0)[0]
    for name in ("assignments.csv", "representation.csv"):
        text = (out / name).read_text()
        assert "'=name3," in text and "\n=" not in text
    codes = pio.read_samples(out / "representation.csv", id_column="id")
    assert codes.ids[3] == "=name3" and codes.X.shape == (12, 2)


# -- file names that are not text, and links -------------------------------------------------------


def texts(folder, *names):
    folder.mkdir(exist_ok=True)
    for i, name in enumerate(names):
        words = ("apples and pears", "pears and plums", "plums and apples", "apples")[i]
        (folder / name).write_text(f"{words} in the old garden", encoding="utf-8")


def test_a_link_out_of_a_folder_is_left_out_and_named(tmp_path):
    texts(tmp_path / "in", "a.txt", "b.txt", "c.txt")
    (tmp_path / "secret.txt").write_text("the key of the house", encoding="utf-8")
    (tmp_path / "in" / "d.txt").symlink_to(tmp_path / "secret.txt")
    # A link to a file in the same folder is read like a file.
    (tmp_path / "in" / "e.txt").symlink_to(tmp_path / "in" / "a.txt")
    found = pio.read_samples(tmp_path / "in")
    assert found.ids == ["a.txt", "b.txt", "c.txt", "e.txt"]
    assert "key" not in (found.feature_names or []) and "house" not in " ".join(found.texts)
    assert any("d.txt -> " in note and "secret.txt" in note for note in found.notes)
    (tmp_path / "whole").symlink_to(tmp_path / "in")  # the folder that is read may itself be a link
    assert pio.read_samples(tmp_path / "whole").n_samples == 4


def test_a_folder_of_links_says_what_it_is(tmp_path):
    texts(tmp_path / "real", "a.txt", "b.txt")
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "real" / name)
    with pytest.raises(ValueError, match=r"a\.txt"):
        pio.read_samples(tmp_path / "in")


def test_a_name_that_is_no_text_is_left_out_and_named(tmp_path):
    texts(tmp_path / "in", "a.txt", "b.txt", "c.txt")
    odd = os.fsdecode(b"caf\xe9.txt")
    try:
        texts(tmp_path / "in", odd)
    except OSError:
        pytest.skip("this file system takes no such name")
    found = pio.read_samples(tmp_path / "in")
    assert found.ids == ["a.txt", "b.txt", "c.txt"]
    note = next(note for note in found.notes if "UTF-8" in note)
    assert r"caf\udce9.txt" in note and note.encode()


def test_a_file_whose_name_is_no_text_is_named(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.npz")
    try:
        np.savez(path, X=np.ones((3, 2)))
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(ValueError, match=r"caf\\udce9\.npz.*UTF-8"):
        pio.read_samples(path)


def test_ctrl_c_while_the_command_is_imported(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    run = subprocess.run(
        [sys.executable, "-m", "partwise", "--help"], env=env, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


# -- damaged folders of the cnmf package -----------------------------------------------------------


@pytest.fixture
def cnmf(tmp_path):
    import partwise

    X = np.random.default_rng(0).gamma(1.0, size=(30, 12))
    pio.write_cnmf(partwise.consensus(X, 3, n_runs=5), tmp_path, "run")
    return tmp_path


def reshaped(path):
    with np.load(path) as file:
        whole = dict(file)
    np.savez(path, **whole | {"data": whole["data"][:, :-1]})


def with_nan(path):
    with np.load(path) as file:
        whole = dict(file)
    whole["data"][0, 0] = np.nan
    np.savez(path, **whole)


CNMF = {
    "cut short": ("spectra.k_3.merged.df.npz", lambda p: p.write_bytes(p.read_bytes()[:-50])),
    "no zip": ("spectra.k_3.merged.df.npz", lambda p: p.write_bytes(b"x" * 90)),
    "columns": ("spectra.k_3.merged.df.npz", reshaped),
    "nan": ("local_density_cache.k_3.merged.df.npz", with_nan),
    "text": (
        "usages.k_3.dt_0_5.consensus.txt",
        lambda p: p.write_text(p.read_text().replace(".", "x", 1)),
    ),
    "line": ("usages.k_3.dt_0_5.consensus.txt", lambda p: p.write_text(p.read_text() + "a\t1\n")),
    "bytes": ("usages.k_3.dt_0_5.consensus.txt", lambda p: p.write_bytes(b"\xff\xfe" * 9)),
    "empty": ("usages.k_3.dt_0_5.consensus.txt", lambda p: p.write_bytes(b"")),
}


@pytest.mark.parametrize("how", CNMF)
def test_a_damaged_cnmf_folder_names_its_file(cnmf, how):
    name, damage = CNMF[how]
    path = next(cnmf.rglob(f"run.{name}"))
    assert pio.read_cnmf(cnmf, "run", 3)[0].spectra.shape == (3, 12)
    damage(path)
    with pytest.raises(ValueError, match=r"run\.|run: "):
        pio.read_cnmf(cnmf, "run", 3)
