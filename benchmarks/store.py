"""Results of finished measurements, one JSON file each, which ``--resume`` reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from partwise.persistence.atomic import write_whole


def write_json(path: Path, value: Any) -> None:
    """Write JSON to a temporary file and rename it, so that no reader sees a partial file."""
    write_text(path, json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text, force=True)


def _plain(value: Any) -> Any:
    """Convert numpy scalars to numbers, and values that are not finite to None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Store:
    """Stored results of one run in a folder; ``key`` identifies the code and settings."""

    def __init__(self, folder: Path, key: dict[str, str]) -> None:
        self.folder = folder
        self.key = key

    def path(self, part: str) -> Path:
        return self.folder / f"{part}.json"

    def save(self, part: str, result: dict[str, Any]) -> None:
        write_json(self.path(part), {"key": self.key, "result": result})

    def load(self, part: str) -> dict[str, Any] | None:
        """Return the stored result, or None if it is missing, damaged or from other code."""
        try:
            stored = json.loads(self.path(part).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(stored, dict) or stored.get("key") != self.key:
            return None
        return stored.get("result")
