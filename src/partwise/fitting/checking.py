"""The first step of a fit: what a user handed in, checked once; everything after it assumes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import validate_data

from partwise._sklearn import check_n_features, check_sample_weight
from partwise.backends import DataMatrix, as_data, back_end
from partwise.backends.arrays import (
    AnyArray,
    is_missing,
    limits,
    row_blocks,
    to_numpy,
    unchanged,
)
from partwise.backends.data_matrix import ZEROS, Swept
from partwise.backends.gaps import Lack, MaskedData
from partwise.backends.masks import as_missing, is_masked
from partwise.backends.numpy import memmap
from partwise.backends.numpy.float64_products import in_double
from partwise.backends.numpy.memmap import check_memmap
from partwise.backends.numpy.sparse import SparseData
from partwise.fitting.description import Checked, Description, Given, Knowledge
from partwise.knowledge.graph import Neighborhood, check_graph
from partwise.knowledge.labels import Labels, read_labels, with_unknown
from partwise.knowledge.links import Links, check_links
from partwise.model.graph_terms import CannotLink
from partwise.model.terms import Term
from partwise.solvers.steps import STEPS, check_step


@unchanged()
def check(estimator: Any, what: Description, X: Any, given: Given) -> Checked:
    """X, labels, weights and a graph, as the rest of a fit takes them; refuses before any work."""
    check_terms(what)
    solver_name(what)
    entry_weight = as_ndarray(given.entry_weight)
    if what.mixed_labels and entry_weight is not None:
        raise ValueError(f"{what.whom} takes no entry_weight, since codes are mixed; use CDNMF.")
    if what.robust and (what.missing_values is not None or entry_weight is not None):
        raise ValueError(
            "missing_values and entry_weight need beta_loss 'frobenius' or 'kullback-leibler', got "
            "'l21'."
        )
    if what.labelled:
        compare_index(X, given.y)
    X = check_matrix(estimator, what, X, entry_weight, reset=True)
    knowledge = check_knowledge(what, given, X.shape[0])
    k = n_parts(what, X.shape[1], given.H, knowledge)
    check_fixed(what, knowledge, k)
    plain = not what.penalized and knowledge.links is None
    tamed = tame(what, X, given.W, given.H, plain=plain)
    handed = as_ndarray(given.sample_weight)
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
    if what.scale != "unit" or what.on_parts:
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
    if not (what.smoothing and on_codes) or what.on_parts:
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
    if what.missing_values is not None:
        X = as_missing(X, what.missing_values)
    if what.local:
        check_local(X, what.whom)
    if not (what.signed or what.dense):
        special = check_special(estimator, X, reset=reset, beta=what.beta)
        if special is not None:
            if entry_weight is None:
                return special
            return weighed(X, special, entry_weight, what.missing_values)
    whole = True if what.missing_values is None else "allow-nan"
    ours = whole is True and isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32)
    with in_plain_words(estimator, X):
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
    X, places, seen = without_gaps(X, what.missing_values)
    if what.missing_values is not None:  # else it was checked before
        check_finite(X)
    check_non_negative(X, what.whom)
    if what.beta <= 0 and (X.min() == 0):
        raise ValueError(ZEROS)
    wrap = as_data if what.device is None else partial(move, device=what.device)
    if places is None and entry_weight is None:
        return X if what.device is None else wrap(X)
    if what.beta not in (1.0, 2.0):
        raise ValueError(
            f"missing_values and entry_weight need beta_loss 'frobenius' or "
            f"'kullback-leibler', got {what.beta_loss!r}."
        )
    found = with_gaps(X, places, seen, entry_weight, wrap)
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
    factor = 1.0 if alone else extreme_factor(X)
    if factor == 1:
        return Tamed(as_data(X), W, H)
    check_factor(factor, what.beta, what.whom)
    if not plain:
        check_penalized(factor, what.beta, what.whom)
        return Tamed(in_double(as_data(X)), W, H)  # squares of float32 overflow at 1e19
    root = np.sqrt(factor)
    W, H = (Z if Z is None else np.asarray(Z) / Z.dtype.type(root) for Z in (W, H))
    # scipy divides float32 by float32 in float64
    return Tamed(as_data((X / X.dtype.type(factor)).astype(X.dtype, copy=False)), W, H, factor)


# -- what is known of the samples -------------------------------------------------------------


def check_knowledge(what: Description, given: Given, n: int) -> Knowledge:
    """Labels, a user's own graph, and links."""
    told = what.labelled and given.y is not None
    labels = read_labels(as_ndarray(given.y), n) if told else None
    if labels is not None and labels.doubtful:
        _check_doubtful(what)
    _say_what_labels_do(what, labels)
    graph = None if given.graph is None else Neighborhood(check_graph(given.graph, n))
    certain = labels if labels is None or not labels.doubtful else None
    links = None
    if given.must_link is not None or given.cannot_link is not None:
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
    elif (
        labels is not None
        and what.hard_labels
        and labels.counts.max() < 2
        and not (what.propagate or labels.doubtful)
    ):
        warn(
            f"{what.whom}: no class has two labelled samples, so hard labels change nothing; "
            "label at least two samples of a class."
        )


