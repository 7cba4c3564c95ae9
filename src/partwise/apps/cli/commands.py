"""The commands for a person's own data: a help text each, their options, and who does the work."""

from __future__ import annotations

from pathlib import Path

import typer

from partwise.apps.cli.options import NEW, READS, argument, command, flag, option

#: What people use first, what they know of the model, and then how to read the data.
FIRST = "data labels label_column label_share k method text_column out"
MODEL = "parts set components_per_class known seed_words links seed max_iter"
READING = " ".join(READS)
#: Without parameters of a method.
PLAIN = " ".join(name for name in READS if name not in ("set", "components_per_class"))


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    every = (cluster, choose, consensus, studio, fit, transform, predict, methods, compare)
    for own in (*every, demo, datasets):
        app.command()(own)


@command(
    "cluster.run_cluster",
    f"{FIRST} write_back force {MODEL} seeds report as_json {READING}",
    out=option("The folder for the results.", Path("partwise-out")),
    write_back=flag(
        "Of a table: named.csv (or .parquet, .jsonl) with its own columns and, for each row, name, "
        "probability, second name and whether it is doubtful. Into a .h5ad file: clusters, codes "
        "and parts, as obs, obsm, varm and uns of partwise.",
    ),
)
def cluster() -> None:
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


@command(
    "choose.run_choose",
    "data range grid method k label_share labels label_column text_column out force runs splits "
    f"seed max_iter as_json {READING}",
    out=option(
        "The folder for the results; a stopped search goes on there.", Path("partwise-choice")
    ),
    range=option(
        "Numbers of parts to try, as 2-20; by default from 1 until it only gets worse.",
        metavar="FROM-TO",
    ),
    grid=option(
        "Values of a parameter of --method to try instead, as graph_reg=0.1,1,10; several times: "
        "all combinations.",
        of=list[str],
        metavar="NAME=VALUE,VALUE",
    ),
    k=option("Number of parts, with --grid.", None, "-k", of=int, min=1),
    runs=option("Runs of each number that show how stable its parts are; 5 or 10.", of=int, min=0),
    splits=option("Times that entries or labels are hidden; 3 or 5.", of=int, min=2),
    max_iter=200,
)
def choose() -> None:
    """Choose the number of parts, or any parameter, by what the models were not shown.

    Entries are hidden at random, models of every number of parts are fitted without them, and the
    error there says how many parts there are; all numbers that are as good are shown. With --grid,
    other parameters: by hidden labels where there are some, else by hidden entries. Writes
    choice.html, choice.csv, choice.json and, as it goes, results.jsonl.

    Example: partwise choose counts.csv --range 2-15 --out choice/

    Example: partwise choose photos/ --label-share 0.1 --method gnmf --grid graph_reg=0.1,1,10
    """


@command(
    "consensus_command.run_consensus",
    "data k out runs genes density_threshold neighborhood loss device counts estimate layer "
    "transpose seed max_iter report force as_json",
    data=argument(
        "DATA",
        "Counts: a .h5ad, .mtx, .npz or .npy file with cells in rows; or a folder of cnmf's, to go "
        "on from.",
    ),
    out=option(
        "The folder for the results, laid out as cnmf's; a stopped command goes on there. By "
        "default programmes, or the folder that DATA is.",
        of=Path,
    ),
    k=option("Numbers of programmes, as 10, 5-15 or 5,8.", None, "-k", metavar="FROM-TO"),
    runs=option("Runs of each number.", 100, min=2),
    genes=option("Genes that runs see, those that vary most; 0: all.", 2000, min=0),
    density_threshold=option("Parts further than this from others are outliers; 2 keeps all.", 0.5),
    neighborhood=option("Share of the runs in which a part should come back.", 0.3),
    loss=option("frobenius or kullback-leibler.", "frobenius"),
    device=option("cpu, cuda, or auto: a GPU where there is one.", "auto"),
    counts=option(
        "Write the counts that cnmf needs to go on; by default up to 200 million of them.",
        of=bool,
        show_default=False,
    ),
    estimate=flag("Say what it will take in time and memory, and end."),
    max_iter=200,
    force=flag("Begin anew where others are."),
)
def consensus() -> None:
    """Find gene programmes that come back in many runs, by the steps of cNMF.

    High-variance genes, runs from random starts, a filter by density, spectra, usages, scores of
    genes. The folder is one of cnmf's: `cnmf consensus --output-dir . --name FOLDER` goes on from
    it, and so does this command from one of theirs. report.html shows how stable each number is,
    top_genes.csv what the programmes are.

    Example: partwise consensus pbmc.h5ad --layer counts -k 5-15 --out programmes

    Example: partwise consensus cnmf_out/pbmc --density-threshold 0.1
    """


