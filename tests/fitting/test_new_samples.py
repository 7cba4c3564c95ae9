"""Tests of `transform` with a graph, which connects new samples to similar training samples."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

import partwise
import reference
from backends import KINDS, Forms
from methods import KL, LOSSES
from partwise import GNMF, ConstrainedNMF, SemiGNMF
from partwise.backends.arrays import to_numpy
from partwise.knowledge.graph import _rows, neighbor_graph
from partwise.model.graph_terms import Anchored, AnchoredDivergence
from partwise.model.losses import beta_of
from plain_fits import (
    FAST,
    FAST_IDS,
    PENALTIES,
    SOLVER_IDS,
    SOLVERS,
    data_for,
    make,
    make_data,
    one_blas_thread,  # noqa: F401
)

DIGITS, TRUTH = load_digits(n_class=4, return_X_y=True)
DIGITS = DIGITS[:, DIGITS.max(axis=0) > 0] / 16.0
X, NEW = DIGITS[:120], DIGITS[120:150]
GRAPH_METHODS = {
    "GNMF": lambda **s: GNMF(4, graph_reg=1.0, **s),
    "SemiGNMF": lambda **s: SemiGNMF(4, graph_reg=1.0, **s),
    "all": lambda **s: ConstrainedNMF(4, graph_reg=1.0, alpha_W=1e-4, **s),
}


def fit(name="GNMF", data=X, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no known label")
        warnings.filterwarnings("ignore", message="Maximum number of iterations")
        return GRAPH_METHODS[name](random_state=0, **settings).fit(data)


def bandwidth(k=5):
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    return np.sort(D, axis=1)[:, :k].mean()


# -- part weights against the formula -----------------------------------------------------------


@pytest.mark.parametrize("weighting", ["binary", "heat", "dot"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_codes_are_those_of_the_formula(weighting, form):
    model = fit(data=form(X), weighting=weighting, tol=1e-10, max_iter=30)
    W = neighbor_graph(X, weighting=weighting).toarray()
    both = np.vstack([NEW, X[:7]])
    E = reference.edges_to(both, X, W, 5, weighting, bandwidth())
    assert (E[:30] > 0).sum() == 150
    expected = reference.codes_with_neighbors(both, model.components_.T, E, model.embedding_, 1.0)
    # The coordinate descent stops when a sweep changes the part weights by less than 1e-9 of the
    # first.
    np.testing.assert_allclose(model.transform(form(both)), expected, atol=1e-6)
    plain = reference.codes_with_neighbors(both, model.components_.T, 0 * E, model.embedding_, 1.0)
    assert np.abs(plain - expected).max() > 0.05  # the graph changes the part weights


def test_kullback_leibler_is_the_minimum_of_its_formula():
    model = fit(beta_loss=KL, tol=1e-9, max_iter=3000)
    E = reference.edges_to(NEW[:6], X, None, 5)
    U, V = model.components_.T, model.embedding_
    for x, weights, v in zip(NEW[:6], E, model.transform(NEW[:6])):

        def value(z, x=x, weights=weights):
            return reference.kl_with_neighbors(x, U, weights, V, 1.0, z)

        best = minimize(value, v + 0.1, method="L-BFGS-B", bounds=[(1e-12, None)] * 4)
        assert value(v) <= best.fun + 1e-7 * abs(best.fun)


def test_a_given_bandwidth_is_used():
    model = fit(weighting="heat", bandwidth=0.7, tol=1e-10)
    W = neighbor_graph(X, weighting="heat", bandwidth=0.7).toarray()
    E = reference.edges_to(NEW, X, W, 5, "heat", 0.7)
    expected = reference.codes_with_neighbors(NEW, model.components_.T, E, model.embedding_, 1.0)
    np.testing.assert_allclose(model.transform(NEW), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [Anchored, AnchoredDivergence])
def test_the_terms_own_gradient_and_value(kind, rng):
    W, A = rng.random((4, 6)) * (rng.random((4, 6)) < 0.6), 0.1 + rng.random((6, 3))
    term, Z = kind.to(sp.csr_array(W), A, 0.7), 0.1 + rng.random((4, 3))
    neg, pos = term.split(Z)
    np.testing.assert_allclose(
        pos - neg, reference.numerical_gradient(term.value, Z), rtol=1e-5, atol=1e-7
    )
    one = kind.to(sp.csr_array(np.eye(6)), A, 0.7)
    assert abs(one.value(A)) < 1e-12 < one.value(A + 0.1)


# -- transform of training samples --------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", GRAPH_METHODS)
def test_a_training_sample_keeps_its_neighbours(name, loss):
    model = fit(name, DIGITS, beta_loss=loss)
    assert (model.predict(DIGITS) == model.labels_).mean() >= 0.98
    # The part weights of a sample do not depend on the other samples passed to `transform`.
    np.testing.assert_allclose(model.transform(X[3:4]), model.transform(X)[3:4], atol=2e-3)


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
def test_labels_play_no_part():
    y = np.where(np.arange(len(X)) < 40, TRUTH[:120], -1)
    model = SemiGNMF(4, graph_reg=1.0, random_state=0, tol=1e-10, max_iter=20).fit(X, y)
    E = reference.edges_to(X, X, neighbor_graph(X).toarray(), 5)
    expected = reference.codes_with_neighbors(X, model.components_.T, E, model.embedding_, 1.0)
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-6)


# -- a graph passed by the user -----------------------------------------------------------------


def test_a_graph_of_ones_own_is_needed_for_new_samples():
    W = neighbor_graph(X, 3)
    model = GNMF(4, graph_reg=1.0, tol=1e-3, random_state=0).fit(X, graph=W)
    E = reference.edges_to(NEW, X, W.toarray(), 3)
    expected = reference.codes_with_neighbors(NEW, model.components_.T, E, model.embedding_, 1.0)
    for graph in (E, sp.csr_array(E)):
        np.testing.assert_allclose(model.transform(NEW, graph=graph), expected, atol=1e-6)
    names = model.predict(NEW, graph=E)
    assert names.shape == model.predict_confidence(NEW, graph=E).shape == (30,)
    assert np.isfinite(model.score(NEW, graph=E))
    for call in (model.transform, model.predict, model.score):
        with pytest.raises(ValueError, match=r"graph.*\(30, 120\)"):
            call(NEW)
    with pytest.raises(ValueError, match=r"30.*\(120, 120\)"):
        model.transform(NEW, graph=W)
    with pytest.raises(ValueError, match="finite"):
        model.transform(NEW, graph=-E)
    with pytest.raises(ValueError, match="graph"):
        ConstrainedNMF(4, random_state=0).fit(X).transform(NEW, graph=E)


def test_a_given_graph_takes_the_place_of_the_search():
    model = fit(tol=1e-10)
    nothing = model.transform(NEW, graph=np.zeros((30, 120)))
    plain = reference.codes_with_neighbors(
        NEW, model.components_.T, np.zeros((30, 120)), model.embedding_, 1.0
    )
    np.testing.assert_allclose(nothing, plain, atol=1e-6)


# -- the state of the fitted model --------------------------------------------------------------


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_the_model_keeps_what_it_needs(form, tmp_path):
    data = form(X)
    model = fit(data=data)
    expected = model.transform(NEW)
    if sp.issparse(data):
        data.data[:] = 5
    else:
        data[:] = 5
    np.testing.assert_array_equal(model.transform(NEW), expected)  # the model keeps its own copy
    path = model.save(tmp_path / "m.partwise")
    # For an array, the model file contains X itself, and little else.
    size = X.nbytes if form is np.array else 0
    assert size < path.stat().st_size < 2.2 * X.nbytes
    for again in (partwise.load(path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.transform(NEW), expected)
        assert sp.issparse(again._neighborhood["samples"]) == sp.issparse(data)
    model.set_params(n_components=4)
    without = ConstrainedNMF(4, graph_reg=1.0, random_state=0).fit(X)
    assert not hasattr(without.set_params(graph_reg=0.0).fit(X), "_neighborhood")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array(kind, loss, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    forms, new = Forms(X, tmp_path / "a"), Forms(NEW, tmp_path / "b")
    model = fit(data=forms[kind], beta_loss=loss, tol=1e-10, max_iter=5)
    there = np.asarray(to_numpy(model.transform(new[kind])))
    same = model.transform(NEW)
    np.testing.assert_allclose(there, same, atol=1e-6)
    if loss != KL:
        E = reference.edges_to(NEW, X, None, 5)
        U, V = to_numpy(model.components_).T, np.asarray(to_numpy(model.embedding_))
        np.testing.assert_allclose(
            there, reference.codes_with_neighbors(NEW, U, E, V, 1.0), atol=1e-5
        )
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_allclose(np.asarray(to_numpy(again.transform(NEW))), same, atol=1e-9)


def test_a_dask_array_is_not_gathered_for_a_model_that_was_fitted_here():
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match=r"X\.compute\(\)"):
        fit().transform(da.from_array(NEW, chunks=(10, -1)))


# -- search for nearest neighbours --------------------------------------------------------------


@pytest.mark.parametrize("case", ["plain", "ties", "far from zero", "few"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_neighbours_of_new_samples(case, form, rng):
    stored, new = rng.random((50, 6)), rng.random((20, 6))
    if case == "ties":
        stored, new = np.round(3 * stored), np.round(3 * new)
    # Here the expanded formula for squared distances has no correct digit.
    elif case == "far from zero":
        stored, new = stored + 1e8, new + 1e8
    elif case == "few":
        stored = stored[:4]
    indices, squares = _rows.search_rows(form(stored), np.arange(20), 4, new=form(new))
    D = cdist(new, stored, "sqeuclidean")
    np.testing.assert_allclose(squares, np.sort(D, axis=1)[:, :4], rtol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(D, indices, 1), squares, rtol=1e-12)


@pytest.mark.parametrize("name", ["none", "both"])
@pytest.mark.parametrize(("solver", "rule", "loss"), FAST, ids=FAST_IDS)
def test_transform_of_the_training_data_is_the_embedding(solver, rule, loss, name):
    X = make_data()
    model = make(solver, rule, loss, tol=1e-4, max_iter=5000, **PENALTIES[name])
    V1 = model.fit_transform(X)
    V2 = model.transform(X)
    np.testing.assert_array_equal(V1, model.embedding_)
    distance = np.linalg.norm((V1 - V2) @ model.components_)
    assert distance <= 10 * model.tol * np.linalg.norm(X)  # ten times the tolerance of a fit


# The fit of the parts does not converge.
@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize(("solver", "rule", "loss"), SOLVERS, ids=SOLVER_IDS)
def test_transform_is_a_minimum_in_the_codes(solver, rule, loss):
    """Check that no small change of the part weights lowers the objective.

    The problem in V is convex for β in [1, 2], so a stationary point is a minimum.
    """
    X = data_for(loss)
    model = make(solver, rule, loss, tol=1e-5, max_iter=100, n_components=3).fit(X[:30])
    V = model.set_params(max_iter=5_000).transform(X[30:])
    assert V.shape == (10, 3) and V.dtype == X.dtype and (V >= 0).all()
    (neg, pos), _ = reference.split_beta(X[30:], V, model.components_.T, beta_of(loss))
    g = pos - neg
    share = np.minimum(V / np.maximum(V.mean(axis=0), 1e-300), 1)
    g = np.where(g > 0, g * share, g)
    assert np.linalg.norm(g) <= 2 * model.tol * (np.linalg.norm(neg) + np.linalg.norm(pos))


def test_inverse_transform():
    X = make_data()
    model = make().fit(X)
    V = model.transform(X)
    np.testing.assert_allclose(model.inverse_transform(V), V @ model.components_, rtol=1e-12)


@pytest.mark.parametrize("name", ["none", "both"])
@pytest.mark.parametrize(("solver", "rule", "loss"), FAST, ids=FAST_IDS)
def test_score_is_minus_the_objective_per_sample(solver, rule, loss, name):
    X = make_data()
    model = make(solver, rule, loss, tol=1e-5, max_iter=5000, **PENALTIES[name]).fit(X)
    # The fit and `score` end with the same convex solve, whose residual is far below `tol`.
    assert model.score(X) == pytest.approx(-model.objective_ / len(X), rel=1e-6)


def test_score_of_mu_is_no_worse_than_its_objective():
    X = make_data()
    model = make("mu", tol=1e-4, max_iter=10_000).fit(X)
    assert model.score(X) == pytest.approx(-model.objective_ / len(X), rel=1e-2)
