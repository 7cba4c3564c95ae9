"""PartsClassifier: names for all samples from the labels of a few."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any

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
from partwise.classify import pool
from partwise.classify.calibration import check_probabilities
from partwise.classify.consistency import is_consistent
from partwise.classify.edited_parts import edit
from partwise.classify.explain import Explained
from partwise.classify.features import Features, build_features
from partwise.classify.inputs import (
    check_also,
    check_labels,
    check_priors,
    check_samples,
    fingerprint,
    is_local,
    one_class_warning,
)
from partwise.estimators._docstrings import documented
from partwise.fitting.checking.arrays import as_ndarray
from partwise.fitting.checking.labels import compare_index
from partwise.fitting.checking.weights import check_sample_weights
from partwise.knowledge.graph import check_graph
from partwise.knowledge.labels import Labels

#: Labels from which their systems are worth all threads of BLAS.
MANY_LABELS = 1000


@documented
class PartsClassifier(
    Explained,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    BaseEstimator,
):
    r"""Name all samples from the labels of a few.

    .. math:: \min_{V,U\ge0}\ \tfrac12\|P - VU^T\|^2 + \tfrac\lambda2 \mathrm{tr}(V^T L V),
        \qquad p(\text{class} \mid x) = \sum_h w_h\, p_h(\text{class} \mid x)

    Left of the labels, P is X prepared by what its numbers are (counts, images, tables), L the
    Laplacian of its neighbour graph, and V the codes: none of this knows a label, so all samples
    are treated alike, and a new class needs no new codes. Up to 10,000 samples are prepared in
    other ways too (columns that count alike, ranks, counts without weights of words; edges of
    pictures, differences and frequencies of series and spectra), each with a graph of its own. Of
    more than 100,000 samples in memory, graph and parts are of 20,000, and the others are tied to
    their nearest among these and coded by them.
    Right of the labels, heads (logistic regression, Gaussian classes, labels spread over the
    graph, least squares, trees) look at the codes, the data and both; the weights
    w_h maximise the likelihood of labels that were held out, and so do the temperatures that make
    probabilities out of scores. `candidates_` shows what was tried. Classes count alike in all
    heads; answers then lean to the classes that are found more often, the more so with more labels.

    Parameters
    ----------
    n_parts : int or "auto", default="auto"
        Parts of the codes; 30 where there are samples enough.
    graph_reg : float, default=1.0
        λ, the weight of the graph in the codes.
    n_neighbors : int, default=5
        Neighbours of a sample in the graph.
    n_folds : int, default=5
        Folds of the cross-validation over labels.
    priors : {"estimated", "uniform"} or array-like of shape (n_classes,), default="estimated"
        How common the classes are among all samples, which labels do not tell: they are given
        where people looked. "estimated" takes it from the answers, the more so with more labels of
        a class, for most right names among the samples at hand. "uniform" counts classes alike,
        for balanced accuracy: small classes are found more often, and large ones lose some. Shares
        that you know go in the order of the sorted classes.
    max_iter : int, default=30
        Iterations of the factorization; more make no difference to the names.
    warm_start : bool, default=False
        Keep the graph and the codes as long as X is the same: then another label costs
        milliseconds.
    random_state : int, RandomState or None, default=0
        For the folds and the singular vectors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n_samples,)
        The name of every training sample; labelled ones keep their label.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Probabilities of the training samples, as if none were labelled.
    candidates_ : list of Candidate
        What was tried: name (with the preparation, where it is not the first), share of right
        held-out labels, their log loss, weight, why; a head that failed has weight zero and says
        so. It prints as a table.
    expected_accuracy_ : Expected
        Share of right names among the samples without a label, with a 95 % interval, if they are
        of the labelled classes: ``accuracy, low, high``, NaN where no class has two labels. It
        prints as a sentence, which says where the commonest name for all would do as well;
        ``balanced`` counts classes alike.
    doubtful_labels_ : list of Doubt
        Given labels that the rest contradicts: sample, given, suggested, probability.
    others_found_ : float
        Share of labels that `outlyingness` tells from the other classes when theirs is held out.
    weighting_ : dict
        Weights and temperatures of the classifiers, for ``relabel(y, weigh=...)``.
    embedding_ : ndarray of shape (n_samples, n_parts)
        The codes V.
    components_ : ndarray of shape (n_parts, n_features)
        The parts Uᵀ; for signed data and tables they have signs (high, low).
    preparation_ : str
        How samples are compared: "tf-idf", "unit rows" or "columns".

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

    _parameter_constraints: dict[str, Any] = {
        "n_parts": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "graph_reg": [Interval(Real, 0, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "priors": [StrOptions({"estimated", "uniform"}), "array-like"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    device: str | None = None  # X is used where it is

    def __init__(
        self,
        n_parts: Any = "auto",
        *,
        graph_reg: float = 1.0,
        n_neighbors: int = 5,
        n_folds: int = 5,
        priors: Any = "estimated",
        max_iter: int = 30,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.n_parts = n_parts
        self.graph_reg = graph_reg
        self.n_neighbors = n_neighbors
        self.n_folds = n_folds
        self.priors = priors
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, also: Any = None, graph: Any = None
    ) -> PartsClassifier:
        """Learn codes from all samples and names from those that have one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any kind; -1, None or NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            How much the label of a sample counts.
        also : list of arrays, or mapping of names to arrays, default=None
            What else is known of the same samples, row by row: an embedding beside words,
            coordinates beside counts. Each is prepared, factorized and asked as X is, and held-out
            labels weigh the heads on each, then the arrays; `predict` then wants the same arrays of
            new samples.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            A symmetric non-negative graph in the place of the neighbours in X: of places
            (`graph.spatial_graph`), or both joined. New samples have theirs in X.

        Returns
        -------
        self
        """
        self._validate_params()
        original, X = X, check_samples(self, X, reset=True)
        more = check_also(also, X)
        labels = check_labels(y, X.shape[0])
        compare_index(original, y)
        given = check_sample_weights(as_ndarray(sample_weight), X)
        weights = np.ones(X.shape[0]) if given is None else given
        seed = self._seed()
        self._learn_features(X, more, seed, original, graph)
        self._learn_names(labels, weights, seed, n_folds=self.n_folds)
        return self

    def prepare(self, X: Any, *, also: Any = None, graph: Any = None) -> PartsClassifier:
        """Learn graph and codes alone, which need no label; `relabel` then gives names.

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

    def relabel(self, y: Any, *, weigh: bool | Mapping[str, Any] = True) -> PartsClassifier:
        """Predict the samples of the last `fit` or `prepare` from other labels.

        Parameters
        ----------
        y : array-like of shape (n_samples,), or Labels
            Labels of any kind; -1, None or NaN where unknown.
        weigh : bool or mapping, default=True
            Weigh the classifiers by cross-validation. False keeps their present weights, or equal
            ones, and is several times faster: fast enough for the click of a mouse. A mapping is
            `weighting_` of another model of the same samples, and as fast.

        Returns
        -------
        self
        """
        check_is_fitted(self, "embedding_")
        labels = check_labels(y, len(self.embedding_))
        weighed, n_folds = None, 0
        if isinstance(weigh, Mapping):
            weighed = pool.Answer.from_weighting(weigh)
        elif weigh:
            n_folds = self.n_folds
        elif "answer" in self._state:
            weighed = self._answer
        weights = np.ones(len(self.embedding_))
        self._learn_names(labels, weights, self._seed(), n_folds=n_folds, weighed=weighed)
        return self

    def edit_parts(
        self,
        edits: Sequence[tuple[Any, ...]] = (),
        *,
        fixed: Sequence[int] = (),
        avoid: Mapping[int, Any] | None = None,
    ) -> PartsClassifier:
        """Return a copy with edited parts and new part weights; `relabel` then predicts.

        Parameters
        ----------
        edits : sequence of tuples, default=()
            ``("merge", i, j)`` adds part j to part i and removes part j. ``("split", i)`` divides
            part i into the parts i and i + 1. Numbers refer to the parts after the previous edit.
        fixed : sequence of int, default=()
            Parts, numbered as after all edits, whose features do not change.
        avoid : mapping of int to array-like of bool, default=None
            For a part, numbered as after all edits, the samples that should hardly use it.

        Returns
        -------
        PartsClassifier
            A classifier of the same samples without labels.
        """
        check_is_fitted(self, "embedding_")
        features = edit(self._features, edits, fixed, avoid or {})
        new = copy.copy(self)
        kept = {name: self._state[name] for name in ("mark", "also")}
        new._state, new._cache = {**kept, "features": features.state()}, {}
        new.embedding_, new.n_components_ = features.V, int(features.V.shape[1])
        new.components_ = features.preparation.components(features.H)
        for name in ("classes_", "label_distributions_", "transduction_"):
            new.__dict__.pop(name, None)
        return new

    def __copy__(self) -> PartsClassifier:
        """Return a model that shares graph and part weights, and can be relabelled by itself."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        if "_state" in new.__dict__:
            new._state = dict(self._state)
            # what depends on the samples alone; what depends on labels belongs to one model
            kept = ("X", "order", "asking", "walk", "spread")
            cache = self.__dict__.get("_cache", {})
            new._cache = {name: cache[name] for name in cache if name.endswith(kept)}
        return new

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn_features(
        self, X: Any, also: dict[str, Any], seed: int, original: Any, graph: Any = None
    ) -> None:
        """Graph and codes; with ``warm_start`` those of the last X, if it is the same."""
        settings = (self.n_parts, self.graph_reg, self.n_neighbors, self.max_iter, seed)
        given = None if graph is None else check_graph(graph, X.shape[0])
        marks = {name: fingerprint(Z) for name, Z in {"": X, **also}.items()}
        mark = f"{marks} {settings}{'' if given is None else fingerprint(given)}"
        last = self.__dict__.get("_cache", {}).get("X")  # it is not in a model file
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
        self._state: dict[str, Any] = {"mark": mark, "features": features.state()}
        self._state["also"] = {name: int(Z.shape[1]) for name, Z in also.items()}
        self._cache: dict[str, Any] = {"X": None if is_local(X) else original}
        self.preparation_ = features.preparation.kind
        self.n_components_ = int(features.V.shape[1])
        self.n_iter_, self.status_ = features.n_iter, features.status
        self.objective_ = features.objective
        self.embedding_ = features.V
        self.components_ = features.preparation.components(features.H)

    def _learn_names(
        self,
        labels: Labels,
        weights: AnyArray,
        seed: int,
        *,
        n_folds: int,
        weighed: pool.Answer | None = None,
    ) -> None:
        known = np.flatnonzero(labels.mask & (weights > 0))
        if not known.size:
            raise ValueError(
                f"sample_weight is 0 for all {labels.n_labelled} labelled samples; give one of "
                "them a weight above 0."
            )
        y = labels.codes[known]
        found, y = np.unique(y, return_inverse=True)
        classes = labels.classes[found]
        if found.size == 1:
            said = one_class_warning(classes[0], known.size, bool(labels.mask.all()))
            warnings.warn(said, UserWarning, stacklevel=3)
        features = self._features
        # what heads do at a time is small, and they have threads of their own: BLAS would wait for
        # its own; but a system with a row for each of very many labels is not
        with one_blas_thread if known.size < MANY_LABELS else nullcontext():
            answer, candidates, p = pool.learn(
                features,
                known,
                y,
                weights[known] * (known.size / math.fsum(weights[known])),  # in any order
                found.size,
                n_folds=n_folds,
                seed=seed,
                cache=self.__dict__.setdefault("_cache", {}),
                weighed=weighed,
                priors=check_priors(self.priors, found.size),
            )
        check_probabilities(answer.weights[None], "weights of the heads")
        check_probabilities(answer.held_out, "probabilities of held-out labels")
        check_probabilities(p, f"probabilities of {len(p)} samples")
        self._state |= {"answer": answer.state(), "candidates": [list(row) for row in candidates]}
        self.classes_ = classes
        self.label_distributions_ = p
        self.transduction_ = self.classes_[p.argmax(axis=1)]
        self.transduction_[known] = self.classes_[y]
        self._state |= {"labelled": known, "weighed": n_folds > 0}

    @property
    def _features(self) -> Features:
        return Features.from_state(self._state["features"])

    @property
    def _answer(self) -> pool.Answer:
        return pool.Answer.from_state(self._state["answer"])

    def fit_predict(
        self, X: Any, y: Any, sample_weight: Any = None, *, also: Any = None
    ) -> AnyArray:
        """`fit`, and return `transduction_`."""
        return self.fit(X, y, sample_weight, also=also).transduction_

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, also: Any = None
    ) -> AnyArray:
        """`fit`, and return `embedding_`."""
        return self.fit(X, y, sample_weight, also=also).embedding_

    def save(self, path: Any, *, recipe: Any = None) -> Any:
        """Write the model to a file, for `partwise.load`: JSON and arrays, no pickle."""
        from partwise.estimators import saving

        return saving.save(self, path, recipe=recipe)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _is_consistent(self) -> bool:
        """Return whether the arrays of a model from a file fit each other."""
        return is_consistent(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
