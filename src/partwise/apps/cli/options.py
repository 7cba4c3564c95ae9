"""Options of all commands, and functions that parse their values."""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

EMPTY = inspect.Parameter.empty
#: Maximum number of options that ``--help`` shows; ``--help-all`` shows all of them.
SHOWN = 10
#: Names of options on the command line that differ from the names of their parameters.
NAMES = {
    "as_json": ("--json",),
    "k": ("--clusters", "-k"),
    "out": ("--out", "-o"),
    "rgb": ("--rgb/--grey",),
}
#: Help text of options that a command refuses. It marks them as hidden.
REFUSAL = "Not for this command."


class Asked(SimpleNamespace):
    """Values of all options in one run of a command, as attributes.

    The class attributes are default values. ``reading`` contains the arguments of
    `partwise.io.read_samples`. ``command`` is the command line as typed, for the report.
    """

    method = "auto"
    label_share: Any = None
    parts: Any = None
    runs: Any = None
    write_back = for_predict = False


def _number(text: str) -> int | str:
    """Parse the value of ``-k``, a positive integer or "auto"."""
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"a number, 1 or more, or auto; got {text!r}")
    return int(text)


def reading(
    labels: Path | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    skip_unknown: bool = False,
    similar_labels: str = "ask",
    unknown_labels: str = "ask",
    set: list[str] | None = None,
    components_per_class: Annotated[int | None, {"min": 1}] = None,
    kind: str | None = None,
    scale: str = "auto",
    encoding: str | None = None,
    strict: bool = False,
    embeddings: Path | None = None,
    encoder: str | None = None,
    download: bool = False,
    offline: bool = False,
    embeddings_only: bool = False,
    id_column: str | None = None,
    columns: str | None = None,
    exclude: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
    skip_rows: Annotated[int | None, {"min": 0}] = None,
    heading: str = "auto",
    missing: str = "auto",
    size: str | None = None,
    rgb: bool | None = None,
    image_shape: str | None = None,
    image_order: str = "auto",
    transpose: bool = False,
    stop_words: str = "auto",
    tokens: str = "auto",
    ngrams: str | None = None,
    min_df: float | None = None,
    max_df: float | None = None,
    layer: str | None = None,
    genes: Annotated[int | None, {"min": 0}] = None,
) -> None:
    """Options for reading data and labels: arguments of `partwise.io.read_samples`.

    Parameters
    ----------
    labels : FILE
        CSV file with the columns id and label. An id is a path in the folder DATA, a file
        name, or a value of the id column. Without an id column, ids are row numbers from 0.
    label_column : TEXT
        Column of DATA that holds the labels (in a .h5ad file, a column of obs). Samples
        without a value in this column are unlabelled.
    text_column : TEXT
        Column of a table that holds the texts.

    Labels
    ------
    skip_unknown
        Ignore lines of the --labels file whose id is not in DATA.
    similar_labels : ask|merge|keep
        How to treat labels that differ only in spelling, such as "Block 2" and "block2":
        ask (stop with an error), merge (one class), keep (separate classes).
    unknown_labels : ask|drop|keep
        How to treat labels such as "unknown", "?" and "n/a": ask (stop with an error), drop
        (the sample is unlabelled), keep (a class like any other).

    Parameters of the method
    ------------------------
    set : NAME=VALUE
        Set a parameter of the method, for example graph_reg=10. Repeat the option to set
        several parameters.
    components_per_class : NUMBER
        Number of parts per class, for methods that assign parts to classes.

    Reading the data
    ----------------
    kind : images|texts|table|counts
        Kind of data. By default, Partwise recognises it from the files.
    scale : auto|none|unit|range|max|std|total|log
        Scaling of the data: unit (each sample to length one), range (each column to 0 to 1
        by its 5% and 95% quantiles), max or std (divide each column by its maximum or
        standard deviation), total (each sample to the median total), log (each sample to a
        total of 10,000, then log(1 + x), then length one).
    encoding : TEXT
        Encoding of text files, for example cp1252 or utf-16. Partwise usually detects it.
    strict
        Stop with an error at unreadable files, empty texts and images of different sizes.
        By default, such files and texts are skipped and listed in skipped.csv, and images
        are resized.
    embeddings : FILE
        File with an embedding (a vector from a pretrained network) of each sample: .npz
        with X and ids, .parquet or .csv with an id column, or .npy in the order of the
        samples. Partwise uses embeddings in addition to words, pixels or columns; held-out
        labels decide how much each of the two counts.
    encoder : NAME
        Compute embeddings of texts or images with this pretrained encoder, and use them in
        addition to words or pixels. `partwise encoders` lists the encoders.
    download
        Allow Partwise to download the weights of the encoder.
    offline
        Never use the network, not even to download the weights of the encoder.
    embeddings_only
        Use only the embeddings, and no words, pixels or columns. All methods except the
        classifier need this option with --embeddings, since they cannot use both.

    Tables
    ------
    id_column : TEXT
        Column of a table that holds the ids of the samples; 'none' numbers the rows from 0.
        By default, Partwise uses a column with a name such as id or customer_id.
    columns : NAME,...
        Columns of a table to use as features. By default, Partwise uses all suitable ones.
    exclude : NAME,...
        Columns of a table to leave out.
    separator : TEXT
        Character between the columns of a table, or 'tab'. By default, Partwise detects it.
    sheet : TEXT
        Sheet of an .xlsx file: its name, or its number counted from 1. Default: the first
        sheet that is not a cover page.
    skip_rows : NUMBER
        Number of rows above the column names of a table. By default, Partwise skips rows
        that look like a title.
    heading : auto|yes|no
        Whether the first row of a table holds the column names. 'auto' assumes so unless
        the first row looks like the other rows.
    missing : auto|median|mean|drop|error
        How to treat missing values of a table: fill in the median or mean of the column,
        drop the row, or stop with an error. 'auto' fills in the median.

    Images and matrices
    -------------------
    size : SIZE
        Size to which images are resized: 32, or height x width such as 48x32. By default,
        images of one size keep it, and others get the median size; both at most 64x64
        pixels.
    rgb
        Read images in colour or greyscale. Default: whichever separates the labels better.
    image_shape : SIZE
        Height x width of the images, if each row of a matrix is an image, such as 32x32.
    image_order : auto|rows|columns
        Order in which the pixels of an image were written to one row of the matrix: row by
        row, or column by column. 'auto' means columns for .mat files and rows for others.
    transpose
        Read the columns of the matrix as samples, not the rows.

    Texts
    -----
    stop_words : TEXT
        Words to leave out of texts: auto (stop words of the languages of the texts), off
        (none), frequent (words in more than 20% of the texts), a language such as german,
        or a file with one word per line.
    tokens : auto|words|characters
        Units into which texts are split. 'auto' uses characters for scripts without spaces,
        such as Chinese, and words for others.
    ngrams : FROM-TO
        Smallest and largest number of consecutive words or characters that form a feature,
        as in scikit-learn's ngram_range; 1-2 uses single words and pairs. Default: 1-1 for
        words, 2-2 for characters.
    min_df : NUMBER
        Leave out words that occur in fewer texts than this: a number of texts, or a share
        below 1. [default: 2]
    max_df : NUMBER
        Leave out words that occur in more texts than this: a share below 1, or a number of
        texts. [default: 0.5]

    Cells (.h5ad)
    -------------
    layer : TEXT
        Layer of the .h5ad file to read instead of X; 'raw' reads .raw.
    genes : NUMBER
        Number of the most variable genes to use; 0 uses all genes. Default: 2,000 if there
        are more than 3,000 genes, otherwise all.
    """


