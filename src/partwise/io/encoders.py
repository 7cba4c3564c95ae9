"""Embeddings of texts and pictures by pretrained encoders from a registry."""

from __future__ import annotations

import hashlib
import importlib.util
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import Step, silent
from partwise.io.datasets.loading import user_cache
from partwise.io.samples import Samples

#: Number of texts or pictures that are encoded, and written to the cache, together.
BATCH = {"texts": 512, "images": 32}

Encode = Callable[[Sequence[Any]], Any]  #: from texts or PIL images to an array (n, dimensions)


@dataclass(frozen=True)
class Encoder:
    """A pretrained model that Partwise can load, pinned to one revision.

    Attributes
    ----------
    name : str
        Name for ``--encoder`` and `encode`.
    kind : {"texts", "images"}
    package, extra : str
        The Python package that runs the model, and the extra of Partwise that installs it.
    model, revision : str
        The repository of the model on huggingface.co and the commit that is used.
    licence : str
        The licence of the weights.
    megabytes, dimensions : int
        Size of the download, and length of an embedding.
    files : sequence of str
        Patterns of the files that are downloaded; the first one matches the weights.
    load : callable
        ``load(encoder, folder)`` returns the function that encodes a batch.
    recommended : {"light", "good", "multilingual", ""}
    languages : str
    settings : mapping
        Arguments that this model needs.
    """

    name: str
    kind: str
    package: str
    extra: str
    model: str
    revision: str
    licence: str
    megabytes: int
    dimensions: int
    files: Sequence[str]
    load: Callable[[Encoder, Path], Encode]
    recommended: str = ""
    languages: str = "English"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """True if the packages that run the model, and find its weights, can be imported."""
        wanted = (self.package, *(["huggingface_hub"] if self.files else []))
        return all(importlib.util.find_spec(name) is not None for name in wanted)

    @property
    def is_there(self) -> bool:
        """True if the weights are on this computer."""
        return self.is_installed and _local_folder(self) is not None


# -- loading: one function per package ----------------------------------------------------------


def _model2vec(encoder: Encoder, folder: Path) -> Encode:
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(folder)
    return lambda texts: model.encode(list(texts), use_multiprocessing=False)


def _sentence_transformers(encoder: Encoder, folder: Path) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(folder),
        device=_device(),
        trust_remote_code=False,
        local_files_only=True,
        model_kwargs={"use_safetensors": True},
    )
    prefix = encoder.settings.get("prefix", "")

    def run(texts: Sequence[str]) -> Any:
        return model.encode([prefix + text for text in texts], show_progress_bar=False)

    return run


def _fastembed(encoder: Encoder, folder: Path) -> Encode:
    from fastembed import TextEmbedding

    name = encoder.settings["model_name"]
    model = TextEmbedding(name, specific_model_path=str(folder), local_files_only=True)
    return lambda texts: np.stack(list(model.embed(list(texts))))


def _timm(encoder: Encoder, folder: Path) -> Encode:
    import timm

    model = timm.create_model(
        encoder.model.removeprefix("timm/"),
        pretrained=True,
        pretrained_cfg_overlay={"file": str(folder / "model.safetensors")},
        num_classes=0,
        **encoder.settings,
    )
    shape = timm.data.resolve_model_data_config(model)
    return on_pictures(model, shape["input_size"][-1], shape["mean"], shape["std"])


def _open_clip(encoder: Encoder, folder: Path) -> Encode:
    import open_clip

    weights = str(folder / "open_clip_model.safetensors")
    model = open_clip.create_model(encoder.settings["model_name"], pretrained=weights)
    seen = model.visual
    side = seen.image_size[0] if isinstance(seen.image_size, tuple) else seen.image_size
    return on_pictures(seen, side, seen.image_mean, seen.image_std)


def on_pictures(model: Any, side: int, mean: Sequence[float], std: Sequence[float]) -> Encode:
    """Return the function that runs a torch model on pictures, cropped to a square."""
    import torch

    device = _device()
    model = model.eval().to(device)
    shift, scale = np.asarray(mean, dtype=np.float32), np.asarray(std, dtype=np.float32)

    def run(pictures: Sequence[Any]) -> Any:
        pixels = np.stack([(_square(image, side) - shift) / scale for image in pictures])
        batch = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
        with torch.inference_mode():
            return model(batch.to(device)).float().cpu().numpy()

    return run


