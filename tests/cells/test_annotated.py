"""Functions that take and fill an AnnData."""

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
    with pytest.raises(ValueError, match=r"no graph 'no'; it has near"):
        cells.factorize(adata, 3, graph="no")
    with pytest.raises(ValueError, match=r"no layer 'no'; it has twice"):
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
    # on the cells themselves it is what consensus gave: both solve the same problem, to 1e-4
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
    with pytest.raises(ValueError, match=r"lacks 47 of the 50 genes .*least=0\.5"):
        cells.project(few, old)
    with pytest.raises(ValueError, match="no programmes called 'parts'"):
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
    with pytest.raises(ValueError, match="must be a list"):
        cells.score_markers(adata, {"a": "g1"})


def test_in_how_many_samples_a_programme_comes_back():
    rng = np.random.default_rng(3)
    H = rng.gamma(0.15, size=(4, 60))
    H /= H.sum(axis=1, keepdims=True)
    # the last programme is of donor c alone
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
    with pytest.raises(ValueError, match="two samples or more; only 'x'"):
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
    # a cell has nothing of the part of the other batch
    assert (
        not own[batch == 0, 1].any() and not own[batch == 1, 0].any() and own[batch == 1, 1].any()
    )
    cells.factorize(adata, 3, key_added="plain", random_state=0)

    def apart(name):  # cells of both batches with the same shares of programmes
        Z = adata.obsm[name] / np.linalg.norm(adata.obsm[name], axis=1, keepdims=True)
        main = V.argmax(axis=1)
        means = [[Z[(batch == b) & (main == j)].mean(axis=0) for j in range(3)] for b in (0, 1)]
        return np.linalg.norm(np.subtract(*means), axis=1).mean()

    assert apart("X_parts") < 0.5 * apart("X_plain")
    assert model.components_.shape == (5, 40)
    adata.obs["one"] = "x"
    with pytest.raises(ValueError, match="names one batch, 'x'"):
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
    with pytest.raises(
        ValueError, match=r"1 of 90 samples have no place, the first is 'c7' \(row 7\)"
    ):
        cells.spatial_graph(adata)
    with pytest.raises(ValueError, match=r"no 'umap' \(it holds spatial\)"):
        cells.spatial_graph(adata, basis="umap")


@pytest.mark.parametrize("name", [*ESTIMATORS, "consensus", "choose_k", "select"])
def test_whoever_gets_an_anndata_says_who_takes_it(name):
    adata, _, _ = planted(n=12, p=8)
    thing = getattr(partwise, name)
    with pytest.raises(TypeError, match=r"partwise\.cells\.factorize\(adata, \.\.\.\)"):
        if name in ESTIMATORS:
            thing().fit(adata, [0, 1] * 6) if name == "PartsClassifier" else thing().fit(adata)
        elif name == "select":
            thing(adata, partwise.NMF(2), {"tol": [1e-3, 1e-2]})
        else:
            thing(adata, 2)


def test_what_is_no_counts_is_said():
    adata, _, _ = planted()
    adata.layers["log"] = adata.X.log1p()
    with pytest.raises(ValueError, match=r"layer 'log': .*needs counts.*name the layer"):
        cells.consensus(adata, 3, layer="log")
    adata.var_names = ["g0", "g0", *adata.var_names[2:]]
    with pytest.raises(ValueError, match=r"1 name is of several genes \(g0\)"):
        cells.consensus(adata, 3)
