"""
Gene expression programs in an AnnData
======================================

This example analyses counts in an AnnData object: it finds gene expression programs that recur in
many runs, maps them in space, labels all cells from a few labels, and finds the programs in new
cells. The counts are synthetic, so the results can be compared with the truth.
"""

import anndata
import numpy as np
from matplotlib import pyplot as plt

import partwise.cells as cells
from partwise import plot
from partwise.graph import morans_i

rng = np.random.default_rng(0)
side, n_genes, n_types = 24, 300, 4
places = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2).astype(float)
zone = np.where(places[:, 0] < side / 2, 0, 1)  # the left and the right half of the tissue
kind = rng.integers(2, n_types, size=side**2)  # cell types that occur everywhere
programmes = rng.dirichlet(np.full(n_genes, 0.1), n_types)
share = rng.beta(3, 3, side**2)[:, None]
counts = rng.poisson(250 * (share * programmes[zone] + (1 - share) * programmes[kind]))

adata = anndata.AnnData(counts.astype(np.float32))
adata.var_names = [f"gene{j}" for j in range(n_genes)]
adata.obs_names = [f"cell{i}" for i in range(side**2)]
adata.obsm["spatial"] = places
adata.layers["counts"] = adata.X.copy()

# %%
# `cells.consensus` finds programs that recur in many runs, with the steps of cNMF. It writes usages
# to ``obsm``, and programs and scores of genes to ``varm``.

found = cells.consensus(adata, n_types, layer="counts", n_runs=20, n_genes=200)
print(f"stability {found.stability:.2f}")
for number, genes in enumerate(found.top_genes(4), 1):
    print(f"programme {number}: {', '.join(genes)}")

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plot.clustergram(found.found, ax=axes[0])
plot.gene_heatmap(found, ax=axes[1])
plt.show()

# %%
# Compare the programs with sets of known marker genes.

markers = {
    f"type {j}": [f"gene{i}" for i in np.argsort(-programmes[j])[:8]] for j in range(n_types)
}
print(cells.score_markers(adata, markers).round(1))

# %%
# Use the positions of the cells: with a spatial graph, GNMF gives neighbouring cells similar part
# weights. Moran's I measures how similar neighbours are.

cells.spatial_graph(adata)
near = cells.factorize(
    adata, n_types, layer="counts", graph="spatial_connectivities", graph_reg=0.3,
    beta_loss="kullback-leibler", max_iter=100, random_state=0, key_added="places",
)  # fmt: skip
W = adata.obsp["spatial_connectivities"]
for name in ("X_parts", "X_places"):
    print(f"{name}: Moran's I {morans_i(adata.obsm[name], W).round(2).tolist()}")
plot.parts_in_place(adata.obsm["X_places"], places)
plt.show()

# %%
# Predict the zone of all cells from three labelled cells per zone, with the spatial graph.

known = np.full(side**2, None, dtype=object)
for name, number in (("left", 0), ("right", 1)):
    known[rng.choice(np.flatnonzero(zone == number), 3, replace=False)] = name
adata.obs["known"] = known
cells.classify(adata, "known", layer="counts", graph="spatial_connectivities")
right = np.mean(adata.obs["parts_name"] == np.where(zone == 0, "left", "right"))
print(f"{right:.0%} right; expected {adata.uns['parts_name']['expected_accuracy']:.0%}")

# %%
# Apply the programs to new cells, in which some genes were not measured.

more = rng.poisson(250 * programmes[rng.integers(n_types, size=50)]).astype(np.float32)
new = anndata.AnnData(more[:, 30:])
new.var_names = [f"gene{j}" for j in range(30, n_genes)]
new.layers["counts"] = new.X
usages = cells.project(new, adata)  # uses the layer of the fit
print(
    usages.shape,
    f"{new.uns['parts']['share_of_weight']:.0%} of the weight is on genes that are there",
)
