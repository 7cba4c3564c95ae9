"""Tests of `FactorModel`: value, gradients and unit scale against the naive objective."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from partwise.backends.numpy.dense import DenseData
from partwise.model.factor_model import FactorModel, unit_columns
from partwise.model.losses import Beta, Frobenius
from problems import (
    LOSS_IDS,
    LOSSES,
    MODELS,
    UNIT_TERMS,
    K,
    N,
    P,
    factors,
    make_case,
    naive_value,
    zeros_in,
)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", MODELS)
def test_model_value_and_gradients(rng, name, loss, kind):
    model, naive, Z, U = make_case(rng, name, loss, kind)
    expected = naive(Z, U)
    # The expansion of the square subtracts terms that are about ten times as large as the value.
    assert model.value(Z, U) == pytest.approx(expected, rel=1e-12)
    assert model.exact_value(Z, U) == pytest.approx(expected, rel=1e-12)
    for side, at, f in (("V", Z, lambda A: naive(A, U)), ("U", U, lambda A: naive(Z, A))):
        sub = model.subproblem(side, Z, U)
        assert sub.value(at) == pytest.approx(expected, rel=1e-12)
        other = at * rng.uniform(0.5, 1.5, at.shape)
        assert sub.value(other) == pytest.approx(f(other), rel=1e-12)
        neg, pos = model.subproblem(side, Z, U).split(at)
        assert (neg >= 0).all() and (pos >= 0).all()
        gradient = np.broadcast_to(pos - neg, at.shape)
        # Central differences of values near 30 with step 1e-6 have a rounding error of 30 eps /
        # 1e-6 = 1e-8.
        np.testing.assert_allclose(
            gradient, reference.numerical_gradient(f, at), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("beta", [0.5, 1.5, 3.0])
def test_beta_model_value_and_gradients(rng, beta):
    loss = Beta(beta)
    model, naive, Z, U = make_case(rng, "penalties", loss)
    assert model.value(Z, U) == pytest.approx(naive(Z, U), rel=1e-12)
    for side, at, f in (("V", Z, lambda A: naive(A, U)), ("U", U, lambda A: naive(Z, A))):
        neg, pos = model.subproblem(side, Z, U).split(at)
        np.testing.assert_allclose(
            pos - neg, reference.numerical_gradient(f, at), rtol=1e-6, atol=1e-6
        )


def test_exact_value_of_a_perfect_fit(rng):
    """Check that `exact_value` of a perfect fit has an error of only eps² ‖X‖².

    The expanded square, which is faster, has an error of eps ‖X‖².
    """
    V, U = factors(rng, 40, 30, 3)
    model = FactorModel(DenseData(V @ U.T), Frobenius())
    assert 0 <= model.exact_value(V, U) <= 1e-28 * model.constant


@pytest.mark.parametrize("norm", [1, 2])
def test_unit_columns(rng, norm):
    Z, U = factors(rng, N, P, K)
    U[:, 1] = 0
    Z2, U2 = unit_columns(Z, U, norm)
    np.testing.assert_allclose(np.linalg.norm(U2, norm, axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(Z2 @ U2.T, Z @ U.T, rtol=1e-13)


@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
@pytest.mark.parametrize("name", UNIT_TERMS)
def test_moving_the_length_over_keeps_the_unit_objective(rng, name, loss):
    X = zeros_in(rng, N, P, density=0.7)
    terms = UNIT_TERMS[name](rng, N)
    model = FactorModel(DenseData(X), loss, terms_V=terms, unit=True)
    Z, U = factors(rng, N, P, K)
    Z1, U1 = model.normalize(Z, U)
    expected = naive_value(X, Z1, U1, loss, terms_V=terms)
    assert model.value(Z1, U1) == pytest.approx(expected, rel=1e-12)
    assert model.value(Z, U) == pytest.approx(expected, rel=1e-12)
