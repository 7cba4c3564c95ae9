"""Tests of MiniBatchNMF against naive sums and NMF, and of data that is not in memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn import decomposition
from sklearn.preprocessing import normalize

import partwise
import reference
from partwise import NMF, MiniBatchNMF
from partwise.backends import as_data, batches
from partwise.estimators.minibatch import meet
from partwise.model.losses import make_loss
from partwise.solvers import online as engine

KL = "kullback-leibler"
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def planted(n=400, p=30, k=4, noise=0.1, seed=0, dtype=np.float64):
    """Return samples of k parts, sorted by their largest part, as samples in a file often are."""
    rng = np.random.default_rng(seed)
    V = rng.gamma(0.4, size=(n, k))
    V = V[np.argsort(V.argmax(axis=1), kind="stable")]
    X = V @ (rng.gamma(0.3, size=(k, p)) + 0.05)
    return (X + noise * X.mean() * rng.random((n, p))).astype(dtype)


def nothing(count):
    return []


def learner(U, loss="frobenius", forget=0.7):
    return engine.Online(make_loss(loss), U.copy(), forget, nothing, nothing)


@pytest.mark.parametrize("forget", [1.0, 0.5, 0.0])
def test_sums_of_two_passes_are_those_of_the_naive_formula(forget, monkeypatch):
    X = planted(60, 12, 3)
    U = np.random.default_rng(1).random((12, 3))
    order = np.random.default_rng(2).permutation(60)
    met = [rows for _ in range(2) for rows in np.split(order, 4)]
    # Both use exact solves, so the iterates do not depend on the number of sweeps.
    monkeypatch.setattr(engine, "SWEEPS", 5000)
    monkeypatch.setattr(engine, "hals", engine.hals.bound_to(stop=0.0))
    monkeypatch.setattr(
        engine.Online, "codes", lambda self, model, V, sweeps: reference.nonnegative_rows(
            model.data.X @ self.U, self.U.T @ self.U
        )
    )  # fmt: skip
    ours = learner(U, forget=forget)
    V, at = np.zeros((60, 3)), np.full(60, np.nan)
    for rows in met:
        meet(ours, batches.Batch(rows, X[rows]), None, None, 30, V, at)
    # Without a known total number of samples, the weights decay faster by this exponent.
    older = forget**engine.DECAY_SPEEDUP
    naive = reference.batches_frobenius(
        [(rows, X[rows]) for rows in met], U, older, rounds=engine.ROUNDS["frobenius"]
    )
    np.testing.assert_allclose(ours.U, naive, rtol=1e-5, atol=1e-7 * naive.max())


@pytest.mark.parametrize("forget", [1.0, 0.3])
def test_majoriser_is_that_of_the_naive_formula(forget, monkeypatch):
    X = np.random.default_rng(0).poisson(planted(60, 12, 3) * 5).astype(float)
    U = np.random.default_rng(1).random((12, 3)) + 0.1
    monkeypatch.setitem(engine.ROUNDS, "divergence", 1)
    monkeypatch.setattr(engine, "NEWTON", engine.mu)  # the reference uses multiplicative updates
    ours = learner(U, KL, forget)
    for part in np.split(X, 4):
        model = ours.model(as_data(part))
        ours.decay(len(part), None)
        ours.visit(model, None, 20, None, None)
    naive = reference.batches_kl(np.split(X, 4), U, forget, 5)
    np.testing.assert_allclose(ours.U, naive, rtol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_three_passes_are_within_a_hundredth_of_the_whole(loss, kind):
    X = planted(1500, 40, 5, noise=0)
    X = kind(np.random.default_rng(0).poisson(5 * X).astype(float))
    whole = NMF(5, beta_loss=loss, random_state=0).fit(X)
    ours = MiniBatchNMF(5, beta_loss=loss, batch_size=100, max_iter=3, tol=0, random_state=0)
    ours.fit(X)
    assert ours.objective_ < 1.01 * whole.objective_
    assert ours.n_steps_ == 45
    assert ours.n_iter_ == 3


def test_without_forgetting_no_batch_raises_the_objective():
    """Check that forget_factor=1 makes every batch lower the objective.

    Then the sums contain every sample once.
    """
    X = planted(200, 20, 3)
    ours = learner(np.random.default_rng(0).random((20, 3)), forget=1.0)
    V, at, values = np.zeros((200, 3)), np.full(200, np.nan), []
    for turn in range(3):
        for rows in np.split(np.random.default_rng(turn).permutation(200), 4):
            meet(ours, batches.Batch(rows, X[rows]), None, 200, 30, V, at)
            if turn:
                values.append(np.linalg.norm(X - V @ ours.U.T))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    np.testing.assert_allclose(ours.sums.C, X.T @ V, atol=1e-9)
    np.testing.assert_allclose(ours.sums.G, V.T @ V, atol=1e-9)


@pytest.mark.parametrize("forget", [1.0, 0.6, 0.0])
def test_a_repeated_sample_counts_once(forget):
    """Check that a repeated sample replaces its earlier contribution to the sums.

    A contribution has the weight forget^age.
    """
    X, rng = planted(60, 12, 3), np.random.default_rng(3)
    codes = np.where(rng.random(60) < 0.5, rng.integers(0, 2, 60), -1)
    ours = learner(rng.random((12, 3)), forget=forget)
    V, at = np.zeros((60, 3)), np.full(60, np.nan)
    for turn in range(3):
        for rows in np.split(np.random.default_rng(turn).permutation(60), 4):
            meet(ours, batches.Batch(rows, X[rows]), codes, 60, 30, V, at)
    weight, free = ours.kept(at), codes < 0
    assert ours.sums.weight == pytest.approx(weight[free].sum(), rel=1e-9)
    scaled = weight[free, None] * V[free]
    np.testing.assert_allclose(ours.sums.G, V[free].T @ scaled, rtol=1e-9)
    np.testing.assert_allclose(ours.sums.C, X[free].T @ scaled, rtol=1e-9)
    for code in range(2):
        mine = codes == code
        assert ours.classes.counts[code] == pytest.approx(weight[mine].sum(), rel=1e-9)
        np.testing.assert_allclose(ours.classes.sums[code], weight[mine] @ X[mine], rtol=1e-9)


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_a_pass_of_fit_is_partial_fit_of_its_batches(loss):
    X = planted(100, 12, 3)
    H = np.random.default_rng(0).random((3, 12))
    given = {"init": "custom", "beta_loss": loss, "batch_size": 25}
    whole = MiniBatchNMF(3, max_iter=1, tol=0, shuffle=False, **given).fit(X, H=H)
    # A pass of `fit` knows the number of samples and will see them again, so their weights decay
    # more slowly than in `partial_fit`.
    forget = 0.7 ** (1 / engine.DECAY_SPEEDUP if loss == "frobenius" else 1)
    parts = MiniBatchNMF(3, forget_factor=forget, **given)
    for start in range(0, 100, 25):
        parts.partial_fit(X[start : start + 25], H=H)
    # `fit` scales components by all samples, `partial_fit` by the first batch, so the components
    # are compared after normalization.
    ours, theirs = (normalize(model.components_) for model in (parts, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert parts.n_steps_ == whole.n_steps_ == 4
    assert not hasattr(parts, "embedding_")


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_a_model_that_was_saved_learns_on(loss, tmp_path):
    X = planted(100, 12, 3)
    one = MiniBatchNMF(3, beta_loss=loss, random_state=0).partial_fit(X[:50])
    two = partwise.load(one.save(tmp_path / "m.partwise"))
    for model in (one, two):
        model.partial_fit(X[50:])
    assert np.array_equal(one.components_, two.components_)


def stored(X, kind, folder):
    """Return X in a container that is not in memory, such as a memory map or an HDF5 file."""
    if kind == "memmap":
        np.save(folder / "x.npy", X)
        return np.load(folder / "x.npy", mmap_mode="r")
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        out = zarr.create_array(
            str(folder / "x.zarr"), shape=X.shape, chunks=(32, 7), dtype=X.dtype
        )
        out[:] = X
        return out
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(X, chunks=(70, 11))
    anndata = pytest.importorskip("anndata")
    values = sp.csr_matrix(X) if "csr" in kind else X
    anndata.AnnData(values).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r").X


@pytest.mark.parametrize("kind", ["memmap", "zarr", "dask", "h5ad dense", "h5ad csr"])
def test_what_is_not_in_memory_gives_the_same_parts(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "RUN_ENTRIES", 300)
    monkeypatch.setattr(batches, "POOL_ENTRIES", 1500)
    X = planted(300, 20, 3, dtype=np.float32)
    far = stored(X, kind, tmp_path)
    fixed = {"batch_size": 50, "max_iter": 2, "tol": 0, "random_state": 0}
    H = np.random.default_rng(0).random((3, 20)).astype(np.float32)
    here = MiniBatchNMF(3, init="custom", shuffle=False, **fixed).fit(X, H=H)
    there = MiniBatchNMF(3, init="custom", shuffle=False, **fixed).fit(far, H=H)
    np.testing.assert_allclose(there.components_, here.components_, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=1e-4)
    np.testing.assert_allclose(there.transform(far), here.transform(X), rtol=1e-2, atol=1e-3)
    assert there.components_.dtype == np.float32
    mixed = [MiniBatchNMF(3, **fixed).fit(far) for _ in range(2)]
    assert np.array_equal(mixed[0].components_, mixed[1].components_)
    assert mixed[0].objective_ < 1.1 * here.objective_


def test_every_row_is_read_once_in_an_order_that_random_state_says(monkeypatch):
    monkeypatch.setattr(batches, "POOL_ENTRIES", 40)
    X = np.arange(60.0).reshape(30, 2)
    read = []

    def rows(a, b):
        read.append((a, b))
        return X[a:b]

    source = batches.RowSource(X.shape, X.dtype, rows, np.array([0, 4, 11, 12, 20, 30]))
    for seed in (None, 0, 1):
        read.clear()
        rng = None if seed is None else np.random.RandomState(seed)
        found = list(source.batches(7, rng))
        assert [len(batch.rows) for batch in found] == [7, 7, 7, 7, 2]
        assert len(read) == 5
        at = np.concatenate([batch.rows for batch in found])
        assert sorted(at) == list(range(30))
        assert (seed is None) == bool((np.diff(at) == 1).all())
        for batch in found:
            assert np.array_equal(batch.X, X[batch.rows])


@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_labelled_samples_share_the_code_of_their_class(loss):
    X = planted(90, 12, 3)
    y = np.where(np.arange(90) % 3 == 0, np.arange(90) // 30, -1)
    model = MiniBatchNMF(
        3, beta_loss=loss, hard_labels=True, batch_size=30, max_iter=40, tol=0,
        max_no_improvement=None, forget_factor=1.0 if loss == "frobenius" else 0.97, random_state=0,
    ).fit(X, y)  # fmt: skip
    whole = partwise.CNMF(3, beta_loss=loss, random_state=0, max_iter=500).fit(X, y)
    for name in range(3):
        assert len(np.unique(model.embedding_[y == name], axis=0)) == 1
    assert model.objective_ < 1.03 * whole.objective_
    assert model.classes_.tolist() == [0, 1, 2]
    ignored = MiniBatchNMF(3, max_iter=2, random_state=0)
    assert np.array_equal(ignored.fit(X, y).components_, ignored.fit(X).components_)


OTHER_LOSSES = ["itakura-saito", 0.5, 1.5, 3.0]


@pytest.mark.parametrize("loss", OTHER_LOSSES)
# Without shuffling, batches contain one class after the other.
@pytest.mark.parametrize("shuffle", [True, False])
def test_labelled_samples_share_a_code_under_every_loss(loss, shuffle):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, -1], 15)
    V = rng.random((60, 3))
    V[y >= 0] = V[:3][y[y >= 0]]
    X = V @ rng.random((3, 12)) * rng.uniform(0.9, 1.1, (60, 12)) + 0.01
    settings = {"batch_size": 20, "max_iter": 20, "max_no_improvement": None, "random_state": 0}
    settings |= {"beta_loss": loss, "shuffle": shuffle}
    hard = MiniBatchNMF(3, hard_labels=True, **settings).fit(X, y)
    free = MiniBatchNMF(3, **settings).fit(X)
    assert hard.objective_ < 1.5 * free.objective_  # samples of a class are equal except for noise
    U, beta = hard.components_.T, {"itakura-saito": 0.0}.get(loss, loss)
    for name in range(3):
        mine = X[y == name]
        code = hard.embedding_[y == name]
        assert (code == code[0]).all()

        def cost(v, mine=mine):
            return reference.objective_beta(mine, np.tile(v, (len(mine), 1)), U, beta)

        best = minimize(lambda v: cost(np.abs(v) + 1e-12), code[0], method="Nelder-Mead")
        assert cost(code[0]) < 1.05 * best.fun


@pytest.mark.parametrize("loss", [KL, *OTHER_LOSSES])
def test_a_class_counts_as_often_as_it_has_samples(loss):
    """Check that a class mean changes U as much as its samples with the same part weights would."""
    rng = np.random.default_rng(0)
    X, U, V = rng.random((7, 5)) + 0.1, rng.random((5, 2)), rng.random((3, 2))
    codes = np.array([0, 2, 0, 0, 2, 1, 0])
    ours, each = learner(U, loss), learner(U, loss)
    for sums in (ours.sums, each.sums):
        sums.weight = 1.0  # the initial components are not counted as a sample
    ours.classes.add(X, codes, np.ones(7))
    model = ours.classes.model(ours.loss, X.dtype, nothing, np.arange(3))
    ours.sums.add(model, V, U, ours.classes.counts)
    each.sums.add(each.model(as_data(X)), V[codes], U)
    np.testing.assert_allclose(ours.sums.C, each.sums.C, rtol=1e-12)
    np.testing.assert_allclose(ours.sums.B, each.sums.B, rtol=1e-12)
    assert ours.sums.weight == each.sums.weight == 8


@pytest.mark.parametrize("loss", ["frobenius", KL, *OTHER_LOSSES])
def test_classes_without_samples_do_not_disturb_the_fit(loss):
    """Check that classes that have not occurred yet, or no longer occur, do not disturb the fit."""
    X = planted(30, 8, 2) + 0.1
    model = MiniBatchNMF(2, hard_labels=True, beta_loss=loss, forget_factor=0.0, random_state=0)
    y = np.repeat(["late", "early", None], 10).astype(object)
    model.partial_fit(X[10:], y[10:])
    model.partial_fit(X, y)
    early = model._state["classes"]["V"][model.classes_.tolist().index("early")]
    model.partial_fit(X[:10], y[:10])
    model.partial_fit(X[20:], y[20:])
    V = model._state["classes"]["V"]
    assert np.isfinite(V).all() and V.any(axis=1).all() and early.any()
    assert np.isfinite(model.components_).all()


def test_classes_may_come_later():
    X = planted(90, 12, 3)
    y = np.array(["b"] * 30 + ["c"] * 30 + ["a"] * 30, dtype=object)
    model = MiniBatchNMF(3, hard_labels=True, forget_factor=1.0, random_state=0)
    for start in (0, 30, 60):
        y[start + 5 : start + 30] = None
        model.partial_fit(X[start : start + 30], y[start : start + 30])
    assert model.classes_.tolist() == ["b", "c", "a"]
    state = model._state["classes"]
    assert state["counts"].tolist() == [5, 5, 5]
    np.testing.assert_allclose(state["sums"][2], X[60:65].sum(axis=0))


def test_a_part_that_nobody_uses_any_more_stays_finite():
    X = np.zeros((40, 6))
    X[:20, :3], X[20:, 3:] = 1.0, 2.0
    for loss in ("frobenius", KL):
        model = MiniBatchNMF(3, beta_loss=loss, forget_factor=0.0, random_state=0)
        for _ in range(30):
            model.partial_fit(X[:20])
        assert np.isfinite(model.components_).all()
        assert np.abs(model.transform(X[:20]) @ model.components_ - X[:20]).max() < 0.05


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X.__setitem__((250, 3), -1), "Negative values in data passed to MiniBatchNMF"),
        (lambda X: X.__setitem__((250, 3), np.nan), "NaN"),
    ],
)
def test_bad_values_on_disk_are_refused(change, words, tmp_path):
    X = planted(300, 20, 3)
    change(X)
    model = MiniBatchNMF(3, max_iter=1)
    with pytest.raises(ValueError, match=words):
        model.fit(stored(X, "memmap", tmp_path))
    assert not hasattr(model, "components_")


def test_what_has_no_rows_is_refused(tmp_path):
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(sp.csc_matrix(planted(20, 5, 2)))
    with pytest.raises(TypeError, match=r"adata\.X"):
        MiniBatchNMF(2).fit(made)
    made.write_h5ad(tmp_path / "x.h5ad")
    with pytest.raises(ValueError, match="columns"):
        MiniBatchNMF(2).fit(anndata.read_h5ad(tmp_path / "x.h5ad", backed="r").X)


# -- fresh_restarts and the maximum numbers of iterations -----------------------------------------


@pytest.mark.parametrize("most", [2, 30])
def test_fresh_restarts_begin_with_constant_part_weights(monkeypatch, most):
    """Check that with fresh_restarts=True each pass begins with constant part weights.

    Such passes also run more sweeps.
    """
    X, begins = planted(60, 12, 3), []
    solve = engine.Online.codes

    def codes(self, model, V, sweeps):
        begins.append((V is None, sweeps))
        return solve(self, model, V, sweeps)

    monkeypatch.setattr(engine.Online, "codes", codes)
    given = {"batch_size": 20, "max_iter": 3, "tol": 0, "max_no_improvement": None}
    given["fresh_restarts_max_iter"] = most
    MiniBatchNMF(3, random_state=0, **given).fit(X)
    # Each pass has three batches. Without fresh restarts only the first pass has no part weights to
    # start from.
    assert sum(constant for constant, _ in begins) == 3
    assert all(sweeps == most for constant, sweeps in begins if constant)
    begins.clear()
    MiniBatchNMF(3, random_state=0, fresh_restarts=True, **given).fit(X)
    assert sum(constant for constant, _ in begins) == 9
    assert all(sweeps == most for constant, sweeps in begins if constant)


def test_few_sweeps_from_a_constant_make_poor_parts():
    X = planted()
    given = {"batch_size": 50, "max_iter": 1, "tol": 0, "random_state": 0, "beta_loss": KL}
    ends = [
        MiniBatchNMF(4, fresh_restarts=True, fresh_restarts_max_iter=most, **given)
        .fit(X)
        .objective_
        for most in (1, 100)
    ]
    assert ends[1] < ends[0]


def test_transform_max_iter_limits_the_iterations():
    """Check that `transform_max_iter` limits the iterations of `transform`.

    With the KL loss, one iteration is far from the minimum and a thousand reach it.
    """
    X = planted()
    model = MiniBatchNMF(4, beta_loss=KL, random_state=0, max_iter=3, batch_size=100).fit(X)
    U = model.components_.T

    def value(most):
        V = np.asarray(model.set_params(transform_max_iter=most).transform(X))
        return reference.objective_kl(X, V, U)

    few, some, many = value(1), value(20), value(1000)
    assert few > some * (1 + 1e-3) and some >= many * (1 - 1e-9)
    # The default is 200 iterations, or max_iter if it is larger.
    assert value(None) == pytest.approx(value(200))
    assert model.set_params(max_iter=1000) and value(None) == pytest.approx(many)


@pytest.mark.parametrize("seed", range(3))
def test_repeated_batches_are_learned(seed):
    """Check repeated `partial_fit` on the same batches against scikit-learn's MiniBatchNMF.

    The part weights of the first batches belong to poor parts and must lose their influence.
    """
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(60, 4)) @ rng.gamma(0.5, size=(4, 20)) + 0.05 * rng.random((60, 20))
    ours, theirs = (kind(4, random_state=0) for kind in (MiniBatchNMF, decomposition.MiniBatchNMF))
    for _ in range(40):
        for batch in np.split(X, 3):
            ours.partial_fit(batch)
            theirs.partial_fit(batch)
    left = [np.linalg.norm(X - m.transform(X) @ m.components_) for m in (ours, theirs)]
    assert left[0] <= 1.01 * left[1]  # before, this ratio was 1.6, 4.9 and 0.9


def test_a_start_that_is_not_used_is_said():
    X = planted(30, 12, 3)
    for learn in (MiniBatchNMF(3).partial_fit, MiniBatchNMF(3, max_iter=2, tol=0).fit):
        with pytest.warns(RuntimeWarning, match="W or H"):
            learn(X, H=np.ones((3, 12)))
