"""
Groups from a few labels
========================

`ConstrainedNMF` uses five labels per class and a neighbour graph to cluster all samples. The graph
spreads the labels to the unlabelled samples.
"""

from matplotlib import pyplot as plt

from partwise import ConstrainedNMF, plot
from partwise.datasets import keep_labels, load, unit_rows
from partwise.metrics import clustering_accuracy

digits = load("digits")
X, truth = unit_rows(digits.X[:600]), digits.y[:600]
known = keep_labels(truth, 5, random_state=0)  # -1: no label
model = ConstrainedNMF(
    class_reg=1.0, graph_reg=1.0, components_per_class=3, tol=1e-3, random_state=0
)
found = model.fit_predict(X, known)

hidden = known == -1
accuracy = clustering_accuracy(truth[hidden], found[hidden])
print(f"{accuracy:.0%} of the {hidden.sum()} samples without a label")

# %%
# The plots show part weights in two dimensions, coloured by cluster and by given label. A cluster
# that was matched with no class has a number after those of the classes.

given = [None if y == -1 else y for y in known]
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
plot.embedding(model, ax=axes[0])
axes[0].set_title("clusters")
plot.embedding(model, given, ax=axes[1])
axes[1].set_title("labels that the model was given")
plt.show()

# %%
# Each row shows the parts that belong to one class:

plot.class_parts(model, digits.image_shape)
plt.show()
