"""Report of a fitted model, as one HTML file that needs no network."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise._versions import versions
from partwise.apps.view.describe import about, names_classes, naming, two_sides, words_of_parts
from partwise.apps.view.report import charts
from partwise.apps.view.report.layout import Layout, lay_out
from partwise.apps.view.report.members import (
    TEXT_LENGTH,
    TableRows,
    Thumbnails,
    composition,
    main_parts,
    to_label_next,
    typical_and_doubtful,
)
from partwise.apps.view.report.pictures import part_uri, render
from partwise.apps.view.report.repeat import parameters, recipe
from partwise.apps.view.report.search_page import choice_facts
from partwise.apps.view.report.stability import Stability
from partwise.apps.view.rows import Rows
from partwise.evaluation.metrics import adjusted_rand, clustering_accuracy, normalized_mutual_info
from partwise.io import Samples
from partwise.knowledge.labels import encode_labels
from partwise.persistence.atomic import write_whole

MAX_PARTS = 64
MAX_GROUPS = 60
UNITS = {"table": "rows", "counts": "samples"}


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


def report_page(*, model: Any, X: Any, dataset: Samples, assignments: Any, **options: Any) -> str:
    """Return the page of `write_report` as text.

    Parameters
    ----------
    model, X, dataset, assignments
        As in `write_report`.
    **options
        Other parameters of `write_report`, except ``path`` and ``force``.

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
    charts.need_plotly()  # raise an error early if plotly is missing
    return Report(model, X, dataset, assignments, **options).html()


