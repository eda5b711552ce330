"""Keywords of classes from the texts of their rows, and the names that they suggest for new classes.

Words are ranked by how often the class uses them and by how few other classes do. Words with the same stem count as one
word, and pairs that often stand together are shown as the phrase in the texts. No language is assumed, but for the
English endings that are taken off: function words are those that occur evenly in all classes.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import entr
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

_PAIRED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han: no spaces between words
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u1000-\u109f"  # vowel signs: not in \w
_LETTER = rf"[^\W_{_PAIRED}]"
_WORD = re.compile(rf"[{_PAIRED}]+|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|'{_LETTER}+)*")
_INFLECTED = re.compile(r"^(?=.{3,}(?:ed|ing)$)(.*[aeiouy].*)(?:ed|ing)$")  # leaves three letters, one of them a vowel
_CONTRACTION = re.compile(r"(?:n't|'(?:d|ll|m|re|ve))$")
_IS_PAIRED = re.compile(f"[{_PAIRED}]")


def words_of(text: str) -> list[str]:
    """The lower-case words of a text without numbers and possessive endings; Han and kana as overlapping bigrams.

    Bigrams need no dictionary. Thai, Lao, Khmer and Burmese are split at spaces, often into whole phrases.

    >>> words_of("I haven't got my bank's 2 Cards: top-up?"), words_of("信用卡")
    (['i', "haven't", 'got', 'my', 'bank', 'cards', 'top', 'up'], ['信用', '用卡'])
    """
    found = _WORD.findall(text.lower().replace("’", "'"))
    words = [word.removesuffix("'s") for word in found if not word.isnumeric()]
    if _IS_PAIRED.search(text) is None:
        return words
    return [pair for word in words for pair in (_pairs(word) if is_paired(word) else [word])]


def _pairs(word: str) -> list[str]:
    return [word[i : i + 2] for i in range(max(len(word) - 1, 1))]


def is_paired(word: str) -> bool:
    """Whether the word is in a script that is split into character bigrams."""
    return _IS_PAIRED.match(word) is not None


@functools.cache
def stem(word: str) -> str:
    """The word without its English ending (-s, -ed, -ing); not always a word itself.

    >>> [stem(word) for word in ("cards", "tries", "tried", "topping", "top", "charges", "charged", "address")]
    ['card', 'tri', 'tri', 'top', 'top', 'charg', 'charg', 'addres']
    """
    if not word.isascii() or len(word) < 3:
        return word
    if len(word) > 3:
        if word.endswith("ies"):
            word = word[:-2]
        elif word[-1] == "s" and word[-2] not in "ius":
            word = word[:-1]
        word = _INFLECTED.sub(r"\1", word)
        if len(word) > 3 and word[-1] == "e":
            word = word[:-1]
    if word[-1] == "y":
        word = f"{word[:-1]}i"
    return word[:-1] if word[-1] == word[-2] and word[-1] not in "aeiou" else word


def alike(a: str, b: str) -> bool:
    """Whether two words differ only in a short ending, as inflected forms do.

    >>> alike("card", "cards"), alike("delivery", "delivered"), alike("card", "care")
    (True, True, False)
    """
    short, long = sorted((len(a), len(b)))
    stem = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), short)
    return a == b or (long - stem <= 3 and (stem >= 4 or stem == short == 3))


def joined(words: list[str]) -> str:
    """Join one or two words; overlapping bigrams become one word.

    >>> joined(["top", "up"]), joined(["信用", "用卡"])
    ('top up', '信用卡')
    """
    first, *second = words
    if second and is_paired(first) and first[-1] == second[0][0]:
        return first + second[0][1:]
    return " ".join(words)


Namer = Callable[[list[str], list[str]], str]
"""A function that names a class, given typical texts or paths of its rows, and its keywords."""
N_WORDS = 5
NAME_WORDS = 2
"""A name takes keywords until it has this many words: at most three, unless it must be lengthened to be unique."""
COMMON, COMMON_SHORT, SHORT = 0.85, 0.75, 3
"""A word spread more evenly than COMMON is a function word; for words of at most SHORT letters it is COMMON_SHORT,
since most function words are short. In questions to a bank "my" has 0.96, "was" 0.80, "card" 0.81."""
_CONTENT_WORDS = """amount back bill bottom call cry describe detail down due empty fill find fire first found front
full interest last mill move name next off out part serious show side sincere system thick thin top up"""
FUNCTION_WORDS = ENGLISH_STOP_WORDS - set(_CONTENT_WORDS.split())
"""Never keywords, however they are spread: the list of scikit-learn without the words that can name a class."""
PAIR_SHARE = 0.25
"""A word is shown with its neighbor if the pair makes up this share of the word's uses in the class."""
MAX_ROWS, MIN_ROWS, MAX_CHARACTERS = 30_000, 20, 400
"""Limits on what is read, to bound memory: rows in all (at least MIN_ROWS per class), and characters per text."""


