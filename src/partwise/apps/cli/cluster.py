"""The commands ``classify``, ``cluster`` and ``fit``."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise import PartsClassifier
from partwise._versions import versions
from partwise.apps.cli import outputs, work
from partwise.apps.cli.encoders import language_advice
from partwise.apps.cli.options import Asked
from partwise.apps.cli.outputs import check_folder, whole_folder
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.apps.view.describe import about, names_classes, naming
from partwise.apps.view.report.charts import natural
from partwise.io.anndata_files import write_back as write_back_cells
from partwise.io.samples import Samples
from partwise.io.sheets import csv_text
from partwise.io.write_back import SUFFIXES, named_table
from partwise.persistence.atomic import check_target, write_whole

#: Maximum number of part weights that are also written as text, in representation.csv.
MAX_TEXT = 2_000_000
#: Default number of runs with other seeds, and the seconds per run above which they are left out.
RUNS, RUN_SECONDS = 5, 6.0
#: Maximum number of clusters, and of table columns, that are printed.
MOST_ROWS = 30


def run_classify(asked: Asked) -> None:
    """Run the command ``classify``.

    Raise an error before reading if there are no labels.
    """
    sources = (asked.reading["labels"], asked.reading["label_column"], asked.label_share)
    if all(source is None for source in sources):
        raise ValueError(
            "classify needs labels: --labels FILE, --label-column NAME, or --label-share SHARE for "
            "data whose sub-folders or label array name the classes. Without labels, use "
            "'partwise cluster', or label some samples with 'partwise studio'."
        )
    if asked.label_separator is None:
        asked.runs = 0
        _run(asked)
        return
    from partwise.apps.cli.multilabel_command import run_multilabel

    run_multilabel(asked)


def run_cluster(asked: Asked) -> None:
    """Run the command ``cluster``; raise an error if the user passes labels."""
    given = {**asked.reading, "label_share": asked.label_share}
    for name in ("labels", "label_column", "label_share"):
        if given[name] is not None:
            raise ValueError(
                f"cluster does not accept --{name.replace('_', '-')}; use 'partwise classify' to "
                "predict labels from given ones."
            )
    _run(asked)


def _run(asked: Asked) -> None:
    """Read the data, fit a model and write the results.

    The result folder appears at the end, when it is complete.
    """
    began = time.perf_counter()
    check_folder(asked.out, force=asked.force)
    kind = Path(asked.data).suffix.lower()
    if asked.write_back and kind not in (".h5ad", *SUFFIXES):
        raise ValueError(f"--write-back needs a table or a .h5ad file, got {asked.data}.")
    if asked.write_back and asked.reading.get("layer") == "raw":
        raise ValueError("--write-back cannot be used with --layer raw.")
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(asked, bar)
        task.notes += language_advice(task.samples, task.given)
        with whole_folder(asked.out, force=asked.force) as folder:
            summary = _summary(task, fitted, asked.command)
            _write_results(folder, task, fitted, summary, asked, bar)
            if asked.write_back and kind in SUFFIXES:
                columns = own_columns(fitted.model, task.samples)
                table = named_table(task.samples, columns)
                write_whole(folder / f"labelled{SUFFIXES[kind]}", table)
            summary["seconds"]["total"] = round(time.perf_counter() - began, 3)
            outputs.write_summary(folder, summary, task.notes)
    if asked.write_back and kind == ".h5ad":
        write_back_cells(task.samples.source, fitted.model, task.samples.feature_names)
        task.notes.append(
            f"Wrote obs['partwise'], obsm['X_partwise'], varm['partwise_parts'] and "
            f"uns['partwise'] into {task.samples.source}."
        )
    _say(summary, task, asked)


def run_fit(asked: Asked) -> None:
    """Fit a model and write only its file."""
    check_target(asked.out, force=asked.force)
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(asked, bar)
        check_target(asked.out, force=asked.force)
        _save(fitted.model, asked.out, task, asked)
    _say({**_summary(task, fitted, asked.command), "notes": task.notes}, task, asked)


def _fitted(asked: Asked, bar: Bar) -> tuple[work.Task, work.Fitted]:
    """Return the data and the fitted model of a command."""
    if asked.method != "auto":
        work.find_method(asked.method)  # an unknown method raises an error before the data is read
    task = work.read_task(asked, bar)
    k = work.n_clusters(task, asked, bar, k=work.know(task, asked))
    model, name, reason = work.build(task, asked.method, asked, k)
    if asked.for_predict and not isinstance(model, PartsClassifier):
        raise ValueError(
            f"--for-predict is for --method classify, not {name}; leave out --for-predict."
        )
    return task, work.fit(task, model, name, reason, bar)


# -- results of a command -------------------------------------------------------------------------


def _summary(task: work.Task, fitted: work.Fitted, command: str) -> dict[str, Any]:
    """Return the content of summary.json, without files and total time."""
    samples, model = task.samples, fitted.model
    names = np.array([str(name) for name in model.labels_])
    sizes = Counter(names.tolist())
    sure = result_columns(model)[1]
    means = _means(model, names)
    words = about(samples, names.tolist())
    return {
        "command": command,
        "source": samples.source,
        "kind": samples.kind,
        "samples": samples.n_samples,
        "features": int(samples.X.shape[1]),
        "preparation": samples.preparation,
        "columns": [dict(zip(("name", "read_as", "done"), row)) for row in samples.columns],
        "labels": task.n_labelled,
        "classes": task.classes,
        "method": fitted.method,
        "reason": fitted.reason,
        "estimator": type(model).__name__,
        "parameters": {k: _plain(v) for k, v in model.get_params(deep=False).items()},
        "parts": int(model.embedding_.shape[1]),
        **({"part_names": task.part_names} if task.part_names else {}),
        "clusters": [
            {
                "name": name,
                "size": sizes[name],
                sure: means[name],
                **({"about": words[name]} if name in words else {}),
            }
            for name in sorted(sizes, key=natural)
        ],
        "objective": float(model.objective_),
        "iterations": int(model.n_iter_),
        "status": str(model.status_),
        "scores": work.scores(samples.y, task.given, model.labels_, task.part_names),
        "naming": naming(model, samples),
        **({"choice": _tried(task.choice)} if task.choice is not None else {}),
        "seconds": {"read": round(task.seconds, 3), "fit": round(fitted.seconds, 3)},
        "versions": versions(),
    }


def result_columns(model: Any) -> tuple[str, str]:
    """Return the two column headings for labels or clusters, and their certainty."""
    if names_classes(model):
        return "predicted_label", "probability"
    return "cluster", "confidence"


def _means(model: Any, names: Any) -> dict[str, float | None]:
    """Return the mean confidence of each cluster or class.

    For classes, samples with given labels do not count. A mean over no sample is None.
    """
    sure = np.asarray(model.label_confidence_, dtype=float)
    counted = np.isfinite(sure)
    if names_classes(model):
        counted[model.labelled_] = False
    found: dict[str, float | None] = {}
    for name in set(names.tolist()):
        here = sure[(names == name) & counted]
        found[name] = round(float(here.mean()), 4) if here.size else None
    return found


def _tried(choice: Any) -> dict[str, Any]:
    """Return the numbers of parts that ``-k auto`` tried, for the summary."""
    from partwise.apps.view.report.search_page import rows_of

    return {"k": choice.k, "good": choice.good, "tried": rows_of(choice)}


def _plain(value: Any) -> Any:
    """Return a parameter's value for JSON; other types become text."""
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _stability(task: work.Task, fitted: work.Fitted, bar: Bar, runs: int | None) -> Any:
    """Return the agreement of runs with other seeds; by default only if runs are fast."""
    # Stability is not measured then, because further runs would use neither links nor embeddings.
    if task.links or task.samples.also is not None:
        return None
    if runs is None:
        runs = RUNS if fitted.computing < RUN_SECONDS else 0
        if not runs:
            task.notes.append(
                f"Stability was not measured, since a run takes {duration(fitted.computing)}; "
                "--runs 3 measures it."
            )
    if not runs:
        return None
    from partwise.apps.view.report import stability

    def step(done: int, total: int) -> None:
        """Show how many runs are finished."""
        bar.step(done, total, "comparing runs")

    with work.as_notes([]):
        return stability(fitted.model, task.samples.X, task.given, seeds=runs, step=step)