@dataclass(eq=False)
class Report:
    """Content of the report page, which the HTML template reads.

    The fields are the arguments of `write_report`.
    """

    model: Any
    X: Any
    dataset: Samples
    assignments: Any
    labels: Any = None
    title: str = "Partwise report"
    command: str = ""
    reason: str = ""
    seconds: float | None = None
    stability: Stability | None = None
    choice: Any = None
    part_names: Sequence[str] = ()
    label_share: float | None = None
    links: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.V, n = np.asarray(self.model.embedding_), self.X.shape[0]
        if len(self.V) != n or self.dataset.n_samples != n:
            raise ValueError(
                f"model, X and dataset must describe the same samples, got {len(self.V)}, {n} and "
                f"{self.dataset.n_samples}."
            )
        self.assigned = [str(name) for name in self.assignments["cluster"]]
        self.names = sorted(set(self.assigned), key=charts.natural)
        self.confidence: NDArray[np.float64] | None = None
        if "confidence" in self.assignments:
            self.confidence = np.asarray(self.assignments["confidence"], dtype=np.float64)
        self.given = _names(self.labels, n)
        self.known = _known(self.given, _names(self.dataset.y, n))
        used = {name for name in self.given or () if name is not None}
        self.n_labelled = sum(name is not None for name in self.given or ())
        self.naming = naming(self.model, self.dataset)
        is_class = self.naming is not None or (used and used >= set(self.names))
        self.group, self.groups = ("class", "classes") if is_class else ("cluster", "clusters")
        self.words = about(self.dataset, self.assigned)
        self.thumbnails = Thumbnails(self.dataset)
        self._parts = main_parts(self.V)
        self._row = {name: i for i, name in enumerate(self.dataset.ids)}

    def html(self) -> str:
        """Return the report as an HTML page."""
        figures = self.figures  # the charts must be drawn before the page counts pictures
        points = [self.describe(int(i)) for i in self.layout.shown]
        model, dataset = self.model, self.dataset
        first_line = (type(model).__doc__ or "").strip().partition("\n")[0]
        return render(
            "report.html",
            r=self,
            dataset=dataset,
            method=type(model).__name__,
            summary=_sentence(self.reason or first_line),
            status=_sentence(str(getattr(model, "status_", ""))),
            choice=None if self.choice is None else choice_facts(self.choice),
            recipe=recipe(
                model, dataset, self.given, label_share=self.label_share, links=self.links
            ),
            parameters=parameters(model),
            cards=self.cards(),
            next_samples=self.next_samples(),
            figures=figures,
            points=points,
            templates=charts.templates(),
            plotly_js=charts.script(),
            versions=versions("plotly"),
            machine=f"{sys.platform}, {platform.machine()}, {os.cpu_count()} cores",
        )

    # -- titles of the page -------------------------------------------------------------------

    @property
    def unit(self) -> str:
        """Plural noun for the samples, for example "images" or "cells"."""
        is_cells = self.dataset.source.lower().endswith(".h5ad")
        return "cells" if is_cells else UNITS.get(self.dataset.kind, self.dataset.kind)

    @cached_property
    def tabs(self) -> list[tuple[str, str]]:
        """Sections of the page with their titles, pictures first for images."""
        tabs = [("map", "Map"), ("clusters", self.groups.capitalize()), ("parts", "Parts")]
        if self.thumbnails.exist:
            tabs[:2] = tabs[1::-1]
        accuracy = [("labels", "Accuracy")] if self.scores else []
        return [*tabs, *accuracy, ("quality", "Quality"), ("repeat", "Repeat it")]

    # -- samples on the page ------------------------------------------------------------------

    @cached_property
    def table(self) -> TableRows | None:
        """Rows of a table with the columns that contribute to each class or cluster."""
        rows = Rows.of(self.dataset)
        if rows is None or len(self.names) < 2:
            return None
        if self.naming is None:  # each cluster is treated as a class
            P = np.equal.outer(self.assigned, self.names).astype(float)
            return TableRows(rows, 0.9 * P + 0.1 / P.shape[1])
        return TableRows(rows, np.asarray(self.model.label_distributions_))

    def describe(self, i: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what the page shows about sample i, with columns for a table row."""
        sure = np.nan if self.confidence is None else self.confidence[i]
        text = None if self.dataset.texts is None else self.dataset.texts[i][:TEXT_LENGTH]
        shown = {
            "id": self.dataset.ids[i],
            "cluster": self.assigned[i],
            "label": None if self.known is None else self.known[i],
            "confidence": None if np.isnan(sure) else self.certainty(sure),
            "text": text,
            "image": self.thumbnails(i),
            "parts": self._parts[i],
        }
        if self.table is None:
            return shown
        if columns is not None:
            return shown | {"cells": self.table.cells(i, columns)}
        names = self.table.columns([i])
        values = (value for value, _ in self.table.cells(i, names))
        return shown | {"text": ", ".join(f"{n}: {v}" for n, v in zip(names, values)), "parts": ""}

    def certainty(self, value: float) -> str:
        """Return a probability as a percentage, or a cluster confidence as a number."""
        if self.naming is None:
            return f"{value:.2f}"
        return "over 99%" if 0.995 <= value < 1 else f"{value:.0%}"

    def members(self, rows: Sequence[int], others: Sequence[int] = ()) -> dict[str, Any]:
        """Return samples for the page, with the table columns to show for them."""
        columns = [] if self.table is None else self.table.columns([*rows, *others])
        return {"columns": columns, "samples": [self.describe(i, columns) for i in rows]}

    def next_samples(self) -> dict[str, Any]:
        """Return the samples to label next, which for a classifier are in label_next.csv."""
        if self.naming is not None:
            return self.members([self._row[row["id"]] for row in self.naming["label_next"]])
        texts = self.dataset.texts
        return self.members(to_label_next(self.assigned, self.confidence, self.known, texts))

    @property
    def doubtful_labels(self) -> dict[str, Any]:
        """Samples whose given label other samples contradict, with the predicted label."""
        odd = self.naming["odd_labels"] if self.naming else []
        found = self.members([self._row[row["id"]] for row in odd])
        for sample, row in zip(found["samples"], odd):
            wrong = f"{row['probability']:.0%} wrong"
            sample |= {"cluster": row["looks_like"], "label": row["given"], "confidence": wrong}
        return found

    @property
    def farthest(self) -> dict[str, Any]:
        """Samples far from all labels, which may belong to none of the classes."""
        far = (self.naming or {}).get("none_of_these")
        names = far["farthest"] if far and far["said"] else []
        return self.members([self._row[name] for name in names])

    def cards(self) -> list[dict[str, Any]]:
        """Return the facts about each class or cluster, in the order of their names.

        Means and typical samples exclude samples with a given label, because the model repeats it.
        """
        column, known = np.asarray(self.assigned, dtype=object), self.known
        told = np.array([name is not None for name in self.given or [None] * len(column)])
        cards = []
        for name in self.names[:MAX_GROUPS]:
            here = np.flatnonzero(column == name)
            own = here[~told[here]]
            typical, doubtful = (
                rows.tolist() for rows in typical_and_doubtful(own, self.confidence)
            )
            mean = self.V[here].mean(axis=0)
            best = [int(j) for j in np.argsort(-mean, kind="stable")[:3] if mean[j] > 0]
            cards.append(
                {
                    "name": name,
                    "size": len(here),
                    "share": len(here) / len(column),
                    "confidence": None if self.confidence is None else _mean(self.confidence[own]),
                    "labels": composition(known[i] for i in here.tolist()) if known else [],
                    "parts": best,
                    "about": self.words.get(name, []),
                    "typical": self.members(typical, doubtful),
                    "doubtful": self.members(doubtful, typical),
                }
            )
        return cards

    # -- parts and figures --------------------------------------------------------------------

    @cached_property
    def H(self) -> NDArray[Any] | None:
        """Parts, one per row; None for a model with a kernel."""
        H = getattr(self.model, "components_", None)
        return None if H is None else np.asarray(H)

    @cached_property
    def layout(self) -> Layout:
        """Coordinates of the samples on the map."""
        return lay_out(self.V, self.assigned)

    @cached_property
    def part_titles(self) -> list[str]:
        """Title of each part: its number, its name or class, and its top words."""
        k, words = self.V.shape[1], words_of_parts(self.H, self.dataset)
        classes, titles = getattr(self.model, "component_classes_", [None] * k), []
        for j, owner in enumerate(classes):
            owner = self.part_names[j] if j < len(self.part_names) and self.part_names[j] else owner
            name = "" if owner is None else str(owner)
            if j < len(words) and words[j]:
                name = f"{name} ({words[j]})" if name else words[j]
            titles.append(f"part {j + 1}" + (f": {name}" if name else ""))
        return titles

    @cached_property
    def pictures(self) -> list[dict[str, str]]:
        """Pictures of the first parts, if the samples are images."""
        shape = self.dataset.image_shape
        if self.H is None or not shape:
            return []
        found = [part_uri(row.reshape(shape)) for row in self.H[:MAX_PARTS]]
        return [
            {"uri": uri, "kind": kind, "title": self.part_titles[j]}
            for j, (uri, kind) in enumerate(found)
        ]

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Features that distinguish each of the first parts, with their weights."""
        if self.H is None or self.pictures:
            return []
        names = self.dataset.feature_names or [f"column {j + 1}" for j in range(self.H.shape[1])]
        return charts.top_terms(*two_sides(self.H[:MAX_PARTS], names), self.part_titles)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Charts of the page, by their names."""
        shown, known = self.layout.shown, self.known
        others = sorted({name for name in known or () if name is not None} - set(self.names))
        legend = {
            name: f"{name}: {', '.join(self.words[name][:2])}"
            for name in self.names
            if name.isdigit() and self.words.get(name)
        }
        figures = {
            "map": charts.samples_map(
                self.layout,
                [self.assigned[i] for i in shown],
                None if known is None else [known[i] for i in shown],
                charts.colours([*self.names, *sorted(others, key=charts.natural)]),
                legend,
            )
        }
        for score in self.scores:
            table = (score["table"], score["labels"], score["clusters"])
            figures[score["chart"]] = charts.confusion(*table, self.naming is not None)
        history = np.asarray(getattr(self.model, "objective_history_", ()))
        if history.size:
            figures["convergence"] = charts.convergence(history.tolist())
        if self.stability is not None:
            figures["stability"] = charts.agreement(self.stability)
        return figures

    # -- scores on the page -------------------------------------------------------------------

    @cached_property
    def scores(self) -> list[dict[str, Any]]:
        """Scores on hidden labels, and on the labels of the fit.

        A classifier repeats the labels of the fit, so these are compared with predictions from
        cross-validation.
        """
        if self.known is None:
            return []
        n = len(self.known)
        shown = np.array([name is not None for name in self.given or [None] * n])
        labelled = np.array([name is not None for name in self.known])
        masks = {"hidden": labelled & ~shown} | ({} if self.naming else {"seen": shown})
        pairs = {
            key: [(str(self.known[i]), self.assigned[i]) for i in np.flatnonzero(mask)]
            for key, mask in masks.items()
        }
        if names_classes(self.model):
            names, (_, p, truth) = [str(c) for c in self.model.classes_], self.model.held_out_
            pairs["held-out"] = [(names[a], names[b]) for a, b in zip(truth, p.argmax(axis=1))]
        return [
            {"chart": f"confusion-{key}", "key": key, **_agreement(found)}
            for key, found in pairs.items()
            if found
        ]


def _sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def _names(labels: Any, n: int) -> list[str | None] | None:
    """Return the label of each sample as text, None without a label."""
    encoded = encode_labels(labels, n)
    if encoded is None or not encoded.n_labelled:
        return None
    classes = encoded.classes.tolist()
    return [None if code < 0 else str(classes[code]) for code in encoded.codes]


def _known(
    given: list[str | None] | None, every: list[str | None] | None
) -> list[str | None] | None:
    """Return given labels, and for other samples the labels in the data."""
    if given is None or every is None:
        return given or every
    return [b if a is None else a for a, b in zip(given, every)]


def _agreement(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the confusion matrix and scores for pairs of label and predicted group."""
    y, found = ([str(name) for name in side] for side in zip(*pairs))
    labels = sorted(set(y), key=charts.natural)
    # Columns whose name is a label come first, in the order of the labels.
    others = sorted(set(found) - set(labels), key=charts.natural)
    columns = [*(name for name in labels if name in set(found)), *others]
    counts = Counter(pairs)
    table = np.array([[counts[a, b] for b in columns] for a in labels], dtype=np.int64)
    most, correct = charts.MAX_LEVELS, sum(counts[a, a] for a in labels)
    return {
        "count": len(y),
        "labels": labels[:most],
        "clusters": columns[:most],
        "table": table[:most, :most],
        "cut": max(table.shape) > most,
        "correct": correct,
        "named": correct / len(pairs),
        "accuracy": clustering_accuracy(y, found),
        "nmi": normalized_mutual_info(y, found),
        "ari": adjusted_rand(y, found),
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    """Return the mean of the finite values, or None if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else None
