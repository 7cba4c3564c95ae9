"""Tests that solver steps descend, do not change their arguments, and reach the minimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq

import reference
from partwise.backends.numpy.dense import DenseData
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import CannotLink, Graph, Neighbors
from partwise.model.losses import Beta, Frobenius, KullbackLeibler
from partwise.model.subproblems import Divergence, Quadratic
from partwise.model.terms import Linear, Ridge
from partwise.solvers.steps import STEPS, hals, mu, nesterov, newton
from problems import MODELS, STEP_LOSS, make_case

# Newton steps need terms that do not couple rows, KL has its own graph term, and the other
# divergences are supported only by the plain model.
STEP_CASES = [
    pytest.param(step, loss, name, id=f"{step}-{loss.beta:g}-{name}")
    for step, loss in STEP_LOSS
    for name in MODELS
    if (name in ("plain", "penalties") if isinstance(loss, Beta) else True)
    and not (loss.beta == 1 and name == "graph")
]


@pytest.mark.parametrize(("step", "loss", "name"), STEP_CASES)
def test_steps_descend_are_pure_and_stay_non_negative(rng, step, loss, name):
    model, naive, Z, U = make_case(rng, name, loss)
    for _ in range(5):
        for side in "VU":
            sub = model.subproblem(side, Z, U)
            at = Z if side == "V" else U
            kept = at.copy()
            new = STEPS[step](sub, at)
            np.testing.assert_array_equal(at, kept)
            assert (new >= 0).all() and np.isfinite(new).all()
            before = naive(Z, U)
            Z, U = (new, U) if side == "V" else (Z, new)
            # The tolerance is the rounding error of a value near 30.
            assert naive(Z, U) <= before * (1 + 1e-13)


@pytest.mark.parametrize("name", ["plain", "weights", "penalties", "labels", "smoothing"])
@pytest.mark.parametrize(
    ("step", "loss", "rounds"),
    [
        ("hals", Frobenius(), 400),
        ("nesterov", Frobenius(), 400),
        ("newton", KullbackLeibler(), 400),
    ],
    ids=["hals", "nesterov", "newton"],
)
def test_steps_solve_the_convex_half(rng, name, step, loss, rounds):
    """Check that every step, repeated with a fixed basis, converges to the minimum.

    The problem in V is convex, so the minimum is a KKT point.
    """
    model, _, Z, U = make_case(rng, name, loss)
    for _ in range(rounds):
        Z = STEPS[step](model.subproblem("V", Z, U), Z)
    gradient = np.subtract(*model.subproblem("V", Z, U).split(Z)[::-1])
    # Gradients are of order one. From a stationary start, Nesterov's method converges linearly to
    # 1e-7.
    assert gradient.min() > -1e-6
    assert np.abs(gradient * Z).max() < 1e-6


def test_hals_shuffled_order_solves_the_same_problem(rng):
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    sub = model.subproblem("V", Z, U)
    sub.sweeps = 1000
    straight = hals(sub, Z, stop=0.0)
    shuffled = hals(sub, Z, stop=0.0, order=np.array([2, 0, 1]))
    np.testing.assert_allclose(straight, shuffled, atol=1e-9)  # the minimum is unique


def test_nesterov_against_the_reference(rng):
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    got = nesterov(model.subproblem("V", Z, U), Z, inner_iter=7)
    X, G = model.data.X, U.T @ U
    expected = reference.accelerated(
        lambda A: A @ G - X @ U, np.linalg.norm(G, 2), Z.copy(), inner_iter=7
    )
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


def test_nesterov_without_curvature_stays():
    Z = np.ones((3, 2))
    np.testing.assert_array_equal(nesterov(Quadratic(np.zeros((3, 2)), np.zeros((2, 2))), Z), Z)


@pytest.mark.parametrize("beta", [-0.5, 0.0, 0.5, 1.0, 1.3, 1.8])
def test_em_with_ridge_solves_its_equation(rng, beta):
    """Compare the multiplicative step with a ridge with the root found by bisection.

    The equation is cost q^max(β-1,0) + ridge Z q = product q^min(β-2,0).
    """
    Z, product, cost = (rng.uniform(0.05, 3.0, (6, 4)) for _ in range(3))
    ridge = 0.7
    sub = Divergence(
        lambda: product,
        cost,
        beta=beta,
        terms=[Linear(np.full((1, 1), 0.2)), Ridge(np.full((1, 1), ridge))],
        evaluate=lambda Z: 0.0,
    )
    got = mu(sub, Z)
    for index in np.ndindex(Z.shape):
        b, c, z = cost[index] + 0.2, product[index], Z[index]
        root = brentq(
            lambda q: b * q ** max(beta - 1, 0) + ridge * z * q - c * q ** min(beta - 2, 0),  # noqa: B023
            1e-6,
            1e6,
            xtol=1e-15,
            rtol=1e-15,
        )
        assert got[index] == pytest.approx(z * root, rel=1e-10)


def test_newton_needs_few_sweeps_of_a_poisson_mean():
    """Check that Newton steps reach the minimiser Σx / Σb from distant starts in six sweeps.

    It is the mean of Poisson counts for a single coordinate.
    """
    x, b = np.array([[3.0, 1.0, 5.0, 2.0]]), np.array([[1.0, 0.5, 2.0, 1.0]]).T
    model = FactorModel(DenseData(x), KullbackLeibler())
    for start in (1e-4, 1.0, 1e4):
        Z = np.full((1, 1), start)
        for _ in range(6):
            Z = newton(model.subproblem("V", Z, b), Z)
        assert Z[0, 0] == pytest.approx(x.sum() / b.sum(), rel=1e-9)


def test_zero_times_a_ratio_beyond_the_range_is_zero():
    """Check the multiplicative update of a cannot-link between a zero and a tiny part weight.

    The update multiplies zero by a ratio that overflows; the result must be zero.
    """
    C = np.array([[0.0, 1.0], [1.0, 0.0]])
    Z = np.array([[0.0], [2e-38]], dtype=np.float32)
    neg, G = np.full((2, 1), 10, dtype=np.float32), np.ones((1, 1), dtype=np.float32)
    with np.errstate(over="ignore"):
        new = mu(Quadratic(neg, G, terms=[CannotLink.between(sp.csr_array(C), 1.0)]), Z)
    assert new[0] == 0 and np.isfinite(new).all()


@pytest.mark.parametrize("how", ["exact", "graph", "plain"])
def test_coordinate_descent_takes_factors_by_columns(rng, how):
    """Check that coordinate descent gives the same result for factors stored by columns.

    Products of NumPy may be stored by columns, but the compiled kernels need rows.
    """
    # Adding 30 makes the columns nearly collinear.
    F = rng.random((40, 3)) + (0.0 if how == "graph" else 30.0)
    C, Z = rng.random((20, 40)) @ F, rng.random((20, 3))
    W = sp.csr_array(np.ones((20, 20)) - np.eye(20))
    terms = [Graph(Neighbors(W), np.asarray(W.sum(axis=1)).ravel(), 0.1)] if how == "graph" else []
    step = hals.bound_to(exact=True) if how == "exact" else hals
    new = [
        step(Quadratic(C, F.T @ F, terms=terms, sweeps=3), np.array(Z, order=order))
        for order in "CF"
    ]
    assert not np.array_equal(new[0], Z)
    np.testing.assert_array_equal(*new)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n, k", [(1, 1), (64, 4), (150, 5), (200, 33)])
@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_a_half_step_is_the_step_its_extrapolation_and_both_changes(rng, dtype, n, k, weight):
    """Compare the combined kernel with a step, its extrapolation, and the changes of both.

    The sizes include incomplete blocks and widths that are not a multiple of four.
    """
    B, V = rng.random((60, k)).astype(dtype), rng.random((n, k)).astype(dtype)
    Z, old = rng.random((2, n, k)).astype(dtype)
    if k > 1:
        B[:, 1] = 0  # a component without curvature stays
    sub = Quadratic(V @ (B.T @ B) - rng.random((n, k)).astype(dtype), B.T @ B, sweeps=3)
    assert hals.extrapolated is not None
    new, beyond, change, ahead = hals.extrapolated(sub, Z, old, weight)
    assert new.dtype == beyond.dtype == dtype
    wanted = Quadratic(sub.C.astype(float), sub.G.astype(float), sweeps=3)
    step = hals(wanted, Z.astype(float))
    if k > 1:
        np.testing.assert_array_equal(new[:, 1], Z[:, 1])
        step[:, 1] = Z[:, 1]
    eps = 100 * k * np.finfo(dtype).eps
    np.testing.assert_allclose(new, step, rtol=0, atol=eps * step.max())
    far = np.maximum(step + weight * (step - old), 0)
    np.testing.assert_allclose(beyond, far, rtol=0, atol=eps * far.max())
    sums = eps * np.abs(wanted.C * Z).sum()
    assert change == pytest.approx(wanted.change(step, Z.astype(float)), abs=sums)
    assert ahead == pytest.approx(wanted.change(far, step), abs=sums)
    assert (ahead == 0) == (weight == 0)


def test_a_penalised_or_held_factor_has_no_shortcut(rng):
    Z, G = rng.random((6, 3)), np.eye(3)
    for change in ({"terms": [Ridge(1.0)]}, {"d": np.ones(6)}):
        assert hals.extrapolated(Quadratic(Z, G, **change), Z, Z, 0.5) is None
    held = Quadratic(Z, G)
    held.project = abs
    assert hals.extrapolated(held, Z, Z, 0.5) is None
    assert hals.bound_to(stop=0.5).extrapolated is None
