"""Plain least squares as wide arrays: one start, with who looks on."""

import numpy as np
import pytest

import partwise
from partwise.backends import as_data
from partwise.backends.numpy import dense
from partwise.backends.numpy.dense import DenseData
from partwise.model.factor_model import FactorModel
from partwise.model.losses import Frobenius
from partwise.solvers import wide
from partwise.solvers.loop import SAFE, Settings, alternate
from partwise.solvers.steps import hals
from problems import K, factors


@pytest.fixture
def start(rng):
    """Return a model of planted parts, and a start."""
    X = rng.random((70, 4)) @ rng.random((4, 30)) + 0.1 * rng.random((70, 30))
    return FactorModel(as_data(X), Frobenius()), rng.random((70, 4)), rng.random((30, 4))


def run(start, settings, watch=None):
    model, V, U = start
    assert wide.can(model, hals, settings)
    (found,) = wide.Wide(model, settings, watch).run(iter([(V, U, hals)]))
    return found


def test_one_start_is_that_of_the_loop(start):
    """The same steps: after few of them sums in another order are all that differs."""
    settings = Settings(12, 0.0)
    found, wanted = run(start, settings), alternate(*start, hals, settings)
    np.testing.assert_allclose(found.history, wanted.history, rtol=1e-9)
    np.testing.assert_allclose(found.Z @ found.U.T, wanted.Z @ wanted.U.T, rtol=1e-6)
    assert found.value == pytest.approx(wanted.value, rel=1e-9)
    assert found.n_iter == 12 and found.status == wanted.status


@pytest.mark.parametrize("k", [4, 12])
@pytest.mark.parametrize("order", "CF")
def test_rows_come_with_their_rows_of_x(order, k, rng, monkeypatch):
    """In pieces, by how X lies in memory and how long it is: the objective is that of the factors.

    It would not if, where an iteration is taken back, the next one had its products.
    """
    monkeypatch.setattr(dense, "ENTRIES", 1)
    X = rng.random((300, 4)) @ rng.random((4, 150)) + 0.1 * rng.random((300, 150))
    data = as_data(np.asarray(X, order=order))
    model, V, U = FactorModel(data, Frobenius()), rng.random((300, k)), rng.random((150, k))
    assert isinstance(data, DenseData) and data.at_hand() is not None
    taken_back, accept = [], wide.Wide.accept

    def counted(self, value, ahead, before):
        taken_back.extend(value > self.value)
        accept(self, value, ahead, before)

    def watch(n, solution):
        value = model.value(solution.Z, solution.U)
        assert solution.history[-1] == pytest.approx(value, rel=1e-9)
        return False

    monkeypatch.setattr(wide.Wide, "accept", counted)
    start, settings = (model, V, U), Settings(60, 0.0)
    found = run(start, settings, watch)
    assert any(taken_back)
    monkeypatch.setattr(DenseData, "at_hand", lambda self: None)
    apart = run(start, settings)
    np.testing.assert_allclose(found.history, apart.history, rtol=1e-9)


def test_who_looks_on_sees_every_iteration_and_changes_nothing(start):
    model, seen = start[0], []

    def watch(n, solution):
        assert n == solution.n_iter == len(solution.history)
        assert solution.history[-1] == pytest.approx(model.value(solution.Z, solution.U), rel=1e-9)
        seen.append((n, solution.history[-1]))
        return False

    settings = Settings(400, 1e-4)
    watched, alone = run(start, settings, watch), run(start, settings)
    assert watched.converged and [n for n, _ in seen] == list(range(1, watched.n_iter + 1))
    np.testing.assert_array_equal(watched.history, alone.history)
    np.testing.assert_array_equal(watched.U, alone.U)


def test_who_looks_on_can_end_it(start):
    found = run(start, Settings(50, 1e-4), lambda n, solution: n == 7)
    assert found.n_iter == len(found.history) == 7 and not found.converged
    assert found.status == "stopped by a callback after 7 iterations"
    assert found.history[-1] == pytest.approx(start[0].value(found.Z, found.U), rel=1e-9)


def test_what_the_guard_gave_up_goes_on_in_the_loop_before_the_same_eyes(start, monkeypatch):
    accept, seen = wide.Wide.accept, []

    def gives_up(self, *step):
        accept(self, *step)
        if len(self.history[0]) == 4:
            self.failures[:] = SAFE

    monkeypatch.setattr(wide.Wide, "accept", gives_up)
    found = run(
        start, Settings(20, 0.0), lambda n, solution: seen.append((n, len(solution.history)))
    )
    assert seen == [(n, n) for n in range(1, 21)]
    assert found.n_iter == len(found.history) == 20
    assert (np.diff(found.history) <= 0).all()


def test_starts_side_by_side_are_shifted_so_that_none_rises(rng):
    model = FactorModel(DenseData(rng.random((12, 8))), Frobenius())
    runs = wide.Wide(model, Settings(max_iter=9, tol=0.0))
    runs.begin([(*factors(rng, 12, 8, K), hals) for _ in range(40)], 0)
    for _ in range(3):
        runs.advance()
    for r in range(40):
        # added up, a perfect fit's value can be off by more than all of it
        runs.value[r] *= 3 + rng.random()
        runs.history[r].append(float(runs.value[r]))
        runs.sum_again(r)
        assert (np.diff([*runs.history[r], runs.value[r]]) <= 0).all()


@pytest.mark.parametrize("power", [50, -50])
@pytest.mark.filterwarnings("ignore:CDNMF was given no label")
def test_the_residual_does_not_depend_on_the_unit_of_x(power, rng):
    """Squares of float32 overflow or vanish; a penalty that has no labels keeps X as it is.

    Far from one products are those of float64, so that the rounding of float32 is all that differs.
    """
    X = (rng.random((40, 3)) @ rng.random((3, 12)) + 0.1 * rng.random((40, 12))).astype(np.float32)
    one, other = (
        partwise.CDNMF(3, class_reg=1.0, init="nndsvd", random_state=0, n_clusters=1, tol=1e-2).fit(
            Y
        )
        for Y in (X, X * np.float32(2.0**power))
    )
    assert one.n_iter_ == other.n_iter_ > 1
    wanted = one.components_ * 2.0**power  # part weights keep a mean square of one
    rounding = np.finfo(np.float32).eps * X.shape[0] * one.n_iter_  # sums over samples, each time
    np.testing.assert_allclose(other.components_, wanted, rtol=0, atol=rounding * wanted.max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_part_whose_squares_hardly_are_numbers_stays(dtype, rng):
    """One over a curvature below the smallest normal number is infinite: codes became NaN."""
    X = rng.random((7, 4)) * (rng.random((7, 4)) < 0.5)
    X[:, 2] = 8e-28 if dtype == np.float32 else 8e-161
    model = partwise.NMF(20, max_iter=5, random_state=0, tol=0).fit(X.astype(dtype))
    assert np.isfinite(model.objective_history_).all() and np.isfinite(model.embedding_).all()
