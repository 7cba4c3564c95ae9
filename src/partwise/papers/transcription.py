"""Check the transcription: the average rows, recomputed from the columns.

Where the printed average and the recomputed one differ by more than rounding, either the paper
slipped or the transcription did. Each such case must be listed in the protocol's ``slips``, so
that a new one, or one that goes away, fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass

from partwise.papers.protocol import Protocol


@dataclass(frozen=True)
class Mismatch:
    """An average row that its column does not give."""

    table: str
    metric: str
    method: str
    printed: float
    recomputed: float

    def __str__(self) -> str:
        return (
            f"{self.table}, {self.metric}, {self.method}: the printed average is {self.printed}, "
            f"the column gives {self.recomputed:.2f}"
        )


def average_mismatches(protocol: Protocol) -> list[Mismatch]:
    """Compare a table's printed averages with its columns.

    The tolerance is one unit of the last printed digit: half a unit for the rounding of the cells,
    half for that of the average; it also covers averages that were cut and not rounded, which
    two of the papers do throughout.

    Parameters
    ----------
    protocol : Protocol
        The table; a figure that shows a table's columns has nothing of its own to check.

    Returns
    -------
    list of Mismatch
    """
    cells = protocol.printed if protocol.kind != "figure" else ()
    found = []
    for average in (c for c in cells if c.k == "avg" and c.metric != "seconds"):
        column = [
            c.mean
            for c in cells
            if (c.metric, c.method) == (average.metric, average.method) and c.k != "avg"
        ]
        mean = sum(column) / len(column)
        # The cells' digits: some averages are printed with more digits than their column.
        decimals = min(
            c.decimals for c in cells if c.metric == average.metric and c.method == average.method
        )
        if abs(mean - average.mean) > 10.0**-decimals + 1e-9:
            found.append(
                Mismatch(protocol.name, average.metric, average.method, average.mean, mean)
            )
    return found


def listed_slips(protocol: Protocol) -> set[tuple[str, str]]:
    """The (metric, method) pairs whose average row the protocol says is wrong."""
    return {
        (slip["metric"], method)
        for slip in protocol.slips
        if slip.get("row") == "avg"
        for method in slip["methods"]
    }
