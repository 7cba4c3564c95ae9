"""Tests of `choose_colour`, which reads images in colour or greyscale as the labels require."""

import numpy as np
import pytest

from partwise.io import read_samples
from partwise.io.colours import choose_colour

# Colours of the same brightness.
HUES = {"blue": (30, 30, 220), "green": (20, 85, 20), "red": (140, 20, 20)}


@pytest.fixture
def photos(tmp_path):
    """Write ten images per colour, which look equal in greyscale, and return their folder."""
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(0)
    for name, hue in HUES.items():
        (tmp_path / name).mkdir()
        for i in range(10):
            pixels = np.tile(np.array(hue), (9, 9, 1)) + rng.integers(0, 35, (9, 9, 3))
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{i}.png")
    return tmp_path


def labels_of(samples, **counts):
    """Return labels for the given number of images of each class, and None for the others."""
    y = np.full(samples.n_samples, None, dtype=object)
    for name, count in counts.items():
        y[np.flatnonzero(samples.y == name)[:count]] = name
    return y


@pytest.mark.parametrize(
    ("counts", "rgb"),
    [
        ({"blue": 5, "green": 5, "red": 1}, True),  # one class has a single label
        ({"blue": 4, "green": 4, "red": 4}, True),
        # With one label per class, no label can be held out.
        ({"blue": 1, "green": 1, "red": 1}, False),
        ({"blue": 9}, False),  # there is only one class
        ({}, False),
    ],
)
def test_labels_decide_as_few_as_they_are(photos, counts, rgb):
    grey = read_samples(photos)
    chosen, sentence = choose_colour(grey, labels_of(grey, **counts))
    assert chosen.recipe["rgb"] is rgb and chosen.image_shape == ((9, 9, 3) if rgb else (9, 9))
    assert chosen.ids == grey.ids and chosen.notes[-1] == sentence != ""
    assert sum("--rgb" in note or "--grey" in note for note in chosen.notes) == 1


def test_later_labels_decide_again(photos):
    grey = read_samples(photos)
    coloured, _ = choose_colour(grey, labels_of(grey, blue=5, green=5, red=1))
    assert np.array_equal(coloured.X, read_samples(photos, rgb=True).X)
    same, sentence = choose_colour(coloured, labels_of(grey, blue=5, green=6, red=2))
    # Unchanged data mean that the images were not read again.
    assert same.X is coloured.X and "13" in sentence
    back, _ = choose_colour(coloured, None)
    assert np.array_equal(back.X, grey.X) and not back.recipe["rgb"]


def test_labels_that_a_pattern_tells_apart_need_no_colour(photos):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    for i in range(10):
        half = np.zeros((9, 9, 3), np.uint8)
        half[:, :4] = (140, 20, 20)
        image.fromarray(half).save(photos / "red" / f"{i}.png")
    for rgb in (False, True):  # if both are equally good, the images are not read again
        samples = read_samples(photos, rgb=rgb)
        chosen, _ = choose_colour(samples, labels_of(samples, blue=5, red=5))
        assert chosen.X is samples.X and chosen.recipe["rgb"] is rgb


def test_images_without_colours_leave_no_choice(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    for i in range(4):
        image.new("L", (9, 9), 60 * i).save(tmp_path / f"{i}.png")
    samples = read_samples(tmp_path)
    assert choose_colour(samples, ["a", "a", "b", "b"]) == (samples, "")
    digits = read_samples("digits")
    assert choose_colour(digits, digits.y) == (digits, "")
