"""The solvers: functions ``step(sub, Z) -> Z`` that update one factor.

=========  ===========  ==========================  ==============================================
step       loss         required of each term       update
=========  ===========  ==========================  ==============================================
mu         Frobenius    a split gradient            Z ∘ neg/pos, the papers' multiplicative update
mu         KL, other β  a bound, or a solve         the same with the bound's exact minimiser
hals       Frobenius    a bound                     coordinate descent, several sweeps a product
nesterov   Frobenius    a Lipschitz constant        accelerated projected gradient, NMF-DC (15)(17)
newton     KL           a bound                     second-order coordinate sweeps
=========  ===========  ==========================  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from partwise.backends import DataMatrix, arrays
from partwise.backends.arrays import (
    Array,
    floor,
    namespace,
    none,
    numpy_dtype,
    ratio,
    spread,
    to_numpy,
)
from partwise.backends.curvature import damped_step
from partwise.backends.sweeps import (
    half_step,
    nearly_collinear,
    solve_rows,
    sweep_graph,
    sweep_rows,
)
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Divergence, Filled, Quadratic, Subproblem, kkt_residual
from partwise.model.terms import Term

#: Kinds of the subproblem of a β-divergence; for all other β it is OTHER.
KINDS, OTHER = {2.0: "frobenius"}, "divergence"
#: Curvature that keeps an entry fixed: far larger than any Hessian, with finite products.
STIFF = 1e30
#: Sweeps end if a sweep changes the factor by less than this share of the first sweep.
STOP = 0.1


class Options(NamedTuple):
    """Settings of a fit that only some solvers use."""

    rng: np.random.RandomState
    mu_rule: str = "lee-seung"
    shuffle: bool = False
    inner_iter: int | None = None
    alike: bool = False  # whether all samples are nearly equal, so that components become equal


@dataclass(frozen=True)
class Step:
    """One entry of the table of solvers: an update of one factor, and its requirements.

    Attributes
    ----------
    name : str
        The value of the parameter ``solver``.
    move : callable
        Function ``move(sub, Z, **options) -> Z``, which does not change Z.
    needs : mapping
        For each supported kind of loss, the properties of which each term must offer at least one.
    betas : tuple of float
        Supported values of β; empty for all values of the supported kinds.
    multiplicative : bool
        Whether it is an update of the papers that runs as printed: without extrapolation, without
        undoing steps, and in the order of the paper.
    takes_joined_rows : bool
        Whether it can minimise a divergence with terms that couple samples.
    can_empty : bool
        Whether one step can set a component to zero.
    warmup : int
        Number of multiplicative iterations before the first step.
    rough : mapping or None
        Options of a cheaper variant for the first iterations.
    pays : callable
        Function ``pays(data, k)`` that returns whether solver="auto" may select it.
    configured : callable or None
        Function ``configured(step, options)`` that returns the step for these `Options`.
    extrapolated : callable or None
        Function ``extrapolated(sub, Z, old, weight)`` that combines `move`, the extrapolation of
        the loop and two calls of ``sub.change`` in one pass, or returns None if it cannot.
    """

    name: str
    move: Callable[..., Array]
    needs: Mapping[str, tuple[str, ...]]
    betas: tuple[float, ...] = ()
    multiplicative: bool = False
    takes_joined_rows: bool = False
    can_empty: bool = False
    warmup: int = 0
    rough: Mapping[str, Any] | None = None
    pays: Callable[[Any, int], bool] = lambda data, k: True
    configured: Callable[[Step, Options], Step] | None = None
    extrapolated: Callable[..., tuple[Array, Array, float, float] | None] | None = None

    def __call__(self, sub: Subproblem, Z: Array, **options: Any) -> Array:
        if sub.free:
            return minimum(sub, Z)
        Z = self.move(sub, Z, **options)
        return Z if sub.project is None else sub.project(Z)

    def bound_to(self, **options: Any) -> Step:
        """Return the same step with these options."""
        return replace(self, move=partial(self.move, **options), extrapolated=None)

    def does(self, beta: float) -> bool:
        """Return whether the step supports the β-divergence with this β."""
        return KINDS.get(beta, OTHER) in self.needs and (not self.betas or beta in self.betas)

    def takes(self, term: Term, beta: float) -> bool:
        """Return whether the term has one of the properties that the step needs."""
        return any(word in term.offers for word in self.needs[KINDS.get(beta, OTHER)])


def minimum(sub: Subproblem, Z: Array) -> Array:
    """Return the minimiser over factors of any sign, by solving a linear system.

    The system is Z (G + ridge) = C minus the slopes of the bounds of penalties.

    Z does not change in directions that G and the ridge leave undetermined. The solution of least
    norm would change in these directions, and could increase a penalty.
    """
    assert isinstance(sub, Quadratic)
    C, r, near = bounded(sub, sub.terms, Z)
    assert near is None and r.shape[0] == 1
    G, ridge, C = (arrays.to_numpy(arrays.float64(a)) for a in (sub.G, r[0], C))
    H = G + np.diag(np.broadcast_to(ridge, len(G)))
    # A part with zero part weights has no effect on the loss, so it keeps its old value.
    old = np.where(np.diag(H) > 0, arrays.to_numpy(arrays.float64(Z)), 0.0)
    solution = old + np.linalg.lstsq(H, (C - old @ H).T, rcond=1e-12)[0].T
    return np.ascontiguousarray(solution).astype(Z.dtype)


def _mu(sub: Subproblem, Z: Array) -> Array:
    """Return Z ∘ (neg/pos), or for KL with a quadratic term the EM minimiser."""
    if isinstance(sub, Divergence):
        return _em(sub, Z)
    neg, pos = sub.split(Z)
    q: Array = ratio(neg, pos)
    return _times(Z, q if sub.exponent == 1 else q**sub.exponent)


def _times(Z: Array, q: Array) -> Array:
    """Return Z ∘ q; zeros stay zero even if their ratio overflows."""
    return Z * namespace(q).minimum(q, float(np.finfo(numpy_dtype(Z.dtype)).max))


def _mu_lin(sub: Subproblem, Z: Array, sigma: float = 1e-8, delta: float = 1e-8) -> Array:
    """Take the multiplicative step of Lin (2007), which cannot stall at zero.

    Z - Z̄/(pos(Z̄) + δ) ∘ grad with Z̄ = max(Z, σ) where grad < 0; converges to a stationary point.
    """
    neg, pos = sub.split(Z)
    gradient = pos - neg
    xp = namespace(Z)
    raised = xp.where(gradient < 0, xp.maximum(Z, sigma), Z)
    step = ratio(raised, sub.split(raised)[1] + delta) * gradient
    return xp.maximum(Z - step, 0)  # rounding could give negative values


def _em(sub: Divergence, Z: Array) -> Array:
    """Minimise the majoriser of a β-divergence at Z plus its terms, entry by entry.

    With z = q Z and linear costs joined to ``cost``, it solves
    cost q^max(β-1,0) + r Z q = product q^min(β-2,0): Lee & Seung's ratio for β = 1 without a
    ridge r, a quadratic's root with one.
    """
    solver = next((term for term in sub.terms if "solve" in term.offers), None)
    b, r = _costs(sub, [term for term in sub.terms if term is not solver], Z)
    if solver is not None:
        return solver.solve(spread(b, Z), r, Z * sub.product, Z)
    beta = sub.beta
    b = spread(b, Z)
    if beta >= 2:  # q² <= 2/β q^β + const: the ridge joins the cost
        b, r = b + r * Z, none(Z)
    if not r.any():
        power = 1 / (2 - beta) if beta < 1 else 1 / (beta - 1) if beta > 2 else 1.0
        q: Array = ratio(sub.product, b)
        return _times(Z, q if power == 1 else q**power)
    if beta == 1:
        c = Z * sub.product
        root = namespace(Z).sqrt(b * b + 4 * r * c)
        # two forms of the root, since the first one cancels for b < 0
        pulled = (b < 0) & (r > 0)
        return namespace(Z).where(pulled, ratio(root - b, spread(2 * r, Z)), ratio(2 * c, b + root))
    return Z * _ridge_root(sub.product, b, r * Z, beta)


def _ridge_root(num: Any, cost: Any, ridge: Any, beta: float) -> Array:
    """Solve log(cost e^{at} + ridge e^t) + (2-β)t = log num for t = log q by Newton's method.

    The computation uses float64, because e^t may leave the range of float32.
    """
    dtype, tiny = num.dtype, floor(num.dtype)
    num, cost, ridge = (np.asarray(part, np.float64) for part in (num, cost, ridge))
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
        t = np.clip(t - change, -600, 600)
        if np.abs(change).max() < 1e-12:
            break
    most = 0.5 * np.log(np.finfo(dtype).max)  # so that squares of the result stay in range
    return np.where(alive, np.exp(np.minimum(t, most)), 0).astype(dtype)


def _costs(sub: Divergence, terms: Sequence[Term], Z: Array) -> tuple[Array, Array]:
    """Return the linear cost and the ridge of the loss and of the terms' bounds at Z."""
    cost, ridge = sub.cost, none(Z)
    for term in terms:
        linear, curved = term.bound(Z).about_zero(Z)
        cost, ridge = cost + linear, ridge + curved
    return cost, ridge


