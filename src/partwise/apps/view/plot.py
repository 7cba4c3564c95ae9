"""Plots of a fitted model and of many runs, with matplotlib.

Every function draws into the given Axes or into new ones, and returns them. It neither shows nor
saves the figure. `model` is a fitted estimator of Partwise or scikit-learn, or an array where
documented.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partwise.selection.consensus import distances_of_unit

__all__ = [
    "choice",
    "class_parts",
    "clustergram",
    "components",
    "convergence",
    "embedding",
    "gene_heatmap",
    "parameter_path",
    "part_intervals",
    "parts_in_place",
    "selection",
    "stability_and_error",
    "top_terms",
]

MARKS = ("o", "D", "s", "^", "P", "X")
#: Number of names in one column of a legend.
LEGEND_ROWS = 16


def components(
    model: Any,
    shape: Any,
    *,
    columns: int | None = None,
    titles: Sequence[Any] | None = None,
    cmap: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot the parts as a grid of images, each scaled to its largest absolute value.

    Parameters
    ----------
    model : estimator or array-like of shape (n_components, n_features)
        Its ``components_``, or an array with one image per row.
    shape : (height, width), (height, width, 3), Dataset or Samples
        Shape of an image, stored row by row. Alternatively the data that the model was fitted to,
        which defines shape and order of its pixels.
    columns : int, optional
        Pictures in a row; as square as possible by default.
    titles : sequence, optional
        A word above each picture.
    cmap : str, optional
        Colours of grey pictures; by default black to white, or red and blue if there are
        negative values.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import NMF, plot
    >>> model = NMF(6, random_state=0, tol=1e-2).fit(load_digits().data)
    >>> plot.components(model, (8, 8), columns=3).get_images()[0].get_size()
    (19, 28)
    """
    H, shape = upright(parts_of(model), shape)
    pictures = pictures_of(H, shape)
    columns = math.ceil(math.sqrt(len(H))) if columns is None else columns
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}.")
    places = [(i // columns, i % columns) for i in range(len(H))]
    ax = draw_grid(pictures, places, axes(ax), cmap)
    height, width = shape[0] + 1, shape[1] + 1
    for title, (row, column) in zip(titles or (), places):
        ax.text((column + 0.5) * width, row * height, str(title), ha="center", va="bottom")
    return bare(ax)


def class_parts(model: Any, shape: Any, *, cmap: str | None = None, ax: Any = None) -> Any:
    """Plot the parts of each class in a row, for `CDNMF` and similar models.

    Parameters
    ----------
    model : estimator
        With ``component_classes_``: fitted with labels and a class cost.
    shape : (height, width), (height, width, 3), Dataset or Samples
        As in `components`.
    cmap : str, optional
        As in `components`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        The classes are the labels of its y axis.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import CDNMF, plot
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = CDNMF(components_per_class=2, random_state=0, tol=1e-2).fit(X, y)
    >>> [label.get_text() for label in plot.class_parts(model, (8, 8)).get_yticklabels()]
    ['0', '1', '2']
    """
    owners = getattr(model, "component_classes_", None)
    if owners is None:
        raise ValueError(
            f"{type(model).__name__} does not assign parts to classes; use CDNMF, or "
            "ConstrainedNMF with class_reg, fitted with labels."
        )
    names: list[Any] = []
    places: list[tuple[int, int]] = []
    for owner in owners:
        if owner not in names:
            names.append(owner)
        row = names.index(owner)
        places.append((row, sum(place[0] == row for place in places)))
    H, shape = upright(parts_of(model), shape)
    if ax is None:
        ax = axes(None)
        if len(names) > 12:  # each row is at least as high as the name of its class
            ax.figure.set_figheight(0.24 * len(names))
    ax = draw_grid(pictures_of(H, shape), places, ax, cmap)
    height = shape[0] + 1
    ax.set_yticks(
        [(row + 0.5) * height for row in range(len(names))],
        ["no class" if name is None else str(name) for name in names],
    )
    return bare(ax, yticks=True)


def convergence(models: Any, *, relative: bool = False, ax: Any = None) -> Any:
    """Plot the objective after each iteration.

    Parameters
    ----------
    models : estimator, sequence of numbers, or mapping of names to these
        Models with ``objective_history_``, or sequences of objectives.
    relative : bool, default=False
        Divide each history by its first value, so that different losses fit into one plot.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from partwise import plot
    >>> ax = plot.convergence({"slow": [3, 2.5, 2.2], "fast": [3, 1.5, 1.4]})
    >>> [line.get_label() for line in ax.lines]
    ['slow', 'fast']
    """
    named = models if isinstance(models, Mapping) else {"": models}
    ax = axes(ax)
    for name, model in named.items():
        history = np.asarray(getattr(model, "objective_history_", model), dtype=np.float64)
        if history.ndim != 1 or not history.size:
            raise ValueError(f"{name or 'models'} has no objective_history_ to draw.")
        values = history / history[0] if relative and history[0] else history
        ax.plot(np.arange(1, len(values) + 1), values, label=str(name))
    ax.set_xscale("log")
    ax.set_xlabel("iteration")
    ax.set_ylabel("objective / first value" if relative else "objective")
    if isinstance(models, Mapping):
        ax.legend(frameon=False)
    return ax


def embedding(
    model: Any, labels: ArrayLike | None = None, *, random_state: int = 0, ax: Any = None
) -> Any:
    """Plot the samples in two dimensions, by t-SNE of their part weights (or PCA).

    Parameters
    ----------
    model : estimator or array-like of shape (n_samples, n_components)
        Its ``embedding_``, or part weights.
    labels : array-like of shape (n_samples,), optional
        Colours; by default the model's ``labels_``. None among them is drawn grey.
    random_state : int, default=0
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from partwise import NMF, plot
    >>> iris = load_iris()
    >>> ax = plot.embedding(NMF(2).fit(iris.data), iris.target_names[iris.target])
    >>> len(ax.collections)
    3
    """
    from partwise.apps.view.report.charts import COLOURS, NO_LABEL, natural
    from partwise.apps.view.report.layout import lay_out

    V = np.asarray(getattr(model, "embedding_", model))
    if V.ndim != 2:
        raise ValueError(
            f"model must be a fitted model, or part weights of shape (n, k); got shape {V.shape}."
        )
    names = labels if labels is not None else getattr(model, "labels_", None)
    names = [None] * len(V) if names is None else list(np.asarray(names, dtype=object))
    if len(names) != len(V):
        raise ValueError(
            f"labels must have one entry for each of {len(V)} samples, got {len(names)}."
        )
    texts = np.array([None if name is None else str(name) for name in names], dtype=object)
    layout = lay_out(V, texts, random_state=random_state)
    shown = texts[layout.shown]
    ax = axes(ax)
    size = 18 if len(shown) < 600 else 8

    def points(level: str | None, **look: Any) -> None:
        here = layout.points[shown == level].T
        if here.size:
            ax.scatter(*here, s=size, linewidths=0, **look)

    # unlabelled samples are drawn first, below the others
    points(None, color=NO_LABEL, label="no label")
    levels = sorted(set(shown) - {None}, key=natural)
    for number, level in enumerate(levels):
        # If there are more classes than colours, colours repeat with other marker shapes.
        mark = MARKS[number // len(COLOURS) % len(MARKS)]
        points(level, color=COLOURS[number % len(COLOURS)], label=level, marker=mark)
    if layout.axes is None:
        ax.set(xticks=[], yticks=[])
        ax.set_aspect("equal", adjustable="datalim")
    else:
        ax.set(xlabel=layout.axes[0], ylabel=layout.axes[1])
    if levels:
        columns = math.ceil(len(ax.collections) / LEGEND_ROWS)
        ax.legend(
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            markerscale=1.5,
            ncols=columns,
            fontsize="medium" if columns == 1 else "small",
            columnspacing=1.0,
            handletextpad=0.2,
        )
    return ax


def top_terms(
    model: Any, names: Sequence[str], *, n_terms: int = 10, columns: int = 4, axes: Any = None
) -> NDArray[Any]:
    """Plot the largest entries of each part: words of topics, or columns of a table.

    Parameters
    ----------
    model : estimator or array-like of shape (n_components, n_features)
    names : sequence of str
        Names of the features.
    n_terms : int, default=10
        Terms for each part.
    columns : int, default=4
        Number of Axes per row, if the function creates them.
    axes : sequence of matplotlib Axes, optional
        One for each part.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each part.

    Examples
    --------
    >>> from partwise import plot
    >>> (ax,) = plot.top_terms([[0.1, 0.7, 0.2]], ["sea", "ship", "sail"], n_terms=2)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['ship', 'sail']
    """
    H = parts_of(model)
    if len(names) != H.shape[1]:
        raise ValueError(f"names must have {H.shape[1]} entries, got {len(names)}.")
    if axes is None:
        from matplotlib import pyplot as plt

        width = min(columns, len(H))
        rows = math.ceil(len(H) / width)
        size = (3.0 * width, (0.24 * n_terms + 0.6) * rows)
        made = plt.subplots(rows, width, figsize=size, layout="constrained", squeeze=False)[1]
        for spare in made.flat[len(H) :]:
            spare.remove()
        axes = made.flat[: len(H)]
    axes = np.asarray(axes, dtype=object).ravel()
    if len(axes) != len(H):
        raise ValueError(f"axes must be one for each of {len(H)} parts, got {len(axes)}.")
    for number, (row, ax) in enumerate(zip(H, axes), start=1):
        order = np.argsort(-row, kind="stable")[:n_terms]
        ax.barh(np.arange(len(order)), row[order])
        ax.set_yticks(np.arange(len(order)), [str(names[j]) for j in order])
        ax.invert_yaxis()
        ax.set_title(f"part {number}", fontsize="medium")
        ax.set_xticks([])
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return np.asarray(axes, dtype=object)


def parameter_path(
    values: ArrayLike,
    scores: Any,
    *,
    parameter: str = "parameter",
    score: str = "score",
    ax: Any = None,
) -> Any:
    """Plot a score against a parameter, with the spread over runs, as in the papers.

    Parameters
    ----------
    values : array-like of shape (n_values,)
        Values of the parameter. The axis is logarithmic if they are positive and span a factor of
        50.
    scores : array-like of shape (n_values,) or (n_values, n_runs), or mapping of names to these
        With runs, the line is their mean and the band their standard deviation.
    parameter, score : str
        Names of the axes.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from partwise import plot
    >>> ax = plot.parameter_path([1, 10, 100], [[0.6, 0.7], [0.8, 0.8], [0.7, 0.9]])
    >>> ax.get_xscale()
    'log'
    """
    x = np.asarray(values, dtype=np.float64)
    ax = axes(ax)
    for name, run in (scores if isinstance(scores, Mapping) else {"": scores}).items():
        y = np.asarray(run, dtype=np.float64)
        if y.shape[:1] != x.shape or y.ndim > 2:
            raise ValueError(
                f"scores must have {x.size} rows, one for each value, got shape {y.shape}."
            )
        y = y.reshape(x.size, -1)
        mean, spread = y.mean(axis=1), y.std(axis=1)
        (line,) = ax.plot(x, mean, marker="o", markersize=4, label=str(name))
        if y.shape[1] > 1:
            ax.fill_between(x, mean - spread, mean + spread, color=line.get_color(), alpha=0.2)
    if x.min() > 0 and x.max() / x.min() >= 50:
        ax.set_xscale("log")
    ax.set_xlabel(parameter)
    ax.set_ylabel(score)
    if isinstance(scores, Mapping):
        ax.legend(frameon=False)
    return ax


def axes(ax: Any) -> Any:
    """Return the given Axes, or new ones."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def bare(ax: Any, *, yticks: bool = False) -> Any:
    """Hide ticks and borders of Axes, but keep the background between images."""
    ax.set_xticks([])
    if not yticks:
        ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def parts_of(model: Any) -> NDArray[Any]:
    """Return the parts of a model or array as a matrix, after checking them."""
    H = getattr(model, "components_", None if hasattr(model, "get_params") else model)
    if H is None:
        raise ValueError(
            f"{type(model).__name__} has no components_: call fit first. With another kernel than "
            "'linear', there are no parts in the space of the data."
        )
    H = np.asarray(H)
    if H.ndim != 2:
        raise ValueError(f"the parts must be rows of a matrix, got shape {H.shape}.")
    return H


def upright(H: NDArray[Any], shape: Any) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return parts with pixels stored row by row, and the shape of an image."""
    if not hasattr(shape, "image_shape"):
        return H, tuple(shape)
    if shape.image_shape is None:
        raise ValueError(f"{shape!r} is not a data set of images; pass shape=(height, width).")
    height, width = shape.image_shape[:2]
    if getattr(shape, "image_order", "C") == "F" and height * width == H.shape[1]:
        H = H.reshape(len(H), width, height).transpose(0, 2, 1).reshape(len(H), -1)
    return H, tuple(shape.image_shape)


def pictures_of(H: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return each part as an image, scaled to [-1, 1]."""
    if math.prod(shape) != H.shape[1] or len(shape) not in (2, 3):
        raise ValueError(
            f"shape={tuple(shape)} does not fit the {H.shape[1]} features of a part; pass (height, "
            "width) or (height, width, 3) with this product."
        )
    top = np.abs(H).max(axis=1, keepdims=True)
    scaled: NDArray[Any] = np.divide(H, top, out=np.zeros(H.shape), where=top > 0)
    return scaled.reshape(len(H), *shape)


def draw_grid(
    pictures: NDArray[Any], places: Sequence[tuple[int, int]], ax: Any, cmap: str | None
) -> Any:
    """Draw images in a grid, with a line of one pixel around each."""
    _, height, width, *channels = pictures.shape
    rows = 1 + max(row for row, _ in places)
    columns = 1 + max(column for _, column in places)
    canvas = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, *channels), np.nan)
    for picture, (row, column) in zip(pictures, places):
        top, left = row * (height + 1) + 1, column * (width + 1) + 1
        canvas[top : top + height, left : left + width] = picture
    if channels:
        shown = np.where(np.isnan(canvas), 1.0, np.clip(canvas, 0, 1))
        ax.imshow(shown, interpolation="nearest")
        return ax
    signed = bool((pictures < 0).any())
    # The line between images is light grey, so that images with empty borders can be told apart.
    ax.set_facecolor("0.85")
    ax.imshow(
        np.ma.masked_invalid(canvas),
        cmap=cmap or ("RdBu_r" if signed else "gray"),
        vmin=-1 if signed else 0,
        vmax=1,
        interpolation="nearest",
    )
    return ax


def clustergram(result: Any, *, ax: Any = None) -> Any:
    """Plot distances between the parts of all runs, sorted by group.

    Parameters
    ----------
    result : Consensus
        Result of `partwise.consensus`. Outliers are left out. Dark squares are parts that recur in
        many runs.
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
    ax = axes(ax)
    kept = np.flatnonzero(result.groups >= 0)
    order = kept[np.argsort(result.groups[kept], kind="stable")]
    ends = np.cumsum(np.bincount(result.groups[order], minlength=len(result.parts)))
    texts = [f"{j + 1} ({score:.2f})" for j, score in enumerate(result.stability)]
    distances = distances_of_unit(result.pooled[order])
    picture = ax.imshow(distances, vmin=0, vmax=1.5, cmap="magma")
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="white", linewidth=0.5)
        ax.axvline(end - 0.5, color="white", linewidth=0.5)
    middles = (np.append(0, ends[:-1]) + ends) / 2 - 0.5
    ax.set_yticks(middles, texts)
    ax.set_xticks([])
    ax.set_ylabel("part (stability)")
    ax.figure.colorbar(picture, ax=ax, label="distance")
    return ax


def stability_and_error(found: Any, *, ax: Any = None) -> Any:
    """Plot stability and error of programs against their number, as cNMF does.

    Parameters
    ----------
    found : sequence of Programmes
        Programs found for each number of programs, as `partwise.cells.consensus` returns them.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> found = partwise.cells.consensus(adata, 2, n_runs=5, density_threshold=2.0, n_genes=0)
    >>> partwise.plot.stability_and_error([found]).get_ylabel()
    'stability'
    """
    ax = axes(ax)
    numbers = [one.k for one in found]
    ax.plot(numbers, [one.stability for one in found], "o-", color="C0")
    ax.set_xlabel("number of programmes")
    ax.set_ylabel("stability", color="C0")
    ax.xaxis.get_major_locator().set_params(integer=True)
    other = ax.twinx()
    other.plot(numbers, [one.error for one in found], ".-", color="C1", linewidth=1)
    other.set_ylabel("error", color="C1")
    return ax


def gene_heatmap(one: Any, *, most: int = 5, ax: Any = None) -> Any:
    """Plot the scores of the genes with the highest scores in each program.

    Parameters
    ----------
    one : Programmes
    most : int, default=5
        Number of genes per programme; fewer if there are many programmes.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import anndata, numpy as np, partwise.cells
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(2, (60, 30)).astype(float))
    >>> found = partwise.cells.consensus(adata, 2, n_runs=5, density_threshold=2.0, n_genes=0)
    >>> partwise.plot.gene_heatmap(found).get_xlabel()
    'programme'
    """
    scores, genes = leading_scores(one, most)
    ax = axes(ax)
    top = float(np.abs(scores).max(initial=0)) or 1.0
    picture = ax.imshow(scores, aspect="auto", cmap="RdBu_r", vmin=-top, vmax=top)
    ax.set_yticks(range(len(genes)), genes, fontsize=7)
    ax.set_xticks(range(one.k), [str(j + 1) for j in range(one.k)])
    ax.set_xlabel("programme")
    ax.figure.colorbar(picture, ax=ax, label="score")
    return ax


def leading_scores(one: Any, most: int = 5) -> tuple[NDArray[Any], list[str]]:
    """Return the top genes of each program, and their scores (genes, programs)."""
    most = max(1, min(most, 60 // one.k))
    at = {name: j for j, name in enumerate(one.genes)}
    genes = list(dict.fromkeys(name for names in one.top_genes(most) for name in names))
    return one.scores[:, [at[name] for name in genes]].T, genes


def parts_in_place(V: Any, places: Any, *, axes: Any = None, most: int = 50_000) -> Any:
    """Plot part weights at the positions of the samples, one image per part.

    Parameters
    ----------
    V : array-like of shape (n_samples, k)
        Part weights, such as ``embedding_``.
    places : array-like of shape (n_samples, 2)
        Coordinates x and y; y grows downwards, as in pictures.
    axes : sequence of matplotlib Axes, optional
        One Axes for each part.
    most : int, default=50000
        Maximum number of samples to draw; of more samples, a random subset is drawn.

    Returns
    -------
    list of matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import plot
    >>> places = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2)
    >>> len(plot.parts_in_place(np.eye(16)[:, :3], places))
    3
    """
    V, places = np.asarray(V), np.asarray(places, dtype=np.float64)
    if places.shape != (len(V), 2):
        raise ValueError(
            f"places must be x and y of the {len(V)} samples, got shape {places.shape}."
        )
    if axes is None:
        from matplotlib import pyplot as plt

        size = (2.2 * V.shape[1], 2.4)
        axes = plt.subplots(1, V.shape[1], squeeze=False, figsize=size, layout="constrained")[1]
    some = np.arange(len(V))
    if len(V) > most:
        some = np.sort(np.random.RandomState(0).permutation(len(V))[:most])
    dot = float(np.clip(8000 / len(some), 0.3, 40))
    axes = list(np.ravel(axes))
    for j, ax in enumerate(axes):
        ax.set_axis_off()
        if j < V.shape[1]:
            ax.scatter(*places[some].T, c=V[some, j], s=dot, cmap="magma", linewidths=0)
            ax.set_title(f"part {j + 1}", fontsize=9)
            ax.set_aspect("equal")
            ax.invert_yaxis()
    return axes


def part_intervals(
    found: Any, part: int, *, names: Any = None, most: int = 20, ax: Any = None
) -> Any:
    """Plot the largest entries of a part with their intervals.

    Parameters
    ----------
    found : Intervals
        Result of `partwise.bootstrap_intervals`.
    part : int
        Index of the part, counted from 0.
    names : sequence of str, default=None
        Names of the features; None numbers them.
    most : int, default=20
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF, bootstrap_intervals, plot
    >>> X = np.random.default_rng(0).gamma(0.3, size=(30, 12))
    >>> model = NMF(2, random_state=0, tol=1e-2).fit(X)
    >>> ax = plot.part_intervals(bootstrap_intervals(X, model, n_draws=10, random_state=0), 0)
    >>> len(ax.get_yticks())
    12
    """
    ax = axes(ax)
    order = np.argsort(-found.parts[part], kind="stable")[:most]
    middle, low, high = (M[part, order] for M in (found.parts, found.parts_low, found.parts_high))
    at = np.arange(len(order))
    ax.errorbar(middle, at, xerr=[middle - low, high - middle], fmt="o", capsize=2, markersize=4)
    ax.set_yticks(at, [str(j) if names is None else str(names[j]) for j in order])
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel(f"part {part + 1}, {found.level:.0%} intervals")
    return ax


def choice(found: Any, *, ax: Any = None) -> Any:
    """Plot the error at hidden entries against the number of parts.

    Parameters
    ----------
    found : Choice
        Result of `partwise.choose_k`. Bars are the standard errors of the distance to the best
        number; stability, if computed, is drawn on a second axis.
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
    mean = found.errors.mean(axis=1)
    ax = _errors(found, found.numbers, np.isin(found.numbers, found.good), found.k, ax)
    most = 1.5 * mean[: int(mean.argmin()) + 1].max()
    if mean.max() > most:  # far too many parts can have an error of any size
        ax.set_ylim(top=most)
    ax.set_xlabel("number of parts")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_ylabel("error at hidden entries")
    if np.isfinite(found.stability).any():
        other = ax.twinx()
        other.plot(found.numbers, found.stability, color="C1", marker=".", linewidth=1)
        other.set_ylabel("stability", color="C1")
        other.set_ylim(None, 1.02)
    return ax


def selection(found: Any, *, ax: Any = None) -> Any:
    """Plot the error of each combination of parameters; good ones are filled.

    Parameters
    ----------
    found : Selection
        Result of `partwise.select`. Bars are the standard errors of the distance to the best
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
    at = np.arange(len(found.grid))
    varied = [name for name in found.grid[0] if len({str(p.get(name)) for p in found.grid}) > 1]
    good = np.array([point in found.good for point in found.grid])
    ax = _errors(found, at, good, found.grid.index(found.best), ax)
    ax.set_xticks(at, ["\n".join(str(point.get(name)) for name in varied) for point in found.grid])
    ax.set_xlabel(", ".join(varied))
    ax.set_ylabel("wrong names" if found.by == "labels" else "error at hidden entries")
    return ax


def _errors(found: Any, at: NDArray[Any], good: NDArray[Any], best: float, ax: Any) -> Any:
    """Plot errors with error bars, filled markers if good, and a line at the best."""
    ax, mean = axes(ax), found.errors.mean(axis=1)
    ax.errorbar(at, mean, found.excess[:, 1], color="C0", capsize=3)
    ax.plot(at, mean, "o", color="C0", markerfacecolor="white")
    ax.plot(at[good], mean[good], "o", color="C0")
    ax.axvline(best, color="grey", linestyle=":")
    return ax
