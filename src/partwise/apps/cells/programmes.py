"""From counts to programmes by the steps of cNMF: genes, runs, what comes back, scores of genes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from partwise.backends import as_data, back_end
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.backends.threads import allowed, one_blas_thread
from partwise.estimators.nmf import NMF
from partwise.evaluation.resampling import check_counts
from partwise.fitting import every_start
from partwise.io._common import shown
from partwise.io.genes import fano_genes
from partwise.model.subproblems import Quadratic
from partwise.selection.consensus import (
    Consensus,
    feature_moments,
    from_runs,
    over_sums,
    stability_of,
)
from partwise.selection.refits import Refits
from partwise.solvers.codes import solve_quadratic
from partwise.solvers.many_starts import ARRAYS, ROOM
from partwise.solvers.wide import width

#: Counts of a cell after scaling: transcripts per million.
TOTAL = 1e6


@dataclass(frozen=True, eq=False)
class PreparedCounts:
    """Counts of cells, ready for the runs.

    Attributes
    ----------
    seen : array of shape (n_cells, n_kept)
        Counts of the genes that vary most, each over its standard deviation: what runs see.
    tpm : array of shape (n_cells, n_genes)
        Counts of all genes, each cell scaled to a million.
    mean, deviation : ndarray of shape (n_genes,)
        Of the columns of ``tpm``.
    kept : ndarray of int
        The genes of ``seen``.
    cells, genes : list of str
    notes : tuple of str
    """

    seen: Any
    tpm: Any
    mean: AnyArray
    deviation: AnyArray
    kept: NDArray[np.int64]
    cells: list[str]
    genes: list[str]
    notes: tuple[str, ...] = ()

    @property
    def kept_genes(self) -> list[str]:
        return [self.genes[j] for j in self.kept]


@dataclass(frozen=True, eq=False)
class Programmes:
    """What came back in the runs of one k, for all genes.

    Attributes
    ----------
    found : Consensus
        ``parts`` are in transcripts per million, for all genes; ``usages`` are fitted to them.
    scores : ndarray of shape (k, n_genes)
        By how many standard deviations a gene rises with the usage of a programme (OLS).
    stability : float
        Mean silhouette of the parts of all runs in k groups, outliers too; NaN for k = 1.
    error : float
        ‖X' - V S‖² of what the runs saw, with the spectra S.
    genes : list of str
    per_run : int
        Parts of each run; k, but for runs of several samples.
    samples : ndarray of shape (k, n_samples) or None
        With runs for each sample: the share of a sample's runs that found the programme.
    sample_names : list of str
    """

    found: Consensus
    scores: AnyArray
    stability: float
    error: float
    genes: list[str]
    per_run: int
    samples: AnyArray | None = None
    sample_names: Sequence[str] = ()

    @property
    def k(self) -> int:
        return len(self.scores)

    @property
    def in_samples(self) -> NDArray[np.int64]:
        """In how many samples each programme comes back: in half of their runs or more."""
        if self.samples is None:
            raise AttributeError("the runs were not made for each sample (sample_key).")
        return np.asarray((self.samples >= 0.5).sum(axis=1))

    def top_genes(self, most: int = 20) -> list[list[str]]:
        """The genes with the highest scores of each programme."""
        most, found = min(most, len(self.genes)), []
        for scores in self.scores:
            least = np.partition(scores, -most)[-most]
            high = np.flatnonzero((scores >= least) & (scores > 0))
            best = high[np.argsort(-scores[high], kind="stable")[:most]]
            found.append([self.genes[j] for j in best])
        return found


def prepare(
    counts: Any,
    n_genes: int = 2000,
    *,
    cells: Sequence[str] | None = None,
    genes: Sequence[str] | None = None,
    source: str = "counts",
) -> PreparedCounts:
    """Counts of cells with the genes that vary most, by cNMF's rule, over their deviations.

    Cells without a count of those genes say nothing and are left out, with a note that names them.
    """
    n, p = counts.shape
    hint = "Scaled or logarithmic values are no counts: name the layer that holds them."
    counts = counted(counts, source, "a programme", hint)
    cells = [str(i) for i in range(n)] if cells is None else [str(name) for name in cells]
    genes = [str(j) for j in range(p)] if genes is None else [str(name) for name in genes]
    check_names(genes, p, source)
    tpm = per_total(counts)
    mean, variance = moments(tpm)
    kept = fano_genes(mean, variance, n_genes or p)
    if len(kept) < 2:
        raise ValueError(f"{source}: {len(kept)} genes have counts; programmes need more.")
    seen = counts[:, kept] if len(kept) < p else counts
    held = to_numpy(as_data(seen).row_sums()) > 0
    if not held.any():
        raise ValueError(f"{source}: no cell has a count.")
    notes: tuple[str, ...] = ()
    if not held.all():
        names = shown(cells[i] for i in np.flatnonzero(~held))
        what = "cell has" if n - held.sum() == 1 else "cells have"
        notes = (
            f"{n - held.sum()} {what} no count of the {len(kept):,} genes ({names}): left out, a "
            "programme can say nothing of them.",
        )
        at = np.flatnonzero(held)
        seen, tpm, cells = seen[at], tpm[at], [cells[i] for i in at]
        mean, variance = moments(tpm)
    spread = moments(seen)[1] * (len(cells) / max(len(cells) - 1, 1))
    scale = np.where(spread > 0, 1 / np.sqrt(np.where(spread > 0, spread, 1)), 1)
    return PreparedCounts(
        times(seen, scale), tpm, mean, np.sqrt(variance), kept, cells, genes, notes
    )  # fmt: skip


def counted(X: Any, source: str, purpose: str, hint: str) -> Any:
    """Counts in float32, where they are; what is none is refused, with a hint."""
    try:
        check_counts(X, purpose)
    except ValueError as error:
        raise ValueError(f"{source}: {error} {hint}") from None
    if back_end(X) is not None:
        return X
    return sp.csr_array(X, dtype=np.float32) if sp.issparse(X) else X.astype(np.float32)


def moments(X: Any) -> tuple[AnyArray, AnyArray]:
    """Mean and variance of each column."""
    mean, squares = feature_moments(X)
    return mean, np.maximum(squares - mean**2, 0)


def times(X: Any, scale: AnyArray) -> Any:
    """X with each column times a number, in float32, where X is."""
    scale = scale.astype(np.float32)
    if back_end(X) is not None:
        return X * as_data(X).small(scale)
    return sp.csr_array(X @ sp.diags_array(scale)) if sp.issparse(X) else X * scale


def per_total(counts: Any) -> Any:
    """Each cell scaled to a million counts, in float32; cells without counts stay."""
    data = as_data(counts)
    total = to_numpy(data.row_sums())
    scale = np.divide(TOTAL, total, out=np.zeros_like(total), where=total > 0).astype(np.float32)
    if sp.issparse(counts):
        return sp.csr_array(sp.diags_array(scale) @ counts)
    return counts * data.rows(scale[:, None])


def check_names(genes: Sequence[str], p: int, source: str) -> None:
    """A name for each gene, and each its own: scores and folders are read by them."""
    if len(genes) != p:
        raise ValueError(f"{source}: {p} genes and {len(genes)} names.")
    if len(set(genes)) < p:
        twice = sorted(name for name, count in Counter(genes).items() if count > 1)
        are = "name is" if len(twice) == 1 else "names are"
        raise ValueError(
            f"{source}: {len(twice)} {are} of several genes ({shown(twice)}); give each its "
            "own, as adata.var_names_make_unique() does."
        )


def on_device(prepared: PreparedCounts, device: str) -> PreparedCounts:
    """The counts as tensors, dense where there is room: what runs see, and all genes as well."""
    import torch

    def moved(X: Any, room: float) -> Any:
        if isinstance(X, torch.Tensor):
            return X
        if 4.0 * X.shape[0] * X.shape[1] < room:
            dense = X.toarray() if sp.issparse(X) else X
            return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32)).to(device)
        if not sp.issparse(X) or 8.0 * X.nnz >= room:
            return None
        starts, columns, values = map(torch.from_numpy, (X.indptr, X.indices, X.data))
        return torch.sparse_csr_tensor(starts, columns, values, X.shape).to(device)

    free = float(torch.cuda.mem_get_info(device)[0]) if "cuda" in device else 2.0**34
    seen = moved(prepared.seen, 0.5 * free)
    if seen is None:
        raise ValueError(
            f"{device} has {free / 2**30:.1f} GB free, too little for these counts; --device cpu "
            "has no such limit."
        )
    free = float(torch.cuda.mem_get_info(device)[0]) if "cuda" in device else 2.0**34
    tpm = moved(prepared.tpm, 0.3 * free)
    return replace(prepared, seen=seen, tpm=prepared.tpm if tpm is None else tpm)


def model_of_runs(loss: str = "frobenius", max_iter: int = 200) -> NMF:
    """The model of a run: `consensus` says why that tolerance."""
    return NMF(tol=1e-3, beta_loss=loss, max_iter=max_iter, init="random")


def at_once(prepared: PreparedCounts) -> int:
    """For how many k at once: small ones leave cores idle, large ones take more memory."""
    if back_end(prepared.seen) is not None:
        return 1
    data = as_data(prepared.seen)
    factors = int(ARRAYS * data.dtype.itemsize * sum(data.shape) * width(data, 1))
    return max(1, min(allowed(), ROOM // factors))


def groups_of_runs(prepared: PreparedCounts, k: int, runs: Sequence[int]) -> list[list[int]]:
    """The runs of one k in groups that go side by side; how many cores there are has no say."""
    size = len(runs) if back_end(prepared.seen) is not None else width(as_data(prepared.seen), k)
    return [list(runs[lo : lo + size]) for lo in range(0, len(runs), size)]


def each_run(
    X: Any, k: int, n_runs: int, *, model: Any, seed: int, only: Sequence[int]
) -> Iterator[tuple[int, AnyArray]]:
    """(number, parts) of the runs that are asked for, as they end.

    A run's start depends on seed, k and its number alone, so what was stopped goes on as if it had
    not been.
    """
    one = clone(model).set_params(
        n_components=k, n_init=max(n_runs, 2), random_state=(seed + 7919 * k) % 2**32
    )
    for number, (_, H) in zip(only, every_start(one, X, only=only), strict=True):
        yield number, to_numpy(H)


def programmes_of(
    prepared: PreparedCounts,
    pooled: AnyArray,
    k: int,
    *,
    per_run: int | None = None,
    n_runs: int | None = None,
    density_threshold: float = 0.5,
    neighborhood: float = 0.3,
    loss: str = "frobenius",
    seed: int = 0,
) -> Programmes:
    """What the runs of one k have in common, for all genes; cNMF's steps in its order.

    ``n_runs`` is the number in which a part may be expected to come back; all by default.
    """
    per_run = k if per_run is None else per_run
    rng = np.random.RandomState((seed + k) % 2**32)
    tables: dict[str, Any] = {}
    refits = Refits(NMF(beta_loss=loss), "consensus")

    def for_all_genes(V: AnyArray) -> AnyArray:
        tables["first"] = V
        tables["scores"] = _scores(prepared, V)
        return refits.parts(prepared.tpm, over_sums(V))

    with one_blas_thread:  # several k go side by side, and threads change no digit
        found = from_runs(
            pooled, prepared.seen, k, for_all_genes, n_runs=n_runs or len(pooled) // per_run,
            neighborhood=neighborhood, density_threshold=density_threshold, refits=refits, rng=rng,
        )  # fmt: skip
        error = squared_error(prepared.seen, tables["first"], found.spectra)
        usages = _usages(prepared, found.parts, loss)
        stable = stability_of(pooled, k, rng)
    found = replace(found, usages=usages)
    return Programmes(found, tables["scores"], stable, error, prepared.genes, per_run)


def across_samples(
    prepared: PreparedCounts,
    samples: Any,
    k: int,
    *,
    n_runs: int,
    model: Any,
    n_programmes: int | None = None,
    seed: int = 0,
    **common: Any,
) -> Programmes:
    """Programmes of several donors or batches: runs for each, pooled, and grouped.

    A part that one sample alone has comes back in its own runs, and is kept; ``samples`` tells it
    from one that all have. ``n_programmes`` groups are made, ``k`` by default.
    """
    names = np.asarray(samples).astype(str)
    if names.shape != (len(prepared.cells),):
        raise ValueError(f"samples must name the sample of each of {len(prepared.cells)} cells.")
    every, codes = np.unique(names, return_inverse=True)
    small = [str(name) for j, name in enumerate(every) if (codes == j).sum() <= k]
    if small or len(every) < 2:
        what = f"{shown(small)}: too few cells for k={k}" if small else f"only {str(every[0])!r}"
        raise ValueError(f"programmes across samples need two samples or more; {what}.")
    pooled = []
    for j in range(len(every)):
        own = prepared.seen[np.flatnonzero(codes == j)]
        found = each_run(own, k, n_runs, model=model, seed=seed + j, only=range(n_runs))
        pooled += [H for _, H in found]
    groups = n_programmes or k
    one = programmes_of(
        prepared, np.concatenate(pooled), groups, per_run=k, n_runs=n_runs, seed=seed, **common
    )
    run = np.arange(len(one.found.groups)) // k
    share = np.zeros((groups, len(every)))
    for group in range(groups):
        runs = np.unique(run[one.found.groups == group])
        share[group] = np.bincount(runs // n_runs, minlength=len(every)) / n_runs
    return replace(one, samples=share, sample_names=[str(name) for name in every])


def _scores(prepared: PreparedCounts, V: AnyArray) -> AnyArray:
    """Coefficients of the regression of each gene's z-scores on the usages."""
    data = as_data(prepared.tpm)
    V = V.astype(np.float64)
    sums = to_numpy(data.tdot(data.rows(V.astype(data.dtype)))).T.astype(np.float64)
    varies = prepared.deviation > 0
    centred = sums - np.outer(V.sum(axis=0), prepared.mean)
    centred = np.divide(centred, prepared.deviation, out=np.zeros_like(sums), where=varies)
    return np.linalg.lstsq(V.T @ V, centred, rcond=None)[0]


