"""Random fits that combine missing values, links, known parts, weights and smoothing.

The number determines the case. Every pair of `FEATURES` occurs with both losses, all solvers, dense
and sparse arrays, and both precisions. The checks: errors are in a list; factors are finite and
non-negative; no history rises beyond rounding; a converged fit has a KKT residual of at most
``tol``; known parts are unchanged bit for bit.

    python tests/fuzz_pairs.py 1234            one case, with its traceback
    python tests/fuzz_pairs.py 0 3000          many
"""

from __future__ import annotations

import sys
import traceback
import warnings
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import partwise

KL = "kullback-leibler"
FEATURES = (
    "gaps", "entry weights", "hard must-links", "soft must-links", "cannot-links", "fixed parts",
    "fixed entries", "smoothing", "graph", "class cost", "hard labels", "sparse codes",
    "sample weights", "sparse parts",
)  # fmt: skip
PAIRS = tuple(combinations(FEATURES, 2))
SOLVERS = {"frobenius": ("hals", "nesterov", "mu"), KL: ("newton", "mu")}
TOL = 1e-3
#: Parts of the errors for problems without a minimum or without a suitable solver.
REFUSED = ("has no minimum", "solver=", "cannot_link with a graph needs")


@dataclass
class Case:
    """One random fit that combines a pair of `FEATURES`."""

    number: int
    features: frozenset[str]
    params: dict[str, Any]
    X: Any
    y: np.ndarray | None = None
    given: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = f"{'csr' if sp.issparse(self.X) else 'dense'} {self.X.dtype} {self.X.shape}"
        settings = ", ".join(
            f"{k}={v!r}" for k, v in self.params.items() if not isinstance(v, np.ndarray)
        )
        return f"{' + '.join(sorted(self.features))} on {kind}: {settings}"


def draw(number: int) -> Case:
    """Return the random case that a number determines.

    It has a pair of features, which take turns, and sometimes a third feature.
    """
    rng = np.random.default_rng([26, number])
    features = set(PAIRS[number % len(PAIRS)])
    if rng.random() < 0.3:
        features.add(str(rng.choice(FEATURES)))
    loss = str(rng.choice(["frobenius", KL]))
    n, p, k = int(rng.integers(12, 70)), int(rng.integers(8, 40)), int(rng.integers(2, 6))
    X = rng.gamma(0.7, size=(n, k)) @ rng.gamma(0.7, size=(k, p)) + 0.1 * rng.random((n, p))
    if rng.random() < 0.3:
        X = rng.poisson(X).astype(float)
    X[rng.random(X.shape) < rng.choice([0.0, 0.5])] = 0
    X[:, X.sum(axis=0) == 0] = 1
    X *= 10.0 ** rng.choice([-2, 0, 2])
    params: dict[str, Any] = {
        "n_components": k, "beta_loss": loss, "solver": str(rng.choice(SOLVERS[loss])),
        "init": str(rng.choice(["random", "nndsvda"])), "max_iter": int(rng.choice([30, 300])),
        "tol": TOL, "random_state": int(rng.integers(100)), "n_clusters": 1,
    }  # fmt: skip
    if k > min(n, p):
        params["init"] = "random"
    given: dict[str, Any] = {}
    dtype = np.float32 if rng.random() < 0.4 else np.float64
    y = None
    if features & {"class cost", "hard labels"}:
        y = np.where(rng.random(n) < 0.3, rng.integers(0, 3, n), -1)
        y[:3], y[3:6] = (0, 1, 2), (0, 1, 2)
    free = np.arange(n) if y is None else np.flatnonzero(y == -1)
    scale = float(X.mean())
    weight = (
        scale * float(10.0 ** rng.uniform(-2, 1))
        if loss == "frobenius"
        else float(10.0 ** rng.uniform(-2, 1))
    )
    if "graph" in features:
        W = sp.random_array((n, n), density=4 / n, random_state=rng)
        given["graph"] = sp.csr_array(W + W.T)
        params["graph_reg"] = weight
    if "class cost" in features:
        params["class_reg"] = weight
    if "hard labels" in features:
        params["hard_labels"] = True
    if "sparse codes" in features:
        params.update(alpha_W=weight / p, l1_ratio=float(rng.choice([0.0, 0.5, 1.0])))
    if "sparse parts" in features:
        params.update(alpha_H=weight / n, l1_ratio=float(rng.choice([0.0, 0.5, 1.0])))
    if "smoothing" in features:
        params["smoothing"] = float(rng.choice([0.2, 0.5, 0.8]))
    if len(free) >= 8:
        picked = rng.choice(free, 8, replace=False).reshape(4, 2)
        if features & {"hard must-links", "soft must-links"}:
            given["must_link"] = picked[:2]
        if "soft must-links" in features:
            params["must_link_reg"] = weight
        if "cannot-links" in features:
            given["cannot_link"] = picked[2:]
            params["cannot_link_reg"] = weight
    if features & {"fixed parts", "fixed entries"}:
        fixed = rng.gamma(0.7, size=(int(rng.integers(1, k + 1)), p)) + 0.05
        if "fixed entries" in features:
            fixed[rng.random(fixed.shape) < 0.5] = np.nan
            fixed[:, 0] = 1.0
        params["fixed_components"] = fixed
    if "sample weights" in features:
        given["sample_weight"] = rng.gamma(2.0, size=n)
    if "entry weights" in features:
        given["entry_weight"] = rng.random((n, p)) + (rng.random((n, p)) < 0.7)
    if "gaps" in features:
        hidden = rng.random((n, p)) < rng.choice([0.05, 0.3, 0.7])
        hidden[:, hidden.all(axis=0)] = False
        hidden[hidden.all(axis=1)] = False
        X = np.where(hidden, np.nan, X)
        params["missing_values"] = np.nan
    X = X.astype(dtype)
    return Case(
        number, frozenset(features), params, sp.csr_array(X) if rng.random() < 0.4 else X, y, given
    )


