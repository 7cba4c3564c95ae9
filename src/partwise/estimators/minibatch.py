"""MiniBatchNMF, for data that arrive in batches or are larger than memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import StrOptions
from partwise.backends import as_data
from partwise.backends.arrays import AnyArray, limits
from partwise.backends.batches import Batch, InMemory, RowSource, row_source
from partwise.backends.data_matrix import ZEROS
from partwise.backends.memory import check_memory
from partwise.backends.threads import blas_threads
from partwise.estimators._base import Factorizer
from partwise.estimators._parameters import AT_LEAST_ONE, CONSTRAINTS, SHARE, estimator
from partwise.fitting import Description, Knowledge, all_or_nothing, described, watched
from partwise.fitting.callbacks import with_callbacks
from partwise.fitting.checking import (
    check_matrix,
    check_non_negative,
    check_start,
    n_parts,
    rescale_extremes,
    solver_name,
)
from partwise.fitting.description import warn
from partwise.fitting.new_samples import code_model, solve_new
from partwise.fitting.solving import root_mean_squares, warn_unless_converged
from partwise.fitting.special_arrays import check_shape
from partwise.fitting.stating import IGNORED, elastic_net, init_name
from partwise.knowledge.labels import as_ndarray, encode_labels
from partwise.model.factor_model import FactorModel
from partwise.model.losses import NAMES, beta_of, make_loss
from partwise.solvers import init as starts
from partwise.solvers.loop import Solution
from partwise.solvers.online import SWEEPS, Online

#: Maximum number of entries of X in the sample from which the initial parts are computed.
START_ENTRIES = 2**23
#: Number of samples whose part weights are computed together by `transform` and after `fit`.
PIECE = 1024
#: Attributes of `fit` that `partial_fit` deletes, because it changes the parts.
AFTER_FIT = (
    "embedding_",
    "objective_",
    "objective_history_",
    "reconstruction_err_",
    "n_iter_",
    "status_",
)


@estimator
class MiniBatchNMF(Factorizer):
    r"""NMF from batches of samples, like :class:`sklearn.decomposition.MiniBatchNMF`.

    It minimises over U >= 0, and solves for the part weights v of a sample when it reads its batch:

    .. math:: \sum_i w_i \Big( \min_{v \ge 0} d_\beta(x_i, U v)
              + \alpha_W p\,(\ell \|v\|_1 + \tfrac{1-\ell}{2} \|v\|^2)
              + \alpha_H\,(\ell \|U\|_1 + \tfrac{1-\ell}{2} \|U\|^2) \Big)

    Here w_i = ``forget_factor``\ :sup:`age` is one for samples of the last batch. Two sums contain
    what the batches contribute to U: VᵀV and XᵀV under the Frobenius loss, otherwise those of a
    majoriser, which ages sixteen times as fast. In `fit`, a sample that is read again replaces its
    earlier contribution. With the Frobenius loss and ``forget_factor=1``, every step lowers the
    objective of all samples.

    Without penalties, the part weights have a root mean square of about one, as in `NMF`. The
    first call of `partial_fit` or the end of `fit` sets this scale, and later calls keep it.

    X may be larger than memory: a `numpy.memmap`, a Zarr or HDF5 array, the ``X`` of a backed
    AnnData (dense, or CSR) and a Dask array are read in runs of rows as they are stored.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Number of parts k. "auto": as many as rows of a custom H, else the number of features.
    init : {"random", "nndsvd", "nndsvda", "nndsvdar", "kmeans", "custom"}, default=None
        Initial parts, computed from X or from a sample of at most 64 MB; in `partial_fit`
        from the first batch. None: "nndsvda", or "random" for more parts than samples or
        features. "custom" takes H.
    batch_size : int, default=1024
        Number of samples in a batch.
    beta_loss : float or {"frobenius", "kullback-leibler", "itakura-saito"}, default="frobenius"
        The β-divergence to minimise (2, 1, 0).
    tol : float, default=1e-4
        Stop if no batch of a pass changes U by more than this share of its norm. Larger values
        stop earlier; 0 turns this rule off.
    max_no_improvement : int or None, default=10
        Stop if the smoothed objective has not fallen for this number of batches, and for a whole
        pass. None turns this rule off.
    max_iter : int, default=200
        Maximum number of passes over X.
    alpha_W : float, default=0.0
        Weight of the penalty on the part weights, times the number of features.
    alpha_H : float or "same", default="same"
        Weight of the penalty on the parts, times the number of samples.
    l1_ratio : float, default=0.0
        Share ℓ of the l1 norm in the penalties.
    forget_factor : float, default=0.7
        The share of its weight that a sample keeps during one pass; in `partial_fit`, while a
        sixteenth of the samples so far are read. 1 forgets nothing, 0 all but the last batch.
    fresh_restarts : bool, default=False
        Solve for the part weights of a batch from a constant instead of those of the last pass.
    fresh_restarts_max_iter : int, default=30
        Maximum number of sweeps of a solve from a constant.
    transform_max_iter : int, default=None
        Maximum number of iterations of a solve for part weights with the parts fixed, for other
        losses than Frobenius. None: 200, or ``max_iter`` if that is more.
    random_state : int, RandomState instance or None, default=None
        Random seed for the initial parts and the order of samples.
    verbose : int, default=0
        Print the objective of each pass.
    shuffle : bool, default=True
        Shuffle the samples in each pass of `fit`. Data that are not in memory are read by pieces in
        a random order, and a few pieces are shuffled at a time.
    hard_labels : bool, default=False
        Use y: labelled samples of a class share their part weights, as in `CNMF`, and count by the
        mean of their class. Otherwise y is ignored.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H = Uᵀ, the parts.
    embedding_ : ndarray of shape (n_samples, n_components)
        Part weights of the samples, from a last pass with the final parts; after `fit`.
    classes_ : ndarray
        The classes seen so far, if ``hard_labels``.
    n_components_ : int
    reconstruction_err_ : float
        √(2 loss), as in scikit-learn; after `fit`.
    objective_ : float
        The objective with all samples of weight one; after `fit`.
    objective_history_ : ndarray
        For each pass, the sum of the objectives of its batches, each before its own update.
    n_iter_ : int
        Number of passes over X, without the last one, which computes part weights.
    n_steps_ : int
        Number of batches.
    status_ : str
        Why the fit ended, as a sentence.

    References
    ----------
    J. Mairal, F. Bach, J. Ponce, G. Sapiro: Online learning for matrix factorization and sparse
    coding, 2010.
    A. Lefèvre, F. Bach, C. Févotte: Online algorithms for NMF with the Itakura-Saito divergence,
    2011.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import MiniBatchNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.gamma(0.5, size=(500, 3)) @ rng.gamma(0.3, size=(3, 20))
    >>> model = MiniBatchNMF(3, batch_size=100, random_state=0)
    >>> for start in range(0, 500, 100):
    ...     model = model.partial_fit(X[start : start + 100])
    >>> left = X - model.transform(X) @ model.components_
    >>> bool(np.linalg.norm(left) < 0.05 * np.linalg.norm(X))
    True
    """

    init: str | None = None
    batch_size: int = 1024
    beta_loss: str | float = "frobenius"
    tol: float = 1e-4
    max_no_improvement: int | None = 10
    max_iter: int = 200
    alpha_W: float = 0.0
    alpha_H: float | str = "same"
    l1_ratio: float = 0.0
    forget_factor: float = 0.7
    fresh_restarts: bool = False
    fresh_restarts_max_iter: int = 30
    transform_max_iter: int | None = None
    random_state: Any = None
    verbose: int = 0
    shuffle: bool = True
    hard_labels: bool = False

    _parameter_constraints = {
        "batch_size": [AT_LEAST_ONE],
        "beta_loss": [StrOptions(set(NAMES) - {"l21"}), CONSTRAINTS["beta_loss"][1]],
        "max_no_improvement": [AT_LEAST_ONE, None],
        "forget_factor": [SHARE],
        "fresh_restarts": ["boolean"],
        "fresh_restarts_max_iter": [AT_LEAST_ONE],
        "transform_max_iter": [AT_LEAST_ONE, None],
    }
    solver = "auto"
    own_fit = True
    n_init = 1

    # -- model of some samples with fixed parts ---------------------------------------------

    def _describe(self) -> Description:
        """Return the `Description` of the problem that `transform` solves.

        It uses neither labels nor the order of samples.
        """
        most = self.transform_max_iter or max(self.max_iter, 200)
        spec = super()._describe()
        return replace(spec, local=True, hard_labels=False, shuffle=False, max_iter=most)

    def _codes(self, data: Any) -> tuple[FactorModel, AnyArray]:
        """Return the model of some samples with fixed parts, and their part weights."""
        spec = self._describe()
        model = code_model(self, spec, data, None, None)
        return model, solve_new(self, spec, model)[0]

    # -- learning the parts from batches ----------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any = None, *, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Learn the parts of X in passes over its batches.

        Parameters
        ----------
        X : array-like, sparse matrix, memmap, Zarr or HDF5 array, backed AnnData matrix, Dask array
            Non-negative samples, of shape (n_samples, n_features).
        y : array-like of shape (n_samples,), default=None
            Labels, used if ``hard_labels``; -1, None and NaN are unknown.
        W, H : array-like, default=None
            The start of part weights and parts, if ``init="custom"``; W is optional.

        Returns
        -------
        self : MiniBatchNMF
        """
        with all_or_nothing(self):
            self._fit_passes(X, y, W, H)
        return self

    def _fit_passes(self, X: Any, y: Any, W: Any, H: Any) -> None:
        """Learn the parts in passes over all batches, and set the fitted attributes."""
        spec = described(self)
        source = source_of(self, X, reset=True)
        factor = 1.0
        if isinstance(source, InMemory):
            data, W, H, factor = rescale_extremes(spec, source.X, W, H)
            source = InMemory(data.whole())
        self._drop("classes_")
        codes = class_codes(self, y, source.shape[0])
        k = n_parts(spec, source.shape[1], H, Knowledge())
        rng = check_random_state(self.random_state)
        progress = watched(self, X, y, 1)
        with blas_threads(float(min(self.batch_size, source.shape[0])) * source.shape[1] * k):
            sample = source.sample(START_ENTRIES, rng)
            next(checked(self, iter([sample])))
            online = online_of(self, first_parts(self, sample.X, k, H, rng))
            passes = Passes(self, source, online, codes, rng)
            if self.init == "custom" and W is not None:
                passes.V[:] = check_start(
                    as_ndarray(W), passes.V.shape, source.dtype, "W", type(self).__name__
                )
            status = passes.run(progress(0) if progress else None)
            self._finish(passes, status, factor)
        if progress is not None:
            progress.finish()

    def _finish(self, passes: Passes, status: str, factor: float) -> None:
        """Compute all part weights with the final parts, and set the attributes."""
        source, online, V, codes = passes.source, passes.online, passes.V, passes.codes
        k, beta = online.U.shape[1], beta_of(self.beta_loss)
        labelled = np.zeros(len(V), dtype=bool) if codes is None else codes >= 0
        if codes is not None:
            V[labelled] = online.classes.V[codes[labelled]]
        lengths = self._lengths(V)
        V /= lengths.astype(V.dtype)
        U = np.ascontiguousarray(online.U * lengths.astype(V.dtype))
        self.components_ = np.ascontiguousarray(U.T)
        in_memory = isinstance(source, InMemory)
        whole = iter([source.sample(0, passes.rng)]) if in_memory else source.batches(PIECE, None)
        objective = penalty = 0.0
        for rows, X in whole:
            model, found = self._codes(as_data(X))
            V[rows] = found = np.where(labelled[rows][:, None], V[rows], found)
            objective += model.exact_value(found, U)
            penalty += sum(model.penalty(side, found, U) for side in "VU")
        warn_unless_converged(replace(self._describe(), max_iter=self.max_iter), passes.solution)
        grow = factor**beta
        self.components_ *= V.dtype.type(factor)
        self.embedding_ = V
        self._n_components = self.n_components_ = k
        self.objective_ = objective * grow
        self.objective_history_ = np.asarray(passes.history) * grow
        self.reconstruction_err_ = float(np.sqrt(2 * max(objective - penalty, 0.0) * grow))
        self.n_iter_, self.n_steps_ = passes.n_iter, passes.steps
        self.status_, self.solver_ = status, solver_name(self._describe())
        self._state = online.state() | {"lengths": lengths} if factor == 1 else None

    def _lengths(self, V: AnyArray) -> AnyArray:
        """Return the divisors that scale columns of V to a root mean square of one.

        They are ones if there are penalties, which depend on the scale.
        """
        if self._describe().penalized:
            return np.ones(V.shape[1])
        return np.asarray(root_mean_squares(V), dtype=np.float64)

    def partial_fit(self, X: Any, y: Any = None, *, W: Any = None, H: Any = None) -> MiniBatchNMF:
        """Learn from one more batch of samples.

        Parameters
        ----------
        X : as in `fit`
            The batch. Data that are not in memory are read in batches of ``batch_size``.
        y : array-like of shape (n_samples,), default=None
            Labels, used if ``hard_labels``; classes may be new.
        W : Ignored
        H : array-like, default=None
            The start of the parts, in the first call, if ``init="custom"``.

        Returns
        -------
        self : MiniBatchNMF
        """
        with all_or_nothing(self):
            self._learn_more(X, y, H)
        return self

    def _learn_more(self, X: Any, y: Any, H: Any) -> None:
        """Update the parts with one more batch, for `partial_fit`."""
        spec = described(self)
        first = not hasattr(self, "components_")
        source = source_of(self, X, reset=first)
        codes = class_codes(self, y, source.shape[0])
        k = n_parts(spec, source.shape[1], H, Knowledge()) if first else self.components_.shape[0]
        most = self.fresh_restarts_max_iter
        size = source.shape[0] if isinstance(source, InMemory) else self.batch_size
        online: Online | None = None if first else self._resume(source.dtype)
        lengths = None if first else (self._state or {}).get("lengths")
        with blas_threads(float(size) * source.shape[1] * k):
            for batch in checked(self, source.batches(size, None)):
                if online is None:
                    rng = check_random_state(self.random_state)
                    online = online_of(self, first_parts(self, batch.X, k, H, rng))
                    self.n_steps_ = 0
                meet(online, batch, codes, None, most)
                self.n_steps_ += 1
                if (
                    lengths is None
                ):  # the scale of the first batch is also used for all later batches
                    self.components_ = np.ascontiguousarray(online.U.T)
                    lengths = self._lengths(self._codes(as_data(batch.X))[1])
        assert online is not None and lengths is not None
        self.components_ = np.ascontiguousarray((online.U * lengths.astype(online.U.dtype)).T)
        self._n_components = self.n_components_ = k
        self._state = online.state() | {"lengths": lengths}
        self._drop(*AFTER_FIT)  # these attributes belong to the parts before the update

    def _drop(self, *names: str) -> None:
        """Delete the named attributes that exist."""
        for name in names:
            if hasattr(self, name):
                delattr(self, name)

    def _resume(self, dtype: Any) -> Online:
        """Return an `Online` object with the state after the last batch."""
        lengths = 1.0 if self._state is None else self._state["lengths"]
        online = online_of(self, np.ascontiguousarray((self.components_.T / lengths).astype(dtype)))
        if self._state is not None:
            online.go_on(self._state)
        return online

    def transform(self, X: Any) -> AnyArray:
        """Return part weights of new samples, V >= 0, with the parts fixed.

        Parameters
        ----------
        X : as in `fit`
            Data that are not in memory are read piece by piece.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        source = row_source(X)
        if source is None:
            return self._plain_transform(X)
        source = source_of(self, X, reset=False)
        V = part_weights(self, "transform", source, len(self.components_))
        for rows, block in checked(self, source.batches(PIECE, None)):
            V[rows] = self._codes(as_data(block))[1]
        return V


def source_of(estimator: Factorizer, X: Any, *, reset: bool) -> RowSource:
    """Return an object that reads X by rows.

    An X in memory is checked now, other data when they are read.
    """
    source = row_source(X)
    if source is None:
        X, _ = check_matrix(estimator, estimator._describe(), X, reset=reset)
        return InMemory(sp.csr_array(X) if sp.issparse(X) else X)
    check_shape(estimator, source, reset)
    return source


def part_weights(estimator: Any, method: str, source: RowSource, k: int) -> AnyArray:
    """Return an array of zeros for the part weights of all samples.

    Raise an error if it does not fit in memory.
    """
    n = source.shape[0]
    check_memory(
        float(n) * (k * source.dtype.itemsize + 8), f"{type(estimator).__name__}.{method}",
        f"the part weights of all {n:,} samples",
        "Pass some samples at a time, to partial_fit instead of fit, or use NMF, which leaves the "
        "part weights of a Dask array on the cluster.",
    )  # fmt: skip
    return np.zeros((n, k), source.dtype)


def checked(estimator: Any, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches of the first pass, and raise an error for invalid values."""
    name, beta = type(estimator).__name__, beta_of(estimator.beta_loss)
    for rows, X in batches:
        if not np.isfinite(limits(X.data if sp.issparse(X) else X)).all():
            raise ValueError("Input X contains NaN or infinity.")
        check_non_negative(X, name)
        if beta <= 0 and X.min() == 0:
            raise ValueError(ZEROS)
        yield Batch(rows, X)


