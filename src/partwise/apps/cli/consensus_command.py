"""The command ``consensus``: gene expression programs, in the file layout of cnmf."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console

from partwise.apps.cells.programmes import (
    PreparedCounts,
    at_once,
    each_run,
    groups_of_runs,
    memory_of,
    model_of_runs,
    moments,
    on_device,
    prepare,
    programmes_of,
    seconds_of,
)
from partwise.apps.cli import outputs
from partwise.apps.cli.copies import spread
from partwise.apps.cli.options import Asked, numbers_of
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.backends.arrays import to_numpy
from partwise.io import read_samples
from partwise.io._common import shown
from partwise.io.anndata_files import read_quietly
from partwise.io.cnmf_folder import CnmfFolder, write_cnmf
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import sweep, write_whole
from partwise.solvers.checkpoint import describe

SUFFIXES = (".h5ad", ".mtx", ".npz", ".npy")
#: Maximum number of counts that are written for the cnmf package by default.
MANY = 200_000_000
LOSSES = ("frobenius", "kullback-leibler")
#: Default number of variable genes.
GENES = 2000


def run_consensus(asked: Asked) -> None:
    """Find gene expression programs, and write each run to disk as soon as it ends.

    An interrupted command continues from the runs on disk.
    """
    began = time.perf_counter()
    theirs, folder, numbers = _open(asked)
    going_on = theirs is not None and theirs.home.absolute() == folder.home.absolute()
    errors = Console(stderr=True)
    with Bar(errors) as bar:
        bar.start("reading the counts")
        place = _device(asked.device)
        prepared = _read(theirs, asked, bar, place)
        n, p = prepared.seen.shape
        if max(numbers) > min(n, p):
            raise ValueError(
                f"--parts or --range asks for {max(numbers)} programs, more than the {n} cells "
                f"with counts or the {p} genes."
            )
        if not (going_on or asked.estimate):
            _claim(folder, prepared, asked)
        if place is not None:
            prepared = on_device(prepared, place)
        model = model_of_runs(asked.loss, asked.max_iter)
        missing = {number: _missing(folder, number, asked.runs) for number in numbers}
        bar.start("estimating the time")
        expected = _estimate(prepared, missing, model, place)
        errors.print(expected["sentence"], highlight=False, markup=False, soft_wrap=True)
        if asked.estimate:
            if asked.as_json:
                print(json.dumps(expected, indent=2))
            return
        notes = list(prepared.notes)
        if not going_on:
            bar.start("writing the counts")
            notes += _hand_over(folder, prepared, numbers, asked)
        found = _found(folder, prepared, missing, model, notes, asked, bar)
        bar.start("writing the report")
        summary = {
            "command": asked.command,
            "source": asked.data,
            "cells": len(prepared.cells),
            "genes": len(prepared.genes),
            "genes_seen": len(prepared.kept),
            "runs": asked.runs,
            "device": place or "cpu",
            "estimate": {name: expected[name] for name in ("seconds", "bytes")},
            "numbers": [one.facts for one in found],
            "notes": notes,
            "seconds": round(time.perf_counter() - began, 3),
        }
        _write(folder, found, summary, asked)
    _print(summary, asked)


def _found(
    folder: CnmfFolder, prepared: PreparedCounts, missing: dict[int, list[int]], model: Any,
    notes: list[str], asked: Asked, bar: Bar,
) -> list[Agreed]:  # fmt: skip
    """Compute the missing runs, and return the programs for each number k."""
    places = None
    if asked.report:
        places, without = _places(Path(asked.data), prepared.cells)
        notes += without
    try:
        _run(folder, prepared, missing, model, asked, bar)
        return _agree(folder, prepared, list(missing), places, asked, bar)
    except KeyboardInterrupt:
        total = len(missing) * asked.runs
        left = sum(len(_missing(folder, number, asked.runs)) for number in missing)
        outputs.stop(bar.console, total - left, total, "runs")


def _open(asked: Asked) -> tuple[CnmfFolder | None, CnmfFolder, list[int]]:
    """Return the input folder of cnmf (or None), the result folder and the numbers k."""
    if asked.parts is not None and asked.range is not None:
        raise ValueError("Pass either --parts or --range, not both.")
    numbers = [asked.parts] if asked.parts else numbers_of(asked.range, "--range")
    if not (Path(asked.data) / "cnmf_tmp").is_dir():
        asked.out = asked.out or Path("programs")
        _check(numbers, asked)
        return None, CnmfFolder(asked.out), numbers
    theirs = CnmfFolder(Path(asked.data))
    asked.out = asked.out or theirs.home
    going_on = theirs.home.absolute() == asked.out.absolute()
    numbers = numbers or (theirs.numbers() if going_on else [])
    _check(numbers, asked)
    _check_folder(theirs, asked.loss if going_on else None, asked.reading)
    return theirs, CnmfFolder(asked.out), numbers


# -- reading options and counts -------------------------------------------------------------------


def _check(numbers: Sequence[int], asked: Asked) -> None:
    """Raise an error if an option has an invalid value."""
    threshold, share, out = asked.density_threshold, asked.neighborhood, asked.out
    if not numbers:
        raise ValueError(
            "Pass the number of programs with --parts 10, or several with --range 5-15."
        )
    if asked.loss not in LOSSES:
        raise ValueError(f"--loss must be {' or '.join(LOSSES)}; got {asked.loss!r}.")
    if not 0 < threshold <= 2:
        raise ValueError(f"--density-threshold must be above 0 and at most 2; got {threshold:g}.")
    if not 0 < share <= 1:
        raise ValueError(f"--neighborhood must be above 0 and at most 1; got {share:g}.")
    outputs.check_place(out, [p.name for p in out.iterdir()] if out.is_dir() else ())


def _check_folder(theirs: CnmfFolder, loss: str | None, reading: dict[str, Any]) -> None:
    """Raise an error for options that contradict an existing folder of cnmf.

    ``loss`` is the loss of the command.
    """
    for name in ("layer", "transpose"):
        if reading.get(name):
            raise ValueError(f"--{name}: {theirs.home} has its own counts; leave it out.")
    used = theirs.loss()
    if loss is not None and used is not None and used != loss:
        raise ValueError(
            f"--loss {loss}: the runs in {theirs.home} use {used}; pass --loss {used}, or --out "
            "for another folder."
        )


def _device(asked: str) -> str | None:
    """Return the requested torch device, or an available one; None for the CPU."""
    if asked == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if asked == "auto":
            return None
        raise ImportError(f'--device {asked} needs PyTorch: pip install "partwise[gpu]"') from None
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else None
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {asked}: PyTorch finds no GPU; use --device cpu.")
    return asked


def _read(theirs: CnmfFolder | None, asked: Asked, bar: Bar, place: str | None) -> PreparedCounts:
    """Return the prepared counts, from a file or from a folder that cnmf prepared."""
    reading = {**asked.reading}
    genes = reading.pop("genes")
    if theirs is not None:
        ready = _prepared_by(theirs)
        if (genes or len(ready.genes)) not in (GENES, len(ready.kept)):
            raise ValueError(
                f"--genes {genes}: {theirs.home} was prepared with {len(ready.kept)} genes; leave "
                "--genes out, or pass a file with counts."
            )
        return ready
    path = Path(asked.data)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: counts must be a file that ends in {', '.join(SUFFIXES)}, or a folder of "
            "cnmf with cnmf_tmp in it."
        )
    cells, own = _names_beside(path)
    if cells and own and not reading.get("transpose"):  # files of Cell Ranger have genes in rows
        from scipy.io import mminfo

        reading["transpose"] = int(mminfo(path)[0]) == len(own) != len(cells)
    samples = read_samples(path, scale="none", genes=0, step=bar.step, **reading)
    X = _counts(samples.X, place)
    cells = cells if len(cells) == X.shape[0] else samples.ids
    names = own if len(own) == X.shape[1] else samples.feature_names
    bar.start("genes that vary most")
    ready = prepare(X, genes, cells=cells, genes=names, source=str(path))
    notes = tuple(note for note in samples.notes if "all zero" not in note)
    return replace(ready, notes=(*notes, *ready.notes))


def _counts(X: Any, place: str | None) -> Any:
    """Return counts in memory; dense counts are on the GPU if one is used."""
    if place is not None and not sp.issparse(X):
        import torch

        plain = X.dtype.name in ("uint8", "int8", "int16", "int32", "float32")
        return torch.from_numpy(np.array(X, dtype=None if plain else np.float32)).to(place).float()
    return np.array(X, dtype=np.float32) if isinstance(X, np.memmap) else X


def _places(path: Path, cells: list[str]) -> tuple[Any, list[str]]:
    """Return the spatial coordinates of cells in a .h5ad file, and notes.

    Coordinates are those of ``obsm["spatial"]``. A note lists cells without coordinates.
    """
    if path.suffix.lower() != ".h5ad":
        return None, []
    adata = read_quietly(path, backed="r")
    adata.file.close()  # only X is read from the file later
    held = adata.obsm.get("spatial")
    if held is None or held.shape[1] < 2:
        return None, []
    at = {str(name): i for i, name in enumerate(adata.obs_names)}
    places = np.asarray(held, dtype=np.float64)[[at[c] for c in cells], :2]
    gone = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if not gone.size:
        return places, []
    what = "cell" if gone.size == 1 else "cells"
    names = shown(cells[i] for i in gone)
    note = (
        f'The map leaves out {gone.size} {what} without a coordinate in obsm["spatial"]: {names}.'
    )
    return (places if gone.size < len(cells) else None), [note]


def _names_beside(path: Path) -> tuple[list[str], list[str]]:
    """Return names of cells and genes from the tables next to a Matrix Market file."""
    cells = _names(path, "barcodes")
    genes = _names(path, "features", 1) or _names(path, "genes")
    return (cells, genes) if cells and genes else ([], [])


def _names(path: Path, kind: str, column: int = 0) -> list[str]:
    """Return a column of a table of names, or its first column if names repeat."""
    files = [path.parent / f"{kind}.tsv{end}" for end in ("", ".gz")]
    file = next((f for f in files if path.suffix.lower() == ".mtx" and f.is_file()), None)
    if file is None:
        return []
    content = file.read_bytes()
    content = gzip.decompress(content) if file.suffix == ".gz" else content
    rows = [line.split("\t") for line in content.decode("utf-8").splitlines()]
    names = [row[min(column, len(row) - 1)] for row in rows]
    # The first column contains ids. Several genes may have the same symbol, but not the same id.
    return names if len(set(names)) == len(names) else [row[0] for row in rows]


def _prepared_by(folder: CnmfFolder) -> PreparedCounts:
    """Return the counts that ``cnmf prepare`` or this command wrote to a folder."""
    seen, cells, kept = folder.read_counts("norm_counts")
    tpm, _, genes = folder.read_counts("tpm")
    at = {name: j for j, name in enumerate(genes)}
    gone = [name for name in kept if name not in at]
    if gone or tpm.shape[0] != seen.shape[0]:
        raise ValueError(f"{folder.home}: norm_counts and tpm have different cells or genes.")
    tpm = sp.csr_array(tpm, dtype=np.float32) if sp.issparse(tpm) else tpm.astype(np.float32)
    seen = sp.csr_array(seen, dtype=np.float32) if sp.issparse(seen) else seen.astype(np.float32)
    mean, variance = moments(tpm)
    places = np.array([at[name] for name in kept])
    return PreparedCounts(seen, tpm, mean, np.sqrt(variance), places, cells, genes)


# -- files of the result folder -------------------------------------------------------------------


def _claim(folder: CnmfFolder, prepared: PreparedCounts, asked: Asked) -> None:
    """Create the result folder for these counts and settings, or continue in it.

    An existing folder with other counts or settings raises an error, unless ``force`` is true.
    """
    import hashlib

    settings = {"genes": asked.reading["genes"], "loss": asked.loss, "seed": asked.seed}
    settings["max_iter"] = asked.max_iter
    some = to_numpy(prepared.seen[:200])
    some = some.toarray() if sp.issparse(some) else some
    what = {**settings, "genes seen": prepared.kept_genes, "cells": prepared.cells, "some": some}
    mark = hashlib.sha256(describe(what).encode()).hexdigest()[:16]
    file = folder.path("partwise.json")
    if folder.home.is_dir() and any(folder.home.iterdir()):
        try:
            same = json.loads(file.read_text("utf-8"))["counts"] == mark
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        if not same and not asked.force:
            raise FileExistsError(
                f"{folder.home} contains other files than those of this command with these counts. "
                "Use --out for another folder, or --force to overwrite."
            )
        if not same or asked.force:
            for old in folder.home.glob(f"cnmf_tmp/{folder.name}.spectra.k_*"):
                old.unlink()
    folder.make()
    sweep(folder.home)
    sweep(folder.home / "cnmf_tmp")
    content = json.dumps({"counts": mark, "data": asked.data, **settings}) + "\n"
    write_whole(file, content, force=True)


def _missing(folder: CnmfFolder, k: int, runs: int) -> list[int]:
    """Return the numbers of the runs that the folder lacks for k programs.

    None are missing if cnmf merged all runs into one table.
    """
    there = set(folder.runs(k))
    if not there and folder.path(f"spectra.k_{k}.merged.df.npz").is_file():
        return []
    return [number for number in range(runs) if number not in there]


def _hand_over(
    folder: CnmfFolder, prepared: PreparedCounts, numbers: list[int], asked: Asked
) -> list[str]:
    """Write the files with which cnmf can continue; return notes if it cannot."""
    counts = asked.counts
    folder.write_prepared(
        numbers, asked.runs, seed=asked.seed, loss=asked.loss, genes=prepared.genes,
        kept=prepared.kept_genes, mean=prepared.mean, deviation=prepared.deviation,
    )  # fmt: skip
    n, p = prepared.tpm.shape
    held = prepared.tpm.nnz if sp.issparse(prepared.tpm) else n * p
    if counts is False or (counts is None and held > MANY):
        return ["The counts were not written, so cnmf cannot continue; use --counts to write them."]
    try:
        import anndata  # noqa: F401
    except ImportError:
        if counts:
            raise ImportError("--counts needs anndata: pip install 'partwise[cells]'") from None
        return ["Without anndata (partwise[cells]), cnmf cannot continue from this folder."]
    for kind, X, names in (
        ("norm_counts", prepared.seen, prepared.kept_genes),
        ("tpm", prepared.tpm, prepared.genes),
    ):
        if not folder.path(f"{kind}.h5ad").is_file():
            folder.write_counts(kind, X if sp.issparse(X) else to_numpy(X), prepared.cells, names)
    return []


# -- computing the runs and programs --------------------------------------------------------------


def _estimate(
    prepared: PreparedCounts, missing: dict[int, list[int]], model: Any, place: str | None
) -> dict[str, Any]:
    """Return expected seconds and memory of the missing runs, with a sentence."""
    wanted = [k for k, left in missing.items() for _ in left]
    memory = memory_of(prepared, max(missing))
    if not wanted:
        return {"seconds": 0.0, "bytes": memory, "sentence": "All runs are done already."}
    numbers = sorted(set(wanted))
    most = max(len(left) for left in missing.values())
    seconds = seconds_of(prepared, numbers, most, model=model, clock=time.perf_counter)
    seconds *= sum(wanted) / (most * sum(numbers))
    where = f"on {place}" if place else "of memory"
    return {
        "seconds": seconds,
        "bytes": memory,
        "sentence": f"{len(wanted)} runs: about {duration(seconds)} and {memory / 2**30:.1f} GB "
        f"{where}, estimated from a few iterations.",
    }


def _run(
    folder: CnmfFolder, prepared: PreparedCounts, missing: dict[int, list[int]],
    model: Any, asked: Asked, bar: Bar,
) -> None:  # fmt: skip
    """Compute the missing runs, several in parallel, and write each when it ends."""
    runs, genes = asked.runs, prepared.kept_genes
    total = sum(k * runs for k in missing)
    before = total - sum(k * len(left) for k, left in missing.items())

    def one(k: int, only: list[int]) -> Iterator[int]:
        """Compute and write some runs with k programs, and yield k after each."""
        for number, H in each_run(prepared.seen, k, runs, model=model, seed=asked.seed, only=only):
            folder.write_run(k, number, H, genes)
            yield k

    def ended(k: int) -> None:
        """Show the progress after a run with k programs."""
        nonlocal before
        before += k
        bar.step(before, total, "runs")

    bar.step(before, total, "runs")
    tasks = [
        (k, only)
        for k, left in sorted(missing.items(), reverse=True)  # the slowest runs first
        for only in groups_of_runs(prepared, k, left)
    ]
    spread(one, tasks, ended, at_once(prepared))


@dataclass(frozen=True)
class Agreed:
    """Results for one number of programs k, for summary, gene table and report."""

    facts: dict[str, Any]
    stats: tuple[int, float, float, float]
    genes: list[list[Any]]
    pictures: dict[str, str]


def _agree(
    folder: CnmfFolder, prepared: PreparedCounts, numbers: Sequence[int], places: Any,
    asked: Asked, bar: Bar,
) -> list[Agreed]:  # fmt: skip
    """Compute and write the programs for each k, and draw them for the report."""
    from partwise.apps.view.report.programmes_page import drawn, programme_rows

    found: dict[int, Agreed] = {}
    genes = prepared.kept_genes

    def one(k: int) -> Iterator[Agreed]:
        """Yield the programs for one k, after writing their files."""
        made = programmes_of(
            prepared, folder.pool(k, genes), k, density_threshold=asked.density_threshold,
            neighborhood=asked.neighborhood, loss=asked.loss, seed=asked.seed,
        )  # fmt: skip
        write_cnmf(
            made.found, folder.home.parent, folder.name, samples=prepared.cells, features=genes,
            genes=prepared.genes, scores=made.scores, deviation=prepared.deviation, force=True,
        )  # fmt: skip
        facts = {
            "k": k,
            "stability": None if np.isnan(made.stability) else round(made.stability, 4),
            "error": made.error,
            "outliers": int((made.found.groups < 0).sum()),
            "programmes": programme_rows(made),
        }
        index = {name: j for j, name in enumerate(made.genes)}
        leading = [
            [k, programme + 1, place + 1, gene, f"{made.scores[programme, index[gene]]:.6g}"]
            for programme, names in enumerate(made.top_genes(100))
            for place, gene in enumerate(names)
        ]
        pictures = drawn(made, places) if asked.report else {}
        stats = (k, asked.density_threshold, made.stability, made.error)
        yield Agreed(facts, stats, leading, pictures)

    def ended(agreed: Agreed) -> None:
        """Store the result for one k and show the progress."""
        found[agreed.facts["k"]] = agreed
        bar.step(len(found), len(numbers), "consensus")

    bar.step(0, len(numbers), "consensus")
    spread(one, [(k,) for k in sorted(numbers, reverse=True)], ended, at_once(prepared))
    return [found[k] for k in numbers]


# -- results and text that the command prints -----------------------------------------------------


def _write(folder: CnmfFolder, found: list[Agreed], summary: dict[str, Any], asked: Asked) -> None:
    """Write statistics, gene table, summary and report to the result folder."""
    folder.write_stats(np.array([one.stats for one in found], dtype=np.float64))
    rows = [row for one in found for row in one.genes]
    heads = ["k", "programme", "rank", "gene", "score"]
    files = {
        "top_genes.csv": csv_text(heads, rows),
        "summary.json": outputs.as_json(summary) + "\n",
    }
    if asked.report:
        from partwise.apps.view.report.programmes_page import programmes_page

        source = "{cells:,} cells, {genes_seen:,} of {genes:,} genes. Data: {source}."
        files["report.html"] = programmes_page(
            [one.facts | one.pictures for one in found], command=asked.command,
            title=f"Gene expression programs: {folder.name}", notes=summary["notes"],
            source=source.format(**summary),
        )  # fmt: skip
    for name, text in files.items():
        write_whole(folder.home / name, text, force=True)


def _print(summary: dict[str, Any], asked: Asked) -> None:
    """Print the stability and the error for each k, or the summary as JSON."""
    out = asked.out
    if asked.as_json:
        print(outputs.as_json({**summary, "out": str(out)}))
        return
    console = outputs.printer()
    table = outputs.plain_table("k>", "stability>", "error>", "outliers>")
    for row in summary["numbers"]:
        stable = "-" if row["stability"] is None else f"{row['stability']:.3f}"
        table.add_row(str(row["k"]), stable, f"{row['error']:.5g}", str(row["outliers"]))
    console.print(table)
    outputs.say_notes(summary["notes"])
    page = next(p for p in (out / "report.html", out / "top_genes.csv") if p.is_file())
    console.print(f"Wrote {out} ({duration(summary['seconds'])}). Open {page}")
