"""What estimators with clusters and class decisions offer beside the codes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from partwise.engine.arrays import own, to_numpy
from partwise.engine.numeric import Array
from partwise.estimators._base import Factorizer
from partwise.estimators._callbacks import with_callbacks
from partwise.evaluation.cluster import Clustering
from partwise.evaluation.groups import Groups
from partwise.knowledge.graph.neighborhood import Neighborhood
from partwise.knowledge.labels import Labels, encode_labels


class Grouped:
    """Mixin: clusters of `embedding_` and, with labels, class decisions; made when asked for."""

    embedding_: Any
    random_state: Any
    _groups: Groups
    _plain_transform: Any

    def _seed(self) -> int:
        """For what is random beside the start, so that the start's own numbers stay the same."""
        return int(self.random_state) if isinstance(self.random_state, Integral) else 0

    def _asked(self, name: str) -> Groups:
        if "_groups" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name}: call fit first.")
        return self._groups

    @property
    def labels_(self) -> Array:
        """The class of each training sample, or its cluster where there are no labels."""
        return self._asked("labels_").names(self.embedding_)

    @property
    def label_confidence_(self) -> Array:
        """How clear `labels_` are, in [0, 1]."""
        return self._asked("label_confidence_").confidence(self.embedding_)

    @property
    def clustering_(self) -> Clustering:
        """k-means on the codes, with centres and names."""
        return self._asked("clustering_").clustering(self.embedding_)

    @property
    def cluster_labels_(self) -> Array:
        """The cluster of each training sample: `clustering_.labels`."""
        return self._asked("cluster_labels_").clustering(self.embedding_).labels

    @property
    def n_clusters_(self) -> int:
        """The clusters that k-means found."""
        return int(self._asked("n_clusters_").clustering(self.embedding_).centers.shape[0])

    @property
    def component_classes_(self) -> Array:
        """The class of each part: the one it was made for, or the one that uses it most."""
        found = self._asked("component_classes_").part_classes(self.embedding_)
        if found is None:
            raise AttributeError("component_classes_ needs labels.")
        return found

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """`fit`, and return `labels_`."""
        return self.fit(X, y, **fit_params).labels_  # type: ignore[attr-defined]

    def predict(self, X: Any) -> Array:
        """The class of each new sample, or its cluster where the fit had no labels.

        New samples are coded as `transform` does. With labels of two classes or more, logistic
        regression on the codes decides; it was learnt on the labelled samples, coded as if they
        had no label. Without labels the closest centre does.
        """
        return self._predict(X)

    def _predict(self, X: Any, **given: Any) -> Array:
        new = self._codes_here(X, **given)
        return self._groups.predict(self.embedding_, new)

    def predict_confidence(self, X: Any) -> Array:
        """How clear `predict` is about each new sample, in [0, 1]; no probability.

        With labels by how much the likeliest class leads the next; without, the margin
        (d₂ - d₁)/(d₂ + d₁) between the two closest centres.
        """
        return self._predict_confidence(X)

    def _predict_confidence(self, X: Any, **given: Any) -> Array:
        new = self._codes_here(X, **given)
        return self._groups.predict_confidence(self.embedding_, new)

    def _codes_here(self, X: Any, **given: Any) -> Array:
        """`transform` as an ndarray."""
        check_is_fitted(self)
        return np.asarray(to_numpy(self._plain_transform(X, **given)))


@dataclass(frozen=True)
class Knowledge:
    """What a person said about the samples: labels and a graph, checked."""

    labels: Labels | None
    neighbors: Neighborhood | None = None

    @property
    def graph(self) -> sp.csr_array | None:
        return None if self.neighbors is None else self.neighbors.graph

    @property
    def n_classes(self) -> int:
        return 0 if self.labels is None else self.labels.n_classes


class GroupedFactorizer(Grouped, Factorizer):
    """Base of the estimators that take labels, be it only to say what the groups are."""

    _parameter_constraints: dict[str, Any] = {
        **Factorizer._parameter_constraints,
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
    }

    def _prepare(self, X: Any, y: Any, **given: Any) -> Knowledge:
        return Knowledge(encode_labels(y, X.shape[0]))

    def _per_class(self) -> int:
        """Parts of each class, where their number comes from the labels."""
        return 1

    def _n_parts(self, X: Any, H: Any, extra: Any) -> int:
        given = self.init == "custom" and H is not None
        if self.n_components == "auto" and not given and extra is not None and extra.n_classes:
            return extra.n_classes * self._per_class()
        return super()._n_parts(X, H, extra)

    def _store(self, model: Any, solution: Any, solver: str, k: int, extra: Any) -> Array:
        V = super()._store(model, solution, solver, k, extra)
        self._set_groups(extra, k)
        if model.weights is not None:
            self._groups.weights = np.asarray(to_numpy(model.weights), dtype=np.float64)
        return V

    def _set_groups(self, extra: Knowledge, k: int) -> None:
        """What `labels_` and `predict` need; they do their work when they are asked."""
        labels = extra.labels
        self.__dict__.pop("classes_", None)
        if labels is not None:
            self.classes_ = labels.classes
            if k < labels.n_classes:
                warnings.warn(
                    f"{type(self).__name__} has {k} parts for {labels.n_classes} classes: classes "
                    "share parts and are told apart by how much they use of each.",
                    UserWarning,
                    stacklevel=7,
                )
        size = self.n_clusters or extra.n_classes or k
        self._groups = Groups(int(size), self._seed(), labels)

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, W: Any = None, H: Any = None
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,), default=None
            Labels in any order; -1, None or NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss.
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        self._fit(X, y, W, H, sample_weight)
        return self

    @with_callbacks
    def fit_transform(
        self, X: Any, y: Any = None, W: Any = None, H: Any = None, *, sample_weight: Any = None
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        return own(self._fit(X, y, W, H, sample_weight))
