"""Tests that files and folders appear complete or not at all, even if the writer is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from partwise.apps.cli import outputs
from partwise.persistence import atomic


@pytest.fixture(scope="module")
def ended_process():
    """Return the process id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def temporary_file_of(pid, path, suffix="part"):
    """Return the name of the temporary file that the process `pid` would have used for `path`."""
    mine = atomic.beside(path, suffix)
    return mine.with_name(mine.name.replace(f"-{os.getpid()}-", f"-{pid}-"))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_many_threads_write_one_file(tmp_path):
    path, errors = tmp_path / "a.txt", []

    def write(letter):
        try:
            for _ in range(20):
                atomic.write_whole(path, letter * 10_000, force=True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert path.read_text() in {letter * 10_000 for letter in "abcd"}
    assert names(tmp_path) == ["a.txt"]


def test_names_as_long_as_a_file_system_allows(tmp_path):
    for name in ("a" * 255, "é" * 127):
        assert atomic.write_whole(tmp_path / name, "x").read_text() == "x"
    assert len(names(tmp_path)) == 2


def test_only_files_of_killed_writers_are_removed(tmp_path, ended_process):
    target = tmp_path / "m.partwise"
    rest, folder = (
        temporary_file_of(ended_process, target),
        temporary_file_of(ended_process, tmp_path / "out"),
    )
    folder.mkdir()
    (folder / "summary.json").write_text("{")
    mine = atomic.beside(target)
    foreign = [tmp_path / name for name in (".film.mkv.part", "b.part", f".x.{ended_process}.part")]
    elsewhere = rest.with_name(rest.name.replace(atomic._HOST, "abcdef"))
    for path in (rest, mine, elsewhere, *foreign):
        path.write_text("x")
    atomic.check_target(target)
    assert not rest.exists() and not folder.exists()
    assert all(path.exists() for path in (mine, elsewhere, *foreign))
    # This temporary file was written by another machine, days ago.
    os.utime(elsewhere, (time.time() - 2 * atomic.STALE,) * 2)
    assert atomic.sweep(tmp_path) == 1
    assert not elsewhere.exists()


def test_windows_waits_a_day_before_removing_temporary_files(tmp_path, ended_process, monkeypatch):
    """Check that on Windows the temporary file of a dead process is removed only after a day.

    There, os.kill(pid, 0) sends Ctrl-C, so it cannot be used to ask whether the process lives.
    """
    rest = temporary_file_of(ended_process, tmp_path / "a")
    rest.write_text("x")
    monkeypatch.setattr(atomic, "WINDOWS", True)
    monkeypatch.setattr(atomic.os, "kill", lambda *a: pytest.fail("os.kill was called"))
    assert atomic.sweep(tmp_path) == 0
    os.utime(rest, (time.time() - 2 * atomic.STALE,) * 2)
    assert atomic.sweep(tmp_path) == 1


@pytest.fixture
def like_windows(monkeypatch):
    """Make renaming onto an existing folder fail, as on Windows."""
    real = {name: getattr(os, name) for name in ("rename", "replace")}

    def refuses(name):
        def rename(a, b):
            if os.path.isdir(b) or (name == "rename" and os.path.exists(b)):
                raise PermissionError(13, "Access is denied", str(b))
            real[name](a, b)

        return rename

    for name in real:
        monkeypatch.setattr(atomic.os, name, refuses(name))


@pytest.mark.parametrize("held", [None, [], ["summary.json"]], ids=["absent", "empty", "full"])
def test_a_folder_is_replaced_as_on_windows(tmp_path, like_windows, held):
    out = tmp_path / "out"
    if held is not None:
        out.mkdir()
        for name in held:
            (out / name).write_text("old")
    with outputs.whole_folder(out, force=True) as folder:
        (folder / "report.html").write_text("new")
    assert names(out) == ["report.html"] and names(tmp_path) == ["out"]


KILLED = """
import os, signal, sys
from pathlib import Path
from partwise.apps.cli import outputs
from partwise.persistence import atomic as files
out, wanted = Path(sys.argv[1]), int(sys.argv[2])
count = 0
def counted(real):
    def call(*arguments):
        global count
        result = real(*arguments)
        count += 1
        if count == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call
files.os.rename = counted(os.rename)
with outputs.whole_folder(out, force=True) as folder:
    (folder / "summary.json").write_text("new")
    (folder / "report.html").write_text("new")
    if wanted == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(out, after):
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), str(after)])
    assert done.returncode == -signal.SIGKILL


def content(out):
    return {path.name: path.read_text() for path in out.iterdir()}


OLD = {"summary.json": "old", "assignments.csv": "old"}
NEW = {"summary.json": "new", "report.html": "new"}


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out [1]"  # brackets in a folder's name are no glob pattern
    folder.mkdir()
    for name, text in OLD.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
@pytest.mark.parametrize(("after", "expected"), [(0, OLD), (1, OLD), (2, NEW)])
def test_the_next_run_puts_back_the_folder_of_a_killed_run(out, after, expected):
    killed(out, after)
    assert out.exists() == (after != 1)
    outputs.check_folder(out, force=True)
    assert names(out.parent) == [out.name] and content(out) == expected


def test_a_folder_that_a_living_run_set_aside_is_left_alone(out):
    aside = atomic.beside(out, "old")
    os.rename(out, aside)
    atomic.recover(out)
    assert not out.exists() and content(aside) == OLD
