"""Plain least squares, one start or many as wide arrays: the loop for all of them at once.

What `loop` does for ½‖X - V Uᵀ‖² on ndarrays with coordinate descent, extrapolation and guard, for
R starts whose factors lie side by side in (n, R k) and (p, R k): one product with X for all, and
one kernel for the rest of a half-step. Each start has its own momentum, guard and end. A start that
needs more than that (the guard took three iterations in a row back) goes on in the loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.backends.arrays import MANY, AnyArray, gram, limits, ratio, to_numpy
from partwise.backends.data_matrix import InNumpy
from partwise.backends.numpy.dense import least_rows
from partwise.backends.sweeps import kkt_lengths, row_runs
from partwise.backends.threads import BLAS, PASS, by_entry, one_blas_thread, threads_for
from partwise.model.factor_model import FactorModel
from partwise.model.losses import Frobenius
from partwise.model.subproblems import misfit
from partwise.solvers import loop
from partwise.solvers.loop import (
    LOOK_BACK,
    PLAIN,
    SAFE,
    Settings,
    Solution,
    alternate,
    joined,
    shifted,
)
from partwise.solvers.steps import Step, hals, mu

#: A start: its factors, and the step that moves them.
Begun = tuple[AnyArray, AnyArray, Step]

#: X U and XᵀV of an iteration (or shares of `Side.along`), and what its half-steps changed.
Moved = tuple[AnyArray, AnyArray, NDArray[np.float64], NDArray[np.float64]]

#: Called after each iteration; True ends the loop.
Watch = Callable[[int, Solution], bool]

#: Bytes of the arrays that a half-step walks through: more are fetched from memory anew each time.
CACHE = 6 * 2**20
#: Columns below which the product with X is no longer cheap.
NARROWEST = 64
#: A sweep that moves less than this share of the first one is the last, as in `hals`.
STOP = 0.1


def can(model: FactorModel, step: Step, settings: Settings) -> bool:
    """Whether this is the problem that is solved here."""
    plain = model.rows is None and model.weights is None and not (model.project or model.unit)
    bare = plain and not (model.terms["V"] or model.terms["U"] or model.S.delta)
    kind = type(model.loss) is Frobenius and isinstance(model.R, InNumpy) and model.R.lack is None
    wanted = replace(
        Settings(settings.max_iter, settings.tol), check_every=settings.check_every, safe=mu
    )
    return bare and kind and step is hals and settings == wanted and settings.max_iter > 0


def width(data: Any, k: int) -> int:
    """How many starts of k parts go side by side."""
    most = max(NARROWEST, CACHE / (4 * np.dtype(data.dtype).itemsize * max(data.shape)))
    return max(1, int(most / k))


@dataclass
class Side:
    """One factor of all starts.

    Attributes
    ----------
    Z : (n, R k) array
        Where the next half-step begins.
    old : (blocks, R k, LANES) array
        Where the last one ended, before the extrapolation, in blocks of rows.
    gram : (R, k, k) array
        Gram matrices of Z.
    sweeps : int
    spare : (n, R k) array
        What the next half-step writes to: where the last one began.
    began : (R, k, k) array
        Gram matrices of that.
    older : (blocks, R k, LANES) array
        Where the one before the last ended; the next one writes to it.
    grams : (pieces, R, k, k) array
        Room of the next half-step: what each core has written there it has at hand.
    """

    Z: AnyArray
    old: AnyArray
    gram: AnyArray
    sweeps: int
    spare: AnyArray
    began: AnyArray
    older: AnyArray
    grams: AnyArray | None = None

    @classmethod
    def of(cls, factors: Sequence[AnyArray], sweeps: int) -> Side:
        Z = np.ascontiguousarray(np.concatenate(factors, axis=1))
        old, grams = blocked(Z), np.stack([to_numpy(gram(F)) for F in factors])
        return cls(Z, old, grams, sweeps, np.empty_like(Z), grams, np.empty_like(old))

    def step(
        self, C: AnyArray, G: AnyArray, weights: AnyArray, work: float = 0.0, **beside: Any
    ) -> NDArray[np.float64]:
        """Take a half-step with Hessians G; return the change of the objective.

        That is (R, 2): up to where the sweeps end, and from there to where the next ones begin.
        Where this one began is ``spare`` until the next. ``beside`` it other ``work`` is done; see
        `half_steps`.
        """
        from partwise.backends.numpy import kernels

        threads = threads_for(float(self.Z.size) * G.shape[1] * (self.sweeps + 1) + work, True)
        C, G = np.ascontiguousarray(C), np.ascontiguousarray(G)
        args = (self.Z, C, G, self.old, weights, self.spare, self.sweeps, STOP, threads)
        pieces = -(-len(self.old) // kernels.blocks_of_a_piece(len(self.Z), beside.get("least", 1)))
        if self.grams is None or self.grams.shape != (pieces, *G.shape):
            self.grams = np.empty((pieces, *G.shape))
        gram, change = kernels.half_steps(*args, ends=self.older, grams=self.grams, **beside)
        self.Z, self.spare = self.spare, self.Z
        self.began, self.gram = self.gram, gram.astype(G.dtype)
        self.old, self.older = self.older, self.old
        return np.asarray(change)

    def along(
        self, X: AnyArray, other: Side, weights: AnyArray, ready: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, NDArray[np.float64], AnyArray]:
        """`step` with its product C = X B, which may be ``ready``, B the other factor.

        Returns C, what `step` does, and what pieces of rows have of XᵀZ, each transposed.
        """
        from partwise.backends.numpy import kernels

        Z, B, beyond, least = self.Z, other.Z, self.spare, least_rows(X.shape[1])
        count = -(-len(self.old) // kernels.blocks_of_a_piece(len(Z), least))
        C = np.empty_like(Z) if ready is None else np.ascontiguousarray(ready[0])
        shares = np.empty((count, *B.T.shape), B.dtype)

        along = (X, B, C if ready is None else None, 0, beyond, shares)
        work = 2 * BLAS * X.size * B.shape[1]
        with one_blas_thread:
            changed = self.step(C, other.gram, weights, work, least=least, along=along)
        return C, changed, shares

    def beside(
        self, X: AnyArray, other: Side, weights: AnyArray
    ) -> tuple[AnyArray, NDArray[np.float64]]:
        """`step` with its product C = X B, B the other factor; returns C, too.

        Where columns of X lie one after the other that is (1, R k, n), transposed.
        """
        B, across = other.Z, not X.flags.c_contiguous
        C = np.empty((1, *self.Z.T.shape) if across else self.Z.shape, self.Z.dtype)
        along = (X.T if across else X, B, C, int(across), None, None)
        given: Any = {"shares": C} if across else {}
        changed = self.step(
            self.Z if across else C, other.gram, weights, BLAS * X.size * B.shape[1],
            least=least_rows(X.shape[1]), along=along, **given,
        )  # fmt: skip
        return C, changed

    def across(
        self, shares: AnyArray, G: AnyArray, weights: AnyArray
    ) -> tuple[AnyArray, NDArray[np.float64]]:
        """`step` with what the other factor's `along` left of its product; returns that, too."""
        return shares, self.step(self.Z, G, weights, PASS * shares.size, shares=shares)

    def take_back(self, r: int, where: AnyArray) -> None:
        """Begin start r again from ``where``, with nothing to point away from.

        That is ``spare``, or in blocks like ``old``, for all starts.
        """
        alone, own = len(self.gram) == 1, columns(r, self.gram.shape[1])
        again, blocks = where is self.spare, where.ndim == 3
        if alone and again:
            self.Z, self.spare = self.spare, self.Z
        elif alone and where is self.older:
            self.old, self.older = self.older, self.old
        else:
            to = self.old if blocks else self.Z
            by_entry(lambda rows: np.copyto(to[rows, own], where[rows, own]), to)
        _turn(self.Z, self.old, own, back=blocks)
        self.gram[r] = self.began[r] if again else gram(np.ascontiguousarray(self.Z[:, own]))

    def join(self, other: Side) -> None:
        """Put the starts of another beside these."""
        self.Z = np.concatenate([self.Z, other.Z], axis=1)
        self.old = np.concatenate([self.old, other.old], axis=1)
        self.gram = np.concatenate([self.gram, other.gram])
        self.spare, self.older = np.empty_like(self.Z), np.empty_like(self.old)

    def keep(self, runs: NDArray[np.bool_]) -> None:
        """Leave out the other starts."""
        wide = np.repeat(runs, self.gram.shape[1])
        self.Z = np.ascontiguousarray(self.Z[:, wide])
        self.spare = np.empty_like(self.Z)
        self.old, self.gram = np.ascontiguousarray(self.old[:, wide]), self.gram[runs]
        self.older = np.empty_like(self.old)


