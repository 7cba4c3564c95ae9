"""Tests that some methods are identical with one label per class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partwise.apps.papers.document import Block, table
from partwise.apps.papers.protocol import Budget, DataSpec, Protocol, load_protocol
from partwise.apps.papers.representations import FitTask, fit_estimator
from partwise.apps.papers.sampling import data_found, draw

N_ITER = 200
ROUNDING = 1e-9  # relative to the largest entry, after hundreds of iterations


def identities(protocol: Protocol) -> tuple[list[Block], frozenset[str]]:
    """Test the listed identities.

    Return blocks that show the results, and the methods that equal another method.
    """
    root = load_protocol(protocol.runs_of) if protocol.runs_of else protocol
    blocks: list[Block] = []
    equal = set()
    for entry in root.identities:
        gap, data, fits = _two_fits(root, entry)
        text = (
            f"{fits[0][0]} with one label per class and {fits[1][0]} from one start with one "
            f"solver, on three classes of {data}: the largest difference of their part weights is "
            f"{gap:.2g} of the largest entry. {entry['text']}"
        )
        rows = [[name, f"{fitted.objective:.12g}"] for name, fitted in fits]
        blocks += [f"## {entry['title']}", text, table(rows, ["method", "objective"])]
        equal |= {entry["method"]} if gap <= ROUNDING else set()
    return blocks, frozenset(equal)


def _two_fits(protocol: Protocol, entry: Any) -> tuple[float, str, list[tuple[str, Any]]]:
    """Fit two methods from one start with one label per class; compare their part weights."""
    method = protocol.method(entry["method"])
    label = Budget("1 per class", per_class=1)
    spec = protocol.data[0] if data_found(protocol.data[0], None) else DataSpec("digits")
    sample = draw(protocol.name, spec, 3, 0)
    fits = []
    for name, estimator in ((entry["method"], method.estimator), (entry["plain"], entry["as"])):
        shared = replace(method, start="shared", unit_basis=False)
        params = {**method.params, **entry.get("params", {}), "max_iter": N_ITER}
        if name == entry["plain"]:
            params = {key: v for key, v in params.items() if key in entry["settings"]}
        y = sample.shown(label) if name == entry["method"] else None
        fits.append((name, fit_estimator(FitTask(sample, y, 3, shared, params), estimator, params)))
    one, two = (np.asarray(fitted.embedding) for _, fitted in fits)
    return float(np.abs(one - two).max() / np.abs(two).max()), spec.name, fits
