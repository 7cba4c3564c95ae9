"""Tests of language detection, and of the warning if a class has labels in one language only."""

import numpy as np
import pytest
from typer.testing import CliRunner

from partwise.apps.cli import app
from partwise.io.languages import language_notes, language_of

SENTENCES = {
    "english": "The train was late because of the snow, and we had to wait at the station.",
    "german": "Der Zug hatte wegen des Schnees Verspätung, und wir mussten auf dem Bahnhof warten.",
    "french": "Le train était en retard à cause de la neige et nous avons dû attendre à la gare.",
    "spanish": "El tren llegó tarde por la nieve y tuvimos que esperar en la estación.",
    "italian": "Il treno era in ritardo per la neve e abbiamo dovuto aspettare alla stazione.",
    "portuguese": "O trem estava atrasado por causa da neve e nós tivemos que esperar na estação.",
    "dutch": "De trein was te laat door de sneeuw en we moesten op het station wachten.",
    "polish": "Pociąg był spóźniony z powodu śniegu i czekaliśmy na dworcu, bo nie było go.",
    "russian": "Поезд опоздал из-за снега, и мы были на вокзале, потому что его не было.",
    "japanese": "雪のために電車が遅れて、駅で待たなければなりませんでした。",
    "chinese": "火车因为下雪晚点了，我们只好在车站等候。",
    "korean": "눈 때문에 기차가 늦어서 역에서 기다려야 했습니다.",
    "greek": "Το τρένο άργησε λόγω του χιονιού και έπρεπε να περιμένουμε στον σταθμό.",
    "arabic": "تأخر القطار بسبب الثلج واضطررنا إلى الانتظار في المحطة.",
    "hebrew": "הרכבת איחרה בגלל השלג ונאלצנו לחכות בתחנה.",
    "thai": "รถไฟมาช้าเพราะหิมะตกและเราต้องรอที่สถานี",
    "hindi": "बर्फ के कारण ट्रेन देर से आई और हमें स्टेशन पर इंतज़ार करना पड़ा।",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_in_its_language(language):
    assert language_of(SENTENCES[language]) == language


@pytest.mark.parametrize("text", ["", "12 345", "Xyzzy plugh", "SKU-44 A/B 17mm"])
def test_what_is_no_sentence_has_no_language(text):
    assert language_of(text) == ""


def mails(classes):
    """Return 40 texts, alternately English and French, and labels of the first four."""
    texts = [SENTENCES["english"], SENTENCES["french"]] * 20
    return texts, [*classes, *[None] * 36]


def test_a_class_with_labels_in_one_language_is_named():
    (note,) = language_notes(*mails(["order", "complaint", "order", "complaint"]))
    assert "order" in note and "complaint" in note and "French" in note
    (note,) = language_notes(*mails(["order", "complaint", "order", "order"]))
    assert "'complaint'" in note and "'order'" not in note


def test_there_is_no_warning_for_one_language_or_labels_in_all():
    assert language_notes(*mails(["a", "a", "b", "b"])) == []
    assert language_notes([SENTENCES["german"]] * 20, ["a", "b", *[None] * 18]) == []
    rare = [SENTENCES["german"]] * 100 + [SENTENCES["french"]]
    assert language_notes(rare, ["a", "b", *[None] * 99]) == []


def test_the_command_warns_and_recommends_a_multilingual_encoder(tmp_path):
    rng = np.random.default_rng(0)
    nouns = {"english": ["invoice payment account", "broken repair parcel"],
             "french": ["facture paiement compte", "cassé réparation colis"]}  # fmt: skip
    lines = ["text,label"]
    for i in range(60):
        language, topic = ("english", "french")[i % 2], (i // 2) % 2
        words = " ".join(rng.permutation(3 * nouns[language][topic].split()))
        label = ["money", "goods"][topic] if i < 8 and (i % 2 == topic) else ""
        lines.append(f'"{SENTENCES[language]} {words}",{label}')
    path = tmp_path / "mails.csv"
    path.write_text("\n".join(lines), "utf-8")
    words = ["classify", str(path), "--text-column", "text", "--label-column", "label"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out"), "--no-report"])
    assert done.exit_code == 0, done.output
    said = " ".join((done.output + done.stderr).split())
    assert "'goods' (French)" in said and "--encoder multilingual-e5-small" in said
