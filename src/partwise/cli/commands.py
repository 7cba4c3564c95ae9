"""The commands for a person's own data; their work is imported when they run."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from partwise.cli import options as o
from partwise.cli import typed


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (cluster, choose, consensus, studio, fit, transform, predict, methods, compare):
        app.command()(command)


def _typed() -> str:
    """The command as it was typed, for the report."""
    import shlex

    return shlex.join(["partwise", *sys.argv[1:], *typed.FROM_FILE])


@o.reads(*o.READING)
def cluster(
    data: o.Data,
    out: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("partwise-out"),
    label_share: o.LabelShare = None,
    k: o.K = None,
    method: o.Method = "auto",
    parts: o.Parts = None,
    known: o.Known = None,
    seed_words: o.SeedWords = None,
    links: o.Links = None,
    seed: o.Seed = 0,
    max_iter: o.MaxIter = 500,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=0, help="Runs of other seeds that show how stable the clusters are; 5 where quick."
        ),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    write_back: o.WriteBack = False,
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Group your own images, texts, table or cells, steered by the labels that you have.

    Writes assignments.csv, representation.npy and .csv, model.partwise, report.html and
    summary.json, all or none; skipped.csv where something could not be used. With labels,
    assignments.csv has the probability of each name, which held-out labels calibrate: of names with
    0.8 about four in five are right. Other clusters have a confidence, which orders samples by how
    clear they are and is no probability: (b - a) / (b + a), where a and b are the distances to the
    closest two cluster centres.

    Example: partwise cluster photos/ --labels labels.csv -k 10 --out out/

    Example: partwise cluster mails.csv --text-column body --label-column topic --out topics/

    Example: partwise cluster news/ --seed-words topics.toml --out topics/
    """
    from partwise.cli.cluster import run_cluster

    run_cluster(
        data,
        out=out,
        method=method,
        k=k,
        parts=parts,
        known=known,
        seed_words=seed_words,
        links=links,
        label_share=label_share,
        seed=seed,
        max_iter=max_iter,
        seeds=seeds,
        report=report,
        write_back=write_back,
        force=force,
        as_json=as_json,
        reading=reading,
        command=_typed(),
    )


@o.reads()
def choose(
    data: o.Data,
    out: Annotated[
        Path, typer.Option(help="The folder for the results; a stopped search goes on there.")
    ] = Path("partwise-choice"),
    range: o.Range = None,
    grid: o.Grid = None,
    method: o.Method = "auto",
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Number of parts, with --grid.")
    ] = None,
    label_share: o.LabelShare = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=0, help="Runs of each number that show how stable its parts are; 5 or 10."
        ),
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=2, help="Times that entries or labels are hidden; 3 or 5.")
    ] = None,
    seed: o.Seed = 0,
    max_iter: o.MaxIter = 200,
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Choose the number of parts, or any parameter, by what the models were not shown.

    Entries are hidden at random, models of every number of parts are fitted without them, and the
    error there says how many parts there are; all numbers that are as good are shown. With --grid,
    other parameters: by hidden labels where there are some, else by hidden entries. Writes
    choice.html, choice.csv, choice.json and, as it goes, results.jsonl.

    Example: partwise choose counts.csv --range 2-15 --out choice/

    Example: partwise choose photos/ --label-share 0.1 --method gnmf --grid graph_reg=0.1,1,10
    """
    from partwise.cli.choose import run_choose

    ends = typed.span(range, "--range")
    run_choose(
        data,
        out=out,
        numbers=None if ends is None else builtins.range(ends[0], ends[1] + 1),
        grid=typed.grid_of(grid),
        method=method,
        k=k,
        label_share=label_share,
        splits=splits,
        runs=runs,
        seed=seed,
        max_iter=max_iter,
        force=force,
        as_json=as_json,
        reading=reading,
        command=_typed(),
    )


@o.reads("layer", "transpose")
def consensus(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Counts: a .h5ad, .mtx, .npz or .npy file with cells in rows; or a folder of "
            "cnmf's, to go on from.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder for the results, laid out as cnmf's; a stopped command goes on there. "
            "By default programmes, or the folder that DATA is."
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("-k", metavar="FROM-TO", help="Numbers of programmes, as 10, 5-15 or 5,8."),
    ] = None,
    runs: Annotated[int, typer.Option(min=2, help="Runs of each number.")] = 100,
    genes: Annotated[
        int, typer.Option(min=0, help="Genes that runs see, those that vary most; 0: all.")
    ] = 2000,
    density_threshold: Annotated[
        float, typer.Option(help="Parts further than this from others are outliers; 2 keeps all.")
    ] = 0.5,
    neighborhood: Annotated[
        float, typer.Option(help="Share of the runs in which a part should come back.")
    ] = 0.3,
    loss: Annotated[str, typer.Option(help="frobenius or kullback-leibler.")] = "frobenius",
    device: Annotated[
        str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")
    ] = "auto",
    counts: Annotated[
        bool | None,
        typer.Option(
            help="Write the counts that cnmf needs to go on; by default up to 200 million of them.",
            show_default=False,
        ),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it will take in time and memory, and end.")
    ] = False,
    seed: o.Seed = 0,
    max_iter: o.MaxIter = 200,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Begin anew where others are.")] = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Find gene programmes that come back in many runs, by the steps of cNMF.

    High-variance genes, runs from random starts, a filter by density, spectra, usages, scores of
    genes. The folder is one of cnmf's: `cnmf consensus --output-dir . --name FOLDER` goes on from
    it, and so does this command from one of theirs. report.html shows how stable each number is,
    top_genes.csv what the programmes are.

    Example: partwise consensus pbmc.h5ad --layer counts -k 5-15 --out programmes

    Example: partwise consensus cnmf_out/pbmc --density-threshold 0.1
    """
    from partwise.cli.consensus_command import run_consensus

    run_consensus(
        data,
        out=out,
        numbers=typed.numbers_of(k, "-k"),
        runs=runs,
        genes=genes,
        density_threshold=density_threshold,
        neighborhood=neighborhood,
        loss=loss,
        device=device,
        counts=counts,
        estimate=estimate,
        seed=seed,
        max_iter=max_iter,
        report=report,
        force=force,
        as_json=as_json,
        reading=reading,
        command=_typed(),
    )


