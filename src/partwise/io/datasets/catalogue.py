"""Names, sources and layouts of the public data sets, from ``catalogue.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One public data set.

    `stems` are file names without suffix in any case, the preferred one first. Images are stored
    column by column, as MATLAB writes them, if ``image_order`` is "F".
    """

    description: str
    get_from: str
    stems: tuple[str, ...] = ()
    image_shape: tuple[int, int] | None = None
    image_order: str = "F"
    class_names: tuple[str, ...] | None = None
    fetched: str = ""  # description of the set that scikit-learn downloads


def _entry(table: dict[str, Any]) -> Entry:
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Entry(**made)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CATALOGUE = {name: _entry(table) for name, table in _TABLES.items()}


def canonical(name: str) -> str:
    """Return the name in the catalogue; an unknown name is returned in lower case.

    >>> canonical("ORL_32x32.mat"), canonical("PIE-pose27"), canonical("mine")
    ('orl', 'pie', 'mine')
    """
    stem = name.strip().lower()
    for suffix in (".npz", ".mat"):
        stem = stem.removesuffix(suffix)
    spelt = stem.replace("-", "_")
    for known, entry in CATALOGUE.items():
        if spelt == known or spelt in entry.stems:
            return known
    return stem
