"""Tests of the studio: access, labels, attacks, edited parts, exports and reviews."""

import json
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")
pytest.importorskip("uvicorn", reason="the studio needs starlette and uvicorn")
pytest.importorskip("httpx", reason="starlette's test client needs httpx")

from starlette.testclient import TestClient

from partwise.apps.studio import exports, predictions
from partwise.apps.studio.access import MAX_BYTES, Guard, Guesses
from partwise.apps.studio.app import make_app
from partwise.apps.studio.journal import Journal
from partwise.apps.studio.project import Project, fingerprint
from partwise.apps.studio.workspace import Workspace
from partwise.io import read_labels
from studio_inputs import HERE, HOST, made

NASTY = '<script>alert("x")</script>&<img src=x onerror=alert(1)>'


# Tests of the project folder.


def test_project_refuses_other_data_and_a_second_studio(samples, tmp_path):
    first = Project(tmp_path / "p", samples)
    with pytest.raises(ValueError, match="studio"):
        Project(tmp_path / "p", samples)
    first.close()
    other = replace(made(30)[0], source="elsewhere")
    with pytest.raises(ValueError, match="data"):
        Project(tmp_path / "p", other)


def test_data_that_grew_keep_their_labels_by_id(samples, kept, tmp_path):
    shutil.copytree(kept, tmp_path / "p")
    workspace = Workspace(samples, tmp_path / "p")
    workspace.prepare()
    for i, name in ((0, "a"), (1, "b"), (59, "c")):
        workspace.label([i], name, window="w")
    workspace.edit_part({"do": "name", "part": 0, "name": "of old"}, window="w")
    workspace.close()
    more = made(90)[0]
    ids = [f"s{i}" for i in range(30, 90)] + [f"s{i}" for i in range(30)]
    # The new samples come before the old ones.
    grown = replace(more, X=np.roll(more.X, 60, axis=0), ids=ids)
    project = Project(tmp_path / "p", grown)
    assert "3 labels stay with their ids" in project.news and "60 samples of made" in project.news
    project.close()
    workspace = Workspace(grown, tmp_path / "p")
    workspace.prepare()
    assert workspace.labels == {"s0": "a", "s1": "b", "s59": "c"}
    assert workspace.by_row() == {60: "a", 61: "b", 29: "c"}
    assert len(workspace.predictor.weights) == 90
    # The parts were fitted again, so names of parts are dropped.
    assert not workspace.predictor.settings.names
    workspace.close()
    again = Project(tmp_path / "p", grown)
    assert not again.news and again.points() is not None
    again.close()
    few = replace(more, X=more.X[5:], ids=[f"s{i}" for i in range(5, 90)])
    with pytest.raises(ValueError, match=r"2.*3"):
        Project(tmp_path / "p", few)


def test_numbered_rows_keep_their_labels_only_behind_the_same_texts(tmp_path):
    texts = [f"text of {i}" for i in range(60)]

    def rows(texts):
        numbers = [str(i) for i in range(len(texts))]
        whole = texts if texts[0] else None
        return replace(made(len(texts), texts=texts, ids=numbers)[0], whole_texts=whole)

    first = Project(tmp_path / "p", rows(texts))
    first.close()
    grown = Project(tmp_path / "p", rows([*texts, "new"]))
    assert "61" in grown.news
    grown.close()
    for other in (["new", *texts, "new"], texts[1:], [""] * 70):
        with pytest.raises(ValueError, match="--id-column"):
            Project(tmp_path / "p", rows(other))


# Tests of labels, skips and windows.


def test_labels_change_the_answer_and_stay(workspace, samples):
    _, group = made()
    for i in (0, 1, 2, 3, 4, 5):
        answer = workspace.label([i], f"g{group[i]}", window="w")
    assert answer["classes"] == ["g0", "g1", "g2"]
    found = np.array([workspace.predictions.classes[c] for c in workspace.predictions.label])
    assert (found == np.array([f"g{g}" for g in group])).mean() > 0.95
    assert workspace.predictions.given.sum() == 6
    assert all(entry["i"] not in range(6) for entry in workspace.next(20))
    assert workspace.labels["s4"] == "g1"


def test_the_queue_never_asks_twice(workspace):
    seen = set()
    for _ in range(60):
        queue = workspace.next(3)
        if not queue:
            break
        i = queue[0]["i"]
        assert i not in seen
        seen.add(i)
        if len(seen) % 3:
            workspace.label([i], f"g{i % 3}", window="w")
        else:
            workspace.skip([i], window="w")
    assert len(seen) == 60 and not workspace.next(3)


