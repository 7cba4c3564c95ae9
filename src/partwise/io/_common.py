"""Code that all readers use: options, extras, matrices on disk, repeatable scaling."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import forget
from partwise.backends.compressed import checked_csr
from partwise.backends.numpy.memmap import MemmapData

#: A .npy file of at least this many bytes is not loaded, but read by blocks of rows.
STREAM_FROM = 100_000_000
SCALES = ("auto", "none", "unit", "range", "max", "std", "total", "log")

Step = Callable[[int, int, str], None]  #: Function of the progress: items done, total, description


def silent(done: int, total: int, what: str) -> None:
    """Do nothing; the default for functions that show the progress of a reader."""


@dataclass(frozen=True)
class Options:
    """Options of a reader; see the documentation of `read_samples`."""

    labels: str | Path | None = None
    kind: str | None = None
    size: tuple[int, int] | None = None
    rgb: bool = False
    text_column: str | None = None
    id_column: str | None = None
    label_column: str | None = None
    columns: Sequence[str] = ()
    exclude: Sequence[str] = ()
    encoding: str | None = None
    separator: str | None = None
    heading: str = "auto"
    sheet: str | None = None
    skip_rows: int | None = None
    stop_words: str = "auto"
    tokens: str = "auto"
    ngrams: tuple[int, int] | None = None
    min_df: float | None = None
    max_df: float | None = None
    scale: str = "auto"
    missing: str = "auto"
    skip_unknown: bool = False
    similar_labels: str = "ask"
    unknown_labels: str = "ask"
    transpose: bool = False
    image_shape: tuple[int, int] | None = None
    image_order: str = "auto"
    layer: str | None = None
    genes: int | None = None
    strict: bool = False
    embeddings: str | Path | None = None
    embeddings_only: bool = False
    encoder: str | None = None
    download: bool = False
    offline: bool = False
    recipe: Mapping[str, Any] | None = None
    step: Step = field(default=silent, compare=False)
    #: Called with each sentence about what a reader found, changed or left out.
    note: Callable[[str], Any] = field(default=len, compare=False)


def need(module: str, what: str, package: str | None = None, *, extra: str | None = None) -> Any:
    """Import a package, or raise an error that explains how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module
        wanted = f"'partwise[{extra}]'" if extra else name
        raise ImportError(f"Reading {what} needs {name}: pip install {wanted}") from error


def read_files(
    folder: Path, files: Sequence[Path], options: Options, what: str, read: Callable[[Path], Any]
) -> tuple[list[Any], list[str], list[tuple[str, str]]]:
    """Read files; return results, ids, and the files that cannot be read with the reasons."""
    found, ids, skipped = [], [], []
    for done, file in enumerate(files):
        options.step(done, len(files), f"reading {what}")
        name = file.relative_to(folder).as_posix()
        try:
            found.append(read(file))
            ids.append(name)
        except ValueError as error:
            if options.strict:
                raise
            skipped.append((name, str(error).removeprefix(f"{file.name} ").rstrip(".")))
    options.step(len(files), len(files), f"reading {what}")
    if not found:
        name, reason = skipped[0]
        raise ValueError(f"none of the {len(files)} {what} can be read; {name} {reason}.")
    if skipped:
        names = shown(name for name, _ in skipped)
        total = f"{len(skipped)} of {len(files)} {what}"
        options.note(f"{total} cannot be read and were skipped: {names}; --strict stops there.")
    return found, ids, skipped


