"""A second-order step for the KL loss that uses only products with X.

It is used if coordinate sweeps over rows of X are impossible. The problem of a row is f(z) = cost·z
+ ½ ridge z² - Σ_j x_j log(z·b_j) for z >= 0, with the Hessian H = Σ_j x_j/y_j² b_j b_jᵀ plus the
ridge. Coordinate sweeps minimise the quadratic model of f over z >= 0. The step to this minimum is
multiplied by 1/(1 + λ), where λ² = dᵀHd / Σ_j x_j and d is the step. This is the damped step for
self-concordant functions, with a mean over entries instead of the largest one. It rarely increases
the objective, and the iteration loop undoes a step that does.

H is symmetric, so an array (rows, k(k+1)/2) stores the pairs a <= b at position b(b+1)/2 + a.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.backends.arrays import AnyArray, Array, cast, namespace, spread

#: Share of H's diagonal added as damping, because rounded sums may be indefinite.
HOLD = 0.01


def places(k: int) -> NDArray[Any]:
    """Return the index of each pair (k, k) among the pairs."""
    a, b = np.indices((k, k))
    low, high = np.minimum(a, b), np.maximum(a, b)
    at: NDArray[Any] = high * (high + 1) // 2 + low
    return at


def of_pairs(B: AnyArray, columns: Iterable[int] | None = None) -> Array:
    """Return b_ja b_jb for each pair a <= b of columns, or only for the given values of b."""
    columns = range(B.shape[1]) if columns is None else columns
    return namespace(B).concat([B[:, : b + 1] * B[:, b : b + 1] for b in columns], axis=1)


@singledispatch
def damped_step(
    Z: AnyArray, product: AnyArray, H: AnyArray, cost: AnyArray, ridge: AnyArray, sweeps: int
) -> Array:
    """Return Z after a damped step to the minimum of each row's quadratic model.

    ``product`` is (X/Y) B at Z, so that ⟨z, product⟩ is the row's sum of X.
    """
    xp, k = namespace(Z), Z.shape[1]
    where = [xp.asarray(row, device=H.device) for row in places(k)]
    cost, ridge = (cast(spread(a, Z), Z.dtype) for a in (cost, ridge))
    change = xp.zeros_like(Z)
    bent = xp.zeros_like(Z)  # the product of the Hessian H and the change so far
    slope = cost + ridge * Z - product
    for _ in range(sweeps):
        for a in range(k):
            across = xp.take(H, where[a], axis=1)
            own = across[:, a]
            hold = HOLD * own
            curved = own + hold + ridge[:, a]
            pull = slope[:, a] + bent[:, a] + (hold + ridge[:, a]) * change[:, a]
            # A coordinate without curvature changes only if its linear cost is positive; it then
            # becomes zero.
            flat = xp.where(pull > 0, -Z[:, a], change[:, a])
            least = change[:, a] - pull / xp.where(curved > 0, curved, 1)
            new = xp.where(curved > 0, xp.maximum(least, -Z[:, a]), flat)
            bent = bent + (new - change[:, a])[:, None] * across
            change[:, a] = new
    mass = xp.maximum((Z * product).sum(axis=1), float(np.finfo(np.float32).tiny))
    steep = xp.sqrt(xp.maximum((bent * change).sum(axis=1), 0) / mass)
    return xp.maximum(Z + change / (1 + steep)[:, None], 0)
