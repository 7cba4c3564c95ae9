"""Tests of the studio in a browser: keyboard, lasso, undo, parts, and restarts."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from studio_person import START, Person, journal, serving, wait_for

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")
pytest.importorskip("uvicorn", reason="the studio needs starlette and uvicorn")
pytestmark = pytest.mark.browser

#: Program that starts the studio with every answer delayed by two seconds.
LATE = (
    """
import asyncio
from partwise.apps.studio.access import Guard
at_once = Guard.__call__
async def late(self, scope, receive, send):
    async def waiting(message):
        if message["type"] == "http.response.start" and scope["method"] == "POST":
            await asyncio.sleep(2)
        await send(message)
    await at_once(self, scope, receive, waiting)
Guard.__call__ = late
"""
    + START
)


@pytest.fixture
def serve(browser, digits, tmp_path):
    """Yield a function that starts ``partwise studio`` on 150 digits.

    The function returns the process and the address.
    """
    chosen = np.flatnonzero(digits.y < 4)[:150]
    np.savez(tmp_path / "digits.npz", X=digits.X[chosen] / 16.0)
    arguments = ["digits.npz", "--image-shape", "8x8"]
    yield from serving(browser, tmp_path, arguments, digits.y[chosen])


@pytest.fixture
def serve_texts(browser, tmp_path):
    """Yield a function that starts the studio on 120 short texts of four classes."""
    rng = np.random.default_rng(0)
    words = [
        "goal team match league",
        "court judge law appeal",
        "cell gene protein",
        "rain wind sun",
    ]
    truth = np.arange(120) % 4
    rows = [
        f'{i},"{" ".join(rng.choice(words[t].split(), 6))} {"and so on " * 200}end {i}"'
        for i, t in enumerate(truth)
    ]
    (tmp_path / "texts.csv").write_text("id,text\n" + "\n".join(rows) + "\n", encoding="utf-8")
    yield from serving(browser, tmp_path, ["texts.csv", "--text-column", "text"], truth)


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
def test_a_labelling_session(browser, serve, tmp_path):
    from selenium.webdriver.common.keys import Keys

    process, url = serve()
    with pytest.raises(urllib.error.HTTPError, match="403"):  # a request without a token is refused
        urllib.request.urlopen(url.split("?")[0])
    person = Numbered(browser, serve.truth)
    person.open(url)
    assert "token" not in browser.current_url
    # Enlarge an image.
    here = person.sample()
    browser.find_element("css selector", "#cardBody .zoom").click()
    picture = wait_for(lambda: browser.find_element("css selector", "dialog.whole img"))
    wait_for(lambda: picture.get_property("naturalWidth") == 8)
    assert picture.size["width"] > 500
    assert f"/api/picture/whole/{here}" in picture.get_attribute("src")
    person.keys(Keys.ESCAPE)
    wait_for(lambda: not browser.find_elements("css selector", "dialog.whole"))
    assert person.sample() == here
    # Mark a sample as belonging to none of the classes, and undo this.
    person.with_alt("0")
    wait_for(lambda: person.find("saved").text == "Saved")
    assert journal_labels(tmp_path)[0] == {here: "none of these"}
    person.keys(Keys.ARROW_LEFT)
    wait_for(lambda: person.labels() == 0 and person.sample() == here)
    for _ in range(10):
        person.label_by_keyboard()
    wait_for(lambda: int(browser.execute_script("return document.body.dataset.painted")) > 5)
    # Undo the last label and give it again.
    last = person.sample()
    undone = person.given[-1]
    person.keys(Keys.ARROW_LEFT)
    wait_for(lambda: person.labels() == 9)
    # The page returns to the sample whose label was undone.
    assert person.sample() == undone != last
    person.label_by_keyboard()
    # The new class is the beginning of another class name. Enter accepts the typed name; then undo.
    person.keys("digit", Keys.ENTER)
    wait_for(lambda: "digit (" in person.find("legend").text)
    person.keys(Keys.ARROW_LEFT)
    wait_for(lambda: "digit (" not in person.find("legend").text and person.labels() == 10)
    # Draw a lasso around the whole map and release it. Labelling all samples would leave none to
    # ask for.
    assert person.lasso() > 100
    person.find("selection").find_elements("tag name", "button")[1].click()
    # Freeze a part of the model on its page.
    person.find("tab-parts").click()
    part = wait_for(lambda: browser.find_elements("css selector", "#partGrid .part"))[0]
    part.find_elements("tag name", "button")[1].click()
    wait_for(lambda: browser.find_elements("css selector", ".part.frozen"))
    person.find("tab-progress").click()
    wait_for(lambda: person.find("advice").text)
    # Kill the studio immediately; a second start is fast and has lost nothing.
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, url = serve()
    person.open(url)
    wait_for(lambda: person.labels() == 10)
    person.find("tab-parts").click()
    assert wait_for(lambda: browser.find_elements("css selector", ".part.frozen"))
    fetched = browser.execute_async_script(
        "const done = arguments[0];fetch('/api/export/labels.csv').then(r => r.text()).then(done);"
    )
    lines = fetched.strip().split("\n")[1:]
    assert len(lines) == 10
    for line in lines:
        name, label = line.split(",")
        assert label == f"digit {serve.truth[int(name)]}"
    journal = next(Path(tmp_path).glob("digits-studio/journal.jsonl"))
    assert len([json.loads(line) for line in journal.read_text().splitlines()]) >= 12


class Numbered(Person):
    """Page of a studio whose sample ids are numbers."""

    def __init__(self, browser, truth):
        super().__init__(browser, truth)
        self.given = []

    def sample(self):
        found = super().sample()
        return int(found) if found else None

    def label_by_keyboard(self):
        before, here = self.labels(), self.sample()
        self.type_label(f"digit {self.truth[here]}")
        self.given.append(here)
        wait_for(lambda: self.labels() == before + 1)


def journal_labels(folder):
    """Return the labels by the number of their sample, and the number of journal entries."""
    labels, entries = journal(folder)
    return {int(name): label for name, label in labels.items()}, entries


#: Class names that begin with former shortcut keys, or with another class name.
NAMES = {"photos": ["sound", "unix", "so", "u"], "texts": ["7", "3D", "sports", "sport"]}


def test_letters_and_digits_are_typed(browser, serve_texts, tmp_path):
    from selenium.webdriver.common.keys import Keys

    _, url = serve_texts()
    person = Numbered(browser, serve_texts.truth)
    person.open(url)
    # If a class name begins with a digit, digits are typed instead of choosing a class. A new class
    # counts before the server has answered, so the next name may begin with a digit.
    names = ["sea", "sky", "7", "1D"]
    # The last two names are typed while no answer is waiting to be saved.
    for two in (names[:2], names[2:]):
        person.keys(*(key for name in two for key in (name, Keys.ENTER)))
        wait_for(lambda: person.find("saved").text == "Saved")
    given = journal_labels(tmp_path)[0]
    assert list(given.values()) == names
    for name in ("sound", "unix", "s", "u", "so", "3D", "1", "sound", "U", "S", "7"):
        here = person.sample()
        person.keys(name, Keys.ENTER)
        given[here] = name
        wait_for(lambda: person.sample() not in (None, here))  # noqa: B023
    wait_for(lambda: person.find("saved").text == "Saved")
    # A typed name that differs only in case is the existing class.
    given = {i: {"U": "u", "S": "s"}.get(name, name) for i, name in given.items()}
    assert journal_labels(tmp_path) == (given, 15)
    person.keys(Keys.ARROW_RIGHT)  # the right arrow key skips the sample
    wait_for(lambda: journal_labels(tmp_path)[1] == 16)
    assert journal_labels(tmp_path)[0] == given
    # Read a long text to its end, and mark it as belonging to none of the classes.
    wait_for(lambda: person.sample() is not None)
    here = person.sample()
    assert f"end {here}" not in person.find("cardBody").text
    browser.find_element("css selector", "#cardBody .more").click()
    wait_for(lambda: f"end {here}" in person.find("cardBody").text)
    person.find("other").click()
    wait_for(lambda: person.sample() != here)


@pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["photos", "texts"])
def test_thirty_labels_while_the_server_comes_and_goes(browser, request, kind, tmp_path):
    """Check that no label is lost if answers are delayed and the server is killed or stopped."""
    from selenium.webdriver.common.keys import Keys

    serve = request.getfixturevalue("serve" if kind == "photos" else "serve_texts")
    names = NAMES[kind]
    process, url = serve(LATE)
    person, given, taken_back = Numbered(browser, serve.truth), {}, []
    person.open(url)
    down = second = None
    while len(given) < 30:
        if down is not None and second is None and time.monotonic() - down > 6:
            assert person.find("trouble").is_displayed()
            assert person.find("saved").get_attribute("class") == "unsaved"
            second, again = serve(LATE)
            assert again.split("?")[0] == url.split("?")[0]  # both servers use the same address
        here = person.sample()
        if here is None:  # no sample is left while the server is away
            assert "Every sample" not in person.find("cardName").text
            time.sleep(0.2)
            continue
        assert here not in given  # no labelled sample is shown again
        name = names[serve.truth[here]]
        mark = "document.getElementById('cardBody').firstChild.dataset"
        browser.execute_script(f"{mark}.seen = arguments[0]", here)
        person.keys(*name)  # the name is typed letter by letter, while updates arrive
        # The card is not drawn again, so its scroll position stays.
        assert person.sample() == here
        assert browser.execute_script(f"return {mark}.seen") == str(here)
        person.keys(Keys.ENTER)
        given[here] = name
        if len(given) in (7, 19) and len(taken_back) < 2:  # this label is undone and given again
            wait_for(lambda: person.sample() != here)  # noqa: B023
            person.keys(Keys.ARROW_LEFT)
            assert wait_for(lambda: person.sample() == here)  # noqa: B023
            taken_back.append(here)
            del given[here]
        if len(given) == 10 and down is None:
            os.kill(process.pid, signal.SIGKILL if kind == "photos" else signal.SIGINT)
            process.wait(20)
            down = time.monotonic()
    wait_for(lambda: person.find("saved").text == "Saved", 120)
    assert not person.find("trouble").is_displayed()
    found, lines = journal_labels(tmp_path)
    assert lines <= 34  # thirty labels, two undos and two labels given again
    assert found == given
    assert all(names[serve.truth[i]] == label for i, label in found.items())
    # The server has the same data after another kill.
    second.kill()
    second.wait()
    wait_for(lambda: person.find("trouble").is_displayed(), 30)
    serve(LATE)
    wait_for(lambda: not person.find("trouble").is_displayed(), 60)
    wait_for(lambda: person.labels() == 30)


@pytest.mark.long
def test_classes_and_labels_in_the_list(browser, serve_texts, tmp_path):
    """Search, remove a label, and rename, merge and delete a class by clicks."""
    from selenium.webdriver.common.keys import Keys

    _, url = serve_texts()
    person, given = Numbered(browser, serve_texts.truth), {}
    person.open(url)
    names = ["goals", "courts", "cells", "rain"]
    for _ in range(12):
        here = person.sample()
        given[here] = names[serve_texts.truth[here]]
        person.keys(given[here], Keys.ENTER)
        wait_for(lambda: person.sample() not in (None, here))  # noqa: B023
    wait_for(lambda: person.labels() == 12)
    person.find("tab-list").click()

    def rows():
        return person.all("#rows li")

    say, choose = person.answer, person.choose_in_list

    # Search for the text of one labelled sample.
    some = next(iter(given))
    person.find("listSearch").send_keys("protein")
    wait_for(lambda: rows() and all("protein" in row.text for row in rows()))
    person.find("listSearch").clear()
    person.find("listSearch").send_keys(Keys.SPACE)
    wait_for(lambda: len(rows()) == 40)
    # Remove one label.
    choose(given[some])
    box = wait_for(lambda: browser.find_element("css selector", f'#rows input[value="{some}"]'))
    box.click()
    person.find("listTake").click()
    wait_for(lambda: person.labels() == 11)
    name = given.pop(some)
    # Rename the class, merge it into another one, and delete that one.
    others = [n for n in dict.fromkeys(given.values()) if n != name]
    choose(others[0])
    person.find("classRename").click()
    say("unix stars")
    wait_for(lambda: "unix stars" in person.find("legend").get_attribute("textContent"))
    choose("unix stars")
    person.find("classRename").click()
    say(others[1])
    wait_for(lambda: "unix stars" not in person.find("legend").get_attribute("textContent"))
    wait_for(lambda: person.find("saved").text == "Saved")
    merged = {i: others[1] if n == others[0] else n for i, n in given.items()}
    assert journal_labels(tmp_path)[0] == merged
    choose(others[1])
    person.find("classDelete").click()
    say(others[1])
    wait_for(lambda: person.labels() == sum(n != others[1] for n in merged.values()))
    wait_for(lambda: person.find("saved").text == "Saved")
    assert journal_labels(tmp_path)[0] == {i: n for i, n in merged.items() if n != others[1]}
    # Undo on the page with the cards.
    person.find("tab-label").click()
    person.find("undo").click()
    wait_for(lambda: person.labels() == 11)
    assert journal_labels(tmp_path)[0] == merged


@pytest.mark.long
@pytest.mark.parametrize("size", [(1300, 900), (380, 800)], ids=["wide", "phone"])
def test_axe_finds_no_serious_fault(browser, serve, size):
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    _, url = serve()
    browser.set_window_size(*size)
    person = Numbered(browser, serve.truth)
    person.open(url)
    for _ in range(4):
        person.label_by_keyboard()
    script = next(Path(axe.__file__).parent.glob("*.js")).read_text(encoding="utf-8")
    for tab in ("label", "list", "parts", "progress"):
        person.find(f"tab-{tab}").click()
        time.sleep(0.5)
        browser.execute_script(script)
        found = browser.execute_async_script(
            "const done = arguments[0]; axe.run(document, {iframes: false}).then(done);"
        )
        bad = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
        assert not bad, [(v["id"], v["nodes"][0]["html"][:120]) for v in bad]
        wide = browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, f"{tab} is wider than the window by {wide} pixels"
    browser.set_window_size(1300, 1000)
