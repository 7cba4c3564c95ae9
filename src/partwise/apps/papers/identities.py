"""Tests that some methods are identical with one label per class."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.apps.papers.document import Block, table
from partwise.apps.papers.protocol import Budget, DataSpec, Method, Protocol, load_protocol
from partwise.apps.papers.representations import FitTask, Representation, fit_estimator
from partwise.apps.papers.sampling import Sample, data_found, draw

N_ITER = 200
ROUNDING = 1e-9  # relative to the largest entry, after hundreds of iterations


def identities(protocol: Protocol) -> tuple[list[Block], frozenset[str]]:
    """Test the listed identities: with one label per class, some methods equal another method.

    Return blocks that show the results, and the methods that equal another method.
    """
    root = load_protocol(protocol.runs_of) if protocol.runs_of else protocol
    blocks: list[Block] = []
    equal = set()
    for entry in root.identities:
        method, name, plain = root.method(entry["method"]), entry["method"], entry["plain"]
        spec = root.data[0] if data_found(root.data[0], None) else DataSpec("digits")
        sample = draw(root.name, spec, 3, 0)
        params = {**method.params, **entry.get("params", {}), "max_iter": N_ITER}
        fewer = {key: value for key, value in params.items() if key in entry["settings"]}
        labels = sample.shown(Budget("1 per class", per_class=1))
        fits = {
            name: fit(sample, method.estimator, params, labels),
            plain: fit(sample, entry["as"], fewer),
        }
        one, two = (np.asarray(fitted.embedding) for fitted in fits.values())
        gap = float(np.abs(one - two).max() / np.abs(two).max())
        text = (
            f"{name} with one label per class and {plain} from one start with one solver, on three "
            f"classes of {spec.name}: the largest difference of their part weights is {gap:.2g} of "
            f"the largest entry. {entry['text']}"
        )
        rows = [[method, f"{fitted.objective:.12g}"] for method, fitted in fits.items()]
        blocks += [f"## {entry['title']}", text, table(rows, ["method", "objective"])]
        equal |= {name} if gap <= ROUNDING else set()
    return blocks, frozenset(equal)


def fit(sample: Sample, estimator: str, params: dict[str, Any], y: Any = None) -> Representation:
    """Fit as many parts as there are classes, from the start that all methods share."""
    start = "seed" if estimator == "LCF" else "shared"  # LCF has other factors than V and U
    method = Method(estimator, estimator, params, start=start, unit_basis=False)
    return fit_estimator(FitTask(sample, y, len(sample.order), method, params), estimator, params)