@contextmanager
def named(source: Any) -> Iterator[None]:
    """Prefix the message of a ValueError with this file's name, unless it begins with it."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(str(source)):
            raise
        raise ValueError(f"{source}: {error}") from error


def shown(names: Any, most: int = 3, width: int = 60) -> str:
    """Return the first few of some names, for a message."""
    names = list(names)
    text = ", ".join(str(name)[:width] for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def pieces(X: Any) -> Iterator[Any]:
    """Yield X by blocks of rows if it is on disk, else X itself."""
    if not isinstance(X, np.memmap):
        yield X
        return
    for _, block in MemmapData(X).read():
        yield block


def mapped(X: np.memmap, change: Callable[[Any], Any]) -> np.memmap:
    """Apply ``change`` to every block, into a temporary file that is deleted with the array."""
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
    place = tempfile.gettempdir()
    need, free = X.size * dtype.itemsize, shutil.disk_usage(place).free
    if need > free:
        sizes = f"needs {need / 1e9:.1f} GB, and {place} has {free / 1e9:.1f} GB"
        raise OSError(f"The scaled copy {sizes}; set TMPDIR, or use --scale none.")
    folder = tempfile.mkdtemp(prefix="partwise-")
    try:
        path = Path(folder) / "scaled.npy"
        out = np.lib.format.open_memmap(path, "w+", dtype, X.shape)
        at = 0
        for block in pieces(X):
            out[at : at + len(block)] = change(block)
            at += len(block)
            forget(out)
        out.flush()
        made: np.memmap = np.load(path, mmap_mode="r")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, folder, True)
    return made


def check_matrix(X: Any, source: str | Path) -> Any:
    """Return X as finite floats, dense or CSR, with samples in rows; a memmap stays a memmap."""
    values: Any
    if isinstance(X, np.memmap):
        values = X
    elif sp.issparse(X):
        with named(source):
            X = checked_csr(X)
        values = X.data
    else:
        X = values = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{source}: samples must be a non-empty 2-D array, got shape {X.shape}.")
    if values.dtype.kind not in "buif":
        raise ValueError(f"{source}: samples must be real numbers, got {values.dtype}.")
    on_disk = isinstance(X, np.memmap)
    # integers on disk become floats block by block
    if values.dtype not in (np.float32, np.float64) and not (on_disk and values.dtype.kind != "f"):
        X = (np.asarray(X) if on_disk else X).astype(np.float64)
        values = X.data if sp.issparse(X) else X
    if not all(np.isfinite(block).all() for block in pieces(values)):
        raise ValueError(f"{source}: samples must be finite, got NaN or infinity.")
    return X


def lowest(X: Any) -> float:
    values = X.data if sp.issparse(X) else X
    return float(min(0.0, *(block.min(initial=0) for block in pieces(values))))


def is_counts(X: Any) -> bool:
    """Return whether X contains counts: non-negative integers, not only zeros and ones."""
    values = X.data if sp.issparse(X) else X
    if not values.size or lowest(X) < 0 or max(block.max() for block in pieces(values)) < 2:
        return False
    return all(np.array_equal(block, np.rint(block)) for block in pieces(values))


def learn_scale(X: Any, scale: str) -> dict[str, Any]:
    """Return the numbers by which the samples, and later new samples, are scaled."""
    if scale in ("max", "std"):
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        scaler = MaxAbsScaler() if scale == "max" else StandardScaler(with_mean=False)
        for block in pieces(X):
            scaler.partial_fit(block)
        return {"scale": scale, "divide": np.asarray(scaler.scale_, dtype=np.float64)}
    if scale == "total":
        totals = np.concatenate([np.asarray(b.sum(axis=1)).ravel() for b in pieces(X)])
        return {"scale": scale, "target": float(np.median(totals[totals > 0], axis=0) or 1.0)}
    return {"scale": scale}


def apply_scale(X: Any, recipe: Mapping[str, Any]) -> Any:
    """Return X scaled by `learn_scale`; for a memmap, a scaled copy on disk."""
    scale = recipe.get("scale", "none")
    if isinstance(X, np.memmap):
        return X if scale == "none" else mapped(X, lambda block: apply_scale(block, recipe))
    if scale in ("max", "std"):
        divide = np.asarray(recipe["divide"]).astype(X.dtype)
        return sp.csr_array(X @ sp.diags_array(1 / divide)) if sp.issparse(X) else X / divide
    if scale == "log":
        X = apply_scale(X, {"scale": "total", "target": 1e4})
        X = X.log1p() if sp.issparse(X) else np.log1p(X)
        return apply_scale(X, {"scale": "unit"})
    if scale == "unit":
        from sklearn.preprocessing import normalize

        return sp.csr_array(normalize(X)) if sp.issparse(X) else normalize(X)
    if scale == "total":
        totals = np.asarray(X.sum(axis=1)).ravel()
        factor = np.divide(recipe["target"], totals, out=np.zeros_like(totals), where=totals > 0)
        return sp.csr_array(sp.diags_array(factor) @ X) if sp.issparse(X) else X * factor[:, None]
    return X


SCALE_WORDS = {
    "none": "values as they are",
    "unit": "each sample scaled to length one",
    "range": "each brought to 0 to 1 by its range (5% to 95% of its values)",
    "max": "each column divided by its largest absolute value",
    "std": "each column divided by its standard deviation",
    "total": "each sample scaled to the median total",
    "log": "each sample scaled to a total of 10,000, log(1 + x), then to length one",
}
