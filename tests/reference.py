"""Naive float64 reference: the papers' equations with explicit dense matrices, for tests only.

These functions are slow and do not import the library. The orientation and the letters are those of
the library:

    X (n, p) samples by features,   V (n, k) representation,   U (p, k) basis,   X ~ V S Uᵀ,
    A (n, r) hard labels (V = A Z),   W (n, n) neighbour graph,   D (n, k) class cost,
    gamma (n,) sample weights,   C (n, k) concept weights (U = Xᵀ C),   K = X Xᵀ or another kernel.

| paper           | samples are | basis -> U      | representation -> V | hard labels -> A |
|-----------------|-------------|-----------------|---------------------|------------------|
| GNMF, CNMF      | columns     | U               | V (CNMF: V = A Z)   | A                |
| cdNMF           | columns     | W               | S                   |                  |
| NMF-DC          | columns     | W               | (H A)ᵀ, Z = Hᵀ      | Aᵀ               |
| CF, LCF         | columns     | X W, so C = W   | Vᵀ                  |                  |

The functions `objective_*` have the units of the library: ½‖X - V S Uᵀ‖² or the KL divergence, plus
λ/2 tr(VᵀLV) (Frobenius) or half of GNMF's printed symmetric divergence (KL), the class cost
λ/2 ⟨D, V⟩ (Frobenius) or γ ⟨D, V⟩ (KL), locality with λ/2, and l1·ΣZ + l2/2·‖Z‖². `lam` and
`class_reg` are always the parameter of the paper, which the functions halve where the formula does.
The functions `*_as_printed` are the objectives of the papers in the units of the papers. A number
in parentheses after the name of a paper, as in GNMF (14), is that of an equation.

Every method is `name(X, V0, U0, n_iter, *, ...) -> (V, U, history)`. It runs exactly n_iter
iterations without normalisation, and history[t] is the objective after iteration t+1. `order="VU"`
updates V first, and "UV" updates U first. The default is the order in the paper, or in its authors'
code if that is known to differ. Denominators are raised to the smallest normal number, numerators
never.
"""

import numpy as np
from scipy.optimize import linprog, nnls
from scipy.sparse.csgraph import connected_components

TINY = np.finfo(np.float64).tiny


# --------------------------------------------------------------------------------------------
# Shared steps of the methods, gradients, scaling and convergence
# --------------------------------------------------------------------------------------------


def floor(a):
    """Raise the entries of a denominator to at least the smallest normal number."""
    return np.maximum(a, TINY)


def multiplicative(Z, neg, pos, exponent=1.0):
    """Return the update Z (neg / pos)^exponent, which keeps zero entries at zero."""
    if exponent == 1.0:
        return Z * neg / floor(pos)
    return np.where(Z > 0, Z * (neg / floor(pos)) ** exponent, 0.0)


def alternate(V, U, n_iter, order, step_V, step_U, objective):
    """Run n_iter iterations that update V and U in turn, each from the newest other factor."""
    if order not in ("VU", "UV"):
        raise ValueError(f"order must be 'VU' or 'UV', got {order!r}")
    V, U = np.array(V, dtype=np.float64), np.array(U, dtype=np.float64)
    history = []
    for _ in range(n_iter):
        for factor in order:
            if factor == "V":
                V = step_V(V, U)
            else:
                U = step_U(V, U)
        history.append(objective(V, U))
    return V, U, np.array(history)


def numerical_gradient(f, Z, step=1e-6):
    """Return the gradient of the function f at Z by central differences."""
    Z = np.array(Z, dtype=np.float64)
    gradient = np.zeros_like(Z)
    for index in np.ndindex(Z.shape):
        h = step * max(1.0, abs(Z[index]))
        up, down = Z.copy(), Z.copy()
        up[index] += h
        down[index] -= h
        gradient[index] = (f(up) - f(down)) / (up[index] - down[index])
    return gradient


def unit_weights(V, U, gamma=None):
    """Scale each column of V to a root mean square of one, and U by the inverse."""
    gamma = np.ones(len(V)) if gamma is None else gamma
    lengths = np.sqrt((gamma[:, None] * V**2).sum(axis=0) / gamma.sum())
    lengths[lengths == 0] = 1
    return V / lengths, U * lengths


def normalize_columns(V, U, norm=2):
    """Scale columns of U to unit l2 (or l1) norm, and V so that V Uᵀ stays the same (GNMF (16)).

    Zero columns stay as they are. With a smoothing matrix S between the factors, the product does
    change: V Q S Q⁻¹ Uᵀ is not V S Uᵀ unless the diagonal Q commutes with S.
    """
    length = np.linalg.norm(U, ord=norm, axis=0)
    length = np.where(length > 0, length, 1.0)
    return V * length, U / length


def kkt_residual(V, U, split_V, split_U, zero=0.0):
    """Return how far V and U are from a KKT point: max over both of ‖PG‖ / (‖pos‖ + ‖neg‖).

    The gradient is pos - neg, and PG is the projected gradient: the gradient where Z > 0, and
    min(gradient, 0) where Z = 0. split_V and split_U are the pairs (neg, pos) that the functions
    `split_*` return. With hard labels the variable is Z in V = A Z, so pass Z for V.

    Multiplicative updates reduce an entry to 1e-300 but not to 0. Its whole (positive) gradient
    would then count, and the residual would stay at a few per cent. With zero > 0, entries of at
    most zero times the largest entry of their column count as 0.
    """
    residual = 0.0
    for Z, (neg, pos) in ((V, split_V), (U, split_U)):
        gradient = pos - neg
        inside = zero * Z.max(axis=0) < Z
        projected = np.where(inside, gradient, np.minimum(gradient, 0.0))
        size = np.linalg.norm(pos) + np.linalg.norm(neg)
        residual = max(residual, np.linalg.norm(projected) / floor(size))
    return residual


def sample_weights(gamma, n):
    """Return the sample weights as an array, with weights of one for None."""
    return np.ones(n) if gamma is None else np.asarray(gamma, dtype=np.float64)


def ncw_weights(X):
    """Return normalised-cut sample weights γ ∝ 1 / (X Xᵀ 1) (GNMF appendix C; Xu, Liu & Gong 2003).

    The paper has D = diag(XᵀXe) and weighs with D⁻¹. A zero sample has weight 0, not inf. The
    weights are scaled to a mean of one, because 1/(XXᵀ1) shrinks with the number of samples, which
    would change the effect of a penalty.
    """
    degree = X @ X.T @ np.ones(X.shape[0])
    weights = np.where(degree > 0, 1.0 / floor(degree), 0.0)
    return weights / weights.mean()


# --------------------------------------------------------------------------------------------
# Prior knowledge: A, W, D, S as dense matrices. Labels: integers, -1 is unknown.
# --------------------------------------------------------------------------------------------


def label_matrix(y):
    """Return A of CNMF (3) and NMF-DC (3): a column per class, then one per unlabelled sample.

    Misprint in the paper: NMF-DC (3) should have C (c, l) with C_ij = 1 if sample *j* has class i.
    """
    y = np.asarray(y)
    classes = np.unique(y[y >= 0])
    unlabelled = np.flatnonzero(y < 0)
    A = np.zeros((len(y), len(classes) + len(unlabelled)))
    for column, label in enumerate(classes):
        A[y == label, column] = 1.0
    for column, sample in enumerate(unlabelled, start=len(classes)):
        A[sample, column] = 1.0
    return A


def shared_rows(A, V0, weights=None):
    """Return the Z0 for an initial V0: means over samples with the same row, (AᵀΓA)⁻¹ AᵀΓ V0."""
    G = A if weights is None else weights[:, None] * A
    return np.linalg.solve(G.T @ A, G.T @ V0)


def class_cost(y, n_components, components_per_class=1):
    """Return D of cdNMF (5): 1 where a labelled sample uses a component of another class, else 0.

    With r components per class, components r c ... r c + r - 1 are those of class c (of the sorted
    classes). Later components belong to no class and cost nothing. Samples without a label cost
    nothing either.
    """
    y = np.asarray(y)
    owner = np.full(n_components, -1)
    for c, label in enumerate(np.unique(y[y >= 0])):
        owner[c * components_per_class : (c + 1) * components_per_class] = label
    D = np.zeros((len(y), n_components))
    for j, label in enumerate(y):
        if label >= 0:
            D[j] = (owner >= 0) & (owner != label)
    return D


def class_cost_in_doubt(P, n_components, components_per_class=1):
    """Return the expected D of `class_cost` for class probabilities P (n, c).

    A sample whose row is NaN has cost 0, because its class is unknown.
    """
    n, c = P.shape
    D = np.zeros((n, n_components))
    for i in range(n):
        for label in range(c) if not np.isnan(P[i]).any() else ():
            # Classes without a component cost nothing.
            if label * components_per_class < n_components:
                cost = class_cost(
                    np.append(np.arange(c), label), n_components, components_per_class
                )
                D[i] += P[i, label] * cost[-1]
    return D


def mixing_matrix(P):
    """Return A of LpCNMF: a column of probabilities per class, then one per unlabelled sample."""
    unknown = np.flatnonzero(np.isnan(P).any(axis=1))
    A = np.hstack([np.nan_to_num(P), np.zeros((len(P), len(unknown)))])
    for column, sample in enumerate(unknown, start=P.shape[1]):
        A[sample, column] = 1.0
    return A


def spread_labels(W, P, n_iter=3000):
    """Propagate class probabilities over the graph W to the samples whose row of P is NaN.

    Unknown rows repeatedly become the weighted mean of the rows of their neighbours.
    """
    unknown = np.isnan(P).any(axis=1)
    F = np.nan_to_num(P)
    for _ in range(n_iter):
        F[unknown] = (W @ F)[unknown] / floor(W.sum(axis=1))[unknown, None]
    F[F.sum(axis=1) == 0] = np.nan  # samples without a path to a labelled one
    return F


def label_graph(W, y, label_weight=1.0):
    """Return SemiGNMF's graph: label_weight for equal labels, 0 for different ones, else W."""
    W, y = np.array(W, dtype=np.float64), np.asarray(y)
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j and y[i] >= 0 and y[j] >= 0:
                W[i, j] = label_weight if y[i] == y[j] else 0.0
    return W


def laplacian(W):
    """Return the graph Laplacian L = D - W, where D has the degrees on its diagonal (GNMF (5))."""
    return np.diag(W.sum(axis=1)) - W


def smoothing_matrix(n_components, delta):
    """Return S = (1-δ) I + δ/k 1 1ᵀ (NMF-DC (4), from Pascual-Montano 2006)."""
    return (1.0 - delta) * np.eye(n_components) + delta / n_components


# --------------------------------------------------------------------------------------------
# Objectives in the library's units
# --------------------------------------------------------------------------------------------


