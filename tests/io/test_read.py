"""Tests of `read_samples` and `read_labels`: every format, and files that are refused."""

import functools
import io
import sys
import warnings

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import partwise
from partwise.io import Samples, from_anndata, keep_share, read_labels, read_samples, to_anndata
from partwise.io.datasets import tfidf, unit_rows
from partwise.io.genes import variable_genes
from partwise.io.label_files import read_links

WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour", "fish", "anchor"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm", "wing", "kite"],
}


@pytest.fixture(scope="session")
def pil():
    return pytest.importorskip("PIL.Image", reason="images need pillow")


@pytest.fixture(scope="session")
def pandas():
    return pytest.importorskip("pandas", reason="tables need pandas")


@pytest.fixture
def photos(pil, tmp_path, rng):
    """Write six dark and six light images of 6 x 4 pixels into two sub-folders."""
    folder = tmp_path / "photos"
    for number in range(12):
        place = folder / ("dark" if number % 2 else "light")
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 100, (6, 4)) + (0 if number % 2 else 155)
        pil.fromarray(pixels.astype(np.uint8)).save(place / f"{number:02d}.png")
    return folder


def sentences(n=40, seed=0):
    rng = np.random.default_rng(seed)
    topics = [list(WORDS)[i % 2] for i in range(n)]
    return [" ".join(rng.choice(WORDS[t], 6)) for t in topics], topics


# -- images ---------------------------------------------------------------------------------------


def test_images_are_rows_of_pixels(photos, pil):
    samples = read_samples(photos)
    assert samples.kind == "images" and samples.image_shape == (6, 4)
    assert samples.ids[0] == "dark/01.png" and len(samples.ids) == 12
    raw = np.stack([np.asarray(pil.open(photos / name)).ravel() for name in samples.ids])
    assert np.allclose(samples.X, unit_rows(raw.astype(float)))
    assert set(samples.y) == {"dark", "light"}
    png = samples.thumbnails(0)
    assert png.startswith(b"\x89PNG") and pil.open(io.BytesIO(png)).size == (4, 6)
    assert "6x4" in samples.preparation


def test_size_colour_and_depth(photos, pil):
    assert read_samples(photos, size=(3, 5)).X.shape == (12, 15)
    coloured = read_samples(photos, rgb=True)
    assert coloured.image_shape == (6, 4, 3) and coloured.X.shape == (12, 72)
    # Images of 16 bits keep their brightness instead of being clipped.
    deep = np.full((6, 4), 30_000, dtype=np.uint16)
    deep[0] = 60_000
    pil.fromarray(deep).save(photos / "deep.png")
    pil.new("RGBA", (4, 6), (0, 0, 0, 0)).save(photos / "clear.png")
    samples = read_samples(photos, scale="none")
    row = samples.X[samples.ids.index("deep.png")]
    assert row[0] == pytest.approx(60_000 / 65_535, abs=0.01)
    assert row[-1] == pytest.approx(30_000 / 65_535, abs=0.01)
    assert (samples.X[samples.ids.index("clear.png")] == 1).all()  # transparent pixels become white
    # The image is in no sub-folder, so it has no label.
    assert samples.y[samples.ids.index("deep.png")] is None


def test_rotated_photographs_are_turned_upright(tmp_path, pil):
    upright = np.zeros((6, 4), dtype=np.uint8)
    upright[0] = 255  # the first row is bright, so that rotations are detected
    pil.fromarray(upright).save(tmp_path / "a.png")
    # The same image, rotated, with its orientation in EXIF.
    turned = pil.fromarray(np.rot90(upright, -1))
    exif = pil.Exif()
    exif[0x0112] = 8
    turned.save(tmp_path / "b.png", exif=exif)
    samples = read_samples(tmp_path, scale="none")
    assert np.array_equal(samples.X[1].reshape(6, 4) * 255, upright)
    assert pil.open(io.BytesIO(samples.thumbnails(1))).size == (4, 6)
    assert samples.notes == ("1 of 2 images were turned upright, as their cameras noted.",)


