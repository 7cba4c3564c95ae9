"""Readers and writers of AnnData objects and .h5ad files."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.io._common import check_matrix, is_counts, shown
from partwise.io.genes import top_features
from partwise.io.samples import Samples, repeated
from partwise.persistence.atomic import beside


def from_anndata(adata: Any, *, label_key: str | None = None, layer: str | None = None) -> Samples:
    """Return the cells of an AnnData object as samples, with unchanged values.

    Parameters
    ----------
    adata : AnnData
        Dask arrays in it are loaded into memory.
    label_key : str, optional
        The column of ``obs`` with the labels; missing ones are unknown.
    layer : str, optional
        The layer to use instead of ``X``; "raw" is ``adata.raw``.

    Returns
    -------
    Samples
        ``kind`` is "counts" if all values are whole numbers, else "table".

    Examples
    --------
    >>> import anndata, numpy as np, partwise      # doctest: +SKIP
    >>> from partwise.io import from_anndata, to_anndata      # doctest: +SKIP
    >>> cells = from_anndata(adata, label_key="type", layer="counts")      # doctest: +SKIP
    >>> model = partwise.CDNMF(beta_loss="kullback-leibler").fit(
    ...     cells.X, cells.y)      # doctest: +SKIP
    >>> to_anndata(adata, model)      # doctest: +SKIP
    """
    values, names = layer_of(adata, layer)
    X = check_matrix(values.compute() if hasattr(values, "to_delayed") else values, "adata")
    y = None if label_key is None else labels_of(adata, label_key)
    ids = [str(name) for name in adata.obs_names]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{repeated(ids)}; adata.obs_names_make_unique() gives each cell its own.")
    genes, notes = _own_names(names)
    return Samples(
        X,
        ids,
        "counts" if is_counts(X) else "table",
        feature_names=genes,
        notes=notes,
        y=y,
        source="AnnData",
        preparation="Values as they are.",
    )


def layer_of(adata: Any, layer: str | None) -> tuple[Any, Any]:
    """Return the values of X, of a layer or of ``.raw``, and the names of their genes."""
    source = adata
    if layer == "raw" and layer not in adata.layers and adata.raw is not None:
        source, layer = adata.raw, None
    if layer is not None and layer not in adata.layers:
        names = ", ".join(name for name in adata.layers if name is not None)  # None is X
        raise ValueError(f"adata has no layer {layer!r}; it has {names or 'none'}.")
    values = source.X if layer is None else adata.layers[layer]
    if values is None:
        raise ValueError("adata has no X; name a layer.")
    return values, source.var_names


def labels_of(adata: Any, label_key: str) -> np.ndarray:
    """Return a column of ``obs`` as labels; missing ones are None."""
    if label_key not in adata.obs:
        held = ", ".join(map(str, adata.obs)) or "none"
        raise ValueError(f"adata.obs has no column {label_key!r}; it has {held}.")
    column = adata.obs[label_key]
    known = [None if unknown else str(v) for v, unknown in zip(column, column.isna())]
    return np.array(known, dtype=object)


def read_quietly(path: Any, **how: Any) -> Any:
    """Read a file with anndata, without its warning on repeated names, which ours replaces."""
    import anndata

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*names are not unique")
        return anndata.read_h5ad(path, **how)


def read_plain(path: Any, *, layer: str | None = None, obsm: str | None = None) -> Any:
    """Read the part of a .h5ad file that Partwise uses, without importing anndata.

    This part is the names of cells and genes, X or a layer, and one entry of ``obsm``. The result
    is None for unusual files and files with ``.raw``; `read_quietly` reads these or raises an
    error.
    """
    try:
        import h5py

        with h5py.File(path, "r") as file:
            if file.attrs["encoding-type"] != "anndata" or "raw" in file:
                return None
            cells, genes = (_strings(file[name]) for name in ("obs", "var"))
            layers = dict.fromkeys(file["layers"])
            X = None if layer or obsm else _array(file["X"])
            if layer in layers:
                X = layers[layer] = _array(file["layers"][layer])
            if X is not None and X.shape != (len(cells), len(genes)):
                return None
            held = {obsm: _array(file["obsm"][obsm])} if obsm and obsm in file["obsm"] else {}
    except (ImportError, OSError, LookupError, ValueError, TypeError, AttributeError):
        return None
    return SimpleNamespace(
        X=X, layers=layers, raw=None, obs_names=cells, var_names=genes, obsm=held
    )


def _strings(table: Any) -> Any:
    index = table[table.attrs["_index"]]
    # Names are never missing, so the mask of pandas 3 strings is not needed.
    index = index["values"] if index.attrs["encoding-type"] == "nullable-string-array" else index
    if index.attrs["encoding-type"] != "string-array":
        raise ValueError("names in another encoding")
    return index.asstr()[()]


def _array(item: Any) -> Any:
    kind = item.attrs["encoding-type"]
    if kind == "array":
        return item[()]
    parts = tuple(item[name][()] for name in ("data", "indices", "indptr"))
    make = {"csr_matrix": sp.csr_matrix, "csc_matrix": sp.csc_matrix}[kind]
    return make(parts, shape=tuple(item.attrs["shape"]))


def _own_names(names: Any) -> tuple[list[str], tuple[str, ...]]:
    """Return unique gene names as anndata makes them, and a note if some were not unique."""
    given = [str(name) for name in names]
    twice = [name for name, count in Counter(given).items() if count > 1]
    if not twice:
        return given, ()
    from anndata.utils import make_index_unique
    from pandas import Index

    with warnings.catch_warnings():  # it warns about names that resemble its own suffixes
        warnings.simplefilter("ignore", UserWarning)
        unique = list(make_index_unique(Index(given)))
    are = "name is" if len(twice) == 1 else "names are"
    note = f"{len(twice)} {are} of several genes ({shown(twice)}), which got numbers, as "
    new = next(new for new, old in zip(unique, given, strict=True) if new != old)
    return unique, (f"{note}{new}.",)


def to_anndata(adata: Any, model: Any, *, genes: Sequence[str] | None = None) -> Any:
    """Write a fitted model into an AnnData object.

    ``obsm["X_partwise"]`` holds the part weights, and ``varm["partwise_parts"]`` one part per
    column. ``obs["partwise"]`` holds the cluster of each cell, and ``obs["partwise_confidence"]``
    the confidence in it. ``uns["partwise"]`` holds the method, its parameters and the marker genes
    of each part.

    Parameters
    ----------
    adata : AnnData
        Changed in place. It contains the cells to which the model was fitted, in the same order.
    model : estimator of partwise
    genes : sequence of str, optional
        Genes in the model, if not all were used. The others have NaN in ``varm``, and False in
        ``var["partwise_used"]``.

    Returns
    -------
    AnnData
        The same object.

    Examples
    --------
    >>> import anndata, numpy as np, partwise
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> adata = partwise.io.to_anndata(adata, partwise.GNMF(3, random_state=0).fit(adata.X))
    >>> adata.obsm["X_partwise"].shape, adata.varm["partwise_parts"].shape
    ((60, 3), (30, 3))
    """
    import pandas

    V = np.asarray(model.embedding_)
    if V.shape[0] != adata.n_obs:
        raise ValueError(
            f"the model was fitted to {V.shape[0]} samples, adata has {adata.n_obs} cells."
        )
    H = getattr(model, "components_", None)
    names, _ = _own_names(adata.var_names)
    if H is not None and genes is not None:
        at = {name: j for j, name in enumerate(names)}
        gone = [name for name in genes if name not in at]
        if gone or len(genes) != H.shape[1]:
            raise ValueError(f"the model has {H.shape[1]} genes, adata lacks {len(gone)} of them.")
        whole = np.full((H.shape[0], adata.n_vars), np.nan)
        whole[:, [at[name] for name in genes]] = H
        H = whole
        adata.var["partwise_used"] = np.isin(names, list(genes))
    if H is not None and H.shape[1] != adata.n_vars:
        raise ValueError(
            f"the model has {H.shape[1]} features, adata has {adata.n_vars} variables."
        )
    adata.obsm["X_partwise"] = V
    markers = {}
    if H is not None:
        adata.varm["partwise_parts"] = np.ascontiguousarray(H.T)
        found = top_features(np.nan_to_num(H), names, 20)
        markers = {f"part {j + 1}": words for j, words in enumerate(found)}
    clusters = getattr(model, "labels_", None)
    if clusters is not None:
        adata.obs["partwise"] = pandas.Categorical([str(name) for name in clusters])
        adata.obs["partwise_confidence"] = model.label_confidence_
    parameters = {k: str(v) for k, v in model.get_params(deep=False).items()}
    known = {"method": type(model).__name__, "parameters": parameters, "markers": markers}
    adata.uns["partwise"] = known
    return adata


def write_back(path: str, model: Any, genes: Sequence[str] | None) -> None:
    """Write the result of `to_anndata` to a .h5ad file, completely or not at all."""
    adata = to_anndata(read_quietly(path), model, genes=genes)
    write_h5ad(adata, Path(path))


def write_h5ad(adata: Any, path: Path) -> None:
    """Write a .h5ad file completely or not at all, and keep its permissions."""
    with _in_place_of(path) as part:
        adata.write_h5ad(part)


def write_plain(path: Path, X: Any, cells: list[str], genes: list[str]) -> None:
    """Write CSR counts with names in the format of anndata."""
    import h5py

    def mark(item: Any, kind: str, version: str = "0.1.0") -> Any:
        item.attrs.update({"encoding-type": kind, "encoding-version": version})
        return item

    with _in_place_of(path) as part, h5py.File(part, "w") as file:
        mark(file, "anndata")
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            mark(file.create_group(name), "dict")
        for name, names in (("obs", cells), ("var", genes)):
            table = mark(file.create_group(name), "dataframe", "0.2.0")
            table.attrs["_index"] = "_index"
            table.attrs["column-order"] = np.array([], dtype=float)
            text = table.create_dataset("_index", data=names, dtype=h5py.string_dtype())
            mark(text, "string-array", "0.2.0")
        counts = mark(file.create_group("X"), "csr_matrix")
        counts.attrs["shape"] = X.shape
        for name in ("data", "indices", "indptr"):
            counts.create_dataset(name, data=getattr(X, name))


@contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """Yield a name to write to; it replaces the other file if no error occurs."""
    part = beside(path)
    try:
        yield part
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
