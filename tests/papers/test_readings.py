"""Readings, readouts, verdicts within their errors, causes, and findings about print itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from partwise.apps.papers import load_protocol, names, representations
from partwise.apps.papers.claims import (
    CLEAR,
    FAILS,
    HOLDS,
    UNDECIDED,
    critical,
    decide,
    judge,
    outlook,
    together,
)
from partwise.apps.papers.evidence import evidence, single_clustering_values
from partwise.apps.papers.pairs import pairs_grid, variants_grid
from partwise.apps.papers.printed import Comparison, comparisons, misses
from partwise.apps.papers.protocol import Budget, Cause, ComparedMethod, DataSpec
from partwise.apps.papers.representations import (
    TRIAL_ITER,
    FitTask,
    Representation,
    fit,
    fit_estimator,
    stopping_iteration,
)
from partwise.apps.papers.runner import by_value, until
from partwise.apps.papers.sampling import draw
from partwise.apps.papers.scores import (
    ARGMAX,
    KMEANS,
    RANDOM,
    ROOT,
    WORDS,
    chosen_readout,
    distance_to_centres,
    locality,
    own_shares,
    readouts,
    within_classes,
)
from partwise.apps.papers.static_tables import ari_by_formula, contingency, statistics
from partwise.apps.papers.summary import Stat, Summary, paired_stat, summarise
from partwise.apps.papers.trials import NO_LABELS, PartOfProtocol, cells, cells_of

READ = [name for name in names() if len(load_protocol(name).readings) > 1]


@pytest.mark.parametrize("name", READ)
def test_every_reading_is_declared_with_what_fixes_it(name):
    protocol = load_protocol(name)
    assert sum(r.main for r in protocol.readings) == 1
    assert protocol.readings[0].name == "first"
    for reading in protocol.readings:
        assert reading.text and reading.source
        assert not reading.readout or reading.readout in WORDS
        paper = protocol.name.split("/")[0]
        tables = [load_protocol(f"{paper}/{table}") for table in reading.tables]
        assert set(reading.methods) <= {m.name for table in tables for m in table.methods}
        assert set(reading.prepare) <= {d.name for table in tables for d in table.data}
    for cause in protocol.causes:
        assert cause.whose in ("ours", "theirs", "not printed", "noise") and cause.text
        assert not cause.reading or cause.reading in {
            r.name for t in cause.tables
            for r in load_protocol(f"{protocol.name.split('/')[0]}/{t}").readings
        }  # fmt: skip


def test_a_reading_changes_what_it_names_and_shares_the_rest():
    protocol = load_protocol("gnmf/table3")
    first, authors = (
        protocol.read(next(r for r in protocol.readings if r.name == name))
        for name in ("first", "authors")
    )
    assert first.method("NMF").restarts == 1 and authors.method("NMF").restarts == 10
    assert authors.method("NMF").params["max_iter"] == 100
    assert authors.method("NMF").params["solver"] == "mu" and authors.method("NMF").readout == ROOT
    one = PartOfProtocol(runs=1)
    own, other = ({c.slug: c for c in cells_of(p, one)} for p in (first, authors))
    shared = {c.variant.method.name for slug, c in own.items() if slug in other}
    assert shared == {"PCA"}  # its readout differs, which is kept of every fit
    everything = [c.slug for c in cells(protocol, one)]
    assert len(everything) == len(set(everything)) and set(own) | set(other) <= set(everything)


def test_readings_see_the_same_subsets():
    spec = DataSpec("digits", "unit_rows")
    one, two = (draw("t", s, 3, 0) for s in (spec, replace(spec, prepare="none")))
    np.testing.assert_array_equal(one.truth, two.truth)
    np.testing.assert_array_equal(one.start(3)[0], two.start(3)[0])
    lengths = np.linalg.norm(two.X, axis=1, keepdims=True)
    np.testing.assert_allclose(one.X, two.X / lengths)


# Readouts ------------------------------------------------------------------------------------


@pytest.fixture
def task():
    sample = draw("t", DataSpec("digits", "unit_rows"), 3, 0)
    params = {"solver": "mu", "max_iter": 30, "tol": 0.0}
    return FitTask(sample, None, 3, ComparedMethod("NMF", "NMF", params, weights="ncw"), params)


def test_every_readout_of_a_fit_is_there(task):
    fitted = fit_estimator(task, "NMF", task.params)
    found = readouts(fitted, task, restarts=3)
    assert set(found) == {KMEANS, RANDOM, ARGMAX, ROOT}
    np.testing.assert_array_equal(found[ARGMAX], fitted.embedding.argmax(axis=1))
    # On Γ^½V with one weight for all, k-means finds what it finds on V.
    even = replace_weights(fitted, np.full(len(fitted.embedding), 4.0))
    np.testing.assert_array_equal(readouts(even, task, restarts=3)[ROOT], found[RANDOM])


def test_where_samples_lie_beside_the_parts_they_use(rng):
    V, H, X = rng.random((6, 2)), rng.random((2, 4)), rng.random((6, 4))
    lengths = np.sqrt((H**2).sum(axis=1))
    total = weight = 0.0
    for i in range(6):
        for k in range(2):
            total += V[i, k] * lengths[k] * sum((H[k] / lengths[k] - X[i]) ** 2)
            weight += V[i, k] * lengths[k]
    assert locality(V, H, X) == pytest.approx(total / weight)
    # a part's length is no matter
    assert locality(V / [2, 5], H * [[2], [5]], X) == pytest.approx(locality(V, H, X))
    assert locality(np.eye(2), H, H / lengths[:, None]) == pytest.approx(0, abs=1e-12)


def test_scatter_within_classes_is_a_share():
    truth = np.array([0, 0, 1, 1])
    assert within_classes(np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]), truth) == 0
    assert within_classes(np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]), truth) == 1


def replace_weights(fitted, weights):
    return Representation(fitted.embedding, 0.0, components=fitted.components, weights=weights)


def test_a_reading_falls_back_where_there_are_no_weights():
    assert chosen_readout(ROOT, {KMEANS: 0, RANDOM: 0}) == RANDOM
    assert chosen_readout(ROOT, {KMEANS: 0, RANDOM: 0, ROOT: 0}) == ROOT
    assert chosen_readout(RANDOM, {"labels": 0}) == "labels"


def test_a_device_gives_the_same_numbers(task, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed: partwise[gpu]")
    here = fit_estimator(task, "NMF", task.params)
    monkeypatch.setattr(representations, "WORTH_MOVING", 0)
    monkeypatch.setenv(representations.DEVICE, "cpu")
    there = fit_estimator(task, "NMF", task.params)
    # 30 multiplicative updates in float64, sums in another order
    np.testing.assert_allclose(there.embedding, here.embedding, rtol=1e-9, atol=1e-12)


def test_the_authors_rule_stops_where_the_objective_settles(task, monkeypatch):
    def by_hand(values, trial):
        mean, i = 10 * values[trial - 1], trial
        while i < len(values):
            mean = mean * 0.1 + 0.9 * values[i]
            i += 1
            if (mean - values[i - 1]) / mean <= 1e-5:
                break
        return i

    curve = [1.0 + 0.9**i for i in range(400)]
    stop = stopping_iteration(curve, 30)
    assert stop == by_hand(curve, 30) and 60 < stop < 120
    assert stopping_iteration([1.0 / (i + 1) for i in range(50)], 30) == 50  # never settles
    method = replace(task.method, stop=True)
    found = fit(replace(task, method=method, params={**task.params, "max_iter": 400}))
    assert len(found.history) == found.n_iter < 400
    whole = fit(replace(task, params={**task.params, "max_iter": 400}))
    assert found.n_iter == stopping_iteration(whole.history, 1)
    np.testing.assert_array_equal(
        found.embedding,
        fit(replace(task, params={**task.params, "max_iter": found.n_iter})).embedding,
    )
    monkeypatch.setattr(representations, "find_spec", lambda name: None)  # before 1.9
    again = fit(replace(task, method=method, params={**task.params, "max_iter": 400}))
    np.testing.assert_array_equal(found.embedding, again.embedding)


@pytest.mark.parametrize(
    ("estimator", "extra"),
    [
        ("NMF", {"tol": 0.0}),
        ("GNMF", {"scale": "paper", "graph_reg": 10.0, "weighting": "heat"}),
        ("SemiGNMF", {"scale": "paper", "graph_reg": 10.0, "label_weight": 100.0}),
        ("CNMF", {"tol": 0.0}),
        ("CNMF", {"tol": 0.0, "beta_loss": "kullback-leibler"}),
    ],
)
def test_the_start_with_the_lowest_objective_goes_on(task, estimator, extra):
    """The objective of the factors as they are, before the columns of U have unit length."""
    params = {"solver": "mu", "max_iter": 40, **extra}
    weights = "ncw" if estimator == "NMF" else ""
    method = ComparedMethod("m", estimator, params, restarts=4, weights=weights)
    y = task.sample.shown(Budget("b", per_class=3)) if estimator in ("SemiGNMF", "CNMF") else None
    task = replace(task, method=method, params=params, y=y)
    short = {**params, "max_iter": TRIAL_ITER}
    alone = [fit_estimator(replace(task, start=i), estimator, short) for i in range(4)]
    best = replace(task, start=int(np.argmin([fitted.history[-1] for fitted in alone])))
    whole = fit_estimator(best, estimator, params)
    np.testing.assert_array_equal(fit(task).embedding, whole.embedding)


def test_the_weights_of_a_normalised_cut_are_those_of_the_library(task):
    ours = representations.sample_weights(task.sample.X, "ncw")
    degrees = task.sample.X @ task.sample.X.sum(axis=0)
    np.testing.assert_allclose(ours * degrees, np.full(len(ours), (ours * degrees)[0]))
    assert ours.mean() == pytest.approx(1.0)
    sparse = representations.sample_weights(sp.csr_array(task.sample.X), "ncw")
    np.testing.assert_allclose(sparse, ours)


@pytest.mark.parametrize("name", ["cnmf/table1", "gnmf/table4", "lcf/table3", "cdnmf/table1"])
def test_a_program_runs_the_columns_of_its_own_methods(name):
    main, one = load_protocol(name).read(), load_protocol(name, "gnmf-matlab").read()
    for protocol in (main, one):
        assert protocol.reading.name == "gnmf-matlab"
        for method in protocol.runnable():
            inside = method.estimator in ("NMF", "GNMF", "SemiGNMF", "CNMF", "CF", "LCF")
            assert method.stop is inside and (method.restarts == 10) is inside
            assert method.readout == ROOT
    assert len(one.readings) == 1


def test_a_file_of_your_own_names_a_program(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'protocol = "gnmf-matlab"\ntitle = "t"\npaper = "p"\n[[data]]\nname = "digits"\n'
        'clusters = [2]\n[[methods]]\nname = "A"\nestimator = "NMF"\n'
    )
    assert load_protocol(str(path)).read().method("A").stop
    with pytest.raises(ValueError, match="matlab2"):
        load_protocol("cnmf/table1", "matlab2")


def test_sparse_samples_have_the_clusters_of_lloyd(task):
    X = sp.csr_array(np.vstack([task.sample.X] * 2)) * 1.0
    many = replace(task, k=12, params={"n_init": 3}, method=ComparedMethod("k", "kmeans"))
    many = replace(many, sample=replace(task.sample, X=X))
    lloyd = replace(many, params={"n_init": 3, "algorithm": "lloyd"})
    np.testing.assert_array_equal(fit(many).labels, fit(lloyd).labels)


def test_one_loop_with_momentum_carried_on_ends_as_low(task):
    """As NMFDC from the same start; V = AZ, and with one label a class it is that without any."""
    labels = task.sample.shown(Budget("b", per_class=3))
    params = {"smoothing": 0.5, "max_iter": 1500, "inner_iter": 10}
    loop = ComparedMethod("NMF-DC", "one loop", params, labels=True)
    found = fit(replace(task, y=labels, method=loop, params=params))
    V, X = np.asarray(found.embedding), np.asarray(task.sample.X)
    S = 0.5 * np.eye(3) + 0.5 / 3
    assert found.objective == pytest.approx(0.5 * np.sum((X - V @ S @ found.components) ** 2))
    for c in range(3):
        assert np.ptp(V[labels == c], axis=0).max() == 0
    settings = {"smoothing": 0.5, "inner_iter": 10, "solver": "nesterov", "max_iter": 150}
    plain = ComparedMethod("NMF-DC", "NMFDC", settings, labels=True, unit_basis=False)
    nested = fit(replace(task, y=labels, method=plain, params={**settings, "tol": 0.0}))
    # two ways into one valley, each nearly at its end
    assert found.objective == pytest.approx(nested.objective, rel=0.02)
    single = task.sample.shown(Budget("b", per_class=1))
    one, none = (fit(replace(task, y=y, method=loop, params=params)) for y in (single, None))
    assert one.objective == pytest.approx(none.objective, rel=0.02)


# Errors and verdicts -------------------------------------------------------------------------


def test_the_error_of_an_average_is_that_of_a_mean_of_means():
    rng = np.random.default_rng(0)
    a = {("d", k, run): float(v) for k in (2, 3) for run, v in enumerate(rng.normal(k, 2, 5))}
    b = dict.fromkeys(a, 0.0)
    rows = [[v for (_, kk, _), v in a.items() if kk == k] for k in (2, 3)]
    stat = paired_stat(a, b)
    assert stat.mean == pytest.approx(np.mean([np.mean(r) for r in rows]))
    parts = [np.var(r, ddof=1) / 5 for r in rows]
    assert stat.se == pytest.approx(np.sqrt(sum(parts)) / 2)
    assert math.isnan(paired_stat({("d", 2, 0): 1.0}, {("d", 2, 0): 0.0}).se)


def test_within_two_standard_errors_nothing_is_decided():
    assert decide(1.0, 0.4) == HOLDS and decide(-1.0, 0.4) == FAILS
    assert decide(1.0, 0.6) == decide(0.0, 0.0) == decide(5.0, math.nan) == UNDECIDED


def test_many_comparisons_fail_no_more_often_than_one():
    assert critical(1, 9) == CLEAR
    # 36 comparisons of ten runs: Student's 1 - 0.02275/36 quantile at 9 degrees of freedom
    assert critical(36, 9) == pytest.approx(stats.t.ppf(1 - stats.norm.sf(2) / 36, 9))
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(400):  # nothing differs: at two errors, uncorrected, most would fail
        rows = [rng.normal(size=10) for _ in range(36)]
        leads = [Stat(r.mean(), 1.0, 10, r.std(ddof=1) / np.sqrt(10)) for r in rows]
        failed += together(leads)[0] == FAILS
    assert failed < 400 * 0.0228 + 3 * np.sqrt(400 * 0.0228)


def test_a_sentence_of_several_holds_where_each_does():
    ahead, level, behind = (Stat(m, 1.0, 10, 0.5) for m in (3.0, 0.5, -4.0))
    assert together([ahead, ahead])[0] == HOLDS
    assert together([ahead, level])[0] == UNDECIDED
    assert together([ahead, behind]) == (FAILS, [HOLDS, FAILS])


@pytest.mark.parametrize("means", [[1.0], [1.0, 4.0], [-1.0], [3.0, -2.0, -0.5]])
def test_an_open_claim_says_when_it_is_decided(means):
    """With so many runs a row, of the same means and deviations, `together` decides as said."""

    def with_runs(n):
        return [Stat(m, 5.0, round(n), 5.0 / np.sqrt(n)) for m in means]

    assert together(with_runs(10))[0] == UNDECIDED
    found = outlook(with_runs(10))
    assert together(with_runs(found.runs + 1))[0] == found.state
    assert together(with_runs(found.runs - 2))[0] == UNDECIDED
    assert found.have == 10 and found.seen == pytest.approx(2.84 * 5.0 / np.sqrt(10))


def test_what_no_run_decides_is_said_and_a_level_pair_has_its_power():
    assert "not decide" in str(outlook([Stat(0.0, 0.0, 10, 0.0)]))
    assert outlook([Stat(1.0, math.nan, 1)]) is None
    assert str(outlook([Stat(0.1, 3.0, 10, 1.0)])) == "level: 10 runs a row would have shown 2.8"
    assert str(outlook([Stat(1.0, 3.0, 10, 1.0)])) == "at about 40 runs a row (10 here) it holds"


def _run(method, values, seconds=1.0, data="yale", run=0):
    cell = {
        "data": data,
        "k": 10,
        "run": run,
        "method": method,
        "variant": method,
        "budget_name": "none",
    }
    attempts = [{"objective": 1.0, "readouts": {KMEANS: {"all": {}, "unlabelled": {}}}}]
    history = {"step": 1, "values": values}
    found = {"history": history, "seconds": seconds, "n_iter": len(values), "shapes": {}}
    return {"cell": cell, "attempts": attempts, **found}


@pytest.mark.parametrize(("by", "state"), [(20, FAILS), (40, HOLDS)])
def test_convergence_is_a_share_of_the_fall(by, state):
    """Not of the value that is left: a curve may fall from 1.9 to 1."""
    protocol = load_protocol("gnmf/fig5")
    claim = {**protocol.claims[0], "by": by}
    curve = [1.0 + 0.9**i for i in range(1, 200)]
    summary = summarise(replace(protocol, claims=(claim,)), [_run("NMF", curve, data="coil20")])
    (verdict,) = judge(summary)
    assert verdict.measured == state and "%" in verdict.detail
    done = 100 * (curve[0] - curve[by - 1]) / (curve[0] - curve[-1])
    assert f"coil20 {done:.1f} %" in verdict.detail


def test_as_fast_is_judged_against_the_rival():
    protocol = load_protocol("cdnmf/fig5")
    protocol = replace(protocol, claims=protocol.claims[:1])
    fast, slow = ([1.0 + r**i for i in range(1, 400)] for r in (0.98, 0.99))
    for own, rival, state in ((fast, fast, HOLDS), (fast, slow, HOLDS), (slow, fast, FAILS)):
        runs = [_run("cdNMF-F", own, run=i) for i in range(3)]
        runs += [_run("NMF", rival, run=i) for i in range(3)]
        assert judge(summarise(protocol, runs))[0].measured == state


def test_speed_is_the_time_to_equal_closeness():
    protocol = load_protocol("nmfdc/time1")
    protocol = replace(protocol, claims=protocol.claims[:1])  # within 5 per cent
    few, many = ([1.0 + r**i for i in range(1, 200)] for r in (0.7, 0.95))
    runs = []
    for i in range(3):  # few iterations of a long run against many of a short one
        runs += [_run("NMF-DC", few, 4.0 + 0.1 * i, run=i), _run("CNMF", many, 2.0, run=i)]
    (verdict,) = judge(summarise(protocol, runs))
    assert verdict.measured == HOLDS
    at = [next(i for i, v in enumerate(c, 1) if v <= 1.05 * min(c)) for c in (few, many)]
    ms = [1e3 * s * n / len(few) for s, n in zip((4.1, 2.0), at, strict=True)]
    assert f"NMF-DC {ms[0]:.0f}, CNMF {ms[1]:.0f}" in verdict.detail


def test_an_answer_that_hangs_on_a_number_that_is_not_printed_is_none():
    protocol = load_protocol("gnmf/fig6")
    results = []
    for count, lead in ((50, -0.1), (1000, 0.2)):
        for method in ("NMF", "GNMF"):
            for run in range(3):
                result = _run(method, [1.0], data="coil20", run=run)
                result["cell"]["variant"] = f"{method}[max_iter={count}]"
                value = 0.5 + 0.001 * run * (method == "NMF") + lead * (method == "GNMF")
                results.append({**result, "shapes": {"sparseness_U": value}})
    (verdict,) = judge(summarise(protocol, results))
    assert verdict.measured == UNDECIDED
    assert "50: -0.101 ± 0.00058, 1000: +0.199 ± 0.00058" in verdict.detail
    (verdict,) = judge(summarise(protocol, results[6:]))
    assert verdict.measured == HOLDS


def test_sometimes_worse_is_the_opposite_of_always_better():
    protocol = load_protocol("lcf/fig5")
    claim = {**protocol.claims[-1], "sometimes": True}
    protocol = replace(protocol, claims=(claim,))
    worse = summarise(protocol, _results({"LCF": [80, 82, 81], "NMF": [90, 91, 92]}))
    better = summarise(protocol, _results({"NMF": [80, 82, 81], "LCF": [90, 91, 92]}))
    assert [judge(s)[0].measured for s in (worse, better)] == [HOLDS, FAILS]


def _results(values):
    """Results of lcf/fig5's two methods, a list of accuracies each."""
    for method, column in values.items():
        for run, ac in enumerate(column):
            cell = {"data": "synthetic:gaussians", "k": 3, "run": run, "method": method,
                    "variant": method, "budget_name": "none"}  # fmt: skip
            scored = {"all": {"ac": ac, "nmi": ac}, "unlabelled": {}}
            yield {"cell": cell, "attempts": [{"objective": 1.0, "readouts": {KMEANS: scored}}],
                   "shapes": {"distance": ac}, "seconds": 1.0}  # fmt: skip


