"""What the labels say about every sample: codes once, heads for each click."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.estimators.parts_classifier import PartsClassifier
from partwise.io.samples import Samples
from partwise.studio import recode, reviews

#: Neighbours that the page shows of a sample.
NEAR = 8


@dataclass(frozen=True, eq=False)
class Opinion:
    """The answer of the moment.

    Attributes
    ----------
    classes : list of str
    names : int array of shape (n_samples,)
        Position in ``classes``; -1 where there is no answer.
    sure : array of shape (n_samples,)
        Probability of that class; 1 for given labels.
    given : bool array of shape (n_samples,)
    probabilities : array of shape (n_samples, n_classes)
    """

    classes: list[str]
    names: NDArray[np.int64]
    sure: NDArray[np.float64]
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
    `review` gave them. `review` weighs them by cross-validation, and takes longer.
    """

    def __init__(self, samples: Samples, *, seed: int = 0) -> None:
        self.samples = samples
        self.model = PartsClassifier(warm_start=True, random_state=seed)
        self.wishes = recode.Wishes()
        self.history: list[reviews.Point] = []
        self.edition = 0
        self._edits: list[Mapping[str, Any]] = []
        self._weighed: PartsClassifier | None = None

    # -- codes --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Graph and codes, from the samples alone."""
        self.model.prepare(self.samples.X)

    def keep(self, path: Path) -> None:
        """Write graph and codes to a file."""
        path.unlink(missing_ok=True)
        self.model.save(path)

    def restore(self, path: Path) -> bool:
        """Graph and codes from a file; False where it cannot be read."""
        from partwise import load

        try:
            model = load(path)
        except (OSError, ValueError):
            return False
        if not isinstance(model, PartsClassifier):
            return False
        self.model = model
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

    @property
    def part_names(self) -> dict[int, str]:
        return self.wishes.names

    @property
    def frozen(self) -> set[int]:
        return self.wishes.frozen

    def near(self, i: int) -> list[int]:
        """The neighbours of a sample, the closest first."""
        row = self.model.graph_[[i]].tocoo()
        order = np.argsort(-row.data, kind="stable")
        return [int(j) for j in row.coords[1][order] if j != i][:NEAR]

    # -- answers ------------------------------------------------------------------------------

    def decide(self, labels: Mapping[int, str], classes: list[str]) -> Opinion:
        """Names for all samples, by the labels of now and the weights of the last review."""
        return self._opinion(self.model, labels, classes, weigh=False)

    def _opinion(
        self, model: PartsClassifier, labels: Mapping[int, str], classes: list[str], *, weigh: bool
    ) -> Opinion:
        opinion = Opinion.none(self.samples.n_samples, classes)
        rows = np.fromiter(labels, dtype=np.int64, count=len(labels))
        place = {name: c for c, name in enumerate(classes)}
        opinion.given[rows] = True
        if len(classes) >= 2:
            model.relabel(self._y(labels), weigh=weigh)
            order = [place[str(name)] for name in model.classes_]
            opinion.probabilities[:, order] = model.label_distributions_
            opinion.names[:] = opinion.probabilities.argmax(axis=1)
            opinion.sure[:] = opinion.probabilities.max(axis=1)
        opinion.names[rows] = [place[labels[int(i)]] for i in rows]
        opinion.sure[rows] = 1.0
        return opinion

    def _y(self, labels: Mapping[int, str]) -> NDArray[Any]:
        y = np.full(self.samples.n_samples, None, dtype=object)
        for i, label in labels.items():
            y[i] = label
        return y

    def suggest(self, n: int, opinion: Opinion, skipped: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples whose label would help most, none that was skipped."""
        closed = opinion.given.copy()
        closed[skipped] = True
        return np.asarray(self.model.suggest(n, exclude=np.flatnonzero(closed)))

    def explain(self, i: int, opinion: Opinion) -> list[str]:
        """Which parts speak for and against the answer, in words."""
        if len(opinion.classes) < 2:
            return []
        found = self.model.explain(sample=i, feature_names=self.samples.feature_names)
        return reviews.because(found, self.wishes.names, self.samples.feature_names is not None)

    def review(
        self, labels: Mapping[int, str], classes: list[str]
    ) -> tuple[reviews.Review, Opinion | None]:
        """How good the answer is, with heads weighed anew; `adopt` takes those weights over."""
        if len(classes) < 2:
            return reviews.Review(), None
        model = copy.copy(self.model)
        model._state, model._memory = dict(model._state), dict(getattr(model, "_memory", {}))
        opinion = self._opinion(model, labels, classes, weigh=True)
        self._weighed = model
        return reviews.review(model, self.history, labels), opinion

    def adopt(self) -> None:
        """Weigh the heads of later clicks as the last review did."""
        if self._weighed is not None and self._weighed.components_ is self.model.components_:
            self.model = self._weighed
        self._weighed = None

    # -- parts --------------------------------------------------------------------------------

    def check_wish(self, words: Mapping[str, Any], classes: list[str]) -> dict[str, Any]:
        """A wish about a part, checked."""
        return recode.checked(words, len(self.components), classes)

    def take_wish(self, wish: Mapping[str, Any]) -> bool:
        """Note a wish; whether the codes must be computed anew."""
        if recode.noted(self.wishes, wish):
            self._edits.append(wish)
        return bool(self._edits)

    def recode(self, opinion: Opinion) -> None:
        """New codes by the wishes so far; the old ones serve until they are there."""
        edits, wishes = list(self._edits), self.wishes
        features = self.model._features
        V, H = features.V, features.H
        for wish in edits:
            V, H, wishes = recode.edited(V, H, wish, wishes)
        model = recode.recoded(self.model, V, H, wishes, opinion)
        self.model, self.wishes = model, wishes
        del self._edits[: len(edits)]
        self.edition += 1
