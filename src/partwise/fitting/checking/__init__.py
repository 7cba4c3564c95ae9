"""The first step of a fit: what the user passed is checked once.

The steps that follow rely on these checks. Each file here checks one topic.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.backends.arrays import to_numpy, unchanged
from partwise.fitting.checking.arrays import as_ndarray, check_matrix
from partwise.fitting.checking.labels import check_knowledge, compare_index
from partwise.fitting.checking.scales import rescale_extremes
from partwise.fitting.checking.solvers import solver_for, solver_name
from partwise.fitting.checking.weights import check_weights
from partwise.fitting.description import Checked, Description, FitInputs, Knowledge
from partwise.model.terms import Term


@unchanged()
def check(estimator: Any, spec: Description, X: Any, given: FitInputs) -> Checked:
    """Check X, labels, weights and a graph before any work, and return them for the fit."""
    check_terms(spec)
    solver_name(spec)
    entry_weight = as_ndarray(given.entry_weight)
    if spec.mixed_labels and entry_weight is not None:
        raise ValueError(
            f"{spec.estimator_name} takes no entry_weight, since codes are mixed; use CDNMF."
        )
    if spec.signed and entry_weight is not None:
        raise ValueError(f"{spec.estimator_name} takes no entry_weight; NMF and GNMF do.")
    if spec.robust and (spec.missing_values is not None or entry_weight is not None):
        raise ValueError(
            "missing_values and entry_weight need beta_loss 'frobenius' or 'kullback-leibler', got "
            "'l21'."
        )
    if spec.labelled:
        compare_index(X, given.y)
    X = check_matrix(estimator, spec, X, entry_weight, reset=True)
    knowledge = check_knowledge(spec, given, X.shape[0])
    k = n_parts(spec, X.shape[1], given.H, knowledge)
    check_fixed(spec, knowledge, k)
    plain = not spec.penalized and knowledge.links is None
    rescaled = rescale_extremes(spec, X, given.W, given.H, plain=plain)
    inputs = as_ndarray(given.sample_weight)
    weights, scale = check_weights(spec, rescaled.data, inputs, plain=plain)
    return Checked(
        X,
        rescaled.data,
        k,
        solver_for(spec, rescaled.data),
        knowledge,
        weights,
        rescaled.W,
        rescaled.H,
        rescaled.factor,
        scale,
    )


def check_terms(spec: Description) -> None:
    """Check that the user's terms are terms, and that scale='unit' knows their degree."""
    for name, terms in (("terms", spec.terms), ("basis_terms", spec.basis_terms)):
        for i, term in enumerate(terms or ()):
            if not isinstance(term, Term):
                raise TypeError(
                    f"{name}[{i}] must be a partwise.terms.Term, got {type(term).__name__}; "
                    "subclass Term with value and gradient."
                )
    if spec.scale != "unit" or spec.on_parts:
        return
    for i, term in enumerate(spec.terms or ()):
        if term.degree not in (1, 2) and "bound" not in term.offers:
            raise ValueError(
                f"terms[{i}]: {term.name} has neither degree 1 or 2 nor a bound, so "
                "scale='unit' cannot compute the cost of length; define lipschitz or bound, or "
                "penalise the parts too (basis_terms, alpha_H)."
            )


def check_fixed(spec: Description, knowledge: Knowledge, k: int) -> None:
    """Refuse parts that are known where the others could not be held at a length."""
    if spec.fixed_components is None:
        return
    if spec.printed:
        raise ValueError(
            "fixed_components needs scale='unit': scale='paper' normalises every part."
        )
    labels, links = knowledge.labels, knowledge.links
    cost = spec.class_weight and labels is not None and labels.n_labelled
    on_codes = cost or spec.graph_reg or spec.alpha_W or spec.terms
    if links is not None:
        on_codes = on_codes or (len(links.cannot) and spec.cannot_link_reg)
        on_codes = on_codes or (len(links.must) and spec.must_link_reg)
    if not (spec.smoothing and on_codes) or spec.on_parts:
        return
    known = np.asarray(to_numpy(spec.fixed_components), dtype=float)
    if len(known) < k or np.isnan(known).any():
        raise ValueError(
            f"fixed_components with smoothing={spec.smoothing:g} and a penalty on the codes alone "
            "has no minimum: smoothing mixes the parts, the known ones pin their common scale, and "
            "codes would shrink while the others grow until the penalty is nothing. Penalise the "
            "parts too (alpha_H, basis_terms), use seed_components, or smoothing=0."
        )


def n_parts(spec: Description, p: int, H: Any, knowledge: Knowledge) -> int:
    """Return the default of k: rows of a custom H, else parts per class, else p."""
    if spec.n_components == "auto" and spec.init == "custom" and H is not None:
        return int(np.shape(H)[0])
    if spec.n_components == "auto" and knowledge.n_classes:
        return knowledge.n_classes * spec.components_per_class
    return p if spec.n_components in (None, "auto") else int(spec.n_components)