def keywords(
    texts: Sequence[str], codes: NDArray[np.integer[Any]], n_classes: int, n_words: int = N_WORDS
) -> list[list[str]]:
    """The words and word pairs that distinguish each class from the others, best first.

    Parameters
    ----------
    texts : sequence of N strings
    codes : array of N ints
        The class number of each row; rows with -1 are excluded.
    n_classes : int
    n_words : int
        Maximum number of keywords per class. A class without rows or distinctive words has none.

    Examples
    --------
    >>> texts = ["where is my new card", "my new card has not come", "is my pin wrong", "i forgot my pin"]
    >>> keywords(texts, np.array([0, 0, 1, 1]), 2, n_words=1)
    [['new card'], ['pin']]
    """
    rows = _some_of_each(codes, n_classes)
    read = [words_of(texts[row][:MAX_CHARACTERS]) for row in rows]
    members = csr_array((np.ones(len(rows)), (codes[rows], np.arange(len(rows)))), shape=(n_classes, len(rows)))
    words = _Terms.count(read, members, stem)
    spread = _spread(words.in_rows, members.sum(axis=1))
    says_little = spread > np.array([_allowed_spread(form) for form in words.usual_forms()])
    function_words = set(words.keys[says_little])
    pairs = _Terms.count([list(_pairs_in(text, function_words)) for text in read], members, _stems_of_pair)
    scores = words.frequencies.data * np.where(says_little, 0.0, 1.0 - spread)[words.frequencies.indices]
    chosen = []
    for k in range(n_classes):
        own = slice(*words.frequencies.indptr[k : k + 2])
        # Words of a single row come last; ties are broken alphabetically.
        order = np.lexsort((-scores[own], words.in_rows.data[own] < 2, scores[own] == 0.0))
        best = words.keys[words.frequencies.indices[own]][order[: np.count_nonzero(scores[own])]]
        used, used_pairs = words.of_class(k), pairs.of_class(k)
        shown = {key: _most(used[key]) for key in best}
        phrases = {
            " ".join(shown[part] for part in key.split(" ")): forms
            for key, forms in used_pairs.items()
            if forms.total() > 1
        }
        chosen.append(_choose({shown[key]: used[key].total() for key in best}, phrases, n_words))
    return chosen


