"""Second step of a fit: build objective, initial factors and solver settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from partwise.backends import DataMatrix, arrays
from partwise.backends.array_api import OnDevice
from partwise.backends.arrays import AnyArray, Array, to_numpy
from partwise.backends.gaps import FilledData
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.float64_products import in_double
from partwise.backends.numpy.sparse import SparseData
from partwise.backends.threads import one_blas_thread
from partwise.fitting.checking import check_scale, check_start, searchable
from partwise.fitting.description import Checked, Description, Knowledge, Problem, warn
from partwise.fitting.fixed_parts import Known
from partwise.knowledge.graph import learn_neighborhood, semi_supervised_graph
from partwise.knowledge.labels import Labels, as_ndarray, propagate
from partwise.knowledge.links import Links
from partwise.model.factor_model import FactorModel, column_lengths, unit_columns
from partwise.model.graph_terms import CannotLink, Graph, GraphDivergence, Neighbors
from partwise.model.maps import MixedRows, SharedRows
from partwise.model.terms import Guest, Linear, Ridge, Term
from partwise.solvers import init
from partwise.solvers.loop import Settings
from partwise.solvers.many_starts import Start, group_size
from partwise.solvers.projected import projected
from partwise.solvers.steps import STEPS, Options, Step, mu, parts_alone

#: Limits above which a fit computes in float64 instead of float32. LEAST_BEYOND: if the mean sample
#: explains all but this share of ‖X‖², parts are almost collinear, and products in float32 lose
#: their digits. MOST_CURVED: if the graph penalty has a larger curvature, updates are smaller than
#: the last float32 digit.
LEAST_BEYOND, MOST_CURVED = 1e-2, 1e5

FILLED = (
    "X has missing values and is on disk or on a cluster: its neighbours are searched with the "
    "means of rows and columns in place of the missing values. Pass a graph of your own with "
    "graph=, or load X, which is then searched on the entries that both samples have."
)
#: Minimum number of rows of X that `beyond_mean` uses; it uses more if rows are short.
LOOKED_AT = 20
IGNORED = "When init!='custom', provided W or H are ignored. Set init='custom' to use them."


def state(spec: Description, checked: Checked) -> Problem:
    """Return the optimization problem that a description defines for the checked data."""
    k, solver = checked.k, checked.solver
    knowledge = checked.knowledge
    if spec.graph_reg or spec.propagate:
        knowledge = with_graph(spec, checked)
    pieces = objective(spec, checked.data, k, knowledge)
    data, alike = checked.data, beyond_mean(checked.data) < LEAST_BEYOND
    # Parts of any sign are computed from normal equations, which are inexact if part weights are
    # collinear. Multiplicative updates would not notice an increase of the objective.
    unsure = spec.free_parts and STEPS[solver].multiplicative
    curved = pieces["terms_V"] if pieces["unit"] else []
    curvature = sum(t.lipschitz() for t in curved if t.couples and "lipschitz" in t.offers)
    if alike or unsure or curvature > MOST_CURVED:
        data = in_double(data)
    if data is not checked.data:
        checked = replace(checked, data=data)
        pieces = objective(spec, data, k, knowledge)
    known, parts = None, (spec.fixed_components, spec.seed_components)
    if any(part is not None for part in parts):
        known = known_parts(spec, checked, unit=pieces["unit"])
    (n, p) = data.shape
    model = FactorModel(
        data,
        spec.loss,
        weights=checked.weights,
        held=None if known is None else known.held,
        project=spec.project,
        sweeps=(data.sweeps(p, k), data.sweeps(n, k)),
        **pieces,
    )
    if model.loss.beta == 2 and not 0 < model.constant < np.inf:
        check_scale(model.constant, bool(model.R.row_sums().any()), spec.estimator_name)
    if bool(model.terms["V"]) != bool(model.terms["U"]) and not model.unit:
        warn_of_a_free_scale(spec, model)
    settings = settings_for(spec, solver, model)
    makes = starts(spec, checked, model, known, alike)
    return Problem(model, k, solver, settings, makes, knowledge, known)


def beyond_mean(data: DataMatrix) -> float:
    """Return the share of ‖X‖² that the mean sample does not explain.

    It is estimated from some rows. The result is 1 if X is not in memory.
    """
    if type(data) not in (DenseData, SparseData):
        return 1.0
    X: Any = data.whole()
    n, size = X.shape[0], X.nnz if sp.issparse(X) else X.size
    rows = max(LOOKED_AT, arrays.BLOCK_ENTRIES // 4 * n // max(1, size))
    X = X[:: -(-n // rows)]
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    along, whole = 0.0, 0.0
    with one_blas_thread:  # the product is too small for several threads
        for part in [X] if sp.issparse(X) else (X[rows] for rows in arrays.row_blocks(*X.shape)):
            part = part.astype(np.float64)
            codes, values = part @ mean, part.data if sp.issparse(part) else part.ravel()
            along, whole = along + float(codes @ codes), whole + float(values @ values)
        whole *= float(mean @ mean)
    return 1 - along / whole if whole > 0 else 1.0


def warn_of_a_free_scale(spec: Description, model: FactorModel) -> None:
    """Warn if only one factor is penalised and the objective therefore has no minimum.

    That factor can shrink while the other grows, which reduces the penalty at no cost to the loss.
    """
    known = model.held is not None and bool(to_numpy(model.held.known).all())
    if known or spec.printed or spec.project:
        return
    here, there = ("codes W", "parts H") if model.terms["V"] else ("parts H", "codes W")
    warn(
        f"The penalty is on the {here} alone. These shrink while the {there} grow, at no cost to "
        "the loss: the objective has no minimum, and the penalty fades with every iteration. "
        "Penalise both, alpha_W > 0 and alpha_H > 0 (or 'same')."
    )


def with_graph(spec: Description, checked: Checked) -> Knowledge:
    """Return the prior knowledge with its neighbour graph and propagated labels."""
    knowledge, labels = checked.knowledge, checked.knowledge.labels
    spread = spec.propagate and labels is not None and labels.n_labelled > 0
    if knowledge.neighbors is None and (spec.graph_reg or spread):
        samples, method = checked.X, "exact"
        if type(samples) is not np.ndarray:
            samples, method = searchable(samples)
        if isinstance(samples, FilledData):
            warn(FILLED)
        how = (spec.n_neighbors, spec.weighting, spec.bandwidth, method)
        knowledge = replace(knowledge, neighbors=learn_neighborhood(samples, *how, spec.seed))
    if spread and labels is not None and knowledge.graph is not None:
        return replace(knowledge, labels=propagate(knowledge.graph, labels))
    return knowledge


def objective(
    spec: Description, data: DataMatrix, k: int, knowledge: Knowledge, *, new: bool = False
) -> dict[str, Any]:
    """Return the arguments of `FactorModel` that define constraints and penalties.

    For ``new`` samples, the parts are fixed.
    """
    rows, terms_V, linked = None, list[Term](), knowledge.links is not None
    if spec.hard_labels or linked:
        rows = shared_rows(spec, knowledge, data.shape[0])
    if spec.penalized or linked:
        terms_V = terms_on_codes(spec, data, k, knowledge, rows, new=new)
    terms_U = terms_on_parts(spec, data, k) if spec.on_parts else []
    # Plain NMF does not fix the scale of V. Without a fixed scale, part weights would shrink until
    # links cost nothing.
    held = spec.scale == "unit" or linked
    return {
        "rows": rows,
        "smoothing": spec.smoothing,
        "terms_V": terms_V,
        "terms_U": terms_U,
        "unit": held and bool(terms_V) and not terms_U and not new,
    }


def known_parts(spec: Description, checked: Checked, *, unit: bool) -> Known:
    """Return the parts that the user fixed or seeded."""
    fixed, seeds = spec.fixed_components, spec.seed_components
    shape = (checked.k, checked.data.shape[1])
    norm = spec.loss.unit_norm if unit and not spec.smoothing else None
    return Known(
        fixed, seeds, shape, checked.data.dtype, unit_norm=norm, root=np.sqrt(checked.factor)
    )


def settings_for(spec: Description, solver: str, model: FactorModel) -> Settings:
    """Return the settings of the iterations for this solver and model.

    Multiplicative updates and the papers' own procedures run without accelerations.
    """
    step = STEPS[solver]
    by_hand = step.multiplicative or spec.printed
    # Some back ends, such as those for GPU arrays, compute the curvature for a Newton step on V in
    # a separate pass over X. With them, evaluating an extrapolated factor would cost another pass.
    curved = step.rough is not None and "V" in model.R.curved
    stationary = not any(isinstance(term, GraphDivergence) for term in model.terms["V"])
    # Update (21) of the GNMF paper can raise the objective, and does so repeatedly with fixed
    # parts.
    watched = not stationary and not spec.printed
    # the paper of NMF-DC has no extrapolation between iterations
    inner = spec.inner_iter is not None and step is STEPS["nesterov"]
    order = _papers_order(spec, model) if step.multiplicative else "VU"
    if spec.free_parts:
        order = "UV"  # the fit begins with the parts
    return Settings(
        max_iter=spec.max_iter,
        tol=0.0 if spec.printed else spec.tol,
        order=order,
        # Without extrapolation, the objective computed after a step can be used again in the next
        # step.
        extrapolate=not any((by_hand, inner, spec.project, spec.free_parts, curved)),
        guard=not by_hand or watched,
        stationary=stationary and not spec.project,
        warmup=step.warmup,
        rough=None if step.rough is None or curved else step.bound_to(**step.rough),
        # If "newton" uses multiplicative updates for a factor, that factor must stay above zero.
        keep=0.1 if step.rough is not None and model.newton_sides != "VU" else 0.0,
        # A multiplicative update would leave the constraint set, so a failed step keeps the
        # factors.
        safe=None if spec.project else parts_alone if watched else mu,
    )


def _papers_order(spec: Description, model: FactorModel) -> str:
    """Return which factor is updated first, as in the papers: U in CNMF and CDNMF."""
    informed = model.rows is not None or bool(model.terms["V"])  # otherwise the model is plain NMF
    hard = spec.hard_labels or spec.class_weight
    return "UV" if informed and hard and not (spec.graph_reg or spec.smoothing) else "VU"


def step_for(
    spec: Description, solver: str, rng: np.random.RandomState, alike: bool = False
) -> Step:
    """Return the update function of a solver.

    ``alike`` is true if all samples are almost equal, so that the parts become almost equal too.
    """
    if spec.project:
        return projected
    step = STEPS[solver]
    if step.configured is None:
        return step
    return step.configured(step, Options(rng, spec.mu_rule, spec.shuffle, spec.inner_iter, alike))


def shared_rows(spec: Description, knowledge: Knowledge, n: int) -> SharedRows | MixedRows | None:
    """Return A of V = A Z, which gives samples of one class equal part weights.

    Hard labels and hard must-links define A. The result is None if A is the identity.
    """
    labels = knowledge.labels if spec.hard_labels else None
    links = knowledge.links
    if labels is not None and labels.shares is not None:
        return MixedRows(labels.shares)
    if links is not None and len(links.must) and spec.must_link_reg is None:
        labels = links.groups(labels)
    if labels is None:
        return None
    rows = SharedRows(labels.codes, n)
    return None if rows.is_identity else rows


def terms_on_codes(
    spec: Description,
    data: DataMatrix,
    k: int,
    knowledge: Knowledge,
    rows: SharedRows | MixedRows | None,
    *,
    new: bool,
) -> list[Term]:
    """Return the penalty terms on V, as functions of Z in V = A Z.

    For ``new`` samples, terms that refer to the training samples are left out.
    """
    counts = np.ones(1) if rows is None else rows.counts
    labels, frobenius = knowledge.labels, spec.beta == 2
    terms: list[Term] = []
    if spec.alpha_W:
        alpha = spec.alpha_W * data.shape[1]
        terms = elastic_net(alpha, spec.l1_ratio, data.dtype, counts[:, None])
    if spec.class_weight and labels is not None and labels.n_labelled:
        # In the cdNMF paper (equations 10 and 23), λ belongs to ‖·‖² and is halved here for ½‖·‖².
        # Under the KL divergence γ is used unchanged.
        weight = 0.5 * spec.class_weight if frobenius else spec.class_weight
        D = weight * class_cost(labels, k, spec.components_per_class)
        terms.append(Linear((D if rows is None else rows.reduce(D)).astype(data.dtype)))
    graph, links = knowledge.graph if spec.graph_reg else None, knowledge.links
    if links is not None:
        graph = _with_soft_links(spec, graph, links, rows, data.dtype, terms)
    if graph is not None:
        # The GNMF paper's λ tr(VᵀLV) with ‖·‖² equals λ/2 tr(VᵀLV) with ½‖·‖², which `Graph`
        # computes.
        parts = graph_operator(graph, labels, spec.label_weight, rows, data.dtype)
        terms.append((Graph if frobenius else GraphDivergence)(*parts, spec.graph_reg))
    if links is not None and len(links.cannot) and spec.cannot_link_reg:
        parts = graph_operator(links.cannot_graph, None, None, rows, data.dtype)
        terms.append(CannotLink(*parts, spec.cannot_link_reg))
    for i, term in enumerate(spec.terms or ()):
        if not (new and term.of_samples):
            term.check((data.shape[0], k), f"terms[{i}]")
            # the chain rule gives the gradient in Z of V = A Z
            terms.append(term if rows is None else Guest(term, rows))
    return terms


def _with_soft_links(
    spec: Description, graph: Any, links: Links, rows: Any, dtype: Any, terms: list[Term]
) -> Any:
    """Return the graph with soft must-links; without a graph, add their penalty term."""
    soft = spec.must_link_reg if len(links.must) else None
    if soft and graph is not None:  # one combined graph, so that rows can be updated in turn
        return graph + links.must_graph * (soft / spec.graph_reg)
    if soft:
        terms.append(Graph(*graph_operator(links.must_graph, None, None, rows, dtype), soft))
    return graph


def terms_on_parts(spec: Description, data: DataMatrix, k: int) -> list[Term]:
    """Return the penalty terms on the parts U."""
    n, p = data.shape
    terms = elastic_net(spec.basis_alpha * n, spec.l1_ratio, data.dtype)
    for i, term in enumerate(spec.basis_terms or ()):
        term.check((p, k), f"basis_terms[{i}]")
        terms.append(term)
    return terms


def elastic_net(
    alpha: float, l1_ratio: float, dtype: Any, counts: AnyArray | float = 1.0
) -> list[Term]:
    """Return α ℓ ‖Z‖₁ + ½ α (1 - ℓ) ‖Z‖² as penalty terms with row weights.

    The list is empty if α is zero.
    """
    terms: list[Term] = []
    if alpha * l1_ratio > 0:
        terms.append(Linear((np.ones((1, 1)) * alpha * l1_ratio * counts).astype(dtype)))
    if alpha * (1 - l1_ratio) > 0:
        terms.append(Ridge((np.ones((1, 1)) * alpha * (1 - l1_ratio) * counts).astype(dtype)))
    return terms


def component_owners(n_classes: int, k: int, per_class: int) -> AnyArray:
    """Return the class of each component, or -1 for components without a class.

    The first ``per_class`` components belong to the first class, and so on.
    """
    owner = np.arange(k) // per_class
    return np.where(owner < n_classes, owner, -1)


def class_cost(labels: Labels, k: int, per_class: int) -> AnyArray:
    """Return the cost matrix D (n, k) of cdNMF.

    An entry is 1 if the sample has a label and the component belongs to another class. For an
    uncertain label, it is the probability of the other class. If k is too small for a class to have
    its own component, samples of that class have no cost.
    """
    owner = component_owners(labels.n_classes, k, per_class)
    classes = np.arange(labels.n_classes)
    other = (owner[None, :] >= 0) & (owner[None, :] != classes[:, None])
    return labels.probabilities @ (other & np.isin(classes, owner)[:, None])


def graph_operator(
    W: sp.csr_array, labels: Labels | None, label_weight: float | None, rows: Any, dtype: Any
) -> tuple[Neighbors, AnyArray]:
    """Return the product Z -> W Z with the graph weights W, and the node degrees.

    With ``label_weight``, all samples of one class are connected with that weight, and samples of
    different classes are not connected. These edges are not stored: a class sum replaces them.
    """
    W = sp.csr_array(W).astype(dtype)
    clique = label_weight is not None and labels is not None and labels.n_labelled > 0
    if clique:
        assert labels is not None
        W = semi_supervised_graph(W, labels).astype(dtype)
    degrees = np.asarray(W.sum(axis=1)).ravel().astype(dtype)
    if rows is not None:  # compute AᵀWA; edges between samples with equal part weights cost nothing
        coo = W.tocoo()
        r, c = rows.index[coo.coords[0]], rows.index[coo.coords[1]]
        W = sp.csr_array((coo.data, (r, c)), shape=(rows.n_rows, rows.n_rows))
        return Neighbors(W), rows.reduce(degrees).astype(dtype)
    if not clique:
        return Neighbors(W), degrees
    assert labels is not None and label_weight is not None
    mask, codes, weight = labels.mask, labels.codes[labels.mask], dtype.type(label_weight)
    members = sp.csr_array(
        (np.ones(codes.size, dtype=dtype), (codes, np.flatnonzero(mask))),
        shape=(labels.n_classes, mask.size),
    )
    degrees = degrees.copy()
    degrees[mask] += weight * (labels.counts[codes] - 1).astype(dtype)
    return Neighbors(W, members, mask, codes, weight), degrees


#: Function that returns initial V and U, and the random number generator for the solver.
Draw = Callable[[], tuple[AnyArray, AnyArray, np.random.RandomState]]


def starts(
    spec: Description, checked: Checked, model: FactorModel, known: Known | None, alike: bool
) -> list[Start]:
    """Return one function per restart that returns initial factors and an update."""
    data, k, n_init = checked.data, checked.k, spec.n_init
    rng, name = check_random_state(spec.random_state), init_name(spec, data, k)
    if name not in ("custom", "uniform"):
        if checked.W is not None or checked.H is not None:
            warn(IGNORED, RuntimeWarning)
        if name == "nndsvd" and STEPS[checked.solver].multiplicative and spec.mu_rule != "lin":
            warn(
                "solver='mu' cannot leave the zeros of init='nndsvd', and ends far from the data; "
                "take init='nndsvda' or 'nndsvdar', which has none."
            )
    if name == "custom":
        V, U = _custom(spec, checked)
        draws: list[Draw] = [lambda: (data.rows(V.copy()), data.small(np.array(U, order="C")), rng)]
    elif n_init == 1:
        draws = [lambda: _draw(checked, name, rng)]
    else:
        seeds = rng.randint(np.iinfo(np.int32).max, size=n_init).tolist()
        # On a GPU, random initial values need X in float64, one block at a time. Drawing several
        # restarts together takes as many kernel launches as drawing one.
        if name == "random" and isinstance(data, OnDevice):
            draws = _in_groups(checked, seeds)
        else:
            # Restarts from the same deterministic initial values would be equal, so only the first
            # uses them.
            later = name if name in ("kmeans", "uniform") else "random"
            names = [name] + [later] * (n_init - 1)
            draws = [partial(_draw, checked, *pair) for pair in zip(names, seeds, strict=True)]
    return [partial(_begin, spec, checked, model, known, alike, draw) for draw in draws]


def _draw(
    checked: Checked, name: str, seed: np.random.RandomState | int
) -> tuple[AnyArray, AnyArray, np.random.RandomState]:
    """Return initial V and U of a restart, and the random generator for the solver."""
    data, k = checked.data, checked.k
    rng: np.random.RandomState = check_random_state(seed)
    if name != "uniform":
        return *init.start(data, k, name, rng, checked.weights), rng
    # the authors' own initial values are uniform random numbers, whatever the scale of X
    U, V = (rng.uniform(size=(size, k)).astype(data.dtype) for size in data.shape[::-1])
    return data.rows(V), data.small(U), rng


def _in_groups(checked: Checked, seeds: list[int]) -> list[Draw]:
    """Return random restarts, of which several are drawn together."""
    data, k, drawn = checked.data, checked.k, dict[int, Any]()
    size = group_size(data, k)

    def draw(number: int) -> tuple[AnyArray, AnyArray, np.random.RandomState]:
        """Return the initial factors of a restart; those of its group are drawn together."""
        if number not in drawn:
            rngs = [np.random.RandomState(seed) for seed in seeds[number : number + size]]
            made = init.random_starts(data, k, rngs, checked.weights)
            for at, (factors, rng) in enumerate(zip(made, rngs, strict=True), number):
                drawn[at] = (*factors, rng)
        return drawn.pop(number)  # type: ignore[no-any-return]

    return [partial(draw, number) for number in range(len(seeds))]


def _begin(
    spec: Description,
    checked: Checked,
    model: FactorModel,
    known: Known | None,
    alike: bool,
    draw: Draw,
) -> tuple[AnyArray, AnyArray, Step]:
    """Return the factors of a restart as the iterations need them, and their update."""
    V, U, rng = draw()
    step = step_for(spec, checked.solver, rng, alike)
    if spec.printed:
        if not model.S.delta:
            V, U = unit_columns(V, U, model.loss.unit_norm)
        return model.reduce(V), U, step
    if (spec.class_weight or spec.terms) and spec.init != "custom":
        V, U = in_order_of_classes(model, V, U)
    if known is not None:
        V, U = known.start(model.data, V, U, custom=spec.init == "custom")
    # NNDSVD replaces zeros by values in the scale of X, although V and U have another scale. With
    # missing entries, the first parts could become far too large.
    lack, by_svd = model.data.lack, spec.init is not None and spec.init.startswith("nndsvd")
    if model.unit or (by_svd and lack is not None and not lack.nothing):
        V = model.fit_scale(V, U)
    return V if model.rows is None else model.reduce(V), U, step


def _custom(spec: Description, checked: Checked) -> tuple[AnyArray, AnyArray]:
    """Return the user's own initial V and U, after checking them."""
    if checked.W is None or checked.H is None:
        raise ValueError("init='custom' needs both W and H.")
    (n, p), k, data = checked.data.shape, checked.k, checked.data
    W, H = as_ndarray(checked.W), as_ndarray(checked.H)
    V = check_start(W, (n, k), data.given, "W", spec.estimator_name)
    U = check_start(H, (k, p), data.given, "H", spec.estimator_name).T
    return V.astype(data.dtype, copy=False), U.astype(data.dtype, copy=False)


