"""Read and write the result folder of the package ``cnmf`` (version 1.7).

Tables are tab-separated text, and ``.df.npz`` files with the arrays data, index and columns. cnmf
pickles names, so only ``data`` is read from its own files. Our files hold names as plain text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray
from partwise.evaluation.groups import unit_rows
from partwise.io._common import check_matrix, need
from partwise.io.anndata_files import read_quietly, write_h5ad
from partwise.io.archives import check_zip, whole
from partwise.persistence.atomic import write_whole
from partwise.selection.consensus import Consensus, group_silhouettes, over_sums

#: Tables with more numbers than this are only written as .df.npz, because writing them as text
#: would take longer than the runs.
MOST_TEXT = 4_000_000


@dataclass(frozen=True)
class CnmfFolder:
    """The runs and the prepared counts in a folder of cnmf, under its file names.

    The name of the folder is cnmf's ``name``, and its parent is cnmf's ``output_dir``. The pickled
    table of runs is not read: a run exists if its file does.
    """

    home: Path

    @property
    def name(self) -> str:
        return self.home.name

    def path(self, kind: str) -> Path:
        """Return the path of an intermediate file."""
        return self.home / "cnmf_tmp" / f"{self.name}.{kind}"

    def make(self) -> None:
        (self.home / "cnmf_tmp").mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the numbers of parts k that have runs, or a table of all runs."""
        return sorted({int(found[1]) for found in self._spectra(r"(\d+)\..+")})

    def loss(self) -> str | None:
        """Return the loss of the runs; None if the folder does not name it."""
        path = self.path("nmf_idvrun_params.yaml")
        text = path.read_text("utf-8") if path.is_file() else ""
        found = re.search(r"^beta_loss: *'?([\w-]+)", text, re.MULTILINE)
        return None if found is None else found[1]

    def runs(self, k: int) -> list[int]:
        """Return the numbers (indices) of the runs that have a file."""
        return sorted(int(found[1]) for found in self._spectra(rf"{k}\.iter_(\d+)"))

    def _spectra(self, pattern: str) -> Iterator[re.Match[str]]:
        whole = re.compile(rf"{re.escape(self.name)}\.spectra\.k_{pattern}\.df\.npz")
        for file in self.home.glob("cnmf_tmp/*.df.npz"):
            if found := whole.fullmatch(file.name):
                yield found

    def write_run(self, k: int, number: int, H: AnyArray, genes: list[str]) -> None:
        self._write(f"spectra.k_{k}.iter_{number}", H, _numbers(k), genes)

    def pool(self, k: int, genes: list[str]) -> AnyArray:
        """Return the parts of all runs of one k, (runs k, genes); write them like ``combine``.

        If there are no runs, read the table of all runs.
        """
        numbers, merged = self.runs(k), self.path(f"spectra.k_{k}.merged.df.npz")
        if not numbers:
            return _data(merged)
        files = [self.path(f"spectra.k_{k}.iter_{n}.df.npz") for n in numbers]
        pooled = np.concatenate([_data(file) for file in files])
        if pooled.shape != (len(numbers) * k, len(genes)):
            raise ValueError(f"{self.home}: the runs of k={k} do not have {len(genes)} genes.")
        self._write(f"spectra.k_{k}.merged", pooled, _topics(numbers, k), genes)
        return pooled

    def _write(self, kind: str, data: AnyArray, index: list[str], columns: list[str]) -> None:
        write_whole(self.path(f"{kind}.df.npz"), _npz(data, index, columns), force=True)

    def write_prepared(
        self, numbers: Sequence[int], n_runs: int, *, seed: int, loss: str, genes: list[str],
        kept: list[str], mean: AnyArray, deviation: AnyArray,
    ) -> None:  # fmt: skip
        """Write the files of cnmf's ``prepare``, without the counts."""
        self.make()
        table = [[k, n, (seed + n) % 2**31, 0] for k in numbers for n in range(n_runs)]
        heads = ["n_components", "iter", "nmf_seed", "completed"]
        self._write_rows(self.path("nmf_params.df.npz"), np.array(table), heads)
        settings = "alpha_H: 0.0\nalpha_W: 0.0\nbeta_loss: {}\ninit: random\nl1_ratio: 0.0\n"
        settings += "max_iter: 1000\nsolver: {}\ntol: 0.0001\n"
        solver = "cd" if loss == "frobenius" else "mu"
        write_whole(self.path("nmf_idvrun_params.yaml"), settings.format(loss, solver), force=True)
        self._write("tpm_stats", np.stack([mean, deviation], 1), genes, ["__mean", "__std"])
        text = "\n".join(kept)
        write_whole(self.home / f"{self.name}.overdispersed_genes.txt", text, force=True)

    def write_stats(self, rows: AnyArray) -> None:
        """Write k, threshold, stability and error, as cnmf's ``k_selection_plot`` does."""
        heads = ["k", "local_density_threshold", "silhouette", "prediction_error"]
        self._write_rows(self.home / f"{self.name}.k_selection_stats.df.npz", rows, heads)

    def _write_rows(self, path: Path, rows: AnyArray, heads: list[str]) -> None:
        index = [str(i) for i in range(len(rows))]
        write_whole(path, _npz(rows, index, heads, start=0), force=True)

    def write_counts(self, kind: str, X: Any, cells: list[str], genes: list[str]) -> None:
        """Write ``norm_counts`` or ``tpm``; this needs anndata."""
        anndata = need("anndata", "a folder of cnmf", extra="cells")
        adata = anndata.AnnData(sp.csr_matrix(X))
        adata.obs_names, adata.var_names = cells, genes
        write_h5ad(adata, self.path(f"{kind}.h5ad"))

    def read_counts(self, kind: str) -> tuple[Any, list[str], list[str]]:
        """Return the matrix, cells and genes of ``norm_counts`` or ``tpm``."""
        path = self.path(f"{kind}.h5ad")
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; write it with `cnmf prepare`.")
        need("anndata", "a folder of cnmf", extra="cells")
        adata = read_quietly(path)
        X = check_matrix(adata.X, path)
        return X, list(map(str, adata.obs_names)), list(map(str, adata.var_names))


