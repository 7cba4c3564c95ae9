"""Slow tests of accuracy on real data, of penalties in long fits, and of memory.

``pytest -rP`` prints every figure.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from backends import PEAK, linux
from methods import KL
from partwise import CDNMF, CNMF, GNMF, LCF, NMF, NMFDC, NSNMF, ConstrainedNMF, SemiGNMF
from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import clustering_accuracy, normalized_mutual_info
from partwise.io.datasets import keep_labels, unit_rows

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


# --------------------------------------------------------------------------------------------
# Clustering accuracies on COIL20 and ORL
# --------------------------------------------------------------------------------------------


def scores(dataset, **settings):
    """Return the mean clustering accuracy (AC) and normalized mutual information (NMI) of GNMF.

    Each of five random seeds runs 200 iterations on COIL20 and then k-means.
    """
    data = dataset("coil20")
    X = unit_rows(data.X.astype(float))
    found = []
    for seed in range(5):
        model = GNMF(20, solver="mu", scale="paper", max_iter=200, random_state=seed, **settings)
        labels = model.fit_predict(X)
        found.append([clustering_accuracy(data.y, labels), normalized_mutual_info(data.y, labels)])
    print(settings, "AC, NMI by seed:", np.round(found, 3).tolist())
    return np.mean(found, axis=0)


@pytest.mark.parametrize("n_init", [1, 10])
def test_gnmf_on_coil20(dataset, n_init):
    """Check GNMF against the figures of its authors' program: AC 77.3% and NMI 88.8%."""
    ac, nmi = scores(dataset, n_init=n_init)
    print(f"GNMF: AC {ac:.3f}, NMI {nmi:.3f}")
    assert ac >= 0.74 and nmi >= 0.86


@pytest.mark.parametrize("n_init", [1, 10])
def test_nmf_on_coil20(dataset, n_init):
    ac, nmi = scores(dataset, n_init=n_init, graph_reg=0.0)
    print(f"NMF: AC {ac:.3f}, NMI {nmi:.3f}")
    assert ac == pytest.approx(0.63, abs=0.04)


def test_lcf_on_orl(orl):
    """Check the clustering accuracy of LCF on ten people of ORL, with 200 iterations.

    The ten people are the first ten, and ten random choices.
    """
    people = np.unique(orl.y)
    tens = [people[:10]]
    tens += [np.random.RandomState(t).choice(people, 10, replace=False) for t in range(1, 11)]
    found = {"unit rows": [], "pixels": []}
    for chosen in tens:
        rows = np.isin(orl.y, chosen)
        pixels = orl.X[rows].astype(float) / orl.X.max()
        for name, X in (("unit rows", unit_rows(pixels)), ("pixels", pixels)):
            labels = [LCF(10, max_iter=200, random_state=s).fit_predict(X) for s in range(3)]
            found[name].append(np.mean([clustering_accuracy(orl.y[rows], a) for a in labels]))
    for name, ac in found.items():
        print(f"LCF, {name}: first ten {ac[0]:.3f}, random tens {np.mean(ac[1:]):.3f}")
    assert np.mean(found["pixels"]) >= 0.65
    # 0.652 was measured, and 0.644 with three starts of k-means.
    assert np.mean(found["unit rows"]) >= 0.65


# --------------------------------------------------------------------------------------------
# Combined constraints compared with single ones
# --------------------------------------------------------------------------------------------

SINGLE = {
    "NMF": lambda k, s: NMF(k, random_state=s),
    "GNMF": lambda k, s: GNMF(k, random_state=s),
    "SemiGNMF": lambda k, s: SemiGNMF(k, random_state=s),
    "CNMF": lambda k, s: CNMF(k, random_state=s),
    "CNMF-KL": lambda k, s: CNMF(k, beta_loss=KL, random_state=s),
    "CDNMF": lambda k, s: CDNMF(k, random_state=s),
    "CDNMF-KL": lambda k, s: CDNMF(k, beta_loss=KL, random_state=s),
    "NMFDC": lambda k, s: NMFDC(k, random_state=s),
    "NSNMF": lambda k, s: NSNMF(k, random_state=s),
}
#: These settings were chosen in an earlier trial, not on the results of this test.
CLASS_AND_GRAPH = {"class_reg": 1.0, "graph_reg": 0.1, "n_neighbors": 3}
COMBINED = {
    "class + graph": CLASS_AND_GRAPH,
    "class + graph + hard": CLASS_AND_GRAPH | {"hard_labels": True},
    "KL class + graph": CLASS_AND_GRAPH | {"class_reg": None, "beta_loss": KL},
    "KL class + hard": {"class_reg": None, "beta_loss": KL, "hard_labels": True},
    "KL class + smoothing": {"class_reg": None, "beta_loss": KL, "smoothing": 0.1},
}


