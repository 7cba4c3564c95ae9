"""Machine learning backend for the annotation tool Label Studio.

Label Studio sends its tasks to ``/predict`` and its annotations to ``/webhook``. Each annotation
retrains the model. A task belongs to the sample whose id, file name or text is in the task's data.
"""

from __future__ import annotations

import base64
import hmac
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from partwise import __version__
from partwise.apps.studio.access import Guesses
from partwise.apps.studio.workspace import Workspace
from partwise.io.label_files import find_names, names_in, place

#: Maximum size of a request in bytes; a request contains a batch of tasks with their texts.
MAX_BYTES = 50_000_000
#: Number of unlabelled samples that `suggest` orders. The others follow with increasing certainty.
ORDERED = 200
CREATED, UPDATED, DELETED = "ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED"


class Choices(NamedTuple):
    """The "Choices" tag of a labelling configuration, in which users choose a class."""

    from_name: str
    to_name: str
    values: frozenset[str]

    @classmethod
    def parse(cls, config: Any) -> Choices:
        """Return the first "Choices" tag of a labelling configuration in XML."""
        if not isinstance(config, str) or "<!" in config.replace("<!--", ""):
            raise ValueError("label_config must be XML without a document type.")
        try:
            root = ElementTree.fromstring(config)
        except ElementTree.ParseError as error:
            raise ValueError(f"label_config is not valid XML: {error}.") from None
        tag = root.find(".//Choices[@name][@toName]")
        if tag is None:
            raise ValueError("label_config needs a Choices tag with name and toName.")
        values = {c.get("alias") or c.get("value") or "" for c in tag.iter("Choice")}
        return cls(tag.attrib["name"], tag.attrib["toName"], frozenset(values))

    def region(self, label: str, probability: float) -> list[dict[str, Any]]:
        """Return the prediction of one label in Label Studio's format.

        The list is empty if the project has no choice of this name.
        """
        if self.values and label not in self.values:
            return []
        names = {"from_name": self.from_name, "to_name": self.to_name, "type": "choices"}
        return [{**names, "value": {"choices": [label]}, "score": probability}]


