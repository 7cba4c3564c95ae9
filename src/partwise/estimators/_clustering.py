"""What estimators with clusters and class decisions offer beside the codes."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import Interval
from partwise.backends.arrays import own, to_numpy
from partwise.backends.numeric import Array
from partwise.estimators._base import Factorizer
from partwise.estimators._docstrings import documented
from partwise.evaluation.groups import Groups
from partwise.evaluation.kmeans import Clustering
from partwise.fitting import Description, fit
from partwise.fitting.callbacks import with_callbacks
from partwise.knowledge.doubts import Doubt


@documented
class Grouped(ClusterMixin):
    """Mixin: clusters of `embedding_` and, with labels, class decisions; made when asked for."""

    embedding_: Any
    _groups: Groups
    _plain_transform: Any

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
    def doubtful_labels_(self) -> list[Doubt]:
        """Given labels that the rest contradicts, the most doubtful first.

        Each is judged by logistic regression on the codes, learnt without it, and listed where it
        is more likely wrong than right. Empty where no class has two labels.
        """
        return self._asked("doubtful_labels_").doubts(self.embedding_)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if "classes_" in vars(self):  # a fit with labels makes classes of what were clusters
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

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


@documented
class GroupedFactorizer(Grouped, Factorizer):
    """Base of the estimators that take labels, be it only to say what the groups are."""

    _parameter_constraints: dict[str, Any] = {
        **Factorizer._parameter_constraints,
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
    }

    def _describe(self) -> Description:
        return replace(super()._describe(), labelled=True)

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, W: Any = None, H: Any = None
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
        W, H : array-like, default=None
            The start, if ``init="custom"``. A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        fit(self, X, y, W=W, H=H, sample_weight=sample_weight)
        return self

    @with_callbacks
    def fit_transform(
        self, X: Any, y: Any = None, W: Any = None, H: Any = None, *, sample_weight: Any = None
    ) -> Array:
        """`fit`, and return the codes of the training samples."""
        return own(fit(self, X, y, W=W, H=H, sample_weight=sample_weight))
