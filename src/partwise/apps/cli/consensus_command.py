"""The command ``consensus``: from counts to gene expression programs, in the layout of cnmf."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
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
from partwise.apps.cli.options import numbers_of
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.backends.arrays import to_numpy
from partwise.io import read_samples
from partwise.io._common import shown
from partwise.io.anndata_files import read_plain, read_quietly
from partwise.io.cnmf_folder import CnmfFolder, write_cnmf
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import sweep, write_whole
from partwise.solvers.checkpoint import describe

SUFFIXES = (".h5ad", ".mtx", ".npz", ".npy")
#: Counts up to which they are written for cnmf unasked.
MANY = 200_000_000
LOSSES = ("frobenius", "kullback-leibler")


def run_consensus(
    data: str,
    *,
    out: Path | None,
    parts: int | None,
    range: str | None,
    runs: int,
    genes: int,
    density_threshold: float,
    neighborhood: float,
    loss: str,
    device: str,
    counts: bool | None,
    estimate: bool,
    seed: int,
    max_iter: int,
    report: bool,
    force: bool,
    as_json: bool,
    reading: dict[str, Any],
    command: str,
) -> None:
    """Everything that `consensus` does; each run is on disk before the next ends."""
    clock = Stages()
    theirs = CnmfFolder(Path(data)) if (Path(data) / "cnmf_tmp").is_dir() else None
    out = out or (theirs.home if theirs is not None else Path("programs"))
    folder = CnmfFolder(out)
    going_on = theirs is not None and theirs.home.absolute() == out.absolute()
    if parts is not None and range is not None:
        raise ValueError("--parts is one number of programs and --range several; give one option.")
    numbers = [parts] if parts else numbers_of(range, "--range")
    numbers = numbers or (folder.numbers() if going_on else [])
    _check(numbers, loss, density_threshold, neighborhood, out)
    errors = Console(stderr=True)
    with Bar(errors) as bar:
        bar.start("reading the counts")
        place = _device(device)
        prepared = _read(data, theirs, genes, bar, reading, place, clock)
        n, p = prepared.seen.shape
        if max(numbers) > min(n, p):
            raise ValueError(
                f"{max(numbers)} programs are more than the {n} cells with counts or the {p} genes."
            )
        settings = {"genes": genes, "loss": loss, "seed": seed, "max_iter": max_iter}
        if not (going_on or estimate):
            _claim(folder, prepared, settings, data, force=force)
        if not estimate:
            clock.file = folder.path("seconds.json")
        clock.end("claiming the folder")
        if place is not None:
            prepared = on_device(prepared, place)
            clock.end("to the device")
        model = model_of_runs(loss, max_iter)
        missing = {number: _missing(folder, number, runs) for number in numbers}
        bar.start("how long it will take")
        asked = _estimate(prepared, missing, model, place)
        errors.print(asked["sentence"], highlight=False, markup=False, soft_wrap=True)
        if estimate:
            if as_json:
                print(json.dumps(asked, indent=2))
            return
        clock.end("estimate")
        notes = list(prepared.notes)
        if not going_on:
            bar.start("writing the counts")
            notes += _hand_over(folder, prepared, numbers, runs, seed, loss, counts)
        places, said = _places(Path(data), prepared.cells) if report else (None, [])
        notes += said
        try:
            clock.end("counts for cnmf")
            _run(folder, prepared, missing, runs, model, seed, bar, report=report)
            clock.end("runs")
            found = _agree(
                folder, prepared, numbers, density_threshold, neighborhood, loss, seed, bar,
                report=report, places=places,
            )  # fmt: skip
            clock.end("what comes back")
        except KeyboardInterrupt:
            total = len(numbers) * runs
            done = total - sum(len(_missing(folder, number, runs)) for number in numbers)
            errors.print(
                f"Stopped after {done} of {total} runs; the same command continues from there.",
                highlight=False,
            )
            raise SystemExit(130) from None
        bar.start("writing the report")
        source = f"{len(prepared.cells):,} cells, {len(prepared.kept):,} of {len(prepared.genes):,}"
        summary = {
            "command": command,
            "source": data,
            "cells": len(prepared.cells),
            "genes": len(prepared.genes),
            "genes_seen": len(prepared.kept),
            "runs": runs,
            "device": place or "cpu",
            "estimate": {name: asked[name] for name in ("seconds", "bytes")},
            "numbers": [one.facts for one in found],
            "notes": notes,
        }
        if place is not None and "cuda" in place:
            import torch

            summary["device_GB"] = round(torch.cuda.max_memory_allocated(place) / 2**30, 2)
        page = ""
        if report:
            from partwise.apps.view.report.programmes_page import programmes_page

            title = f"Gene expression programs: {folder.name}"
            page = programmes_page(
                [one.drawn for one in found], title=title, command=command,
                notes=notes, source=f"{source} genes. Data: {data}.",
            )  # fmt: skip
        clock.end("report")
        summary["stages"] = clock.seconds
        summary["seconds"] = round(sum(clock.seconds.values()), 3)
        _write(folder, found, density_threshold, summary, page)
    _say(summary, out, as_json=as_json)


#: What is imported while copies leave this interpreter idle: for what comes back, for the report.
LATER = ("sklearn.cluster", "partwise.apps.view.report.programmes_page")
DRAWS, WRITES = ("matplotlib",), ("matplotlib.figure", "jinja2")


def _get_ready(names: Sequence[str]) -> None:
    for name in names:
        with suppress(Exception):  # whoever needs it says what is wrong
            import_module(name)


class Stages:
    """Seconds of each stage, on disk as soon as it ends: a stopped command tells where it was."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.file: Path | None = None
        self._last = time.perf_counter()

    def end(self, name: str) -> None:
        """What went on since the last end; a name that comes again is added up."""
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0) + now - self._last, 3)
        self._last = now
        if self.file is not None:
            write_whole(self.file, json.dumps(self.seconds) + "\n", force=True)


