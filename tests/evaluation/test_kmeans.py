"""Tests of k-means clusters: matching with class labels, unusual inputs, and confidence."""

import pickle
from itertools import permutations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from partwise.evaluation.kmeans import Clustering, cluster_representation
from partwise.evaluation.metrics import clustering_accuracy
from partwise.knowledge.labels import encode_labels

DTYPES = [np.float32, np.float64]


def blobs(rng, counts, dtype=np.float64):
    """Return well-separated groups of points in random order, and the group of each point."""
    groups = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    V = 10 * np.eye(len(counts))[groups] + rng.random((len(groups), len(counts)))
    return V.astype(dtype), groups


@pytest.mark.parametrize("dtype", DTYPES)
def test_finds_groups(rng, dtype):
    V, groups = blobs(rng, [20, 12, 30], dtype)
    V.flags.writeable = False
    result = cluster_representation(V, 3, random_state=0)
    assert clustering_accuracy(groups, result.labels) == 1.0
    assert sorted(set(result.labels.tolist())) == [0, 1, 2]
    np.testing.assert_array_equal(result.predict(V), result.labels)
    for name, center in zip(result.names, result.centers):
        np.testing.assert_allclose(center, V[result.labels == name].mean(axis=0), rtol=1e-5)


def test_inertia_is_that_of_scikit_learn(rng):
    V = rng.random((200, 5))
    result = cluster_representation(V, 6, n_init=4, random_state=3)
    own = KMeans(6, n_init=4, random_state=3).fit(V).inertia_
    nearest = ((V[:, None] - result.centers) ** 2).sum(axis=2).min(axis=1).sum()
    # The two implementations stop at slightly different partitions, so only inertia is compared.
    assert nearest == pytest.approx(own, rel=1e-3)