def write_cnmf(
    result: Consensus,
    folder: Any,
    name: str,
    *,
    samples: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    genes: Sequence[str] | None = None,
    scores: AnyArray | None = None,
    deviation: AnyArray | None = None,
    force: bool = False,
) -> Path:
    """Write a consensus in the layout of ``cnmf``.

    The files are spectra, usages, the parts in the units of X (``gene_spectra_tpm``), and the parts
    of all runs with their density. With ``scores`` there is ``gene_spectra_score``, and with
    ``deviation`` there is ``starcat_spectra``, for finding the programmes in other cells.

    Parameters
    ----------
    result : Consensus
    folder : path
        cnmf's ``output_dir``; the files are written to ``folder/name``.
    name : str
        Name of the analysis, used for the files.
    samples, features : sequences of str, default=None
        Names of rows and columns; None numbers them.
    genes : sequence of str, default=None
        Names of the columns of ``result.parts`` if they differ from ``features``.
    scores : ndarray of shape (k, n_genes), default=None
        Z-scores of the genes in each part.
    deviation : ndarray of shape (n_genes,), default=None
        Standard deviation of each gene, in the units of the parts.
    force : bool, default=False
        Replace existing files.

    Returns
    -------
    path : Path
        ``folder/name``.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from partwise import consensus
    >>> from partwise.io import read_cnmf, write_cnmf
    >>> X = np.random.default_rng(0).random((40, 20))
    >>> found = consensus(X, 2, n_runs=5, density_threshold=2.0, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     home = write_cnmf(found, folder, "cells")
    ...     again, samples, features = read_cnmf(folder, "cells", 2, density_threshold=2.0)
    >>> home.name, again.usages.shape, len(samples), len(features)
    ('cells', (40, 2), 40, 20)
    """
    n, k = result.usages.shape
    p = result.spectra.shape[1]
    if genes is None and result.parts.shape[1] != p:
        raise ValueError(f"parts have {result.parts.shape[1]} features, spectra have {p}.")
    rows = _names(samples, n, "samples")
    columns = _names(features, p, "features")
    every = columns if genes is None else _names(genes, result.parts.shape[1], "genes")
    number = _numbers(k)
    topics = _topics(range(len(result.pooled) // k), k)
    home = Path(folder) / name
    hidden = CnmfFolder(home)
    hidden.make()
    at = f"k_{k}.dt_{_threshold(result.density_threshold)}"
    tables = [
        (f"spectra.{at}.consensus", result.spectra, number, columns),
        (f"usages.{at}.consensus", result.usages, rows, number),
        (f"gene_spectra_tpm.{at}", result.parts, number, every),
    ]
    if scores is not None:
        tables.append((f"gene_spectra_score.{at}", scores, number, every))
    if deviation is not None:
        place = {gene: j for j, gene in enumerate(every)}
        kept = [place[name] for name in columns]
        spread = np.where(deviation[kept] > 0, deviation[kept], 1)
        reference = 1e6 * over_sums(result.parts.astype(np.float64))[:, kept] / spread
        tables.append((f"starcat_spectra.{at}", reference, [f"GEP{j}" for j in number], columns))
    for kind, data, index, heads in tables:
        if data.size <= MOST_TEXT:
            write_whole(home / f"{name}.{kind}.txt", _text(data, index, heads), force=force)
    tables.append((f"spectra.k_{k}.merged", result.pooled, topics, columns))
    density = result.density[:, None]
    tables.append((f"local_density_cache.k_{k}.merged", density, topics, ["local_density"]))
    for kind, data, index, heads in tables:
        write_whole(hidden.path(f"{kind}.df.npz"), _npz(data, index, heads), force=force)
    return home


def read_cnmf(
    folder: Any, name: str, k: int, *, density_threshold: float = 0.5
) -> tuple[Consensus, list[str], list[str]]:
    """Read the result of ``cnmf`` or `write_cnmf` for one k and threshold.

    The files do not hold the group of each pooled part; each is assigned to its nearest spectrum.

    Parameters
    ----------
    folder : path
        Its ``output_dir``.
    name : str
        As in `write_cnmf`.
    k : int
        Number of parts.
    density_threshold : float, default=0.5
        As in `partwise.consensus`.

    Returns
    -------
    result : Consensus
        ``parts`` may have more features than ``spectra``, which cnmf fits to a subset of genes.
    samples, features : lists of str
        Names of the rows of the usages and of the columns of the spectra.

    Examples
    --------
    >>> from partwise.io import read_cnmf  # `write_cnmf` has both ways
    >>> read_cnmf("nowhere", "cells", 2)
    Traceback (most recent call last):
    ...
    FileNotFoundError: ...
    """
    home = Path(folder) / name
    at = f"k_{k}.dt_{_threshold(density_threshold)}"
    spectra, _, features = _table(home / f"{name}.spectra.{at}.consensus.txt")
    usages, samples, _ = _table(home / f"{name}.usages.{at}.consensus.txt")
    parts, _, _ = _table(home / f"{name}.gene_spectra_tpm.{at}.txt")
    hidden = home / "cnmf_tmp"
    pooled = unit_rows(_data(hidden / f"{name}.spectra.k_{k}.merged.df.npz"))
    density = _data(hidden / f"{name}.local_density_cache.k_{k}.merged.df.npz").ravel()
    fits = len(spectra) == usages.shape[1] == len(parts) == k and density.size == len(pooled)
    if not fits or pooled.shape[1] != spectra.shape[1]:
        raise ValueError(f"{home}: the tables of k={k} do not fit each other.")
    nearest = (pooled @ unit_rows(spectra).T).argmax(axis=1)
    groups = np.where(density < density_threshold, nearest, -1)
    kept = groups >= 0
    stability = group_silhouettes(pooled[kept], groups[kept], k)
    result = Consensus(
        parts, usages, spectra, stability, pooled, density, groups, density_threshold
    )
    return result, samples, features


def _threshold(value: float) -> str:
    return str(value).replace(".", "_")


def _names(given: Sequence[str] | None, n: int, what: str) -> list[str]:
    names = [str(j) for j in range(n)] if given is None else [str(name) for name in given]
    if len(names) != n:
        raise ValueError(f"{what} must be {n} names, got {len(names)}.")
    return names


def _numbers(k: int) -> list[str]:
    return [str(j + 1) for j in range(k)]


def _topics(runs: Iterable[int], k: int) -> list[str]:
    return [f"iter{run}_topic{j}" for run in runs for j in _numbers(k)]


def _npz(data: AnyArray, index: list[str], columns: list[str], start: int = 1) -> bytes:
    """Return a ``.df.npz`` file, with numbered rows as numbers, as in cnmf."""
    file = io.BytesIO()
    np.savez(file, data=data, index=_keys(index, start), columns=_keys(columns))
    return file.getvalue()


def _keys(names: list[str], start: int = 1) -> AnyArray:
    count = range(start, start + len(names))
    numbered = all(name == str(j) for name, j in zip(names, count, strict=True))
    return np.array(count) if numbered else np.array(names)


def _text(data: AnyArray, index: list[str], columns: list[str]) -> bytes:
    """Return a tab-separated table with nine digits per number."""
    import pandas as pd

    frame = pd.DataFrame(data, index, columns)
    text: str = frame.to_csv(sep="\t", float_format="%.9g", lineterminator="\n")
    return text.encode()


def _table(path: Path) -> tuple[AnyArray, list[str], list[str]]:
    with whole(path, "table of numbers"), path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file, delimiter="\t")
        values = np.array([row[1:] for row in rows], dtype=np.float64)
    return _sound(values, path, len(head) - 1), [row[0] for row in rows], head[1:]


def _data(path: Path) -> AnyArray:
    with whole(path, "table of cnmf"):
        check_zip(path)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            values = np.asarray(file["data"], dtype=np.float64)
    return _sound(values, path)


def _sound(values: AnyArray, path: Path, columns: int | None = None) -> AnyArray:
    if values.ndim != 2 or columns not in (None, values.shape[-1]):
        raise ValueError(f"{path} must be a table, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds NaN or infinity.")
    return values
