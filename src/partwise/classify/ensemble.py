"""Ensemble of classifiers, weighted by cross-validation over the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax, softmax

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import allowed, each, pieces, results, threads_for
from partwise.classify import classifiers
from partwise.classify.calibration import WORST, Calibration, calibrate, temper
from partwise.classify.classifiers import Linear
from partwise.classify.features import Features, Views
from partwise.persistence.values import may_be_saved

#: Values of α in label spreading: with "far", labels spread over a whole cluster, and with "near"
#: only to close neighbours.
SPREAD = {"far": 0.99, "near": 0.9}
#: Number of EM iterations for the Gaussian mixtures.
ROUNDS = 3
#: Number of samples that cross-validation uses. If there are more, it uses a random subset.
WORKING = 4000
#: FIRST lists the linear classifiers and the views that they are fitted to. SECOND lists the views
#: of the Gaussian mixtures, whose EM starts from the averaged predictions of the first classifiers.
FIRST = (
    ("logistic", "parts"),
    ("logistic", "both"),
    ("logistic", "smooth"),
    ("discriminant", "parts"),
    ("discriminant", "data"),
    ("discriminant", "both"),
)
SECOND = ("data", "both")
#: Linear classifiers and their views for a preparation without parts.
FIRST_OTHER = (("logistic", "data"), ("logistic", "smooth"), ("discriminant", "data"))
#: Number of trees of a forest, and of each forest in cross-validation.
TREES, FEWER = 50, 30
#: Largest number of rows, and of entries of a view, that are converted to float64 together.
ROWS, ENTRIES = 4000, 1 << 22
#: Strength of the prior that draws the weights of the classifiers towards equal weights. It counts
#: as much as this number of labels.
TRUST = 5.0
#: The same for the weights of the arrays that describe the samples (X and ``also``). It is larger,
#: since two arrays often complement each other, and few labels do not show which one is better. An
#: array without information does little harm: held-out labels make its probabilities nearly equal.
TRUST_ARRAYS = 100.0
#: Factor for the pull if the weights come from the held-out labels of several label columns.
POOLED = 4.0
#: Kind, preparation and view of an ensemble member.
Key = tuple[str, str, str]
WORDS = {
    "logistic": "logistic regression on",
    "discriminant": "discriminant analysis on",
    "mixture": "Gaussian mixture from labels and all samples on",
    "mixture 3": "Gaussian mixture from labels and all samples, three rounds of EM, on",
    "spreading": "label spreading",
    "ridge": "least squares on",
    "trees": "randomised trees on",
    "columns": "all columns",
    "parts": "the part weights",
    "data": "the data",
    "both": "part weights and data",
    "smooth": "data averaged with neighbours",
    "far": "over long distances",
    "near": "over short distances",
}
#: Classifiers whose agreement is one of the inputs of the expected accuracy.
AGREEING = ("logistic", "discriminant", "spreading", "mixture", "mixture 3")


class Candidate(NamedTuple):
    """One row of ``candidates_``: a classifier, its held-out scores and its weight."""

    name: str
    accuracy: float
    log_loss: float
    weight: float
    why: str


class Candidates(list[Candidate]):
    """A list of candidates that prints as a table, with the largest weight first."""

    def __str__(self) -> str:
        rows = [f"{'weight':>6}  {'accuracy':>8}  {'log loss':>8}  classifier"]
        rows += [f"{c.weight:6.2f}  {c.accuracy:8.2f}  {c.log_loss:8.2f}  {c.name}" for c in self]
        return "\n".join(rows)


@may_be_saved
@dataclass
class Member:
    """A fitted classifier of the ensemble.

    Attributes
    ----------
    kind, preparation, view : str
        Method, and the view that it is fitted to. For label spreading, ``view`` is "far" or
        "near".
    inverse_temperature : float
        Scores are multiplied by it before the softmax.
    accuracy, log_loss : float
        Scores on held-out labels; NaN if no label was held out.
    arrays : dict of arrays
        ``A`` and ``b`` of a linear classifier, the ``scores`` of the training samples for label
        spreading, or the arrays of `trees`. Empty if the scores of the member are not finite.
    """

    kind: str
    preparation: str
    view: str
    inverse_temperature: float = 1.0
    accuracy: float = float("nan")
    log_loss: float = float("nan")
    arrays: dict[str, AnyArray] = field(default_factory=dict)

    @property
    def name(self) -> str:
        preparation = f" ({self.preparation})" if self.preparation else ""
        return f"{WORDS[self.kind]} {WORDS[self.view]}{preparation}"

    @property
    def key(self) -> Key:
        return self.kind, self.preparation, self.view

    def scores(self, Z: Any, n_classes: int) -> AnyArray:
        """Return the class scores, of shape (n, n_classes), for n samples.

        Z contains their features from the view (one of several feature matrices) that this member
        was fitted to.
        """
        if self.kind == "trees":
            return classifiers.tree_scores(self.arrays, Z, n_classes)
        return np.asarray(Z @ self.arrays["A"] + self.arrays["b"])


@may_be_saved
@dataclass
class Ensemble:
    """Weighted classifiers, and the calibration of their averaged predictions.

    Attributes
    ----------
    members : list of Member
    weights : array of shape (n_members,)
    calibration : Calibration
    rows, held_out, truth : arrays
        Indices of the samples whose label was held out, their (n, n_classes) probabilities, and
        their classes.
    agreement : float
        How often a member and the ensemble predict the same class for an unlabelled sample; NaN
        if the weights are those of an earlier fit.
    """

    members: list[Member]
    weights: AnyArray
    calibration: Calibration
    rows: AnyArray
    held_out: AnyArray
    truth: AnyArray
    agreement: float = float("nan")

    def weighting(self) -> dict[str, Any]:
        """Return inverse temperatures and weights by the key of the member, and the calibration."""
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        members = {member.key: (member.inverse_temperature, w) for member, w in pairs}
        return {"members": members, "calibration": self.calibration}

    @property
    def candidates(self) -> Candidates:
        """Members of the ensemble with their weights, those with the largest weight first."""
        rows = []
        for member, w in zip(self.members, self.weights.tolist(), strict=True):
            ratio = w * len(self.members)
            why = "more weight than average: accurate on held-out labels"
            if ratio <= 1.5:
                why = "average weight" if ratio > 0.5 else "less weight than average"
            why = why if member.arrays else "left out, since its scores are not finite"
            rows.append(Candidate(member.name, member.accuracy, member.log_loss, w, why))
        return Candidates(sorted(rows, key=lambda row: -row.weight))

    def probabilities(self, views: Views, near: dict[str, sp.csr_array] | None = None) -> AnyArray:
        """Return (n, n_classes) probabilities of training samples, or of new samples.

        ``near`` maps each preparation to the neighbours of the new samples; None for training
        samples.
        """
        n_classes = len(self.calibration.tilt)
        mixed = mix(self.members, self.weights, views, n_classes, near)
        return self.calibration.apply(mixed)


def mix(
    members: list[Member],
    weights: AnyArray,
    views: Views,
    n_classes: int,
    near: dict[str, sp.csr_array] | None = None,
) -> AnyArray:
    """Return the weighted mean Σ_h w_h p_h of the members' probabilities, in threads."""
    pairs = [(member, w) for member, w in zip(members, weights, strict=True) if w > 0]
    spread, inputs = {}, {}
    for m, _ in pairs:
        if m.kind == "spreading":
            p = softmax(m.inverse_temperature * m.arrays["scores"], axis=1)
            # Label spreading predicts a new sample by the mean of its neighbours.
            spread[m.key] = p if near is None else near[m.preparation] @ p
        else:
            Z = inputs[m.key[1:]] = views[m.preparation][m.view]
            if m.kind == "trees":
                classifiers.check_trees(m.arrays, Z.shape[1], n_classes)
    n = next(iter(views[""].values())).shape[0]
    total = np.zeros((n, n_classes))

    def run(lo: int, hi: int) -> None:
        # Products are computed in float64, since float32 results depend on the number of rows.
        blocks = {key: Z[lo:hi].astype(float) for key, Z in inputs.items()}
        for m, w in pairs:
            if m.key in spread:
                total[lo:hi] += w * spread[m.key][lo:hi]
            else:
                scores = m.scores(blocks[m.key[1:]], n_classes)
                total[lo:hi] += w * softmax(m.inverse_temperature * scores, axis=1)

    columns = sum(Z.shape[1] for Z in inputs.values() if not sp.issparse(Z))
    rows = max(min(ROWS, ENTRIES // max(columns, 1)), 1)
    each(run, pieces(n, rows, n), threads_for(float(n) * columns * 50))
    return total


class Fitted(NamedTuple):
    """A member, its held-out probabilities, and its log probabilities of `EnsembleFit.rows`.

    While members are fitted, ``log_p`` has a first axis with the folds and the fit to all labels.
    """

    member: Member
    held: AnyArray
    log_p: AnyArray


class Kept(NamedTuple):
    """Slow members of the last complete fit, which a fast fit reuses."""

    members: list[Member]
    weights: AnyArray
    mixed: AnyArray
    labelled: AnyArray
    y: AnyArray


class Labelled(NamedTuple):
    """Labelled samples in ascending order, with their class codes, weights, and the classes."""

    rows: AnyArray
    y: AnyArray
    weights: AnyArray
    classes: AnyArray


class Folds(NamedTuple):
    """Folds of the labels, and their weights in training.

    If only one class loses a label, its mean becomes less accurate than the means of the other
    classes. A classifier that uses class means then predicts the held-out label worse than a new
    sample, and worse than chance with two labels per class. So when a label of one class is held
    out, every other class loses a label, too.

    Attributes
    ----------
    fold : int array of shape (n_labelled,)
        The fold in which a label is held out; -1 for the only label of a class.
    means, spread : float arrays of shape (n_folds + 1, n_labelled)
        Training weights of the labels in each fold. In ``means`` all classes lose the same number
        of labels. ``spread`` leaves out only the held-out labels and serves statistics that all
        classes share. The last row is for the fit to all labels.
    """

    fold: AnyArray
    means: AnyArray
    spread: AnyArray


def make_folds(y: AnyArray, weights: AnyArray, n_folds: int, rng: np.random.RandomState) -> Folds:
    """Return folds for class codes ``y`` (0 to c-1); 0 folds hold no label out."""
    n, c = y.size, int(y.max()) + 1
    fold, place = np.full(n, -1), 0
    members = [rng.permutation(np.flatnonzero(y == j)) for j in range(c)]
    for j in rng.permutation(c):
        m = members[j].size
        if m > 1 and n_folds:
            fold[members[j]] = (place + np.arange(m)) % n_folds
            place = (place + m) % n_folds
    means, spread = np.ones((n_folds + 1, n)), np.ones((n_folds + 1, n))
    for f in range(n_folds):
        means[f, fold == f] = spread[f, fold == f] = 0
        for mine in members:
            if mine.size > 1 and not (fold[mine] == f).any():
                means[f, mine[f % mine.size]] = 0
    return Folds(fold, means * weights, spread * weights)


class EnsembleFit:
    """Ensemble members fitted to all labels, and to the labels outside of each fold.

    Parameters
    ----------
    features : Features
    labelled : Labelled
    n_folds : int
        Number of folds. 0 holds no label out, for a fast answer. Weights and temperatures are then
        taken from ``previous``, or are equal, and only members for which `is_fast` is true are
        fitted.
    seed : int
    cache : dict
        Results that later fits reuse: those that do not depend on labels, and initial values.
    previous : mapping or None
        `Ensemble.weighting` of an earlier fit.
    """

    def __init__(
        self,
        features: Features,
        labelled: Labelled,
        n_folds: int,
        seed: int,
        cache: dict[str, Any],
        previous: Mapping[str, Any] | None = None,
    ) -> None:
        n = len(features.first.data)
        self.features, self.seed, self.cache, self.previous = features, seed, cache, previous
        self.given, self.n_classes, self.n_folds = labelled, len(labelled.classes), n_folds
        self.labelled, self.y, weights = _merge_copies(features.digests, labelled)
        self.folds = make_folds(self.y, weights, n_folds, np.random.RandomState(seed))
        self.scored = np.flatnonzero(self.folds.fold >= 0)
        self.rows = np.arange(n)
        if n > WORKING:
            some = np.random.RandomState(seed).permutation(n)[:WORKING]
            self.rows = np.union1d(self.labelled, some)
        self.at: AnyArray = np.searchsorted(self.rows, self.labelled)
        self.views = features.views(slice(None) if self.rows.size == n else self.rows)
        self.truth = self.y[self.scored]
        self.before = previous["members"] if previous else {}

    def ensemble(
        self,
        priors: AnyArray | None,
        drawn: AnyArray | None = None,
        pooled: Mapping[Key, float] | None = None,
    ) -> tuple[Ensemble, AnyArray]:
        """Weight the members and calibrate their mixture.

        ``priors`` are known shares of the classes, or None. ``drawn`` are the numbers of labels per
        class among random samples. ``pooled`` are weights of members that also use other label
        columns. Return the ensemble and the probabilities of all samples.
        """
        fitted, failed = self.tried
        members = [one.member for one in fitted]
        held = np.stack([one.held for one in fitted])
        w, held = self.weights(members, held, self.truth, pooled)
        agreement = self.agreement(fitted, w) if self.previous is None else float("nan")
        fast = np.array([self.is_fast(member) for member in members])
        mixed = self.mixture(fitted, np.where(fast, w, 0))
        if self.n_folds:
            others = self.mixture(fitted, np.where(fast, 0, w))
            slow = [m for m, mine in zip(members, fast, strict=True) if not mine]
            self.cache["kept"] = Kept(slow, w[~fast], others, self.labelled, self.y)
            mixed = mixed + others
        elif self.previous and self.cache.get("kept") and self._fits(self.cache["kept"]):
            kept: Kept = self.cache["kept"]
            left = 1 - kept.weights.sum()
            mixed, members = left * mixed + kept.mixed, [*members, *kept.members]
            w = np.append(left * w, kept.weights)
        last = self.previous["calibration"] if self.previous else None
        counts = np.bincount(self.y, minlength=self.n_classes)
        calibration = calibrate(mixed, held, self.truth, counts, last, priors, drawn)
        weights = np.append(w, np.zeros(len(failed)))
        held, rows = calibration.apply(held), self.labelled[self.scored]
        found = [*members, *failed], weights, calibration, rows, held, self.truth, agreement
        return Ensemble(*found), calibration.apply(mixed)

    def _fits(self, kept: Kept) -> bool:
        """Return whether members of an earlier fit are still valid.

        They are if the classes are the same and no label has changed.
        """
        _, old, new = np.intersect1d(kept.labelled, self.labelled, return_indices=True)
        same = bool((kept.y[old] == self.y[new]).all())
        return same and np.unique(self.y[new]).size == self.n_classes == kept.mixed.shape[1]

    @cached_property
    def tried(self) -> tuple[list[Fitted], list[Member]]:
        """The fitted members, and the members whose scores are not finite.

        A fast answer leaves out the members that take long to fit.
        """
        prepared = self.features.prepared
        tasks: list[tuple[Any, ...]] = [
            (self._on_views, name)
            for name, mine in prepared.items()
            if mine.has_parts or self.n_folds
        ]
        if self.n_folds:
            tasks += [(self._ridge, name) for name in prepared]
            tasks += [(self._trees, *view) for view in self._tree_views()]
        found = results(lambda task, *of: task(*of), tasks, allowed())
        tried = [one._replace(log_p=one.log_p[-1].copy()) for mine in found for one in mine]
        fitted = [one for one in tried if one.member.arrays]
        failed = [one.member for one in tried if not one.member.arrays]
        if not fitted:
            names = ", ".join(member.name for member in failed)
            raise ValueError(
                f"No classifier has finite scores (tried: {names}). Scale the columns of X."
            )
        return fitted, failed

    def is_fast(self, member: Member) -> bool:
        """Return whether the member can be fitted quickly enough for an interactive fit."""
        prepared = self.features.prepared[member.preparation]
        return member.kind not in ("trees", "ridge") and prepared.has_parts

    def weights(
        self,
        members: list[Member],
        held: AnyArray,
        truth: AnyArray,
        pooled: Mapping[Key, float] | None = None,
    ) -> tuple[AnyArray, AnyArray]:
        """Return weights that maximise Σ log Σ_h w_h p_h(y_i) over held-out labels.

        The members on each array are weighted first, and then the arrays. ``held`` holds the
        probabilities p_h (n_members, n_held_out, n_classes) and ``truth`` the classes. With few
        labels the weights stay near equal ones, or near ``pooled`` if it is given, which counts
        `POOLED` times as much. Return the weights and the averaged held-out predictions.
        """
        if self.previous:
            w = np.array([self.before.get(m.key, (1.0, 0.0))[1] for m in members])
            w = w if w.sum() > 0 else np.ones(len(w))
            return w / w.sum(), np.ones((0, self.n_classes))
        right = np.maximum(held[:, np.arange(truth.size), truth].T, 1e-6)
        sources = [self.features.prepared[m.preparation].source for m in members]
        arrays, which = np.unique(sources, return_inverse=True)
        w, by_array = np.zeros(len(held)), np.zeros((len(right), arrays.size))
        near: AnyArray = np.ones(len(held))
        near_arrays, factor = np.ones(arrays.size), 1.0
        if pooled is not None:
            near, factor = np.array([pooled.get(m.key, 0.0) for m in members]), POOLED
            near_arrays = np.bincount(which, near).astype(float)
        for j in range(arrays.size):
            mine = which == j
            w[mine] = likeliest_weights(right[:, mine], factor * TRUST, near[mine])
            by_array[:, j] = right[:, mine] @ w[mine]
        w *= likeliest_weights(by_array, factor * TRUST_ARRAYS, near_arrays)[which]
        return w, np.maximum(np.tensordot(w, held, axes=1), 1e-12)

    def agreement(self, fitted: list[Fitted], w: AnyArray) -> float:
        """Return how often members agree with their average on unlabelled samples.

        Only members of the kinds `AGREEING` on preparations with parts count, since the constants
        `calibration.SHARE` were fitted to these members.
        """
        asked = np.array(
            [one.member.kind in AGREEING and self.is_fast(one.member) for one in fitted]
        )
        w = np.where(asked, w, 0) if asked.any() else w
        w = w / w.sum()
        best = self._mixed(fitted, w).argmax(axis=1)
        rest = np.ones(best.size, dtype=bool)
        rest[self.at] = False
        rest = rest if rest.any() else ~rest
        same = [np.mean(one.log_p.argmax(axis=1)[rest] == best[rest]) for one in fitted]
        return float(w @ same)

    def mixture(self, fitted: list[Fitted], w: AnyArray) -> AnyArray:
        """Return the averaged predictions Σ_h w_h p_h of all samples."""
        if self.rows.size < len(self.features.first.data):
            members = [one.member for one in fitted]
            return mix(members, w, self.features.views(), self.n_classes)
        return self._mixed(fitted, w)

    def _mixed(self, fitted: list[Fitted], w: AnyArray) -> AnyArray:
        """Return the averaged predictions Σ_h w_h p_h of the samples ``self.rows``."""
        total = np.zeros((self.rows.size, self.n_classes))
        for share, one in zip(w, fitted, strict=True):
            total += share * np.exp(one.log_p) if share else 0
        return total

    def _member(
        self, kind: str, preparation: str, view: str, raw: AnyArray, **arrays: AnyArray
    ) -> Fitted:
        """Choose a temperature for scores (n_folds + 1, n, n_classes), and return the member."""
        member = Member(kind, preparation, view)
        log_p = log_softmax(raw, axis=2)
        if not np.isfinite(log_p).all():
            return Fitted(member, log_p, log_p)
        member.arrays = arrays
        scored = self.folds.fold[self.scored], self.at[self.scored]
        heat = self.before.get(member.key, (temper(log_p[scored], self.truth), 0.0))[0]
        member.inverse_temperature = heat
        log_p = log_p if heat == 1 else log_softmax(heat * log_p, axis=2)
        held = log_p[scored]
        if self.truth.size:
            member.accuracy = float(np.mean(held.argmax(axis=1) == self.truth))
            right = held[np.arange(self.truth.size), self.truth]
            member.log_loss = float(-np.maximum(right, -WORST).mean())
        return Fitted(member, np.exp(held).astype(float), log_p)

    def _linear(self, kind: str, preparation: str, view: str, fit: Linear) -> Fitted:
        raw = fit.scores(self.views[preparation][view])
        return self._member(kind, preparation, view, raw, A=fit.A[-1], b=fit.b[-1])

    def _on_views(self, name: str) -> list[Fitted]:
        """Fit the classifiers of a preparation, then Gaussian mixtures from their average."""
        folds, views, found = self.folds, self.views[name], []
        for kind, view in FIRST if self.features.prepared[name].has_parts else FIRST_OTHER:
            Z = views[view][self.at]
            if kind == "logistic":
                fit = self._logistic(Z, f"{name}, {view}")
            else:
                fit = classifiers.discriminant(Z, self.y, folds.means, folds.spread, self.n_classes)
            found.append(self._linear(kind, name, view, fit))
        found += self._spreading(name)
        finite = [one for one in found if one.member.arrays]
        if finite:
            held = np.stack([one.held for one in finite])
            w = self.weights([one.member for one in finite], held, self.truth)[0]
            start: Any = 0.0
            for share, one in zip(w, finite, strict=True):
                start = start + np.float32(share) * np.exp(one.log_p)
            for view in [view for view in SECOND if view in views]:
                to = (views[view], self.at, self.y, folds.means, start, ROUNDS)
                fits = classifiers.mixture(*to)
                found.append(self._linear("mixture", name, view, fits[0]))
                found.append(self._linear("mixture 3", name, view, fits[1]))
        return found

    def _logistic(self, Z: AnyArray, key: str) -> Linear:
        """Fit logistic regression; a fast answer starts from the last coefficients.

        Otherwise the coefficients start from zero, so that the result does not depend on earlier
        labels.
        """
        starts = self.cache.setdefault("starts", {})
        start = None if self.n_folds else starts.get(key)
        if start is not None and start.shape[1] != self.n_classes:
            start = None
        fit = classifiers.logistic(Z, self.y, self.folds.means, self.n_classes, start)
        last = np.vstack([fit.A[-1], fit.b[-1][None]]).astype(float)
        if np.isfinite(last).all():
            starts[key] = last
        return fit

    def _spreading(self, name: str) -> list[Fitted]:
        """Spread labels over the graph, and cache the influence of each label."""
        walks, reached = (self.cache.setdefault(key, {}) for key in ("walks", "reached"))
        if name not in walks:
            S, near = self.features.prepared[name].walk()
            walks[name], reached[name] = (classifiers.Walk.of(S), near), {}
        (walk, near), mine = walks[name], reached[name]
        missing = [i for i in self.labelled.tolist() if i not in mine]
        if missing:
            E = sp.eye_array(len(walk.rows), format="csr") if near is None else near
            found = classifiers.propagate(walk, E[missing], tuple(SPREAD.values()))
            mine.update(zip(missing, found, strict=True))
        shares = classifiers.class_shares(self.y, self.folds.means, self.n_classes)
        shares = shares.astype(np.float32)
        made = []
        for which, view in enumerate(SPREAD):
            reach = np.stack([mine[i][which] for i in self.labelled.tolist()])
            G = reach[:, self.rows] if near is None else np.asarray(near[self.rows] @ reach.T).T
            raw = classifiers.even_masses(np.matmul(shares, G))
            scores = raw[-1]
            if self.rows.size < len(self.features.first.data):
                scores = classifiers.even_masses((shares[-1] @ reach)[None])[0]
                scores = scores if near is None else np.log(near @ np.exp(scores))
            made.append(self._member("spreading", name, view, raw, scores=scores))
        return made

    def _ridge(self, name: str) -> list[Fitted]:
        """Fit least squares on all columns."""
        P, means = self.views[name]["columns"], self.folds.means
        raw, last = classifiers.ridge(P, self.at, self.y, means, self.n_classes)
        return [self._member("ridge", name, "columns", raw, A=last.A[0], b=last.b[0])]

    def _trees(self, name: str, view: str) -> list[Fitted]:
        """Fit a forest to all labels, and smaller forests that score only held-out labels."""
        Z, y, c, folds, seed = self.views[name][view], self.y, self.n_classes, self.folds, self.seed
        raw = np.zeros((self.n_folds + 1, len(Z), c))
        for f in range(self.n_folds):
            mine = self.at[folds.fold == f]
            known = folds.means[f] > 0
            if mine.size and known.any():
                seen = Z[self.at[known]], y[known], folds.means[f, known]
                fewer = classifiers.grow_trees(*seen, c, seed, FEWER)
                raw[f, mine] = classifiers.tree_scores(fewer, Z[mine], c)
        grown = classifiers.grow_trees(Z[self.at], y, folds.means[-1], c, seed, TREES)
        raw[-1] = classifiers.tree_scores(grown, Z, c)
        return [self._member("trees", name, view, raw, **grown)]

    def _tree_views(self) -> list[tuple[str, str]]:
        """Return one view per array: all columns of a table, otherwise part weights and data."""
        found: dict[str, tuple[str, str]] = {}
        prepared = self.features.prepared
        for name, mine in prepared.items():
            if mine.preparation.table and not sp.issparse(mine.P):
                found.setdefault(mine.source, (name, "columns"))
        coded = {mine.source: name for name, mine in prepared.items() if mine.has_parts}
        return [found.get(source, (name, "both")) for source, name in coded.items()]


def likeliest_weights(right: AnyArray, trust: float, near: AnyArray) -> AnyArray:
    """Return w >= 0, Σw = 1, that maximise Σ_i log Σ_h w_h p_h(y_i) + trust Σ_h v_h log w_h.

    ``right`` (n, n_h) holds p_h(y_i). With few labels the second term keeps the weights near v,
    which is ``near`` divided by its sum, or equal weights if that is zero.
    """
    near = near / near.sum() if near.sum() > 0 else np.full(len(near), 1 / len(near))
    w = near
    for _ in range(200 if right.size > len(right) else 0):
        w = w * ((1 / (right @ w)) @ right) + trust * near
        w /= w.sum()
    return w


def _merge_copies(digests: AnyArray, labelled: Labelled) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Replace copies of a sample with the same label by one sample with their total weight.

    Otherwise a held-out sample could have a copy in training, and its score would be too good.
    """
    rows, y, weights = labelled[:3]
    if not digests.size:
        return rows, y, weights
    pairs = np.stack([digests[rows], y.astype(np.uint64)])
    _, first, which = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    keep = np.argsort(first)
    return rows[first[keep]], y[first[keep]], np.bincount(which.ravel(), weights)[keep]
