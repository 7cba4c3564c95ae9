"""What `MiniBatchNMF` begins with: rows from anywhere, checked as they are read, labels, parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise._sklearn import check_n_features
from partwise.backends import as_data
from partwise.backends.batches import Batch, InMemory, RowSource, row_source
from partwise.backends.numeric import Array
from partwise.estimators._base import Factorizer
from partwise.fitting import check_arrays, validation
from partwise.fitting.checking import check_matrix
from partwise.fitting.objective_terms import elastic_net
from partwise.fitting.starts import init_name
from partwise.knowledge.labels import encode_labels
from partwise.model.losses import beta_of, make_loss
from partwise.solvers import init as starts
from partwise.solvers.online import Online


def source_of(estimator: Factorizer, X: Any, *, reset: bool) -> RowSource:
    """X by rows; checked where it is in memory, else when it is read."""
    source = row_source(X)
    if source is None:
        X = check_matrix(estimator, estimator._describe(), X, reset=reset)
        return InMemory(sp.csr_array(X) if sp.issparse(X) else X)
    if 0 in source.shape:
        raise ValueError(f"X must have samples and features, got shape {source.shape}.")
    check_n_features(estimator, X, reset=reset)
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return source


def checked(estimator: Any, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The batches of a first pass, refused where they hold what NMF cannot."""
    name, beta = type(estimator).__name__, beta_of(estimator.beta_loss)
    for rows, X in batches:
        validation.check_finite(X)
        validation.check_non_negative(X, name)
        if beta <= 0 and X.min() == 0:
            raise ValueError(check_arrays.ZEROS)
        yield Batch(rows, X)


def class_codes(estimator: Any, y: Any, n: int) -> Array | None:
    """The place in ``classes_`` of each label; -1: none. New classes are appended."""
    labels = encode_labels(check_arrays.plain(y), n) if estimator.hard_labels else None
    if labels is None:
        return None
    known: list[Any] = getattr(estimator, "classes_", np.zeros(0)).tolist()
    new = [name for name in labels.classes.tolist() if name not in known]
    place = {name: at for at, name in enumerate(known + new)}
    estimator.classes_ = np.asarray(list(place), dtype=labels.classes.dtype if not known else None)
    codes = np.array([place[name] for name in labels.classes.tolist()] + [-1])
    return codes[labels.codes]


def first_parts(
    estimator: Factorizer, sample: Any, k: int, H: Any, rng: np.random.RandomState
) -> Array:
    """The first U, from some samples."""
    data = as_data(sample)
    name = init_name(estimator._describe(), data, k)
    if name == "custom":
        if H is None:
            raise ValueError("init='custom' needs H.")
        H = validation.check_start(
            check_arrays.plain(H), (k, data.shape[1]), data.dtype, "H", type(estimator).__name__
        )
        return np.ascontiguousarray(H.T)
    return starts.start(data, k, name, rng)[1]


def online_of(estimator: Any, U: Array) -> Online:
    """What learns from batches, from these parts on; penalties are for rows that count so often."""
    on_U = estimator.alpha_W if estimator.alpha_H == "same" else float(estimator.alpha_H)
    terms_V, terms_U = (
        partial(elastic_net, alpha, estimator.l1_ratio, U.dtype)
        for alpha in (estimator.alpha_W * len(U), on_U)
    )
    forget = float(estimator.forget_factor)
    return Online(make_loss(estimator.beta_loss), U, forget, terms_V, terms_U)
