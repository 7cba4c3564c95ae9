"""First step of a fit: check the user's input once, for all later steps.

This module contains the checks that every fit needs. `special_arrays` checks tensors, memory maps
and missing values. `knowledge_checks` checks labels, links and sample weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.validation import validate_data

from partwise.backends import DataMatrix, as_data
from partwise.backends.arrays import NO_MEMORY, AnyArray, limits, to_numpy
from partwise.backends.data_matrix import ZEROS, Swept
from partwise.backends.gaps import MaskedData
from partwise.backends.masks import as_missing
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.float64_products import in_double
from partwise.fitting.description import Checked, Description, FitInputs, Knowledge
from partwise.fitting.knowledge_checks import (
    check_fixed,
    check_knowledge,
    check_weights,
    compare_index,
)
from partwise.fitting.special_arrays import (
    check_local,
    check_special,
    move,
    weighed,
    with_gaps,
    without_gaps,
)
from partwise.knowledge.graph import IncompleteSamples
from partwise.knowledge.labels import as_ndarray
from partwise.model.terms import Term
from partwise.solvers.steps import ALIASES, STEPS, Step, check_step

#: Prior knowledge of a fit without labels, graph and links.
NOTHING = Knowledge()


def check(estimator: Any, spec: Description, X: Any, given: FitInputs) -> Checked:
    """Return the checked X, labels, sample weights and graph of a fit."""
    if spec.own_terms:
        check_terms(spec)
    solver = solver_name(spec)
    entry_weight = None if given.entry_weight is None else as_ndarray(given.entry_weight)
    if entry_weight is not None or spec.missing_values is not None:
        refuse_weighted_entries(spec, entry_weight)
    if spec.labelled and given.y is not None:
        compare_index(X, given.y)
    X, peak = check_matrix(estimator, spec, X, entry_weight, reset=True)
    knowledge = NOTHING
    about_samples = (given.y, given.graph, given.must_link, given.cannot_link)
    if spec.uses_labels or any(value is not None for value in about_samples):
        knowledge = check_knowledge(spec, given, X.shape[0], solver)
    k = n_parts(spec, X.shape[1], given.H, knowledge)
    if spec.fixed_components is not None:
        check_fixed(spec, knowledge, k)
    plain = not spec.penalized and knowledge.links is None
    start = (given.W, given.H)
    data, W, H, factor = rescale_extremes(spec, X, *start, plain=plain, peak=peak)
    weights, scale = None, 1.0
    if given.sample_weight is not None or spec.sample_weighting is not None:
        weights, scale = check_weights(spec, data, given.sample_weight, plain=plain)
    solver = solver_name(spec, data)
    return Checked(X, data, k, solver, knowledge, weights, W, H, factor, scale)


def refuse_weighted_entries(spec: Description, entry_weight: Any) -> None:
    """Raise an error if the objective cannot use entry weights or missing values."""
    if entry_weight is not None and (spec.mixed_labels or spec.signed):
        why = "since codes are mixed; use CDNMF" if spec.mixed_labels else "unlike NMF and GNMF"
        raise ValueError(f"{spec.estimator_name} does not support entry_weight, {why}.")
    if spec.robust:
        raise ValueError(
            "missing_values and entry_weight need beta_loss 'frobenius' or 'kullback-leibler', got "
            "'l21'."
        )


def check_terms(spec: Description) -> None:
    """Check the user's penalty terms: their type, and their degree if scale='unit'."""
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


def n_parts(spec: Description, p: int, H: Any, knowledge: Knowledge) -> int:
    """Return the number of parts k.

    If ``n_components`` is "auto", k is the number of rows of a custom H, or else the number of
    parts per class times the number of classes. Without labels it is the number of features ``p``.
    """
    if spec.n_components == "auto" and spec.init == "custom" and H is not None:
        return int(np.shape(H)[0])
    if spec.n_components == "auto" and knowledge.n_classes:
        return knowledge.n_classes * spec.components_per_class
    return p if spec.n_components in (None, "auto") else int(spec.n_components)


# -- choice of the solver --------------------------------------------------------------------------


