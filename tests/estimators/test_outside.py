"""Tests of estimators that users write outside Partwise, as CONTRIBUTING.md describes."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import partwise
from partwise.estimators import saving
from partwise.estimators._base import ConstrainedFactorizer, GraphFactorizer
from partwise.estimators._parameters import LoopParameters, LossParameters, estimator
from partwise.persistence.model_files import PersistError

rng = np.random.default_rng(0)
X = rng.random((30, 3)) @ rng.random((3, 12)) + 0.05 * rng.random((30, 12))
Y = np.r_[0, 0, 1, 1, 2, 2, np.full(24, -1)]


class FewWords(ConstrainedFactorizer):
    """Estimator with only the methods that CONTRIBUTING.md requires."""

    def __init__(self, n_components=3, *, random_state=None):
        self.n_components = n_components
        self.random_state = random_state

    def _describe(self):
        return replace(super()._describe(), hard_labels=True)


@estimator
class ByFields(LossParameters, LoopParameters, ConstrainedFactorizer):
    """Estimator whose parameters are annotated class attributes.

    `estimator` checks each parameter by the constraint that the library has for its name.

    Parameters
    ----------
    {n_components}
    smoothing : float, default=0.2
    {beta_loss}
    {solver}
    {loop}
    """

    smoothing: float = 0.2
    max_iter: int = 5000


class OnGraph(GraphFactorizer):
    def __init__(self, n_components=3, *, graph_reg=0.1, random_state=None):
        self.n_components = n_components
        self.graph_reg = graph_reg
        self.random_state = random_state


@pytest.mark.parametrize("kind", [FewWords, ByFields, OnGraph], ids=lambda kind: kind.__name__)
def test_an_estimator_of_few_words_fits(kind):
    model = clone(kind(3, random_state=0)).fit(X, Y)
    assert model.status_.startswith("converged")
    assert (np.diff(model.objective_history_) <= 0).all()
    assert model.transform(X[:4]).shape == (4, 3) and len(model.predict(X[:4])) == 4
    assert np.isfinite(model.score(X))


def test_fields_are_parameters_in_the_order_of_the_bases():
    names = list(inspect.signature(ByFields).parameters)
    assert names[:4] == ["n_components", "smoothing", "max_iter", "beta_loss"]
    assert (
        sorted(names) == sorted(ByFields().get_params()) == sorted(ByFields._parameter_constraints)
    )
    assert ByFields(max_iter=7).max_iter == 7 and ByFields().max_iter == 5000
    assert clone(ByFields(2, smoothing=0.5)).get_params()["smoothing"] == 0.5
    with pytest.raises(TypeError, match="strange"):
        ByFields(strange=1)
    with pytest.raises(TypeError, match="positional"):
        ByFields(3, 0.5)
    with pytest.raises(ValueError, match=r"'smoothing'.*ByFields"):
        ByFields(smoothing=2.0).fit(X)
    assert "n_init : int, default=1" in ByFields.__doc__


def test_it_is_cnmf_where_it_says_what_cnmf_says():
    mine, theirs = (kind(3, random_state=0).fit(X, Y) for kind in (FewWords, partwise.CNMF))
    assert np.array_equal(mine.components_, theirs.components_)


def test_a_file_names_a_class_that_is_registered(tmp_path):
    model = FewWords(random_state=0).fit(X, Y)
    path = tmp_path / "mine.partwise"
    with pytest.raises(PersistError, match=r"FewWords.*partwise\.register"):
        model.save(path)
    assert not path.exists()
    # `register` returns the class, so it also works as a decorator.
    assert partwise.register(FewWords) is FewWords
    try:
        again = partwise.load(model.save(path))
        assert type(again) is FewWords
        assert np.array_equal(again.transform(X), model.transform(X))
    finally:
        saving._REGISTERED.clear()
    with pytest.raises(PersistError, match=r"'FewWords'.*register"):
        partwise.load(path)  # a process that has not imported the class cannot load the file


def test_what_is_no_estimator_or_takes_a_name_of_ours_is_not_registered():
    with pytest.raises(TypeError, match="int"):
        partwise.register(int)
    other = type("NMF", (FewWords,), {})
    with pytest.raises(ValueError, match="NMF"):
        partwise.register(other)
