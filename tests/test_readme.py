"""Tests that the commands of README work in an environment made by ``pip install .`` alone."""

from __future__ import annotations

import csv
import os
import random
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import typer

from partwise.apps.cli import app

ROOT = Path(__file__).parents[1]
QUICK = "partwise reproduce cnmf/table1"  # README allows minutes, so the test runs only a part


def commands() -> list[str]:
    """Return the commands of README (lines with ``$ partwise``), each once, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^\$ (partwise .*?)(?:\s+#.*)?$", text, flags=re.MULTILINE)
    return [f"{c} --quick" if c == QUICK else c for c in dict.fromkeys(found)]


def make_inputs(folder: Path) -> None:
    """Write the inputs of README's commands: labelled images, mails, customers and cells."""
    sys.path.insert(0, str(ROOT / "docs"))
    import walk_data

    before, rng = Path.cwd(), random.Random(0)
    os.chdir(folder)
    try:
        walk_data.texts(rng)
        walk_data.table(rng)
        walk_data.pictures(rng)
        walk_data.cells()
        Path("fruit").rename("photos")
        Path("pbmc.h5ad").rename("cells.h5ad")
        known = [f"{c}/{i:02d}.jpg,{c}" for c in ("apple", "lime", "plum") for i in (1, 5, 7)]
        Path("labels.csv").write_text("\n".join(["id,label", *known]) + "\n", encoding="utf-8")
        Path("more-photos").mkdir()
        for picture in sorted(Path("photos").glob("*/2?.jpg")):
            shutil.copy(picture, f"more-photos/{picture.parent.name}{picture.name}")
        with open("anfragen.csv", encoding="latin-1", newline="") as file:
            rows = list(csv.reader(file, delimiter=";"))[1:]
        with open("mails.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["body", "topic"])
            writer.writerows([text, topic if i % 6 < 3 else ""] for i, (_, text, topic) in
                             enumerate(rows))  # fmt: skip
    finally:
        os.chdir(before)
        sys.path.remove(str(ROOT / "docs"))


def test_readme_names_commands():
    assert len(commands()) >= 10
    known = typer.main.get_command(app).commands
    assert {command.split()[1] for command in commands()} <= set(known)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_command_of_readme_works_after_a_plain_install(tmp_path):
    pytest.importorskip("anndata")  # needed to write the .h5ad file
    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    install = [bin_ / "python", "-m", "pip", "install", "-q", str(ROOT)]
    subprocess.run(install, check=True)
    make_inputs(tmp_path)
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment = {**plain, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    failed = {}
    for command in commands():
        if command.startswith("partwise studio"):  # servers have tests of their own
            continue
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, text=True, capture_output=True
        )
        needs_extra = "cells.h5ad" in command  # README mentions that this command needs an extra
        if needs_extra:
            assert "partwise[cells]" in done.stderr and done.stderr.count("\n") == 1
        elif done.returncode:
            failed[command] = done.stdout[-500:] + done.stderr[-500:]
    assert failed == {}
