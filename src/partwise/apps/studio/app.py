"""HTTP endpoints of the studio, which exchange JSON, and a stream of events."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from partwise.apps.studio.exports import EXPORTS
from partwise.apps.studio.workspace import Conflict, NotReady, Workspace

#: Maximum number of browser windows that may receive events at the same time.
MAX_LISTENERS = 100
#: Maximum number of characters of a search, and of the names of windows and requests.
MAX_SEARCH, MAX_KEY = 200, 40
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOLDER = resources.files("partwise.apps.studio") / "page"
NAMES = {entry.name for entry in FOLDER.iterdir()} | {"plotly.js"}
PAGES = {"/": "index.html", "/map": "map.html"}
#: HTTP status for errors that a user can cause; an OSError usually means that the disk is full.
REFUSALS = {
    **{Conflict: 409, NotReady: 503, OSError: 507},
    **dict.fromkeys((ValueError, KeyError, IndexError), 400),
}
CACHED = {"Cache-Control": "private, max-age=3600"}


class Events:
    """Events that are sent to all open browser windows.

    An event is not stored for windows that open later.
    """

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, kind: str, content: Any) -> None:
        """Send an event to all windows, from any thread."""
        if self._loop is None:
            return
        text = f"event: {kind}\ndata: {json.dumps(content)}\n\n"
        self._loop.call_soon_threadsafe(self._spread, text)

    def _spread(self, text: str) -> None:
        """Add an event to the queue of each window."""
        for queue in self._queues:
            if queue.full():
                # a window that sleeps reads only the newest events when it wakes
                queue.get_nowait()
            queue.put_nowait(text)

    def join(self) -> asyncio.Queue[str]:
        """Return a new queue with the events for one window.

        `Stream` removes it at the end.
        """
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=50)
        self._queues.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[str]) -> None:
        """Remove the queue of a window."""
        self._queues.discard(queue)

    @staticmethod
    async def read(queue: asyncio.Queue[str]) -> AsyncIterator[str]:
        """Yield the events in a queue, and a comment after 15 seconds without an event."""
        yield "event: hello\ndata: {}\n\n"
        while True:
            try:
                yield await asyncio.wait_for(queue.get(), 15)
            except TimeoutError:
                yield ": still here\n\n"

    @property
    def full(self) -> bool:
        """True if no further window may receive events."""
        return len(self._queues) >= MAX_LISTENERS


class Stream(StreamingResponse):
    """Response that sends events to one window until the window closes."""

    def __init__(self, events: Events) -> None:
        self._events, self._queue = events, events.join()
        super().__init__(events.read(self._queue), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._events.leave(self._queue)


def make_app(workspace: Workspace) -> Starlette:
    """Return the web application of one project, without access control."""
    events = Events()
    workspace.listener = events.send

    def endpoint(
        work: Callable[[dict[str, Any]], Any],
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a request handler that calls ``work`` in a thread with the arguments."""

        async def answer(request: Request) -> Response:
            return _json(await run_in_threadpool(work, await _arguments(request)))

        return answer

    def _seen(words: dict[str, Any]) -> int | None:
        """Return the version of the predictions that the page showed.

        A version of an earlier start of the studio is 0, because it precedes all versions of this
        start.
        """
        seen = words.get("seen")
        if seen is None or (isinstance(seen, int) and not isinstance(seen, bool)):
            return seen if words.get("start", workspace.start) == workspace.start else 0
        raise ValueError("seen must be the number of a version of the predictions.")

    async def stream(request: Request) -> Response:
        """Return the stream of events, unless too many windows are open."""
        if events.full:
            return PlainTextResponse("Too many windows are open.", 503)
        return Stream(events)

    async def picture(request: Request) -> Response:
        """Return the picture of a sample or part as PNG."""
        kind, number = request.path_params["kind"], request.path_params["i"]
        content = await run_in_threadpool(workspace.picture, kind, number)
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/png", headers=CACHED)

    async def export(request: Request) -> Response:
        """Return an exported file as a download."""
        name = request.path_params["name"]
        if name not in EXPORTS:
            raise HTTPException(404)
        write, kind = EXPORTS[name]
        content = await run_in_threadpool(write, workspace)
        attached = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=kind, headers=attached)

    posts: dict[str, Callable[[dict[str, Any]], Any]] = {
        "label": lambda words: workspace.label(
            _indices(words), words.get("label"), seen=_seen(words), **_sender(words)
        ),
        "rename": lambda words: workspace.rename(
            _text(words, "class", MAX_SEARCH) or "", words.get("to"), **_sender(words)
        ),
        "skip": lambda words: workspace.skip(_indices(words), **_sender(words)),
        "undo": lambda words: workspace.undo(of=_text(words, "of"), **_sender(words)),
        "part": lambda words: workspace.edit_part(words, window=_sender(words)["window"]),
        "save": lambda words: workspace.save_all(),
    }
    gets: dict[str, Callable[[dict[str, Any]], Any]] = {
        "state": lambda words: workspace.state(),
        "predictions": lambda words: workspace.current(),
        "points": lambda words: workspace.points(),
        "next": lambda words: workspace.next(min(50, _number(words, "n", 9))),
        "list": lambda words: workspace.list(
            words.get("class"),
            start=_number(words, "start", 0),
            n=min(100, _number(words, "n", 40)),
            search=str(words.get("search", ""))[:MAX_SEARCH],
        ),
        "text": lambda words: workspace.text(_number(words, "i", 0)),
        "sample": lambda words: workspace.sample(_number(words, "i", 0)),
        "parts": lambda words: workspace.parts(),
        "progress": lambda words: workspace.progress(),
    }
    routes = [Route(path, _static) for path in (*PAGES, "/static/{name}")]
    routes += [
        Route(f"/api/{name}", endpoint(work), methods=["POST"]) for name, work in posts.items()
    ]
    routes += [Route(f"/api/{name}", endpoint(work)) for name, work in gets.items()]
    routes += [
        Route("/api/events", stream),
        Route("/api/picture/{kind:str}/{i:int}", picture),
        Route("/api/export/{name:str}", export),
    ]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(REFUSALS, _refused))


