"""Fixtures for data and commands, shared by all tests.

A test of a data set that is absent is skipped with a reason.
"""

import gc
import os
import re
import sys
from unittest.mock import MagicMock

# numpy and numba read these variables when they are imported.
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)) > 1:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        # With two threads, tests detect effects of threads, although each worker has only one core.
        os.environ.setdefault(name, "2")

import pytest

# Fixtures import what they need, because the process that distributes the tests waits until this
# file is imported.


def _without_hypothesis():
    """Replace hypothesis by a stand-in if it is missing, so that only its tests are skipped."""

    def given(*_, **__):
        @pytest.mark.skip(reason="hypothesis is not installed")
        def test():
            pass

        return lambda _: test

    def same(*_, **__):
        return lambda test: test

    stand_in = MagicMock(given=given, settings=same, example=same)
    for name in ("", ".strategies", ".extra", ".extra.numpy"):
        sys.modules[f"hypothesis{name}"] = stand_in


try:
    from hypothesis import settings
except ImportError:
    _without_hypothesis()
else:
    # `make test` uses the same hypothesis examples in every run. `make test-long` draws new ones,
    # and prints the line that repeats a failure.
    settings.register_profile("same", derandomize=True)
    settings.register_profile("new", derandomize=False, print_blob=True)
    settings.load_profile("same")


#: Packages for reading files and drawing. The library does not need them, so a test file that
#: imports a missing one is skipped.
COMMAND = {"jinja2", "matplotlib", "pandas", "PIL", "plotly", "rich", "typer"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Return the number of cores that this process may use, for the option ``-n auto``."""
    import joblib

    return joblib.cpu_count()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Exclude imported modules and collected tests from garbage collection, which saves time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a test file whose imports are not installed, and report the missing package."""
    report = yield
    absent = re.search(r"No module named '(\w+)", str(report.longrepr)) if report.failed else None
    if absent and absent[1] in COMMAND:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {absent[1]} is not installed")
    return report


@pytest.fixture(scope="session")
def dataset():
    """Return a function that loads a data set by name, or skips the test if it is absent."""
    from partwise.io import datasets

    loaded = {}

    def get(name):
        if name not in loaded:
            try:
                loaded[name] = datasets.load(name)
            except FileNotFoundError:
                pytest.skip(f"data set {name!r} not found; PARTWISE_DATA names its folder")
        return loaded[name]

    return get


@pytest.fixture(scope="session")
def digits(dataset):
    return dataset("digits")


@pytest.fixture(scope="session")
def orl(dataset):
    return dataset("orl")


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(0)


@pytest.fixture
def few_trees(monkeypatch):
    """Let `PartsClassifier` use a tenth of its trees, which take most of the time."""
    from partwise.classify import ensemble

    monkeypatch.setattr(ensemble, "TREES", 10)
    monkeypatch.setattr(ensemble, "FEWER", 4)


@pytest.fixture
def use_threads(monkeypatch):
    """Return a function that simulates a number of cores, where threads start at no cost."""
    from partwise.backends import threads

    def use(count):
        monkeypatch.setattr(threads, "allowed", lambda: count)
        monkeypatch.setattr(threads, "everybody", lambda: count)
        monkeypatch.setattr(threads, "costs", lambda most, _: threads.Costs({most: 0.0}, 1.0))
        monkeypatch.setattr(threads, "LITTLE", 0.0)

    return use


@pytest.fixture(params=[1, 3], ids=["serial", "threads"])
def threads_or_none(request, use_threads):
    """Run the same test with one thread and with three."""
    use_threads(request.param)


@pytest.fixture
def command(capsys):
    """Return a function that runs the command and returns exit code, output and error output."""
    from partwise.apps import cli

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return run