def own_columns(model: Any, samples: Samples, *, new: bool = False) -> dict[str, list[Any]]:
    """Return the columns that --write-back adds to the user's table.

    For a classifier they are the label, its probability, the second label, and doubt. A label is
    doubtful if its probability is below 50%, or if it was given and other samples contradict it. A
    given label has probability one, as in assignments.csv.
    """
    names, sure = predicted(model, samples) if new else (model.labels_, model.label_confidence_)
    shares = [None if np.isnan(value) else round(float(value), 4) for value in sure]
    texts = [str(name) for name in names]
    if not names_classes(model):
        return {"partwise_cluster": texts, "partwise_confidence": shares}
    p = np.array(_probabilities(model, samples) if new else model.label_distributions_)
    best, unsure = p.argmax(axis=1), p.max(axis=1) < 0.5
    if not new:  # a given label need not be the most probable one
        at = {name: j for j, name in enumerate(model.classes_.tolist())}
        best = np.array([at[name] for name in names.tolist()])
        unsure = p[np.arange(len(p)), best] < 0.5
        unsure[model.labelled_] = False
        unsure[[doubt.sample for doubt in model.doubtful_labels_]] = True
    p[np.arange(len(p)), best] = -1
    return {
        "partwise_label": texts,
        "partwise_probability": shares,
        "partwise_second_label": [str(name) for name in model.classes_[p.argmax(axis=1)]],
        "partwise_doubtful": ["yes" if value else "no" for value in unsure],
    }