def kl_entries(X, Y):
    """Return the KL divergence x log(x/y) - x + y of each entry, with 0 log 0 = 0 (GNMF (2))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(X > 0, X * np.log(X / Y), 0.0) - X + Y


def beta_entries(X, Y, beta):
    """Return the β-divergence of each entry.

    β = 2 is ½(x-y)², β = 1 is Kullback-Leibler and β = 0 is Itakura-Saito.
    """
    if beta == 2:
        return 0.5 * (X - Y) ** 2
    if beta == 1:
        return kl_entries(X, Y)
    with np.errstate(divide="ignore", invalid="ignore"):
        if beta == 0:
            return X / Y - np.log(X / Y) - 1.0
        # For β > 1 the cross term at y = 0 is 0, for β < 1 it is inf unless x = 0.
        cross = np.where(X > 0, X * Y ** (beta - 1.0), 0.0)
        power = X**beta + (beta - 1.0) * Y**beta - beta * cross
        return power / (beta * (beta - 1.0))


def weighted_sum(entries, gamma):
    """Return the sum of the entries, with one weight per row; rows of weight 0 are ignored."""
    gamma = sample_weights(gamma, len(entries))
    return float(sum(g * row.sum() for g, row in zip(gamma, entries) if g > 0))


def penalties(V, U, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0):
    """Return the l1 and l2 penalties of both factors: l1 ΣZ + l2/2 ‖Z‖² for Z = V and Z = U."""
    return float(
        l1_V * V.sum() + 0.5 * l2_V * (V**2).sum() + l1_U * U.sum() + 0.5 * l2_U * (U**2).sum()
    )


def symmetric_divergence(V, W):
    """Return R₂ of GNMF (4), the divergence between rows of V that the graph W joins.

    R₂ = ½ Σ_jl Σ_k (v_jk log(v_jk/v_lk) + v_lk log(v_lk/v_jk)) W_jl.
    """
    total = 0.0
    for j, other in zip(*np.nonzero(W)):
        a, b = V[j], V[other]
        with np.errstate(divide="ignore", invalid="ignore"):
            pair = np.where(a == b, 0.0, (a - b) * np.log(a / b))
        total += 0.5 * W[j, other] * pair.sum()
    return float(total)


def objective_frobenius(
    X, V, U, *, S=None, W=None, lam=0.0, D=None, class_reg=0.0, gamma=None, **l1_l2
):
    """Return the Frobenius objective with graph, class cost, smoothing, weights, l1 and l2.

    ½ Σ γ_i ‖x_i - (V S Uᵀ)_i‖² + λ/2 tr(VᵀLV) + class_reg/2 ⟨D, V⟩ + l1 and l2 penalties.
    """
    S = np.eye(V.shape[1]) if S is None else S
    value = weighted_sum(0.5 * (X - V @ S @ U.T) ** 2, gamma) + penalties(V, U, **l1_l2)
    if W is not None:
        value += 0.5 * lam * np.trace(V.T @ laplacian(W) @ V)
    if D is not None:
        value += 0.5 * class_reg * (D * V).sum()
    return float(value)


def objective_kl(X, V, U, *, S=None, W=None, lam=0.0, D=None, class_reg=0.0, gamma=None, **l1_l2):
    """Return the KL objective with graph, class cost, smoothing, weights, l1 and l2.

    Σ γ_i D(x_i ‖ (V S Uᵀ)_i) + λ/2 R₂(V) + class_reg ⟨D, V⟩ + l1 and l2 penalties. The graph term
    is *half* of GNMF (7): see `gnmf_kl`. The class cost is not halved, and is counted once: see
    `cdnmf_kl_as_printed`.
    """
    S = np.eye(V.shape[1]) if S is None else S
    value = weighted_sum(kl_entries(X, V @ S @ U.T), gamma) + penalties(V, U, **l1_l2)
    if W is not None and lam > 0:
        value += 0.5 * lam * symmetric_divergence(V, W)
    if D is not None:
        value += class_reg * (D * V).sum()
    return float(value)


def objective_beta(X, V, U, beta, *, gamma=None, **l1_l2):
    """Return the objective for a β-divergence: Σ γ_i d_β(x_i ‖ (V Uᵀ)_i) + l1 and l2 penalties."""
    return weighted_sum(beta_entries(X, V @ U.T, beta), gamma) + penalties(V, U, **l1_l2)


def objective_concepts(X, V, C, *, K=None, lam=0.0):
    """Return the objective of LCF, ½‖X - V Cᵀ X‖² + λ/2 Σ_ik v_ik ‖u_k - x_i‖² with u_k = Xᵀ c_k.

    Both terms are computed from the kernel K. With λ = 0 this is the objective of CF.
    """
    K = X @ X.T if K is None else K
    M = C.T @ K @ C
    fit = 0.5 * np.trace(K - 2.0 * V @ C.T @ K + V @ M @ V.T)
    distance = np.diag(K)[:, None] - 2.0 * K @ C + np.diag(M)[None, :]
    return float(fit + 0.5 * lam * (V * distance).sum())


# --------------------------------------------------------------------------------------------
# Objectives in the papers' units
# --------------------------------------------------------------------------------------------


def nmf_frobenius_as_printed(X, V, U):
    """Return ‖X - V Uᵀ‖² (GNMF (1), cdNMF (1)): twice the library's objective."""
    return float(((X - V @ U.T) ** 2).sum())


def nmf_kl_as_printed(X, V, U):
    """Return the KL divergence of GNMF (2) and cdNMF (3), which equals the library's objective."""
    return float(kl_entries(X, V @ U.T).sum())


def gnmf_frobenius_as_printed(X, V, U, *, W, lam, gamma=None):
    """Return GNMF (6), Σ γ‖x - Uz‖² + λ tr(VᵀLV): twice our objective.

    The weights γ are those of appendix C.
    """
    gamma = sample_weights(gamma, len(X))
    loss = ((X - V @ U.T) ** 2).sum(axis=1) @ gamma
    return float(loss + lam * np.trace(V.T @ laplacian(W) @ V))


def gnmf_kl_as_printed(X, V, U, *, W, lam):
    """Return GNMF (7), D(X ‖ V Uᵀ) + λ R₂; our objective has λ/2 R₂ (see `gnmf_kl`)."""
    return float(kl_entries(X, V @ U.T).sum() + lam * symmetric_divergence(V, W))


def cnmf_frobenius_as_printed(X, V, U):
    """Return the objective of CNMF (4) at V = A Z: twice our objective.

    Misprint in the paper: the norm lacks its square, which the form with a trace has.
    """
    return nmf_frobenius_as_printed(X, V, U)


def cdnmf_frobenius_as_printed(X, V, U, *, D, class_reg):
    """Return the objective of cdNMF (14), ‖X - W Sᵀ‖² + λ Σ d_jk s_jk: twice our objective."""
    return float(((X - V @ U.T) ** 2).sum() + class_reg * (D * V).sum())


def cdnmf_kl_as_printed(X, V, U, *, D, class_reg, cost_once=False):
    """Return the objective of cdNMF (21); as printed, the class cost counts once per feature.

    With cost_once=True it counts once, as in the paper's update (23) and in our objective.
    """
    times = 1 if cost_once else X.shape[1]
    return float(kl_entries(X, V @ U.T).sum() + times * class_reg * (D * V).sum())


def nmfdc_as_printed(X, V, U, *, delta):
    """Return the objective of NMF-DC (5) at V = A Z, which has the factor ½ and so equals ours."""
    return float(0.5 * ((X - V @ smoothing_matrix(V.shape[1], delta) @ U.T) ** 2).sum())


def lcf_as_printed(X, V, C, *, lam=0.0):
    """Return the objective of LCF (2), or of CF (1) for λ = 0: twice our objective.

    Distances are computed literally, without a kernel.
    """
    U = X.T @ C
    value = ((X - V @ U.T) ** 2).sum()
    for i in range(len(X)):
        for k in range(C.shape[1]):
            value += lam * abs(V[i, k]) * ((U[:, k] - X[i]) ** 2).sum()
    return float(value)


# --------------------------------------------------------------------------------------------
# Gradients as differences, pos - neg, in the library's units, for Z (V = A Z) and for U
# --------------------------------------------------------------------------------------------


def split_frobenius(
    X, Z, U, *, A=None, S=None, W=None, lam=0.0, D=None, class_reg=0.0, gamma=None,
    l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0,
):  # fmt: skip
    """Return (neg, pos) of `objective_frobenius` for Z and for U; the gradient is pos - neg.

    At V = A Z, Aᵀ maps the gradient for V to that for Z.
    """
    n, k = len(X), U.shape[1]
    A = np.eye(n) if A is None else A
    S = np.eye(k) if S is None else S
    G = np.diag(sample_weights(gamma, n))
    V = A @ Z
    B, T = U @ S.T, V @ S  # X ~ V Bᵀ = T Uᵀ
    neg_V = G @ X @ B
    pos_V = G @ V @ B.T @ B + l1_V + l2_V * V
    if W is not None:
        neg_V = neg_V + lam * W @ V
        pos_V = pos_V + lam * np.diag(W.sum(axis=1)) @ V
    if D is not None:
        pos_V = pos_V + 0.5 * class_reg * D
    neg_U = X.T @ G @ T
    pos_U = U @ T.T @ G @ T + l1_U + l2_U * U
    return (A.T @ neg_V, A.T @ pos_V), (neg_U, pos_U)


def split_kl(
    X, Z, U, *, A=None, S=None, W=None, lam=0.0, D=None, class_reg=0.0, gamma=None,
    l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0,
):  # fmt: skip
    """Return (neg, pos) of `objective_kl` for Z and for U, at V = A Z; the gradient is pos - neg.

    The graph term is half the symmetric divergence.
    """
    n, k = len(X), U.shape[1]
    A = np.eye(n) if A is None else A
    S = np.eye(k) if S is None else S
    gamma = sample_weights(gamma, n)
    V = A @ Z
    B, T = U @ S.T, V @ S
    R = gamma[:, None] * X / floor(V @ B.T)
    neg_V = R @ B
    pos_V = np.outer(gamma, B.sum(axis=0)) + l1_V + l2_V * V
    if D is not None:
        pos_V = pos_V + class_reg * D
    if W is not None and lam > 0:
        # d/dv_j of λ/4 Σ_jl W_jl (v_j - v_l) log(v_j/v_l)
        #   = λ/2 Σ_l W_jl (log(v_j/v_l) + 1 - v_l/v_j)
        slope = np.zeros_like(V)
        for j, other in zip(*np.nonzero(W)):
            a, b = floor(V[j]), floor(V[other])
            slope[j] += 0.5 * lam * W[j, other] * (np.log(a / b) + 1.0 - b / a)
        pos_V = pos_V + np.maximum(slope, 0.0)
        neg_V = neg_V + np.maximum(-slope, 0.0)
    neg_U = R.T @ T
    pos_U = np.tile(gamma @ T, (X.shape[1], 1)) + l1_U + l2_U * U
    return (A.T @ neg_V, A.T @ pos_V), (neg_U, pos_U)


