"""LpCNMF: samples mix the codes of their classes, by probabilities that spread over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partwise._sklearn import StrOptions
from partwise.estimators._base import GRAPH_CONSTRAINTS, GraphFactorizer
from partwise.estimators._docstrings import documented
from partwise.fitting import Description

#: Parameters of the others that it does without.
ABSENT = ("device", "missing_values", "must_link_reg", "cannot_link_reg")


@documented
class LpCNMF(GraphFactorizer):
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
    {graph}
    beta_loss : {"frobenius", "kullback-leibler"}, default="frobenius"
        The loss.
    solver : {"auto", "mu", "hals", "nesterov"}, default="auto"
        "mu" is the multiplicative update of the paper, "hals" ("auto") and "nesterov" minimise the
        same objective faster. Kullback-Leibler has "mu" only.
    init : str, default=None
        Start, as in `NMF`.
    n_init : int, default=1
        Number of starts; the one with the lowest objective is kept.
    max_iter : int, default=200
        Most iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    n_clusters : int, default=None
        Clusters of `cluster_labels_`. None: the classes in y, else k.
    fixed_components, seed_components : array-like of shape (m, n_features), default=None
        Parts that are known, or where parts begin, as in `NMF`.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0
    checkpoint : path, default=None
        A folder from which an interrupted fit goes on, as in `NMF`.

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

    _parameter_constraints: dict[str, Any] = {
        **{k: v for k, v in GraphFactorizer._parameter_constraints.items() if k not in ABSENT},
        **{k: v for k, v in GRAPH_CONSTRAINTS.items() if k != "graph_reg"},
        "propagate": ["boolean"],
        "beta_loss": [StrOptions({"frobenius", "kullback-leibler"})],
    }

    def __init__(
        self,
        n_components: Any = "auto",
        *,
        propagate: bool = True,
        n_neighbors: int = 5,
        weighting: str = "binary",
        bandwidth: float | None = None,
        beta_loss: str = "frobenius",
        solver: str = "auto",
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_clusters: int | None = None,
        fixed_components: Any = None,
        seed_components: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
    ) -> None:
        self.n_components = n_components
        self.propagate = propagate
        self.n_neighbors = n_neighbors
        self.weighting = weighting
        self.bandwidth = bandwidth
        self.beta_loss = beta_loss
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.fixed_components = fixed_components
        self.seed_components = seed_components
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _describe(self) -> Description:
        return replace(super()._describe(), local=True, hard_labels=True, mixed_labels=True)
