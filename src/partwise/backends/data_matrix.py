"""Interface of a back end: the products by which all other packages use X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from partwise.backends.arrays import AnyArray, Array, cast, floor, namespace, to_numpy
from partwise.backends.sweeps import sweeps_per_product

#: Text in the error about NaN, which names the setting that accepts missing entries.
GAPS = "missing_values=np.nan takes entries that were not measured."
ZEROS = (
    "When beta_loss <= 0 and X contains zeros, the solver may diverge. "
    "Please add small values to X, or use a positive beta_loss."
)


class Products(Protocol):
    """Products with X (n samples, p features), which is non-negative in most models.

    ``U`` is (p, k), and ``V`` is (n, k). Sums over rows are returned in float64.
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def given(self) -> Any:
        """The dtype of the user's X; ``dtype`` is that of the products."""

    @property
    def density(self) -> float:
        """Share of entries that a product visits; it limits the number of sweeps per product."""

    def dot(self, U: Array) -> Array:
        """Return X U, (n, k)."""

    def tdot(self, V: Array) -> Array:
        """Return Xᵀ V, (p, k)."""

    def expect(self, product: str, factor: Array) -> None:
        """Announce that "dot" or "tdot" with this factor will probably be requested next.

        A back end may then prepare the product in advance.
        """

    def total_squares(self, V: Array | None = None, U: Array | None = None) -> float:
        """Return ‖X‖², or ‖X - V Uᵀ‖²."""

    def row_sq_norms(self) -> Array:
        """Return ‖x_i‖², (n,) float64."""

    def row_sums(self) -> Array:
        """Return Σ_j x_ij, (n,) float64."""

    def row_xlogx(self) -> Array:
        """Return Σ_j x_ij log x_ij with 0 log 0 = 0, (n,) float64."""

    def row_sq_residuals(self, V: Array, U: Array) -> Array:
        """Return ‖x_i - U v_i‖² without cancellation, (n,) float64."""

    def row_divergences(self, V: Array, U: Array) -> Array | None:
        """Return Σ_j x log(x/y) - x + y in float64, (n,); None if the back end has no such pass."""

    def row_powers(self, beta: float) -> Array:
        """Return Σ_j x_ij^β over the positive entries, (n,) float64."""

    def weighted(self, weights: Array | None, index: Array | None, n_rows: int) -> DataMatrix:
        """Return AᵀΓX: weighted rows of X, of which those with equal ``index`` are added.

        None stands for weights of one (Γ) and for rows that stay separate (A).
        """

    def kl_dot(self, V: Array, U: Array) -> tuple[Array, Array]:
        """Return (X / VUᵀ) U, (n, k), and Σ_j x_ij log (VUᵀ)_ij, (n,) float64, in one pass."""

    def kl_tdot(self, V: Array, U: Array) -> Array:
        """Return (X / VUᵀ)ᵀ V, (p, k)."""

    def kl_tdot_log(self, V: Array, U: Array) -> tuple[Array, float] | None:
        """Return `kl_tdot` and Σ x log (VUᵀ) from one pass; None if two passes are as fast."""

    def kl_newton(
        self, V: Array, U: Array, cost: Array, ridge: Array, sweeps: int, rough: bool,
        transposed: bool,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Run second-order coordinate sweeps on V (or on U if transposed) for the KL loss.

        This is the only step that needs rows of X: a Newton step uses the curvature at every
        non-zero. The result is the new factor and, if transposed, partial sums of Σ x log y. The
        logarithms cost as much as a sweep, and the loop needs them once per iteration.
        """

    def kl_curvature(self, V: Array, U: Array, transposed: bool) -> Array:
        """Return Σ_j x/y² u_ja u_jb per row (column if transposed) and pair a <= b.

        Used for the factors in ``curved`` instead of `kl_newton`; see
        `partwise.backends.curvature`.
        """

    def times_dot(self, V: Array, U: Array) -> Array:
        """Return (X ∘ VUᵀ) U, (n, k): X holds weights of entries."""

    def times_tdot(self, V: Array, U: Array) -> Array:
        """Return (X ∘ VUᵀ)ᵀ V, (p, k)."""

    def times_squares(self, V: Array, U: Array) -> Array:
        """Return Σ_j x_ij (VUᵀ)_ij², (n,) float64."""

    def beta_dot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array, Array]:
        """Return (X ∘ Y^(β-2)) U, Y^(β-1) U and the β-divergence of each row, Y = VUᵀ."""

    def beta_tdot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array]:
        """Return (X ∘ Y^(β-2))ᵀ V and (Y^(β-1))ᵀ V."""

    @property
    def lack(self) -> Any | None:
        """The weight deficit of entries, a `gaps.WeightDeficit`; None for equal weights."""

    def filled(self) -> DataMatrix:
        """Return X with missing entries filled in, for initial values and neighbours."""

    @property
    def newton_sides(self) -> str:
        """Factors that second-order steps support for the KL loss: "VU", "V" or ""."""

    @property
    def curved(self) -> str:
        """Factors whose second-order steps use `kl_curvature`: "VU", "U" or ""."""

    def newton_pays(self, k: int) -> bool:
        """Return whether second-order steps are likely to be faster than multiplicative ones."""


class Placement(Protocol):
    """Conversion of arrays to the type and device of X."""

    def rows(self, a: Array) -> Array:
        """Convert an array with one entry or one row per sample to the type of X."""

    def small(self, a: Array) -> Array:
        """Convert an array that does not depend on samples, such as U, to the type of X."""

    def constant_rows(self, row: Array) -> Array:
        """Return an array (n, k) with the same row for each sample."""

    def operator(self, neighbors: Any) -> Callable[[Array], Array]:
        """Return the product ``neighbors(Z)`` = W Z for factors of the type of X."""

    def mean_rows(self, shared: Any, V: Array) -> Array:
        """Return the Z for which A Z is closest to V."""

    def expand_rows(self, shared: Any, Z: Array) -> Array:
        """Return A Z."""

    def result(self, a: Array) -> Array:
        """Return a factor in the form that the user receives."""

    def whole(self) -> Any | None:
        """Return X itself if it is one array, else None."""

    def sweeps(self, size: int, k: int) -> int:
        """Return the number of coordinate sweeps per product for rows with ``size`` entries."""


class DataMatrix(Products, Placement, Protocol):
    """A back end: products with X, and conversion of all other arrays."""


class Weighed(NamedTuple):
    """X with weights w of its entries; d is the largest weight of each row."""

    base: DataMatrix  # w ∘ X
    lack: DataMatrix  # d1ᵀ - w
    d: Array
    squares: Array  # Σ_j w x²
    logs: Array  # Σ_j w x log x


@dataclass(frozen=True)
class BackEnd:
    """Functions for one kind of array, used before X is wrapped as a `DataMatrix`.

    numpy and scipy arrays need none of them.
    """

    kind: str  # name of such arrays in messages
    home: str  # how a user converts such an array to numpy
    check: Callable[[Any, str], Any]  # returns X with a float dtype, or raises with row and column
    wrap: Callable[[Any], DataMatrix]  # returns the checked X as a back end
    # raises the errors that must come before those of ``check``
    look: Callable[[Any], None] = lambda X: None
    #: Function of X, the missing value and the name in errors. It returns X without missing
    #: entries, a matrix that marks entries, and whether the marked entries are the observed ones.
    #: None if missing values are not supported.
    gaps: Callable[[Any, float, str], tuple[DataMatrix, DataMatrix, bool]] | None = None
    #: Function of X, weights of its entries (n, p), and the missing value or None. It returns w ∘
    #: X, the difference between the largest weight of each row and w, this largest weight, and the
    #: row sums of w x² and w x log x.
    weighed: Callable[[Any, Array, float | None], Weighed] | None = None
    #: Converts an ndarray or CSR matrix with weights of entries to a back end on the device of X.
    bring: Callable[[Any, Any], DataMatrix] | None = None


class Swept:
    """Base class with the number of sweeps of Gillis & Glineur (2012).

    Sweeps may take half the time of the preceding product with X.
    """

    density: float
    dtype: Any
    lack: Any | None = None
    curved = ""
    row_sq_norms: Callable[[], Array]
    row_sq_residuals: Callable[[Array, Array], Array]
    mass: float | None = None  # total weight of the rows; None if each row has weight one

    @property
    def given(self) -> Any:
        """The dtype of the user's X, and of the returned factors."""
        return self.dtype

    def expect(self, product: str, factor: Array) -> None:
        """Do nothing, since this back end computes no product in advance."""

    def weighing(self, weights: Array | None, n: int) -> Self:
        """Store the total weight of n rows, and return this object."""
        self.mass = float(n if weights is None else weights.sum())
        return self

    def model_floor(self, row_sums: Array, p: int) -> float:
        """Return the smallest denominator VUᵀ of a ratio.

        It is far below the mean of X, and its inverse square is finite. The mean is that of X
        before weights, since VUᵀ does not contain weights.
        """
        mass = row_sums.shape[0] if self.mass is None else self.mass
        mean = float(row_sums.sum()) / max(mass * p, 1e-300)
        return max(mean * (1e-30 if self.dtype == np.float64 else 1e-12), floor(self.dtype))

    def newton_pays(self, k: int) -> bool:
        return True

    def filled(self) -> Any:
        return self

    def whole(self) -> Any | None:
        """Return X itself if it is one array in memory or a file, else None."""
        return None

    def kl_tdot_log(self, V: Array, U: Array) -> tuple[Array, float] | None:
        return None

    def row_divergences(self, V: Array, U: Array) -> Array | None:
        return None

    def _absent(self, *args: Any) -> Any:
        raise NotImplementedError("this back end lacks the product; callers check that before")

    row_powers = beta_dot = beta_tdot = kl_curvature = _absent

    sweeps = sweeps_per_product

    def total_squares(self, V: Array | None = None, U: Array | None = None) -> float:
        """Return ‖X‖², or ‖X - V Uᵀ‖²."""
        rows = self.row_sq_norms() if V is None or U is None else self.row_sq_residuals(V, U)
        return float(rows.sum())


class InNumpy(Swept):
    """Mixin for back ends whose factors are numpy arrays, which need no conversion."""

    newton_sides = "VU"
    shape: tuple[int, int]
    dtype: Any

    rows = small = result = operator = staticmethod(to_numpy)

    def constant_rows(self, row: AnyArray) -> AnyArray:
        return np.tile(to_numpy(row), (self.shape[0], 1))

    def mean_rows(self, shared: Any, V: AnyArray) -> AnyArray:
        return shared.mean(V)

    def expand_rows(self, shared: Any, Z: AnyArray) -> AnyArray:
        return shared.expand(Z)


def check_values(
    values: AnyArray, estimator_name: str, place: Any = None, *, before: int = 0
) -> None:
    """Raise if an entry is NaN, infinite or negative, and name its row and column.

    ``place`` maps the position of an entry to them, for example in a sparse matrix. ``before`` is
    the number of rows before the first one of ``values``.
    """
    xp = namespace(values)
    if not values.shape[0] or (float(xp.min(values)) >= 0 and float(xp.max(values)) < np.inf):
        return
    flat = xp.reshape(values, (-1,))
    bad = ~xp.isfinite(flat)
    finite = not bool(xp.any(bad))
    at = int(xp.argmin(flat) if finite else xp.argmax(cast(bad, np.int32)))
    row, column = divmod(at, values.shape[1]) if place is None else place(at)
    value, row = float(flat[at]), before + row
    if not finite:
        raise ValueError(
            f"Input X contains NaN or infinity: {value} at row {row}, column {column}. {GAPS}"
        )
    raise ValueError(
        f"Negative values in data passed to {estimator_name}: the lowest is {value:g} at row "
        f"{row}, column {column}; SemiNMF, CF and LCF accept negative values."
    )


def refuse_anndata(X: Any) -> None:
    """Raise an error that lists the functions that accept an AnnData object."""
    kind = type(X)
    if kind.__name__ in ("AnnData", "Raw") and kind.__module__.partition(".")[0] == "anndata":
        raise TypeError(
            "X is an AnnData object; pass adata.X or a layer, or use "
            "partwise.cells.factorize(adata, ...), which adds the results to obsm and varm, as do "
            "cells.consensus, cells.classify and cells.project."
        )
