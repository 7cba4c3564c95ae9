"""Accuracy gained by pairs of samples, and wrong labels found.

    python -m benchmarks.links pairs [--draws 10] [--jobs 2]    accuracy against the number of pairs
    python -m benchmarks.links doubts                           wrong labels that are found

PARTWISE_DATA must be set. Pairs are drawn at random, and the true classes decide whether they must
or cannot belong together. Each fit runs with the default graph weight, and with the weight among
0.01, 0.1, 1, 10 and 100 that `partwise.select` chooses by the same pairs. Without pairs, clusters
come from k-means or from merged part weights. With ``--peer FOLDER``, the unpacked package
active-semi-supervised-clustering runs its PCK-means and COP-means on the part weights of the
default fit.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np
from joblib import Parallel, delayed

from partwise import GNMF, PartsClassifier, datasets, select
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.linkage import linked_clusters
from partwise.knowledge.links import Links
from partwise.metrics import clustering_accuracy

PAIRS = (0, 50, 100, 200, 400)
WEIGHTS = [0.01, 0.1, 1.0, 10.0, 100.0]


def draw(y, count, seed):
    """Return random pairs of samples of the same class, and random pairs of different classes."""
    rng, found = np.random.default_rng(seed), set()
    while len(found) < count:
        i, j = sorted(int(k) for k in rng.integers(len(y), size=2))
        if i != j:
            found.add((i, j))
    must = [(i, j) for i, j in sorted(found) if y[i] == y[j]]
    return must, [(i, j) for i, j in sorted(found) if y[i] != y[j]]


def loaded(name):
    data = datasets.load(name)
    return data.X, np.asarray(data.y)


class Kept(GNMF):
    """GNMF that reuses fits without pairs, which every draw of `select` needs."""

    made = {}

    def fit(self, X, y=None, **rest):
        self.__dict__.update(self.made[self.graph_reg].__dict__)
        return self


def without(name, weight):
    """Return the fit of a data set without pairs, for one graph weight."""
    warnings.simplefilter("ignore")
    X, y = loaded(name)
    return GNMF(len(set(y)), graph_reg=weight, random_state=0).fit(X)


def one(name, count, seed, peer, made):
    """Return the accuracy with `count` random pairs; peers use the part weights without pairs."""
    warnings.simplefilter("ignore")
    X, y = loaded(name)
    k, plain, Kept.made = len(set(y)), made[1.0], made
    if not count:
        none = Links(*np.empty((2, 0, 2), int), len(y))
        merged = linked_clusters(unit_rows(plain.embedding_), k, none)
        scores = {"k-means": plain.cluster_labels_, "merged": merged}
        return {how: clustering_accuracy(y, found) for how, found in scores.items()}
    must, cannot = draw(y, count, seed)
    pairs = {"must_link": must, "cannot_link": cannot}
    weight = select(X, Kept(k, random_state=0), {"graph_reg": WEIGHTS}, **pairs, random_state=0)
    chosen = weight.best["graph_reg"]
    row = {"must": len(must), "chosen": chosen}
    fits = {reg: GNMF(k, graph_reg=reg, random_state=0).fit(X, **pairs) for reg in {1.0, chosen}}
    row["default weight"] = clustering_accuracy(y, fits[1.0].cluster_labels_)
    row["weight by pairs"] = clustering_accuracy(y, fits[chosen].cluster_labels_)
    return row | (peers(plain.embedding_, y, must, cannot, seed) if peer else {})


def peers(V, y, must, cannot, seed):
    from active_semi_clustering.semi_supervised.pairwise_constraints import COPKMeans, PCKMeans

    V, found = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12), {}
    for label, make in (("PCK-means", PCKMeans), ("COP-means", COPKMeans)):
        scores = []
        # The packages have no restarts, and raise an error if a cluster is empty.
        for again in range(2):
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
    draws = range(args.first, args.first + args.draws)
    run = Parallel(n_jobs=args.jobs)
    plain = [(name, weight) for name in args.sets for weight in WEIGHTS]
    found = dict(zip(plain, run(delayed(without)(*case) for case in plain), strict=True))
    made = {name: {w: found[name, w] for w in WEIGHTS} for name in args.sets}
    work = [(name, 0, args.first) for name in args.sets]
    work += [(name, n, seed) for n in PAIRS[:0:-1] for seed in draws for name in args.sets[::-1]]
    rows = run(delayed(one)(*case, args.peer, made[case[0]]) for case in work)
    rows = dict(zip(work, rows, strict=True))
    print("accuracy: mean over draws +- its standard error (points above k-means without pairs)")
    for name in args.sets:
        none = rows[name, 0, args.first]
        print(
            f"{name}: without pairs", *(f"{how} {100 * score:.1f}" for how, score in none.items())
        )
        for count in PAIRS[1:]:
            here = [rows[name, count, seed] for seed in draws]
            said = []
            for how in [key for key in here[0] if key not in ("must", "chosen")]:
                scores = 100 * np.array([row[how] for row in here])
                mean, error = np.nanmean(scores), np.nanstd(scores, ddof=1) / len(scores) ** 0.5
                said.append(
                    f"{how} {mean:.1f} +- {error:.1f} ({mean - 100 * none['k-means']:+.1f})"
                )
            chosen = " ".join(f"{row['chosen']:g}" for row in here)
            musts = np.mean([row["must"] for row in here])
            print(f"  {count} pairs ({musts:.0f} must):", "; ".join(said), f"| weights {chosen}")


def doubts(args):
    data = datasets.load("coil20")
    X, y = data.X, np.asarray(data.y)
    classes, model = np.unique(y), None
    print("COIL20, 30% of the given labels wrong: labels per class, draw, precision, recall")
    for each in (5, 10, 20, 72):
        for seed in range(args.first, args.first + args.draws):
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
    parser.add_argument("--first", type=int, default=0, help="the first draw")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peer", help="folder of the unpacked peer")
    args = parser.parse_args()
    {"pairs": pairs, "doubts": doubts}[args.what](args)


if __name__ == "__main__":
    main()
