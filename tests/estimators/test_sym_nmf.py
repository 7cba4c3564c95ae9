"""Tests of SymNMF, which approximates a similarity matrix S by VVᵀ with one factor V."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

import partwise
import reference
from partwise import SymNMF
from partwise.backends.numpy.kernels import symmetric_sweep

rng = np.random.default_rng(0)
N, K = 30, 3
PARTS = rng.exponential(size=(N, K)) * (rng.random((N, K)) < 0.4)
NOISE = rng.random((N, N))
S = PARTS @ PARTS.T + 0.05 * (NOISE + NOISE.T)
NUMBERS = st.floats(-1e3, 1e3).map(lambda x: round(x, 6))
V0 = 0.1 + rng.random((N, K))


@settings(deadline=None, max_examples=80)
@given(NUMBERS, NUMBERS, st.integers(-8, 8))
def test_the_minimum_of_a_quartic(a, b, power):
    """Compare the step for one entry of V, which minimises a quartic, with another solution.

    The quartic is x⁴/4 + a x²/2 + b x for x >= 0. The expected minimum is at zero or at a real root
    of its derivative.
    """
    a, b = a * 100.0**power, b * 1000.0**power
    roots = np.roots([1.0, 0.0, a, b])
    real = roots.real[np.abs(roots.imag) <= 1e-6 * np.abs(roots)]
    candidates = np.append(real[real > 0], 0.0)

    def quartic(x):
        return x**4 / 4 + a * x**2 / 2 + b * x

    found, best = symmetric_sweep._least(a, b), quartic(candidates).min()
    assert found >= 0
    assert quartic(found) <= best + 1e-9 * (found**4 + abs(a) * found**2 + abs(b) * found)


def test_sweeps_are_the_naive_ones():
    V, history = reference.symmetric_sweeps(S, V0, 6)
    for matrix in (S, sp.csr_array(S)):
        model = SymNMF(K, init="custom", max_iter=6, tol=0).fit(matrix, W=V0)
        np.testing.assert_allclose(model.embedding_, V, atol=1e-8)
        np.testing.assert_allclose(model.objective_history_, history, rtol=1e-9)
        assert np.diff(model.objective_history_).max() <= 0
        value = 0.5 * ((S - model.embedding_ @ model.embedding_.T) ** 2).sum()
        assert model.objective_ == pytest.approx(value, rel=1e-9)


def test_the_end_is_a_minimum_and_the_codes_are_those_of_its_samples(tmp_path):
    model = SymNMF(K, n_init=3, max_iter=2000, tol=1e-7, random_state=0).fit(S)
    V = model.embedding_
    assert model.status_.startswith("converged")
    slope = 2 * (V @ (V.T @ V) - S @ V)
    assert np.abs(slope[V > 0]).max() < 1e-4 and slope[V == 0].min(initial=0) > -1e-4
    np.testing.assert_allclose(model.transform(S), V, atol=1e-4)
    np.testing.assert_allclose(model.inverse_transform(V), V @ V.T, rtol=1e-12)
    # The objective is at least the minimum over V of any sign, which the eigenvalues of S give.
    least = np.linalg.eigvalsh(S)
    assert model.objective_ >= 0.5 * (least[:-K] ** 2).sum() * (1 - 1e-12)
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_array_equal(again.transform(S[:4]), model.transform(S[:4]))
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_exact_parts_are_found_and_scale_does_not_matter():
    clear = PARTS @ PARTS.T
    model = SymNMF(K, n_init=5, max_iter=3000, tol=1e-6, random_state=0).fit(clear)
    assert model.objective_ < 1e-8 * (clear**2).sum()
    small, large = (SymNMF(K, max_iter=40, tol=0, random_state=0).fit(S * 4.0**e) for e in (0, 150))
    np.testing.assert_allclose(large.embedding_ / 2.0**150, small.embedding_, atol=1e-6)
    single = SymNMF(K, max_iter=40, tol=0, random_state=0).fit(S.astype(np.float32))
    assert single.embedding_.dtype == np.float32
    assert single.objective_ == pytest.approx(small.objective_, rel=1e-4)
    assert SymNMF(2, random_state=0).fit(np.zeros((4, 4))).objective_ == 0


def test_digits_by_their_similarities_alone():
    X, y = load_digits(n_class=4, return_X_y=True)
    kernel = rbf_kernel(X, gamma=1e-3)
    root = np.sqrt(kernel.sum(axis=1))
    known = np.where(np.arange(len(y)) < 20, y, -1)
    model = SymNMF(4, random_state=0).fit(kernel / root[:, None] / root[None, :], known)
    assert partwise.metrics.clustering_accuracy(y, model.cluster_labels_) > 0.85
    assert (model.labels_ == y).mean() > 0.85


def test_the_gain_of_a_step_below_the_root_of_eps_is_seen():
    """Check the gain of a coordinate step smaller than the square root of eps.

    The gain is of the order of the squared step, so a difference of two objectives would lose it.
    """
    a, b = 2.0, -3.0  # x³ + 2x - 3 has its root at 1, with slope 5
    for step in (1e-3, 1e-6, 1e-9, 1e-12):
        for old in (1 + step, 1 - step):
            # The third derivative is 6, which bounds the error of the quadratic; `old` itself is
            # rounded to eps.
            exact, slack = 2.5 * step**2, 2 * step + 4 * np.finfo(float).eps / step
            assert symmetric_sweep._gain(a, b, old, 1.0) == pytest.approx(exact, rel=slack)
    assert symmetric_sweep._gain(a, 3.0, 0.5, 0.0) == symmetric_sweep._quartic(a, 3.0, 0.5)


@pytest.mark.parametrize(
    "bad, message",
    [
        (S[:, :-1], r"square.*\(30, 29\)"),
        (
            S + np.eye(N, k=1),
            r"symmetric.*\(\d+, \d+\).*\(X",
        ),
        (sp.csr_array(np.triu(S)), "symmetric"),
        (S - 1.0, "Negative.*SymNMF.*row.*column"),
        (np.where(np.eye(N) > 0, np.nan, S), "NaN"),
    ],
)
def test_what_is_no_similarity_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        SymNMF(2).fit(bad)


def test_starts_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"init='custom'.*W"):
        SymNMF(2, init="custom").fit(S)
    with pytest.raises(ValueError, match="SymNMF"):
        SymNMF(2, init="custom").fit(S, W=V0)
    with pytest.warns(RuntimeWarning, match="W"):
        SymNMF(3, random_state=0).fit(S, W=V0)
