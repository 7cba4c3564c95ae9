"""The ``partwise`` command.

Each command has its own module, which is imported when the command runs, so that ``--help`` is
fast. Commands raise ordinary exceptions; :func:`main` turns user errors into one line and exit
code 2.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from partwise.apps.cli.commands import register
from partwise.apps.papers.command import reproduce

app = typer.Typer(
    name="partwise",
    help="Label a few samples and let Partwise label the rest; group, explain and compare data.",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Set PARTWISE_TRACEBACK=1 to see where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; always ends with SystemExit."""
    atexit.register(gc.freeze)  # else all modules are searched for cycles on the way out: 0.7 s
    # threads of OpenBLAS that have nothing to do sleep: on 16 cores they took 4 s of the imports
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    try:
        app(args=argv, obj=argv)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("PARTWISE_TRACEBACK"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, FileNotFoundError) and error.filename is not None:
            message = f"There is no file {error.filename}."  # the system's words have a number
        print(f"partwise: {message}", file=sys.stderr)
        raise SystemExit(2) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        from partwise import __version__

        print(f"partwise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


register(app)
app.command()(reproduce)
