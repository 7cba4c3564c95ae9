"""AnnData tables of SpatialData and MuData objects.

The packages of these objects need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def table_of(data: Any) -> Any:
    """Return the only table of a SpatialData or MuData object; keep an AnnData."""
    for name in ("tables", "mod"):  # attributes of SpatialData and of MuData
        tables = getattr(data, name, None)
        if not isinstance(tables, Mapping):
            continue
        if len(tables) == 1:
            return next(iter(tables.values()))
        held = ", ".join(f"data.{name}[{key!r}]" for key in tables) or "nothing"
        raise ValueError(
            f"This {type(data).__name__} has {len(tables)} tables. Pass one of them: {held}."
        )
    return data


def on_tables(function: Callable[P, T]) -> Callable[P, T]:
    """Return an AnnData function that also takes SpatialData and MuData objects."""

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        tables: Any = map(table_of, args)
        named: Any = {name: table_of(value) for name, value in given.items()}
        return function(*tables, **named)

    return call
