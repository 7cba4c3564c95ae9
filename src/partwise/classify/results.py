"""What a fitted `PartsClassifier` predicts for new samples and reports about its fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import blas_threads
from partwise.classify.calibration import (
    FEW,
    SIDE,
    Expected,
    Shares,
    accuracy_range,
    check_probabilities,
    expected,
    is_determined,
    recalls,
)
from partwise.classify.compact import compact, is_consistent
from partwise.classify.ensemble import Candidates, Ensemble
from partwise.classify.features import Features
from partwise.classify.outlying import Outlying, measure
from partwise.classify.preparation import check_also, check_samples
from partwise.knowledge.labels import as_ndarray, encode_labels

#: Advice to the user if `relabel` held no label out.
UNWEIGHED = "relabel(y, weigh=False) held no label out; relabel(y) does."


class Results(TransformerMixin):  # the base class adds `set_output`
    """Mixin with the predictions and reports of `PartsClassifier`."""

    classes_: AnyArray
    label_distributions_: AnyArray
    embedding_: AnyArray
    transduction_: AnyArray
    components_: AnyArray
    n_features_in_: int
    priors: Any
    fit: Any
    _state: dict[str, Any]
    _cache: dict[str, Any]
    n_components_: int

    @property
    def _features(self) -> Features:
        features: Features = self._state["features"]
        return features

    @property
    def _ensemble(self) -> Ensemble:
        ensemble: Ensemble = self._state["ensemble"]
        return ensemble

    @property
    def labels_(self) -> AnyArray:
        """Same as `transduction_`, under the attribute name that other estimators use."""
        check_is_fitted(self)
        return self.transduction_

    @property
    def label_confidence_(self) -> AnyArray:
        """Probability of each training sample's predicted label; one for labelled samples.

        NaN for unlabelled samples if all labels belong to one class.
        """
        check_is_fitted(self)
        sure = confidence(self.label_distributions_)
        sure[self._state["labelled"]] = 1.0
        return sure

    @property
    def labelled_(self) -> AnyArray:
        """Indices of the samples with a label of positive weight."""
        check_is_fitted(self)
        return np.asarray(self._state["labelled"])

    @property
    def graph_(self) -> sp.csr_array:
        """Neighbour graph of the training samples."""
        check_is_fitted(self, "embedding_")
        return self._features.first.graph

    @property
    def held_out_(self) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Held-out labelled samples, their probabilities and their classes.

        The tuple holds the indices of the samples, (m, n_classes) probabilities from the fold
        without the label, and the positions of the true classes in `classes_`.
        """
        check_is_fitted(self)
        fitted = self._ensemble
        return fitted.rows, fitted.held_out, fitted.truth

    @property
    def candidates_(self) -> Candidates:
        """Classifiers of the ensemble and their weights."""
        check_is_fitted(self)
        found: Candidates = self._ensemble.candidates
        return found

    @property
    def weighting_(self) -> dict[str, Any]:
        """Weights and slow classifiers that ``relabel(y, weigh=...)`` can reuse."""
        check_is_fitted(self)
        return {**self._ensemble.weighting(), "kept": self.__dict__.get("_cache", {}).get("kept")}

    @property
    def class_shares_(self) -> Shares:
        """Shares of the classes among all samples with 95% intervals; it prints as a sentence."""
        check_is_fitted(self)
        shares, error = self.label_distributions_.mean(axis=0), self._ensemble.calibration.error
        side = SIDE * np.where(error < 1, error, np.inf)
        known = is_determined(error) and not (
            isinstance(self.priors, str) and "u" == self.priors[0]
        )
        low, high = np.clip([shares - side, shares + side], 0, 1)
        return Shares(self.classes_, shares, low, high, known)

    @property
    def expected_accuracy_(self) -> Expected:
        """Expected accuracy with an interval; it prints as a sentence."""
        check_is_fitted(self)
        fitted, p = self._ensemble, self.label_distributions_
        if not fitted.truth.size or p.shape[1] < 2 or np.isnan(fitted.agreement):
            weighed = self._state.get("weighed", True)
            return Expected(float("nan"), 0.0, 1.0, why=FEW if weighed else UNWEIGHED)
        given = np.zeros(len(p), dtype=bool)
        given[self._state["labelled"]] = True
        rest = ~given if not given.all() else given
        shares = p[rest].mean(axis=0)
        # If labels are random, they show the largest class better than uncertain predictions.
        drawn = np.bincount(np.searchsorted(self.classes_, self.transduction_[given]))
        common = int(np.maximum(shares, drawn / given.sum()).argmax())
        found, sizes = recalls(p[rest]), self.class_shares_
        ends = accuracy_range(np.nan_to_num(found), sizes.low, sizes.high)
        sure, labels = float(p[rest].max(axis=1).mean()), len(self._state["labelled"])
        middle, low, high = expected(sure, fitted.agreement, labels, p.shape[1])
        return Expected(
            middle,
            low,
            high,
            float(np.nanmean(found)),
            float(max(shares[common], drawn[common] / given.sum())),
            self.classes_[common],
            by_shares=(min(low, ends[0]), max(high, ends[1])) if not sizes.known else (low, high),
        )

    def outlyingness(self, X: Any = None, *, also: Any = None) -> AnyArray:
        """Return how far samples are from all labelled samples, in [0, 1].

        A value of 0.95 means that 95% of the samples of the labelled classes are expected to be
        nearer to the labelled samples. The distances are measured by holding out each label in
        turn. You need at least three labelled samples whose class has another label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            New samples. None uses those of the fit.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        measured = self._outlying
        if X is None:
            return measured.score(self._features.first.views["parts"])
        views, near, _ = self._new(X, also)
        return measured.score(views[""]["parts"], near[""])

    @property
    def others_found_(self) -> float:
        """Share of labels with `outlyingness` above 0.95 when their class is held out."""
        check_is_fitted(self)
        return self._outlying.found

    @property
    def _outlying(self) -> Outlying:
        """Distances between the labels of the last fit."""
        cache, first = self.__dict__.setdefault("_cache", {}), self._features.first
        if "outlying" not in cache:
            labelled = self._state["labelled"]
            y = np.unique(self.transduction_[labelled], return_inverse=True)[1]
            with blas_threads(first.data.size):
                found = measure(first.views["parts"], first.graph, labelled, y)
            cache["outlying"] = found
        measured: Outlying = cache["outlying"]
        return measured

    def predict_proba(self, X: Any, *, also: Any = None) -> AnyArray:
        """Return class probabilities of new samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with columns in the order of `classes_`.
        """
        check_is_fitted(self)
        views, near, _ = self._new(X, also)
        p = self._ensemble.probabilities(views, near)
        return check_probabilities(p, f"probabilities of {len(p)} samples")

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, also: Any = None) -> float:
        """Return the accuracy on the samples whose label is known.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            True labels. Samples with -1, None or NaN are ignored.
        sample_weight : array-like of shape (n_samples,), default=None
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        float
        """
        names = self.predict(X, also=also)
        labels = encode_labels(as_ndarray(y), len(names))
        if labels is None or not labels.n_labelled:
            raise ValueError(
                "score needs at least one known label, but every entry of y is unknown."
            )
        known = labels.mask
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        given = labels.classes[labels.codes[known]]
        return float(accuracy_score(given, names[known], sample_weight=weights))

    def predict(self, X: Any, other: Any = None, *, also: Any = None) -> AnyArray:
        """Return the most probable class of each new sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        other : float, default=None
            Threshold on `outlyingness`. Instead of a class, a sample above it gets the value of an
            unknown label: -1 if classes are numbers, otherwise None. A smaller value rejects more
            samples. With 0.95, about 5% of the samples that belong to a labelled class are
            rejected on average. With few labels this share varies: it is usually smaller, but
            sometimes larger.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predicted class labels.
        """
        best = self.predict_proba(X, also=also).argmax(axis=1)
        predicted = self.classes_[best]
        if other is None:
            return predicted
        if not (isinstance(other, (int, float)) and 0 < other < 1):
            raise ValueError(
                "The 'other' parameter of predict must be None or a number between 0 and 1, got "
                f"{other!r}; 0.95 rejects about 5% of the samples that belong to a class."
            )
        numeric = predicted.dtype.kind in "if"
        predicted = predicted if numeric else predicted.astype(object)
        predicted[self.outlyingness(X, also=also) > other] = -1 if numeric else None
        return predicted

    def predict_confidence(self, X: Any, *, also: Any = None) -> AnyArray:
        """Return the probability of the predicted class of each new sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Probabilities; NaN if there is only one class.
        """
        return confidence(self.predict_proba(X, also=also))

    def fit_predict(self, X: Any, y: Any, **fit_params: Any) -> AnyArray:
        """Fit the model and return `transduction_`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like
            As in `fit`.
        **fit_params : dict
            Further arguments of `fit`, such as ``sample_weight`` and ``also``.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        fitted: AnyArray = self.fit(X, y, **fit_params).transduction_
        return fitted

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> AnyArray:
        """Fit the model and return `embedding_`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like
            As in `fit`.
        **fit_params : dict
            Further arguments of `fit`, such as ``sample_weight`` and ``also``.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        fitted: AnyArray = self.fit(X, y, **fit_params).embedding_
        return fitted

    def save(self, path: Any, *, recipe: Any = None, for_predict: bool = False) -> Any:
        """Write the model to a file for `partwise.load`: JSON and arrays, no pickle.

        Parameters
        ----------
        path : str or Path
            The file, usually ``*.partwise``; an existing file is replaced.
        recipe : mapping, default=None
            Further data to keep, such as how the samples were prepared.
        for_predict : bool, default=False
            Leave out the training samples. The file is many times smaller. The loaded model
            predicts new samples, but `relabel`, `edit_parts` and `suggest` raise an error.

        Returns
        -------
        Path
        """
        from partwise.estimators import saving

        return saving.save(compact(self) if for_predict else self, path, recipe=recipe)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    _is_consistent = is_consistent  # for a model from a file

    def transform(self, X: Any, *, also: Any = None) -> AnyArray:
        """Return the part weights of new samples, close to those of their neighbours.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Part weights, non-negative; the parts stay fixed.
        """
        check_is_fitted(self)
        return self._new(X, also)[2]

    def _new(self, X: Any, also: Any) -> Any:
        """Return views, neighbours and part weights of new samples."""
        X = check_samples(self, X, reset=False)
        return self._features.new(X, check_also(also, X, self._state.get("also", {})))


def confidence(p: AnyArray) -> AnyArray:
    """Return the largest value of each row; NaN if there is only one column."""
    return np.asarray(p.max(axis=1) if p.shape[1] > 1 else np.full(len(p), np.nan))
