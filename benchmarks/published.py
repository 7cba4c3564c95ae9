"""Published protocols with few labels: GraphLearning, SetFit and MTEB classification.

    python -m benchmarks.published graphlearning FOLDER [--trials 10] [--set FashionMNIST]
    python -m benchmarks.published setfit FOLDER [--encoder NAME]
    python -m benchmarks.published mteb FOLDER --encoder NAME

They run if their data is there. GraphLearning: a copy of its repository, and ``SET_raw.npz`` with
the array ``data`` (n_samples, n_features) in its folder ``Data``. SetFit and MTEB: one folder per
data set with ``train.jsonl`` and ``test.jsonl``, whose lines have ``text`` and ``label``, as on
huggingface.co. The result is a table with the published numbers next to ours.
"""

from __future__ import annotations

import argparse
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

#: Mean accuracy of SetFit with MPNet at 8 and 64 labels per class (Tunstall et al. 2022, table 2).
SETFIT = {
    "sst5": (43.6, 51.9),
    "amazon_counterfactual_en": (40.3, 61.9),
    "SentEval-CR": (88.5, 90.4),
    "emotion": (48.8, 76.2),
    "enron_spam": (90.1, 96.1),
    "ag_news": (82.9, 88.0),
}
#: Methods of GraphLearning in the table: the best one, and two that do not need class sizes.
METHODS = ("poissonmbo", "poisson", "laplace")
#: Maximum number of test texts. By default, all texts of a data set are encoded at once.
MOST_TEST = 2000


# -- data ------------------------------------------------------------------------------------------


class _Arrays(pickle.Unpickler):
    """Reader of pickled arrays of arrays, which cannot import anything except NumPy."""

    allowed = ("_reconstruct", "ndarray", "dtype", "encode", "scalar")

    def find_class(self, module: str, name: str) -> Any:
        if name not in self.allowed or module.split(".")[0] not in ("numpy", "_codecs"):
            raise pickle.UnpicklingError(f"{module}.{name} is no array.")
        if module.startswith("numpy.core"):
            module = module.replace("numpy.core", "numpy._core", 1)
        return super().find_class(module, name)


def permutations(path: Path) -> list[Any]:
    """Return the labelled samples of each trial from a file of GraphLearning.

    The file contains an array of arrays, which NumPy reads only with pickle.
    """
    with zipfile.ZipFile(path) as archive, archive.open("perm.npy") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.kind != "O":
            return list(np.load(path, allow_pickle=False)["perm"])
        found = _Arrays(BytesIO(file.read()), encoding="latin1").load()
    return [np.asarray(rows, dtype=np.int64) for rows in np.reshape(found, shape).ravel()]


def published_accuracies(path: Path) -> dict[int, float]:
    """Return the mean accuracy by number of labels from a file of GraphLearning."""
    lines = [line.split(",") for line in path.read_text("utf-8").splitlines()[1:] if line.strip()]
    rows = np.array([[float(value) for value in line] for line in lines])
    return {int(n): float(rows[rows[:, 0] == n, 1].mean()) for n in np.unique(rows[:, 0])}


