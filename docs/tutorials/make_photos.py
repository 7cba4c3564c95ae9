"""Save 400 handwritten digits as images, and the labels of 20 of them."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

digits = load_digits()
for folder, samples in (("photos", range(400)), ("more-photos", range(400, 410))):
    Path(folder).mkdir()
    for i in samples:
        Image.fromarray(np.uint8(15 * digits.images[i])).save(f"{folder}/{i:03d}.png")

labelled = [i for digit in range(10) for i in np.flatnonzero(digits.target == digit)[:2]]
rows = [f"{i:03d}.png,{digits.target[i]}" for i in labelled]
Path("labels.csv").write_text("\n".join(["id,label", *rows]) + "\n", encoding="utf-8")
