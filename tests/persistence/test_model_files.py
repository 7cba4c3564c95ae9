"""Tests that model files restore every model, and that damaged or hostile files are refused."""

import datetime as dt
import hashlib
import json
import os
import pickle
import threading
import tracemalloc
from dataclasses import is_dataclass
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import partwise
from partwise.estimators import saving
from partwise.persistence.model_files import PersistError

X, Y = load_digits(n_class=3, return_X_y=True)
X, Y = X[:60] / 16, Y[:60]
KNOWN = np.where(np.arange(60) < 20, Y, -1)
QUICK = {"max_iter": 15, "tol": 0, "random_state": 0}

MODELS = {
    "NMF": partwise.NMF(3, **QUICK),
    "NMF-KL": partwise.NMF(3, beta_loss="kullback-leibler", **QUICK),
    "GNMF": partwise.GNMF(3, **QUICK),
    "SemiGNMF": partwise.SemiGNMF(**QUICK),
    "CNMF": partwise.CNMF(**QUICK),
    "LpCNMF": partwise.LpCNMF(**QUICK),
    "CDNMF": partwise.CDNMF(**QUICK),
    "NMFDC": partwise.NMFDC(**QUICK),
    "NSNMF": partwise.NSNMF(3, **QUICK),
    "AnsNMF": partwise.AnsNMF(3, max_iter=5, random_state=0),
    "ConstrainedNMF": partwise.ConstrainedNMF(class_reg=1.0, graph_reg=0.1, **QUICK),
    "SemiNMF": partwise.SemiNMF(3, **QUICK),
    "CF": partwise.CF(3, **QUICK),
    "CF-rbf": partwise.CF(3, kernel="rbf", **QUICK),
    "LCF": partwise.LCF(3, **QUICK),
    "SparseNMF": partwise.SparseNMF(3, sparseness_H=0.5, **QUICK),
    "NTF": partwise.NTF(3, image_shape=(8, 8), **QUICK),
}


@pytest.fixture
def saved(tmp_path):
    """Return the path of a saved small CNMF model, and the model."""
    model = partwise.CNMF(**QUICK).fit(X, KNOWN)
    return model.save(tmp_path / "m.partwise"), model


def same(a, b):
    """Return whether nested containers have equal values, types and shapes."""
    if sp.issparse(a):
        return (a != b).nnz == 0
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return a.tolist() == b.tolist() if a.dtype == object else np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and (a == b or a != a)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_every_estimator_comes_back_as_it_was(name, sparse, tmp_path):
    if name == "NTF":
        pytest.importorskip("tensorly", reason="NTF needs tensorly")
        if sparse:
            return
    model = type(MODELS[name])(**MODELS[name].get_params())
    data = sp.csr_array(X) if sparse else X.astype(np.float32)
    model.fit(data, KNOWN)
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    assert type(again) is type(model) and again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    for key, value in vars(model).items():
        assert same(value, vars(again)[key]), key
    assert np.array_equal(again.transform(data), model.transform(data))
    if hasattr(model, "predict"):
        assert np.array_equal(again.predict(data), model.predict(data))
        assert np.array_equal(again.predict_confidence(data), model.predict_confidence(data))


@pytest.mark.parametrize(
    "y",
    [
        Y,
        np.array(["zéro", "one", "two"])[Y],
        np.array(["zero", "one", None], dtype=object)[Y],
        Y + 0.5,
        Y == 1,
        np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="datetime64[D]")[Y],
        np.array([b"a", b"b", b"c"])[Y],
        np.array([dt.date(2020, 1, day) for day in (1, 2, 3)])[Y],
        np.array([dt.datetime(2020, 1, 1, h, tzinfo=dt.UTC) for h in (1, 2, 3)])[Y],
        np.array([dt.time(hour) for hour in (1, 2, 3)])[Y],
        np.array([dt.timedelta(days, 1, 2) for days in (1, 2, 3)])[Y],
        [None] * 60,
    ],
    ids=lambda y: type(y[0]).__name__,
)
def test_class_names_of_any_kind(y, tmp_path):
    model = partwise.GNMF(4, n_clusters=4, **QUICK).fit(X, y)
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    for key in ("classes_", "labels_", "clustering_"):
        assert same(getattr(model, key), getattr(again, key)), key
    assert again.predict(X).dtype == model.predict(X).dtype


