"""Topic models of texts, with coherence, stability and changes over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from sklearn.preprocessing import normalize

from partwise import consensus
from partwise.io.samples import Samples

#: Number of words, and of representative texts, that describe a topic.
WORDS, TEXTS = 10, 3
#: Maximum number of periods, and of groups, in a report.
PERIODS, GROUPS = 40, 12


@dataclass(frozen=True)
class Topics:
    """The topics of a collection of texts, the most frequent first.

    Parameters
    ----------
    parts : ndarray of shape (n_topics, n_words)
        The tf-idf weight of each word in each topic.
    weights : ndarray of shape (n_texts, n_topics)
        The weight of each topic in each text.
    stability : ndarray of shape (n_topics,)
        Mean silhouette over runs from different starts: 1 if all runs found the topic.
    samples : Samples
        The texts.
    """

    parts: NDArray[Any]
    weights: NDArray[Any]
    stability: NDArray[Any]
    samples: Samples

    @property
    def shares(self) -> NDArray[Any]:
        """Topic weights of each text, scaled to sum to one; zero if a text has no topic."""
        return np.asarray(normalize(self.weights, norm="l1"))

    @property
    def topic(self) -> NDArray[np.int64]:
        """Index of the main topic of each text; -1 if a text has no topic."""
        there = self.weights.max(axis=1) > 0
        return np.asarray(np.where(there, self.weights.argmax(axis=1), -1))

    def words(self, most: int = WORDS) -> list[list[str]]:
        """Return the words with the largest weights in each topic."""
        names = np.asarray(self.samples.feature_names, dtype=object)
        return [names[row].tolist() for row in self._top(most)]

    def _top(self, most: int) -> list[NDArray[np.intp]]:
        """Return the positions of the words with the largest weights in each topic."""
        order = np.argsort(-self.parts, axis=1, kind="stable")[:, :most]
        return [row[part[row] > 0] for row, part in zip(order, self.parts, strict=True)]

    def representative(self) -> list[list[int]]:
        """Return for each topic the texts in which it has the largest weight."""
        order = np.argsort(-self.weights, axis=0, kind="stable")[:TEXTS].T
        return [[int(i) for i in row if self.topic[i] == j] for j, row in enumerate(order)]

    def coherence(self) -> NDArray[Any]:
        """Return the mean NPMI of the word pairs of each topic (see `npmi`)."""
        there = self.samples.X > 0
        return np.array([npmi(there[:, words].toarray()) for words in self._top(WORDS)])

    def merged(self, most: int) -> Topics:
        """Return the topics, with the most similar ones merged until ``most`` are left."""
        if most >= len(self.parts):
            return self
        groups = cut_tree(self.tree(), n_clusters=most).ravel()
        member = np.eye(groups.max() + 1)[groups]
        used = self.weights.sum(axis=0)
        # The word weights of merged topics are averaged by the topics' total weight in the texts.
        shares = member * used[:, None] / np.maximum(used @ member, 1e-300)
        stability = np.where(np.isnan(self.stability), 0, self.stability) @ shares
        return ordered(shares.T @ self.parts, self.weights @ member, stability, self.samples)

    def tree(self) -> NDArray[Any]:
        """Return the hierarchical clustering of topics as a scipy linkage matrix."""
        return np.asarray(linkage(self.parts, method="average", metric="cosine"))

    def over(self, labels: Sequence[Any]) -> pd.DataFrame:
        """Return the mean share of each topic per period or group.

        Texts without a period or group are left out. The column ``texts`` contains the number of
        texts.
        """
        names = [f"topic_{j + 1}" for j in range(len(self.parts))]
        table = pd.DataFrame(self.shares, columns=names).groupby(pd.Series(labels), sort=True)
        return table.mean().assign(texts=table.size())


def npmi(there: NDArray[Any]) -> float:
    """Return the mean normalised pointwise mutual information of pairs of words.

    ``there`` (n_texts, n_words) marks the words of each text. NPMI is
    log(p_ij / (p_i p_j)) / -log p_ij: 1 for words that always occur together, 0 for independent
    ones, and -1 for words that never do.
    """
    Z = np.asarray(there, dtype=float)
    joint = Z.T @ Z / max(len(Z), 1)
    single = np.diag(joint)
    first, second = np.triu_indices(len(joint), 1)
    p = joint[first, second]
    independent = single[first] * single[second]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(p / independent) / -np.log(p)
    found = np.where(p >= 1, 1.0, np.where(p > 0, found, -1.0))
    return float(found.mean()) if found.size else float("nan")


def ordered(parts: Any, weights: Any, stability: Any, samples: Samples) -> Topics:
    """Return topics in decreasing order of their total share in the texts."""
    found = Topics(parts, weights, stability, samples)
    order = np.argsort(-found.shares.sum(axis=0), kind="stable")
    return replace(found, parts=parts[order], weights=weights[:, order], stability=stability[order])


def find_topics(samples: Samples, n_topics: int, *, n_runs: int = 20, seed: int = 0) -> Topics:
    """Find topics that reappear in runs from different starts.

    Parameters
    ----------
    samples : Samples
        Texts, as `partwise.io.read_samples` reads them.
    n_topics : int
        Number of topics.
    n_runs : int, default=20
        Number of runs from different starts. More runs measure the stability more precisely.
    seed : int, default=0
        Random seed of the starts.

    Returns
    -------
    Topics
    """
    if samples.kind != "texts" or not samples.feature_names:
        raise ValueError(
            f"topics needs texts, and {samples.source} holds {samples.kind}; --text-column names "
            "the column of a table that holds the texts."
        )
    if not 2 <= n_topics <= min(samples.X.shape):
        n, p = samples.X.shape
        raise ValueError(f"--topics must be from 2 to {min(n, p)} for {n} texts; got {n_topics}.")
    # Words already have tf-idf weights; scaling to unit variance would remove these weights.
    found = consensus(
        samples.X, n_topics, n_runs=n_runs, unit_variance=False, density_threshold=2.0,
        random_state=seed,
    )  # fmt: skip
    return ordered(found.parts, found.usages, found.stability, samples)


def source_column(samples: Samples, name: str, option: str) -> pd.Series:
    """Return a column of the table that contains the texts, with one entry per text."""
    if samples.table is None:
        raise ValueError(f"{option} needs a table; {samples.source} is none.")
    if name not in samples.table:
        names = ", ".join(map(str, samples.table.columns[:20]))
        raise ValueError(
            f"{option}: {samples.source} has no column {name!r}. Its columns are: {names}."
        )
    return samples.table[name].reset_index(drop=True)


def periods(column: pd.Series, option: str = "--time-column") -> pd.Series:
    """Return the first day of the period of each date.

    Periods are days, weeks, months, quarters or years. The shortest unit that gives at most
    `PERIODS` periods is used.
    """
    text = column.astype("string").str.strip().str.removesuffix(".0")
    years = text.str.fullmatch(r"(1[5-9]|20)\d\d").fillna(False)
    dates = pd.to_datetime(
        text.where(~years, text + "-01-01"), errors="coerce", format="mixed", utc=True
    ).dt.tz_localize(None)
    if dates.notna().sum() < max(2, column.notna().sum() / 2):
        example = next(iter(column.dropna()), "")
        raise ValueError(
            f"{option}: most entries of {column.name!r}, such as {str(example)[:40]!r}, are not "
            "dates; write dates as 2026-01-31."
        )
    found = [dates.dt.to_period(unit) for unit in "DWMQY"]
    best = next((each for each in found if each.nunique() <= PERIODS), found[-1])
    return best.dt.start_time.dt.strftime("%Y-%m-%d").where(dates.notna())


def groups(column: pd.Series) -> pd.Series:
    """Return the group of each text; all rare groups become "other"."""
    text = column.astype("string").str.strip().replace("", pd.NA)
    common = text.value_counts().index[: GROUPS - 1 if text.nunique() > GROUPS else GROUPS]
    return text.where(text.isin(common) | text.isna(), "other")
