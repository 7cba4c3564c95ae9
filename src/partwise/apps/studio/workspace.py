"""The desk: samples, labels, the answer of the moment. What the page asks, it answers."""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.studio import exports, part_edits, presentation
from partwise.apps.studio.answers import Judge, Opinion
from partwise.apps.studio.background import Latest
from partwise.apps.studio.journal import Act, Journal, Label
from partwise.apps.studio.project import Project
from partwise.apps.studio.reviews import Review
from partwise.io.images import png
from partwise.io.samples import Samples

#: Samples that the page is sent ahead, so that the next one is there without a wait.
AHEAD = 9
#: Seconds without a click before a process of its own reviews, and the longest that it waits.
PAUSE, PATIENCE = 0.4, 3.0


class Conflict(ValueError):
    """Another window did something to the same sample meanwhile."""


class NotReady(ValueError):
    """Graph and codes are still being computed."""


class Desk:
    """One project at work. All methods may be called from any thread."""

    def __init__(self, samples: Samples, project: Project, judge: Judge) -> None:
        self.samples, self.project, self.judge = samples, project, judge
        self.journal = Journal(project.journal)
        self.listener: Callable[[str, Any], None] = lambda kind, content: None
        self.version = 0
        self.ready = False
        self._doing = "Reading"
        self._row = {name: i for i, name in enumerate(samples.ids)}
        #: Tells this start from others, which count their versions anew.
        self.start = secrets.token_hex(8)
        self._last_change: dict[int, tuple[int, str]] = {}  # version, window
        self._lock = threading.RLock()
        self.opinion = Opinion.none(samples.n_samples)
        self._queue: list[int] = []
        self._clicked, self._closing = 0.0, False
        self._reviewer = Latest(self._review)
        self._worker = Latest(self._recode)
        self._review_of = Review()
        self._points: NDArray[np.float32] | None = None

    # -- before the first answer --------------------------------------------------------------

    def prepare(self) -> None:
        """Graph, codes and the map: from the project's folder, or computed and kept there."""
        points = self.project.points() if self.judge.restore(self.project.codes) else None
        if points is None:
            self._tell("Computing the neighbour graph and the codes", None)
            self.judge.prepare()
            self._keep_codes(acts=self.project.acts_in_codes)
        else:
            self._points = points
            self.judge.wishes = part_edits.Wishes.kept(self.project.wishes)
            self.judge.history[:] = self.project.history()
        for act in self.journal.acts:
            if act.part is not None and act.number > self.project.acts_in_codes:
                if self.judge.waiting:  # a later wish numbers parts as they were then
                    self._tell("Computing the codes for what was asked of the parts", None)
                    with self._lock:
                        self._decide()
                    self.judge.recode(self.opinion)
                self.judge.take_wish(act.part)
            if act.number > self.project.acts_in_codes:
                self._follow(act)
        with self._lock:
            self._decide()
            self.ready = True
        self.listener("ready", {})
        self._reviewer.ask()
        if self.judge.waiting:
            self._worker.ask()

    def _keep_codes(self, *, acts: int) -> None:
        """Codes and map for the next start; ``acts`` of the journal are in them."""
        self._tell("Laying out the map", None)
        self._points = presentation.lay_out_all(self.judge.codes)
        with self._told("The codes"):
            self.project.keep(self._points, self.judge, acts=acts)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """What cannot be written is said, and work goes on: it can be computed again."""
        try:
            yield
        except OSError as error:
            self.listener("trouble", {"text": f"{what} could not be kept: {error.strerror}."})

    def _tell(self, text: str, share: float | None) -> None:
        self._doing = text
        self.listener("doing", {"text": text, "share": share})

    # -- what a person does -------------------------------------------------------------------

    def label(
        self,
        samples: list[int],
        label: Label,
        *,
        window: str,
        seen: int | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Give samples a label, or take it away; on disk when this returns.

        ``seen`` is the version that the person had before the eyes, ``key`` what the page calls
        this act: one that comes again, since its answer was lost, is not done again.
        """
        with self._lock:
            if self._is_done(key):
                return self.answer()
            names = self._ids(samples)
            for i, name in zip(samples, names):
                since, by = self._last_change.get(i, (0, window))
                other = self.journal.labels.get(name)
                if seen is not None and by != window and since > seen and other != label:
                    raise Conflict(f"{name} was labelled {other!r} in another window meanwhile.")
            act = self.journal.set(dict.fromkeys(names, label), window=window, key=key)
            return self._after(act)

    def rename(
        self, name: str, to: Label, *, window: str, key: str | None = None
    ) -> dict[str, Any]:
        """Give a class another name; one that is there takes its samples in; None deletes it."""
        with self._lock:
            if self._is_done(key):
                return self.answer()
            if name not in self._classes():
                raise ValueError(f"There is no class {name!r}.")
            if to == name:
                raise ValueError(f"The class is called {name!r} already.")
            if self.judge.waiting:
                raise ValueError("The codes are being computed anew: wait until they are there.")
            act = self.journal.rename(name, to, window=window, key=key)
            self._follow(act)
            return self._after(act)

    def _follow(self, act: Act) -> None:
        """What was forbidden for a class stays so under its new name, and back again."""
        pair = act.renamed
        if pair is None and act.undoes is not None:
            undone = self.journal.acts[act.undoes - 1].renamed
            if undone is not None and undone[1] not in self._classes():  # else it was a merge
                pair = (undone[1], undone[0])
        if pair is not None:
            self.judge.wishes = self.judge.wishes.renamed(*pair)

    def skip(self, samples: list[int], *, window: str, key: str | None = None) -> dict[str, Any]:
        """Never ask for these again."""
        with self._lock:
            if self._is_done(key):
                return self.answer()
            names = self._ids(samples)
            return self._after(self.journal.skip(names, window=window, key=key))

    def undo(self, *, window: str, of: str | None = None, key: str | None = None) -> dict[str, Any]:
        """Take back this window's last act, or the one that it called ``of``."""
        with self._lock:
            if self._is_done(key):
                act = self.journal.keys[str(key)]
                return self.answer() | {"undone": self._undone(act)}
            found = self.journal.undo(window, of=of, key=key)
            if found is None:
                raise ValueError("There is nothing of yours to undo.")
            self._follow(found)
            return self._after(found) | {"undone": self._undone(found)}

    def _ids(self, samples: list[int]) -> list[str]:
        count = len(self.samples.ids)
        if max(samples) >= count:
            raise ValueError(f"There is no sample {max(samples)}.")
        return [self.samples.ids[i] for i in samples]

    def _is_done(self, key: str | None) -> bool:
        self._need_codes()
        return key is not None and key in self.journal.keys

    def _need_codes(self) -> None:
        if not self.ready:
            raise NotReady("The studio is still preparing; this was not done.")

    def _undone(self, act: Act) -> list[dict[str, Any]]:
        names = (*act.labels, *act.skipped)
        return [self._brief(self._row[name]) for name in names[:AHEAD] if name in self._row]

    def begin_with(self, labels: Any) -> None:
        """Labels from elsewhere, where this project has none of its own."""
        given = {
            name: " ".join(str(label).split())
            for name, label in zip(self.samples.ids, labels, strict=True)
            if label is not None
        }
        if given and not self.journal.acts:
            self.journal.set(given, window="file")

    def edit_part(self, words: Mapping[str, Any], *, window: str) -> dict[str, Any]:
        """Name, freeze, thaw, merge, split or forbid a part."""
        with self._lock:
            self._need_codes()
            if self.judge.waiting:
                raise ValueError(
                    "The codes are being computed anew and parts may get other numbers: wait until "
                    "they are there."
                )
            wish = part_edits.checked(words, len(self.judge.components), self._classes())
            self.journal.edit_part(wish, window=window)
            if self.judge.take_wish(wish):
                self._worker.ask()
                return {"text": "Computing the codes anew; the old ones serve meanwhile."}
            return {"text": "Done."}

    def _after(self, act: Act) -> dict[str, Any]:
        for name in (*act.labels, *act.skipped):
            if name in self._row:
                self._last_change[self._row[name]] = (self.version + 1, act.window)
        if act.labels:
            self._decide()
        else:
            self._queue = self._suggest(AHEAD)
            self.version += 1
        answer = self.answer()
        self.listener("answer", {"version": self.version, "by": act.window})
        self._clicked = time.monotonic()
        if act.labels:
            self._reviewer.ask()
        return answer

    # -- the answer ---------------------------------------------------------------------------

    def _classes(self) -> list[str]:
        return sorted(set(self.journal.labels.values()), key=presentation.natural)

    def _decide(self) -> None:
        """The answer for the labels of now, and what to ask next."""
        self.opinion = self.judge.decide(self.by_row(), self._classes())
        self._queue = self._suggest(AHEAD)
        self.version += 1

    def by_row(self) -> dict[int, str]:
        """Label of each labelled sample, by its number."""
        return {self._row[n]: label for n, label in self.labels.items() if n in self._row}

    def answer(self) -> dict[str, Any]:
        """Names, certainty and given labels of all samples, packed."""
        with self._lock:
            seen = self.opinion
            counts = np.bincount(seen.names[seen.names >= 0], minlength=len(seen.classes))
            given = np.bincount(seen.names[seen.given], minlength=len(seen.classes))
            return {
                "start": self.start,
                "version": self.version,
                "classes": seen.classes,
                "counts": {
                    name: {"answer": int(counts[c]), "labels": int(given[c])}
                    for c, name in enumerate(seen.classes)
                },
                "names": _pack(seen.names.astype("<i2")),
                "sure": _pack(np.clip(seen.sure * 255, 0, 255).astype(np.uint8)),
                "given": _pack(seen.given.astype(np.uint8)),
                "headline": self._headline(),
                "queue": [self._brief(i) for i in self._queue],
            }

    def _headline(self) -> str:
        n_labels, classes = int(self.opinion.given.sum()), len(self.opinion.classes)
        if classes < 2:
            return f"{n_labels} labels: name samples of at least two classes to get an answer."
        return f"{n_labels} labels, {classes} classes. {self._review_of.headline}".strip()

    def _suggest(self, n: int) -> list[int]:
        skipped = [self._row[name] for name in self.journal.skipped if name in self._row]
        order = self.judge.suggest(n, self.opinion, np.asarray(skipped, dtype=np.int64))
        return [int(i) for i in order]

    def next(self, n: int) -> list[dict[str, Any]]:
        """The samples whose label would help most."""
        with self._lock:
            self._need_codes()
            order = self._queue[:n] if n <= AHEAD else self._suggest(n)
            return [self._brief(i) for i in order]

    def list(
        self, name: str | None, *, start: int, n: int, search: str = ""
    ) -> list[dict[str, Any]]:
        """Samples of a class, or all, the most doubtful first.

        With ``search``, those that have all of its words in their id or text.
        """
        with self._lock:
            seen = self.opinion
            order = np.argsort(np.where(seen.given, 2, seen.sure), kind="stable")
            if name:
                if name not in seen.classes:
                    raise ValueError(f"There is no class {name!r}.")
                order = order[seen.names[order] == seen.classes.index(name)]
            wanted = search.casefold().split()
            if wanted:
                order = order[[self._has(int(i), wanted) for i in order]]
            return [self._brief(int(i)) for i in order[start : start + n]]

    def _has(self, i: int, wanted: Sequence[str]) -> bool:
        texts = self.samples.whole_texts or self.samples.texts
        text = f"{self.samples.ids[i]} {'' if texts is None else texts[i]}".casefold()
        return all(word in text for word in wanted)

    def text(self, i: int) -> dict[str, str]:
        """The whole text of a sample."""
        texts = self.samples.whole_texts
        if texts is None or not 0 <= i < len(texts):
            raise ValueError(f"There is no text {i}.")
        return {"text": texts[i][: presentation.WHOLE_TEXT]}

    def _brief(self, i: int) -> dict[str, Any]:
        seen = self.opinion
        name = seen.classes[seen.names[i]] if seen.names[i] >= 0 else None
        return presentation.sample(self.samples, i) | {
            "suggestion": None if seen.given[i] else name,
            "given": name if seen.given[i] else None,
            "sure": round(float(seen.sure[i]), 4),
        }

    def sample(self, i: int) -> dict[str, Any]:
        """A sample, its neighbours, and which parts speak for what."""
        if not 0 <= i < self.samples.n_samples:
            raise ValueError(f"There is no sample {i}.")
        with self._lock:
            self._need_codes()
            near = [self._brief(j) for j in self.judge.near(i)]
            because = self.judge.explain(i, self.opinion)
            return self._brief(i) | {"neighbours": near, "because": because}

    def points(self) -> dict[str, Any]:
        """Two coordinates for every sample, packed."""
        if self._points is None:
            raise ValueError("The map is not ready yet.")
        x, y = np.ascontiguousarray(self._points.T.astype("<f4"))
        return {"x": _pack(x), "y": _pack(y), "about": "t-SNE of the codes"}

    def state(self) -> dict[str, Any]:
        """What the page needs before anything else."""
        source, kind = self.samples.source or "data", self.samples.kind
        return {"ready": self.ready, "doing": self._doing, "source": source, "kind": kind}

    def picture(self, what: str, i: int) -> bytes | None:
        """A sample, small or whole, or a part as PNG; None where there is no such picture."""
        draw, shape = self.samples.thumbnails, self.samples.image_shape
        if what in ("sample", "whole") and draw is not None and 0 <= i < self.samples.n_samples:
            side = (presentation.WHOLE_PICTURE,) if what == "whole" else ()
            with contextlib.suppress(OSError, ValueError):  # the file is gone, or another one now
                return draw(i, *side)
        elif what == "part" and shape and self.ready and 0 <= i < len(self.judge.components):
            part = self.judge.components[i]
            return png(part.reshape(shape), part.max())
        return None

    def parts(self) -> dict[str, Any]:
        """Every part: what it is, who uses it, and what was asked for."""
        with self._lock:
            self._need_codes()
            parts = [
                presentation.part(self.samples, self.judge, j, self.opinion)
                for j in range(len(self.judge.components))
            ]
            return {"parts": parts, "doing": "Computing …" if self._worker.busy else None}

    # -- in the background --------------------------------------------------------------------

    def _review(self) -> None:
        """Cross-validated accuracy, its forecast and contradicted labels, for the labels of now."""
        began = time.monotonic()
        while self.judge.aside and not self._closing:
            now = time.monotonic()
            left = min(self._clicked + PAUSE, began + PATIENCE) - now
            if left <= 0:
                break
            time.sleep(left)
        with self._lock:
            rows, classes = self.by_row(), self._classes()
        found = self.judge.review(rows, classes)
        with self._lock:
            self._review_of = Review() if found is None else found.review
            with self._told("The curve of progress"):
                self.project.keep_history(self.judge.history)
            if found is not None and self.judge.adopt(found):
                self._decide()
        self.listener("answer", {"version": self.version})
        self.listener("progress", {})

    def progress(self) -> dict[str, Any]:
        """What the last review said."""
        with self._lock:
            return presentation.progress(self.samples, self._review_of, self.answer()["counts"])

    def _recode(self) -> None:
        """New codes for the wishes about parts, while the old ones serve."""
        with self._lock:
            acts = len(self.journal.acts)  # later wishes are not in the codes
        try:
            self.judge.recode(self.opinion)
        except ValueError as error:
            self.listener("trouble", {"text": str(error)})
            return
        self._keep_codes(acts=acts)
        with self._lock:
            self._decide()
        self.listener("codes", {"text": "The codes are new."})
        self._reviewer.ask()

    # -- out ----------------------------------------------------------------------------------

    def export(self, name: str) -> tuple[bytes, str]:
        """A file by its name, and its type."""
        write, kind = exports.EXPORTS[name]
        return write(self), kind

    def save_all(self) -> dict[str, Any]:
        """All files into the project's folder."""
        return {"files": exports.save_all(self)}

    @property
    def labels(self) -> dict[str, str]:
        """Label of each labelled sample, by id."""
        with self._lock:
            return dict(self.journal.labels)

    def wait(self) -> None:
        """Until nothing is computed in the background any more."""
        self._worker.wait()
        self._reviewer.wait()

    def close(self) -> None:
        self._closing = True
        self.judge.close()
        self.wait()
        self.judge.end()
        self.journal.close()
        self.project.close()


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
