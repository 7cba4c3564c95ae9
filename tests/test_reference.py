"""Tests of the naive reference itself: gradients, descent, limit cases and fixed points.

Nothing here imports the library.
"""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import non_negative_factorization
from sklearn.exceptions import ConvergenceWarning

import reference as ref

N, P, K = 14, 9, 4
N_ITER = 60

# Tolerances of central differences with step 1e-6 for values of 1 to 100: the rounding error is
# 1e-8 and the truncation error 1e-10.
GRADIENT = {"rtol": 1e-5, "atol": 1e-6}
# Two ways to compute one iteration differ only by rounding, which 60 iterations hardly amplify.
SAME = {"rtol": 1e-9, "atol": 1e-12}


def never_rises(history, start=np.inf):
    values = np.concatenate([[start], history])
    return (values[1:] <= values[:-1] + 1e-12 * np.abs(values[1:])).all()


@pytest.fixture(params=["dense", "gaps"])
def problem(request):
    """Return a start, a graph and labels; with "gaps", X has many zeros, also a zero row."""
    rng = np.random.default_rng(3)
    X = rng.gamma(1.0, 1.0, size=(N, P))
    if request.param == "gaps":
        X *= rng.random((N, P)) < 0.6
        X[5], X[:, 2] = 0.0, 0.0
    W = np.triu(rng.random((N, N)) < 0.25, 1) * rng.integers(1, 3, size=(N, N))
    y = np.array([0, 1, 2, -1, 0, 1, -1, 2, 0, -1, -1, 1, -1, -1])
    return {
        "X": X,
        "V": 0.1 + rng.random((N, K)),
        "U": 0.1 + rng.random((P, K)),
        "C": 0.1 + rng.random((N, K)),
        "W": (W + W.T).astype(float),
        "y": y,
        "A": ref.label_matrix(y),
        "D": ref.class_cost(y, K),
        "S": ref.smoothing_matrix(K, 0.4),
        "gamma": 0.5 + rng.random(N),
    }


LINEAR = {"l1_V": 0.3, "l2_V": 0.2, "l1_U": 0.1, "l2_U": 0.4}


def every_term(problem):
    terms = {name: problem[name] for name in ("S", "W", "D", "gamma")}
    return terms | {"lam": 0.7, "class_reg": 0.9} | LINEAR


# --------------------------------------------------------------------------------------------
# Gradients: the split (neg, pos) against finite differences of the objective
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "split, objective",
    [(ref.split_frobenius, ref.objective_frobenius), (ref.split_kl, ref.objective_kl)],
)
def test_split_is_the_gradient_with_every_term(problem, split, objective):
    X, A, U = problem["X"], problem["A"], problem["U"]
    terms = every_term(problem)
    Z = ref.shared_rows(A, problem["V"])
    splits = split(X, Z, U, A=A, **terms)
    for (neg, pos), numeric in zip(
        splits,
        (
            ref.numerical_gradient(lambda Z: objective(X, A @ Z, U, **terms), Z),
            ref.numerical_gradient(lambda U: objective(X, A @ Z, U, **terms), U),
        ),
    ):
        assert (neg >= 0).all() and (pos >= 0).all()
        np.testing.assert_allclose(pos - neg, numeric, **GRADIENT)


