"""Tests that every method gives the same result on CuPy arrays as on NumPy arrays.

The tests run on CuPy if it and a GPU are available, and otherwise on a stand-in based on NumPy.
"""

import importlib.util
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import cupy_stand_in
import partwise
from methods import FROBENIUS, METHODS, assert_close, make_problem
from partwise.backends import sweeps
from partwise.backends.arrays import to_numpy

q = make_problem(0, n=60, p=40)
ITERATIONS = 20


def gpu():
    if importlib.util.find_spec("cupy") is None:
        return None
    import cupy

    try:
        return cupy if cupy.cuda.runtime.getDeviceCount() else None
    except cupy.cuda.runtime.CUDARuntimeError:
        return None


@pytest.fixture(scope="module", params=("cupy", "stand-in"))
def cupy(request, tmp_path_factory):
    found = gpu()
    if request.param == "cupy":
        if found is None:
            pytest.skip("CuPy or a GPU is not available")
        yield found
    elif found is not None or shutil.which("c++") is None:
        pytest.skip("CuPy is available" if found is not None else "no C++ compiler")
    else:
        yield cupy_stand_in.install(tmp_path_factory.mktemp("kernels"))
        cupy_stand_in.remove()


def place(cupy, X, kind):
    if kind == "dense":
        return cupy.asarray(X)
    from cupyx.scipy.sparse import csr_matrix

    X = sp.csr_matrix(X)
    return csr_matrix(tuple(cupy.asarray(a) for a in (X.data, X.indices, X.indptr)), shape=X.shape)


def fitted(method, X, solver, **params):
    settings = {"max_iter": ITERATIONS, "tol": 0.0, **params}
    model = method.make(solver, "unit", init="custom", **settings)
    return model.fit(X, W=q.V, H=np.ascontiguousarray(q.U.T), **method.data(q))


def product(model):
    return to_numpy(model.embedding_) @ to_numpy(model.components_)


def solvers(method):
    return ("mu", "hals") if method.loss == FROBENIUS and "hals" in method.faster else ("mu",)


CASES = [(m, solver) for m in METHODS for solver in solvers(m)]


@pytest.mark.parametrize("kind", ("dense", "csr"))
@pytest.mark.parametrize(("method", "solver"), CASES, ids=lambda v: getattr(v, "name", v))
def test_same_as_numpy(method, solver, kind, cupy):
    got = fitted(method, place(cupy, q.X, kind), solver)
    base = fitted(method, q.X, solver)
    assert isinstance(got.components_, cupy.ndarray) and isinstance(got.embedding_, cupy.ndarray)
    if solver == "mu":
        np.testing.assert_allclose(product(got), product(base), atol=1e-6)
        assert got.objective_ == pytest.approx(base.objective_, rel=1e-9)
    else:  # on the GPU each row ends its sweeps alone, in NumPy all rows together
        assert got.objective_ == pytest.approx(base.objective_, rel=1e-3)


@pytest.mark.parametrize("ridge", ((1, 1), (70, 1), (1, 5), (70, 5)))
@pytest.mark.parametrize("near", (False, True))
@pytest.mark.parametrize("weights", (False, True))
def test_one_sweep_is_the_formula(ridge, near, weights, cupy):
    rng = np.random.default_rng(0)
    Z, C, A = rng.random((70, 5)), 2 * rng.random((70, 5)), rng.random((9, 5))
    A[:, 3] = 0  # a coordinate whose only curvature is the ridge
    G, d, r = A.T @ A, rng.random(70) if weights else None, rng.random(ridge)
    bound = rng.random(ridge) if near else None
    expected, slope = Z.copy(), np.broadcast_to(r, Z.shape)
    curve = slope if bound is None else slope + bound
    scale = np.ones(70) if d is None else d
    for j in range(5):
        gradient = scale * (expected @ G[j]) + slope[:, j] * expected[:, j] - C[:, j]
        step = gradient / (scale * G[j, j] + curve[:, j])
        expected[:, j] = np.maximum(expected[:, j] - step, 0)
    Z, C, G, d, r, bound = (a if a is None else cupy.asarray(a) for a in (Z, C, G, d, r, bound))
    got = sweeps.sweep_rows(Z, C, G, d, r, 1, 0.1, near=bound)
    assert_close(to_numpy(got), expected, 1e-12)
    got = sweeps.sweep_columns(Z, C, G, d, r, r if bound is None else r + bound, 1, 0.1, 0.0)
    assert_close(to_numpy(got), expected, 1e-12)


