"""Small inputs for the studio tests: arrays, images, texts and tables of three classes."""

import csv

import numpy as np

from partwise.io.samples import Samples

#: Host of the test client, and request headers of a page from that host.
HOST = "127.0.0.1:8000"
HERE = {"host": HOST, "origin": f"http://{HOST}"}
FIRST = ("Anna", "Bernd", "Carla", "Dirk", "Eva", "Frank", "Gabi")
LAST = ("Müller", "Schmidt", "Weber", "Wagner", "Becker")
WORDS = ("rain wind snow sun", "goal team match league", "judge court law appeal")


def made(n=60, *, texts=None, ids=None):
    """Return samples of three classes, with ten features per class, and their classes."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % 3
    X = rng.uniform(0, 0.2, size=(n, 30))
    for g in range(3):
        X[group == g, 10 * g : 10 * g + 10] += rng.uniform(0.5, 1, size=((group == g).sum(), 10))
    ids = [f"s{i}" for i in range(n)] if ids is None else ids
    return Samples(X, ids, "table", texts=texts, source="made"), group


def photos(folder, n, start=0, *, side=10, coloured=False):
    """Write images of three patterns, or of one pattern in three equally bright colours."""
    from PIL import Image

    rng = np.random.default_rng(start)
    folder.mkdir(exist_ok=True)
    for i in range(start, start + n):
        noise = rng.integers(0, 40, (side, side))
        if coloured:  # all classes have the same brightness 0.299 red + 0.587 green + 0.114 blue
            colour = ((200, 60, 60), (60, 128, 76), (60, 92, 255))[i % 3]
            pixels = np.clip(noise[:, :, None] + np.array(colour), 0, 255)
        else:
            rows = (slice(0, side // 2 - 1), slice(side // 2 + 1, side), slice(0, side))[i % 3]
            pixels = noise
            pixels[rows, :: 2 if i % 3 == 2 else 1] += 180
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03}.png")
    return folder


def texts(path, n, start=0):
    """Write a table of mails on three topics."""
    rng = np.random.default_rng(start)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "body"])
        for i in range(start, start + n):
            rows.writerow([f"m{i}", " ".join(rng.choice(WORDS[i % 3].split(), 8))])
    return path


def table(path, n, start=0):
    """Write a German table of customers: number, name, town, amount, orders, date, yes or no."""
    rng = np.random.default_rng(start)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Ort", "Umsatz", "Bestellungen", "Letzter Kauf", "Name", "Kundennummer"])
        for i in range(start, start + n):
            amount = f"{rng.uniform(0, 90) + 1000 * (i % 3):,.2f}"
            euro = amount.translate(str.maketrans(",.", ".,")) + " €"
            day = f"{1 + rng.integers(28):02}.{1 + rng.integers(12):02}.2024"
            name = f"{rng.choice(FIRST)} {rng.choice(LAST)} {i}"
            town, orders = rng.choice(("Ulm", "Bonn", "Köln")), rng.poisson(0.7)
            rows.writerow([town, euro, orders, day, name, 10_000 + 7 * i])
    return path