def shared(
    data: str,
    model: Path,
    new: str,
    label_share: float | None = None,
    k: Annotated[Any, {"parser": _number}] = None,
    method: str = "auto",
    force: bool = False,
    as_json: bool = False,
    runs: Annotated[int | None, {"min": 0}] = None,
    project: Path | None = None,
    host: str = "127.0.0.1",
    parts: Annotated[int | None, {"min": 1}] = None,
    known: Path | None = None,
    seed_words: Path | None = None,
    links: Path | None = None,
    seed: Annotated[int, {"min": 0}] = 0,
    max_iter: Annotated[int, {"min": 1}] = 500,
    for_predict: bool = False,
    report: bool = True,
) -> None:
    """Further options that several commands share, for the model and the run.

    Parameters
    ----------
    data : DATA
        Folder of images or .txt files; .csv, .tsv, .xlsx, .jsonl, .parquet, .npz, .npy,
        .mtx, .mat or .h5ad file; or the name of a public data set such as digits.
    model : MODEL
        Model file that was written by classify, cluster, fit or studio.
    new : NEW
        New samples, in files of the same kind as the training data.
    label_share : SHARE
        Use only this share of the labels, drawn at random, with at least one per class; the
        other labels measure the accuracy. Without --labels and --label-column, labels are
        the names of sub-folders, or the array y or gnd of a file.
    k : NUMBER|auto
        Number of clusters. 'auto' uses the number of parts that `partwise choose` finds.
    method : TEXT
        One of the methods that `partwise methods` lists. 'auto' chooses one that suits the
        data.
    force
        Overwrite earlier results.
    as_json
        Print the summary as JSON.
    runs : NUMBER
        Number of runs.
    project : FOLDER
        Folder for labels and part weights. Default: next to DATA.
    host : TEXT
        Network address of the server. Addresses that other computers can reach need
        --password.

    Parameters of the method
    ------------------------
    parts : NUMBER
        Number of parts. Default: the number of clusters.

    Known parts, topics and links
    -----------------------------
    known : FILE
        CSV file of parts that the fit must not change. The first row names the features;
        each further row is a part: its name, then one value per feature. The fit computes
        the values that you leave empty.
    seed_words : FILE
        TOML file of topics from which the fit starts. Each line gives the name of a topic
        and some of its words: sport = ["match", "player"].
    links : FILE
        CSV file of pairs of samples. Each line holds two ids, and 'must' (same cluster) or
        'cannot' (different clusters).

    Run settings
    ------------
    seed : NUMBER
        Random seed.
    max_iter : NUMBER
        Maximum number of iterations.
    for_predict
        Leave the training samples out of the model file. The file is much smaller and can
        still label new samples, but you cannot change the labels and refit the model.
    report
        Write the report as report.html.
    """


