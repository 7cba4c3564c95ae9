"""LpCNMF, which propagates labels over a graph and mixes part weights of classes."""

from __future__ import annotations

from typing import Any

from partwise._sklearn import StrOptions
from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import (
    GraphParameters,
    LoopParameters,
    LossParameters,
    estimator,
)


@estimator
class LpCNMF(GraphParameters, LossParameters, LoopParameters, GraphFactorizer):
    r"""Label propagation constrained NMF: samples mix the part weights of classes.

    .. math:: \min_{Z,U\ge0}\ \tfrac12\|X - A Z U^T\|^2, \qquad V = A Z

    Each row of A contains the class probabilities of a sample. They are those in y. An unlabelled
    sample gets them from the labels of its neighbours,

    .. math:: a_i = \sum_j w_{ij} a_j \Big/ \sum_j w_{ij},

    over a neighbour graph W. A sample that no label reaches has its own row of Z. The
    Kullback-Leibler loss replaces the squares. X must be non-negative and in memory.

    With certain labels and ``propagate=False`` it is `CNMF`. Otherwise AᵀA is not diagonal, and the
    rows of Z that belong to classes are coupled. The rows of A sum to one, so the diagonal matrix
    of the row sums of AᵀA is an upper bound of AᵀA. All solvers descend by this bound.
    Kullback-Leibler supports only "mu", because "newton" needs rows of X for each row of Z. `fit`
    refuses links and entry weights.

    Parameters
    ----------
    {n_components}
    propagate : bool, default=True
        Spread the labels over the graph. If False, only labelled samples mix part weights, by
        the probabilities in y.
    fixed_components, seed_components : array-like of shape (m, n_features), default=None
        Components that are known and stay fixed, or that start the fit, as in `NMF`.
    checkpoint : path, default=None
        A folder that stores the state of the fit, so that an interrupted fit continues, as in
        `NMF`.
    {graph}
    beta_loss : {"frobenius", "kullback-leibler"}, default="frobenius"
        The loss to minimise.
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        "mu" is the multiplicative update of the paper. "hals" ("auto") and "nesterov" minimise the
        same objective faster. Kullback-Leibler supports only "mu".
    {loop}

    Attributes
    ----------
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Class probabilities of each sample, the rows of A; NaN for a sample that no label
        reaches.
    {attributes}

    References
    ----------
    X. Zhu, Z. Ghahramani, J. Lafferty: Semi-supervised learning using Gaussian fields and harmonic
    functions, ICML 2003 (label propagation). H. Liu, Z. Wu: Non-negative matrix factorization with
    constraints, AAAI 2010 (V = A Z).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import LpCNMF
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> known = y.copy()
    >>> known[20:] = -1
    >>> model = LpCNMF(random_state=0).fit(X, known)
    >>> bool((model.label_distributions_.argmax(axis=1) == y).mean() > 0.9)
    True
    """

    propagate: bool = True
    fixed_components: Any = None
    seed_components: Any = None
    checkpoint: Any = None

    _parameter_constraints = {
        "propagate": ["boolean"],
        "beta_loss": [StrOptions({"frobenius", "kullback-leibler"})],
    }

    local = hard_labels = mixed_labels = True
