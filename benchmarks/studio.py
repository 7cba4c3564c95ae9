"""Speed of the studio on 20,000 samples, and accuracy by number of labels.

    python -m benchmarks.studio clicks [--samples 20000] [--clicks 100] [--browser]
    python -m benchmarks.studio people --data FOLDER [--jobs 2] [--runs 5]
    python -m benchmarks.studio folder --data FOLDER
    python -m benchmarks.studio table

- ``clicks`` labels a hundred of 20,000 synthetic samples with 784 features in ten classes. It
  measures elapsed and processor time of each answer, and with ``--browser`` the time from the click
  to the recoloured map in Chromium. The second start uses stored part weights.
- ``people`` compares labels in the order of the queue with labels in random order, on the data sets
  of `benchmarks.answers`.
- ``folder`` counts the labels until 95% of COIL20's images are predicted correctly.
- ``table`` writes the table of the documentation from the results.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "studio.json"
CHECKS = 16  # numbers of labels at which the accuracy is measured
AHEAD = 9  # number of samples in the studio's queue


def made(n: int) -> tuple[Any, Any]:
    """Return samples of ten overlapping classes: four prototypes each, mixed, with noise."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    prototypes = rng.random((10, 4, 784)) * (rng.random((10, 4, 784)) < 0.15)
    mix = rng.dirichlet([0.5] * 4, size=n)
    X = np.einsum("ij,ijp->ip", mix, prototypes[y]) + 0.15 * rng.random((n, 784))
    return X.astype(np.float32), y


def clicks(n: int, browser: bool, times: int) -> dict[str, Any]:
    """Return the milliseconds of each answer, and the seconds of the first and the second start."""
    import numpy as np

    from partwise.apps.studio.workspace import Workspace
    from partwise.io.samples import Samples

    X, y = made(n)
    samples = Samples(X, [str(i) for i in range(n)], "images", image_shape=(28, 28), source="made")
    with tempfile.TemporaryDirectory() as folder:
        starts = []
        for _ in range(2):
            began = time.perf_counter()
            workspace = Workspace(samples, folder)
            workspace.prepare()
            starts.append(time.perf_counter() - began)
            if len(starts) == 1:
                workspace.close()
        took, spent = [], []
        for _ in range(times):
            i = workspace.next(1)[0]["i"]
            began, busy = time.perf_counter(), time.thread_time()
            workspace.label([i], f"class {y[i]}", window="bench")
            took.append(time.perf_counter() - began)
            spent.append(time.thread_time() - busy)
        workspace.wait()
        seen = workspace.predictions
        right = float(np.mean([seen.classes[c] == f"class {k}" for c, k in zip(seen.label, y)]))
        workspace.close()
        found = {
            "samples": n,
            "first start, s": starts[0],
            "second start, s": starts[1],
            "click, median ms": 1e3 * float(np.median(took)),
            "click, p95 ms": 1e3 * float(np.quantile(took, 0.95)),
            "click, p95 ms of processor": 1e3 * float(np.quantile(spent, 0.95)),
            f"right names after {times} labels": right,
        }
        if browser:
            found |= in_browser(samples, y, folder, times)
    return found


def in_browser(samples: Any, y: Any, folder: str, times: int) -> dict[str, Any]:
    """Return the time from the key that labels a sample to the repainted map in Chromium."""
    import numpy as np
    from selenium import webdriver

    from partwise.studio import start

    options = webdriver.ChromeOptions()
    software = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *software):
        options.add_argument(argument)
    driver = shutil.which("chromedriver")
    page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    took, spent = [], []
    with start(samples, folder) as studio:
        page.get(studio.url)
        while not page.execute_script("return document.body.dataset.painted"):
            time.sleep(0.2)
        size = page.execute_script(
            "return performance.getEntriesByType('resource')"
            ".reduce((s, e) => s + e.transferSize, 0)"
        )
        frame = page.execute_script(
            "return document.getElementById('map').contentWindow.performance"
            ".getEntriesByType('resource').reduce((s, e) => s + e.transferSize, 0)"
        )
        page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            found = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            return next(entry["value"] for entry in found if entry["name"] == "TaskDuration")

        for _ in range(times):
            i = int(page.find_element("id", "cardName").text)
            before = busy()
            took.append(
                page.execute_async_script(
                    """const [name, done] = arguments, began = performance.now();
                    import('/static/studio.js').then(studio => {
                      const before = Number(document.body.dataset.painted);
                      studio.label(name);
                      const look = () => Number(document.body.dataset.painted) > before
                        ? done(performance.now() - began) : setTimeout(look, 2);
                      look();
                    });""",
                    f"class {y[i]}",
                )
            )
            spent.append(busy() - before)
            time.sleep(0.3)
    page.quit()
    return {
        "click to map, median ms": float(np.median(took)),
        "click to map, p95 ms": float(np.quantile(took, 0.95)),
        "page, p95 ms of processor": 1e3 * float(np.quantile(spent, 0.95)),
        "transferred, MB": (size + frame) / 1e6,
    }


