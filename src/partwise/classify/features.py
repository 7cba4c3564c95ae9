"""Representations of samples that no label has touched: computed once, kept, used by every head.

Four views of the same samples, each centred and scaled so that the mean squared length is one; and
``plain`` and ``smooth`` again, with a graph of their own, for each other preparation, and all four
for further arrays of the same samples:

====== =======================================================================================
codes  rows of GNMF's V at unit length: ½‖P - VUᵀ‖² + λ/2 tr(VᵀLV), V, U >= 0
plain  the prepared data P on its leading singular directions
both   the two side by side
smooth ``plain`` averaged twice with the mean of the neighbours in the graph
====== =======================================================================================
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import randomized_svd

from partwise.backends import as_data
from partwise.backends.arrays import AnyArray, gram, norm64, to_numpy
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.sweeps import solve_rows
from partwise.backends.threads import (
    PASS,
    by_entry,
    each,
    one_blas_thread,
    pieces,
    results,
    threads_for,
)
from partwise.classify.preparation import (
    MANY,
    Preparation,
    choose_preparation,
    other_preparations,
    unpacked,
)

#: The preparation of an X that stays where it is: rows as they are, directions at unit length.
ELSEWHERE = "as it is"
#: Parts where there are samples enough; the number of classes need not be known.
PARTS = 30
#: Samples up to which all are searched for neighbours and factorized; of more, the first so many in
#: the order of their digests are, and the others have neighbours and codes by these.
EXACT, SEARCHED = 100_000, 20_000
#: Leading singular directions of the data that the plain heads see.
DIRECTIONS = 100
#: Entries of a dense array that are looked at together.
BLOCK = 1 << 17
#: Samples that are multiplied together.
ROWS = 256
#: How far from the others, in their mean lengths, a sample can lie: beyond, squares overflow.
FARTHEST = 1e15
#: Powers of two from which values are brought down, since squares and their sums leave the range of
#: float32 and float64; those of new samples may be higher by the last.
HIGH, HIGHER = {4: 50, 8: 500}, 5
#: Rounds and share of averaging with the neighbours.
ROUNDS, SHARE = 2, 0.5


@dataclass
class Features:
    """Everything to the left of the labels. Arrays only, so that it can be saved.

    ``source`` names the array that it is of, "" for X. ``searched`` is how many samples were looked
    at for neighbours and parts, the first in the `order`; 0 where all were. ``power`` is that of
    two by which values are multiplied.
    """

    preparation: Preparation
    P: Any
    graph: sp.csr_array
    H: AnyArray
    V: AnyArray
    directions: AnyArray
    plain: AnyArray
    marks: AnyArray
    n_neighbors: int
    graph_reg: float
    n_iter: int
    status: str
    objective: float
    shift: dict[str, AnyArray] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    views: dict[str, AnyArray] = field(default_factory=dict)
    others: dict[str, Features] = field(default_factory=dict)
    source: str = ""
    searched: int = 0
    power: int = 0

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and text, for `from_state`."""
        others = {name: mine.state() for name, mine in self.others.items()}
        return {**vars(self), "preparation": vars(self.preparation), "others": others}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Features:
        others = {name: cls.from_state(mine) for name, mine in state.get("others", {}).items()}
        preparation = Preparation(**state["preparation"])
        return cls(**{**state, "preparation": preparation, "others": others})

    @property
    def by_prefix(self) -> dict[str, Features]:
        """All preparations by the prefix of their views' names; "" for the first."""
        return {"": self} | {f"{name}: ": mine for name, mine in self.others.items()}

    @property
    def all_views(self) -> dict[str, AnyArray]:
        """The views of all preparations, and the prepared data themselves as "whole"."""
        made: dict[str, AnyArray] = {}
        for start, mine in self.by_prefix.items():
            made |= {start + name: Z for name, Z in mine.views.items()}
            made[start + "whole"] = mine.P
        return made

    def new(
        self, X: Any, also: dict[str, Any] | None = None
    ) -> tuple[dict[str, AnyArray], dict[str, sp.csr_array], AnyArray]:
        """`all_views` of samples, their neighbours (rows sum to one), and their codes.

        A training sample that comes again keeps what it had; others are coded by the parts and
        by their nearest training samples. ``also`` are the further arrays, by their names.
        """
        if self.preparation.kind == ELSEWHERE:
            views, near, V = self._new(X)
            return {**views, "whole": views["plain"]}, {"": near}, V
        first = {mine.source: mine for mine in reversed(self.by_prefix.values())}
        arrays = {"": X, **(also or {})}
        arrays = {name: first[name]._as_trained(Z) for name, Z in arrays.items()}
        seen = _find(marks_of(list(arrays.values())), self.marks)
        views, nears, codes = {}, {}, {}
        for start, mine in self.by_prefix.items():
            Z = _scaled(arrays[mine.source], mine.power)
            made, nears[start], codes[start] = mine._coded(Z, seen)
            views |= {start + name: view for name, view in made.items()}
            whole = mine.preparation.plain(Z)
            views[start + "whole"] = whole if sp.issparse(whole) else whole.astype(mine.P.dtype)
        return views, nears, codes[""]

    def _coded(self, X: Any, seen: AnyArray) -> tuple[dict[str, AnyArray], sp.csr_array, AnyArray]:
        """The same of one array; ``seen`` are training samples that come again, -1 for others."""
        fresh = np.flatnonzero(seen < 0)
        views = {name: Z[seen] for name, Z in self.views.items()}
        V = self.V[seen]
        starts = np.arange(seen.size + 1)
        near = sp.csr_array(
            (np.ones(seen.size), np.maximum(seen, 0), starts), (seen.size, len(self.V))
        )
        if fresh.size:
            made, theirs, codes = self._new(X[fresh])
            for name, Z in made.items():
                views[name][fresh] = Z
            V[fresh] = codes
            keep = sp.diags_array((seen >= 0).astype(float))
            put = sp.csr_array(
                (np.ones(fresh.size), (fresh, np.arange(fresh.size))), (seen.size, fresh.size)
            )
            near = sp.csr_array(keep @ near + put @ theirs)
        return views, near, V

    def _as_trained(self, X: Any) -> Any:
        """Samples in the container, and of the type, that the training samples have."""
        if sp.issparse(self.P):
            return sp.csr_array(X, dtype=self.P.dtype)
        return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=self.P.dtype)

    @property
    def order(self) -> AnyArray:
        """The samples in an order that their numbers give, whatever order they came in."""
        if not self.marks.size:
            return np.arange(len(self.plain))
        return np.argsort(self.marks, kind="stable")

    def _new(self, X: Any) -> tuple[dict[str, AnyArray], sp.csr_array, AnyArray]:
        P, plain, XH = self._seen_by(X)
        if self.searched:
            rows = self.order[: self.searched]
            near = neighbors_of(plain.astype(self.plain.dtype), self.plain[rows], self.n_neighbors)
            parts = near.data, rows[near.indices], near.indptr
            near = sp.csr_array(parts, (len(plain), len(self.plain)))
        elif len(self.plain) > MANY:  # as the neighbours of the training samples were found
            new, known = plain.astype(np.float32), self.plain.astype(np.float32)
            near = neighbors_of(new, known, self.n_neighbors)
        else:
            near = neighbors_of(P, self.P, self.n_neighbors)
        V = code_rows(XH, self.H, self.V, near, self.graph_reg) if len(self.H) else XH
        smooth, known = plain, self.plain
        walk = row_stochastic(self.graph)
        for more in reversed(range(ROUNDS)):
            smooth = _averaged(smooth, near, known)
            known = _averaged(known, walk, known) if more else known
        return self._views(V, plain, smooth), near, V

    def _seen_by(self, X: Any) -> tuple[Any, AnyArray, AnyArray]:
        """Where neighbours are looked for, the plain view, and the products with the parts."""
        if self.preparation.kind == ELSEWHERE:
            plain = unit_rows(_products(X, self.directions))
            return plain, plain, _products(X, self.H.T)
        P = self.preparation.plain(X)
        if not sp.issparse(P):
            P = P.astype(self.P.dtype)
        plain = _unit(times(P, self.directions), self.preparation)
        if not len(self.H):
            return P, plain, np.zeros((len(plain), 0))
        return P, plain, np.asarray(self.preparation.parts_input(P) @ self.H.T)

    def adjacency(self) -> sp.csr_array:
        """D^-½ W D^-½ of the searched samples in their `order`, in float32."""
        rows = self.order[: self.searched or None]
        return normalized(sp.csr_array(self.graph)[rows][:, rows])

    def by_searched(self) -> sp.csr_array:
        """All samples in their `order` as means of those of `adjacency`, (n, searched)."""
        n, m, order = len(self.plain), self.searched or len(self.plain), self.order
        own = sp.eye_array(m, dtype=np.float32, format="csr")
        if m == n:
            return own
        others = sp.csr_array(self.graph)[order[m:]][:, order[:m]].astype(np.float32)
        return sp.csr_array(sp.vstack([own, row_stochastic(others)]))

    def _rearrange(self, rows: AnyArray) -> None:
        """The samples in another order."""
        self.P, self.V, self.plain = (some_rows(Z, rows) for Z in (self.P, self.V, self.plain))
        self.graph = sp.csr_array(sp.csr_array(self.graph)[rows][:, rows])
        self.views = {name: some_rows(Z, rows) for name, Z in self.views.items()}

    def _views(self, V: AnyArray, plain: AnyArray, smooth: AnyArray) -> dict[str, AnyArray]:
        rows = {"plain": plain, "smooth": _unit(smooth, self.preparation)}
        views = {name: self._standard(name, Z) for name, Z in rows.items()}
        if not V.shape[1]:
            return views
        views["codes"] = self._standard("codes", unit_rows(V))
        views["both"] = self._standard("both", np.hstack([views["codes"], views["plain"]]))
        return views

    def _standard(self, name: str, Z: AnyArray) -> AnyArray:
        """Centred, with mean squared length one on the training samples."""
        if name not in self.scale:
            shift = sum(of_blocks(lambda A: A.sum(axis=0), Z)) / len(Z)
            length = math.hypot(*of_blocks(lambda A: norm64(A - shift), Z)) / len(Z) ** 0.5
            size = math.hypot(*of_blocks(norm64, Z)) / len(Z) ** 0.5
            self.shift[name] = shift
            self.scale[name] = 1 / length if length > max(1e-12 * size, 1e-18) else 1.0
        made = np.empty(Z.shape, np.float32)

        def run(lo: int, hi: int) -> None:
            far = (Z[lo:hi] - self.shift[name]) * self.scale[name]
            made[lo:hi] = np.clip(far, -FARTHEST, FARTHEST, out=far)

        _blocks(run, Z)
        return made


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
    """Graph, codes and views of checked samples; for other preparations all but the codes.

    ``also`` are further arrays of the same samples. A graph that is ``given`` takes the place of
    each preparation's own. All is computed in the order of the rows' digests, so that the order in
    which samples came changes nothing, not even the last digit.
    """
    from partwise.estimators.gnmf import GNMF

    def parts(n: int, p: int) -> int:
        return min(PARTS, max(n // 4, 1), max(2 * p, 2)) if n_parts == "auto" else int(n_parts)

    model = GNMF(graph_reg=graph_reg, max_iter=max_iter, tol=1e-4, random_state=seed)
    model.n_components = parts(*X.shape)
    if not (sp.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap))):
        # what comes here is narrow: the samples on a few directions, and their codes
        directions = leading_elsewhere(X, seed)
        plain = unit_rows(_products(X, directions))
        graph, k = _graph(plain, n_neighbors, seed, given, getattr(X, "device", None))
        there, codes = Preparation(ELSEWHERE, False), _factorize(model, X, graph)
        return _made(there, plain, graph, k, directions, plain, model, codes)
    arrays = {name: unpacked(Z) for name, Z in {"": X, **(also or {})}.items()}
    marks = marks_of(list(arrays.values()))
    order = np.argsort(marks, kind="stable")
    back = np.argsort(order)
    given = None if given is None else sp.csr_array(given[order][:, order])
    made: dict[str, Features] = {}
    n = X.shape[0]
    searched = SEARCHED if n > EXACT and given is None else n
    for source, Z in arrays.items():
        power, model.n_components = _power(Z), parts(*Z.shape)
        Z = _scaled(some_rows(Z, order), power)
        first = choose_preparation(Z)
        for preparation in (first, *other_preparations(Z, first).values()):
            P, main = preparation.plain(Z), preparation is first
            if not (main or sp.issparse(P)):
                P = P.astype(np.float32)  # it is kept, and one of several
            directions = leading_directions(P[:searched], seed)
            plain = _unit(times(P, directions), preparation)
            graph, k = _graph((plain if n > MANY else P)[:searched], n_neighbors, seed, given)
            coded = None
            if main:
                coded = _factorize(model, preparation.parts_input(P[:searched]), graph)
            if searched < n:
                plain = plain.astype(np.float32)
                graph, coded = _with_others(preparation, P, plain, graph, k, coded, graph_reg)
            mine = _made(preparation, P, graph, k, directions, plain, model, coded)
            mine.marks, mine.source, mine.power = marks, source, power
            mine.searched = searched if searched < n else 0
            mine._rearrange(back)
            made[", ".join(filter(None, (source, "" if main else preparation.kind)))] = mine
    features = made.pop("")
    features.others = made
    return features


