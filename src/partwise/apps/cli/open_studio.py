"""Run ``partwise studio`` and ``partwise label-studio``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console

from partwise.apps.cli import work
from partwise.apps.cli.progress_bar import Bar

NEEDS = "This command needs starlette and uvicorn: pip install 'partwise[studio]'"


def _read(
    data: str, folder: Path, bar: Bar, seed: int, reading: dict[str, Any]
) -> tuple[work.Task, bool]:
    """Read the data as the project did before, and return whether colours were left open."""
    from partwise.apps.studio import server

    open_colours = "rgb" in reading and reading["rgb"] is None
    if open_colours:  # so that images are read once
        reading = {**reading, "rgb": server.chosen_colours(folder)}
    task = work.read_task(data, bar, label_share=None, seed=seed, reading=reading)
    return task, open_colours


def run_studio(
    data: str,
    *,
    project: Path | None,
    host: str,
    port: int,
    password: str | None,
    seed: int,
    browser: bool,
    random_first: int,
    reading: dict[str, Any],
) -> None:
    """Read the data, serve the page, and wait for Ctrl-C."""
    try:
        from partwise.studio import start
    except ImportError as error:
        raise ImportError(NEEDS) from error
    errors = Console(stderr=True)
    folder = project_folder(data) if project is None else project
    with Bar(errors) as bar:
        task, open_colours = _read(data, folder, bar, seed, reading)
    with start(
        task.samples,
        folder,
        host=host,
        port=port,
        password=password,
        seed=seed,
        labels=task.given,
        compare_colours=open_colours,
        random_first=random_first,
    ) as studio:
        # notes about labels that only measure a result are not for the studio
        for note in filter(None, (*task.samples.notes, studio.news)):
            errors.print(note, style="dim", markup=False)
        errors.print(f"Labels are stored in {folder}. Ctrl-C ends the studio.", markup=False)
        if password:
            errors.print(
                f"Everyone who can reach {host} and has the password sees the samples and can "
                "label them; the connection is not encrypted.",
                markup=False,
            )
        print(studio.url, flush=True)
        if browser:
            webbrowser.open(studio.url)
        try:
            studio.wait()
        except KeyboardInterrupt:
            errors.print(f"\n{len(studio.labels)} labels are stored in {folder}.", markup=False)


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
        from partwise.apps.studio.workspace import Workspace
    except ImportError as error:
        raise ImportError(NEEDS) from error
    if host not in server.LOCAL and not password:
        raise ValueError(f"--host {host} admits other computers, so it needs --password.")
    errors = Console(stderr=True)
    folder = project_folder(data) if project is None else project
    with Bar(errors) as bar:
        task, open_colours = _read(data, folder, bar, seed, reading)
        workspace = Workspace(
            task.samples, folder, seed=seed, labels=task.given, compare_colours=open_colours
        )
        workspace.prepare()
    for note in filter(None, (*task.samples.notes, workspace.project.news)):
        errors.print(note, style="dim", markup=False)
    errors.print(f"Labels are stored in {folder}. Ctrl-C ends the server.", markup=False)
    try:
        listening = server.listen(host, port)
        print(f"http://{host}:{port}", flush=True)
        app = label_studio.Guard(label_studio.make_app(workspace), password)
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        with listening:
            uvicorn.Server(config).run(sockets=[listening])
    except OSError as error:
        raise ValueError(f"--port {port} on {host} cannot be used: {error.strerror}.") from error
    finally:
        workspace.close()


def project_folder(data: str) -> Path:
    """Return ``photos-studio`` next to ``photos/``; for a known data set, in this folder."""
    path = Path(data)
    if not path.exists():
        return Path(f"{path.name}-studio")
    return path.resolve().parent / f"{path.resolve().stem}-studio"
