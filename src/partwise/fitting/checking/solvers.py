"""Choose the solver for an objective, and refuse a solver that cannot minimise it."""

from __future__ import annotations

from partwise.backends import DataMatrix
from partwise.fitting.description import Description
from partwise.solvers.steps import ALIASES, STEPS, check_step


def solver_name(spec: Description) -> str:
    """Return the step that ``solver`` means for this objective; refuse what it cannot do."""
    beta, asked, own = spec.beta, spec.solver, spec.own_terms
    if asked == "cd" and beta != 2:
        raise ValueError(
            f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta}"
        )
    joined = beta == 1 and bool(spec.graph_reg or spec.mixed_labels)
    able = [s for s in STEPS.values() if s.does(beta) and (s.takes_joined_rows or not joined)]
    if asked == "auto":
        fits = (s.name for s in able if all(s.takes(term, beta) for term in own))
        name = next(fits, able[0].name)
    else:
        name = ALIASES.get(asked, asked)
        check_step(name, spec.beta_loss, beta)
        if STEPS[name] not in able:
            beside = "a graph" if spec.graph_reg else "samples that mix classes"
            raise ValueError(
                f"solver={asked!r} cannot minimise the KL divergence with {beside}; "
                f"solvers that can: {', '.join(s.name for s in able)}."
            )
    check_step(name, spec.beta_loss, beta, own)
    return name


def solver_for(spec: Description, data: DataMatrix) -> str:
    """Return the solver for these data; "auto" skips a solver that does not pay on them."""
    name, k = solver_name(spec), spec.n_components
    if spec.solver == "auto" and not STEPS[name].pays(
        data, k if isinstance(k, int) else data.shape[1]
    ):
        rest = (s.name for s in STEPS.values() if s.name != name and s.does(spec.beta))
        return next(rest, name)
    return name