def test_dropped_colours_are_said(tmp_path, pil):
    for name, colour in (("a", (200, 0, 0)), ("b", (10, 11, 12)), ("c", (0, 0, 250))):
        pil.new("RGB", (60, 60), colour).save(tmp_path / f"{name}.png")
    assert read_samples(tmp_path).notes == (
        "The colours of 2 of 3 images were dropped; --rgb keeps them.",
    )
    coloured = read_samples(tmp_path, rgb=True)
    # Thumbnails are WebP files, which are small.
    assert coloured.notes == () and coloured.thumbnails(0).startswith(b"RIFF")


def test_one_picture_or_text_where_a_model_knows_such(photos, tmp_path):
    seen = read_samples(photos)
    one = read_samples(photos / "dark" / "01.png", recipe=seen.recipe)
    assert one.ids == ["01.png"] and np.array_equal(one.X[0], seen.X[0])
    with pytest.raises(ValueError, match="folder"):
        read_samples(photos / "dark" / "01.png")


def test_large_images_are_shrunk(tmp_path, pil):
    for name in "ab":
        pil.new("L", (300, 150), 9).save(tmp_path / f"{name}.jpg")
    assert read_samples(tmp_path).image_shape == (45, 90)


def test_the_recipe_repeats_the_preparation(photos, tmp_path, pil):
    seen = read_samples(photos, size=(3, 2), rgb=True)
    more = tmp_path / "more"
    more.mkdir()
    pil.new("L", (50, 40), 7).save(more / "one.png")
    new = read_samples(more, recipe=seen.recipe)
    assert new.X.shape == (1, 18) and new.image_shape == (3, 2, 3)
    again = read_samples(photos, recipe=seen.recipe)
    assert np.array_equal(again.X, seen.X)


def test_other_files_are_noted_and_hidden_ones_ignored(photos):
    (photos / "readme.pdf").write_text("x")
    (photos / ".hidden.png").write_text("x")
    samples = read_samples(photos)
    assert samples.n_samples == 12 and "readme.pdf" in samples.notes[0]


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_unreadable_image(photos, content):
    (photos / "broken.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.png"):
        read_samples(photos, strict=True)


def test_truncated_image(photos):
    file = photos / "light" / "00.png"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"00\.png"):
        read_samples(photos, strict=True)


def test_mixed_sizes_ask_for_one(photos, pil):
    pil.new("L", (5, 5)).save(photos / "other.png")
    with pytest.raises(ValueError, match=r"--size 32"):
        read_samples(photos, strict=True)
    assert read_samples(photos, size=(6, 4)).n_samples == 13


def test_folders_without_or_with_too_much(tmp_path, photos):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="images"):
        read_samples(tmp_path / "empty")
    (photos / "a.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"12.*1.*--kind"):
        read_samples(photos, strict=True)
    assert read_samples(photos, kind="images").n_samples == 12


# -- texts ----------------------------------------------------------------------------------------


def test_texts_from_files_and_from_a_column(tmp_path, pandas):
    texts, topics = sentences()
    for number, (text, topic) in enumerate(zip(texts, topics)):
        (tmp_path / "notes" / topic).mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / topic / f"{number:02d}.txt").write_text(text, encoding="utf-8")
    files = read_samples(tmp_path / "notes")
    frame = pandas.DataFrame({"id": [f"n{i}" for i in range(40)], "body": texts, "t": topics})
    frame.to_csv(tmp_path / "notes.csv", index=False)
    column = read_samples(tmp_path / "notes.csv", text_column="body", label_column="t")
    assert files.kind == column.kind == "texts" and sp.issparse(column.X)
    order = [int(name[-6:-4]) for name in files.ids]
    assert np.allclose(files.X.toarray(), column.X[order].toarray())
    assert column.ids[3] == "n3" and column.y.tolist() == topics
    assert column.texts[0] == texts[0]
    # The weights equal those of `datasets.tfidf`, the tf-idf formula of the papers.
    counts = [[text.split().count(w) for w in column.feature_names] for text in texts]
    assert np.allclose(column.X.toarray(), tfidf(np.array(counts, dtype=float)))


def test_new_texts_get_the_old_words_and_weights(tmp_path):
    texts, _ = sentences()
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    seen = read_samples(tmp_path)
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.txt").write_text(texts[0] + " zeppelin")
    (more / "b.txt").write_text("zeppelin")
    new = read_samples(more, recipe=seen.recipe)
    first = seen.X[[seen.ids.index("0.txt")]]
    assert np.allclose(new.X[[0]].toarray(), first.toarray())
    assert new.X[[1]].sum() == 0 and "no word of the vocabulary" in new.notes[0]
    (more / "a.txt").unlink()
    with pytest.raises(ValueError, match="text"):
        read_samples(more, recipe=seen.recipe)


