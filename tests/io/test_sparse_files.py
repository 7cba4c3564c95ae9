"""Tests that sparse files with wrong indices, sizes or links are refused before they are used.

Such files could read memory out of bounds, exhaust the memory, or read other files.
"""

import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from partwise import io as pio
from partwise.backends.compressed import checked_csr, csr_of
from partwise.io import datasets


def parts(layout="csr"):
    """Return data, indices and indptr of a sparse array of 40 x 50 counts."""
    X = sp.random_array((40, 50), density=0.2, random_state=0, format=layout)
    X.data = np.ceil(5 * X.data)
    return {"data": X.data, "indices": X.indices.copy(), "indptr": X.indptr.copy()}


def index_far(p):
    p["indices"][7] = 2**30


def index_near(p):
    p["indices"][7] = 60


def index_negative(p):
    p["indices"][7] = -1


def pointer_falls(p):
    p["indptr"][5] = p["indptr"][8]


def pointer_far(p):
    p["indptr"][5] = 2**30


def pointer_far_and_nothing_stored(p):  # scipy's check_format does not look further if nnz is 0
    p["indptr"][:] = 0
    p["indptr"][5] = 2**30


def pointer_short(p):
    p["indptr"][-1] -= 1


def pointer_negative_end(p):
    p["indptr"][-1] = -3


def pointer_cut(p):
    p["indptr"] = p["indptr"][:-1]


def indices_cut(p):
    p["indices"] = p["indices"][:-5]


def indices_with_fractions(p):
    p["indices"] = p["indices"] + 0.5


def index_wraps(p):  # in 32 bits, 2^32 + 3 becomes 3
    p["indices"] = p["indices"].astype(np.int64)
    p["indices"][7] += 2**32


def pointer_begins_late(p):  # the first entry would belong to no row
    p["indptr"][0] = 1


DAMAGES = [
    pointer_begins_late,
    index_far,
    index_near,
    index_negative,
    pointer_falls,
    pointer_far,
    pointer_far_and_nothing_stored,
    pointer_short,
    pointer_negative_end,
    pointer_cut,
    indices_cut,
    indices_with_fractions,
    index_wraps,
]
damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)


def write_h5ad(path, p, layout="csr"):
    anndata = pytest.importorskip("anndata", reason="needs anndata")
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    whole = parts(layout)
    kind = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[layout]
    X = kind((whole["data"], whole["indices"], whole["indptr"]), shape=(40, 50))
    anndata.AnnData(X).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        for name, values in p.items():
            del file["X"][name]
            file["X"].create_dataset(name, data=values)


def mat_bytes(p):
    """Return the bytes of a MATLAB 5 file with one sparse variable "fea", without any checks."""

    def element(kind, data):
        return (
            np.array([kind, len(data)], "<i4").tobytes() + data + b"\0" * (-len(data) % 8)
        )  # types of MATLAB: 1 int8, 5 int32, 6 uint32, 9 double, 14 matrix

    # Class 5 of MATLAB is a sparse array.
    flags = element(6, np.array([5, len(p["data"])], "<u4").tobytes())
    shape = element(5, np.array([40, 50], "<i4").tobytes())
    numbers = (p["indices"].astype("<i4"), p["indptr"].astype("<i4"))
    body = flags + shape + element(1, b"fea")
    body += b"".join(element(5, a.tobytes()) for a in numbers)
    body += element(9, p["data"].astype("<f8").tobytes())
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    return head + np.array([14, len(body)], "<i4").tobytes() + body


READ = """
import sys
from partwise.io import read_samples
for path in sys.argv[1:]:
    try:
        read_samples(path)
        print(path, "was read", flush=True)
    except ValueError as error:
        print(error, flush=True)
"""


