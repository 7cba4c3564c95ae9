"""Features of samples for the classifiers of `PartsClassifier`, computed without labels.

Each array (X, and those of ``also``) is prepared in one or more ways. Each preparation has a graph
of nearest neighbours and some of these views, centred and scaled to a mean squared length of one:

======= ========================================================================================
parts   part weights of GNMF at unit length: min ½‖P - VUᵀ‖² + λ/2 tr(VᵀLV) with V, U >= 0
data    the prepared data on their leading singular directions
both    the columns of ``parts`` and ``data`` in one array
smooth  ``data``, averaged twice with the mean of each sample's neighbours in the graph
columns all columns of the prepared data as they are
======= ========================================================================================

Only the first preparation of an array has part weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from partwise.backends import as_data
from partwise.backends.arrays import AnyArray, gram, norm64, to_numpy
from partwise.backends.memory import check_memory
from partwise.backends.sweeps import solve_rows
from partwise.backends.threads import (
    PASS,
    each,
    one_blas_thread,
    pieces,
    threads_for,
)
from partwise.classify.preparation import (
    MANY,
    REMOTE,
    Preparation,
    choose_preparation,
    is_local,
    other_preparations,
    unit_rows,
    unpacked,
)
from partwise.persistence.values import may_be_saved

#: Number of parts if there are enough samples; it does not depend on the number of classes.
PARTS = 30
#: With more than EXACT samples, the graph and the parts are computed from a random subset of
#: SEARCHED samples. Every other sample is joined to its nearest neighbours in this subset.
EXACT, SEARCHED = 100_000, 20_000
#: Number of leading singular directions that the view ``data`` uses.
DIRECTIONS = 100
#: Number of copies of the view ``data`` and of the part weights in memory at the peak of a fit to
#: data on disk, on a device or on a cluster.
COPIES = 3
#: Number of rows that `times` converts to float64 together.
ROWS = 256
#: Largest distance of a sample from the mean, in root mean squared lengths. The squares of larger
#: distances would overflow.
FARTHEST = 1e15
#: Largest binary exponents, for float32 and float64, of values that are not scaled down. Sums of
#: squares of larger values would overflow. Values of new samples may exceed the largest training
#: value by a factor of 2**HIGHER.
HIGH, HIGHER = {4: 50, 8: 500}, 5
#: Number of times that ``smooth`` averages with the neighbours, and the share of the neighbours.
ROUNDS, SHARE = 2, 0.5

#: Maps the name of a preparation to a dict from the name of a view to its array.
Views = dict[str, dict[str, Any]]


@may_be_saved
@dataclass
class Prepared:
    """One array of samples in one preparation.

    Attributes
    ----------
    source : str
        Name of the array; "" for X.
    power : int
        Values are multiplied by this power of two.
    P, graph : arrays of n_samples rows
        Prepared data and their neighbour graph.
    directions : array of shape (n_columns, d)
        Leading singular directions of P.
    data, V : arrays of n_samples rows
        P projected on ``directions``, and the part weights.
    H : array of shape (n_parts, n_columns)
        Parts.
    searched : int array or None
        Samples that the graph and the parts were computed from; None for all.
    """

    source: str
    preparation: Preparation
    power: int
    P: Any
    graph: sp.csr_array
    directions: AnyArray
    data: AnyArray
    V: AnyArray
    H: AnyArray
    n_neighbors: int
    graph_reg: float
    searched: AnyArray | None = None
    shift: dict[str, AnyArray] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    views: dict[str, AnyArray] = field(default_factory=dict)

    @property
    def has_parts(self) -> bool:
        return len(self.H) > 0

    def as_trained(self, X: Any) -> Any:
        """Return samples in the container, dtype and scale of the training samples."""
        if self.preparation.kind == REMOTE:
            return X
        if sp.issparse(self.P):
            return sp.csr_array(X, dtype=self.P.dtype)
        return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=self.P.dtype)

    def make_views(self) -> Prepared:
        """Compute the views of the training samples."""
        self.shift, self.scale = {}, {}
        self.views = self._views(self.V, self.data, row_stochastic(self.graph))
        return self

    def new(self, X: Any, seen: AnyArray) -> tuple[dict[str, Any], sp.csr_array, AnyArray]:
        """Return views, neighbours (rows sum to one) and part weights of samples.

        ``seen`` holds the index of the training sample that equals each sample, or -1. A sample
        that equals a training sample keeps the values from the fit.
        """
        P, data, XH = self._project(X)
        near = self._neighbors(P, data)
        V = solve_part_weights(XH, self.H, self.V, near, self.graph_reg) if self.has_parts else XH
        views = self._views(V, data, near)
        again = np.flatnonzero(seen >= 0)
        if again.size:
            rows = seen[again]
            V[again] = self.V[rows]
            for name in views:
                views[name][again] = self.views[name][rows]
            same = sp.csr_array((np.ones(again.size), (again, rows)), near.shape)
            near = sp.csr_array(sp.diags_array((seen < 0).astype(float)) @ near + same)
        return {**views, "columns": P}, near, V

    def _project(self, X: Any) -> tuple[Any, AnyArray, AnyArray]:
        """Return prepared samples, their view ``data`` and their products with the parts."""
        P = self.preparation.plain(_scaled(X, self.power))
        if isinstance(P, np.ndarray) and is_local(P):
            P = P.astype(self.P.dtype)
        data = self.preparation.unit(times(P, self.directions))
        XH = np.zeros((len(data), 0))
        if self.has_parts:
            XH = times(self.preparation.parts_input(P), self.H.T)
        return (P if is_local(P) else data), data, XH

    def _neighbors(self, P: Any, data: AnyArray) -> sp.csr_array:
        """Find neighbours of samples by the search that `fit` used for the training samples."""
        if self.searched is not None:
            known = self.data[self.searched]
            near = neighbors_of(data.astype(known.dtype), known, self.n_neighbors)
            parts = near.data, self.searched[near.indices], near.indptr
            return sp.csr_array(parts, (len(data), len(self.data)))
        if len(self.data) > MANY or not self.P.shape[0]:  # a model without samples has no P
            data, known = data.astype(np.float32), self.data.astype(np.float32)
            return neighbors_of(data, known, self.n_neighbors)
        return neighbors_of(P, self.P, self.n_neighbors)

    def walk(self) -> tuple[sp.csr_array, sp.csr_array | None]:
        """Return D^-½ W D^-½ of the searched samples, and weights that extend it to all.

        The second matrix (n_samples, n_searched) writes every sample as a mean of searched samples.
        It is None if all samples were searched. Both matrices are in float32.
        """
        if self.searched is None:
            return normalized(self.graph), None
        others = np.setdiff1d(np.arange(len(self.data)), self.searched)
        order = np.argsort(np.concatenate([self.searched, others]))
        among = sp.csr_array(self.graph[:, self.searched])
        means = sp.vstack([sp.eye_array(len(self.searched)), row_stochastic(among[others])])
        return normalized(among[self.searched]), sp.csr_array(means, dtype=np.float32)[order]

    def _views(self, V: AnyArray, data: AnyArray, near: sp.csr_array) -> dict[str, Any]:
        """Return the views of samples with the neighbours ``near`` among the training samples."""
        smooth, known, walk = data, self.data, row_stochastic(self.graph)
        for step in range(ROUNDS):
            if step:
                known = (1 - SHARE) * known + SHARE * (walk @ known)
            smooth = (1 - SHARE) * smooth + SHARE * (near @ known)
        smooth = self.preparation.unit(smooth)
        views = {"data": data, "smooth": smooth}
        views = {name: self._standardized(name, Z) for name, Z in views.items()}
        if self.has_parts:
            views["parts"] = self._standardized("parts", unit_rows(V))
            joined = np.hstack([views["parts"], views["data"]])
            views["both"] = self._standardized("both", joined)
        return views

    def _standardized(self, name: str, Z: AnyArray) -> AnyArray:
        """Centre a view and scale the training samples to a mean squared length of one."""
        if name not in self.scale:
            shift = Z.mean(axis=0, dtype=float)
            length, size = (norm64(part) / len(Z) ** 0.5 for part in (Z - shift, Z))
            self.shift[name] = shift
            self.scale[name] = 1 / length if length > max(1e-12 * size, 1e-18) else 1.0
        far = (Z - self.shift[name]) * self.scale[name]
        return np.clip(far, -FARTHEST, FARTHEST, out=far).astype(np.float32)


@may_be_saved
@dataclass
class Features:
    """All preparations of all arrays of the samples, by name.

    The name "" is the first preparation of X. ``digests`` identify the training samples; they are
    empty if X is not in memory.
    """

    prepared: dict[str, Prepared]
    digests: AnyArray
    n_iter: int
    status: str
    objective: float

    @property
    def first(self) -> Prepared:
        return self.prepared[""]

    def views(self, rows: AnyArray | slice = slice(None)) -> Views:
        """Return the views of some training samples."""
        return {
            name: {view: Z[rows] for view, Z in {**mine.views, "columns": mine.P}.items()}
            for name, mine in self.prepared.items()
        }

    def new(
        self, X: Any, also: dict[str, Any] | None = None
    ) -> tuple[Views, dict[str, sp.csr_array], AnyArray]:
        """Return views, neighbours and part weights of samples.

        A sample that equals a training sample keeps the values from the fit.
        """
        firsts = {mine.source: mine for mine in reversed(self.prepared.values())}
        arrays = {name: firsts[name].as_trained(Z) for name, Z in {"": X, **(also or {})}.items()}
        seen = np.full(X.shape[0], -1)
        if self.digests.size:
            numbers = range(len(self.digests))[::-1]  # if samples are equal, use the first of them
            known = dict(zip(self.digests[::-1].tolist(), numbers, strict=True))
            digests = sample_digests(list(arrays.values())).tolist()
            seen = np.array([known.get(digest, -1) for digest in digests], dtype=int)
        made = {name: mine.new(arrays[mine.source], seen) for name, mine in self.prepared.items()}
        views, near = ({name: found[i] for name, found in made.items()} for i in (0, 1))
        return views, near, made[""][2]


def build_features(
    X: Any,
    also: dict[str, Any] | None = None,
    *,
    n_parts: Any,
    n_neighbors: int,
    graph_reg: float,
    max_iter: int,
    seed: int,
    given: sp.csr_array | None = None,
) -> Features:
    """Compute the features of checked samples.

    Parameters
    ----------
    X : array, sparse array, or data on disk, on a device or on a cluster
    also : dict of arrays, default=None
        Further arrays of the same samples.
    n_parts, n_neighbors, graph_reg, max_iter
        Parameters of `PartsClassifier`.
    seed : int
    given : sparse array, default=None
        A graph that replaces the graphs of nearest neighbours.
    """
    from partwise.estimators.gnmf import GNMF

    model = GNMF(graph_reg=graph_reg, max_iter=max_iter, tol=1e-4, random_state=seed)
    digests, searched = np.empty(0, np.uint64), None
    if X.shape[0] > EXACT and given is None and is_local(X):
        some = np.random.RandomState(seed).permutation(X.shape[0])[:SEARCHED]
        searched = np.sort(some)

    def prepare(source: str, Z: Any, power: int, preparation: Preparation, main: bool) -> Prepared:
        P = preparation.plain(Z)
        if not (main or sp.issparse(P)):
            P = P.astype(np.float32)  # single precision saves memory
        some = P if searched is None else P[searched]
        directions = leading_directions(some, seed)
        data = preparation.unit(times(P, directions))
        if searched is not None:
            data = data.astype(np.float32)
        among = P if len(data) <= MANY and is_local(P) else data
        among = among if searched is None else among[searched]
        graph, k = _graph(among, n_neighbors, seed, given, getattr(X, "device", None))
        V, H = np.zeros((len(data), 0)), np.zeros((0, P.shape[1]))
        if main:
            most = min(PARTS, max(Z.shape[0] // 4, 1), max(2 * Z.shape[1], 2))
            model.n_components = most if n_parts == "auto" else int(n_parts)
            V, H = _factorize(model, preparation.parts_input(some), graph)
        P = P if is_local(P) else data
        settings = (graph, directions, data, V, H, k, graph_reg, searched)
        mine = Prepared(source, preparation, power, P, *settings)
        if searched is not None:
            _join_others(mine)
        return mine.make_views()

    prepared = {}
    if is_local(X):
        arrays = {name: unpacked(Z) for name, Z in {"": X, **(also or {})}.items()}
        digests = sample_digests(list(arrays.values()))
        for source, Z in arrays.items():
            power = _power(Z)
            Z = _scaled(Z, power)
            first = choose_preparation(Z)
            prepared[source] = prepare(source, Z, power, first, main=True)
            for kind, other in other_preparations(Z, first).items():
                name = f"{source}, {kind}" if source else kind
                prepared[name] = prepare(source, Z, power, other, main=False)
    else:
        _check_memory(X, n_parts, n_neighbors)
        prepared[""] = prepare("", X, 0, Preparation(REMOTE, False), main=True)
    ending = (getattr(model, "n_iter_", 1), getattr(model, "status_", ""))
    return Features(prepared, digests, *ending, float(getattr(model, "objective_", 0.0)))


def _check_memory(X: Any, n_parts: Any, n_neighbors: int) -> None:
    """Raise an error if the features of data outside memory do not fit in memory."""
    n, p = X.shape
    k = PARTS if n_parts == "auto" else int(n_parts)
    check_memory(
        8.0 * n * (COPIES * (min(DIRECTIONS, p) + k) + 4 * n_neighbors), "PartsClassifier",
        f"the features and the graph of all {n:,} samples",
        "Fit it to a random sample of rows and predict the others some rows at a time.",
    )  # fmt: skip


def _power(Z: Any) -> int:
    """Return the exponent of the power of two by which values are multiplied.

    It is 0 if squares of the values neither overflow nor vanish. Large values are reduced no more
    than necessary, since the other values may be small.
    """
    values = Z.data if sp.issparse(Z) else Z
    most = float(max(values.max(initial=0), -values.min(initial=0)))
    e, low, high = math.frexp(most)[1], np.finfo(Z.dtype).machep + 5, HIGH[Z.dtype.itemsize]
    return 0 if not most or low <= e <= high else (high if e > high else 0) - e


def _scaled(Z: Any, power: int) -> Any:
    """Multiply by 2**power, which causes no rounding."""
    if not power:
        return Z
    if sp.issparse(Z):
        return sp.csr_array((_scaled(Z.data, power), Z.indices, Z.indptr), Z.shape)
    most = 2.0 ** (HIGH[Z.dtype.itemsize] + HIGHER)
    with np.errstate(over="ignore"):
        return np.clip(np.ldexp(Z, power), -most, most)


def _graph(
    P: Any, n_neighbors: int, seed: int, given: sp.csr_array | None = None, device: Any = None
) -> tuple[sp.csr_array, int]:
    """Return the graph of nearest neighbours and their number.

    The search is approximate for very many samples if pynndescent is installed. It runs on the
    GPU if ``device``, where the samples came from, is one.
    """
    from partwise.knowledge.graph import joined, neighbor_graph

    n = P.shape[0]
    k = min(n_neighbors, n - 1)
    if given is not None:
        return given, k
    if k <= 0:
        return sp.csr_array((n, n)), k
    if getattr(device, "type", "cpu") != "cpu":
        return joined(P.astype(np.float32), k, "binary", None, "exact", seed, device)[0], k
    if n <= EXACT or importlib.util.find_spec("pynndescent") is None:
        return neighbor_graph(P.astype(np.float32) if n > MANY else P, k), k
    return neighbor_graph(P, k, method="approximate", random_state=seed), k


def _join_others(mine: Prepared) -> None:
    """Extend the graph and the part weights of the searched samples to all samples.

    Each other sample is joined to its nearest searched samples, and its part weights follow from
    these and from the parts.
    """
    data, searched, H = mine.data, mine.searched, mine.H
    assert searched is not None
    n, m = len(data), len(searched)
    others = np.setdiff1d(np.arange(n), searched)
    near = neighbors_of(data[others], data[searched], mine.n_neighbors)
    place = np.concatenate([searched, others])
    ties = sp.coo_array(sp.vstack([mine.graph, mine.n_neighbors * near]))
    rows, columns = ties.coords
    ties = sp.csr_array((ties.data, (place[rows], searched[columns])), (n, n))
    mine.graph = sp.csr_array(ties.maximum(ties.T))
    if mine.has_parts:
        V = np.zeros((n, len(H)))
        V[searched] = mine.V
        for start in range(0, len(others), m):
            block = others[start : start + m]
            XH = times(mine.preparation.parts_input(mine.P[block]), H.T)
            some = near[start : start + m]
            V[block] = solve_part_weights(XH, H, mine.V, some, mine.graph_reg)
        mine.V = V


def _factorize(model: Any, P: Any, graph: sp.csr_array) -> tuple[AnyArray, AnyArray]:
    """Return part weights and parts; zeros if all values are zero."""
    from partwise.fitting.solving import suppress_convergence_warning

    if is_local(P) and not P.sum() > 0:
        k = int(model.n_components)
        return np.zeros((P.shape[0], k)), np.zeros((k, P.shape[1]))
    if is_local(P) and not sp.issparse(P):
        P = P.astype(np.float32, copy=False)  # single precision is exact enough for features
    with suppress_convergence_warning():
        model.fit(P, graph=graph)
    V, H = (np.asarray(to_numpy(Z), np.float64) for Z in (model.embedding_, model.components_))
    return V, H


def leading_directions(P: Any, seed: int) -> AnyArray:
    """Return the leading right singular vectors (p, d) of the prepared data.

    BLAS uses one thread, since the last digits depend on the number of threads.
    """
    d = min(DIRECTIONS, *P.shape)
    if not is_local(P):
        return _leading_remote_directions(P, d, seed)
    dense = not sp.issparse(P)
    with one_blas_thread:
        if dense and P.shape[0] > max(MANY, 10 * P.shape[1]):
            # With few columns, their eigenvectors cost less than several passes over the samples.
            Vt = np.linalg.eigh(np.asarray(gram(P), dtype=float))[1].T[::-1][:d]
        elif dense and min(P.shape) <= 2 * DIRECTIONS:
            Vt = np.linalg.svd(P, full_matrices=False)[2][:d]
        else:
            Vt = randomized_svd(P, d, n_iter=4, random_state=seed)[2]
    return np.ascontiguousarray(Vt.T, dtype=np.float64)


def _leading_remote_directions(X: Any, d: int, seed: int) -> AnyArray:
    """Return approximate singular vectors of data outside memory, by four passes."""
    data = as_data(X)
    Q = np.linalg.qr(np.random.RandomState(seed).standard_normal((X.shape[1], d)))[0]
    for _ in range(4):
        small = data.small(np.ascontiguousarray(Q, dtype=data.dtype))
        Q = np.linalg.qr(np.asarray(to_numpy(data.tdot(data.dot(small)))))[0]
    return Q


def times(P: Any, U: AnyArray) -> AnyArray:
    """Return P U in float64 without copying all of P to float64."""
    if sp.issparse(P):
        return np.asarray(P @ U)
    if not is_local(P):
        data = as_data(P)
        small = data.small(np.ascontiguousarray(U, dtype=data.dtype))
        return np.asarray(to_numpy(data.dot(small)), dtype=np.float64)
    made = np.empty((len(P), U.shape[1]))

    def run(lo: int, hi: int) -> None:
        np.matmul(P[lo:hi].astype(float, copy=False), U, out=made[lo:hi])

    with one_blas_thread:
        each(run, pieces(len(P), ROWS, len(P)), threads_for(float(P.size) * U.shape[1]))
    return made


def sample_digests(arrays: list[Any]) -> AnyArray:
    """Return a 64-bit digest of each sample, over all arrays that describe it.

    The mixed bits of each value (0 for a zero) are multiplied by a random odd number per column and
    summed. So the digest depends neither on the dtype nor on the container. A standard hash of the
    bytes would double the time of a warm fit with 60,000 images.
    """
    total = np.zeros(arrays[0].shape[0], np.uint64)

    def add(X: Any, odd: AnyArray, lo: int, hi: int) -> None:
        total[lo:hi] += _mixed_bits(X[lo:hi]) @ odd

    for number, X in enumerate(arrays):
        rng = np.random.RandomState(number)
        odd = rng.randint(1 << 63, size=X.shape[1], dtype=np.uint64) * 2 + 1
        if sp.issparse(X):
            X = sp.csr_array(X, dtype=np.float64, copy=True)
            X.sum_duplicates()
            total[:] += sp.csr_array((_mixed_bits(X.data), X.indices, X.indptr), X.shape) @ odd
        else:
            blocks = [(X, odd, *ends) for ends in pieces(len(X), ROWS, len(X))]
            each(add, blocks, threads_for(PASS * X.size))
    return total


def _mixed_bits(values: AnyArray) -> AnyArray:
    bits = (values + np.float64(0)).view(np.uint64)  # 0 for -0, too
    bits ^= bits >> np.uint64(32)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    return bits


def fingerprint(arrays: Mapping[str, Any]) -> str:
    """Return a digest of named arrays. Only the shape counts for arrays outside memory."""
    digest = hashlib.blake2b()
    for name, X in arrays.items():
        if X is None:
            continue
        digest.update(f"{name} {type(X).__name__} {tuple(X.shape)}".encode())
        if is_local(X):
            digest.update(f"{X.dtype}".encode() + sample_digests([X]).tobytes())
    return digest.hexdigest()


def normalized(W: sp.csr_array) -> sp.csr_array:
    """Return D^-½ W D^-½ in float32."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = sp.diags_array(1 / np.sqrt(np.maximum(degree, 1e-12)))
    return sp.csr_array(root @ W @ root).astype(np.float32)


def row_stochastic(W: Any) -> sp.csr_array:
    """Return D⁻¹ W, whose rows sum to one; a sample without neighbours is its own."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    alone = degree <= 0
    walk = sp.csr_array(sp.diags_array(1 / np.where(alone, 1, degree)) @ W)
    return sp.csr_array(walk + sp.diags_array(alone.astype(float))) if alone.any() else walk


def neighbors_of(P: Any, training: Any, k: int) -> sp.csr_array:
    """Return the k nearest training samples of each row of P, each with weight 1/k."""
    k = max(min(k, training.shape[0]), 1)
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(training)
    return sp.csr_array(search.kneighbors_graph(P)) / k


def solve_part_weights(
    XH: AnyArray, H: AnyArray, V: AnyArray, near: sp.csr_array, graph_reg: float
) -> AnyArray:
    """Return argmin_{v>=0} ½‖x - Uv‖² + λ/2 Σ_j ‖v - v_j‖² over the neighbours j of each sample."""
    weight = graph_reg * near.indptr[1] if near.shape[0] else 0.0
    Z = np.asarray(near @ V, dtype=float)
    weights = np.full((1, 1), weight)
    return np.asarray(solve_rows(Z, XH + weight * Z, H @ H.T, None, weights, 100, 0.0))