def test_empty_text(tmp_path):
    for name, text in (("a", "some words"), ("b", " \n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(ValueError, match=r"'b\.txt'"):
        read_samples(tmp_path, strict=True)


def test_texts_that_are_not_utf8_are_read_and_noted(tmp_path):
    (tmp_path / "a.txt").write_bytes("drei Bäume stehen".encode("latin-1"))
    (tmp_path / "b.txt").write_text("zwei Bäume liegen", encoding="utf-8-sig")
    samples = read_samples(tmp_path)
    assert "zwei" in samples.feature_names and "Latin-1" in samples.notes[0]


def test_texts_without_common_words(tmp_path):
    for number in range(25):
        (tmp_path / f"{number}.txt").write_text(f"word{number}")
    with pytest.raises(ValueError, match="few"):
        read_samples(tmp_path)


# -- tables ---------------------------------------------------------------------------------------


def table(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


GOOD = "id,a,b,name,kind\nx,1,2,one,p\ny,3,8,two,\nz,2,4,three,q\n"


def test_numbers_ids_and_labels(tmp_path, pandas):
    samples = read_samples(table(tmp_path, GOOD), label_column="kind")
    assert samples.ids == ["x", "y", "z"] and samples.feature_names == ["a", "b"]
    assert samples.y.tolist() == ["p", None, "q"]
    assert np.allclose(samples.X, np.array([[1, 2], [3, 8], [2, 4]]) / [3, 8])
    assert any("name" in note for note in samples.notes)  # a note lists the omitted columns
    assert samples.options == {"label_column": "kind"}
    by_name = read_samples(table(tmp_path, GOOD), id_column="name")
    assert by_name.ids == ["one", "two", "three"]
    new = read_samples(table(tmp_path, "id,b,a\nn,16,3\n", "n.csv"), recipe=samples.recipe)
    # Values are divided by the maxima of the training data, in their order of columns.
    assert np.allclose(new.X, [[1, 2]])


@pytest.mark.parametrize("suffix", ["tsv", "parquet"])
def test_other_tables_hold_the_same(tmp_path, pandas, suffix):
    first = read_samples(table(tmp_path, GOOD))
    frame = pandas.read_csv(tmp_path / "t.csv")
    path = tmp_path / f"t.{suffix}"
    if suffix == "tsv":
        frame.to_csv(path, sep="\t", index=False)
    else:
        pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
        frame.to_parquet(path)
    other = read_samples(path)
    assert np.array_equal(other.X, first.X) and other.ids == first.ids


def test_columns_are_scaled_by_their_range_or_as_asked(tmp_path, pandas):
    path = table(tmp_path, "a,b\n-1,2\n1,4\n-1,6\n1,8\n")
    samples = read_samples(path)
    assert samples.X[:, 0].tolist() == [0, 1, 0, 1] and "range" in samples.preparation
    samples = read_samples(path, scale="std")
    assert samples.X[:, 0].tolist() == [-1, 1, -1, 1] and "deviation" in samples.preparation
    assert samples.ids == ["0", "1", "2", "3"]


def test_missing_values(tmp_path, pandas):
    path = table(tmp_path, "a,b\n1,2\n,4\n5,6\n")
    with pytest.raises(ValueError, match=r"1.*'a'.*row 1"):
        read_samples(path, missing="error")
    filled = read_samples(path, missing="mean", scale="none")
    assert filled.X[:, 0].tolist() == [1, 3, 5] and "in 1 of 3 rows" in filled.notes[0]
    dropped = read_samples(path, missing="drop", scale="none")
    assert dropped.ids == ["0", "2"] and dropped.X[:, 0].tolist() == [1, 5]
    again = read_samples(table(tmp_path, "a,b\n,1\n", "n.csv"), recipe=filled.recipe)
    assert again.X.tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n1,2,3\n", {}, "line 3.*3.*2"),
        ("a,b\n1,2\n1\n", {}, "line 3.*1.*2"),
        ("", {}, "is empty"),
        ("a,b\n", {}, "rows"),
        ("a,a\n1,2\n3,4\n", {"id_column": "a"}, "'a'"),
        ("a,b\nx,y\nz,w\n", {}, "--text-column"),
        ("a,b\n1,2\n3,4\n", {"columns": ["c"]}, "'c'.*--columns"),
        ("a,b\n1,2\n3,4\n", {"exclude": ["a", "b"]}, "column"),
        ("a,b\n1,2\n3,4\n", {"label_column": "c"}, "'c'.*--label-column.*a, b"),
        ("a,b\n1,2\n3,4\n", {"id_column": "c"}, "no column 'c'"),
        ("a,b\n1,2\n3,4\n", {"text_column": "c"}, "no column 'c'"),
        ("a,b\n1,2\n1,4\n", {"id_column": "a"}, "'1'"),
        ("a,b\n1,2\n2,inf\n3,1\n", {"missing": "error"}, "1"),
        ("a,b\n1,2\n", {}, "a single sample"),
        (
            "t,b\nhello you,2\n,3\n",
            {"text_column": "t", "missing": "error"},
            "'1'",
        ),
    ],
)
def test_bad_tables(tmp_path, pandas, text, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read_samples(table(tmp_path, text), **options)
    assert "\n" not in str(error.value)


def test_a_table_that_is_no_text(tmp_path, pandas):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n\xff\x00\x01\x02\x81,1\n")
    with pytest.raises(ValueError, match="--encoding"):
        read_samples(path)
    path.write_bytes("a,b\nä,1\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"utf-8.*--encoding"):
        read_samples(path, encoding="utf8")
    with pytest.raises(ValueError, match="encoding='klingon'"):
        read_samples(path, encoding="klingon")


def test_new_tables_that_do_not_fit(tmp_path, pandas):
    recipe = read_samples(table(tmp_path, "a,b\n1,2\n3,4\n")).recipe
    with pytest.raises(ValueError, match=r"column.*b"):
        read_samples(table(tmp_path, "a,c\n1,2\n3,4\n"), recipe=recipe)
    with pytest.raises(ValueError, match="'b' has 'x'"):
        read_samples(table(tmp_path, "a,b\n1,x\n3,y\n"), recipe=recipe)


# -- matrices -------------------------------------------------------------------------------------


def test_matrix_files_hold_the_same(tmp_path, rng):
    X = rng.random((8, 6))
    y = np.arange(8) % 2
    np.save(tmp_path / "m.npy", X)
    np.savez(tmp_path / "m.npz", X=X, y=y)
    scipy.io.savemat(tmp_path / "m.mat", {"fea": X, "gnd": y[:, None] + 1})
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(X))
    scipy.io.mmwrite(tmp_path / "turned.mtx", sp.coo_array(X.T))
    for name in ("m.npy", "m.npz", "m.mat", "m.mtx"):
        samples = read_samples(tmp_path / name)
        dense = samples.X.toarray() if samples.is_sparse else samples.X
        assert np.allclose(dense, unit_rows(X)), name
        assert samples.ids[:2] == ["0", "1"]
    assert read_samples(tmp_path / "m.npz").y.tolist() == [str(v) for v in y]
    assert read_samples(tmp_path / "m.mat").y.tolist() == [str(v + 1) for v in y]
    turned = read_samples(tmp_path / "turned.mtx", transpose=True)
    assert np.allclose(turned.X.toarray(), unit_rows(X))


def test_counts_are_recognised_and_scaled_to_one_depth(tmp_path, rng):
    counts = sp.csr_array(rng.poisson(1.0, (20, 7)) * rng.integers(1, 4, (20, 1)))
    sp.save_npz(tmp_path / "c.npz", counts)
    samples = read_samples(tmp_path / "c.npz")
    assert samples.kind == "counts"
    totals = samples.X.sum(axis=1)
    assert np.allclose(totals, np.median(counts.sum(axis=1)))
    raw = read_samples(tmp_path / "c.npz", scale="none")
    assert (raw.X != counts).nnz == 0


def test_stacks_of_images(tmp_path, rng):
    np.save(tmp_path / "s.npy", rng.random((5, 4, 3)))
    samples = read_samples(tmp_path / "s.npy")
    assert samples.image_shape == (4, 3) and samples.thumbnails(2).startswith(b"\x89PNG")
    np.save(tmp_path / "s.npy", rng.random((5, 4, 3, 3)))
    assert read_samples(tmp_path / "s.npy").image_shape == (4, 3, 3)
    np.save(tmp_path / "s.npy", rng.random((5, 12)))
    assert read_samples(tmp_path / "s.npy", image_shape=(4, 3)).kind == "images"
    with pytest.raises(ValueError, match=r"4x4.*16.*12"):
        read_samples(tmp_path / "s.npy", image_shape=(4, 4))


def test_known_sets_by_name_are_upright(digits):
    samples = read_samples("digits", scale="none")
    assert np.array_equal(samples.X[0].reshape(8, 8), digits.images(digits.X[:1])[0])


def test_images_of_matlab_are_upright(tmp_path, rng):
    """Check that images of a .mat file are upright, given --image-shape.

    The field fea stores the pixels of an image by columns.
    """
    pictures = rng.random((5, 4, 3))
    scipy.io.savemat(tmp_path / "m.mat", {"fea": pictures.transpose(0, 2, 1).reshape(5, 12)})
    samples = read_samples(tmp_path / "m.mat", image_shape=(4, 3), scale="none")
    assert np.allclose(samples.X.reshape(5, 4, 3), pictures)
    assert "--image-order rows" in samples.notes[0]
    asked = read_samples(tmp_path / "m.mat", image_shape=(4, 3), image_order="rows", scale="none")
    assert not np.allclose(asked.X, samples.X) and asked.notes == ()
    np.save(tmp_path / "m.npy", pictures.transpose(0, 2, 1).reshape(5, 12))
    told = read_samples(tmp_path / "m.npy", image_shape=(4, 3), image_order="columns", scale="none")
    assert np.allclose(told.X, samples.X)


def test_columnwise_images_are_turned(dataset):
    faces = dataset("orl")
    samples = read_samples(faces.source, scale="none")
    assert np.array_equal(samples.X[0].reshape(32, 32), faces.images(faces.X[:1])[0])


@pytest.mark.parametrize("name", ["m.npy", "m.npz", "m.mat", "m.mtx", "m.h5ad", "m.parquet"])
def test_damaged_matrices(tmp_path, name):
    if name == "m.h5ad":
        pytest.importorskip("anndata", reason=".h5ad needs anndata")
    if name == "m.parquet":
        pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
    (tmp_path / name).write_bytes(b"hello")
    with pytest.raises(ValueError, match=name):
        read_samples(tmp_path / name)


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "m.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"\.npy"):
        read_samples(tmp_path / "m.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1.0, np.nan]] * 2), "finite"),
        (np.array([["a", "b"]] * 2), "real numbers"),
        (np.zeros((0, 3)), "non-empty"),
        (np.zeros(3), "2-D"),
        (np.zeros((2, 3, 4, 2)), "images"),
    ],
)
def test_bad_arrays(tmp_path, array, message):
    np.save(tmp_path / "m.npy", array)
    with pytest.raises(ValueError, match=message):
        read_samples(tmp_path / "m.npy")


def test_unknown_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        read_samples(tmp_path / "gone.csv")
    (tmp_path / "a.exe").write_text("x")
    with pytest.raises(ValueError, match=r"\.csv"):
        read_samples(tmp_path / "a.exe")
    with pytest.raises(ValueError, match="scale='huge'"):
        read_samples("digits", scale="huge")


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("PIL.Image", "p", "pillow: pip install pillow"),
        ("pandas", "t.csv", "pandas: pip install pandas"),
        ("anndata", "c.h5ad", r"anndata: pip install 'partwise\[cells\]'"),
        ("pyarrow", "t.parquet", r"pyarrow: pip install 'partwise\[parquet\]'"),
    ],
)
def test_a_missing_package_says_how_to_get_it(tmp_path, monkeypatch, module, name, line):
    if name == "p":
        (tmp_path / "p").mkdir()
        (tmp_path / "p" / "a.png").write_bytes(b"x")
    else:
        (tmp_path / name).write_text("a,b\n1,2\n")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs {line}"):
        read_samples(tmp_path / name)