def _hals(
    sub: Quadratic, Z: Array, *, stop: float = STOP, order: Array | None = None, exact: bool = False
) -> Array:
    """Run `sub.sweeps` coordinate sweeps, or fewer if a sweep changes little.

    A graph with stored edges has special sweeps. Other terms are replaced by their bound, which is
    computed again after each sweep unless it is `exact`. With ``exact``, nearly collinear parts are
    solved exactly, since sweeps progress so slowly there that they appear to have converged.
    """
    if sub.descends:  # gradient steps are better if a kernel couples the rows
        return sub.descend(Z, 2)
    if exact and _is_plain(sub, Z) and nearly_collinear(sub.G):
        return solve_exactly(sub, Z)
    Z = arrays.own(Z) if isinstance(Z, np.ndarray) else Z
    graph = _taking_turns(sub.terms) if order is None and sub.held is None else None
    if graph is not None:
        C, r, _ = bounded(sub, [term for term in sub.terms if term is not graph], Z)
        found: Array | None = sweep_graph(Z, C, sub.G, sub.d, r, graph, sub.sweeps, stop)
        if found is not None:
            return found
    kept = all(term.exact for term in sub.terms) and sub.held is None
    rounds, sweeps = (1, sub.sweeps) if kept else (max(1, sub.sweeps), 1)
    for _ in range(rounds):
        C, r, near = bounded(sub, sub.terms, Z)
        if sub.held is not None:  # a huge curvature keeps the entry fixed
            near = sub.held * STIFF if near is None else near + sub.held * STIFF
        Z = sweep_rows(Z, C, sub.G, sub.d, r, sweeps, stop, order, near=near)
    return Z


