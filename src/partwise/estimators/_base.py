"""What all estimators share: parameters, and what is done with a fitted one."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from os import PathLike
from typing import Any

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from partwise._sklearn import Interval, StrOptions
from partwise.backends.numeric import Array
from partwise.estimators._docstrings import documented
from partwise.fitting import Description, validation
from partwise.fitting.callbacks import CallbackSupportMixin
from partwise.fitting.new_samples import code
from partwise.model.losses import NAMES
from partwise.solvers.init import INITS
from partwise.solvers.steps import STEPS

#: With a number for any other β.
LOSS = [StrOptions(set(NAMES)), Interval(Real, None, None, closed="neither")]


@documented
class Factorizer(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator
):
    """Base of the estimators X ≈ V S Uᵀ. A subclass says what it minimises: `_describe`."""

    _parameter_constraints: dict[str, Any] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None, StrOptions({"auto"})],
        "init": [StrOptions(set(INITS)), None],
        "solver": [StrOptions({"auto", "cd", *STEPS})],
        "beta_loss": LOSS,
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "device": [str, None],
        "checkpoint": [str, PathLike, None],
        "missing_values": [Real, None],
        "fixed_components": ["array-like", None],
        "seed_components": ["array-like", None],
        "must_link_reg": [Interval(Real, 0, None, closed="left"), None],
        "cannot_link_reg": [Interval(Real, 0, None, closed="left")],
    }

    # for estimators that have no such parameter; those that do set it in their constructor
    verbose: int = 0
    max_iter: int = Description.max_iter
    device: str | None = None
    missing_values: float | None = None

    def _describe(self) -> Description:
        """What is minimised and how; a subclass replaces what its parameters do not say."""
        names = [f.name for f in fields(Description) if hasattr(self, f.name)]
        return Description(type(self).__name__, **{name: getattr(self, name) for name in names})

    def transform(self, X: Any) -> Array:
        """Code new samples: V >= 0 with the basis fixed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Non-negative samples.

        Returns
        -------
        V : ndarray of shape (n_samples, n_components)
        """
        return self._plain_transform(X)

    def _plain_transform(self, X: Any, graph: Any = None) -> Array:
        """`transform` without the wrapping of set_output."""
        check_is_fitted(self)
        return code(self, X, graph).codes

    def inverse_transform(self, X: Any) -> Array:
        """V back to the samples' space: V S H.

        Parameters
        ----------
        X : {ndarray, sparse matrix} of shape (n_samples, n_components)

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        H, delta = self.components_, self._describe().smoothing
        if delta:
            H = (1 - delta) * H + delta * H.mean(axis=0, keepdims=True)
        return validation.check_codes(X, self._n_features_out) @ H

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the objective of `transform` per sample (higher is better), penalties included.

        It compares starts, solvers and numbers of parts. Between weights of a penalty it says
        nothing: the smallest always scores best, since codes are made anew.
        """
        return self._score(X)

    def _score(self, X: Any, graph: Any = None) -> float:
        check_is_fitted(self)
        coded = code(self, X, graph)
        return -coded.value / coded.model.data.shape[0]

    def save(self, path: Any) -> Any:
        """Write the model to a file, for `partwise.load`: JSON and arrays, no pickle."""
        from partwise.estimators import saving

        return saving.save(self, path)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing_values is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
