"""Accuracy with few labels: `PartsClassifier` compared with 17 scikit-learn classifiers.

    python -m benchmarks.answers --data FOLDER [--sets bbc,orl] [--draws 5] [--jobs 2]

The benchmark uses twenty public data sets; larger ones are reduced to 3,000 samples, drawn with
seed 0. It tries 2, 5 and 10 labels per class where classes are large enough, and labels drawn at
random, five times the number of classes. Accuracy is measured on the unlabelled samples.

Results are stored in ``benchmarks/results/answers.json`` after every set, so an interrupted run can
be resumed; the page is ``answers.md``. ``--first 100`` uses other draws than the table, ``--time``
measures the seconds of a fit and of one more label, and ``--page`` only writes the page.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "answers.json"
SETS = {
    "bbc": "bbc_news",
    "news20": "news20",
    "worm": "worm_neuron_sc",
    "tdt2": "tdt2_top30",
    "coil20": "coil20",
    "pie": "pie_pose27",
    "orl": "orl_32x32",
    "yale": "yale_32x32",
}
#: Data sets: eight of earlier versions, and others of many kinds from files few_*.npz.
NEW = "satellite vehicle soybean spam fine_foods spamassassin fashion italypower pbmc_raw penbased"
SETS |= {name: f"few_{name}" for name in (NEW + " hpc osuleaf").split()}
#: Data sets that were not used while the method was developed.
UNSEEN = ("orl", "worm", "vehicle", "spam", "pbmc_raw")
BUDGETS = (2, 5, 10)
#: `RANDOM` stands for labels of random samples: `PER_CLASS` times the number of classes.
RANDOM, PER_CLASS = 0, 5
MOST = 3000
BINS = 10


@lru_cache(maxsize=1)
def load(folder: Path, name: str) -> tuple[Any, Any]:
    """Return the samples of a data set as stored, and their classes as integers."""
    import numpy as np
    import scipy.sparse as sp

    file = np.load(folder / f"{SETS[name]}.npz")
    if "indptr" in file:
        parts = (file["data"].astype(float), file["indices"].astype(np.int32), file["indptr"])
        X = sp.csr_array(parts, shape=tuple(file["shape"]))
    else:
        X = file["X"] / file["scale"] if "scale" in file else file["X"].astype(float)
    y = np.unique(file["y"], return_inverse=True)[1]
    if X.shape[0] > MOST:
        rows = np.random.RandomState(0).permutation(X.shape[0])[:MOST]
        X, y = X[rows], y[rows]
    return X, y


def budgets(y: Any, left: int) -> list[int]:
    """Return the numbers of labels per class that leave enough samples to predict.

    The number 0 (`RANDOM`) stands for labels of random samples.
    """
    import numpy as np

    return [m for m in BUDGETS if np.bincount(y).min() >= m + left] + [RANDOM]


def draw(y: Any, m: int, seed: int) -> Any:
    """Return m labels of every class, or labels of random samples; -1 marks all other samples."""
    import numpy as np

    rng = np.random.RandomState(seed)
    known = np.full(y.size, -1)
    if m == RANDOM:
        mine = rng.permutation(y.size)[: PER_CLASS * np.unique(y).size]
        known[mine] = y[mine]
        return known
    for c in np.unique(y):
        mine = rng.permutation(np.flatnonzero(y == c))[:m]
        known[mine] = c
    return known


# -- classifiers that Partwise is compared with ------------------------------------------------


def baselines(X: Any) -> dict[str, Callable[[Any], tuple[Any, Any]]]:
    """Return the baseline classifiers as functions of the known labels.

    Each function returns predicted labels, and probabilities if possible. There are 17 scikit-learn
    classifiers on samples of unit length (counts: tf-idf) and on standardised columns. Sparse
    columns are divided by their standard deviation but not centred.
    """
    import numpy as np
    import scipy.sparse as sp
    from sklearn.decomposition import TruncatedSVD
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.naive_bayes import GaussianNB, MultinomialNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
    from sklearn.svm import SVC, LinearSVC

    from partwise.datasets import tfidf, unit_rows

    sparse = sp.issparse(X)
    X = sp.csr_matrix(X) if sparse else X
    P = sp.csr_matrix(tfidf(X)) if sparse else unit_rows(X)
    S = StandardScaler(with_mean=not sparse).fit_transform(X)

    def reduced(Z: Any) -> Any:
        return TruncatedSVD(min(100, min(Z.shape) - 1), random_state=0).fit_transform(Z)

    svd, svd_columns = reduced(P), reduced(S)
    counts = X if sparse or X.min() >= 0 else None

    def logistic(rounds: int = 300) -> Any:
        return LogisticRegression(C=10, max_iter=rounds)

    def validated(known: Any) -> tuple[Any, Any]:
        given = known >= 0
        least = np.unique(known[given], return_counts=True)[1].min()
        if least < 2:
            return inductive(logistic, P)(known)
        cv = LogisticRegressionCV(Cs=[0.1, 1, 10, 100], cv=int(min(least, 3)), max_iter=200)
        return inductive(lambda: cv, P)(known)

    def inductive(make: Callable[[], Any], Z: Any) -> Callable[[Any], tuple[Any, Any]]:
        def run(known: Any) -> tuple[Any, Any]:
            model = make().fit(Z[known >= 0], known[known >= 0])
            p = np.zeros((known.size, known.max() + 1))
            if not isinstance(model, LogisticRegression):
                return model.predict(Z), None
            p[:, model.classes_] = model.predict_proba(Z)
            return model.predict(Z), p

        return run

    def spreading(Z: Any) -> Callable[[Any], tuple[Any, Any]]:
        def run(known: Any) -> tuple[Any, Any]:
            return LabelSpreading(kernel="knn", n_neighbors=7).fit(Z, known).transduction_, None

        return run

    def self_training(Z: Any) -> Callable[[Any], tuple[Any, Any]]:
        def run(known: Any) -> tuple[Any, Any]:
            return SelfTrainingClassifier(logistic(100)).fit(Z, known).predict(Z), None

        return run

    def forest() -> Any:
        return RandomForestClassifier(300, random_state=0)

    return {
        "LogisticRegression": inductive(logistic, P),
        "LogisticRegression, columns": inductive(logistic, S),
        "LinearSVC": inductive(LinearSVC, P),
        "LinearSVC, columns": inductive(LinearSVC, S),
        "LogisticRegressionCV": validated,
        "LabelSpreading": spreading(P),
        "LabelSpreading, columns": spreading(S),
        "1-NN": inductive(lambda: KNeighborsClassifier(1), P),
        "1-NN, columns": inductive(lambda: KNeighborsClassifier(1), S),
        "SelfTraining": self_training(P),
        "SelfTraining, columns": self_training(S),
        "SVD + LogisticRegression": inductive(logistic, svd),
        "SVD + LogisticRegression, columns": inductive(logistic, svd_columns),
        "RandomForest": inductive(forest, X),
        "SVC (rbf), columns": inductive(lambda: SVC(C=10), S),
        "LDA": inductive(
            lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), svd_columns
        ),
        "naive Bayes": inductive(MultinomialNB, counts)
        if counts is not None
        else inductive(GaussianNB, S),
    }


def scored(names: Any, p: Any, y: Any, rest: Any) -> dict[str, float]:
    import numpy as np

    found = {"accuracy": float(np.mean(names[rest] == y[rest]))}
    # Share of the most frequent class.
    found["commonest"] = float(np.bincount(names[rest]).max() / rest.size)
    if p is not None:
        # Classes without a label have probability 0.
        p = np.pad(p, ((0, 0), (0, max(y.max() + 1 - p.shape[1], 0))))
        mine = np.nan_to_num(p)[rest, y[rest]]
        found["log_loss"] = float(-np.log(np.clip(mine, 1e-12, 1)).mean())
    return found


def calibration(p: Any, y: Any, rest: Any) -> list[list[float]]:
    """Return, per bin of confidence: the number of samples, and sums of three values.

    The values are the confidence c, whether the prediction is correct, and c (1 - c).
    """
    import numpy as np

    sure, right = p[rest].max(axis=1), p[rest].argmax(axis=1) == y[rest]
    at = np.minimum((sure * BINS).astype(int), BINS - 1)
    columns = (np.ones(sure.size), sure, right.astype(float), sure * (1 - sure))
    return [np.bincount(at, c, minlength=BINS).round(6).tolist() for c in columns]


# -- measurements ------------------------------------------------------------------------------


@lru_cache(maxsize=6)
def kept(name: str, which: str = "") -> Any:
    """Return the model of a data set, which computes features without labels only once."""
    from partwise import PartsClassifier

    return PartsClassifier(warm_start=True)


def whole(folder: Path, name: str, seed: int, m: int) -> dict[str, Any]:
    """Return the scores of PartsClassifier for one draw of labels of a data set."""
    import numpy as np

    X, y = load(folder, name)
    if m not in budgets(y, 2):
        return {}
    known = draw(y, m, seed)
    rest = np.flatnonzero(known < 0)
    model = kept(name).fit(X, known)
    p = np.zeros((y.size, y.max() + 1))
    p[:, model.classes_] = model.label_distributions_
    ours: dict[str, Any] = scored(model.transduction_, p, y, rest)
    ours |= {
        "expected": list(model.expected_accuracy_)[:3],
        "calibration": calibration(p, y, rest),
    }
    return {f"whole/{name}/{m}/{seed}": {"PartsClassifier": ours}}


def others(folder: Path, name: str, seed: int, m: int) -> dict[str, Any]:
    """Return the scores of the baselines for one draw of labels."""
    import numpy as np

    X, y = load(folder, name)
    if m not in budgets(y, 2):
        return {}
    known = draw(y, m, seed)
    rest = np.flatnonzero(known < 0)
    cell = {label: scored(*run(known), y, rest) for label, run in baselines(X).items()}
    return {f"whole/{name}/{m}/{seed}": cell}


def halves(folder: Path, name: str, seed: int, m: int) -> dict[str, Any]:
    """Fit one half of the samples, and return the accuracy on it and on the other half."""
    import numpy as np

    X, y = load(folder, name)
    rng = np.random.RandomState(1000 + seed)
    inside = np.zeros(y.size, dtype=bool)
    for c in np.unique(y):
        mine = rng.permutation(np.flatnonzero(y == c))
        inside[mine[: (mine.size + 1) // 2]] = True
    if m == RANDOM or m not in budgets(y[inside], 2):
        return {}
    known = draw(y[inside], m, seed)
    rest = known < 0
    model = kept(name, f"half {seed}").fit(X[inside], known)
    found = {
        "transduction": float(np.mean(model.transduction_[rest] == y[inside][rest])),
        "new": float(np.mean(model.predict(X[~inside]) == y[~inside])),
    }
    return {f"halves/{name}/{m}/{seed}": found}


@lru_cache(maxsize=1)
def pairs(folder: Path, name: str) -> dict[str, tuple[Any, Any]]:
    """Return pairs of views of the same samples: halves of the columns, or another description."""
    import numpy as np
    import scipy.sparse as sp
    from sklearn.decomposition import TruncatedSVD

    from partwise.classify.preparation import descriptions
    from partwise.datasets import tfidf

    X = load(folder, name)[0]
    mixed = np.random.RandomState(0).permutation(X.shape[1])
    half = mixed.size // 2
    made = {"halves": (X[:, mixed[:half]], X[:, mixed[half:]])}
    if sp.issparse(X):
        embedded = TruncatedSVD(50, random_state=0).fit_transform(sp.csr_matrix(tfidf(X)))
        return made | {"words, directions": (X, embedded)}
    width = descriptions(X).get("edges")
    if width:
        waves = np.abs(np.fft.fft2(X.reshape(len(X), -1, width)))[:, : width // 4, : width // 4]
        return made | {"pixels, waves": (X, waves.reshape(len(X), -1))}
    return made


def views(folder: Path, name: str, seed: int, m: int) -> dict[str, Any]:
    """Return the accuracy with each of two views alone, and with both."""
    import numpy as np

    _, y = load(folder, name)
    if m not in budgets(y, 2):
        return {}
    known = draw(y, m, seed)
    rest = known < 0
    found = {}
    for title, (A, B) in pairs(folder, name).items():
        fits = {"first": (A, None), "second": (B, None), "both": (A, [B])}
        key = f"views/{name}/{m}/{seed}/{title}"
        found[key] = {
            which: float(np.mean(model.fit(Z, known, also=also).transduction_[rest] == y[rest]))
            for which, (Z, also) in fits.items()
            for model in [kept(name, f"{title}, {which}")]
        }
    return found


def job(kind: str, folder: str, name: str, draws: list[tuple[int, int]]) -> dict[str, Any]:
    """Run the given draws and numbers of labels of one data set."""
    warnings.simplefilter("ignore")
    run = {"whole": whole, "others": others, "halves": halves, "views": views}[kind]
    found: dict[str, Any] = {}
    for seed, m in draws:
        found |= run(Path(folder), name, seed, m)
    return found


def texts(folder: Path) -> tuple[Any, Any]:
    import numpy as np

    X, y = load(folder, "news20")
    often = np.argsort(-np.asarray((X > 0).sum(axis=0)).ravel())[:20_000]
    return X[:, np.sort(often)], y


def pictures(folder: Path, n: int) -> tuple[Any, Any]:
    """Return n images of clothes in float32; beyond the data set, they are noisy copies of it."""
    import numpy as np

    X, y = load(folder, "fashion")
    rng = np.random.default_rng(0)
    rows = np.arange(n) if n <= len(y) else rng.integers(len(y), size=n)
    X = X[rows].astype(np.float32)
    if n > len(y):
        X *= rng.uniform(0.8, 1.2, (n, 1)).astype(np.float32)
        X += 8 * rng.standard_normal(X.shape, dtype=np.float32)
    return np.abs(X, out=X), y[rows]


def points(n: int, p: int) -> tuple[Any, Any]:
    """Return samples of ten Gaussian classes that differ in a few directions, in float32."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    centres = rng.standard_normal((10, p), dtype=np.float32)
    X = rng.standard_normal((n, 8), dtype=np.float32) @ rng.standard_normal(
        (8, p), dtype=np.float32
    )
    X += rng.standard_normal(X.shape, dtype=np.float32)
    return X + 2 * centres[y], y


