"""Tests of the runner of the papers' tables: resuming, processes, full disks, output.

A small table with stand-in methods replaces the tables of the papers.
"""

from __future__ import annotations

import errno
import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import typer
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from partwise.apps.papers import results_page, runner
from partwise.apps.papers import store as store_module
from partwise.apps.papers.command import reproduce as command
from partwise.apps.papers.document import Section, to_markdown, to_text
from partwise.apps.papers.document import table as grid
from partwise.apps.papers.protocol import load_protocol
from partwise.apps.papers.representations import FitTask, fit, fit_estimator
from partwise.apps.papers.sampling import draw
from partwise.apps.papers.store import Store
from partwise.apps.papers.summary import pick
from partwise.apps.papers.trials import Selection, cells, run_cell

PROTOCOL = """
title = "A stand-in table"
paper = "nobody"
metrics = ["ac", "nmi"]
runs = { printed = 2, default = 2 }
quick = { clusters = [2], runs = 1 }
kmeans = 3

[[data]]
name = "digits"
clusters = [2, 3]

[[budgets]]
name = "2 per class"
per_class = 2

[[methods]]
name = "NMF"
estimator = "sklearn.decomposition:NMF"
params = { solver = "mu", max_iter = 20, tol = 0.0 }

[[methods]]
name = "Kmeans"
estimator = "kmeans"
params = { n_init = 1 }
subruns = 3

[[methods]]
name = "CNMF"
estimator = "CNMF"
params = { max_iter = 20 }
start = "seed"
labels = true

[[methods]]
name = "Grid"
estimator = "sklearn.decomposition:NMF"
params = { solver = "mu", tol = 0.0 }
grid = { max_iter = [5, 10] }

[[claims]]
text = "NMF beats Kmeans"
type = "beats"
method = "NMF"
over = ["Kmeans"]
metric = "ac"
every_k = false
"""
CSV = """metric,k,method,mean,sd
ac,2,NMF,99.0,1.0
ac,3,NMF,95.0,2.0
ac,avg,NMF,97.0,1.5
ac,2,Kmeans,90.0,
ac,3,Kmeans,80.0,
ac,avg,Kmeans,85.0,
"""
RUN = (
    "import sys; from partwise.apps.papers.runner import reproduce; "
    "reproduce(sys.argv[1], sys.argv[2], jobs=int(sys.argv[3]))"
)
CHANGING = ("seconds", "cpu_seconds", "versions")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PROTOCOL)
    path.with_suffix(".csv").write_text(CSV)
    return str(path)


def contents(folder):
    """Return all stored results of a run, without their running times."""
    found = {}
    for path in sorted((folder / "cells").rglob("*.json")):
        result = json.loads(path.read_text())
        found[path.name] = {k: v for k, v in result.items() if k not in CHANGING}
    return found


def _accuracies(result, attempt=0):
    return {name: r["all"]["ac"] for name, r in result["attempts"][attempt]["readouts"].items()}


def one_thread(table, out):
    """Run a table in this process, because starting Python takes longer than the runs."""
    with threadpool_limits(1):
        runner.reproduce(table, out, jobs=1)


def start(table, out, jobs):
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", RUN, table, str(out), str(jobs)], env=env)


def test_runs_stores_and_does_nothing_twice(table, tmp_path):
    outcome = runner.reproduce(table, tmp_path / "out", jobs=1)
    assert outcome.ran == len(outcome.wanted) == 2 * 2 * 5 and not outcome.failed
    assert not outcome.skipped
    result = next(iter(contents(tmp_path / "out").values()))
    assert {"cell", "attempts", "shapes", "objective", "n_iter"} <= set(result)
    assert {"seed", "params", "method", "fingerprint"} <= set(result["cell"])
    again = runner.reproduce(table, tmp_path / "out", jobs=1)
    assert (again.ran, again.found) == (0, 20)


def test_a_cell_can_be_run_again_alone(table, tmp_path):
    cell = list(cells(load_protocol(table), Selection()))[3]
    one, two = run_cell(cell), run_cell(cell)
    assert one["attempts"] == two["attempts"] and one["shapes"] == two["shapes"]


