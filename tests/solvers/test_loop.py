"""Tests of the internal functions of the solver loop against naive formulas.

Fits still descend if a schedule or a stopping rule is wrong. These are therefore compared with
their documentation here.
"""

import numpy as np
import pytest
from sklearn import decomposition

import partwise
import reference
from partwise.backends import as_data
from partwise.backends.numpy.dense import DenseData
from partwise.knowledge.labels import encode_labels
from partwise.model.factor_model import FactorModel, column_lengths, unit_columns
from partwise.model.losses import Beta, Frobenius, KullbackLeibler
from partwise.model.maps import SharedRows
from partwise.model.subproblems import kkt_residual, misfit
from partwise.model.terms import Guest, Linear, Price, Ridge, Term, UnitLength
from partwise.solvers import loop
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.state import State
from partwise.solvers.steps import STEPS, Step, make_step, mu, newton
from problems import (
    LOSS_IDS,
    LOSSES,
    STEP_LOSS,
    UNIT_TERMS,
    K,
    factors,
    make_case,
    naive_value,
    zeros_in,
)

exact = make_step("hals")


def state(**fields):
    x = {"V": np.ones((2, 1)), "U": np.ones((3, 1))}
    return State(dict(x), dict(x), dict(x), 1.0, **fields)


def plain(**fields):
    return Settings(max_iter=10, tol=1e-4, **fields)


def state_after_step(V, U, weight):
    """Return the state after a step to (V, U), without a precomputed extrapolation."""
    half = loop.HalfStep(U)
    return loop.Moved({"V": V, "U": U}, V, half, None, weight, 1.0, True, np.inf)


# -- empty parts ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("price", [0.0, 1e-12, 1e-4])
def test_a_penalty_however_small_empties_no_part_at_the_start(price):
    dead, worse = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(3, 8))
        X = rng.random((60, k)) @ rng.random((k, 40)) + 0.1 * rng.random((60, 40))
        ours, theirs = (
            kind(k, alpha_W=price, init="nndsvda", tol=1e-5, max_iter=300, random_state=0).fit(X)
            for kind in (partwise.NMF, decomposition.NMF)
        )
        dead.append(bool((ours.components_.max(1) == 0).any()))
        worse.append(ours.reconstruction_err_ > 1.02 * theirs.reconstruction_err_)
    # Four of the six fits failed in an earlier version.
    assert not any(dead) and not any(worse), (dead, worse)


def test_an_empty_part_stands_still_for_some_iterations(rng):
    X, U, V = rng.random((6, 5)), rng.random((5, 2)), rng.random((6, 2))
    V[:, 1] = 0
    model = FactorModel(as_data(X), Frobenius(), terms_U=[Ridge(np.full((1, 1), 0.1))])
    sub = model.subproblem("U", V, U)
    moved = exact(sub, U)
    assert not moved[:, 1].any()
    old = {"V": V, "U": U}

    def step(move, n):
        at = State(old, old, old, 1.0, n=n)
        return loop._half_step(move, sub, U, at, "U", 0.0).new

    early = step(exact, loop.PATIENCE - 1)
    np.testing.assert_array_equal(early, np.column_stack([moved[:, 0], U[:, 1]]))
    assert sub.value(early) <= sub.value(U)
    np.testing.assert_array_equal(step(exact, loop.PATIENCE), moved)
    # "mu" runs without change, as in the papers.
    np.testing.assert_array_equal(step(mu, 0), mu(sub, U))


# -- choice of the step, and extrapolation -----------------------------------------------------


def test_the_step_is_the_one_that_the_settings_name():
    # Two distinct functions, so that identity can be compared.
    rough, safe = (lambda *given: mu(*given) for _ in range(2))
    settings = plain(warmup=2, rough=rough, safe=safe)
    falling = [10.0, 5.0]  # the last iteration halved the value
    for n, failures, history, wanted in (
        (0, 0, [], mu),
        (1, 3, falling, mu),  # the first iterations always use "mu"
        (2, 0, falling, rough),
        (2, 1, falling, exact),  # an exact step follows a failure
        (2, 3, falling, safe),
        (9, 0, [1.0, 1.0 - 0.9e-5], exact),  # a small decrease means an exact step
        (9, 0, [1.0, 1.0 - 1.1e-5], rough),
    ):
        at = state(n=n, failures=failures, history=history)
        assert loop._step_and_weight(at, exact, settings)[0] is wanted, (n, failures)
    without = loop._step_and_weight(state(n=5, failures=3), exact, plain(safe=None))
    assert without[0] is exact


