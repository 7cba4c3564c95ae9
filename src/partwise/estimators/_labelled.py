"""Bases of the estimators that take labels or a graph: what `fit` and `predict` are told."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from partwise._sklearn import Interval, StrOptions
from partwise.backends.arrays import own
from partwise.backends.numeric import Array
from partwise.estimators._clustering import GroupedFactorizer
from partwise.estimators._docstrings import documented
from partwise.fitting import fit
from partwise.fitting.callbacks import with_callbacks

GRAPH_CONSTRAINTS: dict[str, Any] = {
    "graph_reg": [Interval(Real, 0, None, closed="left")],
    "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    "weighting": [StrOptions({"binary", "heat", "dot"})],
    "bandwidth": [Interval(Real, 0, None, closed="neither"), None],
}
SCALE_CONSTRAINTS: dict[str, Any] = {"scale": [StrOptions({"unit", "paper"})]}
CLASS_CONSTRAINTS: dict[str, Any] = {
    "class_reg": [Interval(Real, 0, None, closed="left"), None],
    "components_per_class": [Interval(Integral, 1, None, closed="left")],
}


@documented
class ConstrainedFactorizer(GroupedFactorizer):
    """Base of the estimators that take labels."""

    _parameter_constraints: dict[str, Any] = {
        **GroupedFactorizer._parameter_constraints,
        "beta_loss": [StrOptions({"frobenius", "kullback-leibler", "l21"})],
    }
    scale = "unit"

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        entry_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        W: Any = None,
        H: Any = None,
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            Labels in any order; -1, None or NaN where unknown. Or probabilities of the classes,
            which add up to one; a row of NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss.
        entry_weight : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Weights >= 0 of the entries in the loss; 0 is an entry not seen.
        must_link, cannot_link : array-like of shape (m, 2), default=None
            Pairs (i, j) of samples, by position in X, that belong together or apart.
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        fit(self, X, y, **given)
        return self

    @with_callbacks
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        *,
        sample_weight: Any = None,
        entry_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        return own(fit(self, X, y, **given))


@documented
class GraphFactorizer(ConstrainedFactorizer):
    """Base of the estimators that take a graph and sample weights."""

    @with_callbacks
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        graph: Any = None,
        sample_weight: Any = None,
        entry_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        W: Any = None,
        H: Any = None,
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            Labels in any order; -1, None or NaN where unknown. Or probabilities of the classes,
            which add up to one; a row of NaN where unknown.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            A symmetric non-negative neighbour graph; None builds one where the model uses it.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss.
        entry_weight : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            Weights >= 0 of the entries in the loss; 0 is an entry not seen.
        must_link, cannot_link : array-like of shape (m, 2), default=None
            Pairs (i, j) of samples, by position in X, that belong together or apart.
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        fit(self, X, y, graph=graph, **given)
        return self

    @with_callbacks
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        W: Any = None,
        H: Any = None,
        *,
        graph: Any = None,
        sample_weight: Any = None,
        entry_weight: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        return own(fit(self, X, y, graph=graph, **given))

    def transform(self, X: Any, *, graph: Any = None) -> Array:
        r"""Code new samples beside their neighbours, with the basis fixed.

        .. math:: \min_{v\ge0}\ \tfrac12\|x - USv\|^2
                  + \tfrac\lambda2 \sum_j w_j \|v - v_j\|^2

        over the ``n_neighbors`` training samples j nearest to x, with the weights of the training
        graph (its bandwidth, for heat). Under Kullback-Leibler it is
        :math:`D(x\,\|\,USv) + \lambda \sum_j w_j D(v_j\,\|\,v)`, whose solutions are the fixed
        points of GNMF (21) with the neighbours held. A sample that equals one of the fit keeps the
        neighbours it has there. Labels play no part.

        For this the model keeps the training samples and their graph: a copy of X (sparse as it
        came, an ndarray for a tensor), also in its file; for a memmap the map itself, which only
        a file copies; for a Dask array 512 bytes a sample and 128 directions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        graph : sparse matrix of shape (n_samples, n_training_samples), default=None
            Weights between new samples and those of the fit. Needed where the fit was given a
            graph; elsewhere it takes the place of the search for neighbours.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X, graph=graph)

    def predict(self, X: Any, *, graph: Any = None) -> Array:
        """The class of each new sample, or its cluster where the fit had no labels.

        As in `CNMF`; ``graph`` as in `transform`.
        """
        return self._predict(X, graph=graph)

    def predict_confidence(self, X: Any, *, graph: Any = None) -> Array:
        """How clear `predict` is about each new sample, in [0, 1]; as in `CNMF`."""
        return self._predict_confidence(X, graph=graph)

    def score(self, X: Any, y: Any = None, *, graph: Any = None) -> float:
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        return self._score(X, graph=graph)