def split_beta(X, V, U, beta, *, gamma=None, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0):
    """Return (neg, pos) of `objective_beta` for V and for U; the gradient is pos - neg.

    If β < 1, pos is infinite where V Uᵀ is zero.
    """
    gamma = sample_weights(gamma, len(X))[:, None]
    Y = floor(V @ U.T)
    with np.errstate(over="ignore", invalid="ignore"):
        P, Q = gamma * np.where(X > 0, X * Y ** (beta - 2.0), 0.0), gamma * Y ** (beta - 1.0)
    return (P @ U, Q @ U + l1_V + l2_V * V), (P.T @ V, Q.T @ V + l1_U + l2_U * U)


def split_concepts(X, V, C, *, K=None, lam=0.0, K_parts=None):
    """Return (neg, pos) of `objective_concepts` for V and for C; the gradient is pos - neg.

    K_parts are K⁺ and K⁻ of K = K⁺ - K⁻; by default K⁺ = K and K⁻ = 0.

    ∂C = K C (VᵀV + λ diag(Vᵀ1)) - (1+λ) K V,   ∂V = V CᵀKC + λ/2 (a 1ᵀ + 1 bᵀ) - (1+λ) K C,
    a = diag K, b = diag CᵀKC. As a and b are never negative for a kernel, they belong to pos.
    """
    K = X @ X.T if K is None else K
    plus, minus = (K, np.zeros_like(K)) if K_parts is None else K_parts
    a, b = np.diag(K)[:, None], np.diag(C.T @ K @ C)[None, :]
    G = V.T @ V + lam * np.diag(V.sum(axis=0))
    neg_V = (1.0 + lam) * plus @ C + V @ C.T @ minus @ C
    pos_V = (1.0 + lam) * minus @ C + V @ C.T @ plus @ C + 0.5 * lam * (a + b)
    neg_C = (1.0 + lam) * plus @ V + minus @ C @ G
    pos_C = (1.0 + lam) * minus @ V + plus @ C @ G
    return (neg_V, pos_V), (neg_C, pos_C)


# --------------------------------------------------------------------------------------------
# NMF
# --------------------------------------------------------------------------------------------


def nmf_frobenius(
    X, V0, U0, n_iter, *, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0, gamma=None, order="VU"
):
    """Run the multiplicative updates of Lee & Seung 2001 (4); penalties join the denominators.

    Lee & Seung update the encodings first (order "VU"); GNMF, which has these updates in section 2,
    and cdNMF print the basis first. The objective never rises. With positive factors, a fixed point
    is a KKT point.
    """
    G = np.diag(sample_weights(gamma, len(X)))

    def step_V(V, U):
        return multiplicative(V, G @ X @ U, G @ V @ U.T @ U + l1_V + l2_V * V)

    def step_U(V, U):
        return multiplicative(U, X.T @ G @ V, U @ V.T @ G @ V + l1_U + l2_U * U)

    def objective(V, U):
        return objective_frobenius(X, V, U, gamma=gamma, l1_V=l1_V, l2_V=l2_V, l1_U=l1_U, l2_U=l2_U)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def em_minimiser(c, b, l2=0.0):
    """Return argmin over z >= 0 of -c log z + b z + l2/2 z²: z = 2c / (b + sqrt(b² + 4 l2 c))."""
    return 2.0 * c / floor(b + np.sqrt(b**2 + 4.0 * l2 * c))


def nmf_kl(X, V0, U0, n_iter, *, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0, gamma=None, order="VU"):
    """Run the multiplicative updates of Lee & Seung 2001 (5) for the KL loss.

    GNMF repeats them in section 2. With an l2 penalty, each entry becomes the exact minimiser of
    the EM majoriser. Without l2 this is v Σ(x u / y) / (Σ u + l1). The order is that of
    `nmf_frobenius`. The objective never rises.
    """
    w = sample_weights(gamma, len(X))[:, None]

    def step_V(V, U):
        c = V * ((w * X / floor(V @ U.T)) @ U)
        return em_minimiser(c, w * U.sum(axis=0) + l1_V, l2_V)

    def step_U(V, U):
        c = U * ((w * X / floor(V @ U.T)).T @ V)
        return em_minimiser(c, (w * V).sum(axis=0) + l1_U, l2_U)

    def objective(V, U):
        return objective_kl(X, V, U, gamma=gamma, l1_V=l1_V, l2_V=l2_V, l1_U=l1_U, l2_U=l2_U)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def mm_exponent(beta, l2=0.0, l2_rule="ratio"):
    """Return the exponent of the updates of Févotte & Idier 2011 for a β-divergence.

    It is 1/(2-β) for β < 1, 1 for 1 <= β <= 2, and 1/(β-1) for β > 2. With an l2 penalty and
    0 < β < 2, scikit-learn's exponent 1 (l2_rule="ratio") may increase the objective, because z²
    grows fastest. Every other part of the majoriser must then be bounded by a parabola, and the
    minimiser has exponent 1/(3-β) (l2_rule="mm", for every β < 2).
    """
    if l2 > 0 and beta < 2 and l2_rule == "mm":
        return 1.0 / (3.0 - beta)
    if beta < 1:
        return 1.0 / (2.0 - beta)
    if beta > 2:
        return 1.0 / (beta - 1.0)
    return 1.0


def nmf_beta(
    X, V0, U0, n_iter, *, beta, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0, gamma=None,
    l2_rule="ratio", order="VU",
):  # fmt: skip
    """Run the MM updates of Févotte & Idier 2011 for a β-divergence.

    Penalties join the denominators, as in scikit-learn. For β = 1, the l2 step is the exact one of
    `nmf_kl`. Without l2 the objective never rises. With l2 it never rises for β >= 2 and β = 1, and
    for other β with l2_rule="mm" (see `mm_exponent`).
    """
    if beta == 1:
        return nmf_kl(
            X, V0, U0, n_iter, l1_V=l1_V, l2_V=l2_V, l1_U=l1_U, l2_U=l2_U, gamma=gamma, order=order
        )
    settings = {"gamma": gamma, "l1_V": l1_V, "l2_V": l2_V, "l1_U": l1_U, "l2_U": l2_U}

    def step_V(V, U):
        (neg, pos), _ = split_beta(X, V, U, beta, **settings)
        return multiplicative(V, neg, pos, mm_exponent(beta, l2_V, l2_rule))

    def step_U(V, U):
        _, (neg, pos) = split_beta(X, V, U, beta, **settings)
        return multiplicative(U, neg, pos, mm_exponent(beta, l2_U, l2_rule))

    def objective(V, U):
        return objective_beta(X, V, U, beta, **settings)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def lin_modified_mu(
    X, V0, U0, n_iter, *, W=None, lam=0.0, l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0, gamma=None,
    sigma=1e-8, delta=1e-8, order="VU",
):  # fmt: skip
    """Run C.-J. Lin's modified multiplicative updates (2007), whose limit points are stationary.

    Z <- Z - Z̄ / (pos(Z̄) + δ) grad, with Z̄ = max(Z, σ) where grad < 0, else Z. Plain NMF has
    pos(Z̄) = Z̄ G. Weights, l1, l2 and GNMF's graph enter as in GNMF (14) and (15). Lin updates the
    encodings first, and scales the basis to unit column sums in every iteration, which keeps the
    iterates bounded; this scaling is left out here. The objective never rises, and entries can
    leave zero.
    """
    settings = {"W": W, "lam": lam, "gamma": gamma}
    settings |= {"l1_V": l1_V, "l2_V": l2_V, "l1_U": l1_U, "l2_U": l2_U}

    def step_V(V, U):
        (neg, pos), _ = split_frobenius(X, V, U, **settings)
        gradient = pos - neg
        lifted = np.where(gradient < 0, np.maximum(V, sigma), V)
        (_, pos), _ = split_frobenius(X, lifted, U, **settings)
        return V - lifted / (pos + delta) * gradient

    def step_U(V, U):
        _, (neg, pos) = split_frobenius(X, V, U, **settings)
        gradient = pos - neg
        lifted = np.where(gradient < 0, np.maximum(U, sigma), U)
        _, (_, pos) = split_frobenius(X, V, lifted, **settings)
        return U - lifted / (pos + delta) * gradient

    def objective(V, U):
        return objective_frobenius(X, V, U, **settings)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


# --------------------------------------------------------------------------------------------
# GNMF, SemiGNMF
# --------------------------------------------------------------------------------------------


def gnmf_frobenius(X, V0, U0, n_iter, *, W, lam, gamma=None, order="VU"):
    """Run the updates of GNMF (14) and (15) for the Frobenius loss, with optional sample weights.

    The paper prints U (14) before V (15), but the authors' code updates V first. Both terms of the
    objective (6) are halved here, so λ enters the update without a factor. Appendix C defines
    weights by V' = Γ^½ V, X' = Γ^½ X and L' = Γ^-½ L Γ^-½. Multiplied out, Γ is a factor of the two
    products with data, so zero weights are allowed.

    The objective never rises, although Theorem 1 argues entry by entry for a simultaneous update:
    the step is -K⁻¹ grad with K = diag((V UᵀU + λ Deg V) / V), and Hessian ≼ 2K suffices, which
    holds since L ≼ 2 Deg. Misprints in the paper: (17) describes descent as a gradient step of
    negative size, and (30) lacks a factor 2.
    """
    G = np.diag(sample_weights(gamma, len(X)))
    Deg = np.diag(W.sum(axis=1))

    def step_V(V, U):  # GNMF (15)
        return multiplicative(V, G @ X @ U + lam * W @ V, G @ V @ U.T @ U + lam * Deg @ V)

    def step_U(V, U):  # GNMF (14)
        return multiplicative(U, X.T @ G @ V, U @ V.T @ G @ V)

    def objective(V, U):
        return objective_frobenius(X, V, U, W=W, lam=lam, gamma=gamma)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def gnmf_gradient_descent(X, V0, U0, n_iter, *, W, lam, order="VU"):
    """Run GNMF (17)-(19), gradient descent with the steps that make it equal to `gnmf_frobenius`.

    The steps for the printed objective (6) are u / 2(UVᵀV) and v / 2(VUᵀU + λDV). Misprint in the
    paper: (17) adds the gradient, and takes the step sizes η and δ negative.
    """
    L, Deg = laplacian(W), np.diag(W.sum(axis=1))

    def step_V(V, U):  # GNMF (19)
        step = V / (2.0 * floor(V @ U.T @ U + lam * Deg @ V))
        return V - step * (-2.0 * X @ U + 2.0 * V @ U.T @ U + 2.0 * lam * L @ V)

    def step_U(V, U):  # GNMF (18)
        step = U / (2.0 * floor(U @ V.T @ V))
        return U - step * (-2.0 * X.T @ V + 2.0 * U @ V.T @ V)

    def objective(V, U):
        return objective_frobenius(X, V, U, W=W, lam=lam)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def solve_graph_system(b, c, M, l2=None):
    """Solve diag(b) v + l2 v² + M v = c for v >= 0, with M = λL: GNMF (21) with an l2 penalty.

    Without l2 the system is linear. With l2, Newton's method solves it: the Jacobian is an M-matrix
    and the map is convex, so the iterates fall monotonically from the second on. A connected part
    of the graph in which b and c are 0 gets v = 0, for example samples of weight 0, or a component
    with u = 0.
    """
    count, part = connected_components(M != 0, directed=False)
    keep = np.zeros(len(c), dtype=bool)
    for index in range(count):
        keep |= (part == index) & c[part == index].any()
    if not keep.all():
        v = np.zeros_like(c)
        if keep.any():
            own = None if l2 is None else l2[keep]
            v[keep] = solve_graph_system(b[keep], c[keep], M[np.ix_(keep, keep)], own)
        return v
    if l2 is None:
        return np.linalg.solve(np.diag(floor(b)) + M, c)
    v = em_minimiser(c, b, l2)
    for _ in range(50):
        residual = b * v + l2 * v**2 + M @ v - c
        change = np.linalg.solve(np.diag(floor(b + 2.0 * l2 * v)) + M, residual)
        v = v - change
        if np.abs(change).max() <= 1e-15 * np.abs(v).max():
            break
    return np.maximum(v, 0.0)


