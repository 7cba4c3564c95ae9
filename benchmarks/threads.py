"""Time of Partwise and scikit-learn by number of threads: `--threads 1,2,4,8,16`.

1. Both packages start from scikit-learn's ``init="random"`` with three seeds.
2. scikit-learn runs N iterations without a tolerance (200; KL 100; the largest rows fewer). Its
   objective is the target. If that takes more than ten seconds, there is one seed, and the target
   of another machine is reused.
3. Untimed fits of Partwise find the smallest m with an objective of at most the target.
4. Timed fits alternate, each in its own process with the given number of threads, while the threads
   of the other process sleep. scikit-learn runs N iterations; long times are extrapolated from two
   shorter runs. Partwise runs m iterations, including checks, start and exact end.
5. A cell is the median over seeds of the ratio of medians of three runs, or of as many as fit into
   three seconds.

The limit is the time of the two products with X in the fastest available BLAS (numpy's; for sparse
X scipy's or ours) with the same number of threads: no iteration of any solver can be faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

KL = "kullback-leibler"
#: Seconds of one fit of scikit-learn beyond which its time is extrapolated from shorter fits.
LONG = 1.5
#: Seconds of one fit of scikit-learn beyond which only one seed is used.
SLOW = 10.0
#: Maximum number of iterations of Partwise that are tried.
MOST = 400
SHORT = (1, 6)  # iterations of short runs; a long fit has a fifth of its iterations as the second
#: Seconds until idle threads of the other process sleep. Until then, threads of OpenBLAS occupy the
#: cores while they wait for work.
ASLEEP = 0.15
#: Seconds after which no further round of seeds starts for a cell of the table.
CELL = 3.0


@dataclass(frozen=True)
class Row:
    """One line of the table: data, parts, loss, scikit-learn's iterations, and the goal."""

    name: str
    title: str
    data: str
    k: int
    iterations: int
    goal: float
    loss: str = "frobenius"


ROWS = [
    Row("coil20", "COIL20 float32 k=20", "coil20-32", 20, 200, 4),
    Row("pie", "PIE float32 k=68", "pie-32", 68, 200, 5),
    Row("dense", "dense 20,000 x 2,000 float32 k=20", "dense-20k", 20, 200, 5),
    Row("pie-kl", "PIE KL k=68", "pie-kl", 68, 100, 3, KL),
    Row("tdt2", "TDT2 tf-idf k=30", "tdt2", 30, 200, 8),
    Row("coil20-kl", "COIL20 KL k=20", "coil20-kl", 20, 100, 3, KL),
    Row("dense100", "dense 30,000 x 2,000 float32 k=100", "dense-30k", 100, 20, 3),
    Row("sparse", "sparse 100,000 x 20,000 0.5 % float32 k=50", "sparse-100k", 50, 30, 5),
    Row("tdt2-kl", "TDT2 counts KL k=30", "tdt2-kl", 30, 100, 20, KL),
    Row("worm-kl", "worm counts KL k=10", "worm-kl", 10, 100, 20, KL),
]


def make(data: str) -> Any:
    """Return X of a row of the table, from a public data set or drawn at random."""
    import numpy as np

    from benchmarks import cases

    if data == "pie-32":
        return cases.images("pie")(False).astype(np.float32)
    if data == "dense-30k":
        return cases.made_dense(30_000, 2_000, 100)
    if data == "sparse-100k":
        return cases.made_sparse(100_000, 20_000, 50, 0.005)
    return next(case for case in cases.CASES if case.name == data).make(False)


# -- a process with a given number of threads --------------------------------------------------


def worker() -> None:
    """Serve requests as JSON lines, without imports from the benchmark."""
    import warnings

    import numpy as np
    import scipy.sparse as sp

    warnings.simplefilter("ignore")
    X: Any = None
    W: Any = None
    H: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if order["do"] == "load":
                path = order["path"]
                X = sp.csr_array(sp.load_npz(path)) if path.endswith("z") else np.load(path)
                answer["shape"] = list(X.shape)
            elif order["do"] == "start":
                from sklearn.decomposition._nmf import _initialize_nmf

                W, H = _initialize_nmf(X, order["k"], init="random", random_state=order["seed"])
                W, H = np.ascontiguousarray(W, X.dtype), np.ascontiguousarray(H, X.dtype)
            elif order["do"] == "about":
                from threadpoolctl import threadpool_info

                import partwise  # noqa: F401

                kernels = {p.get("architecture", "") for p in threadpool_info()} - {""}
                answer = {"blas": sorted(kernels), "numpy": np.__version__}
            elif order["do"] == "limit":
                answer = _limit(X, W, np.ascontiguousarray(H.T), order["who"])
            else:
                answer = _fit(X, W, H, order)
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


