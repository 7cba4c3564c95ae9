"""LpCNMF: samples mix the codes of their classes, by probabilities that spread over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise._sklearn import StrOptions
from partwise.estimators._base import GraphFactorizer
from partwise.estimators._parameters import (
    GraphParameters,
    LoopParameters,
    LossParameters,
    estimator,
)
from partwise.fitting import Description


@estimator
class LpCNMF(GraphParameters, LossParameters, LoopParameters, GraphFactorizer):
    r"""Label propagation constrained NMF: samples mix the codes of their classes by probability.

    .. math:: \min_{Z,U\ge0}\ \tfrac12\|X - A Z U^T\|^2, \qquad V = A Z

    where a row of A holds the probabilities of a sample's classes: those in y, or for a sample
    without a label those that the labels of its neighbours give it,

    .. math:: a_i = \sum_j w_{ij} a_j \Big/ \sum_j w_{ij},

    over a neighbour graph W. A sample that no label reaches has a code of its own. Under
    Kullback-Leibler the same with the divergence. X must be >= 0 and in memory.

    With certain labels and ``propagate=False`` it is `CNMF`. Elsewhere AᵀA is not diagonal: rows of
    Z that belong to classes are joined. Since rows of A add up to one, AᵀA is not above the
    diagonal matrix of its row sums, and all steps descend by that bound: "mu", "hals" and
    "nesterov" for Frobenius. Under Kullback-Leibler "mu" does; "newton" is refused, since it needs
    rows of X for each row of Z. Links and weights of entries are refused.

    Parameters
    ----------
    {n_components}
    propagate : bool, default=True
        Let labels spread over the graph. False: only samples with a label mix, by the
        probabilities in y.
    fixed_components, seed_components : array-like of shape (m, n_features), default=None
        Parts that are known, or where parts begin, as in `NMF`.
    checkpoint : path, default=None
        A folder from which an interrupted fit goes on, as in `NMF`.
    {graph}
    beta_loss : {"frobenius", "kullback-leibler"}, default="frobenius"
        The loss.
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        "mu" is the multiplicative update of the paper, "hals" ("auto") and "nesterov" minimise the
        same objective faster. Kullback-Leibler has "mu" only.
    {loop}

    Attributes
    ----------
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Probabilities of the classes of each sample, the rows of A; NaN for a sample that has a
        code of its own.
    {attributes}

    References
    ----------
    X. Zhu, Z. Ghahramani, J. Lafferty: Semi-supervised learning using Gaussian fields and harmonic
    functions, ICML 2003 (how labels spread). H. Liu, Z. Wu: Non-negative matrix factorization with
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

    def _describe(self) -> Description:
        return replace(super()._describe(), local=True, hard_labels=True, mixed_labels=True)
