"""Tests of simultaneous restarts, `consensus`, and `choose_k`."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib import pyplot as plt
from scipy.optimize import linear_sum_assignment, nnls

import partwise
from partwise import (
    CF,
    CNMF,
    GNMF,
    NMF,
    SemiNMF,
    SparseNMF,
    choose_k,
    consensus,
    fitting,
    io,
    non_negative_factorization,
    plot,
    select,
)
from partwise.backends import as_data
from partwise.estimators.methods import ESTIMATORS
from partwise.fitting import solving
from partwise.metrics import hold_out
from partwise.selection import rank
from partwise.selection.consensus import (
    deviation_scale,
    group_silhouettes,
    local_density,
    times,
    unit_rows,
)
from partwise.selection.rank import _decide, cophenetic_correlation
from partwise.selection.refits import Refits
from partwise.solvers import many_starts
from partwise.solvers.loop import alternate


def planted(n=60, p=40, k=3, *, noise=0.05, seed=0):
    """Return X >= 0 made of k sparse parts, the parts, and the part weights."""
    rng = np.random.RandomState(seed)
    V = rng.gamma(0.5, size=(n, k))
    H = rng.gamma(0.5, size=(k, p)) * (rng.uniform(size=(k, p)) < 0.5)
    X = V @ H
    return np.maximum(X + noise * X.mean() * rng.standard_normal(X.shape), 0), H, V


def one_by_one(model, starts, settings):
    for start in starts:
        yield alternate(model, *start(), settings)


def restarts_of(estimator, X, **given):
    """Return the result of every restart, and the fitted estimator."""
    what = fitting.described(estimator)
    problem = fitting.state(what, fitting.check(estimator, what, X, fitting.FitInputs(**given)))
    found = list(solving.solutions(problem))
    return found, estimator.fit(X, **given)


def as_is(X):
    return X


def as_torch(X):
    return pytest.importorskip("torch").asarray(X)


def as_dask(X):
    return pytest.importorskip("dask.array").from_array(X, chunks=(25, -1))


@pytest.mark.parametrize("kind", [as_is, sp.csr_array, as_torch, as_dask])
def test_simultaneous_starts_equal_single_starts(kind, monkeypatch):
    X, _, _ = planted()
    # At most 9 columns: 5 starts of 3 parts run as 3 and 2.
    monkeypatch.setattr(many_starts, "WIDEST", 9)
    args = {"n_init": 5, "random_state": 0, "tol": 1e-2, "max_iter": 60}
    many, model = restarts_of(NMF(3, **args), kind(X))
    monkeypatch.setattr(solving, "solve_many", one_by_one)
    single, alone = restarts_of(NMF(3, **args), kind(X))
    assert len(many) == len(single) == 5
    assert len({run.n_iter for run in many}) > 1  # some fits end earlier than others
    for one, other in zip(many, single, strict=True):
        assert one.status == other.status
        # The tolerance is the rounding of products that compute several starts together.
        np.testing.assert_allclose(one.history, other.history, rtol=1e-9)
    np.testing.assert_allclose(model.components_, alone.components_, atol=1e-7)


def gappy(k, **args):
    return NMF(k, alpha_W=0.1, missing_values=np.nan, **args)


def sparse(k, **args):
    return SparseNMF(k, sparseness_H=0.5, **args)


@pytest.mark.parametrize("make", [CNMF, GNMF, gappy, sparse])
def test_labels_graphs_gaps_and_projections_go_side_by_side_too(make, monkeypatch):
    X, _, V = planted()
    if make is gappy:
        X[::7, ::5] = np.nan
    y = np.where(np.arange(60) % 3 == 0, V.argmax(axis=1), -1)
    given = {"y": y} if make is CNMF else {}
    args = {"n_init": 3, "random_state": 1, "max_iter": 12, "tol": 0}
    many, _ = restarts_of(make(3, **args), X, **given)
    monkeypatch.setattr(solving, "solve_many", one_by_one)
    single, _ = restarts_of(make(3, **args), X, **given)
    # A single fit keeps the values that fill missing entries for both halves of an iteration;
    # simultaneous fits compute them for each half.
    rtol = 2e-2 if make is gappy else 1e-9
    for one, other in zip(many, single, strict=True):
        assert (np.diff(one.history) <= 0).all()
        np.testing.assert_allclose(one.history, other.history, rtol=rtol)


def test_a_group_is_as_wide_as_memory_allows(monkeypatch):
    data = as_data(np.ones((1000, 100)))
    assert many_starts.group_size(data, 10) == many_starts.WIDEST // 10
    assert many_starts.group_size(data, 1000) == 1
    # 8 arrays of 1100 x 5 entries per start; two starts fit into the 100,000 entries of X.
    monkeypatch.setattr(many_starts, "ROOM", 0)
    assert many_starts.group_size(data, 5) == 2


def cosines(A, B):
    """Return the cosines of the rows of A with the rows of B that match them best."""
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (A, B))
    C = A @ B.T
    rows, columns = linear_sum_assignment(-C)
    assert len(set(columns)) == len(A)
    return C[rows, columns]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, as_torch])
def test_planted_parts_come_back(kind):
    X, H, _ = planted(n=120)
    found = consensus(kind(X), 3, n_runs=12, random_state=0)
    assert cosines(found.parts, H).min() > 0.97
    assert found.stability.min() > 0.9
    assert found.pooled.shape == (36, 40)
    np.testing.assert_allclose(np.linalg.norm(found.pooled, axis=1), 1)
    np.testing.assert_allclose(found.spectra.sum(axis=1), 1)
    # In the units of X, usages and parts fit X nearly as well as a single fit does.
    found = consensus(kind(X), 3, n_runs=6, unit_variance=False, random_state=0)
    left = np.linalg.norm(X - found.usages @ found.parts)
    assert left < 1.01 * NMF(3, random_state=0).fit(X).reconstruction_err_
    shares = found.usages / found.usages.sum(axis=1, keepdims=True)
    assert (np.diff(shares.sum(axis=0)) <= 0).all()


def test_a_part_that_never_comes_back_is_an_outlier():
    rng = np.random.RandomState(0)
    pooled = np.repeat(np.eye(3, 20), 10, axis=0) + 0.01 * rng.uniform(size=(30, 20))
    pooled[4] = rng.uniform(size=20) * (np.arange(20) > 10)
    pooled[9] = 0
    density = local_density(unit_rows(pooled), 3)
    assert set(np.flatnonzero(density >= 0.5)) == {4, 9}
    d = np.linalg.norm(unit_rows(pooled)[0] - unit_rows(pooled), axis=1)
    np.testing.assert_allclose(density[0], np.sort(d)[1:4].mean(), atol=1e-6)


def test_spectra_are_medians_of_their_groups_and_parts_fit_their_usages():
    """Check that spectra are medians over runs, which one deviating run does not change.

    Usages are least-squares fits to these spectra.
    """
    X, _, _ = planted()
    found = consensus(X, 3, n_runs=8, density_threshold=2, random_state=0)
    for j in range(3):
        middle = np.median(found.pooled[found.groups == j], axis=0)
        np.testing.assert_allclose(found.spectra[j], middle / middle.sum(), rtol=1e-12)
        assert np.abs(found.pooled[found.groups == j].mean(axis=0) - middle).max() > 1e-6
    seen = X / X.std(axis=0)
    for x, usage in zip(seen[:10], found.usages):
        np.testing.assert_allclose(usage, nnls(found.spectra.T, x)[0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, as_torch])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_features_are_divided_by_their_deviation(kind, offset):
    rng = np.random.default_rng(0)
    X = rng.random((50, 6)) * [1, 10, 0.1, 1, 1, 1] + offset
    X[:, 4], X[:, 5] = 3.0, 0.0  # constant features are not scaled
    given = kind(X)
    found = times(given, deviation_scale(given))
    found = found.toarray() if sp.issparse(found) else np.asarray(found)
    np.testing.assert_allclose(found[:, :4], X[:, :4] / X[:, :4].std(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found[:, 4:], X[:, 4:])


@pytest.mark.parametrize("neighbors", [1, 2, 7, 400])
def test_density_is_the_mean_distance_to_the_nearest(neighbors):
    pooled = unit_rows(np.random.default_rng(0).random((300, 5)))
    d = np.linalg.norm(pooled[:, None] - pooled, axis=2)
    naive = [np.sort(np.delete(row, i))[:neighbors].mean() for i, row in enumerate(d)]
    # Distances are computed as roots of 2 - 2 cos, so only half of the digits are correct.
    np.testing.assert_allclose(local_density(pooled, neighbors), naive, atol=1e-7)


@pytest.mark.parametrize("make", [NMF, partial(GNMF, n_neighbors=3), partial(CF, init="random")])
def test_every_run_has_a_start_of_its_own(make):
    """Check that all runs have different initial values: they differ after one iteration."""
    X, _, _ = planted(n=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refits = Refits(make(max_iter=1, tol=0), "here")
        found = refits.runs(X, 3, 4, np.random.RandomState(0))
        found += refits.runs(X, 3, 2, np.random.RandomState(1))
    for i, (H, V) in enumerate(found):
        assert H.shape == (3, 40) and V.shape == (30, 3)
        assert all(np.abs(H - other).max() > 1e-3 for other, _ in found[:i])


@pytest.mark.parametrize("make", [CNMF, CF, partial(NMF, beta_loss="kullback-leibler")])
def test_any_estimator_is_the_base(make):
    X, H, V = planted(n=50)
    y = np.where(np.arange(50) % 3 == 0, V.argmax(axis=1), -1) if make is CNMF else None
    model = make(3, tol=1e-2)
    found = consensus(X, 3, n_runs=4, estimator=model, y=y, density_threshold=2, random_state=0)
    assert found.parts.shape == H.shape
    assert len(found.pooled) == 12
    assert model.get_params()["random_state"] is None  # consensus fits a copy of the estimator


def test_the_clustergram_has_a_square_for_each_group():
    X, _, _ = planted()
    found = consensus(X, 3, n_runs=6, random_state=0)
    ax = plot.clustergram(found)
    kept = int((found.groups >= 0).sum())
    assert ax.images[0].get_array().shape == (kept, kept)
    assert len(ax.get_yticklabels()) == 3
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("n_runs", 1),
        ("density_threshold", 3),
        ("density_threshold", 1e-9),
        ("neighborhood", 0),
        ("neighborhood", 1.5),
    ],
)
def test_bad_input_is_answered(name, value):
    X, _, _ = planted(n=30)
    given = {name: value}
    with pytest.raises(ValueError, match=name):
        consensus(X, **{"k": 3, "n_runs": 3, "random_state": 0, **given})


def test_one_part_two_runs_and_all_of_them_as_neighbours_are_allowed():
    X, _, _ = planted(n=30)
    found = consensus(X, 1, n_runs=2, neighborhood=1, density_threshold=2, random_state=0)
    assert found.parts.shape == (1, 40) and len(found.pooled) == 2
    assert np.isnan(found.stability).all()


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_number_is_found(seed):
    X, _, _ = planted(noise=0.2, seed=seed)
    found = choose_k(X, [5, 4, 3, 2, 1], n_splits=3, n_runs=2, random_state=0)
    assert found.numbers.tolist() == [1, 2, 3, 4, 5]
    assert found.k == 3
    assert found.stability[2] > 0.95
    assert np.isnan(found.stability[0])
    lines = found.table().splitlines()
    assert len(lines) == 6
    assert lines[3].endswith("<-")
    ax = plot.choice(found)
    assert ax.lines[-1].get_xdata()[0] == 3
    plt.close(ax.figure)


def test_runs_of_large_data_are_few_and_see_a_sample(monkeypatch):
    X, _, _ = planted(n=80)
    seen = []
    monkeypatch.setattr(rank, "LARGE", 2400)  # of 3200 entries, a sample of 2400 has 60 rows

    def stabilities(refits, X, k, n_runs, rng):
        seen.append((refits.estimator.tol, X.shape, k, n_runs))
        return 1.0, 1.0

    monkeypatch.setattr(rank, "_stabilities", stabilities)
    choose_k(X, [3], random_state=0)
    choose_k(X, [3], n_runs=4, random_state=0)
    assert seen == [(3e-3, (60, 40), 3, 5), (1e-3, (80, 40), 3, 4)]


def test_the_smallest_number_within_one_standard_error_is_the_answer():
    errors = np.array([[9.0, 9, 9], [1.0, 3, 2], [1.3, 2.9, 1.7], [4.0, 4, 4]])
    found = _decide(np.array([2, 4, 6, 8]), errors, np.full((4, 2), np.nan))
    above = np.array([-0.3, 0.1, 0.3])  # errors of k=4 minus those of k=6, the lowest: 0.03 ± 0.18
    assert found.k == 4
    assert found.good == [4, 6]
    np.testing.assert_allclose(found.excess[1], [above.mean(), above.std(ddof=1) / np.sqrt(3)])


def test_the_end_of_the_range_and_a_flat_curve_are_said():
    none = np.full((3, 2), np.nan)
    rising = np.array([[1.0, 1.1, 0.9], [2.0, 2.2, 1.8], [3.0, 3.3, 2.7]])
    numbers = np.array([2, 4, 6])
    low, high = _decide(numbers, rising, none), _decide(numbers, rising[::-1], none)
    assert (low.edge, high.edge) == ("smallest", "largest")
    assert "lowest error is at 6, the largest number tried: more parts" in high.table()
    assert "at 2, the smallest number tried: fewer parts" in low.remarks()[0]
    # There is no smaller number of parts than 1.
    assert _decide(np.array([1, 4, 6]), rising, none).edge == ""
    assert replace(high, most=6).edge == ""  # there is no larger number of parts than 6
    assert _decide(numbers, rising[[1, 0, 2]], none).remarks() == []
    flat = np.array([[1.0, 1.3, 0.7], [1.1, 1.0, 1.0], [1.0, 1.2, 0.85]])
    assert "The curve is flat: 3 of 3 numbers, 2 to 6" in _decide(numbers, flat, none).remarks()[-1]


def test_an_answer_at_the_end_of_the_range_warns():
    X, _, _ = planted(k=5, noise=0.01)
    with pytest.warns(UserWarning, match=r"\b3\b"):
        choose_k(X, [1, 2, 3], n_splits=3, n_runs=0, random_state=0)


def test_stability_is_finite_for_few_different_parts():
    """Check that the stability is a number even for very few different parts.

    The silhouette is 0 if groups are single parts or if all parts are equal.
    """
    same = np.tile(np.eye(1, 4), (6, 1))
    np.testing.assert_array_equal(group_silhouettes(same, np.zeros(6, int), 2), [0, 0])
    np.testing.assert_array_equal(group_silhouettes(np.eye(2, 4), np.array([0, 1]), 2), [0, 0])
    three = np.repeat(np.eye(2, 4), 3, axis=0)
    np.testing.assert_allclose(group_silhouettes(three, np.repeat([0, 2], 3), 3), [1, 0, 1])
    assert np.isnan(group_silhouettes(same, np.zeros(6, int), 1)).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 9)])
def test_a_number_of_parts_for_very_few_samples(kind, shape):
    """Check `choose_k` for very few samples.

    With nine entries, one is hidden although a tenth is less than one.
    """
    X = np.random.default_rng(0).random(shape) + 0.1
    X[-1] = 2 * X[0]  # two rows are multiples, so one part suffices for them
    found = choose_k(kind(X), [1, 2, 3], n_splits=3, n_runs=2, random_state=0)
    assert np.isfinite(found.errors).all() and found.k in (1, 2, 3)
    assert np.isfinite(found.stability[1:]).all() and np.isfinite(found.cophenetic[1:]).all()
    assert "nan" not in found.table() and found.table().splitlines()[1].split()[4] == "-"
    for number in range(20):
        held = hold_out(kind(X), 0.01, random_state=number)
        assert 1 <= len(held.values) <= X.size - max(shape)
    with pytest.raises(ValueError, match="share"):  # a single row has no entry to hold out
        choose_k(kind(X[:1]), [1], n_splits=2, n_runs=0, random_state=0)


def test_cophenetic_correlation_is_one_where_runs_agree_and_less_elsewhere():
    labels = np.arange(30) % 3
    assert cophenetic_correlation([labels, (labels + 1) % 3]) == pytest.approx(1)
    rng = np.random.RandomState(0)
    assert cophenetic_correlation([rng.randint(3, size=30) for _ in range(4)]) < 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numbers", []),
        ("numbers", [0, 2]),
        ("n_splits", 1),
        ("n_runs", 1),
        ("share", 1.5),
        ("estimator", CF()),
    ],
)
def test_bad_choices_are_answered(name, value):
    given = {name: value}
    with pytest.raises(ValueError, match="missing_values" if name == "estimator" else name):
        choose_k(planted(n=20)[0], **{"numbers": [1, 2], **given})


def test_the_folder_of_cnmf_comes_back(tmp_path):
    X, _, _ = planted(n=30)
    found = consensus(X, 3, n_runs=5, random_state=0)
    names = [f"gene {j}" for j in range(38)] + ["a\tb", 'say "x"']
    home = io.write_cnmf(found, tmp_path, "demo", features=names)
    assert (home / "demo.usages.k_3.dt_0_5.consensus.txt").is_file()
    with np.load(home / "cnmf_tmp" / "demo.spectra.k_3.merged.df.npz") as file:
        assert file["index"][:4].tolist() == [
            *(f"iter0_topic{j}" for j in (1, 2, 3)),
            "iter1_topic1",
        ]
        assert file["columns"].tolist() == names
    back, samples, features = io.read_cnmf(tmp_path, "demo", 3)
    assert features == names
    assert len(samples) == 30
    for field in ("parts", "usages", "spectra", "stability", "pooled", "density", "groups"):
        np.testing.assert_allclose(
            getattr(back, field), getattr(found, field), rtol=1e-8
        )  # the files have nine digits
    with pytest.raises(FileExistsError):
        io.write_cnmf(found, tmp_path, "demo")
    with pytest.raises(ValueError, match=r"features.*40"):
        io.write_cnmf(found, tmp_path, "other", features=["one"])


def as_csr_tensor(X):
    return as_torch(X).to_sparse_csr()


def as_coo_tensor(X):
    return as_torch(X).to_sparse()


def as_tensor_of_a_network(X):
    return as_torch(X).requires_grad_()


def as_integers(X):
    return as_torch(X).int()


KINDS = [as_torch, as_csr_tensor, as_coo_tensor, as_tensor_of_a_network, as_integers, as_dask]


@pytest.mark.parametrize("kind", KINDS)
def test_torch_and_dask_arrays_are_converted(kind):
    """Check selection functions on Torch tensors and Dask arrays, which are converted explicitly.

    numpy.asarray may fail for such arrays.
    """
    X = np.random.default_rng(0).poisson(2, size=(50, 12)).astype(float)
    given = {"n_runs": 0, "n_splits": 2, "random_state": 0}
    sparse = kind in (as_csr_tensor, as_coo_tensor)
    expected = choose_k(sp.csr_array(X) if sparse else X, [1, 2], **given)
    # The same entries are hidden. Fits to a Dask array end elsewhere within tol=1e-3.
    rtol = 0.05 if kind is as_dask else 1e-7
    found = choose_k(kind(X), [1, 2], **given)
    np.testing.assert_allclose(found.errors, expected.errors, rtol=rtol)
    found = select(kind(X), NMF(2), {"alpha_W": [0, 0.1]}, n_splits=2, random_state=0)
    assert len(found.errors) == 2
    held = hold_out(kind(X), 0.1, random_state=0)
    assert sp.issparse(held.X) == sparse
    parts = consensus(kind(X), 2, n_runs=3, unit_variance=not sparse, random_state=0).parts
    assert np.isfinite(np.asarray(parts)).all()


def test_codes_of_a_dask_array_are_those_of_the_whole():
    X, H = np.random.default_rng(0).gamma(0.5, size=(50, 9)), np.eye(2, 9) + 0.1
    there = non_negative_factorization(as_dask(X), H=H, update_H=False)[0]
    here = non_negative_factorization(X, H=H, update_H=False)[0]
    np.testing.assert_allclose(np.asarray(there), here, rtol=1e-12)


FACTORIZERS = [name for name in ESTIMATORS if not name.endswith("Classifier")]


@pytest.mark.parametrize("name", FACTORIZERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_runs_are_fits_of_the_estimator_itself(name):
    """Check that the runs of `consensus` are fits of the given estimator.

    Runs are computed together only if the estimator has the standard `fit`.
    """
    if name == "NTF":
        pytest.importorskip("tensorly", reason="tensorly is not installed: partwise[tensor]")
    model = getattr(partwise, name)(max_iter=5)
    own = type(model).fit.__module__ not in ("partwise.estimators._base", "partwise.estimators.nmf")
    assert model._describe().own_fit == own
    X = planted(n=16, p=16)[0]
    X = X @ X.T
    found = Refits(model, "here").runs(X, 2, 2, np.random.RandomState(0))
    assert [(len(H), V.shape) for H, V in found] == [(2, (16, 2))] * 2
    if own:
        if getattr(model, "init", "") is None:
            model.set_params(init="random")
        seed = int(np.random.RandomState(0).randint(2**31 - 1, size=2)[1])
        model.set_params(n_components=2, random_state=seed).fit(X)
        np.testing.assert_array_equal(found[1][0], model.components_)
        np.testing.assert_array_equal(found[1][1], model.embedding_)


def test_the_number_of_parallel_fits_depends_on_memory(monkeypatch):
    """Check that the number of parallel fits depends on memory, cores and the amount of work."""
    X = np.ones((100, 50))
    monkeypatch.setattr(rank, "allowed", lambda: 8)
    monkeypatch.setattr(rank, "ALONE", 1)
    one = X.size + rank.ARRAYS * (100 + 50) * 4
    for fits, wanted in ((0.5, 1), (3.5, 3), (100, 8)):
        monkeypatch.setattr(rank, "KEPT", int(fits * one))
        assert rank.at_once(X, 4) == wanted
    monkeypatch.setattr(rank, "ALONE", 10**9)
    assert rank.at_once(X, 4) == 1


def test_patience_is_a_count():
    with pytest.raises(ValueError, match="patience"):
        choose_k(np.ones((6, 5)), [1, 2], patience=0)


@pytest.mark.parametrize("kind", [as_torch, as_dask])
def test_consensus_under_kl_is_the_same_for_all_array_types(kind):
    """Check that the consensus under KL is the same for Torch, Dask and NumPy arrays."""
    X, _, V = planted()
    refits = Refits(NMF(beta_loss="kullback-leibler"), "here")
    here = refits.parts(X, V)
    there = refits.parts(kind(X), V)
    np.testing.assert_allclose(there, here, atol=1e-4 * here.max())
    made = {"n_runs": 3, "estimator": NMF(beta_loss="kullback-leibler"), "random_state": 0}
    parts = consensus(kind(X), 3, **made, unit_variance=False).parts
    same = consensus(X, 3, **made, unit_variance=False).parts
    np.testing.assert_allclose(parts, same, atol=1e-3 * same.max())


def ratings(seed=0, n=90, p=30, seen=0.5):
    """Return ratings made of three parts with most entries missing, and the complete table."""
    rng = np.random.default_rng(seed)
    whole = rng.gamma(1, size=(n, 3)) @ rng.gamma(0.5, size=(3, p)) + 0.01
    return np.where(rng.random((n, p)) < seen, whole, 0), whole


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_missing_ratings_are_not_zeros(kind):
    """Check that missing ratings are not treated as zeros.

    Zeros would change the chosen number of parts and their size.
    """
    X, whole = ratings()
    model = NMF(missing_values=0, tol=1e-3)
    choice = choose_k(kind(X), [1, 2, 3, 4], estimator=model, n_runs=0, n_splits=3, random_state=0)
    assert choice.k == 3
    found = consensus(kind(X), 3, n_runs=5, estimator=model, density_threshold=2, random_state=0)
    hidden = X == 0
    error = np.linalg.norm((found.usages @ found.parts - whole)[hidden])
    assert error < 0.05 * np.linalg.norm(whole[hidden])


def test_known_parts_are_in_the_units_of_x():
    """Check that fixed parts are given and returned in the units of X, also with unit_variance."""
    X, H, _ = planted(noise=0.01)
    scale = np.geomspace(0.01, 100, X.shape[1])  # features of different sizes
    found = consensus(
        X * scale, 3, n_runs=6, estimator=NMF(fixed_components=H[:2] * scale), random_state=0
    )
    np.testing.assert_array_equal(found.parts[:2], H[:2] * scale)
    assert cosines(found.parts / scale, H).min() > 0.99
    left = np.linalg.norm(X - found.usages @ (found.parts / scale))
    assert left < 0.1 * np.linalg.norm(X)


def test_parts_with_signs_recur_too():
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, size=(90, 3)) * (rng.random((90, 3)) < 0.6)
    H = rng.normal(size=(3, 20))
    X = V @ H + 0.01 * rng.normal(size=(90, 20))
    found = consensus(X, 3, n_runs=6, estimator=SemiNMF(max_iter=500), unit_variance=False,
                      density_threshold=2, random_state=0)  # fmt: skip
    assert found.stability.min() > 0.9 and (found.parts < 0).any() and (found.usages >= 0).all()
    assert np.linalg.norm(X - found.usages @ found.parts) < 0.1 * np.linalg.norm(X)
    np.testing.assert_allclose(np.linalg.norm(found.spectra, axis=1), 1)


def test_counts_drawn_as_zero_are_still_seen():
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, size=(60, 12)) * 1.0
    how = {"n_runs": 4, "bootstrap": "poisson", "density_threshold": 2, "unit_variance": False}
    found = consensus(sp.csr_array(X), 1, estimator=NMF(missing_values=0), random_state=0, **how)
    # The runs see Poisson counts with the observed counts as means.
    naive = NMF(1, missing_values=0).fit(sp.csr_array(X))
    unit = naive.components_ / np.linalg.norm(naive.components_)
    assert np.abs(found.pooled.mean(axis=0) - unit).max() < 0.1
    mean = (found.usages @ found.parts)[X > 0].mean()
    assert mean == pytest.approx(X[X > 0].mean(), rel=0.05)


def test_missing_values_need_dense_scaling_by_hand_on_tensors():
    X = as_torch(np.where(planted()[0] > 1, planted()[0], np.nan))
    model = NMF(missing_values=np.nan, tol=1e-2)
    with pytest.raises(ValueError, match="unit_variance"):
        consensus(X, 2, n_runs=2, estimator=model)
    X = planted(n=30)[0]
    X = as_torch(np.where(np.random.default_rng(0).random(X.shape) < 0.9, X, np.nan))
    found = consensus(X, 2, n_runs=2, estimator=model, unit_variance=False, density_threshold=2)
    assert np.isfinite(found.parts).all()


def test_a_checkpoint_of_one_fit_serves_no_search_of_several(tmp_path):
    """Check that a grid search refuses an estimator with `checkpoint`.

    The search fits different data, but a checkpoint belongs to one fit.
    """
    from sklearn.model_selection import GridSearchCV

    X = planted()[0]
    model = NMF(2, checkpoint=tmp_path / "fit", max_iter=20, tol=0)
    search = GridSearchCV(model, {"alpha_W": [0, 0.1]}, cv=2, error_score="raise")
    with pytest.raises(ValueError, match="checkpoint"):
        search.fit(X)
