"""Tests that public objects document parameters and results, and have an example."""

import inspect
import re
from pathlib import Path

import pytest

import partwise
from partwise.estimators.methods import ESTIMATORS

#: Checks of numpydoc that are not required: a "see also" section, a text after the summary, a
#: description of well-known parameters (``random_state``), a type if another object has it ("as in
#: `fit`"), a capital letter before a formula, and a check that mistakes other words for verbs.
STYLE = {"SA01", "ES01", "PR04", "PR07", "PR08", "RT02", "RT03", "SS02", "SS05"}
INDEX = (Path(__file__).parents[1] / "docs/api/index.rst").read_text()
#: The page of the estimators is written by docs/conf.py.
LISTED = [*ESTIMATORS, *re.findall(r"^   ([A-Za-z_.]+)$", INDEX, re.M)]


def public():
    """Return the documented names and the names of their methods, each function once."""
    found, methods = {}, {}
    for name in LISTED:
        thing = partwise
        for part in name.split("."):
            thing = getattr(thing, part)
        found[name] = thing
        for method, held in inspect.getmembers_static(thing) if inspect.isclass(thing) else ():
            held = getattr(held, "__func__", held)
            code = getattr(held, "fget", held)
            if method.startswith("_") or not inspect.isfunction(inspect.unwrap(code)):
                continue
            inherits = not code.__doc__ and inspect.getdoc(getattr(thing, method))
            if inspect.unwrap(code).__module__.startswith("partwise") and not inherits:
                methods.setdefault(code, f"{name}.{method}")
    return [*found, *methods.values()]


@pytest.mark.parametrize("name", public())
def test_numpydoc_finds_nothing(name):
    numpydoc = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed")
    left_out = STYLE if name in LISTED else STYLE | {"EX01"}
    errors = numpydoc.validate(f"partwise.{name}")["errors"]
    assert not [error for error in errors if error[0] not in left_out]


def test_the_documentation_lists_all_that_is_public():
    listed = {*LISTED, "__version__"}
    for name in partwise.__all__:
        thing = getattr(partwise, name)
        below = [f"{name}.{one}" for one in thing.__all__] if inspect.ismodule(thing) else [name]
        assert listed.issuperset(below), set(below) - listed
