"""Which samples belong together: clusters of the codes, and class decisions where there are labels.

Nothing is computed before it is asked for. Everything random is seeded when the codes are made, so
the order of asking, pickling and saving changes nothing.
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

#: Folds in which labels are held out to see whether the others contradict them.
FOLDS = 5
#: Probability of a class below which a label in doubt does not count for it, if another does.
LEAST = 1e-3


@dataclass(frozen=True, eq=False)
class GroupProbabilities:
    """Class probabilities softmax(f W + b) of what `features` makes of codes."""

    weights: NDArray[np.float64]  # (2k, classes)
    intercept: NDArray[np.float64]  # (classes,)

    def check(self) -> None:
        """Raise if arrays from a file are no decision between two or more classes."""
        check_array(self.weights, "f", 2)
        check_array(self.intercept, "f", 1)
        if not self.weights.shape[1] == self.intercept.size > 1:
            raise ValueError("the decisions between the classes do not fit each other")

    def probabilities(self, V: Any) -> NDArray[np.float64]:
        scores = features(V) @ self.weights + self.intercept
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def unit_rows(V: Any) -> NDArray[np.float64]:
    """Rows at length one, so that the size of a sample says nothing; zeros stay."""
    V = np.asarray(to_numpy(V), dtype=np.float64)
    length = np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V / np.where(length > 0, length, 1.0))


def features(V: Any) -> NDArray[np.float64]:
    """Rows of V at unit length, beside V itself: in a table the size of a sample may tell."""
    return np.hstack([unit_rows(V), np.asarray(to_numpy(V), dtype=np.float64)])


def fit_head(
    V: Any, rows: NDArray[np.int64], P: NDArray[np.float64], weights: NDArray[Any] | None = None
) -> GroupProbabilities:
    """Logistic regression of the classes of some rows, with probabilities P, on the features of V.

    Both halves are centred and brought to a common spread first: a strong graph draws all codes
    together, and the penalty of the regression would drown what is left of their differences.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    F = features(V)
    weights = np.ones(len(F)) if weights is None else weights
    mean, k = np.average(F, axis=0, weights=weights), F.shape[1] // 2
    variance = np.average((F - mean) ** 2, axis=0, weights=weights)
    spread = np.repeat([float(np.sqrt(v.mean())) or 1.0 for v in (variance[:k], variance[k:])], k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=10.0, tol=1e-8, max_iter=1000)
        # a label in doubt counts for each of its classes, and every class counts somewhere
        at, codes = np.nonzero((P > LEAST) | (P == P.max(axis=0)))
        each, votes = rows[at], np.maximum(P[at, codes], LEAST)
        model.fit((F[each] - mean) / spread, codes, sample_weight=weights[each] * votes)
    W, b = model.coef_.T / spread[:, None], model.intercept_
    if W.shape[1] == 1:  # two classes: scikit-learn keeps the difference of their scores
        W, b = np.hstack([-W / 2, W / 2]), np.concatenate([-b / 2, b / 2])
    return GroupProbabilities(W, b - mean @ W)