def test_deterministic_and_picklable(rng):
    V = rng.random((150, 4))
    y = encode_labels(rng.integers(-1, 3, 150), 150)
    one, two = (cluster_representation(V, 5, labels=y, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(one.centers, two.centers)
    np.testing.assert_array_equal(one.labels, two.labels)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(V), one.labels)
    assert isinstance(again, Clustering)


# --- class labels of clusters -----------------------------------------------------------------


@pytest.mark.parametrize(
    "known, extra, kind",
    [
        (["cat", "dog"], ["cluster 1", "cluster 2"], "U"),
        (np.array(["cat", "dog"], dtype=object), ["cluster 1", "cluster 2"], "O"),
        (["cluster 1", "dog"], ["cluster 2", "cluster 3"], "U"),
        ([3, 7], [8, 9], "i"),
        (np.array([3, 255], dtype=np.uint8), [256, 257], "i"),
        ([0.5, 2.5], [3.0, 4.0], "f"),
        ([False, True], ["cluster 1", "cluster 2"], "O"),
    ],
)
def test_names_of_all_kinds(rng, known, extra, kind):
    V, groups = blobs(rng, [15, 15, 15, 15])
    classes = np.asarray(known)
    y = np.empty(60, dtype=object)
    for c in (0, 1):  # two samples each of two groups have a label, and the other groups have none
        y[np.flatnonzero(groups == c)[:2]] = classes[c]
    labels = encode_labels(y, 60)
    labels = type(labels)(np.unique(classes), labels.codes)
    result = cluster_representation(V, 4, labels=labels, random_state=0)
    assert result.names.dtype.kind == kind
    for c in (0, 1):
        assert set(result.labels[groups == c].tolist()) == {classes.tolist()[c]}
    others = [set(result.labels[groups == c].tolist()) for c in (2, 3)]
    assert others[0] | others[1] == set(extra) and not others[0] & others[1]
    np.testing.assert_array_equal(result.predict(V), result.labels)


def test_booleans_stay_boolean_when_all_clusters_are_taken(rng):
    V, groups = blobs(rng, [10, 10])
    result = cluster_representation(V, 2, labels=encode_labels(groups == 1, 20), random_state=0)
    assert result.names.dtype == bool
    np.testing.assert_array_equal(result.labels, groups == 1)


def test_clusters_get_the_classes_of_their_labels(rng):
    """Check that each cluster gets the class of its labels, for any order of the classes."""
    V, groups = blobs(rng, [20, 20, 20])
    for order in permutations(["x", "y", "z"]):
        truth = np.array(order)[groups]
        y = np.where(rng.random(60) < 0.4, truth, None)
        result = cluster_representation(V, 3, labels=encode_labels(y, 60), random_state=0)
        np.testing.assert_array_equal(result.labels, truth)


def test_the_match_is_the_best_in_total():
    """Check that the matching of classes and clusters keeps the largest total number of labels.

    Class "a" has most labels in the first cluster, but "b" has labels in no other cluster.
    """
    V = np.repeat([[0.0], [10.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
    y = ["a"] * 4 + ["b"] * 3 + [None] * 3 + ["a"] * 3 + [None] * 7
    result = cluster_representation(V, 2, labels=encode_labels(y, 20), random_state=0)
    # Samples 0 to 9 are the first cluster: it has 4 labels "a" and 3 labels "b"; the second has 3
    # labels "a". Matching "a" with the first cluster keeps 4 labels; matching "b" with it keeps 6.
    assert result.labels[0] == "b" and result.labels[-1] == "a"


def test_a_class_without_a_matched_member_gets_no_cluster(rng):
    """Check that if the labels of two classes lie in one group, the other group gets no class."""
    V, groups = blobs(rng, [10, 10])
    first = np.flatnonzero(groups == 0)
    y = np.full(20, None, dtype=object)
    y[first[:3]], y[first[3]] = "a", "b"
    result = cluster_representation(V, 2, labels=encode_labels(y, 20), random_state=0)
    assert set(result.labels[groups == 0].tolist()) == {"a"}
    assert set(result.labels[groups == 1].tolist()) == {"cluster 1"}


def test_more_classes_than_clusters(rng):
    V, _ = blobs(rng, [10, 10])
    result = cluster_representation(V, 2, labels=encode_labels(list(range(20)), 20), random_state=0)
    assert len(set(result.names.tolist())) == 2 and set(result.names.tolist()) <= set(range(20))


@pytest.mark.parametrize("y", [None, [-1] * 20, [None] * 20])
def test_no_label_at_all(rng, y):
    V, _ = blobs(rng, [10, 10])
    result = cluster_representation(V, 2, labels=encode_labels(y, 20), random_state=0)
    assert sorted(result.names.tolist()) == [0, 1]


def test_labels_do_not_move_clusters(rng):
    V = rng.random((80, 3))
    y = encode_labels(rng.integers(-1, 4, 80), 80)
    plain = cluster_representation(V, 4, random_state=1)
    named = cluster_representation(V, 4, labels=y, random_state=1)
    np.testing.assert_array_equal(plain.centers, named.centers)


# --- unusual inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_fewer_distinct_rows_than_clusters(dtype):
    """Check that fewer distinct rows than clusters raise no warning.

    The settings of pytest turn every warning into an error.
    """
    V = np.array([[1, 0], [0, 1], [1, 0], [0, 0], [0, 1]], dtype=dtype)
    result = cluster_representation(V, 4, random_state=0)
    assert result.centers.shape == (3, 2) and result.names.tolist() == [0, 1, 2]
    assert result.labels[0] == result.labels[2] and result.labels[1] == result.labels[4]
    assert len(set(result.labels.tolist())) == 3


def test_more_clusters_than_samples():
    result = cluster_representation([[0.0], [5.0]], 10, random_state=0)
    assert sorted(result.labels.tolist()) == [0, 1]


def test_all_rows_zero():
    result = cluster_representation(np.zeros((6, 3)), 3, random_state=0)
    assert result.labels.tolist() == [0] * 6
    assert result.confidence(np.ones((2, 3))).tolist() == [1.0, 1.0]


def test_one_sample():
    result = cluster_representation(
        np.array([[1.0, 2.0]]), 3, labels=encode_labels(["me"], 1), random_state=0
    )
    assert result.labels.tolist() == ["me"]


def test_equal_rows_share_a_cluster(rng):
    V = np.repeat(rng.random((8, 3)), 6, axis=0)
    result = cluster_representation(V, 5, random_state=0)
    assert all(len(set(part.tolist())) == 1 for part in np.split(result.labels, 8))


@pytest.mark.parametrize(
    "V, n_clusters, error, message",
    [
        (np.zeros(4), 2, ValueError, r"shape \(4,\)"),
        (np.zeros((0, 2)), 2, ValueError, r"shape \(0, 2\)"),
        (np.array([[np.nan], [1.0]]), 2, ValueError, "finite"),
        (np.ones((3, 2)), 0, ValueError, "n_clusters.*0"),
        (np.ones((3, 2)), 2.0, TypeError, "integer, got 2.0"),
        (np.array([["a"]]), 1, TypeError, "real numbers"),
    ],
)
def test_refused(V, n_clusters, error, message):
    with pytest.raises(error, match=message):
        cluster_representation(V, n_clusters)


def test_lengths_must_agree(rng):
    with pytest.raises(ValueError, match=r"labels.*5.*V.*4"):
        cluster_representation(rng.random((5, 2)), 2, labels=encode_labels([1, 2, 1, 2], 4))
    result = cluster_representation(rng.random((5, 2)), 2, random_state=0)
    with pytest.raises(ValueError, match=r"2.*3"):
        result.predict(rng.random((5, 3)))


# --- confidence -------------------------------------------------------------------------------


@pytest.fixture
def line():
    """Return a clustering of numbers with the centres 0, 4 and 10, labelled "a", "b" and "c"."""
    return Clustering(np.array([[0.0], [4.0], [10.0]]), np.array(["a", "b", "c"]), np.array(["a"]))


def test_confidence_by_hand(line):
    V = np.array([[0.0], [2.0], [3.0], [7.0], [100.0]])
    expected = [1.0, 0.0, (3 - 1) / (3 + 1), 0.0, (96 - 90) / (96 + 90)]
    np.testing.assert_allclose(line.confidence(V), expected, atol=1e-15)
    assert line.predict(V).tolist()[0::2] == ["a", "b", "c"]


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e150])
def test_confidence_stays_between_zero_and_one(rng, scale):
    """Check that the confidence stays in [0, 1] for any scale of V, and is 0 for equal centres."""
    centers = scale * np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    result = Clustering(centers, np.arange(3), np.arange(3))
    V = np.vstack([centers, scale * rng.random((20, 2))])
    sure = result.confidence(V)
    assert (sure >= 0).all() and (sure <= 1).all()
    np.testing.assert_allclose(sure[:2], 0)


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
def test_clusters_do_not_depend_on_the_unit(scale):
    """Check that clusters do not depend on the unit of V, even if float32 squares overflow."""
    V = (np.array([[1.0], [1.1], [5.0], [5.1]]) * scale).astype(np.float32)
    found = cluster_representation(V, 2, random_state=0)
    assert found.labels[0] == found.labels[1] != found.labels[2] == found.labels[3]
    assert found.predict(V).tolist() == found.labels.tolist()


def test_a_class_that_is_nowhere_likely_has_a_decision():
    from partwise.evaluation.groups import fit_head

    V, P = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    shares = fit_head(V, np.arange(2), P).probabilities(V)
    assert shares.shape == (2, 3) and shares.argmax(axis=1).tolist() == [0, 1]
    shares = fit_head(V[:1], np.arange(1), np.array([[0.0, 1.0]])).probabilities(V[:1])
    assert shares.argmax() == 1