def refused(*paths):
    """Check that files are refused, in a new process because reading them could crash it."""
    command = [sys.executable, "-c", READ, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, (run.returncode, run.stdout, run.stderr[-300:])
    lines = run.stdout.splitlines()
    assert len(lines) == len(paths)
    for path, line in zip(paths, lines):
        assert str(path) in line and "damaged sparse matrix" in line, line


# -- csr_of and checked_csr ----------------------------------------------------------------------


@damages
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_parts_that_do_not_fit_are_refused(damage, layout):
    p = parts(layout)
    damage(p)
    with pytest.raises(ValueError, match="damaged"):
        csr_of(**p, shape=(40, 50), layout=layout)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_sound_parts_come_out_as_they_are(layout):
    p = parts(layout)
    kind = {"csr": sp.csr_array, "csc": sp.csc_array}[layout]
    X = kind((p["data"], p["indices"], p["indptr"]), shape=(40, 50))
    assert np.array_equal(csr_of(**p, shape=(40, 50), layout=layout).toarray(), X.toarray())
    for other in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia"):
        assert np.array_equal(checked_csr(X.asformat(other)).toarray(), X.toarray())
        assert np.array_equal(checked_csr(sp.csr_matrix(X).asformat(other)).toarray(), X.toarray())


def test_repeated_entries_add_up_and_the_callers_arrays_stay():
    p = {
        "data": np.array([1.0, 2, 4]),
        "indices": np.array([1, 1, 0], np.uint8),
        "indptr": np.array([0, 3, 3], np.uint16),
    }
    X = csr_of(**p, shape=(2, 3))
    assert X.has_canonical_format and np.array_equal(X.toarray(), [[4, 3, 0], [0, 0, 0]])
    assert p["data"].tolist() == [1, 2, 4] and p["indices"].tolist() == [1, 1, 0]
    twice = sp.csr_array((p["data"], p["indices"].astype(np.int32), p["indptr"].astype(np.int32)))
    checked_csr(twice)
    assert twice.data.tolist() == [1, 2, 4]


@pytest.mark.parametrize("shape", [(40,), (40, 50, 2), (-1, 50), (40, 2**70)], ids=str)
def test_shapes_that_are_none(shape):
    with pytest.raises(ValueError, match="damaged"):
        csr_of(**parts(), shape=shape)


# -- the readers of each file format -------------------------------------------------------------


CRASHING = (index_far, index_near, pointer_falls)


def test_h5ad(tmp_path):
    paths = []
    for layout in ("csr", "csc"):
        for damage in CRASHING:
            p = parts(layout)
            damage(p)
            paths.append(tmp_path / f"{layout}-{damage.__name__}.h5ad")
            write_h5ad(paths[-1], p, layout)
    refused(*paths)


def test_h5ad_layer(tmp_path):
    anndata = pytest.importorskip("anndata", reason="needs anndata")
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    p = parts()
    X = sp.csr_matrix((p["data"], p["indices"], p["indptr"]), shape=(40, 50))
    anndata.AnnData(X, layers={"raw": X.copy()}).write_h5ad(tmp_path / "x.h5ad")
    with h5py.File(tmp_path / "x.h5ad", "r+") as file:
        file["layers/raw/indices"][3] = 60
    with pytest.raises(ValueError, match="damaged"):
        pio.read_samples(tmp_path / "x.h5ad", layer="raw")
    assert pio.read_samples(tmp_path / "x.h5ad").n_samples == 40


def test_mat(tmp_path):
    (tmp_path / "whole.mat").write_bytes(mat_bytes(parts("csc")))
    whole = pio.read_samples(tmp_path / "whole.mat", scale="none").X
    assert whole.sum() == parts("csc")["data"].sum()
    paths = []
    for damage in CRASHING:
        p = parts("csc")
        damage(p)
        paths.append(tmp_path / f"{damage.__name__}.mat")
        paths[-1].write_bytes(mat_bytes(p))
    refused(*paths)


@damages
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_npz(tmp_path, damage, layout):
    p = parts(layout)
    damage(p)
    np.savez(tmp_path / "x.npz", **p, shape=np.array([40, 50]), format=layout.encode())
    with pytest.raises(ValueError, match=r"x\.npz.*damaged"):
        datasets.read(tmp_path / "x.npz")


# -- files that claim too large sizes -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "%%MatrixMarket matrix coordinate real general\n1000000000 1000000000 1\n1 1 1.0\n",
        "%%MatrixMarket matrix coordinate real general\n3 1000000000 1\n1 1 1.0\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 1000000000\n1 1 1.0\n",
        "%%MatrixMarket matrix array real general\n1000000 1000000\n1.0\n",
        "%%MatrixMarket matrix coordinate pattern symmetric\n999999999999 999999999999 1\n2 1\n",
    ],
    ids=["both", "columns", "entries", "dense", "symmetric"],
)
def test_a_market_file_that_claims_too_much(tmp_path, text):
    (tmp_path / "x.mtx").write_text(text)
    with pytest.raises(ValueError, match=r"x\.mtx"):
        pio.read_samples(tmp_path / "x.mtx")


