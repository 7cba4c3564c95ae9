"""Tests of `SharedRows`, which ties samples of one class, against the matrix A it represents."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from partwise.backends.numpy.dense import DenseData
from partwise.knowledge.labels import encode_labels
from partwise.model.factor_model import FactorModel
from partwise.model.losses import Frobenius
from partwise.model.maps import SharedRows
from problems import LABELS, K, N, P

some_labels = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=30)


def matrix(rows):
    """Return the dense 0/1 matrix A that maps the rows of `rows` to samples."""
    A = np.zeros((rows.n_samples, rows.n_rows))
    A[np.arange(rows.n_samples), rows.index] = 1
    return A


@given(some_labels, st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60, deadline=None)
def test_shared_rows_are_the_matrix(y, dtype):
    n = len(y)
    rng = np.random.default_rng(n)
    labels = encode_labels(y, n)
    rows = SharedRows(labels.codes, n)
    A = matrix(rows)
    # Sums of small integers are exact in any order.
    V = rng.integers(0, 9, (n, 3)).astype(dtype)
    Z = rng.integers(0, 9, (rows.n_rows, 3)).astype(dtype)
    w = rng.integers(1, 9, n).astype(dtype)
    for result, expected in [
        (rows.expand(Z), A @ Z),
        (rows.reduce(V), A.T @ V),
        (rows.reduce(w), A.T @ w),
    ]:
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == dtype
    np.testing.assert_array_equal(rows.counts, A.sum(axis=0))
    mean = rows.mean(V)
    assert mean.dtype == dtype
    # The mean rounds once, in the division.
    np.testing.assert_allclose(mean, (A.T @ V) / A.sum(axis=0)[:, None], rtol=2e-7)
    # Two samples share a row if and only if they have the same label.
    for i in range(n):
        for j in range(n):
            share = i == j or (y[i] is not None and y[i] == y[j])
            assert (rows.index[i] == rows.index[j]) == share
    assert rows.is_identity == (rows.n_rows == n)
    if rows.is_identity:
        np.testing.assert_array_equal(rows.index, np.arange(n))


@pytest.mark.parametrize("y", [[-1, -1, -1, -1], [3, -1, 1, 2], [2, -1, -1, -1]])
def test_identity_returns_what_it_is_given(y):
    rows = SharedRows(encode_labels(y, 4).codes, 4)
    V = np.arange(8.0).reshape(4, 2)
    assert rows.is_identity
    assert rows.expand(V) is V and rows.reduce(V) is V and rows.mean(V) is V
    np.testing.assert_array_equal(rows.index, np.arange(4))
    np.testing.assert_array_equal(rows.counts, np.ones(4))


def test_everything_labelled():
    rows = SharedRows(encode_labels(["b", "a", "b"], 3).codes, 3)
    assert (rows.n_rows, rows.index.tolist(), rows.counts.tolist()) == (2, [1, 0, 1], [1.0, 2.0])
    assert not rows.is_identity


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mean_of_equal_rows_is_that_row(rng, dtype):
    """Check that averaging equal rows returns the row exactly, without rounding.

    Otherwise a start that satisfies the labels would change before the first iteration.
    """
    rows = SharedRows(encode_labels(rng.integers(-1, 3, 300), 300).codes, 300)
    Z = rng.random((rows.n_rows, 7)).astype(dtype)
    np.testing.assert_array_equal(rows.mean(rows.expand(Z)), Z)


def test_expand_gives_exactly_equal_rows(rng):
    y = rng.integers(-1, 4, 50)
    rows = SharedRows(encode_labels(y, 50).codes, 50)
    V = rows.expand(rng.random((rows.n_rows, 3)))
    for c in range(4):
        assert (V[y == c] == V[y == c][0]).all()


def test_read_only_and_fortran_arrays(rng):
    rows = SharedRows(encode_labels([1, 1, -1, 2, 2], 5).codes, 5)
    V = np.asfortranarray(rng.random((5, 4)))
    V.flags.writeable = False
    np.testing.assert_allclose(rows.reduce(V), matrix(rows).T @ V, rtol=1e-15)


def test_labels_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"4.*3"):
        SharedRows(encode_labels([1, 1, 2], 3).codes, 4)


def test_pickle():
    rows = pickle.loads(pickle.dumps(SharedRows(np.array([0, -1, 0]), 3)))
    np.testing.assert_array_equal(rows.reduce(np.array([1.0, 10.0, 100.0])), [101.0, 10.0])


def test_reduce_and_expand_are_means_over_shared_rows(rng):
    rows = SharedRows(encode_labels(LABELS, N).codes, N)
    model = FactorModel(DenseData(np.ones((N, P))), Frobenius(), rows=rows)
    V = rng.uniform(size=(N, K))
    A = reference.label_matrix(LABELS)
    Z = model.reduce(V)
    np.testing.assert_allclose(Z, reference.shared_rows(A, V), rtol=1e-14)
    np.testing.assert_array_equal(model.expand(Z), A @ Z)