async def _refused(request: Request, error: Exception) -> Response:
    """Return the response for an error that the user caused, with one sentence."""
    status = next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)
    text = f"{error.strerror or error}." if isinstance(error, OSError) else str(error).strip("'")
    return JSONResponse({"error": text}, status)


async def _arguments(request: Request) -> dict[str, Any]:
    """Return the arguments of a request, from its JSON body or its query."""
    if request.method == "GET":
        return dict(request.query_params)
    try:
        words = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("The request is not JSON.") from None
    if not isinstance(words, dict):
        raise ValueError("The request must be a JSON object.")
    return words


def _indices(words: dict[str, Any]) -> list[int]:
    """Return the sample numbers in a request, after checking them."""
    found = words.get("samples")
    if not isinstance(found, list) or not found or not all(type(i) is int for i in found):
        raise ValueError("samples must be a list of numbers.")
    if min(found) < 0:
        raise ValueError(f"There is no sample {min(found)}.")
    return found


def _sender(words: dict[str, Any]) -> dict[str, Any]:
    """Return the window that sent a request, and the key that identifies the request."""
    return {"window": _text(words, "window") or "", "key": _text(words, "key")}


def _text(words: dict[str, Any], name: str, most: int = MAX_KEY) -> str | None:
    """Return a text argument of a request, cut to its maximum length, or None."""
    value = words.get(name)
    if value is not None and not (isinstance(value, str) and value.isprintable()):
        raise ValueError(f"{name} must be plain text.")
    return None if value is None else value[:most]


def _number(words: dict[str, Any], name: str, default: int) -> int:
    """Return a non-negative integer argument of a request."""
    value = words.get(name, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ValueError(f"{name} must be a whole number, 0 or above.")
    return number


def _json(content: Any) -> Response:
    """Return a JSON response, compressed if it is large."""
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) < 2000:
        return Response(data, media_type="application/json")
    return Response(
        gzip.compress(data, 1),
        media_type="application/json",
        headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"},
    )


@lru_cache(maxsize=32)
def _file(name: str) -> bytes:
    """Return a compressed file of the page.

    The script of plotly comes from its package.
    """
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return gzip.compress(get_plotlyjs().encode(), 6)
    return gzip.compress((FOLDER / name).read_bytes(), 6)


async def _static(request: Request) -> Response:
    """Return a file of the page as a response."""
    name = PAGES.get(request.url.path) or request.path_params["name"]
    kind = TYPES.get(name[name.rfind(".") :])
    if kind is None or name not in NAMES:
        raise HTTPException(404)
    # Only plotly is cached, so that scripts of different versions of Partwise never mix.
    headers = {"Content-Encoding": "gzip"} | (CACHED if name == "plotly.js" else {})
    return Response(await run_in_threadpool(_file, name), headers=headers, media_type=kind)
