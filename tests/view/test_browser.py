"""Tests of the report in a browser: it opens from disk, is interactive, and has no errors."""

import base64
import shutil

import numpy as np
import pytest

from partwise import CDNMF
from partwise.apps.view.report import stability, write_report
from partwise.io.samples import Samples

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=document.title='caught'>"


@pytest.fixture(scope="module")
def browser():
    """Yield a headless Chromium, or skip the tests with the reason."""
    pytest.importorskip("plotly", reason="the report needs plotly")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for path in map(shutil.which, names) if path), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = "Chromium" if chromium is None else "chromedriver"
        pytest.skip(f"{missing} is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument("--window-size=1200,1000")
    # Only files can be loaded, so a request of the page to a network is an error in its console.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def page(digits, tmp_path_factory):
    """Return the path of a report on 150 digits with a few labels and malicious class names."""
    n = 150
    X = digits.X[:n] / 16.0
    truth = np.array([f"digit {v}" for v in digits.y[:n]], dtype=object)
    truth[truth == "digit 3"] = HOSTILE
    given = truth.copy()
    given[60:] = None
    model = CDNMF(random_state=0, max_iter=50, tol=1e-2).fit(X, given)
    samples = Samples(
        X,
        [f"{HOSTILE} {i}" for i in range(n)],
        "images",
        image_shape=(8, 8),
        y=truth,
        source="digits",
    )
    assignments = {
        "cluster": model.labels_,
        "confidence": model.label_confidence_,
    }
    return write_report(
        tmp_path_factory.mktemp("report") / "report.html",
        model=model,
        X=X,
        dataset=samples,
        labels=given,
        assignments=assignments,
        title=f"Digits {HOSTILE}",
        stability=stability(model, X, given, seeds=2),
    )


@pytest.fixture
def opened(browser, page):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get_log("browser")  # messages of other pages are discarded
    browser.get(page.as_uri())
    elements(browser, "#tab-map")[0].click()
    wait = WebDriverWait(browser, 30)
    wait.until(lambda b: elements(b, "[data-figure=map] .point"))
    yield browser
    assert browser.title == f"Digits {HOSTILE}", "a text became markup"
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def elements(browser, selector):
    return browser.find_elements("css selector", selector)


def test_hover_shows_the_sample(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    assert len(elements(opened, "[data-figure=map] .point")) == 150
    (tip,) = elements(opened, "#tip")
    assert not tip.is_displayed()
    point = elements(opened, "[data-figure=map] .point")[-1]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(opened).move_to_element(point).perform()
    WebDriverWait(opened, 20).until(lambda b: tip.is_displayed())
    assert "class digit" in tip.text and "confidence" in tip.text and HOSTILE in tip.text
    (image,) = elements(opened, "#tip img")
    assert image.get_property("src").startswith("data:image/png")
    assert image.get_property("naturalWidth") == 8


def test_tabs_show_one_section_and_draw_its_charts(opened):
    tabs = elements(opened, "[role=tab]")
    sections = [tab.get_attribute("aria-controls") for tab in tabs]
    assert sections == ["clusters", "map", "parts", "labels", "quality", "repeat"]
    for tab in tabs:
        tab.click()
        shown = [s for s in elements(opened, "[role=tabpanel]") if s.is_displayed()]
        assert [s.get_attribute("id") for s in shown] == [tab.get_attribute("aria-controls")]
        for chart in shown[0].find_elements("css selector", "[data-figure]"):
            assert chart.find_elements("css selector", "svg.main-svg")
            assert chart.size["width"] > 600
    tabs[1].send_keys("\ue014")  # the key code of the right arrow
    assert elements(opened, "#parts")[0].is_displayed()
    assert elements(opened, "#parts img")[0].get_property("naturalWidth") == 8


def test_charts_keep_their_height_in_another_window(opened):
    from selenium.webdriver.support.ui import WebDriverWait

    (chart,) = elements(opened, "[data-figure=map]")
    before = chart.size
    assert before["height"] > 400
    try:
        opened.set_window_size(900, 900)
        WebDriverWait(opened, 20).until(lambda b: chart.size["width"] < before["width"])
        script = "arguments[0].once('plotly_relayout', arguments[1]); setTimeout(arguments[1], 999)"
        # The chart changes its size a little later than the window.
        opened.execute_async_script(script, chart)
        assert chart.size["height"] == before["height"]
    finally:
        opened.set_window_size(1200, 1000)


def test_colour_by_label(opened):
    def legend():
        return [t.text for t in elements(opened, "[data-figure=map] .legendtext")]

    assert "no label" not in legend() and HOSTILE[:10] in " ".join(legend())
    elements(opened, "[data-view=label]")[0].click()
    assert len(elements(opened, "[data-figure=map] .point")) == 150
    assert any(name.startswith("<img") for name in legend())


def test_no_button_sends_the_chart_away(opened):
    buttons = elements(opened, ".modebar-btn")
    titles = {button.get_attribute("data-title") for button in buttons}
    assert {title.lower() for title in titles} == {
        "download plot as a png",
        "zoom",
        "pan",
        "zoom in",
        "zoom out",
        "reset axes",
    }


def test_light_and_dark(opened):
    def paper():
        style = "return getComputedStyle(document.body).backgroundColor"
        return opened.execute_script(style)

    (switch,) = elements(opened, "#theme")
    first = paper()
    switch.click()
    second = paper()
    assert first != second
    switch.click()
    assert paper() == first
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    opened.refresh()
    assert paper() == "rgb(21, 23, 26)"
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_prints_every_section(opened):
    pdf = base64.b64decode(opened.print_page())
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type/Page\n") >= 3
    # After printing, the page shows the same tab as before.
    shown = [s.get_attribute("id") for s in elements(opened, "[role=tabpanel]") if s.is_displayed()]
    assert shown == ["map"]


def test_every_tab_fits_a_phone(browser, digits, tmp_path, few_trees):
    """Check that on a screen of 390 pixels, wide content scrolls in its own box, not the page."""
    from partwise import PartsClassifier

    X, truth = digits.X[:150] / 16.0, digits.y[:150].astype(str).astype(object)
    given = np.where(np.arange(150) < 40, truth, None)
    model = PartsClassifier(random_state=0).fit(X, given)
    samples = Samples(X, [f"{i}" for i in range(150)], "images", image_shape=(8, 8), y=truth)
    found = {"cluster": model.transduction_, "confidence": model.label_confidence_}
    page = write_report(
        tmp_path / "r.html", model=model, X=X, dataset=samples, labels=given, assignments=found
    )
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.get(page.as_uri())
        tabs = elements(browser, "[role=tab]")
        assert "labels" in [tab.get_attribute("aria-controls") for tab in tabs]
        for tab in tabs:
            tab.click()
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, tab.text
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [390, 1000, 1400])
def test_names_of_the_confusion_chart_are_not_cut(browser, tmp_path, width):
    """Check that long names of many classes end within the confusion chart."""
    from partwise import PartsClassifier

    names = [f"class number {j} with a long name" for j in range(9)]
    rng = np.random.default_rng(0)
    y = np.array([names[i % 9] for i in range(90)], dtype=object)
    X = np.eye(9)[np.arange(90) % 9] + 0.3 * rng.random((90, 9))
    model = PartsClassifier(random_state=0).fit(X, y)
    samples = Samples(X, [str(i) for i in range(90)], "table", y=y)
    found = {"cluster": model.transduction_, "confidence": model.label_confidence_}
    page = write_report(
        tmp_path / "r.html", model=model, X=X, dataset=samples, labels=y, assignments=found
    )
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(page.as_uri())
        elements(browser, "#tab-labels")[0].click()
        boxes = browser.execute_script(
            """const chart = document.querySelector("#labels .chart");
            const outer = chart.getBoundingClientRect(), room = name => {
              const r = name.getBoundingClientRect(), { left, right, top, bottom } = outer;
              return [r.left - left, right - r.right, r.top - top, bottom - r.bottom]; };
            return [...chart.querySelectorAll(".xtick text, .ytick text")].map(room);"""
        )
        assert len(boxes) == 18
        assert min(map(min, boxes)) >= -0.5
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
