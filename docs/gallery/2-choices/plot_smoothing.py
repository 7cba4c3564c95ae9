"""
Smoothing makes sparse parts
============================

In nsNMF, a smoothing matrix is placed between part weights and parts. With more smoothing (a larger
δ), parts become sparser, because they compensate for the blur of the smoothing.
"""

from matplotlib import pyplot as plt

from partwise import NSNMF, plot
from partwise.datasets import load
from partwise.metrics import sparseness

digits = load("digits")
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, delta in zip(axes, (0.0, 0.4, 0.8), strict=True):
    model = NSNMF(12, smoothing=delta, tol=1e-2, random_state=0).fit(digits.X[:600])
    plot.components(model, digits.image_shape, ax=ax)
    ax.set_title(f"δ = {delta}: sparseness {sparseness(model.components_):.2f}")
plt.show()