def columns(r: int, k: int) -> slice:
    """Those of start r."""
    return slice(r * k, (r + 1) * k)


def blocked(Z: AnyArray) -> AnyArray:
    """Z in blocks of LANES rows, each transposed; the last one is filled with zeros."""
    from partwise.backends.numpy import kernels

    Z = np.ascontiguousarray(Z)
    old = np.empty((-(-len(Z) // kernels.LANES), Z.shape[1], kernels.LANES), Z.dtype)
    _turn(Z, old, slice(0, Z.shape[1]))
    return old


def unblocked(old: AnyArray, n: int) -> AnyArray:
    """`blocked` the other way."""
    Z = np.empty((n, old.shape[1]), old.dtype)
    _turn(Z, np.ascontiguousarray(old), slice(0, old.shape[1]), back=True)
    return Z


def _turn(Z: AnyArray, old: AnyArray, own: slice, *, back: bool = False) -> None:
    """Copy these columns of Z to blocks of rows, or ``back``; see `blocked`."""
    from partwise.backends.numpy import kernels

    n, k = len(Z), own.stop - own.start
    if Z.size >= MANY:
        threads = threads_for(PASS * n * k, True)
        kernels.turn_blocks(Z, old, own.start, k, threads, back=back)
    elif back:
        Z[:, own] = old[:, own].transpose(0, 2, 1).reshape(-1, k)[:n]
    else:
        filled = np.zeros((len(old) * kernels.LANES, k), Z.dtype)
        filled[:n] = Z[:, own]
        old[:, own] = filled.reshape(len(old), -1, k).transpose(0, 2, 1)


#: What `Wide` has one of for each start.
EACH = ("numbers", "value", "ahead", "anchor", "weight", "ceiling", "failures")


class Wide:
    """Starts side by side. Those that end make room for the next; one alone may be watched."""

    V: Side
    U: Side
    k: int
    value: NDArray[np.float64]
    ahead: NDArray[np.float64]
    anchor: NDArray[np.float64]
    weight: NDArray[np.float64]
    ceiling: NDArray[np.float64]
    failures: NDArray[np.int64]

    def __init__(self, model: FactorModel, settings: Settings, watch: Watch | None = None) -> None:
        self.model, self.settings, self.watch = model, settings, watch
        self.numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        self.history: list[list[float]] = []
        self.ended: dict[int, Solution] = {}
        self.ready: list[AnyArray] | None = None  # X U of one start, from its first value
        self.shares: AnyArray | None = None  # pieces of X U, from the last half-step

    def run(self, starts: Iterator[Begun]) -> Iterator[Solution]:
        """Yield the solutions, in the order of their starts."""
        begun = next(starts, None)
        if begun is None:
            return
        size = width(self.model.R, begun[1].shape[1])
        self.begin([begun, *islice(starts, size - 1)], 0)
        del begun  # as large as the factors
        n, following, given = 0, len(self.history), 0
        while len(self.numbers):
            n += 1
            look = n % self.settings.check_every == 0
            residual = self.advance()
            self.tell()
            if look and len(self.numbers) and self.settings.tol > 0:
                self.judge(residual)
            del residual  # and its products
            self.stop()
            while given in self.ended:
                yield self.ended.pop(given)
                given += 1
            if look or not len(self.numbers):  # all look at the same time
                n, more = 0, list(islice(starts, size - len(self.numbers)))
                self.begin(more, following)
                following += len(more)

    def tell(self) -> None:
        """Show the one start to who looks on, and end it if that is wished."""
        if self.watch is None:
            return
        n = len(self.history[0])
        if self.watch(n, Solution(*self.point(0), self.history[0], n)):
            self.end(0, f"stopped by a callback after {n} iterations")
            self.drop(np.ones(1, bool))

    def begin(self, begun: Sequence[Begun], first: int) -> None:
        """More starts, numbered from ``first`` on."""
        if not begun:
            return
        model, R = self.model, len(begun)
        V = Side.of([V for V, _, _ in begun], model.sweeps["V"])
        U = Side.of([U for _, U, _ in begun], model.sweeps["U"])
        value = np.array([_value(model, V, U) for V, U, _ in begun])
        if first == 0 and R == 1:
            self.ready = model.seen.last.taken(*begun[0][:2], "V")
        each = (
            first + np.arange(R),
            value,
            np.zeros(R),
            value.copy(),
            np.full(R, loop.FIRST),
            np.ones(R),
        )
        new = dict(zip(EACH, (*each, np.zeros(R, int)), strict=True))
        if not len(self.numbers):
            self.V, self.U, self.k = V, U, begun[0][1].shape[1]
            vars(self).update(new)
        else:
            self.shares = None
            self.V.join(V)
            self.U.join(U)
            vars(self).update({n: np.concatenate([getattr(self, n), a]) for n, a in new.items()})
        self.history += [[] for _ in begun]

    def advance(self) -> Callable[[], NDArray[np.float64]]:
        """One iteration; what is returned finds the KKT residuals between its half-steps."""
        began, before = self.value, self.U.old
        weights = np.where(self.failures >= PLAIN, 0.0, self.weight).astype(self.V.Z.dtype)
        V, of_U, U = self.V.Z, self.U.gram, self.U.Z
        data = self.model.R
        assert isinstance(data, InNumpy)  # `can` asks for it
        X = data.at_hand()
        apart = X is None or X.dtype != U.dtype
        with one_blas_thread:  # told once
            C, D, first, second = self.apart(weights) if apart else self.together(X, weights)
        of_V = self.V.gram
        value = self.value + self.ahead + first.sum(axis=1)
        self.accept(value + second[:, 0], second[:, 1], before)
        for history, now in zip(self.history, self.value, strict=True):
            history.append(float(now))

        def residual() -> NDArray[np.float64]:
            found = self.residual(V, C, of_U, began)
            if found.min() > self.settings.tol:
                return found
            return np.maximum(found, self.residual(U, D, of_V, began))

        return residual

    def apart(self, weights: AnyArray) -> Moved:
        """Both half-steps, each after its product."""
        data = self.model.R
        C = data.dot(self.U.Z) if self.ready is None else self.ready[0]
        self.ready = None
        first = self.V.step(C, self.U.gram, weights)
        D = data.tdot(self.V.Z)
        return C, D, first, self.U.step(D, self.V.gram, weights)

    def together(self, X: AnyArray, weights: AnyArray) -> Moved:
        """Take both half-steps and wake threads twice per iteration, not four times as `apart`.

        Each half-step updates rows together with their product. If X is long, rows of the factor
        along X's rows in memory also add their share to the other product, so X is read once.
        """
        rows, _ = X.shape if X.flags.c_contiguous else X.T.shape
        # eight pieces, each of whose sums of k columns is a quarter of its rows at most
        long, ready, self.ready = rows >= 32 * self.U.Z.shape[1], self.ready, None
        if long and X.flags.c_contiguous:
            C, first, shares = self.V.along(X, self.U, weights, ready)
            D, second = self.U.across(shares, self.V.gram, weights)
            return C, D, first, second
        if ready is not None:
            C, first = ready[0], self.V.step(ready[0], self.U.gram, weights)
        elif self.shares is not None:
            C, first = self.V.across(self.shares, self.U.gram, weights)
        else:
            C, first = self.V.beside(X, self.U, weights)
        if long:
            D, second, self.shares = self.U.along(X.T, self.V, weights)
        else:
            D, second = self.U.beside(X.T, self.V, weights)
        return C, D, first, second

    def accept(
        self, value: NDArray[np.float64], ahead: NDArray[np.float64], before: AnyArray
    ) -> None:
        """Report the new factors, except where the objective rose: there begin again from the last.

        Their U is ``before``, in blocks; their V is where its half-step began.
        """
        good = value <= self.value
        grown = loop.grown(self.weight, self.ceiling)
        if good.all():
            self.value, self.ahead, self.failures = value, ahead, 0 * self.failures
            self.weight, self.ceiling = grown
        else:
            self.value, self.ahead = np.where(good, value, self.value), np.where(good, ahead, 0.0)
            self.failures = np.where(good, 0, self.failures + 1)
            self.weight, self.ceiling = np.where(good, grown, loop.shrunk(self.weight))
            self.shares = None
            for r in np.flatnonzero(~good).tolist():
                self.V.take_back(r, self.V.spare)
                self.U.take_back(r, before)
        low = self.value < 1e5 * self.model.eps * self.anchor
        if low.any():
            for r in np.flatnonzero(good & low).tolist():
                self.sum_again(r)

    def point(self, r: int) -> tuple[AnyArray, AnyArray]:
        """Return the reported factors of start r."""
        own = columns(r, self.k)
        U = unblocked(self.U.old[:, own], self.model.data.shape[1])
        return np.ascontiguousarray(self.V.Z[:, own]), U

    def sum_again(self, r: int) -> None:
        """Compute the objective from the factors, not from decreases; see `loop.anchor`."""
        point = self.point(r)
        exact = self.model.exact_value(*point, float(self.value[r]))
        self.model.seen.last.taken(*point, "V")  # its product would stay
        self.history[r][:] = shifted(self.history[r], exact - self.value[r], exact)
        least = self.model.least * self.model.size
        self.value[r], self.anchor[r] = exact, exact if exact > least else 0.0

    # -- stopping ---------------------------------------------------------------------------------

    def residual(
        self, Z: AnyArray, C: AnyArray, G: AnyArray, value: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the KKT residual of one factor of all starts; `subproblems.kkt_residual`.

        C may be the shares of `Side.along`.
        """
        model, tol, R = self.model, self.settings.tol, len(G)
        C = C if C.ndim == 2 else np.ascontiguousarray(C.sum(axis=0).T)
        peak = max(map(abs, limits(C)))
        if Z.dtype == np.float32 and peak > 0 and not 1e-9 < peak < 1e9:
            unit = np.float32(2.0 ** np.round(np.log2(peak)))  # else squares overflow, or vanish
            C, G = C / unit, G / unit
        mean = Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
        scale = ratio(np.ones_like(mean), mean)
        rho = np.array([misfit(v, model.size, model.least, tol) for v in value])
        found = kkt_lengths(Z, C, G[0], scale) if R == 1 else None
        slopes, minus, pluses = self._lengths(Z, C, G, scale) if found is None else found
        return np.asarray(np.minimum(ratio(slopes, rho * (minus + pluses)), 1.0))

    def _lengths(self, Z: AnyArray, C: AnyArray, G: AnyArray, scale: AnyArray) -> AnyArray:
        """(3, R): norms of the projected gradients and of their halves; see `kkt_lengths`."""
        R, k, _ = G.shape
        squares = np.zeros((3, R * k))
        for z, c in row_runs(Z, C):
            plus = np.empty_like(z)
            of_each, to_each = (a.reshape(-1, R, k).transpose(1, 0, 2) for a in (z, plus))
            np.matmul(of_each, G, out=to_each)
            slope, share = plus - c, z * scale
            np.maximum(share, slope <= 0, out=share)
            np.minimum(share, 1, out=share)
            for square, part in zip(squares, (slope, c, plus), strict=True):
                own = part * share
                square += np.einsum("ij,ij->j", own, own)
        return np.sqrt(squares.reshape(3, R, k).sum(axis=2))

    def judge(self, residual: Callable[[], NDArray[np.float64]]) -> None:
        """End the starts that have converged."""
        tol, size = self.settings.tol, self.model.size
        least = max(self.model.least, tol**2) * size
        fall = np.array(
            [h[-1 - LOOK_BACK] - h[-1] if len(h) > LOOK_BACK else np.inf for h in self.history]
        )
        near = fall <= tol * np.maximum(np.abs(self.value), least)
        if near.any():
            near &= residual() <= tol
        if not near.any():
            return
        # so far it was taken between the iterations
        at = np.flatnonzero(near)
        Vs, Us = zip(*(self.point(r) for r in at.tolist()), strict=True)
        V, U = Side.of(Vs, 1), Side.of(Us, 1)
        data, value = self.model.R, self.value[at]
        exact = self.residual(V.Z, data.dot(U.Z), U.gram, value)
        exact = np.maximum(exact, self.residual(U.Z, data.tdot(V.Z), V.gram, value))
        for r in at[exact <= tol].tolist():
            n = len(self.history[r])
            self.end(r, f"converged: relative KKT residual at most {tol:g} after {n} iterations")
            self.ended[int(self.numbers[r])].converged = True
        self.drop(np.isin(self.numbers, list(self.ended)))

    def stop(self) -> None:
        """End those that have had their iterations; the loop has those that the guard stopped."""
        most, lost = self.settings.max_iter, self.failures >= SAFE
        if not lost.any() and max(map(len, self.history), default=0) < most:
            return
        late = np.array([len(history) >= most for history in self.history], bool)
        for r in np.flatnonzero(late).tolist():
            self.end(r, f"stopped at max_iter={most}, above tol={self.settings.tol:g}")
        for r in np.flatnonzero(lost & ~late).tolist():
            left = replace(self.settings, max_iter=most - len(self.history[r]))
            watch = None if self.watch is None else _later(self.watch, self.history[r])
            solution = alternate(self.model, *self.point(r), hals, left, watch)
            solution.history = joined(self.history[r], solution.history)
            solution.n_iter = len(solution.history)
            self.ended[int(self.numbers[r])] = solution
        self.drop(late | lost)

    def end(self, r: int, status: str) -> None:
        history, value = self.history[r], float(self.value[r])
        solution = Solution(
            *self.point(r), history, len(history), status=status, value=value, summed=False
        )
        self.ended[int(self.numbers[r])] = solution

    def drop(self, done: NDArray[np.bool_]) -> None:
        """Go on without these."""
        runs = ~done
        if runs.all():
            return
        self.shares = None
        self.V.keep(runs)
        self.U.keep(runs)
        vars(self).update({name: getattr(self, name)[runs] for name in EACH})
        self.history = [history for history, on in zip(self.history, runs, strict=True) if on]


def _later(watch: Watch, history: list[float]) -> Watch:
    """``watch`` for the loop that goes on after ``history``."""

    def told(n: int, solution: Solution) -> bool:
        whole = joined(history, solution.history)
        return watch(len(whole), replace(solution, history=whole, n_iter=len(whole)))

    return told


def _value(model: FactorModel, V: AnyArray, U: AnyArray) -> float:
    value = model.value(V, U)
    return model.exact_value(V, U) if value <= 100 * model.eps * model.size else value
