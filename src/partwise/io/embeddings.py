"""Embeddings of the samples, in addition to words, pixels and columns or instead of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from partwise.io._common import SCALE_WORDS, Options, apply_scale, learn_scale, shown
from partwise.io.archives import check_npz
from partwise.io.columns import looks_like_id
from partwise.io.encoders import encode, find_encoder
from partwise.io.frames import read_frame
from partwise.io.label_files import find_names, place
from partwise.io.samples import Samples, repeated
from partwise.io.sheets import as_text

#: Names of a column of ids in a table of embeddings, in addition to "id" and the like.
ID_NAMES = {"file", "filename", "file_name", "path", "filepath", "name", "image", "text_id"}
TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".xlsx")


def with_embeddings(samples: Samples, path: Path, options: Options) -> Samples:
    """Add the embeddings of a file, joined by id, or by order if the file has no ids.

    They become ``also``, the second view, or replace X if ``options.embeddings_only`` is set.
    """
    V, ids = _read(path)
    recipe = _recipe(options)
    if recipe is not None and recipe["features"] != V.shape[1]:
        raise ValueError(f"{path} has {V.shape[1]} dimensions, the model {recipe['features']}.")
    at, notes = _by_order(samples, V, path) if ids is None else _by_id(samples, ids, path)
    skipped, kept = [], []
    for i, name in enumerate(samples.ids):
        row = at[i]
        if row < 0 or not np.isfinite(V[row]).all():
            skipped.append((name, "has no vector" if row < 0 else "its vector has missing values"))
        else:
            kept.append(i)
    if skipped and options.strict:
        raise ValueError(f"{path}: {skipped[0][0]!r} {skipped[0][1]}.")
    if skipped:
        notes += (
            f"{len(skipped)} of {samples.n_samples} samples have no vector in {path.name} and were "
            f"skipped: {shown(name for name, _ in skipped)}.",
        )
        samples = _without(samples, skipped, kept)
    V = V[[at[i] for i in kept]]
    return _as_view(replace(samples, notes=(*samples.notes, *notes)), V, path.name, options, {})


def encoded(samples: Samples, name: str, options: Options) -> Samples:
    """Add the embeddings that an encoder computes."""
    V = encode(samples, name, download=options.download, offline=options.offline, step=options.step)
    encoder = {"name": name, "revision": find_encoder(name).revision}
    return _as_view(samples, V, name, options, {"encoder": encoder})


def _recipe(options: Options) -> Any:
    """Return the recipe of a fitted model's embeddings."""
    recipe = options.recipe
    return recipe if recipe is None or options.embeddings_only else recipe["also"]


def _without(samples: Samples, skipped: list[tuple[str, str]], kept: list[int]) -> Samples:
    """Return the samples that are kept."""
    rows = np.arange(samples.n_samples) if samples.rows is None else samples.rows
    draw = samples.thumbnails
    return replace(
        samples,
        X=samples.X[kept],
        ids=[samples.ids[i] for i in kept],
        thumbnails=None if draw is None else lambda i, *side: draw(kept[i], *side),
        texts=_some(samples.texts, kept),
        whole_texts=_some(samples.whole_texts, kept),
        y=None if samples.y is None else samples.y[kept],
        skipped=_in_order(samples, skipped, rows, kept),
        rows=rows[kept] if _is_table(samples) else None,
    )


def _as_view(
    samples: Samples, V: np.ndarray, source: str, options: Options, more: dict[str, Any]
) -> Samples:
    """Return samples with the embeddings V of each as second view, or as X."""
    recipe, beside = _recipe(options), not options.embeddings_only
    scale = "unit" if options.scale == "auto" or beside else options.scale
    made = {"features": int(V.shape[1]), **learn_scale(V, scale), **more}
    made = made if recipe is None else dict(recipe)
    words = f"ectors of {source}, {V.shape[1]} numbers each; {SCALE_WORDS[made['scale']]}."
    V = apply_scale(V, made)
    if beside:
        known = {**samples.recipe, "also": made}
        words = f"{samples.preparation} V{words}"
        return replace(samples, also=V, preparation=words, recipe=known)
    if recipe is None:
        made |= {"kind": samples.kind, "reader": "embeddings", "base": dict(samples.recipe)}
    return replace(
        samples,
        X=V,
        feature_names=None,
        image_shape=None,
        preparation=f"V{words}",
        recipe=made,
        columns=(),
    )


def _is_table(samples: Samples) -> bool:
    return Path(samples.source).is_file()


def _in_order(
    samples: Samples, skipped: list[tuple[str, str]], rows: np.ndarray, kept: list[int]
) -> tuple[tuple[str, str], ...]:
    """Return all skipped samples, in the order of the source if that is a table."""
    if not _is_table(samples) or not skipped or not samples.skipped:
        return (*samples.skipped, *skipped)
    known = set(rows.tolist())
    n = len(known) + len(samples.skipped)
    before = [row for row in range(n) if row not in known]
    here = set(kept)
    gone = [int(rows[i]) for i in range(samples.n_samples) if i not in here]
    placed = dict(zip([*before, *gone], [*samples.skipped, *skipped]))
    return tuple(placed[row] for row in sorted(placed))


def _some(texts: Sequence[str] | None, kept: list[int]) -> list[str] | None:
    return None if texts is None else [texts[i] for i in kept]


# -- the join -------------------------------------------------------------------------------------


