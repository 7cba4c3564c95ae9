"""The first step of a fit: what a user handed in, checked once; everything after it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

from partwise.backends import DataMatrix, as_data
from partwise.backends.arrays import AnyArray, limits, to_numpy
from partwise.fitting import check_arrays, check_gaps, validation
from partwise.fitting.description import Checked, Description, Given, Knowledge
from partwise.fitting.validation import warn
from partwise.knowledge.graph import check_graph
from partwise.knowledge.graph.neighborhood import Neighborhood
from partwise.knowledge.labels import Labels
from partwise.knowledge.links import Links, check_links
from partwise.knowledge.probabilities import read_labels
from partwise.model.graph_terms import CannotLink
from partwise.model.terms import Term
from partwise.solvers.steps import STEPS, check_step


def check(estimator: Any, what: Description, X: Any, given: Given) -> Checked:
    """X, labels, weights and a graph, as the rest of a fit takes them; refuses before any work."""
    check_terms(what)
    solver_name(what)
    entry_weight = check_arrays.plain(given.entry_weight)
    if what.mixed_labels and entry_weight is not None:
        raise ValueError(f"{what.whom} takes no entry_weight, since codes are mixed; use CDNMF.")
    if what.robust and (what.missing_values is not None or entry_weight is not None):
        raise ValueError(
            "missing_values and entry_weight need beta_loss 'frobenius' or 'kullback-leibler', got "
            "'l21'."
        )
    X = check_matrix(estimator, what, X, entry_weight, reset=True)
    knowledge = check_knowledge(what, given, X.shape[0])
    k = n_parts(what, X.shape[1], given.H, knowledge)
    check_fixed(what, knowledge, k)
    plain = not what.penalized and knowledge.links is None
    tamed = tame(what, X, given.W, given.H, plain=plain)
    handed = check_arrays.plain(given.sample_weight)
    weights, scale = check_weights(what, tamed.data, handed, plain=plain)
    return Checked(
        X,
        tamed.data,
        k,
        solver_for(what, tamed.data),
        knowledge,
        weights,
        tamed.W,
        tamed.H,
        tamed.factor,
        scale,
    )


# -- what is asked for ------------------------------------------------------------------------


def solver_name(what: Description) -> str:
    """The step that ``solver`` means for this objective; refuses what cannot be done."""
    beta, asked, own = what.beta, what.solver, what.own_terms
    if asked == "cd" and beta != 2:
        raise ValueError(
            f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta}"
        )
    if asked == "auto":
        name = "hals" if beta == 2 else "newton" if beta == 1 else "mu"
        able = [s for s in (name, "nesterov", "mu") if STEPS[s].does(beta)]
        fits = (s for s in able if all(STEPS[s].takes(term, beta) for term in own))
        name = next(fits, name)
    else:
        name = "hals" if asked == "cd" else asked
        check_step(name, what.beta_loss, beta)
    if (what.graph_reg or what.mixed_labels) and beta == 1:
        if asked not in ("auto", "mu"):
            beside = "a graph" if what.graph_reg else "samples that mix classes"
            raise ValueError(
                f"solver={asked!r} cannot minimise the KL divergence with {beside}; "
                "solvers that can: mu."
            )
        name = "mu"
    check_step(name, what.beta_loss, beta, own)
    return name


def solver_for(what: Description, data: DataMatrix) -> str:
    """The step for this back end; "auto" is "newton" where that is sooner there."""
    name, k = solver_name(what), what.n_components
    if name == "newton" and what.solver == "auto":
        pays = data.newton_pays(k if isinstance(k, int) else data.shape[1])
        return name if pays else "mu"
    return name


def check_terms(what: Description) -> None:
    """The user's own terms are terms, and scale='unit' knows what length costs them."""
    for name, terms in (("terms", what.terms), ("basis_terms", what.basis_terms)):
        for i, term in enumerate(terms or ()):
            if not isinstance(term, Term):
                raise TypeError(
                    f"{name}[{i}] must be a partwise.terms.Term, got {type(term).__name__}; "
                    "subclass Term with value and gradient."
                )
    if what.scale != "unit" or what.basis_terms or what.alpha_H:
        return
    for i, term in enumerate(what.terms or ()):
        if term.degree not in (1, 2) and "bound" not in term.offers:
            raise ValueError(
                f"terms[{i}]: {term.name} has neither degree 1 or 2 nor a bound, so "
                "scale='unit' cannot tell what length costs; give it lipschitz or bound, or "
                "penalise the parts too (basis_terms, alpha_H)."
            )