def _square(image: Any, side: int) -> np.ndarray:
    """Return the middle square of a picture as (side, side, 3) values from 0 to 1."""
    from PIL import Image, ImageOps

    fitted = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BICUBIC)
    return np.asarray(fitted, dtype=np.float32) / 255


def _device() -> str:
    """Return "cuda" if torch finds a GPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


# -- the registry -------------------------------------------------------------------------------

_LOADERS: dict[str, Callable[[Encoder, Path], Encode]] = {
    "model2vec": _model2vec,
    "sentence_transformers": _sentence_transformers,
    "fastembed": _fastembed,
    "timm": _timm,
    "open_clip": _open_clip,
}
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
#: The models that can be used, by name, from ``encoders.toml``.
REGISTRY = {
    name: Encoder(name=name, load=_LOADERS[table["package"]], **table)
    for name, table in _TABLES.items()
}


def find_encoder(name: str, kind: str | None = None) -> Encoder:
    """Return the encoder of this name, for samples of this kind."""
    fitting = [known for known in REGISTRY.values() if kind in (None, known.kind)]
    names = ", ".join(known.name for known in fitting)
    if name not in REGISTRY:
        raise ValueError(f"Unknown encoder {name!r}. Choose one of: {names}.")
    found = REGISTRY[name]
    if found not in fitting:
        raise ValueError(f"{name} is for {found.kind}, not {kind}. Choose one of: {names}.")
    if not found.is_installed:
        raise ImportError(f"{name} needs {found.package}: pip install 'partwise[{found.extra}]'")
    return found


def recommended(kind: str, size: str) -> str:
    """Return the name of the recommended encoder: "light", "good" or "multilingual"."""
    return next(e.name for e in REGISTRY.values() if (e.kind, e.recommended) == (kind, size))


# -- weights ------------------------------------------------------------------------------------


def weights_of(encoder: Encoder, *, download: bool = False, offline: bool = False) -> Path:
    """Return the folder with the weights; download them only if ``download`` allows it."""
    folder = _local_folder(encoder)
    if folder is not None:
        return folder
    source = f"{encoder.megabytes} MB from huggingface.co/{encoder.model} ({encoder.licence})"
    if offline or not download:
        way = "--offline forbids it" if offline else "--download (download=True) allows it"
        raise ValueError(f"{encoder.name} is not on this computer: it needs {source}; {way}.")
    return _snapshot(encoder, allow_patterns=list(encoder.files), token=False)


def _local_folder(encoder: Encoder) -> Path | None:
    """Return the folder of the downloaded weights without using the network."""
    if not encoder.files:  # the weights come with the package
        return Path()
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = _snapshot(encoder, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    return folder if (folder / encoder.files[0]).exists() else None


def _snapshot(encoder: Encoder, **how: Any) -> Path:
    """Return the folder of the encoder's revision in the cache of huggingface_hub."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(encoder.model, revision=encoder.revision, **how))


# -- embeddings that were computed before -------------------------------------------------------


