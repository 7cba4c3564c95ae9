"""Run random fits and check properties that must always hold.

The number of a case determines an estimator with settings, a matrix of some kind, shape and scale,
labels, a graph and weights. The checks: an error is one clear sentence of Partwise; factors are
finite and non-negative; the history falls to the objective; the objective equals the naive formula;
the same seed gives the same numbers; a saved model is restored. A failure prints the line that
repeats it.

    python tests/fuzz.py 1234              one case, with its traceback
    python tests/fuzz.py 0 10000 -n 2      many, on two processes
    python tests/fuzz.py 0 10000 --every   of all kinds, a fifth PartsClassifier
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import partwise
import reference

KL = "kullback-leibler"
#: Degree of the loss in X.
BETA = {"frobenius": 2.0, KL: 1.0, "itakura-saito": 0.0, "l21": 1.0}
#: Kinds of cases have a million numbers each, in this order: estimators, estimators added later,
#: `PartsClassifier`, other functions that fit, and `fuzz_pairs`; then estimators again.
NEWER, CLASSIFIER, OTHERS, PAIRS = 1_000_000, 2_000_000, 3_000_000, 4_000_000
TURN, ROUND = 1_000_000, 5_000_000
#: First number of each kind of case, and its share with the option ``--every``.
EVERY = {0: 0.5, NEWER: 0.1, CLASSIFIER: 0.2, OTHERS: 0.1, PAIRS: 0.1}
#: Parts of the error messages of fits that lack something they need.
REFUSED = (
    "solver=",
    "does not handle beta_loss",
    "needs beta_loss",
    "When beta_loss <= 0 and X contains zeros",
    "can only be used when n_components <= min",
    "too large for",
    "too small for",
    "numpy or scipy array",
    "numpy array, scipy array or memmap",
    "at least",
    "number of clusters",
    "init='kmeans' needs X in memory",
    "The 'solver' parameter of",
    "X holds only zeros",
    "'ncw' needs a sample that is not zero",
)
#: Parts of the warnings that a fit may give.
EXPECTED_WARNINGS = ("known label", "labelled", "n_neighbors", "n_components", "class", "penalty")
EXPECTED_WARNINGS += ("cannot leave",)


@dataclass
class Case:
    """One random fit; `broken` describes an error that was made on purpose."""

    number: int
    name: str
    params: dict[str, Any]
    X: np.ndarray  # the data in float64
    kind: str
    given: dict[str, Any] = field(default_factory=dict)
    broken: str | None = None
    scale: float = 1.0

    def __str__(self) -> str:
        n, p = self.X.shape
        settings = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        given = ", ".join(sorted(self.given))
        flaw = f", broken: {self.broken}" if self.broken else ""
        scale = f" x {self.scale:g}" if self.scale != 1 else ""
        return f"{self.name}({settings}) on {n}x{p} {self.kind}{scale} with {given or 'X'}{flaw}"


# -- drawing random cases -------------------------------------------------------------------------


def module_of(number: int) -> Any:
    """Return the module that draws and runs the case `number`, or None if it is this file."""
    import fuzz_classifier
    import fuzz_others

    return {CLASSIFIER: fuzz_classifier, OTHERS: fuzz_others}.get(kind_of(number))


def draw(number: int) -> Any:
    """Return the random case that a number determines."""
    if (other := module_of(number)) is not None:
        return other.draw(number)
    rng = np.random.default_rng([20260, number])
    choice = LATER if kind_of(number) == NEWER else ESTIMATORS
    name = str(rng.choice(list(choice)))
    n, p = (int(rng.choice([1, 2, 3, 5, 9, 20, 35])) for _ in range(2))
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    X = draw_matrix(rng, n, p)
    params: dict[str, Any] = {
        "n_components": int(rng.integers(1, 6)),
        "max_iter": int(rng.choice([1, 3, 15, 40])),
        "tol": float(rng.choice([0.0, 1e-4, 1e-2])),
        "random_state": int(rng.integers(100)),
        "init": str(rng.choice(["random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "default"])),
    }
    case = Case(number, name, params, X, kind)
    choice[name](case, rng)
    if params.get("init") == "default":
        params["init"] = None
    if name != "NMF" and rng.random() < 0.9:
        params["n_clusters"] = 1  # k-means is tested elsewhere
    if rng.random() < 0.1 and "n_init" in partwise_class(name)().get_params():
        params["n_init"] = 2
    draw_scale(case, rng)
    if rng.random() < 0.12:
        break_it(case, rng)
    return case


def draw_matrix(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    kind = rng.choice(["noise", "parts", "counts", "gaps", "flat", "zero", "offset"], p=PARTS)
    X = rng.random((n, p))
    if kind == "parts":
        gaps = rng.random((3, p)) < 0.5
        X = rng.exponential(size=(n, 3)) @ (rng.exponential(size=(3, p)) * gaps)
    elif kind == "counts":
        X = rng.poisson(1.0, size=(n, p)).astype(float)
    elif kind == "gaps":
        X *= rng.random((n, p)) < 0.3
        X[rng.integers(n)] = 0.0
        X[:, rng.integers(p)] = 0.0
    elif kind == "flat":
        X[:] = 2.0
    elif kind == "zero":
        X[:] = 0.0
    elif kind == "offset":
        X += 1000.0
    return X


PARTS = [0.2, 0.25, 0.15, 0.2, 0.05, 0.03, 0.12]
KINDS = {
    "dense": 0.26, "float32": 0.16, "csr": 0.14, "csr32": 0.08, "csc": 0.05, "fortran": 0.05,
    "int": 0.05, "readonly": 0.05, "frame": 0.03, "list": 0.03, "memmap": 0.05, "torch": 0.04,
    "dask": 0.01,
}  # fmt: skip
EXACT32 = {"float32", "csr32"}


def draw_scale(case: Case, rng: np.random.Generator) -> None:
    """Rescale X in a tenth of the fits, so that squares overflow or underflow."""
    if rng.random() < 0.1 and case.kind not in ("int", "memmap", "dask", "torch"):
        top = 18 if case.kind in EXACT32 else 150
        case.scale = float(10.0 ** rng.integers(-top, top + 1))
        case.X = case.X * case.scale


def draw_labels(rng: np.random.Generator, n: int) -> Any:
    codes = rng.integers(0, 3, size=n)
    known = rng.random(n) < rng.choice([0.0, 0.3, 0.7, 1.0])
    kind = rng.choice(["int", "str", "float", "date", "bool"])
    if kind == "int":
        return np.where(known, codes, -1)
    if kind == "float":
        return np.where(known, codes + 0.5, np.nan)
    if kind == "date":
        days = np.datetime64("2020-01-01") + codes.astype("m8[D]")
        return np.where(known, days, np.datetime64("NaT", "D"))
    names = [True, False, True] if kind == "bool" else ["a", "b", "ü"]
    return np.array([names[c] if k else None for c, k in zip(codes, known)], dtype=object)


def draw_graph(rng: np.random.Generator, n: int) -> Any:
    W = np.triu(rng.random((n, n)) < rng.choice([0.0, 0.1, 0.4]), 1) * rng.random((n, n))
    return sp.csr_array(W + W.T)


def draw_weights(rng: np.random.Generator, n: int) -> np.ndarray:
    weights = rng.random(n) + 0.1
    kind = rng.choice(["plain", "zeros", "large", "small"])
    if kind == "zeros" and n > 1:
        weights[rng.integers(n)] = 0.0
    return weights * {"large": 1e12, "small": 1e-12}.get(str(kind), 1.0)


# -- parameters of the estimators -----------------------------------------------------------------


def solvers(case: Case, rng: np.random.Generator, losses: list[Any]) -> None:
    case.params["beta_loss"] = losses[int(rng.integers(len(losses)))]
    any_solver(case, rng)


def any_solver(case: Case, rng: np.random.Generator) -> None:
    names = ["auto", "auto", "hals", "mu", "nesterov", "newton"]
    case.params["solver"] = str(rng.choice(names))


def elastic(case: Case, rng: np.random.Generator) -> None:
    if rng.random() < 0.4:
        case.params["alpha_W"] = float(rng.choice([0.0, 1e-3, 0.1]))
        case.params["alpha_H"] = float(rng.choice([0.0, 1e-3, 0.1]))
        case.params["l1_ratio"] = float(rng.choice([0.0, 0.5, 1.0]))


def weights(case: Case, rng: np.random.Generator) -> None:
    if rng.random() < 0.3:
        case.given["sample_weight"] = draw_weights(rng, len(case.X))
    elif rng.random() < 0.2:
        case.params["sample_weighting"] = "ncw"


def labels(case: Case, rng: np.random.Generator, share: float = 0.9) -> None:
    if rng.random() < share:
        case.given["y"] = draw_labels(rng, len(case.X))


def graph(case: Case, rng: np.random.Generator) -> None:
    case.params["graph_reg"] = float(rng.choice([0.0, 0.1, 10.0, 1000.0]))
    case.given["graph"] = draw_graph(rng, len(case.X))


def nmf(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", "frobenius", KL, KL, "itakura-saito", 0.5, 1.5, 3.0])
    elastic(case, rng)
    weights(case, rng)


def gnmf(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", KL])
    graph(case, rng)
    weights(case, rng)


def semi(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", KL])
    graph(case, rng)
    labels(case, rng)


def cnmf(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", KL])
    labels(case, rng)


def cdnmf(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", KL])
    labels(case, rng)
    case.params["class_reg"] = float(rng.choice([0.0, 0.1, 10.0]))
    case.params["components_per_class"] = int(rng.integers(1, 3))


def nmfdc(case: Case, rng: np.random.Generator) -> None:
    any_solver(case, rng)
    labels(case, rng)
    case.params["smoothing"] = float(rng.choice([0.0, 0.4, 0.9]))


def nsnmf(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["frobenius", KL])
    case.params["smoothing"] = float(rng.choice([0.0, 0.4, 0.9]))


def constrained(case: Case, rng: np.random.Generator) -> None:
    cdnmf(case, rng)
    elastic(case, rng)
    weights(case, rng)
    case.params["hard_labels"] = bool(rng.random() < 0.4)
    case.params["smoothing"] = float(rng.choice([0.0, 0.0, 0.4]))
    if rng.random() < 0.6:
        graph(case, rng)
        if rng.random() < 0.4:
            case.params["label_weight"] = 0.7


def concepts(case: Case, rng: np.random.Generator) -> None:
    case.params["init"] = str(rng.choice(["kmeans", "random"]))
    case.params["solver"] = str(rng.choice(["auto", "hals", "mu"]))
    if rng.random() < 0.3:
        case.X = case.X - case.X.mean()
    if case.name == "LCF":
        case.params["locality"] = float(rng.choice([0.0, 0.1, 1.0]))


def sparse_nmf(case: Case, rng: np.random.Generator) -> None:
    for name in ("sparseness_W", "sparseness_H"):
        case.params[name] = [None, 0.2, 0.5, 0.9][int(rng.integers(4))]


ESTIMATORS = {
    "NMF": nmf,
    "GNMF": gnmf,
    "SemiGNMF": semi,
    "CNMF": cnmf,
    "CDNMF": cdnmf,
    "NMFDC": nmfdc,
    "NSNMF": nsnmf,
    "ConstrainedNMF": constrained,
    "CF": concepts,
    "LCF": concepts,
    "SparseNMF": sparse_nmf,
}


def draw_probabilities(rng: np.random.Generator, n: int) -> np.ndarray:
    P = rng.dirichlet(np.full(3, rng.choice([0.05, 0.5, 5.0])), size=n)
    P[rng.random(n) < rng.choice([0.0, 0.5, 1.0])] = np.nan
    return P


def perhaps_doubtful(case: Case, rng: np.random.Generator) -> None:
    labels(case, rng)
    if rng.random() < 0.6:
        case.given["y"] = draw_probabilities(rng, len(case.X))


def doubtful(case: Case, rng: np.random.Generator) -> None:
    cdnmf(case, rng)
    perhaps_doubtful(case, rng)


def lpcnmf(case: Case, rng: np.random.Generator) -> None:
    cnmf(case, rng)
    perhaps_doubtful(case, rng)
    case.params["propagate"] = bool(rng.random() < 0.6)
    if rng.random() < 0.7:
        case.given["graph"] = draw_graph(rng, len(case.X))


def robust(case: Case, rng: np.random.Generator) -> None:
    solvers(case, rng, ["l21"])
    elastic(case, rng)
    weights(case, rng)


def robust_constrained(case: Case, rng: np.random.Generator) -> None:
    constrained(case, rng)
    case.params["beta_loss"] = "l21"


def semi_nmf(case: Case, rng: np.random.Generator) -> None:
    del case.params["init"]
    case.params["solver"] = str(rng.choice(["auto", "hals", "mu", "nesterov"]))
    if rng.random() < 0.7:
        case.X = case.X - case.X.mean()
    if rng.random() < 0.5:
        graph(case, rng)
    if rng.random() < 0.5:
        labels(case, rng)
        case.params["hard_labels"] = bool(rng.random() < 0.5)
        case.params["class_reg"] = float(rng.choice([0.0, 0.1, 10.0]))


def sym_nmf(case: Case, rng: np.random.Generator) -> None:
    S = case.X @ case.X.T if rng.random() < 0.5 else draw_graph(rng, len(case.X)).toarray()
    case.X = 0.5 * (S + S.T)
    case.params["init"] = "random"


LATER = {
    "CDNMF": doubtful,
    "LpCNMF": lpcnmf,
    "NMF": robust,
    "ConstrainedNMF": robust_constrained,
    "SemiNMF": semi_nmf,
    "SymNMF": sym_nmf,
}


def break_it(case: Case, rng: np.random.Generator) -> None:
    """Add one error to the arguments of a fit, which must refuse it."""
    n = len(case.X)
    flaws = ["nan", "inf", "no components", "3-D", "empty"]
    if case.name not in ("CF", "LCF", "SemiNMF"):
        flaws.append("negative")
    if "y" in case.given:
        flaws.append("short y")
    if "sample_weight" in case.given:
        flaws += ["zero weights", "negative weights"]
    if "graph" in case.given:
        flaws.append("small graph")
    case.broken = flaw = str(rng.choice(flaws))
    if flaw in ("nan", "inf", "negative"):
        if case.kind == "int":
            case.kind = "dense"
        case.X = case.X.copy()
        case.X[rng.integers(n), rng.integers(case.X.shape[1])] = {
            "nan": np.nan, "inf": np.inf, "negative": -0.5 * case.scale,
        }[flaw]  # fmt: skip
    elif flaw == "no components":
        case.params["n_components"] = 0
    elif flaw in ("3-D", "empty"):
        case.kind = flaw
    elif flaw == "short y":
        case.given["y"] = np.append(case.given["y"], case.given["y"][:1])
    elif flaw == "zero weights":
        case.given["sample_weight"] = np.zeros(n)
    elif flaw == "negative weights":
        case.given["sample_weight"] = case.given["sample_weight"] - 1e13
    else:
        case.given["graph"] = sp.csr_array((n + 1, n + 1))


def as_kind(X: np.ndarray, kind: str, folder: Path) -> Any:
    """Return X as the given array type."""
    simple = {
        "dense": lambda: X.copy(),
        "float32": lambda: X.astype(np.float32),
        "csr": lambda: sp.csr_array(X),
        "csr32": lambda: sp.csr_array(X.astype(np.float32)),
        "csc": lambda: sp.csc_matrix(X),
        "fortran": lambda: np.asfortranarray(X),
        "int": lambda: np.rint(X * (3 if X.max(initial=0) < 100 else 1)).astype(int),
        "list": lambda: X.tolist(),
        "3-D": lambda: X[:, :, None],
        "empty": lambda: X[:0],
    }
    if kind in simple:
        return simple[kind]()
    if kind == "readonly":
        fixed = X.copy()
        fixed.flags.writeable = False
        return fixed
    if kind == "memmap":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    if kind == "frame":
        import pandas

        return pandas.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    if kind == "torch":
        import torch

        return torch.from_numpy(X.copy())
    import dask.array

    return dask.array.from_array(X, chunks=(max(1, len(X) // 2), X.shape[1]))


def available(kind: str) -> str:
    """Return the array type, or a plain one if its package is not installed."""
    needs = {"torch": "torch", "dask": "dask", "frame": "pandas"}
    if kind in needs:
        from importlib.util import find_spec

        return kind if find_spec(needs[kind]) else "dense"
    return kind


def partwise_class(name: str) -> Any:
    return getattr(partwise, name)


# -- checking the results -------------------------------------------------------------------------


def run(number: int) -> str:
    """Run one case; return "ok" or "refused", or raise the error."""
    if (other := module_of(number)) is not None:
        return other.run(number)
    case = draw(number)
    case.kind = available(case.kind)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        folder = Path(name)
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for words in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", f".*{words}", UserWarning)
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        # For small float32 matrices, NumPy's products set this flag at random, about once in a
        # thousand fits, because of unused vector lanes. The checks below find values that are not
        # finite.
        warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
        X = as_kind(case.X, case.kind, folder)
        model = partwise_class(case.name)(**case.params)
        try:
            model.fit(X, **case.given)
        except Exception as error:
            check_refusal(case, error)
            return "refused"
        assert case.broken is None, f"was fitted in spite of: {case.broken}"
        if case.kind == "int":
            case.X = np.asarray(X, dtype=float)
        elif case.kind in EXACT32:
            case.X = case.X.astype(np.float32).astype(float)
        check_factors(case, model)
        check_history(case, model)
        check_objective(case, model)
        check_seed(case, model, X)
        check_saved(case, model, X, folder)
    return "ok"


def check_refusal(case: Case, error: Exception) -> None:
    """Check that an error message is one sentence, and that the error was expected."""
    text = str(error)
    last = traceback.extract_tb(error.__traceback__)[-1].filename.replace(os.sep, "/")
    assert isinstance(error, (ValueError, TypeError)), f"{type(error).__name__}: {text}"
    assert "/partwise/" in last or "/sklearn/" in last, f"{text} (from {last})"
    assert len(text) > 20, f"says too little: {text!r}"
    if case.broken is None:
        assert any(words in text for words in REFUSED), f"was refused: {text}"


def numpy_of(a: Any) -> np.ndarray:
    if hasattr(a, "compute"):
        a = a.compute()
    return np.asarray(a)


def factors(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return V and U in float64, or V and C for concept factorization."""
    name = "concept_weights_" if hasattr(model, "concept_weights_") else "components_"
    second = numpy_of(getattr(model, name))
    return numpy_of(model.embedding_).astype(float), (
        second if name == "concept_weights_" else second.T
    ).astype(float)


