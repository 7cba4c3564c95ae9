"""Options of the commands in groups, and what was typed, or stands in a file, as values."""

from __future__ import annotations

import importlib
import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

EMPTY = inspect.Parameter.empty


class Option(NamedTuple):
    """The type of an option, its default, and what typer is told of it."""

    of: Any
    default: Any
    info: Any


def option(text: str, default: Any = None, *names: str, of: Any = None, **more: Any) -> Option:
    """An option with its help: of the type of its default, or a text that may be absent."""
    if of is None:
        of = Path if isinstance(default, Path) else str if default is None else type(default)
    of = of if default is not None or of is Any else of | None
    return Option(of, default, typer.Option(*names, help=text, **more))


def flag(text: str, *names: str) -> Option:
    """An option that is there or not."""
    return option(text, False, *names)


def argument(name: str, text: str, of: Any = str) -> Option:
    """A word without a name, which has to be there."""
    return Option(of, EMPTY, typer.Argument(metavar=name, help=text, show_default=False))


def _number(text: str) -> int | str:
    """What ``-k`` may be."""
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"a number, 1 or more, or auto; got {text!r}")
    return int(text)


#: The options that say how data is read and which labels it has, in the groups of the help. They
#: are the arguments of `partwise.io.read_samples`, and reach a command as ``reading``.
READING: dict[str, dict[str, Option]] = {
    "": {
        "labels": option(
            "A CSV file of id,label; an id is a path in the folder, a file name, or what the id "
            "column says (row numbers from 0 without one).",
            of=Path,
        ),
        "label_column": option(
            "The column of DATA with the labels; empty where unknown. .h5ad: of obs."
        ),
        "text_column": option("The column of a table that holds texts."),
    },
    "Labels": {
        "skip_unknown": flag("Leave out lines of --labels whose id is not in DATA."),
        "similar_labels": option(
            'What "Block 2" beside "block2" is: ask (an error), merge, keep.', "ask"
        ),
        "unknown_labels": option(
            'What the label "unknown", "?", "n/a", "unbekannt" is: ask (an error), drop (no '
            "label), keep (a class).",
            "ask",
        ),
    },
    "Parameters of the method": {
        "set": option(
            "A parameter of the method, as graph_reg=10; may be given several times.",
            of=list[str],
            metavar="NAME=VALUE",
        ),
        "components_per_class": option(
            "Parts of each class, for methods that give each class its own.", of=int, min=1
        ),
    },
    "How to read DATA": {
        "kind": option("images, texts, table or counts, where it does not show."),
        "scale": option(
            "auto, none, unit (samples of length one), range (columns of a table by 5 to 95 % of "
            "their values), max or std (columns by their largest value or standard deviation), "
            "total (samples to the median total).",
            "auto",
        ),
        "encoding": option("Of texts, tables and labels, as cp1252 or utf-16; found by default."),
        "strict": flag(
            "Stop at a file that cannot be read, an empty text, images of different sizes; by "
            "default they are skipped and listed in skipped.csv, or resized.",
        ),
        "embeddings": option(
            "A file with an embedding of each sample: .npz (X, ids), .parquet or .csv with a "
            "column of ids, or .npy in the samples' order. A second view in addition to words, "
            "pixels or columns; held-out labels weigh the two.",
            of=Path,
        ),
        "embeddings_only": flag(
            "Use the embeddings instead of words, pixels or columns; needed where nothing is "
            "classified, since only the classifier takes two views.",
        ),
    },
    "Tables": {
        "id_column": option(
            "The column of a table that holds ids; none: rows are numbered from 0."
        ),
        "columns": option(
            "The columns of a table to use, separated by commas; by default, all that can be."
        ),
        "exclude": option("Columns of a table to leave out."),
        "separator": option("Between columns: a sign, or tab; found by default."),
        "heading": option(
            "Whether a table's first row names its columns: yes, no, or auto (unless it looks "
            "like the others).",
            "auto",
        ),
        "missing": option(
            "Missing values in a table: auto and median (of the column), mean, drop (the row), "
            "error; empty texts are skipped, unless this is error.",
            "auto",
        ),
    },
    "Images and matrices": {
        "size": option(
            "Resize images: 32, or height x width as 48x32. By default their own size, or the "
            "median of their sizes, at most 64x64 pixels."
        ),
        "rgb": option(
            "Keep colours, or not; by default where the labels are told apart better by them.",
            None,
            "--rgb/--grey",
            of=bool,
            show_default=False,
        ),
        "image_shape": option("The rows of a matrix are images, as 32x32."),
        "image_order": option(
            "How a matrix stores pixels: rows, columns, or auto (columns in a .mat file).", "auto"
        ),
        "transpose": flag("Samples are the columns of the matrix."),
    },
    "Texts": {
        "stop_words": option(
            "auto (of the texts' language), off, frequent (words of more than a fifth of the "
            "texts), a language as german, or a file with a word a line.",
            "auto",
        ),
        "tokens": option(
            "words, characters, or auto: characters where most of the writing has no spaces, as "
            "Chinese, Japanese and Thai.",
            "auto",
        ),
        "ngrams": option(
            "Words in a row, or characters, that count as one: 1-2 are single words and pairs. By "
            "default 1 word, 2 characters."
        ),
        "min_df": option(
            "Leave out words of fewer texts: a number, or a share below 1. By default 2.", of=float
        ),
        "max_df": option(
            "Leave out words of more texts: a share, or a number above 1. By default 0.5.", of=float
        ),
    },
    "Cells (.h5ad)": {
        "layer": option("The layer to use instead of X; raw: of .raw."),
        "genes": option(
            "Keep so many of the genes, those that vary most; 0: all. By default 2,000 where "
            "there are more than 3,000.",
            of=int,
            min=0,
        ),
    },
}
#: What several commands ask beside: of the model, and of the run, which changes no model.
SHARED: dict[str, dict[str, Option]] = {
    "": {
        "data": argument(
            "DATA",
            "A folder of images or .txt files; a .csv, .tsv, .xlsx, .jsonl, .parquet, .npz, .npy, "
            ".mtx, .mat (fea, gnd) or .h5ad file; or a known data set, as digits.",
        ),
        "model": argument("MODEL", "A model that cluster or fit has written.", Path),
        "new": argument("NEW", "New data, of the kind that the model was fitted to."),
        "label_share": option(
            "Use this share of the labels, chosen at random, at least one a class; without "
            "--labels and --label-column, of the names of sub-folders, or of y or gnd in a file. "
            "The others serve to score the result.",
            of=float,
        ),
        "k": option(
            "Number of clusters; the number of classes by default. auto: as many as there are "
            "parts, see `partwise choose`.",
            None,
            *("-k", "--clusters"),
            of=Any,
            parser=_number,
            metavar="NUMBER|auto",
        ),
        "method": option("A name from `partwise methods`, or auto: chosen by the data.", "auto"),
        "force": flag("Overwrite an earlier result."),
    },
    "Parameters of the method": {
        "parts": option("Number of parts; by default, of clusters.", of=int, min=1),
    },
    "What you know of the parts": {
        "known": option(
            "A CSV file of parts that are known, which stay as they are: a line each, its name, "
            "then a number for each feature, empty where it is free; features by the first line.",
            of=Path,
        ),
        "seed_words": option(
            "A TOML file of topics to begin with, each a name and some words: sport = "
            '["match", "player"].',
            of=Path,
        ),
        "links": option(
            "A CSV file of pairs that belong together or apart: id, id, must or cannot.", of=Path
        ),
    },
    "The run": {
        "seed": option("For everything random.", 0, min=0),
        "max_iter": option("Most iterations.", 500, min=1),
        "seeds": option(
            "Runs of other seeds that show how stable the clusters are; 5 where quick.",
            of=int,
            min=0,
        ),
        "report": option("Write report.html.", True),
        "as_json": flag("Print the summary as JSON.", "--json"),
    },
}
GROUPS = [*SHARED.items(), *READING.items()]
OPTIONS = {name: own for _, group in GROUPS for name, own in group.items()}
for _title, _group in GROUPS:
    for _option in _group.values():
        _option.info.rich_help_panel = _title or None