def n_parts(what: Description, p: int, H: Any, knowledge: Knowledge) -> int:
    """k, where it is not said: rows of a custom H, else parts for each class, else p."""
    if what.n_components == "auto" and what.init == "custom" and H is not None:
        return int(np.shape(H)[0])
    if what.n_components == "auto" and knowledge.n_classes:
        return knowledge.n_classes * what.components_per_class
    return p if what.n_components in (None, "auto") else int(what.n_components)


def check_weights(
    what: Description, data: DataMatrix, sample_weight: Any, *, plain: bool
) -> tuple[AnyArray | None, float]:
    """Weights of the samples, None where all count once, and what they were divided by."""
    weights = check_sample_weights(sample_weight, data)
    if what.sample_weighting == "ncw":
        ncw = ncw_weights(data)
        weights = ncw if weights is None else weights * ncw
    if weights is None or (weights == 1).all():
        return None, 1.0  # the plain model, to the last bit
    if what.beta not in (1.0, 2.0):
        raise ValueError(
            f"sample_weight needs beta_loss 'frobenius' or 'kullback-leibler', got "
            f"{what.beta_loss!r}."
        )
    return tame_weights(weights) if plain else (weights, 1.0)


def check_special(estimator: Any, X: Any, *, reset: bool, beta: float) -> Any | None:
    """X checked, as its back end takes it; None where scikit-learn's validation should look."""
    name = type(estimator).__name__
    device, missing = estimator.device, getattr(estimator, "missing_values", None)
    on_disk = isinstance(X, np.memmap) and device is None
    if on_disk and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
            return None
        check_shape(estimator, X, reset)
        if missing is not None:
            kept, hidden = memmap.gaps(X, missing)
            check_memmap(kept, name)
            return masked(kept, hidden, seen=False)
        check_memmap(X, name, positive=beta <= 0)
        return X
    found = back_end(X)
    if found is None:
        return None
    if device is not None:
        raise ValueError(
            f"device={device!r} moves numpy and scipy input; {found.kind} are used where they "
            "are, so leave device out."
        )
    found.look(X)
    if beta not in (1.0, 2.0):
        raise ValueError(
            f"beta_loss={beta:g} needs X as a numpy or scipy array; {found.kind} have "
            "'frobenius' and 'kullback-leibler'."
        )
    check_shape(estimator, X, reset)
    if "complex" in str(X.dtype):
        raise ValueError(f"Complex data not supported: X must be real, got {X.dtype}.")
    if missing is None:
        return found.check(X, name)
    if found.gaps is None:
        raise ValueError(f"missing_values is not for {found.kind}; use {found.home}.")
    base, places, seen = found.gaps(X, missing, name)
    return masked(base, places, seen=seen)


def check_local(X: Any, whom: str) -> None:
    """Refuse what would be copied here without a word."""
    found = back_end(X)
    if found is not None:
        found.look(X)
        raise ValueError(
            f"{whom} needs X as a numpy or scipy array or a memmap and takes no {found.kind}; use "
            f"{found.home}, or NMF, GNMF, CNMF, CDNMF, NMFDC or ConstrainedNMF, which stay where "
            "X is."
        )


