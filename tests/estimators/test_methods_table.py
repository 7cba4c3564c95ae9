"""Tests that the table of methods states the properties that the estimators have."""

import ast
import inspect

import numpy as np
import pytest

import partwise
from partwise.estimators import methods
from partwise.estimators.methods import ESTIMATORS, METHODS

RNG = np.random.default_rng(0)
X = RNG.random((30, 16)) + 3 * np.repeat(np.eye(3), 10, axis=0) @ RNG.random((3, 16))
Y = np.where(np.arange(30) % 2, -1, np.repeat([0, 1, 2], 10))


def fitted(method, X=X, y=None, **given):
    if method.estimator == "NTF":
        pytest.importorskip("tensorly", reason="tensorly is not installed: partwise[tensor]")
    model = method.make(3, n_clusters=3, seed=0, max_iter=3)
    return model.fit(X @ X.T if method.square else X, y, **given)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.filterwarnings("ignore::UserWarning")
class TestRow:
    def test_labels_change_the_codes_where_it_says_so(self, method):
        if method.names:
            with pytest.raises(ValueError, match="label"):
                fitted(method)
            assert method.uses_labels
            return
        alike = np.array_equal(fitted(method).embedding_, fitted(method, y=Y).embedding_)
        assert alike == (not method.uses_labels)

    def test_negative_values_are_taken_or_refused(self, method):
        if method.square:
            return
        if method.signed:
            fitted(method, X - X.mean(), Y)
        else:
            with pytest.raises(ValueError, match="Negative"):
                fitted(method, X - X.mean(), Y)

    def test_links_are_taken_or_refused(self, method):
        if method.links:
            plain, joined = fitted(method, y=Y), fitted(method, y=Y, must_link=[(1, 29)])
            assert not np.array_equal(plain.embedding_, joined.embedding_)
        else:
            with pytest.raises((TypeError, ValueError), match=r"must_link|links"):
                fitted(method, y=Y, must_link=[(1, 29)])

    def test_samples_may_lie_on_disk_where_it_says_so(self, method, tmp_path):
        np.save(tmp_path / "X.npy", X)
        on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
        if not method.in_memory:
            assert fitted(method, on_disk, Y).n_features_in_ == 16
        else:  # other methods need all of X: whole images, products of samples, or signed values
            assert method.images or method.square or method.signed


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_is_public(name):
    assert name in partwise.__all__ and getattr(partwise, name).__name__ == name


def test_editors_know_every_estimator():
    """Check that the imports for type checkers list the same classes and modules as ESTIMATORS."""
    tree = ast.parse(inspect.getsource(methods))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    known = {one.asname: line.module for line in block.body for one in line.names}
    # Classes of a package that may not be imported here.
    above = {"PartsClassifier", "MultilabelClassifier"}
    assert known == {name: where for name, where in ESTIMATORS.items() if name not in above}
