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
    notes: tuple[str, ...] = ()
    if recipe is not None:
        height, width = (int(side) for side in recipe["size"])
        size, rgb = (height, width), bool(recipe["rgb"])
    if options.embeddings_only:  # they replace the pixels
        size = (8, 8)
    elif size is None:
        size, notes = _common_size(folder, files, options)

    def look(file: Path) -> tuple[np.ndarray, tuple[int, int], bool, bool, bool]:
        image, turned, more = _open(file)
        coloured = not rgb and _has_colour(image)
        return _pixels(image, size, rgb), (image.height, image.width), coloured, turned, more

    found, ids, failed = read_files(folder, files, options, "images", look)
    skipped = [(name, _reason(error)) for name, error in failed]
    if not found:
        raise ValueError(
            f"{folder}: none of the {len(files)} images can be read; {skipped[0][0]} "
            f"{skipped[0][1]}."
        )
    if skipped:
        notes += _skipped_notes(skipped, len(files))
    rows, sizes, in_colour, on_side, in_pages = zip(*found)
    X, n, coloured, turned = np.stack(rows), len(found), sum(in_colour), sum(on_side)
    made: dict[str, Any] = {"kind": "images", "reader": "image files", "size": size, "rgb": rgb}
    scale = "unit" if options.scale == "auto" else options.scale
    made |= learn_scale(X, scale) if recipe is None else dict(recipe)
    resized = set(sizes) != {size}
    colour = "RGB" if rgb else "grey"
    if turned:
        notes += (f"{turned} of {n} images were turned upright, as their cameras noted.",)
    if any(in_pages):
        notes += (_pages_note([name for name, more in zip(ids, in_pages) if more], n),)
    if coloured and recipe is None and not options.embeddings_only:
        part = "all" if coloured == n else f"{coloured} of {n}"
        notes += (f"The colours of {part} images were dropped; --rgb keeps them.",)
    return Samples(
        apply_scale(X, made),
        ids,
        "images",
        image_shape=(*size, 3) if rgb else size,
        thumbnails=_thumbnails([folder / name for name in ids]),
        source=str(folder),
        preparation=f"Images {'resized to' if resized else 'of'} {_said(size)}, {colour}; "
        f"{SCALE_WORDS[made['scale']]}.",
        recipe=made,
        notes=notes,
        skipped=tuple(skipped),
    )


def _skipped_notes(skipped: Sequence[tuple[str, str]], n: int) -> tuple[str, ...]:
    """Return notes on images that cannot be read."""
    verb = "was" if len(skipped) == 1 else "were"
    note = (
        f"{len(skipped)} of {n} images cannot be read and {verb} skipped: "
        f"{shown(name for name, _ in skipped)}; --strict stops there."
    )
    heic = any(NEEDS_HEIC in why for _, why in skipped)
    return (note, f"{NEEDS_HEIC}.") if heic else (note,)


def _pages_note(names: Sequence[str], n: int) -> str:
    """Return a note on images of several pages."""
    return (
        f"{len(names)} of {n} images have several pages ({shown(names)}); the first page was read. "
        "Save the pages as files of their own, or as their maximum, to use the others."
    )


def _said(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _reason(error: ValueError) -> str:
    """Return the reason why an image was skipped, without its name."""
    return str(error).partition("cannot be read")[1] + str(error).rpartition("as an image")[2][:-1]


def _common_size(
    folder: Path, files: Sequence[Path], options: Options
) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Return one size for all images, the medians of both sides, and a note if they differ."""
    sizes = {file: size for file in files if (size := _size(file)) is not None}
    if not sizes:
        return (1, 1), ()  # the reader reports that no image can be read
    every = sorted(set(sizes.values()))
    if len(every) == 1:
        return _default_size(*every[0]), ()
    if options.strict:
        first, other = (next(f for f, size in sizes.items() if size == s) for s in every[:2])
        raise ValueError(
            f"{folder}: images differ in size ({first.name} is {_said(every[0])}, {other.name} "
            f"{_said(every[1])}, height x width); --size 32 brings all to 32x32."
        )
    heights, widths = np.array(list(sizes.values())).T
    size = _default_size(int(np.median(heights)), int(np.median(widths)))
    note = (
        f"The images differ in size ({_said((heights.min(), widths.min()))} to "
        f"{_said((heights.max(), widths.max()))}, height x width), so all were resized to "
        f"{_said(size)}; --size 32 brings them to 32x32."
    )
    return size, (note,)


def _size(file: Path) -> tuple[int, int] | None:
    """Return height and width of an image as displayed, from its header alone, or None."""
    image_module = _opener()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with image_module.open(file, formats=FORMATS) as image:
                sides = image.height, image.width
                return sides[::-1] if image.getexif().get(0x0112, 1) > 4 else sides
    except Exception:  # the reader that follows reports the reason
        return None


def _default_size(height: int, width: int) -> tuple[int, int]:
    """Return the images' own size, or the largest of that shape with at most 64 x 64 pixels."""
    shrink = min(1.0, (MAX_PIXELS / (height * width)) ** 0.5)
    return max(1, int(height * shrink)), max(1, int(width * shrink))


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
        raise ValueError(f"{file} cannot be read as an image{reason}.") from error


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
    from PIL import Image

    if not _is_deep(image):
        return image
    values = np.asarray(image, dtype=np.float64).clip(0)
    top = float(values.max(initial=0))
    return Image.fromarray(np.rint(values / (top or 1.0) * 255).astype(np.uint8))


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

    buffer = io.BytesIO()
    if max(image.size) <= 32 or not features.check("webp"):
        image.save(buffer, format="PNG", optimize=True)
    else:
        image.save(buffer, format="WEBP", quality=80, method=4)
    return buffer.getvalue()


def png(pixels: ArrayLike, white: float = 1.0) -> bytes:
    """Encode values from 0 to `white`, (height, width[, 3]), as a PNG file."""
    from PIL import Image  # comes with matplotlib

    shares = np.asarray(pixels, dtype=np.float64) / (white if white > 0 else 1.0)
    buffer = io.BytesIO()
    levels = np.rint(255 * shares.clip(0, 1)).astype(np.uint8)
    Image.fromarray(levels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def array_thumbnails(X: Any, shape: tuple[int, ...]) -> Callable[..., bytes]:
    """Return thumbnails of rows that are images, in their own size."""

    def thumbnail(i: int, side: int = THUMBNAIL) -> bytes:
        row = np.asarray(X[[i]].toarray() if hasattr(X, "toarray") else X[i])
        return png(row.reshape(shape), row.max(initial=0.0))

    return thumbnail


def left_out(folder: Path, files: Sequence[Path], kind: str) -> tuple[str, ...]:
    """Return a note on the files of a folder that were not read."""
    if not files:
        return ()
    names = shown(file.relative_to(folder).as_posix() for file in files)
    if len(files) == 1:
        return (f"1 of the files is no {kind[:-1]} and was left out: {names}.",)
    return (f"{len(files)} of the files are no {kind} and were left out: {names}.",)