@cache
def declared(function: Callable[..., None]) -> dict[str, tuple[Any, Any, Any]]:
    """Return type, default and typer's declaration of each parameter of a function.

    The help and the placeholder of an option are read from the docstring, and the title of the
    section is its group in the help. A parameter that the docstring does not mention has no
    declaration. ``Annotated`` adds further arguments of `typer.Option`. A parameter without a
    default is a positional argument.
    """
    hints = get_type_hints(function, include_extras=True)
    texts = _documented(inspect.getdoc(function) or "")
    found: dict[str, tuple[Any, Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        of, default, info = hints[name], parameter.default, None
        more = dict(*of.__metadata__) if hasattr(of, "__metadata__") else {}
        of = of.__origin__ if more else of
        panel, metavar, text = texts.get(name, ("", "", ""))
        if text and default is EMPTY:
            info = typer.Argument(metavar=name.upper(), help=text, show_default=False)
        elif text:
            more |= {"help": text, "metavar": metavar, "hidden": text == REFUSAL}
            more["rich_help_panel"] = None if panel == "Parameters" else panel
            more["show_default"] = of != bool | None
            # For a flag without an explicit name, typer would add a --no- form.
            typed = (f"--{name.replace('_', '-')}",) if default is False else ()
            info = typer.Option(*NAMES.get(name, typed), **more)
        found[name] = of, default, info
    return found


def _documented(text: str) -> dict[str, tuple[str, str, str]]:
    """Return the section, placeholder and text of each parameter in a docstring."""
    found, section, lines = {}, "", text.splitlines()
    for number, line in enumerate(lines):
        is_title = lines[number + 1 : number + 2] == ["-" * len(line)]
        if is_title and line:
            section = line
        elif section and line.strip("-") and line[0] != " ":
            name, _, metavar = line.partition(" : ")
            rest = itertools.takewhile(lambda below: below[:1] == " ", lines[number + 1 :])
            found[name] = section, metavar, " ".join(below.strip() for below in rest)
    return found


#: Names of the options that are arguments of `partwise.io.read_samples`.
READS = list(inspect.signature(reading).parameters)
#: Names of the options that may differ between training data and new data.
NEW = "label_column text_column id_column encoding separator sheet skip_rows heading missing"
NEW += " transpose layer strict embeddings encoder download offline"


def command(target: str, names: str) -> Callable[[Callable[..., None]], Any]:
    """Turn a function that declares options into a command.

    ``target`` is the function that does the work, as "module.name" in `partwise.apps.cli`. It is
    imported when the command runs. ``names`` are the options in the order of the help, and
    ``--help`` shows the first ten. The parameters of the decorated function are options of this
    command alone, or other default values of shared options. Options that the user does not pass
    are read from a file ``partwise.toml`` next to the data.
    """

    def add(function: Callable[..., None]) -> Any:
        """Return the command for a function that declares its options."""
        known, own = declared(reading) | declared(shared), declared(function)
        chosen = {}
        for name in dict.fromkeys([*names.split(), *own]):
            of, default, info = own.get(name) or known[name]
            if info is None:  # the function declares only another default value of a shared option
                of, _, info = known[name]
            chosen[name] = of, default, copy.copy(info)
        options = [info for _, _, info in chosen.values() if isinstance(info, OptionInfo)]
        for info in options[SHOWN:]:
            info.hidden = True
        if len(options) > SHOWN:
            more = typer.Option(
                "--help-all", help="Show all options and exit.", metavar="", is_eager=True,
                callback=_help_all,
            )  # fmt: skip
            chosen["help_all"] = bool, False, more

        def run(ctx: typer.Context, **given: Any) -> None:
            """Call the target function with the values of all options."""
            words = from_file(ctx, given) if "data" in given else []
            # `ctx.obj` has the arguments of `main`
            typed = sys.argv[1:] if ctx.obj is None else ctx.obj
            reading = as_reading({name: given.pop(name) for name in READS if name in given})
            module, _, name = target.partition(".")
            work = getattr(importlib.import_module(f"partwise.apps.cli.{module}"), name)
            work(Asked(**given, reading=reading, command=shlex.join(["partwise", *typed, *words])))

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("ctx", kind, annotation=typer.Context)]
        for name, (of, default, info) in chosen.items():
            annotation: Any = Annotated[of, info]
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__ = function.__name__
        text = (inspect.getdoc(function) or "").partition("\n\nParameters\n---")[0]
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
        return run

    return add


def _help_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the help with all options and exit."""
    if not wanted:
        return
    for parameter in ctx.command.params:
        if getattr(parameter, "help", None) != REFUSAL:
            parameter.hidden = False  # type: ignore[attr-defined]
    print(ctx.get_help())
    raise typer.Exit


# -- options from a file partwise.toml next to the data -------------------------------------------


def from_file(ctx: typer.Context, given: dict[str, Any]) -> list[str]:
    """Set options that were not typed from ``partwise.toml``; return them as words."""
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
    """Return a value of the settings file for the command, and as command-line words."""
    if name == "set":
        if not isinstance(value, dict):
            raise ValueError(f"{path}: write set as a table: [set], then graph_reg = 1.")
        pairs = [f"{key}={_toml(item)}" for key, item in value.items()]
        return pairs, [word for pair in pairs for word in ("--set", pair)]
    word = "-k" if name == "k" else "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return value, [word if value else word.replace("--", "--no-", 1)]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if name in ("labels", "known", "seed_words", "links", "embeddings"):
        return path.parent / text, [word, text]
    if name == "out":
        return Path(text), [word, text]
    number = isinstance(value, (int, float)) and name not in ("size", "ngrams", "image_shape")
    return value if number else text, [word, text]


def _toml(value: Any) -> str:
    """Return a value in the syntax of TOML."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


# -- values of options from their texts -----------------------------------------------------------


def settings_of(text: list[str] | None) -> dict[str, Any]:
    """Return the parameters in a list such as ``["graph_reg=1"]``."""
    pairs = _pairs(text, "--set", "NAME=VALUE, for example graph_reg=1")
    return {name: _value(value) for name, value in pairs}


def grid_of(text: list[str] | None) -> dict[str, list[Any]]:
    """Return the values to try in a list such as ``["graph_reg=1,10"]``."""
    pairs = _pairs(text, "--grid", "values such as graph_reg=1,10")
    return {name: [_value(part) for part in value.split(",")] for name, value in pairs}


def _pairs(text: list[str] | None, option: str, form: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value in each text of the form "NAME=VALUE"."""
    for item in text or ():
        name, _, value = (part.strip() for part in item.partition("="))
        if not name or not value:
            raise ValueError(f"{option} takes {form}; got {item!r}.")
        yield name, value


def _value(text: str) -> Any:
    """Return the value that a text means in TOML; a bare word stays a string."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return None if text.lower() == "none" else text.strip()


def two_sides(text: str | None, option: str) -> tuple[int, int] | None:
    """Return (height, width) for a text such as ``"32"`` or ``"48x32"``."""
    return _ends(
        text and text.lower().replace("×", "x"), "x", f"{option} takes a size such as 32 or 48x32"
    )


def span(text: str | None, option: str) -> tuple[int, int] | None:
    """Return (minimum, maximum) for a text such as ``"2"`` or ``"1-2"``."""
    ends = _ends(text, "-", f"{option} takes a range such as 2 or 1-2")
    if ends is not None and ends[0] > ends[1]:
        raise ValueError(f"{option}: the smaller number comes first; got {text!r}.")
    return ends


def _ends(text: str | None, sign: str, rule: str) -> tuple[int, int] | None:
    """Return the two numbers in a text such as "2-5", or one number twice."""
    if text is None:
        return None
    ends = [end.strip() for end in text.split(sign)]
    if len(ends) > 2 or not all(end.isdigit() and int(end) for end in ends):
        raise ValueError(f"{rule}; got {text!r}.")
    return int(ends[0]), int(ends[-1])


def names_of(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def numbers_of(text: str | None, option: str) -> list[int]:
    """Return the sorted numbers in a text such as ``"5-7"`` or ``"5,8"``."""
    spans = [span(part, option) for part in names_of(text)]
    return sorted({k for ends in spans if ends for k in range(ends[0], ends[1] + 1)})


def as_reading(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `partwise.io.read_samples` for the options of a command."""
    parse = {"size": two_sides, "image_shape": two_sides, "ngrams": span}
    for name in given.keys() & parse.keys():
        given[name] = parse[name](given[name], f"--{name.replace('_', '-')}")
    for name in given.keys() & {"columns", "exclude"}:
        given[name] = names_of(given[name])
    if given.get("encoder") is not None:
        from partwise.apps.cli.encoders import ask_for_download

        ask_for_download(given)
    if "set" in given:
        given["settings"] = settings_of(given.pop("set"))
        per_class = given.pop("components_per_class")
        if per_class is not None:
            given["settings"]["components_per_class"] = per_class
    return given
