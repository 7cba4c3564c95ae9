"""What the plots share: axes, the parts of a model, and pictures in a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def bare(ax: Any, *, yticks: bool = False) -> Any:
    """Without axes, but with the ground that lies between the pictures."""
    ax.set_xticks([])
    if not yticks:
        ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def parts_of(model: Any) -> NDArray[Any]:
    H = getattr(model, "components_", None if hasattr(model, "get_params") else model)
    if H is None:
        raise ValueError(
            f"{type(model).__name__} has no components_: fit it first; a kernel other than linear "
            "has no parts in the space of the data."
        )
    H = np.asarray(H)
    if H.ndim != 2:
        raise ValueError(f"the parts must be rows of a matrix, got shape {H.shape}.")
    return H


def upright(H: NDArray[Any], shape: Any) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Parts with pixels row by row, and the shape of a picture, from a shape or from data."""
    if not hasattr(shape, "image_shape"):
        return H, tuple(shape)
    if shape.image_shape is None:
        raise ValueError(f"{shape!r} holds no images; give shape=(height, width).")
    height, width = shape.image_shape[:2]
    if getattr(shape, "image_order", "C") == "F" and height * width == H.shape[1]:
        H = H.reshape(len(H), width, height).transpose(0, 2, 1).reshape(len(H), -1)
    return H, tuple(shape.image_shape)


def pictures_of(H: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Each row as a picture, scaled to [-1, 1]."""
    if math.prod(shape) != H.shape[1] or len(shape) not in (2, 3):
        raise ValueError(
            f"shape={tuple(shape)} does not hold the {H.shape[1]} features of a part; give "
            "(height, width) or (height, width, 3) with that product."
        )
    top = np.abs(H).max(axis=1, keepdims=True)
    scaled: NDArray[Any] = np.divide(H, top, out=np.zeros(H.shape), where=top > 0)
    return scaled.reshape(len(H), *shape)


def draw_grid(
    pictures: NDArray[Any], places: Sequence[tuple[int, int]], ax: Any, cmap: str | None
) -> Any:
    """Pictures on a canvas with a line of one pixel around each."""
    _, height, width, *channels = pictures.shape
    rows = 1 + max(row for row, _ in places)
    columns = 1 + max(column for _, column in places)
    canvas = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, *channels), np.nan)
    for picture, (row, column) in zip(pictures, places):
        top, left = row * (height + 1) + 1, column * (width + 1) + 1
        canvas[top : top + height, left : left + width] = picture
    if channels:
        shown = np.where(np.isnan(canvas), 1.0, np.clip(canvas, 0, 1))
        ax.imshow(shown, interpolation="nearest")
        return ax
    signed = bool((pictures < 0).any())
    # a light grey between the pictures, so that empty borders do not run together
    ax.set_facecolor("0.85")
    ax.imshow(
        np.ma.masked_invalid(canvas),
        cmap=cmap or ("RdBu_r" if signed else "gray"),
        vmin=-1 if signed else 0,
        vmax=1,
        interpolation="nearest",
    )
    return ax
