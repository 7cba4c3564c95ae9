"""Tests of beta_loss="l21", the sum over samples of the Euclidean norm of the residual."""

from __future__ import annotations

import numpy as np
import pytest

import partwise
import reference
from backends import KINDS, Forms
from methods import assert_close, make_problem, rise
from partwise import CDNMF, CNMF, NMF, NMFDC, ConstrainedNMF, MiniBatchNMF
from partwise.backends import as_data
from partwise.backends.arrays import to_numpy
from partwise.model.factor_model import FactorModel
from partwise.model.l21 import RowLengths
from partwise.model.losses import make_loss
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import make_step

Q = make_problem(seed=4, n=30, p=19)
START = {"W": Q.V, "H": Q.U.T.copy()}
EPS = 1e-3 * np.linalg.norm(Q.X, axis=1).mean()
SHORT = {"init": "custom", "tol": 0.0, "max_iter": 20}
quiet = pytest.mark.filterwarnings("ignore:Maximum number")


def lengths(X, V, U, eps=EPS, S=None, gamma=1.0):
    Y = V @ (np.eye(V.shape[1]) if S is None else S) @ U.T
    return float((gamma * np.sqrt(((X - Y) ** 2).sum(axis=1) + eps**2)).sum())


def test_multiplicative_updates_are_the_naive_ones():
    V, U, history = reference.nmf_l21(Q.X, Q.V, Q.U, 20, eps=EPS**2)
    V, U = reference.unit_weights(V, U)
    model = NMF(4, beta_loss="l21", solver="mu", **SHORT).fit(Q.X, **START)
    assert model.l21_epsilon_ == pytest.approx(EPS, rel=1e-12)
    assert_close(model.objective_history_, history, 1e-10)
    assert_close(model.embedding_, V, 1e-10)
    assert_close(model.components_.T, U, 1e-10)
    assert rise(history) == 0


COMBINED = {
    "labels": ({"hard_labels": True}, {"y": Q.y}),
    "weights": ({}, {"sample_weight": Q.gamma}),
    "class, graph": ({"class_reg": 1.5, "graph_reg": 0.5}, {"y": Q.y, "graph": Q.graph}),
    "all": (
        {"hard_labels": True, "class_reg": 1.5, "graph_reg": 0.5, "smoothing": 0.3},
        {"y": Q.y, "graph": Q.graph, "sample_weight": Q.gamma},
    ),
    "links": ({"cannot_link_reg": 0.1}, {"must_link": [(1, 2)], "cannot_link": [(3, 4)]}),
}


@quiet
@pytest.mark.parametrize("solver", ["mu", "hals", "nesterov"])
@pytest.mark.parametrize("name", COMBINED)
def test_l21_with_labels_graph_and_terms(name, solver):
    """Check fits with the l21 loss and labels, graphs or other terms.

    The objective never rises, and its last value equals the formula of the objective.
    """
    params, given = COMBINED[name]
    if name == "links" and solver == "nesterov":
        return  # test_links.py tests that this combination is refused
    model = ConstrainedNMF(4, beta_loss="l21", solver=solver, **SHORT, **params)
    model.fit(Q.X, **START, **given)
    V, U = model.embedding_, model.components_.T
    S = Q.S(params["smoothing"]) if "smoothing" in params else None
    value = lengths(Q.X, V, U, S=S, gamma=given.get("sample_weight", 1.0))
    if "class_reg" in params:
        value += 0.5 * params["class_reg"] * (Q.D() * V).sum()
    if "graph_reg" in params:
        value += 0.5 * params["graph_reg"] * np.trace(V.T @ reference.laplacian(Q.W) @ V)
    value += reference.links_cost(V, cannot=given.get("cannot_link", ()), cannot_reg=0.1)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert model.objective_history_[-1] == pytest.approx(value, rel=1e-9)
    assert rise(model.objective_history_) <= (1e-12 if solver == "mu" else 0)


@pytest.mark.parametrize("solver", ["hals", "nesterov"])
def test_solvers_end_together(solver):
    model = NMF(4, beta_loss="l21", solver=solver, init="custom", tol=1e-6, max_iter=2000)
    model.fit(Q.X, **START)
    assert model.status_.startswith("converged")
    naive = reference.nmf_l21(Q.X, Q.V, Q.U, 1500, eps=EPS**2)[2][-1]
    assert model.objective_ == pytest.approx(naive, rel=1e-4)
    # The part weights of a new sample do not depend on the other new samples.
    codes = model.transform(Q.X)
    np.testing.assert_allclose(codes @ model.components_, model.embedding_ @ model.components_,
                               atol=1e-4)  # fmt: skip
    np.testing.assert_allclose(model.transform(Q.X[3:5]), codes[3:5], atol=1e-4)