class Backend:
    """Endpoints of the backend for one studio workspace.

    They return predictions for tasks, and store labels from annotations.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._known = find_names(workspace.samples.ids)
        texts = workspace.samples.whole_texts or workspace.samples.texts or ()
        self._texts = {" ".join(text.split()): i for i, text in enumerate(texts)}
        self._choices: Choices | None = None
        self._ranks: tuple[int, dict[int, float]] = (-1, {})

    @property
    def version(self) -> str:
        """Version of the current model, which changes with every label."""
        return f"partwise-{__version__}-{self.workspace.start}-{self.workspace.version}"

    def setup(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Check and store the labelling configuration that Label Studio sends."""
        if body.get("schema"):
            self._choices = Choices.parse(body["schema"])
        return {"model_version": self.version}

    def predict(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the predicted label of each task, its probability and its labelling rank.

        The score of a prediction is low for samples that should be labelled first.
        """
        tasks = body.get("tasks")
        if not isinstance(tasks, list):
            raise ValueError("tasks must be a list.")
        if body.get("label_config"):
            self._choices = Choices.parse(body["label_config"])
        if self._choices is None:
            raise ValueError("label_config is missing, and /setup was not called.")
        with self.workspace.lock:  # a review that ends now must not change the model meanwhile
            return {"results": [self._prediction(self._find(task)) for task in tasks]}

    def _prediction(self, row: int | None) -> dict[str, Any]:
        """Return the prediction for one sample in Label Studio's format.

        ``row`` is None if the task has no sample.
        """
        if row is None:
            return {"result": [], "score": 1.0, "model_version": self.version}
        now, choices = self.workspace.predictions, self._choices
        assert choices is not None
        result = []
        label = now.name(row)
        if label is not None:
            result = choices.region(label, round(float(now.probability[row]), 4))
        return {
            "result": result, "score": self._order().get(row, 1.0), "model_version": self.version,
        }  # fmt: skip

    def _order(self) -> dict[int, float]:
        """Return the rank of each unlabelled sample in the labelling order, from 0 to 1."""
        version, ranks = self._ranks
        if version != self.workspace.version:
            version, now = self.workspace.version, self.workspace.predictions
            first = [brief["i"] for brief in self.workspace.next(ORDERED)]
            rest = set(range(now.given.size)) - set(first)
            later = sorted((i for i in rest if not now.given[i]), key=lambda i: now.probability[i])
            ranks = {i: n / now.given.size for n, i in enumerate([*first, *later])}
            self._ranks = version, ranks
        return ranks

    def _find(self, task: Any) -> int | None:
        """Return the row of the sample that a task shows, or None if there is none."""
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise ValueError("Each task needs data.")
        values = [str(data["id"])] if "id" in data else []
        values += [value for value in data.values() if isinstance(value, str)]
        names = [name for value in values for name in names_in(value)]
        rows = [place(self._known, name) for name in names]
        rows += [self._texts.get(" ".join(value.split())) for value in values]
        return next((row for row in rows if row is not None), None)

    def webhook(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add or remove the label of an annotation, and retrain the model."""
        action = body.get("action")
        if action in (CREATED, UPDATED):
            return self._annotated(body)
        if action == DELETED:
            for annotation in body.get("annotations") or []:
                self._deleted(annotation)
        return {"model_version": self.version}

    def _annotated(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store the label of a new or changed annotation."""
        annotation = body.get("annotation") or {}
        row = self._find(body.get("task"))
        if row is None:
            raise ValueError("No sample has the id, file name or text of this task.")
        regions = [] if annotation.get("was_cancelled") else annotation.get("result") or []
        chosen = {c for one in regions for c in one.get("value", {}).get("choices", ())}
        if len(chosen) > 1:
            raise ValueError(f"The annotation has several choices: {', '.join(sorted(chosen))}.")
        label = next(iter(chosen), None)
        if label is None:
            self.workspace.skip([row], window="Label Studio")
        # Label Studio may send the same event twice, so an unchanged label is ignored.
        elif label != self.workspace.labels.get(self.workspace.samples.ids[row]):
            self.workspace.label([row], str(label), window=_window(annotation))
        return {"model_version": self.version}

    def _deleted(self, annotation: Any) -> None:
        """Remove the label of a deleted annotation, unless a later annotation replaced it."""
        window, entries = _window(annotation), self.workspace.journal.entries
        own = [entry for entry in entries if entry.window == window and entry.labels]
        name = next(iter(own[-1].labels), None) if own else None
        if name is not None and [entry for entry in entries if name in entry.labels][-1] is own[-1]:
            self.workspace.label([self._known[name]], None, window=window)


def _window(annotation: Mapping[str, Any]) -> str:
    """Return the identifier under which the journal stores an annotation."""
    return f"Label Studio {annotation.get('id')}"


def make_app(workspace: Workspace) -> Starlette:
    """Return the web application with the endpoints that Label Studio calls."""
    backend = Backend(workspace)

    def endpoint(work: Callable[[dict[str, Any]], dict[str, Any]], status: int = 200) -> Any:
        """Return a request handler that calls ``work`` with the JSON of the request."""

        async def respond(request: Request) -> Response:
            try:
                body = json.loads(await request.body() or b"{}")
                if not isinstance(body, dict):
                    raise ValueError("The request must be a JSON object.")
                return JSONResponse(await run_in_threadpool(work, body), status)
            except (ValueError, RecursionError) as error:
                return JSONResponse({"error": str(error)}, 400)

        return respond

    async def health(_: Request) -> Response:
        """Return a response that reports that the backend is running."""
        return JSONResponse({"status": "UP", "model_class": "PartsClassifier"})

    return Starlette(
        routes=[
            Route("/", health),
            Route("/health", health),
            Route("/setup", endpoint(backend.setup), methods=["POST"]),
            Route("/predict", endpoint(backend.predict), methods=["POST"]),
            Route("/webhook", endpoint(backend.webhook, 201), methods=["POST"]),
        ]
    )


class Guard:
    """Web application wrapper that refuses unwanted requests.

    It refuses requests from web pages or other hosts, very large requests, and requests with a
    wrong password.
    """

    def __init__(self, app: ASGIApp, password: str | None) -> None:
        self.app, self.password, self._guesses = app, password, Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope), scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, headers: Headers, scope: Scope) -> Response | None:
        """Return the error response to a request, or None if the request is allowed."""
        if "origin" in headers:
            return PlainTextResponse("A web page may not use this backend.", 403)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BYTES or "transfer-encoding" in headers:
            return PlainTextResponse(f"A request has at most {MAX_BYTES:,} bytes.", 413)
        if self.password is None:
            name = headers.get("host", "").rpartition(":")[0]
            local = name in ("127.0.0.1", "localhost", "[::1]")
            return None if local else PlainTextResponse("This backend serves this computer.", 421)
        wait = self._guesses.wait(scope)
        if wait > 0:
            return PlainTextResponse(f"Wrong passwords; wait {wait:.0f} seconds.", 429)
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = base64.b64encode(f"partwise:{self.password}".encode())
        if kind.lower() == "basic" and hmac.compare_digest(given.strip().encode(), expected):
            self._guesses.right(scope)
            return None
        if given:
            self._guesses.wrong(scope)
        asks = {"WWW-Authenticate": "Basic"}
        return PlainTextResponse("The user is partwise; the password is wrong.", 401, asks)
