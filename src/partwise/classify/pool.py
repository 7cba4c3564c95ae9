"""Which heads to believe: cross-validation over the labels weighs them; none is chosen alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import allowed, each, one_blas_thread, pieces, results, threads_for
from partwise.classify import heads, spreading, trees
from partwise.classify.calibration import WORST, Calibration, calibrate, temper
from partwise.classify.features import Features
from partwise.classify.folds import Folds, make_folds
from partwise.classify.heads import LinearScores, softmax

#: How far a label spreads over the graph: to its cluster, to its surroundings.
SPREAD = {"far": 0.99, "near": 0.9}
#: Rounds of EM from the first answer.
ROUNDS = 3
#: Samples on which folds are computed; beyond, a random part stands for all.
WORKING = 4000
FIRST = (
    ("logistic", "codes"),
    ("logistic", "both"),
    ("logistic", "smooth"),
    ("discriminant", "codes"),
    ("discriminant", "plain"),
    ("discriminant", "both"),
)
SECOND = ("plain", "both")
#: Kinds of heads whose agreement says how right an answer is.
AGREEING = ("logistic", "discriminant", "spreading", "self-taught", "self-taught more")
#: The same for each other preparation.
FIRST_OTHER = (("logistic", "plain"), ("logistic", "smooth"), ("discriminant", "plain"))
SECOND_OTHER = ("plain",)
#: Trees of a forest, and of those that see but a part of the labels.
TREES, FEWER = 50, 12
#: Samples whose masses are added up together.
TOGETHER = 8000
#: Samples that are named together, scores that are made for them, and entries of a view that are
#: converted at a time, to save memory.
ROWS, SCORES, WIDE = 4000, 1 << 20, 1 << 20
#: What the heads together count beside the labels, in labels: with few of them they stay even.
TRUST = 5.0
#: The same for arrays of the same samples: more, since two that are right on other samples help
#: each other, and a few labels do not tell which is better.
TRUST_ARRAYS = 10.0
WORDS = {
    "logistic": "logistic regression on",
    "discriminant": "Gaussian classes on",
    "self-taught": "Gaussian classes, taught by the first answer, on",
    "self-taught more": "Gaussian classes, taught three times, on",
    "spreading": "labels spread over the graph,",
    "ridge": "least squares on",
    "trees": "random trees on",
    "whole": "all columns",
    "codes": "the codes",
    "plain": "the data itself",
    "both": "codes and data",
    "smooth": "data averaged with neighbours",
    "far": "far",
    "near": "near",
}
FAILED = "left out: it gave scores that are not finite"


class Candidate(NamedTuple):
    """One row of ``candidates_``: what was tried, how it did on held-out labels, what it counts."""

    name: str
    accuracy: float
    log_loss: float
    weight: float
    why: str


class Candidates(list[Candidate]):
    """A list that prints as a table, the heaviest first."""

    def __str__(self) -> str:
        rows = [f"{'weight':>6}  {'right':>5}  {'log loss':>8}  candidate"]
        rows += [f"{c.weight:6.2f}  {c.accuracy:5.2f}  {c.log_loss:8.2f}  {c.name}" for c in self]
        return "\n".join(rows)


@dataclass
class Head:
    """A fitted head: linear in its view, or scores of the training samples, spread on the graph."""

    kind: str
    view: str
    heat: float
    A: AnyArray | None = None
    b: AnyArray | None = None
    scores: AnyArray | None = None
    forest: dict[str, AnyArray] | None = None

    @property
    def view_prefix(self) -> str:
        """The preparation in the view's name; "" for the first preparation."""
        return self.view[: self.view.rfind(": ") + 2] if ": " in self.view else ""

    @property
    def name(self) -> str:
        name = f"{WORDS[self.kind]} {WORDS[self.view.removeprefix(self.view_prefix)]}"
        return f"{name} ({self.view_prefix[:-2]})" if self.view_prefix else name

    @property
    def n_classes(self) -> int:
        if self.forest is not None:
            return int(self.forest["classes"].size)
        found = self.scores if self.A is None else self.A
        assert found is not None
        return int(found.shape[1])

    @property
    def is_static(self) -> bool:
        """Whether `relabel` without weighing keeps the head as it was."""
        return self.kind in ("trees", "ridge") or bool(self.view_prefix)

    def take_classes(self, order: AnyArray) -> None:
        """The classes in another order."""
        if self.A is not None and self.b is not None:
            self.A, self.b = self.A[:, order], self.b[order]
        if self.scores is not None:
            self.scores = self.scores[:, order]
        if self.forest is not None:
            self.forest = {**self.forest, "name": _places(order)[self.forest["name"]]}

    def spread(self, rows: slice = slice(None)) -> AnyArray:
        """(n, c) of the graph's scores."""
        assert self.scores is not None
        return heads.softmax(self.heat * self.scores[rows])


