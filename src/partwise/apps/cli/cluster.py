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
from partwise.apps.cli.outputs import check_folder, whole_folder
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.apps.view.describe import about, names_classes, naming
from partwise.apps.view.report.charts import natural
from partwise.io.anndata_files import write_back as write_back_cells
from partwise.io.samples import Samples
from partwise.io.sheets import csv_text
from partwise.io.write_back import SUFFIXES, named_table
from partwise.persistence.atomic import check_target, write_whole

#: The representation as text only up to this many numbers.
MAX_TEXT = 2_000_000
#: Number of runs with other seeds, if one takes less than so many seconds.
RUNS, RUN_SECONDS = 5, 6.0
#: Number of clusters, and of columns of a table, that are printed.
MOST_ROWS = 30


def run_classify(data: str, *, command: str, **options: Any) -> None:
    """Run the command ``classify``; refuse data without labels before they are read."""
    reading = options["reading"]
    sources = (reading["labels"], reading["label_column"], options["label_share"])
    if all(source is None for source in sources):
        raise ValueError(
            "classify needs labels: --labels FILE, --label-column NAME, or --label-share SHARE for "
            "data whose sub-folders or label array name the classes. Without labels, use "
            "'partwise cluster', or label some samples with 'partwise studio'."
        )
    separator = options.pop("label_separator", None)
    if separator is not None:
        from partwise.apps.cli.multilabel_command import run_multilabel

        run_multilabel(data, separator=separator, command=command, **options)
        return
    _run(data, runs=0, command=command, **options)


def run_cluster(
    data: str,
    *,
    labels: Path | None,
    label_column: str | None,
    label_share: float | None,
    command: str,
    **options: Any,
) -> None:
    """Run the command ``cluster``; refuse labels and name the command that takes them."""
    given = {"--labels": labels, "--label-column": label_column, "--label-share": label_share}
    for option, value in given.items():
        if value is not None:
            raise ValueError(
                f"cluster does not accept {option}; use 'partwise classify' to predict labels from "
                "given ones."
            )
    options["reading"] |= {"labels": None, "label_column": None}
    _run(data, label_share=None, command=command, **options)


def _run(
    data: str,
    *,
    out: Path,
    runs: int | None,
    report: bool,
    write_back: bool = False,
    for_predict: bool = False,
    force: bool,
    as_json: bool,
    command: str,
    **asked: Any,
) -> None:
    """Read, fit and write the results; the folder appears at the end, complete."""
    began = time.perf_counter()
    check_folder(out, force=force)
    kind = Path(data).suffix.lower()
    if write_back and kind not in (".h5ad", *SUFFIXES):
        raise ValueError(f"--write-back needs a table or a .h5ad file, got {data}.")
    if write_back and asked["reading"].get("layer") == "raw":
        raise ValueError("--write-back cannot be used with --layer raw.")
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(data, bar, for_predict=for_predict, **asked)
        task.notes += language_advice(task.samples, task.given)
        with whole_folder(out, force=force) as folder:
            summary = _summary(task, fitted, command)
            named = summary["naming"] is not None  # held-out labels measure the accuracy
            wanted = bool(runs) or (report and not named)
            stable = _stability(task, fitted, bar, runs) if wanted else None
            if stable is not None:
                summary["stability"] = {"mean": stable.mean, "lowest": stable.low}
            _write_results(folder, task, fitted, summary["clusters"])
            _save(fitted.model, folder / "model.partwise", task, for_predict)
            if named:
                text = csv_text(*_next_rows(summary["naming"], task.samples))
                write_whole(folder / "label_next.csv", text)
            if write_back and kind in SUFFIXES:
                columns = own_columns(fitted.model, task.samples, given=task.given)
                write_whole(
                    folder / f"labelled{SUFFIXES[kind]}", named_table(task.samples, columns)
                )
            if report:
                bar.start("writing the report")
                _write_report(folder / "report.html", task, fitted, command, stable)
            summary["seconds"]["total"] = round(time.perf_counter() - began, 3)
            summary["notes"] = task.notes
            summary["files"] = sorted([*(f.name for f in folder.iterdir()), "summary.json"])
            write_whole(folder / "summary.json", outputs.as_json(summary) + "\n")
    summary["out"] = str(out)
    if write_back and kind == ".h5ad":
        write_back_cells(task.samples.source, fitted.model, task.samples.feature_names)
        task.notes.append(
            f"Wrote obs['partwise'], obsm['X_partwise'], varm['partwise_parts'] and "
            f"uns['partwise'] into {task.samples.source}."
        )
    _say(summary, task, as_json=as_json)


