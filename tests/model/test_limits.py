"""Tests of limit cases: without effective constraints, every method equals plain NMF.

Fits that do the same arithmetic are compared bit for bit, others to a relative error of 1e-10.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import reference
from methods import FROBENIUS, KL, LOSSES, assert_close, make_problem
from partwise import (
    CDNMF,
    CF,
    CNMF,
    GNMF,
    LCF,
    NMF,
    NMFDC,
    NSNMF,
    ConstrainedNMF,
    SemiGNMF,
    SparseNMF,
)
from plain_fits import as_solved

Q = make_problem(seed=4, n=30, p=19)
START = {"W": Q.V, "H": Q.U.T.copy()}
#: Labels with one labelled sample for each of three classes; -1 means unknown.
ONE_EACH = np.full(len(Q.X), -1)
ONE_EACH[[7, 3, 20]] = [0, 1, 2]
NO_LABEL = np.full(len(Q.X), -1)
#: Pairs of loss and solver that update the factors in the same order for every estimator. The order
#: of solver="mu" is that of the paper of each method.
SAME_ORDER = [(FROBENIUS, "hals"), (FROBENIUS, "nesterov"), (KL, "newton")]
ALL_SOLVERS = [*SAME_ORDER, (FROBENIUS, "mu"), (KL, "mu")]


def run(estimator, y=None, *, data=None, start=START, ok=(), **settings):
    """Fit 40 iterations from one start; raise on any warning that `ok` does not list."""
    model = estimator(4, **({"tol": 0.0, "max_iter": 40, "init": "custom"} | settings))
    with warnings.catch_warnings():
        for message in ok:
            warnings.filterwarnings("ignore", message=f".*{message}")
        return model.fit(Q.X, y, **start, **(data or {}))


def bits(one, two):
    np.testing.assert_array_equal(one.objective_history_, two.objective_history_)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.embedding_, two.embedding_)


def close(one, two, tolerance=1e-10):
    assert_close(one.objective_history_, two.objective_history_, tolerance)
    assert_close(one.components_, two.components_, tolerance)
    assert_close(one.embedding_, two.embedding_, tolerance)


VOID = "no class has two labelled samples"
NONE_GIVEN = "y contains no known label"
GRAPH = {"graph": Q.graph}
#: Each case: an estimator, its settings, y, other arguments of `fit`, and expected warnings.
PLAIN = {
    "GNMF, λ = 0": (GNMF, {"graph_reg": 0.0}, None, GRAPH, ()),
    "SemiGNMF, λ = 0": (SemiGNMF, {"graph_reg": 0.0}, Q.y, GRAPH, ()),
    "GNMF, empty graph": (GNMF, {"graph_reg": 5.0}, None, {"graph": 0 * Q.W}, ()),
    "CNMF, no labels": (CNMF, {}, None, {}, (NONE_GIVEN,)),
    "CNMF, none known": (CNMF, {}, NO_LABEL, {}, (NONE_GIVEN,)),
    "CNMF, one label a class": (CNMF, {}, ONE_EACH, {}, (VOID,)),
    "CDNMF, λ = 0": (CDNMF, {"class_reg": 0.0}, Q.y, {}, ()),
    "CDNMF, no labels": (CDNMF, {"class_reg": 2.0}, None, {}, (NONE_GIVEN,)),
    "NSNMF, δ = 0": (NSNMF, {"smoothing": 0.0}, None, {}, ()),
    "all at 0": (ConstrainedNMF, {}, Q.y, GRAPH, ()),
    "all but no labels": (
        ConstrainedNMF,
        {"hard_labels": True, "class_reg": 1.0, "label_weight": 1.0},
        NO_LABEL,
        {},
        (NONE_GIVEN,),
    ),
}


@pytest.mark.parametrize("loss, solver", SAME_ORDER)
@pytest.mark.parametrize("name", PLAIN)
def test_plain(name, loss, solver):
    estimator, settings, y, data, ok = PLAIN[name]
    plain = run(NMF, beta_loss=loss, solver=solver)
    if name == "GNMF, empty graph":
        if loss == KL:
            pytest.skip("with the KL loss, graphs need solver='mu'")
        got = run(estimator, y, data=data, ok=ok, beta_loss=loss, solver=solver, **settings)
        # scale="unit" constrains the norm of each part, so the iterates differ and only the final
        # objectives agree.
        assert got.objective_ == pytest.approx(plain.objective_, rel=1e-3)
        return
    got = run(estimator, y, data=data, ok=ok, beta_loss=loss, solver=solver, **settings)
    bits(got, plain)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"GNMF, empty graph"}))
def test_plain_multiplicative(name, loss):
    """Compare with Lee and Seung's updates to 1e-10, and with NMF(solver="mu") bit for bit."""
    estimator, settings, y, data, ok = PLAIN[name]
    got = run(estimator, y, data=data, ok=ok, beta_loss=loss, solver="mu", **settings)
    naive = reference.nmf_frobenius if loss == FROBENIUS else reference.nmf_kl
    V, U, history = naive(Q.X, Q.V, Q.U, 40)
    V, U = reference.unit_weights(V, U)
    assert_close(got.objective_history_, history, 1e-10)
    assert_close(got.components_.T, U, 1e-10)
    assert_close(got.embedding_, V, 1e-10)
    bits(got, run(NMF, beta_loss=loss, solver="mu"))


