"""Tests of ``partwise classify --label-separator``: tables, report, model file, errors."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from partwise.apps.cli import app

RUN = CliRunner()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a table of digits of which 50 have the labels "even" and "high", and the truth."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    Y = np.stack([y % 2 == 0, y > 4], axis=1)
    labels = ["; ".join(np.array(["even", "high"])[row]) or ";" for row in Y]
    frame = pd.DataFrame(X, columns=[f"pixel {j}" for j in range(64)])
    frame["labels"] = [label if i < 50 else "" for i, label in enumerate(labels)]
    path = tmp_path_factory.mktemp("several") / "digits.csv"
    frame.to_csv(path, index=False)
    return path, Y


@pytest.fixture(scope="module")
def results(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("several") / "out"
    words = ["classify", str(table[0]), "--label-column", "labels", "--label-separator", ";"]
    done = RUN.invoke(app, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out, done.output


def test_the_tables_have_every_label_of_every_sample(table, results):
    out, said = results
    rows = pd.read_csv(out / "assignments.csv", keep_default_na=False).to_dict("records")
    found = np.array([[name in row["predicted_labels"].split(";") for name in ("even", "high")]
                      for row in rows])  # fmt: skip
    assert np.mean(found[50:] == table[1][50:]) > 0.85
    np.testing.assert_array_equal(found[:50], table[1][:50])
    p = np.array([[float(row["p_even"]), float(row["p_high"])] for row in rows])
    assert 0 <= p.min() and p.max() <= 1
    summary = json.loads((out / "summary.json").read_text())
    assert [row["label"] for row in summary["labels"]] == ["even", "high"]
    assert summary["labelled"] == 50 and all(0 < row["f1"] <= 1 for row in summary["labels"])
    assert "even" in said and len(pd.read_csv(out / "label_next.csv")) == 20


def test_the_report_has_a_row_per_label(results):
    page = (results[0] / "report.html").read_text()
    assert page.count("<tr>") == 3 and "even" in page


def test_the_model_predicts_lists_of_labels(table, results, tmp_path):
    path = tmp_path / "new.csv"
    model = str(results[0] / "model.partwise")
    done = RUN.invoke(app, ["predict", model, str(table[0]), "--out", str(path)])
    assert done.exit_code == 0, done.output
    found = pd.read_csv(path, keep_default_na=False)["predicted_label"]
    assert set(found) == {"", "even", "high", "even;high"}


@pytest.mark.parametrize("option", [["--write-back"], ["--method", "cdnmf"], ["-k", "3"]])
def test_options_without_effect_are_refused_by_name(table, tmp_path, option):
    words = ["classify", str(table[0]), "--label-column", "labels", "--label-separator", ";"]
    done = RUN.invoke(app, [*words, "--out", str(tmp_path / "out"), *option])
    assert done.exit_code != 0
    assert option[0].lstrip("-") in str(done.exception) + done.output
