"""Tests of `bootstrap_intervals`, the confidence intervals of parts and part weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

import partwise
from partwise import GNMF, NMF, bootstrap_intervals
from partwise.selection.intervals import _curvature, _Weights

KL = "kullback-leibler"


def planted(n=80, p=15, k=2, seed=0):
    rng = np.random.default_rng(seed)
    H = rng.gamma(1.0, size=(k, p)) * (rng.uniform(size=(k, p)) > 0.4)
    H /= H.sum(axis=1, keepdims=True)
    V = 150 * rng.gamma(1.0, size=(n, k)) * (rng.uniform(size=(n, k)) > 0.3)
    V[V.sum(axis=1) == 0] = 10
    return rng.poisson(V @ H).astype(float), V, H


def fitted(X, k=2, *, given=None, **more):
    settings = {"init": "random", "random_state": 0, "tol": 1e-5, "max_iter": 500, **more}
    return NMF(k, **settings).fit(X, **(given or {}))


def plain(n):
    return _Weights(np.ones(n), None, None)


@pytest.mark.parametrize("loss", ["frobenius", KL])
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
    # With KL, also a feature without counts has an uncertain component.
    seen = X.any(axis=0) | (loss == KL)
    assert (found.parts_high[:, seen] > 0).all()


def test_more_samples_make_narrower_intervals():
    narrow, wide = (planted(n=n, seed=1) for n in (320, 80))
    widths = []
    for X, _, _ in (narrow, wide):
        model = fitted(X, beta_loss=KL)
        found = bootstrap_intervals(X, model, n_draws=30, random_state=0)
        size = found.parts.sum(axis=1, keepdims=True)
        widths.append(np.median((found.parts_high - found.parts_low) / size))
    # Four times as many samples halve the width, as √4 = 2, up to the noise of thirty draws.
    assert 1.5 < widths[1] / widths[0] < 2.8


def second_derivative(loss, at, step=1e-4):
    hessian = np.empty((len(at), len(at)))
    for a in range(len(at)):
        for b in range(len(at)):
            da, db = step * np.eye(len(at))[a], step * np.eye(len(at))[b]
            v = [loss(at + s * da + t * db) for s in (1, -1) for t in (1, -1)]
            hessian[a, b] = (v[0] - v[1] - v[2] + v[3]) / (4 * step**2)
    return hessian


@pytest.mark.parametrize("weighted", [False, True])
def test_curvature_is_the_second_derivative(weighted):
    """Compare the standard errors with finite differences of the KL loss."""
    rng = np.random.default_rng(0)
    V, H = rng.gamma(2, size=(30, 2)) + 0.5, rng.gamma(2, size=(2, 6)) + 0.5
    X = V @ H  # the residual is zero, so the first derivatives vanish
    entries = rng.random(X.shape) * (rng.random(X.shape) < 0.8) if weighted else None
    gamma = rng.random(30) + 0.5 if weighted else np.ones(30)
    weights = _Weights(gamma, entries, None)
    parts, codes = _curvature(X, V, H, 1.0, weights)
    w = np.ones_like(X) if entries is None else entries

    def of_part(h, j=3):
        mu = V @ h
        return float((gamma * w[:, j] * (mu - X[:, j] * np.log(mu))).sum())

    def of_code(v, i=5):  # a sample's weight does not change the uncertainty of its part weights
        mu = v @ H
        return float((w[i] * (mu - X[i] * np.log(mu))).sum())

    # Numbers of size 1e3 are subtracted and divided by 1e-8, so about five digits are correct.
    wanted = np.sqrt(np.diag(np.linalg.inv(second_derivative(of_part, H[:, 3]))))
    np.testing.assert_allclose(parts[:, 3], wanted, rtol=1e-3)
    wanted = np.sqrt(np.diag(np.linalg.inv(second_derivative(of_code, V[5]))))
    np.testing.assert_allclose(codes[5], wanted, rtol=1e-3)
    sparse = _curvature(sp.csr_array(X), V, H, 1.0, weights)
    np.testing.assert_allclose(sparse[0], parts, rtol=1e-10)
    np.testing.assert_allclose(sparse[1], codes, rtol=1e-10)


def standard_errors(A, b, w):
    """Return standard errors of weighted least squares: s² (Aᵀ W A)⁻¹, s² = Σ w r² / (n - k)."""
    A, b, w = A[w > 0], b[w > 0], w[w > 0]
    information = A.T @ (w[:, None] * A)
    found = np.linalg.solve(information, A.T @ (w * b))
    variance = (w * (b - A @ found) ** 2).sum() / (len(b) - A.shape[1])
    return np.sqrt(variance * np.diag(np.linalg.inv(information)))


@pytest.mark.parametrize("case", ["plain", "weights of samples", "missing", "all weights"])
def test_least_squares_errors_are_those_of_a_regression(case, monkeypatch):
    """Compare standard errors with those of linear regressions, also for blocks of a few rows."""
    rng = np.random.default_rng(1)
    n, p, k = 12, 7, 3
    V, H = rng.normal(size=(n, k)), rng.normal(size=(k, p))
    X = V @ H + rng.normal(size=(n, p))
    for _ in range(200):  # at a minimum, residuals are orthogonal to both factors
        V = X @ np.linalg.pinv(H)
        H = np.linalg.pinv(V) @ X
    gamma = rng.random(n) + 0.5 if "samples" in case or "all" in case else np.ones(n)
    entries = rng.random((n, p)) + 0.5 if "all" in case else None
    missing = np.nan if case in ("missing", "all weights") else None
    w = np.ones((n, p)) if entries is None else entries
    if missing is not None:
        X[rng.random((n, p)) < 0.15] = np.nan
        w = np.where(np.isnan(X), 0, w)
    whole = gamma[:, None] * w
    if case != "plain":  # with weights, the minimum is computed by regressions in turn
        X0 = np.nan_to_num(X)
        H = np.column_stack(
            [np.linalg.lstsq(np.sqrt(whole[:, [j]]) * V, np.sqrt(whole[:, j]) * X0[:, j])[0]
             for j in range(p)]
        )  # fmt: skip
    monkeypatch.setattr("partwise.selection.intervals.PIECE", 5 * p * k)
    parts, _ = _curvature(X, V, H, 2.0, _Weights(gamma, entries, missing))
    wanted = [standard_errors(V, X[:, j], whole[:, j]) for j in range(p)]
    np.testing.assert_allclose(parts, np.transpose(wanted), rtol=1e-5)
    V = np.array(
        [np.linalg.lstsq(np.sqrt(w[i])[:, None] * H.T, np.sqrt(w[i]) * np.nan_to_num(X[i]))[0]
         for i in range(n)]
    )  # fmt: skip
    _, codes = _curvature(X, V, H, 2.0, _Weights(gamma, entries, missing))
    np.testing.assert_allclose(
        codes, [standard_errors(H.T, X[i], w[i]) for i in range(n)], rtol=1e-5
    )


def by_hand(X, model, n_draws, seed, given, **settings):
    """Return standard deviations of the parts over refits to samples drawn with replacement."""
    rng = np.random.RandomState(seed)
    n, H, found = len(X), model.components_, []
    W, start = (np.maximum(Z, 1e-3 * Z.mean(axis=axis, keepdims=True))
                for Z, axis in ((model.embedding_, 0), (H, 1)))  # fmt: skip
    for _ in range(n_draws):
        weight = given.get("sample_weight", 1.0) * rng.multinomial(n, np.full(n, 1 / n))
        again = NMF(len(H), init="custom", random_state=0, tol=1e-5, max_iter=500, **settings)
        again.fit(X, W=W, H=start, **{**given, "sample_weight": weight})
        drawn = again.components_
        a, b = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (H, drawn))
        drawn = drawn[linear_sum_assignment(-a @ b.T)[1]]
        found.append(drawn * (H.sum(1) / drawn.sum(1))[:, None])
    return np.std(found, axis=0, ddof=1)


@pytest.mark.parametrize("name", ["sample_weight", "entry_weight", "missing_values"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_and_missing_values_of_the_fit_are_repeated(name):
    X, _, _ = planted()
    rng, given, settings = np.random.default_rng(2), {}, {}
    if name == "sample_weight":
        given = {name: np.where(np.arange(80) < 40, 4.0, 0.5)}
    elif name == "entry_weight":
        given = {name: rng.random(X.shape) + 0.2}
    else:
        X[rng.random(X.shape) < 0.3], settings = np.nan, {name: np.nan}
    model = fitted(X, given=given, **settings)
    found = bootstrap_intervals(X, model, n_draws=10, random_state=0, **given)
    low, high = found.parts_low, found.parts_high
    width = (high - found.parts) / 2.2621572  # quantile of Student's t with 9 degrees of freedom
    spread = by_hand(X, model, 10, 0, given, **settings)
    wide = width > 1.0001 * spread  # in these entries the width comes from the curvature
    assert wide.mean() < 0.7
    np.testing.assert_allclose(np.where(wide, spread, width), spread, rtol=1e-6)
    assert (low >= 0).all()


@pytest.mark.parametrize("draw", ["samples", "poisson", "multinomial"])
def test_missing_counts_are_not_drawn(draw):
    """Check that missing counts are not drawn.

    With a third of the entries missing, intervals are wider by about √(3/2).
    """
    X, _, _ = planted(n=60)
    hidden = np.random.default_rng(0).random(X.shape) < 1 / 3
    widths = []
    for data in (X, np.where(hidden, np.nan, X)):
        model = fitted(data, missing_values=np.nan, beta_loss=KL)
        found = bootstrap_intervals(data, model, n_draws=15, draw=draw, random_state=0)
        assert np.isfinite(found.codes_high).all()
        size = found.parts.sum(axis=1, keepdims=True)
        widths.append(np.median((found.parts_high - found.parts_low) / size))
    # A third of the counts is missing, so the ratio is about √(3/2) = 1.22, with noise.
    assert 1 < widths[1] / widths[0] < 1.7


def test_known_parts_are_certain():
    X, _, H = planted()
    fixed = 100 * H[:1].copy()
    fixed[0, 3] = np.nan
    model = fitted(X, fixed_components=fixed)
    found = bootstrap_intervals(X, model, n_draws=10, random_state=0)
    known = ~np.isnan(fixed[0])
    np.testing.assert_array_equal(found.parts_low[0][known], fixed[0][known])
    np.testing.assert_array_equal(found.parts_high[0][known], fixed[0][known])
    assert found.parts_high[0, 3] > found.parts[0, 3]
    assert (found.parts_high[1] > found.parts[1]).any()


@pytest.mark.parametrize("name", ["sample_weight", "entry_weight", "must_link", "cannot_link"])
def test_what_the_fit_was_given_is_asked_for_by_name(name, tmp_path):
    X, _, _ = planted()
    values = {
        "sample_weight": np.arange(1, 81.0),
        "entry_weight": np.random.default_rng(0).random(X.shape),
        "must_link": [[0, 1]],
        "cannot_link": [[0, 1]],
    }
    model = fitted(X, given={name: values[name]})
    model.save(tmp_path / "m.partwise")
    for one in (model, partwise.load(tmp_path / "m.partwise")):
        with pytest.raises(ValueError, match=name):
            bootstrap_intervals(X, one)
    if name.endswith("link"):
        with pytest.raises(ValueError, match=name):
            bootstrap_intervals(X, model, **{name: values[name]})
    with pytest.raises(TypeError, match="graph"):
        bootstrap_intervals(X, model, graph=sp.eye_array(80))


def test_other_data_and_weights_are_refused():
    X, _, _ = planted()
    model = fitted(X)
    for other in (X[::-1], X + 1, X[:5]):
        with pytest.raises(ValueError, match="X"):
            bootstrap_intervals(other, model)
    weighted = fitted(X, given={"sample_weight": np.arange(1, 81.0)})
    with pytest.raises(ValueError, match="weights"):
        bootstrap_intervals(X, weighted, sample_weight=np.ones(80))


def test_what_cannot_be_is_refused():
    X, _, _ = planted()
    model = fitted(X)
    with pytest.raises(TypeError, match="GNMF"):
        bootstrap_intervals(X, GNMF(2, random_state=0).fit(X))
    for wrong in ({"n_draws": 3}, {"draw": "rows"}, {"level": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            bootstrap_intervals(X, model, **wrong)
    with pytest.raises(ValueError, match=r"alpha_W=0\.1"):
        bootstrap_intervals(X, fitted(X, alpha_W=0.1))
    with pytest.raises(ValueError, match="draw"):
        bootstrap_intervals(X + 0.5, fitted(X + 0.5), draw="poisson")
    ratings = sp.csr_array(X)
    with pytest.raises(ValueError, match="missing_values"):
        bootstrap_intervals(ratings, fitted(ratings, missing_values=0), draw="poisson")
