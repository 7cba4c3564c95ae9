"""Checks of prior knowledge: labels, graph, links, sample weights, fixed parts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from partwise._sklearn import check_sample_weight
from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.fitting.description import Description, FitInputs, Knowledge, warn
from partwise.knowledge.graph import Neighborhood, check_graph
from partwise.knowledge.labels import Labels, as_ndarray, read_labels, says_unknown
from partwise.knowledge.links import Links, check_links
from partwise.model.graph_terms import CannotLink
from partwise.solvers.steps import check_step


def check_knowledge(spec: Description, given: FitInputs, n: int, solver: str) -> Knowledge:
    """Return the checked labels, graph and links that were passed to a fit."""
    told = spec.labelled and given.y is not None
    labels = read_labels(as_ndarray(given.y), n) if told else None
    if labels is not None and labels.doubtful:
        _check_doubtful(spec)
    if labels is not None:
        warn_of_unknown_as_class(labels)
    _say_what_labels_do(spec, labels)
    graph = None if given.graph is None else Neighborhood(check_graph(given.graph, n))
    certain = labels if labels is None or not labels.doubtful else None
    links = None
    if given.must_link is not None or given.cannot_link is not None:
        links = check_links(given.must_link, given.cannot_link, n, certain)
    if links is not None:
        _check_steps_for(spec, links, solver)
    return Knowledge(labels, graph, links)


def _check_doubtful(spec: Description) -> None:
    """Raise an error if the method cannot use class probabilities as labels."""
    if spec.hard_labels and not spec.mixed_labels:
        raise ValueError(
            f"{spec.estimator_name} gives samples of a class equal part weights, so labels must "
            "be certain; "
            "use LpCNMF or CDNMF for class probabilities."
        )
    if spec.graph_reg and spec.label_weight is not None:
        raise ValueError(
            f"{spec.estimator_name} joins samples of a class in its graph, so labels must be "
            "certain; "
            "use CDNMF or ConstrainedNMF(class_reg=...) for class probabilities."
        )


def _check_steps_for(spec: Description, links: Links, solver: str) -> None:
    """Raise an error if links cannot be combined with this solver or procedure.

    Some solvers could increase an objective with links. With scale='paper', the link penalty could
    be reduced at no cost by shrinking the part weights.
    """
    if spec.mixed_labels:
        raise ValueError(
            f"{spec.estimator_name} does not support links between samples; use CNMF or CDNMF."
        )
    if len(links.cannot) and spec.cannot_link_reg:
        if spec.graph_reg and spec.beta == 1:
            raise ValueError(
                "cannot_link with a graph needs beta_loss='frobenius': under Kullback-Leibler no "
                "step descends on both."
            )
        terms = [CannotLink.between(links.cannot_graph, 1.0)]
        check_step(solver, spec.beta_loss, spec.beta, terms)
    soft = len(links.must) and spec.must_link_reg is not None
    if spec.printed and (soft or len(links.cannot)):
        raise ValueError(
            "must_link_reg and cannot_link need scale='unit'; with scale='paper', small part "
            "weights and large parts would make their cost vanish."
        )


def _say_what_labels_do(spec: Description, labels: Labels | None) -> None:
    """Warn if the labels cannot change the fit."""
    if spec.uses_labels and (labels is None or labels.n_labelled == 0):
        warn(
            f"{spec.estimator_name}: y contains no known label, so the model is fitted without "
            "labels."
        )
    elif (
        labels is not None
        and spec.hard_labels
        and labels.counts.max() < 2
        and not (spec.propagate or labels.doubtful)
    ):
        warn(
            f"{spec.estimator_name}: no class has two labelled samples, so hard labels change "
            "nothing; "
            "label at least two samples of a class."
        )


def warn_of_unknown_as_class(labels: Labels) -> None:
    """Warn if the name of a class suggests that the label is unknown.

    Warn also if an enclosing scikit-learn estimator treats the label -1 as a class.
    """
    for name, count in zip(labels.classes.tolist(), labels.counts.tolist(), strict=True):
        if says_unknown(name):
            warn(
                f"The label {name!r} ({count} samples) is treated as a class. If it means that "
                "the label is unknown, replace it with None."
            )
    outer = _estimator_with_class_minus_one()
    if outer:
        warn(
            f"{outer} treats the label -1 as a class, so unlabelled samples may be predicted as "
            "-1. Fit Partwise's estimators outside of it, or give it labelled samples only: see "
            '"Use it inside meta-estimators" in the guide to few labels.'
        )


def _estimator_with_class_minus_one() -> str:
    """Return the name of a calling scikit-learn estimator that has a class -1, or ""."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        outer = frame.f_locals.get("self")
        if isinstance(outer, BaseEstimator) and type(outer).__module__.startswith("sklearn."):
            classes = getattr(outer, "classes_", None)
            if isinstance(classes, np.ndarray) and classes.dtype.kind in "if" and -1 in classes:
                return type(outer).__name__
        frame = frame.f_back
    return ""


