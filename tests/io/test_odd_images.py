"""Tests of images from microscopes and phones: high bit depth, several pages, HEIC."""

import sys

import numpy as np
import pytest

from partwise.io import read_samples
from partwise.io.images import FORMATS

image = pytest.importorskip("PIL.Image", reason="images need pillow")


def write_deep_images(folder, n=6, top=4095):
    """Write 12-bit images with 16-bit values, whose patterns differ by less than 1/256."""
    rng = np.random.default_rng(0)
    pixels = []
    for i in range(n):
        own = 100 + rng.integers(0, 4, (12, 12))
        own[:, : 6 if i % 2 else 12] += 40
        own[0, 0] = top
        pixels.append(own.astype(np.uint16))
        image.fromarray(pixels[-1]).save(folder / f"{i}.tif")
    return np.stack(pixels).reshape(n, -1).astype(float)


@pytest.mark.parametrize("top", [4095, 65535])
def test_grey_levels_of_deep_images_are_kept(tmp_path, top):
    values = write_deep_images(tmp_path, top=top)
    samples = read_samples(tmp_path, scale="none")
    np.testing.assert_allclose(samples.X, values / 65535, rtol=1e-6)  # rounding of pillow's float32
    unit = read_samples(tmp_path).X
    expected = values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected, rtol=1e-5)
    assert len(np.unique(read_samples(tmp_path, size=(6, 6)).X)) > 40
    colour = read_samples(tmp_path, rgb=True, scale="none")
    assert colour.image_shape == (12, 12, 3)
    np.testing.assert_allclose(colour.X[:, ::3], values / 65535, rtol=1e-6)


def test_float_images_have_one_white_for_all(tmp_path):
    for i in range(4):
        image.fromarray(np.full((5, 5), 500.0 * (i + 1), np.float32)).save(tmp_path / f"{i}.tif")
    X = read_samples(tmp_path, scale="none").X
    np.testing.assert_allclose(X[:, 0] / X[0, 0], [1, 2, 3, 4], rtol=1e-6)


def test_pages_that_were_not_read_are_named(tmp_path):
    pages = [image.new("L", (8, 8), 40 * i) for i in range(1, 4)]
    for i in range(3):
        pages[i].save(tmp_path / f"stack{i}.tif", save_all=True, append_images=pages)
    pages[0].save(tmp_path / "one.tif")
    note = next(note for note in read_samples(tmp_path).notes if "page" in note)
    assert "3 of 4" in note and "stack0.tif" in note


def test_heic_is_read_with_the_extra(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif", reason="HEIC needs pillow-heif")
    pillow_heif.register_heif_opener()
    for i in range(3):
        image.new("RGB", (32, 24), (70 * i, 90, 20)).save(tmp_path / f"IMG_{i}.HEIC")
    samples = read_samples(tmp_path)
    assert samples.n_samples == 3 and samples.image_shape == (24, 32)
    assert len(samples.thumbnails(0)) > 50


def test_heic_without_the_extra_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(image.OPEN, "HEIF", raising=False)
    for i in range(2):
        (tmp_path / f"IMG_{i}.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    with pytest.raises(ValueError, match=r"partwise\[heic\]"):
        read_samples(tmp_path)
    for i in range(3):
        image.new("L", (8, 8), 50 * i).save(tmp_path / f"{i}.png")
    samples = read_samples(tmp_path)
    assert samples.n_samples == 3 and len(samples.skipped) == 2
    assert any("partwise[heic]" in note for note in samples.notes)


def test_no_format_that_starts_a_program_is_opened():
    assert not set(FORMATS) & {"EPS", "PDF", "WMF", "IPTC", "SVG"}


@pytest.mark.parametrize("suffix", ["jfif", "jpe", "JPG"])
def test_other_names_of_jpeg(tmp_path, suffix):
    for i in range(2):
        image.new("RGB", (8, 8), (90 * i, 20, 20)).save(tmp_path / f"{i}.{suffix}", format="JPEG")
    assert read_samples(tmp_path).n_samples == 2
