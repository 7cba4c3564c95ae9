"""Functions that take and fill an AnnData, by the conventions of scverse.

Each reads ``X`` or a layer as it is, and writes codes to ``obsm``, parts to ``varm``, and method,
parameters and version to ``uns``; ``key_added`` is the name of all of them. A SpatialData or MuData
with one table stands for this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from partwise._versions import __version__
from partwise.apps.cells import programmes as steps
from partwise.apps.cells.tables import on_tables
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.classify.parts_classifier import PartsClassifier
from partwise.estimators.constrained import ConstrainedNMF
from partwise.estimators.gnmf import GNMF
from partwise.estimators.nmf import NMF
from partwise.io._common import shown
from partwise.io.anndata_files import from_anndata
from partwise.io.genes import top_features
from partwise.knowledge.graph import check_graph
from partwise.knowledge.graph.places import check_places, join_graphs
from partwise.knowledge.graph.places import spatial_graph as graph_of_places
from partwise.selection.refits import Refits


@on_tables
def factorize(
    adata: Any,
    n_components: int = 10,
    *,
    estimator: Any = None,
    layer: str | None = None,
    graph: str | None = None,
    label_key: str | None = None,
    key_added: str = "parts",
    **parameters: Any,
) -> Any:
    """Parts and codes of the cells, by any estimator of this package.

    Parameters
    ----------
    adata : AnnData
        Changed in place. Values are taken as they are: normalise them first, or give
        ``beta_loss="kullback-leibler"`` with counts.
    n_components : int, default=10
    estimator : estimator or class, default=None
        None: `NMF`, or `GNMF` with a graph. An estimator keeps its parameters.
    layer : str, default=None
        The layer to use instead of ``X``; "raw" is ``adata.raw``.
    graph : str, default=None
        A graph in ``obsp``, as "connectivities" or "spatial_connectivities".
    label_key : str, default=None
        A column of ``obs`` with labels, for an estimator that takes them.
    key_added : str, default="parts"
    **parameters
        Of the estimator.

    Returns
    -------
    model : estimator
        Fitted. ``obsm["X_parts"]`` holds the codes, ``varm["parts"]`` the parts, one column each,
        ``uns["parts"]`` method, parameters, version and each part's leading genes.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).gamma(0.3, size=(50, 20)))
    >>> model = partwise.cells.factorize(adata, 3, random_state=0)
    >>> adata.obsm["X_parts"].shape, adata.varm["parts"].shape
    ((50, 3), (20, 3))
    """
    cells = from_anndata(adata, label_key=label_key, layer=layer)
    W = None if graph is None else _obsp(adata, graph)
    if estimator is None:
        estimator = NMF if W is None else GNMF
    if isinstance(estimator, type):
        model = estimator(n_components=n_components, **parameters)
    else:
        model = clone(estimator).set_params(n_components=n_components, **parameters)
    more = {} if W is None else {"graph": W}
    if label_key is not None:
        more["y"] = cells.y
    model.fit(cells.X, **more)
    H = getattr(model, "components_", None)
    said = {
        "method": type(model).__name__,
        "parameters": {name: str(value) for name, value in model.get_params(deep=False).items()},
        "graph": graph or "",
    }
    _fill(adata, key_added, to_numpy(model.embedding_), None if H is None else to_numpy(H),
          layer, said)  # fmt: skip
    return model


@on_tables
def consensus(
    adata: Any,
    k: int,
    *,
    layer: str | None = None,
    n_genes: int = 2000,
    n_runs: int = 100,
    density_threshold: float = 0.5,
    neighborhood: float = 0.3,
    beta_loss: str = "frobenius",
    sample_key: str | None = None,
    n_programmes: int | None = None,
    device: str | None = None,
    random_state: int = 0,
    key_added: str = "parts",
) -> steps.Programmes:
    """Gene programmes that come back in many runs, by the steps of cNMF.

    Parameters
    ----------
    adata : AnnData
        Changed in place; ``X`` or the layer must hold counts.
    k : int
        Number of programmes.
    layer : str, default=None
    n_genes : int, default=2000
        Genes that the runs see, those that vary most by cNMF's rule; 0: all.
    n_runs : int, default=100
    density_threshold, neighborhood : float
        As in `partwise.consensus`.
    beta_loss : {"frobenius", "kullback-leibler"}, default="frobenius"
    sample_key : str, default=None
        A column of ``obs`` that names samples (donors, batches): runs are made for each of them,
        and pooled. ``in_samples`` then says in how many samples each programme comes back.
    n_programmes : int, default=None
        With ``sample_key``: how many groups are made of the k parts of each run; None: k.
    device : str, default=None
        A torch device, as "cuda".
    random_state : int, default=0
    key_added : str, default="parts"

    Returns
    -------
    programmes : Programmes
        ``obsm["X_parts"]`` holds the usages (NaN for cells without a count), ``varm["parts"]`` the
        programmes in transcripts per million, ``varm["parts_scores"]`` the z-scores of genes,
        ``var["parts_used"]`` the genes that runs saw, and ``uns["parts"]`` the rest.

    See Also
    --------
    partwise.consensus : The same for any non-negative X, in its own units.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> found = partwise.cells.consensus(adata, 2, n_runs=5, density_threshold=2.0, n_genes=0)
    >>> adata.obsm["X_parts"].shape, found.k
    ((60, 2), 2)
    """
    cells = from_anndata(adata, layer=layer)
    steps.check_names([str(name) for name in adata.var_names], adata.n_vars, "adata")
    prepared = steps.prepare(
        cells.X, n_genes, cells=cells.ids, genes=cells.feature_names, source=_source(layer)
    )
    if device is not None:
        prepared = steps.on_device(prepared, device)
    model = steps.model_of_runs(beta_loss)
    place = {name: i for i, name in enumerate(cells.ids)}
    at = np.array([place[name] for name in prepared.cells])
    common: dict[str, Any] = {
        "density_threshold": density_threshold,
        "neighborhood": neighborhood,
        "loss": beta_loss,
        "seed": random_state,
    }
    if sample_key is None:
        found = steps.each_run(
            prepared.seen, k, n_runs, model=model, seed=random_state, only=range(n_runs)
        )
        one = steps.programmes_of(prepared, np.concatenate([H for _, H in found]), k, **common)
    else:
        names = _column(adata, sample_key).to_numpy()[at]
        one = steps.across_samples(
            prepared, names, k, n_runs=n_runs, model=model, n_programmes=n_programmes, **common
        )
    usages = np.full((adata.n_obs, one.k), np.nan)
    usages[at] = one.found.usages
    said = {
        "method": "consensus",
        "parameters": {
            "k": k, "n_runs": n_runs, "n_genes": n_genes, "beta_loss": beta_loss,
            "density_threshold": density_threshold, "neighborhood": neighborhood,
            "random_state": random_state, "sample_key": sample_key or "",
        },
        "stability": one.found.stability,
        "notes": list(prepared.notes),
    }  # fmt: skip
    if one.samples is not None:
        said["samples"] = one.samples
        said["sample_names"] = list(one.sample_names)
    _fill(adata, key_added, usages, one.found.parts, layer, said)
    adata.varm[f"{key_added}_scores"] = np.ascontiguousarray(one.scores.T)
    adata.var[f"{key_added}_used"] = np.isin(np.arange(adata.n_vars), prepared.kept)
    adata.var[f"{key_added}_deviation"] = prepared.deviation
    adata.uns[key_added]["markers"] = _numbered(one.top_genes(20))
    return one


@on_tables
def integrate(
    adata: Any,
    batch_key: str,
    n_components: int = 20,
    *,
    own: int = 1,
    scale: bool = True,
    layer: str | None = None,
    key_added: str = "parts",
    **parameters: Any,
) -> Any:
    r"""Parts that all batches share, beside parts that each batch has to itself.

    .. math:: \min_{V, B, W, H \ge 0} \sum_i \tfrac12 \|X_i - V_i W - B_i H_i\|^2

    over the batches i: `ConstrainedNMF` with the batch as label and a cost that keeps cells off the
    parts of other batches. The codes V of the shared parts are what cells of different batches can
    be compared by.

    Integrative NMF (LIGER) is another model, X_i ≈ V_i (W + H_i): there a batch bends each shared
    part, with the same codes. Here what a batch adds has codes of its own. That a batch measures
    some genes more strongly is taken out first (``scale``), as LIGER does as well.

    Parameters
    ----------
    adata : AnnData
        Changed in place. Values are taken as they are.
    batch_key : str
        A column of ``obs``.
    n_components : int, default=20
        Shared parts.
    own : int, default=1
        Parts of each batch.
    scale : bool, default=True
        Divide each gene by its root mean square in each batch.
    layer : str, default=None
    key_added : str, default="parts"
    **parameters
        Of `ConstrainedNMF`.

    Returns
    -------
    model : ConstrainedNMF
        Its first parts are those of the batches. ``obsm["X_parts"]`` holds the codes of the shared
        parts, ``obsm["X_parts_batch"]`` the others, ``varm["parts"]`` the shared parts.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> adata.obs["batch"] = ["a", "b"] * 30
    >>> model = partwise.cells.integrate(adata, "batch", 2, random_state=0)
    >>> adata.obsm["X_parts"].shape, adata.obsm["X_parts_batch"].shape
    ((60, 2), (60, 2))
    """
    names = _column(adata, batch_key).to_numpy()
    batches = sorted(set(names))
    if len(batches) < 2:
        raise ValueError(
            f"adata.obs[{batch_key!r}] names one batch, {batches[0]!r}; two are needed."
        )
    X = from_anndata(adata, layer=layer).X
    X = sp.csr_array(X) if sp.issparse(X) else X
    if scale:
        X = _alike(X, names, batches)
    length = np.sqrt((X * X).sum(axis=1))  # entry by entry, also of a sparse array
    alone = own * len(batches)
    settings = {"tol": 1e-3, "random_state": 0, **parameters}
    model = ConstrainedNMF(
        n_components=n_components + alone, components_per_class=own,
        # a part of length one gains a code at most the length of its sample: more than that is off
        class_reg=4.0 * float(length.max()), **settings,
    )  # fmt: skip
    model.fit(X, names)
    V, H = (np.asarray(to_numpy(a)) for a in (model.embedding_, model.components_))
    said = {
        "method": "integrate",
        "parameters": {
            "batch_key": batch_key,
            "own": own,
            "scale": scale,
            "beta_loss": "frobenius",
        },
        "batches": batches,
    }
    _fill(adata, key_added, np.ascontiguousarray(V[:, alone:]), H[alone:], layer, said)
    adata.obsm[f"X_{key_added}_batch"] = np.ascontiguousarray(V[:, :alone])
    return model


def _alike(X: Any, names: Any, batches: Sequence[str]) -> Any:
    """Each gene over its root mean square in each batch; genes that a batch lacks stay zero."""
    blocks, order = [], []
    for batch in batches:
        at = np.flatnonzero(names == batch)
        block = X[at]
        mean = np.asarray((block * block).mean(axis=0), dtype=np.float64)
        scale = np.divide(1, np.sqrt(mean), out=np.zeros_like(mean), where=mean > 0)
        blocks.append(block @ sp.diags_array(scale) if sp.issparse(block) else block * scale)
        order.append(at)
    stacked = sp.vstack(blocks, format="csr") if sp.issparse(X) else np.concatenate(blocks)
    return stacked[np.argsort(np.concatenate(order), kind="stable")]


@on_tables
def classify(
    adata: Any,
    label_key: str,
    *,
    layer: str | None = None,
    graph: str | None = None,
    key_added: str = "parts_name",
    **parameters: Any,
) -> PartsClassifier:
    """Names for all cells from the labels of a few, with probabilities.

    Parameters
    ----------
    adata : AnnData
        Changed in place.
    label_key : str
        The column of ``obs`` with the labels; missing where unknown.
    layer : str, default=None
    graph : str, default=None
        A graph in ``obsp`` in the place of neighbours in expression.
    key_added : str, default="parts_name"
    **parameters
        Of `PartsClassifier`.

    Returns
    -------
    model : PartsClassifier
        ``obs["parts_name"]`` holds the names, ``obs["parts_name_probability"]`` how probable each
        is, ``obsm["parts_name_probabilities"]`` those of all classes (in the order of
        ``uns["parts_name"]["classes"]``), ``uns["parts_name"]`` the expected accuracy.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> adata.X[:30, :10] += 4
    >>> adata.obs["type"] = ["a"] * 5 + [None] * 25 + ["b"] * 5 + [None] * 25
    >>> model = partwise.cells.classify(adata, "type", random_state=0)
    >>> adata.obs["parts_name"].value_counts().to_dict()
    {'a': 30, 'b': 30}
    """
    import pandas as pd

    cells = from_anndata(adata, label_key=label_key, layer=layer)
    W = None if graph is None else _obsp(adata, graph)
    model = PartsClassifier(**parameters).fit(cells.X, cells.y, graph=W)
    names = [str(name) for name in model.transduction_]
    adata.obs[key_added] = pd.Categorical(names, [str(name) for name in model.classes_])
    adata.obs[f"{key_added}_probability"] = model.label_confidence_
    adata.obsm[f"{key_added}_probabilities"] = np.asarray(model.label_distributions_)
    told = model.expected_accuracy_
    adata.uns[key_added] = {
        "method": "PartsClassifier",
        "parameters": {name: str(value) for name, value in model.get_params().items()},
        "classes": [str(name) for name in model.classes_],
        "expected_accuracy": float(told.accuracy),
        "expected_interval": [float(told.low), float(told.high)],
        "label_key": label_key,
        "graph": graph or "",
        **_made_of(layer),
    }
    return model


@on_tables
def project(
    adata: Any,
    reference: Any,
    *,
    layer: str | None = None,
    key: str = "parts",
    key_added: str | None = None,
    least: float = 0.5,
) -> AnyArray:
    """The usages of known programmes in other cells, with the programmes held as they are.

    Genes are matched by name. What a `consensus` found is fitted to transcripts per million of the
    genes that its runs saw, each over its standard deviation there; what `factorize` found, to
    values as they are.

    Parameters
    ----------
    adata : AnnData
        The other cells; changed in place.
    reference : AnnData
        The one that holds the programmes.
    layer : str, default=None
        Of ``adata``.
    key : str, default="parts"
        Where the programmes are in ``reference``.
    key_added : str, default=None
        None: ``key``.
    least : float, default=0.5
        Refuse where fewer than this share of the programmes' weight lies on genes that ``adata``
        has; a note in ``uns`` names what is missing.

    Returns
    -------
    usages : ndarray of shape (n_cells, k)
        Also in ``obsm["X_parts"]``.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> model = partwise.cells.factorize(adata, 2, random_state=0)
    >>> partwise.cells.project(adata[:10].copy(), adata).shape
    (10, 2)
    """
    key_added = key if key_added is None else key_added
    held = reference.uns.get(key)
    if held is None or key not in reference.varm:
        varm = ", ".join(map(str, reference.varm)) or "nothing"
        raise ValueError(
            f"reference has no programmes called {key!r} (varm holds {varm}); factorize or "
            "consensus makes them."
        )
    by_counts = held["method"] == "consensus"
    H = np.asarray(reference.varm[key]).T
    used = np.flatnonzero(
        np.asarray(reference.var[f"{key}_used"]) if by_counts else np.isfinite(H).all(axis=0)
    )
    at = {str(name): j for j, name in enumerate(adata.var_names)}
    if len(at) < adata.n_vars:
        steps.check_names([str(name) for name in adata.var_names], adata.n_vars, "adata")
    names = [str(reference.var_names[j]) for j in used]
    there = np.array([name in at for name in names], dtype=bool)
    weight = np.abs(H[:, used])
    share = float(weight[:, there].sum() / max(weight.sum(), 1e-300))
    gone = [name for name, is_there in zip(names, there, strict=True) if not is_there]
    if share < least:
        raise ValueError(
            f"adata lacks {len(gone)} of the {len(names)} genes of the programmes ({shown(gone)}), "
            f"and only {share:.0%} of their weight is on the others; least={least:g} is asked for."
        )
    columns = [at[name] for name, is_there in zip(names, there, strict=True) if is_there]
    X = from_anndata(adata, layer=layer).X
    H = np.ascontiguousarray(H[:, used[there]], dtype=np.float32)
    if by_counts:
        steps.check_names(names, len(names), "reference")
        hint = "The programmes were found in counts."
        X = steps.per_total(steps.counted(X, _source(layer), "project", hint))[:, columns]
        scale = 1 / np.asarray(reference.var[f"{key}_deviation"])[used[there]]
        X, H = steps.times(X, scale), H * scale.astype(np.float32)
        loss = str(held["parameters"]["beta_loss"])
    else:
        X = X[:, columns].astype(np.float32)
        loss = str(held["parameters"].get("beta_loss", "frobenius"))
    V = np.asarray(to_numpy(Refits(NMF(beta_loss=loss), "project").codes(X, H)), dtype=np.float64)
    said = {
        "method": "project",
        "parameters": {"key": key, "least": least, "beta_loss": loss},
        "missing_genes": gone,
        "share_of_weight": share,
    }
    adata.obsm[f"X_{key_added}"] = V
    adata.uns[key_added] = {**said, **_made_of(layer)}
    return V


@on_tables
def score_markers(adata: Any, markers: Mapping[str, Sequence[str]], *, key: str = "parts") -> Any:
    """How much each set of marker genes leads in each programme.

    The mean score of the set's genes minus that of all genes, in standard errors of a mean of so
    many genes drawn at random: above 3 is no accident. Scores are the z-scores of `consensus`, or
    what sets a part of `factorize` apart from the others.

    Parameters
    ----------
    adata : AnnData
        With programmes; ``uns[key]["marker_scores"]`` is added.
    markers : mapping of str to sequence of str
        Names and their genes. Genes that are not there are left out, and sets without any get NaN.
    key : str, default="parts"

    Returns
    -------
    table : pandas.DataFrame
        A row for each part, a column for each set.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> model = partwise.cells.factorize(adata, 2, random_state=0)
    >>> partwise.cells.score_markers(adata, {"mine": list(adata.var_names[:3])}).shape
    (2, 1)
    """
    import pandas as pd

    from partwise.io.genes import specificity

    if key not in adata.varm:
        raise ValueError(
            f"adata has no programmes called {key!r}; factorize or consensus makes them."
        )
    if not markers:
        raise ValueError("markers must name at least one set of genes.")
    held = f"{key}_scores"
    if held in adata.varm:
        scores = np.asarray(adata.varm[held]).T
    else:
        scores = specificity(np.nan_to_num(np.asarray(adata.varm[key]).T))
    at = {str(name): j for j, name in enumerate(adata.var_names)}
    spread = scores.std(axis=1)
    table = {}
    for name, genes in markers.items():
        if isinstance(genes, str):
            raise ValueError(f"markers[{name!r}] must be a list of genes, got {genes!r}.")
        own = sorted({at[str(gene)] for gene in genes if str(gene) in at})
        unknown = np.full(len(scores), np.nan)
        above = scores[:, own].mean(axis=1) - scores.mean(axis=1) if own else unknown
        error = spread / np.sqrt(max(len(own), 1))
        table[str(name)] = np.divide(above, error, out=unknown, where=error > 0)
    found = pd.DataFrame(table, index=[f"part {j + 1}" for j in range(len(scores))])
    adata.uns.setdefault(key, {})["marker_scores"] = {
        name: found[name].to_numpy() for name in found
    }
    return found


@on_tables
def spatial_graph(
    adata: Any,
    n_neighbors: int | None = 6,
    *,
    radius: float | None = None,
    basis: str = "spatial",
    sample_key: str | None = None,
    join: str | None = None,
    share: float = 0.5,
    key_added: str = "spatial_connectivities",
) -> sp.csr_array:
    """The graph of the cells that lie beside each other, in ``obsp``.

    Parameters
    ----------
    adata : AnnData
        Changed in place.
    n_neighbors, radius
        As in `partwise.graph.spatial_graph`.
    basis : str, default="spatial"
        Coordinates in ``obsm``, or two columns of ``obs`` as "x,y".
    sample_key : str, default=None
        A column of ``obs`` with the slide of each cell; slides are not joined.
    join : str, default=None
        A graph in ``obsp`` to join with, such as "connectivities" of expression.
    share : float, default=0.5
        How much places count beside it.
    key_added : str, default="spatial_connectivities"

    Returns
    -------
    graph : csr_array

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> adata.obsm["spatial"] = np.random.default_rng(1).random((60, 2))
    >>> partwise.cells.spatial_graph(adata).shape
    (60, 60)
    """
    if basis in adata.obsm:
        places = np.asarray(adata.obsm[basis])[:, :3]
    else:
        columns = [name.strip() for name in basis.split(",")]
        gone = [name for name in columns if name not in adata.obs]
        if len(columns) not in (2, 3) or gone:
            held = ", ".join(map(str, adata.obsm)) or "nothing"
            raise ValueError(
                f"adata.obsm has no {basis!r} (it holds {held}); basis names it, or columns of "
                "obs, as 'x,y'."
            )
        places = adata.obs[columns].to_numpy(dtype=float)
    check_places(places, list(map(str, adata.obs_names)), f"coordinates {basis!r}")
    slides = None if sample_key is None else _column(adata, sample_key).to_numpy()
    W = graph_of_places(places, n_neighbors, radius=radius, samples=slides)
    if join is not None:
        W = join_graphs(_obsp(adata, join), W, share)
    adata.obsp[key_added] = sp.csr_matrix(W)
    return W


# -- what they share ------------------------------------------------------------------------------


def _fill(
    adata: Any, key: str, V: AnyArray, H: AnyArray | None, layer: str | None, said: dict[str, Any]
) -> None:
    """Codes, parts and what made them."""
    adata.obsm[f"X_{key}"] = V
    if H is not None and H.shape[1] == adata.n_vars:
        adata.varm[key] = np.ascontiguousarray(H.T)
        names = [str(name) for name in adata.var_names]
        said = {**said, "markers": _numbered(top_features(H, names, 20))}
    adata.uns[key] = {**said, **_made_of(layer)}


def _numbered(lists: list[list[str]]) -> dict[str, list[str]]:
    return {f"part {j + 1}": names for j, names in enumerate(lists)}


def _made_of(layer: str | None) -> dict[str, str]:
    return {"layer": layer or "X", "partwise_version": __version__}


def _source(layer: str | None) -> str:
    return "adata.X" if layer is None else f"layer {layer!r}"


def _obsp(adata: Any, name: str) -> sp.csr_array:
    if name not in adata.obsp:
        held = ", ".join(map(str, adata.obsp)) or "none"
        raise ValueError(f"adata.obsp has no graph {name!r}; it has {held}.")
    W = sp.csr_array(adata.obsp[name])
    return check_graph(W.maximum(W.T), adata.n_obs, name=f"obsp[{name!r}]")


def _column(adata: Any, name: str) -> Any:
    if name not in adata.obs:
        held = ", ".join(map(str, adata.obs)) or "none"
        raise ValueError(f"adata.obs has no column {name!r}; it has {held}.")
    column = adata.obs[name]
    if column.isna().any():
        first = str(adata.obs_names[int(np.flatnonzero(column.isna())[0])])
        raise ValueError(
            f"adata.obs[{name!r}] is missing for {int(column.isna().sum())} cells, the first is "
            f"{first!r}."
        )
    return column.astype(str)
