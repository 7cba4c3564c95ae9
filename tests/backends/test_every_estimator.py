"""Tests that every estimator fits every array type, or refuses it and suggests a remedy."""

import re

import numpy as np
import pytest

import partwise
from backends import ELSEWHERE, HERE, KINDS, ON_DASK, Forms, missing, needs, q
from partwise.backends.arrays import to_numpy
from partwise.estimators.methods import ESTIMATORS as TABLE

X = np.ascontiguousarray(q.X[:, :36])  # 36 features, because NTF needs images of 6 x 6 pixels
SETTINGS = {
    "ConstrainedNMF": {"graph_reg": 0.5, "class_reg": 0.5, "hard_labels": True},
    "SparseNMF": {"sparseness_H": 0.6},
}
ESTIMATORS = [name for name in TABLE if not name.endswith("Classifier")]
ALONE = [name for name in ESTIMATORS if getattr(partwise, name)()._describe().local]
LOCAL = "needs X as a numpy array, scipy array or memmap"
REFUSED = {
    **{(name, kind): LOCAL for name in ALONE for kind in ELSEWHERE},
    ("NTF", "csr"): "dense",
    **{("SymNMF", kind): r"\(60, 36\)" for kind in HERE},
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    return Forms(X, tmp_path_factory.mktemp("memmap"))


def make(name):
    if name == "NTF":
        pytest.importorskip("tensorly", reason="tensorly is not installed: partwise[tensor]")
    settings = {"max_iter": 3, "random_state": 0, **SETTINGS.get(name, {})}
    return getattr(partwise, name)(3, **settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_array_type_is_fitted_or_refused(name, kind, forms, tmp_path):
    data, model = forms[kind], make(name)
    if (name, kind) in REFUSED:
        with pytest.raises((ValueError, TypeError), match=REFUSED[name, kind]):
            # MiniBatchNMF can be fitted to Dask arrays, but not score them.
            model.fit(data, q.y).score(data)
        return
    assert model.fit_transform(data, q.y).shape == (60, 3)
    V = model.transform(data)
    assert type(V) is type(model.embedding_) and V.shape == (60, 3)
    assert model.inverse_transform(V).shape == X.shape
    assert np.isfinite(model.score(data))
    if hasattr(model, "predict"):
        assert model.predict(data).shape == model.predict_confidence(data).shape == (60,)
    again = partwise.load(model.save(tmp_path / "model.partwise"))
    assert isinstance(again.embedding_, np.ndarray)
    same = np.asarray(to_numpy(again.transform(data)))
    np.testing.assert_allclose(same, np.asarray(to_numpy(V)), atol=1e-9)


@pytest.mark.parametrize("kind", ("torch", "dask"))
def test_a_refusal_names_all_estimators_that_fit_elsewhere(kind, forms):
    with pytest.raises(ValueError, match=LOCAL) as refused:
        partwise.SemiNMF(3).fit(forms[kind])
    named = set(re.findall(r"\w*NMF\w*", str(refused.value))) - {"SemiNMF"}
    assert named == set(ESTIMATORS) - set(ALONE)


@pytest.mark.parametrize("kind", ("torch", "dask"))
def test_samples_of_another_kind_can_be_coded(kind, forms):
    model = partwise.NMF(3, max_iter=20, tol=0, random_state=0).fit(forms[kind])
    there, here = model.transform(forms[kind]), model.transform(X)
    assert isinstance(here, np.ndarray)
    np.testing.assert_allclose(here, np.asarray(to_numpy(there)), atol=1e-6)


@needs("torch")
def test_device_is_for_arrays_that_lie_here(forms):
    model = partwise.NMF(3, max_iter=3, tol=0, device="cpu")
    assert isinstance(model.fit(forms["memmap"]).components_, np.ndarray)
    for kind in ("torch", "dask"):
        if not missing(kind):
            with pytest.raises(ValueError, match=r"numpy|scipy"):
                model.fit(forms[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", ("kmeans", "nndsvd", "nndsvdar", "random"))
def test_starts_work_or_refuse(init, kind, forms):
    model = partwise.NMF(3, init=init, max_iter=3, tol=0, random_state=0)
    remote = {"kmeans": ON_DASK, "nndsvdar": ELSEWHERE}
    if kind in remote.get(init, ()):
        with pytest.raises(ValueError, match=rf"init='{init}'.*init='nndsvda'"):
            model.fit(forms[kind])
    else:
        assert np.isfinite(model.fit(forms[kind]).objective_)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_labels_may_lie_where_samples_do(kind, forms):
    data, y, weights = forms[kind], q.y, q.gamma
    if kind.startswith("torch"):
        import torch

        y, weights = torch.from_numpy(y), torch.from_numpy(weights)
    elif kind.startswith("dask"):
        import dask.array as da

        y, weights = da.from_array(y, chunks=10), da.from_array(weights, chunks=30)
    settings = {"hard_labels": True, "class_reg": 0.5, "solver": "mu", "init": "random"}
    model = partwise.ConstrainedNMF(3, max_iter=10, tol=0, random_state=0, **settings)
    there = model.fit(data, y, sample_weight=weights).objective_
    assert there == pytest.approx(model.fit(X, q.y, sample_weight=q.gamma).objective_, rel=1e-9)


@pytest.mark.parametrize("kind", ("numpy", *KINDS))
def test_a_sample_of_weight_zero_has_zero_part_weights(kind, forms):
    """Check that a sample of weight zero has zero part weights.

    Regression test: it once kept the part weights of the start.
    """
    weights = np.where(np.arange(60) == 3, 0.0, q.gamma)
    for solver, loss in (("hals", 2), ("nesterov", 2), ("mu", 2), ("auto", 1), ("mu", 1)):
        model = partwise.NMF(3, solver=solver, beta_loss=loss, init="nndsvda", max_iter=5, tol=0)
        V = model.fit_transform(forms[kind], sample_weight=weights)
        V = np.asarray(to_numpy(V))
        assert V[2].any() and not V[3].any(), (solver, loss)