def _hals_extrapolated(
    sub: Subproblem, Z: Array, old: Array, weight: float
) -> tuple[Array, Array, float, float] | None:
    """Run `_hals` with extrapolation and both changes, for least squares without penalties."""
    plain = type(sub) is Quadratic and sub.d is None and not sub.terms
    if not plain or sub.held is not None or sub.project is not None:
        return None
    assert isinstance(sub, Quadratic)
    return half_step(Z, sub.C, sub.G, old, weight, sub.sweeps, STOP)


def _is_plain(sub: Quadratic, Z: Array) -> bool:
    """Return whether each row is an independent problem without approximations."""
    whole = not sub.local and sub.held is None and all(term.exact for term in sub.terms)
    return whole and isinstance(Z, np.ndarray) and Z.dtype == np.float64


def bounded(sub: Quadratic, terms: Sequence[Term], Z: Array) -> tuple[Array, Array, Array | None]:
    """Return C minus the slopes of the terms' bounds at Z, and the ridges of the bounds.

    Without terms the ridges are None.
    """
    C, r, near = sub.C, none(Z), None
    for term in terms:
        slope, ridge, around = term.bound(Z)
        C = C - slope
        if around:
            near = ridge if near is None else near + ridge
        else:
            r = r + ridge
    return C, r, near


def _taking_turns(terms: Sequence[Term]) -> Term | None:
    """Return the only graph term with edges; no other term may have a bound around Z."""
    graphs = [term for term in terms if term.edges is not None]
    rest = [term for term in terms if term not in graphs]
    return graphs[0] if len(graphs) == 1 and all(term.exact for term in rest) else None


def _nesterov(sub: Quadratic, Z: Array, *, inner_iter: int = 10) -> Array:
    """Take `inner_iter` accelerated projected gradient steps from Z, NMF-DC (15) and (17)."""
    if sub.descends:
        return sub.descend(Z, inner_iter)
    lipschitz = sub.lipschitz()
    if lipschitz <= floor(Z.dtype):
        return Z
    step = 1.0 / lipschitz
    Y, momentum = Z, 1.0
    for _ in range(inner_iter):
        new = namespace(Y).maximum(Y - step * sub.gradient(Y), 0)
        new = new if sub.project is None else sub.project(new)
        following = (1 + float(np.sqrt(4 * momentum**2 + 1))) / 2
        Y = new + ((momentum - 1) / following) * (new - Z)
        Z, momentum = new, following
    return Z


