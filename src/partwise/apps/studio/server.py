"""Server of the studio, which runs in a thread."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

from partwise.apps.studio.access import Guard
from partwise.apps.studio.project import read_manifest
from partwise.apps.studio.workspace import Workspace
from partwise.io import Samples, read_samples

LOCAL = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")


class Studio:
    """A running studio, as `partwise.studio.start` returns it.

    Examples
    --------
    >>> from partwise.io import read_samples
    >>> from partwise.studio import start
    >>> with start(read_samples("photos/"), "photos-studio") as studio:  # doctest: +SKIP
    ...     studio.wait()
    """

    def __init__(
        self, workspace: Workspace, server: Any, thread: threading.Thread, at: str, guard: Guard
    ) -> None:
        self._workspace, self._server, self._thread = workspace, server, thread
        self._at, self._guard = at, guard

    @property
    def url(self) -> str:
        """Address to open. Each access returns a new address that works once."""
        guard = self._guard
        return self._at if guard.password else f"{self._at}?token={guard.new_token()}"

    @property
    def labels(self) -> dict[str, str]:
        """Current label of each labelled sample, by id."""
        return self._workspace.labels

    @property
    def news(self) -> str:
        """Changes of the data since the last start, or an empty text."""
        return self._workspace.project.news

    def wait(self) -> None:
        """Wait until the server ends, by `close` or Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """Stop the server. All labels are on disk already."""
        self._server.should_exit = True
        self._thread.join(5)
        self._workspace.close()

    def __enter__(self) -> Studio:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank">Open the studio</a>'


def start(
    samples: Samples,
    project: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    password: str | None = None,
    seed: int = 0,
    labels: Any = None,
    compare_colours: bool = True,
    random_first: int = 0,
) -> Studio:
    """Start the studio and return while its server runs in the background.

    Parameters
    ----------
    samples : Samples
        Samples to label, for example from `partwise.io.read_samples`.
    project : path
        Folder for labels and part weights. An existing project continues.
    host : str, default="127.0.0.1"
        Address to listen on. Any address except this computer's own needs a password.
    port : int, default=0
        Port to listen on. 0 chooses the previous port of the project, or a free one.
    password : str, optional
        Password that the page asks for.
    seed : int, default=0
        Random seed of the model.
    labels : array-like of shape (n_samples,), default=None
        Initial labels for a new project; None where unknown.
    compare_colours : bool, default=True
        Read images again in colour or greyscale if the labels are separated better that way. Both
        are compared at 10, 20, 40, ... labels.
    random_first : int, default=0
        Number of samples drawn at random that the studio asks for first. Their labels measure the
        class sizes; 20 are enough to start with.

    Returns
    -------
    Studio
        The running server, with its ``url`` and the current ``labels``.

    Examples
    --------
    >>> from partwise.io import read_samples
    >>> from partwise.studio import start
    >>> studio = start(read_samples("photos/"), "photos-studio")  # doctest: +SKIP
    >>> studio.url  # doctest: +SKIP
    'http://127.0.0.1:8123/?key=...'
    >>> studio.close()  # doctest: +SKIP
    """
    import uvicorn

    from partwise.apps.studio.app import make_app

    if host not in LOCAL and not password:
        raise ValueError(
            f"--host {host} lets other computers on the network see and label the samples, so it "
            "needs --password."
        )
    if compare_colours:
        samples = in_chosen_colours(samples, project)
    workspace = Workspace(
        samples,
        project,
        seed=seed,
        labels=labels,
        compare_colours=compare_colours,
        random_first=random_first,
    )
    secret, last = workspace.project.connection()
    try:
        # open browser windows use the port of the last start
        listening = _listen_first(host, (port or last, port))
    except ValueError:
        workspace.close()
        raise
    port = listening.getsockname()[1]
    workspace.project.save_connection(secret, port)
    shown = f"[{host}]" if ":" in host else host
    names = {"127.0.0.1", "localhost", "[::1]"}
    names |= set() if host in LOCAL else {shown, socket.gethostname()}
    hosts = {f"{name}:{port}" for name in names}
    guard = Guard(make_app(workspace), hosts, password=password, secret=secret)
    config = uvicorn.Config(guard, log_level="error", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not in a thread

    def serve() -> None:
        """Run the server until it is stopped."""
        with listening:  # uvicorn before 0.35 does not close the socket if it ends during its start
            server.run(sockets=[listening])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    threading.Thread(target=_prepare, args=(workspace,), daemon=True).start()
    shown = socket.gethostname() if host in EVERYWHERE else shown
    return Studio(workspace, server, thread, f"http://{shown}:{port}/", guard)


def chosen_colours(project: str | Path) -> bool | None:
    """Return whether a project reads images in colour; None if not yet decided."""
    manifest = read_manifest(project)
    return manifest.get("rgb") if manifest.get("colours_compared") else None


def in_chosen_colours(samples: Samples, project: str | Path) -> Samples:
    """Return the samples, read again if the project chose colour or greyscale before."""
    rgb = chosen_colours(project)
    if rgb is None or samples.recipe.get("rgb", rgb) == rgb:
        return samples
    return read_samples(samples.source, **{**samples.options, "rgb": rgb})


def _listen_first(host: str, ports: tuple[int, ...]) -> socket.socket:
    """Return a socket that listens at the first free port of several."""
    for port in dict.fromkeys(ports):
        try:
            return listen(host, port)
        except OSError as error:
            reason = error.strerror
    raise ValueError(f"--port {port} on {host} cannot be used: {reason}.")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host address and port."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)  # requests wait until the server has started
    except OSError:
        listening.close()
        raise
    return listening


def _prepare(workspace: Workspace) -> None:
    """Prepare the workspace, and report an error to the page."""
    try:
        workspace.prepare()
    except Exception as error:
        workspace.listener("trouble", {"text": f"{type(error).__name__}: {error}"})
        raise
