"""Embeddings of texts and pictures by pretrained encoders from a registry."""

from __future__ import annotations

import hashlib
import importlib.util
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import Step, silent
from partwise.io.datasets.loading import user_cache
from partwise.io.samples import Samples

#: Number of texts or pictures that are encoded, and written to the cache, together.
BATCH = {"texts": 512, "images": 32}
#: Number of keys in one query of the cache; older versions of SQLite allow 999.
QUERY = 900

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
    files : tuple of str
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
    files: tuple[str, ...]
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

_STATIC = ("model.safetensors", "config.json", "tokenizer.json", "modules.json")
_SENTENCE = ("model.safetensors", "*.json", "*.txt", "sentencepiece.bpe.model", "1_Pooling/*.json")
_MANY = "about 100 languages"
#: The models that can be used, by name. Only files without pickled objects are downloaded.
REGISTRY: dict[str, Encoder] = {
    encoder.name: encoder
    for encoder in (
        Encoder(
            "potion-base-8m", "texts", "model2vec", "model2vec",
            "minishlab/potion-base-8M", "bf8b056651a2c21b8d2565580b8569da283cab23",
            "MIT", 29, 256, _STATIC, _model2vec, "light",
        ),
        Encoder(
            "potion-multilingual-128m", "texts", "model2vec", "model2vec",
            "minishlab/potion-multilingual-128M", "73908c3438cf03b6a01bcb9611d62b23d0726f08",
            "MIT", 489, 256, _STATIC, _model2vec, languages=_MANY,
        ),
        Encoder(
            "all-minilm-l6-v2", "texts", "sentence_transformers", "sentence-transformers",
            "sentence-transformers/all-MiniLM-L6-v2", "8b3219a92973c328a8e22fadcfa821b5dc75636a",
            "Apache-2.0", 87, 384, _SENTENCE, _sentence_transformers, "good",
        ),
        Encoder(
            "multilingual-e5-small", "texts", "sentence_transformers", "sentence-transformers",
            "intfloat/multilingual-e5-small", "fd1525a9fd15316a2d503bf26ab031a61d056e98",
            "MIT", 449, 384, _SENTENCE, _sentence_transformers, "multilingual", _MANY,
            {"prefix": "query: "},  # the model was trained with it
        ),
        Encoder(
            "bge-small-en-v1.5", "texts", "fastembed", "fastembed",
            "qdrant/bge-small-en-v1.5-onnx-q", "52398278842ec682c6f32300af41344b1c0b0bb2",
            "Apache-2.0", 67, 384, ("model_optimized.onnx", "*.json", "vocab.txt"), _fastembed,
            settings={"model_name": "BAAI/bge-small-en-v1.5"},
        ),
        Encoder(
            "mobilenetv3-small", "images", "timm", "timm",
            "timm/mobilenetv3_small_100.lamb_in1k", "1824797e7887cbec1990e4adbd6675960a36c589",
            "Apache-2.0", 10, 1024, ("model.safetensors",), _timm, "light", "",
        ),
        Encoder(
            "dinov2-small", "images", "timm", "timm",
            "timm/vit_small_patch14_dinov2.lvd142m", "4610ca143709d58a633b6397a74412c2c3842454",
            "Apache-2.0", 88, 384, ("model.safetensors",), _timm, "good", "", {"img_size": 224},
        ),
        Encoder(
            "clip-vit-b-32", "images", "open_clip", "open-clip",
            "laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "1a25a446712ba5ee05982a381eed697ef9b435cf",
            "MIT", 605, 512, ("open_clip_model.safetensors",), _open_clip, "", "",
            {"model_name": "ViT-B-32"},
        ),
    )
}  # fmt: skip


def find_encoder(name: str, kind: str | None = None) -> Encoder:
    """Return the encoder of this name, for samples of this kind."""
    fitting = [known for known in REGISTRY.values() if kind in (None, known.kind)]
    names = ", ".join(known.name for known in fitting)
    if name not in REGISTRY:
        raise ValueError(f"Unknown encoder {name!r}. Choose one of: {names}.")
    found = REGISTRY[name]
    if found not in fitting:
        raise ValueError(
            f"The encoder {name} is for {found.kind}, and the samples are {kind}. "
            f"Choose one of: {names}."
        )
    if not found.is_installed:
        raise ImportError(
            f"The encoder {name} needs {found.package}: pip install 'partwise[{found.extra}]'"
        )
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
        raise ValueError(
            f"The encoder {encoder.name} is not on this computer: it needs {source}; {way}."
        )
    from huggingface_hub import snapshot_download

    patterns = list(encoder.files)
    return Path(
        snapshot_download(
            encoder.model, revision=encoder.revision, allow_patterns=patterns, token=False
        )
    )


