"""Compiled inner loops: plain functions over arrays, compiled by numba on first use.

Importing this package imports numba, so the library does it inside functions. Every kernel has a
naive twin in ``tests/reference.py`` or a numpy expression in the tests. ``parallel`` variants run
the same arithmetic in the same order on each row, so the number of threads changes no result of a
row kernel by more than the last bits (the compiler fuses multiplications and additions as it likes
in each variant); sums over rows are taken per chunk of rows, in order.

What is slow to compile is kept out of those that a first small fit needs: functions that call each
other (each is optimised again inside its caller), arrays of their own, assignments to slices, and
parallel loops, in whose place rows are cut into runs for Python's threads (`numeric.in_threads`).

A kernel calls only what is in its own file: numba keeps compiled code for as long as the file of
the *calling* function stays the same.
"""

from partwise.backends.numpy.kernels._options import OPTIONS
from partwise.backends.numpy.kernels.divergence import (
    kl_rows,
    kl_rows_parallel,
    newton_dense,
    newton_rows,
    newton_rows_parallel,
)
from partwise.backends.numpy.kernels.hals import (
    LANES,
    hals_graph,
    hals_graph_parallel,
    hals_rows,
)
from partwise.backends.numpy.kernels.many_starts import (
    PIECES,
    half_steps,
    half_steps_parallel,
    residual_norms,
)
from partwise.backends.numpy.kernels.pivot import pivot_rows
from partwise.backends.numpy.kernels.products import (
    TILE,
    graph_solve,
    graph_solve_parallel,
    laplacian,
    spmm,
)

__all__ = [
    "LANES",
    "OPTIONS",
    "PIECES",
    "TILE",
    "graph_solve",
    "graph_solve_parallel",
    "half_steps",
    "half_steps_parallel",
    "hals_graph",
    "hals_graph_parallel",
    "hals_rows",
    "kl_rows",
    "kl_rows_parallel",
    "laplacian",
    "newton_dense",
    "newton_rows",
    "newton_rows_parallel",
    "pivot_rows",
    "residual_norms",
    "spmm",
]
