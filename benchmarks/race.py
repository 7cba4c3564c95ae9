"""Time to the objective that another package reaches after N iterations.

The other package (the peer) runs N iterations; the objective of its factors is the target. An
untimed run of Partwise finds m, the first iteration with an objective of at most the target. Then
both are timed alternately, as users call them: the peer with N iterations, Partwise with m.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from benchmarks.workers import ContestantError

NOT_REACHED = "its objective was not reached"
TOO_SLOW = 20  # peers that are slower by this factor on a small case are omitted from large ones
_PROBE = 4  # number of iterations of the run that estimates the time of another package
_SHORT = 1.0  # runs shorter than this number of seconds are repeated three times as often
_MOST = 3200  # after this number of iterations, Partwise counts as not having reached the target
GRID = (1, 2, 5, 10, 20, 50, 100)  # iterations of Partwise in the plot
PEER_GRID = (15, 50)  # iterations of a peer in the plot, in addition to the probe and the target


@dataclass(frozen=True)
class Run:
    """Time and result of one fit, and its objective if the benchmark computed it."""

    seconds: float
    iterations: int
    history: Sequence[float] = ()
    objective: float | None = None


class Contestant(Protocol):
    """A package with a solver, applied to one problem with given data and initial factors."""

    name: str

    def run(self, iterations: int, *, evaluate: bool = False, timeout: float = 3600) -> Run: ...


@dataclass
class Entry:
    """Result of another package in a benchmark case."""

    peer: str
    status: str = "ran"
    warm_up: float | None = None
    target: float | None = None
    iterations: int | None = None
    ours_iterations: int | None = None
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    ratio: float | None = None
    curve: list[tuple[float, float | None]] = field(default_factory=list)


class Ours:
    """Partwise as a contestant, with the part of its objective history that is known."""

    def __init__(self, contestant: Contestant, *, most: int = _MOST) -> None:
        self.contestant = contestant
        self.most = most
        self.history: Sequence[float] = ()
        self.objectives: dict[int, float] = {}

    def iterations_to(self, target: float) -> int | None:
        """Return the first iteration with an objective of at most the target."""
        size = max(50, len(self.history))
        while True:
            if len(self.history) < size:
                self.history = self.contestant.run(size).history
            first = next((i for i, f in enumerate(self.history, 1) if f <= target), None)
            if first is not None:
                break
            if size >= self.most or len(self.history) < size:  # the fit stopped before the maximum
                return None
            size = min(self.most, 4 * size)
        # Histories are computed in the solver's precision, so the benchmark's own value decides.
        for m in range(first, min(self.most, first + max(5, first // 5)) + 1):
            if self.objective(m) <= target:
                return m
        return None

    def objective(self, m: int) -> float:
        if m not in self.objectives:
            value = self.contestant.run(m, evaluate=True).objective
            assert value is not None
            self.objectives[m] = value
        return self.objectives[m]


def hold(
    ours: Contestant,
    peers: Iterable[Contestant],
    *,
    iterations: int,
    runs: int,
    patience: float,
    limit: float,
    must: Callable[[str], bool] = lambda name: False,
    most: int = _MOST,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Compare the time of Partwise with that of each other package, called peer.

    Parameters
    ----------
    patience, limit
        As in `Settings`; a peer that `must` run is not left out for its time.
    """
    own = Ours(ours, most=most)
    warm_up = ours.run(2).seconds
    say(f"ours: warm-up {warm_up:.2f} s")
    entries = []
    for peer in peers:
        entry = Entry(peer.name)
        try:
            _pair(own, peer, entry, iterations, runs, patience, limit, must(peer.name))
        except ContestantError as error:
            entry.status = f"failed: {error}"
        say(f"{peer.name}: {_summary(entry)}")
        entries.append(entry)
    longest = max((e.ours_iterations or 0 for e in entries), default=0)
    curve = []
    for m in [m for m in GRID if m < longest] + [longest] * (longest > 0):
        curve.append(_point(ours, m))
    return {
        "warm_up": warm_up,
        "entries": [vars(entry) for entry in entries],
        "curve": curve,
    }


