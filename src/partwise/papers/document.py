"""A small document of headings, paragraphs, tables and pictures, as Markdown or HTML."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2.5em;border-top:1px solid #ddd;padding-top:1em}
h3{font-size:1em;margin-bottom:.3em}
table{border-collapse:collapse;margin:.6em 0;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.25em .6em;border-bottom:1px solid #e4e4e4;text-align:right;white-space:nowrap;
vertical-align:top}
th:first-child,td:first-child{text-align:left}td.text{text-align:left;white-space:normal}
th{border-bottom:2px solid #999;font-weight:600}tr.last td{border-top:2px solid #999}
.far{color:#b00020}.yes{color:#136f2d}.no{color:#b00020}.quiet{color:#777}
figure{margin:1em 0}figure svg,figure img{max-width:100%;height:auto}
nav{display:flex;flex-wrap:wrap;gap:.2em 1em}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}
th,td{border-color:#333}.far,.no{color:#ff8a80}.yes{color:#81c995}figure{background:#fff}}
"""


@dataclass(frozen=True)
class Text:
    """Lines of one table cell, each with a class for HTML ("" for none)."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str, kind: str = "") -> Text:
        """One line."""
        return cls(((text, kind),))


@dataclass
class Grid:
    """A table: header, rows of `Text`; ``last`` marks the last row as an average."""

    header: list[str]
    rows: list[list[Text]]
    last: bool = False


@dataclass
class Picture:
    """A figure: the SVG's text, and the file beside the Markdown."""

    file: str
    svg: str
    caption: str


Block = str | Grid | Picture | list[str]


@dataclass
class Section:
    """A part with a heading; ``anchor`` is its name within the page.

    ``averages`` are the lines that it gives to the page's first table.
    """

    title: str
    anchor: str
    blocks: list[Block] = field(default_factory=list)
    averages: list[list[Text]] = field(default_factory=list)


def to_markdown(section: Section) -> str:
    """The section as Markdown (tables of the GitHub kind)."""
    parts = [f"# {section.title}"]
    for block in section.blocks:
        if isinstance(block, str):
            parts.append(f"## {block[3:]}" if block.startswith("## ") else block)
        elif isinstance(block, list):
            parts.append("\n".join(f"- {item}" for item in block))
        elif isinstance(block, Picture):
            parts.append(f"![{block.caption}]({block.file})")
        else:
            parts.append(_markdown_grid(block))
    return "\n\n".join(parts) + "\n"


def _markdown_grid(grid: Grid) -> str:
    def cell(text: Text) -> str:
        return "<br>".join(line.replace("|", "\\|") for line, _ in text.lines)

    lines = [" | ".join(name.replace("|", "\\|") for name in grid.header)]
    lines.append(" | ".join(["---"] + ["---:"] * (len(grid.header) - 1)))
    lines += [" | ".join(cell(text) for text in row) for row in grid.rows]
    return "\n".join(f"| {line} |" for line in lines)


def to_html(sections: list[Section], title: str, *, heads: list[str] | None = None) -> str:
    """One self-contained page: no script, no link to anything outside it."""
    links = "".join(
        f'<a href="#{html.escape(s.anchor)}">{html.escape(s.anchor)}</a>' for s in sections
    )
    head = "".join(f"<p>{html.escape(line)}</p>" for line in heads or [])
    body = "".join(_html_section(section) for section in sections)
    nav = f"<nav>{links}</nav>" if len(sections) > 1 else ""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{head}{nav}{body}</body></html>\n"
    )


def _html_section(section: Section) -> str:
    parts = [f"<h2 id='{html.escape(section.anchor)}'>{html.escape(section.title)}</h2>"]
    for block in section.blocks:
        if isinstance(block, str):
            if block.startswith("## "):
                parts.append(f"<h3>{html.escape(block[3:])}</h3>")
            else:
                parts.append(f"<p>{html.escape(block)}</p>")
        elif isinstance(block, list):
            parts.append("<ul>" + "".join(f"<li>{html.escape(i)}</li>" for i in block) + "</ul>")
        elif isinstance(block, Picture):
            # As an image of its own, so that the ids inside one figure do not meet another's.
            data = base64.b64encode(block.svg.encode("utf-8")).decode("ascii")
            caption = html.escape(block.caption)
            parts.append(
                f"<figure><img alt='{caption}' src='data:image/svg+xml;base64,{data}'></figure>"
            )
        else:
            parts.append(_html_grid(block))
    return "".join(parts)


def _html_grid(grid: Grid) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in grid.header)
    rows = []
    for number, row in enumerate(grid.rows):
        cells = []
        for text in row:
            lines = [
                f"<span class='{kind}'>{html.escape(line)}</span>" if kind else html.escape(line)
                for line, kind in text.lines
            ]
            wide = " class='text'" if sum(len(line) for line, _ in text.lines) > 60 else ""
            cells.append(f"<td{wide}>{'<br>'.join(lines)}</td>")
        mark = " class='last'" if grid.last and number == len(grid.rows) - 1 else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