@pytest.mark.parametrize("kind", ("dense", "csr"))
@pytest.mark.parametrize("loss", ("frobenius", "kullback-leibler"))
def test_starts_transform_dtype_and_file(loss, kind, cupy, tmp_path):
    here = q.X.astype(np.float32)
    X = place(cupy, here, kind)
    solver = "hals" if loss == FROBENIUS else "mu"
    for init in ("random", "nndsvda"):
        settings = {"beta_loss": loss, "solver": solver, "init": init, "random_state": 0}
        model = partwise.NMF(3, max_iter=30, tol=0, **settings)
        plain = partwise.NMF(3, max_iter=30, tol=0, **settings).fit(here)
        assert model.fit(X).objective_ == pytest.approx(plain.objective_, rel=1e-2)
        V = model.transform(X)
        assert V.dtype == model.components_.dtype == np.float32
        again = partwise.load(model.save(tmp_path / f"{init}.partwise"))
        np.testing.assert_allclose(to_numpy(again.transform(X)), to_numpy(V), atol=1e-3)


@pytest.mark.parametrize("kind", ("dense", "csr"))
def test_a_bad_entry_is_named_and_refusals(kind, cupy):
    for value, words in ((np.nan, "NaN or infinity: nan"), (-1.5, r"-1\.5")):
        X = q.X.copy()
        X[41, 7] = value
        with pytest.raises(ValueError, match=rf"{words}.*41.*7"):
            partwise.NMF(2).fit(place(cupy, X, kind))
    X = place(cupy, q.X, kind)
    with pytest.raises(ValueError, match="'frobenius'"):
        partwise.NMF(2, beta_loss=0.5, solver="mu").fit(X)
    with pytest.raises(ValueError, match=r"X\.get\(\)"):
        partwise.CF(2).fit(X)


def test_labels_and_graph_from_cupy(cupy):
    params = {"solver": "mu", "init": "random", "random_state": 0, "max_iter": 10, "tol": 0}
    model = partwise.ConstrainedNMF(3, class_reg=0.5, graph_reg=0.5, hard_labels=True, **params)
    there = model.fit(cupy.asarray(q.X), cupy.asarray(q.y)).objective_
    assert there == pytest.approx(model.fit(q.X, q.y).objective_, rel=1e-9)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_gaps_and_weights_of_entries(cupy, kind, loss):
    rng = np.random.default_rng(1)
    hidden = rng.random(q.X.shape) < 0.2
    hidden[:, 3] = False
    X = np.where(hidden, np.nan, q.X)
    there = place(cupy, X, kind)
    start = {"W": q.V, "H": np.ascontiguousarray(q.U.T)}
    settings = {"max_iter": ITERATIONS, "tol": 0.0, "init": "custom", "solver": "mu"}
    model = partwise.NMF(q.k, missing_values=np.nan, beta_loss=loss, **settings)
    for more in ({}, {"entry_weight": rng.random(q.X.shape) + 0.1}):
        here, found = (model.fit(a, **start, **more).objective_history_ for a in (X, there))
        assert np.allclose(found, here, rtol=1e-6)
    with pytest.raises(ValueError, match=r"missing_values=np\.nan"):
        partwise.NMF(q.k, beta_loss=loss, **settings).fit(there, **start)


@pytest.mark.parametrize("kind", ("dense", "csr"))
def test_second_order_steps_reach_the_minimum_of_numpy(cupy, kind):
    X = place(cupy, q.X, kind)
    settings = {"beta_loss": "kullback-leibler", "init": "random", "random_state": 0, "tol": 1e-7}
    there = partwise.NMF(3, max_iter=500, **settings).fit(X)
    here = partwise.NMF(3, max_iter=500, **settings).fit(q.X)
    assert there.solver_ == "newton"
    # Both fits stop at a relative gain of 1e-7 per iteration, but their second-order steps differ.
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-4)
    few = partwise.NMF(3, max_iter=20, **{**settings, "tol": 0}).fit(X)
    multiplicative = partwise.NMF(3, max_iter=20, solver="mu", **{**settings, "tol": 0}).fit(X)
    assert few.objective_ < multiplicative.objective_
    wide = partwise.NMF(33, max_iter=2, **{**settings, "tol": 0}).fit(X)
    assert wide.solver_ == "mu"  # 33 * 34 / 2 second derivatives per row would cost too much
