"""Pictures as ``data:`` addresses, so that a page is one file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

_INK = "#808080"  # readable on white and on black: one picture serves both themes


def image_uri(image: ArrayLike) -> str:
    """A non-negative image as PNG, 0 white and its largest value black (the page inverts it)."""
    from matplotlib.image import imsave

    pixels = np.asarray(image, dtype=np.float64)
    top = pixels.max(initial=0.0)
    buffer = io.BytesIO()
    vmax = top if top > 0 else 1.0
    imsave(buffer, pixels, cmap="gray_r", vmin=0.0, vmax=vmax, format="png")
    return _uri("image/png", buffer.getvalue())


def convergence_uri(histories: Mapping[str, Sequence[float]]) -> str:
    """Objective against iterations as SVG, each line relative to its own first value."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, history in histories.items():
        values = np.asarray(history, dtype=np.float64)
        axes.plot(np.arange(1, len(values) + 1), values / values[0], label=name, linewidth=1.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("iteration", color=_INK)
    axes.set_ylabel("objective / first value", color=_INK)
    axes.tick_params(which="both", colors=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.legend(frameon=False, labelcolor=_INK)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "partwise"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _uri("image/svg+xml", buffer.getvalue())


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
