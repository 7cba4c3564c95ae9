"""Server of the studio, in a thread."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

from partwise.apps.studio.access import Guard
from partwise.apps.studio.answers import Judge
from partwise.apps.studio.project import Project
from partwise.apps.studio.workspace import Desk
from partwise.io.samples import Samples

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
        self, desk: Desk, server: Any, thread: threading.Thread, at: str, guard: Guard
    ) -> None:
        self._desk, self._server, self._thread = desk, server, thread
        self._at, self._guard = at, guard

    @property
    def url(self) -> str:
        """Address to open. Each access returns a new address that works once."""
        guard = self._guard
        return self._at if guard.password else f"{self._at}?token={guard.new_token()}"

    @property
    def labels(self) -> dict[str, str]:
        """Current label of each labelled sample, by id."""
        return self._desk.labels

    @property
    def news(self) -> str:
        """Changes of the data since the last start, or an empty text."""
        return self._desk.project.news

    def wait(self) -> None:
        """Wait until the server ends, by `close` or Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """Stop the server. All labels are on disk already."""
        self._server.should_exit = True
        self._thread.join(5)
        self._desk.close()

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
            f"--host {host} lets others on the network see the samples and label them; it needs "
            "--password."
        )
    desk = open_desk(samples, project, seed=seed, labels=labels)
    kept = desk.project
    secret, last = kept.door()
    listening = None
    for wanted in dict.fromkeys((port or last, port)):  # where open windows look for it, first
        try:
            listening = listen(host, wanted)
            break
        except OSError as error:
            reason = error.strerror
    if listening is None:
        desk.close()
        raise ValueError(f"--port {port} on {host} cannot be used: {reason}.")
    port = listening.getsockname()[1]
    kept.keep_door(secret, port)
    written = f"[{host}]" if ":" in host else host
    names = {"127.0.0.1", "localhost", "[::1]"}
    names |= set() if host in LOCAL else {written, socket.gethostname()}
    hosts = {f"{name}:{port}" for name in names}
    guard = Guard(make_app(desk), hosts, password=password, secret=secret)
    config = uvicorn.Config(guard, log_level="error", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not ours alone

    def serve() -> None:
        with listening:  # uvicorn < 0.35 leaves it open where it is told to end while it starts
            server.run(sockets=[listening])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    threading.Thread(target=_prepare, args=(desk,), daemon=True).start()
    shown = socket.gethostname() if host in EVERYWHERE else written
    return Studio(desk, server, thread, f"http://{shown}:{port}/", guard)


def open_desk(samples: Samples, project: str | Path, *, seed: int, labels: Any = None) -> Desk:
    """Open a project for these samples; ``labels`` count where it has none yet."""
    desk = Desk(samples, Project(project, samples), Judge(samples, seed=seed))
    if labels is not None:
        desk.begin_with(labels)
    return desk


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)  # who comes before the server is up waits
    except OSError:
        listening.close()
        raise
    return listening


def _prepare(desk: Desk) -> None:
    try:
        desk.prepare()
    except Exception as error:
        desk.listener("trouble", {"text": f"{type(error).__name__}: {error}"})
        raise
