"""Tests of class names, colours, table rows and advice in the studio."""

import ast
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")

import partwise
from partwise.apps.studio import reviews
from partwise.apps.studio.project import read_manifest
from partwise.apps.studio.workspace import NotReady, Workspace
from partwise.io import read_labels, read_samples
from partwise.io.samples import Samples
from studio_inputs import made, photos, table

FOLDER = Path(partwise.__file__).parent / "apps" / "studio"


# -- names of classes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["-1", "unknown", "Unbekannt", " n/a ", "?", "none", "", "a\nb" * 99]
)
def test_names_that_mean_no_label_are_refused(workspace, name):
    for change in (
        lambda: workspace.label([0], name, window="w"),
        lambda: workspace.rename("a", name, window="w"),
    ):
        workspace.label([5], "a", window="w")
        with pytest.raises(ValueError, match=r"class|label"):
            change()
    assert workspace.labels == {"s5": "a"}


NAMES = (
    "2 spots",
    "unknown plant",
    "=1+1",
    "'q'",
    "01",
    "+49",
    "1e5",
    "a,b",
    'say "x"',
    "A b",
    "ab",
)


@pytest.mark.usefixtures("few_trees")
def test_every_name_that_is_accepted_survives_the_exports(workspace):
    """Check that labels.csv, repeat.py and the exported model have the same class names."""
    given = {f"s{i}": NAMES[i % len(NAMES)] for i in range(3 * len(NAMES))}
    for name, label in given.items():
        workspace.label([int(name[1:])], label, window="w")
    workspace.wait()
    workspace.save_all()
    folder = workspace.project.folder
    y = read_labels(folder / "labels.csv", workspace.samples.ids, similar="keep")
    assert {name: v for name, v in zip(workspace.samples.ids, y) if v is not None} == given
    model = partwise.load(folder / "model.partwise")
    assert set(model.classes_) == set(NAMES)


@pytest.mark.usefixtures("few_trees")
def test_the_lines_of_repeat_run(tmp_path, monkeypatch, capsys):
    """Check that repeat.py runs for class names that differ in spaces and labels from a file."""
    path = table(tmp_path / "old.csv", 60)
    first = tmp_path / "first.csv"
    first.write_text("id,label\n10000,A b\n10007,ab\n", encoding="utf-8")
    samples = read_samples(path, labels=first, similar_labels="keep")
    workspace = Workspace(samples, tmp_path / "p", labels=samples.y)
    workspace.prepare()
    for i in range(2, 12):
        workspace.label([i], ("A b", "ab", "c d")[i % 3], window="w")
    workspace.wait()
    workspace.save_all()
    expected = workspace.predictor.with_labels(workspace.by_row()).transduction_
    workspace.close()
    monkeypatch.chdir(tmp_path / "p")
    exec(Path("repeat.py").read_text("utf-8"), {})
    lines = [f"{name} {label}" for name, label in zip(samples.ids, expected)]
    assert capsys.readouterr().out.splitlines() == lines


# -- two windows -----------------------------------------------------------------------------------


def test_a_card_that_was_shown_before_overwrites_nothing(workspace):
    """Check that a label is refused if another window has labelled the sample in the meantime."""
    shown = workspace.current()["version"]
    workspace.label([5], "x", window="one", seen=shown)
    with pytest.raises(ValueError, match=r"s5 .*'x'"):
        workspace.label([5], "y", window="two", seen=shown)
    assert workspace.labels == {"s5": "x"}
    # The same label from both windows is no conflict.
    workspace.label([5], "x", window="two", seen=shown)
    workspace.undo(window="two")
    # A window that has seen the label may change it.
    workspace.label([5], "y", window="two", seen=workspace.version)
    assert workspace.labels == {"s5": "y"}


def test_a_label_that_was_taken_back_is_no_conflict(workspace):
    shown = workspace.version
    workspace.label([5], "x", window="one", seen=shown)
    workspace.undo(window="one")
    workspace.label([5], "y", window="two", seen=shown)
    assert workspace.labels == {"s5": "y"}