@pytest.mark.parametrize(
    ("lcf", "nmf", "state"),
    [
        ([90, 91, 92], [80, 82, 81], HOLDS),
        ([80, 82, 81], [90, 91, 92], FAILS),
        ([80, 92, 81], [85, 80, 84], UNDECIDED),
        ([90], [80], UNDECIDED),
    ],
)
def test_claims_are_judged_by_paired_differences(lcf, nmf, state):
    summary = summarise(load_protocol("lcf/fig5"), _results({"LCF": lcf, "NMF": nmf}))
    verdict = next(v for v in judge(summary) if "clusters the points better" in v.text)
    assert verdict.measured == state


def test_only_budgets_that_print_states_are_counted():
    protocol = load_protocol("nmfdc/table2").read()
    assert [b.printed for b in protocol.budgets] == [True, False, False]
    results = []
    for budget, ac in (("10%", 70.0), ("5 per class", 95.0)):
        for run in range(3):
            cell = {"data": "orl", "k": 2, "run": run, "method": "NMF-DC", "variant": "NMF-DC",
                    "budget_name": budget}  # fmt: skip
            scored = {"all": {"ac": ac + run}, "unlabelled": {}}
            attempts = [{"objective": 1.0, "readouts": {KMEANS: scored}}]
            results.append({"cell": cell, "shapes": {}, "seconds": 1.0, "attempts": attempts})
    found = comparisons(summarise(protocol, results))
    printed = protocol.printed_value("ac", 2, "NMF-DC").mean
    assert [(c.budget, c.printed, c.stat.mean) for c in found] == [("10%", printed, 71.0)]
    assert all(not v.counted for v in judge(summarise(protocol, results)) if "5" in v.budget)


