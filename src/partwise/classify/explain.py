"""Explanations of predictions: the parts that support a class, and those that oppose it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import blas_threads
from partwise.classify import query
from partwise.classify.compact import check_has_samples
from partwise.classify.preparation import unit_rows
from partwise.classify.results import Results
from partwise.knowledge.doubts import Doubt, doubts

#: Ridge penalty of the regression on part weights, relative to their mean square.
RIDGE = 1e-2


class Evidence(NamedTuple):
    """A part, its effect on the log-odds of the class, and its strongest features."""

    part: int
    effect: float
    features: tuple[str, ...]


@dataclass
class Explanation:
    """Parts that support and oppose a class; it prints as text.

    Attributes
    ----------
    subject : str
        The class, or the sample, that is explained.
    name : object
        The class whose log-odds are explained.
    supporting, opposing : list of Evidence
        Parts that raise and that lower its log-odds, the strongest first.
    probabilities : dict
        The most probable classes of the explained sample, with their probabilities.
    fidelity : float
        Share of the training samples for which the sum over parts predicts the same class. A low
        share means that the explanation is incomplete.
    """

    subject: str
    name: Any
    supporting: list[Evidence]
    opposing: list[Evidence]
    fidelity: float
    probabilities: dict[Any, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [self.subject]
        if self.probabilities:
            shares = ", ".join(f"{name} {p:.2f}" for name, p in self.probabilities.items())
            lines.append(f"  probabilities: {shares}")
        for word, side in (("for", self.supporting), ("against", self.opposing)):
            for part in side:
                what = ", ".join(part.features)
                lines.append(f"  {word:>7}  {part.effect:+.2f}  part {part.part}: {what}")
        lines.append(f"  parts alone give {self.fidelity:.0%} of all samples the same name")
        return "\n".join(lines)


def linear_picture(codes: AnyArray, p: AnyArray) -> tuple[AnyArray, AnyArray, float]:
    """Write the log-odds of all classes as a sum over parts, by ridge regression.

    Return the effect (k, c) of one unit of each part weight, the mean part weights, and the
    fidelity.
    """
    log_odds = np.log(np.maximum(p, 1e-12))
    log_odds = log_odds - log_odds.mean(axis=1, keepdims=True)
    size = float(np.square(codes - codes.mean(axis=0)).sum()) / codes.shape[1]
    fit = Ridge(RIDGE * max(size, 1e-12)).fit(codes, log_odds)
    same = fit.predict(codes).argmax(axis=1) == p.argmax(axis=1)
    return fit.coef_.T, codes.mean(axis=0), float(np.mean(same))


def strongest_features(components: AnyArray, names: list[str], n: int) -> list[tuple[str, ...]]:
    """Return the features with the largest weights per part, marked "low" if negative."""
    found = []
    for row in components:
        order = np.argsort(-np.abs(row), kind="stable")[:n]
        chosen = [j for j in order if row[j] != 0]
        found.append(tuple(names[j] if row[j] > 0 else f"low {names[j]}" for j in chosen))
    return found


def evidence(
    effects: AnyArray, words: list[tuple[str, ...]], n: int
) -> tuple[list[Any], list[Any]]:
    """Return the n parts with the largest positive and the largest negative effects."""
    order = np.argsort(-effects, kind="stable")
    rows = [Evidence(int(k), float(effects[k]), words[k]) for k in order]
    supporting = [row for row in rows[:n] if row.effect > 0]
    return supporting, [row for row in rows[::-1][:n] if row.effect < 0]


class Explained(Results):
    """Mixin with the explanations of `PartsClassifier` and its suggestions of samples to label."""

    _seed: Any

    def doubtful(self) -> AnyArray:
        """Return indices of the unlabelled training samples, the least certain first.

        Returns
        -------
        ndarray of int
        """
        check_is_fitted(self)
        order = np.argsort(-query.margins(self.label_distributions_), kind="stable")
        return order[~np.isin(order, self._state["labelled"])]

    @property
    def doubtful_labels_(self) -> list[Doubt]:
        """Given labels that contradict the others, the most doubtful first.

        The class of each labelled sample is predicted by classifiers that were fitted without its
        label. The label is listed if it is more likely wrong than right. This probability accounts
        for how many labels contradict the others, and assumes that few labels are wrong. The list
        is empty if no class has two labels.
        """
        check_is_fitted(self)
        fitted = self._ensemble
        return doubts(fitted.rows, fitted.held_out, fitted.truth, self.classes_)

    def suggest(self, n: int = 10, *, exclude: Any = (), at_random: bool = False) -> AnyArray:
        """Return indices of the training samples to label next.

        These are doubtful samples that represent many others. After `prepare` alone, without a
        label, they are typical samples that differ from each other.

        Parameters
        ----------
        n : int, default=10
            Number of samples.
        exclude : array-like of int, default=()
            Samples not to ask for, in addition to those that have a label.
        at_random : bool, default=False
            Draw samples at random. Pass these as ``drawn`` to `fit`, with ``priors="measured"``, so
            that their labels measure the class sizes. About 20 are enough to start with.

        Returns
        -------
        ndarray of int
            At most n indices, the most useful first.
        """
        check_is_fitted(self, "embedding_")
        check_has_samples(self, "suggest")
        closed = np.zeros(len(self.embedding_), dtype=bool)
        closed[np.asarray(exclude, dtype=np.intp)] = True
        fitted = hasattr(self, "label_distributions_")
        if fitted:
            closed[self._state["labelled"]] = True
        if at_random:
            order = np.random.RandomState(self._seed()).permutation(len(closed))
            return np.asarray(order[~closed[order]][:n])
        doubt = self._doubt() if fitted else np.ones(len(closed))
        # the coordinates depend only on the part weights
        cache = self.__dict__.setdefault("_cache", {})
        with blas_threads(self.embedding_.size):
            if "asking" not in cache:
                cache["asking"] = query.make_space(self._features.first.views["both"])
            return query.label_next(cache["asking"], doubt, closed, n)

    def _doubt(self) -> AnyArray:
        """Return the uncertainty of the prediction of each sample, for `query.label_next`."""
        new = query.unseen(self.transduction_[self._state["labelled"]])
        doubt: AnyArray = new + (1 - new) * query.margins(self.label_distributions_)
        return doubt

    def explain(
        self,
        name: Any = None,
        *,
        sample: Any = None,
        n: int = 3,
        feature_names: Any = None,
    ) -> Explanation:
        """Explain a class or a sample by the parts that support and oppose the class.

        The log-odds of the classes are written as a sum over parts, by regression on the
        predictions of all training samples. ``fidelity`` is the share of samples for which this sum
        predicts the same class.

        Parameters
        ----------
        name : object, default=None
            A class of `classes_`. None, with ``sample``, uses its most probable class.
        sample : int or array-like of shape (n_features,), default=None
            A training sample by its index, or a new sample.
        n : int, default=3
            Number of supporting and of opposing parts. For each part, twice as many features are
            listed.
        feature_names : sequence of str, default=None
            Names of the columns of X. None uses those of a DataFrame, or numbers.

        Returns
        -------
        Explanation
            It prints as text.
        """
        check_is_fitted(self)
        if name is None and sample is None:
            raise ValueError("explain needs a class, or a sample such as sample=0.")
        codes = unit_rows(self.embedding_)
        B, middle, fidelity = linear_picture(codes, self.label_distributions_)
        words = strongest_features(self.components_, self._column_names(feature_names), 2 * n)
        if sample is None:
            c = self._class_index(name)
            sides = evidence(B[:, c] * codes.std(axis=0), words, n)
            subject = f"class {self.classes_[c]}"
            return Explanation(subject, self.classes_[c], *sides, fidelity)
        v, p, subject = self._one_sample(sample)
        c = int(p.argmax()) if name is None else self._class_index(name)
        sides = evidence(B[:, c] * (v - middle), words, n)
        best = {self.classes_[j]: round(float(p[j]), 4) for j in np.argsort(-p)[:n]}
        subject += f": {self.classes_[c]}"
        return Explanation(subject, self.classes_[c], *sides, fidelity, best)

    def _class_index(self, name: Any) -> int:
        at = np.flatnonzero(self.classes_ == name)
        if not at.size:
            known = ", ".join(map(str, self.classes_[:10]))
            raise ValueError(f"There is no class {name!r}; classes_ contains {known}.")
        return int(at[0])

    def _one_sample(self, sample: Any) -> tuple[AnyArray, AnyArray, str]:
        """Return part weights at unit length, probabilities and a description of the sample."""
        if np.ndim(sample) == 0 and not sp.issparse(sample):
            row = int(sample)
            code, p = self.embedding_[row], self.label_distributions_[row]
            return unit_rows(code[None])[0], p, f"sample {row}"
        X = sample if sp.issparse(sample) else np.reshape(np.asarray(sample), (1, -1))
        views, near, V = self._new(X, None)
        return unit_rows(V)[0], self._ensemble.probabilities(views, near)[0], "new sample"

    def _column_names(self, given: Any) -> list[str]:
        numbers = [f"column {j}" for j in range(self.n_features_in_)]
        names = getattr(self, "feature_names_in_", numbers) if given is None else given
        if len(names) != len(numbers):
            raise ValueError(
                f"feature_names has {len(names)} names, and X has {len(numbers)} columns."
            )
        return [str(name) for name in names]
