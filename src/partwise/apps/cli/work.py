"""Common steps of commands: read the data, choose a method, fit and score."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.preprocessing import normalize

from partwise.apps.cli.auto_method import choose, profile
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.apps.view.describe import number_like_parts
from partwise.estimators.methods import METHODS, Method
from partwise.evaluation.kmeans import Clustering, cluster_representation
from partwise.evaluation.metrics import adjusted_rand, clustering_accuracy, normalized_mutual_info
from partwise.io import Samples, keep_share, read_samples
from partwise.io.colours import choose_colour
from partwise.io.known_parts import read_known, read_topics
from partwise.io.label_files import read_links
from partwise.knowledge.labels import encode_labels

#: Expected seconds of a fit above which the command prints them.
LONG = 30
#: Cosine similarity above which a note reports that two parts are nearly equal.
SAME = 0.98
#: Cosine similarity between a part and its seed topic below which a note reports that the fit has
#: left the topic.
STILL = 0.5


@dataclass
class Task:
    """Data of a command, with the labels that a model may use."""

    samples: Samples
    given: np.ndarray | None
    seconds: float
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    choice: Any = None  # result of -k auto
    part_names: list[str] = field(default_factory=list)  # after the fit, in the order of the parts
    # arguments must_link and cannot_link of `fit`
    links: dict[str, Any] = field(default_factory=dict)
    label_share: float | None = None

    @property
    def classes(self) -> list[str]:
        """Sorted classes of the given labels."""
        return [] if self.given is None else sorted({v for v in self.given if v is not None})

    @property
    def n_labelled(self) -> int:
        """Number of labelled samples."""
        return 0 if self.given is None else sum(label is not None for label in self.given)


@dataclass
class Fitted:
    """A fitted model, its method, the reason for the method, and the duration.

    ``seconds`` is the elapsed time. ``computing`` is the processor time, if that is less.
    """

    model: Any
    method: str
    reason: str
    seconds: float
    computing: float


def read_task(asked: Asked, bar: Bar) -> Task:
    """Return the data of a command, with the labels that a model may use."""
    began = time.perf_counter()
    reading, share = dict(asked.reading), asked.label_share
    undecided = "rgb" in reading and reading["rgb"] is None
    method = METHODS.get(asked.method)
    if method is not None and method.square and reading.get("scale", "auto") == "auto":
        # scaling the rows of a similarity matrix would make it asymmetric
        reading["scale"] = "none"
    reading["rgb"] = bool(reading.get("rgb"))
    settings = reading.pop("settings", {})
    samples = read_samples(asked.data, step=bar.step, **reading)
    chosen = reading.get("labels") is not None or reading.get("label_column") is not None
    given, notes = samples.y if chosen else None, []  # type: Any, list[str]
    if share is not None:
        if samples.y is None:
            raise ValueError(
                f"--label-share needs labels, and {asked.data} has none; pass --labels FILE or "
                "--label-column NAME, or use sub-folders named after their class."
            )
        given = keep_share(samples.y, share, random_state=asked.seed)
    elif samples.y is not None and not chosen:
        notes.append(
            "The labels in the data only measure the result; 'partwise classify --label-share 0.1' "
            "learns from a tenth of them."
        )
    if undecided:
        samples, _ = choose_colour(samples, given, step=bar.step)
    seconds = time.perf_counter() - began
    return Task(samples, given, seconds, [*samples.notes, *notes], settings, label_share=share)


def know(task: Task, asked: Asked) -> int | str | None:
    """Add the parts of --known and --seed-words to the task.

    Return the value of -k. Without labels and -k, it is the number of these parts.
    """
    samples = task.samples
    if asked.links is not None:
        _read_links(task, asked.links)
    for path, read, setting in (
        (asked.known, read_known, "fixed_components"),
        (asked.seed_words, read_topics, "seed_components"),
    ):
        if path is not None:
            found = read(path, samples)
            task.settings[setting] = found.H.astype(samples.X.dtype)
            task.notes.extend(found.notes)
            task.part_names += found.names
    names = task.part_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"--known and --seed-words both contain a part called {twice!r}.")
    size = asked.parts or asked.k
    if isinstance(size, int) and size < len(names):
        option = "--parts" if asked.parts else "-k"
        raise ValueError(
            f"{option} {size} is less than the {len(names)} parts of --known and --seed-words."
        )
    return len(names) if asked.k is None and names and not task.classes else asked.k


def _read_links(task: Task, path: Path) -> None:
    """Add the linked pairs of samples in the --links file to the task."""
    samples = task.samples
    if samples.unjoinable:
        raise ValueError(f"{path}: ids cannot be matched: {samples.unjoinable}")
    task.links = read_links(path, samples.ids)
    counts = (len(task.links[name]) for name in ("must_link", "cannot_link"))
    task.notes.append("{} must-links and {} cannot-links.".format(*counts))
    if samples.ids == [str(i) for i in range(samples.n_samples)]:
        task.notes.append(f"The ids of {path.name} were taken as row numbers from 0.")


def n_clusters(task: Task, asked: Asked, bar: Bar, *, k: int | str | None) -> int:
    """Return the number of clusters: -k, or the number of classes.

    With "-k auto", it is chosen by the error at hidden entries.
    """
    if isinstance(k, str):
        from partwise.apps.cli.choose import auto_k

        task.choice = auto_k(task, asked, bar)
        k = int(task.choice.k)
    n, classes = task.samples.n_samples, len(task.classes)
    if k is None and not classes:
        named = len({*(task.samples.y if task.samples.y is not None else ())} - {None})
        hint = f" (the data has labels of {named} classes: try -k {named})" if named else ""
        raise ValueError(
            f"Pass the number of clusters with -k, since there are no labels{hint}; -k auto "
            "chooses it."
        )
    k = k or classes
    if k > n:
        raise ValueError(f"-k {k} is more than the {n} samples.")
    return k


def find_method(name: str) -> Method:
    """Return the method with this name, or raise an error that lists all names."""
    if name not in METHODS:
        raise ValueError(f"Unknown method {name!r}. Choose one of: auto, {', '.join(METHODS)}.")
    return METHODS[name]


def build(task: Task, name: str, asked: Asked, k: int, **other: int | None) -> tuple[Any, str, str]:
    """Return the estimator of a method, its name and the reason for it.

    ``other`` are values of options that replace those of ``asked``.
    """
    asked = Asked(**{**vars(asked), **other})
    samples = task.samples
    found = profile(samples.X, task.given, kind=samples.kind)
    reason = f"{name}, as requested."
    if name == "auto" and task.links:
        name, reason = "gnmf", "gnmf: links between samples are kept by clusters of their codes."
    if name == "auto":
        # A classifier has no parts per class and no named parts, so it is not chosen if these are
        # set.
        whole = task.settings.get("components_per_class") is None and not task.part_names
        choice = choose(found, k if whole else found.n_samples + 1)
        name, reason = choice.method, choice.reason
    method = find_method(name)
    _check_method(task, method, found.lowest)
    more = {"image_shape": samples.image_shape} if method.images else {}
    if isinstance(samples.X, np.memmap) and method.in_memory:
        task.notes.append(
            f"{name} loads the whole matrix ({samples.X.nbytes / 1e9:.1f} GB); "
            f"{_able('in_memory', value=False)} read it by blocks."
        )
    size = _n_parts(task, method, k) if asked.parts is None else asked.parts
    model = method.make(size, n_clusters=k, seed=asked.seed, max_iter=asked.max_iter, **more)
    return _with_settings(model, name, task.settings), name, reason


def _able(what: str, *, value: bool = True) -> str:
    """Return the names of the methods that have a property, separated by commas."""
    return ", ".join(m.name for m in METHODS.values() if bool(getattr(m, what)) is value)


def _check_method(task: Task, method: Method, lowest: float) -> None:
    """Raise ValueError if the method cannot use this data."""
    samples, option = task.samples, f"--method {method.name}"
    if task.links and not method.links:
        raise ValueError(f"{option} does not support --links; {_able('links')} do.")
    if method.uses_labels and not task.n_labelled:
        raise ValueError(
            f"{option} needs labels: use 'partwise classify' with --labels, --label-column "
            "or --label-share. Without labels, --method auto chooses a method that needs none."
        )
    if lowest < 0 and not method.signed:
        raise ValueError(
            f"{option} does not support negative values, and the data contains some (the lowest is "
            f"{lowest:.3g}); {_able('signed')} do."
        )
    grey = samples.image_shape is not None and len(samples.image_shape) == 2
    if method.images and (not grey or samples.is_sparse):
        raise ValueError(f"{option} supports greyscale images only; pass --grey.")


def _n_parts(task: Task, method: Method, k: int) -> int | None:
    """Return the default number of parts; None for a classifier, which chooses it."""
    if method.names:
        return None
    per_class = task.settings.get("components_per_class")
    if per_class or method.settings.get("class_reg") or method.estimator == "CDNMF":
        return int(per_class or 1) * max(k, len(task.classes))  # every class needs a part
    return max(k, len(task.part_names))


def _with_settings(model: Any, name: str, settings: dict[str, Any]) -> Any:
    """Return the model with the parameters that the user set with --set."""
    known = model.get_params(deep=False)
    for key in settings:
        if key not in known and key in ("fixed_components", "seed_components"):
            option = "--known" if key == "fixed_components" else "--seed-words"
            raise ValueError(
                f"--method {name} cannot start from given parts, which {option} needs; nmf, "
                "nmf-kl, gnmf and nsnmf can, and with labels cnmf, cdnmf and combined."
            )
        if key not in known:
            raise ValueError(
                f"--method {name} has no parameter {key!r}; it has {', '.join(known)}."
            )
    return model.set_params(**settings)


@contextmanager
def as_notes(notes: list[str]) -> Iterator[None]:
    """Collect the warnings of the library as notes, each only once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield
    for warning in caught:
        text = " ".join(str(warning.message).split())
        if text not in notes:
            notes.append(text)


