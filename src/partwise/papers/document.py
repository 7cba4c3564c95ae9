"""A small document of headings, paragraphs, tables and pictures, as Markdown, HTML or text."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:1.2em auto;padding:0 1em;color:#222}
h1{font-size:1.4em;margin:.2em 0}h2{font-size:1.15em;margin:1.6em 0 .4em}
h3{font-size:1em;margin:1em 0 .3em}p{margin:.4em 0}
table{border-collapse:collapse;margin:.5em 0;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.2em .6em;border-bottom:1px solid #e4e4e4;text-align:right;white-space:nowrap;
vertical-align:top}
th:first-child,td:first-child,.text{text-align:left}td.text{white-space:normal;min-width:16em}
th{border-bottom:2px solid #999;font-weight:600}tr.last td{border-top:2px solid #999}
.far,.no{color:#b00020}.yes{color:#136f2d}.maybe{color:#8a5a00}.quiet{color:#777}
.banner{background:#fff3cd;color:#5c4400;padding:.4em .8em;border-radius:4px;font-weight:600}
details{border-top:1px solid #ddd;padding:.35em 0}summary{cursor:pointer;font-weight:600}
summary small{font-weight:400;color:#666}details details{border:0;margin-left:1em}
details details summary{font-weight:400}
figure{margin:.6em 0}figure img{max-width:100%;height:auto}
nav{display:flex;flex-wrap:wrap;gap:.1em 1em;font-size:13px;margin:.6em 0}
footer{font-size:12px;color:#777;margin-top:2em}
@media(max-width:700px){body{padding:0 .6em}table{font-size:12px}th,td{padding:.2em .35em}
th,td:first-child{white-space:normal}td:first-child{min-width:7em}td.text{min-width:20em}
.cards thead{display:none}.cards,.cards tbody,.cards tr,.cards td{display:block;min-width:0}
.cards td{border:0;text-align:left;white-space:normal}.cards td.text{min-width:0}
.cards tr{border-bottom:1px solid #999;padding:.3em 0}}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}a{color:#8ab4f8}
.quiet,summary small,footer{color:#aaa}
th,td,details{border-color:#333}.far,.no{color:#ff8a80}.yes{color:#81c995}.maybe{color:#e3b341}
.banner{background:#4d3d00;color:#ffe08a}figure{background:#fff}}
"""


@dataclass(frozen=True)
class Text:
    """Lines of one table cell, each with a class for HTML ("" for none)."""

    lines: tuple[tuple[str, str], ...]
    links: tuple[str, ...] = ()  # sections of the page, after the lines

    @classmethod
    def of(cls, text: str, kind: str = "") -> Text:
        """One line."""
        return cls(((text, kind),))


@dataclass
class Grid:
    """A table: header, rows of `Text`; ``last`` marks the last row as an average.

    ``cards`` are rows of sentences, which a phone shows one below the other.
    """

    header: list[str]
    rows: list[list[Text]]
    last: bool = False
    cards: bool = False


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


def to_html(
    groups: list[tuple[str, list[Section]]],
    title: str,
    *,
    first: list[Block] | None = None,
    banner: str = "",
    foot: list[str] | None = None,
) -> str:
    """One self-contained page: no script, no link to anything outside it.

    Parameters
    ----------
    groups : list of (heading, sections)
        A single section is shown open and without a heading above it.
    title : str
    first : list of blocks, optional
        What stands above the sections.
    banner : str, optional
        A line of warning at the very top.
    foot : list of str, optional
        Lines at the end.
    """
    alone = sum(len(sections) for _, sections in groups) == 1
    warned = f"<p class='banner'>{html.escape(banner)}</p>" if banner else ""
    body = "".join(
        ("" if alone else f"<h2>{html.escape(heading)}</h2>")
        + "".join(_html_section(section, open_=alone) for section in sections)
        for heading, sections in groups
    )
    end = "".join(f"<p>{html.escape(line)}</p>" for line in foot or [])
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{warned}{_html_blocks(first or [])}{body}"
        f"<footer>{end}</footer></body></html>\n"
    )


def _html_section(section: Section, *, open_: bool) -> str:
    line = f" <small>{html.escape(section.line)}</small>" if section.line else ""
    return (
        f"<details{' open' if open_ else ''}>"
        f"<summary>{html.escape(section.title)}{line}</summary>"
        # inside: a browser that is sent there opens what is folded around it
        f"<div id='{html.escape(section.anchor)}'>{_html_blocks(section.blocks)}</div></details>"
    )


def _html_blocks(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        if isinstance(block, str):
            heading = block.startswith("## ")
            tag, text = ("h3", block[3:]) if heading else ("p", block)
            parts.append(f"<{tag}>{html.escape(text)}</{tag}>")
        elif isinstance(block, list):
            parts.append("<ul>" + "".join(f"<li>{html.escape(i)}</li>" for i in block) + "</ul>")
        elif isinstance(block, Fold):
            inside = _html_blocks(block.blocks)
            parts.append(
                f"<details><summary>{html.escape(block.title)}</summary>{inside}</details>"
            )
        elif isinstance(block, Picture):
            parts.append(_html_picture(block))
        else:
            parts.append(_html_grid(block))
    return "".join(parts)


def _html_picture(picture: Picture) -> str:
    """As an image of its own, so that the ids inside one figure do not meet another's."""

    def source(svg: str) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8')).decode('ascii')}"

    image = f"<img alt='{html.escape(picture.caption)}' src='{source(picture.svg)}'>"
    if picture.narrow:
        phone = f"<source media='(max-width:700px)' srcset='{source(picture.narrow)}'>"
        image = f"<picture>{phone}{image}</picture>"
    return f"<figure>{image}</figure>"


def _html_grid(grid: Grid) -> str:
    long = _sentences(grid)
    wide = [" class='text'" if i in long else "" for i in range(len(grid.header))]
    head = "".join(
        f"<th{kind}>{html.escape(name)}</th>" for name, kind in zip(grid.header, wide, strict=True)
    )
    rows = []
    for number, row in enumerate(grid.rows):
        cells = []
        for text, kind_of in zip(row, wide, strict=True):
            lines = [
                f"<span class='{kind}'>{html.escape(line)}</span>" if kind else html.escape(line)
                for line, kind in text.lines
            ]
            lines += [f"<a href='#{html.escape(to)}'>{html.escape(to)}</a>" for to in text.links]
            cells.append(f"<td{kind_of}>{'<br>'.join(lines)}</td>")
        mark = " class='last'" if grid.last and number == len(grid.rows) - 1 else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    cards = " class='cards'" if grid.cards else ""
    return f"<table{cards}><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
