"""Exact and approximate search for neighbours.

The exact search compares every pair of samples, and stores only a few blocks of distances at a
time. Large dense data is searched in float32, with a lower bound of each true distance. The
distances of the best candidates are then computed in float64 by differences. A row is accepted only
if no rejected sample can be closer; other rows are searched again in float64. The result is
therefore that of float64, but most of the work is done in float32.

X may be a memmap, of which only a few blocks of rows are in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from partwise.backends.arrays import forget
from partwise.backends.threads import allowed, each, one_blas_thread, results
from partwise.knowledge.graph._compiled import kernels
from partwise.knowledge.graph._rows import (
    BLOCK,
    SPARE,
    cuts,
    dense,
    nearest,
    search_rows,
    square_distances,
    square_norms,
)

SMALL = 2500  # up to this number of samples, numpy is faster than loading compiled code
THERE = 2**28  # number of distances that are computed on a GPU at a time
FILLED = 0.1  # a sparse X with more non-zeros than this is faster in dense blocks


def search_all(X: Any, k: int, device: Any = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return neighbours and squared distances of all samples, by compiled code.

    With a PyTorch ``device``, the candidates of a dense X are found there.
    """
    n = X.shape[0]
    scattered = sp.issparse(X) and X.nnz <= FILLED * X.shape[0] * X.shape[1]
    found = candidates_sparse(X, k) if scattered else candidates_dense(X, k, device)
    candidates, bounds = found
    m = candidates.shape[1]
    squares = np.full(candidates.shape, np.inf)
    rows, done = np.arange(n), 0
    # A row is finished if no remaining sample can be closer than its k-th neighbour.
    while rows.size and done < m:
        upto = min(m, max(k + SPARE, 2 * done))
        measure(X, rows, candidates, squares, done, upto)
        last = np.partition(squares[rows], k - 1, axis=1)[:, k - 1]
        rows = rows[(last > bounds[rows, upto - 1]) & (last > 0)]
        done = upto
    indices, squares = nearest(candidates, squares, k)
    if rows.size and m < n - 1:
        indices[rows], squares[rows] = search_rows(X, rows, k)
    return indices, squares


