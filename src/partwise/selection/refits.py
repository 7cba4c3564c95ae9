"""Fits of copies of an estimator with all of its settings and fit arguments.

Every function that fits a copy of an estimator uses `Refits`. No setting of the estimator (missing
values, weights, links, fixed parts, penalty terms) can then be forgotten.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from partwise.backends import as_data, back_end, in_memory_or_dask
from partwise.backends.arrays import AnyArray, Array, is_missing, numpy_dtype, to_numpy
from partwise.backends.masks import as_missing
from partwise.estimators._base import Factorizer
from partwise.estimators.nmf import NMF
from partwise.estimators.semi_nmf import SemiNMF
from partwise.fitting import every_start
from partwise.fitting.checking import check_matrix
from partwise.fitting.description import Description
from partwise.fitting.fixed_parts import Known
from partwise.fitting.knowledge_checks import check_weights
from partwise.fitting.new_samples import code
from partwise.fitting.stating import terms_on_parts
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Divergence, Quadratic, kkt_residual
from partwise.solvers.steps import bounded, hals, newton, solve_quadratic

#: Stopping rule of fits in which one factor is fixed: KKT residual and maximum number of
#: iterations.
TOL, MOST = 1e-4, 200


@dataclass(frozen=True, eq=False)
class Refits:
    """An unfitted estimator, with the arguments for each fit of its copies.

    Parameters
    ----------
    estimator : estimator
        The estimator to copy for each fit.
    caller : str
        Name of the public function that fits, for error messages.
    given : dict
        Arguments of ``estimator.fit`` other than X. Arguments that are None are removed.
    """

    estimator: Any
    caller: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", {k: v for k, v in self.given.items() if v is not None})
        accepted = inspect.signature(self.estimator.fit).parameters
        for name in self.given:
            if name not in accepted:
                can = ", ".join(other for other in accepted if other not in ("X", "self"))
                raise TypeError(
                    f"{self.caller} cannot pass {name!r} to {self._kind}.fit, which takes {can}."
                )

    @property
    def _kind(self) -> str:
        """Class name of the estimator."""
        return type(self.estimator).__name__

    @property
    def missing_values(self) -> float | None:
        """Value that marks missing entries for the estimator, or None."""
        found: float | None = getattr(self.estimator, "missing_values", None)
        return found

    @property
    def n_known(self) -> int:
        """Number of fixed and seeded parts."""
        known = (getattr(self.estimator, f"{kind}_components", None) for kind in ("fixed", "seed"))
        return sum(0 if H is None else len(H) for H in known)

    @classmethod
    def of_fitted(cls, model: Any, caller: str, given: Mapping[str, Any]) -> Refits:
        """Return the `Refits` of a fitted model; raise an error without its fit arguments."""
        refits = cls(model, caller, given)
        for name in vars(model).get("_fit_arguments", ()):
            if name not in refits.given:
                raise ValueError(
                    f"the model was fitted with {name}; pass the same {name} to {caller}."
                )
        return refits

    def refuse_arguments(self, *names: str, because: str) -> None:
        """Raise an error if the fit arguments include one of these names."""
        for name in names:
            if name in self.given:
                raise ValueError(f"{self.caller} does not support {name}: {because}.")

    def without_start(self) -> Refits:
        """Return self; raise an error for custom initial factors.

        Each of many fits needs its own initial factors.
        """
        if getattr(self.estimator, "init", None) == "custom":
            raise ValueError(
                f"{self.caller} does not support init='custom', because each fit needs its own "
                "initial values. Use init=None or 'random'; pass initial parts as seed_components."
            )
        self.refuse_arguments("W", "H", "C", because="each fit needs a start of its own")
        return self

    def results(self, results: Any) -> Any:
        """Return where a search stores its results: ``results`` or the checkpoint folder."""
        folder = getattr(self.estimator, "checkpoint", None)
        if results is not None or folder is None:
            return results
        Path(folder).mkdir(parents=True, exist_ok=True)
        return folder

    def samples(self, X: Any, *, tensors: bool = False) -> tuple[Any, Refits]:
        """Return the checked X with NaN at missing entries, and the `Refits` for that X.

        Dask arrays stay on their cluster, and tensors on their device if ``tensors`` is true. Other
        arrays are copied to this process. With ``missing_values=0``, a sparse X stays as it is.
        """
        missing = self.missing_values
        served = back_end(as_missing(X, missing)) if missing is not None else back_end(X)
        if tensors and served is not None and not hasattr(X, "to_delayed"):
            return (served.check(X, self.caller) if missing is None else X), self
        X = in_memory_or_dask(X, missing)
        if missing is None or np.isnan(missing):
            return X, self
        sparse = sp.issparse(X) or sp.issparse(getattr(X, "_meta", None))
        if sparse and missing == 0:
            return X, self
        if hasattr(X, "to_delayed"):
            X = X.map_blocks(_with_nan, missing, dtype=X.dtype, meta=X._meta)
        else:
            X = _with_nan(X, missing)
        return X, self.with_settings(missing_values=np.nan)

    def with_settings(self, **settings: Any) -> Refits:
        """Return a copy of self with other parameters of the estimator."""
        return replace(self, estimator=clone(self.estimator).set_params(**settings))

    def with_given(self, **given: Any) -> Refits:
        """Return a copy of self with other arguments of the fit."""
        return replace(self, given={**self.given, **given})

    def copy(self, **settings: Any) -> Any:
        """Return an unfitted copy of the estimator with new parameters and no checkpoint."""
        model = clone(self.estimator)
        if "checkpoint" in model.get_params(deep=False):
            settings = {"checkpoint": None, **settings}
        return model.set_params(**settings)

    def fit(self, X: Any, **settings: Any) -> Any:
        """Return a copy of the estimator with these parameters, fitted to X."""
        return self.copy(**settings).fit(X, **self.given)

    def runs(
        self, X: Any, k: int, n_runs: int, rng: np.random.RandomState, *,
        rows: Sequence[int] | slice | AnyArray | None = slice(None),
    ) -> list[tuple[AnyArray, AnyArray | None]]:  # fmt: skip
        """Return parts, and part weights of some samples, from several random fits.

        The fits run together if the estimator allows it. With ``rows=None``, the part weights are
        None, because on a device or cluster they are large and stay there.
        """
        model = self.copy(n_components=k)
        if "init" in model.get_params() and model.init is None:
            model.set_params(init="random")
        ends = self._ends(model, X, n_runs, rng)
        return [(to_numpy(H), rows_of(V, rows)) for V, H in ends]

    def _ends(
        self, model: Any, X: Any, n_runs: int, rng: np.random.RandomState
    ) -> Iterator[tuple[Any, Any]]:
        """Yield the part weights and parts of each random fit."""
        spec = model._describe() if isinstance(model, Factorizer) else None
        if spec is not None and not (spec.own_fit or spec.printed or spec.n_init > 1):
            model.set_params(n_init=n_runs, random_state=rng.randint(2**31 - 1))
            yield from every_start(model, X, **self.given)
            return
        for seed in rng.randint(2**31 - 1, size=n_runs):
            one = clone(model).set_params(random_state=int(seed)).fit(X, **self.given)
            yield one.embedding_, one.components_

    # -- solving for one factor while the other is fixed ------------------------------------

    def codes(self, X: Any, H: AnyArray) -> Any:
        """Return the part weights V that minimise the objective for fixed parts H.

        The objective is the loss over observed and weighted entries, with the smoothing and
        penalties that apply to new samples. Labels, links and graphs are not used. V is the same
        kind of array as X.
        """
        entry_weight = self.given.get("entry_weight")
        model = self._plain(X, H)
        model.components_ = np.ascontiguousarray(H, dtype=numpy_dtype(X.dtype))
        model.n_features_in_ = H.shape[1]
        return code(model, X, entry_weight=entry_weight).codes

    def parts(self, X: Any, V: AnyArray) -> AnyArray:
        """Return the parts H (k, p) that minimise the objective for fixed part weights V.

        The objective is the loss over observed and weighted entries and samples, with the smoothing
        and the penalties on H. Fixed entries of H stay fixed.
        """
        model = self._plain(X, V.T)
        spec: Description = model._describe()
        weight = self.given.get("entry_weight")
        data = as_data(check_matrix(model, spec, X, weight, reset=True)[0])
        weights, _ = check_weights(spec, data, self.given.get("sample_weight"), plain=True)
        k, p = V.shape[1], data.shape[1]
        fixed = None
        if spec.fixed_components is not None:
            fixed = Known(spec.fixed_components, None, (k, p), data.dtype).held
        problem = FactorModel(
            data, spec.loss, weights=weights, held=fixed, smoothing=spec.smoothing,
            terms_U=terms_on_parts(spec, data, k),
        )  # fmt: skip
        F = data.rows(V.astype(data.dtype))
        mean = float(data.row_sums().sum()) / p if spec.beta != 2 else 0.0
        start = np.full((p, k), mean / max(float(V.sum()), 1e-300), data.dtype)
        start = np.where(np.isnan(fixed), start, fixed) if fixed is not None else start
        U = problem.feasible(F, data.small(start))[1]
        return np.ascontiguousarray(to_numpy(_solve_parts(problem, F, U)).T)

    def _plain(self, X: Any, H: AnyArray) -> Any:
        """Return an estimator with the same loss and penalties, to compute one factor."""
        settings: dict[str, Any] = {"n_components": len(H)}
        spec = self.estimator._describe()
        if not spec.own_fit:
            model = self.copy(**settings, tol=min(spec.tol, TOL), max_iter=max(spec.max_iter, MOST))
            return model.set_params(solver="auto")
        lowest = float(X.min()) if isinstance(X, np.ndarray) or sp.issparse(X) else 0.0
        if spec.signed and min(H.min(initial=0), lowest) < 0:
            return SemiNMF(**settings)
        return NMF(**settings, beta_loss=spec.beta_loss, missing_values=spec.missing_values)


def _with_nan(X: Any, missing: float) -> Any:
    """Return X with NaN in place of the value that marks missing entries."""
    if not sp.issparse(X):
        return np.where(is_missing(X, missing), X.dtype.type(np.nan), X)
    X = X.copy()
    X.data[is_missing(X.data, missing)] = np.nan
    return X


def rows_of(V: Any, rows: Any = slice(None)) -> Any:
    """Return some rows of V as a numpy array, or None if ``rows`` is None."""
    if rows is None:
        return None
    V = V[rows]
    return np.asarray(V.compute() if hasattr(V, "to_delayed") else to_numpy(V))


def dense(block: Any) -> AnyArray:
    """Return a block of rows as a dense numpy array of float64."""
    return np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)


def _solve_parts(problem: FactorModel, F: Array, U: Array) -> Any:
    """Return the parts that minimise the objective for fixed part weights F.

    ``U`` contains the initial parts.
    """
    sub = problem.subproblem("U", F, U)
    exact = all(term.exact for term in sub.terms)
    if isinstance(sub, Quadratic) and exact and not sub.free:
        if problem.R.lack is not None:
            return _solve_by_feature(problem, sub, F, U)
        if not sub.local and sub.held is None:
            scale = float(problem.data.row_sq_norms().sum())
            return solve_quadratic(sub, U, TOL, scale)
    step = newton if isinstance(sub, Divergence) else hals
    for n in range(MOST):
        if n and n % 5 == 0 and kkt_residual(sub, U) <= 0.1 * TOL:
            break
        U = step(sub, U)
        if sub.local:
            sub = problem.subproblem("U", F, U)
        elif sub.free:
            break
    return U


def _solve_by_feature(problem: FactorModel, sub: Quadratic, F: Array, U: Array) -> AnyArray:
    """Return the least-squares parts if each feature has its own missing entries.

    For feature j, u minimises ½ uᵀ G u - cᵀ u with G = Σ_i w_ij v_i v_iᵀ and c = Σ_i w_ij x_ij v_i.
    """
    k, lack = F.shape[1], problem.R.lack
    assert lack is not None
    pairs = [to_numpy(lack._seen_sums("U", F * F[:, a : a + 1])) for a in range(k)]
    G = np.stack(pairs, axis=1).astype(np.float64)
    linear = Quadratic(problem.R.tdot(F), sub.G, terms=sub.terms)
    C, ridge, _ = bounded(linear, sub.terms, U)
    C, ridge = (to_numpy(a).astype(np.float64) for a in (C, ridge))
    H: AnyArray = to_numpy(U).astype(np.float64)
    free = np.ones_like(H) if sub.held is None else 1 - to_numpy(sub.held)
    curvature = np.einsum("jaa->ja", G) + ridge
    step = np.divide(free, curvature, out=np.zeros_like(H), where=curvature > 0)
    for _ in range(2000):
        old = H.copy()
        for a in range(k):
            slope = np.einsum("jb,jb->j", G[:, a], H) + ridge[:, a % ridge.shape[1]] * H[:, a]
            H[:, a] = np.maximum(H[:, a] + step[:, a] * (C[:, a] - slope), 0)
        if np.abs(H - old).max() <= 1e-9 * np.abs(H).max():
            break
    return H
