"""Functions that read an AnnData object and add results to it.

Each function reads ``X`` or a layer without changing it. As usual in scverse, part weights are
added to ``obsm``, parts to ``varm``, and method, parameters and version to ``uns``. The argument
``key_added`` is the name of all of them. If a SpatialData or MuData object has one table, the
functions use this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from partwise._versions import __version__
from partwise.apps.cells import programmes as steps
from partwise.apps.cells.tables import on_tables
from partwise.backends import in_memory, in_memory_or_dask
from partwise.backends.arrays import AnyArray, row_blocks, to_numpy
from partwise.classify.parts_classifier import PartsClassifier
from partwise.estimators.constrained import ConstrainedNMF
from partwise.estimators.gnmf import GNMF
from partwise.estimators.nmf import NMF
from partwise.estimators.saving import estimator_class
from partwise.io._common import shown
from partwise.io.anndata_files import from_anndata, labels_of, layer_of
from partwise.io.genes import specificity, top_features
from partwise.knowledge.graph import check_graph
from partwise.knowledge.graph.places import check_places, join_graphs
from partwise.knowledge.graph.places import spatial_graph as graph_of_places
from partwise.selection.consensus import times
from partwise.selection.refits import Refits, dense, rows_of

#: Parameters of `ConstrainedNMF` that `integrate` refuses, because it sets them or does not use
#: them.
TAKEN = (
    *("beta_loss", "class_reg", "components_per_class", "fixed_components", "hard_labels"),
    *("missing_values", "seed_components", "terms", "basis_terms"),
)


@on_tables
def factorize(
    adata: Any,
    n_components: int | None = None,
    *,
    estimator: Any = None,
    layer: str | None = None,
    graph: str | None = None,
    label_key: str | None = None,
    key_added: str = "parts",
    **parameters: Any,
) -> Any:
    """Compute parts and part weights of the cells with any estimator of this package.

    Parameters
    ----------
    adata : AnnData
        Changed in place. Values are used as they are: normalise them first, or pass
        ``beta_loss="kullback-leibler"`` for counts. A Dask array is fitted chunk by chunk if the
        estimator can, and loaded into memory otherwise.
    n_components : int, default=None
        Number of parts. None uses the number of ``estimator``, or 10 without an estimator.
    estimator : estimator or class, default=None
        An estimator keeps its other parameters. None: `NMF`, or `GNMF` with a graph.
    layer : str, default=None
        The layer to use instead of ``X``; "raw" is ``adata.raw``.
    graph : str, default=None
        A graph in ``obsp``, such as "connectivities" or "spatial_connectivities".
    label_key : str, default=None
        A column of ``obs`` with labels, for an estimator that uses them.
    key_added : str, default="parts"
        Name of the results.
    **parameters
        Parameters of the estimator.

    Returns
    -------
    model : estimator
        The fitted model. ``obsm["X_parts"]`` contains the part weights, ``varm["parts"]`` the
        parts, one per column, and ``uns["parts"]`` the method, its parameters, the version and the
        marker genes of each part.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).gamma(0.3, size=(50, 20)))
    >>> model = partwise.cells.factorize(adata, 3, random_state=0)
    >>> adata.obsm["X_parts"].shape, adata.varm["parts"].shape
    ((50, 3), (20, 3))
    """
    W = None if graph is None else _obsp(adata, graph)
    estimator = (NMF if W is None else GNMF) if estimator is None else estimator
    if isinstance(estimator, type):
        model = estimator(n_components=n_components or 10, **parameters)
    else:
        size = {} if n_components is None else {"n_components": n_components}
        model = clone(estimator).set_params(**size, **parameters)
    given = {"graph": W, "y": None if label_key is None else labels_of(adata, label_key)}
    refits = Refits(model, "factorize", given)
    V = model.fit(_values(adata, layer, model), **refits.given).embedding_
    info = {"method": type(model).__name__, "parameters": _parameters(model), "graph": graph or ""}
    H = getattr(model, "components_", None)
    _fill(adata, key_added, rows_of(V), None if H is None else to_numpy(H), layer, info)
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
    beta_loss: str | float = "frobenius",
    sample_key: str | None = None,
    n_programmes: int | None = None,
    device: str | None = None,
    random_state: int = 0,
    key_added: str = "parts",
) -> steps.Programmes:
    """Find gene programs that recur in many runs, by the steps of cNMF.

    Parameters
    ----------
    adata : AnnData
        Changed in place; ``X`` or the layer must hold counts. A Dask array is loaded into memory.
    k : int
        Number of programs.
    layer : str, default=None
        The layer to use instead of ``X``.
    n_genes : int, default=2000
        Number of genes used in the runs: the most variable ones by cNMF's rule. 0 uses all genes.
    n_runs : int, default=100
        Number of runs; more runs make the stability more certain.
    density_threshold, neighborhood : float
        As in `partwise.consensus`.
    beta_loss : {"frobenius", "kullback-leibler"} or float, default="frobenius"
        The loss, as in `NMF`.
    sample_key : str, default=None
        A column of ``obs`` with the sample (donor, batch) of each cell. Runs are made for each
        sample and pooled; ``in_samples`` is the number of samples in which each program recurs.
    n_programmes : int, default=None
        With ``sample_key``: number of programs into which the k parts of each run are grouped.
        None: k.
    device : str, default=None
        A torch device such as "cuda".
    random_state : int, default=0
        Random seed.
    key_added : str, default="parts"
        Name of the results.

    Returns
    -------
    programmes : Programmes
        ``obsm["X_parts"]`` contains the usages (NaN for cells without a count), ``varm["parts"]``
        the programs in transcripts per million, ``varm["parts_scores"]`` the z-scores of genes,
        ``var["parts_used"]`` marks the genes used in the runs, and ``uns["parts"]`` the rest.

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
    import pandas as pd

    cells = from_anndata(adata, layer=layer)
    steps.check_names([str(name) for name in adata.var_names], adata.n_vars, "adata")
    prepared = steps.prepare(
        cells.X, n_genes, cells=cells.ids, genes=cells.feature_names, source=_source(layer)
    )
    if device is not None:
        prepared = steps.on_device(prepared, device)
    model = steps.model_of_runs(beta_loss)
    at = pd.Index(cells.ids).get_indexer(prepared.cells)
    limits = {"density_threshold": density_threshold, "neighborhood": neighborhood}
    common: dict[str, Any] = {"loss": beta_loss, "seed": random_state, **limits}
    if sample_key is None:
        runs = steps.each_run(
            prepared.seen, k, n_runs, model=model, seed=random_state, only=range(n_runs)
        )
        one = steps.programmes_of(prepared, np.concatenate([H for _, H in runs]), k, **common)
    else:
        names = _column(adata, sample_key)[at]
        one = steps.across_samples(
            prepared, names, k, n_runs=n_runs, model=model, n_programmes=n_programmes, **common
        )
    usages = np.full((adata.n_obs, one.k), np.nan)
    usages[at] = one.found.usages
    info = {
        "method": "consensus",
        "parameters": {
            "k": k, "n_runs": n_runs, "n_genes": n_genes, "beta_loss": beta_loss, **limits,
            "random_state": random_state, "sample_key": sample_key or "",
        },
        "stability": one.found.stability,
        "notes": list(prepared.notes),
    }  # fmt: skip
    if one.samples is not None:
        info |= {"samples": one.samples, "sample_names": list(one.sample_names)}
    _fill(adata, key_added, usages, one.found.parts, layer, info)
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
    r"""Compute parts that all batches share, and parts that belong to one batch each.

    .. math:: \min_{V, B, W, H \ge 0} \sum_i \tfrac12 \|X_i - V_i W - B_i H_i\|^2

    over the batches i: `ConstrainedNMF` with the batch as label and a cost for using the parts of
    other batches. The part weights V of the shared parts make cells of different batches
    comparable.

    Integrative NMF (LIGER) is a different model, X_i ≈ V_i (W + H_i): there a batch changes each
    shared part, with the same part weights. Here the parts of a batch have part weights of their
    own. Genes that a batch measures more strongly are scaled first (``scale``), as in LIGER.

    Parameters
    ----------
    adata : AnnData
        Changed in place. A Dask array is loaded into memory.
    batch_key : str
        A column of ``obs`` with the batch of each cell.
    n_components : int, default=20
        Number of shared parts.
    own : int, default=1
        Number of parts per batch.
    scale : bool, default=True
        Divide each gene by its root mean square in each batch.
    layer : str, default=None
        The layer to use instead of ``X``.
    key_added : str, default="parts"
        Name of the results.
    **parameters
        Other parameters of `ConstrainedNMF`, for example ``max_iter``.

    Returns
    -------
    model : ConstrainedNMF
        Its first parts are those of the batches. ``obsm["X_parts"]`` contains the part weights of
        the shared parts and ``obsm["X_parts_batch"]`` the others; ``varm["parts"]`` and
        ``varm["parts_batch"]`` contain the parts, in the units of the scaled genes.
        ``varm["parts_scale"]`` contains the factor of each gene in each batch.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> adata.obs["batch"] = ["a", "b"] * 30
    >>> model = partwise.cells.integrate(adata, "batch", 2, random_state=0)
    >>> adata.obsm["X_parts"].shape, adata.obsm["X_parts_batch"].shape
    ((60, 2), (60, 2))
    """
    taken = [name for name in TAKEN if name in parameters]
    if taken:
        raise ValueError(f"integrate does not accept {taken[0]}; use ConstrainedNMF to set it.")
    batches, at = np.unique(_column(adata, batch_key), return_inverse=True)
    if len(batches) < 2:
        raise ValueError(
            f"integrate needs two batches; adata.obs[{batch_key!r}] has only {batches[0]!r}."
        )
    X = from_anndata(adata, layer=layer).X
    factors = np.ones((len(batches), 1))
    if scale:
        factors = _inverse_roots(_sums_of_squares(X, at, len(batches)), at)
    X = _scaled(X, at, factors)
    length = np.sqrt((X * X).sum(axis=1))  # `*` is an entry-wise product, also for a sparse array
    alone = own * len(batches)
    model = ConstrainedNMF(
        n_components=n_components + alone, components_per_class=own,
        # Using a part of length one lowers the loss by at most the sample's length per unit of
        # weight, so with this cost no cell uses parts of another batch.
        class_reg=4.0 * float(length.max()), **{"tol": 1e-3, "random_state": 0, **parameters},
    )  # fmt: skip
    model.fit(X, batches[at])
    V, H = (np.asarray(to_numpy(a)) for a in (model.embedding_, model.components_))
    info = {
        "method": "integrate",
        "parameters": {"batch_key": batch_key, "own": own, "scale": scale},
        "model": _parameters(model),
        "batches": [str(name) for name in batches],
    }
    _fill(adata, key_added, np.ascontiguousarray(V[:, alone:]), H[alone:], layer, info)
    adata.obsm[f"X_{key_added}_batch"] = np.ascontiguousarray(V[:, :alone])
    if H.shape[1] == adata.n_vars:
        adata.varm[f"{key_added}_batch"] = np.ascontiguousarray(H[:alone].T)
        if scale:
            adata.varm[f"{key_added}_scale"] = np.ascontiguousarray(factors.T)
    return model


