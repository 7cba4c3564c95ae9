"""Helpers for tests of the studio in headless Chromium: servers, and actions on the page."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

START = "from partwise.apps.cli import main; main()"


def open_browser():
    """Return a headless Chromium with WebGL in software, or skip the test with the reason."""
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
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def serving(browser, folder, arguments, truth):
    """Yield a function that starts a studio server.

    At the end, check that neither the servers nor the page had errors.
    """
    started, printed = [], folder / "printed.txt"
    browser.get_log("browser")  # errors of earlier pages are discarded

    def start(code=START):
        command = [sys.executable, "-c", code, "studio", *map(str, arguments), "--no-browser"]
        with printed.open("a") as errors:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        started.append(process)
        return process, process.stdout.readline().strip()

    start.truth = truth
    yield start
    ended = any(process.poll() is not None for process in started)  # the test itself ended a server
    try:
        wrong = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        browser.get("about:blank")  # otherwise the open page would report the missing server
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
    # A failed thread or request leaves its traceback in this file, or in the log of uvicorn.
    text = printed.read_text(encoding="utf-8")
    assert "Traceback" not in text and "error" not in text.lower(), text
    # Errors of connections to stopped servers, and of refused labels, are caused by the tests.
    fine = r"\(Conflict\)"
    fine += r"|ERR_(CONNECTION|INCOMPLETE|SOCKET)|status of 503" if ended else ""
    wrong = [message for message in wrong if not re.search(fine, message)]
    assert not wrong, wrong


def wait_for(get, seconds=60):
    """Return the result of ``get`` once it is true, or raise after some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = get()
        except Exception:  # the page is being rebuilt, so an element may be missing
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("nothing came in time")


def journal(folder):
    """Return the labels of a studio project by id, and the number of journal entries."""
    from partwise.apps.studio.journal import Journal

    path = next(Path(folder).glob("*-studio/journal.jsonl"))
    copy = Path(folder) / "journal-copy.jsonl"
    shutil.copy(path, copy)  # a copy is opened, because a studio has the journal open
    opened = Journal(copy)
    opened.close()
    return dict(opened.labels), len(opened.entries)


class Person:
    """Actions of a user on the page of the studio."""

    def __init__(self, browser, truth=None):
        self.browser, self.truth = browser, truth

    def find(self, name):
        return self.browser.find_element("id", name)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def texts(self, selector):
        """Return the texts of all elements that match a selector, in one call."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return self.browser.execute_script(script, selector)

    def click(self, selector, at=0):
        """Click an element, and retry while the page is being drawn."""
        wait_for(lambda: self.all(selector)[at].click() or True)

    def open(self, url):
        self.browser.get(url)
        wait_for(lambda: self.sample() is not None)

    def sample(self):
        """Return the id of the shown sample, or None."""
        text = self.find("cardName").text
        return None if not text or " " in text or text == "…" else text

    def labels(self):
        found = re.match(r"(\d+) labels", self.find("headline").text)
        return int(found[1]) if found else 0

    def saved(self):
        """Wait until the page shows that everything is saved."""
        wait_for(lambda: self.find("saved").text == "Saved")

    def keys(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    def with_alt(self, digit):
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.keys import Keys

        pressed = ActionChains(self.browser).key_down(Keys.ALT).send_keys(digit).key_up(Keys.ALT)
        pressed.perform()

    def type_label(self, name):
        """Type the name of a class and Enter, wherever the focus is."""
        from selenium.webdriver.common.keys import Keys

        before = self.sample()
        self.keys(*name)
        self.keys(Keys.ENTER)
        wait_for(lambda: self.sample() not in (None, before))
        return before

    def answer(self, text):
        """Type a text into the open dialog and confirm it."""
        from selenium.webdriver.common.keys import Keys

        field = wait_for(lambda: self.find("askInput").is_displayed() and self.find("askInput"))
        field.clear()
        field.send_keys(text, Keys.ENTER)

    def choose_in_list(self, name):
        """Show the samples of a class in the list."""
        from selenium.webdriver.support.ui import Select

        def options():
            return [option.text for option in Select(self.find("listClass")).options]

        wait_for(lambda: name in options())
        Select(self.find("listClass")).select_by_visible_text(name)
        wait_for(lambda: self.find("classRename").is_enabled() and self.all("#rows li"))

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

    def fetch(self, address):
        """Return a file of the studio as text."""
        script = "const [a, done] = arguments; fetch(a).then(r => r.text()).then(done);"
        return self.browser.execute_async_script(script, address)
