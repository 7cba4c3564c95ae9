"""What is used of scikit-learn and is not public: one place to look at for its next version.

`Interval` and `StrOptions` say what values a parameter may have (``_parameter_constraints``); the
two checks are those of its own estimators for sample weights, and for the number of features where
X is of a back end that `validate_data` does not know.
"""

from __future__ import annotations

from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_n_features as check_n_features
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = ["Interval", "StrOptions", "check_n_features", "check_sample_weight"]