def _sums_of_squares(X: Any, at: AnyArray, n_batches: int) -> AnyArray:
    """Return the sum of squares of each gene in each batch."""
    squares = X.power(2) if sp.issparse(X) else X * X
    member = sp.csr_array((np.ones(len(at)), (at, np.arange(len(at)))), (n_batches, len(at)))
    return dense(member @ squares)


def _inverse_roots(squares: AnyArray, at: AnyArray) -> AnyArray:
    """Return 1 / root mean square of each gene in each batch; 0 for unmeasured genes."""
    mean = squares / np.maximum(np.bincount(at, minlength=len(squares)), 1)[:, None]
    return np.divide(1, np.sqrt(mean), out=np.zeros_like(mean), where=mean > 0)


def _scaled(X: Any, at: AnyArray, factors: AnyArray) -> Any:
    """Return X with each gene multiplied by its factor for the cell's batch."""
    if not sp.issparse(X):
        return X if factors.shape[1] == 1 else X * factors[at]
    X = sp.csr_array(X, copy=True)
    if factors.shape[1] > 1:
        X.data = X.data * factors[np.repeat(at, np.diff(X.indptr)), X.indices]
    return X


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
    """Predict the label of all cells, with probabilities, from the labels of a few.

    Parameters
    ----------
    adata : AnnData
        Changed in place. A Dask array is loaded into memory.
    label_key : str
        The column of ``obs`` with the labels; missing where unknown.
    layer : str, default=None
        The layer to use instead of ``X``.
    graph : str, default=None
        A graph in ``obsp``, used instead of neighbours in expression.
    key_added : str, default="parts_name"
        Name of the results.
    **parameters
        Parameters of `PartsClassifier`.

    Returns
    -------
    model : PartsClassifier
        ``obs["parts_name"]`` contains the predicted labels, ``obs["parts_name_probability"]`` their
        probabilities, ``obsm["parts_name_probabilities"]`` those of all classes (in the order of
        ``uns["parts_name"]["classes"]``), and ``uns["parts_name"]`` the expected accuracy.

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
    expected = model.expected_accuracy_
    adata.uns[key_added] = {
        "method": "PartsClassifier",
        "parameters": _parameters(model),
        "classes": [str(name) for name in model.classes_],
        "expected_accuracy": float(expected.accuracy),
        "expected_interval": [float(expected.low), float(expected.high)],
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
    """Compute the part weights of other cells for known parts, which stay fixed.

    Genes are matched by name. Each cell is solved as in the fit that found the parts, with its
    loss, units, missing values and penalties, but without labels and graphs. Parts of `consensus`
    are fitted to transcripts per million of the genes that its runs saw, each over its standard
    deviation there. After `integrate`, each cell also has the parts of its batch, and its genes are
    scaled as those of the batch; a new batch has no parts, and is scaled by its own cells.

    Parameters
    ----------
    adata : AnnData
        The other cells; changed in place. A Dask array is read chunk by chunk.
    reference : AnnData
        The object that contains the parts.
    layer : str, default=None
        The layer of ``adata`` to use; "X" is ``adata.X``. None: the layer that the parts were
        found in.
    key : str, default="parts"
        Name of the parts in ``reference``.
    key_added : str, default=None
        Name of the results. None: ``key``.
    least : float, default=0.5
        Smallest share of the weight of the parts on genes that ``adata`` has; ``uns`` lists the
        missing genes.

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
    info = reference.uns.get(key)
    if info is None or key not in reference.varm:
        varm = ", ".join(map(str, reference.varm)) or "nothing"
        raise ValueError(f"reference has no parts called {key!r}; its varm holds {varm}.")
    layer = str(info.get("layer", "X")) if layer is None else layer
    layer = None if layer == "X" and "X" not in adata.layers else layer
    genes = _SharedGenes(adata, reference, key, least)
    make = {"consensus": _programs, "integrate": _shared_parts}.get(info["method"], _estimated)
    usages = make(adata, reference, layer, key, genes, info)
    adata.obsm[f"X_{key_added}"] = usages
    adata.uns[key_added] = {
        "method": "project",
        "parameters": {"key": key, "least": least},
        "missing_genes": genes.missing,
        "share_of_weight": genes.share,
        **_made_of(layer),
    }
    return usages