def test_a_billion_empty_columns_are_refused(tmp_path):
    """Check that a matrix of 40 rows and 10^9 columns is refused.

    It is small in a file, but its parts would be large.
    """
    p = parts()
    np.savez(tmp_path / "x.npz", **p, shape=np.array([40, 10**9]))
    with pytest.raises(ValueError, match=r"x\.npz"):
        pio.read_samples(tmp_path / "x.npz")
    anndata = pytest.importorskip("anndata", reason="needs anndata")
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    X = sp.csr_matrix((p["data"], p["indices"], p["indptr"]), shape=(40, 50))
    anndata.AnnData(X).write_h5ad(tmp_path / "x.h5ad")
    with h5py.File(tmp_path / "x.h5ad", "r+") as file:
        file["X"].attrs["shape"] = np.array([40, 10**9])
    with pytest.raises(ValueError, match=r"x\.h5ad"):
        pio.read_samples(tmp_path / "x.h5ad")


def test_a_billion_empty_rows_are_refused(tmp_path):
    """Check that a .mat file of 10^9 empty rows is refused.

    It is small because .mat files store matrices by columns.
    """
    p = parts("csc")
    data = mat_bytes(p)
    shape = np.array([40, 50], "<i4").tobytes()
    assert data.count(shape) == 1
    (tmp_path / "x.mat").write_bytes(data.replace(shape, np.array([10**9, 50], "<i4").tobytes()))
    with pytest.raises(ValueError, match=r"x\.mat"):
        pio.read_samples(tmp_path / "x.mat")


def test_market_files_are_read_as_before(tmp_path):
    p = parts()
    X = sp.csr_array((p["data"], p["indices"], p["indptr"]), shape=(40, 50))
    scipy.io.mmwrite(tmp_path / "x.mtx", X)
    assert np.array_equal(
        pio.read_samples(tmp_path / "x.mtx", scale="none").X.toarray(), X.todense()
    )
    (tmp_path / "y.mtx").write_text("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n")
    read = pio.read_samples(tmp_path / "y.mtx", scale="none").X
    assert np.array_equal(read.toarray(), [[1, 3], [2, 4]])


# -- .h5ad files that refer to other files --------------------------------------------------------


@pytest.fixture
def cells(tmp_path):
    anndata = pytest.importorskip("anndata", reason="needs anndata")
    X = np.ones((6, 4), dtype=np.float32)
    anndata.AnnData(X).write_h5ad(tmp_path / "x.h5ad")
    anndata.AnnData(7 * X).write_h5ad(tmp_path / "secret.h5ad")
    (tmp_path / "secret.bin").write_bytes(np.arange(24.0).astype("<f4").tobytes())
    return tmp_path / "x.h5ad"


def link(file, h5py):
    del file["X"]
    file["X"] = h5py.ExternalLink("secret.h5ad", "/X")


