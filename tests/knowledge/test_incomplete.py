"""Tests of neighbour graphs of samples with missing values.

Distances use the entries that both samples have.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from backends import KINDS, ON_DASK, Forms
from partwise.fitting.special_arrays import with_gaps, without_gaps
from partwise.knowledge.graph import learn_neighborhood, neighbor_graph
from partwise.knowledge.graph._incomplete import IncompleteSamples, search


def clusters(seed, n=90, p=40):
    """Return samples near three centres, and a mask that hides 40% of the entries of each sample.

    The hidden features of a sample are consecutive and begin anywhere.
    """
    rng = np.random.default_rng(seed)
    V = np.eye(3)[rng.integers(0, 3, n)] + 0.02 * rng.random((n, 3))
    X = V @ rng.gamma(0.5, size=(3, p))
    start = rng.integers(0, p, n)[:, None]
    return X, (np.arange(p) - start) % p < 0.4 * p


def incomplete(X, hidden, entry_weight=None, make=np.asarray):
    """Return samples with missing values in the form in which a fit passes them to the search."""
    X, missing = (X, np.nan) if make is np.asarray else (np.where(hidden, 0, X), 0)
    X = np.where(hidden, np.nan, X) if make is np.asarray else X
    base, places, seen = without_gaps(make(X), missing)
    return IncompleteSamples.of(with_gaps(base, places, seen, entry_weight))


def naive_squares(X, M, new=None, weights=None):
    """Return the squared distances of samples with missing values, by the definition.

    Entries that both samples have contribute their squared difference; every other entry
    contributes twice the variance of the feature.
    """
    N, R = (X, M) if new is None else (new, weights)
    mean = (M * X).sum(axis=0) / M.sum(axis=0)
    twice = 2 * (M * (X - mean) ** 2).sum(axis=0) / M.sum(axis=0)
    shared = R[:, None] * M[None]
    return (shared * (N[:, None] - X[None]) ** 2 + (1 - shared) * twice).sum(axis=2)


@pytest.mark.parametrize("graph_reg", [1.0, 10.0])
def test_a_graph_of_clusters_keeps_what_the_hidden_entries_are(graph_reg):
    """Check that GNMF predicts hidden entries of clustered samples to 2%.

    If the search filled missing values with means, the error would be 20% to 50%.
    """
    X, hidden = clusters(1)
    settings = {"missing_values": np.nan, "random_state": 0, "max_iter": 200, "tol": 0.0}
    given = np.where(hidden, np.nan, X)
    for model, most in (
        (partwise.NMF(3, **settings), 1e-3),
        (partwise.GNMF(3, graph_reg=graph_reg, **settings), 0.02),
    ):
        found = model.inverse_transform(model.fit_transform(given))
        assert np.linalg.norm((found - X)[hidden]) < most * np.linalg.norm(X[hidden])


@pytest.mark.parametrize("blocks", [1024, 16], ids=["one block", "blocks"])
@pytest.mark.parametrize("entries", ["dense", "csr", "weights"])
def test_distances_are_their_definition(entries, blocks, rng, monkeypatch):
    monkeypatch.setattr("partwise.knowledge.graph._incomplete.ENTRIES", blocks * 30)
    X, hidden = 1 + rng.random((60, 30)), rng.random((60, 30)) < 0.5
    M = 1.0 - hidden
    if entries == "weights":
        W = 0.2 + rng.random(X.shape)
        M = M * W
        samples = incomplete(X, hidden, W)
        M /= M.max(axis=1, keepdims=True)
    else:
        samples = incomplete(X, hidden, make=sp.csr_array if entries == "csr" else np.asarray)
    D = naive_squares(X, M)
    np.fill_diagonal(D, np.inf)
    indices, squares = search(samples, 6)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1)[:, :6])
    np.testing.assert_allclose(squares, np.sort(D, axis=1)[:, :6], rtol=1e-9)
    new, R = X[:7] + 0.1 * rng.random((7, 30)), 1.0 * (rng.random((7, 30)) < 0.7)
    D = naive_squares(X, M, new, R)
    indices, squares = search(samples, 4, incomplete(new, R == 0))
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1)[:, :4])
    np.testing.assert_allclose(squares, np.sort(D, axis=1)[:, :4], rtol=1e-9)


@pytest.mark.parametrize("weighting", ["binary", "heat", "dot"])
def test_weights_of_edges(weighting, rng):
    X, hidden = rng.random((40, 20)), rng.random((40, 20)) < 0.4
    found = learn_neighborhood(incomplete(X, hidden), 3, weighting, None, "exact", 0)
    M = 1.0 - hidden
    D = naive_squares(X, M)
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D, axis=1)[:, :3]
    t = np.sqrt(np.take_along_axis(D, near, 1)).mean()
    dots = ((M * X) @ (M * X).T) * 20 / (M @ M.T)
    weights = {"binary": np.ones_like(D), "heat": np.exp(-D / (2 * t**2)), "dot": dots}[weighting]
    W = np.zeros_like(D)
    np.put_along_axis(W, near, np.take_along_axis(weights, near, 1), 1)
    np.testing.assert_allclose(found.graph.toarray(), np.maximum(W, W.T), rtol=1e-9)


def test_samples_without_a_shared_entry_are_not_joined(rng):
    X, hidden = rng.random((12, 8)), np.zeros((12, 8), dtype=bool)
    hidden[:3, 4:] = hidden[3:, :4] = True
    W = learn_neighborhood(incomplete(X, hidden), 5, "binary", None, "exact", 0).graph
    assert W[:3, 3:].nnz == 0 and W[:3, :3].nnz and W[3:, 3:].nnz


def test_complete_samples_have_the_graph_that_they_had(rng):
    X = rng.random((50, 6))
    samples = IncompleteSamples(X, np.zeros(X.shape, dtype=bool), False)
    W = learn_neighborhood(samples, 4, "heat", None, "exact", 0).graph
    np.testing.assert_allclose(W.toarray(), neighbor_graph(X, 4, weighting="heat").toarray())


@pytest.mark.parametrize("kind", ["numpy", *KINDS])
def test_every_kind_of_array(kind, tmp_path):
    """Check that every array type gives the same graph, or a warning that it differs."""
    X, hidden = clusters(0, n=60)
    forms = Forms(np.where(hidden, np.nan, X), tmp_path)
    settings = {"random_state": 0, "max_iter": 5, "tol": 0.0}
    model = partwise.GNMF(3, graph_reg=1.0, missing_values=np.nan, **settings)
    if kind in ("memmap", *ON_DASK):
        with pytest.warns(UserWarning, match="graph="):
            model.fit(forms[kind])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(forms[kind], graph=neighbor_graph(X))
        return
    expected = learn_neighborhood(incomplete(X, hidden), 5, "binary", None, "exact", 0)
    again = partwise.load(model.fit(forms[kind]).save(tmp_path / "m.partwise"))
    np.testing.assert_array_equal(again._neighborhood["graph"].toarray(), expected.graph.toarray())
    codes = again.set_params(max_iter=200).transform(np.where(hidden, np.nan, X)[::-1])
    there = np.asarray(model.set_params(max_iter=200).transform(forms[kind]))
    np.testing.assert_allclose(there, codes[::-1], atol=1e-6)


def test_a_sample_of_the_fit_has_its_own_neighbours(rng):
    X, hidden = clusters(2)
    samples = incomplete(X, hidden)
    learnt = learn_neighborhood(samples, 4, "binary", None, "exact", 0)
    edges = learnt.edges(incomplete(X[:20], hidden[:20]), 4, "binary")
    np.testing.assert_array_equal(edges.toarray(), learnt.graph[:20].toarray())
    complete = learnt.edges(X[:20], 4, "binary")  # without missing values, these are other samples
    assert (complete.sum(axis=1) == 4).all()
