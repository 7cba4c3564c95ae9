"""Errors of `PartsClassifier.expected_accuracy_`, and the constants of its calibration.

    python -m benchmarks.expected --data FOLDER [--sets bbc,orl] [--draws 2] [--jobs 2] [--fit]

The benchmark draws 2, 5 and 10 labels per class from public data sets, at most ``--most`` samples
of each. Labels are drawn evenly, at random, by `suggest` as in the studio, or permuted, so that the
accuracy is that of chance.

Results of every draw are stored in ``results/expected.json``. The page lists the mean error and the
coverage of the intervals, for the data sets that the constants were fitted to and for the others
(every third by name).

- ``--fit`` prints the constants for `classify.calibration`.
- ``--others`` labels half of the classes and counts the samples of other classes that
  `outlyingness` finds.
- ``--doubts`` makes 0, 5, 15 and 30% of the labels wrong and counts how many `doubtful_labels_`
  finds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answers import SETS, load

RESULTS = Path(__file__).parent / "results" / "expected.json"
BUNDLED = ("digits", "wine", "breast_cancer")
WAYS = ("even", "random", "queue", "noise")
BUDGETS = (2, 5, 10)
#: Maximum number of labels. With more labels, a draw takes long and the result changes little.
LABELS = 400
#: Weight of draws with permuted labels in the fit of the constants; it is small, because such
#: labels are rare.
NOISE = 0.3
#: Shares of labels that ``--doubts`` makes wrong.
WRONG = (0.0, 0.05, 0.15, 0.3)


def samples(folder: Path, name: str, most: int) -> tuple[Any, Any]:
    """Return at most `most` samples of a data set, and their classes as integers."""
    if name in BUNDLED:
        import sklearn.datasets

        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    else:
        SETS.setdefault(name, name)
        X, y = load(folder, name)
    rows = np.random.RandomState(0).permutation(len(y))[:most]
    return X[rows], y[rows]


def draw_labels(y: Any, way: str, m: int, seed: int) -> Any:
    """Return labels drawn evenly or at random; -1 marks all other samples.

    There are m labels per class, or half of the class if that is less; or as many labels of random
    samples.
    """
    rng = np.random.RandomState(seed)
    known = np.full(y.size, -1)
    if way == "random":
        rows = rng.permutation(y.size)[: min(m * (y.max() + 1), y.size // 2)]
    else:
        mine = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
        rows = np.concatenate([r[: min(m, max(r.size // 2, 1))] for r in mine])
    known[rows] = y[rows]
    return known


def labels_by_suggest(model: Any, y: Any, seed: int) -> Any:
    """Yield the labels after each budget, where samples are added in the order of `suggest`."""
    rng, c = np.random.RandomState(seed), int(y.max()) + 1
    known = np.full(y.size, -1)
    first = rng.choice(y.size, 3, replace=False)
    known[first] = y[first]
    for m in BUDGETS:
        goal = min(m * c, y.size // 2)
        while (missing := goal - int((known >= 0).sum())) > 0:
            if np.unique(known[known >= 0]).size < 2:
                rows = rng.choice(np.flatnonzero(known < 0), 1)
            else:
                model.relabel(known, weigh=False)
                rows = model.suggest(min(max(c // 2, 3), missing))
            known[rows] = y[rows]
        yield m, known.copy()


def estimates_and_truth(model: Any, known: Any, y: Any) -> dict[str, float] | None:
    """Return the model's estimates of the accuracy, and the true values."""
    model.relabel(known)
    rest = known < 0
    if not model.held_out_[2].size:
        return None
    p, n_labels = model.label_distributions_, len(model.labelled_)
    sure, n_classes = float(p[rest].max(axis=1).mean()), p.shape[1]
    agreement = model._ensemble.agreement
    names, truth = model.transduction_[rest], y[rest]
    said = model.expected_accuracy_
    found = [np.mean(names[truth == c] == c) for c in np.unique(truth)]
    rows, p, own = model.held_out_
    return {
        "sure": sure,
        "agreement": agreement,
        "labels": n_labels,
        "classes": n_classes,
        "held": float(np.mean(p.argmax(axis=1) == own)),
        "held_out": int(rows.size),
        "truth": float(np.mean(names == truth)),
        "samples": int(rest.sum()),
        "balanced_truth": float(np.mean(found)),
        "balanced": said.balanced,
        "commonest_truth": float(np.bincount(truth).max() / truth.size),
        "commonest": said.commonest,
    }


