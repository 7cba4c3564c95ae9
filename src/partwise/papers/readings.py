"""Readings: the choices that print leaves open, each declared with what fixes it.

A protocol as it is written is its first reading. Another one changes some settings and says why;
the text or the authors' own code fixes it, never closeness to print. Readings share subsets, shown
labels and starts, so their differences are paired; and a cell that two of them have in common is
run once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partwise.papers.protocol import ComparedMethod, Protocol

FIRST = "first"


@dataclass(frozen=True)
class Reading:
    """One way to read a protocol: what is done, and what fixes it.

    ``methods`` holds settings by column; ``params`` inside are merged, other settings replaced.
    ``readout`` is how representations become clusters,
    ``prepare`` how each data set is prepared, where they differ from the protocol.
    """

    name: str
    text: str = ""
    source: str = ""
    main: bool = False
    readout: str = ""
    prepare: dict[str, str] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    subrun_choice: str = ""
    budget: str = ""  # the label budget that print's is taken for
    runs: int | None = None  # a declared number where it is not the protocol's
    tables: tuple[str, ...] = ()


def apply(protocol: Protocol, reading: Reading) -> Protocol:
    """The protocol as this reading has it."""
    data = tuple(replace(d, prepare=reading.prepare.get(d.name, d.prepare)) for d in protocol.data)
    methods = tuple(_method(m, reading) for m in protocol.methods)
    budgets = protocol.budgets
    if reading.budget:
        budgets = tuple(replace(b, printed=b.name == reading.budget) for b in budgets)
    return replace(protocol, reading=reading, data=data, methods=methods, budgets=budgets)


def _method(method: ComparedMethod, reading: Reading) -> ComparedMethod:
    if reading.readout:
        method = replace(method, readout=reading.readout)
    if reading.subrun_choice and method.subruns > 1:
        method = replace(method, subrun_choice=reading.subrun_choice)
    change = dict(reading.methods.get(method.name, {}))
    if change:
        change["params"] = {**method.params, **change.get("params", {})}
        method = replace(method, **change)
    return method
