"""Time against the number of threads, ours and scikit-learn's: `--threads 1,2,4,8,16`.

Both begin where scikit-learn's ``init="random"`` does. scikit-learn runs N iterations without a
tolerance (200, KL 100, the largest rows fewer), and the objective that it then has is the target.
An untimed run of ours finds the first iteration m at or below it. Timed are plain fits, in turns,
each in a process of its own that was started with so many threads: theirs with N iterations, or
where that takes long as many as two shorter runs extrapolate to; ours with m, checks, start and
exact end included. m is found for three seeds where scikit-learn's fit takes less than four
seconds, else for one; the first is timed, three times (the largest rows once).
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
#: Seconds of one fit of scikit-learn beyond which its time is extrapolated from shorter ones.
LONG = 1.5
#: Seconds of one beyond which there is one seed.
SLOW = 4.0
SHORT = (2, 12)  # iterations of those


@dataclass(frozen=True)
class Row:
    """One line of the table: data of `cases`, parts, loss, scikit-learn's iterations, the goal."""

    name: str
    title: str
    data: str
    k: int
    iterations: int
    goal: float
    loss: str = "frobenius"
    runs: int = 3


ROWS = [
    Row("coil20", "COIL20 float32 k=20", "coil20-32", 20, 200, 4),
    Row("pie", "PIE float32 k=68", "pie-32", 68, 200, 5),
    Row("dense", "dense 20,000 x 2,000 float32 k=20", "dense-20k", 20, 200, 5),
    Row("pie-kl", "PIE KL k=68", "pie-kl", 68, 100, 3, KL),
    Row("tdt2", "TDT2 tf-idf k=30", "tdt2", 30, 200, 8),
    Row("coil20-kl", "COIL20 KL k=20", "coil20-kl", 20, 100, 3, KL),
    Row("dense100", "dense 30,000 x 2,000 float32 k=100", "dense-30k", 100, 20, 3, runs=1),
    Row("sparse", "sparse 100,000 x 20,000 0.5 % float32 k=50", "sparse-100k", 50, 30, 5, runs=1),
    Row("tdt2-kl", "TDT2 counts KL k=30", "tdt2-kl", 30, 100, 20, KL, runs=1),
    Row("worm-kl", "worm counts KL k=10", "worm-kl", 10, 100, 20, KL, runs=1),
]


def make(data: str) -> Any:
    """X of a row."""
    import numpy as np

    from benchmarks import cases

    if data == "pie-32":
        return cases.images("pie")(False).astype(np.float32)
    if data == "dense-30k":
        return cases.made_dense(30_000, 2_000, 100)
    if data == "sparse-100k":
        return cases.made_sparse(100_000, 20_000, 50, 0.005)
    return next(case for case in cases.CASES if case.name == data).make(False)


# -- a process with so many threads ------------------------------------------------------------


def worker() -> None:
    """JSON lines in and out; imports what it is asked for and nothing of the benchmark."""
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
        from sklearn.decomposition._nmf import _beta_divergence

        beta = 1.0 if order["loss"] == KL else 2.0
        answer["objective"] = float(_beta_divergence(X, codes, model.components_, beta))
    if order["who"] != "scikit-learn":
        answer["history"] = np.asarray(model.objective_history_).tolist()
    return answer


class Process:
    """A worker with so many threads, and the package of one source tree."""

    def __init__(self, threads: int, source: Path) -> None:
        from benchmarks.settings import THREAD_VARIABLES

        env = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        env["PYTHONPATH"] = str(source)
        command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
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
    """The first iteration at or below the target."""
    return next((n for n, value in enumerate(history, 1) if value <= target), None)


def targets(process: Process, row: Row, seeds: int, most: int) -> dict[str, Any]:
    """scikit-learn's objective after N iterations, and ours that are at or below it, by seed."""
    found: dict[str, Any] = {"target": [], "steps": []}
    for seed in range(seeds):
        process.ask("start", k=row.k, seed=seed)
        order = {"loss": row.loss, "judge": True}
        theirs = process.ask("fit", who="scikit-learn", iterations=row.iterations, **order)
        trial = 25
        while True:
            ours = process.ask("fit", who="partwise", iterations=trial, **order)
            # its last point is better than its history: V ends with a solve
            m = steps_to(ours["history"], theirs["objective"])
            if m is not None or trial >= most:
                break
            trial = min(2 * trial, most)
        found["target"].append(theirs["objective"])
        found["steps"].append(m)
        if theirs["seconds"] > SLOW:
            break
    return found