@pytest.mark.parametrize(("size", "shown"), [(10, 1), (11, 2), (30, 3), (20, 2)])
def test_a_share_of_labels_is_rounded_up(size, shown):
    assert Budget("10%", share=0.1).count(size) == shown


# Causes --------------------------------------------------------------------------------------


def _compared(reading, measured, se=0.5, printed=70.0):
    stat = Stat(measured, 1.0, 10, se)
    return Comparison("gnmf/table3", "ac", "NMF", "none", reading, printed, 0.5, stat)


def test_each_miss_has_a_cause_and_what_shows_it():
    far, back = _compared("main", 80.0), _compared("other", 71.0)
    cause = Cause(("table3",), ("NMF",), "theirs", "Said so.", reading="other")
    every = {"main": [far], "other": [back]}
    (said,) = misses(every, [far], (cause,))
    assert said.whose == "theirs" and said.text == 'Said so. [reading "other": 71.0 ± 0.5]'
    part = {"main": [far], "other": [_compared("other", 61.0, printed=60.0)]}
    (some,) = misses(part, [far], (cause,))
    assert "61.0 ± 0.5 over rows where print has 60.0" in some.text and some.whose == "open"
    (found,) = misses(every, [far], ())
    assert found.whose == "not printed" and "71.0" in found.text
    (noise,) = misses({}, [_compared("main", 74.0, se=3.0)], ())
    assert noise.whose == "noise"
    (unknown,) = misses({"main": [far]}, [far], ())
    assert unknown.whose == "open"
    assert misses({}, [_compared("main", 72.9)], ()) == []
    assert misses({}, [_compared("main", 80.0, se=math.nan)], ())[0].whose == "too few runs"


