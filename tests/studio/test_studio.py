"""The studio: the guard, the desk, attacks, parts, exports, reviews."""

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

from partwise.apps.studio.access import MOST_BYTES, Guard, Guesses
from partwise.apps.studio.answers import Judge
from partwise.apps.studio.app import make_app
from partwise.apps.studio.journal import Journal
from partwise.apps.studio.project import Project, fingerprint
from partwise.apps.studio.workspace import Desk
from partwise.io import read_labels
from partwise.io.samples import Samples

HOST = "127.0.0.1:8000"
HERE = {"host": HOST, "origin": f"http://{HOST}"}
NASTY = '<script>alert("x")</script>&<img src=x onerror=alert(1)>'


def made(n=60, *, texts=None, ids=None):
    """Three groups of samples, ten features each."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % 3
    X = rng.uniform(0, 0.2, size=(n, 30))
    for g in range(3):
        X[group == g, 10 * g : 10 * g + 10] += rng.uniform(0.5, 1, size=((group == g).sum(), 10))
    ids = [f"s{i}" for i in range(n)] if ids is None else ids
    return Samples(X, ids, "table", texts=texts, source="made"), group


@pytest.fixture
def samples():
    return made()[0]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A project with codes and a map, so that a start is immediate."""
    folder = tmp_path_factory.mktemp("studio") / "project"
    samples = made()[0]
    desk = Desk(samples, Project(folder, samples), Judge(samples))
    desk.prepare()
    desk.close()
    return folder


@pytest.fixture
def desk(samples, kept, tmp_path):
    shutil.copytree(kept, tmp_path / "project")
    desk = Desk(samples, Project(tmp_path / "project", samples), Judge(samples))
    desk.prepare()
    yield desk
    desk.close()


@pytest.fixture
def client(desk):
    guard = Guard(make_app(desk), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE)
    client.get(f"/?token={guard.new_token()}")
    return client


# the project


def test_project_refuses_other_data_and_a_second_studio(samples, tmp_path):
    first = Project(tmp_path / "p", samples)
    with pytest.raises(ValueError, match="Another studio"):
        Project(tmp_path / "p", samples)
    first.close()
    other = replace(made(30)[0], source="elsewhere")
    with pytest.raises(ValueError, match="other data"):
        Project(tmp_path / "p", other)


def test_data_that_grew_keep_their_labels_by_id(samples, kept, tmp_path):
    shutil.copytree(kept, tmp_path / "p")
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    desk.prepare()
    for i, name in ((0, "a"), (1, "b"), (59, "c")):
        desk.label([i], name, window="w")
    desk.edit_part({"do": "name", "part": 0, "name": "of old"}, window="w")
    desk.close()
    more = made(90)[0]
    ids = [f"s{i}" for i in range(30, 90)] + [f"s{i}" for i in range(30)]
    grown = replace(more, X=np.roll(more.X, 60, axis=0), ids=ids)  # new samples come in between
    project = Project(tmp_path / "p", grown)
    assert "3 labels stay with their ids" in project.news and "60 samples of made" in project.news
    desk = Desk(grown, project, Judge(grown))
    desk.prepare()
    assert desk.labels == {"s0": "a", "s1": "b", "s59": "c"}
    assert desk.by_row() == {60: "a", 61: "b", 29: "c"}
    assert len(desk.judge.codes) == 90 and not desk.judge.wishes.names  # parts are others now
    desk.close()
    again = Project(tmp_path / "p", grown)
    assert not again.news and again.points() is not None
    again.close()
    few = replace(more, X=more.X[5:], ids=[f"s{i}" for i in range(5, 90)])
    with pytest.raises(ValueError, match="2 of the 3 labelled samples are not there"):
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
        with pytest.raises(ValueError, match="--id-column names rows"):
            Project(tmp_path / "p", rows(other))


# the desk


