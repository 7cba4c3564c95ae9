"""Tests of the command ``partwise consensus``, and of folders in the format of cnmf."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from partwise.apps import cli
from partwise.apps.cli import consensus_command, copies
from partwise.io import read_cnmf
from partwise.io.cnmf_folder import CnmfFolder

anndata = pytest.importorskip("anndata", reason="folders of cnmf contain .h5ad files")


def made(n=60, p=40, k=3, seed=0):
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.2, size=(k, p))
    V = rng.dirichlet(np.full(k, 0.3), n)
    return rng.poisson(800 * V @ (H / H.sum(axis=1, keepdims=True)))


@pytest.fixture
def cells(tmp_path):
    """Write a .h5ad file of 60 cells and 40 genes with three gene programs."""
    import pandas as pd

    obs, var = (
        pd.DataFrame(index=[f"{c}{i}" for i in range(n)]) for c, n in (("c", 60), ("g", 40))
    )
    adata = anndata.AnnData(sp.csr_matrix(made().astype(np.float32)), obs=obs, var=var)
    adata.obsm["spatial"] = np.random.default_rng(0).uniform(size=(60, 2))
    path = tmp_path / "cells.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def command(capfd):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            cli.main(["consensus", *(str(word) for word in words)])
        return end.value.code or 0, *capfd.readouterr()

    return run


FORKS = [False, *([True] if sys.platform == "linux" else [])]
QUICK = ("--runs", 5, "--genes", 30, "--device", "cpu")


def tables(out, k):
    found, _, _ = read_cnmf(out.parent, out.name, k)
    return found


def test_counts_become_programmes(cells, command, tmp_path):
    out = tmp_path / "made"
    code, said, err = command(cells, "--range", "2-3", *QUICK, "--out", out)
    assert not code, err
    assert "10 runs: about" in err and "GB of memory" in err
    summary = json.loads((out / "summary.json").read_text())
    assert [row["k"] for row in summary["numbers"]] == [2, 3]
    assert summary["numbers"][1]["stability"] > 0.9
    assert "report.html" in said
    page = (out / "report.html").read_text()
    assert "Which numbers are stable" in page and page.count("<details") == 2
    assert page.count("Usage of each programme, where the cells are") == 2
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    rows = list(csv.DictReader((out / "top_genes.csv").read_text().splitlines()))
    three = [row for row in rows if row["k"] == "3" and row["rank"] == "1"]
    assert len({row["gene"] for row in three}) == 3
    found = tables(out, 3)
    assert found.parts.shape == (3, 40) and found.spectra.shape == (3, 30)


def test_a_stopped_command_goes_on(cells, command, tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole" / "x", tmp_path / "cut" / "x"
    for out in (whole, cut):
        out.parent.mkdir()
    assert command(cells, "--parts", "3", *QUICK, "--out", whole)[0] == 0
    write, done = CnmfFolder.write_run, []

    def stopped(self, k, number, H, genes):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(number)
        write(self, k, number, H, genes)

    monkeypatch.setattr(CnmfFolder, "write_run", stopped)
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", cut)
    assert code == 130 and "Stopped after 2 of 5 runs; the same command" in err
    assert CnmfFolder(cut).runs(3) == [0, 1]
    monkeypatch.undo()
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", cut)
    assert not code and "3 runs: about" in err
    a, b = tables(whole, 3), tables(cut, 3)
    # Runs that are computed together differ in the last digits of single precision.
    np.testing.assert_allclose(a.spectra, b.spectra, atol=1e-3 * a.spectra.max())
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", cut)
    assert not code and "All runs are done" in err


@pytest.mark.parametrize("forks", FORKS)
def test_interrupted_runs_of_several_k_are_continued(cells, command, tmp_path, monkeypatch, forks):
    """Check that on an interrupt every process finishes and keeps its current run."""
    out, write = tmp_path / "x", CnmfFolder.write_run

    def stopped(self, k, number, H, genes):
        if k == 4 and number == 1:
            raise KeyboardInterrupt
        write(self, k, number, H, genes)

    monkeypatch.setattr(copies, "FORKS", forks)
    monkeypatch.setattr(consensus_command, "at_once", lambda prepared: 3)
    monkeypatch.setattr(CnmfFolder, "write_run", stopped)
    code, _, err = command(cells, "--range", "2-5", *QUICK, "--out", out)
    kept = sum(len(CnmfFolder(out).runs(k)) for k in range(2, 6))
    assert code == 130 and f"Stopped after {kept} of 20 runs" in " ".join(err.split())
    assert CnmfFolder(out).runs(4) == [0]
    monkeypatch.undo()
    assert command(cells, "--range", "2-5", *QUICK, "--out", out)[0] == 0


def test_results_do_not_depend_on_cores(cells, command, tmp_path, monkeypatch):
    """Check that results do not depend on the number of cores, nor on threads or processes."""
    ways = [(1, False), (3, False), *((3, True) for forks in FORKS if forks)]
    for number, (cores, forks) in enumerate(ways):
        (tmp_path / str(number)).mkdir()
        monkeypatch.setattr(copies, "FORKS", forks)
        monkeypatch.setattr(consensus_command, "at_once", lambda prepared, cores=cores: cores)
        out = tmp_path / str(number) / "x"
        assert command(cells, "--range", "2-4", *QUICK, "--out", out)[0] == 0
    names = [file.relative_to(tmp_path / "0") for file in (tmp_path / "0").rglob("*.txt")]
    names += [file.relative_to(tmp_path / "0") for file in (tmp_path / "0").rglob("*.df.npz")]
    names += [Path("x", "top_genes.csv")]
    assert len(names) > 40
    for name in names:
        contents = {(tmp_path / str(n) / name).read_bytes() for n in range(len(ways))}
        assert len(contents) == 1, name


def test_runs_of_other_counts_are_not_mixed_in(cells, command, tmp_path):
    out = tmp_path / "made"
    assert command(cells, "--parts", "2", *QUICK, "--out", out)[0] == 0
    other = tmp_path / "other.npz"
    sp.save_npz(other, sp.csr_matrix(made(seed=1)))
    code, _, err = command(other, "--parts", "2", *QUICK, "--out", out)
    assert code == 2 and "--force" in err
    assert command(other, "--parts", "2", *QUICK, "--out", out, "--force")[0] == 0
    assert len(tables(out, 2).usages) == 60


def test_an_unfinished_folder_of_cnmf_is_continued(cells, command, tmp_path):
    """Check that an unfinished folder of cnmf is continued.

    The pickled names and seeds in cnmf's files are not needed.
    """
    ours = tmp_path / "ours"
    assert command(cells, "--parts", "3", *QUICK, "--out", ours)[0] == 0
    theirs = tmp_path / "theirs"
    (theirs / "cnmf_tmp").mkdir(parents=True)
    for file in (ours / "cnmf_tmp").iterdir():
        kind = file.name.removeprefix("ours.")
        target = theirs / "cnmf_tmp" / f"theirs.{kind}"
        if kind.endswith(".h5ad"):
            target.write_bytes(file.read_bytes())
        # Iteration 4 is not copied, so one run is missing.
        elif ".iter_" in kind and "iter_4" not in kind:
            with np.load(file) as held:
                np.savez_compressed(
                    target, **{n: held[n].astype(object) if n != "data" else held[n] for n in held}
                )
    code, _, err = command(theirs, "--runs", 5, "--device", "cpu")
    assert not code, err
    assert "1 runs: about" in err
    a, b = tables(ours, 3), tables(theirs, 3)
    np.testing.assert_allclose(a.spectra, b.spectra, atol=1e-3 * a.spectra.max())
    np.testing.assert_allclose(a.parts, b.parts, atol=1e-3 * a.parts.max())


def test_all_files_that_cnmf_reads_are_written(cells, command, tmp_path):
    out = tmp_path / "x"
    assert command(cells, "--parts", "3", *QUICK, "--out", out)[0] == 0
    seen, names, genes = CnmfFolder(out).read_counts("norm_counts")
    assert seen.shape == (60, 30) and names[0] == "c0"
    assert genes == (out / "x.overdispersed_genes.txt").read_text().split()
    # np.load refuses pickled objects by default.
    with np.load(out / "cnmf_tmp" / "x.nmf_params.df.npz") as table:
        assert table["columns"].tolist() == ["n_components", "iter", "nmf_seed", "completed"]
        assert table["data"][:, :2].tolist() == [[3, i] for i in range(5)]
        assert table["index"].tolist() == list(range(5))
    settings = (out / "cnmf_tmp" / "x.nmf_idvrun_params.yaml").read_text().split("\n")
    assert "beta_loss: frobenius" in settings and "solver: cd" in settings
    with np.load(out / "cnmf_tmp" / "x.tpm_stats.df.npz") as table:
        tpm, _, _ = CnmfFolder(out).read_counts("tpm")
        np.testing.assert_allclose(table["data"][:, 0], tpm.toarray().mean(axis=0), rtol=1e-5)
    with np.load(out / "x.k_selection_stats.df.npz") as table:
        assert table["data"].shape == (1, 4)


def starcat(out):
    """Return the names of the programs, the genes and the values of the table for starCAT."""
    with (out / f"{out.name}.starcat_spectra.k_3.dt_0_5.txt").open() as file:
        (_, *genes), *rows = csv.reader(file, delimiter="\t")
    return [row[0] for row in rows], genes, np.array([row[1:] for row in rows], dtype=float)


def test_the_reference_for_starcat_is_divided_by_deviations(cells, command, tmp_path):
    """Check the table for starCAT: programs are scaled to a million and divided by deviations.

    The deviations are those of the genes used in the runs.
    """
    out = tmp_path / "x"
    assert command(cells, "--parts", "3", *QUICK, "--out", out)[0] == 0
    names, genes, values = starcat(out)
    assert names == ["GEP1", "GEP2", "GEP3"]
    assert genes == (out / "x.overdispersed_genes.txt").read_text().split()
    tpm, _, every = CnmfFolder(out).read_counts("tpm")
    deviation, parts = tpm.toarray().astype(float).std(axis=0), tables(out, 3).parts
    expected = 1e6 * parts / parts.sum(axis=1, keepdims=True) / deviation
    at = [every.index(gene) for gene in genes]
    np.testing.assert_allclose(values, expected[:, at], rtol=1e-5)  # counts are stored in float32
    with np.load(out / "cnmf_tmp" / "x.starcat_spectra.k_3.dt_0_5.df.npz") as table:
        np.testing.assert_allclose(table["data"], values, rtol=1e-8)  # the file stores nine digits


def test_the_reference_for_starcat_is_what_cnmf_makes_of_the_folder(cells, command, tmp_path):
    cnmf = pytest.importorskip("cnmf")
    out = tmp_path / "x"
    assert command(cells, "--parts", "3", *QUICK, "--out", out)[0] == 0
    ours = starcat(out)
    (out / "x.starcat_spectra.k_3.dt_0_5.txt").unlink()
    cnmf.cNMF(output_dir=str(tmp_path), name="x").build_reference(3, density_threshold=0.5)
    names, genes, values = starcat(out)
    assert (names, genes) == ours[:2]
    # cnmf reads parts with nine digits and sums them; our sums are rounded when they are written.
    np.testing.assert_allclose(ours[2], values, rtol=3 * 5e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_of_cell_ranger_has_its_names(command, tmp_path, turned):
    X = made()
    scipy.io.mmwrite(tmp_path / "matrix.mtx", sp.coo_matrix(X.T if turned else X))
    (tmp_path / "barcodes.tsv").write_text("".join(f"cell-{i}\n" for i in range(60)))
    names = "".join(f"ENS{j}\tname{j}\tGene Expression\n" for j in range(40))
    (tmp_path / "features.tsv").write_text(names)
    out = tmp_path / "out"
    assert command(tmp_path / "matrix.mtx", "--parts", "3", *QUICK, "--out", out)[0] == 0
    _, samples, features = read_cnmf(tmp_path, "out", 3)
    assert samples[:2] == ["cell-0", "cell-1"] and features[0].startswith("name")


def test_what_cannot_be_is_refused_before_any_work(cells, command, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    np.save(tmp_path / "scaled.npy", np.log1p(made()))
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    for words, said in (
        ((cells, "--out", tmp_path / "x"), "--parts"),
        ((cells, "--range", "7-5", "--out", tmp_path / "x"), "'7-5'"),
        ((cells, "--parts", "3", "--loss", "l1", "--out", tmp_path / "x"), "--loss must be"),
        ((cells, "--parts", "3", "--density-threshold", "0", "--out", tmp_path / "x"), "above 0"),
        ((cells, "--parts", "3", "--out", tmp_path / "no" / "x"), str(tmp_path / "no")),
        ((tmp_path / "scaled.npy", "--parts", "3", "--out", tmp_path / "x"), "needs counts"),
        ((tmp_path / "table.csv", "--parts", "3", "--out", tmp_path / "x"), "ends in .h5ad"),
        ((tmp_path / "gone.npy", "--parts", "3", "--out", tmp_path / "x"), "There is no file"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, "") and said in err, (words, err)
    (tmp_path / "scaled.npy").unlink()
    (tmp_path / "table.csv").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_an_estimate_writes_nothing(cells, command, tmp_path):
    code, out, _ = command(
        cells, "--parts", "3", *QUICK, "--out", tmp_path / "x", "--estimate", "--json"
    )
    told = json.loads(out)
    assert not code and told["seconds"] > 0 and told["bytes"] > 1e8
    assert not (tmp_path / "x").exists()


def test_without_anndata_the_note_says_what_is_missing(command, tmp_path, monkeypatch):
    sp.save_npz(tmp_path / "c.npz", sp.csr_matrix(made()))
    monkeypatch.setitem(sys.modules, "anndata", None)
    code, _, err = command(tmp_path / "c.npz", "--parts", "3", *QUICK, "--out", tmp_path / "x")
    assert not code and "partwise[cells]" in " ".join(err.split())


def test_a_second_run_reads_the_counts_of_the_first(cells, command, tmp_path):
    for _ in range(2):  # the second run reads the counts written by the first
        code, _, err = command(cells, "--parts", "3", *QUICK, "--out", tmp_path / "x")
        assert not code, err
        cells = tmp_path / "x"
    tpm = anndata.read_h5ad(CnmfFolder(cells).path("tpm.h5ad"))
    assert isinstance(tpm.X, sp.csr_matrix) and tpm.obs_names[0] == "c0"
    assert tpm.var_names[0] == "g0"
    np.testing.assert_allclose(tpm.X.sum(axis=1), 1e6, rtol=1e-5)


def test_a_gpu_that_is_not_there_is_said(cells, command, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        assert consensus_command._device("auto") == "cuda"
        return
    assert consensus_command._device("auto") is None
    code, _, err = command(cells, "--parts", "3", "--device", "cuda", "--out", tmp_path / "x")
    assert code == 2 and "--device cuda" in err


def test_torch_tensors_give_the_same_programmes(cells, command, tmp_path):
    """Check that --device cpu:0, which runs the code for a GPU, finds the same programs.

    The device "cpu" uses NumPy; "cpu:0" uses Torch tensors on the CPU.
    """
    pytest.importorskip("torch")
    plain, tensors = tmp_path / "plain", tmp_path / "tensors"
    assert command(cells, "--parts", "3", *QUICK, "--out", plain)[0] == 0
    code, _, err = command(cells, "--parts", "3", *QUICK[:-1], "cpu:0", "--out", tensors)
    assert not code, err
    a, b = tables(plain, 3), tables(tensors, 3)
    np.testing.assert_allclose(a.spectra, b.spectra, atol=5e-3 * a.spectra.max())


def test_options_have_their_documented_effect(command, tmp_path):
    sp.save_npz(tmp_path / "c.npz", sp.csr_matrix(made()))
    words = (tmp_path / "c.npz", "--parts", "3", *QUICK, "--no-report", "--out")
    code, said, err = command(*words, tmp_path / "none", "--no-counts")
    assert not code and "--counts" in " ".join(err.split())
    assert "top_genes.csv" in said and "report.html" not in said
    assert not list((tmp_path / "none" / "cnmf_tmp").glob("*.h5ad"))
    assert not (tmp_path / "none" / "report.html").exists()
    assert command(*words, tmp_path / "all", "--counts")[0] == 0
    assert len(list((tmp_path / "all" / "cnmf_tmp").glob("*.h5ad"))) == 2
    density = []
    # The density is the mean distance to the nearest part, or to all five.
    for share in ("0.2", "1"):
        assert command(*words, tmp_path / "all", "--neighborhood", share)[0] == 0
        density.append(tables(tmp_path / "all", 3).density)
    assert (density[0] <= density[1]).all() and density[0].sum() < density[1].sum()
    code, _, err = command(*words, tmp_path / "x", "--neighborhood", "2")
    assert code == 2 and "at most 1" in err


def test_double_genes_and_empty_cells_are_named_and_nothing_is_lost(cells, command, tmp_path):
    adata = anndata.read_h5ad(cells)
    X = adata.X.toarray()
    X[7] = 0
    adata.X = sp.csr_matrix(X)
    adata.var_names = ["g0", "g0", *adata.var_names[2:]]
    adata.write_h5ad(cells)
    out = tmp_path / "x"
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", out)
    said = " ".join(err.split())
    assert not code and "g0-1" in said
    assert "1 cell without a count of the 30 genes used: c7" in said
    found, names, _ = read_cnmf(tmp_path, "x", 3)
    assert len(names) == 59 and "c7" not in names and found.parts.shape == (3, 40)
    notes = json.loads((out / "summary.json").read_text())["notes"]
    assert any("c7" in note for note in notes) and "UserWarning" not in err


def test_cells_without_a_coordinate_are_named_and_left_out_of_the_map(cells, command, tmp_path):
    adata = anndata.read_h5ad(cells)
    adata.obsm["spatial"][[4, 9]] = np.nan
    adata.write_h5ad(cells)
    out = tmp_path / "x"
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", out)
    assert not code and "2 cells without a coordinate" in err and "c4, c9" in err
    drawn = (out / "report.html").read_text().count("data:image/png")
    adata.obsm["spatial"][:] = np.nan
    adata.write_h5ad(cells)
    code, _, err = command(cells, "--parts", "3", *QUICK, "--out", out)
    assert not code and "60 cells without a coordinate" in err
    assert (out / "report.html").read_text().count("data:image/png") == drawn - 1


def test_more_programmes_than_cells_are_refused(cells, command, tmp_path):
    few = tmp_path / "few.h5ad"
    anndata.read_h5ad(cells)[:4].copy().write_h5ad(few)
    code, _, err = command(few, "--range", "3-5", *QUICK, "--out", tmp_path / "x")
    assert code and "5 programs" in err and "4 cells" in err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--loss", "kullback-leibler"), "--loss"),
        (("--layer", "counts"), "--layer"),
        (("--transpose",), "--transpose"),
        (("--genes", "20"), "--genes"),
    ],
)
def test_a_folder_of_cnmf_keeps_its_own_settings(words, name, cells, command, tmp_path):
    """Check that a second command on a folder of cnmf refuses settings that differ from its runs.

    Programs are refitted with the loss of the runs, not of the second command.
    """
    out = tmp_path / "x"
    assert command(cells, "--parts", "3", *QUICK, "--out", out)[0] == 0
    code, _, err = command(out, "--parts", "3", *words)
    assert code == 2 and name in err
    assert command(out, "--parts", "3", "--runs", "5", "--no-report")[0] == 0
