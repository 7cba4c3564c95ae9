"""Journal of all actions in the studio, one line per action.

Each line is on disk before the action is confirmed to the page. The file only grows. If the process
is killed, at most one unconfirmed line is lost: an incomplete last line is removed when the journal
is opened again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Label of a sample, or None for an unlabelled sample.
Label = str | None


@dataclass(frozen=True)
class Entry:
    """One action of a user: labels that were set, skipped samples, or an edited part."""

    number: int
    window: str
    labels: Mapping[str, Label] = field(default_factory=dict)
    before: Mapping[str, Label] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    part: Mapping[str, Any] | None = None
    undoes: int | None = None
    renamed: tuple[str, str] | None = None  #: name of a class before and after
    key: str | None = None  #: key of the request; a repeated request is carried out once

    def line(self) -> bytes:
        """Return the entry as a line of JSON."""
        kept = {name: value for name, value in asdict(self).items() if value not in (None, {}, ())}
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Journal:
    """Actions in a project, and the labels that result from them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.entries: list[Entry] = []
        self.labels: dict[str, str] = {}
        self.skipped: set[str] = set()
        #: samples whose label the user confirmed by giving it again
        self.confirmed: set[str] = set()
        self.keys: dict[str, Entry] = {}
        self._size = _read(self.path, self._take)
        # The file is unbuffered, so that an entry that failed on a full disk is not written later.
        self._file = self.path.open("ab", buffering=0)
        self._cut()

    def set(self, labels: Mapping[str, Label], **sender: Any) -> Entry:
        """Set labels of samples, or remove them with None; return the new entry.

        ``sender`` contains the window that sent the request, and the key
        of the request if it has one.
        """
        before = {name: self.labels.get(name) for name in labels}
        return self._add(labels=dict(labels), before=before, **sender)

    def rename(self, old: str, new: Label, **sender: Any) -> Entry:
        """Rename a class, or remove all of its labels with None; return the new entry."""
        before = {name: label for name, label in self.labels.items() if label == old}
        pair = None if new is None else (old, new)
        return self._add(labels=dict.fromkeys(before, new), before=before, renamed=pair, **sender)

    def skip(self, names: Iterable[str], **sender: Any) -> Entry:
        """Record skipped samples, so that the studio does not ask for them again."""
        return self._add(skipped=tuple(names), **sender)

    def edit_part(self, edit: Mapping[str, Any], **sender: Any) -> Entry:
        """Record an edit of a part, and return the new entry."""
        return self._add(part=dict(edit), **sender)

    def undo(self, window: str, *, of: str | None = None, key: str | None = None) -> Entry | None:
        """Undo the last action of a window, or the action with the key ``of``.

        Later changes of the same samples in other windows remain. Return None if there is nothing
        to undo.
        """
        undone = {entry.undoes for entry in self.entries}
        for entry in reversed(self.entries):
            own = entry.window == window and entry.undoes is None and entry.number not in undone
            if not own or not (entry.labels or entry.skipped) or of not in (None, entry.key):
                continue
            sender = {"window": window, "key": key, "undoes": entry.number}
            if entry.skipped:
                return self.skip(entry.skipped, **sender)
            same = [name for name, label in entry.labels.items() if self.labels.get(name) == label]
            return self.set({name: entry.before[name] for name in same}, **sender)
        return None

    def close(self) -> None:
        """Close the file of the journal."""
        self._file.close()

    def _add(self, **content: Any) -> Entry:
        """Write a new entry to the file and return it."""
        entry = Entry(number=len(self.entries) + 1, **content)
        line = entry.line()
        self._cut()
        try:
            done = 0
            while done < len(line):
                done += self._file.write(line[done:]) or 0
            os.fsync(self._file.fileno())
        except OSError as error:
            # if this fails, the next entry or start removes the line
            with contextlib.suppress(OSError):
                self._cut()
            raise OSError(
                error.errno,
                f"The change was not saved, because writing the file failed ({error.strerror})",
            ) from error
        self._size += len(line)
        self._take(entry)
        return entry

    def _cut(self) -> None:
        """Remove the end of the file that was never confirmed, such as an incomplete line."""
        if os.fstat(self._file.fileno()).st_size > self._size:
            self._file.truncate(self._size)

    def _take(self, entry: Entry) -> None:
        """Apply an entry to the labels and skipped samples."""
        self.entries.append(entry)
        if entry.key is not None:
            self.keys[entry.key] = entry
        for name, label in entry.labels.items():
            again = label is not None and label == self.labels.get(name)
            (self.confirmed.add if again else self.confirmed.discard)(name)
            if label is None:
                self.labels.pop(name, None)
            else:
                self.labels[name] = label
        if entry.skipped and entry.undoes is not None:
            self.skipped.difference_update(entry.skipped)
        else:
            self.skipped.update(entry.skipped)


def _read(path: Path, take: Any) -> int:
    """Pass every complete entry of a journal file to ``take``, and return their size."""
    if not path.exists():
        return 0
    size = 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            if not line.endswith(b"\n"):
                break
            if content["number"] != number:
                raise ValueError(f"number {content['number']}")
            content["skipped"] = tuple(content.get("skipped", ()))
            if "renamed" in content:
                content["renamed"] = tuple(map(str, content["renamed"]))
            take(Entry(**content))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise ValueError(
                f"{path}, line {number} is not valid ({error}); repair or remove this line."
            ) from error
        size += len(line)
    return size
