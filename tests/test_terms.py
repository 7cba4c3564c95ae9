"""Every term with every step on every kind of array: the minimum of an independent solver."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from partwise.engine.data import as_data
from partwise.engine.losses import Frobenius
from partwise.engine.problem import FactorModel
from partwise.engine.solvers.loop import Settings, alternate
from partwise.engine.solvers.steps import make_step
from partwise.engine.terms import Ridge


def test_a_ridge_by_column_has_one_minimum_whatever_the_solver():
    """`hals` once took the first column's weight for all: it ended higher, with a poor KKT."""
    rng = np.random.default_rng(0)
    X = rng.random((30, 12))
    V, U = rng.random((30, 4)), rng.random((12, 4))
    weight = np.array([[0.1, 1.0, 3.0, 10.0]])
    terms = {"terms_V": [Ridge(weight)], "terms_U": [Ridge(np.full((1, 1), 0.5))]}
    for name in ("hals", "nesterov"):
        model = FactorModel(as_data(X), Frobenius(), **terms)
        found = alternate(model, V, U, make_step(name), Settings(3000, 1e-9))
        assert found.converged

        def codes(z, U=found.U):
            E = z.reshape(30, 4) @ U.T - X
            gradient = E @ U + weight * z.reshape(30, 4)
            return 0.5 * (E**2).sum() + 0.5 * (
                weight.ravel() @ (z.reshape(30, 4) ** 2).sum(axis=0)
            ), gradient.ravel()

        bounds = [(0, None)] * 120
        best = minimize(codes, V.ravel(), jac=True, bounds=bounds, options={"maxiter": 5000}).fun
        assert codes(found.Z.ravel())[0] <= best * (1 + 1e-6), name