def test_extrapolation_waits_for_the_warm_up_and_ends_after_two_failures():
    settings = plain(warmup=2)
    for n, failures, wanted in ((1, 0, 0.0), (2, 0, 0.4), (2, 1, 0.4), (2, 2, 0.0), (2, 3, 0.0)):
        at = state(n=n, failures=failures, weight=0.4)
        assert loop._step_and_weight(at, exact, settings)[1] == wanted


def test_beyond_is_the_last_move_again_and_never_below_zero():
    new, old = np.array([[1.0, 0.1, 2.0]]), np.array([[0.5, 1.0, 2.0]])
    naive = new + 0.5 * (new - old)
    np.testing.assert_allclose(loop._beyond(new, old, 0.5, plain()), np.maximum(naive, 0))
    kept = loop._beyond(new, old, 0.5, plain(keep=0.3))
    np.testing.assert_allclose(kept, np.maximum(naive, 0.3 * new))
    assert loop._beyond(new, old, 0.0, plain()) is new


def small_model(rng, **kw):
    X = rng.uniform(size=(8, 6))
    return (
        FactorModel(as_data(X), Frobenius(), **kw),
        rng.uniform(size=(8, 2)),
        rng.uniform(size=(6, 2)),
    )


def test_weights_grow_by_a_twentieth_and_fall_by_a_third(rng):
    """Check how the extrapolation weight changes, as in the paper of Ang and Gillis.

    It grows by γ = 1.05 up to a ceiling, which grows by 1.01, and is divided by η = 1.5 after a
    failure.
    """
    model, V, U = small_model(rng)
    at = State({"V": V, "U": U}, {}, {"V": V, "U": U}, 1.0, weight=0.5, ceiling=0.51)
    at = loop._look_ahead(model, at, state_after_step(V, U, 0.5), 1.0, plain(guard=False))
    assert at.weight == pytest.approx(0.51) and at.ceiling == pytest.approx(0.51 * 1.01)
    at.weight, at.ceiling = 0.5, 1.0
    at = loop._look_ahead(model, at, state_after_step(V, U, 0.5), 1.0, plain(guard=False))
    assert at.weight == pytest.approx(0.525) and at.ceiling == 1.0
    at.weight = 0.01
    at = loop._look_ahead(model, at, state_after_step(V, U, 0.01), 1.0, plain(guard=False))
    assert at.weight == pytest.approx(0.105)  # the weight of the extrapolation starts at a tenth
    at.weight, at.ceiling = 0.6, 0.9
    loop._take_back(at, plain())
    assert (at.weight, at.ceiling) == (pytest.approx(0.4), 0.6)
    assert at.failures == 1 and at.ahead == 0 and at.fine
    assert at.y["V"] is at.x["V"] and at.old["U"] is at.x["U"]
    for wanted in (2, 3, 6):  # after the safe step, no other step remains
        loop._take_back(at, plain())
        assert at.failures == wanted
    assert loop._stuck(at)
    once = state()
    loop._take_back(once, plain(extrapolate=False))
    assert once.failures == 3 and not loop._stuck(once) and once.weight == 0


def test_a_start_that_fits_perfectly_is_told_without_cancellation(rng):
    _, V, U = small_model(rng)
    model = FactorModel(as_data(V @ U.T), Frobenius())
    value = loop.begin(model, V, U, plain()).value
    # Each entry is a sum of two products, so it is rounded twice on either side.
    entries = 4 * np.finfo(float).eps * (V @ U.T)
    assert 0 <= value <= 0.5 * (entries**2).sum()


def test_parts_beyond_the_last_step_have_length_one_too(rng):
    model, V, U = small_model(rng, unit=True)
    U /= np.linalg.norm(U, axis=0)
    at = State({"V": V, "U": U}, {}, {"V": V, "U": np.roll(U, 1, axis=0)}, 1.0, weight=0.5)
    at = loop._look_ahead(model, at, state_after_step(V, U, 0.5), 1.0, plain(guard=False))
    assert not np.array_equal(at.y["U"], at.x["U"])
    np.testing.assert_allclose(np.linalg.norm(at.y["U"], axis=0), 1, rtol=1e-14)


