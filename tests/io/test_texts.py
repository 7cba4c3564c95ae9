"""Tests of reading texts: stop words, n-grams, frequency limits, scripts without spaces."""

import numpy as np
import pytest

from partwise.io import read_samples
from partwise.io.tokens import by_characters, cutter, find_stop_words, stop_lists

GERMAN = [
    "Die Lieferung ist nicht gekommen und ich warte noch auf das Paket",
    "Das Paket ist mit der Post gekommen, aber es war leer",
    "Die Rechnung ist zu hoch und ich kann sie nicht bezahlen",
    "Wo ist die Rechnung für das Paket, die ich bezahlen soll",
]


def folder(path, texts):
    path.mkdir()
    for number, text in enumerate(texts):
        (path / f"{number:02d}.txt").write_text(text, encoding="utf-8")
    return path


def test_the_language_brings_its_stop_words(tmp_path):
    samples = read_samples(folder(tmp_path / "g", GERMAN))
    assert {"lieferung", "paket", "rechnung", "bezahlen"} <= set(samples.feature_names)
    assert not stop_lists()["german"] & set(samples.feature_names)
    assert "without German stop words" in samples.preparation
    off = read_samples(tmp_path / "g", stop_words="off")
    assert "nicht" in off.feature_names and "stop words" in off.preparation
    both = read_samples(tmp_path / "g", stop_words="english,german")
    assert both.feature_names == samples.feature_names
    own = tmp_path / "own.txt"
    own.write_text("paket\nRechnung\n")
    assert not {"paket", "rechnung"} & set(
        read_samples(tmp_path / "g", stop_words=str(own)).feature_names
    )
    with pytest.raises(ValueError, match=r"'klingon'.*auto"):
        read_samples(tmp_path / "g", stop_words="klingon")


def test_frequent_words_only_when_asked():
    texts = ["gato " + "abcdefghij"[i % 10] * 3 for i in range(40)]
    assert find_stop_words(texts, "auto", characters=False) == ([], "")
    assert find_stop_words(texts, "frequent", characters=False)[0] == ["gato"]


def test_limits_and_ngrams(tmp_path):
    path = folder(tmp_path / "t", ["red wine", "red wine glass", "red house", "old house"] * 6)
    pairs = read_samples(path, ngrams=(1, 2), stop_words="off", max_df=1.0)
    assert "red wine" in pairs.feature_names and "red" in pairs.feature_names
    assert "red" not in read_samples(path, max_df=0.7).feature_names
    assert "glass" not in read_samples(path, min_df=7).feature_names
    assert "glass" in read_samples(path, min_df=0.2).feature_names
    with pytest.raises(ValueError, match="must be positive"):
        read_samples(path, min_df=-1)
    # The recipe of a model splits new texts in the same way.
    new = read_samples(folder(tmp_path / "n", ["red wine"]), recipe=pairs.recipe)
    at = pairs.texts.index("red wine")
    assert np.allclose(new.X.toarray(), pairs.X[[at]].toarray())


def test_writing_without_spaces_is_cut_by_characters(tmp_path):
    chinese = ["手机电池不好用", "电池很快没电了", "今天天气很好", "天气预报说下雨", "手机屏幕坏了"]
    assert by_characters(chinese) and not by_characters(GERMAN)
    samples = read_samples(folder(tmp_path / "z", chinese))
    assert {"手机", "电池", "天气"} <= set(samples.feature_names)
    assert not any("的" in word or "了" in word for word in samples.feature_names)
    assert "groups of characters" in samples.preparation
    words = read_samples(tmp_path / "z", tokens="words")
    assert "手机电池不好用" in words.feature_names
    cut = cutter({"tokens": "characters", "ngrams": (2, 2), "stop_words": []})
    assert cut("iPhone 的电池") == ["iphone", "的电", "电池"]
    assert cut("อากาศ") == ["อาก", "ากา", "กาศ"]  # Thai letters are cut into groups of three
    stops = {"tokens": "characters", "ngrams": (2, 2), "stop_words": ["的"]}
    assert cutter(stops)("これは電池") == ["は電", "電池"]  # hiragana alone is grammar, no word


