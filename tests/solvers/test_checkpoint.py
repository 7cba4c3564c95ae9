"""Tests of checkpoints: they continue the fit that wrote them, and are refused by any other."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from partwise import CNMF, GNMF, NMF, ConstrainedNMF
from partwise.backends import as_data
from partwise.knowledge.graph import neighbor_graph
from partwise.solvers.checkpoint import Checkpoint, describe, identify
from partwise.solvers.state import State

X, Y = load_digits(n_class=3, return_X_y=True)
X, Y = X[:120], Y[:120]
GRAPH = neighbor_graph(X, 4)
RNG = np.random.RandomState(0)
START = {"W": RNG.uniform(size=(120, 3)), "H": RNG.uniform(size=(3, 64))}
WEIGHT = RNG.uniform(1, 2, 120)
OTHER_LABELS = np.roll(Y, 5)
OTHER_WEIGHT = np.where(np.arange(120) == 7, 1.5, WEIGHT)
OTHER_GRAPH = neighbor_graph(X, 6)
SWAPPED = X.copy()
SWAPPED[:, [20, 30]] = X[:, [30, 20]]

CHANGES = {
    "columns": (NMF(3), {}, {"X": SWAPPED}, "column sums of X differ"),
    "rows": (NMF(3), {}, {"X": X[::-1]}, "row sums of X differ"),
    "dtype": (NMF(3), {}, {"X": X.astype(np.float32)}, "dtype of X was 'float64' and is 'float32'"),
    "weights": (
        NMF(3),
        {"sample_weight": WEIGHT},
        {"sample_weight": OTHER_WEIGHT},
        "sample_weight was array",
    ),
    "no weights": (NMF(3), {"sample_weight": WEIGHT}, {"sample_weight": None}, "sample_weight was"),
    "start": (NMF(3, init="custom"), START, {"W": START["W"] + 0.1}, "W was array"),
    "graph": (GNMF(3), {"graph": GRAPH}, {"graph": OTHER_GRAPH}, "graph was sparse"),
    "no graph": (GNMF(3), {"graph": GRAPH}, {"graph": None}, "graph was sparse .* and is None"),
    "labels": (CNMF(3), {"y": Y}, {"y": OTHER_LABELS}, "labels was Labels"),
    "class cost": (
        ConstrainedNMF(3, class_reg=1.0),
        {"y": Y},
        {"y": OTHER_LABELS},
        "labels was Labels",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHANGES)
def test_another_problem_is_refused_and_named(name, tmp_path):
    model, given, changed, words = CHANGES[name]
    model.set_params(checkpoint=tmp_path, max_iter=10, tol=0, random_state=0)
    model.fit(**{"X": X, **given})
    with pytest.raises(ValueError, match=f"{words}"):
        model.fit(**{"X": X, **given, **changed})


def test_another_parameter_is_named(tmp_path):
    model = GNMF(3, checkpoint=tmp_path, max_iter=10, tol=0, random_state=0).fit(X)
    model.set_params(graph_reg=7.0)
    with pytest.raises(ValueError, match="graph_reg"):
        model.fit(X)


def test_the_same_problem_in_another_form_goes_on(tmp_path):
    """Check that a checkpoint continues if X and the graph have another sparse format.

    Sums may then be rounded differently.
    """
    fit = {"max_iter": 10, "tol": 0, "random_state": 0}
    whole = GNMF(3, **{**fit, "max_iter": 20}).fit(X, graph=GRAPH)
    GNMF(3, checkpoint=tmp_path, **fit).fit(X, graph=GRAPH)
    rounded = X * (1 + 1e-9 * RNG.normal(size=X.shape))
    model = GNMF(3, checkpoint=tmp_path, **{**fit, "max_iter": 20})
    model.fit(sp.csr_array(rounded), graph=sp.coo_array(GRAPH))
    np.testing.assert_allclose(model.objective_history_, whole.objective_history_, rtol=1e-6)


def test_a_checkpoint_holds_the_fields_of_the_state(tmp_path):
    V, U = RNG.uniform(size=(120, 2)), RNG.uniform(size=(64, 2))
    x = {"V": V, "U": U}
    state = State(x, {"V": V, "U": 2 * U}, dict(x), 3.5, n=7, weight=0.25, history=[5.0, 3.5])
    keeper = Checkpoint(tmp_path, as_data(X), identify(as_data(X), {"k": 2}))
    keeper.save(state)
    got = keeper.load()
    for f in fields(State):
        want = getattr(state, f.name)
        if isinstance(want, dict):
            assert all(np.array_equal(getattr(got, f.name)[s], want[s]) for s in "VU")
        else:
            assert getattr(got, f.name) == want
    assert got.x["V"] is got.y["V"] is got.old["V"]


def test_custom_objects_are_compared_with_a_checkpoint():
    """Check how custom objects are compared with those of a checkpoint.

    They are compared by ``identity()`` if they have it, or else by their attributes.
    """

    class Piece:
        def __init__(self, weight, cache):
            self.weight, self.cache = weight, cache

    class Named(Piece):
        def identity(self):
            return {"weight": self.weight}

    one, two = np.ones(3), np.zeros(3)
    assert describe(Piece(one, 1)) == describe(Piece(one.copy(), 1))
    assert describe(Piece(one, 1)) != describe(Piece(two, 1))
    assert describe(Piece(one, 1)) != describe(Piece(one, 2))
    assert describe(Named(one, 1)) == describe(Named(one, 2)) != describe(Named(two, 1))
    assert describe([Named(one, 1), "a"]) != describe([Named(one, 1), "b"])
    assert describe(np.float64(2)) == describe(2.0)
    assert describe(np.array(["a", None], dtype=object)) != describe(np.array(["b", None]))
