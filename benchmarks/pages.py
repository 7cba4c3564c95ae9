"""Write the numbers of result pages as JSON, for pages whose benchmark stored no numbers.

    python -m benchmarks.pages

The script measures nothing. It writes tables, listings and the numbers in sentences of each such
page to a .json file with the same name, and a test compares both. Pages with a file of their runs
(`bench.json`, `answers.json`, ...) keep that file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
#: Name that marks a JSON file as written by this script.
MADE = "benchmarks.pages"


def numbers(text: str) -> list[float]:
    """Return all numbers of a text outside code; 18,846 is one number."""
    text = re.sub(r"`[^`]*`", "", text)
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def content(page: str) -> dict[str, Any]:
    """Return title, commands, tables, listings and sentences with numbers of a page."""
    title = page.partition("\n")[0].lstrip("# ")
    listings = re.findall(r"^```\w*\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    tables, sentences = [], []
    for block in re.split(r"\n\s*\n", prose):
        if block.lstrip().startswith("|"):
            rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
                    for line in block.strip().splitlines()]  # fmt: skip
            tables.append({"head": rows[0], "rows": rows[2:]})
        elif not block.startswith("#") and numbers(block):
            sentences.append({"text": " ".join(block.split()), "numbers": numbers(block)})
    return {
        "made_by": MADE,
        "title": title,
        "commands": re.findall(r"`(python -m benchmarks[^`]*)`", page),
        "tables": tables,
        "listings": [listing.splitlines() for listing in listings],
        "sentences": sentences,
    }


def converted() -> list[Path]:
    """Return the pages whose JSON file is written from their text."""
    pages = []
    for page in sorted(RESULTS.glob("*.md")):
        beside = page.with_suffix(".json")
        if not beside.exists() or json.loads(beside.read_text()).get("made_by") == MADE:
            pages.append(page)
    return pages


def main() -> None:
    for page in converted():
        text = json.dumps(content(page.read_text()), indent=1, ensure_ascii=False)
        page.with_suffix(".json").write_text(text + "\n")
        print(page.with_suffix(".json").name)


if __name__ == "__main__":
    main()