def init_name(spec: Description, data: DataMatrix, k: int) -> str:
    """Return the name of the initialisation method that ``init`` stands for, given X."""
    most = min(data.shape)
    if spec.printed and spec.init in (None, "random"):
        return "uniform"  # as in the program of the paper's authors
    if spec.init is None:
        # An SVD of X with filled-in missing entries is a bad start: the fit of these entries can
        # diverge.
        whole = data.lack is None or data.lack.nothing
        return "nndsvda" if k <= most and whole else "random"
    if spec.init.startswith("nndsvd") and k > most:
        raise ValueError(
            f"init = '{spec.init}' can only be used when n_components <= min(n_samples, n_features)"
        )
    return spec.init


def in_order_of_classes(model: FactorModel, V: Array, U: Array) -> tuple[AnyArray, AnyArray]:
    """Return initial factors with components in the order of lowest class cost ⟨D, V⟩.

    The rest of the objective is the same for any order. Without this step, a component may begin as
    a part of the wrong class, and a strong class penalty then keeps it there.
    """
    costs = [t.cost for t in model.terms["V"] if isinstance(t, Linear) and min(t.cost.shape) > 1]
    if not costs:
        return V, U
    from scipy.optimize import linear_sum_assignment

    Z = to_numpy(model.reduce(V)) * to_numpy(column_lengths(U, model.loss.unit_norm))
    order = linear_sum_assignment(to_numpy(costs[0]).T @ Z)[1]
    turn = model.data.small(np.eye(len(order), dtype=Z.dtype)[:, order])
    return V @ turn, U @ turn
