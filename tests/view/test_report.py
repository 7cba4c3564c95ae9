"""Tests of the report: contents, escaping and size of the page."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_iris

import studio_inputs
from partwise import CF, CNMF, NSNMF, PartsClassifier
from partwise.apps.view.report import (
    charts,
    members,
    pictures,
    report_page,
    stability,
    write_report,
)
from partwise.apps.view.report.layout import lay_out
from partwise.apps.view.report.repeat import recipe
from partwise.evaluation.metrics import adjusted_rand
from partwise.io import keep_share, read_samples
from partwise.io.samples import Samples

pytest.importorskip("plotly", reason="the report needs plotly")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}"


def fitted(samples, model=None, **settings):
    """Return arguments of `report_page` for a model, fitted with a large tolerance."""
    plain = NSNMF if samples.y is None else CNMF
    model = plain(3, random_state=0, tol=1e-2) if model is None else model
    model.fit(samples.X, samples.y)
    assignments = {
        "cluster": model.labels_,
        "confidence": model.label_confidence_,
    }
    return {
        "model": model,
        "X": samples.X,
        "dataset": samples,
        "assignments": assignments,
    } | settings


def images(digits, n=60, **known):
    X = digits.X[:n] / 16.0
    return Samples(X, [f"{i}.png" for i in range(n)], "images", image_shape=(8, 8), **known)


def labels(digits, n=60, given=20):
    y = np.array([str(v % 3) for v in digits.y[:n]], dtype=object)
    y[given:] = None
    return y


class Page(HTMLParser):
    """Parser that collects the tags, texts and embedded JSON of a report."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.json, self.attributes = [], [], [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append((tag, dict(attributes)))
        self.attributes += attributes

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.json[attributes["id"]] = json.loads(data)
        elif tag not in ("script", "style"):
            self.texts.append(data)


@pytest.fixture(scope="module")
def digits_page(digits):
    samples = images(digits, y=labels(digits), source="digits", preparation="Divided by 16.")
    given = fitted(samples)
    found = stability(given["model"], samples.X, samples.y, seeds=2)
    page = report_page(**given, labels=samples.y, title="Digits", seconds=1.0, stability=found)
    return page, Page(page)


def test_page_fetches_nothing(digits_page):
    page, parsed = digits_page
    for name, value in parsed.attributes:
        if name in ("src", "href"):
            assert value.startswith("data:")
    css = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    assert "url(" not in css and "@import" not in css
    assert parsed.tags.count("script") == 5
    assert "link" not in parsed.tags


def test_page_has_every_section(digits_page):
    page, parsed = digits_page
    for name in ("map", "parts", "clusters", "labels", "quality", "repeat"):
        assert f'id="{name}"' in page and f'aria-controls="{name}"' in page
    assert set(parsed.json["figures"]) == {
        "map",
        "confusion-seen",
        "stability",
        "convergence",
    }
    drawn = {value for name, value in parsed.attributes if name == "data-figure"}
    assert drawn == set(parsed.json["figures"])
    assert len(parsed.json["points"]) == 60
    assert all(point["image"].startswith("data:image/png") for point in parsed.json["points"])
    assert set(parsed.json["templates"]) == {"light", "dark"}


def test_map_holds_every_sample_once_per_view(digits_page):
    figure = digits_page[1].json["figures"]["map"]
    for view in ("cluster", "label"):
        traces = [trace for trace in figure["data"] if trace["meta"] == view]
        assert sum(len(_values(trace["customdata"])) for trace in traces) == 60
        assert all(trace["visible"] == (view == "cluster") for trace in traces)


def _values(encoded):
    import base64

    if isinstance(encoded, dict):
        kinds = {"i1": np.int8, "i2": np.int16, "i4": np.int32, "u1": np.uint8, "u2": np.uint16}
        return np.frombuffer(base64.b64decode(encoded["bdata"]), dtype=kinds[encoded["dtype"]])
    return encoded


