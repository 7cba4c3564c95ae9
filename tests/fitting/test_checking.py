"""Tests that bad input raises an error with the argument and value, and keeps a fitted model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import partwise
from partwise import NMF, PartsClassifier, SemiNMF, non_negative_factorization
from partwise.backends import SMALL_SPARSE
from partwise.fitting import checking
from partwise.model.losses import beta_of
from partwise.solvers.init import INITS
from plain_fits import (
    PENALTIES,
    SOLVER_IDS,
    SOLVERS,
    SPARSE,
    assert_close,
    assert_same_fit,
    data_for,
    make,
    make_data,
    make_sparse,
    naive_objective,
    one_blas_thread,  # noqa: F401
    read_only,
)

KL = "kullback-leibler"
X = np.random.default_rng(0).uniform(0.1, 1.0, (12, 8))
CONTAINERS = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "frame": pd.DataFrame,
    "csr": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_array,
}
LOSSES = ["frobenius", KL, "itakura-saito", 1.5]


def model(**params):
    return NMF(3, **{"random_state": 0, "max_iter": 5, "tol": 0.0, **params})


def spoiled(value, row=7, column=2):
    bad = X.copy()
    bad[row, column] = value
    return bad


# -- bad values in X -------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("method", ["fit", "fit_transform", "transform", "score"])
def test_negative(method, container, loss):
    nmf = model(beta_loss=loss)
    given = X if container != "frame" else pd.DataFrame(X)
    if method in ("transform", "score"):
        nmf.fit(given)
    with pytest.raises(ValueError) as caught:
        getattr(nmf, method)(CONTAINERS[container](spoiled(-0.3)))
    text = str(caught.value)
    assert text.startswith("Negative values in data passed to NMF")
    for part in ("-0.3", "row 7", "column 2", "CF", "LCF"):
        assert part in text


def test_negative_in_a_large_sparse_matrix_is_found_in_its_place():
    S = sp.random_array((300, 200), density=0.1, random_state=0, format="lil")
    assert S.shape[0] * S.shape[1] > SMALL_SPARSE
    S[123, 45] = -2.5
    with pytest.raises(ValueError, match=r"-2\.5.*123.*45"):
        model().fit(sp.csc_array(S))


def test_the_lowest_of_several_negatives_is_named():
    bad = spoiled(-0.1)
    bad[3, 4] = -0.9
    with pytest.raises(ValueError, match=r"-0\.9.*3.*4"):
        model().fit(bad)


def test_duplicates_that_sum_to_a_non_negative_entry_are_data_too():
    """Check that entries 3 and -1 at one position of a COO matrix are accepted as 2."""
    rows, columns = np.array([0, 0, 1, 2]), np.array([0, 0, 1, 2])
    S = sp.coo_array((np.array([3.0, -1.0, 1.0, 1.0]), (rows, columns)), shape=(3, 3))
    got, expected = (NMF(2, random_state=0, max_iter=5, tol=0).fit(A) for A in (S, S.toarray()))
    np.testing.assert_allclose(got.components_, expected.components_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(container, value):
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model().fit(CONTAINERS[container](spoiled(value)))
    nmf = model().fit(X)
    given = CONTAINERS[container](spoiled(value))
    if container == "frame":
        given = given.to_numpy()
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        nmf.transform(given)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.empty((0, 5)), "0 sample"),
        (np.empty((5, 0)), "0 feature"),
        (X[0], "Expected 2D array"),
        (X[None], "dim|array with 3"),
        (3.0, "Expected 2D array"),
        (X.astype(complex) + 1j, "[Cc]omplex"),
        (np.array([["a", "b"], ["c", "d"]], dtype=object), "convert|float"),
        (np.array([["a", "b"], ["c", "d"]]), "convert|float"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), "convert|float"),
        (sp.csr_array((0, 4)), "0 sample"),
        (sp.csr_array(X.astype(complex)), "[Cc]omplex"),
    ],
    ids=[
        "no samples", "no features", "1-D", "3-D", "0-D", "complex", "objects", "strings",
        "mixed frame", "empty sparse", "complex sparse",
    ],
)  # fmt: skip
def test_not_a_matrix_of_numbers(bad, message):
    with pytest.raises(ValueError, match=message):
        model().fit(bad)


def test_objects_that_are_numbers_are_converted():
    a, b = model().fit(X.astype(object)), model().fit(X)
    np.testing.assert_array_equal(a.components_, b.components_)


@pytest.mark.parametrize("solver", ["hals", "nesterov", "mu"])
@pytest.mark.parametrize(("factor", "word"), [(1e200, "too large"), (1e-200, "too small")])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_values_whose_squares_leave_the_range(container, factor, word, solver):
    """Check that X whose squares overflow or underflow is refused without a NumPy warning.

    The settings of pytest turn every warning into an error.
    """
    with pytest.raises(ValueError, match=rf"{word}.*maximum"):
        model(solver=solver).fit(container(X * factor))


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_kl_needs_no_squares(factor):
    nmf = model(beta_loss=KL, init="random").fit(X * factor)
    assert np.isfinite(nmf.objective_) and np.isfinite(nmf.components_).all()
    assert np.isfinite(nmf.transform(X * factor)).all()


@pytest.mark.parametrize("loss", ["itakura-saito", -0.5])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_zeros_with_beta_at_most_zero(loss, container):
    with pytest.raises(ValueError, match=r"beta_loss <= 0.*X"):
        model(beta_loss=loss, solver="mu").fit(container(spoiled(0.0)))


# -- W and H as a custom start ---------------------------------------------------------------

W, H = X[:, :3].copy(), X[:3].copy()


@pytest.mark.parametrize(
    ("W", "H", "error", "message"),
    [
        (None, H, ValueError, r"init='custom'.*W and H"),
        (W, None, ValueError, r"init='custom'.*W and H"),
        (W[:-1], H, ValueError, r"\(input W\).*12.*11"),
        (W[:, :2], H, ValueError, r"\(input W\).*3.*2"),
        (W, H[:2], ValueError, r"\(input H\).*3.*2"),
        (W, H[:, :5], ValueError, r"\(input H\).*8.*5"),
        (W[:, 0], H, ValueError, "Expected 2D array"),
        (-W, H, ValueError, r"Negative.*W"),
        (W, -H, ValueError, r"Negative.*H"),
        (0 * W, H, ValueError, r"input W.*zero"),
        (W, 0 * H, ValueError, r"input H.*zero"),
        (np.full_like(W, np.nan), H, ValueError, "W contains NaN"),
        (W, np.full_like(H, np.inf), ValueError, "H contains infinity"),
        (W.astype(np.float32), H, TypeError, "W.*X.*float32.*float64"),
        (W, H.astype(np.float32), TypeError, "H.*X.*float32.*float64"),
    ],
)
def test_custom_start(W, H, error, message):
    nmf = model(init="custom")
    with pytest.raises(error, match=message):
        nmf.fit(X, W=W, H=H)
    assert not hasattr(nmf, "components_")


def test_a_start_that_is_not_used_warns():
    with pytest.warns(RuntimeWarning, match="init!='custom'.*W or H"):
        model(init="random").fit(X, W=W, H=H)


@pytest.mark.parametrize("init", ["nndsvd", "nndsvda", "nndsvdar"])
def test_nndsvd_with_too_many_parts(init):
    with pytest.raises(ValueError, match=rf"init = '{init}'"):
        NMF(9, init=init).fit(X)


def test_fixed_basis_needs_one():
    with pytest.raises(ValueError, match=r"update_H=False.*H"):
        non_negative_factorization(X, n_components=3, update_H=False)
    with pytest.raises(ValueError, match=r"\(input H\)"):
        non_negative_factorization(X, H=H[:, :5], n_components=3, update_H=False)


# -- values of parameters --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "known"),
    [
        ({"init": "spam"}, INITS),
        ({"solver": "spam"}, ["auto", "cd", "hals", "mu", "nesterov", "newton"]),
        ({"beta_loss": "spam"}, ["frobenius", KL, "itakura-saito"]),
        ({"sample_weighting": "spam"}, ["ncw"]),
        ({"mu_rule": "spam"}, ["lee-seung", "lin"]),
        ({"alpha_H": "spam"}, ["same"]),
        ({"n_components": "spam"}, ["auto"]),
    ],
)
def test_unknown_names_come_with_the_known_ones(params, known):
    (name,) = params
    with pytest.raises(ValueError) as caught:
        NMF(**{"n_components": 3, **params}).fit(X)
    text = str(caught.value)
    assert f"'{name}' parameter of NMF" in text and "'spam'" in text
    for word in known:
        assert f"'{word}'" in text


@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 0}, {"n_components": -1}, {"n_components": 2.5}, {"tol": -1e-3},
        {"tol": "small"}, {"max_iter": 0}, {"max_iter": 10.5}, {"n_init": 0}, {"alpha_W": -1},
        {"alpha_H": -0.1}, {"l1_ratio": 1.1}, {"l1_ratio": -0.1}, {"shuffle": "yes"},
        {"random_state": "seed"}, {"tol": np.nan}, {"alpha_W": np.inf}, {"beta_loss": np.nan},
    ],
    ids=lambda params: "{}={}".format(*next(iter(params.items()))),
)  # fmt: skip
def test_numbers_out_of_range(params):
    (name,) = params
    with pytest.raises(ValueError, match=name):
        NMF(**{"n_components": 3, **params}).fit(X)


@pytest.mark.parametrize(
    ("solver", "loss", "able"),
    [
        ("hals", KL, ["mu", "newton"]),
        ("nesterov", KL, ["mu", "newton"]),
        ("hals", 1.5, ["mu"]),
        ("newton", "frobenius", ["mu", "hals", "nesterov"]),
        ("newton", "itakura-saito", ["mu"]),
        ("newton", 0.5, ["mu"]),
    ],
)
@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_a_solver_that_cannot_do_the_loss_is_refused_with_those_that_can(
    solver, loss, able, method
):
    nmf = model(solver=solver, beta_loss=loss)
    with pytest.raises(ValueError) as caught:
        getattr(nmf, method)(X)
    text = str(caught.value)
    assert repr(solver) in text and repr(loss) in text
    listed = text.rsplit(":", 1)[1]
    assert sorted(word.strip(" .") for word in listed.split(",")) == sorted(able)


def test_cd_is_refused_in_scikit_learns_words():
    with pytest.raises(ValueError, match=r"'cd'.*beta_loss = 1"):
        model(solver="cd", beta_loss=KL).fit(X)


def test_lin_rule_without_mu_is_refused_or_has_no_say():
    """Check that `mu_rule` with another solver is refused or has no effect."""
    plain = model(solver="hals", init="random").fit(X)
    try:
        ruled = model(solver="hals", init="random", mu_rule="lin").fit(X)
    except ValueError as error:
        assert "mu_rule" in str(error)
        return
    np.testing.assert_array_equal(ruled.components_, plain.components_)


# -- sample weights --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(11), "sample_weight.shape"),
        (np.ones((12, 2)), "[Ss]ample.weight"),
        (-np.ones(12), "[Nn]egative"),
        (np.zeros(12), "[Ss]ample.weight.* (non-zero|all zero)"),
        (np.full(12, np.nan), "NaN"),
        (["a"] * 12, "convert|float"),
    ],
)
def test_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        model().fit(X, sample_weight=weights)


# -- after fitting ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score"])
def test_not_fitted(method):
    with pytest.raises(NotFittedError, match="fit"):
        getattr(model(), method)(X)


def test_not_fitted_feature_names():
    with pytest.raises(NotFittedError):
        model().get_feature_names_out()


@pytest.mark.parametrize("method", ["transform", "score"])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_wrong_number_of_features(method, container):
    nmf = model().fit(X)
    with pytest.raises(ValueError, match=r"5.*NMF.*8"):
        getattr(nmf, method)(container(X[:, :5]))


def test_inverse_transform_of_codes_of_another_width():
    fitted = model().fit(X)
    for codes in (X, X[:, 0], sp.csr_array(X), 3.0):
        with pytest.raises(ValueError, match=r"\(n_samples, \d+\)"):
            fitted.inverse_transform(codes)


def test_a_failed_fit_leaves_nothing_behind():
    nmf = model()
    for bad in (spoiled(-1.0), X * 1e200):
        with pytest.raises((ValueError, RuntimeWarning)):
            nmf.fit(bad)
        assert [name for name in vars(nmf) if name.endswith("_")] == []


def test_bad_input_is_not_modified():
    bad = spoiled(-1.0)
    kept = bad.copy()
    with pytest.raises(ValueError):
        model().fit(bad)
    np.testing.assert_array_equal(bad, kept)


def test_unknown_name_of_the_package():
    with pytest.raises(AttributeError, match="'Spam'"):
        partwise.Spam  # noqa: B018
    assert "NMF" in dir(partwise)


# -- very small and very large values in X -----------------------------------------------------

EDGES = {
    "GNMF": {"graph_reg": 1.0},
    "CDNMF": {},
    "CF": {},
    "LCF": {},
    "NTF": {"image_shape": (2, 3)},
    "NMF": {"alpha_W": 0.1},
}


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
@pytest.mark.parametrize("scale", [1e-160, 1e-150, 1e-100, 1e-20, 1e15, 1e17, 1e20, 1e100, 1e150])
@pytest.mark.parametrize("name", EDGES)
def test_extreme_values_are_fitted_or_refused_by_their_size(name, scale):
    """Check that X with extreme values is fitted, or refused with advice to rescale X.

    Regression test: such values once caused misleading errors about V and about the kernel.
    """
    if name == "NTF":
        pytest.importorskip("tensorly", reason="NTF needs tensorly")
    dtype = np.float32 if 1e-30 < scale < 1e30 else np.float64
    X = (np.random.default_rng(0).random((9, 6)) * scale).astype(dtype)
    model = (
        getattr(partwise, name)(2, max_iter=10, n_clusters=1, random_state=0, **EDGES[name])
        if name != "NMF"
        else partwise.NMF(2, max_iter=10, random_state=0, **EDGES[name])
    )
    try:
        model.fit(X, np.arange(9) % 2)
    except ValueError as error:
        size = "large" if scale > 1 else "small"
        assert f"{name}: values of X are too {size}" in str(error)
        assert "divide X by its maximum" in str(error)
    else:
        assert np.isfinite(model.objective_) and np.isfinite(np.asarray(model.embedding_)).all()


def test_zeros_and_many_components_give_clear_answers():
    zeros = np.zeros((6, 4))
    with pytest.raises(ValueError, match=r"CF.*X"):
        partwise.CF(2).fit(zeros)
    with pytest.raises(ValueError, match="'ncw'"):
        partwise.NMF(2, sample_weighting="ncw").fit(zeros)
    pytest.importorskip("tensorly", reason="NTF needs tensorly")
    model = partwise.NTF(2, image_shape=(2, 2), n_clusters=1).fit(zeros)
    assert model.objective_ == 0 and not model.components_.any()
    with pytest.raises(ValueError, match=r"init='svd'.*n_components.*4.*5"):
        partwise.NTF(5, image_shape=(2, 2), init="svd").fit(zeros + 1)


@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
def test_ntf_does_not_depend_on_extreme_units():
    pytest.importorskip("tensorly", reason="NTF needs tensorly")
    X = np.random.default_rng(0).random((9, 6))
    settings = {"image_shape": (2, 3), "max_iter": 20, "n_clusters": 1, "random_state": 0}
    one = partwise.NTF(2, **settings).fit(X)
    far = partwise.NTF(2, **settings).fit(X * 4.0**60)
    # The random start of tensorly does not scale with X, so the iterates differ slightly.
    assert far.objective_ == pytest.approx(one.objective_ * 16.0**60, rel=0.01)


def test_a_flag_of_the_processor_alone_refuses_no_fit(monkeypatch):
    """Check that an overflow flag that is already set does not make a fit fail.

    BLAS may set this flag of the processor for unused vector lanes of small matrices.
    """
    X = np.random.default_rng(0).random((9, 6))
    real = checking.check_matrix

    def flagged(*args, **kw):
        np.float64(1e300) * np.float64(1e300)
        return real(*args, **kw)

    plain = partwise.NMF(2, max_iter=5, tol=0, random_state=0).fit(X)
    monkeypatch.setattr(checking, "check_matrix", flagged)
    model = partwise.NMF(2, max_iter=5, tol=0, random_state=0).fit(X)
    assert np.array_equal(model.components_, plain.components_)


def with_duplicates(X):
    """Return X as an unsorted CSR array with duplicates and an explicit zero.

    Every entry is stored as two halves.
    """
    S = sp.csr_array(X)
    indices, data, indptr = [], [], [0]
    for i in range(S.shape[0]):
        at = slice(S.indptr[i], S.indptr[i + 1])
        indices += [*S.indices[at][::-1], *S.indices[at], 0]
        data += [*(S.data[at][::-1] / 2), *(S.data[at] / 2), 0.0]
        indptr.append(len(indices))
    return sp.csr_array((np.array(data), np.array(indices), np.array(indptr)), shape=S.shape)


KINDS = {
    "fortran": np.asfortranarray,
    "read-only": read_only,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    "frame": pd.DataFrame,
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc_array": sp.csc_array,
    "csc_matrix": sp.csc_matrix,
    "coo_array": sp.coo_array,
    "coo_matrix": sp.coo_matrix,
    "duplicates": with_duplicates,
}


MAIN = [row for row in SOLVERS if row[1] is None and row[2] in ("frobenius", KL, 1.5)]


MAIN_IDS = ["-".join(str(s) for s in row if s is not None) for row in MAIN]


def snapshot(X):
    if sp.issparse(X):
        parts = [X.data, *((X.indices, X.indptr) if X.format != "coo" else X.coords)]
        return [np.array(part) for part in parts]
    return [np.array(X)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("solver", "rule", "loss"), MAIN, ids=MAIN_IDS)
def test_kinds_of_arrays_give_the_same_result(solver, rule, loss, kind):
    X = np.round(make_data(), 2)
    given = KINDS[kind](X)
    kept = snapshot(given)
    model = make(solver, rule, loss, max_iter=15)
    got, expected = clone(model).fit(given), model.fit(X)
    # The tolerance for 15 iterations with sums in another order.
    assert_same_fit(got, expected, 1e-8)
    assert_close(np.asarray(got.transform(given)), expected.transform(X), 1e-8)
    for before, after in zip(kept, snapshot(given)):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "duplicates"])
@pytest.mark.parametrize(
    ("solver", "loss"), [("mu", "frobenius"), ("mu", KL), ("newton", KL), ("mu", 1.5)]
)
def test_large_sparse_is_the_dense_result(solver, loss, kind):
    """Check that large sparse and dense data give the same fit.

    The solver "hals" is left out, because its sweeps differ for sparse data.
    """
    dense = make_sparse().toarray()
    given = KINDS[kind](dense)
    kept = snapshot(given)
    model = make(solver, None, loss, max_iter=15)
    got, expected = clone(model).fit(given), model.fit(dense)
    assert_same_fit(got, expected, 1e-7)
    for before, after in zip(kept, snapshot(given)):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("solver", ["hals", "nesterov"])
def test_large_sparse_ends_where_dense_does(solver):
    S = make_sparse()
    model = make(solver, tol=1e-5, max_iter=5000, init="nndsvda")
    sparse, dense = clone(model).fit(S), model.fit(S.toarray())
    # Both fits use the same convergent solver and start, and `tol` bounds their distance from the
    # minimum.
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-3)
    assert sparse.objective_ == pytest.approx(naive_objective(S, sparse), rel=1e-10)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, bool])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_integers_and_booleans_are_converted(dtype, container):
    X = (np.random.default_rng(0).poisson(1.0, (30, 20)) % 5).astype(dtype)
    got, expected = make().fit(container(X)), make().fit(X.astype(float))
    assert_same_fit(got, expected, 1e-8)
    assert got.components_.dtype == np.float64


@pytest.mark.parametrize("sparse", SPARSE)
@pytest.mark.parametrize("name", ["none", "both"])
@pytest.mark.parametrize(("solver", "rule", "loss"), SOLVERS, ids=SOLVER_IDS)
def test_float32_stays_and_is_close(solver, rule, loss, name, sparse):
    if sparse and beta_of(loss) <= 0:
        sparse = False  # β <= 0 refuses zeros, so there is no sparse case
    X = make_sparse() if sparse else data_for(loss)
    near = make("mu", None, loss, max_iter=30, **PENALTIES[name]).fit(X)
    W, H = near.embedding_ + 0.01, near.components_ + 0.01
    # The start is near a minimum. From farther away, an extrapolation that is rejected in only one
    # precision leads to another local minimum.
    model = make(solver, rule, loss, init="custom", max_iter=5, **PENALTIES[name])
    double = clone(model).fit(X, W=W, H=H)
    W32, H32 = W.astype(np.float32), H.astype(np.float32)
    single = model.fit(X.astype(np.float32), W=W32, H=H32)
    for Z in (single.embedding_, single.components_, single.transform(X.astype(np.float32))):
        assert Z.dtype == np.float32 and np.isfinite(Z).all()
    assert isinstance(single.objective_, float)
    # Rounding is about 1e-7 of ½‖X‖², which is about ten times the objective. VUᵀ has a small
    # positive lower bound, which is larger in float32; the extrapolation of "newton" reaches this
    # bound, so its iterates differ more.
    tolerance = 1e-2 if solver == "newton" else 1e-4
    assert single.objective_ == pytest.approx(double.objective_, rel=tolerance)
    assert single.objective_ == pytest.approx(naive_objective(X, single, PENALTIES[name]), rel=1e-4)
    history = single.objective_history_
    size = 0.5 * (X**2).sum() + history[0]
    assert np.diff(history).max() <= (1e-7 * size if solver == "mu" else 0)


def test_the_float32_start_is_that_of_float64():
    X = make_data()
    a, b = (make(max_iter=1, init="nndsvda").fit(X.astype(t)) for t in (np.float32, np.float64))
    assert_close(a.components_, b.components_, 1e-3)


@pytest.mark.parametrize("model", [NMF(2), PartsClassifier()])
@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (object(), TypeError, "X.*object"),
        ([[1, "red"], [2, "blue"]], ValueError, "list.*'red'"),
        (pd.DataFrame({"a": [1, 2], "hue": ["red", "blue"]}), ValueError, "'hue'"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_named(model, X, error, words):
    with pytest.raises(error, match=words):
        model.fit(X, [0, 1])


def test_entry_weights_are_refused_where_they_would_be_ignored():
    with pytest.raises(ValueError, match="entry_weight"):
        SemiNMF(2).fit(np.eye(4), entry_weight=np.ones((4, 4)))