def test_feature_names_output_settings_and_unfitted_models(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    model = partwise.NMF(2, **QUICK).set_output(transform="pandas").fit(frame)
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    assert again.feature_names_in_.tolist() == list(frame.columns)
    assert again.transform(frame).equals(model.transform(frame))
    fresh = partwise.load(partwise.NTF(2, image_shape=(8, 8)).save(tmp_path / "f.partwise"))
    assert fresh.get_params() == partwise.NTF(2, image_shape=(8, 8)).get_params()


def test_the_file_is_what_the_documentation_says(saved):
    path, model = saved
    head, digest, length, rest = path.read_bytes().split(b"\n", 3)
    assert head == b"partwise-model 1 " + partwise.__version__.encode()
    assert hashlib.sha256(length + b"\n" + rest).hexdigest() == digest.decode()
    found = json.loads(rest[: int(length)])
    assert found["class"] == "CNMF" and found["parameters"]["max_iter"] == 15
    at, number = int(length), found["attributes"]["components_"]["array"]
    for kind, shape, _ in found["arrays"][:number]:
        at += np.dtype(kind).itemsize * int(np.prod(shape))
    kind, shape, order = found["arrays"][number]
    numbers = np.frombuffer(rest, kind, int(np.prod(shape)), at).reshape(shape, order=order)
    assert np.array_equal(numbers, model.components_)
    first = path.read_bytes()
    # Saving the same model twice gives the same bytes.
    assert model.save(path).read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["m.partwise"]


def test_recipe_travels_with_the_model(tmp_path):
    recipe = {"words": ["a", "b"], "idf": np.array([1.0, 2.0]), "size": (3, 4), "rate": np.nan}
    model = partwise.NMF(2, **QUICK).fit(X)
    again = saving.read(saving.save(model, tmp_path / "m.partwise", recipe=recipe))[1]
    assert again.keys() == recipe.keys() and all(same(recipe[k], again[k]) for k in recipe)


def test_dates_of_pandas_come_back_as_their_equals_in_python(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    days = np.array([pandas.Timestamp(2020, 1, day) for day in (1, 2, 3)], dtype=object)
    model = partwise.GNMF(3, **QUICK).fit(X, days[Y])
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    assert again.classes_.tolist() == days.tolist()
    assert type(again.classes_[0]) is dt.datetime
    model = partwise.GNMF(3, **QUICK).fit(X, (days + pandas.Timedelta(1, "ns"))[Y])
    with pytest.raises(PersistError, match="nanoseconds"):
        model.save(tmp_path / "m.partwise")
    model = partwise.GNMF(3, **QUICK).fit(X, np.array([Decimal(i) for i in range(3)])[Y])
    with pytest.raises(PersistError, match="Decimal"):
        model.save(tmp_path / "m.partwise")


def dot(a, b):
    return a @ b


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path):
    path = tmp_path / "m.partwise"
    model = partwise.CF(2, kernel=dot, **QUICK).fit(X)
    with pytest.raises(PersistError, match="kernel"):
        model.save(path)
    with pytest.raises(PersistError, match="partwise"):
        saving.save(LogisticRegression(), path)
    model = partwise.NMF(2, **QUICK).fit(X)
    model.extra_ = object()
    with pytest.raises(PersistError, match=r"NMF\.extra_"):
        model.save(path)
    with pytest.raises(FileNotFoundError, match="folder"):
        partwise.NMF(2).save(tmp_path / "gone" / "m.partwise")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_keeps_the_old_file(saved, monkeypatch):
    path, model = saved
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.partwise"]


# -- hostile and damaged files ----------------------------------------------------------------


def rewrite(path, change, *, head=None, data=None):
    """Rewrite a model file with changed JSON or arrays and a matching checksum."""
    first, _, length, rest = path.read_bytes().split(b"\n", 3)
    found, arrays = json.loads(rest[: int(length)]), rest[int(length) :]
    text = change(found)
    text = json.dumps(found).encode() if text is None else text
    body = b"%d\n%s%s" % (len(text), text, arrays if data is None else data)
    digest = hashlib.sha256(body).hexdigest().encode()
    path.write_bytes((first if head is None else head) + b"\n" + digest + b"\n" + body)


def unchanged(found):
    """Leave the JSON header of a model file unchanged."""


def attribute(**new):
    return lambda path: rewrite(path, lambda found: found["attributes"].update(new))


def parameter(**new):
    return lambda path: rewrite(path, lambda found: found["parameters"].update(new))


def described(kind, shape, order="C"):
    """Return a function that changes type, shape and order of the first array in a file."""

    def change(found):
        found["arrays"][0] = [kind, shape, order]

    return lambda path: rewrite(path, change)


class Trap:
    def __reduce__(self):
        return os.system, ("touch /tmp/partwise-was-here",)


HOSTILE = {
    "newer": lambda p: rewrite(p, unchanged, head=b"partwise-model 2 7.0"),
    "no version": lambda p: rewrite(p, unchanged, head=b"partwise-model"),
    "foreign": lambda p: rewrite(p, unchanged, head=b"other-model 1 0.3.0"),
    "pickled objects": described("|O", [1]),
    "records": described("<i4,<f8", [1]),
    "negative size": described("<f8", [-1, 3]),
    "not a size": described("<f8", ["7"]),
    "other order": described("<f8", [1], "X"),
    "larger than the file": described("<f8", [10**9, 10**9]),
    "smaller than the file": described("<f8", [1]),
    "pickle": lambda p: p.write_bytes(pickle.dumps(Trap())),
    "pickle as JSON": lambda p: rewrite(p, lambda found: pickle.dumps(Trap())),
    "class": lambda p: rewrite(p, lambda found: found.update({"class": "os"})),
    "function": lambda p: rewrite(p, lambda found: found.update({"class": "load"})),
    "method": attribute(transform=1),
    "callbacks": attribute(_skl_callbacks=[]),
    "private": attribute(_get_tags=1),
    "dunder": attribute(__class__="x"),
    "property": attribute(labels_=[1]),
    "parameter": parameter(max_iter=-1),
    "unknown parameter": parameter(evil=1),
    "kind": attribute(solver_={"exec": "1"}),
    "object": attribute(solver_={"object": ["Popen", {"args": "x"}]}),
    "malformed object": attribute(solver_={"object": ["Labels", {"classes": 1, "codes": 2}]}),
    "missing array": attribute(n_iter_={"array": 99}),
    "misfit": attribute(n_components_=7),
    "no json": lambda p: rewrite(p, lambda found: b"\xff{"),
    "nan": lambda p: rewrite(p, lambda found: b'{"class": NaN}'),
    "deep": lambda p: rewrite(p, lambda found: b"[" * 100_000),
    "not ours": lambda p: p.write_text("hello"),
    "empty": lambda p: p.write_bytes(b""),
    "trailing bytes": lambda p: p.write_bytes(p.read_bytes() + b"x"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_give_one_line(case, saved):
    path, _ = saved
    HOSTILE[case](path)
    with pytest.raises(PersistError) as error:
        partwise.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert not os.path.exists("/tmp/partwise-was-here")


def test_a_newer_file_asks_for_an_upgrade(saved):
    path, _ = saved
    HOSTILE["newer"](path)
    with pytest.raises(PersistError, match=r"7\.0.*2"):
        partwise.load(path)


def test_huge_arrays_are_refused_before_memory_is_taken(saved):
    path, _ = saved
    described("<f8", [2**40])(path)
    tracemalloc.start()
    with pytest.raises(PersistError):
        partwise.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * path.stat().st_size + 10**6


def test_orders_of_memory_come_back(tmp_path):
    recipe = {"a": np.asfortranarray(np.arange(12.0).reshape(3, 4)), "b": np.arange(5)[::2]}
    recipe |= {"c": np.zeros((0, 3)), "d": np.array(3.0), "e": np.array(["é", "ab"])}
    path = saving.save(partwise.NMF(2), tmp_path / "m.partwise", recipe=recipe)
    again = saving.read(path)[1]
    assert all(same(recipe[key], again[key]) for key in recipe)
    assert again["a"].flags.f_contiguous and again["b"].flags.writeable


def test_an_array_that_is_used_twice_is_written_once(tmp_path):
    Z = np.arange(5000.0)
    path = saving.save(partwise.NMF(2), tmp_path / "m.partwise", recipe={"a": Z, "b": [Z, Z + 1]})
    assert path.stat().st_size < 3 * Z.nbytes
    again = saving.read(path)[1]
    assert all(map(same, (again["a"], *again["b"]), (Z, Z, Z + 1)))


def test_every_truncation_and_every_flipped_byte_is_noticed(saved):
    path, model = saved
    whole = path.read_bytes()
    for cut in np.linspace(0, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:cut])
        with pytest.raises(PersistError):
            partwise.load(path)
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(whole), 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        refused_or_same(path, model)


def refused_or_same(path, model):
    """Check that a damaged file is refused, or that the damage did not change the loaded model."""
    try:
        again = partwise.load(path)
    except PersistError:
        return
    assert again.get_params() == model.get_params() and vars(again).keys() == vars(model).keys()
    for key, value in vars(model).items():
        assert same(value, vars(again)[key]), key


@pytest.mark.parametrize("kind", ["overwritten", "zeroed", "cut out", "inserted", "moved"])
def test_damage_of_any_kind_gives_one_line(kind, saved):
    path, model = saved
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(80):
        at, n, to = (int(i) for i in rng.integers(0, [len(whole), 200, len(whole)]))
        before, piece, after = whole[:at], whole[at : at + n], whole[at + n :]
        damaged = {
            "overwritten": before + rng.bytes(len(piece)) + after,
            "zeroed": before + bytes(len(piece)) + after,
            "cut out": before + after,
            "inserted": before + rng.bytes(n) + piece + after,
            "moved": (before + after)[:to] + piece + (before + after)[to:],
        }[kind]
        path.write_bytes(damaged)
        refused_or_same(path, model)


def test_a_file_cannot_name_a_folder_to_write_to(saved, tmp_path):
    path, _ = saved
    trap = tmp_path / "trap"
    parameter(checkpoint=str(trap))(path)
    model = partwise.load(path)
    assert model.checkpoint is None
    model.fit(X, KNOWN)
    assert not trap.exists()
    mine = partwise.CNMF(checkpoint=str(trap), **QUICK).fit(X, KNOWN)
    assert trap.exists() and "trap" not in mine.save(path).read_bytes().decode("latin-1")


def test_callbacks_are_not_saved(saved):
    path, model = saved
    model._skl_callbacks = [print]
    assert "_skl_callbacks" not in vars(partwise.load(model.save(path)))


def test_many_threads_can_save_to_one_path(saved):
    path, model = saved
    errors = []

    def save():
        try:
            for _ in range(5):
                model.save(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    refused_or_same(path, model)
    assert [p.name for p in path.parent.iterdir()] == ["m.partwise"]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        partwise.load(tmp_path / "gone.partwise")
    with pytest.raises(OSError):
        partwise.load(tmp_path)


# -- classifiers whose stored arrays do not fit together -------------------------------------------


def nested(value, where=()):
    """Yield the path and value of every array in nested dicts and lists."""
    value = vars(value) if is_dataclass(value) else value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list)) or is_dataclass(item):
            yield from nested(item, (*where, key))
        elif isinstance(item, np.ndarray) or sp.issparse(item):
            yield (*where, key), item


def with_array(state, where, value):
    """Return a copy of the nested state in which one array is replaced by `value`."""
    if is_dataclass(state):
        return type(state)(**with_array(vars(state), where, value))
    state = dict(state) if isinstance(state, dict) else list(state)
    state[where[0]] = value if len(where) == 1 else with_array(state[where[0]], where[1:], value)
    return state


def forgeries(array):
    if sp.issparse(array):
        yield "rows", array[:-1]
        yield "columns", array[:, :-1]
        if array.nnz:
            bad = array.copy()
            bad.data[0] = np.nan
            yield "nan", bad
        return
    if array.shape[0] > 1:
        yield "rows", array[:-1]
    if array.ndim == 2 and array.shape[1] > 1 and array.size:
        yield "columns", np.ascontiguousarray(array[:, :-1])
    if array.dtype.kind == "f" and array.size:
        for name, number in (("nan", np.nan), ("inf", np.inf)):
            bad = array.copy()
            bad.flat[array.size // 2] = number
            yield name, bad
    if array.dtype.kind == "i" and array.size:
        yield "far", array + 10_000
        yield "negative", array - 10_000


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["table", "counts", "codes"])
def test_a_forged_classifier_fails_when_it_is_loaded(tmp_path, kind, every, few_trees):
    """Check that loading refuses a classifier in which one stored array was damaged.

    Each array is damaged in one of the ways of `forgeries`, or in all of them if `every` is true.
    """
    rng = np.random.default_rng(0)
    group = np.arange(48) % 3
    if kind == "counts":
        X = sp.csr_array(rng.poisson(0.2 + (rng.random((3, 60)) > 0.7)[group]).astype(float))
    else:
        X = rng.uniform(size=(48, 8)) + np.eye(3, 8)[group]
    model = partwise.PartsClassifier(n_parts=4)
    if kind == "codes":  # a model as the studio saves it before the first label
        model.prepare(X)
    else:
        model.fit(X, np.where(np.arange(48) < 15, group, -1))
    path = tmp_path / "m.partwise"
    model.save(path)
    partwise.load(path)
    tried, state = 0, model._state
    for turn, (where, array) in enumerate(nested(state)):
        ways = list(forgeries(array))
        for name, forged in ways if every else ways[turn % max(len(ways), 1) :][:1]:
            if (where, name) == (("labelled",), "rows"):
                continue  # without one sample the file would still be valid
            if (where[-1], name) in (("knots", "rows"), ("roots", "rows")):
                continue  # with one rank or one tree fewer, the file would still be valid
            model._state = with_array(state, where, forged)
            model.save(path)
            with pytest.raises(partwise.persistence.model_files.PersistError, match="classifier"):
                partwise.load(path)
                pytest.fail(f"{where} {name}")
            tried += 1
    assert tried > (30 if kind == "codes" else 60) / (1 if every else 3)
