"""Inner loops that are written for LLVM, as vectors: what numba reads takes it longer.

Numba keeps compiled code for as long as the file of the kernel stays the same, so after a change
here those that import it have to change, too.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WORD, DOUBLE = ir.IntType(64), ir.DoubleType()


def _number(value):
    """The type of a number, or of those of a vector."""
    return getattr(value.type, "element", value.type)


class Value:
    """A number or a vector of a kernel that is being written, with the operators of numbers."""

    def __init__(self, builder, value):
        self.builder, self.value = builder, value

    def like(self, other):
        """A number, a value or not, as this is one: in each lane of a vector."""
        build, mine = self.builder, self.value
        other = other.value if isinstance(other, Value) else _number(mine)(other)
        if mine.type != other.type:
            nothing = ir.Constant(mine.type, ir.Undefined)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), mine.type.count), None)
            other = build.insert_element(nothing, other, ir.IntType(32)(0))
            other = build.shuffle_vector(other, nothing, everywhere)
        return Value(build, other)

    def _with(self, other, whole, floating):
        build, mine, other = self.builder, self.value, self.like(other).value
        if isinstance(_number(mine), ir.IntType):
            return Value(build, getattr(build, whole)(mine, other))
        return Value(build, getattr(build, floating)(mine, other, flags=("contract", "nsz")))

    def __add__(self, other):
        return self._with(other, "add", "fadd")

    def __sub__(self, other):
        return self._with(other, "sub", "fsub")

    def __mul__(self, other):
        return self._with(other, "mul", "fmul")

    def __truediv__(self, other):
        return self._with(other, "sdiv", "fdiv")

    def compared(self, sign, other):
        """Return whether this is "<", "==", .. the other; nan is not."""
        whole = isinstance(_number(self.value), ir.IntType)
        compare = self.builder.icmp_signed if whole else self.builder.fcmp_ordered
        return compare(sign, self.value, self.like(other).value)

    def if_above(self, other, then, otherwise):
        """``then`` where this is greater; nan is not."""
        return either(self.compared(">", other), then, otherwise)

    def or_less(self, other):
        """The lesser of the two."""
        return self.if_above(other, other, self)

    def at(self, lane):
        if not isinstance(self.value.type, ir.VectorType):
            return self
        return Value(self.builder, self.builder.extract_element(self.value, ir.IntType(32)(lane)))

    def __rtruediv__(self, other):
        """A number over this; it may be an estimate and a step of Newton's."""
        build, other = self.builder, self.like(other).value
        return Value(build, build.fdiv(other, self.value, flags=("arcp", "contract", "nsz")))

    def to(self, kind):
        """As numbers of another kind of float."""
        mine, build = self.value, self.builder
        if _number(mine) == kind:
            return self
        change = build.fpext if kind == DOUBLE else build.fptrunc
        vector = isinstance(mine.type, ir.VectorType)
        return Value(build, change(mine, ir.VectorType(kind, mine.type.count) if vector else kind))

    def root(self):
        """The square root of float64."""
        kind = self.value.type
        many = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name, own = f"llvm.sqrt.{many}f64", ir.FunctionType(kind, [kind])
        root = cgutils.get_or_insert_function(self.builder.module, own, name)
        return Value(self.builder, self.builder.call(root, [self.value]))

    def summed(self):
        """The sum over a vector, half onto half."""
        build, vector = self.builder, self.value
        if not isinstance(vector.type, ir.VectorType):
            return self
        while (half := vector.type.count // 2) > 0:
            places = ir.VectorType(ir.IntType(32), half)
            halves = (ir.Constant(places, list(range(i, i + half))) for i in (0, half))
            lower, upper = (build.shuffle_vector(vector, vector, places) for places in halves)
            vector = build.fadd(lower, upper)
        return Value(build, vector).at(0)


class Memory:
    """An array of a kernel that is being written: numbers or vectors by their place in it."""

    def __init__(self, builder, pointer):
        self.builder, self.pointer = builder, pointer
        self.kind = pointer.type.pointee
        self.size = 8 if self.kind in (DOUBLE, WORD) else 4

    @classmethod
    def at(cls, address, kind):
        """What is at an address."""
        return cls(address.builder, address.builder.inttoptr(address.value, kind.as_pointer()))

    def after(self, place):
        """The same from a place on."""
        return Memory(self.builder, self._at(place, 1))

    def _at(self, place, width):
        place = place.value if isinstance(place, Value) else WORD(place)
        pointer = self.builder.gep(self.pointer, [place])
        vector = ir.VectorType(self.kind, width).as_pointer()
        return pointer if width == 1 else self.builder.bitcast(pointer, vector)

    def load(self, place, width=1):
        value = self.builder.load(self._at(place, width), align=self.size)
        if isinstance(self.kind, ir.IntType) and self.size == 4:
            value = self.builder.sext(value, WORD)
        return Value(self.builder, value)

    def gather(self, places):
        """The numbers at a vector of places."""
        out = ir.Constant(ir.VectorType(self.kind, places.value.type.count), ir.Undefined)
        for lane in range(places.value.type.count):
            number = self.load(places.at(lane)).value
            out = self.builder.insert_element(out, number, ir.IntType(32)(lane))
        return Value(self.builder, out)

    def store(self, place, value, width=1):
        self.builder.store(value.value, self._at(place, width), align=self.size)

    def add(self, place, value):
        """Add to a number."""
        self.store(place, self.load(place) + value)

    def count(self, place, more=1):
        """Add to a whole number in one piece, whatever other threads do; returns what it was."""
        more = more.value if isinstance(more, Value) else self.kind(more)
        pointer = self._at(place, 1)
        return Value(self.builder, self.builder.atomic_rmw("add", pointer, more, "seq_cst"))

    def swap(self, place, old, new):
        """Put new in the place of old, in one piece; whether it was old."""
        pointer = self._at(place, 1)
        found = self.builder.cmpxchg(pointer, old.value, new.value, "seq_cst", "seq_cst")
        return self.builder.extract_value(found, 1)

    def take(self, place, mark):
        """Return whether a whole number is 0, in one piece; then it is ``mark`` from now on."""
        taken = Sum(self.builder, ir.IntType(1))
        # who only looks leaves the line alone
        with self.builder.if_then(self.read(place).compared("==", 0)):
            taken.set(Value(self.builder, self.swap(place, mark * 0, mark)))
        return taken.value.value

    def read(self, place):
        """A whole number as other threads have left it."""
        pointer = self._at(place, 1)
        return Value(self.builder, self.builder.load_atomic(pointer, "acquire", self.size))


class Sum:
    """A sum that a loop adds to."""

    def __init__(self, builder, kind, width=1):
        none = ir.Constant(kind if width == 1 else ir.VectorType(kind, width), None)
        self.builder, self.room = builder, cgutils.alloca_once(builder, none.type)
        builder.store(none, self.room)

    def add(self, value):
        self.set(self.value + value)

    def set(self, value):
        value = value.value if isinstance(value, Value) else self.room.type.pointee(value)
        self.builder.store(value, self.room)

    @property
    def value(self):
        return Value(self.builder, self.builder.load(self.room))


def arguments(context, builder, signature, args):
    """What an intrinsic is given, to write with; arrays without gaps."""
    assert all(kind.layout == "C" for kind in signature.args if isinstance(kind, types.Array))
    return (
        Memory(builder, context.make_array(kind)(context, builder, value).data)
        if isinstance(kind, types.Array)
        else Value(builder, value)
        for kind, value in zip(signature.args, args)
    )


@contextmanager
def loop(builder, start, stop, step=1):
    """for i in range(start, stop, step), where numbers need not be values yet."""
    begin, end, by = (a.value if isinstance(a, Value) else WORD(a) for a in (start, stop, step))
    with cgutils.for_range_slice(builder, begin, end, by) as (i, _):
        yield Value(builder, i)


@contextmanager
def repeat(builder, again=True):
    """while True, or once; who calls what this yields leaves it on a condition."""
    top, out = (builder.append_basic_block() for _ in range(2))

    def leave(condition):
        on = builder.append_basic_block()
        builder.cbranch(condition, out, on)
        builder.position_at_end(on)

    builder.branch(top)
    builder.position_at_end(top)
    yield leave
    builder.branch(top if again else out)
    builder.position_at_end(out)


def either(condition, then, otherwise):
    """``then`` where a condition holds."""
    build = then.builder
    return Value(build, build.select(condition, then.value, otherwise.value))


def told(order, kind, wholes, floats, arrays, doubles="", counters=""):
    """What `crew.numbers` of these names, in this order, say; ``arrays`` are of one ``kind``."""
    builder = order.builder
    found: dict[str, Any] = {}
    for name in wholes.split():
        found[name] = order.load(len(found))
    for name in floats.split():
        bits = order.load(len(found)).value
        found[name] = Value(builder, builder.bitcast(bits, DOUBLE))
    for names, own in ((arrays, kind), (doubles, DOUBLE), (counters, WORD)):
        for name in names.split():
            found[name] = Memory.at(order.load(len(found)), own)
    return SimpleNamespace(**found)


def _system(builder, name, *given):
    """Call a function that every POSIX system has, which returns an int."""
    kind = ir.FunctionType(ir.IntType(32), [value.type for value in given])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)


def let_others(builder):
    """Give the core to a thread that waits for one."""
    if os.name == "posix":
        _system(builder, "sched_yield")


def sleep(builder, microseconds):
    """For so long, or somewhat longer."""
    if os.name == "posix":
        _system(builder, "usleep", builder.trunc(microseconds.value, ir.IntType(32)))


def clock(builder):
    """Nanoseconds since some time; always the same where there is no such clock."""
    room = cgutils.alloca_once(builder, WORD, 2)
    if os.name == "posix":
        _system(builder, "clock_gettime", ir.IntType(32)(time.CLOCK_MONOTONIC), room)
    time_spec = Memory(builder, room)
    return time_spec.load(0) * 10**9 + time_spec.load(1)


def call(address, number):
    """What the function at an address makes of a number."""
    builder, kind = address.builder, ir.FunctionType(WORD, [WORD])
    function = builder.inttoptr(address.value, kind.as_pointer())
    return Value(builder, builder.call(function, [number.value]))


def _loops_as_they_are(typing):
    """What LLVM is not to do in this kernel: a loop for each remainder, which takes it long."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        return context.get_dummy_value()

    return types.void(), generate


plainly: Any = intrinsic(_loops_as_they_are)
