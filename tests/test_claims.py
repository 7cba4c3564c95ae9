"""Tests that numbers quoted in README and guides equal those of the benchmark pages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
if not RESULTS.exists():
    pytest.skip("the result pages are not in this copy", allow_module_level=True)

sys.path.insert(0, str(ROOT))
from benchmarks import answers_table, pages, threads  # noqa: E402


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def rows(text, first):
    """Return the rows of Markdown tables whose first cell is `first`, without asterisks."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip().strip("*").strip() for cell in line.strip().strip("|").split("|")]
        if line.lstrip().startswith("|") and cells[0] == first:
            found.append(cells)
    assert found, f"no row {first!r}"
    return found


def number(text):
    return float(re.search(r"[-+]?\d[\d,]*\.?\d*", text).group().replace(",", ""))


def is_rounded(said, seen):
    """Return whether the number ``said`` is ``seen``, rounded to as many digits."""
    digits = len(re.search(r"\d+(?:\.(\d+))?", said).group(1) or "")
    return abs(number(said) - seen) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.stem)
def test_every_page_has_its_numbers_as_json(page):
    found = json.loads(page.with_suffix(".json").read_text())
    if found.get("made_by") == pages.MADE:
        again = "python -m benchmarks.pages writes it again"
        assert found == pages.content(page.read_text()), again


def test_a_page_is_taken_apart():
    text = (
        "# T\n\nRun `python -m benchmarks.x 7`: 1.5 of 2,000.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    found = pages.content(text + "\n```\n3 and 4\n```\n")
    assert found["title"] == "T" and found["commands"] == ["python -m benchmarks.x 7"]
    assert found["tables"] == [{"head": ["a", "b"], "rows": [["1", "2"]]}]
    assert found["listings"] == [["3 and 4"]]
    assert [s["numbers"] for s in found["sentences"]] == [[1.5, 2000.0]]


# -- accuracy with few labels -------------------------------------------------------------------


SETS = answers_table.IN_README


@pytest.mark.parametrize("name", SETS)
def test_accuracy_in_readme_is_that_of_the_answers_page(name):
    page = read("benchmarks/results/answers.md")
    head = next(line for line in page.splitlines() if line.startswith("| set | labels per class |"))
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    found = next(row for row in rows(page, SETS[name]) if row[1] == "2")
    ours, logistic, best = rows(read("README.md"), name)[0][1:4]
    assert is_rounded(ours, number(found[columns.index("ours")]))
    assert is_rounded(best, number(found[columns.index("best baseline")]))
    store = json.loads((RESULTS / "answers.json").read_text())
    runs = [cell for key, cell in store.items() if key.startswith(f"whole/{SETS[name]}/2/")]
    runs = [cell for cell in runs if "PartsClassifier" in cell]
    theirs = [100 * cell["LogisticRegression"]["accuracy"] for cell in runs]
    assert is_rounded(logistic, round(sum(theirs) / len(theirs), 1))


def test_the_answers_page_is_that_of_its_runs():
    store = json.loads((RESULTS / "answers.json").read_text())
    page = read("benchmarks/results/answers.md")
    assert answers_table.accuracy(store).strip() in page
    assert answers_table.new_samples(store).strip() in page


def test_the_averages_in_readme_are_those_of_the_answers_page():
    """Check README's number of comparisons and mean gain over the best baseline."""
    found = rows(read("benchmarks/results/answers.md"), "all")[0]
    section = read("README.md").split("## Accuracy with few labels")[1].split("\n## ")[0]
    quoted = re.findall(r"\d[\d,.]*\d|\d", section.split("|")[-1])
    assert found[1] in quoted and any(is_rounded(value, number(found[2])) for value in quoted)


# -- speed -------------------------------------------------------------------------------------

#: Rows of README's table of speed, and the rows of full.md that they quote.
SPEED = {
    "ORL, k=40": "orl_32x32 k=40",
    "sparse 200,000 x 20,000, k=50": "sparse 200,000 x 20,000, 0.5 % filled, float32 k=50",
    "dense 50,000 x 2,000 float32, k=100": "dense 50,000 x 2,000 float32 k=100",
    "COIL20, KL, k=20": "coil20 KL k=20",
}


@pytest.mark.parametrize("name", SPEED)
def test_speed_in_readme_is_that_of_the_page(name):
    found = rows(read("benchmarks/results/full.md"), SPEED[name])[0]
    quoted, peer = rows(read("README.md"), name)[0][1:3]
    assert is_rounded(quoted.rstrip("x"), number(found[2])) and peer.startswith(found[3])


def test_the_overview_of_threads_is_that_of_the_machines():
    table = threads.ranges(RESULTS)
    assert table.count("\n") > 3
    assert table in read("benchmarks/results/threads.md")


# -- how-to guides -----------------------------------------------------------------------------


def simple_rows(name):
    """Return the cells of the simple tables of an .rst page, by their first cell."""
    found = {}
    for line in read(name).splitlines():
        cells = re.split(r" {2,}", line.strip())
        if len(cells) > 1:
            found[cells[0].strip("`")] = cells[1:]
    return found


def test_how_often_choose_k_is_right():
    page, guide = read("benchmarks/results/choose_k.md"), simple_rows("docs/how_to/how_many.rst")
    names = {
        "choose_k": "ours",
        "highest cophenetic correlation": "cophenetic, highest",
        "elbow of the error": "elbow",
        "bi-cross-validation, one s.e.": "bi-cross-validation, one s.e.",
    }
    for name, measured in names.items():
        cells = rows(page, measured)[0]
        assert [cell.replace(", ", " / ") for cell in guide[name]] == [
            cells[1],
            cells[4],
            cells[5],
        ]


def test_how_often_choose_k_is_right_on_small_data():
    page, guide = read("benchmarks/results/choose_k.md"), read("docs/how_to/how_many.rst")
    measured = [rows(page, ratio)[0][1] for ratio in ("10", "3", "1")]
    assert re.findall(r"\d+ of 16", guide) == measured


@pytest.mark.parametrize("name", ["orl", "coil20"])
def test_gains_by_pairs_in_the_guide(name):
    page = read("benchmarks/results/links.md")
    page = page[page.index(f"{name}: without pairs") :]
    without = re.search(r"k-means ([\d.]+)", page)[1]
    means = re.findall(r"([\d.]+) \+- ([\d.]+)", re.search(r"^ +400 pairs.*$", page, re.M)[0])
    quoted = simple_rows("docs/how_to/constraints_on_pairs.rst")[name.upper()]
    assert re.findall(r"[\d.]+", " ".join(quoted)) == [
        without,
        *means[0],
        *means[1],
        means[2][0],
        means[3][0],
    ]


@pytest.mark.parametrize("labels", [5, 10, 20, 72])
def test_found_wrong_labels_in_the_guide(labels):
    measured = rows(read("benchmarks/results/links.md"), str(labels))[0][1:3]
    guide = simple_rows("docs/how_to/suspicious_labels.rst")
    quoted = guide[next(name for name in guide if name.split()[0] == str(labels))]
    assert quoted == [cell.split()[0] for cell in measured]