def person(folder: str, name: str, seed: int) -> dict[str, Any]:
    """Return the accuracy by number of labels, in the order of the queue and at random.

    As in the studio, the queue is updated after each label, and its first sample is labelled.
    """
    import numpy as np

    from benchmarks.answers import load
    from partwise import PartsClassifier

    warnings.simplefilter("ignore")
    X, y = load(Path(folder), name)
    n, classes = len(y), len(np.unique(y))
    most = min(8 * classes, n // 3)
    step = max(1, most // CHECKS)
    order = np.random.RandomState(seed).permutation(n)
    prepared = PartsClassifier(random_state=seed).prepare(X)
    curves: dict[str, Any] = {"labels": list(range(step, most + 1, step))}
    for who in ("queue", "chance"):
        model = copy.copy(prepared)
        known, curve = np.full(n, -1), []
        for count in range(1, curves["labels"][-1] + 1):
            look, given = count % step == 0, np.flatnonzero(known >= 0)
            i = order[count - 1] if who == "chance" else model.suggest(AHEAD, exclude=given)[0]
            known[i] = y[i]
            found = np.unique(known[known >= 0])
            if found.size > 1 and (look or who == "queue"):
                model.relabel(known, weigh=look)
            if look:
                right = model.transduction_ == y if found.size > 1 else y == found[0]
                curve.append(float(np.mean(right)))
        curves[who] = curve
    return {"set": name, "seed": seed, **curves}


def from_folder(data: Path) -> dict[str, Any]:
    """Label a folder of COIL20's images in the studio until 95% are predicted correctly.

    Every fifth label waits for the review, because a person needs about two seconds per label.
    """
    import numpy as np
    from PIL import Image

    from benchmarks.answers import load
    from partwise.apps.studio.workspace import Workspace
    from partwise.io import read_samples

    X, y = load(data, "coil20")
    pictures = np.rint(255 * X / X.max()).astype(np.uint8).reshape(-1, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pictures").mkdir()
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(Path(folder) / "pictures" / f"{i:04}.png")
        samples = read_samples(str(Path(folder) / "pictures"))
        truth = [f"object {y[int(Path(name).stem)] + 1}" for name in samples.ids]
        workspace = Workspace(samples, Path(folder) / "project")
        began = time.perf_counter()
        workspace.prepare()
        prepared = time.perf_counter() - began
        curve: list[float] = []
        while not curve or curve[-1] < 0.95:
            i = workspace.next(1)[0]["i"]
            workspace.label([i], truth[i], window="person")
            if len(curve) % 5 == 4:
                workspace.wait()
            seen = workspace.predictions
            names = [seen.classes[c] if c >= 0 else None for c in seen.label]
            curve.append(float(np.mean([a == b for a, b in zip(names, truth)])))
        said = " ".join(workspace.progress()["sentences"])
        workspace.close()
    return {
        "pictures": len(truth),
        "codes and map, s": prepared,
        "labels to 95 %": len(curve),
        "at two seconds a label, s": 2 * len(curve),
        "right names after each label": curve,
        "what the page said then": said,
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many labels in queue order are as good as all random labels, per data set."""
    import numpy as np

    rows = []
    for name in sorted({run["set"] for run in runs}):
        mine = [run for run in runs if run["set"] == name]
        queue, chance = (np.mean([run[w] for run in mine], axis=0) for w in ("queue", "chance"))
        labels = np.array(mine[0]["labels"])
        reached = np.flatnonzero(queue >= chance[-1])
        rows.append(
            {
                "set": name,
                "runs": len(mine),
                "labels": int(labels[-1]),
                "chance": float(chance[-1]),
                "queue": float(queue[-1]),
                "share of labels": float(labels[reached[0]] / labels[-1]) if len(reached) else None,
                "worst difference": float(np.min(queue - chance)),
                "labels to 95 %": int(labels[queue >= 0.95][0]) if queue.max() >= 0.95 else None,
            }
        )
    return rows


NAMES = {
    "bbc": "BBC",
    "coil20": "COIL20",
    "orl": "ORL",
    "pie": "PIE",
    "tdt2": "TDT2",
    "yale": "Yale",
}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the numbers of labels from `summary` as a table for the documentation."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - set",
        "     - runs",
        "     - labels",
        "     - chance",
        "     - queue",
        "     - labels of the queue for chance's accuracy",
        "     - least difference",
    ]
    for row in rows:
        share = row["share of labels"]
        needed = "more" if share is None else f"{round(share * row['labels'])} ({share:.0%})"
        cells = (
            NAMES.get(row["set"], row["set"]),
            str(row["runs"]),
            str(row["labels"]),
            f"{row['chance']:.1%}",
            f"{row['queue']:.1%}",
            needed,
            f"{100 * row['worst difference']:+.1f}",
        )
        lines += [("   * - " if i == 0 else "     - ") + cell for i, cell in enumerate(cells)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("clicks", "people", "folder", "table"))
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--clicks", type=int, default=100)
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    store = json.loads(given.out.read_text()) if given.out.exists() else {}
    if given.what == "clicks":
        store["clicks"] = clicks(given.samples, given.browser, given.clicks)
        print(json.dumps(store["clicks"], indent=1))
    elif given.what == "folder":
        store["folder"] = from_folder(given.data)
        print(json.dumps(store["folder"]))
    elif given.what == "people":
        from benchmarks.answers import SETS

        with ProcessPoolExecutor(given.jobs) as pool:
            jobs = [
                pool.submit(person, str(given.data), name, seed)
                for seed in range(given.runs)
                for name in SETS
            ]
            runs = [job.result() for job in jobs]
        store["people"] = {"summary": summary(runs), "runs": runs}
        for row in store["people"]["summary"]:
            print(row)
    given.out.write_text(json.dumps(store) + "\n")
    if "people" in store:
        given.out.with_suffix(".rst").write_text(table(store["people"]["summary"]))


if __name__ == "__main__":
    main()
