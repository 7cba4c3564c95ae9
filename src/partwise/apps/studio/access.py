"""Access control of the studio, by a one-time token or a password."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from importlib import resources
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Maximum size of a request in bytes; the labels of 100,000 samples fit into it.
MAX_BYTES = 2_000_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
#: Content security policy of the map. WebGL needs `new Function`, and plotly writes style sheets.
#: This is safe, because no text of a user reaches the map's frame, and the frame may load only its
#: own scripts.
MAP_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guesses:
    """Delays after wrong passwords, by network address.

    After a few wrong passwords, each further one doubles the delay for its address.
    """

    FREE, LONGEST, MAX = 5, 60.0, 10_000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # number of wrong passwords, and end of the delay
        self._wrong: dict[str, tuple[int, float]] = {}

    def wait(self, scope: Scope) -> float:
        """Return the seconds until the address of a request may try another password."""
        return max(0.0, self._wrong.get(_address(scope), (0, 0.0))[1] - self._clock())

    def wrong(self, scope: Scope) -> None:
        """Record a wrong password from the address of a request."""
        address = _address(scope)
        times = self._wrong.pop(address, (0, 0.0))[0] + 1
        if len(self._wrong) >= self.MAX:
            del self._wrong[next(iter(self._wrong))]  # forget the oldest address
        pause = 0.0 if times < self.FREE else min(2.0 ** (times - self.FREE), self.LONGEST)
        self._wrong[address] = (times, self._clock() + pause)

    def right(self, scope: Scope) -> None:
        """Forget the wrong passwords of an address after a correct one."""
        self._wrong.pop(_address(scope), None)


def _address(scope: Scope) -> str:
    """Return the network address of a request.

    For IPv6 this is the /64 network, because one machine has many addresses in it.
    """
    name = str((scope.get("client") or ("",))[0])
    try:
        return str(ipaddress.ip_network((name.partition("%")[0], 64), strict=False))
    except ValueError:  # the address is IPv4 or a host name
        return name


def _same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return all values of a cookie; malformed cookies of other programs are skipped."""
    pairs = [pair for header in headers.getlist("cookie") for pair in header.split(";")]
    parts = [pair.partition("=") for pair in pairs]
    return [value.strip() for key, _, value in parts if key.strip() == name]


class Guard:
    """Web application wrapper that refuses requests without permission.

    It refuses requests of other hosts and origins, without the cookie, or that are too large. The
    address of the first visit contains a token. The response sets a cookie, and the token is
    refused from then on, because other users of this computer may have read it in the command line
    of the browser. With a password, the page asks for the password instead.

    Parameters
    ----------
    app : ASGI application
    hosts : set of str
        ``Host`` headers of this server, with the port.
    password : str or None
        Password instead of a token.
    secret : str or None
        Secret that the cookie is derived from. With the secret of an earlier start and the same
        password, windows of that start stay logged in. None uses a random secret.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: set[str],
        *,
        password: str | None = None,
        secret: str | None = None,
    ) -> None:
        self.app, self.hosts, self.password = app, hosts, password
        self._tokens: set[str] = set()
        key = secrets.token_urlsafe(32) if secret is None else secret
        self._cookie = hmac.new(key.encode(), (password or "").encode(), "sha256").hexdigest()
        self._guesses = Guesses()

    def new_token(self) -> str:
        """Return a token that gives access to one browser, once."""
        token = secrets.token_urlsafe(32)
        self._tokens.add(token)
        return token

    def _spend(self, given: str) -> bool:
        """Return whether a token is valid, and make it invalid."""
        token = next((token for token in self._tokens if _same(given, token)), None)
        self._tokens.discard(token or "")
        return token is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        policy = MAP_POLICY if scope["path"] == "/map" else POLICY

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**HEADERS, "Content-Security-Policy": policy})
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        receive = _limited(receive)
        answer = self._foreign(scope) or await self._entry(scope, receive)
        await (answer or self.app)(scope, receive, guarded)

    def _foreign(self, scope: Scope) -> Response | None:
        """Return the refusal of a request that is too large or comes from another site.

        The result is None for other requests.
        """
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts and host != self._address(scope):
            return PlainTextResponse(f"The studio has another address than {host[:80]!r}.", 421)
        if origin is not None and origin != f"http://{host}":
            return PlainTextResponse("A page of another site may not use the studio.", 403)
        writing = scope["method"] not in ("GET", "HEAD")
        if writing and origin is None and headers.get("sec-fetch-site") != "same-origin":
            return PlainTextResponse("A request that writes needs an Origin header.", 403)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BYTES:
            return PlainTextResponse(f"More than {MAX_BYTES:,} bytes.", 413)
        return None

    async def _entry(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a browser without the access cookie, or None with it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if any(_same(value, self._cookie) for value in _cookies(headers, self._name(host))):
            return None
        if self.password is not None:
            return await self._ask(Request(scope, receive), self.password)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] == "GET" and self._spend(given):
            return self._welcome(host)
        return PlainTextResponse(
            "Open the address that `partwise studio` printed. It works once, in one browser. For "
            "another browser, start the studio again; your labels are stored.",
            403,
        )

    async def _ask(self, request: Request, password: str) -> Response:
        """Return the password form, or check the password that was sent."""
        path, scope = request.url.path, request.scope
        if request.method == "POST" and path == "/login":
            wait = self._guesses.wait(scope)
            if wait > 0:
                text = f"Too many wrong passwords from your address; wait {wait:.0f} seconds."
                return PlainTextResponse(text, 429, {"Retry-After": f"{wait:.0f}"})
            body = b""
            async for piece in request.stream():
                body += piece
                if len(body) > 10_000:
                    break
            given = parse_qs(body.decode("utf-8", "replace")).get("password", [""])[0]
            if _same(given, password):
                self._guesses.right(scope)
                return self._welcome(request.headers.get("host", ""))
            self._guesses.wrong(scope)
        if path not in ("/", "/login"):
            return PlainTextResponse("Log in first.", 403)
        page = (resources.files("partwise.apps.studio") / "page" / "login.html").read_text("utf-8")
        return HTMLResponse(page, 401 if request.method == "POST" else 200)

    def _welcome(self, host: str) -> Response:
        """Return a redirection to the page that sets the access cookie."""
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._name(host), self._cookie, httponly=True, samesite="strict")
        return answer

    def _address(self, scope: Scope) -> str | None:
        """Return the numeric address of the connection, which another site cannot fake."""
        if self.password is None or scope.get("server") is None:
            return None
        name, port = scope["server"]
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    @staticmethod
    def _name(host: str) -> str:
        """Return the name of the cookie.

        It contains the port, because browsers share cookies between all ports of a host.
        """
        return "partwise_" + host.rpartition(":")[2]


def _limited(receive: Receive) -> Receive:
    """Return ``receive`` with a limit on the size of the request's body.

    The limit is needed for bodies that do not declare their length.
    """
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BYTES:
            raise ValueError(f"More than {MAX_BYTES:,} bytes.")
        return message

    return limited