def test_hostile_texts_stay_texts(rng):
    n = 30
    X = rng.random((n, 6))
    y = np.array([HOSTILE, "b", None] * 10, dtype=object)
    samples = Samples(
        X,
        [f"{HOSTILE}{i}" for i in range(n)],
        "texts",
        feature_names=[f"{HOSTILE}{j}" for j in range(6)],
        texts=[f"{HOSTILE} text {i}" for i in range(n)],
        y=y,
        source=HOSTILE,
        preparation=HOSTILE,
    )
    given = fitted(samples, CNMF(3, random_state=0, max_iter=20, tol=0))
    page = report_page(**given, labels=y, title=HOSTILE, command=HOSTILE)
    parsed = Page(page)
    assert parsed.tags.count("script") == 5, "a text became a script"
    assert "alert(1)</script>" not in page
    assert not any(name.startswith("on") for name, _ in parsed.attributes)
    assert "49" not in "".join(parsed.texts).replace(HOSTILE, "")[:200], "a text became a template"
    point = parsed.json["points"][0]
    assert point["id"] == f"{HOSTILE}0" and point["label"] == HOSTILE
    names = [t["name"] for t in parsed.json["figures"]["map"]["data"]]
    assert not any("<" in name for name in names), "plotly reads tags in names"
    assert f"{HOSTILE}0" in parsed.texts, "names of features are texts"


def test_hidden_labels_are_scored_apart(digits):
    truth = labels(digits, given=60)
    samples = images(digits, y=truth)
    given = fitted(samples, CNMF(3, random_state=0))
    page = report_page(**given, labels=labels(digits))
    figures = Page(page).json["figures"]
    assert {"confusion-hidden", "confusion-seen"} <= set(figures)
    hidden = np.array(
        [[int(v or 0) for v in row] for row in figures["confusion-hidden"]["data"][0]["text"]]
    )
    assert hidden.sum() == 40


def test_without_labels_and_with_a_table():
    iris = load_iris()
    samples = Samples(iris.data, [str(i) for i in range(150)], "table", list(iris.feature_names))
    page = report_page(**fitted(samples))
    parsed = Page(page)
    assert 'class="terms"' in page and 'id="labels"' not in page
    assert set(iris.feature_names) <= set(parsed.texts)
    assert parsed.json["points"][3]["image"] is None


def test_kernel_model_has_no_parts_to_show():
    iris = load_iris()
    samples = Samples(iris.data[:40], [str(i) for i in range(40)], "table", iris.feature_names)
    page = report_page(**fitted(samples, CF(3, kernel="rbf", random_state=0, tol=1e-2)))
    assert 'id="no-parts"' in page


def test_single_sample_and_single_part():
    samples = Samples(np.array([[1.0, 2.0]]), ["only"], "table", ["a", "b"])
    page = report_page(**fitted(samples, NSNMF(1, random_state=0)))
    assert "only" in page


def test_file_appears_whole_and_is_not_overwritten(digits, tmp_path):
    given = fitted(images(digits))
    path = write_report(tmp_path / "r.html", **given)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(FileExistsError):
        write_report(path, **given)
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_samples_of_another_size_are_refused(digits):
    given = fitted(images(digits))
    with pytest.raises(ValueError, match="60, 59 and 60"):
        report_page(**given | {"X": given["X"][:59]})


def test_thumbnails_stay_within_the_budget(digits, monkeypatch):
    monkeypatch.setattr(members, "MAX_THUMBNAILS", 10)
    page = report_page(**fitted(images(digits)))
    points = Page(page).json["points"]
    assert sum(point["image"] is not None for point in points) <= 10
    assert '<span id="with-images">10</span>' in page


def test_own_thumbnails_are_used_and_large_ones_left_out(digits):
    small = pictures.png(np.eye(4))
    samples = images(digits, thumbnails=lambda i: small if i else b"x" * 50_000)
    found = members.Thumbnails(samples)
    assert found(0) is None and found(1) == pictures.picture_uri(small)


def run(lines):
    """Run the code of the report's section "Repeat it" and return the names that it defines."""
    found = {}
    exec(lines, found)
    return found


