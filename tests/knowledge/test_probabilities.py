"""Tests of class probabilities instead of labels as y, and of LpCNMF, which propagates labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

import partwise
import reference
from methods import FROBENIUS, KL, LOSSES, assert_close, make_problem, rise
from partwise import CDNMF, CNMF, GNMF, NMFDC, ConstrainedNMF, LpCNMF, SemiGNMF
from partwise.backends import as_data
from partwise.fitting.stating import class_cost
from partwise.knowledge.labels import encode_labels, propagate, read_labels
from partwise.model.factor_model import FactorModel
from partwise.model.losses import make_loss
from partwise.model.maps import MixedRows, SharedRows
from partwise.model.terms import Ridge
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import make_step

Q = make_problem(seed=4, n=30, p=19)
N = len(Q.X)
START = {"W": Q.V, "H": Q.U.T.copy()}
rng = np.random.default_rng(0)
#: Class probabilities of three classes; one third of the samples is unknown.
P = rng.dirichlet(0.3 * np.ones(3), size=N)
P[rng.random(N) < 0.4] = np.nan
P[0], P[1], P[2] = [1, 0, 0], [0, 0.5, 0.5], np.nan
A = reference.mixing_matrix(P)
SHORT = {"init": "custom", "tol": 0.0, "max_iter": 30}
NAN = float("nan")
quiet = pytest.mark.filterwarnings("ignore:Maximum number", "ignore:n_neighbors")


def one_hot(y, c=3):
    return np.where((y >= 0)[:, None], np.eye(c)[y], NAN)


# -- accepted and refused forms of y --------------------------------------------------------------


@pytest.mark.parametrize(
    "y, message",
    [
        (np.full((3, 2), 0.4), "0.8 in row 0"),
        ([[1.0, 0.0], [0.5, 0.49], [0, 1]], "0.99 in row 1"),
        ([[1.0, 0.0], [1.5, -0.5], [0, 1]], r"\[1.5, -0.5\] in row 1"),
        ([[1.0, 0.0], [np.inf, 0], [0, 1]], "inf.* in row 1"),
        ([[1.0, 0.0], [0.5, NAN], [0, 1]], "row 1 of y.*NaN"),
        (np.eye(2), "3.*2"),
        (np.eye(4), "3.*4"),
        ([["a", "b"]] * 3, r"y.*\(3, 2\).*2"),
        (np.zeros((3, 2)), "0 in row 0"),
        (np.zeros((3, 2, 2)), r"shape \(3, 2, 2\)"),
        ([[1, 2], [1]], "^y .*length 3"),
    ],
)
def test_what_is_no_probability_is_refused(y, message):
    with pytest.raises(ValueError, match=message):
        read_labels(y, 3)
    with pytest.raises(ValueError, match=message):
        CDNMF(2).fit(Q.X[:3], y)


def test_classes_are_numbers_or_columns_and_those_that_nobody_has_are_left_out():
    y = pd.DataFrame({"c": [0.2, NAN, 0.0], "never": [0.0, NAN, 0.0], "a": [0.8, NAN, 1.0]})
    labels = read_labels(y, 3)
    assert labels.classes.tolist() == ["c", "a"] and labels.codes.tolist() == [1, -1, 1]
    np.testing.assert_array_equal(labels.shares, [[0.2, 0.8], [0, 0], [0, 1]])
    assert read_labels(np.eye(3, dtype=int), 3).classes.tolist() == [0, 1, 2]
    assert not read_labels(np.eye(3), 3).doubtful
    nothing = read_labels(np.full((3, 2), NAN), 3)
    assert nothing.n_labelled == nothing.n_classes == 0
    rounded = read_labels([[0.333, 0.333, 0.333]], 1).shares
    np.testing.assert_allclose(rounded.sum(), 1, rtol=1e-15)


@settings(deadline=None, max_examples=20)
@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(1, 9), st.integers(2, 5)), elements=st.floats(0, 1)
    ),
    st.data(),
)
def test_any_probabilities_make_rows_that_add_up_to_one(shares, data):
    shares[:, 0] += 1e-3
    y = shares / shares.sum(axis=1, keepdims=True)
    y[data.draw(hnp.arrays(bool, len(y)))] = NAN
    labels = read_labels(y, len(y))
    known = ~np.isnan(y[:, 0])
    np.testing.assert_array_equal(labels.mask, known)
    np.testing.assert_allclose(labels.probabilities.sum(axis=1), known, atol=1e-12)
    rows = MixedRows(labels.probabilities)
    dense = rows.A.toarray()
    np.testing.assert_allclose(dense.sum(axis=1), 1, rtol=1e-12)
    # The solvers require that diag(Aᵀ1) - AᵀA has no negative eigenvalue.
    assert np.linalg.eigvalsh(np.diag(rows.counts) - dense.T @ dense).min() >= -1e-10
    Z = np.arange(2.0 * rows.n_rows).reshape(-1, 2)
    np.testing.assert_allclose(rows.reduce(rows.expand(Z)), rows.gram() @ Z, atol=1e-9)


# -- class costs weighted by probabilities --------------------------------------------------------


@pytest.mark.parametrize("k, per_class", [(4, 1), (2, 1), (5, 2), (3, 2)])
def test_the_cost_is_the_mean_of_costs(k, per_class):
    got = class_cost(read_labels(P, N), k, per_class)
    np.testing.assert_allclose(got, reference.class_cost_in_doubt(P, k, per_class), atol=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
def test_cdnmf_with_probabilities_is_the_formula(loss):
    D = reference.class_cost_in_doubt(P, 4)
    run = reference.cdnmf_frobenius if loss == FROBENIUS else reference.cdnmf_kl
    V, U = reference.normalize_columns(Q.V, Q.U, 2 if loss == FROBENIUS else 1)
    _, _, history = run(Q.X, V, U, 30, D=D, class_reg=1.5)
    model = CDNMF(4, class_reg=1.5, beta_loss=loss, solver="mu", scale="paper", **SHORT)
    model.fit(Q.X, P, **START)
    assert_close(model.objective_history_, history, 1e-10)
    assert model.classes_.tolist() == [0, 1, 2] and model.component_classes_[3] is None


CERTAIN = {
    "CDNMF": CDNMF(4, class_reg=2.0, **SHORT),
    "CDNMF-KL": CDNMF(4, class_reg=2.0, beta_loss=KL, **SHORT),
    "CNMF": CNMF(4, **SHORT),
    "NMFDC": NMFDC(4, **SHORT),
    "SemiGNMF": SemiGNMF(4, graph_reg=1.0, **SHORT),
    "ConstrainedNMF": ConstrainedNMF(4, hard_labels=True, class_reg=1.0, **SHORT),
}


@quiet
@pytest.mark.parametrize("name", CERTAIN)
def test_certain_probabilities_are_labels(name):
    beside = {"graph": Q.graph} if name == "SemiGNMF" else {}
    one, two = (
        CERTAIN[name].__class__(**CERTAIN[name].get_params()).fit(Q.X, y, **START, **beside)
        for y in (Q.y, one_hot(Q.y))
    )
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.classes_, two.classes_)


@pytest.mark.parametrize(
    "estimator, instead",
    [
        (CNMF(3), r"CNMF.*LpCNMF or CDNMF"),
        (NMFDC(3), "LpCNMF"),
        (ConstrainedNMF(3, hard_labels=True), "LpCNMF"),
        (SemiGNMF(3), "CDNMF or ConstrainedNMF"),
    ],
)
def test_methods_of_certain_labels_name_another(estimator, instead):
    with pytest.raises(ValueError, match=f"{instead}"):
        estimator.fit(Q.X, P)


@quiet
def test_class_probabilities_are_combined_with_part_weights(tmp_path):
    """Check that predicted labels combine class probabilities with the part weights.

    Three samples have probabilities that prefer a wrong class, and are corrected. A fourth one has
    a wrong label with probability 1, which is kept.
    """
    member = np.arange(60) % 3
    X = 5.0 * np.eye(3)[member] @ np.kron(np.eye(3), np.ones(4)) + 0.3 * rng.random((60, 12))
    y = np.where((np.arange(60) < 30)[:, None], 0.9 * np.eye(3)[member] + 0.1 / 3, NAN)
    y[:3] = np.roll(0.1 * np.eye(3)[member[:3]] + 0.3, 1, axis=1)
    y[3] = np.eye(3)[(member[3] + 1) % 3]  # a certain label is kept even if it is wrong
    for model in (CDNMF(3, random_state=0), GNMF(3, graph_reg=0.1, random_state=0)):
        model.fit(X, y)
        right = model.labels_ == member
        assert right.sum() == 59 and not right[3]
        assert (model.predict(X) == member).all()
        again = partwise.load(model.save(tmp_path / "m.partwise"))
        np.testing.assert_array_equal(again.labels_, model.labels_)
        np.testing.assert_array_equal(again.label_confidence_, model.label_confidence_)


# -- LpCNMF ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighed", [False, True])
def test_lpcnmf_repeats_the_naive_update(loss, weighed):
    gamma = Q.gamma if weighed else np.ones(N)
    heavy = A.T * gamma
    Z, U, history = (heavy @ Q.V) / heavy.sum(axis=1)[:, None], Q.U, []
    for _ in range(30):
        V = A @ Z
        if loss == FROBENIUS:
            U = reference.multiplicative(U, Q.X.T @ (gamma[:, None] * V), U @ (V.T * gamma) @ V)
            Z = reference.multiplicative(Z, heavy @ Q.X @ U, heavy @ V @ (U.T @ U))
            history.append(reference.objective_frobenius(Q.X, A @ Z, U, gamma=gamma))
        else:
            ratio = gamma[:, None] * Q.X / reference.floor(V @ U.T)
            U = reference.multiplicative(U, ratio.T @ V, (gamma @ V)[None, :])
            ratio = Q.X / reference.floor(V @ U.T)
            Z = reference.multiplicative(
                Z, heavy @ ratio @ U, np.outer(heavy.sum(axis=1), U.sum(0))
            )
            history.append(reference.objective_kl(Q.X, A @ Z, U, gamma=gamma))
    model = LpCNMF(4, propagate=False, solver="mu", beta_loss=loss, **SHORT)
    model.fit(Q.X, P, sample_weight=gamma if weighed else None, **START)
    assert_close(model.objective_history_, history, 1e-10)
    V, U = reference.unit_weights(A @ Z, U, gamma)
    assert_close(model.embedding_, V, 1e-8)
    assert_close(model.components_.T, U, 1e-8)
    assert rise(history) <= 1e-12  # the update never increases the objective, for any A


@quiet
@pytest.mark.parametrize("solver", ["hals", "nesterov", "mu"])
@pytest.mark.parametrize("term", [False, True])
def test_steps_on_mixed_rows_end_where_lbfgs_does(solver, term):
    """Check that solving for Z with fixed U reaches the minimum that L-BFGS-B finds."""
    ridge = [Ridge(np.full((1, 1), 0.3))] if term else []
    model = FactorModel(
        as_data(Q.X), make_loss(FROBENIUS), rows=MixedRows(np.nan_to_num(P)), terms_V=ridge
    )
    Z, step, values = model.reduce(Q.V), make_step(solver), []
    for _ in range(400 if solver == "mu" else 150):
        sub = model.subproblem("V", Z, Q.U)
        new = step(sub, Z)
        assert sub.change(new, Z) == pytest.approx(sub.value(new) - sub.value(Z), abs=1e-8)
        Z = new
        values.append(model.value(Z, Q.U))
    # Momentum may increase the objective within a step, and the loop undoes this.
    if solver != "nesterov":
        assert rise(values) <= 1e-13

    def naive(z):
        z = z.reshape(Z.shape)
        R = A @ z @ Q.U.T - Q.X
        more = 0.3 * z if term else 0.0
        return 0.5 * (R**2).sum() + 0.5 * (more * z).sum(), (A.T @ R @ Q.U + more).ravel()

    bounds = [(0, None)] * Z.size
    best = minimize(naive, Z.ravel(), jac=True, bounds=bounds, options={"maxiter": 5000}).fun
    assert values[-1] <= best * (1 + (1e-4 if solver == "mu" else 1e-8))


@pytest.mark.parametrize("loss, solver", [(FROBENIUS, "hals"), (FROBENIUS, "nesterov"),
                                          (FROBENIUS, "mu"), (KL, "mu")])  # fmt: skip
def test_one_hot_probabilities_equal_labels(loss, solver):
    """Check that one-hot probabilities give the same fit as labels, to 1e-10.

    Labels use `SharedRows` and probabilities use `MixedRows`.
    """
    ends = []
    labels = encode_labels(Q.y, N)
    for rows in (SharedRows(labels.codes, N), MixedRows(labels.probabilities)):
        model = FactorModel(as_data(Q.X), make_loss(loss), rows=rows, weights=Q.gamma)
        how = Settings(30, 0.0, extrapolate=solver != "mu", guard=solver != "mu")
        ends.append(alternate(model, model.reduce(Q.V), Q.U, make_step(solver), how))
    for attribute in ("history", "Z", "U"):
        assert_close(*(np.asarray(getattr(end, attribute)) for end in ends), 1e-10)


@quiet
@pytest.mark.parametrize("loss", LOSSES)
def test_lpcnmf_of_certain_labels_is_cnmf_and_of_none_nmf(loss):
    settings = {"beta_loss": loss, "solver": "mu", **SHORT}
    for y in (Q.y, one_hot(Q.y)):
        one = LpCNMF(4, propagate=False, **settings).fit(Q.X, y, **START)
        two = CNMF(4, **settings).fit(Q.X, Q.y, **START)
        np.testing.assert_array_equal(one.objective_history_, two.objective_history_)
        np.testing.assert_array_equal(one.embedding_, two.embedding_)
        np.testing.assert_array_equal(one.label_distributions_, one_hot(Q.y))
    with pytest.warns(UserWarning, match="label"):
        one = LpCNMF(4, **settings).fit(Q.X, np.full((N, 3), NAN), **START)
    two = partwise.NMF(4, **settings).fit(Q.X, **START)
    np.testing.assert_array_equal(one.objective_history_, two.objective_history_)


def test_labels_spread_as_the_mean_of_neighbours():
    W = Q.W.copy()
    W[-2:], W[:, -2:] = 0, 0
    W[-1, -2] = W[-2, -1] = 1.0  # a connected pair without a path to a label
    given = np.where((np.arange(N) < 9)[:, None], np.nan_to_num(P, nan=1 / 3), NAN)
    labels = propagate(sp.csr_array(W), read_labels(given, N))
    got = np.where(labels.mask[:, None], labels.shares, NAN)
    np.testing.assert_allclose(got, reference.spread_labels(W, given), atol=1e-8)
    assert np.isnan(got[-2:]).all() and (labels.codes[-2:] == -1).all()


@quiet
def test_lpcnmf_with_a_graph(tmp_path):
    X = sp.csr_array(Q.X)
    model = LpCNMF(4, random_state=0).fit(X, Q.y, graph=Q.graph)
    F = reference.spread_labels(Q.W, one_hot(Q.y))
    np.testing.assert_allclose(model.label_distributions_, F, atol=1e-8)
    mixing = reference.mixing_matrix(F)
    V = model.embedding_
    # V = A Z, so projecting V on the columns of A changes nothing.
    np.testing.assert_allclose(mixing @ np.linalg.pinv(mixing) @ V, V, atol=1e-8)
    value = reference.objective_frobenius(Q.X, V, model.components_.T)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert np.diff(model.objective_history_).max() <= 0
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "params, given, message",
    [
        (
            {"beta_loss": KL, "solver": "newton"},
            {},
            "mu",
        ),
        ({}, {"must_link": [(0, 1)]}, "LpCNMF.*links"),
        ({}, {"entry_weight": np.ones_like(Q.X)}, "LpCNMF.*entry_weight"),
    ],
)
def test_lpcnmf_refuses_what_does_not_descend(params, given, message):
    with pytest.raises(ValueError, match=message):
        LpCNMF(3, **params).fit(Q.X, P, **given)


# -- labels that the other samples contradict -----------------------------------------------------


@quiet
@pytest.mark.parametrize("estimator", [CDNMF, CNMF, LpCNMF])
def test_wrong_labels_are_listed(estimator, tmp_path):
    """Check that four wrong labels among clearly separated groups are listed as doubtful."""
    draw = np.random.default_rng(3)
    member = np.arange(90) % 3
    X = 5.0 * np.eye(3)[member] @ np.kron(np.eye(3), np.ones(4)) + 0.3 * draw.random((90, 12))
    y = np.where(np.arange(90) < 45, member, -1)
    wrong = [4, 11, 20, 33]
    y[wrong] = (member[wrong] + 1) % 3
    names = np.array(["a", "b", "c", None], dtype=object)[y]
    model = estimator(3, random_state=0).fit(X, names)
    found = model.doubtful_labels_
    assert {doubt.sample for doubt in found} == set(wrong)
    for doubt in found:
        assert doubt.given == names[doubt.sample] and doubt.probability > 0.5
        assert doubt.suggested == "abc"[member[doubt.sample]]
    again = partwise.load(model.save(tmp_path / "m.partwise"))
    assert again.doubtful_labels_ == found


@quiet
def test_doubts_need_two_labels_of_two_classes():
    with pytest.raises(AttributeError, match="doubtful_labels_"):
        CDNMF().doubtful_labels_  # noqa: B018
    alone = np.full(N, -1)
    alone[[2, 9, 11]] = [0, 1, 2]
    assert CDNMF(3, random_state=0).fit(Q.X, alone).doubtful_labels_ == []
    assert GNMF(3, random_state=0).fit(Q.X).doubtful_labels_ == []
    assert GNMF(3, random_state=0).fit(Q.X, np.where(alone >= 0, 1, -1)).doubtful_labels_ == []


def test_zeros_mix_too():
    y = np.array([0, 0, 1, -1])
    assert LpCNMF(2, n_neighbors=2, init="random").fit(np.zeros((4, 2)), y).objective_ == 0