@dataclass(eq=False)
class Groups:
    """What the codes V of a fit say about its samples, and about new ones.

    Parameters
    ----------
    n_clusters, seed : int
        Of the k-means on V.
    labels : Labels or None
        What the user said.
    labelled : ndarray of shape (n_labelled, k) or None
        Codes that the labelled samples have where their label is not looked at; None where V has
        them already.
    owners : ndarray of shape (k,) or None
        The class that each part was made for, -1 for none.
    weights : ndarray of shape (n,) or None
        What each sample counts in the decisions, as in the loss; k-means counts all alike. Not
        kept in a file, where the decisions are.
    links : Links or None
        Pairs that the clusters keep together or apart; not kept in a file, where the clusters are.
    unit : bool
        Whether clusters look at codes of length one.
    given : ndarray of shape (n,) or None
        Who has a label from the user, where ``labels`` have spread to others.
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
        """Raise if what a file holds cannot be the groups of a fit."""
        if not (type(self.n_clusters) is type(self.seed) is int and self.n_clusters > 0):
            raise ValueError("n_clusters and seed must be integers")
        kinds = ((self.labels, Labels), (self.found, Clustering), (self.head, GroupProbabilities))
        if any(value is not None and type(value) is not kind for value, kind in kinds):
            raise ValueError("the labels, the clusters or the decisions are of another kind")
        arrays = ((self.labelled, "f", 2), (self.owners, "i", 1), (self.given, "b", 1))
        for array, kind, ndim in arrays:
            if array is not None:
                check_array(array, kind, ndim)
        if self.labels is None:
            rest: tuple[Any, ...] = (self.head, self.labelled, self.given, self.owners)
            if any(part is not None for part in rest):
                raise ValueError("there are decisions without labels")
            return
        own, given, head = self.owners, self.labelled, self.head
        c = self.labels.n_classes
        if (
            (self.given is not None and self.given.shape != self.labels.codes.shape)
            or (given is not None and len(given) != self.labels.n_labelled)
            or (own is not None and not -1 <= own.min(initial=-1) <= own.max(initial=-1) < c)
            or (head is not None and head.intercept.size != c)
        ):
            raise ValueError("the labels and the decisions do not fit each other")

    def fits(self, n: int | None, k: Any) -> bool:
        """Return whether these can be the groups of ``n`` samples with ``k`` parts each."""
        sizes = [] if self.found is None else [self.found.centers.shape[1]]
        sizes += [] if self.head is None else [self.head.weights.shape[0] / 2]
        sizes += [] if self.labelled is None else [self.labelled.shape[1]]
        sizes += [] if self.owners is None else [self.owners.size]
        lengths = [] if self.labels is None else [self.labels.codes.size]
        lengths += [] if self.found is None else [self.found.labels.size]
        return all(size == k for size in sizes) and all(length == n for length in lengths)

    @property
    def decides(self) -> bool:
        """Whether there are two classes to decide between."""
        return self.labels is not None and self.labels.n_classes > 1

    def settle(self, V: Any) -> None:
        """Compute all that is computed when asked for."""
        self.clustering(V, quiet=True)
        if self.decides:
            self.decision(V)

    def clustering(self, V: Any, *, quiet: bool = False) -> Clustering:
        """The papers' protocol: k-means on V, clusters named by the labels one to one.

        With links: merging from below.
        """
        if self.found is None:
            V = np.asarray(to_numpy(V))
            size = min(self.n_clusters, V.shape[0])
            how: dict[str, Any] = {"labels": self.labels, "random_state": self.seed}
            if self.links is not None:  # at unit length: links say nothing of the size of a sample
                how["links"] = self.links
            how["unit"] = self.unit or self.links is not None
            self.found = cluster_representation(V, size, **how)
            if not quiet:
                self._say_what_is_lost(self.found)
        return self.found

    def _say_what_is_lost(self, found: Clustering) -> None:
        names = {str(name) for name in found.names}
        lost = (
            [] if self.labels is None else [c for c in self.labels.classes if str(c) not in names]
        )
        if lost:
            listed = ", ".join(str(c) for c in lost[:5]) + (", ..." if len(lost) > 5 else "")
            warnings.warn(
                f"no cluster has the name of {len(lost)} of {self.labels.n_classes} classes "  # type: ignore[union-attr]
                f"({listed}); labels_ and predict decide between all of them.",
                UserWarning,
                stacklevel=5,
            )

    def decision(self, V: Any) -> GroupProbabilities:
        """Class decisions learnt on the labelled samples' codes."""
        if self.head is None:
            assert self.labels is not None
            rows = np.flatnonzero(self.labels.mask)
            P = self.labels.probabilities[rows]
            self.head = fit_head(self._alike(V), rows, P, self.weights)
        return self.head

    def _alike(self, V: Any) -> NDArray[Any]:
        """V with codes of the labelled samples that do not look at their labels."""
        Z = np.array(to_numpy(V))
        if self.labelled is not None and self.labels is not None:
            Z[self.labels.mask] = self.labelled
        return Z

    def _chosen(self, P: NDArray[np.float64]) -> NDArray[np.int64]:
        """The likeliest class by P; labelled samples keep their label, weighed by P if in doubt."""
        labels = self.labels
        assert labels is not None
        if labels.shares is not None:
            P = np.where(labels.mask[:, None], labels.shares * np.maximum(P, 1e-12), P)
        best = P.argmax(axis=1)
        return best if labels.doubtful else np.where(labels.mask, labels.codes, best)

    def doubts(self, V: Any) -> list[Doubt]:
        """Given labels that the others contradict: each judged by those of other folds."""
        labels = self.labels
        if labels is None or not self.decides:
            return []
        rows = np.flatnonzero(labels.mask if self.given is None else self.given)
        P, Z, codes = labels.probabilities[rows], self._alike(V), labels.codes[rows]
        held, fold = np.zeros_like(P), _folds(codes, np.random.RandomState(self.seed))
        for part in range(FOLDS):
            rest, out = fold != part, rows[fold == part]
            there = (P[rest] > 0).any(axis=0)  # not a class that lost its only label
            if out.size and there.sum() > 1:
                head = fit_head(Z, rows[rest], P[rest][:, there], self.weights)
                held[np.ix_(fold == part, there)] = head.probabilities(Z[out])
        fair = held.any(axis=1) & (np.bincount(codes, minlength=P.shape[1])[codes] > 1)
        return doubts(rows[fair], held[fair], codes[fair], labels.classes)

    def names(self, V: Any) -> NDArray[Any]:
        """The class of each training sample, or its cluster; labelled samples keep their label.

        Of a label in doubt, the class with the largest product of its probability and what the
        codes say.
        """
        if self.labels is None or not self.labels.n_labelled:
            return self.clustering(V).labels
        if self.decides:
            return self.labels.classes[self._chosen(self.decision(V).probabilities(V))]
        given = self.labels.classes[self.labels.codes]
        return np.where(self.labels.mask, given, self.clustering(V).labels)

    def confidence(self, V: Any) -> NDArray[np.float64]:
        """How clear `names` are, in [0, 1]; a given label is as clear as the codes find it."""
        if not self.decides:
            return self.clustering(V).confidence(to_numpy(V))
        assert self.labels is not None
        P = self.decision(V).probabilities(self._alike(V))
        return margins(P, self._chosen(P))

    def predict(self, V: Any, new: Any) -> NDArray[Any]:
        """The class, or the cluster, of new samples with the codes ``new``."""
        if not self.decides:
            return self.clustering(V).predict(to_numpy(new))
        assert self.labels is not None
        best = self.decision(V).probabilities(new).argmax(axis=1)
        return np.asarray(self.labels.classes[best])

    def predict_confidence(self, V: Any, new: Any) -> NDArray[np.float64]:
        if not self.decides:
            return self.clustering(V).confidence(to_numpy(new))
        P = self.decision(V).probabilities(new)
        return margins(P, P.argmax(axis=1))

    def part_classes(self, V: Any) -> NDArray[Any] | None:
        """The class that each part was made for, or else that uses it most; None for no class."""
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
    """A fold for each label, those of a class spread over all."""
    fold = np.empty(len(codes), dtype=np.int64)
    order = np.lexsort((rng.permutation(len(codes)), codes))
    fold[order] = np.arange(len(codes)) % FOLDS
    return fold


def margins(P: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """By how much the chosen class leads the next one; 0 where it does not."""
    rows = np.arange(len(P))
    own = P[rows, chosen]
    others = P.copy()
    others[rows, chosen] = -1.0
    return np.asarray(np.clip(own - others.max(axis=1), 0.0, 1.0))
