"""Tests of the benchmark programs with simulated packages that take given times."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.importorskip("benchmarks.race", reason="the benchmarks are not in this copy")

from benchmarks import cases, clock, graphs, peers, plots, race, report, rows, run, store, threads
from benchmarks.objective import frobenius, kullback_leibler
from benchmarks.settings import SIZES
from benchmarks.workers import ContestantError, Worker, save_problem


class Fake:
    """Simulated package whose objective is rate**iterations, at `cost` seconds per iteration."""

    def __init__(self, name, rate, cost, *, drift=0.0, stops=math.inf, breaks=False):
        self.name, self.rate, self.cost = name, rate, cost
        self.drift, self.stops, self.breaks = drift, stops, breaks
        self.calls = []

    def run(self, iterations, *, evaluate=False, timeout=3600):
        if self.breaks:
            raise ContestantError("no wheel for this machine")
        n = min(iterations, self.stops)
        self.calls.append(n)
        history = [self.rate**i for i in range(1, n + 1)]
        value = history[-1] * (1 + self.drift) if evaluate else None
        return race.Run(self.cost * n, n, history, value)


def hold(ours, *others, **options):
    settings = {"iterations": 200, "runs": 3, "patience": 1e6, "limit": 1e6} | options
    return race.hold(ours, others, **settings)


def test_ratio_is_their_time_over_ours_at_their_objective():
    ours, peer = Fake("ours", 0.9, 2.0), Fake("peer", 0.99, 1.0)
    entry = hold(ours, peer)["entries"][0]
    m = next(m for m in range(1, 200) if 0.9**m <= 0.99**200)
    assert entry["ours_iterations"] == m
    assert entry["target"] == pytest.approx(0.99**200)
    assert entry["ratio"] == pytest.approx(200 * 1.0 / (2.0 * m))
    assert len(entry["theirs"]) == len(entry["ours"]) == 3


def test_short_runs_are_repeated_more_often():
    entry = hold(Fake("ours", 0.9, 1e-5), Fake("peer", 0.99, 1e-5))["entries"][0]
    assert len(entry["theirs"]) == 9


def test_the_benchmarks_own_value_decides():
    # This package claims a lower objective than its factors have, so it must run for longer.
    claims = hold(Fake("ours", 0.9, 1.0, drift=0.2), Fake("peer", 0.99, 1.0))["entries"][0]
    m = claims["ours_iterations"]
    assert 1.2 * 0.9**m <= 0.99**200 < 1.2 * 0.9 ** (m - 1)


def test_a_peer_that_is_never_reached_is_said_so():
    result = hold(Fake("ours", 0.9, 1.0, stops=5), Fake("peer", 0.5, 1.0))
    assert result["entries"][0]["ratio"] is None
    assert "ours ends at 0.59049 after 5" in result["entries"][0]["status"]
    assert race.not_reached(result) == ["peer"] and race.not_reached(result, "other") == []


def test_a_peer_that_breaks_is_reported_and_the_others_go_on():
    result = hold(Fake("ours", 0.9, 1.0), Fake("a", 0.9, 1.0, breaks=True), Fake("b", 0.99, 1.0))
    broken, fine = result["entries"]
    assert "no wheel" in broken["status"] and fine["ratio"] > 1
    assert race.best_ratio(result) == (fine["ratio"], "b")


def test_a_peer_over_the_limit_is_left_out_unless_it_must_run():
    slow = Fake("slow", 0.99, 10.0)
    left_out = hold(Fake("ours", 0.9, 1.0), slow, limit=100)["entries"][0]
    assert left_out["ratio"] is None and "2000 s" in left_out["status"]
    assert max(slow.calls) < 10
    ran = hold(Fake("ours", 0.9, 1.0), slow, limit=100, patience=1500, must=lambda name: True)
    assert len(ran["entries"][0]["theirs"]) == 2


def test_twenty_times_slower_on_a_small_case_is_left_out_of_the_large():
    result = hold(Fake("ours", 0.9, 1.0), Fake("a", 0.99, 3.0), Fake("b", 0.99, 0.5))
    small = {"small": True, "loss": "frobenius", "case": "orl", **result}
    found = race.too_slow([small], "frobenius")
    assert set(found) == {"a"} and "on orl" in found["a"]
    assert race.too_slow([{**small, "small": False}], "frobenius") == {}
    assert race.too_slow([small], "kullback-leibler") == {}


def test_turns_alternate():
    order = []

    class Noted(Fake):
        def run(self, iterations, **options):
            order.append(self.name)
            return super().run(iterations, **options)

    hold(Noted("ours", 0.9, 1.0), Noted("peer", 0.99, 1.0), runs=4)
    assert "ours ours peer peer ours ours peer" in " ".join(order)


# -- objectives, computed from the factors -------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_objectives_equal_the_naive_formulas(rng, monkeypatch, dtype, as_sparse):
    # With blocks this small, the objective needs several of them.
    monkeypatch.setattr("benchmarks.objective._BLOCK", 40)
    X = (rng.random((9, 13)) * (rng.random((9, 13)) < 0.4)).astype(dtype)
    W, H = rng.random((9, 3)).astype(dtype), rng.random((3, 13)).astype(dtype)
    Y, Z = W.astype(float) @ H.astype(float), X.astype(float)
    divergence = sum(
        (x * math.log(x / y) if x > 0 else 0) - x + y for x, y in zip(Z.ravel(), Y.ravel())
    )
    given = sp.csr_array(X) if as_sparse else X
    assert frobenius(given, W, H) == pytest.approx(0.5 * ((Z - Y) ** 2).sum(), rel=1e-12)
    assert kullback_leibler(given, W, H) == pytest.approx(divergence, rel=1e-12)


# -- benchmark data ------------------------------------------------------------------------------


def test_made_data_has_the_asked_for_shape_and_filling():
    X = cases.made_sparse(400, 300, 5, 0.05)
    assert X.shape == (400, 300) and X.dtype == np.float32
    assert 0.02 < X.nnz / (400 * 300) < 0.07
    D = cases.made_dense(30, 20, 3)
    assert D.shape == (30, 20) and D.dtype == np.float32 and D.min() >= 0
    W, H = cases.start(D, 3)
    assert W.dtype == H.dtype == np.float32 and min(W.min(), H.min()) > 0


def test_absent_data_is_a_reason_not_an_error(monkeypatch, tmp_path):
    from benchmarks.against_peers import run_case

    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = next(case for case in cases.CASES if case.name == "tdt2")
    result = run_case(case, SIZES["quick"], None, [])
    assert "was not found" in result["skipped"]
    assert "tdt2" in report.goals([result])


# -- measures, stored results, and the page ------------------------------------------------------


def test_parts_are_chosen_in_order_and_checked():
    assert run.chosen(["tdt2", "orl", "memory"], SIZES["bench"]) == ["orl", "tdt2", "memory"]
    assert "sparse-200k" not in run.chosen(None, SIZES["bench"])
    assert {"sparse-200k", "scaling"} <= set(run.chosen(None, SIZES["full"]))
    assert "scaling" not in run.chosen(None, SIZES["bench"])
    with pytest.raises(SystemExit, match="nothing"):
        run.chosen(["nothing"], SIZES["bench"])


def test_every_measure_exists():
    for module, function, _ in run.MEASURES.values():
        assert callable(getattr(__import__(f"benchmarks.{module}", fromlist=["x"]), function))


def test_store_resumes_only_what_is_whole_and_of_the_same_code(tmp_path):
    kept = store.Store(tmp_path, {"code": "a"})
    kept.save("orl", {"ratio": np.float64(2), "none": math.inf})
    assert kept.load("orl") == {"ratio": 2.0, "none": None}
    assert [path.name for path in tmp_path.iterdir()] == ["orl.json"]
    assert store.Store(tmp_path, {"code": "b"}).load("orl") is None
    kept.path("coil20").write_text('{"key": ')
    assert kept.load("coil20") is None


def fake_summary():
    raced = hold(Fake("ours", 0.9, 1.0), Fake("peer", 0.99, 1.0), Fake("x", 1, 1, breaks=True))
    best = race.best_ratio(raced)
    raced |= {"kind": "race", "case": "orl", "title": "ORL | k=40", "goal": 1.5, "seen": best[0]}
    raced |= {"seen_against": best[1], "reached": True, "loss": "frobenius", "small": True}
    slopes = {"name": "n", "sizes": [1, 2, 4], "seconds": [1.0, 2.0, 4.0], "slope": 1.0}
    lines = [rows.row("slope", 1.0, 1.1, at_most=True, unit=""), rows.failed("b", "why", 3)]
    parts = {"orl": raced, "scaling": {"kind": "scaling", "series": [slopes], "rows": lines}}
    machine = {"processor": "p", "cores": 2, "memory_GiB": 8, "system": "s", "threads": "2"}
    machine["date"] = "2020-01-01"
    return {
        "size": "bench",
        "runs": 3,
        "machine": machine,
        "versions": {"numpy": "2"},
        "parts": parts,
    }


def test_page_json_and_plots_from_one_summary(tmp_path):
    summary = fake_summary()
    summary["plots"] = plots.draw(summary["parts"], tmp_path / "plots")
    assert "Before and after" not in report.markdown(summary)
    slower = {"orl": {**summary["parts"]["orl"], "seen": 1.25}, "gone": summary["parts"]["scaling"]}
    page = report.markdown({**summary, "before": slower})
    after = report.number(summary["parts"]["orl"]["seen"], "x")
    assert f"| ORL / k=40 | 1.25x | {after} |" in page
    assert "| slope | 1.00 | 1.00 |" in page
    assert "| ORL / k=40 | ≥ 1.5x |" in page and "no wheel for this machine" in page
    assert "failed: why" in page and "| slope | ≤ 1.1 | 1.00 | yes |" in page
    assert all((tmp_path / path).is_file() for path in summary["plots"].values())
    store.write_json(tmp_path / "bench.json", summary)
    assert json.loads((tmp_path / "bench.json").read_text())["parts"]["orl"]["reached"] is True


def test_resume_runs_only_the_missing_part(monkeypatch, tmp_path, capsys):
    ran = []

    def part(name, settings, python, done):
        ran.append(name)
        if name == "import" and ran.count("import") == 1:
            raise RuntimeError("interrupted")
        return {"kind": "rows", "rows": [rows.row(name, 1.0, 1.0)]}

    monkeypatch.setattr(run, "run_part", part)
    for variable in run.set_threads.__globals__["THREAD_VARIABLES"]:
        monkeypatch.setenv(variable, "1")
    command = ["--cases", "memory", "import", "--no-peers", "--resume", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="RuntimeError: interrupted"):
        run.main(command)
    run.main(command)
    assert ran == ["memory", "import", "import"]
    assert (
        "memory" in (tmp_path / "bench.md").read_text() and "done before" in capsys.readouterr().out
    )


# -- other functions -----------------------------------------------------------------------------


def test_peers_are_read_from_their_file():
    assert peers.groups("# c\na b # d\n\nno-deps e==1\n") == [(["a", "b"], True), (["e==1"], False)]
    named = peers.REQUIREMENTS.read_text()
    assert "torch==2.13.0" in [w for words, _ in peers.groups(named) for w in words]


def test_loop_clock_counts_iterations_and_leaves_no_trace(rng):
    import partwise
    from partwise.solvers import loop

    before = loop.alternate
    X = rng.random((20, 10))
    spent, model = clock.timed_fit(partwise.NMF(3, tol=0, max_iter=7, random_state=0), X)
    assert spent.iterations == 7 == model.n_iter_ and spent.seconds > 0
    assert loop.alternate is before


def test_neighbours_are_compared_by_distance():
    ours, theirs = np.array([[1.0, 2.0]]), np.array([[1.0, 2.5]])
    difference, shared = graphs.compare(ours, theirs, np.array([[3, 4]]), np.array([[4, 5]]))
    assert difference == 0.25 and shared == 0.5


def test_worker_protocol(tmp_path, rng):
    X = sp.csr_array(np.ceil(4 * rng.random((12, 9))))
    W, H = cases.start(X, 2)
    save_problem(tmp_path / "problem.npz", X, W, H)
    with Worker(sys.executable) as worker:
        assert worker.ask("data", path=str(tmp_path / "problem.npz"))["shape"] == [12, 9]
        request = {"method": "mu", "loss": "frobenius", "iterations": 3}
        factors = str(tmp_path / "factors.npz")
        reply = worker.ask("fit", package="scikit-learn", factors=factors, **request)
        assert reply["iterations"] == 3
        with np.load(factors) as file:
            theirs = frobenius(X, file["W"], file["H"])
        assert theirs < frobenius(X, W, H)
        # Partwise takes the same update from the same start.
        ours = worker.ask("fit", package="partwise", **request)
        assert ours["history"][-1] == pytest.approx(theirs, rel=1e-9)
        with pytest.raises(ContestantError, match="KeyError"):
            worker.ask("fit", package="nobody", **request)
    ended = pytest.raises(ContestantError, match="ended")
    with Worker(sys.executable, script=tmp_path / "absent.py") as worker, ended:
        worker.ask("versions", names=[])


# -- time against the number of threads --------------------------------------------------------


class Answering:
    """Simulated worker whose fits take a tenth of a second plus a time per iteration."""

    def __init__(self, each):
        self.each, self.asked = each, []

    def ask(self, do, **order):
        self.asked.append(order["iterations"])
        return {"seconds": 0.1 + self.each * order["iterations"]}


def test_a_long_fit_is_extrapolated_from_two_short_ones():
    row = threads.Row("r", "r", "r", 3, 200, 2.0)
    slow = Answering(0.05)
    assert threads.theirs_takes(slow, row, None) == pytest.approx(10.1)
    assert slow.asked == [1, 40]
    quick = Answering(0.001)
    assert threads.theirs_takes(quick, row, 0.3) == pytest.approx(0.3)
    assert quick.asked == [200]


def test_iterations_to_a_target():
    assert threads.steps_to([5.0, 3.0, 2.0], 3.0) == 2
    assert threads.steps_to([5.0, 3.0, 2.0], 1.0) is None


class Fitting:
    """Simulated worker with the history 10/n, whose fit ends at half of the last value."""

    def ask(self, do, *, iterations, **order):
        history = [10 / n for n in range(1, iterations + 1)]
        return {"history": history, "objective": 0.5 * history[-1]}


def test_the_end_of_a_fit_counts():
    assert threads.least_steps(Fitting(), {}, 1.0) == 5
    assert threads.least_steps(Fitting(), {}, 10 / 60) == 30
    assert threads.least_steps(Fitting(), {}, 20.0) == 1
    assert threads.least_steps(Fitting(), {}, 0.0) is None
    assert threads.least_steps(Fitting(), {}, 1.0, 6) == 6, "a guess that holds"
    assert threads.least_steps(Fitting(), {}, 1.0, 4) == 5


def test_a_ratio_is_the_median_over_seeds():
    assert threads.ratio({"scikit-learn": 6.0, "ours": 2.0}) == 3
    assert threads.ratio({"scikit-learn": 6.0, "ours": 2.0, "ratios": [2.0, 9.0, 4.0]}) == 4
    row = {"steps": [5, 11]}
    times = {"ours": 2.0, "by_seed": {"ours": [1.0, 3.0]}, "one": {"ours": 1.0}}
    assert threads.iteration(row, times) == pytest.approx((0.2, 0.8))


def test_thread_counts_on_the_command_line():
    assert run.parse(["--threads", "1,2,16"]).threads == [1, 2, 16]
    assert run.parse(["--threads", "3"]).threads == [3]
    for wrong in ("0", "a", "1,,2"):
        with pytest.raises(SystemExit):
            run.parse(["--threads", wrong])


@pytest.mark.long
def test_a_page_a_processor(tmp_path, monkeypatch):
    X = np.random.default_rng(0).random((60, 40))
    row = threads.Row("tiny", "tiny data", "tiny", 3, 4, 1e9)
    monkeypatch.setattr(threads, "ROWS", [row])
    monkeypatch.setattr(threads, "make", lambda data: X)
    found = threads.run([1, 2], tmp_path, runs=1, seeds=2)
    (page,), (numbers,), (_,) = (
        list(tmp_path.glob(f"threads-*.{s}")) for s in ("md", "json", "svg")
    )
    stored = json.loads(numbers.read_text())
    entry = stored["rows"]["tiny"]
    assert len(entry["steps"]) == 2 and set(entry["times"]) == {"1", "2"}
    times = found["rows"]["tiny"]["times"]["2"]
    assert times["ours"] > 0 and len(times["ratios"]) == 2 and min(times["limit"].values()) > 0
    known = {what: entry[what] for what in ("targets", "steps")}
    assert threads.known_targets(tmp_path) == {"tiny": known}
    again = threads.run([1, 2], tmp_path, runs=1, seeds=2, resume=True)
    assert again["rows"] == stored["rows"], "what is there is kept"
    text = page.read_text()
    assert "| tiny data |" in text and "**" in text, "a row below its goal is bold"
    assert stored["machine"]["processor"] in text


def test_the_page_of_stages_has_a_table_for_each_row():
    from benchmarks import stages

    trees = {"before": {"checks": 0.002, "whole": 0.01}, "now": {"checks": 0.001, "whole": 0.008}}
    page = stages.markdown({"A, k=2": trees}, "a machine")
    assert "## A, k=2" in page and "| ms | before | now |" in page
    assert "| checks | 2.0 | 1.0 |" in page and "| whole | 10.0 | 8.0 |" in page
    assert "| iterations | 0.0 | 0.0 |" in page