@pytest.mark.parametrize("labels", ["none", "all", "share", "some"])
def test_lines_of_the_report_repeat_the_run(labels, tmp_path, monkeypatch):
    """Check that the code in the report repeats the fit, even if labels were held out."""
    monkeypatch.chdir(tmp_path)
    iris = load_iris()
    rows = [",".join(map(str, [*x, f"class {y}"])) for x, y in zip(iris.data, iris.target)]
    (tmp_path / "iris.csv").write_text("\n".join(["a,b,c,d,kind", *rows]) + "\n")
    samples = read_samples("iris.csv", label_column="kind")
    y, share = {
        "none": (None, None),
        "all": (samples.y, None),
        "share": (keep_share(samples.y, 0.1, random_state=5), 0.1),
        "some": (np.where(np.arange(150) % 10 == 0, samples.y, None), None),
    }[labels]
    estimator = NSNMF if y is None else CNMF
    model = estimator(3, random_state=5, tol=1e-3).fit(samples.X, y)
    lines = recipe(model, samples, None if y is None else list(y), label_share=share)
    again = run(lines)
    assert again["model"].get_params() == model.get_params()
    np.testing.assert_array_equal(again["model"].embedding_, model.embedding_)
    assert ("y" in again) == (y is not None)
    assert ("known" in again) == (labels == "some")


