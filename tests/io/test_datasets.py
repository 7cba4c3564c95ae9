"""Tests of data sets: loading by name, damaged files, and preparation."""

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
import sklearn.datasets
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from partwise.io import datasets
from partwise.io.datasets.catalogue import CATALOGUE, canonical


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty data folder, without the variable PARTWISE_DATA and without a user cache."""
    monkeypatch.delenv("PARTWISE_DATA", raising=False)
    monkeypatch.setattr("partwise.io.datasets.loading.user_cache", lambda: tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


X = np.arange(12.0).reshape(4, 3)
LABELS = np.array([1, 1, 2, 2], dtype=np.int16)


# Tests of the real data files, which run only where these files exist.


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("orl", (400, 1024), 40),
        ("yale", (165, 1024), 15),
        ("coil20", (1440, 1024), 20),
        ("pie", (2856, 1024), 68),
        ("tdt2", (9394, 36771), 30),
        ("news20", (18846, 26214), 20),
        ("lfw", (2877, 1024), 59),
        ("cbcl", (2429, 361), None),
        ("bbc", (2225, 9635), 5),
        ("samson", (9025, 156), None),
        ("worm", (4186, 13488), 10),
        ("piano", (673, 513), None),
        ("leukemia", (38, 5000), 3),
    ],
)
def test_real_set(dataset, name, shape, classes):
    got = dataset(name)
    assert (got.name, got.X.shape, got.X.dtype) == (name, shape, np.float64)
    assert got.description == CATALOGUE[name].description
    assert got.X.min() >= 0
    if classes is None:
        assert got.y is None and got.class_names is None
    else:
        assert np.array_equal(np.unique(got.y), np.arange(classes))
        assert len(got.class_names) == classes
    if got.image_shape:
        assert np.prod(got.image_shape) == shape[1]


def test_real_set_keeps_what_else_the_file_holds(dataset):
    assert dataset("samson").extra["abundances"].shape == (9025, 3)
    assert dataset("bbc").class_names == ("business", "entertainment", "politics", "sport", "tech")
    assert len(dataset("bbc").terms) == 9635
    assert dataset("leukemia").class_names[2] == "AML"
    # The file stores means of 4 x 4 grey values, so all values are multiples of 1/4080 = 1/(255 ·
    # 16).
    grey = dataset("coil20").X * 4080
    assert np.allclose(grey, np.round(grey), atol=1e-9)


def test_digits_need_no_file(home):
    got = datasets.load("Digits")
    assert got.X.shape == (1797, 64) and got.y.shape == (1797,)
    raw = sklearn.datasets.load_digits()
    assert np.array_equal(got.images(got.X[:5]), raw.images[:5])


# Tests of finding the file of a data set.


@pytest.mark.parametrize(
    ("spelling", "file"),
    [
        ("orl", "orl_32x32.npz"),
        ("ORL", "ORL_32x32.npz"),
        ("ORL_32x32.mat", "orl_32x32.npz"),
        ("pie", "PIE_pose27.npz"),
        ("pie-pose27", "pie.npz"),
        ("tdt2", "TDT2.npz"),
        ("20Newsgroups", "news20.npz"),
        ("caltech101", "Caltech101.npz"),
        ("my-own", "My-Own.npz"),
    ],
)
def test_names_and_files_under_which_a_set_is_known(home, spelling, file):
    np.savez(home / file, X=X, y=LABELS)
    got = datasets.load(spelling, data_home=home)
    assert got.name == canonical(spelling)
    assert got.source == str(home / file)
    assert got.image_shape is None  # three features are not the pixels of a 32x32 image


def test_order_of_places(home, tmp_path, monkeypatch):
    for place, value in [("data", 1), ("env", 2), ("cache", 3)]:
        (tmp_path / place).mkdir(exist_ok=True)
        np.savez(tmp_path / place / "orl_32x32.npz", X=X * value)
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path / "env"))
    assert np.array_equal(datasets.load("orl", data_home=home).X, X)
    assert np.array_equal(datasets.load("orl").X, X * 2)
    monkeypatch.delenv("PARTWISE_DATA")
    assert np.array_equal(datasets.load("orl").X, X * 3)


def test_available_lists_all_and_finds_what_is_there(home):
    np.savez(home / "yale.npz", X=X)
    found = datasets.available(home)
    assert list(found) == list(CATALOGUE)
    assert {name for name, where in found.items() if where} == {"digits", "yale"}
    assert found["yale"] == str(home / "yale.npz")


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "digits"])
def test_missing_set_says_where_to_get_it_and_where_to_put_it(home, name):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name, data_home=home)
    message = str(error.value)
    for part in (str(home), CATALOGUE[name].get_from, CATALOGUE[name].stems[0], "PARTWISE_DATA"):
        assert part in message
    assert ("download=True" in message) == (name in {"orl", "lfw", "news20"})


def test_unknown_name_lists_the_known_ones(home):
    with pytest.raises(FileNotFoundError, match=r"(?s)digits, orl, .*nothing\.npz"):
        datasets.load("nothing", data_home=home)
    with pytest.raises(ValueError, match=r"datasets\.read"):
        datasets.load("../elsewhere/orl.npz", data_home=home)


@pytest.mark.parametrize(
    "variable", [{"XDG_CACHE_HOME": "caches"}, {"XDG_CACHE_HOME": ""}], ids=["set", "empty"]
)
def test_user_cache(monkeypatch, variable, tmp_path):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    for key, value in variable.items():
        monkeypatch.setenv(key, str(tmp_path / value) if value else "")
    folder = "caches" if variable["XDG_CACHE_HOME"] else ".cache"
    assert datasets.user_cache() == tmp_path / folder / "partwise"


# Tests of downloads. They replace the download functions, because tests must not use the network.


def test_download_olivetti(home, monkeypatch, rng):
    images = rng.random((4, 64, 64)).astype(np.float32)
    monkeypatch.setattr(
        sklearn.datasets,
        "fetch_olivetti_faces",
        lambda: SimpleNamespace(images=images, target=np.array([0, 0, 1, 1])),
    )
    got = datasets.load("orl", data_home=home, download=True)
    assert got.X.shape == (4, 1024)
    corner = 255 * images[2, 2:4, 0:2].mean()  # row 1, column 0 of the reduced image
    assert got.images(got.X)[2, 1, 0] == pytest.approx(corner)
    assert "Olivetti" in got.description


def test_download_lfw(home, monkeypatch, rng):
    images = rng.random((3, 32, 32)).astype(np.float32)
    asked = {}

    def fetch(**settings):
        asked.update(settings)
        return SimpleNamespace(
            images=images, target=np.array([0, 1, 1]), target_names=np.array(["Ann", "Bo"])
        )

    monkeypatch.setattr(sklearn.datasets, "fetch_lfw_people", fetch)
    got = datasets.load("lfw", data_home=home, download=True)
    assert asked["min_faces_per_person"] == 20
    assert np.allclose(got.images(got.X), images * 255.0)
    assert got.class_names == ("Ann", "Bo")


def test_download_newsgroups(home, monkeypatch):
    counts = sparse.csr_matrix(np.array([[1, 0, 2], [0, 3, 0]]))
    answer = SimpleNamespace(
        data=counts,
        target=np.array([0, 1]),
        target_names=["a", "b"],
        feature_names=np.array(["x", "y", "z"]),
    )
    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups_vectorized", lambda **_: answer)
    got = datasets.load("news20", data_home=home, download=True)
    assert np.array_equal(got.X.toarray(), counts.toarray())
    assert got.X.dtype == np.float64 and list(got.terms) == ["x", "y", "z"]


def test_a_file_is_preferred_to_a_download(home, monkeypatch):
    # A call would raise an error.
    monkeypatch.setattr(sklearn.datasets, "fetch_olivetti_faces", None)
    np.savez(home / "orl_32x32.npz", X=X)
    assert np.array_equal(datasets.load("orl", data_home=home, download=True).X, X)


def test_no_download_for_a_set_that_scikit_learn_lacks(home):
    with pytest.raises(FileNotFoundError, match="'yale'"):
        datasets.load("yale", data_home=home, download=True)


# Tests of reading .npz and .mat files.


def test_npz_dense_with_scale_and_names(home):
    path = home / "a.npz"
    np.savez(path, X=(X * 8).astype(np.uint16), scale=8.0, y=LABELS, class_names=["cat", "dog"])
    got = datasets.read(path)
    assert np.array_equal(got.X, X) and got.X.dtype == np.float64
    assert [got.class_names[code] for code in got.y] == ["cat", "cat", "dog", "dog"]


def test_npz_sparse_with_narrow_indices(home):
    path = home / "a.npz"
    csr = sparse.csr_array(X)
    np.savez(
        path,
        data=csr.data.astype(np.uint8),
        indices=csr.indices.astype(np.uint16),
        indptr=csr.indptr,
        shape=csr.shape,
        terms=["a", "b", "c"],
    )
    got = datasets.read(path)
    assert isinstance(got.X, sparse.csr_array) and got.X.dtype == np.float64
    assert np.array_equal(got.X.toarray(), X)
    assert list(got.terms) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_npz_as_scipy_writes_it(home, kind):
    sparse.save_npz(home / "a.npz", kind(X))
    assert np.array_equal(datasets.read(home / "a.npz").X.toarray(), X)


@pytest.mark.parametrize("make", [np.asarray, sparse.csc_array], ids=["dense", "sparse"])
def test_mat_of_deng_cai(home, make):
    path = home / "ORL_32x32.mat"
    scipy.io.savemat(path, {"fea": make(X), "gnd": LABELS[:, None]})
    got = datasets.load("orl", data_home=home)
    dense = got.X.toarray() if sparse.issparse(got.X) else got.X
    assert np.array_equal(dense, X)
    assert np.array_equal(got.y, [0, 0, 1, 1]) and got.class_names == ("1", "2")


def test_images_stored_by_column_come_out_upright(home, rng):
    image = rng.random((32, 32))
    np.savez(home / "orl.npz", X=image.ravel(order="F")[None, :])
    got = datasets.load("orl", data_home=home)
    assert np.array_equal(got.images(got.X)[0], image)
    with pytest.raises(ValueError, match=r"32 x 32.*1024.*3"):
        got.images(np.ones(3))


def write_npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def write_bytes(content):
    return lambda path: path.write_bytes(content)


def write_cut(path):
    """Write the first half of a valid file."""
    np.savez_compressed(path, X=np.random.default_rng(0).random((50, 50)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_flipped(path):
    """Write a valid file with 40 damaged bytes in the middle."""
    np.savez_compressed(path, X=np.random.default_rng(0).random((50, 50)))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    path.write_bytes(content)


def write_single_array(path):
    with path.open("wb") as file:
        np.save(file, X)


CSR = {"data": [1, 2], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 2]}


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (write_bytes(b""), "damaged"),
        (write_bytes(b"not an archive"), "damaged"),
        (write_bytes(b"PK\x03\x04 nor is this"), "damaged"),
        (write_cut, "damaged"),
        (write_flipped, "damaged"),
        (write_single_array, "single array"),
        (write_npz(), "needs X, or data"),
        (write_npz(Y=X), "Y"),
        (write_npz(X=X[0]), r"2-D array, got shape \(3,\)"),
        (write_npz(X=X[:0]), "non-empty"),
        (write_npz(X=X.astype(str)), "real numbers"),
        (write_npz(X=X + 1j), "real numbers"),
        (write_npz(X=np.array([[1, None]], dtype=object)), "allow_pickle=False"),
        (write_npz(X=X * np.nan), "finite"),
        (write_npz(X=X, y=LABELS[:3]), r"4 samples but labels of shape \(3,\)"),
        (write_npz(X=X, y=LABELS * np.nan), "missing"),
        (write_npz(X=X, terms=["a"]), "3 features but terms"),
        (write_npz(indptr=[0, 1]), "also needs data, indices, shape"),
        (write_npz(**CSR | {"indices": [0, 7]}), "ind"),
        (write_npz(**CSR | {"indptr": [0, 1, 9]}), "ind"),
        (write_npz(**CSR, format=b"bsr"), "bsr"),
    ],
)
def test_bad_npz_is_one_line_that_names_the_file(home, write, reason):
    path = home / "bad.npz"
    write(path)
    with pytest.raises(ValueError, match=reason) as error:
        datasets.read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def write_mat(**arrays):
    return lambda path: scipy.io.savemat(path, arrays)


def write_mat_cut(path):
    scipy.io.savemat(path, {"fea": np.random.default_rng(0).random((50, 50))}, do_compression=True)
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [0, 8, 10, 11, 14, 15, 19, 20, 50, 200, 1000, 60_000])
def test_an_undefined_type_of_mat_is_refused(home, kind, compressed):
    """Check that a .mat file with an undefined data type is refused.

    scipy 1.17.1 would end the process with a segmentation fault for each of these types.
    """
    path = home / "bad.mat"
    scipy.io.savemat(path, {"fea": np.arange(12.0).reshape(3, 4)})
    content = bytearray(path.read_bytes())
    at = content.index(b"\x09\0\0\0\x60\0\0\0")  # the header of 12 numbers in double precision
    content[at : at + 4] = kind.to_bytes(4, "little")
    if compressed:
        packed = zlib.compress(bytes(content[128:]))
        content[128:] = b"\x0f\0\0\0" + len(packed).to_bytes(4, "little") + packed
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.mat"):
        datasets.read(path)


HEADER_73 = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n".rjust(400)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (write_bytes(b""), "damaged"),
        (write_bytes(b"not MATLAB" * 30), "damaged"),
        (write_bytes(HEADER_73), "7.3.*-v7"),
        (write_mat_cut, "damaged"),
        (write_mat(A=X), "needs fea.*it holds A"),
        (write_mat(fea=X, gnd=[1, 2]), "labels of shape"),
        (write_mat(fea=np.array([[1, "a"]], dtype=object)), "real numbers"),
    ],
)
def test_bad_mat_is_one_line_that_names_the_file(home, write, reason):
    path = home / "bad.mat"
    write(path)
    with pytest.raises(ValueError, match=reason) as error:
        datasets.read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_read_other_suffix_and_missing_file(home):
    with pytest.raises(ValueError, match=r"\.npz.*\.mat"):
        datasets.read(home / "table.csv")
    with pytest.raises(FileNotFoundError):
        datasets.read(home / "gone.npz")


# Tests of unit rows, tf-idf weights, and the choice of labels to keep.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.array, sparse.csr_array, sparse.csr_matrix])
def test_unit_rows(make, dtype):
    rows = np.array([[3, 4, 0], [0, 0, 0], [0, 0, 2]], dtype=dtype)
    before = make(rows)
    got = datasets.unit_rows(before)
    dense = got.toarray() if sparse.issparse(got) else got
    assert np.allclose(dense, [[0.6, 0.8, 0], [0, 0, 0], [0, 0, 1]])
    assert got.dtype == dtype
    assert np.array_equal(before.toarray() if sparse.issparse(before) else before, rows)


@pytest.mark.parametrize("make", [np.array, sparse.csr_array, sparse.csc_array])
def test_tfidf_is_the_formula(make, rng):
    counts = rng.poisson(0.7, size=(30, 20)).astype(float)
    counts[4] = 0  # an empty document
    counts[:, 5] = 0  # a word in no document
    counts[:, 6] = 2  # a word in every document except the empty one
    counts[4, 6] = 0
    got = datasets.tfidf(make(counts))
    assert sparse.issparse(got) == (make is not np.array)

    df = np.maximum((counts > 0).sum(axis=0), 1)
    with np.errstate(divide="ignore"):
        expected = np.where(counts > 0, 1 + np.log(counts), 0) * np.log(30 / df)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected /= np.where(lengths == 0, 1, lengths)
    assert np.allclose(got.toarray() if sparse.issparse(got) else got, expected, atol=1e-14)


def test_tfidf_beside_scikit_learn(rng):
    # The unsmoothed idf of scikit-learn is log(N/df) + 1; the tf-idf of Partwise has no + 1.
    counts = sparse.csr_array(rng.poisson(1.0, size=(40, 15)).astype(float))
    theirs = TfidfTransformer(sublinear_tf=True, smooth_idf=False, norm=None).fit(counts)
    weights = theirs.transform(counts).toarray()
    ours = weights * ((theirs.idf_ - 1) / theirs.idf_)
    assert np.allclose(datasets.tfidf(counts).toarray(), datasets.unit_rows(ours))


@pytest.mark.parametrize("value", [-1.0, 0.5])
def test_tfidf_refuses_what_is_not_a_count(value):
    with pytest.raises(ValueError, match=f"counts.*{value:g}"):
        datasets.tfidf(np.array([[1.0, value], [2.0, 3.0]]))


def test_keep_labels(rng):
    y = rng.integers(0, 4, size=200)
    y[-1] = 4  # a class with one sample
    kept = datasets.keep_labels(y, 3, random_state=0)
    known = kept != -1
    assert np.array_equal(kept[known], y[known])
    assert np.array_equal(np.bincount(kept[known]), [3, 3, 3, 3, 1])
    assert np.array_equal(kept, datasets.keep_labels(y, 3, random_state=0))
    assert not np.array_equal(kept, datasets.keep_labels(y, 3, random_state=1))
    for bad in ([0.5, 1.0], [[0, 1]], [-1, 0]):
        with pytest.raises(ValueError, match="integers >= 0"):
            datasets.keep_labels(bad, 1)
