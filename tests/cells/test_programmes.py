"""Tests of each step from counts to gene expression programs against its formula."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

from partwise.apps.cells import programmes as steps


def made(n=80, p=60, k=3, *, depth=800, seed=0):
    """Return Poisson counts of cells that mix k programs, the programs, and the mixing shares."""
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.2, size=(k, p))
    H /= H.sum(axis=1, keepdims=True)
    V = rng.dirichlet(np.full(k, 0.3), n)
    return rng.poisson(rng.uniform(0.5, 1.5, (n, 1)) * depth * V @ H).astype(float), H, V


def runs_of(prepared, k, n_runs=8, **more):
    model = steps.model_of_runs(**more)
    found = steps.each_run(prepared.seen, k, n_runs, model=model, seed=0, only=range(n_runs))
    return np.concatenate([H for _, H in found])


def as_torch(X):
    return pytest.importorskip("torch").from_numpy(X.astype(np.float32))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, as_torch])
def test_prepared_counts_are_those_of_the_formula(kind):
    X, _, _ = made()
    ready = steps.prepare(kind(X), 40)
    tpm = 1e6 * X / X.sum(axis=1, keepdims=True)
    plain = [a.toarray() if sp.issparse(a) else np.asarray(a) for a in (ready.seen, ready.tpm)]
    # The values are in single precision, and each is the result of a few rounded operations.
    np.testing.assert_allclose(plain[1], tpm, rtol=1e-6)
    kept = X[:, ready.kept]
    np.testing.assert_allclose(plain[0], kept / kept.std(axis=0, ddof=1), rtol=1e-5)
    # The deviation is a float64 sum of n squares of float32 values.
    np.testing.assert_allclose(ready.mean, tpm.mean(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ready.deviation, tpm.std(axis=0), rtol=1e-4, atol=1e-3)
    assert len(ready.kept) == 40


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, as_torch])
def test_tables_for_all_genes_are_the_regressions(kind):
    X, _, _ = made()
    ready = steps.prepare(kind(X), 40)
    one = steps.programmes_of(ready, runs_of(ready, 3), 3, density_threshold=2)
    tpm = 1e6 * X / X.sum(axis=1, keepdims=True)
    kept = X[:, ready.kept]
    seen = kept / kept.std(axis=0, ddof=1)
    V = np.array([nnls(one.found.spectra.T, row)[0] for row in seen])
    shares = V / V.sum(axis=1, keepdims=True)
    parts = np.array([nnls(shares, column)[0] for column in tpm.T]).T
    # The computation under test solves to 1e-6 of the norm of X, in single precision.
    np.testing.assert_allclose(one.found.parts, parts, atol=1e-3 * parts.max())
    z = (tpm - tpm.mean(axis=0)) / np.maximum(tpm.std(axis=0), 1e-300)
    z[:, tpm.std(axis=0) == 0] = 0
    scores = np.linalg.lstsq(V, z, rcond=None)[0]
    np.testing.assert_allclose(one.scores, scores, atol=1e-3 * abs(scores).max())
    deviation = tpm.std(axis=0)[ready.kept]
    codes = [
        nnls((parts[:, ready.kept] / deviation).T, row)[0] for row in tpm[:, ready.kept] / deviation
    ]
    np.testing.assert_allclose(one.found.usages, codes, atol=2e-3 * np.max(codes))
    error = ((seen - V @ one.found.spectra) ** 2).sum()
    assert one.error == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_planted_programmes_come_back(loss):
    X, H, _ = made(n=150, depth=3000)
    ready = steps.prepare(sp.csr_array(X), 0)
    one = steps.programmes_of(ready, runs_of(ready, 3, loss=loss), 3, loss=loss)
    found = one.found.parts / np.linalg.norm(one.found.parts, axis=1, keepdims=True)
    cosine = found @ (H / np.linalg.norm(H, axis=1, keepdims=True)).T
    assert cosine.max(axis=0).min() > 0.98
    assert one.stability > 0.9
    best = [ready.genes[j] for j in (H - np.sort(H, axis=0)[1]).argmax(axis=1)]
    tops = one.top_genes(5)
    assert all(any(gene in top for top in tops) for gene in best)


def test_a_run_is_the_same_whatever_was_done_before():
    X, _, _ = made()
    ready = steps.prepare(X, 0)
    model = steps.model_of_runs(max_iter=20)
    whole = dict(steps.each_run(ready.seen, 3, 6, model=model, seed=1, only=range(6)))
    some = dict(steps.each_run(ready.seen, 3, 6, model=model, seed=1, only=[1, 4]))
    assert sorted(some) == [1, 4]
    # Products of several runs are computed together, in single precision.
    for number, H in some.items():
        np.testing.assert_allclose(H, whole[number], rtol=1e-2, atol=1e-3 * H.max())


def test_what_is_no_counts_is_said():
    X, _, _ = made()
    with pytest.raises(ValueError, match=r"file: .*0\.693147"):
        steps.prepare(np.log1p(np.ones((5, 4))), source="file")
    with pytest.raises(ValueError, match="-1"):
        steps.prepare(sp.csr_array(-X.clip(0, 1)))
    with pytest.raises(ValueError, match=r"counts: .*\(a\)"):
        steps.prepare(X, genes=["a"] * 2 + [str(j) for j in range(58)])
    with pytest.raises(ValueError, match=r"60 .* got 1"):
        steps.prepare(X, genes=["a"])
    with pytest.raises(ValueError, match=r"counts.*0"):
        steps.prepare(np.zeros((4, 5)))


def test_cells_without_counts_are_named_and_left_out():
    X, _, _ = made()
    X[[2, 5]] = 0
    ready = steps.prepare(X, 30, cells=[f"c{i}" for i in range(80)])
    assert len(ready.cells) == 78 and "c2" not in ready.cells
    assert all(word in ready.notes[0] for word in ("2 cells", "30 genes", "c2, c5"))
    rest = steps.prepare(np.delete(X, [2, 5], axis=0), 30)
    np.testing.assert_allclose(ready.deviation, rest.deviation)


def test_the_estimate_grows_with_the_work():
    X, _, _ = made()
    ready = steps.prepare(X, 0)
    ticks = iter(np.cumsum([0, 1, 0, 1, 0, 3]))  # two iterations take a second, and six take three
    told = steps.seconds_of(
        ready, [3, 5], 10, model=steps.model_of_runs(), clock=lambda: float(next(ticks))
    )
    some = min(10, max(2, 60 // 5))
    assert told == pytest.approx((3 - 1) / 4 / some / 5 * 10 * 8 * steps.ITERATIONS)
    small, large = (
        steps.memory_of(ready, 3),
        steps.memory_of(steps.prepare(np.tile(X, (50, 1)), 0), 3),
    )
    assert 5e8 < small < large


def test_the_report_draws_programmes_where_the_cells_are():
    from partwise.apps.view.report.programmes_page import (
        drawn,
        programme_rows,
        programmes_page,
    )

    X, _, _ = made()
    ready = steps.prepare(X, 40)
    one = steps.programmes_of(ready, runs_of(ready, 3), 3, density_threshold=2)
    rows = programme_rows(one)
    assert [row["runs"] for row in rows] == [8, 8, 8] and rows[0]["of"] == 8
    assert sum(row["usage"] for row in rows) == pytest.approx(1)
    places = np.random.default_rng(0).uniform(size=(80, 2))
    number = {"k": 3, "stability": None, "error": 1.0, "programmes": rows} | drawn(one, places)
    page = programmes_page([number], title="<b>", notes=["a & b"], source="", command="")
    assert "where the cells are" in page and "&lt;b&gt;" in page and "a &amp; b" in page
    assert "Which numbers are stable" not in page and page.count("<img") == 3
