"""Keywords and suggested names: the formula by hand, words of many scripts, names that differ, and the commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from rpim import Discovery, FeatureSet
from rpim.runs import keywords as naming
from rpim.runs.keywords import keywords, suggest_names, words_of

FAST = ("--n-classes", "4", "--trade-off", "0.1", "--weight-decay", "0.01", "--beta", "0.2")
X, TRUTH = make_blobs(120, n_features=6, centers=4, random_state=1)
LABELS = np.where((TRUTH < 2) & (np.arange(120) % 2 == 0), np.array(["pay", "fee", "", ""])[TRUTH], "")
SENTENCES = ["pay my invoice", "my monthly fee", "lost my card", "change my pin"]


def test_keywords_are_ranked_by_the_formula():
    texts = ["robin", "wren", "robin", "wren", *["finch"] * 9]
    codes = [0] * 4 + [1] * 9
    # Used equally often, the order is that of the alphabet.
    assert keywords(texts, np.array(codes), 2) == [["robin", "wren"], ["finch"]]
    # With a robin in the other class the wren tells more, and so it does with another wren in its own.
    assert keywords([*texts, "robin"], np.array([*codes, 1]), 2)[0] == ["wren", "robin"]
    assert keywords([*texts, "wren"], np.array([*codes, 0]), 2)[0] == ["wren", "robin"]


def test_words_of_all_classes_are_no_keywords():
    texts = ["have you the red one", "have you the red ones", "have you the blue one", "have you the blue ones"]
    assert keywords(texts, np.array([0, 0, 1, 1]), 2) == [["red"], ["blue"]]


def test_words_that_stand_together_are_one_keyword_and_forms_of_a_word_are_not_two():
    texts = ["i lost my card", "lost cards", "i lost the card", "my pin", "the pins"]
    assert keywords(texts, np.array([0, 0, 0, 1, 1]), 2) == [["lost card"], ["pin"]]
    # Apart as often as together, they are two.
    texts = ["lost card", "lost", "card", "lost", "card", "pin"]
    assert keywords(texts, np.array([0, 0, 0, 0, 0, 1]), 2)[0] == ["card", "lost"]


def test_what_one_row_alone_says_comes_last():
    texts = ["refund", "refund", "zebra zebra zebra zebra zebra", "pin", "pin"]
    assert keywords(texts, np.array([0, 0, 0, 1, 1]), 2)[0] == ["refund", "zebra"]
    assert keywords(["a single text"], np.array([0]), 1) == [["single", "text"]]


def test_classes_without_rows_rows_without_classes_and_texts_without_words():
    texts = ["alpha", "alpha", "beta", "beta", "gamma"]
    assert keywords(texts, np.array([0, 0, 2, 2, -1]), 3) == [["alpha"], [], ["beta"]]
    assert keywords(["12 34", "5.6", ""], np.array([0, 0, 1]), 2) == [[], []]
    assert keywords([], np.array([], dtype=int), 2) == [[], []]
    assert keywords(["the same", "the same"], np.array([0, 1]), 2) == [[], []]


def test_numbers_alone_are_no_words_but_names_with_digits_are():
    assert words_of("my 401k, W2, 2024, 3.50 and ½") == ["my", "401k", "w2", "and"]


def test_chinese_and_japanese_are_read_in_pairs():
    texts = ["我的信用卡丢了", "信用卡不见了", "怎么修改密码", "忘记密码了"]
    card, password = keywords(texts, np.array([0, 0, 1, 1]), 2)
    assert card[0] == "信用卡"  # both of its pairs always stand together
    assert password[0] == "密码"
    assert words_of("カードを失くした") == ["カー", "ード", "ドを", "を失", "失く", "くし", "した"]


@pytest.mark.parametrize("word", ["हिन्दी", "naïve", "größe", "привет", "مرحبا", "haven't", "ที่นี่"])
def test_words_stay_whole(word):
    assert words_of(f"{word}, {word}!") == [word, word]


def test_the_same_keywords_whatever_the_order_of_rows():
    random = np.random.RandomState(0)
    vocabulary = np.array([f"word{letter}" for letter in "abcdefghijkl"])
    codes = np.arange(60) % 3
    texts = [" ".join(vocabulary[(random.randint(0, 6, size=5) + 3 * k) % 12]) for k in codes]
    found = keywords(texts, codes, 3)
    assert all(found)
    order = random.permutation(60)
    assert keywords([texts[i] for i in order], codes[order], 3) == found == keywords(texts, codes, 3)


def test_large_classes_and_long_texts_are_read_in_part(monkeypatch):
    monkeypatch.setattr(naming, "MAX_ROWS", 4)
    monkeypatch.setattr(naming, "MIN_ROWS", 1)
    monkeypatch.setattr(naming, "MAX_CHARACTERS", 5)
    codes = np.array([0, 0, 0, 0, 0, 0, 1])
    assert naming._some_of_each(codes, 2).tolist() == [0, 3, 6]
    texts = ["alpha omega", "never", "never", "alpha omega", "never", "never", "betas omega"]
    assert keywords(texts, codes, 2) == [["alpha"], ["betas"]]


def test_names_by_hand():
    assert suggest_names([["card arrival", "week"], ["pin", "change", "atm"]], []) == ["card arrival", "pin change"]
    # Of a keyword that repeats a word, only the other one is taken.
    assert suggest_names([["lost", "lost card"]], []) == ["lost card"]


def test_names_that_would_be_alike_are_lengthened_or_numbered():
    assert suggest_names([["exchange rate", "cash"], ["exchange rate", "wrong"]], []) == [
        "exchange rate cash",
        "exchange rate wrong",
    ]
    assert suggest_names([["card arrival", "week"]], ["Card_Arrival?"]) == ["card arrival week"]
    assert suggest_names([["pin"], ["pin"], ["pin"]], [7]) == ["pin", "pin 2", "pin 3"]
    assert suggest_names([[], ["pin"], []], ["pin"]) == ["", "pin 2", ""]


_TERMS = st.sampled_from(["pin", "card", "lost", "lost card", "card pin", "atm"])


@given(st.lists(st.lists(_TERMS, max_size=4, unique=True), max_size=8), st.sets(_TERMS))
def test_names_are_unique_and_new(of_class, taken):
    names = suggest_names(of_class, taken)
    assert [name == "" for name in names] == [not words for words in of_class]
    given_names = [frozenset(name.split()) for name in names if name]
    assert len(set(given_names)) == len(given_names)
    assert not set(given_names) & {frozenset(name.split()) for name in taken}


@pytest.fixture
def with_texts():
    """A feature set on the disk whose four classes each say one sentence."""
    texts = [f"{SENTENCES[c]} {i}" for i, c in enumerate(TRUTH)]
    FeatureSet.from_arrays(X, labels=LABELS, texts=texts).write("texts.npz")


def test_the_commands_show_and_write_them(command, with_texts):
    code, out, err = command("discover", "texts.npz", "-o", "run", *FAST)
    assert (code, err) == (0, "")
    assert "suggested name, typical" in out
    names = {row.name: row.suggested_name for row in Discovery.load("run").classes_table()}
    assert {names.pop("pay"), names.pop("fee")} == {""}
    assert set(names.values()) == {"lost my card", "change my pin"}
    assert all(f"  {name}\n" in "\n".join(map(str.rstrip, out.splitlines())) for name in names.values())

    code, out, _ = command("classes", "run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["class", "rows", "labelled", "confidence", "stability", "about", "typical", "doubtful"]
    assert max(map(len, lines)) <= 80
    assert all(name in out for name in ("pay invoice", "monthly fee", *names.values()))

    assert command("classes", "run", "-o", "classes.json") == (0, "", "")
    rows = {row["name"]: row for row in json.loads(Path("classes.json").read_text())}
    assert {name: rows[name]["suggested_name"] for name in names} == names
    assert rows["fee"]["keywords"] == ["monthly fee"]
    assert command("classes", "run", "-o", "classes.csv") == (0, "", "")
    with open("classes.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert row["suggested_name"] == rows[row["name"]]["suggested_name"]
            assert row["keywords"].split(", ") == rows[row["name"]]["keywords"]


def test_without_texts_there_are_none(command):
    FeatureSet.from_arrays(X, labels=LABELS, paths=[f"/data/set/birds/{i}.jpg" for i in range(120)]).write("x.npz")
    code, out, _ = command("discover", "x.npz", "-o", "run", *FAST)
    assert (code, "suggested" in out, "nearest known  typical rows" in out) == (0, False, True)
    table = Discovery.load("run").classes_table()
    assert [(row.suggested_name, row.keywords) for row in table] == [("", [])] * 4
    # Of paths, the file and the folder it is in.
    assert f"birds/{table[3].typical[0]}.jpg" in out
    assert "set/birds" not in out
