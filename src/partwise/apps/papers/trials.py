"""Cells: the smallest piece of an experiment that is run, stored and resumed.

A cell is one method at one setting on one (data, K, run), with the labels of one budget. It is
described by plain values only, so it can travel to a worker process, and its fingerprint is a
hash of every setting that its result depends on.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partwise.apps.papers.protocol import Budget, DataSpec, Protocol, Reading, Variant
from partwise.apps.papers.representations import FitTask, Representation, fit
from partwise.apps.papers.sampling import UNLABELLED, Sample, draw
from partwise.apps.papers.scores import (
    distance_to_centres,
    locality,
    own_shares,
    readouts,
    scores,
    within_classes,
)

NO_LABELS = "none"
# Raise when the code changes what a cell's numbers are, so that stored ones are not taken for new.
RESULT_VERSION = 6
HISTORY_POINTS = 1000


@dataclass(frozen=True)
class PartOfProtocol:
    """What part of a protocol to run."""

    runs: int | None = None
    quick: bool = False
    methods: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()  # by name; all where empty, the main one in a quick pass


@dataclass(frozen=True)
class Cell:
    """One method at one setting, on one (data, K, run) with one label budget."""

    table: str
    data: DataSpec
    k: int
    run: int
    variant: Variant
    budget: Budget | None
    budgets: tuple[Budget, ...]
    kmeans: int
    keep: tuple[str, ...]

    @property
    def budget_name(self) -> str:
        """The budget's name, or "none" for a method that uses no labels."""
        return self.budget.name if self.budget else NO_LABELS

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that the result depends on, but for the versions of the libraries."""
        method = self.variant.method
        settings = {
            "version": RESULT_VERSION,
            "table": self.table,
            "data": [
                self.data.name,
                self.data.prepare,
                self.data.classes,
                self.data.per_class,
                *(["at most", self.data.at_most] if self.data.at_most else []),
            ],
            "k": self.k,
            "run": self.run,
            "estimator": method.estimator,
            "params": self.variant.params(self.data.name),
            "around": [
                method.weights,
                method.start,
                method.subruns,
                method.unit_basis,
                method.restarts,
                *(["stop"] if method.stop else []),
            ],
            "budget": None if self.budget is None else _amount(self.budget),
            "budgets": [_amount(b) for b in self.budgets],
            "kmeans": self.kmeans,
            "keep": list(self.keep),
        }
        text = json.dumps(settings, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def slug(self) -> str:
        """A readable file name, made unique by the fingerprint."""
        parts = f"{self.data.name}-k{self.k:02d}-r{self.run:03d}-{self.variant.name}"
        parts += f"-{self.budget_name}"
        safe = "".join(c if c.isalnum() or c in "-." else "_" for c in parts)
        return f"{safe[:120]}-{self.fingerprint}"


def _amount(budget: Budget) -> list[Any]:
    return [budget.name, budget.per_class, budget.share]


def cells(protocol: Protocol, selection: PartOfProtocol) -> Iterator[Cell]:
    """The cells of a protocol in its readings, each once, the main reading first."""
    seen = set()
    for reading in wanted_readings(protocol, selection):
        for cell in cells_of(protocol.read(reading), selection):
            if cell.slug not in seen:
                seen.add(cell.slug)
                yield cell


def wanted_readings(protocol: Protocol, selection: PartOfProtocol) -> list[Reading]:
    """The readings to run, the main one first."""
    if selection.readings:
        known = {reading.name: reading for reading in protocol.readings}
        return [known[name] for name in selection.readings if name in known]
    if selection.quick:
        return [protocol.main]
    return sorted(protocol.readings, key=lambda reading: not reading.main)


def cells_of(protocol: Protocol, selection: PartOfProtocol) -> Iterator[Cell]:
    """The cells of a protocol in one reading, all methods of a (data, K, run) together."""
    runs = _runs(protocol, selection)
    around = (protocol.budgets, protocol.kmeans, protocol.keep)
    chosen = {name.lower() for name in selection.methods}
    methods = [m for m in protocol.runnable() if not chosen or m.name.lower() in chosen]
    for data in protocol.data:
        clusters = _clusters(protocol, data, selection)
        for run in range(runs):
            for k in clusters:
                for method in methods:
                    if method.max_clusters is not None and k > method.max_clusters:
                        continue
                    if method.runs is not None and run >= method.runs and selection.runs is None:
                        continue
                    budgets = protocol.budgets if method.labels and protocol.budgets else (None,)
                    for variant in method.variants():
                        if not _in_quick_sweep(protocol, variant, selection):
                            continue
                        for budget in budgets:
                            yield Cell(protocol.root, data, k, run, variant, budget, *around)


def _runs(protocol: Protocol, selection: PartOfProtocol) -> int:
    if selection.runs is not None:
        return selection.runs
    return protocol.quick.get("runs", 1) if selection.quick else protocol.runs()


def _clusters(protocol: Protocol, data: DataSpec, selection: PartOfProtocol) -> tuple[int, ...]:
    if not selection.quick:
        return data.clusters
    if data.name not in protocol.quick.get("only_data", [data.name]):
        return ()
    chosen = protocol.quick.get("clusters", data.clusters)
    if isinstance(chosen, dict):
        chosen = chosen.get(data.name, data.clusters)
    return tuple(chosen)


def _in_quick_sweep(protocol: Protocol, variant: Variant, selection: PartOfProtocol) -> bool:
    if not selection.quick:
        return True
    allowed = protocol.quick.get("sweep", {})
    return all(value in allowed.get(key, [value]) for key, value in variant.setting.items())


def run_cell(cell: Cell, data_home: str | None = None) -> dict[str, Any]:
    """Run one cell and score it.

    The result is plain values, ready for JSON: the cell; of every sub-run and readout the scores on
    all samples and, for every budget, on the unlabelled ones; the objective, iterations, seconds.
    """
    sample = draw(cell.table, cell.data, cell.k, cell.run, data_home=data_home)
    method = cell.variant.method
    y = sample.shown(cell.budget) if method.labels else None
    params = cell.variant.params(cell.data.name)
    attempts, fits = [], []
    for subrun in range(method.subruns):
        task = FitTask(sample, y, cell.k, method, params, subrun, cell.kmeans)
        fitted = fit(task)
        found = readouts(fitted, task, restarts=cell.kmeans)
        read = {name: _scored(cell, sample, clusters) for name, clusters in found.items()}
        attempts.append({"objective": fitted.objective, "readouts": read})
        fits.append(fitted)
    best = fits[lowest(attempts)]
    result = {
        "cell": describe(cell),
        "attempts": attempts,
        "shapes": _shapes(best, sample, cell),
        "objective": best.objective,
        "n_iter": best.n_iter,
        "seconds": sum(f.seconds for f in fits) / len(fits),
    }
    return result | _kept(cell, best, sample)


def lowest(attempts: list[dict[str, Any]]) -> int:
    """The number of the sub-run with the lowest objective."""
    values = [a["objective"] if a["objective"] is not None else np.inf for a in attempts]
    return int(np.argmin(values))


def _scored(cell: Cell, sample: Sample, found: Any) -> dict[str, Any]:
    """Scores on all samples, and on those without a label, of every budget if none is used."""
    hidden = {}
    for budget in cell.budgets if cell.budget is None else (cell.budget,):
        rest = sample.shown(budget) == UNLABELLED
        if rest.any():
            hidden[budget.name] = scores(sample.truth[rest], found[rest])
    return {"all": scores(sample.truth, found), "unlabelled": hidden}


def describe(cell: Cell) -> dict[str, Any]:
    """The cell as plain values."""
    method = cell.variant.method
    return {
        "table": cell.table,
        "data": cell.data.name,
        "prepare": cell.data.prepare,
        "k": cell.k,
        "run": cell.run,
        "method": method.name,
        "variant": cell.variant.name,
        "setting": cell.variant.setting,
        "estimator": method.estimator,
        "params": cell.variant.params(cell.data.name),
        "weights": method.weights,
        "start": method.start,
        "budget": None if cell.budget is None else asdict(cell.budget),
        "budget_name": cell.budget_name,
        "kmeans": cell.kmeans,
        "seed": f"SeedSequence({cell.table}|{cell.data.name}, {cell.k}, {cell.run})",
        "fingerprint": cell.fingerprint,
    }


def _shapes(fitted: Representation, sample: Sample, cell: Cell) -> dict[str, float]:
    from partwise.evaluation.metrics import sparseness

    shapes = {}
    V, H = fitted.embedding, fitted.components
    if V is not None:
        shapes["sparseness_V"] = float(sparseness(V))
    if V is not None and H is not None:
        rows = V[np.linalg.norm(V, axis=1) > 0]
        shapes["sparseness_rows"] = float(np.mean(sparseness(rows, axis=1)))
        shapes["within"] = within_classes(V, sample.truth)
        if V.shape[1] == cell.k and cell.budgets:
            # Without labels: on the samples that the first budget leaves without one.
            shapes |= own_shares(V, sample.truth, sample.shown(cell.budget or cell.budgets[0]))
        if isinstance(sample.X, np.ndarray):
            shapes["locality"] = locality(V, H, sample.X)
    if H is not None:
        shapes["sparseness_U"] = float(np.nanmean(sparseness(H, axis=1)))
        if sample.X.shape[1] <= 3:
            shapes["distance"] = distance_to_centres(H, sample.X, sample.truth)
            shapes["ray"] = distance_to_centres(H, sample.X, sample.truth, rays=True)
    return shapes


def _kept(cell: Cell, fitted: Representation, sample: Sample) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    if "history" in cell.keep:
        history = fitted.history
        step = max(1, -(-len(history) // HISTORY_POINTS))
        kept["history"] = {"step": step, "values": history[::step]}
    if "components" in cell.keep and fitted.components is not None and cell.run == 0:
        top = fitted.components.max(axis=1, keepdims=True)
        grey = np.round(255 * fitted.components / np.where(top > 0, top, 1.0)).astype(np.uint8)
        kept["components"] = {
            "shape": list(grey.shape),
            "uint8": base64.b64encode(grey.tobytes()).decode("ascii"),
        }
    if "points" in cell.keep:
        kept["points"] = np.asarray(sample.X).round(4).tolist()
        kept["truth"] = sample.truth.tolist()
        kept["basis"] = None if fitted.components is None else fitted.components.tolist()
    return kept