def printed_rule(case: Case) -> bool:
    """Return whether part weights use the update (21) of GNMF.

    The fixed points of this update are not KKT points.
    """
    return "graph" in case.features and case.params["beta_loss"] == KL


def rounding(case: Case, history: np.ndarray) -> float:
    """Return the rounding error of the objective: no step may raise it by more.

    Multiplicative updates are reported as they are. Their objective is a sum of as many terms as X
    has entries, each with a rounding error of eps times the loss of a zero factorization.
    """
    if case.params["solver"] != "mu" or printed_rule(case):
        return 0.0
    X = case.X.toarray() if sp.issparse(case.X) else case.X
    X = np.nan_to_num(X.astype(float))
    W = (
        case.given.get("entry_weight", 1.0)
        * np.asarray(case.given.get("sample_weight", [1.0]))[:, None]
    )
    size = (
        W
        * (
            0.5 * X**2
            if case.params["beta_loss"] == "frobenius"
            else X * (1 + abs(np.log(np.maximum(X, 1e-30))))
        )
    ).sum()
    return 10 * float(np.finfo(case.X.dtype).eps) * (size + history[0])


def check(case: Case, model: Any) -> None:
    """Check that a fit has the properties that the docstring of this module lists."""
    V, H = model.embedding_, model.components_
    for name, Z in (("embedding_", V), ("components_", H)):
        assert np.isfinite(Z).all() and (Z >= 0).all(), f"{name} is not finite and >= 0"
    history = np.asarray(model.objective_history_)
    assert np.isfinite(history).all() and np.isfinite(model.objective_), "the objective"
    rises = np.diff(history).max(initial=0)
    most = rounding(case, history)
    assert rises <= most, f"the history rises by {rises:g} of {history[-1]:g}, rounding is {most:g}"
    said = f"{model.kkt_residual_:.1e}" in model.status_
    if model.status_.startswith("converged") and not said and not printed_rule(case):
        assert model.kkt_residual_ <= TOL, f"converged at a residual of {model.kkt_residual_:g}"
    fixed = case.params.get("fixed_components")
    if fixed is not None:
        there = ~np.isnan(fixed)
        same = H[: len(fixed)][there] == fixed.astype(H.dtype)[there]
        assert same.all(), "known parts moved"


def run(case: Case) -> Any:
    """Run a case and return the fit, or None if it is refused with an expected error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings(
            "ignore", message=".*(no label|two labelled|parts for|penalty|cannot leave).*"
        )
        try:
            model = partwise.ConstrainedNMF(**case.params).fit(case.X, case.y, **case.given)
        except ValueError as error:
            if any(words in str(error) for words in REFUSED):
                return None
            raise
    check(case, model)
    return model


def failure(number: int) -> str | None:
    """Return the command that repeats a failure, or None if the case passes."""
    case = draw(number)
    try:
        run(case)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return f"python tests/fuzz_pairs.py {number}  # {type(error).__name__}: {reason} | {case}"
    return None


def failures(first: int, count: int) -> list[str]:
    """Return the output lines of all failures in a range of numbers."""
    return [line for number in range(first, first + count) if (line := failure(number))]


if __name__ == "__main__":
    first, *count = (int(word) for word in sys.argv[1:])
    if not count:
        print(draw(first))
        try:
            fitted = run(draw(first))
            print("refused" if fitted is None else fitted.status_)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
    else:
        bad = 0
        for number in range(first, first + count[0]):
            line = failure(number)
            if line:
                bad += 1
                print(line, flush=True)
        print(f"{count[0]} fits, {bad} bad")
        sys.exit(bool(bad))
