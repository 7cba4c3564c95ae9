"""Tests of every function that repeats a fit with every setting of the estimator and of its `fit`.

Each combination is "honoured", and compares numbers with a computation written out here, or
"refused", and expects an error that contains the setting. ``python
tests/selection/test_settings.py`` prints the table of all combinations for the documentation.
"""

import csv
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from partwise import (
    CNMF,
    GNMF,
    NMF,
    NSNMF,
    ConstrainedNMF,
    SemiNMF,
    bootstrap_intervals,
    choose_k,
    consensus,
    refit,
    select,
)
from partwise.evaluation.held_out import label_folds
from partwise.evaluation.linkage import linked_clusters
from partwise.knowledge.links import Links
from partwise.metrics import adjusted_rand, hold_out
from partwise.report import stability
from partwise.terms import Ridge

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "repeated_fits.rst"
N, P, K = 26, 11, 2
KL = "kullback-leibler"
rng = np.random.default_rng(0)
V0 = rng.gamma(0.6, size=(N, K)) + 0.01
H0 = rng.gamma(0.6, size=(K, P)) + 0.01
FULL = rng.poisson(20 * V0 @ H0 / (V0 @ H0).mean()).astype(float) + 1.0
SEEN = rng.random(FULL.shape) < 0.8
SEEN[np.arange(N), np.arange(N) % P] = True
LABELS = np.where(np.arange(N) % 2, V0.argmax(axis=1), -1)
ENTRIES = rng.random(FULL.shape) + 0.3
GRAPH = sp.csr_array(np.eye(N, k=1) + np.eye(N, k=-1))
KNOWN = 30 * H0[:1].copy()
KNOWN[0, 3] = np.nan


@dataclass
class Setting:
    """An estimator with one unusual setting, the arguments of its fit, and its data."""

    estimator: Any = field(default_factory=NMF)
    given: dict[str, Any] = field(default_factory=dict)
    X: Any = None
    seen: Any = None  # mask of the observed entries
    y: Any = None

    def __post_init__(self):
        self.X = FULL if self.X is None else self.X
        self.seen = np.ones(FULL.shape, bool) if self.seen is None else self.seen

    @property
    def weights(self):
        """Weight of each entry in the loss: observed or not, times entry and sample weights."""
        w = self.seen * 1.0
        if "entry_weight" in self.given:
            entries = self.given["entry_weight"]
            w = w * (entries.toarray() if sp.issparse(entries) else entries)
        gamma = self.given.get("sample_weight", np.ones(N))
        if getattr(self.estimator, "sample_weighting", None):
            X = np.where(self.seen, self.dense, 0)
            ncw = 1 / (X @ X.sum(axis=0))
            gamma = gamma * ncw / ncw.mean()
        return w * gamma[:, None]

    @property
    def dense(self):
        return self.X.toarray() if sp.issparse(self.X) else np.ma.getdata(self.X)

    def parameter(self, name):
        return getattr(self.estimator, name, None)


def short(**more):
    return {"tol": 1e-3, "max_iter": 60, **more}


def ridge(strength):
    return Ridge(np.full((1, 1), float(strength)))


def missing(value, kind=np.asarray):
    X = kind(np.where(SEEN, FULL, value))
    return Setting(NMF(missing_values=value, **short()), X=X, seen=SEEN)


