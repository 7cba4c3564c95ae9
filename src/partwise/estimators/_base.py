"""What all estimators share: validation, starts, restarts, the loop, fitted attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from partwise.engine.arrays import cast, contiguous, namespace, to_numpy
from partwise.engine.data import as_data
from partwise.engine.losses import NAMES, beta_of
from partwise.engine.numeric import Array, blas_threads
from partwise.engine.problem import FactorModel
from partwise.engine.solvers import init as starts
from partwise.engine.solvers.batch import solve_many
from partwise.engine.solvers.checkpoint import Checkpoint, identify
from partwise.engine.solvers.codes import solve_codes, start_codes
from partwise.engine.solvers.loop import Settings, Solution, alternate, residual_at
from partwise.engine.solvers.steps import STEPS, Step, check_step, make_step, mu_lin, shuffled
from partwise.engine.terms import Linear, Ridge, Term
from partwise.estimators import _gaps, _inputs, _validate
from partwise.estimators._callbacks import CallbackSupportMixin
from partwise.estimators._known import Known
from partwise.estimators._progress import Progress, all_or_nothing, full_device

LOSS = [StrOptions(set(NAMES)), Interval(Real, None, None, closed="neither")]


class Factorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator
):
    """Base of the estimators X ≈ V S Uᵀ. A subclass says which model it builds, and no more.

    It overrides `_model` (the model of the training data) and, if it must, `_solver_name`.
    """

    _parameter_constraints: dict[str, Any] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None, StrOptions({"auto"})],
        "init": [StrOptions(set(starts.INITS)), None],
        "solver": [StrOptions({"auto", "cd", *STEPS})],
        "beta_loss": LOSS,
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "device": [str, None],
        "checkpoint": [str, PathLike, None],
        "missing_values": [Real, None],
        "fixed_components": ["array-like", None],
        "seed_components": ["array-like", None],
    }

    device: str | None = None  # the estimators that take it set it in their constructor
    checkpoint: Any = None
    missing_values: float | None = None
    fixed_components: Any = None
    seed_components: Any = None
    #: Told where each start ended: the model and its solution.
    _on_solution: Callable[[FactorModel, Solution], None] | None = None

    # -- hooks ------------------------------------------------------------------------------

    def _model(self, data: Any, k: int, weights: Array | None, extra: Any) -> FactorModel:
        """The model of the training data; ``extra`` is what `_prepare` made of y and graph."""
        raise NotImplementedError

    def _prepare(self, X: Any, y: Any, **given: Any) -> Any:
        """Labels, graph and the like, checked; None for models without them."""
        return None

    def _code_model(self, data: Any, X: Any, **given: Any) -> FactorModel:
        """The model that codes new samples X with the basis fixed: no labels."""
        return self._model(data, self.components_.shape[0], None, None)

    def _settings(self, solver: str, model: FactorModel) -> Settings:
        plain = solver == "mu"
        return Settings(
            max_iter=self.max_iter,
            tol=self.tol,
            extrapolate=not plain,
            guard=not plain,
            keep=_kept_share(solver, model),
            warmup=3 if solver == "newton" else 0,
            rough=make_step("newton", rough=True) if solver == "newton" else None,
        )

    def _step(self, solver: str, rng: np.random.RandomState) -> Step:
        if solver == "mu" and getattr(self, "mu_rule", "lee-seung") == "lin":
            return mu_lin
        if solver == "hals" and getattr(self, "shuffle", False):
            return shuffled(rng)
        return make_step(solver)

    # -- names ------------------------------------------------------------------------------

    def _solver_name(self) -> str:
        """The step that ``solver`` means for this loss; refuses what cannot be done."""
        beta = beta_of(self.beta_loss)
        if self.solver == "cd" and beta != 2:
            raise ValueError(
                f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta}"
            )
        if self.solver == "auto":
            return "hals" if beta == 2 else "newton" if beta == 1 else "mu"
        name = "hals" if self.solver == "cd" else self.solver
        check_step(name, self.beta_loss, beta)
        return name

    def _solver_for(self, data: Any) -> str:
        """The step for this back end: tensors have no second-order sweeps."""
        name = self._solver_name()
        if name != "newton" or data.newton_sides:
            return name
        if self.solver == "auto":
            return "mu"
        raise ValueError(
            "solver='newton' needs X as a numpy or scipy array, on disk or on a cluster; for a "
            "tensor use solver='mu'."
        )

    def _init_name(self, n: int, p: int, k: int) -> str:
        if self.init is None:
            return "nndsvda" if k <= min(n, p) else "random"
        if self.init.startswith("nndsvd") and k > min(n, p):
            raise ValueError(
                f"init = '{self.init}' can only be used when "
                "n_components <= min(n_samples, n_features)"
            )
        return self.init

    def _n_parts(self, X: Any, H: Any, extra: Any) -> int:
        if self.n_components == "auto" and self.init == "custom" and H is not None:
            return np.shape(H)[0]
        if self.n_components in (None, "auto"):
            return X.shape[1]
        return int(self.n_components)

    # -- fitting ----------------------------------------------------------------------------

    def _check_X(self, X: Any, *, reset: bool) -> Any:
        return self._check_entries(X, None, reset=reset)

    def _check_entries(self, X: Any, entry_weight: Any, *, reset: bool) -> Any:
        """X checked, with weights of its entries; data with gaps where not all count alike."""
        beta = beta_of(self.beta_loss)
        special = _inputs.check_special(self, X, reset=reset, beta=beta)
        if special is not None:
            _gaps.refuse(X, entry_weight)
            return special
        with _gaps.naming_the_setting(self):
            X = validate_data(
                self,
                X,
                accept_sparse=("csr", "csc"),
                dtype=[np.float64, np.float32],
                ensure_all_finite=True if self.missing_values is None else "allow-nan",
                reset=reset,
            )
        X, places, seen = _gaps.without_gaps(X, self.missing_values)
        _validate.check_finite(X)
        _validate.check_non_negative(X, type(self).__name__)
        if beta <= 0 and (X.min() == 0):
            raise ValueError(_inputs.ZEROS)
        wrap = as_data if self.device is None else partial(_inputs.move, device=self.device)
        if places is None and entry_weight is None:
            return X if self.device is None else wrap(X)
        if beta not in (1.0, 2.0):
            raise ValueError(
                f"missing_values and entry_weight need beta_loss 'frobenius' or "
                f"'kullback-leibler', got {self.beta_loss!r}."
            )
        found = _gaps.with_gaps(X, places, seen, entry_weight, wrap)
        return wrap(found) if found is X and self.device is not None else found

    def _starts(
        self, data: Any, k: int, W: Any, H: Any, weights: Array | None
    ) -> list[Callable[[], tuple[Array, Array, np.random.RandomState]]]:
        """One function for each restart; restart r can be replayed alone from its own seed."""
        n, p = data.shape
        name = self._init_name(n, p, k)
        rng = check_random_state(self.random_state)
        if name == "custom":
            if W is None or H is None:
                raise ValueError("init='custom' needs both W and H.")
            W, H, name = _inputs.plain(W), _inputs.plain(H), type(self).__name__
            V = _validate.check_start(W, (n, k), data.dtype, "W", name)
            U = _validate.check_start(H, (k, p), data.dtype, "H", name)
            return [lambda: (data.rows(V.copy()), data.small(np.ascontiguousarray(U.T)), rng)]
        if W is not None or H is not None:
            warnings.warn(
                "When init!='custom', provided W or H are ignored. Set init='custom' to use them.",
                RuntimeWarning,
                stacklevel=4,
            )
        if self.n_init == 1:
            return [lambda: (*starts.start(data, k, name, rng, weights), rng)]

        def one(seed: int, name: str) -> tuple[Array, Array, np.random.RandomState]:
            child = np.random.RandomState(seed)
            return *starts.start(data, k, name, child, weights), child

        seeds = rng.randint(np.iinfo(np.int32).max, size=self.n_init)
        # a deterministic start is worth trying once; the others are random
        names = [name] + [name if name == "kmeans" else "random"] * (self.n_init - 1)
        return [lambda s=s, m=m: one(s, m) for s, m in zip(seeds, names, strict=True)]  # type: ignore[misc]

    def _fit(self, X: Any, y: Any, W: Any, H: Any, sample_weight: Any, **given: Any) -> Array:
        """Everything `fit` does; an error or an interrupt leaves the estimator as it was."""
        with all_or_nothing(self):
            return self._fit_whole(X, y, W, H, sample_weight, **given)

    def _fit_whole(self, X: Any, y: Any, W: Any, H: Any, sample_weight: Any, **given: Any) -> Array:
        self._validate_params()
        self._solver_name()  # refuses before any work is done
        weight = _inputs.plain(given.pop("entry_weight", None))
        if weight is None:
            X = self._check_X(X, reset=True)
        else:
            X = self._check_entries(X, weight, reset=True)
        extra = self._prepare(X, _inputs.plain(y), **given)
        k = self._n_parts(X, H, extra)
        data, W, H, factor = self._tame(X, W, H)
        weights = _validate.check_weights(_inputs.plain(sample_weight), data)
        if getattr(self, "sample_weighting", None) == "ncw":
            ncw = _validate.ncw_weights(data)
            weights = ncw if weights is None else weights * ncw
        if weights is not None and (weights == 1).all():
            weights = None  # the plain model, to the last bit
        if weights is not None and beta_of(self.beta_loss) not in (1.0, 2.0):
            raise ValueError(
                f"sample_weight needs beta_loss 'frobenius' or 'kullback-leibler', got "
                f"{self.beta_loss!r}."
            )
        weight_scale = 1.0
        if weights is not None and not self._penalized():
            weights, weight_scale = _validate.tame_weights(weights)
        solver = self._solver_for(data)
        model = self._model(data, k, weights, extra)
        model.factor, model.weight_scale = factor, weight_scale
        model.known = self._known(data, k)
        if model.known is not None:
            model.known.hold(model)
        if model.loss.beta == 2:
            has_values = model.constant == 0 and bool(data.row_sums().any())
            _validate.check_scale(model.constant, has_values, type(self).__name__)
        _set_sweeps(model, data, k)
        makes = self._starts(data, k, W, H, weights)
        progress = Progress(self, X, y, len(makes))
        with blas_threads(data.density * data.shape[0] * data.shape[1] * k):
            given = {
                "sample_weight": sample_weight,
                "W": W,
                "H": H,
                "entry_weight": weight,
                **given,
            }
            keeper = self._keeper(model, extra, given, len(makes))
            solution = self._solve(model, makes, solver, progress, keeper)
            V = self._store(model, solution, solver, k, extra)
        progress.finish()
        return V

    def _known(self, data: Any, k: int) -> Known | None:
        """The parts that are known before the fit."""
        fixed, seeds = self.fixed_components, self.seed_components
        if fixed is None and seeds is None:
            return None
        if fixed is not None and getattr(self, "scale", "unit") == "paper":
            raise ValueError(
                "fixed_components needs scale='unit': scale='paper' normalises every part."
            )
        return Known(fixed, seeds, (k, data.shape[1]), data.dtype)

    def _tame(self, X: Any, W: Any = None, H: Any = None) -> tuple[Any, Any, Any, float]:
        """X over a power of four where its values are extreme, the start over its root.

        Only for models without penalties, whose weights would have to change with it.
        """
        factor = _validate.extreme_factor(X)
        if factor == 1:
            return as_data(X), W, H, 1.0
        beta = beta_of(self.beta_loss)
        _validate.check_factor(factor, beta, type(self).__name__)
        if self._penalized():
            _validate.check_fourth(factor, type(self).__name__)
            return as_data(X), W, H, 1.0
        root = np.sqrt(factor)
        W, H = (Z if Z is None else np.asarray(Z) / Z.dtype.type(root) for Z in (W, H))
        # scipy divides float32 by float32 in float64
        return as_data((X / X.dtype.type(factor)).astype(X.dtype, copy=False)), W, H, factor

    def _penalized(self) -> bool:
        """Whether the objective has more than its loss."""
        return False

    def _solve(
        self,
        model: FactorModel,
        makes: list[Any],
        solver: str,
        report: Any,
        keeper: Checkpoint | None,
    ) -> Solution:
        """The best of the starts, each run to the end."""
        best: Solution | None = None
        for solution in self._solutions(model, makes, solver, report, keeper):
            if self._on_solution is not None:
                self._on_solution(model, solution)
            if best is None or solution.history[-1] < best.history[-1]:
                best = solution
        assert best is not None
        return best

    def _solutions(
        self, model: FactorModel, makes: list[Any], solver: str, report: Any, keeper: Any
    ) -> Iterator[Solution]:
        """The starts one after the other or, where nobody looks on and it pays, side by side."""
        settings = self._settings(solver, model)

        def begin(make: Any) -> tuple[Array, Array, Step]:
            V, U, rng = make()
            if model.known is not None:
                V, U = model.known.start(model, V, U, custom=self.init == "custom")
            return model.reduce(model.fit_scale(V, U)), U, self._step(solver, rng)

        if len(makes) > 1 and not report.watched and model.loss.beta == 2:
            yield from solve_many(model, [partial(begin, make) for make in makes], settings)
            return
        for number, make in enumerate(makes):
            Z, U, step = begin(make)
            yield alternate(model, Z, U, step, settings, report(number), keeper)

    def _keeper(
        self, model: FactorModel, extra: Any, given: dict[str, Any], n_starts: int
    ) -> Checkpoint | None:
        """Where the loop saves its state, if it was asked to; it goes on with this problem only."""
        if self.checkpoint is None:
            return None
        if n_starts > 1:
            raise ValueError(f"checkpoint needs n_init=1, got n_init={self.n_init}.")
        free = ("checkpoint", "max_iter", "verbose", "device")
        named = {name: v for name, v in self.get_params().items() if name not in free}
        custom = self.init == "custom"
        named.update({name: v for name, v in given.items() if name not in ("W", "H") or custom})
        named.update(estimator=type(self).__name__, labels=getattr(extra, "labels", None))
        return Checkpoint(self.checkpoint, model.R, identify(model.data, named))

    def _store(
        self, model: FactorModel, solution: Solution, solver: str, k: int, extra: Any
    ) -> Array:
        """Finish with a solve for V where the model allows it, then set the attributes."""
        Z, U = solution.Z, solution.U
        objective = model.exact_value(Z, U)
        if solver != "mu" and self._ends_with_codes(model):
            step = make_step(solver)
            final, _ = solve_codes(model, Z, U, step, tol=self.tol, max_iter=self.max_iter)
            value = model.exact_value(final, U)
            if value <= objective * (1 + 1e-9):
                Z, objective = final, value
                solution.history[-1] = min(value, solution.history[-1])  # ends at what is returned
        if solver == "mu":
            Z, U = _flush(model, Z, U, objective)
        residual = residual_at(model, {"V": Z, "U": U}, objective, self.tol)
        if not solution.converged and self.tol > 0 and solution.n_iter >= self.max_iter:
            warnings.warn(
                f"Maximum number of iterations {self.max_iter} reached. "
                "Increase it to improve convergence.",
                ConvergenceWarning,
                stacklevel=5,
            )
        V = model.expand(Z)
        loss = objective - model.penalty("V", Z, U) - model.penalty("U", Z, U)
        H = contiguous(U.T)
        grow = 1.0
        if model.factor != 1:
            V, H = (Z * np.sqrt(model.factor).astype(Z.dtype) for Z in (V, H))
            grow = model.factor**model.loss.beta
        grow *= model.weight_scale
        if model.known is not None:
            V, H = model.known.finish(model, V, H)
        self._n_components = k
        self.n_components_ = k
        self.components_ = model.data.result(H)
        self.embedding_ = V = model.data.result(V)
        self.objective_ = objective * grow
        self.objective_history_ = np.asarray(solution.history) * grow
        self.reconstruction_err_ = float(np.sqrt(2 * max(loss, 0.0)) * np.sqrt(grow))
        self.n_iter_ = solution.n_iter
        self.kkt_residual_ = residual
        self.status_ = solution.status
        self.solver_ = solver
        return V

    def _ends_with_codes(self, model: FactorModel) -> bool:
        return model.rows is None and not any(t.couples for t in model.terms["V"])

    def _partial_attributes(self, solution: Solution) -> dict[str, Any]:
        return {
            "components_": contiguous(solution.U.T),
            "n_components_": solution.U.shape[1],
            "_n_components": solution.U.shape[1],
            "n_iter_": solution.n_iter,
        }

    # -- using ------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Code new samples: V >= 0 with the basis fixed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return self._plain_transform(X)

    def _plain_transform(self, X: Any, **given: Any) -> Array:
        """`transform` without the wrapping of set_output."""
        model, codes, factor = self._coded(X, **given)
        codes = model.data.result(codes)
        return codes if factor == 1 else codes * codes.dtype.type(np.sqrt(factor))

    def _coded(self, X: Any, **given: Any) -> tuple[FactorModel, Array, float]:
        """The model of new samples, their codes, and what X was divided by (codes: its root)."""
        with full_device(type(self).__name__):
            return self._coded_whole(X, **given)

    def _coded_whole(self, X: Any, **given: Any) -> tuple[FactorModel, Array, float]:
        X = self._check_X(X, reset=False)
        data, _, _, factor = self._tame(X)
        model = self._code_model(data, X, **given)
        return model, self._solve_codes(model, factor), factor

    def _solve_codes(self, model: FactorModel, factor: float) -> Array:
        """V of a model whose basis is fixed."""
        solver = self._solver_for(model.data)
        U = self._fixed_basis(model.data, factor)
        step = self._step(solver, check_random_state(self.random_state))
        Z = start_codes(model.data, U.shape[1])
        return solve_codes(model, Z, U, step, tol=self.tol, max_iter=self.max_iter)[0]

    def _fixed_basis(self, data: Any, factor: float = 1.0) -> Array:
        """U where the data is, in its dtype, over the root of ``factor``."""
        H = to_numpy(self.components_).astype(data.dtype, copy=False)
        if factor != 1:
            H = H / H.dtype.type(np.sqrt(factor))
        return data.small(np.ascontiguousarray(H.T))

    def inverse_transform(self, X: Any) -> Array:
        """V back to the samples' space: V S H.

        Parameters
        ----------
        X : {ndarray, sparse matrix} of shape (n_samples, n_components)

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return _validate.check_codes(X, self._n_features_out) @ self._basis()

    def _basis(self) -> Array:
        """S H, the parts as they add up."""
        return self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        check_is_fitted(self)
        return self._score(X)

    def _score(self, X: Any, **given: Any) -> float:
        model, codes, factor = self._coded(X, **given)
        value = model.exact_value(codes, self._fixed_basis(model.data, factor))
        return -value * factor ** beta_of(self.beta_loss) / model.data.shape[0]

    def save(self, path: Any) -> Any:
        """Write the model to a file, for `partwise.load`: JSON and arrays, no pickle."""
        from partwise.estimators import registry

        return registry.save(self, path)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing_values is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _set_sweeps(model: FactorModel, data: Any, k: int) -> None:
    n, p = data.shape
    model.sweeps = {"V": data.sweeps(p, k), "U": data.sweeps(n, k)}


