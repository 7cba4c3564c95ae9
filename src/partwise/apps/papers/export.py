"""Export of a table's settings to one file, for ``partwise reproduce --export``."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from partwise.apps.papers.protocol import Protocol, load_protocol, read_settings
from partwise.apps.papers.store import write_whole


def export(name: str, path: Path) -> None:
    """Write the main settings of a paper's table to a new TOML file."""
    if path.suffix != ".toml":
        raise ValueError(f"the file must end in .toml, got {str(path)!r}")
    protocol = load_protocol(name).under()
    if not protocol.methods or not protocol.data:
        raise ValueError(f"{name} runs no methods, so there is nothing to edit; export a table")
    if path.exists():
        raise FileExistsError(f"{path} exists; choose another name")
    write_whole(path, as_toml(protocol, path.name))


def as_toml(protocol: Protocol, file: str = "mine.toml") -> str:
    """Return the settings of a table, in their current variant, as TOML text."""
    runs = {"printed": protocol.runs_printed, "default": protocol.runs()}
    top = {
        "title": protocol.title,
        "paper": protocol.paper,
        "runs_of": protocol.root,
        "printed_from": read_settings(protocol.name).get("printed_from", protocol.name),
        "metrics": protocol.metrics,
        "runs": {key: value for key, value in runs.items() if value},
        "kmeans": protocol.kmeans,
    }
    parts = [_lines(top)]
    for kind in ("data", "budgets", "methods"):
        for entry in getattr(protocol, kind):
            parts.append(f"[[{kind}]]\n" + _lines(_changed(entry)))
    template = resources.files("partwise.apps.papers") / "export.toml"
    return Template(template.read_text(encoding="utf-8")).substitute(
        name=protocol.name, root=protocol.root, variant=protocol.variant.name, file=file,
        settings="\n".join(parts), readout=protocol.methods[0].readout,
    )  # fmt: skip


def _changed(entry: Any) -> dict[str, Any]:
    """Return the non-default settings of a data set, label budget or method."""
    default = type(entry)(entry.name)
    values = {f.name: getattr(entry, f.name) for f in fields(entry)}
    return {k: v for k, v in values.items() if k == "name" or v != getattr(default, k)}


def _lines(values: dict[str, Any]) -> str:
    """Return settings as lines of TOML."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())


def _key(key: str) -> str:
    """Return a key as TOML, with quotes if it needs them."""
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    """Return a Python value as TOML."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)  # TOML and JSON share this syntax
