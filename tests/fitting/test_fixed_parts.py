"""Tests of fixed parts: they keep their values, and the other parts are optimal given them."""

import numpy as np
import pytest

import partwise
import reference
from backends import KINDS, Forms, q
from methods import FROBENIUS, KL, LOSSES
from partwise.backends.arrays import to_numpy

FIXED = np.random.default_rng(5).random((2, q.X.shape[1])) + 0.1
HOLES = FIXED.copy()
HOLES[1, ::3] = np.nan
STEPS = [
    (FROBENIUS, "hals"),
    (FROBENIUS, "nesterov"),
    (FROBENIUS, "mu"),
    (KL, "newton"),
    (KL, "mu"),
]


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    return Forms(q.X, tmp_path_factory.mktemp("known"))


def naive(X, V, U, known, n_iter, loss):
    """Run naive multiplicative updates and restore the known values of U after each update."""
    ones = np.ones_like(X)

    def step(X, Z, B, ones):
        return reference.nmf_weighed(X, Z, B, 1, weight=ones, loss=loss)[0]

    for _ in range(n_iter):
        V = step(X, V, U, ones)
        new = step(X.T, U, V, ones.T)
        U = np.where(np.isnan(known), new, known)
    return V, U


@pytest.mark.parametrize("loss, solver", STEPS)
@pytest.mark.parametrize("known", [FIXED, HOLES], ids=["whole", "holes"])
def test_known_parts_stay_and_the_rest_is_best(loss, solver, known):
    # With KL, parts move by multiplicative steps, which converge slowly.
    tol = 1e-6 if loss == FROBENIUS else 1e-4
    model = partwise.NMF(
        4, fixed_components=known, beta_loss=loss, solver=solver, random_state=0,
        max_iter=30 if solver == "mu" else 2000, tol=0.0 if solver == "mu" else tol,
    ).fit(q.X)  # fmt: skip
    there = ~np.isnan(known)
    assert np.array_equal(model.components_[:2][there], known[there])
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_).all()
    if solver == "mu":
        return
    assert model.status_.startswith("converged")
    # The fit is a local minimum: naive updates with the same known values gain almost nothing.
    padded = np.full((q.X.shape[1], 4), np.nan)
    padded[:, :2] = known.T
    V, U = naive(q.X, model.embedding_, model.components_.T, padded, 20, loss)
    ones = np.ones_like(q.X)
    assert reference.weighed_entries(q.X, V, U, ones, loss) >= model.objective_ * (1 - 1e-4)


@pytest.mark.parametrize("kind", ["numpy", *KINDS])
@pytest.mark.parametrize("loss", LOSSES)
def test_known_parts_stay_on_every_back_end(kind, loss, forms):
    fit = {"beta_loss": loss, "random_state": 0, "max_iter": 10, "tol": 0.0, "solver": "mu"}
    start = {
        "W": q.V,
        "H": np.ascontiguousarray(q.U.T),
    }
    make = lambda: partwise.NMF(4, fixed_components=HOLES, init="custom", **fit)  # noqa: E731
    model, here = make().fit(forms[kind], **start), make().fit(q.X, **start)
    there = ~np.isnan(HOLES)
    assert np.array_equal(np.asarray(to_numpy(model.components_))[:2][there], HOLES[there])
    assert np.allclose(to_numpy(model.components_), here.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1.0, 20.0])
def test_a_known_part_keeps_its_length_under_unit_scale(loss, size):
    """Check that the norm of a fixed part changes only its part weights when scale="unit".

    Parts that are not fixed have norm 1, and the objective stays the same.
    """
    fit = {"beta_loss": loss, "random_state": 0, "max_iter": 60, "tol": 0.0, "alpha_W": 0.01}
    plain = partwise.ConstrainedNMF(4, fixed_components=FIXED, **fit).fit(q.X)
    model = partwise.ConstrainedNMF(4, fixed_components=size * FIXED, **fit).fit(q.X)
    assert np.array_equal(model.components_[:2], size * FIXED)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    assert np.allclose(
        size * model.embedding_[:, :2], plain.embedding_[:, :2], rtol=1e-3, atol=1e-3
    )
    norm = 2 if loss == FROBENIUS else 1
    assert np.allclose(np.linalg.norm(model.components_[2:], norm, axis=1), 1)
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_).all()