def _pair(
    own: Ours,
    peer: Contestant,
    entry: Entry,
    iterations: int,
    runs: int,
    patience: float,
    limit: float,
    must: bool,
) -> None:
    entry.warm_up = peer.run(2, timeout=10 * limit).seconds
    seen, estimate = 2, entry.warm_up / 2 * iterations
    # If this is false, the time is too long to be caused by the first call.
    if must or entry.warm_up <= 0.5 * limit:
        probe = peer.run(_PROBE, evaluate=True, timeout=10 * limit)
        seen, estimate = _PROBE, probe.seconds / _PROBE * iterations
        entry.curve.append((probe.seconds, probe.objective))
    if estimate > limit and not must:
        entry.status = (
            f"left out: about {estimate:.0f} s for {iterations} iterations, estimated from "
            f"{seen}; the limit is {limit:.0f} s"
        )
        return
    if estimate < _SHORT:
        runs *= 3  # short runs are noisy, and cost little time
    if must:
        patience *= 3
    runs = max(1, min(runs, int(patience / max(estimate, 1e-9))))
    for m in PEER_GRID:
        if (
            m < iterations and m * estimate < 5 * iterations
        ):  # otherwise, the points of a plot would take too long
            entry.curve.append(_point(peer, m))
    first = peer.run(iterations, evaluate=True)
    assert first.objective is not None
    entry.target, entry.iterations = first.objective, first.iterations
    entry.theirs.append(first.seconds)
    needed = own.iterations_to(first.objective)
    if needed is None:
        lowest = own.objective(len(own.history))
        entry.status = (
            f"{NOT_REACHED}: ours ends at {lowest:.6g} after {len(own.history)} iterations, theirs "
            f"at {first.objective:.6g} after {first.iterations} ({first.seconds:.2f} s)"
        )
        entry.curve.append((first.seconds, first.objective))
        return
    entry.ours_iterations = needed
    entry.ours.append(own.contestant.run(needed).seconds)
    for turn in range(1, runs):
        both = [(entry.theirs, peer, iterations), (entry.ours, own.contestant, needed)]
        for times, contestant, n in both[:: 1 if turn % 2 == 0 else -1]:
            times.append(contestant.run(n).seconds)
    entry.curve.append((median(entry.theirs), first.objective))
    entry.ratio = median(a / b for a, b in zip(entry.theirs, entry.ours, strict=True))


def _point(contestant: Contestant, iterations: int) -> tuple[float, float | None]:
    """Return the time and objective of a point of the plot, from the fastest of a few runs."""
    first = contestant.run(iterations, evaluate=True)
    more = 2 if first.seconds < 0.5 * _SHORT else 0
    return min(
        [first.seconds, *(contestant.run(iterations).seconds for _ in range(more))]
    ), first.objective


def _summary(entry: Entry) -> str:
    if entry.ratio is None:
        return entry.status
    return (
        f"{median(entry.theirs):.2f} s for {entry.iterations} iterations, ours "
        f"{median(entry.ours):.2f} s for {entry.ours_iterations}: {entry.ratio:.1f}x"
    )


def not_reached(result: dict[str, Any], against: str | None = None) -> list[str]:
    """Return the peers whose objective Partwise never reached, which misses the goal."""
    return [
        entry["peer"]
        for entry in result["entries"]
        if entry["status"].startswith(NOT_REACHED)
        and (against is None or entry["peer"].startswith(against))
    ]


def best_ratio(result: dict[str, Any], against: str | None = None) -> tuple[float, str] | None:
    """Return the time of the fastest other package relative to Partwise, and its name.

    If no other package was timed, return None. ``against`` selects packages by the start of their
    names.
    """
    ratios = [
        (entry["ratio"], entry["peer"])
        for entry in result["entries"]
        if entry["ratio"] is not None and (against is None or entry["peer"].startswith(against))
    ]
    return min(ratios, default=None)


def too_slow(results: Sequence[dict[str, Any]], loss: str) -> dict[str, str]:
    """Return the peers to omit from the large cases of a loss, each with the reason."""
    found = {}
    for result in results:
        if result.get("small") and result.get("loss") == loss:
            for entry in result["entries"]:
                if entry["ratio"] is not None and entry["ratio"] >= TOO_SLOW:
                    found[entry["peer"]] = (
                        f"left out: {entry['ratio']:.0f}x slower than ours on {result['case']}"
                    )
                elif entry["ratio"] is None and entry["status"].startswith(("failed", "left")):
                    found[entry["peer"]] = f"left out: on {result['case']}: {entry['status']}"
    return found
