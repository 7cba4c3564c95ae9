"""Tests of copies of a fitted PartsClassifier with other labels, classifier weights or parts."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from partwise import PartsClassifier
from partwise.classify import edited_parts


@pytest.fixture(scope="module")
def data():
    """Return three groups of 30 samples with ten features each."""
    rng = np.random.default_rng(0)
    group = np.arange(90) % 3
    X = rng.uniform(0, 0.2, size=(90, 30))
    for g in range(3):
        X[group == g, 10 * g : 10 * g + 10] += rng.uniform(0.5, 1, size=(30, 10))
    return X, group


@pytest.fixture(scope="module")
def prepared(data):
    return PartsClassifier(n_parts=6, random_state=0).prepare(data[0])


def known(group, step=3, seed=0):
    """Return the labels of one third of the samples, and -1 for the others."""
    return np.where((np.arange(90) + seed) // 3 % step == 0, group, -1)


@pytest.mark.usefixtures("few_trees")
def test_a_copy_is_relabelled_by_itself(prepared, data):
    first, second = copy.copy(prepared), copy.copy(prepared)
    first.relabel(known(data[1]))
    before = first.label_distributions_.copy()
    second.relabel(np.minimum(known(data[1], seed=3), 1))
    assert not hasattr(prepared, "classes_")
    assert list(first.classes_) == [0, 1, 2] and second.embedding_ is first.embedding_
    np.testing.assert_array_equal(first.label_distributions_, before)
    np.testing.assert_array_equal(first.labelled_, np.flatnonzero(known(data[1]) >= 0))
    alone = PartsClassifier(n_parts=6, random_state=0).prepare(data[0]).relabel(known(data[1]))
    np.testing.assert_array_equal(alone.label_distributions_, before)


@pytest.mark.usefixtures("few_trees")
def test_weights_of_another_model_are_as_good_as_ones_own(prepared, data):
    weighed, own, other = (copy.copy(prepared) for _ in range(3))
    weighed.relabel(known(data[1]))
    # The second call computes new weights of the classifiers.
    own.relabel(known(data[1])).relabel(known(data[1], 2))
    taken = other.relabel(known(data[1], 2), weigh=weighed.weighting_)
    chosen = {row.name for row in weighed.candidates_}
    assert {row.name for row in taken.candidates_} <= chosen
    assert (taken.transduction_ == data[1]).all()
    assert np.isnan(taken.expected_accuracy_.accuracy) and own.expected_accuracy_.accuracy > 0.9
    # Another temperature of the stored calibration changes the probabilities.
    hot = weighed.weighting_
    hot["calibration"] = replace(hot["calibration"], heat=0.1)
    p = copy.copy(prepared).relabel(known(data[1], 2), weigh=hot).label_distributions_
    assert p.max(axis=1).mean() < taken.label_distributions_.max(axis=1).mean() - 0.01


@pytest.mark.usefixtures("few_trees")
def test_weights_of_another_model_give_its_predictions(prepared, rng):
    """Check that a copy with the classifier weights of a fitted model gives the same predictions.

    The labels have no pattern, so slow classifiers such as trees have most of the weight.
    """
    y = np.where(np.arange(90) < 30, rng.integers(0, 3, 90), -1)  # labels without a pattern
    weighed = copy.copy(prepared).relabel(y)
    slow = sum(row.weight for row in weighed.candidates_ if "trees" in row.name)
    assert slow > 0
    fast = copy.copy(prepared).relabel(y, weigh=weighed.weighting_)
    p = weighed.label_distributions_
    np.testing.assert_allclose(fast.label_distributions_, p, atol=1e-3)


def test_a_split_keeps_the_product_and_a_merge_its_column_sums(rng):
    V, H = rng.random((8, 3)), rng.random((3, 5))
    halves = edited_parts._split(V, H, 1)
    np.testing.assert_allclose(halves[0] @ halves[1], V @ H)
    assert halves[1].shape == (4, 5) and not np.allclose(halves[1][1], halves[1][2])
    for i, j in ((0, 2), (2, 0)):
        merged = edited_parts._merge(V, H, i, j)
        np.testing.assert_allclose((merged[0] @ merged[1]).sum(axis=0), (V @ H).sum(axis=0))
        assert merged[1].shape == (2, 5)
        np.testing.assert_array_equal(merged[1][1 if i == 0 else 0], H[1])


def test_edits_follow_each_other(prepared):
    H = prepared.components_
    edited = prepared.edit_parts([("merge", 1, 4), ("split", 2), ("split", 0)])
    assert edited.components_.shape == (7, 30) and edited.embedding_.shape == (90, 7)
    assert prepared.components_ is H and not hasattr(edited, "classes_")


def test_fixed_parts_keep_their_features(prepared):
    edited = prepared.edit_parts([("split", 0)], fixed=[3])
    np.testing.assert_array_equal(edited.components_[3], prepared.components_[2])
    assert not np.array_equal(edited.components_[4], prepared.components_[3])


def test_a_part_to_avoid_is_hardly_used(prepared, data):
    members = data[1] == 0
    use = prepared.embedding_[members].sum(axis=0)
    part = int(use.argmax())
    edited = prepared.edit_parts(avoid={part: members})
    assert edited.embedding_[members, part].sum() < 0.5 * use[part]
    edited.relabel(known(data[1]), weigh=False)
    assert (edited.transduction_ == data[1]).mean() > 0.9


@pytest.mark.parametrize(
    ("edits", "fixed", "avoid", "named"),
    [
        ([("melt", 0)], (), {}, "melt"),
        ([("merge", 0)], (), {}, "merge"),
        ([("merge", 1, 1)], (), {}, "1, 1"),
        ([("split", 6)], (), {}, "6"),
        ([("merge", 0, 1), ("split", 5)], (), {}, "5"),
        ((), [9], {}, "9"),
        ((), (), {-1: [0]}, "-1"),
    ],
)
def test_edits_that_make_no_sense(prepared, edits, fixed, avoid, named):
    with pytest.raises(ValueError, match=named):
        prepared.edit_parts(edits, fixed=fixed, avoid=avoid)
