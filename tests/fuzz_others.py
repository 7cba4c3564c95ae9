"""Random runs of further functions that fit models; `tests/fuzz.py` runs them by number.

The functions are `consensus`, `choose_k`, `select`, `MiniBatchNMF` (at once and batch by batch),
`refit`, `match_parts`, `NTF`, `CF` and `LCF` with kernels, `non_negative_factorization`, and
`transform` of every estimator. Each is checked for its documented properties, without warnings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import fuzz
import partwise
import reference
from partwise import CF, GNMF, LCF, NMF, NTF, MiniBatchNMF

KL = fuzz.KL
#: Parts of allowed error messages, in addition to those of estimators.
REFUSED = (
    *fuzz.REFUSED,
    "recur more closely than",
    "the runs found fewer than",
    "two labels of one class",
    "needs n_components",
    "must be at least",
    "features",
    "minimum of",
    "must hold counts",
    "entry is hidden",
)


@dataclass
class Case:
    """One random run of the function `do`, with its arguments in `given` for reports."""

    number: int
    name: str
    X: Any
    do: Callable[[Case], None]
    given: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        n, p = self.X.shape
        kind = "csr" if sp.issparse(self.X) else "dense"
        said = ", ".join(f"{key}={value!r}" for key, value in self.given.items())
        return f"{self.name}({said}) on {n}x{p} {kind} {self.X.dtype}"


def draw(number: int) -> Case:
    """Return the random case that a number determines."""
    rng = np.random.default_rng([20262, number])
    name = str(rng.choice(list(KINDS), p=np.array(list(SHARES.values())) / sum(SHARES.values())))
    n, p = (int(rng.choice([2, 3, 5, 9, 20, 30])) for _ in range(2))
    X = fuzz.draw_matrix(rng, n, p)
    if rng.random() < 0.15:
        X = X * 10.0 ** rng.integers(-12, 13)
    if rng.random() < 0.25:
        X = X.astype(np.float32)
    if rng.random() < 0.3 and name not in ("NTF", "match_parts"):
        X = sp.csr_array(X)
    case = Case(number, name, X, KINDS[name])
    GIVEN[name](case, rng)
    return case


def run(number: int) -> str:
    case = draw(number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        for words in (*fuzz.EXPECTED_WARNINGS, "lowest error", "curve is flat"):
            warnings.filterwarnings("ignore", f".*{words}", UserWarning)
        warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
        try:
            case.do(case)
        except (ValueError, TypeError) as error:
            assert any(words in str(error) for words in REFUSED), f"was refused: {error}"
            return "refused"
    return "ok"


def dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=float)


def assert_factor(name: str, F: Any, shape: tuple[int, ...]) -> None:
    F = np.asarray(F)
    assert F.shape == shape, f"{name} has shape {F.shape}, not {shape}"
    assert np.isfinite(F).all(), f"{name} is not finite"
    assert F.min(initial=0) >= 0, f"{name} has {F.min()}"


def pick(rng: np.random.Generator, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


# -- consensus, choose_k and select -----------------------------------------------------------


def give_consensus(case: Case, rng: np.random.Generator) -> None:
    case.given = {
        "k": int(rng.integers(1, 4)),
        "n_runs": int(rng.integers(2, 6)),
        "density_threshold": pick(rng, 0.5, 2.0, 2.0),
        "unit_variance": bool(rng.random() < 0.5),
        "random_state": int(rng.integers(100)),
        "estimator": pick(rng, None, None, NMF(beta_loss=KL, tol=1e-2), GNMF(tol=1e-2)),
    }
    if rng.random() < 0.2:
        case.X = (
            type(case.X)(np.rint(dense(case.X) % 1000))
            if sp.issparse(case.X)
            else np.rint(case.X % 1000)
        )
        case.given["bootstrap"] = pick(rng, "poisson", "multinomial")


def do_consensus(case: Case) -> None:
    found = partwise.consensus(case.X, **case.given)
    (n, p), k, runs = case.X.shape, case.given["k"], case.given["n_runs"]
    assert_factor("parts", found.parts, (k, p))
    assert_factor("usages", found.usages, (n, k))
    assert_factor("spectra", found.spectra, (k, p))
    assert_factor("pooled", found.pooled, (runs * k, p))
    sums = found.spectra.sum(axis=1)
    assert (np.isclose(sums, 1, atol=1e-5) | (sums == 0)).all(), f"spectra sum to {sums}"
    kept = found.groups >= 0
    assert set(found.groups[kept]) == set(range(k)), "a part without a group"
    assert (found.density[kept] < case.given["density_threshold"]).all()
    if k > 1:
        assert np.isfinite(found.stability).all(), f"stability {found.stability}"
        assert abs(found.stability).max() <= 1 + 1e-9
    again = partwise.consensus(case.X, **case.given)
    assert np.array_equal(again.parts, found.parts), "the same seed gives other parts"


def give_choice(case: Case, rng: np.random.Generator) -> None:
    case.given = {
        "numbers": sorted({int(k) for k in rng.integers(1, 5, size=3)}),
        "n_splits": int(rng.integers(2, 4)),
        "n_runs": int(pick(rng, 0, 2, 3)),
        "random_state": int(rng.integers(100)),
    }
    if rng.random() < 0.3:
        case.given["estimator"] = pick(rng, NMF(beta_loss=KL, max_iter=20), NMF(max_iter=5))


def do_choice(case: Case) -> None:
    found = partwise.choose_k(case.X, **case.given)
    numbers = case.given["numbers"]
    assert found.k in numbers and found.k == min(found.good)
    assert np.isfinite(found.errors).all() and found.errors.min() >= 0, found.errors
    assert np.isfinite(found.excess).all(), found.excess
    assert found.errors.shape == (len(found.numbers), case.given["n_splits"])
    for signs in (found.stability, found.cophenetic):
        signs = signs[found.numbers > 1] if case.given["n_runs"] else signs[:0]
        assert np.isfinite(signs).all() and (abs(signs) <= 1 + 1e-9).all(), f"signs {signs}"
    assert "nan" not in found.table(), found.table()
    again = partwise.choose_k(case.X, **case.given)
    assert np.array_equal(again.errors, found.errors), "the same seed gives other errors"


def give_selection(case: Case, rng: np.random.Generator) -> None:
    n = case.X.shape[0]
    by = pick(rng, "entries", "labels", "links")
    case.given = {"n_splits": int(rng.integers(2, 4)), "random_state": int(rng.integers(100))}
    if by == "labels":
        case.given["y"] = np.where(rng.random(n) < 0.7, rng.integers(0, 2, size=n), -1).tolist()
    elif by == "links":
        case.given["must_link"] = [(0, n - 1)]
        case.given["cannot_link"] = [(0, 1)] if n > 2 else None
    case.given["estimator"] = pick(rng, NMF(2, max_iter=10), NMF(2, beta_loss=KL, max_iter=10))


def do_selection(case: Case) -> None:
    given = dict(case.given)
    model = given.pop("estimator")
    found = partwise.select(case.X, model, {"n_components": [1, 2]}, **given)
    assert found.best in found.grid and found.best in found.good
    assert np.isfinite(found.errors).all() and found.errors.min() >= 0
    assert np.isfinite(found.excess).all()
    assert "nan" not in found.table()


# -- estimators that `fuzz.py` does not draw --------------------------------------------------


def give_minibatch(case: Case, rng: np.random.Generator) -> None:
    n = case.X.shape[0]
    case.given = {
        "n_components": int(rng.integers(1, 5)),
        "init": pick(rng, None, "random", "nndsvda"),
        "beta_loss": pick(rng, "frobenius", "frobenius", KL, "itakura-saito", 1.5),
        "batch_size": int(rng.integers(1, n + 2)),
        "max_iter": int(pick(rng, 1, 5, 20)),
        "tol": float(pick(rng, 0.0, 1e-4)),
        "max_no_improvement": pick(rng, None, 1, 10),
        "forget_factor": float(pick(rng, 0.0, 0.7, 1.0)),
        "alpha_W": float(pick(rng, 0.0, 0.0, 0.01)),
        "l1_ratio": float(pick(rng, 0.0, 0.5)),
        "fresh_restarts": bool(rng.random() < 0.2),
        "fresh_restarts_max_iter": int(pick(rng, 1, 30)),
        "transform_max_iter": pick(rng, None, 1, 50),
        "shuffle": bool(rng.random() < 0.7),
        "hard_labels": bool(rng.random() < 0.2),
        "random_state": int(rng.integers(100)),
    }


def do_minibatch(case: Case) -> None:
    (n, p), k = case.X.shape, case.given["n_components"]
    y = np.arange(n) % 3 - 1 if case.given["hard_labels"] else None
    model = MiniBatchNMF(**case.given).fit(case.X, y)
    assert_factor("components_", model.components_, (k, p))
    assert_factor("embedding_", model.embedding_, (n, k))
    assert_factor("transform", model.transform(case.X), (n, k))
    assert np.isfinite(model.objective_) and np.isfinite(model.objective_history_).all()
    assert len(model.objective_history_) == model.n_iter_ <= case.given["max_iter"]
    X, V, U = dense(case.X), dense(model.embedding_), dense(model.components_).T
    if case.given["beta_loss"] == "frobenius" and not case.given["alpha_W"]:
        wanted = reference.objective_frobenius(X, V, U)
        noise = (1e-5 if case.X.dtype == np.float32 else 1e-9) * (wanted + 0.5 * (X * X).sum())
        assert abs(model.objective_ - wanted) <= noise, (model.objective_, wanted)
    if y is not None:
        same = V[y == 1]
        assert (same == same[:1]).all(), "a class with two codes"
    again = clone(model).fit(case.X, y)
    assert np.array_equal(again.components_, model.components_), "the same seed differs"
    in_parts = MiniBatchNMF(**case.given)
    size = max(1, (n + 1) // 2)
    for start in range(0, n, size):
        batch = slice(start, start + size)
        in_parts.partial_fit(case.X[batch], None if y is None else y[batch])
    assert_factor("components_ of partial_fit", in_parts.components_, (k, p))


def give_ntf(case: Case, rng: np.random.Generator) -> None:
    n, side = case.X.shape[0], int(pick(rng, 1, 2, 3, 4))
    case.X = fuzz.draw_matrix(rng, n, side * side).astype(case.X.dtype)
    case.given = {
        "n_components": int(rng.integers(1, 4)),
        "init": pick(rng, "random", "svd"),
        "max_iter": int(pick(rng, 1, 10, 30)),
        "random_state": int(rng.integers(100)),
    }


def do_ntf(case: Case) -> None:
    from importlib.util import find_spec

    if find_spec("tensorly") is None:
        return
    (n, p), k = case.X.shape, case.given["n_components"]
    model = NTF(**case.given).fit(case.X)
    assert_factor("components_", model.components_, (k, p))
    assert_factor("embedding_", model.embedding_, (n, k))
    assert_factor("transform", model.transform(case.X), (n, k))
    side = round(np.sqrt(p))
    for part in dense(model.components_).reshape(k, side, side):
        values = np.linalg.svd(part, compute_uv=False)
        assert values[1:].max(initial=0) <= 1e-5 * values[0], "a part is no outer product"


def give_kernel(case: Case, rng: np.random.Generator) -> None:
    case.given = {
        "n_components": int(rng.integers(1, 4)),
        "kernel": pick(rng, "rbf", "poly", "cosine", "precomputed", "linear"),
        "solver": pick(rng, "auto", "hals", "mu"),
        "init": pick(rng, "kmeans", "random"),
        "max_iter": int(pick(rng, 1, 10, 30)),
        "n_clusters": 1,
        "random_state": int(rng.integers(100)),
    }
    if case.given["kernel"] == "precomputed":
        X = dense(case.X)
        case.X = X @ X.T
    if case.name == "LCF":
        case.given["locality"] = float(pick(rng, 0.0, 0.1, 1.0))


def do_kernel(case: Case) -> None:
    n, k = case.X.shape[0], case.given["n_components"]
    model = {"CF": CF, "LCF": LCF}[case.name](**case.given).fit(case.X)
    assert_factor("embedding_", model.embedding_, (n, k))
    assert_factor("concept_weights_", model.concept_weights_, (n, k))
    # LCF with a given kernel needs k(x, x) of new samples.
    if (case.name, case.given["kernel"]) != ("LCF", "precomputed"):
        assert_factor("transform", model.transform(case.X), (n, k))
    history = np.asarray(model.objective_history_)
    assert np.isfinite(history).all() and np.isfinite(model.objective_)
    again = clone(model).fit(case.X)
    assert np.array_equal(again.embedding_, model.embedding_), "the same seed differs"


# -- functions --------------------------------------------------------------------------------


def give_refit(case: Case, rng: np.random.Generator) -> None:
    k, p = int(rng.integers(1, 5)), case.X.shape[1]
    parts = rng.gamma(0.5, size=(k, p)) * (rng.random((k, p)) < 0.7)
    if rng.random() < 0.2:
        parts[0] = 0.0
    case.given = {
        "parts": parts.round(3).tolist(),
        "threshold": float(pick(rng, 0.0, 0.05, 0.3, 0.9)),
        "beta_loss": pick(rng, "frobenius", "frobenius", KL),
    }


def do_refit(case: Case) -> None:
    parts, least = np.array(case.given["parts"]), case.given["threshold"]
    V = np.asarray(partwise.refit(case.X, **case.given), dtype=float)
    assert_factor("codes", V, (case.X.shape[0], len(parts)))
    used = V * parts.sum(axis=1)
    shares = used / np.maximum(used.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    left = shares[(shares > 0) & ((shares > 0).sum(axis=1) > 1)[:, None]]
    assert (left >= least * (1 - 1e-6)).all(), f"a share of {left.min(initial=1)} stayed"
    if least == 0 and case.given["beta_loss"] == "frobenius":
        for x, v in zip(dense(case.X), V):
            best = nnls(parts.T, x / (np.abs(x).max() or 1))[1] * np.abs(x).max()
            got = np.linalg.norm(x - v @ parts)
            assert got <= best + 1e-3 * np.linalg.norm(x), (got, best)


def give_match(case: Case, rng: np.random.Generator) -> None:
    k, m = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    known = rng.random((m, case.X.shape[1])) * (rng.random((m, case.X.shape[1])) < 0.6)
    case.X = np.vstack([known[rng.integers(m, size=k)] + 0.01 * rng.random((k, known.shape[1]))])
    if rng.random() < 0.3:
        case.X[0] = 0.0
    case.given = {"reference": known, "threshold": float(pick(rng, 0.0, 0.9, 1.0))}


def do_match(case: Case) -> None:
    known = case.given["reference"]
    table = partwise.match_parts(case.X, **case.given)
    cosine = table["cosine"].to_numpy()
    assert len(table) == len(case.X) and np.isfinite(cosine).all()
    assert ((cosine >= -1e-9) & (cosine <= 1 + 1e-9)).all()
    found = [name for name in table["match"] if name is not None and name == name]
    assert len(set(found)) == len(found) <= min(case.X.shape[0], len(known)), "two of one partner"


def give_function(case: Case, rng: np.random.Generator) -> None:
    case.given = {
        "n_components": int(rng.integers(1, 4)),
        "beta_loss": pick(rng, "frobenius", KL),
        "solver": pick(rng, "auto", "mu"),
        "init": pick(rng, "random", None),
        "max_iter": int(pick(rng, 1, 20)),
        "random_state": int(rng.integers(100)),
    }


def do_function(case: Case) -> None:
    (n, p), k = case.X.shape, case.given["n_components"]
    V, H, n_iter = partwise.non_negative_factorization(case.X, **case.given)
    assert_factor("W", V, (n, k))
    assert_factor("H", H, (k, p))
    assert 0 <= n_iter <= case.given["max_iter"]
    fixed = {**case.given, "H": H, "update_H": False}
    fixed.pop("init"), fixed.pop("n_components")
    assert_factor("W", partwise.non_negative_factorization(case.X, **fixed)[0], (n, k))


# -- new samples ------------------------------------------------------------------------------


def give_new_samples(case: Case, rng: np.random.Generator) -> None:
    """Draw a random fit of `fuzz.py` whose `transform` is then checked with new samples."""
    number = int(rng.integers(100_000)) + pick(rng, 0, fuzz.NEWER)
    drawn = fuzz.draw(number)
    while drawn.broken or drawn.kind in ("torch", "dask") or drawn.name == "SymNMF":
        number += 1
        drawn = fuzz.draw(number)
    case.name, case.given = "transform after fit", {"fit": number}
    case.X = drawn.X


def do_new_samples(case: Case) -> None:
    drawn = fuzz.draw(case.given["fit"])
    model = fuzz.partwise_class(drawn.name)(**drawn.params).fit(drawn.X, **drawn.given)
    X = drawn.X
    if model.__dict__.get("graph_reg") and "graph" in drawn.given:
        return  # new samples need edges to the old ones, which test_new_samples.py checks
    size, k = np.abs(X).max() or 1.0, model.n_components_
    new = np.vstack(
        [X[:1], np.zeros_like(X[:1]), 0.5 * (X[:1] + X[-1:]), np.full_like(X[:1], size)]
    )
    try:
        codes = model.transform(new)
    except ValueError as error:
        assert "beta_loss" in str(error) or "zeros" in str(error), error
        return
    assert_factor("codes", codes, (4, k))
    one = np.vstack([np.asarray(model.transform(new[i : i + 1])) for i in range(4)])
    check_company(drawn, model, new, np.asarray(codes, dtype=float), one)
    sparse = np.asarray(model.transform(sp.csr_array(new)))
    assert_factor("codes", sparse, (4, k))
    if 1e-18 <= size <= 1e18:  # `fuzz.draw_scale` draws float32 data in this range only
        assert_factor("codes", np.asarray(model.transform(new.astype(np.float32))), (4, k))


def check_company(drawn: Any, model: Any, new: np.ndarray, codes: Any, one: Any) -> None:
    """Check that a sample gets the same part weights alone as among other samples."""
    # For the Frobenius loss, part weights are solved exactly, except in two solvers that stop at a
    # tolerance, as all solvers do for other losses. They also stop after max_iter iterations, from
    # a start that is the mean over the samples.
    exact = drawn.params.get("beta_loss", "frobenius") == "frobenius"
    exact = exact and drawn.params.get("solver") not in ("mu", "nesterov")
    if _parts_are_similar(model) or not (exact or drawn.params["max_iter"] >= 15):
        return
    off = np.abs(one - codes).max() / max(float(codes.max()), np.finfo(float).tiny)
    if exact and off > 1e-3 and hasattr(model, "inverse_transform"):
        # Part weights that are solved exactly give a reconstruction within 10 tol ‖X‖ of the
        # solution.
        apart = np.asarray(model.inverse_transform(one)) - np.asarray(
            model.inverse_transform(codes)
        )
        off = min(
            off, 1e-3 * np.linalg.norm(apart) / (10 * model.tol * np.linalg.norm(new) or 1e-99)
        )
    if not exact and off > 0.2 and drawn.params["max_iter"] < 3000:
        # A few iterations from two starts may end far apart, but with more iterations they meet.
        model.set_params(max_iter=3000)
        codes = np.asarray(model.transform(new), dtype=float)
        one = np.vstack([np.asarray(model.transform(new[i : i + 1])) for i in range(len(new))])
        off = np.abs(one - codes).max() / max(float(codes.max()), np.finfo(float).tiny)
    assert off <= (1e-3 if exact else 0.2), f"alone a sample is coded by {off:.2g} off"


def _parts_are_similar(model: Any) -> bool:
    """Return whether parts are so similar, or so many, that part weights are not determined."""
    H = np.asarray(getattr(model, "components_", np.eye(1)), dtype=float)
    values = np.linalg.svd(H, compute_uv=False)
    return bool(H.shape[0] > H.shape[1] or values[-1] <= 1e-2 * values[0])


KINDS: dict[str, Callable[[Case], None]] = {
    "consensus": do_consensus,
    "choose_k": do_choice,
    "select": do_selection,
    "MiniBatchNMF": do_minibatch,
    "NTF": do_ntf,
    "CF": do_kernel,
    "LCF": do_kernel,
    "refit": do_refit,
    "match_parts": do_match,
    "non_negative_factorization": do_function,
    "transform": do_new_samples,
}
GIVEN: dict[str, Callable[[Case, np.random.Generator], None]] = {
    "consensus": give_consensus,
    "choose_k": give_choice,
    "select": give_selection,
    "MiniBatchNMF": give_minibatch,
    "NTF": give_ntf,
    "CF": give_kernel,
    "LCF": give_kernel,
    "refit": give_refit,
    "match_parts": give_match,
    "non_negative_factorization": give_function,
    "transform": give_new_samples,
}
SHARES = {
    "consensus": 0.15,
    "choose_k": 0.12,
    "select": 0.06,
    "MiniBatchNMF": 0.2,
    "NTF": 0.05,
    "CF": 0.08,
    "LCF": 0.05,
    "refit": 0.08,
    "match_parts": 0.03,
    "non_negative_factorization": 0.05,
    "transform": 0.13,
}
