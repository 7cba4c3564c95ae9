"""The commands: for each, its help text, its options, and the function that does the work."""

from __future__ import annotations

from pathlib import Path

import typer

from partwise.apps.cli.options import NEW, READS, REFUSED, argument, command, flag, option

#: The options that people use first, then those of the model, then those for reading the data.
FIRST = "data label_column labels label_share text_column out method write_back as_json force"
GROUPS = "data k method text_column out write_back as_json force"
MODEL = "parts set components_per_class known seed_words links seed max_iter"
READING = " ".join(READS)
WITHOUT_LABELS = " ".join(name for name in READS if name not in REFUSED)
#: The options for reading texts.
TEXTS = "id_column tokens stop_words ngrams min_df max_df encoding separator heading missing strict"
#: The options for reading data, without the parameters of a method.
PLAIN = " ".join(name for name in READS if name not in ("set", "components_per_class"))


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    own_data = (classify, cluster, predict, studio, label_studio, choose, compare, consensus)
    for own in (*own_data, topics, fit, transform, methods, encoders, datasets, demo):
        app.command()(own)


OUT = option("Folder for the results.", Path("partwise-out"), metavar="FOLDER")
RUNS = option(
    "Number of further runs with other seeds, which measure how stable the clusters are. "
    "Default: 5 if a run is quick, otherwise 0.",
    of=int,
    min=0,
)


@command(
    "cluster.run_classify",
    f"{FIRST} seed {MODEL} k for_predict report {READING}",
    out=OUT,
    method=option(
        "One of the methods that `partwise methods` lists and that use labels. 'auto' uses "
        "PartsClassifier.",
        "auto",
    ),
    label_separator=option(
        "Character that separates several labels of one sample, such as ';'. Partwise then "
        "predicts any number of labels per sample, with a probability for each.",
        metavar="TEXT",
    ),
    write_back=flag(
        "Write your data with the predicted labels: for a table, a copy with further columns "
        "(labelled.csv, .parquet or .jsonl); for a .h5ad file, entries in its obs, obsm, varm "
        "and uns.",
    ),
)
def classify() -> None:
    """Predict the class labels of all samples from a few labels.

    Writes report.html, assignments.csv (the predicted label of each sample, with a calibrated
    probability), label_next.csv (the samples that are most worth labelling next), model.partwise,
    representation.npy and .csv (part weights), and summary.json (settings and scores). Files and
    rows that could not be used are listed in skipped.csv.

    Example: partwise classify photos/ --labels labels.csv --out results/

    Example: partwise classify mails.csv --text-column body --label-column topic --out topics/

    Example: partwise classify photos/ --label-share 0.1 --out tenth/
    """


@command(
    "cluster.run_cluster",
    f"{GROUPS} runs {MODEL} report {WITHOUT_LABELS}",
    out=OUT,
    runs=RUNS,
    write_back=flag(
        "Write your data with the clusters: for a table, a copy with further columns "
        "(labelled.csv, .parquet or .jsonl); for a .h5ad file, entries in its obs, obsm, varm "
        "and uns.",
    ),
    **REFUSED,
)
def cluster() -> None:
    """Divide samples into clusters without labels. With labels, use `partwise classify`.

    Writes report.html, assignments.csv (the cluster of each sample, with a confidence),
    model.partwise, representation.npy and .csv (part weights), and summary.json (settings and
    scores). The confidence orders samples from clear to unclear, but is not a probability: it is
    (b - a) / (b + a), where a and b are the distances to the closest two cluster centres.

    Example: partwise cluster customers.csv -k 5 --out groups/

    Example: partwise cluster news/ --seed-words topics.toml --out topics/
    """


