"""Tests of `spatial_graph`, which connects samples by their positions, and of its uses."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import GNMF, PartsClassifier, select
from partwise.graph import join_graphs, morans_i, neighbor_graph, pixel_places, spatial_graph


def naive(places, k, radius=np.inf):
    """Return max(N, Nᵀ), where N connects each position to its k nearest ones within the radius."""
    d = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(d, np.inf)
    N = np.zeros(d.shape)
    for i, row in enumerate(d):
        near = np.argsort(row)[:k]
        N[i, near[row[near] <= radius]] = 1
    return np.maximum(N, N.T)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_nearest_places_are_neighbours(dim):
    places = np.random.default_rng(0).uniform(size=(40, dim))
    np.testing.assert_array_equal(spatial_graph(places, 4).toarray(), naive(places, 4))
    np.testing.assert_array_equal(
        spatial_graph(places, 4, radius=0.2).toarray(), naive(places, 4, 0.2)
    )
    np.testing.assert_array_equal(
        spatial_graph(places, None, radius=0.2).toarray(), naive(places, 40, 0.2)
    )
    # neighbor_graph searches all pairs; its distances differ only in the order of summation.
    np.testing.assert_allclose(
        spatial_graph(places, 4, weighting="heat").toarray(),
        neighbor_graph(places, 4, weighting="heat").toarray(),
        rtol=1e-13,
    )


def test_cells_at_one_place_are_neighbours_of_each_other():
    places = np.zeros((4, 2))
    W = spatial_graph(places, 3).toarray()
    np.testing.assert_array_equal(W, 1 - np.eye(4))
    assert not np.diag(spatial_graph(np.repeat(places, 5, axis=0), 3).toarray()).any()


def test_slides_are_not_joined():
    places = pixel_places((4, 5))
    twice = np.concatenate([places, places])
    W = spatial_graph(twice, 4, samples=np.repeat(["a", "b"], 20)).toarray()
    one = spatial_graph(places, 4).toarray()
    np.testing.assert_array_equal(W, np.kron(np.eye(2), one))


def test_a_place_that_is_missing_is_named():
    places = pixel_places((3, 3))
    places[4, 0] = np.nan
    with pytest.raises(ValueError, match=r"1 of 9.*row 4"):
        spatial_graph(places)
    for wrong, said in (
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"n_neighbors": None}, "n_neighbors, radius, or both"),
        ({"radius": -1.0}, "radius must be above 0"),
        ({"weighting": "dot"}, "weighting must be"),
        ({"samples": ["a"]}, "samples must"),
    ):
        with pytest.raises(ValueError, match=said):
            spatial_graph(pixel_places((3, 3)), **wrong)
    with pytest.raises(ValueError, match="x and y"):
        spatial_graph(np.zeros((4, 1)))


def test_joined_graphs_count_as_they_should():
    places = pixel_places((5, 5))
    a, b = spatial_graph(places, 4), spatial_graph(places[::-1] ** 1.3, 8)
    for share in (0.0, 0.3, 1.0):
        W = join_graphs(a, b, share).toarray()
        mean = (a.sum() + b.sum()) / 2
        want = (1 - share) * a.toarray() * mean / a.sum() + share * b.toarray() * mean / b.sum()
        np.testing.assert_allclose(W, want, rtol=1e-14)
    with pytest.raises(ValueError, match="edges"):
        join_graphs(a, sp.csr_array((25, 25)))
    with pytest.raises(ValueError, match="0 to 1"):
        join_graphs(a, b, 2)


def test_moran_is_the_formula():
    rng = np.random.default_rng(0)
    W, V = spatial_graph(pixel_places((6, 6)), 5), rng.gamma(1, size=(36, 3))
    V[:, 2] = 4.0
    dense, centred = W.toarray(), V - V.mean(axis=0)
    want = [36 / dense.sum() * (v @ dense @ v) / (v @ v) for v in centred[:, :2].T]
    found = morans_i(V, W)
    np.testing.assert_allclose(found[:2], want, rtol=1e-12)
    assert np.isnan(found[2])


def tissue(side=20, p=40, seed=0):
    """Return simulated counts of a tissue of four quadrants, and where each cell lies."""
    rng = np.random.default_rng(seed)
    places = pixel_places((side, side))
    domain = (places[:, 0] >= side / 2) * 2 + (places[:, 1] >= side / 2)
    H = rng.gamma(0.4, size=(4, p))
    X = rng.poisson(12 * H[domain.astype(int)] / H.sum(axis=1)[domain.astype(int), None])
    return X.astype(float), places, domain.astype(int)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_parts_follow_the_places(loss):
    X, places, _ = tissue()
    W = spatial_graph(places, 6)
    far, near = (
        GNMF(4, graph_reg=reg, beta_loss=loss, random_state=0, max_iter=100).fit(X, graph=W)
        for reg in (0.0, 5.0)
    )
    assert morans_i(near.embedding_, W).mean() > morans_i(far.embedding_, W).mean() + 0.1


def test_the_weight_of_places_is_chosen_by_hidden_entries():
    X, places, _ = tissue()
    W = spatial_graph(places, 6)
    model = GNMF(4, beta_loss="kullback-leibler", tol=1e-3, max_iter=100)
    found = select(X, model, {"graph_reg": [0, 1]}, graph=W, share=0.2, n_splits=3, random_state=0)
    assert found.by == "entries" and found.best == {"graph_reg": 1}
    # Without the graph of positions, every fit would have used a graph of the expression data.
    other = select(X, model, {"graph_reg": [0, 1]}, share=0.2, n_splits=3, random_state=0)
    assert not np.allclose(found.errors[1], other.errors[1], rtol=1e-6)
    with pytest.raises(ValueError, match="400"):
        select(X, model, {"graph_reg": [0, 1]}, graph=W[:5, :5])


def test_the_classifier_takes_a_graph_of_places():
    X, places, domain = tissue()
    W = spatial_graph(places, 6)
    y = np.full(400, -1)
    for d in range(4):
        y[np.flatnonzero(domain == d)[[40, 60]]] = d
    plain, near = PartsClassifier().fit(X, y), PartsClassifier().fit(X, y, graph=W)
    np.testing.assert_array_equal(near.graph_.toarray(), W.toarray())
    rights = [(model.transduction_ == domain).mean() for model in (plain, near)]
    assert rights[1] > rights[0] and rights[1] > 0.9
    # The order of the samples does not change the predictions.
    turn = np.random.default_rng(1).permutation(400)
    again = PartsClassifier().fit(X[turn], y[turn], graph=W[turn][:, turn])
    assert (again.transduction_ == near.transduction_[turn]).mean() > 0.99
    warm = PartsClassifier(warm_start=True).fit(X, y)
    np.testing.assert_array_equal(warm.fit(X, y, graph=W).graph_.toarray(), W.toarray())