def check_fixed(what: Description, knowledge: Knowledge, k: int) -> None:
    """Refuse parts that are known where the others could not be held at a length."""
    if what.fixed_components is None:
        return
    if what.printed:
        raise ValueError(
            "fixed_components needs scale='unit': scale='paper' normalises every part."
        )
    labels, links = knowledge.labels, knowledge.links
    cost = what.class_weight and labels is not None and labels.n_labelled
    on_codes = cost or what.graph_reg or what.alpha_W or what.terms
    if links is not None:
        on_codes = on_codes or (len(links.cannot) and what.cannot_link_reg)
        on_codes = on_codes or (len(links.must) and what.must_link_reg)
    on_parts = what.basis_alpha or what.basis_terms
    if not (what.smoothing and on_codes) or on_parts:
        return
    known = np.asarray(to_numpy(what.fixed_components), dtype=float)
    if len(known) < k or np.isnan(known).any():
        raise ValueError(
            f"fixed_components with smoothing={what.smoothing:g} and a penalty on the codes alone "
            "has no minimum: smoothing mixes the parts, the known ones pin their common scale, and "
            "codes would shrink while the others grow until the penalty is nothing. Penalise the "
            "parts too (alpha_H, basis_terms), use seed_components, or smoothing=0."
        )


# -- the data ---------------------------------------------------------------------------------


def check_matrix(
    estimator: Any, what: Description, X: Any, entry_weight: Any = None, *, reset: bool
) -> Any:
    """X checked, with weights of its entries; data with gaps where not all count alike."""
    if what.local:
        check_arrays.check_local(X, what.whom)
    if not (what.signed or what.dense):
        special = check_arrays.check_special(estimator, X, reset=reset, beta=what.beta)
        if special is not None:
            if entry_weight is None:
                return special
            return check_gaps.weighed(X, special, entry_weight, what.missing_values)
    whole = True if what.missing_values is None else "allow-nan"
    ours = whole is True and isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32)
    with check_gaps.naming_the_setting(estimator):
        if ours and X.ndim == 2 and not np.isfinite(limits(X)).all():  # in threads
            assert_all_finite(X, estimator_name=what.whom, input_name="X")
        X = validate_data(
            estimator,
            X,
            accept_sparse=False if what.dense else ("csr", "csc"),
            dtype=[np.float64, np.float32],
            ensure_all_finite=False if ours else whole,
            reset=reset,
        )
    return X if what.signed else _non_negative(what, X, entry_weight)


def _non_negative(what: Description, X: Any, entry_weight: Any) -> Any:
    """X >= 0 where it is to be, as data with gaps if it has some."""
    X, places, seen = check_gaps.without_gaps(X, what.missing_values)
    if what.missing_values is not None:  # else it was checked before
        validation.check_finite(X)
    validation.check_non_negative(X, what.whom)
    if what.beta <= 0 and (X.min() == 0):
        raise ValueError(check_arrays.ZEROS)
    wrap = as_data if what.device is None else partial(check_arrays.move, device=what.device)
    if places is None and entry_weight is None:
        return X if what.device is None else wrap(X)
    if what.beta not in (1.0, 2.0):
        raise ValueError(
            f"missing_values and entry_weight need beta_loss 'frobenius' or "
            f"'kullback-leibler', got {what.beta_loss!r}."
        )
    found = check_gaps.with_gaps(X, places, seen, entry_weight, wrap)
    return wrap(found) if found is X and what.device is not None else found


@dataclass(frozen=True, eq=False)
class Tamed:
    """X over a power of four where its values are extreme, the start over its root."""

    data: DataMatrix
    W: Any = None
    H: Any = None
    factor: float = 1.0


def tame(
    what: Description, X: Any, W: Any = None, H: Any = None, *, plain: bool | None = None
) -> Tamed:
    """Only for ``plain`` models without penalties, whose weights would have to change with X."""
    plain = not what.penalized if plain is None else plain
    alone = what.signed and not what.free_parts  # concepts look at X through its own products
    factor = 1.0 if alone else validation.extreme_factor(X)
    if factor == 1:
        return Tamed(as_data(X), W, H)
    validation.check_factor(factor, what.beta, what.whom)
    if not plain:
        validation.check_fourth(factor, what.whom)
        return Tamed(as_data(X), W, H)
    root = np.sqrt(factor)
    W, H = (Z if Z is None else np.asarray(Z) / Z.dtype.type(root) for Z in (W, H))
    # scipy divides float32 by float32 in float64
    return Tamed(as_data((X / X.dtype.type(factor)).astype(X.dtype, copy=False)), W, H, factor)


