"""Table of the methods that the command, model files, documentation and tests use.

What a method can do is not listed here, because its estimator defines it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # mypy and editors need these for ``from partwise import NAME``
    from partwise.estimators.ansnmf import AnsNMF as AnsNMF
    from partwise.estimators.cdnmf import CDNMF as CDNMF
    from partwise.estimators.cf import CF as CF
    from partwise.estimators.cf import LCF as LCF
    from partwise.estimators.cnmf import CNMF as CNMF
    from partwise.estimators.constrained import ConstrainedNMF as ConstrainedNMF
    from partwise.estimators.gnmf import GNMF as GNMF
    from partwise.estimators.gnmf import SemiGNMF as SemiGNMF
    from partwise.estimators.lpcnmf import LpCNMF as LpCNMF
    from partwise.estimators.minibatch import MiniBatchNMF as MiniBatchNMF
    from partwise.estimators.nmf import NMF as NMF
    from partwise.estimators.nmfdc import NMFDC as NMFDC
    from partwise.estimators.nmfdc import NSNMF as NSNMF
    from partwise.estimators.ntf import NTF as NTF
    from partwise.estimators.semi_nmf import SemiNMF as SemiNMF
    from partwise.estimators.sparse_nmf import SparseNMF as SparseNMF
    from partwise.estimators.sym_nmf import SymNMF as SymNMF

#: Module of each estimator. Model files may contain only these and registered estimators.
ESTIMATORS = {
    "NMF": "partwise.estimators.nmf",
    "GNMF": "partwise.estimators.gnmf",
    "SemiGNMF": "partwise.estimators.gnmf",
    "CNMF": "partwise.estimators.cnmf",
    "LpCNMF": "partwise.estimators.lpcnmf",
    "CDNMF": "partwise.estimators.cdnmf",
    "NMFDC": "partwise.estimators.nmfdc",
    "NSNMF": "partwise.estimators.nmfdc",
    "AnsNMF": "partwise.estimators.ansnmf",
    "ConstrainedNMF": "partwise.estimators.constrained",
    "SemiNMF": "partwise.estimators.semi_nmf",
    "SymNMF": "partwise.estimators.sym_nmf",
    "CF": "partwise.estimators.cf",
    "LCF": "partwise.estimators.cf",
    "SparseNMF": "partwise.estimators.sparse_nmf",
    "MiniBatchNMF": "partwise.estimators.minibatch",
    "NTF": "partwise.estimators.ntf",
    "PartsClassifier": "partwise.classify.parts_classifier",
    "MultilabelClassifier": "partwise.classify.multilabel",
}


@dataclass(frozen=True)
class Method:
    """A method of the command: name, estimator with settings, and when to use it."""

    name: str
    estimator: str
    when: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    square: bool = False  # X is a similarity matrix

    @cached_property
    def cls(self) -> Any:
        """Class of the estimator, imported on first access."""
        return getattr(importlib.import_module(ESTIMATORS[self.estimator]), self.estimator)

    @cached_property
    def _description(self) -> Any:
        """`Description` of the estimator, or None for the classifier."""
        return None if self.names else self.cls(**self.settings)._describe()

    @property
    def in_python(self) -> str:
        """Python expression that creates the estimator, as text."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{self.estimator}({inside})"

    @property
    def names(self) -> bool:
        """True if the method predicts class labels instead of forming clusters."""
        return self.estimator == "PartsClassifier"

    @property
    def uses_labels(self) -> bool:
        """True if the method needs class labels."""
        return self.names or bool(self._description.uses_labels)

    @property
    def signed(self) -> bool:
        """True if the method accepts an X with negative values."""
        return self.names or bool(self._description.signed)

    @property
    def images(self) -> bool:
        """True if the samples of the method must be greyscale images."""
        return "image_shape" in inspect.signature(self.cls).parameters

    @property
    def links(self) -> bool:
        """True if the method uses must-links and cannot-links."""
        takes = "must_link" in inspect.signature(self.cls.fit).parameters
        return takes and not self._description.mixed_labels

    @property
    def in_memory(self) -> bool:
        """True if the method loads an X that is on disk into memory."""
        return not self.names and (self.signed or self.square or self.images)

    def make(self, n_components: int | None, *, n_clusters: int, seed: int, **more: Any) -> Any:
        """Return a new estimator of this method with the given settings."""
        if self.names:
            return self.cls(n_components or "auto", random_state=seed, **more)
        settings = {"n_clusters": n_clusters, "random_state": seed, **self.settings, **more}
        return self.cls(n_components, **settings)


KL = {"beta_loss": "kullback-leibler"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "classify",
            "PartsClassifier",
            "one or more labels per class; class labels for all samples, with probabilities",
        ),
        Method("nmf", "ConstrainedNMF", "no labels; plain components, the fastest method"),
        Method(
            "nmf-kl",
            "ConstrainedNMF",
            "no labels; counts, by Kullback-Leibler",
            KL,
        ),
        Method(
            "nmf-robust",
            "ConstrainedNMF",
            "no labels; data with outlying samples",
            {"beta_loss": "l21"},
        ),
        Method("nsnmf", "NSNMF", "no labels; small, separate components"),
        Method(
            "ansnmf",
            "AnsNMF",
            "no labels; sparse components, adaptive smoothing",
        ),
        Method(
            "sparse-nmf",
            "SparseNMF",
            "no labels; components of a given sparseness",
            {"sparseness_H": 0.6},
        ),
        # The default is λ = 1, although the paper uses 100. The mean accuracy on seven data sets is
        # then 77% instead of 74%, because small classes (Yale, ORL) suffer less from edges between
        # classes.
        Method("gnmf", "GNMF", "no labels; neighbouring samples are similar", {"graph_reg": 1.0}),
        Method("cf", "CF", "negative values; components are mixtures of samples"),
        Method("lcf", "LCF", "negative values; components are mixtures of nearby samples"),
        Method(
            "seminmf",
            "SemiNMF",
            "negative values, also in components; neighbouring samples are similar",
            {"graph_reg": 1.0},
        ),
        Method("symnmf", "SymNMF", "no labels; a square similarity matrix or a graph", square=True),
        Method("ntf", "NTF", "no labels; greyscale images, components from rows and columns"),
        Method("cnmf", "CNMF", "several labels per class, all of them correct"),
        Method("nmfdc", "NMFDC", "several labels per class; small, separate components"),
        Method("cdnmf", "CDNMF", "one or more labels per class; each class has its own components"),
        Method("cdnmf-kl", "CDNMF", "one or more labels per class; counts", KL),
        Method("lpcnmf", "LpCNMF", "one or more labels per class, spread over neighbours"),
        Method("semignmf", "SemiGNMF", "labels add edges to the neighbour graph"),
        Method(
            "combined",
            "ConstrainedNMF",
            "one or more labels per class; neighbouring samples are similar",
            {"class_reg": 1.0, "graph_reg": 1.0},
        ),
    )
}
