"""The methods, a row each: what the command, model files, documentation and tests read.

What a method can do is not written here: it follows from the estimator itself.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what mypy and editors know by ``from partwise import NAME``
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

#: Every estimator and the module that has it; also what a model file may name.
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
}


@dataclass(frozen=True)
class Method:
    """A name on the command line, the estimator behind it with its settings, and when to use it."""

    name: str
    estimator: str
    when: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    square: bool = False  # X is a table of similarities

    @cached_property
    def cls(self) -> Any:
        """The estimator's class, imported when it is asked for."""
        return getattr(importlib.import_module(ESTIMATORS[self.estimator]), self.estimator)

    @cached_property
    def _description(self) -> Any:
        return None if self.names else self.cls(**self.settings)._describe()

    @property
    def in_python(self) -> str:
        """How it is called in Python."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{self.estimator}({inside})"

    @property
    def names(self) -> bool:
        """Whether it names samples by their class, instead of forming clusters."""
        return self.estimator == "PartsClassifier"

    @property
    def uses_labels(self) -> bool:
        """Whether it is of no use without labels."""
        return self.names or bool(self._description.uses_labels)

    @property
    def signed(self) -> bool:
        """Whether values may be negative."""
        return self.names or bool(self._description.signed)

    @property
    def images(self) -> bool:
        """Whether samples must be grey images."""
        return "image_shape" in inspect.signature(self.cls).parameters

    @property
    def links(self) -> bool:
        """Whether pairs that belong together or apart steer it."""
        takes = "must_link" in inspect.signature(self.cls.fit).parameters
        return takes and not self._description.mixed_labels

    @property
    def in_memory(self) -> bool:
        """Whether it loads an X that lies on disk."""
        return not self.names and (self.signed or self.square or self.images)

    def make(self, n_components: int | None, *, n_clusters: int, seed: int, **more: Any) -> Any:
        """The estimator."""
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
            "a label or more a class; names for all samples, with probabilities",
        ),
        Method("nmf", "ConstrainedNMF", "no labels; the plain parts, fastest of all"),
        Method("nmf-kl", "ConstrainedNMF", "no labels; counts, by Kullback-Leibler", KL),
        Method(
            "nmf-robust",
            "ConstrainedNMF",
            "no labels; some samples are outliers",
            {"beta_loss": "l21"},
        ),
        Method("nsnmf", "NSNMF", "no labels; small, separate parts"),
        Method(
            "ansnmf", "AnsNMF", "no labels; sparse parts and codes, mixed by a matrix of its own"
        ),
        Method(
            "sparse-nmf",
            "SparseNMF",
            "no labels; parts of a given sparseness",
            {"sparseness_H": 0.6},
        ),
        # λ = 1 instead of the paper's 100: over seven sets the mean accuracy is 0.77 and not 0.74,
        # and small classes (Yale, ORL) suffer less where the graph is wrong
        Method("gnmf", "GNMF", "no labels; neighbours belong together", {"graph_reg": 1.0}),
        Method("cf", "CF", "negative values; parts are mixtures of samples"),
        Method("lcf", "LCF", "negative values; parts are nearby samples"),
        Method(
            "seminmf",
            "SemiNMF",
            "negative values; parts may have them too, neighbours belong together",
            {"graph_reg": 1.0},
        ),
        Method(
            "symnmf", "SymNMF", "no labels; a square table of similarities or a graph", square=True
        ),
        Method("ntf", "NTF", "no labels; grey images, parts with rows and columns"),
        Method("cnmf", "CNMF", "several labels a class, all of them right"),
        Method("nmfdc", "NMFDC", "several labels a class; small, separate parts"),
        Method("cdnmf", "CDNMF", "a label or more a class; each class gets its own parts"),
        Method("cdnmf-kl", "CDNMF", "a label or more a class; counts", KL),
        Method("lpcnmf", "LpCNMF", "a label or more a class, spread over neighbours"),
        Method("semignmf", "SemiGNMF", "labels join the neighbour graph"),
        Method(
            "combined",
            "ConstrainedNMF",
            "a label or more a class, and neighbours belong together",
            {"class_reg": 1.0, "graph_reg": 1.0},
        ),
    )
}
