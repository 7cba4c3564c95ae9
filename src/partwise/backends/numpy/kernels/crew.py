"""Kernels in threads that stay outside the interpreter.

A thread of `threads` that is called to a kernel takes the interpreter's lock to begin and to end,
one after the other: with sixteen of them that is a millisecond, longer than most kernels run.
Here who calls lays the arguments of all tasks on a desk, and helpers take them from there in
compiled code. They stay at the desk, since the next kernel comes soon: awake for a while, and then
asleep, looking up now and then; or at once where somebody else wants their core. To leave, and to
come again, would take the lock.

A task is a row of numbers: what numba passes for its arguments. A few instructions, compiled for
each kind of arguments, take them from there and call the kernel as it is.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock

from partwise.backends import threads as workers
from partwise.backends.numpy.kernels import _intrinsics as shared
from partwise.backends.numpy.kernels._intrinsics import WORD
from partwise.backends.numpy.kernels._options import OPTIONS

#: Where a desk has what; places that threads write to are 128 bytes apart.
OPEN, DONE, LEAVE, SLEEP, TASK, SIZE = 0, 16, 32, 33, 48, 64
#: Looks at the desk before the core is given to others, and before the clock is read.
PATIENCE = 200
#: Nanoseconds that a helper is awake and stays; and that are nobody else's: what a system gives to
#: another is more.
WAIT, STAY, AWAY = 2_000_000, 100_000_000, 1_000_000
#: Microseconds that it sleeps at first, and at most.
NAPS = 50, 1000


#: What `_serve` takes. It is compiled for the first desk: a small fit has none.
SERVED = types.void(types.int64[::1], *[types.int64] * 3)


@nb.njit(**OPTIONS)
def _serve(desk, leads, more, wait):
    """Take tasks from the desk; who ``leads`` until all are done, others as long as some come.

    OPEN are, in the lower half, tasks that nobody has taken, below a number that is another for
    each call. Who has taken one may read what it is: the desk does not change until it is done.
    ``more`` is what makes a call open.
    """
    if more:
        shared.add(desk, OPEN, more)
    looks, since, last, nap = 0, 0, 0, 0
    while True:
        state = shared.read(desk, OPEN)
        left = state & 0xFFFFFFFF
        if left > 0:
            if shared.swap(desk, OPEN, state, state - 1):
                if shared.call(desk[TASK], desk[TASK + 1] + (left - 1) * desk[TASK + 2]) != 0:
                    shared.add(desk, TASK + 4, 1)
                shared.add(desk, DONE, 1)
                looks, since, nap = 0, 0, 0
            continue
        if leads and shared.read(desk, DONE) == desk[TASK + 3]:
            return
        looks += 1
        if looks % PATIENCE and not nap:
            continue
        shared.let_others()
        if leads:
            continue
        leave = shared.read(desk, LEAVE)
        if leave > 0 and shared.swap(desk, LEAVE, leave, leave - 1):
            return
        now = shared.clock()
        if since == 0:
            since = last = now
        if now - since > STAY:
            return
        if nap or now - since > wait or now - last > AWAY or shared.read(desk, SLEEP):
            nap = min(NAPS[1], max(NAPS[0], 2 * nap))
            shared.nap(nap)
        last = now


class _Desk:
    """Where the tasks of one caller lie."""

    def __init__(self) -> None:
        _serve.compile(SERVED)
        raw = np.zeros(SIZE + 16, np.int64)
        first = -address(raw) % 128 // 8
        self.desk, self.helpers, self.number = raw[first : first + SIZE], 0, 0
        passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        self.wait = WAIT // 50 if passive else WAIT

    def help(self) -> None:
        """What a helper does."""
        _serve(self.desk, 0, 0, self.wait)

    def rest(self) -> None:
        """Have all helpers sleep until the next kernel."""
        self.desk[SLEEP] = 1

    def do(self, task: int, numbers: Any, threads: int) -> int:
        """``task`` for each row of ``numbers``; how many of them did not return 0."""
        desk, count = self.desk, len(numbers)
        desk[TASK : TASK + 5] = task, address(numbers), numbers.strides[0], count, 0
        desk[DONE] = desk[SLEEP] = 0
        self.number = (self.number + 1) % (1 << 30)
        caller = workers.pool.enter()
        try:
            desk[LEAVE] = workers.pool.gather(self, min(threads, count) - 1)
            _serve(desk, 1, (self.number << 32) + count - int(desk[OPEN]), 0)
        finally:
            workers.pool.leave(caller)
        return int(desk[TASK + 4])


def _desk() -> _Desk:
    """That of this thread; a fork has none of its parent's helpers."""
    here = workers.here
    if getattr(here, "process", None) != os.getpid():
        here.process, here.desk = os.getpid(), _Desk()
    desk: _Desk = here.desk
    return desk


def _offset() -> int | None:
    """Where an array has the address of its entries, found by looking; None where it has not."""
    a = np.empty(1)
    wanted = a.__array_interface__["data"][0]
    places = range(0, object.__sizeof__(a), 8)
    return next((n for n in places if _word.from_address(id(a) + n).value == wanted), None)