def _usages(prepared: PreparedCounts, parts: AnyArray, loss: str) -> AnyArray:
    """Codes of the kept genes, each over its deviation, with the programmes in these units."""
    kept = prepared.kept
    deviation = np.where(prepared.deviation > 0, prepared.deviation, 1)
    H = parts[:, kept] / deviation[kept]
    if loss != "frobenius":
        X = times(prepared.tpm[:, kept], 1 / deviation[kept])
        return to_numpy(Refits(NMF(beta_loss=loss), "consensus").codes(X, H))
    data = as_data(prepared.tpm)
    wide = np.zeros((len(deviation), len(H)), dtype=data.dtype)
    wide[kept] = (H / deviation[kept]).T
    G = data.small((H @ H.T).astype(data.dtype))
    sub = Quadratic(data.dot(data.small(wide)), G)
    squares = len(prepared.cells) * float((1 + (prepared.mean / deviation)[kept] ** 2).sum())
    start = data.constant_rows(np.zeros(len(H), dtype=data.dtype))
    return to_numpy(solve_quadratic(sub, start, 1e-4, squares))


def squared_error(X: Any, V: AnyArray, H: AnyArray) -> float:
    """‖X - V H‖² from products with X."""
    data = as_data(X)
    sums = to_numpy(data.tdot(data.rows(V.astype(data.dtype)))).T.astype(np.float64)
    V64 = V.astype(np.float64)
    square = float(np.asarray(to_numpy(data.row_sq_norms()), dtype=np.float64).sum())
    return max(0.0, square - 2 * float((sums * H).sum()) + float(((V64.T @ V64) * (H @ H.T)).sum()))


