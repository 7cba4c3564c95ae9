"""The options of all commands in groups, and functions that parse their values."""

from __future__ import annotations

import copy
import importlib
import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.models import OptionInfo

EMPTY = inspect.Parameter.empty
#: Placeholder in the help for the value of an option; a flag has none.
METAVARS = {bool: "", int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "FILE"}
#: Options that ``--help`` shows at most; ``--help-all`` shows the rest.
SHOWN = 10


class Option(NamedTuple):
    """The type of an option, its default, and its declaration for typer."""

    of: Any
    default: Any
    info: Any


def option(text: str, default: Any = None, *names: str, of: Any = None, **more: Any) -> Option:
    """Return an option of the type of its default, or an optional text."""
    if of is None:
        of = Path if isinstance(default, Path) else str if default is None else type(default)
    metavar = more.pop("metavar", METAVARS.get(of))
    of = of if default is not None or of is Any else of | None
    return Option(of, default, typer.Option(*names, help=text, metavar=metavar, **more))


def flag(text: str, *names: str, **more: Any) -> Option:
    """Return an option without a value."""
    return option(text, False, *names, **more)


def argument(name: str, text: str, of: Any = str) -> Option:
    """Return a required positional argument."""
    return Option(of, EMPTY, typer.Argument(metavar=name, help=text, show_default=False))


def _number(text: str) -> int | str:
    """Parse the value of ``-k``."""
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"a number, 1 or more, or auto; got {text!r}")
    return int(text)


