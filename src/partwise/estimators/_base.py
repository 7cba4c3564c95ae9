"""What all estimators share: parameters, and what is done with a fitted one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
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

# What a fit needs is imported here: a module that another thread imports during a fork stays
# locked in the child for ever.
from partwise.backends.numpy.kernels import narrow, sampled, symmetric_sweep  # noqa: F401
from partwise.estimators._docstrings import documented
from partwise.estimators._parameters import CONSTRAINTS
from partwise.evaluation.groups import Groups
from partwise.evaluation.kmeans import Clustering
from partwise.fitting import Description, fit
from partwise.fitting.callbacks import CallbackSupportMixin, with_callbacks
from partwise.fitting.checking.arrays import check_codes
from partwise.fitting.new_samples import code
from partwise.knowledge.doubts import Doubt


@documented
@dataclass(eq=False, repr=False)
class Factorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator
):
    """Base of the estimators X ≈ V S Uᵀ. A subclass says what it minimises: `_describe`."""

    n_components: Any = "auto"

    _parameter_constraints = CONSTRAINTS
    # for estimators that have no such parameter; those that do set it in their constructor
    verbose = 0
    max_iter = Description.max_iter
    device = Description.device
    missing_values = Description.missing_values

    def _describe(self) -> Description:
        """What is minimised and how; a subclass replaces what its parameters do not say."""
        names = [f.name for f in fields(Description) if hasattr(self, f.name)]
        return Description(type(self).__name__, **{name: getattr(self, name) for name in names})

    def fit_transform(
        self, X: Any, y: Any = None, W: Any = None, H: Any = None, **fit_params: Any
    ) -> AnyArray:
        """`fit`, and return the codes of the training samples."""
        start = {"W": W, "H": H}
        fit_params |= {name: factor for name, factor in start.items() if factor is not None}
        return own(self.fit(X, y, **fit_params).embedding_)

    def transform(self, X: Any) -> AnyArray:
        """Code new samples: V >= 0 with the basis fixed.

        Parameters
        ----------
        {samples}

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X)

    def _plain_transform(self, X: Any, graph: Any = None) -> AnyArray:
        """`transform` without the wrapping of set_output."""
        check_is_fitted(self)
        return code(self, X, graph).codes

    def inverse_transform(self, X: Any) -> AnyArray:
        """V back to the samples' space: V S H.

        Parameters
        ----------
        X : {ndarray, sparse matrix} of shape (n_samples, n_components)

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
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        return self._score(X)

    def _score(self, X: Any, graph: Any = None) -> float:
        check_is_fitted(self)
        coded = code(self, X, graph)
        return -coded.value / coded.model.data.shape[0]

    def save(self, path: Any, *, recipe: Any = None) -> Any:
        """Write the model to a file, for `partwise.load`: JSON and arrays, no pickle.

        With ``recipe=samples.recipe``, `partwise.io.read_samples` and ``partwise predict`` prepare
        new data as the training data were prepared.
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
    """Mixin: clusters of `embedding_` and, with labels, class decisions; made when asked for."""

    embedding_: Any
    _groups: Groups
    _plain_transform: Any

    def _asked(self, name: str) -> Groups:
        if "_groups" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name}: call fit first.")
        return self._groups

    @property
    def labels_(self) -> AnyArray:
        """The class of each training sample, or its cluster where there are no labels."""
        return self._asked("labels_").names(self.embedding_)

    @property
    def label_confidence_(self) -> AnyArray:
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
    def cluster_labels_(self) -> AnyArray:
        """The cluster of each training sample: `clustering_.labels`."""
        return self._asked("cluster_labels_").clustering(self.embedding_).labels

    @property
    def n_clusters_(self) -> int:
        """The clusters that k-means found."""
        return int(self._asked("n_clusters_").clustering(self.embedding_).centers.shape[0])

    @property
    def component_classes_(self) -> AnyArray:
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

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> AnyArray:
        """`fit`, and return `labels_`."""
        return self.fit(X, y, **fit_params).labels_

    def predict(self, X: Any) -> AnyArray:
        """The class of each new sample, or its cluster where the fit had no labels.

        New samples are coded as `transform` does. With labels of two classes or more, logistic
        regression on the codes decides; it was learnt on the labelled samples, coded as if they
        had no label. Without labels the closest centre does.
        """
        return self._predict(X)

    def _predict(self, X: Any, **given: Any) -> AnyArray:
        new = self._codes_here(X, **given)
        return self._groups.predict(self.embedding_, new)

    def predict_confidence(self, X: Any) -> AnyArray:
        """How clear `predict` is about each new sample, in [0, 1]; no probability.

        With labels by how much the likeliest class leads the next; without, the margin
        (d₂ - d₁)/(d₂ + d₁) between the two closest centres.
        """
        return self._predict_confidence(X)

    def _predict_confidence(self, X: Any, **given: Any) -> AnyArray:
        new = self._codes_here(X, **given)
        return self._groups.predict_confidence(self.embedding_, new)

    def _codes_here(self, X: Any, **given: Any) -> AnyArray:
        """`transform` as an ndarray."""
        check_is_fitted(self)
        return np.asarray(to_numpy(self._plain_transform(X, **given)))


@documented
class GroupedFactorizer(Grouped, Factorizer):
    """Base of the estimators that take labels, be it only to say what the groups are."""

    def _describe(self) -> Description:
        return replace(super()._describe(), labelled=True)

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, *, sample_weight: Any = None, W: Any = None, H: Any = None
    ) -> Any:
        """Learn parts and codes.

        Parameters
        ----------
        {samples}
        {labels}
        {sample_weight}
        {start} A start that breaks hard labels is averaged within
            each class.

        Returns
        -------
        self
        """
        fit(self, X, y, W=W, H=H, sample_weight=sample_weight)
        return self


@documented
class ConstrainedFactorizer(GroupedFactorizer):
    """Base of the estimators that take labels."""

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
        """Learn parts and codes.

        Parameters
        ----------
        {samples}
        {labels}
        {sample_weight}
        {entry_weight}
        {links}
        {start} A start that breaks hard labels is averaged within
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
    """Base of the estimators that take a graph and sample weights."""

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
        """Learn parts and codes.

        Parameters
        ----------
        {samples}
        {labels}
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            A symmetric non-negative neighbour graph; None builds one where the model uses it.
        {sample_weight}
        {entry_weight}
        {links}
        {start} A start that breaks hard labels is averaged within
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
        {samples}
        graph : sparse matrix of shape (n_samples, n_training_samples), default=None
            Weights between new samples and those of the fit. Needed where the fit was given a
            graph; elsewhere it takes the place of the search for neighbours.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X, graph=graph)

    def predict(self, X: Any, *, graph: Any = None) -> AnyArray:
        """The class of each new sample, or its cluster where the fit had no labels.

        As in `CNMF`; ``graph`` as in `transform`.
        """
        return self._predict(X, graph=graph)

    def predict_confidence(self, X: Any, *, graph: Any = None) -> AnyArray:
        """How clear `predict` is about each new sample, in [0, 1]; as in `CNMF`."""
        return self._predict_confidence(X, graph=graph)

    def score(self, X: Any, y: Any = None, *, graph: Any = None) -> float:
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        return self._score(X, graph=graph)
