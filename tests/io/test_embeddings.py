"""Tests of --embeddings, with which embeddings are a second view or replace the data."""

import csv
import importlib.util
import json

import numpy as np
import pytest

from partwise.io import read_samples

QUICK = ("--no-report", "--max-iter", "60")


@pytest.fixture
def noise_images(tmp_path):
    """Write forty images of noise and return embeddings whose signs separate two classes.

    The fixture returns the folder, the embeddings, the classes, and a file with labels of ten
    images.
    """
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(0)
    folder = tmp_path / "stamps"
    folder.mkdir()
    kind = rng.integers(0, 2, 40)
    V = rng.normal(0, 0.4, (40, 16))
    V[:, :8] += np.where(kind, 1, -1)[:, None]
    for i in range(40):
        picture = image.fromarray(rng.integers(0, 255, (12, 12)).astype(np.uint8))
        picture.save(folder / f"s{i:02d}.png")
    labels = tmp_path / "labels.csv"
    labels.write_text("".join(f"s{i:02d}.png,{'ab'[kind[i]]}\n" for i in range(10)))
    return folder, V, kind, labels


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_photos_by_vectors_in_any_order(command, noise_images, tmp_path):
    pytest.importorskip("plotly")  # the command writes a report, which needs plotly
    folder, V, kind, labels = noise_images
    order = np.random.default_rng(1).permutation(40)
    ids = np.array([f"{folder}/s{i:02d}.png" for i in order])
    np.savez(tmp_path / "v.npz", X=V[order], ids=ids)
    out = tmp_path / "out"
    given = ("classify", folder, "--labels", labels, "--embeddings", tmp_path / "v.npz")
    given += ("--embeddings-only",)
    code, text, err = command(*given, "--out", out, "--max-iter", "60")
    assert code == 0, err
    found = {row["id"]: row["predicted_label"] for row in rows(out / "assignments.csv")}
    assert found == {f"s{i:02d}.png": "ab"[kind[i]] for i in range(40)}
    assert "v.npz" in text and "data:image" in (out / "report.html").read_text(encoding="utf-8")
    told = ("predict", out / "model.partwise", folder)
    code, text, err = command(*told, "--embeddings", tmp_path / "v.npz")
    assert code == 0, err
    again = {row["id"]: row["predicted_label"] for row in csv.DictReader(text.splitlines())}
    assert again == found
    code, _, err = command(*told)
    assert code == 2 and "--embeddings" in err


def test_vectors_without_ids_go_by_order_and_it_is_said(noise_images, tmp_path):
    folder, V, _, _ = noise_images
    np.save(tmp_path / "v.npy", V)
    samples = read_samples(folder, embeddings=tmp_path / "v.npy", embeddings_only=True)
    assert np.allclose(samples.X, V / np.linalg.norm(V, axis=1, keepdims=True))
    assert samples.kind == "images" and samples.thumbnails(3) and samples.image_shape is None
    said = next(note for note in samples.notes if "v.npy" in note)
    assert "order" in said and "s00.png" in said and "s39.png" in said
    np.save(tmp_path / "v.npy", V[:-1])
    with pytest.raises(ValueError, match=r"39.*40.*\.npz.*\.parquet"):
        read_samples(folder, embeddings=tmp_path / "v.npy", embeddings_only=True)
    np.save(tmp_path / "v.npy", V)
    (folder / "s05.png").write_text("damaged")
    # It is unknown whether the embeddings count the damaged file.
    with pytest.raises(ValueError, match="ids"):
        read_samples(folder, embeddings=tmp_path / "v.npy", embeddings_only=True)


