"""Choose the solver for an objective, and refuse a solver that cannot minimise it."""

from __future__ import annotations

from partwise.backends import DataMatrix
from partwise.fitting.description import Description
from partwise.solvers.steps import STEPS, check_step


def solver_name(what: Description) -> str:
    """Return the step that ``solver`` means for this objective; refuse what it cannot do."""
    beta, asked, own = what.beta, what.solver, what.own_terms
    if asked == "cd" and beta != 2:
        raise ValueError(
            f"Invalid beta_loss parameter: solver 'cd' does not handle beta_loss = {beta}"
        )
    if asked == "auto":
        name = "hals" if beta == 2 else "newton" if beta == 1 else "mu"
        able = [s for s in (name, "nesterov", "mu") if STEPS[s].does(beta)]
        fits = (s for s in able if all(STEPS[s].takes(term, beta) for term in own))
        name = next(fits, name)
    else:
        name = "hals" if asked == "cd" else asked
        check_step(name, what.beta_loss, beta)
    if (what.graph_reg or what.mixed_labels) and beta == 1:
        if asked not in ("auto", "mu"):
            beside = "a graph" if what.graph_reg else "samples that mix classes"
            raise ValueError(
                f"solver={asked!r} cannot minimise the KL divergence with {beside}; "
                "solvers that can: mu."
            )
        name = "mu"
    check_step(name, what.beta_loss, beta, own)
    return name


def solver_for(what: Description, data: DataMatrix) -> str:
    """Return the step for this back end; "auto" means "newton" where that is faster."""
    name, k = solver_name(what), what.n_components
    if name == "newton" and what.solver == "auto":
        pays = data.newton_pays(k if isinstance(k, int) else data.shape[1])
        return name if pays else "mu"
    return name
