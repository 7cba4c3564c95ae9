"""Directive ``.. walk::`` that runs commands during the build and shows their output.

A command that fails stops the build, so pages cannot show options that no longer exist. All
commands run in one folder, with the files that ``walk_data.py`` writes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parents[1]
WIDTH = 70


def _folder(app) -> Path:
    if not hasattr(app, "_walk_folder"):
        app._walk_folder = Path(tempfile.mkdtemp(prefix="partwise-walk-"))
        subprocess.run([sys.executable, HERE / "walk_data.py"], cwd=app._walk_folder, check=True)
    return app._walk_folder


def _run(command: str, folder: Path) -> tuple[int, str]:
    bin_ = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(WIDTH),
        "PYTHONWARNINGS": "ignore",
        "TERM": "dumb",
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = []
    for line in done.stdout.strip("\n").splitlines():  # wrap long lines like a terminal
        lines += textwrap.wrap(line, WIDTH) if len(line) > WIDTH + 4 else [line.rstrip()]
    return done.returncode, re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


class Walk(SphinxDirective):
    """Directive with one command per line.

    ``:fails:`` expects an error, and ``:head: N`` shows only the first N lines of output.
    """

    has_content = True
    option_spec = {"fails": directives.flag, "head": directives.nonnegative_int}

    def run(self):
        folder, shown = _folder(self.env.app), []
        for command in self.content:
            code, output = _run(command, folder)
            if (code != 0) != ("fails" in self.options):
                raise self.error(f"{command}: exit code {code}\n{output}")
            lines = output.splitlines()
            head = self.options.get("head", len(lines))
            more = ["..."] if len(lines) > head else []
            typed = " \\\n    ".join(textwrap.wrap(command, WIDTH - 4, break_on_hyphens=False))
            shown.append("\n".join([f"$ {typed}", *lines[:head], *more]))
        text = "\n\n".join(shown)
        return [nodes.literal_block(text, text, language="console")]


def _clear(app, exception):
    if hasattr(app, "_walk_folder"):
        shutil.rmtree(app._walk_folder, ignore_errors=True)


def setup(app):
    app.add_directive("walk", Walk)
    app.connect("build-finished", _clear)
    return {"parallel_read_safe": False}
