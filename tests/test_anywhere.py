"""Tests of `make test-anywhere`: its test files exist, and the parts of a file cover it."""

from types import SimpleNamespace

import pytest

import anywhere


def test_files_that_are_named_exist():
    names = {path.stem for path in (anywhere.ROOT / "tests").rglob("test_*.py")}
    assert {f"test_{name}" for name in (*anywhere.NUMBERS, *anywhere.SHARES)} <= names


@pytest.mark.parametrize("n", [1, 3, 8])
def test_shares_of_a_file_are_all_of_it_once(monkeypatch, n):
    found = []
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    for i in range(n):
        monkeypatch.setenv(anywhere.SHARE, f"{i}/{n}")
        items = list(range(20))
        anywhere.pytest_collection_modifyitems(config, items)
        found += items
    assert found == list(range(20))


def test_a_row_says_what_failed():
    row = {"kind": "here", "files": 2, "seconds": 3, "bad": ["tests/test_x.py::test_y"]}
    text = anywhere.table([{**row, "counts": {"passed": 5, "failed": 1}}])
    assert "| here | 2 | 5 | 1 | 0 | 0 | 0 | 0 | 3 |" in text
    assert "here: tests/test_x.py::test_y" in text