def test_a_cause_may_point_at_more_labels_or_another_column():
    far = replace(_compared("main", 60.0), method="CNMF", budget="10%")
    more, plain = replace(far, budget="2 per class"), replace(far, method="NMF", budget="none")
    every = {"main": [far, more, plain], "other": [replace(more, reading="other")]}
    labels = Cause(("table3",), ("CNMF",), "theirs", "More.", budget="2 per class")
    (miss,) = misses(every, [far], (labels,))
    assert miss.text == "More. [2 per class: 60.0 ± 0.5]" and miss.whose == "open"
    column = Cause(("table3",), ("CNMF",), "theirs", "As.", column="NMF")
    (miss,) = misses(every, [far], (column,))
    assert miss.text == "As. [NMF: 60.0 ± 0.5]"


def test_a_cause_is_shown_by_what_comes_back_or_by_an_identity():
    far, away = _compared("main", 80.0), _compared("other", 76.0)
    every = {"main": [far], "other": [away]}
    said = Cause(("table3",), ("NMF",), "theirs", "Said so.", reading="other")
    (not_shown,) = misses(every, [far], (said,))
    assert not_shown.whose == "open" and "76.0" in not_shown.text
    within_errors = {**every, "other": [_compared("other", 76.0, se=3.0)]}
    assert misses(within_errors, [far], (said,))[0].whose == "theirs"
    same = Cause(("table3",), ("NMF",), "theirs", "It is another.", identity=True)
    assert misses(every, [far], (same,))[0].whose == "open"
    (computed,) = misses(every, [far], (same,), identities=frozenset({"NMF"}))
    assert computed.whose == "theirs"
    # the second of two causes may be the one that shows
    assert misses(every, [far], (said, same), identities=frozenset({"NMF"}))[0].text == same.text