def test_seeds_are_where_a_part_begins_and_no_more():
    truth = np.kron(np.eye(3), np.ones(5)) + 0.05
    X = np.random.default_rng(0).dirichlet(np.full(3, 0.3), 80) @ truth
    seeds = np.full((3, 15), np.nan)
    seeds[[0, 1, 2], [12, 7, 2]] = 1.0
    seeds[np.isnan(seeds)] = 0.0
    model = partwise.NMF(3, seed_components=seeds, random_state=0, max_iter=2000).fit(X)
    assert model.components_.reshape(3, 3, 5).sum(axis=2).argmax(axis=1).tolist() == [2, 1, 0]
    assert not np.array_equal(model.components_, seeds)


def test_nothing_known_is_the_plain_model():
    fit = {"random_state": 0, "max_iter": 30, "tol": 0.0}
    plain = partwise.NMF(3, **fit).fit(q.X)
    free = np.full((2, q.X.shape[1]), np.nan)
    model = partwise.NMF(3, fixed_components=free, seed_components=free[:1], **fit).fit(q.X)
    assert np.array_equal(plain.components_, model.components_)


def test_known_parts_beside_gaps_labels_and_a_graph():
    X = np.where(np.random.default_rng(0).random(q.X.shape) < 0.2, np.nan, q.X)
    model = partwise.ConstrainedNMF(
        4, hard_labels=True, graph_reg=0.1, fixed_components=HOLES, missing_values=np.nan,
        random_state=0, max_iter=30, tol=0.0,
    ).fit(X, q.y)  # fmt: skip
    there = ~np.isnan(HOLES)
    assert np.array_equal(model.components_[:2][there], HOLES[there])
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_).all()


def test_bad_parts_are_answered():
    def fit(k=4, **given):
        return partwise.NMF(k, **given).fit(q.X)

    with pytest.raises(ValueError, match=r"-1.*1.*2"):
        bad = FIXED.copy()
        bad[1, 2] = -1
        fit(fixed_components=bad)
    with pytest.raises(ValueError, match=r"fixed_components.*3.*40"):
        fit(fixed_components=np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"4.*n_components=3"):
        fit(3, fixed_components=FIXED, seed_components=FIXED)
    with pytest.raises(ValueError, match="part 0"):
        fit(seed_components=np.zeros((1, 40)))
    with pytest.raises(ValueError, match="scale='unit'"):
        partwise.GNMF(4, scale="paper", fixed_components=FIXED).fit(q.X)


PENALTIES = {
    "alpha_W": {"alpha_W": 0.1},
    "graph": {"graph_reg": 0.5},
    "class cost": {"class_reg": 1.0},
    "links": {"must_link_reg": 0.5},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", PENALTIES)
def test_smoothing_beside_known_parts_and_a_penalty_on_codes_is_refused(name, loss):
    """Check that smoothing, fixed parts and a penalty on part weights cannot be combined.

    The smoothing matrix S mixes the parts, so the scale of the fixed parts would determine the
    scale of the others.
    """
    links = {"must_link": [np.flatnonzero(q.y == -1)[:2]]} if name == "links" else {}

    def fit(fixed, **more):
        settings = {"beta_loss": loss, "random_state": 0, "max_iter": 500, **PENALTIES[name]}
        settings = {"smoothing": 0.4, **settings, **more}
        model = partwise.ConstrainedNMF(4, fixed_components=fixed, **settings)
        return model.fit(q.X, q.y, **links)

    for known in (FIXED, HOLES):
        with pytest.raises(ValueError, match=r"smoothing=0\.4"):
            fit(known)
    # The settings that the error message suggests work, and so do fits in which all parts are
    # known.
    whole = np.random.default_rng(5).random((4, q.X.shape[1])) + 0.1
    allowed = ((FIXED, {"smoothing": 0.0}), (FIXED, {"alpha_H": 0.1}), (whole, {}))
    for known, more in (*allowed, (None, {"seed_components": FIXED})):
        model = fit(known, **more)
        assert (np.diff(model.objective_history_) <= 0).all()
        # With KL, parts move by the steps of "mu", which converge slowly.
        assert loss == KL or model.kkt_residual_ <= 1e-4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_a_graph_under_kl_never_rises_beside_a_known_part(seed):
    """Check that a KL fit with a graph and a fixed part never increases the objective.

    The update (21) of the GNMF paper can increase it.
    """
    rng = np.random.default_rng(seed)
    X = rng.random((40, 3)) @ rng.random((3, 25)) + 0.1 * rng.random((40, 25))
    known = rng.random((1, 25)) + 0.1
    settings = {"beta_loss": KL, "graph_reg": 5.0, "random_state": seed, "max_iter": 300}
    model = partwise.ConstrainedNMF(4, fixed_components=known, tol=1e-6, **settings).fit(X)
    history = model.objective_history_
    assert (np.diff(history) <= 0).all() and history[-1] < history[0]
    assert model.objective_ == pytest.approx(history[-1], rel=1e-12)