def measure(
    X: Any,
    rows: NDArray[np.int64],
    candidates: NDArray[np.int64],
    squares: NDArray[np.float64],
    start: int,
    stop: int,
) -> None:
    """Fill squares[rows, start:stop] with ‖x_i - x_j‖², by compiled code on all threads."""
    sparse = sp.issparse(X)
    kernel = kernels().exact_sparse if sparse else kernels().exact_dense
    fixed = tuple(map(readonly, (X.indptr, X.indices, X.data) if sparse else (np.asarray(X),)))

    def work(a: int, b: int) -> None:
        kernel(*fixed, rows[a:b], candidates, squares, start, stop)
        forget(X)

    step = BLOCK
    if isinstance(X, np.memmap):  # the rows of candidates are spread over the file
        step = max(1, 2**17 // ((stop - start) * X.shape[1]))
    in_threads(work, cuts(rows.size, step))


def candidates_dense(
    X: Any, k: int, device: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return, for each row, the samples with the smallest lower bounds of ‖x_i - x_j‖².

    With z = x - mean(x) in float32 and u = 2⁻²⁴, |fl(z_i·z_j) - z_i·z_j| <= (p + 2) u ‖z_i‖‖z_j‖
    for every order of summation, and 2‖z_i‖‖z_j‖ <= ‖z_i‖² + ‖z_j‖². So with c = (p + 10) u

        (1 - c)‖z_i‖² + (1 - c)‖z_j‖² - 2 fl(z_i·z_j)  <=  ‖x_i - x_j‖²,

    where 8u covers the rounding errors of the norms and of this sum. The bound takes as long to
    compute as the distance. If too many samples are within c of each other, as in tight clusters,
    the bound is computed in float64 with u = 2⁻⁵³.
    """
    n, p = X.shape
    mean = sum(_blocks(X, lambda a, b: dense(X[a:b]).sum(axis=0))) / n
    largest = max(_blocks(X, lambda a, b: float(abs(dense(X[a:b]) - mean).max())))
    # Entries are scaled to at most 1, because float32 is limited to 10^±38. A power of two causes
    # no rounding.
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0
    fewest, most = k + SPARE, 4 * (k + SPARE) + 64
    for dtype, u in ((np.float32, 2.0**-24), (np.float64, 2.0**-53)):
        take, norms = centred(X, mean, scale, dtype)
        c = (p + 10) * u
        tiny = 16 * p * float(np.finfo(dtype).smallest_normal)  # the largest error by underflow
        low = ((1 - c) * norms - tiny).astype(dtype)
        m = candidates_needed(take, low, c * norms, k)
        if m <= most:
            break
    m = min(max(m, fewest), most, n - 1)

    def products(a: tuple[int, int], b: tuple[int, int], out: NDArray[Any]) -> None:
        np.dot(take(*a), take(*b).T, out=out)

    there = device is not None and not isinstance(X, np.memmap)
    found = _blockwise_there(take(0, n), low, m, device) if there else blockwise(products, low, m)
    return found[0], found[1].astype(np.float64) * scale**2


def _blocks(X: Any, make: Callable[[int, int], Any]) -> list[Any]:
    """Run make(a, b) for blocks of rows, in order: in threads, but one by one for a file."""
    return results(make, cuts(X.shape[0]), 1 if isinstance(X, np.memmap) else allowed())


def centred(
    X: Any, mean: NDArray[np.float64], scale: float, dtype: Any
) -> tuple[Callable[[int, int], NDArray[Any]], NDArray[np.float64]]:
    """Return a reader of (X[a:b] - mean) / scale in ``dtype``, and all squared norms.

    In memory, the values are computed once and stored. For a file, they are computed each time,
    which takes less time than the product.
    """
    n = X.shape[0]
    on_disk = isinstance(X, np.memmap)

    def make(a: int, b: int) -> NDArray[np.float64]:
        block = dense(X[a:b])  # a copy if X is a file
        block = np.subtract(block, mean, out=block if on_disk else None)
        block /= scale
        return block

    norms = np.empty(n)
    Z = None if on_disk else np.empty(X.shape, dtype=dtype)

    def keep(a: int, b: int) -> None:
        block = make(a, b)
        norms[a:b] = square_norms(block)
        if Z is not None:
            Z[a:b] = block

    _blocks(X, keep)
    if Z is None:
        return (lambda a, b: make(a, b).astype(dtype, copy=False)), norms
    return (lambda a, b: Z[a:b]), norms


def candidates_needed(
    take: Callable[[int, int], NDArray[Any]],
    low: NDArray[Any],
    error: NDArray[np.float64],
    k: int,
) -> int:
    """Return how many candidates suffice for most rows, estimated from some rows."""
    n = low.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(200, 16 + 2**22 // n)).astype(np.int64))
    some = np.concatenate([take(i, i + 1) for i in rows])
    bounds, needed = np.empty((rows.size, n), low.dtype), np.empty(rows.size)

    def product(a: int, b: int) -> None:
        bounds[:, a:b] = low[rows, None] + low[a:b] - 2 * (some @ take(a, b).T)

    def count(a: int, b: int) -> None:
        mine, own = bounds[a:b], rows[a:b]
        mine[np.arange(b - a), own] = np.inf
        # Rounding errors usually cancel, so the true distance is near the middle of its interval.
        last = np.partition(mine + (error[own, None] + error), k - 1, axis=1)[:, k - 1]
        needed[a:b] = np.count_nonzero(mine <= last[:, None], axis=1)

    in_threads(product, cuts(n))
    in_threads(count, cuts(rows.size, 8))
    return int(np.quantile(needed, 0.99)) + 1


def candidates_sparse(X: sp.csr_array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return candidates as `candidates_dense` does, for a sparse X in float64.

    X is not centred, since that would make it dense.
    """
    full = X.astype(np.float64)
    longest = int(np.diff(X.indptr).max(initial=0))
    low = (1 - (longest + 10) * 2.0**-53) * square_norms(full)
    compiled = kernels()
    rows = tuple(map(readonly, (full.indptr, full.indices, full.data)))

    def products(a: tuple[int, int], b: tuple[int, int], out: NDArray[Any]) -> None:
        columns = full[slice(*b)].tocsc()
        parts = map(readonly, (columns.indptr, columns.indices, columns.data))
        compiled.sparse_products(*rows, *parts, a[0], out)

    return blockwise(products, low, min(k + SPARE, X.shape[0] - 1))


def blockwise(
    products: Callable[[tuple[int, int], tuple[int, int], NDArray[Any]], None],
    low: NDArray[Any],
    m: int,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the m candidates of each sample from all pairs of blocks.

    Each pair (a, b) is computed once, for the rows of both blocks.

    ``products(a, b, out)`` fills out with z_i·z_j. Returns for each sample the m others with the
    smallest low_i + low_j - 2 z_i·z_j and these values, sorted. Values are compared together with
    the index, so the order in which threads take blocks does not show.
    """
    n = low.shape[0]
    compiled = kernels()
    pieces = cuts(n)
    best = np.full((n, m), np.inf, dtype=low.dtype)
    who = np.full((n, m), n, dtype=np.int64)
    worst = np.full(n, np.inf, dtype=low.dtype)
    locks = [threading.Lock() for _ in pieces]
    buffers = threading.local()

    def work(s: int, t: int) -> None:
        a, b = pieces[s], pieces[t]
        if not hasattr(buffers, "out"):
            buffers.out = np.empty(BLOCK * BLOCK, dtype=low.dtype)
        rows, cols = a[1] - a[0], b[1] - b[0]
        out = buffers.out[: rows * cols].reshape(rows, cols)
        products(a, b, out)
        with locks[s]:
            if s == t:
                compiled.keep_nearest(out, low, a[0], b[0], best, who, worst)
            else:
                with locks[t]:  # always s < t, so that two threads cannot wait for each other
                    compiled.keep_nearest(out, low, a[0], b[0], best, who, worst)

    # Order the tasks by diagonals, so that tasks at the same time seldom need the same rows.
    blocks = len(pieces)
    in_threads(work, [(s, s + step) for step in range(blocks) for s in range(blocks - step)])
    return who, best


def _blockwise_there(
    Z: NDArray[Any], low: NDArray[Any], m: int, device: Any
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Run `blockwise` on a PyTorch device, for one block of rows and all samples."""
    import torch

    samples, own = (torch.from_numpy(a).to(device) for a in (Z, low))
    best, who = [], []
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # the bounds hold for float32
    try:
        for a, b in cuts(len(Z), max(1, THERE // len(Z))):
            bounds = torch.addmm(own, samples[a:b], samples.T, alpha=-2.0) + own[a:b, None]
            bounds.diagonal(a).fill_(torch.inf)
            values, places = torch.topk(bounds, m, largest=False)
            best.append(values.cpu())
            who.append(places.cpu())
    finally:
        torch.set_float32_matmul_precision(precision)
    return torch.cat(who).numpy(), torch.cat(best).numpy()


def approximate(
    X: Any, k: int, random_state: int | np.random.RandomState | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Search with pynndescent, and compute exact distances of the neighbours.

    Rows with too few neighbours are searched exactly.
    """
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(
            "method='approximate' needs pynndescent: pip install partwise[graph], or use "
            "method='exact'."
        ) from error
    n = X.shape[0]
    if n <= SMALL:
        return search_rows(X, np.arange(n), k)
    state = check_random_state(random_state)
    data = sp.csr_matrix(X) if sp.issparse(X) else X
    found, _ = NNDescent(data, n_neighbors=min(k + 1, n), random_state=state).neighbor_graph
    indices = np.asarray(found, dtype=np.int64)
    usable = (indices >= 0) & (indices != np.arange(n)[:, None])
    squares = square_distances(X, np.arange(n), np.where(usable, indices, 0))
    squares[~usable] = np.inf
    indices, squares = nearest(indices, squares, k)
    short = np.flatnonzero(~np.isfinite(squares[:, -1]))
    if short.size:
        indices[short], squares[short] = search_rows(X, short, k)
    return indices, squares


# --- small pieces -----------------------------------------------------------------------------


def readonly(a: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that compiled code has one signature for every caller."""
    view = a.view()
    view.flags.writeable = False
    return view


def in_threads(work: Callable[..., None], tasks: list[tuple[int, int]]) -> None:
    """Run work(*task) for each task, on all allowed threads, with BLAS on one.

    Threads of this function replace those of numba and BLAS, which would otherwise wait for each
    other.
    """
    with one_blas_thread:
        each(work, tasks, allowed())
