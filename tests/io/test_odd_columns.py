"""Tests of unusual columns (codes, special numbers, infinities) and unusual AnnData files."""

import numpy as np
import pytest

from partwise.io import read_samples


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def column(samples, name):
    return next((kind, done) for own, kind, done in samples.columns if own == name)


def rows(*cells, n=40):
    return "".join(",".join(str(cell(i)) for cell in cells) + "\n" for i in range(n))


def test_codes_with_leading_zeros_are_categories(tmp_path):
    zips = ["01067", "01069", "10115", "80331"]
    text = "zip,a\n" + rows(lambda i: zips[i % 4], lambda i: i % 7)
    samples = read_samples(write(tmp_path, text))
    kind, done = column(samples, "zip")
    assert kind == "category" and "leading zero" in done
    assert samples.feature_names[:4] == [f"zip = {z}" for z in zips]
    # New rows lack the leading zero and have a missing value, so pandas reads the column as floats.
    new = read_samples(
        write(tmp_path, "zip,a\n10115,1\n,2\n80331,3\n", "n.csv"), recipe=samples.recipe
    )
    assert np.flatnonzero(new.X[0, :4]).tolist() == [2] and np.flatnonzero(
        new.X[2, :4]
    ).tolist() == [3]


def test_a_leading_zero_far_down_is_seen(tmp_path):
    text = "zip,a\n" + rows(
        lambda i: f"{10000 + i % 5}" if i < 1500 else "01067", lambda i: i % 7, n=1510
    )
    assert column(read_samples(write(tmp_path, text)), "zip")[0] == "category"


def test_codes_that_all_differ_are_left_out(tmp_path):
    text = "part,a,b\n" + rows(lambda i: f"{i * 37:05d}", lambda i: i % 7, lambda i: i % 3)
    kind, done = column(read_samples(write(tmp_path, text)), "part")
    assert kind == "left out" and "--id-column" in done


def test_case_and_spaces_make_no_category(tmp_path):
    words = ["male", "MALE", "Male ", "female", "Female", "male"]
    text = "sex,a\n" + rows(lambda i: words[i % 6], lambda i: i % 7, n=60)
    samples = read_samples(write(tmp_path, text))
    kind, done = column(samples, "sex")
    assert kind == "category" and samples.feature_names[:2] == ["sex = female", "sex = male"]
    assert "'MALE'" in done and "male" in done
    assert (samples.X[:, :2] > 0).sum(axis=1).tolist() == [1] * 60
    new = read_samples(write(tmp_path, "sex,a\nMaLe,1\nFEMALE,2\n", "n.csv"), recipe=samples.recipe)
    assert np.flatnonzero(new.X[0, :2]).tolist() == [1] and np.flatnonzero(
        new.X[1, :2]
    ).tolist() == [0]


@pytest.mark.parametrize("code", ["-999", "-99", "-9999", "99999"])
def test_a_number_that_stands_for_nothing_is_a_gap(tmp_path, code):
    text = "age,a\n" + rows(lambda i: code if i % 10 == 3 else 20 + i % 30, lambda i: i % 7)
    samples = read_samples(write(tmp_path, text))
    kind, done = column(samples, "age")
    assert kind == "number" and f"{code} (4 rows) taken as missing" in done
    holes = np.arange(40) % 10 == 3
    assert np.ptp(samples.X[holes, 0]) == 0  # all missing values are filled alike
    without = "age,a\n" + rows(lambda i: "" if i % 10 == 3 else 20 + i % 30, lambda i: i % 7)
    assert np.allclose(samples.X, read_samples(write(tmp_path, without)).X)
    new = read_samples(write(tmp_path, f"age,a\n{code},1\n30,2\n", "n.csv"), recipe=samples.recipe)
    assert new.X[0, 0] == samples.X[3, 0]
    assert any("missing" in note.lower() for note in new.notes)


def test_ordinary_numbers_stay(tmp_path):
    text = "t,a\n" + rows(lambda i: -1000 + 50 * i if i != 1 else -999, lambda i: i % 7)
    assert "missing" not in column(read_samples(write(tmp_path, text)), "t")[1]


def test_what_is_cut_is_said(tmp_path):
    text = "t,a\n" + rows(lambda i: -5000 if i == 3 else 20 + i % 9, lambda i: i % 7, n=100)
    assert "cut at 0 (1.0% of the rows)" in column(read_samples(write(tmp_path, text)), "t")[1]
    recipe = read_samples(write(tmp_path, text.replace("-5000", "22"))).recipe
    new = read_samples(write(tmp_path, "t,a\n-999,1\n22,3\n99999,4\n", "n.csv"), recipe=recipe)
    said = next(note for note in new.notes if "'t'" in note)
    assert "-999" in said and "2 values" in said