def _flush(model: FactorModel, Z: Array, U: Array, objective: float) -> tuple[Array, Array]:
    """Zeros for what a multiplicative update left below rounding, if the objective agrees."""
    small = float(np.finfo(model.data.dtype).eps)
    Zf, Uf = (_without_small(M, small) for M in (Z, U))
    return (Zf, Uf) if model.exact_value(Zf, Uf) <= objective * (1 + 1e-9) else (Z, U)


def _kept_share(solver: str, model: FactorModel) -> float:
    """Where "newton" has no sweeps for a factor it is multiplicative, and must not meet zero."""
    return 0.1 if solver == "newton" and model.newton_sides != "VU" else 0.0


def _without_small(M: Array, small: float) -> Array:
    """M with zeros for entries below that share of the largest of their column."""
    xp = namespace(M)
    most = xp.max(M, axis=0)
    return cast(xp.where(small * most > M, 0, M), M.dtype)


def elastic_net(
    alpha: float, l1_ratio: float, dtype: Any, counts: Array | float = 1.0
) -> list[Term]:
    """α ℓ ‖Z‖₁ + ½ α (1 - ℓ) ‖Z‖² as terms, rows counted ``counts`` times; none where α is 0."""
    terms: list[Term] = []
    if alpha * l1_ratio > 0:
        terms.append(Linear((np.ones((1, 1)) * alpha * l1_ratio * counts).astype(dtype)))
    if alpha * (1 - l1_ratio) > 0:
        terms.append(Ridge((np.ones((1, 1)) * alpha * (1 - l1_ratio) * counts).astype(dtype)))
    return terms
