"""CF and LCF: the basis is made of samples, nearby ones for LCF; a kernel may stand for X."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from partwise.engine.arrays import own
from partwise.engine.concepts import ConceptModel, DenseGram, Gram, LinearGram, code_problem
from partwise.engine.data import as_data
from partwise.engine.numeric import Array
from partwise.engine.solvers.codes import solve_quadratic
from partwise.engine.solvers.loop import Settings, alternate, residual_at
from partwise.engine.solvers.steps import make_step
from partwise.estimators import _inputs, _validate
from partwise.estimators._callbacks import with_callbacks
from partwise.estimators._docs import documented
from partwise.estimators._grouped import GroupedFactorizer, Knowledge
from partwise.estimators._progress import Progress, all_or_nothing

KERNELS = {"linear", "rbf", "poly", "cosine", "precomputed"}
#: A kernel matrix above this size is announced before it is made.
ANNOUNCE_BYTES = 500_000_000


@documented
class CF(GroupedFactorizer):
    r"""Concept factorization: every basis vector is a combination of samples.

    .. math:: \min_{V,C\ge0}\ \tfrac12\|X - V C^T X\|^2, \qquad U = X^T C

    Half of the paper's (1). X may have negative entries, and only inner products of samples
    matter, so a kernel can take their place. A linear kernel never builds the n x n matrix.

    Parameters
    ----------
    {n_components}
    kernel : {"linear", "rbf", "poly", "cosine", "precomputed"} or callable, default="linear"
        Inner product of two samples. "precomputed": X is the kernel matrix.
    gamma : float, default=None
        Parameter of "rbf" and "poly"; None is scikit-learn's default, 1/n_features.
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        "mu" is the paper's multiplicative update, (4) and (5), C before V; for signed data its
        ratio has exponent ½. The others minimise the same objective faster: "nesterov" ("auto")
        by accelerated gradients; "hals" solves V by coordinate descent and takes two gradient
        steps on C.
    init : {"kmeans", "random", "custom"}, default="kmeans"
        Start: from clusters, since from a random start all concepts begin at the mean and creep.
        "custom" takes W = V and C.
    n_init : int, default=1
        Number of starts; the one with the lowest objective is kept.
    max_iter : int, default=200
        Most iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    n_clusters : int, default=None
        Clusters of `cluster_labels_`. None: the classes in y, else k.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    concept_weights_ : ndarray of shape (n_samples, n_components)
        C: how much of each sample is in each concept.
    components_ : ndarray of shape (n_components, n_features)
        Uᵀ = CᵀX; for a linear kernel only.
    embedding_, labels_, clustering_, objective_, objective_history_, n_iter_, kkt_residual_,
    status_, solver_, reconstruction_err_
        As in `CNMF`.

    Notes
    -----
    ======  ======  ==============================
    paper   here    what it is
    ======  ======  ==============================
    X       Xᵀ      data, features x samples
    W       C       weights of the concepts
    V       Vᵀ      codes
    K       K       kernel matrix
    ======  ======  ==============================

    References
    ----------
    W. Xu, Y. Gong: Document clustering by concept factorization, SIGIR 2004.
    H. Liu, Z. Yang, Z. Wu: Locality-constrained concept factorization, IJCAI 2011, (1).

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import CF
    >>> X = np.random.default_rng(0).normal(size=(30, 5))
    >>> model = CF(n_components=3, random_state=0).fit(X)
    >>> model.concept_weights_.shape
    (30, 3)
    """

    _parameter_constraints: dict[str, Any] = {
        **GroupedFactorizer._parameter_constraints,
        "solver": [StrOptions({"auto", "mu", "hals", "nesterov"})],
        "init": [StrOptions({"kmeans", "random", "custom"})],
        "kernel": [StrOptions(KERNELS), callable],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
    }
    beta_loss = "frobenius"

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | None = None,
        solver: str = "auto",
        init: str = "kmeans",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.random_state = random_state
        self.verbose = verbose

    def _locality(self) -> float:
        return 0.0

    # -- the kernel ---------------------------------------------------------------------------

    def _check_X(self, X: Any, *, reset: bool) -> Any:
        _inputs.check_local(X, type(self).__name__)
        return validate_data(
            self, X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32], reset=reset
        )

    def _kernel(self, X: Any, Y: Any) -> Array:
        """k(x, y) for all pairs."""
        from sklearn.metrics.pairwise import pairwise_kernels

        need = X.shape[0] * Y.shape[0] * X.dtype.itemsize
        if need > ANNOUNCE_BYTES:
            warnings.warn(
                f"kernel={self.kernel!r} needs {need / 1e9:.1f} GB for a "
                f"{X.shape[0]} x {Y.shape[0]} matrix; a linear kernel needs none.",
                ResourceWarning,
                stacklevel=5,
            )
        gamma = {"gamma": self.gamma} if self.kernel in ("rbf", "poly") else {}
        K = pairwise_kernels(X, Y, metric=self.kernel, **gamma)
        return np.asarray(K, dtype=X.dtype)

    def _gram(self, X: Any) -> Gram:
        if self.kernel == "precomputed":
            if sp.issparse(X):
                X = X.toarray()
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    f"kernel='precomputed' needs a square kernel matrix, got shape {X.shape}."
                )
            return DenseGram(_kernel_checked(X, "the precomputed kernel"))
        if self.kernel != "linear":
            return DenseGram(_kernel_checked(self._kernel(X, X), f"kernel={self.kernel!r}"))
        low = X.data.min(initial=0) if sp.issparse(X) else X.min(initial=0)
        if low >= 0:
            return LinearGram(as_data(X), None, None)
        positive = X.maximum(0) if sp.issparse(X) else np.maximum(X, 0)
        return LinearGram(as_data(X), as_data(positive), as_data(positive - X))

    # -- starts and fitting ---------------------------------------------------------------------

    def _cluster_start(
        self, X: Any, gram: Gram, k: int, rng: np.random.RandomState
    ) -> tuple[Array, Array]:
        """Memberships of a k-means: V with 0.2 elsewhere, C the averages of the clusters.

        For a kernel the clusters of the samples stand in for those of their images, and for a
        precomputed one those of the rows of K.
        """
        from sklearn.cluster import KMeans

        n = X.shape[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = KMeans(min(k, n), n_init=10, random_state=rng).fit(X).labels_
        member = np.zeros((n, k), dtype=X.dtype)
        member[np.arange(n), labels] = 1
        V = member + X.dtype.type(0.2)
        sizes = np.maximum(member.sum(axis=0), 1)
        return V, (member + X.dtype.type(0.2 / k)) / sizes

    def _concept_starts(self, X: Any, gram: Gram, k: int, W: Any, C: Any) -> list[Any]:
        n, name = X.shape[0], type(self).__name__
        rng = check_random_state(self.random_state)
        if self.init == "custom":
            if W is None or C is None:
                raise ValueError("init='custom' needs both W and C.")
            V0 = _validate.check_start(W, (n, k), X.dtype, "W", name)
            C0 = _validate.check_start(C, (n, k), X.dtype, "C", name)
            return [lambda: (V0.copy(), C0.copy())]
        if W is not None or C is not None:
            warnings.warn(
                "When init!='custom', provided W or C are ignored. Set init='custom' to use them.",
                RuntimeWarning,
                stacklevel=4,
            )
        seeds = rng.randint(np.iinfo(np.int32).max, size=self.n_init)

        def one(seed: int) -> tuple[Array, Array]:
            child = np.random.RandomState(seed)
            if self.init == "kmeans":
                return self._cluster_start(X, gram, k, child)
            V, C = child.uniform(size=(2, n, k)).astype(X.dtype)
            return V, C / C.sum(axis=0)

        return [lambda s=s: one(s) for s in seeds]

    def _fit_concepts(self, X: Any, y: Any, W: Any, C: Any) -> Array:
        with all_or_nothing(self):
            return self._fit_whole_concepts(X, y, W, C)

    def _fit_whole_concepts(self, X: Any, y: Any, W: Any, C: Any) -> Array:
        self._validate_params()
        solver = "nesterov" if self.solver == "auto" else self.solver
        X = self._check_X(X, reset=True)
        extra = self._prepare(X, y)
        k = self._n_parts(X, C.T if C is not None else None, extra)
        if self.kernel == "linear":
            _validate.check_squares(X, type(self).__name__)
        gram = self._gram(X)
        plain = solver == "mu"  # as printed
        model = ConceptModel(gram, self._locality(), balance=not plain)
        _validate.check_scale(model.constant, True, type(self).__name__)
        model.sweeps["V"] = 4
        settings = Settings(
            max_iter=self.max_iter,
            tol=self.tol,
            order="UV",
            extrapolate=not plain,
            guard=not plain,
        )
        makes = self._concept_starts(X, gram, k, W, C)
        report = Progress(self, X, y, len(makes))
        best: Any = None
        for number, make in enumerate(makes):
            V, C0 = make()
            if not plain:  # concepts inside the samples: far away, locality would empty V at once
                C0 = C0 / np.maximum(C0.sum(axis=0), np.finfo(X.dtype).tiny)
                V = model.fit_scale(V, C0)
            try:
                found = alternate(model, V, C0, make_step(solver), settings, report(number))
            except np.linalg.LinAlgError:  # factors beyond all bounds
                if self.kernel == "linear":
                    raise
                self._refuse_kernel(-np.inf)
            if best is None or found.history[-1] < best.history[-1]:
                best = found
        # ‖φ(X) - V Cᵀ φ(X)‖² >= 0 for every kernel: below zero there is no φ
        if not best.history[-1] >= -1e-3 * abs(model.constant):
            self._refuse_kernel(best.history[-1])
        V = self._store_concepts(X, model, best, solver, k, extra)
        report.finish()
        return V

    def _refuse_kernel(self, objective: float) -> NoReturn:
        raise ValueError(
            f"kernel={self.kernel!r} is not positive semi-definite: the objective fell to "
            f"{objective:g}; use a matrix of inner products."
        )

    def _store_concepts(
        self, X: Any, model: ConceptModel, found: Any, solver: str, k: int, extra: Knowledge
    ) -> Array:
        V, C, objective = found.Z, found.U, found.history[-1]
        if solver != "mu":
            sub = model.codes(C)
            # from transform's start, if that is no worse: concepts may be close to collinear, and
            # then equally good codes lie far apart
            for start in (self._code_start(sub), V):
                final = solve_quadratic(sub, start, self.tol, 2 * model.constant)
                if sub.value(final) <= objective * (1 + 1e-9):
                    V, objective = final, sub.value(final)
                    found.history[-1] = min(objective, found.history[-1])
                    break
        residual = residual_at(model, {"V": V, "U": C}, objective, self.tol)
        if not found.converged and self.tol > 0 and found.n_iter >= self.max_iter:
            warnings.warn(
                f"Maximum number of iterations {self.max_iter} reached. "
                "Increase it to improve convergence.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self._set_groups(extra, k)
        self._n_components = k
        self.n_components_ = k
        self.concept_weights_ = C
        self.embedding_ = V
        self._basis_gram = C.T @ model.product(C)
        self._signed = model.gram.signed
        self.__dict__.pop("components_", None)
        self.__dict__.pop("_X_fit", None)
        if self.kernel == "linear":
            self.components_ = np.ascontiguousarray((X.T @ C).T)
        elif self.kernel != "precomputed":
            self._X_fit = X.copy()  # the caller may change X
        self.objective_ = max(objective, 0.0)
        self.objective_history_ = np.asarray(found.history)
        self.reconstruction_err_ = float(np.sqrt(2 * self.objective_))
        self.n_iter_, self.kkt_residual_ = found.n_iter, residual
        self.status_, self.solver_ = found.status, solver
        return V

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, W: Any = None, C: Any = None) -> Any:  # type: ignore[override]
        """Learn concepts, codes and clusters.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, of any sign; the kernel matrix if ``kernel="precomputed"``.
        y : array-like of shape (n_samples,), default=None
            Labels; they name the clusters and do not change the factorization.
        W, C : array-like of shape (n_samples, n_components), default=None
            The start of V and C, if ``init="custom"``.

        Returns
        -------
        self
        """
        self._fit_concepts(X, y, W, C)
        return self

    @with_callbacks
    def fit_transform(  # type: ignore[override]
        self, X: Any, y: Any = None, W: Any = None, C: Any = None
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        return own(self._fit_concepts(X, y, W, C))

    # -- using ----------------------------------------------------------------------------------

    def _code_start(self, sub: Any) -> Array:
        k = sub.C.shape[1]
        scale = np.maximum(np.diag(sub.G), np.finfo(sub.G.dtype).tiny)
        return np.maximum(sub.C / scale / k, 0).astype(sub.C.dtype)

    def _code_problem(self, X: Any) -> Any:
        """The subproblem in V for new samples."""
        C, locality = self.concept_weights_, self._locality()
        if self.kernel == "linear":
            KC = np.asarray(X @ self.components_.T.astype(X.dtype, copy=False))
            a = as_data(X).row_sq_norms().astype(X.dtype)
        elif self.kernel == "precomputed":
            if locality:
                raise ValueError(
                    "LCF with a precomputed kernel cannot transform: it needs k(x, x) of the new "
                    "samples; use a named kernel."
                )
            KC = np.asarray(X @ C)
            a = np.zeros(X.shape[0], dtype=X.dtype)  # a constant: it moves no minimiser
        else:
            KC = self._kernel(X, self._X_fit) @ C
            a = self._self_kernel(X)
        return code_problem(a, KC, self._basis_gram.astype(X.dtype, copy=False), locality)

    def _self_kernel(self, X: Any) -> Array:
        rows = [self._kernel(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])]
        return np.asarray(rows, dtype=X.dtype)

    def _plain_transform(self, X: Any, **given: Any) -> Array:
        sub = self._code_problem(self._check_X(X, reset=False))
        return solve_quadratic(sub, self._code_start(sub), self.tol, 2 * sub.constant)

    def transform(self, X: Any) -> Array:
        """Code new samples: V >= 0 with the concepts fixed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            With ``kernel="precomputed"``, inner products with the training samples.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return self._plain_transform(X)

    def inverse_transform(self, X: Any) -> Array:
        """V back to the samples' space: V Uᵀ; for a linear kernel only."""
        check_is_fitted(self)
        if self.kernel != "linear":
            raise ValueError(f"kernel={self.kernel!r} has no components to go back with.")
        return _validate.check_codes(X, self._n_features_out) @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective per sample, for model selection (higher is better)."""
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        sub = self._code_problem(X)
        codes = solve_quadratic(sub, self._code_start(sub), self.tol, 2 * sub.constant)
        return -sub.value(codes) / X.shape[0]

    @property
    def _n_features_out(self) -> int:
        return self.concept_weights_.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = False
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _kernel_checked(K: Array, what: str) -> Array:
    """K itself, if it can be a kernel: symmetric, and k(x, y)² <= k(x, x) k(y, y)."""
    own = np.sqrt(np.maximum(np.diag(K), 0))
    if not (np.diag(K) >= 0).all():
        raise ValueError(
            f"{what} is not positive semi-definite: k(x, x) = {np.diag(K).min():g} for a sample; "
            "use a matrix of inner products."
        )
    slack = 1e4 * np.finfo(K.dtype).eps * float(own.max(initial=0)) ** 2
    for first in range(0, len(K), 256):  # by rows: no second matrix of this size
        rows = slice(first, first + 256)
        gap = float(np.abs(K[rows] - K[:, rows].T).max())
        if not gap <= slack:
            raise ValueError(
                f"{what} must be symmetric, got entries that differ by {gap:g}; use (K + K.T) / 2."
            )
        if not (np.abs(K[rows]) <= np.outer(own[rows], own) + slack).all():
            raise ValueError(
                f"{what} is not positive semi-definite: k(x, y)² exceeds k(x, x) k(y, y) for some "
                "pair; use a matrix of inner products."
            )
    return K


@documented
class LCF(CF):
    r"""Locality-constrained concept factorization: concepts are made of nearby samples.

    .. math:: \min_{V,C\ge0}\ \tfrac12\|X - V C^T X\|^2
              + \tfrac\lambda2 \sum_{ik} v_{ik} \|u_k - x_i\|^2, \qquad U = X^T C

    Half of the paper's (2). X may have negative entries. The denominator of (4) is printed
    without a factor; it is K C VᵀV + λ K C diag(Vᵀ1), as in the derivation above it.

    Parameters
    ----------
    {n_components}
    locality : float, default=0.3
        λ, the price of using a concept far from the sample; 0 is `CF`.
    kernel, gamma, solver, init, n_init, max_iter, tol, n_clusters, random_state, verbose
        As in `CF`.

    Attributes
    ----------
    concept_weights_, components_, embedding_, labels_, objective_, ...
        As in `CF`.

    Notes
    -----
    Letters as in `CF`; the paper's λ is ``locality``. With a precomputed kernel `transform` is
    refused: it needs k(x, x).

    References
    ----------
    H. Liu, Z. Yang, Z. Wu: Locality-constrained concept factorization, IJCAI 2011, (4)(5).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import LCF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> LCF(n_components=3, random_state=0).fit_predict(X).shape
    (537,)
    """

    _parameter_constraints: dict[str, Any] = {
        **CF._parameter_constraints,
        "locality": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        locality: float = 0.3,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | None = None,
        solver: str = "auto",
        init: str = "kmeans",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            kernel=kernel,
            gamma=gamma,
            solver=solver,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            n_clusters=n_clusters,
            random_state=random_state,
            verbose=verbose,
        )
        self.locality = locality

    def _locality(self) -> float:
        return self.locality
