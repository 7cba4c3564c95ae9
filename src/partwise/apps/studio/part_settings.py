"""Settings of parts that the user made on the page.

A part can have a name, be frozen (it stays unchanged), or be forbidden for a class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Maximum number of characters in the name of a class or a part.
MAX_NAME = 200


@dataclass
class PartSettings:
    """Names of parts, frozen parts and forbidden parts, by their current numbers."""

    names: dict[int, str] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    forbidden: set[tuple[int, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.names or self.frozen or self.forbidden)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as values for JSON."""
        return {name: sorted(getattr(self, name)) for name in ("frozen", "forbidden")} | {
            "names": sorted(self.names.items())
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PartSettings:
        """Return the settings that `to_json` stored."""
        return cls(
            {int(j): str(name) for j, name in content.get("names", ())},
            {int(j) for j in content.get("frozen", ())},
            {(int(j), str(name)) for j, name in content.get("forbidden", ())},
        )

    def rename_class(self, old: str, new: str) -> None:
        """Update the forbidden parts of a class that was renamed."""
        self.forbidden = {(j, new if name == old else name) for j, name in self.forbidden}

    def apply(self, edit: Mapping[str, Any]) -> None:
        """Apply an edit to the settings; merging or splitting parts renumbers later parts."""
        part, kind = int(edit["part"]), edit["do"]
        if kind == "name":
            self.names[part] = edit["name"]
        elif kind == "freeze":
            self.frozen.add(part)
        elif kind == "thaw":
            self.frozen.discard(part)
        elif kind == "forbid":
            self.forbidden.add((part, edit["class"]))
        else:
            gone, step = (int(edit["with"]), -1) if kind == "merge" else (part, 1)

            def moved(j: int) -> int:
                """Return the new number of a part after a merge or a split."""
                return j + step * (j > gone)

            self.names = {moved(j): name for j, name in self.names.items() if j != gone}
            self.frozen = {moved(j) for j in self.frozen if j != gone}
            self.forbidden = {(moved(j), name) for j, name in self.forbidden if j != gone}


def check_edit(words: Mapping[str, Any], n_parts: int, classes: Sequence[str]) -> dict[str, Any]:
    """Return the edit of a part that the page requests; raise ValueError if invalid."""
    kind, part = words.get("do"), words.get("part")
    if kind not in ("name", "freeze", "thaw", "merge", "split", "forbid"):
        raise ValueError("A part can be named, frozen, thawed, merged, split or forbidden.")
    if not _is_part(part, n_parts):
        raise ValueError(f"There is no part {part!r}.")
    edit: dict[str, Any] = {"do": kind, "part": part}
    if kind == "name":
        edit["name"] = plain_name(words.get("name"), "part")
    if kind == "merge":
        edit["with"] = words.get("with")
        if not _is_part(edit["with"], n_parts) or edit["with"] == part:
            raise ValueError("A part can be merged with another part.")
    if kind == "forbid":
        edit["class"] = words.get("class")
        if edit["class"] not in classes:
            raise ValueError(f"There is no class {edit['class']!r}.")
    return edit


def plain_name(value: Any, what: str) -> str:
    """Return a name without extra spaces; raise ValueError if it is not allowed."""
    name = " ".join(value.split()) if isinstance(value, str) else ""
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise ValueError(f"The name of a {what} has 1 to {MAX_NAME} printable characters.")
    return name


def _is_part(value: Any, n_parts: int) -> bool:
    """Return whether a value is the number of a part."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n_parts