def theirs_takes(process: Process, row: Row, known: float | None) -> float:
    """Seconds of scikit-learn's N iterations."""
    order = {"who": "scikit-learn", "loss": row.loss}
    if known is not None and known <= LONG:
        return process.ask("fit", iterations=row.iterations, **order)["seconds"]
    low, high = (process.ask("fit", iterations=n, **order)["seconds"] for n in SHORT)
    each = (high - low) / (SHORT[1] - SHORT[0])
    return low + each * (row.iterations - SHORT[0])


def measure(
    names: list[str] | None,
    counts: list[int],
    *,
    runs: int = 3,
    seeds: int = 3,
    sources: dict[str, Path],
    seconds: float = float("inf"),
    save: Any = None,
) -> dict[str, Any]:
    """All rows at all thread counts; ``sources`` are the trees whose package is timed."""
    begun = time.perf_counter()
    result: dict[str, Any] = {"threads": counts, "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        most = {who: Process(max(counts), source) for who, source in sources.items()}
        result["about"] = most["ours"].ask("about")
        # a process of its own for each: threads of BLAS go on looking for work after a fit
        apart = {"scikit-learn": sources["ours"], **sources}
        groups = {n: {w: Process(n, s) for w, s in apart.items()} for n in counts}
        known = {row.name: row for row in ROWS}
        for row in [known[name] for name in names or known]:
            if time.perf_counter() - begun > seconds:
                break
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
                # whatever has to be compiled is
                process.ask("fit", who="partwise", loss=row.loss, iterations=2)
            found = targets(most["ours"], row, seeds, 100)
            m = found["steps"][0]
            entry: dict[str, Any] = {
                "title": row.title, "goal": row.goal, "iterations": row.iterations, **found,
                "times": {},
            }  # fmt: skip
            for n in counts if m is not None else []:
                if time.perf_counter() - begun > seconds:
                    break
                entry["times"][n] = _timed(groups[n], row, path, m, min(runs, row.runs))
                print(row.name, n, _short(entry["times"][n]), flush=True)
            result["rows"][row.name] = entry
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


def _timed(processes: dict[str, Process], row: Row, path: str, m: int, runs: int) -> dict[str, Any]:
    times: dict[str, Any] = {who: [] for who in processes}
    first: dict[str, float] = {}
    for who, process in processes.items():
        process.ask("load", path=path)
        process.ask("start", k=row.k, seed=0)
        if who == "scikit-learn":
            process.ask("fit", who=who, loss=row.loss, iterations=2)
            continue
        process.ask("fit", who="partwise", loss=row.loss, iterations=2)
        once = [
            process.ask("fit", who="partwise", loss=row.loss, iterations=1)["seconds"]
            for _ in range(runs)
        ]
        first[who] = median(once)
    known = None
    for _ in range(runs):
        for who, process in processes.items():
            if who == "scikit-learn":
                known = theirs_takes(process, row, known)
                times[who].append(known)
            else:
                got = process.ask("fit", who="partwise", loss=row.loss, iterations=m)
                times[who].append(got["seconds"])
    out: dict[str, Any] = {who: median(found) for who, found in times.items()}
    out["spread"] = {who: [min(found), max(found)] for who, found in times.items()}
    out["one"] = first  # a fit of one iteration: what is paid once, and one iteration
    return out


def _short(times: dict[str, Any]) -> str:
    ratio = times["scikit-learn"] / times["ours"]
    told = [f"{who} {s:.4f}" for who, s in times.items() if isinstance(s, float)]
    return f"{ratio:5.2f}x  " + "  ".join(told) + f"  one {times['one']}"


# -- the page ----------------------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    """One table: scikit-learn's time over ours, and ours, for each number of threads."""
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
        "Each cell: scikit-learn's time over ours (ours in seconds). The goal is for every column.",
        "",
        "| | goal | iterations theirs / ours, by seed | "
        + " | ".join(f"{n} thread{'s' if n > 1 else ''}" for n in counts)
        + " | most threads over one |",
        "|---|---:|---|" + "---:|" * (len(counts) + 1),
    ]
    for row in result["rows"].values():
        cells = []
        for n in counts:
            times = row["times"].get(n) or row["times"].get(str(n))
            if times is None:
                cells.append("")
                continue
            ratio = times["scikit-learn"] / times["ours"]
            told = f"{ratio:.1f}x ({times['ours']:.3g} s)"
            cells.append(told if ratio >= row["goal"] else f"**{told}**")
        every = [row["times"].get(n) or row["times"].get(str(n)) for n in counts]
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
    lines += _iterations(result)
    picture = f"![Time against threads](threads-{slug(about.get('processor', ''))}.svg)"
    return "\n".join([*lines, "", picture, ""])


