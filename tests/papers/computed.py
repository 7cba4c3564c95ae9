"""Short computations that decide sentences of the papers.

Each function returns whether a sentence holds, and the number that decides it. ``sentences.toml``
names the function for each sentence and records its result, which a test computes again. Numbers in
parentheses, such as (14), are the equations of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from partwise.apps.papers.protocol import Budget, DataSpec, Method, Protocol, read_rows
from partwise.apps.papers.representations import FitTask, Representation, fit_estimator
from partwise.apps.papers.sampling import Sample, data_found, draw
from partwise.apps.papers.static_tables import evaluate
from partwise.graph import neighbor_graph


def _sample() -> Sample:
    return draw("sentences", DataSpec("digits", "unit_rows"), 3, 0)


def fit(sample: Sample, estimator: str, params: dict[str, Any], y: Any = None) -> Representation:
    """Fit as many parts as there are classes, from the same initial factors for all methods."""
    start = "seed" if estimator == "LCF" else "shared"  # the factors of LCF are not V and U
    method = Method(estimator, estimator, params, start=start, unit_basis=False)
    return fit_estimator(FitTask(sample, y, len(sample.order), method, params), estimator, params)


def _fitted(estimator: str, budget: Budget | None = None, **params: Any) -> Representation:
    sample = _sample()
    return fit(sample, estimator, params, None if budget is None else sample.shown(budget))


FEW = Budget("5 per class", per_class=5)
MU = {"solver": "mu", "max_iter": 300}
PRINTED = {**MU, "scale": "paper"}
KL = {"beta_loss": "kullback-leibler"}
DESCENTS: dict[str, Callable[[], Any]] = {
    "CNMF": partial(_fitted, "CNMF", FEW, **MU, tol=0.0),
    "LCF": partial(_fitted, "LCF", None, **MU, tol=0.0, locality=0.3, init="kmeans"),
    "GNMF": partial(_fitted, "GNMF", None, **PRINTED, graph_reg=100.0, n_neighbors=5),
    "cdNMF": partial(_fitted, "CDNMF", FEW, **PRINTED, class_reg=1.0),
    "cdNMF-KL": partial(_fitted, "CDNMF", FEW, **PRINTED, **KL, class_reg=10.0),
}


def _descent(name: str) -> tuple[bool, str]:
    """Test that the objective never rises beyond rounding in 300 printed updates on digits."""
    fitted = DESCENTS[name]()
    values = np.asarray(fitted.history)
    rise = max(float(np.max(np.diff(values) / np.abs(values[:-1]))), 0.0)
    words = f"largest relative rise in {len(values)} updates on three digits: {rise:.1g}"
    return rise <= 1e-12, words


def _same_point() -> tuple[bool, str]:
    """Test that labelled samples of one class have equal rows of V = AZ in CNMF."""
    V, y = np.asarray(_fitted("CNMF", FEW, **MU, tol=0.0).embedding), _sample().shown(FEW)
    far = max(float(np.ptp(V[y == c], axis=0).max()) for c in range(3)) / float(V.max())
    hidden = np.mean([np.ptp(V[(y < 0) & (_sample().truth == c)], axis=0).max() for c in range(3)])
    return far == 0, (
        f"largest distance between part weights of one label: {far:.1g} of the largest entry; the "
        f"unlabelled ones are spread over {hidden / V.max():.2f}"
    )


def _no_graph() -> tuple[bool, str]:
    """Compare GNMF with λ = 0 and NMF from the same start, for both losses."""
    gaps = []
    for loss in ({}, KL):
        graph = _fitted("GNMF", None, **PRINTED, **loss, graph_reg=0.0, n_neighbors=5)
        plain = _fitted("NMF", None, **MU, **loss, tol=0.0)
        products = [np.asarray(f.embedding) @ np.asarray(f.components) for f in (graph, plain)]
        gaps.append(float(np.abs(products[0] - products[1]).max() / products[1].max()))
    words = f"largest difference of the two products: {gaps[0]:.1g}, under KL {gaps[1]:.1g}"
    return max(gaps) <= 1e-9, words


Factors = tuple[Any, Any]
# The update, and the gradient in Z.
Rule = tuple[Callable[[Any, Any], Factors], Callable[[Any, Any], Any]]


def _rules(name: str, X: Any, y: Any, k: int) -> Rule:
    """Return the printed updates of a method on (Z, U), and the gradient in Z.

    Z holds the distinct rows of V, and U is the basis. For LCF, Z is V and U is W.
    """
    n = len(X)
    if name == "LCF":
        K, lam = X @ X.T, 0.3
        a = np.diag(K)[:, None]

        def step_lcf(V: Any, W: Any) -> Factors:  # LCF (4), with the V that is not printed, and (5)
            W = W * (1 + lam) * (K @ V) / (K @ W @ (V.T @ V) + lam * (K @ W) * V.sum(axis=0))
            KW = K @ W
            b = (W * KW).sum(axis=0)
            return V * 2 * (1 + lam) * KW / (2 * V @ (W.T @ KW) + lam * (a + b)), W

        def gradient_lcf(V: Any, W: Any) -> Any:
            KW = K @ W
            return 2 * V @ (W.T @ KW) - 2 * (1 + lam) * KW + lam * (a + (W * KW).sum(axis=0))

        return step_lcf, gradient_lcf
    rows = np.where(y >= 0, y, k - 1 + np.cumsum(y < 0)) if name == "CNMF" else np.arange(n)
    A = (rows[:, None] == np.arange(rows.max() + 1)).astype(float)
    cost = np.zeros((n, k))
    if name.startswith("cdNMF"):
        cost[y >= 0] = 1.0 - np.eye(k)[y[y >= 0]]
    if name == "cdNMF-KL":

        def step_kl(Z: Any, U: Any) -> Factors:  # cdNMF (22) and (23)
            U = U * ((X / (Z @ U.T)).T @ Z) / Z.sum(axis=0)
            return Z * ((X / (Z @ U.T)) @ U) / (U.sum(axis=0) + 10.0 * cost), U

        return step_kl, lambda Z, U: U.sum(axis=0) + 10.0 * cost - (X / (Z @ U.T)) @ U

    def step(Z: Any, U: Any) -> Factors:  # CNMF (10) and (11), cdNMF (11) and (12)
        V = A @ Z
        U = U * (X.T @ V) / (U @ (V.T @ V))
        return Z * (A.T @ X @ U) / (A.T @ V @ (U.T @ U) + 0.5 * A.T @ cost), U

    return step, lambda Z, U: A.T @ (A @ Z) @ (U.T @ U) - A.T @ X @ U + 0.5 * A.T @ cost


def _invariant(name: str) -> tuple[bool, str]:
    """Test whether a fixed point of the updates is always stationary.

    Multiplicative updates never change a zero. So the largest entry of a converged factor is set to
    zero, and the updates run until they converge again. At a stationary point the gradient at this
    zero would not be negative.
    """
    # The updates of each method converge at these sizes.
    n, p, k = (20, 9, 3) if name.startswith("cdNMF") else (12, 5, 2)
    rng, y = np.random.default_rng(0), np.full(n, -1)
    y[: 2 * k] = np.repeat(np.arange(k), 2)
    X = rng.random((n, p))
    step, gradient = _rules(name, X, y, k)
    rows = n - k if name == "CNMF" else n
    Z, U = 0.1 + rng.random((rows, k)), 0.1 + rng.random((n if name == "LCF" else p, k))
    for repeat in range(2):
        if repeat:
            Z[np.unravel_index(Z.argmax(), Z.shape)] = 0.0
        for _ in range(20_000):
            before, (Z, U) = (Z, U), step(Z, U)
    moved = max(float(np.abs(new - old).max()) for new, old in zip((Z, U), before, strict=True))
    least = float(gradient(Z, U)[Z == 0].min())
    words = f"the last of 20,000 updates moves no entry by more than {moved:.1g}, and the gradient"
    return not (least < -1e-6 and moved < 1e-6), f"{words} at a zero is {least:.2g}"


def _gradient_steps() -> tuple[bool, str]:
    """Compare GNMF (14) and (15) with gradient steps, with the step sizes of its section 3.3."""
    X, W, U, V, lam = _graph_problem()
    L, D = np.diag(W.sum(axis=1)) - W, W.sum(axis=1)[:, None]
    by_rule = U * (X.T @ V) / (U @ (V.T @ V))
    by_step = U - U / (2 * U @ (V.T @ V)) * (2 * U @ (V.T @ V) - 2 * X.T @ V)
    gap = float(np.abs(by_rule - by_step).max() / by_rule.max())
    below = V @ (U.T @ U) + lam * D * V
    slope = 2 * V @ (U.T @ U) - 2 * X @ U + 2 * lam * L @ V
    by_rule, by_step = V * (X @ U + lam * W @ V) / below, V - V / (2 * below) * slope
    gap = max(gap, float(np.abs(by_rule - by_step).max() / by_rule.max()))
    words = f"largest difference of an update and the gradient step: {gap:.1g}; (17) as printed"
    return gap <= 1e-12, words + " has the opposite sign of a descent"


def _graph_problem() -> tuple[Any, Any, Any, Any, float]:
    """Return X (three digits), the graph, initial U and V, and the paper's λ."""
    sample = _sample()
    V, U = sample.start(3)
    return np.asarray(sample.X), neighbor_graph(sample.X, 5).toarray(), U, V, 100.0