# -- stopping rules ----------------------------------------------------------------------------


class Sized:
    least, size = 1e-6, 100.0


def test_the_fall_is_that_of_ten_iterations_over_where_it_is():
    history = [100.0 - i for i in range(30)]
    assert loop._fallen(Sized, state(history=history[:10]), 1e-4) == np.inf
    assert loop._fallen(Sized, state(history=history[:11]), 1e-4) == pytest.approx(10 / 90)
    assert loop._fallen(Sized, state(history=history), 1e-4) == pytest.approx(10 / 71)
    # For a nearly perfect fit, the fall is relative to the smallest misfit, or to tol² of the size
    # of X.
    tiny = [1e-6 * (20 - i) for i in range(20)]
    assert loop._fallen(Sized, state(history=tiny), 1e-4) == pytest.approx(1e-5 / 1e-4)
    assert loop._fallen(Sized, state(history=tiny), 0.1) == pytest.approx(1e-5 / 1.0)


def test_change_is_the_larger_of_both_factors():
    old = {"V": np.array([[3.0, 4.0]]), "U": np.array([[1.0], [0.0]])}
    new = {"V": np.array([[3.0, 4.5]]), "U": np.array([[1.0], [0.3]])}
    assert loop._change(new, old) == pytest.approx(0.3)
    new["U"] = old["U"]
    assert loop._change(new, old) == pytest.approx(0.1)


def test_the_residual_is_the_worse_of_both_halves(rng):
    model, V, U = small_model(rng)
    x, value = {"V": V, "U": U}, model.value(V, U)
    rho = misfit(value, model.size, model.least, 1e-4)
    both = [kkt_residual(model.subproblem(side, V, U), x[side], rho) for side in "VU"]
    assert both[0] != both[1]
    assert loop.residual_at(model, x, value, 1e-4) == max(both)


@pytest.mark.parametrize("every", [1, 5, 7])
def test_convergence_is_tested_every_few_iterations(rng, every, monkeypatch):
    """Check that the loop tests convergence only in every n-th iteration.

    It stops once the residual and the fall of the objective over ten iterations are small.
    """
    model, V, U = small_model(rng)
    found = alternate(model, V, U, exact, Settings(max_iter=500, tol=1e-3, check_every=every))
    assert found.converged and found.n_iter % every == 0 and found.n_iter == len(found.history) > 10
    fall = found.history[-11] - found.history[-1]
    assert fall <= 1e-3 * found.history[-1] * (1 + 1e-9)
    x = {"V": found.Z, "U": found.U}
    assert loop.residual_at(model, x, found.history[-1], 1e-3) <= 1e-3
    assert found.status == (
        f"converged: relative KKT residual at most 0.001 after {found.n_iter} iterations"
    )
    short = alternate(model, V, U, exact, Settings(max_iter=3, tol=1e-12))
    assert not short.converged and short.status == "stopped at max_iter=3, above tol=1e-12"
    never = alternate(model, V, U, exact, Settings(max_iter=60, tol=0))
    assert never.n_iter == 60 and not never.converged


@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("tol", [1e-9, 2.0])
def test_an_iteration_reports_the_residual_at_its_start(rng, order, tol):
    """Check the KKT residual that an iteration reports for the point where it begins.

    It is the residual of the first factor, or the larger one of both factors if the first is below
    tol, which is always the case for tol=2.
    """
    model, V, U = small_model(rng)
    settings = Settings(max_iter=5, tol=tol, order=order, extrapolate=False)
    at = loop.begin(model, V, U, settings)
    first, second = tuple(order)
    rho = misfit(at.value, model.size, model.least, tol)
    wanted = kkt_residual(model.subproblem(first, V, U), at.y[first], rho)
    after, told = loop.answered(model, loop.advance(model, at, exact, settings, True))
    if tol > 1:
        moved = {**{"V": V, "U": U}, first: after.x[first]}
        half = model.subproblem(second, moved["V"], moved["U"])
        wanted = max(wanted, kkt_residual(half, moved[second], rho))
    assert told == pytest.approx(wanted, rel=1e-12)
    assert loop.answered(model, loop.advance(model, after, exact, settings, False))[1] == np.inf