def test_more_processes_give_the_same(table, tmp_path):
    selection = Selection(quick=True)
    for jobs in (1, 2):
        runner.reproduce(table, tmp_path / str(jobs), selection=selection, jobs=jobs)
    one, two = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert one.keys() == two.keys()
    for name in one:
        # One thread and two threads may add in another order, which changes the last digits of an
        # objective.
        accuracies = [_accuracies(found[name]) for found in (one, two)]
        assert accuracies[0] == pytest.approx(accuracies[1], abs=0.5)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the results of a process that is never interrupted."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "mine.toml").write_text(PROTOCOL)
    (folder / "mine.csv").write_text(CSV)
    one_thread(str(folder / "mine.toml"), folder / "out")
    return contents(folder / "out")


@pytest.mark.skipif(os.name == "nt", reason="the test uses SIGKILL")
@pytest.mark.parametrize(
    "jobs, kills",
    [(1, (8,)), pytest.param(1, (4, 8), marks=pytest.mark.long),
     pytest.param(2, (4, 8), marks=pytest.mark.long)],
)  # fmt: skip
def test_killed_and_started_again_equals_undisturbed(table, tmp_path, undisturbed, jobs, kills):
    disturbed = tmp_path / "disturbed"
    for wanted in kills:  # the process is killed after these numbers of runs
        process = start(table, disturbed, jobs)
        until = time.monotonic() + 120
        while len(list((disturbed / "cells").rglob("*.json"))) < wanted:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = contents(disturbed)
    assert 8 <= len(before) < 20
    if jobs == 1:
        one_thread(table, disturbed)
    else:
        assert start(table, disturbed, jobs).wait() == 0
    after = contents(disturbed)
    assert before.items() <= after.items()
    assert after == undisturbed and len(after) == 20