def _probabilities(model: Any, samples: Samples) -> Any:
    """Return the class probabilities of new samples."""
    return model.predict_proba(samples.X, **work.beside(model, samples))


def predicted(estimator: Any, samples: Samples) -> tuple[Any, Any]:
    """Return labels or clusters of new samples, and their probability or confidence."""
    if names_classes(estimator):
        p = _probabilities(estimator, samples)
        if hasattr(estimator, "thresholds_"):  # the model predicts several labels per sample
            chosen = p >= estimator.thresholds_
            names = [";".join(map(str, estimator.classes_[row])) for row in chosen]
            own = np.where(chosen, p, 1 - p)
            return np.array(names, dtype=object), own.min(axis=1)
        sure = p.max(axis=1) if p.shape[1] > 1 else np.full(len(p), np.nan)
        return estimator.classes_[p.argmax(axis=1)], sure
    V = np.asarray(estimator.transform(samples.X))
    groups = estimator._groups
    return groups.predict(estimator.embedding_, V), groups.predict_confidence(
        estimator.embedding_, V
    )


def assignment_rows(ids: list[str], names: Any, confidence: Any, given: Any) -> list[list[Any]]:
    """Return the rows of assignments.csv: id, label, certainty and given label."""
    labels = [""] * len(ids) if given is None else ["" if v is None else v for v in given]
    return [
        [name, str(cluster), "" if np.isnan(share) else f"{share:.4f}", label]
        for name, cluster, share, label in zip(ids, names, confidence, labels)
    ]


def _write_results(
    folder: Path,
    task: work.Task,
    fitted: work.Fitted,
    summary: dict[str, Any],
    asked: Asked,
    bar: Bar,
) -> None:
    """Write assignments, part weights and the list of skipped samples."""
    model, ids = fitted.model, task.samples.ids
    # a classifier is evaluated by held-out labels instead of stability
    named = summary["naming"] is not None
    stable = None
    if not named and (asked.runs or asked.report):
        stable = _stability(task, fitted, bar, asked.runs)
    if stable is not None:
        summary["stability"] = {"mean": stable.mean, "lowest": stable.low}
    rows = assignment_rows(ids, model.labels_, model.label_confidence_, task.given)
    heading = ["id", *result_columns(model), "given_label"]
    words = {row["name"]: ", ".join(row["about"]) for row in summary["clusters"] if "about" in row}
    if words:
        heading.append("about")
        rows = [[*row, words.get(row[1], "")] for row in rows]
    write_whole(folder / "assignments.csv", csv_text(heading, rows))
    V = np.asarray(model.embedding_)
    np.save(folder / "representation.npy", V, allow_pickle=False)
    if V.size <= MAX_TEXT:
        write_whole(folder / "representation.csv", codes_text(ids, V))
    if task.samples.skipped:
        write_whole(folder / "skipped.csv", csv_text(["id", "why"], task.samples.skipped))
        task.notes.append(f"What was left out is in skipped.csv ({len(task.samples.skipped)}).")
    _save(model, folder / "model.partwise", task, asked)
    if named:
        write_whole(
            folder / "label_next.csv", csv_text(*_next_rows(summary["naming"], task.samples))
        )
    if asked.report:
        bar.start("writing the report")
        _write_report(folder / "report.html", task, fitted, asked.command, stable)