def class_codes(estimator: Any, y: Any, n: int) -> AnyArray | None:
    """Return the index of each label in ``classes_``, or -1 if it is unknown.

    New classes are appended to ``classes_``.
    """
    labels = encode_labels(as_ndarray(y), n) if estimator.hard_labels else None
    if labels is None:
        return None
    known: list[Any] = getattr(estimator, "classes_", np.zeros(0)).tolist()
    new = [name for name in labels.classes.tolist() if name not in known]
    place = {name: at for at, name in enumerate(known + new)}
    estimator.classes_ = np.asarray(list(place), dtype=labels.classes.dtype if not known else None)
    codes = np.array([place[name] for name in labels.classes.tolist()] + [-1])
    return codes[labels.codes]


def first_parts(
    estimator: Factorizer, sample: Any, k: int, H: Any, rng: np.random.RandomState
) -> AnyArray:
    """Return the initial parts U, computed from some samples."""
    data = as_data(sample)
    name = init_name(estimator._describe(), data, k)
    if name == "custom":
        if H is None:
            raise ValueError("init='custom' needs H.")
        H = check_start(
            as_ndarray(H), (k, data.shape[1]), data.dtype, "H", type(estimator).__name__
        )
        return np.ascontiguousarray(H.T)
    if H is not None:
        warn(IGNORED, RuntimeWarning)
    return starts.start(data, k, name, rng)[1]


