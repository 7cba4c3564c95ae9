"""``partwise cluster`` and ``partwise fit``"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise._versions import versions
from partwise.apps.cli import outputs, work
from partwise.apps.cli.outputs import check_folder, whole_folder
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.apps.view.describe import about, names_classes, naming
from partwise.apps.view.report.charts import natural
from partwise.estimators import saving
from partwise.io.anndata_files import write_back as write_back_cells
from partwise.io.samples import Samples
from partwise.io.sheets import csv_text
from partwise.io.write_back import SUFFIXES, named_table
from partwise.persistence.atomic import check_target, write_whole

#: The representation as text only up to this many numbers.
MAX_TEXT = 2_000_000
#: Runs of other seeds, where one takes less than these seconds.
SEEDS, SEED_SECONDS = 5, 6.0
#: Clusters, and columns of a table, that are printed.
MOST_ROWS = 30


def run_cluster(
    data: str,
    *,
    out: Path,
    seeds: int | None,
    report: bool,
    write_back: bool = False,
    force: bool,
    as_json: bool,
    command: str,
    **asked: Any,
) -> None:
    """Everything that `cluster` does, as `_fitted` was ``asked``; its folder appears at the end."""
    began = time.perf_counter()
    check_folder(out, force=force)
    kind = Path(data).suffix.lower()
    if write_back and kind not in (".h5ad", *SUFFIXES):
        raise ValueError(f"--write-back is for a table or a .h5ad file, not {data}.")
    if write_back and asked["reading"].get("layer") == "raw":
        raise ValueError("--write-back does not go with --layer raw, whose genes are others.")
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(data, bar, **asked)
        with whole_folder(out, force=force) as folder:
            summary = _summary(task, fitted, command)
            named = summary["naming"] is not None  # held-out labels say how far to trust it
            wanted = bool(seeds) or (report and not named)
            stable = _stability(task, fitted, bar, seeds) if wanted else None
            if stable is not None:
                summary["stability"] = {"mean": stable.mean, "lowest": stable.low}
            _write_results(folder, task, fitted, summary["clusters"])
            if named:
                text = csv_text(*_next_rows(summary["naming"], task.samples))
                write_whole(folder / "label_next.csv", text)
            if write_back and kind in SUFFIXES:
                columns = own_columns(fitted.model, task.samples, given=task.given)
                write_whole(folder / f"named{SUFFIXES[kind]}", named_table(task.samples, columns))
                task.notes.append(f"named{SUFFIXES[kind]} is {data} with its names.")
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
    data: str, *, out: Path, force: bool, as_json: bool, command: str, **asked: Any
) -> None:
    """Only the model."""
    check_target(out, force=force)
    with Bar(Console(stderr=True)) as bar:
        task, fitted = _fitted(data, bar, **asked)
        check_target(out, force=force)
        saving.save(fitted.model, out, recipe=task.samples.recipe)
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
) -> tuple[work.Task, work.Fitted]:
    """Data that was read, and the model that was asked for."""
    task = work.read_task(
        data, bar, label_share=label_share, seed=seed, reading=reading, method=method
    )
    k = work.know(task, known, seed_words, links, k=k, parts=parts)
    size = work.n_clusters(task, k, bar, method=method, seed=seed)
    made = work.build(task, method, k=size, parts=parts, seed=seed, max_iter=max_iter)
    return task, work.fit(task, *made, bar)


# -- what comes out -------------------------------------------------------------------------------


def _summary(task: work.Task, fitted: work.Fitted, command: str) -> dict[str, Any]:
    samples, model = task.samples, fitted.model
    names = np.array([str(name) for name in model.labels_])
    sizes = Counter(names.tolist())
    sure = how_sure(model)
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
        "naming": naming(model, samples.ids),
        **({"choice": chosen_rows(task.choice)} if task.choice is not None else {}),
        "seconds": {"read": round(task.seconds, 3), "fit": round(fitted.seconds, 3)},
        "versions": versions(),
    }


def how_sure(model: Any) -> str:
    """What the number beside a name is called: of a class its probability."""
    return "probability" if names_classes(model) else "confidence"


def _means(model: Any, names: Any) -> dict[str, float | None]:
    """Mean confidence of each cluster; of classes without the labels that were given.

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
    """What -k auto tried, for the summary."""
    from partwise.apps.view.report.search_page import rows_of

    return {"k": choice.k, "good": choice.good, "tried": rows_of(choice)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _stability(task: work.Task, fitted: work.Fitted, bar: Bar, seeds: int | None) -> Any:
    """Runs of other seeds; by default only where they are quick."""
    if task.links or task.samples.also is not None:  # other seeds would not know them
        return None
    wanted = (SEEDS if fitted.computing < SEED_SECONDS else 0) if seeds is None else seeds
    if seeds is None and not wanted:
        task.notes.append(
            f"No runs of other seeds, since one takes {duration(fitted.computing)}; "
            "--seeds 3 asks for them."
        )
    if not wanted:
        return None
    from partwise.apps.view.report import stability

    what = "comparing seeds"
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
    """Columns for a person's own table: what each row is, how surely, and what else it may be.

    A name is doubtful where it is more likely wrong than right: its probability is below a half,
    or it was given and the rest contradicts it. A name that was given has probability one, as in
    assignments.csv.
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
        "partwise_name": [str(name) for name in names],
        "partwise_probability": [None if np.isnan(v) else round(float(v), 4) for v in sure],
        "partwise_second": [str(name) for name in second],
        "partwise_doubtful": ["yes" if value else "no" for value in doubtful],
    }


def _probabilities(model: Any, samples: Samples) -> Any:
    return model.predict_proba(samples.X, **work.beside(model, samples))


def predicted(estimator: Any, samples: Samples) -> tuple[Any, Any]:
    """Names of new samples, and how sure they are."""
    if names_classes(estimator):
        p = _probabilities(estimator, samples)
        sure = p.max(axis=1) if p.shape[1] > 1 else np.full(len(p), np.nan)
        return estimator.classes_[p.argmax(axis=1)], sure
    V = np.asarray(estimator.transform(samples.X))
    groups = estimator._groups
    return groups.predict(estimator.embedding_, V), groups.predict_confidence(
        estimator.embedding_, V
    )


def assignment_rows(ids: list[str], names: Any, confidence: Any, given: Any) -> list[list[Any]]:
    """Rows of assignments.csv."""
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
    heading = ["id", "cluster", how_sure(model), "given_label"]
    words = {row["name"]: ", ".join(row["about"]) for row in clusters if "about" in row}
    if words:
        heading.append("about")
        rows = [[*row, words.get(row[1], "")] for row in rows]
    write_whole(folder / "assignments.csv", csv_text(heading, rows))
    np.save(folder / "representation.npy", V, allow_pickle=False)
    if V.size <= MAX_TEXT:
        write_whole(folder / "representation.csv", codes_text(ids, V))
    saving.save(model, folder / "model.partwise", recipe=task.samples.recipe)
    if task.samples.skipped:
        skipped = csv_text(["id", "why"], task.samples.skipped)
        write_whole(folder / "skipped.csv", skipped)
        task.notes.append(f"What was left out is in skipped.csv ({len(task.samples.skipped)}).")


def _next_rows(found: dict[str, Any], samples: Any) -> tuple[list[str], list[list[Any]]]:
    """Heading and rows of label_next.csv, with the text of each where there is one."""
    heading = ["id", "looks_like", "probability"]
    rows = [[row[name] for name in heading] for row in found["label_next"]]
    if samples.texts is None:
        return heading, rows
    texts = dict(zip(samples.ids, samples.texts))
    return [*heading, "text"], [[*row, texts[row[0]]] for row in rows]


def codes_text(ids: list[str], V: np.ndarray) -> str:
    """Codes as CSV: the id, then a column for each part."""
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
            )
    except ImportError as error:
        task.notes.append(f"No report was written: {error}")


# -- what is said ---------------------------------------------------------------------------------


def _say(summary: dict[str, Any], task: work.Task, *, as_json: bool) -> None:
    if as_json:
        print(outputs.as_json(summary))
        return
    console = outputs.printer()
    kind = {"table": "rows", "counts": "samples"}.get(summary["kind"], summary["kind"])
    of = {"texts": "words"}.get(summary["kind"], "features")
    if summary["source"].lower().endswith(".h5ad"):
        kind, of = "cells", "genes"
    console.print(
        f"{summary['samples']:,} {kind}, {summary['features']:,} {of}. {summary['preparation']}"
    )
    _say_columns(summary["columns"], console)
    if task.choice is not None:
        from partwise.apps.view.report.search_page import sentence

        console.print(f"Number: {sentence(task.choice)}")
    console.print(f"Method: {summary['reason']}")
    what = "probability" if summary["naming"] else "confidence"
    told = any("about" in row for row in summary["clusters"])
    heads = ("class" if summary["naming"] else "cluster", "samples>", f"{what}>")
    table = outputs.plain_table(*heads, *(["about"] if told else []))
    for row in summary["clusters"][:MOST_ROWS]:
        words = [", ".join(row.get("about", ()))] if told else []
        sure = "-" if row[what] is None else f"{row[what]:.2f}"
        table.add_row(row["name"], f"{row['size']:,}", sure, *words)
    console.print(table)
    if len(summary["clusters"]) > MOST_ROWS:
        console.print(f"and {len(summary['clusters']) - MOST_ROWS} more clusters")
    _say_scores(summary["scores"], console)
    if summary.get("naming"):
        _say_naming(summary["naming"], console)
    if "stability" in summary:
        console.print(
            f"Runs of other seeds agree with each other by {summary['stability']['mean']:.2f} "
            "(adjusted Rand index; 1 is always the same)."
        )
    outputs.say_notes(task.notes)
    seconds = summary["seconds"].get("total", summary["seconds"]["fit"])
    console.print(f"Wrote {summary['out']} ({duration(seconds)}).")
    if "report.html" in summary.get("files", ()):
        console.print(f"Open {Path(summary['out']) / 'report.html'}")


def _say_columns(columns: list[dict[str, str]], console: Console) -> None:
    """What was done to each column of a table."""
    if not columns:
        return
    table = outputs.plain_table("column", "read as", "what was done")
    for row in columns[:MOST_ROWS]:
        table.add_row(row["name"], row["read_as"], row["done"])
    console.print(table)
    if len(columns) > MOST_ROWS:
        console.print(f"and {len(columns) - MOST_ROWS} more columns, all in summary.json")


def _say_scores(found: dict[str, Any] | None, console: Console) -> None:
    """The share of right names; a score of matched clusters only where nothing was named."""
    if found is None:
        return
    unseen = f"the {found['samples']} labels that the method has not seen"
    if "right_name" in found:
        console.print(f"Right names: {found['right_name']:.2f} of {unseen}.")
        return
    console.print(
        f"Against {unseen}, clusters matched to classes: accuracy {found['accuracy']:.2f}, "
        f"NMI {found['nmi']:.2f}, ARI {found['ari']:.2f}."
    )


def _say_naming(found: dict[str, Any], console: Any) -> None:
    """What a model that names samples by class says of its answers."""
    if found["expected"] is None:
        console.print(found["said"])
    else:
        low, high = found["interval"]
        said = (
            f"Expected share of right names on the rest: {found['expected']:.2f} ({low:.2f} to "
            f"{high:.2f}), if no other class occurs. {found['caution']}"
        )
        console.print(said.rstrip())
        console.print(
            f"With classes counted alike: {found['balanced']:.2f}. Of {found['held_out']} given "
            f"labels that could be held out in turn, {found['agreed']} were named as they are."
        )
    far = found["none_of_these"]
    if far is not None and far["said"]:
        ids = ", ".join(str(name) for name in far["farthest"][:5])
        console.print(f"{far['said']} The farthest: {ids}.")
    for row in found["odd_labels"]:
        console.print(
            f"Look again: {row['id']} was given {row['given']} and looks like {row['looks_like']} "
            f"(wrong with probability {row['probability']:.2f})."
        )
    if found["label_next"]:
        ids = ", ".join(str(row["id"]) for row in found["label_next"][:5])
        console.print(f"To do better, label these next: {ids} (more in label_next.csv).")
