"""Tests of `select` and `choose_k`, which choose parameters by held-out data, and of resuming."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris

from partwise import CF, GNMF, NMF, choose_k, plot, select
from partwise.backends.threads import allowed
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.held_out import label_folds
from partwise.evaluation.linkage import linked_clusters
from partwise.knowledge.links import Links
from partwise.selection import rank
from partwise.selection.parameters import hidden_share


def planted(seed=0, k=3):
    rng = np.random.default_rng(seed)
    Y = rng.gamma(0.5, size=(50, k)) @ rng.gamma(0.4, size=(k, 30))
    return rng.poisson(8 * Y / Y.mean()).astype(float)


def interrupt_after(after):
    """Return a progress callback that raises KeyboardInterrupt, as Ctrl-C does."""

    def hear(done, total, what):
        if done >= after:
            raise KeyboardInterrupt

    return hear


def count_fits(monkeypatch, cls=NMF):
    """Count how often estimators of a class are fitted."""
    calls = []
    fit = cls.fit
    monkeypatch.setattr(cls, "fit", lambda self, *a, **k: calls.append(1) or fit(self, *a, **k))
    return calls


def test_a_choice_that_was_stopped_goes_on_to_the_same_answer(tmp_path, monkeypatch):
    X, path = planted(), tmp_path / "results.jsonl"
    args = {"numbers": [1, 2, 3, 4], "n_splits": 2, "n_runs": 3, "random_state": 0}
    whole = choose_k(X, **args)
    with pytest.raises(KeyboardInterrupt):
        choose_k(X, **args, results=path, progress=interrupt_after(5))
    kept = [json.loads(line)[0] for line in path.read_text().splitlines()[1:]]
    assert 5 <= len(kept) < 5 + allowed()  # parallel workers finish their current fit
    with path.open("a") as file:
        file.write('["1 / 0", [0.')  # an incomplete line, as after a kill while writing
    calls = count_fits(monkeypatch)
    found = choose_k(X, **{**args, "random_state": 9}, results=path)  # the seed of the file is used
    # Repeated runs for the stability do not call fit.
    assert len(calls) == 8 - sum("runs" not in name for name in kept)
    np.testing.assert_array_equal(found.errors, whole.errors)
    np.testing.assert_array_equal(found.stability, whole.stability)
    assert found.k == whole.k == 3
    calls.clear()
    assert choose_k(X, **args, results=path).k == 3
    assert not calls
    for other in ({"numbers": [1, 2]}, {"n_splits": 3}, {"estimator": NMF(tol=1e-2)}):
        with pytest.raises(ValueError, match="search"):
            choose_k(X, **{**args, **other}, results=path)
    with pytest.raises(ValueError, match="search"):
        choose_k(X + 1, **args, results=path)
    path.write_text("not ours")
    with pytest.raises(ValueError, match="search"):
        choose_k(X, **args, results=path)


def test_many_parts_are_found_where_their_mean_is_large():
    """Check that `choose_k` finds 20 planted parts.

    Regression test: with the start of NNDSVD, which fills zeros, fits once predicted huge values
    for hidden entries at the right number of parts.
    """
    rng = np.random.default_rng([2001, 20, 1, 0])
    Y = rng.gamma(0.5, size=(300, 20)) @ rng.gamma(0.3, size=(20, 150))
    X = rng.poisson(10 * Y.mean() / Y.var() * Y).astype(float)
    found = choose_k(X, [17, 19, 20, 21, 23], n_runs=0, n_splits=3, random_state=0)
    assert found.good == [20]


def test_choose_k_stops_when_errors_only_rise():
    heard = []
    found = choose_k(
        planted(), n_runs=0, n_splits=3, random_state=2, progress=lambda *a: heard.append(a)
    )
    assert found.k == 3
    assert found.numbers[-1] < 12  # 30 numbers are possible
    assert heard[0] == (0, 90, "k = 5")  # four numbers beyond the first are always tried
    assert len(heard) == 3 * len(found.numbers)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_parallel_fits_give_identical_results(kind, monkeypatch):
    """Check that parallel fits give identical results and try the same numbers of parts."""
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(rank, "at_once", lambda X, k, threads=threads: threads)
        found.append(choose_k(kind(planted()), n_splits=3, n_runs=2, random_state=0))
    one, three = found
    assert one.k == three.k and one.good == three.good
    for name in ("numbers", "errors", "stability", "cophenetic"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))


def test_patience_ends_after_so_many_that_are_clearly_worse():
    errors = np.array([[9.0, 9.1], [1.0, 1.1], [0.9, 1.3], [5.0, 5.1], [5.0, 5.2], [1.0, 1.1]])
    assert [rank._end(errors[: n + 1], 2) for n in range(6)] == [3, 4, 5, 5, 5, 8]


def test_select_finds_the_right_graph_by_labels(tmp_path, monkeypatch):
    X, y = load_iris(return_X_y=True)
    given = np.where(np.arange(150) % 6 == 0, y, -1)
    path = tmp_path / "results.jsonl"
    model = GNMF(3, tol=1e-2, random_state=0)
    args = {"y": given, "n_splits": 3, "random_state": 0}
    found = select(X, model, {"graph_reg": [0.0, 10.0]}, **args, results=path)
    assert found.by == "labels"
    assert found.errors.shape == (2, 3)
    assert found.best in found.good
    # Compute the error independently: predict the labels of a fold that the fit does not see.
    rows = np.flatnonzero(given >= 0)
    rng = np.random.RandomState(json.loads(path.read_text().split("\n")[0])["seed"])
    fold = label_folds(given[rows], 3, rng)
    seen = given.copy()
    seen[rows[fold == 0]] = -1
    seed = int(rng.randint(2**31 - 1))
    fitted = GNMF(3, tol=1e-2, graph_reg=10.0, random_state=seed).fit(X, seen)
    wrong = fitted.labels_[rows[fold == 0]] != y[rows[fold == 0]]
    assert found.errors[1, 0] == pytest.approx(wrong.mean())
    calls = count_fits(monkeypatch, GNMF)
    again = select(X, model, {"graph_reg": [0.0, 10.0]}, **args, results=path)
    assert not calls
    np.testing.assert_array_equal(again.errors, found.errors)
    assert len(found.table().splitlines()) == 3


def test_a_model_that_names_nothing_is_scored_by_its_codes():
    rng = np.random.default_rng(0)
    V = rng.gamma(0.3, size=(90, 3))
    V /= V.sum(axis=1, keepdims=True)
    X = rng.poisson(200 * V @ rng.gamma(0.4, size=(3, 20))).astype(float)
    given = np.where(np.arange(90) % 2, V.argmax(axis=1), -1)
    grid = {"n_components": [1, 3]}
    found = select(X, NMF(tol=1e-2), grid, y=given, n_splits=3, random_state=0)
    assert found.good == [{"n_components": 3}]
    assert found.errors[0].mean() > 0.3 > 0.1 > found.errors[1].mean()


def test_select_finds_the_right_number_by_pairs():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = 0.05 * rng.random((60, 12)) + np.kron(np.eye(3), np.ones(4))[y]
    pairs = rng.integers(60, size=(60, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]]), axis=0)
    same = y[pairs[:, 0]] == y[pairs[:, 1]]
    links = {"must_link": pairs[same], "cannot_link": pairs[~same]}
    found = select(X, GNMF(random_state=0), {"n_components": [2, 3, 5]}, **links, random_state=0)
    assert (found.by, found.best) == ("links", {"n_components": 3})
    V = unit_rows(GNMF(2, random_state=0).fit(X).embedding_)
    none = Links(*np.empty((2, 0, 2), int), 60)
    clusters = linked_clusters(V, 2, none)  # two clusters separate no class, and join two classes
    joined = clusters[pairs[:, 0]] == clusters[pairs[:, 1]]
    naive = ((~joined[same]).mean() + joined[~same].mean()) / 2
    assert found.errors[0].mean() == pytest.approx(naive)
    with pytest.raises(ValueError, match=r"labels \(y\) or pairs"):
        select(X, GNMF(), {"n_components": [2, 3]}, y=y, **links)
    plain = select(X, NMF(random_state=0), {"n_components": [1, 3]}, **links, random_state=0)
    assert plain.best == {"n_components": 3}  # NMF gets as many clusters as it has parts


def test_without_labels_hidden_entries_tell():
    X = planted()
    found = select(X, NMF(3), {"alpha_W": [0.0, 100.0], "l1_ratio": [1.0]}, random_state=0)
    assert found.by == "entries"
    assert found.best == {"alpha_W": 0.0, "l1_ratio": 1.0}
    assert found.good == [found.best]
    ax = plot.selection(found)
    assert len(ax.get_xticklabels()) == 2
    plt.close(ax.figure)


def test_the_hidden_share_falls_with_the_size_of_x():
    assert hidden_share((100, 50), 5) == 0.1
    assert hidden_share((2000, 1000), 5) == pytest.approx(200 / 3000 / 5)
    assert hidden_share((10**6, 2000), 5) * 2e9 == pytest.approx(200 / 1002000 / 5 * 2e9)


@pytest.mark.parametrize(
    ("model", "grid", "words"),
    [
        (NMF(), {"alpha": [0, 1]}, "'alpha'"),
        (NMF(), {"alpha_W": 1.0}, "'alpha_W'"),
        (NMF(), {"alpha_W": [1.0]}, "two points"),
        (CF(), {"tol": [1, 2]}, "missing_values"),
    ],
)
def test_a_bad_grid_is_answered(model, grid, words):
    with pytest.raises(ValueError, match=words):
        select(planted(), model, grid)