#: Settings to test, one per row of the documented table.
SETTINGS = {
    "plain": lambda: Setting(NMF(**short())),
    "missing_values=nan": lambda: missing(np.nan),
    "missing_values=-1": lambda: missing(-1.0),
    "missing_values=0": lambda: missing(0, sp.csr_array),
    "missing_values=0, dense": lambda: missing(0),
    "masked": lambda: Setting(
        NMF(missing_values=np.nan, **short()),
        X=np.ma.array(FULL + 1e6 * ~SEEN, mask=~SEEN),
        seen=SEEN,
    ),
    "masked, complete": lambda: Setting(NMF(**short()), X=np.ma.array(FULL, mask=~SEEN)),
    "sample_weight": lambda: Setting(
        NMF(**short()), {"sample_weight": np.where(np.arange(N) < 13, 3.0, 0.5)}
    ),
    "entry_weight": lambda: Setting(NMF(**short()), {"entry_weight": ENTRIES}),
    "entry_weight, sparse": lambda: Setting(
        NMF(**short()), {"entry_weight": sp.csr_array(ENTRIES * SEEN)}
    ),
    "entry_weight, missing": lambda: Setting(
        NMF(missing_values=np.nan, **short()),
        {"entry_weight": ENTRIES},
        X=np.where(SEEN, FULL, np.nan),
        seen=SEEN,
    ),
    "sample_weighting": lambda: Setting(NMF(sample_weighting="ncw", **short())),
    "must_link": lambda: Setting(NMF(**short()), {"must_link": [[0, 1], [1, 5]]}),
    "cannot_link": lambda: Setting(NMF(**short()), {"cannot_link": [[0, 2], [3, 4]]}),
    "graph": lambda: Setting(GNMF(**short()), {"graph": GRAPH}),
    "graph_reg": lambda: Setting(GNMF(graph_reg=5.0, n_neighbors=3, **short())),
    "y": lambda: Setting(CNMF(**short()), {"y": LABELS}),
    "fixed_components": lambda: Setting(NMF(fixed_components=KNOWN, **short())),
    "seed_components": lambda: Setting(NMF(seed_components=30 * H0[:1], **short())),
    "alpha_W": lambda: Setting(NMF(alpha_W=0.1, alpha_H=0.05, l1_ratio=0.5, **short())),
    "terms": lambda: Setting(ConstrainedNMF(terms=[ridge(5)], basis_terms=[ridge(9)], **short())),
    "smoothing": lambda: Setting(NSNMF(smoothing=0.3, **short())),
    "beta_loss=1": lambda: Setting(NMF(beta_loss=KL, **short())),
    "beta_loss=1, missing": lambda: Setting(
        NMF(beta_loss=KL, missing_values=np.nan, **short()),
        X=np.where(SEEN, FULL, np.nan),
        seen=SEEN,
    ),
    "beta_loss=1, fixed": lambda: Setting(NMF(beta_loss=KL, fixed_components=KNOWN, **short())),
    "beta_loss=1.5": lambda: Setting(NMF(beta_loss=1.5, **short())),
    "beta_loss=l21": lambda: Setting(NMF(beta_loss="l21", **short())),
    "signed": lambda: Setting(SemiNMF(max_iter=60, tol=1e-3), X=FULL - FULL.mean()),
    "init=nndsvda": lambda: Setting(NMF(init="nndsvda", **short())),
    "init=custom": lambda: Setting(NMF(init="custom", **short()), {"W": V0 + 1, "H": H0 + 1}),
    "n_init": lambda: Setting(NMF(n_init=3, tol=0, max_iter=4)),
    "solver": lambda: Setting(NMF(solver="mu", **short())),
    "max_iter": lambda: Setting(NMF(max_iter=4, tol=0)),
    "checkpoint": lambda: Setting(NMF(checkpoint="checkpoint", **short())),
    "unknown": lambda: Setting(NMF(**short()), {"unknown": 1}),
}


# -- independent computations of the expected numbers -----------------------------------------


def losses(setting, X, Y):
    """Return the loss at each entry of X."""
    beta = setting.parameter("beta_loss")
    if beta == KL:
        return np.where(X > 0, X * np.log(np.where(X > 0, X, 1) / Y), 0) - X + Y
    if beta == 1.5:
        return (X**1.5 + 0.5 * Y**1.5 - 1.5 * X * Y**0.5) / 0.75
    return 0.5 * (X - Y) ** 2


