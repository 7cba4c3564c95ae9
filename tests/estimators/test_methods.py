"""Tests of every method: the papers' equations, gradients, and guarantees of each solver.

`methods.py` lists the methods. CF and LCF have another model and are tested in `test_cf.py`,
SparseNMF and NTF in `test_sparse_nmf_ntf.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import reference
from methods import (
    EVERY_COMBINATION,
    FROBENIUS,
    KL,
    METHODS,
    NAMED,
    Method,
    assert_close,
    make_clear_problem,
    make_problem,
    names,
    rise,
)
from partwise import CDNMF, GNMF, ConstrainedNMF

#: Objectives are sums of about 500 terms, so rounding may raise the objective by about 1e-12 of its
#: value in one iteration.
ROUNDING = 1e-12
PROBLEMS = {"gaps": make_problem(), "full": make_problem(seed=1, n=25, p=31, gaps=False)}


@pytest.fixture(params=PROBLEMS, scope="module")
def problem(request):
    return PROBLEMS[request.param]


def each(methods):
    return pytest.mark.parametrize("method", methods, ids=names(methods))


# --------------------------------------------------------------------------------------------
# The papers' own updates, over 50 iterations from the same start
# --------------------------------------------------------------------------------------------


#: Methods without penalties, for which Partwise chooses the scale of each component.
FREE = ("NMF", "NMF-KL", "CNMF", "CNMF-KL")


def as_printed(method: Method, q, n_iter=50):
    """Return factors and history of the reference, with columns scaled as Partwise scales them."""
    V, U = q.V, q.U
    scaled = method.has_scale and not method.unscaled
    if scaled:
        V, U = reference.normalize_columns(V, U, method.norm)
    V, U, history = method.naive(q, V, U, n_iter)
    if scaled:
        V, U = reference.normalize_columns(V, U, method.norm)
    if method.name in FREE:
        V, U = reference.unit_weights(V, U)
    return V, U, history


def check_as_printed(method: Method, q):
    """Compare a fit with the reference to 1e-8; the largest difference seen is 1e-12.

    The tolerance covers the rounding of 50 iterations.
    """
    V, U, history = as_printed(method, q)
    est = method.fit(q, method.paper_solver, max_iter=50)
    assert est.n_iter_ == 50
    assert_close(est.objective_history_, history, 1e-8)
    assert_close(est.components_.T, U, 1e-8)
    assert_close(est.embedding_, V, 1e-8)
    # The reported objective belongs to the returned factors.
    expected = method.objective(q, est.embedding_, est.components_.T)
    assert est.objective_ == pytest.approx(expected, rel=1e-10)


@each(METHODS)
def test_the_papers_update(method, problem):
    check_as_printed(method, problem)


@each(EVERY_COMBINATION)
def test_every_combination(method):
    check_as_printed(method, PROBLEMS["gaps"])


def test_the_comparison_can_fail():
    """Check that this comparison detects a relative error of 1e-6 in λ."""
    q = PROBLEMS["gaps"]
    V, *_ = as_printed(NAMED[2], q)
    est = NAMED[2].fit(q, max_iter=50, graph_reg=3.0 * (1 + 1e-6))
    with pytest.raises(AssertionError):
        assert_close(est.embedding_, V, 1e-8)


@pytest.mark.parametrize("loss", [FROBENIUS, KL])
@pytest.mark.parametrize("estimator", [GNMF, ConstrainedNMF])
def test_ncw_weights(estimator, loss):
    """Check sample_weight="ncw" against appendix C of the GNMF paper.

    The weights are γ = 1/(XXᵀ1), and a zero sample has weight 0.
    """
    q = PROBLEMS["gaps"]
    run = reference.gnmf_frobenius if loss == FROBENIUS else reference.gnmf_kl
    norm = 2 if loss == FROBENIUS else 1
    V, U = reference.normalize_columns(q.V, q.U, norm)
    gamma = reference.ncw_weights(q.X)
    assert gamma[5] == 0
    V, U, history = run(q.X, V, U, 50, W=q.W, lam=0.2, gamma=gamma)
    est = estimator(
        4,
        graph_reg=0.2,
        beta_loss=loss,
        solver="mu",
        scale="paper",
        sample_weighting="ncw",
        init="custom",
        max_iter=50,
    ).fit(q.X, graph=q.graph, W=q.V, H=q.U.T.copy())
    assert_close(est.objective_history_, history, 1e-8)
    assert_close(est.components_.T, reference.normalize_columns(V, U, norm)[1], 1e-8)


def test_gnmf_is_gradient_descent(problem):
    """Compare GNMF with gradient descent whose step sizes are (18) and (19) of the GNMF paper.

    The paper derives its multiplicative updates from these steps.
    """
    V, U = reference.normalize_columns(problem.V, problem.U)
    V, U, history = reference.gnmf_gradient_descent(problem.X, V, U, 50, W=problem.W, lam=3.0)
    est = NAMED[2].fit(problem, max_iter=50)
    assert_close(est.objective_history_, history, 1e-8)
    assert_close(est.components_.T, reference.normalize_columns(V, U)[1], 1e-8)


PRINTED = [
    # Each row: an estimator, the paper's objective as printed, its arguments, and its ratio to our
    # objective.
    ("GNMF", "gnmf_frobenius_as_printed", lambda q: {"W": q.W, "lam": 3.0}, 2.0),
    ("CNMF", "cnmf_frobenius_as_printed", lambda q: {}, 2.0),
    ("CDNMF", "cdnmf_frobenius_as_printed", lambda q: {"D": q.D(), "class_reg": 1.5}, 2.0),
    (
        "CDNMF-KL",
        "cdnmf_kl_as_printed",
        lambda q: {"D": q.D(), "class_reg": 1.5, "cost_once": True},
        1.0,
    ),
    ("NMFDC", "nmfdc_as_printed", lambda q: {"delta": 0.4}, 1.0),
    ("NMF", "nmf_frobenius_as_printed", lambda q: {}, 2.0),
    ("NMF-KL", "nmf_kl_as_printed", lambda q: {}, 1.0),
]


@pytest.mark.parametrize("name, formula, settings, factor", PRINTED, ids=[p[0] for p in PRINTED])
def test_objective_in_the_papers_units(problem, name, formula, settings, factor):
    """Compare the objective with the one that the paper prints.

    Ours is half of it where the paper has squared norms without the factor ½, and equal otherwise.
    """
    method = {m.name: m for m in NAMED}[name]
    est = method.fit(problem, method.paper_solver, max_iter=7)
    V, U = est.embedding_, est.components_.T
    printed = getattr(reference, formula)(problem.X, V, U, **settings(problem))
    assert factor * est.objective_ == pytest.approx(printed, rel=1e-10)


@pytest.mark.parametrize("loss, printed", [(FROBENIUS, 1.0), (KL, 10.0)])
def test_class_reg_of_the_paper(loss, printed):
    q = PROBLEMS["gaps"]
    fits = [
        CDNMF(4, class_reg=reg, beta_loss=loss, max_iter=5, tol=0, random_state=0).fit(q.X, q.y)
        for reg in (None, printed)
    ]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)


# --------------------------------------------------------------------------------------------
# Gradients
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["paper", "unit"])
@each(METHODS)
def test_gradients(method, scale):
    """Compare the gradient of each subproblem with central differences of the objective.

    With scale="unit", the objective multiplies V by the lengths of the columns of U. Its gradient
    is taken at columns of length 1, where every step for U begins.
    """
    if scale == "unit" and not method.has_scale:
        pytest.skip("this method has no parameter scale")
    q = PROBLEMS["full"]
    model = method.model(q, scale)
    Z, U = model.normalize(model.reduce(q.V), q.U)
    for side, at in (("V", Z), ("U", U)):
        neg, pos = model.subproblem(side, Z, U).split(at)
        assert (neg >= 0).all() and (pos >= 0).all()

        def value(M, side=side):
            return model.value(M, U) if side == "V" else model.value(Z, M)

        slope = reference.numerical_gradient(value, at)
        # Central differences with step 1e-6 have an error of 1e-12 of the third derivative, and a
        # rounding error of 1e-10 of the value.
        size = np.abs(neg).max() + np.abs(pos).max() + 1e-4 * abs(model.value(Z, U))
        np.testing.assert_allclose(np.broadcast_to(pos - neg, at.shape), slope, atol=1e-6 * size)


@each(METHODS)
def test_value_of_the_model(method, problem):
    model = method.model(problem)
    Z = model.reduce(problem.V)
    gamma = problem.gamma if method.weights else None
    V = reference.shared_rows(problem.A, problem.V, gamma) if method.hard else problem.V
    V = problem.A @ V if method.hard else V
    expected = method.objective(problem, V, problem.U)
    assert model.value(Z, problem.U) == pytest.approx(expected, rel=1e-12)


# --------------------------------------------------------------------------------------------
# Histories, scale, and the faster solvers
# --------------------------------------------------------------------------------------------


@each([m for m in METHODS if m.exact])
def test_printed_histories_never_rise(method, problem):
    est = method.fit(problem, method.paper_solver, max_iter=150)
    assert rise(est.objective_history_) <= ROUNDING


@each([m for m in METHODS if not m.exact])
@pytest.mark.parametrize("scale", ["paper", "unit"])
def test_gnmf_kl_hardly_rises(method, problem, scale):
    """Check that the objective of GNMF with the KL loss rises by at most 0.2% in one iteration.

    The update (21) of the GNMF paper does not guarantee descent.
    """
    est = method.fit(problem, scale=scale, max_iter=150)
    highest = rise(est.objective_history_)
    print(f"{method.name}, {scale}: the objective rises by at most {highest:.2e} of itself")
    assert highest <= 2e-3
    assert est.objective_history_[-1] < est.objective_history_[0]


def every_solver(methods):
    cases = [(m, s) for m in methods for s in ("mu", *m.faster) if m.exact]
    return pytest.mark.parametrize("method, solver", cases, ids=[f"{m.name}-{s}" for m, s in cases])


def start_value(method: Method, q):
    """Return the objective at the start, computed as the solver computes it."""
    model = method.model(q, "unit")
    V = model.fit_scale(q.V, q.U)
    return model.value(*model.normalize(model.reduce(V), q.U))


def unit_lengths(method: Method, U):
    """Return the norm of each column of U, or with smoothing the mean over the columns."""
    if method.loss == FROBENIUS:
        squares = (U**2).sum(axis=0)
        return np.sqrt(squares.mean() if method.unscaled else squares)
    sums = U.sum(axis=0)
    return sums.mean() if method.unscaled else sums


@every_solver(METHODS)
def test_unit_histories_never_rise(method, solver, problem):
    est = method.fit(problem, solver, scale="unit", max_iter=60)
    assert rise(est.objective_history_, start_value(method, problem)) <= ROUNDING
    expected = method.objective(problem, est.embedding_, est.components_.T)
    assert est.objective_ == pytest.approx(expected, rel=1e-9)
    if method.model(problem, "unit").unit:
        np.testing.assert_allclose(unit_lengths(method, est.components_.T), 1.0, rtol=1e-12)


@each([m for m in METHODS if m.has_scale])
def test_unit_scale_is_kept_if_only_v_is_penalised(method, problem):
    """Check that scale="unit" fixes the norm of the parts if only V is penalised.

    With alpha_H both factors are penalised, so the scale is determined without a constraint.
    """
    terms = method.terms(problem)
    penalised_V = any(terms.get(t) for t in ("lam", "class_reg", "l1_V", "l2_V"))
    penalised_U = any(terms.get(t) for t in ("l1_U", "l2_U"))
    assert method.model(problem, "unit").unit == (penalised_V and not penalised_U)
    assert not method.model(problem, "paper").unit


@each([m for m in METHODS if m.has_scale and not m.unscaled])
def test_paper_ends_with_unit_columns(method, problem):
    est = method.fit(problem, max_iter=3)
    lengths = np.linalg.norm(est.components_, ord=method.norm, axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-12)
    assert "without a tolerance" in est.status_ and est.n_iter_ == 3


@pytest.mark.parametrize("solver", ["hals", "nesterov"])
def test_faster_steps_descend_without_a_guard(solver, problem):
    """Check that "hals" and "nesterov" never raise the objective with scale="paper".

    With this setting the solver does not undo iterations that raise the objective, so each step
    itself must descend.
    """
    for method in METHODS:
        if method.has_scale and method.loss == FROBENIUS:
            est = method.fit(problem, solver, max_iter=60)
            assert rise(est.objective_history_) <= ROUNDING, method.name


@each([m for m in METHODS if m.faster])
@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.long)])
def test_faster_solvers_go_as_low_as_mu(method, seed):
    """Check that faster solvers reach the objective of five times as many "mu" iterations.

    The data have one minimum, and all solvers start from the same factors.
    """
    q = make_clear_problem(seed)
    low = method.fit(q, "mu", scale="unit", max_iter=600).objective_
    reached = {s: method.fit(q, s, scale="unit", max_iter=120).objective_ for s in method.faster}
    # After 120 iterations a solver may still be 1e-4 above the minimum.
    assert {s: v for s, v in reached.items() if v > low * (1 + 1e-4)} == {}


@pytest.mark.parametrize("scale", ["unit", "paper"])
def test_restarts(scale):
    """Check that `n_init` keeps the best of several starts.

    With scale="paper", each start runs 30 iterations and the best one is continued.
    """
    q = PROBLEMS["gaps"]
    settings = {"graph_reg": 3.0, "init": "random", "scale": scale, "solver": "mu", "tol": 0.0}
    one = GNMF(4, max_iter=80, random_state=3, **settings).fit(q.X, graph=q.graph)
    many = GNMF(4, max_iter=80, n_init=6, random_state=3, **settings).fit(q.X, graph=q.graph)
    assert many.n_iter_ == 80 and len(many.objective_history_) == 80
    assert rise(many.objective_history_) <= ROUNDING
    seeds = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=6)
    alone = [
        GNMF(4, max_iter=30 if scale == "paper" else 80, random_state=seed, **settings).fit(
            q.X, graph=q.graph
        )
        for seed in seeds
    ]
    best = min(alone, key=lambda m: m.objective_history_[-1])
    np.testing.assert_allclose(
        many.objective_history_[: len(best.objective_history_)], best.objective_history_, rtol=1e-12
    )
    assert one.objective_history_[0] != many.objective_history_[0]


# --------------------------------------------------------------------------------------------
# Graphs
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GNMF-KL", "SemiGNMF-KL"])
def test_conjugate_gradients_are_counted_and_few(name, problem):
    """Check that the conjugate gradient method needs at most as many iterations as samples.

    The paper expects about 20 iterations.
    """
    method = {m.name: m for m in NAMED}[name]
    for reg in (0.1, 3.0, 100.0):
        est = method.fit(problem, graph_reg=reg, max_iter=50)
        print(f"{name}, λ = {reg}: at most {est.cg_iterations_} iterations")
        # The solve is accurate to 1e-12 of the right-hand side. In exact arithmetic it would need
        # at most as many iterations as there are samples.
        assert 1 <= est.cg_iterations_ <= len(problem.X)


BAD_GRAPHS = {
    "rectangular": (lambda W: W[:, :-1], "must be square"),
    "another size": (lambda W: W[:-1, :-1], "one row and one column for each of the 28 samples"),
    "negative": (lambda W: -W, "must be non-negative"),
    "asymmetric": (lambda W: np.triu(W), "must be symmetric"),
    "NaN": (lambda W: np.where(W > 0, np.nan, 0.0), "must be finite"),
    "infinite": (lambda W: np.where(W > 0, np.inf, 0.0), "must be finite"),
}


@pytest.mark.parametrize("bad", BAD_GRAPHS)
@each([m for m in METHODS if m.graph and m.name in ("GNMF", "SemiGNMF", "GNMF-KL")])
def test_bad_graphs_are_refused(method, bad):
    spoil, message = BAD_GRAPHS[bad]
    q = PROBLEMS["gaps"]
    with pytest.raises(ValueError, match=message):
        method.make().fit(q.X, q.y, graph=spoil(q.W))


def test_a_bad_graph_is_refused_even_where_its_weight_is_zero():
    q = PROBLEMS["gaps"]
    with pytest.raises(ValueError, match="symmetric"):
        ConstrainedNMF(4).fit(q.X, graph=np.triu(q.W))


@pytest.mark.parametrize("kind", ["dense", "csr", "csc", "coo", "float32", "integer", "diagonal"])
def test_kinds_of_graphs(kind):
    """Check that GNMF accepts a graph as any type of array, and ignores its diagonal.

    The Laplacian does not depend on the diagonal.
    """
    import scipy.sparse as sp

    q = PROBLEMS["gaps"]
    W = 2 * q.W  # a graph of integers
    expected = GNMF(4, graph_reg=1.0, max_iter=20, tol=0, random_state=0).fit(q.X, graph=W)
    given = {
        "dense": W,
        "csr": sp.csr_matrix(W),
        "csc": sp.csc_array(W),
        "coo": sp.coo_array(W),
        "float32": W.astype(np.float32),
        "integer": W.astype(int),
        "diagonal": W + np.diag(np.arange(len(W))),
    }[kind]
    est = GNMF(4, graph_reg=1.0, max_iter=20, tol=0, random_state=0).fit(q.X, graph=given)
    np.testing.assert_array_equal(est.embedding_, expected.embedding_)


def test_the_default_graph_is_neighbor_graph():
    from partwise.knowledge.graph import neighbor_graph

    q = PROBLEMS["full"]
    settings = {"graph_reg": 2.0, "max_iter": 15, "tol": 0, "random_state": 0}
    for n_neighbors, weighting in ((5, "binary"), (3, "heat"), (4, "dot")):
        own = GNMF(4, n_neighbors=n_neighbors, weighting=weighting, **settings).fit(q.X)
        W = neighbor_graph(q.X, n_neighbors, weighting=weighting)
        given = GNMF(4, **settings).fit(q.X, graph=W)
        np.testing.assert_array_equal(own.embedding_, given.embedding_)


def test_solvers_that_cannot_are_refused_by_name():
    q = PROBLEMS["gaps"]
    with pytest.raises(ValueError, match="mu"):
        GNMF(4, beta_loss=KL, solver="newton").fit(q.X)
    with pytest.raises(ValueError, match=r"newton.*frobenius.*hals, nesterov, mu"):
        GNMF(4, solver="newton").fit(q.X)


# --------------------------------------------------------------------------------------------
# transform, inverse_transform, and other array types
# --------------------------------------------------------------------------------------------


@each(METHODS)
def test_new_samples_are_coded_with_the_basis_alone(method):
    """Check that `transform` solves the problem in V without labels and without a graph.

    The samples here have no neighbours in the training data.
    """
    from scipy.optimize import nnls

    q = PROBLEMS["full"]
    est = method.fit(q, scale="unit", max_iter=20)
    new = make_problem(seed=7, n=9, p=31, gaps=False).X
    est.set_params(tol=1e-10, max_iter=2000, solver="auto")
    V = est.transform(new, **({"graph": np.zeros((9, len(q.X)))} if method.graph else {}))
    basis = est.inverse_transform(np.eye(q.k))
    terms = method.terms(q)
    np.testing.assert_allclose(
        basis, (terms["S"] if "S" in terms else np.eye(q.k)) @ est.components_, rtol=1e-12
    )
    if method.loss == FROBENIUS and not any(terms.get(t) for t in ("l1_V", "l2_V")):
        expected = np.array([nnls(basis.T, x)[0] for x in new])
        # The sweeps stop at 1e-9 of the change of the first sweep.
        np.testing.assert_allclose(V, expected, atol=1e-6 * expected.max())
        return
    split = reference.split_frobenius if method.loss == FROBENIUS else reference.split_kl
    kept = {t: v for t, v in terms.items() if t in ("S", "l1_V", "l2_V")}
    (neg, pos), _ = split(new, V, est.components_.T, **kept)
    gradient = pos - neg
    # These are the KKT conditions for V >= 0. Multiplicative updates approach zero slowly, so the
    # gradient at an entry is weighted by that entry.
    small = 1e-4 * np.abs(pos).max()
    assert (gradient > -small).all() and (gradient * V < small * V.max()).all()


@each(METHODS)
def test_sparse_and_float32(method):
    import scipy.sparse as sp

    q = PROBLEMS["gaps"]
    est = method.fit(q, scale="unit", max_iter=20)
    start = {"W": q.V, "H": q.U.T.copy()}
    model = method.make("mu", "unit", init="custom", max_iter=20)
    given = method.data(q)
    model.fit(sp.csr_array(q.X), **start, **given)
    assert_close(model.embedding_, est.embedding_, 1e-9)
    small = {name: M.astype(np.float32) for name, M in start.items()}
    model.fit(q.X.astype(np.float32), **small, **given)
    assert model.embedding_.dtype == model.components_.dtype == np.float32
    # The tolerance allows for 20 iterations in single precision.
    assert model.objective_ == pytest.approx(est.objective_, rel=1e-4)
