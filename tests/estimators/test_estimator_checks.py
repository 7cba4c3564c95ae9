"""scikit-learn's estimator checks, for every estimator.

This file holds all expected failures of the test suite. Run as a program, it lists them with their
reasons.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import ClusterMixin, clone, is_classifier, is_clusterer
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import partwise
from partwise.estimators.methods import ESTIMATORS as TABLE

KL = "kullback-leibler"
SHORT: dict[str, Any] = {"max_iter": 20}
#: Parameters for estimators whose defaults are unsuitable for a check, for example too slow.
FIRST: dict[str, dict[str, Any]] = {
    "NTF": {"image_shape": (1, -1), **SHORT},
    "PartsClassifier": {"max_iter": 10, "n_folds": 2},
    "MultilabelClassifier": {"max_iter": 10, "n_folds": 2, "threshold": 0.5},
}
ESTIMATORS = [
    *(getattr(partwise, name)(**FIRST.get(name, SHORT)) for name in TABLE),
    partwise.NMF(beta_loss=KL),
    partwise.MiniBatchNMF(beta_loss=KL, **SHORT),
    partwise.GNMF(scale="paper", **SHORT),
    partwise.GNMF(beta_loss=KL, max_iter=5),
    partwise.CNMF(beta_loss=KL, **SHORT),
    partwise.CDNMF(beta_loss=KL, **SHORT),
    partwise.NSNMF(beta_loss=KL),
    partwise.ConstrainedNMF(
        hard_labels=True, graph_reg=1.0, class_reg=1.0, smoothing=0.2, alpha_W=1e-3, **SHORT
    ),
    partwise.SemiNMF(graph_reg=1.0, class_reg=1.0, **SHORT),
    partwise.CF(kernel="rbf", **SHORT),
    partwise.CF(kernel="precomputed", **SHORT),
    partwise.SparseNMF(sparseness_H=0.5, **SHORT),
    partwise.SparseNMF(sparseness_W=0.5, **SHORT),
]

CODED_ALONE = (
    "With labels or graph, transform codes new samples with the basis fixed and ignores both."
)
SPARSE_CODES = (
    "sparseness_W constrains the part weights of all samples, and transform does not impose it."
)
MOVED = "A fit ends with linear programs for the part weights, which transform does not repeat."
GRAPH_REPEATS = "A repeated sample changes the neighbours in the graph, but a weight does not."
COST_REPEATS = "Weights multiply the loss only, but a repeated sample also repeats its class cost."
OTHER_PATH = "Sweeps depend on the number of rows, so both fits end within tol, not within 1e-7."
KMEANS_REPEATS = "The k-means of predict counts every sample once, and starts from random samples."
NO_KERNEL = "The check changes the kernel matrix, which is then no kernel and is refused."

ONE_FACTOR = "V equals the part weights of its samples only at a minimum, not after few sweeps."
LABEL_WEIGHTS = "Weights count for labels only; repeated samples also change the part weights."
ONE_LABEL = "The check passes one class per sample, and the estimator needs a matrix of labels."
UNKNOWN = "-1 stands for an unknown label, as in scikit-learn's semi-supervised classifiers."

#: Checks that pass a vector y, or any number of classes, to MultilabelClassifier.
NEED_ONE_LABEL = [
    "check_estimators_dtypes", "check_classifier_data_not_an_array", "check_complex_data",
    "check_classifiers_one_label", "check_classifiers_classes", "check_estimator_sparse_array",
    "check_estimator_sparse_matrix", "check_classifiers_train",
    "check_classifier_not_supporting_multiclass", "check_classifiers_regression_target",
    "check_transformer_data_not_an_array", "check_transformer_general",
    "check_transformer_preserve_dtypes", "check_transformer_n_iter", "check_fit2d_1feature",
]  # fmt: skip
#: Reasons of checks that are left out: they compare iterates, so rounding decides whether they
#: pass.
LEFT_OUT = {OTHER_PATH, KMEANS_REPEATS}
#: Exceptions of an expected failure: a failed assertion, or the estimator refuses the data.
REFUSALS = (AssertionError, ValueError)

#: Checks that run once per class, because they test inputs and copies and do not depend on
#: parameters.
ONCE = {
    "check_dict_unchanged",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit_check_is_fitted",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_transformer_data_not_an_array",
}

SAME_CODES = ("check_transformer_general", "check_transformer_data_not_an_array")
SAME_WEIGHTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)


def parametrized(estimators: Any) -> Any:
    """Return scikit-learn's checks, with expected failures marked and unreliable checks left out.

    An expected failure must fail on every processor, with one of `REFUSALS`. Checks whose result
    depends on rounding are left out.
    """
    made = parametrize_with_checks(estimators)
    names, cases = made.args
    marked, first = [], {(type(e), is_pairwise(e)): e for e in reversed(estimators)}
    for estimator, check in (getattr(case, "values", case) for case in cases):
        name = getattr(check, "func", check).__name__
        why = expected_failures(estimator).get(name)
        again = first[type(estimator), is_pairwise(estimator)] is not estimator
        once = name in ONCE or getattr(check, "keywords", {}).get("readonly_memmap", False)
        if why in LEFT_OUT or (again and once):
            continue
        marks = [pytest.mark.xfail(reason=why, strict=True, raises=REFUSALS)] if why else []
        if name == "check_estimator_sparse_matrix" and fits_like_nmf(estimator):
            marks.append(
                pytest.mark.long
            )  # the check for scipy's sparse arrays runs in `make test`
        marked.append(pytest.param(estimator, check, marks=marks))
    return pytest.mark.parametrize(names, marked, **made.kwargs)


def is_pairwise(estimator: Any) -> bool:
    return bool(estimator.__sklearn_tags__().input_tags.pairwise)


def fits_like_nmf(estimator: Any) -> bool:
    """Return whether the estimator converts SciPy's sparse matrices to sparse arrays, as NMF does.

    The check also passes for an estimator that refuses them with an error that contains "sparse".
    """
    own = getattr(estimator, "own_fit", not hasattr(estimator, "_describe"))
    # NMF and GNMF, without and with a graph, stand for the others.
    return not own and type(estimator) not in (partwise.NMF, partwise.GNMF)


def same_path(estimator: Any) -> bool:
    """Return whether the iterates do not depend on the number of samples.

    Then a sample weight of 2 gives exactly the fit with a repeated sample.
    """
    projects = getattr(estimator, "sparseness_H", None) is not None
    return projects or getattr(estimator, "beta_loss", None) == KL


def expected_failures(estimator: Any) -> dict[str, str]:
    """Return the names of the checks that fail for this estimator, each with the reason."""
    expected: dict[str, str] = {}
    name = type(estimator).__name__
    pieces = estimator._describe() if hasattr(estimator, "_describe") else None
    paper = getattr(estimator, "scale", None) == "paper"
    if pieces and (pieces.uses_labels or (pieces.graph_reg and paper)):
        expected |= dict.fromkeys(SAME_CODES, CODED_ALONE)
    takes = inspect.signature(estimator.fit).parameters if pieces and pieces.labelled else ()
    if "graph" in takes:
        why = GRAPH_REPEATS if pieces.graph_reg or pieces.propagate else KMEANS_REPEATS
        expected |= dict.fromkeys(SAME_WEIGHTS, why)
    elif pieces and pieces.class_weight:
        # With KL, no parts of other classes remain whose weights would have a cost.
        if pieces.beta == 2:
            expected |= dict.fromkeys(SAME_WEIGHTS, COST_REPEATS)
    elif "sample_weight" in takes and (pieces.hard_labels or not same_path(estimator)):
        expected |= dict.fromkeys(SAME_WEIGHTS, OTHER_PATH)
    if getattr(estimator, "sparseness_W", None) is not None:
        expected |= dict.fromkeys((*SAME_CODES, *SAME_WEIGHTS), SPARSE_CODES)
    if name == "AnsNMF":
        expected |= dict.fromkeys(SAME_CODES, MOVED)
    if name == "SymNMF":
        expected |= dict.fromkeys(SAME_CODES, ONE_FACTOR)
    if name == "PartsClassifier":
        expected |= dict.fromkeys(SAME_WEIGHTS, LABEL_WEIGHTS)
        expected["check_classifiers_classes"] = UNKNOWN
    if name == "MultilabelClassifier":
        expected |= dict.fromkeys(NEED_ONE_LABEL, ONE_LABEL)
    if getattr(estimator, "kernel", None) == "precomputed":
        expected["check_positive_only_tag_during_fit"] = NO_KERNEL
        expected["check_estimators_dtypes"] = NO_KERNEL
    return expected


def skip_without_packages(estimator: Any) -> None:
    if isinstance(estimator, partwise.NTF):
        pytest.importorskip("tensorly", reason="tensorly is not installed: partwise[tensor]")


# On purpose, the checks use few iterations, no labels, one label per class, and few neighbours.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*no known label")
@pytest.mark.filterwarnings("ignore:.*so every sample gets that label")
@pytest.mark.filterwarnings("ignore:.*no class has two labelled samples")
@pytest.mark.filterwarnings("ignore:n_neighbors")
@pytest.mark.filterwarnings("ignore:.* parts for .* classes")
@parametrized(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any, few_trees: None, request: Any) -> None:
    skip_without_packages(estimator)
    name = getattr(check, "func", check).__name__
    if name == "check_clustering":
        estimator = prepared(estimator)
    try:
        check(estimator)
    except REFUSALS as error:
        # For an expected failure, no traceback is needed.
        if request.node.get_closest_marker("xfail"):
            # For each line of a traceback, pytest would read a whole file of scikit-learn.
            raise error.with_traceback(None) from None
        raise


def prepared(estimator: Any) -> Any:
    """Return the estimator with a `fit` that makes its input non-negative or pairwise.

    scikit-learn's `check_clustering` passes standardised data, which contain negative values.
    """
    tags = estimator.__sklearn_tags__().input_tags

    class Prepared(type(estimator)):
        def fit(self, X: Any, y: Any = None, **given: Any) -> Any:
            X = np.asarray(X)
            if tags.positive_only:
                X = X - np.minimum(np.min(X), 0)
            return super().fit(X @ X.T if tags.pairwise else X, y, **given)

    return Prepared(**estimator.get_params())


def test_plain_models_have_no_expected_failure():
    for name in ("NMF", "CF", "LCF"):
        assert expected_failures(getattr(partwise, name)()) == {}
    for name in ("NSNMF", "SparseNMF"):  # test_labels_in_methods.py checks the effect of weights
        assert expected_failures(getattr(partwise, name)()).keys() == set(SAME_WEIGHTS)


GROUPED = [e for e in ESTIMATORS if isinstance(e, ClusterMixin)]


@pytest.mark.parametrize("estimator", GROUPED, ids=str)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_clusterers_become_classifiers_with_labels(estimator):
    skip_without_packages(estimator)
    X, truth = make_blobs([20] * 3, 6, center_box=(5, 15), cluster_std=0.3, random_state=0)
    if is_pairwise(estimator):
        X = X @ X.T
    y = np.where(np.arange(60) % 5 == 0, truth, -1)
    model = clone(estimator).set_params(n_components=3, n_clusters=3, random_state=0).fit(X)
    assert is_clusterer(model) and not is_classifier(model)
    # Six features are too few for this constraint.
    if getattr(estimator, "sparseness_W", None) is None:
        # The limit of scikit-learn's check_clustering.
        assert adjusted_rand_score(truth, model.labels_) > 0.4
    model.fit(X, y)
    assert is_classifier(model) and not is_clusterer(model)
    assert set(model.labels_) <= {0, 1, 2}
    # A clone is a clusterer again, since its fit may have no labels.
    assert is_clusterer(clone(model))


def listed() -> dict[str, list[str]]:
    """Return the scikit-learn checks that are expected to fail, grouped by reason."""
    found: dict[str, list[str]] = {}
    for case in parametrized(ESTIMATORS).args[1]:
        estimator, check = case.values
        for mark in case.marks:
            name = getattr(check, "func", check).__name__
            found.setdefault(mark.kwargs["reason"], []).append(f"{estimator}: {name}")
    return found


if __name__ == "__main__":
    for why, cases in sorted(listed().items(), key=lambda pair: -len(pair[1])):
        print(f"{len(cases)}  {why}")
        for case in dict.fromkeys(cases):
            print(f"      {' '.join(case.split())}")
    print(sum(map(len, listed().values())), "in all")