def test_an_unseen_category_is_said(tmp_path):
    text = "land,a\n" + rows(lambda i: ("DE", "AT")[i % 2], lambda i: i % 7)
    recipe = read_samples(write(tmp_path, text)).recipe
    new = read_samples(write(tmp_path, "land,a\nFR,1\nDE,2\nFR,3\nIT,3\n", "n.csv"), recipe=recipe)
    said = next(note for note in new.notes if "'land'" in note)
    assert "'FR' (2 rows)" in said and "'IT' (1 row)" in said
    assert not new.X[0, :2].any()


@pytest.mark.parametrize("value", ["inf", "-inf", "Infinity", "1e999"])
def test_infinity_is_a_gap(tmp_path, value):
    text = "a,b\n" + rows(lambda i: value if i == 5 else i, lambda i: i * i % 11)
    samples = read_samples(write(tmp_path, text))
    assert np.isfinite(samples.X).all() and "infinite" in column(samples, "a")[1]
    assert any("in 1 of 40 rows" in note for note in samples.notes)
    new = read_samples(write(tmp_path, f"a,b\n{value},1\n3,2\n", "n.csv"), recipe=samples.recipe)
    assert np.isfinite(new.X).all() and any("in 1 of 2 rows" in note for note in new.notes)
    with pytest.raises(ValueError, match="missing"):
        read_samples(write(tmp_path, text), missing="error")


def test_text_among_numbers_is_said(tmp_path):
    text = "a,b\n" + rows(lambda i: "12 kg" if i == 5 else i, lambda i: i * i % 11)
    assert "'12 kg'" in column(read_samples(write(tmp_path, text)), "a")[1]


# -- AnnData files --------------------------------------------------------------------------------


@pytest.fixture
def cells(tmp_path):
    """Write an AnnData file with counts in .raw and logarithms in X.

    Two of its cells have no counts.
    """
    anndata = pytest.importorskip("anndata", reason=".h5ad needs anndata")
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, (30, 12)).astype(np.float32)
    counts[[4, 9]] = 0
    whole = anndata.AnnData(counts)
    whole.obs_names = [f"cell{i}" for i in range(30)]
    whole.var_names = [f"g{j}" for j in range(12)]
    adata = whole[:, :8].copy()
    adata.X = np.log1p(adata.X)
    adata.raw = whole
    adata.write_h5ad(tmp_path / "c.h5ad")
    return tmp_path / "c.h5ad"


def test_counts_in_raw_are_found_and_used_when_asked(cells):
    assert any("--layer raw" in note for note in read_samples(cells).notes)
    raw = read_samples(cells, layer="raw", scale="none")
    assert raw.kind == "counts" and raw.X.shape == (30, 12) and raw.feature_names[-1] == "g11"
    assert not any("--layer raw" in note for note in raw.notes)


def test_cells_without_counts_are_said(cells):
    said = next(note for note in read_samples(cells).notes if "zero" in note)
    assert "cell4, cell9" in said and "2 of the 30 cells" in said


def test_two_cells_of_one_name_are_named(cells):
    anndata = pytest.importorskip("anndata", reason=".h5ad needs anndata")
    adata = anndata.read_h5ad(cells)
    adata.obs_names = ["cell1", *adata.obs_names[1:]]
    adata.write_h5ad(cells)
    with pytest.raises(ValueError, match=r"'cell1'.*obs_names_make_unique"):
        read_samples(cells)


def test_two_genes_of_one_name_are_kept_apart(cells, tmp_path):
    """Check that two genes of the same name keep their own parts.

    Regression test: duplicate names once exchanged the parts of two genes.
    """
    anndata = pytest.importorskip("anndata", reason=".h5ad needs anndata")
    from partwise import NMF
    from partwise.io import to_anndata

    adata = anndata.read_h5ad(cells)
    adata.var_names = ["g1", *adata.var_names[1:]]
    adata.write_h5ad(cells)
    samples = read_samples(cells, scale="none")
    assert len(set(samples.feature_names)) == 8 and samples.feature_names[:2] == ["g1", "g1-1"]
    assert any("'g1'" in note or "g1" in note for note in samples.notes)
    model = NMF(2, random_state=0, tol=1e-2).fit(samples.X)
    found = to_anndata(adata, model, genes=samples.feature_names)
    assert np.array_equal(found.varm["partwise_parts"], model.components_.T)
    assert found.var["partwise_used"].all()


def test_parts_that_are_nearly_the_same_are_said():
    from partwise.apps.cli.work import same_parts

    H = np.array([[1.0, 0, 2], [0, 3, 0], [2.01, 0, 4], [0, 0, 0], [0, 0, 0]])
    (said,) = same_parts(H)
    assert "Parts 1 and 3 are nearly the same" in said and "pairs" not in said
    assert same_parts(np.eye(3)) == [] and same_parts(None) == []


@pytest.mark.parametrize("asked", [{"columns": ["nope"]}, {"exclude": ["nope"]}])
def test_a_refusal_names_the_table_once(tmp_path, asked):
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n3,5\n4,4\n")
    with pytest.raises(ValueError, match="'nope'") as caught:
        read_samples(path, **asked)
    assert str(caught.value).count("mine.csv") == 1
