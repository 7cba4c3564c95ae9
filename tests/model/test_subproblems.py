"""Tests of the subproblem in one factor: KKT residual and curvature bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from partwise.backends.numpy.dense import DenseData
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Quadratic, kkt_residual
from partwise.model.terms import Ridge
from problems import LOSS_IDS, LOSSES, K, N, P, factors, make_case, zeros_in


def naive_kkt(Z, neg, pos, slopes, misfit):
    """Return the KKT residual in naive loops, as the docstring of `kkt_residual` defines it."""
    parts = np.zeros(3 + len(slopes))
    for i in range(Z.shape[0]):
        for j in range(Z.shape[1]):
            each = [slope[i, j] for slope in slopes]
            g, share = pos[i, j] - neg[i, j] + sum(each), 1.0
            if g > 0:
                mean = Z[:, j].mean()
                share = min(1.0, Z[i, j] / mean) if mean > 0 else 0.0
            parts += (share * np.array([g, pos[i, j], neg[i, j], *each])) ** 2
    g, p, n, *rest = np.sqrt(parts)
    return min(1.0, g / (misfit * (p + n) + sum(rest)))


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", ["plain", "penalties", "smoothing", "graph"])
def test_kkt_residual(rng, name, loss):
    model, _, Z, U = make_case(rng, name, loss)
    Z[rng.uniform(size=Z.shape) < 0.3] = 0
    Z[:, 0] += 0.1  # the ratios of KL need a positive entry in every row
    for side, at in (("V", Z), ("U", U)):
        sub = model.subproblem(side, Z, U)
        halves = (np.broadcast_to(a, at.shape) for a in sub.halves(at))
        slopes = [np.broadcast_to(np.subtract(*t.split(at)[::-1]), at.shape) for t in sub.terms]
        neg, pos = halves
        for misfit in (1.0, 0.01):
            got = kkt_residual(sub, at, misfit)
            expected = naive_kkt(at, neg, pos, slopes, misfit)
            assert got == pytest.approx(expected, rel=1e-12)
            assert 0 < got <= 1
        minus, plus = sub.split(at)
        total = pos - neg + sum(slopes)
        np.testing.assert_allclose(total, plus - minus + 0 * at, rtol=1e-9, atol=1e-12)


def test_kkt_residual_counts_a_weighted_row_like_repeated_rows(rng):
    X = zeros_in(rng, N, P, density=0.7)
    Z, U = factors(rng, N, P, K)
    counts = rng.integers(1, 4, N)
    for loss in LOSSES:
        once = FactorModel(DenseData(X), loss, weights=counts.astype(float))
        often = FactorModel(DenseData(np.repeat(X, counts, axis=0)), loss)
        Z2 = np.repeat(Z, counts, axis=0)
        for side in "VU":
            a = kkt_residual(once.subproblem(side, Z, U), Z if side == "V" else U)
            b = kkt_residual(often.subproblem(side, Z2, U), Z2 if side == "V" else U)
            assert a == pytest.approx(b, rel=1e-12)


def test_kkt_residual_is_zero_at_a_minimum(rng):
    B, X = rng.uniform(size=(20, 4)), rng.uniform(-1, 1, (15, 20))
    Z = np.array([nnls(B, x)[0] for x in X])
    assert (Z == 0).any()
    assert kkt_residual(Quadratic(X @ B, B.T @ B), Z) < 1e-12


def test_quadratic_lipschitz_and_row_weights(rng):
    G = (lambda B: B.T @ B)(rng.uniform(size=(8, 3)))
    d = rng.uniform(0, 2, N)
    sub = Quadratic(rng.uniform(size=(N, 3)), G, d=d, terms=[Ridge(np.full((1, 1), 0.5))])
    hessian = np.kron(np.diag(d), G) + 0.5 * np.eye(3 * N)
    assert sub.lipschitz() == pytest.approx(np.linalg.eigvalsh(hessian).max(), rel=1e-12)