class _SharedGenes:
    """Genes that both the reference with the parts and the other cells have.

    ``rows`` are their positions in the reference, and ``columns`` those in the other cells'
    ``adata``.
    """

    def __init__(self, adata: Any, reference: Any, key: str, least: float) -> None:
        """Find the genes of the parts that ``adata`` also has.

        Raise an error if they have less than the share ``least`` of the weight of the parts.
        """
        H = np.asarray(reference.varm[key]).T
        used = np.isfinite(H).all(axis=0)
        if f"{key}_used" in reference.var:
            used &= np.asarray(reference.var[f"{key}_used"], dtype=bool)
        mine, theirs = (object_.var_names.astype(str) for object_ in (adata, reference))
        steps.check_names(list(mine), adata.n_vars, "adata")
        steps.check_names(list(theirs), reference.n_vars, "reference")
        at = mine.get_indexer(theirs)
        self.rows = np.flatnonzero(used & (at >= 0))
        self.columns = at[self.rows]
        self.missing = [str(name) for name in theirs[used & (at < 0)]]
        total = np.abs(H[:, used]).sum()
        self.share = float(np.abs(H[:, self.rows]).sum() / max(total, 1e-300))
        if self.share < least:
            raise ValueError(
                f"adata lacks {len(self.missing)} of the {used.sum()} genes of the parts "
                f"({shown(self.missing)}). The other genes hold only {self.share:.0%} of the "
                f"weight of the parts, and least={least:g} is required."
            )

    def parts(self, reference: Any, key: str) -> AnyArray:
        """Return the parts of the reference, restricted to the shared genes."""
        return np.ascontiguousarray(np.asarray(reference.varm[key])[self.rows].T)


