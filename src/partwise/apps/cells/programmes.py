"""Gene expression programs from counts, by the steps of cNMF.

The steps are the choice of variable genes, many runs, the consensus of their parts, and gene
scores.
"""

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
    times,
)
from partwise.selection.refits import Refits
from partwise.solvers.many_starts import ARRAYS, ROOM, group_size
from partwise.solvers.steps import solve_quadratic

#: Sum of a cell's counts after scaling to transcripts per million.
TOTAL = 1e6


@dataclass(frozen=True, eq=False)
class PreparedCounts:
    """Counts of cells, scaled for the runs of cNMF.

    Attributes
    ----------
    seen : array of shape (n_cells, n_kept)
        Input of the runs: counts of the most variable genes, each divided by its standard
        deviation.
    tpm : array of shape (n_cells, n_genes)
        Counts of all genes in transcripts per million.
    mean, deviation : ndarray of shape (n_genes,)
        Mean and standard deviation of the columns of ``tpm``.
    kept : ndarray of int
        Positions of the genes of ``seen``.
    cells, genes : list of str
        Names of the cells and of all genes.
    notes : tuple of str
        Sentences about cells that were left out.
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
        """Names of the genes that the runs use."""
        return [self.genes[j] for j in self.kept]


@dataclass(frozen=True, eq=False)
class Programmes:
    """Gene expression programs that recur in many runs, with values for all genes.

    Attributes
    ----------
    found : Consensus
        The consensus parts in transcripts per million for all genes, with usages fitted to them.
    scores : ndarray of shape (k, n_genes)
        Regression coefficients of each gene's z-scores on the usages: by how many standard
        deviations a gene rises with the usage of a program.
    stability : float
        Mean silhouette of the parts of all runs in k groups, with outliers; NaN for k = 1.
    error : float
        ‖X' - V S‖², where X' is the input of the runs and S are the spectra.
    genes : list of str
        Names of all genes.
    per_run : int
        Number of parts of each run: k, except for runs of several samples.
    samples : ndarray of shape (k, n_samples) or None
        With runs for each sample: the share of the sample's runs that found the program.
    sample_names : list of str
        Names of the samples.
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
        """Number of programs."""
        return len(self.scores)

    @property
    def in_samples(self) -> NDArray[np.int64]:
        """Number of samples in which each program recurs in at least half of the runs."""
        if self.samples is None:
            raise AttributeError("in_samples needs a consensus with sample_key.")
        return np.asarray((self.samples >= 0.5).sum(axis=1))

    def top_genes(self, most: int = 20) -> list[list[str]]:
        """Return for each program the genes with the highest positive scores."""
        order = np.argsort(-self.scores, axis=1, kind="stable")[:, :most]
        pairs = zip(order, self.scores, strict=True)
        return [[self.genes[j] for j in row if score[j] > 0] for row, score in pairs]


def prepare(
    counts: Any,
    n_genes: int = 2000,
    *,
    cells: Sequence[str] | None = None,
    genes: Sequence[str] | None = None,
    source: str = "counts",
) -> PreparedCounts:
    """Return scaled counts of the most variable genes, chosen by cNMF's rule.

    Cells without a count of those genes are left out; a note lists them.
    """
    n, p = counts.shape
    hint = "Scaled or logarithmic values are not counts: pass the layer that holds counts."
    counts = counted(counts, source, "a gene program", hint)
    cells = [str(i) for i in range(n)] if cells is None else [str(name) for name in cells]
    genes = [str(j) for j in range(p)] if genes is None else [str(name) for name in genes]
    check_names(genes, p, source)
    tpm = per_total(counts)
    mean, variance = moments(tpm)
    kept = fano_genes(mean, variance, n_genes or p)
    if len(kept) < 2:
        raise ValueError(f"{source}: only {len(kept)} genes have counts; programs need 2.")
    seen = counts[:, kept] if len(kept) < p else counts
    held = to_numpy(as_data(seen).row_sums()) > 0
    if not held.any():
        raise ValueError(f"{source}: no cell has a count.")
    notes: tuple[str, ...] = ()
    if not held.all():
        out = [cells[i] for i in np.flatnonzero(~held)]
        what = "cell" if len(out) == 1 else "cells"
        words = f"without a count of the {len(kept):,} genes used: {shown(out)}."
        notes = (f"Left out {len(out)} {what} {words}",)
        at = np.flatnonzero(held)
        seen, tpm, cells = seen[at], tpm[at], [cells[i] for i in at]
        mean, variance = moments(tpm)
    spread = moments(seen)[1] * (len(cells) / max(len(cells) - 1, 1))
    scale = 1 / np.sqrt(np.where(spread > 0, spread, 1))
    return PreparedCounts(
        times(seen, scale), tpm, mean, np.sqrt(variance), kept, cells, genes, notes
    )  # fmt: skip


