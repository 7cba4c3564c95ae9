"""Base classes of the estimators: fitting, transforming, clustering and predicting."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import StrOptions
from partwise.backends.arrays import AnyArray, own, to_numpy

# Modules that a fit needs are imported here, not inside of functions. If another thread imports a
# module while the process forks, the import lock stays locked in the child process.
from partwise.backends.numpy.kernels import (  # noqa: F401
    divergence,
    hals,
    narrow,
    pivot,
    products,
    sampled,
    sums,
    symmetric_sweep,
)
from partwise.estimators._docstrings import documented
from partwise.estimators._parameters import CONSTRAINTS
from partwise.evaluation.groups import Groups
from partwise.evaluation.kmeans import Clustering
from partwise.fitting import Description, fit
from partwise.fitting.callbacks import CallbackSupportMixin, with_callbacks
from partwise.fitting.checking import check_codes
from partwise.fitting.new_samples import code
from partwise.knowledge.doubts import Doubt


@documented
@dataclass(eq=False, repr=False)
class Factorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator
):
    """Base class of estimators that approximate X by V S Uᵀ.

    The method `_describe` of a subclass defines the objective.
    """

    n_components: Any = "auto"

    _parameter_constraints = CONSTRAINTS
    # Values for estimators that do not have these parameters.
    verbose = 0
    max_iter = Description.max_iter
    device = Description.device
    missing_values = Description.missing_values

    def _describe(self) -> Description:
        """Return the `Description` of the objective, built from the parameters.

        Subclasses replace the fields that are not parameters.
        """
        names = [f.name for f in fields(Description) if hasattr(self, f.name)]
        return Description(type(self).__name__, **{name: getattr(self, name) for name in names})

    def fit_transform(
        self, X: Any, y: Any = None, W: Any = None, H: Any = None, **fit_params: Any
    ) -> AnyArray:
        """Fit the model and return the part weights of the training samples."""
        start = {"W": W, "H": H}
        fit_params |= {name: factor for name, factor in start.items() if factor is not None}
        return own(self.fit(X, y, **fit_params).embedding_)

    def transform(self, X: Any) -> AnyArray:
        """Compute the part weights V >= 0 of new samples.

        Parameters
        ----------
        {samples}

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X)

    def _plain_transform(self, X: Any, graph: Any = None) -> AnyArray:
        """Return the result of `transform` without the container of ``set_output``."""
        check_is_fitted(self)
        return code(self, X, graph).codes

    def inverse_transform(self, X: Any) -> AnyArray:
        """Compute V S H, the reconstruction of samples from their part weights.

        Parameters
        ----------
        X : {ndarray, sparse matrix} of shape (n_samples, n_components)
            Part weights V.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        H, delta = self.components_, self._describe().smoothing
        if delta:
            H = (1 - delta) * H + delta * H.mean(axis=0, keepdims=True)
        return check_codes(X, self._n_features_out) @ H

    def score(self, X: Any, y: Any = None) -> float:
        """Compute minus the objective of `transform` per sample, including penalties.

        Higher is better. Use it to compare starts, solvers and numbers of components. It cannot
        compare weights of a penalty, because the smallest weight always scores best.
        """
        return self._score(X)

    def _score(self, X: Any, graph: Any = None) -> float:
        check_is_fitted(self)
        coded = code(self, X, graph)
        return -coded.value / coded.model.data.shape[0]

    def save(self, path: Any, *, recipe: Any = None) -> Any:
        """Write the model to a file that `partwise.load` reads.

        The file contains JSON and arrays, but no pickle, so loading it runs no code. With
        ``recipe=samples.recipe``, `partwise.io.read_samples` and ``partwise predict`` prepare new
        data in the same way as the training data.
        """
        from partwise.estimators import saving

        return saving.save(self, path, recipe=recipe)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing_values is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@documented
class Grouped(ClusterMixin):
    """Mixin that adds clusters of `embedding_` and predicted labels to an estimator.

    They are computed on first access.
    """

    embedding_: Any
    _groups: Groups
    _plain_transform: Any

    def _asked(self, name: str) -> Groups:
        """Return the stored clustering settings; raise an error before a fit.

        ``name`` is the attribute that the user accessed.
        """
        if "_groups" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name}: call fit first.")
        return self._groups

    @property
    def labels_(self) -> AnyArray:
        """Predicted class of each training sample, or its cluster if there are no labels."""
        return self._asked("labels_").names(self.embedding_)

    @property
    def label_confidence_(self) -> AnyArray:
        """Confidence of `labels_`, in [0, 1]."""
        return self._asked("label_confidence_").confidence(self.embedding_)

    @property
    def doubtful_labels_(self) -> list[Doubt]:
        """Given labels that the other samples contradict, the most doubtful first.

        Logistic regression on the part weights, fitted without a label, predicts that label. The
        label is listed if it is more likely wrong than correct. The list is empty if no class has
        two labels.
        """
        return self._asked("doubtful_labels_").doubts(self.embedding_)

    @property
    def clustering_(self) -> Clustering:
        """Clusters of k-means on the part weights, with centres and names."""
        return self._asked("clustering_").clustering(self.embedding_)

    @property
    def cluster_labels_(self) -> AnyArray:
        """Cluster of each training sample, ``clustering_.labels``."""
        return self._asked("cluster_labels_").clustering(self.embedding_).labels

    @property
    def n_clusters_(self) -> int:
        """Number of clusters that k-means found."""
        return int(self._asked("n_clusters_").clustering(self.embedding_).centers.shape[0])

    @property
    def component_classes_(self) -> AnyArray:
        """Class of each component: its own class, or the class that uses it most."""
        found = self._asked("component_classes_").part_classes(self.embedding_)
        if found is None:
            raise AttributeError("component_classes_ needs a fit with labels.")
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if "classes_" in vars(self):  # a fit with labels predicts classes
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> AnyArray:
        """Fit the model and return `labels_`."""
        return self.fit(X, y, **fit_params).labels_

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of new samples, or their cluster if the fit had no labels.

        The part weights are those of `transform`. With labels of two or more classes, logistic
        regression on part weights predicts the class; it was fitted to labelled samples whose part
        weights do not depend on their labels. Without labels, the cluster is that of the nearest
        centre.
        """
        return self._predict(X)

    def _predict(self, X: Any, **given: Any) -> AnyArray:
        new = self._codes_here(X, **given)
        return self._groups.predict(self.embedding_, new)

    def predict_confidence(self, X: Any) -> AnyArray:
        """Compute the confidence of `predict`, in [0, 1]; it is not a probability.

        With labels, it is the difference of the two largest class probabilities. Without labels,
        it is (d₂ - d₁)/(d₂ + d₁) for the distances d₁ and d₂ to the two nearest centres.
        """
        return self._predict_confidence(X)

    def _predict_confidence(self, X: Any, **given: Any) -> AnyArray:
        new = self._codes_here(X, **given)
        return self._groups.predict_confidence(self.embedding_, new)

    def _codes_here(self, X: Any, **given: Any) -> AnyArray:
        """Return the part weights of new samples as an ndarray."""
        check_is_fitted(self)
        return np.asarray(to_numpy(self._plain_transform(X, **given)))


