"""Tests of complete labelling sessions in a browser.

They label by keyboard and mouse, rename, merge, undo, reload, use a second tab, and restart. At the
end the labels in the journal equal the labels given, and the exported model predicts new data.
"""

import csv
import io
import os
import signal

import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")
pytest.importorskip("uvicorn", reason="the studio needs starlette and uvicorn")

from studio_inputs import photos, table, texts
from studio_person import Person, journal, serving, wait_for

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
]

#: Class names with digits and spaces; typing "2" must not choose the second class.
CLASSES = ("2 spots", "red ladybird beetle", "3D print")
N, NEW = 90, 30


def write(kind, path, n, start=0):
    """Write n samples of a kind and return their path and ids.

    The class of sample i is i modulo 3.
    """
    if kind == "photos":
        return photos(path, n, start, side=40), [f"{i:03}.png" for i in range(start, start + n)]
    if kind == "texts":
        return texts(path.with_suffix(".csv"), n, start), [f"m{i}" for i in range(start, start + n)]
    ids = [str(10_000 + 7 * i) for i in range(start, start + n)]
    return table(path.with_suffix(".csv"), n, start), ids


class Walk:
    """A studio in a browser, with a record of the labels given."""

    def __init__(self, browser, serve, kind):
        self.person, self.browser, self.serve, self.kind = Person(browser), browser, serve, kind
        self.given, self.classes = {}, list(CLASSES)
        self.process, self.url = serve()
        self.person.open(self.url)

    def label(self, number):
        """Label a sample: type a name, accept the suggestion, click, or press Alt and a digit."""
        from selenium.webdriver.common.keys import Keys

        person, here = self.person, self.person.sample()
        name = self.classes[self.serve.truth[here]]
        numbered = person.texts("#classes .name")
        if person.find("suggestion").text.startswith(f"{name}?") and number % 2:
            person.keys(Keys.ENTER)
        elif name in numbered and number % 4 == 0:
            person.click("#classes button", numbered.index(name))
        elif name in numbered[:9] and number % 4 == 2:
            person.with_alt(str(numbered.index(name) + 1))
        else:
            if number % 3 == 0:
                # After this click, typed letters must still reach the input field.
                person.find("tab-label").click()
            if number % 5 == 0 and self.kind == "photos":
                person.click("#cardBody .zoom")
                wait_for(lambda: person.all("dialog.whole"))
            person.keys(*name)
            wait_for(lambda: person.find("filter").get_attribute("value") == name)
            person.keys(Keys.ENTER)
        self.given[here] = name
        wait_for(lambda: person.sample() not in (None, here))
        return here

    def label_many(self, n):
        for number in range(n):
            self.label(number)
        self.person.saved()
        self.check()

    def check(self):
        """Check that the journal has exactly the labels that were given."""
        self.person.saved()
        assert journal(self.serve.folder)[0] == self.given
        wait_for(lambda: self.person.labels() == len(self.given))

    def undo(self):
        """Undo the last label, and give it again."""
        from selenium.webdriver.common.keys import Keys

        last = list(self.given)[-1]
        self.person.keys(Keys.ARROW_LEFT)
        wait_for(lambda: self.person.sample() == last)
        del self.given[last]
        self.check()
        self.label(1)

    def reload(self):
        self.browser.refresh()
        wait_for(lambda: self.person.sample() is not None)

    def second_tab(self):
        """Label one sample in two tabs: the first label stays, and the second is refused."""
        from selenium.webdriver.common.keys import Keys

        first = self.browser.current_window_handle
        self.browser.switch_to.new_window("tab")
        self.person.open(self.url.split("?")[0])
        second = self.browser.current_window_handle

        def here_in(window):
            self.browser.switch_to.window(window)
            self.reload()
            return self.person.sample()

        # Each tab keeps its sample, and the queue may have changed since.
        wait_for(lambda: here_in(first) == here_in(second))
        here = self.person.sample()
        name = self.classes[self.serve.truth[here]]
        self.person.type_label(name)
        self.given[here] = name
        self.check()
        self.browser.switch_to.window(first)
        wait_for(lambda: name in self.person.find("suggestion").text)
        other = self.classes[(self.serve.truth[here] + 1) % 3]
        self.person.type_label(other)
        # The page shows that the label was refused.
        wait_for(lambda: name in self.person.find("say").text)
        self.check()
        self.browser.switch_to.window(second)
        self.person.keys(Keys.ARROW_LEFT)  # each tab has its own undo
        wait_for(lambda: self.person.sample() == here)
        self.person.type_label(name)
        self.person.saved()
        self.browser.close()
        self.browser.switch_to.window(first)
        self.check()

    def rename(self, old, new):
        """Rename a class in the list, or merge it into another one."""
        self.person.find("tab-list").click()
        self.person.choose_in_list(old)
        self.person.find("classRename").click()
        self.person.answer(new)
        wait_for(lambda: old not in self.person.texts("#legend bdi"))
        self.given = {i: new if name == old else name for i, name in self.given.items()}
        self.classes = [new if name == old else name for name in self.classes]
        self.person.find("tab-label").click()
        self.check()

    def restart(self):
        """Restart the studio while the page stays open."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        wait_for(lambda: self.person.find("trouble").is_displayed())
        assert "address" in self.person.find("trouble").text
        self.process, self.url = self.serve()
        wait_for(lambda: not self.person.find("trouble").is_displayed())
        wait_for(lambda: self.person.labels() == len(self.given))


@pytest.fixture
def walk(request, browser, tmp_path):
    kind = request.param
    path, ids = write(kind, tmp_path / "samples", N)
    truth = {name: i % 3 for i, name in enumerate(ids)}
    option = ("--text-column", "body") if kind == "texts" else ()
    servers = serving(browser, tmp_path, [path, *option], truth)
    serve = next(servers)
    serve.folder = tmp_path
    yield Walk(browser, serve, kind)
    next(servers, None)


def look_at_the_card(walk):
    """Open the whole image, the text, or the original row of the shown sample."""
    person, here = walk.person, walk.person.sample()
    if walk.kind == "photos":
        image = person.all("#cardBody img")[0]
        # The whole image is shown, not the thumbnail.
        wait_for(lambda: image.get_property("naturalWidth") == 40)
        assert f"/whole/{int(here[:3])}" in image.get_attribute("src")
        assert image.size["width"] > 300
    elif walk.kind == "table":
        with (walk.serve.folder / "samples.csv").open(encoding="utf-8", newline="") as file:
            rows = {row["Kundennummer"]: row for row in csv.DictReader(file, delimiter=";")}
        names, values = person.texts("#cardBody th"), person.texts("#cardBody td:nth-child(2)")
        assert dict(zip(names, values)) == rows[here] and names[0] == "Kundennummer"
    else:
        assert len(person.find("cardBody").text.split()) == 8


def predict(walk, model, capsys, *, least):
    """Predict new data with the exported model, and check the share of correct labels."""
    from partwise.apps.cli import main

    new, ids = write(walk.kind, walk.serve.folder / "new", NEW, start=N)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(model), str(new)])
    assert not ended.value.code
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    found = {row["id"]: row["predicted_label"] for row in rows}
    right = [found[name] == walk.classes[i % 3] for i, name in enumerate(ids)]
    assert sum(right) >= least * NEW, (found, walk.given)


def save_all(walk):
    """Export everything, as the page does, and return the folder of the project."""
    script = """const done = arguments[0];
    fetch('/api/save', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})
      .then(r => r.json()).then(done);"""
    written = walk.browser.execute_async_script(script)["files"]
    assert {"labels.csv", "model.partwise", "report.html", "repeat.py"} <= set(written)
    return next(walk.serve.folder.glob("*-studio"))


@pytest.mark.parametrize("walk", ["table"], indirect=True)
def test_a_short_walk(walk, capsys):
    look_at_the_card(walk)
    walk.label_many(9)
    walk.reload()
    walk.undo()
    walk.second_tab()
    # The model has only ten labels.
    predict(walk, save_all(walk) / "model.partwise", capsys, least=0.8)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("walk", ["photos", "texts", "table"], indirect=True)
def test_a_walk(walk, capsys):
    from selenium.webdriver.common.keys import Keys

    look_at_the_card(walk)
    walk.label_many(14)
    walk.undo()
    walk.reload()
    walk.undo()  # undoes a label that was given before the page was reloaded
    walk.second_tab()
    walk.rename("3D print", "4 wheels of 2")
    walk.restart()
    walk.label_many(10)
    # Merge a mistyped class into the intended one.
    for _ in range(2):
        here = walk.person.type_label("2")
        walk.given[here] = "2"
    walk.check()
    walk.rename("2", "2 spots")
    for name, label in walk.given.items():
        wrong = label != walk.classes[walk.serve.truth[name]]
        if wrong:  # wrong labels are corrected in the list
            walk.person.find("tab-list").click()
            walk.person.choose_in_list(label)
            walk.person.click(f'#rows input[value="{list(walk.serve.truth).index(name)}"]')
            walk.person.find("listLabel").click()
            walk.given[name] = walk.classes[walk.serve.truth[name]]
            walk.person.answer(walk.given[name])
            walk.person.saved()
    walk.person.find("tab-label").click()
    walk.person.keys(Keys.ARROW_RIGHT)  # the right arrow key skips the sample
    walk.label_many(40 - len(walk.given))
    assert len(walk.given) == 40
    walk.restart()
    walk.check()
    project = save_all(walk)
    with (project / "labels.csv").open(encoding="utf-8", newline="") as file:
        assert {row["id"]: row["label"] for row in csv.DictReader(file)} == walk.given
    predict(walk, project / "model.partwise", capsys, least=0.95)