_word = ctypes.c_int64
_OFFSET = _offset()


def address(a: Any) -> int:
    """Of its entries; numpy takes six times as long to say it."""
    if _OFFSET is None:
        return int(a.__array_interface__["data"][0])
    return _word.from_address(id(a) + _OFFSET).value


def _as_numbers(a: Any) -> Sequence[int]:
    """What numba passes for an argument, in words."""
    if isinstance(a, np.ndarray):
        return (0, 0, a.size, a.itemsize, address(a), *a.shape, *a.strides)
    if isinstance(a, np.float32):
        return struct.unpack("<q", struct.pack("<fi", a, 0))
    if isinstance(a, float):
        return struct.unpack("<q", struct.pack("<d", a))
    return (int(a),)


#: The place of an array among them.
PLACE = 4


Tasks = Sequence[tuple[int, ...]]


def run(kernel: Any, args: tuple[Any, ...], tasks: Tasks, threads: int, own: Any = ()) -> None:
    """kernel(*args, *[a[t] for a in own], *task) for each task t."""
    if min(threads, len(tasks)) < 2:
        for number, task in enumerate(tasks):
            kernel(*args, *[a[number] for a in own], *task)
        return
    if os.name != "posix":
        calls = [(*args, *[a[t] for a in own], *task) for t, task in enumerate(tasks)]
        workers.each(kernel, calls, threads)
        return
    numbers = _rows(args, tasks, own)
    every = (*args, *[a[0] for a in own])
    kinds = (
        (a.dtype.num, a.ndim, a.flags.num & FLAGS) if isinstance(a, np.ndarray) else type(a)
        for a in every
    )
    name = (kernel, *kinds)
    if name not in _known:
        _known[name] = _task(kernel, (*every, *[0] * len(tasks[0])))
    if _desk().do(_known[name][0], numbers, threads):
        raise RuntimeError(f"{kernel.__name__} failed")


def _rows(args: tuple[Any, ...], tasks: Tasks, own: Any = ()) -> Any:
    """All tasks in numbers."""
    row: list[int] = []
    for a in args:
        row += _as_numbers(a)
    moving = []
    for a in own:
        moving.append((len(row) + PLACE, a.strides[0]))
        row += _as_numbers(a[0])
    numbers = np.empty((len(tasks), len(row) + len(tasks[0])), np.int64)
    numbers[:, : len(row)] = row
    for place, step in moving:
        numbers[:, place] += np.arange(0, step * len(tasks), step)
    if tasks[0]:
        numbers[:, len(row) :] = tasks
    return numbers


#: Of an array: the order of its entries, whether it is aligned and may be written to.
FLAGS = 0x503
_known: dict[tuple[Any, ...], tuple[int, Any, Any]] = {}


def _task(kernel: Any, args: tuple[Any, ...]) -> tuple[int, Any, Any]:
    """Where the instructions are that take arguments of these kinds from a row of numbers."""
    kinds = tuple(nb.typeof(a) for a in args)
    kernel.compile(kinds)
    compiled = kernel.overloads[kinds]
    context, library = compiled.target_context, compiled.library
    place = library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    native = context.call_conv.get_function_type(compiled.signature.return_type, kinds)
    module = ir.Module("task")
    function = ir.Function(module, ir.FunctionType(WORD, [WORD]), "task")
    builder = ir.IRBuilder(function.append_basic_block())
    result, error, *wanted = native.args
    given = [builder.alloca(kind.pointee) for kind in (result, error)]
    row = builder.inttoptr(function.args[0], WORD.as_pointer())
    for number, kind in enumerate(wanted):
        at = builder.gep(row, [ir.Constant(WORD, number)])
        given.append(builder.load(builder.bitcast(at, kind.as_pointer())))
    called = builder.inttoptr(ir.Constant(WORD, place), native.as_pointer())
    builder.ret(builder.zext(builder.call(called, given), WORD))
    with global_compiler_lock:
        made = context.codegen().create_library("task")
        made.add_ir_module(module)
        made.finalize()
    return made.get_pointer_to_function("task"), made, compiled  # which have to live as long


def rows(kernel: Any, args: tuple[Any, ...], n: int, block: int, threads: int) -> None:
    """kernel(*args, lo, hi) for runs of rows that are multiples of ``block``."""
    blocks = -(-n // block)
    count = max(1, min(4 * threads, blocks)) if threads > 1 else 1
    cuts = [block * (blocks * t // count) for t in range(count)] + [n]
    run(kernel, args, list(pairwise(cuts)), threads)


#: What `together` looks through: half a megabyte, and an end.
_text = np.repeat(np.array([1, 0], np.uint8), [1 << 19, 1])


def together(threads: int) -> None:
    """What a call costs: its arguments, and the same small work in each of so many threads.

    That is to find the end of some memory, by a function that every process has.
    """
    work = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    assert work is not None
    if threads > 1:
        _rows((_text,) * 10, [(0, 0)] * threads)
    _desk().do(work, np.broadcast_to(_text, (threads, _text.size)), threads)
