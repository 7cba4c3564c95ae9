"""Tests of the texts with which reports describe parts and clusters."""

import numpy as np
import scipy.sparse as sp

from partwise.apps.view.describe import about, number_like_parts
from partwise.evaluation.kmeans import cluster_representation
from partwise.io import Samples
from partwise.io.genes import specificity, top_features


def test_specificity_is_the_formula():
    M = np.array([[9.0, 3.0, 0.0], [9.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    P = M / np.maximum(M.sum(axis=1, keepdims=True), 1)
    q = P[:2].mean(axis=0)
    for i, row in enumerate(P):
        for j, p in enumerate(row):
            expected = p * np.log(p / q[j]) if p > 0 else 0.0
            assert np.isclose(specificity(M)[i, j], expected)
    assert top_features(M, ["all", "first", "second"], 1) == [["first"], ["second"], []]


def test_words_of_clusters_are_those_that_others_lack():
    X = sp.csr_array(np.array([[2.0, 1, 0], [2, 2, 0], [2, 0, 1], [2, 0, 2]]))
    samples = Samples(X, list("abcd"), "texts", feature_names=["common", "sea", "sky"])
    assert about(samples, ["1", "1", "2", "2"]) == {"1": ["sea"], "2": ["sky"]}
    assert about(samples, ["1"] * 4) == {}
    nameless = Samples(X, list("abcd"), "counts")
    assert about(nameless, ["1", "1", "2", "2"]) == {}


def test_columns_of_a_table_are_high_or_low():
    X = np.array([[1.0, 0, 1, 0], [0.9, 0, 1, 0], [0.1, 1, 0, 1], [0.0, 1, 0, 1]])
    names = ["price", "new = yes", "land = DE", "land = FR"]
    columns = (("price", "number", ""), ("new", "yes/no", ""), ("land", "category", ""))
    samples = Samples(X, list("abcd"), "table", feature_names=names, columns=columns)
    found = about(samples, ["x", "x", "y", "y"])
    assert set(found["x"]) == {"high price", "new = no", "land = DE"}
    assert set(found["y"]) == {"low price", "new = yes", "land = FR"}


def test_clusters_are_numbered_like_the_parts_they_use():
    centers = np.array([[0.0, 9.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.1, 3.0]])
    assert number_like_parts(centers) == [2, 1, 3]
    more = number_like_parts(np.vstack([centers, [1, 1, 1]]))
    assert sorted(more) == [1, 2, 3, 4] and len(set(more)) == 4


def test_clusters_by_proportion_ignore_the_size_of_codes(rng):
    direction = np.repeat(np.eye(2), 30, axis=0) + 0.05 * rng.random((60, 2))
    V = direction * rng.lognormal(0, 2, (60, 1))  # texts of two topics, with very different lengths
    found = cluster_representation(V, 2, unit=True, random_state=0)
    assert len(set(found.labels[:30])) == len(set(found.labels[30:])) == 1
    assert found.labels[0] != found.labels[30]
    assert (found.predict(1000 * V) == found.labels).all()
    assert np.allclose(found.confidence(1000 * V), found.confidence(V))
    plain = cluster_representation(V, 2, random_state=0)
    assert len(set(plain.labels[:30])) + len(set(plain.labels[30:])) > 2
