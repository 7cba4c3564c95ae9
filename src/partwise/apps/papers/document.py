"""A simple document model that is written as Markdown, HTML or text.

A document consists of headings, paragraphs, tables and pictures. A table is a data frame of
strings, whose cells may have several lines. A cell that contains the name of a section becomes a
link to it.
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

FAR = "▲"  # marker of a measured number that is far from the printed one
LINK = re.compile(r"(?:cnmf|lcf|gnmf|nmfdc|cdnmf)/[a-z]+\d+")
#: CSS class of a line in a table cell, chosen by the first word of the line.
STYLES = {
    "yes": ("holds", "yes"),
    "no": ("fails", "no", "open"),
    "maybe": ("undecided",),
    "quiet": ("not", "as", "0", "print", "judged"),
}


@dataclass
class Picture:
    """A figure of a document: its file, its SVG text and its caption."""

    file: str
    svg: str
    caption: str


@dataclass
class Fold:
    """Part of a page that is hidden until a click; in Markdown, a part with a heading."""

    title: str
    blocks: list[Block]


Block: TypeAlias = "str | pd.DataFrame | Picture | list[str] | Fold"


@dataclass
class Section:
    """Section of a page, with its link target ``anchor`` and a one-line result."""

    title: str
    anchor: str
    blocks: list[Block] = field(default_factory=list)
    line: str = ""


def table(rows: Any, header: list[str]) -> pd.DataFrame:
    """Return rows of any values as a table of strings."""
    return pd.DataFrame([[str(cell) for cell in row] for row in rows], columns=header, dtype=str)


def style(line: str) -> str:
    """Return the CSS class of a line in a table cell."""
    found = (name for name, words in STYLES.items() if line.split(" ")[0] in words)
    return "no" if FAR in line else next(found, "")


def long_columns(grid: pd.DataFrame) -> set[int]:
    """Return the columns that contain sentences, which are aligned to the left."""
    longest = [
        max((len(line) for cell in grid.iloc[:, i] for line in cell.split("\n")), default=0)
        for i in range(grid.shape[1])
    ]
    return {i for i, length in enumerate(longest) if length > 50}


def to_markdown(section: Section) -> str:
    """Return the section as Markdown."""
    return "\n\n".join([f"# {section.title}", *_markdown(section.blocks)]) + "\n"


def _markdown(blocks: list[Block]) -> list[str]:
    """Return the blocks of a section as Markdown texts."""
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
    """Return a table as Markdown."""
    left = long_columns(grid) | {0}
    lines = [list(grid.columns), ["---" if i in left else "---:" for i in range(grid.shape[1])]]
    lines += [[_markdown_cell(cell) for cell in row] for row in grid.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: str) -> str:
    """Return a table cell as Markdown, with links to sections."""
    lines = cell.replace("|", "\\|").split("\n")
    linked = (f"[{x}](papers/{x.split('/')[0]}.md)" if LINK.fullmatch(x) else x for x in lines)
    return "<br>".join(linked)


def to_text(section: Section, *, width: int = 100) -> str:
    """Return headings and tables of a section as aligned text for a terminal.

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
    """Return the Jinja environment with the functions that the page template uses."""
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
