"""What the labels say about every sample: codes once, heads for each click."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.studio import part_edits, reviews
from partwise.apps.studio.background import Helper
from partwise.classify import query
from partwise.classify.parts_classifier import PartsClassifier
from partwise.io.samples import Samples

#: Neighbours that the page shows of a sample.
NEAR = 8
#: Samples from which on reviews have a process of their own; below, starting it costs more.
MANY = 500


@dataclass(frozen=True, eq=False)
class Opinion:
    """The answer of the moment, an entry or row a sample."""

    classes: list[str]
    names: NDArray[np.int64]  #: positions in ``classes``; -1 where there is no answer
    sure: NDArray[np.float64]  #: probability of that class; 1 for given labels
    given: NDArray[np.bool_]
    probabilities: NDArray[np.float64]

    @classmethod
    def none(cls, n: int, classes: Sequence[str] = ()) -> Opinion:
        names, sure = np.full(n, -1, dtype=np.int64), np.zeros(n)
        given, p = np.zeros(n, dtype=bool), np.zeros((n, len(classes)))
        return cls(list(classes), names, sure, given, p)


class Judge:
    """A `PartsClassifier` whose codes are kept, and what a person wants done with its parts.

    `decide` is for a click: the heads learn the new label, and keep the weights that the last
    `review` gave them. `review` weighs them by cross-validation, and takes longer; of many samples
    it is another process's work.
    """

    def __init__(self, samples: Samples, *, seed: int = 0) -> None:
        self.samples = samples
        self.model = PartsClassifier(warm_start=True, random_state=seed)
        self.wishes = part_edits.Wishes()
        self.history: list[reviews.Point] = []
        self.edition = 0
        self._edits: list[Mapping[str, Any]] = []
        self._codes: Path | None = None
        self._closed = False
        self._helper: Helper | None = None
        self._beside: PartsClassifier | None = None

    # -- codes --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Graph and codes, from the samples alone."""
        also = None if self.samples.also is None else [self.samples.also]
        self.model.prepare(self.samples.X, also=also)

    def keep(self, path: Path) -> None:
        """Write graph and codes to a file, which is replaced only by a whole one."""
        self._codes = None  # until then the file may have other codes, which no review may take
        self.model.save(path)
        self._codes = path

    def restore(self, path: Path) -> bool:
        """Graph and codes from a file; False where it cannot be read."""
        from partwise import load

        try:
            model = load(path)
        except (OSError, ValueError):
            return False
        if not isinstance(model, PartsClassifier):
            return False
        self.model, self._codes = model, path
        return len(model.embedding_) == self.samples.n_samples

    @property
    def waiting(self) -> bool:
        """Whether wishes about parts are not in the codes yet."""
        return bool(self._edits)

    @property
    def codes(self) -> NDArray[Any]:
        return np.asarray(self.model.embedding_)

    @property
    def components(self) -> NDArray[Any]:
        return np.asarray(self.model.components_)

    def near(self, i: int) -> list[int]:
        """The neighbours of a sample, the closest first."""
        row = self.model.graph_[[i]].tocoo()
        order = np.argsort(-row.data, kind="stable")
        return [int(j) for j in row.coords[1][order] if j != i][:NEAR]

    # -- answers ------------------------------------------------------------------------------

    def decide(self, labels: Mapping[int, str], classes: list[str]) -> Opinion:
        """Names for all samples, by the labels of now and the weights of the last review."""
        opinion = Opinion.none(self.samples.n_samples, classes)
        rows = np.fromiter(labels, dtype=np.int64, count=len(labels))
        place = {name: c for c, name in enumerate(classes)}
        opinion.given[rows] = True
        if len(classes) >= 2:
            self.model.relabel(reviews.encoded(labels, self.samples.n_samples), weigh=False)
            order = [place[str(name)] for name in self.model.classes_]
            opinion.probabilities[:, order] = self.model.label_distributions_
            opinion.names[:] = opinion.probabilities.argmax(axis=1)
            opinion.sure[:] = opinion.probabilities.max(axis=1)
        opinion.names[rows] = [place[labels[int(i)]] for i in rows]
        opinion.sure[rows] = 1.0
        return opinion

    def suggest(self, n: int, opinion: Opinion, skipped: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples whose label would help most, none that was skipped."""
        closed = opinion.given.copy()
        closed[skipped] = True
        new = query.unseen(opinion.names[opinion.given])
        doubt = new + (1 - new) * query.margins(opinion.probabilities)
        return np.asarray(self.model._ask(doubt, closed, n))

    def explain(self, i: int, opinion: Opinion) -> list[str]:
        """Which parts speak for and against the answer, in words."""
        if len(opinion.classes) < 2:
            return []
        found = self.model.explain(sample=i, feature_names=self.samples.feature_names)
        return reviews.because(found, self.wishes.names, self.samples.feature_names is not None)

    @property
    def aside(self) -> bool:
        """Whether reviews have a process of their own."""
        return self._codes is not None and self.samples.n_samples >= MANY

    def review(self, labels: Mapping[int, str], classes: list[str]) -> reviews.Reviewed | None:
        """How good the answer is, with heads weighed anew; `adopt` takes those weights over."""
        if len(classes) < 2:
            return None
        edition = self.edition
        found = self._reviewed_aside(edition, labels) if self.aside else None
        if found is None and self._closed:
            return None
        if found is None:
            if self._beside is None or self._beside.components_ is not self.model.components_:
                self._beside = self.whole()
            found = reviews.found(self._beside, labels, self.history)
        self.history[:] = found.review.history or self.history
        return found._replace(edition=edition)

    def _reviewed_aside(self, edition: int, labels: Mapping[int, str]) -> reviews.Reviewed | None:
        try:
            if self._helper is None:
                assert self._codes is not None
                self._helper = Helper(self._codes)
            return self._helper.review(edition, labels, self.history)
        except (OSError, EOFError, UnpicklingError):  # killed: this one here, the next one there
            self.end()
            return None

    def adopt(self, found: reviews.Reviewed) -> bool:
        """Weigh the heads of later clicks as this review did; False where codes are new since."""
        if found.edition != self.edition:
            return False
        self.model._state["answer"] = found.weights
        return True

    def whole(self, labels: Mapping[int, str] | None = None) -> PartsClassifier:
        """A copy of the model; with labels, one that was weighed by all of them."""
        model = copy.copy(self.model)
        model._state, model._cache = dict(model._state), {}
        if labels is not None:
            model.relabel(reviews.encoded(labels, self.samples.n_samples))
        return model

    def end(self) -> None:
        """Let go of the process of the reviews."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    def close(self) -> None:
        """End a review, however far it is."""
        self._closed = True
        if self._helper is not None:
            self._helper.kill()

    # -- parts --------------------------------------------------------------------------------

    def take_wish(self, wish: Mapping[str, Any]) -> bool:
        """Note a wish; whether the codes must be computed anew."""
        if part_edits.noted(self.wishes, wish):
            self._edits.append(wish)
        return bool(self._edits)

    def recode(self, opinion: Opinion) -> None:
        """New codes by the wishes so far; the old ones serve until they are there."""
        edits, wishes = list(self._edits), self.wishes
        features = self.model._features
        V, H = features.V, features.H
        for wish in edits:
            V, H, wishes = part_edits.edited(V, H, wish, wishes)
        model = part_edits.recoded(self.model, V, H, wishes, opinion)
        self.model, self.wishes, self._codes = model, wishes, None
        del self._edits[: len(edits)]
        self.edition += 1
