"""Tests of missing values and entry weights against naive sums over observed entries."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import partwise
import reference
from backends import KINDS, Forms
from methods import FROBENIUS, KL, LOSSES, make_problem
from partwise.backends import as_data
from partwise.backends.arrays import to_numpy
from partwise.backends.gaps import MaskedData, WeightDeficit
from partwise.fitting import checking
from partwise.fitting.special_arrays import with_gaps

q = make_problem(0, n=60, p=40)
rng = np.random.default_rng(3)
#: Shares of missing values; for each, the mask is stored in another way.
SHARES = (0.1, 0.5, 0.85)


def mask(share):
    """Return an array with 1 for observed and 0 for missing entries.

    Every row has observed entries, and the last feature has none.
    """
    seen = (np.random.default_rng(1).random(q.X.shape) >= share).astype(float)
    seen[:, 3], seen[:, -1] = 1.0, 0.0
    return seen


def with_nan(X, seen):
    return np.where(seen > 0, X, np.nan)


def sparse_with_nan(X, seen):
    """Return a sparse array that stores NaN for missing entries and no zeros."""
    out = sp.csr_array(with_nan(X, seen))
    assert np.isnan(out.data).sum() == (seen == 0).sum()
    return out


def nmf(loss=FROBENIUS, **params):
    settings = {"max_iter": 20, "tol": 0.0, "solver": "mu", "init": "custom", **params}
    return partwise.NMF(q.k, beta_loss=loss, missing_values=np.nan, **settings)


def start():
    return {"W": q.V.copy(), "H": np.ascontiguousarray(q.U.T)}


def weights():
    W = np.random.default_rng(2).random(q.X.shape) * mask(0.2)
    W[:, 3] = 1.5
    return W


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", [with_nan, sparse_with_nan])
@pytest.mark.parametrize("share", SHARES)
def test_mu_is_the_naive_update(loss, make, share, monkeypatch):
    monkeypatch.setattr("partwise.backends.SMALL_SPARSE", 0)
    seen = mask(share)
    V, U, history = reference.nmf_weighed(q.X, q.V, q.U, 20, weight=seen, loss=loss)
    model = nmf(loss).fit(make(q.X, seen), **start())
    assert np.allclose(model.embedding_ @ model.components_, V @ U.T, rtol=1e-9, atol=1e-12)
    assert np.allclose(model.objective_history_, history, rtol=1e-10)
    assert not model.components_[:, -1].any()  # the last feature was never observed


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["dense", "sparse X", "sparse weights", "both sparse"])
def test_weights_of_entries_are_those_of_the_naive_update(loss, kind, monkeypatch):
    monkeypatch.setattr("partwise.backends.SMALL_SPARSE", 0)
    W = weights()
    V, U, history = reference.nmf_weighed(q.X, q.V, q.U, 20, weight=W, loss=loss)
    X = sp.csr_array(q.X) if kind in ("sparse X", "both sparse") else q.X
    given = sp.csr_array(W) if kind in ("sparse weights", "both sparse") else W
    model = nmf(loss).fit(X, entry_weight=given, **start())
    assert np.allclose(model.embedding_ @ model.components_, V @ U.T, rtol=1e-9, atol=1e-12)
    assert np.allclose(model.objective_history_, history, rtol=1e-10)


@pytest.mark.parametrize(
    "loss, solver", [(FROBENIUS, "hals"), (FROBENIUS, "nesterov"), (KL, "newton")]
)
@pytest.mark.parametrize("weight", [mask(0.1), mask(0.5), weights()])
def test_fast_solvers_descend_to_the_naive_objective_or_below(loss, solver, weight):
    _, _, history = reference.nmf_weighed(q.X, q.V, q.U, 400, weight=weight, loss=loss)
    model = nmf(loss, solver=solver, max_iter=300).fit(q.X, entry_weight=weight, **start())
    found = reference.weighed_entries(q.X, model.embedding_, model.components_.T, weight, loss)
    assert model.objective_ == pytest.approx(found, rel=1e-7)
    assert found <= history[-1] * 1.02  # the solvers may end in different local minima
    assert (np.diff(model.objective_history_) <= 1e-9 * found).all()


@pytest.mark.parametrize("missing", [0.01, 0.9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exact_objective_of_more_rows_than_a_block_has(dtype, missing):
    """Check the objective of X with more rows than fit in one block.

    X and its mask are read in blocks of different sizes. Regression test: 300 x 1,000 entries once
    failed.
    """
    rng = np.random.default_rng(0)
    V, U = rng.gamma(0.5, size=(300, 2)), rng.gamma(0.3, size=(1000, 2))
    X = (V @ U.T).astype(dtype)
    X[rng.random(X.shape) < missing] = np.nan
    model = partwise.NMF(2, missing_values=np.nan, init="random", random_state=0, tol=1e-2).fit(X)
    rest = np.where(np.isnan(X), 0, X.astype(float) - model.embedding_ @ model.components_)
    assert model.objective_ == pytest.approx(0.5 * (rest**2).sum(), rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_zeros_may_be_what_is_missing(loss):
    X = sp.csr_array(q.X[:, q.X.any(axis=0)][q.X.any(axis=1)])
    hidden = np.where(X.toarray() == 0, np.nan, X.toarray())
    fit = {"random_state": 0, "max_iter": 30, "tol": 0.0, "solver": "mu", "beta_loss": loss}
    model = partwise.NMF(3, missing_values=0, **fit).fit(X)
    other = partwise.NMF(3, missing_values=np.nan, **fit).fit(hidden)
    assert model.objective_ == pytest.approx(other.objective_, rel=1e-8)
    unseen = partwise.NMF(3, missing_values=-1, **fit).fit(np.where(np.isnan(hidden), -1, hidden))
    assert np.array_equal(unseen.components_, other.components_)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["auto", "mu"])
def test_no_gap_is_the_plain_model(loss, solver, monkeypatch):
    fit = {
        "init": "nndsvda",
        "random_state": 0,
        "max_iter": 30,
        "tol": 0.0,
        "solver": solver,
        "beta_loss": loss,
    }
    plain = partwise.NMF(3, **fit).fit(q.X)
    same = partwise.NMF(3, missing_values=np.nan, **fit).fit(q.X, entry_weight=np.ones(q.X.shape))
    assert np.array_equal(plain.components_, same.components_)
    none = WeightDeficit(as_data(np.zeros_like(q.X)), seen=False)
    masked = MaskedData(as_data(q.X), none)
    monkeypatch.setattr(checking, "check_matrix", lambda *args, reset: (masked, None))
    through = partwise.NMF(3, **fit).fit(q.X)
    assert np.allclose(through.components_, plain.components_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss_of", ["mask", "weights", "classes"])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_values_for_missing_entries_give_the_right_products(make, share, loss_of, monkeypatch):
    """Check the products, objective and upper bound of fits with missing values.

    Such fits fill the missing entries with values of the current model. The expected values are
    sums over all entries.
    """
    monkeypatch.setattr("partwise.backends.SMALL_SPARSE", 0)
    monkeypatch.setattr("partwise.backends.numpy.gap_filling.NEAR", np.inf)
    W = mask(share)
    if loss_of == "weights":
        W = W * (1 + np.random.default_rng(4).random(W.shape))
    W = sp.csr_array(W) if make is sp.csr_array and share > 0.5 else W
    data = with_gaps(make(q.X), None, False, W)
    X, W = q.X, W.toarray() if sp.issparse(W) else W
    d = W.max(axis=1)
    base = W * X
    if loss_of == "classes":
        data = data.weighted(q.gamma, q.A.argmax(axis=1), q.A.shape[1])
        base, W = q.A.T @ (q.gamma[:, None] * base), q.A.T @ (q.gamma[:, None] * W)
        d = q.A.T @ q.gamma
    E = d[:, None] - W
    fill, here, there = (
        [rng.random((len(base), 3)), rng.random((X.shape[1], 3))]
        for rng in map(np.random.default_rng, (7, 8, 9))
    )
    assert data.half("V", fill[1], fill[0]).drawn is not None  # the factors belong to another start
    half = data.half("V", here[1], here[0])
    F, Y = here[0] @ here[1].T, there[0] @ here[1].T
    filled = base + E * F
    assert np.allclose(half.drawn, filled @ here[1], rtol=1e-12)
    assert half.above(here[0]) == 0
    assert half.above(there[0]) == pytest.approx(0.5 * (E * (F - Y) ** 2).sum(), rel=1e-10)
    gain = (base * Y).sum() + 0.5 * (E * Y * Y).sum()
    assert half.gain(there[0]) == pytest.approx(gain, rel=1e-10)
    other = data.half("U", there[0], here[1])  # the other half-step of the same iteration
    F = F if data._filling is not None and data._filling.shared else Y
    Y = there[0] @ there[1].T
    assert np.allclose(other.drawn, (base + E * F).T @ there[0], rtol=1e-12)
    assert other.above(there[1]) == pytest.approx(0.5 * (E * (F - Y) ** 2).sum(), rel=1e-10)
    gain = (base * Y).sum() + 0.5 * (E * Y * Y).sum()
    assert other.gain(there[1]) == pytest.approx(gain, rel=1e-10)
    assert np.allclose(half.drawn, filled @ here[1], rtol=1e-12)


METHODS = [
    partwise.GNMF(3, graph_reg=0.1, missing_values=np.nan),
    partwise.SemiGNMF(3, graph_reg=0.1, missing_values=np.nan),
    partwise.CNMF(3, missing_values=np.nan),
    partwise.CDNMF(3, missing_values=np.nan),
    partwise.NMFDC(3, missing_values=np.nan),
    partwise.NSNMF(3, missing_values=np.nan),
    partwise.ConstrainedNMF(
        3, hard_labels=True, graph_reg=0.1, class_reg=0.5, alpha_W=0.001, smoothing=0.2,
        missing_values=np.nan,
    ),
]  # fmt: skip


@pytest.mark.parametrize("model", METHODS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("loss", LOSSES)
def test_missing_values_with_labels_graph_and_unit_scale(model, loss):
    """Check missing values with labels, a graph and scale="unit".

    The values stored for missing entries have no effect, and the objective falls to the formula's
    value.
    """
    if "beta_loss" not in model.get_params() and loss == KL:
        pytest.skip("this estimator supports only the Frobenius loss")
    given = {"random_state": 0, "max_iter": 40, "tol": 0.0}
    if "beta_loss" in model.get_params():
        given["beta_loss"] = loss
    model = model.set_params(**given)
    seen = mask(0.3)
    gamma = {"sample_weight": q.gamma}
    model.fit(with_nan(q.X, seen), q.y, **gamma)
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_).all()
    Y = model.inverse_transform(model.embedding_)
    weight, one = q.gamma[:, None] * seen, np.eye(Y.shape[1])
    lost = reference.weighed_entries(q.X, Y, one, weight, loss)
    assert model.reconstruction_err_**2 / 2 == pytest.approx(lost, rel=1e-6)


@pytest.mark.parametrize("share", SHARES)
def test_new_samples_with_gaps_are_coded_by_what_was_seen(share):
    seen = mask(share)
    model = partwise.NMF(3, missing_values=np.nan, random_state=0, tol=1e-8, max_iter=3000)
    model.fit(q.X)
    H = model.components_
    exact = np.array([nnls(H[:, on].T, x[on])[0] for x, on in zip(q.X, seen > 0, strict=True)])
    codes = model.transform(with_nan(q.X, seen))
    here, best = (
        np.array([((x - v @ H)[on] ** 2).sum() for x, v, on in zip(q.X, V, seen > 0, strict=True)])
        for V in (codes, exact)
    )
    assert (here <= best * (1 + 1e-4) + 1e-6).all()
    score = -0.5 * here.sum() / len(q.X)
    assert model.score(with_nan(q.X, seen)) == pytest.approx(score, rel=1e-6)


def test_bad_gaps_are_answered():
    hidden = with_nan(q.X, mask(0.2))
    with pytest.raises(ValueError, match=r"missing_values=np\.nan"):
        partwise.NMF(3).fit(hidden)
    model = partwise.NMF(3, missing_values=np.nan)
    with pytest.raises(ValueError, match=r"entry_weight.*\(5, 5\).*\(60, 40\)"):
        model.fit(q.X, entry_weight=np.ones((5, 5)))
    with pytest.raises(ValueError, match=r"entry_weight.*-1"):
        model.fit(q.X, entry_weight=np.full(q.X.shape, -1.0))
    with pytest.raises(ValueError, match=r"entry_weight.*NaN"):
        model.fit(q.X, entry_weight=hidden)
    hidden[7] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        model.fit(hidden)
    with pytest.raises(ValueError, match=r"row 0.*59"):
        model.fit(q.X, entry_weight=sp.csr_array(q.X.shape))
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(np.arange(40) == 3, np.inf, q.X))
    with pytest.raises(ValueError, match=r"'frobenius'.*'kullback-leibler'"):
        partwise.NMF(3, missing_values=np.nan, beta_loss=0.5, solver="mu").fit(
            with_nan(q.X, mask(0.2))
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_held_out_entries_are_scored_and_no_others(loss, make):
    held = partwise.metrics.hold_out(make(q.X), 0.2, random_state=0)
    gaps = held.X if make is np.asarray else held.X.toarray()
    hidden = np.zeros(q.X.shape, dtype=bool)
    hidden[held.rows, held.columns] = True
    assert np.array_equal(hidden, np.isnan(gaps))
    assert np.array_equal(gaps[~hidden], q.X[~hidden])
    assert np.array_equal(held.values, q.X[held.rows, held.columns])
    fit = {"beta_loss": loss, "max_iter": 50, "tol": 0, "random_state": 0}
    model = partwise.NMF(3, missing_values=np.nan, **fit).fit(held.X)
    Y = model.embedding_ @ model.components_
    if loss == KL:
        Y = np.maximum(Y, 1e-6 * held.values.mean())
    weight = hidden / hidden.sum()
    naive = reference.weighed_entries(q.X, Y, np.eye(Y.shape[1]), weight, loss)
    assert held.error(model) == pytest.approx(naive, rel=1e-9)
    if make is sp.csr_array:
        assert (held.values == 0).sum() == (held.values > 0).sum()
    with pytest.raises(ValueError, match="share"):
        partwise.metrics.hold_out(q.X, 1.5)


def test_a_held_out_divergence_is_not_negative_for_a_perfect_model(rng):
    """Check the held-out divergence of a nearly perfect model, which must not be negative.

    For y = x (1 + off) the divergence is off² / 2 - off³ / 3 + ..., times x.
    """
    X = 3 * rng.random((30, 20)) + 1e6
    held = partwise.metrics.hold_out(X, 0.3, random_state=0)
    x = held.values
    for off in (0.0, 1e-12, -1e-9, 1e-6):

        class Near:
            embedding_, beta_loss = X * (1 + off), KL

            def inverse_transform(self, V):
                return V

        error = held.error(Near())
        y = Near.embedding_[held.rows, held.columns]
        exact = (x * ((y - x) / x) ** 2 * (0.5 - (y - x) / x / 3)).mean()
        assert error >= 0
        # The tolerance is x times the rounding of the logarithm.
        assert error == pytest.approx(exact, rel=1e-6, abs=1e-15 * x.mean() * max(abs(off), 1e-12))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_back_end_sees_the_same_gaps(kind, loss, tmp_path):
    X = with_nan(q.X, mask(0.3))
    model = nmf(loss).fit(Forms(X, tmp_path)[kind], **start())
    here = nmf(loss).fit(X, **start())
    found = np.asarray(to_numpy(model.embedding_)) @ to_numpy(model.components_)
    assert np.allclose(found, here.embedding_ @ here.components_, rtol=1e-6, atol=1e-9)
    assert model.objective_ == pytest.approx(here.objective_, rel=1e-6)
    faster = partwise.CNMF(3, missing_values=np.nan, beta_loss=loss, random_state=0, max_iter=20)
    faster.set_params(tol=0.0).fit(Forms(X, tmp_path)[kind], q.y)
    assert (np.diff(faster.objective_history_) <= 1e-9 * faster.objective_).all()
    with pytest.raises(ValueError, match=r"missing_values=np\.nan"):
        nmf(loss).set_params(missing_values=None).fit(Forms(X, tmp_path)[kind], **start())
    with pytest.raises(ValueError, match="row 4"):
        X[4] = np.nan
        (tmp_path / "X.npy").unlink(missing_ok=True)
        nmf(loss).fit(Forms(X, tmp_path)[kind], **start())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_weights_of_entries_on_every_back_end(kind, loss, tmp_path):
    """Check entry weights and missing values on every array type.

    With "mu" the result equals the naive update; the faster solvers lower the objective.
    """
    W, seen = weights(), mask(0.2)
    X = Forms(with_nan(q.X, seen), tmp_path)[kind]
    V, U, history = reference.nmf_weighed(q.X, q.V, q.U, 20, weight=W * seen, loss=loss)
    model = nmf(loss).fit(X, entry_weight=W, **start())
    found = np.asarray(to_numpy(model.embedding_)) @ to_numpy(model.components_)
    assert np.allclose(found, V @ U.T, rtol=1e-6, atol=1e-9)
    assert np.allclose(model.objective_history_, history, rtol=1e-6)
    faster = partwise.CNMF(3, missing_values=np.nan, beta_loss=loss, random_state=0, max_iter=15)
    faster.set_params(tol=0.0).fit(X, q.y, entry_weight=sp.csr_array(W))
    assert (np.diff(faster.objective_history_) <= 1e-9 * faster.objective_).all()
    with pytest.raises(ValueError, match=r"entry_weight.*\(5, 5\).*\(60, 40\)"):
        nmf(loss).fit(X, entry_weight=np.ones((5, 5)), **start())
    with pytest.raises(ValueError, match=r"entry_weight.*-1"):
        nmf(loss).fit(X, entry_weight=np.full(q.X.shape, -1.0), **start())


def test_a_checkpoint_is_refused_for_other_missing_entries(tmp_path):
    """A checkpoint is refused if another entry is missing, even if that entry is zero."""
    X = q.X + 0.1
    X[0, :2] = 0.0
    hidden, other = X.copy(), X.copy()
    hidden[0, 0], other[0, 1] = np.nan, np.nan
    settings = {"random_state": 0, "tol": 0.0, "checkpoint": tmp_path, "missing_values": np.nan}
    partwise.NMF(3, max_iter=10, **settings).fit(hidden)
    partwise.NMF(3, max_iter=20, **settings).fit(hidden)
    with pytest.raises(ValueError, match="column"):
        partwise.NMF(3, max_iter=20, **settings).fit(other)


def test_a_saved_model_still_takes_gaps(tmp_path):
    X = with_nan(q.X, mask(0.2))
    known = np.full((1, 40), np.nan)
    known[0, :5] = 1.0
    model = partwise.NMF(3, missing_values=np.nan, fixed_components=known, random_state=0)
    model.set_params(max_iter=20, tol=0.0).fit(X)
    again = partwise.load(model.save(tmp_path / "model.partwise"))
    assert np.array_equal(again.transform(X), model.transform(X))
    assert np.array_equal(again.fixed_components, known, equal_nan=True)


@pytest.mark.parametrize("hidden", [0.1, 0.7])
def test_a_filling_is_not_shared_far_from_where_it_was_made(hidden):
    # From this start, which is far from the solution, outdated values for the missing entries once
    # led to poor parts.
    rng = np.random.default_rng(1)
    Y = rng.gamma(0.5, size=(300, 12)) @ rng.gamma(0.3, size=(12, 150))
    X = rng.poisson(10 * Y.mean() / Y.var() * Y).astype(float)
    X[rng.random(X.shape) < hidden] = np.nan
    usual, chance = (
        partwise.NMF(12, missing_values=np.nan, init=init, tol=1e-3, max_iter=500, random_state=0)
        .fit(X)
        .objective_
        for init in ("nndsvda", "random")
    )
    assert usual <= 1.01 * chance


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_values_for_missing_entries_at_an_extrapolated_point(make, monkeypatch):
    """Check the values for missing entries at an extrapolated point.

    Close to the last iteration they are extrapolated as well; far from it the values of the last
    iteration are used.
    """
    monkeypatch.setattr("partwise.backends.SMALL_SPARSE", 0)
    data = with_gaps(make(q.X), None, False, mask(0.1))
    E, base = 1 - mask(0.1), mask(0.1) * q.X
    rng = np.random.default_rng(0)
    V, U0, U1 = (rng.random((n, 3)) for n in (q.X.shape[0], q.X.shape[1], q.X.shape[1]))
    U1 = U0 + 0.01 * U1
    half = data.half("U", V, U0)
    assert half.drawn is not None
    half.above(U1)  # U1 is the end of an iteration
    for far, F in ((0.5, V @ (1.5 * U1 - 0.5 * U0).T), (500, V @ U1.T)):
        U = U1 + far * (U1 - U0)
        half = data.half("V", U, V)
        assert np.allclose(half.drawn, (base + E * F) @ U, rtol=1e-10)
        Y = V @ U.T  # the prediction of V itself, while another one fills the gaps
        gain = (base * Y).sum() + 0.5 * (E * Y * Y).sum()
        assert half.gain(V) == pytest.approx(gain, rel=1e-10)
        data.half("U", V, U0).above(U0)
        data.half("U", V, U0).above(U1)


@settings(max_examples=12, deadline=None)
@given(
    loss=st.sampled_from(LOSSES),
    share=st.sampled_from(SHARES),
    weighed=st.booleans(),
    sparse=st.booleans(),
    hard=st.booleans(),
    graph=st.sampled_from([0.0, 0.1]),
    class_reg=st.sampled_from([0.0, 0.5]),
    smoothing=st.sampled_from([0.0, 0.2]),
    n_fixed=st.integers(0, 2),
    linked=st.booleans(),
)
def test_missing_values_with_all_prior_knowledge(
    loss, share, weighed, sparse, hard, graph, class_reg, smoothing, n_fixed, linked
):
    """Check missing values with all other kinds of prior knowledge at once.

    The values stored for missing entries have no effect, and the objective never rises.
    """
    if n_fixed and (graph or class_reg or linked):
        smoothing = 0.0  # the combination with smoothing is refused, see test_known_parts
    W = mask(share) * ((0.5 + np.random.default_rng(5).random(q.X.shape)) if weighed else 1.0)
    fixed = np.random.default_rng(6).random((n_fixed, q.X.shape[1])) + 0.1 if n_fixed else None
    other = np.where(W > 0, q.X, 7.0)
    a, b, c = np.flatnonzero(np.asarray(q.y) == -1)[:3]
    models = []
    for X in (q.X, other):
        X = sp.csr_array(X) if sparse else X
        model = partwise.ConstrainedNMF(
            4, beta_loss=loss, hard_labels=hard, graph_reg=graph, class_reg=class_reg,
            smoothing=smoothing, fixed_components=fixed, random_state=0, max_iter=12, tol=0.0,
        )  # fmt: skip
        beside = {"graph": q.graph} if graph else {}
        if linked:
            beside["must_link"] = [(a, b)]
            if loss == "frobenius" or not graph:
                beside["cannot_link"] = [(a, c)]
        models.append(model.fit(X, q.y, entry_weight=W, sample_weight=q.gamma, **beside))
    model, again = models
    assert np.allclose(model.components_, again.components_, rtol=1e-10, atol=1e-12)
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_).all()
    if fixed is not None:
        assert np.array_equal(model.components_[:n_fixed], fixed)
    assert not linked or np.array_equal(model.embedding_[a], model.embedding_[b])
    Y = model.inverse_transform(model.embedding_)
    naive = reference.weighed_entries(q.X, Y, np.eye(Y.shape[1]), q.gamma[:, None] * W, loss)
    assert model.reconstruction_err_**2 / 2 == pytest.approx(naive, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_that_are_all_alike_are_the_plain_model(loss):
    fit = {"random_state": 0, "max_iter": 20, "tol": 0.0, "solver": "mu", "beta_loss": loss}
    plain = partwise.NMF(3, **fit).fit(q.X)
    twice = partwise.NMF(3, **fit).fit(q.X, entry_weight=np.full(q.X.shape, 2.0))
    assert np.allclose(twice.components_, plain.components_, rtol=1e-10, atol=1e-13)
    assert twice.objective_ == pytest.approx(2 * plain.objective_, rel=1e-10)


def test_the_default_start_with_gaps_is_random():
    X = np.where(mask(0.1) > 0, q.X, np.nan)
    usual, chance = (
        partwise.NMF(3, init=init, missing_values=np.nan, max_iter=5, tol=0, random_state=0).fit(X)
        for init in (None, "random")
    )
    assert np.array_equal(usual.components_, chance.components_)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["auto", "mu"])
def test_a_feature_without_observed_values_is_zero_in_every_part(loss, solver):
    """Check that a feature without observed values is zero in every part.

    The documentation (missing_values.rst) states this.
    """
    X = q.X + 0.1
    X[:, [0, 3]] = np.nan
    custom = start() | {"H": np.full((q.k, X.shape[1]), 0.5) + 0.1 * np.arange(q.k)[:, None]}
    for init, begin in (("random", {}), ("custom", custom)):
        model = nmf(loss, solver=solver, init=init, random_state=0).fit(X, **begin)
        assert (model.components_[:, [0, 3]] == 0).all()
        assert (np.delete(model.components_, [0, 3], axis=1).max(axis=0) > 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_sums_over_observed_entries_keep_small_terms(make, dtype):
    """Check that the sums over observed entries keep their small terms.

    They are computed as differences of sums, which may round to zero. Dividing by such a zero once
    let an entry grow without limit.
    """
    hidden = (np.random.default_rng(0).random((50, 20)) < 0.5).astype(dtype)
    F = np.random.default_rng(1).random((50, 3)).astype(dtype)
    # Nearly all of this column is in the missing entries.
    F[:, 1] = np.where(hidden[:, 4] > 0, F[:, 1], 1e-18 * F[:, 1])
    lack = WeightDeficit(as_data(make(hidden)), seen=False)
    seen = (1 - hidden.astype(float)).T @ F.astype(float)
    sums = lack.sums("U", F, F).astype(float)
    close = 4 * np.finfo(dtype).eps
    unsure = 50 * np.finfo(float).eps * F.sum(axis=0, dtype=float)
    assert (sums >= seen * (1 - close) - unsure * (seen > 2 * unsure)).all()
    assert (sums <= seen * (1 + close) + unsure).all()
    assert sums[4, 1] >= seen[4, 1] > 0


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_products_over_missing_entries_use_float64(make):
    """Check that products over missing entries use float64, even for a float32 mask."""
    E = (np.random.default_rng(0).random((30, 20)) < 0.5).astype(np.float32)
    V, U = np.random.default_rng(1).random((30, 3)), np.random.default_rng(2).random((20, 3))
    data, naive = as_data(make(E)), E * (V @ U.T)
    np.testing.assert_allclose(data.times_dot(V, U), naive @ U, rtol=1e-13)
    np.testing.assert_allclose(data.times_tdot(V, U), naive.T @ V, rtol=1e-13)
