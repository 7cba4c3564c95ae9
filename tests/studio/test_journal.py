"""What a person did stays on disk, whatever happens; and what a review may say of it."""

import pytest

from partwise.studio.journal import Journal


def test_journal_adds_up_and_comes_back(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x", "b": "y"}, window="1")
    journal.set({"b": None}, window="1")
    journal.skip(["c"], window="2")
    assert journal.labels == {"a": "x"} and journal.skipped == {"c"}
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.labels == {"a": "x"} and again.skipped == {"c"} and len(again.acts) == 3
    again.close()


def test_undo_is_of_ones_own_window_and_spares_what_others_did(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x", "b": "x"}, window="1")
    journal.set({"b": "z"}, window="2")
    journal.undo("1")
    assert journal.labels == {"b": "z"}  # a is free again, b is the other window's
    assert journal.undo("1") is None
    journal.undo("2")
    assert journal.labels == {"b": "x"}  # as it was when that window set it
    journal.skip(["q"], window="1")
    journal.undo("1")
    assert journal.skipped == set()
    journal.close()


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_last_line_is_no_line(tmp_path, cut):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x"}, window="1")
    journal.set({"b": "ü" * 10}, window="1")
    journal.close()
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content[:-cut])
    again = Journal(tmp_path / "j")
    assert again.labels == {"a": "x"}
    again.set({"c": "y"}, window="1")
    again.close()
    last = Journal(tmp_path / "j")
    assert last.labels == {"a": "x", "c": "y"}
    last.close()


def test_a_damaged_journal_names_its_line(tmp_path):
    journal = Journal(tmp_path / "j")
    for name in "abc":
        journal.set({name: "x"}, window="1")
    journal.close()
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    (tmp_path / "j").write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(ValueError, match="line 2"):
        Journal(tmp_path / "j")


def test_classes_that_were_not_met_count_as_wrong():
    from partwise.studio.reviews import with_unseen

    point = with_unseen(8, (0.9, 0.8, 0.95), list("aabbcdef"))  # four of eight met once
    assert (point.right, point.low, point.high) == pytest.approx((0.675, 0.4, 0.95))
    assert with_unseen(4, (0.9, 0.8, 0.95), list("aabb")).right == 0.9
