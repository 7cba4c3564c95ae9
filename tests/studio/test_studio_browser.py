"""A person at the studio: keyboard, lasso, undo, parts, a kill, a second start, what is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")
pytest.importorskip("uvicorn", reason="the studio needs starlette and uvicorn")
pytestmark = pytest.mark.browser

START = "from partwise.cli import main; main()"


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium with WebGL in software, or the reason why there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for path in map(shutil.which, names) if path), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    software = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *software):
        options.add_argument(argument)
    options.add_argument("--window-size=1300,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def serve(digits, tmp_path):
    """``serve()`` starts ``partwise studio`` on 150 digits and gives (process, address)."""
    chosen = np.flatnonzero(digits.y < 4)[:150]
    np.savez(tmp_path / "digits.npz", X=digits.X[chosen] / 16.0)
    started = []

    def start():
        command = [sys.executable, "-c", START, "studio", "digits.npz", "--image-shape", "8x8"]
        process = subprocess.Popen(
            [*command, "--no-browser"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    start.truth = digits.y[chosen]
    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(get, seconds=60):
    """What ``get`` returns once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = get()
        except Exception:  # the page is being drawn
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("nothing came in time")


class Person:
    """What a person can do with the page."""

    def __init__(self, browser, truth):
        self.browser, self.truth = browser, truth

    def find(self, name):
        return self.browser.find_element("id", name)

    def open(self, url):
        self.browser.get(url)
        wait_for(lambda: self.sample() is not None)

    def sample(self):
        """The sample on the card, by its number."""
        text = self.find("cardName").text
        return int(text) if text.isdigit() else None

    def labels(self):
        found = re.match(r"(\d+) labels", self.find("headline").text)
        return int(found[1]) if found else 0

    def keys(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    def label_by_keyboard(self):
        from selenium.webdriver.common.keys import Keys

        before, here = self.labels(), self.sample()
        self.keys("/")
        self.keys(f"digit {self.truth[here]}", Keys.ENTER)
        wait_for(lambda: self.labels() == before + 1)

    def lasso(self):
        from selenium.webdriver import ActionChains

        frame = self.find("map")
        width, height = frame.size["width"], frame.size["height"]
        pull = ActionChains(self.browser).move_to_element_with_offset(
            frame, -width // 2 + 8, -height // 2 + 8
        )
        pull.click_and_hold()
        for x, y in ((width - 80, 0), (0, height - 20), (80 - width, 0), (0, 40 - height)):
            pull.move_by_offset(x, y)
        pull.release().perform()
        return wait_for(lambda: int(self.find("selection").text.split()[0]))

    def errors(self):
        return [entry for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE",)]


def test_without_the_token_the_door_is_shut(serve):
    _, url = serve()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.split("?")[0])


def test_a_person_at_work(browser, serve, tmp_path):
    process, url = serve()
    person = Person(browser, serve.truth)
    person.open(url)
    assert "token" not in browser.current_url
    for _ in range(10):
        person.label_by_keyboard()
    wait_for(lambda: int(browser.execute_script("return document.body.dataset.painted")) > 5)
    # undo, and again
    person.keys("u")
    wait_for(lambda: person.labels() == 9)
    person.label_by_keyboard()
    # a new class whose name begins another's: the arrows choose it; then it is taken back
    from selenium.webdriver.common.keys import Keys

    person.keys("/")
    person.keys("digit", Keys.ARROW_UP, Keys.ENTER)
    wait_for(lambda: "digit (" in person.find("legend").text)
    person.keys("u")
    wait_for(lambda: "digit (" not in person.find("legend").text and person.labels() == 10)
    # a lasso around the map, then let go: labelling them all would leave nothing to ask for
    assert person.lasso() > 100
    person.find("selection").find_elements("tag name", "button")[1].click()
    # a part is frozen
    person.find("tab-parts").click()
    part = wait_for(lambda: browser.find_elements("css selector", "#partGrid .part"))[0]
    part.find_elements("tag name", "button")[1].click()
    wait_for(lambda: browser.find_elements("css selector", ".part.frozen"))
    person.find("tab-progress").click()
    wait_for(lambda: person.find("enough").text)
    # killed at once; a second start is immediate and knows everything
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
    lost = [entry for entry in person.errors() if "ERR_CONNECTION" not in entry["message"]]
    lost = [entry for entry in lost if "ERR_INCOMPLETE" not in entry["message"]]  # the kill
    assert not lost


@pytest.mark.long
@pytest.mark.parametrize("size", [(1300, 900), (380, 800)], ids=["wide", "phone"])
def test_axe_finds_no_serious_fault(browser, serve, size):
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    _, url = serve()
    browser.set_window_size(*size)
    person = Person(browser, serve.truth)
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
