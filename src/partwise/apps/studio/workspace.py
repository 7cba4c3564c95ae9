"""Workspace of a studio project: samples, labels and predictions of the page."""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.studio import exports, part_settings, presentation
from partwise.apps.studio.background import LatestJob
from partwise.apps.studio.journal import Entry, Journal, Label
from partwise.apps.studio.part_settings import plain_name
from partwise.apps.studio.predictions import Predictions, Predictor
from partwise.apps.studio.project import Project
from partwise.apps.studio.reviews import Review, column
from partwise.apps.view.describe import embeddings_hint
from partwise.apps.view.rows import Rows
from partwise.io import Samples
from partwise.io.colours import choose_colour
from partwise.io.images import png
from partwise.io.label_files import says_unknown

#: Number of samples that the page receives in advance, so that the next sample appears at once.
AHEAD = 9
#: Seconds without a click before a review starts in another process, and the maximum delay of a
#: review.
PAUSE, PATIENCE = 0.4, 3.0
#: Number of labels at which colour and greyscale are first compared. They are compared again
#: whenever the number has doubled.
FIRST_COMPARISON = 10


class Conflict(ValueError):
    """Error that another window has labelled the same sample in the meantime."""


class NotReady(ValueError):
    """Error that the graph and the part weights are still being computed."""


def class_name(value: Any) -> Label:
    """Return the cleaned name of a class, or None for no label.

    Raise ValueError if the name is not allowed.
    """
    if value is None:
        return None
    name = plain_name(value, "class")
    if name == "-1" or says_unknown(name):
        raise ValueError(
            f"{name!r} means 'no label' in label files, so no class can have this name. Skip the "
            f"sample, or use a longer name such as {f'{name} kind'!r}."
        )
    return name


