"""Tests of the option ``--for-predict``, which writes a model file without training samples."""

import csv
import os

import numpy as np
from sklearn.datasets import load_iris


def test_predict_takes_a_file_without_training_samples(command, tmp_path):
    data = load_iris()
    for name, rows in (("old.csv", range(0, 150, 2)), ("new.csv", range(1, 150, 2))):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{j}" for j in range(4)), "kind"])
            writer.writerows([*data.data[i], f"k{data.target[i]}"] for i in rows)
    predicted = {}
    for mode in ((), ("--for-predict",)):
        for action, model in (("fit", "m.partwise"), ("classify", "out/model.partwise")):
            path = tmp_path / "-".join(["x", *mode, action]) / model
            path.parent.mkdir(parents=True)
            out = path if action == "fit" else path.parent
            arguments = ("--label-column", "kind", "--out", out, "--force", *mode)
            code, _, error = command(action, tmp_path / "old.csv", *arguments)
            assert code == 0, error
            code, out, error = command("predict", path, tmp_path / "new.csv")
            assert code == 0, error
            rows = list(csv.DictReader(out.splitlines()))
            labels = [row["predicted_label"] for row in rows]
            predicted[mode, action] = labels, [float(row["probability"]) for row in rows]
            predicted[mode, action, "size"] = os.path.getsize(path)
    for action in ("fit", "classify"):
        (labels, p), (full, q) = (predicted[mode, action] for mode in (("--for-predict",), ()))
        assert labels == full
        # Without training samples, a copy of one is predicted as a new sample.
        np.testing.assert_allclose(p, q, atol=0.02)
        assert predicted[("--for-predict",), action, "size"] < predicted[(), action, "size"]
    code, _, error = command(
        "fit", tmp_path / "old.csv", "--label-column", "kind", "--method", "cnmf",
        "--for-predict", "--out", tmp_path / "refused.partwise",
    )  # fmt: skip
    assert code == 2 and "--for-predict" in error and "cnmf" in error
    assert not (tmp_path / "refused.partwise").exists()