def _programs(
    adata: Any, reference: Any, layer: str | None, key: str, genes: _SharedGenes, info: Any
) -> AnyArray:
    """Return usages (part weights) of the programs of `consensus` for other cells."""
    scale = 1 / np.asarray(reference.var[f"{key}_deviation"])[genes.rows]
    H = genes.parts(reference, key) * scale
    refits = Refits(NMF(beta_loss=_plain(info["parameters"]["beta_loss"])), "project")
    hint = "The programs were found in counts."
    usages = []
    for _, X in _blocks(adata, layer):
        X = steps.per_total(steps.counted(X, _source(layer), "project", hint))[:, genes.columns]
        usages.append(rows_of(refits.codes(times(X, scale), H)))
    return np.concatenate(usages).astype(np.float64)


def _estimated(
    adata: Any, reference: Any, layer: str | None, key: str, genes: _SharedGenes, info: Any
) -> AnyArray:
    """Return part weights of other cells for the parts that `factorize` found."""
    refits = Refits(_stored_model(info["method"], info["parameters"]), "project")
    H, usages = genes.parts(reference, key), []
    for _, X in _blocks(adata, layer, refits.missing_values):
        X, own = refits.samples(X[:, genes.columns])
        usages.append(rows_of(own.codes(X, H)))
    return np.concatenate(usages)


