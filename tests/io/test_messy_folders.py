"""Tests of folders with images of different sizes, damaged files, other files, or empty texts."""

import csv
import io
import json

import numpy as np
import pytest

from partwise.io import read_samples

WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
}
QUICK = ("--no-report", "--max-iter", "60")


@pytest.fixture
def photos(tmp_path):
    """Write dark and light images of four sizes, a truncated one, and two other files."""
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(24):
        size = [(20, 30), (30, 20), (24, 24), (40, 60)][i % 4]
        dark = rng.integers(0, 60, size) + (160 if i % 2 else 0)
        dark[: size[0] // 2] += 40 * (i % 2 == 0)
        image.fromarray(dark.astype(np.uint8)).save(folder / f"{i:02d}.png")
    whole = (folder / "00.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[:-60])
    (folder / "fake.jpg").write_text("no picture")
    (folder / "notes.txt").write_text("taken in May")
    return folder


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_photos_of_all_sizes_are_brought_to_one_and_it_is_said(photos):
    samples = read_samples(photos)
    assert samples.ids == [f"{i:02d}.png" for i in range(24)]
    # The median of the heights 20, 24, 30 and 40 is 27, and so is that of the widths.
    assert samples.image_shape == (27, 27)
    said = " ".join(samples.notes)
    assert "differ in size" in said and "27x27" in said and "--size" in said
    assert dict(samples.skipped).keys() == {"cut.png", "fake.jpg", "notes.txt"}
    assert "cut.png" in said and "notes.txt" in said
    with pytest.raises(ValueError, match=r"cut\.png|fake\.jpg"):
        read_samples(photos, kind="images", size=(8, 8), strict=True)
    for name in ("cut.png", "fake.jpg", "notes.txt"):
        (photos / name).unlink()
    with pytest.raises(ValueError, match=r"--size 32"):
        read_samples(photos, strict=True)
    assert read_samples(photos, strict=True, size=(8, 8)).skipped == ()


def test_a_camera_that_lay_on_its_side_has_the_size_of_the_upright_picture(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    for i, shape in enumerate([(20, 10), (20, 10), (10, 20)]):
        picture = image.fromarray(np.full(shape, 50 + 40 * i, dtype=np.uint8))
        turned = image.Exif()
        if i == 2:
            turned[0x0112] = 6
        picture.save(tmp_path / f"{i}.jpg", exif=turned)
    samples = read_samples(tmp_path)
    assert samples.image_shape == (20, 10) and "differ" not in " ".join(samples.notes)


def test_all_damaged(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    with pytest.raises(ValueError, match=r"\b2\b"):
        read_samples(tmp_path)


def test_all_but_one_damaged(photos):
    for i in range(1, 24):
        (photos / f"{i:02d}.png").unlink()
    (photos / "notes.txt").unlink()
    with pytest.raises(ValueError, match=r"cut\.png, fake\.jpg"):
        read_samples(photos)


def test_as_many_texts_as_images_are_asked_about(photos):
    for i in range(24):
        (photos / f"{i:02d}.txt").write_text("a caption")
    with pytest.raises(ValueError, match=r"26.*25.*--kind"):
        read_samples(photos)
    assert read_samples(photos, kind="images").n_samples == 24


def test_the_command_lists_what_was_skipped_and_goes_on(command, photos, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "file,what\n00.png,dark\n01.png,light\n02.png,dark\n03.png,light\ncut.png,dark\n"
    )
    out = tmp_path / "out"
    code, text, err = command("classify", photos, "--labels", labels, "--out", out, *QUICK)
    assert code == 0, err
    names = {row["id"]: row["predicted_label"] for row in rows(out / "assignments.csv")}
    assert names == {f"{i:02d}.png": ("dark", "light")[i % 2] for i in range(24)}
    skipped = rows(out / "skipped.csv")
    assert [row["id"] for row in skipped] == ["cut.png", "fake.jpg", "notes.txt"]
    assert all(row["why"] for row in skipped)
    assert "skipped.csv" in text + err and "cut.png" in err
    assert "skipped.csv" in json.loads((out / "summary.json").read_text())["files"]
    code, _, err = command("classify", photos, "--labels", labels, "--strict", "--out", "x", *QUICK)
    assert code == 2 and "26 images and 1 texts" in err
    new = tmp_path / "new.csv"
    code, _, err = command("predict", out / "model.partwise", photos, "--out", new)
    assert code == 0, err
    found = {row["id"]: row for row in rows(new)}
    assert found["cut.png"]["predicted_label"] == "" and found["cut.png"]["skipped"]
    assert found["00.png"]["predicted_label"] == "dark" and found["00.png"]["skipped"] == ""


@pytest.fixture
def mails(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "mails.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "body", "topic"])
        for i in range(60):
            topic = ("sea", "sky")[i % 2]
            text = " " if i in (7, 40) else " ".join(rng.choice(WORDS[topic], 6))
            writer.writerow([f"m{i}", text, topic if i < 12 else ""])
    return path


def test_empty_texts_are_listed_and_stop_nothing(command, mails, tmp_path):
    options = ("--text-column", "body", "--label-column", "topic", *QUICK)
    out = tmp_path / "out"
    code, _, err = command("classify", mails, *options, "--out", out)
    assert code == 0, err
    assert [row["id"] for row in rows(out / "skipped.csv")] == ["m7", "m40"]
    names = {row["id"]: row["predicted_label"] for row in rows(out / "assignments.csv")}
    truth = {f"m{i}": ("sea", "sky")[i % 2] for i in range(60) if i not in (7, 40)}
    assert names == truth
    code, _, err = command(
        "classify", mails, *options, "--missing", "error", "--out", tmp_path / "x"
    )
    assert code == 2 and "'m7' is empty" in err
    code, text, err = command("predict", out / "model.partwise", mails)
    assert code == 0, err
    found = {row["id"]: row for row in csv.DictReader(text.splitlines())}
    assert found["m7"]["predicted_label"] == "" and "empty" in found["m7"]["skipped"]
    assert {k: v["predicted_label"] for k, v in found.items() if k in truth} == truth


def test_labels_of_skipped_texts_are_no_error(mails, tmp_path):
    labels = tmp_path / "l.csv"
    labels.write_text("id,label\nm0,sea\nm1,sky\nm7,sky\n")
    samples = read_samples(mails, text_column="body", labels=labels)
    assert samples.n_samples == 58 and sum(v is not None for v in samples.y) == 2
    assert any("m7" in note and "l.csv" in note for note in samples.notes)


def test_text_files_that_are_empty_or_no_text(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}.txt").write_text("wind and rain and sun" if i % 2 else "ship and sail")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "noise.txt").write_bytes(bytes(range(256)) * 20)
    samples = read_samples(tmp_path)
    assert samples.n_samples == 6 and [name for name, _ in samples.skipped] == [
        "empty.txt",
        "noise.txt",
    ]
    with pytest.raises(ValueError, match=r"(noise|empty)\.txt"):
        read_samples(tmp_path, strict=True)


def test_rows_with_gaps_are_dropped_in_cluster_and_predict(command, tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"r{i},{i % 2 * 5 + i % 3},{'' if i == 4 else i % 2}.5\n" for i in range(40)]
    path.write_text("id,a,b\n" + "".join(lines).replace(",.5", ","))
    labels = tmp_path / "l.csv"
    labels.write_text("r0,x\nr1,y\nr2,x\nr3,y\nr4,x\n")
    out = tmp_path / "out"
    given = ("--labels", labels, "--missing", "drop", *QUICK)
    code, _, err = command("classify", path, *given, "--out", out)
    assert code == 0, err
    assert len(rows(out / "assignments.csv")) == 39
    assert [row["id"] for row in rows(out / "skipped.csv")] == ["r4"]
    code, text, err = command("predict", out / "model.partwise", path, "--missing", "drop")
    assert code == 0, err
    found = {row["id"]: row for row in csv.DictReader(text.splitlines())}
    assert len(found) == 40 and found["r4"]["predicted_label"] == ""
    code, text, err = command("predict", out / "model.partwise", path, "--missing", "median")
    assert code == 0 and "r4,," not in text


def test_one_list_of_what_to_label_next_with_the_sample(command, mails, tmp_path):
    """Check that the report has one list of samples to label next, with their texts.

    Regression test: the page once had two different lists, one of them without the texts.
    """
    pytest.importorskip("plotly")  # the command writes a report, which needs plotly
    out = tmp_path / "out"
    given = ("--text-column", "body", "--label-column", "topic", "--max-iter", "60")
    code, _, err = command("classify", mails, *given, "--out", out)
    assert code == 0, err
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count(">Label these first<") == 1
    listed = rows(out / "label_next.csv")
    texts = {row["id"]: row["body"] for row in rows(mails)}
    assert listed and all(row["text"] == texts[row["id"]] for row in listed)
    section = page.split(">Label these first<")[1].split("</article>")[0]
    assert [row["id"] for row in listed] == [
        line.split("<")[0].split(",")[0].strip()
        for line in section.split('<span class="quiet">')[1:]
    ]
    assert all(row["text"] in section and row["looks_like"] in section for row in listed)


def test_thumbnails_of_sixteen_bits_show_what_is_there(tmp_path):
    from PIL import Image

    ramp = np.linspace(0, 4095, 64 * 64).reshape(64, 64)  # 12 of 16 bits are used, as cameras do
    for i in range(4):
        Image.fromarray((ramp + i).astype(np.uint16)).save(tmp_path / f"{i}.png")
    samples = read_samples(tmp_path)
    for side in ((), (40,)):
        shown = Image.open(io.BytesIO(samples.thumbnails(0, *side))).convert("L")
        grey = np.asarray(shown, dtype=float)
        assert max(shown.size) == (side or (64,))[0]
        # Grey values go from black to white; WebP changes a grey value by a few of 255 steps.
        assert grey[0].max() < 16 and grey[-1].min() > 240 and abs(grey.mean() - 127.5) < 8