def words(n: int, p: int, each: int = 60) -> tuple[Any, Any]:
    """Return word counts of synthetic texts of several classes.

    Half of the words of a text are among the hundred words of its class.
    """
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    any_word = (p * rng.random((n, each)) ** 3).astype(np.int32)
    own = 200 * (1 + y)[:, None] + rng.integers(100, size=(n, each))
    columns = np.where(rng.random((n, each)) < 0.1, own, any_word)
    starts = np.arange(0, n * each + 1, each)
    X = sp.csr_array((np.ones(n * each), columns.ravel(), starts), (n, p))
    X.sum_duplicates()
    return X, y


#: Data sets for the timings, as functions that return samples and classes.
TIMES: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "texts, 3,000 x 20,000": texts,
    "pictures, 3,000 x 784": lambda folder: pictures(folder, 3_000),
    "pictures, 20,000 x 784": lambda folder: pictures(folder, 20_000),
    "pictures, 60,000 x 784": lambda folder: pictures(folder, 60_000),
    "points, 1,000,000 x 100": lambda folder: points(1_000_000, 100),
    "words, 200,000 x 10,000": lambda folder: words(200_000, 10_000),
}


def timed(folder: Path, what: str, draws: int) -> dict[str, Any]:
    """Time a fit, a fit with one more label, and `relabel`; this needs an idle machine."""
    import resource

    import numpy as np

    from partwise import PartsClassifier
    from partwise.backends.threads import cores

    X, y = TIMES[what](folder)
    few = slice(None, None, len(y) // 300)
    # The first fit compiles the kernels.
    PartsClassifier(max_iter=2).fit(X[few], draw(y[few], 2, 0))
    found: dict[str, list[float]] = {"fit": [], "another label": [], "click": []}
    right = []
    for seed in range(draws):
        known, model = draw(y, 10, seed), PartsClassifier(warm_start=True)
        more = np.random.RandomState(seed).permutation(np.flatnonzero(known < 0))[:2].tolist()

        for kind in found:
            began = time.perf_counter()
            if kind == "click":
                model.relabel(known, weigh=False)
            else:
                model.fit(X, known)
            found[kind].append(round(time.perf_counter() - began, 3))
            if kind == "fit":
                right.append(float(np.mean(model.transduction_ == y)))
            if more:
                row = more.pop()
                known[row] = y[row]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = (X.data.nbytes + X.indices.nbytes if hasattr(X, "indptr") else X.nbytes) / 2**30
    return {**found, "right": right, "cores": cores(), "GiB": memory, "GiB of X": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("PARTWISE_DATA", "."), type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--draws", default=5, type=int)
    parser.add_argument("--first", default=0, type=int, help="seed of the first draw")
    parser.add_argument("--jobs", default=1, type=int)
    parser.add_argument("--out", default=RESULTS, type=Path)
    parser.add_argument("--kinds", default="whole,others,halves,views", help="some of these")
    parser.add_argument("--time", default="", help=f"only the seconds of one of {list(TIMES)}")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    from benchmarks.answers_table import write_table

    store = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(found: dict[str, Any]) -> None:
        for key, value in found.items():
            store[key] = {**store.get(key, {}), **value}
        part = given.out.with_suffix(".part")
        part.write_text(json.dumps(store, indent=0, sort_keys=True) + "\n")
        part.replace(given.out)

    if given.page:
        pass  # the page is written from stored results below
    elif given.time:
        found = timed(given.data, given.time, given.draws)
        keep({f"time/{given.time}/{found['cores']}": found})
    else:
        _run_all(given, store, keep)
    write_table(store, given.out.with_suffix(".md"))
    print(given.out.with_suffix(".md").read_text())


def _is_there(store: dict[str, Any], kind: str, name: str, seed: int, m: int) -> bool:
    if kind == "views":
        return f"views/{name}/{m}/{seed}/halves" in store
    found = store.get(f"{'halves' if kind == 'halves' else 'whole'}/{name}/{m}/{seed}", {})
    return {"whole": "PartsClassifier", "others": "LDA", "halves": "new"}[kind] in found


def _run_all(given: Any, store: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> None:
    tasks = []
    for kind in given.kinds.split(","):
        for name in given.sets.split(","):
            draws = [
                (seed, m)
                for seed in range(given.first, given.first + given.draws)
                for m in (*BUDGETS[::-1], RANDOM)
                if not _is_there(store, kind, name, seed, m)
            ]
            tasks += [(kind, str(given.data), name, draws)] if draws else []
    if given.jobs == 1:
        for task in tasks:
            keep(job(*task))
            print(*task[::2], "done", flush=True)
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # each worker process computes with one thread
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=context) as workers:
        running = {workers.submit(job, *task): task for task in tasks}
        for number, done in enumerate(as_completed(running), 1):
            keep(done.result())
            print(f"{number}/{len(tasks)}", *running[done][::2], flush=True)


if __name__ == "__main__":
    main()
