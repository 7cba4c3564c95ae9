"""What pairs of samples and checked labels are worth.

    python -m benchmarks.links pairs [--draws 5] [--jobs 2]     accuracy against the number of pairs
    python -m benchmarks.links doubts                           labels made wrong, and found

Needs PARTWISE_DATA. Pairs are drawn at random from all pairs, and told must or cannot by the truth,
which nothing else sees; all settings are the defaults. With ``--peer FOLDER``, where the package
active-semi-supervised-clustering was unpacked, its PCK-means and COP-means run on the same codes.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np
from joblib import Parallel, delayed

from partwise import GNMF, PartsClassifier, datasets
from partwise.metrics import clustering_accuracy

PAIRS = (0, 50, 100, 200, 400)


def draw(y, count, seed):
    """Random pairs: those of one class, and the others."""
    rng, found = np.random.default_rng(seed), set()
    while len(found) < count:
        i, j = sorted(int(k) for k in rng.integers(len(y), size=2))
        if i != j:
            found.add((i, j))
    must = [(i, j) for i, j in sorted(found) if y[i] == y[j]]
    return must, [(i, j) for i, j in sorted(found) if y[i] != y[j]]


def fitted(X, y, graph_reg, must, cannot):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GNMF(len(set(y)), graph_reg=graph_reg, random_state=0)
        return model.fit(X, must_link=must, cannot_link=cannot)


def one(name, graph_reg, count, seed, peer):
    """Accuracy of the clusters with so many pairs; of the peers', on the codes without pairs."""
    data = datasets.load(name)
    X, y = data.X, np.asarray(data.y)
    must, cannot = draw(y, count, seed)
    row = {"links": clustering_accuracy(y, fitted(X, y, graph_reg, must, cannot).cluster_labels_)}
    if peer:
        V = fitted(X, y, graph_reg, None, None).embedding_
        row |= peers(V, y, must, cannot, seed)
    return (name, graph_reg, count, seed), row


def peers(V, y, must, cannot, seed):
    from active_semi_clustering.semi_supervised.pairwise_constraints import COPKMeans, PCKMeans

    V, found = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12), {}
    for label, make in (("PCK-means", PCKMeans), ("COP-means", COPKMeans)):
        scores = []
        for again in range(5):  # no restarts of its own; it raises where a cluster empties
            np.random.seed(100 * seed + again)  # noqa: NPY002
            try:
                scores.append(
                    clustering_accuracy(y, make(len(set(y))).fit(V, ml=must, cl=cannot).labels_)
                )
            except Exception:
                continue
        found[label] = float(np.mean(scores)) if scores else np.nan
    return found


def pairs(args):
    if args.peer:
        sys.path.insert(0, args.peer)
    work = [
        (name, reg, count, seed, args.peer)
        for name in args.sets
        for reg in args.graph_reg
        for count in PAIRS
        for seed in (range(args.first, args.first + args.draws) if count else [0])
    ]
    print("set, graph_reg, pairs: mean accuracy (draws), points above none")
    rows = Parallel(n_jobs=args.jobs)(delayed(one)(*case) for case in work)
    none = {key[:2]: row["links"] for key, row in rows if key[2] == 0}
    for name, reg, count in dict.fromkeys(key[:3] for key, _ in rows):
        here = [row for key, row in rows if key[:3] == (name, reg, count)]
        mean = {label: np.nanmean([row[label] for row in here]) for label in here[0]}
        all_draws = " ".join(f"{row['links']:.3f}" for row in here)
        others = "  ".join(f"{label} {m:.3f}" for label, m in mean.items() if label != "links")
        gain = 100 * (mean["links"] - none[name, reg])
        print(
            f"{name:8} {reg:5g} {count:4}  {mean['links']:.3f} ({all_draws})  {gain:+.1f}  {others}"
        )


def doubts(args):
    data = datasets.load("coil20")
    X, y = data.X, np.asarray(data.y)
    classes, model = np.unique(y), None
    print("COIL20, 30 % of the given labels wrong: labels a class, draw, precision, recall")
    for each in (5, 10, 20, 72):
        for seed in range(args.draws):
            rng = np.random.default_rng(seed)
            drawn = [rng.permutation(np.flatnonzero(y == c))[:each] for c in classes]
            given = np.concatenate(drawn)
            wrong = rng.permutation(given)[: int(0.3 * len(given))]
            known = np.full(len(y), -1)
            known[given] = y[given]
            known[wrong] = [rng.choice(classes[classes != y[i]]) for i in wrong]
            model = PartsClassifier().fit(X, known) if model is None else model.relabel(known)
            listed = [doubt.sample for doubt in model.doubtful_labels_]
            hits = np.isin(listed, wrong).sum()
            print(f"{each:3} {seed}  {hits / max(len(listed), 1):.2f}  {hits / len(wrong):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["pairs", "doubts"])
    parser.add_argument("--sets", nargs="+", default=["orl", "coil20"])
    parser.add_argument("--graph-reg", nargs="+", type=float, default=[1.0])
    parser.add_argument("--first", type=int, default=0, help="the first draw")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peer", help="folder of the unpacked peer")
    args = parser.parse_args()
    {"pairs": pairs, "doubts": doubts}[args.what](args)


if __name__ == "__main__":
    main()