#: The options for reading data and labels, in the groups of the help. They are the arguments of
#: `partwise.io.read_samples`, and reach a command as ``reading``.
READING: dict[str, dict[str, Option]] = {
    "": {
        "labels": option(
            "CSV file with the columns id and label. An id is a path in the folder DATA, a file "
            "name, or a value of the id column. Without an id column, ids are row numbers from 0.",
            of=Path,
        ),
        "label_column": option(
            "Column of DATA that holds the labels (in a .h5ad file, a column of obs). "
            "Samples without a value in this column are unlabelled."
        ),
        "text_column": option("Column of a table that holds the texts."),
    },
    "Labels": {
        "skip_unknown": flag("Ignore lines of the --labels file whose id is not in DATA."),
        "similar_labels": option(
            'How to treat labels that differ only in spelling, such as "Block 2" and "block2": '
            "ask (stop with an error), merge (one class), keep (separate classes).",
            "ask",
            metavar="ask|merge|keep",
        ),
        "unknown_labels": option(
            'How to treat labels such as "unknown", "?" and "n/a": ask (stop with an error), '
            "drop (the sample is unlabelled), keep (a class like any other).",
            "ask",
            metavar="ask|drop|keep",
        ),
    },
    "Parameters of the method": {
        "set": option(
            "Set a parameter of the method, for example graph_reg=10. Repeat the option to set "
            "several parameters.",
            of=list[str],
            metavar="NAME=VALUE",
        ),
        "components_per_class": option(
            "Number of parts per class, for methods that assign parts to classes.", of=int, min=1
        ),
    },
    "Reading the data": {
        "kind": option(
            "Kind of data. By default, Partwise recognises it from the files.",
            metavar="images|texts|table|counts",
        ),
        "scale": option(
            "Scaling of the data: unit (each sample to length one), range (each column to 0 to 1 "
            "by its 5% and 95% quantiles), max or std (divide each column by its maximum or "
            "standard deviation), total (each sample to the median total), log (each sample to a "
            "total of 10,000, then log(1 + x), then length one).",
            "auto",
            metavar="auto|none|unit|range|max|std|total|log",
        ),
        "encoding": option(
            "Encoding of text files, for example cp1252 or utf-16. Partwise usually detects it.",
        ),
        "strict": flag(
            "Stop with an error at unreadable files, empty texts and images of different sizes. "
            "By default, such files and texts are skipped and listed in skipped.csv, and images "
            "are resized.",
        ),
        "embeddings": option(
            "File with an embedding (a vector from a pretrained network) of each sample: .npz "
            "with X and ids, .parquet or .csv with an id column, or .npy in the order of the "
            "samples. Partwise uses embeddings in addition to words, pixels or columns; held-out "
            "labels decide how much each of the two counts.",
            of=Path,
        ),
        "encoder": option(
            "Compute embeddings of texts or images with this pretrained encoder, and use them in "
            "addition to words or pixels. `partwise encoders` lists the encoders.",
            metavar="NAME",
        ),
        "download": flag("Allow Partwise to download the weights of the encoder."),
        "offline": flag("Never use the network, not even to download the weights of the encoder."),
        "embeddings_only": flag(
            "Use only the embeddings, and no words, pixels or columns. All methods except the "
            "classifier need this option with --embeddings, since they cannot use both.",
        ),
    },
    "Tables": {
        "id_column": option(
            "Column of a table that holds the ids of the samples; 'none' numbers the rows from 0. "
            "By default, Partwise uses a column with a name such as id or customer_id."
        ),
        "columns": option(
            "Columns of a table to use as features. By default, Partwise uses all suitable ones.",
            metavar="NAME,...",
        ),
        "exclude": option("Columns of a table to leave out.", metavar="NAME,..."),
        "separator": option(
            "Character between the columns of a table, or 'tab'. By default, Partwise detects it."
        ),
        "sheet": option(
            "Sheet of an .xlsx file: its name, or its number counted from 1. Default: the first "
            "sheet that is not a cover page."
        ),
        "skip_rows": option(
            "Number of rows above the column names of a table. By default, Partwise skips rows "
            "that look like a title.",
            of=int,
            min=0,
        ),
        "heading": option(
            "Whether the first row of a table holds the column names. 'auto' assumes so unless "
            "the first row looks like the other rows.",
            "auto",
            metavar="auto|yes|no",
        ),
        "missing": option(
            "How to treat missing values of a table: fill in the median or mean of the column, "
            "drop the row, or stop with an error. 'auto' fills in the median.",
            "auto",
            metavar="auto|median|mean|drop|error",
        ),
    },
    "Images and matrices": {
        "size": option(
            "Size to which images are resized: 32, or height x width such as 48x32. By default, "
            "images of one size keep it, and others get the median size; both at most 64x64 "
            "pixels.",
            metavar="SIZE",
        ),
        "rgb": option(
            "Read images in colour or greyscale. Default: whichever separates the labels better.",
            None,
            "--rgb/--grey",
            of=bool,
            show_default=False,
        ),
        "image_shape": option(
            "Height x width of the images, if each row of a matrix is an image, such as 32x32.",
            metavar="SIZE",
        ),
        "image_order": option(
            "Order in which the pixels of an image were written to one row of the matrix: row by "
            "row, or column by column. 'auto' means columns for .mat files and rows for others.",
            "auto",
            metavar="auto|rows|columns",
        ),
        "transpose": flag("Read the columns of the matrix as samples, not the rows."),
    },
    "Texts": {
        "stop_words": option(
            "Words to leave out of texts: auto (stop words of the languages of the texts), off "
            "(none), frequent (words in more than 20% of the texts), a language such as german, or "
            "a file with one word per line.",
            "auto",
        ),
        "tokens": option(
            "Units into which texts are split. 'auto' uses characters for scripts without spaces, "
            "such as Chinese, and words for others.",
            "auto",
            metavar="auto|words|characters",
        ),
        "ngrams": option(
            "Smallest and largest number of consecutive words or characters that form a feature, "
            "as in scikit-learn's ngram_range; 1-2 uses single words and pairs. Default: 1-1 for "
            "words, 2-2 for characters.",
            metavar="FROM-TO",
        ),
        "min_df": option(
            "Leave out words that occur in fewer texts than this: a number of texts, or a share "
            "below 1. [default: 2]",
            of=float,
        ),
        "max_df": option(
            "Leave out words that occur in more texts than this: a share below 1, or a number of "
            "texts. [default: 0.5]",
            of=float,
        ),
    },
    "Cells (.h5ad)": {
        "layer": option("Layer of the .h5ad file to read instead of X; 'raw' reads .raw."),
        "genes": option(
            "Number of the most variable genes to use; 0 uses all genes. Default: 2,000 if there "
            "are more than 3,000 genes, otherwise all.",
            of=int,
            min=0,
        ),
    },
}
#: Further options of several commands: of the model, and of the run, which changes no model.
SHARED: dict[str, dict[str, Option]] = {
    "": {
        "data": argument(
            "DATA",
            "Folder of images or .txt files; .csv, .tsv, .xlsx, .jsonl, .parquet, .npz, .npy, "
            ".mtx, .mat or .h5ad file; or the name of a public data set such as digits.",
        ),
        "model": argument(
            "MODEL", "Model file that was written by classify, cluster, fit or studio.", Path
        ),
        "new": argument("NEW", "New samples, in files of the same kind as the training data."),
        "label_share": option(
            "Use only this share of the labels, drawn at random, with at least one per class; the "
            "other labels measure the accuracy. Without --labels and --label-column, labels are "
            "the names of sub-folders, or the array y or gnd of a file.",
            of=float,
            metavar="SHARE",
        ),
        "k": option(
            "Number of clusters. 'auto' uses the number of parts that `partwise choose` finds.",
            None,
            *("--clusters", "-k"),
            of=Any,
            parser=_number,
            metavar="NUMBER|auto",
        ),
        "method": option(
            "One of the methods that `partwise methods` lists. 'auto' chooses one that suits the "
            "data.",
            "auto",
        ),
        "force": flag("Overwrite earlier results."),
        "as_json": flag("Print the summary as JSON.", "--json"),
        "runs": option("Number of runs.", of=int, min=0),
    },
    "Parameters of the method": {
        "parts": option("Number of parts. Default: the number of clusters.", of=int, min=1),
    },
    "Known parts, topics and links": {
        "known": option(
            "CSV file of parts that the fit must not change. The first row names the features; "
            "each further row is a part: its name, then one value per feature. The fit computes "
            "the values that you leave empty.",
            of=Path,
        ),
        "seed_words": option(
            "TOML file of topics from which the fit starts. Each line gives the name of a topic "
            'and some of its words: sport = ["match", "player"].',
            of=Path,
        ),
        "links": option(
            "CSV file of pairs of samples. Each line holds two ids, and 'must' (same cluster) or "
            "'cannot' (different clusters).",
            of=Path,
        ),
    },
    "Run settings": {
        "seed": option("Random seed.", 0, min=0),
        "max_iter": option("Maximum number of iterations.", 500, min=1),
        "for_predict": flag(
            "Leave the training samples out of the model file. The file is much smaller and can "
            "still label new samples, but you cannot change the labels and refit the model."
        ),
        "report": option("Write the report as report.html.", True),
    },
}
#: Options of labels for `cluster`, which refuses them and names the command that takes them.
REFUSAL = "Not for this command."
REFUSED = {
    name: option(REFUSAL, None, f"--{name.replace('_', '-')}", of=kind, hidden=True)
    for name, kind in (("labels", Path), ("label_column", str), ("label_share", float))
}
GROUPS = [*SHARED.items(), *READING.items()]
OPTIONS = {name: own for _, group in GROUPS for name, own in group.items()}
for _title, _group in GROUPS:
    for _option in _group.values():
        _option.info.rich_help_panel = _title or None