def objective(setting, X, V, H, *, weights):
    """Return the loss of X ≈ V S H plus the penalties on both factors."""
    delta = setting.parameter("smoothing") or 0
    mixed = (1 - delta) * H + delta * H.mean(axis=0)
    Y = V @ mixed
    X, Y = np.where(weights > 0, X, 0), np.where(weights > 0, Y, 1e-300)
    if setting.parameter("beta_loss") == "l21":
        epsilon = 1e-3 * np.linalg.norm(X, axis=1).mean()
        value = np.sqrt(((X - Y) ** 2).sum(axis=1) + epsilon**2).sum()
    else:
        value = (weights * losses(setting, X, Y)).sum()
    share = setting.parameter("l1_ratio") or 0
    alpha_W = (setting.parameter("alpha_W") or 0) * H.shape[1]
    for Z, alpha in ((V, alpha_W), (H, _alpha_H(setting) * len(V))):
        value += alpha * (share * np.abs(Z).sum() + 0.5 * (1 - share) * (Z**2).sum())
    for name, Z in (("terms", V), ("basis_terms", H.T)):
        value += sum(term.value(Z) for term in setting.parameter(name) or ())
    return float(value)


def _alpha_H(setting):
    alpha = setting.parameter("alpha_H") or 0
    return (setting.parameter("alpha_W") or 0) if alpha == "same" else alpha


def minimum(function, start, *, free=False, held=None):
    """Return the minimum of a function of one factor, found by L-BFGS-B.

    Entries of `held` that are not NaN are fixed.
    """
    known = np.zeros(start.shape, bool) if held is None else ~np.isnan(held)
    full = np.where(known, 0 if held is None else held, start)

    def value(z):
        full[~known] = z
        return function(full)

    bounds = None if free else [(1e-12, None)] * int((~known).sum())
    how = {"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-13, "gtol": 1e-9}
    begin = np.maximum(start[~known], 1e-3) if not free else start[~known]
    return minimize(value, begin, method="L-BFGS-B", bounds=bounds, options=how).fun


def copy_of(setting, **settings):
    model = clone(setting.estimator)
    known = model.get_params()
    settings = {"checkpoint": None, **settings}
    return model.set_params(**{name: v for name, v in settings.items() if name in known})


def random_start(setting):
    return {"init": "random"} if setting.parameter("init") is None else {}


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


# -- a check for each function -----------------------------------------------------------------


def by_entries(setting, seed, settings, split=0, n_splits=2):
    """Return the error of one fit at the entries that one split hides."""
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=(n_splits, 2))
    # Every marker of missing entries becomes NaN, except for the zeros of a sparse X.
    value = setting.parameter("missing_values")
    sparse = sp.issparse(setting.X)
    X = setting.X if value is None or sparse else np.where(setting.seen, setting.dense, np.nan)
    mark = None if value is None else 0 if sparse else np.nan
    weights = {name: setting.given.get(name) for name in ("sample_weight", "entry_weight")}
    held = hold_out(X, 0.2, missing_values=mark, random_state=int(seeds[split, 0]), **weights)
    settings = {**random_start(setting), **settings, "random_state": int(seeds[split, 1])}
    model = copy_of(setting, missing_values=held.missing_values, **settings)
    model.fit(held.X, **setting.given)
    at = held.rows, held.columns
    delta = setting.parameter("smoothing") or 0
    H = model.components_
    Y = model.embedding_ @ ((1 - delta) * H + delta * H.mean(axis=0))
    x, y, w = setting.dense[at], Y[at], np.ones(len(held.rows))
    assert setting.seen[at].all()
    if "sample_weight" in setting.given:
        w = w * setting.given["sample_weight"][held.rows]
    if "entry_weight" in setting.given:
        entries = setting.given["entry_weight"]
        w = w * (entries.toarray() if sp.issparse(entries) else entries)[at]
    if setting.parameter("beta_loss") == KL:
        y = np.maximum(y, 1e-6 * x.mean())
    return (w * losses(setting, x, y)).sum() / w.sum()


def first_seed(random_state=0):
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