# -- labels ---------------------------------------------------------------------------------------

IDS = ["a/1.png", "a/2.png", "b/1.png", "b/3.png"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,label\na/1.png,x\nb/3.png,y\n", ["x", None, None, "y"]),
        ("a/1.png,x\nb/3.png,y\n", ["x", None, None, "y"]),
        ("file,what\n2.png,x\n3,y\n", [None, "x", None, "y"]),
        ("label,who,id\nx,me,2.png\n,me,3.png\n", [None, "x", None, None]),
        ("id,class\n2.png,x\n", [None, "x", None, None]),
        ("name,label\n2.png,x\n", [None, "x", None, None]),
        ("id,label\n2.png,x\na/2.png,x\n\n", [None, "x", None, None]),
    ],
    ids=["heading", "no heading", "short names", "other columns", "no label", "no id", "twice"],
)
def test_labels_by_id(tmp_path, text, expected):
    assert read_labels(table(tmp_path, text), IDS).tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,label\na/1.png,x\nb/33.png,x\nd,y\n",
            r"line 3.*'b/33\.png'.*2 of .*3.*4.*'b/3\.png'.*--skip-unknown",
        ),
        ("id,label\nzzz,x\n", r"line 2.*'zzz'.*'a/1\.png'"),
        ("id,label\n1.png,x\n", "folder"),
        (
            "id,label\n2.png,Block 2\nb/3.png,block2\n",
            r"'Block 2' \(1\) and 'block2' \(1\)",
        ),
        ("id,label\n2.png,-1\nb/3.png,cat\n", "'-1'"),
        ("id,label\n2.png,x\na/2.png,y\n", "'x' and 'y'"),
        ("id,label\n2.png\n", "line 2.*1.*2"),
        ("id,label\n2.png,\n", "label"),
        ("", "is empty"),
    ],
)
def test_bad_labels(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_labels(table(tmp_path, text), IDS)


def test_labels_files_that_are_told_what_to_do(tmp_path):
    text = "id;label\na/1.png;Block 2\nnowhere;x\na/2.png;block2\nb/3.png;block2\n"
    path = tmp_path / "l.csv"
    path.write_bytes(text.replace("x", "ä").encode("cp1252"))  # the encoding of German spreadsheets
    y = read_labels(path, IDS, skip_unknown=True, similar="merge")
    assert y.tolist() == ["block2", "block2", None, "block2"]
    assert "Block 2" in read_labels(path, IDS, skip_unknown=True, similar="keep").tolist()
    (tmp_path / "bad.csv").write_text("id,label\nx,a\ny,b\n")
    # If no name fits, the column does not contain ids.
    with pytest.raises(ValueError, match=r"2.*2"):
        read_labels(tmp_path / "bad.csv", IDS, skip_unknown=True)


@pytest.mark.parametrize("heading", ["", "one,other,kind\n"])
def test_links_by_id(tmp_path, heading):
    text = heading + "a/1.png,2.png,must\nb/1.png,3,Cannot\na/2.png,b/3.png,cannot\n"
    found = read_links(table(tmp_path, text), IDS)
    assert found == {"must_link": [(0, 1)], "cannot_link": [(2, 3), (1, 3)]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.png,3,must\n2.png,3,perhaps\n", "line 2.*'2.png,3,perhaps'"),
        ("2.png,3,must\n2.png,must\n", "line 2.*'2.png,must'"),
        ("2.png,3,x,must\n", "line 1.*'2.png,3,x,must'"),
        ("2.png,3,must\n2.png,9.png,must\n", "line 2.*'9.png'"),
        ("9.png,2.png,must\n", "line 1.*'9.png'"),
        ("one,other,kind\n", "link"),
    ],
)
def test_bad_links(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_links(table(tmp_path, text), IDS)


def test_keep_share_keeps_at_least_one_a_class():
    y = np.array(["a"] * 50 + ["b"] * 3 + [None] * 5, dtype=object)
    kept = keep_share(y, 0.1, random_state=3)
    assert (kept == "a").sum() == 5 and (kept == "b").sum() == 1
    assert all(k is None or k == v for k, v in zip(kept, y))
    assert np.array_equal(kept, keep_share(y, 0.1, random_state=3))
    assert np.array_equal(keep_share(y, 1.0), y)
    with pytest.raises(ValueError, match="label_share"):
        keep_share(y, 0)


def test_keep_share_is_the_nearest_number():
    """Check that `keep_share` rounds the number of labels to keep.

    It keeps 3 of 3 labels for a share of 0.9, and 2 of 10 for a share of 0.24.
    """
    y = np.array(["a"] * 3 + ["b"] * 10, dtype=object)
    assert (keep_share(y, 0.9) == "a").sum() == 3
    assert (keep_share(y, 0.24) == "b").sum() == 2
    assert (keep_share(y, 0.26) == "b").sum() == 3


def test_a_whole_name_is_meant_before_one_without_suffix(tmp_path):
    """Check that an id matches a whole file name before a file name without its suffix."""
    ids = ["a/one.png.txt", "b/one.png", "c/two.txt"]
    text = "id,label\none.png,x\none.png.txt,y\ntwo,z\n"
    assert read_labels(table(tmp_path, text), ids).tolist() == ["y", "x", "z"]


def test_samples_check_themselves():
    with pytest.raises(ValueError, match=r"ids.*1"):
        Samples(np.ones((2, 2)), ["a"], "table")
    with pytest.raises(ValueError, match="'a'"):
        Samples(np.ones((2, 2)), ["a", "a"], "table")


# -- AnnData --------------------------------------------------------------------------------------


@pytest.fixture
def adata(rng):
    anndata = pytest.importorskip("anndata", reason="AnnData needs anndata")
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame(
        {"type": pandas.Categorical(["t", "b"] * 9 + [None, "b"])},
        index=[f"cell{i}" for i in range(20)],
    )
    var = pandas.DataFrame(index=[f"gene{j}" for j in range(6)])
    X = sp.csr_matrix(rng.poisson(2.0, (20, 6)).astype(np.float32))
    found = anndata.AnnData(X, obs=obs, var=var)
    found.layers["log"] = X.log1p()
    return found


def test_anndata_in_and_out(adata):
    from partwise import GNMF

    samples = from_anndata(adata, label_key="type")
    assert samples.kind == "counts" and samples.y[18] is None and samples.y[0] == "t"
    assert samples.ids[1] == "cell1" and samples.feature_names[5] == "gene5"
    assert from_anndata(adata, layer="log").kind == "table"
    model = GNMF(2, random_state=0, max_iter=30, tol=0).fit(samples.X, samples.y)
    assert to_anndata(adata, model) is adata
    assert np.array_equal(adata.obsm["X_partwise"], model.embedding_)
    assert np.array_equal(adata.varm["partwise_parts"], model.components_.T)
    assert list(adata.obs["partwise"]) == [str(name) for name in model.labels_]
    for bad, message in (({"label_key": "x"}, "no column 'x'"), ({"layer": "x"}, "no layer 'x'")):
        with pytest.raises(ValueError, match=message):
            from_anndata(adata, **bad)
    with pytest.raises(ValueError, match=r"adata.*\b10\b"):
        to_anndata(adata[:10].copy(), model)


def test_h5ad(adata, tmp_path):
    adata.write_h5ad(tmp_path / "c.h5ad")
    samples = read_samples(tmp_path / "c.h5ad", label_column="type")
    assert samples.ids[0] == "cell0" and samples.y[1] == "b"
    counts = adata.X.toarray()
    normal = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    assert np.allclose(samples.X.toarray(), unit_rows(normal), rtol=1e-5)
    raw = read_samples(tmp_path / "c.h5ad", scale="total")
    assert raw.kind == "counts"
    assert np.allclose(raw.X.sum(axis=1), np.median(counts.sum(axis=1)), rtol=1e-5)
    log = read_samples(tmp_path / "c.h5ad", layer="log", scale="none")
    assert np.allclose(log.X.toarray(), np.log1p(counts), rtol=1e-5)
    with pytest.raises(ValueError, match=r"'x'.*log"):
        read_samples(tmp_path / "c.h5ad", layer="x")


def test_variable_genes_are_those_of_the_naive_residuals(rng):
    counts = rng.poisson(1.5, (80, 30)) * rng.integers(1, 4, (80, 1))
    counts[:40, [3, 17]] += rng.poisson(6, (40, 2))
    n = len(counts)
    mu = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    residual = np.clip((counts - mu) / np.sqrt(mu + mu**2 / 100), -np.sqrt(n), np.sqrt(n))
    naive = (residual**2).sum(axis=0)
    expected = np.sort(np.argsort(-naive)[:5])
    assert {3, 17} <= set(expected)
    assert np.array_equal(variable_genes(sp.csr_array(counts), 5), expected)
    assert np.array_equal(variable_genes(counts, 99), np.arange(30))


def test_cells_by_their_most_variable_genes_and_back(adata, tmp_path):
    from partwise import GNMF
    from partwise.io.anndata_files import write_back

    path = tmp_path / "c.h5ad"
    adata.write_h5ad(path)
    samples = read_samples(path, genes=4)
    assert samples.X.shape == (20, 4) and "4 most variable genes" in samples.preparation
    new = adata[:3, ::-1].copy()  # other cells, with genes in another order
    new.write_h5ad(tmp_path / "n.h5ad")
    again = read_samples(tmp_path / "n.h5ad", recipe=samples.recipe)
    assert again.feature_names == samples.feature_names
    # Counts are scaled to the depth over the kept genes, so the rows agree with those of the fit.
    assert np.allclose(again.X.toarray(), samples.X[:3].toarray(), rtol=1e-5)
    gone = samples.feature_names[0]
    adata[:, adata.var_names != gone].copy().write_h5ad(tmp_path / "g.h5ad")
    with pytest.raises(ValueError, match=rf"1.*4.*\b{gone}\b"):
        read_samples(tmp_path / "g.h5ad", recipe=samples.recipe)
    model = GNMF(2, random_state=0, max_iter=30, tol=0).fit(samples.X)
    write_back(str(path), model, samples.feature_names)
    import anndata

    back = anndata.read_h5ad(path)
    assert np.allclose(back.obsm["X_partwise"], model.embedding_)
    used = back.var["partwise_used"].to_numpy()
    assert used.sum() == 4 and np.isnan(back.varm["partwise_parts"][~used]).all()
    assert np.allclose(back.varm["partwise_parts"][used], model.components_.T)
    assert set(back.uns["partwise"]["markers"]["part 1"]) <= set(samples.feature_names)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c.h5ad", "g.h5ad", "n.h5ad"]


@pytest.mark.parametrize(
    ("package", "name", "suffix"),
    [
        ("scipy.io", "mmread", ".mtx"),
        ("scipy.io", "loadmat", ".mat"),
        ("anndata", "read_h5ad", ".h5ad"),
        ("pandas", "read_parquet", ".parquet"),
        ("PIL.ImageOps", "exif_transpose", ".png"),
        ("json", "loads", ".partwise"),
    ],
)
def test_a_warning_of_a_package_does_not_make_a_file_damaged(
    tmp_path, monkeypatch, package, name, suffix
):
    """Check that a file is not reported as damaged if a package warns and warnings are errors."""
    module = pytest.importorskip(package)
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
    path = tmp_path / f"x{suffix}"
    matrix = sp.csr_array(np.arange(12.0).reshape(4, 3))
    if suffix == ".mtx":
        module.mmwrite(path, matrix)
    elif suffix == ".mat":
        module.savemat(path, {"fea": matrix.toarray()})
    elif suffix == ".h5ad":
        adata = module.AnnData(matrix.toarray())
        adata.raw = adata  # without .raw, the file would be read with h5py
        adata.write_h5ad(path)
    elif suffix == ".parquet":
        module.DataFrame(matrix.toarray(), columns=list("abc")).to_parquet(path)
    elif suffix == ".png":
        pytest.importorskip("PIL.Image").new("L", (4, 3), 7).save(path)
        pytest.importorskip("PIL.Image").new("L", (4, 3), 9).save(tmp_path / "y.png")
    else:
        partwise.NMF(2, max_iter=3, tol=0).fit(matrix).save(path)
    read = partwise.load if suffix == ".partwise" else read_samples
    path = tmp_path if suffix == ".png" else path
    true = getattr(module, name)

    @functools.wraps(true)
    def announced(*given, **options):
        warnings.warn("the next version will do it otherwise", DeprecationWarning, stacklevel=2)
        return true(*given, **options)

    monkeypatch.setattr(module, name, announced)
    with pytest.raises(DeprecationWarning, match="otherwise"):
        read(path)
    with pytest.warns(DeprecationWarning, match="otherwise"):
        read(path)
