"""Embeddings of the samples, in addition to words, pixels and columns or instead of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from partwise.io._common import SCALE_WORDS, Options, apply_scale, learn_scale, named, shown
from partwise.io.archives import check_zip, whole
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
        raise ValueError(f"{path} must have {recipe['features']} dimensions, got {V.shape[1]}.")
    if ids is None:
        at = _by_order(samples, V, path, options)
    else:
        at = _by_id(samples, [as_text(name) for name in ids], path, options)
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
        names = shown(name for name, _ in skipped)
        options.note(f"Skipped {len(skipped)} samples without a vector in {path.name}: {names}.")
        samples = _without(samples, skipped, kept)
    return _as_view(samples, V[[at[i] for i in kept]], path.name, options, {})


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
    """Return the samples that are kept; skipped rows of a table stay in its order."""
    rows = np.arange(samples.n_samples) if samples.rows is None else samples.rows
    draw, is_table = samples.thumbnails, _is_table(samples)
    every = [*samples.skipped, *skipped]
    if is_table:
        before = np.setdiff1d(range(samples.n_samples + len(samples.skipped)), rows)
        order = np.argsort([*before, *np.delete(rows, kept)])
        every = [every[i] for i in order]
    return replace(
        samples,
        X=samples.X[kept],
        ids=[samples.ids[i] for i in kept],
        thumbnails=None if draw is None else lambda i, *side: draw(kept[i], *side),
        texts=samples.texts and [samples.texts[i] for i in kept],
        whole_texts=samples.whole_texts and [samples.whole_texts[i] for i in kept],
        y=None if samples.y is None else samples.y[kept],
        skipped=tuple(every),
        rows=rows[kept] if is_table else None,
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
        known, words = {**samples.recipe, "also": made}, f"{samples.preparation} V{words}"
        return replace(samples, also=V, preparation=words, recipe=known)
    if recipe is None:
        made |= {"kind": samples.kind, "reader": "embeddings", "base": dict(samples.recipe)}
    samples = replace(samples, feature_names=None, image_shape=None, columns=())
    return replace(samples, X=V, preparation=f"V{words}", recipe=made)


def _is_table(samples: Samples) -> bool:
    return Path(samples.source).is_file()


# -- the join -------------------------------------------------------------------------------------


def _by_order(samples: Samples, V: np.ndarray, path: Path, options: Options) -> list[int]:
    """Join vectors and samples by their order in the source."""
    table = _is_table(samples)
    n = samples.n_samples + (len(samples.skipped) if table else 0)
    more = "; a .npz with X and ids, or .parquet with a column id, assigns vectors to samples"
    if len(V) != n:
        raise ValueError(f"{path} has {len(V)} vectors for {n} samples{more}.")
    if samples.skipped and not table:
        names = shown(name for name, _ in samples.skipped)
        raise ValueError(f"{path} has no ids, and files were skipped ({names}){more}.")
    ends = f"{samples.ids[0]!r} to {samples.ids[-1]!r}"
    options.note(f"{path.name} has no ids: its vectors are in the order of the samples, {ends}.")
    return list(range(n)) if samples.rows is None else samples.rows.tolist()


def _by_id(samples: Samples, ids: list[str], path: Path, options: Options) -> list[int]:
    """Join vectors and samples by id; an id may be a longer path than the sample's."""
    if samples.unjoinable:
        raise ValueError(f"{path}: ids cannot be matched: {samples.unjoinable}")
    if "" in ids:
        raise ValueError(f"{path}: the id of vector {ids.index('') + 1} is blank.")
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path}: {repeated(ids)}; the file must have one vector per sample.")
    position, gone = find_names(samples.ids), find_names([name for name, _ in samples.skipped])
    own = set(samples.ids)
    at = [-1] * samples.n_samples
    strange = []
    for row, name in enumerate(ids):
        tails = _tails(name)
        ours = [place(position, name), *(position[tail] for tail in tails if tail in own)]
        sample = next((found for found in ours if found is not None), None)
        if sample is None:
            strange += [name] * all(place(gone, tail) is None for tail in tails)
        elif at[sample] >= 0:
            both = f"{ids[at[sample]]!r} and {name!r}"
            raise ValueError(f"{path}: {both} are both the sample {samples.ids[sample]!r}.")
        else:
            at[sample] = row
    if max(at) < 0:
        raise ValueError(f"{path}: none of its {len(ids)} ids, as {ids[0]!r}, is that of a sample.")
    if strange:
        options.note(f"Vectors of {path.name} that are of no sample: {shown(strange)}.")
    return at


def _tails(name: str) -> list[str]:
    """Return a path and its ends without the first folders."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return [name, *("/".join(parts[k:]) for k in range(1, len(parts)))]


# -- the file -------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[np.ndarray, list[Any] | None]:
    """Return vectors, and their ids if the file contains them."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise ValueError(f"--embeddings {path}: there is no such file.")
    if suffix not in (".npy", ".npz", *TABLES):
        raise ValueError(f"--embeddings {path}: pass .npy, .npz, .parquet or .csv.")
    V, ids = _table(path) if suffix in TABLES else _arrays(path)
    if V.ndim != 2 or V.dtype.kind not in "buif":
        raise ValueError(f"{path}: expected a 2-D array of numbers, got {V.dtype} {V.shape}.")
    if ids is not None and len(ids) != len(V):
        raise ValueError(f"{path} has {len(V)} vectors and {len(ids)} ids.")
    return V if V.dtype in (np.float32, np.float64) else V.astype(np.float64), ids


def _arrays(path: Path) -> tuple[np.ndarray, list[Any] | None]:
    with whole(path, "file of vectors"):
        check_zip(path)
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held, None
        with held:
            arrays = {name: held[name] for name in held.files}
    ids = arrays.pop("ids", arrays.pop("id", None))
    known = [name for name in ("X", "vectors", "embeddings", "features") if name in arrays]
    if not known and len(arrays) != 1:
        raise ValueError(f"{path} must contain X and ids, got {shown(arrays, 8)}.")
    return arrays[known[0] if known else next(iter(arrays))], None if ids is None else ids.tolist()


def _table(path: Path) -> tuple[np.ndarray, list[Any] | None]:
    frame, _ = read_frame(path, Options())
    likely = [c for c in frame.columns if looks_like_id(c) or c.strip().lower() in ID_NAMES]
    likely += [c for c in frame.columns if _kind(frame[c]) == "text"]
    ids = None
    if likely:
        column = frame.pop(likely[0])
        ids = ["" if gap else v for v, gap in zip(column, column.isna())]
    kinds = [_kind(frame[c]) for c in frame.columns]
    with named(path):
        if kinds == ["list"]:
            return np.stack([np.asarray(v, dtype=np.float64) for v in frame.iloc[:, 0]]), ids
        if set(kinds) != {"number"}:
            raise ValueError(f"vectors need columns of numbers, got {shown(kinds)}.")
    return frame.to_numpy(dtype=np.float64), ids


def _kind(column: Any) -> str:
    """Return whether a column contains lists, numbers or text."""
    if isinstance(column.iloc[0], (list, tuple, np.ndarray)):
        return "list"
    return "number" if column.dtype.kind in "biuf" else "text"
