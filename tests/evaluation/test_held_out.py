"""Tests of `hold_out` (which entries it hides, their error, Dask arrays) and `label_folds`."""

import numpy as np
import pytest
import scipy.sparse as sp

from partwise import NMF
from partwise.evaluation import held_out
from partwise.evaluation.held_out import label_folds
from partwise.metrics import hold_out

KL = "kullback-leibler"
N, P = 60, 25


def counts(seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(1, 2, (N, 3)) @ rng.gamma(1, 1, (3, P))).astype(float)


def observed(share=0.6, seed=1):
    return np.random.default_rng(seed).random((N, P)) < share


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def as_dask(X, rows=17):
    return pytest.importorskip("dask.array").from_array(X, chunks=(rows, 10))


#: Pairs of the value that marks missing entries and the array type of X.
MARKED = [
    (None, np.asarray),
    (np.nan, np.asarray),
    (-1.0, np.asarray),
    (0, np.asarray),
    (None, sp.csr_array),
    (np.nan, sp.csr_array),
    (0, sp.csr_array),
]


def marked(missing, kind):
    """Return X with missing entries, and the mask of its observed entries."""
    X, seen = counts() + 1, observed()
    if kind is sp.csr_array and missing != 0:
        X[np.random.default_rng(2).random(X.shape) < 0.5] = 0
    if missing is None:
        return kind(X), np.ones_like(seen)
    return kind(np.where(seen, X, missing)), seen


@pytest.mark.parametrize(("missing", "kind"), MARKED)
def test_only_observed_entries_are_hidden(missing, kind):
    X, seen = marked(missing, kind)
    held = hold_out(X, 0.3, missing_values=missing, random_state=0)
    mark = np.nan if missing is None else missing
    np.testing.assert_equal(held.missing_values, mark)
    hidden = np.zeros(X.shape, bool)
    hidden[held.rows, held.columns] = True
    assert hidden.sum() == len(held.values) and not (hidden & ~seen).any()
    here, there = dense(held.X), dense(X)
    np.testing.assert_array_equal(held.values, there[held.rows, held.columns])
    np.testing.assert_array_equal(here[~hidden], there[~hidden])
    np.testing.assert_array_equal(here[hidden], np.full(hidden.sum(), mark))
    assert (seen & ~hidden).any(axis=0).all() and (seen & ~hidden).any(axis=1).all()
    of = seen if kind is np.asarray or missing == 0 else seen & (there > 0)
    wanted = 0.3 * of.sum()
    found = (hidden & of).sum()
    # Four standard deviations of a binomial number.
    assert abs(found - wanted) < 4 * np.sqrt(0.21 * of.sum())
    if kind is sp.csr_array and missing != 0:
        assert (held.values == 0).sum() == (held.values > 0).sum()


def test_every_entry_is_hidden_as_often_as_any_other():
    X, often = np.ones((6, 5)), np.zeros((6, 5))
    for seed in range(600):
        held = hold_out(X, 0.3, random_state=seed)
        often[held.rows, held.columns] += 1
    share = often / 600
    assert np.abs(share - share.mean()).max() < 4 * np.sqrt(0.21 / 600)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_one_observed_entry_of_each_sample_and_feature_stays(kind):
    """Check that every sample and feature keeps one observed entry, even if it has only one."""
    X = np.full((12, 8), 2.0)
    X[3, 1:] = X[5:, 4] = X[:3, 4] = 0
    seen = X > 0
    for seed in range(20):
        held = hold_out(kind(X), 0.9, missing_values=0, random_state=seed)
        left = dense(held.X) > 0
        assert left.any(axis=0).all() and left.any(axis=1).all()
        assert len(held.values) == seen.sum() - left.sum()


@pytest.mark.parametrize("loss", ["frobenius", KL])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, as_dask])
def test_the_error_is_the_weighted_mean_at_the_hidden_entries(loss, kind):
    rng = np.random.default_rng(3)
    X, weight, entries = counts(), rng.random(N) + 0.5, rng.random((N, P)) * observed()
    given = {"sample_weight": weight, "entry_weight": entries}
    held = hold_out(kind(X), 0.2, random_state=0, **given)
    rows, columns = (np.asarray(a) for a in (held.rows, held.columns))
    assert (entries[rows, columns] > 0).all()
    model = NMF(2, missing_values=np.nan, beta_loss=loss, random_state=0, max_iter=30, tol=0)
    model.fit(held.X, sample_weight=weight, entry_weight=entries)
    x, V = X[rows, columns], np.asarray(model.embedding_)
    y = (V @ model.components_)[rows, columns]
    w = weight[rows] * entries[rows, columns]
    if loss == KL:
        y = np.maximum(y, 1e-6 * x.mean())
        each = np.where(x > 0, x * np.log(np.where(x > 0, x, 1) / y), 0) - x + y
    else:
        each = 0.5 * (x - y) ** 2
    assert held.error(model) == pytest.approx((w * each).sum() / w.sum(), rel=1e-9)