def beside(model: Any, samples: Samples) -> dict[str, Any]:
    """Return the embeddings as argument of `fit` if there are any.

    Raise an error if the model cannot combine them with the data.
    """
    if samples.also is None:
        return {}
    if not hasattr(model, "relabel"):  # only classifiers have this method
        raise ValueError(
            f"{type(model).__name__} cannot combine embeddings with the data. Use "
            "--embeddings-only to use the embeddings alone, or --method classify (with labels) to "
            "use both."
        )
    return {"also": [samples.also]}


def fit(task: Task, model: Any, name: str, reason: str, bar: Bar) -> Fitted:
    """Return the model fitted to the data of a command."""
    began, used = time.perf_counter(), time.process_time()
    done = bar.watch(model, f"fitting {name}")
    if hasattr(model, "relabel"):  # a classifier has no iterations to show
        seconds, memory = classifier_cost(task.samples.X)
        bar.start(f"fitting {name}", seconds=seconds)
        if seconds >= LONG:
            bar.note(
                f"Fitting {task.samples.n_samples:,} samples takes about {duration(seconds)} on "
                f"two cores, and {memory / 1e9:.1f} GB of memory."
            )
    try:
        with as_notes(task.notes):
            model.fit(task.samples.X, task.given, **task.links, **beside(model, task.samples))
    finally:
        done()
    _find_topics(task, model)
    with as_notes(task.notes):
        _regroup(task, model)
    if not hasattr(model, "predict_proba"):  # a classifier's parts are not results by themselves
        task.notes += same_parts(getattr(model, "components_", None))
    seconds, computing = time.perf_counter() - began, time.process_time() - used
    return Fitted(model, name, reason, seconds, min(seconds, computing))