def _newton(sub: Divergence, Z: Array, *, sweeps: int = 2, rough: bool = False) -> Array:
    """Run second-order coordinate sweeps in the back end, since they need rows of X.

    With ``rough`` they use float32, which suffices except for the last digits. If the back end
    computes curvature instead, the sweeps minimise a quadratic model.
    """
    # the back end has no second-order step for this factor
    if sub.newton is None and sub.curvature is None:
        return _em(sub, Z)
    cost, ridge = _costs(sub, sub.terms, Z)
    if sub.curvature is not None:
        return damped_step(Z, sub.product, sub.curvature(Z), cost, ridge, sweeps + 1)
    assert sub.newton is not None
    return sub.newton(Z, arrays.float64(cost), arrays.float64(ridge), sweeps, rough)


def _parts_alone(sub: Subproblem, Z: Array) -> Array:
    """Run `mu`, but keep a factor for which `mu` may raise the objective."""
    return Z if any("solve" in term.offers for term in sub.terms) else _mu(sub, Z)


def _configured_mu(step: Step, options: Options) -> Step:
    return mu_lin if options.mu_rule == "lin" else step


def _configured_hals(step: Step, options: Options) -> Step:
    """Return coordinate descent, shuffled or exact for equal components if the options ask."""
    if not options.shuffle:
        return step.bound_to(exact=True) if options.alike else step

    def move(sub: Quadratic, Z: Array) -> Array:
        return _hals(sub, Z, order=options.rng.permutation(Z.shape[1]))

    return replace(step, move=move, extrapolated=None)


def _configured_nesterov(step: Step, options: Options) -> Step:
    count = options.inner_iter
    return step if count is None else step.bound_to(inner_iter=count)


hals = Step(
    "hals", _hals, {"frobenius": ("bound",)}, can_empty=True,
    configured=_configured_hals, extrapolated=_hals_extrapolated,
)  # fmt: skip
newton = Step(
    "newton", _newton, {"divergence": ("bound",)}, betas=(1.0,), warmup=3, rough={"rough": True},
    pays=lambda data, k: bool(data.newton_pays(k)),
)  # fmt: skip
nesterov = Step(
    "nesterov", _nesterov, {"frobenius": ("lipschitz",)}, configured=_configured_nesterov
)
mu = Step(
    "mu", _mu, {"frobenius": ("split",), "divergence": ("bound", "solve")},
    multiplicative=True, takes_joined_rows=True, configured=_configured_mu,
)  # fmt: skip
mu_lin = replace(mu, move=_mu_lin, needs={"frobenius": ("split",), "divergence": ("split",)})
parts_alone = replace(mu, move=_parts_alone)

#: The table of solvers. solver="auto" selects the first that can minimise the objective.
STEPS: dict[str, Step] = {}
#: Values of the parameter ``solver``. Estimators refer to this set, which grows with the table.
SOLVER_NAMES = {"auto", "cd"}
#: Other names of solvers; "cd" is the name in scikit-learn.
ALIASES = {"cd": "hals"}
#: Solver that "auto" selects for concept factorization, in which a kernel couples the rows.
FOR_CONCEPTS = "nesterov"


def register(step: Step) -> None:
    """Add a solver to the table."""
    STEPS[step.name] = step
    SOLVER_NAMES.add(step.name)


for _step in (hals, newton, nesterov, mu):
    register(_step)


def make_step(name: str, **options: Any) -> Step:
    """Return the step of that name with its options bound."""
    return STEPS[name].bound_to(**options) if options else STEPS[name]


def check_step(name: str, beta_loss: str | float, beta: float, terms: Sequence[Term] = ()) -> None:
    """Raise an error that names suitable solvers, if the step cannot use the loss or a term."""
    step = STEPS[name]
    able = [s for s in STEPS.values() if s.does(beta)]
    what = f"minimise beta_loss={beta_loss!r}"
    if step.does(beta):
        odd = next((term for term in terms if not step.takes(term, beta)), None)
        if odd is None:
            return
        needs = " or ".join(step.needs[KINDS.get(beta, OTHER)])
        what += f" with {odd.name}, which has no {needs}"
    able = [s for s in able if all(s.takes(term, beta) for term in terms)]
    can = ", ".join(s.name for s in able)
    raise ValueError(
        f"solver={name!r} cannot {what}; " + (f"solvers that can: {can}." if can else "none can.")
    )