# -- reading --------------------------------------------------------------------------------------


def _check(numbers: Sequence[int], loss: str, threshold: float, share: float, out: Path) -> None:
    if not numbers:
        raise ValueError(
            "Give the number of programs with --parts 10, or several with --range 5-15."
        )
    if loss not in LOSSES:
        raise ValueError(f"--loss can be {' or '.join(LOSSES)}; got {loss!r}.")
    if not 0 < threshold <= 2:
        raise ValueError(f"--density-threshold is above 0 and at most 2; got {threshold:g}.")
    if not 0 < share <= 1:
        raise ValueError(f"--neighborhood is above 0 and at most 1; got {share:g}.")
    outputs.check_place(out, [p.name for p in out.iterdir()] if out.is_dir() else ())


def _device(asked: str) -> str | None:
    """The torch device that was asked for, or that there is; None: this processor."""
    if asked == "cpu":
        return None
    try:
        import torch
    except ImportError:
        if asked == "auto":
            return None
        raise ImportError(f'--device {asked} needs torch: pip install "partwise[gpu]"') from None
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else None
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {asked}: torch sees no GPU here.")
    return asked


def _read(
    data: str, theirs: CnmfFolder | None, genes: int, bar: Bar, reading: dict[str, Any],
    place: str | None, clock: Stages,
) -> PreparedCounts:  # fmt: skip
    """Counts from a file, or what cnmf made of them."""
    if theirs is not None:
        ready = _prepared_by(theirs)
        clock.end("reading")
        return ready
    path = Path(data)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: counts are a file that ends in {', '.join(SUFFIXES)}, or a folder of cnmf's "
            "with cnmf_tmp in it."
        )
    cells, own = _names_beside(path)
    if cells and own and not reading.get("transpose"):  # genes in rows, as Cell Ranger writes them
        from scipy.io import mminfo

        rows = int(mminfo(path)[0])
        reading = {**reading, "transpose": rows == len(own) != len(cells)}
    samples = read_samples(path, scale="none", genes=0, step=bar.step, **reading)
    X = samples.X
    cells = cells if cells and len(cells) == X.shape[0] else samples.ids
    names = own if own and len(own) == X.shape[1] else samples.feature_names
    if place is not None and not sp.issparse(X):  # the passes over all counts are made there
        import torch

        plain = X.dtype.name in ("uint8", "int8", "int16", "int32", "float32")
        X = torch.from_numpy(np.array(X, dtype=None if plain else np.float32)).to(place).float()
    elif isinstance(X, np.memmap):
        X = np.array(X, dtype=np.float32)
    clock.end("reading")
    bar.start("genes that vary most")
    ready = prepare(X, genes, cells=cells, genes=names, source=str(path))
    clock.end("genes that vary most")
    said = tuple(note for note in samples.notes if "all zero" not in note)
    return replace(ready, notes=(*said, *ready.notes))


def _places(path: Path, cells: list[str]) -> tuple[Any, list[str]]:
    """Coordinates of the cells in ``obsm["spatial"]`` of a .h5ad file; a note on who has none."""
    if path.suffix.lower() != ".h5ad":
        return None, []
    adata = read_plain(path, obsm="spatial")
    if adata is None:
        adata = read_quietly(path, backed="r")
        adata.file.close()  # what lies beside X is here
    held = adata.obsm.get("spatial")
    if held is None or held.shape[1] < 2:
        return None, []
    at = {str(name): i for i, name in enumerate(adata.obs_names)}
    places = np.asarray(held, dtype=np.float64)[[at[c] for c in cells], :2]
    gone = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if not gone.size:
        return places, []
    have = "cell has" if gone.size == 1 else "cells have"
    names = shown(cells[i] for i in gone)
    note = f'{gone.size} {have} no coordinate in obsm["spatial"] ({names}): not on the map.'
    return (places if gone.size < len(cells) else None), [note]