@documented
class GroupedFactorizer(Grouped, Factorizer):
    """Base class of estimators that can predict classes from labels in y."""

    labelled = True

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, W: Any = None, H: Any = None
    ) -> Any:
        """Learn components and part weights.

        Parameters
        ----------
        {samples}
        {labels}
        {sample_weight}
        {start} With hard labels, W is averaged within
            each class.

        Returns
        -------
        self
        """
        fit(self, X, y, W=W, H=H, sample_weight=sample_weight)
        return self


@documented
class ConstrainedFactorizer(GroupedFactorizer):
    """Base class of estimators whose factorization can use labels and links."""

    _parameter_constraints = {
        **CONSTRAINTS,
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
        """Learn components and part weights.

        Parameters
        ----------
        {samples}
        {labels}
        {sample_weight}
        {entry_weight}
        {links}
        {start} With hard labels, W is averaged within
            each class.

        Returns
        -------
        self
        """
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        fit(self, X, y, **given)
        return self


@documented
class GraphFactorizer(ConstrainedFactorizer):
    """Base class of estimators that can use a neighbour graph of the samples."""

    @with_callbacks
    def fit(
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
        """Learn components and part weights.

        Parameters
        ----------
        {samples}
        {labels}
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            A symmetric non-negative neighbour graph. None builds one if the model uses it.
        {sample_weight}
        {entry_weight}
        {links}
        {start} With hard labels, W is averaged within
            each class.

        Returns
        -------
        self
        """
        given = {"W": W, "H": H, "sample_weight": sample_weight, "entry_weight": entry_weight}
        given |= {"must_link": must_link, "cannot_link": cannot_link}
        fit(self, X, y, graph=graph, **given)
        return self

    def transform(self, X: Any, *, graph: Any = None) -> AnyArray:
        r"""Compute the part weights of new samples, which depend on their neighbours.

        .. math:: \min_{v\ge0}\ \tfrac12\|x - USv\|^2
                  + \tfrac\lambda2 \sum_j w_j \|v - v_j\|^2

        over the ``n_neighbors`` training samples j nearest to x, with the weights of the training
        graph (and its bandwidth, for heat weights). For Kullback-Leibler the objective is
        :math:`D(x\,\|\,USv) + \lambda \sum_j w_j D(v_j\,\|\,v)`, whose solutions are the fixed
        points of GNMF (21) with the neighbours fixed. A sample that equals a training sample has
        its neighbours. Labels are not used.

        The model therefore stores the training samples and their graph, also in its file. A
        tensor is stored as ndarray, a memmap as the map itself (a file holds a copy), and a Dask
        array as 512 bytes per sample and 128 directions.

        Parameters
        ----------
        {samples}
        graph : sparse matrix of shape (n_samples, n_training_samples), default=None
            Weights between new samples and training samples. Required if `fit` was given a graph;
            otherwise it replaces the search for neighbours.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X, graph=graph)

    def predict(self, X: Any, *, graph: Any = None) -> AnyArray:
        """Predict the class of new samples, or their cluster if the fit had no labels.

        The method is that of `CNMF.predict`; ``graph`` is the same as in `transform`.
        """
        return self._predict(X, graph=graph)

    def predict_confidence(self, X: Any, *, graph: Any = None) -> AnyArray:
        """Compute the confidence of `predict`, in [0, 1], as in `CNMF`."""
        return self._predict_confidence(X, graph=graph)

    def score(self, X: Any, y: Any = None, *, graph: Any = None) -> float:
        """Compute minus the objective of `transform` per sample, including penalties.

        Higher is better. Use it to compare starts, solvers and numbers of components. It cannot
        compare weights of a penalty, because the smallest weight always scores best.
        """
        return self._score(X, graph=graph)
