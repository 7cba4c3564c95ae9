"""Tests of second-order KL steps that use Hessians of all rows, for Torch and CuPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from backends import needs
from methods import rise
from partwise import CNMF, NMF
from partwise.backends.curvature import damped_step, of_pairs, places

torch = pytest.importorskip("torch", reason="torch is not installed: partwise[torch]")
pytestmark = needs("torch")
KL = "kullback-leibler"


@pytest.fixture
def counts(rng):
    """Return Poisson counts of four parts, and random initial factors V and U."""
    V, U = rng.gamma(0.5, size=(70, 4)), rng.gamma(0.5, size=(30, 4))
    return rng.poisson(3 * V @ U.T) + np.eye(70, 30), rng.random((70, 4)), rng.random((30, 4))


def data_of(X, kind, dtype):
    from partwise.backends.torch.torch_data import as_torch_data

    T = torch.from_numpy(X).to(dtype)
    return as_torch_data(T.to_sparse_csr() if kind == "csr" else T)


def test_pairs_lie_where_the_table_says(rng):
    B = rng.random((7, 5))
    table, pairs = places(5), of_pairs(B)
    for a in range(5):
        for b in range(5):
            np.testing.assert_array_equal(pairs[:, table[a, b]], B[:, a] * B[:, b])


@pytest.mark.parametrize("dtype, exact", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_curvature_and_step_are_the_naive_ones(counts, kind, dtype, exact, rng):
    X, V, U = counts
    v, u = (torch.from_numpy(a).to(dtype) for a in (V, U))
    data = data_of(X, kind, dtype)
    for transposed, Z, B in ((False, V, U), (True, U, V)):
        X2 = X.T if transposed else X
        W = X2 / (Z @ B.T) ** 2
        H = data.kl_curvature(v, u, transposed)
        want = np.einsum("ij,ja,jb->iab", W, B, B)
        np.testing.assert_allclose(H.numpy()[:, places(4)], want, rtol=exact)
        cost = B.sum(axis=0) + rng.random(Z.shape)
        ridge = rng.random(Z.shape)
        product = data.kl_tdot(v, u) if transposed else data.kl_dot(v, u)[0]
        here = [torch.from_numpy(a).to(dtype) for a in (Z, cost, ridge)]
        got = damped_step(here[0], product, H, *here[1:], 3).numpy()
        step = reference.damped_newton(X2, Z, B, cost, ridge, 3)
        np.testing.assert_allclose(got, step, rtol=10 * exact, atol=exact)
        assert abs(step - Z).max() > 0.1  # the step is not zero


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_it_falls_and_needs_fewer_iterations_than_mu(counts, kind):
    X, V, U = counts
    T = torch.from_numpy(X)
    T = T.to_sparse_csr() if kind == "csr" else T
    start = {"W": V, "H": U.T.copy()}
    settings = {"beta_loss": KL, "init": "custom", "tol": 0}
    slow = NMF(4, solver="mu", max_iter=200, **settings).fit(T, **start)
    fast = NMF(4, solver="newton", max_iter=40, **settings).fit(T, **start)
    assert rise(fast.objective_history_) <= 0
    assert min(fast.objective_history_) <= slow.objective_


def test_labels_penalties_and_gaps_stand_beside_it(counts, rng):
    X = counts[0].copy()
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.where(np.arange(70) < 20, np.arange(70) % 2, -1)
    made = {"beta_loss": KL, "max_iter": 60, "tol": 0, "init": "random", "random_state": 0}
    model = CNMF(4, solver="newton", missing_values=np.nan, **made)
    model.fit(torch.from_numpy(X), y)
    assert rise(model.objective_history_) <= 0
    by_hand = CNMF(4, solver="mu", missing_values=np.nan, **made)
    assert model.objective_ <= by_hand.fit(torch.from_numpy(X), y).objective_ * 1.02
    codes = model.transform(torch.from_numpy(X))
    assert bool((codes >= 0).all()) and codes.shape == (70, 4)


def test_auto_takes_it_where_it_pays():
    from partwise.backends.array_api import NARROW
    from partwise.backends.torch.torch_data import as_torch_data
    from partwise.fitting.checking import solver_name

    data = as_torch_data(torch.ones(50, 40))
    for k, wanted in ((NARROW, "newton"), (NARROW + 1, "mu")):
        assert solver_name(NMF(k, beta_loss=KL)._describe(), data) == wanted
        assert solver_name(NMF(k, beta_loss=KL, solver="newton")._describe(), data) == "newton"