def run_fit(
    data: str,
    *,
    out: Path,
    for_predict: bool,
    force: bool,
    as_json: bool,
    command: str,
    **asked: Any,
) -> None:
    """Fit a model and write only its file."""
    check_target(out, force=force)
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(data, bar, for_predict=for_predict, **asked)
        check_target(out, force=force)
        _save(fitted.model, out, task, for_predict)
    summary = {**_summary(task, fitted, command), "notes": task.notes, "out": str(out)}
    _say(summary, task, as_json=as_json)


def _fitted(
    data: str,
    bar: Bar,
    *,
    reading: dict[str, Any],
    label_share: float | None,
    method: str,
    k: int | str | None,
    parts: int | None,
    known: Path | None,
    seed_words: Path | None,
    links: Path | None,
    seed: int,
    max_iter: int,
    for_predict: bool = False,
) -> tuple[work.Task, work.Fitted]:
    """Read the data and fit the model."""
    if method != "auto":
        work.find_method(method)  # an unknown method is reported before anything is read
    task = work.read_task(
        data, bar, label_share=label_share, seed=seed, reading=reading, method=method
    )
    k = work.know(task, known, seed_words, links, k=k, parts=parts)
    size = work.n_clusters(task, k, bar, method=method, seed=seed)
    made = work.build(task, method, k=size, parts=parts, seed=seed, max_iter=max_iter)
    if for_predict and not isinstance(made[0], PartsClassifier):
        raise ValueError(
            f"--for-predict is for --method classify, not {made[1]}; leave out --for-predict."
        )
    return task, work.fit(task, *made, bar)


# -- what comes out -------------------------------------------------------------------------------


def _summary(task: work.Task, fitted: work.Fitted, command: str) -> dict[str, Any]:
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
        **({"choice": chosen_rows(task.choice)} if task.choice is not None else {}),
        "seconds": {"read": round(task.seconds, 3), "fit": round(fitted.seconds, 3)},
        "versions": versions(),
    }


def result_columns(model: Any) -> tuple[str, str]:
    """Return the headings of the two result columns: the group of a sample, and its certainty."""
    if names_classes(model):
        return "predicted_label", "probability"
    return "cluster", "confidence"


