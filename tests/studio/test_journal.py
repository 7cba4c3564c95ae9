"""Tests of the studio's journal, a file that stores every action, and of reviews of labels."""

import errno
import subprocess
import sys

import pytest

from partwise.apps.studio.journal import Journal


def test_journal_adds_up_and_comes_back(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x", "b": "y"}, window="1")
    journal.set({"b": None}, window="1")
    journal.skip(["c"], window="2")
    assert journal.labels == {"a": "x"} and journal.skipped == {"c"}
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.labels == {"a": "x"} and again.skipped == {"c"} and len(again.entries) == 3
    again.close()


def test_acts_come_back_as_they_were(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x", "b": "x"}, window="1", key="k")
    journal.rename("x", "z", window="1")
    journal.skip(["c", "d"], window="2")
    journal.edit_part({"part": 1, "do": "freeze"}, window="2")
    journal.undo("2")
    assert journal.labels == {"a": "z", "b": "z"} and journal.entries[1].renamed == ("x", "z")
    journal.rename("z", None, window="1")
    assert journal.labels == {} and journal.entries[-1].before == {"a": "z", "b": "z"}
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.entries == journal.entries and again.keys == journal.keys
    again.close()


def test_undo_is_of_ones_own_window_and_spares_what_others_did(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x", "b": "x"}, window="1")
    journal.set({"b": "z"}, window="2")
    journal.undo("1")
    assert journal.labels == {"b": "z"}  # a has no label, and b has that of the other window
    assert journal.undo("1") is None
    journal.undo("2")
    assert journal.labels == {"b": "x"}  # the label that window 1 gave to b
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
    # The incomplete line is removed immediately, so that the file always has complete lines.
    assert (tmp_path / "j").read_bytes() == content.splitlines(keepends=True)[0]
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


def test_every_act_is_on_the_disk_before_it_is_acknowledged(tmp_path, monkeypatch):
    """Check that each action is on the disk before it is acknowledged.

    It is written with flush and then with fsync.
    """
    import os

    journal, seen = Journal(tmp_path / "j"), []
    real = os.fsync

    def fsync(number):
        assert number == journal._file.fileno()
        # This is the content that another process would read now.
        seen.append((tmp_path / "j").read_bytes())
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    journal.set({"a": "x"}, window="1")
    journal.skip(["b"], window="1")
    journal.edit_part({"part": 0, "keep": True}, window="1")
    journal.undo("1")
    assert [lines.count(b"\n") for lines in seen] == [1, 2, 3, 4]
    journal.close()


def test_undo_goes_back_act_by_act_over_what_others_did(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x"}, window="1")
    journal.set({"a": "y", "b": "y"}, window="1")
    journal.edit_part({"part": 0}, window="1")  # edits of parts are no labels, so undo skips them
    journal.set({"c": "z"}, window="2")
    assert journal.undo("1").undoes == 2
    assert journal.labels == {"a": "x", "c": "z"}
    assert journal.undo("1").undoes == 1
    assert journal.labels == {"c": "z"}
    assert journal.undo("1") is None and journal.labels == {"c": "z"}
    journal.close()
    again = Journal(tmp_path / "j")  # a reopened journal knows what was undone
    assert again.undo("1") is None and again.labels == {"c": "z"}
    assert again.undo("2").undoes == 4 and again.labels == {}
    assert again.entries[2].part == {"part": 0}
    again.close()


def test_undo_of_a_skip_and_of_an_act_whose_labels_others_changed(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.skip(["a", "b"], window="1")
    journal.set({"c": "x"}, window="1")
    journal.set({"c": "y"}, window="2")
    # Another window changed that label, so nothing is left to undo.
    assert journal.undo("1").labels == {}
    assert journal.labels == {"c": "y"}
    assert journal.undo("1").skipped == ("a", "b") and journal.skipped == set()
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.skipped == set() and again.labels == {"c": "y"} and again.undo("1") is None
    again.close()


@pytest.mark.parametrize("number", [1, 3, "2", None])
def test_a_line_of_another_number_is_no_line_of_this_journal(tmp_path, number):
    """Check that a journal with lost lines or two joined journals is refused.

    Its labels would be wrong.
    """
    import json

    journal = Journal(tmp_path / "j")
    for name in "abc":
        journal.set({name: "x"}, window="1")
    journal.close()
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    wrong = json.dumps({"number": number, "window": "1", "labels": {"b": "x"}}).encode() + b"\n"
    (tmp_path / "j").write_bytes(lines[0] + wrong + lines[2])
    with pytest.raises(ValueError, match=rf"line 2.*{number}"):
        Journal(tmp_path / "j")


def test_classes_that_were_not_met_count_as_wrong():
    from partwise.apps.studio.reviews import with_unseen

    labels = dict(enumerate("aabbcdef"))  # four of the eight samples are alone in their class
    point = with_unseen((0.9, 0.8, 0.95), labels)
    assert (point.accuracy, point.low, point.high) == pytest.approx((0.675, 0.4, 0.95))
    assert point.labels == 8
    assert with_unseen((0.9, 0.8, 0.95), dict(enumerate("aabb"))).accuracy == 0.9


# Tests of a full disk.


class Full:
    """File that accepts a number of bytes and then fails, like a full disk."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = self.file.write(data[: self.room])
        self.file.flush()
        self.room -= done
        return done

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 1, 20])
def test_the_journal_works_again_after_a_full_disk(tmp_path, room):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x"}, window="1")
    real = journal._file
    journal._file = Full(real, room)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            journal.set({"b": "y"}, window="1")
    assert journal.labels == {"a": "x"}
    journal._file = real  # the disk has free space again
    journal.set({"c": "z"}, window="1")
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.labels == {"a": "x", "c": "z"} and [act.number for act in again.entries] == [1, 2]
    again.close()


LIMITED = """
import resource, signal, sys
from partwise.apps.studio.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(sys.argv[1])
journal.set({"a": "x"}, window="1")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 10, hard))
for _ in range(2):
    try:
        journal.set({"b": "y" * 50}, window="1")
        print("kept")
    except OSError as error:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.set({"c": "z"}, window="1")
journal.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")
def test_the_journal_works_again_after_a_file_size_limit(tmp_path):
    """Check that the journal works again after the system limited the file size.

    With this limit, one write is incomplete and the next one fails.
    """
    pytest.importorskip("resource", reason="limits of files are for Unix")
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "j")], capture_output=True, text=True
    )
    assert run.stdout.split() == ["refused", "refused"], run.stderr
    again = Journal(tmp_path / "j")
    assert again.labels == {"a": "x", "c": "z"}
    again.close()


def test_repeated_requests_have_one_effect(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.set({"a": "x"}, window="1", key="1-1")
    journal.set({"b": "x"}, window="1", key="1-2")
    journal.skip(["c"], window="1", key="1-3")
    assert set(journal.keys) == {"1-1", "1-2", "1-3"}
    journal.close()
    again = Journal(tmp_path / "j")  # a reopened journal also contains the keys
    assert set(again.keys) == {"1-1", "1-2", "1-3"}
    assert again.undo("1", of="1-1").labels == {"a": None} and again.labels == {"b": "x"}
    assert again.undo("1", of="1-1") is None and again.undo("2", of="1-2") is None
    again.close()
