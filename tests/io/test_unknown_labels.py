"""Tests of labels such as "unknown", which are refused unless the user drops or keeps them."""

import numpy as np
import pytest

from partwise.io import read_labels, read_samples

WORDS = ["unknown", "?", "-", "n/a", "Unbekannt", "NONE", "not  sure", "未知"]


def write(tmp_path, text, name="l.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("word", WORDS)
def test_a_file_of_labels(tmp_path, word):
    path = write(tmp_path, f"id,label\na,cat\nb,{word}\nc,dog\n")
    with pytest.raises(ValueError, match="--unknown-labels drop"):
        read_labels(path, list("abc"))
    assert read_labels(path, list("abc"), unknown="drop").tolist() == ["cat", None, "dog"]
    assert read_labels(path, list("abc"), unknown="keep").tolist() == ["cat", word, "dog"]


@pytest.mark.parametrize("word", WORDS)
def test_a_column(tmp_path, word):
    rows = "".join(f"{i},{i % 3},{('cat', 'dog', word)[i % 3]}\n" for i in range(30))
    path = write(tmp_path, f"a,b,kind\n{rows}", "t.csv")
    with pytest.raises(ValueError, match=f"{word.split()[0].replace('?', '.')}"):
        read_samples(path, label_column="kind")
    y = read_samples(path, label_column="kind", unknown_labels="drop").y
    assert y[:3].tolist() == ["cat", "dog", None]


def test_nothing_but_unknown(tmp_path):
    path = write(tmp_path, "id,label\na,?\nb,unknown\n")
    with pytest.raises(ValueError, match="label"):
        read_labels(path, list("ab"), unknown="drop")


def test_unknown_does_not_contradict_a_label(tmp_path):
    path = write(tmp_path, "id,label\na,cat\nb,dog\na,?\n")
    with pytest.raises(ValueError, match="class"):
        read_labels(path, list("ab"))
    assert read_labels(path, list("ab"), unknown="drop").tolist() == ["cat", "dog"]


def test_ids_na_and_null_are_text(tmp_path):
    """Check that the id "NA" (Namibia) and the id "null" (a surname) are read as text.

    pandas would read them as missing values.
    """
    path = write(tmp_path, "id,a,b\nNA,1,2\nnull,2,1\nDE,3,5\n", "t.csv")
    assert read_samples(path).ids == ["NA", "null", "DE"]
    texts = write(tmp_path, "who,body\n1,null and void\n2,NA\n3,void in NA\n", "m.csv")
    assert np.asarray(read_samples(texts, text_column="body").texts).tolist()[1] == "NA"
