"""The papers' sentences, one by one: what became of each, and the number that decides.

``sentences.toml`` lists them as they are printed. Claims of tables and figures answer most; some
are computed here; some are not ours to judge, and say why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

import numpy as np

from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict
from partwise.apps.papers.protocol import Budget, ComparedMethod, DataSpec
from partwise.apps.papers.representations import FitTask, fit_estimator
from partwise.apps.papers.sampling import Sample, draw
from partwise.apps.papers.static_tables import count

NOT_OURS = "not ours to judge"
STATES = (HOLDS, FAILS, UNDECIDED, NOT_RUN, NOT_OURS)


@dataclass(frozen=True)
class Sentence:
    """A printed sentence with what became of it."""

    paper: str
    where: str
    text: str
    state: str
    number: str  # what decides
    tables: tuple[str, ...] = ()  # where the numbers are


def sentences(verdicts: Iterable[tuple[str, Verdict]]) -> list[Sentence]:
    """Every printed sentence, judged by verdicts with the table or figure that each is of.

    A sentence holds where all of its parts do and fails where one does; one that says "in some
    cases" the other way round.
    """
    found: dict[tuple[str, str], list[tuple[str, Verdict]]] = {}
    for table, verdict in verdicts:
        if verdict.says and verdict.counted:
            found.setdefault((table.split("/")[0], verdict.says), []).append((table, verdict))
    papers = {table.split("/")[0] for table, _ in verdicts}
    return [
        _judged(paper, entry, found.get((paper, entry.get("says", "")), []))
        for paper, entries in listed().items()
        for entry in entries
        if paper in papers
    ]


@cache
def listed() -> dict[str, list[dict[str, str]]]:
    """The sentences as they are printed, by paper."""
    source = resources.files("partwise.apps.papers") / "sentences.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _judged(paper: str, entry: dict[str, str], parts: list[tuple[str, Verdict]]) -> Sentence:
    about = (paper, entry["where"], entry["text"])
    if "why" in entry:
        return Sentence(*about, NOT_OURS, entry["why"])
    if "computed" in entry:
        return Sentence(*about, *_compute(entry["computed"]))
    ran = [(table, v) for table, v in parts if v.measured != NOT_RUN]
    if not ran:
        return Sentence(*about, NOT_RUN, "", tuple(dict.fromkeys(t for t, _ in parts)))
    states = [v.measured for _, v in ran]
    ends, other = (HOLDS, FAILS) if "some" in entry else (FAILS, HOLDS)
    state = next((s for s in (ends, UNDECIDED) if s in states), other)
    table, decides = _deciding([(t, v) for t, v in ran if v.measured == state], ends)
    counted = ", ".join(f"{states.count(s)} {s}" for s in (HOLDS, FAILS, UNDECIDED) if s in states)
    several = f"Of {len(ran)} parts {counted}. " if len(ran) > 1 else ""
    number = f"{several}{table}: {decides.detail}"
    return Sentence(*about, state, number, tuple(dict.fromkeys(t for t, _ in ran)))


def _deciding(parts: list[tuple[str, Verdict]], ends: str) -> tuple[str, Verdict]:
    """Of the parts that make a sentence what it is the first; of open ones that which decides it.

    That is the first to be what ``ends`` it, or else the last.
    """
    open_ones = [(o.runs, i, o.state) for i, (_, v) in enumerate(parts) if (o := v.outlook)]
    ending = [entry for entry in open_ones if entry[2] == ends]
    return parts[min(ending)[1] if ending else max(open_ones)[1] if open_ones else 0]


@cache
def _compute(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(" ")
    return COMPUTED[kind](rest) if rest else COMPUTED[kind]()


# What is computed -----------------------------------------------------------------------------


def _sample() -> Sample:
    return draw("sentences", DataSpec("digits", "unit_rows"), 3, 0)


def _fitted(estimator: str, budget: Budget | None = None, **params: Any) -> Any:
    sample = _sample()
    start = "seed" if estimator == "LCF" else "shared"  # its factors are others than V and U
    method = ComparedMethod(estimator, estimator, params, start=start, unit_basis=False)
    y = None if budget is None else sample.shown(budget)
    return fit_estimator(FitTask(sample, y, 3, method, params), estimator, params)


FEW = Budget("5 a class", per_class=5)
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


def _descent(name: str) -> tuple[str, str]:
    """Whether the objective ever rises beyond rounding, in 300 printed updates on digits."""
    fitted = DESCENTS[name]()
    values = np.asarray(fitted.history)
    rise = max(float(np.max(np.diff(values) / np.abs(values[:-1]))), 0.0)
    state = HOLDS if rise <= 1e-12 else FAILS
    return state, f"largest relative rise in {len(values)} updates on three digits: {rise:.1g}"


def _same_point() -> tuple[str, str]:
    """Labelled samples of one class share a row of V = AZ."""
    V, y = _fitted("CNMF", FEW, **MU, tol=0.0).embedding, _sample().shown(FEW)
    far = max(float(np.ptp(V[y == c], axis=0).max()) for c in range(3)) / float(V.max())
    hidden = np.mean([np.ptp(V[(y < 0) & (_sample().truth == c)], axis=0).max() for c in range(3)])
    return (HOLDS if far == 0 else FAILS), (
        f"largest distance between codes of one label: {far:.1g} of the largest entry; the "
        f"unlabelled ones, which nothing joins, are spread over {hidden / V.max():.2f}"
    )


def _no_graph() -> tuple[str, str]:
    """GNMF with λ = 0 beside NMF, from one start."""
    graph = _fitted("GNMF", None, **PRINTED, graph_reg=0.0, n_neighbors=5)
    plain = _fitted("NMF", None, **MU, tol=0.0)
    products = [np.asarray(f.embedding) @ np.asarray(f.components) for f in (graph, plain)]
    gap = float(np.abs(products[0] - products[1]).max() / products[1].max())
    return (HOLDS if gap <= 1e-9 else FAILS), f"largest difference of the two products: {gap:.1g}"


def _operations() -> tuple[str, str]:
    """How the counted operations of an iteration grow with each size."""
    sizes = {"M": 900, "N": 700, "K": 5, "p": 5, "q": 10}
    words, worst = [], 0.0
    for formulation in ("frobenius", "divergence"):
        base = count(formulation, "GNMF", sizes)["flmlt"]
        for name in ("M", "N", "K"):
            twice = count(formulation, "GNMF", {**sizes, name: 2 * sizes[name]})["flmlt"]
            power = float(np.log2(twice / base))
            words.append(f"{formulation} {name}^{power:.2f}")
            worst = max(worst, power)
    # lower orders (K² terms, the graph) bend the powers a little
    return (HOLDS if worst <= 1.05 else FAILS), "counted multiplications grow as " + ", ".join(
        words
    )


def _class_cost() -> tuple[str, str]:
    """What D adds to the update of S: one addition for each of its entries, (12) and (23)."""
    sizes = {"M": 1024, "N": 110, "K": 10, "p": 0, "q": 0}
    plain = count("frobenius", "NMF", sizes)
    share = sizes["N"] * sizes["K"] / plain["fladd"]
    return HOLDS, (
        f"the class cost adds {sizes['N'] * sizes['K']:,} additions to the {plain['fladd']:,} of "
        f"an iteration of NMF on Yale, N = 10 ({share:.2%}), and no product"
    )


def _quadratic(seed: int) -> tuple[Any, Any, Any, float]:
    """NMF-DC's problem in H with W fixed: f = ½‖V - W S H A‖², its gradient, a start and L."""
    sample, rng = _sample(), np.random.default_rng(seed)
    y, X = sample.shown(Budget("2 a class", per_class=2)), np.asarray(sample.X)
    index = np.where(y >= 0, y, 2 + np.cumsum(y < 0))  # labelled samples share a column of H
    A = np.zeros((index.max() + 1, len(y)))
    A[index, np.arange(len(y))] = 1.0
    WS = rng.random((X.shape[1], 3)) @ (0.5 * np.eye(3) + 0.5 / 3)
    gram, right = WS.T @ WS, WS.T @ X.T

    def value(H: Any) -> float:
        return 0.5 * float(np.sum((X.T - WS @ H @ A) ** 2))

    def gradient(H: Any) -> Any:
        return (gram @ (H @ A) - right) @ A.T

    lipschitz = float(np.linalg.norm(gram, 2) * A.sum(axis=1).max())  # AAᵀ is diagonal
    return value, gradient, rng.random((3, len(A))) * 10.0 ** rng.integers(-2, 2), lipschitz


