"""NMFDC and NSNMF, with a smoothing matrix between the factors.

NMFDC also has hard labels.
"""

from __future__ import annotations

from partwise._sklearn import StrOptions
from partwise.estimators._base import ConstrainedFactorizer
from partwise.estimators._parameters import CommonParameters, LossParameters, estimator


@estimator
class NMFDC(CommonParameters, ConstrainedFactorizer):
    r"""NMF with dual constraints: hard labels, and smoothing that makes factors sparse.

    .. math:: \min_{Z,U\ge0}\ \tfrac12\|X - A Z S U^T\|^2, \qquad
              S = (1-\delta) I + \tfrac\delta k 11^T

    This is the objective of the paper. Smoothing by S forces the factors to be sparse. With at most
    one label per class it equals `NSNMF`; a warning reports this case. X must be non-negative.

    Parameters
    ----------
    {n_components}
    smoothing : float, default=0.5
        δ in [0, 1]. Larger values give sparser factors.
    inner_iter : int, default=10
        Accelerated gradient steps on each factor per iteration, as in (15) and (17) of the paper.
    solver : {"auto", "nesterov", "hals", "mu"}, default="auto"
        "nesterov" is the method of the paper, with momentum restarted at each iteration. "auto"
        and "hals" minimise the same objective faster.
    {common}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    ``components_`` is H = Uᵀ; ``inverse_transform`` applies S. In (3) of the paper, C should be c x
    l, with C_ij = 1 if sample j has class i. The sparseness of H differs from that of HA.

    ======  ==========  ==================================
    paper   Partwise    meaning
    ======  ==========  ==================================
    V       Xᵀ          data, features x samples
    W       U           basis
    S       S           smoothing
    H       Zᵀ          free part weights
    A       Aᵀ          label matrix, never built
    HA      Vᵀ          representation
    δ       smoothing   strength of the smoothing
    ======  ==========  ==================================

    References
    ----------
    Z. Yang, Y. Zhang, Y. Xiang, W. Yan, S. Xie: Non-negative matrix factorization with dual
    constraints for image clustering, IEEE TSMC 2018, (5), (15) and (17).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import NMFDC
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> y[20:] = -1
    >>> model = NMFDC(random_state=0).fit(X, y)
    >>> model.embedding_.shape
    (537, 3)
    """

    smoothing: float = 0.5
    inner_iter: int = 10
    solver: str = "auto"

    _parameter_constraints = {"solver": [StrOptions({"auto", "nesterov", "hals", "mu"})]}

    beta_loss = "frobenius"

    hard_labels = True


@estimator
class NSNMF(LossParameters, CommonParameters, ConstrainedFactorizer):
    r"""Non-smooth NMF: smoothing between the factors forces sparseness into both.

    .. math:: \min_{V,U\ge0}\ d(X,\ V S U^T), \qquad S = (1-\delta) I + \tfrac\delta k 11^T

    The loss d is half the squared Frobenius norm or the Kullback-Leibler divergence. X must be
    non-negative.

    Parameters
    ----------
    {n_components}
    smoothing : float, default=0.5
        δ in [0, 1]. Larger values give sparser factors; 0 is `NMF`.
    {beta_loss}
    {solver}
    {common}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    ``components_`` is H = Uᵀ; ``inverse_transform`` applies S. V, W, S, H and θ of
    the paper are Xᵀ, U, S, Vᵀ and ``smoothing``.

    References
    ----------
    A. Pascual-Montano, J. Carazo, K. Kochi, D. Lehmann, R. Pascual-Marqui: Nonsmooth nonnegative
    matrix factorization (nsNMF), IEEE PAMI 28(3), 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import NSNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = NSNMF(n_components=3, random_state=0).fit(X)
    >>> model.inverse_transform(model.embedding_).shape
    (537, 64)
    """

    smoothing: float = 0.5