class Workspace:
    """An open studio project; all methods may be called from any thread."""

    def __init__(
        self,
        samples: Samples,
        folder: str | Path,
        *,
        seed: int = 0,
        labels: Any = None,
        compare_colours: bool = False,
        random_first: int = 0,
    ) -> None:
        self.samples, self.seed = samples, seed
        self.project = Project(folder, samples)
        random_first = self.project.keep_random_first(random_first)
        self.predictor = Predictor(samples, seed=seed, random_first=random_first)
        self.journal = Journal(self.project.journal)
        self.listener: Callable[[str, Any], None] = lambda kind, content: None
        # identifies this start, because versions begin at 0 after each start
        self.start = secrets.token_hex(8)
        self.version = 0
        self.ready = False
        self.predictions = Predictions.empty(samples.n_samples)
        self._stage, self._began = "Starting", time.monotonic()
        self._row = {name: i for i, name in enumerate(samples.ids)}
        self._rows = Rows.of(samples)
        self._compares = compare_colours and samples.also is None
        # by sample: version of its last change, and window that changed it
        self._last_change: dict[int, tuple[int, str]] = {}
        self.lock = threading.RLock()  # held while predictions change
        self._queue: list[int] = []
        self._clicked, self._closing = 0.0, False
        self._review_job, self._parts_job = LatestJob(self._review), LatestJob(self._update_parts)
        self._last_review = Review()
        self._points: NDArray[np.float32] | None = None
        if labels is not None and not self.journal.entries:
            self._begin_with(labels)

    def _begin_with(self, labels: Any) -> None:
        """Record labels from a file as the first labels of the project."""
        pairs = zip(self.samples.ids, labels, strict=True)
        given = {name: " ".join(str(label).split()) for name, label in pairs if label is not None}
        if "-1" in given.values():
            raise ValueError("The label '-1' means 'no label'; leave it empty in the file.")
        if given:
            self.journal.set(given, window="file")

    # -- preparation of the data --------------------------------------------------------------

    def prepare(self) -> None:
        """Compute graph, part weights and map, or read them from the project folder."""
        if self._comparison_is_due():
            self._compare_colours()
        restored = self.predictor.restore(self.project.parts)
        self._points = self.project.points() if restored else None
        if self._points is None:
            self._report("Computing the neighbour graph and the part weights")
            self.predictor.prepare()
            self._save_parts(entries=self.project.entries_in_parts)
        else:
            self.predictor.settings = self.project.settings
            self.predictor.history = self.project.history()
        for entry in self.journal.entries[self.project.entries_in_parts :]:
            if entry.part is not None:
                if self.predictor.waiting:  # later edits use the part numbers after this edit
                    self._report("Computing the part weights with your edits of parts")
                    with self.lock:
                        self._predict()
                    self.predictor.replace(*self.predictor.recompute(self.predictions))
                self.predictor.edit(entry.part)
            self._follow_rename(entry)
        with self.lock:
            self._predict()
            self.ready = True
        self.listener("ready", {})
        self._review_job.request()
        if self.predictor.waiting:
            self._parts_job.request()

    def _save_parts(self, *, entries: int) -> None:
        """Compute the map, and save it with the part weights.

        ``entries`` is the number of journal entries that the part weights include.
        """
        self._report("Laying out the map")
        self._points = presentation.lay_out_all(self.predictor.weights)
        with self._report_errors("The part weights"):
            self.project.save(self._points, self.predictor, entries=entries)

    @contextlib.contextmanager
    def _report_errors(self, content: str) -> Iterator[None]:
        """Report to the page that a file could not be written, and continue.

        The content of the file can be computed again.
        """
        try:
            yield
        except OSError as error:
            self.listener("trouble", {"text": f"{content} were not saved: {error.strerror}."})

    def _report(self, stage: str) -> None:
        """Show the current stage of the preparation on the page."""
        self._stage = stage
        self.listener("stage", self.state())

    # -- choice of colour or greyscale images -------------------------------------------------

    def _comparison_is_due(self) -> bool:
        """Return whether there are enough labels to compare colour and greyscale again."""
        wanted = max(FIRST_COMPARISON, 2 * self.project.compared)
        return self._compares and len(self.journal.labels) >= wanted

    def _compare_colours(self) -> bool:
        """Read images in colour or greyscale, whichever separates labels better.

        Return whether the samples X changed.
        """
        with self.lock:
            labels = self.by_row()
        try:
            self.project.compared = len(labels)
            self.project.record(colours_compared=len(labels))
            if self.predictor.settings:
                # other pixels would give other parts, and lose the user's settings of parts
                return False
            samples, _ = choose_colour(self.samples, column(labels, len(self.samples.ids)))
            if samples.ids != self.samples.ids:
                raise ValueError("The image files changed; start the studio again.")
            changed = bool(samples.X.shape != self.samples.X.shape)
            predictor = self.predictor
            if changed:
                first = predictor.random_first
                predictor = Predictor(samples, seed=self.seed, random_first=first)
                if self.ready:
                    predictor.prepare()
                    predictor.edition = self.predictor.edition + 1
                self.project.describe(samples)
        except (OSError, ValueError) as error:
            self.listener("trouble", {"text": f"Colours were not compared: {error}"})
            return False
        with self.lock:
            old, self.samples, self.predictor = self.predictor, samples, predictor
            if changed and self.ready:
                self._predict()
        if changed:
            old.close()
        self.listener("notes", self.state())
        return changed

    # -- actions of a user --------------------------------------------------------------------

    def label(
        self, samples: list[int], label: Any, *, seen: int | None = None, **sender: Any
    ) -> dict[str, Any]:
        """Set the label of samples, or remove it with None, and return new predictions.

        The label is on disk when this method returns. ``seen`` is the version that the page showed.
        As in the other methods, ``sender`` contains the ``window`` that sent the request and the
        ``key`` of the request. If a page sends a request again because it did not receive the
        answer, the request is not carried out again.
        """
        label = class_name(label)
        with self.lock:
            if self._is_done(sender):
                return self.current()
            names = self._ids(samples)
            for i, name in zip(samples, names):
                since, by = self._last_change.get(i, (0, ""))
                other = self.journal.labels.get(name)
                changed = seen is not None and by != sender["window"] and since > seen
                if changed and other not in (None, label):
                    raise Conflict(
                        f"Not saved: {name} was labelled {other!r} in another window in the "
                        "meantime."
                    )
            return self._after(self.journal.set(dict.fromkeys(names, label), **sender))

    def rename(self, name: str, to: Any, **sender: Any) -> dict[str, Any]:
        """Rename a class, merge it into another class of that name, or delete it (None)."""
        to = class_name(to)
        with self.lock:
            if self._is_done(sender):
                return self.current()
            if name not in self._classes():
                raise ValueError(f"There is no class {name!r}.")
            if to == name:
                raise ValueError(f"The class already has the name {name!r}.")
            self._need_parts(current=True)
            entry = self.journal.rename(name, to, **sender)
            self._follow_rename(entry)
            return self._after(entry)

    def _follow_rename(self, entry: Entry) -> None:
        """Update the forbidden parts of a class whose name changes or is restored."""
        pair = entry.renamed
        if pair is None and entry.undoes is not None:
            undone = self.journal.entries[entry.undoes - 1].renamed
            # if the new name is still a class, the renaming had merged two classes
            if undone is not None and undone[1] not in self._classes():
                pair = (undone[1], undone[0])
        if pair is not None:
            self.predictor.settings.rename_class(*pair)

    def skip(self, samples: list[int], **sender: Any) -> dict[str, Any]:
        """Record that the studio should not ask for these samples again."""
        with self.lock:
            if self._is_done(sender):
                return self.current()
            return self._after(self.journal.skip(self._ids(samples), **sender))

    def undo(self, *, of: str | None = None, **sender: Any) -> dict[str, Any]:
        """Undo the last action of this window, or the action with the key ``of``."""
        with self.lock:
            if self._is_done(sender):
                entry = self.journal.keys[sender["key"]]
                return self.current() | {"undone": self._undone(entry)}
            found = self.journal.undo(of=of, **sender)
            if found is None:
                raise ValueError("There is nothing to undo in this window.")
            self._follow_rename(found)
            return self._after(found) | {"undone": self._undone(found)}

    def edit_part(self, words: Mapping[str, Any], *, window: str) -> dict[str, Any]:
        """Name, freeze, thaw, merge, split or forbid a part, as the page requests."""
        with self.lock:
            self._need_parts(current=True)
            n_parts = len(self.predictor.parts)
            edit = part_settings.check_edit(words, n_parts, self._classes())
            self.journal.edit_part(edit, window=window)
            if self.predictor.edit(edit):
                self._parts_job.request()
                return {"text": "Computing new part weights; the old ones serve until then."}
            return {"text": "Done."}

    def _ids(self, samples: list[int]) -> list[str]:
        """Return the ids of samples; raise an error for an unknown sample."""
        if max(samples) >= len(self.samples.ids):
            raise ValueError(f"There is no sample {max(samples)}.")
        return [self.samples.ids[i] for i in samples]

    def _is_done(self, sender: Mapping[str, Any]) -> bool:
        """Return whether the request with this key was already carried out."""
        self._need_parts()
        return sender.get("key") in self.journal.keys

    def _need_parts(self, *, current: bool = False) -> None:
        """Raise NotReady while the data is being prepared.

        If ``current`` is true, also raise ValueError while edited parts are being computed.
        """
        if not self.ready:
            raise NotReady("The studio is still preparing the data; nothing was saved.")
        if current and self.predictor.waiting:
            raise ValueError("The part weights are being computed; try again after that.")

    def _undone(self, entry: Entry) -> list[dict[str, Any]]:
        """Return the samples that an undone action concerned, for the page."""
        names = (*entry.labels, *entry.skipped)
        return [self._brief(self._row[name]) for name in names[:AHEAD] if name in self._row]

    def _after(self, entry: Entry) -> dict[str, Any]:
        """Update the predictions after an action, and return them for the page."""
        for name in (*entry.labels, *entry.skipped):
            if name in self._row:
                self._last_change[self._row[name]] = (self.version + 1, entry.window)
        if entry.labels:
            self._predict()
        else:
            self._queue = self._suggest(AHEAD)
            self.version += 1
        answer = self.current()
        self.listener("predictions", {"version": self.version, "by": entry.window})
        self._clicked = time.monotonic()
        if entry.labels:
            self._review_job.request()
            if self._comparison_is_due():
                self._parts_job.request()
        return answer

    # -- predictions --------------------------------------------------------------------------

    def _classes(self) -> list[str]:
        """Return the sorted names of all classes that have labels."""
        return sorted(set(self.journal.labels.values()), key=presentation.natural)

    def _predict(self) -> None:
        """Update the predictions with the current labels, and choose the next samples."""
        self.predictions = self.predictor.predict(self.by_row(), self._classes())
        if self._rows is not None and len(self.predictions.classes) > 1:
            self._rows.fit(self.predictions.distribution)
        self._queue = self._suggest(AHEAD)
        self.version += 1

    def by_row(self) -> dict[int, str]:
        """Return the label of each labelled sample, by its position."""
        return {self._row[n]: label for n, label in self.labels.items() if n in self._row}

    def current(self) -> dict[str, Any]:
        """Return classes, labels and probabilities of all samples for the page."""
        with self.lock:
            now = self.predictions
            return {
                "start": self.start,
                "version": self.version,
                "classes": now.classes,
                "counts": self._counts(),
                "labels": _pack(now.label.astype("<i2")),
                "probabilities": _pack(np.clip(now.probability * 255, 0, 255).astype(np.uint8)),
                "given": _pack(now.given.astype(np.uint8)),
                "headline": self._headline(),
                "queue": [self._brief(i) for i in self._queue],
            }

    def _counts(self) -> dict[str, dict[str, int]]:
        """Return the number of samples and of given labels of each class."""
        now, c = self.predictions, len(self.predictions.classes)
        all_samples = np.bincount(now.label[now.label >= 0], minlength=c)
        given = np.bincount(now.label[now.given], minlength=c)
        return {
            name: {"samples": int(all_samples[j]), "labels": int(given[j])}
            for j, name in enumerate(now.classes)
        }

    def _headline(self) -> str:
        """Return the sentence at the top of the page."""
        n_labels, classes = int(self.predictions.given.sum()), len(self.predictions.classes)
        done = {*self.journal.labels, *self.journal.skipped}
        left = [i for i in self.predictor.random if self.samples.ids[i] not in done]
        if left:
            return (
                f"{n_labels} labels. The next {len(left)} samples are drawn at random, so that "
                "their labels show how frequent each class is. Later the studio asks for the "
                "samples that improve the predictions most."
            )
        if classes < 2:
            return f"{n_labels} labels. Label samples of at least two classes to get predictions."
        return f"{n_labels} labels, {classes} classes. {self._last_review.headline}".strip()

    def _suggest(self, n: int) -> list[int]:
        """Return the next samples to label, without skipped ones."""
        skipped = [self._row[name] for name in self.journal.skipped if name in self._row]
        return self.predictor.suggest(n, self.predictions, skipped)

    def next(self, n: int) -> list[dict[str, Any]]:
        """Return the next samples to label, which would improve the predictions most."""
        with self.lock:
            self._need_parts()
            order = self._queue[:n] if n <= AHEAD else self._suggest(n)
            return [self._brief(i) for i in order]

    def list(self, name: str | None, *, start: int, n: int, search: str = "") -> dict[str, Any]:
        """Return the samples of a class, or all samples, the least certain first.

        With ``search``, only samples that have all of its words in their id or text are returned.
        """
        with self.lock:
            now = self.predictions
            order = np.argsort(np.where(now.given, 2, now.probability), kind="stable")
            if name:
                if name not in now.classes:
                    raise ValueError(f"There is no class {name!r}.")
                order = order[now.label[order] == now.classes.index(name)]
            wanted = search.casefold().split()
            if wanted:
                order = order[[self._has(int(i), wanted) for i in order]]
            found = [self._brief(int(i)) for i in order[start : start + n]]
            return {"version": self.version, "samples": found}

    def _has(self, i: int, wanted: Sequence[str]) -> bool:
        """Return whether a sample's id or text contains all wanted words."""
        texts = self.samples.whole_texts or self.samples.texts
        text = f"{self.samples.ids[i]} {'' if texts is None else texts[i]}".casefold()
        return all(word in text for word in wanted)

    def text(self, i: int) -> dict[str, str]:
        """Return the whole text of a sample."""
        texts = self.samples.whole_texts
        if texts is None or not 0 <= i < len(texts):
            raise ValueError(f"There is no text {i}.")
        return {"text": texts[i][: presentation.WHOLE_TEXT]}

    def _brief(self, i: int) -> dict[str, Any]:
        """Return a sample for the page with its label and probability."""
        now = self.predictions
        label = int(now.label[i]) if len(now.classes) > 1 else -1
        return presentation.sample(self.samples, i, self._rows, label) | {
            "about": now.name(i),
            "suggestion": None if now.given[i] else now.name(i),
            "given": now.name(i) if now.given[i] else None,
            "probability": round(float(now.probability[i]), 4),
        }

    def sample(self, i: int) -> dict[str, Any]:
        """Return a sample, its neighbours, and the parts for and against its class."""
        if not 0 <= i < self.samples.n_samples:
            raise ValueError(f"There is no sample {i}.")
        with self.lock:
            self._need_parts()
            more: dict[str, Any] = {
                "neighbours": [self._brief(j) for j in self.predictor.neighbours(i)],
                "because": self.predictor.explain(i, self.predictions),
                "version": self.version,
            }
            return self._brief(i) | more

    def points(self) -> dict[str, Any]:
        """Return the coordinates of all samples on the map."""
        if self._points is None:
            raise ValueError("The map is not ready yet.")
        x, y = np.ascontiguousarray(self._points.T.astype("<f4"))
        return {"x": _pack(x), "y": _pack(y)}

    def state(self) -> dict[str, Any]:
        """Return what the page needs first: data, preparation and progress of the start."""
        samples = self.samples
        return {
            "ready": self.ready,
            "stage": self._stage,
            "seconds": round(time.monotonic() - self._began),
            "expected": presentation.expected_seconds(samples.n_samples),
            "source": samples.source or "data",
            "kind": samples.kind,
            "preparation": samples.preparation,
            "notes": list(samples.notes),
            "decision": next((n for n in samples.notes if "--rgb" in n or "--grey" in n), ""),
        }

    def picture(self, kind: str, i: int) -> bytes | None:
        """Return the picture of a sample or part as PNG, or None if there is none."""
        draw, shape = self.samples.thumbnails, self.samples.image_shape
        if kind in ("sample", "whole") and draw is not None and 0 <= i < self.samples.n_samples:
            side = (presentation.WHOLE_PICTURE,) if kind == "whole" else ()
            # the image file is missing or was replaced
            with contextlib.suppress(OSError, ValueError):
                return draw(i, *side)
        elif kind == "part" and shape and self.ready and 0 <= i < len(self.predictor.parts):
            part = self.predictor.parts[i]
            return png(part.reshape(shape), part.max())
        return None

    def parts(self) -> dict[str, Any]:
        """Return all parts, with their settings and the classes that use them."""
        with self.lock:
            self._need_parts()
            parts = [
                presentation.part(self.samples, self.predictor, j, self.predictions)
                for j in range(len(self.predictor.parts))
            ]
            return {"parts": parts, "doing": "Computing …" if self._parts_job.busy else None}

    # -- background jobs ----------------------------------------------------------------------

    def _review(self) -> None:
        """Evaluate predictions by cross-validation, and use the new classifier weights."""
        began = time.monotonic()
        while self.predictor.has_process and not self._closing:
            left = min(self._clicked + PAUSE, began + PATIENCE) - time.monotonic()
            if left <= 0:
                break
            time.sleep(left)
        with self.lock:
            rows, predictor = self.by_row(), self.predictor
        found = predictor.review(rows, len(set(rows.values())))
        with self.lock:
            if predictor is not self.predictor:
                self._review_job.request()
                return
            self._last_review = Review() if found is None else found.review
            with self._report_errors("The estimates of progress"):
                self.project.save_history(predictor.history)
            if found is not None and predictor.adopt(found):
                self._predict()
        self.listener("predictions", {"version": self.version})
        self.listener("progress", {})

    def progress(self) -> dict[str, Any]:
        """Return the last review for the progress page."""
        with self.lock:
            review = self._last_review
            hint = embeddings_hint(self.samples, review.accuracy)
            shown = replace(review, sentences=tuple(filter(None, (*review.sentences, hint))))
            confirmed = self.journal.confirmed
            return presentation.progress(self.samples, shown, self._counts(), confirmed)

    def _update_parts(self) -> None:
        """Compute new part weights after edits or a change of colours.

        The old part weights are used until then.
        """
        changed = self._comparison_is_due() and self._compare_colours()
        with self.lock:
            # edits after this number are not included in the part weights
            entries = len(self.journal.entries)
        if self.predictor.waiting:
            try:
                edited = self.predictor.recompute(self.predictions)
            except ValueError as error:
                self.listener("trouble", {"text": str(error)})
            else:
                changed = True
                with self.lock:
                    self.predictor.replace(*edited)
                    self._predict()
        if changed:
            self._save_parts(entries=entries)
            self.listener("parts", {"text": "The part weights are new."})
            self._review_job.request()

    # -- exported files -----------------------------------------------------------------------

    def save_all(self) -> dict[str, Any]:
        """Write all exported files to the project folder, and return their names."""
        self._need_parts()
        return {"files": exports.save_all(self)}

    @property
    def labels(self) -> dict[str, str]:
        """Label of each labelled sample, by id."""
        with self.lock:
            return dict(self.journal.labels)

    def wait(self) -> None:
        """Wait until all background jobs have finished."""
        self._parts_job.wait()
        self._review_job.wait()

    def close(self) -> None:
        """Stop background jobs and close the project."""
        self._closing = True
        self.predictor.stop()
        self.wait()
        self.predictor.close()
        self.journal.close()
        self.project.close()


def _pack(array: NDArray[Any]) -> str:
    """Return the bytes of an array as base64 text."""
    return base64.b64encode(array.tobytes()).decode("ascii")
