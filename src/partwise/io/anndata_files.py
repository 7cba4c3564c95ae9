"""Readers and writers of AnnData objects and .h5ad files."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
        raise ValueError("adata has no X; choose a layer.")
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
    """Read a file with anndata, without its warning about repeated gene names.

    Partwise adds a note of its own about them instead.
    """
    import anndata

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*names are not unique")
        return anndata.read_h5ad(path, **how)


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
    new = next(name for name in unique if name not in twice)
    return unique, (f"Gene names that occur more than once got numbers, as {new}: {shown(twice)}.",)


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
        raise ValueError(f"the model has {len(V)} samples, adata has {adata.n_obs} cells.")
    H = getattr(model, "components_", None)
    markers = {}
    if H is not None:
        names, _ = _own_names(adata.var_names)
        if genes is not None:
            H = _at_genes(H, genes, names)
            adata.var["partwise_used"] = np.isin(names, list(genes))
        if H.shape[1] != adata.n_vars:
            raise ValueError(f"the model has {H.shape[1]} features, adata {adata.n_vars} genes.")
        adata.varm["partwise_parts"] = np.ascontiguousarray(H.T)
        found = top_features(np.nan_to_num(H), names, 20)
        markers = {f"part {j + 1}": words for j, words in enumerate(found)}
    adata.obsm["X_partwise"] = V
    clusters = getattr(model, "labels_", None)
    if clusters is not None:
        adata.obs["partwise"] = pandas.Categorical([str(name) for name in clusters])
        adata.obs["partwise_confidence"] = model.label_confidence_
    parameters = {k: str(v) for k, v in model.get_params(deep=False).items()}
    known = {"method": type(model).__name__, "parameters": parameters, "markers": markers}
    adata.uns["partwise"] = known
    return adata


def _at_genes(H: np.ndarray, genes: Sequence[str], names: list[str]) -> np.ndarray:
    """Return the parts H of some genes with a column per name, NaN for the other names."""
    at = {name: j for j, name in enumerate(names)}
    gone = [name for name in genes if name not in at]
    if gone or len(genes) != H.shape[1]:
        raise ValueError(f"the model has {H.shape[1]} genes, adata lacks {len(gone)} of them.")
    whole = np.full((H.shape[0], len(names)), np.nan)
    whole[:, [at[name] for name in genes]] = H
    return whole


def write_back(path: str, model: Any, genes: Sequence[str] | None) -> None:
    """Write the result of `to_anndata` to a .h5ad file, completely or not at all."""
    adata = to_anndata(read_quietly(path), model, genes=genes)
    write_h5ad(adata, Path(path))


def write_h5ad(adata: Any, path: Path) -> None:
    """Write a .h5ad file completely or not at all, and keep its permissions."""
    part = beside(path)
    try:
        adata.write_h5ad(part)
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