def _names_beside(path: Path) -> tuple[list[str], list[str]]:
    """Cells and genes of a Matrix Market file, from the tables that lie beside it."""
    found: list[list[str]] = []
    for kinds in (("barcodes",), ("features", "genes")):
        files = [path.parent / f"{kind}.tsv{end}" for kind in kinds for end in ("", ".gz")]
        file = next((f for f in files if path.suffix.lower() == ".mtx" and f.is_file()), None)
        if file is None:
            return [], []
        content = file.read_bytes()
        content = gzip.decompress(content) if file.suffix == ".gz" else content
        rows = [line.split("\t") for line in content.decode("utf-8").splitlines()]
        column = 1 if kinds[0] == "features" and all(len(row) > 1 for row in rows) else 0
        names = [row[column] for row in rows]
        if len(set(names)) < len(names):  # a symbol may be of several genes, an id is not
            names = [row[0] for row in rows]
        found.append(names)
    return found[0], found[1]


def _prepared_by(folder: CnmfFolder) -> PreparedCounts:
    """What cnmf's ``prepare``, or this command, left in a folder."""
    seen, cells, kept = folder.read_counts("norm_counts")
    tpm, _, genes = folder.read_counts("tpm")
    at = {name: j for j, name in enumerate(genes)}
    gone = [name for name in kept if name not in at]
    if gone or tpm.shape[0] != seen.shape[0]:
        raise ValueError(f"{folder.home}: norm_counts and tpm are not of the same cells and genes.")
    tpm = sp.csr_array(tpm, dtype=np.float32) if sp.issparse(tpm) else tpm.astype(np.float32)
    seen = sp.csr_array(seen, dtype=np.float32) if sp.issparse(seen) else seen.astype(np.float32)
    mean, variance = moments(tpm)
    places = np.array([at[name] for name in kept])
    return PreparedCounts(seen, tpm, mean, np.sqrt(variance), places, cells, genes)


# -- the folder -----------------------------------------------------------------------------------


def _claim(
    folder: CnmfFolder,
    prepared: PreparedCounts,
    settings: dict[str, Any],
    data: str,
    *,
    force: bool,
) -> None:
    """The folder for these counts and settings: new, or what a stopped command left."""
    import hashlib

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
        if not same and not force:
            raise FileExistsError(
                f"{folder.home} holds something else than the runs of this command on these "
                "counts; --out names another folder, --force begins anew there."
            )
        if not same or force:
            for old in folder.home.glob(f"cnmf_tmp/{folder.name}.spectra.k_*"):
                old.unlink()
    folder.make()
    sweep(folder.home)
    sweep(folder.home / "cnmf_tmp")
    write_whole(file, json.dumps({"counts": mark, "data": data, **settings}) + "\n", force=True)


def _missing(folder: CnmfFolder, k: int, runs: int) -> list[int]:
    """The runs that are still to be made; none where cnmf left only the table of all."""
    there = set(folder.runs(k))
    if not there and folder.path(f"spectra.k_{k}.merged.df.npz").is_file():
        return []
    return [number for number in range(runs) if number not in there]


def _hand_over(
    folder: CnmfFolder, prepared: PreparedCounts, numbers: list[int], runs: int, seed: int,
    loss: str,
    counts: bool | None,
) -> list[str]:  # fmt: skip
    """What cnmf needs to go on from this folder; a note where it will not be able to."""
    folder.write_prepared(
        numbers, runs, seed=seed, loss=loss, genes=prepared.genes, kept=prepared.kept_genes,
        mean=prepared.mean, deviation=prepared.deviation,
    )  # fmt: skip
    n, p = prepared.tpm.shape
    held = prepared.tpm.nnz if sp.issparse(prepared.tpm) else n * p
    if counts is False or (counts is None and held > MANY):
        return ["The counts were not written, so cnmf cannot go on from here; --counts does it."]
    try:
        import h5py  # noqa: F401
    except ImportError:
        if counts:
            raise ImportError("--counts needs anndata: pip install 'partwise[cells]'") from None
        return ["Without anndata (partwise[cells]) cnmf cannot go on from here."]
    for kind, X, names in (
        ("norm_counts", prepared.seen, prepared.kept_genes),
        ("tpm", prepared.tpm, prepared.genes),
    ):
        if not folder.path(f"{kind}.h5ad").is_file():
            folder.write_counts(kind, X if sp.issparse(X) else to_numpy(X), prepared.cells, names)
    return []


# -- the work -------------------------------------------------------------------------------------