def check_choose_k(setting):
    given = {"estimator": setting.estimator, "share": 0.2, "n_splits": 2, "n_runs": 0}
    with quiet():
        found = choose_k(setting.X, [2, 3], random_state=0, **given, **setting.given)
        for row, k in enumerate([2, 3]):
            wanted = by_entries(setting, first_seed(), {"n_components": k})
            assert found.errors[row, 0] == pytest.approx(wanted, rel=1e-8)
        found = choose_k(setting.X, [2], random_state=0, **{**given, "n_runs": 2}, **setting.given)
    assert np.isfinite(found.stability).all()
    if setting.parameter("checkpoint"):
        lines = [len(path.read_text().splitlines()) for path in Path("checkpoint").iterdir()]
        # There is one file for each search, with a header and a line for each fit.
        assert sorted(lines) == [1 + 3, 1 + 4]


def check_select(setting):
    last = {"max_iter": 7} if setting.parameter("init") == "custom" else {"n_components": 3}
    grid = {name: [2, value] for name, value in last.items()}
    if "max_iter" in last:
        setting.estimator.set_params(n_components=2)
    given = {"share": 0.2, "n_splits": 2, "random_state": 0, **setting.given}
    if "y" in given:  # in `select`, y contains the labels to hold out
        given.pop("y")
        setting = Setting(setting.estimator)
    with quiet():
        found = select(setting.X, setting.estimator, grid, **given)
        wanted = by_entries(setting, first_seed(), last)
    assert found.by == ("links" if {"must_link", "cannot_link"} & given.keys() else "entries")
    if found.by == "entries":
        assert found.errors[1, 0] == pytest.approx(wanted, rel=1e-8)
    if setting.parameter("checkpoint"):
        assert len(list(Path("checkpoint").iterdir())) == 1


def check_select_by_labels(setting):
    given = {k: v for k, v in setting.given.items() if k != "y"}
    setting.estimator.set_params(n_components=2)
    with quiet():
        found = select(
            setting.X, setting.estimator, {"max_iter": [9, 5]}, y=LABELS, n_splits=2,
            random_state=0, **given,
        )  # fmt: skip
    assert found.by == "labels"
    known = LABELS >= 0
    start = np.random.RandomState(first_seed())
    fold = np.full(N, -1)
    fold[known] = label_folds(LABELS[known], 2, start)
    y = np.where(known & (fold != 0), LABELS, -1)
    model = copy_of(setting, max_iter=9, random_state=int(start.randint(2**31 - 1)))
    with quiet():
        model.fit(setting.X, y, **given)
    if hasattr(model, "labels_"):
        predicted = model.labels_[fold == 0]
    else:
        judge = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        judge.fit(model.embedding_[y >= 0], y[y >= 0].astype(str))
        predicted = judge.predict(model.embedding_[fold == 0]).astype(int)
    wanted = np.mean([str(a) != str(b) for a, b in zip(predicted, LABELS[fold == 0])])
    assert found.errors[0, 0] == pytest.approx(wanted)


def check_select_by_links(setting):
    pairs = {"must_link": [[0, 1], [2, 3], [4, 5]], "cannot_link": [[0, 2], [6, 7]]}
    given = {k: v for k, v in setting.given.items() if k not in pairs}
    grid = {"max_iter": [9, 5]}
    setting.estimator.set_params(random_state=3, n_components=2)
    with quiet():
        found = select(
            setting.X, setting.estimator, grid, n_splits=2, random_state=0, **pairs, **given
        )
        model = copy_of(setting, max_iter=9).fit(setting.X, **given)
    V = model.embedding_ / np.maximum(np.linalg.norm(model.embedding_, axis=1), 1e-300)[:, None]
    nothing = Links(np.empty((0, 2), int), np.empty((0, 2), int), N)
    clusters = linked_clusters(V, getattr(model, "n_clusters_", 2), nothing, random_state=0)
    apart = [clusters[i] != clusters[j] for i, j in pairs["must_link"]]
    joined = [clusters[i] == clusters[j] for i, j in pairs["cannot_link"]]
    assert found.errors[0].mean() == pytest.approx((np.mean(apart) + np.mean(joined)) / 2)


