"""Tests of the functions of `partwise.cells`, which read and fill an AnnData object."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, nnls

import partwise
from partwise import cells
from partwise.estimators.methods import ESTIMATORS
from partwise.graph import spatial_graph

anndata = pytest.importorskip("anndata", reason="needs the extra cells")


def planted(n=90, p=50, k=3, *, seed=0, H=None, depth=1500):
    rng = np.random.default_rng(seed)
    if H is None:
        H = rng.gamma(0.2, size=(k, p))
        H /= H.sum(axis=1, keepdims=True)
    V = rng.dirichlet(np.full(len(H), 0.2), n)
    adata = anndata.AnnData(sp.csr_matrix(rng.poisson(depth * V @ H).astype(np.float32)))
    adata.obs_names = [f"c{i}" for i in range(n)]
    adata.var_names = [f"g{j}" for j in range(H.shape[1])]
    return adata, H, V


def cosines(A, B):
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (A, B))
    C = A @ B.T
    i, j = linear_sum_assignment(-C)
    return C[i, j], j


def test_factorize_is_the_estimator():
    adata, _, _ = planted()
    model = cells.factorize(adata, 3, random_state=0)
    alone = partwise.NMF(3, random_state=0).fit(adata.X)
    np.testing.assert_array_equal(adata.obsm["X_parts"], alone.embedding_)
    np.testing.assert_array_equal(adata.varm["parts"].T, alone.components_)
    assert isinstance(model, partwise.NMF)
    told = adata.uns["parts"]
    assert told["method"] == "NMF" and told["partwise_version"] and told["layer"] == "X"
    assert list(told["markers"]) == ["part 1", "part 2", "part 3"]


def test_factorize_takes_layers_graphs_labels_and_estimators():
    adata, _, V = planted()
    adata.layers["twice"] = adata.X * 2
    adata.obsp["near"] = sp.csr_matrix(spatial_graph(V[:, :2], 4))
    adata.obs["type"] = np.where(np.arange(90) < 10, V.argmax(axis=1).astype(str), None)
    model = cells.factorize(
        adata, 3, layer="twice", graph="near", beta_loss="kullback-leibler", random_state=0,
        key_added="near_parts",
    )  # fmt: skip
    assert isinstance(model, partwise.GNMF) and "X_near_parts" in adata.obsm
    alone = partwise.GNMF(3, beta_loss="kullback-leibler", random_state=0)
    alone.fit(adata.layers["twice"], graph=adata.obsp["near"])
    np.testing.assert_array_equal(adata.obsm["X_near_parts"], alone.embedding_)
    given = cells.factorize(adata, 3, estimator=partwise.CDNMF(random_state=0), label_key="type")
    assert given.classes_.tolist() == ["0", "1", "2"]
    with pytest.raises(ValueError, match=r"'no'.*near"):
        cells.factorize(adata, 3, graph="no")
    with pytest.raises(ValueError, match=r"'no'.*twice"):
        cells.factorize(adata, 3, layer="no")


def test_consensus_fills_what_it_says():
    adata, H, _ = planted()
    adata.X = sp.csr_matrix(np.where(np.arange(90)[:, None] == 4, 0, adata.X.toarray()))
    found = cells.consensus(adata, 3, n_runs=6, n_genes=40)
    assert cosines(found.found.parts, H)[0].min() > 0.95
    assert np.isnan(adata.obsm["X_parts"][4]).all()
    assert np.isfinite(np.delete(adata.obsm["X_parts"], 4, axis=0)).all()
    assert adata.var["parts_used"].sum() == 40
    assert adata.varm["parts"].shape == adata.varm["parts_scores"].shape == (50, 3)
    assert "c4" in adata.uns["parts"]["notes"][0]
    assert adata.uns["parts"]["markers"]["part 1"][0] in adata.var_names


def test_what_is_written_can_be_read_again(tmp_path):
    adata, _, V = planted()
    adata.obs["type"] = np.where(np.arange(90) < 12, V.argmax(axis=1).astype(str), None)
    adata.obs["donor"] = np.array(["a", "b", "c"])[np.arange(90) % 3]
    cells.consensus(adata, 3, n_runs=4, n_genes=40, sample_key="donor")
    cells.factorize(adata, 3, key_added="plain", random_state=0)
    cells.classify(adata, "type")
    cells.score_markers(adata, {"a": ["g1", "g2"]})
    adata.obsm["spatial"] = V[:, :2]
    cells.spatial_graph(adata)
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(again.obsm["X_parts"], adata.obsm["X_parts"])
    assert again.uns["parts_name"]["label_key"] == "type"


def test_classify_names_all_cells():
    adata, _, V = planted(n=150)
    truth = V.argmax(axis=1).astype(str)
    adata.obs["type"] = np.where(np.arange(150) < 15, truth, None)
    model = cells.classify(adata, "type")
    assert (adata.obs["parts_name"].astype(str) == truth).mean() > 0.9
    p = adata.obsm["parts_name_probabilities"]
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    assert adata.uns["parts_name"]["classes"] == [str(c) for c in model.classes_]
    assert 0 <= adata.uns["parts_name"]["expected_interval"][0] <= 1


def test_old_programmes_on_new_cells():
    old, H, _ = planted()
    new, _, V = planted(n=60, seed=5, H=H)
    found = cells.consensus(old, 3, n_runs=6, n_genes=0)
    usages = cells.project(new, old)
    _, order = cosines(found.found.parts, H)
    shares = usages / usages.sum(axis=1, keepdims=True)
    assert np.corrcoef(shares.ravel(), V[:, order].ravel())[0, 1] > 0.97
    # For the cells of the fit, `project` solves the same problem as `consensus`, which stops at a
    # tolerance of 1e-4.
    again = cells.project(old.copy(), old)
    np.testing.assert_allclose(again, old.obsm["X_parts"], atol=1e-2 * again.max())
    np.testing.assert_array_equal(new.obsm["X_parts"], usages)


def test_projection_matches_genes_by_name_and_says_what_is_missing():
    old, H, _ = planted()
    cells.factorize(old, 3, random_state=0)
    new, _, _ = planted(n=40, seed=5, H=H)
    turned = new[:, ::-1].copy()
    a, b = cells.project(new, old), cells.project(turned, old)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * a.max())
    exact = [nnls(old.varm["parts"], row)[0] for row in new.X.toarray()]
    np.testing.assert_allclose(a, exact, atol=1e-3 * np.max(exact))
    part = new[:, :45].copy()
    cells.project(part, old)
    assert part.uns["parts"]["missing_genes"] == [f"g{j}" for j in range(45, 50)]
    few = new[:, :3].copy()
    with pytest.raises(ValueError, match=r"47.*50.*least=0\.5"):
        cells.project(few, old)
    with pytest.raises(ValueError, match="'parts'"):
        cells.project(old, new[:, :2].copy())


def test_markers_lead_where_they_belong():
    adata, H, _ = planted()
    found = cells.consensus(adata, 3, n_runs=6, n_genes=0)
    _, order = cosines(found.found.parts, H)
    sets = {f"set {j}": [f"g{i}" for i in np.argsort(-H[j])[:5]] for j in range(3)}
    table = cells.score_markers(adata, {**sets, "none": ["unknown"]})
    for part, own in enumerate(order):
        assert table.iloc[part][[f"set {j}" for j in range(3)]].argmax() == own
    assert table["none"].isna().all()
    with pytest.raises(ValueError, match="list"):
        cells.score_markers(adata, {"a": "g1"})


def test_in_how_many_samples_a_programme_comes_back():
    rng = np.random.default_rng(3)
    H = rng.gamma(0.15, size=(4, 60))
    H /= H.sum(axis=1, keepdims=True)
    # The last of the four gene programs occurs only in the cells of the third sample.
    parts = [planted(n=80, seed=s, H=H[:3] if s < 2 else H)[0] for s in range(3)]
    adata = anndata.concat(parts, label="donor", keys=["a", "b", "c"], index_unique="-")
    found = cells.consensus(
        adata, 3, n_runs=6, n_genes=0, sample_key="donor", n_programmes=4, density_threshold=2
    )
    value, order = cosines(found.found.parts, H)
    assert value.min() > 0.9
    told = dict(zip(order, found.in_samples, strict=True))
    assert told[3] == 1 and max(told.values()) == 3
    assert found.sample_names == ["a", "b", "c"]
    adata.obs["all"] = "x"
    with pytest.raises(ValueError, match="'x'"):
        cells.consensus(adata, 3, n_runs=4, sample_key="all")


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_batches_have_parts_of_their_own(kind):
    rng = np.random.default_rng(0)
    _, H, V = planted(n=120, p=40)
    batch = np.arange(120) % 2
    X = V @ H * 1000 * np.where(batch[:, None] == 1, rng.lognormal(0, 1, 40), 1.0)
    X[batch == 1] += 300 * rng.gamma(4, 0.25, (60, 1)) * rng.dirichlet(np.full(40, 0.2))
    adata = anndata.AnnData(kind(X))
    adata.obs["batch"] = np.array(["a", "b"])[batch]
    model = cells.integrate(adata, "batch", 3, max_iter=500)
    own = adata.obsm["X_parts_batch"]
    assert own.shape == (120, 2) and adata.obsm["X_parts"].shape == (120, 3)
    # The weight of a cell on the part of the other batch is zero.
    assert (
        not own[batch == 0, 1].any() and not own[batch == 1, 0].any() and own[batch == 1, 1].any()
    )
    cells.factorize(adata, 3, key_added="plain", random_state=0)

    def apart(name):  # mean distance between the batches of cells with the same main part
        Z = adata.obsm[name] / np.linalg.norm(adata.obsm[name], axis=1, keepdims=True)
        main = V.argmax(axis=1)
        means = [[Z[(batch == b) & (main == j)].mean(axis=0) for j in range(3)] for b in (0, 1)]
        return np.linalg.norm(np.subtract(*means), axis=1).mean()

    assert apart("X_parts") < 0.6 * apart("X_plain")
    assert model.components_.shape == (5, 40)
    adata.obs["one"] = "x"
    with pytest.raises(ValueError, match="'x'"):
        cells.integrate(adata, "one", 3)


def test_graph_of_places_comes_from_obsm_or_columns(tmp_path):
    adata, _, V = planted()
    adata.obsm["spatial"] = V[:, :2]
    W = cells.spatial_graph(adata, 5)
    np.testing.assert_array_equal(W.toarray(), spatial_graph(V[:, :2], 5).toarray())
    adata.obs["x"], adata.obs["y"] = V[:, 0], V[:, 1]
    again = cells.spatial_graph(adata, 5, basis="x,y", key_added="other")
    np.testing.assert_array_equal(W.toarray(), again.toarray())
    joined = cells.spatial_graph(adata, 5, join="other", share=0.5)
    np.testing.assert_allclose(joined.toarray(), W.toarray())
    adata.obs["slide"] = np.where(np.arange(90) < 45, "a", "b")
    apart = cells.spatial_graph(adata, 5, sample_key="slide")
    assert apart[:45, 45:].nnz == 0
    adata.obsm["spatial"][7, 1] = np.nan
    with pytest.raises(ValueError, match=r"1 of 90.*'c7'.*7"):
        cells.spatial_graph(adata)
    with pytest.raises(ValueError, match=r"'umap'.*spatial"):
        cells.spatial_graph(adata, basis="umap")


@pytest.mark.parametrize("name", [*ESTIMATORS, "consensus", "choose_k", "select"])
def test_whoever_gets_an_anndata_says_who_takes_it(name):
    adata, _, _ = planted(n=12, p=8)
    thing = getattr(partwise, name)
    with pytest.raises(TypeError, match=r"partwise\.cells\.factorize"):
        if name in ESTIMATORS:
            y = {"PartsClassifier": [0, 1] * 6, "MultilabelClassifier": np.eye(2)[[0, 1] * 6]}
            thing().fit(adata, y.get(name))
        elif name == "select":
            thing(adata, partwise.NMF(2), {"tol": [1e-3, 1e-2]})
        else:
            thing(adata, 2)


def test_what_is_no_counts_is_said():
    adata, _, _ = planted()
    adata.layers["log"] = adata.X.log1p()
    with pytest.raises(ValueError, match=r"layer 'log': .*2\.30259"):
        cells.consensus(adata, 3, layer="log")
    adata.var_names = ["g0", "g0", *adata.var_names[2:]]
    with pytest.raises(ValueError, match=r"\(g0\)"):
        cells.consensus(adata, 3)


def integrated(kind, scale, n=120):
    """Integrate two batches that scale genes differently and have parts of their own.

    Return the AnnData object, its counts, and the batch (0 or 1) of each cell.
    """
    rng = np.random.default_rng(0)
    _, H, V = planted(n=n, p=40)
    batch = np.arange(n) % 2
    X = V @ H * 1000 * np.where(batch[:, None] == 1, rng.lognormal(0, 1, 40), 1.0) + 0.01
    X[batch == 1] += 300 * rng.gamma(4, 0.25, (n // 2, 1)) * rng.dirichlet(np.full(40, 0.2))
    adata = anndata.AnnData(kind(X))
    adata.obs["batch"] = np.array(["a", "b"])[batch]
    cells.integrate(adata, "batch", 3, scale=scale, max_iter=500, own=2)
    return adata, X, batch


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_project_uses_shared_parts_and_those_of_the_batch(kind, scale, tmp_path):
    """Regression test: part weights from `project` were once wrong by up to a factor of 15.

    With `scale=True` the factor was 15; with `scale=False` the error was 71%.
    """
    adata, X, batch = integrated(kind, scale)
    adata.write_h5ad(tmp_path / "a.h5ad")
    for reference in (adata, anndata.read_h5ad(tmp_path / "a.h5ad")):
        again = cells.project(adata.copy(), reference)
        # `integrate` ends by solving the same problem. It does not exclude the parts of other
        # batches but gives them a high cost, so the results differ slightly.
        np.testing.assert_allclose(again, adata.obsm["X_parts"], atol=1e-4 * again.max())
    few = adata[7:40:3].copy()
    # The tolerance is relative to all cells of a call, so results of a subset differ slightly.
    np.testing.assert_allclose(cells.project(few, adata), again[7:40:3], atol=1e-5 * again.max())
    # Independent computation: fit the (scaled) genes of one cell by non-negative least squares to
    # the shared parts and the parts of its batch.
    size = np.array([np.sqrt((X[batch == b] ** 2).mean(axis=0)) for b in (0, 1)])
    i = 9
    own = adata.varm["parts_batch"][:, 2 * batch[i] : 2 * batch[i] + 2]
    A = np.hstack([own, adata.varm["parts"]])
    exact = nnls(A, X[i] / size[batch[i]] if scale else X[i])[0][2:]
    np.testing.assert_allclose(again[i], exact, atol=1e-3 * again.max())
    assert ("parts_scale" in adata.varm) == scale
    # A batch that was not in the fit is scaled by its own genes and has no parts of its own.
    new = adata[batch == 1].copy()
    new.obs["batch"] = "c"
    found = cells.project(new, adata)
    target = X[batch == 1] / (size[1] if scale else 1)
    exact = [nnls(adata.varm["parts"], row)[0] for row in target]
    np.testing.assert_allclose(found, exact, atol=1e-3 * np.max(exact))
    del new.obs["batch"]
    with pytest.raises(ValueError, match="batch"):
        cells.project(new, adata)


@pytest.mark.parametrize("name", ["missing_values", "fixed_components", "class_reg", "beta_loss"])
def test_integrate_refuses_what_it_sets_itself(name):
    adata, _, _ = planted()
    adata.obs["batch"] = np.where(np.arange(90) % 2, "a", "b")
    with pytest.raises(ValueError, match=name):
        cells.integrate(adata, "batch", 2, **{name: 1.0})


def test_project_uses_the_layer_of_the_fit():
    """Check that `project` uses the layer of the fit, whose name is stored in `uns`.

    Regression test: with X instead of this layer, the part weights had errors of 91%.
    """
    adata, H, _ = planted()
    adata.layers["counts"] = adata.X.copy()
    adata.X = adata.X.log1p()
    cells.factorize(adata, 3, layer="counts", random_state=0)
    again = cells.project(adata.copy(), adata)
    np.testing.assert_allclose(again, adata.obsm["X_parts"], atol=1e-3 * again.max())
    other = cells.project(adata.copy(), adata, layer="X")
    exact = [nnls(adata.varm["parts"], row)[0] for row in adata.X.toarray()]
    np.testing.assert_allclose(other, exact, atol=1e-3 * np.max(exact))
    new = planted(n=20, seed=3, H=H)[0]
    with pytest.raises(ValueError, match="'counts'"):
        cells.project(new, adata)
    assert cells.project(new, adata, layer="X").shape == (20, 3)


def ridge(strength):
    return partwise.terms.Ridge(np.full((1, 1), float(strength)))


ESTIMATED = {
    "plain": partwise.NMF(3),
    "kl": partwise.NMF(3, beta_loss="kullback-leibler"),
    "1.5": partwise.NMF(3, beta_loss=1.5),
    "l21": partwise.NMF(3, beta_loss="l21"),
    "alpha": partwise.NMF(3, alpha_W=0.2, alpha_H=0.0, l1_ratio=1.0),
    "fixed": partwise.NMF(3, fixed_components=np.ones((1, 50))),
    "missing": partwise.NMF(3, missing_values=0),
    "smoothing": partwise.NSNMF(3, smoothing=0.4),
    "graph": partwise.GNMF(3, graph_reg=0.0),
    "signed": partwise.SemiNMF(3),
    "labels": partwise.CDNMF(3),
    "checkpoint": partwise.NMF(3, checkpoint="nowhere"),
    "seeded": partwise.NMF(3, random_state=np.random.RandomState(0)),
}


@pytest.mark.parametrize("name", ESTIMATED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_settings_of_the_estimator_are_kept_for_other_cells(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adata, H, _ = planted()
    if name == "signed":
        adata.X = adata.X.toarray() - 1
    adata.obs["type"] = np.where(np.arange(90) < 10, "a", None)
    how = {"label_key": "type"} if name == "labels" else {}
    model = cells.factorize(adata, estimator=ESTIMATED[name], **how)
    assert model.n_components == 3 and adata.obsm["X_parts"].shape == (90, 3)
    adata.write_h5ad(tmp_path / "a.h5ad")
    reference = anndata.read_h5ad(tmp_path / "a.h5ad")
    new, _, _ = planted(n=30, seed=4, H=H)
    if name == "signed":
        new.X = new.X.toarray() - 1
    found = cells.project(new, reference)
    wanted = model.set_params(tol=1e-4, max_iter=200).transform(new.X)
    if name == "l21":  # for one sample, this loss is least where the squared error is least
        wanted = partwise.non_negative_factorization(new.X, H=model.components_, update_H=False)[0]
    np.testing.assert_allclose(found, wanted, atol=1e-3 * np.max(wanted))


def test_what_cannot_be_stored_is_refused_by_name():
    adata, _, _ = planted()
    model = partwise.ConstrainedNMF(3, terms=[ridge(1)])
    cells.factorize(adata, estimator=model)
    with pytest.raises(ValueError, match="terms"):
        cells.project(adata.copy(), adata)
    adata.uns["parts"]["method"] = "Mine"
    with pytest.raises(ValueError, match="Mine"):
        cells.project(adata.copy(), adata)


@pytest.mark.parametrize("name", ["sample_weight", "entry_weight", "must_link", "unknown"])
def test_arguments_of_a_fit_are_refused_by_name(name):
    adata, _, _ = planted()
    adata.obs["batch"] = np.where(np.arange(90) % 2, "a", "b")
    for call in (
        lambda: cells.factorize(adata, 3, **{name: np.ones(90)}),
        lambda: cells.factorize(adata, estimator=partwise.NMF(3), **{name: np.ones(90)}),
        lambda: cells.consensus(adata, 3, **{name: np.ones(90)}),
        lambda: cells.integrate(adata, "batch", 3, **{name: np.ones(90)}),
        lambda: cells.classify(adata, "batch", **{name: np.ones(90)}),
        lambda: cells.project(adata, adata, **{name: np.ones(90)}),
    ):
        with pytest.raises((ValueError, TypeError), match=name):
            call()


def test_project_uses_the_loss_of_the_fit(tmp_path):
    """Check that `project` uses the numeric `beta_loss` that `consensus` stored."""
    old, H, _ = planted()
    new, _, _ = planted(n=20, seed=5, H=H)
    cells.consensus(old, 3, n_runs=4, n_genes=0, beta_loss=1.5, density_threshold=2)
    old.write_h5ad(tmp_path / "a.h5ad")
    found = cells.project(new, anndata.read_h5ad(tmp_path / "a.h5ad"))
    tpm = 1e6 * new.X.toarray() / new.X.toarray().sum(axis=1, keepdims=True)
    used = old.var["parts_deviation"].to_numpy() > 0
    scale = 1 / old.var["parts_deviation"].to_numpy()[used]
    fixed = old.varm["parts"].T[:, used] * scale
    model = partwise.NMF(3, beta_loss=1.5)
    model.components_, model.n_features_in_ = fixed.astype(np.float32), fixed.shape[1]
    wanted = model.transform((tpm[:, used] * scale).astype(np.float32))
    np.testing.assert_allclose(found, wanted, atol=1e-3 * wanted.max())


def test_project_uses_the_genes_that_both_data_sets_have(tmp_path):
    """Compare `project` with non-negative least squares on the genes that both data sets share.

    The expected values fit the transcripts per million, divided by the standard deviations of the
    genes in the first data set.
    """
    old, H, _ = planted()
    new, _, _ = planted(n=20, seed=5, H=H)
    cells.consensus(old, 3, n_runs=4, n_genes=40, density_threshold=2)
    some = new[:, ::-2].copy()  # every second gene, in reverse order
    found = cells.project(some, old)
    X = some.X.toarray()
    tpm = 1e6 * X / X.sum(axis=1, keepdims=True)
    at = {name: j for j, name in enumerate(some.var_names)}
    genes = [j for j, g in enumerate(old.var_names) if old.var["parts_used"].iloc[j] and g in at]
    scale = 1 / old.var["parts_deviation"].to_numpy()[genes]
    A = (old.varm["parts"][genes].T * scale).T
    B = tpm[:, [at[old.var_names[j]] for j in genes]] * scale
    exact = np.array([nnls(A, row)[0] for row in B])
    np.testing.assert_allclose(found, exact, atol=1e-3 * exact.max())
    used = np.flatnonzero(old.var["parts_used"])
    told = some.uns["parts"]
    share = old.varm["parts"][genes].sum() / old.varm["parts"][used].sum()
    assert told["share_of_weight"] == pytest.approx(share)
    assert told["missing_genes"] == [g for g in old.var_names[used] if g not in at]
    assert told["method"] == "project" and told["parameters"] == {"key": "parts", "least": 0.5}
    cells.project(some, old, least=share)  # a limit equal to the share of known genes is accepted
    with pytest.raises(ValueError, match="least"):
        cells.project(some, old, least=share + 1e-6)
    new.var_names = ["g0", "g0", *new.var_names[2:]]
    with pytest.raises(ValueError, match="g0"):
        cells.project(new, old)


def test_marker_scores_are_the_formula():
    adata, _, _ = planted()
    cells.consensus(adata, 3, n_runs=4, n_genes=0, density_threshold=2)
    Z = adata.varm["parts_scores"]
    sets = {"a": ["g1", "g7", "g1", "gone"], "b": ["g2"]}
    table = cells.score_markers(adata, sets)
    for name, own in (("a", [1, 7]), ("b", [2])):
        wanted = (Z[own].mean(axis=0) - Z.mean(axis=0)) / (Z.std(axis=0) / np.sqrt(len(own)))
        # Scores are computed in single precision.
        np.testing.assert_allclose(table[name], wanted, rtol=1e-5)
        np.testing.assert_allclose(adata.uns["parts"]["marker_scores"][name], table[name])
    assert table.index.tolist() == ["part 1", "part 2", "part 3"]
    # `factorize` stores no scores of genes, so `score_markers` scores a gene by how specific it is
    # for a part.
    cells.factorize(adata, 3, random_state=0, key_added="plain")
    H = adata.varm["plain"].T.copy()
    shares = H / H.sum(axis=1, keepdims=True)
    S = shares * np.log(np.where(shares > 0, shares, 1) / np.maximum(shares.mean(axis=0), 1e-300))
    wanted = (S[:, [2]].mean(axis=1) - S.mean(axis=1)) / S.std(axis=1)
    found = cells.score_markers(adata, sets, key="plain")["b"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    adata.varm["flat"] = np.ones((50, 2))
    assert cells.score_markers(adata, sets, key="flat").isna().all(axis=None)
    for wrong, name in (({}, "markers"), (sets, "'none'")):
        with pytest.raises(ValueError, match=name):
            cells.score_markers(adata, wrong, key="none" if wrong else "parts")


def as_dask(adata):
    """Return a copy whose X is a Dask array with chunks of 25 sparse rows."""
    da = pytest.importorskip("dask.array")
    X = da.from_array(adata.X.toarray(), chunks=(25, -1)).map_blocks(sp.csr_matrix)
    return anndata.AnnData(X, obs=adata.obs.copy(), var=adata.var.copy())


def test_dask_arrays_of_sparse_chunks_are_accepted_by_all():
    adata, _, V = planted()
    adata.obs["type"] = np.where(np.arange(90) < 20, V.argmax(axis=1).astype(str), None)
    adata.obs["batch"] = np.where(np.arange(90) % 2, "a", "b")
    adata.X = adata.X.astype(np.float64)
    chunked = as_dask(adata)
    for one in (adata, chunked):
        cells.factorize(one, estimator=partwise.NMF(3, init="random", random_state=0, tol=1e-5,
                                                    max_iter=2000), key_added="nmf")  # fmt: skip
        cells.factorize(one, estimator=partwise.CF(3, random_state=0), key_added="cf")
        cells.consensus(one, 3, n_runs=4, n_genes=0, density_threshold=2, key_added="programs")
        cells.integrate(one, "batch", 2, key_added="shared")
        cells.classify(one, "type", random_state=0)
        for key in ("nmf", "programs", "shared"):
            cells.project(one, one, key=key, key_added=f"{key}_again")
        cells.score_markers(one, {"a": ["g1"]}, key="nmf")
    for name in ("X_cf", "X_programs", "X_shared", "X_programs_again", "X_shared_again"):
        here, there = adata.obsm[name], chunked.obsm[name]
        np.testing.assert_allclose(there, here, atol=1e-4 * np.max(here), err_msg=name)
    # The fit to the Dask array and the fit in memory reach the same minimum up to tol=1e-5.
    there = chunked.obsm["X_nmf"]
    here, chunks = (one.obsm["X_nmf"] @ one.varm["nmf"].T for one in (adata, chunked))
    np.testing.assert_allclose(chunks, here, atol=0.02 * here.max())
    np.testing.assert_allclose(chunked.obsm["X_nmf_again"], there, atol=1e-3 * there.max())
    assert (adata.obs["parts_name"] == chunked.obs["parts_name"]).all()
    assert hasattr(chunked.X, "to_delayed")


def test_missing_values_are_those_of_the_estimator():
    adata, _, _ = planted()
    X = np.where(np.random.default_rng(0).random((90, 50)) < 0.8, adata.X.toarray(), np.nan)
    X[:, 0] = adata.X.toarray()[:, 0]
    gaps = anndata.AnnData(X)
    model = cells.factorize(gaps, estimator=partwise.NMF(3, missing_values=np.nan, random_state=0))
    alone = partwise.NMF(3, missing_values=np.nan, random_state=0).fit(X)
    np.testing.assert_array_equal(gaps.obsm["X_parts"], alone.embedding_)
    again = cells.project(gaps.copy(), gaps)
    np.testing.assert_allclose(again, model.transform(X), atol=1e-3 * again.max())
    with pytest.raises(ValueError, match="NaN"):
        cells.factorize(gaps, 3)
