"""One step on one subproblem: ``step(sub, Z) -> Z``, pure. Extrapolation lives in the loop.

=========  ==================================  =====================================================
step       subproblems                         what it does
=========  ==================================  =====================================================
mu         all                                 Z ∘ neg/pos, the papers' multiplicative update
hals       Frobenius                           coordinate descent, several sweeps a product
nesterov   Frobenius                           accelerated projected gradient, NMF-DC (15)(17)
newton     KL, terms that do not couple rows   second-order coordinate sweeps
=========  ==================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from partwise.engine import arrays
from partwise.engine.arrays import namespace, none, spread
from partwise.engine.numeric import Array, floor, ratio, threads_for
from partwise.engine.subproblems import Divergence, Quadratic, Subproblem
from partwise.engine.sweeps import sweep_rows
from partwise.engine.terms import Term

Step = Callable[[Any, Array], Array]


def mu(sub: Subproblem, Z: Array) -> Array:
    """Z ∘ (neg/pos); for KL with a quadratic term the minimiser of the EM majoriser."""
    if isinstance(sub, Divergence):
        return _em(sub, Z)
    neg, pos = sub.split(Z)
    q = ratio(neg, pos)
    return Z * (q if sub.exponent == 1 else q**sub.exponent)


def mu_lin(sub: Subproblem, Z: Array, sigma: float = 1e-8, delta: float = 1e-8) -> Array:
    """Lin (2007): a multiplicative step that cannot stall at zero.

    Z - Z̄/(pos(Z̄) + δ) ∘ grad with Z̄ = max(Z, σ) where grad < 0; converges to a stationary point.
    """
    neg, pos = sub.split(Z)
    gradient = pos - neg
    xp = namespace(Z)
    raised = xp.where(gradient < 0, xp.maximum(Z, sigma), Z)
    step = ratio(raised, sub.split(raised)[1] + delta) * gradient
    return xp.maximum(Z - step, 0)  # rounding alone could go below


def _em(sub: Divergence, Z: Array) -> Array:
    """The minimiser of the majoriser of a β-divergence at Z plus its terms, entry by entry.

    With z = q Z and linear costs joined to ``cost``, it solves
    cost q^max(β-1,0) + r Z q = product q^min(β-2,0): Lee & Seung's ratio for β = 1 without a
    ridge r, a quadratic's root with one.
    """
    b, r = sub.cost, none(Z)
    coupled = next((term for term in sub.terms if hasattr(term, "solve")), None)
    for term in sub.terms:
        if term is not coupled:
            linear, ridge = term.row_bound(Z)
            b, r = b + linear, r + ridge
    if coupled is not None:
        return coupled.solve(spread(b, Z), r, Z * sub.product, Z)
    beta = sub.beta
    b = spread(b, Z)
    if beta >= 2:  # q² <= 2/β q^β + const: the ridge joins the cost
        b, r = b + r * Z, none(Z)
    if not r.any():
        power = 1 / (2 - beta) if beta < 1 else 1 / (beta - 1) if beta > 2 else 1.0
        q = ratio(sub.product, b)
        return Z * (q if power == 1 else q**power)
    if beta == 1:
        c = Z * sub.product
        return ratio(2 * c, b + namespace(Z).sqrt(b * b + 4 * r * c))
    return Z * _ridge_root(sub.product, b, r * Z, beta)


def _ridge_root(num: Array, cost: Array, ridge: Array, beta: float) -> Array:
    """Newton in t = log q on log(cost e^{at} + ridge e^t) + (2-β)t = log num, convex and rising."""
    tiny = floor(num.dtype)
    a = max(beta - 1.0, 0.0)
    alive = num > tiny
    log_num = np.log(np.where(alive, num, 1))
    t = np.zeros_like(num)
    for _ in range(30):
        first, second = cost * np.exp(a * t), ridge * np.exp(t)
        total = np.maximum(first + second, tiny)
        change = (np.log(total) + (2 - beta) * t - log_num) / (
            (a * first + second) / total + 2 - beta
        )
        t = np.clip(t - change, -700, 700).astype(num.dtype)
        if np.abs(change).max() < 1e-12:
            break
    return np.where(alive, np.exp(t), 0).astype(num.dtype)


def hals(sub: Quadratic, Z: Array, *, stop: float = 0.1, order: Array | None = None) -> Array:
    """Exact coordinate steps, `sub.sweeps` of them or until a sweep moves little.

    A graph moves rows one after the other where it can; otherwise terms that couple rows enter
    through their row bound, which is renewed between sweeps.
    """
    if hasattr(sub, "descend"):  # rows coupled by a kernel: gradients do better
        return sub.descend(Z, 2)
    Z = Z.copy() if isinstance(Z, np.ndarray) else Z
    coupled = [term for term in sub.terms if term.couples]
    graph = _taking_turns(coupled, Z, sub.sweeps) if order is None else None
    if graph is not None:
        C, r = _bounded(sub.C, [term for term in sub.terms if not term.couples], Z)
        _sweep_graph(Z, C, sub.hessian, sub.d, r, graph, sub.sweeps, stop)
        return Z
    rounds, sweeps = (max(1, sub.sweeps), 1) if coupled else (1, sub.sweeps)
    for _ in range(rounds):
        C, r = _bounded(sub.C, sub.terms, Z)
        Z = sweep_rows(Z, C, sub.hessian, sub.d, r, sweeps, stop, order)
    return Z


def _bounded(C: Array, terms: Sequence[Term], Z: Array) -> tuple[Array, Array]:
    """C less the linear parts of the terms' row bounds at Z, and the sum of their ridges."""
    r = none(Z, 1)
    for term in terms:
        linear, ridge = term.row_bound(Z)
        C, r = C - linear, r + ridge[:, 0]
    return C, r