@pytest.mark.parametrize("form", ["columns", "lists", "csv"])
def test_texts_by_vectors_of_a_table(tmp_path, form):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    V = rng.normal(size=(30, 4))
    texts = pandas.DataFrame(
        {"id": range(30), "body": [f"a text {i}" if i != 4 else "" for i in range(30)]}
    )
    texts.to_csv(tmp_path / "t.csv", index=False)
    order = rng.permutation(30)
    frame = pandas.DataFrame({"id": order})
    if form == "lists":
        frame["embedding"] = list(V[order])
    else:
        for j in range(4):
            frame[f"d{j}"] = V[order, j]
    path = tmp_path / ("v.csv" if form == "csv" else "v.parquet")
    if form == "csv":
        frame.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
        frame.to_parquet(path)
    samples = read_samples(
        tmp_path / "t.csv", text_column="body", embeddings=path, embeddings_only=True, scale="none"
    )
    kept = [i for i in range(30) if i != 4]
    assert samples.ids == [str(i) for i in kept] and np.allclose(samples.X, V[kept])
    assert samples.texts[0] == "a text 0"


def test_rows_of_a_table_by_order_where_a_text_is_empty(tmp_path):
    V = np.random.default_rng(0).normal(size=(6, 3))
    (tmp_path / "t.csv").write_text(
        "id,body\n" + "".join(f"{i},{'' if i == 2 else 'x y'}\n" for i in range(6))
    )
    np.save(tmp_path / "v.npy", V)
    samples = read_samples(
        tmp_path / "t.csv",
        text_column="body",
        embeddings=tmp_path / "v.npy",
        embeddings_only=True,
        scale="none",
    )
    assert samples.ids == ["0", "1", "3", "4", "5"] and np.array_equal(
        samples.X, V[[0, 1, 3, 4, 5]]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda V, ids: (V, [*ids[:-1], ids[0]]), "'s00.png' occurs more than once"),
        (lambda V, ids: (V, [f"other{i}" for i in range(40)]), "none of its 40 ids"),
        (lambda V, ids: (V[:, 0], ids), "2-D"),
        (lambda V, ids: (V[:10], ids), "10 vectors and 40 ids"),
        (lambda V, ids: (V.astype(str), ids), "numbers"),
    ],
)
def test_vectors_that_cannot_be_joined(noise_images, tmp_path, change, message):
    folder, V, _, _ = noise_images
    X, ids = change(V, [f"s{i:02d}.png" for i in range(40)])
    np.savez(tmp_path / "v.npz", X=X, ids=np.array(ids))
    with pytest.raises(ValueError, match=message):
        read_samples(folder, embeddings=tmp_path / "v.npz", embeddings_only=True)


def test_samples_without_a_vector_are_skipped_and_listed(noise_images, tmp_path):
    folder, V, _, _ = noise_images
    V[7] = np.nan
    ids = np.array([f"s{i:02d}.png" for i in range(39)] + ["gone.png"])
    np.savez(tmp_path / "v.npz", X=V, ids=ids)
    samples = read_samples(folder, embeddings=tmp_path / "v.npz", embeddings_only=True)
    assert {name for name, _ in samples.skipped} == {"s07.png", "s39.png"}
    assert samples.n_samples == 38 and any("gone.png" in note for note in samples.notes)
    with pytest.raises(ValueError, match=r"s07\.png|s39\.png"):
        read_samples(folder, embeddings=tmp_path / "v.npz", embeddings_only=True, strict=True)


