"""Tests of masked NumPy and Dask arrays: masked entries count as missing or are refused."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from partwise import GNMF, NMF, PartsClassifier
from partwise.estimators.methods import ESTIMATORS, METHODS
from partwise.graph import neighbor_graph
from partwise.metrics import labelled_accuracy

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
rng = np.random.default_rng(0)
X = rng.uniform(0.1, 1.0, (24, 16))
HIDDEN = rng.random(X.shape) < 0.2
CODES = np.arange(24) % 2
UNKNOWN = np.arange(24) % 5 == 0
#: Extra arguments of the estimators that need them.
SETTINGS = {"NTF": {"image_shape": (4, 4)}, "PartsClassifier": {}}


def estimator(name, **params):
    cls = (
        next((m.cls for m in METHODS.values() if m.estimator == name), None)
        or __import__("importlib").import_module(ESTIMATORS[name]).__dict__[name]
    )
    takes = inspect.signature(cls).parameters
    settings = {"n_components": 2, "random_state": 0, "max_iter": 5, "tol": 0.0}
    settings |= SETTINGS.get(name, {}) | params
    return cls(**{key: value for key, value in settings.items() if key in takes})


def masked(values, hidden, wrong=1e6):
    """Return a masked array with the value `wrong` under the mask, which must never be used."""
    spoiled = np.array(values)
    spoiled[hidden] = wrong
    return np.ma.array(spoiled, mask=hidden)


def square(name):
    return X @ X.T if name == "SymNMF" else X


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_masked_x_is_refused_where_nothing_may_be_missing(name):
    S = square(name)
    hidden = np.zeros(S.shape, bool)
    hidden[3, 4] = True
    y = np.eye(len(set(CODES)))[CODES] if name == "MultilabelClassifier" else CODES
    with pytest.raises(ValueError, match="mask"):
        estimator(name).fit(masked(S, hidden), y)
    if not name.endswith("Classifier"):  # k-means of the classifiers is tested elsewhere
        open_mask = np.ma.array(S, mask=np.zeros(S.shape, bool))
        first, second = (estimator(name).fit(Y, CODES).embedding_ for Y in (S, open_mask))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("missing", [np.nan, 0])
@pytest.mark.parametrize("kind", ["float", "int", "memory", "dask"])
def test_masked_entries_are_missing_ones(missing, kind):
    values = np.round(100 * X) if kind == "int" else X
    gaps = np.where(HIDDEN, missing, values)
    given = masked(values.astype(int) if kind == "int" else values, HIDDEN)
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        given = da.from_array(given, chunks=(7, 16))
        gaps = da.from_array(gaps, chunks=(7, 16))
    model = NMF(2, init="random", random_state=0, missing_values=missing)
    expected = np.asarray(model.fit(gaps).components_)
    expected_codes = np.asarray(model.transform(gaps))
    np.testing.assert_array_equal(np.asarray(model.fit(given).components_), expected)
    np.testing.assert_array_equal(np.asarray(model.transform(given)), expected_codes)


def test_a_masked_dask_array_is_refused_where_nothing_may_be_missing():
    da = pytest.importorskip("dask.array")
    for name in ("NMF", "MiniBatchNMF"):
        with pytest.raises(ValueError, match="mask"):
            estimator(name).fit(da.from_array(masked(X, HIDDEN), chunks=(7, 16)))


@pytest.mark.parametrize("kind", ["int", "float", "str", "date", "dask"])
def test_a_masked_label_is_unknown(kind):
    names = {
        "float": CODES.astype(float),
        "str": np.array(["cat", "dog"])[CODES],
        "date": np.datetime64("2020-01-01") + CODES.astype("m8[D]"),
    }.get(kind, CODES)
    given = np.ma.array(names.copy(), mask=UNKNOWN)
    given.data[UNKNOWN] = {"str": "bad", "date": np.datetime64("1990-01-01")}.get(kind, 7)
    known = names
    if kind == "dask":
        given = pytest.importorskip("dask.array").from_array(given, chunks=7)
    for name in ("CNMF", "PartsClassifier"):
        model = estimator(name).fit(X, given)
        assert model.classes_.tolist() == sorted(set(known[~UNKNOWN].tolist()))
        blank = [None if gone else label for gone, label in zip(UNKNOWN, known.tolist())]
        plain = estimator(name).fit(X, blank)
        np.testing.assert_array_equal(model.embedding_, plain.embedding_)
    if kind != "dask":
        expected = np.mean(model.predict(X)[~UNKNOWN] == known[~UNKNOWN])
        assert labelled_accuracy(model, X, given) == expected


def test_masked_probabilities_are_unknown():
    P = np.eye(2)[CODES] * 0.6 + 0.2
    given = np.ma.array(np.where(UNKNOWN[:, None], 0.5, P), mask=np.repeat(UNKNOWN[:, None], 2, 1))
    blank = np.where(UNKNOWN[:, None], np.nan, P)
    first, second = (estimator("CDNMF").fit(X, y).embedding_ for y in (given, blank))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("argument", ["sample_weight", "entry_weight", "W", "graph"])
def test_masks_of_other_arguments_are_refused(argument):
    shapes = {"sample_weight": 24, "W": (24, 2), "graph": (24, 24), "entry_weight": X.shape}
    given = np.ma.array(np.ones(shapes[argument]), mask=False)
    given[(3, 3)[: given.ndim] if argument != "W" else (3, 1)] = np.ma.masked
    rest = {"H": np.ones((2, 16))} if argument == "W" else {}
    model = GNMF(2, init="custom" if rest else "random", random_state=0, max_iter=2)
    with pytest.raises(ValueError, match=r"NaN|mask"):
        model.fit(X, **{argument: given}, **rest)


def test_other_readers_of_x_refuse_masks():
    with pytest.raises(ValueError, match="mask"):
        neighbor_graph(masked(X, HIDDEN))
    with pytest.raises(ValueError, match="mask"):
        PartsClassifier(2).fit(X, CODES, also=[masked(X, HIDDEN)])
    with pytest.raises(ValueError, match="mask"):
        PartsClassifier(2, max_iter=5).fit(X, CODES).predict(masked(X, HIDDEN))
