"""A folder of images as samples: one row of pixels each."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from partwise.io._common import (
    SCALE_WORDS,
    Options,
    apply_scale,
    learn_scale,
    need,
    read_files,
    shown,
)
from partwise.io.samples import Samples

HEIC = {".heic", ".heif", ".hif"}
SUFFIXES = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
SUFFIXES |= {".pgm", ".ppm", ".avif", *HEIC}
#: Only these formats are opened, for any file name, because others such as EPS start programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "AVIF", "HEIF")
#: Message if an image is HEIC, the format of iPhones.
NEEDS_HEIC = "HEIC images need pillow-heif: pip install 'partwise[heic]'"
#: Images with more pixels than this are shrunk unless a size is given.
MAX_PIXELS = 64 * 64

THUMBNAIL = 96


def read_images(folder: Path, files: Sequence[Path], options: Options) -> Samples:
    """Read all images of a folder, grey or RGB, in one size, as rows of length one."""
    size, rgb, recipe = options.size, options.rgb, options.recipe
    if recipe is not None:
        height, width = (int(side) for side in recipe["size"])
        size, rgb = (height, width), bool(recipe["rgb"])
    if options.embeddings_only:  # they replace the pixels
        size = (8, 8)
    elif size is None:
        size = _common_size(files, options)

    def look(file: Path) -> tuple[np.ndarray, tuple[int, int], bool, bool, bool]:
        image, turned, more = _open(file)
        coloured = not rgb and _has_colour(image)
        return _pixels(image, size, rgb), (image.height, image.width), coloured, turned, more

    found, ids, skipped = read_files(folder, files, options, "images", look)
    if any(NEEDS_HEIC in reason for _, reason in skipped):
        options.note(f"{NEEDS_HEIC}.")
    rows, sizes, coloured, turned, in_pages = zip(*found)
    X = np.stack(rows)
    made: dict[str, Any] = {"kind": "images", "reader": "image files", "size": size, "rgb": rgb}
    scale = "unit" if options.scale == "auto" else options.scale
    made |= learn_scale(X, scale) if recipe is None else dict(recipe)
    _note_oddities(ids, coloured, turned, in_pages, options)
    resized = "of" if set(sizes) == {size} else "resized to"
    return Samples(
        apply_scale(X, made),
        ids,
        "images",
        image_shape=(*size, 3) if rgb else size,
        thumbnails=_thumbnails([folder / name for name in ids]),
        source=str(folder),
        preparation=f"Images {resized} {_said(size)}, {'RGB' if rgb else 'grey'}; "
        f"{SCALE_WORDS[made['scale']]}.",
        recipe=made,
        skipped=tuple(skipped),
    )


def _note_oddities(
    ids: Sequence[str],
    coloured: Sequence[bool],
    turned: Sequence[bool],
    in_pages: Sequence[bool],
    options: Options,
) -> None:
    """Report how many images were rotated, have several pages, or lost their colours."""
    n = len(ids)
    if any(turned):
        options.note(f"{sum(turned)} of {n} images were turned upright, as their cameras noted.")
    if any(in_pages):
        names = shown(name for name, more in zip(ids, in_pages) if more)
        options.note(f"Only the first page of {sum(in_pages)} of {n} images was read: {names}.")
    if any(coloured) and options.recipe is None and not options.embeddings_only:
        part = "all" if all(coloured) else f"{sum(coloured)} of {n}"
        options.note(f"The colours of {part} images were dropped; --rgb keeps them.")


def _said(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _common_size(files: Sequence[Path], options: Options) -> tuple[int, int]:
    """Return one size for all images, the medians of both sides; note if they differ."""
    sizes = {file: size for file in files if (size := _size(file)) is not None}
    if not sizes:
        return 1, 1  # the reader reports that no image can be read
    every = sorted(set(sizes.values()))
    if len(every) > 1 and options.strict:
        first, other = (next(f.name for f, size in sizes.items() if size == s) for s in every[:2])
        raise ValueError(
            f"{first} and {other} differ in size; use --size 32 to resize all images to 32x32."
        )
    heights, widths = np.array(list(sizes.values())).T
    height, width = int(np.median(heights)), int(np.median(widths))
    # The largest size of that shape with at most 64 x 64 pixels.
    shrink = min(1.0, (MAX_PIXELS / (height * width)) ** 0.5)
    common = max(1, int(height * shrink)), max(1, int(width * shrink))
    if len(every) > 1:
        ends = f"{_said(every[0])} to {_said(every[-1])}"
        options.note(f"Images differ in size ({ends}); resized to {_said(common)}, see --size 32.")
    return common


def _size(file: Path) -> tuple[int, int] | None:
    """Return height and width of an image as displayed; None if it cannot be read.

    Only the header of the file is read.
    """
    image_module = _opener()
    with contextlib.suppress(Exception), warnings.catch_warnings():  # the reader reports the reason
        warnings.simplefilter("error")
        with image_module.open(file, formats=FORMATS) as image:
            sides = image.height, image.width
            return sides[::-1] if image.getexif().get(0x0112, 1) > 4 else sides
    return None


def _opener() -> Any:
    """Return `PIL.Image`, which also reads HEIC if pillow-heif is installed."""
    image_module = need("PIL.Image", "images", "pillow")
    with contextlib.suppress(ImportError):
        if "HEIF" not in image_module.OPEN:
            importlib.import_module("pillow_heif").register_heif_opener()
    return image_module


def _open(file: Path) -> tuple[Any, bool, bool]:
    """Open an image upright; return whether it was rotated and whether its file has more pages.

    Errors of the image library become one line.
    """
    image_module = _opener()
    ops = need("PIL.ImageOps", "images", "pillow")
    try:
        with warnings.catch_warnings():
            # Only the warning about extremely large images is an error; others are harmless.
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            with image_module.open(file, formats=FORMATS) as image:
                # The second page of a camera's MPO file is a preview.
                more = image.format != "MPO" and bool(getattr(image, "is_animated", False))
                image.load()
                turned = image.getexif().get(0x0112, 1) > 1  # Orientation
                return ops.exif_transpose(image), turned, more
    except Exception as error:  # damaged files raise nearly any exception
        if isinstance(error, Warning) and "DecompressionBomb" not in type(error).__name__:
            raise
        reason = "" if type(error).__name__ == "UnidentifiedImageError" else f" ({error})"
        if file.suffix.lower() in HEIC and "HEIF" not in image_module.OPEN:
            reason = f" ({NEEDS_HEIC})"
        raise ValueError(f"{file.name} cannot be read{reason}.") from error


def _has_colour(image: Any) -> bool:
    """Return whether the channels differ by more than compression artefacts."""
    if image.mode in ("1", "L", "LA") or _is_deep(image):
        return False
    small = image.convert("RGB")
    small.thumbnail((32, 32))
    pixels = np.asarray(small, dtype=np.int16)
    return bool((pixels.max(axis=2) - pixels.min(axis=2)).mean() > 4)


def _pixels(image: Any, size: tuple[int, int], rgb: bool) -> np.ndarray:
    """Return brightness row by row, from 0 to 1 for integers; transparency becomes white."""
    from PIL import Image

    if _is_deep(image):
        return _deep_pixels(image, size, rgb)
    image = _on_white(image).convert("RGB" if rgb else "L")
    if (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.float64).ravel() / 255


def open_image(file: Path) -> Any:
    """Return the picture in a file in its own size, upright, with eight bits per channel."""
    return _on_white(_stretched(_open(file)[0]))


def _on_white(image: Any) -> Any:
    """Return an image without transparency."""
    from PIL import Image

    if not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _is_deep(image: Any) -> bool:
    """Return whether an image has at least 16 bits per pixel."""
    return bool(image.mode.startswith(("I", "F")))


def _deep_pixels(image: Any, size: tuple[int, int], rgb: bool) -> np.ndarray:
    """Return a deep image with all levels; eight bits would keep 16 of a microscope's 4,096.

    One number divides all images, so that they stay comparable: 65,535 for integers, 1 for floats.
    """
    from PIL import Image

    white = 65535.0 if image.mode.startswith("I") else 1.0
    values = (np.asarray(image, dtype=np.float64).clip(0) / white).astype(np.float32)
    if values.shape != size:
        small = Image.fromarray(values).resize((size[1], size[0]), Image.Resampling.LANCZOS)
        values = np.asarray(small).clip(0)
    return np.repeat(values.astype(np.float64).ravel(), 3 if rgb else 1)


def _stretched(image: Any) -> Any:
    """Stretch a deep image to eight bits for display; return others unchanged."""
    if not _is_deep(image):
        return image
    values = np.asarray(image, dtype=np.float64).clip(0)
    return _eight_bits(values, float(values.max(initial=0)))


def _eight_bits(values: np.ndarray, white: float) -> Any:
    """Convert an image with values from 0 to ``white`` to eight bits per channel."""
    from PIL import Image

    shares = values / (white if white > 0 else 1.0)
    return Image.fromarray(np.rint(255 * shares.clip(0, 1)).astype(np.uint8))


def _thumbnails(files: list[Path]) -> Callable[..., bytes]:
    def thumbnail(i: int, side: int = THUMBNAIL) -> bytes:
        image = _stretched(_open(files[i])[0])
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        image.thumbnail((side, side))
        return small_file(image)

    return thumbnail


def small_file(image: Any) -> bytes:
    """Encode an image as WebP, a fifth of the size of PNG for photographs; tiny ones as PNG."""
    from PIL import features

    if max(image.size) <= 32 or not features.check("webp"):
        return _encoded(image, format="PNG", optimize=True)
    return _encoded(image, format="WEBP", quality=80, method=4)


def png(pixels: ArrayLike, white: float = 1.0) -> bytes:
    """Encode values from 0 to `white`, (height, width[, 3]), as a PNG file."""
    image = _eight_bits(np.asarray(pixels, dtype=np.float64), white)
    return _encoded(image, format="PNG", optimize=True)


def _encoded(image: Any, **how: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, **how)
    return buffer.getvalue()


def array_thumbnails(X: Any, shape: tuple[int, ...]) -> Callable[..., bytes]:
    """Return thumbnails of rows that are images, in their own size."""

    def thumbnail(i: int, side: int = THUMBNAIL) -> bytes:
        row = np.asarray(X[[i]].toarray() if hasattr(X, "toarray") else X[i])
        return png(row.reshape(shape), row.max(initial=0.0))

    return thumbnail
