"""Tests of concept factorization (CF, LCF): the papers' updates, kernels, signed data, memory."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.metrics.pairwise import cosine_similarity, polynomial_kernel, rbf_kernel

import reference
from methods import assert_close, make_problem, rise
from partwise import CF, LCF
from partwise.backends import as_data
from partwise.fitting import sample_kernels
from partwise.model.concept_model import ConceptModel, DenseGram, LinearGram
from partwise.solvers.loop import LOOK_BACK

Q = make_problem(seed=2, n=26, p=13)
SIGNED = Q.X - 0.5
DATA = {"positive": Q.X, "signed": SIGNED}
LOCALITY = {"CF": 0.0, "LCF": 0.3}
ROUNDING = 1e-12  # a thousand times the rounding error of a sum


def make(name, solver="mu", **settings):
    settings = {"solver": solver, "tol": 0.0, "max_iter": 50, "random_state": 0, **settings}
    return CF(4, **settings) if name == "CF" else LCF(4, locality=0.3, **settings)


def fit(name, X, solver="mu", **settings):
    return make(name, solver, init="custom", **settings).fit(X, W=Q.V, C=Q.C)


def kernel_matrix(kernel, X, Y=None):
    return {
        "linear": lambda: X @ (X if Y is None else Y).T,
        "rbf": lambda: rbf_kernel(X, Y),
        "poly": lambda: polynomial_kernel(X, Y),
        "cosine": lambda: cosine_similarity(X, Y),
    }[kernel]()


KERNELS = ["linear", "rbf", "poly", "cosine"]


# --------------------------------------------------------------------------------------------
# The papers' updates
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kernel", [*KERNELS, "precomputed"])
@pytest.mark.parametrize("name", LOCALITY)
def test_the_papers_update(name, kernel, data):
    """Compare 50 iterations with the updates (4) and (5) of the LCF paper, to 1e-8.

    For signed data the multiplicative factor is taken to the power ½.
    """
    X = DATA[data]
    K = None
    if kernel != "linear":
        K = kernel_matrix("rbf" if kernel == "precomputed" else kernel, X)
    V, C, history = reference.lcf_mu(X, Q.V, Q.C, 50, lam=LOCALITY[name], K=K)
    given = K if kernel == "precomputed" else X
    est = fit(name, given, kernel=kernel)
    assert est.n_iter_ == 50
    assert_close(est.objective_history_, history, 1e-8)
    assert_close(est.concept_weights_, C, 1e-8)
    assert_close(est.embedding_, V, 1e-8)
    expected = reference.objective_concepts(X, V, C, K=K, lam=LOCALITY[name])
    assert est.objective_ == pytest.approx(expected, rel=1e-8)


def test_locality_as_printed():
    """Compare LCF with an implementation that sums the distances of equation (2) without a kernel.

    Our objective is half the printed one.
    """
    V, C, history = reference.lcf_mu_literal(Q.X, Q.V, Q.C, 50, lam=0.3)
    est = fit("LCF", Q.X)
    assert_close(est.objective_history_, history, 1e-8)
    printed = reference.lcf_as_printed(Q.X, est.embedding_, est.concept_weights_, lam=0.3)
    assert 2 * est.objective_ == pytest.approx(printed, rel=1e-8)
    assert_close(est.components_, (Q.X.T @ C).T, 1e-8)
    assert_close(est.embedding_, V, 1e-8)


def gram_of(X, dense):
    if dense:
        return DenseGram(X @ X.T)
    if (X >= 0).all():
        return LinearGram(as_data(X), None, None)
    return LinearGram(as_data(X), as_data(np.maximum(X, 0)), as_data(np.maximum(-X, 0)))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("lam", LOCALITY.values())
def test_gradients(data, dense, lam):
    X = DATA[data]
    model = ConceptModel(gram_of(X, dense), lam)
    V, C = Q.V, Q.C
    assert model.value(V, C) == pytest.approx(
        reference.objective_concepts(X, V, C, lam=lam), rel=1e-12
    )
    for side, at in (("V", V), ("U", C)):
        sub = model.subproblem(side, V, C)
        neg, pos = sub.split(at)
        assert (neg >= 0).all() and (pos >= 0).all()
        assert sub.value(at) == pytest.approx(model.value(V, C), rel=1e-12)

        def value(M, side=side):
            return model.value(M, C) if side == "V" else model.value(V, M)

        slope = reference.numerical_gradient(value, at)
        # The slope is computed by central differences with step 1e-6.
        size = np.abs(neg).max() + np.abs(pos).max() + 1e-4 * model.value(V, C)
        np.testing.assert_allclose(pos - neg, slope, atol=1e-6 * size)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("solver", ["mu", "hals", "nesterov"])
@pytest.mark.parametrize("name", LOCALITY)
def test_histories_never_rise(name, solver, kernel, data):
    est = fit(name, DATA[data], solver, kernel=kernel, max_iter=80)
    assert rise(est.objective_history_) <= ROUNDING
    K = kernel_matrix(kernel, DATA[data])
    expected = reference.objective_concepts(
        DATA[data], est.embedding_, est.concept_weights_, K=K, lam=LOCALITY[name]
    )
    assert est.objective_ == pytest.approx(expected, rel=1e-9)
    assert (est.embedding_ >= 0).all() and (est.concept_weights_ >= 0).all()


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", LOCALITY)
def test_faster_solvers_go_lower_than_mu(name, data):
    """Check that "hals" and "nesterov" need at most a tenth of the iterations of "mu"."""
    low = make(name, "mu", max_iter=1000).fit(DATA[data]).objective_
    for solver in ("hals", "nesterov"):
        assert make(name, solver, max_iter=100).fit(DATA[data]).objective_ <= low * (1 + 1e-3)


# --------------------------------------------------------------------------------------------
# Kernels
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", LOCALITY)
def test_new_samples(name, kernel):
    """Compare `transform` with non-negative least squares in the kernel's feature space.

    For a new sample x it minimises ½‖φ(x) - Φᵀ C v‖² + λ/2 Σ v_k ‖φ(x) - u_k‖² over v >= 0.
    """
    est = make(name, "nesterov", kernel=kernel).fit(Q.X).set_params(tol=1e-9)
    new = make_problem(seed=9, n=8, p=13).X + 0.1
    K, cross = kernel_matrix(kernel, Q.X), kernel_matrix(kernel, new, Q.X)
    C, lam = est.concept_weights_, LOCALITY[name]
    G = C.T @ K @ C
    own = np.diag(kernel_matrix(kernel, new))
    cost = 0.5 * lam * (own[:, None] + np.diag(G)) - (1 + lam) * cross @ C
    root = np.linalg.cholesky(G + 1e-12 * np.trace(G) * np.eye(4)).T
    expected = np.array([nnls(root, np.linalg.solve(root.T, -c))[0] for c in cost])
    got = est.transform(new)

    def value(V):
        return 0.5 * ((V @ G) * V).sum() + (cost * V).sum()

    # Only the objectives are compared, because concepts may be nearly collinear, so that the part
    # weights are not unique.
    assert value(got) <= value(expected) + 1e-6 * abs(value(expected))
    assert (got >= 0).all()
    assert est.predict(new).shape == (8,)


@pytest.mark.parametrize("kernel", [*KERNELS, "precomputed"])
@pytest.mark.parametrize("name", LOCALITY)
def test_transform_of_the_training_samples(name, kernel):
    X = kernel_matrix("rbf", Q.X) if kernel == "precomputed" else Q.X
    est = make(name, "nesterov", kernel=kernel, tol=1e-6, max_iter=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est.fit(X)
    if kernel == "precomputed" and name == "LCF":
        with pytest.raises(ValueError, match=r"needs k\(x, x\)"):
            est.transform(X)
        return
    np.testing.assert_allclose(est.transform(X), est.embedding_, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_components_for_the_linear_kernel_only(kernel):
    est = make("CF", "nesterov", kernel=kernel).fit(SIGNED)
    if kernel == "linear":
        np.testing.assert_allclose(est.components_, est.concept_weights_.T @ SIGNED, rtol=1e-10)
        back = est.inverse_transform(est.embedding_)
        np.testing.assert_allclose(back, est.embedding_ @ est.components_, rtol=1e-12)
    else:
        assert not hasattr(est, "components_")
        with pytest.raises(ValueError, match="no components"):
            est.inverse_transform(est.embedding_)
    # A new fit with another kernel removes `components_`, which only the linear kernel has.
    est.set_params(kernel="rbf").fit(SIGNED)
    assert not hasattr(est, "components_")


def test_gamma_reaches_the_kernel():
    one = make("CF", kernel="rbf", gamma=0.3, init="custom").fit(Q.X, W=Q.V, C=Q.C)
    two = make("CF", kernel="precomputed", init="custom").fit(
        rbf_kernel(Q.X, gamma=0.3), W=Q.V, C=Q.C
    )
    assert_close(one.embedding_, two.embedding_, 1e-10)


def laplace(x, y):
    return np.exp(-0.1 * np.abs(x - y).sum())


def test_a_callable_kernel():
    est = make("LCF", "nesterov", kernel=laplace, init="custom").fit(Q.X, W=Q.V, C=Q.C)
    K = np.array([[laplace(a, b) for b in Q.X] for a in Q.X])
    two = make("LCF", "nesterov", kernel="precomputed", init="custom").fit(K, W=Q.V, C=Q.C)
    assert_close(est.embedding_, two.embedding_, 1e-8)
    assert est.transform(Q.X[:3]).shape == (3, 4)


BAD_KERNELS = {
    "rectangular": (lambda K: K[:, :-1], "square"),
    "asymmetric": (lambda K: np.triu(K), "symmetric"),
    "negative diagonal": (lambda K: K - 3 * np.eye(len(K)), r"k\(x, x\) = -2"),
    "no inner product": (lambda K: 5 * K - 4 * np.eye(len(K)), "k\\(x, y\\)² exceeds"),
    "indefinite": (
        lambda K: K - 0.9 * np.ones_like(K) + 0.9 * np.eye(len(K)),
        "not positive semi-definite: the objective fell",
    ),
}


@pytest.mark.parametrize("bad", BAD_KERNELS)
@pytest.mark.parametrize("name", LOCALITY)
def test_matrices_that_are_no_kernels_are_refused(name, bad):
    spoil, message = BAD_KERNELS[bad]
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        make(name, "nesterov", kernel="precomputed").fit(spoil(rbf_kernel(Q.X)))


@pytest.mark.parametrize("name", LOCALITY)
@pytest.mark.parametrize("seed", [92, 74, 47, 80])
def test_concepts_that_cancel_to_rounding_errors_are_zero(name, seed):
    """Check concepts that cancel to zero: a sum of centred samples is zero up to rounding.

    Such a sum must not become a concept. An earlier version returned part weights of 1e17 and an
    objective of -2e91.
    """
    rng = np.random.default_rng(seed)
    for k in (1, 3, 5):
        X = rng.random((2 + k % 2, 1))
        X -= X.mean()
        est = make(name, "nesterov", init="kmeans", max_iter=15)
        est.set_params(n_components=k, n_clusters=1, random_state=seed).fit(X)
        apart = X - est.embedding_ @ (est.concept_weights_.T @ X)
        if name == "CF":
            assert est.objective_ == pytest.approx(0.5 * (apart**2).sum(), abs=1e-12)
        assert est.objective_history_[-1] == pytest.approx(est.objective_, abs=1e-12)
        assert est.transform(X).max() < 1e3


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", LOCALITY)
def test_converged_means_a_small_residual_and_no_more_fall(name, data):
    model = make(name, "auto", tol=1e-3, max_iter=3000).fit(DATA[data])
    assert model.status_.startswith("converged") and model.kkt_residual_ <= 1e-3
    last = model.objective_history_[-1 - LOOK_BACK :]
    assert len(last) > LOOK_BACK and last[0] - last[-1] <= 1e-3 * last[-1]


@pytest.mark.parametrize("scale", [1e54, 1e-60])
def test_the_residual_does_not_depend_on_the_unit_of_X(scale):
    """Check the KKT residual for samples whose fourth power exceeds the range of float64."""
    X = np.random.default_rng(0).gamma(1, 1, (20, 6))
    one, other = (make("CF", "auto", max_iter=3).fit(X * s) for s in (1.0, scale))
    assert other.kkt_residual_ == pytest.approx(one.kkt_residual_, rel=1e-6)


# With six concepts and three features, the part weights are not unique.
@pytest.mark.parametrize("k", [3, 6])
def test_codes_of_nearly_collinear_concepts_are_the_best_ones(k):
    """Check the part weights of nearly collinear concepts against all subsets of concepts.

    Coordinate descent is slow for such concepts, and once ended 30% above the minimum.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    model = make("CF", "nesterov", max_iter=1).fit(X)
    U = rng.normal(size=(1, 3)) + 1e-3 * rng.normal(size=(k, 3))
    U[1:3] *= -1
    model.components_, model._basis_gram = U, U @ U.T
    best = np.linalg.norm(X, axis=1)
    # All subsets are tried, because nnls of scipy before 1.14 does not converge here.
    for some in product([False, True], repeat=k):
        codes = np.linalg.lstsq(U[list(some)].T, X.T, rcond=None)[0].T
        off = np.linalg.norm(X - codes @ U[list(some)], axis=1)
        best = np.where((codes >= 0).all(axis=1), np.minimum(best, off), best)
    found = np.linalg.norm(X - model.transform(X) @ U, axis=1)
    np.testing.assert_allclose(found, best, rtol=1e-6, atol=1e-6)