def _save(model: Any, path: Path, task: work.Task, asked: Asked) -> None:
    """Write the model with the preparation of its data."""
    # only PartsClassifier has this option
    settings = {"for_predict": True} if asked.for_predict else {}
    model.save(path, recipe=task.samples.recipe, **settings)


def _next_rows(found: dict[str, Any], samples: Any) -> tuple[list[str], list[list[Any]]]:
    """Return heading and rows of label_next.csv, the samples to label next.

    The user fills in its empty column ``label`` and passes the file with --labels.
    """
    heading = ["id", "label", "looks_like", "probability"]
    rows = [[row.get(name, "") for name in heading] for row in found["label_next"]]
    if samples.texts is None:
        return heading, rows
    texts = dict(zip(samples.ids, samples.texts))
    return [*heading, "text"], [[*row, texts[row[0]]] for row in rows]


def codes_text(ids: list[str], V: np.ndarray) -> str:
    """Return part weights as CSV text: an id column, then one column per part."""
    heading = ["id", *(f"part_{j + 1}" for j in range(V.shape[1]))]
    lines = ([name, *(f"{value:.6g}" for value in row)] for name, row in zip(ids, V))
    return csv_text(heading, lines)


def _write_report(
    path: Path, task: work.Task, fitted: work.Fitted, command: str, stable: Any
) -> None:
    """Write report.html, or add a note if a package for it is not installed."""
    from partwise.apps.view.report import write_report

    model, samples = fitted.model, task.samples
    try:
        with work.as_notes(task.notes):
            write_report(
                path,
                model=model,
                X=samples.X,
                dataset=samples,
                labels=task.given,
                assignments={
                    "cluster": [str(name) for name in model.labels_],
                    "confidence": model.label_confidence_,
                },
                title=f"{Path(samples.source).name}: {len(set(model.labels_))} "
                + ("classes" if hasattr(model, "predict_proba") else "clusters"),
                command=command,
                reason=fitted.reason,
                seconds=fitted.seconds,
                stability=stable,
                choice=task.choice,
                part_names=task.part_names,
                label_share=task.label_share,
                links=task.links,
            )
    except ImportError as error:
        task.notes.append(f"No report was written: {error}")


# -- text that a command prints -------------------------------------------------------------------


def _say(summary: dict[str, Any], task: work.Task, asked: Asked) -> None:
    """Print the result, its expected accuracy, the written files and the next step."""
    summary["out"] = str(asked.out)
    if asked.as_json:
        print(outputs.as_json(summary))
        return
    found, files = summary["naming"], summary.get("files", ())
    print(_result(summary, task.choice), flush=True)
    outputs.say_notes(task.notes)
    console = outputs.printer()
    seconds = summary["seconds"].get("total", summary["seconds"]["fit"])
    console.print(f"Wrote {asked.out} in {duration(seconds)}.")
    for name in files:
        if name.startswith("labelled"):
            what = "predicted labels" if found else "clusters"
            console.print(f"Your table with the {what}: {asked.out / name}")
    if "report.html" in files:
        console.print(f"Next: open {asked.out / 'report.html'}")
    if found and files:
        outputs.say_next(str(row["id"]) for row in found["label_next"])


def _result(summary: dict[str, Any], choice: Any) -> str:
    """Return the printed text about the result, with tables of groups and columns."""
    from partwise.apps.view.report.pictures import render
    from partwise.apps.view.report.search_page import sentence

    kind, sure = ("class", "probability") if summary["naming"] else ("cluster", "confidence")
    described = any("about" in row for row in summary["clusters"])
    groups = outputs.plain_table(kind, "samples>", f"mean {sure}>", *["about"] * described)
    for row in summary["clusters"][:MOST_ROWS]:
        words = [", ".join(row.get("about", ()))] * described
        value = "-" if row[sure] is None else f"{row[sure]:.2f}"
        groups.add_row(row["name"], f"{row['size']:,}", value, *words)
    columns = outputs.plain_table("column", "read as", "preparation")
    for row in summary["columns"][:MOST_ROWS]:
        columns.add_row(*row.values())
    return render(
        "result.txt", s=summary, most=MOST_ROWS, group_table=outputs.as_text(groups),
        column_table=outputs.as_text(columns), choice=sentence(choice) if choice else "",
    )  # fmt: skip
