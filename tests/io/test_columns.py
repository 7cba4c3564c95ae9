"""Tests that every column of a table gets the right type and a note that describes it."""

import numpy as np
import pytest

from partwise.io import read_samples, tables
from partwise.io.numbers import date_format, decimal_sign, to_days, to_numbers


@pytest.fixture
def orders(tmp_path, rng):
    """Write a German table of sixty orders, and return its path.

    It has an id, a date, a country, a yes/no column, two styles of numbers, and missing values.
    """
    lines = ["order_nr;datum;land;express;betrag;gewicht;bemerkung;quelle"]
    for i in range(60):
        amount = f"{1000 * (i + 1):,}.50".replace(",", " ").replace(".", ",").replace(" ", ".")
        gap = "" if i % 20 == 3 else f"{i % 7},5"
        country = "" if i == 5 else ("DE", "AT", "CH")[i % 3]
        lines.append(
            f"{7000 + i};{1 + i % 28:02d}.{1 + i % 12:02d}.2025;{country};"
            f"{'ja' if i % 2 else 'nein'};{amount};{gap};Bestellung Nummer {i} ist da;web"
        )
    path = tmp_path / "orders.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_column_is_what_it_looks_like(orders):
    samples = read_samples(orders)
    kinds = {name: kind for name, kind, _ in samples.columns}
    assert kinds == {
        "datum": "date",
        "land": "category",
        "express": "yes/no",
        "betrag": "number",
        "gewicht": "number",
        "bemerkung": "left out",
        "quelle": "left out",
    }
    assert samples.ids[0] == "7000" and "'order_nr' was taken as the samples' ids" in str(
        samples.notes
    )
    assert samples.feature_names == [
        *("datum", "land = AT", "land = CH", "land = DE", "express = yes", "betrag", "gewicht")
    ]
    X = dict(zip(samples.feature_names, samples.X.T))
    # Numbers are scaled from 0 to their 95% quantile.
    assert X["betrag"][0] == pytest.approx(1000.5 / 58000.5)
    assert X["express = yes"].tolist() == [0, 1] * 30
    assert X["land = DE"][0] == pytest.approx(0.5**0.5) and X["land = DE"][1] == 0
    assert "in 4 of 60 rows" in str(samples.notes)
    assert X["gewicht"][3] == pytest.approx(np.median(X["gewicht"]), abs=0.1)
    assert samples.X.min() >= 0 and np.isfinite(samples.X).all()


def test_columns_contribute_equally_to_distances(orders):
    """Check that each column contributes at most about one to a squared distance of two samples."""
    samples = read_samples(orders)
    blocks: dict[str, list[int]] = {}
    for j, name in enumerate(samples.feature_names):
        blocks.setdefault(name.split(" = ")[0], []).append(j)
    for columns in blocks.values():
        part = samples.X[:, columns]
        widest = max(((row - part) ** 2).sum(axis=1).max() for row in part)
        assert 0.8 < widest < 1.3


def test_new_rows_are_treated_alike(orders, tmp_path):
    seen = read_samples(orders)
    lines = orders.read_text(encoding="utf-8").splitlines()
    new = tmp_path / "new.csv"
    new.write_text(lines[0] + "\n" + lines[4] + "\n" + lines[5].replace(";AT;", ";FR;") + "\n")
    again = read_samples(new, recipe=seen.recipe)
    assert again.ids == ["7003", "7004"]  # the recipe stores how ids are read
    assert np.allclose(again.X[0], seen.X[3])
    countries = [j for j, n in enumerate(seen.feature_names) if n.startswith("land")]
    assert not again.X[1, countries].any()  # the training data do not contain this country


def test_columns_by_choice(orders):
    few = read_samples(orders, columns=["betrag", "express"])
    assert few.feature_names == ["express = yes", "betrag"]
    less = read_samples(orders, exclude=["datum", "land"])
    assert less.feature_names == ["express = yes", "betrag", "gewicht"]


@pytest.mark.parametrize(
    ("values", "sign", "numbers"),
    [
        (["43,006.82", "7.5", "1,000"], ".", [43006.82, 7.5, 1000]),
        (["43.006,82", "7,5", "1.000"], ",", [43006.82, 7.5, 1000]),
        (["1 200 €", "3,50 €"], ",", [1200, 3.5]),
        (["$1,200.00", "$3"], ".", [1200, 3]),
        (["1'234.5", "-2"], ".", [1234.5, -2]),
        (["12 %", "1.5e3"], ".", [12, 1500]),
        (["1.2.3", "x"], None, None),
    ],
)
def test_numbers_as_people_write_them(values, sign, numbers):
    assert decimal_sign(values) == sign
    if sign:
        assert to_numbers(values, sign).tolist() == numbers


def test_a_german_file_without_a_fraction_in_one_column(tmp_path):
    """Check that 43.006 is read as 43006 in a German table, unlike in pandas.

    The decimal commas of another column show the number format.
    """
    rows = "\n".join(f"{i}.006;{i},5" for i in range(10, 40))
    path = tmp_path / "t.csv"
    path.write_text(f"umsatz;preis\n{rows}\n")
    samples = read_samples(path, scale="none")
    assert samples.X[0].tolist() == [10006, 10.5]