def _taking_turns(coupled: list[Any], Z: Array, sweeps: int) -> tuple[Any, float] | None:
    """The graph and its weight where rows can take turns: one graph, no more than a thread's work.

    Many threads do better with all rows at once.
    """
    if len(coupled) != 1 or not isinstance(Z, np.ndarray):
        return None
    if threads_for(0.1 * Z.size * Z.shape[1] * sweeps) > 2:
        return None
    return coupled[0].edges


def _sweep_graph(
    Z: Array, C: Array, G: Array, d: Array | None, r: Array, graph: tuple[Any, float],
    rounds: int, stop: float,
) -> None:  # fmt: skip
    from partwise.engine import kernels

    W, scale = graph
    C, G = np.ascontiguousarray(C, Z.dtype), np.ascontiguousarray(G, Z.dtype)
    d = np.ones(1, Z.dtype) if d is None else d
    arrays = (W.indptr, W.indices, W.data.astype(Z.dtype, copy=False), Z.dtype.type(scale))
    kernels.hals_graph(Z, C, G, d, r.astype(Z.dtype), *arrays, rounds, stop)


def nesterov(sub: Quadratic, Z: Array, *, inner_iter: int = 10) -> Array:
    """`inner_iter` accelerated projected gradient steps from Z, NMF-DC (15) and (17)."""
    if hasattr(sub, "descend"):
        return sub.descend(Z, inner_iter)
    lipschitz = sub.lipschitz()
    if lipschitz <= floor(Z.dtype):
        return Z
    step = 1.0 / lipschitz
    Y, momentum = Z, 1.0
    for _ in range(inner_iter):
        neg, pos = sub.split(Y)
        new = namespace(Y).maximum(Y - step * (pos - neg), 0)
        following = (1 + float(np.sqrt(4 * momentum**2 + 1))) / 2
        Y = new + ((momentum - 1) / following) * (new - Z)
        Z, momentum = new, following
    return Z


def newton(sub: Divergence, Z: Array, *, sweeps: int = 2, rough: bool = False) -> Array:
    """Second-order coordinate sweeps; the back end runs them, since they need rows of X.

    ``rough`` lets it do them in float32, which finds the way but not the last digits.
    """
    if sub.newton is None:  # no second-order sweeps on this factor and back end
        return mu(sub, Z)
    cost, ridge = sub.cost, none(Z, 1)
    for term in sub.terms:
        linear, bound = term.row_bound(Z)
        if bound.shape[1] > 1:  # a curvature for each entry: the kernel has one for each row
            return mu(sub, Z)
        cost, ridge = cost + linear, ridge + bound[:, 0]
    return sub.newton(Z, arrays.float64(cost), arrays.float64(ridge), sweeps, rough)


STEPS: dict[str, Step] = {"mu": mu, "hals": hals, "nesterov": nesterov, "newton": newton}
#: Which losses a step can do; asked for before any work is done.
HANDLES = {
    "mu": ("frobenius", "divergence"),
    "hals": ("frobenius",),
    "nesterov": ("frobenius",),
    "newton": ("divergence",),
}


def make_step(name: str, **options: Any) -> Step:
    """The step of that name with its options bound."""
    return partial(STEPS[name], **options) if options else STEPS[name]
