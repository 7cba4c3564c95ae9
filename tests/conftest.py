"""Fixtures that bring data. Sets that are not on this machine skip their tests, with a reason."""

import numpy as np
import pytest

from partwise.backends import threads
from partwise.io import datasets


@pytest.fixture(scope="session")
def dataset():
    """``dataset("orl")`` loads a set, or skips the test where it is absent."""
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
    return np.random.default_rng(0)


@pytest.fixture
def use_threads(monkeypatch):
    """``use_threads(3)``: as on so many cores, and as if starting a thread cost nothing."""

    def use(count):
        monkeypatch.setattr(threads, "allowed", lambda: count)
        monkeypatch.setattr(threads, "costs", lambda: threads.Costs(1e-30, 1.0))
        monkeypatch.setattr(threads, "LITTLE", 0.0)

    return use
