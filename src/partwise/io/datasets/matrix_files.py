"""Read a data set from ``.npz``, or from ``.mat`` with Deng Cai's ``fea`` and ``gnd``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import ArrayLike
from scipy import sparse

from partwise.backends.compressed import csr_of
from partwise.io._common import check_matrix
from partwise.io.archives import check_mat, check_shape, check_zip, whole


@dataclass(frozen=True)
class Dataset:
    """Samples in rows, with their classes and descriptions.

    Parameters
    ----------
    X : ndarray or scipy.sparse.csr_array of float64, shape (n_samples, n_features)
    y : ndarray of int or None
        Classes as codes 0, 1, ...: ``class_names[y[i]]`` is the class label of sample i.
    name : str
    image_shape : tuple of int or None
        Height and width if samples and parts are images; see :meth:`images`.
    image_order : {"C", "F"}
        Whether pixels are stored row by row or column by column.
    class_names : tuple of str or None
    terms : ndarray of str or None
        Names of the features.
    description, source : str
        Description of the data set; the file or the function that it came from.
    extra : mapping
        All other arrays of the file, for example ``is_train``.

    Examples
    --------
    >>> from partwise.datasets import load
    >>> digits = load("digits")
    >>> digits.images(digits.X[:2]).shape
    (2, 8, 8)
    """

    X: Any
    y: np.ndarray | None
    name: str
    image_shape: tuple[int, int] | None = None
    image_order: str = "F"
    class_names: tuple[str, ...] | None = None
    terms: np.ndarray | None = None
    description: str = ""
    source: str = ""
    extra: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def images(self, rows: ArrayLike) -> np.ndarray:
        """Return rows of X, or parts, as upright images.

        Parameters
        ----------
        rows : array-like of shape (m, n_features)

        Returns
        -------
        ndarray of shape (m, height, width)
        """
        if self.image_shape is None:
            raise ValueError(f"The samples of {self.name!r} are not images.")
        height, width = self.image_shape
        pixels = np.atleast_2d(np.asarray(rows))
        if pixels.shape[1] != height * width:
            wanted = f"{height} x {width} = {height * width}"
            raise ValueError(f"images() needs {wanted} values per row, got {pixels.shape[1]}.")
        if self.image_order == "C":
            return pixels.reshape(-1, height, width)
        return pixels.reshape(-1, width, height).transpose(0, 2, 1)


def read(path: str | Path) -> Dataset:
    """Read a data set from an ``.npz`` or ``.mat`` file, samples in rows.

    An ``.npz`` file holds either ``X``, which is divided by ``scale`` if there is one, or a CSR
    matrix as :func:`scipy.sparse.save_npz` writes it: ``data``, ``indices``, ``indptr``, ``shape``.
    ``y``, ``class_names`` and ``terms`` are optional. A ``.mat`` file holds ``fea`` and optionally
    ``gnd``; save it with ``-v7``, since MATLAB's format 7.3 is not supported.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If the file is damaged or has another layout. Pickled arrays are refused.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> from partwise.datasets import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(os.path.join(folder, "mine.npz"), X=np.ones((4, 3)), y=[0, 0, 1, 1])
    ...     read(os.path.join(folder, "mine.npz")).y
    array([0, 0, 1, 1])
    """
    path = Path(path)
    reader = {".npz": _read_npz, ".mat": _read_mat}.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: expected a .npz or .mat file.")
    with whole(path, "data set"):
        parts = reader(path)
        X = check_matrix(parts.pop("X"), path).astype(np.float64)
        y, class_names = _as_codes(parts.pop("y", None), parts, X.shape[0])
        terms = parts.pop("terms", None)
        if terms is not None and terms.shape != (X.shape[1],):
            raise ValueError(f"{X.shape[1]} features but terms of shape {terms.shape}")
    about = {"class_names": class_names, "terms": terms, "source": str(path), "extra": parts}
    return Dataset(X, y, path.stem, **about)


def _read_npz(path: Path) -> dict[str, Any]:
    check_zip(path)
    with path.open("rb") as file:  # numpy would not close its file after an error
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array, not an archive of arrays")
        parts = dict(archive)
    if "indptr" in parts:
        missing = {"data", "indices", "shape"} - parts.keys()
        if missing:
            raise ValueError(f"a sparse matrix also needs {', '.join(sorted(missing))}")
        parts["X"] = _sparse(path, parts)
    elif "X" not in parts:
        raise ValueError(f"needs X, or data, indices, indptr and shape; it has {list(parts)}")
    scale = parts.pop("scale", None)
    if scale is not None:
        parts["X"] = parts["X"] / float(scale)
    return parts


def _sparse(path: Path, parts: dict[str, Any]) -> sparse.csr_array:
    data, indices, indptr = (parts.pop(key) for key in ("data", "indices", "indptr"))
    shape = np.ravel(parts.pop("shape"))
    layout = parts.pop("format", "csr")
    layout = layout.item() if isinstance(layout, np.ndarray) else layout
    layout = layout.decode("ascii") if isinstance(layout, bytes) else layout
    if layout not in ("csr", "csc"):
        raise ValueError(f"sparse format {layout!r}; csr and csc are read")
    check_shape(path, shape)
    return csr_of(data, indices, indptr, shape, layout)


def _read_mat(path: Path) -> dict[str, Any]:
    names = ["fea", "gnd"]
    check_mat(path, names)
    how = sparse_arrays(scipy.io.loadmat)
    try:
        found = scipy.io.loadmat(path, variable_names=names, **how)
    except NotImplementedError as error:
        raise ValueError("MATLAB 7.3 files are not read; save it with the option -v7") from error
    if "fea" not in found:
        held = ", ".join(name for name, _, _ in scipy.io.whosmat(path)) or "nothing"
        raise ValueError(f"needs fea (samples in rows) and, where known, gnd; it holds {held}")
    check_shape(path, found["fea"].shape)
    parts = {"X": found["fea"]}
    if "gnd" in found:
        parts["y"] = np.ravel(found["gnd"])
    return parts


def sparse_arrays(reader: Callable[..., Any]) -> dict[str, bool]:
    """Return the option of scipy's readers for sparse arrays, if this scipy has it."""
    return {"spmatrix": False} if "spmatrix" in inspect.signature(reader).parameters else {}


def _as_codes(
    y: Any, parts: dict[str, Any], n: int
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Return labels as codes 0, 1, ..., and the name of each code."""
    if y is None:
        return None, None
    y = np.asarray(y)
    if y.shape != (n,):
        raise ValueError(f"{n} samples but labels of shape {y.shape}")
    if y.dtype.kind == "O" or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise ValueError("labels must be numbers or text without missing values")
    values, codes = np.unique(y, return_inverse=True)
    for key in ("class_names", "names"):  # names[i] belongs to the i-th class, counted from 1
        if key in parts and parts[key].shape == values.shape:
            return codes, tuple(str(name) for name in parts.pop(key))
    return codes, tuple(str(value) for value in values)
