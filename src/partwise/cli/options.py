"""Options that several commands share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_READ, _LABEL = "How to read DATA", "Labels"

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images or .txt files; a .csv, .tsv, .parquet, .npz, .npy, .mtx, .mat "
        "(fea, gnd) or .h5ad file; or a known data set, as digits.",
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
K = Annotated[
    int | None,
    typer.Option(
        "-k", "--clusters", min=1, help="Number of clusters; the number of classes by default."
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
        help="Resize images: 32, or height x width as 48x32. By default their own size, at most "
        "64x64 pixels.",
        rich_help_panel=_READ,
    ),
]
Rgb = Annotated[bool, typer.Option("--rgb", help="Keep colours.", rich_help_panel=_READ)]
TextColumn = Annotated[
    str | None,
    typer.Option(help="The column of a table that holds texts.", rich_help_panel=_READ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(help="The column of a table that holds ids.", rich_help_panel=_READ),
]
Scale = Annotated[
    str,
    typer.Option(
        help="auto, none, unit (samples of length one), max or std (columns by their largest "
        "value or standard deviation), total (samples to the median total).",
        rich_help_panel=_READ,
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        help="Missing numbers in a table: error, mean (of the column), drop (the row).",
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


def two_sides(text: str | None, option: str) -> tuple[int, int] | None:
    """``"32"`` or ``"48x32"`` as (height, width)."""
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) for side in sides):
        raise ValueError(f"{option} takes 32, or height x width as 48x32; got {text!r}.")
    return int(sides[0]), int(sides[-1])


def reading(**given: Any) -> dict[str, Any]:
    """The arguments of `partwise.io.read_samples` from the options of a command."""
    given["size"] = two_sides(given.get("size"), "--size")
    given["image_shape"] = two_sides(given.get("image_shape"), "--image-shape")
    return given
