"""HTML templates, and images as ``data:`` URLs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from partwise.io.images import png

INK = "#808080"  # grey is readable on white and on black, so that one image serves both themes


def render(template: str, **context: Any) -> str:
    """Return a filled page template; values in HTML pages are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partwise.apps.view.report"),
        autoescape=not template.endswith(".txt"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment.get_template(template).render(**context)


def image_uri(image: ArrayLike) -> str:
    """Return a ``data:`` URL of a non-negative image, with its largest value white."""
    return picture_uri(png(image, np.max(image, initial=0.0)))


def part_uri(part: ArrayLike) -> tuple[str, str]:
    """Return a ``data:`` URL of a part, and its kind: "grey", "signed" or "colour".

    Parts are scaled to their largest entry. Grey parts are black at 0, signed parts are blue below
    zero and red above, and parts with three channels are shown in colour.
    """
    pixels = np.asarray(part, dtype=np.float64)
    top = np.abs(pixels).max(initial=0.0)
    scaled = pixels / (top if top > 0 else 1.0)
    if pixels.min(initial=0.0) < 0 and pixels.ndim == 2:
        # colours fade to white at zero
        fade = 1 - np.abs(scaled)
        shown = np.stack([np.where(scaled > 0, 1, fade), fade, np.where(scaled < 0, 1, fade)], -1)
        return picture_uri(png(shown)), "signed"
    return picture_uri(png(scaled)), "colour" if pixels.ndim == 3 else "grey"


def picture_uri(content: bytes) -> str:
    """Return the content of a PNG, WebP or JPEG file as a ``data:`` URL."""
    kinds = {b"RIFF": "image/webp", b"\xff\xd8\xff\xe0": "image/jpeg"}
    return _uri(kinds.get(content[:4], "image/png"), content)


def convergence_uri(histories: Mapping[str, Sequence[float]]) -> str:
    """Return a plot of objectives by iteration, relative to their first values."""
    from matplotlib.ticker import StrMethodFormatter

    from partwise.apps.view.plot import convergence

    figure, axes = new_figure((7.2, 3.2))
    convergence(histories, relative=True, ax=axes)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=INK)
    return figure_uri(figure)


def new_figure(size: tuple[float, float], **grid: Any) -> tuple[Any, Any]:
    """Return a new matplotlib figure that needs no display, and its Axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(**grid)


def figure_uri(figure: Any, kind: str = "svg") -> str:
    """Return a figure as a ``data:`` URL, readable on white and on black."""
    from matplotlib import rc_context, rcParams

    for axes in figure.axes:
        axes.tick_params(which="both", colors=INK)
        texts = [axes.xaxis.label, axes.title]
        # Labels of a second axis keep the colour of their line.
        texts += [axes.yaxis.label] * (axes.yaxis.label.get_color() == rcParams["axes.labelcolor"])
        for text in texts:
            text.set_color(INK)
        axes.spines[:].set_color(INK)
        if kind == "svg":
            axes.spines["top"].set_visible(False)
            axes.spines["right"].set_visible(len(figure.axes) > 1)
    buffer = io.BytesIO()
    nameless = {"Date" if kind == "svg" else "Software": None}
    with rc_context({"svg.hashsalt": "partwise"}):
        figure.savefig(buffer, format=kind, dpi=130, transparent=True, metadata=nameless)
    return _uri("image/svg+xml" if kind == "svg" else "image/png", buffer.getvalue())


def _uri(kind: str, content: bytes) -> str:
    """Return the content of a file as a ``data:`` URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