@pytest.mark.parametrize("loss, norm", [(FROBENIUS, 2), (KL, 1)])
@pytest.mark.parametrize("graph", ["λ = 0", "empty"])
def test_paper_scale_without_penalty_is_nmf_from_scaled_columns(loss, norm, graph):
    V, U = reference.normalize_columns(Q.V, Q.U, norm)
    naive = reference.nmf_frobenius if loss == FROBENIUS else reference.nmf_kl
    V, U, history = naive(Q.X, V, U, 40)
    settings = {"graph_reg": 0.0 if graph == "λ = 0" else 7.0}
    data = {"graph": Q.graph if graph == "λ = 0" else 0 * Q.W}
    got = run(GNMF, data=data, beta_loss=loss, solver="mu", scale="paper", **settings)
    assert_close(got.objective_history_, history, 1e-10)
    assert_close(got.components_.T, reference.normalize_columns(V, U, norm)[1], 1e-10)


@pytest.mark.parametrize("solver", ["nesterov", "hals", "mu"])
@pytest.mark.parametrize("y", [ONE_EACH, NO_LABEL, None], ids=["one each", "none known", "none"])
def test_nmfdc_with_void_labels_is_nsnmf(solver, y):
    got = run(NMFDC, y, ok=(VOID, NONE_GIVEN), smoothing=0.3, solver=solver)
    if solver == "nesterov":  # the loop of the paper has no extrapolation between iterations
        _, U, history = reference.nmfdc_nesterov(Q.X, Q.V, Q.U, 40, delta=0.3, inner_iter=10)
        # The last objective is that of the returned part weights, which a final solve improves.
        assert_close(got.objective_history_[:-1], history[:-1], 1e-10)
        assert_close(got.components_.T, U, 1e-10)
        return
    bits(got, run(NSNMF, smoothing=0.3, solver=solver))


@pytest.mark.parametrize("solver", ["hals", "mu"])
def test_nmfdc_without_smoothing_is_cnmf(solver):
    got = run(NMFDC, Q.y, smoothing=0.0, solver=solver)
    bits(got, run(CNMF, Q.y, solver=solver))


@pytest.mark.parametrize("loss, solver", SAME_ORDER)
def test_one_label_a_class_voids_hard_labels_but_not_the_class_cost(loss, solver):
    """Check that one label per class leaves CNMF equal to NMF but changes CDNMF.

    Hard labels only tie samples of one class together; the class cost of CDNMF already penalises
    weights on the parts of other classes.
    """
    with pytest.warns(UserWarning, match=VOID):
        hard = CNMF(4, beta_loss=loss, solver=solver, max_iter=30, tol=0, random_state=0)
        hard.fit(Q.X, ONE_EACH)
    plain = NMF(4, beta_loss=loss, solver=solver, max_iter=30, tol=0, random_state=0).fit(Q.X)
    bits(hard, plain)
    cost = CDNMF(4, class_reg=50.0, beta_loss=loss, solver=solver, max_iter=30, tol=0)
    V = cost.set_params(random_state=0).fit(Q.X, ONE_EACH).embedding_
    for sample, label in ((7, 0), (3, 1), (20, 2)):
        others = [c for c in range(3) if c != label]
        assert V[sample, others].max() < 0.02 * V[sample].max() or V[sample].max() == 0
    assert np.abs(V - plain.embedding_).max() > 0.1