# -- colours ---------------------------------------------------------------------------------------


@pytest.fixture
def coloured(tmp_path):
    """Yield the workspace of a studio on unlabelled images that differ only in colour."""
    folder = photos(tmp_path / "photos", 45, coloured=True)
    workspace = Workspace(read_samples(folder), tmp_path / "p", compare_colours=True)
    workspace.prepare()
    yield workspace
    workspace.close()


def test_colours_are_compared_again_when_labels_arrive(coloured, tmp_path):
    assert coloured.samples.recipe["rgb"] is False
    for i in range(9):
        coloured.label([i], f"c{i % 3}", window="w")
    coloured.wait()
    assert coloured.samples.recipe["rgb"] is False and coloured.project.compared == 0
    for i in range(9, 12):
        coloured.label([i], f"c{i % 3}", window="w")
    coloured.wait()
    assert coloured.samples.recipe["rgb"] is True
    assert any("colour" in note and "10" in note for note in coloured.state()["notes"])
    found = [coloured.predictions.name(i) for i in range(45)]
    assert found == [f"c{i % 3}" for i in range(45)]
    assert len(coloured.labels) == 12 and coloured.predictor.parts.shape[1] == 300
    assert read_manifest(tmp_path / "p")["rgb"] is True
    # The next comparison of colours is due at twice as many labels.
    coloured.label([12], "c0", window="w")
    assert not coloured._comparison_is_due()


def test_a_later_start_reads_the_colours_that_were_chosen(coloured, tmp_path):
    from partwise.apps.studio.server import chosen_colours, in_chosen_colours

    assert chosen_colours(tmp_path / "p") is None
    for i in range(10):
        coloured.label([i], f"c{i % 3}", window="w")
    coloured.wait()
    coloured.close()
    assert chosen_colours(tmp_path / "p") is True
    samples = in_chosen_colours(read_samples(tmp_path / "photos"), tmp_path / "p")
    assert samples.image_shape == (10, 10, 3)
    again = Workspace(samples, tmp_path / "p", compare_colours=True)
    assert not again.project.news and len(again.labels) == 10
    # The stored part weights are used, and nothing is computed again.
    assert again.predictor.restore(again.project.parts)
    again.close()


def test_edited_parts_are_not_replaced_by_coloured_ones(coloured):
    coloured.edit_part({"do": "name", "part": 0, "name": "bright"}, window="w")
    for i in range(12):
        coloured.label([i], f"c{i % 3}", window="w")
    coloured.wait()
    assert coloured.samples.recipe["rgb"] is False
    assert coloured.parts()["parts"][0]["name"] == "bright"


# -- rows of tables --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def customers(tmp_path_factory):
    """Yield the workspace of a studio on a table of customers, with 18 labels.

    Only the column of amounts determines the class.
    """
    folder = tmp_path_factory.mktemp("customers")
    workspace = Workspace(read_samples(table(folder / "k.csv", 60)), folder / "p")
    workspace.prepare()
    for i in range(18):
        workspace.label([i], ("low", "high", "top")[i % 3], window="w")
    workspace.wait()
    yield workspace
    workspace.close()


