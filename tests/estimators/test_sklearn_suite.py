"""Run scikit-learn's own test_nmf.py with NMF and MiniBatchNMF of Partwise.

The file is read from the installed wheel and executed with our classes in its namespace; none of
it is copied. Tests of scikit-learn's private functions are left out.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import pytest
from sklearn.decomposition.tests import test_nmf as original

import partwise

#: Tests that use only private functions, or the result of one.
PRIVATE = {
    "test_initialize_nn_output",
    "test_initialize_close",
    "test_initialize_variants",
    "test_beta_divergence",
    "test_special_sparse_dot",
    "test_nmf_underflow",
    # a parameter that scikit-learn removed in 1.7 and Partwise never had
    "test_NMF_inverse_transform_Xt_deprecation",
}
#: Cases without a unique solution are left out, because their result depends on the processor.
NOT_UNIQUE = {
    # 50 x 7 by 7 parts is fitted exactly (objective 1e-9 in both precisions), by many factors
    "test_nmf_float32_float64_consistency-0",
    "test_nmf_float32_float64_consistency-2",
}
#: Tests of behaviour that belongs to the multiplicative updates of scikit-learn's MiniBatchNMF.
OTHER_STEPS = {
    # one batch is the same as NMF(solver="mu"): ours are coordinate and second-order steps
    "test_nmf_minibatchnmf_equivalence",
    # both models are given one H, which their fits write into: it compares an array with itself
    # (their batches differ); ours copy it, and test_minibatch.py has what it means to say
    "test_minibatch_nmf_partial_fit",
}


def _load() -> Any:
    """Load a fresh copy of the module with our estimator under the names it uses."""
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
    """Return the parametrisations of a test with our classes instead of scikit-learn's."""
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
@pytest.mark.filterwarnings("ignore:The penalty is on the:UserWarning")  # of one factor alone
@pytest.mark.parametrize(("function", "case"), _collect())
def test_in_place_of_scikit_learn(function: Any, case: dict[str, Any]) -> None:
    function(**case)


def test_something_was_collected() -> None:
    names = {case.values[0].__name__ for case in _collect()}
    assert len(names) >= 20
    assert MODULE.NMF is partwise.NMF
    assert MODULE.MiniBatchNMF is partwise.MiniBatchNMF
