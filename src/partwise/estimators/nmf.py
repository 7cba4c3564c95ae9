"""NMF, a replacement of scikit-learn's estimator with more losses and solvers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise.backends.arrays import AnyArray, numpy_dtype
from partwise.estimators._base import Factorizer
from partwise.estimators._parameters import estimator
from partwise.fitting import Knowledge, described, fit
from partwise.fitting.callbacks import with_callbacks
from partwise.fitting.checking import check_matrix, check_start, n_parts
from partwise.fitting.description import warn


@estimator
class NMF(Factorizer):
    r"""Non-negative matrix factorization, a replacement of :class:`sklearn.decomposition.NMF`.

    Minimises over W >= 0 and H >= 0

    .. math:: \sum_i \gamma_i\, d_\beta(x_i, w_i H)
              + \alpha_W p\,(\ell \|W\|_1 + \tfrac{1-\ell}{2} \|W\|^2)
              + \alpha_H n\,(\ell \|H\|_1 + \tfrac{1-\ell}{2} \|H\|^2)

    with sample weights :math:`\gamma_i` (one by default),
    :math:`d_2 = \tfrac12\|x_i - w_i H\|^2` and :math:`d_1` the Kullback-Leibler divergence. X must
    be non-negative.

    Without penalties, a column of W and the row of H can be multiplied by c and 1/c without
    changing the objective. The result then has columns of W with a root mean square of one (over
    weighted samples), so classifiers and k-means see part weights of equal size, and H has the
    units of X. Components with known entries keep their scale. See :doc:`/get_started/scikit_learn`
    for the effect.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Number of components k. "auto" uses the number of rows of a custom H, else the number of
        features.
    init : {"random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "custom"}, default=None
        Initialization method. None uses "nndsvda" if k <= min(n, p) and no entry is missing, else
        "random". "custom" uses the W and H passed to `fit`.
    solver : {"auto", "cd", "hals", "mu", "nesterov", "newton"}, default="auto"
        "hals" (Frobenius) is coordinate descent with several sweeps per product and
        extrapolation; "cd" is its name in scikit-learn. "nesterov" (Frobenius) is accelerated
        projected gradient, "newton" (Kullback-Leibler) second-order coordinate descent. "mu"
        (every loss) is the multiplicative update, which is slower. "auto" selects "hals",
        "newton" or "mu" by the loss; for Kullback-Leibler on tensors with more than 32
        components it selects "mu".
    beta_loss : float or str, default="frobenius"
        The β-divergence: "frobenius" (2), "kullback-leibler" (1), "itakura-saito" (0), or a
        number. "l21" is robust to outlying samples: it minimises Σ_i √(‖x_i - w_i H‖² + ε²), where
        ε is a thousandth of the mean length of a sample (D. Kong, C. Ding, H. Huang 2011).
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this and the objective fell by at most this
        share in ten iterations. The residual is the larger over both factors of ‖projected
        gradient‖ / (r (‖positive part‖ + ‖negative part‖) + ‖gradient of the penalties‖), with the
        parts of the gradient of the loss and r = ‖X - WH‖/‖X‖. It has the same meaning for every
        solver. 0 runs all ``max_iter`` iterations.
    max_iter : int, default=200
        Maximum number of iterations. One iteration updates both factors.
    random_state : int, RandomState instance or None, default=None
        Seed of random starts. The same seed gives the same result on one machine.
    alpha_W : float, default=0.0
        Weight of the penalty on W, times the number of features as in scikit-learn. Larger values
        shrink W.
    alpha_H : float or "same", default="same"
        Weight of the penalty on H, times the number of samples. "same" uses ``alpha_W``.
    l1_ratio : float, default=0.0
        Share ℓ of the l1 norm in the penalties. 1 gives sparse factors.
    verbose : int, default=0
        Print the objective every ten iterations.
    shuffle : bool, default=False
        Visit the components in random order in "hals".
    n_init : int, default=1
        Number of starts. The result with the lowest objective is kept. With the Frobenius loss
        the starts run together, which takes less time than separate fits.
    sample_weighting : {"ncw"}, default=None
        "ncw" uses the sample weights of the normalised cut, γ_i = 1/(x_iᵀ Σ_l x_l), as in the
        GNMF and CNMF papers.
    mu_rule : {"lee-seung", "lin"}, default="lee-seung"
        "lin" is the modification of "mu" by Lin (2007), which converges to a stationary point.
    device : str, default=None
        A torch device such as "cuda". X is moved there, and the results are ndarrays. A torch
        tensor stays on its own device without this.
    checkpoint : path, default=None
        A folder that stores the state of the fit every few iterations. Another `fit` of the same
        model on the same data continues from it. Requires ``n_init=1``.
    missing_values : float or nan, default=None
        The value that marks a missing entry: ``np.nan`` or a number. The loss, `transform` and
        `score` then use the other entries only, and `inverse_transform` fills the missing ones.
        A sparse X stores NaN at missing entries, and entries that it does not store are zeros; with
        ``missing_values=0`` they are missing. Frobenius and Kullback-Leibler only.
    fixed_components : array-like of shape (m, n_features), default=None
        Known components, included in ``n_components``. They are the first rows of
        ``components_`` and stay unchanged. NaN leaves an entry free.
    seed_components : array-like of shape (m, n_features), default=None
        Initial values of the components after the fixed ones. NaN leaves an entry to ``init``.
    must_link_reg : float, default=None
        Weight μ of the penalty μ/2 Σ ‖w_i - w_j‖² on must-linked samples. None requires equal part
        weights, w_i = w_j.
    cannot_link_reg : float, default=0.1
        Weight ν of the penalty ν Σ ⟨w_i, w_j⟩ on cannot-linked samples. With such penalties, rows
        of H are kept at length one (Kullback-Leibler: sum one) unless ``alpha_H`` penalises H;
        otherwise shrinking W would lower the penalty at no cost.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H, the parts.
    embedding_ : ndarray of shape (n_samples, n_components)
        W, the part weights of the training samples.
    n_components_ : int
        Number of components.
    reconstruction_err_ : float
        √(2 loss), as in scikit-learn: the Frobenius norm of the residual, or the root of twice the
        divergence.
    l21_epsilon_ : float
        ε, if ``beta_loss="l21"``.
    objective_ : float
        The objective at the end, including penalties.
    objective_history_ : ndarray of shape (n_iter,)
        The objective after each iteration. It never increases.
    n_iter_ : int
        Number of iterations.
    kkt_residual_ : float
        The value that is compared with ``tol``, at the end and before the scale of the components
        is set.
    status_ : str
        A sentence about why the solver stopped.
    solver_ : str
        The solver that ran.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    D. Lee, S. Seung: Algorithms for non-negative matrix factorization, NIPS 2000.
    N. Gillis, F. Glineur: Accelerated multiplicative updates and hierarchical ALS, 2012.
    A. Ang, N. Gillis: Accelerating NMF algorithms using extrapolation, 2019.
    C.-J. Hsieh, I. Dhillon: Fast coordinate descent with variable selection for NMF, 2011.
    C.-J. Lin: On the convergence of multiplicative update algorithms, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF
    >>> X = np.array([[1, 1], [2, 1], [3, 1.2], [4, 1], [5, 0.8], [6, 1]])
    >>> model = NMF(n_components=2, random_state=0)
    >>> W = model.fit_transform(X)
    >>> bool(np.abs(X - W @ model.components_).max() < 0.01)
    True
    >>> np.sqrt(np.square(W).mean(axis=0)).round(6)
    array([1., 1.])
    """

    init: str | None = None
    solver: str = "auto"
    beta_loss: str | float = "frobenius"
    tol: float = 1e-4
    max_iter: int = 200
    random_state: Any = None
    alpha_W: float = 0.0
    alpha_H: float | str = "same"
    l1_ratio: float = 0.0
    verbose: int = 0
    shuffle: bool = False
    n_init: int = 1
    sample_weighting: str | None = None
    mu_rule: str = "lee-seung"
    device: str | None = None
    checkpoint: Any = None
    missing_values: float | None = None
    fixed_components: Any = None
    seed_components: Any = None
    must_link_reg: float | None = None
    cannot_link_reg: float = 0.1

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        W: Any = None,
        H: Any = None,
        sample_weight: Any = None,
        entry_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
    ) -> NMF:
        """Learn components and part weights.

        Parameters
        ----------
        {samples}
        y : Ignored
        {start}
        {sample_weight}
        {entry_weight} Entries that a sparse
            matrix does not store are missing.
        {links}

        Returns
        -------
        self : NMF
        """
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        fit(self, X, y, **given)
        return self

    def _fit_codes(self, X: Any, W: Any, H: Any) -> tuple[AnyArray, AnyArray, int]:
        """Return W for a fixed H, with H and the number of iterations."""
        spec = described(self)
        checked, _ = check_matrix(self, spec, X, reset=True)
        if H is None:
            raise ValueError("update_H=False needs H.")
        p = checked.shape[1]
        k = n_parts(replace(spec, init="custom"), p, H, Knowledge())
        H = check_start(H, (k, p), numpy_dtype(checked.dtype), "H", "NMF", zeros=True)
        if W is not None:
            warn("When update_H=False, the provided initial W is not used.", RuntimeWarning)
        self.components_ = H
        return self.transform(X), H, 1


def non_negative_factorization(
    X: Any,
    W: Any = None,
    H: Any = None,
    n_components: Any = "auto",
    *,
    init: str | None = None,
    update_H: bool = True,
    solver: str = "auto",
    beta_loss: str | float = "frobenius",
    tol: float = 1e-4,
    max_iter: int = 200,
    alpha_W: float = 0.0,
    alpha_H: float | str = "same",
    l1_ratio: float = 0.0,
    random_state: Any = None,
    verbose: int = 0,
    shuffle: bool = False,
) -> tuple[AnyArray, AnyArray, int]:
    """Compute W and H; a replacement of the function of this name in scikit-learn.

    Parameters
    ----------
    X, W, H
        Data and initial factors, as in `NMF.fit`.
    n_components, init
        As in `NMF`.
    update_H : bool, default=True
        False keeps the given H and only computes W.
    solver, beta_loss, tol, max_iter, alpha_W, alpha_H, l1_ratio, random_state, verbose, shuffle
        As in `NMF`.

    Returns
    -------
    W, H : ndarrays of shapes (n_samples, n_components) and (n_components, n_features)
        The factors, scaled as in `NMF`.
    n_iter : int
        Number of iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import non_negative_factorization
    >>> W, H, n_iter = non_negative_factorization(np.eye(3), n_components=2, random_state=0)
    >>> W.shape, H.shape
    ((3, 2), (2, 3))
    """
    model = NMF(
        n_components,
        init=init,
        solver=solver,
        beta_loss=beta_loss,
        tol=tol,
        max_iter=max_iter,
        random_state=random_state,
        alpha_W=alpha_W,
        alpha_H=alpha_H,
        l1_ratio=l1_ratio,
        verbose=verbose,
        shuffle=shuffle,
    )
    if update_H:
        W = model.fit_transform(X, W=W, H=H)
        return W, model.components_, model.n_iter_
    return model._fit_codes(X, W, H)
