"""Tests that every step with every term and array type reaches an independently found minimum."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from backends import Forms
from partwise import ConstrainedNMF
from partwise.backends import as_data
from partwise.backends.arrays import to_numpy
from partwise.fitting.special_arrays import check_special
from partwise.knowledge.labels import encode_labels
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import Graph, GraphDivergence, Neighbors
from partwise.model.losses import Frobenius, KullbackLeibler
from partwise.model.maps import SharedRows
from partwise.model.terms import Guest, Linear, Ridge
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import STEPS, check_step, make_step
from partwise.terms import Term, check_term

rng = np.random.default_rng(0)
N, P, K = 14, 9, 3
X = rng.random((N, K)) @ rng.random((K, P)) + 0.1 * rng.random((N, P))
V, U = 0.2 + rng.random((N, K)), 0.2 + rng.random((P, K))
W = np.triu(rng.random((N, N)) < 0.3, 1) * rng.random((N, N))
W = W + W.T
BY_ENTRY, BY_ROW, BY_COLUMN = rng.random((N, K)), rng.random((N, 1)), rng.random((1, K))


class Chain(Term):
    """User-defined term that couples rows: ½ μ Σ_i ‖z_{i+1} - z_i‖²."""

    couples = True
    degree = 2

    def __init__(self, weight=0.8):
        self.weight = weight

    def value(self, Z):
        return 0.5 * self.weight * (np.diff(Z, axis=0) ** 2).sum()

    def gradient(self, Z):
        steps = self.weight * np.diff(Z, axis=0)
        return np.pad(steps, ((1, 0), (0, 0))) - np.pad(steps, ((0, 1), (0, 0)))

    def lipschitz(self):
        return 4 * self.weight


class Vague(Chain):
    """The same term as `Chain`, but without a declared degree of homogeneity."""

    degree = None


class Soft(Term):
    """User-defined term that is not homogeneous: μ Σ √(1 + z²)."""

    def __init__(self, weight=0.8):
        self.weight = weight

    def value(self, Z):
        return self.weight * np.sqrt(1 + Z**2).sum()

    def gradient(self, Z):
        return self.weight * Z / np.sqrt(1 + Z**2)

    def lipschitz(self):
        return self.weight


class Rough(Soft):
    """The same term as `Soft`, but without a bound of its curvature."""

    def lipschitz(self):
        return np.inf


TERMS = {
    "linear": Linear(np.full((1, 1), 0.3)),
    "linear by row": Linear(BY_ROW),
    "linear by column": Linear(BY_COLUMN),
    "linear by entry": Linear(BY_ENTRY),
    "ridge": Ridge(np.full((1, 1), 0.7)),
    "ridge by row": Ridge(3 * BY_ROW),
    "ridge by column": Ridge(3 * BY_COLUMN),
    "ridge by entry": Ridge(3 * BY_ENTRY),
    "graph": Graph(Neighbors(sp.csr_array(W)), W.sum(axis=1), 0.8),
    "own": Soft(),
    "own, joins rows": Chain(),
}
#: The formula of each term, written with plain loops or NumPy.
FORMULAS = {
    Linear: lambda t, Z: (t.cost * Z).sum(),
    Ridge: lambda t, Z: 0.5 * (t.weight * Z**2).sum(),
    Graph: lambda t, Z: 0.2 * (W * ((Z[:, None] - Z[None]) ** 2).sum(axis=2)).sum(),
    Soft: lambda t, Z: 0.8 * np.sqrt(1 + Z**2).sum(),
    Vague: lambda t, Z: 0.4 * (np.diff(Z, axis=0) ** 2).sum(),
    Chain: lambda t, Z: 0.4 * sum(((Z[i + 1] - Z[i]) ** 2).sum() for i in range(N - 1)),
}  # fmt: skip
STEPS_OF = {2.0: ("mu", "hals", "nesterov"), 1.0: ("mu", "newton")}
KINDS = ("numpy", "csr", "memmap", "torch", "dask")


def objective(beta, term, Z, gamma=1.0):
    Y = Z @ U.T
    loss = 0.5 * (X - Y) ** 2 if beta == 2 else X * np.log(X / Y) - X + Y
    return (gamma * loss).sum() + FORMULAS[type(term)](term, Z)


def lowest(beta, term, gamma=1.0):
    """Return the least objective over V, which L-BFGS-B finds with numerical derivatives."""

    def value(z):
        return objective(beta, term, z.reshape(N, K), gamma)

    low = 1e-9 if beta == 1 else 0.0
    options = {"maxfun": 10**6, "maxiter": 2000, "ftol": 1e-12}
    return minimize(value, V.ravel(), bounds=[(low, None)] * (N * K), options=options).fun


@pytest.fixture(scope="module")
def best():
    known = {}

    def find(beta, name, weighted=False):
        key = (beta, name, weighted)
        if key not in known:
            known[key] = lowest(beta, TERMS[name], GAMMA[:, None] if weighted else 1.0)
        return known[key]

    return find


GAMMA = 0.5 + rng.random(N)


def solved(data, beta, step, term, goal, weights=None):
    """Return the lowest objective that at most 600 steps on V reach, stopping once below `goal`."""
    loss = Frobenius() if beta == 2 else KullbackLeibler()
    model = FactorModel(data, loss, terms_V=[term], weights=weights)
    model.sweeps["V"] = 3
    Z, basis = data.rows(V.copy()), data.small(U)
    gamma = 1.0 if weights is None else weights[:, None]
    value = np.inf
    for n in range(600):
        Z = make_step(step)(model.subproblem("V", Z, basis), Z)
        if n % 20 == 19:
            value = objective(beta, term, to_numpy(Z), gamma)
            if value <= goal:
                break
    return value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta, step", [(b, s) for b, steps in STEPS_OF.items() for s in steps])
@pytest.mark.parametrize("name", TERMS)
def test_every_step_finds_the_minimum(name, beta, step, kind, best, tmp_path):
    goal = best(beta, name) * (1 + 1e-4)
    form = Forms(X, tmp_path)[kind]
    special = check_special(ConstrainedNMF(), form, reset=True, beta=beta)
    data = as_data(form if special is None else special)
    assert solved(data, beta, step, TERMS[name], goal) <= goal


@pytest.mark.parametrize("beta, step", [(2.0, "hals"), (2.0, "nesterov"), (1.0, "newton")])
@pytest.mark.parametrize("name", ["ridge by column", "ridge by entry", "graph", "own, joins rows"])
def test_every_step_finds_the_minimum_with_sample_weights(name, beta, step, best):
    goal = best(beta, name, True) * (1 + 1e-4)
    assert solved(as_data(X), beta, step, TERMS[name], goal, GAMMA) <= goal


def test_a_ridge_by_column_has_one_minimum_whatever_the_solver():
    """Check that both solvers reach the same minimum for a ridge with one weight per column.

    Regression test: `hals` once used the weight of the first column for all columns.
    """
    weight = np.array([[0.1, 1.0, 10.0]])
    terms = {"terms_V": [Ridge(weight)], "terms_U": [Ridge(np.full((1, 1), 0.5))]}
    for name in ("hals", "nesterov"):
        model = FactorModel(as_data(X), Frobenius(), **terms)
        found = alternate(model, V, U, make_step(name), Settings(3000, 1e-8))
        assert found.converged

        def codes(z, U=found.U):
            Z = z.reshape(N, K)
            E = Z @ U.T - X
            value = 0.5 * (E**2).sum() + 0.5 * (weight * Z**2).sum()
            return value, (E @ U + weight * Z).ravel()

        bounds = [(0, None)] * (N * K)
        best = minimize(codes, V.ravel(), jac=True, bounds=bounds, options={"ftol": 1e-14}).fun
        assert codes(found.Z.ravel())[0] <= best * (1 + 1e-6), name


# -- terms that a step cannot use ------------------------------------------------------------------


@pytest.mark.parametrize("step, beta", [("hals", 2), ("nesterov", 2), ("newton", 1), ("mu", 1)])
def test_a_term_without_a_bound_is_refused_by_name(step, beta):
    can = "mu" if beta == 2 else "none can"
    with pytest.raises(ValueError, match=f"{step}.*Rough.*{can}"):
        check_step(step, beta, beta, [Rough()])
    check_step("mu", "frobenius", 2.0, [Rough()])


def test_the_divergence_on_a_graph_is_for_mu():
    term = GraphDivergence(Neighbors(sp.csr_array(W)), W.sum(axis=1), 0.8)
    assert [s.name for s in STEPS.values() if s.does(1.0) and s.takes(term, 1.0)] == ["mu"]


def test_a_term_needs_a_gradient():
    with pytest.raises(TypeError, match=r"Half.*`gradient`"):

        class Half(Term):
            def value(self, Z):
                return 0.0


# -- check_term, which finds mistakes in terms of users --------------------------------------------


@pytest.mark.parametrize("name", [*TERMS, "divergence", "rough", "vague"])
def test_terms_that_are_right_pass(name):
    more = {
        "divergence": GraphDivergence(Neighbors(sp.csr_array(W)), W.sum(axis=1), 0.8),
        "rough": Rough(),
        "vague": Vague(),
    }
    for seed in range(5):
        check_term({**TERMS, **more}[name], (N, K), random_state=seed)


class Forgets(Chain):
    couples = False


class WrongDegree(Chain):
    degree = 1


class WrongSlope(Chain):
    def gradient(self, Z):
        slope = super().gradient(Z)
        slope[0] = 0  # this makes the gradient of the first row wrong
        return slope


class WrongSign(Soft):
    def gradient(self, Z):
        return -super().gradient(Z)


class TooSmall(Chain):
    """Term whose curvature bound is too small, which random directions do not reveal.

    The bound is 3 μ, but the largest eigenvalue of the Hessian is nearly 4 μ.
    """

    def lipschitz(self):
        return 3.0 * self.weight


class WrongBound(Ridge):
    def bound(self, Z):
        return super().bound(Z)._replace(ridge=0.9 * self.weight)


class NotQuadratic(Soft):
    quadratic = True


class NotExact(Soft):
    exact = True


class WrongSplit(Soft):
    def split(self, Z):
        return np.zeros((1, 1)), 2 * self.gradient(Z)


class NegativeSplit(Soft):
    def split(self, Z):
        return -self.gradient(Z), np.zeros((1, 1))


class Writes(Soft):
    def value(self, Z):
        Z += 1
        return super().value(Z)


class WrongShape(Soft):
    def gradient(self, Z):
        return super().gradient(Z).T


class Endless(Soft):
    def gradient(self, Z):
        return np.where(Z > 0, super().gradient(Z), np.inf)


class ManyValues(Soft):
    def value(self, Z):
        return np.sqrt(1 + Z**2)


@pytest.mark.parametrize(
    "term, words",
    [
        (Forgets(), "couples is False, but the gradient of a row depends on other rows"),
        (WrongDegree(), "degree is 1, but the value of 2 Z"),
        (WrongSlope(), "gradient is not that of value"),
        (WrongSign(), "gradient is not that of value"),
        (TooSmall(), "below the value|lipschitz is 2.4, and the value curves more"),
        (WrongBound(np.ones((1, 1))), "bound has another slope"),
        (NotQuadratic(), "quadratic is True"),
        (NotExact(), "exact is True, but the bound changes"),
        (WrongSplit(), "split is not the gradient"),
        (NegativeSplit(), "split has a negative half"),
        (Writes(), "it writes to Z"),
        (WrongShape(), "gradient has shape"),
        (Endless(), "gradient is not finite where Z is zero"),
        (ManyValues(), "not one finite number"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Term) else "",
)
def test_each_mistake_has_its_sentence(term, words):
    for seed in range(5):
        with pytest.raises(ValueError, match=f"^{type(term).__name__}.*({words})"):
            check_term(term, (N, K), random_state=seed)


def test_what_is_no_term_and_what_does_not_fit_is_said():
    with pytest.raises(TypeError, match="int"):
        check_term(3, (N, K))
    with pytest.raises(ValueError, match="weight of Ridge"):
        check_term(Ridge(3 * BY_ROW), (N + 1, K))


# -- terms as settings of the estimator ------------------------------------------------------------


def fit(solver="auto", beta_loss="frobenius", X=X, y=None, **params):
    settings = {"tol": 1e-6, "max_iter": 2000, "random_state": 0, "n_clusters": 1, **params}
    return ConstrainedNMF(K, solver=solver, beta_loss=beta_loss, **settings).fit(X, y)


def test_a_user_defined_ridge_equals_alpha_w():
    """Check that a user-defined ridge of weight alpha_W · p on V equals the setting alpha_W."""
    named = fit(alpha_W=0.1)
    own = fit(terms=[Ridge(np.full((1, 1), 0.1 * P))])
    np.testing.assert_allclose(own.embedding_, named.embedding_, rtol=1e-9)
    both = fit(alpha_W=0.1, alpha_H=0.1)
    mine = fit(alpha_W=0.1, basis_terms=[Ridge(np.full((1, 1), 0.1 * N))])
    np.testing.assert_allclose(mine.components_, both.components_, rtol=1e-9)


@pytest.mark.parametrize(
    "solver, loss",
    [("hals", "frobenius"), ("nesterov", "frobenius"), ("mu", "frobenius"),
     ("newton", "kullback-leibler"), ("mu", "kullback-leibler")],
)  # fmt: skip
@pytest.mark.parametrize(
    "term", [Chain(), Vague(), Soft()], ids=["joins rows", "joins, no degree", "no degree"]
)
def test_a_users_term_runs_with_every_solver(solver, loss, term):
    # Multiplicative updates and terms of which only a curvature bound is known converge slowly.
    tol = 1e-3 if solver == "mu" else 1e-6
    if isinstance(term, Vague) and loss == "kullback-leibler":
        tol = 1e-2 if solver == "mu" else 1e-3
    model = fit(solver, loss, terms=[term], tol=tol)
    beta = 2 if loss == "frobenius" else 1
    Y = model.embedding_ @ model.components_
    loss = 0.5 * (X - Y) ** 2 if beta == 2 else X * np.log(X / Y) - X + Y
    penalty = FORMULAS[type(term)](term, model.embedding_)
    assert model.objective_ == pytest.approx(loss.sum() + penalty, rel=1e-9)
    lengths = (model.components_**beta).sum(axis=1)
    # scale="unit" works for terms without a degree.
    np.testing.assert_allclose(lengths, 1, rtol=1e-9)
    if solver != "mu":
        assert np.all(np.diff(model.objective_history_) <= 1e-12)
        assert model.kkt_residual_ <= max(tol, 1e-4)


@pytest.mark.parametrize("loss", [Frobenius(), KullbackLeibler()], ids=["frobenius", "kl"])
@pytest.mark.parametrize("term", [Chain(), Vague(), Soft()], ids=["degree", "vague", "soft"])
def test_the_gradient_of_length_price(term, loss):
    """Check the gradient of `length_price` by central differences, also at zeros of U.

    With unit=True, the terms on V depend on the lengths of the columns of U, by which V is
    multiplied; `length_price` is this dependence.
    """
    model = FactorModel(as_data(X), loss, terms_V=[term], unit=True)
    basis = U.copy()
    basis[::3, 0] = basis[1, :] = 0
    Z, basis = model.normalize(V, basis)
    price = model.length_price(Z)
    slope = np.broadcast_to(price.gradient(basis), basis.shape)
    for at in np.ndindex(basis.shape):
        step = np.zeros_like(basis)
        step[at] = 1e-6
        found = (price.value(basis + step) - price.value(basis - step)) / 2e-6
        assert slope[at] == pytest.approx(found, rel=1e-6, abs=1e-6), at


def test_rescaling_does_not_improve_a_fit_with_a_nonhomogeneous_term():
    """Check that a fit with a non-homogeneous term cannot be improved by rescaling its factors.

    V is multiplied by s while the parts keep their norm.
    """
    model = fit("hals", terms=[Soft(2.0)])
    for s in (0.7, 1.4):
        other = fit("hals", terms=[Soft(2.0)], random_state=1)
        assert other.objective_ == pytest.approx(model.objective_, rel=1e-2)
        V, H = model.embedding_ * s, model.components_
        Y = V @ H
        assert 0.5 * ((X - Y) ** 2).sum() + 2 * np.sqrt(1 + V**2).sum() >= model.objective_


def test_with_hard_labels_a_term_is_on_V():
    y = np.array([0, 0, 1, 1, -1, 2, 2] * 2)
    rows = SharedRows(encode_labels(y, N).codes, N)
    guest, Z = Guest(Chain(), rows), rng.random((rows.n_rows, K))
    step = 1e-6 * rng.standard_normal(Z.shape)
    slope = (guest.value(Z + step) - guest.value(Z - step)) / 2
    assert (guest.gradient(Z) * step).sum() == pytest.approx(slope, rel=1e-6)
    assert guest.value(Z) == pytest.approx(Chain().value(Z[rows.index]))
    linear, ridge = guest.bound(Z).about_zero(Z)
    for _ in range(20):
        A = rng.random(Z.shape)
        above = (linear * (A - Z) + 0.5 * ridge * (A**2 - Z**2)).sum()
        assert guest.value(A) <= guest.value(Z) + above + 1e-12
    model = fit(terms=[Chain()], hard_labels=True, y=y)
    V = model.embedding_
    assert all(np.ptp(V[y == c], axis=0).max() == 0 for c in range(3))
    loss = 0.5 * ((X - V @ model.components_) ** 2).sum()
    assert model.objective_ == pytest.approx(loss + Chain().value(V), rel=1e-9)


def test_new_samples_meet_the_terms_that_can_be_asked_about_them():
    by_sample = fit(terms=[Ridge(3 * BY_ROW), Chain(), Soft(0.5)], alpha_H=0.1)
    plain = clone(by_sample).set_params(terms=[Soft(0.5)]).fit(X)
    plain.components_ = by_sample.components_
    np.testing.assert_allclose(by_sample.transform(X[:5]), plain.transform(X[:5]), rtol=1e-6)
    codes = plain.transform(X[:5])
    gradient = (codes @ plain.components_ - X[:5]) @ plain.components_.T
    gradient += 0.5 * codes / np.sqrt(1 + codes**2)
    assert np.abs(np.minimum(codes, gradient)).max() < 1e-4


def test_clone_keeps_terms_and_cross_validation_says_what_does_not_fit():
    model = ConstrainedNMF(K, terms=[Ridge(3 * BY_ROW)], n_clusters=1, random_state=0)
    copy = clone(model)
    assert copy.terms[0] is not model.terms[0]
    np.testing.assert_array_equal(copy.terms[0].weight, 3 * BY_ROW)
    message = r"terms\[0\]: weight of Ridge has shape \(14, 1\).*\(9, 3\)"
    with pytest.raises(ValueError, match=message):
        cross_val_score(model, X, cv=3, error_score="raise")
    scores = cross_val_score(ConstrainedNMF(K, terms=[Soft()], n_clusters=1), X, cv=3)
    assert np.isfinite(scores).all()


def test_a_file_holds_no_code(tmp_path):
    with pytest.raises(ValueError, match=r"terms.*Soft"):
        fit(terms=[Soft()]).save(tmp_path / "model.partwise")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "params, message",
    [
        ({"terms": [3]}, r"terms\[0\] must be a partwise.terms.Term, got int"),
        ({"basis_terms": [Ridge(np.ones((2, 1)))]}, r"basis_terms\[0\]: weight.*\(2, 1\)"),
        ({"terms": [Rough()]}, r"terms\[0\]: Rough has neither degree"),
        ({"terms": [Rough()], "alpha_H": "same"}, r"terms\[0\]: Rough has neither degree"),
        ({"terms": [Rough()], "alpha_H": 0.1, "solver": "hals"}, "hals.*Rough.*that can: mu"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_before_any_work(params, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        ConstrainedNMF(K, **params).fit(X)
    assert re.search(message, str(caught.value))


def test_auto_finds_a_solver_that_takes_the_term():
    assert fit(terms=[Rough()], alpha_H=0.1).solver_ == "mu"
    assert fit(terms=[Soft()]).solver_ == "hals"


# -- numerical accuracy ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "torch", "dask"])
def test_a_graph_does_not_cancel_in_single_precision(kind, tmp_path):
    """Check the graph term in float32 for neighbours that agree to 1e-5.

    Computing D z - W z would cancel nearly all digits; summing differences of neighbours does not.
    """
    Z = (1000 + 0.01 * rng.random((N, K))).astype(np.float32)
    data = as_data(Z.astype(np.float64))
    form = Forms(np.abs(X).astype(np.float32), tmp_path)[kind]
    special = check_special(ConstrainedNMF(), form, reset=True, beta=2.0)
    data = as_data(form if special is None else special)
    term = FactorModel(data, Frobenius(), terms_V=[TERMS["graph"]]).terms["V"][0]
    W32, Z64 = W.astype(np.float32).astype(float), Z.astype(float)
    L = np.diag(W32.sum(axis=1)) - W32
    placed = data.rows(Z)
    assert term.value(placed) == pytest.approx(0.4 * (Z64 * (L @ Z64)).sum(), rel=0.02)
    slope = 0.8 * L @ Z64
    np.testing.assert_allclose(to_numpy(term.gradient(placed)), slope, atol=1e-5 * abs(slope).max())


@pytest.mark.parametrize("scale", [1e12, 1e-20, 1e-200])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_the_scale_of_sample_weights_means_nothing(scale, loss):
    def run(weights):
        model = ConstrainedNMF(K, beta_loss=loss, n_clusters=1, random_state=0, max_iter=300, tol=0)
        return model.fit(X, sample_weight=weights)

    one, other = run(GAMMA), run(GAMMA * scale)
    assert one.objective_ > 0
    # The random start depends on the scale of the weights, so only the objectives agree.
    assert other.objective_ == pytest.approx(one.objective_ * scale, rel=1e-3, abs=0)


def test_a_component_of_the_graph_without_weight():
    graph = sp.block_diag([sp.csr_array(np.ones((7, 7)) - np.eye(7))] * 2, "csr")
    weights = np.r_[np.ones(7), np.zeros(7)]
    model = ConstrainedNMF(K, graph_reg=1.0, beta_loss="kullback-leibler", max_iter=20, tol=0)
    model.fit(X, graph=graph, sample_weight=weights)
    assert np.isfinite(model.embedding_).all() and np.isfinite(model.objective_)


def test_rows_of_a_graph_do_not_depend_on_threads(use_threads):
    n = 300
    many = rng.random((n, P))
    graph = sp.random_array((n, n), density=0.02, random_state=1)
    graph = graph + graph.T
    fits = []
    for count in (1, 3):
        use_threads(count)
        model = ConstrainedNMF(K, graph_reg=3.0, n_clusters=1, random_state=0, max_iter=10, tol=0)
        fits.append(model.fit(many, graph=graph).objective_)
    assert fits[0] == fits[1]
