"""Intrinsics that numba lacks: atomic counters, wide vectors, calls of functions by address."""

from __future__ import annotations

from typing import Any

import numba.extending
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock

from partwise.backends.numpy.kernels._options import NO_JIT

LONGEST = 64  # numbers that `registers` holds
ORDER = "seq_cst"  # memory order of atomic operations: all threads observe the same order
WORD = ir.IntType(64)


def in_python(function: Any = None, compiled: Any = numba.extending.intrinsic) -> Any:
    """Compile a definition, or with NUMBA_DISABLE_JIT=1 put a Python function in its place."""
    return lambda definition: function if NO_JIT and function else compiled(definition)


def _add_in_python(counters, at, value):
    counters[at] += value
    return int(counters[at]) - value


def _exchange_in_python(counters, at, expected, new):
    found = bool(counters[at] == expected)
    counters[at] = new if found else counters[at]
    return found


def _pointer(context, builder, signature, args):
    """Return the pointer to ``counters[at]``, given these as the first two arguments."""
    kind = signature.args[0]
    counters = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, kind, counters, [args[1]])


@in_python(_add_in_python)
def add(typing, counters, at, value):
    """Add a value to counters[at] atomically, and return the old value."""
    return types.int64(counters, types.intp, types.int64), lambda *given: given[1].atomic_rmw(
        "add", _pointer(*given), given[3][2], ORDER
    )


@in_python(lambda counters, at: int(counters[at]))
def load(typing, counters, at):
    """Return the value of counters[at], including what other threads have written."""
    return types.int64(counters, types.intp), lambda *given: given[1].load_atomic(
        _pointer(*given), ORDER, 8
    )


@in_python(_exchange_in_python)
def compare_exchange(typing, counters, at, expected, new):
    """Store ``new`` in counters[at] if its value is ``expected``; return whether it was."""
    return types.boolean(counters, types.intp, types.int64, types.int64), lambda *given: given[
        1
    ].extract_value(given[1].cmpxchg(_pointer(*given), *given[3][2:], ORDER, ORDER), 1)


@in_python()
def call(typing, address, argument):
    """Return the result of the function ``int64_t f(int64_t)`` at an address."""
    kind = ir.FunctionType(WORD, [WORD]).as_pointer()
    return types.int64(
        types.int64, types.int64
    ), lambda context, builder, signature, args: builder.call(
        builder.inttoptr(args[0], kind), [args[1]]
    )


def entry_of(kernel: Any, kinds: tuple[Any, ...]) -> tuple[int, Any]:
    """Compile ``int64_t f(int64_t row)``, which calls a kernel with the arguments in a row.

    Return its address, and what must be kept with it. f returns 0 unless the kernel raises.
    """
    kernel.compile(kinds)
    made = kernel.overloads[kinds]
    context = made.target_context
    native = context.call_conv.get_function_type(made.signature.return_type, kinds)
    function = ir.Function(ir.Module("entry"), ir.FunctionType(WORD, [WORD]), "entry")
    builder = ir.IRBuilder(function.append_basic_block())
    given = [builder.alloca(kind.pointee) for kind in native.args[:2]]  # a result, and an error
    row = builder.inttoptr(function.args[0], WORD.as_pointer())
    for number, kind in enumerate(native.args[2:]):
        place = builder.gep(row, [WORD(number)])
        given.append(builder.load(builder.bitcast(place, kind.as_pointer())))
    address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    status = builder.call(builder.inttoptr(WORD(address), native.as_pointer()), given)
    builder.ret(builder.zext(status, WORD))
    with global_compiler_lock:
        library = context.codegen().create_library("entry")
        library.add_ir_module(function.module)
        library.finalize()
    return library.get_pointer_to_function("entry"), (library, made)


@in_python()
def gemm_at(typing, function, like, turned, m, n, k, a, lda, b, ldb, c, ldc):
    """Compute c = op(a) op(b) by BLAS; bits 1 and 2 of ``turned`` transpose a and b.

    Matrices are stored by columns, and ``like`` is an array of their dtype. All others are
    addresses and whole numbers of 64 bits; a BLAS with 32 bits reads the lower half.
    """

    def generate(context, builder, signature, args):
        number, letter, bit = context.get_data_type(like.dtype), ir.IntType(8), ir.IntType(1)
        turns = [builder.trunc(builder.lshr(args[2], WORD(by)), bit) for by in (0, 1)]
        ops = [builder.select(turn, letter(ord("T")), letter(ord("N"))) for turn in turns]
        m, n, k, a, lda, b, ldb, c, ldc = args[3:]
        values = (*ops, m, n, k, number(1.0), lda, ldb, number(0.0), ldc)
        places = [cgutils.alloca_once_value(builder, value) for value in values]
        a, b, c = (builder.inttoptr(address, number.as_pointer()) for address in (a, b, c))
        given = (*places[:6], a, places[6], b, places[7], places[8], c, places[9])
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(types.intp, like, *[types.intp] * 10), generate


@in_python(lambda: None)
def wide_vectors(typing):
    """Let LLVM use vectors of 512 bits in the calling function, even if it prefers 256."""

    def generate(context, builder, signature, args):
        # a name that llvmlite does not know, which its own `add` refuses
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@in_python(lambda like: np.empty(LONGEST, like.dtype))
def registers(typing, like):
    """Return space for LONGEST numbers of an array's dtype, which LLVM keeps in registers.

    Every index must be constant after unrolling. A normal array would stay in memory.
    """
    return types.CPointer(like.dtype)(
        like
    ), lambda context, builder, signature, args: cgutils.alloca_once(
        builder, context.get_data_type(like.dtype), size=LONGEST
    )
