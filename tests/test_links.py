"""Pairs that belong together or apart: checked, contradictions named, in every estimator."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from partwise.engine.data import as_data
from partwise.engine.graph_terms import CannotLink, Graph, Neighbors
from partwise.engine.losses import Frobenius, KullbackLeibler
from partwise.engine.problem import FactorModel
from partwise.engine.solvers.steps import STEPS, check_step, make_step
from partwise.evaluation import linked
from partwise.evaluation.linked import linked_clusters
from partwise.knowledge.labels import encode_labels
from partwise.knowledge.links import check_links

rng = np.random.default_rng(0)
N, P, K = 24, 10, 3
X = rng.random((N, K)) @ rng.random((K, P)) + 0.1 * rng.random((N, P))
V, U = 0.2 + rng.random((N, K)), 0.2 + rng.random((P, K))
MUST = [(0, 1), (5, 1), (7, 9)]
CANNOT = [(0, 2), (3, 4), (9, 11), (2, 5), (6, 3)]


# -- what is handed in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "must, cannot, error, words",
    [
        ([(0, N)], None, ValueError, rf"must_link\[0\].*0 to {N - 1}.*cross-validation"),
        (None, [(0, 1), (-1, 2)], ValueError, r"cannot_link\[1\] = \(-1, 2\)"),
        ([(3, 3)], None, ValueError, "with itself"),
        ([(0.0, 1.0)], None, TypeError, "integers, got dtype float64"),
        ([("a", "b")], None, TypeError, "integers"),
        ([(True, False)], None, TypeError, "dtype bool"),
        ([(0, 1, 2)], None, ValueError, r"shape \(m, 2\)"),
        ([[0, 1], [2]], None, TypeError, "list of pairs"),
        (3, None, TypeError, "list of pairs"),
        ([(0, 1), (1, 2)], [(2, 0)], ValueError, "0 must 1, 1 must 2, but 0 cannot 2"),
        ([(4, 5)], [(5, 4)], ValueError, "4 must 5, but 4 cannot 5"),
    ],
)
def test_bad_links_are_answered(must, cannot, error, words):
    with pytest.raises(error, match=words):
        check_links(must, cannot, N)


def test_contradictions_with_labels_are_named():
    y = encode_labels(["a", None, "b", "a", *[None] * (N - 4)], N)
    with pytest.raises(ValueError, match="joins the labels a and b: 0 must 1, 1 must 2"):
        check_links([(0, 1), (1, 2)], None, N, y)
    with pytest.raises(ValueError, match="0 and 3 have the label a, but 0 cannot 3"):
        check_links(None, [(3, 0)], N, y)
    with pytest.raises(ValueError, match="5 must 0, 0 and 3 have the label a, but 3 cannot 5|3 "):
        check_links([(0, 5)], [(5, 3)], N, y)
    assert check_links([(0, 3)], [(0, 2)], N, y) is not None
    assert check_links([], None, N, y) is None


def test_pairs_count_once_and_groups_are_unions():
    links = check_links([(1, 0), (0, 1), *MUST], [(2, 0), (0, 2)], N)
    assert len(links.must) == 3 and len(links.cannot) == 1
    A = reference.must_matrix(N, MUST)
    codes = links.groups().codes
    together = (codes[:, None] == codes) & (codes >= 0)[:, None]
    np.testing.assert_array_equal(together | np.eye(N, dtype=bool), A @ A.T > 0)
    y = np.full(N, -1)
    y[[9, 13, 14]] = 4, 4, 2
    codes = links.groups(encode_labels(y, N)).codes
    B = reference.must_matrix(N, MUST, y)
    together = (codes[:, None] == codes) & (codes >= 0)[:, None]
    np.testing.assert_array_equal(together | np.eye(N, dtype=bool), B @ B.T > 0)
    assert codes[14] == 0 and codes[13] == 1  # the classes come first


# -- the term --------------------------------------------------------------------------------------


def term(weight=0.7):
    C = check_links(None, CANNOT, N).cannot_graph
    return CannotLink(Neighbors(C), np.asarray(C.sum(axis=1)).ravel(), weight)


def test_the_term_is_its_formula():
    value = reference.links_cost(V, cannot=CANNOT, cannot_reg=0.7)
    assert term().value(V) == pytest.approx(value, rel=1e-12)
    slope = reference.numerical_gradient(
        lambda Z: reference.links_cost(Z, cannot=CANNOT, cannot_reg=0.7), V
    )
    np.testing.assert_allclose(term().gradient(V), slope, atol=1e-7)
    for other in (rng.random((N, K)), np.zeros((N, K)), 3 * V):
        slope, ridge, _ = term().bound(V)
        step = other - V
        above = term().value(V) + (slope * step).sum() + 0.5 * (ridge * step**2).sum()
        assert above >= term().value(other) - 1e-12  # the bound is one
        assert term().change(other, V) == pytest.approx(term().value(other) - term().value(V))


@pytest.mark.parametrize("weight", [0.1, 5.0])  # the latter: the Hessian is indefinite
@pytest.mark.parametrize("beta, step", [(2, "mu"), (2, "hals"), (1, "mu"), (1, "newton")])
def test_every_step_that_takes_it_descends(beta, step, weight):
    loss = Frobenius() if beta == 2 else KullbackLeibler()
    graph = Graph(Neighbors(sp.csr_array(np.eye(N, k=1) + np.eye(N, k=-1))), 2 * np.ones(N), 0.1)
    model = FactorModel(as_data(X), loss, terms_V=[term(weight), graph])
    Z = V.copy()
    values = [model.value(Z, U)]
    for _ in range(60):
        Z = make_step(step)(model.subproblem("V", Z, U), Z)
        values.append(model.value(Z, U))
    assert (np.diff(values) <= 1e-10 * values[0]).all()
    gradient = model.subproblem("V", Z, U).gradient(Z)
    assert np.abs(np.where(Z > 1e-3, gradient, np.minimum(gradient, 0))).max() < 0.3


def test_a_step_that_counts_on_convexity_refuses():
    with pytest.raises(ValueError, match="nesterov.*CannotLink.*solvers that can: mu, hals"):
        check_step("nesterov", "frobenius", 2.0, [term()])
    assert [s.name for s in STEPS.values() if s.does(1.0) and s.takes(term(), 1.0)] == [
        "mu",
        "newton",
    ]


# -- clusters that keep links ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_merging_is_brute_force(seed):
    rng = np.random.default_rng(seed)
    Z, y = rng.random((18, 2)), rng.integers(4, size=18)
    pairs = [(int(i), int(j)) for i, j in rng.integers(18, size=(25, 2)) if i != j]
    must = [(i, j) for i, j in pairs if y[i] == y[j]]
    cannot = [(i, j) for i, j in pairs if y[i] != y[j]]
    links = check_links(must, cannot, 18)
    for k in (2, 4, 6):
        found = linked_clusters(Z, k, links)
        wanted = reference.linked_merge(Z, k, links.must.tolist(), links.cannot.tolist())
        np.testing.assert_array_equal(found[:, None] == found, wanted[:, None] == wanted)
        assert all(found[i] == found[j] for i, j in must) and found.max() == k - 1


def test_many_samples_begin_in_groups(monkeypatch):
    monkeypatch.setattr(linked, "MOST", 40)
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    Z = np.eye(3)[y] + 0.1 * rng.random((300, 3))
    links = check_links([(0, 3)], [(0, 1), (1, 2)], 300)
    found = linked_clusters(Z, 3, links, random_state=0)
    np.testing.assert_array_equal(found[:, None] == found, y[:, None] == y)