@dataclass
class Answer:
    """Heads with their weights, and how sure their mixture may be.

    ``held_out`` are its probabilities of labels that were held out, ``truth`` their codes, and
    ``rows`` the samples that they are of. ``agreement`` is how far the heads give samples without
    a label the same names; NaN where the weights were taken over.
    """

    heads: list[Head]
    weights: AnyArray
    calibration: Calibration
    held_out: AnyArray
    truth: AnyArray
    rows: AnyArray
    agreement: float = float("nan")

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and text, for `from_state`."""
        made = [vars(head) for head in self.heads]
        return {**vars(self), "heads": made, "calibration": vars(self.calibration)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Answer:
        made = [Head(**head) for head in state["heads"]]
        sure = Calibration(**state["calibration"])
        return cls(**{**state, "heads": made, "calibration": sure})

    def weighting(self) -> dict[str, Any]:
        """Return weights and temperatures alone, for `from_weighting`."""
        made = [(head.kind, head.view, head.heat) for head in self.heads]
        return {"heads": made, "weights": self.weights, "calibration": vars(self.calibration)}

    @classmethod
    def from_weighting(cls, weighting: Mapping[str, Any]) -> Answer:
        """Return an answer whose classifiers were not fitted, only weighed."""
        made, sure = [Head(*head) for head in weighting["heads"]], weighting["calibration"]
        nothing = np.empty(0, dtype=np.int64)
        held = np.empty((0, len(sure["tilt"])))
        return cls(made, weighting["weights"], Calibration(**sure), held, nothing, nothing)

    def probabilities(
        self, views: dict[str, AnyArray], near: dict[str, sp.csr_array] | None = None
    ) -> AnyArray:
        """(n, c) of the training samples, or of new ones with their neighbours ``near``."""
        return self.calibration.apply(mixture_of(self.heads, self.weights, views, near))


def mixture_of(
    heads: list[Head],
    weights: AnyArray,
    views: dict[str, AnyArray],
    near: dict[str, sp.csr_array] | None = None,
) -> AnyArray:
    """Σ_h w_h p_h, (n, c), in threads."""
    pairs = [pair for pair in zip(heads, weights, strict=True) if pair[1] > 0]
    if not pairs:
        return np.zeros(())
    asked = {head.view: views[head.view] for head, _ in pairs if head.scores is None}
    for head, _ in pairs:
        if head.forest is not None:
            trees.check(head.forest, asked[head.view].shape[1])
    counted = near if near is not None else views
    n = next(iter(counted.values())).shape[0]
    columns = sum(Z.shape[1] for Z in asked.values())
    linear = _Linear.of([pair for pair in pairs if pair[0].A is not None])
    graphs = [pair for pair in pairs if pair[0].scores is not None]
    if near is not None:  # new samples have the mean of their neighbours
        around = [weight * (near[head.view_prefix] @ head.spread()) for head, weight in graphs]
    total = np.empty((n, pairs[0][0].n_classes))

    def run(lo: int, hi: int) -> None:
        part: Any = linear.mixed(asked, slice(lo, hi)) if linear else 0.0
        for head, weight in pairs:
            if head.forest is not None:
                log_p = trees.log_shares(head.forest, asked[head.view][lo:hi])
                part = part + weight * softmax(head.heat * log_p)
        for number, (head, weight) in enumerate(graphs):
            mine = weight * head.spread(slice(lo, hi)) if near is None else around[number][lo:hi]
            part = part + mine
        total[lo:hi] = part

    rows = min(max(SCORES // (len(pairs) * total.shape[1]), 100), ROWS)
    with one_blas_thread:
        each(run, pieces(n, rows, n), threads_for(float(n) * columns * 50))
    return total


class _Linear(NamedTuple):
    """Linear heads side by side: a product for each view, and then all at once.

    Each call of numpy waits for the interpreter: with many threads that is most of the time.
    """

    parts: list[tuple[str, AnyArray]]
    b: AnyArray
    weights: AnyArray

    @classmethod
    def of(cls, pairs: list[tuple[Head, Any]]) -> _Linear | None:
        if not pairs:
            return None
        if any(np.asarray(head.A).shape[1:] != np.asarray(head.b).shape for head, _ in pairs):
            raise ValueError("a linear head has as many directions as constants")
        by_view = {view: [pair for pair in pairs if pair[0].view == view]
                   for view in dict.fromkeys(head.view for head, _ in pairs)}  # fmt: skip
        parts = [
            (view, np.concatenate([h.heat * np.asarray(h.A, dtype=float).T for h, _ in mine]))
            for view, mine in by_view.items()
        ]
        pairs = [pair for mine in by_view.values() for pair in mine]
        b = np.stack([head.heat * np.asarray(head.b, dtype=float) for head, _ in pairs])
        return cls(parts, b, np.array([weight for _, weight in pairs], dtype=float))

    def mixed(self, views: dict[str, Any], rows: slice) -> AnyArray:
        """Σ_h w_h p_h, (n, c), of these rows."""
        P = np.empty((self.b.size, rows.stop - rows.start))
        begin = 0
        for view, A in self.parts:
            Z = views[view][rows]
            step = max(WIDE // max(Z.shape[1], 1), 1)
            for lo in range(0, Z.shape[0], step):
                # in float64: a float32 product depends on how many rows there are
                P[begin : begin + len(A), lo : lo + step] = A @ Z[lo : lo + step].T.astype(float)
            begin += len(A)
        P = P.reshape(*self.b.shape, -1)
        P += self.b[:, :, None]
        P -= P.max(axis=1, keepdims=True)
        np.exp(P, out=P)
        P *= self.weights[:, None, None] / P.sum(axis=1, keepdims=True)
        return P.sum(axis=0).T


#: A head, and the logs of its probabilities in all folds, or None.
Tempered = tuple[Head, AnyArray | None]


class Gathered(dict[str, Any]):
    """Some rows of views, taken when they are asked for."""

    def __init__(self, views: dict[str, Any], rows: AnyArray) -> None:
        super().__init__()
        self.views, self.rows = views, rows

    def __missing__(self, name: str) -> Any:
        self[name] = self.views[name][self.rows]
        return self[name]


@dataclass
class Trial:
    """The labels in folds, the samples on which folds are computed, and what was tried on them."""

    folds: Folds
    labelled: AnyArray
    at: AnyArray
    y: AnyArray
    n_classes: int
    views: dict[str, AnyArray]
    weighed: Answer | None
    by_prefix: dict[str, Features]
    heads: list[Head] = field(default_factory=list)
    logs: list[AnyArray] = field(default_factory=list)
    failed: list[Head] = field(default_factory=list)

    def tempered(self, kind: str, view: str, raw: AnyArray, **fitted: Any) -> Tempered:
        """A head by its scores (n_folds + 1, n, c) of the working samples, and their logs.

        None for the logs where scores are not numbers.
        """
        head = Head(kind, view, 1.0, **fitted)
        log_p = heads.log_softmax(raw)
        if not np.isfinite(log_p).all():
            return head, None
        if self.weighed is None:
            head.heat = temper(self._held_out(log_p), self.known)
        else:
            head.heat = self._as_weighed(head)[0]
        return head, log_p if head.heat == 1 else heads.log_softmax(head.heat * log_p)

    def add(self, made: list[Tempered]) -> None:
        """Heads that count from now on; those that failed are left out."""
        for head, log_p in made:
            if log_p is None:
                self.failed.append(head)
                continue
            self.logs.append(log_p)
            self.heads.append(head)

    def _as_weighed(self, head: Head) -> tuple[float, float]:
        """The temperature and the weight of the same head in the answer that was weighed."""
        assert self.weighed is not None
        for old, weight in zip(self.weighed.heads, self.weighed.weights, strict=True):
            if (old.kind, old.view) == (head.kind, head.view):
                return old.heat, float(weight)
        return 1.0, 0.0

    def linear(self, kind: str, view: str, fit: LinearScores) -> list[Tempered]:
        """`tempered` of a linear head."""
        raw = fit.scores(self.views[view])
        return [self.tempered(kind, view, raw, A=fit.A[-1], b=fit.b[-1])]

    @property
    def known(self) -> AnyArray:
        """Codes of the labels that are held out once."""
        return self.y[self.folds.scored]

    def _held_out(self, log_p: AnyArray) -> AnyArray:
        return self.folds.held_out(log_p, self.at)

    def weights(self, some: slice = slice(None)) -> tuple[AnyArray, AnyArray]:
        """Weights that maximise Σ log Σ_h w_h p_h(y_i) over held-out labels, and the mixture there.

        First of the heads on each array, then of the arrays. Of all heads or some.
        """
        if not self.heads[some]:
            names = ", ".join(head.name for head in self.failed)
            raise ValueError(
                f"There is no head left that gives finite scores (tried: {names}); look for values "
                "of X that are far out of scale, or scale its columns."
            )
        if self.weighed is not None:
            w = np.array([self._as_weighed(head)[1] for head in self.heads[some]])
            w = w if w.sum() > 0 else np.ones(len(w))
            return w / w.sum(), np.ones((0, self.n_classes))
        held = np.stack([np.exp(self._held_out(log_p)) for log_p in self.logs[some]]).astype(float)
        right = np.maximum(held[:, np.arange(self.known.size), self.known].T, 1e-6)
        sources = [self.by_prefix[head.view_prefix].source for head in self.heads[some]]
        arrays, which = np.unique(sources, return_inverse=True)
        w, by_array = np.zeros(len(held)), np.zeros((len(right), arrays.size))
        for j in range(arrays.size):
            w[which == j] = likeliest_weights(right[:, which == j], TRUST)
            by_array[:, j] = right[:, which == j] @ w[which == j]
        w *= likeliest_weights(by_array, TRUST_ARRAYS)[which]
        return w, np.maximum(np.tensordot(w, held, axes=1), 1e-12)

    def mixed(self, w: AnyArray, folds: slice = slice(None), some: slice = slice(None)) -> AnyArray:
        """The mixture (n_folds + 1, n, c) of the working samples, or some folds of it."""
        total: Any = 0.0
        for share, log_p in zip(w, self.logs[some], strict=True):
            total = total + np.float32(share) * np.exp(log_p[folds])
        return total

    def agreement(self, w: AnyArray) -> float:
        """How far heads give working samples without a label the name of their own mixture.

        Of `AGREEING` alone, on the views of the first preparation of an array: what it means for
        the share of right names (`calibration.SHARE`) must not change with every head that is
        added.
        """
        views = (*SPREAD, *(view for _, view in FIRST))
        asked = [
            head.kind in AGREEING
            and "codes" in self.by_prefix[head.view_prefix].views
            and head.view.removeprefix(head.view_prefix) in views
            for head in self.heads
        ]
        w = np.where(asked, w, 0) if any(asked) else w
        w = w / w.sum()
        names = self.mixed(w, slice(-1, None))[0].argmax(axis=1)
        rest = np.ones(names.size, dtype=bool)
        rest[self.at] = False
        rest = rest if rest.any() else ~rest
        same = [np.mean(log_p[-1].argmax(axis=1)[rest] == names[rest]) for log_p in self.logs]
        return float(w @ same)

    def mixed_last(self, w: AnyArray, some: list[int]) -> AnyArray:
        """What some heads add to the mixture of the working samples, fitted to all labels."""
        total = np.zeros(self.logs[0].shape[1:])
        for j in some:
            total += w[j] * np.exp(self.logs[j][-1])
        return total

    def table(self, made: list[Head], w: AnyArray) -> Candidates:
        """All heads with their weights; those that a click left as they are have no new score."""
        rows, y, nothing = [], self.known, float("nan")
        one_each = np.arange(y.size), y
        for head, share in zip(made[len(self.logs) :], w[len(self.logs) :], strict=True):
            rows.append(Candidate(head.name, nothing, nothing, float(share), "as it was"))
        for head, share, log_p in zip(self.heads, w, self.logs, strict=False):
            right, loss = nothing, nothing
            if y.size:
                held = self._held_out(log_p)
                right = float(np.mean(held.argmax(axis=1) == y))
                loss = float(-np.maximum(held[one_each], -WORST).mean())
            rows.append(Candidate(head.name, right, loss, float(share), _why(share * len(w))))
        rows += [Candidate(head.name, nothing, nothing, 0.0, FAILED) for head in self.failed]
        return Candidates(sorted(rows, key=lambda row: -row.weight))


def likeliest_weights(right: AnyArray, trust: float) -> AnyArray:
    """w >= 0, Σw = 1, that maximise Σ_i log Σ_h w_h p_h(y_i), where ``right`` (n, h) is p_h(y_i).

    EM, with pseudo-counts that add up to ``trust``: with few labels weights stay even.
    """
    h = right.shape[1]
    w = np.full(h, 1.0 / h)
    for _ in range(200 if right.size > len(right) else 0):
        w = w * ((1 / (right @ w)) @ right) + trust / h
        w /= w.sum()
    return w


def _why(times: float) -> str:
    if times > 1.5:
        return "counts more than others: right on labels that were held out"
    return "one of many" if times > 0.5 else "counts less: wrong on labels that were held out"


def learn(
    features: Features,
    labelled: AnyArray,
    y: AnyArray,
    weights: AnyArray,
    n_classes: int,
    *,
    n_folds: int,
    seed: int,
    cache: dict[str, Any],
    weighed: Answer | None = None,
    priors: AnyArray | None = None,
) -> tuple[Answer, Candidates, AnyArray]:
    """Fit all heads in all folds, weigh them, let the answer teach more heads, weigh again.

    ``labelled`` are rows of the samples and ``y`` their codes. All is computed in an order of the
    samples, and of the classes, that the numbers give: that in which they came changes nothing.
    ``cache`` keeps between calls what
    further labels can use: what propagation gave and the last coefficients. ``weighed`` is an
    answer whose weights and temperatures are taken over, with ``n_folds`` = 0: nothing is held
    out then. ``priors`` are the shares of the classes, where they are known. The last of what is
    returned are the probabilities of all samples.
    """
    if "order" not in cache:  # of the samples alone
        cache["order"] = features.order
    order = cache["order"]
    place = _places(order)
    by = np.argsort(place[labelled])
    labelled, y, weights = _merged(features.marks, labelled[by], y[by], weights[by])
    names, y = _by_first(y)
    folds = make_folds(y, weights, n_folds, np.random.RandomState(seed))
    working = working_set(place.size, place[labelled])
    at, rows = np.searchsorted(working, place[labelled]), order[working]
    views = Gathered(features.all_views, rows)
    trial = Trial(folds, labelled, at, y, n_classes, views, weighed, features.by_prefix)
    click = n_folds == 0

    def by_views() -> list[Tempered]:
        for start, mine in features.by_prefix.items():
            if not click or "codes" in mine.views:  # a click hears one preparation of each array
                _one_preparation(trial, start, mine, working, place, cache, names)
        return []

    def by_columns() -> list[Tempered]:
        return _static_heads(trial, features, seed)

    trial.add(_together([by_views] if click else [by_views, by_columns]))
    w, held = trial.weights()
    agreement = trial.agreement(w) if weighed is None else float("nan")
    back = _places(names)
    for head in trial.heads:
        head.take_classes(back)

    def all_samples(some: list[int]) -> AnyArray:
        """What some heads add to the mixture, of all samples, with the classes as they came."""
        if working.size == place.size:
            return trial.mixed_last(w, some)[place][:, back]
        chosen = [trial.heads[j] for j in some]
        return mixture_of(chosen, w[some], features.all_views)

    numbers, made = range(len(w)), trial.heads
    mixed = all_samples([j for j in numbers if not made[j].is_static])
    some = [j for j in numbers if made[j].is_static]
    if some:
        chosen = [made[j] for j in some]
        kept = KeptHeads(chosen, w[some], all_samples(some), labelled, names[y])
        mixed, cache["static"] = mixed + kept.mixed, kept
    elif click and weighed is not None and "static" in cache:
        kept = cache["static"]
        if kept.fits(labelled, names[y], n_classes):
            left = 1 - kept.weights.sum()
            mixed, made = left * mixed + kept.mixed, [*made, *kept.heads]
            w = np.append(left * w, kept.weights)
    last = None if weighed is None else weighed.calibration
    known, scored = names[trial.known], labelled[folds.scored]
    counts = np.bincount(names[y], minlength=n_classes)
    sure = calibrate(mixed, held[:, back], known, counts, last, priors)
    answer = Answer(made, w, sure, sure.apply(held[:, back]), known, scored, agreement)
    return answer, trial.table(made, w), sure.apply(mixed)


class KeptHeads(NamedTuple):
    """Heads that a click leaves as they are, what they add to the mixture, and their labels."""

    heads: list[Head]
    weights: AnyArray
    mixed: AnyArray
    labelled: AnyArray
    codes: AnyArray

    def fits(self, labelled: AnyArray, codes: AnyArray, n_classes: int) -> bool:
        """Whether all classes are there, and labels that were given before are the same now."""
        _, old, new = np.intersect1d(self.labelled, labelled, return_indices=True)
        same = bool((self.codes[old] == codes[new]).all())
        return same and np.unique(codes[new]).size == n_classes == self.mixed.shape[1]


def _one_preparation(
    trial: Trial,
    start: str,
    features: Features,
    working: AnyArray,
    place: AnyArray,
    cache: dict[str, Any],
    names: AnyArray,
) -> None:
    """All heads on the views of one preparation, and those that their answer teaches."""
    began, folds, y, c = len(trial.heads), trial.folds, trial.y, trial.n_classes
    coded = "codes" in features.views

    def first_of(kind: str, view: str) -> list[Tempered]:
        if kind == "logistic":
            return trial.linear(kind, view, _logistic(trial, view, cache, names))
        Z = trial.views[view][trial.at]
        fit = heads.discriminant(Z, y, folds.means, folds.spread, c)
        return trial.linear(kind, view, fit)

    def second_of(view: str) -> list[Tempered]:
        fits = heads.mixture(trial.views[view], trial.at, y, folds.means, first, ROUNDS)
        pairs = zip(("self-taught", "self-taught more"), fits, strict=True)
        return _together([partial(trial.linear, kind, view, fit) for kind, fit in pairs])

    tasks = [partial(first_of, k, start + name) for k, name in (FIRST if coded else FIRST_OTHER)]
    trial.add(_together([*tasks, partial(_spread, trial, start, features, working, place, cache)]))
    own = slice(began, len(trial.heads))
    if not trial.heads[own]:
        return
    first = trial.mixed(trial.weights(own)[0], some=own)
    second = SECOND if coded else SECOND_OTHER
    trial.add(_together([partial(second_of, start + name) for name in second]))


def _together(tasks: Sequence[Callable[[], list[Tempered]]]) -> list[Tempered]:
    """What tasks find, in their order; they run side by side."""
    found = results(lambda task: task(), [(task,) for task in tasks], allowed())
    return [pair for mine in found for pair in mine]


def _static_heads(trial: Trial, features: Features, seed: int) -> list[Tempered]:
    """Heads on all columns: least squares; trees, on codes and directions where X is sparse."""
    y, c, folds = trial.y, trial.n_classes, trial.folds

    def ridge(view: str) -> list[Tempered]:
        raw, last = heads.ridge(trial.views[view], trial.at, y, folds.means, c)
        return [trial.tempered("ridge", view, raw, A=last.A[0], b=last.b[0])]

    def forest(view: str) -> list[Tempered]:
        Z = trial.views[view]
        raw = np.zeros((folds.n_folds + 1, len(Z), c))
        for f in range(folds.n_folds):  # of samples without a label nothing is asked here
            mine = trial.at[folds.fold == f]
            known = folds.means[f] > 0
            if mine.size and known.any():
                told = Z[trial.at[known]], y[known], folds.means[f, known]
                grown = trees.grow(*told, c, seed, FEWER)
                raw[f, mine] = trees.log_shares(grown.arrays, Z[mine])
        grown = trees.grow(Z[trial.at], y, folds.means[-1], c, seed, TREES)
        raw[-1] = trees.log_shares(grown.arrays, Z)
        return [trial.tempered("trees", view, raw, forest=grown.arrays)]

    tasks = [partial(ridge, f"{start}whole") for start in features.by_prefix]
    return _together([*tasks, *(partial(forest, view) for view in _tree_views(features))])


def _tree_views(features: Features) -> list[str]:
    """All columns on a scale of their own, where an array is dense: trees ask for one at a time."""
    found: dict[str, str] = {}
    for start, mine in features.by_prefix.items():
        if mine.preparation.table and not sp.issparse(mine.P):
            found.setdefault(mine.source, f"{start}whole")
    coded = (item for item in features.by_prefix.items() if "codes" in item[1].views)
    return [found.get(mine.source, f"{start}both") for start, mine in coded]


def _places(order: AnyArray) -> AnyArray:
    """Where each number is in a permutation."""
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return place


def _merged(
    marks: AnyArray, labelled: AnyArray, y: AnyArray, weights: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Copies of a sample with the same label as one of their summed weight.

    A copy that is held out says nothing of how other samples will be named.
    """
    if not marks.size:
        return labelled, y, weights
    pairs = np.stack([marks[labelled], y.astype(np.uint64)])
    _, first, which = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    total = np.bincount(which.ravel(), weights)
    keep = np.argsort(first)
    first = first[keep]
    return labelled[first], y[first], total[keep]


