"""Tests of SemiNMF, whose parts may contain negative values."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import fuzz
import partwise
import reference
from partwise import SemiNMF
from partwise.backends import as_data
from partwise.model.factor_model import FactorModel
from partwise.model.losses import SignedFrobenius
from partwise.model.terms import Linear
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import make_step, minimum

rng = np.random.default_rng(0)
N, P, K = 40, 7, 3
X = rng.exponential(size=(N, K)) @ rng.normal(size=(K, P)) + 0.2 * rng.normal(size=(N, P))
V = 0.2 + rng.random((N, K))
W = np.eye(N, k=1) + np.eye(N, k=-1)
Y = np.full(N, -1)
Y[:9] = [0, 0, 1, 1, 2, 2, 0, 1, 2]
quiet = pytest.mark.filterwarnings("ignore:Maximum number")


def test_multiplicative_updates_are_the_papers():
    D = rng.random((N, K))
    V1, U1, history = reference.semi_nmf(X, V, 12, D=D, class_reg=0.3)
    model = FactorModel(as_data(X), SignedFrobenius(), terms_V=[Linear(0.15 * D)])
    settings = Settings(12, 0.0, order="UV", extrapolate=False, guard=False)
    found = alternate(model, V, np.zeros((P, K)), make_step("mu"), settings)
    np.testing.assert_allclose(found.Z, V1, rtol=1e-8)
    np.testing.assert_allclose(found.U, U1, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.history, history, rtol=1e-10)


def test_free_parts_never_rise_where_codes_are_nearly_collinear():
    """Check that the step for the parts lowers the objective if V has proportional columns.

    Such columns leave U undetermined up to rounding. Here the penalty on V prefers one of the two
    columns, but by less than the tolerance for the rank.
    """
    a, b, cost = 2.3e-7, 0.146, 0.65
    U = np.array([[0.3, 0.31], [0.8, 0.79], [0.5, 0.51]])
    U /= np.linalg.norm(U, axis=0)
    # Choose the sample so that the gradient of the second part is zero, including its penalty.
    row = ((b**2 + cost * b) * U[:, 1] + a * b * U[:, 0]) / b
    data = as_data(np.stack([row, np.zeros(3)]))
    Z = np.array([[a, b], [0.0, 0.0]])
    prices = Linear(np.array([[0.0, cost], [1.1, 0.0]]))
    model = FactorModel(data, SignedFrobenius(), terms_V=[prices], unit=True)
    sub = model.subproblem("U", Z, U)
    assert sub.change(minimum(sub, U), U) <= 1e-16


def test_history_of_semi_nmf_falls_where_a_class_has_one_row():
    assert fuzz.run(1_730_545) == "ok"


@quiet
@pytest.mark.parametrize("solver", ["mu", "hals", "nesterov"])
@pytest.mark.parametrize(
    "params, given",
    [
        ({}, {}),
        ({"graph_reg": 0.5}, {}),
        ({"class_reg": 1.0}, {"y": Y}),
        ({"hard_labels": True, "graph_reg": 0.2}, {"y": Y}),
        ({"graph_reg": 0.2}, {"must_link": [(10, 11)], "cannot_link": [(12, 13), (10, 20)]}),
    ],
)
def test_combinations_descend_and_end_at_the_formula(solver, params, given):
    if solver == "nesterov" and "cannot_link" in given:
        return  # test_links.py tests that this combination is refused
    graph = {"graph": sp.csr_array(W)} if "graph_reg" in params else {}
    model = SemiNMF(K, solver=solver, random_state=0, max_iter=150, **params)
    model.fit(X, **given, **graph)
    Z, U, history = model.embedding_, model.components_.T, model.objective_history_
    assert (Z >= 0).all() and (U < 0).any()
    assert (np.diff(history) <= 1e-9 * history[0]).all()
    value = 0.5 * ((X - Z @ U.T) ** 2).sum()
    if graph:
        value += 0.5 * params["graph_reg"] * np.trace(Z.T @ reference.laplacian(W) @ Z)
    if "class_reg" in params:
        value += 0.5 * (reference.class_cost(Y, K) * Z).sum()
    value += reference.links_cost(Z, cannot=given.get("cannot_link", ()), cannot_reg=0.1)
    assert model.objective_ == pytest.approx(value, rel=1e-8)
    if params:  # with a penalty on V alone, components have unit norm
        np.testing.assert_allclose((U**2).sum(axis=0), 1, rtol=1e-8)
    if given.get("y") is not None and params.get("hard_labels"):
        assert (Z[0] == Z[1]).all()


@quiet
def test_solvers_agree_and_parts_are_least_squares():
    found = [SemiNMF(K, solver=s, random_state=0, max_iter=800, tol=1e-6).fit(X)
             for s in ("hals", "nesterov", "mu")]  # fmt: skip
    values = [model.objective_ for model in found]
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    assert values[2] == pytest.approx(values[0], rel=5e-2)
    Z = found[0].embedding_
    H = np.linalg.lstsq(Z, X, rcond=None)[0]
    np.testing.assert_allclose(found[0].components_, H, rtol=1e-3, atol=1e-3)
    # The objective is at least the minimum over V of any sign, which the SVD gives.
    assert values[0] >= 0.5 * (np.linalg.svd(X)[1][K:] ** 2).sum() * (1 - 1e-12)


@quiet
def test_pca_scores_of_digits(tmp_path):
    D, y = load_digits(n_class=4, return_X_y=True)
    scores = PCA(20, random_state=0).fit_transform(D)
    model = SemiNMF(4, graph_reg=10.0, random_state=0).fit(scores)
    assert partwise.metrics.clustering_accuracy(y, model.cluster_labels_) > 0.9
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_array_equal(again.transform(scores[:9]), model.transform(scores[:9]))
    assert (model.transform(scores[:9]) >= 0).all()
    np.testing.assert_allclose(SemiNMF(3, random_state=0).fit(sp.csr_array(X)).objective_,
                               SemiNMF(3, random_state=0).fit(X).objective_, rtol=1e-6)  # fmt: skip


def test_multiplicative_updates_keep_the_signs_of_parts():
    """Check that "mu" keeps negative entries of the parts when it sets small entries to zero.

    At the end of a fit, entries with a small absolute value become zero.
    """
    case = fuzz.draw(1_700_297)  # in this case, clipping negative entries would lower the objective
    model = SemiNMF(**case.params).fit(case.X, **case.given)
    V, U = fuzz.factors(model)
    assert U.min() < 0
    assert model.objective_ == pytest.approx(fuzz.naive(case, model, V, U), rel=1e-9)


def test_printed_updates_of_float32_fall_where_codes_are_collinear():
    """Check that "mu" never raises the objective in float32 if the normal equations are singular.

    Here five parts are fitted to only two different kinds of samples.
    """
    X = np.full((5, 2), -2e7, dtype=np.float32)
    X[3, 0] = 1.8e8
    model = SemiNMF(5, solver="mu", class_reg=0.1, max_iter=15, tol=0, random_state=31)
    history = model.fit(X, [1, 0, 1, -1, -1]).objective_history_
    assert np.diff(history).max() <= 1e-12 * (X.astype(float) ** 2).sum()