def test_large_kernel_matrices_are_announced_by_a_warning(monkeypatch):
    monkeypatch.setattr(sample_kernels, "ANNOUNCE_BYTES", 26 * 26 * 8 - 1)
    with pytest.warns(ResourceWarning, match=r"kernel='rbf'.*26 x 26"):
        make("CF", "nesterov", kernel="rbf", max_iter=3).fit(Q.X)
    # A linear kernel needs no n x n array, so nothing is announced.
    make("CF", "nesterov", max_iter=3).fit(Q.X)


def test_a_linear_kernel_never_builds_k():
    """Check that CF with a linear kernel never builds the kernel matrix K.

    K of 20,000 samples would need 3.2 GB; the peak memory stays below a few copies of X.
    """
    import tracemalloc

    rng = np.random.default_rng(0)
    X = rng.random((20000, 10))
    est = make("LCF", "nesterov", max_iter=3, init="custom")
    start = {"W": 0.1 + rng.random((20000, 4)), "C": 0.1 + rng.random((20000, 4))}
    tracemalloc.start()
    est.fit(X, **start)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * X.nbytes < 0.1 * 8 * 20000**2


# --------------------------------------------------------------------------------------------
# Initial values and array types
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA)
def test_sparse_is_dense(data):
    X = np.where(Q.X > 1.0, DATA[data], 0.0)
    dense, sparse = fit("LCF", X), fit("LCF", sp.csr_array(X))
    assert_close(sparse.embedding_, dense.embedding_, 1e-9)
    again = make("LCF", "nesterov").fit(sp.csc_array(X))
    assert_close(again.transform(sp.csr_array(X)), again.transform(X), 1e-8)


