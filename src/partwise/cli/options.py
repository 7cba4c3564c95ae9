"""Options that several commands share, with their help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from partwise.cli.typed import from_file, reading

_READ, _TEXT, _CELL, _LABEL = "How to read DATA", "Texts", "Cells (.h5ad)", "Labels"
_METHOD, _KNOWN = "Settings of the method", "What you know of the parts"

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images or .txt files; a .csv, .tsv, .xlsx, .jsonl, .parquet, .npz, .npy, "
        ".mtx, .mat (fea, gnd) or .h5ad file; or a known data set, as digits.",
        show_default=False,
    ),
]
New = Annotated[
    str, typer.Argument(metavar="NEW", help="New data, of the kind that the model was fitted to.")
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model that cluster or fit has written.")
]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file of id,label; an id is a path in the folder, a file name, or what the id "
        "column says (row numbers from 0 without one).",
        rich_help_panel=_LABEL,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="The column of DATA with the labels; empty where unknown. .h5ad: of obs.",
        rich_help_panel=_LABEL,
    ),
]
LabelShare = Annotated[
    float | None,
    typer.Option(
        help="Use this share of the labels, chosen at random, at least one a class; without "
        "--labels and --label-column, of the names of sub-folders, or of y or gnd in a file. The "
        "others serve to score the result.",
        rich_help_panel=_LABEL,
    ),
]


def _number(text: str) -> int | str:
    """What ``-k`` may be."""
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(f"a number, 1 or more, or auto; got {text!r}")
    return int(text)


K = Annotated[
    Any,
    typer.Option(
        "-k",
        "--clusters",
        parser=_number,
        metavar="NUMBER|auto",
        help="Number of clusters; the number of classes by default. auto: as many as there are "
        "parts, see `partwise choose`.",
    ),
]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="FROM-TO",
        help="Numbers of parts to try, as 2-20; by default from 1 until it only gets worse.",
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="NAME=VALUE,VALUE",
        help="Values of a parameter of --method to try instead, as graph_reg=0.1,1,10; several "
        "times: all combinations.",
    ),
]
Parts = Annotated[
    int | None, typer.Option("--parts", min=1, help="Number of parts; by default, of clusters.")
]
Method = Annotated[
    str, typer.Option(help="A name from `partwise methods`, or auto: chosen by the data.")
]
Seed = Annotated[int, typer.Option(min=0, help="For everything random.")]
MaxIter = Annotated[int, typer.Option(min=1, help="Most iterations.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an earlier result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Kind = Annotated[
    str | None,
    typer.Option(
        help="images, texts, table or counts, where it does not show.", rich_help_panel=_READ
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="Resize images: 32, or height x width as 48x32. By default their own size, or the "
        "median of their sizes, at most 64x64 pixels.",
        rich_help_panel=_READ,
    ),
]
Rgb = Annotated[
    bool | None,
    typer.Option(
        "--rgb/--grey",
        help="Keep colours, or not; by default where the labels are told apart better by them.",
        show_default=False,
        rich_help_panel=_READ,
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(help="The column of a table that holds texts.", rich_help_panel=_READ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="The column of a table that holds ids; none: rows are numbered from 0.",
        rich_help_panel=_READ,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="The columns of a table to use, separated by commas; by default, all that can be.",
        rich_help_panel=_READ,
    ),
]
Exclude = Annotated[
    str | None,
    typer.Option(help="Columns of a table to leave out.", rich_help_panel=_READ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Of texts, tables and labels, as cp1252 or utf-16; found by default.",
        rich_help_panel=_READ,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(help="Between columns: a sign, or tab; found by default.", rich_help_panel=_READ),
]
Heading = Annotated[
    str,
    typer.Option(
        help="Whether a table's first row names its columns: yes, no, or auto (unless it looks "
        "like the others).",
        rich_help_panel=_READ,
    ),
]
StopWords = Annotated[
    str,
    typer.Option(
        help="auto (of the texts' language), off, frequent (words of more than a fifth of the "
        "texts), a language as german, or a file with a word a line.",
        rich_help_panel=_TEXT,
    ),
]
Tokens = Annotated[
    str,
    typer.Option(
        help="words, characters, or auto: characters where most of the writing has no spaces, as "
        "Chinese, Japanese and Thai.",
        rich_help_panel=_TEXT,
    ),
]
Ngrams = Annotated[
    str | None,
    typer.Option(
        help="Words in a row, or characters, that count as one: 1-2 are single words and pairs. By "
        "default 1 word, 2 characters.",
        rich_help_panel=_TEXT,
    ),
]
MinDf = Annotated[
    float | None,
    typer.Option(
        help="Leave out words of fewer texts: a number, or a share below 1. By default 2.",
        rich_help_panel=_TEXT,
    ),
]
MaxDf = Annotated[
    float | None,
    typer.Option(
        help="Leave out words of more texts: a share, or a number above 1. By default 0.5.",
        rich_help_panel=_TEXT,
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        help="auto, none, unit (samples of length one), range (columns of a table by 5 to 95 % of "
        "their values), max or std (columns by their largest value or standard deviation), total "
        "(samples to the median total).",
        rich_help_panel=_READ,
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        help="Missing values in a table: auto and median (of the column), mean, drop (the row), "
        "error; empty texts are skipped, unless this is error.",
        rich_help_panel=_READ,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop at a file that cannot be read, an empty text, images of different sizes; by "
        "default they are skipped and listed in skipped.csv, or resized.",
        rich_help_panel=_READ,
    ),
]
SkipUnknown = Annotated[
    bool,
    typer.Option(
        "--skip-unknown",
        help="Leave out lines of --labels whose id is not in DATA.",
        rich_help_panel=_LABEL,
    ),
]
SimilarLabels = Annotated[
    str,
    typer.Option(
        help='What "Block 2" beside "block2" is: ask (an error), merge, keep.',
        rich_help_panel=_LABEL,
    ),
]
UnknownLabels = Annotated[
    str,
    typer.Option(
        help='What the label "unknown", "?", "n/a", "unbekannt" is: ask (an error), drop (no '
        "label), keep (a class).",
        rich_help_panel=_LABEL,
    ),
]
Features = Annotated[
    Path | None,
    typer.Option(
        help="Vectors of your own network for texts or photos, in the place of words and pixels: "
        ".npz (X, ids), .parquet or .csv with a column of ids, or .npy in the samples' order.",
        rich_help_panel=_READ,
    ),
]
Also = Annotated[
    Path | None,
    typer.Option(
        help="Such vectors beside the words, pixels or columns of DATA, where some samples have "
        "labels: two views, weighed by labels that are held out.",
        rich_help_panel=_READ,
    ),
]
Transpose = Annotated[
    bool,
    typer.Option(
        "--transpose", help="Samples are the columns of the matrix.", rich_help_panel=_READ
    ),
]
ImageShape = Annotated[
    str | None,
    typer.Option(help="The rows of a matrix are images, as 32x32.", rich_help_panel=_READ),
]


ImageOrder = Annotated[
    str,
    typer.Option(
        help="How a matrix stores pixels: rows, columns, or auto (columns in a .mat file).",
        rich_help_panel=_READ,
    ),
]


Layer = Annotated[
    str | None,
    typer.Option(help="The layer to use instead of X; raw: of .raw.", rich_help_panel=_CELL),
]
Genes = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Keep so many of the genes, those that vary most; 0: all. By default 2,000 where "
        "there are more than 3,000.",
        rich_help_panel=_CELL,
    ),
]
WriteBack = Annotated[
    bool,
    typer.Option(
        "--write-back",
        help="Of a table: named.csv (or .parquet, .jsonl) with its own columns and, for each row, "
        "name, probability, second name and whether it is doubtful. Into a .h5ad file: clusters, "
        "codes and parts, as obs, obsm, varm and uns of partwise.",
    ),
]


WriteBackNew = Annotated[
    bool,
    typer.Option(
        "--write-back",
        help="NEW is a table: --out gets its own columns, and after them name, probability, second "
        "name and whether it is doubtful.",
    ),
]


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the method, as graph_reg=10; may be given several times.",
        rich_help_panel=_METHOD,
    ),
]
PerClass = Annotated[
    int | None,
    typer.Option(
        "--components-per-class",
        min=1,
        help="Parts of each class, for methods that give each class its own.",
        rich_help_panel=_METHOD,
    ),
]


Known = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file of parts that are known, which stay as they are: a line each, its name, "
        "then a number for each feature, empty where it is free; features by the first line.",
        rich_help_panel=_KNOWN,
    ),
]
Links = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file of pairs that belong together or apart: id, id, must or cannot.",
        rich_help_panel=_KNOWN,
    ),
]
SeedWords = Annotated[
    Path | None,
    typer.Option(
        help='A TOML file of topics to begin with, each a name and some words: sport = ["match", '
        '"player"].',
        rich_help_panel=_KNOWN,
    ),
]


#: The options that say how data is read: their types and defaults. They are the arguments of
#: `partwise.io.read_samples`; `reads` adds them to a command.
READING: dict[str, tuple[Any, Any]] = {
    "set": (Set, None),
    "components_per_class": (PerClass, None),
    "labels": (Labels, None),
    "label_column": (LabelColumn, None),
    "skip_unknown": (SkipUnknown, False),
    "similar_labels": (SimilarLabels, "ask"),
    "unknown_labels": (UnknownLabels, "ask"),
    "kind": (Kind, None),
    "size": (Size, None),
    "rgb": (Rgb, None),
    "image_shape": (ImageShape, None),
    "image_order": (ImageOrder, "auto"),
    "text_column": (TextColumn, None),
    "id_column": (IdColumn, None),
    "columns": (Columns, None),
    "exclude": (Exclude, None),
    "encoding": (Encoding, None),
    "separator": (Separator, None),
    "heading": (Heading, "auto"),
    "scale": (Scale, "auto"),
    "missing": (Missing, "auto"),
    "transpose": (Transpose, False),
    "strict": (Strict, False),
    "features": (Features, None),
    "also": (Also, None),
    "stop_words": (StopWords, "auto"),
    "tokens": (Tokens, "auto"),
    "ngrams": (Ngrams, None),
    "layer": (Layer, None),
    "genes": (Genes, None),
    "min_df": (MinDf, None),
    "max_df": (MaxDf, None),
}
#: What may differ for new data of a known model.
NEW = (
    "label_column",
    "text_column",
    "id_column",
    "encoding",
    "separator",
    "heading",
    "missing",
    "transpose",
    "layer",
    "strict",
    "features",
    "also",
)


def reads(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `READING` (all but "also", or some), as ``reading``.

    Options that were not typed are taken from a file ``partwise.toml`` beside the data.
    """
    chosen = names or tuple(name for name in READING if name != "also")

    def add(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        kept = [p for p in own.parameters.values() if p.name != "reading"]
        extra = [_parameter(name, *READING[name]) for name in chosen]

        @functools.wraps(command)
        def run(ctx: typer.Context, **given: Any) -> None:
            if "data" in given:
                given |= from_file(ctx, given)
            found = reading(**{name: given.pop(name) for name in chosen})
            command(**given, reading=found)

        every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept] + extra
        every.insert(0, _parameter("ctx", typer.Context, inspect.Parameter.empty))
        run.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in every} | {"return": None}
        return run

    return add


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