def text_set(folder: Path) -> tuple[list[str], Any, list[str], Any]:
    """Return the texts and labels of training and test samples.

    At most `MOST_TEST` test samples are used.
    """
    found: list[Any] = []
    for part in ("train", "test"):
        lines = (folder / f"{part}.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        found += [[row["text"] for row in rows], np.array([row["label"] for row in rows])]
    if len(found[2]) > MOST_TEST:
        some = np.random.RandomState(0).permutation(len(found[2]))[:MOST_TEST]
        found[2:] = [[found[2][i] for i in some], found[3][some]]
    return found[0], found[1], found[2], found[3]


def per_class(y: Any, m: int, seed: int) -> Any:
    """Return the indices of m random samples of each class."""
    order = np.random.RandomState(seed).permutation(len(y))
    return np.sort(np.concatenate([order[y[order] == c][:m] for c in np.unique(y)]))


# -- protocols -------------------------------------------------------------------------------------


def graph_learning(folder: Path, name: str, trials: int) -> Iterator[list[Any]]:
    """Yield a row per number of labels: our accuracy, and the published means."""
    from partwise import PartsClassifier

    X = np.load(folder / "Data" / f"{name}_raw.npz", allow_pickle=False)["data"]
    y = np.load(folder / "Data" / f"{name}_labels.npz", allow_pickle=False)["labels"]
    results = folder / "ResultsFromPaper"
    paths = {m: results / f"{name}_vae_k10_{m}_accuracy.csv" for m in METHODS}
    theirs = {m: published_accuracies(path) for m, path in paths.items() if path.exists()}
    model, found = PartsClassifier(warm_start=True), {}
    for rows in permutations(folder / "LabelPermutations" / f"{name}_permutations.npz"):
        cell = found.setdefault(len(rows), [])
        if len(cell) < trials:
            known = np.full(len(y), -1)
            known[rows] = y[rows]
            model.fit(X, known)
            rest = known < 0
            cell.append(100 * float(np.mean(model.transduction_[rest] == y[rest])))
    for n in sorted(found):
        others = [f"{theirs[m][n]:.1f}" if n in theirs.get(m, {}) else "-" for m in METHODS]
        yield [name, n, len(found[n]), f"{np.mean(found[n]):.1f}", *others]


def _inductive(train: Any, y: Any, test: Any, also: tuple[Any, Any] | None = None) -> Any:
    """Return the predictions of test samples, which take part in the fit without labels."""
    import scipy.sparse as sp

    from partwise import PartsClassifier

    stack = sp.vstack if sp.issparse(train) else np.vstack
    labels = np.concatenate([y.astype(object), np.full(test.shape[0], None)])
    views = None if also is None else [np.vstack(also)]
    model = PartsClassifier().fit(stack([train, test]), labels, also=views)
    return model.transduction_[len(y) :]


def setfit(folder: Path, encode: Callable[[list[str]], Any] | None, seeds: int) -> Iterator[Any]:
    """Yield a row per data set and number of labels per class: our accuracy, and that of SetFit."""
    from sklearn.feature_extraction.text import CountVectorizer

    for path in sorted(p for p in folder.iterdir() if (p / "train.jsonl").exists()):
        texts, y, test, truth = text_set(path)
        words = CountVectorizer(min_df=2).fit([*texts, *test])
        for column, m in enumerate((8, 64)):
            scores = []
            for seed in range(seeds):
                rows = per_class(y, m, seed)
                mine = [texts[i] for i in rows]
                also = None if encode is None else (encode(mine), encode(test))
                found = _inductive(
                    words.transform(mine).astype(float), y[rows],
                    words.transform(test).astype(float), also,
                )  # fmt: skip
                scores.append(100 * float(np.mean(found == truth)))
            theirs = f"{SETFIT[path.name][column]:.1f}" if path.name in SETFIT else "-"
            row = [f"{np.mean(scores):.1f}", f"{np.std(scores):.1f}", theirs]
            yield [path.name, m, seeds, *row]


def mteb(folder: Path, encode: Callable[[list[str]], Any], draws: int) -> Iterator[list[Any]]:
    """Yield a row per data set: our accuracy, and that of logistic regression.

    Both use the same embeddings.
    """
    for path in sorted(p for p in folder.iterdir() if (p / "train.jsonl").exists()):
        texts, y, test, truth = text_set(path)
        Z, Z_test = encode(texts), encode(test)
        ours, theirs = [], []
        for seed in range(draws):
            rows = per_class(y, 8, seed)
            ours.append(100 * float(np.mean(_inductive(Z[rows], y[rows], Z_test) == truth)))
            plain = LogisticRegression(max_iter=100).fit(Z[rows], y[rows])
            theirs.append(100 * float(np.mean(plain.predict(Z_test) == truth)))
        yield [path.name, 8, draws, f"{np.mean(ours):.1f}", f"{np.mean(theirs):.1f}"]


HEADS = {
    "graphlearning": ["set", "labels", "trials", "PartsClassifier", *METHODS],
    "setfit": ["set", "labels per class", "seeds", "PartsClassifier", "deviation", "SetFit"],
    "mteb": ["set", "labels per class", "draws", "PartsClassifier", "logistic regression"],
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("protocol", choices=HEADS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="FashionMNIST")
    parser.add_argument("--trials", default=10, type=int)
    parser.add_argument("--encoder", help="name of an encoder whose weights are there")
    given = parser.parse_args(arguments)
    encode = None
    if given.encoder:
        from partwise import encode as by_name

        def encode(texts: list[str]) -> Any:
            return by_name(texts, given.encoder, offline=True)

    if given.protocol == "graphlearning":
        rows = graph_learning(given.folder, given.set, given.trials)
    elif given.protocol == "setfit":
        rows = setfit(given.folder, encode, given.trials)
    elif encode is None:
        parser.error("mteb needs --encoder NAME.")
    else:
        rows = mteb(given.folder, encode, given.trials)
    heads = HEADS[given.protocol]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
