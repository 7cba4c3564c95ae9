"""PartsClassifier: class labels for all samples from the labels of a few."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import Interval, StrOptions
from partwise.backends.arrays import AnyArray
from partwise.backends.threads import one_blas_thread
from partwise.classify.calibration import check_probabilities
from partwise.classify.compact import check_has_samples
from partwise.classify.edited_parts import EditedParts
from partwise.classify.ensemble import EnsembleFit, Key, Labelled
from partwise.classify.explain import Explained
from partwise.classify.features import Features, build_features, fingerprint
from partwise.classify.preparation import (
    check_also,
    check_drawn,
    check_labels,
    check_priors,
    check_samples,
    is_local,
    one_class_warning,
)
from partwise.estimators._docstrings import documented
from partwise.estimators._parameters import AT_LEAST_ONE, CONSTRAINTS
from partwise.fitting.knowledge_checks import check_sample_weights, compare_index
from partwise.knowledge.graph import check_graph
from partwise.knowledge.labels import Labels, as_ndarray

#: With more labels than this, the linear systems are large enough for BLAS to use all threads.
MANY_LABELS = 1000


@documented
@dataclass(eq=False, repr=False)
class PartsClassifier(
    EditedParts,
    Explained,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    BaseEstimator,
):
    r"""Semi-supervised classifier for few labels.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|P - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V),
        \qquad p(\text{class} \mid x) = \sum_h w_h\, p_h(\text{class} \mid x)

    The first step uses no labels. P is X prepared according to its values (counts, images, tables),
    L is the Laplacian of its neighbour graph, and V are the part weights. Up to 10,000 samples are
    also prepared in other ways, such as ranks of the columns, edges of images or frequencies of
    series, each with a separate graph. With more than 100,000 samples in memory, graph and parts
    come from 20,000 of them, and the others are joined to their nearest neighbours among these.

    The second step fits an ensemble of classifiers to the part weights, the data and both: logistic
    regression, Gaussian classes, label spreading, least squares and randomised trees. The weights
    w_h maximise the likelihood of held-out labels, and so do the temperatures that turn scores into
    probabilities. `candidates_` lists the classifiers. They give all classes equal weight; the
    calibration then makes frequent classes more probable if ``priors`` allows it.

    Parameters
    ----------
    n_parts : int or "auto", default="auto"
        Number of parts. "auto" uses 30 if there are enough samples.
    graph_reg : float, default=1.0
        Weight λ of the graph; larger values make the part weights of neighbours more similar.
    n_neighbors : int, default=5
        Number of neighbours of a sample in the graph.
    n_folds : int, default=5
        Number of folds of the cross-validation over labels.
    priors : {"estimated", "measured", "uniform"} or array-like, default="estimated"
        Shares of the classes among all samples. Labels of chosen samples do not show them.
        "estimated" estimates them from the predictions, which improves the accuracy. If held-out
        labels do not determine the shares, the estimate stays near equal shares, and nearer with
        fewer labels per class. "measured" counts the labels of samples that were drawn at random
        (see ``drawn`` of `fit`).
        "uniform" gives all classes equal shares, which improves the balanced accuracy. You can also
        pass the known shares of all classes, in the order of the sorted classes.
    max_iter : int, default=30
        Maximum number of iterations of the factorization. A larger value rarely changes the
        predictions.
    warm_start : bool, default=False
        Keep the graph and the part weights while X is the same, so that a fit with further labels
        takes milliseconds.
    random_state : int, RandomState or None, default=0
        Seed for folds, random subsets and singular vectors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    transduction_ : ndarray of shape (n_samples,)
        Class label of each training sample; labelled samples keep their label.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Class probabilities of the training samples. A given label does not set them to 0 or 1.
    candidates_ : list of Candidate
        Classifiers of the ensemble, each with name, held-out accuracy, log loss, weight, and the
        reason for the weight. A classifier whose scores are not finite has weight zero. The list
        prints as a table.
    expected_accuracy_ : Expected
        Expected accuracy on unlabelled samples with a 95% interval (``accuracy, low, high``), if
        they belong to labelled classes; NaN if no class has two labels. It prints as a sentence.
        ``balanced`` is the expected balanced accuracy.
    doubtful_labels_ : list of Doubt
        Given labels that contradict the other labels: sample, given label, suggested label and
        probability.
    others_found_ : float
        Share of labelled samples whose `outlyingness` is above 0.95 when the labels of their class
        are held out.
    weighting_ : dict
        Weights and temperatures of the classifiers, and the fitted classifiers that take long to
        fit. Pass it as ``relabel(y, weigh=...)``.
    embedding_ : ndarray of shape (n_samples, n_parts)
        Part weights V.
    components_ : ndarray of shape (n_parts, n_features)
        Parts Uᵀ. They have signs (high and low values) for signed data and tables.
    preparation_ : str
        Scale on which samples are compared: "tf-idf", "unit rows" or "columns".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from partwise import PartsClassifier
    >>> X, y = load_digits(n_class=5, return_X_y=True)
    >>> known = y.copy()
    >>> known[10:] = -1
    >>> model = PartsClassifier().fit(X, known)
    >>> bool(np.mean(model.transduction_ == y) > 0.9)
    True
    """

    n_parts: Any = "auto"
    _: KW_ONLY
    graph_reg: float = 1.0
    n_neighbors: int = 5
    n_folds: int = 5
    priors: Any = "estimated"
    max_iter: int = 30
    warm_start: bool = False
    random_state: Any = 0

    device: ClassVar[str | None] = None  # computations run where X is
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_parts": [AT_LEAST_ONE, StrOptions({"auto"})],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "priors": [StrOptions({"estimated", "measured", "uniform"}), "array-like"],
        "warm_start": ["boolean"],
    } | {
        name: CONSTRAINTS[name] for name in ("graph_reg", "n_neighbors", "max_iter", "random_state")
    }

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        also: Any = None,
        graph: Any = None,
        drawn: Any = None,
    ) -> PartsClassifier:
        """Learn parts from all samples and classes from the labelled ones.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any kind; -1, None or NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of the label of each sample.
        also : list of arrays, or mapping of names to arrays, default=None
            Further descriptions of the same samples, row by row, such as embeddings in addition to
            words. Each array gets separate classifiers, and held-out labels determine its weight.
            `predict` then needs the same arrays for new samples.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            Symmetric non-negative graph that replaces the neighbours in X, for example
            `graph.spatial_graph`. New samples still get neighbours in X.
        drawn : array-like of int or bool, default=None
            With ``priors="measured"``, the labelled samples that were drawn at random, as indices
            or a mask. None means all labelled samples.

        Returns
        -------
        self
        """
        self._validate_params()
        original, X = X, check_samples(self, X, reset=True)
        more = check_also(also, X)
        labels = check_labels(y, X.shape[0])
        compare_index(original, y)
        weights = np.ones(X.shape[0])
        if sample_weight is not None:
            weights = check_sample_weights(as_ndarray(sample_weight), X)
        seed = self._seed()
        random = check_drawn(drawn, self.priors, labels)
        self._learn_features(X, more, seed, original, graph)
        self._learn_classes(labels, weights, seed, self.n_folds, random)
        return self

    def prepare(self, X: Any, *, also: Any = None, graph: Any = None) -> PartsClassifier:
        """Learn the graph and the parts without labels; `relabel` then predicts classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        also : list of arrays, or mapping of names to arrays, default=None
            As in `fit`.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            As in `fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        original, X = X, check_samples(self, X, reset=True)
        more = check_also(also, X)
        self._learn_features(X, more, self._seed(), original, graph)
        return self

    def relabel(
        self, y: Any, *, weigh: bool | Mapping[str, Any] = True, drawn: Any = None
    ) -> PartsClassifier:
        """Predict the samples of the last `fit` or `prepare` from other labels.

        Parameters
        ----------
        y : array-like of shape (n_samples,), or Labels
            Labels of any kind; -1, None or NaN where unknown.
        weigh : bool or mapping, default=True
            Weight the classifiers by cross-validation. False keeps their present weights, or equal
            ones. It is several times faster and suits interactive use. You can also pass the
            `weighting_` of another model of the same samples, which is as fast as False.
        drawn : array-like of int or bool, default=None
            As in `fit`.

        Returns
        -------
        self
        """
        check_is_fitted(self, "embedding_")
        check_has_samples(self, "relabel")
        labels = check_labels(y, len(self.embedding_))
        previous: Mapping[str, Any] | None = None
        if isinstance(weigh, Mapping):
            previous, weigh = weigh, False
            self._cache = {**self.__dict__.get("_cache", {}), "kept": previous.get("kept")}
        elif not weigh and "ensemble" in self._state:
            previous = self._ensemble.weighting()
        random = check_drawn(drawn, self.priors, labels)
        weights = np.ones(len(self.embedding_))
        n_folds = self.n_folds if weigh else 0
        self._learn_classes(labels, weights, self._seed(), n_folds, random, previous)
        return self

    def __copy__(self) -> Self:
        """Return a model that shares graph and part weights, but has separate labels."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        if "_state" in new.__dict__:
            new._state = dict(self._state)
            # Copies share only cached results that do not depend on labels.
            kept, cache = ("X", "asking", "walks", "reached"), self.__dict__.get("_cache", {})
            new._cache = {name: cache[name] for name in kept if name in cache}
        return new

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn_features(
        self, X: Any, also: dict[str, Any], seed: int, original: Any, graph: Any = None
    ) -> None:
        """Compute graph and parts, or keep them with ``warm_start`` if X is unchanged."""
        settings = (self.n_parts, self.graph_reg, self.n_neighbors, self.max_iter, seed)
        given = None if graph is None else check_graph(graph, X.shape[0])
        mark = f"{fingerprint(also | {'': X, 'graph': given})} {settings}"
        last = self.__dict__.get("_cache", {}).get("X")  # a model file does not contain it
        same = getattr(self, "_state", {}).get("mark") == mark
        if self.warm_start and same and (is_local(X) or last is original):
            return
        features = build_features(
            X,
            also,
            n_parts=self.n_parts,
            n_neighbors=self.n_neighbors,
            graph_reg=self.graph_reg,
            max_iter=self.max_iter,
            seed=seed,
            given=given,
        )
        columns = {name: int(Z.shape[1]) for name, Z in also.items()}
        self._state: dict[str, Any] = {"mark": mark, "features": features, "also": columns}
        self._cache: dict[str, Any] = {"X": None if is_local(X) else original}
        self.preparation_ = features.first.preparation.kind
        self.n_iter_, self.status_ = features.n_iter, features.status
        self.objective_ = features.objective
        self._publish_parts(features)

    def _publish_parts(self, features: Features) -> None:
        first = features.first
        self.embedding_, self.n_components_ = first.V, int(first.V.shape[1])
        self.components_ = first.preparation.components(first.H)

    def _learn_classes(
        self,
        labels: Labels,
        weights: AnyArray,
        seed: int,
        n_folds: int,
        drawn: AnyArray | None,
        previous: Mapping[str, Any] | None = None,
    ) -> None:
        fit = self._begin(labels, weights, seed, n_folds, previous)
        if fit.n_classes == 1:
            known, label = fit.given.rows, fit.given.classes[0]
            message = one_class_warning(label, known.size, bool(labels.mask.all()))
            warnings.warn(message, UserWarning, stacklevel=3)
        self._finish(fit, drawn)

    def _begin(
        self,
        labels: Labels,
        weights: AnyArray,
        seed: int,
        n_folds: int,
        previous: Mapping[str, Any] | None = None,
    ) -> EnsembleFit:
        """Return the fit of the ensemble to the labels that have a positive weight."""
        known = np.flatnonzero(labels.mask & (weights > 0))
        if not known.size:
            raise ValueError(
                f"sample_weight is 0 for all {labels.n_labelled} labelled samples; give at least "
                "one of them a positive weight."
            )
        found, y = np.unique(labels.codes[known], return_inverse=True)
        weights = weights[known] * (known.size / weights[known].sum())
        given = Labelled(known, y, weights, labels.classes[found])
        self._cache = self.__dict__.get("_cache", {})  # a model file does not contain it
        return EnsembleFit(self._state["features"], given, n_folds, seed, self._cache, previous)

    def _finish(
        self, fit: EnsembleFit, drawn: AnyArray | None, pooled: Mapping[Key, float] | None = None
    ) -> None:
        """Fit the ensemble, and store its predictions in the attributes."""
        known, y, _, classes = fit.given
        counts = None if drawn is None else np.bincount(y[drawn[known]], minlength=classes.size)
        # With few labels the matrices are small, and the ensemble itself runs in threads.
        with one_blas_thread if known.size < MANY_LABELS else nullcontext():
            fitted, p = fit.ensemble(check_priors(self.priors, classes.size), counts, pooled)
        check_probabilities(fitted.weights[None], "weights of the classifiers")
        check_probabilities(fitted.held_out, "probabilities of held-out labels")
        check_probabilities(p, f"probabilities of {len(p)} samples")
        self._state["ensemble"] = fitted
        self.classes_ = classes
        self.label_distributions_ = p
        self.transduction_ = self.classes_[p.argmax(axis=1)]
        self.transduction_[known] = self.classes_[y]
        self._state |= {"labelled": known, "weighed": fit.n_folds > 0}
        self._cache.pop("outlying", None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
