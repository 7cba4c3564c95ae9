"""Tests of AnsNMF and its linear programs, which enlarge determinants to make factors sparser."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from partwise import AnsNMF
from partwise.metrics import sparseness
from partwise.solvers.unmixing import _largest_volume, unmix_codes, unmix_parts

N, P, K = 24, 15, 4
#: The linear-program solver HiGHS is accurate to 1e-7; up to a hundred later iterations amplify
#: this less than tenfold.
VERTEX = 1e-6


def problem(seed, k=K):
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(N, k)) @ rng.gamma(0.5, size=(k, P)) + 0.05 * rng.random((N, P))
    return X / X.max(), rng.random((N, k)) + 0.01, rng.random((P, k)) + 0.01


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("slack", [0.0, 0.001, 0.1])
def test_as_the_naive_version(seed, k, slack):
    X, V0, U0 = problem(seed, k)
    V, S, U = reference.ansnmf(X, V0, U0, 30, slack_V=slack, slack_U=slack)
    settings = {"slack_W": slack, "slack_H": slack, "max_iter": 30, "init": "custom"}
    model = AnsNMF(k, **settings)
    got = model.fit_transform(X, W=V0, H=U0.T)
    np.testing.assert_allclose(got, V, atol=VERTEX * V.max())
    np.testing.assert_allclose(model.basis_, U.T, atol=VERTEX * U.max())
    np.testing.assert_allclose(model.mixing_, S, atol=VERTEX * S.max())
    np.testing.assert_allclose(model.components_, S @ U.T, atol=VERTEX)
    value = 0.5 * np.sum((X - V @ S @ U.T) ** 2)
    assert model.objective_ == pytest.approx(value, rel=1e-4)
    assert model.objective_history_[-1] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_a_program_finds_the_largest_determinant(seed, slack):
    rng = np.random.default_rng(seed)
    V, U = rng.gamma(0.3, size=(40, K)), rng.gamma(0.3, size=(30, K))
    U /= U.sum(axis=0)
    B, C = unmix_codes(V, slack), unmix_parts(U, slack)
    for M in (B, C.T):
        assert np.linalg.det(M) >= 1 - 1e-9  # the identity is feasible, and its determinant is 1
        np.testing.assert_allclose(M.sum(axis=0), 1, atol=1e-9)
        assert np.linalg.inv(M).min() >= -1e-7
    assert (U @ C.T).min() >= -slack - 1e-7
    M, limits = np.eye(K), np.full(len(U), -slack)
    for c in range(K):  # several columns are equally good, so the determinants are compared
        naive = reference.ansnmf_column(M, c, U, limits)
        own = M.copy()
        own[:, c] = _largest_volume(M, c, A_ub=-U, b_ub=-limits)
        assert np.linalg.det(own) == pytest.approx(np.linalg.det(naive), rel=1e-6)
        M = naive


def test_mixed_factors_are_unmixed():
    """Check that unmixing recovers known parts and makes the part weights sparser.

    Each pure part has a feature of its own. The rows of the unmixing matrix for the parts are
    independent, so one pass is exact. Its columns for the part weights depend on each other, and a
    pass stops where no single column can improve.
    """
    rng = np.random.default_rng(0)
    pure = np.vstack([np.eye(3), rng.dirichlet(np.full(3, 0.4), size=60)])
    A = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    parts = pure / pure.sum(axis=0)
    mixed = parts @ (A / A.sum(axis=1, keepdims=True)).T
    np.testing.assert_allclose(mixed @ unmix_parts(mixed, 0.0).T, parts, atol=1e-6)
    codes = pure @ A.T
    assert sparseness(np.maximum(codes @ unmix_codes(codes, 0.0).T, 0)) > sparseness(codes) + 0.05


def test_it_is_sparser_than_without_its_programs():
    X, V0, U0 = problem(1)
    model = AnsNMF(K, init="custom", max_iter=60).fit(X, W=V0, H=U0.T)
    V, U, _ = reference.nmf_frobenius(X, V0, U0, 70)
    assert sparseness(model.basis_) > sparseness(U) and sparseness(model.embedding_) > sparseness(V)
    error = np.linalg.norm(X - model.inverse_transform(model.embedding_)) / np.linalg.norm(X)
    assert error < 0.5


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, np.asfortranarray, np.float32])
def test_every_kind_of_local_array(make):
    X, V0, U0 = problem(2)
    dtype = np.float32 if make is np.float32 else np.float64
    plain, other = (
        AnsNMF(K, init="custom", max_iter=5).fit(kind(X), W=V0.astype(d), H=U0.T.astype(d))
        for kind, d in ((np.asarray, np.float64), (make, dtype))
    )
    # The vertices of the linear programs depend on the data, which float32 rounds to 1e-7.
    atol = (1e-3 if dtype == np.float32 else VERTEX) * plain.embedding_.max()
    np.testing.assert_allclose(other.embedding_, plain.embedding_, atol=atol)
    assert other.embedding_.dtype == other.mixing_.dtype == dtype


def test_zeros_and_a_single_part():
    X = np.zeros((6, 4))
    X[0, 0] = 1.0
    for k in (1, 2, 3):
        model = AnsNMF(k, random_state=0, max_iter=3).fit(X)
        assert np.isfinite(model.embedding_).all() and np.isfinite(model.components_).all()
    for name in ("slack_W", "slack_H"):
        with pytest.raises(ValueError, match=name):
            AnsNMF(2, **{name: -0.1}).fit(X)
