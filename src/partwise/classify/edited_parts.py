"""Merging, splitting, fixing and restricting parts, with new part weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from partwise.backends.arrays import AnyArray
from partwise.classify.compact import check_has_samples
from partwise.classify.features import Prepared

#: Penalty on a part weight that should be avoided, in units of the mean product of a sample and a
#: part. A larger value removes the part more strictly and changes the other part weights more.
AVOID = 10.0
#: Relative difference between the two halves of a split part at the start of the fit.
TILT = 0.5
#: Smallest initial part weight relative to the mean, since a part weight that starts at zero
#: would stay zero.
LOWEST = 1e-3
MAX_ITER = 100


class EditedParts:
    """Mixin with the methods of `PartsClassifier` that edit parts."""

    def edit_parts(
        self,
        edits: Sequence[tuple[Any, ...]] = (),
        *,
        fixed: Sequence[int] = (),
        avoid: Mapping[int, Any] | None = None,
    ) -> Any:
        """Return a copy with edited parts and new part weights; `relabel` then predicts.

        Parameters
        ----------
        edits : sequence of tuples, default=()
            ``("merge", i, j)`` adds part j to part i and removes part j. ``("split", i)`` divides
            part i into the parts i and i + 1. Numbers refer to the parts after the previous edit.
        fixed : sequence of int, default=()
            Parts whose features must not change, numbered as they are after all edits.
        avoid : mapping of int to array-like of bool, default=None
            For each part, numbered as it is after all edits, a mask of the samples that should
            hardly use it.

        Returns
        -------
        PartsClassifier
            A classifier of the same samples without labels.
        """
        check_is_fitted(self, "embedding_")
        me: Any = self
        check_has_samples(me, "edit_parts")
        features = me._features
        first, avoid = features.first, avoid or {}
        V, H = first.V, first.H
        for kind, *numbers in edits:
            _check_numbers(kind, numbers, len(H))
            V, H = (_merge if kind == "merge" else _split)(V, H, *numbers)
        _check_numbers("fixed", fixed, len(H))
        _check_numbers("avoid", list(avoid), len(H))
        V, H = _refit(first, V, H, list(dict.fromkeys(fixed)), avoid)
        first = replace(first, V=V, H=H).make_views()
        features = replace(features, prepared={**features.prepared, "": first})
        new = copy.copy(me)
        kept = {name: me._state[name] for name in ("mark", "also")}
        new._state, new._cache = {**kept, "features": features}, {}
        new._publish_parts(features)
        for name in ("classes_", "label_distributions_", "transduction_"):
            new.__dict__.pop(name, None)
        return new


def _check_numbers(kind: str, numbers: Sequence[Any], n_parts: int) -> None:
    """Raise a ValueError if the kind of an edit is unknown or one of its parts is missing."""
    count = {"merge": 2, "split": 1}.get(kind, len(numbers))
    if kind not in ("merge", "split", "fixed", "avoid") or len(numbers) != count:
        raise ValueError(f"Unknown edit {(kind, *numbers)}; use ('merge', i, j) or ('split', i).")
    strange = [j for j in numbers if not 0 <= j < n_parts]
    if strange or (kind == "merge" and numbers[0] == numbers[1]):
        raise ValueError(
            f"{kind} got the parts {list(numbers)}; give different numbers from 0 to {n_parts - 1}."
        )


def _merge(V: AnyArray, H: AnyArray, i: int, j: int) -> tuple[AnyArray, AnyArray]:
    use = V[:, [i, j]].sum(axis=0)
    V, H = V.copy(), H.copy()
    H[i] = use @ H[[i, j]] / (use.sum() or 1.0)
    V[:, i] += V[:, j]
    return np.delete(V, j, axis=1), np.delete(H, j, axis=0)


def _split(V: AnyArray, H: AnyArray, i: int) -> tuple[AnyArray, AnyArray]:
    tilt = TILT * np.random.default_rng(i).uniform(-1, 1, H.shape[1])
    H = np.vstack([H[:i], H[i] * (1 + tilt), H[i] * (1 - tilt), H[i + 1 :]])
    half = V[:, [i]] / 2
    return np.hstack([V[:, :i], half, half, V[:, i + 1 :]]), H


def _refit(
    first: Prepared, V: AnyArray, H: AnyArray, fixed: list[int], avoid: Mapping[int, Any]
) -> tuple[AnyArray, AnyArray]:
    """Factorize again from V and H, with fixed parts and penalties on parts to avoid."""
    from partwise.estimators.constrained import ConstrainedNMF
    from partwise.fitting.solving import suppress_convergence_warning
    from partwise.model.terms import Linear

    P = first.preparation.parts_input(first.P)
    order = [*fixed, *(j for j in range(len(H)) if j not in fixed)]  # fixed parts come first
    V, H, cost = V[:, order], H[order], np.zeros_like(V)
    for part, samples in avoid.items():
        cost[np.asarray(samples), order.index(part)] = AVOID * float(np.mean(np.asarray(P @ H.T)))
    model = ConstrainedNMF(
        len(H),
        graph_reg=first.graph_reg,
        init="custom",
        max_iter=MAX_ITER,
        terms=[Linear(cost)] if cost.any() else None,
        fixed_components=H[: len(fixed)] if fixed else None,
    )
    start = np.maximum(V, LOWEST * float(V.mean()))
    with suppress_convergence_warning():
        model.fit(P, graph=sp.csr_array(first.graph), W=start, H=H)
    back = np.argsort(order)
    return np.asarray(model.embedding_)[:, back], np.asarray(model.components_)[back]
