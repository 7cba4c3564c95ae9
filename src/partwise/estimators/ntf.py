"""NTF, a non-negative tensor (CP) factorization of images, by tensorly."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from partwise._sklearn import StrOptions
from partwise.backends import as_data
from partwise.backends.arrays import AnyArray
from partwise.estimators._base import GroupedFactorizer
from partwise.estimators._parameters import estimator
from partwise.fitting import (
    Checked,
    FitInputs,
    Problem,
    all_or_nothing,
    check,
    described,
    finish,
    publish,
    state,
)
from partwise.fitting.callbacks import with_callbacks
from partwise.solvers.init import start
from partwise.solvers.loop import Solution


@estimator
class NTF(GroupedFactorizer):
    r"""Non-negative tensor factorization: components are outer products.

    .. math:: \min_{V,A,B\ge0}\ \tfrac12 \sum_i \|X_i - \sum_k v_{ik}\, a_k b_k^T\|^2

    The CP model of a stack of images, which the CNMF paper compares with. It needs tensorly:
    ``pip install partwise[tensor]``. X must be non-negative and dense.

    Parameters
    ----------
    {n_components}
    image_shape : tuple of two int, default=None
        Height and width of the images in the rows of X; one of them may be -1, as in
        `numpy.reshape`. None means square images.
    init : {"random", "svd"}, default="random"
        Initialization method.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-6
        Tolerance of tensorly for the change of the relative reconstruction error.
    {groups}

    Attributes
    ----------
    {attributes}

    References
    ----------
    A. Shashua, T. Hazan: Non-negative tensor factorization with applications to statistics and
    computer vision, ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NTF
    >>> X = np.random.default_rng(0).random((12, 6))
    >>> NTF(2, image_shape=(2, 3), random_state=0).fit(X).components_.shape
    (2, 6)
    """

    image_shape: tuple[int, int] | None = None
    init: str = "random"
    max_iter: int = 200
    tol: float = 1e-6
    n_clusters: int | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints = {
        "image_shape": [tuple, list, None],
        "init": [StrOptions({"random", "svd"})],
    }
    beta_loss = "frobenius"
    own_fit = True
    solver = "hals"
    n_init = 1

    local = dense = True

    def _shape(self, p: int) -> tuple[int, int]:
        """Return height and width of the images, for ``p`` pixels."""
        side = round(np.sqrt(p))
        height, width = (side, side) if self.image_shape is None else self.image_shape
        if width == -1 and height > 0:
            width = p // height
        elif height == -1 and width > 0:
            height = p // width
        if min(height, width) < 1 or height * width != p:
            raise ValueError(
                f"image_shape={self.image_shape} does not fit the {p} features of X; pass (height, "
                "width) with this product."
            )
        return int(height), int(width)

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> Any:  # type: ignore[override]
        """Learn components and part weights.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Non-negative samples.
        y : array-like of shape (n_samples,), default=None
            Class labels for the groups; they do not change the factorization.

        Returns
        -------
        self
        """
        try:
            import tensorly.decomposition  # noqa: F401
        except ImportError as error:
            raise ImportError("NTF needs tensorly: pip install partwise[tensor]") from error
        with all_or_nothing(self):  # the steps of `fitting.fit`, with tensorly as the loop
            spec = described(self)
            checked = check(self, spec, X, FitInputs(y))
            problem = state(spec, checked)
            solution = self._parafac(checked, problem)
            publish(self, spec, checked, problem, finish(spec, problem, solution))
        return self

    def _parafac(self, checked: Checked, problem: Problem) -> Solution:
        """Return the non-negative CP factors of the images, computed by tensorly.

        The factors of image rows and columns are combined into one factor U.
        """
        from tensorly.decomposition import non_negative_parafac_hals

        X, k = checked.X, checked.k
        shape = self._shape(X.shape[1])
        if self.init == "svd" and k > min(X.shape):
            raise ValueError(
                f"init='svd' needs n_components <= min(n_samples, n_features) = {min(X.shape)}, "
                f"got {k}; use init='random'."
            )
        if not X.any():  # tensorly would divide by the norm of X
            V, U = np.zeros((len(X), k), X.dtype), np.zeros((X.shape[1], k), X.dtype)
            return Solution(V, U, [0.0], 1, True, "converged: X is zero")
        tensor = (X / X.dtype.type(checked.factor)).reshape(len(X), *shape)
        rng = check_random_state(self.random_state)
        (_, (V, A, B)), errors = non_negative_parafac_hals(
            tensor,
            rank=k,
            n_iter_max=self.max_iter,
            init=self.init if self.init == "random" else (np.ones(k), svd_start(tensor, k, rng)),
            tol=max(self.tol, 1e-300),
            random_state=rng,
            return_errors=True,
        )
        U = np.einsum("ik,jk->ijk", A, B).reshape(-1, k).astype(X.dtype)
        history = [float(e) ** 2 * problem.model.constant for e in errors]
        done = len(history) < self.max_iter
        status = "converged: change of the error below tol" if done else "stopped at max_iter"
        return Solution(V.astype(X.dtype), U, history, len(history), done, status)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def svd_start(tensor: AnyArray, k: int, rng: np.random.RandomState) -> list[AnyArray]:
    """Return initial CP factors: NNDSVD of the images unfolded along each axis.

    Components beyond the rank of an unfolding are noise. The initialisation of tensorly is not
    finite if all entries of a singular vector have the same sign.
    """
    factors = []
    for mode in range(tensor.ndim):
        rows = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
        found, _ = start(as_data(np.ascontiguousarray(rows)), min(k, *rows.shape), "nndsvda", rng)
        noise = found.mean() * rng.uniform(size=(len(rows), k - found.shape[1]))
        factors.append(np.hstack([found, noise.astype(tensor.dtype)]))
    return factors