@o.reads()
def fit(
    data: o.Data,
    out: Annotated[Path, typer.Option(help="The model to write.")] = Path("model.partwise"),
    label_share: o.LabelShare = None,
    k: o.K = None,
    method: o.Method = "auto",
    parts: o.Parts = None,
    known: o.Known = None,
    seed_words: o.SeedWords = None,
    links: o.Links = None,
    seed: o.Seed = 0,
    max_iter: o.MaxIter = 500,
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Learn a model and write it to a file, together with how the data was prepared.

    Example: partwise fit photos/ --label-share 0.1 --out photos.partwise
    """
    from partwise.cli.cluster import run_fit

    run_fit(
        data,
        out=out,
        method=method,
        k=k,
        parts=parts,
        known=known,
        seed_words=seed_words,
        links=links,
        label_share=label_share,
        seed=seed,
        max_iter=max_iter,
        force=force,
        as_json=as_json,
        reading=reading,
        command=_typed(),
    )


@o.reads(*o.NEW)
def transform(
    model: o.Model,
    new: o.New,
    out: Annotated[Path, typer.Option(help="A .csv or .npy file for the codes.")] = Path(
        "codes.csv"
    ),
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Code new samples by a model's parts, prepared as its own samples were.

    Example: partwise transform out/model.partwise more-photos/ --out codes.csv
    """
    from partwise.cli.apply import run_transform

    run_transform(model, new, out=out, force=force, as_json=as_json, reading=reading)


@o.reads()
def studio(
    data: o.Data,
    project: Annotated[
        Path | None,
        typer.Option(help="The folder that keeps labels and codes; by default, beside DATA."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; any but this machine needs --password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 0,
    password: Annotated[
        str | None, typer.Option(envvar="PARTWISE_PASSWORD", help="Asked for by the page.")
    ] = None,
    seed: o.Seed = 0,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
    *,
    reading: dict[str, Any],
) -> None:
    """Label a few samples in the browser, and see the answer change at once.

    Labels are on disk before a click is acknowledged; the next start goes on with them.

    Example: partwise studio photos/

    Example: partwise studio mails.csv --text-column body --project mails-studio/
    """
    from partwise.cli.open_studio import run_studio

    run_studio(
        data,
        project=project,
        host=host,
        port=port,
        password=password,
        seed=seed,
        browser=browser,
        reading=reading,
    )


@o.reads(*o.NEW)
def predict(
    model: o.Model,
    new: o.New,
    out: Annotated[
        Path | None, typer.Option(help="A .csv file; by default, standard output.")
    ] = None,
    write_back: o.WriteBackNew = False,
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Put new samples into a model's clusters: id, cluster, probability (or confidence).

    Example: partwise predict out/model.partwise more-photos/ --out new.csv
    """
    from partwise.cli.apply import run_predict

    run_predict(
        model, new, out=out, write_back=write_back, force=force, as_json=as_json, reading=reading
    )


def methods(as_json: o.Json = False) -> None:
    """List the methods and when to use each.

    Example: partwise methods
    """
    from partwise.cli.compare import run_methods

    run_methods(as_json=as_json)


@o.reads()
def compare(
    data: o.Data,
    methods: Annotated[
        str | None,
        typer.Option(help="Names, separated by commas; by default, all that can take the data."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A .csv file for the table.")] = None,
    label_share: o.LabelShare = None,
    k: o.K = None,
    parts: o.Parts = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    seed: o.Seed = 0,
    max_iter: o.MaxIter = 200,
    force: o.Force = False,
    as_json: o.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Set methods side by side on your data.

    They are scored by right names on labels that they have not seen: those beyond --label-share,
    else the given ones, each held out once; logistic regression, a linear SVM and label spreading
    stand beside them. Without labels, by how well runs of different seeds agree.

    Example: partwise compare photos/ --label-share 0.1 --methods nmf,gnmf,cdnmf
    """
    from partwise.cli.compare import run_compare

    run_compare(
        data,
        out=out,
        methods=methods,
        k=k,
        parts=parts,
        label_share=label_share,
        seed=seed,
        runs=runs,
        max_iter=max_iter,
        force=force,
        as_json=as_json,
        reading=reading,
    )
