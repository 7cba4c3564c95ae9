"""
Niches on spatial data
======================

A niche is a region of a tissue with a typical mixture of cell types. This page finds niches and
their borders in a synthetic tissue of 2,500 cells, from the types of the neighbours of each cell.
You can pass a SpatialData object with one table instead of the AnnData object.
"""

import anndata
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from partwise import cells, plot
from partwise.metrics import clustering_accuracy

# %%
# The tissue has three niches: a round follicle, a strip below it, and the rest. Most types occur in
# every niche, in different proportions, so the type of one cell does not determine its niche.

rng = np.random.default_rng(0)
side, types = 50, ["B cell", "T cell", "stroma", "tumour", "macrophage"]
places = rng.random((side**2, 2)) * side
niche = np.where(np.hypot(*(places - [25, 32]).T) < 11, 0, np.where(places[:, 1] < 13, 1, 2))
mixture = np.array(
    [[0.6, 0.25, 0.1, 0.0, 0.05], [0.05, 0.1, 0.2, 0.5, 0.15], [0.1, 0.25, 0.5, 0.05, 0.1]]
)
kind = (rng.random((side**2, 1)) > mixture[niche].cumsum(axis=1)).sum(axis=1)

tissue = anndata.AnnData(np.eye(5, dtype=np.float32)[kind])  # one column per type
tissue.var_names = types
tissue.obsm["spatial"] = places

# %%
# Compute the share of each type among the six nearest neighbours of each cell. Types can come from
# a clustering, or from a few labels with :func:`partwise.cells.classify`.

W = cells.spatial_graph(tissue, 6)
tissue.layers["neighbours"] = W @ tissue.X / W.sum(axis=1)[:, None]

# %%
# Niches are parts of these shares. Six neighbours are few, so the shares are noisy. The graph makes
# the part weights of neighbouring cells similar.

model = cells.factorize(
    tissue, 3, layer="neighbours", graph="spatial_connectivities", graph_reg=1.0, random_state=0
)
parts = pd.DataFrame(tissue.varm["parts"].T, columns=types)
print((100 * parts.div(parts.sum(axis=1), axis=0)).round().astype(int).to_string())

plot.parts_in_place(tissue.obsm["X_parts"], places)
plt.show()

# %%
# The niche of a cell is the part with its largest weight.

found = np.argmax(tissue.obsm["X_parts"] / tissue.obsm["X_parts"].max(axis=0), axis=1)
print(f"{clustering_accuracy(niche, found):.0%} of the cells are in the correct niche")
alone = cells.factorize(tissue, 3, layer="neighbours", random_state=0, key_added="alone")
without = np.argmax(alone.embedding_ / alone.embedding_.max(axis=0), axis=1)
print(f"{clustering_accuracy(niche, without):.0%} without the graph")

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for ax, colours, title in zip(axes, (kind, found), ("cell types", "niches"), strict=True):
    ax.scatter(*places.T, c=colours, s=6, cmap="tab10", vmax=9)
    ax.set(title=title, aspect="equal", xticks=[], yticks=[], ylim=(side, 0))
plt.show()
