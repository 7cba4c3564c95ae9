"""
Topics of documents
===================

NMF finds topics in a matrix of tf-idf values: each part is a topic. The documents in this example
are the docstrings of scikit-learn's estimators.
"""

import sklearn.cluster
import sklearn.decomposition
import sklearn.ensemble
import sklearn.linear_model
import sklearn.preprocessing
from matplotlib import pyplot as plt
from sklearn.feature_extraction.text import TfidfVectorizer

from partwise import NMF, plot

modules = [
    sklearn.cluster,
    sklearn.decomposition,
    sklearn.ensemble,
    sklearn.linear_model,
    sklearn.preprocessing,
]
texts = [getattr(module, name).__doc__ or "" for module in modules for name in module.__all__]
vectorizer = TfidfVectorizer(
    stop_words="english", min_df=4, max_df=0.4, token_pattern=r"\b[a-z]{4,}\b", sublinear_tf=True
)
X = vectorizer.fit_transform(texts)
print(X.shape, "sparse, and never made dense")

model = NMF(6, beta_loss="kullback-leibler", tol=1e-3, max_iter=500, random_state=0).fit(X)
plot.top_terms(model, vectorizer.get_feature_names_out(), n_terms=8, columns=3)
plt.show()
