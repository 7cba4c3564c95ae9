"""The ``partwise`` command.

Each subcommand has its own module. It is imported when the subcommand runs, so that ``--help`` is
fast. Subcommands raise ordinary exceptions; :func:`main` prints user errors as one line and exits
with code 2.
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
    """Run the command line; the function always ends with SystemExit."""
    atexit.register(gc.freeze)  # gc.freeze saves 0.7 s of garbage collection at exit
    # Idle OpenBLAS threads should sleep: on 16 cores, their waiting added 4 s to the imports.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    try:
        app(args=argv, obj=argv)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("PARTWISE_TRACEBACK"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, FileNotFoundError) and error.filename is not None:
            # the operating system's message would begin with an error number
            message = f"There is no file {error.filename}."
        print(f"partwise: {message}", file=sys.stderr)
        raise SystemExit(2) from None


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if the user asked for it."""
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
    """Declare the options of the command without a subcommand."""
    pass


register(app)
app.command()(reproduce)