def test_noise_goes_before_a_declared_cause_and_a_quick_run_blames_nobody():
    noisy, back = _compared("main", 75.0, se=3.0), _compared("other", 70.5)
    said = Cause(("table3",), ("NMF",), "theirs", "Said so.", reading="other")
    every = {"main": [noisy], "other": [back]}
    assert misses(every, [noisy], (said,))[0].whose == "noise"
    far = _compared("main", 90.0)
    assert misses({**every, "main": [far]}, [far], (said,))[0].whose == "theirs"
    assert misses({**every, "main": [far]}, [far], (said,), quick=True)[0].whose == "too few runs"


# What is theirs ------------------------------------------------------------------------------


def test_printed_averages_that_one_clustering_has():
    values = single_clustering_values((10, 10))
    assert len(values) == 35
    assert [values[v] for v in (46.43, 79.96, 62.08)] == ["3 errors", "1 error", "2 errors"]
    printed = load_protocol("nmfdc/table3").printed
    hits = [c.method for c in printed if c.k == "2" and c.mean in values]
    assert hits == ["NMF", "GNMF", "CNMF", "CNMF-KL", "NMF-DC"]


def test_columns_that_are_equal_in_print():
    blocks = evidence(load_protocol("nmfdc/table3"), {})
    rows = [[t.lines[0][0] for t in row] for b in blocks if hasattr(b, "rows") for row in b.rows]
    assert ["CNMF = CNMF-KL", "6 of 9", "2, 4, 5, 8, 9, 10"] in rows