def test_the_last_gain_decides_the_precision_of_the_next_value(rng, monkeypatch):
    model, V, U = small_model(rng)
    falls, ahead = [], loop._look_ahead

    def hear(model, at, moved, fall, settings):
        after = ahead(model, at, moved, fall, settings)
        falls.append(fall)
        # Differences are then computed in float64.
        assert after.fine == (fall <= 1e4 * model.eps * model.size)
        return after

    monkeypatch.setattr(loop, "_look_ahead", hear)
    start = model.value(V, U)
    step = exact.bound_to(stop=0.1)  # this bound avoids the pass that measures all changes
    found = alternate(model, V, U, step, Settings(max_iter=8, tol=0, extrapolate=False))
    np.testing.assert_allclose(falls, -np.diff([start, *found.history]), atol=1e-12 * start)


class Exact:
    """Model whose exact objective is a given number."""

    least, size = 1e-6, 100.0

    def __init__(self, exact):
        self.exact = exact

    def exact_value(self, V, U, about):
        return self.exact


def test_the_history_is_shifted_to_where_it_ends():
    at = state(history=[3.0, 2.0, 1.5])
    at.value = 1.5
    loop.anchor(Exact(1.25), at)
    assert at.history == [2.75, 1.75, 1.25] and (at.value, at.anchor) == (1.25, 1.25)
    # An objective below the smallest misfit counts as zero, so later decreases are not relative to
    # it.
    loop.anchor(Exact(1e-5), at)
    assert at.value == 1e-5 and at.anchor == 0.0
    assert min(at.history) >= 1e-5 and min(at.history) == pytest.approx(1e-5, rel=1e-9)


def test_a_callback_ends_the_loop(rng):
    model, V, U = small_model(rng)
    seen = []

    def hear(n, solution):
        seen.append((n, solution.n_iter, len(solution.history)))
        return n == 4

    found = alternate(model, V, U, exact, plain(), hear)
    assert seen == [(n, n, n) for n in range(1, 5)] and found.n_iter == 4
    assert found.status == "stopped by a callback after 4 iterations"


# -- norms, scales and weights of a model ------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2])
def test_lengths_of_columns_and_their_mean(rng, norm):
    U = rng.uniform(size=(6, 3))
    naive = np.array([u.sum() if norm == 1 else np.sqrt(u @ u) for u in U.T])
    np.testing.assert_allclose(column_lengths(U, norm), naive)
    mean = naive.mean() if norm == 1 else np.sqrt((naive**2).mean())
    np.testing.assert_allclose(column_lengths(U, norm, common=True), np.full(3, mean))
    U[:, 1] = 0
    Z, unit = unit_columns(np.ones((2, 3)), U, norm)
    np.testing.assert_allclose(column_lengths(unit, norm), 1)
    np.testing.assert_allclose(unit[:, 1], unit[0, 1])  # a column of zeros becomes constant
    np.testing.assert_allclose(Z[0], [naive[0], 0, naive[2]])
    np.testing.assert_allclose(Z @ unit.T, np.ones((2, 3)) @ U.T)


@pytest.mark.parametrize("delta", [0.0, 0.4])
def test_the_scale_of_a_start_is_the_one_that_fits_best(rng, delta):
    model, V, U = small_model(rng, unit=True, smoothing=delta)
    fitted = model.fit_scale(V, U)
    scale = fitted[0, 0] / V[0, 0]
    np.testing.assert_allclose(fitted, scale * V)
    X, Y = model.data.whole() if hasattr(model.data, "whole") else model.data.X, V @ model.S(U).T
    assert scale == pytest.approx((np.asarray(X) * Y).sum() / (Y * Y).sum())


def test_a_start_of_shared_rows_is_their_weighted_mean(rng):
    labels = np.array([0, 0, 1, -1, 1, 1, -1, 0])
    # A class whose samples have weight 0 gets its unweighted mean.
    gamma = np.array([1.0, 3, 0, 2, 0, 0, 5, 4])
    rows = SharedRows(encode_labels(labels, 8).codes, 8)
    model, V, _ = small_model(rng, rows=rows, weights=gamma)
    Z = model.reduce(V)
    for r in range(rows.n_rows):
        mine = rows.index == r
        w = gamma[mine] if gamma[mine].sum() > 0 else np.ones(mine.sum())
        np.testing.assert_allclose(Z[r], (w[:, None] * V[mine]).sum(axis=0) / w.sum())


