"""A tall array divided into blocks of rows that stay with their blocks of X.

Operations on `Rows` that treat each row alone are recorded and delayed. A reduction (a sum over
rows, a product of two tall arrays, a number) computes: for each block, one task runs all recorded
operations and returns its share, and only the shares are sent. Values that the caller still holds
stay with their block for the next task, so nothing is computed twice. `Rows` have the array API's
functions, so one solver serves all back ends.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from partwise.backends import arrays, sweeps
from partwise.backends.arrays import AnyArray

#: Functions that combine the results of all blocks to the largest or smallest value of each entry.
largest, smallest = partial(np.max, axis=0), partial(np.min, axis=0)


class RowLayout:
    """The division of the rows into blocks, and the runner of the blocks (see `dask_data`)."""

    def __init__(self, sizes: list[int], runner: Any, first: int = 0) -> None:
        self.sizes, self.runner = list(sizes), runner
        self.first = first  # position of the first block among the runner's places
        self.starts = [0, *np.cumsum(self.sizes).tolist()]

    @property
    def n(self) -> int:
        return int(self.starts[-1])

    def split(self, a: AnyArray) -> list[AnyArray]:
        return [a[lo:hi] for lo, hi in zip(self.starts[:-1], self.starts[1:], strict=True)]


class Recipe:
    """A block of X that is not stored, but computed again in each pass over X."""

    def __init__(self, call: Any) -> None:
        self.call = call


class Node:
    """Recorded operation on blocks of rows, or values stored with their blocks."""

    def __init__(self, function: Any, args: tuple[Any, ...], handles: list[Any] | None) -> None:
        self.function, self.args, self.handles = function, args, handles
        #: Position of the values in each handle, if a handle holds several values of a task.
        self.pick: int | None = None
        self.gram: AnyArray | None = None  # AᵀA of the values A, if it is known
        self.held: Any = None  # weak reference to the `Rows`; it is dead if no caller uses them now
        self.again = False  # True if the values are not stored, but computed again in each pass


class Rows(NDArrayOperatorsMixin):
    """A tall array in blocks of rows; ``meta`` is an empty block with its dtype and width."""

    def __init__(self, layout: RowLayout, node: Node, meta: Any) -> None:
        self.layout, self.node, self.meta = layout, node, meta
        node.held = weakref.ref(self)

    @classmethod
    def of(cls, layout: RowLayout, handles: list[Any], meta: Any) -> Rows:
        """Return a `Rows` object for values that are already stored with their blocks."""
        return cls(layout, Node(None, (), handles), meta)

    # -- attributes of an array ---------------------------------------------------------------

    @property
    def dtype(self) -> Any:
        return self.meta.dtype

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def ndim(self) -> int:
        return int(self.meta.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.layout.n, *self.meta.shape[1:])

    def __len__(self) -> int:
        return self.layout.n

    # -- recorded operations --------------------------------------------------------------------

    def map(self, function: Callable[..., Any], *args: Any, like: Any = None) -> Rows:
        """Return function(block, ...) for each block; Rows among the arguments give blocks."""
        meta = (
            function(*(a.meta if isinstance(a, Rows) else a for a in args))
            if like is None
            else like
        )
        nodes = tuple(a.node if isinstance(a, Rows) else a for a in args)
        return Rows(self.layout, Node(function, nodes, None), meta)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return FUNCTIONS

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        out = kwargs.pop("out", (None,))[0]
        if kwargs or not (out is None or isinstance(out, Rows)):
            given = ", ".join(f"{name}=" for name in (*kwargs, *(["out"] if not kwargs else [])))
            raise TypeError(
                f"{ufunc.__name__} does not support {given} for the part weights of a Dask array"
            )
        if ufunc is np.matmul:
            left, right = inputs
            return left.__matmul__(right) if isinstance(left, Rows) else NotImplemented
        made = self.map(ufunc, *inputs)
        return made if out is None else out.become(made)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return NotImplemented  # numpy would treat them as objects; use the functions of `namespace`

    def become(self, other: Rows) -> Rows:
        """Take over the values of another array; this replaces writing in place."""
        self.node, self.meta = other.node, other.meta
        self.node.held = weakref.ref(self)
        return self

    def __getitem__(self, key: Any) -> Rows:
        if not (isinstance(key, tuple) and key[0] == slice(None)):
            raise IndexError("distributed rows are not taken apart; use gather() first")
        return self.map(operator.getitem, self, key)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Rows):
            return self.map(np.matmul, self, other)
        return self.reduce(np.matmul, self, other)

    def astype(self, dtype: Any, copy: bool = True) -> Rows:
        return self if self.dtype == dtype else self.map(np.asarray, self, np.dtype(dtype))

    # -- operations that compute ----------------------------------------------------------------

    @property
    def T(self) -> _Transposed:
        return _Transposed(self)

    def reduce(self, function: Any, *args: Any, combine: Any = None) -> Any:
        """Combine the results of ``function(block, ...)`` for all blocks, by default by +."""
        target = self.map(function, *args, like=0)
        return evaluate(self.layout, target, add if combine is None else combine)

    def settle(self) -> Rows:
        """Compute the recorded operations, and store the values with their blocks."""
        if self.node.handles is None:
            self.reduce(_nothing, self)
        return self

    def derived(self) -> Rows:
        """Return blocks as large as X: workers keep them, threads compute them in each pass."""
        if self.layout.runner.keeps:
            return self.settle()
        self.node.again = True
        return self

    def handles(self) -> list[Any]:
        """Return the handles that keep the values of each block alive."""
        node = self.settle().node
        if node.pick is not None:
            node.handles = self.layout.runner.pick(self.layout, node.handles, node.pick)
            node.pick = None
        return node.handles or []

    def gather(self) -> AnyArray:
        """Return the whole array as a numpy array in this process."""
        return np.concatenate(self.layout.runner.fetch(self.handles()))

    def sum(self, axis: Any = None, dtype: Any = None) -> Any:
        if axis == 1:
            return self.map(np.sum, self, axis, dtype)
        return self.reduce(np.sum, self, axis, dtype)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        if axis == 1:
            return self.map(_mean_columns, self, keepdims)
        return self.sum(axis=axis) / self.dtype.type(self.layout.n)

    def max(self, axis: Any = None) -> Any:
        return self.reduce(_limit, self, axis, np.maximum, combine=largest)

    def min(self, axis: Any = None) -> Any:
        return self.reduce(_limit, self, axis, np.minimum, combine=smallest)

    def any(self) -> bool:
        return bool(self.reduce(np.any, self, combine=largest))


class _Transposed:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __matmul__(self, other: Any) -> Any:
        node = self.rows.node
        if isinstance(other, Rows) and other.node is node and node.gram is not None:
            return node.gram
        return self.rows.reduce(_cross, self.rows, other)


class RowFunctions:
    """The functions of the array API that a solver needs on `Rows`; the others are numpy's."""

    def __getattr__(self, name: str) -> Any:
        if name in ("astype", "sum", "mean", "max", "min", "any"):
            return lambda a, *args, **options: getattr(a, name)(*args, **options)
        if name in ("zeros_like", "ones_like", "full_like"):
            return lambda a, *args: a.map(getattr(np, name), a, *args)
        return getattr(np, name)

    def where(self, condition: Any, a: Any, b: Any) -> Rows:
        rows = next(x for x in (condition, a, b) if isinstance(x, Rows))
        return rows.map(np.where, condition, a, b)