def test_embeddings_and_words_together_separate_four_classes(command, tmp_path):
    """Check four classes that can be separated only by words and embeddings together.

    The words separate sea from sky, and the embeddings separate day from night.
    """
    rng = np.random.default_rng(0)
    words = {
        "sea": ["wave", "salt", "tide", "ship", "sail"],
        "sky": ["cloud", "wind", "bird", "rain"],
    }
    n, kinds, times = 120, np.array(["sea", "sky"]), np.array(["day", "night"])
    kind, time = kinds[np.arange(n) % 2], times[np.arange(n) // 2 % 2]
    V = rng.normal(0, 0.3, (n, 12)) + np.where(time == "day", 1, -1)[:, None] * np.linspace(
        -1, 1, 12
    )
    table = ["id,text,label"]
    for i in range(n):
        label = f"{kind[i]} {time[i]}" if i < 24 else ""
        table.append(f"t{i},{' '.join(rng.choice(words[kind[i]], 6))},{label}")
    (tmp_path / "t.csv").write_text("\n".join(table) + "\n", "utf-8")
    order = rng.permutation(n)
    np.savez(tmp_path / "v.npz", X=V[order], ids=np.array([f"t{i}" for i in order]))
    told = ("--text-column", "text", "--label-column", "label", "--max-iter", "60")

    def right(out, *more):
        code, text, err = command(
            "classify", tmp_path / "t.csv", *told, *more, "--out", tmp_path / out
        )
        assert code == 0, err
        found = {
            row["id"]: row["predicted_label"] for row in rows(tmp_path / out / "assignments.csv")
        }
        return (
            np.mean([found[f"t{i}"] == f"{kind[i]} {time[i]}" for i in range(24, n)]),
            found,
            text,
        )

    alone = right("words", "--no-report")[0]
    both, found, text = right("both", "--embeddings", tmp_path / "v.npz")
    # Without the embeddings, half of the 96 samples are correct by chance, with a standard error of
    # 5%.
    assert alone < 0.65 and both > 0.8 and "vectors of v.npz" in text.lower()
    if importlib.util.find_spec("plotly"):  # the command writes a report, which needs plotly
        assert "also=[samples.also]" in (tmp_path / "both" / "report.html").read_text("utf-8")
    told = ("predict", tmp_path / "both" / "model.partwise", tmp_path / "t.csv")
    code, text, err = command(*told, "--embeddings", tmp_path / "v.npz")
    assert code == 0, err
    again = {row["id"]: row["predicted_label"] for row in csv.DictReader(text.splitlines())}
    assert np.mean([again[name] == found[name] for name in found]) > 0.95
    code, _, err = command(*told)
    assert code == 2 and "--embeddings" in err
    told = ("predict", tmp_path / "words" / "model.partwise", tmp_path / "t.csv")
    code, _, err = command(*told, "--embeddings", tmp_path / "v.npz")
    assert code == 2 and "without embeddings" in err


def test_vectors_beside_need_labels(command, noise_images, tmp_path):
    folder, V, _, _ = noise_images
    np.save(tmp_path / "v.npy", V)
    told = ("--embeddings", tmp_path / "v.npy", "--out", tmp_path / "o", "-k", 2, *QUICK)
    code, _, err = command("cluster", folder, *told)
    assert code == 2 and "--embeddings-only" in err


def test_commands_with_one_view_refuse_a_second_one(command, noise_images, tmp_path):
    folder, V, _, _ = noise_images
    np.save(tmp_path / "v.npy", V)
    code, _, err = command(
        "choose", folder, "--embeddings", tmp_path / "v.npy", "--out", tmp_path / "o"
    )
    assert code == 2 and "--embeddings-only" in err
    code, _, err = command("cluster", folder, "--embeddings-only", "-k", 2)
    assert code == 2 and "embeddings" in err


def test_compare_scores_both_views_and_the_baselines_on_embeddings(command, noise_images, tmp_path):
    """Check that `compare` scores classifiers on the embeddings, not only on the images.

    The images are noise, so only methods that use the embeddings beat chance.
    """
    folder, V, _, labels = noise_images
    np.save(tmp_path / "v.npy", V)
    told = ("--labels", labels, "--embeddings", tmp_path / "v.npy", "--json")
    names = "classify,logistic-regression,logistic-regression-on-embeddings"
    code, text, err = command("compare", folder, *told, "--methods", names)
    assert code == 0, err
    right = {row["method"]: row["accuracy"] for row in json.loads(text)["methods"]}
    assert right["classify"] >= 0.9 and right["logistic-regression-on-embeddings"] >= 0.9
    assert right["logistic-regression"] < 0.9
