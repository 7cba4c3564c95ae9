"""
Parts of handwritten digits
===========================

NMF represents each image as a sum of a few parts. Since parts are added and never subtracted, they
look like strokes.
"""

from matplotlib import pyplot as plt

from partwise import NMF, plot
from partwise.datasets import load

digits = load("digits")
model = NMF(16, tol=1e-3, random_state=0).fit(digits.X)
print(f"{model.status_}, {model.n_iter_} iterations")

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
plot.components(model, digits.image_shape, ax=axes[0])
axes[0].set_title("16 parts")
plot.convergence(model, ax=axes[1])
plt.show()

# %%
# The part weights ``embedding_`` are the amounts of each part in each image. Their product with the
# parts is close to the image.

again = model.inverse_transform(model.embedding_[:8])
figure, axes = plt.subplots(2, 1, figsize=(7, 2.2), layout="constrained")
plot.components(digits.X[:8], digits.image_shape, columns=8, ax=axes[0])
plot.components(again, digits.image_shape, columns=8, ax=axes[1])
plt.show()
