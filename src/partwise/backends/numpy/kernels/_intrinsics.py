"""What numba has no word for: numbers that threads share, BLAS at an address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels._writing import arguments


def blas(builder, number, gemm, turned, m, n, k, a, lda, b, c, ldc):
    """BLAS's c = a bᵀ if ``turned``, else a b, at these addresses, columns first; b has no gaps.

    ``gemm`` is the address of the function for this type of ``number``. Its sizes have 32 or 64
    bits: the lower half comes first.
    """
    plain, other = (ir.Constant(ir.IntType(8), ord(letter)) for letter in "NT")
    turn = builder.trunc(turned, ir.IntType(1))
    ldb = builder.select(turn, n, k)
    one, zero = (ir.Constant(number, value) for value in (1.0, 0.0))
    values = (plain, builder.select(turn, other, plain), m, n, k, one, lda, ldb, zero, ldc)
    letter, second, m, n, k, one, lda, ldb, zero, ldc = (
        cgutils.alloca_once_value(builder, value) for value in values
    )
    a, b, c = (builder.inttoptr(place, number.as_pointer()) for place in (a, b, c))
    given = (letter, second, m, n, k, one, a, lda, b, ldb, zero, c, ldc)
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
    builder.call(builder.inttoptr(gemm, kind.as_pointer()), given)


def _add(typing, counters, at, value):
    """counters[at] += value in one piece, whatever other threads do; returns what it was."""

    def generate(context, builder, signature, args):
        counters, at, value = arguments(context, builder, signature, args)
        return counters.count(at, value).value

    return types.int64(counters, types.intp, types.int64), generate


def _times(typing, like, gemm, turned, m, n, k, a, lda, b, c, ldc):
    """`blas` for the dtype of ``like``."""

    def generate(context, builder, signature, args):
        blas(builder, context.get_data_type(like.dtype), *args[1:])
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 10), generate


add: Any = intrinsic(_add)
times: Any = intrinsic(_times)