def test_dates():
    assert date_format(["2025-01-31", "2025-02-01"]) == "%Y-%m-%d"
    assert date_format(["31.01.2025", "01.02.2025"]) == "%d.%m.%Y"
    assert date_format(["31/01/2025", "01/02/2025"]) == "%d/%m/%Y"
    assert date_format(["01/31/2025", "02/01/2025"]) == "%m/%d/%Y"
    assert date_format(["2025-01-31T10:00:00", "2025-02-01T11:30:00"]) == "ISO8601"
    assert date_format(["20250131", "20250201"]) is None  # these may also be numbers
    days = to_days(["1970-01-02", None, "x"], "%Y-%m-%d")
    assert days[0] == 1 and np.isnan(days[1:]).all()


def test_a_running_number_and_a_nearly_empty_column_are_left_out(tmp_path):
    rows = "\n".join(f"{i},{i % 3},{'' if i % 4 else i}" for i in range(40))
    path = tmp_path / "t.csv"
    path.write_text(f"line,a,b\n{rows}\n")
    samples = read_samples(path)
    assert samples.feature_names == ["a"]
    done = {name: what for name, _, what in samples.columns}
    assert done["line"] == "numbers the rows" and done["b"] == "empty in 75% of the rows"


# -- missing values and the option --missing ------------------------------------------------------


def gappy_table(path, gaps, n=12):
    lines = ["id,a,b,kind"]
    for i in range(n):
        lines.append(f"s{i},{'' if i in gaps else i + 1},{n - i},{'xy'[i % 2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_with_gaps_take_their_ids_and_labels_along(tmp_path):
    path = gappy_table(tmp_path / "t.csv", {1, 6})
    kept = [i for i in range(12) if i not in (1, 6)]
    samples = read_samples(path, label_column="kind", missing="drop", scale="none")
    assert samples.ids == [f"s{i}" for i in kept]
    assert samples.y.tolist() == ["xy"[i % 2] for i in kept]
    assert samples.X.tolist() == [[i + 1.0, 12.0 - i] for i in kept]
    assert "2 rows with missing values were left out." in samples.notes
    with pytest.raises(ValueError, match=r"2.*'a'.*row 1"):
        read_samples(path, label_column="kind", missing="error")
    with pytest.raises(ValueError, match="row"):
        each = "".join(f"{i},\n,{i}\n" for i in range(6))  # every row has a missing value
        (tmp_path / "all.csv").write_text("a,b\n" + each)
        read_samples(tmp_path / "all.csv", missing="drop")


@pytest.mark.parametrize("how", ["median", "mean", "drop"])
def test_new_samples_are_filled_as_those_of_the_model_were(tmp_path, how):
    path = gappy_table(tmp_path / "t.csv", {0, 1})  # rows 3 to 12 have a value
    (tmp_path / "t.csv").write_text(path.read_text().replace("s11,12", "s11,100"))
    known = np.array([*range(3, 12), 100.0])
    first = read_samples(path, exclude=["kind"], missing=how, scale="none")
    filled = {"median": np.median(known), "mean": known.mean()}.get(how)
    new = gappy_table(tmp_path / "new.csv", {4})
    again = read_samples(new, recipe=first.recipe)
    if how == "drop":
        assert again.n_samples == 11 and "s4" not in again.ids
    else:
        assert first.X[:2, 0].tolist() == [filled] * 2
        assert again.X[4, 0] == filled
        assert f"their column's {how}" in str(again.notes)
    other = {"median": "mean", "mean": "median", "drop": "median"}[how]
    told = read_samples(new, recipe=first.recipe, missing=other)
    used = filled if filled is not None else np.median(known)
    # The model's own value is used, whatever option is given, with a note.
    assert told.X[4, 0] == used
    assert f"their column's {how if how != 'drop' else 'median'}" in str(told.notes)


def test_ids_are_text_whatever_they_look_like(tmp_path):
    """Check that ids keep leading zeros, in a column that is an id by name or by option."""
    path = tmp_path / "t.csv"
    path.write_text("id,nr,a,b\n" + "".join(f"00{i},0{i},{i + 1},{9 - i}\n" for i in range(9)))
    assert read_samples(path).ids[:2] == ["000", "001"]
    assert read_samples(path, id_column="nr").ids[:2] == ["00", "01"]


def test_texts_in_a_table_are_in_a_column(tmp_path):
    path = tmp_path / "t.csv"
    words = ["old house", "new house", "old ship"] * 3
    path.write_text("a,b\n" + "".join(f"red wine,{some}\n" for some in words))
    with pytest.raises(ValueError, match="--text-column"):
        read_samples(path, kind="texts")
    found = read_samples(path, kind="texts", text_column="b", max_df=1.0, min_df=1)
    assert found.kind == "texts" and not any("wine" in word for word in found.feature_names)


def test_ids_are_of_a_column_that_tells_all_rows_apart(tmp_path):
    """Check that the id column is the first one without repeated values."""
    file = tmp_path / "t.csv"
    file.write_text("Nr,code_id,v,w\n1,10,3,4\n1,11,5,6\n2,13,7,8\n3,15,1,2\n")
    assert read_samples(file).ids == ["10", "11", "13", "15"]


def test_whole_numbers_that_came_as_floats_are_whole():
    """Check that ids that a spreadsheet stores as floats are read as whole numbers."""
    pandas = pytest.importorskip("pandas")
    assert tables._texts_of(pandas.Series([1.0, 3.0])) == ["1", "3"]
    assert tables._texts_of(pandas.Series([1.5, 3.0])) == ["1.5", "3"]


def test_a_blank_first_line_is_no_row(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("\na,b\n1,2\n3,4\n")
    samples = read_samples(file)
    assert samples.X.shape == (2, 2) and list(samples.feature_names) == ["a", "b"]
