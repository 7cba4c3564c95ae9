"""The commands ``studio`` and ``label-studio``."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.console import Console

from partwise.apps.cli import work
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar

NEEDS = "This command needs starlette and uvicorn: pip install 'partwise[studio]'"


def _read(asked: Asked, bar: Bar) -> tuple[work.Task, Path, bool]:
    """Return the data as the project read it before, and whether to choose colours.

    The second result is true if the user chose neither --rgb nor --grey.
    """
    from partwise.apps.studio import server

    folder = project_folder(asked.data) if asked.project is None else asked.project
    reading = asked.reading
    open_colours = "rgb" in reading and reading["rgb"] is None
    if open_colours:  # use the project's earlier choice, so that images are read once
        reading["rgb"] = server.chosen_colours(folder)
    return work.read_task(asked, bar), folder, open_colours


def run_studio(asked: Asked) -> None:
    """Read the data, serve the studio's page, and wait for Ctrl-C."""
    try:
        from partwise.studio import start
    except ImportError as error:
        raise ImportError(NEEDS) from error
    errors = Console(stderr=True, markup=False)
    with Bar(errors) as bar:
        task, folder, open_colours = _read(asked, bar)
    with start(
        task.samples,
        folder,
        host=asked.host,
        port=asked.port,
        password=asked.password,
        seed=asked.seed,
        labels=task.given,
        compare_colours=open_colours,
        random_first=asked.random_first,
    ) as studio:
        _begin(task, studio.news, folder, "studio", errors)
        if asked.password:
            errors.print(
                f"Everyone who can reach {asked.host} and has the password sees the samples and "
                "can label them; the connection is not encrypted."
            )
        print(studio.url, flush=True)
        if asked.browser:
            webbrowser.open(studio.url)
        try:
            studio.wait()
        except KeyboardInterrupt:
            errors.print(f"\n{len(studio.labels)} labels are stored in {folder}.")


def run_label_studio(asked: Asked) -> None:
    """Read the data, compute the part weights, and serve Label Studio until Ctrl-C."""
    try:
        import uvicorn

        from partwise.apps import label_studio
        from partwise.apps.studio import server
        from partwise.apps.studio.workspace import Workspace
    except ImportError as error:
        raise ImportError(NEEDS) from error
    host, port = asked.host, asked.port
    if host not in server.LOCAL and not asked.password:
        raise ValueError(f"--host {host} admits other computers, so it needs --password.")
    errors = Console(stderr=True, markup=False)
    with Bar(errors) as bar:
        task, folder, open_colours = _read(asked, bar)
        workspace = Workspace(
            task.samples, folder, seed=asked.seed, labels=task.given, compare_colours=open_colours
        )
        workspace.prepare()
    _begin(task, workspace.project.news, folder, "server", errors)
    try:
        listening = server.listen(host, port)
        print(f"http://{host}:{port}", flush=True)
        app = label_studio.Guard(label_studio.make_app(workspace), asked.password)
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        with listening:
            uvicorn.Server(config).run(sockets=[listening])
    except OSError as error:
        raise ValueError(f"--port {port} on {host} cannot be used: {error.strerror}.") from error
    finally:
        workspace.close()


def _begin(task: work.Task, news: str, folder: Path, what: str, errors: Console) -> None:
    """Print the notes about the data and the folder in which labels are stored."""
    # Notes about labels that only measure a result do not concern the studio.
    for note in filter(None, (*task.samples.notes, news)):
        errors.print(note, style="dim")
    errors.print(f"Labels are stored in {folder}. Ctrl-C ends the {what}.")


def project_folder(data: str) -> Path:
    """Return the default project folder: ``photos-studio`` next to ``photos/``.

    For a public data set, it is in the current folder.
    """
    path = Path(data)
    if not path.exists():
        return Path(f"{path.name}-studio")
    return path.resolve().parent / f"{path.resolve().stem}-studio"
