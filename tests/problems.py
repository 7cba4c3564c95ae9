"""Shared small problems for tests: data, factors, models, and their naive values."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import reference
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.sparse import SparseData
from partwise.knowledge.labels import encode_labels
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import Graph
from partwise.model.losses import Beta, Frobenius, KullbackLeibler
from partwise.model.maps import SharedRows
from partwise.model.terms import Linear, Ridge

# Tolerances for sums of a few hundred terms of order one, reordered by BLAS and fastmath: some 100
# eps.
SUMS = {np.float64: 1e-12, np.float32: 1e-4}


DTYPES = [np.float64, np.float32]


def zeros_in(rng, n, p, density=0.4, dtype=np.float64):
    """Return non-negative data with zero entries, one zero row and one zero column."""
    X = rng.uniform(0.1, 2.0, (n, p)) * (rng.uniform(size=(n, p)) < density)
    X[n // 2] = 0
    X[:, p // 3] = 0
    return X.astype(dtype)


def factors(rng, n, p, k, dtype=np.float64):
    V, U = rng.uniform(0.1, 1.0, (n, k)), rng.uniform(0.1, 1.0, (p, k))
    return V.astype(dtype), U.astype(dtype)


BACKENDS = {
    "dense": DenseData,
    "fortran": lambda X: DenseData(np.asfortranarray(X)),
    "sparse": lambda X: SparseData(sp.csr_array(X)),
}


def slow_newton(X, Z, B, cost, ridge, sweeps):
    """Run Newton steps like the kernel `_newton_row`, recomputing Y for each coordinate."""
    X, Z, B = X.astype(float), Z.astype(float).copy(), B.astype(float)
    cost = np.broadcast_to(cost, Z.shape)
    ridge = np.broadcast_to(ridge, Z.shape)
    for i in range(len(Z)):
        for _ in range(sweeps):
            for j in range(Z.shape[1]):
                y = B @ Z[i]
                t = np.divide(B[:, j], y, out=np.zeros_like(y), where=X[i] > 0)
                N, h = X[i] @ t, X[i] @ t**2
                old, a = Z[i, j], cost[i, j]
                if old == 0 and N <= a:
                    continue
                if h > 0:  # the next lines compute the larger root of (a + ridge z)(q + z) = p
                    p, q = N**2 / h, max(N / h - old, 0.0)
                    new = max(
                        np.roots(np.trim_zeros([ridge[i, j], a + ridge[i, j] * q, a * q - p], "f"))
                    )
                else:
                    new = 0.0 if a + ridge[i, j] * old > 0 else old
                if new <= 0:
                    new = 0.0
                    alone = (X[i] > 0) & (y - old * B[:, j] <= 1e-3 * y)
                    if old > 0 and alone.any():
                        new = 0.1 * old
                Z[i, j] = new
    return Z


N, P, K = 9, 7, 3


class Hidden:
    """Graph of which only products with W are available, not its edges."""

    edges = None

    def __init__(self, W):
        self.product = lambda Z: W @ Z
        self.degrees = np.asarray(W.sum(axis=1))

    def __call__(self, Z):
        return self.product(Z)

    def laplacian(self, Z):
        return self.degrees[:, None] * Z - self.product(Z)


def graph_of(rng, n=N):
    W = np.triu(rng.uniform(size=(n, n)) * (rng.uniform(size=(n, n)) < 0.4), 1)
    W[:, 0] = 0
    W[0] = 0  # a sample without neighbours
    return W + W.T


LABELS = np.array([0, 0, 1, -1, 2, 2, -1, 2, 1])


def naive_value(X, Z, U, loss, *, index=None, gamma=None, delta=0.0, terms_V=(), terms_U=()):
    A = np.eye(len(X)) if index is None else np.eye(len(Z))[index]
    S = reference.smoothing_matrix(U.shape[1], delta)
    Y = A @ Z @ S @ U.T
    value = reference.weighted_sum(reference.beta_entries(X, Y, loss.beta), gamma)
    value += sum(t.value(Z) for t in terms_V)  # other tests compare the terms with formulas
    return value + sum(t.value(U) for t in terms_U)


def l1_l2():
    return [Linear(np.full((1, 1), 0.2)), Ridge(np.full((1, 1), 0.3))]


MODELS = {
    "plain": {},
    "weights": {"gamma": True},
    "penalties": {"terms_V": l1_l2(), "terms_U": l1_l2()},
    "labels": {"labels": True},
    "smoothing": {"delta": 0.4},
    "graph": {"graph": True},
    "all": {
        "gamma": True,
        "labels": True,
        "delta": 0.4,
        "terms_V": l1_l2(),
        "terms_U": l1_l2(),
    },
}


LOSSES = [Frobenius(), KullbackLeibler()]


LOSS_IDS = ["frobenius", "kl"]


def make_case(rng, name, loss, kind="dense"):
    """Return a model, its naive objective as a function of (Z, U), and a positive point."""
    spec = dict(MODELS[name])
    X = zeros_in(rng, N, P, density=0.7)
    gamma = rng.uniform(0.2, 2.0, N) if spec.pop("gamma", False) else None
    if spec.pop("graph", False):
        W = graph_of(rng)
        spec["terms_V"] = [Graph(Hidden(W), W.sum(axis=1), 0.8)]
    delta = spec.pop("delta", 0.0)
    rows = SharedRows(encode_labels(LABELS, N).codes, N) if spec.pop("labels", False) else None
    index = None if rows is None else rows.index
    model = FactorModel(BACKENDS[kind](X), loss, weights=gamma, rows=rows, smoothing=delta, **spec)

    def naive(Z, U):
        return naive_value(X, Z, U, loss, index=index, gamma=gamma, delta=delta, **spec)

    Z, U = factors(rng, N if rows is None else rows.n_rows, P, K)
    return model, naive, Z, U


STEP_LOSS = [
    ("mu", Frobenius()),
    ("hals", Frobenius()),
    ("nesterov", Frobenius()),
    ("mu", KullbackLeibler()),
    ("newton", KullbackLeibler()),
    ("mu", Beta(0.5)),
    ("mu", Beta(1.5)),
    ("mu", Beta(3.0)),
]


UNIT_TERMS = {
    "l1": lambda rng, n: [Linear(np.full((1, 1), 0.2))],
    "l2": lambda rng, n: [Ridge(np.full((1, 1), 0.3))],
    "class cost": lambda rng, n: [Linear(rng.integers(0, 2, (n, K)).astype(float))],
    "graph": lambda rng, n: [(lambda W: Graph(Hidden(W), W.sum(axis=1), 0.8))(graph_of(rng, n))],
}