MARKS = "<!-- threads -->\n", "<!-- /threads -->\n"


def ranges(folder: Path) -> str:
    """README's table: the range of each row over all machines and thread counts of a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("threads-*.json"))]
    names = [result["machine"]["processor"] for result in found]
    head = " | ".join(f"most threads over one, {name}" for name in names)
    lines = [
        f"| | goal | seen, {len(found)} machine{'s' if len(found) > 1 else ''} | {head} |",
        "|---|---:|---:|" + "---:|" * len(found),
    ]
    for row in ROWS:
        every = [list(r["rows"].get(row.name, {"times": {}})["times"].values()) for r in found]
        seen = [times["scikit-learn"] / times["ours"] for each in every for times in each]
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
        lines.append(f"| {row.title} | {row.goal:g}x | {shown} | {' | '.join(gains)} |")
    return "\n".join([*lines, ""])


def write_readme(path: Path, folder: Path) -> None:
    """Put that table between the marks of README."""
    from benchmarks.store import write_text

    before, rest = path.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    write_text(path, before + MARKS[0] + ranges(folder) + MARKS[1] + after)


def _iterations(result: dict[str, Any]) -> list[str]:
    """A table of what an iteration of ours costs, and a fit of one."""
    lines = [
        "An iteration of ours, and a fit of one iteration with checks, start and exact end, in ms:",
        "",
        "| | " + " | ".join(str(n) for n in result["threads"]) + " |",
        "|---|" + "---:|" * len(result["threads"]),
    ]
    for row in result["rows"].values():
        cells = []
        for n in result["threads"]:
            times = row["times"].get(n) or row["times"].get(str(n))
            if times is None:
                cells.append("")
                continue
            one, m = times["one"]["ours"], row["steps"][0]
            each = 1e3 * (times["ours"] - one) / max(1, m - 1)
            cells.append(f"{each:.3g}, {1e3 * one:.3g}")
        lines.append(f"| {row['title']} | " + " | ".join(cells) + " |")
    return lines


def draw(result: dict[str, Any], path: Path) -> None:
    """Time against threads, one small picture a row, ours and scikit-learn's."""
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


def slug(name: str) -> str:
    """A processor's name as a file's."""
    kept = "".join(c if c.isalnum() else "-" for c in name.lower())
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
) -> dict[str, Any]:
    """Measure, and write ``threads-PROCESSOR.md``, ``.json`` and ``.svg``.

    Rows that were measured there before with as many threads stay, if they are not measured now.
    """
    from benchmarks.settings import HERE, machine
    from benchmarks.store import write_json, write_text

    sources = {"ours": HERE.parent / "src"}
    if before is not None:
        sources["before"] = before
    facts = machine()
    facts.pop("threads", None)
    path = out / f"threads-{slug(facts['processor'])}"
    stored = path.with_suffix(".json")
    before_now = json.loads(stored.read_text()) if stored.exists() else {"threads": None}
    kept = before_now["rows"] if before_now["threads"] == counts else {}

    def save(result: dict[str, Any]) -> None:
        every = kept | result["rows"]
        result["earlier"] = [name for name in kept if name not in result["rows"]]
        result["rows"] = {row.name: every[row.name] for row in ROWS if row.name in every}
        result["machine"] = facts
        write_json(stored, result)
        write_text(path.with_suffix(".md"), markdown(result))

    out.mkdir(parents=True, exist_ok=True)
    result = measure(
        names, counts, runs=runs, seeds=seeds, sources=sources, seconds=seconds, save=save
    )
    if any(row["times"] for row in result["rows"].values()):
        draw(result, path.with_suffix(".svg"))
    if out.resolve() == HERE / "results":
        write_readme(HERE.parent / "README.md", out)
    print(markdown(result))
    return result


if __name__ == "__main__":
    worker()