def test_a_large_epsilon_is_frobenius():
    ends = []
    for loss in (make_loss("frobenius"), RowLengths(1e6)):
        model = FactorModel(as_data(Q.X), loss)
        how = Settings(20, 0.0, extrapolate=False, guard=False)
        ends.append(alternate(model, Q.V, Q.U, make_step("mu"), how))
    assert_close(ends[1].Z, ends[0].Z, 1e-8)  # both objectives differ by terms of order r²/ε²


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dask-csr"])
@pytest.mark.filterwarnings("ignore:Maximum number")
def test_back_ends_agree(kind, tmp_path):
    data = Forms(Q.X, tmp_path)[kind]
    settings = {"beta_loss": "l21", "solver": "mu", "hard_labels": True, **SHORT, "max_iter": 6}
    here = ConstrainedNMF(4, **settings).fit(Q.X, Q.y, **START)
    there = ConstrainedNMF(4, **settings).fit(data, Q.y, **START)
    assert_close(there.objective_history_, here.objective_history_, 1e-6)
    assert_close(to_numpy(there.components_), here.components_, 1e-6)


@quiet
def test_outliers_do_not_move_the_parts():
    """Check that three outlying rows move the parts of the Frobenius loss but not of the l21 loss.

    These rows are about thirty times as large as the others.
    """
    rng = np.random.default_rng(1)
    parts = np.kron(np.eye(3), np.ones(5))
    X = rng.exponential(size=(90, 3)) @ parts + 0.05 * rng.random((90, 15))
    spoilt = X.copy()
    spoilt[[5, 40, 77]] = 30 * rng.random((3, 15))
    moved = {}
    for loss in ("frobenius", "l21"):
        settings = {"beta_loss": loss, "random_state": 0, "max_iter": 1000, "n_init": 3}
        clean, dirty = (NMF(3, **settings).fit(D).components_ for D in (X, spoilt))
        units = [H / np.linalg.norm(H, axis=1, keepdims=True) for H in (clean, dirty)]
        moved[loss] = 1 - (units[0] @ units[1].T).max(axis=1).min()
    assert moved["l21"] < 1e-3 and moved["frobenius"] > 0.05


@quiet
def test_float32_scale_and_files(tmp_path):
    model = CDNMF(3, beta_loss="l21", max_iter=30, random_state=0).fit(Q.X.astype(np.float32), Q.y)
    V, U = (F.astype(float) for F in (model.embedding_, model.components_.T))
    D = reference.class_cost(Q.y, 3)
    value = lengths(Q.X, V, U, eps=model.l21_epsilon_) + 0.5 * (D * V).sum()
    assert model.objective_ == pytest.approx(value, rel=1e-5)
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    assert again.l21_epsilon_ == model.l21_epsilon_
    new = Q.X[:4].astype(np.float32)
    np.testing.assert_array_equal(again.transform(new), model.transform(new))
    plain, large = (NMF(3, beta_loss="l21", max_iter=20, random_state=0).fit(X)
                    for X in (Q.X, Q.X * 4.0**120))  # fmt: skip
    assert large.objective_ == pytest.approx(plain.objective_ * 4.0**120, rel=1e-6)
    zero = NMF(2, beta_loss="l21", random_state=0).fit(np.zeros((4, 3)))
    assert np.isfinite(zero.objective_) and not zero.inverse_transform(zero.embedding_).any()
    assert not hasattr(model.set_params(beta_loss="frobenius").fit(Q.X, Q.y), "l21_epsilon_")


@pytest.mark.parametrize(
    "fit, message",
    [
        (lambda: NMF(2, beta_loss="l21", missing_values=np.nan).fit(Q.X), "got 'l21'"),
        (lambda: CNMF(2, beta_loss="l21").fit(Q.X, Q.y, entry_weight=Q.X + 1), "got 'l21'"),
        (lambda: NMF(2, beta_loss="l21", solver="newton").fit(Q.X), "beta_loss"),
        (lambda: MiniBatchNMF(2, beta_loss="l21").fit(Q.X), "'beta_loss'.*Mini"),
        (lambda: partwise.LpCNMF(2, beta_loss="l21").fit(Q.X, Q.y), "'beta_loss'.*Lp"),
        (lambda: NMFDC(2).set_params(beta_loss="l21"), "Invalid parameter"),
    ],
)
def test_what_it_cannot_do_is_refused(fit, message):
    with pytest.raises(ValueError, match=message):
        fit()
