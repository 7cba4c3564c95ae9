"""Tests of the image features of the cdNMF paper, on synthetic images."""

from __future__ import annotations

import numpy as np
import pytest

from partwise.apps.papers import caltech

Image = pytest.importorskip("PIL.Image", reason="pictures need pillow")


def _picture(kind, rng):
    """Return an image of stripes in the direction of the class, with noise."""
    y, x = np.mgrid[:48, :64]
    angle = np.pi * kind / 3
    wave = np.sin(0.7 * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))
    return np.clip(128 + 90 * wave + 12 * rng.standard_normal(x.shape), 0, 255).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"stripes": 9, "slants": 7, "bars": 6, "few": 2, "BACKGROUND_Google": 12}
    for kind, (name, number) in enumerate(sizes.items()):
        (tmp_path / name).mkdir()
        for i in range(number):
            Image.fromarray(_picture(kind, rng)).save(tmp_path / name / f"image_{i:04d}.jpg")
    return tmp_path


def test_the_largest_categories_without_the_background(folder):
    found = caltech.largest_categories(folder, 3)
    assert [(name, len(files)) for name, files in found.items()] == [
        ("stripes", 9), ("slants", 7), ("bars", 6),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="101_ObjectCategories"):
        caltech.largest_categories(folder)


def test_the_printed_number_of_pictures_says_which_categories():
    # These are the sizes of the categories of Caltech-101, largest first. Two categories show the
    # same faces, and one is the background.
    sizes = {"airplanes": 800, "Motorbikes": 798, "BACKGROUND_Google": 468, "Faces": 435,
             "Faces_easy": 435, "watch": 239, "Leopards": 200, "bonsai": 128, "car_side": 123,
             "ketch": 114, "chandelier": 107, "hawksbill": 100}  # fmt: skip
    kept = [n for name, n in sizes.items() if name not in caltech.LEFT_OUT]
    assert sum(kept[:10]) == caltech.TOTAL


def _by_hand(image, top, left):
    """Compute one image descriptor pixel by pixel."""
    dy, dx = np.gradient(image)
    histogram = np.zeros((4, 4, 8))
    for i in range(16):
        for j in range(16):
            gy, gx = dy[top + i, left + j], dx[top + i, left + j]
            bell = np.exp(-((i - 7.5) ** 2 + (j - 7.5) ** 2) / (2 * 8**2))
            place = np.arctan2(gy, gx) % (2 * np.pi) / (np.pi / 4)
            low = int(place)
            size = np.hypot(gx, gy) * bell
            histogram[i // 4, j // 4, low % 8] += size * (1 - (place - low))
            histogram[i // 4, j // 4, (low + 1) % 8] += size * (place - low)
    flat = histogram.ravel() / np.linalg.norm(histogram)
    flat = np.minimum(flat, 0.2)
    return flat / np.linalg.norm(flat)


def test_descriptors_are_the_formula_by_hand():
    image = np.random.default_rng(1).random((32, 40)).astype(np.float32)
    found = caltech.descriptors(image)
    assert found.shape == (3 * 4, 128)
    np.testing.assert_allclose(found[0], _by_hand(image, 0, 0), atol=1e-5)  # float32 sums
    np.testing.assert_allclose(found[6], _by_hand(image, 8, 16), atol=1e-5)


def test_pictures_without_content_have_no_descriptors():
    assert caltech.descriptors(np.ones((40, 40), np.float32)).shape == (0, 128)
    assert caltech.descriptors(np.ones((10, 40), np.float32)).shape == (0, 128)


def test_a_folder_makes_the_data_of_the_tables(folder, tmp_path, capsys, monkeypatch):
    X, y, names = caltech.features(folder, words=20, categories=3)
    assert X.shape == (22, 20) and names == ["stripes", "slants", "bars"]
    np.testing.assert_allclose(X.sum(axis=1), 1.0)
    # The visual words separate directions, so the nearest other image has the same class.
    gaps = np.linalg.norm(X[:, None] - X, axis=2) + 10 * np.eye(len(X))
    assert np.mean(y[gaps.argmin(axis=1)] == y) > 0.9
    for name, value in (("WORDS", 20), ("CATEGORIES", 3)):
        monkeypatch.setitem(caltech.features.__kwdefaults__, name.lower(), value)
    (tmp_path / "data").mkdir()
    assert caltech.main([str(folder), str(tmp_path / "data" / "caltech101.npz")]) == 0
    assert "22 pictures (print: 3044)" in capsys.readouterr().out

    from partwise.apps.papers.protocol import DataSpec
    from partwise.apps.papers.sampling import draw

    sample = draw("t", DataSpec("caltech101", "none"), 3, 0, data_home=str(tmp_path / "data"))
    np.testing.assert_array_equal(sample.X, X)
