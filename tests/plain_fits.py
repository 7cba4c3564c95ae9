"""Shared helpers for small fits of NMF: solvers, penalties, data, and naive objectives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import reference
from partwise import NMF
from partwise.backends import SMALL_SPARSE
from partwise.fitting import FitInputs, check, described, solve, state
from partwise.model.losses import beta_of


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    """Limit BLAS to one thread, because several test processes share the processor's cores."""
    with threadpool_limits(1, user_api="blas"):
        yield


KL = "kullback-leibler"


#: Triples (solver, mu_rule, beta_loss); each is run with every penalty.
SOLVERS = [
    ("hals", None, "frobenius"),
    ("nesterov", None, "frobenius"),
    ("mu", None, "frobenius"),
    ("mu", "lin", "frobenius"),
    ("newton", None, KL),
    ("mu", None, KL),
    ("mu", "lin", KL),
    ("mu", None, "itakura-saito"),
    ("mu", None, -1.0),
    ("mu", None, 0.5),
    ("mu", None, 1.5),
    ("mu", None, 3.0),
]


SOLVER_IDS = ["-".join(str(s) for s in row if s is not None) for row in SOLVERS]


FAST = [row for row in SOLVERS if row[0] != "mu"]


FAST_IDS = [row[0] for row in FAST]


PENALTIES = {
    "none": {},
    "l1": {"alpha_W": 0.002, "alpha_H": 0.004, "l1_ratio": 1.0},
    "l2": {"alpha_W": 0.003, "alpha_H": 0.001, "l1_ratio": 0.0},
    "both": {"alpha_W": 0.003, "l1_ratio": 0.4},
    "W only": {"alpha_W": 0.002, "alpha_H": 0.0, "l1_ratio": 0.5},
}


def make(solver="hals", rule=None, loss="frobenius", **params):
    params = {"random_state": 0, "init": "random", "tol": 0.0, "max_iter": 40, **params}
    if rule is not None:
        params["mu_rule"] = rule
    return NMF(params.pop("n_components", 4), solver=solver, beta_loss=loss, **params)


def as_solved(model, X, **start):
    """Return the V and U of the solver, before the scale of the components is chosen."""
    what = described(model)
    checked = check(model, what, X, FitInputs(**start))
    problem = state(what, checked)
    found = solve(what, problem)
    return found.Z, found.U


def make_data(seed=0, n=40, p=30, *, positive=False, dtype=np.float64):
    """Return data of four noisy parts with a zero row and column, or with positive entries only."""
    rng = np.random.default_rng(seed)
    V = rng.exponential(size=(n, 4)) * (rng.uniform(size=(n, 4)) < 0.5)
    U = rng.exponential(size=(p, 4)) * (rng.uniform(size=(p, 4)) < 0.5)
    X = V @ U.T + 0.1 * rng.uniform(size=(n, p))
    if positive:
        return (X + 0.05).astype(dtype)
    X[rng.uniform(size=(n, p)) < 0.3] = 0
    X[3], X[:, p // 5] = 0, 0
    return X.astype(dtype)


def data_for(loss, **options):
    """Return data for the loss: positive for β < 1, where gradients at zero rows are infinite."""
    return make_data(positive=beta_of(loss) < 1, **options)


def make_sparse(seed=0, n=210, p=200, density=0.1, dtype=np.float64):
    """Return a sparse array with a zero row and column that is too large to be made dense."""
    assert n * p > SMALL_SPARSE
    rng = np.random.default_rng(seed)
    X = make_data(seed, n, p) * (rng.uniform(size=(n, p)) < density)
    return sp.csr_array(X.astype(dtype))


def make_start(n, p, k=4, seed=0, scale=1.0, dtype=np.float64):
    rng = np.random.default_rng(seed + 100)
    W, H = rng.uniform(0.1, 1, (n, k)), rng.uniform(0.1, 1, (k, p))
    return (scale * W).astype(dtype), (scale * H).astype(dtype)


def scaled(penalty, n, p):
    """Return the weights of a penalty under the reference's names, scaled as in scikit-learn."""
    alpha_W, ratio = penalty.get("alpha_W", 0.0), penalty.get("l1_ratio", 0.0)
    on_V, on_U = alpha_W * p, penalty.get("alpha_H", alpha_W) * n
    return {
        "l1_V": on_V * ratio,
        "l2_V": on_V * (1 - ratio),
        "l1_U": on_U * ratio,
        "l2_U": on_U * (1 - ratio),
    }


def naive_objective(X, model, penalty=None, gamma=None):
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    return reference.objective_beta(
        X.astype(float),
        model.embedding_.astype(float),
        model.components_.T.astype(float),
        beta_of(model.beta_loss),
        gamma=gamma,
        **scaled(penalty or {}, *X.shape),
    )


def assert_close(got, expected, tolerance):
    """Check that entries agree to `tolerance` times the largest one; small ones may cancel."""
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.max(expected))


SPARSE = [False, True]


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def assert_same_fit(got, expected, tolerance):
    assert got.components_.dtype == expected.components_.dtype
    assert_close(got.components_, expected.components_, tolerance)
    assert_close(np.asarray(got.embedding_), np.asarray(expected.embedding_), tolerance)
    assert got.objective_ == pytest.approx(expected.objective_, rel=tolerance)
