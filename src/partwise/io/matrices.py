"""Read matrices from .npz, .npy, .mtx, .mat and .h5ad files, and public data sets by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.io import _common
from partwise.io._common import (
    SCALE_WORDS,
    Options,
    apply_scale,
    check_matrix,
    is_counts,
    learn_scale,
    lowest,
    need,
    shown,
)
from partwise.io.archives import check_h5ad, check_mtx, whole
from partwise.io.samples import Samples


def read_matrix(path: Path, options: Options) -> Samples:
    """Read a matrix file with one sample per row."""
    options.step(0, 1, "reading the matrix")
    readers = {".npy": _npy, ".mtx": _mtx, ".h5ad": _h5ad}
    samples = readers.get(path.suffix.lower(), _dataset)(path, options)
    if options.transpose:
        if samples.image_shape is not None:
            raise ValueError("--transpose is for matrices, not for images.")
        X = sp.csr_array(samples.X.T) if samples.is_sparse else np.ascontiguousarray(samples.X.T)
        samples = replace(_plain(X, samples.source, None), kind=samples.kind)
    options.step(1, 1, "reading the matrix")
    return finish(samples, options)


def read_named(name: str, options: Options) -> Samples:
    """Read a data set of the catalogue, such as "digits"."""
    from partwise.io.datasets import load

    return finish(_of_dataset(load(name), options), options)


def _npy(path: Path, options: Options) -> Samples:
    with whole(path, ".npy file of numbers"):
        if path.stat().st_size >= _common.STREAM_FROM and not options.transpose:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with path.open("rb") as file:
                array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("this is an archive of arrays; rename it to .npz.")
    if array.ndim in (3, 4):  # images, channels last
        if array.ndim == 4 and array.shape[3] not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, got {array.shape[1:]}.")
        inner = array.shape[1:] if array.shape[-1] != 1 else array.shape[1:3]
        X = check_matrix(array.reshape(len(array), -1), path)
        return _plain(X, path, tuple(int(s) for s in inner))
    X = check_matrix(array, path)
    return _plain(X, path, options.image_shape, options.image_order == "columns")


def _mtx(path: Path, options: Options) -> Samples:
    import scipy.io

    from partwise.io.datasets.matrix_files import sparse_arrays

    with whole(path, "Matrix Market file"):
        check_mtx(path)
        X = scipy.io.mmread(path, **sparse_arrays(scipy.io.mmread))
    X = check_matrix(X if sp.issparse(X) else sp.csr_array(X), path)
    return _plain(X, path, options.image_shape, options.image_order == "columns")


def _plain(
    X: Any, source: Any, shape: tuple[int, ...] | None, by_columns: bool = False, **known: Any
) -> Samples:
    """Return numbered samples, with pixels row by row so that reshaping gives upright images."""
    if by_columns and shape is not None and np.prod(shape) == X.shape[1]:
        X = X[:, np.arange(X.shape[1]).reshape(shape[1], shape[0]).T.ravel()]
    ids, kind = [str(i) for i in range(X.shape[0])], "table" if shape is None else "images"
    return Samples(X, ids, kind, image_shape=shape, source=str(source), **known)


def _dataset(path: Path, options: Options) -> Samples:
    from partwise.io.datasets import read
    from partwise.io.datasets.catalogue import CATALOGUE, canonical

    found = read(path)
    known = CATALOGUE.get(canonical(path.name))
    if options.image_shape is None and known is not None and known.image_shape is not None:
        height, width = known.image_shape
        if height * width == found.X.shape[1]:
            found = replace(found, image_shape=known.image_shape, image_order=known.image_order)
    return _of_dataset(found, options)


def _of_dataset(found: Any, options: Options) -> Samples:
    source = found.source or found.name
    shape, order = found.image_shape or options.image_shape, options.image_order
    by_columns = order == "columns" or (order == "auto" and found.image_order == "F")
    if found.image_shape is None and order == "auto":
        by_columns = shape is not None and str(source).lower().endswith(".mat")
        if by_columns:
            options.note("Pixels were read as MATLAB stores them; see --image-order rows.")
    if options.label_column not in (None, "y", "gnd"):
        raise ValueError(f"labels are called y or gnd, not {options.label_column!r}.")
    if found.y is None and options.label_column is not None:
        raise ValueError("there are no labels for --label-column.")
    y = None if found.y is None else np.array(found.class_names, dtype=object)[found.y]
    terms = None if found.terms is None else list(map(str, found.terms))
    source = found.source if Path(found.source).is_file() else found.name
    return _plain(found.X, source, shape, by_columns, feature_names=terms, y=y)


def _h5ad(path: Path, options: Options) -> Samples:
    from partwise.io.anndata_files import from_anndata, read_quietly

    need("anndata", ".h5ad files", extra="cells")
    with whole(path, ".h5ad file"):
        check_h5ad(path)
        adata = read_quietly(path)
    cells = from_anndata(adata, label_key=options.label_column, layer=options.layer)
    if options.layer is None and cells.kind != "counts":
        if "counts" in adata.layers:
            options.note("X holds no counts, but the layer 'counts' may: use --layer counts.")
        elif adata.raw is not None:
            options.note("X holds no counts, but .raw may: use --layer raw.")
    return replace(cells, source=str(path))


def finish(samples: Samples, options: Options) -> Samples:
    """Choose the kind and scale of the numbers, or use those of a recipe, and scale them."""
    X, shape = samples.X, samples.image_shape
    if shape is not None and np.prod(shape) != X.shape[1]:
        size = f"{'x'.join(map(str, shape))} have {np.prod(shape)} values"
        raise ValueError(f"images of {size}, the rows have {X.shape[1]}.")
    if options.kind == "texts":
        raise ValueError("--kind texts needs texts, not numbers.")
    if options.scale == "range":
        raise ValueError("--scale range is for tables; use max or std.")
    samples, made = (
        _learn(samples, options) if options.recipe is None else _repeat(samples, options)
    )
    what = {"images": "Images as rows", "counts": "Counts"}.get(made["kind"], "A matrix")
    if made["scale"] == "log":
        genes = made.get("genes")
        what = f"Counts of the {len(genes):,} most variable genes" if genes else "Counts"
    if isinstance(samples.X, np.memmap):
        what += ", read from disk by blocks of rows"
    words = f"{what}; {SCALE_WORDS[made['scale']]}."
    X = apply_scale(samples.X, made)
    return replace(samples, X=X, kind=made["kind"], preparation=words, recipe=made)


def _learn(samples: Samples, options: Options) -> tuple[Samples, dict[str, Any]]:
    """Return the samples with the genes to keep, and the recipe with their kind and scale."""
    cells, scale = samples.source.lower().endswith(".h5ad"), options.scale
    kind = _kind(samples, options)
    if scale == "auto":
        usual = {"counts": "log" if cells else "total"}.get(kind, "unit")
        scale = "none" if lowest(samples.X) < 0 else usual
    genes = _variable(samples, options, cells and kind == "counts")
    samples = samples if genes is None else _with_genes(samples, genes)
    made = {
        "kind": "table" if scale == "log" else kind,  # logarithms are not counts
        "reader": "a matrix",
        "features": int(samples.X.shape[1]),
        **learn_scale(samples.X, scale),
    }
    return samples, made if genes is None else {**made, "genes": genes}


def _kind(samples: Samples, options: Options) -> str:
    """Return the kind that the options ask for, or the one of the numbers."""
    kind = options.kind or samples.kind
    if kind == "images" and samples.image_shape is None:
        raise ValueError("--kind images needs --image-shape, such as 32x32.")
    if options.kind is None and kind != "images" and (samples.is_sparse or kind == "counts"):
        kind = "counts" if is_counts(samples.X) else "table"
    return kind


def _repeat(samples: Samples, options: Options) -> tuple[Samples, dict[str, Any]]:
    """Return the samples with the genes that the model was fitted to, and its recipe."""
    made = dict(options.recipe or {})
    if made["reader"] != "a matrix":
        raise ValueError(f"this is a matrix; the model was fitted to {made['reader']}.")
    if "genes" in made:
        samples = _with_genes(samples, made["genes"])
    p = samples.X.shape[1]
    if made.get("features", p) != p:
        raise ValueError(f"{p} features; the model has {made['features']}.")
    return samples, made


def _variable(samples: Samples, options: Options, counts: bool) -> list[str] | None:
    """Return the most variable genes if there are many, or as many as --genes asks for."""
    from partwise.io.genes import GENES, MANY, variable_genes

    p, wanted, names = samples.X.shape[1], options.genes, samples.feature_names
    if wanted is None:
        wanted = GENES if counts and p > MANY else 0
    if not wanted or wanted >= p:
        return None
    if not counts or names is None:
        raise ValueError("--genes is for counts in a .h5ad file.")
    return [names[j] for j in variable_genes(samples.X, wanted)]


def _with_genes(samples: Samples, genes: list[str]) -> Samples:
    """Return the samples with these genes, in this order."""
    at = {name: j for j, name in enumerate(samples.feature_names or ())}
    gone = [name for name in genes if name not in at]
    if gone:
        missing = f"{len(gone)} of the model's {len(genes)} genes"
        raise ValueError(f"{missing} are missing: {shown(gone)}.")
    return replace(samples, X=samples.X[:, [at[g] for g in genes]], feature_names=list(genes))