@command(
    "cluster.run_fit",
    f"{FIRST} force {MODEL} as_json {READING}",
    out=option("The model to write.", Path("model.partwise")),
)
def fit() -> None:
    """Learn a model and write it to a file, together with how the data was prepared.

    Example: partwise fit photos/ --label-share 0.1 --out photos.partwise
    """


@command(
    "apply.run_transform",
    f"model new out force as_json {NEW}",
    out=option("A .csv or .npy file for the codes.", Path("codes.csv")),
)
def transform() -> None:
    """Code new samples by a model's parts, prepared as its own samples were.

    Example: partwise transform out/model.partwise more-photos/ --out codes.csv
    """


@command(
    "apply.run_predict",
    f"model new out write_back force as_json {NEW}",
    out=option("A .csv file; by default, standard output.", of=Path),
    write_back=flag(
        "NEW is a table: --out gets its own columns, and after them name, probability, second name "
        "and whether it is doubtful.",
    ),
)
def predict() -> None:
    """Put new samples into a model's clusters: id, cluster, probability (or confidence).

    Example: partwise predict out/model.partwise more-photos/ --out new.csv
    """


@command(
    "open_studio.run_studio",
    f"data project labels label_column text_column host port password browser seed {PLAIN}",
    project=option("The folder that keeps labels and codes; by default, beside DATA.", of=Path),
    host=option("Where to listen; any but this machine needs --password.", "127.0.0.1"),
    port=option("0: any free one.", 0, min=0, max=65535),
    password=option("Asked for by the page.", envvar="PARTWISE_PASSWORD"),
    browser=option("Open the page.", True),
)
def studio() -> None:
    """Label a few samples in the browser, and see the answer change at once.

    Labels are on disk before a click is acknowledged; the next start goes on with them.

    Example: partwise studio photos/

    Example: partwise studio mails.csv --text-column body --project mails-studio/
    """


@command("compare.run_methods", "as_json")
def methods() -> None:
    """List the methods and when to use each.

    Example: partwise methods
    """


@command(
    "compare.run_compare",
    "data methods label_share k labels label_column text_column out force parts runs seed "
    f"max_iter as_json {READING}",
    methods=option("Names, separated by commas; by default, all that can take the data."),
    out=option("A .csv file for the table.", of=Path),
    runs=option("Runs of each method.", 3, min=1),
    max_iter=200,
)
def compare() -> None:
    """Set methods side by side on your data.

    They are scored by right names on labels that they have not seen: those beyond --label-share,
    else the given ones, each held out once; logistic regression, a linear SVM and label spreading
    stand beside them. Without labels, by how well runs of different seeds agree.

    Example: partwise compare photos/ --label-share 0.1 --methods nmf,gnmf,cdnmf
    """


@command(
    "demonstration.run_demo",
    "out force as_json",
    out=option("The page to write.", Path("partwise-demo.html")),
)
def demo() -> None:
    """Learn parts of handwritten digits, cluster them, print scores, write a page with pictures.

    Example: partwise demo --out digits.html
    """


@command(
    "compare.run_datasets",
    "data_home as_json",
    data_home=option("A folder to look in first, before PARTWISE_DATA.", of=Path),
)
def datasets() -> None:
    """List the known data sets, and where each was found or comes from.

    Example: partwise datasets --data-home ~/data
    """