def classifier_cost(X: Any) -> tuple[float, float]:
    """Return approximate seconds (two cores) and bytes of a `PartsClassifier` fit.

    The constants were estimated from fits of up to 20,000 images, 100,000 texts and 200,000 rows of
    a table.
    """
    n, p = X.shape
    if hasattr(X, "nnz"):
        return 3 + 1e-3 * n, 5e8 + 5e4 * n
    return 3 + n * (2e-4 + 8e-7 * p), 5e8 + 6.0 * 8 * n * p


def _find_topics(task: Task, model: Any) -> None:
    """Assign the name of each seed topic to the part that is most similar to it now.

    A seed topic is only an initial value, so after the fit its words may be in another part. Parts
    without a topic get the name "". Known parts come first and keep their position.
    """
    seeds = task.settings.get("seed_components")
    if seeds is None:
        return
    fixed = len(task.part_names) - len(seeds)
    cosine = normalize(seeds) @ normalize(np.asarray(model.components_)[fixed:]).T
    topics, parts = linear_sum_assignment(cosine, maximize=True)
    names = dict(zip(parts.tolist(), (task.part_names[fixed + t] for t in topics)))
    lost = [names[j] for t, j in zip(topics, parts.tolist()) if cosine[t, j] < STILL]
    if lost:
        task.notes.append(
            f"The parts of {', '.join(map(repr, lost))} have little of their topics any more; "
            "more words, or more parts, would keep them."
        )
    found = [names.get(j, "") for j in range(max(names) + 1)]
    task.part_names = [*task.part_names[:fixed], *found]