def test_labels_change_the_answer_and_stay(desk, samples):
    _, group = made()
    for i in (0, 1, 2, 3, 4, 5):
        answer = desk.label([i], f"g{group[i]}", window="w")
    assert answer["classes"] == ["g0", "g1", "g2"]
    found = np.array([desk.opinion.classes[c] for c in desk.opinion.names])
    assert (found == np.array([f"g{g}" for g in group])).mean() > 0.95
    assert desk.opinion.given.sum() == 6
    assert all(entry["i"] not in range(6) for entry in desk.next(20))
    assert desk.labels["s4"] == "g1"


def test_the_queue_never_asks_twice(desk):
    seen = set()
    for _ in range(60):
        queue = desk.next(3)
        if not queue:
            break
        i = queue[0]["i"]
        assert i not in seen
        seen.add(i)
        if len(seen) % 3:
            desk.label([i], f"g{i % 3}", window="w")
        else:
            desk.skip([i], window="w")
    assert len(seen) == 60 and not desk.next(3)


def test_two_windows_do_not_overwrite_each_other(desk):
    seen = desk.answer()["version"]
    desk.label([5], "x", window="one", seen=seen)
    with pytest.raises(ValueError, match="another window"):
        desk.label([5], "y", window="two", seen=seen)
    desk.label([6], "y", window="two", seen=seen)  # another sample is nobody's business
    assert desk.labels == {"s5": "x", "s6": "y"}


