"""The folder of results that the package ``cnmf`` writes and reads (PyPI, version 1.7).

Tables are text with tabs, and ``.df.npz`` files of three arrays: data, index, columns. Ours hold
names as plain text, not as pickled objects; of its own only ``data`` is read, for the same reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.io.archives import check_npz
from partwise.persistence.atomic import write_whole
from partwise.selection.consensus import Consensus, group_silhouettes, unit_rows


def write_cnmf(
    result: Consensus,
    folder: Any,
    name: str,
    *,
    samples: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    force: bool = False,
) -> Path:
    """Write a consensus under the names that ``cnmf`` gives its files.

    Spectra, usages, the parts in the units of X (``gene_spectra_tpm``), the parts of all runs and
    their density. ``gene_spectra_score``, a regression that it makes afterwards, is not written.

    Parameters
    ----------
    result : Consensus
    folder : path
        cNMF's ``output_dir``; the files come into ``folder/name``.
    name : str
        Name of the analysis.
    samples, features : sequences of str, default=None
        Names; None numbers them.
    force : bool, default=False
        Replace files that are there.

    Returns
    -------
    path : Path
        ``folder/name``.
    """
    n, k = result.usages.shape
    p = result.spectra.shape[1]
    if result.parts.shape[1] != p:
        raise ValueError(
            f"parts and spectra must have the same features; got {result.parts.shape[1]} and {p}."
        )
    rows = _names(samples, n, "samples")
    columns = _names(features, p, "features")
    number = [str(j + 1) for j in range(k)]
    runs = len(result.pooled) // k
    topics = [f"iter{run}_topic{j}" for run in range(runs) for j in number]
    home = Path(folder) / name
    (home / "cnmf_tmp").mkdir(parents=True, exist_ok=True)
    at = f"k_{k}.dt_{_threshold(result.density_threshold)}"
    tables = [
        (f"spectra.{at}.consensus", result.spectra, number, columns),
        (f"usages.{at}.consensus", result.usages, rows, number),
        (f"gene_spectra_tpm.{at}", result.parts, number, columns),
    ]
    for kind, data, index, heads in tables:
        write_whole(home / f"{name}.{kind}.txt", _text(data, index, heads), force=force)
    tables.append((f"spectra.k_{k}.merged", result.pooled, topics, columns))
    density = result.density[:, None]
    tables.append((f"local_density_cache.k_{k}.merged", density, topics, ["local_density"]))
    for kind, data, index, heads in tables:
        file = io.BytesIO()
        np.savez(file, data=data, index=_keys(index), columns=_keys(heads))
        write_whole(home / "cnmf_tmp" / f"{name}.{kind}.df.npz", file.getvalue(), force=force)
    return home


def read_cnmf(
    folder: Any, name: str, k: int, *, density_threshold: float = 0.5
) -> tuple[Consensus, list[str], list[str]]:
    """Read what ``cnmf`` (or `write_cnmf`) found for one k and threshold.

    Its files do not say which pooled part is in which group: here each belongs to the spectrum that
    is nearest.

    Returns
    -------
    result : Consensus
        ``parts`` may have more features than ``spectra``: cnmf fits spectra to some genes only.
    samples, features : lists of str
        Names of the rows of the usages and of the columns of the spectra.
    """
    home = Path(folder) / name
    at = f"k_{k}.dt_{_threshold(density_threshold)}"
    spectra, _, features = _table(home / f"{name}.spectra.{at}.consensus.txt")
    usages, samples, _ = _table(home / f"{name}.usages.{at}.consensus.txt")
    parts, _, _ = _table(home / f"{name}.gene_spectra_tpm.{at}.txt")
    hidden = home / "cnmf_tmp"
    pooled = unit_rows(_data(hidden / f"{name}.spectra.k_{k}.merged.df.npz"))
    density = _data(hidden / f"{name}.local_density_cache.k_{k}.merged.df.npz").ravel()
    fits = {
        "spectra": spectra.shape[0] == k,
        "usages": usages.shape[1] == k,
        "gene_spectra_tpm": parts.shape[0] == k,
        f"spectra.k_{k}.merged": pooled.shape[1] == spectra.shape[1],
        f"local_density_cache.k_{k}.merged": density.size == len(pooled),
    }
    for what, right in fits.items():
        if not right:
            raise ValueError(f"{home}: {what} does not fit the other tables of k={k}.")
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


def _keys(names: list[str]) -> AnyArray:
    """Numbers of parts as numbers, as cnmf has them."""
    numbers = [str(j + 1) for j in range(len(names))]
    return np.arange(1, len(names) + 1) if names == numbers else np.array(names)


def _text(data: AnyArray, index: list[str], columns: list[str]) -> str:
    """A table with nine digits of each number, a third of the time of all seventeen."""
    rows = data.tolist()
    form = "\t%.9g" * len(columns) + "\n"
    lines = [label + form % tuple(row) for label, row in zip(_quoted(index), rows, strict=True)]
    return "\t".join(["", *_quoted(columns)]) + "\n" + "".join(lines)


def _quoted(names: list[str]) -> list[str]:
    """Names as csv has them: in quotes where they hold a tab, a quote or a line's end."""
    odd = set('\t"\r\n')
    return ['"' + n.replace('"', '""') + '"' if odd & set(n) else n for n in names]


def _table(path: Path) -> tuple[AnyArray, list[str], list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file, delimiter="\t")
        values = np.array([row[1:] for row in rows], dtype=np.float64)
    except (ValueError, csv.Error) as error:  # no number, lines of several lengths, no text
        raise ValueError(f"{path} is no table of numbers, or damaged ({error}).") from error
    return _sound(values, path, len(head) - 1), [row[0] for row in rows], head[1:]


def _data(path: Path) -> AnyArray:
    check_npz(path)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            values = np.asarray(file["data"], dtype=np.float64)
    except OSError:
        raise
    except Exception as error:  # zip, zlib, struct, EOF
        raise ValueError(f"{path} is no table of cnmf, or damaged ({error}).") from error
    return _sound(values, path)


def _sound(values: AnyArray, path: Path, columns: int | None = None) -> AnyArray:
    if values.ndim != 2 or columns not in (None, values.shape[-1]):
        raise ValueError(f"{path} must be a table, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds NaN or infinity.")
    return values