def same_parts(H: Any) -> list[str]:
    """Return a note if two parts are nearly equal, which happens with too many parts."""
    if H is None or len(H) < 2:
        return []
    H = np.asarray(H, dtype=np.float64)
    lengths = np.linalg.norm(H, axis=1)
    U = H / np.where(lengths > 0, lengths, 1)[:, None]
    likeness = np.triu(U @ U.T, 1)
    pairs = np.argwhere(likeness > SAME)
    if not len(pairs):
        return []
    a, b = max(pairs.tolist(), key=lambda pair: likeness[tuple(pair)])
    more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    return [
        f"Parts {a + 1} and {b + 1} are nearly the same (cosine {likeness[a, b]:.3f}{more}); "
        "fewer parts contain the same information."
    ]


def _regroup(task: Task, model: Any) -> None:
    """Cluster texts by the proportions of their part weights, and number the clusters.

    Part weights of short texts are small, and k-means groups most of them near zero. On 1,300 texts
    of 8 words from BBC news, proportions reduce the largest of 5 clusters from 931 to 560 texts and
    add 12 points of accuracy. For whole articles nothing changes. Without labels, clusters have the
    numbers or names of parts.
    """
    found = getattr(model, "clustering_", None)
    if found is None:
        return
    labels = encode_labels(task.given, task.samples.n_samples)
    if task.samples.kind == "texts":
        found = cluster_representation(
            np.asarray(model.embedding_),
            int(model.n_clusters or len(found.names)),
            labels=labels if labels is not None and labels.n_labelled else None,
            unit=True,
            links=model._groups.links,
            random_state=model.random_state,
        )
    if labels is None or not labels.n_labelled:
        if task.part_names and len(found.names) == model.embedding_.shape[1]:
            model._groups.found = _by_parts(task.part_names, model)
            return
        numbers = np.array(number_like_parts(found.centers))
        at = {name: i for i, name in enumerate(found.names.tolist())}
        renamed = numbers[[at[name] for name in found.labels.tolist()]]
        found = Clustering(found.centers, numbers, renamed, found.unit)
    model._groups.found = found


def _by_parts(names: list[str], model: Any) -> Clustering:
    """Return one cluster per part, with the samples in which this part is the largest."""
    V = np.asarray(model.embedding_)
    k = V.shape[1]
    every = np.array([names[j] if names[j:] and names[j] else f"part {j + 1}" for j in range(k)])
    lengths = np.linalg.norm(model.components_, axis=1).astype(np.float64)
    empty = Clustering(np.eye(k), every, every[:0], True, lengths)
    return Clustering(np.eye(k), every, empty.predict(V), True, lengths)


def scores(
    truth: Any, given: Any, clusters: Any, names: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return scores of predictions on labels that the model has not used.

    The result is None if there are no such labels. ``accuracy`` is included if classes were
    predicted, or if ``names`` of parts are classes. ``matched_accuracy`` matches clusters to
    classes one to one, using the true classes.
    """
    if truth is None:
        return None
    seen = np.array([label is not None for label in given]) if given is not None else False
    hidden = np.array([label is not None for label in truth]) & ~np.asarray(seen)
    if not hidden.any():
        return None
    y = [str(label) for label in np.asarray(truth)[hidden]]
    found = [str(name) for name in np.asarray(clusters)[hidden]]
    result: dict[str, Any] = {"samples": int(hidden.sum())}
    if np.any(seen) or set(names) & set(y):
        result["accuracy"] = float(np.mean([a == b for a, b in zip(y, found)]))
    return {
        **result,
        "matched_accuracy": float(clustering_accuracy(y, found)),
        "nmi": float(normalized_mutual_info(y, found)),
        "ari": float(adjusted_rand(y, found)),
    }
