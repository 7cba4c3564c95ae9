"""
Penalties that vanish during long fits
======================================

The graph term of GNMF penalises part weights only. In the published form, a fit can lower the
penalty without changing the reconstruction, by smaller part weights and larger parts. With parts of
unit length (``scale="unit"``), this is not possible.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from partwise import GNMF
from partwise.datasets import unit_rows
from partwise.graph import neighbor_graph

digits = load_digits()
X = unit_rows(digits.data[:300])
graph = neighbor_graph(X, 5)
iterations = [10, 30, 100, 300, 1000, 3000]


def penalty(scale, max_iter):
    """λ/2 tr(VᵀLV) after some iterations: the objective without the loss."""
    model = GNMF(10, scale=scale, solver="mu", tol=0, max_iter=max_iter, random_state=0)
    model.fit(X, graph=graph)
    return model.objective_history_[-1] - model.reconstruction_err_**2 / 2


figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for scale in ("paper", "unit"):
    values = np.array([penalty(scale, n) for n in iterations])
    print(scale, values.round(3))
    ax.plot(iterations, values, marker="o", label=f'scale="{scale}"')
ax.set_xscale("log")
ax.set_yscale("log")
ax.set_xlabel("iterations")
ax.set_ylabel("penalty")
ax.legend(frameon=False)
plt.show()
