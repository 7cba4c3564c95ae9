"""
CNMF: same label, same part weights
===================================

Liu, Wu: *Non-negative matrix factorization with constraints*, AAAI 2010. Labelled samples of a
class share one row of part weights. The figure shows the clustering accuracy for several numbers of
labels. On all samples it rises with the number of labels, because labelled samples of a class are
always in the same cluster. The second line shows the accuracy on the unlabelled samples, which
rises little on these digits. With one label per class, CNMF is the same as NMF.

``partwise reproduce cnmf/table1`` repeats the paper's table (ORL faces, two labels per person, 2 to
10 people). The accuracy of CNMF is 79.9% on average (printed: 82.7%), and that of NMF 77.1%
(printed: 79.3%).
"""

import warnings

import numpy as np
from matplotlib import pyplot as plt

from partwise import CNMF, plot
from partwise.datasets import keep_labels, load, unit_rows
from partwise.metrics import clustering_accuracy

digits = load("digits")
few = digits.y < 5
X, truth = unit_rows(digits.X[few][:400]), digits.y[few][:400]
budgets = [1, 2, 4, 8, 16, 32]
everyone, others = np.zeros((2, len(budgets), 4))
for i, budget in enumerate(budgets):
    for seed in range(4):
        known = keep_labels(truth, budget, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # with one label per class CNMF is NMF, and warns
            found = CNMF(5, init="random", tol=1e-2, random_state=seed).fit_predict(X, known)
        hidden = known == -1
        everyone[i, seed] = clustering_accuracy(truth, found)
        others[i, seed] = clustering_accuracy(truth[hidden], found[hidden])

plot.parameter_path(
    budgets,
    {"all samples": everyone, "samples without a label": others},
    parameter="labels per class",
    score="accuracy",
)
plt.show()
