"""Synthetic example files for the pages that show commands, the same in each build."""

import csv
import datetime
import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SENTENCES = {
    "Lieferung": [
        "Die Lieferung ist nicht gekommen",
        "Mein Paket kam zu spät",
        "Das Paket liegt noch bei der Post",
        "Wann kommt die Lieferung mit der Post",
        "Lieferung unvollständig, im Paket fehlt ein Teil",
    ],
    "Rechnung": [
        "Die Rechnung ist zu hoch",
        "Ich habe die Rechnung doppelt bezahlt",
        "Der Betrag auf der Rechnung stimmt nicht",
        "Den Betrag habe ich schon bezahlt",
        "Die Mahnung ist falsch, die Rechnung ist bezahlt",
    ],
    "Gerät": [
        "Das Gerät geht nicht an",
        "Der Akku ist nach einer Stunde leer",
        "Das Gerät wird beim Laden heiß",
        "Der Akku lädt nicht",
        "Gerät lädt nicht, Akku leer",
    ],
}
ENDS = ["", "", "Bitte um Rückmeldung.", "Das ist ärgerlich.", "Grüße aus Köln", "Was nun?"]
HEADLINES = {
    "体育": [
        "女排夺得世界杯冠军",
        "球队主场击败对手",
        "选手公开赛夺得冠军",
        "主场球迷庆祝球队夺冠",
    ],
    "财经": ["股市今日大幅下跌", "央行下调存款利率", "银行理财收益下降", "投资者关注利率变化"],
    "科技": [
        "新款手机电池续航提升",
        "人工智能芯片突破",
        "手机屏幕价格下调",
        "人工智能芯片用于手机",
    ],
}


def texts(rng):
    with open("anfragen.csv", "w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr", "Text", "Thema"])
        for i in range(240):
            topic = list(SENTENCES)[i % 3]
            text = f"{rng.choice(SENTENCES[topic])} {rng.choice(ENDS)}".strip()
            writer.writerow([1000 + i, text, topic])
    with open("xinwen.csv", "w", encoding="gb18030", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["编号", "标题"])
        for i in range(150):
            lines = HEADLINES[list(HEADLINES)[i % 3]]
            writer.writerow([i, "，".join(rng.sample(lines, 2))])


def table(rng):
    with open("customers.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = "customer_id,since,country,newsletter,revenue,umsatz,orders,remark"
        writer.writerow(names.split(","))
        for i in range(300):
            kind = i % 3
            weights = [(6, 3, 1), (1, 2, 7), (2, 6, 2)][kind]
            country = rng.choices(["DE", "FR", "US"], weights)[0]
            day = datetime.date(2016, 1, 1) + datetime.timedelta(
                days=int((300, 1500, 2900)[kind] + rng.gauss(0, 200))
            )
            revenue = (400, 9000, 43006.82)[kind] * rng.lognormvariate(0, 0.3)
            german = f"{revenue / 1.1:,.2f}".translate(str.maketrans(",.", ".,"))
            letter = rng.choices(["yes", "no"], [(8, 2), (2, 8), (5, 5)][kind])[0]
            orders = int((3, 20, 8)[kind] * rng.lognormvariate(0, 0.3)) + 1
            cells = [day.isoformat(), country, letter, f"{revenue:,.2f}", german, orders]
            cells = ["" if rng.random() < 0.03 else cell for cell in cells]
            writer.writerow([70000 + 3 * i, *cells, f"wrote on day {i} about order {7 * i}"])


def mixtures(rng):
    """Write spectra that mix three parts, of which two are known."""
    bands = [f"nm{400 + 50 * j}" for j in range(8)]
    known = {"chlorophyll": [1, 8, 2, 0, 1, 9, 3, 0], "water": [6, 5, 4, 3, 2, 1, 0, 0]}
    third = [1, 2, 3, 4, 5, 6, 7, 8]
    with open("mixtures.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", *bands])
        for i in range(90):
            shares = [rng.random() ** 3 for _ in range(3)]
            values = [
                sum(s * part[j] for s, part in zip(shares, [*known.values(), third], strict=True))
                for j in range(8)
            ]
            writer.writerow([f"s{i}", *(f"{v * rng.uniform(0.98, 1.02):.3f}" for v in values)])
    lines = [",".join(["name", *bands])]
    lines += [",".join([name, *map(str, part)]) for name, part in known.items()]
    Path("parts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def labels():
    lines = ["id,label", "70000,new", "70004,old", "70006,whale", "70009,New", "70012,old"]
    Path("labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def pictures(rng):
    colours = {"apple": (200, 40, 40), "lime": (30, 125, 30), "plum": (60, 60, 200)}
    for name, colour in colours.items():
        Path("fruit", name).mkdir(parents=True)
        for i in range(24):
            image = Image.new("RGB", (48, 36), (190, 190, 190))
            draw = ImageDraw.Draw(image)
            x, y, r = 24 + rng.randint(-5, 5), 15 + rng.randint(-3, 3), 9 + rng.randint(-2, 2)
            ink = tuple(min(255, value + rng.randint(0, 30)) for value in colour)
            draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)
            exif = Image.Exif()
            if i % 3 == 0:  # held upright: stored on its side, and marked so
                image = image.rotate(-90, expand=True)
                exif[0x0112] = 8
            image.save(Path("fruit", name, f"{i:02d}.jpg"), quality=92, exif=exif)


def cells():
    try:
        import anndata
        import pandas
    except ImportError:
        return
    rng = np.random.default_rng(0)
    n, p = 300, 600
    types = np.array(["T cell", "B cell", "Monocyte"])[np.arange(n) % 3]
    markers = {
        "T cell": ["CD3D", "CD3E", "IL7R", "TRAC"],
        "B cell": ["CD79A", "MS4A1", "CD19", "CD74"],
        "Monocyte": ["LYZ", "S100A8", "CD14", "FCN1"],
    }
    genes = ["MALAT1", "B2M", "EEF1A1", *(f"GENE{j}" for j in range(3, p))]
    rate = np.tile(rng.gamma(0.3, 1, p), (n, 1))
    rate[:, :3] = 60
    at = 3
    for kind, names in markers.items():
        for name in names:
            genes[at] = name
            rate[:, at] = np.where(types == kind, 8, 0.05)
            at += 1
    counts = rng.poisson(rate * rng.lognormal(0, 0.5, (n, 1)) * 0.8).astype(np.float32)
    known = np.where(rng.random(n) < 0.1, types, None)
    found = anndata.AnnData(
        np.log1p(counts),
        obs=pandas.DataFrame(
            {"type": pandas.Categorical(known)}, index=[f"cell{i}" for i in range(n)]
        ),
        var=pandas.DataFrame(index=genes),
        layers={"counts": counts},
    )
    found.write_h5ad("pbmc.h5ad")


if __name__ == "__main__":
    seeded = random.Random(0)
    texts(seeded)
    table(seeded)
    labels()
    pictures(seeded)
    cells()
    mixtures(random.Random(1))
    shutil.copy(Path(__file__).parent / "tutorials" / "make_photos.py", ".")