# -- what it will take ----------------------------------------------------------------------------

#: Iterations of a run, for the estimate; how many it takes is known afterwards.
ITERATIONS = 60


def memory_of(prepared: PreparedCounts, k: int) -> float:
    """Bytes in this process at most: the counts, and the factors of the runs side by side."""
    from partwise.solvers.many_starts import group_size

    def size(X: Any) -> float:
        return float(8 * X.nnz if sp.issparse(X) else 4 * X.shape[0] * X.shape[1])

    n, p = prepared.seen.shape
    held = size(prepared.seen) + size(prepared.tpm)
    starts = group_size(as_data(prepared.seen), k)
    return float(5e8 + held + 8 * 4.0 * (n + p) * k * starts)


def seconds_of(
    prepared: PreparedCounts,
    numbers: Sequence[int],
    n_runs: int,
    *,
    model: Any,
    clock: Callable[[], float],
) -> float:
    """Seconds that the runs will take, from a few iterations of some; the first ones compile."""
    k = sorted(numbers)[len(numbers) // 2]
    some = min(n_runs, max(2, 60 // k))
    short = clone(model).set_params(tol=0.0)
    spent = []
    for iterations in (6, 2, 6):
        begun = clock()
        short.set_params(max_iter=iterations)
        for _ in each_run(prepared.seen, k, some, model=short, seed=0, only=range(some)):
            pass
        spent.append(clock() - begun)
    one = max(spent[2] - spent[1], 1e-6) / 4 / some / k
    return float(one * n_runs * sum(numbers) * min(ITERATIONS, model.max_iter))
