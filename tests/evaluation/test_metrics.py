"""Tests of clustering scores and sparseness against naive formulas and hand-computed values."""

import math
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.evaluation.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
    purity,
    sparseness,
)

SCORES = [clustering_accuracy, normalized_mutual_info, adjusted_rand, purity]

pairs = st.integers(1, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
        st.lists(st.integers(0, 4), min_size=n, max_size=n),
    )
)


def accuracy_by_trying(y_true, y_pred):
    """Return the best accuracy over all one-to-one maps from clusters to classes.

    A cluster may also be mapped to None, which is no class.
    """
    classes, clusters = sorted(set(y_true)), sorted(set(y_pred))
    targets = classes + [None] * len(clusters)
    return max(
        np.mean([dict(zip(clusters, chosen))[p] == t for t, p in zip(y_true, y_pred)])
        for chosen in set(permutations(targets, len(clusters)))
    )


def entropy(names):
    return -sum(p * np.log(p) for p in (names.count(name) / len(names) for name in set(names)))


def rand_by_pairs(y_true, y_pred):
    """Return the adjusted Rand index, computed from all pairs of samples."""
    pairs = list(combinations(range(len(y_true)), 2))
    a = [y_true[i] == y_true[j] for i, j in pairs]
    b = [y_pred[i] == y_pred[j] for i, j in pairs]
    if a == b:
        return 1.0
    expected = sum(a) * sum(b) / len(pairs)
    both = sum(x and y for x, y in zip(a, b))
    return (both - expected) / ((sum(a) + sum(b)) / 2 - expected)


@given(pairs)
@settings(max_examples=40, deadline=None)
def test_against_naive_formulas(pair):
    y_true, y_pred = pair
    apart = entropy(y_true) + entropy(y_pred) - entropy(list(zip(y_true, y_pred)))
    larger = max(entropy(y_true), entropy(y_pred))
    # The absolute tolerance covers the rounding of about ten logarithms.
    expected = apart / larger if larger > 0 else 1.0
    assert normalized_mutual_info(y_true, y_pred) == pytest.approx(expected, abs=1e-12)
    assert adjusted_rand(y_true, y_pred) == pytest.approx(rand_by_pairs(y_true, y_pred))
    table = np.histogram2d(y_true, y_pred, bins=[np.arange(-0.5, 5), np.arange(-0.5, 6)])[0]
    assert purity(y_true, y_pred) == pytest.approx(table.max(axis=0).sum() / len(y_true))
    assert clustering_accuracy(y_true, y_pred) <= purity(y_true, y_pred) + 1e-15


@given(pairs)
@settings(max_examples=15, deadline=None)
def test_accuracy_is_the_best_matching(pair):
    y_true, y_pred = pair[0][:12], pair[1][:12]
    assert clustering_accuracy(y_true, y_pred) == pytest.approx(accuracy_by_trying(y_true, y_pred))


@pytest.mark.parametrize("score", SCORES)
def test_class_names_do_not_matter(score, rng):
    y_true, y_pred = rng.integers(0, 4, 40), rng.integers(0, 5, 40)
    expected = score(y_true, y_pred)
    words = np.array(["one", "two", "three", "four", "five"])
    # These class names cannot be sorted.
    mixed = np.array([1, "1", 2.5, ("a", "b"), False], dtype=object)
    named = words[y_pred]
    for other in (
        named,
        named.astype(object),
        named.tolist(),
        mixed[y_pred],
        pd.Series(named, index=rng.permutation(40)),
        pd.Categorical(named),
    ):
        assert score(y_true, other) == pytest.approx(expected)
        assert score(other, y_true) == pytest.approx(score(y_pred, y_true))
    assert score(words[y_true], y_pred[:, None]) == pytest.approx(expected)


@pytest.mark.parametrize("score", SCORES)
def test_the_same_partition_is_perfect(score):
    assert score([3, 3, 1, 2], ["c", "c", "a", "b"]) == pytest.approx(1.0)
    assert score([0], ["x"]) == 1.0
    assert score([0, 0], ["x", "x"]) == 1.0
    assert score([0, 1, 2], [2, 0, 1]) == pytest.approx(1.0)


