"""Keywords and suggested names: the formula by hand, words of many scripts, names that differ, and the commands."""

from __future__ import annotations

import csv
import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from rpim import RPIM, Discovery, FeatureSet, InputError
from rpim.runs import keywords as naming
from rpim.runs.keywords import keywords, stem, suggest_names, words_of

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


def test_inflections_and_possessives_are_one_word_shown_in_its_usual_form():
    texts = ["the ATM's screen", "atms", "this atm", "an atm", "charged", "charges", "charging twice", "charges"]
    atm, charge = keywords(texts, np.array([0] * 4 + [1] * 4), 2)
    assert atm == ["atm", "screen"]
    assert charge == ["charges", "twice"]
    assert len({stem(word) for word in ("cancel", "cancels", "cancelled", "cancelling", "canceled")}) == 1
    assert len({stem(word) for word in ("try", "tries", "tried", "trying")}) == 1
    assert stem("news") != stem("newest")
    assert [stem(word) for word in ("bus", "this", "bring", "größen", "用卡")] == [
        "bus",
        "this",
        "bring",
        "größen",
        "用卡",
    ]


def test_a_pair_is_shown_as_the_phrase_in_which_it_mostly_occurs():
    texts = ["what is the meaning of life", "the meaning of life", "meaning of my life", "a joke", "one joke"]
    assert keywords(texts, np.array([0, 0, 0, 1, 1]), 2) == [["meaning of life"], ["joke"]]
    # Without a usual phrase, the two words.
    texts = ["change my pin", "change the pin", "change your pin", "a joke", "one joke"]
    assert keywords(texts, np.array([0, 0, 0, 1, 1]), 2)[0] == ["change pin"]


def test_english_function_words_are_no_keywords_even_of_one_class():
    texts = ["share it with him", "i don't share with her", "share with them", "stop", "stop"]
    assert keywords(texts, np.array([0, 0, 0, 1, 1]), 2) == [["share"], ["stop"]]
    texts = ["top up", "please top up", "pin", "pin"]  # in scikit-learn's list, but names a class
    assert keywords(texts, np.array([0, 0, 1, 1]), 2)[0] == ["top up"]


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
def with_texts(monkeypatch, tmp_path):
    """A feature set on the disk whose four classes each say one sentence."""
    monkeypatch.chdir(tmp_path)
    texts = [f"{SENTENCES[c]} {i}" for i, c in enumerate(TRUTH)]
    FeatureSet.from_arrays(X, labels=LABELS, texts=texts).write("texts.npz")


@pytest.mark.slow
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
    assert lines[0].split() == ["class", "rows", "labelled", "confidence", "stability", "about", "typical"]
    assert max(map(len, lines)) <= 80
    assert all(name in out for name in ("pay my invoice", "monthly fee", *names.values()))

    assert command("classes", "run", "-o", "classes.json") == (0, "The classes are in classes.json.\n", "")
    rows = {row["name"]: row for row in json.loads(Path("classes.json").read_text())}
    assert {name: rows[name]["suggested_name"] for name in names} == names
    assert rows["fee"]["keywords"] == ["monthly fee"]
    assert command("classes", "run", "-o", "classes.csv") == (0, "The classes are in classes.csv.\n", "")
    with open("classes.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert row["suggested_name"] == rows[row["name"]]["suggested_name"]
            assert row["keywords"].split(", ") == rows[row["name"]]["keywords"]


@pytest.mark.slow
def test_without_texts_there_are_none(command):
    FeatureSet.from_arrays(X, labels=LABELS, paths=[f"/data/set/birds/{i}.jpg" for i in range(120)]).write("x.npz")
    code, out, _ = command("discover", "x.npz", "-o", "run", *FAST)
    assert (code, "suggested" in out, "nearest known  typical rows" in out) == (0, False, True)
    table = Discovery.load("run").classes_table()
    assert [(row.suggested_name, row.keywords) for row in table] == [("", [])] * 4
    # Of paths, the file and the folder it is in.
    assert f"birds/{table[3].typical[0]}.jpg" in out
    assert "set/birds" not in out


@pytest.fixture
def discovery(with_texts):
    features = FeatureSet.read("texts.npz")
    model = RPIM(4, n_members=1, random_state=0).fit(features.rows(), features.labels)
    return Discovery.from_fit(model, features)


def test_names_by_a_function_are_stored_and_kept(discovery, tmp_path):
    seen = []

    def namer(examples, words):
        seen.append((examples, words))
        return " Fee\n" if "pin" in words[0] else ""

    named = discovery.named_by(namer)
    assert [len(examples) for examples, _ in seen] == [20, 20]
    for examples, words in seen:
        assert len({text.rsplit(" ", 1)[0] for text in examples}) == 1
        assert words == [examples[0].rsplit(" ", 1)[0]]
    # "fee" is a known class, and where the namer has no name the keywords give one.
    assert {row.suggested_name for row in named.classes_table()} == {"", "Fee 2", "lost my card"}
    assert {row.suggested_name for row in discovery.classes_table()} == {"", "change my pin", "lost my card"}
    named.save(tmp_path / "run")
    loaded = Discovery.load(tmp_path / "run")
    assert loaded.classes_table() == named.classes_table()
    more = FeatureSet.from_arrays(X[:40] + 0.01, texts=["more"] * 40)
    assert loaded.extended(more).suggested_names == named.suggested_names
    with pytest.raises(InputError, match="returned None for the class 'new-1': return a str"):
        discovery.named_by(lambda examples, words: None)


@pytest.fixture
def endpoint(monkeypatch):
    """An OpenAI-compatible server that answers with the last word of the first text; what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], question))
            text = question["messages"][0]["content"].partition("\n- ")[2].splitlines()[0]
            answer = {"choices": [{"message": {"role": "assistant", "content": f'"{text.split()[-2].title()}."'}}]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1/")
    monkeypatch.setenv("OPENAI_MODEL", "small")
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    yield asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_names_by_a_language_model(command, with_texts, endpoint):
    shutil.copy(Path(__file__).parents[2] / "examples" / "llm_names.py", "llm_names.py")
    code, out, err = command("discover", "texts.npz", "-o", "run", *FAST, "--n-members", 1, "--namer", "llm_names:name")
    assert (code, err) == (0, "")
    assert {row.suggested_name for row in Discovery.load("run").classes_table()} == {"", "card", "pin"}
    assert re.search(r"  card *\n", out)
    for path, key, question in endpoint:
        assert (path, key, question["model"]) == ("/v1/chat/completions", "Bearer sesame", "small")
        assert "keywords: lost my card." in question["messages"][0]["content"] or "change my pin" in str(question)
    assert len(endpoint) == 2


def test_a_namer_that_fails_costs_no_run_and_one_that_is_not_there_no_fit(command, refused, with_texts):
    Path("mynames.py").write_text("def name(examples, keywords):\n    raise OSError('no\\nanswer')\n\nother = 3\n")
    run = ("discover", "texts.npz", "-o", "run", *FAST, "--n-members", 1, "--namer")
    refused("give MODULE:FUNCTION", *run, "mynames")
    refused("'nosuch' cannot be imported (No module named 'nosuch')", *run, "nosuch:name")
    refused("'mynames' has no function 'other'", *run, "mynames:other")
    assert not Path("run").exists()
    code, _, err = command(*run, "mynames:name", "--no-report")
    assert (code, err) == (0, "rpim: warning: --namer failed (no): names are from keywords.\n")
    assert {row.suggested_name for row in Discovery.load("run").classes_table()} == {
        "",
        "lost my card",
        "change my pin",
    }
