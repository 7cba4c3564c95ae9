"""
How many components?
====================

If the number of parts fits the data, the clusters of runs with different seeds agree. This page
draws this agreement for several numbers of parts, and the agreement of the clusters with the true
classes.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from partwise import GNMF, plot
from partwise.datasets import unit_rows
from partwise.metrics import adjusted_rand
from partwise.report import stability

digits = load_digits(n_class=6)
X, y = unit_rows(digits.data[:400]), digits.target[:400]
numbers = range(3, 10)
agreement, score = [], []
for k in numbers:
    model = GNMF(k, graph_reg=1.0, tol=1e-2, random_state=0).fit(X)
    agreement.append(stability(model, X, seeds=4).pairs)
    score.append(adjusted_rand(y, model.labels_))

ax = plot.parameter_path(
    list(numbers),
    {"agreement between seeds": np.array(agreement), "agreement with the six digits": score},
    parameter="number of parts",
    score="adjusted Rand index",
)
plt.show()