def _estimate(
    prepared: PreparedCounts, missing: dict[int, list[int]], model: Any, place: str | None
) -> dict[str, Any]:
    """Seconds and bytes, and a sentence on them."""
    wanted = [k for k, left in missing.items() for _ in left]
    memory = memory_of(prepared, max(missing))
    if not wanted:
        return {"seconds": 0.0, "bytes": memory, "sentence": "All runs are there already."}
    numbers = sorted(set(wanted))
    most = max(len(left) for left in missing.values())
    seconds = seconds_of(prepared, numbers, most, model=model, clock=time.perf_counter)
    seconds *= sum(wanted) / (most * sum(numbers))
    where = f"on {place}" if place else "of memory"
    return {
        "seconds": seconds,
        "bytes": memory,
        "sentence": f"{len(wanted)} runs: about {duration(seconds)} and {memory / 2**30:.1f} GB "
        f"{where}, by a few iterations.",
    }


def _run(
    folder: CnmfFolder, prepared: PreparedCounts, missing: dict[int, list[int]], runs: int,
    model: Any, seed: int, bar: Bar, *, report: bool,
) -> None:  # fmt: skip
    """All runs that are not there yet, groups of them at once; each is on disk when it ends."""
    total = sum(k * runs for k in missing)
    before = total - sum(k * len(left) for k, left in missing.items())
    genes = prepared.kept_genes

    def one(k: int, only: list[int]) -> Iterator[int]:
        for number, H in each_run(prepared.seen, k, runs, model=model, seed=seed, only=only):
            folder.write_run(k, number, H, genes)
            yield k

    def told(k: int) -> None:
        nonlocal before
        before += k
        bar.step(before, total, "runs")

    bar.step(before, total, "runs")
    tasks = [
        (k, only)
        for k, left in sorted(missing.items(), reverse=True)  # the longest first
        for only in groups_of_runs(prepared, k, left)
    ]
    later = (*LATER, *(DRAWS if report else ()))
    spread(one, tasks, told, at_once(prepared), partial(_get_ready, later))


@dataclass(frozen=True)
class Agreed:
    """What the summary, the table of genes and the report say of one k."""

    k: int
    stability: float
    error: float
    facts: dict[str, Any]
    genes: list[list[Any]]
    drawn: Any


def _agree(
    folder: CnmfFolder, prepared: PreparedCounts, numbers: Sequence[int], threshold: float,
    share: float, loss: str, seed: int, bar: Bar, *, report: bool, places: Any,
) -> list[Agreed]:  # fmt: skip
    """What the runs of each k have in common: its tables, and its pictures."""
    found: dict[int, Agreed] = {}
    genes = prepared.kept_genes

    def one(k: int) -> Iterator[Agreed]:
        from partwise.apps.view.report.programmes_page import drawn, programme_rows

        made = programmes_of(
            prepared, folder.pool(k, genes), k, density_threshold=threshold, neighborhood=share,
            loss=loss, seed=seed,
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
        pictures = drawn(made, places) if report else None
        yield Agreed(k, made.stability, made.error, facts, leading, pictures)

    def told(agreed: Agreed) -> None:
        found[agreed.k] = agreed
        bar.step(len(found), len(numbers), "what comes back")

    bar.step(0, len(numbers), "what comes back")
    later = partial(_get_ready, WRITES if report else ())
    spread(one, [(k,) for k in sorted(numbers, reverse=True)], told, at_once(prepared), later)
    return [found[k] for k in numbers]


# -- what is said ---------------------------------------------------------------------------------


def _write(
    folder: CnmfFolder, found: list[Agreed], threshold: float, summary: dict[str, Any], page: str
) -> None:
    stats = [[one.k, threshold, one.stability, one.error] for one in found]
    folder.write_stats(np.array(stats, dtype=np.float64))
    rows = [row for one in found for row in one.genes]
    heads = ["k", "programme", "rank", "gene", "score"]
    files = {
        "top_genes.csv": csv_text(heads, rows),
        "summary.json": outputs.as_json(summary) + "\n",
    }
    if page:
        files["report.html"] = page
    for name, text in files.items():
        write_whole(folder.home / name, text, force=True)


def _say(summary: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print(outputs.as_json({**summary, "out": str(out)}))
        return
    console, table = (
        outputs.printer(),
        outputs.plain_table("k>", "stability>", "error>", "outliers>"),
    )
    for row in summary["numbers"]:
        stable = "-" if row["stability"] is None else f"{row['stability']:.3f}"
        table.add_row(str(row["k"]), stable, f"{row['error']:.5g}", str(row["outliers"]))
    console.print(table)
    outputs.say_notes(summary["notes"])
    page = next(p for p in (out / "report.html", out / "top_genes.csv") if p.is_file())
    console.print(f"Wrote {out} ({duration(summary['seconds'])}). Open {page}")