def online_of(estimator: Any, U: AnyArray) -> Online:
    """Return an `Online` object that starts from the parts U."""
    on_U = estimator.alpha_W if estimator.alpha_H == "same" else float(estimator.alpha_H)
    terms_V, terms_U = (
        partial(elastic_net, alpha, estimator.l1_ratio, U.dtype)
        for alpha in (estimator.alpha_W * len(U), on_U)
    )
    forget = float(estimator.forget_factor)
    return Online(make_loss(estimator.beta_loss), U, forget, terms_V, terms_U)


def meet(
    online: Online, batch: Batch, codes: AnyArray | None, among: int | None, sweeps: int,
    V: AnyArray | None = None, at: AnyArray | None = None, fresh: bool = False,
) -> float:  # fmt: skip
    """Learn from one batch, and return the sum of its objective before the update.

    Parameters
    ----------
    codes : (n,) array of int or None
        The class of each sample of X, by its index; -1 if unknown.
    among : int or None
        Number of samples in X. None if it is unknown, as in `partial_fit`; the number of samples
        read so far then replaces it.
    sweeps : int
        Maximum number of coordinate descent sweeps for part weights without an earlier value.
    V, at : (n, k) and (n,) arrays or None
        Part weights of all samples, and the time of their last update (NaN: never). Both are
        changed in place.
    fresh : bool
        Start the solve for the part weights from a constant, not from their earlier values.
    """
    rows, X = batch
    online.decay(len(rows), among)
    kept = np.zeros(len(rows))
    if at is not None:
        kept = np.where(np.isnan(at[rows]), 0.0, online.kept(at[rows]))
        at[rows] = online.time
    if codes is not None and (labelled := codes[rows] >= 0).any():
        online.classes.add(X[labelled], codes[rows][labelled], 1 - kept[labelled])
        rows, X, kept = rows[~labelled], X[~labelled], kept[~labelled]
    if not len(rows):
        online.move()
        return 0.0
    old = V[rows] if V is not None and V[rows].any() else None
    warm = None if fresh else old
    model = online.model(as_data(X))
    found, value = online.visit(model, warm, SWEEPS if warm is not None else sweeps, old, kept)
    if V is not None:
        V[rows] = found
    return value


