"""A small document of headings, paragraphs, tables and pictures, as Markdown, HTML or text."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Text:
    """Lines of one table cell, each with a class for HTML ("" for none)."""

    lines: tuple[tuple[str, str], ...]
    links: tuple[str, ...] = ()  # sections of the page, after the lines

    @classmethod
    def of(cls, text: str, kind: str = "") -> Text:
        """One line."""
        return cls(((text, kind),))


Row = Sequence[str | Text]


@dataclass
class Grid:
    """A table: header, rows of `Text` or plain words; ``last`` marks the last row as an average.

    ``cards`` are rows of sentences, which a phone shows one below the other.
    """

    header: list[str]
    cells: InitVar[Iterable[Row]]
    last: bool = False
    cards: bool = False
    rows: list[list[Text]] = field(init=False)

    def __post_init__(self, cells: Iterable[Row]) -> None:
        self.rows = [[c if isinstance(c, Text) else Text.of(c) for c in row] for row in cells]


@dataclass
class Picture:
    """A figure: the SVG's text, and the file beside the Markdown; ``narrow`` is for a phone."""

    file: str
    svg: str
    caption: str
    narrow: str = ""

    @property
    def stem(self) -> str:
        """Its file's name without the ending."""
        return self.file.rpartition(".")[0]


@dataclass
class Fold:
    """Blocks behind a line that opens them; plain blocks under a heading elsewhere."""

    title: str
    blocks: list[Block]


Block = str | Grid | Picture | list[str] | Fold


@dataclass
class Section:
    """A part with a heading; ``anchor`` is its name within the page, ``line`` what it comes to."""

    title: str
    anchor: str
    blocks: list[Block] = field(default_factory=list)
    line: str = ""


def to_markdown(section: Section) -> str:
    """The section as Markdown (tables of the GitHub kind)."""
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
            parts.append(_markdown_grid(block))
    return parts


def _markdown_grid(grid: Grid) -> str:
    def cell(text: Text) -> str:
        lines = [line.replace("|", "\\|") for line, _ in text.lines]
        return "<br>".join(
            [*lines, *(f"[{to}](papers/{to.split('/')[0]}.md)" for to in text.links)]
        )

    lines = [" | ".join(name.replace("|", "\\|") for name in grid.header)]
    long = _sentences(grid)
    lines.append(
        " | ".join("---:" if i and i not in long else "---" for i in range(len(grid.header)))
    )
    lines += [" | ".join(cell(text) for text in row) for row in grid.rows]
    return "\n".join(f"| {line} |" for line in lines)


def _sentences(grid: Grid) -> set[int]:
    """The columns that hold sentences, which are read from the left."""
    return {
        i
        for row in grid.rows
        for i, text in enumerate(row)
        if sum(len(line) for line, _ in text.lines) > 50
    }


def to_text(section: Section, *, width: int = 100) -> str:
    """Headings and tables as aligned text for a terminal, without what is folded or long."""
    parts, heading = [section.title], ""
    for block in section.blocks:
        if isinstance(block, str):
            heading = block[3:] if block.startswith("## ") else heading
        elif isinstance(block, Grid):
            lines = _fitting(block, width)
            if not lines:
                continue
            parts += [heading] if heading else []
            parts.append("\n".join(lines))
            heading = ""
    return "\n\n".join(parts)


def _fitting(grid: Grid, width: int) -> list[str]:
    """The table's lines, without its last columns where it is too wide; none below four."""
    for columns in range(len(grid.header), min(4, len(grid.header)) - 1, -1):
        part = Grid(grid.header[:columns], [row[:columns] for row in grid.rows])
        lines = _lines(part)
        if max(map(len, lines)) <= width:
            return lines
    return []


def _lines(grid: Grid) -> list[str]:
    rows = [grid.header, *([" ".join(line for line, _ in t.lines) for t in r] for r in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


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
    made.globals["sentences"] = _sentences
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
    """One self-contained page: no script, no link to anything outside it.

    Sections come in groups under a heading, ``first`` above them, ``banner`` as a line of warning
    at the very top, ``foot`` at the end. A single section is shown open.
    """
    alone = sum(len(sections) for _, sections in groups) == 1
    page = _environment().get_template("page.html")
    return page.render(
        groups=groups, title=title, first=first or [], banner=banner, foot=foot or [], alone=alone
    )