def gnmf_kl(X, V0, U0, n_iter, *, W, lam, gamma=None, order="VU"):
    """Run the updates of GNMF (20) and (21), v_k <- (Σu_k I + λL)⁻¹ [v_k ∘ (X / VUᵀ) u_k], for KL.

    A dense solver is used. The order is that of `gnmf_frobenius`. Mistake in the paper: (35) loses
    a factor 2 (each pair occurs twice in the sum), so (21) is the step for *half* of the graph term
    of (7), after log x ≈ 1 - 1/x. The history is that of the halved term.

    No theory says that the objective never rises: because of the approximation, a fixed point of
    (21) is not stationary, neither for (7) nor for its half. The update does not even follow a
    gradient, since the field (Lv)_j / v_j has the unsymmetric Jacobian -W_jl / v_j.
    """
    w = sample_weights(gamma, len(X))[:, None]
    L = laplacian(W)

    def step_V(V, U):  # GNMF (21)
        c = V * ((w * X / floor(V @ U.T)) @ U)
        b = w * U.sum(axis=0)
        columns = [solve_graph_system(b[:, k], c[:, k], lam * L) for k in range(V.shape[1])]
        return np.column_stack(columns)

    def step_U(V, U):  # GNMF (20)
        return multiplicative(U, (w * X / floor(V @ U.T)).T @ V, (w * V).sum(axis=0))

    def objective(V, U):
        return objective_kl(X, V, U, W=W, lam=lam, gamma=gamma)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def semi_gnmf_frobenius(X, V0, U0, n_iter, *, W, y, lam, label_weight=1.0, gamma=None, order="VU"):
    """Run `gnmf_frobenius` on `label_graph(W, y, label_weight)`: SemiGNMF of the CNMF paper."""
    return gnmf_frobenius(
        X, V0, U0, n_iter, W=label_graph(W, y, label_weight), lam=lam, gamma=gamma, order=order
    )


def semi_gnmf_kl(X, V0, U0, n_iter, *, W, y, lam, label_weight=1.0, gamma=None, order="VU"):
    """Run `gnmf_kl` on `label_graph(W, y, label_weight)`: SemiGNMF for the KL loss."""
    return gnmf_kl(
        X, V0, U0, n_iter, W=label_graph(W, y, label_weight), lam=lam, gamma=gamma, order=order
    )


# --------------------------------------------------------------------------------------------
# CNMF, cdNMF, nsNMF, NMF-DC
# --------------------------------------------------------------------------------------------


def on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective, weights=None):
    """Run `alternate` over Z with V = A Z, and return V; steps and objective receive V."""
    Z, U, history = alternate(
        shared_rows(A, V0, weights), U0, n_iter, order,
        step_Z, lambda Z, U: step_U(A @ Z, U), lambda Z, U: objective(A @ Z, U),
    )  # fmt: skip
    return A @ Z, U, history


def cnmf_frobenius(X, V0, U0, n_iter, *, A, order="UV"):
    """Run the updates of CNMF (10) and (11), in the paper's order: U (10), then Z (11).

    V0 is averaged within each class. The objective never rises. Misprints in the paper: the first
    line of (20) has the denominator of the other factor, (19) and (20) lack a factor 2, and (2) and
    (4) lack the square.
    """

    def step_Z(Z, U):  # CNMF (11)
        return multiplicative(Z, A.T @ X @ U, A.T @ A @ Z @ U.T @ U)

    def step_U(V, U):  # CNMF (10)
        return multiplicative(U, X.T @ V, U @ V.T @ V)

    def objective(V, U):
        return objective_frobenius(X, V, U)

    return on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective)


def cnmf_kl(X, V0, U0, n_iter, *, A, order="UV"):
    """Run EM updates for the KL divergence with V = A Z, which none of the five papers prints.

    Z <- Z ∘ Aᵀ(X / AZUᵀ)U / (Aᵀ1 ⊗ Σu) is the EM step for Z. The order is that of `cnmf_frobenius`.
    The objective never rises.
    """
    members = A.sum(axis=0)[:, None]

    def step_Z(Z, U):
        return multiplicative(Z, A.T @ (X / floor(A @ Z @ U.T)) @ U, members * U.sum(axis=0))

    def step_U(V, U):
        return multiplicative(U, (X / floor(V @ U.T)).T @ V, V.sum(axis=0))

    def objective(V, U):
        return objective_kl(X, V, U)

    return on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective)


def cdnmf_frobenius(X, V0, U0, n_iter, *, D, class_reg=1.0, order="UV"):
    """Run the updates of cdNMF in the paper's order: the basis (11), then the coefficients (12).

    (12) has λD/2: the gradient λD of (14) over the 2 of the squared norm, so it is the update of
    ½‖·‖² + λ/2 ⟨D, V⟩. The objective never rises.
    """

    def step_V(V, U):  # cdNMF (12)
        return multiplicative(V, X @ U, V @ U.T @ U + 0.5 * class_reg * D)

    def step_U(V, U):  # cdNMF (11)
        return multiplicative(U, X.T @ V, U @ V.T @ V)

    def objective(V, U):
        return objective_frobenius(X, V, U, D=D, class_reg=class_reg)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def cdnmf_kl(X, V0, U0, n_iter, *, D, class_reg=10.0, order="UV"):
    """Run the KL updates of cdNMF in the paper's order: the basis (22), then the coefficients (23).

    γ enters (23) without a factor. The objective never rises. Misprint in the paper: (21) sums the
    class cost over features as well, but (23) has it once.
    """

    def step_V(V, U):  # cdNMF (23)
        return multiplicative(V, (X / floor(V @ U.T)) @ U, U.sum(axis=0) + class_reg * D)

    def step_U(V, U):  # cdNMF (22)
        return multiplicative(U, (X / floor(V @ U.T)).T @ V, V.sum(axis=0))

    def objective(V, U):
        return objective_kl(X, V, U, D=D, class_reg=class_reg)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def nsnmf_frobenius(X, V0, U0, n_iter, *, delta=0.5, order="VU"):
    """Run nsNMF (Pascual-Montano et al. 2006) with the Frobenius loss, X ≈ V S Uᵀ.

    The updates are those of NMF with U S for U in the step of V, and V S for V in the step of U.
    The encodings are updated first, as by Lee & Seung. The paper also scales the basis to unit
    column sums in every iteration; this is left out here, as with S it changes the product. The
    objective never rises.
    """
    S = smoothing_matrix(V0.shape[1], delta)

    def step_V(V, U):
        B = U @ S
        return multiplicative(V, X @ B, V @ B.T @ B)

    def step_U(V, U):
        T = V @ S
        return multiplicative(U, X.T @ T, U @ T.T @ T)

    def objective(V, U):
        return objective_frobenius(X, V, U, S=S)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def cofactor(B, i, j):
    """Return (-1)^(i+j) times the determinant of B without row i and column j."""
    rest = np.delete(np.delete(B, i, axis=0), j, axis=1)
    return (-1.0) ** (i + j) * (np.linalg.det(rest) if rest.size else 1.0)


def ansnmf_column(B, c, A, lower):
    """Return B with a new column c for the largest det B: sum one, A b >= lower, cofactors >= 0.

    Cofactors are linear in the column, so their coefficients are the values at unit columns. If the
    linear programme has no solution, the column is unchanged.
    """
    k = len(B)

    def with_column(b):
        return np.column_stack([b if j == c else B[:, j] for j in range(k)])

    units = [with_column(e) for e in np.eye(k)]
    signs = [
        [-cofactor(unit, i, j) for unit in units] for j in range(k) if j != c for i in range(k)
    ]
    found = linprog(
        [-cofactor(B, i, c) for i in range(k)],
        A_ub=np.vstack([*signs, -A]) if signs else -A,
        b_ub=np.concatenate([np.zeros(len(signs)), -lower]),
        A_eq=np.ones((1, k)),
        b_eq=[1.0],
        bounds=(None, None),
    )
    return with_column(found.x) if found.status == 0 else B


def ansnmf_codes(V, slack):
    """Return B for V Bᵀ, with columns k, 1, ..., k - 1 changed in turn for the largest det B.

    The rows of V Bᵀ, for rows of V of sum one, stay above -slack.
    """
    k = V.shape[1]
    Y = V[V.sum(axis=1) > 1e-6]
    Y = Y / Y.sum(axis=1, keepdims=True)
    B = np.eye(k)
    for c in [k - 1, *range(k - 1)]:
        others = sum(np.outer(Y[:, j], B[:, j]) for j in range(k) if j != c)
        least = (others / np.maximum(Y[:, [c]], 1e-6)).min(axis=0)
        B = ansnmf_column(B, c, np.eye(k), -least - slack)
    return B


def ansnmf_parts(U, slack):
    """Return B for U Bᵀ, with rows 1, ..., k changed in turn for the largest det B.

    The entries of U Bᵀ, for columns of U of sum one, stay above -slack.
    """
    T = U / U.sum(axis=0)
    C = np.eye(U.shape[1])
    for c in range(U.shape[1]):
        C = ansnmf_column(C, c, T, np.full(len(T), -slack))
    return C.T