def check_consensus(setting, n_runs=4):
    how = {"n_runs": n_runs, "density_threshold": 2, "random_state": 0}
    with quiet():
        found = consensus(setting.X, K, estimator=setting.estimator, **how, **setting.given)
    # Each feature is divided by its standard deviation over the observed and weighted entries.
    w, X = setting.weights, np.where(setting.seen, setting.dense, 0)
    if setting.parameter("sample_weighting"):
        w = np.ones_like(w)  # these weights change only the loss
    mean = (w * X).sum(axis=0) / w.sum(axis=0)
    scale = 1 / np.sqrt((w * (X - mean) ** 2).sum(axis=0) / w.sum(axis=0))
    value = setting.parameter("missing_values")
    sparse = sp.issparse(setting.X)
    seen = X * scale if value is None or sparse else np.where(setting.seen, X * scale, np.nan)
    seen = sp.csr_array(seen) if sparse else seen
    settings = {name: setting.parameter(name) * scale for name in
                ("fixed_components", "seed_components")
                if setting.parameter(name) is not None}  # fmt: skip
    # The runs are fits of the estimator with all its settings.
    settings |= {"n_components": K, **random_start(setting)}
    settings |= {} if value is None or sparse else {"missing_values": np.nan}
    start = np.random.RandomState(0)
    with quiet():
        if setting.parameter("n_init") == 3:
            seeds = start.randint(2**31 - 1, size=n_runs)
            models = [copy_of(setting, random_state=int(s), **settings) for s in seeds]
        else:
            seed = start.randint(2**31 - 1)
            models = [copy_of(setting, n_init=n_runs, random_state=seed, **settings)]
        ends = [model.fit(seen, **setting.given).components_ for model in models]
    for H in ends:
        unit = H / np.linalg.norm(H, axis=1, keepdims=True)
        runs = found.pooled.reshape(n_runs, K, P)
        # The best restart of a fit is solved further, and runs use single precision at most.
        assert np.abs(runs - unit).max(axis=(1, 2)).min() < 1e-6
    check_factors(setting, found, scale)


def check_factors(setting, found, scale):
    """Check that usages and spectra minimise the objective, each with the other factor fixed."""
    w, X = setting.weights, np.where(setting.seen, setting.dense, 0)
    fixed = setting.parameter("fixed_components")
    free = setting.parameter("free_parts") or isinstance(setting.estimator, SemiNMF)
    of_V = partial(objective, setting, X * scale, H=found.spectra, weights=w / _gamma(setting))
    of_H = partial(objective, setting, X, found.usages, weights=w)
    usages = found.usages.copy()
    if fixed is not None:  # usages are converted to the units of the fixed entries
        known = ~np.isnan(fixed[0])
        usages[:, 0] *= fixed[0][known].sum() / found.spectra[0][known].sum()
        np.testing.assert_array_equal(found.parts[0][known], fixed[0][known])
        # All runs use the fixed part in scaled units, so its spectrum is a multiple of it.
        there = found.spectra[0][known] / (fixed[0] * scale)[known]
        np.testing.assert_allclose(there, there[0], rtol=1e-6)
        usages = None  # the scale of the usages is unknown here, so the next check is omitted
    if usages is not None:
        assert of_V(usages) <= minimum(of_V, usages) * (1 + 1e-3)
    held = None if fixed is None else np.vstack([fixed, np.full((K - 1, P), np.nan)])
    least = minimum(of_H, found.parts, free=free, held=held)
    assert of_H(found.parts) <= least * (1 + 1e-3)


def _gamma(setting):
    """Return the sample weights per entry; they do not change the part weights of a sample."""
    w = np.where(setting.seen, 1.0, 1)
    if "sample_weight" in setting.given:
        return w * setting.given["sample_weight"][:, None]
    if setting.parameter("sample_weighting"):
        return setting.weights / np.where(setting.seen, 1, 1)
    return w


