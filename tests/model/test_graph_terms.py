"""Tests of each penalty term's value, gradient, bound, curvature and degree against formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from backends import Forms
from partwise.backends import as_data
from partwise.backends.arrays import to_numpy
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import Graph, GraphDivergence, Neighbors
from partwise.model.losses import make_loss
from partwise.model.terms import Linear, Ridge
from problems import Hidden, K, N, graph_of

TERMS = {
    "l1": lambda rng: Linear(np.full((1, 1), 0.3)),
    "class cost": lambda rng: Linear(rng.uniform(size=(N, K))),
    "l2": lambda rng: Ridge(np.full((1, 1), 0.7)),
    "l2 by row": lambda rng: Ridge(rng.uniform(size=(N, 1))),
    "l2 by entry": lambda rng: Ridge(rng.uniform(size=(N, K))),
    "l2 by column": lambda rng: Ridge(rng.uniform(size=(1, K))),
    "graph": lambda rng: (lambda W: Graph(Neighbors(W), W.sum(axis=1), 0.8))(
        sp.csr_array(graph_of(rng))
    ),
    "hidden graph": lambda rng: (lambda W: Graph(Hidden(W), W.sum(axis=1), 0.8))(graph_of(rng)),
}


def term_value(name, term, Z):
    """Return the value of a penalty term by its formula, without calling its methods."""
    if isinstance(term, Linear):
        return (np.broadcast_to(term.cost, Z.shape) * Z).sum()
    if isinstance(term, Ridge):
        return 0.5 * (np.broadcast_to(term.weight, Z.shape) * Z**2).sum()
    W = term.neighbors(np.eye(N))
    pairs = sum(W[i, j] * ((Z[i] - Z[j]) ** 2).sum() for i in range(N) for j in range(N))
    return 0.5 * term.weight * 0.5 * pairs  # λ/2 tr(ZᵀLZ) = λ/4 Σ_ij W_ij ‖z_i - z_j‖²


@pytest.mark.parametrize("name", TERMS)
class TestTerms:
    @pytest.fixture
    def term(self, rng, name):
        return TERMS[name](rng)

    def test_value(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        assert term.value(Z) == pytest.approx(term_value(name, term, Z), rel=1e-12)

    def test_split_is_the_gradient(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        neg, pos = term.split(Z)
        assert (neg >= 0).all() and (pos >= 0).all()
        expected = reference.numerical_gradient(lambda A: term_value(name, term, A), Z)
        # Central differences with step 1e-6 have an error of about 1e-9.
        np.testing.assert_allclose(np.broadcast_to(pos - neg, Z.shape), expected, atol=1e-7)
        slope = np.broadcast_to(term.gradient(Z), Z.shape)
        np.testing.assert_allclose(slope, expected, atol=1e-7)

    def test_bound_touches_and_majorises(self, name, term, rng):
        Z = rng.uniform(size=(N, K)) * (rng.uniform(size=(N, K)) < 0.7)
        linear, ridge = term.bound(Z).about_zero(Z)
        assert ridge.shape in ((1, 1), (N, 1), (1, K), (N, K)) and (ridge >= 0).all()

        def bound(A):
            return (linear * A).sum() + 0.5 * (ridge * A**2).sum()

        offset = term_value(name, term, Z) - bound(Z)
        for scale in (0.01, 0.3, 1.0, 10.0):
            for _ in range(20):
                A = np.maximum(Z + scale * rng.standard_normal(Z.shape), 0)
                value = term_value(name, term, A)
                assert bound(A) + offset >= value - 1e-12 * (1 + abs(value))
        slope = reference.numerical_gradient(bound, Z)
        expected = reference.numerical_gradient(lambda A: term_value(name, term, A), Z)
        np.testing.assert_allclose(slope, expected, atol=1e-7)

    def test_lipschitz_bounds_the_hessian_and_is_no_larger_than_twice_it(self, name, term):
        columns = [
            np.broadcast_to(np.subtract(*term.split(e)[::-1]), (N, K)).ravel()
            for e in np.eye(N * K).reshape(-1, N, K)
        ]
        at_zero = np.subtract(*term.split(np.zeros((N, K)))[::-1])
        hessian = np.array(columns) - np.broadcast_to(at_zero, (N, K)).ravel()
        largest = np.linalg.eigvalsh(hessian).max()
        assert largest <= term.lipschitz() + 1e-12
        if largest > 1e-12:  # a loose bound would slow down gradient steps
            assert term.lipschitz() <= 2 * largest + 1e-12

    def test_degree_and_coupling(self, name, term, rng):
        Z = rng.uniform(size=(N, K))
        assert term.value(3 * Z) == pytest.approx(3**term.degree * term.value(Z), rel=1e-12)
        if not term.couples:
            moved = Z.copy()
            moved[4] += 1
            before, after = (np.subtract(*term.split(A)[::-1]) for A in (Z, moved))
            before, after = (np.broadcast_to(g, Z.shape) for g in (before, after))
            np.testing.assert_array_equal(np.delete(before, 4, 0), np.delete(after, 4, 0))


@pytest.mark.parametrize("kind", ["numpy", "csr", "torch", "dask"])
@pytest.mark.parametrize("term", [Graph, GraphDivergence])
def test_neighbours_that_agree_to_five_digits_have_a_value_in_float32(kind, term, tmp_path, rng):
    """Check graph terms in float32 for neighbours whose entries agree to five digits.

    Their logarithms differ by about 2e-6, which is close to the rounding error of float32.
    """
    V = np.exp(rng.normal(30, 0.5, size=(1, K))) * (1 + 1e-5 * rng.random((N, K)))
    V[:, -1] = 0.0
    W = graph_of(rng)
    X, Z = rng.random((N, 4)).astype(np.float32), V.astype(np.float32)
    made = term(Neighbors(sp.csr_array(W)), W.sum(axis=1), 2.0)
    data = as_data(Forms(X, tmp_path)[kind])
    model = FactorModel(data, make_loss("kullback-leibler"), terms_V=[made])
    exact = Z.astype(float)
    if term is Graph:
        expected = np.trace(exact.T @ reference.laplacian(W) @ exact)
    else:
        expected = reference.symmetric_divergence(exact, W)
    # Differences of close float32 numbers are exact, so only the weights and the sums round.
    assert model.penalty("V", data.rows(Z), None) == pytest.approx(expected, rel=1e-5)
    slope = to_numpy(data.result(model.terms["V"][0].gradient(data.rows(Z))))
    assert slope.dtype == np.float32