def test_pairs_of_metrics_that_no_one_set_of_runs_has():
    protocol = load_protocol("nmfdc/table3")
    only = replace(protocol, methods=(protocol.method("NMF"),))
    summaries = {}
    for accuracy in range(60, 72):  # readings whose averages lie on ARI = 2 AC - 90
        both = {"ac": accuracy, "ari": 2 * accuracy - 90}
        values = {("all", m): {("NMF", NO_LABELS): {("orl", 2, 0): v}} for m, v in both.items()}
        summaries[f"reading {accuracy}"] = Summary(only, [], values)
    blocks = evidence(protocol, summaries)
    grid = next(b for b in blocks if hasattr(b, "rows") and "printed less line" in b.header)
    rows = {row[0].lines[0][0]: [t.lines[0] for t in row] for row in grid.rows}
    assert rows["NMF"][3][0] == "67.0"  # 2 * 78.51 - 90
    assert rows["NMF"][4] == ("-21.8", "no")


def test_with_one_label_a_class_the_dual_constraints_are_one(monkeypatch):
    protocol = load_protocol("nmfdc/table2")
    digits = replace(protocol, data=(DataSpec("digits"),))
    texts = [b for b in evidence(digits, {}) if isinstance(b, str)]
    assert any("representations is 0 of the largest entry" in text for text in texts)