def accuracies(data, methods, per_class=3, sizes=range(2, 11), subsets=10):
    """Return the accuracy on unlabelled samples per method, as an array of sizes x subsets."""
    X, y = unit_rows(data.X.astype(float)), data.y
    found = {name: [] for name in methods}
    for k in sizes:
        for subset in range(subsets):
            rng = np.random.RandomState(1000 * k + subset)
            rows = np.isin(y, rng.choice(np.unique(y), k, replace=False))
            known = keep_labels(y[rows], per_class, random_state=rng)
            hidden = known < 0
            for name, make in methods.items():
                model = make(k, subset)
                if isinstance(model, NMF):
                    codes = model.fit_transform(X[rows])
                    labels = cluster_representation(codes, k, random_state=subset).labels
                else:
                    labels = model.fit_predict(X[rows], known)
                found[name].append(clustering_accuracy(y[rows][hidden], labels[hidden]))
    found = {name: np.array(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"{name:22s} {values.mean():.3f} ± {values.std():.3f}")
    return found


def combined(settings):
    return lambda k, s: ConstrainedNMF(k, random_state=s, **settings)


def test_class_cost_and_graph_beat_each_alone_on_orl(orl):
    """Check on ORL that class cost and graph together beat either alone, and equal NMFDC."""
    methods = {name: SINGLE[name] for name in ("CDNMF", "GNMF", "NMFDC")}
    found = accuracies(orl, methods | {"both": combined(CLASS_AND_GRAPH)})
    for name in methods:
        gain = found["both"] - found[name]
        error = gain.std(ddof=1) / np.sqrt(gain.size)
        print(f"both - {name}: {gain.mean():+.3f} ± {error:.3f}")
        assert gain.mean() > (-2 if name == "NMFDC" else 2) * error


def test_combinations_on_yale(dataset):
    """Check on Yale that the best combination is at least as good as the best single method.

    Light from the side makes images of different people neighbours, so no combination has to win.
    """
    methods = SINGLE | {name: combined(settings) for name, settings in COMBINED.items()}
    found = accuracies(dataset("yale"), methods)
    single = max(SINGLE, key=lambda name: found[name].mean())
    best = max(COMBINED, key=lambda name: found[name].mean())
    gain = found[best] - found[single]
    error = gain.std(ddof=1) / np.sqrt(gain.size)
    print(f"{best} - {single}: {gain.mean():+.3f} ± {error:.3f} (spread {gain.std():.3f})")
    # The best combination is at least as good as the best single method, within two standard
    # errors.
    assert gain.mean() >= -2 * error


# --------------------------------------------------------------------------------------------
# Penalties in long fits
# --------------------------------------------------------------------------------------------

# At these weights the penalty is a considerable share of the objective. A class cost that is large
# compared with the samples would force the penalised entries to zero, so that nothing of it
# remains.
PENALISED = {
    "GNMF": lambda **s: GNMF(15, graph_reg=10.0, **s),
    "CDNMF": lambda **s: CDNMF(15, class_reg=1.0, **s),
}


@pytest.mark.parametrize("name", PENALISED)
def test_the_penalty_vanishes_with_scale_paper_only(dataset, name):
    """Check that the penalty keeps its share with scale="unit" and vanishes with scale="paper".

    The objectives of the papers have no minimiser: V shrinks, U grows, and the penalty vanishes.
    """
    yale = dataset("yale")
    X = yale.X.astype(float) / 255
    X = unit_rows(X) if name == "GNMF" else X
    known = keep_labels(yale.y, 3, random_state=0)
    shares = {}
    for scale in ("unit", "paper"):
        shares[scale] = []
        for n_iter in (100, 2500, 5000):
            model = PENALISED[name](scale=scale, solver="mu", tol=0.0, max_iter=n_iter)
            model.set_params(random_state=0, init="random").fit(X, known)
            loss = 0.5 * model.reconstruction_err_**2
            last = model.objective_history_[-1]  # the objective before "paper" scales the columns
            shares[scale].append(1 - loss / last)
            print(f"{name}, {scale}, {n_iter} iterations: share {shares[scale][-1]:.5f}")
    (_, half, full), (early, _, late) = shares["unit"], shares["paper"]
    assert full == pytest.approx(half, rel=0.05) and full > 0.01
    assert late < 0.5 * early


# --------------------------------------------------------------------------------------------
# Memory
# --------------------------------------------------------------------------------------------

MEMORY = """
    import numpy as np
    from partwise import GNMF
    from partwise.knowledge.graph import neighbor_graph

    rng = np.random.default_rng(0)
    GNMF(3, max_iter=2, tol=0, solver="{solver}").fit(rng.random((300, 50)))  # compile first
    X = rng.random((20000, 500))
    before = peak()
    model = GNMF(20, max_iter=5, tol=0, solver="{solver}", scale="{scale}", random_state=0).fit(X)
    beyond = peak() - before
    W = neighbor_graph(X, 5)
    graph = W.data.nbytes + W.indices.nbytes + W.indptr.nbytes
    print(int(2**20 * beyond), X.nbytes, graph)
"""


@linux
@pytest.mark.parametrize("solver, scale", [("hals", "unit"), ("mu", "paper")])
def test_memory_of_gnmf(solver, scale):
    """Check the peak memory of GNMF for 20,000 x 500 samples.

    It must stay below three times X plus the graph.
    """
    script = PEAK + textwrap.dedent(MEMORY).format(solver=solver, scale=scale)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    beyond, size, graph = (int(word) for word in run.stdout.split())
    print(
        f"{solver}: {beyond / 1e6:.0f} MB beyond X of {size / 1e6:.0f} MB, graph {graph / 1e6:.1f}"
    )
    assert beyond < 3 * size + graph
