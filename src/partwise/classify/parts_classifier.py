"""PartsClassifier: names for all samples from the labels of a few."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import config_context, get_config  # type: ignore[attr-defined]
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from partwise._sklearn import Interval, StrOptions
from partwise.backends import back_end
from partwise.backends.arrays import AnyArray
from partwise.backends.masks import refuse_masks
from partwise.backends.threads import blas_threads, by_entry, one_blas_thread
from partwise.classify import pool
from partwise.classify.calibration import FEW, Expected, check_probabilities, expected, recalls
from partwise.classify.consistency import is_consistent
from partwise.classify.explain import Explained
from partwise.classify.features import Features, build_features, row_marks
from partwise.classify.outlying import Outlying, measure
from partwise.estimators._docstrings import documented
from partwise.fitting import checking
from partwise.knowledge.graph import check_graph
from partwise.knowledge.labels import Labels, encode_labels

#: Labels from which their systems are worth all threads of BLAS.
MANY_LABELS = 1000
#: Bytes up to which a file on disk is read whole.
IN_MEMORY = 200_000_000
#: What to do where `relabel` held no label out.
UNWEIGHED = "relabel(y, weigh=False) held no label out; relabel(y) does."


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

    # -- fitting ----------------------------------------------------------------------------

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
        original, X = X, self._check_X(X, reset=True)
        more = self._check_also(also, X, reset=True)
        labels = self._check_y(y, X.shape[0])
        checking.compare_index(original, y)
        given = checking.check_sample_weights(checking.as_ndarray(sample_weight), X)
        weights = np.ones(X.shape[0]) if given is None else given
        seed = self._seed()
        self._learn_features(X, more, seed, original, graph)
        self._learn_names(labels, weights, seed)
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
        original, X = X, self._check_X(X, reset=True)
        more = self._check_also(also, X, reset=True)
        self._learn_features(X, more, self._seed(), original, graph)
        return self

    def relabel(self, y: Any, *, weigh: bool = True) -> PartsClassifier:
        """Names for the samples of the last `fit` or `prepare` from other labels.

        Parameters
        ----------
        y : array-like of shape (n_samples,), or Labels
            Labels of any kind; -1, None or NaN where unknown.
        weigh : bool, default=True
            Weigh the heads by cross-validation. False keeps the weights that they have, or takes
            all alike, and is several times faster: for the click of a mouse.

        Returns
        -------
        self
        """
        check_is_fitted(self, "embedding_")
        labels = self._check_y(y, len(self.embedding_))
        self._learn_names(labels, np.ones(len(self.embedding_)), self._seed(), weigh=weigh)
        return self

    def _shares(self, n_classes: int) -> AnyArray | None:
        """Shares of the classes that add up to one; None where they are estimated."""
        if isinstance(self.priors, str):
            return np.full(n_classes, 1 / n_classes) if self.priors == "uniform" else None
        shares = np.asarray(self.priors, dtype=float)
        if shares.shape != (n_classes,):
            raise ValueError(
                f"priors must hold a share for each of the {n_classes} classes, got {shares.size}; "
                "they go in the order of the sorted classes."
            )
        if not (np.isfinite(shares).all() and (shares > 0).all()):
            raise ValueError(f"priors must be above 0, got {shares.tolist()}.")
        return shares / shares.sum()

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_X(self, X: Any, *, reset: bool) -> Any:
        on_disk = isinstance(X, np.memmap) and X.nbytes > IN_MEMORY
        if on_disk or back_end(X) is not None:
            special = checking.check_special(self, X, reset=reset, beta=2.0)
            if special is not None:  # a Dask array comes back wrapped; GNMF takes it as it was
                return X if hasattr(special, "tdot") else special
        # a finite sum has finite terms; scikit-learn looks again, and says which, where it is not
        finite = get_config()["assume_finite"] or _has_finite_sums(X)
        with checking.in_plain_words(self, X), config_context(assume_finite=finite):
            how = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
            X = validate_data(self, X, reset=reset, **how)
        return sp.csr_array(X) if sp.issparse(X) else X

    def _check_also(self, also: Any, X: Any, *, reset: bool) -> dict[str, Any]:
        """Further arrays of the samples of X, by how a person names them."""
        if also is not None and not isinstance(also, (Mapping, list, tuple)):
            raise TypeError(
                f"also must be a list of arrays or a mapping of names to arrays, got "
                f"{type(also).__name__}; write also=[Z] for one array Z."
            )
        pairs = also.items() if isinstance(also, Mapping) else enumerate(also or ())
        given = {f"also[{name!r}]": Z for name, Z in pairs}
        wanted = dict.fromkeys(given) if reset else self._state.get("also", {})
        if given.keys() != wanted.keys():
            raise ValueError(
                f"The model was fitted with X{_listed(wanted)}, got X{_listed(given)}; give the "
                "same arrays of the new samples, under the same names."
            )
        if given and not _is_local(X):
            raise ValueError(
                f"also needs an X that is an array in memory, or sparse; got {type(X).__name__}."
            )
        made = {}
        for name, columns in wanted.items():
            refuse_masks(given[name], name)
            Z = check_array(
                given[name], accept_sparse="csr", dtype=[np.float64, np.float32], input_name=name
            )
            if Z.shape[0] != X.shape[0]:
                raise ValueError(
                    f"{name} has {Z.shape[0]} samples and X has {X.shape[0]}; row by row they must "
                    "be the same samples."
                )
            if columns is not None and Z.shape[1] != columns:
                raise ValueError(f"{name} has {Z.shape[1]} features, and {columns} in fit.")
            made[name] = sp.csr_array(Z) if sp.issparse(Z) else Z
        return made

    def _new(self, X: Any, also: Any) -> Any:
        """Views, neighbours and codes of new samples."""
        X = self._check_X(X, reset=False)
        return self._features.new(X, self._check_also(also, X, reset=False))

    def _check_y(self, y: Any, n: int) -> Labels:
        if isinstance(y, Labels):
            return y
        if y is None:
            raise ValueError(
                "PartsClassifier requires y to be passed, but the target y is None; give -1 or "
                "None for the samples whose label is unknown."
            )
        y = checking.as_ndarray(y)
        if getattr(y, "ndim", 1) == 2 and np.shape(y)[1] == 1:
            y = column_or_1d(y, warn=True)
        labels = encode_labels(y, n)
        assert labels is not None
        names = labels.classes
        if names.dtype.kind == "f" and (names != np.rint(names)).any():
            raise ValueError(
                "Unknown label type: continuous. PartsClassifier names classes; y holds numbers "
                "that are not whole."
            )
        if labels.n_classes < 1:
            raise ValueError(
                "PartsClassifier needs at least one label, and every entry of y is unknown "
                "(-1, None or NaN); GNMF finds clusters without labels."
            )
        return labels

    def _learn_features(
        self, X: Any, also: dict[str, Any], seed: int, original: Any, graph: Any = None
    ) -> None:
        """Graph and codes; with ``warm_start`` those of the last X, if it is the same."""
        settings = (self.n_parts, self.graph_reg, self.n_neighbors, self.max_iter, seed)
        given = None if graph is None else check_graph(graph, X.shape[0])
        marks = {name: _fingerprint(Z) for name, Z in {"": X, **also}.items()}
        mark = f"{marks} {settings}{'' if given is None else _fingerprint(given)}"
        last = self.__dict__.get("_cache", {}).get("X")  # it is not in a model file
        same = getattr(self, "_state", {}).get("mark") == mark
        if self.warm_start and same and (_is_local(X) or last is original):
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
        self._cache: dict[str, Any] = {"X": None if _is_local(X) else original}
        self.preparation_ = features.preparation.kind
        self.n_components_ = int(features.V.shape[1])
        self.n_iter_, self.status_ = features.n_iter, features.status
        self.objective_ = features.objective
        self.embedding_ = features.V
        self.components_ = features.preparation.components(features.H)

    def _learn_names(
        self, labels: Labels, weights: AnyArray, seed: int, *, weigh: bool = True
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
            said = _one_name(classes[0], known.size, bool(labels.mask.all()))
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
                n_folds=self.n_folds if weigh else 0,
                seed=seed,
                cache=self.__dict__.setdefault("_cache", {}),
                weighed=None if weigh or "answer" not in self._state else self._answer,
                priors=self._shares(found.size),
            )
        check_probabilities(answer.weights[None], "weights of the heads")
        check_probabilities(answer.held_out, "probabilities of held-out labels")
        check_probabilities(p, f"probabilities of {len(p)} samples")
        self._state |= {"answer": answer.state(), "candidates": [list(row) for row in candidates]}
        self.classes_ = classes
        self.label_distributions_ = p
        self.transduction_ = self.classes_[p.argmax(axis=1)]
        self.transduction_[known] = self.classes_[y]
        self._state |= {"labelled": known, "weighed": weigh}

    @property
    def labels_(self) -> AnyArray:
        """`transduction_`, under the name that the other estimators have."""
        check_is_fitted(self)
        return self.transduction_

    @property
    def label_confidence_(self) -> AnyArray:
        """The probability of each training sample's name; one where it was given.

        NaN for the others where all labels are of one class: nothing tells it from anything.
        """
        check_is_fitted(self)
        sure = _confidence(self.label_distributions_)
        sure[self._state["labelled"]] = 1.0
        return sure

    def predict_confidence(self, X: Any, *, also: Any = None) -> AnyArray:
        """The probability of the class that `predict` gives; NaN where there is only one."""
        return _confidence(self.predict_proba(X, also=also))

    @property
    def labelled_(self) -> AnyArray:
        """The samples whose label was given, and counted, as indices."""
        check_is_fitted(self)
        return np.asarray(self._state["labelled"])

    @property
    def graph_(self) -> sp.csr_array:
        """The neighbour graph of the training samples."""
        check_is_fitted(self, "embedding_")
        return self._features.graph

    @property
    def held_out_(self) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Labelled samples that were held out once, their probabilities then, and their classes.

        As indices of samples, (m, n_classes) probabilities and positions in `classes_`.
        """
        check_is_fitted(self)
        answer = self._answer
        return answer.rows, answer.held_out, answer.truth

    @property
    def _features(self) -> Features:
        return Features.from_state(self._state["features"])

    @property
    def _answer(self) -> pool.Answer:
        return pool.Answer.from_state(self._state["answer"])

    @property
    def candidates_(self) -> pool.Candidates:
        """What was weighed: heads and views, with their weights."""
        check_is_fitted(self)
        return pool.Candidates(pool.Candidate(*row) for row in self._state["candidates"])

    @property
    def expected_accuracy_(self) -> Expected:
        """The share of right names to expect, with an interval; it prints as a sentence."""
        check_is_fitted(self)
        answer, p = self._answer, self.label_distributions_
        if not answer.truth.size or p.shape[1] < 2 or np.isnan(answer.agreement):
            weighed = self._state.get("weighed", True)
            return Expected(float("nan"), 0.0, 1.0, why=FEW if weighed else UNWEIGHED)
        given = np.zeros(len(p), dtype=bool)
        given[self._state["labelled"]] = True
        rest = ~given if not given.all() else given
        shares = p[rest].mean(axis=0)
        # labels that were drawn at random say more of large classes than unsure answers do
        drawn = np.bincount(np.searchsorted(self.classes_, self.transduction_[given]))
        common = int(np.maximum(shares, drawn / given.sum()).argmax())
        return Expected(
            *expected(*self._how_sure(rest)),
            float(np.nanmean(recalls(p[rest]))),
            float(max(shares[common], drawn[common] / given.sum())),
            self.classes_[common],
        )

    def _how_sure(self, rest: AnyArray) -> tuple[float, float, int, int]:
        """What `expected` takes, of the samples in ``rest``."""
        p, labels = self.label_distributions_, len(self._state["labelled"])
        return float(p[rest].max(axis=1).mean()), self._answer.agreement, labels, p.shape[1]

    # -- using ------------------------------------------------------------------------------

    def predict_proba(self, X: Any, *, also: Any = None) -> AnyArray:
        """Probabilities (n_samples, n_classes) of new samples, in the order of `classes_`.

        ``also`` are the further arrays that `fit` had, of these samples.
        """
        check_is_fitted(self)
        views, near, _ = self._new(X, also)
        p = self._answer.probabilities(views, near)
        return check_probabilities(p, f"probabilities of {len(p)} samples")

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, also: Any = None) -> float:
        """Share of right names among the samples whose label is known.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            True labels; samples with -1, None or NaN, as in `fit`, do not count.
        sample_weight : array-like of shape (n_samples,), default=None
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` had, of these samples.

        Returns
        -------
        float
        """
        names = self.predict(X, also=also)
        labels = encode_labels(checking.as_ndarray(y), len(names))
        if labels is None or not labels.n_labelled:
            raise ValueError(
                "score needs a label to compare with, and every entry of y is unknown."
            )
        known = labels.mask
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        given = labels.classes[labels.codes[known]]
        return float(accuracy_score(given, names[known], sample_weight=weights))

    def predict(self, X: Any, other: Any = None, *, also: Any = None) -> AnyArray:
        """The most probable class of each new sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        other : float, default=None
            Samples whose `outlyingness` is above this get none of the classes, but what stands for
            an unknown label in y: -1 where classes are numbers, else None. With 0.95 at most about
            5 % of the samples that do belong to a class lose its name, in the mean over draws of
            the labels: with few of them it may be more in one case, and fewer in most.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` had, of these samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = self.predict_proba(X, also=also).argmax(axis=1)
        names = self.classes_[best]
        if other is None:
            return names
        if not (isinstance(other, (int, float)) and 0 < other < 1):
            raise ValueError(
                f"The 'other' parameter of predict must be None or a number between 0 and 1, got "
                f"{other!r}; 0.95 gives up about 5 % of the samples that belong to a class."
            )
        number = names.dtype.kind in "if"
        names = names if number else names.astype(object)
        names[self.outlyingness(X, also=also) > other] = -1 if number else None
        return names

    def outlyingness(self, X: Any = None, *, also: Any = None) -> AnyArray:
        """How far samples are from everything that was labelled, in [0, 1].

        The share of samples of the labelled classes that should be nearer to the labels, by the
        labels themselves, each held out in turn: 0.95 and more is to be expected of one in twenty
        samples that do belong. It needs three labels whose class has another one.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
            New samples; those of the fit where None.
        also : list of arrays, or mapping of names to arrays, default=None
            The further arrays that `fit` had, of these samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        measured = self._outlying
        if X is None:
            return measured.score(self._features.views["codes"])
        views, near, _ = self._new(X, also)
        return measured.score(views["codes"], near[""])

    @property
    def others_found_(self) -> float:
        """Share of labels whose `outlyingness` is above 0.95 while their class is held out."""
        check_is_fitted(self)
        return self._outlying.found

    @property
    def _outlying(self) -> Outlying:
        """Of the labels of now; kept as long as they are the same."""
        labelled, features = self._state["labelled"], self._features
        cache = self.__dict__.setdefault("_cache", {})
        last = cache.get("outlying")
        names = self.transduction_[labelled]
        if last is None or not (np.array_equal(last[0], labelled) and (last[1] == names).all()):
            y = np.unique(names, return_inverse=True)[1]
            with blas_threads(features.plain.size):
                made = measure(features.views["codes"], features.graph, labelled, y)
            last = cache["outlying"] = (labelled, names, made)
        found: Outlying = last[2]
        return found

    def transform(self, X: Any, *, also: Any = None) -> AnyArray:
        """Codes of new samples: V >= 0 with the parts fixed and close to those of neighbours."""
        check_is_fitted(self)
        return self._new(X, also)[2]

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

    def save(self, path: Any) -> Any:
        """Write the model to a file, for `partwise.load`: JSON and arrays, no pickle."""
        from partwise.estimators import saving

        return saving.save(self, path)

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


