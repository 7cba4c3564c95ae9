"""MultilabelClassifier: several labels per sample, from the labels of a few samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.stats import beta
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import StrOptions, num_samples
from partwise.backends.arrays import AnyArray
from partwise.classify.compact import check_has_samples
from partwise.classify.parts_classifier import PartsClassifier
from partwise.classify.preparation import check_drawn
from partwise.knowledge.labels import Labels, as_ndarray

#: Weight of the predicted F1 in its interval, compared with one held-out sample with the label.
PRIOR = 2.0
#: Entries of the state of a `PartsClassifier` that belong to one label.
OWN = ("ensemble", "labelled")


class ExpectedLabel(NamedTuple):
    """Expected quality of the predictions of one label on unlabelled samples.

    Attributes
    ----------
    label : object
    positive, negative : int
        Number of samples that the user marked as having the label, and as not having it.
    accuracy, low, high : float
        Expected accuracy and its 95% interval.
    f1, f1_low, f1_high : float
        Expected F1 and its 95% interval; NaN, 0 and 1 if no label could be held out.
    """

    label: Any
    positive: int
    negative: int
    accuracy: float
    low: float
    high: float
    f1: float
    f1_low: float
    f1_high: float


class ExpectedLabels(list[ExpectedLabel]):
    """A list that prints as a table with one row per label."""

    def __str__(self) -> str:
        rows = [f"{'label':<20}  {'yes':>5}  {'no':>5}  {'accuracy':>15}  {'F1':>15}"]
        for e in self:
            accuracy = f"{e.accuracy:.0%} ({e.low:.0%}-{e.high:.0%})"
            f1 = f"{e.f1:.0%} ({e.f1_low:.0%}-{e.f1_high:.0%})"
            rows.append(
                f"{e.label!s:<20}  {e.positive:>5}  {e.negative:>5}  {accuracy:>15}  {f1:>15}"
            )
        return "\n".join(rows)


@dataclass(eq=False, repr=False)
class MultilabelClassifier(PartsClassifier):
    r"""Semi-supervised classifier for samples with several labels each.

    Each label has a separate ensemble of classifiers, as in `PartsClassifier`. All ensembles share
    the prepared data, the graph and the parts. If one label has few labelled samples, the weights
    of its classifiers rely on the held-out entries of all labels. Each label gets a calibrated
    probability.

    Parameters
    ----------
    n_parts, graph_reg, n_neighbors, n_folds
        As in `PartsClassifier`.
    priors : {"measured", "estimated", "uniform"}, default="measured"
        As in `PartsClassifier`, for each label. "measured" assumes that the labelled samples were
        drawn at random.
    max_iter, warm_start, random_state
        As in `PartsClassifier`.
    threshold : {"f1"} or float, default="f1"
        Smallest probability at which a label is predicted. "f1" chooses the threshold with the
        largest expected F1 for each label. A larger number predicts fewer labels.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels.
    label_distributions_ : ndarray of shape (n_samples, n_labels)
        Probability that each training sample has each label. Given labels of the sample do not set
        it to 0 or 1.
    transduction_ : ndarray of shape (n_samples, n_labels)
        1 where a training sample has the label, otherwise 0. Given entries keep their value.
    thresholds_ : ndarray of shape (n_labels,)
        Smallest probability at which each label is predicted.
    embedding_, components_, preparation_
        As in `PartsClassifier`.

    See Also
    --------
    PartsClassifier : One label per sample.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from partwise import MultilabelClassifier
    >>> X, y = load_digits(n_class=6, return_X_y=True)
    >>> Y = np.stack([y % 2 == 0, y > 2], axis=1).astype(float)
    >>> known = Y.copy()
    >>> known[40:] = np.nan
    >>> model = MultilabelClassifier().fit(X, known)
    >>> bool(np.mean(model.transduction_ == Y) > 0.9)
    True
    """

    _: KW_ONLY
    priors: Any = "measured"
    threshold: Any = "f1"

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PartsClassifier._parameter_constraints,
        "priors": [StrOptions({"estimated", "measured", "uniform"})],
        "threshold": [StrOptions({"f1"}), float],
    }

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, *, also: Any = None, graph: Any = None, drawn: Any = None
    ) -> MultilabelClassifier:
        """Learn parts from all samples and each label from the samples where it is known.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples, n_labels), or sequence of lists
            1 where a sample has a label, 0 where it does not, and -1, None or NaN where this is
            unknown. Alternatively a list of all labels of each sample, and None for samples whose
            labels are unknown.
        also : list of arrays, or mapping of names to arrays, default=None
            As in `PartsClassifier.fit`.
        graph : sparse matrix of shape (n_samples, n_samples), default=None
            As in `PartsClassifier.fit`.
        drawn : array-like of int or bool, default=None
            With ``priors="measured"``, the labelled samples that were drawn at random. None means
            all of them.

        Returns
        -------
        self
        """
        names, Y = check_indicator(y, num_samples(X))
        self.prepare(X, also=also, graph=graph)
        return self._learn(names, Y, drawn)

    def relabel(self, y: Any, *, drawn: Any = None) -> MultilabelClassifier:  # type: ignore[override]
        """Predict the samples of the last `fit` or `prepare` from other labels.

        Parameters
        ----------
        y : array-like of shape (n_samples, n_labels), or sequence of lists
            As in `fit`.
        drawn : array-like of int or bool, default=None
            As in `fit`.

        Returns
        -------
        self
        """
        check_is_fitted(self, "embedding_")
        check_has_samples(self, "relabel")
        return self._learn(*check_indicator(y, len(self.embedding_)), drawn)

    def _learn(self, names: AnyArray, Y: AnyArray, drawn: Any) -> MultilabelClassifier:
        """Fit one ensemble per label, with classifier weights that also use other labels."""
        seed, fits = self._seed(), []
        for column in Y.T:
            labels = Labels(np.array([0, 1]), column.astype(np.int64))
            one = self._part()
            fit = one._begin(labels, np.ones(len(Y)), seed, self.n_folds)
            fits.append((one, fit, check_drawn(drawn, self.priors, labels)))
        pooled = _pooled([fit for _, fit, _ in fits if fit.truth.size and fit.n_classes == 2])
        p, states, cuts = np.empty(Y.shape), [], []
        for j, (one, fit, random) in enumerate(fits):
            one._finish(fit, random, pooled)
            state = {"found": one.classes_, **{name: one._state[name] for name in OWN}}
            states.append(state)
            p[:, j] = _column(one.label_distributions_, state)
            rest = Y[:, j] < 0
            cuts.append(self.threshold)
            if isinstance(self.threshold, str):
                some = p[rest if rest.any() else ~rest, j]
                cuts[j] = best_threshold(some) if fit.n_classes == 2 else 0.5
        self._state["labels"] = states
        self._state["labelled"] = np.flatnonzero((Y >= 0).all(axis=1))
        self.classes_, self.label_distributions_, self.thresholds_ = names, p, np.array(cuts)
        self.transduction_ = np.where(Y < 0, p >= self.thresholds_, Y).astype(np.int64)
        return self

    def _part(self) -> PartsClassifier:
        """Return an unfitted classifier of one label that shares the features and caches."""
        own = ("threshold", "thresholds_")
        one = PartsClassifier()
        one.__dict__.update({name: value for name, value in vars(self).items() if name not in own})
        names = ("mark", "features", "also", "for_predict")
        one._state = {name: self._state[name] for name in names if name in self._state}
        cache = self.__dict__.setdefault("_cache", {})  # a model file does not contain it
        one._cache = {name: cache.setdefault(name, {}) for name in ("walks", "reached")}
        return one

    def for_label(self, label: Any) -> PartsClassifier:
        """Return the classifier of one label, whose classes are 0 and 1.

        Use it to explain predictions of this label, to list its classifiers and doubtful labels, or
        to predict this label alone.

        Parameters
        ----------
        label : object
            One of `classes_`.

        Returns
        -------
        PartsClassifier
        """
        check_is_fitted(self, "label_distributions_")
        return self._one(self._class_index(label))

    def _one(self, j: int) -> PartsClassifier:
        one, state, p = self._part(), self._state["labels"][j], self.label_distributions_[:, j]
        one._state |= {name: state[name] for name in OWN} | {"weighed": True}
        one.classes_, known = state["found"], state["labelled"]
        both = np.stack([1 - p, p], axis=1)
        one.label_distributions_ = both if len(one.classes_) == 2 else np.ones((len(p), 1))
        one.transduction_ = one.classes_[one.label_distributions_.argmax(axis=1)]
        one.transduction_[known] = self.transduction_[known, j]
        return one

    @property
    def expected_(self) -> ExpectedLabels:
        """Expected accuracy and F1 of each label, with intervals; it prints as a table."""
        check_is_fitted(self, "label_distributions_")
        return ExpectedLabels(map(self._expected, range(len(self.classes_))))

    def _expected(self, j: int) -> ExpectedLabel:
        one, labelled = self._one(j), self._state["labels"][j]["labelled"]
        given = self.transduction_[labelled, j]
        about = self.classes_.tolist()[j], int(given.sum()), int(len(given) - given.sum())
        rows, held, truth = one.held_out_
        if len(one.classes_) < 2 or not len(rows):
            return ExpectedLabel(*about, np.nan, 0.0, 1.0, np.nan, 0.0, 1.0)
        rest = np.ones(len(self.embedding_), dtype=bool)
        rest[labelled] = len(labelled) == len(rest)
        p, cut = self.label_distributions_[rest, j], self.thresholds_[j]
        f1 = expected_f1(p, p >= cut, held[:, 1] >= cut, truth == 1)
        # `expected` assumes a threshold of one half.
        loss = float(np.mean(np.maximum(p, 1 - p) - np.where(p >= cut, p, 1 - p)))
        accuracy, low, high = np.clip(np.array(one.expected_accuracy_) - loss, 0, 1).tolist()
        return ExpectedLabel(*about, accuracy, low, high, *f1)

    def predict_proba(self, X: Any, *, also: Any = None) -> AnyArray:
        """Return the probability that each new sample has each label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            Probabilities, with columns in the order of `classes_`.
        """
        check_is_fitted(self, "label_distributions_")
        views, near, _ = self._new(X, also)
        columns = [
            _column(state["ensemble"].probabilities(views, near), state)
            for state in self._state["labels"]
        ]
        return np.stack(columns, axis=1)

    def predict(self, X: Any, *, also: Any = None) -> AnyArray:  # type: ignore[override]
        """Predict the labels of new samples: 1 if a sample has a label, otherwise 0.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New samples.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
        """
        return (self.predict_proba(X, also=also) >= self.thresholds_).astype(np.int64)

    def score(self, X: Any, y: Any, *, also: Any = None) -> float:  # type: ignore[override]
        """Return the micro-averaged F1 over the entries of y that are known.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples, n_labels)
            As in `fit`, with the labels of `classes_`.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` received, for these samples.

        Returns
        -------
        float
        """
        _, Y = check_indicator(y, num_samples(X))
        known = Y >= 0
        return float(f1_score(Y[known], self.predict(X, also=also)[known]))

    def _doubt(self) -> AnyArray:
        """Return the uncertainty of the predictions of each sample, averaged over the labels."""
        margins = np.abs(2 * self.label_distributions_ - 1)
        return np.asarray(1 - margins.mean(axis=1))

    @property
    def _ensemble(self) -> Any:
        raise AttributeError(
            "MultilabelClassifier has one classifier per label; for_label(label) returns it."
        )

    def _is_consistent(self) -> bool:
        """Return whether the arrays of a model from a file fit each other."""
        if "labels" not in self._state:
            return super()._is_consistent()
        states, shape = self._state["labels"], (len(self.embedding_), len(self.classes_))
        fits = self.label_distributions_.shape == self.transduction_.shape == shape
        fits = fits and len(states) == len(self.thresholds_) == shape[1]
        return fits and all(self._one(j)._is_consistent() for j in range(shape[1]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        return tags


def check_indicator(y: Any, n: int) -> tuple[AnyArray, AnyArray]:
    """Return the labels and an array (n, n_labels) of 1, 0 and -1 for unknown entries."""
    if y is None:
        raise ValueError(
            "MultilabelClassifier requires y to be passed, but the target y is None; pass a "
            "matrix of 1 (the sample has the label), 0 (it does not) and -1 (unknown)."
        )
    names = getattr(y, "columns", None)
    y = y.toarray() if sp.issparse(y) else as_ndarray(y) if hasattr(y, "dtype") else y
    rows = _as_lists(y)
    if rows is None:
        Y = np.array(y, dtype=object)
        if Y.ndim != 2:
            raise ValueError(
                f"y must be a matrix (n_samples, n_labels) or lists of labels, got shape {Y.shape}."
            )
        Y = Y.astype(float)  # None becomes NaN
        Y[np.isnan(Y)] = -1
        classes = np.arange(Y.shape[1]) if names is None else np.array([str(c) for c in names])
    else:
        found = sorted({label for row in rows for label in row or ()}, key=str)
        binarizer = MultiLabelBinarizer(classes=found)
        Y = binarizer.fit_transform([row or () for row in rows]).astype(float)
        Y[[row is None for row in rows]] = -1
        classes = binarizer.classes_
    _check_entries(Y, classes, n)
    return classes, Y


def _check_entries(Y: AnyArray, classes: AnyArray, n: int) -> None:
    wrong = Y[~np.isin(Y, (-1, 0, 1))]
    if wrong.size:
        raise ValueError(
            "y may contain only 1 (the sample has the label), 0 (it does not), and -1, None or "
            f"NaN (unknown); got {wrong[0]:g}."
        )
    if len(Y) != n:
        raise ValueError(f"y has {len(Y)} rows, expected {n}, one per sample.")
    known = (Y >= 0).any(axis=0)
    if not known.all() or not len(classes):
        which = f"label {str(classes[~known][0])!r} has none" if len(classes) else "y has no label"
        raise ValueError(f"MultilabelClassifier needs a known entry of each label, but {which}.")


def _as_lists(y: Any) -> list[Any] | None:
    """Return the labels of each sample, or None for it; None if y is an indicator matrix."""
    if y.ndim > 1 if isinstance(y, np.ndarray) else not isinstance(y, Sequence):
        return None
    rows = [None if row is np.nan else row for row in y]
    held = [row for row in rows if row is not None]
    if not held or not all(isinstance(row, (list, tuple, set, frozenset)) for row in held):
        return None
    return None if _is_matrix(rows) else rows


def _is_matrix(rows: list[Any]) -> bool:
    """Return whether lists are the rows of an indicator matrix, and not the labels of samples."""
    if None in rows or len({len(row) for row in rows}) > 1:
        return False
    return all(entry in (0, 1, -1, None) or entry != entry for row in rows for entry in row)


def _column(p: AnyArray, state: dict[str, Any]) -> AnyArray:
    """Return the probability of class 1, shrunk towards ½ if only one class was seen."""
    if p.shape[1] == 2:
        return np.asarray(p[:, 1])
    n_known = len(state["labelled"])
    return np.full(len(p), (n_known * state["found"][0] + 0.5) / (n_known + 1))


def _pooled(fits: list[Any]) -> dict[Any, float] | None:
    """Weight the classifiers by the held-out labels of all ``fits`` together."""
    if len(fits) < 2:
        return None
    tried = [{one.member.key: one for one in fit.tried[0]} for fit in fits]
    keys = [key for key in tried[0] if all(key in mine for mine in tried)]
    held = np.stack([np.concatenate([mine[key].held for mine in tried]) for key in keys])
    truth = np.concatenate([fit.truth for fit in fits])
    members = [tried[0][key].member for key in keys]
    return dict(zip(keys, fits[0].weights(members, held, truth)[0].tolist(), strict=True))


def best_threshold(p: AnyArray) -> float:
    """Return the threshold with the largest expected F1 for calibrated probabilities."""
    order = np.sort(p)[::-1]
    f1 = 2 * np.cumsum(order) / (np.arange(1, len(p) + 1) + order.sum())
    best = int(f1.argmax())
    after = order[best + 1] if best + 1 < len(order) else 0.0
    return float((order[best] + after) / 2)


def expected_f1(
    p: AnyArray, predicted: AnyArray, held: AnyArray, truth: AnyArray
) -> tuple[float, float, float]:
    """Return the expected F1 with a 95% interval.

    F1 is 2J/(1 + J), where J is the Jaccard index: the share of true positives among all samples
    that have the label or are predicted to have it. The Beta distribution of J combines the
    held-out labels with the expected J of the unlabelled samples, which counts as `PRIOR` samples.

    Parameters
    ----------
    p, predicted : arrays of shape (n,)
        Probabilities and predictions of the samples without a label.
    held, truth : bool arrays of shape (n_held_out,)
        Predictions of held-out labels, and the labels.
    """
    both = float(p[predicted].sum())
    union = max(float(predicted.sum() + p[~predicted].sum()), 1e-12)
    hits, either = int(np.sum(held & truth)), int(np.sum(held | truth))
    a, b = hits + PRIOR * both / union, either - hits + PRIOR * (1 - both / union)
    J = np.array([a / (a + b), *beta.ppf([0.025, 0.975], max(a, 1e-6), max(b, 1e-6))])
    middle, low, high = (2 * J / (1 + J)).tolist()
    return middle, low, high
