"""Intervals for parts and codes."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import GNMF, NMF, bootstrap_intervals
from partwise.selection.intervals import _curvature, _Moments


def planted(n=80, p=15, k=2, seed=0):
    rng = np.random.default_rng(seed)
    H = rng.gamma(1.0, size=(k, p)) * (rng.uniform(size=(k, p)) > 0.4)
    H /= H.sum(axis=1, keepdims=True)
    V = 150 * rng.gamma(1.0, size=(n, k)) * (rng.uniform(size=(n, k)) > 0.3)
    V[V.sum(axis=1) == 0] = 10
    return rng.poisson(V @ H).astype(float), V, H


def fitted(X, k=2, **more):
    return NMF(k, init="random", random_state=0, tol=1e-5, max_iter=500, **more).fit(X)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("draw", ["samples", "poisson", "multinomial"])
def test_intervals_hold_the_estimate_and_mostly_the_truth(loss, draw):
    X, _, H = planted()
    found = bootstrap_intervals(X, fitted(X, beta_loss=loss), n_draws=20, draw=draw, random_state=0)
    assert (found.parts_low <= found.parts).all() and (found.parts <= found.parts_high).all()
    assert (found.codes_low <= found.codes).all() and (found.codes <= found.codes_high).all()
    assert found.parts_low.min() >= 0 and np.isfinite(found.parts_high).all()
    mass = found.parts.sum(axis=1)
    order = np.argmax(H @ found.parts.T, axis=1)
    low, high = (M[order] / mass[order, None] for M in (found.parts_low, found.parts_high))
    assert ((low <= H) & (H <= high)).mean() > 0.85
    seen = X.any(axis=0) | (loss == "kullback-leibler")  # none seen is still no proof of none
    assert (found.parts_high[:, seen] > 0).all()


def test_more_samples_make_narrower_intervals():
    narrow, wide = (planted(n=n, seed=1) for n in (320, 80))
    widths = []
    for X, _, _ in (narrow, wide):
        model = fitted(X, beta_loss="kullback-leibler")
        found = bootstrap_intervals(X, model, n_draws=30, random_state=0)
        size = found.parts.sum(axis=1, keepdims=True)
        widths.append(np.median((found.parts_high - found.parts_low) / size))
    assert 1.5 < widths[1] / widths[0] < 2.8  # √4, by thirty draws


def test_curvature_is_the_second_derivative():
    """KL with the other factor held: finite differences of the loss at an inner point."""
    rng = np.random.default_rng(0)
    V, H = rng.gamma(2, size=(30, 2)) + 0.5, rng.gamma(2, size=(2, 6)) + 0.5
    X = V @ H  # the residual is zero: slopes vanish
    parts, codes = _curvature(X, V, H, 1.0)

    def loss(h, j):
        mu = V @ h
        return float((mu - X[:, j] * np.log(mu)).sum())

    step, j = 1e-4, 3
    hessian = np.empty((2, 2))
    for a in range(2):
        for b in range(2):
            da, db = step * np.eye(2)[a], step * np.eye(2)[b]
            at = [loss(H[:, j] + s * da + t * db, j) for s in (1, -1) for t in (1, -1)]
            hessian[a, b] = (at[0] - at[1] - at[2] + at[3]) / (4 * step**2)
    # differences of numbers of size 1e3 over 1e-8: five digits
    np.testing.assert_allclose(parts[:, j], np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-3)
    assert codes.shape == V.shape and (codes > 0).all()
    sparse = _curvature(sp.csr_array(X), V, H, 1.0)
    np.testing.assert_allclose(sparse[0], parts, rtol=1e-10)


def test_moments_are_those_of_all():
    A = np.random.default_rng(0).normal(size=(7, 3, 2))
    moments = _Moments((3, 2))
    for a in A:
        moments.add(a)
    np.testing.assert_allclose(moments.deviation, A.std(axis=0, ddof=1), rtol=1e-12)


def test_what_cannot_be_is_refused():
    X, _, _ = planted()
    model = fitted(X)
    with pytest.raises(TypeError, match="a fitted NMF, got GNMF"):
        bootstrap_intervals(X, GNMF(2, random_state=0).fit(X))
    for wrong, said in (
        ({"n_draws": 3}, "n_draws must be"),
        ({"draw": "rows"}, "draw must be"),
        ({"level": 1.5}, "level must be"),
    ):
        with pytest.raises(ValueError, match=said):
            bootstrap_intervals(X, model, **wrong)
    with pytest.raises(ValueError, match="no penalties"):
        bootstrap_intervals(X, fitted(X, alpha_W=0.1))
    with pytest.raises(ValueError, match="needs counts"):
        bootstrap_intervals(X + 0.5, fitted(X + 0.5), draw="poisson")
    with pytest.raises(ValueError, match="what the model was fitted to"):
        bootstrap_intervals(X[:5], model)
