"""What a page is made of: its template, and pictures as ``data:`` addresses, all in one file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from partwise.io.images import png

INK = "#808080"  # readable on white and on black: one picture serves both themes


def render(template: str, **context: Any) -> str:
    """Fill one of the package's templates; whatever is put in is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partwise.view.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context)


def image_uri(image: ArrayLike) -> str:
    """A non-negative image as PNG, 0 black and its largest value white, as in the data."""
    return picture_uri(png(image, np.max(image, initial=0.0)))


def part_uri(part: ArrayLike) -> tuple[str, str]:
    """A part as PNG of small size, and its kind: "grey", "signed" or "colour".

    Grey runs from black at 0 to white, as in the images themselves. A signed part is blue below
    zero and red above. A part of three channels is shown in its colours. All are scaled to their
    largest entry.
    """
    pixels = np.asarray(part, dtype=np.float64)
    top = np.abs(pixels).max(initial=0.0)
    scaled = pixels / (top if top > 0 else 1.0)
    if pixels.min(initial=0.0) < 0 and pixels.ndim == 2:
        # towards white at zero
        fade = 1 - np.abs(scaled)
        shown = np.stack([np.where(scaled > 0, 1, fade), fade, np.where(scaled < 0, 1, fade)], -1)
        return picture_uri(png(shown)), "signed"
    return picture_uri(png(scaled)), "colour" if pixels.ndim == 3 else "grey"


def picture_uri(content: bytes) -> str:
    """A PNG, WebP or JPEG file as an address."""
    kinds = {b"RIFF": "image/webp", b"\xff\xd8\xff\xe0": "image/jpeg"}
    return _uri(kinds.get(content[:4], "image/png"), content)


def convergence_uri(histories: Mapping[str, Sequence[float]]) -> str:
    """Objective against iterations, each line relative to its own first value."""
    from matplotlib.ticker import StrMethodFormatter

    from partwise.view.plot import convergence

    figure, axes = new_figure((7.2, 3.2))
    convergence(histories, relative=True, ax=axes)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=INK)
    return figure_uri(figure)


def new_figure(size: tuple[float, float], **grid: Any) -> tuple[Any, Any]:
    """A figure that no window shows, and its Axes: one, or an array of ``nrows`` by ``ncols``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(**grid)


def figure_uri(figure: Any, kind: str = "svg") -> str:
    """A figure as SVG, or as PNG where it has very many marks; readable on white and on black."""
    from matplotlib import rc_context, rcParams

    for axes in figure.axes:
        axes.tick_params(which="both", colors=INK)
        texts = [axes.xaxis.label, axes.title]
        # a second axis has the colour of its line, and so has what it is named by
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
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