def _lin() -> tuple[bool, str]:
    """Test that GNMF's objective never rises under Lin's modification of (14) and (15).

    Lin (2007) raises an entry below σ to σ where its gradient is negative, and adds δ to the
    denominator: x <- x - x̄ / (den + δ) times the gradient. A zero may then become positive.
    """
    X, W, U, V, lam = _graph_problem()
    degree, sigma, delta = W.sum(axis=1)[:, None], 1e-8, 1e-8
    V[0, V[0].argmax()] = 0.0  # the printed updates keep this zero
    zero = V[0].argmin()

    def moved(F: Any, slope: Any, gram: Any, graph: Any = 0.0) -> Any:
        raised = np.where(slope >= 0, F, np.maximum(F, sigma))
        return F - raised / (raised @ gram + graph * raised + delta) * slope

    values = []
    for _ in range(100):
        gram = V.T @ V
        U = moved(U, U @ gram - X.T @ V, gram)
        gram = U.T @ U
        slope = V @ gram - X @ U + lam * (degree * V - W @ V)
        V = moved(V, slope, gram, lam * degree)
        smooth = float(np.sum(V * (degree * V - W @ V)))
        values.append(float(np.sum((X - V @ U.T) ** 2)) + lam * smooth)
    rise = max(float(np.max(np.diff(values) / values[0])), 0.0)
    words = f"largest relative rise of GNMF's objective in 100 of Lin's updates: {rise:.1g}; "
    words += f"an entry that began at zero ends at {V[0, zero]:.2g}"
    return rise <= 1e-12 and V[0, zero] > 0, words


