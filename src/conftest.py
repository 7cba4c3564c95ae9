"""Skip examples in docstrings that need a package that is not installed."""

import doctest
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip the example if it failed with an ImportError."""
    try:
        return (yield)
    except Exception as error:
        first = next(iter(getattr(error, "failures", [error])), error)
        if isinstance(first, doctest.UnexpectedException):
            cause = first.exc_info[1]
            if isinstance(cause, ImportError):
                pytest.skip(str(cause))
        raise
