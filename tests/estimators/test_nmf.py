"""Tests of NMF against a naive reference and within scikit-learn's pipelines and searches."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import reference
from partwise import NMF, non_negative_factorization
from partwise.model.losses import beta_of
from plain_fits import (
    FAST,
    KL,
    PENALTIES,
    SPARSE,
    assert_close,
    data_for,
    make,
    make_data,
    make_sparse,
    make_start,
    naive_objective,
    one_blas_thread,  # noqa: F401
    read_only,
    scaled,
)


def run_reference(X, W, H, loss, n_iter=50, **settings):
    beta = beta_of(loss)
    run = {2.0: reference.nmf_frobenius, 1.0: reference.nmf_kl}.get(beta)
    if run is None:
        return reference.nmf_beta(X, W, H.T, n_iter, beta=beta, **settings)
    return run(X, W, H.T, n_iter, **settings)


def check_against_reference(X, dense, loss, penalty, gamma=None, rule=None):
    W, H = make_start(*dense.shape)
    settings = scaled(penalty, *dense.shape) | {"gamma": gamma}
    if rule == "lin":
        expected = reference.lin_modified_mu(dense, W, H.T, 50, **settings)
    else:
        expected = run_reference(dense, W, H, loss, **settings)
    if not penalty:
        expected = (*reference.unit_weights(*expected[:2], gamma), expected[2])
    model = make("mu", rule, loss, init="custom", max_iter=50, **penalty)
    got = model.fit_transform(X, W=W, H=H, sample_weight=gamma)
    # Fifty iterations amplify the rounding of reordered sums (1e-16) to far less than 1e-8.
    assert_close(got, expected[0], 1e-8)
    assert_close(model.components_.T, expected[1], 1e-8)
    np.testing.assert_allclose(model.objective_history_, expected[2], rtol=1e-8)
    assert model.n_iter_ == 50


# For an l2 penalty with β < 2 and β ≠ 1, Partwise minimises a majoriser exactly, which the
# reference cannot do. test_steps.py compares that step with bisection instead.
def comparable(loss, name):
    return name in ("none", "l1") or beta_of(loss) in (1.0, 2.0) or beta_of(loss) > 2


REFERENCE_CASES = [
    pytest.param(loss, name, sparse, id=f"{loss}-{name}-{'sparse' if sparse else 'dense'}")
    for loss in ("frobenius", KL, 0.5, 1.5, 3.0)
    for name in PENALTIES
    for sparse in SPARSE
    if comparable(loss, name)
]


# A penalty on W alone raises this warning.
@pytest.mark.filterwarnings("ignore:The penalty is on the codes")
@pytest.mark.parametrize(("loss", "name", "sparse"), REFERENCE_CASES)
def test_mu_is_the_reference(loss, name, sparse):
    X = make_sparse() if sparse else make_data()
    dense = X.toarray() if sparse else X
    check_against_reference(X, dense, loss, PENALTIES[name])


@pytest.mark.parametrize("name", ["none", "l1"])
@pytest.mark.parametrize("loss", ["itakura-saito", -1.0])
def test_mu_is_the_reference_for_positive_data(loss, name):
    X = make_data(positive=True)
    check_against_reference(X, X, loss, PENALTIES[name])


@pytest.mark.parametrize("sparse", SPARSE)
@pytest.mark.parametrize("name", ["none", "both"])
@pytest.mark.parametrize("loss", ["frobenius", KL])
def test_weighted_mu_is_the_reference(loss, name, sparse):
    X = make_sparse() if sparse else make_data()
    dense = X.toarray() if sparse else X
    gamma = np.random.default_rng(1).uniform(0, 2, X.shape[0])
    gamma[7] = 0
    check_against_reference(X, dense, loss, PENALTIES[name], gamma=gamma)


@pytest.mark.parametrize("loss", ["itakura-saito", 0.5, 1.5, 3.0])
def test_weights_of_other_divergences_are_right_or_refused(loss):
    """Check weighted fits, or their error, for divergences that are not homogeneous of degree 1.

    For these, scaling x by γ does not scale d_β(x, y) by γ, so weights cannot be folded into X.
    """
    X = data_for(loss)
    gamma = np.random.default_rng(1).uniform(0.2, 2, len(X))
    model = make("mu", None, loss)
    try:
        model.fit(X, sample_weight=gamma)
    except ValueError as error:
        assert "sample_weight" in str(error) and "beta_loss" in str(error)
        return
    assert model.objective_ == pytest.approx(naive_objective(X, model, gamma=gamma), rel=1e-9)
    check_against_reference(X, X, loss, {}, gamma=gamma)


# A penalty on W alone raises this warning.
@pytest.mark.filterwarnings("ignore:The penalty is on the codes")
@pytest.mark.parametrize(
    ("name", "sparse"), [*((name, False) for name in PENALTIES), ("none", True), ("both", True)]
)
def test_lin_rule_is_the_reference(name, sparse):
    X = make_sparse() if sparse else make_data()
    dense = X.toarray() if sparse else X
    check_against_reference(X, dense, "frobenius", PENALTIES[name], rule="lin")


def test_lin_rule_leaves_zero_where_lee_and_seung_cannot():
    X = make_data(positive=True)
    W, H = make_start(*X.shape)
    W[:, 0] = 0  # using this part would lower the objective
    lin, plain = (
        make("mu", rule, init="custom", max_iter=300).fit(X, W=W, H=H) for rule in ("lin", None)
    )
    assert not plain.embedding_[:, 0].any() and lin.embedding_[:, 0].any()
    assert lin.objective_ < 0.99 * plain.objective_


STARTS = range(5)


#: Number of iterations of the faster solver. The test is about speed: fits to convergence reach
#: different local minima, which differ by a few per cent in either direction.
ITERATIONS = 30


def end_of(solver, X, k, loss, seed):
    """Return the objective after 30 iterations ("mu": 300) from the random start `seed`."""
    scale = np.sqrt(X.mean() / k) / 0.55  # the random start has mean 0.55
    W, H = make_start(*X.shape, k=k, seed=seed, scale=scale, dtype=X.dtype)
    iterations = 10 * ITERATIONS if solver == "mu" else ITERATIONS
    model = make(solver, None, loss, n_components=k, init="custom", max_iter=iterations)
    return model.fit(X, W=W, H=H).objective_history_[-1]


@pytest.mark.parametrize("seed", STARTS)
def test_hals_and_nesterov_against_mu_on_digits(digits, seed):
    X = np.asarray(digits.X, dtype=np.float64)
    slow = end_of("mu", X, 10, "frobenius", seed)
    for solver in ("hals", "nesterov"):
        assert end_of(solver, X, 10, "frobenius", seed) <= 1.001 * slow, solver  # 0.1% of tolerance


@pytest.mark.parametrize("seed", STARTS)
def test_hals_and_nesterov_against_mu_on_orl(orl, seed):
    X = np.asarray(orl.X, dtype=np.float64) / 255
    slow = end_of("mu", X, 10, "frobenius", seed)
    for solver in ("hals", "nesterov"):
        assert end_of(solver, X, 10, "frobenius", seed) <= 1.001 * slow, solver


def test_newton_against_mu_on_digits(digits):
    """Check that "newton" reaches a lower mean objective than ten times as many "mu" iterations.

    Means of five starts are compared, because local minima differ by more than the solvers.
    """
    X = np.asarray(digits.X, dtype=np.float64)[::3]
    slow, fast = (
        np.mean([end_of(solver, X, 10, KL, seed) for seed in STARTS]) for solver in ("mu", "newton")
    )
    assert fast <= 1.001 * slow


def test_newton_with_a_ridge_from_a_start_that_is_far_too_large():
    """Check "newton" from a start that is a thousand times too large.

    NNDSVDa fills zeros with the mean of X, which is that large here.
    """
    rng = np.random.default_rng(0)
    X = 10.0 ** rng.uniform(-3, 4, (20, 15)) * (rng.uniform(size=(20, 15)) < 0.5)
    common = {"init": "nndsvda", "n_components": 5, "alpha_W": 1e-3}
    slow = make("mu", None, KL, max_iter=100, **common).fit(X)
    fast = make("newton", None, KL, max_iter=100, **common).fit(X)
    assert fast.objective_ <= 1.2 * slow.objective_  # local minima differ by some per cent


def test_exact_recovery_of_separable_parts():
    """Check that parts without a common feature are recovered, as their factorization is unique."""
    rng = np.random.default_rng(0)
    U = np.zeros((30, 3))
    for j in range(3):
        U[10 * j : 10 * j + 10, j] = rng.uniform(0.5, 1.5, 10)
    V = rng.exponential(size=(50, 3)) * (rng.uniform(size=(50, 3)) < 0.7) + 1e-12
    for solver, _, loss in FAST:
        model = make(solver, None, loss, n_components=3, n_init=5, max_iter=500).fit(V @ U.T)
        H = model.components_ / np.linalg.norm(model.components_, axis=1, keepdims=True)
        cosine = H @ (U / np.linalg.norm(U, axis=0))
        np.testing.assert_allclose(np.sort(cosine.max(axis=1)), 1, atol=1e-6)


def test_grid_search_over_the_number_of_parts():
    X = make_data(n=60)
    search = GridSearchCV(make(tol=1e-4, max_iter=2000), {"n_components": [1, 2, 4]}, cv=3).fit(X)
    scores = search.cv_results_["mean_test_score"]
    # Four components generated the data.
    assert np.isfinite(scores).all() and (np.diff(scores) > 0).all()
    assert search.best_params_ == {"n_components": 4}


def test_drop_in_signature():
    """Check that parameters and defaults equal those of scikit-learn's NMF except for `solver`.

    Parameters of Partwise come after those of scikit-learn.
    """
    import inspect

    from sklearn.decomposition import NMF as Theirs
    from sklearn.decomposition import non_negative_factorization as theirs

    for ours, other in ((NMF, Theirs), (non_negative_factorization, theirs)):
        got, expected = (inspect.signature(f).parameters for f in (ours, other))
        for name, parameter in expected.items():
            assert got[name].kind == parameter.kind, name
            if name != "solver":
                assert got[name].default == parameter.default, name
        assert got["solver"].default == "auto"
    got = inspect.signature(NMF.fit_transform).parameters
    assert list(got)[:5] == ["self", "X", "y", "W", "H"]


def test_close_to_scikit_learn_in_its_own_units():
    from sklearn.decomposition import NMF as Theirs

    X = make_data()
    for name, penalty in PENALTIES.items():
        if name == "W only":
            continue  # there is no minimiser: the penalty vanishes as W shrinks and H grows
        for loss, solver in (("frobenius", "cd"), (KL, "mu")):
            common = {"beta_loss": loss, "init": "nndsvda", "max_iter": 1000, **penalty}
            theirs = Theirs(4, solver=solver, tol=1e-6, random_state=0, **common)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                theirs.fit(X)
            ours = NMF(4, tol=1e-6, random_state=0, **common).fit(X)
            settings = scaled(penalty, *X.shape)
            V, U = theirs.transform(X), theirs.components_.T
            value = reference.objective_beta(X, V, U, beta_of(loss), **settings)
            # Local minima differ slightly; a wrongly scaled penalty would give far larger
            # differences.
            assert ours.objective_ <= 1.02 * value
            if not penalty:
                assert ours.reconstruction_err_ == pytest.approx(
                    theirs.reconstruction_err_, rel=0.02
                )


def test_auto_solver_and_cd():
    X = make_data(positive=True)
    for solver, loss, expected in [
        ("auto", "frobenius", "hals"),
        ("cd", "frobenius", "hals"),
        ("auto", KL, "newton"),
        ("auto", "itakura-saito", "mu"),
        ("auto", 1.5, "mu"),
    ]:
        assert make(solver, None, loss, max_iter=3).fit(X).solver_ == expected


@pytest.mark.parametrize("alias", [(2.0, "frobenius"), (1.0, KL), (0.0, "itakura-saito")])
def test_numbers_are_names_of_losses(alias):
    X = make_data(positive=True)
    a, b = (make("auto", None, loss, max_iter=5).fit(X) for loss in alias)
    np.testing.assert_array_equal(a.components_, b.components_)


def test_shuffle_changes_the_way_but_not_the_end():
    X = make_data()
    straight, shuffled, again = (
        make(tol=1e-6, max_iter=5000, init="nndsvda", shuffle=s).fit(X) for s in (False, True, True)
    )
    np.testing.assert_array_equal(shuffled.components_, again.components_)
    assert not np.array_equal(shuffled.components_, straight.components_)
    assert shuffled.objective_ == pytest.approx(straight.objective_, rel=1e-2)


def test_function_form():
    X = make_data()
    W, H, n_iter = non_negative_factorization(X, n_components=3, random_state=0)
    model = NMF(3, random_state=0).fit(X)
    np.testing.assert_array_equal(H, model.components_)
    np.testing.assert_array_equal(W, model.embedding_)
    assert n_iter == model.n_iter_
    fixed, same, _ = non_negative_factorization(X, H=H, n_components=3, update_H=False)
    np.testing.assert_array_equal(same, H)
    np.testing.assert_allclose(fixed, model.transform(X), rtol=1e-10, atol=1e-12)


def test_custom_start_is_not_modified_and_auto_follows_it():
    X = make_data()
    W, H = make_start(*X.shape, k=3)
    W0, H0 = W.copy(), H.copy()
    for start in ((W, H), (read_only(W), read_only(H)), (np.asfortranarray(W), H)):
        model = make(n_components="auto", init="custom").fit(X, W=start[0], H=start[1])
        assert model.n_components_ == 3 and model.components_.shape == (3, 30)
    np.testing.assert_array_equal(W, W0)
    np.testing.assert_array_equal(H, H0)
    assert make(n_components="auto", max_iter=2).fit(X).n_components_ == 30
    assert make(n_components=None, max_iter=2).fit(X).n_components_ == 30


def test_changing_returned_part_weights_does_not_change_the_model():
    """Check that changing the returned part weights does not change the fitted model."""
    model = make()
    W = model.fit_transform(make_data())
    kept = model.embedding_.copy()
    W[:] = -1
    np.testing.assert_array_equal(model.embedding_, kept)


def test_pipeline_clone_pickle():
    X = make_data()
    pipe = make_pipeline(MinMaxScaler(), make())
    W = pipe.fit_transform(X)
    loaded = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(loaded.transform(X), pipe.transform(X))
    np.testing.assert_array_equal(loaded[-1].embedding_, W)
    fresh = clone(pipe[-1])
    assert fresh.get_params() == pipe[-1].get_params()
    with pytest.raises(NotFittedError):
        fresh.transform(X)


def test_pandas_in_and_out():
    X = pd.DataFrame(make_data(), columns=[f"word{i}" for i in range(30)])
    X.index = [f"doc{i}" for i in range(40)]
    model = make().set_output(transform="pandas")
    W = model.fit_transform(X)
    assert isinstance(W, pd.DataFrame)
    assert list(W.columns) == ["nmf0", "nmf1", "nmf2", "nmf3"]
    assert list(W.columns) == list(model.get_feature_names_out())
    assert list(W.index) == list(X.index)
    assert list(model.feature_names_in_) == list(X.columns)
    assert isinstance(model.transform(X), pd.DataFrame)
    assert isinstance(model.embedding_, np.ndarray)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(X.rename(columns={"word0": "other"}))


def test_refit_forgets_the_first_fit():
    model = make().fit(make_data())
    model.fit(make_data(seed=5, n=20, p=11))
    assert model.components_.shape == (4, 11) and model.embedding_.shape == (20, 4)
    expected = make().fit(make_data(seed=5, n=20, p=11))
    np.testing.assert_array_equal(model.components_, expected.components_)


def test_parameters_are_not_changed_by_fit():
    model = make("auto", alpha_W=0.1)
    before = model.get_params()
    assert model.fit(make_data()).get_params() == before


def test_verbose_prints_the_objective(capsys):
    make(max_iter=20, verbose=1).fit(make_data())
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 2 and "objective" in lines[-1] and "20" in lines[-1]
    make(max_iter=20).fit(make_data())
    assert capsys.readouterr().out == ""
