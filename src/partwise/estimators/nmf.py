"""NMF: scikit-learn's estimator, faster and with the objective in the open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise.backends.arrays import AnyArray, numpy_dtype
from partwise.estimators._base import Factorizer
from partwise.estimators._parameters import estimator
from partwise.fitting import Knowledge, described, fit
from partwise.fitting.callbacks import with_callbacks
from partwise.fitting.checking import n_parts
from partwise.fitting.checking.arrays import check_matrix, check_start
from partwise.fitting.checking.warning import warn


@estimator
class NMF(Factorizer):
    r"""Non-negative matrix factorization, in place of :class:`sklearn.decomposition.NMF`.

    Minimises over V >= 0, U >= 0 (W = V, H = Uᵀ)

    .. math:: d_\beta(X, V U^T) + \sum_i \gamma_i\text{-weighted rows, if weights are given}
              + \alpha_W p\,(\ell \|V\|_1 + \tfrac{1-\ell}{2} \|V\|^2)
              + \alpha_H n\,(\ell \|U\|_1 + \tfrac{1-\ell}{2} \|U\|^2)

    with :math:`d_2 = \tfrac12\|X - VU^T\|^2` and :math:`d_1` the Kullback-Leibler divergence.
    X must be >= 0.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Number of parts k. "auto": as many as rows of a custom H, else the number of features.
    init : {"random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "custom"}, default=None
        Start. None: "nndsvda" if k <= min(n, p) and every entry is seen, else "random". "custom"
        takes W and H.
    solver : {"auto", "cd", "hals", "mu", "nesterov", "newton"}, default="auto"
        "hals" (and "cd", its name in scikit-learn): coordinate descent with several sweeps per
        product and extrapolation, Frobenius only. "nesterov": accelerated projected gradient,
        Frobenius only. "newton": second-order coordinate sweeps, Kullback-Leibler only. "mu":
        multiplicative updates, every loss. "auto": "hals", "newton" or "mu", by the loss (for
        tensors of more than 32 parts under Kullback-Leibler "mu").
    beta_loss : float or str, default="frobenius"
        The β-divergence to minimise: "frobenius" (2), "kullback-leibler" (1), "itakura-saito" (0),
        or β. "l21": Σ_i √(‖x_i - U v_i‖² + ε²) with ε a
        thousandth of the mean length of a sample, so that samples that are outliers count by the
        length of their residual and not by its square (D. Kong, C. Ding, H. Huang 2011). Each
        half-step is a Frobenius problem with weights that follow the residuals.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, and the objective fell by at most this
        share in ten iterations. The residual is the larger over both factors of ‖projected
        gradient‖ / (r (‖positive part‖ + ‖negative part‖) + ‖gradient of the penalties‖), the
        parts those of the loss and r = ‖X - Y‖/‖X‖, as far as they cancel. It means the same for
        every solver. 0 runs all of ``max_iter``.
    max_iter : int, default=200
        Most iterations; one updates both factors.
    random_state : int, RandomState instance or None, default=None
        The same value gives the same result on one machine. The number of threads can change sums
        inside BLAS in the last digit.
    alpha_W : float, default=0.0
        Weight of the penalty on W, times the number of features as in scikit-learn.
    alpha_H : float or "same", default="same"
        Weight of the penalty on H, times the number of samples.
    l1_ratio : float, default=0.0
        Share ℓ of the l1 norm in the penalties.
    verbose : int, default=0
        Print the objective every ten iterations.
    shuffle : bool, default=False
        Sweep the coordinates of "hals" in random order.
    n_init : int, default=1
        Number of starts; the one with the lowest objective is kept. Under the Frobenius loss they
        run side by side, and cost less than as many fits.
    sample_weighting : {"ncw"}, default=None
        Normalized-cut weights of the samples, γ_i = 1/(x_iᵀ Σ_l x_l), as in the comparators of the
        GNMF and CNMF papers.
    mu_rule : {"lee-seung", "lin"}, default="lee-seung"
        "lin" is Lin's (2007) modification of "mu", which converges to a stationary point.
    device : str, default=None
        A torch device such as "cuda": X is moved there, and the results come back as ndarrays. A
        torch tensor runs where it is, without this.
    checkpoint : path, default=None
        A folder. The state of the fit is saved there every few iterations, and a `fit` of the
        same model on the same data goes on from it. Needs ``n_init=1``.
    missing_values : float or nan, default=None
        What stands for an entry that was not seen: ``np.nan``, or a number. The loss is then over
        the seen entries only, in `fit`, `transform` and `score`; `inverse_transform` says what the
        model has in the gaps. A sparse X stores NaN where an entry is hidden, and what it does not
        store are zeros as ever; with 0 they are unseen. Frobenius and Kullback-Leibler.
    fixed_components : array-like of shape (m, n_features), default=None
        Parts that are known, counted in ``n_components``: the first rows of ``components_`` are
        these, bit for bit in the dtype of X. NaN leaves an entry free.
    seed_components : array-like of shape (m, n_features), default=None
        Where the next parts begin; they move. NaN leaves an entry to ``init``.
    must_link_reg : float, default=None
        μ of the cost μ/2 Σ ‖v_i - v_j‖² of must-linked samples. None: they share a code, v_i = v_j.
    cannot_link_reg : float, default=0.1
        ν of the cost ν Σ ⟨v_i, v_j⟩ of cannot-linked samples. A cost of links on V alone could be
        lowered for free, so that with one columns of U are held at length one (KL: sum one)
        unless ``alpha_H`` penalises them.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H = Uᵀ, the parts.
    embedding_ : ndarray of shape (n_samples, n_components)
        W = V of the training samples.
    n_components_ : int
    reconstruction_err_ : float
        √(2 loss), as in scikit-learn: the Frobenius norm of the residual, or the root of twice the
        divergence.
    l21_epsilon_ : float
        ε, if ``beta_loss="l21"``.
    objective_ : float
        The objective at the end, penalties included.
    objective_history_ : ndarray of shape (n_iter,)
        The objective after each iteration; it never rises.
    n_iter_ : int
    kkt_residual_ : float
        What ``tol`` is compared with, at the returned factors.
    status_ : str
        Why the solver stopped, as a sentence.
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
        """Learn the parts of X.

        Parameters
        ----------
        {samples}
        y : Ignored
        {start}
        {sample_weight}
        {entry_weight} A sparse one has the
            weights of seen entries, and nothing else was seen.
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
        """W for a given H."""
        what = described(self)
        checked = check_matrix(self, what, X, reset=True)
        if H is None:
            raise ValueError("update_H=False needs H.")
        p = checked.shape[1]
        k = n_parts(replace(what, init="custom"), p, H, Knowledge())
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
    """`NMF` as a function, in place of :func:`sklearn.decomposition.non_negative_factorization`.

    Parameters
    ----------
    X, W, H
        As in `NMF.fit`.
    n_components, init
        As in `NMF`.
    update_H : bool, default=True
        False: the given H is kept and only W is solved for.
    solver, beta_loss, tol, max_iter, alpha_W, alpha_H, l1_ratio, random_state, verbose, shuffle
        As in `NMF`.

    Returns
    -------
    W, H : ndarrays of shapes (n_samples, n_components) and (n_components, n_features)
    n_iter : int

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
