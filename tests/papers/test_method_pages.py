"""Tests that the estimator call on the page of each method repeats the paper's naive updates."""

import re
from pathlib import Path

import numpy as np
import pytest

import partwise
import reference
from methods import make_problem

PAGES = Path(__file__).parents[2] / "docs" / "papers" / "methods"
Q = make_problem(seed=2, n=26, p=13)
N_ITER = 50
if not PAGES.exists():
    pytest.skip("the documentation is not in this copy", allow_module_level=True)


def graph(labels=False):
    W = partwise.graph.neighbor_graph(Q.X, 5).toarray()
    return reference.label_graph(W, Q.y, label_weight=100.0) if labels else W


def unit(norm=2):
    return reference.normalize_columns(Q.V, Q.U, norm)


A, D = reference.label_matrix(Q.y), reference.class_cost(Q.y, Q.k)
NAIVE = {
    "gnmf": lambda: reference.gnmf_frobenius(Q.X, *unit(), N_ITER, W=graph(), lam=100.0),
    "semignmf": lambda: reference.gnmf_frobenius(
        Q.X, *unit(), N_ITER, W=graph(labels=True), lam=100.0
    ),
    "cnmf": lambda: reference.cnmf_frobenius(Q.X, Q.V, Q.U, N_ITER, A=A),
    "nmfdc": lambda: reference.nmfdc_nesterov(Q.X, Q.V, Q.U, N_ITER, A=A, delta=0.5),
    "cdnmf": lambda: reference.cdnmf_frobenius(Q.X, *unit(), N_ITER, D=D, class_reg=1.0),
    "cdnmf-kl": lambda: reference.cdnmf_kl(Q.X, *unit(1), N_ITER, D=D, class_reg=10.0),
    "cf": lambda: reference.cf_mu(Q.X, Q.V, Q.C, N_ITER),
    "lcf": lambda: reference.lcf_mu_literal(Q.X, Q.V, Q.C, N_ITER, lam=0.3),
}


def call(name):
    """Return the estimator that a documentation page calls, set up for this test's problem."""
    page = (PAGES / f"{name.removesuffix('-kl')}.rst").read_text(encoding="utf-8")
    calls = re.findall(r"(?:model = |``)([A-Z]+\w*\(3, .*\))(?:$|``)", page, re.M)
    text = calls[name.endswith("-kl")]
    names = {name: getattr(partwise, name) for name in re.findall(r"^\w+", text)}
    return eval(text, names).set_params(
        n_components=Q.k, init="custom", max_iter=N_ITER, random_state=0
    )


@pytest.mark.parametrize("name", NAIVE)
def test_the_call_of_a_page_repeats_the_printed_updates(name):
    model, (V, other, history) = call(name), NAIVE[name]()
    start = {"W": Q.V, "C": Q.C} if name in ("cf", "lcf") else {"W": Q.V, "H": Q.U.T}
    model.fit(Q.X, Q.y, **start)
    found = model.concept_weights_ if name in ("cf", "lcf") else model.components_.T
    # A fit with this scale ends with columns of U of unit norm.
    if getattr(model, "scale", "") == "paper":
        V, other = reference.normalize_columns(V, other, 1 if name == "cdnmf-kl" else 2)
    elif name == "cnmf":  # without a penalty, a fit ends with part weights of mean square one
        V, other = reference.unit_weights(V, other)
    # Fifty updates amplify rounding errors, but a parameter that is wrong by a millionth would
    # exceed 1e-8.
    for ours, theirs in ((model.embedding_, V), (found, other)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())
    np.testing.assert_allclose(model.objective_history_, history, rtol=1e-8)


def test_guided_semi_supervised_nmf_is_nmf_of_a_block_matrix(rng):
    """Check that Guided NMF's updates of four factors equal those of NMF on a block matrix."""
    n, p, k, mu, lam = 30, 20, 4, 2.0, 5.0
    X, seeds, known = rng.random((n, p)), 1.0 * (rng.random((2, p)) < 0.2), rng.random((n, 1)) < 0.4
    Y = np.where(known, np.eye(3)[rng.integers(0, 3, n)], np.nan)
    blocks = np.block([[X, lam**0.5 * Y], [mu**0.5 * seeds, np.full((2, 3), np.nan)]])
    W, H = rng.random((n + 2, k)), rng.random((k, p + 3))
    model = partwise.NMF(
        k, solver="mu", missing_values=np.nan, tol=0, max_iter=N_ITER, init="custom"
    ).fit(blocks, W=W, H=H)
    V, B, U, C = W[:n], W[n:] / mu**0.5, H.T[:p], H.T[p:] / lam**0.5
    Z = np.nan_to_num(Y)
    for _ in range(N_ITER):
        V = V * (X @ U + lam * Z @ C) / (V @ U.T @ U + lam * (known * (V @ C.T)) @ C)
        B = B * (seeds @ U) / (B @ U.T @ U)
        C = C * (Z.T @ V) / ((known * (V @ C.T)).T @ V)
        U = U * (X.T @ V + mu * seeds.T @ B) / (U @ (V.T @ V + mu * B.T @ B))
    rows, columns = np.vstack([V, mu**0.5 * B]), np.vstack([U, lam**0.5 * C])
    rows, columns = reference.unit_weights(rows, columns)
    for ours, theirs in ((model.embedding_, rows), (model.components_.T, columns)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * theirs.max())


def test_every_method_of_the_papers_has_a_page():
    pages = {page.stem for page in PAGES.glob("*.rst")} - {"index", "guided"}
    assert pages == {name.removesuffix("-kl") for name in NAIVE}
