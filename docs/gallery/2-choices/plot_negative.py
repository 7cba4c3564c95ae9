"""
Data with negative values
=========================

Standardised measurements have negative values. Concept factorization accepts them: basis vectors
are combinations of samples, and only the weights are non-negative.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from partwise import CF, plot
from partwise.metrics import clustering_accuracy

wine = load_wine()
X = scale(wine.data)
model = CF(3, tol=1e-3, random_state=0).fit(X)
print(f"accuracy {clustering_accuracy(wine.target, model.labels_):.2f}")

plot.embedding(model, wine.target_names[wine.target])
plt.show()

# %%
# Basis vectors (concepts) have the features of the data and may be negative. The output lists the
# columns in which each concept exceeds the mean of all wines most.

plot.top_terms(model, wine.feature_names, n_terms=6, columns=3)
plt.show()
