"""Compiled inner loops: plain functions over arrays, compiled by numba on first use.

Importing this package imports numba, so the library does it inside functions. Every kernel has a
naive twin in ``tests/reference.py`` or a numpy expression in the tests. A kernel works on the rows
it is told, so that threads (`crew`) can each take some; sums over rows are taken by
pieces that depend on the shape alone, in order. There is one variant of each, so the number of
threads changes no digit.

What is slow to compile is kept out of those that a first small fit needs: functions that call each
other (each is optimised again inside its caller), arrays of their own, assignments to slices, and
parallel loops. Every line or argument that numba reads costs from 5 to 30 ms, and loops cost LLVM a
copy for each remainder: kernels of a first fit are one intrinsic each, all of it written for LLVM
(`_writing`), and are told most by numbers. That takes from a ninth to a half of the time.

A kernel calls only what is in its own file: numba keeps compiled code for as long as the file of
the *calling* function stays the same.
"""

from partwise.backends.numpy.kernels._options import OPTIONS
from partwise.backends.numpy.kernels.divergence import (
    kl_rows,
    newton_dense,
    newton_rows,
    xlogy,
)
from partwise.backends.numpy.kernels.half_step import half_step
from partwise.backends.numpy.kernels.hals import (
    LANES,
    hals_graph,
    hals_rows,
    laplacian,
    quadratic_change,
)
from partwise.backends.numpy.kernels.pivot import inverse_of, pivot_rows
from partwise.backends.numpy.kernels.products import (
    LINE,
    TILE,
    add_up,
    graph_solve,
    spmm,
    transpose,
)
from partwise.backends.numpy.kernels.sums import kkt_squares, overview, residual_squares

__all__ = [
    "LANES",
    "LINE",
    "OPTIONS",
    "TILE",
    "add_up",
    "graph_solve",
    "half_step",
    "hals_graph",
    "hals_rows",
    "inverse_of",
    "kkt_squares",
    "kl_rows",
    "laplacian",
    "newton_dense",
    "newton_rows",
    "overview",
    "pivot_rows",
    "quadratic_change",
    "residual_squares",
    "spmm",
    "transpose",
    "xlogy",
]
