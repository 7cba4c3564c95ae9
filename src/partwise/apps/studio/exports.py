"""What leaves the studio: labels, names, the model, the report, and the lines that repeat it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partwise import __version__
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import write_whole

if TYPE_CHECKING:
    from partwise.apps.studio.workspace import Desk


def labels(desk: Desk) -> bytes:
    """id and label of every labelled sample, as ``--labels`` reads them."""
    known = desk.labels
    rows = [[name, known[name]] for name in desk.samples.ids if name in known]
    return csv_text(["id", "label"], rows).encode()


def assignments(desk: Desk) -> bytes:
    """The name of every sample, its probability, and the given label, in the command's columns."""
    seen, known = desk.opinion, desk.labels
    rows: list[list[Any]] = []
    for i, name in enumerate(desk.samples.ids):
        found = seen.classes[seen.names[i]] if seen.names[i] >= 0 else ""
        rows.append([name, found, f"{seen.sure[i]:.4f}", known.get(name, "")])
    return csv_text(["id", "predicted_label", "probability", "given_label"], rows).encode()


def label_studio(desk: Desk) -> bytes:
    """All samples as tasks of Label Studio: given labels as annotations, names as predictions."""
    seen, known, samples = desk.opinion, desk.labels, desk.samples
    tasks = []
    for i, name in enumerate(samples.ids):
        what = "image" if samples.thumbnails is not None else "text"
        shown = name if samples.whole_texts is None else samples.whole_texts[i]
        task: dict[str, Any] = {"id": i + 1, "data": {"id": name, what: shown}}
        if name in known:
            task["annotations"] = [{"result": _choice(known[name], what)}]
        elif seen.names[i] >= 0:
            found = {"model_version": f"partwise {__version__}", "score": round(seen.sure[i], 4)}
            task["predictions"] = [found | {"result": _choice(seen.classes[seen.names[i]], what)}]
        tasks.append(task)
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def _choice(label: str, what: str) -> list[dict[str, Any]]:
    value = {"choices": [label]}
    return [{"from_name": "label", "to_name": what, "type": "choices", "value": value}]


def model(desk: Desk) -> bytes:
    """The classifier with the preparation of its data, for ``partwise predict``."""
    _need_answer(desk)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.partwise"
        desk.judge.whole(desk.by_row()).save(path, recipe=desk.samples.recipe)
        return path.read_bytes()


def report(desk: Desk) -> bytes:
    """The report, one page that opens anywhere."""
    from partwise.apps.view.report import report_page

    _need_answer(desk)
    seen, samples, known = desk.opinion, desk.samples, desk.labels
    given = [known.get(name) for name in samples.ids]
    found = {"cluster": [seen.classes[c] for c in seen.names], "confidence": seen.sure}
    page = report_page(
        model=desk.judge.whole(desk.by_row()),
        X=samples.X,
        dataset=samples,
        labels=given,
        assignments=found,
        title=f"Partwise studio: {samples.source}",
        command=f"partwise studio {samples.source}",
    )
    return page.encode()


def repeat(desk: Desk) -> bytes:
    """The Python lines that give the same names from labels.csv."""
    seed = desk.judge.model.random_state
    options = "".join(f", {name}={value!r}" for name, value in desk.samples.options.items())
    also = "" if desk.samples.also is None else ", also=[samples.also]"
    lines = f"""\
from partwise import PartsClassifier
from partwise.io import read_samples

samples = read_samples({desk.samples.source!r}, labels="labels.csv"{options})
model = PartsClassifier(random_state={seed!r}).fit(samples.X, samples.y{also})
for name, found in zip(samples.ids, model.transduction_):
    print(name, found)
"""
    return lines.encode()


def _need_answer(desk: Desk) -> None:
    if len(desk.opinion.classes) < 2:
        raise ValueError("There is no answer yet: label samples of two classes at least.")


EXPORTS: dict[str, tuple[Callable[[Desk], bytes], str]] = {
    "labels.csv": (labels, "text/csv; charset=utf-8"),
    "assignments.csv": (assignments, "text/csv; charset=utf-8"),
    "label-studio.json": (label_studio, "application/json"),
    "model.partwise": (model, "application/octet-stream"),
    "report.html": (report, "text/html; charset=utf-8"),
    "repeat.py": (repeat, "text/x-python; charset=utf-8"),
}


def save_all(desk: Desk) -> list[str]:
    """Every file that can be made, into the project's folder."""
    made = []
    for name, (write, _) in EXPORTS.items():
        try:
            content = write(desk)
        except ValueError:  # no answer yet: labels and names alone
            continue
        write_whole(desk.project.folder / name, content, force=True)
        made.append(name)
    return made