def _one_name(name: Any, n: int, all_known: bool) -> str:
    what = f"All {n} labels are {str(name)!r}" if n > 1 else f"The only label is {str(name)!r}"
    said = (
        f"{what}, so every sample gets that name and how sure it is cannot be known: label samples "
        "of a second class, too."
    )
    number = isinstance(name, (int, float, np.number)) and not isinstance(name, bool)
    if number and name == 1 and not all_known:
        said += (
            " -1 in y means unknown: where it is your second class, give it another number, as "
            "np.where(y == -1, 0, y) does."
        )
    return said


def _confidence(p: AnyArray) -> AnyArray:
    """The largest of each row; NaN where there is one column, which says nothing."""
    return np.asarray(p.max(axis=1) if p.shape[1] > 1 else np.full(len(p), np.nan))


def _listed(names: Any) -> str:
    return "".join(f", {name}" for name in names)


def _is_local(X: Any) -> bool:
    return sp.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))


def _has_finite_sums(X: Any) -> bool:
    """Whether the rows of a plain array have a finite sum, in threads; False for other kinds."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        return False
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        by_entry(lambda rows: found.append(bool(np.isfinite(X[rows].sum()))), X)
    return all(found)


def _fingerprint(X: Any) -> str:
    """A digest of the numbers of X; elsewhere, only of its shape."""
    if not _is_local(X):
        return f"{type(X).__name__} {tuple(X.shape)}"
    digest = hashlib.blake2b(str((X.shape, X.dtype)).encode())
    for part in (X.data, X.indices, X.indptr) if sp.issparse(X) else (row_marks(X),):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
