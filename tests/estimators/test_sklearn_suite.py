"""Tests that run scikit-learn's own test_nmf.py with NMF and MiniBatchNMF of Partwise.

The file is read from the installed wheel and executed with our classes in its namespace; none of it
is copied. Tests of scikit-learn's private functions are left out.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import pytest
from sklearn.decomposition.tests import test_nmf as original

import partwise

#: Tests that are left out because they use private functions of scikit-learn.
PRIVATE = {
    "test_initialize_nn_output",
    "test_initialize_close",
    "test_initialize_variants",
    "test_beta_divergence",
    "test_special_sparse_dot",
    "test_nmf_underflow",
    # This test is about a parameter that scikit-learn removed in 1.7 and Partwise never had.
    "test_NMF_inverse_transform_Xt_deprecation",
}
#: Cases without a unique solution, which are left out because their result depends on the
#: processor.
NOT_UNIQUE = {
    # Seven parts fit the 50 x 7 data exactly (objective 1e-9), and many different factors do so.
    "test_nmf_float32_float64_consistency-0",
    "test_nmf_float32_float64_consistency-2",
}
#: Tests of behaviour that follows from the multiplicative updates of scikit-learn's MiniBatchNMF.
OTHER_STEPS = {
    # The test expects one batch to equal NMF(solver="mu"), but our MiniBatchNMF uses coordinate
    # descent and second-order steps.
    "test_nmf_minibatchnmf_equivalence",
    # The test passes one array H to two models, which modify it in place, so it compares an array
    # with itself. Our models copy H; test_minibatch.py tests the intended behaviour.
    "test_minibatch_nmf_partial_fit",
}


def _load() -> Any:
    """Load a fresh copy of scikit-learn's test module with our estimators under its names."""
    spec = importlib.util.find_spec(original.__name__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, theirs in list(vars(module).items()):
        if theirs is original.NMF:
            setattr(module, name, partwise.NMF)
        elif theirs is original.MiniBatchNMF:
            setattr(module, name, partwise.MiniBatchNMF)
        elif theirs is original.non_negative_factorization:
            setattr(module, name, partwise.non_negative_factorization)
    return module


MODULE = _load()


def _swap(value: Any) -> Any:
    ours = {original.NMF: partwise.NMF, original.MiniBatchNMF: partwise.MiniBatchNMF}
    return ours.get(value, value) if isinstance(value, type) else value


def _cases(function: Any) -> list[Any]:
    """Return the parametrizations of a test, with our classes instead of scikit-learn's."""
    cases: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args[0], mark.args[1]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        rows = [v if len(names) > 1 else [v] for v in values]
        rows = [[_swap(v) for v in row] for row in rows]
        cases = [{**case, **dict(zip(names, row, strict=True))} for case in cases for row in rows]
    return cases


def _collect() -> list[Any]:
    tests = []
    for name, function in inspect.getmembers(MODULE, inspect.isfunction):
        if not name.startswith("test_") or name in PRIVATE | OTHER_STEPS:
            continue
        for number, case in enumerate(_cases(function)):
            if f"{name}-{number}" not in NOT_UNIQUE:
                tests.append(pytest.param(function, case, id=f"{name}-{number}"))
    return tests


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:solver=.mu. cannot leave:UserWarning")
# Penalties on one factor alone raise this warning.
@pytest.mark.filterwarnings("ignore:The penalty is on the:UserWarning")
@pytest.mark.parametrize(("function", "case"), _collect())
def test_in_place_of_scikit_learn(function: Any, case: dict[str, Any]) -> None:
    function(**case)


def test_something_was_collected() -> None:
    names = {case.values[0].__name__ for case in _collect()}
    assert len(names) >= 20
    assert MODULE.NMF is partwise.NMF
    assert MODULE.MiniBatchNMF is partwise.MiniBatchNMF
