"""Run ``partwise studio`` and ``partwise label-studio``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console

from partwise.apps.cli import work
from partwise.apps.cli.progress_bar import Bar


def run_studio(
    data: str,
    *,
    project: Path | None,
    host: str,
    port: int,
    password: str | None,
    seed: int,
    browser: bool,
    reading: dict[str, Any],
) -> None:
    """Read the data, serve the page, and wait for Ctrl-C."""
    try:
        from partwise.studio import start
    except ImportError as error:
        raise ImportError(
            "The studio needs starlette and uvicorn: pip install 'partwise[studio]'"
        ) from error
    errors = Console(stderr=True)
    with Bar(errors) as bar:
        task = work.read_task(data, bar, label_share=None, seed=seed, reading=reading)
    samples, given = task.samples, task.given
    folder = project_folder(data) if project is None else project
    with start(
        samples, folder, host=host, port=port, password=password, seed=seed, labels=given
    ) as studio:
        for note in (
            *samples.notes,
            *filter(None, [studio.news]),
        ):  # those on labels that only score are not for the studio
            errors.print(note, style="dim", markup=False)
        errors.print(f"Labels are kept in {folder}. Ctrl-C ends the studio.", markup=False)
        if password:
            errors.print(
                f"Everyone who can reach {host} and knows the password sees the samples and can "
                "label them; what is sent is not encrypted.",
                markup=False,
            )
        print(studio.url, flush=True)
        if browser:
            webbrowser.open(studio.url)
        try:
            studio.wait()
        except KeyboardInterrupt:
            errors.print(f"\n{len(studio.labels)} labels are kept in {folder}.", markup=False)


def run_label_studio(
    data: str,
    *,
    project: Path | None,
    host: str,
    port: int,
    password: str | None,
    seed: int,
    reading: dict[str, Any],
) -> None:
    """Read the data, compute the part weights, and serve Label Studio until Ctrl-C."""
    try:
        import uvicorn

        from partwise.apps import label_studio
        from partwise.apps.studio import server
    except ImportError as error:
        raise ImportError(
            "label-studio needs starlette and uvicorn: pip install 'partwise[studio]'"
        ) from error
    if host not in server.LOCAL and not password:
        raise ValueError(f"--host {host} serves others on the network; it needs --password.")
    errors = Console(stderr=True)
    folder = project_folder(data) if project is None else project
    with Bar(errors) as bar:
        task = work.read_task(data, bar, label_share=None, seed=seed, reading=reading)
        desk = server.open_desk(task.samples, folder, seed=seed, labels=task.given)
        desk.prepare()
    for note in filter(None, (*task.samples.notes, desk.project.news)):
        errors.print(note, style="dim", markup=False)
    errors.print(f"Labels are kept in {folder}. Ctrl-C ends the server.", markup=False)
    try:
        listening = server.listen(host, port)
        print(f"http://{host}:{port}", flush=True)
        app = label_studio.Guard(label_studio.make_app(desk), password)
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        with listening:
            uvicorn.Server(config).run(sockets=[listening])
    except OSError as error:
        raise ValueError(f"--port {port} on {host} cannot be used: {error.strerror}.") from error
    finally:
        desk.close()


def project_folder(data: str) -> Path:
    """Beside the data: ``photos-studio`` for ``photos/``; in this folder for a known data set."""
    path = Path(data)
    if not path.exists():
        return Path(f"{path.name}-studio")
    return path.resolve().parent / f"{path.resolve().stem}-studio"
