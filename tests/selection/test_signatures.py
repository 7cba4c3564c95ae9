"""Tests of count data: `consensus` with bootstrap, `refit` with few parts, and `match_parts`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

from partwise import NMF, consensus, match_parts, refit
from partwise.evaluation.resampling import resample

KL = "kullback-leibler"


def counts(n=60, k=3, seed=0):
    rng = np.random.default_rng(seed)
    H = rng.dirichlet(np.full(24, 0.2), k)
    V = (rng.random((n, k)) < 0.6) * rng.gamma(2, 200, size=(n, k))
    return rng.poisson(V @ H).astype(float), H, V


@pytest.mark.parametrize("kind", ["poisson", "multinomial"])
def test_counts_that_are_drawn_again_have_their_mean_and_spread(kind):
    X = np.array([[100.0, 0, 300], [5, 5, 0], [0, 0, 0]])
    rng = np.random.RandomState(0)
    drawn = np.array([resample(X, kind, rng) for _ in range(4000)])
    total = X.sum(axis=1, keepdims=True)
    spread = X if kind == "poisson" else X * (1 - X / np.maximum(total, 1))
    # The tolerance is five standard errors of a mean over 4,000 draws. The relative standard error
    # of a variance is √(2/4000) or more.
    np.testing.assert_allclose(drawn.mean(axis=0), X, atol=5 * np.sqrt(X.max() / 4000))
    np.testing.assert_allclose(drawn.var(axis=0), spread, rtol=0.15)
    if kind == "multinomial":
        assert (drawn.sum(axis=2) == X.sum(axis=1)).all()
    sparse = resample(sp.csr_array(X), kind, rng)
    assert sparse.shape == X.shape
    assert not sparse.toarray()[X == 0].any()


@pytest.mark.parametrize("bootstrap", ["poisson", "multinomial"])
def test_consensus_of_resampled_counts_finds_what_made_them(bootstrap):
    X, H, _ = counts()
    found = consensus(
        X, 3, n_runs=6, estimator=NMF(beta_loss=KL), unit_variance=False, bootstrap=bootstrap,
        density_threshold=2, random_state=0,
    )  # fmt: skip
    table = match_parts(found.spectra, H, threshold=0.95)
    assert sorted(table["match"]) == [0, 1, 2]
    of_runs = np.diff(found.pooled[found.groups == 0], axis=0)
    assert np.abs(of_runs).max() > 1e-3  # each run was fitted to other resampled counts


def test_what_is_no_count_is_refused():
    with pytest.raises(ValueError, match=r"counts.*0\.5"):
        consensus(np.full((4, 3), 0.5), 2, n_runs=2, bootstrap="poisson")
    with pytest.raises(ValueError, match="bootstrap"):
        consensus(np.ones((4, 3)), 2, n_runs=2, bootstrap="yes")


def naive_refit(x, H, threshold):
    """Solve least squares repeatedly, each time removing the smallest negligible part."""
    used = np.ones(len(H), bool)
    while True:
        v = np.zeros(len(H))
        v[used] = nnls(H[used].T, x)[0]
        share = np.where(used, v * H.sum(axis=1) / max((v @ H).sum(), 1e-300), np.inf)
        if share.min() >= threshold or used.sum() == 1:
            return v
        used[share.argmin()] = False


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_few_parts_a_sample(kind):
    X, H, V = counts(40, 4)
    found = refit(kind(X), H, threshold=0.1)
    np.testing.assert_allclose(found, [naive_refit(x, H, 0.1) for x in X], rtol=1e-4, atol=1e-3)
    everything = refit(X, H, threshold=0)
    assert (found > 0).sum() < (everything > 1e-9).sum()
    assert (found[V == 0] > 0).mean() < 0.1
    by_counts = refit(X, H, threshold=0.1, beta_loss=KL)
    np.testing.assert_allclose(by_counts @ H.sum(axis=1), X.sum(axis=1), rtol=1e-3)


def test_a_match_is_one_to_one():
    reference = np.eye(3, 5) + 0.01
    parts = np.array([reference[1], reference[1] + 0.05, [0, 0, 0, 0, 1.0]])
    table = match_parts(parts, reference, names=["a", "b", "c"])
    assert table["closest"].tolist()[:2] == ["b", "b"]
    assert table["match"].tolist() == ["b", None, None]
    assert table["cosine"][0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: refit(np.ones((2, 3)), np.ones((1, 4))), "parts.*3"),
        (lambda: refit(np.ones((2, 3)), np.ones((1, 3)), threshold=1), "threshold"),
        (lambda: match_parts(np.ones((2, 3)), np.ones((1, 4))), "3.*4"),
        (lambda: match_parts(np.ones((2, 3)), np.ones((1, 3)), names="ab"), "names.*1"),
    ],
)
def test_bad_input_is_answered(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_codes_of_parts_that_are_alike_are_least_squares_all_the_same(dtype, scale, rng):
    """Check that `refit` is exact for nearly collinear parts and for a part of zeros."""
    H = np.array([[0.338, 0.0], [0.077, 0.475], [0.368, 0.0], [0.444, 0.004], [0.0, 0.0]])
    X = scale * np.vstack([[[2.0, 0.0], [1.0, 0.0]], rng.random((20, 2))])
    V = refit(X.astype(dtype), H, threshold=0)
    assert V.dtype == dtype and not V[:, -1].any()
    for x, v in zip(X, V.astype(float)):
        best = nnls(H.T, x / scale)[1]
        # For a singular problem, `refit` adds a ridge of a hundred eps, so the residual may exceed
        # the minimum by the square root of this ridge.
        left = 1e-6 + 10 * len(H) * np.finfo(dtype).eps * np.linalg.norm(x / scale)
        assert np.linalg.norm(x - v @ H) / scale <= best + left


def test_negative_samples_and_parts_are_refused():
    with pytest.raises(ValueError, match="Negative"):
        refit([[-1.0, 2.0]], [[1.0, 0.0]])
    with pytest.raises(ValueError, match=r"Negative.*parts"):
        refit([[1.0, 2.0]], [[1.0, -1.0]])