def test_a_sparse_weight_holds_the_observed_entries():
    X, seen = counts(), observed(0.4)
    held = hold_out(sp.csr_array(X), 0.3, entry_weight=sp.csr_array(2.0 * seen), random_state=0)
    assert seen[held.rows, held.columns].all() and set(held.weights) == {2.0}
    np.testing.assert_array_equal(held.values, X[held.rows, held.columns])
    assert (held.values == 0).any()  # observed zeros are hidden as well


def test_chunks_change_nothing():
    """Check that a dense Dask array has the hidden entries and the error of the NumPy array."""
    X = counts()
    here = hold_out(X, 0.2, random_state=0)
    model = NMF(2, missing_values=np.nan, random_state=0).fit(here.X)
    error, V = here.error(model), model.embedding_
    for rows in (60, 17):
        there = hold_out(as_dask(X, rows), 0.2, random_state=0)
        np.testing.assert_array_equal(there.X.compute(), here.X)
        np.testing.assert_array_equal(there.values.compute(), here.values)
        model.embedding_ = as_dask(V, 25)
        assert there.error(model) == pytest.approx(error, rel=1e-12)


def test_sparse_chunks_are_hidden_each_by_itself():
    da = pytest.importorskip("dask.array")
    X = np.where(observed(0.3), counts() + 1, 0)
    chunked = da.from_array(X, chunks=(20, -1)).map_blocks(sp.csr_matrix)
    held = hold_out(chunked, 0.3, missing_values=0, random_state=0)
    there = np.vstack([block.toarray() for block in _blocks(held.X)])
    rows, columns = held.rows.compute(), held.columns.compute()
    hidden = np.zeros(X.shape, bool)
    hidden[rows, columns] = True
    np.testing.assert_array_equal(there, np.where(hidden, 0, X))
    np.testing.assert_array_equal(held.values.compute(), X[rows, columns])
    model = NMF(2, missing_values=0, random_state=0, max_iter=10, tol=0).fit(held.X)
    Y = np.asarray(model.embedding_) @ model.components_
    naive = 0.5 * ((X - Y)[hidden] ** 2).mean()
    assert held.error(model) == pytest.approx(naive, rel=1e-9)


def _blocks(X):
    import dask

    return dask.compute(*X.to_delayed()[:, 0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share", 0),
        ("share", 1.5),
        ("sample_weight", np.ones(3)),
        ("sample_weight", -np.ones(N)),
        ("entry_weight", np.ones((N, 2))),
        ("entry_weight", np.full((N, P), np.nan)),
    ],
)
def test_bad_arguments_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        hold_out(counts(), **{name: value})


def test_nan_without_missing_values_is_refused_by_name():
    with pytest.raises(ValueError, match="missing_values"):
        hold_out(np.where(observed(), counts(), np.nan))


def test_other_losses_are_refused_by_name():
    held = hold_out(counts() + 1, 0.2, random_state=0)
    model = NMF(2, beta_loss=0.5, solver="mu", max_iter=5, tol=0).fit(counts() + 1)
    with pytest.raises(ValueError, match="beta_loss"):
        held.error(model)


def test_folds_hold_out_each_label_once_and_spread_the_classes():
    codes = np.repeat([0, 1, 2, 3], [10, 5, 2, 1])
    fold = label_folds(codes, 4, np.random.RandomState(0))
    assert fold[-1] == -1  # the only label of its class is never held out
    assert set(fold[:-1]) == {0, 1, 2, 3}
    counts = np.array([[(fold[codes == c] == f).sum() for f in range(4)] for c in range(3)])
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert np.ptp(counts.sum(axis=0)) <= 1  # all folds have about the same size
    few = label_folds(np.array([0, 0, 1]), 5, np.random.RandomState(0))
    assert sorted(few) == [-1, 0, 1]  # folds without labels are omitted
    alone = label_folds(np.arange(3), 2, np.random.RandomState(0))
    assert (alone == -1).all()


def test_weights_of_hidden_entries_are_kept_if_one_kind_is_given():
    X, by_sample = as_dask(counts() + 1), np.linspace(1, 2, N)
    for weights in ({"sample_weight": by_sample}, {"entry_weight": np.ones((N, P))}):
        held = hold_out(X, 0.2, random_state=0, **weights)
        rows = np.asarray(held.rows)
        wanted = by_sample[rows] if "sample_weight" in weights else np.ones(len(rows))
        np.testing.assert_array_equal(np.asarray(held.weights), wanted)
    assert hold_out(X, 0.2, random_state=0).weights is None


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_no_place_has_no_entries(kind):
    nothing = np.empty(0, int)
    assert held_out._at(kind(np.ones((3, 2))), nothing, nothing).shape == (0,)