def check_factors(case: Case, model: Any) -> None:
    V, U = factors(model)
    k = model.n_components_
    concepts = hasattr(model, "concept_weights_")
    rows = len(case.X) if concepts else case.X.shape[1]
    assert V.shape == (len(case.X), k) and U.shape == (rows, k), (V.shape, U.shape)
    for name, factor in (("embedding_", V), ("components_", U)):
        assert np.isfinite(factor).all(), f"{name} is not finite"
        free = case.name == "SemiNMF" and name == "components_"
        assert free or factor.min() >= 0, f"{name} has {factor.min()}"
    if case.kind in EXACT32 and not concepts:
        assert model.components_.dtype == np.float32, model.components_.dtype


def check_history(case: Case, model: Any) -> None:
    history = np.asarray(model.objective_history_, dtype=float)
    assert len(history) == model.n_iter_ <= case.params["max_iter"], (len(history), model.n_iter_)
    assert np.isfinite(history).all() and np.isfinite(model.objective_), history[-3:]
    noise = noise_of(case)
    if not kl_graph(case):
        rises = np.diff(history) - noise - relative(case) * np.abs(history[:-1])
        assert (rises <= 0).all(), f"the objective rises: {history[int(rises.argmax()) :][:2]}"
    # An objective below the smallest number of its dtype may be rounded to zero.
    bound = history[-1] * (1 + relative(case)) + noise + float(np.finfo(np.float32).tiny)
    assert model.objective_ <= bound, f"ends at {model.objective_}, history at {history[-1]}"
    if case.params["tol"] == 0:
        assert "converged" not in model.status_ or model.kkt_residual_ <= 1e-12, model.status_


