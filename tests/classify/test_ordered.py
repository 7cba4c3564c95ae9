"""Tests of features from the order of columns: edges of images, frequencies of series."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from sklearn.preprocessing import scale

from partwise import PartsClassifier
from partwise.classify import preparation
from reference import edge_histograms

EPS = np.finfo(float).eps


def pictures(n: int = 60, height: int = 16, width: int = 12) -> np.ndarray:
    rng = np.random.RandomState(0)
    return gaussian_filter(rng.random((n, height, width)), (0, 1.5, 1.5)).reshape(n, -1)


def series(n: int = 90, p: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return series of noise with three degrees of smoothness, and the degree as class.

    No single point of a series reveals its class.
    """
    rng, y = np.random.RandomState(1), np.arange(n) % 3
    X = [gaussian_filter1d(rng.standard_normal(p), 2.0 ** (1 + c), mode="wrap") for c in y]
    return scale(np.array(X), axis=1), y


def test_edges_are_the_naive_histograms():
    X = pictures(5)
    made = preparation.edges(X, 12)
    for x, mine in zip(X, made, strict=True):
        naive = edge_histograms(x.reshape(16, 12), preparation.DIRECTIONS, side=2)
        # The values are sums of a few terms, divided by norms, and at most one.
        np.testing.assert_allclose(mine, naive, atol=1000 * EPS)


def test_images_series_and_spectra_are_recognised():
    assert preparation.descriptions(pictures()) == {"edges": 12}
    assert preparation.descriptions(pictures(height=20, width=20)) == {"edges": 20}
    # This is the largest accepted ratio of width to height.
    assert preparation.descriptions(pictures(height=8, width=16)) == {"edges": 16}
    assert set(preparation.descriptions(series()[0])) == {"differences", "frequencies"}
    short = np.cumsum(np.random.RandomState(0).standard_normal((50, 24)), axis=1)
    assert set(preparation.descriptions(short)) == {"differences"}


@pytest.mark.parametrize(("n", "looked_at"), [(2, 2), (900, 900), (1000, 500), (5000, 500)])
def test_of_many_samples_some_are_looked_at(n, looked_at):
    assert len(preparation._standard(np.eye(n, 3))) == looked_at


@pytest.mark.parametrize("X", [pictures(), series()[0], np.cumsum(series()[0], axis=1)])
def test_columns_in_any_order_have_none(X):
    shuffled = X[:, np.random.RandomState(2).permutation(X.shape[1])]
    assert preparation.descriptions(shuffled) == {}
    assert preparation.descriptions(np.ones((5, 60))) == {}
    assert preparation.descriptions(X[:1]) == {}


@pytest.mark.parametrize("times", [1e-300, 1.0, 1e300])
def test_scaling_samples_does_not_change_the_features(times):
    X = pictures(5)
    np.testing.assert_allclose(
        preparation.edges(times * X, 12), preparation.edges(X, 12), atol=1000 * EPS
    )
    X = series(5)[0]
    close = 1000 * EPS / preparation.FLOOR  # the logarithm of what is left of a frequency
    np.testing.assert_allclose(
        preparation.frequencies(times * X), preparation.frequencies(X), atol=close
    )


def test_when_a_series_begins_changes_nothing():
    X = series(5)[0]
    close = 1000 * EPS / preparation.FLOOR
    moved = np.roll(X, 17, axis=1)
    np.testing.assert_allclose(
        preparation.frequencies(moved), preparation.frequencies(X), atol=close
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_without_a_change_are_finite(dtype):
    flat = np.array([[0.0], [1.0], [0.1]], dtype) * np.ones(144, dtype)
    assert not preparation.edges(flat, 12).any()
    np.testing.assert_array_equal(preparation.frequencies(flat), np.log(preparation.FLOOR))


def test_series_are_classified_for_any_shift():
    X, y = series()
    known = np.where(np.arange(y.size) < 12, y, -1)
    model = PartsClassifier(max_iter=10).fit(X, known)
    assert np.mean(model.transduction_ == y) > 0.95
    assert any("(frequencies)" in row.name for row in model.candidates_)
    shuffled = PartsClassifier(max_iter=10).fit(
        X[:, np.random.RandomState(2).permutation(120)], known
    )
    # Without the order of the columns, the classes are hard to distinguish.
    assert np.mean(shuffled.transduction_ == y) < 0.8