def check_bootstrap_intervals(setting, n_draws=10):
    model = copy_of(setting, n_components=K, random_state=0)
    given = {k: v for k, v in setting.given.items() if k not in ("W", "H")}
    with quiet():
        model.fit(setting.X, **setting.given)
        found = bootstrap_intervals(setting.X, model, n_draws=n_draws, random_state=0, **given)
        H, V, draws = model.components_, model.embedding_, []
        start = np.random.RandomState(0)
        for _ in range(n_draws):
            weight = start.multinomial(N, np.full(N, 1 / N)) * given.get("sample_weight", 1.0)
            W, first = (np.maximum(Z, 1e-3 * Z.mean(axis=axis, keepdims=True))
                        for Z, axis in ((V, 0), (H, 1)))  # fmt: skip
            again = copy_of(setting, n_components=K, init="custom", n_init=1, random_state=0,
                            seed_components=None)  # fmt: skip
            again.fit(setting.X, W=W, H=first, **{**given, "sample_weight": weight})
            drawn = again.components_.copy()
            free = slice(1 if setting.parameter("fixed_components") is not None else 0, None)
            a, b = (M[free] / np.linalg.norm(M[free], axis=1, keepdims=True) for M in (H, drawn))
            turned = drawn[free][linear_sum_assignment(-a @ b.T)[1]]
            drawn[free] = turned * (H[free].sum(1) / turned.sum(1))[:, None]
            draws.append(drawn)
    wanted = np.maximum(np.std(draws, axis=0, ddof=1), curvature_errors(setting, V, H))
    if setting.parameter("fixed_components") is not None:
        wanted[0][~np.isnan(KNOWN[0])] = 0
    # This is a quantile of Student's t with 9 degrees of freedom.
    width = (found.parts_high - found.parts) / 2.2621571628540993
    np.testing.assert_allclose(width, wanted, rtol=1e-5, atol=1e-10)


def curvature_errors(setting, V, H):
    """Return standard errors of the parts from the curvature of the loss, feature by feature."""
    found, w = np.zeros(H.shape), setting.weights
    for j in range(P):
        x, mu = np.where(w[:, j] > 0, setting.dense[:, j], 0), V @ H[:, j]
        if setting.parameter("beta_loss") == KL:
            slope = V.T @ (w[:, j] * (1 - x / np.where(x > 0, mu, 1)))
            ridge = np.diag(np.maximum(slope, 0) / 1.5) ** 2
            second = w[:, j] * x / np.where(x > 0, mu, 1) ** 2
            found[:, j] = np.sqrt(np.diag(np.linalg.inv((V.T * second) @ V + ridge)))
        else:
            variance = (w[:, j] * (x - mu) ** 2).sum() / ((w[:, j] > 0).sum() - len(H))
            found[:, j] = np.sqrt(variance * np.diag(np.linalg.inv((V.T * w[:, j]) @ V)))
    return found


def check_hold_out(setting):
    missing = setting.parameter("missing_values")
    held = hold_out(setting.X, 0.2, missing_values=missing, random_state=0, **setting.given)
    assert setting.seen[held.rows, held.columns].all()
    np.testing.assert_array_equal(held.values, setting.dense[held.rows, held.columns])
    model = copy_of(setting, n_components=K, missing_values=held.missing_values, random_state=0)
    with quiet():
        model.fit(held.X, **setting.given)
    Y = model.inverse_transform(model.embedding_)[held.rows, held.columns]
    w = setting.weights[held.rows, held.columns]
    if setting.parameter("sample_weighting"):
        w = np.ones_like(w)
    if setting.parameter("beta_loss") == KL:
        Y = np.maximum(Y, 1e-6 * held.values.mean())
    naive = (w * losses(setting, held.values, Y)).sum() / w.sum()
    assert held.error(model) == pytest.approx(naive, rel=1e-9)


def check_refit(setting):
    names = [name for name in ("beta_loss", "missing_values") if hasattr(setting.estimator, name)]
    loss = {name: setting.parameter(name) for name in names}
    V = refit(setting.X, H0, threshold=0, **loss, **setting.given)
    X = np.where(setting.seen, setting.dense, 0)
    of_V = partial(objective, Setting(NMF(**loss)), X, H=H0, weights=setting.seen * 1.0)
    assert of_V(V) <= minimum(of_V, V) * (1 + 1e-3)


