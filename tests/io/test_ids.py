"""Tests of joining labels to samples by ids: ambiguous ids are refused with a remedy."""

import csv
import unicodedata

import numpy as np
import pytest

from partwise.io import Samples, read_labels, read_samples
from partwise.io._common import Options
from partwise.io.known_parts import read_known
from partwise.io.label_files import labels_of, read_links

WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
}


@pytest.fixture
def write_texts(tmp_path):
    """Return a function that writes a table of texts with the given ids.

    The texts are on two topics in turn; row 0 is about the sea.
    """

    def write(ids, name="t.csv", heading="ID"):
        rng = np.random.default_rng(0)
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([heading, "Text"])
            for at, own in enumerate(ids):
                writer.writerow([own, " ".join(rng.choice(WORDS[("sea", "sky")[at % 2]], 5))])
        return path

    return write


def table(tmp_path, text, name="l.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("heading", ["ID", "id", "Nr", "mail_id", ""])
@pytest.mark.parametrize("option", [{}, {"labels": True}])
def test_an_id_that_occurs_twice_is_named(write_texts, tmp_path, heading, option):
    path = write_texts([*range(1, 30), 7], heading=heading)
    if option:
        option = {"labels": table(tmp_path, "id,label\n1,sea\n2,sky\n")}
    with pytest.raises(ValueError, match=r"'7'.*7 and 30.*--id-column none"):
        read_samples(path, text_column="Text", **option)


def test_a_blank_id_is_named(write_texts):
    path = write_texts([*range(1, 5), " ", *range(6, 30)])
    with pytest.raises(ValueError, match=r"'ID'.*row 5.*--id-column none"):
        read_samples(path, text_column="Text")
    with pytest.raises(ValueError, match=r"'ID'.*row 5"):
        read_samples(path, text_column="Text", id_column="ID")


def test_no_other_column_stands_in_for_a_damaged_one(tmp_path):
    rows = "".join(f"{max(i, 1)},{40 - i},{i * i % 7},{i % 5}\n" for i in range(40))
    path = table(tmp_path, "id,row,a,b\n" + rows, "t.csv")
    with pytest.raises(ValueError, match=r"'id'.*'1'.*1 and 2"):
        read_samples(path)
    assert read_samples(path, id_column="row").ids[0] == "40"


def test_new_data_of_a_known_model_too(write_texts):
    recipe = read_samples(write_texts(range(30)), text_column="Text").recipe
    with pytest.raises(ValueError, match=r"'ID'.*row 2"):
        read_samples(write_texts([1, "", 3], "n.csv"), recipe=recipe)
    with pytest.raises(ValueError, match=r"'1'.*1 and 3"):
        read_samples(write_texts([1, 2, 1], "n.csv"), recipe=recipe)
    assert read_samples(write_texts([1, 2, 1], "n.csv"), recipe=recipe, id_column="none").ids == [
        "0",
        "1",
        "2",
    ]


def test_rows_are_numbered_when_asked_and_the_join_is_said(write_texts, tmp_path):
    path = write_texts([*range(1, 30), 7])
    labels = table(tmp_path, "id,label\n0,sea\n1,sky\n")
    samples = read_samples(path, text_column="Text", id_column="none", labels=labels)
    assert samples.ids[:2] == ["0", "1"] and samples.y[:2].tolist() == ["sea", "sky"]
    said = next(note for note in samples.notes if "row numbers from 0" in note)
    assert "l.csv" in said and samples.texts[0][:20] in said


def test_a_column_that_repeats_by_nature_is_no_id_but_joins_nothing(tmp_path):
    rows = "".join(f"{i % 4},{i},{i * i % 7}\n" for i in range(40))
    path = table(tmp_path, "customer_id,a,b\n" + rows, "orders.csv")
    assert read_samples(path).ids == [str(i) for i in range(40)]
    labels = table(tmp_path, "id,label\n1,x\n2,y\n")
    with pytest.raises(ValueError, match=r"'customer_id'.*--id-column none"):
        read_samples(path, labels=labels)


def test_the_index_that_pandas_writes_is_the_ids(tmp_path):
    """Check that labels are joined by the index of a pandas data frame, not by row number.

    The rows are shuffled, so joining by row number would give wrong labels.
    """
    order = np.random.default_rng(0).permutation(30)
    rows = "".join(f"{i},{i * 1.5},{i % 3}.5\n" for i in order)
    labels = table(tmp_path, "".join(f"{i},{'low' if i < 15 else 'high'}\n" for i in range(30)))
    samples = read_samples(table(tmp_path, ",a,b\n" + rows, "t.csv"), labels=labels)
    assert samples.ids == [str(i) for i in order]
    assert samples.y.tolist() == ["low" if i < 15 else "high" for i in order]


def test_ids_of_parquet_are_whole_numbers_where_they_were(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
    frame = pandas.DataFrame({"id": [1.0, 2.0, 10.0], "a": [1, 2, 3], "b": [3, 1, 2]})
    frame.to_parquet(tmp_path / "t.parquet")
    labels = table(tmp_path, "id,label\n1,x\n10,y\n")
    samples = read_samples(tmp_path / "t.parquet", labels=labels)
    assert samples.ids == ["1", "2", "10"] and samples.y.tolist() == ["x", None, "y"]
    frame.loc[1, "id"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'id'.*row 2"):
        read_samples(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("ids", "name"),
    [(["3.5", "4.5"], "3"), (["2019/12", "2020/11"], "12"), (["v1.2", "v2.2"], "v1")],
)
def test_only_files_go_by_a_shorter_name(tmp_path, ids, name):
    labels = table(tmp_path, f"id,label\n{name},x\n")
    with pytest.raises(ValueError, match=f"'{name}'"):
        read_labels(labels, ids)
    links = table(tmp_path, f"{name},{ids[1]},must\n", "links.csv")
    with pytest.raises(ValueError, match=f"'{name}'"):
        read_links(links, ids)


def test_the_first_line_of_labels_is_not_lost(tmp_path):
    ids = [f"img{i}.png" for i in range(9)]
    text = "img77.png,cat\nimg1.png,cat\nimg2.png,dog\n"
    with pytest.raises(ValueError, match=r"line 1.*'img77\.png'"):
        read_labels(table(tmp_path, text), ids)
    with pytest.raises(ValueError, match=r"line 1.*'12'"):
        read_labels(table(tmp_path, "12,cat\n1,cat\n2,dog\n"), [str(i) for i in range(9)])
    heading = table(tmp_path, "picture,animal\nimg1.png,cat\nimg2.png,dog\n")
    assert read_labels(heading, ids)[1:3].tolist() == ["cat", "dog"]
    turned = table(tmp_path, "animal,ID\ncat,img1.png\ndog,img2.png\n")
    assert read_labels(turned, ids)[1:3].tolist() == ["cat", "dog"]


def test_the_first_line_of_links_is_not_lost(tmp_path):
    ids = list("abcd")
    with pytest.raises(ValueError, match=r"line 1.*'a,b,musst'"):
        read_links(table(tmp_path, "a,b,musst\nc,d,must\n"), ids)
    links = read_links(table(tmp_path, "one,other,what\na,b,must\nc,d,cannot\n"), ids)
    assert links == {"must_link": [(0, 1)], "cannot_link": [(2, 3)]}


def test_letters_with_accents_are_one_however_they_are_stored(tmp_path):
    """Check that ids with composed and with decomposed accents are equal.

    macOS stores file names with decomposed accents.
    """
    two, one = (unicodedata.normalize(form, "Grün.png") for form in ("NFD", "NFC"))
    assert two != one
    for held, written in ((two, one), (one, two)):
        labels = table(tmp_path, f"id,label\n{written},x\n")
        assert read_labels(labels, [held, "rot.png"]).tolist() == ["x", None]


@pytest.mark.parametrize(
    ("ids", "name", "hint"),
    [
        (["007", "008"], "7", "did you mean '007'"),
        (["7", "8"], "7.0", "did you mean '7'"),
        (["10", "12", "40"], "13", "did you mean '12'"),
        ([str(i) for i in range(5)], "5", "row numbers.*from 0"),
        (["IMG_1.JPG", "IMG_2.JPG"], "img_1.jpg", "did you mean 'IMG_1.JPG'"),
    ],
)
def test_a_near_miss_is_said(tmp_path, ids, name, hint):
    with pytest.raises(ValueError, match=hint):
        read_labels(table(tmp_path, f"id,label\n{name},x\n{ids[0]},y\n"), ids)


def test_a_number_is_written_where_two_features_have_its_name(tmp_path):
    samples = Samples(np.ones((3, 3)), ["a", "b", "c"], "table", feature_names=["g", "h", "g"])
    with pytest.raises(ValueError, match="'g'"):
        read_known(table(tmp_path, "name,g,h\none,1,2\n"), samples)


def test_samples_say_how_to_go_on():
    with pytest.raises(ValueError, match=r"'a'.*1 and 3"):
        Samples(np.ones((3, 2)), ["a", "b", "a"], "table")


def test_a_first_line_whose_label_comes_again_is_no_heading(tmp_path):
    with pytest.raises(ValueError, match=r"line 1.*'ghost'"):
        read_labels(table(tmp_path, "ghost,x\na,x\n"), ["a", "b"])


def test_labels_of_samples_that_were_left_out_are_said_and_only_they(tmp_path):
    labels = table(tmp_path, "id,label\na,x\nb,y\n")
    notes = []
    options = Options(note=notes.append)
    assert labels_of(labels, ["a"], options, ["b"]).tolist() == ["x"]
    assert len(notes) == 1 and notes[0].endswith(": b.")
    labels_of(labels, ["a", "b"], options)
    assert len(notes) == 1