def _by_first(y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Codes in the order in which they first come, and y in numbers of this order."""
    codes, first = np.unique(y, return_index=True)
    names = codes[np.argsort(first)]
    return names, _places(names)[y]


def working_set(n: int, labelled: AnyArray) -> AnyArray:
    """All samples, or the labelled ones and the first of the others, sorted.

    Samples are counted in the order of their digests, which is as good as a random one.
    """
    if n <= WORKING:
        return np.arange(n)
    return np.union1d(labelled, np.arange(WORKING))


def _logistic(trial: Trial, view: str, cache: dict[str, Any], names: AnyArray) -> LinearScores:
    """Where nothing is held out, it starts from the last coefficients for as many classes.

    Elsewhere it starts from zero, so that the answer does not depend on earlier labels.
    """
    Z = trial.views[view][trial.at]
    shape = (1, Z.shape[1] + 1, trial.n_classes)
    start = cache.get(f"logistic {view}")
    if start is not None:
        click = trial.folds.n_folds == 0 and start.shape == shape[1:]
        start = start[:, names].reshape(shape) if click else None
    fit = heads.logistic(Z, trial.y, trial.folds.means, trial.n_classes, start)
    last = np.vstack([fit.A[-1], fit.b[-1][None]]).astype(float)
    if np.isfinite(last).all():
        cache[f"logistic {view}"] = last[:, _places(names)]
    return fit


def _spread(
    trial: Trial,
    start: str,
    features: Features,
    working: AnyArray,
    place: AnyArray,
    cache: dict[str, Any],
) -> list[Tempered]:
    """Labels spread over the graph; what was computed for earlier labels is kept."""
    known: dict[int, AnyArray] = cache.setdefault(f"{start}spread", {})
    missing = np.array([i for i in trial.labelled.tolist() if i not in known], dtype=int)
    if f"{start}walk" not in cache:
        walk = spreading.Walk.of(features.adjacency())
        cache[f"{start}walk"] = walk, features.by_searched()
    walk, near = cache[f"{start}walk"]
    if missing.size:
        found = spreading.propagate(walk, near[place[missing]], tuple(SPREAD.values()))
        known.update(zip(missing.tolist(), found, strict=True))
    shares = heads.class_shares(trial.y, trial.folds.means, trial.n_classes).astype(np.float32)
    all_searched = near.shape[0] == near.shape[1]

    def masses(mine: AnyArray, reach: list[AnyArray]) -> AnyArray:
        """What reaches the samples that were searched from each class, some at a time."""
        made = np.empty((len(mine), near.shape[1]), np.float32)

        def run(lo: int, hi: int) -> None:
            made[:, lo:hi] = mine @ np.stack([F[lo:hi] for F in reach])

        parts = pieces(near.shape[1], TOGETHER, near.shape[1])
        each(run, parts, threads_for(float(mine.size) * near.shape[1]))
        return made

    def head(which: int, view: str) -> list[Tempered]:
        reach = [known[i][which] for i in trial.labelled.tolist()]
        if all_searched:
            G = np.stack([F[working] for F in reach])
        else:
            G = np.asarray(near[working] @ np.stack(reach, axis=1)).T
        raw = heads.even_masses(np.matmul(shares, G))
        last = raw[-1]
        if working.size < place.size:
            last = heads.even_masses(masses(shares[-1], reach)[None])[0]
            last = last if all_searched else np.log(near @ np.exp(last))
        return [trial.tempered("spreading", start + view, raw, scores=last.T[:, place].T)]

    return _together([partial(head, which, view) for which, view in enumerate(SPREAD)])