@command(
    "choose.run_choose",
    "data range grid method out labels label_column label_share text_column as_json force parts "
    f"runs splits seed max_iter {READING}",
    out=option(
        "Folder for the results. If it holds an interrupted search, the search continues.",
        Path("partwise-choice"),
        metavar="FOLDER",
    ),
    range=option(
        "Numbers of parts to compare, for example 2-20. Default: from 1 until the error rises.",
        metavar="FROM-TO",
    ),
    grid=option(
        "Compare these values of a parameter instead of numbers of parts, for example "
        "graph_reg=0.1,1,10. Repeat the option to try all combinations of several parameters.",
        of=list[str],
        metavar="NAME=VALUE,...",
    ),
    parts=option("Number of parts of all models that --grid compares.", of=int, min=1),
    runs=option(
        "Number of runs per number of parts, which measure how stable the parts are. Default: 5 "
        "or 10.",
        of=int,
        min=0,
    ),
    splits=option(
        "Number of random splits into entries (or labels) to fit and to score. Default: 3 or 5.",
        of=int,
        min=2,
    ),
    max_iter=200,
)
def choose() -> None:
    """Choose the number of parts, or any parameter, by held-out data.

    Fits models with different numbers of parts to the data without some entries, which are drawn
    at random, and compares their errors on these entries. Reports all numbers of parts that are
    as good as the best. With --grid, compares values of other parameters: by held-out labels if
    there are labels, otherwise by held-out entries. Writes choice.html, choice.csv, choice.json
    and, during the search, results.jsonl.

    Example: partwise choose counts.csv --range 2-15 --out choice/

    Example: partwise choose photos/ --label-share 0.1 --method gnmf --grid graph_reg=0.1,1,10
    """


@command(
    "consensus_command.run_consensus",
    "data parts range layer runs out as_json force genes density_threshold neighborhood loss "
    "device counts estimate transpose seed max_iter report",
    data=argument(
        "DATA",
        "File of counts (.h5ad, .mtx, .npz or .npy) with cells in rows, or a result folder of the "
        "cnmf package to continue from.",
    ),
    out=option(
        "Folder for the results, with the files of the cnmf package; an interrupted run continues "
        "there. Default: programs, or DATA if that is a folder of cnmf.",
        of=Path,
        metavar="FOLDER",
    ),
    parts=option("Number of gene expression programs.", of=int, min=1),
    range=option("Numbers of programs to compare, for example 5-15 or 5,8,10.", metavar="FROM-TO"),
    runs=option("Number of runs per number of programs.", 100, min=2),
    genes=option("Number of the most variable genes to use; 0 uses all genes.", 2000, min=0),
    density_threshold=option(
        "Parts whose mean distance to their nearest parts of other runs is larger than this are "
        "outliers and left out. 2 keeps all parts.",
        0.5,
    ),
    neighborhood=option(
        "Number of nearest parts for --density-threshold, as a share of the number of runs.", 0.3
    ),
    loss=option("Loss function.", "frobenius", metavar="frobenius|kullback-leibler"),
    device=option(
        "Device for the fits. 'auto' uses a GPU if there is one.", "auto", metavar="auto|cpu|cuda"
    ),
    counts=option(
        "Write the counts, which the cnmf package needs to continue. Default: write up to 200 "
        "million counts.",
        of=bool,
        show_default=False,
    ),
    estimate=flag("Print the expected time and memory, then stop."),
    max_iter=200,
    force=flag("Overwrite earlier results."),
)
def consensus() -> None:
    """Find gene expression programs that reappear in many runs (cNMF).

    Follows the steps of cNMF: selects variable genes, fits from random starts, leaves out parts
    that few runs find, and computes programs, their usages per cell, and gene scores. The cnmf
    package can continue from the result folder (`cnmf consensus --output-dir . --name FOLDER`),
    and this command from a folder of cnmf. report.html shows how stable each number of programs
    is, and top_genes.csv lists the genes of each program.

    Example: partwise consensus pbmc.h5ad --layer counts --range 5-15 --out programs

    Example: partwise consensus cnmf_out/pbmc --density-threshold 0.1
    """


@command(
    "topics_command.run_topics",
    "data text_column topics time_column group_column merge_to out runs as_json force seed "
    f"{TEXTS}",
    topics=option("Number of topics.", 10, min=2),
    time_column=option(
        "Column with the date of each text; the command then writes the topics over time."
    ),
    group_column=option("Column with the group of each text, such as its author or department."),
    merge_to=option("Merge the most similar topics until this many are left.", of=int, min=1),
    out=option("Folder for the results.", Path("partwise-topics"), metavar="FOLDER"),
    runs=option(
        "Number of runs from different starts, which measure how stable the topics are.",
        20,
        min=2,
    ),
)
def topics() -> None:
    """Find the topics of texts, how coherent and stable they are, and how they change.

    Writes topics.html, topics.csv (topic words, share, coherence, stability), texts.csv (the topics
    of each text) and hierarchy.csv (which topics are similar); with --time-column also
    over_time.csv, and with --group-column by_group.csv. Use `partwise choose` to choose the number
    of topics.

    Example: partwise topics mails.csv --text-column body --time-column date --topics 12
    """