def _shared_parts(
    adata: Any, reference: Any, layer: str | None, key: str, genes: _SharedGenes, info: Any
) -> AnyArray:
    """Return part weights of other cells for the shared parts that `integrate` found."""
    settings, known = info["parameters"], [str(name) for name in info["batches"]]
    names = _column(adata, str(settings["batch_key"]))
    new = sorted(set(names) - set(known))
    at = np.array([(known + new).index(name) for name in names])
    own, k = int(settings["own"]), np.asarray(reference.varm[key]).shape[1]
    factors = np.ones((1, 1))
    if settings["scale"]:
        factors = np.asarray(reference.varm[f"{key}_scale"])[genes.rows].T
        if new:
            count = len(known) + len(new)
            squares = sum(
                _sums_of_squares(X[:, genes.columns], at[start : start + X.shape[0]], count)
                for start, X in _blocks(adata, layer)
            )
            factors = np.concatenate([factors, _inverse_roots(squares, at)[len(known) :]])
    model = _stored_model("ConstrainedNMF", info["model"])
    refits = Refits(model, "project")
    shared, batch = (genes.parts(reference, name) for name in (key, f"{key}_batch"))
    usages = np.zeros((adata.n_obs, k))
    for start, X in _blocks(adata, layer):
        here = at[start : start + X.shape[0]]
        X = _scaled(X[:, genes.columns], here, factors)
        for b in np.unique(here):
            H = np.concatenate([batch[b * own : (b + 1) * own], shared])
            rows = np.flatnonzero(here == b)
            usages[start + rows] = rows_of(refits.codes(X[rows], H))[:, -k:]
    return usages