def _power(Z: Any) -> int:
    """The power of two by which values are multiplied: 0, but for those whose squares are none.

    Large ones come down no farther than they must, since one of them alone may be large.
    """
    values = Z.data[:, None] if sp.issparse(Z) else Z
    most = max(of_blocks(lambda A: float(np.abs(A).max(initial=0)), values), default=0.0)
    e, low, high = math.frexp(most)[1], np.finfo(Z.dtype).machep + 5, HIGH[Z.dtype.itemsize]
    return 0 if not most or low <= e <= high else (high if e > high else 0) - e


def _scaled(Z: Any, power: int) -> Any:
    """Z times a power of two, which rounds nothing."""
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
    """Of samples, or of a few directions of very many; approximate, where that is installed.

    ``device`` is where the samples came from: on a GPU neighbours are searched there.
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


def _with_others(
    preparation: Preparation,
    P: Any,
    plain: AnyArray,
    graph: sp.csr_array,
    k: int,
    coded: tuple[AnyArray, AnyArray] | None,
    graph_reg: float,
) -> tuple[sp.csr_array, tuple[AnyArray, AnyArray] | None]:
    """The graph and the codes of the first samples, with those that come after them.

    Each of these is tied to its nearest among the first, and coded by them and by the parts.
    """
    n, m = len(plain), graph.shape[0]
    near = neighbors_of(plain[m:], plain[:m], k)
    ties = sp.csr_array(sp.vstack([graph, k * near]))
    ties.resize(n, n)
    joined = sp.csr_array(ties.maximum(ties.T))
    if coded is None:
        return joined, None
    V, H = coded
    codes = [V]
    for start in range(m, n, m):
        mine = preparation.parts_input(P[start : start + m])
        some = near[start - m : start]
        codes.append(code_rows(np.asarray(mine @ H.T), H, V, some, graph_reg))
    return joined, (np.concatenate(codes), H)


def _made(
    preparation: Preparation,
    P: Any,
    graph: sp.csr_array,
    k: int,
    directions: AnyArray,
    plain: AnyArray,
    model: Any,
    coded: tuple[AnyArray, AnyArray] | None,
) -> Features:
    """Features with their views; without codes where there are none."""
    V, H = coded or (np.zeros((len(plain), 0)), np.zeros((0, P.shape[1])))
    told = (
        int(getattr(model, "n_iter_", 1)),
        str(getattr(model, "status_", "")),
        float(getattr(model, "objective_", 0.0)),
    )
    smooth, walk = plain, row_stochastic(graph)
    for _ in range(ROUNDS):
        smooth = _averaged(smooth, walk, smooth)
    marks, reg = np.empty(0, np.uint64), float(model.graph_reg)
    made = Features(preparation, P, graph, H, V, directions, plain, marks, k, reg, *told)
    made.views = made._views(V, plain, smooth)
    return made


def _factorize(model: Any, P: Any, graph: sp.csr_array) -> tuple[AnyArray, AnyArray]:
    """V and H; zeros for data without a value, which has no parts."""
    from partwise.fitting.solving import few_iterations_will_do

    k = int(model.n_components)
    values = P.data if sp.issparse(P) else P
    if isinstance(values, np.ndarray) and not values.any():
        return np.zeros((P.shape[0], k)), np.zeros((k, P.shape[1]))
    if isinstance(P, np.ndarray) and not isinstance(P, np.memmap):
        P = P.astype(np.float32, copy=False)  # codes need no last digit
    with few_iterations_will_do():
        model.fit(P, graph=graph)
    found = (np.asarray(to_numpy(model.embedding_)), np.asarray(to_numpy(model.components_)))
    return found[0].astype(np.float64), found[1].astype(np.float64)


def leading_directions(P: Any, seed: int) -> AnyArray:
    """Right singular vectors (p, d) of the prepared data, the largest first.

    On one thread of BLAS, or the last digits would depend on how many there are.
    """
    d = min(DIRECTIONS, *P.shape)
    dense = not sp.issparse(P)
    with one_blas_thread:
        if dense and P.shape[0] > max(MANY, 10 * P.shape[1]):
            # less than passes of products, and no left singular vectors of very many samples
            Vt = np.linalg.eigh(np.asarray(gram(P), dtype=float))[1].T[::-1][:d]
        elif dense and min(P.shape) <= 2 * DIRECTIONS:
            Vt = np.linalg.svd(P, full_matrices=False)[2][:d]
        else:
            Vt = randomized_svd(P, d, n_iter=4, random_state=seed)[2]
    return np.ascontiguousarray(Vt.T, dtype=np.float64)


def leading_elsewhere(X: Any, seed: int) -> AnyArray:
    """The same for an X on disk, on a device or on a cluster: four passes of products."""
    p = X.shape[1]
    Q = np.random.RandomState(seed).standard_normal((p, min(DIRECTIONS, *X.shape)))
    Q = np.linalg.qr(Q)[0]
    data = as_data(X)
    for _ in range(4):
        Q = np.linalg.qr(np.asarray(to_numpy(data.tdot(data.dot(_small(data, Q))))))[0]
    return Q


def _products(X: Any, U: AnyArray) -> AnyArray:
    """X U as an array here."""
    data = as_data(X)
    return np.asarray(to_numpy(data.dot(_small(data, U))), dtype=np.float64)


def times(P: Any, U: AnyArray) -> AnyArray:
    """P U in float64, whatever P is; a block is small enough to be converted in the cache."""
    if sp.issparse(P):
        return np.asarray(P @ U)
    made = np.empty((len(P), U.shape[1]))

    def run(lo: int, hi: int) -> None:
        np.matmul(P[lo:hi].astype(float, copy=False), U, out=made[lo:hi])

    with one_blas_thread:
        each(run, pieces(len(P), ROWS, len(P)), threads_for(float(P.size) * U.shape[1]))
    return made


def some_rows(Z: Any, rows: AnyArray) -> Any:
    """Z[rows], in threads where it is dense."""
    if sp.issparse(Z):
        return Z[rows]
    made = np.empty((rows.size, Z.shape[1]), Z.dtype)
    by_entry(lambda part: Z.take(rows[part], axis=0, out=made[part], mode="clip"), made)
    return made


def _blocks(run: Callable[[int, int], Any], Z: AnyArray) -> list[Any]:
    """run(lo, hi) of rows of a dense array that stay in the cache, in threads."""
    parts = pieces(len(Z), max(BLOCK // max(Z.shape[1], 1), 1), len(Z))
    return results(run, parts, threads_for(2 * PASS * Z.size))


def of_blocks(make: Callable[[AnyArray], Any], Z: AnyArray) -> list[Any]:
    """What is made of such rows, in their order."""
    return _blocks(lambda lo, hi: make(Z[lo:hi]), Z)


def _small(data: Any, U: AnyArray) -> Any:
    return data.small(np.ascontiguousarray(U, dtype=data.dtype))


def _averaged(Z: AnyArray, walk: sp.csr_array, known: AnyArray) -> AnyArray:
    """Z and the mean of its neighbours among the known, in threads."""
    made = np.empty_like(Z)

    def run(rows: slice) -> None:
        made[rows] = (1 - SHARE) * Z[rows] + SHARE * (walk[rows] @ known)

    by_entry(run, Z, passes=10)
    return made


def unit_rows(Z: AnyArray) -> AnyArray:
    """Rows at length one, in threads; a zero row stays zero."""
    made = np.empty(Z.shape, np.result_type(Z, np.float32))

    def run(lo: int, hi: int) -> None:
        length = np.sqrt(np.sum(Z[lo:hi] * Z[lo:hi], axis=1, keepdims=True))
        np.divide(Z[lo:hi], np.where(length > 0, length, 1), out=made[lo:hi])

    _blocks(run, Z)
    return made


def _unit(Z: AnyArray, preparation: Preparation) -> AnyArray:
    """In a table the length of a row says something; else rows have length one."""
    return Z if preparation.table else unit_rows(Z)


def row_marks(X: Any) -> AnyArray:
    """A 64-bit digest of every row: of where its values are not zero, and of these in float64.

    So it does not matter whether a row comes dense or sparse, in float32 or float64. Bits h(x) that
    are mixed, with h(0) = 0, are summed with a random odd number for each column: rows that differ
    in one column differ, others with probability 1 - 2⁻⁶⁴.
    """
    odd, found = _odd_numbers(X.shape[1]), np.empty(X.shape[0], np.uint64)
    if sp.issparse(X):
        X = sp.csr_array(X, dtype=np.float64, copy=True)
        X.sum_duplicates()
        bits = np.empty(X.nnz, np.uint64)
        _mix_and_sum(X.data[:, None], np.ones(1, np.uint64), bits)
        return np.asarray(sp.csr_array((bits, X.indices, X.indptr), X.shape) @ odd)
    X = np.ascontiguousarray(X)
    by_entry(lambda rows: _mix_and_sum(X[rows], odd, found[rows]), X, passes=2)
    return found


@compiled(**OPTIONS)
def _mix_and_sum(X, odd, found):  # type: ignore[no-untyped-def]
    """Bits of float64, the high ones carried into the low ones and back; zeros stay zero."""
    for i in range(X.shape[0]):
        total = np.uint64(0)
        for j in range(X.shape[1]):
            b = np.float64(X[i, j]).view(np.uint64)
            b = np.uint64(0) if b == np.uint64(1 << 63) else b  # no -0
            b ^= b >> np.uint64(32)
            b *= np.uint64(0x9E3779B97F4A7C15)
            b ^= b >> np.uint64(29)
            total += b * odd[j]
        found[i] = total


def _odd_numbers(count: int) -> AnyArray:
    return np.random.RandomState(0).randint(1 << 63, size=count, dtype=np.uint64) * 2 + 1


def marks_of(arrays: list[Any]) -> AnyArray:
    """`row_marks` of samples that several arrays describe."""
    found = [row_marks(Z) for Z in arrays]
    if len(found) == 1:
        return found[0]
    return np.asarray(np.stack(found, axis=1) @ _odd_numbers(len(found)))


def _find(marks: AnyArray, known: AnyArray) -> AnyArray:
    """Where each mark is first found among the known ones; -1 where it is not."""
    if not known.size:
        return np.full(marks.size, -1)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], marks), known.size - 1)
    found = order[at]
    return np.where(known[found] == marks, found, -1)


def normalized(W: sp.csr_array) -> sp.csr_array:
    """D^-½ W D^-½ in float32."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = sp.diags_array(1 / np.sqrt(np.maximum(degree, 1e-12)))
    return sp.csr_array(root @ W @ root).astype(np.float32)