@pytest.mark.parametrize("loss, solver", ALL_SOLVERS)
@pytest.mark.parametrize("estimator", [NMF, GNMF, ConstrainedNMF])
def test_weights_of_one(estimator, loss, solver):
    settings: dict = {"beta_loss": loss, "solver": solver}
    data: dict = {}
    if estimator is not NMF:
        if loss == KL and solver == "newton":
            settings |= {"class_reg": 1.0} if estimator is ConstrainedNMF else {"graph_reg": 0.0}
        else:
            settings["graph_reg"] = 2.0
        data = GRAPH
    y = Q.y if estimator is ConstrainedNMF else None
    ones = data | {"sample_weight": np.ones(len(Q.X))}
    close(
        run(estimator, y, data=ones, **settings),
        run(estimator, y, data=data, **settings),
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_label_weight_zero_removes_edges_between_labelled_samples(loss):
    """Check that label_weight=0 removes the edges between labelled samples and adds none."""
    settings = {"graph_reg": 2.0, "beta_loss": loss, "solver": "mu"}
    got = run(SemiGNMF, Q.y, data=GRAPH, label_weight=0.0, **settings)
    thinned = {"graph": reference.label_graph(Q.W, Q.y, 0.0)}
    close(got, run(GNMF, data=thinned, **settings))


# --------------------------------------------------------------------------------------------
# Each named method equals a ConstrainedNMF with the corresponding settings
# --------------------------------------------------------------------------------------------

NET = {"alpha_W": 0.003, "alpha_H": 0.002, "l1_ratio": 0.4}
NAMES = {
    "NMF": (NMF, NET, NET, None, {}),
    "GNMF": (GNMF, {"graph_reg": 2.0}, {"graph_reg": 2.0}, None, GRAPH),
    "SemiGNMF": (
        SemiGNMF,
        {"graph_reg": 2.0, "label_weight": 0.7},
        {"graph_reg": 2.0, "label_weight": 0.7},
        Q.y,
        GRAPH,
    ),
    "CNMF": (CNMF, {}, {"hard_labels": True}, Q.y, {}),
    "CDNMF": (CDNMF, {}, {"class_reg": None}, Q.y, {}),
    "CDNMF, two parts a class": (
        CDNMF,
        {"class_reg": 3.0, "components_per_class": 2},
        {"class_reg": 3.0, "components_per_class": 2},
        Q.y,
        {},
    ),
    "NSNMF": (NSNMF, {"smoothing": 0.3}, {"smoothing": 0.3}, None, {}),
    "NMFDC": (NMFDC, {"smoothing": 0.3}, {"smoothing": 0.3, "hard_labels": True}, Q.y, {}),
}


@pytest.mark.parametrize("loss, solver", ALL_SOLVERS)
@pytest.mark.parametrize("name", NAMES)
def test_named_methods_are_combinations(name, loss, solver):
    estimator, named, combined, y, data = NAMES[name]
    if loss == KL and ((solver == "newton" and data) or name == "NMFDC"):
        pytest.skip("this method does not support the solver or the KL loss")
    if name == "NMFDC" and solver == "nesterov":
        pytest.skip("the paper's loop has no extrapolation; compared with the reference")
    settings = {"solver": solver} | ({} if name == "NMFDC" else {"beta_loss": loss})
    one = run(estimator, y, data=data, **settings, **named)
    two = run(ConstrainedNMF, y, data=data, **settings, **combined)
    bits(one, two)
    if name != "NMF":
        np.testing.assert_array_equal(one.labels_, two.labels_)


@pytest.mark.parametrize("name", ["GNMF", "SemiGNMF", "CDNMF"])
@pytest.mark.parametrize("loss", LOSSES)
def test_named_methods_are_combinations_as_printed(name, loss):
    estimator, named, combined, y, data = NAMES[name]
    settings = {"beta_loss": loss, "solver": "mu", "scale": "paper"}
    one = run(estimator, y, data=data, **settings, **named)
    bits(one, run(ConstrainedNMF, y, data=data, **settings, **combined))


def test_sparse_nmf_without_sparseness_is_nmf():
    close(run(SparseNMF), run(NMF, solver="hals"))


# --------------------------------------------------------------------------------------------
# The linear kernel, passed explicitly, gives the same fit as the default
# --------------------------------------------------------------------------------------------

CONCEPTS = {"W": Q.V, "C": Q.C}


def inner(x, y):
    return x @ y


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("solver", ["mu", "hals", "nesterov"])
@pytest.mark.parametrize("estimator", [CF, LCF])
@pytest.mark.parametrize("kernel", ["precomputed", "callable"])
def test_an_explicit_linear_kernel_gives_the_same_fit(kernel, estimator, solver, signed):
    """Check that CF and LCF give the same fit for an explicit and for the default linear kernel.

    For signed data, solver="mu" splits an explicit kernel into its positive and negative entries
    and ends in another minimum, so that case is skipped.
    """
    if signed and solver == "mu":
        pytest.skip("the split of K differs; test_cf.py compares it with the reference")
    X = Q.X - 0.4 if signed else Q.X
    settings = {"solver": solver, "init": "custom", "max_iter": 40, "tol": 0.0}
    linear = estimator(4, **settings).fit(X, **CONCEPTS)
    other = estimator(4, kernel=inner if kernel == "callable" else kernel, **settings)
    other.fit(X @ X.T if kernel == "precomputed" else X, **CONCEPTS)
    assert_close(other.objective_history_, linear.objective_history_, 1e-10)
    # The order of summation differs, and 40 accelerated iterations may amplify the rounding.
    assert_close(other.concept_weights_, linear.concept_weights_, 1e-8)
    assert_close(other.embedding_, linear.embedding_, 1e-8)


@pytest.mark.parametrize("solver", ["mu", "hals", "nesterov"])
def test_lcf_without_locality_is_cf(solver):
    settings = {"solver": solver, "max_iter": 40, "tol": 0.0, "random_state": 0}
    bits(LCF(4, locality=0.0, **settings).fit(Q.X), CF(4, **settings).fit(Q.X))


# --------------------------------------------------------------------------------------------
# NMF with the Kullback-Leibler loss is probabilistic latent semantic analysis (PLSA)
# --------------------------------------------------------------------------------------------


def counts():
    """Return a document-word count matrix and random starts of P(z), P(w|z) and P(d|z) for PLSA."""
    rng = np.random.default_rng(5)
    topics = rng.dirichlet(0.3 * np.ones(12), size=3)
    X = rng.poisson(40 * rng.dirichlet(0.5 * np.ones(3), size=15) @ topics).astype(float)
    Pw, Pd = rng.dirichlet(np.ones(12), size=3).T, rng.dirichlet(np.ones(15), size=3).T
    return X, np.array([0.2, 0.5, 0.3]), Pw, Pd


def test_one_em_step_is_the_two_half_steps_from_one_point():
    X, Pz, Pw, Pd = counts()
    total = X.sum()
    start = {"W": total * Pd * Pz, "H": Pw.T.copy()}
    Pz1, Pw1, Pd1, _ = reference.plsa_em(X, Pz, Pw, Pd, 1)
    settings = {"beta_loss": KL, "solver": "mu", "init": "custom", "max_iter": 1, "tol": 0.0}
    V1, _ = as_solved(NMF(3, **settings), X, **start)  # V is updated first
    turned = {"W": start["H"].T.copy(), "H": start["W"].T.copy()}
    # With X transposed, U is updated first.
    U1 = NMF(3, **settings).fit(np.ascontiguousarray(X.T), **turned).embedding_
    assert_close(V1, total * Pd1 * Pz1, 1e-10)
    assert_close(U1 / U1.sum(axis=0), Pw1, 1e-10)


def test_kl_nmf_ends_where_plsa_does():
    """Check that an EM iteration of PLSA does not change a converged KL-NMF.

    The two objectives differ by a constant: the KL divergence is Σ x log(x/N) minus the
    log-likelihood.
    """
    X, Pz, Pw, Pd = counts()
    total = X.sum()
    start = {"W": total * Pd * Pz, "H": Pw.T.copy()}
    settings = {"beta_loss": KL, "init": "custom", "tol": 0.0}
    newton = NMF(3, solver="newton", max_iter=400, **settings).fit(X, **start)
    # The start is close to the minimum, because a random start would need 20,000 iterations.
    near = {"W": 1.01 * newton.embedding_ + 1e-3, "H": newton.components_ + 1e-3}
    mu = NMF(3, solver="mu", max_iter=4000, **settings).fit(X, **near)
    constant = (X[X > 0] * np.log(X[X > 0] / total)).sum()
    best = reference.plsa_em(X, Pz, Pw, Pd, 2000)[3][-1]
    for model in (newton, mu):
        sums = model.components_.sum(axis=1)
        mass = model.embedding_ * sums
        # A minimum of KL has the same total as X.
        assert mass.sum() == pytest.approx(total, rel=1e-8)
        P = mass.sum(axis=0) / mass.sum(), (model.components_.T / sums), mass / mass.sum(axis=0)
        Pz1, Pw1, Pd1, likelihood = reference.plsa_em(X, *P, 1)
        for before, after in zip(P, (Pz1, Pw1, Pd1)):
            # Entries that converge to zero still change, so only half of the digits agree.
            np.testing.assert_allclose(after, before, atol=1e-6)
        assert model.objective_ == pytest.approx(constant - likelihood[0], rel=1e-8)
        # 2,000 EM iterations from the random start do not reach a higher likelihood.
        assert model.objective_ <= (constant - best) * (1 + 1e-3)
