"""Labels, a graph and weights as the map A and the terms of an objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray
from partwise.fitting.description import Description, Knowledge
from partwise.knowledge.graph import semi_supervised_graph
from partwise.knowledge.labels import Labels
from partwise.model.graph_terms import CannotLink, Graph, GraphDivergence, Neighbors
from partwise.model.maps import MixedRows, SharedRows
from partwise.model.terms import Guest, Linear, Ridge, Term


def shared_rows(what: Description, knowledge: Knowledge, n: int) -> SharedRows | MixedRows | None:
    """The map A of hard labels and hard must-links; None where it is the identity."""
    labels = knowledge.labels if what.hard_labels else None
    links = knowledge.links
    if labels is not None and labels.shares is not None:
        return MixedRows(labels.shares)
    if links is not None and len(links.must) and what.must_link_reg is None:
        labels = links.groups(labels)
    if labels is None:
        return None
    rows = SharedRows(labels.codes, n)
    return None if rows.is_identity else rows


def terms_on_codes(
    what: Description,
    data: DataMatrix,
    k: int,
    knowledge: Knowledge,
    rows: SharedRows | MixedRows | None,
    *,
    new: bool,
) -> list[Term]:
    """What the objective has on V, written for Z; for ``new`` samples what can be."""
    counts = np.ones(1) if rows is None else rows.counts
    labels, frobenius = knowledge.labels, what.beta == 2
    terms = elastic_net(what.alpha_W * data.shape[1], what.l1_ratio, data.dtype, counts[:, None])
    if what.class_weight and labels is not None and labels.n_labelled:
        # cdNMF (10), (23): the printed λ is halved under ½‖·‖² and γ stays whole under KL
        weight = 0.5 * what.class_weight if frobenius else what.class_weight
        D = weight * class_cost(labels, k, what.components_per_class)
        terms.append(Linear((D if rows is None else rows.reduce(D)).astype(data.dtype)))
    graph, links = knowledge.graph if what.graph_reg else None, knowledge.links
    soft = what.must_link_reg if links is not None and len(links.must) else None
    if graph is not None:
        if soft and links is not None:  # one graph: its rows can take turns
            graph = graph + links.must_graph * (soft / what.graph_reg)
        # GNMF (6): λ tr(VᵀLV) beside ‖·‖² is λ/2 tr(VᵀLV) beside ½‖·‖², which Graph has
        parts = graph_operator(graph, labels, what.label_weight, rows, data.dtype)
        terms.append((Graph if frobenius else GraphDivergence)(*parts, what.graph_reg))
    elif soft and links is not None:
        terms.append(Graph(*graph_operator(links.must_graph, None, None, rows, data.dtype), soft))
    if links is not None and len(links.cannot) and what.cannot_link_reg:
        parts = graph_operator(links.cannot_graph, None, None, rows, data.dtype)
        terms.append(CannotLink(*parts, what.cannot_link_reg))
    for i, term in enumerate(what.terms or ()):
        if not (new and term.of_samples):
            term.check((data.shape[0], k), f"terms[{i}]")
            # through V = A Z by the chain rule
            terms.append(term if rows is None else Guest(term, rows))
    return terms


def terms_on_parts(what: Description, data: DataMatrix, k: int) -> list[Term]:
    """What the objective has on U."""
    n, p = data.shape
    terms = elastic_net(what.basis_alpha * n, what.l1_ratio, data.dtype)
    for i, term in enumerate(what.basis_terms or ()):
        term.check((p, k), f"basis_terms[{i}]")
        terms.append(term)
    return terms


def elastic_net(
    alpha: float, l1_ratio: float, dtype: Any, counts: AnyArray | float = 1.0
) -> list[Term]:
    """α ℓ ‖Z‖₁ + ½ α (1 - ℓ) ‖Z‖² as terms, rows counted ``counts`` times; none where α is 0."""
    terms: list[Term] = []
    if alpha * l1_ratio > 0:
        terms.append(Linear((np.ones((1, 1)) * alpha * l1_ratio * counts).astype(dtype)))
    if alpha * (1 - l1_ratio) > 0:
        terms.append(Ridge((np.ones((1, 1)) * alpha * (1 - l1_ratio) * counts).astype(dtype)))
    return terms


def component_owners(n_classes: int, k: int, per_class: int) -> AnyArray:
    """Class of each component, in order, ``per_class`` each; -1 for those beyond all classes."""
    owner = np.arange(k) // per_class
    return np.where(owner < n_classes, owner, -1)


def class_cost(labels: Labels, k: int, per_class: int) -> AnyArray:
    """cdNMF's D (n, k): 1 where a labelled sample would use another class's component.

    Of a label in doubt, the probability that it is another class's. A class that has no component
    of its own (k too small) costs nothing.
    """
    owner = component_owners(labels.n_classes, k, per_class)
    classes = np.arange(labels.n_classes)
    other = (owner[None, :] >= 0) & (owner[None, :] != classes[:, None])
    return labels.probabilities @ (other & np.isin(classes, owner)[:, None])


def graph_operator(
    W: sp.csr_array, labels: Labels | None, label_weight: float | None, rows: Any, dtype: Any
) -> tuple[Neighbors, AnyArray]:
    """Z -> W Z and the degrees, with label cliques implicit and rows shared where they are.

    With ``label_weight``, samples of one label are joined by that weight, samples of different
    labels by none; the clique of a class is its sum minus the sample itself.
    """
    W = sp.csr_array(W).astype(dtype)
    clique = label_weight is not None and labels is not None and labels.n_labelled > 0
    if clique:
        assert labels is not None
        W = semi_supervised_graph(W, labels).astype(dtype)
    degrees = np.asarray(W.sum(axis=1)).ravel().astype(dtype)
    if rows is not None:  # AᵀWA; a clique inside one shared row costs nothing
        coo = W.tocoo()
        r, c = rows.index[coo.coords[0]], rows.index[coo.coords[1]]
        W = sp.csr_array((coo.data, (r, c)), shape=(rows.n_rows, rows.n_rows))
        return Neighbors(W), rows.reduce(degrees).astype(dtype)
    if not clique:
        return Neighbors(W), degrees
    assert labels is not None and label_weight is not None
    mask, codes, weight = labels.mask, labels.codes[labels.mask], dtype.type(label_weight)
    members = sp.csr_array(
        (np.ones(codes.size, dtype=dtype), (codes, np.flatnonzero(mask))),
        shape=(labels.n_classes, mask.size),
    )
    degrees = degrees.copy()
    degrees[mask] += weight * (labels.counts[codes] - 1).astype(dtype)
    return Neighbors(W, members, mask, codes, weight), degrees