def test_known_parts_keep_their_length(rng):
    held = np.full((6, 2), np.nan)
    held[:, 1] = 3.0
    model, V, U = small_model(rng, unit=True, held=held)
    _, U = model.feasible(V, U)
    np.testing.assert_allclose(U[:, 1], 3.0)
    assert np.linalg.norm(U[:, 0]) == pytest.approx(1)
    np.testing.assert_allclose(model.lengths(2 * U), [2, 1])  # known parts keep their norm


# -- penalties on the norm of parts ------------------------------------------------------------


def price(first, second):
    first, second = np.array(first), np.array(second)
    return Price(
        first, second, lambda length: float((first * length + 0.5 * second * length**2).sum())
    )


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(
    "first, second",
    [
        ([1.0, 0.5], [0.0, 0.0]),
        ([0.0, 0.0], [2.0, 1.0]),
        ([1.0, 2.0], [0.5, 3.0]),
        ([-1.0, 1.0], [0.0, 2.0]),
    ],
)
def test_the_bound_of_lengths_touches_and_is_nowhere_below(rng, norm, first, second):
    term = UnitLength([price(first, second)], lambda U: column_lengths(U, norm), norm)
    U = rng.uniform(0.1, 1, size=(5, 2))
    U /= column_lengths(U, norm)
    slope, ridge, _ = term.bound(U)

    def bound(A):
        return float((slope * A).sum() + 0.5 * (ridge * A * A).sum())

    offset = term.value(U) - bound(U)
    for _ in range(200):
        A = np.maximum(U + rng.choice([0.01, 0.3, 2.0]) * rng.standard_normal(U.shape), 0)
        assert bound(A) + offset >= term.value(A) - 1e-9 * (1 + abs(term.value(A)))
    step, numeric = 1e-6, np.zeros_like(U)
    for index in np.ndindex(U.shape):
        E = np.zeros_like(U)
        E[index] = step
        numeric[index] = (term.value(U + E) - term.value(U - E)) / (2 * step)
    gradient = np.broadcast_to(term.gradient(U), U.shape)  # one number per column is allowed
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    if norm == 2:
        assert term.lipschitz() == pytest.approx(max(first) + max(second))
    counted = UnitLength(term.prices, term.lengths, norm, np.array([0, 1]))
    slope = np.broadcast_to(counted.gradient(U), U.shape)
    np.testing.assert_array_equal(slope[:, 0], 0)
    np.testing.assert_allclose(slope[:, 1], numeric[:, 1], atol=1e-6)


# -- custom penalty terms ------------------------------------------------------------------------


class Quartic(Term):
    """Penalty term Σ z⁴, whose Hessian has no upper bound."""

    def value(self, Z):
        return float((Z**4).sum())

    def gradient(self, Z):
        return 4 * Z**3


class Bowl(Term):
    """Penalty term ½ ‖Z - 2‖²."""

    quadratic = True

    def value(self, Z):
        return 0.5 * float(((Z - 2) ** 2).sum())

    def gradient(self, Z):
        return Z - 2

    def lipschitz(self):
        return 1.0


def test_what_a_term_offers_and_what_comes_from_its_gradient(rng):
    Z, new = rng.uniform(0.1, 3, size=(4, 2)), rng.uniform(0.1, 3, size=(4, 2))
    assert Quartic().offers == {"split"} and Bowl().offers == {"split", "bound", "lipschitz"}
    assert Linear(np.ones((1, 1))).offers == {"split", "bound", "lipschitz"}
    neg, pos = Quartic().split(Z)
    np.testing.assert_allclose(pos, 4 * Z**3)
    np.testing.assert_array_equal(neg, 0)
    neg, pos = Bowl().split(Z)  # the gradient Z - 2 is pos - neg with pos = Z and neg = 2
    np.testing.assert_allclose(pos, Z)
    np.testing.assert_allclose(neg, 2)
    linear, ridge = Bowl().bound(Z).about_zero(Z)
    np.testing.assert_allclose(linear, -2)
    np.testing.assert_allclose(ridge, 1)
    for term in (Quartic(), Bowl(), Ridge(np.full((1, 2), 0.7)), Linear(np.full((4, 1), 0.3))):
        assert term.change(new, Z) == pytest.approx(term.value(new) - term.value(Z))
    assert (
        Linear(np.ones((1, 1))).lipschitz() == 0 and Ridge(np.full((1, 2), 0.7)).lipschitz() == 0.7
    )
    assert Bowl().name == "Bowl" and not Bowl().of_samples
    assert Ridge(np.ones((4, 1))).of_samples and not Ridge(np.ones((1, 2))).of_samples
    with pytest.raises(ValueError, match=r"weight of Ridge.*\(3, 1\)"):
        Ridge(np.ones((3, 1))).check((4, 2), "terms_V")
    Ridge(np.ones((4, 2))).check((4, 2), "terms_V")


