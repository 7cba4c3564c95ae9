"""Compile and cache most of the numba kernels by short fits.

`make test` runs this program while ruff and mypy run, which leave a core free. Otherwise each
process of pytest would compile the same kernels when it first needs them.
"""

import contextlib
import importlib
import warnings

import numpy as np
import scipy.sparse as sp

import partwise

KL = "kullback-leibler"


def main() -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(210) % 3 == 0, np.arange(210) % 2, -1)
    for dtype in (np.float64, np.float32):
        X = rng.random((210, 200)).astype(dtype)
        S = sp.csr_array(X * (rng.random(X.shape) < 0.1))
        gaps = np.where(rng.random(X.shape) < 0.1, np.nan, X)
        for data in (X, S):
            partwise.NMF(3, max_iter=2).fit(data)
            partwise.NMF(3, beta_loss=KL, alpha_W=0.01, max_iter=2).fit(data)
            partwise.GNMF(3, max_iter=2, n_neighbors=3).fit(data)
            partwise.GNMF(3, beta_loss=KL, max_iter=2, n_neighbors=3).fit(data)
            partwise.CNMF(3, max_iter=2).fit(data, labels)
        for loss in ("frobenius", KL):
            partwise.NMF(3, beta_loss=loss, missing_values=np.nan, max_iter=2).fit(gaps)
        for similar in (X @ X.T, S @ S.T):
            partwise.SymNMF(3, max_iter=2).fit(similar)
        partwise.PartsClassifier(max_iter=2, n_folds=2).fit(X, labels)
    with contextlib.suppress(ImportError):
        # pynndescent compiles its functions when it is imported.
        importlib.import_module("pynndescent")


if __name__ == "__main__":
    main()
