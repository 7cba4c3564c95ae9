"""Kernels in threads that stay outside the interpreter.

A thread of `threads` that is called to a kernel takes the interpreter's lock to begin and to end,
one after the other: with sixteen of them that is a millisecond, longer than most kernels run.
Here who calls lays the arguments of all tasks on a desk, and helpers take them from there in
compiled code. They stay at the desk, since the next kernel comes soon: awake for a while, and then
asleep, looking up now and then; or at once where somebody else wants their core. To leave, and to
come again, would take the lock. Each has a seat, and takes the tasks of its seat before those of
others: from one kernel to the next the same rows are in the cache of the same core.

A task is a row of numbers: what numba passes for its arguments. A few instructions, compiled for
each kind of arguments, take them from there and call the kernel as it is.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from functools import cache, reduce
from itertools import pairwise
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from partwise.backends import threads as workers
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.numpy.kernels._writing import (
    WORD,
    Memory,
    Sum,
    Value,
    arguments,
    call,
    clock,
    let_others,
    repeat,
    sleep,
)

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
SERVED = types.int64(types.int64[::1], *[types.int64] * 7)


def _service(typing, desk, wait, seat, task, rows, step, count, begun):
    """All of `_serve`, written for LLVM: what numba reads takes it longer."""

    def generate(context, builder, signature, args):
        desk, wait, seat, task, rows, step, count, begun = arguments(
            context, builder, signature, args
        )
        leads = count.compared(">", 0)
        with builder.if_then(leads):
            for at, value in enumerate((task, rows, step, count, count * 0, begun)):
                desk.store(TASK + at, value)
            desk.store(DONE, count * 0)
            desk.store(SLEEP, count * 0)
            desk.count(OPEN, count + (1 << 32))  # nothing of it was left
        looks, since, last, nap = (Sum(builder, WORD) for _ in range(4))
        with repeat(builder) as leave:
            state = desk.read(OPEN)
            left = Value(builder, builder.and_(state.value, WORD(0xFFFFFFFF)))
            with builder.if_else(left.compared(">", 0)) as (some, none):
                with some, builder.if_then(desk.swap(OPEN, state, state - 1)):
                    place = desk.load(TASK + 1) + _own_task(desk, seat) * desk.load(TASK + 2)
                    with builder.if_then(call(desk.load(TASK), place).compared("!=", 0)):
                        desk.count(TASK + 4)
                    desk.count(DONE)
                    for number in (looks, since, nap):
                        number.set(0)
                with none:
                    done = desk.read(DONE).compared("==", desk.load(TASK + 3))
                    leave(builder.and_(leads, done))
                    looks.add(1)
                    rest = looks.value - looks.value / PATIENCE * PATIENCE
                    asleep = nap.value.compared(">", 0)
                    with builder.if_then(builder.or_(asleep, rest.compared("==", 0))):
                        let_others(builder)
                        with builder.if_then(builder.not_(leads)):
                            _rest(builder, desk, wait, since, last, nap, leave)
        return desk.load(TASK + 4).value

    return SERVED.return_type(desk, *[types.int64] * 7), generate


def _own_task(desk, seat):
    """The first task from those of this seat on that nobody has begun.

    There is one: who is here has taken it from those that are OPEN.
    """
    builder, count, at = desk.builder, desk.load(TASK + 3), Sum(desk.builder, WORD)
    begun = Memory.at(desk.load(TASK + 5), WORD)
    team = begun.load(count)
    at.set((seat - seat / team * team) * count / team)
    with repeat(builder) as leave:
        leave(begun.take(at.value, count))
        following = at.value + 1
        at.set(count.if_above(following, following, count * 0))
    return at.value


def _rest(builder, desk, wait, since, last, nap, leave):
    """What a helper does that has looked in vain: it sleeps, or goes."""
    goes = desk.read(LEAVE)
    with builder.if_then(goes.compared(">", 0)):
        leave(desk.swap(LEAVE, goes, goes - 1))
    now = clock(builder)
    with builder.if_then(since.value.compared("==", 0)):
        since.set(now)
        last.set(now)
    waited = now - since.value
    leave(waited.compared(">", STAY))
    tired = (
        nap.value.compared(">", 0), waited.compared(">", wait),
        (now - last.value).compared(">", AWAY), desk.read(SLEEP).compared("!=", 0),
    )  # fmt: skip
    with builder.if_then(reduce(builder.or_, tired)):
        twice, (least, most) = nap.value * 2, (now * 0 + time for time in NAPS)
        nap.set(least.if_above(twice, least, twice).or_less(most))
        sleep(builder, nap.value)
    last.set(now)


_all_of: Any = intrinsic(_service)


@compiled(**OPTIONS)
def _serve(desk, wait, seat, task, rows, step, count, begun):
    """Take tasks from the desk; who brings some until all are done, others as long as some come.

    OPEN are, in the lower half, tasks that nobody has taken, below a number that is another for
    each call. Who has taken one may read what it is: the desk does not change until it is done.
    A caller brings ``count`` of them, a helper none: ``task`` is called with ``rows``, ``rows`` +
    ``step``, .. Which one it is ``begun``, zeros and the number of seats, tells. Returns how many
    did not return 0. All of a call is here, since what Python does between its lines (a signal, the
    collector) may call a kernel from the same desk.
    """
    return _all_of(desk, wait, seat, task, rows, step, count, begun)


class _Desk:
    """Where the tasks of one caller lie."""

    def __init__(self) -> None:
        _serve.compile(SERVED)
        raw = np.zeros(SIZE + 16, np.int64)
        first = -address(raw) % 128 // 8
        self.desk, self.seats = raw[first : first + SIZE], set[int]()  # of helpers, from 1 on
        passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        self.wait = WAIT // 50 if passive else WAIT

    def help(self, seat: int) -> None:
        """What a helper does."""
        _serve(self.desk, self.wait, seat, 0, 0, 0, 0, 0)

    def rest(self) -> None:
        """Have all helpers sleep until the next kernel."""
        self.desk[SLEEP] = 1

    def do(self, task: int, numbers: Any, threads: int) -> int:
        """``task`` for each row of ``numbers``; how many of them did not return 0."""
        caller = workers.pool.enter()
        try:
            count = len(numbers)
            team = min(threads, count)
            self.desk[LEAVE] = workers.pool.gather(self, team - 1)
            begun = np.zeros(count + 1, np.int64)
            begun[count] = team
            rows = address(numbers), numbers.strides[0], count, address(begun)
            return int(_serve(self.desk, 0, 0, task, *rows))
        finally:
            workers.pool.leave(caller)


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


@cache
def _kinds(names: tuple[str, ...], kind: int) -> list[int | None]:
    """The dtype of what each of the ``names`` of a kernel stands for; see `told`."""
    kinds = (kind, None, kind, np.dtype(float).num, np.dtype(np.int64).num)
    return [kind for group, kind in zip(names, kinds) for _ in group.split()]


def numbers(names: tuple[str, ...], Z: Any, *given: Any) -> Any:
    """What a kernel on Z is told: arrays by their address, float64 by its bits; see `told`."""
    row = []
    for a, kind in zip(given, _kinds(names, Z.dtype.num), strict=True):
        if type(a) is np.ndarray:
            assert a.flags.c_contiguous and a.dtype.num == kind
            row.append(address(a))
        else:
            row.append(_as_numbers(float(a))[0] if kind is None else a)
    return np.array(row, np.int64)


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