# Tables without runs -------------------------------------------------------------------------


def test_sizes_of_the_data_are_those_printed(dataset):
    dataset("yale"), dataset("orl")
    section = statistics(load_protocol("lcf/table1"), "lcf/table1", None)
    assert section.line == "6 of 6 numbers equal"


def test_the_printed_formula_of_the_index_is_the_librarys(tmp_path):
    section = contingency(load_protocol("nmfdc/table1"), "nmfdc/table1", str(tmp_path))
    assert section.line == "equal"
    assert ari_by_formula(np.array([[10, 0], [0, 10]])) == 1.0


# Order ---------------------------------------------------------------------------------------


def test_every_table_comes_before_more_of_any():
    protocols = [load_protocol(n) for n in ("gnmf/table4", "nmfdc/fig2", "lcf/fig5")]
    ordered = by_value(protocols, PartOfProtocol())
    assert len({c.table + c.slug for c in ordered}) == len(ordered)
    covered = next(i for i, c in enumerate(ordered) if c.run >= 2)
    for protocol in protocols:
        first = {c.slug for c in cells_of(protocol.read(), PartOfProtocol(runs=2))}
        assert first <= {c.slug for c in ordered[:covered]}


def test_no_cell_starts_that_would_not_end_in_time():
    ordered = by_value([load_protocol("lcf/fig5")], PartOfProtocol())
    assert list(until(ordered, float("-inf"))) == []
    assert list(until(ordered, float("inf"))) == ordered


def test_made_points_are_drawn_again_for_each_run():
    spec = DataSpec("synthetic:gaussians", "none", (3,))
    one, two = (draw("lcf/fig5", spec, 3, run).X for run in (0, 1))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(one, draw("lcf/fig5", spec, 3, 0).X)


def test_a_basis_vector_may_have_its_best_length():
    X, truth = np.array([[2.0, 0], [4, 0], [0, 5]]), np.array([0, 0, 1])
    U = np.array([[1.0, 0], [1, 1]])
    near = min(np.linalg.norm(t * U[1] - [0, 5]) for t in np.linspace(0, 5, 5001))
    other = min(np.linalg.norm(t * U[1] - [3, 0]) for t in np.linspace(0, 5, 5001))
    expected = (0 + min(near, other)) / 2
    assert distance_to_centres(U, X, truth, rays=True) == pytest.approx(expected, abs=1e-6)
    assert distance_to_centres(U, X, truth) > expected


def test_shares_on_the_part_of_the_own_class():
    V = np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 0.0], [1.0, 1.5]])
    truth, shown = np.array([0, 0, 1, 1]), np.array([0, -1, 1, -1])
    found = own_shares(V, truth, shown)
    assert found["own_labelled"] == 1.0  # parts 1 and 0 are those of the classes 0 and 1
    np.testing.assert_allclose(found["own_V"], (0.75 + 0.4) / 2)
    assert found["largest"] == 50.0


def _one_method(table, columns, reading=None):
    """A summary of a table with one accuracy for each (method, K, run)."""
    protocol = load_protocol(table).read(reading)
    results = []
    for method, values in columns.items():
        for (k, run), ac in values.items():
            cell = {"data": "orl", "k": k, "run": run, "method": method, "variant": method,
                    "budget_name": NO_LABELS}  # fmt: skip
            scored = {"all": {"ac": ac}, "unlabelled": {}}
            attempts = [{"objective": 1.0, "readouts": {KMEANS: scored}}]
            results.append({"cell": cell, "shapes": {}, "seconds": 1.0, "attempts": attempts})
    return summarise(protocol, results)