def test_a_user_term_on_shared_rows_obeys_the_chain_rule(rng):
    labels = np.array([0, 0, 1, -1, 1, 1])
    rows = SharedRows(encode_labels(labels, 6).codes, 6)
    guest, Z = Guest(Bowl(), rows), rng.uniform(0, 3, size=(rows.n_rows, 2))
    assert guest.value(Z) == pytest.approx(Bowl().value(Z[rows.index]))
    step, numeric = 1e-6, np.zeros_like(Z)
    for index in np.ndindex(Z.shape):
        E = np.zeros_like(Z)
        E[index] = step
        numeric[index] = (guest.value(Z + E) - guest.value(Z - E)) / (2 * step)
    np.testing.assert_allclose(guest.gradient(Z), numeric, atol=1e-7)
    neg, pos = guest.split(Z)
    np.testing.assert_allclose(pos - neg, numeric, atol=1e-7)
    assert guest.lipschitz() == 3  # the largest class has three samples
    assert guest.offers == Bowl().offers and guest.name == "Bowl"
    assert guest.quadratic and guest.degree is None and not guest.exact and not guest.couples
    ridge = Guest(Ridge(np.ones((1, 1))), rows)
    assert ridge.degree == 2 and ridge.exact and ridge.quadratic
    linear, ridge = guest.bound(Z).about_zero(Z)
    np.testing.assert_allclose(linear + ridge * Z, numeric, atol=1e-7)


def test_unit_sums_under_kullback_leibler(rng):
    model = FactorModel(as_data(rng.uniform(size=(8, 6))), KullbackLeibler(), unit=True)
    U = rng.uniform(size=(6, 2))
    np.testing.assert_allclose(model.lengths(U), U.sum(axis=0))
    Z, unit = model.normalize(np.ones((8, 2)), U)
    np.testing.assert_allclose(unit.sum(axis=0), 1)
    np.testing.assert_allclose(Z[0], U.sum(axis=0))


def test_rough_steps_end_where_exact_ones_do(rng, monkeypatch):
    """Check that fits with low-precision steps end at the objective of exact steps.

    Low-precision steps are used on the way, and the last digits come from the exact step.
    """
    monkeypatch.setattr("partwise.backends.numpy.dense.ROUGH_WORK", 0)
    X = rng.random((60, 5)) @ rng.random((5, 40)) + 0.05 * rng.random((60, 40))
    V, U = factors(rng, 60, 40, 5, np.float64)
    ends = []
    for rough in (None, make_step("newton", rough=True)):
        model = FactorModel(DenseData(X), KullbackLeibler())
        settings = Settings(3000, 1e-6, warmup=3, rough=rough)
        solution = alternate(model, V, U, newton, settings)
        assert solution.converged and "KKT" in solution.status
        assert np.all(np.diff(solution.history) <= 0)
        ends.append(solution.history[-1])
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


UNIT_CASES = [
    pytest.param(step, loss, name, id=f"{step}-{loss.beta:g}-{name}")
    for step, loss in STEP_LOSS
    for name in UNIT_TERMS
    if not isinstance(loss, Beta) and not (loss.beta == 1 and name == "graph")
]


@pytest.mark.parametrize(("step", "loss", "name"), UNIT_CASES)
def test_unit_loop_holds_the_constraint_and_never_rises(rng, step, loss, name):
    X = zeros_in(rng, 30, 12, density=0.7)
    terms = UNIT_TERMS[name](rng, 30)
    model = FactorModel(DenseData(X), loss, terms_V=terms, unit=True)
    Z, U = factors(rng, 30, 12, K)
    settings = Settings(max_iter=60, tol=0.0, extrapolate=step != "mu")
    result = alternate(model, Z, U, STEPS[step], settings)
    assert np.diff(result.history).max() <= 0
    assert result.history[-1] < 0.99 * model.value(Z, U)
    np.testing.assert_allclose(np.linalg.norm(result.U, loss.unit_norm, axis=0), 1, rtol=1e-12)
    expected = naive_value(X, result.Z, result.U, loss, terms_V=terms)
    assert result.history[-1] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("loss", LOSSES, ids=LOSS_IDS)