def _proposition() -> tuple[str, str]:
    """(15) with W fixed, beside the bound of (18); H* by many more steps."""
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
    words = (
        f"largest ratio of f₁(H_k) - f₁(H*) to the bound, 200 steps from five starts: {worst:.2f}"
    )
    return (HOLDS if worst <= 1 else FAILS), words


def _lipschitz() -> tuple[str, str]:
    """The gradient's change over the distance, for random pairs and along the steepest one."""
    _, gradient, H0, L = _quadratic(0)
    rng, zero, worst = np.random.default_rng(1), gradient(0 * H0), 0.0
    D = rng.standard_normal(H0.shape)
    for _ in range(200):  # the power method: the gradient's change is linear in the distance
        D /= np.linalg.norm(D)
        change = gradient(D) - zero
        worst, D = max(worst, float(np.linalg.norm(change)) / L), change
    words = f"largest ratio of the gradient's change to L times the distance: {worst:.4f}"
    return (HOLDS if worst <= 1 + 1e-12 else FAILS), words


COMPUTED: dict[str, Callable[..., tuple[str, str]]] = {
    "descent": _descent,
    "same_point": _same_point,
    "no_graph": _no_graph,
    "operations": _operations,
    "class_cost": _class_cost,
    "proposition": _proposition,
    "lipschitz": _lipschitz,
}
