"""Tests of reading labels that Label Studio exported as JSON."""

import json

import pytest

from partwise.io import read_labels

IDS = ["a/cat.jpg", "b/dog.jpg", "b/größe 1.png"]


def task(choice, *, cancelled=False, **data):
    result = [] if choice is None else [{"type": "choices", "value": {"choices": choice}}]
    return {"data": data, "annotations": [{"result": result, "was_cancelled": cancelled}]}


def read(tmp_path, *tasks):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(list(tasks)), "utf-8")
    return read_labels(path, IDS).tolist()


@pytest.mark.parametrize(
    "address",
    [
        "a/cat.jpg",
        "cat.jpg",
        "/data/local-files/?d=a/cat.jpg",
        "/data/upload/3/0a1b2c3d-cat.jpg",
        "https://there.example/pictures/cat.jpg",
    ],
)
def test_a_file_under_any_address(tmp_path, address):
    assert read(tmp_path, task(["cat"], image=address)) == ["cat", None, None]


def test_an_id_comes_before_other_words(tmp_path):
    given = task(["dog"], id="b/dog.jpg", text="a/cat.jpg")
    small = task(["small"], image="/data/local-files/?d=b/gr%C3%B6%C3%9Fe%201.png")
    assert read(tmp_path, given, small) == [None, "dog", "small"]


def test_what_is_no_answer_counts_for_none(tmp_path):
    skipped = task(["cat"], cancelled=True, image="cat.jpg")
    empty = task(None, image="cat.jpg")
    assert read(tmp_path, skipped, empty, task(["dog"], image="dog.jpg")) == [None, "dog", None]


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([task(["cat", "dog"], image="cat.jpg")], "task 1.*'cat', 'dog'"),
        ([task(["cat"], image="cat.jpg"), task(["dog"], id="a/cat.jpg")], "task 2"),
        ([task(["cat"], image="/data/upload/1/mouse.jpg")], "task 1"),
        ([task(None, image="cat.jpg")], "1"),
        ([{"id": 1}], "Label Studio"),
    ],
)
def test_what_is_wrong_gets_a_sentence(tmp_path, tasks, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path, *tasks)


def test_what_is_no_json_gets_a_sentence(tmp_path):
    (tmp_path / "tasks.json").write_text("id,label\n")
    with pytest.raises(ValueError, match="JSON"):
        read_labels(tmp_path / "tasks.json", IDS)