def check_stability(setting):
    model = copy_of(setting, n_components=K)
    with quiet():
        given = dict(setting.given)
        found = stability(model, setting.X, given.pop("y", None), seeds=2, **given)
        ends = []
        start = {"init": "random"} if setting.parameter("init") in (None, "nndsvda") else {}
        for seed in range(2):
            one = copy_of(setting, n_components=K, random_state=seed, **start)
            one.fit(setting.X, **setting.given)
            ends.append(_clusters(one, setting))
    wanted = adjusted_rand(*ends)
    assert found.agreement[0, 1] == pytest.approx(wanted)


def _clusters(model, setting):
    from partwise.cluster import cluster_representation

    if hasattr(model, "labels_"):
        return model.labels_
    return cluster_representation(model.embedding_, K, random_state=model.random_state).labels


FUNCTIONS = {
    "choose_k": check_choose_k,
    "select": check_select,
    "select, labels": check_select_by_labels,
    "select, links": check_select_by_links,
    "consensus": check_consensus,
    "bootstrap_intervals": check_bootstrap_intervals,
    "hold_out": check_hold_out,
    "refit": check_refit,
    "stability": check_stability,
}

#: Combinations of function and setting that are refused, and a word of the expected error.
REFUSED = {
    **{(function, "unknown"): "unknown" for function in FUNCTIONS},
    **{(function, "masked, complete"): "X" for function in FUNCTIONS},
    **{(function, "init=custom"): "custom" for function in ("choose_k", "consensus")},
    **{
        (function, name): "beta_loss"
        for name in ("beta_loss=1.5", "beta_loss=l21")
        for function in ("choose_k", "select", "hold_out", "bootstrap_intervals")
    },
    **{(function, "signed"): "missing_values" for function in ("choose_k", "select")},
    **{("select, labels", name): "y" for name in ("must_link", "cannot_link")},
    ("select, links", "y"): "y",
    ("stability", "init=custom"): "custom",
    ("refit", "signed"): "refit",
    ("hold_out", "signed"): "X",
    **{
        ("refit", name): next(iter(SETTINGS[name]().given))
        for name in SETTINGS
        if SETTINGS[name]().given
    },
    **{("bootstrap_intervals", name): name for name in ("must_link", "cannot_link", "alpha_W")},
    **{("bootstrap_intervals", name): "NMF"
       for name in ("graph", "graph_reg", "y", "terms", "smoothing", "signed")},
    **{("hold_out", name): name for name in ("must_link", "cannot_link", "graph", "y")},
    ("hold_out", "init=custom"): "W",
}  # fmt: skip


def run_combination(function, name):
    """Run one combination and return "honoured", or "refused" where an error is expected."""
    setting, wanted = SETTINGS[name](), REFUSED.get((function, name))
    if wanted is None:
        FUNCTIONS[function](setting)
        return "honoured"
    with pytest.raises((ValueError, TypeError), match=wanted):
        FUNCTIONS[function](setting)
    return "refused"


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_settings_are_honoured_or_refused_by_name(function, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_combination(function, name)
    left = [path.name for path in tmp_path.rglob("*.npz")]
    assert not left  # several fits must not write one checkpoint


def table():
    """Return the rows of the table of all combinations in docs/reference/repeated_fits.rst."""
    rows = [["Setting", *FUNCTIONS]]
    for name in SETTINGS:
        cells = ["refused" if (one, name) in REFUSED else "yes" for one in FUNCTIONS]
        rows.append([name, *cells])
    return rows


def test_the_documented_table_has_these_cells():
    text = PAGE.read_text("utf-8")
    lines = text[text.index(".. csv-table::") :].splitlines()
    cells = list(csv.reader(line.strip() for line in lines if line.startswith('   "')))
    assert cells == table()


if __name__ == "__main__":
    for row in table():
        print("   " + ",".join(f'"{cell}"' for cell in row))