class Passes:
    """Passes of `MiniBatchNMF.fit` over X, with the current part weights.

    Attributes
    ----------
    V : (n, k) array
        Part weights of all samples.
    steps, n_iter : int
        Number of batches, and of passes begun.
    history : list of float
        The sum of the objectives of each pass.
    converged : bool
        Whether a stopping rule other than ``max_iter`` ended the passes.
    """

    def __init__(
        self, estimator: Any, source: RowSource, online: Online, codes: AnyArray | None, rng: Any
    ) -> None:
        self.estimator, self.source, self.online, self.codes = estimator, source, online, codes
        self.rng = rng if estimator.shuffle else None
        n, k = source.shape[0], online.U.shape[1]
        self.V, self.at = part_weights(estimator, "fit", source, k), np.full(n, np.nan)
        self.steps = self.n_iter = self.idle = self.still = 0
        self.per_pass = -(-n // estimator.batch_size)
        self.history: list[float] = []
        self.smooth: float | None = None
        self.lowest = np.inf
        self.converged = False

    def run(self, report: Callable[[int, Solution], bool] | None) -> str:
        """Run passes until a stopping rule applies, and return a sentence about that rule."""
        settings, began = self.estimator, time.perf_counter()
        for number in range(1, settings.max_iter + 1):
            self.n_iter, total = number, 0.0
            self.history.append(0.0)
            batches = self.source.batches(settings.batch_size, self.rng)
            for batch in checked(settings, batches) if number == 1 else batches:
                before = self.online.U
                value = meet(
                    self.online, batch, self.codes, self.source.shape[0],
                    settings.fresh_restarts_max_iter, self.V, self.at, settings.fresh_restarts,
                )  # fmt: skip
                self.steps += 1
                total += value
                why = self._enough(before, value / len(batch.rows), len(batch.rows))
                if why:
                    self.history[-1] = total
                    self.converged = True
                    return why
            self.history[-1] = total
            if settings.verbose and number % 10:
                seconds = time.perf_counter() - began
                print(f"pass {number:4d}, {seconds:.3f} s, objective as met {total:.6g}")
            if report is not None and report(number, self.solution):
                return "Stopped by a callback."
        return f"Ended after max_iter={settings.max_iter} passes."

    @property
    def solution(self) -> Solution:
        """Current part weights, parts and history of objectives."""
        return Solution(self.V, self.online.U, self.history, self.n_iter, self.converged)

    def _enough(self, before: AnyArray, cost: float, size: int) -> str:
        """Return why to stop after this batch, or "" to continue.

        The two stopping rules are those of scikit-learn's MiniBatchNMF, applied to a whole pass.
        """
        if self.steps == 1:
            return ""
        share = min(1.0, size / (self.source.shape[0] + 1))
        self.smooth = cost if self.smooth is None else (1 - share) * self.smooth + share * cost
        U, settings = self.online.U, self.estimator
        still = np.linalg.norm(U - before) <= settings.tol * np.linalg.norm(U)
        self.still = self.still + 1 if still else 0
        if settings.tol > 0 and self.still >= self.per_pass:
            return f"No batch of a pass changed the parts by more than tol={settings.tol:g}."
        self.idle = 0 if self.smooth < self.lowest else self.idle + 1
        self.lowest = min(self.lowest, self.smooth)
        most = max(settings.max_no_improvement or 0, self.per_pass)
        idle = settings.max_no_improvement is not None and self.idle >= most
        return f"No improvement in {most} batches." if idle else ""