def test_two_processes_on_one_folder(table, tmp_path, undisturbed):
    shared = tmp_path / "shared"
    both = [start(table, shared, 1) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert contents(shared) == undisturbed
    assert not list(shared.rglob("*.part"))


def test_a_full_disk_loses_no_finished_cell(table, tmp_path, monkeypatch):
    write, written = store_module.write_whole, []

    def fills_up(path, *args, **kwargs):
        if len(written) == 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        return write(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_whole", fills_up)
        with pytest.raises(OSError, match="No space"):
            runner.reproduce(table, tmp_path / "out", jobs=1)
    assert len(contents(tmp_path / "out")) == 7
    assert runner.reproduce(table, tmp_path / "out", jobs=1).ran == 13


def test_a_changed_protocol_does_not_take_old_results(table, tmp_path):
    selection = Selection(quick=True, methods=("NMF",))
    assert runner.reproduce(table, tmp_path / "out", selection=selection, jobs=1).ran == 1
    load_protocol.cache_clear()
    with open(table, encoding="utf-8") as handle:
        text = handle.read()
    with open(table, "w", encoding="utf-8") as handle:
        handle.write(text.replace("max_iter = 20", "max_iter = 21"))
    assert runner.reproduce(table, tmp_path / "out", selection=selection, jobs=1).ran == 1


def test_a_method_that_is_not_there(table, tmp_path):
    with open(table, "a", encoding="utf-8") as handle:
        handle.write('\n[[methods]]\nname = "New"\nestimator = "NotYet"\n')
    outcome = runner.reproduce(table, tmp_path / "out", selection=Selection(quick=True), jobs=1)
    assert "NotYet is not available" in outcome.skipped["New"] and outcome.ran == 5
    with pytest.raises(ImportError, match="NotYet"):
        runner.reproduce(table, tmp_path / "out", selection=Selection(methods=("New",)))
    with pytest.raises(ValueError, match="'Other'"):
        runner.reproduce(table, tmp_path / "out", selection=Selection(methods=("Other",)))


def test_data_that_is_not_there(tmp_path):
    name = "cdnmf/table2"
    outcome = runner.reproduce(name, tmp_path, data_home=str(tmp_path))
    assert outcome.wanted == [] and "caltech101" in outcome.skipped
    told = results_page.write_one(name, Store(tmp_path), data_home=str(tmp_path))
    # Printed numbers are shown even without a measurement.
    assert "59.27" in to_markdown(told.section)


def test_a_failing_method_leaves_the_others(table, tmp_path):
    with open(table, "a", encoding="utf-8") as handle:
        handle.write(
            '\n[[methods]]\nname = "Bad"\nestimator = "sklearn.decomposition:NMF"\n'
            'params = { solver = "no such" }\n'
        )
    outcome = runner.reproduce(table, tmp_path / "out", selection=Selection(quick=True), jobs=1)
    assert outcome.ran == 5 and len(outcome.failed) == 1
    assert "InvalidParameterError" in next(iter(outcome.failed.values()))


class Balanced(html.parser.HTMLParser):
    """Parser that checks that every HTML element is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.sources = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.sources += [value for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _invoke(*arguments, **settings):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments), **settings)


def test_output_of_a_table(table, tmp_path):
    out = tmp_path / "out"
    done = _invoke(table, "--out", str(out), "--jobs", "1")
    assert done.exit_code == 0, done.output
    folder = out / "own" / "mine"
    text = (folder / "table.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| NMF |"))
    cells_ = [c.strip() for c in row.strip("|").split("|")]
    assert cells_[1] == "97.0"  # the printed number
    measured, difference = float(cells_[2].split()[0]), float(cells_[3].split()[0])
    assert difference == pytest.approx(measured - 97.0, abs=0.11)
    assert cells_[4] == ("yes" if abs(difference) <= 3 else "no")
    assert re.match(r"\d+\.\d ± \d+\.\d$", cells_[2])  # the measured number with its standard error
    assert "Grid†" in text and "max_iter = 10 was chosen on the answer" in text
    assert re.search(r"NMF beats Kmeans \| holds \| (holds|fails|undecided)", text)
    check_files(out, folder)
    line = next(line for line in done.output.splitlines() if line.startswith("NMF "))
    assert line.split()[1] == "97.0" and cells_[2].split()[0] in line
    assert "NMF beats Kmeans" in done.output


def check_files(out, folder):
    """Check the single runs and the pages of one table."""
    text = (folder / "table.md").read_text()
    assert "99.0 ± 1.0" in text and "{" not in text
    lines = (folder / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + 20 and "unlabelled_ac" in lines[0]
    # For one requested table the command writes one page, and also prints its numbers.
    assert not (out / "index.html").exists()
    parser = Balanced()
    parser.feed((folder / "table.html").read_text())
    assert parser.open == []
    assert all(s.startswith(("#", "data:")) for s in parser.sources)  # the page loads no other file


def test_a_page_is_made_of_a_folder_without_running(table, tmp_path):
    out = tmp_path / "out"
    runner.reproduce(table, out, selection=Selection(quick=True), jobs=1)
    before = contents(out)
    done = _invoke(table, "--store", str(out))
    assert done.exit_code == 0 and contents(out) == before
    assert "Quick:" in done.output
    page_ = (out / "own" / "mine" / "table.html").read_text()
    told = json.loads(_invoke(table, "--store", str(out), "--json").output)
    assert told[0]["averages"][0]["measured"] > 0 and told[0]["claims"]
    # The page states at the top that runs are missing.
    assert page_.index("Quick:") < page_.index("Accuracy")
    assert "too few runs" in page_  # one run has no standard error, so nothing is judged by it


def test_several_tables_make_one_page(tmp_path):
    told = [
        results_page.write_one(n, Store(tmp_path))
        for n in ("lcf/table1", "gnmf/table1", "cnmf/fig1", "lcf/fig5")
    ]
    text = results_page.write_index(Store(tmp_path), told).read_text()
    parser = Balanced()
    parser.feed(text)
    links = [s for s in parser.sources if s.startswith("#")]
    # A sentence links to its numbers on the page.
    assert links and all(f'id="{link[1:]}"' in text for link in links)
    # The sentence is near the top of the page.
    assert text.index("consistently outperforms") < text.index("<summary>")
    assert parser.open == [] and "cnmf/fig1" in text and '<div id="lcf/table1">' in text


def test_listing_fits_a_terminal():
    done = _invoke("--list", env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    for name in ("cnmf/table1", "gnmf/fig7", "cdnmf/table2", "lcf/table1"):
        assert re.search(rf"^{name} ", done.output, re.MULTILINE)


def test_an_absent_data_set_is_said_with_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    where = ["--data-home", str(tmp_path), "--out", str(tmp_path / "out"), "--jobs", "1"]
    done = _invoke("cnmf/table2", *where, env={"COLUMNS": "500"})
    assert "yale was not run: the data set is not on this machine" in done.output
    assert "Get it from Deng Cai's collection" in done.output and "yale_32x32.npz" in done.output


def test_sub_runs_keep_the_lowest_objective(table, tmp_path):
    protocol = load_protocol(table)
    cell = next(c for c in cells(protocol, Selection()) if c.column.name == "Kmeans")
    result = run_cell(cell)
    assert len(result["attempts"]) == 3
    assert result["objective"] == min(a["objective"] for a in result["attempts"])
    method = protocol.method("Kmeans")
    seen = [_accuracies(result, i)["labels"] for i in range(3)]
    best, mean = (
        pick(result, replace(method, subrun_choice=choice))["all"]["ac"]
        for choice in ("score", "mean")
    )
    assert best == max(seen) and mean == pytest.approx(np.mean(seen))
    lowest = int(np.argmin([a["objective"] for a in result["attempts"]]))
    assert pick(result, method)["all"]["ac"] == seen[lowest]


def test_of_several_starts_the_best_goes_on(table):
    with open(table, "a", encoding="utf-8") as handle:
        handle.write(
            '\n[[methods]]\nname = "Starts"\nestimator = "sklearn.decomposition:NMF"\n'
            'params = { solver = "mu", max_iter = 30, tol = 0.0 }\nrestarts = 4\n'
        )
    protocol = load_protocol(table)
    cell = next(c for c in cells(protocol, Selection()) if c.column.name == "Starts")
    sample = draw(cell.table, cell.data, cell.k, cell.run)
    task = FitTask(sample, None, cell.k, cell.column.method, cell.column.params("digits"))
    single = [
        fit_estimator(replace(task, start=i), "sklearn.decomposition:NMF", task.params)
        for i in range(4)
    ]
    assert fit(task).objective == min(f.objective for f in single)


def test_scores_on_unlabelled_samples_leave_the_shown_ones_out(table):
    protocol = load_protocol(table)
    cell = next(c for c in cells(protocol, Selection()) if c.column.name == "CNMF")
    result = run_cell(cell)
    y = draw(cell.table, cell.data, cell.k, cell.run).shown(cell.budget)
    for scored in result["attempts"][0]["readouts"].values():
        assert set(scored["unlabelled"]) == {"2 per class"}
        wrong = [(1 - s["ac"] / 100) * n for s, n in (
            (scored["all"], len(y)), (scored["unlabelled"]["2 per class"], np.sum(y < 0))
        )]  # fmt: skip
        assert wrong[1] <= wrong[0] + 1e-9  # errors are counted in samples


def test_of_a_paper_only_the_tables_that_have_a_method_run(tmp_path, monkeypatch):
    # An empty folder suffices, because Fig. 5 uses synthetic data.
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    how = ("--quick", "--jobs", "1", "--out", str(tmp_path / "out"))
    done = _invoke("lcf", "--methods", "lcf", *how)
    assert done.exit_code == 0, done.output
    files = [p.name for p in (tmp_path / "out" / "cells").rglob("*.json")]
    assert files and all("-LCF-" in name for name in files)
    none = _invoke("lcf", "--methods", "Other", *how)
    assert none.exit_code and "Other" in str(none.exception)


def test_what_lacks_an_extra_is_left_out_with_a_sentence(capsys):
    from rich.console import Console

    from partwise.apps.papers.command import _report
    from partwise.apps.papers.runner import Outcome

    left = {"a": "ImportError: NTF needs tensorly: pip install x", "b": "oh no"}
    outcome = Outcome("cnmf/table1", [], failed=left)
    _report(Console(width=200), "cnmf/table1", outcome, None)
    said = capsys.readouterr().out
    assert "cnmf/table1: 1 runs were left out: NTF needs tensorly: pip install x" in said
    assert "cnmf/table1: 1 runs failed: oh no" in said


def test_a_table_of_long_sentences_is_left_out_of_the_terminal():
    long = grid([["x" * 120, "holds"]], ["claim", "measured"])
    blocks = ["## Claims", long, "## Accuracy", grid([["NMF", "70"]], ["method", "average"])]
    text = to_text(Section("Title", "anchor", blocks))
    assert text.split("\n\n") == ["Title", "Accuracy", "method average\n   NMF      70"]
