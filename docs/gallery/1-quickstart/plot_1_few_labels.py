"""
Classify with few labels
========================

`PartsClassifier` learns from all samples, of which only a few have labels. In this example, five
labels per class are enough for 600 handwritten digits.
"""

from matplotlib import pyplot as plt

from partwise import PartsClassifier, plot
from partwise.datasets import keep_labels, load

digits = load("digits")
X, truth = digits.X[:600], digits.y[:600]
y = keep_labels(truth, 5, random_state=0)  # five labels per class, -1 for all other samples
model = PartsClassifier(random_state=0).fit(X, y)

unlabelled = y == -1
accuracy = (model.transduction_[unlabelled] == truth[unlabelled]).mean()
print(f"accuracy on the {unlabelled.sum()} unlabelled samples: {accuracy:.0%}")
print(f"accuracy that the model expects: {model.expected_accuracy_.accuracy:.0%}")

# %%
# The images show samples that you should label next: labels for them improve the result most.

asked = model.suggest(8)
figure, ax = plt.subplots(figsize=(7, 1.6), layout="constrained")
plot.components(X[asked], digits.image_shape, columns=8, ax=ax)
ax.set_title(", ".join(f"{model.transduction_[i]}?" for i in asked))
plt.show()

# %%
# `PartsClassifier.explain` shows which parts support a class, and which parts contradict it.

print(model.explain(sample=int(asked[0]), n=2))
