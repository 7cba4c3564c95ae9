"""Threads that wait inside compiled code: a kernel cut into pieces costs them no interpreter.

A board is an array that one caller and its helpers share. The caller posts a kernel with its
arguments on it (`share`) and takes pieces like everyone else; helpers (`serve`) look at it again
and again, for a while. To wake a sleeping thread takes 50 µs on a virtual machine, and the
interpreter lets one at a time through; a thread that is looking begins within one.

The ticket is the number of the job and that of its next piece, in one word: who raises it by one
has the piece. It is closed before a job is described and opened after, so nobody takes a piece of
one job for that of another. Who is late finds nothing left, and nobody waits for who took nothing.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import numba as nb
import numba.extending
from llvmlite import ir
from numba.core import cgutils, types

from partwise.backends.numpy.kernels._options import HELPER, INLINE, OPTIONS
from partwise.backends.threads import CALLS

# words of a board, a line of the cache apart where several threads write
TICKET, DONE, JOB, ARGUMENTS, COUNT, FAILED = 0, 16, 64, 65, 66, 67
NEXT = (1 << 31) - 1  # bits of a ticket that number the piece
SPINS = 1_000  # looks before the processor is offered to others

intrinsic: Any = numba.extending.intrinsic
_word, _byte = ir.IntType(64), ir.IntType(8).as_pointer()


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Where a word of a board lies, by the first two arguments of an intrinsic."""
    board = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
    return builder.gep(board.data, [args[1]])


@intrinsic
def _load(typing, board, word):
    def emit(context, builder, signature, args):
        return builder.load_atomic(_place(context, builder, signature, args), "seq_cst", 8)

    return types.int64(board, types.intp), emit


@intrinsic
def _add(typing, board, word, value):
    """Returns what was there before."""

    def emit(context, builder, signature, args):
        at = _place(context, builder, signature, args)
        return builder.atomic_rmw("add", at, args[2], "seq_cst")

    return types.int64(board, types.intp, types.int64), emit


@intrinsic
def _put(typing, board, word, value):
    """An exchange: nothing that is written after it is seen before it, nor the other way."""

    def emit(context, builder, signature, args):
        at = _place(context, builder, signature, args)
        return builder.atomic_rmw("xchg", at, args[2], "seq_cst")

    return types.int64(board, types.intp, types.int64), emit


@intrinsic
def _put_if(typing, board, word, old, new):
    """Whether ``old`` was there, and ``new`` now is."""

    def emit(context, builder, signature, args):
        at = _place(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(at, *args[2:], "seq_cst", "seq_cst"), 1)

    return types.boolean(board, types.intp, types.int64, types.int64), emit


@intrinsic
def _rest(typing, looks):
    """Take a breath; after many looks, let others have the processor."""

    def emit(context, builder, signature, args):
        void = ir.FunctionType(ir.VoidType(), [])
        if platform.machine().lower() in ("x86_64", "amd64"):
            pause = cgutils.get_or_insert_function(builder.module, void, "llvm.x86.sse2.pause")
            builder.call(pause, [])
        if os.name == "posix":
            with builder.if_then(builder.icmp_signed(">", args[0], _word(SPINS))):
                call = ir.FunctionType(ir.IntType(32), [])
                name = cgutils.get_or_insert_function(builder.module, call, "sched_yield")
                builder.call(name, [])
        return context.get_dummy_value()

    return types.none(types.int64), emit


@intrinsic
def _run(typing, job, arguments, piece):
    """The job at this address; True if it failed."""

    def emit(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(1), [_byte, _word])
        job = builder.inttoptr(args[0], kind.as_pointer())
        return builder.call(job, [builder.inttoptr(args[1], _byte), args[2]])

    return types.boolean(types.int64, types.int64, types.int64), emit


@intrinsic
def _post(typing, board, arguments):
    """Write the function that this stands in on the board, as a job, and what it is to be given."""

    def emit(context, builder, signature, args):
        kept, kind = (
            context.get_value_type(arguments),
            ir.FunctionType(ir.IntType(1), [_byte, _word]),
        )
        name = builder.module.get_unique_name(f"{builder.function.name}.job")
        job = ir.Function(builder.module, kind, name)
        job.linkage = "internal"
        inside = ir.IRBuilder(job.append_basic_block())
        own = cgutils.unpack_tuple(
            inside, inside.load(inside.bitcast(job.args[0], kept.as_pointer()))
        )
        types_ = (arguments.types[0], types.int64, *arguments.types[1:])
        status, _ = context.call_conv.call_function(
            inside, builder.function, types.none, types_, [own[0], job.args[1], *own[1:]]
        )
        inside.ret(status.is_error)
        room = cgutils.alloca_once_value(builder, args[1])
        for word, value in ((JOB, job), (ARGUMENTS, room)):
            at = _place(context, builder, signature, [args[0], ir.Constant(_word, word)])
            builder.store(builder.ptrtoint(value, _word), at)
        return context.get_dummy_value()

    return types.none(board, arguments), emit


@nb.njit(**HELPER)
def _help(board):
    """Take pieces while there are some; whether there was one."""
    any_ = False
    while True:
        ticket = _load(board, TICKET)
        piece = ticket & NEXT
        if piece >= _load(board, COUNT):
            return any_
        job, arguments = _load(board, JOB), _load(board, ARGUMENTS)
        if _put_if(board, TICKET, ticket, ticket + 1):
            any_ = True
            if _run(job, arguments, piece):
                _add(board, FAILED, 1)
            _add(board, DONE, 1)


@nb.njit(**INLINE)
def share(count, arguments):
    """Do ``count`` pieces with the help of whoever looks at the board.

    A kernel kernel(board, piece, *others) calls it with all of its arguments but ``piece`` if that
    is negative, and is then called itself for each: one function is compiled, once. Who called it
    has the arrays; the others only borrow them.
    """
    board = arguments[0]
    number = ((_load(board, TICKET) >> 31) + 1) << 31
    _put(board, TICKET, number | NEXT)  # closed: NEXT is beyond every count
    _post(board, arguments)
    _put(board, COUNT, count)
    _put(board, DONE, 0)
    _put(board, TICKET, number)
    _help(board)
    looks = 0
    while _load(board, DONE) < count:
        looks += 1
        _rest(looks)
    if _put(board, FAILED, 0):
        raise MemoryError("no room for what a piece of the work needs")


@nb.njit(**OPTIONS)
def serve(board, calls, patience, term):
    """Help until the interpreter calls: the number of its calls, if not ``calls`` any more.

    Or -1, after ``patience`` looks at a board with nothing on it, or ``term`` at some with a job.
    """
    looks, called = 0, calls
    while looks < patience and term > 0 and called == calls:
        if _help(board):
            looks, term = 0, term - 1
        looks += 1
        _rest(looks)
        called = _load(board, CALLS)
    return called if called != calls else -1