def draw(folder: str, name: str, seed: int, most: int) -> dict[str, Any]:
    """Run all ways of drawing labels and all budgets for one data set and one seed."""
    from partwise import PartsClassifier

    warnings.simplefilter("ignore")
    X, y = samples(Path(folder), name, most)
    model = PartsClassifier(warm_start=True).prepare(X)
    found: dict[str, Any] = {}
    for way in WAYS:
        if way == "queue":
            if y.max() < 30:  # the studio's page has no room for more classes
                for m, known in labels_by_suggest(model, y, seed):
                    if np.unique(known[known >= 0]).size < 2:
                        continue
                    found[f"{name}/{way}/{m}/{seed}"] = estimates_and_truth(model, known, y)
            continue
        truth = np.random.RandomState(seed).permutation(y) if way == "noise" else y
        for m in BUDGETS:
            known = draw_labels(truth, way, m, seed)
            few = (known >= 0).sum() <= min(LABELS, 0.6 * y.size)
            if few and np.unique(known[known >= 0]).size > 1:
                found[f"{name}/{way}/{m}/{seed}"] = estimates_and_truth(model, known, truth)
    return {key: value for key, value in found.items() if value is not None}


def half_labelled(folder: str, name: str, seed: int, most: int) -> dict[str, float]:
    """Label five samples of half of the classes, and score samples of the other classes."""
    from partwise import PartsClassifier

    warnings.simplefilter("ignore")
    X, y = samples(Path(folder), name, most)
    known = draw_labels(y, "even", 5, seed)
    use = np.random.RandomState(seed).permutation(y.max() + 1)[: (y.max() + 2) // 2]
    known[~np.isin(known, use)] = -1
    model = PartsClassifier().fit(X, known)
    rest = known < 0
    far, other = model.outlyingness()[rest], ~np.isin(y[rest], use)
    return {
        "found": float(np.mean(far[other] > 0.95)),
        "false": float(np.mean(far[~other] > 0.95)),
        "at_5": float(np.mean(far[other] > np.quantile(far[~other], 0.95))),
        "foretold": model.others_found_,
    }


def others(tasks: list[tuple[str, str, int, int]], workers: Any) -> str:
    """Return a table of means over draws, for each data set of four classes or more."""
    tasks = [t for t in tasks if samples(Path(t[0]), t[1], t[3])[1].max() >= 3]
    found: dict[str, list[dict[str, float]]] = {}
    for task, row in zip(tasks, workers.map(half_labelled, *zip(*tasks, strict=True))):
        found.setdefault(task[1], []).append(row)
    lines = ["| set | found | false alarms | found at 5% false alarms | estimated |"]
    lines.append("|---|---:|---:|---:|---:|")
    means = {
        name: [float(np.mean([row[key] for row in rows])) for key in rows[0]]
        for name, rows in sorted(found.items())
    }
    means["mean"] = np.mean(list(means.values()), axis=0).tolist()
    for name, row in means.items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * v:.0f}%" for v in row) + " |")
    return "\n".join(lines)


def reported_wrong_labels(
    folder: str, name: str, seed: int, most: int
) -> list[tuple[float, float, float, bool]]:
    """Make some labels wrong, and return those that the model reports as wrong.

    Each item is (share of wrong labels, reported probability, count, is wrong). Labels that are not
    reported are counted together, with probability 0.
    """
    from partwise import PartsClassifier

    warnings.simplefilter("ignore")
    X, y = samples(Path(folder), name, most)
    model, c = PartsClassifier(warm_start=True).prepare(X), int(y.max()) + 1
    drawn = [draw_labels(y, way, m, seed) for way in ("even", "random") for m in (5, 10)]
    drawn += [known for m, known in labels_by_suggest(model, y, seed) if m == 5 and c < 30]
    found = []
    for known in drawn:
        rows = np.flatnonzero(known >= 0)
        if rows.size > min(LABELS, 0.6 * y.size):
            continue
        for share in WRONG:
            rng, told = np.random.RandomState(seed), known.copy()
            wrong = rng.permutation(rows)[: rng.binomial(rows.size, share)]
            told[wrong] = (y[wrong] + rng.randint(1, c, wrong.size)) % c
            listed = {doubt.sample: doubt for doubt in model.relabel(told).doubtful_labels_}
            found += [(share, d.probability, 1.0, d.sample in wrong) for d in listed.values()]
            for is_wrong in (False, True):
                left = [i for i in model.held_out_[0] if (i in wrong) == is_wrong]
                found.append((share, 0.0, len(set(left) - set(listed)), is_wrong))
    return found


