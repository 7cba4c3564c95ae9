"""The studio's endpoints: JSON in, JSON out, and one stream of news for every window."""

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
from partwise.apps.studio.workspace import Conflict, Desk, NotReady

#: Windows that may listen at the same time.
MOST_LISTENERS = 100
#: Characters of a class's name.
MOST_NAME = 200
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = {"/": "index.html", "/map": "map.html"}
#: What a user can cause, and how HTTP says it.
REFUSALS = {
    **{Conflict: 409, NotReady: 503, OSError: 507},  # a full disk
    **dict.fromkeys((ValueError, KeyError, IndexError), 400),
}


class News:
    """Tells every window what is new; a window that does not listen keeps no memory."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def tell(self, kind: str, content: Any) -> None:
        """From any thread."""
        if self._loop is None:
            return
        text = f"event: {kind}\ndata: {json.dumps(content)}\n\n"
        self._loop.call_soon_threadsafe(self._spread, text)

    def _spread(self, text: str) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()  # a sleeping window reads the newest when it wakes
            queue.put_nowait(text)

    def join(self) -> asyncio.Queue[str]:
        """A place in the room, taken at once; `Listening` gives it back."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=50)
        self._queues.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[str]) -> None:
        self._queues.discard(queue)

    @staticmethod
    async def read(queue: asyncio.Queue[str]) -> AsyncIterator[str]:
        yield "event: hello\ndata: {}\n\n"
        while True:
            try:
                yield await asyncio.wait_for(queue.get(), 15)
            except TimeoutError:
                yield ": still here\n\n"

    @property
    def full(self) -> bool:
        return len(self._queues) >= MOST_LISTENERS


class Listening(StreamingResponse):
    """News for one window, whose place is free again however this ends."""

    def __init__(self, news: News) -> None:
        self._news, self._queue = news, news.join()
        super().__init__(news.read(self._queue), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._news.leave(self._queue)


def make_app(desk: Desk) -> Starlette:
    """The application of one project, without its guard."""
    news = News()
    desk.listener = news.tell

    def endpoint(
        work: Callable[[dict[str, Any]], Any],
    ) -> Callable[[Request], Awaitable[Response]]:
        """``work`` of the request's words, in a thread."""

        async def answer(request: Request) -> Response:
            return _json(await run_in_threadpool(work, await _words(request)))

        return answer

    def _seen(words: dict[str, Any]) -> int | None:
        """The version that the page showed; one of an earlier start is before all of this one."""
        seen = words.get("seen")
        if seen is None or (isinstance(seen, int) and not isinstance(seen, bool)):
            return seen if words.get("start", desk.start) == desk.start else 0
        raise ValueError("seen must be the number of a version.")

    def label(words: dict[str, Any]) -> Any:
        return desk.label(_indices(words), _name(words), seen=_seen(words), **_who(words))

    async def events(request: Request) -> Response:
        if news.full:
            return PlainTextResponse("Too many windows listen.", 503)
        return Listening(news)

    async def picture(request: Request) -> Response:
        what, number = request.path_params["what"], request.path_params["i"]
        content = await run_in_threadpool(desk.picture, what, number)
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/png", headers=_KEEP)

    async def export(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in EXPORTS:
            raise HTTPException(404)
        content, kind = await run_in_threadpool(desk.export, name)
        attached = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=kind, headers=attached)

    posts: dict[str, Callable[[dict[str, Any]], Any]] = {
        "label": label,
        "rename": lambda words: desk.rename(
            _text(words, "class", MOST_NAME) or "", _name(words, "to"), **_who(words)
        ),
        "skip": lambda words: desk.skip(_indices(words), **_who(words)),
        "undo": lambda words: desk.undo(of=_text(words, "of"), **_who(words)),
        "part": lambda words: desk.edit_part(words, window=_who(words)["window"]),
        "save": lambda words: desk.save_all(),
    }
    gets: dict[str, Callable[[dict[str, Any]], Any]] = {
        "state": lambda words: desk.state(),
        "answer": lambda words: desk.answer(),
        "points": lambda words: desk.points(),
        "next": lambda words: desk.next(min(50, _number(words, "n", 9))),
        "list": lambda words: desk.list(
            words.get("class"),
            start=_number(words, "start", 0),
            n=min(100, _number(words, "n", 40)),
            search=str(words.get("search", ""))[:MOST_NAME],
        ),
        "text": lambda words: desk.text(_number(words, "i", 0)),
        "sample": lambda words: desk.sample(_number(words, "i", 0)),
        "parts": lambda words: desk.parts(),
        "progress": lambda words: desk.progress(),
    }
    routes = [Route(path, _static) for path in (*PAGES, "/static/{name}")]
    routes += [
        Route(f"/api/{name}", endpoint(work), methods=["POST"]) for name, work in posts.items()
    ]
    routes += [Route(f"/api/{name}", endpoint(work)) for name, work in gets.items()]
    routes += [
        Route("/api/events", events),
        Route("/api/picture/{what:str}/{i:int}", picture),
        Route("/api/export/{name:str}", export),
    ]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(REFUSALS, _refused))


