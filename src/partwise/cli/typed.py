"""What was typed, or stands in ``partwise.toml``, as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

#: What the last command took from a file, as it would have been typed.
FROM_FILE: list[str] = []


def from_file(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Options of a file ``partwise.toml`` beside the data, where they were not typed."""
    FROM_FILE.clear()
    data = Path(given["data"])
    places = [data.parent, *([data] if data.is_dir() else [])]
    path = next((p / "partwise.toml" for p in places if (p / "partwise.toml").is_file()), None)
    if path is None:
        return {}
    import tomllib

    try:
        held = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}).") from error
    taken: dict[str, Any] = {}
    for key, value in held.items():
        name = {"clusters": "k", "json": "as_json"}.get(key, key).replace("-", "_")
        if name not in given or name in ("data", "ctx"):
            known = ", ".join(sorted(n for n in given if n not in ("data", "as_json")))
            raise ValueError(f"{path}: there is no option {key!r}; there are {known}.")
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "DEFAULT":
            taken[name] = _as_typed(name, value, path)
    return taken


def _as_typed(name: str, value: Any, path: Path) -> Any:
    if name == "set":
        if not isinstance(value, dict):
            raise ValueError(f"{path}: set is a table, as [set] and then graph_reg = 1.")
        text = [f"{key}={_toml(item)}" for key, item in value.items()]
        FROM_FILE.extend(word for item in text for word in ("--set", item))
        return text
    option = "-k" if name == "k" else "--" + name.replace("_", "-")
    if isinstance(value, bool):
        FROM_FILE.append(option if value else option.replace("--", "--no-", 1))
        return value
    if isinstance(value, list):
        value = ",".join(map(str, value))
    FROM_FILE.extend((option, str(value)))
    if name in ("labels", "known", "seed_words", "links", "features", "also"):
        return path.parent / str(value)
    number = isinstance(value, (int, float)) and name not in ("size", "ngrams", "image_shape")
    return value if number else Path(str(value)) if name == "out" else str(value)


def _toml(value: Any) -> str:
    return repr(value).lower() if isinstance(value, bool) else repr(value)


# -- texts ---------------------------------------------------------------------------------------


def settings_of(text: list[str] | None, per_class: int | None) -> dict[str, Any]:
    """``["graph_reg=1"]`` as parameters."""
    import tomllib

    found: dict[str, Any] = {}
    for item in text or ():
        name, sign, value = item.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"--set takes NAME=VALUE, as graph_reg=1; got {item!r}.")
        try:
            found[name.strip()] = tomllib.loads(f"v = {value.strip()}")["v"]
        except tomllib.TOMLDecodeError:
            none = value.strip().lower() == "none"
            found[name.strip()] = None if none else value.strip()  # a word, as solver=mu
    if per_class is not None:
        found["components_per_class"] = per_class
    return found


def grid_of(text: list[str] | None) -> dict[str, list[Any]]:
    """``["graph_reg=1,10"]`` as values to try."""
    found: dict[str, list[Any]] = {}
    for item in text or ():
        name, sign, values = item.partition("=")
        if not sign or not name.strip() or not values.strip():
            raise ValueError(f"--grid takes NAME=VALUE,VALUE, as graph_reg=1,10; got {item!r}.")
        pairs = [settings_of([f"{name}={value}"], None) for value in values.split(",")]
        found[name.strip()] = [value for pair in pairs for value in pair.values()]
    return found


def two_sides(text: str | None, option: str) -> tuple[int, int] | None:
    """``"32"`` or ``"48x32"`` as (height, width)."""
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) for side in sides):
        raise ValueError(f"{option} takes 32, or height x width as 48x32; got {text!r}.")
    return int(sides[0]), int(sides[-1])


def names_of(text: str | None) -> tuple[str, ...]:
    """``"a, b"`` as names."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def span(text: str | None, option: str) -> tuple[int, int] | None:
    """``"2"`` or ``"1-2"`` as (least, most)."""
    if text is None:
        return None
    ends = [end.strip() for end in text.split("-")]
    if len(ends) > 2 or not all(end.isdigit() and int(end) for end in ends):
        raise ValueError(f"{option} takes 2, or 1-2; got {text!r}.")
    least, most = int(ends[0]), int(ends[-1])
    if least > most:
        raise ValueError(f"{option} takes the smaller number first; got {text!r}.")
    return least, most


def numbers_of(text: str | None, option: str) -> list[int]:
    """``"5-7"``, ``"5,8"`` or both as numbers, in order."""
    spans = [span(part, option) for part in names_of(text)]
    return sorted({k for ends in spans if ends for k in range(ends[0], ends[1] + 1)})


def reading(**given: Any) -> dict[str, Any]:
    """The arguments of `partwise.io.read_samples` from the options of a command."""
    for name, change in (
        ("size", lambda text: two_sides(text, "--size")),
        ("image_shape", lambda text: two_sides(text, "--image-shape")),
        ("ngrams", lambda text: span(text, "--ngrams")),
        ("columns", names_of),
        ("exclude", names_of),
    ):
        if name in given:
            given[name] = change(given[name])
    if "set" in given:
        given["settings"] = settings_of(given.pop("set"), given.pop("components_per_class"))
    return given