def test_lines_of_the_report_repeat_links(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", load_iris().data[:40])
    samples = read_samples("x.npy")
    links = {"must_link": [(0, 1)], "cannot_link": [(2, 3)]}
    model = NSNMF(3, random_state=0, tol=1e-2).fit(samples.X, **links)
    again = run(recipe(model, samples, links=links))["model"]
    np.testing.assert_array_equal(again.embedding_, model.embedding_)


def test_the_headline_is_the_accuracy(digits):
    """Check that the page begins with the measured or the expected accuracy.

    It also states the number of samples.
    """
    truth = labels(digits, 60, 60)
    given = labels(digits)
    samples = images(digits, y=truth)
    model = PartsClassifier(random_state=0, max_iter=20).fit(samples.X, given)
    found = {"cluster": model.transduction_, "confidence": model.label_confidence_}
    page = report_page(model=model, X=samples.X, dataset=samples, assignments=found, labels=given)
    measured = np.mean(model.transduction_[20:] == truth[20:])
    shown = re.search(r'class="accuracy"><b>([^<]+)</b>', page)[1]
    assert shown == f"{measured:.0%}"
    lead = re.search(r'class="accuracy".*?<p>(.*?)</p>', page, re.S)[1]
    assert f"{model.expected_accuracy_.accuracy:.0%}" in lead and "40" in lead


def test_numbered_clusters_have_words_in_the_legend(rng):
    X = np.repeat(np.eye(3), 20, axis=0) + 0.1 * rng.random((60, 3))
    samples = Samples(X, [str(i) for i in range(60)], "table", ["red", "green", "blue"])
    model = NSNMF(3, random_state=0).fit(X)
    found = {"cluster": model.labels_ + 1}
    page = report_page(model=model, X=X, dataset=samples, assignments=found)
    entries = [trace["name"] for trace in Page(page).json["figures"]["map"]["data"]]
    assert len(entries) == 3
    assert all(re.match(r"[123]: .*(red|green|blue)", entry) for entry in entries)


def test_layout_keeps_each_cluster_in_proportion(rng):
    V = rng.random((400, 5))
    groups = ["a"] * 300 + ["b"] * 99 + ["c"]
    found = lay_out(V, groups, max_points=100)
    assert 99 <= len(found.shown) <= 101 and 399 in found.shown
    assert (found.shown < 300).sum() == 75


def test_layout_of_equal_codes_is_finite():
    found = lay_out(np.ones((50, 4)), [0] * 50)
    assert np.isfinite(found.points).all()


def test_stability_compares_the_clusters_of_each_seed():
    X = load_iris().data
    settings = {"n_components": 3, "tol": 1e-2}
    model = NSNMF(**settings, random_state=0).fit(X)
    found = stability(model, X, seeds=2)
    assert found.names == ("this model", "seed 0", "seed 1")
    runs = [NSNMF(**settings, random_state=s, init="random").fit(X).labels_ for s in (0, 1)]
    assert found.agreement[1, 2] == pytest.approx(adjusted_rand(*runs))
    assert found.agreement[0, 1] == pytest.approx(adjusted_rand(model.labels_, runs[0]))
    assert model.random_state == 0 and model.init is None


def test_signed_and_coloured_parts(rng):
    assert pictures.part_uri(rng.normal(size=(4, 4)))[1] == "signed"
    assert pictures.part_uri(rng.random((4, 4, 3)))[1] == "colour"
    assert pictures.part_uri(np.zeros((4, 4)))[1] == "grey"


def test_classes_whose_names_begin_alike_keep_rows_of_their_own():
    """Check that classes with similar long names keep separate rows in the confusion chart.

    A category axis of plotly would merge names that are cut to the same text.
    """
    labels = ["talk.politics.mideast", "talk.politics.misc", "talk.politics.misc "]
    clusters = ["a cluster with a long name 1", "a cluster with a long name 2", "b"]
    table = np.arange(1, 10).reshape(3, 3)
    figure = charts.confusion(table, labels, clusters)
    heat = figure["data"][0]
    for side, axis, names in (("x", "xaxis", clusters), ("y", "yaxis", labels)):
        assert list(heat[side]) == [0, 1, 2]
        shown = figure["layout"][axis]["ticktext"]
        assert list(figure["layout"][axis]["tickvals"]) == [0, 1, 2]
        assert len(set(shown)) == 3 and all(len(text) <= 24 + 4 for text in shown), names
    assert heat["customdata"][1][2] == [6, "talk.politics.misc", "b"]


def test_names_stay_apart_however_they_are_cut():
    names = ["x" * 50 + "a" + "y" * 50, "x" * 50 + "b" + "y" * 50, "<b>", "a  b", "a b"]
    shown = charts.distinct(names, 16)
    assert len(set(shown)) == 5 and shown[2] == "&lt;b&gt;"


def test_what_to_label_next_is_unclear_unlabelled_and_various():
    from partwise.apps.view.report.members import to_label_next

    clusters = ["a"] * 6 + ["b"] * 4
    confidence = np.array([0.1, 0.2, 0.3, 0.4, 0.05, 0.06, 0.9, 0.8, 0.7, 0.6])
    known = [None] * 10
    known[4] = "a"
    assert to_label_next(clusters, confidence, known) == [5, 0, 1, 9, 8, 7]
    texts = ["same", "same", *(f"text {i}" for i in range(8))]
    assert to_label_next(clusters, confidence, known, texts)[:3] == [5, 0, 2]
    assert to_label_next(clusters, None, known) == []
    assert to_label_next(clusters, confidence, ["x"] * 10) == []


def test_names_with_numbers_are_in_their_order():
    from partwise.apps.view.report.charts import natural

    names = ["block 10", "block 9", "10", "9", "a", "-1.5"]
    assert sorted(names, key=natural) == ["-1.5", "9", "10", "a", "block 9", "block 10"]


def test_the_script_of_the_charts_is_packed():
    import base64
    import gzip

    from plotly.offline import get_plotlyjs

    from partwise.apps.view.report.charts import script

    packed = script()
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert len(packed) < len(get_plotlyjs()) / 2


# -- tables ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def customers(tmp_path_factory):
    """Return a table of customers, and reports on it with classes and with clusters.

    The class depends on the column of amounts.
    """
    path = studio_inputs.table(tmp_path_factory.mktemp("table") / "k.csv", 90)
    samples = read_samples(path)
    y = np.array([("low", "high", "top")[i % 3] if i < 30 else None for i in range(90)], object)
    model = PartsClassifier(random_state=0).fit(samples.X, y)
    found = {"cluster": model.transduction_, "confidence": model.label_confidence_}
    page = report_page(model=model, X=samples.X, dataset=samples, assignments=found, labels=y)
    plain = NSNMF(3, random_state=0, tol=1e-2).fit(samples.X)
    found = {"cluster": plain.labels_}
    other = report_page(model=plain, X=samples.X, dataset=samples, assignments=found)
    return samples, page, other


def cards(page):
    """Yield the headings and rows of each table in the section of classes or clusters."""
    section = page[page.index('<section id="clusters"') :].partition("</section>")[0]
    for table in re.findall(r'<table class="rows">(.*?)</table>', section, re.S):
        heads = re.findall(r"<th scope[^>]*>(.*?)</th>", table)
        rows = [re.findall(r"<td([^>]*)>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
        yield heads, rows


def test_rows_of_a_table_are_shown_as_in_the_file(customers):
    samples, page, clusters = customers
    frame = samples.table.set_index("Kundennummer")
    for text, count in ((page, 3), (clusters, 2)):
        shown = list(cards(text))
        assert len(shown) >= 3
        for heads, rows in shown:
            assert heads[:count] == ["Kundennummer", "Name", "Umsatz"][:count]
            for row in rows:
                values = dict(zip(heads, (value for _, value in row)))
                for name in heads[1:6]:
                    if name in frame:
                        assert values[name] == str(frame.loc[values["Kundennummer"], name])


def test_columns_that_contribute_are_bold(customers):
    _, page, _ = customers
    bold = [
        head
        for heads, rows in cards(page)
        for row in rows
        for head, (mark, _) in zip(heads, row)
        if "changed" in mark
    ]
    assert bold.count("Umsatz") > 0.8 * len(bold)


def test_points_of_a_table_show_their_row(customers):
    samples, page, _ = customers
    for point in Page(page).json["points"][:5]:
        row = samples.table[samples.table["Kundennummer"].astype(str) == point["id"]].iloc[0]
        assert f"Name: {row['Name']}" in point["text"] and row["Umsatz"] in point["text"]


def test_parts_with_signs_have_two_sides():
    from partwise.apps.view.describe import two_sides

    H = np.array([[1.0, -2.0, 0.0], [0.0, 0.5, -1.0]])
    sides, names = two_sides(H, ["age", "size", "town = Ulm"])
    assert names[3:] == ["low age", "low size", "town ≠ Ulm"]
    np.testing.assert_array_equal(sides[:, :3] - sides[:, 3:], H)
    assert two_sides(abs(H), ["a", "b", "c"])[1] == ["a", "b", "c"]


# -- notes, texts and class names ----------------------------------------------------------------


def test_the_report_mentions_what_was_skipped_dropped_and_filled(digits):
    notes = ("The colours of all images were dropped; --rgb keeps them.", "3 values were filled.")
    skipped = (("a.jpg", "cannot be read"), ("b.pdf", "is no image"))
    page = report_page(**fitted(images(digits, notes=notes, skipped=skipped)))
    texts = Page(page).texts
    for text in (*notes, *(part for pair in skipped for part in pair)):
        assert text in texts
    assert 'id="notes"' not in report_page(**fitted(images(digits)))


def test_photos_open_with_pictures_and_other_data_with_the_map(digits, customers):
    for page, first in ((report_page(**fitted(images(digits))), "clusters"), (customers[1], "map")):
        assert re.findall(r'aria-controls="(\w+)"', page)[0] == first


def test_groups_that_have_the_names_of_labels_are_classes(digits):
    y = labels(digits)
    page = report_page(**fitted(images(digits, y=y)), labels=y)
    assert "Classes</button>" in page and "Clusters</button>" not in page
    assert "Clusters</button>" in report_page(**fitted(images(digits)))


def test_texts_stand_next_to_the_ids_of_doubtful_labels(rng):
    words = np.array([f"w{j}" for j in range(30)])
    group = np.arange(90) % 3
    X = rng.random((90, 30)) * 0.1
    for g in range(3):
        X[group == g, 10 * g : 10 * g + 10] += 1
    y = np.array([f"g{g}" for g in group], dtype=object)
    y[45:] = None
    y[0], y[1] = "g1", "g2"  # both labels are wrong
    texts = [f"text of sample {i}" for i in range(90)]
    samples = Samples(X, [f"t{i}" for i in range(90)], "texts", list(words), texts=texts)
    model = PartsClassifier(random_state=0).fit(X, y)
    found = {"cluster": model.transduction_, "confidence": model.label_confidence_}
    page = report_page(model=model, X=X, dataset=samples, assignments=found, labels=y)
    section = page[page.index('<section id="labels"') :].partition("</section>")[0]
    odd = [doubt.sample for doubt in model.doubtful_labels_]
    assert odd and all(f"text of sample {i}" in section for i in odd)