def doubts_table(rows: list[tuple[float, float, float, bool]]) -> str:
    lines = ["| wrong labels | probability | labels | mean | wrong | share of all wrong ones |"]
    lines.append("|---:|---|---:|---:|---:|---:|")
    share, said, count, wrong = np.array(rows, dtype=float).T
    for of in WRONG:
        here = share == of
        for low, high in ((0.5, 0.7), (0.7, 0.9), (0.9, 1.01), (0.5, 1.01)):
            at = here & (said >= low) & (said < high)
            everyone = count[here & (wrong > 0)].sum()
            recall = f"{100 * wrong[at].sum() / everyone:.0f}%" if everyone else ""
            means = f"{said[at].mean():.2f} | {wrong[at].mean():.2f}" if at.any() else " | "
            name = "all" if high - low > 0.5 else f"{low} to {min(high, 1)}"
            lines.append(f"| {100 * of:.0f}% | {name} | {at.sum()} | {means} | {recall} |")
        lines.append(
            f"| {100 * of:.0f}% | not called wrong | {count[here & (said == 0)].sum():.0f} | | | |"
        )
    return "\n".join(lines)


# -- constants of the calibration --------------------------------------------------------------


def columns(rows: list[dict[str, Any]], *names: str) -> list[Any]:
    return [np.array([row[name] for row in rows], dtype=float) for name in names]


def logit(p: Any) -> Any:
    from partwise.classify.calibration import EDGE

    p = np.clip(p, EDGE, 1 - EDGE)
    return np.log(p / (1 - p))