#: The arguments of `partwise.io.read_samples`.
READS = [name for group in READING.values() for name in group]
#: What may differ for new data of a known model.
NEW = "label_column text_column id_column encoding separator heading missing transpose layer strict"
NEW += " embeddings"


def command(target: str, names: str, **own: Any) -> Callable[[Callable[[], None]], Any]:
    """Make a function that has a help text a command.

    ``target`` is the function of `partwise.apps.cli` that does the work, as "module.name",
    imported when the command runs. ``names`` are its options in the order of the help, ``own``
    those that no other command has, and defaults that differ here. Options that were not typed are
    taken from a file ``partwise.toml`` beside the data; those of `READING` reach the target as
    ``reading``.
    """
    chosen: dict[str, Option] = {}
    for name in dict.fromkeys([*names.split(), *own]):
        mine = own.get(name, OPTIONS.get(name))
        chosen[name] = mine if isinstance(mine, Option) else OPTIONS[name]._replace(default=mine)
        info = chosen[name].info
        if chosen[name].default is False and info.default is ...:  # a flag without names
            info.param_decls = [f"--{name.replace('_', '-')}"]  # else typer adds --no-...

    def add(function: Callable[[], None]) -> Any:
        def run(ctx: typer.Context, **given: Any) -> None:
            words = from_file(ctx, given) if "data" in given else []
            held = {name: given.pop(name) for name in READS if name in given and name not in own}
            if held:
                given["reading"] = as_reading(held)
            module, _, name = target.partition(".")
            work = getattr(importlib.import_module(f"partwise.apps.cli.{module}"), name)
            if "command" in inspect.signature(work).parameters:  # as it was typed, for the report
                given["command"] = shlex.join(["partwise", *sys.argv[1:], *words])
            work(**given)

        parameters = [_parameter("ctx", typer.Context, EMPTY)]
        parameters += [
            _parameter(name, Annotated[mine.of, mine.info], mine.default)
            for name, mine in chosen.items()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__ = function.__name__
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        run.__doc__ = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        return run

    return add


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# -- a file beside the data -----------------------------------------------------------------------


def from_file(ctx: typer.Context, given: dict[str, Any]) -> list[str]:
    """Take options that were not typed from ``partwise.toml``; the words that would say them."""
    import tomllib

    data = Path(given["data"])
    places = [data.parent, *([data] if data.is_dir() else [])]
    path = next((p / "partwise.toml" for p in places if (p / "partwise.toml").is_file()), None)
    if path is None:
        return []
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}).") from error
    said: list[str] = []
    for key, value in held.items():
        name = {"clusters": "k", "json": "as_json"}.get(key, key).replace("-", "_")
        if name not in given or name == "data":
            known = ", ".join(sorted(n for n in given if n not in ("data", "as_json")))
            raise ValueError(f"{path}: there is no option {key!r}; there are {known}.")
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "DEFAULT":
            given[name], words = _as_typed(name, value, path)
            said += words
    return said


