"""
Write your own penalty
======================

You can write your own penalty as a class with a value, a gradient and a bound of its curvature.
`ConstrainedNMF` combines the penalty with its other options, and every solver supports it. This
example penalises differences of neighbouring pixels, so that parts of digits become strokes. If the
weight μ is too large, parts become constant, because a constant part has no cost.
"""

import numpy as np
from matplotlib import pyplot as plt

from partwise import ConstrainedNMF, plot
from partwise.datasets import load
from partwise.terms import Term


class SmoothImages(Term):
    """½ μ Σ (difference of neighbouring pixels)² of every part."""

    couples, degree = True, 2  # pixels are the rows of U; twice U costs four times as much

    def __init__(self, shape, weight):
        self.shape, self.weight = shape, weight

    def value(self, U):
        return 0.5 * (U * self.gradient(U)).sum()

    def gradient(self, U):
        images = U.reshape(*self.shape, -1)
        slope = np.zeros_like(images)
        for axis in (0, 1):
            ends = [(1, 1) if a == axis else (0, 0) for a in range(3)]
            slope -= np.diff(np.pad(np.diff(images, axis=axis), ends), axis=axis)
        return self.weight * slope.reshape(U.shape)

    def lipschitz(self):
        return 8 * self.weight


digits = load("digits")
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, weight in zip(axes, (0, 10, 40), strict=True):
    smooth = SmoothImages(digits.image_shape, weight)
    model = ConstrainedNMF(12, alpha_W=0.02, basis_terms=[smooth], tol=1e-2, random_state=0)
    model.fit(digits.X[:600])
    plot.components(model, digits.image_shape, ax=ax)
    ax.set_title(f"μ = {weight:g}")
plt.show()