@on_tables
def score_markers(adata: Any, markers: Mapping[str, Sequence[str]], *, key: str = "parts") -> Any:
    """Score sets of marker genes in each part.

    The score of a set is the mean score of its genes minus the mean score of all genes, divided by
    the standard error of the mean of equally many random genes. Scores above 3 are unlikely to
    occur by chance. The score of a gene is its z-score if the parts come from `consensus`, and its
    specificity for the part if they come from `factorize`.

    Parameters
    ----------
    adata : AnnData
        An object with parts, to which ``uns[key]["marker_scores"]`` is added.
    markers : mapping of str to sequence of str
        Names of the sets and their genes. Unknown genes are left out, and a set without known genes
        gets NaN.
    key : str, default="parts"
        Name of the parts.

    Returns
    -------
    table : pandas.DataFrame
        One row per part and one column per set.

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> model = partwise.cells.factorize(adata, 2, random_state=0)
    >>> partwise.cells.score_markers(adata, {"mine": list(adata.var_names[:3])}).shape
    (2, 1)
    """
    import pandas as pd

    if key not in adata.varm:
        raise ValueError(f"adata has no parts called {key!r}; factorize finds parts.")
    if not markers:
        raise ValueError("markers must have at least one set of genes.")
    if f"{key}_scores" in adata.varm:
        scores = np.asarray(adata.varm[f"{key}_scores"]).T
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
    by_set = {name: found[name].to_numpy() for name in found}
    adata.uns.setdefault(key, {})["marker_scores"] = by_set
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
    """Add a graph of cells that lie next to each other to ``obsp``.

    Parameters
    ----------
    adata : AnnData
        Changed in place.
    n_neighbors, radius
        As in `partwise.graph.spatial_graph`.
    basis : str, default="spatial"
        Coordinates in ``obsm``, or two or three columns of ``obs`` such as "x,y".
    sample_key : str, default=None
        A column of ``obs`` with the slide of each cell; slides are not joined.
    join : str, default=None
        A graph in ``obsp`` to combine with, such as "connectivities" of expression.
    share : float, default=0.5
        Weight of the coordinates when graphs are combined; larger values count them more.
    key_added : str, default="spatial_connectivities"
        Name of the graph.

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
        missing = [name for name in columns if name not in adata.obs]
        if len(columns) not in (2, 3) or missing:
            names = ", ".join(map(str, adata.obsm)) or "nothing"
            raise ValueError(
                f"adata has no coordinates {basis!r} in obsm, which holds {names}, or in obs."
            )
        places = adata.obs[columns].to_numpy(dtype=float)
    check_places(places, list(map(str, adata.obs_names)), f"coordinates {basis!r}")
    slides = None if sample_key is None else _column(adata, sample_key)
    W = graph_of_places(places, n_neighbors, radius=radius, samples=slides)
    if join is not None:
        W = join_graphs(_obsp(adata, join), W, share)
    adata.obsp[key_added] = sp.csr_matrix(W)
    return W


# -- reading and writing AnnData objects ----------------------------------------------------------


def _values(adata: Any, layer: str | None, model: Any) -> Any:
    """Return X or a layer of an AnnData object.

    It is a Dask array if the estimator can fit one, else an array in memory.
    """
    values, _ = layer_of(adata, layer)
    missing = getattr(model, "missing_values", None)
    if hasattr(values, "to_delayed") and model._describe().local:
        values = values.compute()
    if hasattr(values, "to_delayed"):
        return in_memory_or_dask(values, missing)
    return from_anndata(adata, layer=layer).X if missing is None else in_memory(values, missing)


def _blocks(
    adata: Any, layer: str | None, missing: float | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield the position of the first cell, and the values, of each block of cells."""
    values, _ = layer_of(adata, layer)
    if not hasattr(values, "to_delayed"):
        X = from_anndata(adata, layer=layer).X if missing is None else in_memory(values, missing)
        yield 0, X
        return
    start = 0
    for size in values.chunks[0]:
        for rows in row_blocks(size, values.shape[1]):
            here = slice(start + rows.start, start + rows.stop)
            yield here.start, in_memory(values[here].compute(), missing)
        start += size


