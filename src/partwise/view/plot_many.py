"""Pictures of many runs: what came back, and how many parts there are."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.selection.consensus import distances_of_unit
from partwise.view._canvas import axes

__all__ = ["choice", "clustergram", "selection"]


def clustergram(result: Any, *, ax: Any = None) -> Any:
    """Distances between the parts of all runs, group after group: dark squares are what came back.

    Parameters
    ----------
    result : Consensus
        What `partwise.consensus` returned. Outliers are left out.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import consensus, plot
    >>> X = np.random.default_rng(0).gamma(0.3, size=(30, 12))
    >>> found = consensus(X, 2, n_runs=5, density_threshold=2, random_state=0)
    >>> ax = plot.clustergram(found)
    >>> ax.images[0].get_array().shape
    (10, 10)
    """
    kept = np.flatnonzero(result.groups >= 0)
    order = kept[np.argsort(result.groups[kept], kind="stable")]
    ax = axes(ax)
    picture = ax.imshow(distances_of_unit(result.pooled[order]), vmin=0, vmax=1.5, cmap="magma")
    ends = np.cumsum(np.bincount(result.groups[order], minlength=len(result.parts)))
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="white", linewidth=0.5)
        ax.axvline(end - 0.5, color="white", linewidth=0.5)
    middles = (np.concatenate([[0], ends[:-1]]) + ends) / 2 - 0.5
    texts = [f"{j + 1} ({score:.2f})" for j, score in enumerate(result.stability)]
    ax.set_yticks(middles, texts)
    ax.set_xticks([])
    ax.set_ylabel("part (stability)")
    ax.figure.colorbar(picture, ax=ax, label="distance")
    return ax


def choice(found: Any, *, ax: Any = None) -> Any:
    """The error at hidden entries against the number of parts; good numbers are filled.

    Parameters
    ----------
    found : Choice
        What `partwise.choose_k` returned. Bars are the standard errors of the distance to the best
        number; stability is drawn on an axis of its own where it was asked for.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import choose_k, plot
    >>> X = np.random.default_rng(0).gamma(0.3, size=(30, 12))
    >>> ax = plot.choice(choose_k(X, [1, 2, 3], n_runs=0, random_state=0))
    >>> ax.get_xlabel()
    'number of parts'
    """
    ax = axes(ax)
    mean = found.errors.mean(axis=1)
    ax.errorbar(found.numbers, mean, found.excess[:, 1], color="C0", capsize=3)
    ax.plot(found.numbers, mean, "o", color="C0", markerfacecolor="white")
    good = np.isin(found.numbers, found.good)
    ax.plot(found.numbers[good], mean[good], "o", color="C0")
    ax.axvline(found.k, color="grey", linestyle=":")
    most = 1.5 * mean[: int(mean.argmin()) + 1].max()
    if mean.max() > most:  # numbers far too large may be wrong by any factor
        ax.set_ylim(top=most)
    ax.set_xlabel("number of parts")
    ax.set_ylabel("error at hidden entries")
    if np.isfinite(found.stability).any():
        other = ax.twinx()
        other.plot(found.numbers, found.stability, color="C1", marker=".", linewidth=1)
        other.set_ylabel("stability", color="C1")
        other.set_ylim(None, 1.02)
    return ax


def selection(found: Any, *, ax: Any = None) -> Any:
    """The error of each point of a grid; good points are filled.

    Parameters
    ----------
    found : Selection
        What `partwise.select` returned. Bars are the standard errors of the distance to the best
        point.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF, plot, select
    >>> X = np.random.default_rng(0).gamma(0.3, size=(30, 12))
    >>> ax = plot.selection(select(X, NMF(2), {"alpha_W": [0, 0.01, 0.1]}, random_state=0))
    >>> ax.get_xlabel()
    'alpha_W'
    """
    ax = axes(ax)
    mean, at = found.errors.mean(axis=1), np.arange(len(found.grid))
    varied = [name for name in found.grid[0] if len({str(p.get(name)) for p in found.grid}) > 1]
    ax.errorbar(at, mean, found.excess[:, 1], color="C0", capsize=3)
    ax.plot(at, mean, "o", color="C0", markerfacecolor="white")
    good = np.array([point in found.good for point in found.grid])
    ax.plot(at[good], mean[good], "o", color="C0")
    ax.axvline(found.grid.index(found.best), color="grey", linestyle=":")
    ax.set_xticks(at, ["\n".join(str(point.get(name)) for name in varied) for point in found.grid])
    ax.set_xlabel(", ".join(varied))
    ax.set_ylabel("wrong names" if found.by == "labels" else "error at hidden entries")
    return ax
