"""The estimator call of each method page is the paper's method: it repeats the naive updates."""

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
    pytest.skip("there is no documentation beside the tests", allow_module_level=True)


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
    """The estimator of a page, with the sizes of this problem and a given start."""
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
    if getattr(model, "scale", "") == "paper":  # at the end the columns of U have unit length
        V, other = reference.normalize_columns(V, other, 1 if name == "cdnmf-kl" else 2)
    # fifty updates carry rounding on; a setting that is off by a millionth is beyond 1e-8
    for ours, theirs in ((model.embedding_, V), (found, other)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())
    np.testing.assert_allclose(model.objective_history_, history, rtol=1e-8)


def test_every_method_of_the_papers_has_a_page():
    pages = {page.stem for page in PAGES.glob("*.rst")} - {"index"}
    assert pages == {name.removesuffix("-kl") for name in NAIVE}