def test_a_pair_of_methods_is_compared_run_by_run(rng):
    nmf = {(k, run): 60.0 + 10 * rng.random() for k in (2, 3) for run in range(5)}
    noise = {point: rng.random() for point in nmf}
    summary = _one_method("lcf/table3", {"NMF": nmf, "LCF": {p: v + 2 + noise[p]
                                                            for p, v in nmf.items()}})  # fmt: skip
    grid = pairs_grid(summary, "ac", NO_LABELS)
    assert grid.header == ["minus", "LCF"] and [row[0].lines[0][0] for row in grid.rows] == ["NMF"]
    gaps = np.array([[-2 - noise[k, run] for run in range(5)] for k in (2, 3)])
    error = np.sqrt((gaps.var(axis=1, ddof=1) / 5).sum()) / 2
    measured, printed = grid.rows[0][1].lines
    assert measured == (f"{gaps.mean():+.1f} ± {error:.1f}", "yes")
    cells = {m: [summary.protocol.printed_value("ac", k, m).mean for k in (2, 3)]
             for m in ("NMF", "LCF")}  # fmt: skip
    assert float(printed[0].split()[-1]) == round(np.mean(cells["NMF"]) - np.mean(cells["LCF"]), 1)
    assert pairs_grid(_one_method("lcf/table3", {"NMF": nmf}), "ac", NO_LABELS) is None


def test_a_variant_without_runs_shows_that():
    readings = {r.name: r for r in load_protocol("cnmf/table1").readings}
    values = {(k, run): 70.0 + k + run for k in (2, 3) for run in range(3)}
    main = _one_method("cnmf/table1", {"NMF": values, "CNMF": values})
    plain = _one_method("cnmf/table1", {}, readings["gnmf-matlab, plain NMF"])
    grid = variants_grid({"gnmf-matlab": main, "plain": plain}, "ac", "2 per class")
    by_name = {row[0].lines[0][0]: [t.lines[0][0] for t in row[1:]] for row in grid.rows}
    columns = dict(zip(grid.header[1:], by_name["plain"], strict=True))
    assert columns["NMF"] == "0 runs" and columns["CNMF"] == "as main"
    assert columns["runs"] == "0" and "contradicts" in columns["counts"]
    assert dict(zip(grid.header[1:], by_name["gnmf-matlab (main)"], strict=True))["runs"] == "3"


def test_a_printed_number_is_judged_once():
    total = 0
    for name in (n for n in names() if "/table" in n):
        protocol = load_protocol(name)
        if protocol.kind == "figure" or not protocol.comparable:
            continue
        if not all(d.name != "caltech101" for d in protocol.data):
            continue
        for metric in (m for m in protocol.metrics if m != "seconds"):
            for method in protocol.methods:
                source = protocol.copied_from(metric, method.name)
                printed = protocol.printed_value(metric, "avg", method.name)
                total += printed is not None and not source
                if source:
                    alias = {"SemiGNMF": "sGNMF", "CNMF": "CNMF-F"}
                    first = load_protocol(source)
                    names_there = {m.name for m in first.methods}
                    there = method.name if method.name in names_there else alias[method.name]
                    for k in range(2, 11):
                        one = protocol.printed_value(metric, k, method.name).mean
                        other = first.printed_value(metric, k, there).mean
                        assert abs(one - other) < 0.051 or (one, other) == (62.00, 62.22)  # digits
    assert total == 122


def test_claims_about_other_data_are_not_counted_and_open_settings_must_agree():
    claims = [c for c in load_protocol("nmfdc/table2").claims if c.get("also")]
    assert claims
    values = {(k, run): 70.0 + run for k in (2, 3) for run in range(3)}
    better = {p: v + 9 + 0.1 * p[1] for p, v in values.items()}
    claim = {"text": "NMF-DC is ahead", "type": "beats", "method": "NMF-DC", "over": ["NMF"],
             "metric": "ac", "also": ["δ"]}  # fmt: skip

    def found(main, other, **kw):
        two = [_one_method("nmfdc/table2", {"NMF": values, "NMF-DC": c}) for c in (main, other)]
        for summary in two:
            summary.protocol = replace(summary.protocol, claims=(claim,), budgets=(), **kw)
        return judge(two[0], {"δ": two[1]})[0]

    assert found(better, better).measured == HOLDS and found(better, better).counted
    assert found(better, {p: 2 * v - better[p] for p, v in values.items()}).measured == UNDECIDED
    assert found(better, {}).measured == HOLDS and "0 runs" in found(better, {}).detail
    assert not found(better, better, comparable=False).counted