def test_two_windows_do_not_overwrite_each_other(workspace):
    seen = workspace.current()["version"]
    workspace.label([5], "x", window="one", seen=seen)
    with pytest.raises(ValueError, match="window"):
        workspace.label([5], "y", window="two", seen=seen)
    workspace.label([6], "y", window="two", seen=seen)  # a label of another sample is no conflict
    assert workspace.labels == {"s5": "x", "s6": "y"}


def test_many_threads_lose_nothing(workspace):
    def work(k):
        for i in range(k, 60, 6):
            workspace.label([i], f"g{i % 3}", window=str(k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(workspace.labels) == 60
    again = Journal(workspace.project.journal)
    assert again.labels == workspace.labels
    again.close()


# Tests of attacks.


def test_without_the_token_nothing(workspace):
    guard = Guard(make_app(workspace), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
    for path in ("/", "/map", "/static/studio.js", "/api/state", "/api/picture/sample/0"):
        assert client.get(path).status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    token = guard.new_token()
    assert client.get(f"/api/state?token={token}").status_code == 403
    assert client.post("/api/label", json={"samples": [0], "label": "x"}).status_code == 403
    assert client.head(f"/?token={token}").status_code == 403
    answer = client.get(f"/?token={token}")
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert token not in answer.headers["set-cookie"]
    assert client.get("/api/state").status_code == 200
    assert not workspace.labels


def test_a_token_works_once(workspace):
    guard = Guard(make_app(workspace), {HOST})
    first, second = guard.new_token(), guard.new_token()
    mine, other = (
        TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
        for _ in range(2)
    )
    assert mine.get(f"/?token={first}").status_code == 303
    # This client stands for a program that read the address in the browser's command line.
    assert other.get(f"/?token={first}").status_code == 403
    assert other.get("/api/state").status_code == 403
    # The cookie is accepted in place of the token.
    assert mine.get(f"/?token={first}").status_code == 200
    assert other.get(f"/?token={second}").status_code == 303


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1", ""])
def test_another_host_is_refused(client, host):
    assert client.get("/api/state", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://{HOST}"])
def test_another_origin_is_refused(client, origin):
    words = {"samples": [0], "label": "x"}
    answer = client.post("/api/label", json=words, headers={"origin": origin})
    assert answer.status_code == 403


def test_a_write_without_an_origin_is_refused(client):
    del client.headers["origin"]
    assert client.post("/api/label", json={"samples": [0], "label": "x"}).status_code == 403


def test_a_huge_request_is_refused(client, workspace):
    body = b'{"samples":[0],"label":"' + b"x" * 100_000_000 + b'"}'
    assert client.post("/api/label", content=body).status_code == 413
    lying = client.post("/api/label", content=(b"x" * 100_000 for _ in range(MAX_BYTES // 50_000)))
    assert lying.status_code == 400
    assert client.post("/api/label", json={"samples": [0], "label": "x" * 201}).status_code == 400
    assert not workspace.labels


@pytest.mark.parametrize(
    "path",
    [
        "/api/picture/sample/../../../../etc/passwd",
        "/api/picture/sample/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/static/../journal.py",
        "/static/%2e%2e%2fjudge.py",
        "/static/__init__.py",
        "/api/export/..%2f..%2fetc%2fpasswd",
        "/api/picture/part/99999",
        "/api/picture/sample/-1",
    ],
)
def test_no_path_leads_out(client, path):
    answer = client.get(path)
    assert answer.status_code == 404 and b"root:" not in answer.content


@pytest.mark.parametrize(
    "words",
    [
        {"samples": [0], "label": ""},
        {"samples": [0], "label": "a\x00b"},
        {"samples": [], "label": "x"},
        {"samples": [59, 60], "label": "x"},
        {"samples": [-1], "label": "x"},
        {"samples": ["0"], "label": "x"},
        {"samples": [True], "label": "x"},
        {"label": "x"},
        [],
    ],
)
def test_bad_words_get_a_sentence(client, workspace, words):
    answer = client.post("/api/label", json=words)
    assert answer.status_code == 400 and answer.json()["error"]
    assert not workspace.labels


@pytest.mark.parametrize("act", ("label", "skip"))
def test_a_sample_that_is_not_there_is_named(client, act):
    answer = client.post(f"/api/{act}", json={"samples": [3, 60, 5], "label": "x"})
    assert answer.status_code == 400 and "60" in answer.json()["error"]


def test_markup_is_text(tmp_path):
    texts = [f"{NASTY} number {i}" for i in range(60)]
    samples = made(texts=texts, ids=[f"{NASTY}{i}" for i in range(60)])[0]
    workspace = Workspace(samples, tmp_path / "p")
    workspace.prepare()
    guard = Guard(make_app(workspace), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE)
    client.get(f"/?token={guard.new_token()}")
    answer = client.post("/api/label", json={"samples": [0], "label": NASTY})
    assert answer.json()["classes"] == [NASTY]
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = client.get("/")
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    workspace.close()


def test_no_script_of_the_page_writes_markup():
    from importlib import resources

    for file in (resources.files("partwise.apps.studio") / "page").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"https?://", text), "the page loads nothing from a network"


def test_a_password_in_place_of_the_token(workspace):
    guard = Guard(make_app(workspace), {HOST}, password="open sesame")
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
    # The page with the password form is returned.
    assert client.get(f"/?token={guard.new_token()}").status_code == 200
    assert client.get("/api/state").status_code == 403
    assert client.post("/login", data={"password": "guess"}).status_code == 401
    assert client.post("/login", data={"password": "open sesame"}).status_code == 303
    assert client.get("/api/state").status_code == 200


def test_another_host_needs_a_password(samples, tmp_path):
    from partwise.studio import start

    with pytest.raises(ValueError, match="--password"):
        start(samples, tmp_path / "p", host="0.0.0.0")


def test_others_on_the_network_come_in_by_the_address_that_they_reach(samples, kept, tmp_path):
    from urllib.request import Request, urlopen

    from partwise.studio import start

    shutil.copytree(kept, tmp_path / "p")
    with start(samples, tmp_path / "p", host="0.0.0.0", password="open sesame") as studio:
        port = int(re.search(r":(\d+)/$", studio.url)[1])
        here = f"http://127.0.0.2:{port}/"  # this address is not among the host names of the guard
        assert b"Password" in urlopen(here).read()
        with pytest.raises(OSError, match="421"):
            urlopen(Request(here, headers={"Host": f"evil.example:{port}"}))


def test_fifty_clients(client, workspace):
    def work(k):
        for i in range(k, 60, 50):
            answer = client.post(
                "/api/label", json={"samples": [i], "label": f"g{i % 3}", "window": str(k)}
            )
            assert answer.status_code == 200

    threads = [threading.Thread(target=work, args=(k,)) for k in range(50)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(workspace.labels) == 60


# Tests of edited parts.


def test_parts_are_named_frozen_merged_split_and_forbidden(workspace):
    _, group = made()
    for i in range(9):
        workspace.label([i], f"g{group[i]}", window="w")
    before = workspace.predictor.parts.copy()
    k = len(before)
    assert workspace.edit_part({"do": "name", "part": 0, "name": " warm  ones "}, window="w")
    assert workspace.parts()["parts"][0]["name"] == "warm ones"
    workspace.edit_part({"do": "freeze", "part": 1}, window="w")
    workspace.edit_part({"do": "split", "part": 2}, window="w")
    workspace.wait()
    assert len(workspace.predictor.parts) == k + 1 and workspace.predictor.weights.shape == (
        60,
        k + 1,
    )
    # A frozen part is unchanged to the last bit.
    np.testing.assert_array_equal(workspace.predictor.parts[1], before[1])
    workspace.edit_part({"do": "merge", "part": 3, "with": 4}, window="w")
    workspace.wait()
    assert len(workspace.predictor.parts) == k
    users = workspace.predictor.weights[group == 0].sum(axis=0)
    part = int(users.argmax())
    workspace.edit_part({"do": "forbid", "part": part, "class": "g0"}, window="w")
    workspace.wait()
    after = workspace.predictor.weights[group == 0][:, part].sum()
    assert after < 0.5 * users[part]
    found = np.array([workspace.predictions.classes[c] for c in workspace.predictions.label])
    # Predictions continue after edits of parts.
    assert (found == np.array([f"g{g}" for g in group])).mean() > 0.9
    # A restart restores everything: the edits of parts before the new fit, and the accuracy curve.
    folder, samples, history = (
        workspace.project.folder,
        workspace.samples,
        list(workspace.predictor.history),
    )
    workspace.close()
    again = Workspace(samples, folder)
    again.prepare()
    again.wait()
    settings = again.predictor.settings
    assert settings.names == {0: "warm ones"} and settings.frozen == {1}
    assert settings.forbidden == {(part, "g0")}
    assert history and again.predictor.history[: len(history) - 1] == history[:-1]
    again.close()


def test_parts_are_left_alone_while_their_numbers_change(workspace, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    recompute = workspace.predictor.recompute

    def slowly(predictions):
        began.set()
        assert go_on.wait(20)
        return recompute(predictions)

    monkeypatch.setattr(workspace.predictor, "recompute", slowly)
    workspace.edit_part({"do": "split", "part": 2}, window="w")
    assert began.wait(20)
    with pytest.raises(ValueError, match="computed"):
        workspace.edit_part({"do": "freeze", "part": 3}, window="w")
    go_on.set()
    workspace.wait()
    workspace.edit_part({"do": "freeze", "part": 3}, window="w")
    assert workspace.predictor.settings.frozen == {3}


@pytest.mark.parametrize(
    "words",
    [
        {"do": "melt", "part": 0},
        {"do": "name", "part": 99, "name": "x"},
        {"do": "name", "part": 0, "name": ""},
        {"do": "merge", "part": 0, "with": 0},
        {"do": "forbid", "part": 0, "class": "nobody"},
    ],
)
def test_wishes_that_make_no_sense(workspace, words):
    with pytest.raises(ValueError):
        workspace.edit_part(words, window="w")
    assert not workspace.journal.entries


def test_exports_repeat_the_answer(client, workspace, tmp_path):
    import partwise

    _, group = made()
    # Before the first fit there is no model to download.
    assert client.get("/api/export/model.partwise").status_code == 400
    for i in range(9):
        workspace.label([i], f"=g{group[i]}", window="w")
    workspace.wait()
    labels = client.get("/api/export/labels.csv").text.splitlines()
    assert labels[0] == "id,label" and labels[1] == "s0,'=g0" and len(labels) == 10
    rows = client.get("/api/export/assignments.csv").text.splitlines()
    assert len(rows) == 61 and rows[0] == "id,predicted_label,probability,given_label"
    path = tmp_path / "m.partwise"
    path.write_bytes(client.get("/api/export/model.partwise").content)
    again = partwise.load(path)
    assert (again.transduction_ == workspace.predictor.model.transduction_).all()
    assert "PartsClassifier" in client.get("/api/export/repeat.py").text
    assert client.get("/api/export/report.html").text.startswith("<!doctype html>")
    assert set(workspace.save_all()["files"]) >= {"labels.csv", "assignments.csv", "model.partwise"}


def test_the_studio_uses_embeddings_and_samples(tmp_path):
    """Check that the studio uses embeddings in addition to X.

    They separate classes that X does not.
    """
    told, group = made()
    noise = np.random.default_rng(1).uniform(0, 1, size=(60, 8))
    both = replace(told, X=noise, also=told.X)
    workspace = Workspace(both, tmp_path / "p")
    workspace.prepare()
    try:
        for i in range(9):
            workspace.label([i], f"group {group[i]}", window="w")
        workspace.wait()
        seen = workspace.predictions
        names = [seen.classes[c] for c in seen.label]
        right = np.mean([name == f"group {g}" for name, g in zip(names[9:], group[9:])])
        assert right > 0.9  # by the noise in X alone, a third would be correct by chance
        workspace.edit_part({"do": "split", "part": 0}, window="w")
        workspace.wait()
        assert len(workspace.predictor.model._features.prepared) > 1
        assert "samples.y, also=[samples.also])" in exports.repeat(workspace).decode()
    finally:
        workspace.close()
    assert fingerprint(both) != fingerprint(replace(both, also=both.also + 1))
    assert fingerprint(both) != fingerprint(replace(both, also=None))


def test_reviews_in_another_process_find_the_same(workspace, monkeypatch):
    for i in range(12):
        workspace.label([i], f"class {i % 3}", window="1")
    workspace.wait()
    here, before = workspace._last_review, workspace.predictor.weighting["members"]
    monkeypatch.setattr(predictions, "MANY", 0)
    monkeypatch.setattr("partwise.apps.studio.workspace.PAUSE", 0.0)
    workspace.predictor.history.clear()
    workspace._review_job.request()
    workspace.wait()
    process = workspace.predictor._process
    assert process is not None
    assert (
        workspace._last_review.sentences == here.sentences
        and workspace._last_review.recall == here.recall
    )
    after = workspace.predictor.weighting["members"]
    assert after.keys() == before.keys()
    np.testing.assert_allclose([*after.values()], [*before.values()], atol=1e-3)
    process.kill()  # the next review then runs in this process, and nothing is lost
    workspace.label([20], "class 2", window="1")
    workspace.wait()
    assert workspace.predictor._process is None
    assert workspace._last_review.history[-1].labels == 13


# Tests of faults that earlier attacks found.


def test_a_label_before_the_codes_is_refused_and_not_kept(samples, tmp_path):
    workspace = Workspace(samples, tmp_path / "p")
    client = TestClient(
        make_app(workspace), base_url=f"http://{HOST}", raise_server_exceptions=False
    )
    for name, words in (
        ("label", {"samples": [0], "label": "x"}),
        ("skip", {"samples": [0]}),
        ("undo", {}),
        ("part", {"do": "freeze", "part": 0}),
    ):
        answer = client.post(f"/api/{name}", json=words)
        assert answer.status_code == 503 and "preparing" in answer.json()["error"]
    for path in ("next", "sample?i=0", "parts", "list", "points", "answer", "progress", "state"):
        assert client.get(f"/api/{path}").status_code < 500 or path in (
            "next",
            "sample?i=0",
            "parts",
        )
    for path in ("picture/part/0", "picture/sample/0", "export/model.partwise"):
        assert client.get(f"/api/{path}").status_code in (400, 404)
    assert not workspace.journal.entries
    workspace.close()


ODD = [
    None,
    True,
    -1,
    0.5,
    10**30,
    "x",
    "\ud800",
    "a\nb",
    [],
    [[]],
    {},
    {"a": []},
    [None],
    [0, [0]],
    "9" * 5000,
]


@pytest.mark.parametrize("name", ["label", "skip", "undo", "part", "save"])
def test_words_of_any_type_get_a_sentence(workspace, name):
    client = TestClient(
        make_app(workspace), base_url=f"http://{HOST}", raise_server_exceptions=False
    )
    right = {
        "label": {"samples": [0], "label": "x", "window": "w", "seen": 0, "key": "k", "start": ""},
        "skip": {"samples": [1], "window": "w", "key": "k2"},
        "undo": {"window": "w", "of": "k", "key": "k3"},
        "part": {"do": "merge", "part": 0, "with": 0, "class": "x", "name": "y", "window": "w"},
        "save": {"window": "w"},
    }[name]
    for key in right:
        for value in ODD:
            body = json.dumps(right | {key: value}, ensure_ascii=True)
            answer = client.post(f"/api/{name}", content=body)
            assert answer.status_code < 500, (key, value)
            if answer.status_code != 200:
                assert answer.json()["error"], (key, value)
    workspace.wait()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"\xff", b'"', b"1"])
def test_deep_or_broken_json_gets_a_sentence(workspace, body):
    client = TestClient(
        make_app(workspace), base_url=f"http://{HOST}", raise_server_exceptions=False
    )
    answer = client.post("/api/label", content=body)
    assert answer.status_code == 400 and "JSON" in answer.json()["error"]


@pytest.mark.parametrize(
    "query", ["n=x", "n=-1", "n=", "start=-1", "start=" + "9" * 5000, "class=q"]
)
def test_odd_queries_get_a_sentence(workspace, query):
    client = TestClient(
        make_app(workspace), base_url=f"http://{HOST}", raise_server_exceptions=False
    )
    for name in ("list", "next", "sample"):
        assert client.get(f"/api/{name}?{query}").status_code < 500
    assert client.get(f"/api/list?{query}").status_code == 400


#: Cookies of other programs on other ports of this machine, which browsers send to the studio too.
COOKIES = [
    'settings={"a":1}',
    "x/y=1",
    "a b=c d",
    "=nothing",
    "alone",
    "a=b=c",
    'q="un;closed',
    "k=v,w",
    "k=\\054",
    "ü=ä",
    "k=\x01",
    "$Version=1",
    "Path=/",
    "secure",
    "k=;;;",
    "[]=1",
    "<a>=<b>",
    "k=%00",
    "k='x",
    "a@b=c:d",
    "(x)=y",
    "k=" + "x" * 3000,
    "partwise_9999=other",
    "partwise_8000=wrong",
]


@pytest.mark.parametrize("other", COOKIES)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_other_programs_cookies_are_none_of_our_business(workspace, other, first):
    guard = Guard(make_app(workspace), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
    ours = client.get(f"/?token={guard.new_token()}").headers["set-cookie"].split(";")[0]
    client.cookies.clear()
    both = f"{other}; {ours}" if first else f"{ours}; {other}"
    assert client.get("/api/state", headers={"cookie": both.encode("latin-1")}).status_code == 200
    alone = client.get("/api/state", headers={"cookie": other.encode("latin-1")})
    assert alone.status_code == 403


def test_wrong_passwords_slow_down_whoever_guesses_and_nobody_else(workspace):
    now = [0.0]
    guard = Guard(make_app(workspace), {HOST}, password="open sesame")
    guard._guesses = Guesses(lambda: now[0])

    def client(address):
        return TestClient(
            guard,
            base_url=f"http://{HOST}",
            headers=HERE,
            follow_redirects=False,
            client=(address, 1),
        )

    bad, good = client("10.0.0.1"), client("10.0.0.2")
    codes = [bad.post("/login", data={"password": "guess"}).status_code for _ in range(25)]
    assert codes[:5] == [401] * 5 and set(codes[5:]) == {429}
    assert bad.post("/login", data={"password": "open sesame"}).status_code == 429
    assert good.get("/").status_code == 200
    assert good.post("/login", data={"password": "open sesame"}).status_code == 303
    tries = 0
    while now[0] < 3600:  # the simulated time of an hour
        now[0] += 10
        tries += bad.post("/login", data={"password": "guess"}).status_code == 401
    assert tries <= 3600 / 60 + 7
    now[0] += 61
    assert bad.post("/login", data={"password": "open sesame"}).status_code == 303


def test_many_addresses_take_no_memory():
    guesses = Guesses()
    for i in range(Guesses.MAX + 100):
        guesses.wrong({"client": (f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", 1)})
    assert len(guesses._wrong) == Guesses.MAX
    for i in range(10):
        guesses.wrong({"client": (f"2001:db8::{i}", 1)})
    # Addresses of one IPv6 network count as one client.
    assert guesses.wait({"client": ("2001:db8::ffff", 1)}) > 1


def test_no_more_listeners_than_are_allowed(samples, kept, tmp_path):
    """Check that the number of open event streams is limited.

    The limit also holds if all clients connect before any stream has begun.
    """
    import socket

    from partwise.studio import start

    shutil.copytree(kept, tmp_path / "p")
    with start(samples, tmp_path / "p") as studio:
        host, port = "127.0.0.1", int(re.search(r":(\d+)/", studio.url)[1])
        opened = []

        def ask():
            line = socket.create_connection((host, port), timeout=20)
            opened.append(line)
            request = f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n"
            line.sendall(request.encode())
            statuses.append(int(line.recv(12).split()[1]))

        cookie = cookie_of(studio)
        statuses = []
        threads = [threading.Thread(target=ask) for _ in range(150)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert statuses.count(200) == 100 and statuses.count(503) == 50
        [line.close() for line in opened]
        statuses.clear()
        for _ in range(100):  # closed connections leave room for others
            ask()
            opened[-1].close()
            if statuses[-1] == 200:
                break
            time.sleep(0.1)
        assert statuses[-1] == 200


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def cookie_of(studio):
    """Return the cookie that the studio sets on the first visit."""
    with pytest.raises(urllib.error.HTTPError) as welcome:
        urllib.request.build_opener(NoRedirect).open(studio.url)
    welcome.value.close()
    return welcome.value.headers["set-cookie"].split(";")[0]


def test_a_full_disk_is_a_sentence(client, workspace, monkeypatch):
    import errno

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("partwise.apps.studio.journal.os.fsync", full)
        answer = client.post("/api/label", json={"samples": [0], "label": "x"})
        assert answer.status_code == 507
        assert "No space" in answer.json()["error"]
        assert client.post("/api/save", json={}).status_code == 507
    assert not workspace.labels
    assert client.post("/api/label", json={"samples": [1], "label": "x"}).status_code == 200
    again = Journal(workspace.project.journal)
    assert again.labels == {"s1": "x"}
    again.close()


def test_with_a_full_disk_the_studio_still_starts_and_says_so(samples, tmp_path, monkeypatch):
    import errno

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    workspace = Workspace(samples, tmp_path / "p")
    told = []
    workspace.listener = lambda kind, content: told.append((kind, content))
    monkeypatch.setattr(workspace.project, "save", full)
    monkeypatch.setattr(workspace.project, "save_history", full)
    workspace.prepare()
    assert workspace.ready and any(k == "trouble" and "No space" in c["text"] for k, c in told)
    for i in range(6):
        workspace.label([i], f"g{i % 3}", window="w")
    workspace.wait()
    assert workspace.state()["ready"] and len(workspace.labels) == 6
    workspace.close()


@pytest.mark.parametrize("how", ["missing", "damaged", "of other codes", "killed in between"])
def test_edits_of_parts_survive_lost_part_weights(workspace, how):
    """Check that edits of parts in the journal are applied again if the part weights are lost."""
    for i in range(6):
        workspace.label([i], f"g{i % 3}", window="w")
    workspace.edit_part({"do": "name", "part": 5, "name": "five"}, window="w")
    workspace.edit_part({"do": "freeze", "part": 6}, window="w")
    before = workspace.project.parts.read_bytes()
    workspace.edit_part({"do": "merge", "part": 0, "with": 1}, window="w")
    workspace.wait()
    workspace.edit_part({"do": "name", "part": 3, "name": "three"}, window="w")
    k = len(workspace.predictor.parts)
    names, frozen = (
        dict(workspace.predictor.settings.names),
        set(workspace.predictor.settings.frozen),
    )
    assert names == {4: "five", 3: "three"} and frozen == {5}
    codes, folder, samples = workspace.project.parts, workspace.project.folder, workspace.samples
    workspace.close()
    if how == "missing":
        codes.unlink()
    elif how == "damaged":
        codes.write_bytes(codes.read_bytes()[:-100])
    elif how == "of other codes":
        codes.write_bytes(before)
    for _ in range(2):  # the second start must restore the edits, too
        again = Workspace(samples, folder)
        if how == "killed in between" and _ == 0:
            again.project.save = lambda *args, **kwargs: None
        again.prepare()
        again.wait()
        assert len(again.predictor.parts) == k
        assert again.predictor.settings.names == names and again.predictor.settings.frozen == frozen
        again.close()


def test_the_old_codes_stay_until_the_new_ones_are_there(workspace, monkeypatch):
    def fail(self, path):
        raise OSError(28, "No space left on device")

    codes = workspace.project.parts.read_bytes()
    monkeypatch.setattr(type(workspace.predictor.model), "save", fail)
    with pytest.raises(OSError, match="No space"):
        workspace.predictor.save(workspace.project.parts)
    assert workspace.project.parts.read_bytes() == codes


def test_an_act_that_comes_again_is_done_once(client, workspace):
    words = {"samples": [0], "label": "x", "window": "w", "key": "w-1"}
    for _ in range(3):
        assert client.post("/api/label", json=words).status_code == 200
    assert client.post("/api/label", json=words | {"samples": [1], "key": "w-2"}).status_code == 200
    for _ in range(3):
        answer = client.post("/api/undo", json={"window": "w", "of": "w-2", "key": "w-3"})
        assert answer.status_code == 200 and answer.json()["undone"][0]["i"] == 1
    assert workspace.labels == {"s0": "x"} and len(workspace.journal.entries) == 3


def test_ones_own_acts_are_no_conflict_and_those_of_another_start_are_seen(workspace):
    client = TestClient(make_app(workspace), base_url=f"http://{HOST}")
    words = {"samples": [5], "window": "one", "seen": 0, "start": workspace.start}
    assert client.post("/api/label", json=words | {"label": "x"}).status_code == 200
    assert client.post("/api/label", json=words | {"label": "y"}).status_code == 200
    late = {"samples": [5], "window": "two", "seen": 99, "label": "z"}
    assert client.post("/api/label", json=late | {"start": "another"}).status_code == 409
    assert workspace.labels == {"s5": "y"}


def test_a_second_start_knows_open_windows(samples, kept, tmp_path):
    from partwise.studio import start

    shutil.copytree(kept, tmp_path / "p")
    with start(samples, tmp_path / "p") as studio:
        cookie = cookie_of(studio)
        first = studio.url.split("?")[0]
    with start(samples, tmp_path / "p") as studio:
        assert studio.url.split("?")[0] == first and cookie not in studio.url
        asked = urllib.request.Request(f"{first}api/state", headers={"Cookie": cookie})
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 200
        shutil.copytree(kept, tmp_path / "q")
        shutil.copy(tmp_path / "p" / ".connection.json", tmp_path / "q")
        # As the port is in use, another one is chosen.
        with start(samples, tmp_path / "q") as other:
            assert other.url.split("?")[0] != first
    assert (tmp_path / "p" / ".connection.json").stat().st_mode & 0o077 == 0
    # Another password invalidates the cookies.
    with start(samples, tmp_path / "p", password="new") as studio:
        at = studio.url.split("?")[0]
        asked = urllib.request.Request(f"{at}api/state", headers={"Cookie": cookie})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(asked)
        refused.value.close()


# Tests of renamed, merged and deleted classes.


def test_classes_are_renamed_merged_and_deleted(client, workspace):
    for i in range(9):
        workspace.label([i], f"g{i % 3}", window="w")
    workspace.edit_part({"do": "forbid", "part": 2, "class": "g0"}, window="w")
    workspace.wait()
    words = {"class": "g0", "to": " new  name ", "window": "w", "key": "w-1"}
    for _ in range(2):  # a repeated request has no further effect
        assert client.post("/api/rename", json=words).json()["classes"] == ["g1", "g2", "new name"]
    assert workspace.labels["s0"] == "new name" and workspace.predictor.settings.forbidden == {
        (2, "new name")
    }
    folder, samples = workspace.project.folder, workspace.samples
    # Renaming to an existing class merges the two.
    client.post("/api/rename", json={"class": "g1", "to": "g2", "window": "w"})
    assert workspace.current()["classes"] == ["g2", "new name"] and len(workspace.labels) == 9
    client.post("/api/undo", json={"window": "w"})
    assert workspace.labels["s1"] == "g1"
    # Renaming to None deletes the class.
    client.post("/api/rename", json={"class": "g1", "to": None, "window": "w"})
    assert workspace.current()["classes"] == ["g2", "new name"] and len(workspace.labels) == 6
    assert client.post("/api/rename", json={"class": "g1", "to": "x"}).status_code == 400
    assert client.post("/api/rename", json={"class": "g2", "to": "g2"}).status_code == 400
    assert client.post("/api/rename", json={"class": ["g2"], "to": "x"}).status_code == 400
    labels = workspace.labels
    workspace.close()
    again = Workspace(samples, folder)
    again.prepare()
    again.wait()
    assert again.labels == labels and again.predictor.settings.forbidden == {(2, "new name")}
    again.undo(window="w")
    assert again.labels["s1"] == "g1"
    again.close()


def test_the_list_is_searched_by_id_and_text(tmp_path):
    texts = [f"Apples and {'PEARS' if i % 2 else 'plums'} {i}" for i in range(60)]
    samples = made(texts=texts)[0]
    workspace = Workspace(samples, tmp_path / "p")
    client = TestClient(make_app(workspace), base_url=f"http://{HOST}")
    workspace.prepare()

    def ids(search, **more):
        return [
            row["id"]
            for row in client.get("/api/list", params={"search": search, **more}).json()["samples"]
        ]

    assert len(ids("pears", n=100)) == 30 and len(ids("", n=100)) == 60
    assert ids("s17") == ["s17"] and ids("PLUMS s17") == [] and ids("pears s17") == ["s17"]
    workspace.close()


def test_a_text_is_there_as_a_whole(tmp_path):
    whole = [f"beginning {i}\n" + "word " * 900 + "ending" for i in range(60)]
    samples = replace(made(texts=[text[:300] for text in whole])[0], whole_texts=whole)
    workspace = Workspace(samples, tmp_path / "p")
    client = TestClient(make_app(workspace), base_url=f"http://{HOST}")
    workspace.prepare()
    assert client.get("/api/sample", params={"i": 7}).json()["more"] is True
    assert client.get("/api/text", params={"i": 7}).json()["text"] == whole[7]
    assert client.get("/api/text", params={"i": 60}).status_code == 400
    found = client.get("/api/list", params={"search": "ending", "n": 100}).json()
    assert len(found["samples"]) == 60
    workspace.close()


def test_a_studio_that_fails_to_start_closes_its_socket(samples, tmp_path, monkeypatch):
    """Check that the socket is closed if the server ends while it starts.

    uvicorn 0.34 does not close it.
    """
    from partwise.apps.studio import server

    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    opened, listen = [], server.listen
    monkeypatch.setattr(server, "listen", lambda *a: opened.append(listen(*a)) or opened[-1])
    with server.start(samples, tmp_path / "p"):
        pass
    assert [door.fileno() for door in opened] == [-1]


def test_label_studio_takes_the_labels_and_gives_them_back(client, workspace, tmp_path):
    for i in range(6):
        workspace.label([i], f"g{i % 3}", window="w")
    workspace.wait()
    content = client.get("/api/export/label-studio.json").content
    tasks = json.loads(content)
    assert [task["data"]["id"] for task in tasks] == workspace.samples.ids
    assert tasks[1]["annotations"][0]["result"][0]["value"] == {"choices": ["g1"]}
    assert "annotations" not in tasks[9] and 0 < tasks[9]["predictions"][0]["score"] <= 1
    (tmp_path / "tasks.json").write_bytes(content)
    y = read_labels(tmp_path / "tasks.json", workspace.samples.ids)
    given = {name: label for name, label in zip(workspace.samples.ids, y) if label is not None}
    assert given == workspace.labels