ENGLISH = [
    "The parcel has not come and I am still waiting for it to be sent",
    "It came with the post but there was nothing in the box",
    "My bill is too high and I cannot pay all of it at once",
    "Where is the bill for the parcel that you have sent to me",
]
FRENCH = [
    "Le colis n'est pas encore venu et je ne sais pas où il est",
    "Il est venu avec la poste mais il n'y avait rien dans la boîte",
    "La facture est trop chère et je ne peux pas la payer pour vous",
    "Où est la facture pour le colis que vous avez envoyé à mon adresse",
]


def found_languages(texts):
    return find_stop_words(texts, "auto", characters=False)[1]


def test_one_long_text_does_not_decide_for_all():
    """Check that one long English book does not decide the language of many German letters."""
    book = " ".join(ENGLISH * 500)
    assert found_languages([book, *(GERMAN * 5)]) == "without German stop words"
    assert found_languages([*(GERMAN * 5), book]) == "without German stop words"


def test_every_language_that_has_a_share_is_found():
    texts = [*(ENGLISH * 12), *(GERMAN * 6), *(FRENCH * 2)]
    assert found_languages(texts) == "without English, German, French stop words"
    lists = stop_lists()
    stops = set(find_stop_words(texts, "auto", characters=False)[0])
    assert stops == lists["english"] | lists["german"] | lists["french"]


def test_a_neighbouring_language_is_not_found():
    spanish = [
        "El paquete no ha llegado y lo estoy esperando en mi casa",
        "Llegó con el correo, pero no había nada en la caja",
        "La factura es muy alta y no la puedo pagar este mes",
        "Dónde está la factura de todo lo que me han enviado",
    ]
    assert found_languages(spanish * 8) == "without Spanish stop words"
    assert found_languages(["ship harbour sail wave", "cloud wind storm rain"] * 20) == ""


def test_shared_words_are_no_evidence_for_a_language():
    """Check that words that two languages share do not count as evidence for both.

    The English word "due" means two in Italian, and was once removed as an Italian stop word.
    """
    texts = ["please pay the amount that is due and send it to the bank"] * 9
    texts += ["due due invoice payment", "due overdue payment account", "due bank"] * 4
    words, said = find_stop_words(texts, "auto", characters=False)
    assert said == "without English stop words" and "due" not in words
    mixed = texts + [f"la casa di {name} con il giardino per due" for name in "abcdefgh"]
    assert find_stop_words(mixed, "auto", characters=False)[1].count("Italian") == 1


MAILS = [
    "<html><head><style>p {color: red}</style></head><body><p>Die Lieferung&nbsp;kam&amp;blieb</p>",
    "<div class='x'>Die<br>Rechnung</div><!-- Vorlage 7 --> ist <b>falsch</b>",
    "Wenn a < b und b > c, schreibt <anna@example.org>: ich <3 Rechnung",
]


def test_tags_of_mails_are_no_words(tmp_path):
    samples = read_samples(folder(tmp_path / "mails", MAILS), stop_words="off")
    assert samples.whole_texts[0].split() == ["Die", "Lieferung", "kam&blieb"]
    assert samples.whole_texts[1].split() == ["Die", "Rechnung", "ist", "falsch"]
    assert samples.whole_texts[2] == MAILS[2]
    assert any("2 of 3" in note for note in samples.notes)
    assert not set(samples.feature_names) & {"div", "nbsp", "color", "vorlage", "class", "br"}
    new = read_samples(folder(tmp_path / "new", MAILS[1:]), recipe=samples.recipe)
    np.testing.assert_array_equal(new.X.toarray(), samples.X.toarray()[1:])