def _fill(
    adata: Any, key: str, V: AnyArray, H: AnyArray | None, layer: str | None, info: dict[str, Any]
) -> None:
    """Add part weights, parts, and the method and parameters to an AnnData object."""
    adata.obsm[f"X_{key}"] = V
    if H is not None and H.shape[1] == adata.n_vars:
        adata.varm[key] = np.ascontiguousarray(H.T)
        names = [str(name) for name in adata.var_names]
        info = {**info, "markers": _numbered(top_features(H, names, 20))}
    adata.uns[key] = {**info, **_made_of(layer)}


def _numbered(lists: list[list[str]]) -> dict[str, list[str]]:
    """Return the lists as a dictionary with the keys "part 1", "part 2", ..."""
    return {f"part {j + 1}": names for j, names in enumerate(lists)}


def _made_of(layer: str | None) -> dict[str, str]:
    """Return the layer and the version of Partwise, which are stored with the results."""
    return {"layer": layer or "X", "partwise_version": __version__}


def _parameters(model: Any) -> dict[str, Any]:
    """Return an estimator's parameters as values that an .h5ad file can store.

    Parameters that are None are left out.
    """
    found: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, list | tuple | np.ndarray) and np.asarray(value).dtype.kind in "bif":
            found[name] = np.asarray(value)
        elif value is not None:
            plain = isinstance(value, bool | int | float | str | np.generic)
            found[name] = value if plain else str(value)
    return found


def _stored_model(method: str, stored: Mapping[str, Any]) -> Any:
    """Return the estimator with the parameters that are stored in ``uns``.

    Raise an error if it had parameters that cannot be stored.
    """
    kind = estimator_class(method)
    if kind is None:
        raise ValueError(
            f"{method!r} is not an estimator of partwise; pass its class to partwise.register."
        )
    for name in ("terms", "basis_terms"):
        if name in stored:
            raise ValueError(f"{name} of the model cannot be stored in AnnData; use its transform.")
    known = kind().get_params(deep=False).keys() - {"random_state", "checkpoint"}
    return kind(**{name: _plain(value) for name, value in stored.items() if name in known})


def _plain(value: Any) -> Any:
    """Return a value of ``uns`` as the Python type that it had before it was stored."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def _source(layer: str | None) -> str:
    """Return the name of the data in error messages."""
    return "adata.X" if layer is None else f"layer {layer!r}"


def _obsp(adata: Any, name: str) -> sp.csr_array:
    """Return a graph in ``obsp``, made symmetric and checked."""
    if name not in adata.obsp:
        names = ", ".join(map(str, adata.obsp)) or "none"
        raise ValueError(f"adata.obsp has no graph {name!r}; it has {names}.")
    W = sp.csr_array(adata.obsp[name])
    return check_graph(W.maximum(W.T), adata.n_obs, name=f"obsp[{name!r}]")


def _column(adata: Any, name: str) -> AnyArray:
    """Return a column of ``obs`` as text; raise an error if a cell has no value."""
    found = labels_of(adata, name)
    missing = [str(cell) for cell, label in zip(adata.obs_names, found) if label is None]
    if missing:
        raise ValueError(
            f"adata.obs[{name!r}] is missing for {len(missing)} cells, the first is {missing[0]!r}."
        )
    return found
