"""Docstring parts that the estimators share, filled in by `documented`."""

from __future__ import annotations

import inspect
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARTS = {
    "n_components": """n_components : int or "auto", default="auto"
        Number of parts k. "auto": the classes in y; without labels as in scikit-learn.""",
    "beta_loss": """beta_loss : {"frobenius", "kullback-leibler", "l21"}, default="frobenius"
        The loss; "l21" is Frobenius with samples that are outliers counted by the length of their
        residual, as in `NMF`. Penalties have the weights of Frobenius there.""",
    "solver": """solver : {"auto", "mu", "hals", "nesterov", "newton"}, default="auto"
        "mu" is the paper's own multiplicative update; "hals" and "nesterov" (Frobenius) and
        "newton" (Kullback-Leibler) minimise the same objective faster. "auto": "hals" or
        "newton", by the loss; for tensors of more than 32 parts under Kullback-Leibler "mu".""",
    "groups": """n_clusters : int, default=None
        Clusters of `cluster_labels_`. None: the classes in y, else k.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0""",
    "run": """n_init : int, default=1
        Number of starts; the one with the lowest objective is kept.
    max_iter : int, default=200
        Most iterations.
    tol : float, default=1e-4
        Stop when the relative KKT residual is at most this, as in `NMF`.
    {groups}""",
    "loop": """init : str, default=None
        Start, as in `NMF`.
    {run}""",
    "common": """{loop}
    device : str, default=None
        A torch device for numpy and scipy input, as in `NMF`.
    checkpoint : path, default=None
        A folder from which an interrupted fit goes on, as in `NMF`.
    missing_values : float or nan, default=None
        What stands for an entry that was not seen, as in `NMF`. Neighbours are searched with the
        gaps filled by means of rows and columns (sparse X: by zeros).
    fixed_components, seed_components : array-like of shape (m, n_features), default=None
        Parts that are known, or where parts begin, as in `NMF`. Known parts keep their length; a
        penalty counts the codes times it.
    must_link_reg : float, default=None
    cannot_link_reg : float, default=0.1
        What links cost, as in `NMF`. With links, `cluster_labels_` are merged from below and keep
        them.""",
    "graph": """n_neighbors : int, default=5
        Neighbours of each sample in the graph, made symmetric by the maximum.
    weighting : {"binary", "heat", "dot"}, default="binary"
        Edge weights: 1, exp(-d²/2t²) or the dot product.
    bandwidth : float, default=None
        t of the heat kernel; None: the mean distance of neighbours.""",
    "knowledge": """hard_labels : bool, default=False
        Samples that share a label share a code, as in `CNMF`.
    graph_reg : float, default=0.0
        Weight λ of the neighbour graph, as in `GNMF`.
    label_weight : float, default=None
        Labels in the graph, as in `SemiGNMF`; None leaves the graph without them.
    class_reg : float, default=0.0
        Cost γ of another class's parts, as in `CDNMF`. None: that paper's value.
    components_per_class : int, default=1
        As in `CDNMF`.""",
    "scale": """scale : {"unit", "paper"}, default="unit"
        "unit": columns of U are held at length one (KL: sum one), without which the penalty on V
        could be lowered for free by shrinking V and growing U. "paper": the authors' procedure
        without that constraint, for reproduction: a start of uniform numbers, columns of U
        normalised at start and end, exactly ``max_iter`` iterations, ``n_init`` starts of 30
        iterations with the best going on.""",
    "attributes": """components_ : ndarray of shape (n_components, n_features)
        H = Uᵀ, the parts.
    embedding_ : ndarray of shape (n_samples, n_components)
        V, the codes of the training samples.
    labels_ : ndarray of shape (n_samples,)
        With labels of two classes or more: the class of each training sample, by logistic
        regression on codes that do not look at labels (at unit length, and as they are);
        labelled samples keep theirs. Otherwise `cluster_labels_`, where labelled samples keep
        theirs too.
    label_confidence_ : ndarray of shape (n_samples,)
        How clear `labels_` are, as in `predict_confidence`.
    cluster_labels_ : ndarray of shape (n_samples,)
        The papers' protocol: k-means on the codes. With labels, clusters are matched one to one
        with classes and a matched cluster carries its class's name; a warning names classes that
        got none. Made when first asked for.
    clustering_ : Clustering
        Centres and names of these clusters.
    doubtful_labels_ : list of Doubt
        Given labels that the rest contradicts, with the class that it suggests, as in
        `PartsClassifier`.
    component_classes_ : ndarray of shape (n_components,)
        With labels: the class that uses each part most, None for a part without use.
    classes_ : ndarray
        The classes in y, if labels were given.
    objective_, objective_history_, n_iter_, kkt_residual_, status_, solver_, reconstruction_err_
        As in `NMF`.""",
    # of methods
    "samples": """X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Non-negative samples.""",
    "labels": """y : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
        Labels in any order; -1, None or NaN where unknown. Or probabilities of the classes, which
        add up to one; a row of NaN where unknown.""",
    "start": """W, H : array-like, default=None
        The start, if ``init="custom"``.""",
    "sample_weight": """sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples in the loss.""",
    "entry_weight": """entry_weight : {array-like, sparse matrix}, default=None
        Weights >= 0 of the entries of X in the loss, of its shape; 0 is an entry not seen.""",
    "links": """must_link, cannot_link : array-like of shape (m, 2), default=None
        Pairs (i, j) of samples, by position in X, that belong together or apart.""",
}

SAMPLES = "ndarray of shape (n_samples,)"
CODES = "ndarray of shape (n_samples, n_components)"
#: Where the parameters of a method are told, and what it returns.
METHODS = {
    "fit_predict": ("`fit`", SAMPLES),
    "fit_transform": ("`fit`", CODES),
    "transform": ("`fit`", CODES),
    "inverse_transform": ("`transform`, of which it is the way back", "ndarray"),
    "predict": ("`transform`", SAMPLES),
    "predict_confidence": ("`transform`", SAMPLES),
    "predict_proba": ("`transform`", "ndarray of shape (n_samples, n_classes)"),
    "score": ("`transform`; y is not looked at", "float"),
    "save": ("`open`, to write", "Path"),
}


def documented(cls: Class) -> Class:
    """Fill ``{name}`` in docstrings of a class with the shared part of that name.

    Methods that scikit-learn names, too, get sections for parameters and result where they have
    none.
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