def _fit(X: Any, W: Any, H: Any, order: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    solver = "mu" if order["loss"] == KL else "cd"
    if order["who"] == "scikit-learn":
        from sklearn.decomposition import NMF
    else:
        from partwise import NMF  # type: ignore[assignment]

        solver = "auto"
    model = NMF(
        W.shape[1], init="custom", solver=solver, beta_loss=order["loss"], tol=0,
        max_iter=order["iterations"],
    )  # fmt: skip
    own = W.copy(), H.copy()
    begin, busy = time.perf_counter(), time.process_time()
    codes = model.fit_transform(X, W=own[0], H=own[1])
    answer = {"seconds": time.perf_counter() - begin, "busy": time.process_time() - busy}
    if order.get("judge"):
        # The objective is computed in float64: that of scikit-learn in float32 has an error of 1e-5
        # for a large sparse X.
        from benchmarks.objective import frobenius, kullback_leibler

        loss = kullback_leibler if order["loss"] == KL else frobenius
        answer["objective"] = loss(X, codes, model.components_)
    if order["who"] != "scikit-learn":
        answer["history"] = np.asarray(model.objective_history_).tolist()
    return answer


def _limit(X: Any, V: Any, U: Any, who: str) -> dict[str, float]:
    """Return the seconds of X U and Xᵀ V, each the minimum of several runs."""
    import scipy.sparse as sp

    if who == "scikit-learn":
        dot, across = [lambda: X @ U], [lambda: X.T @ V, lambda: V.T @ X]
    elif sp.issparse(X):
        from partwise.backends import as_data

        data = as_data(X)
        dot, across = [lambda: data.dot(U)], [lambda: data.tdot(V)]
    else:
        return {}

    def least(product: Any) -> float:
        found, begun = [], time.perf_counter()
        while len(found) < 3 or (len(found) < 15 and time.perf_counter() - begun < 0.3):
            begin = time.perf_counter()
            product()
            found.append(time.perf_counter() - begin)
        return min(found)

    return {"dot": min(map(least, dot)), "tdot": min(map(least, across))}


class Process:
    """A worker process with a number of threads, which imports Partwise from one checkout."""

    def __init__(self, threads: int, source: Path, script: str = __file__) -> None:
        from benchmarks.settings import THREAD_VARIABLES

        env = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        env["PYTHONPATH"] = os.pathsep.join([str(source), str(Path(__file__).parents[1])])
        command = [sys.executable, str(Path(script).resolve()), "--worker"]
        self.running = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.running.stdin.flush()
        line = self.running.stdout.readline()
        if not line:
            raise RuntimeError("the worker ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.close()
        self.running.wait(10)
        self.running.stdout.close()


# -- the measurement ---------------------------------------------------------------------------


def steps_to(history: list[float], target: float) -> int | None:
    """Return the first iteration with an objective at or below the target."""
    return next((n for n, value in enumerate(history, 1) if value <= target), None)


def targets(process: Process, row: Row, seeds: int, known: dict[str, Any]) -> dict[str, Any]:
    """Return, by seed, scikit-learn's final objective and Partwise's iterations to reach it."""
    found: dict[str, Any] = {"targets": [], "steps": []}
    order = {"loss": row.loss, "judge": True}
    there, guesses = known.get("targets", []), known.get("steps", [])
    for seed in range(seeds):
        process.ask("start", k=row.k, seed=seed)
        if seed < len(there):
            target, took = there[seed], 0.0
        elif there:  # earlier runs took too long for another seed
            break
        else:
            theirs = process.ask("fit", who="scikit-learn", iterations=row.iterations, **order)
            target, took = theirs["objective"], theirs["seconds"]
        found["targets"].append(target)
        guess = guesses[seed] if seed < len(guesses) else None
        found["steps"].append(least_steps(process, order, target, guess))
        if took > SLOW:
            break
    return found


def least_steps(
    process: Process, order: dict[str, Any], target: float, guess: int | None = None
) -> int | None:
    """Return the smallest number of iterations of Partwise that reaches the target."""
    if guess is not None:  # the guess comes from a run on another machine
        ours = process.ask("fit", who="partwise", iterations=guess, **order)
        if ours["objective"] <= target:
            return guess
    trial, m = 25, None
    while m is None and trial <= MOST:
        ours = process.ask("fit", who="partwise", iterations=trial, **order)
        m, trial = steps_to(ours["history"], target), 2 * trial
    # The history contains the objective of the iterations, but a fit ends with a solve for V.
    while m is not None and m > 1:
        if process.ask("fit", who="partwise", iterations=m - 1, **order)["objective"] > target:
            break
        m -= 1
    return m


def theirs_takes(process: Process, row: Row, known: float | None) -> float:
    """Return the seconds of scikit-learn's N iterations."""
    order = {"who": "scikit-learn", "loss": row.loss}
    if known is not None and known <= LONG:
        return process.ask("fit", iterations=row.iterations, **order)["seconds"]
    few, more = SHORT[0], max(SHORT[1], row.iterations // 5)
    low, high = (process.ask("fit", iterations=n, **order)["seconds"] for n in (few, more))
    if high <= low:  # the runs are too short to compute the time of an iteration
        return process.ask("fit", iterations=row.iterations, **order)["seconds"]
    return low + (high - low) / (more - few) * (row.iterations - few)


def measure(
    names: list[str] | None,
    counts: list[int],
    *,
    runs: int = 3,
    seeds: int = 3,
    sources: dict[str, Path],
    seconds: float = float("inf"),
    kept: dict[str, Any] | None = None,
    known: dict[str, dict[str, Any]] | None = None,
    save: Any = None,
) -> dict[str, Any]:
    """Measure all rows at all thread counts; ``sources`` are the timed checkouts.

    ``kept`` are existing entries to complete, and ``known`` are targets and our iterations by row.
    """
    begun = time.perf_counter()
    result: dict[str, Any] = {"threads": counts, "rows": {}}
    named = {row.name: row for row in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        most = {who: Process(max(counts), source) for who, source in sources.items()}
        result["about"] = most["ours"].ask("about")
        # Each checkout has its own process, because threads of BLAS keep waiting for work after a
        # fit.
        apart = {"scikit-learn": sources["ours"], **sources}
        groups = {n: {w: Process(n, s) for w, s in apart.items()} for n in counts}
        for row in [named[name] for name in names or named]:
            entry = (kept or {}).get(row.name, {"times": {}})
            wanted = [n for n in counts if str(n) not in entry["times"]]
            if time.perf_counter() - begun > seconds or not wanted:
                continue
            try:
                X = make(row.data)
            except FileNotFoundError as error:
                print(f"{row.name}: {error}")
                continue
            path = _stored(X, Path(folder) / row.name)
            del X
            for process in most.values():
                process.ask("load", path=path)
                process.ask("start", k=row.k, seed=0)
                # This fit compiles all kernels that the row needs.
                process.ask("fit", who="partwise", loss=row.loss, iterations=2)
            if "steps" not in entry:
                found = targets(most["ours"], row, seeds, (known or {}).get(row.name, {}))
                entry |= {"title": row.title, "goal": row.goal, "iterations": row.iterations}
                entry |= found
            result["rows"][row.name] = entry
            for n in wanted if entry["steps"][0] is not None else []:
                if time.perf_counter() - begun > seconds:
                    break
                times = _timed(groups[n], row, path, entry["steps"], runs)
                done = entry["times"] | {str(n): times}
                entry["times"] = {str(n): done[str(n)] for n in counts if str(n) in done}
                print(row.name, n, _short(times), flush=True)
                if save is not None:
                    save(result)
            Path(path).unlink()
            if save is not None:
                save(result)
        for group in [most, *groups.values()]:
            for process in group.values():
                process.close()
    return result


def _stored(X: Any, path: Path) -> str:
    import numpy as np
    import scipy.sparse as sp

    if sp.issparse(X):
        sp.save_npz(path, X, compressed=False)
        return f"{path}.npz"
    np.save(path, X)
    return f"{path}.npy"


def _timed(
    processes: dict[str, Process], row: Row, path: str, steps: list[int | None], runs: int
) -> dict[str, Any]:
    seeds = [seed for seed, m in enumerate(steps) if m is not None]
    times: dict[str, list[list[float]]] = {who: [[] for _ in seeds] for who in processes}
    first: dict[str, float] = {}
    limits = []
    for who, process in processes.items():
        mine = {"who": "scikit-learn" if who == "scikit-learn" else "partwise", "loss": row.loss}
        process.ask("load", path=path)
        process.ask("start", k=row.k, seed=0)
        process.ask("fit", iterations=2, **mine)
        if who in ("scikit-learn", "ours"):
            limits.append(process.ask("limit", who=who))
        if who != "scikit-learn":
            once = [process.ask("fit", iterations=1, **mine)["seconds"] for _ in range(runs)]
            first[who] = median(once)
    known, begun = None, time.perf_counter()
    for turn in range(runs):
        if turn and time.perf_counter() - begun > CELL:
            break
        for at, seed in enumerate(seeds):
            for who, process in processes.items():
                process.ask("start", k=row.k, seed=seed)
                time.sleep(ASLEEP)
                if who == "scikit-learn":
                    known = theirs_takes(process, row, known)
                    times[who][at].append(known)
                else:
                    order = {"who": "partwise", "loss": row.loss, "iterations": steps[seed]}
                    times[who][at].append(process.ask("fit", **order)["seconds"])
    by_seed = {who: [median(one) for one in found] for who, found in times.items()}
    out: dict[str, Any] = {who: median(found) for who, found in by_seed.items()}
    out["spread"] = {who: [min(map(min, f)), max(map(max, f))] for who, f in times.items()}
    out["ratios"] = [a / b for a, b in zip(by_seed["scikit-learn"], by_seed["ours"], strict=True)]
    out["by_seed"] = by_seed
    out["one"] = first  # a fit of one iteration also contains the constant costs of a fit
    made = [limit for limit in limits if limit]
    out["limit"] = {side: min(limit[side] for limit in made) for side in ("dot", "tdot")}
    return out


def ratio(times: dict[str, Any]) -> float:
    """Return the time of scikit-learn divided by that of Partwise, the median over seeds."""
    return float(median(times.get("ratios") or [times["scikit-learn"] / times["ours"]]))


def iteration(row: dict[str, Any], times: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of one iteration of Partwise, and the fixed cost of a fit."""
    steps = [m for m in row["steps"] if m is not None]
    ours = times.get("by_seed", {}).get("ours", [times["ours"]])
    one, longest = times["one"]["ours"], max(zip(steps, ours, strict=False))
    each = (longest[1] - one) / max(1, longest[0] - 1)
    return each, one - each


def _short(times: dict[str, Any]) -> str:
    told = [f"{who} {s:.4f}" for who, s in times.items() if isinstance(s, float)]
    return f"{ratio(times):5.2f}x  " + "  ".join(told) + f"  one {times['one']}"


# -- the page of results -----------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    """Return a table of time ratios and of the times of Partwise, by number of threads."""
    counts = result["threads"]
    about = result["about"] | result.get("machine", {})
    lines = [
        f"# Time against threads: {about.get('processor', 'this machine')}",
        "",
        f"{about.get('processor')}, {about.get('cores')} cores, {about.get('memory_GiB')} GiB; "
        f"BLAS kernels {', '.join(about.get('blas', []))}; {about.get('date')}.",
        "",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "",
        "Each cell: scikit-learn's time over ours, its range over seeds, and ours in seconds. The "
        "goal is for every column.",
        "",
        "| | goal | iterations theirs / ours, by seed | "
        + " | ".join(f"{n} thread{'s' if n > 1 else ''}" for n in counts)
        + " | most threads over one |",
        "|---|---:|---|" + "---:|" * (len(counts) + 1),
    ]
    for row in result["rows"].values():
        cells = []
        for n in counts:
            times = row["times"].get(str(n))
            if times is None:
                cells.append("")
                continue
            seen = times.get("ratios", [])
            told = f"{ratio(times):.1f}x"
            if len(seen) > 1:
                told += f" ({min(seen):.1f} to {max(seen):.1f})"
            told += f" {times['ours']:.3g} s"
            cells.append(told if ratio(times) >= row["goal"] else f"**{told}**")
        every = [row["times"].get(str(n)) for n in counts]
        gain = f"{every[0]['ours'] / every[-1]['ours']:.1f}x" if every and all(every) else ""
        steps = ", ".join("not reached" if m is None else str(m) for m in row["steps"])
        lines.append(
            f"| {row['title']} | {row['goal']:g}x | {row['iterations']} / {steps} | "
            + " | ".join(cells)
            + f" | {gain} |"
        )
    lines += ["", "Bold: below the goal.", ""]
    if earlier := [result["rows"][name]["title"] for name in result.get("earlier", [])]:
        lines += [f"With an earlier version of the kernels: {', '.join(earlier)}.", ""]
    if at_once := [result["rows"][name]["title"] for name in result.get("at_once", [])]:
        lines += [f"While the other's threads may still have been awake: {', '.join(at_once)}.", ""]
    lines += _iterations(result)
    picture = f"![Time against threads](threads-{slug(about)}.svg)"
    return "\n".join([*lines, "", picture, ""])


OVERVIEW = """# NMF at 1 to 16 threads

Time of scikit-learn's coordinate descent (KL: multiplicative updates) for its iterations, divided
by the time of Partwise to the same objective from the same random start. Each cell is the range
over machines and numbers of threads; bold where a part of the range misses the goal.
`python -m benchmarks.threads` measures a machine and writes its page.
"""


def ranges(folder: Path) -> str:
    """Return a table with the range of each row over all machines and thread counts in a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("threads-*.json"))]
    found = [result for result in found if set(result["rows"]) - set(result.get("earlier", []))]
    names = [f"{r['machine']['processor']}, {r['machine']['cores']} cores" for r in found]
    head = " | ".join(f"most threads over one, {name}" for name in names)
    lines = [
        f"| | goal | seen, {len(found)} machine{'s' if len(found) > 1 else ''} | {head} |",
        "|---|---:|---:|" + "---:|" * len(found),
    ]
    for row in ROWS:
        every = [list(r["rows"].get(row.name, {}).get("times", {}).values()) for r in found]
        old = any(row.name in r.get("earlier", []) for r in found)
        seen = [ratio(times) for each in every for times in each]
        if not seen:
            continue
        told = f"{min(seen):.1f}x to {max(seen):.1f}x"
        gains = [
            f"{each[0]['ours'] / each[-1]['ours']:.1f}x"
            if len(each) == len(result["threads"])
            else "not to the end"
            for each, result in zip(every, found, strict=True)
        ]
        shown = told if min(seen) >= row.goal else f"**{told}**"
        title = row.title + " †" * old
        lines.append(f"| {title} | {row.goal:g}x | {shown} | {' | '.join(gains)} |")
    if any("†" in line for line in lines):
        lines += ["", "† on one of these machines with earlier kernels, as its page says."]
    return "\n".join([*lines, ""])


def write_overview(folder: Path) -> None:
    """Write the page that summarises the pages of all machines."""
    from benchmarks.store import write_text

    names = sorted(path.stem for path in folder.glob("threads-*.md"))
    pages = "".join(f"- [{name}]({name}.md)\n" for name in names)
    write_text(
        folder / "threads.md", f"{OVERVIEW}\n{ranges(folder)}\nOne page per machine:\n\n{pages}"
    )


def _iterations(result: dict[str, Any]) -> list[str]:
    """Return tables of Partwise's time per iteration, its limit, and a fit's fixed cost."""
    head = ["", "| | " + " | ".join(str(n) for n in result["threads"]) + " |"]
    head.append("|---|" + "---:|" * len(result["threads"]))
    one = ["An iteration of ours in ms, and how far it is above the limit:", *head]
    once = ["What a fit pays once (checks, start, exact end) in ms, and of the whole:", *head]
    for row in result["rows"].values():
        cells: tuple[list[str], list[str]] = ([], [])
        for n in result["threads"]:
            times = row["times"].get(str(n))
            if times is None:
                cells[0].append("")
                cells[1].append("")
                continue
            each, paid = iteration(row, times)
            limit = sum(times.get("limit", {}).values())
            told = f"{1e3 * each:.3g}"
            cells[0].append(f"{told}, {each / limit:.1f}x" if limit else told)
            cells[1].append(f"{1e3 * paid:.3g}, {100 * paid / times['ours']:.0f} %")
        for lines, own in zip((one, once), cells, strict=True):
            lines.append(f"| {row['title']} | " + " | ".join(own) + " |")
    return [*one, "", *once]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw time against threads of both packages, one small chart per row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in result["rows"].values() if row["times"]]
    across = 3
    figure, axes = pyplot.subplots(
        -(-len(rows) // across), across, figsize=(12, 3.2 * -(-len(rows) // across)), squeeze=False
    )
    for place, row in zip(axes.flat, rows, strict=False):
        counts = [int(n) for n in row["times"]]
        for who, style in (("scikit-learn", "s--"), ("ours", "o-")):
            place.plot(counts, [times[who] for times in row["times"].values()], style, label=who)
        place.set(xscale="log", yscale="log", title=row["title"], xlabel="threads", ylabel="s")
        place.set_xticks(counts, [str(n) for n in counts])
        place.minorticks_off()
        place.legend(fontsize=8)
    for place in list(axes.flat)[len(rows) :]:
        place.set_axis_off()
    figure.tight_layout()
    with matplotlib.rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def slug(machine: dict[str, Any]) -> str:
    """Return a machine's name as a file name."""
    name = f"{machine.get('processor', 'this machine')} {machine.get('cores', 1)} cores".lower()
    kept = "".join(c if c.isalnum() else "-" for c in name)
    return "-".join(part for part in kept.split("-") if part and part not in ("r", "tm", "cpu"))


def run(
    counts: list[int],
    out: Path,
    *,
    names: list[str] | None = None,
    before: Path | None = None,
    runs: int = 3,
    seeds: int = 3,
    seconds: float = float("inf"),
    resume: bool = False,
) -> dict[str, Any]:
    """Measure, and write ``threads-PROCESSOR.md``, ``.json`` and ``.svg``.

    Earlier rows with the same number of threads stay if they are not measured now; ``resume`` only
    completes them. Targets of any machine in that folder are reused.
    """
    from benchmarks.settings import HERE, machine
    from benchmarks.store import write_json, write_text

    sources = {"ours": HERE.parent / "src"}
    if before is not None:
        sources["before"] = before
    facts = machine()
    facts.pop("threads", None)
    path = out / f"threads-{slug(facts)}"
    stored = path.with_suffix(".json")
    there = json.loads(stored.read_text()) if stored.exists() else {"threads": None}
    kept = there["rows"] if there["threads"] == counts else {}
    old = there.get("earlier", []) if resume else list(kept)

    def whole(measured: dict[str, Any]) -> dict[str, Any]:
        every = kept | measured["rows"]
        rows = {row.name: every[row.name] for row in ROWS if row.name in every}
        earlier = [name for name in old if name not in measured["rows"]]
        return {**measured, "rows": rows, "earlier": earlier, "machine": facts}

    def save(measured: dict[str, Any]) -> None:
        write_json(stored, whole(measured))
        write_text(path.with_suffix(".md"), markdown(whole(measured)))

    out.mkdir(parents=True, exist_ok=True)
    measured = measure(
        names, counts, runs=runs, seeds=seeds, sources=sources, seconds=seconds,
        kept=kept if resume else {}, known=known_targets(out), save=save,
    )  # fmt: skip
    result = whole(measured)
    if any(row["times"] for row in result["rows"].values()):
        draw(result, path.with_suffix(".svg"))
    if out.resolve() == HERE / "results":
        write_overview(out)
    print(markdown(result))
    return result


def known_targets(folder: Path) -> dict[str, dict[str, Any]]:
    """Return, for each row, scikit-learn's objectives and the iterations of Partwise to them.

    They come from the earlier run with the most seeds.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("threads-*.json")):
        for name, row in json.loads(path.read_text())["rows"].items():
            if len(row.get("targets", [])) > len(found.get(name, {}).get("targets", [])):
                found[name] = {what: row.get(what, []) for what in ("targets", "steps")}
    return found


if __name__ == "__main__":
    worker()
