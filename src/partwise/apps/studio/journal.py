"""What a person did, one line an act, on disk before it is acknowledged.

The file only grows. A kill at any moment loses at most a line that nobody was told about: a last
line without its end is cut off when the journal is opened again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Label of a sample, or None where it has none.
Label = str | None


@dataclass(frozen=True)
class Act:
    """One line: labels that were set, samples that were skipped, or a wish about a part."""

    number: int
    window: str
    labels: Mapping[str, Label] = field(default_factory=dict)
    before: Mapping[str, Label] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    part: Mapping[str, Any] | None = None
    undoes: int | None = None
    renamed: tuple[str, str] | None = None  #: a class's name before and after
    key: str | None = None  #: what the page called it: sent twice, it is done once

    def line(self) -> bytes:
        kept = {name: value for name, value in asdict(self).items() if value not in (None, {}, ())}
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Journal:
    """The acts of a project, and the labels that they add up to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.acts: list[Act] = []
        self.labels: dict[str, str] = {}
        self.skipped: set[str] = set()
        self.keys: dict[str, Act] = {}
        self._whole = _read(self.path, self._take)
        # unbuffered: what a full disk refused must not be written later, under a number in use
        self._file = self.path.open("ab", buffering=0)
        self._cut()

    def set(
        self,
        labels: Mapping[str, Label],
        *,
        window: str,
        undoes: int | None = None,
        key: str | None = None,
    ) -> Act:
        """Label samples, or take their label away (None)."""
        before = {name: self.labels.get(name) for name in labels}
        return self._add(window=window, labels=dict(labels), before=before, undoes=undoes, key=key)

    def rename(self, old: str, new: Label, *, window: str, key: str | None = None) -> Act:
        """Give all labels of a class another name, or take them away (None)."""
        before = {name: label for name, label in self.labels.items() if label == old}
        pair = None if new is None else (old, new)
        labels = dict.fromkeys(before, new)
        return self._add(window=window, labels=labels, before=before, renamed=pair, key=key)

    def skip(self, names: Iterable[str], *, window: str, key: str | None = None) -> Act:
        """Never ask for these again."""
        return self._add(window=window, skipped=tuple(names), key=key)

    def edit_part(self, wish: Mapping[str, Any], *, window: str) -> Act:
        """Remember what is to be done with a part."""
        return self._add(window=window, part=dict(wish))

    def undo(self, window: str, *, of: str | None = None, key: str | None = None) -> Act | None:
        """Take back a window's last act, or the one that it called ``of``.

        What others did since to the same samples stays.
        """
        undone = {act.undoes for act in self.acts}
        for act in reversed(self.acts):
            mine = act.window == window and act.undoes is None and act.number not in undone
            if not mine or not (act.labels or act.skipped) or of not in (None, act.key):
                continue
            if act.skipped:
                return self._add(window=window, skipped=act.skipped, undoes=act.number, key=key)
            same = [name for name, label in act.labels.items() if self.labels.get(name) == label]
            before = {name: act.before[name] for name in same}
            return self.set(before, window=window, undoes=act.number, key=key)
        return None

    def close(self) -> None:
        self._file.close()

    def _add(self, **content: Any) -> Act:
        act = Act(number=len(self.acts) + 1, **content)
        line = act.line()
        self._cut()
        try:
            done = 0
            while done < len(line):
                done += self._file.write(line[done:]) or 0
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next act, or the next start, cuts it
                self._cut()
            raise OSError(
                error.errno, f"This was not kept, since it cannot be written ({error.strerror})"
            ) from error
        self._whole += len(line)
        self._take(act)
        return act

    def _cut(self) -> None:
        """Take off what was never acknowledged: a torn line, or one that the disk refused."""
        if os.fstat(self._file.fileno()).st_size > self._whole:
            self._file.truncate(self._whole)

    def _take(self, act: Act) -> None:
        self.acts.append(act)
        if act.key is not None:
            self.keys[act.key] = act
        for name, label in act.labels.items():
            if label is None:
                self.labels.pop(name, None)
            else:
                self.labels[name] = label
        if act.skipped and act.undoes is not None:
            self.skipped.difference_update(act.skipped)
        else:
            self.skipped.update(act.skipped)


def _read(path: Path, take: Any) -> int:
    """Hand every whole line to ``take``; the number of bytes that they fill."""
    if not path.exists():
        return 0
    whole = 0
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
            take(Act(**content))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise ValueError(
                f"{path}, line {number}: this is no line of a studio's journal ({error}); repair "
                "or remove it."
            ) from error
        whole += len(line)
    return whole