def solver_name(spec: Description, data: DataMatrix | None = None) -> str:
    """Return the name of the solver for this objective, and refuse an unsuitable one.

    If ``solver`` is "auto" and ``data`` is given, a solver that would be slow on that data is
    skipped.
    """
    beta, own, k = spec.beta, spec.own_terms, spec.n_components
    joined = beta == 1 and bool(spec.graph_reg or spec.mixed_labels)
    able = [s for s in STEPS.values() if s.does(beta) and (s.takes_joined_rows or not joined)]
    if spec.solver != "auto":
        return _named_solver(spec, able)
    name = next((s.name for s in able if all(s.takes(term, beta) for term in own)), able[0].name)
    if own:
        check_step(name, spec.beta_loss, beta, own)
    if data is None or STEPS[name].pays(data, k if isinstance(k, int) else data.shape[1]):
        return name
    return next((s.name for s in STEPS.values() if s.name != name and s.does(beta)), name)


def _named_solver(spec: Description, able: list[Step]) -> str:
    """Return the solver that the user chose, or raise an error if it is unsuitable."""
    asked, beta = spec.solver, spec.beta
    if asked == "cd" and beta != 2:
        raise ValueError(
            f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta}"
        )
    name = ALIASES.get(asked, asked)
    check_step(name, spec.beta_loss, beta)
    if STEPS[name] not in able:
        beside = "a graph" if spec.graph_reg else "samples that mix classes"
        raise ValueError(
            f"solver={asked!r} cannot minimise the KL divergence with {beside}; "
            f"solvers that can: {', '.join(s.name for s in able)}."
        )
    check_step(name, spec.beta_loss, beta, spec.own_terms)
    return name


# -- checks of X -----------------------------------------------------------------------------------


def check_matrix(
    estimator: Any, spec: Description, X: Any, entry_weight: Any = None, *, reset: bool
) -> tuple[Any, float | None]:
    """Return the checked X and its largest absolute value (None if it is unknown).

    If entries are missing or have different weights, the result is a data matrix with entry
    weights.
    """
    if spec.missing_values is not None:
        X = as_missing(X, spec.missing_values)
    if type(X) is not np.ndarray and not sp.issparse(X):
        special = _special(estimator, spec, X, entry_weight, reset)
        if special is not None:
            return special, None
    whole = True if spec.missing_values is None else "allow-nan"
    ours = whole is True and isinstance(X, np.ndarray) and X.dtype in (np.float64, np.float32)
    found: tuple[float, float] | None = None  # the smallest and the largest entry
    with in_plain_words(estimator, X):
        if ours and X.ndim == 2:
            found = limits(X)  # this computation uses several threads
            if not np.isfinite(found).all():
                assert_all_finite(X, estimator_name=spec.estimator_name, input_name="X")
        X = validate_data(
            estimator,
            X,
            accept_sparse=False if spec.dense else ("csr", "csc"),
            dtype=[np.float64, np.float32],
            ensure_all_finite=False if ours else whole,
            reset=reset,
        )
    plain = found is not None and spec.device is None and entry_weight is None
    if found is None or spec.beta <= 0 or not plain:
        return _other_values(spec, X, entry_weight)
    if found[0] < 0 and not spec.signed:
        check_non_negative(X, spec.estimator_name)
    return X, max(np.abs(found))


def _special(
    estimator: Any, spec: Description, X: Any, entry_weight: Any, reset: bool
) -> Any | None:
    """Return checked data for a tensor, Dask array or memory map; None for other X."""
    if spec.local:
        check_local(X, spec.estimator_name)
    if spec.signed or spec.dense:
        return None
    special = check_special(estimator, X, reset=reset, beta=spec.beta)
    if special is None or entry_weight is None:
        return special
    return weighed(X, special, entry_weight, spec.missing_values)


def _other_values(spec: Description, X: Any, entry_weight: Any) -> tuple[Any, float | None]:
    """Return X as data, after checking the signs of entries and missing values."""
    if spec.signed:
        return X, None
    X, places, seen = without_gaps(X, spec.missing_values)
    values = X.data if sp.issparse(X) else X
    low, high = limits(values)
    if spec.missing_values is not None and not np.isfinite([low, high]).all():
        raise ValueError("Input X contains NaN or infinity in addition to its missing values.")
    if low < 0:
        check_non_negative(X, spec.estimator_name)
    if spec.beta <= 0 and X.min() == 0:
        raise ValueError(ZEROS)
    if places is None and entry_weight is None:
        return (X, high) if spec.device is None else (move(X, device=spec.device), None)
    if spec.beta not in (1.0, 2.0):
        raise ValueError(
            f"missing_values and entry_weight need beta_loss 'frobenius' or "
            f"'kullback-leibler', got {spec.beta_loss!r}."
        )
    wrap = as_data if spec.device is None else partial(move, device=spec.device)
    data = with_gaps(X, places, seen, entry_weight, wrap)
    return (wrap(data) if data is X and spec.device is not None else data), None


