"""Tests of convergence in float32 and float64, and that the reported objective is exact."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import reference
from methods import rise
from partwise import GNMF, NMF, SparseNMF
from partwise.backends import as_data
from partwise.backends.numpy.dense import DenseData, row_squares
from partwise.evaluation.metrics import sparseness
from partwise.fitting.stating import graph_operator
from partwise.knowledge.graph import neighbor_graph
from partwise.knowledge.labels import Labels
from partwise.model.factor_model import FactorModel
from partwise.model.losses import Frobenius
from partwise.solvers.loop import LOOK_BACK, residual_at

BOTH = pytest.mark.parametrize("dtype", [np.float64, np.float32])
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def planted(n, p, k, noise, seed=0):
    rng = np.random.RandomState(seed)
    V, U = rng.gamma(0.5, 1, (n, k)), rng.gamma(0.5, 1, (p, k))
    return V @ U.T + noise * np.abs(rng.normal(size=(n, p)))


def loss_of(model, X):
    V, U = model.embedding_.astype(float), model.components_.T.astype(float)
    return reference.objective_frobenius(X.astype(float), V, U)


def residual_in_float64(model, X):
    data = as_data(X.astype(np.float64))
    point = {"V": model.embedding_.astype(float), "U": model.components_.T.astype(float)}
    return residual_at(FactorModel(data, Frobenius()), point, loss_of(model, X))


def fall(history):
    return (history[-1 - LOOK_BACK] - history[-1]) / history[-1]


@pytest.fixture(scope="module")
def plain():
    """Return X and fits in float64 and float32 that reach the rounding of ½‖X‖² in float32.

    This rounding is 0.1% of the objective.
    """
    X = planted(3000, 300, 10, 0.05)
    fits = [NMF(10, tol=0, max_iter=150, random_state=0).fit(X.astype(t)) for t in (float, "f4")]
    return X, *fits


def test_tol_0_runs_every_iteration(plain):
    for model in plain[1:]:
        assert model.n_iter_ == len(model.objective_history_) == 150
        assert not model.status_.startswith("converged")


def test_float32_goes_as_far_as_float64(plain):
    _, double, single = plain
    assert single.embedding_.dtype == np.float32
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-4)


def test_the_objective_is_the_factors_own_in_float32(plain):
    X, _, single = plain
    assert single.objective_ == pytest.approx(loss_of(single, X.astype("f4")), rel=1e-5)
    assert single.objective_history_[-1] == single.objective_
    assert rise(single.objective_history_) <= 0


def test_the_objective_of_data_with_an_offset_is_exact():
    """Check the reported objective of a float32 fit to X with a large constant offset.

    The change of V in the last solve is computed from a difference of products with X, which
    cancels.
    """
    X = (1000 + planted(1000, 200, 6, 1.0)).astype("f4")
    model = NMF(6, random_state=0, max_iter=20)
    assert model.fit(X).objective_ == pytest.approx(loss_of(model, X), rel=1e-5)


OFFSET = 1000 + planted(200, 60, 3, 1.0)


@BOTH
def test_an_offset_does_not_hide_the_gradient(dtype):
    """Check convergence for X = 1000 + structure.

    Both halves of the gradient are a thousand times their difference.
    """
    X = OFFSET.astype(dtype)
    model = NMF(4, random_state=0).fit(X)
    # Without the offset, sweeps reach 2,500 in 4,000 steps.
    without = NMF(4, random_state=0).fit(OFFSET - 1000)
    assert model.objective_ <= 1.02 * without.objective_
    assert model.status_.startswith("converged") and residual_in_float64(model, X) <= 1e-4
    assert model.objective_ == pytest.approx(loss_of(model, X), rel=1e-5)
    assert model.objective_history_[-1] == pytest.approx(model.objective_, rel=1e-9)
    assert rise(model.objective_history_) <= 0


@BOTH
def test_part_weights_of_data_with_an_offset_are_optimal(dtype):
    """Check that part weights are optimal for X with a large offset.

    The parts are nearly collinear, so coordinate descent once stopped far above the minimum.
    """
    X = OFFSET.astype(dtype)
    model = NMF(3, random_state=0, max_iter=20).fit(X)
    H, best = model.components_.astype(float), np.full(len(X), np.inf)
    for some in product([False, True], repeat=3):
        codes = np.linalg.lstsq(H[list(some)].T, X.T.astype(float), rcond=None)[0].T
        off = ((X - codes @ H[list(some)]) ** 2).sum(axis=1)
        best = np.where((codes >= 0).all(axis=1), np.minimum(best, off), best)
    for codes in (model.embedding_, model.transform(X)):
        assert codes.dtype == dtype
        found = ((X - codes.astype(float) @ H) ** 2).sum(axis=1)
        np.testing.assert_allclose(found, best, rtol=1e-5)


@pytest.mark.parametrize("solver", ["auto", "nesterov", "mu"])
def test_converged_means_a_small_residual_and_no_more_fall(solver):
    X = planted(80, 40, 4, 0.3)
    tol = 1e-2 if solver == "mu" else 1e-4
    model = NMF(4, solver=solver, random_state=0, tol=tol, max_iter=5000).fit(X)
    assert model.status_.startswith("converged")
    assert residual_in_float64(model, X) <= tol
    assert model.n_iter_ > LOOK_BACK and fall(model.objective_history_) <= tol


def test_a_residual_that_cannot_be_reached_is_not_called_converged():
    X = planted(80, 40, 4, 0.3).astype(np.float32)
    model = NMF(4, random_state=0, tol=1e-12, max_iter=2000).fit(X)
    assert model.kkt_residual_ > 1e-12
    assert model.status_.startswith(("no further progress", "stopped at max_iter"))


def graph_objective(model, X, W):
    V, U = model.embedding_.astype(float), model.components_.T.astype(float)
    i, j = W.tocoo().coords
    between = W.tocoo().data.astype(float) @ ((V[i] - V[j]) ** 2).sum(axis=1)
    return reference.objective_frobenius(X, V, U) + 0.25 * model.graph_reg * between


@BOTH
def test_a_strong_graph_does_not_hide_the_gradient(dtype):
    X = load_digits(n_class=4).data[:150]
    W = neighbor_graph(X, 5)
    model = GNMF(4, graph_reg=1e4, random_state=0, max_iter=200).fit(X.astype(dtype), graph=W)
    all_of_them = GNMF(4, graph_reg=1e4, random_state=0, tol=0).fit(X, graph=W)
    assert model.objective_ <= 1.001 * all_of_them.objective_
    if dtype == np.float64:
        assert model.objective_ == pytest.approx(graph_objective(model, X, W), rel=1e-9)


def test_a_heavy_graph_in_float32():
    """Check GNMF in float32 with graph weights of 1e6.

    Neighbours differ by millionths of a part weight, so D V - W V would cancel.
    """
    X = 16.0 * load_digits(n_class=3).data
    double, single = (
        GNMF(3, weighting="dot", random_state=0, max_iter=100, tol=0).fit(X.astype(dtype))
        for dtype in (np.float64, np.float32)
    )
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-6)
    W = neighbor_graph(X, single.n_neighbors, weighting="dot")
    assert single.objective_ == pytest.approx(graph_objective(single, X, W), rel=1e-5)


@BOTH
@pytest.mark.parametrize("on_W, on_H", [(None, 0.8), (0.4, None), (0.5, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_nmf_stays_in_its_set_and_tells_its_objective(on_W, on_H, seed, dtype):
    X = planted(40, 25, 4, 0.5, seed).astype(dtype)
    model = SparseNMF(4, sparseness_W=on_W, sparseness_H=on_H, random_state=seed).fit(X)
    if on_H is not None:
        np.testing.assert_allclose(sparseness(model.components_, axis=1), on_H, atol=1e-4)
    if on_W is not None:
        np.testing.assert_allclose(sparseness(model.embedding_, axis=0), on_W, atol=1e-4)
    assert model.objective_ == pytest.approx(loss_of(model, X), rel=1e-5)
    assert model.objective_history_[-1] == pytest.approx(loss_of(model, X), rel=1e-5)
    assert rise(model.objective_history_) <= 0


KL = "kullback-leibler"


def divergence_of(model, X):
    V, U = model.embedding_.astype(float), model.components_.T.astype(float)
    return reference.objective_kl(X.astype(float), V, U)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_float32_fits_of_data_with_an_offset_agree_with_float64(kind, loss, monkeypatch):
    """Check fits of X with a large offset in float32 against float64.

    For KL, Σ x log y is ten million times the loss, so products must be computed in float64.
    """
    monkeypatch.setattr("partwise.backends.SMALL_SPARSE", 0)
    X = OFFSET.astype(np.float32)
    weights = np.linspace(1, 2, len(X))
    double, single = (
        NMF(4, beta_loss=loss, solver="auto", random_state=0, tol=0, max_iter=60).fit(
            kind(Y), sample_weight=weights
        )
        for Y in (X.astype(float), X)
    )
    assert single.components_.dtype == single.embedding_.dtype == np.float32
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-7)
    np.testing.assert_allclose(single.embedding_, double.embedding_, rtol=1e-6, atol=1e-6)
    assert rise(single.objective_history_) <= 0


def test_float32_that_computes_in_float64_is_float32_to_its_user(rng, monkeypatch, tmp_path):
    monkeypatch.setattr("partwise.backends.arrays.BLOCK_ENTRIES", 1000)
    X = OFFSET.astype(np.float32)
    W, H = rng.random((len(X), 3), dtype=np.float32), rng.random((3, 60), dtype=np.float32)
    single, double = (
        NMF(3, init="custom", fixed_components=H[:1], max_iter=5, tol=0).fit(
            X.astype(t), W=W.astype(t), H=H.astype(t)
        )
        for t in (np.float32, np.float64)
    )
    assert single.components_[0].tobytes() == H[0].tobytes()
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-7)
    with pytest.raises(TypeError, match=r"float64.*float32"):
        NMF(3, init="custom").fit(X, W=W.astype(float), H=H)
    keep = NMF(3, tol=0, max_iter=20, checkpoint=tmp_path).fit(X)
    with pytest.raises(ValueError, match="dtype"):
        keep.fit(X.astype(float))


@pytest.mark.parametrize(
    "make",
    [
        lambda: NMF(4, beta_loss=KL, solver="auto", random_state=0, max_iter=3000),
        lambda: NMF(4, beta_loss=0.5, solver="mu", random_state=0, max_iter=3000, tol=1e-3),
        lambda: NMF(4, beta_loss="itakura-saito", solver="mu", max_iter=9000, tol=1e-3),
    ],
    ids=["KL", "beta 0.5", "itakura-saito"],
)
def test_converged_means_the_same_for_every_loss(make):
    model = make().fit(1 + planted(60, 30, 4, 0.3))
    assert model.status_.startswith("converged")
    assert model.n_iter_ > LOOK_BACK and fall(model.objective_history_) <= model.tol


@pytest.mark.parametrize("solver", ["mu", "auto"])
def test_an_offset_does_not_hide_the_gradient_under_kl(solver):
    """Check KL fits of X with a large offset.

    The halves of the gradient agree to five digits long before the end.
    """
    options = {"beta_loss": KL, "solver": solver, "random_state": 0, "max_iter": 200}
    model, all_of_them = (NMF(4, tol=tol, **options).fit(OFFSET) for tol in (1e-4, 0))
    assert model.objective_ <= 1.01 * all_of_them.objective_
    assert not model.status_.startswith("converged") or model.kkt_residual_ <= 1e-4


@pytest.mark.parametrize("scale", [1e-19, 1e-30])
def test_a_graph_under_kl_in_float32_does_not_depend_on_the_unit_of_X(scale):
    X = np.random.RandomState(0).gamma(1, 1, (40, 12))
    W = neighbor_graph(X, 5)
    double, single = (
        GNMF(3, beta_loss=KL, random_state=0, max_iter=20).fit((X * scale).astype(t), graph=W)
        for t in (np.float64, np.float32)
    )
    assert single.objective_ / scale == pytest.approx(double.objective_ / scale, rel=1e-3)


@pytest.mark.parametrize("weight", [1e12, 1e-12])
@pytest.mark.parametrize("kind", [np.asarray, csr_array, "torch"])
def test_scaling_all_weights_does_not_change_the_fit(kind, weight):
    """Check that multiplying λ and all sample weights by one number does not change the fit."""
    X = np.random.RandomState(0).gamma(1, 1, (40, 12)).astype(np.float32)
    W = neighbor_graph(X, 5)
    if kind == "torch":
        kind = pytest.importorskip("torch").from_numpy
    options = {"beta_loss": KL, "init": "random", "random_state": 0, "tol": 0, "max_iter": 20}
    one, many = (
        GNMF(3, graph_reg=s, **options).fit(kind(X), graph=W, sample_weight=np.full(len(X), s))
        for s in (1.0, weight)
    )
    assert many.objective_ / weight == pytest.approx(one.objective_, rel=1e-4)
    assert many.objective_history_ / weight == pytest.approx(one.objective_history_, rel=1e-4)


@BOTH
def test_a_strong_graph_under_kl_falls(dtype):
    """Check a KL fit with a graph so strong that all neighbours agree.

    The cost λ ⟨v, ∇⟩ of longer parts must not consist of rounding errors.
    """
    X = np.random.RandomState(0).gamma(1, 1, (40, 12)).astype(dtype)
    W = csr_array(np.ones((40, 40)) - np.eye(40))
    options = {"beta_loss": KL, "init": "random", "random_state": 0, "tol": 0, "max_iter": 20}
    model = GNMF(3, graph_reg=1e12, **options).fit(X, graph=W)
    assert rise(model.objective_history_) <= 1e-4 * model.objective_
    assert model.objective_ == pytest.approx(divergence_of(model, X), rel=1e-3)


@pytest.mark.parametrize("labels", [None, [0] * 5 + [-1] * 5])
def test_tensors_have_the_laplacian_of_differences(labels):
    """Check the Laplacian of Torch tensors for neighbours that agree to the last digits.

    There are two distant groups of such neighbours, so D z - W z would cancel.
    """
    torch = pytest.importorskip("torch")
    W = csr_array(np.kron(np.eye(2), np.ones((5, 5)) - np.eye(5)))
    known = None if labels is None else Labels(np.arange(1), np.array(labels))
    parts = graph_operator(W, known, 1.0, None, np.dtype(float))[0]
    Z = np.repeat([[1e3], [1.0]], 5, axis=0) * (1 + 1e-13 * np.arange(10)[:, None])
    there = as_data(torch.zeros(10, 2, dtype=torch.float64)).operator(parts)
    assert (there.laplacian(torch.from_numpy(Z)).numpy() == parts.laplacian(Z)).all()


def test_the_history_of_printed_updates_is_true_in_float32():
    for seed in range(10):
        X = planted(40, 6, 1, 0.3, seed).astype(np.float32)
        model = NMF(1, solver="mu", init="random", random_state=seed, max_iter=30, tol=0).fit(X)
        assert model.objective_history_[-1] == pytest.approx(loss_of(model, X), rel=1e-5)


@BOTH
def test_a_fit_passes_over_x_little_more_often_than_it_iterates(rng, monkeypatch, dtype):
    passes = {"dot": 0, "tdot": 0, "row_sq_residuals": 0}

    def counted(name, real):
        def run(self, *factors):
            passes[name] += 1
            return real(self, *factors)

        return run

    for name in passes:
        monkeypatch.setattr(DenseData, name, counted(name, getattr(DenseData, name)))
    X = (rng.random((60, 5)) @ rng.random((5, 40)) + 0.1 * rng.random((60, 40))).astype(dtype)
    model = NMF(4, init="random", tol=0, max_iter=7, random_state=0).fit(X)
    # The products are the start, the values before and after, the last part weights and the final
    # residual.
    assert passes["dot"] <= 7 + 2 and passes["tdot"] <= 7 + 3
    # The residuals are summed at the end, when the value is small, and after part weights that
    # moved far in float32.
    assert passes["row_sq_residuals"] <= (2 if dtype == np.float64 else 3)
    assert model.objective_ == pytest.approx(loss_of(model, X), rel=1e-5)


def test_squares_of_rows_do_not_leave_the_range_of_float32():
    for scale in (1e-30, 1e-10, 1.0, 1e10, 1e30):
        Y = np.full((3, 1030), scale, dtype=np.float32)
        expected = 1030 * float(np.float32(scale)) ** 2
        np.testing.assert_allclose(row_squares(Y), expected, rtol=1e-6)
    # Rows of very different sizes in one array.
    sizes = np.array([1.0, 1e-20, 0.0, 1e25], np.float32)
    Y = np.repeat(sizes[:, None], 3, axis=1)
    np.testing.assert_allclose(row_squares(Y), 3 * sizes.astype(float) ** 2, rtol=1e-6)
