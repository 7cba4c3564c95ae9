"""The second step of a fit: the objective, where its minimum is looked for, and how."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from partwise.backends import DataMatrix
from partwise.backends.numpy.float64_products import beyond_mean, in_double
from partwise.fitting import check_arrays, validation
from partwise.fitting.description import Checked, Description, Knowledge, Problem
from partwise.fitting.fixed_parts import Known
from partwise.fitting.objective_terms import shared_rows, terms_on_codes, terms_on_parts
from partwise.fitting.starts import starts
from partwise.knowledge.graph.neighborhood import learn_neighborhood
from partwise.knowledge.probabilities import propagate
from partwise.model.factor_model import FactorModel
from partwise.model.graph_terms import GraphDivergence
from partwise.solvers.loop import Settings
from partwise.solvers.projected import projected
from partwise.solvers.steps import Step, make_step, mu, mu_lin, parts_alone, shuffled

#: Share of ‖X‖² beyond multiples of its mean below which parts are nearly one direction: their
#: products cancel, in float32 to nothing. And the curvature of a graph beside parts of length one
#: from which steps are below the last digit of a code in float32.
LEAST_BEYOND, MOST_CURVED = 1e-2, 1e5


def state(what: Description, checked: Checked) -> Problem:
    """The problem that a description makes of data."""
    k, solver = checked.k, checked.solver
    knowledge = with_graph(what, checked)
    pieces = objective(what, checked.data, k, knowledge)
    data, alike = checked.data, beyond_mean(checked.data) < LEAST_BEYOND
    if alike or joined(pieces) > MOST_CURVED:
        data = in_double(data)
    if data is not checked.data:
        checked = replace(checked, data=data)
        pieces = objective(what, data, k, knowledge)
    known = known_parts(what, checked, unit=pieces["unit"])
    model = FactorModel(
        data,
        what.loss,
        weights=checked.weights,
        held=None if known is None else known.held,
        project=what.project,
        sweeps=sweeps(data, k),
        **pieces,
    )
    if model.loss.beta == 2:
        has_values = model.constant == 0 and bool(model.R.row_sums().any())
        validation.check_scale(model.constant, has_values, what.whom)
    settings = settings_for(what, solver, model)
    makes = starts(what, checked, model, known, lambda rng: step_for(what, solver, rng, alike))
    return Problem(model, k, solver, settings, makes, knowledge, known)


def with_graph(what: Description, checked: Checked) -> Knowledge:
    """What is known of the samples, with a graph where it is used, and labels spread on it."""
    knowledge, labels = checked.knowledge, checked.knowledge.labels
    spread = what.propagate and labels is not None and labels.n_labelled > 0
    if knowledge.neighbors is None and (what.graph_reg or spread):
        samples, method = check_arrays.searchable(checked.X)
        how = (what.n_neighbors, what.weighting, what.bandwidth, method)
        knowledge = replace(knowledge, neighbors=learn_neighborhood(samples, *how, what.seed))
    if spread and labels is not None and knowledge.graph is not None:
        return replace(knowledge, labels=propagate(knowledge.graph, labels))
    return knowledge


def objective(
    what: Description, data: DataMatrix, k: int, knowledge: Knowledge, *, new: bool = False
) -> dict[str, Any]:
    """The map and the terms of a `FactorModel`; for ``new`` samples with the parts fixed."""
    rows = shared_rows(what, knowledge, data.shape[0])
    terms_V = terms_on_codes(what, data, k, knowledge, rows, new=new)
    terms_U = terms_on_parts(what, data, k)
    # what only NMF leaves open: without a scale, codes would shrink until links cost nothing
    held = what.scale == "unit" or knowledge.links is not None
    return {
        "rows": rows,
        "smoothing": what.smoothing,
        "terms_V": terms_V,
        "terms_U": terms_U,
        "unit": held and bool(terms_V) and not terms_U and not new,
    }


def joined(pieces: dict[str, Any]) -> float:
    """How curved the graphs between codes are, beside parts of length one."""
    terms = pieces["terms_V"] if pieces["unit"] else []
    return sum(t.lipschitz() for t in terms if t.couples and "lipschitz" in t.offers)


def known_parts(what: Description, checked: Checked, *, unit: bool) -> Known | None:
    """The parts that are known before the fit."""
    fixed, seeds = what.fixed_components, what.seed_components
    if fixed is None and seeds is None:
        return None
    shape = (checked.k, checked.data.shape[1])
    norm = what.loss.unit_norm if unit and not what.smoothing else None
    return Known(
        fixed, seeds, shape, checked.data.dtype, unit_norm=norm, root=np.sqrt(checked.factor)
    )


def sweeps(data: DataMatrix, k: int) -> tuple[int, int]:
    """Coordinate sweeps that a product with X is worth, on V and on U."""
    n, p = data.shape
    return data.sweeps(p, k), data.sweeps(n, k)


def settings_for(what: Description, solver: str, model: FactorModel) -> Settings:
    """How the loop runs: multiplicative updates and printed procedures exactly as they are."""
    by_hand = solver == "mu" or what.printed
    newton = solver == "newton"
    informed = model.rows is not None or bool(model.terms["V"])  # else it is plain NMF
    stationary = not any(isinstance(term, GraphDivergence) for term in model.terms["V"])
    # GNMF (21) is no descent: beside a part that is known it goes on rising
    watched = not stationary and not what.printed
    # the paper of NMF-DC has no extrapolation between iterations
    inner = what.inner_iter is not None and solver == "nesterov"
    order = what.paper_order if solver == "mu" and informed else "VU"
    if what.free_parts:  # they are solved for, and begin by that
        order = "UV"
    return Settings(
        max_iter=what.max_iter,
        tol=0.0 if what.printed else what.tol,
        order=order,
        # a value that ends at the same factors as a step serves the next one: no extrapolation
        extrapolate=not (
            by_hand or inner or what.project or what.free_parts or (newton and model.R.curved)
        ),
        guard=not by_hand or watched,
        stationary=stationary and not what.project,
        warmup=3 if newton else 0,
        rough=make_step("newton", rough=True) if newton and not model.R.curved else None,
        # without sweeps for a factor "newton" is multiplicative there, and must not meet zero
        keep=0.1 if newton and model.newton_sides != "VU" else 0.0,
        # a multiplicative update would leave the constraint set: no last resort but to stay
        safe=None if what.project else parts_alone if watched else mu,
    )


def step_for(
    what: Description, solver: str, rng: np.random.RandomState, alike: bool = False
) -> Step:
    """The step that a solver takes; samples that are all ``alike`` make parts that are."""
    if what.project:
        return projected
    if solver == "mu" and what.mu_rule == "lin":
        return mu_lin
    if solver == "hals" and what.shuffle:
        return shuffled(rng)
    if solver == "nesterov" and what.inner_iter is not None:
        return make_step("nesterov", inner_iter=what.inner_iter)
    return make_step(solver, exact=True) if solver == "hals" and alike else make_step(solver)