def check_shape(estimator: Any, X: Any, reset: bool) -> None:
    """Samples and features, as many features as the fit had."""
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead.")
    if 0 in X.shape:
        raise ValueError(f"X must have samples and features, got shape {tuple(X.shape)}.")
    check_n_features(estimator, X, reset=reset)
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def move(X: Any, device: str) -> Any:
    """A numpy or scipy X as data on a torch device, whose results come back as ndarrays."""
    try:
        from partwise.backends.torch import torch_data
    except ImportError as error:
        raise ImportError(f'device={device!r} needs torch: pip install "partwise[gpu]"') from error
    return torch_data.move(X, device)


def searchable(X: Any) -> tuple[Any, Literal["exact", "approximate"]]:
    """X as the search for neighbours takes it, and how it is searched."""
    if isinstance(X, Swept):
        X = X.filled()
        whole = X.whole()
        return (X, "approximate") if whole is None else (to_numpy(whole), "exact")
    return to_numpy(X), "exact"


def as_ndarray(a: Any) -> AnyArray:
    """Labels, weights and starts as ndarrays, wherever they come from."""
    a = with_unknown(a.compute() if is_masked(a) and hasattr(a, "compute") else a)
    return a if back_end(a) is None else to_numpy(a)


#: Share of entries up to which those are kept one by one that are hidden, or those seen.
FEW = 0.25
NAMED = (
    "Input X contains NaN. {whom} takes entries that were not measured with "
    "missing_values=np.nan; otherwise fill them in or leave those samples out."
)


@contextmanager
def in_plain_words(estimator: Any, X: Any) -> Iterator[None]:
    """scikit-learn's error for NaN with the setting that takes it, numpy's with what came."""
    try:
        yield
    except (TypeError, ValueError) as error:
        said = str(error)
        if "contains NaN" in said and "missing_values" in estimator.get_params(deep=False):
            raise ValueError(NAMED.format(whom=type(estimator).__name__)) from error
        if "could not convert" in said or "argument must be a string or a" in said:
            came = f"got {type(X).__name__}"
            if hasattr(X, "select_dtypes"):
                others = X.select_dtypes(exclude=["number", "bool"]).columns
                came = "without: " + ", ".join(f"column {name!r}" for name in others[:5])
            raise type(error)(f"X must hold numbers, samples in rows; {came} ({said}).") from error
        raise


def weighed(X: Any, checked: Any, entry_weight: Any, missing_values: float | None) -> Any:
    """Data with weights of entries where X is not a numpy or scipy array in memory."""
    found = back_end(X)
    if found is not None and found.bring is not None:  # by way of this process
        bring: Callable[[Any, Any], DataMatrix] = found.bring
        here = to_numpy(X)
        if here.dtype not in (np.float32, np.float64):
            here = here.astype(np.float32 if here.dtype == np.float16 else np.float64)
        here, places, seen = without_gaps(here, missing_values)
        made = with_gaps(here, places, seen, entry_weight, lambda a: bring(a, X))
        return checked if made is here else made
    make = memmap.weighed if found is None else found.weighed
    if make is None:
        raise ValueError(f"entry_weight is not for {found.kind}; use {found.home}.")  # type: ignore[union-attr]
    _check_weights(entry_weight, X.shape)
    base, lack, d, squares, logs = make(X, entry_weight, missing_values)
    _check_rows(d)
    moments = base.rows(squares), base.rows(logs)
    return MaskedData(base, Lack(lack, seen=False, d=base.rows(np.asarray(d, base.dtype))), moments)


def _check_weights(W: Any, shape: tuple[int, int]) -> None:
    """Weights that may lie in a file, some rows at a time."""
    if np.shape(W) != tuple(shape):
        raise ValueError(
            f"entry_weight has shape {np.shape(W)} and X {tuple(shape)}; give one weight for each "
            "entry."
        )
    for rows in row_blocks(*shape):
        w = W[rows].data if sp.issparse(W) else np.asarray(W[rows])
        if not np.isfinite(w).all():
            raise ValueError("Input entry_weight contains NaN or infinity.")
        if w.min(initial=0) < 0:
            raise ValueError(f"entry_weight must be >= 0, got {w.min():g}; 0 is an entry not seen.")


def masked(base: DataMatrix, places: DataMatrix, *, seen: bool) -> Any:
    """Data with gaps, on any back end; ``base`` where there are none."""
    ones = places.small(np.ones((places.shape[1], 1), places.dtype))
    count = np.asarray(to_numpy(places.dot(ones)))[:, 0]
    if not seen and not count.any():
        return base
    _check_rows(count if seen else places.shape[1] - count)
    return MaskedData(base, Lack(places, seen=seen))


