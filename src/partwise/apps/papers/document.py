"""A small document of headings, paragraphs, tables and pictures, as Markdown, HTML or text.

A table is a data frame of strings. A cell may have several lines. If a cell contains the name of a
section, the name becomes a link.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

if TYPE_CHECKING:
    from jinja2 import Environment

FAR = "▲"  # marks a number that is far from the printed one
LINK = re.compile(r"(?:cnmf|lcf|gnmf|nmfdc|cdnmf)/[a-z]+\d+")
#: The first words of a line in a cell, by the style of the line.
STYLES = {
    "yes": ("holds", "yes"),
    "no": ("fails", "no", "open"),
    "maybe": ("undecided",),
    "quiet": ("not", "as", "0", "print", "judged"),
}


@dataclass
class Picture:
    """A figure: the text of the SVG, and its file."""

    file: str
    svg: str
    caption: str


@dataclass
class Fold:
    """Blocks that are hidden until a click; in Markdown, blocks under a heading."""

    title: str
    blocks: list[Block]


Block: TypeAlias = "str | pd.DataFrame | Picture | list[str] | Fold"


@dataclass
class Section:
    """A part with a heading; ``anchor`` is its link target, and ``line`` its short result."""

    title: str
    anchor: str
    blocks: list[Block] = field(default_factory=list)
    line: str = ""


def table(rows: Any, header: list[str]) -> pd.DataFrame:
    """Return a table of strings."""
    return pd.DataFrame([[str(cell) for cell in row] for row in rows], columns=header, dtype=str)


def style(line: str) -> str:
    """Return the style of a line of a cell."""
    found = (name for name, words in STYLES.items() if line.split(" ")[0] in words)
    return "no" if FAR in line else next(found, "")


def long_columns(grid: pd.DataFrame) -> set[int]:
    """Return the columns that hold sentences; they are aligned to the left."""
    longest = [
        max((len(line) for cell in grid.iloc[:, i] for line in cell.split("\n")), default=0)
        for i in range(grid.shape[1])
    ]
    return {i for i, length in enumerate(longest) if length > 50}


def to_markdown(section: Section) -> str:
    """Return the section as Markdown."""
    return "\n\n".join([f"# {section.title}", *_markdown(section.blocks)]) + "\n"


def _markdown(blocks: list[Block]) -> list[str]:
    parts = []
    for block in blocks:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, list):
            parts.append("\n".join(f"- {item}" for item in block))
        elif isinstance(block, Picture):
            parts.append(f"![{block.caption}]({block.file})")
        elif isinstance(block, Fold):
            parts += [f"## {block.title}", *_markdown(block.blocks)]
        else:
            parts.append(_markdown_table(block))
    return parts


def _markdown_table(grid: pd.DataFrame) -> str:
    left = long_columns(grid) | {0}
    lines = [list(grid.columns), ["---" if i in left else "---:" for i in range(grid.shape[1])]]
    lines += [[_markdown_cell(cell) for cell in row] for row in grid.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: str) -> str:
    lines = cell.replace("|", "\\|").split("\n")
    linked = (f"[{x}](papers/{x.split('/')[0]}.md)" if LINK.fullmatch(x) else x for x in lines)
    return "<br>".join(linked)


def to_text(section: Section, *, width: int = 100) -> str:
    """Return headings and tables as aligned text for a terminal, without folds and paragraphs.

    A table that is too wide loses its last columns. It is left out if even one column is too wide.
    """
    parts, heading = [section.title], ""
    for block in section.blocks:
        if isinstance(block, str):
            heading = block[3:] if block.startswith("## ") else heading
        elif isinstance(block, pd.DataFrame):
            plain = block.replace("\n", " ", regex=True)
            plain.iloc[:, 0] = plain.iloc[:, 0].str.ljust(plain.iloc[:, 0].str.len().max())
            texts = (plain.iloc[:, :n].to_string(index=False) for n in range(plain.shape[1], 0, -1))
            if text := next((t for t in texts if t.index("\n") <= width), ""):
                parts += [heading, "\n".join(line.rstrip() for line in text.splitlines())]
            heading = ""
    return "\n\n".join(part for part in parts if part)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("partwise.apps.papers", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"long_columns": long_columns, "style": style, "link": LINK.fullmatch}
    made.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode("ascii")
    return made


def to_html(
    groups: list[tuple[str, list[Section]]],
    title: str,
    *,
    first: list[Block] | None = None,
    banner: str = "",
    foot: list[str] | None = None,
) -> str:
    """Return one self-contained page, without scripts or links to other pages.

    Sections are grouped under headings. ``first`` is shown above them, ``banner`` is a warning at
    the top, and ``foot`` is the last line. A single section is shown open.
    """
    alone = sum(len(sections) for _, sections in groups) == 1
    shown = {"groups": groups, "title": title, "first": first or [], "banner": banner}
    page = _environment().get_template("page.html")
    return page.render(**shown, foot=foot or [], alone=alone)