def test_loop_takes_the_half_steps_in_order(rng, order, loss):
    model, _, Z, U = make_case(rng, "plain", loss)
    settings = Settings(max_iter=10, tol=0.0, order=order, extrapolate=False, guard=False)
    result = alternate(model, Z, U, mu, settings)
    run = reference.nmf_frobenius if loss.beta == 2 else reference.nmf_kl
    V, B, history = run(model.data.X, Z, U, 10, order=order)
    np.testing.assert_allclose(result.Z, V, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.U, B, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(result.history, history, rtol=1e-11)
    assert result.n_iter == 10 and not result.converged


def test_loop_stops_on_change_where_fixed_points_are_not_stationary(rng):
    model, _, Z, U = make_case(rng, "plain", KullbackLeibler())
    settings = Settings(max_iter=5000, tol=1e-3, stationary=False, extrapolate=False, guard=False)
    result = alternate(model, Z, U, mu, settings)
    assert result.converged and "relative change of the factors" in result.status
    assert 1 < result.n_iter < 5000


def test_loop_undoes_a_step_that_rises(rng):
    """Check that a step that always increases the objective is undone and then replaced by "mu"."""
    model, _, Z, U = make_case(rng, "plain", Frobenius())
    settings = Settings(max_iter=40, tol=0.0)
    start = model.value(Z, U)
    result = alternate(model, Z, U, Step("up", lambda sub, A: 10 * A, {}), settings)
    assert (np.diff(result.history) <= 0).all()
    # The objective of the start is summed separately, and the history is shifted to its exact end
    # value.
    assert result.history[0] <= start + model.data.X.size * model.eps * model.size
    assert result.history[-1] == pytest.approx(model.value(result.Z, result.U), rel=1e-12)


def test_a_shifted_history_never_rises(rng):
    """Check that shifting the history to the exact objective never makes it rise.

    ``value + (exact - value)`` may differ from ``exact`` in the last bit, in either direction.
    """
    below = 0
    for value, exact in rng.uniform(0.1, 1.0, (200, 2)):
        below += value + (exact - value) < exact
        history = loop.shifted([value * 1.5, value, value], exact - value, exact)
        assert (np.diff([*history, exact]) <= 0).all()
    assert below > 0


@pytest.mark.parametrize("estimator", ["NMF", "GNMF", "CDNMF"])
def test_rejected_iterations_of_a_device_are_undone(rng, monkeypatch, estimator):
    X = rng.random((60, 30)).astype(np.float32)
    y = np.where(np.arange(60) < 12, np.arange(60) % 3, -1)
    given = {} if estimator == "NMF" else {"y": y}
    model = getattr(partwise, estimator)(4, max_iter=80, tol=0, init="random", random_state=0)
    plain = model.fit(X, **given)
    known, back = dict(vars(plain)), []
    monkeypatch.setattr(loop, "pending_scalar", lambda value: lambda: float(value))
    take_back = loop._take_back
    monkeypatch.setattr(
        loop, "_take_back", lambda state, how: (back.append(state.n), take_back(state, how))
    )
    guessed = model.fit(X, **given)
    assert back  # extrapolation increases the objective at least once
    for name in ("objective_history_", "components_", "embedding_"):
        np.testing.assert_array_equal(getattr(guessed, name), known[name])


class Recorder:
    """Wrapper of a DataMatrix that counts the calls of its products."""

    PRODUCTS = ("dot", "tdot", "kl_dot", "kl_tdot", "kl_newton", "beta_dot", "beta_tdot")

    def __init__(self, data):
        self.data, self.counts = data, dict.fromkeys(self.PRODUCTS, 0)

    def __getattr__(self, name):
        if name in ("data", "counts"):
            raise AttributeError(name)
        if name == "X":
            raise AssertionError("X itself was asked for")
        if name in self.PRODUCTS:
            self.counts[name] += 1
        return getattr(self.data, name)


ONE_OF_EACH = {
    ("hals", Frobenius): {"dot": 1, "tdot": 1},
    ("nesterov", Frobenius): {"dot": 1, "tdot": 1},
    ("mu", Frobenius): {"dot": 1, "tdot": 1},
    ("mu", KullbackLeibler): {"kl_dot": 1, "kl_tdot": 1},
    ("newton", KullbackLeibler): {"kl_newton": 2},
}


@pytest.mark.parametrize(("solver", "loss"), ONE_OF_EACH)
def test_products_per_iteration(rng, solver, loss):
    X = zeros_in(rng, 50, 30)
    V, U = factors(rng, 50, 30, 4)
    counts = []
    for max_iter in (10, 30):
        recorder = Recorder(DenseData(X))
        model = FactorModel(recorder, loss())
        plain = solver == "mu"
        settings = Settings(max_iter=max_iter, tol=0.0, extrapolate=not plain, guard=not plain)
        result = alternate(model, V, U, STEPS[solver], settings)
        assert result.n_iter == max_iter
        counts.append(recorder.counts)
    few, many = counts
    expected = ONE_OF_EACH[solver, loss]
    for name in Recorder.PRODUCTS:
        assert many[name] - few[name] == 20 * expected.get(name, 0), name
        assert few[name] <= 10 * expected.get(name, 0) + 2, name


@pytest.fixture
def plain_start(rng):
    """Return a model of data made of four parts, and random initial factors."""
    X = rng.random((70, 4)) @ rng.random((4, 30)) + 0.1 * rng.random((70, 30))
    return FactorModel(as_data(X), Frobenius()), rng.random((70, 4)), rng.random((30, 4))


def test_a_callback_receives_every_iteration_and_changes_nothing(plain_start):
    model, seen = plain_start[0], []

    def watch(n, solution):
        assert n == solution.n_iter == len(solution.history)
        assert solution.history[-1] == pytest.approx(model.value(solution.Z, solution.U), rel=1e-9)
        seen.append((n, solution.history[-1]))
        return False

    settings = Settings(400, 1e-4)
    watched, alone = (alternate(*plain_start, exact, settings, on) for on in (watch, None))
    assert watched.converged and [n for n, _ in seen] == list(range(1, watched.n_iter + 1))
    np.testing.assert_array_equal(watched.history, alone.history)
    np.testing.assert_array_equal(watched.U, alone.U)


def test_a_callback_can_end_the_loop(plain_start):
    found = alternate(*plain_start, exact, Settings(50, 1e-4), lambda n, solution: n == 7)
    assert found.n_iter == len(found.history) == 7 and not found.converged
    assert found.status == "stopped by a callback after 7 iterations"
    assert found.history[-1] == pytest.approx(plain_start[0].value(found.Z, found.U), rel=1e-9)


@pytest.mark.parametrize("power", [50, -50])
@pytest.mark.filterwarnings("ignore:CDNMF.*no known label")
def test_the_residual_does_not_depend_on_the_unit_of_x(power, rng):
    """Check that scaling X by 2^±50 scales the parts and changes nothing else.

    Squares of float32 would overflow or underflow, and a penalty without labels prevents that the
    fit rescales X. For such values, products are computed in float64, so only roundings to float32
    differ.
    """
    X = (rng.random((40, 3)) @ rng.random((3, 12)) + 0.1 * rng.random((40, 12))).astype(np.float32)
    one, other = (
        partwise.CDNMF(3, class_reg=1.0, init="nndsvd", random_state=0, n_clusters=1, tol=1e-2).fit(
            Y
        )
        for Y in (X, X * np.float32(2.0**power))
    )
    assert one.n_iter_ == other.n_iter_ > 1
    wanted = one.components_ * 2.0**power  # part weights have a root mean square of one
    # The tolerance is the rounding of one sum per iteration.
    rounding = np.finfo(np.float32).eps * X.shape[0] * one.n_iter_
    np.testing.assert_allclose(other.components_, wanted, rtol=0, atol=rounding * wanted.max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_part_with_subnormal_curvature_stays_finite(dtype, rng):
    """Check that part weights stay finite if the curvature of a part is subnormal.

    Its inverse is infinite, which once made part weights NaN.
    """
    X = rng.random((7, 4)) * (rng.random((7, 4)) < 0.5)
    X[:, 2] = 8e-28 if dtype == np.float32 else 8e-161
    model = partwise.NMF(20, max_iter=5, random_state=0, tol=0).fit(X.astype(dtype))
    assert np.isfinite(model.objective_history_).all() and np.isfinite(model.embedding_).all()