class Cache:
    """Embeddings of one revision of an encoder, by the digest of a sample's content."""

    def __init__(self, encoder: Encoder) -> None:
        self.path = user_cache() / "embeddings" / f"{encoder.name}-{encoder.revision}.sqlite"
        self.dimensions = encoder.dimensions

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS embeddings (mark BLOB PRIMARY KEY, v BLOB)"
                )
                yield database
        except sqlite3.DatabaseError as error:
            raise OSError(f"Cannot read {self.path} ({error}); delete it.") from error

    def read(self, marks: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Return the embeddings that are known."""
        query = "SELECT v FROM embeddings WHERE mark = ? AND length(v) = ?"
        size = 4 * self.dimensions
        with self._connected() as database:
            rows = {mark: database.execute(query, (mark, size)).fetchone() for mark in marks}
        return {mark: np.frombuffer(row[0], dtype="<f4") for mark, row in rows.items() if row}

    def write(self, marks: Sequence[bytes], V: np.ndarray) -> None:
        """Keep the embeddings V of samples."""
        rows = [(mark, v.astype("<f4").tobytes()) for mark, v in zip(marks, V, strict=True)]
        with self._connected() as database:
            database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)


# -- encoding -----------------------------------------------------------------------------------


def encode(
    samples: Any, name: str, *, download: bool = False, offline: bool = False, step: Step = silent
) -> np.ndarray:
    """Compute embeddings of texts or pictures with a pretrained encoder.

    Embeddings are kept in the user's cache, so that a second call reads them. A GPU is used if
    torch finds one. Nothing is sent over the network: only weights are downloaded, and only if
    you allow it.

    Parameters
    ----------
    samples : Samples, list of str, or list of paths
        What `read_samples` returned, texts, or files of pictures.
    name : str
        Name of an encoder; ``partwise encoders`` lists them.
    download : bool, default=False
        Allow the download of the encoder's weights.
    offline : bool, default=False
        Forbid the download, even if ``download`` is True.
    step : callable, optional
        Called as ``step(done, total, what)`` after each batch.

    Returns
    -------
    ndarray of shape (n_samples, n_dimensions)
        In float32.

    Examples
    --------
    >>> from partwise import encode
    >>> encode(["a text", "another text"], "potion-base-8m", download=True)  # doctest: +SKIP
    """
    kind, items = _contents(samples, name)
    marks = [_digest(item) for item in items]
    encoder = find_encoder(name, kind)
    cache = Cache(encoder)
    known = cache.read(list(dict.fromkeys(marks)))
    missing = list({mark: i for i, mark in enumerate(marks) if mark not in known}.items())
    if missing:
        run = encoder.load(encoder, weights_of(encoder, download=download, offline=offline))
        total, what = len(missing), f"encoding {kind} with {name}"
        for done in range(0, total, BATCH[kind]):
            step(done, total, what)
            some = missing[done : done + BATCH[kind]]
            V = np.asarray(run([_opened(items[i]) for _, i in some]), dtype=np.float32)
            if V.shape != (len(some), encoder.dimensions) or not np.isfinite(V).all():
                raise ValueError(f"{name} returned wrong values of shape {V.shape}.")
            new = [mark for mark, _ in some]
            cache.write(new, V)
            known |= dict(zip(new, V))
        step(total, total, what)
    return np.stack([known[mark] for mark in marks])


def _contents(samples: Any, name: str) -> tuple[str, Sequence[Any]]:
    """Return the kind of the samples, and each as text, path, or bytes of a picture."""
    if isinstance(samples, Samples):
        if samples.whole_texts is not None:
            return "texts", samples.whole_texts
        if samples.recipe.get("reader") == "image files":
            return "images", [Path(samples.source) / file for file in samples.ids]
        if samples.image_shape is not None and samples.thumbnails is not None:
            return "images", [samples.thumbnails(i) for i in range(samples.n_samples)]
        raise ValueError(f"--encoder needs texts or pictures, and the samples are {samples.kind}.")
    samples = list(samples)
    if not samples:
        raise ValueError("There are no samples to encode.")
    if name in REGISTRY and REGISTRY[name].kind == "images":
        return "images", [Path(file) for file in samples]
    if not all(isinstance(text, str) for text in samples):
        raise TypeError("samples must be texts, image files or a Samples.")
    return "texts", samples


def _opened(item: str | Path | bytes) -> Any:
    """Return a text, or the picture in a file or in bytes."""
    if isinstance(item, str):
        return item
    if isinstance(item, Path):
        from partwise.io.images import open_image

        return open_image(item)
    from PIL import Image

    return Image.open(BytesIO(item))


def _digest(item: str | Path | bytes) -> bytes:
    """Return a digest of a text or of a picture's content."""
    content = item.read_bytes() if isinstance(item, Path) else item
    content = content.encode() if isinstance(content, str) else content
    return hashlib.blake2b(content, digest_size=16).digest()
