"""Tests of must-links and cannot-links in every estimator, and of contradictory links."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import cross_val_score

import reference
from backends import Forms
from partwise import CDNMF, CNMF, GNMF, NMF, NMFDC, NSNMF, ConstrainedNMF, SemiGNMF
from partwise.backends import as_data
from partwise.evaluation import linkage
from partwise.evaluation.linkage import linked_clusters
from partwise.fitting import Description, Knowledge
from partwise.fitting.stating import shared_rows, terms_on_codes
from partwise.knowledge.graph import Neighborhood
from partwise.knowledge.labels import encode_labels
from partwise.knowledge.links import check_links
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import CannotLink, Graph, Neighbors
from partwise.model.losses import Frobenius, KullbackLeibler
from partwise.solvers.loop import Settings, alternate
from partwise.solvers.steps import STEPS, check_step, make_step

rng = np.random.default_rng(0)
N, P, K = 24, 10, 3
X = rng.random((N, K)) @ rng.random((K, P)) + 0.1 * rng.random((N, P))
V, U = 0.2 + rng.random((N, K)), 0.2 + rng.random((P, K))
MUST = [(0, 1), (5, 1), (7, 9)]
CANNOT = [(0, 2), (3, 4), (9, 11), (2, 5), (6, 3)]


# -- checks of the input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "must, cannot, error, words",
    [
        ([(0, N)], None, ValueError, rf"must_link\[0\].*0 to {N - 1}"),
        (None, [(0, 1), (-1, 2)], ValueError, r"cannot_link\[1\] = \(-1, 2\)"),
        ([(3, 3)], None, ValueError, r"must_link\[0\] = \(3, 3\)"),
        ([(0.0, 1.0)], None, TypeError, "^must_link.*float64"),
        ([("a", "b")], None, TypeError, "^must_link.*<U1"),
        ([(True, False)], None, TypeError, "^must_link.*bool"),
        ([(0, 1, 2)], None, ValueError, r"shape \(m, 2\)"),
        ([[0, 1], [2]], None, TypeError, "^must_link"),
        (3, None, TypeError, "^must_link"),
        ([(0, 1), (1, 2)], [(2, 0)], ValueError, "0 must 1, 1 must 2, .*0 cannot 2"),
        ([(4, 5)], [(5, 4)], ValueError, "4 must 5, .*4 cannot 5"),
    ],
)
def test_bad_links_are_answered(must, cannot, error, words):
    with pytest.raises(error, match=words):
        check_links(must, cannot, N)


def test_contradictions_with_labels_are_named():
    y = encode_labels(["a", None, "b", "a", *[None] * (N - 4)], N)
    with pytest.raises(ValueError, match="a and b: 0 must 1, 1 must 2"):
        check_links([(0, 1), (1, 2)], None, N, y)
    with pytest.raises(ValueError, match=r"0 and 3.*a.*0 cannot 3"):
        check_links(None, [(3, 0)], N, y)
    with pytest.raises(ValueError, match=r"3 and 0.*a.*0 must 5.*3 cannot 5"):
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
    assert codes[14] == 0 and codes[13] == 1  # groups with a class have the first numbers


# -- the penalty of cannot-links -------------------------------------------------------------------


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
        assert above >= term().value(other) - 1e-12  # the quadratic upper bound of the term holds
        assert term().change(other, V) == pytest.approx(term().value(other) - term().value(V))


@pytest.mark.parametrize("weight", [0.1, 5.0])  # with the second weight, the Hessian is indefinite
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
    with pytest.raises(ValueError, match=r"nesterov.*CannotLink.*hals, mu"):
        check_step("nesterov", "frobenius", 2.0, [term()])
    assert [s.name for s in STEPS.values() if s.does(1.0) and s.takes(term(), 1.0)] == [
        "newton",
        "mu",
    ]


# -- clusters that obey the links ------------------------------------------------------------------


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
    monkeypatch.setattr(linkage, "MAX_GROUPS", 40)
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    Z = np.eye(3)[y] + 0.1 * rng.random((300, 3))
    links = check_links([(0, 3)], [(0, 1), (1, 2)], 300)
    found = linked_clusters(Z, 3, links, random_state=0)
    np.testing.assert_array_equal(found[:, None] == found, y[:, None] == y)


def test_first_groups_are_few_and_keep_linked_samples_alone(monkeypatch):
    monkeypatch.setattr(linkage, "MAX_GROUPS", 12)
    V = np.random.default_rng(0).random((40, 3))
    links = check_links([(0, 1), (2, 3)], [(4, 5), (6, 0)], 40)
    group = linkage._first_groups(V, links, 0)
    sizes = np.bincount(group)
    assert group[0] == group[1] and group[2] == group[3]
    assert (sizes[group[:4]] == 2).all() and (sizes[group[4:7]] == 1).all()
    # There are two groups of must-links, three single samples, and at most seven groups by k-means.
    assert len(sizes) <= 12 and sizes.min() > 0
    few = linkage._first_groups(V[:10], check_links([(0, 1), (2, 3)], [(4, 5), (6, 0)], 10), 0)
    assert sorted(np.bincount(few)) == [1] * 6 + [2] * 2


# -- links in the estimators -----------------------------------------------------------------------

ALL = (NMF, GNMF, SemiGNMF, CNMF, CDNMF, NMFDC, NSNMF, ConstrainedNMF)
LOSSES = ("frobenius", "kullback-leibler")
Y = np.full(N, -1)
Y[[12, 13, 14, 15]] = 0, 0, 1, 1
quiet = pytest.mark.filterwarnings(
    "ignore:Maximum number", "ignore:.*no label", "ignore:.*parts", "ignore:no cluster"
)


def fit(make=NMF, y=None, links=True, X=X, **params):
    given = {"must_link": MUST, "cannot_link": CANNOT} if links else {}
    settings = {"random_state": 0, "max_iter": 60, "tol": 0, **params}
    return make(K, **settings).fit(X, y, **given)


@pytest.mark.parametrize("soft", [None, 0.6])
def test_multiplicative_updates_are_the_naive_ones(soft):
    W = np.eye(N, k=1) + np.eye(N, k=-1)
    V1, _, history = reference.nmf_linked(
        X, V, U, 15, must=MUST, cannot=CANNOT, must_reg=soft, cannot_reg=0.4, W=W, lam=0.3
    )
    links = check_links(MUST, CANNOT, N)
    what = Description("NMF", graph_reg=0.3, must_link_reg=soft, cannot_link_reg=0.4)
    known = Knowledge(None, Neighborhood(sp.csr_array(W)), links)
    data = as_data(X)
    rows = shared_rows(what, known, N)
    terms = terms_on_codes(what, data, K, known, rows, new=False)
    model = FactorModel(data, Frobenius(), rows=rows, terms_V=terms)
    settings = Settings(15, 0.0, extrapolate=False, guard=False)
    found = alternate(model, model.reduce(V), U, make_step("mu"), settings)
    np.testing.assert_allclose(model.expand(found.Z), V1, rtol=1e-8)
    np.testing.assert_allclose(found.history, history, rtol=1e-10)


@quiet
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", ALL)
def test_links_in_every_estimator(make, loss):
    """Check links in every estimator.

    Hard must-links give equal part weights, the objective equals the formula, and it never rises.
    """
    kl_graph = loss == LOSSES[1] and make in (GNMF, SemiGNMF)
    if kl_graph:
        with pytest.raises(ValueError, match="cannot_link"):
            fit(make, Y, beta_loss=loss)
        return
    if make is NMFDC and loss == LOSSES[1]:
        return
    labels = None if make is NMF else Y
    params = {} if make is NMFDC else {"beta_loss": loss}
    params |= {} if make is NMF else {"n_clusters": 5}
    model = fit(make, labels, **params)
    Z = model.embedding_
    assert (Z[0] == Z[1]).all() and (Z[1] == Z[5]).all() and (Z[7] == Z[9]).all()
    assert (Z[2] != Z[0]).any()
    history = model.objective_history_
    assert (np.diff(history) <= 1e-9 * history[0]).all()
    if make is not NMF:
        found = model.cluster_labels_
        assert found[0] == found[1] == found[5] and found[7] == found[9]
        assert all(found[i] != found[j] for i, j in CANNOT)
    if make is NMF:
        lengths = (model.components_ ** (2 if loss == LOSSES[0] else 1)).sum(axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=1e-9)
        E = X - Z @ model.components_
        if loss == LOSSES[0]:
            cost = reference.links_cost(Z, cannot=CANNOT, cannot_reg=0.1)
            assert model.objective_ == pytest.approx(0.5 * (E**2).sum() + cost, rel=1e-9)


@quiet
@pytest.mark.parametrize("make", ALL)
def test_without_links_it_is_the_plain_model_to_the_last_bit(make):
    labels = None if make is NMF else Y
    plain = fit(make, labels, links=False)
    for given in ({"must_link": [], "cannot_link": None}, {"must_link": np.empty((0, 2))}):
        again = make(K, random_state=0, max_iter=60, tol=0).fit(X, labels, **given)
        np.testing.assert_array_equal(again.embedding_, plain.embedding_)
    free = make(K, random_state=0, max_iter=60, tol=0, cannot_link_reg=0.0, must_link_reg=0.0)
    free.fit(X, labels, must_link=MUST, cannot_link=CANNOT)
    np.testing.assert_allclose(free.embedding_, plain.embedding_, rtol=1e-10, atol=1e-12)


@quiet
def test_must_links_within_labels_are_those_labels():
    """Check that CNMF with labels equals ConstrainedNMF with must-links within these labels."""
    labels = fit(CNMF, Y, links=False)
    pairs = ConstrainedNMF(K, random_state=0, max_iter=60, tol=0)
    pairs.fit(X, must_link=[(12, 13), (14, 15)])
    np.testing.assert_allclose(pairs.embedding_, labels.embedding_, rtol=1e-10, atol=1e-12)


@quiet
def test_weights_draw_together_and_apart():
    def products(**params):
        Z = fit(**params).embedding_
        return sum(Z[i] @ Z[j] for i, j in CANNOT), sum(((Z[i] - Z[j]) ** 2).sum() for i, j in MUST)

    apart = [products(cannot_link_reg=w, must_link_reg=0.0)[0] for w in (1e-6, 0.01, 30.0)]
    assert apart[0] > apart[1] > apart[2] and apart[2] < 0.05 * apart[0]
    near = [products(cannot_link_reg=0.0, must_link_reg=w)[1] for w in (1e-6, 1.0, 100.0)]
    assert near[0] > near[1] > near[2] and near[2] < 1e-3 * near[0]


@quiet
@pytest.mark.parametrize("soft", [None, 0.5])
def test_the_back_ends_agree(soft, tmp_path):
    forms = Forms(X, tmp_path)
    found = {
        kind: fit(GNMF, X=forms[kind], solver="mu", max_iter=20, must_link_reg=soft)
        for kind in ("numpy", "csr", "torch", "dask")
    }
    products = {
        kind: np.asarray(m.embedding_) @ np.asarray(m.components_) for kind, m in found.items()
    }
    for product in products.values():
        np.testing.assert_allclose(product, products["numpy"], rtol=1e-6, atol=1e-9)


def test_steps_and_procedures_that_cannot_refuse_before_work():
    with pytest.raises(ValueError, match=r"nesterov.*CannotLink.*hals, mu"):
        fit(NMF, solver="nesterov")
    with pytest.raises(ValueError, match="scale='unit'"):
        fit(GNMF, scale="paper")
    with pytest.raises(ValueError, match="0 and 1: 13 must 14"):
        CNMF(K).fit(X, Y, must_link=[(13, 14)])


def test_pairs_do_not_survive_cross_validation():
    with pytest.raises(ValueError, match=rf"must_link\[0\] = \(0, {N - 1}\)"):
        params = {"must_link": [(0, N - 1)]}
        cross_val_score(NMF(K), X, cv=3, params=params, error_score="raise")


@quiet
def test_links_and_gaps_and_weights_and_known_parts_together():
    """Check links together with missing values, sample weights and fixed parts.

    The objective equals the formula.
    """
    G = X.copy()
    G[3, 4] = G[8, 1] = np.nan
    fixed = np.full((1, P), np.nan)
    fixed[0, :3] = 0.5, 0.1, 0.2
    weight = 0.5 + np.arange(N) / N
    model = GNMF(K, missing_values=np.nan, fixed_components=fixed, random_state=0, tol=0)
    model.fit(G, Y, sample_weight=weight, must_link=MUST, cannot_link=CANNOT)
    Z, history = model.embedding_, model.objective_history_
    np.testing.assert_array_equal(model.components_[0, :3], fixed[0, :3])
    assert (Z[0] == Z[5]).all() and (np.diff(history) <= 1e-9 * history[0]).all()