def _by_order(samples: Samples, V: np.ndarray, path: Path) -> tuple[list[int], tuple[str, ...]]:
    """Join vectors and samples by their order in the source."""
    table = _is_table(samples)
    n = samples.n_samples + (len(samples.skipped) if table else 0)
    more = "; a .npz with X and ids, or .parquet with a column id, assigns vectors to samples"
    if len(V) != n:
        raise ValueError(f"{path} has {len(V)} vectors and {samples.source} {n} samples{more}.")
    if samples.skipped and not table:
        raise ValueError(
            f"{path} has no ids, and {samples.source} holds files that were skipped "
            f"({shown(name for name, _ in samples.skipped)}){more}."
        )
    at = list(range(n)) if samples.rows is None else samples.rows.tolist()
    note = (
        f"{path.name} has no ids: its vectors were taken in the order of the samples, the first "
        f"for {samples.ids[0]!r}, the last for {samples.ids[-1]!r}."
    )
    return at, (note,)


def _by_id(samples: Samples, ids: Sequence[str], path: Path) -> tuple[list[int], tuple[str, ...]]:
    """Join vectors and samples by id; an id may be a longer path than the sample's."""
    if samples.unjoinable:
        raise ValueError(f"{path} cannot be joined by id: {samples.unjoinable}")
    blank = next((row for row, name in enumerate(ids, 1) if not name), None)
    if blank is not None:
        raise ValueError(f"{path}: the id of vector {blank} is blank.")
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path}: {repeated(ids)}; one vector a sample is needed.")
    position, gone = find_names(samples.ids), find_names([name for name, _ in samples.skipped])
    own = set(samples.ids)
    at = [-1] * samples.n_samples
    strange = []
    for row, name in enumerate(ids):
        sample = place(position, name)
        parts = PurePosixPath(name.replace("\\", "/")).parts
        tails = [name, *("/".join(parts[k:]) for k in range(1, len(parts)))]
        if sample is None:
            sample = next((position[tail] for tail in tails if tail in own), None)
        if sample is None:
            strange += [name] * all(place(gone, tail) is None for tail in tails)
        elif at[sample] >= 0:
            raise ValueError(
                f"{path}: {ids[at[sample]]!r} and {name!r} are both the sample "
                f"{samples.ids[sample]!r}."
            )
        else:
            at[sample] = row
    if not any(row >= 0 for row in at):
        raise ValueError(
            f"{path}: none of its {len(ids)} ids, as {ids[0]!r}, is that of a sample, as "
            f"{samples.ids[0]!r}."
        )
    note = f"Vectors of {path.name} that are of no sample: {shown(strange)}."
    return at, (note,) if strange else ()


# -- the file -------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[np.ndarray, list[str] | None]:
    """Return vectors, and their ids if the file contains them."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise ValueError(f"--embeddings {path}: there is no such file.")
    ids: Any = None
    if suffix in (".npy", ".npz"):
        V, ids = _arrays(path)
    elif suffix in TABLES:
        V, ids = _table(path)
    else:
        raise ValueError(f"--embeddings {path}: .npy, .npz, .parquet or .csv is expected.")
    if V.ndim != 2 or V.dtype.kind not in "buif":
        raise ValueError(
            f"{path}: vectors are a 2-D array of numbers, got shape {V.shape} of {V.dtype}."
        )
    if ids is not None and len(ids) != len(V):
        raise ValueError(f"{path} has {len(V)} vectors and {len(ids)} ids.")
    V = V if V.dtype in (np.float32, np.float64) else V.astype(np.float64)
    return V, None if ids is None else [as_text(name) for name in ids]


def _arrays(path: Path) -> tuple[np.ndarray, Any]:
    try:
        check_npz(path)
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held, None
        with held:
            arrays = {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}).") from error
    ids = arrays.pop("ids", arrays.pop("id", None))
    named = [name for name in ("X", "vectors", "embeddings", "features") if name in arrays]
    if not named and len(arrays) != 1:
        raise ValueError(f"{path}: X and ids are expected, it has {shown(arrays, 8)}.")
    return arrays[named[0] if named else next(iter(arrays))], None if ids is None else ids.tolist()


def _table(path: Path) -> tuple[np.ndarray, Any]:
    from pandas.api.types import is_numeric_dtype

    frame, _, _ = read_frame(path, Options())
    likely = [c for c in frame.columns if looks_like_id(c) or c.strip().lower() in ID_NAMES]
    likely += [
        c for c in frame.columns if not is_numeric_dtype(frame[c]) and not _is_list(frame[c])
    ]
    ids = None
    if likely:
        column = frame[likely[0]]
        ids = ["" if gap else v for v, gap in zip(column, column.isna())]
        frame = frame.drop(columns=likely[0])
    if frame.shape[1] == 1 and _is_list(frame.iloc[:, 0]):
        try:
            return np.stack([np.asarray(v, dtype=np.float64) for v in frame.iloc[:, 0]]), ids
        except ValueError as error:
            raise ValueError(f"{path}: vectors differ in length ({error}).") from error
    odd = [c for c in frame.columns if not is_numeric_dtype(frame[c])]
    if odd or not frame.shape[1]:
        raise ValueError(f"{path}: vectors are numbers, but {shown(odd or ['nothing'])} is not.")
    return frame.to_numpy(dtype=np.float64), ids


def _is_list(column: Any) -> bool:
    return isinstance(column.iloc[0], (list, tuple, np.ndarray))
