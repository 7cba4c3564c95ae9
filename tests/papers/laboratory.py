"""Independent version of the GNMF authors' program, without an import of Partwise.

It uses numpy and scikit-learn's k-means and follows the published files `GNMF.m`, `GNMF_Multi.m`
and `litekmeans.m`. Ten starts run for 30 iterations, and the one with the lowest objective goes on
until the program's own rule stops it. `tests/papers/test_independent.py` compares cells of the
papers' tables with it.
"""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

TRIAL_ITER = 30
TINY = np.finfo(np.float64).tiny


def unit_rows(X):
    """Scale each row to unit length; rows of zeros are unchanged."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1.0)


def neighbor_graph(X, n_neighbors=5):
    """Return the graph of nearest neighbours with weights 0 and 1 (GNMF paper, section 3.1)."""
    near = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(X)
    W = near.kneighbors_graph(X).toarray()
    np.fill_diagonal(W, 0.0)
    return np.maximum(W, W.T)


def with_labels(W, y, label_weight):
    """Give edges within a class a large weight, and remove edges between classes (SemiGNMF)."""
    same = (y[:, None] == y) & (y[:, None] >= 0)
    other = (y[:, None] != y) & (y[:, None] >= 0) & (y >= 0)
    W = np.where(same, label_weight, np.where(other, 0.0, W))
    np.fill_diagonal(W, 0.0)
    return W


def label_matrix(y):
    """Return the label matrix A of the CNMF paper, equation (3).

    It has a column per class, and one per unlabelled sample.
    """
    first = y.max() + 1
    index = np.where(y >= 0, y, first - 1 + np.cumsum(y < 0))
    return np.eye(index.max() + 1)[index]


def unit_columns(V, U):
    """Scale the columns of U to unit length, and V inversely (GNMF paper, equation (16))."""
    lengths = np.linalg.norm(U, axis=0)
    return V * lengths, U / lengths


class Method:
    """NMF, GNMF (``W``, ``lam``), CNMF (``A``), or NMF weighted by the normalised cut (``ncw``)."""

    def __init__(self, X, *, W=None, lam=0.0, A=None, ncw=False):
        self.X = X
        self.gamma = np.ones(len(X))
        if ncw:
            self.gamma = 1.0 / (X @ X.sum(axis=0))
            self.gamma /= self.gamma.mean()
        self.W = np.zeros((len(X), len(X))) if W is None else W
        self.lam, self.A = lam, np.eye(len(X)) if A is None else A
        self.degrees = np.diag(self.W.sum(axis=1))

    def begin(self, V, U):
        """Average V within each class and scale the columns of U to unit length."""
        V, U = unit_columns(V, U)
        return self.A.T @ V / self.A.sum(axis=0)[:, None], U

    def step_V(self, Z, U):
        """Update V by (15) of the GNMF paper, or (11) of the CNMF paper with a label matrix."""
        A, G, V = self.A, self.gamma[:, None], self.A @ Z
        up = A.T @ (G * (self.X @ U) + self.lam * self.W @ V)
        down = A.T @ (G * (V @ (U.T @ U)) + self.lam * self.degrees @ V)
        return Z * up / np.maximum(down, TINY)

    def step_U(self, Z, U):
        """Update U by (14) of the GNMF paper, or (10) of the CNMF paper with a label matrix."""
        V = self.A @ Z
        GV = self.gamma[:, None] * V
        return U * (self.X.T @ GV) / np.maximum(U @ (V.T @ GV), TINY)

    def step(self, Z, U):
        """Run one iteration: V before U as in the program, but for CNMF U before Z as printed."""
        if len(self.A.T) < len(self.A):
            U = self.step_U(Z, U)
            return self.step_V(Z, U), U
        Z = self.step_V(Z, U)
        return Z, self.step_U(Z, U)

    def objective(self, Z, U):
        """Return half of the objective (6) of the GNMF paper."""
        V = self.A @ Z
        loss = np.sum(self.gamma[:, None] * (self.X - V @ U.T) ** 2)
        return 0.5 * (loss + self.lam * np.sum(V * ((self.degrees - self.W) @ V)))


def fit(method, starts):
    """Return V, U and the number of iterations of the start that `GNMF_Multi.m` would choose."""
    trials = []
    for V, U in starts:
        Z, U = method.begin(V, U)
        for _ in range(TRIAL_ITER):
            Z, U = method.step(Z, U)
        trials.append((method.objective(Z, U), Z, U))
    value, Z, U = min(trials, key=lambda trial: trial[0])
    mean, n_iter = 10.0 * value, TRIAL_ITER
    while True:
        Z, U = method.step(Z, U)
        value, n_iter = method.objective(Z, U), n_iter + 1
        mean = 0.1 * mean + 0.9 * value
        if (mean - value) / mean <= 1e-5:
            return *unit_columns(method.A @ Z, U), n_iter


def clusters(method, V, k, seed):
    """Return the k-means clusters of the samples, as in the program's `litekmeans.m`.

    The samples are the rows of V, multiplied by the square roots of their weights ``gamma``. The
    best of 20 runs is returned; each starts from k random samples.
    """
    model = KMeans(k, init="random", n_init=20, random_state=seed)
    return model.fit_predict(np.sqrt(method.gamma)[:, None] * V)


def accuracy(truth, found):
    """Return the percentage of samples whose cluster is matched to their class."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((truth.max() + 1, found.max() + 1))
    np.add.at(counts, (truth, found), 1)
    return 100.0 * counts[linear_sum_assignment(-counts)].sum() / len(truth)
