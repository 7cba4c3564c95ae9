"""Clusters of part weights, and labels that logistic regression predicts.

Labels are predicted if y has labels of two or more classes. Results are computed on first access.
Random seeds are drawn during the fit, so results do not depend on the order of access, pickling or
saving.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.backends.arrays import to_numpy
from partwise.backends.compressed import check_array
from partwise.evaluation.kmeans import Clustering, cluster_representation
from partwise.knowledge.doubts import Doubt, doubts
from partwise.knowledge.labels import Labels
from partwise.knowledge.links import Links

#: Number of cross-validation folds that find doubtful labels; a larger number takes longer.
FOLDS = 5
#: If a label consists of class probabilities, classes below this probability are ignored. A smaller
#: value takes more time and changes little.
MIN_PROBABILITY = 1e-3


@dataclass(frozen=True, eq=False)
class GroupProbabilities:
    """Logistic regression that gives class probabilities softmax(f W + b).

    Here f are the `features` of a sample's part weights.
    """

    weights: NDArray[np.float64]  # shape (2k, n_classes)
    intercept: NDArray[np.float64]  # shape (n_classes,)

    def check(self) -> None:
        """Raise ValueError if loaded arrays are not a classifier of two or more classes."""
        check_array(self.weights, "f", 2)
        check_array(self.intercept, "f", 1)
        if not self.weights.shape[1] == self.intercept.size > 1:
            raise ValueError("the coefficients of the classifier do not fit each other")

    def probabilities(self, V: Any) -> NDArray[np.float64]:
        """Return the class probabilities of samples with part weights V."""
        scores = features(V) @ self.weights + self.intercept
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def unit_rows(V: Any) -> NDArray[np.float64]:
    """Return V with each row scaled to length one; rows of zeros stay zero."""
    V = np.asarray(to_numpy(V), dtype=np.float64)
    length = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V / np.where(length > 0, length, 1.0))


def features(V: Any) -> NDArray[np.float64]:
    """Return part weights scaled to length one, followed by the part weights V.

    V is included because the size of the part weights can also be informative.
    """
    return np.hstack([unit_rows(V), np.asarray(to_numpy(V), dtype=np.float64)])


def fit_head(
    V: Any, rows: NDArray[np.int64], P: NDArray[np.float64], weights: NDArray[Any] | None = None
) -> GroupProbabilities:
    """Fit logistic regression to class probabilities P of some rows of V.

    Both halves of the features are first centred and scaled to the same spread. A strong graph
    penalty makes all part weights similar. Without the scaling, the penalty of the regression would
    then suppress their differences.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    F = features(V)
    weights = np.ones(len(F)) if weights is None else weights
    mean, k = np.average(F, axis=0, weights=weights), F.shape[1] // 2
    variance = np.average((F - mean) ** 2, axis=0, weights=weights)
    spread = np.repeat([float(np.sqrt(v.mean())) or 1.0 for v in (variance[:k], variance[k:])], k)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model = LogisticRegression(C=10.0, tol=1e-8, max_iter=1000)
        # A label with probabilities is a weighted sample of each of its classes. Each class has at
        # least one sample.
        at, codes = np.nonzero((P > MIN_PROBABILITY) | (P == P.max(axis=0)))
        each, votes = rows[at], np.maximum(P[at, codes], MIN_PROBABILITY)
        model.fit((F[each] - mean) / spread, codes, sample_weight=weights[each] * votes)
    W, b = model.coef_.T / spread[:, None], model.intercept_
    if W.shape[1] == 1:  # scikit-learn stores one score for two classes
        W, b = np.hstack([-W / 2, W / 2]), np.concatenate([-b / 2, b / 2])
    return GroupProbabilities(W, b - mean @ W)