def fit(rows: list[dict[str, Any]], counts: Any, kept: Any) -> tuple[Any, Any]:
    """Fit SHARE by least absolute errors of the accuracy, and WIDTH by its 2.5% quantiles.

    SHARE uses only data sets that are not ``kept``, and WIDTH uses all, because quantiles need many
    draws.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    sure, agreement, n, c, truth, rest = columns(
        rows, "sure", "agreement", "labels", "classes", "truth", "samples"
    )
    few, s, h = 1 / np.sqrt(n), logit(sure), logit(agreement)
    A = np.stack([np.ones_like(n), s, s * few, h, h * few], axis=1)
    w, own = counts / counts.sum(), counts * ~kept / counts[~kept].sum()

    def off(b: Any) -> float:
        # The loss is the absolute error, smoothed within two points.
        return float(own @ np.hypot(expit(A @ b) - truth, 0.02) + 1e-5 * b @ b)

    share = minimize(off, np.array([0, 1.0, 0, 0, 0])).x.round(2)
    # The share of correct predictions is (correct + ½) / (samples + 1), so that the logit of 100%
    # is finite.
    left = logit((truth * rest + 0.5) / (rest + 1)) - A @ share

    def reach(sign: float) -> Any:
        """Fit the distance to an end of the interval as exp(a + b log(labels per class))."""

        def missed(b: Any) -> float:
            over = sign * left - np.exp(b[0] + b[1] * np.log(n / c))
            return float(w @ np.where(over > 0, 0.975 * over, -0.025 * over) + 1e-4 * b[1] ** 2)

        starts = [(a, b) for a in (0.3, 0.7) for b in (0.0, -0.3)]
        return min(
            (minimize(missed, at, method="Nelder-Mead") for at in starts), key=lambda r: r.fun
        ).x

    (low, few_low), (high, few_high) = reach(-1.0), reach(1.0)
    return share, np.array([low, high, few_low, few_high]).round(2)


def cells(store: dict[str, Any]) -> tuple[list[dict[str, Any]], Any, Any]:
    """Return rows (data set, way, number of labels), their weights, and which are held out."""
    rows = []
    for key, value in sorted(store.items()):
        name, way, m, _ = key.split("/")
        rows.append({**value, "set": name, "way": way, "m": int(m)})
    names = sorted({row["set"].removeprefix("few_") for row in rows})
    kept = np.array([names.index(row["set"].removeprefix("few_")) % 3 == 2 for row in rows])
    same = [(row["set"], row["way"], row["m"]) for row in rows]
    counts = [
        (NOISE if way == "noise" else 1.0) / same.count((name, way, m)) for name, way, m in same
    ]
    return rows, np.array(counts), kept


def table(rows: list[dict[str, Any]], kept: Any) -> str:
    """Tabulate mean error and bias in points, and the coverage of the intervals.

    The column of noise is the mean error that chance alone causes. It is that of a share estimated
    from as many held-out labels, if these are predicted as accurately as the others.
    """
    from scipy.stats import binom

    from partwise.classify.calibration import expected

    said = np.array(
        [expected(*(row[k] for k in ("sure", "agreement", "labels", "classes"))) for row in rows]
    )
    truth, held, n = columns(rows, "truth", "held", "held_out")
    z = 1.96**2
    middle = (held + z / (2 * n)) / (1 + z / n)
    half = np.sqrt(z * held * (1 - held) / n + z * z / (4 * n * n)) / (1 + z / n)
    noise = np.array(
        [
            binom(int(k), t).expect(lambda right, k=k, t=t: abs(right / k - t))
            for k, t in zip(n, truth)
        ]
    )
    names = "labels, sets, cells, error, noise, bias, inside, width, held-out error, inside"
    lines = [
        "| " + names.replace(", ", " | ") + " |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for which, mask in (("fitted", ~kept), ("others", kept)):
        for way in WAYS:
            for m in (*BUDGETS, 0):
                at = mask & np.array([r["way"] == way and r["m"] in (m, m or r["m"]) for r in rows])
                if not at.any():
                    continue
                e, (_, low, high) = said[at, 0] - truth[at], said[at].T
                inside = (low <= truth[at]) & (truth[at] <= high)
                plain = np.abs(held - truth)[at]
                binomial = (np.abs(truth - middle) <= half)[at]
                lines.append(
                    f"| {way} {m or 'all'} | {which} | {at.sum()} | {100 * np.abs(e).mean():.1f} | "
                    f"{100 * noise[at].mean():.1f} | {100 * e.mean():+.1f} | "
                    f"{100 * inside.mean():.0f}% | {100 * (high - low).mean():.0f} | "
                    f"{100 * plain.mean():.1f} | {100 * binomial.mean():.0f}% |"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("PARTWISE_DATA", "."), type=Path)
    parser.add_argument("--sets", default="")
    parser.add_argument("--draws", default=2, type=int)
    parser.add_argument("--most", default=1500, type=int)
    parser.add_argument("--jobs", default=1, type=int)
    parser.add_argument("--out", default=RESULTS, type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--others", action="store_true", help="none of these, instead")
    parser.add_argument("--doubts", action="store_true", help="labels called wrong, instead")
    chosen = parser.parse_args()
    few = {path.stem for path in chosen.data.glob("few_*.npz")} - set(SETS.values())
    names = chosen.sets.split(",") if chosen.sets else sorted({*SETS, *few, *BUNDLED})
    store = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    tasks = [
        (str(chosen.data), name, seed, chosen.most)
        for seed in range(chosen.draws)
        for name in names
        if chosen.others
        or chosen.doubts
        or not any(key.startswith(f"{name}/") and key.endswith(f"/{seed}") for key in store)
    ]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"  # each worker process computes with one thread
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.jobs, mp_context=context) as workers:
        if chosen.others:
            print(others(tasks, workers))
            return
        if chosen.doubts:
            found = workers.map(reported_wrong_labels, *zip(*tasks, strict=True))
            print(doubts_table([row for rows in found for row in rows]))
            return
        for task, done in zip(tasks, workers.map(draw, *zip(*tasks, strict=True)) if tasks else ()):
            store.update(done)
            print(*task[1:3], "done", flush=True)
            text = json.dumps(store, indent=0, sort_keys=True)
            chosen.out.write_text(text + "\n", encoding="utf-8")
    rows, counts, kept = cells(store)
    if chosen.fit:
        share, width = fit(rows, counts, kept)
        print(f"SHARE = {tuple(share.tolist())}\nWIDTH = {tuple(width.tolist())}")
    head = (
        "# Errors of the expected accuracy\n\nTo repeat: `python -m benchmarks.expected`. Noise is "
        "the error that chance alone causes\nin a share estimated from as many held-out labels.\n\n"
    )
    page = head + table(rows, kept)
    chosen.out.with_suffix(".md").write_text(page + "\n", encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