def without_gaps(X: Any, missing_values: float | None) -> tuple[Any, Any, bool]:
    """X with zeros for what is missing; the places of that, or None; whether those are seen ones.

    A sparse X without entries for zeros names the hidden ones, unless zeros are what is hidden.
    """
    if missing_values is None:
        return sp.csr_array(X) if sp.issparse(X) else X, None, False
    if not sp.issparse(X):
        hidden = is_missing(X, missing_values)
        return (
            (np.where(hidden, X.dtype.type(0), X), hidden, False)
            if hidden.any()
            else (X, None, False)
        )
    X = sp.csr_array(X)
    if missing_values == 0:
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
        places = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)
        return X, places, True
    hidden = is_missing(X.data, missing_values)
    if not hidden.any():
        return X, None, False
    places = _some(X, hidden)
    places.data[:] = 1
    return _some(X, ~hidden & (X.data != 0)), places, False


def _some(X: Any, kept: AnyArray) -> Any:
    """The entries of a CSR matrix that are kept."""
    before = np.zeros(len(kept) + 1, dtype=X.indptr.dtype)  # the type of indices stays
    np.cumsum(kept, out=before[1:])
    at = np.flatnonzero(kept)  # faster than by a mask, twice
    return sp.csr_array((X.data[at], X.indices[at], before[X.indptr]), shape=X.shape)


def check_entry_weight(entry_weight: Any, shape: tuple[int, int], dtype: Any) -> Any:
    """Weights of entries, an array or CSR, >= 0."""
    W = check_array(
        entry_weight, accept_sparse="csr", dtype=dtype, input_name="entry_weight", copy=True
    )
    _check_weights(W, shape)
    if sp.issparse(W):
        W = sp.csr_array(W)
        W.sum_duplicates()
        W.eliminate_zeros()
    return W


def with_gaps(
    X: Any, places: Any, seen: bool, entry_weight: Any, wrap: Callable[[Any], DataMatrix] = as_data
) -> Any:
    """X as data whose entries count by weight; X itself where all count once."""
    if entry_weight is not None:
        W = check_entry_weight(entry_weight, X.shape, X.dtype)
        if places is not None:
            hidden = places.toarray() if sp.issparse(places) and not seen else places
            W = _times(W, places if seen else 1.0 - hidden)
        values = W.data if sp.issparse(W) else W
        if not ((values == 0) | (values == 1)).all():
            return _weighed(X, W, wrap)
        places, seen = (W, True) if sp.issparse(W) else (W == 0, False)
        X = _times(X, W)
    if places is None or (not seen and not _count(places).any()):
        return X
    _check_rows(_count(places) if seen else X.shape[1] - _count(places))
    places, seen = _smaller(places, seen, X)
    return MaskedData(wrap(X), Lack(_wrapped(places, X.dtype, wrap), seen=seen))


def _wrapped(places: Any, dtype: Any, wrap: Callable[[Any], DataMatrix]) -> DataMatrix:
    places = places.astype(dtype)
    return SparseData(places) if sp.issparse(places) and wrap is as_data else wrap(places)


def _count(places: Any) -> AnyArray:
    if sp.issparse(places):
        return np.diff(places.indptr)
    return np.count_nonzero(places, axis=1)


def _smaller(places: Any, seen: bool, X: Any) -> tuple[Any, bool]:
    """What is few one by one: hidden entries or seen ones; else all in one array."""
    if sp.issparse(places):
        if sp.issparse(X) or places.nnz <= FEW * X.shape[0] * X.shape[1]:
            return places, seen
        places = places.toarray() != 0
    share = float(places.mean())
    if share <= FEW:
        return sp.csr_array(places), seen
    return (sp.csr_array(~places), not seen) if share >= 1 - FEW else (places, seen)


def _times(X: Any, W: Any) -> Any:
    """X ∘ W, sparse where either is."""
    if not sp.issparse(X) and not sp.issparse(W):
        return X * W
    sparse, other = (X, W) if sp.issparse(X) else (W, X)
    out = sp.csr_array(sparse.multiply(other)).astype(X.dtype)
    out.sum_duplicates()
    out.eliminate_zeros()
    return out if sp.issparse(X) else out.toarray()