FUNCTIONS = RowFunctions()
arrays.register_namespace(Rows, FUNCTIONS)


# -- functions that the standard lacks, applied to each block as an ndarray -------------------


@arrays.to_numpy.register
def _(a: Rows) -> AnyArray:
    return a.gather()


@arrays.spread_over.register
def _(Z: Rows, part: Any) -> AnyArray:
    return Z.map(_spread, part, Z)


@arrays.own.register
def _(V: Rows) -> AnyArray:
    return V  # the arrays of blocks are never changed in place


@arrays.orthonormal.register
def _(Y: Rows) -> AnyArray:
    """Run Cholesky QR, twice for accuracy; directions of length zero stay zero."""
    Q = Y
    for _ in range(2):
        G = (Q.T @ Q).astype(np.float64)
        size, vectors = np.linalg.eigh(G)
        keep = size > max(size[-1], 1e-300) * 1e-14
        inverse = np.where(keep, 1 / np.sqrt(np.where(keep, size, 1)), 0)
        Q = Q @ (vectors * inverse).astype(Y.dtype)
    return Q.settle()


@arrays.dot64.register
def _(a: Rows, b: Any) -> float:
    return float(a.reduce(_dot64, a, b))


@arrays.ratio_of.register
def _(leads: Rows, numerator: Any, denominator: Any) -> AnyArray:
    return leads.map(arrays.ratio, numerator, denominator)