def test_many_threads_lose_nothing(desk):
    def work(k):
        for i in range(k, 60, 6):
            desk.label([i], f"g{i % 3}", window=str(k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(desk.labels) == 60
    again = Journal(desk.project.journal)
    assert again.labels == desk.labels
    again.close()


# attacks


def test_without_the_token_nothing(desk):
    guard = Guard(make_app(desk), {HOST})
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
    assert not desk.labels


def test_a_token_works_once(desk):
    guard = Guard(make_app(desk), {HOST})
    first, second = guard.new_token(), guard.new_token()
    mine, other = (
        TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
        for _ in range(2)
    )
    assert mine.get(f"/?token={first}").status_code == 303
    # another user's program, which read it in the browser's command line
    assert other.get(f"/?token={first}").status_code == 403
    assert other.get("/api/state").status_code == 403
    assert mine.get(f"/?token={first}").status_code == 200  # by its cookie
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


def test_a_huge_request_is_refused(client, desk):
    body = b'{"samples":[0],"label":"' + b"x" * 100_000_000 + b'"}'
    assert client.post("/api/label", content=body).status_code == 413
    lying = client.post("/api/label", content=(b"x" * 100_000 for _ in range(MOST_BYTES // 50_000)))
    assert lying.status_code == 400
    assert client.post("/api/label", json={"samples": [0], "label": "x" * 201}).status_code == 400
    assert not desk.labels


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
def test_bad_words_get_a_sentence(client, desk, words):
    answer = client.post("/api/label", json=words)
    assert answer.status_code == 400 and answer.json()["error"]
    assert not desk.labels


@pytest.mark.parametrize("act", ("label", "skip"))
def test_a_sample_that_is_not_there_is_named(client, act):
    answer = client.post(f"/api/{act}", json={"samples": [3, 60, 5], "label": "x"})
    assert answer.status_code == 400 and "60" in answer.json()["error"]


def test_markup_is_text(tmp_path):
    texts = [f"{NASTY} number {i}" for i in range(60)]
    samples = made(texts=texts, ids=[f"{NASTY}{i}" for i in range(60)])[0]
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    desk.prepare()
    guard = Guard(make_app(desk), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE)
    client.get(f"/?token={guard.new_token()}")
    answer = client.post("/api/label", json={"samples": [0], "label": NASTY})
    assert answer.json()["classes"] == [NASTY]
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = client.get("/")
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    desk.close()


def test_no_script_of_the_page_writes_markup():
    from importlib import resources

    for file in (resources.files("partwise.apps.studio") / "page").iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"https?://", text), "the page loads nothing from a network"


def test_a_password_in_place_of_the_token(desk):
    guard = Guard(make_app(desk), {HOST}, password="open sesame")
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
    assert client.get(f"/?token={guard.new_token()}").status_code == 200  # the form
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
        here = f"http://127.0.0.2:{port}/"  # not among the names that were known at the start
        assert b"Password" in urlopen(here).read()
        with pytest.raises(OSError, match="421"):
            urlopen(Request(here, headers={"Host": f"evil.example:{port}"}))


def test_fifty_clients(client, desk):
    def work(k):
        for i in range(k, 60, 50):
            answer = client.post(
                "/api/label", json={"samples": [i], "label": f"g{i % 3}", "window": str(k)}
            )
            assert answer.status_code == 200

    threads = [threading.Thread(target=work, args=(k,)) for k in range(50)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(desk.labels) == 60


# parts


def test_parts_are_named_frozen_merged_split_and_forbidden(desk):
    _, group = made()
    for i in range(9):
        desk.label([i], f"g{group[i]}", window="w")
    before = desk.judge.components.copy()
    k = len(before)
    assert desk.edit_part({"do": "name", "part": 0, "name": " warm  ones "}, window="w")
    assert desk.parts()["parts"][0]["name"] == "warm ones"
    desk.edit_part({"do": "freeze", "part": 1}, window="w")
    desk.edit_part({"do": "split", "part": 2}, window="w")
    desk.wait()
    assert len(desk.judge.components) == k + 1 and desk.judge.codes.shape == (60, k + 1)
    np.testing.assert_array_equal(desk.judge.components[1], before[1])  # to the last bit
    desk.edit_part({"do": "merge", "part": 3, "with": 4}, window="w")
    desk.wait()
    assert len(desk.judge.components) == k
    users = desk.judge.codes[group == 0].sum(axis=0)
    part = int(users.argmax())
    desk.edit_part({"do": "forbid", "part": part, "class": "g0"}, window="w")
    desk.wait()
    after = desk.judge.codes[group == 0][:, part].sum()
    assert after < 0.5 * users[part]
    found = np.array([desk.opinion.classes[c] for c in desk.opinion.names])
    assert (found == np.array([f"g{g}" for g in group])).mean() > 0.9  # answers go on
    # a second start knows all of it: what was said before the codes were new, and the curve
    folder, samples, history = desk.project.folder, desk.samples, list(desk.judge.history)
    desk.close()
    again = Desk(samples, Project(folder, samples), Judge(samples))
    again.prepare()
    again.wait()
    assert again.judge.wishes.names == {0: "warm ones"} and again.judge.wishes.frozen == {1}
    assert again.judge.wishes.forbidden == {(part, "g0")}
    assert history and again.judge.history[: len(history) - 1] == history[:-1]
    again.close()


def test_parts_are_left_alone_while_their_numbers_change(desk, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    recode = desk.judge.recode

    def slowly(opinion):
        began.set()
        assert go_on.wait(20)
        recode(opinion)

    monkeypatch.setattr(desk.judge, "recode", slowly)
    desk.edit_part({"do": "split", "part": 2}, window="w")
    assert began.wait(20)
    with pytest.raises(ValueError, match="computed anew"):
        desk.edit_part({"do": "freeze", "part": 3}, window="w")
    go_on.set()
    desk.wait()
    desk.edit_part({"do": "freeze", "part": 3}, window="w")
    assert desk.judge.wishes.frozen == {3}


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
def test_wishes_that_make_no_sense(desk, words):
    with pytest.raises(ValueError):
        desk.edit_part(words, window="w")
    assert not desk.journal.acts


def test_exports_repeat_the_answer(client, desk, tmp_path):
    import partwise

    _, group = made()
    assert client.get("/api/export/model.partwise").status_code == 400  # no answer yet
    for i in range(9):
        desk.label([i], f"=g{group[i]}", window="w")
    desk.wait()
    labels = client.get("/api/export/labels.csv").text.splitlines()
    assert labels[0] == "id,label" and labels[1] == "s0,'=g0" and len(labels) == 10
    rows = client.get("/api/export/assignments.csv").text.splitlines()
    assert len(rows) == 61 and rows[0] == "id,predicted_label,probability,given_label"
    path = tmp_path / "m.partwise"
    path.write_bytes(client.get("/api/export/model.partwise").content)
    again = partwise.load(path)
    assert (again.transduction_ == desk.judge.model.transduction_).all()
    assert "PartsClassifier" in client.get("/api/export/repeat.py").text
    assert client.get("/api/export/report.html").text.startswith("<!doctype html>")
    assert set(desk.save_all()["files"]) >= {"labels.csv", "assignments.csv", "model.partwise"}


def test_vectors_beside_the_samples_are_heard(tmp_path):
    """As ``--also`` of the other commands: what X does not tell, the vectors do."""
    told, group = made()
    noise = np.random.default_rng(1).uniform(0, 1, size=(60, 8))
    both = replace(told, X=noise, also=told.X)
    desk = Desk(both, Project(tmp_path / "p", both), Judge(both))
    desk.prepare()
    try:
        for i in range(9):
            desk.label([i], f"group {group[i]}", window="w")
        desk.wait()
        seen = desk.opinion
        names = [seen.classes[c] for c in seen.names]
        right = np.mean([name == f"group {g}" for name, g in zip(names[9:], group[9:])])
        assert right > 0.9  # a third by chance, which is what the noise alone gives
        desk.edit_part({"do": "split", "part": 0}, window="w")
        desk.wait()
        assert len(desk.judge.model._features.others) > 0
        assert "samples.y, also=[samples.also])" in desk.export("repeat.py")[0].decode()
    finally:
        desk.close()
    assert fingerprint(both) != fingerprint(replace(both, also=both.also + 1))
    assert fingerprint(both) != fingerprint(replace(both, also=None))


def test_reviews_of_many_samples_are_another_process_and_say_the_same(desk, monkeypatch):
    from partwise.apps.studio import answers

    for i in range(12):
        desk.label([i], f"class {i % 3}", window="1")
    desk.wait()
    here, weights = desk._review_of, desk.judge.model._state["answer"]["weights"]
    monkeypatch.setattr(answers, "MANY", 0)
    monkeypatch.setattr("partwise.apps.studio.workspace.PAUSE", 0.0)
    desk.judge.history.clear()
    desk._reviewer.ask()
    desk.wait()
    helper = desk.judge._helper
    assert helper is not None
    assert desk._review_of.text == here.text and desk._review_of.right == here.right
    np.testing.assert_allclose(desk.judge.model._state["answer"]["weights"], weights, atol=1e-3)
    helper.kill()  # the review is then done here, and nothing is lost
    desk.label([20], "class 2", window="1")
    desk.wait()
    assert desk.judge._helper is None and desk._review_of.history[-1].labels == 13


# what an attack found


def test_a_label_before_the_codes_is_refused_and_not_kept(samples, tmp_path):
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    client = TestClient(make_app(desk), base_url=f"http://{HOST}", raise_server_exceptions=False)
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
    assert not desk.journal.acts
    desk.close()


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
def test_words_of_any_type_get_a_sentence(desk, name):
    client = TestClient(make_app(desk), base_url=f"http://{HOST}", raise_server_exceptions=False)
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
    desk.wait()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"\xff", b'"', b"1"])
def test_deep_or_broken_json_gets_a_sentence(desk, body):
    client = TestClient(make_app(desk), base_url=f"http://{HOST}", raise_server_exceptions=False)
    answer = client.post("/api/label", content=body)
    assert answer.status_code == 400 and "JSON" in answer.json()["error"]


@pytest.mark.parametrize(
    "query", ["n=x", "n=-1", "n=", "start=-1", "start=" + "9" * 5000, "class=q"]
)
def test_odd_queries_get_a_sentence(desk, query):
    client = TestClient(make_app(desk), base_url=f"http://{HOST}", raise_server_exceptions=False)
    for name in ("list", "next", "sample"):
        assert client.get(f"/api/{name}?{query}").status_code < 500
    assert client.get(f"/api/list?{query}").status_code == 400


#: What other programs on this machine, on other ports, may have set; all are sent to us too.
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
def test_other_programs_cookies_are_none_of_our_business(desk, other, first):
    guard = Guard(make_app(desk), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE, follow_redirects=False)
    ours = client.get(f"/?token={guard.new_token()}").headers["set-cookie"].split(";")[0]
    client.cookies.clear()
    both = f"{other}; {ours}" if first else f"{ours}; {other}"
    assert client.get("/api/state", headers={"cookie": both.encode("latin-1")}).status_code == 200
    alone = client.get("/api/state", headers={"cookie": other.encode("latin-1")})
    assert alone.status_code == 403


def test_wrong_passwords_slow_down_whoever_guesses_and_nobody_else(desk):
    now = [0.0]
    guard = Guard(make_app(desk), {HOST}, password="open sesame")
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
    while now[0] < 3600:  # an hour of guessing
        now[0] += 10
        tries += bad.post("/login", data={"password": "guess"}).status_code == 401
    assert tries <= 3600 / 60 + 7
    now[0] += 61
    assert bad.post("/login", data={"password": "open sesame"}).status_code == 303


def test_many_addresses_take_no_memory():
    guesses = Guesses()
    for i in range(Guesses.MOST + 100):
        guesses.wrong({"client": (f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", 1)})
    assert len(guesses._wrong) == Guesses.MOST
    for i in range(10):
        guesses.wrong({"client": (f"2001:db8::{i}", 1)})
    assert guesses.wait({"client": ("2001:db8::ffff", 1)}) > 1  # one machine, many addresses


def test_no_more_listeners_than_are_allowed(samples, kept, tmp_path):
    """All ask at once, before any stream has begun."""
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
        for _ in range(100):  # places that were left are free again
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
    """The cookie that the first visit brings."""
    with pytest.raises(urllib.error.HTTPError) as welcome:
        urllib.request.build_opener(NoRedirect).open(studio.url)
    welcome.value.close()
    return welcome.value.headers["set-cookie"].split(";")[0]


def test_a_full_disk_is_a_sentence(client, desk, monkeypatch):
    import errno

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("partwise.apps.studio.journal.os.fsync", full)
        answer = client.post("/api/label", json={"samples": [0], "label": "x"})
        assert answer.status_code == 507
        assert "not kept" in answer.json()["error"] and "No space" in answer.json()["error"]
        assert client.post("/api/save", json={}).status_code == 507
    assert not desk.labels
    assert client.post("/api/label", json={"samples": [1], "label": "x"}).status_code == 200
    again = Journal(desk.project.journal)
    assert again.labels == {"s1": "x"}
    again.close()


def test_with_a_full_disk_the_studio_still_starts_and_says_so(samples, tmp_path, monkeypatch):
    import errno

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    told = []
    desk.listener = lambda kind, content: told.append((kind, content))
    monkeypatch.setattr(desk.project, "keep", full)
    monkeypatch.setattr(desk.project, "keep_history", full)
    desk.prepare()
    assert desk.ready and any(k == "trouble" and "No space" in c["text"] for k, c in told)
    for i in range(6):
        desk.label([i], f"g{i % 3}", window="w")
    desk.wait()
    assert desk.state()["ready"] and len(desk.labels) == 6
    desk.close()


@pytest.mark.parametrize("how", ["missing", "damaged", "of other codes", "killed in between"])
def test_wishes_about_parts_survive_lost_codes(desk, how):
    """Names, a freeze, a merge, a name by the numbers after it: all that the journal says."""
    for i in range(6):
        desk.label([i], f"g{i % 3}", window="w")
    desk.edit_part({"do": "name", "part": 5, "name": "five"}, window="w")
    desk.edit_part({"do": "freeze", "part": 6}, window="w")
    before = desk.project.codes.read_bytes()
    desk.edit_part({"do": "merge", "part": 0, "with": 1}, window="w")
    desk.wait()
    desk.edit_part({"do": "name", "part": 3, "name": "three"}, window="w")
    k = len(desk.judge.components)
    names, frozen = dict(desk.judge.wishes.names), set(desk.judge.wishes.frozen)
    assert names == {4: "five", 3: "three"} and frozen == {5}
    codes, folder, samples = desk.project.codes, desk.project.folder, desk.samples
    desk.close()
    if how == "missing":
        codes.unlink()
    elif how == "damaged":
        codes.write_bytes(codes.read_bytes()[:-100])
    elif how == "of other codes":
        codes.write_bytes(before)
    for _ in range(2):  # and at the start after that
        again = Desk(samples, Project(folder, samples), Judge(samples))
        if how == "killed in between" and _ == 0:
            again.project.keep = lambda *args, **kwargs: None
        again.prepare()
        again.wait()
        assert len(again.judge.components) == k
        assert again.judge.wishes.names == names and again.judge.wishes.frozen == frozen
        again.close()


def test_the_old_codes_stay_until_the_new_ones_are_there(desk, monkeypatch):
    def fail(self, path):
        raise OSError(28, "No space left on device")

    codes = desk.project.codes.read_bytes()
    monkeypatch.setattr(type(desk.judge.model), "save", fail)
    with pytest.raises(OSError, match="No space"):
        desk.judge.keep(desk.project.codes)
    assert desk.project.codes.read_bytes() == codes


def test_an_act_that_comes_again_is_done_once(client, desk):
    words = {"samples": [0], "label": "x", "window": "w", "key": "w-1"}
    for _ in range(3):
        assert client.post("/api/label", json=words).status_code == 200
    assert client.post("/api/label", json=words | {"samples": [1], "key": "w-2"}).status_code == 200
    for _ in range(3):
        answer = client.post("/api/undo", json={"window": "w", "of": "w-2", "key": "w-3"})
        assert answer.status_code == 200 and answer.json()["undone"][0]["i"] == 1
    assert desk.labels == {"s0": "x"} and len(desk.journal.acts) == 3


def test_ones_own_acts_are_no_conflict_and_those_of_another_start_are_seen(desk):
    client = TestClient(make_app(desk), base_url=f"http://{HOST}")
    words = {"samples": [5], "window": "one", "seen": 0, "start": desk.start}
    assert client.post("/api/label", json=words | {"label": "x"}).status_code == 200
    assert client.post("/api/label", json=words | {"label": "y"}).status_code == 200
    late = {"samples": [5], "window": "two", "seen": 99, "label": "z"}
    assert client.post("/api/label", json=late | {"start": "another"}).status_code == 409
    assert desk.labels == {"s5": "y"}


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
        shutil.copy(tmp_path / "p" / ".door.json", tmp_path / "q")
        with start(samples, tmp_path / "q") as other:  # the port is taken: another one
            assert other.url.split("?")[0] != first
    assert (tmp_path / "p" / ".door.json").stat().st_mode & 0o077 == 0
    with start(samples, tmp_path / "p", password="new") as studio:  # is another key
        at = studio.url.split("?")[0]
        asked = urllib.request.Request(f"{at}api/state", headers={"Cookie": cookie})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(asked)
        refused.value.close()


# classes at the desk


def test_classes_are_renamed_merged_and_deleted(client, desk):
    for i in range(9):
        desk.label([i], f"g{i % 3}", window="w")
    desk.edit_part({"do": "forbid", "part": 2, "class": "g0"}, window="w")
    desk.wait()
    words = {"class": "g0", "to": " new  name ", "window": "w", "key": "w-1"}
    for _ in range(2):  # one that comes again is done once
        assert client.post("/api/rename", json=words).json()["classes"] == ["g1", "g2", "new name"]
    assert desk.labels["s0"] == "new name" and desk.judge.wishes.forbidden == {(2, "new name")}
    folder, samples = desk.project.folder, desk.samples
    client.post("/api/rename", json={"class": "g1", "to": "g2", "window": "w"})  # merged
    assert desk.answer()["classes"] == ["g2", "new name"] and len(desk.labels) == 9
    client.post("/api/undo", json={"window": "w"})
    assert desk.labels["s1"] == "g1"
    client.post("/api/rename", json={"class": "g1", "to": None, "window": "w"})  # deleted
    assert desk.answer()["classes"] == ["g2", "new name"] and len(desk.labels) == 6
    assert client.post("/api/rename", json={"class": "g1", "to": "x"}).status_code == 400
    assert client.post("/api/rename", json={"class": "g2", "to": "g2"}).status_code == 400
    assert client.post("/api/rename", json={"class": ["g2"], "to": "x"}).status_code == 400
    labels = desk.labels
    desk.close()
    again = Desk(samples, Project(folder, samples), Judge(samples))
    again.prepare()
    again.wait()
    assert again.labels == labels and again.judge.wishes.forbidden == {(2, "new name")}
    again.undo(window="w")
    assert again.labels["s1"] == "g1"
    again.close()


def test_the_list_is_searched_by_id_and_text(tmp_path):
    texts = [f"Apples and {'PEARS' if i % 2 else 'plums'} {i}" for i in range(60)]
    samples = made(texts=texts)[0]
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    client = TestClient(make_app(desk), base_url=f"http://{HOST}")
    desk.prepare()

    def ids(search, **more):
        return [
            row["id"] for row in client.get("/api/list", params={"search": search, **more}).json()
        ]

    assert len(ids("pears", n=100)) == 30 and len(ids("", n=100)) == 60
    assert ids("s17") == ["s17"] and ids("PLUMS s17") == [] and ids("pears s17") == ["s17"]
    desk.close()


def test_a_text_is_there_as_a_whole(tmp_path):
    whole = [f"beginning {i}\n" + "word " * 900 + "ending" for i in range(60)]
    samples = replace(made(texts=[text[:300] for text in whole])[0], whole_texts=whole)
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    client = TestClient(make_app(desk), base_url=f"http://{HOST}")
    desk.prepare()
    assert client.get("/api/sample", params={"i": 7}).json()["more"] is True
    assert client.get("/api/text", params={"i": 7}).json()["text"] == whole[7]
    assert client.get("/api/text", params={"i": 60}).status_code == 400
    assert len(client.get("/api/list", params={"search": "ending", "n": 100}).json()) == 60
    desk.close()


def test_a_studio_that_ends_before_it_is_up_closes_its_door(samples, tmp_path, monkeypatch):
    """uvicorn 0.34 leaves its sockets to the collector where it was told to end while starting."""
    from partwise.apps.studio import server

    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    opened, listen = [], server.listen
    monkeypatch.setattr(server, "listen", lambda *a: opened.append(listen(*a)) or opened[-1])
    with server.start(samples, tmp_path / "p"):
        pass
    assert [door.fileno() for door in opened] == [-1]


def test_label_studio_takes_the_labels_and_gives_them_back(client, desk, tmp_path):
    for i in range(6):
        desk.label([i], f"g{i % 3}", window="w")
    desk.wait()
    content = client.get("/api/export/label-studio.json").content
    tasks = json.loads(content)
    assert [task["data"]["id"] for task in tasks] == desk.samples.ids
    assert tasks[1]["annotations"][0]["result"][0]["value"] == {"choices": ["g1"]}
    assert "annotations" not in tasks[9] and 0 < tasks[9]["predictions"][0]["score"] <= 1
    (tmp_path / "tasks.json").write_bytes(content)
    y = read_labels(tmp_path / "tasks.json", desk.samples.ids)
    given = {name: label for name, label in zip(desk.samples.ids, y) if label is not None}
    assert given == desk.labels