def _as_typed(name: str, value: Any, path: Path) -> tuple[Any, list[str]]:
    """A value of the file as the command takes it, and as it would have been typed."""
    if name == "set":
        if not isinstance(value, dict):
            raise ValueError(f"{path}: set is a table, as [set] and then graph_reg = 1.")
        items = {k: str(v).lower() if isinstance(v, bool) else repr(v) for k, v in value.items()}
        text = [f"{key}={item}" for key, item in items.items()]
        return text, [word for item in text for word in ("--set", item)]
    name_of = "-k" if name == "k" else "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return value, [name_of if value else name_of.replace("--", "--no-", 1)]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    said = [name_of, str(value)]
    if name in ("labels", "known", "seed_words", "links", "embeddings"):
        return path.parent / str(value), said
    number = isinstance(value, (int, float)) and name not in ("size", "ngrams", "image_shape")
    return value if number else Path(str(value)) if name == "out" else str(value), said


# -- texts as values ------------------------------------------------------------------------------


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


def as_reading(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `partwise.io.read_samples` from the options of a command."""
    for name in given.keys() & {"size", "image_shape"}:
        given[name] = two_sides(given[name], f"--{name.replace('_', '-')}")
    for name in given.keys() & {"columns", "exclude"}:
        given[name] = names_of(given[name])
    if "ngrams" in given:
        given["ngrams"] = span(given["ngrams"], "--ngrams")
    if "set" in given:
        given["settings"] = settings_of(given.pop("set"), given.pop("components_per_class"))
    return given
