"""Check what is known about the samples: labels, a graph and links."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from partwise.fitting.checking.arrays import as_ndarray
from partwise.fitting.checking.solvers import solver_name
from partwise.fitting.checking.warning import warn
from partwise.fitting.description import Description, FitInputs, Knowledge
from partwise.knowledge.graph import Neighborhood, check_graph
from partwise.knowledge.labels import Labels, read_labels, says_unknown
from partwise.knowledge.links import Links, check_links
from partwise.model.graph_terms import CannotLink
from partwise.solvers.steps import check_step


def check_knowledge(spec: Description, given: FitInputs, n: int) -> Knowledge:
    """Return labels, a user's own graph, and links."""
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
        _check_steps_for(spec, links)
    return Knowledge(labels, graph, links)


def _check_doubtful(spec: Description) -> None:
    """Refuse probabilities where a label has to be one or the other."""
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


def _check_steps_for(spec: Description, links: Links) -> None:
    """Refuse steps that may rise with links, and procedures that would lower them for free."""
    if spec.mixed_labels:
        raise ValueError(
            f"{spec.estimator_name} takes no links, since codes are mixed; use CNMF or CDNMF."
        )
    if len(links.cannot) and spec.cannot_link_reg:
        if spec.graph_reg and spec.beta == 1:
            raise ValueError(
                "cannot_link with a graph needs beta_loss='frobenius': under Kullback-Leibler no "
                "step descends on both."
            )
        check_step(
            solver_name(spec),
            spec.beta_loss,
            spec.beta,
            [CannotLink.between(links.cannot_graph, 1.0)],
        )
    soft = len(links.must) and spec.must_link_reg is not None
    if spec.printed and (soft or len(links.cannot)):
        raise ValueError(
            "links that cost need scale='unit': with scale='paper' codes would shrink and parts "
            "grow until links cost nothing."
        )


def _say_what_labels_do(spec: Description, labels: Labels | None) -> None:
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
    """Warn if a class probably means that the label is unknown."""
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
    """Return the class of the calling scikit-learn estimator that has -1 in ``classes_``, or ""."""
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
    """Warn where rows of two frames have the same names in another order: they go by position."""
    here: Any = getattr(X, "index", None)
    there: Any = getattr(y, "index", None)
    if not (hasattr(here, "equals") and hasattr(there, "equals")) or here.equals(there):
        return
    if here.is_unique and len(here) == len(there) and here.symmetric_difference(there).empty:
        warn(
            "y has the index of X in another order, but labels are matched by position: the first "
            "of y belongs to the first row of X. Pass y.loc[X.index] to match them by index."
        )