# -- V for fixed parts, which is a convex problem ------------------------------------------------


def start_codes(data: DataMatrix, U: Array) -> Array:
    """Return constant initial V, as scikit-learn's ``transform``; less for long parts.

    If there are more parts than features, the lengths of parts may differ by many orders of
    magnitude. If the part weight of a long part began far above the mean of X, the first step would
    be so large that all other steps would be negligible.
    """
    n, p = data.shape
    k = U.shape[1]
    mean = abs(float(data.filled().row_sums().sum())) / max(1, n * p)
    U = np.asarray(to_numpy(U), dtype=np.float64)
    scale = np.abs(U).max(axis=0, initial=0)  # squares of long parts may overflow
    length = scale * np.linalg.norm(U / np.where(scale > 0, scale, 1), axis=0)
    usual = np.sqrt(mean / k)
    row = usual * np.minimum(1, 10 * np.sqrt(p) * usual / np.where(length > 0, length, 1))
    return data.constant_rows(row.astype(data.dtype))


def solve_quadratic(sub: Quadratic, Z: Array, tol: float, scale: float) -> Array:
    """Run coordinate descent to convergence, if bounds of terms hold for a whole solve.

    ``scale`` is ‖X‖². A block of rows stops when a sweep changes V Uᵀ by less than its share of
    (tol/100)² ‖X‖². Nearly collinear parts need `solve_exactly`.
    """
    if isinstance(Z, np.ndarray) and Z.dtype == np.float64 and nearly_collinear(sub.G):
        return solve_exactly(sub, Z)
    Z = Z.copy() if isinstance(Z, np.ndarray) else Z
    C, r, _ = bounded(sub, sub.terms, Z)
    # With a smaller limit, sweeps would continue because of the rounding error of C.
    least = max(0.01 * tol, 1e-9, 8 * float(np.finfo(numpy_dtype(Z.dtype)).eps))
    enough = least**2 * scale * min(1.0, 64 / len(Z))
    return sweep_rows(Z, C, sub.G, sub.d, r, 2000, 1e-9, enough=enough)


def solve_exactly(sub: Quadratic, Z: Array) -> Array:
    """Return the exact minimum for numpy arrays.

    If parts are nearly collinear, as in concept factorization, sweeps become slow far from the
    minimum.
    """
    C, r, _ = bounded(sub, sub.terms, Z)
    return solve_rows(Z, C, sub.G, sub.d, r, 2000, 1e-9)


def solve_filled(sub: Filled, Z: Array, tol: float, scale: float) -> Array:
    """Solve for rows with different missing entries, and so with different Hessians."""
    C, r, _ = bounded(sub.seen_alone(), sub.terms, Z)
    enough = max(0.01 * tol, 1e-9) ** 2 * scale / len(Z)
    assert sub.gaps.solve is not None
    solved: Array = sub.gaps.solve(Z=Z, C=C, G=sub.G, d=sub.d, r=r, stop=1e-9, enough=enough)
    return solved


def solve_codes(
    model: FactorModel,
    Z: Array,
    U: Array,
    step: Step,
    *,
    tol: float,
    max_iter: int,
    sub: Subproblem | None = None,
) -> tuple[Array, int]:
    """Minimise over Z with U fixed; least squares is solved by coordinate descent.

    "mu" uses the papers' updates. ``sub`` is the problem at (Z, U), if it is already computed.
    """
    sub = model.subproblem("V", Z, U) if sub is None else sub
    if isinstance(sub, Quadratic) and not step.multiplicative:
        exact = all(term.exact for term in sub.terms)
        if exact and not sub.local:
            return solve_quadratic(sub, Z, tol, 2 * model.constant), 1
        if exact and isinstance(sub, Filled) and sub.gaps.solve:
            return solve_filled(sub, Z, tol, 2 * model.constant), 1
        step = hals
    n, most = 0, max_iter if tol > 0 else 1 + max_iter // 4  # with tol=0 there is no convergence
    for n in range(1, most + 1):
        Z = step(sub, Z)
        if sub.local:
            sub = model.subproblem("V", Z, U)
        if tol > 0 and n % 5 == 0 and kkt_residual(sub, Z) <= 0.1 * tol:
            break
    return Z, n