def ansnmf(X, V0, U0, n_iter, *, slack_V=0.001, slack_U=0.001, warmup=10):
    """Run the method of Yang, Xiang, Xie and Lai 2017: X ≈ V S Uᵀ with an adaptive S.

    The code follows the authors' program. Multiplicative steps are as in nsNMF, and parts are
    scaled to sum one after each. In the first and the last iteration, linear programmes change the
    part weights and the parts, and S receives the inverse. Return V, S, U.
    """
    eps, V, U = 1e-9, V0, U0 / U0.sum(axis=0)
    S = np.eye(V.shape[1])
    for _ in range(warmup):
        V = V * (X @ U + eps) / (V @ U.T @ U + eps)
        U = U * (X.T @ V + eps) / (U @ V.T @ V + eps)
        U = U / U.sum(axis=0)
    slack_V, slack_U = slack_V * V.max(), slack_U * U.max()
    for t in range(1, n_iter + 1):
        moves = (1 if t == 1 else 2) if t in (1, n_iter) and V.shape[1] > 1 else 0
        P = U @ S.T
        V = (V + 1e-12) * (X @ P + eps) / (V @ P.T @ P + eps)
        if moves:
            B = ansnmf_codes(V, slack_V / moves**10)
            V, S = np.maximum(V @ B.T, 0), np.maximum(np.linalg.inv(B), 0).T @ S
        Q = V @ S
        U = (U + 1e-12) * (X.T @ Q + eps) / (U @ Q.T @ Q + eps)
        if moves:
            B = ansnmf_parts(U, slack_U / moves)
            U, S = np.maximum(U / U.sum(axis=0) @ B.T, 0), S @ np.maximum(np.linalg.inv(B), 0)
        U = U / U.sum(axis=0)
    return V, S, U


def nsnmf_kl(X, V0, U0, n_iter, *, delta=0.5, order="VU"):
    """Run nsNMF (Pascual-Montano et al. 2006) with the KL divergence, the loss of that paper.

    Order and scaling are those of `nsnmf_frobenius`.
    """
    S = smoothing_matrix(V0.shape[1], delta)

    def step_V(V, U):
        B = U @ S
        return multiplicative(V, (X / floor(V @ B.T)) @ B, B.sum(axis=0))

    def step_U(V, U):
        T = V @ S
        return multiplicative(U, (X / floor(T @ U.T)).T @ T, T.sum(axis=0))

    def objective(V, U):
        return objective_kl(X, V, U, S=S)

    return alternate(V0, U0, n_iter, order, step_V, step_U, objective)


def accelerated(gradient, lipschitz, Z, inner_iter):
    """Run inner_iter steps of NMF-DC (15) from Z; momentum restarts with β₀ = 1, Y₀ = Z."""
    if lipschitz == 0:
        return Z
    Y, beta = Z, 1.0
    for _ in range(inner_iter):
        Z_new = np.maximum(Y - gradient(Y) / lipschitz, 0.0)
        beta_new = 0.5 * (1.0 + np.sqrt(4.0 * beta**2 + 1.0))
        Y = Z_new + (beta - 1.0) / beta_new * (Z_new - Z)
        Z, beta = Z_new, beta_new
    return Z


def nmfdc_nesterov(X, V0, U0, n_iter, *, A=None, delta=0.5, inner_iter=10, order="VU"):
    """Run NMF-DC (15) and (17), read as inner loops, with the exact Lipschitz constants.

    These are ‖SᵀWᵀWS‖₂‖AAᵀ‖₂ and ‖SHAAᵀHᵀSᵀ‖₂ in the paper's letters. The paper's order is H (15),
    which is our Zᵀ, then W (17), which is our U. The objective (5) has the factor ½, so nothing is
    halved. V0 is averaged within each class.

    The *outer* history never rises: (19) at H = H_k gives
    f(H_k+1) + L/2‖H_k+1 - H_k‖² <= f(H_k) + L/2 θ²‖H_k - H_k-1‖² with θ < 1, and the momentum
    starts from rest, so f(H_k) <= f(H_0) for every k. Within an inner loop the values may rise.
    Misprint in the paper: the last trace of (9) lacks an S.
    """
    A = np.eye(len(X)) if A is None else A
    S = smoothing_matrix(V0.shape[1], delta)

    def step_Z(Z, U):  # NMF-DC (15), with the gradient (9)
        B = U @ S
        constant = np.linalg.norm(B.T @ B, 2) * np.linalg.norm(A.T @ A, 2)
        return accelerated(lambda Y: A.T @ A @ Y @ B.T @ B - A.T @ X @ B, constant, Z, inner_iter)

    def step_U(V, U):  # NMF-DC (17)
        T = V @ S
        constant = np.linalg.norm(T.T @ T, 2)
        return accelerated(lambda Y: Y @ T.T @ T - X.T @ T, constant, U, inner_iter)

    def objective(V, U):
        return objective_frobenius(X, V, U, S=S)

    return on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective)


# --------------------------------------------------------------------------------------------
# Frobenius and KL updates with any combination of terms
# --------------------------------------------------------------------------------------------


def constrained_frobenius(X, V0, U0, n_iter, *, A=None, order="VU", **terms):
    """Run multiplicative updates for the Frobenius loss with penalties, labels or a graph.

    Each factor is multiplied by neg / pos, where pos - neg is its gradient; ``terms`` are keyword
    arguments of `split_frobenius`. The objective never rises. With hard labels, V = A Z, and the
    graph adds λAᵀWV to neg and λAᵀDeg V to pos. Edges between samples of one class add the same
    amount to both, which makes a step shorter but does not change where the iteration ends.
    """
    A = np.eye(len(X)) if A is None else A

    def step_Z(Z, U):
        (neg, pos), _ = split_frobenius(X, Z, U, A=A, **terms)
        return multiplicative(Z, neg, pos)

    def step_U(V, U):
        _, (neg, pos) = split_frobenius(X, V, U, **terms)
        return multiplicative(U, neg, pos)

    def objective(V, U):
        return objective_frobenius(X, V, U, **terms)

    gamma = terms.get("gamma")
    return on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective, gamma)


def constrained_kl(
    X, V0, U0, n_iter, *, A=None, S=None, W=None, lam=0.0, D=None, class_reg=0.0, gamma=None,
    l1_V=0.0, l2_V=0.0, l1_U=0.0, l2_U=0.0, order="VU",
):  # fmt: skip
    """Run EM updates for the KL loss with any terms; with a graph, solve GNMF (21) per component.

    (diag(b_k) + λ AᵀLA) z_k = c_k,   b = Aᵀγ ⊗ colsum(B) + Aᵀ(class_reg D + l1),   B = U Sᵀ,
    c = Z ∘ Aᵀ(γ X / VBᵀ) B. An l2 penalty adds l2 AᵀA z_k² on the left (AᵀA is diagonal). Without a
    graph this gives the closed form of `nmf_kl`, and with a graph a quadratic system. Without a
    graph, the objective never rises.
    """
    n, k = len(X), U0.shape[1]
    A = np.eye(n) if A is None else A
    S = np.eye(k) if S is None else S
    D = np.zeros((n, k)) if D is None else D
    w = sample_weights(gamma, n)
    members = A.sum(axis=0)
    graph = W is not None and lam > 0
    M = lam * A.T @ laplacian(W) @ A if graph else None

    def step_Z(Z, U):
        B = U @ S.T
        c = Z * (A.T @ ((w[:, None] * X / floor(A @ Z @ B.T)) @ B))
        b = np.outer(A.T @ w, B.sum(axis=0)) + A.T @ (class_reg * D + l1_V)
        if not graph:
            return em_minimiser(c, b, l2_V * members[:, None])
        l2 = l2_V * members if l2_V > 0 else None
        return np.column_stack([solve_graph_system(b[:, j], c[:, j], M, l2) for j in range(k)])

    def step_U(V, U):
        T = V @ S
        c = U * ((w[:, None] * X / floor(T @ U.T)).T @ T)
        return em_minimiser(c, w @ T + l1_U, l2_U)

    def objective(V, U):
        return objective_kl(
            X, V, U, S=S, W=W, lam=lam, D=D, class_reg=class_reg, gamma=gamma,
            l1_V=l1_V, l2_V=l2_V, l1_U=l1_U, l2_U=l2_U,
        )  # fmt: skip

    return on_shared_rows(A, V0, U0, n_iter, order, step_Z, step_U, objective, w)


# --------------------------------------------------------------------------------------------
# CF and LCF, which return (V, C, history); U = Xᵀ C
# --------------------------------------------------------------------------------------------


def signed_parts(X, K=None):
    """Return non-negative K⁺ and K⁻ with K = K⁺ - K⁻, for the kernel K = X Xᵀ or a given K.

    For the linear kernel, K⁺ = X⁺X⁺ᵀ + X⁻X⁻ᵀ and K⁻ = X⁺X⁻ᵀ + X⁻X⁺ᵀ. A given K is split by entries.
    """
    if K is not None:
        return np.maximum(K, 0.0), np.maximum(-K, 0.0)
    plus, minus = np.maximum(X, 0.0), np.maximum(-X, 0.0)
    return plus @ plus.T + minus @ minus.T, plus @ minus.T + minus @ plus.T


def lcf_mu(X, V0, C0, n_iter, *, lam=0.3, K=None, signed=None, order="UV"):
    """Run the updates of LCF (4) and (5) in the paper's order: W (4), our C, then V (5).

    λ = 0 is CF. In `order`, "U" stands for C. Signed data or a signed kernel have the update
    Z sqrt(neg/pos) with `signed_parts` (Ding, Li & Jordan 2010), by default if X (or a given K) has
    a negative entry. With both updates, the objective never rises.

    (5) divides 2(λ+1)(WᵀK) by 2WᵀKWV + λA + λB, so it is the update of ½‖·‖² + λ/2 locality.
    Misprints in the paper: the denominator of (4), (9) should be K W V Vᵀ + λ K W diag(V1) (the
    paper lacks one V); its numerator is (1+λ) K Vᵀ, since Σ_i Xᵀx_i 1ᵀD_i = K Vᵀ. The second
    derivative in Lemma 3 has V for Vᵀ.
    """
    given = X if K is None else K
    signed = bool((given < 0).any()) if signed is None else signed
    parts = signed_parts(X, K) if signed else None
    exponent = 0.5 if signed else 1.0
    gram = X @ X.T if K is None else K

    def step_V(V, C):  # LCF (5)
        (neg, pos), _ = split_concepts(X, V, C, K=gram, lam=lam, K_parts=parts)
        return multiplicative(V, neg, pos, exponent)

    def step_C(V, C):  # LCF (4)
        _, (neg, pos) = split_concepts(X, V, C, K=gram, lam=lam, K_parts=parts)
        return multiplicative(C, neg, pos, exponent)

    def objective(V, C):
        return objective_concepts(X, V, C, K=gram, lam=lam)

    return alternate(V0, C0, n_iter, order, step_V, step_C, objective)


def cf_mu(X, V0, C0, n_iter, *, K=None, signed=None, order="UV"):
    """Run CF (Xu & Gong 2004), with objective LCF (1): `lcf_mu` with λ = 0."""
    return lcf_mu(X, V0, C0, n_iter, lam=0.0, K=K, signed=signed, order=order)