def _plsa() -> tuple[bool, str]:
    """Compare an EM step of PLSA with the KL updates of NMF from the same start."""
    sample, rng = _sample(), np.random.default_rng(0)
    P = np.asarray(sample.X) / np.sum(sample.X)
    weight, left, right = rng.random(3), rng.random((len(P), 3)), rng.random((P.shape[1], 3))
    weight, left, right = weight / weight.sum(), left / left.sum(axis=0), right / right.sum(axis=0)
    ratio = P / ((left * weight) @ right.T)
    joint = left * weight * (ratio @ right)  # P(sample, topic) after the EM step
    words_of = right * weight * (ratio.T @ left)
    V, U = left * weight, right
    new_V, new_U = V * (ratio @ U) / U.sum(axis=0), U * (ratio.T @ V) / V.sum(axis=0)
    gap = max(
        float(np.abs(new_V - joint).max() / joint.max()),
        float(np.abs(new_U / new_U.sum(axis=0) - words_of / words_of.sum(axis=0)).max()),
    )
    words = f"largest difference of an EM step of PLSA and the updates of NMF under KL: {gap:.1g}"
    return gap <= 1e-12, words


def _conjugate_gradients() -> tuple[bool, str]:
    """Count the CG iterations for the systems of GNMF (21), to a relative residual of 1e-6."""
    from scipy.sparse import diags, identity
    from scipy.sparse.linalg import cg

    spec = DataSpec("coil20" if data_found(DataSpec("coil20"), None) else "digits")
    K = 8
    sample = draw("sentences", spec, K, 0)
    W = neighbor_graph(sample.X, 5)
    L = diags(np.ravel(W.sum(axis=1))) - W
    counts = {}
    for lam in (1.0, 100.0):
        params = {**PRINTED, **KL, "max_iter": 5, "graph_reg": lam, "n_neighbors": 5}
        fitted = fit(sample, "GNMF", params)
        V, U = np.asarray(fitted.embedding), np.asarray(fitted.components).T
        right = V * ((np.asarray(sample.X) / np.maximum(V @ U.T, 1e-12)) @ U)
        steps = []
        for k in range(K):
            seen: list[None] = []
            system = U[:, k].sum() * identity(len(V)) + lam * L
            cg(system, right[:, k], rtol=1e-6, callback=lambda x, seen=seen: seen.append(None))
            steps.append(len(seen))
        counts[lam] = float(np.median(steps))
    words = f"median iterations on {spec.name} at λ = 1: {counts[1.0]:.0f}"
    return counts[100.0] <= 20, f"{words}, at the paper's λ = 100: {counts[100.0]:.0f}"