def _weighed(X: Any, W: Any, wrap: Callable[[Any], DataMatrix]) -> MaskedData:
    """X with weights that are more than a mask: each row's largest is its ceiling."""
    d = np.asarray(W.max(axis=1).todense() if sp.issparse(W) else W.max(axis=1)).ravel()
    _check_rows(d)
    base = _times(X, W)
    if sp.issparse(base):
        pairs = sp.csr_array((base.data.astype(np.float64), base.indices, base.indptr), base.shape)
        squares = np.asarray(pairs.multiply(X).sum(axis=1)).ravel()
        logs = sp.csr_array(X, copy=True).astype(np.float64)
        logs.data = np.log(logs.data, out=np.zeros_like(logs.data), where=logs.data > 0)
        moments = squares, np.asarray(pairs.multiply(logs).sum(axis=1)).ravel()
    else:
        X64 = np.asarray(X, dtype=np.float64)
        logs = np.log(X64, out=np.zeros_like(X64), where=X64 > 0)
        moments = (base * X64).sum(axis=1), (base * logs).sum(axis=1)
    lack = W if sp.issparse(W) else d[:, None] - W
    data = wrap(base)
    lack = Lack(_wrapped(lack, X.dtype, wrap), seen=sp.issparse(W), d=data.rows(d))
    return MaskedData(data, lack, tuple(data.rows(m) for m in moments))  # type: ignore[arg-type]


def _check_rows(weight: AnyArray) -> None:
    empty = np.flatnonzero(weight == 0)
    if empty.size:
        more = f" and {empty.size - 1} others" if empty.size > 1 else ""
        raise ValueError(
            f"row {empty[0]} of X{more}: every entry is hidden, so nothing is known of that "
            "sample; leave it out."
        )


_OURS = ("partwise.", "sklearn.")
SIGNED = "SemiNMF, CF and LCF take signed data"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called this package, through scikit-learn or not."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def compare_index(X: Any, y: Any) -> None:
    """Warn where rows of two frames have the same names in another order: they go by position."""
    here: Any = getattr(X, "index", None)
    there: Any = getattr(y, "index", None)
    if not (hasattr(here, "equals") and hasattr(there, "equals")) or here.equals(there):
        return
    if here.is_unique and len(here) == len(there) and here.symmetric_difference(there).empty:
        warn(
            "y has the index of X in another order, and labels go by position: the first of y to "
            "the first row of X. If the index says which belongs to which, give y.loc[X.index]."
        )


def check_finite(X: Any) -> None:
    """Raise where X has NaN or infinity."""
    values = X.data if sp.issparse(X) else X
    if not np.isfinite(limits(values)).all():
        raise ValueError("Input X contains NaN or infinity beside its missing values.")


def check_non_negative(X: Any, whom: str) -> None:
    """Raise where X has a negative entry, and say where."""
    values = X.data if sp.issparse(X) else X
    if not limits(values)[0] < 0:
        return
    if sp.issparse(X):
        X = X.tocoo()
        at = int(X.data.argmin())
        row, column, low = int(X.coords[0][at]), int(X.coords[1][at]), X.data[at]
    else:
        row, column = (int(i) for i in np.unravel_index(X.argmin(), X.shape))
        low = X[row, column]
    raise ValueError(
        f"Negative values in data passed to {whom}: the lowest is {low:g} at row {row}, "
        f"column {column}; {SIGNED}."
    )


def check_scale(constant: float, has_values: bool, whom: str) -> None:
    """Raise where the squares of X overflow or vanish."""
    if not np.isfinite(constant) or (constant == 0 and has_values):
        size = "small" if constant == 0 else "large"
        raise ValueError(
            f"{whom}: values of X are too {size} for this loss; divide X by its maximum."
        )


def extreme_factor(X: Any) -> float:
    """A power of four near the largest entry of X where that is extreme, else 1.

    Dividing by it is exact, and so is multiplying the factors by its root afterwards.
    """
    values = X.data if sp.issparse(X) else X
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap) or not values.size:
        return 1.0
    peak = max(np.abs(limits(values)))
    limit = 1e60 if values.dtype == np.float64 else 1e9
    if peak <= 0 or 1 / limit <= peak <= limit:
        return 1.0
    return float(4.0 ** round(np.log2(peak) / 2))