def lcf_mu_literal(X, V0, C0, n_iter, *, lam=0.3, order="UV"):
    """Run LCF (4) and (5) term by term for non-negative X, with sums over i and D_i = diag(v_i)."""
    n, k = V0.shape

    def step_C(V, C):  # LCF (4), with the V that the printed denominator lacks
        K = X @ X.T
        neg, pos = K @ V, K @ C @ V.T @ V
        for i in range(n):
            Di = np.diag(V[i])
            neg = neg + lam * np.outer(X @ X[i], np.ones(k)) @ Di
            pos = pos + lam * K @ C @ Di
        return C * neg / floor(pos)

    def step_V(V, C):  # LCF (5), transposed
        K = X @ X.T
        a = np.tile(np.diag(K)[:, None], (1, k))
        b = np.tile(np.diag(C.T @ K @ C)[None, :], (n, 1))
        return V * 2.0 * (lam + 1.0) * (K @ C) / floor(2.0 * V @ C.T @ K @ C + lam * a + lam * b)

    def objective(V, C):
        return 0.5 * lcf_as_printed(X, V, C, lam=lam)

    return alternate(V0, C0, n_iter, order, step_V, step_C, objective)


# --------------------------------------------------------------------------------------------
# SparseNMF (Hoyer 2004)
# --------------------------------------------------------------------------------------------


def sparseness(x):
    """Return Hoyer's sparseness (√n - Σ|x| / ‖x‖) / (√n - 1) (Hoyer 2004, NMF-DC (30))."""
    root = np.sqrt(x.size)
    return float((root - np.abs(x).sum() / np.linalg.norm(x)) / (root - 1.0))


def hoyer_projection(s, l1, l2):
    """Return the closest non-negative vector to s with Σv = l1 and ‖v‖₂ = l2 (Hoyer 2004, 3.2).

    This requires l2 <= l1 <= √n l2. Each step moves from the midpoint of the current face along s
    to the sphere, and permanently sets negative entries to zero. If s is constant on the face,
    every direction is equally good, and the first entry is used.
    """
    s = np.asarray(s, dtype=np.float64)
    free = np.ones(s.size, dtype=bool)
    v = s + (l1 - s.sum()) / s.size
    while True:
        middle = np.where(free, l1 / free.sum(), 0.0)
        room = l2**2 - (middle**2).sum()  # squared radius of the sphere within the face
        direction = v - middle
        length = np.linalg.norm(direction)
        if length <= 1e-14 * l2:
            direction = np.where(free, -1.0 / free.sum(), 0.0)
            direction[np.flatnonzero(free)[0]] += 1.0
            length = np.linalg.norm(direction)
        if length > 0:  # the length is 0 if only one entry is free
            v = middle + np.sqrt(max(room, 0.0)) / length * direction
        if (v >= 0).all():
            return v
        free &= v > 0
        v = np.where(free, v, 0.0)
        v = np.where(free, v + (l1 - v.sum()) / free.sum(), 0.0)


def l1_for_sparseness(size, wanted):
    """Return Σv of a vector of unit l2 norm with the given sparseness."""
    root = np.sqrt(size)
    return root - (root - 1.0) * wanted


def project_columns(Z, wanted, unit):
    """Project each column to the given sparseness; its l2 norm becomes 1 (unit) or is kept."""
    Z = np.array(Z)
    for k in range(Z.shape[1]):
        norm = 1.0 if unit else np.linalg.norm(Z[:, k])
        Z[:, k] = hoyer_projection(Z[:, k], l1_for_sparseness(len(Z), wanted) * norm, norm)
    return Z


def hoyer_sparse_nmf(X, V0, U0, n_iter, *, sparseness_V=None, sparseness_U=None, order="VU"):
    """Run Hoyer's NMF with sparseness constraints (2004, section 3.1) for ½‖X - VUᵀ‖².

    A factor with a constraint takes a gradient step and a projection, a free one a multiplicative
    step. Hoyer's W is our U (column norms kept), and his H is our Vᵀ (columns of V of unit norm).
    The paper lists W before H, but his code updates H first ("VU").

    A constrained step starts at size 1, is halved until the objective does not rise, and grows by
    1.2 after success. A factor whose step has shrunk below 1e-200 is unchanged. If V is free, its
    columns are scaled to unit norm after the step, and U by the inverse, as in his code. The
    initial factors are projected first; after that the objective never rises.
    """
    V, U = np.array(V0, dtype=np.float64), np.array(U0, dtype=np.float64)
    if sparseness_V is None:
        U, V = normalize_columns(U, V)
    else:
        V = project_columns(V, sparseness_V, unit=True)
    if sparseness_U is not None:
        U = project_columns(U, sparseness_U, unit=True)
    size = {"V": 1.0, "U": 1.0}

    def value(V, U):
        return 0.5 * float(((X - V @ U.T) ** 2).sum())

    def search(factor, Z, gradient, project, f):
        start = f(Z)
        while size[factor] >= 1e-200:
            trial = project(Z - size[factor] * gradient)
            if f(trial) <= start:
                size[factor] *= 1.2
                return trial
            size[factor] *= 0.5
        return Z

    history = []
    for _ in range(n_iter):
        for factor in order:
            if factor == "V":
                if sparseness_V is None:
                    V = multiplicative(V, X @ U, V @ U.T @ U)
                    U, V = normalize_columns(U, V)
                else:
                    V = search(
                        "V", V, (V @ U.T - X) @ U,
                        lambda Z: project_columns(Z, sparseness_V, unit=True),
                        lambda Z, U=U: value(Z, U),
                    )  # fmt: skip
            elif sparseness_U is None:
                U = multiplicative(U, X.T @ V, U @ V.T @ V)
            else:
                U = search(
                    "U", U, (V @ U.T - X).T @ V,
                    lambda Z: project_columns(Z, sparseness_U, unit=False),
                    lambda Z, V=V: value(V, Z),
                )  # fmt: skip
        history.append(value(V, U))
    return V, U, np.array(history)


# --------------------------------------------------------------------------------------------
# PLSA (Hofmann 1999), for its equivalence with KL-NMF
# --------------------------------------------------------------------------------------------


def plsa_em(X, Pz, Pw_z, Pd_z, n_iter):
    """Run EM for PLSA, P(d, w) = Σ_z P(z) P(d|z) P(w|z), on the count table X (documents, words).

    Pz (k,), Pw_z (p, k) and Pd_z (n, k) have columns that sum to one. Return them and the
    log-likelihood Σ x log P(d, w) after each iteration.

    With V = N P(d|z) diag(P(z)), U = P(w|z) and N = ΣX, one EM step equals the two half-steps of
    NMF with the KL loss from the *same* point, followed by scaling the columns of U to sum one.
    There, D(X ‖ VUᵀ) = Σ x log(x/N) - log-likelihood.
    """
    n, p = X.shape
    history = []
    for _ in range(n_iter):
        counts = np.zeros((n, p, len(Pz)))
        for d in range(n):
            for w in range(p):
                joint = Pz * Pd_z[d] * Pw_z[w]
                counts[d, w] = X[d, w] * joint / floor(joint.sum())  # E step: x P(z|d,w)
        total = counts.sum(axis=(0, 1))
        Pw_z = counts.sum(axis=0) / floor(total)  # M step
        Pd_z = counts.sum(axis=1) / floor(total)
        Pz = total / total.sum()
        joint = (Pd_z * Pz) @ Pw_z.T
        history.append(float((X[X > 0] * np.log(joint[X > 0])).sum()))
    return Pz, Pw_z, Pd_z, np.array(history)


# --------------------------------------------------------------------------------------------
# New samples and their neighbours
# --------------------------------------------------------------------------------------------


def edges_to(new, X, W, n_neighbors, weighting="binary", bandwidth=1.0):
    """Return weights between new samples and X: nearest neighbours, or the row of W if in X."""
    E = np.zeros((len(new), len(X)))
    for i, x in enumerate(new):
        distance = np.sqrt(((X - x) ** 2).sum(axis=1))
        if distance.min() == 0:
            E[i] = W[distance.argmin()]
            continue
        for j in np.argsort(distance, kind="stable")[:n_neighbors]:
            heat = np.exp(-(distance[j] ** 2) / (2 * bandwidth**2))
            E[i, j] = {"binary": 1.0, "heat": heat, "dot": max(x @ X[j], 0.0)}[weighting]
    return E


def codes_with_neighbors(new, U, E, V, lam):
    """Return part weights of new samples that are close to those of their neighbours in the graph.

    They minimise ½‖x - Uv‖² + lam/2 Σ_j E_ij ‖v - v_j‖² over v >= 0, as one least squares problem.
    """
    from scipy.optimize import nnls

    k = U.shape[1]
    codes = []
    for x, weights in zip(new, E):
        near = np.flatnonzero(weights)
        roots = np.sqrt(lam * weights[near])
        A = np.vstack([U, *(r * np.eye(k) for r in roots)])
        b = np.concatenate([x, *(r * V[j] for r, j in zip(roots, near))])
        codes.append(nnls(A, b)[0])
    return np.array(codes)


def kl_with_neighbors(x, U, weights, V, lam, v):
    """Return the KL objective of one new sample with a graph: D(x ‖ Uv) + lam Σ_j w_j D(v_j ‖ v).

    D(a ‖ b) = Σ a log(a/b) - a + b.
    """

    def divergence(a, b):
        return (np.where(a > 0, a * np.log(floor(a) / floor(b)), 0.0) - a + b).sum()

    near = np.flatnonzero(weights)
    return divergence(x, U @ v) + lam * sum(weights[j] * divergence(V[j], v) for j in near)


# --------------------------------------------------------------------------------------------
# Missing entries, and weights of entries
# --------------------------------------------------------------------------------------------


def weighed_entries(X, V, U, weight, loss="frobenius"):
    """Return Σ w_ij loss(x_ij, y_ij); entries of X with weight zero are ignored."""
    X = np.where(weight > 0, X, 0.0)
    Y = V @ U.T
    entries = 0.5 * (X - Y) ** 2 if loss == "frobenius" else kl_entries(X, Y)
    return float(np.sum(weight * entries))


def nmf_weighed(X, V0, U0, n_iter, *, weight, loss="frobenius", order="VU"):
    """Run Lee & Seung's updates with a weight for each entry (Blondel, Ho & Van Dooren 2008)."""
    X = np.where(weight > 0, X, 0.0)

    def step(X, weight, Z, B):
        Y = Z @ B.T
        if loss == "frobenius":
            return multiplicative(Z, (weight * X) @ B, (weight * Y) @ B)
        return multiplicative(Z, (weight * X / floor(Y)) @ B, weight @ B)

    return alternate(
        V0,
        U0,
        n_iter,
        order,
        lambda V, U: step(X, weight, V, U),
        lambda V, U: step(X.T, weight.T, U, V),
        lambda V, U: weighed_entries(X, V, U, weight, loss),
    )


