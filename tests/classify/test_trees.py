"""Tests of the randomised decision trees of PartsClassifier."""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import ExtraTreeClassifier, ExtraTreeRegressor

from partwise.classify import classifiers


@pytest.fixture
def grown(rng):
    y = np.arange(12) % 3
    return classifiers.grow_trees(rng.random((12, 4)), y, np.ones(12), 3, 0, 5)


def test_trees_accept_one_class_per_sample(rng):
    """Check that trees work with one class per sample, without a warning."""
    Z = rng.random((30, 3)).astype(np.float32)
    grown = classifiers.grow_trees(Z, np.arange(30), np.ones(30), 30, 0, 5)
    votes = classifiers.tree_scores(grown, Z, 30)
    assert votes.argmax(axis=1).tolist() == list(range(30))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_child_lies_behind_its_parent_and_within_the_forest(grown, side):
    classifiers.check_trees(grown, 4, 3)
    inner = int(np.flatnonzero(grown["feature"] >= 0)[-1])
    for child in (inner, inner - 1, grown["feature"].size):
        forged = {**grown, side: grown[side].copy()}
        forged[side][inner] = child
        with pytest.raises(ValueError):
            classifiers.check_trees(forged, 4, 3)


@pytest.mark.parametrize(
    ("name", "value"), [("feature", 4), ("feature", -2), ("label", 3), ("roots", -1)]
)
def test_numbers_outside_of_the_forest_are_refused(grown, name, value):
    forged = {**grown, name: grown[name].copy()}
    forged[name][0] = value
    with pytest.raises(ValueError):
        classifiers.check_trees(forged, 4, 3)


def test_a_threshold_that_is_not_finite_is_refused(grown):
    with pytest.raises(ValueError):
        classifiers.check_trees({**grown, "threshold": grown["threshold"] * np.nan}, 4, 3)


def test_votes_are_those_of_scikit_learns_trees():
    X, y = load_digits(n_class=4, return_X_y=True)
    grown = classifiers.grow_trees(X[:60], y[:60], np.ones(60), 5, 0, 20)
    rng, Y = np.random.RandomState(0), np.eye(5)[y[:60]]
    tree = ExtraTreeRegressor(max_features="sqrt", random_state=rng)
    weights = 1 / np.bincount(y[:60])[y[:60]]
    # The leaves are pure, so the class shares in a leaf are votes.
    votes = sum(tree.fit(X[:60], Y, weights).predict(X) for _ in range(20))
    np.testing.assert_allclose(
        classifiers.tree_scores(grown, X, 5), np.log((votes + 0.1) / 20.5), atol=1e-12
    )
    assert not votes[:, 4].any()  # class 4 has no label


def test_trees_of_indicators_are_those_of_a_classifier():
    X = np.random.default_rng(0).standard_normal((32, 50)).astype(np.float32)
    y = np.arange(32) % 4  # eight of a class: sums of their weights are exact, so ties are the same
    grown, rng = classifiers.grow_trees(X, y, np.ones(32), 4, 7, 20), np.random.RandomState(7)
    roots = [*grown["roots"], grown["feature"].size]
    same = []
    for begin, end in itertools.pairwise(roots):
        naive = ExtraTreeClassifier(random_state=rng).fit(X, y).tree_
        mine = (grown["feature"][begin:end], grown["threshold"][begin:end])
        same.append(
            np.array_equal(mine[0], np.maximum(naive.feature, -1))
            and np.array_equal(mine[1], naive.threshold)
        )
    assert np.mean(same) >= 0.8  # rounding sometimes decides between two equally good splits