def relative(case: Case) -> float:
    if kl_graph(case):
        return 1e-4  # logarithms depend on the floor of the factors
    if case.kind in EXACT32:
        return 1e-5
    # "mu" sets entries to zero that converge to zero.
    return 1e-8 if case.params.get("solver") == "mu" else 1e-9


def kl_graph(case: Case) -> bool:
    """Return whether the fit uses the update (21) of GNMF, which is not a descent step."""
    return bool(case.params.get("graph_reg")) and case.params.get("beta_loss") == KL


def noise_of(case: Case) -> float:
    """Return the rounding error of the objective, which is a difference of large sums."""
    beta = BETA.get(case.params.get("beta_loss", "frobenius"), case.params.get("beta_loss"))
    gamma = gamma_of(case)
    size = float((gamma[:, None] * np.abs(case.X)).sum())
    if beta == 2:
        size = 0.5 * float((gamma[:, None] * case.X**2).sum())
    elif beta != 1:
        size = float((np.abs(case.X[case.X > 0]) ** beta).sum()) + case.X.size
    if case.kind not in EXACT32:
        return size * 1e-13
    # The Frobenius objective is computed from the factors in float64, and the KL objective from
    # sums. Concept factorization uses X only through X Xᵀ, whose products have the rounding of
    # float32.
    if case.name in ("CF", "LCF"):
        return size * 5e-6
    # For X = 0 the objective consists of squares of part weights, which float32 resolves in these
    # steps.
    steps = float(np.finfo(np.float32).smallest_subnormal)
    return size * (1e-9 if beta == 2 else 2e-7) + steps