# --------------------------------------------------------------------------------------------
# Links: pairs of samples of the same group (must) or of different groups (cannot)
# --------------------------------------------------------------------------------------------


def links_cost(V, must=(), cannot=(), must_reg=0.0, cannot_reg=0.0):
    """Return the penalties of must-links and of cannot-links.

    must_reg/2 Σ ‖v_i - v_j‖² over must-links + cannot_reg Σ ⟨v_i, v_j⟩ over cannot-links.
    """
    drawn = sum(0.5 * ((V[i] - V[j]) ** 2).sum() for i, j in must)
    return float(must_reg * drawn + cannot_reg * sum(V[i] @ V[j] for i, j in cannot))


def must_matrix(n, must, y=None):
    """Return A with a column per group of samples that must-links (and equal labels) join."""
    group = list(range(n))
    pairs = list(must)
    if y is not None:
        known = [i for i in range(n) if y[i] >= 0]
        pairs += [(i, j) for i in known for j in known if y[i] == y[j]]
    for i, j in pairs:
        old, new = group[j], group[i]
        group = [new if g == old else g for g in group]
    columns = sorted(set(group))
    return np.array([[float(g == c) for c in columns] for g in group])


def nmf_linked(
    X, V0, U0, n_iter, *, must=(), cannot=(), must_reg=None, cannot_reg=0.0, W=None, lam=0.0,
    order="VU",
):  # fmt: skip
    """Run multiplicative updates with links; if must_reg is None, must-links share a row of Z."""
    n = len(X)
    A = must_matrix(n, must) if must_reg is None else np.eye(n)
    C, M = np.zeros((n, n)), np.zeros((n, n))
    for i, j in cannot:
        C[i, j] = C[j, i] = cannot_reg
    for i, j in must if must_reg is not None else ():
        M[i, j] = M[j, i] = must_reg
    M = M + (0 if W is None else lam * W)
    Z, U = shared_rows(A, V0), np.array(U0)
    history = []
    for _ in range(n_iter):
        for factor in order:
            V = A @ Z
            if factor == "V":
                neg = A.T @ (X @ U + M @ V)
                pos = A.T @ (V @ U.T @ U + np.diag(M.sum(axis=1)) @ V + C @ V)
                Z = multiplicative(Z, neg, pos)
            else:
                U = multiplicative(U, X.T @ V, U @ V.T @ V)
        V = A @ Z
        soft = 0.0 if must_reg is None else must_reg
        value = 0.5 * ((X - V @ U.T) ** 2).sum() + links_cost(V, must, cannot, soft, cannot_reg)
        history.append(value + (0 if W is None else 0.5 * lam * np.trace(V.T @ laplacian(W) @ V)))
    return V, U, history


def linked_merge(V, k, must=(), cannot=()):
    """Return clusters by Ward's merging, computed by brute force, with links between samples.

    Must-links are merged first. Groups with a cannot-link between them are merged last.
    """
    groups = [list(np.flatnonzero(c)) for c in must_matrix(len(V), must).T]

    def spread(group):
        return ((V[group] - V[group].mean(axis=0)) ** 2).sum()

    def price(a, b):
        broken = sum((i in a and j in b) or (i in b and j in a) for i, j in cannot)
        return broken, spread(a + b) - spread(a) - spread(b)

    while len(groups) > k:
        found = [(price(a, b), a, b) for i, a in enumerate(groups) for b in groups[:i]]
        _, a, b = min(found, key=lambda f: f[0])
        groups = [g for g in groups if g is not a and g is not b] + [a + b]
    labels = np.empty(len(V), dtype=int)
    for number, group in enumerate(groups):
        labels[group] = number
    return labels


# --------------------------------------------------------------------------------------------
# Signed data: X ~ V Uᵀ with V >= 0 and U of any sign (Ding, Li & Jordan 2010)
# --------------------------------------------------------------------------------------------


def semi_nmf(X, V0, n_iter, *, D=None, class_reg=0.0, W=None, lam=0.0):
    """Run Semi-NMF (5) and (6) for X of any sign, with class cost and graph.

    U = XᵀV (VᵀV)⁻¹; then V is multiplied by the root of the ratio of the split gradients.
    """
    V = np.array(V0)
    history = []
    W = np.zeros((len(X), len(X))) if W is None else W
    D = np.zeros_like(V) if D is None else D
    for _ in range(n_iter):
        U = X.T @ V @ np.linalg.pinv(V.T @ V)
        C, G = X @ U, U.T @ U
        neg = np.maximum(C, 0) + V @ np.maximum(-G, 0) + lam * W @ V
        pos = np.maximum(-C, 0) + V @ np.maximum(G, 0) + lam * np.diag(W.sum(axis=1)) @ V
        V = multiplicative(V, neg, pos + 0.5 * class_reg * D, 0.5)
        value = 0.5 * ((X - V @ U.T) ** 2).sum() + 0.5 * class_reg * (D * V).sum()
        history.append(float(value + 0.5 * lam * np.trace(V.T @ laplacian(W) @ V)))
    return V, U, history


# --------------------------------------------------------------------------------------------
# Outlying rows: Σ √(‖x_i - y_i‖² + ε), with weights that depend on the residuals
# --------------------------------------------------------------------------------------------


def objective_l21(X, V, U, eps):
    """Return Σ_i √(‖x_i - U v_i‖² + ε), the smoothed ℓ2,1 loss of Kong, Ding & Huang (2011)."""
    return float(np.sqrt(((X - V @ U.T) ** 2).sum(axis=1) + eps).sum())


def nmf_l21(X, V0, U0, n_iter, *, eps):
    """Run multiplicative updates for ½ Σ γ_i ‖x_i - U v_i‖² with γ_i = 1/√(‖r_i‖² + ε).

    The weights γ are computed again from the residuals r before each step.
    """
    V, U = np.array(V0), np.array(U0)
    history = []

    def weights():
        return 1 / np.sqrt(((X - V @ U.T) ** 2).sum(axis=1) + eps)

    for _ in range(n_iter):
        gamma = weights()
        V = multiplicative(V, gamma[:, None] * (X @ U), gamma[:, None] * (V @ U.T @ U))
        gamma = weights()
        U = multiplicative(U, X.T @ (gamma[:, None] * V), U @ (V.T @ (gamma[:, None] * V)))
        history.append(objective_l21(X, V, U, eps))
    return V, U, history


# --------------------------------------------------------------------------------------------
# Symmetric NMF of a similarity matrix: S ~ V Vᵀ
# --------------------------------------------------------------------------------------------


def symmetric_sweeps(S, V0, n_iter):
    """Minimise ½‖S - VVᵀ‖² in each entry of V in turn, over all roots of its derivative."""
    V, history = np.array(V0), []

    def value(V):
        return 0.5 * ((S - V @ V.T) ** 2).sum()

    for _ in range(n_iter):
        for i, j in np.ndindex(V.shape):
            v = V[i, j]
            # ½‖S - VVᵀ‖² as a polynomial in that entry, through five points
            points = v + np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
            values = []
            for x in points:
                V[i, j] = x
                values.append(value(V))
            quartic = np.polynomial.Polynomial.fit(points, values, 4).convert()
            roots = quartic.deriv().roots()
            real = roots.real[np.abs(roots.imag) < 1e-6 * (1 + np.abs(roots))]
            tried = np.append(real[real > 0], [0.0, v])
            V[i, j] = tried[quartic(tried).argmin()]
        history.append(float(value(V)))
    return V, history


# --------------------------------------------------------------------------------------------
# Online NMF: updates from batches of samples
# --------------------------------------------------------------------------------------------


def nonnegative_rows(C, G):
    """Return argmin over Z >= 0 of ½ tr(Z G Zᵀ) - ⟨C, Z⟩, row by row."""
    root = np.linalg.cholesky(G).T
    return np.array([nnls(root, np.linalg.solve(root.T, c))[0] for c in C])


def batches_frobenius(batches, U0, forget, rounds=1):
    """Return U after batches of (rows, X), each with exact part weights and then an exact U.

    The sums over samples are computed again from each sample's last X, part weights and weight
    forget^age. A batch increases the age of other samples by its share of all samples so far.
    """
    U, known, met = np.array(U0, dtype=np.float64), {}, 0
    for rows, X in batches:
        met += len(rows)
        share = forget ** (len(rows) / met)
        for number in known:
            known[number][2] *= share
        for _ in range(rounds):
            V = nonnegative_rows(X @ U, U.T @ U)
            for number, x, v in zip(rows, X, V, strict=True):
                known[number] = [x, v, 1.0]
            G = sum(w * np.outer(v, v) for _, v, w in known.values())
            C = sum(w * np.outer(x, v) for x, v, w in known.values())
            U = nonnegative_rows(C, G)
    return U


def batches_kl(batches, U0, forget, steps):
    """Return U after batches: `steps` EM updates of the part weights, then one of U from sums.

    C sums U ∘ (X/Y)ᵀV with the U and V of each batch, and B sums the part weights. The initial U
    counts as one sample with mean part weights. Earlier sums are multiplied by
    forget^(16 batch/met), where met is the number of samples so far. The update of U has the
    exponent 1.6.
    """
    U = np.array(U0, dtype=np.float64)
    k = U.shape[1]
    C, B, met = np.zeros_like(U), np.zeros(k), 0
    for X in batches:
        met += len(X)
        V = np.full((len(X), k), np.sqrt(X.mean() / k))
        for _ in range(steps):
            V = V * ((X / floor(V @ U.T)) @ U) / U.sum(axis=0)
        share = forget ** (16 * len(X) / met)
        first = not B.any()
        C, B = share * C, share * B
        if first:
            cost = V.sum(axis=0).mean() / len(X)
            C, B = C + U * cost, B + cost
        C, B = C + U * ((X / floor(V @ U.T)).T @ V), B + V.sum(axis=0)
        U = U * (C / B / U) ** 1.6
    return U


def damped_newton(X, Z, B, cost, ridge, sweeps, hold=0.01):
    """Return rows of Z after the damped second-order KL step of `partwise.backends.curvature`."""
    out = np.zeros_like(Z)
    for i, (x, z) in enumerate(zip(X, Z, strict=True)):
        y = B @ z
        H = sum(x[j] / y[j] ** 2 * np.outer(B[j], B[j]) for j in range(len(B)))
        slope = cost[i] + ridge[i] * z - sum(x[j] / y[j] * B[j] for j in range(len(B)))
        new = z.copy()
        for _ in range(sweeps):
            for a in range(len(z)):
                held = hold * H[a, a] + ridge[i, a]
                pull = slope[a] + H[a] @ (new - z) + held * (new[a] - z[a])
                new[a] = max(new[a] - pull / (H[a, a] + held), 0.0)
        move = new - z
        out[i] = z + move / (1 + np.sqrt(move @ H @ move / x.sum()))
    return out


# --------------------------------------------------------------------------------------------
# Predicted labels and their confidence
# --------------------------------------------------------------------------------------------


