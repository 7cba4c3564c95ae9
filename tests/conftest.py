"""Fixtures that bring data. Sets that are not on this machine skip their tests, with a reason."""

import numpy as np
import pytest
from hypothesis import settings

from partwise.io import datasets

# the same examples in every run of `make test`; `make test-long` takes others each time, and
# prints the line that replays one that fails
settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("same")


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
