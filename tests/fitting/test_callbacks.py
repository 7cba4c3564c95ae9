"""Tests of scikit-learn's callbacks in NMF, and of interrupted or refused fits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from partwise.fitting.callbacks import AVAILABLE
from plain_fits import (
    FAST,
    FAST_IDS,
    SOLVER_IDS,
    SOLVERS,
    data_for,
    make,
    make_data,
    one_blas_thread,  # noqa: F401
)

needs_callbacks = pytest.mark.skipif(not AVAILABLE, reason="callbacks need scikit-learn 1.9")


class Watch:
    """Callback that records tasks, and stops the fit or raises after a number of iterations."""

    def __init__(self, stop_after=None, raise_after=None):
        self.stop_after, self.raise_after = stop_after, raise_after
        self.events, self.iterations, self.scores = [], 0, []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        self.events.append(("end", context.task_name))
        if context.task_name != "iteration":
            return False
        self.iterations += 1
        if self.iterations == self.raise_after:
            raise KeyboardInterrupt
        self.scores.append(fitted_estimator.score(X))
        return self.iterations == self.stop_after


@needs_callbacks
@pytest.mark.parametrize(("solver", "rule", "loss"), FAST + SOLVERS[2:3], ids=[*FAST_IDS, "mu"])
def test_a_callback_sees_every_iteration_and_a_usable_estimator(solver, rule, loss):
    X = make_data()
    watch = Watch()
    model = make(solver, rule, loss, max_iter=12).set_callbacks(watch).fit(X)
    assert watch.iterations == model.n_iter_ == 12
    plain = make(solver, rule, loss, max_iter=12).fit(X)
    np.testing.assert_array_equal(model.components_, plain.components_)
    # The part weights are optimal for the current parts, so the score rises as the parts improve.
    assert watch.scores[-1] > watch.scores[0]
    # During a fit the parts have another scale, so the multiplicative solver for the part weights
    # ends at slightly different values.
    rounding = 1e-3 if solver == "mu" else 1e-6
    assert watch.scores[-1] == pytest.approx(model.score(X), rel=rounding)


@needs_callbacks
@pytest.mark.parametrize("n_init", [1, 3])
def test_every_task_that_begins_ends(n_init):
    watch = Watch()
    make(max_iter=5, n_init=n_init).set_callbacks(watch).fit(make_data())
    assert watch.events[0] == "setup" and watch.events[-1] == "teardown"
    names = ["fit", "iteration"] + (["start"] if n_init > 1 else [])
    expected = {"fit": 1, "start": n_init, "iteration": 5 * n_init}
    for name in names:
        assert watch.events.count(("begin", name)) == expected[name], name
        assert watch.events.count(("end", name)) == expected[name], name


@needs_callbacks
@pytest.mark.parametrize(("solver", "rule", "loss"), SOLVERS, ids=SOLVER_IDS)
def test_a_callback_can_stop_the_fit(solver, rule, loss):
    X = data_for(loss)
    model = make(solver, rule, loss, max_iter=50, tol=1e-9).set_callbacks(Watch(stop_after=3))
    model.fit(X)
    assert model.n_iter_ == 3 and len(model.objective_history_) == 3
    assert model.status_ == "stopped by a callback after 3 iterations"
    assert model.transform(X).shape == (40, 4)


@needs_callbacks
def test_progress_bar(capsys):
    from sklearn.callback import ProgressBar

    model = make(max_iter=5).set_callbacks(ProgressBar())
    model.fit(make_data())
    assert model.n_iter_ == 5
    out = capsys.readouterr().out
    assert "NMF" in out and "100%" in out


@needs_callbacks
def test_scoring_monitor():
    """Check that ScoringMonitor logs the score of each iteration.

    It can do so only if the estimator passes X to it.
    """
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring={"objective": lambda model, X, y: model.score(X)})
    model = make(max_iter=5).set_callbacks(monitor)
    X = make_data()
    model.fit(X, np.zeros(len(X)))
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(rows) == 5
    assert rows[-1]["objective"] == pytest.approx(model.score(X), rel=1e-6)


@needs_callbacks
@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_interrupting_a_first_fit_leaves_nothing_fitted(method):
    model = make().set_callbacks(Watch(raise_after=3))
    with pytest.raises(KeyboardInterrupt):
        getattr(model, method)(make_data())
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        model.transform(make_data())
    fitted = [name for name in vars(model) if name.endswith("_") and not name.startswith("__")]
    assert fitted == []
    assert "_callback_fit_ctx" not in vars(model)


@needs_callbacks
def test_interrupting_a_refit_leaves_the_first_fit_whole():
    X = pd.DataFrame(make_data()).rename(columns=str)
    model = make().fit(X)
    before = {name: value for name, value in vars(model).items() if name.endswith("_")}
    expected = model.transform(X)
    model.set_callbacks(Watch(raise_after=3))
    with pytest.raises(KeyboardInterrupt):
        model.fit(make_data(seed=1, p=11))
    after = {name: value for name, value in vars(model).items() if name.endswith("_")}
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] is value or after[name] == value, name
    np.testing.assert_array_equal(model.transform(X), expected)


def test_a_refused_refit_leaves_the_first_fit_whole():
    X = make_data()
    model = make().fit(X)
    expected = model.transform(X)
    with pytest.raises(ValueError, match="Negative"):
        model.fit(-make_data(seed=1, p=11))
    np.testing.assert_array_equal(model.transform(X), expected)


def test_without_scikit_learns_callbacks_a_fit_runs_and_set_callbacks_says_why():
    """Check NMF with scikit-learn before 1.9, which has no callbacks.

    A missing module simulates the old version: `fit` works, and `set_callbacks` names the version
    that it needs.
    """
    code = """
import sys
import tracemalloc
import importlib.util
import sklearn
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "sklearn.callback" else found(name, *a)
import numpy as np
from partwise import NMF
from partwise.fitting import callbacks
assert not callbacks.AVAILABLE
model = NMF(2, max_iter=5, tol=0, random_state=0).set_callbacks()
assert model.fit(np.random.default_rng(0).random((9, 5))).n_iter_ == 5
try:
    model.set_callbacks(print)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs scikit-learn 1.9" in done.stdout, done.stderr
