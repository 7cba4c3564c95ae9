"""Parts of docstrings that the estimators share, inserted by `documented`."""

from __future__ import annotations

import inspect
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARTS = {
    "n_components": """n_components : int or "auto", default="auto"
        Number of components k. "auto" uses the number of classes in y; without labels it is
        chosen as in scikit-learn.""",
    "beta_loss": """beta_loss : {"frobenius", "kullback-leibler", "l21"}, default="frobenius"
        The loss. "l21" is robust to outlying samples: a sample with a large residual counts by
        its length instead of its square, as in `NMF`. Penalties keep their Frobenius weights.""",
    "solver": """solver : {"auto", "mu", "hals", "nesterov", "newton"}, default="auto"
        "mu" is the multiplicative update of the paper. "hals" and "nesterov" (Frobenius) and
        "newton" (Kullback-Leibler) minimise the same objective faster. "auto" selects "hals" or
        "newton" by the loss, and "mu" for Kullback-Leibler on tensors with more than 32
        components.""",
    "groups": """n_clusters : int, default=None
        Number of clusters in `cluster_labels_`. None uses the number of classes in y, or k
        without labels.
    random_state : int, RandomState instance or None, default=None
        Seed of the random start and of k-means.
    verbose : int, default=0
        1 prints a line for each fit, larger values print progress.""",
    "run": """n_init : int, default=1
        Number of starts. The result with the lowest objective is kept.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`. Smaller values take
        more iterations.
    {groups}""",
    "loop": """init : str, default=None
        Initialization method, as in `NMF`.
    {run}""",
    "common": """{loop}
    device : str, default=None
        A torch device for numpy and scipy input, as in `NMF`.
    checkpoint : path, default=None
        A folder that stores the state of the fit, so that an interrupted fit continues, as in
        `NMF`.
    missing_values : float or nan, default=None
        The value that marks a missing entry of X, as in `NMF`.
    fixed_components, seed_components : array-like of shape (m, n_features), default=None
        Components that are known and stay fixed, or that start the fit, as in `NMF`. Fixed
        components keep their length; a penalty counts the part weights times this length.
    must_link_reg : float, default=None
    cannot_link_reg : float, default=0.1
        Weights of the penalties on links, as in `NMF`. With links, `cluster_labels_` come from
        agglomerative clustering that keeps them.""",
    "graph": """n_neighbors : int, default=5
        Number of neighbours of each sample in the graph. An edge exists if either sample is a
        neighbour of the other. Larger values smooth the part weights more.
    weighting : {"binary", "heat", "dot"}, default="binary"
        Edge weights: 1, exp(-d²/2t²) or the dot product.
    bandwidth : float, default=None
        Bandwidth t of the heat kernel. None uses the mean distance of neighbours.""",
    "knowledge": """hard_labels : bool, default=False
        Samples with the same label share their part weights, as in `CNMF`.
    graph_reg : float, default=0.0
        Weight λ of the neighbour graph, as in `GNMF`.
    label_weight : float, default=None
        Weight of an edge between samples with the same label, as in `SemiGNMF`. None leaves
        labels out of the graph.
    class_reg : float, default=0.0
        Cost γ of using components of another class, as in `CDNMF`. None uses the value of that
        paper.
    components_per_class : int, default=1
        Number of components of each class, as in `CDNMF`.""",
    "scale": """scale : {"unit", "paper"}, default="unit"
        "unit" keeps the columns of U at length one (Kullback-Leibler: sum one). Without this
        constraint, the penalty on V could be lowered at no cost by shrinking V and growing U.
        "paper" follows the authors' procedure without the constraint, for reproduction: uniform
        random starts, columns of U normalised at start and end, and exactly ``max_iter``
        iterations. Of ``n_init`` starts of 30 iterations the best one continues.""",
    "attributes": """components_ : ndarray of shape (n_components, n_features)
        H = Uᵀ, the parts.
    embedding_ : ndarray of shape (n_samples, n_components)
        V, the part weights of the training samples.
    labels_ : ndarray of shape (n_samples,)
        If there are labels of two or more classes: the predicted class of each training sample,
        by logistic regression on part weights that do not depend on labels (scaled to unit
        length, and unscaled). Otherwise `cluster_labels_`. Labelled samples keep their label.
    label_confidence_ : ndarray of shape (n_samples,)
        Confidence of `labels_`, as in `predict_confidence`.
    cluster_labels_ : ndarray of shape (n_samples,)
        The papers' protocol: k-means on the part weights. With labels, clusters are matched one
        to one with classes, and a matched cluster carries the label of its class. A warning lists
        the classes without a cluster. Computed on first access.
    clustering_ : Clustering
        Centres and labels of these clusters.
    doubtful_labels_ : list of Doubt
        Given labels that the other samples contradict, with the class that they suggest, as in
        `PartsClassifier`.
    component_classes_ : ndarray of shape (n_components,)
        If there are labels: the class that uses each component most; None for an unused one.
    classes_ : ndarray
        The classes in y, if there are labels.
    objective_, objective_history_, n_iter_, kkt_residual_, status_, solver_, reconstruction_err_
        As in `NMF`.""",
    # of methods
    "samples": """X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Non-negative samples.""",
    "labels": """y : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
        Class labels in any order; -1, None or NaN marks an unlabelled sample. Or class
        probabilities, whose rows add up to one; a row of NaN marks an unlabelled sample.""",
    "start": """W, H : array-like, default=None
        The initial factors, if ``init="custom"``.""",
    "sample_weight": """sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples in the loss. Without penalties and graphs, a weight of 2 has the
        effect of the same sample twice. Penalties and graphs count every sample once, whatever
        its weight.""",
    "entry_weight": """entry_weight : {array-like, sparse matrix}, default=None
        Non-negative weights of the entries of X in the loss. An entry with weight 0 is
        missing.""",
    "links": """must_link, cannot_link : array-like of shape (m, 2), default=None
        Pairs (i, j) of row numbers of X: samples of one class, or of different classes.""",
}

