"""Tests of `encode_labels`, which reads labels of every type, and of refused labels."""

import datetime as dt
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.knowledge.labels import Labels, encode_labels

NAN = float("nan")

# Each case: y, the expected classes, and the expected class code of each sample.
KINDS = {
    "integers": (np.array([5, -1, 2, 5]), [2, 5], [1, -1, 0, 1]),
    "list of integers": ([5, -1, 2, 5], [2, 5], [1, -1, 0, 1]),
    "unsigned": (np.array([255, 0, 255, 3], dtype=np.uint8), [0, 3, 255], [2, 0, 2, 1]),
    "small integers": (np.array([5, -1, 2, 5], dtype=np.int8), [2, 5], [1, -1, 0, 1]),
    "floats": (np.array([1.5, NAN, 0.0, -1.0]), [0.0, 1.5], [1, -1, 0, -1]),
    "strings": (np.array(["b", "a", "c", "b"]), ["a", "b", "c"], [1, 0, 2, 1]),
    "strings, None": (["b", None, "a", "b"], ["a", "b"], [1, -1, 0, 1]),
    "strings, NaN": (["b", NAN, "a", "b"], ["a", "b"], [1, -1, 0, 1]),
    "integers, None": ([5, None, -1, 2], [2, 5], [1, -1, -1, 0]),
    "object integers": (np.array([5, None, -1, 2], dtype=object), [2, 5], [1, -1, -1, 0]),
    "numpy scalars": (
        np.array([np.int64(5), None, np.int64(-1), 2], dtype=object),
        [2, 5],
        [1, -1, -1, 0],
    ),
    "booleans": (np.array([True, False, False, True]), [False, True], [1, 0, 0, 1]),
    "booleans, None": ([True, None, False, True], [False, True], [1, -1, 0, 1]),
    "column": (np.array([[5], [-1], [2], [5]]), [2, 5], [1, -1, 0, 1]),
    "Series": (pd.Series(["b", None, "a", "b"], index=[3, 1, 2, 0]), ["a", "b"], [1, -1, 0, 1]),
    "DataFrame": (pd.DataFrame({"y": [5, -1, 2, 5]}), [2, 5], [1, -1, 0, 1]),
    "nullable": (pd.Series([5, None, 2, 5], dtype="Int64"), [2, 5], [1, -1, 0, 1]),
    "nullable boolean": (pd.array([True, None, False], dtype="boolean"), [False, True], [1, -1, 0]),
    "pandas string": (pd.Series(["b", pd.NA, "a"], dtype="string"), ["a", "b"], [1, -1, 0]),
    "Categorical": (pd.Categorical(["b", None, "a", "b"]), ["a", "b"], [1, -1, 0, 1]),
    "Categorical, unused": (
        pd.Series(["b", "a"], dtype=pd.CategoricalDtype(["z", "b", "a"])),
        ["a", "b"],
        [1, 0],
    ),
    "Categorical integers": (pd.Categorical([5, None, 2, 5]), [2, 5], [1, -1, 0, 1]),
    "dates": (
        np.array(["2020-01-02", "NaT", "2020-01-01"], dtype="datetime64[D]"),
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]").tolist(),
        [1, -1, 0],
    ),
    "date objects": (
        [dt.date(2020, 1, 2), None, dt.date(2020, 1, 1)],
        [dt.date(2020, 1, 1), dt.date(2020, 1, 2)],
        [1, -1, 0],
    ),
    "all -1": ([-1, -1, -1], [], [-1, -1, -1]),
    "all None": ([None, None, NAN], [], [-1, -1, -1]),
    "all NaN": (np.array([NAN, NAN]), [], [-1, -1]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    y, classes, codes = KINDS[kind]
    labels = encode_labels(y, len(codes))
    assert labels.classes.tolist() == classes
    assert labels.codes.tolist() == codes
    assert labels.codes.dtype == np.int64
    assert labels.n_classes == len(classes)
    assert labels.n_labelled == sum(code >= 0 for code in codes)
    assert labels.counts.tolist() == [codes.count(c) for c in range(len(classes))]
    assert labels.mask.tolist() == [code >= 0 for code in codes]


@pytest.mark.parametrize(
    "y, kind",
    [
        (np.array([1, -1], dtype=np.int16), "i"),
        ([1, None], "i"),
        (pd.Categorical([1, None]), "i"),
        ([1.0, None], "f"),
        ([True, None], "b"),
        (["a", None], "U"),
        (np.array(["a", None], dtype=object), "O"),
    ],
)
def test_classes_keep_the_users_kind(y, kind):
    assert encode_labels(y, 2).classes.dtype.kind == kind


def test_no_labels():
    assert encode_labels(None, 3) is None


def test_input_is_left_alone():
    y = np.array([3, -1, 2])
    y.flags.writeable = False
    assert encode_labels(y, 3).codes.tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    "y, error, message",
    [
        ([1, 2], ValueError, r"^y\b.*\b3 samples.*got 2"),
        (np.eye(3), ValueError, r"^y\b.*shape \(3, 3\)"),
        ([[1], [2, 3], [4]], ValueError, r"^y\b.*length 3"),
        ("abc", ValueError, r"got shape \(\)"),
        ([1, "a", None], TypeError, r"^y\b.*int, str"),
        (np.array([1, "a", None], dtype=object), TypeError, r"^y\b.*int, str"),
        ([1.0, np.inf, NAN], ValueError, "infinity"),
        ([1.0, np.inf, None], ValueError, "infinity"),
        (np.array([1j, 2, 3]), TypeError, "complex128"),
    ],
)
def test_refused(y, error, message):
    with pytest.raises(error, match=message):
        encode_labels(y, 3)


def test_unhashable_labels_are_refused():
    y = np.empty(2, dtype=object)
    y[:] = [[1], [2, 3]]
    with pytest.raises(TypeError, match="list"):
        encode_labels(y, 2)


def test_labels_need_no_compiler():
    """Check that labels are read without importing numba or pynndescent, which takes long."""
    code = (
        "import sys; from partwise.knowledge.labels import encode_labels;"
        "print(encode_labels(['b', None, float('nan'), 'a'], 4).codes.tolist());"
        "print([m for m in ('numba', 'pynndescent') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["[1, -1, -1, 0]", "[]"]


some_labels = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=30)


@given(some_labels)
@settings(max_examples=60, deadline=None)
def test_round_trip(y):
    labels = encode_labels(y, len(y))
    back = [labels.classes[c] if c >= 0 else None for c in labels.codes]
    assert back == y
    assert labels.classes.tolist() == sorted({v for v in y if v is not None})


# --- pickling, and values that are refused ----------------------------------------------------


def test_pickle():
    labels = encode_labels(["b", None, "b"], 3)
    again = pickle.loads(pickle.dumps(labels))
    assert isinstance(again, Labels)
    np.testing.assert_array_equal(again.codes, labels.codes)


@pytest.mark.parametrize("blank", ["", " ", "-1"])
@pytest.mark.parametrize("kind", [list, np.array, pd.Series, lambda y: np.array(y, dtype=object)])
def test_a_blank_is_refused_and_never_a_class(blank, kind):
    with pytest.raises(ValueError, match=f"^y .*'{blank}'"):
        encode_labels(kind(["b", blank, "a"]), 3)