@pytest.mark.parametrize("beta", [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_split_is_the_gradient_of_beta(problem, beta):
    X, V, U = problem["X"] + 0.1 * (beta <= 0), problem["V"], problem["U"]
    terms = {"gamma": problem["gamma"]} | LINEAR
    (neg_V, pos_V), (neg_U, pos_U) = ref.split_beta(X, V, U, beta, **terms)
    by_V = ref.numerical_gradient(lambda V: ref.objective_beta(X, V, U, beta, **terms), V)
    by_U = ref.numerical_gradient(lambda U: ref.objective_beta(X, V, U, beta, **terms), U)
    np.testing.assert_allclose(pos_V - neg_V, by_V, **GRADIENT)
    np.testing.assert_allclose(pos_U - neg_U, by_U, **GRADIENT)


@pytest.mark.parametrize("signed", [False, True])
def test_split_is_the_gradient_of_concepts(problem, signed):
    X, V, C = problem["X"] - signed * 0.8, problem["V"], problem["C"]
    parts = ref.signed_parts(X) if signed else None
    splits = ref.split_concepts(X, V, C, lam=0.3, K_parts=parts)
    by_V = ref.numerical_gradient(lambda V: ref.objective_concepts(X, V, C, lam=0.3), V)
    by_C = ref.numerical_gradient(lambda C: ref.objective_concepts(X, V, C, lam=0.3), C)
    for (neg, pos), numeric in zip(splits, (by_V, by_C)):
        assert (neg >= 0).all() and (pos >= 0).all()
        np.testing.assert_allclose(pos - neg, numeric, **GRADIENT)


# --------------------------------------------------------------------------------------------
# Units: our objective is half of the printed one for Frobenius (NMF-DC prints the half itself)
# --------------------------------------------------------------------------------------------


def test_design_units_against_print(problem):
    X, V, U, C = (problem[name] for name in "XVUC")
    W, D, gamma = problem["W"], problem["D"], problem["gamma"]
    half = ref.objective_frobenius
    cases = [
        (half(X, V, U), ref.nmf_frobenius_as_printed(X, V, U) / 2),
        (half(X, V, U), ref.cnmf_frobenius_as_printed(X, V, U) / 2),
        (
            half(X, V, U, W=W, lam=3.0, gamma=gamma),
            ref.gnmf_frobenius_as_printed(X, V, U, W=W, lam=3.0, gamma=gamma) / 2,
        ),
        (
            half(X, V, U, D=D, class_reg=3.0),
            ref.cdnmf_frobenius_as_printed(X, V, U, D=D, class_reg=3.0) / 2,
        ),
        (half(X, V, U, S=problem["S"]), ref.nmfdc_as_printed(X, V, U, delta=0.4)),
        (ref.objective_concepts(X, V, C, lam=0.3), ref.lcf_as_printed(X, V, C, lam=0.3) / 2),
        (ref.objective_kl(X, V, U), ref.nmf_kl_as_printed(X, V, U)),
        (
            ref.objective_kl(X, V, U, D=D, class_reg=3.0),
            ref.cdnmf_kl_as_printed(X, V, U, D=D, class_reg=3.0, cost_once=True),
        ),
        # For GNMF-KL, our objective with twice λ is the printed one.
        (
            ref.objective_kl(X, V, U, W=W, lam=6.0),
            ref.gnmf_kl_as_printed(X, V, U, W=W, lam=3.0),
        ),
    ]
    for ours, printed in cases:
        assert ours == pytest.approx(printed, rel=1e-12)
    # The printed objective (21) of cdNMF counts the class cost once per feature.
    surplus = ref.cdnmf_kl_as_printed(X, V, U, D=D, class_reg=1.0) - ref.nmf_kl_as_printed(X, V, U)
    assert surplus == pytest.approx(P * (D * V).sum(), rel=1e-12)


def test_weighted_gnmf_is_appendix_c(problem):
    """Check GNMF with sample weights against appendix C of the GNMF paper.

    There V' = Γ^½V, X' = Γ^½X, W' = Γ^-½WΓ^-½, and D' = Γ^-½DegΓ^-½, which are not the degrees of
    W'.
    """
    X, V, U, W, gamma = (problem[name] for name in ("X", "V", "U", "W", "gamma"))
    root = np.sqrt(gamma)[:, None]
    V1, _, _ = ref.gnmf_frobenius(X, V, U, 1, W=W, lam=2.0, gamma=gamma)
    Xs, Vs, Ws = root * X, root * V, W / (root * root.T)
    degree = W.sum(axis=1)[:, None] / gamma[:, None]
    expected = Vs * (Xs @ U + 2.0 * Ws @ Vs) / (Vs @ U.T @ U + 2.0 * degree * Vs)
    np.testing.assert_allclose(root * V1, expected, **SAME)


# --------------------------------------------------------------------------------------------
# Objectives never rise, from any start and in either order of the factors
# --------------------------------------------------------------------------------------------

MONOTONE = {
    "nmf_frobenius": lambda q: {},
    "nmf_kl": lambda q: {},
    "gnmf_frobenius": lambda q: {"W": q["W"], "lam": 5.0, "gamma": q["gamma"]},
    "semi_gnmf_frobenius": lambda q: {"W": q["W"], "y": q["y"], "lam": 5.0, "label_weight": 3.0},
    "cnmf_frobenius": lambda q: {"A": q["A"]},
    "cnmf_kl": lambda q: {"A": q["A"]},
    "cdnmf_frobenius": lambda q: {"D": q["D"]},
    "cdnmf_kl": lambda q: {"D": q["D"]},
    "nsnmf_frobenius": lambda q: {},
    "nsnmf_kl": lambda q: {},
    "nmfdc_nesterov": lambda q: {"A": q["A"]},
    "lin_modified_mu": lambda q: {"W": q["W"], "lam": 5.0, "gamma": q["gamma"]} | LINEAR,
    "constrained_frobenius": lambda q: every_term(q) | {"A": q["A"]},
    "constrained_kl": lambda q: (
        {name: q[name] for name in ("A", "S", "D", "gamma")} | {"class_reg": 0.9} | LINEAR
    ),
}


@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("name", MONOTONE)
def test_history_never_rises(problem, name, order):
    X, V0, U0 = problem["X"], problem["V"], problem["U"]
    V, U, history = getattr(ref, name)(X, V0, U0, N_ITER, order=order, **MONOTONE[name](problem))
    assert len(history) == N_ITER
    assert np.isfinite(history).all() and (V >= 0).all() and (U >= 0).all()
    assert never_rises(history)
    assert history[-1] < history[0]


@pytest.mark.parametrize("penalties", [{}, {"l1_V": 0.3, "l1_U": 0.1}, LINEAR])
@pytest.mark.parametrize("beta", [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_beta_never_rises(problem, beta, penalties):
    X = problem["X"] + 0.1 * (beta <= 0)
    _, _, history = ref.nmf_beta(
        X, problem["V"], problem["U"], N_ITER, beta=beta, l2_rule="mm", **penalties
    )
    assert np.isfinite(history).all() and never_rises(history)


@pytest.mark.parametrize("beta, x, v", [(0.5, 1e4, 0.8), (1.5, 1.0, 1e-6)])
def test_beta_ratio_rule_with_l2_is_no_descent_step(beta, x, v):
    """Check that scikit-learn's ratio rule with an l2 penalty can raise the objective.

    With the l2 term only in the denominator, a small entry overshoots; l2_rule="mm" avoids this.
    """
    X, V0, U0 = np.full((1, 1), x), np.full((1, 1), v), np.ones((1, 1))
    start = ref.objective_beta(X, V0, U0, beta, l2_V=50.0)
    histories = {
        rule: ref.nmf_beta(X, V0, U0, 8, beta=beta, l2_V=50.0, l2_rule=rule)[2]
        for rule in ("ratio", "mm")
    }
    assert never_rises(histories["mm"], start)
    assert not never_rises(histories["ratio"], start)


def test_kl_ratio_rule_with_l2_oscillates():
    """Check that the ratio rule c / (b + l2 z) oscillates for the KL loss with an l2 penalty.

    For -log z + l2/2 z² with a small b it has period two.
    """
    c, b, l2, z = 1.0, 1e-12, 4.0, 3.0
    once = c / (b + l2 * z)
    assert c / (b + l2 * once) == pytest.approx(z)
    assert ref.em_minimiser(np.array(c), np.array(b), l2) == pytest.approx(0.5)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("lam", [0.0, 0.3, 3.0])
def test_concepts_never_rise(problem, signed, order, lam):
    X = problem["X"] - 0.8 * signed
    V, C, history = ref.lcf_mu(X, problem["V"], problem["C"], N_ITER, lam=lam, order=order)
    assert (V >= 0).all() and (C >= 0).all() and np.isfinite(history).all()
    assert never_rises(history, ref.objective_concepts(X, problem["V"], problem["C"], lam=lam))


def test_concepts_with_a_signed_kernel_never_rise(problem):
    X = problem["X"] - 0.8
    kernel = np.tanh(X @ X.T) + 3.0 * np.eye(N)
    assert (kernel < 0).any() and np.linalg.eigvalsh(kernel).min() > 0
    _, _, history = ref.lcf_mu(X, problem["V"], problem["C"], N_ITER, K=kernel)
    assert never_rises(history)


@pytest.mark.parametrize("order", ["VU", "UV"])
@pytest.mark.parametrize("wanted", [(None, 0.6), (0.6, None), (0.5, 0.7), (None, None)])
def test_hoyer_holds_sparseness_and_never_rises(problem, order, wanted):
    X, V0, U0 = problem["X"], problem["V"], problem["U"]
    V, U, history = ref.hoyer_sparse_nmf(
        X, V0, U0, N_ITER, sparseness_V=wanted[0], sparseness_U=wanted[1], order=order
    )
    assert (V >= 0).all() and (U >= 0).all() and never_rises(history)
    for Z, value in ((V, wanted[0]), (U, wanted[1])):
        if value is not None:
            assert [ref.sparseness(column) for column in Z.T] == pytest.approx([value] * K)


# --------------------------------------------------------------------------------------------
# Fixed points: long runs end in KKT points of the objective in our units
# --------------------------------------------------------------------------------------------

FIXED = {
    "nmf_frobenius": ("frobenius", lambda q: LINEAR | {"gamma": q["gamma"]}),
    "nmf_kl": ("kl", lambda q: LINEAR | {"gamma": q["gamma"]}),
    "constrained_frobenius": ("frobenius", lambda q: every_term(q) | {"A": q["A"]}),
    "constrained_kl": ("kl", lambda q: MONOTONE["constrained_kl"](q)),
}


@pytest.mark.parametrize("name", FIXED)
def test_long_runs_satisfy_complementarity(problem, name):
    """Check that Z ∘ gradient tends to 0, which is all that multiplicative updates guarantee.

    An entry that came near 0 may stay there with a negative gradient, so the KKT residual itself
    need not vanish.
    """
    loss, terms = FIXED[name]
    terms = terms(problem)
    X, A = problem["X"], terms.get("A", np.eye(N))
    V, U, _ = getattr(ref, name)(X, problem["V"], problem["U"], 4000, **terms)
    Z = ref.shared_rows(A, V)
    for factor, (neg, pos) in zip((Z, U), getattr(ref, f"split_{loss}")(X, Z, U, **terms)):
        slack = np.linalg.norm(factor * (pos - neg)) / np.linalg.norm(factor * pos)
        assert slack < 1e-4


@pytest.mark.parametrize("graph", [False, True])
def test_lin_ends_stationary(problem, graph):
    """Check that Lin's modified updates end in a stationary point.

    Penalties on both factors keep the iterates bounded.
    """
    X, terms = problem["X"], LINEAR | ({"W": problem["W"], "lam": 2.0} if graph else {})
    V, U, history = ref.lin_modified_mu(X, problem["V"], problem["U"], 5000, **terms)
    split = ref.split_frobenius(X, V, U, **terms)
    assert never_rises(history)
    assert ref.kkt_residual(V, U, *split, zero=1e-6) < 1e-3
    # Entries of 1e-300 are not exactly zero, so the strict residual never falls.
    assert ref.kkt_residual(V, U, *split) > 1e-2


@pytest.mark.parametrize(
    "name, loss, terms",
    [
        ("gnmf_frobenius", "frobenius", lambda q: {"W": q["W"], "lam": 2.0}),
        ("cdnmf_frobenius", "frobenius", lambda q: {"D": q["D"], "class_reg": 1.0}),
        ("cdnmf_kl", "kl", lambda q: {"D": q["D"], "class_reg": 10.0}),
    ],
)
def test_update_is_a_scaled_gradient_step_of_our_units(problem, name, loss, terms):
    """Check that an update is a scaled gradient step, so that its fixed points are KKT points.

    V - V⁺ equals (V / pos) ∘ gradient, where the gradient is computed by finite differences.
    """
    X, V, U, terms = problem["X"], problem["V"], problem["U"], terms(problem)
    moved, _, _ = getattr(ref, name)(X, V, U, 1, order="VU", **terms)
    (_, pos), _ = getattr(ref, f"split_{loss}")(X, V, U, **terms)
    objective = getattr(ref, f"objective_{loss}")
    numeric = ref.numerical_gradient(lambda V: objective(X, V, U, **terms), V)
    np.testing.assert_allclose((V - moved) * pos / V, numeric, **GRADIENT)


def test_gnmf_kl_fixed_points_are_stationary_for_neither_form(problem):
    """Check that fixed points of GNMF's update (21) are not stationary for either objective.

    V alone is iterated to a fixed point. Then the KKT residual in V is computed with the printed λ
    and with half of it.
    """
    X, V, U, W, lam = problem["X"], problem["V"], problem["U"], problem["W"], 0.5
    for _ in range(1000):
        previous = V
        V, _, _ = ref.gnmf_kl(X, V, U, 1, W=W, lam=lam, order="VU")
    assert np.abs(V - previous).max() < 1e-4
    residual = {}
    for form, value in (("plain", 0.0), ("half", lam), ("printed", 2.0 * lam)):
        split_V, _ = ref.split_kl(X, V, U, W=W, lam=value)
        nothing = (np.zeros_like(U), np.zeros_like(U))
        residual[form] = ref.kkt_residual(V, U, split_V, nothing)
    assert min(residual.values()) > 1e-3
    assert residual["half"] < residual["printed"]


def test_gnmf_kl_solves_its_system(problem):
    X, V0, U0, W = problem["X"], problem["V"], problem["U"], problem["W"]
    V, _, _ = ref.gnmf_kl(X, V0, U0, 1, W=W, lam=3.0, order="VU")
    c = V0 * ((X / (V0 @ U0.T)) @ U0)
    np.testing.assert_allclose(U0.sum(axis=0) * V + 3.0 * ref.laplacian(W) @ V, c, **SAME)
    assert (V >= 0).all()
    V, U, history = ref.gnmf_kl(X, V0, U0, N_ITER, W=W, lam=3.0)
    assert np.isfinite(history).all() and np.isfinite(V).all() and np.isfinite(U).all()


def test_gnmf_kl_zero_samples_that_know_only_each_other(problem):
    X, W = problem["X"].copy(), problem["W"].copy()
    pair = [3, 6]
    X[pair] = 0.0
    W[pair], W[:, pair] = 0.0, 0.0
    W[3, 6] = W[6, 3] = 1.0
    V, U, history = ref.gnmf_kl(
        X, problem["V"], problem["U"], 20, W=W, lam=3.0, gamma=ref.ncw_weights(X)
    )
    assert not V[pair].any() and np.isfinite(V).all() and np.isfinite(U).all()
    assert np.isfinite(history).all()


def test_graph_system_with_l2(problem):
    rng = np.random.default_rng(0)
    b, c, M = rng.random(N), rng.random(N), 2.0 * ref.laplacian(problem["W"])
    l2 = 3.0 * np.ones(N)
    v = ref.solve_graph_system(b, c, M, l2)
    np.testing.assert_allclose(b * v + l2 * v**2 + M @ v, c, **SAME)
    np.testing.assert_allclose(
        ref.solve_graph_system(b, c, 0.0 * M, l2), ref.em_minimiser(c, b, l2), **SAME
    )


# --------------------------------------------------------------------------------------------
# The same iterates computed in two ways, and limit cases
# --------------------------------------------------------------------------------------------


def assert_equal_runs(problem, one, two, n_iter=N_ITER):
    """Check that two functions, given as (name, keywords), return the same V, U and history."""
    X, V0, U0 = problem["X"], problem["V"], problem["U"]
    results = [getattr(ref, name)(X, V0, U0, n_iter, **terms) for name, terms in (one, two)]
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, **SAME)


@pytest.mark.parametrize("order", ["VU", "UV"])
def test_named_methods_are_combinations(problem, order):
    A, D, W, gamma = (problem[name] for name in ("A", "D", "W", "gamma"))
    S, o = ref.smoothing_matrix(K, 0.5), {"order": order}
    graph = {"W": W, "lam": 2.0, "gamma": gamma}
    for loss in ("frobenius", "kl"):
        combined = f"constrained_{loss}"
        for named, own, terms in [
            ("nmf", {"gamma": gamma} | LINEAR, {"gamma": gamma} | LINEAR),
            ("gnmf", graph, graph),
            (
                "semi_gnmf",
                {"W": W, "y": problem["y"], "lam": 2.0, "label_weight": 3.0},
                {"W": ref.label_graph(W, problem["y"], 3.0), "lam": 2.0},
            ),
            ("cnmf", {"A": A}, {"A": A}),
            ("cdnmf", {"D": D, "class_reg": 2.0}, {"D": D, "class_reg": 2.0}),
            ("nsnmf", {"delta": 0.5}, {"S": S}),
        ]:
            assert_equal_runs(problem, (f"{named}_{loss}", own | o), (combined, terms | o))


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_limits_give_plain_nmf(problem, loss):
    plain = (f"nmf_{loss}", {"order": "UV"})
    nothing = np.full(N, -1)
    one_each = np.where(np.arange(N) < 3, np.arange(N), -1)
    for name, terms in [
        ("gnmf", {"W": problem["W"], "lam": 0.0}),
        ("gnmf", {"W": 0.0 * problem["W"], "lam": 5.0}),
        ("semi_gnmf", {"W": 0.0 * problem["W"], "y": one_each, "lam": 5.0}),
        ("cnmf", {"A": ref.label_matrix(nothing)}),
        ("cnmf", {"A": ref.label_matrix(one_each)}),
        ("cdnmf", {"D": ref.class_cost(nothing, K)}),
        ("cdnmf", {"D": problem["D"], "class_reg": 0.0}),
        ("nsnmf", {"delta": 0.0}),
        ("nmf", {"gamma": np.ones(N)}),
    ]:
        assert_equal_runs(problem, plain, (f"{name}_{loss}", terms | {"order": "UV"}))
    beta = {"frobenius": 2, "kl": 1}[loss]
    assert_equal_runs(problem, plain, ("nmf_beta", {"beta": beta, "order": "UV"}))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_scikit_learn_agrees(problem, beta):
    """Compare with scikit-learn for the same rule, order and penalties.

    Its penalties are scaled by the number of features or samples.
    """
    X, V0, U0 = problem["X"] + 0.1, problem["V"], problem["U"]
    # The l2 step of our KL update is exact, but that of scikit-learn is not.
    l2 = 0.0 if beta == 1 else 1.0
    alpha, share = 0.02, 0.5 if l2 else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        V, H, _ = non_negative_factorization(
            X, V0.copy(), U0.T.copy(), K, init="custom", solver="mu", beta_loss=beta, tol=0.0,
            max_iter=20, alpha_W=alpha, alpha_H=2 * alpha, l1_ratio=share,
        )  # fmt: skip
    ours = ref.nmf_beta(
        X, V0, U0, 20, beta=beta, order="VU",
        l1_V=alpha * share * P, l2_V=alpha * (1 - share) * P,
        l1_U=2 * alpha * share * N, l2_U=2 * alpha * (1 - share) * N,
    )  # fmt: skip
    # The lower bound in scikit-learn is the eps of float32, which affects entries that tend to
    # zero.
    np.testing.assert_allclose(ours[0], V, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours[1], H.T, rtol=1e-5, atol=1e-5)


def test_gradient_descent_view(problem):
    terms = {"W": problem["W"], "lam": 4.0}
    assert_equal_runs(problem, ("gnmf_frobenius", terms), ("gnmf_gradient_descent", terms))


def test_lcf_literal_and_linear_kernel(problem):
    X, V0, C0 = problem["X"], problem["V"], problem["C"]
    for order in ("VU", "UV"):
        short = ref.lcf_mu(X, V0, C0, N_ITER, lam=0.3, order=order)
        literal = ref.lcf_mu_literal(X, V0, C0, N_ITER, lam=0.3, order=order)
        kernel = ref.lcf_mu(X, V0, C0, N_ITER, lam=0.3, K=X @ X.T, order=order)
        for a, b, c in zip(short, literal, kernel):
            np.testing.assert_allclose(a, b, **SAME)
            np.testing.assert_allclose(a, c, **SAME)
    for a, b in zip(ref.cf_mu(X, V0, C0, N_ITER), ref.lcf_mu(X, V0, C0, N_ITER, lam=0.0)):
        np.testing.assert_array_equal(a, b)


def test_lcf_denominator_as_printed_is_no_descent():
    """Check that the denominator in equation (4) of the LCF paper is a misprint.

    The paper prints K W Vᵀ instead of K W V Vᵀ. As W has the shape (n, k), the printed product
    exists only if n = k.
    """
    K, W, V = np.ones((5, 5)), np.ones((5, 2)), np.ones((2, 5))
    assert (K @ W @ V @ V.T).shape == W.shape
    with pytest.raises(ValueError, match="mismatch"):
        K @ W @ V.T


def test_signed_split_of_the_linear_kernel():
    X = np.random.default_rng(1).normal(size=(6, 4))
    plus, minus = ref.signed_parts(X)
    assert (plus >= 0).all() and (minus >= 0).all()
    np.testing.assert_allclose(plus - minus, X @ X.T, **SAME)
    plus, minus = ref.signed_parts(np.abs(X))
    assert not minus.any()


def test_nmfdc_one_label_a_class_is_plain_and_inner_steps_help(problem):
    X, V0, U0 = problem["X"], problem["V"], problem["U"]
    one_each = ref.label_matrix(np.where(np.arange(N) < 3, np.arange(N), -1))
    assert_equal_runs(problem, ("nmfdc_nesterov", {"A": one_each}), ("nmfdc_nesterov", {}))
    ends = [
        ref.nmfdc_nesterov(X, V0, U0, 3, A=problem["A"], inner_iter=inner)[2][-1]
        for inner in (1, 5, 20)
    ]
    assert ends[0] > ends[1] > ends[2]


def test_accelerated_steps_never_end_above_their_start():
    """Check that accelerated steps on an ill-conditioned quadratic never end above their start.

    Within the inner loop the values may rise.
    """
    H = np.diag([1.0, 1e-3])
    target = np.array([[1.0], [1.0]])

    def value(Z):
        return float(0.5 * ((Z - target).T @ H @ (Z - target)).item())

    start = np.array([[3.0], [40.0]])
    values = [
        value(ref.accelerated(lambda Z: H @ (Z - target), 1.0, start, steps))
        for steps in range(400)
    ]
    assert max(values) == values[0]
    assert not never_rises(np.array(values))


def test_hard_labels_share_rows(problem):
    X, V0, U0, y = problem["X"], problem["V"], problem["U"], problem["y"]
    for name in ("cnmf_frobenius", "cnmf_kl", "nmfdc_nesterov"):
        V, _, _ = getattr(ref, name)(X, V0, U0, 5, A=problem["A"])
        for label in (0, 1, 2):
            assert (V[y == label] == V[y == label][0]).all()


# --------------------------------------------------------------------------------------------
# Functions for matrices, weights, residuals and projections
# --------------------------------------------------------------------------------------------


def test_small_matrices():
    y = np.array([7, -1, 2, 7])
    np.testing.assert_array_equal(ref.label_matrix(y), [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(
        ref.class_cost(y, 5, 2), [[1, 1, 0, 0, 0], [0] * 5, [0, 0, 1, 1, 0], [1, 1, 0, 0, 0]]
    )
    W = np.ones((4, 4)) - np.eye(4)
    np.testing.assert_array_equal(
        ref.label_graph(W, y, 9.0), [[0, 1, 0, 9], [1, 0, 1, 1], [0, 1, 0, 0], [9, 1, 0, 0]]
    )
    np.testing.assert_allclose(ref.smoothing_matrix(4, 0.3).sum(axis=0), 1.0)


def test_ncw_weights_and_zero_samples(problem):
    X = problem["X"]
    gamma = ref.ncw_weights(X)
    zero = ~X.any(axis=1)
    assert (gamma[zero] == 0).all() and (gamma[~zero] > 0).all()
    degrees = (gamma[:, None] * (X @ X.T))[~zero].sum(axis=1)
    # All samples with entries have the same weighted degree.
    np.testing.assert_allclose(degrees, degrees[0])
    assert gamma.mean() == pytest.approx(1)
    for name in ("nmf_frobenius", "nmf_kl"):
        V, U, history = getattr(ref, name)(X, problem["V"], problem["U"], 20, gamma=gamma)
        assert np.isfinite(V).all() and np.isfinite(U).all() and never_rises(history)


@pytest.mark.parametrize("norm", [1, 2])
def test_normalize_columns(problem, norm):
    V, U = problem["V"], problem["U"].copy()
    U[:, 1] = 0.0
    V1, U1 = ref.normalize_columns(V, U, norm=norm)
    np.testing.assert_allclose(V1 @ U1.T, V @ U.T)
    np.testing.assert_allclose(np.linalg.norm(U1, ord=norm, axis=0), [1, 0, 1, 1])
    S = problem["S"]
    assert not np.allclose(V1 @ S @ U1.T, V @ S @ U.T)


def test_kkt_residual():
    Z = np.array([[0.0, 0.0, 2.0]])
    neg, pos = np.array([[0.0, 3.0, 4.0]]), np.array([[5.0, 0.0, 4.0]])
    none = (np.zeros((1, 1)), np.zeros((1, 1)))
    # The gradient is (5, -3, 0): the first entry is allowed at zero, the second is not.
    expected = 3.0 / (np.linalg.norm(pos) + np.linalg.norm(neg))
    assert ref.kkt_residual(Z, np.ones((1, 1)), (neg, pos), none) == pytest.approx(expected)


def test_lin_leaves_zero_where_multiplicative_cannot(problem):
    X, V0, U0 = problem["X"], problem["V"].copy(), problem["U"]
    V0[0, 0] = 0.0
    (neg, pos), _ = ref.split_frobenius(X, V0, U0 * 0.1)
    assert neg[0, 0] > pos[0, 0]
    assert ref.nmf_frobenius(X, V0, U0 * 0.1, 1)[0][0, 0] == 0.0
    assert ref.lin_modified_mu(X, V0, U0 * 0.1, 1)[0][0, 0] > 0.0


def test_hoyer_projection_is_the_closest_point():
    rng = np.random.default_rng(2)
    for _ in range(20):
        s = rng.normal(size=7)
        l2 = 0.5 + rng.random()
        l1 = ref.l1_for_sparseness(7, rng.random()) * l2
        v = ref.hoyer_projection(s, l1, l2)
        assert (v >= 0).all()
        assert v.sum() == pytest.approx(l1) and np.linalg.norm(v) == pytest.approx(l2)
        for _ in range(50):
            other = ref.hoyer_projection(s + 0.5 * rng.normal(size=7), l1, l2)
            assert np.linalg.norm(s - v) <= np.linalg.norm(s - other) + 1e-9
    flat = ref.hoyer_projection(np.ones(5), ref.l1_for_sparseness(5, 0.5), 1.0)
    assert ref.sparseness(flat) == pytest.approx(0.5)


def test_plsa_is_kl_nmf():
    rng = np.random.default_rng(5)
    X = rng.poisson(2.0, size=(8, 6)).astype(float)
    total = X.sum()
    Pz = np.array([0.2, 0.5, 0.3])
    Pw = rng.dirichlet(np.ones(6), size=3).T
    Pd = rng.dirichlet(np.ones(8), size=3).T
    V, U = total * Pd * Pz, Pw
    # One EM step consists of both half-steps from the same point, and then columns of U with sum
    # one.
    Pz1, Pw1, Pd1, _ = ref.plsa_em(X, Pz, Pw, Pd, 1)
    V1 = ref.nmf_kl(X, V, U, 1, order="VU")[0]
    U1 = ref.nmf_kl(X, V, U, 1, order="UV")[1]
    np.testing.assert_allclose(V1, total * Pd1 * Pz1, **SAME)
    np.testing.assert_allclose(U1 / U1.sum(axis=0), Pw1, **SAME)
    # At the end, the divergence is a constant minus the log-likelihood.
    Pz, Pw, Pd, likelihood = ref.plsa_em(X, Pz, Pw, Pd, 300)
    assert never_rises(-likelihood)
    V, U, history = ref.nmf_kl(X, V, U, 300)
    constant = (X[X > 0] * np.log(X[X > 0] / total)).sum()
    ours = ref.objective_kl(X, total * Pd * Pz, Pw)
    assert ours == pytest.approx(constant - likelihood[-1], rel=1e-12)
    # Alternating updates are the faster version of EM; both reach the same minimum here.
    assert history[-1] == pytest.approx(ours, rel=1e-3)
