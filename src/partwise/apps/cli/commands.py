"""Declaration of all commands, with their help texts and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partwise.apps.cli.options import NEW, READS, command

#: Options in the order of the help: first the most used ones, then those of the model, then those
#: for reading data.
FIRST = "data label_column labels label_share text_column out method write_back as_json force"
GROUPS = "data k method text_column out write_back as_json force"
MODEL = "parts set components_per_class known seed_words links seed max_iter"
READING = " ".join(READS)
WITHOUT_LABELS = " ".join(name for name in READS if name not in ("labels", "label_column"))
#: Options for reading texts, in the order of the help.
TEXTS = "id_column tokens stop_words ngrams min_df max_df encoding separator heading missing strict"
#: Options for reading data, without parameters of the method.
PLAIN = " ".join(name for name in READS if name not in ("set", "components_per_class"))


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    own_data = (classify, cluster, predict, studio, label_studio, choose, compare, consensus)
    for own in (*own_data, topics, fit, transform, methods, encoders, datasets, demo):
        app.command()(own)


@command("cluster.run_classify", f"{FIRST} seed {MODEL} k for_predict report {READING}")
def classify(
    out: Path = Path("partwise-out"),
    method: str = "auto",
    label_separator: str | None = None,
    write_back: bool = False,
) -> None:
    """Predict the class labels of all samples from a few labels.

    Writes report.html, assignments.csv (the predicted label of each sample, with a calibrated
    probability), label_next.csv (the samples that are most worth labelling next), model.partwise,
    representation.npy and .csv (part weights), and summary.json (settings and scores). Files and
    rows that could not be used are listed in skipped.csv.

    Example: partwise classify photos/ --labels labels.csv --out results/

    Example: partwise classify mails.csv --text-column body --label-column topic --out topics/

    Example: partwise classify photos/ --label-share 0.1 --out tenth/

    Parameters
    ----------
    out : FOLDER
        Folder for the results.
    method : TEXT
        One of the methods that `partwise methods` lists and that use labels. 'auto' uses
        PartsClassifier.
    label_separator : TEXT
        Character that separates several labels of one sample, such as ';'. Partwise then
        predicts any number of labels per sample, with a probability for each.
    write_back
        Write your data with the predicted labels: for a table, a copy with further columns
        (labelled.csv, .parquet or .jsonl); for a .h5ad file, entries in its obs, obsm, varm
        and uns.
    """


@command("cluster.run_cluster", f"{GROUPS} runs {MODEL} report {WITHOUT_LABELS}")
def cluster(
    out: Path = Path("partwise-out"),
    runs: Annotated[int | None, {"min": 0}] = None,
    write_back: bool = False,
    labels: Path | None = None,
    label_column: str | None = None,
    label_share: float | None = None,
) -> None:
    """Divide samples into clusters without labels. With labels, use `partwise classify`.

    Writes report.html, assignments.csv (the cluster of each sample, with a confidence),
    model.partwise, representation.npy and .csv (part weights), and summary.json (settings and
    scores). The confidence orders samples from clear to unclear, but is not a probability: it is
    (b - a) / (b + a), where a and b are the distances to the closest two cluster centres.

    Example: partwise cluster customers.csv -k 5 --out groups/

    Example: partwise cluster news/ --seed-words topics.toml --out topics/

    Parameters
    ----------
    out : FOLDER
        Folder for the results.
    runs : NUMBER
        Number of further runs with other seeds, which measure how stable the clusters are.
        Default: 5 if a run is quick, otherwise 0.
    write_back
        Write your data with the clusters: for a table, a copy with further columns
        (labelled.csv, .parquet or .jsonl); for a .h5ad file, entries in its obs, obsm, varm
        and uns.
    labels : FILE
        Not for this command.
    label_column : TEXT
        Not for this command.
    label_share : NUMBER
        Not for this command.
    """


@command(
    "choose.run_choose",
    "data range grid method out labels label_column label_share text_column as_json force parts "
    f"runs splits seed max_iter {READING}",
)
def choose(
    out: Path = Path("partwise-choice"),
    range: str | None = None,
    grid: list[str] | None = None,
    parts: Annotated[int | None, {"min": 1}] = None,
    runs: Annotated[int | None, {"min": 0}] = None,
    splits: Annotated[int | None, {"min": 2}] = None,
    max_iter: int = 200,
) -> None:
    """Choose the number of parts, or any parameter, by held-out data.

    Fits models with different numbers of parts to the data without some entries, which are drawn
    at random, and compares their errors on these entries. Reports all numbers of parts that are
    as good as the best. With --grid, compares values of other parameters: by held-out labels if
    there are labels, otherwise by held-out entries. Writes choice.html, choice.csv, choice.json
    and, during the search, results.jsonl.

    Example: partwise choose counts.csv --range 2-15 --out choice/

    Example: partwise choose photos/ --label-share 0.1 --method gnmf --grid graph_reg=0.1,1,10

    Parameters
    ----------
    out : FOLDER
        Folder for the results. If it holds an interrupted search, the search continues.
    range : FROM-TO
        Numbers of parts to compare, for example 2-20. Default: from 1 until the error
        rises.
    grid : NAME=VALUE,...
        Compare these values of a parameter instead of numbers of parts, for example
        graph_reg=0.1,1,10. Repeat the option to try all combinations of several parameters.
    parts : NUMBER
        Number of parts of all models that --grid compares.
    runs : NUMBER
        Number of runs per number of parts, which measure how stable the parts are. Default:
        5 or 10.
    splits : NUMBER
        Number of random splits into entries (or labels) to fit and to score. Default: 3 or
        5.
    """


@command(
    "consensus_command.run_consensus",
    "data parts range layer runs out as_json force genes density_threshold neighborhood loss "
    "device counts estimate transpose seed max_iter report",
)
def consensus(
    data: str,
    out: Path | None = None,
    parts: Annotated[int | None, {"min": 1}] = None,
    range: str | None = None,
    runs: Annotated[int, {"min": 2}] = 100,
    genes: Annotated[int, {"min": 0}] = 2000,
    density_threshold: float = 0.5,
    neighborhood: float = 0.3,
    loss: str = "frobenius",
    device: str = "auto",
    counts: bool | None = None,
    estimate: bool = False,
    max_iter: int = 200,
    force: bool = False,
) -> None:
    """Find gene expression programs that reappear in many runs (cNMF).

    Follows the steps of cNMF: selects variable genes, fits from random starts, leaves out parts
    that few runs find, and computes programs, their usages per cell, and gene scores. The cnmf
    package can continue from the result folder (`cnmf consensus --output-dir . --name FOLDER`),
    and this command from a folder of cnmf. report.html shows how stable each number of programs
    is, and top_genes.csv lists the genes of each program.

    Example: partwise consensus pbmc.h5ad --layer counts --range 5-15 --out programs

    Example: partwise consensus cnmf_out/pbmc --density-threshold 0.1

    Parameters
    ----------
    data : DATA
        File of counts (.h5ad, .mtx, .npz or .npy) with cells in rows, or a result folder of
        the cnmf package to continue from.
    out : FOLDER
        Folder for the results, with the files of the cnmf package; an interrupted run
        continues there. Default: programs, or DATA if that is a folder of cnmf.
    parts : NUMBER
        Number of gene expression programs.
    range : FROM-TO
        Numbers of programs to compare, for example 5-15 or 5,8,10.
    runs : NUMBER
        Number of runs per number of programs.
    genes : NUMBER
        Number of the most variable genes to use; 0 uses all genes.
    density_threshold : NUMBER
        Parts whose mean distance to their nearest parts of other runs is larger than this
        are outliers and left out. 2 keeps all parts.
    neighborhood : NUMBER
        Number of nearest parts for --density-threshold, as a share of the number of runs.
    loss : frobenius|kullback-leibler
        Loss function.
    device : auto|cpu|cuda
        Device for the fits. 'auto' uses a GPU if there is one.
    counts
        Write the counts, which the cnmf package needs to continue. Default: write up to 200
        million counts.
    estimate
        Print the expected time and memory, then stop.
    force
        Overwrite earlier results.
    """


@command(
    "topics_command.run_topics",
    "data text_column topics time_column group_column merge_to out runs as_json force seed "
    f"{TEXTS}",
)
def topics(
    topics: Annotated[int, {"min": 2}] = 10,
    time_column: str | None = None,
    group_column: str | None = None,
    merge_to: Annotated[int | None, {"min": 1}] = None,
    out: Path = Path("partwise-topics"),
    runs: Annotated[int, {"min": 2}] = 20,
) -> None:
    """Find the topics of texts, how coherent and stable they are, and how they change.

    Writes topics.html, topics.csv (topic words, share, coherence, stability), texts.csv (the topics
    of each text) and hierarchy.csv (which topics are similar); with --time-column also
    over_time.csv, and with --group-column by_group.csv. Use `partwise choose` to choose the number
    of topics.

    Example: partwise topics mails.csv --text-column body --time-column date --topics 12

    Parameters
    ----------
    topics : NUMBER
        Number of topics.
    time_column : TEXT
        Column with the date of each text; the command then writes the topics over time.
    group_column : TEXT
        Column with the group of each text, such as its author or department.
    merge_to : NUMBER
        Merge the most similar topics until this many are left.
    out : FOLDER
        Folder for the results.
    runs : NUMBER
        Number of runs from different starts, which measure how stable the topics are.
    """


@command("cluster.run_fit", f"{FIRST} k {MODEL} for_predict {READING}".replace(" write_back", ""))
def fit(
    out: Path = Path("model.partwise"),
) -> None:
    """Fit a model and save it together with the preparation of the data.

    Example: partwise fit photos/ --label-share 0.1 --out photos.partwise

    Parameters
    ----------
    out : FILE
        Model file to write.
    """


@command("apply.run_transform", f"model new out as_json force {NEW}")
def transform(
    out: Path = Path("part_weights.csv"),
) -> None:
    """Compute the part weights of new samples with a saved model.

    Example: partwise transform results/model.partwise more-photos/ --out part_weights.csv

    Parameters
    ----------
    out : FILE
        File for the part weights, .csv or .npy.
    """


@command(
    "apply.run_predict", f"model new out write_back text_column label_column as_json force {NEW}"
)
def predict(
    out: Path | None = None,
    write_back: bool = False,
    label_column: str | None = None,
) -> None:
    """Predict the class label (or cluster) of new samples with a saved model.

    Example: partwise predict results/model.partwise more-photos/ --out new.csv

    Parameters
    ----------
    out : FILE
        CSV file to write. Default: standard output.
    write_back
        Write a copy of the table NEW with the predicted label, its probability, the second
        most probable label, and a column that marks doubtful rows.
    label_column : TEXT
        Column of NEW that holds true labels; they only measure the accuracy of the
        predictions.
    """


@command(
    "open_studio.run_studio",
    f"data project labels label_column text_column port host password browser seed {PLAIN}",
)
def studio(
    port: Annotated[int, {"min": 0, "max": 65535}] = 0,
    password: Annotated[str | None, {"envvar": "PARTWISE_PASSWORD"}] = None,
    browser: bool = True,
    random_first: Annotated[int, {"min": 0}] = 0,
) -> None:
    """Label samples in the browser and watch the predictions change.

    Each label is written to disk at once. The next start of the studio continues with all labels.

    Example: partwise studio photos/

    Example: partwise studio mails.csv --text-column body --project mails-studio/

    Parameters
    ----------
    port : NUMBER
        Port of the server; 0 uses any free port.
    password : TEXT
        Password that the page asks for.
    browser
        Open the page in a browser.
    random_first : NUMBER
        Number of randomly drawn samples that the studio asks you to label first. Their
        labels measure the class sizes; 20 are enough.
    """


@command(
    "open_studio.run_label_studio",
    f"data project labels label_column text_column port host password seed {PLAIN}",
)
def label_studio(
    port: Annotated[int, {"min": 1, "max": 65535}] = 9090,
    password: Annotated[str | None, {"envvar": "PARTWISE_PASSWORD"}] = None,
) -> None:
    """Serve predictions to Label Studio and retrain after each annotation.

    Add the printed address as a model in the settings of your Label Studio project, and as a
    webhook for annotations. The tasks of the project must show the samples of DATA; Partwise
    matches them by id, file name or text. Sort the tasks by prediction score to label the most
    useful samples first.

    Example: partwise label-studio mails.csv --text-column body

    Parameters
    ----------
    port : NUMBER
        Port of the server.
    password : TEXT
        Password that Label Studio sends as basic authentication, with the user 'partwise'.
    """


@command("compare.run_methods", "as_json")
def methods() -> None:
    """List all methods, and when to use each of them.

    Example: partwise methods
    """


@command("encoders.run_encoders", "as_json")
def encoders() -> None:
    """List the pretrained encoders that --encoder accepts.

    Example: partwise encoders
    """


@command(
    "compare.run_compare",
    "data methods label_share labels label_column text_column k runs out as_json force parts seed "
    f"max_iter {READING}",
)
def compare(
    methods: str | None = None,
    out: Path | None = None,
    runs: Annotated[int, {"min": 1}] = 3,
    max_iter: int = 200,
) -> None:
    """Compare methods on your data.

    Scores methods by their accuracy on held-out labels. With --label-share, these are the labels
    that the fit does not use; otherwise each label is held out once. Logistic regression, a
    linear SVM and label spreading are the baselines. Without labels, scores methods by how well
    runs with different seeds agree.

    Example: partwise compare photos/ --label-share 0.1 --methods nmf,gnmf,cdnmf

    Parameters
    ----------
    methods : NAME,...
        Names of methods, separated by commas. Default: all methods that accept the data.
    out : FILE
        CSV file for the table.
    runs : NUMBER
        Number of runs per method.
    """


@command("demonstration.run_demo", "out as_json force")
def demo(
    out: Path = Path("partwise-demo.html"),
) -> None:
    """Classify and cluster handwritten digits, and write a page with pictures.

    Example: partwise demo --out digits.html

    Parameters
    ----------
    out : FILE
        HTML page to write.
    """


@command("compare.run_datasets", "data_home as_json")
def datasets(
    data_home: Path | None = None,
) -> None:
    """List the public data sets that Partwise can load, and where to get each of them.

    Example: partwise datasets --data-home ~/data

    Parameters
    ----------
    data_home : FOLDER
        Folder to search for data sets before the one in the environment variable
        PARTWISE_DATA.
    """