def counted(X: Any, source: str, purpose: str, hint: str) -> Any:
    """Return counts in single precision; raise an error for other values.

    Tensors stay on their device. ``hint`` is added to the error message.
    """
    try:
        check_counts(X, purpose)
    except ValueError as error:
        raise ValueError(f"{source}: {error} {hint}") from None
    if back_end(X) is not None:
        return X
    return sp.csr_array(X, dtype=np.float32) if sp.issparse(X) else X.astype(np.float32)


def moments(X: Any) -> tuple[AnyArray, AnyArray]:
    """Return mean and variance of each column."""
    mean, squares = feature_moments(X)
    return mean, np.maximum(squares - mean**2, 0)


def per_total(counts: Any) -> Any:
    """Return counts scaled to a million per cell; cells without counts stay zero."""
    data = as_data(counts)
    total = to_numpy(data.row_sums())
    scale = np.divide(TOTAL, total, out=np.zeros_like(total), where=total > 0).astype(np.float32)
    if sp.issparse(counts):
        return sp.csr_array(sp.diags_array(scale) @ counts)
    return counts * data.rows(scale[:, None])


def check_names(genes: Sequence[str], p: int, source: str) -> None:
    """Raise an error if the names of the genes are not unique or not complete."""
    if len(genes) != p:
        raise ValueError(f"{source}: {p} genes need {p} names, got {len(genes)}.")
    if len(set(genes)) < p:
        twice = sorted(name for name, count in Counter(genes).items() if count > 1)
        hint = "adata.var_names_make_unique() makes names unique"
        raise ValueError(f"{source}: several genes have the same name ({shown(twice)}); {hint}.")


def on_device(prepared: PreparedCounts, device: str) -> PreparedCounts:
    """Return the counts as tensors on a device.

    The tensors are dense if the device has enough memory, else sparse.
    """
    import torch

    def moved(X: Any, room: float) -> Any:
        """Return X as a tensor on the device, or None if ``room`` bytes are not enough."""
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
        free /= 2**30
        raise ValueError(f"{device} has too little free memory, {free:.1f} GiB; use --device cpu.")
    free = float(torch.cuda.mem_get_info(device)[0]) if "cuda" in device else 2.0**34
    tpm = moved(prepared.tpm, 0.3 * free)
    return replace(prepared, seen=seen, tpm=prepared.tpm if tpm is None else tpm)


def model_of_runs(loss: str | float = "frobenius", max_iter: int = 200) -> NMF:
    """Return the unfitted NMF of each run, with the tolerance of `consensus`."""
    return NMF(tol=1e-3, beta_loss=loss, max_iter=max_iter, init="random")


