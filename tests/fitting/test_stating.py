"""Tests of edge cases: zeros, sizes of one, extreme scales, sample weights and warnings."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import reference
from partwise import GNMF, NMF
from partwise.model.losses import beta_of
from plain_fits import (
    FAST,
    KL,
    SOLVER_IDS,
    SOLVERS,
    SPARSE,
    assert_close,
    assert_same_fit,
    data_for,
    make,
    make_data,
    make_sparse,
    make_start,
    naive_objective,
    one_blas_thread,  # noqa: F401
)


def zero_blocks(n=12, p=9):
    X = make_data(n=n, p=p, positive=True)
    X[::3], X[:, ::2] = 0, 0
    return X


EDGES = {
    "zero rows and columns": (zero_blocks(), 3),
    "all zero": (np.zeros((8, 6)), 2),
    "one part": (make_data(n=12, p=9), 1),
    "one sample": (make_data(n=12, p=9)[:1], 1),
    "one sample, more parts": (make_data(n=12, p=9)[:1], 3),
    "one feature": (make_data(n=12, p=9)[:, :1], 1),
    "one feature, more parts": (make_data(n=12, p=9)[:, :1], 2),
    "one entry": (np.array([[2.0]]), 1),
    "one non-zero": (np.eye(7)[:1].T @ np.ones((1, 5)), 2),
    "k > p": (make_data(n=12, p=5), 7),
    "k > n, p": (make_data(n=6, p=5), 9),
    "equal rows": (np.tile(make_data(n=12, p=9)[:1], (10, 1)), 3),
}


GENERAL = [row for row in SOLVERS if beta_of(row[2]) > 0]  # β <= 0 refuses zeros


GENERAL_IDS = [i for i, row in zip(SOLVER_IDS, SOLVERS) if beta_of(row[2]) > 0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("init", [None, "random"])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(("solver", "rule", "loss"), GENERAL, ids=GENERAL_IDS)
def test_edges_stay_finite(solver, rule, loss, edge, init, dtype):
    X, k = EDGES[edge]
    X = X.astype(dtype)
    model = make(solver, rule, loss, n_components=k, init=init, tol=1e-4, max_iter=20).fit(X)
    again = model.transform(X)
    for Z in (model.embedding_, model.components_, again):
        assert np.isfinite(Z).all() and (Z >= 0).all() and Z.dtype == dtype
    assert np.isfinite(model.objective_) and np.isfinite(model.objective_history_).all()
    assert 0 <= model.kkt_residual_ <= 1
    assert np.isfinite(model.score(X))
    if edge == "all zero":  # VUᵀ is at least eps², so for β = ½ the sum of 48 entries is some eps
        assert model.objective_ == pytest.approx(0, abs=100 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("edge", EDGES)
def test_edges_with_a_kmeans_start(edge, dtype):
    X, k = EDGES[edge]
    for solver, _, loss in (*FAST, ("mu", None, KL)):
        model = make(solver, None, loss, n_components=k, init="kmeans", max_iter=5)
        assert np.isfinite(model.fit_transform(X.astype(dtype))).all()
        assert np.isfinite(model.components_).all()


@pytest.mark.parametrize(("solver", "rule", "loss"), GENERAL, ids=GENERAL_IDS)
def test_zeros_do_not_end_the_fit(solver, rule, loss):
    """Check that a zero sample and a zero feature do not make a fit converge too early."""
    X = make_data(positive=True)
    more = np.pad(X, ((0, 1), (0, 1)))
    W, H = make_start(*more.shape)
    # "mu" converges sublinearly, so it needs a larger tolerance.
    tol = 1e-3 if solver != "mu" else 1e-2 if loss == KL else 3e-2
    model = make(solver, rule, loss, init="custom", tol=tol, max_iter=10000)
    without, with_zeros = clone(model).fit(X, W=W[:-1], H=H[:, :-1]), model.fit(more, W=W, H=H)
    # The first iteration sets the factors of the zero sample and feature to zero. The residual is
    # checked every five iterations, so the fits may differ by five.
    assert with_zeros.n_iter_ >= 0.6 * without.n_iter_ - 5
    assert with_zeros.objective_ == pytest.approx(without.objective_, rel=0.1)


def test_weights_may_leave_nothing_but_zeros():
    X = np.array([[0.0], [0.0], [3.0]])
    model = NMF(1, init="random").fit(X, sample_weight=[1, 1, 0])
    assert model.objective_ == 0


def test_zero_rows_and_columns_are_explained_by_nothing():
    X = zero_blocks()
    for solver, _, loss in FAST:
        model = make(solver, None, loss, n_components=3, max_iter=500).fit(X)
        fitted = model.embedding_ @ model.components_
        # The fit approaches the zeros of X as limits; for the KL loss it converges linearly.
        assert fitted[::3].max() < 1e-6 and fitted[:, ::2].max() < 1e-6


def test_rank_one_is_exact():
    """Check that a fit with one part reaches the exact minimum.

    For the Frobenius loss this is the first singular pair, which is non-negative here.
    """
    X = make_data(positive=True)
    s = np.linalg.svd(X, compute_uv=False)
    for solver in ("hals", "nesterov", "mu"):
        model = make(solver, n_components=1, max_iter=300).fit(X)
        assert model.objective_ == pytest.approx(0.5 * (s[1:] ** 2).sum(), rel=1e-10)
    for solver in ("newton", "mu"):  # the optimum for KL is the product of the row and column sums
        model = make(solver, None, KL, n_components=1, max_iter=300).fit(X)
        best = np.outer(X.sum(axis=1), X.sum(axis=0)) / X.sum()
        assert model.objective_ == pytest.approx(reference.kl_entries(X, best).sum(), rel=1e-10)


SCALED = [row for row in SOLVERS if row[1] is None and row[2] not in (-1.0, 3.0)]


SCALED_IDS = ["-".join(str(s) for s in row if s is not None) for row in SCALED]


@pytest.mark.parametrize("power", [150, -150])
@pytest.mark.parametrize(("solver", "rule", "loss"), SCALED, ids=SCALED_IDS)
class TestExtremeScales:
    def test_the_same_problem(self, solver, rule, loss, power):
        """Check that scaling X by s scales the parts by s and the objective by s^β.

        The part weights do not change. The factor s is a power of two.
        """
        X = data_for(loss)
        s = 2.0 ** (2 * round(power * np.log2(10) / 2))
        model = make(solver, rule, loss, tol=1e-2, max_iter=2000)
        plain, extreme = clone(model).fit(X), model.fit(X * s)
        for Z in (extreme.embedding_, extreme.components_, extreme.objective_history_):
            assert np.isfinite(Z).all()
        # Scaling by a power of two is exact, but log and pow are not, so about 100 iterations
        # differ by 1e-6.
        assert extreme.n_iter_ == plain.n_iter_
        assert_close(extreme.embedding_, plain.embedding_, 1e-6)
        assert_close(extreme.components_ / s, plain.components_, 1e-6)
        assert extreme.kkt_residual_ == pytest.approx(plain.kkt_residual_, rel=1e-4)
        assert extreme.status_ == plain.status_
        value = extreme.objective_ / s ** beta_of(loss)
        assert value == pytest.approx(plain.objective_, rel=1e-6)
        assert_close(extreme.transform(X * s), plain.transform(X), 1e-6)

    @pytest.mark.parametrize("init", [None, "nndsvd", "nndsvdar", "kmeans"])
    def test_every_start_works(self, solver, rule, loss, power, init):
        """Check that every `init` works for extreme values.

        NNDSVD fills zeros with values that do not scale with X, so only the objectives are
        compared.
        """
        if init == "nndsvd" and solver == "mu":
            init = "nndsvdar"
        X = data_for(loss)
        model = make(solver, rule, loss, init=init, max_iter=100)
        plain, extreme = clone(model).fit(X), model.fit(X * 10.0**power)
        for Z in (extreme.embedding_, extreme.components_, extreme.objective_history_):
            assert np.isfinite(Z).all()
        value = extreme.objective_ / 10.0 ** (power * beta_of(loss))
        assert value <= 2 * plain.objective_  # any decrease from the start is accepted


def test_small_values_beside_a_penalty_are_refused_where_powers_would_overflow():
    """Check that penalties with tiny values of X are refused if powers of X would overflow.

    Rescaling X would change the weight of the penalty.
    """
    model = make("mu", None, 0.0, alpha_W=0.1)
    X = data_for(0.0)
    with pytest.raises(ValueError, match="penalties"):
        model.fit(X * 1e-100)
    small = model.fit(X * 1e-50)
    assert (np.diff(small.objective_history_) <= 0).all()
    product = small.embedding_ @ small.components_
    assert 0.1 < np.median(product / (X * 1e-50)) < 10


@pytest.mark.parametrize("loss", [3.0, -1.0, 5.0])
@pytest.mark.parametrize("power", [150, -150])
def test_other_divergences_at_extreme_scales_are_finite_or_refused(loss, power):
    """Check that an x^β that overflows or underflows raises an error instead of returning NaN."""
    X = data_for(loss) * 10.0**power
    model = make("mu", None, loss)
    try:
        model.fit(X)
    except ValueError as error:
        assert "X" in str(error) and "divide" in str(error)
        return
    assert np.isfinite(model.objective_) and np.isfinite(model.components_).all()
    assert model.objective_history_[-1] < model.objective_history_[0]


WEIGHTED = [row for row in SOLVERS if row[2] in ("frobenius", KL)]


WEIGHTED_IDS = [i for i, row in zip(SOLVER_IDS, SOLVERS) if row[2] in ("frobenius", KL)]


@pytest.mark.parametrize("init", ["random", "nndsvda"])
@pytest.mark.parametrize(("solver", "rule", "loss"), WEIGHTED, ids=WEIGHTED_IDS)
def test_weights_of_one_are_no_weights(solver, rule, loss, init):
    X = make_data()
    model = make(solver, rule, loss, init=init, max_iter=15)
    plain = clone(model).fit(X)
    weighted = model.fit(X, sample_weight=np.ones(len(X)))
    assert_same_fit(weighted, plain, 1e-9)


@pytest.mark.parametrize("sparse", SPARSE)
@pytest.mark.parametrize("init", ["random", "nndsvda"])
@pytest.mark.parametrize(("solver", "rule", "loss"), WEIGHTED, ids=WEIGHTED_IDS)
def test_integer_weights_are_repetition(solver, rule, loss, init, sparse):
    X = make_sparse() if sparse else make_data(n=120)
    counts = np.random.default_rng(3).integers(1, 4, X.shape[0])
    repeated = X[np.repeat(np.arange(X.shape[0]), counts)]
    model = make(solver, rule, loss, init=init, max_iter=15)
    if solver != "mu":  # the steps of these solvers depend on other rows, so only the minima agree
        model.set_params(n_components=2, tol=1e-7, max_iter=3000)
    weighted = clone(model).fit(X, sample_weight=counts)
    often = model.fit(repeated)
    # The order of summation differs, and the randomised SVD of NNDSVD is only approximately equal.
    tolerance = 1e-8 if init == "random" else 1e-5
    if solver == "mu":
        assert_close(weighted.components_, often.components_, tolerance)
        expected = np.repeat(weighted.embedding_, counts, axis=0)
        assert_close(often.embedding_, expected, tolerance)
    assert weighted.objective_ == pytest.approx(often.objective_, rel=1e-5)
    gamma = counts.astype(float)
    assert weighted.objective_ == pytest.approx(naive_objective(X, weighted, gamma=gamma), rel=1e-8)


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_penalties_count_a_sample_once_whatever_its_weight(loss):
    """Check that a sample weight multiplies the loss of a sample but not its penalty.

    With penalties, a weight of 2 is therefore not equal to repeating the sample, as the
    documentation states.
    """
    X = make_data()
    gamma = np.random.default_rng(3).integers(1, 4, len(X)).astype(float)
    model = NMF(3, beta_loss=loss, alpha_W=0.1, random_state=0, max_iter=20, tol=0.0)
    V, H = model.fit_transform(X, sample_weight=gamma), model.components_
    n, p = X.shape
    loss_alone = naive_objective(X, model.set_params(alpha_W=0.0), gamma=gamma)
    penalty = 0.05 * (p * np.sum(V**2) + n * np.sum(H**2))
    assert model.objective_ == pytest.approx(loss_alone + penalty, rel=1e-8)


@pytest.mark.parametrize(("solver", "rule", "loss"), WEIGHTED, ids=WEIGHTED_IDS)
@pytest.mark.parametrize("sparse", SPARSE)
def test_ncw_weights(solver, rule, loss, sparse):
    X = make_sparse() if sparse else make_data()
    dense = X.toarray() if sparse else X
    gamma = reference.ncw_weights(dense)
    assert gamma[3] == 0  # the zero sample has weight 0, not inf
    model = make(solver, rule, loss, max_iter=15)
    explicit = clone(model).fit(X, sample_weight=gamma)
    model.set_params(sample_weighting="ncw").fit(X)
    assert_same_fit(model, explicit, 1e-9)
    for Z in (model.embedding_, model.components_, model.transform(X)):
        assert np.isfinite(Z).all()
    assert 0 <= model.kkt_residual_ <= 1
    assert model.objective_ == pytest.approx(naive_objective(X, model, gamma=gamma), rel=1e-8)
    again = model.fit(X, sample_weight=np.full(X.shape[0], 2.0))
    assert again.objective_ == pytest.approx(2 * explicit.objective_, rel=1e-2)


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize(
    ("prices", "factor"),
    [({"alpha_H": 0.1}, "parts H"), ({"alpha_W": 0.1, "alpha_H": 0}, "codes W")],
)
def test_a_penalty_that_has_no_minimum_is_said(loss, prices, factor):
    """Check that a penalty on only one factor gives a warning.

    Such a penalty has no minimum: it vanishes as that factor shrinks and the other grows.
    """
    X = make_data(positive=True)
    with pytest.warns(UserWarning, match=f"{factor}"):
        NMF(3, beta_loss=loss, max_iter=5, **prices).fit(X)
    # With alpha_H="same", both factors have a penalty, so no warning is raised.
    NMF(3, beta_loss=loss, max_iter=5, alpha_W=0.1).fit(X)
    NMF(3, beta_loss=loss, max_iter=5, fixed_components=np.ones((3, X.shape[1])), **prices).fit(X)
    GNMF(3, max_iter=5).fit(X)  # the components of GNMF have unit norm, so no warning is raised


def test_zeros_that_a_multiplicative_update_cannot_leave_are_said():
    X = make_data(positive=True)
    with pytest.warns(UserWarning, match="init='nndsvd'"):
        NMF(3, solver="mu", init="nndsvd", max_iter=3, tol=0).fit(X)
    for given in ({"init": "nndsvda"}, {"init": "nndsvd", "mu_rule": "lin"}):
        NMF(3, solver="mu", max_iter=3, tol=0, **given).fit(X)