@contextmanager
def in_plain_words(estimator: Any, X: Any) -> Iterator[None]:
    """Add advice to errors of the validation of X.

    An error about NaN then mentions ``missing_values``; an error about text names the columns.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        said = str(error)
        if "contains NaN" in said and "missing_values" in estimator.get_params(deep=False):
            raise ValueError(
                f"Input X contains NaN. {type(estimator).__name__} takes entries that were not "
                "measured with missing_values=np.nan; otherwise fill them in or leave those "
                "samples out."
            ) from error
        if "could not convert" in said or "argument must be a string or a" in said:
            came = f"got {type(X).__name__}"
            if hasattr(X, "select_dtypes"):
                others = X.select_dtypes(exclude=["number", "bool"]).columns
                came = "without: " + ", ".join(f"column {name!r}" for name in others[:5])
            raise type(error)(f"X must hold numbers, samples in rows; {came} ({said}).") from error
        raise


def refuse_full_device(error: Exception, estimator_name: str) -> None:
    """Raise a MemoryError with advice if a torch device ran out of memory."""
    text = str(error)  # torch's OutOfMemoryError is a RuntimeError
    if "out of memory" in text or "allocate memory" in text:
        raise MemoryError(
            f"{estimator_name} ran out of memory outside the products with X "
            f"({text.splitlines()[0][:120]}); "
            f"{NO_MEMORY}"
        ) from error


def check_non_negative(X: Any, estimator_name: str) -> None:
    """Raise an error if X has negative entries, with the position of the lowest."""
    if sp.issparse(X):
        X = X.tocoo()
        if not limits(X.data)[0] < 0:
            return
        at = int(X.data.argmin())
        row, column, low = int(X.coords[0][at]), int(X.coords[1][at]), X.data[at]
    else:
        if not limits(X)[0] < 0:
            return
        row, column = (int(i) for i in np.unravel_index(X.argmin(), X.shape))
        low = X[row, column]
    raise ValueError(
        f"Negative values in data passed to {estimator_name}: the lowest is {low:g} at row {row}, "
        f"column {column}; SemiNMF, CF and LCF take signed data."
    )


def check_start(
    Z: Any,
    shape: tuple[int, int],
    dtype: Any,
    name: str,
    estimator_name: str,
    *,
    zeros: bool = False,
) -> AnyArray:
    """Return a custom initial factor, after checking its shape, dtype and values.

    The entries must be non-negative. They must not be all zero, unless ``zeros`` is true.
    """
    Z = check_array(Z, dtype=[np.float64, np.float32], input_name=name)
    for axis, word in enumerate(("first", "second")):
        if Z.shape[axis] != shape[axis]:
            raise ValueError(
                f"Array with wrong {word} dimension passed to {estimator_name} (input {name}). "
                f"Expected {shape[axis]}, but got {Z.shape[axis]}."
            )
    if Z.dtype != dtype:
        raise TypeError(f"{name} should have the same dtype as X. Got {Z.dtype}, expected {dtype}.")
    if (Z < 0).any():
        raise ValueError(f"Negative values in data passed to {estimator_name} (input {name})")
    if not zeros and not Z.any():
        raise ValueError(f"Array passed to {estimator_name} (input {name}) is full of zeros.")
    return Z


def check_codes(V: Any, k: int) -> Any:
    """Return the part weights V that a user passed, if they have one column per part."""
    if isinstance(V, (list, tuple)) or hasattr(V, "iloc"):
        V = np.asarray(V)
    shape = tuple(getattr(V, "shape", ()))
    if len(shape) != 2 or shape[1] != k:
        raise ValueError(
            f"X must contain part weights of shape (n_samples, {k}), as transform returns; got "
            f"shape {shape}."
        )
    return V


def searchable(X: Any) -> tuple[Any, Literal["exact", "approximate"]]:
    """Return X in a form for the nearest-neighbour search, and the search method."""
    if isinstance(X, MaskedData):
        if X.base.whole() is not None and X.lack.entries.whole() is not None:
            return IncompleteSamples.of(X), "exact"
        return X.filled(), "approximate"
    if isinstance(X, Swept):
        X = X.filled()
        whole = X.whole()
        return (X, "approximate") if whole is None else (to_numpy(whole), "exact")
    return to_numpy(X), "exact"


# -- checks of the magnitude of X ------------------------------------------------------------------


def rescale_extremes(
    spec: Description,
    X: Any,
    W: Any = None,
    H: Any = None,
    *,
    plain: bool | None = None,
    peak: float | None = None,
) -> tuple[DataMatrix, Any, Any, float]:
    """Return X, W and H, rescaled if the values of X are extreme, and X's divisor.

    The divisor is a power of four, and the initial W and H are divided by its root.

    Only models without penalties (``plain``) are rescaled: the weight of a penalty would have to
    change with the scale of X. Other models compute in float64, or refuse X.
    """
    plain = not spec.penalized if plain is None else plain
    # CF and LCF use X only through inner products of samples
    alone = spec.signed and not spec.free_parts
    factor = 1.0 if alone else extreme_factor(X, peak)
    if factor == 1:
        plain_array = type(X) is np.ndarray  # dense arrays in memory are the most frequent case
        return DenseData(X) if plain_array else as_data(X), W, H, 1.0
    # The objective grows like X to the power beta, and gradient norms contain its fourth power.
    log = np.log10(factor) * spec.beta
    if abs(log) > 305:
        refuse_values(spec.estimator_name, log > 0, f"beta_loss={spec.beta:g}")
    if not plain:
        large = np.log10(factor) * 4 > 305
        if large or (factor < 1 and spec.beta not in (1, 2)):
            why = "a model with penalties, whose weights would have to change with its unit"
            refuse_values(spec.estimator_name, large, why)
        return in_double(as_data(X)), W, H, 1.0  # float32 squares overflow above 1e19
    root = np.sqrt(factor)
    W, H = (Z if Z is None else np.asarray(Z) / Z.dtype.type(root) for Z in (W, H))
    # scipy returns float64 for a sparse float32 matrix divided by a float32 number.
    return as_data((X / X.dtype.type(factor)).astype(X.dtype, copy=False)), W, H, factor


def refuse_values(estimator_name: str, large: bool, why: str) -> None:
    """Raise an error, because the values of X are too large or too small."""
    size = "large" if large else "small"
    raise ValueError(
        f"{estimator_name}: values of X are too {size} for {why}; divide X by its maximum."
    )


def extreme_factor(X: Any, peak: float | None = None) -> float:
    """Return a power of four near the largest entry of X if that is extreme, else 1.

    Dividing X by a power of four is exact in floating point, and so is multiplying both factors by
    its square root after the fit.
    """
    values = X.data if sp.issparse(X) else X
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap) or not values.size:
        return 1.0
    if peak is None:
        peak = max(abs(limit) for limit in limits(values))
    limit = 1e60 if values.dtype == np.float64 else 1e9
    if peak <= 0 or 1 / limit <= peak <= limit:
        return 1.0
    return float(4.0 ** round(np.log2(peak) / 2))


def check_scale(constant: float, has_values: bool, estimator_name: str) -> None:
    """Raise an error if squares of entries of X overflow, or underflow to zero.

    ``constant`` is proportional to the sum of squares of X. It must be finite, and positive if X
    ``has_values``.
    """
    if not np.isfinite(constant) or (constant == 0 and has_values):
        refuse_values(estimator_name, constant != 0, "this loss")


def check_squares(X: Any, estimator_name: str) -> None:
    """Raise an error if X is zero, or too extreme for products of X with itself.

    Concept factorization needs squares of inner products of samples, which are fourth powers of X.
    """
    values = X.data if sp.issparse(X) else X
    if not values.size or not np.any(values):
        raise ValueError(
            f"{estimator_name}: X holds only zeros; there is nothing to learn from it."
        )
    factor = extreme_factor(X)
    if factor != 1:
        refuse_values(estimator_name, factor > 1, f"products of X with itself in {values.dtype}")
