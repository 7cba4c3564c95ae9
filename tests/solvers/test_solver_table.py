"""Tests of the table of solvers: a solver that a test registers works in a fit like the others."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import GNMF, NMF
from partwise.backends.arrays import largest, namespace
from partwise.solvers import steps


def gradient_step(sub, Z):
    """Take one projected gradient step of length 1/L, where L bounds the curvature."""
    bound = largest(namespace(Z).sum(namespace(Z).abs(sub.G), axis=0))
    bound += sum(term.lipschitz() for term in sub.terms)
    return namespace(Z).maximum(Z - sub.gradient(Z) / (bound or 1.0), 0)


@pytest.fixture
def gradient():
    step = steps.Step("gradient", gradient_step, {"frobenius": ("lipschitz",)})
    steps.register(step)
    yield step
    del steps.STEPS["gradient"]
    steps.SOLVER_NAMES.discard("gradient")


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("estimator", [NMF, GNMF])
def test_a_registered_solver_fits_dense_and_sparse_arrays(kind, estimator, gradient, rng):
    X = rng.random((60, 4)) @ rng.random((4, 30)) * (rng.random((60, 30)) < 0.7)
    own = estimator(4, solver="gradient", max_iter=400, tol=0, random_state=0).fit(kind(X))
    fast = estimator(4, solver="hals", max_iter=400, tol=0, random_state=0).fit(kind(X))
    assert own.solver_ == "gradient"
    assert (np.diff(own.objective_history_) <= 0).all()
    assert own.objective_ == pytest.approx(fast.objective_, rel=0.05)
    assert np.isfinite(own.transform(kind(X)[:5])).all()


def test_a_registered_solver_is_refused_by_its_own_needs(gradient, rng):
    X = rng.random((20, 8))
    with pytest.raises(ValueError, match="gradient"):
        NMF(2, solver="gradient", beta_loss="kullback-leibler").fit(X)
    with pytest.raises(ValueError, match="gradient"):
        GNMF(2, solver="gradient", beta_loss="kullback-leibler").fit(X)


def test_auto_selects_the_first_solver_that_can(rng):
    X = rng.random((20, 8))
    losses = {"frobenius": "hals", "kullback-leibler": "newton", 1.5: "mu"}
    for loss, wanted in losses.items():
        assert NMF(2, beta_loss=loss, max_iter=2, tol=0).fit(X).solver_ == wanted
    with pytest.raises(ValueError, match="gradient"):
        NMF(2, solver="gradient").fit(X)  # an earlier version had this solver


@pytest.mark.parametrize("estimator", [NMF, GNMF])
def test_docstrings_list_every_solver(estimator):
    assert all(f'"{name}"' in estimator.__doc__ for name in steps.STEPS)
