"""Cells: the smallest units of an experiment that are run and stored.

A cell is one run of one method, with one setting of its parameters, on K classes of a data set,
with the labels of one budget. It contains only plain values, so it can be sent to a worker process.
Its fingerprint is a hash of every setting that its result depends on.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partwise.apps.papers import scores
from partwise.apps.papers.protocol import Budget, Column, DataSpec, Method, Protocol, Variant
from partwise.apps.papers.representations import FitTask, Representation, fit
from partwise.apps.papers.sampling import UNLABELLED, Sample, draw
from partwise.metrics import sparseness

NO_LABELS = "none"
# Version of the results. Increase it if a code change affects results, so that stored results are
# computed again.
RESULT_VERSION = 6
HISTORY_POINTS = 1000


@dataclass(frozen=True)
class Selection:
    """The user's choice of runs, methods and variants of a table to compute."""

    runs: int | None = None
    quick: bool = False
    methods: tuple[str, ...] = ()
    variant: str = ""  # name of a variant, or "main"; "" means all variants (with quick: "main")


@dataclass(frozen=True)
class Cell:
    """One run of one method on K classes of a data set, with one label budget."""

    table: str
    data: DataSpec
    k: int
    run: int
    column: Column
    budget: Budget | None
    budgets: tuple[Budget, ...]
    kmeans: int
    keep: tuple[str, ...]

    @property
    def budget_name(self) -> str:
        """Name of the label budget, or "none" for a method without labels."""
        return self.budget.name if self.budget else NO_LABELS

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all settings that affect the result, except versions of libraries."""
        method, data = self.column.method, self.data
        settings = {
            "version": RESULT_VERSION,
            "table": self.table,
            "data": [data.name, data.prepare, data.classes, data.per_class],
            "k": self.k,
            "run": self.run,
            "estimator": method.estimator,
            "params": self.column.params(data.name),
            "around": [
                *(method.weights, method.start, method.subruns, method.unit_basis),
                *(method.restarts, *(["stop"] if method.stop else [])),
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
        """Readable file name of the result, made unique by the fingerprint."""
        parts = f"{self.data.name}-k{self.k:02d}-r{self.run:03d}-{self.column.name}"
        parts += f"-{self.budget_name}"
        safe = "".join(c if c.isalnum() or c in "-." else "_" for c in parts)
        return f"{safe[:120]}-{self.fingerprint}"

    @property
    def key(self) -> str:
        """Name of the result with its table, which is unique among all tables."""
        return f"{self.table}/{self.slug}"


def _amount(budget: Budget) -> list[Any]:
    """Return the settings of a label budget as a list."""
    return [budget.name, budget.per_class, budget.share]


def cells(protocol: Protocol, selection: Selection) -> list[Cell]:
    """Return the runs (cells) of all settings variants, without duplicates."""
    variants = wanted_variants(protocol, selection)
    found = (cell for v in variants for cell in cells_of(protocol.under(v), selection))
    return list({cell.slug: cell for cell in found}.values())


def wanted_variants(protocol: Protocol, selection: Selection) -> list[Variant]:
    """Return the settings variants to run, the main one first."""
    name = selection.variant or ("main" if selection.quick else "")
    if name == "main":
        return [protocol.main]
    every = sorted(protocol.variants, key=lambda variant: variant != protocol.main)
    return [v for v in every if name in ("", v.name)]


def cells_of(protocol: Protocol, selection: Selection) -> Iterator[Cell]:
    """Yield the runs (cells) of a table for its current settings."""
    around = (protocol.budgets, protocol.kmeans, protocol.keep)
    for data in protocol.data:
        for run in range(_runs(protocol, selection)):
            for k in _clusters(protocol, data, selection):
                for method in _methods(protocol, selection, run):
                    budgets = protocol.budgets if method.labels and protocol.budgets else (None,)
                    for column, budget in itertools.product(method.columns(), budgets):
                        if not selection.quick or _in_quick_sweep(protocol, column):
                            yield Cell(protocol.root, data, k, run, column, budget, *around)


def _methods(protocol: Protocol, selection: Selection, run: int) -> Iterator[Method]:
    """Yield the selected methods that have a run with this number."""
    chosen = {name.lower() for name in selection.methods}
    for method in protocol.methods:
        most = method.runs if selection.runs is None and method.runs is not None else math.inf
        if run < most and (not chosen or method.name.lower() in chosen):
            yield method


def _runs(protocol: Protocol, selection: Selection) -> int:
    """Return the number of runs per row."""
    if selection.runs is not None:
        return selection.runs
    return int(protocol.quick.get("runs", 1)) if selection.quick else protocol.runs()


def _clusters(protocol: Protocol, data: DataSpec, selection: Selection) -> tuple[int, ...]:
    """Return the numbers of clusters K to run on a data set."""
    quick = protocol.quick if selection.quick else {}
    chosen = quick.get("clusters", data.clusters)
    wanted = data.name in quick.get("only_data", [data.name])
    return tuple(k for k in data.clusters if k in chosen) if wanted else ()


def _in_quick_sweep(protocol: Protocol, column: Column) -> bool:
    """Return whether a quick run includes these parameter values."""
    allowed = protocol.quick.get("sweep", {})
    return all(value in allowed.get(key, [value]) for key, value in column.setting.items())


def run_cell(cell: Cell, data_home: str | None = None) -> dict[str, Any]:
    """Return the scored result of one cell, which is one run of one method.

    The result contains plain values for JSON: the settings of the cell, the scores, the objective,
    the number of iterations and the seconds. Every sub-run and way of clustering is scored on all
    samples and, for every label budget, on the unlabelled samples.
    """
    sample = draw(cell.table, cell.data, cell.k, cell.run, data_home=data_home)
    method = cell.column.method
    y = sample.shown(cell.budget) if method.labels else None
    params = cell.column.params(cell.data.name)
    attempts, fits = [], []
    for subrun in range(method.subruns):
        task = FitTask(sample, y, cell.k, method, params, subrun)
        fits.append(fit(task))
        found = scores.readouts(fits[-1], task, restarts=cell.kmeans)
        scored = {name: _scored(cell, sample, clusters) for name, clusters in found.items()}
        attempts.append({"objective": fits[-1].objective, "readouts": scored})
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
    """Return the index of the fit with the lowest objective."""
    values = [a["objective"] if a["objective"] is not None else np.inf for a in attempts]
    return int(np.argmin(values))


def _scored(cell: Cell, sample: Sample, found: Any) -> dict[str, Any]:
    """Return scores on all samples, and on the unlabelled ones of each budget."""
    hidden = {}
    for budget in cell.budgets if cell.budget is None else (cell.budget,):
        rest = sample.shown(budget) == UNLABELLED
        if rest.any():
            hidden[budget.name] = scores.scores(sample.truth[rest], found[rest])
    return {"all": scores.scores(sample.truth, found), "unlabelled": hidden}


def describe(cell: Cell) -> dict[str, Any]:
    """Return the settings of a cell (one run) as plain values for JSON."""
    data, method = cell.data, cell.column.method
    return {
        "table": cell.table,
        "data": data.name,
        "k": cell.k,
        "run": cell.run,
        "method": method.name,
        "column": cell.column.name,
        "setting": cell.column.setting,
        "params": cell.column.params(data.name),
        "budget_name": cell.budget_name,
        "seed": f"SeedSequence({cell.table}|{data.name}, {cell.k}, {cell.run})",
        "procedure": asdict(method),
        "fingerprint": cell.fingerprint,
    }


def _shapes(fitted: Representation, sample: Sample, cell: Cell) -> dict[str, float]:
    """Return properties of the fitted factors to report, such as their sparseness."""
    shapes = {}
    V, H = fitted.embedding, fitted.components
    if V is not None:
        shapes["sparseness_V"] = float(sparseness(V))
    if V is not None and H is not None:
        rows = V[np.linalg.norm(V, axis=1) > 0]
        shapes["sparseness_rows"] = float(np.mean(sparseness(rows, axis=1)))
        shapes["within"] = scores.within_classes(V, sample.truth)
        if V.shape[1] == cell.k and cell.budgets:
            # Methods without labels use the samples that the first budget leaves unlabelled.
            shown = sample.shown(cell.budget or cell.budgets[0])
            shapes |= scores.own_shares(V, sample.truth, shown)
        if isinstance(sample.X, np.ndarray):
            shapes["locality"] = scores.locality(V, H, sample.X)
    if H is not None:
        shapes["sparseness_U"] = float(np.nanmean(sparseness(H, axis=1)))
        if sample.X.shape[1] <= 3:
            about = (H, sample.X, sample.truth)
            shapes["distance"] = scores.distance_to_centres(*about)
            shapes["ray"] = scores.distance_to_centres(*about, rays=True)
    return shapes


def _kept(cell: Cell, fitted: Representation, sample: Sample) -> dict[str, Any]:
    """Return the objectives, parts or samples of a run that figures need."""
    kept: dict[str, Any] = {}
    if "history" in cell.keep:
        history = fitted.history
        step = max(1, -(-len(history) // HISTORY_POINTS))
        kept["history"] = {"step": step, "values": history[::step]}
    if "components" in cell.keep and fitted.components is not None and cell.run == 0:
        top = fitted.components.max(axis=1, keepdims=True)
        grey = np.round(255 * fitted.components / np.where(top > 0, top, 1.0)).astype(np.uint8)
        text = base64.b64encode(grey.tobytes()).decode("ascii")
        kept["components"] = {"shape": list(grey.shape), "uint8": text}
    if "points" in cell.keep:
        kept["points"] = np.asarray(sample.X).round(4).tolist()
        kept["truth"] = sample.truth.tolist()
        kept["basis"] = None if fitted.components is None else fitted.components.tolist()
    return kept
