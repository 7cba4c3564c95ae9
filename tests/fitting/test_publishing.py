"""Tests of the history, objective, KKT residual and status that a fit reports."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import reference
from partwise import ConstrainedNMF
from partwise.model.losses import beta_of
from plain_fits import (
    PENALTIES,
    SOLVER_IDS,
    SOLVERS,
    as_solved,
    data_for,
    make,
    make_data,
    make_start,
    naive_objective,
    one_blas_thread,  # noqa: F401
    scaled,
)


@cache
def reported(solver, rule, loss, name):
    X = data_for(loss)
    return X, make(solver, rule, loss, max_iter=100, **PENALTIES[name]).fit(X)


# A penalty on W alone raises this warning.
@pytest.mark.filterwarnings("ignore:The penalty is on the codes")
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize(("solver", "rule", "loss"), SOLVERS, ids=SOLVER_IDS)
class TestReports:
    @pytest.fixture
    def case(self, solver, rule, loss, name):
        return reported(solver, rule, loss, name)

    def test_history_never_rises(self, case, solver):
        X, model = case
        history = model.objective_history_
        assert history.shape == (model.n_iter_,) and history.dtype == np.float64
        # The expanded objective subtracts large terms, so its rounding is relative to the size of
        # X.
        size = 0.5 * (X**2).sum() + history[0]
        allowed = 1e-14 * size if solver == "mu" else 0.0
        assert np.diff(history).max() <= allowed
        assert history[-1] < history[0]

    def test_objective_is_the_naive_one(self, case, name, solver):
        X, model = case
        expected = naive_objective(X, model, PENALTIES[name])
        assert model.objective_ == pytest.approx(expected, rel=1e-8)
        last = model.objective_history_[-1]
        if solver == "mu":
            assert model.objective_ == pytest.approx(last, rel=1e-8)
        else:  # the fit ends with a solve for V, which never raises the objective
            assert 0.9 * last < model.objective_ <= last * (1 + 1e-8)
        penalty = reference.penalties(
            model.embedding_, model.components_.T, **scaled(PENALTIES[name], *X.shape)
        )
        expected = np.sqrt(2 * (model.objective_ - penalty))
        assert model.reconstruction_err_ == pytest.approx(expected, rel=1e-7)

    def test_kkt_residual(self, case, loss, name):
        X, model = case
        V, U = as_solved(model, X)
        beta, settings = beta_of(loss), scaled(PENALTIES[name], *X.shape)
        whole = reference.split_beta(X, V, U, beta, **settings)
        halves = reference.split_beta(X, V, U, beta)
        misfit = min(1, np.sqrt(model.objective_ / (0.5 * (X[X > 0] ** beta).sum())))
        expected = 0.0
        for side, Z, (neg, pos), (minus, plus) in zip("VU", (V, U), whole, halves):
            mean = Z.mean(axis=0)
            share = np.divide(Z, mean, out=np.zeros_like(Z), where=mean > 0)
            share = np.where(pos > neg, np.minimum(share, 1), 1)
            # The two penalty terms, l1 and l2, are separate gradients in the KKT residual.
            l1, l2 = settings[f"l1_{side}"], settings[f"l2_{side}"]
            scale = misfit * sum(np.linalg.norm(half * share) for half in (minus, plus))
            scale += np.linalg.norm(l1 * share) + np.linalg.norm(l2 * Z * share)
            residual = np.linalg.norm((pos - neg) * share) / scale
            expected = max(expected, min(1, residual))
        # The residual is a difference of two nearly equal gradients, so a value of 1e-6 has an
        # absolute error of about 1e-10.
        assert model.kkt_residual_ == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert 0 <= model.kkt_residual_ <= 1

    def test_non_negative_finite_and_named(self, case, solver):
        X, model = case
        for Z, shape in ((model.embedding_, (40, 4)), (model.components_, (4, 30))):
            assert Z.shape == shape and Z.dtype == X.dtype
            assert (Z >= 0).all() and np.isfinite(Z).all()
        assert model.solver_ == solver
        assert model.n_components_ == 4
        assert model.status_.startswith(("stopped at max_iter=100", "no further progress"))
        if model.status_.startswith("no further"):
            # At a residual of 1e-8, a step gains about 1e-16 of the objective, which is lost in
            # rounding.
            assert model.kkt_residual_ < 1e-7


TOL_CASES = [
    pytest.param(*row, tol, id=f"{name}-{tol}")
    for row, name in zip(SOLVERS, SOLVER_IDS)
    # "mu" converges sublinearly, so it is not tested with a small tol.
    for tol in ((1e-2, 1e-5) if row[0] != "mu" else (1e-2, 3e-3))
]


@pytest.mark.parametrize("name", ["none", "both"])
@pytest.mark.parametrize(("solver", "rule", "loss", "tol"), TOL_CASES)
def test_one_meaning_of_tol(solver, rule, loss, name, tol):
    """Check that a fit that reports convergence has a KKT residual of at most `tol`.

    The residual is computed from the returned factors, for every solver and loss.
    """
    X = data_for(loss)
    model = make(solver, rule, loss, tol=tol, max_iter=5000, **PENALTIES[name]).fit(X)
    assert model.status_ == (
        f"converged: relative KKT residual at most {tol:g} after {model.n_iter_} iterations"
    )
    assert model.kkt_residual_ <= tol
    assert len(model.objective_history_) == model.n_iter_ < 5000


def test_status_at_the_last_iteration_and_its_warning():
    model = make(tol=1e-12, max_iter=3)
    with pytest.warns(ConvergenceWarning, match=r"\b3\b"):
        model.fit(make_data())
    assert model.status_.startswith("stopped at max_iter=3") and "tol=1e-12" in model.status_
    assert model.n_iter_ == 3


def test_tol_zero_runs_every_iteration_without_a_warning():
    assert make(max_iter=17).fit(make_data()).n_iter_ == 17


def test_a_perfect_fit_ends_by_itself():
    V, H = make_start(30, 20, k=2)
    model = make(n_components=2, init=None, max_iter=5000, tol=1e-10).fit(V @ H)
    assert model.n_iter_ < 5000
    assert model.objective_ <= 1e-12 * (V @ H).size
    assert not model.status_.startswith("stopped")


@pytest.mark.parametrize("loss", ["frobenius", "l21"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_the_objective_is_that_of_what_is_returned(loss, kind):
    """Check that `objective_` belongs to the returned factors, which are float32.

    The rows of X are nearly equal, so the fit itself runs in float64.
    """
    rng = np.random.default_rng(0)
    X = ((rng.random((30, 4)) + 1000) * 1e6).astype(np.float32)
    W = np.triu(rng.random((30, 30)) < 0.2, 1).astype(float)
    fixed = {"n_components": 1, "tol": 0, "max_iter": 15, "random_state": 0, "n_clusters": 1}
    model = ConstrainedNMF(beta_loss=loss, graph_reg=10.0, **fixed)
    model.fit(kind(X), graph=sp.csr_array(W + W.T))
    assert model.embedding_.dtype == model.components_.dtype == np.float32
    V, H = model.embedding_.astype(float), model.components_.astype(float)
    squares = ((X.astype(float) - V @ H) ** 2).sum(axis=1)
    value = 5 * (W * (V - V.T) ** 2).sum()
    if loss == "l21":
        value += np.sqrt(squares + model.l21_epsilon_**2).sum()
        rounding = 1e-11 * value  # computing X - VH loses three of sixteen digits
    else:
        value += 0.5 * squares.sum()
        # The objective is a difference of sums of this size.
        rounding = 1e-15 * (X.astype(float) ** 2).sum()
    assert model.objective_ == pytest.approx(value, rel=0, abs=rounding)
    assert model.objective_ == model.objective_history_[-1]
    assert np.diff(model.objective_history_).max() <= 0