def count(formulation: str, method: str, operation: str, sizes: dict[str, int]) -> int:
    """Return the number of operations of one iteration, from the formulas of the GNMF paper."""
    rows = read_rows("gnmf/table1")
    wanted = [formulation, method, operation]
    return evaluate(next(r["counted"] for r in rows if list(r.values())[:3] == wanted), sizes)


def _operations() -> tuple[bool, str]:
    """Measure how the operations of a GNMF iteration grow with each size of the problem."""
    sizes = {"M": 900, "N": 700, "K": 5, "p": 5, "q": 10}
    words, worst = [], 0.0
    for formulation in ("frobenius", "divergence"):
        base = count(formulation, "GNMF", "flmlt", sizes)
        for name in ("M", "N", "K"):
            twice = count(formulation, "GNMF", "flmlt", {**sizes, name: 2 * sizes[name]})
            power = float(np.log2(twice / base))
            words.append(f"{formulation} {name}^{power:.2f}")
            worst = max(worst, power)
    # Terms of lower order (K², the graph) change the measured exponents slightly.
    return worst <= 1.05, f"counted multiplications grow as {', '.join(words)}"


def _class_cost() -> tuple[bool, str]:
    """Count the operations that the class cost D adds to the update of S in cdNMF (12), (23).

    These are one addition per entry.
    """
    sizes = {"M": 1024, "N": 110, "K": 10, "p": 0, "q": 0}
    plain, added = count("frobenius", "NMF", "fladd", sizes), sizes["N"] * sizes["K"]
    share = added / plain
    return share < 0.01, (
        f"the class cost adds {added:,} additions to the {plain:,} of "
        f"an iteration of NMF on Yale, N = 10 ({share:.2%}), and no product"
    )


def _label_matrix() -> tuple[bool, str]:
    """Measure how the operations of CNMF grow with n, if A is a dense matrix or an index."""
    m, k, n = 50, 5, np.array([10_000, 20_000])
    powers = []
    for entries in (n, 1):  # entries per row of A, if A is dense and if it is an index
        # The Frobenius loss has two products with X, and KL two more for the ratio X / UV.
        for products in (2, 4):
            operations = n * k * (products * m + 2 * entries)
            powers.append(float(np.log2(operations[1] / operations[0])))
    words = (
        "multiplications grow with n as n^{:.2f} (Frobenius) and n^{:.2f} (KL) where A is "
        "multiplied out, and as n^{:.2f} and n^{:.2f} where it is an index"
    )
    apart = max(powers[1] - powers[0], powers[3] - powers[2])
    return apart > 0.5, words.format(*powers)