@dataclass(frozen=True)
class _Terms:
    """The terms of texts and how often each class uses them; terms with the same key count as one.

    Attributes
    ----------
    forms : array of V strings
    keys : array of S strings
    key_of : array of V ints
    of_forms : sparse array (n_classes, V)
        Frequencies.
    frequencies, in_rows : sparse arrays (n_classes, S)
        Frequencies and numbers of rows, at the same places.
    """

    forms: NDArray[np.object_]
    keys: NDArray[np.object_]
    key_of: NDArray[np.intp]
    of_forms: csr_array
    frequencies: csr_array
    in_rows: csr_array

    @classmethod
    def count(cls, read: list[list[str]], members: csr_array, key: Callable[[str], str]) -> _Terms:
        """Count the terms of each text; `members` (n_classes, N) says which text is of which class."""
        if any(read):
            vectoriser = CountVectorizer(analyzer=list)
            counts = csr_array(vectoriser.fit_transform(read))
            forms = vectoriser.get_feature_names_out()
        else:  # CountVectorizer raises on an empty vocabulary
            counts, forms = csr_array((len(read), 0)), np.empty(0, dtype=object)
        keys, key_of = np.unique(np.array([key(form) for form in forms], dtype=object), return_inverse=True)
        merge = csr_array((np.ones(len(forms)), (np.arange(len(forms)), key_of)), shape=(len(forms), len(keys)))
        merged = counts @ merge
        return cls(
            forms,
            keys,
            key_of,
            _of_classes(members, counts),
            _of_classes(members, merged),
            _of_classes(members, merged > 0),
        )

    def usual_forms(self) -> list[str]:
        """The most frequent form of each key."""
        usual: dict[int, str] = {}
        for form in np.argsort(-self.of_forms.sum(axis=0), kind="stable"):
            usual.setdefault(int(self.key_of[form]), self.forms[form])
        return [usual[key] for key in range(len(self.keys))]

    def of_class(self, k: int) -> dict[str, Counter[str]]:
        """The forms of each key in a class, with their frequencies."""
        own = slice(*self.of_forms.indptr[k : k + 2])
        found: dict[str, Counter[str]] = {}
        for form, frequency in zip(self.of_forms.indices[own], self.of_forms.data[own], strict=True):
            found.setdefault(self.keys[self.key_of[form]], Counter())[self.forms[form]] = frequency
        return found


def _most(forms: Counter[str]) -> str:
    """The most frequent form; of several, the shortest."""
    return min(forms, key=lambda form: (-forms[form], len(form), form))


def _pairs_in(words: list[str], function_words: set[str]) -> Iterator[str]:
    """The neighbours of a text, ignoring function words: their stems, and the phrase that they are the ends of.

    A phrase has at most one word between them; else it is the two words alone.

    >>> list(_pairs_in(["lost", "my", "card", "in", "the", "taxi"], {"my", "in", "the"}))
    ['lost card|lost my card', 'card taxi|card taxi']
    """
    content = [i for i, word in enumerate(words) if stem(word) not in function_words]
    for i, j in pairwise(content):
        near = j - i <= 2 and not any(map(is_paired, words[i : j + 1]))
        phrase = " ".join(words[i : j + 1] if near else (words[i], words[j]))
        yield f"{stem(words[i])} {stem(words[j])}|{phrase}"


def _stems_of_pair(pair: str) -> str:
    return pair.partition("|")[0]


def suggest_names(of_class: Sequence[Sequence[str]], taken: Iterable[Any]) -> list[str]:
    """A unique name for each class from its keywords, different from the names taken; "" without keywords.

    Names with the same words in any order count as equal. They are lengthened by the next keyword, or numbered if there
    is none left.

    >>> suggest_names([["pin", "change"], ["lost card", "phone"], ["change", "pin", "atm"], []], ["lost_card"])
    ['pin change', 'lost card phone', 'change pin atm', '']
    """
    used = {_key(str(name)) for name in taken}
    names = [_name(words, NAME_WORDS) for words in of_class]
    for _ in range(max(map(len, of_class), default=0)):
        met = Counter(map(_key, names))
        names = [
            _name(words, len(name.split()) + 1) if met[_key(name)] > 1 or _key(name) in used else name
            for name, words in zip(names, of_class, strict=True)
        ]
    return numbered(names, taken)