def test_float32_stays():
    est = CF(4, init="custom", solver="mu", max_iter=20, tol=0)
    est.fit(Q.X.astype(np.float32), W=Q.V.astype(np.float32), C=Q.C.astype(np.float32))
    assert est.embedding_.dtype == est.concept_weights_.dtype == np.float32
    # The tolerance allows for 20 iterations in single precision.
    assert est.objective_ == pytest.approx(fit("CF", Q.X, max_iter=20).objective_, rel=1e-4)


def test_kmeans_start_beats_a_random_start(orl):
    """Check that k-means as start gives a higher clustering accuracy than random values.

    From a random start all concepts begin near the mean of the samples and change slowly.
    """
    from partwise.evaluation.metrics import clustering_accuracy
    from partwise.io.datasets import unit_rows

    few = np.isin(orl.y, np.unique(orl.y)[:10])
    X, y = unit_rows(orl.X[few].astype(float)), orl.y[few]
    scores = {
        init: clustering_accuracy(
            y, LCF(10, init=init, solver="mu", tol=0, random_state=0).fit(X).labels_
        )
        for init in ("kmeans", "random")
    }
    assert scores["kmeans"] > scores["random"] + 0.1


def test_custom_starts_are_checked():
    with pytest.raises(ValueError, match="W and C"):
        make("CF", init="custom").fit(Q.X, W=Q.V)
    with pytest.raises(ValueError, match=r"C\).*26"):
        make("CF", init="custom").fit(Q.X, W=Q.V, C=Q.C[:-1])
    with pytest.warns(RuntimeWarning, match="ignored"):
        make("CF").fit(Q.X, W=Q.V, C=Q.C)


def test_n_init_keeps_the_lowest():
    many = make("CF", "nesterov", init="random", n_init=5, max_iter=20).fit(Q.X)
    seeds = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=5)
    assert len(set(seeds)) == 5
    one = make("CF", "nesterov", init="random", max_iter=20).fit(Q.X)
    assert many.objective_ <= one.objective_


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_the_callers_samples_are_not_kept_by_reference(form):
    X = form(np.abs(Q.X))
    est = make("CF", "nesterov", kernel="rbf", max_iter=3).fit(X)
    expected = est.transform(Q.X)
    (X.data if sp.issparse(X) else X)[:] = 5
    np.testing.assert_array_equal(est.transform(Q.X), expected)