def test_known_values():
    assert clustering_accuracy([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(4 / 6)
    assert purity([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(5 / 6)
    assert normalized_mutual_info([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0.0, abs=1e-15)
    assert normalized_mutual_info([0, 1], [0, 0]) == 0.0
    assert adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


def test_many_samples_do_not_overflow():
    """Check the scores of 300,000 samples.

    Products of pair counts exceed 2⁶³ from about 80,000 samples on.
    """
    y = np.repeat([0, 1], 150_000)
    shifted = np.roll(y, 30_000)
    half, few, most = (math.comb(n, 2) for n in (150_000, 30_000, 120_000))
    expected = (2 * half) ** 2 / math.comb(300_000, 2)
    by_hand = (2 * few + 2 * most - expected) / (2 * half - expected)
    assert adjusted_rand(y, shifted) == pytest.approx(by_hand)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "y_true, y_pred, message",
    [
        ([0, 1], [0], "2 and 1"),
        ([], [], "y_true"),
        ([0, 1], [[0, 1], [1, 0]], r"y_pred.*\(2, 2\)"),
        ([0, None], [0, 1], "y_true"),
        (["a", "b"], [0.0, np.nan], "y_pred"),
        ([0, 1], ["a", float("nan")], "y_pred"),
        ([0, 1], [0, pd.NA], "y_pred"),
    ],
)
def test_refused(score, y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        score(y_true, y_pred)


# --- sparseness -------------------------------------------------------------------------------


def hoyer(x):
    n = x.size
    return (np.sqrt(n) - abs(x).sum() / np.sqrt((x**2).sum())) / (np.sqrt(n) - 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparseness_is_the_formula(rng, dtype):
    M = (rng.random((6, 4)) * (rng.random((6, 4)) < 0.6)).astype(dtype)
    M[0] = M[:, 0] = 0.3
    M.flags.writeable = False
    wide = M.astype(np.float64)
    assert sparseness(M) == pytest.approx(hoyer(wide.ravel()))
    np.testing.assert_allclose(sparseness(M, axis=0), [hoyer(c) for c in wide.T], atol=1e-14)
    np.testing.assert_allclose(sparseness(M, axis=1), [hoyer(r) for r in wide], atol=1e-14)
    assert sparseness(-M) == sparseness(M)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparseness_of_sparse_is_that_of_dense(rng, make):
    M = rng.random((6, 4)) * (rng.random((6, 4)) < 0.5)
    M[2] = 0
    for axis in (None, 0, 1):
        np.testing.assert_allclose(sparseness(make(M), axis=axis), sparseness(M, axis=axis))


def test_sparseness_at_the_ends():
    assert sparseness(np.ones((3, 5))) == pytest.approx(0.0, abs=1e-15)
    assert sparseness(np.eye(1, 7)) == 1.0
    # The squares of these entries would overflow or underflow.
    for scale in (1e300, 1e-300):
        assert sparseness(scale * np.array([3.0, 4.0])) == pytest.approx(hoyer(np.array([3.0, 4])))


def test_sparseness_where_it_is_not_defined():
    assert np.isnan(sparseness(np.zeros((2, 2))))
    assert np.isnan(sparseness([[2.0]]))
    np.testing.assert_array_equal(sparseness([[0.0, 1.0], [0.0, 0.0]], axis=0), [np.nan, 1.0])


@pytest.mark.parametrize(
    "M, axis, error, message",
    [
        (np.empty((0, 3)), None, ValueError, "entry"),
        ([[1.0, np.nan]], None, ValueError, "finite"),
        ([[1.0]], 2, ValueError, "axis"),
        ([1.0, 2.0], 0, ValueError, "axis"),
        ([[1j]], None, TypeError, "real"),
    ],
)
def test_sparseness_refuses(M, axis, error, message):
    with pytest.raises(error, match=message):
        sparseness(M, axis)


def test_labelled_accuracy_chooses_by_names():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV

    from partwise import GNMF
    from partwise.metrics import labelled_accuracy

    X, y = load_digits(n_class=3, return_X_y=True)
    X, y = X[:150], y[:150].copy()
    y[::2] = -1
    grid = {"graph_reg": [0.1, 1.0]}
    model = GNMF(5, random_state=0, max_iter=50, tol=1e-2)
    found = GridSearchCV(model, grid, scoring=labelled_accuracy, cv=3, error_score="raise")
    found.fit(X, y)
    assert 0.8 < found.best_score_ <= 1

    class Constant:
        def predict(self, X):
            return np.full(len(X), 1)

    assert labelled_accuracy(Constant(), X, y) == np.mean(y[y >= 0] == 1)
    assert np.isnan(labelled_accuracy(Constant(), X, np.full(150, -1)))