#: The arguments of `partwise.io.read_samples`.
READS = [name for group in READING.values() for name in group]
#: Options that may differ for new data of an existing model.
NEW = "label_column text_column id_column encoding separator sheet skip_rows heading missing"
NEW += " transpose layer strict embeddings encoder download offline"


def command(target: str, names: str, **own: Any) -> Callable[[Callable[[], None]], Any]:
    """Turn a function that only has a help text into a command.

    ``target`` is the function of `partwise.apps.cli` that does the work, as "module.name",
    imported when the command runs. ``names`` are the options in the order of the help, of which
    ``--help`` shows the first ten; ``own`` are options of this command alone, and other defaults.
    Options that were not typed are taken from a file ``partwise.toml`` next to the data; those of
    `READING` reach the target as ``reading``, unless it has a parameter of that name.
    """
    chosen = {name: _chosen(name, own) for name in dict.fromkeys([*names.split(), *own])}
    options = [mine.info for mine in chosen.values() if isinstance(mine.info, OptionInfo)]
    for info in options[SHOWN:]:
        info.hidden = True
    if len(options) > SHOWN:
        chosen["help_all"] = flag(
            "Show all options and exit.", "--help-all", is_eager=True, callback=_help_all
        )

    def add(function: Callable[[], None]) -> Any:
        def run(ctx: typer.Context, **given: Any) -> None:
            given.pop("help_all", None)
            words = from_file(ctx, given) if "data" in given else []
            module, _, name = target.partition(".")
            work = getattr(importlib.import_module(f"partwise.apps.cli.{module}"), name)
            takes = inspect.signature(work).parameters
            held = {name: given.pop(name) for name in READS if name in given and name not in takes}
            if held:
                given["reading"] = as_reading(held)
            if "command" in takes:  # as it was typed, for the report
                typed = sys.argv[1:] if ctx.obj is None else ctx.obj  # the arguments of `main`
                given["command"] = shlex.join(["partwise", *typed, *words])
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


