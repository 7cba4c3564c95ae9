"""CF and LCF, in which each basis vector is a combination of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sklearn.cluster  # noqa: F401  # imported here, because a fit needs it (see `_base`)
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import StrOptions
from partwise.backends.arrays import AnyArray, own
from partwise.estimators._base import GroupedFactorizer
from partwise.estimators._parameters import AT_LEAST_ZERO, LoopParameters, estimator
from partwise.fitting.callbacks import with_callbacks
from partwise.fitting.checking import check_codes, check_matrix
from partwise.fitting.concept_fitting import code_start, fit_concepts, new_codes
from partwise.fitting.sample_kernels import KERNELS, Kernel
from partwise.model.concept_model import Codes
from partwise.solvers.steps import solve_exactly


@estimator
class CF(LoopParameters, GroupedFactorizer):
    r"""Concept factorization: every basis vector is a combination of samples.

    .. math:: \min_{V,C\ge0}\ \tfrac12\|X - V C^T X\|^2, \qquad U = X^T C

    The paper minimises twice this objective, its equation (1). X may have negative entries. Only
    inner products of samples matter, so a kernel can replace them. The linear kernel never builds
    the n x n matrix; with it, CF is convex NMF (Ding, Li & Jordan 2010). `SemiNMF` has free
    components instead.

    Parameters
    ----------
    {n_components}
    kernel : {"linear", "rbf", "poly", "cosine", "precomputed"} or callable, default="linear"
        Inner product of two samples. With "precomputed", X is the kernel matrix.
    gamma : float, default=None
        Parameter of "rbf" and "poly". None uses 1/n_features, the default of scikit-learn.
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        "mu" is the multiplicative update (4) and (5) of the paper, with C before V. For signed
        data its ratio has exponent ½. The others minimise the same objective faster. "nesterov"
        ("auto") uses accelerated gradients. "hals" solves for V by coordinate descent and takes
        two gradient steps on C.
    init : {"kmeans", "random", "custom"}, default="kmeans"
        Initialization method. "kmeans" starts from clusters, because from a random start all
        concepts begin near the mean and move slowly. "custom" uses W = V and C of `fit`.
    {run}

    Attributes
    ----------
    concept_weights_ : ndarray of shape (n_samples, n_components)
        C, the share of each sample in each concept.
    components_ : ndarray of shape (n_components, n_features)
        Uᵀ = CᵀX; only for a linear kernel.
    embedding_, labels_, clustering_, objective_, objective_history_, n_iter_, kkt_residual_,
    status_, solver_, reconstruction_err_
        As in `CNMF`.

    Notes
    -----
    ======  ======  ==============================
    paper   ours    meaning
    ======  ======  ==============================
    X       Xᵀ      data, features x samples
    W       C       weights of the concepts
    V       Vᵀ      part weights
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
    >>> model = CF(n_components=3, max_iter=2000, random_state=0).fit(X)
    >>> model.concept_weights_.shape
    (30, 3)
    """

    kernel: str | Callable[..., Any] = "linear"
    gamma: float | None = None
    solver: str = "auto"
    init: str = "kmeans"

    _parameter_constraints = {
        "solver": [StrOptions({"auto", "mu", "hals", "nesterov"})],
        "init": [StrOptions({"kmeans", "random", "custom"})],
        "kernel": [StrOptions(KERNELS), callable],
        "gamma": [AT_LEAST_ZERO, None],
    }
    beta_loss = "frobenius"
    own_fit = True

    locality = 0.0

    local = signed = True

    def _kernel(self) -> Kernel:
        """Return the kernel that the parameters define."""
        return Kernel(self.kernel, self.gamma)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, W: Any = None, C: Any = None) -> Any:  # type: ignore[override]
        """Learn concepts, part weights and clusters.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, of any sign; the kernel matrix if ``kernel="precomputed"``.
        y : array-like of shape (n_samples,), default=None
            Class labels for the clusters; they do not change the factorization.
        W, C : array-like of shape (n_samples, n_components), default=None
            The initial V and C, if ``init="custom"``.

        Returns
        -------
        self
        """
        fit_concepts(self, self._kernel(), X, y, W=W, C=C)
        return self

    @with_callbacks
    def fit_transform(  # type: ignore[override]
        self, X: Any, y: Any = None, W: Any = None, C: Any = None
    ) -> AnyArray:
        """Fit the model and return the part weights of the training samples."""
        return own(fit_concepts(self, self._kernel(), X, y, W=W, C=C))

    # -- using a fitted model -------------------------------------------------------------------

    def _plain_transform(self, X: Any, graph: Any = None) -> AnyArray:
        """Return the part weights of new samples, without the container of ``set_output``."""
        return self._coded(X)[1]

    def _coded(self, X: Any) -> tuple[Codes, AnyArray]:
        """Return the least-squares problem of new samples, and their part weights."""
        check_is_fitted(self)
        X, _ = check_matrix(self, self._describe(), X, reset=False)
        sub = new_codes(self, self._kernel(), X)
        return sub, solve_exactly(sub, code_start(sub))

    def transform(self, X: Any) -> AnyArray:
        """Compute non-negative part weights of new samples with the concepts fixed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; with ``kernel="precomputed"``, inner products with the training samples.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X)

    def inverse_transform(self, X: Any) -> AnyArray:
        """Return V Uᵀ, the reconstructed samples; only for a linear kernel."""
        check_is_fitted(self)
        if self.kernel != "linear":
            raise ValueError(
                f"inverse_transform needs kernel='linear', got kernel={self.kernel!r}: other "
                "kernels have no components_."
            )
        return check_codes(X, self._n_features_out) @ self.components_

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the objective per sample; a higher value is better."""
        sub, codes = self._coded(X)
        return -sub.value(codes) / len(codes)

    @property
    def _n_features_out(self) -> int:
        return int(self.concept_weights_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = False
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


@estimator
class LCF(CF):
    r"""Locality-constrained concept factorization: concepts combine nearby samples.

    .. math:: \min_{V,C\ge0}\ \tfrac12\|X - V C^T X\|^2
              + \tfrac\lambda2 \sum_{ik} v_{ik} \|u_k - x_i\|^2, \qquad U = X^T C

    The paper minimises twice this objective, its equation (2). X may have negative entries.
    Equation (4) lacks a factor in its denominator; Partwise uses K C VᵀV + λ K C diag(Vᵀ1), as in
    its derivation.

    Parameters
    ----------
    {n_components}
    locality : float, default=0.3
        λ, the cost of using a concept far from the sample. Larger values give sparser part
        weights; 0 is `CF`.
    kernel, gamma, solver, init, n_init, max_iter, tol, n_clusters, random_state, verbose
        As in `CF`.

    Attributes
    ----------
    concept_weights_, components_, embedding_, labels_, objective_, ...
        As in `CF`.

    Notes
    -----
    The symbols are those of `CF`, and λ of the paper is ``locality``. `transform` refuses a
    precomputed kernel, because it needs k(x, x).

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

    locality: float = 0.3

    _parameter_constraints = {"locality": [AT_LEAST_ZERO]}