def link_below(file, h5py):
    file["uns"].create_group("deep")["in"] = h5py.ExternalLink("secret.h5ad", "/")


def storage(file, h5py):
    del file["X"]
    at = [(str(file.filename).replace("x.h5ad", "secret.bin"), 0, 96)]
    file.create_dataset("X", (6, 4), "<f4", external=at)
    file["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})


def virtual(file, h5py):
    layout = h5py.VirtualLayout((6, 4), "<f4")
    layout[:] = h5py.VirtualSource("secret.h5ad", "X", shape=(6, 4))
    del file["X"]
    file.create_virtual_dataset("X", layout)
    file["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})


@pytest.mark.parametrize("how", [link, link_below, storage, virtual], ids=lambda f: f.__name__)
def test_an_h5ad_reads_no_other_file(cells, how):
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    with h5py.File(cells, "r+") as file:
        how(file, h5py)
    with pytest.raises(ValueError, match=r"x\.h5ad") as error:
        pio.read_samples(cells)
    assert "secret" in str(error.value)


def test_a_link_inside_of_an_h5ad_is_no_other_file(cells):
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    with h5py.File(cells, "r+") as file:
        file["layers"]["same"] = h5py.SoftLink("/X")
    assert pio.read_samples(cells, layer="same", scale="none").X.sum() == 24


# -- damaged elements of MATLAB files -------------------------------------------------------------


@pytest.mark.parametrize("at", range(3), ids=["indices", "indptr", "data"])
def test_undefined_element_types_are_refused(tmp_path, at):
    """Check that a .mat element of an undefined type is refused.

    scipy would read beyond its table of types and crash.
    """
    p = parts("csc")
    data = mat_bytes(p)
    sizes = [4 * p["indices"].size, 4 * p["indptr"].size, 8 * p["data"].size]
    kinds = [5, 5, 9]
    tag = np.array([kinds[at], sizes[at]], "<i4").tobytes()
    assert data.count(tag) == 1
    (tmp_path / "x.mat").write_bytes(data.replace(tag, np.array([204, sizes[at]], "<i4").tobytes()))
    with pytest.raises(ValueError, match=r"x\.mat.*204"):
        datasets.read(tmp_path / "x.mat")


def test_an_element_that_is_longer_than_its_variable(tmp_path):
    p = parts("csc")
    tag = np.array([9, 8 * p["data"].size], "<i4").tobytes()
    data = mat_bytes(p).replace(tag, np.array([9, 2**31 - 1], "<i4").tobytes())
    (tmp_path / "x.mat").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.mat"):
        datasets.read(tmp_path / "x.mat")


@pytest.mark.parametrize("compressed", [True, False])
def test_matlab_files_of_all_kinds_are_read(tmp_path, compressed):
    values = np.arange(12.0).reshape(4, 3)
    for kind in (np.float64, np.float32, np.uint8, np.int16, np.uint64, bool):
        content = {"fea": values.astype(kind), "gnd": np.array([[1], [1], [2], [2]], np.uint8)}
        content |= {"other": {"a": "text", "b": [1, 2]}, "words": np.array(["x", "y"], object)}
        scipy.io.savemat(tmp_path / "x.mat", content, do_compression=compressed)
        found = datasets.read(tmp_path / "x.mat")
        assert np.array_equal(found.X, values.astype(kind).astype(float))
        assert found.y.tolist() == [0, 0, 1, 1]
    scipy.io.savemat(tmp_path / "x.mat", {"fea": {"a": 1}}, do_compression=compressed)
    with pytest.raises(ValueError, match="fea"):
        datasets.read(tmp_path / "x.mat")


@pytest.mark.parametrize("at", [140, 200, -5])
def test_a_compressed_variable_that_cannot_be_unpacked(tmp_path, at):
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"fea": sp.csc_matrix(np.eye(30))}, do_compression=True)
    data = bytearray(path.read_bytes())
    data[at] ^= 255
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.mat"):
        datasets.read(path)
