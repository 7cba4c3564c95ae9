"""Tests of the server for Label Studio, with requests as Label Studio sends them."""

import base64
import shutil
import threading

import pytest

pytest.importorskip("starlette", reason="the studio extra is not installed")

from starlette.testclient import TestClient

from partwise.apps import label_studio
from partwise.apps.studio.workspace import Workspace
from partwise.io import read_samples

CONFIG = """<View>
  <Text name="text" value="$body"/>
  <Choices name="topic" toName="text" choice="single-radio" showInLine="true">
    <Choice value="sport"/><Choice value="food"/>
  </Choices>
</View>"""
SPORT = ["the team won the match", "a goal in the last minute", "the coach praised the players"]
FOOD = ["bake the bread with butter", "a soup of onions and salt", "fry the eggs in a pan"]
N = 20


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a prepared project with twenty texts that alternate between two topics."""
    folder = tmp_path_factory.mktemp("backend")
    rows = ["id,body"]
    for i in range(N):
        words = (SPORT if i % 2 else FOOD)[i % 3]
        rows.append(f"mail{i},{words} number{i}")
    path = folder / "mails.csv"
    path.write_text("\n".join(rows), "utf-8")
    samples = read_samples(path, text_column="body")
    workspace = Workspace(samples, folder / "project")
    workspace.prepare()
    workspace.close()
    return samples, folder / "project"


@pytest.fixture
def workspace(prepared, tmp_path):
    samples, project = prepared
    shutil.copytree(project, tmp_path / "project")
    workspace = Workspace(samples, tmp_path / "project")
    workspace.prepare()
    yield workspace
    workspace.close()


@pytest.fixture
def client(workspace):
    app = label_studio.Guard(label_studio.make_app(workspace), None)
    return TestClient(app, base_url="http://127.0.0.1:9090")


def task(workspace, i, **data):
    """Return a labelling task in the format of Label Studio."""
    return {
        "id": 100 + i,
        "data": data or {"body": workspace.samples.whole_texts[i]},
        "annotations": [],
        "predictions": [],
        "project": 1,
        "created_at": "2026-01-01T00:00:00Z",
    }


def predict(client, tasks):
    body = {
        "tasks": tasks,
        "project": "1.1767225600",
        "label_config": CONFIG,
        "params": {"login": None, "password": None, "context": None},
    }
    answer = client.post("/predict", json=body)
    assert answer.status_code == 200
    return answer.json()["results"]


def annotation(workspace, i, label, number=None, action="ANNOTATION_CREATED"):
    region = {
        "id": "a1", "type": "choices", "from_name": "topic", "to_name": "text",
        "value": {"choices": [label]}, "origin": "manual",
    }  # fmt: skip
    return {
        "action": action,
        "project": {"id": 1, "title": "Mails"},
        "task": task(workspace, i),
        "annotation": {
            "id": i if number is None else number,
            "result": [region],
            "was_cancelled": False,
            "updated_at": f"2026-01-01T00:00:{i:02}Z",
        },
    }


def annotate(client, workspace, i, label, **others):
    return client.post("/webhook", json=annotation(workspace, i, label, **others))


def label_of(prediction):
    assert prediction["result"][0]["from_name"] == "topic"
    assert prediction["result"][0]["to_name"] == "text"
    return prediction["result"][0]["value"]["choices"][0]


def test_predictions_follow_the_annotations(client, workspace):
    tasks = [task(workspace, i) for i in range(N)]
    assert client.get("/health").json()["status"] == "UP"
    first = client.post("/setup", json={"project": "1.1", "schema": CONFIG, "hostname": ""})
    before = predict(client, tasks)
    assert [p["result"] for p in before] == [[]] * N
    for i in range(8):
        assert annotate(client, workspace, i, "sport" if i % 2 else "food").status_code == 201
    after = predict(client, tasks)
    assert [label_of(p) for p in after] == ["sport" if i % 2 else "food" for i in range(N)]
    assert all(0.5 <= p["result"][0]["score"] <= 1 for p in after)
    assert after[0]["model_version"] != first.json()["model_version"]
    assert workspace.labels == {f"mail{i}": "sport" if i % 2 else "food" for i in range(8)}


def test_the_same_event_counts_once(client, workspace):
    for _ in range(2):
        annotate(client, workspace, 0, "food")
    assert len(workspace.journal.entries) == 1


def test_one_answer_comes_from_one_model(workspace, monkeypatch):
    """Check that all predictions of one request come from the same model.

    A review that ends during the request must not change the predictions of later tasks.
    """
    backend = label_studio.Backend(workspace)
    backend.webhook(annotation(workspace, 0, "food"))
    backend.webhook(annotation(workspace, 1, "sport"))
    workspace.wait()
    find = backend._find

    def find_while_a_review_ends(asked):
        review = threading.Thread(target=replace_predictions, daemon=True)
        review.start()
        review.join(0.2)
        return find(asked)

    def replace_predictions():
        with workspace.lock:
            workspace.version += 1

    monkeypatch.setattr(backend, "_find", find_while_a_review_ends)
    asked = {"tasks": [task(workspace, i) for i in range(3)], "label_config": CONFIG}
    versions = [found["model_version"] for found in backend.predict(asked)["results"]]
    assert len(set(versions)) == 1


def test_scores_sort_tasks_by_the_order_of_labelling(client, workspace):
    annotate(client, workspace, 0, "food")
    annotate(client, workspace, 1, "sport")
    workspace.wait()  # a review that ends between two requests could change the order
    scores = [p["score"] for p in predict(client, [task(workspace, i) for i in range(N)])]
    suggested = [brief["i"] for brief in workspace.next(N)][:5]
    assert sorted(range(N), key=scores.__getitem__)[:5] == suggested
    assert scores[0] == scores[1] == 1.0


def test_tasks_are_found_by_id_file_name_or_text(client, workspace):
    annotate(client, workspace, 0, "food")
    annotate(client, workspace, 1, "sport")
    by_id, by_file, unknown = (
        task(workspace, 0, id="mail3"),
        task(workspace, 0, url="/data/upload/1/0a1b2c3d-mail3"),
        task(workspace, 0, body="nobody wrote this"),
    )
    found = predict(client, [task(workspace, 3), by_id, by_file, unknown])
    assert found[0] == found[1] == found[2]
    assert found[3]["result"] == [] and found[3]["score"] == 1.0


def test_updated_cancelled_and_deleted_annotations(client, workspace):
    annotate(client, workspace, 4, "food")
    annotate(client, workspace, 4, "sport", action="ANNOTATION_UPDATED")
    annotate(client, workspace, 5, "sport")
    assert workspace.labels == {"mail4": "sport", "mail5": "sport"}
    gone = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 5}]}
    client.post("/webhook", json=gone)
    assert workspace.labels == {"mail4": "sport"}
    annotate(client, workspace, 4, "food", number=77)  # an annotation by another person
    client.post("/webhook", json={"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 4}]})
    assert workspace.labels == {"mail4": "food"}


@pytest.mark.parametrize(
    "body",
    [
        {"tasks": 3, "label_config": CONFIG},
        {"tasks": [], "label_config": "<View/>"},
        {"tasks": [], "label_config": '<!DOCTYPE x [<!ENTITY a "b">]><View>&a;</View>'},
        {"tasks": [{"id": 1}], "label_config": CONFIG},
        {"tasks": []},
    ],
)
def test_wrong_requests_are_refused(client, body):
    answer = client.post("/predict", json=body)
    assert answer.status_code == 400 and answer.json()["error"]


def test_an_annotation_of_another_task_is_refused(client, workspace):
    body = {"action": "ANNOTATION_CREATED", "task": task(workspace, 0, body="?"), "annotation": {}}
    assert client.post("/webhook", json=body).status_code == 400
    assert not workspace.labels


def test_web_pages_and_other_hosts_may_not_ask(workspace):
    app = label_studio.Guard(label_studio.make_app(workspace), None)
    assert TestClient(app, base_url="http://evil.example").get("/health").status_code == 421
    local = TestClient(app, base_url="http://localhost:9090")
    assert local.get("/health", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_password_is_asked_for(workspace):
    app = label_studio.Guard(label_studio.make_app(workspace), "söcret")
    client = TestClient(app, base_url="http://backend.example:9090")
    assert client.get("/health").status_code == 401
    for password, status in (("wrong", 401), ("söcret", 200)):
        token = base64.b64encode(f"partwise:{password}".encode()).decode()
        headers = {"Authorization": f"Basic {token}"}
        assert client.get("/health", headers=headers).status_code == status


def test_many_wrong_passwords_cause_a_delay(workspace):
    app = label_studio.Guard(label_studio.make_app(workspace), "secret")
    client = TestClient(app, base_url="http://backend.example:9090")
    wrong = [{"Authorization": b"Basic " + text} for text in (b"a", b"b", b"\xe9")]
    codes = [client.get("/health", headers=wrong[i % 3]).status_code for i in range(8)]
    assert codes[:4] == [401] * 4 and codes[-1] == 429
    assert client.get("/health").status_code == 429