def test_the_card_shows_the_row_of_the_file(customers):
    with open(customers.samples.source, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    for i in (0, 20, 59):
        values = customers.sample(i)["values"]
        assert {name: value for name, value, _ in values} == rows[i]
        assert [name for name, _, _ in values[:2]] == ["Kundennummer", "Name"]
    orders = [row["Bestellungen"] for row in rows]
    assert "0" in orders  # zeros in the file are shown as 0
    assert customers.sample(orders.index("0"))["id"] == rows[orders.index("0")]["Kundennummer"]


def test_the_card_marks_the_columns_that_contribute(customers):
    """Check that the studio marks the column of amounts, which alone determines the class."""
    for i in range(18, 60):
        found = {name: share for name, _, share in customers.sample(i)["values"]}
        best = max(found, key=lambda name: abs(found[name]))
        if i % 3 != 1:
            assert best == "Umsatz" and found["Umsatz"] == 1
        assert found["Kundennummer"] == found["Name"] == 0


def test_missing_values_are_shown_as_such(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{i},{'' if i == 3 else i % 7},{'abc'[i % 3]}" for i in range(30)]
    path.write_text("id,count,kind\n" + "\n".join(rows) + "\n")
    workspace = Workspace(read_samples(path), tmp_path / "p")
    shown = workspace._brief(3)["values"]
    assert [value for _, value, _ in shown] == ["3", "–", "a"]
    workspace.close()


def test_a_sample_without_a_table_has_its_largest_values():
    from partwise.apps.studio.presentation import sample

    X = np.array([[0.0, 2.0, 0.5], [1.0, 0.0, 0.0]])
    samples = Samples(X, ["a", "b"], "counts", feature_names=["x", "y", "z"])
    values = sample(samples, 0, None, -1)["values"]
    assert [tuple(value) for value in values] == [("y", "2", 0), ("z", "0.5", 0), ("x", "0", 0)]


# -- advice ----------------------------------------------------------------------------------------


def test_the_gain_of_further_labels_is_a_range():
    low, high = reviews.gain(40, 0.9, 0.8)
    power = np.log(0.2 / 0.1) / np.log(1.6)
    assert low == pytest.approx(100 * 0.1 * (1 - (60 / 40) ** -min(power, 1)))
    assert high > low
    assert reviews.gain(40, 0.9, 0.9)[0] == 0 and reviews.gain(40, 0.9, 0.9)[1] > 0.5
    assert reviews.gain(40, 1.0, 1.0)[1] > 0.5  # few labels without an error do not exclude errors
    assert reviews.gain(2000, 1.0, 1.0)[1] < 0.01


def advise(names, accuracy=0.99, low=0.97, share=1.0, half=1.0):
    """Return the studio's advice for labels given in this order."""
    labels = dict(enumerate(names))
    point = reviews.Point(len(labels), accuracy, low, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reviews, "share_with_half", lambda model, labels: half)
        return reviews.advice(None, labels, point, share)


def test_nobody_is_advised_to_stop_too_early():
    many = list("abc" * 100)
    assert "enough" in advise(many)
    assert "enough" not in advise(many, low=0.9)  # the interval of the accuracy is wide
    # More labels still increase the accuracy.
    assert "enough" not in advise(many, share=0.9, half=0.8)
    assert "enough" not in advise(many[:60])  # with few labels, the estimate is uncertain
    rare = advise([*many[:150], "rare", *many[150:]])
    assert "enough" not in rare and "rare" in rare
    late = advise([*many, "late", "late", "late"])
    assert "enough" not in late
    assert advise(many, half=None) == ""


def test_the_review_counts_what_cross_validation_found(workspace):
    group = made()[1]
    for i in range(12):
        workspace.label([i], f"g{group[i]}", window="w")
    workspace.wait()
    review = workspace._last_review
    point = review.history[-1]
    text = " ".join(review.sentences)
    assert f"{point.accuracy:.0%}" in text and f"{point.low:.0%}" in text
    assert "12 of 12" in text and "enough" not in text
    assert review.recall == {"g0": 1, "g1": 1, "g2": 1}


def test_a_confirmed_label_is_not_questioned_again(workspace):
    group = made()[1]
    for i in range(21):
        workspace.label([i], f"g{group[i] if i != 20 else 0}", window="w")

    def questioned():
        workspace.wait()
        review = replace(workspace._last_review, contradicted=[(20, "g0", "g2", 0.8)])
        workspace._last_review = review
        return [(entry["id"], entry["wrong"]) for entry in workspace.progress()["contradicted"]]

    assert questioned() == [("s20", 0.8)]
    workspace.label([20], "g0", window="w")
    assert questioned() == []
    # A different label of the same sample may be questioned.
    workspace.label([20], "g1", window="w")
    assert questioned() == [("s20", 0.8)]


def test_poor_pixels_point_to_embeddings(tmp_path):
    from partwise.apps.view.describe import embeddings_hint

    samples = read_samples(photos(tmp_path / "photos", 12))
    assert "--encoder" in embeddings_hint(samples, 0.4)
    assert embeddings_hint(samples, 0.8) == embeddings_hint(samples, float("nan")) == ""
    assert embeddings_hint(made()[0], 0.2) == ""  # an array cannot be encoded


# -- imports ---------------------------------------------------------------------------------------


def names_used(text):
    """Yield the names that a module imports from partwise, and the private attributes it uses."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partwise"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (("", a.name) for a in node.names if a.name.startswith("partwise"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = node.value.id if isinstance(node.value, ast.Name) else "?"
            of_tuples = node.attr in ("_replace", "_asdict")
            if owner not in ("self", "cls") and not node.attr.startswith("__") and not of_tuples:
                yield ("private", node.attr)


def test_the_rule_sees_what_it_forbids():
    text = "from partwise.classify import query\nmodel._state\nself._x\nimport partwise.fitting\n"
    found = set(names_used(text))
    assert found == {
        ("partwise.classify", "query"),
        ("private", "_state"),
        ("", "partwise.fitting"),
    }


@pytest.mark.parametrize("file", [*FOLDER.glob("*.py"), FOLDER.parent / "label_studio.py"])
def test_the_studio_uses_public_names_alone(file):
    """Check that the studio imports only public names, readers, other apps and file functions."""
    open_to_all = ("partwise.apps", "partwise.io", "partwise.persistence.atomic")
    for module, name in names_used(file.read_text("utf-8")):
        assert module != "private", f"{name} belongs to another object"
        if module == "partwise":
            assert name in partwise.__all__
        else:
            public = module.startswith(open_to_all) and "._" not in module
            assert public and not name.startswith("_"), f"{module}: {name}"


def test_random_samples_come_first_and_measure_the_class_sizes(tmp_path):
    """Check that labels of random samples improve the estimated class shares.

    The two overlapping classes have 90% and 10% of the samples.
    """
    from sklearn.datasets import make_blobs

    X, y = make_blobs([270, 30], centers=[[0.0] * 4, [1.5] * 4], random_state=0)
    samples = Samples(X, [f"s{i}" for i in range(300)], "table")
    workspace = Workspace(samples, tmp_path / "project", random_first=20)
    workspace.prepare()
    try:
        predictor = workspace.predictor
        first = predictor.random
        asked = [workspace._row[brief["id"]] for brief in workspace.next(9)]
        assert asked == first[:9] and "20" in workspace._headline()
        labels = {i: "ab"[y[i]] for i in first} | {int(np.flatnonzero(y == 1)[0]): "b"}
        found = predictor.predict(labels, ["a", "b"])
        assert predictor.model.priors == "measured"
        assert 0.7 < predictor.model.class_shares_.shares[0] < 0.99
        assert np.mean(found.label == y) > 0.85
        later = predictor.suggest(5, found, [])
        assert not set(later) & set(first)
    finally:
        workspace.close()


def test_a_later_start_asks_for_the_same_random_samples(tmp_path):
    drawn = []
    for random_first in (12, 0):
        workspace = Workspace(made()[0], tmp_path / "project", random_first=random_first)
        workspace.prepare()
        drawn.append(workspace.predictor.random)
        workspace.close()
    assert drawn[0] == drawn[1] and len(drawn[0]) == 12


def test_nothing_is_exported_before_the_data_is_prepared(tmp_path):
    """Check that an export without predictions is an error instead of a folder without a model."""
    workspace = Workspace(made(20)[0], tmp_path / "project")
    with pytest.raises(NotReady):
        workspace.save_all()
    workspace.close()
    assert not list((tmp_path / "project").glob("*.csv"))
