"""Report of a fitted model: one HTML file that needs no network."""

from __future__ import annotations

import inspect
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise._versions import versions
from partwise.apps.view.describe import about, names_classes, naming, words_of_parts
from partwise.apps.view.report import charts
from partwise.apps.view.report.layout import lay_out
from partwise.apps.view.report.pictures import part_uri, picture_uri, render
from partwise.apps.view.report.programmes_page import intervals_uri, places_uri
from partwise.apps.view.report.search_page import choice_facts
from partwise.apps.view.report.stability import Stability
from partwise.evaluation.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
    sparseness,
)
from partwise.io.label_files import keep_share
from partwise.io.samples import Samples
from partwise.knowledge.labels import encode_labels
from partwise.persistence.atomic import write_whole

MAX_PARTS = 64
MAX_THUMBNAILS = 2000
#: Maximum number of bytes of all images in a page, and of one image.
MAX_BYTES = 12_000_000
MAX_PICTURE = 40_000
MEMBERS = 8
MAX_CLUSTERS = 60
TEXT_LENGTH = 300


def write_report(
    path: str | Path,
    *,
    model: Any,
    X: Any,
    dataset: Samples,
    labels: Any = None,
    assignments: Any,
    title: str = "Partwise report",
    command: str = "",
    reason: str = "",
    seconds: float | None = None,
    stability: Stability | None = None,
    choice: Any = None,
    part_names: Sequence[str] = (),
    places: Any = None,
    intervals: Any = None,
    label_share: float | None = None,
    links: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write the report of a fitted model as one self-contained HTML file.

    The page needs neither a network nor a server. All texts from the data are escaped.

    Parameters
    ----------
    path : str or Path
        File to write.
    model : estimator
        Model that was fitted to X.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Training data of the model.
    dataset : Samples
        Source of X: ids, texts, thumbnails, feature names, all known labels.
    labels : array-like of shape (n_samples,), default=None
        Labels that the model was fitted to; None, NaN or -1 where unknown. All other labels in
        ``dataset.y`` were hidden from the model and are scored separately.
    assignments : mapping or DataFrame
        ``"cluster"``, the predicted class or cluster of each sample, and optionally
        ``"confidence"``.
    title, command, reason : str
        Headline, command that repeats the run, and reason for the choice of the method.
    seconds : float, optional
        Duration of the fit.
    stability : Stability, optional
        Result of `partwise.report.stability`.
    choice : Choice, optional
        Result of `partwise.choose_k`.
    part_names : sequence of str, default=()
        Names of the first parts, for example of seeded topics; "" for none.
    places : array-like of shape (n_samples, 2), default=None
        Coordinates of the samples, to draw the parts in space.
    intervals : Intervals, optional
        Result of `partwise.bootstrap_intervals`, to draw the parts with their intervals.
    label_share : float, optional
        Share by which `partwise.io.keep_share` drew ``labels``, for the lines that repeat the run.
    links : mapping, optional
        ``must_link`` and ``cannot_link`` pairs that the model was fitted with.
    force : bool, default=False
        Overwrite the file.

    Returns
    -------
    Path

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from partwise import NMF
    >>> from partwise.io import Samples
    >>> from partwise.report import write_report
    >>> X = np.random.default_rng(0).random((20, 6))
    >>> samples, model = Samples(X, list("abcdefghijklmnopqrst"), "table"), NMF(2).fit(X)
    >>> found = {"cluster": model.embedding_.argmax(axis=1)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = os.path.join(folder, "report.html")
    ...     write_report(page, model=model, X=X, dataset=samples, assignments=found).name
    'report.html'
    """
    content: dict[str, Any] = dict(locals())
    del content["path"], content["force"]
    return write_whole(path, report_page(**content), force=force)


def report_page(
    *,
    model: Any,
    X: Any,
    dataset: Samples,
    labels: Any = None,
    assignments: Any,
    title: str = "Partwise report",
    command: str = "",
    reason: str = "",
    seconds: float | None = None,
    stability: Stability | None = None,
    choice: Any = None,
    part_names: Sequence[str] = (),
    places: Any = None,
    intervals: Any = None,
    label_share: float | None = None,
    links: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of `write_report` as text.

    Parameters
    ----------
    model, X, dataset, labels, assignments, title, command, reason, seconds
        As in `write_report`.
    stability, choice, part_names, places, intervals, label_share, links
        As in `write_report`.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF
    >>> from partwise.io import Samples
    >>> from partwise.report import report_page
    >>> X = np.random.default_rng(0).random((20, 6))
    >>> samples, model = Samples(X, list("abcdefghijklmnopqrst"), "table"), NMF(2).fit(X)
    >>> found = {"cluster": model.embedding_.argmax(axis=1)}
    >>> page = report_page(model=model, X=X, dataset=samples, assignments=found)
    >>> page[:15].lower()
    '<!doctype html>'
    """
    charts.need_plotly()  # raise before the work
    n = X.shape[0]
    V = np.asarray(model.embedding_)
    if len(V) != n or dataset.n_samples != n:
        raise ValueError(
            f"model, X and dataset must describe the same samples, got {len(V)}, {n} and "
            f"{dataset.n_samples}."
        )
    clusters = [str(name) for name in assignments["cluster"]]
    confidence = (
        np.asarray(assignments["confidence"], dtype=np.float64)
        if "confidence" in assignments
        else None
    )
    seen = _names(labels, n)
    known = _names(dataset.y, n) or seen  # labels of the fit take precedence
    if seen is not None and known is not None:
        known = [b if a is None else a for a, b in zip(seen, known)]
    names = sorted(set(clusters), key=charts.natural)
    others = sorted({name for name in known or () if name is not None} - set(names))
    colours = charts.colours([*names, *sorted(others, key=charts.natural)])
    H = getattr(model, "components_", None)
    part_titles = _part_titles(model, V.shape[1], words_of_parts(H, dataset), part_names)
    words = about(dataset, clusters)

    thumbnails = Thumbnails(dataset)
    shares = main_parts(V)
    named = naming(model, dataset)

    def describe(i: int) -> dict[str, Any]:
        """Return the entries of one sample on the page."""
        sure = np.nan if confidence is None else confidence[i]
        return {
            "id": dataset.ids[i],
            "cluster": clusters[i],
            "label": None if known is None else known[i],
            "confidence": None if np.isnan(sure) else _certainty(sure, named),
            "text": None if dataset.texts is None else dataset.texts[i][:TEXT_LENGTH],
            "image": thumbnails(i),
            "parts": shares[i],
        }

    cards = _cards(clusters, names, confidence, known, seen, V, describe, words)
    if named is None:
        asked = to_label_next(clusters, confidence, known, dataset.texts)
    else:  # the same list as in label_next.csv
        at = {name: i for i, name in enumerate(dataset.ids)}
        asked = [at[row["id"]] for row in named["label_next"]]
    ask = [describe(i) for i in asked]
    layout = lay_out(V, clusters)
    points = [describe(int(i)) for i in layout.shown]
    figures: dict[str, Any] = {
        "map": charts.samples_map(
            layout,
            [clusters[i] for i in layout.shown],
            None if known is None else [known[i] for i in layout.shown],
            colours,
            _legend(names, words),
        )
    }
    shape = dataset.image_shape
    pictures = [
        part_uri(row.reshape(shape)) for row in (() if H is None else H[:MAX_PARTS]) if shape
    ]
    if H is not None and not pictures:
        features = dataset.feature_names or [f"column {j + 1}" for j in range(H.shape[1])]
        figures["terms"] = charts.top_terms(H[:MAX_PARTS], features, part_titles)
    scores = _scores(seen, known, clusters, model)
    n_labelled = 0 if seen is None else sum(name is not None for name in seen)
    unit = unit_of(dataset)
    headline, lead = _headline(named, scores, n, n_labelled, len(names), unit)
    for score in scores:
        figures[score["chart"]] = charts.confusion(
            score.pop("table"), score["labels"], score["clusters"], named is not None
        )
    history = np.asarray(getattr(model, "objective_history_", ()))
    if history.size:
        figures["convergence"] = charts.convergence(history.tolist())
    sparse_parts = np.atleast_1d(sparseness(H, axis=1)) if H is not None else np.empty(0)
    sparse_codes = np.atleast_1d(sparseness(V, axis=0))
    figures["sparseness"] = charts.sparseness(sparse_parts, sparse_codes)
    if stability is not None:
        figures["stability"] = charts.agreement(stability)

    status = str(getattr(model, "status_", ""))
    return render(
        "report.html",
        title=title,
        dataset=dataset,
        method=type(model).__name__,
        summary=(type(model).__doc__ or "").strip().partition("\n")[0],
        n_samples=n,
        n_features=X.shape[1] // (3 if len(dataset.image_shape or ()) == 3 else 1),
        n_parts=V.shape[1],
        n_clusters=len(names),
        n_labelled=n_labelled,
        unit=unit,
        headline=headline,
        lead=lead,
        layout=layout,
        pictures=[
            {"uri": uri, "kind": kind, "title": part_titles[j]}
            for j, (uri, kind) in enumerate(pictures)
        ],
        max_parts=MAX_PARTS,
        places="" if places is None else places_uri(V, places),
        intervals="" if intervals is None else intervals_uri(intervals, dataset.feature_names),
        part_titles=part_titles,
        ask=ask,
        reason=reason,
        cards=cards[:MAX_CLUSTERS],
        n_cards=len(cards),
        has_labels=known is not None,
        has_confidence=confidence is not None,
        scores=scores,
        naming=named,
        stability=stability,
        choice=None if choice is None else choice_facts(choice),
        model=model,
        status=status[:1].upper() + status[1:],
        mean_sparseness={
            "parts": _mean(sparse_parts),
            "codes": _mean(sparse_codes),
        },
        thumbnails={"exist": thumbnails.exist, "count": thumbnails.count},
        figures=figures,
        figures_json=charts.as_json(figures),
        points_json=charts.as_json(points),
        templates_json=charts.as_json(charts.templates()),
        plotly_js=charts.script(),
        parameters=parameters(model),
        recipe=recipe(model, dataset, seen, label_share=label_share, links=links),
        command=command,
        seconds=seconds,
        versions=versions("plotly"),
        machine=f"{sys.platform}, {platform.machine()}, {os.cpu_count()} cores",
    )


def unit_of(dataset: Samples) -> str:
    """Return the plural noun for the samples."""
    if dataset.source.lower().endswith(".h5ad"):
        return "cells"
    return {"table": "rows", "counts": "samples"}.get(dataset.kind, dataset.kind)


def _certainty(value: float, named: Any) -> str:
    """Return a probability as a percentage, and a confidence as a number."""
    if named is None:
        return f"{value:.2f}"
    return "over 99%" if 0.995 <= value < 1 else f"{value:.0%}"


def _legend(names: Sequence[str], words: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the legend entry of each group, with words for groups that are only numbered."""
    return {
        name: f"{name}: {', '.join(words[name][:2])}"
        for name in names
        if name.isdigit() and words.get(name)
    }


def _headline(
    named: Mapping[str, Any] | None,
    scores: Sequence[Mapping[str, Any]],
    n_samples: int,
    n_labelled: int,
    n_groups: int,
    unit: str,
) -> tuple[dict[str, str] | None, str]:
    """Return the accuracy tile, or None, and the first sentence of the report."""
    hidden = next((score for score in scores if score["key"] == "hidden"), None)
    if named is None:
        lead = f"Partwise grouped {n_samples:,} {unit} into {n_groups:,} clusters."
        if hidden is None:
            return None, lead
        of = f"{hidden['count']:,} known labels, with clusters matched to classes"
        return {"value": f"{hidden['accuracy']:.0%}", "text": f"agreement with {of}"}, lead
    unlabelled = f"{n_samples - n_labelled:,} unlabelled {unit}"
    if named["expected"] is None:
        lead = f"Partwise predicted a class for {unlabelled}. {named['said']}"
    else:
        low, high = named["interval"]
        lead = (
            f"About {named['expected']:.0%} of the {unlabelled} should have the correct label "
            f"(95% interval: {low:.0%} to {high:.0%}), if all belong to one of the "
            f"{n_groups:,} classes. {named['caution']}".rstrip()
        )
    if hidden is not None:
        text = f"accuracy on {hidden['count']:,} labels that Partwise has not seen"
        return {"value": f"{hidden['named']:.0%}", "text": text}, lead
    if named["expected"] is None:
        return None, lead
    return {"value": f"{named['expected']:.0%}", "text": "expected accuracy"}, lead


def _names(labels: Any, n: int) -> list[str | None] | None:
    encoded = encode_labels(labels, n)
    if encoded is None or not encoded.n_labelled:
        return None
    classes = encoded.classes.tolist()
    return [None if code < 0 else str(classes[code]) for code in encoded.codes]


def _part_titles(model: Any, k: int, words: Sequence[str], names: Sequence[str] = ()) -> list[str]:
    """Return number, name or class, and words of each part."""
    classes = getattr(model, "component_classes_", [None] * k)
    titles = []
    for j, owner in enumerate(classes):
        owner = names[j] if j < len(names) and names[j] else owner
        said = "" if owner is None else str(owner)
        if j < len(words) and words[j]:
            said = f"{said} ({words[j]})" if said else words[j]
        titles.append(f"part {j + 1}" + (f": {said}" if said else ""))
    return titles


def _cards(
    clusters: Sequence[str],
    names: Sequence[str],
    confidence: NDArray[np.float64] | None,
    known: Sequence[str | None] | None,
    seen: Sequence[str | None] | None,
    V: NDArray[Any],
    describe: Any,
    words: Mapping[str, list[str]],
) -> list[dict[str, Any]]:
    """Return one card per group, in the order of their names, with images for the shown ones.

    Means and typical samples exclude samples with a given label, because the model repeats it.
    """
    column = np.asarray(clusters, dtype=object)
    told = np.array([name is not None for name in seen or [None] * len(clusters)])
    cards = []
    for number, name in enumerate(names):
        here = np.flatnonzero(column == name)
        own = here[~told[here]]
        typical, doubtful = typical_and_doubtful(own, confidence)
        mean = V[here].mean(axis=0)
        best = [int(j) for j in np.argsort(-mean, kind="stable")[:3] if mean[j] > 0]
        shown = number < MAX_CLUSTERS
        cards.append(
            {
                "name": name,
                "size": len(here),
                "share": len(here) / len(clusters),
                "confidence": _mean(confidence[own]) if confidence is not None else None,
                "labels": composition(known[i] for i in here.tolist()) if known else [],
                "parts": best,
                "about": words.get(name, []),
                "typical": [describe(int(i)) for i in typical] if shown else [],
                "doubtful": [describe(int(i)) for i in doubtful] if shown else [],
            }
        )
    return cards


def _scores(
    seen: Sequence[str | None] | None,
    known: Sequence[str | None] | None,
    clusters: Sequence[str],
    model: Any,
) -> list[dict[str, Any]]:
    """Return the scores on hidden labels, and on the labels of the fit.

    A classifier repeats the labels of the fit, so these are compared with its predictions while
    they were held out.
    """
    if known is None:
        return []
    shown = np.array([name is not None for name in seen or [None] * len(known)])
    given = np.array([name is not None for name in known])
    groups = {"hidden": given & ~shown} | ({} if names_classes(model) else {"seen": shown})
    pairs = {
        key: [(str(known[i]), clusters[i]) for i in np.flatnonzero(mask).tolist()]
        for key, mask in groups.items()
    }
    if names_classes(model):
        names, (_, p, truth) = [str(name) for name in model.classes_], model.held_out_
        pairs["held-out"] = [(names[a], names[b]) for a, b in zip(truth, p.argmax(axis=1))]
    return [
        {"chart": f"confusion-{key}", "key": key, **_agreement(found)}
        for key, found in pairs.items()
        if found
    ]


def _agreement(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    y, found = [a for a, _ in pairs], [b for _, b in pairs]
    labels = sorted(set(y), key=charts.natural)
    columns = sorted(set(found), key=charts.natural)
    # clusters with the name of a label come first, in the order of the labels
    columns = [c for c in labels if c in columns] + [c for c in columns if c not in labels]
    table = np.zeros((len(labels), len(columns)), dtype=np.int64)
    at = {name: i for i, name in enumerate(labels)}, {name: j for j, name in enumerate(columns)}
    for a, b in zip(y, found):
        table[at[0][a], at[1][b]] += 1
    most = charts.MAX_LEVELS
    return {
        "count": len(y),
        "labels": labels[:most],
        "clusters": columns[:most],
        "table": table[:most, :most],
        "cut": max(table.shape) > most,
        "named": float(np.mean([a == b for a, b in zip(y, found)])),
        "accuracy": clustering_accuracy(y, found),
        "nmi": normalized_mutual_info(y, found),
        "ari": adjusted_rand(y, found),
    }


# -- single samples -------------------------------------------------------------------------------


class Thumbnails:
    """Images of samples as data addresses, within the size limit of the page."""

    def __init__(self, dataset: Samples) -> None:
        self._draw = dataset.thumbnails
        self._made: dict[int, str | None] = {}
        self._bytes = 0
        self.exist = dataset.thumbnails is not None

    def __call__(self, i: int) -> str | None:
        """Return the address of the image of sample i, or None."""
        if i not in self._made:
            draw = self._draw
            room = self.count < MAX_THUMBNAILS and self._bytes < MAX_BYTES
            content = draw(i) if draw is not None and room else None
            if content is not None and len(content) > MAX_PICTURE:
                content = None
            self._bytes += len(content or b"")
            self._made[i] = None if content is None else picture_uri(content)
        return self._made[i]

    @property
    def count(self) -> int:
        return sum(uri is not None for uri in self._made.values())


def main_parts(V: NDArray[Any], most: int = 3) -> list[str]:
    """Return the main parts of each sample, with their shares of its part weights."""
    total = V.sum(axis=1)
    order = np.argsort(-V, axis=1, kind="stable")[:, :most]
    said = []
    for row, best, whole in zip(V, order, total):
        shares = [(j, row[j] / whole) for j in best if whole > 0 and row[j] >= 0.05 * whole]
        said.append(", ".join(f"{j + 1} ({share:.0%})" for j, share in shares) or "none")
    return said


def typical_and_doubtful(
    members: NDArray[np.int64], confidence: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the members of highest and of lowest confidence, without duplicates."""
    if confidence is None:
        return members[:MEMBERS], members[:0]
    order = members[np.argsort(-confidence[members], kind="stable")]
    half = min(MEMBERS, (len(order) + 1) // 2)
    return order[:half], order[half:][::-1][:MEMBERS]


def to_label_next(
    clusters: Sequence[str],
    confidence: NDArray[np.float64] | None,
    known: Sequence[str | None] | None,
    texts: Sequence[str] | None = None,
    *,
    most: int = 12,
    each: int = 3,
) -> list[int]:
    """Return the least clear unlabelled samples, at most ``each`` per cluster."""
    if confidence is None:
        return []
    taken: Counter[str] = Counter()
    found: list[int] = []
    said: set[str] = set()
    for i in np.argsort(confidence, kind="stable").tolist():
        if len(found) == most:
            break
        text = "" if texts is None else texts[i]
        if (known is not None and known[i] is not None) or (text and text in said):
            continue
        said.add(text)
        if taken[clusters[i]] < each:
            taken[clusters[i]] += 1
            found.append(i)
    return found


def composition(labels: Iterable[str | None]) -> list[tuple[str, int]]:
    """Return the labels of a group with their counts, the most frequent first."""
    counts = Counter(label for label in labels if label is not None)
    return sorted(counts.items(), key=lambda item: (-item[1], charts.natural(item[0])))


# -- lines that repeat the fit --------------------------------------------------------------------


def recipe(
    model: Any,
    dataset: Samples,
    labels: Sequence[str | None] | None = None,
    *,
    label_share: float | None = None,
    links: Mapping[str, Any] | None = None,
) -> str:
    """Return Python lines that fit the same model to the same labels."""
    name = type(model).__name__
    changed = [(key, value) for key, value, is_new in parameters(model) if is_new]
    arrays = [(key, value) for key, value in changed if isinstance(value, _Array)]
    settings = [
        f"{key}={key}" if (key, value) in arrays else f"{key}={value!r}" for key, value in changed
    ]
    options = [f"{key}={value!r}" for key, value in dataset.options.items()]
    imports, y = _label_lines(model, dataset, labels, label_share)
    arguments = ["samples.X", *(["y"] if y else [])]
    if dataset.also is not None:
        arguments.append("also=[samples.also]")
    pairs = {key: value for key, value in (links or {}).items() if len(value)}
    arguments += [f"{key}={key}" for key in pairs]
    lines = [
        f"from partwise import {name}" + (", load" if arrays else ""),
        f"from partwise.io import {', '.join(sorted(['read_samples', *imports]))}",
        "",
        f"samples = read_samples({', '.join([repr(dataset.source), *options])})",
        *y,
        *(f"{key} = {[tuple(map(int, pair)) for pair in value]!r}" for key, value in pairs.items()),
        *(f"{key} = load('model.partwise').{key}  # {value}" for key, value in arrays),
        f"model = {name}({', '.join(settings)})",
        f"model.fit({', '.join(arguments)})",
        "model.embedding_    # part weights, one row per sample",
    ]
    if hasattr(model, "components_"):
        lines += ["model.components_   # parts, one row per part"]
    if hasattr(model, "labels_"):
        kind = "predicted labels" if names_classes(model) else "clusters"
        lines += [f"model.labels_       # {kind}"]
    return "\n".join(lines)


def _label_lines(
    model: Any,
    dataset: Samples,
    labels: Sequence[str | None] | None,
    label_share: float | None,
) -> tuple[list[str], list[str]]:
    """Return further imports, and the lines that define y as the model has seen it."""
    if labels is None:
        return [], []
    given = list(labels)
    known = [None] * len(given) if dataset.y is None else dataset.y.tolist()
    if given == known:
        return [], ["y = samples.y  # None where unknown"]
    seed = getattr(model, "random_state", 0)
    if (
        label_share is not None
        and given
        == keep_share(np.asarray(known, dtype=object), label_share, random_state=seed).tolist()
    ):
        line = f"y = keep_share(samples.y, {label_share!r}, random_state={seed!r})"
        return ["keep_share"], [f"{line}  # None where unknown"]
    pairs = {i: label for i, label in zip(dataset.ids, given) if label is not None}
    return [], [f"known = {pairs!r}", "y = [known.get(name) for name in samples.ids]"]


class _Array(str):
    """Placeholder for an array that is too long to show."""

    __slots__ = ()
    __repr__ = str.__str__


def parameters(model: Any) -> list[tuple[str, Any, str]]:
    """Return name, value, and "changed" for each parameter that differs from its default."""
    defaults = inspect.signature(type(model).__init__).parameters
    rows = []
    for key, value in sorted(model.get_params(deep=False).items()):
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        same = value is default or repr(value) == repr(default)
        if isinstance(value, np.ndarray):
            value = _Array(f"array of shape {value.shape}")
        rows.append((key, value, "" if same else "changed"))
    return rows


def _mean(values: NDArray[np.float64]) -> float | None:
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else None