def row_stochastic(W: Any) -> sp.csr_array:
    """D⁻¹ W; a sample without neighbours has itself."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    alone = degree <= 0
    walk = sp.csr_array(sp.diags_array(1 / np.where(alone, 1, degree)) @ W)
    return sp.csr_array(walk + sp.diags_array(alone.astype(float))) if alone.any() else walk


def neighbors_of(P: Any, training: Any, k: int) -> sp.csr_array:
    """The k nearest training samples of new ones, each with weight 1/k."""
    k = max(min(k, training.shape[0]), 1)
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(training)
    index = search.kneighbors(P, return_distance=False)
    n = P.shape[0]
    weights = np.full(n * k, 1.0 / k)
    starts = np.arange(0, n * k + 1, k)
    return sp.csr_array((weights, index.ravel(), starts), shape=(n, training.shape[0]))


def code_rows(
    XH: AnyArray, H: AnyArray, V: AnyArray, near: sp.csr_array, graph_reg: float
) -> AnyArray:
    """argmin_{v>=0} ½‖x - Uv‖² + λ/2 Σ_j w_j ‖v - v_j‖² over the neighbours, w_j = 1."""
    weight = graph_reg * near.indptr[1] if near.shape[0] else 0.0
    Z = np.asarray(near @ V, dtype=float)
    return np.asarray(
        solve_rows(Z, XH + weight * Z, H @ H.T, None, np.full((1, 1), weight), 100, 0.0)
    )