def _means(model: Any, names: Any) -> dict[str, float | None]:
    """Return the mean confidence of each cluster; for classes without the given labels.

    None where nothing is left, or nothing is known.
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


def chosen_rows(choice: Any) -> dict[str, Any]:
    """Return the numbers that ``-k auto`` tried, for the summary."""
    from partwise.apps.view.report.search_page import rows_of

    return {"k": choice.k, "good": choice.good, "tried": rows_of(choice)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _stability(task: work.Task, fitted: work.Fitted, bar: Bar, runs: int | None) -> Any:
    """Compare runs with other seeds; by default only if they are quick."""
    if task.links or task.samples.also is not None:  # further runs would not use them
        return None
    wanted = (RUNS if fitted.computing < RUN_SECONDS else 0) if runs is None else runs
    if runs is None and not wanted:
        task.notes.append(
            f"Stability was not measured, since a run takes {duration(fitted.computing)}; "
            "--runs 3 measures it."
        )
    if not wanted:
        return None
    from partwise.apps.view.report import stability

    what = "comparing runs"
    with work.as_notes([]):
        return stability(
            fitted.model,
            task.samples.X,
            task.given,
            seeds=wanted,
            step=lambda done, total: bar.step(done, total, what),
        )


def own_columns(
    model: Any, samples: Samples, *, given: Any = None, new: bool = False
) -> dict[str, list[Any]]:
    """Return the columns that --write-back adds: predicted label, probability, second label, doubt.

    A label is doubtful if its probability is below a half, or if it was given and the other samples
    contradict it. A given label has probability one, as in assignments.csv.
    """
    if not names_classes(model):
        names, confidence = (
            predicted(model, samples) if new else (model.labels_, model.label_confidence_)
        )
        return {
            "partwise_cluster": [str(name) for name in names],
            "partwise_confidence": [round(float(value), 4) for value in confidence],
        }
    p = _probabilities(model, samples) if new else model.label_distributions_
    names = model.classes_[p.argmax(axis=1)] if new else model.transduction_
    at = {name: j for j, name in enumerate(model.classes_.tolist())}
    first = np.array([at[name] for name in names.tolist()])
    own = p[np.arange(len(p)), first]
    others = p.copy()
    others[np.arange(len(p)), first] = -1
    second = model.classes_[others.argmax(axis=1)]
    doubtful, sure = own < 0.5, own if p.shape[1] > 1 else np.full(len(p), np.nan)
    if not new:
        sure = model.label_confidence_
        if given is not None:
            doubtful &= np.array([label is None for label in given])
        doubtful[[doubt.sample for doubt in model.doubtful_labels_]] = True
    return {
        "partwise_label": [str(name) for name in names],
        "partwise_probability": [None if np.isnan(v) else round(float(v), 4) for v in sure],
        "partwise_second_label": [str(name) for name in second],
        "partwise_doubtful": ["yes" if value else "no" for value in doubtful],
    }


def _probabilities(model: Any, samples: Samples) -> Any:
    return model.predict_proba(samples.X, **work.beside(model, samples))


def predicted(estimator: Any, samples: Samples) -> tuple[Any, Any]:
    """Return the predicted label or cluster of new samples, and its probability or confidence."""
    if names_classes(estimator):
        p = _probabilities(estimator, samples)
        if hasattr(estimator, "thresholds_"):  # several labels per sample
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
    """Return rows of assignments.csv."""
    labels = [""] * len(ids) if given is None else ["" if v is None else v for v in given]
    return [
        [name, str(cluster), "" if np.isnan(share) else f"{share:.4f}", label]
        for name, cluster, share, label in zip(ids, names, confidence, labels)
    ]


def _write_results(
    folder: Path, task: work.Task, fitted: work.Fitted, clusters: list[dict[str, Any]]
) -> None:
    model, ids = fitted.model, task.samples.ids
    V = np.asarray(model.embedding_)
    rows = assignment_rows(ids, model.labels_, model.label_confidence_, task.given)
    heading = ["id", *result_columns(model), "given_label"]
    words = {row["name"]: ", ".join(row["about"]) for row in clusters if "about" in row}
    if words:
        heading.append("about")
        rows = [[*row, words.get(row[1], "")] for row in rows]
    write_whole(folder / "assignments.csv", csv_text(heading, rows))
    np.save(folder / "representation.npy", V, allow_pickle=False)
    if V.size <= MAX_TEXT:
        write_whole(folder / "representation.csv", codes_text(ids, V))
    if task.samples.skipped:
        skipped = csv_text(["id", "why"], task.samples.skipped)
        write_whole(folder / "skipped.csv", skipped)
        task.notes.append(f"What was left out is in skipped.csv ({len(task.samples.skipped)}).")


def _save(model: Any, path: Path, task: work.Task, for_predict: bool) -> None:
    settings = {"for_predict": True} if for_predict else {}  # of PartsClassifier alone
    model.save(path, recipe=task.samples.recipe, **settings)


def _next_rows(found: dict[str, Any], samples: Any) -> tuple[list[str], list[list[Any]]]:
    """Return label_next.csv: its column label is empty, to be filled in for --labels."""
    heading = ["id", "label", "looks_like", "probability"]
    rows = [[row.get(name, "") for name in heading] for row in found["label_next"]]
    if samples.texts is None:
        return heading, rows
    texts = dict(zip(samples.ids, samples.texts))
    return [*heading, "text"], [[*row, texts[row[0]]] for row in rows]


def codes_text(ids: list[str], V: np.ndarray) -> str:
    """Return part weights as CSV: the id, then one column per part."""
    heading = ["id", *(f"part_{j + 1}" for j in range(V.shape[1]))]
    lines = ([name, *(f"{value:.6g}" for value in row)] for name, row in zip(ids, V))
    return csv_text(heading, lines)


def _write_report(
    path: Path, task: work.Task, fitted: work.Fitted, command: str, stable: Any
) -> None:
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


# -- output ---------------------------------------------------------------------------------------


def _say(summary: dict[str, Any], task: work.Task, *, as_json: bool) -> None:
    """Print the result, its expected accuracy, the files, and the next step."""
    if as_json:
        print(outputs.as_json(summary))
        return
    console = outputs.printer()
    found = summary.get("naming")
    console.print(_headline(summary))
    console.print(_group_table(summary))
    if len(summary["clusters"]) > MOST_ROWS:
        console.print(f"and {len(summary['clusters']) - MOST_ROWS} more, see assignments.csv")
    if found:
        _say_accuracy(found, console)
    _say_scores(summary["scores"], console)
    if "stability" in summary:
        console.print(
            "Runs with other seeds agree with each other with an adjusted Rand index of "
            f"{summary['stability']['mean']:.2f} (1: always the same groups)."
        )
    _say_how(summary, task, console)
    outputs.say_notes(task.notes)
    seconds = summary["seconds"].get("total", summary["seconds"]["fit"])
    console.print(f"Wrote {summary['out']} in {duration(seconds)}.")
    for name in summary.get("files", ()):
        if name.startswith("labelled"):
            what = "predicted labels" if found else "clusters"
            console.print(f"Your table with the {what}: {Path(summary['out']) / name}")
    if "report.html" in summary.get("files", ()):
        console.print(f"Next: open {Path(summary['out']) / 'report.html'}")
    if found and found["label_next"] and "files" in summary:
        ids = ", ".join(str(row["id"]) for row in found["label_next"][:5])
        console.print(f"To improve the result, label these samples: {ids} (see label_next.csv).")


def _headline(summary: dict[str, Any]) -> str:
    """Return the result in one sentence."""
    samples, groups = summary["samples"], len(summary["clusters"])
    unit = {"table": "rows", "counts": "samples"}.get(summary["kind"], summary["kind"])
    unit = "cells" if summary["source"].lower().endswith(".h5ad") else unit
    if summary["naming"]:
        return (
            f"Classified {samples:,} {unit} into {groups} class{'es' * (groups > 1)}, from "
            f"{summary['labels']:,} given labels."
        )
    return f"Grouped {samples:,} {unit} into {groups} cluster{'s' * (groups > 1)}."


def _group_table(summary: dict[str, Any]) -> Any:
    """Return the table of classes or clusters."""
    kind, sure = ("class", "probability") if summary["naming"] else ("cluster", "confidence")
    described = any("about" in row for row in summary["clusters"])
    heads = (kind, "samples>", f"mean {sure}>")
    table = outputs.plain_table(*heads, *(["about"] if described else []))
    for row in summary["clusters"][:MOST_ROWS]:
        words = [", ".join(row.get("about", ()))] if described else []
        value = "-" if row[sure] is None else f"{row[sure]:.2f}"
        table.add_row(row["name"], f"{row['size']:,}", value, *words)
    return table


def _say_how(summary: dict[str, Any], task: work.Task, console: Console) -> None:
    """Print how the data was prepared and which method was used."""
    console.print(f"Data: {summary['preparation']}")
    if summary["columns"]:
        table = outputs.plain_table("column", "read as", "preparation")
        for row in summary["columns"][:MOST_ROWS]:
            table.add_row(row["name"], row["read_as"], row["done"])
        console.print(table)
        if len(summary["columns"]) > MOST_ROWS:
            more = len(summary["columns"]) - MOST_ROWS
            console.print(f"and {more} more columns, see summary.json")
    if task.choice is not None:
        from partwise.apps.view.report.search_page import sentence

        console.print(f"Number of clusters: {sentence(task.choice)}")
    console.print(f"Method: {summary['reason']}")


def _say_scores(found: dict[str, Any] | None, console: Console) -> None:
    """Print the accuracy on labels that the method has not seen."""
    if found is None:
        return
    unseen = f"the {found['samples']:,} labels that the method has not seen"
    if "accuracy" in found:
        console.print(f"Accuracy on {unseen}: {found['accuracy']:.0%}.")
        return
    console.print(
        f"Compared with {unseen}, clusters matched to classes: accuracy "
        f"{found['matched_accuracy']:.0%}, NMI {found['nmi']:.2f}, ARI {found['ari']:.2f}."
    )


def _say_accuracy(found: dict[str, Any], console: Any) -> None:
    """Print the expected accuracy of a classifier, and labels that look wrong."""
    if found["expected"] is None:
        console.print(found["said"])
    else:
        low, high = found["interval"]
        console.print(
            f"Expected accuracy on the unlabelled samples: {found['expected']:.0%} (95% interval: "
            f"{low:.0%} to {high:.0%}), if every sample belongs to one of these classes. "
            f"{found['caution']}".rstrip()
        )
        console.print(
            f"Expected balanced accuracy: {found['balanced']:.0%}. Cross-validation predicted "
            f"{found['agreed']} of {found['held_out']} given labels correctly. {found['shares']}"
        )
    far = found["none_of_these"]
    if far is not None and far["said"]:
        ids = ", ".join(str(name) for name in far["farthest"][:5])
        console.print(f"{far['said']} The farthest: {ids}.")
    for row in found["odd_labels"]:
        console.print(
            f"Check the label of {row['id']}: given {row['given']}, predicted "
            f"{row['looks_like']} (the given label is wrong with probability "
            f"{row['probability']:.2f})."
        )
