"""Tests of the last solve for the part weights V against non-negative least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

import partwise
import reference
from partwise.backends.sweeps import sweep_rows
from partwise.model.losses import Frobenius
from partwise.solvers.steps import hals, solve_codes
from problems import DTYPES, K, make_case


@pytest.mark.parametrize("name", ["plain", "weights", "penalties", "smoothing"])
def test_solve_codes_is_non_negative_least_squares(rng, name):
    model, _, Z, U = make_case(rng, name, Frobenius())
    got, _ = solve_codes(model, Z, U, hals, tol=1e-6, max_iter=200)
    S = reference.smoothing_matrix(K, model.S.delta)
    B, X = U @ S.T, model.data.X
    for i, x in enumerate(X):
        if name == "penalties":  # ½‖x - Bz‖² + 0.2 Σz + 0.15‖z‖² is written as least squares
            A = np.linalg.cholesky(B.T @ B + 0.3 * np.eye(K)).T
            expected = nnls(A, np.linalg.solve(A.T, B.T @ x - 0.2))[0]
        else:
            expected = nnls(B, x)[0]
        # Sweeps stop at a thousandth of tol.
        np.testing.assert_allclose(got[i], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_wide_problem_is_solved_to_the_end(rng, dtype, weighted):
    """Compare with scipy's active-set method on a Hessian for which coordinate descent is slow."""
    n, k = 70, 40
    B = (rng.uniform(size=(60, k)) + 2).astype(dtype)  # nearly parallel columns
    X = rng.uniform(size=(n, 60)).astype(dtype)
    d = rng.uniform(0.5, 2, n).astype(dtype) if weighted else None
    scale = np.ones(n) if d is None else d
    r = np.full((1, 1), 0.1, dtype)
    G, C = B.T @ B, (X @ B) * scale[:, None].astype(dtype)
    got = sweep_rows(np.ones((n, k), dtype), C, G, d, r, 2000, 1e-9)
    for i in (0, 33, 69):
        H = np.linalg.cholesky(scale[i] * G.astype(float) + 0.1 * np.eye(k))
        exact = nnls(H.T, np.linalg.solve(H, C[i].astype(float)))[0]
        np.testing.assert_allclose(got[i], exact, atol=1e-9 if dtype == np.float64 else 2e-3)


def test_a_wide_singular_problem_still_goes_to_its_minimum(rng):
    B = rng.uniform(size=(50, 20))
    B = np.hstack([B, B])  # with duplicated parts, no Cholesky factor exists
    X = rng.uniform(size=(30, 50))
    got = sweep_rows(np.ones((30, 40)), X @ B, B.T @ B, None, np.zeros((1, 1)), 2000, 1e-9)
    exact = [nnls(B[:, :20], x)[1] for x in X]
    np.testing.assert_allclose(np.linalg.norm(X - got @ B.T, axis=1), exact, rtol=1e-6)


@pytest.mark.parametrize("loss", [2, 1])
@pytest.mark.parametrize("size", [1e25, 1e-25])
def test_the_length_of_a_part_does_not_matter(size, loss):
    """Check that part weights do not depend on the norm of a part.

    Fits with more parts than features can end with parts whose norms differ by 27 orders of
    magnitude.
    """
    rng = np.random.default_rng(0)
    X, H = 5 * rng.gamma(0.5, size=(30, 5)), rng.gamma(0.5, size=(8, 5))
    model = partwise.NMF(8, beta_loss=loss, init="custom", max_iter=1, tol=0.0)
    model.fit(X, W=rng.random((30, 8)), H=H)
    model.components_ = H
    expected = model.set_params(max_iter=2000, tol=1e-7).transform(X) @ H
    H = H * np.where(np.arange(8) == 3, size, 1)[:, None]
    model.components_ = H
    # Both calls of `transform` stop at the tolerance.
    apart = np.linalg.norm(model.transform(X) @ H - expected)
    assert apart <= 1e-5 * np.linalg.norm(X)
