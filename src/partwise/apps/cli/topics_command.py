"""The command ``topics``, which finds topics and writes tables and a page."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rich.console import Console

from partwise._versions import versions
from partwise.apps.cli import outputs, work
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar
from partwise.apps.topics import Topics, find_topics, groups, periods, source_column
from partwise.apps.view.report.pictures import INK, figure_uri, new_figure, render

FILES = {
    "topics.html", "topics.csv", "texts.csv", "over_time.csv", "by_group.csv", "hierarchy.csv",
}  # fmt: skip
#: Name of the first column in the tables of topics over time and by group.
FIRST = {"over_time": "period", "by_group": "group"}
LINE = "#3b6fb6"


def run_topics(asked: Asked) -> None:
    """Read the texts, find topics, and write the results."""
    out = asked.out
    outputs.check_folder(out, force=asked.force, files=FILES)
    errors = Console(stderr=True)
    with Bar(errors) as bar:
        samples = work.read_task(asked, bar).samples
        labels = {}
        if asked.time_column is not None:
            column = source_column(samples, asked.time_column, "--time-column")
            labels["over_time"] = periods(column)
        if asked.group_column is not None:
            column = source_column(samples, asked.group_column, "--group-column")
            labels["by_group"] = groups(column)
        bar.step(0, None, "Finding topics")
        found = find_topics(samples, asked.topics, n_runs=asked.runs, seed=asked.seed)
    final = found if asked.merge_to is None else found.merged(asked.merge_to)
    changes = {name: final.over(by) for name, by in labels.items()}
    table = topic_table(final)
    with outputs.whole_folder(out, force=asked.force, files=FILES) as folder:
        table.to_csv(folder / "topics.csv", index=False)
        text_table(final).to_csv(folder / "texts.csv", index=False)
        hierarchy(found).to_csv(folder / "hierarchy.csv", index=False)
        for name, share in changes.items():
            share.to_csv(folder / f"{name}.csv", index_label=FIRST[name])
        page = _page(final, found, table, changes, asked.command)
        (folder / "topics.html").write_text(page, "utf-8")
    if asked.as_json:
        print(table.to_json(orient="records", force_ascii=False))
        return
    for note in samples.notes:
        errors.print(note, style="dim", markup=False)
    for row in table.itertuples():
        print(f"{row.topic:>3}  {row.share:>4.0%}  {row.words}")
    coherence, stability = np.nanmean(table.coherence), np.nanmean(table.stability)
    print(f"Mean coherence (NPMI) {coherence:.2f}, mean stability {stability:.2f}.")
    print(f"Wrote {out}: topics.html, topics.csv, texts.csv and {1 + len(changes)} more tables.")
    print(f"Next: open {out / 'topics.html'} in a browser.")


def topic_table(found: Topics) -> pd.DataFrame:
    """Return one row per topic: its share, coherence, stability, words and texts."""
    texts = [" | ".join(found.samples.ids[i] for i in rows) for rows in found.representative()]
    columns = {
        "topic": np.arange(1, len(found.parts) + 1),
        "share": found.shares.mean(axis=0),
        "texts": np.bincount(found.topic + 1, minlength=len(found.parts) + 1)[1:],
        "coherence": found.coherence(),
        "stability": found.stability,
        "words": [", ".join(words) for words in found.words()],
        "representative": texts,
    }
    return pd.DataFrame(columns).round(4)


def text_table(found: Topics) -> pd.DataFrame:
    """Return one row per text: its main topic, and its share of every topic."""
    shares = pd.DataFrame(found.shares.round(4)).rename(columns=lambda j: f"topic_{j + 1}")
    shares.insert(0, "id", found.samples.ids)
    shares.insert(1, "topic", np.where(found.topic >= 0, (found.topic + 1).astype(object), ""))
    return shares


def hierarchy(found: Topics) -> pd.DataFrame:
    """Return the merges of topics, the most similar first, with new topic numbers."""
    k = len(found.parts)
    members = [[j] for j in range(k)]
    rows = []
    for step, (a, b, distance, _) in enumerate(found.tree(), k + 1):
        members.append(members[int(a)] + members[int(b)])
        words = "; ".join(", ".join(found.words(3)[j]) for j in members[-1])
        rows.append((step, int(a) + 1, int(b) + 1, round(1 - distance, 4), words))
    return pd.DataFrame(rows, columns=["topic", "first", "second", "similarity", "words"])


def _page(
    final: Topics,
    found: Topics,
    table: pd.DataFrame,
    changes: dict[str, pd.DataFrame],
    command: str,
) -> str:
    """Return the HTML page with all topics."""
    samples, rows = final.samples, table.to_dict("records")
    shown = samples.texts or samples.ids
    for row, texts in zip(rows, final.representative(), strict=True):
        row["examples"] = [(samples.ids[i], shown[i]) for i in texts]
    names = [f"{row['topic']}: {', '.join(words)}" for row, words in zip(rows, final.words(2))]
    draw = {"over_time": _time_uri, "by_group": _group_uri}
    plots = {name: draw[name](share, names) for name, share in changes.items()}
    merged = len(found.parts) if found is not final else 0
    return render(
        "topics.html", rows=rows, samples=samples, plots=plots, tree=_tree_uri(found),
        merged=merged, command=command, versions=versions(),
    )  # fmt: skip


def _time_uri(share: pd.DataFrame, names: list[str]) -> str:
    """Return a plot of each topic's share over time, with one panel per topic."""
    columns, k = min(3, len(names)), len(names)
    rows = -(-k // columns)
    figure, grid = new_figure(
        (3.2 * columns, 1.7 * rows), nrows=rows, ncols=columns, squeeze=False, sharex=True,
        sharey=True,
    )  # fmt: skip
    when, values = pd.to_datetime(share.index), 100 * share.to_numpy()[:, :k]
    for j, axes in enumerate(grid.ravel()):
        if j >= k:
            axes.set_axis_off()
            continue
        axes.plot(when, values[:, j], color=LINE)
        axes.set_title(names[j][:34], fontsize=9)
        axes.tick_params(axis="x", rotation=45)
    grid[0, 0].set_ylim(0, 1.05 * values.max())
    figure.supylabel("share of the texts in %", fontsize=9, color=INK)
    return figure_uri(figure)


def _group_uri(share: pd.DataFrame, names: list[str]) -> str:
    """Return a heat map of the share of each topic in each group."""
    values = 100 * share.to_numpy()[:, : len(names)]
    figure, axes = new_figure((max(4.2, 2 + 0.45 * len(names)), max(1.6, 0.7 + 0.3 * len(share))))
    picture = axes.imshow(values, aspect="auto", vmin=0)
    axes.set_xticks(range(len(names)), range(1, len(names) + 1))
    axes.set_yticks(range(len(share)), [str(name)[:30] for name in share.index])
    figure.colorbar(picture, ax=axes, label="% share")
    return figure_uri(figure)


def _tree_uri(found: Topics) -> str:
    """Return a dendrogram of the similarity of topics."""
    from scipy.cluster.hierarchy import dendrogram

    figure, axes = new_figure((7.2, 0.6 + 0.28 * len(found.parts)))
    labels = [", ".join(words) for words in found.words(3)]
    dendrogram(found.tree(), labels=labels, orientation="right", ax=axes, color_threshold=0,
               above_threshold_color=LINE, leaf_font_size=9)  # fmt: skip
    axes.set_xlabel("1 - cosine similarity of the words")
    return figure_uri(figure)