def numbered(names: Sequence[str], taken: Iterable[Any]) -> list[str]:
    """The names, with a number after those that are taken or occurred before.

    >>> numbered(["Lost card", "lost_card", "", "PIN"], ["pin"])
    ['Lost card', 'lost_card 2', '', 'PIN 2']
    """
    used, unique = {_key(str(name)) for name in taken}, []
    for name in names:
        n, shown = 1, name
        while name and _key(shown) in used:
            n += 1
            shown = f"{name} {n}"
        used.add(_key(shown))
        unique.append(shown)
    return unique


def _some_of_each(codes: NDArray[np.integer[Any]], n_classes: int) -> NDArray[np.int64]:
    """The rows to read: evenly spaced within each class, ordered by class."""
    limit = max(MAX_ROWS // max(n_classes, 1), MIN_ROWS)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(n_classes + 1))
    kept = [np.empty(0, dtype=np.int64)]
    for first, last in pairwise(ends.tolist()):
        n = min(last - first, limit)
        kept.append(order[first + np.arange(n) * (last - first) // max(n, 1)])
    return np.concatenate(kept)


def _of_classes(members: csr_array, counts: csr_array) -> csr_array:
    """Sum the counts of rows over each class. (n_classes, V)"""
    added_up = csr_array(members @ counts)
    added_up.sort_indices()
    return added_up


def _spread(in_rows: csr_array, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How evenly each word is spread over the classes: normalized entropy, 0 (one class) to 1 (all equally). (V,)"""
    n_words = in_rows.shape[1]
    rows, columns = in_rows.tocoo().coords
    shares = in_rows.data / sizes[rows]
    shares /= np.bincount(columns, shares, n_words)[columns]
    even = math.log(max(int(np.count_nonzero(sizes)), 2))
    spread: NDArray[np.float64] = np.bincount(columns, entr(shares) / even, n_words).astype(np.float64)
    return spread


def _allowed_spread(word: str) -> float:
    """The largest spread of a keyword; single letters and English function words are never keywords."""
    if is_paired(word):
        return COMMON
    if len(word) == 1 or word in FUNCTION_WORDS or _CONTRACTION.search(word) is not None:
        return -1.0
    return COMMON if len(word) > SHORT else COMMON_SHORT


def _choose(words: dict[str, float], pairs: dict[str, Counter[str]], n_words: int) -> list[str]:
    """Choose the best words that add something new, each extended to a frequent pair.

    `words` (best first) map to their frequencies in the class, and pairs of them to the phrases in which they occur.
    """
    pair_of: dict[str, str] = {}
    for pair in sorted(pairs, key=lambda pair: (-pairs[pair].total(), pair)):
        for word in pair.split(" "):
            pair_of.setdefault(word, pair)
    chosen: list[str] = []
    said: list[str] = []
    for word, frequency in words.items():
        if len(chosen) == n_words:
            break
        if any(alike(word, part) for part in said):
            continue
        pair = pair_of.get(word, word)
        neighbors = [part for part in pair.split(" ") if part != word]
        together = neighbors and pairs[pair].total() >= PAIR_SHARE * frequency
        is_news = not any(alike(neighbor, part) for neighbor in neighbors for part in [word, *said])
        term = pair.split(" ") if together and is_news else [word]
        chosen.append(_phrase(pairs[pair], joined(term)) if len(term) > 1 else word)
        said += term
    return chosen


def _phrase(phrases: Counter[str], otherwise: str) -> str:
    """The phrase in which a pair mostly occurs; without one, the two words."""
    phrase = _most(phrases)
    return phrase.partition("|")[2] if 2 * phrases[phrase] > phrases.total() and not is_paired(phrase) else otherwise


def _name(terms: Sequence[str], n_words: int) -> str:
    """The distinct words of the first terms, until there are `n_words`."""
    words: list[str] = []
    for term in terms:
        if len(words) < n_words:
            words += [word for word in term.split() if word not in words]
    return " ".join(words)


def _key(name: str) -> tuple[str, ...]:
    """Two names with the same key are equal: same words, in any order and case."""
    return tuple(sorted(re.findall(r"[^\W_]+", name.lower())))
