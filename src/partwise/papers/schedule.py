"""In what order to run cells when time may not suffice: every table first, then more of each."""

from __future__ import annotations

import time
from collections.abc import Iterator

from partwise.papers.estimate import cell_seconds
from partwise.papers.protocol import Protocol
from partwise.papers.trials import Cell, PartOfProtocol, cells_of, wanted_readings

COVER = 2  # runs of the main reading of every table, before anything else
DEAR = 1200.0  # seconds of one core beyond which a table waits for the others


def by_value(protocols: list[Protocol], selection: PartOfProtocol) -> list[Cell]:
    """All cells of these protocols once, the most valuable first.

    First `COVER` runs of every main reading; then all that the cheap tables declare; then the dear
    ones, run by run. Within such a step the longest go first, so that no core waits at the end.
    """
    placed: dict[str, tuple[tuple[float, ...], Cell]] = {}
    for protocol in protocols:
        readings = wanted_readings(protocol, selection)
        listed = [list(cells_of(protocol.read(r), selection)) for r in readings]
        unique = {cell.table + cell.slug: cell for found in listed for cell in found}
        dear = sum(cell_seconds(cell) for cell in unique.values()) > DEAR
        for place, found in enumerate(listed):
            for cell in found:
                cover = place == 0 and cell.run < COVER
                step = (0, 0) if cover else (2, cell.run + 0.5 * (place > 0)) if dear else (1, 0)
                key = (*step, -cell_seconds(cell))
                name = cell.table + cell.slug
                if name not in placed or key < placed[name][0]:
                    placed[name] = (key, cell)
    return [cell for _, cell in sorted(placed.values(), key=lambda pair: pair[0])]


def until(cells: list[Cell], deadline: float, *, slack: float = 1.5) -> Iterator[Cell]:
    """The cells one after the other, leaving out those that would not end before ``deadline``."""
    for cell in cells:
        if time.monotonic() + slack * cell_seconds(cell) < deadline:
            yield cell
