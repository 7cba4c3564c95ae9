"""Tests of the scale of `components_`: each column of part weights has a root mean square of 1."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import partwise
from partwise import NMF, MiniBatchNMF, non_negative_factorization
from plain_fits import as_solved, make, make_data

KL = "kullback-leibler"
DATA = X = make_data()
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X + 1.0)
Y = np.where(np.arange(len(X)) % 4, -1, np.arange(len(X)) % 3)
QUICK = {"random_state": 0, "max_iter": 30, "tol": 0}

FREE = {
    "hals": lambda: NMF(4, **QUICK),
    "mu": lambda: NMF(4, solver="mu", **QUICK),
    "KL": lambda: NMF(4, beta_loss=KL, **QUICK),
    "Itakura-Saito": lambda: NMF(4, beta_loss=0.5, solver="mu", **QUICK),
    "l21": lambda: NMF(4, beta_loss="l21", **QUICK),
    "starts": lambda: NMF(4, n_init=3, init="random", **QUICK),
    "missing": lambda: NMF(4, missing_values=np.nan, **QUICK),
    "ConstrainedNMF": lambda: partwise.ConstrainedNMF(4, **QUICK),
    "CNMF": lambda: partwise.CNMF(4, **QUICK),
    "LpCNMF": lambda: partwise.LpCNMF(4, **QUICK),
    "SemiNMF": lambda: partwise.SemiNMF(4, **QUICK),
    "GNMF without a graph": lambda: partwise.GNMF(4, graph_reg=0, **QUICK),
}


def root_mean_squares(V, weights=None):
    return np.sqrt(np.average(np.square(V), axis=0, weights=weights))


@pytest.mark.parametrize("name", FREE)
def test_part_weights_have_unit_size_and_the_product_stays(name):
    X = GAPS if name == "missing" else DATA
    model = FREE[name]().fit(X, Y)
    V = np.asarray(model.embedding_)
    np.testing.assert_allclose(root_mean_squares(V), 1, rtol=1e-9)
    loss = 0.5 * np.square(X - V @ model.components_).sum()
    if getattr(model, "beta_loss", "frobenius") == "frobenius" and name != "missing":
        assert model.objective_ == pytest.approx(loss, rel=1e-8)
    np.testing.assert_allclose(model.inverse_transform(V), V @ model.components_)
    if name not in ("CNMF", "LpCNMF") and model.solver_ != "mu":
        np.testing.assert_allclose(model.transform(X), V, atol=1e-3 * V.max())


def test_only_the_scale_differs_from_what_the_solver_found():
    model = make("hals", max_iter=30)
    V, U = as_solved(model, X)
    model.fit(X)
    np.testing.assert_allclose(model.embedding_ @ model.components_, V @ U.T, rtol=1e-9, atol=1e-12)
    lengths = root_mean_squares(V)
    np.testing.assert_allclose(model.components_, U.T * lengths[:, None], rtol=1e-9)


@pytest.mark.parametrize("power", [-40, -10, 10])
def test_units_of_the_data_are_units_of_the_parts(power):
    rng, unit = np.random.default_rng(0), 4.0**power
    W, H = rng.random((len(X), 4)), rng.random((4, X.shape[1]))
    plain, scaled = (NMF(4, init="custom", max_iter=30, tol=0) for _ in range(2))
    plain.fit(X, W=W, H=H)
    scaled.fit(X * unit, W=W, H=H * unit)
    np.testing.assert_allclose(scaled.embedding_, plain.embedding_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.components_ / unit, plain.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.transform(X * unit), plain.transform(X), atol=1e-4)


@pytest.mark.parametrize("form", ["float32", "csr", "torch", "dask"])
def test_every_kind_of_array(form):
    if form in ("torch", "dask"):
        pytest.importorskip(form)
    given = X.astype(np.float32)
    if form == "csr":
        given = sp.csr_array(given)
    elif form == "torch":
        import torch

        given = torch.from_numpy(given)
    elif form == "dask":
        import dask.array

        given = dask.array.from_array(given, chunks=(15, -1))
    model = FREE["hals"]().fit(given)
    V = np.asarray(model.embedding_)
    assert V.dtype == model.components_.dtype if form != "torch" else True
    np.testing.assert_allclose(root_mean_squares(V), 1, rtol=1e-5)
    expected = FREE["hals"]().fit(X)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-3)


def test_a_weight_counts_as_so_many_copies():
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    copies = np.repeat(np.arange(len(X)), weights)
    W, H = np.random.default_rng(1).random((len(X), 4)), np.random.default_rng(2).random((4, 30))
    one, many = (NMF(4, init="custom", solver="mu", max_iter=20, tol=0) for _ in range(2))
    one.fit(X, W=W, H=H, sample_weight=weights.astype(float))
    many.fit(X[copies], W=W[copies], H=H)
    np.testing.assert_allclose(root_mean_squares(one.embedding_, weights), 1, rtol=1e-9)
    np.testing.assert_allclose(one.components_, many.components_, rtol=1e-6)


def test_the_scale_of_a_start_does_not_matter():
    rng = np.random.default_rng(0)
    W, H, c = rng.random((len(X), 4)), rng.random((4, 30)), np.array([0.25, 2.0, 8.0, 1.0])
    how = {"init": "custom", "solver": "mu", "max_iter": 20, "tol": 0}
    one = non_negative_factorization(X, W, H, 4, **how)
    two = non_negative_factorization(X, W * c, H / c[:, None], 4, **how)
    for a, b in zip(one[:2], two[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_a_fit_goes_on_from_its_own_result():
    first = NMF(4, solver="mu", **QUICK).fit(X)
    W, H = first.embedding_, first.components_
    more = NMF(4, init="custom", solver="mu", max_iter=1, tol=0).fit(X, W=W, H=H)
    assert more.objective_history_[0] <= first.objective_ * (1 + 1e-9)


def test_a_stopped_fit_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = NMF(4, **QUICK).fit(X)
    NMF(4, checkpoint=tmp_path / "c", **{**QUICK, "max_iter": 20}).fit(X)
    again = NMF(4, checkpoint=tmp_path / "c", **QUICK).fit(X)
    np.testing.assert_allclose(again.components_, whole.components_, rtol=1e-6)


KEPT = {
    "alpha_W": lambda: NMF(4, alpha_W=0.01, **QUICK),
    "alpha_H": lambda: NMF(4, alpha_W=0.01, alpha_H=0.02, l1_ratio=1, **QUICK),
    "paper": lambda: partwise.GNMF(4, graph_reg=0, scale="paper", solver="mu", **QUICK),
    "graph": lambda: partwise.GNMF(4, graph_reg=1.0, **QUICK),
    "class_reg": lambda: partwise.CDNMF(4, **QUICK),
    "smoothing": lambda: partwise.NSNMF(4, **QUICK),
    "sparseness": lambda: partwise.SparseNMF(4, sparseness_H=0.5, **QUICK),
}


@pytest.mark.parametrize("name", KEPT)
def test_fits_whose_scale_matters_keep_it(name):
    model = KEPT[name]()
    V, U = as_solved(model, X) if name != "class_reg" else (None, None)
    model.fit(X, Y) if name == "class_reg" else model.fit(X)
    if name == "class_reg":
        np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-6)
    else:
        np.testing.assert_array_equal(model.embedding_, V)
        np.testing.assert_array_equal(model.components_, U.T)


def test_known_parts_keep_their_scale_and_others_do_not():
    known = np.full((2, 30), np.nan)
    known[0] = np.random.default_rng(0).random(30)
    known[1, :3] = 0.5
    model = NMF(4, fixed_components=known, **QUICK).fit(X)
    np.testing.assert_array_equal(model.components_[0], known[0])
    np.testing.assert_array_equal(model.components_[1, :3], known[1, :3])
    sizes = root_mean_squares(model.embedding_)
    np.testing.assert_allclose(sizes[2:], 1, rtol=1e-9)
    assert (np.abs(sizes[:2] - 1) > 1e-3).all()


def test_a_part_that_no_sample_uses_stays_finite():
    model = NMF(4, init="random", **QUICK).fit(np.outer(np.arange(5.0), np.ones(6)))
    assert np.isfinite(model.components_).all() and np.isfinite(model.embedding_).all()
    sizes = root_mean_squares(model.embedding_)
    assert all(size == 0 or abs(size - 1) < 1e-9 for size in sizes)


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_batches(loss):
    settings = {"beta_loss": loss, "batch_size": 10, "random_state": 0, "max_iter": 20}
    model = MiniBatchNMF(4, **settings)
    V = model.fit_transform(X)
    # The scale is computed from the part weights of the last pass, and these are then solved once
    # more, so the root mean square is only close to 1.
    np.testing.assert_allclose(root_mean_squares(V), 1, rtol=0.2)
    np.testing.assert_array_equal(model.transform(X), V)
    parts = model.components_
    model.partial_fit(X)  # the update continues in the scale of the fit
    assert np.linalg.norm(model.components_ - parts) < 0.3 * np.linalg.norm(parts)
    stream = MiniBatchNMF(4, **settings).partial_fit(X[:20])
    np.testing.assert_allclose(root_mean_squares(stream.transform(X[:20])), 1, rtol=0.2)
    penalized = MiniBatchNMF(4, alpha_W=0.01, **settings).fit(X)
    assert (np.abs(root_mean_squares(penalized.embedding_) - 1) > 0.01).any()


@pytest.mark.parametrize("make_model", [NMF, MiniBatchNMF])
def test_a_linear_classifier_works_in_a_pipeline(make_model):
    """Check the accuracy of MinMaxScaler, NMF and LogisticRegression in a pipeline.

    Before components were scaled, the accuracy was 64%; with scikit-learn's NMF it is 70%.
    """
    samples, truth = load_digits(return_X_y=True)
    pipeline = make_pipeline(
        MinMaxScaler(clip=True), make_model(16, random_state=0), LogisticRegression()
    )
    assert pipeline.fit(samples[:600], truth[:600]).score(samples[600:900], truth[600:900]) > 0.85