SAMPLES = "ndarray of shape (n_samples,)"
CODES = "ndarray of shape (n_samples, n_components)"
#: The place that documents the parameters of a method, and the type of its result.
METHODS = {
    "fit_predict": ("`fit`", SAMPLES),
    "fit_transform": ("`fit`", CODES),
    "transform": ("`fit`", CODES),
    "inverse_transform": ("`transform`, which it inverts", "ndarray"),
    "predict": ("`transform`", SAMPLES),
    "predict_confidence": ("`transform`", SAMPLES),
    "predict_proba": ("`transform`", "ndarray of shape (n_samples, n_classes)"),
    "score": ("`transform`; y is ignored", "float"),
    "save": ("`open` for writing", "Path"),
}


def documented(cls: Class) -> Class:
    """Replace ``{name}`` in the docstrings of a class by the shared part of that name.

    Methods of scikit-learn's interface without sections for parameters and results get them.
    """
    for one in (cls, *filter(inspect.isfunction, vars(cls).values())):
        text = inspect.cleandoc(one.__doc__ or "")
        for name, part in reversed(PARTS.items()):  # a part names only those before it
            text = text.replace("{" + name + "}", part.replace("\n    ", "\n"))
        one.__doc__ = text + "\n" if text else None
    for name, (place, result) in METHODS.items():
        method = vars(cls).get(name)
        if method is None or not method.__doc__ or "Returns\n" in method.__doc__:
            continue
        taken = list(inspect.signature(method).parameters.values())[1:]
        names = ", ".join("**" * (one.kind is one.VAR_KEYWORD) + one.name for one in taken)
        method.__doc__ = (
            f"{inspect.cleandoc(method.__doc__)}\n\nParameters\n----------\n{names}\n"
            f"    As in {place}.\n\nReturns\n-------\n{result}\n"
        )
    return cls