def at_once(prepared: PreparedCounts) -> int:
    """Return how many values of k are computed in parallel.

    A smaller number needs less memory, and a larger number uses all cores.
    """
    if back_end(prepared.seen) is not None:
        return 1
    data = as_data(prepared.seen)
    factors = int(ARRAYS * data.dtype.itemsize * sum(data.shape) * group_size(data, 1))
    return max(1, min(allowed(), ROOM // factors))


def groups_of_runs(prepared: PreparedCounts, k: int, runs: Sequence[int]) -> list[list[int]]:
    """Return the runs of one k, divided into groups that are computed together.

    The division does not depend on the number of cores.
    """
    alone = back_end(prepared.seen) is not None
    size = len(runs) if alone else group_size(as_data(prepared.seen), k)
    return [list(runs[lo : lo + size]) for lo in range(0, len(runs), size)]


def each_run(
    X: Any, k: int, n_runs: int, *, model: Any, seed: int, only: Sequence[int]
) -> Iterator[tuple[int, AnyArray]]:
    """Yield the number and the parts of each run in ``only``, as soon as it ends.

    The initial values of a run depend only on seed, k and its number. An interrupted command
    therefore continues with the same results.
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
    loss: str | float = "frobenius",
    seed: int = 0,
) -> Programmes:
    """Return the programs that recur in the runs of one k, with values for all genes.

    The steps are those of cNMF. ``n_runs`` is the number of runs in which a part can recur; None
    means all runs.
    """
    per_run = k if per_run is None else per_run
    rng = np.random.RandomState((seed + k) % 2**32)
    tables: dict[str, Any] = {}
    refits = Refits(NMF(beta_loss=loss), "consensus")

    def for_all_genes(V: AnyArray) -> AnyArray:
        """Return the parts for all genes from the usages (part weights), and store scores."""
        tables["first"] = V
        tables["scores"] = _scores(prepared, V)
        return refits.parts(prepared.tpm, over_sums(V))

    with one_blas_thread:  # several values of k are computed in parallel
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
    """Return programs of several donors or batches, from separate runs for each.

    The parts of all runs are pooled and grouped. A part that recurs only in the runs of one sample
    is kept; ``samples`` of the result shows which samples have it. ``n_programmes`` is the number
    of groups, ``k`` by default.
    """
    names = np.asarray(samples).astype(str)
    if names.shape != (len(prepared.cells),):
        raise ValueError(f"samples must have one entry for each of {len(prepared.cells)} cells.")
    every, codes = np.unique(names, return_inverse=True)
    small = [str(name) for j, name in enumerate(every) if (codes == j).sum() <= k]
    if small or len(every) < 2:
        what = f"{shown(small)}: too few cells for k={k}" if small else f"only {str(every[0])!r}"
        raise ValueError(f"programs across samples need at least two samples, but {what}.")
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
    """Return the regression coefficients of each gene's z-scores on the usages."""
    data = as_data(prepared.tpm)
    V = V.astype(np.float64)
    sums = to_numpy(data.tdot(data.rows(V.astype(data.dtype)))).T.astype(np.float64)
    varies = prepared.deviation > 0
    centred = sums - np.outer(V.sum(axis=0), prepared.mean)
    centred = np.divide(centred, prepared.deviation, out=np.zeros_like(sums), where=varies)
    return np.linalg.lstsq(V.T @ V, centred, rcond=None)[0]


def _usages(prepared: PreparedCounts, parts: AnyArray, loss: str | float) -> AnyArray:
    """Return usages (part weights of cells) fitted to the variable genes.

    The counts of each gene are first scaled to unit variance.
    """
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
    """Return ‖X - V H‖² from products with X, without building the residual."""
    data = as_data(X)
    sums = to_numpy(data.tdot(data.rows(V.astype(data.dtype)))).T.astype(np.float64)
    V64 = V.astype(np.float64)
    square = float(np.asarray(to_numpy(data.row_sq_norms()), dtype=np.float64).sum())
    return max(0.0, square - 2 * float((sums * H).sum()) + float(((V64.T @ V64) * (H @ H.T)).sum()))


# -- expected time and memory ---------------------------------------------------------------------

#: Number of iterations per run that the estimate of the running time assumes.
ITERATIONS = 60


def memory_of(prepared: PreparedCounts, k: int) -> float:
    """Return an upper bound on the memory in bytes for counts and parallel runs."""
    n, p = prepared.seen.shape
    counts = (prepared.seen, prepared.tpm)
    held = sum(8 * X.nnz if sp.issparse(X) else 4 * X.shape[0] * X.shape[1] for X in counts)
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
    """Return an estimate of the seconds that all runs take, from a few iterations.

    The first measurement is discarded, because it includes the compilation of kernels.
    """
    k = sorted(numbers)[len(numbers) // 2]
    some = min(n_runs, max(2, 60 // k))
    short = clone(model).set_params(tol=0.0)
    spent = []
    for iterations in (6, 2, 6):
        begun = clock()
        short.set_params(max_iter=iterations)
        list(each_run(prepared.seen, k, some, model=short, seed=0, only=range(some)))
        spent.append(clock() - begun)
    one = max(spent[2] - spent[1], 1e-6) / 4 / some / k
    return float(one * n_runs * sum(numbers) * min(ITERATIONS, model.max_iter))