def _quadratic(seed: int) -> tuple[Any, Any, Any, float]:
    """Return f = ½‖V - W S H A‖² of NMF-DC for fixed W, its gradient, an initial H, and L."""
    sample, rng = _sample(), np.random.default_rng(seed)
    y, X = sample.shown(Budget("2 per class", per_class=2)), np.asarray(sample.X)
    index = np.where(y >= 0, y, 2 + np.cumsum(y < 0))  # labelled samples share a column of H
    WS = rng.random((X.shape[1], 3)) @ (0.5 * np.eye(3) + 0.5 / 3)
    gram, counts = WS.T @ WS, np.bincount(index)  # AAᵀ is diagonal
    # The product with Aᵀ sums over the samples with one label.
    right = np.stack([np.bincount(index, row) for row in WS.T @ X.T])

    def value(H: Any) -> float:
        return 0.5 * float(np.sum((X.T - WS @ H[:, index]) ** 2))

    def gradient(H: Any) -> Any:
        return gram @ H * counts - right

    lipschitz = float(np.linalg.norm(gram, 2) * counts.max())
    return value, gradient, rng.random((3, len(counts))) * 10.0 ** rng.integers(-2, 2), lipschitz


def _proposition() -> tuple[bool, str]:
    """Compare NMF-DC (15) for fixed W with the bound (18); H* comes from many more steps."""
    worst = 0.0
    for seed in range(5):
        value, gradient, H0, L = _quadratic(seed)
        H, Y, beta, path = H0, H0, 1.0, []
        for _ in range(5000):
            new = np.maximum(Y - gradient(Y) / L, 0)
            after = 0.5 * (1 + np.sqrt(4 * beta**2 + 1))
            Y, H, beta = new + (beta - 1) / after * (new - H), new, after
            path.append(new)
        least, far = value(H), float(np.sum((H0 - H) ** 2))
        for k, now in enumerate(path[1:200], start=2):
            worst = max(worst, (value(now) - least) * (k + 1) ** 2 / (2 * L * far))
    words = "largest ratio of f₁(H_k) - f₁(H*) to the bound, 200 steps from five starts"
    return worst <= 1, f"{words}: {worst:.2f}"


def _lipschitz() -> tuple[bool, str]:
    """Compare the largest change of NMF-DC's gradient in H with L times the distance."""
    _, gradient, H0, L = _quadratic(0)
    rng, zero, worst = np.random.default_rng(1), gradient(0 * H0), 0.0
    D = rng.standard_normal(H0.shape)
    for _ in range(200):  # the power method: the gradient's change is linear in the distance
        D /= np.linalg.norm(D)
        change = gradient(D) - zero
        worst, D = max(worst, float(np.linalg.norm(change)) / L), change
    words = f"largest ratio of the gradient's change to L times the distance: {worst:.4f}"
    return worst <= 1 + 1e-12, words


COMPUTED: dict[str, Callable[..., tuple[bool, str]]] = {
    "descent": _descent,
    "same_point": _same_point,
    "no_graph": _no_graph,
    "operations": _operations,
    "class_cost": _class_cost,
    "label_matrix": _label_matrix,
    "proposition": _proposition,
    "lipschitz": _lipschitz,
    "invariant": _invariant,
    "gradient_steps": _gradient_steps,
    "lin": _lin,
    "plsa": _plsa,
    "conjugate_gradients": _conjugate_gradients,
}


def two_fits(protocol: Protocol, entry: dict[str, Any], spec: DataSpec) -> list[Representation]:
    """Fit two methods that a sentence calls equal, from one start with one label per class."""
    method, sample = protocol.method(entry["method"]), draw(protocol.name, spec, 3, 0)
    params = {**method.params, **entry.get("params", {}), "max_iter": 200}
    fewer = {key: value for key, value in params.items() if key in entry["settings"]}
    labels = sample.shown(Budget("1 per class", per_class=1))
    return [fit(sample, method.estimator, params, labels), fit(sample, entry["as"], fewer)]