def gamma_of(case: Case) -> np.ndarray:
    gamma = np.asarray(case.given.get("sample_weight", np.ones(len(case.X))), dtype=float)
    if case.params.get("sample_weighting") == "ncw":
        gamma = gamma * reference.ncw_weights(case.X)
    return gamma


def check_objective(case: Case, model: Any) -> None:
    """Check that the stored objective equals the naive formula at the stored factors."""
    V, U = factors(model)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = naive(case, model, V, U)
    if not np.isfinite(expected) or under_the_floor(case, V, U):
        return  # the engine keeps predictions above a floor, but KL of a prediction of 0 is inf
    slack = relative(case) * 10 * abs(expected) + 10 * noise_of(case) + last_bits(case, V)
    if hasattr(model, "concept_weights_"):  # large concept weights may cancel in a small concept
        sums = np.abs(V) @ (np.abs(U).T @ np.abs(case.X))
        slack += 2 * np.finfo(float).eps * float((sums**2).sum())
    elif U.min(initial=0) < 0:  # basis vectors of opposite sign may cancel in a small product
        slack += 2 * np.finfo(float).eps * float(((np.abs(V) @ np.abs(U).T) ** 2).sum())
    off = abs(model.objective_ - expected)
    assert off <= slack, f"objective_ {model.objective_:.10g}, recomputed {expected:.10g}"


