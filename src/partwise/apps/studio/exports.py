"""Files that a studio project exports, such as labels, predictions and the model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partwise import __version__
from partwise.io.label_files import says_unknown
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import write_whole

if TYPE_CHECKING:
    from partwise.apps.studio.workspace import Workspace


def labels(workspace: Workspace) -> bytes:
    """Return the labels as CSV with columns id and label, as ``--labels`` reads them."""
    known = workspace.labels
    rows = [[name, known[name]] for name in workspace.samples.ids if name in known]
    return csv_text(["id", "label"], rows).encode()


def assignments(workspace: Workspace) -> bytes:
    """Return predicted labels as CSV with the columns of ``assignments.csv``."""
    now, known = workspace.predictions, workspace.labels
    rows: list[list[Any]] = [
        [name, now.name(i) or "", f"{now.probability[i]:.4f}", known.get(name, "")]
        for i, name in enumerate(workspace.samples.ids)
    ]
    return csv_text(["id", "predicted_label", "probability", "given_label"], rows).encode()


def label_studio(workspace: Workspace) -> bytes:
    """Return all samples as tasks for Label Studio.

    Given labels become annotations, and other predicted labels become predictions.
    """
    now, known, samples = workspace.predictions, workspace.labels, workspace.samples
    kind = "image" if samples.thumbnails is not None else "text"

    def choice(label: str | None) -> list[dict[str, Any]]:
        """Return a label in the format of Label Studio."""
        value = {"choices": [label]}
        return [{"from_name": "label", "to_name": kind, "type": "choices", "value": value}]

    tasks = []
    for i, name in enumerate(samples.ids):
        shown = name if samples.whole_texts is None else samples.whole_texts[i]
        task: dict[str, Any] = {"id": i + 1, "data": {"id": name, kind: shown}}
        if name in known:
            task["annotations"] = [{"result": choice(known[name])}]
        elif now.label[i] >= 0:
            score = round(float(now.probability[i]), 4)
            prediction = {"model_version": f"partwise {__version__}", "score": score}
            task["predictions"] = [prediction | {"result": choice(now.name(i))}]
        tasks.append(task)
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def model(workspace: Workspace) -> bytes:
    """Return a model file for ``partwise predict``, with the preparation of the data."""
    _need_two_classes(workspace)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.partwise"
        fitted = workspace.predictor.with_labels(workspace.by_row())
        fitted.save(path, recipe=workspace.samples.recipe)
        return path.read_bytes()


def report(workspace: Workspace) -> bytes:
    """Return the report as one HTML page."""
    from partwise.apps.view.report import report_page

    _need_two_classes(workspace)
    now, samples, known = workspace.predictions, workspace.samples, workspace.labels
    page = report_page(
        model=workspace.predictor.with_labels(workspace.by_row()),
        X=samples.X,
        dataset=samples,
        labels=[known.get(name) for name in samples.ids],
        assignments={
            "cluster": [now.classes[c] for c in now.label],
            "confidence": now.probability,
        },
        title=f"{Path(samples.source).name}: {len(now.classes)} classes",
        command=f"partwise studio {samples.source}",
    )
    return page.encode()


def repeat(workspace: Workspace) -> bytes:
    """Return a Python script that predicts the same labels from labels.csv."""
    samples = workspace.samples
    # Classes that differ only in spaces are separate classes in the studio.
    options = {**samples.options, "labels": "labels.csv", "similar_labels": "keep"}
    if any(map(says_unknown, workspace.labels.values())):
        options["unknown_labels"] = "keep"
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    also = "" if samples.also is None else ", also=[samples.also]"
    drawn = [i for i in workspace.predictor.random if i in workspace.by_row()]
    priors = ', priors="measured"' if drawn else ""
    also += f", drawn={drawn}" if drawn else ""
    lines = f"""\
from partwise import PartsClassifier
from partwise.io import read_samples

samples = read_samples({samples.source!r}, {arguments})
model = PartsClassifier(random_state={workspace.seed!r}{priors}).fit(samples.X, samples.y{also})
for name, label in zip(samples.ids, model.transduction_):
    print(name, label)
"""
    return lines.encode()


def _need_two_classes(workspace: Workspace) -> None:
    """Raise an error if fewer than two classes have labels."""
    if len(workspace.predictions.classes) < 2:
        raise ValueError("There are no predictions yet: label samples of at least two classes.")


EXPORTS: dict[str, tuple[Callable[[Workspace], bytes], str]] = {
    "labels.csv": (labels, "text/csv; charset=utf-8"),
    "assignments.csv": (assignments, "text/csv; charset=utf-8"),
    "label-studio.json": (label_studio, "application/json"),
    "model.partwise": (model, "application/octet-stream"),
    "report.html": (report, "text/html; charset=utf-8"),
    "repeat.py": (repeat, "text/x-python; charset=utf-8"),
}


def save_all(workspace: Workspace) -> list[str]:
    """Write all exported files that are available to the project folder."""
    written = []
    for name, (write, _) in EXPORTS.items():
        try:
            content = write(workspace)
        except ValueError:  # there are no predictions yet
            continue
        write_whole(workspace.project.folder / name, content, force=True)
        written.append(name)
    return written