@command(
    "cluster.run_fit",
    f"{FIRST} k {MODEL} for_predict {READING}".replace(" write_back", ""),
    out=option("Model file to write.", Path("model.partwise")),
)
def fit() -> None:
    """Fit a model and save it together with the preparation of the data.

    Example: partwise fit photos/ --label-share 0.1 --out photos.partwise
    """


@command(
    "apply.run_transform",
    f"model new out as_json force {NEW}",
    out=option("File for the part weights, .csv or .npy.", Path("part_weights.csv")),
)
def transform() -> None:
    """Compute the part weights of new samples with a saved model.

    Example: partwise transform results/model.partwise more-photos/ --out part_weights.csv
    """


@command(
    "apply.run_predict",
    f"model new out write_back text_column label_column as_json force {NEW}",
    out=option("CSV file to write. Default: standard output.", of=Path),
    write_back=flag(
        "Write a copy of the table NEW with the predicted label, its probability, the second most "
        "probable label, and a column that marks doubtful rows.",
    ),
    label_column=option(
        "Column of NEW that holds true labels; they only measure the accuracy of the predictions."
    ),
)
def predict() -> None:
    """Predict the class label (or cluster) of new samples with a saved model.

    Example: partwise predict results/model.partwise more-photos/ --out new.csv
    """


@command(
    "open_studio.run_studio",
    f"data project labels label_column text_column port host password browser seed {PLAIN}",
    project=option(
        "Folder for labels and part weights. Default: next to DATA.", of=Path, metavar="FOLDER"
    ),
    host=option(
        "Network address of the server. Addresses that other computers can reach need --password.",
        "127.0.0.1",
    ),
    port=option("Port of the server; 0 uses any free port.", 0, min=0, max=65535),
    password=option("Password that the page asks for.", envvar="PARTWISE_PASSWORD"),
    browser=option("Open the page in a browser.", True),
    random_first=option(
        "Number of randomly drawn samples that the studio asks you to label first. Their labels "
        "measure the class sizes; 20 are enough.",
        0,
        min=0,
    ),
)
def studio() -> None:
    """Label samples in the browser and watch the predictions change.

    Each label is written to disk at once. The next start of the studio continues with all labels.

    Example: partwise studio photos/

    Example: partwise studio mails.csv --text-column body --project mails-studio/
    """


@command(
    "open_studio.run_label_studio",
    f"data project labels label_column text_column port host password seed {PLAIN}",
    project=option(
        "Folder for labels and part weights. Default: next to DATA.", of=Path, metavar="FOLDER"
    ),
    host=option(
        "Network address of the server. Addresses that other computers can reach need --password.",
        "127.0.0.1",
    ),
    port=option("Port of the server.", 9090, min=1, max=65535),
    password=option(
        "Password that Label Studio sends as basic authentication, with the user 'partwise'.",
        envvar="PARTWISE_PASSWORD",
    ),
)
def label_studio() -> None:
    """Serve predictions to Label Studio and retrain after each annotation.

    Add the printed address as a model in the settings of your Label Studio project, and as a
    webhook for annotations. The tasks of the project must show the samples of DATA; Partwise
    matches them by id, file name or text. Sort the tasks by prediction score to label the most
    useful samples first.

    Example: partwise label-studio mails.csv --text-column body
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
    methods=option(
        "Names of methods, separated by commas. Default: all methods that accept the data.",
        metavar="NAME,...",
    ),
    out=option("CSV file for the table.", of=Path),
    runs=option("Number of runs per method.", 3, min=1),
    max_iter=200,
)
def compare() -> None:
    """Compare methods on your data.

    Scores methods by their accuracy on held-out labels. With --label-share, these are the labels
    that the fit does not use; otherwise each label is held out once. Logistic regression, a
    linear SVM and label spreading are the baselines. Without labels, scores methods by how well
    runs with different seeds agree.

    Example: partwise compare photos/ --label-share 0.1 --methods nmf,gnmf,cdnmf
    """


@command(
    "demonstration.run_demo",
    "out as_json force",
    out=option("HTML page to write.", Path("partwise-demo.html")),
)
def demo() -> None:
    """Classify and cluster handwritten digits, and write a page with pictures.

    Example: partwise demo --out digits.html
    """


@command(
    "compare.run_datasets",
    "data_home as_json",
    data_home=option(
        "Folder to search for data sets before the one in the environment variable PARTWISE_DATA.",
        of=Path,
        metavar="FOLDER",
    ),
)
def datasets() -> None:
    """List the public data sets that Partwise can load, and where to get each of them.

    Example: partwise datasets --data-home ~/data
    """