def _chosen(name: str, own: dict[str, Any]) -> Option:
    """Return one command's copy of an option, with its own default if it has one."""
    mine = own.get(name, OPTIONS.get(name))
    known = mine if isinstance(mine, Option) else OPTIONS[name]._replace(default=mine)
    info = copy.copy(known.info)
    if isinstance(info, OptionInfo):
        typed = f"--{name.replace('_', '-')}"
        if name == "out":
            info.param_decls = (typed, "-o")
        elif known.default is False and info.default is ...:  # it has no names of its own
            info.param_decls = (typed,)  # else typer adds --no-...
    return known._replace(info=info)


def _help_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the help with all options and exit."""
    if not wanted:
        return
    for parameter in ctx.command.params:
        if getattr(parameter, "help", None) != REFUSAL:
            parameter.hidden = False  # type: ignore[attr-defined]
    print(ctx.get_help())
    raise typer.Exit


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# -- a file next to the data ----------------------------------------------------------------------


def from_file(ctx: typer.Context, given: dict[str, Any]) -> list[str]:
    """Read options that were not typed from ``partwise.toml``; return them as typed words."""
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
            raise ValueError(f"{path}: unknown option {key!r}. Choose from: {known}.")
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "DEFAULT":
            given[name], words = _as_typed(name, value, path)
            said += words
    return said


def _as_typed(name: str, value: Any, path: Path) -> tuple[Any, list[str]]:
    """Return a value of the settings file as the command needs it, and as it would be typed."""
    if name == "set":
        if not isinstance(value, dict):
            raise ValueError(f"{path}: write set as a table: [set], then graph_reg = 1.")
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
    """Parse ``["graph_reg=1"]`` to parameters."""
    import tomllib

    found: dict[str, Any] = {}
    for item in text or ():
        name, sign, value = item.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"--set takes NAME=VALUE, for example graph_reg=1; got {item!r}.")
        try:
            found[name.strip()] = tomllib.loads(f"v = {value.strip()}")["v"]
        except tomllib.TOMLDecodeError:
            none = value.strip().lower() == "none"
            found[name.strip()] = None if none else value.strip()  # a word, as solver=mu
    if per_class is not None:
        found["components_per_class"] = per_class
    return found


def grid_of(text: list[str] | None) -> dict[str, list[Any]]:
    """Parse ``["graph_reg=1,10"]`` to values to try."""
    found: dict[str, list[Any]] = {}
    for item in text or ():
        name, sign, values = item.partition("=")
        if not sign or not name.strip() or not values.strip():
            raise ValueError(f"--grid takes values such as graph_reg=1,10; got {item!r}.")
        pairs = [settings_of([f"{name}={value}"], None) for value in values.split(",")]
        found[name.strip()] = [value for pair in pairs for value in pair.values()]
    return found


def two_sides(text: str | None, option: str) -> tuple[int, int] | None:
    """Parse ``"32"`` or ``"48x32"`` to (height, width)."""
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) for side in sides):
        raise ValueError(f"{option} takes a size such as 32 or 48x32; got {text!r}.")
    return int(sides[0]), int(sides[-1])


def names_of(text: str | None) -> tuple[str, ...]:
    """Split ``"a, b"`` into names."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def span(text: str | None, option: str) -> tuple[int, int] | None:
    """Parse ``"2"`` or ``"1-2"`` to (minimum, maximum)."""
    if text is None:
        return None
    ends = [end.strip() for end in text.split("-")]
    if len(ends) > 2 or not all(end.isdigit() and int(end) for end in ends):
        raise ValueError(f"{option} takes a range such as 2 or 1-2; got {text!r}.")
    least, most = int(ends[0]), int(ends[-1])
    if least > most:
        raise ValueError(f"{option}: the smaller number comes first; got {text!r}.")
    return least, most


def numbers_of(text: str | None, option: str) -> list[int]:
    """Parse ``"5-7"``, ``"5,8"`` or both to sorted numbers."""
    spans = [span(part, option) for part in names_of(text)]
    return sorted({k for ends in spans if ends for k in range(ends[0], ends[1] + 1)})


def as_reading(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `partwise.io.read_samples` from the options of a command."""
    for name in given.keys() & {"size", "image_shape"}:
        given[name] = two_sides(given[name], f"--{name.replace('_', '-')}")
    for name in given.keys() & {"columns", "exclude"}:
        given[name] = names_of(given[name])
    if given.get("encoder") is not None:
        from partwise.apps.cli.encoders import ask_for_download

        ask_for_download(given)
    if "ngrams" in given:
        given["ngrams"] = span(given["ngrams"], "--ngrams")
    if "set" in given:
        given["settings"] = settings_of(given.pop("set"), given.pop("components_per_class"))
    return given