async def _refused(request: Request, error: Exception) -> Response:
    """What went wrong, in one sentence."""
    status = next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)
    why = f"{error.strerror or error}." if isinstance(error, OSError) else str(error).strip("'")
    return JSONResponse({"error": why}, status)


_KEEP = {"Cache-Control": "private, max-age=3600"}


async def _words(request: Request) -> dict[str, Any]:
    if request.method == "GET":
        return dict(request.query_params)
    try:
        words = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("The request is no JSON.") from None
    if not isinstance(words, dict):
        raise ValueError("The request must be a JSON object.")
    return words


def _indices(words: dict[str, Any]) -> list[int]:
    samples = words.get("samples")
    if not isinstance(samples, list) or not samples:
        raise ValueError("samples must be a list of numbers.")
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in samples):
        raise ValueError("samples must be a list of numbers.")
    return samples


def _name(words: dict[str, Any], key: str = "label") -> str | None:
    """The class's name; None takes a label away."""
    label = words.get(key)
    if label is None:
        return None
    if not isinstance(label, str) or not label.strip():
        raise ValueError("A class needs a name.")
    label = " ".join(label.split())
    if len(label) > MOST_NAME:
        raise ValueError(f"A class's name has at most {MOST_NAME} characters.")
    if not label.isprintable():
        raise ValueError("A class's name has no control characters.")
    return label


def _who(words: dict[str, Any]) -> dict[str, Any]:
    """The window that asks, and what it calls its act."""
    return {"window": _text(words, "window") or "", "key": _text(words, "key")}


def _text(words: dict[str, Any], name: str, most: int = 40) -> str | None:
    value = words.get(name)
    if value is not None and not (isinstance(value, str) and value.isprintable()):
        raise ValueError(f"{name} must be plain text.")
    return None if value is None else value[:most]


def _number(words: dict[str, Any], name: str, usual: int) -> int:
    value = words.get(name, usual)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ValueError(f"{name} must be a number from 0 on.")
    return number


def _json(content: Any) -> Response:
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
    """A file of the page, compressed; plotly's script comes with its package."""
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return gzip.compress(get_plotlyjs().encode(), 6)
    page = resources.files("partwise.apps.studio") / "page" / name
    return gzip.compress(page.read_bytes(), 6)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    folder = resources.files("partwise.apps.studio") / "page"
    return frozenset({entry.name for entry in folder.iterdir()} | {"plotly.js"})


async def _static(request: Request) -> Response:
    name = PAGES.get(request.url.path) or request.path_params["name"]
    kind = TYPES.get(name[name.rfind(".") :])
    if kind is None or name not in _names():
        raise HTTPException(404)
    headers = {"Content-Encoding": "gzip"} | ({} if name in PAGES.values() else _KEEP)
    return Response(await run_in_threadpool(_file, name), headers=headers, media_type=kind)
