"""
Compare methods
===============

This example compares methods on handwritten digits. Each method gets the same few labels, and is
scored on the unlabelled samples. Since results differ between data sets, run ``partwise compare``
on your own data.
"""

import numpy as np
from matplotlib import pyplot as plt

from partwise import CDNMF, CNMF, GNMF, NMFDC, NSNMF, ConstrainedNMF, SemiGNMF
from partwise.datasets import keep_labels, load, unit_rows
from partwise.metrics import clustering_accuracy

digits = load("digits")
X, truth = unit_rows(digits.X[:500]), digits.y[:500]
models = {
    "NSNMF": NSNMF(10),
    "GNMF": GNMF(10),
    "CNMF": CNMF(10),
    "NMFDC": NMFDC(10),
    "SemiGNMF": SemiGNMF(10),
    "CDNMF": CDNMF(10),
    "class cost + graph": ConstrainedNMF(10, class_reg=1.0, graph_reg=1.0),
}
scores = {name: [] for name in models}
for seed in range(4):
    known = keep_labels(truth, 4, random_state=seed)
    hidden = known == -1
    for name, model in models.items():
        model.set_params(random_state=seed, init="random", tol=1e-2)
        found = model.fit_predict(X, known)
        scores[name].append(clustering_accuracy(truth[hidden], found[hidden]))

figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
places = np.arange(len(scores))
ax.barh(places, [np.mean(s) for s in scores.values()], xerr=[np.std(s) for s in scores.values()])
ax.set_yticks(places, list(scores))
ax.invert_yaxis()
ax.set_xlabel("accuracy on samples without a label, four draws of the labels")
plt.show()
