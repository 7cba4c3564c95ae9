"""Predicted labels of all samples, from the labels given so far."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise import PartsClassifier, load
from partwise.apps.studio import reviews
from partwise.apps.studio.background import ReviewProcess
from partwise.apps.studio.part_settings import PartSettings
from partwise.io import Samples

#: Number of nearest neighbours that the page shows for a sample.
NEIGHBOURS = 8
#: Number of parts that the page shows as reasons for a class, and of parts against it.
PARTS = 3
#: Number of samples above which cross-validation runs in a separate process. With fewer samples
#: that would be slower.
MANY = 500


@dataclass(frozen=True, eq=False)
class Predictions:
    """Given or predicted label and its probability, for each sample."""

    classes: list[str]
    label: NDArray[np.int64]  #: position in ``classes`` of the given or predicted label, or -1
    probability: NDArray[np.float64]  #: probability of that label; 1 if it was given
    given: NDArray[np.bool_]
    distribution: NDArray[np.float64]  #: probabilities of all classes

    @classmethod
    def empty(cls, n: int, classes: Sequence[str] = ()) -> Predictions:
        """Return predictions without any label."""
        label, given = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=bool)
        return cls(list(classes), label, np.zeros(n), given, np.zeros((n, len(classes))))

    def name(self, i: int) -> str | None:
        """Return the given or predicted label of a sample."""
        return self.classes[self.label[i]] if self.label[i] >= 0 else None


class Predictor:
    """Classifier that keeps its graph and part weights, with settings of its parts.

    `predict` is fast enough to run after each click, because it uses the classifier weights of the
    last `review`, which finds them by cross-validation. With many samples, `review` runs in a
    separate process.
    """

    def __init__(self, samples: Samples, *, seed: int = 0, random_first: int = 0) -> None:
        self.samples, self.seed, self.random_first = samples, seed, random_first
        self.settings = PartSettings()
        self.history: list[reviews.Point] = []
        self.edition = 0
        self.weighting: Mapping[str, Any] | None = None
        self._edits: list[Mapping[str, Any]] = []
        self._file: Path | None = None
        self._closed = False
        self._process: ReviewProcess | None = None

    # -- parts --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Compute the graph and the part weights, which do not depend on labels."""
        also = None if self.samples.also is None else [self.samples.also]
        self._use(PartsClassifier(random_state=self.seed).prepare(self.samples.X, also=also))

    def _use(self, prepared: PartsClassifier) -> None:
        """Use a prepared classifier from now on."""
        self.prepared, self.model = prepared, copy.copy(prepared)
        self.weighting = None  # the weights were computed for other parts

    def save(self, path: Path) -> None:
        """Write the graph and the part weights to a file.

        An existing file is replaced only when the new one is complete.
        """
        # until then, the file may contain other part weights, which no review may read
        self._file = None
        self.prepared.save(path)
        self._file = path

    def restore(self, path: Path) -> bool:
        """Read graph and part weights from a file, and return whether this succeeded."""
        try:
            model = load(path)
        except (OSError, ValueError):
            return False
        if not isinstance(model, PartsClassifier):
            return False
        if (len(model.embedding_), model.n_features_in_) != self.samples.X.shape:
            return False
        self._use(model)
        self._file = path
        return True

    @property
    def weights(self) -> NDArray[Any]:
        """Part weights of the samples."""
        return np.asarray(self.prepared.embedding_)

    @property
    def parts(self) -> NDArray[Any]:
        """Parts of the classifier."""
        return np.asarray(self.prepared.components_)

    @property
    def waiting(self) -> bool:
        """True if edits of parts are not yet included in the part weights."""
        return bool(self._edits)

    def edit(self, edit: Mapping[str, Any]) -> bool:
        """Record an edit of a part, and return whether `recompute` is needed."""
        if edit["do"] not in ("merge", "split"):
            self.settings.apply(edit)
        if edit["do"] in ("merge", "split", "forbid"):
            self._edits.append(edit)
        return self.waiting

    def recompute(self, predictions: Predictions) -> tuple[PartsClassifier, PartSettings]:
        """Return a classifier with all edits of parts, and its settings, for `replace`."""
        edits, settings = list(self._edits), copy.deepcopy(self.settings)
        steps: list[tuple[Any, ...]] = []
        for edit in edits:
            if edit["do"] != "forbid":
                steps.append((edit["do"], *(edit[key] for key in ("part", "with") if key in edit)))
                settings.apply(edit)
        avoid: dict[int, Any] = {}
        for part, name in settings.forbidden:
            if name in predictions.classes:
                members = predictions.label == predictions.classes.index(name)
                avoid[part] = avoid.get(part, False) | members
        try:
            edited = self.prepared.edit_parts(steps, fixed=sorted(settings.frozen), avoid=avoid)
        finally:
            del self._edits[: len(edits)]
        return edited, settings

    def replace(self, prepared: PartsClassifier, settings: PartSettings) -> None:
        """Use a recomputed classifier and its part settings from now on."""
        self._use(prepared)
        self.settings, self._file = settings, None
        self.edition += 1

    # -- predictions --------------------------------------------------------------------------

    def predict(self, labels: Mapping[int, str], classes: list[str]) -> Predictions:
        """Return predictions for all samples, from the current labels.

        The weights of the classifiers are those of the last review.
        """
        n = len(self.samples.ids)
        found = Predictions.empty(n, classes)
        rows = np.fromiter(labels, dtype=np.int64, count=len(labels))
        place = {name: c for c, name in enumerate(classes)}
        found.given[rows] = True
        if len(classes) >= 2:
            model = reviews.relabel(self.model, labels, self.random, self.weighting or False)
            order = [place[str(name)] for name in model.classes_]
            found.distribution[:, order] = model.label_distributions_
            found.label[:] = found.distribution.argmax(axis=1)
            found.probability[:] = found.distribution.max(axis=1)
        found.label[rows] = [place[labels[int(i)]] for i in rows]
        found.probability[rows] = 1.0
        return found

    def suggest(self, n: int, predictions: Predictions, skipped: list[int]) -> list[int]:
        """Return the ``n`` samples whose labels would improve the predictions most."""
        model = self.model if len(predictions.classes) > 1 else self.prepared
        exclude = [*np.flatnonzero(predictions.given).tolist(), *skipped]
        first = [i for i in self.random if i not in set(exclude)][:n]
        rest = model.suggest(n - len(first), exclude=[*exclude, *first])
        return [*first, *(int(i) for i in rest)]

    @property
    def random(self) -> list[int]:
        """Random samples that the studio asks for first, to measure the class sizes."""
        if not self.random_first:
            return []
        return [int(i) for i in self.prepared.suggest(self.random_first, at_random=True)]

    def neighbours(self, i: int) -> list[int]:
        """Return the neighbours of a sample in the graph, the closest first."""
        row = self.prepared.graph_[[i]].tocoo()
        order = np.argsort(-row.data, kind="stable")
        return [int(j) for j in row.coords[1][order] if j != i][:NEIGHBOURS]

    def explain(self, i: int, predictions: Predictions) -> list[str]:
        """Return sentences about the parts for and against a sample's predicted label."""
        if len(predictions.classes) < 2:
            return []
        names = self.samples.feature_names
        found = self.model.explain(sample=i, feature_names=names)
        lines = []
        for word, side in (("for", found.supporting), ("against", found.opposing)):
            for part in side[:PARTS]:
                name = self.settings.names.get(part.part, f"Part {part.part + 1}")
                features = f" ({', '.join(part.features[:4])})" if names is not None else ""
                lines.append(f"{name}{features} speaks {word} {found.name}: {part.effect:+.1f}")
        return lines

    def with_labels(self, labels: Mapping[int, str]) -> PartsClassifier:
        """Return a classifier fitted to these labels, with cross-validated weights."""
        return reviews.relabel(copy.copy(self.model), labels, self.random)

    # -- reviews by cross-validation ----------------------------------------------------------

    @property
    def has_process(self) -> bool:
        """True if reviews run in a separate process."""
        return self._file is not None and len(self.samples.ids) >= MANY

    def review(self, labels: Mapping[int, str], n_classes: int) -> reviews.Reviewed | None:
        """Return the review of the predictions by cross-validation.

        `adopt` uses the classifier weights that it finds.
        """
        if n_classes < 2:
            return None
        edition, found = self.edition, None
        if self.has_process:
            found = self._review_in_process(edition, labels)
            if found is None and self._closed:
                return None
        if found is None:
            found = reviews.review(copy.copy(self.model), labels, self.history, self.random)
        self.history = found.review.history
        return found._replace(edition=edition)

    def _review_in_process(
        self, edition: int, labels: Mapping[int, str]
    ) -> reviews.Reviewed | None:
        """Return the review computed in the other process, or None if the process ended."""
        try:
            if self._process is None:
                assert self._file is not None
                self._process = ReviewProcess(self._file)
            return self._process.review(edition, labels, self.history, self.random)
        # the process was killed; the caller computes the review
        except (OSError, EOFError, UnpicklingError):
            self._end_process()
            return None

    def adopt(self, found: reviews.Reviewed) -> bool:
        """Use the classifier weights of a review; return False if parts changed meanwhile."""
        if found.edition == self.edition:
            self.weighting = found.weighting
        return found.edition == self.edition

    def _end_process(self) -> None:
        """End the process for reviews if it is running."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def stop(self) -> None:
        """Interrupt a running review."""
        self._closed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process for reviews."""
        self._end_process()