def _local_folder(encoder: Encoder) -> Path | None:
    """Return the folder of the downloaded weights without using the network."""
    if not encoder.files:  # the weights come with the package
        return Path()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(encoder.model, revision=encoder.revision, local_files_only=True)
        )
    except LocalEntryNotFoundError:
        return None
    return folder if (folder / encoder.files[0]).exists() else None


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
            raise OSError(f"{self.path} cannot be used ({error}); delete it.") from error

    def read(self, marks: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Return the embeddings that are known."""
        found: dict[bytes, np.ndarray] = {}
        with self._connected() as database:
            for some in _batches(marks, QUERY):
                holes = ",".join("?" * len(some))
                rows = database.execute(
                    f"SELECT mark, v FROM embeddings WHERE length(v) = ? AND mark IN ({holes})",
                    (4 * self.dimensions, *some),
                )
                found |= {mark: np.frombuffer(v, dtype="<f4") for mark, v in rows}
        return found

    def write(self, marks: Sequence[bytes], V: np.ndarray) -> None:
        """Keep the embeddings V of samples."""
        rows = [(mark, v.astype("<f4").tobytes()) for mark, v in zip(marks, V, strict=True)]
        with self._connected() as database:
            database.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)


# -- encoding -----------------------------------------------------------------------------------


def encode(
    samples: Any,
    name: str,
    *,
    download: bool = False,
    offline: bool = False,
    step: Step = silent,
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
    kind, marks, get = _contents(samples, name)
    encoder = find_encoder(name, kind)
    cache = Cache(encoder)
    known = cache.read(list(dict.fromkeys(marks)))
    missing = list({mark: i for i, mark in enumerate(marks) if mark not in known}.items())
    if missing:
        run = encoder.load(encoder, weights_of(encoder, download=download, offline=offline))
        done, total, what = 0, len(missing), f"encoding {kind} with {name}"
        for some in _batches(missing, BATCH[kind]):
            step(done, total, what)
            V = np.asarray(run([get(i) for _, i in some]), dtype=np.float32)
            if V.shape != (len(some), encoder.dimensions) or not np.isfinite(V).all():
                raise ValueError(
                    f"The encoder {name} returned an array of shape {V.shape}, or values that are "
                    f"not finite; {(len(some), encoder.dimensions)} was expected. Please report it."
                )
            new = [mark for mark, _ in some]
            cache.write(new, V)
            known |= dict(zip(new, V))
            done += len(some)
        step(total, total, what)
    return np.stack([known[mark] for mark in marks])


def _contents(samples: Any, name: str) -> tuple[str, list[bytes], Callable[[int], Any]]:
    """Return the kind of the samples, a digest of each, and a function that returns each."""
    if not isinstance(samples, Samples):
        samples = list(samples)
        if not samples:
            raise ValueError("There are no samples to encode.")
        if name in REGISTRY and REGISTRY[name].kind == "images":
            files = [Path(file) for file in samples]
            return "images", [_digest(file.read_bytes()) for file in files], _opener(files)
        if not all(isinstance(text, str) for text in samples):
            raise TypeError("samples must be texts, files of pictures, or what read_samples gave.")
        return "texts", [_digest(text.encode()) for text in samples], samples.__getitem__
    if samples.whole_texts is not None:
        texts = samples.whole_texts
        return "texts", [_digest(text.encode()) for text in texts], texts.__getitem__
    if samples.recipe.get("reader") == "image files":
        files = [Path(samples.source) / name for name in samples.ids]
        return "images", [_digest(file.read_bytes()) for file in files], _opener(files)
    if samples.image_shape is not None:
        return "images", *_rows_as_pictures(samples)
    raise ValueError(
        "--encoder needs texts or pictures, and the samples are numbers (" + samples.kind + ")."
    )


def _opener(files: Sequence[Path]) -> Callable[[int], Any]:
    from partwise.io.images import open_image

    return lambda i: open_image(files[i])


def _rows_as_pictures(samples: Samples) -> tuple[list[bytes], Callable[[int], Any]]:
    """Return digests and pictures of rows that are images themselves."""
    from PIL import Image

    draw = samples.thumbnails
    assert draw is not None
    drawn = [draw(i) for i in range(samples.n_samples)]
    return [_digest(data) for data in drawn], lambda i: Image.open(BytesIO(drawn[i]))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _batches(items: Sequence[Any], size: int) -> Iterator[tuple[Any, ...]]:
    rest = iter(items)
    while some := tuple(islice(rest, size)):
        yield some