@dataclass(eq=False)
class Groups:
    """Clusters and predicted labels from the part weights V of a fit.

    Parameters
    ----------
    n_clusters, seed : int
        Number of clusters and seed of k-means on V.
    labels : Labels or None
        The class labels that the user gave.
    labelled : ndarray of shape (n_labelled, k) or None
        Part weights of the labelled samples as `transform` computes them without labels; None if V
        has them already.
    owners : ndarray of shape (k,) or None
        Index of the class that each component belongs to, -1 for none.
    weights : ndarray of shape (n,) or None
        Weights of the samples in the classifier, as in the loss; k-means ignores them. A model file
        does not store them, because it stores the classifier.
    links : Links or None
        Links that the clusters keep. A model file does not store them, because it stores the
        clusters.
    unit : bool
        If True, clusters use part weights at unit length.
    given : ndarray of shape (n,) or None
        True for samples that the user labelled, if labels were propagated to other samples.
    """

    n_clusters: int
    seed: int
    labels: Labels | None = None
    labelled: NDArray[Any] | None = None
    owners: NDArray[np.int64] | None = None
    found: Clustering | None = None
    head: GroupProbabilities | None = None
    weights: NDArray[Any] | None = None
    links: Links | None = None
    unit: bool = False
    given: NDArray[np.bool_] | None = None

    def check(self) -> None:
        """Raise ValueError if loaded attributes have wrong types or shapes."""
        if not (type(self.n_clusters) is type(self.seed) is int and self.n_clusters > 0):
            raise ValueError("n_clusters and seed must be integers")
        kinds = ((self.labels, Labels), (self.found, Clustering), (self.head, GroupProbabilities))
        if any(value is not None and type(value) is not kind for value, kind in kinds):
            raise ValueError("the labels, the clusters or the classifier have the wrong type")
        arrays = ((self.labelled, "f", 2), (self.owners, "i", 1), (self.given, "b", 1))
        for array, kind, ndim in arrays:
            if array is not None:
                check_array(array, kind, ndim)
        if self.labels is not None:
            self._check_sizes(self.labels)
        elif any(p is not None for p in (self.head, self.labelled, self.given, self.owners)):
            raise ValueError("there is a classifier without labels")

    def _check_sizes(self, labels: Labels) -> None:
        """Raise ValueError if the sizes of the classifier do not match the labels."""
        own, c = self.owners, labels.n_classes
        if (
            (self.given is not None and self.given.shape != labels.codes.shape)
            or (self.labelled is not None and len(self.labelled) != labels.n_labelled)
            or (own is not None and not -1 <= own.min(initial=-1) <= own.max(initial=-1) < c)
            or (self.head is not None and self.head.intercept.size != c)
        ):
            raise ValueError("the labels and the classifier do not fit each other")

    def fits(self, n: int | None, k: Any) -> bool:
        """Return whether the sizes match ``n`` samples with ``k`` part weights each."""
        found, head, labelled, owners = self.found, self.head, self.labelled, self.owners
        return (
            (found is None or (found.centers.shape[1] == k and found.labels.size == n))
            and (head is None or head.weights.shape[0] == 2 * k)
            and (labelled is None or labelled.shape[1] == k)
            and (owners is None or owners.size == k)
            and (self.labels is None or self.labels.codes.size == n)
        )

    @property
    def decides(self) -> bool:
        """True if labels of two or more classes exist, so that a classifier is trained."""
        return self.labels is not None and self.labels.n_classes > 1

    def settle(self, V: Any) -> None:
        """Compute the clusters and the classifier now instead of on first access.

        Call it before the model is saved, because a file stores the results only.
        """
        self.clustering(V, quiet=True)
        if self.decides:
            self.decision(V)

    def clustering(self, V: Any, *, quiet: bool = False) -> Clustering:
        """Return k-means clusters of V, each matched with at most one class.

        With links, agglomerative clustering is used instead of k-means.
        """
        if self.found is None:
            V = np.asarray(to_numpy(V))
            # With links, only the directions of part weights count, so they get unit length.
            unit = self.unit or self.links is not None
            self.found = cluster_representation(
                V, min(self.n_clusters, len(V)), labels=self.labels, links=self.links, unit=unit,
                random_state=self.seed,
            )  # fmt: skip
            if not quiet:
                self._warn_of_lost_classes(self.found)
        return self.found

    def _warn_of_lost_classes(self, found: Clustering) -> None:
        """Warn if some classes were not matched with a cluster."""
        names = {str(name) for name in found.names}
        classes = [] if self.labels is None else [str(c) for c in self.labels.classes]
        lost = [c for c in classes if c not in names]
        if lost:
            listed = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
            warnings.warn(
                f"no cluster was matched with {len(lost)} of {len(classes)} classes "
                f"({listed}); labels_ and predict use all classes.",
                UserWarning,
                stacklevel=5,
            )

    def decision(self, V: Any) -> GroupProbabilities:
        """Return the classifier trained on the part weights of the labelled samples."""
        if self.head is None:
            assert self.labels is not None
            rows = np.flatnonzero(self.labels.mask)
            P = self.labels.probabilities[rows]
            self.head = fit_head(self._alike(V), rows, P, self.weights)
        return self.head

    def _alike(self, V: Any) -> NDArray[Any]:
        """Return V with comparable part weights for labelled and unlabelled samples.

        The rows of labelled samples are replaced by `labelled`, which does not depend on labels.
        """
        Z = np.array(to_numpy(V))
        if self.labelled is not None and self.labels is not None:
            Z[self.labels.mask] = self.labelled
        return Z

    def _chosen(self, P: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index of each sample's most probable class.

        Labelled samples keep their label if it is certain.
        """
        labels = self.labels
        assert labels is not None
        if labels.shares is not None:
            P = np.where(labels.mask[:, None], labels.shares * np.maximum(P, 1e-12), P)
        best = P.argmax(axis=1)
        return best if labels.doubtful else np.where(labels.mask, labels.codes, best)

    def doubts(self, V: Any) -> list[Doubt]:
        """Return the labels that a classifier contradicts which was trained without them.

        The labels are held out by cross-validation.
        """
        labels = self.labels
        if labels is None or not self.decides:
            return []
        rows = np.flatnonzero(labels.mask if self.given is None else self.given)
        P, Z, codes = labels.probabilities[rows], self._alike(V), labels.codes[rows]
        held, fold = np.zeros_like(P), _folds(codes, np.random.RandomState(self.seed))
        for part in range(FOLDS):
            rest, out = fold != part, rows[fold == part]
            there = (P[rest] > 0).any(axis=0)  # False for a class whose only label is held out
            if out.size and there.sum() > 1:
                head = fit_head(Z, rows[rest], P[rest][:, there], self.weights)
                held[np.ix_(fold == part, there)] = head.probabilities(Z[out])
        fair = held.any(axis=1) & (np.bincount(codes, minlength=P.shape[1])[codes] > 1)
        return doubts(rows[fair], held[fair], codes[fair], labels.classes)

    def names(self, V: Any) -> NDArray[Any]:
        """Return the class or cluster of each training sample; given labels are kept.

        If a label is a probability, this is the class with the largest product of the given and the
        predicted probability.
        """
        if self.labels is None or not self.labels.n_labelled:
            return self.clustering(V).labels
        if self.decides:
            return self.labels.classes[self._chosen(self.decision(V).probabilities(V))]
        given = self.labels.classes[self.labels.codes]
        return np.where(self.labels.mask, given, self.clustering(V).labels)

    def confidence(self, V: Any) -> NDArray[np.float64]:
        """Return the confidence of each label that `names` returns, in [0, 1]."""
        if not self.decides:
            return self.clustering(V).confidence(to_numpy(V))
        P = self.decision(V).probabilities(self._alike(V))
        return margins(P, self._chosen(P))

    def predict(self, V: Any, new: Any) -> NDArray[Any]:
        """Return the class or cluster of new samples with the part weights ``new``."""
        if not self.decides:
            return self.clustering(V).predict(to_numpy(new))
        assert self.labels is not None
        best = self.decision(V).probabilities(new).argmax(axis=1)
        return np.asarray(self.labels.classes[best])

    def predict_confidence(self, V: Any, new: Any) -> NDArray[np.float64]:
        """Return the confidence of each prediction of `predict`, in [0, 1]."""
        if not self.decides:
            return self.clustering(V).confidence(to_numpy(new))
        P = self.decision(V).probabilities(new)
        return margins(P, P.argmax(axis=1))

    def part_classes(self, V: Any) -> NDArray[Any] | None:
        """Return the class of each component, or the class with the largest part weights.

        The entry of a component that no class uses is None. Without labels, the result is None.
        """
        if self.labels is None or not self.labels.n_classes:
            return None
        owners = self.owners
        if owners is None:
            names, shares = self.names(V), unit_rows(V)
            use = np.array([shares[names == c].mean(axis=0) for c in self.labels.classes])
            owners = np.where(use.max(axis=0) > 0, use.argmax(axis=0), -1)
        classes = self.labels.classes.tolist()
        return np.array([classes[c] if c >= 0 else None for c in owners] + [None], object)[:-1]


def _folds(codes: NDArray[np.int64], rng: np.random.RandomState) -> NDArray[np.int64]:
    """Return the cross-validation fold of each label, stratified by class."""
    fold = np.empty(len(codes), dtype=np.int64)
    order = np.lexsort((rng.permutation(len(codes)), codes))
    fold[order] = np.arange(len(codes)) % FOLDS
    return fold


def margins(P: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability of the chosen class minus the largest other one, or 0."""
    rows = np.arange(len(P))
    own = P[rows, chosen]
    others = P.copy()
    others[rows, chosen] = -1.0
    return np.asarray(np.clip(own - others.max(axis=1), 0.0, 1.0))