@sweeps.sweep.register
def _(Z: Rows, C: Any, *rest: Any) -> AnyArray:
    return Z.map(_sweep, Z, C, *rest)


def evaluate(layout: RowLayout, target: Rows, combine: Any) -> Any:
    """Compute ``target`` in one task per block, keep values in use, and combine the results."""
    order = _in_order(target.node)
    place = {node: i for i, node in enumerate(order)}
    leaves = [node for node in order if node.handles is not None]
    constants: list[Any] = []

    def argument(a: Any) -> tuple[bool, int]:
        if isinstance(a, Node):
            return True, place[a]
        constants.append(a)
        return False, len(constants) - 1

    program = [
        (node.function, [argument(a) for a in node.args]) if node.handles is None else None
        for node in order
    ]
    kept = [node for node in order[:-1] if _wanted(node)]
    keep = [place[node] for node in kept]
    at = [(place[node], node.pick) for node in leaves]
    inputs = [[node.handles[b] for node in leaves] for b in range(len(layout.sizes))]  # type: ignore[index]
    shares, values = layout.runner.run(
        layout, (program, at, keep), constants, inputs, len(keep), combine
    )
    for node, (handles, pick) in zip(kept, values, strict=True):
        node.handles, node.pick = handles, pick
        node.function, node.args = None, ()
    return shares


def _in_order(target: Node) -> list[Node]:
    """Return the operations that ``target`` needs, each after its arguments; it is the last."""
    graph: dict[Node, list[Node]] = {}
    stack = [target]
    while stack:
        node = stack.pop()
        if node not in graph:
            operands = node.args if node.handles is None else ()
            graph[node] = [a for a in operands if isinstance(a, Node)]
            stack += graph[node]
    return list(TopologicalSorter(graph).static_order())


def _wanted(node: Node) -> bool:
    """Return True if the values are not stored yet, and a caller still holds the rows."""
    rows = node.held()
    return node.handles is None and rows is not None and rows.node is node and not node.again


def run_block(job: Any, constants: list[Any], inputs: list[Any]) -> tuple[Any, list[Any]]:
    """Run the operations of one block in order; return its result and stored values."""
    program, at, keep = job
    values: list[Any] = [None] * len(program)
    for (where, pick), value in zip(at, inputs, strict=True):
        value = value.call.compute(scheduler="sync") if isinstance(value, Recipe) else value
        values[where] = value if pick is None else value[pick]
    for i, step in enumerate(program):
        if step is not None:
            function, spec = step
            values[i] = function(*(values[j] if own else constants[j] for own, j in spec))
    return values[-1], [values[i] for i in keep]


def add(shares: list[Any]) -> Any:
    """Return the sum of the results of all blocks, added in order."""
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    return total


def _spread(part: AnyArray, block: AnyArray) -> AnyArray:
    return np.broadcast_to(part, block.shape)


def _mean_columns(block: AnyArray, keepdims: bool) -> AnyArray:
    return block.mean(axis=1, keepdims=keepdims)


def _cross(a: AnyArray, b: AnyArray) -> AnyArray:
    return a.T @ b


def _dot64(a: AnyArray, b: AnyArray) -> float:
    return arrays.dot64(a, np.broadcast_to(b, a.shape))


def _sweep(Z: AnyArray, C: AnyArray, *rest: Any) -> AnyArray:
    # Rows of a block end their sweeps together. The small limit keeps the results nearly
    # independent of how X is divided into blocks.
    *others, stop, enough = rest
    new: AnyArray = sweeps.sweep(
        Z.copy(), np.broadcast_to(C, Z.shape), *others, min(stop, 1e-9), enough
    )  # type: ignore[call-arg]
    return new


def _limit(block: AnyArray, axis: Any, limit: Any) -> Any:
    edge = -np.inf if limit is np.maximum else np.inf
    return limit.reduce(block, axis=axis, initial=edge).astype(block.dtype)


def _nothing(block: AnyArray) -> int:
    return 0
