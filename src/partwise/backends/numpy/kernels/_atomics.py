"""What numba cannot express: counters of several threads, wide vectors, functions at an address.

Every function here can be called from compiled code. With ``NUMBA_DISABLE_JIT=1`` each one is a
plain Python function, so that kernels run in a debugger.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels._options import HELPER, NO_JIT, compiled

LONGEST = 64  # numbers that `registers` holds
ORDER = "seq_cst"  # every thread observes the same order of all atomic operations


def _pointer(context, builder, signature, args):
    """The pointer to ``counters[at]``, where these are the first two arguments."""
    kind = signature.args[0]
    counters = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, kind, counters, [args[1]])


@intrinsic
def _add(typing, counters, at, value):
    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        return builder.atomic_rmw("add", pointer, args[2], ORDER)

    return types.int64(counters, types.intp, types.int64), generate


@intrinsic
def _load(typing, counters, at):
    def generate(context, builder, signature, args):
        return builder.load_atomic(_pointer(context, builder, signature, args), ORDER, 8)

    return types.int64(counters, types.intp), generate


@intrinsic
def _compare_exchange(typing, counters, at, expected, new):
    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(pointer, *args[2:], ORDER, ORDER), 1)

    return types.boolean(counters, types.intp, types.int64, types.int64), generate


@intrinsic
def _call(typing, address, argument):
    """The result of the function ``int64_t f(int64_t)`` at an address."""

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        function = builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(function, [args[1]])

    return types.int64(types.int64, types.int64), generate


def _gemm_at(typing, function, like, turned, m, n, k, a, lda, b, ldb, c, ldc):
    """BLAS's c = op(a) op(b), stored by columns; bits 1 and 2 of ``turned`` transpose a and b.

    All are addresses and sizes; ``like`` is an array of the dtype. The integers of BLAS have 32 or
    64 bits. Passing 64 bits serves both, because the lower half comes first in memory.
    """

    def generate(context, builder, signature, args):
        gemm, _, turned, m, n, k, a, lda, b, ldb, c, ldc = args
        number, letter = context.get_data_type(like.dtype), ir.IntType(8)
        ops = [
            builder.select(
                builder.trunc(builder.lshr(turned, turned.type(bit)), ir.IntType(1)),
                letter(ord("T")),
                letter(ord("N")),
            )
            for bit in (0, 1)
        ]
        values = (*ops, m, n, k, number(1.0), lda, ldb, number(0.0), ldc)
        op_a, op_b, m, n, k, one, lda, ldb, zero, ldc = (
            cgutils.alloca_once_value(builder, value) for value in values
        )
        a, b, c = (builder.inttoptr(address, number.as_pointer()) for address in (a, b, c))
        given = (op_a, op_b, m, n, k, one, a, lda, b, ldb, zero, c, ldc)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(gemm, kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(types.intp, like, *[types.intp] * 10), generate


_gemm: Any = intrinsic(_gemm_at)


@compiled(**HELPER)
def _leading(A, turned):
    """The distance of two rows of A in memory, or of two columns of a ``turned`` array."""
    across = 1 if turned else 0
    return max(A.strides[across] // A.itemsize, A.shape[1 - across], 1)


@compiled(**HELPER)
def _multiply(gemm, A, B, out):
    """out = A B by the BLAS function at the address ``gemm`` (see `products.gemm`).

    All arrays are matrices of one dtype. Each row of ``out`` is contiguous. A and B may have
    contiguous rows or contiguous columns, and any distance between them.
    """
    a, b = A.strides[1] != A.itemsize, B.strides[1] != B.itemsize
    (m, k), n = A.shape, B.shape[1]
    # BLAS stores matrices by columns, so this is outᵀ = Bᵀ Aᵀ
    _gemm(
        gemm, out, b + 2 * a, n, m, k, B.ctypes.data, _leading(B, b), A.ctypes.data,
        _leading(A, a), out.ctypes.data, _leading(out, False),
    )  # fmt: skip


if os.name == "posix":
    _sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
else:
    _sched_yield = nb.njit(lambda: 0)


@compiled(**HELPER)
def _give_way():
    """Give the core to another thread that waits for one."""
    _sched_yield()


@intrinsic
def _wide_vectors(typing):
    def generate(context, builder, signature, args):
        # a name that llvmlite does not know, which its own `add` refuses
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _registers(typing, like):
    def generate(context, builder, signature, args):
        return cgutils.alloca_once(builder, context.get_data_type(like.dtype), size=LONGEST)

    return types.CPointer(like.dtype)(like), generate


_lock = Lock()


def _add_in_python(counters, at, value):
    with _lock:
        counters[at] += value
        return int(counters[at]) - value


def _exchange_in_python(counters, at, expected, new):
    with _lock:
        found = bool(counters[at] == expected)
        counters[at] = new if found else counters[at]
        return found


add: Any = _add  # (counters, at, value): adds to counters[at]; returns what was there
load: Any = _load  # (counters, at): counters[at] as other threads left it
compare_exchange: Any = _compare_exchange  # (counters, at, expected, new): True if it stored new
multiply: Any = _multiply
give_way: Any = _give_way
#: Let LLVM fill vectors of 512 bits in the function that calls this; of its own accord it takes 256
#: on Intel processors. Coordinate descent takes from 1.25 to 1.5 times as long without it.
wide_vectors: Any = _wide_vectors
#: (like): room for LONGEST numbers of the dtype of an array. Where every index is a constant after
#: unrolling, LLVM keeps them in registers; the entries of an array it loads and stores each time.
registers: Any = _registers
if NO_JIT:
    add, compare_exchange = _add_in_python, _exchange_in_python
    load = lambda counters, at: int(counters[at])  # noqa: E731
    multiply = lambda gemm, A, B, out: np.matmul(A, B, out=out)  # noqa: E731
    give_way = wide_vectors = lambda: None
    registers = lambda like: np.empty(LONGEST, like.dtype)  # noqa: E731