def compare_index(X: Any, y: Any) -> None:
    """Warn if X and y have the same index in another order, which fits ignore."""
    here: Any = getattr(X, "index", None)
    there: Any = getattr(y, "index", None)
    if not (hasattr(here, "equals") and hasattr(there, "equals")) or here.equals(there):
        return
    if here.is_unique and len(here) == len(there) and here.symmetric_difference(there).empty:
        warn(
            "y has the index of X in another order, but labels are matched by position: the first "
            "of y belongs to the first row of X. Pass y.loc[X.index] to match them by index."
        )


def check_fixed(spec: Description, knowledge: Knowledge, k: int) -> None:
    """Raise an error if fixed parts leave an objective without a minimum.

    With smoothing and a penalty on part weights alone, the free parts could grow without bound.
    """
    if spec.printed:
        raise ValueError(
            "fixed_components needs scale='unit': scale='paper' normalises every part."
        )
    labels, links = knowledge.labels, knowledge.links
    cost = spec.class_weight and labels is not None and labels.n_labelled
    on_codes = cost or spec.graph_reg or spec.alpha_W or spec.terms
    if links is not None:
        costs = (len(links.cannot), spec.cannot_link_reg), (len(links.must), spec.must_link_reg)
        on_codes = on_codes or any(all(pair) for pair in costs)
    if not (spec.smoothing and on_codes) or spec.on_parts:
        return
    known = np.asarray(to_numpy(spec.fixed_components), dtype=float)
    if len(known) < k or np.isnan(known).any():
        raise ValueError(
            f"fixed_components with smoothing={spec.smoothing:g} and a penalty on the part weights "
            "alone has no minimum: smaller part weights and larger free parts would make the "
            "penalty vanish. Penalise the parts too (alpha_H, basis_terms), use seed_components, "
            "or smoothing=0."
        )


def check_weights(
    spec: Description, data: DataMatrix, sample_weight: Any, *, plain: bool
) -> tuple[AnyArray | None, float]:
    """Return the sample weights (None if all are one) and their divisor."""
    weights = None
    if sample_weight is not None:
        weights = check_sample_weights(as_ndarray(sample_weight), data)
    if spec.sample_weighting == "ncw":
        ncw = ncw_weights(data)
        weights = ncw if weights is None else weights * ncw
    if weights is None or (weights == 1).all():
        return None, 1.0  # exactly the result of the model without weights
    if spec.beta not in (1.0, 2.0):
        raise ValueError(
            f"sample_weight needs beta_loss 'frobenius' or 'kullback-leibler', got "
            f"{spec.beta_loss!r}."
        )
    return tame_weights(weights) if plain else (weights, 1.0)


def check_sample_weights(sample_weight: Any, X: Any) -> AnyArray:
    """Return float64 sample weights, after checking that they are >= 0 and not all 0."""
    # scikit-learn's check uses only shape and dtype
    like = np.broadcast_to(np.zeros(1, X.dtype), X.shape)
    weights = check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero.")
    return weights


def tame_weights(weights: AnyArray) -> tuple[AnyArray, float]:
    """Return the weights divided by their mean if that is extreme, and the divisor.

    Without penalties, multiplying all sample weights by a number does not change the fit.
    """
    scale = float(weights.mean(where=weights > 0))
    return (weights, 1.0) if 1e-3 <= scale <= 1e3 else (weights / scale, scale)


def ncw_weights(data: Any) -> AnyArray:
    """Return normalized-cut sample weights γ_i ∝ 1 / (x_iᵀ Σ_l x_l) (Xu et al. 2003).

    A zero sample has weight 0. The mean of the weights is one, so that the size of the loss
    relative to a penalty does not change.
    """
    data = data.filled()
    ones = data.constant_rows(np.ones(1, dtype=data.dtype))
    degree = to_numpy(data.dot(data.tdot(ones)))[:, 0].astype(np.float64)
    weights = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    if not weights.any():
        raise ValueError("sample_weighting='ncw' needs a sample that is not zero.")
    return weights / weights.mean()
