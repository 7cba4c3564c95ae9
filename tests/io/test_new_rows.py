"""Tests of reading new rows for a fitted model: other formats, unreadable values, gaps."""

import datetime as dt

import numpy as np
import pytest

from partwise.io import read_samples
from partwise.io.numbers import decimal_sign, to_hours, to_numbers

DAYS = [dt.date(2025, 1, 1) + dt.timedelta(days=int(d)) for d in np.arange(0, 400, 10)]
SECONDS = [60 * (7 * i % 50) + 3600 for i in range(40)]


def write(tmp_path, lines, name="t.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def dated(tmp_path, form, name="t.csv", heading="when;size"):
    rows = (f"{day.strftime(form)};{i % 9}" for i, day in enumerate(DAYS))
    return write(tmp_path, [heading, *rows], name)


def test_a_running_number_is_left_out_whatever_separates_the_columns(tmp_path):
    rows = [f"{i};{i * i % 7}" for i in range(40)]
    for name, lines in (("a", rows), ("b", [row.replace(";", ",") for row in rows])):
        heading = "line;b" if name == "a" else "line,b"
        assert read_samples(write(tmp_path, [heading, *lines], f"{name}.csv")).X.shape == (40, 1)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%m/%d/%Y", "%d-%m-%Y", "%Y-%m-%dT00:00:00"])
def test_dates_in_another_format_are_the_same_days(tmp_path, form):
    seen = read_samples(dated(tmp_path, "%d.%m.%Y"))
    again = read_samples(dated(tmp_path, form, "new.csv"), recipe=seen.recipe)
    assert np.array_equal(again.X, seen.X)
    assert sum("'when'" in note for note in again.notes) == 1
    assert not any("issing" in note for note in again.notes)


@pytest.mark.parametrize(
    "rows", [["3. Quartal;1", "4. Quartal;2"], ["03/04/2025;1", "05/06/2025;2"]]
)
def test_a_column_that_cannot_be_read_is_refused_by_name(tmp_path, rows):
    """Check that a column of new rows whose dates are unreadable or ambiguous is refused.

    In an ambiguous column, the day or the month may come first.
    """
    recipe = read_samples(dated(tmp_path, "%d.%m.%Y")).recipe
    with pytest.raises(ValueError, match=f"'when' has '{rows[0][:4]}.*2 of its 2 rows"):
        read_samples(write(tmp_path, ["when;size", *rows], "new.csv"), recipe=recipe)


def test_a_few_unreadable_values_are_named(tmp_path):
    recipe = read_samples(dated(tmp_path, "%d.%m.%Y")).recipe
    rows = [f"{day:%d.%m.%Y};{i % 9}" for i, day in enumerate(DAYS)]
    new = write(tmp_path, ["when;size", "soon;3", *rows], "new.csv")
    again = read_samples(new, recipe=recipe)
    assert any("'when' has 'soon'" in note and "1 row" in note for note in again.notes)
    # The note says that the column was filled.
    assert any("('when')" in note for note in again.notes)


def test_a_workbook_and_a_text_file_have_the_same_dates(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["when", "size"], *([day, i % 9] for i, day in enumerate(DAYS))]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    sheet, text = read_samples(tmp_path / "t.xlsx"), read_samples(dated(tmp_path, "%d.%m.%Y"))
    assert np.array_equal(sheet.X, text.X)
    assert np.array_equal(read_samples(tmp_path / "t.xlsx", recipe=text.recipe).X, text.X)
    assert np.array_equal(read_samples(tmp_path / "t.csv", recipe=sheet.recipe).X, text.X)


def test_another_decimal_sign_is_the_same_number(tmp_path):
    german = [f"x{i};{1000 + 10 * i:,}".replace(",", ".") + f",{i % 10}" for i in range(30)]
    english = [f"x{i};{1000 + 10 * i:,}.{i % 10}" for i in range(30)]
    seen = read_samples(write(tmp_path, ["id;amount", *german]))
    again = read_samples(write(tmp_path, ["id;amount", *english], "n.csv"), recipe=seen.recipe)
    assert np.array_equal(again.X, seen.X) and any("'amount'" in note for note in again.notes)
    whole = write(tmp_path, ["id;amount", "y;1.120"], "one.csv")  # the value is 1,120, as before
    assert read_samples(whole, recipe=seen.recipe).X[0] == pytest.approx(seen.X[12], abs=1e-3)


@pytest.mark.parametrize("form", ["({},50)", "-{},50", "{},50-", "({},50 €)"])
def test_negative_amounts_of_accountants(form):
    values = [form.format(i) for i in range(1, 9)]
    assert decimal_sign(values) == ","
    assert to_numbers(values, ",").tolist() == [-i - 0.5 for i in range(1, 9)]


def test_times_and_durations_are_hours(tmp_path):
    values = ["1:30", "00:45", "26:00:36", "-0:30", dt.time(7, 15), dt.timedelta(days=2), "x"]
    assert to_hours(values)[:6].tolist() == pytest.approx([1.5, 0.75, 26.01, -0.5, 7.25, 48])
    assert np.isnan(to_hours(values)[6])
    rows = [f"{s // 3600}:{s // 60 % 60:02};{s}" for s in SECONDS]
    samples = read_samples(write(tmp_path, ["time;seconds", *rows]))
    assert [kind for _, kind, _ in samples.columns] == ["time", "number"]
    assert np.allclose(samples.X[:, 0], samples.X[:, 1])
    with pytest.raises(ValueError, match="'time' has 'late'"):
        read_samples(write(tmp_path, ["time;seconds", "late;9"], "n.csv"), recipe=samples.recipe)


def test_numbers_and_words_in_one_column_of_a_workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["size", "b"], *([i + 0.5 if i else "n/a", i * i % 7] for i in range(30))]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    samples = read_samples(tmp_path / "t.xlsx", scale="none")
    assert samples.X[1:, 0].tolist() == [i + 0.5 for i in range(1, 30)]