def check_squares(X: Any, whom: str) -> None:
    """Raise where the squares of squares of X overflow or vanish, or X is zero."""
    values = X.data if sp.issparse(X) else X
    if not values.size or not np.any(values):
        raise ValueError(f"{whom}: X holds only zeros; there is nothing to learn from it.")
    factor = extreme_factor(X)
    if factor != 1:
        size = "large" if factor > 1 else "small"
        raise ValueError(
            f"{whom}: values of X are too {size} for products of X with itself in {values.dtype}; "
            "divide X by its maximum."
        )


def check_penalized(factor: float, beta: float, whom: str) -> None:
    """Raise where norms of gradients, which hold fourth powers of X, overflow.

    And where X is below the least VUᵀ whose powers do not.
    """
    large = np.log10(factor) * 4 > 305
    if large or (factor < 1 and beta not in (1, 2)):
        raise ValueError(
            f"{whom}: values of X are too {'large' if large else 'small'} for a model with "
            "penalties, whose weights would have to change with its unit; divide X by its maximum."
        )


def check_factor(factor: float, beta: float, whom: str) -> None:
    """Raise where the objective of such values leaves the range of numbers."""
    log = np.log10(factor) * beta
    if abs(log) > 305:
        size = "large" if log > 0 else "small"
        raise ValueError(
            f"{whom}: values of X are too {size} for beta_loss={beta:g}, whose objective grows "
            "like their power; divide X by its maximum."
        )


def check_start(
    Z: Any, shape: tuple[int, int], dtype: Any, name: str, whom: str, *, zeros: bool = False
) -> AnyArray:
    """A custom start: shape, dtype, non-negative, not all zero."""
    Z = check_array(Z, dtype=[np.float64, np.float32], input_name=name)
    for axis, word in enumerate(("first", "second")):
        if Z.shape[axis] != shape[axis]:
            raise ValueError(
                f"Array with wrong {word} dimension passed to {whom} (input {name}). "
                f"Expected {shape[axis]}, but got {Z.shape[axis]}."
            )
    if Z.dtype != dtype:
        raise TypeError(f"{name} should have the same dtype as X. Got {Z.dtype}, expected {dtype}.")
    if (Z < 0).any():
        raise ValueError(f"Negative values in data passed to {whom} (input {name})")
    if not zeros and not Z.any():
        raise ValueError(f"Array passed to {whom} (input {name}) is full of zeros.")
    return Z


def check_sample_weights(sample_weight: Any, X: Any) -> AnyArray | None:
    """Sample weights >= 0, not all zero, in float64."""
    if sample_weight is None:
        return None
    like = np.broadcast_to(np.zeros(1, X.dtype), X.shape)  # all it needs is a shape
    weights = check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero.")
    return weights


def check_codes(V: Any, k: int) -> Any:
    """V with a column for each part, of any kind of array."""
    if isinstance(V, (list, tuple)) or hasattr(V, "iloc"):
        V = np.asarray(V)
    shape = tuple(getattr(V, "shape", ()))
    if len(shape) != 2 or shape[1] != k:
        raise ValueError(
            f"X must hold codes, of shape (n_samples, {k}), got shape {shape}; "
            "transform makes them."
        )
    return V


def tame_weights(weights: AnyArray) -> tuple[AnyArray, float]:
    """Weights over their mean where that is extreme, and the mean: their scale means nothing."""
    scale = float(weights.mean(where=weights > 0))
    return (weights, 1.0) if 1e-3 <= scale <= 1e3 else (weights / scale, scale)


def ncw_weights(data: Any) -> AnyArray:
    """Normalized-cut weights γ_i ∝ 1 / (x_iᵀ Σ_l x_l) (Xu et al. 2003); 0 for a zero sample.

    Their mean is one, so that the loss keeps its size beside a penalty.
    """
    data = data.filled()
    ones = data.constant_rows(np.ones(1, dtype=data.dtype))
    degree = to_numpy(data.dot(data.tdot(ones)))[:, 0].astype(np.float64)
    weights = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    if not weights.any():
        raise ValueError("sample_weighting='ncw' needs a sample that is not zero.")
    return weights / weights.mean()
