"""Private names of scikit-learn that Partwise uses; check each new version.

`Interval` and `StrOptions` define the valid values of a parameter (``_parameter_constraints``). Two
functions are the checks of scikit-learn's estimators for sample weights and the number of features.
They are needed for arrays that `validate_data` does not support. `num_samples` returns the number
of samples of any container.
"""

from __future__ import annotations

from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_n_features as check_n_features
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_samples

__all__ = ["Interval", "StrOptions", "check_n_features", "check_sample_weight", "num_samples"]