def last_bits(case: Case, V: np.ndarray) -> float:
    """Return the change of the graph term when the last bit of each part weight changes."""
    if not case.params.get("graph_reg"):
        return 0.0
    a, b = V[:, None, :], V[None, :, :]
    bits = np.finfo(float).eps * (a + b)
    pairs = (2 * np.abs(a - b) * bits + bits**2).sum(axis=2)
    return float(0.25 * case.params["graph_reg"] * (case.given["graph"].toarray() * pairs).sum())


def under_the_floor(case: Case, V: np.ndarray, U: np.ndarray) -> bool:
    """Return whether KL would take the logarithm of a prediction below the lower bound of fits."""
    if case.params.get("beta_loss") != KL or V.shape[1] != U.shape[1]:
        return False
    low = case.X.mean() * (1e-12 if case.kind in EXACT32 else 1e-30)
    S = reference.smoothing_matrix(V.shape[1], case.params.get("smoothing") or 0.0)
    return bool(((V @ S @ U.T)[case.X > 0] < low).any())


def naive(case: Case, model: Any, V: np.ndarray, U: np.ndarray) -> float:
    X, params = case.X, case.params
    if hasattr(model, "concept_weights_"):
        return reference.objective_concepts(X, V, U, lam=params.get("locality", 0.0))
    n, p = X.shape
    k = V.shape[1]
    terms: dict[str, Any] = {"gamma": gamma_of(case)}
    if params.get("alpha_W") is not None:
        on_V, on_U, l1 = params["alpha_W"] * p, params["alpha_H"] * n, params["l1_ratio"]
        terms |= {"l1_V": on_V * l1, "l2_V": on_V * (1 - l1)}
        terms |= {"l1_U": on_U * l1, "l2_U": on_U * (1 - l1)}
    beta = BETA.get(params.get("beta_loss", "frobenius"), params.get("beta_loss"))
    if beta not in (1.0, 2.0):
        return reference.objective_beta(X, V, U, beta, **terms)
    given = case.given.get("y")
    P = given if np.ndim(given) == 2 else None
    y = codes_of(given if P is None else None, n)
    if params.get("smoothing"):
        terms["S"] = reference.smoothing_matrix(k, params["smoothing"])
    if params.get("graph_reg"):
        W = case.given["graph"].toarray()
        weight = params.get("label_weight", 1.0 if case.name == "SemiGNMF" else None)
        if weight is not None and (y >= 0).any():
            W = reference.label_graph(W, y, 0.0 if params.get("hard_labels") else weight)
        terms |= {"W": W, "lam": params["graph_reg"]}
    if params.get("class_reg") and (y >= 0).any():
        per_class = params.get("components_per_class", 1)
        D = reference.class_cost(y, k, per_class)
        D[y >= -(-k // per_class)] = 0.0
        terms |= {"D": D, "class_reg": params["class_reg"]}
    if params.get("class_reg") and P is not None:
        occur = np.nansum(P, axis=0) > 0
        D = reference.class_cost_in_doubt(P[:, occur], k, params["components_per_class"])
        terms |= {"D": D, "class_reg": params["class_reg"]}
    robust = params.get("beta_loss") == "l21"
    if beta == 1 and not robust:
        return reference.objective_kl(X, V, U, **terms)
    # The graph term is summed over differences: if it dominates, neighbours agree to the last
    # digits.
    W, lam = terms.pop("W", np.zeros((n, n))), terms.pop("lam", 0.0)
    apart = ((V[:, None, :] - V[None, :, :]) ** 2).sum(axis=2)
    joined = 0.25 * lam * float((W * apart).sum())
    if robust:  # the l21 loss replaces the squared one, which is zero for X = Y
        Y = V @ terms.get("S", np.eye(k)) @ U.T
        lengths = np.sqrt(((X - Y) ** 2).sum(axis=1) + model.l21_epsilon_**2)
        joined, X = joined + float(lengths @ terms["gamma"]), Y
    return reference.objective_frobenius(X, V, U, **terms) + joined


def codes_of(y: Any, n: int) -> np.ndarray:
    """Return labels as codes 0, 1, ... in their sorted order, and -1 if unknown."""
    if y is None:
        return np.full(n, -1)
    values = list(np.asarray(y).tolist())
    known = [v for v in values if v is not None and v == v and v != -1]
    order = {v: i for i, v in enumerate(sorted(set(known)))}
    return np.array([order.get(v, -1) if v == v else -1 for v in values])


def check_seed(case: Case, model: Any, X: Any) -> None:
    again = clone(model).fit(X, **case.given)
    for a, b in zip(factors(model), factors(again)):
        assert np.array_equal(a, b), f"another fit of the same seed differs by {abs(a - b).max()}"


def check_saved(case: Case, model: Any, X: Any, folder: Path) -> None:
    again = partwise.load(model.save(folder / "m.partwise"))
    for a, b in zip(factors(model), factors(again)):
        assert np.array_equal(a, b), "the saved model has other factors"
    beside = {"graph": case.given["graph"]} if case.params.get("graph_reg") else {}
    codes, same = (numpy_of(m.transform(X, **beside)) for m in (model, again))
    assert np.array_equal(codes, same), "it transforms otherwise"
    assert codes.shape == (len(case.X), model.n_components_)
    assert np.isfinite(codes).all() and codes.min() >= 0, "transform is not finite and >= 0"
    if hasattr(model, "classes_"):
        assert again.classes_.tolist() == model.classes_.tolist(), "its classes differ"


# -- many cases -----------------------------------------------------------------------------------


def kind_of(number: int) -> int:
    """Return the first number of the kind to which a case belongs."""
    return number % ROUND // TURN * TURN


def number_of(kind: int, index: int) -> int:
    """Return the number of the case with this index in a kind of cases."""
    return kind + index // TURN * ROUND + index % TURN


def failure(number: int) -> str | None:
    """Return the command that repeats a failing case and its error, or None if it passes."""
    if kind_of(number) == PAIRS:
        import fuzz_pairs

        return fuzz_pairs.failure(number // ROUND * TURN + number % TURN)
    try:
        run(number)
    except Exception as error:
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        text = " ".join(str(error).split())[:300]
        return f"python tests/fuzz.py {number}  # {draw(number)}: {kind}{text}"
    return None


def failures(first: int, count: int) -> list[str]:
    """Return the output lines of all failing cases in a range of numbers."""
    return failures_among(range(first, first + count))


def failures_among(numbers: Iterable[int]) -> list[str]:
    """Return the output lines of those cases that fail, with one BLAS thread per process."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        return [line for number in numbers if (line := failure(number))]


def blocks(first: int, count: int, every: bool) -> list[list[int]]:
    """Return blocks of twenty numbers; with ``every`` the kinds of cases alternate."""
    counts = {kind: round(share * count) for kind, share in EVERY.items()} if every else {0: count}
    cut = []
    for kind, n in counts.items():
        found = [number_of(kind, i) if every else i for i in range(first, first + n)]
        cut += [(at / n, found[at : at + 20]) for at in range(0, n, 20)]
    return [block for _, block in sorted(cut)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first", type=int, help="the number of a case")
    parser.add_argument("count", type=int, nargs="?", help="how many from there on")
    parser.add_argument("-n", type=int, default=1, help="processes")
    parser.add_argument("--every", action="store_true", help="so many over all kinds of cases")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after these")
    given = parser.parse_args()
    if given.count is None:
        print(draw(given.first))
        print(run(given.first))
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    todo = blocks(given.first, given.count, given.every)
    os.environ["NUMBA_NUM_THREADS"] = "1"
    end = time.time() + given.seconds
    bad, ran = 0, dict.fromkeys(EVERY, 0)
    with ProcessPoolExecutor(given.n, get_context("spawn")) as pool:
        jobs = [pool.submit(failures_in_time, end, block) for block in todo]
        for block, job in zip(todo, jobs):
            lines = job.result()
            if lines is not None:
                ran[kind_of(block[0])] += len(block)
                bad += len(lines)
                print("\n".join(lines), end="\n" if lines else "", flush=True)
    told = ", ".join(f"{n} from {base}" for base, n in ran.items() if n)
    absent = [kind for kind in KINDS if available(kind) != kind]
    plain = f"; {', '.join(absent)} as plain arrays for want of a package" if absent else ""
    print(f"{sum(ran.values())} fits ({told}), {bad} failures{plain}")
    sys.exit(bad > 0)


def failures_in_time(end: float, block: list[int]) -> list[str] | None:
    """Return the result of `failures_among`, or None if the time is over."""
    return None if time.time() > end else failures_among(block)


if __name__ == "__main__":
    main()
