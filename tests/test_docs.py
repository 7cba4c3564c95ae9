"""Tests that links in README and the documentation work, and that shown options exist."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from partwise.apps.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(p for p in DOCS.rglob("*") if p.suffix in (".rst", ".md") and "_" not in p.parts),
]
#: Pages that a build of the documentation creates.
WRITTEN = {"sg_execution_times.rst", "estimators.rst", "methods.rst"}
PAGES = [
    page
    for page in PAGES
    if page.is_file()
    and page.name not in WRITTEN
    and not {"auto_gallery", "generated", "results"} & set(page.parts)
]


def anchors(page):
    """Return the anchors of the headings of a Markdown page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return {text.replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r":doc:`(?:[^`<]*<)?([^`<>]+)>?`", text):
        if "auto_gallery" in target or "results" in target:
            continue  # the documentation build creates these files and checks the links
        place = DOCS / target[1:] if target.startswith("/") else page.parent / target
        assert any(place.with_suffix(end).is_file() for end in (".rst", ".md")), target
    for target in re.findall(r"^\.\. (?:image|figure):: (\S+)$", text, re.M):
        if "auto_gallery" not in target:
            assert (page.parent / target).is_file(), target
    for target in re.findall(r"\]\(([^)\s]+)\)", text) if page.suffix == ".md" else ():
        address, _, place = target.partition("#")
        if "://" in target:
            continue
        there = page.parent / address if address else page
        assert there.exists(), target
        if place and there.suffix == ".md":
            assert place in anchors(there), target


def test_pages_are_in_a_table_of_contents():
    listed = set()
    for page in [*DOCS.rglob("*.rst"), *DOCS.rglob("*.md")]:
        text = page.read_text()
        blocks = re.findall(r"\.\. toctree::\n((?:[ \t]+.*\n|\n)+)", text)
        for block in blocks + re.findall(r"```\{toctree\}\n(.*?)```", text, re.S):
            names = [line.strip() for line in block.splitlines() if line.strip()]
            for name in names:
                folder = DOCS if name.startswith("/") else page.parent
                listed.add((folder / name.lstrip("/")).resolve())
    apart = {"gallery", "_templates", "images"}
    for page in PAGES:
        if DOCS in page.parents and page != DOCS / "index.rst" and not apart & set(page.parts):
            assert page.with_suffix("").resolve() in listed, page


def test_options_that_are_shown_exist():
    """Check that every option in a shown ``partwise COMMAND ... --option`` exists."""
    commands = get_command(app).commands
    known = {
        name: {o for p in c.params for o in p.opts + p.secondary_opts}
        for name, c in commands.items()
    }
    seen = 0
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            found = re.search(r"(?:^|\$ |``| )partwise ([a-z]+) ([^`#]*)", line)
            if not found or found[1] not in known:
                continue
            for option in re.findall(r"(?<=\s)(--[a-z][a-z-]*)", " " + found[2]):
                seen += 1
                assert option in known[found[1]] | {"--help"}, f"{page.name}: {line.strip()}"
    assert seen > 30