# -- what is known of the samples -------------------------------------------------------------


def check_knowledge(what: Description, given: Given, n: int) -> Knowledge:
    """Labels, a user's own graph, and links."""
    labels = read_labels(check_arrays.plain(given.y), n) if what.labelled else None
    if labels is not None and labels.doubtful:
        _check_doubtful(what)
    _say_what_labels_do(what, labels)
    graph = None if given.graph is None else Neighborhood(check_graph(given.graph, n))
    certain = labels if labels is None or not labels.doubtful else None
    links = check_links(given.must_link, given.cannot_link, n, certain)
    if links is not None:
        _check_steps_for(what, links)
    return Knowledge(labels, graph, links)


def _check_doubtful(what: Description) -> None:
    """Refuse probabilities where a label has to be one or the other."""
    if what.hard_labels and not what.mixed_labels:
        raise ValueError(
            f"{what.whom} lets samples of one label share a code, so labels must be certain; use "
            "LpCNMF, where codes mix by probability, or CDNMF, whose costs do."
        )
    if what.graph_reg and what.label_weight is not None:
        raise ValueError(
            f"{what.whom} joins samples of one label in its graph, so labels must be certain; use "
            "CDNMF or ConstrainedNMF(class_reg=...), whose costs go by probability."
        )


def _check_steps_for(what: Description, links: Links) -> None:
    """Refuse steps that may rise with links, and procedures that would lower them for free."""
    if what.mixed_labels:
        raise ValueError(f"{what.whom} takes no links, since codes are mixed; use CNMF or CDNMF.")
    if len(links.cannot) and what.cannot_link_reg:
        if what.graph_reg and what.beta == 1:
            raise ValueError(
                "cannot_link with a graph needs beta_loss='frobenius': under Kullback-Leibler no "
                "step descends on both."
            )
        check_step(
            solver_name(what),
            what.beta_loss,
            what.beta,
            [CannotLink.between(links.cannot_graph, 1.0)],
        )
    soft = len(links.must) and what.must_link_reg is not None
    if what.printed and (soft or len(links.cannot)):
        raise ValueError(
            "links that cost need scale='unit': with scale='paper' codes would shrink and parts "
            "grow until links cost nothing."
        )


def _say_what_labels_do(what: Description, labels: Labels | None) -> None:
    if what.uses_labels and (labels is None or labels.n_labelled == 0):
        warn(f"{what.whom} was given no label: it is the model without labels.")
    elif labels is not None and what.hard_labels and _void(what, labels):
        warn(
            f"{what.whom}: no class has two labelled samples, so hard labels change nothing; "
            "label at least two samples of a class."
        )


def _void(what: Description, labels: Labels) -> bool:
    """Whether hard labels join nothing."""
    return labels.counts.max() < 2 and not (what.propagate or labels.doubtful)


def n_parts(what: Description, p: int, H: Any, knowledge: Knowledge) -> int:
    """k, where it is not said: rows of a custom H, else parts for each class, else p."""
    if what.n_components == "auto" and what.init == "custom" and H is not None:
        return np.shape(H)[0]
    if what.n_components == "auto" and knowledge.n_classes:
        return knowledge.n_classes * what.components_per_class
    return p if what.n_components in (None, "auto") else int(what.n_components)  # type: ignore[arg-type]


def check_weights(
    what: Description, data: DataMatrix, sample_weight: Any, *, plain: bool
) -> tuple[AnyArray | None, float]:
    """Weights of the samples, None where all count once, and what they were divided by."""
    weights = validation.check_weights(sample_weight, data)
    if what.sample_weighting == "ncw":
        ncw = validation.ncw_weights(data)
        weights = ncw if weights is None else weights * ncw
    if weights is None or (weights == 1).all():
        return None, 1.0  # the plain model, to the last bit
    if what.beta not in (1.0, 2.0):
        raise ValueError(
            f"sample_weight needs beta_loss 'frobenius' or 'kullback-leibler', got "
            f"{what.beta_loss!r}."
        )
    return validation.tame_weights(weights) if plain else (weights, 1.0)