def expected_calibration_error(p, y, bins=10):
    """Return Σ over bins of confidence of (share of samples) |accuracy - mean confidence|."""
    sure, right, total = p.max(axis=1), p.argmax(axis=1) == y, 0.0
    for b in range(bins):
        inside = (sure > b / bins) & (sure <= (b + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return total


def log_loss(p, y):
    """Return the mean of -log p of the true class."""
    return -np.mean([np.log(row[c]) for row, c in zip(p, y)])


def gaussian_classes(Z, M, S, shrink):
    """Return log N(z; m_c, (1-g) S + g tr(S)/d I) for each row z and class c, up to a constant.

    g is ``shrink``, and d the number of columns.
    """
    d = len(S)
    inverse = np.linalg.inv((1 - shrink) * S + shrink * np.trace(S) / d * np.eye(d))
    return np.array([[-0.5 * (z - m) @ inverse @ (z - m) for m in M] for z in Z])


def em_of_gaussian_classes(Z, labelled, y, P, rounds, shrink):
    """Return class scores after each EM iteration for Gaussian classes with one covariance.

    The labelled samples stay in their class.
    """
    P, scores = np.array(P, dtype=np.float64), []
    for _ in range(rounds):
        for i, c in zip(labelled, y):
            P[i] = np.eye(P.shape[1])[c]
        M = np.array([sum(p * z for p, z in zip(mine, Z)) / mine.sum() for mine in P.T])
        S = sum(
            P[i, c] * np.outer(Z[i] - M[c], Z[i] - M[c])
            for i in range(len(Z))
            for c in range(len(M))
        ) / len(Z)
        found = gaussian_classes(Z, M, S, shrink)
        scores.append(found)
        P = np.exp(found - found.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
    return scores


def even_masses(G, y, c):
    """Return the class probabilities of each sample from G, the affinities to labelled samples.

    The mean affinities to each class are scaled so that all classes have equal total mass.
    """
    H = np.array([[g[y == j].mean() for j in range(c)] for g in G])
    H = H / H.sum(axis=1, keepdims=True)
    H = H / H.sum(axis=0, keepdims=True)
    return H / H.sum(axis=1, keepdims=True)


# --------------------------------------------------------------------------------------------
# A classifier's estimates of its own accuracy
# --------------------------------------------------------------------------------------------


def expected_accuracy(p, agreed, n_labels, *, share, width, edge):
    """Return a classifier's estimate of its accuracy, with the ends of an interval.

    logit(a) = c0 + (c1 + c2/√n) logit(sure) + (c3 + c4/√n) logit(agreement). p (n, c) are class
    probabilities of the samples without a label, ``sure`` is the mean of their largest one, and
    ``agreed`` is how often the classifiers agree. The number of labels per class determines the
    distance of the interval's ends from the estimate, in logits.
    """
    sure = np.mean([max(row) for row in p])
    s, h = (np.log(v / (1 - v)) for v in np.clip([sure, agreed], edge, 1 - edge))
    z = share[0] + (share[1] + share[2] / n_labels**0.5) * s
    z += (share[3] + share[4] / n_labels**0.5) * h
    each = n_labels / len(p[0])
    ends = z, z - np.exp(width[0]) * each ** width[2], z + np.exp(width[1]) * each ** width[3]
    middle, low, high = (1 / (1 + np.exp(-v)) for v in ends)
    return middle, max(low - edge, 0), min(high + edge, 1)


def expected_balanced_accuracy(p):
    """Return the expected balanced accuracy: the mean over classes of expected recalls.

    The recall of class c is Σ_i p_ic [c is predicted] / Σ_i p_ic.
    """
    shares = []
    for c in range(len(p[0])):
        found = sum(row[c] for row in p if int(np.argmax(row)) == c)
        shares.append(found / sum(row[c] for row in p))
    return np.mean(shares)


def measured_shares(counts, strengths):
    """Return the posterior mean and deviation of class shares, with Dirichlet distributions.

    P(counts | a) is the product over the labels of (a + number of earlier labels of the same class)
    divided by its sum over the classes. All strengths a have the same prior probability.
    """
    c, n = len(counts), sum(counts)
    weights = []
    for a in strengths:
        seen, log_p = [0] * c, 0.0
        for j in range(c):
            for _ in range(counts[j]):
                log_p += np.log((a + seen[j]) / (c * a + sum(seen)))
                seen[j] += 1
        weights.append(log_p)
    weights = np.exp(np.array(weights) - max(weights))
    weights /= weights.sum()
    means, squares = np.zeros(c), np.zeros(c)
    for w, a in zip(weights, strengths):
        for j in range(c):
            alpha, rest = a + counts[j], (c - 1) * a + n - counts[j]
            mean = alpha / (alpha + rest)
            means[j] += w * mean
            squares[j] += w * (mean**2 + mean * (1 - mean) / (alpha + rest + 1))
    return means, np.sqrt(np.maximum(squares - means**2, 0))


def estimated_shares(p, rounds):
    """Return class shares by the EM of Saerens et al.

    The mean of the probabilities, corrected for the current shares, is the next estimate.
    """
    c = len(p[0])
    shares = [1 / c] * c
    for _ in range(rounds):
        new = np.zeros(c)
        for row in p:
            joint = np.array([row[j] * shares[j] for j in range(c)])
            new += joint / joint.sum()
        shares = new / len(p)
    return shares


def share_errors(shares, held, truth):
    """Return standard errors of the class shares C⁻ᵀq, where row j of C is a mean over labels of j.

    Each class has one more label, which is predicted as any one class with equal chance. The error
    of C moves C⁻ᵀq by -C⁻ᵀ (δC)ᵀ s, and the errors of the rows are independent.
    """
    c = len(shares)
    C = np.array([[(sum(h[k] for h in held[truth == j]) + 1 / c) / (np.sum(truth == j) + 1)
                   for k in range(c)] for j in range(c)])  # fmt: skip
    total = np.zeros((c, c))
    for j in range(c):
        rows = [*held[truth == j], *np.eye(c)]
        weights = [1.0] * (len(rows) - c) + [1 / c] * c
        spread = sum(w * np.outer(h - C[j], h - C[j]) for w, h in zip(weights, rows))
        total += shares[j] ** 2 * spread / sum(weights) ** 2
    inverse = np.linalg.inv(C)
    return np.sqrt(np.minimum(np.diag(inverse.T @ total @ inverse), 1))


def accuracy_range(recalls, low, high):
    """Return the least and largest accuracy Σ s_j r_j over class shares s within bounds.

    Both are found by linear programmes; r are the recalls.
    """
    bounds, ones = list(zip(low, high)), np.ones((1, len(recalls)))
    ends = [linprog(sign * recalls, A_eq=ones, b_eq=[1], bounds=bounds) for sign in (1, -1)]
    return ends[0].fun, -ends[1].fun


def outlyingness(codes, graph, labelled, y, *, share, floors, usual, of_mean, counts):
    """Return how far samples are from the labelled ones, relative to held-out labelled ones.

    There are two distances: log(1 - cosine) of the part weights to the nearest labelled sample, and
    -log of the mass from all labels over the graph, (1 - α)(I - αS)⁻¹. Each is centred and scaled
    by the distances of labelled samples to the other labelled ones, in classes with at least two
    labels. The mean of both is compared with a predictive t distribution. Its number of
    observations is that of pairs of a labelled sample and its nearest one, plus ``counts`` prior
    ones with the ``usual`` spreads. Its width uses the larger mean square, of all values or of the
    positive ones.
    """
    from scipy.stats import t as student

    n = len(codes)
    unit = codes / np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-12)
    root = 1 / np.sqrt(np.maximum(graph.sum(axis=1), 1e-12))
    S = root[:, None] * graph * root
    G = (1 - share) * np.linalg.inv(np.eye(n) - share * S)

    def distances(i, told):
        nearest = min(max(1 - unit[i] @ unit[j], 0) for j in told)
        return np.array(
            [np.log(nearest + floors[0]), -np.log(sum(G[i, j] for j in told) + floors[1])]
        )

    held = [i for i, c in zip(labelled, y) if np.sum(y == c) > 1]
    own = np.array([distances(i, [j for j in labelled if j != i]) for i in held])
    nearest = [max(set(labelled) - {i}, key=lambda j, i=i: unit[i] @ unit[j]) for i in held]
    pairs = {frozenset(pair) for pair in zip(held, nearest)}
    m = len(pairs)
    middle = own.mean(axis=0)
    spread = np.sqrt((m * own.var(axis=0) + counts * np.square(usual)) / (m + counts))
    own = ((own - middle) / spread).mean(axis=1)
    score = np.array([((distances(i, labelled) - middle) / spread).mean() for i in range(n)])
    square = max(np.mean(own**2), np.mean([v**2 for v in own if v > 0]))
    width = np.sqrt((m * square + counts * of_mean) / (m + counts - 1) * (1 + 1 / m))
    return student.cdf(score / width, m + counts - 1)


def edge_histograms(picture, directions, side):
    """Return histograms of oriented gradients of an image, with blocks of two by two windows.

    They are computed pixel by pixel.
    """
    height, width = picture.shape
    rows, columns = height // side, width // side
    windows = np.zeros((rows, columns, directions))
    for i in range(rows * side):
        for j in range(columns * side):
            down = picture[i + 1, j] - picture[i - 1, j] if 0 < i < height - 1 else 0.0
            across = picture[i, j + 1] - picture[i, j - 1] if 0 < j < width - 1 else 0.0
            turn = np.arctan2(down, across) / (2 * np.pi) * directions % directions
            share, k = turn - int(turn), int(turn)
            strength = np.hypot(down, across)
            windows[i // side, j // side, k % directions] += (1 - share) * strength
            windows[i // side, j // side, (k + 1) % directions] += share * strength
    faint = 1e-3 * (windows**2).sum(axis=2).mean()
    blocks = [
        [
            [
                windows[i + a, j + b] / np.sqrt((windows[i : i + 2, j : j + 2] ** 2).sum() + faint)
                for j in range(columns - 1)
            ]
            for i in range(rows - 1)
        ]
        for a in (0, 1)
        for b in (0, 1)
    ]
    return np.ravel(blocks)


def wrong_labels(p, given, shares, prior, sharper, least):
    """Return the probability that each label is wrong, by sums over the share of wrong labels."""
    n, c = p.shape
    total, wrong = 0.0, np.zeros(n)
    for share in shares:
        power = sharper[0] + sharper[1] * share
        weight = share ** prior[0] * (1 - share) ** (prior[1] - 1)
        here = []
        for row, g in zip(p, given, strict=True):
            r = [max(q, least) ** power for q in row]
            own = r[g] / sum(r)
            mistake = share * (1 - own) / (c - 1)
            weight *= mistake + (1 - share) * own
            here.append(mistake / (mistake + (1 - share) * own))
        total += weight
        wrong += weight * np.array(here)
    return wrong / total
