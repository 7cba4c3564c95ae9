"""What a person wants done with parts, and the codes that follow from it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.classify.features import Features
from partwise.classify.parts_classifier import PartsClassifier
from partwise.fitting.solving import few_iterations_will_do

if TYPE_CHECKING:
    from partwise.apps.studio.answers import Opinion

#: Cost of using a forbidden part, in units of the mean product of a sample with a part.
FORBIDDEN = 10.0
#: How far the halves of a split part begin from each other.
APART = 0.5
MOST_NAME = 200


@dataclass
class Wishes:
    """What was asked for so far, by the numbers that parts have now."""

    names: dict[int, str] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    forbidden: set[tuple[int, str]] = field(default_factory=set)

    def content(self) -> dict[str, Any]:
        """As JSON has it, for `kept`."""
        return {
            "names": sorted(self.names.items()),
            "frozen": sorted(self.frozen),
            "forbidden": sorted(self.forbidden),
        }

    @classmethod
    def kept(cls, content: Mapping[str, Any]) -> Wishes:
        return cls(
            {int(j): str(name) for j, name in content.get("names", ())},
            {int(j) for j in content.get("frozen", ())},
            {(int(j), str(name)) for j, name in content.get("forbidden", ())},
        )

    def renamed(self, old: str, new: str) -> Wishes:
        """The same wishes after a class got another name."""
        forbidden = {(j, new if name == old else name) for j, name in self.forbidden}
        return Wishes(self.names, self.frozen, forbidden)

    def moved(self, where: Mapping[int, int]) -> Wishes:
        """The same wishes after parts were renumbered; those of a part that is gone are gone."""
        return Wishes(
            {where[j]: name for j, name in self.names.items() if j in where},
            {where[j] for j in self.frozen if j in where},
            {(where[j], name) for j, name in self.forbidden if j in where},
        )


def checked(words: Mapping[str, Any], n_parts: int, classes: Sequence[str]) -> dict[str, Any]:
    """A wish as the page sent it, checked."""
    what, part = words.get("do"), words.get("part")
    if what not in ("name", "freeze", "thaw", "merge", "split", "forbid"):
        raise ValueError("A part can be named, frozen, thawed, merged, split or forbidden.")
    if not isinstance(part, int) or isinstance(part, bool) or not 0 <= part < n_parts:
        raise ValueError(f"There is no part {part!r}.")
    wish: dict[str, Any] = {"do": what, "part": part}
    if what == "name":
        name = words.get("name")
        name = " ".join(name.split()) if isinstance(name, str) else ""
        if not name or len(name) > MOST_NAME or not name.isprintable():
            raise ValueError(f"A part's name has 1 to {MOST_NAME} characters that can be printed.")
        wish["name"] = name
    if what == "merge":
        other = words.get("with")
        if not isinstance(other, int) or isinstance(other, bool):
            other = -1
        if not 0 <= other < n_parts or other == part:
            raise ValueError("A part is merged with another part.")
        wish["with"] = other
    if what == "forbid":
        if words.get("class") not in classes:
            raise ValueError(f"There is no class {words.get('class')!r}.")
        wish["class"] = words["class"]
    return wish


def noted(wishes: Wishes, wish: Mapping[str, Any]) -> bool:
    """Note a wish; whether the codes must be computed anew for it."""
    part = int(wish["part"])
    if wish["do"] == "name":
        wishes.names[part] = wish["name"]
    elif wish["do"] == "freeze":
        wishes.frozen.add(part)
    elif wish["do"] == "thaw":
        wishes.frozen.discard(part)
    elif wish["do"] == "forbid":
        wishes.forbidden.add((part, wish["class"]))
    return wish["do"] in ("merge", "split", "forbid")


def edited(
    V: NDArray[Any], H: NDArray[Any], wish: Mapping[str, Any], wishes: Wishes
) -> tuple[NDArray[Any], NDArray[Any], Wishes]:
    """Codes, parts and wishes after a merge or a split; parts keep their order."""
    part, k = int(wish["part"]), len(H)
    if wish["do"] == "merge":
        other = int(wish["with"])
        use = V.sum(axis=0)
        whole = use[part] + use[other] or 1.0
        H, V = H.copy(), V.copy()
        H[part] = (use[part] * H[part] + use[other] * H[other]) / whole
        V[:, part] += V[:, other]
        stay = [j for j in range(k) if j != other]
        where = {j: i for i, j in enumerate(stay)}
        return V[:, stay], H[stay], wishes.moved(where)
    if wish["do"] == "split":
        tilt = APART * np.random.default_rng(part).uniform(-1, 1, H.shape[1])
        halves = [H[part] * (1 + tilt), H[part] * (1 - tilt)]
        H = np.vstack([H[:part], *halves, H[part + 1 :]])
        code = V[:, [part]] / 2
        V = np.hstack([V[:, :part], code, code, V[:, part + 1 :]])
        where = {j: j if j <= part else j + 1 for j in range(k) if j != part}
        return V, H, wishes.moved(where)
    return V, H, wishes


def recoded(
    model: PartsClassifier,
    V: NDArray[Any],
    H: NDArray[Any],
    wishes: Wishes,
    opinion: Opinion,
) -> PartsClassifier:
    """The classifier with codes computed anew from these, under the wishes, without labels."""
    features = model._features
    P = features.preparation.parts_input(features.P)
    order = sorted(range(len(H)), key=lambda j: j not in wishes.frozen)  # known parts come first
    back = np.argsort(order)
    V, H = _factorized(features, P, V[:, order], H[order], wishes, order, opinion)
    return replaced(model, features, V[:, back], H[back])


def _factorized(
    features: Features,
    P: Any,
    V: NDArray[Any],
    H: NDArray[Any],
    wishes: Wishes,
    order: Sequence[int],
    opinion: Opinion,
) -> tuple[NDArray[Any], NDArray[Any]]:
    from partwise.estimators.constrained import ConstrainedNMF
    from partwise.terms import Linear

    cost = np.zeros_like(V)
    for part, name in wishes.forbidden:
        if name in opinion.classes:
            rows = opinion.names == opinion.classes.index(name)
            cost[rows, order.index(part)] = FORBIDDEN * float(np.mean(np.asarray(P @ H.T)))
    n_fixed = len(wishes.frozen)
    estimator = ConstrainedNMF(
        len(H),
        graph_reg=features.graph_reg,
        init="custom",
        max_iter=100,
        terms=[Linear(cost)] if cost.any() else None,
        fixed_components=H[:n_fixed] if n_fixed else None,
    )
    low = 1e-3 * float(V.mean())  # a start at zero stays there for long
    with few_iterations_will_do():
        estimator.fit(P, graph=sp.csr_array(features.graph), W=np.maximum(V, low), H=H)
    return np.asarray(estimator.embedding_), np.asarray(estimator.components_)


def replaced(
    model: PartsClassifier, features: Features, V: NDArray[Any], H: NDArray[Any]
) -> PartsClassifier:
    """A copy of the classifier with other codes and parts."""
    new = copy.copy(model)
    made = copy.copy(features)
    made.V, made.H = V, H
    made.shift, made.scale = {}, {}
    smooth = features.views["smooth"]
    made.views = made._views(V, features.plain, smooth)
    new._state = {**model._state, "features": made.state()}
    new._state.pop("answer", None)  # its heads were for other codes
    new._cache = {}
    new.embedding_, new.n_components_ = V, V.shape[1]
    new.components_ = features.preparation.components(H)
    return new
