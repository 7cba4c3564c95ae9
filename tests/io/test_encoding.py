"""Tests that the encoding and the separator of text files are detected."""

import pytest

from partwise.io import read_samples
from partwise.io._common import Options
from partwise.io.encoding import decode, find_separator, text_format

# The texts are short on purpose: a few letters beyond ASCII must suffice to detect an encoding.
WRITINGS = {
    "cp1252": "id;text\n1;Lieferung zu spät\n2;alles gut\n",
    "cp1252 ": "id,text\n1,¿Dónde está la señora? ¡Mañana!\n2,Le café où créé\n3,20 €\n",
    "cp1250": "id,text\n1,Zażółć gęślą jaźń\n2,Příliš žluťoučký kůň\n",
    "cp1254": "id,text\n1,Güzel bir gün, teşekkür ederim\n2,iyi değil\n",
    "mac_roman": "id,text\n1,Lieferung zu spät und größer\n",
    "cp850": "id,text\n1,Lieferung zu spät und größer\n",
    "cp1251": "id,text\n1,Доставка была очень долгой\n2,Все хорошо\n",
    "koi8_r": "id,text\n1,Доставка была очень долгой\n2,Все хорошо\n",
    "cp1253": "id,text\n1,Η παράδοση ήταν πολύ αργή\n",
    "cp874": "id,text\n1,วันนี้อากาศดีมาก\n2,แบตเตอรี่ไม่ดี\n",
    "euc_kr": "id,text\n1,오늘 날씨가 좋네요\n2,배터리가 좋지 않아요\n",
    "cp932": "id,text\n1,今日は天気がいいですね\n2,この電話の電池は良くない\n",
    "euc_jp": "id,text\n1,今日は天気がいいですね\n2,この電話の電池は良くない\n",
    "big5": "id,text\n1,今天天氣很好我們去公園玩\n2,這個手機的電池不好用\n",
    "gb18030": "id,text\n1,今天天气很好我们去公园玩\n2,iPhone的电池不好用\n",
    "utf-8": "id,text\n1,spät 今天\n",
    "utf-8-sig": "id,text\n1,spät\n",
    "utf-16": "id\ttext\n1\tspät\n",
    "utf-16-le": "id\ttext\n1\tspät\n",
    "utf-32": "id,text\n1,spät\n",
}


@pytest.mark.parametrize("name", WRITINGS)
def test_texts_are_read_whatever_wrote_them(name):
    text = WRITINGS[name]
    found, codec = decode(text.encode(name.strip()), "a file")
    assert found == text and codec == name.strip()


def test_what_is_no_text_is_refused(rng):
    with pytest.raises(ValueError, match="encoding"):
        decode(rng.integers(0, 256, 4000).astype("uint8").tobytes(), "noise")


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2,5\n", ";"),  # commas as decimal signs
        ('a;b\n"one, two; three";2\n', ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b|c\n1|2|3\n", "|"),
        ("text\none, two\nthree; four\n", ","),  # a table with a single column
        ("a,b\n1,2\n1,2,3\n", ","),  # rows of different lengths, which the reader reports
    ],
)
def test_separators(tmp_path, text, sign):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert find_separator(path, "utf-8") == sign


def test_what_was_found_is_said_and_can_be_overruled(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a;b\nä;1\n".encode("cp1252"))
    notes = []
    assert text_format(path, Options(note=notes.append)) == ("cp1252", ";")
    assert len(notes) == 1 and "Windows-1252" in notes[0] and "semicolons" in notes[0]
    given = Options(encoding="latin-1", separator="tab", note=notes.append)
    assert text_format(path, given) == ("iso8859-1", "\t") and len(notes) == 1
    with pytest.raises(ValueError, match="separator=';;'"):
        read_samples(path, separator=";;")
