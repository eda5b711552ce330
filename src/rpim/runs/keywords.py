"""Keywords of classes from the texts of their rows, and the names that they suggest for new classes.

Words are ranked by class-based TF-IDF (Grootendorst, "BERTopic", 2022), and frequent pairs are shown as pairs. No
language is assumed: function words are those that occur evenly in all classes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import entr
from sklearn.feature_extraction.text import CountVectorizer

_PAIRED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han: no spaces between words
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u1000-\u109f"  # vowel signs: not in \w
_LETTER = rf"[^\W_{_PAIRED}]"
_WORD = re.compile(rf"[{_PAIRED}]+|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|'{_LETTER}+)*")
_IS_PAIRED = re.compile(f"[{_PAIRED}]")


def words_of(text: str) -> list[str]:
    """The lower-case words of a text without numbers; Han and kana as overlapping character bigrams.

    Bigrams need no dictionary. Thai, Lao, Khmer and Burmese are split at spaces, often into whole phrases.

    >>> words_of("I haven't got my 2 Cards: top-up?"), words_of("信用卡")
    (['i', "haven't", 'got', 'my', 'cards', 'top', 'up'], ['信用', '用卡'])
    """
    words = [word for word in _WORD.findall(text.lower().replace("’", "'")) if not word.isnumeric()]
    if _IS_PAIRED.search(text) is None:
        return words
    return [pair for word in words for pair in (_pairs(word) if is_paired(word) else [word])]


def _pairs(word: str) -> list[str]:
    return [word[i : i + 2] for i in range(max(len(word) - 1, 1))]


def is_paired(word: str) -> bool:
    """Whether the word is in a script that is split into character bigrams."""
    return _IS_PAIRED.match(word) is not None


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


N_WORDS = 5
NAME_WORDS = 2
"""A name takes keywords until it has this many words: at most three, unless it must be lengthened to be unique."""
COMMON, COMMON_SHORT, SHORT = 0.85, 0.75, 3
"""A word spread more evenly than COMMON is a function word; for words of at most SHORT letters it is COMMON_SHORT,
since most function words are short. In questions to a bank "my" has 0.96, "was" 0.80, "card" 0.81."""
PAIR_SHARE = 0.5
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
    read = [texts[row][:MAX_CHARACTERS] for row in rows]
    members = csr_array((np.ones(len(rows)), (codes[rows], np.arange(len(rows)))), shape=(n_classes, len(rows)))
    words, counts = _count(read)
    in_rows, frequencies = _of_classes(members, counts > 0), _of_classes(members, counts)  # (n_classes, V), same places
    spread = _spread(in_rows, members.sum(axis=1))
    says_little = spread > np.array([_allowed_spread(word) for word in words])
    pairs, pair_counts = _count(read, words[says_little], size=2)
    of_pairs = _of_classes(members, pair_counts)
    # TF-IDF alone does not penalise enough words that many classes use.
    scores = class_tf_idf(frequencies).data * np.where(says_little, 0.0, 1.0 - spread)[frequencies.indices]
    chosen = []
    for k in range(n_classes):
        own = slice(*frequencies.indptr[k : k + 2])
        # Words of a single row come last; ties are broken alphabetically.
        order = np.lexsort((-scores[own], in_rows.data[own] < 2, scores[own] == 0.0))[: np.count_nonzero(scores[own])]
        own_words = dict(zip(words[frequencies.indices[own]][order], frequencies.data[own][order], strict=True))
        own = slice(*of_pairs.indptr[k : k + 2])
        met_again = of_pairs.data[own] > 1
        own_pairs = dict(zip(pairs[of_pairs.indices[own][met_again]], of_pairs.data[own][met_again], strict=True))
        chosen.append(_choose(own_words, own_pairs, n_words))
    return chosen


def class_tf_idf(frequencies: csr_array) -> csr_array:
    """Class-based TF-IDF: tf(t, c) · log(1 + A / f(t)), f(t) the total frequency of t, A the mean words per class.

    Both arrays are (n_classes, V); classes without words do not count in A.
    """
    n_classes = max(np.count_nonzero(np.diff(frequencies.indptr)), 1)
    idf = np.log1p(frequencies.sum() / n_classes / frequencies.sum(axis=0))
    data = frequencies.data * idf[frequencies.indices]
    return csr_array((data, frequencies.indices, frequencies.indptr), shape=frequencies.shape)


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
    for i, name in enumerate(names):
        n = 1
        while name and _key(names[i]) in used:
            n += 1
            names[i] = f"{name} {n}"
        used.add(_key(names[i]))
    return names


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


def _count(texts: list[str], left_out: Iterable[str] = (), size: int = 1) -> tuple[NDArray[np.object_], csr_array]:
    """The terms of `size` words in alphabetical order, and their counts in each text. (V,), (N, V)"""
    vectoriser = CountVectorizer(
        tokenizer=words_of,
        token_pattern=None,
        lowercase=False,
        stop_words=list(left_out) or None,
        ngram_range=(size, size),
    )
    if not any(map(vectoriser.build_analyzer(), texts)):  # CountVectorizer raises on an empty vocabulary
        return np.empty(0, dtype=object), csr_array((len(texts), 0))
    counts = vectoriser.fit_transform(texts)
    return vectoriser.get_feature_names_out(), csr_array(counts)


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
    """The largest spread of a keyword; single letters are never keywords."""
    if is_paired(word) or len(word) > SHORT:
        return COMMON
    return COMMON_SHORT if len(word) > 1 else -1.0


def _choose(words: dict[str, float], pairs: dict[str, float], n_words: int) -> list[str]:
    """Choose the best words that add something new, each extended to a frequent pair.

    `words` (best first) and `pairs` map to their frequencies in the class.
    """
    pair_of: dict[str, str] = {}
    for pair in sorted(pairs, key=lambda pair: -pairs[pair]):
        for word in pair.split(" "):
            pair_of.setdefault(word, pair)
    chosen: list[list[str]] = []
    for word, frequency in words.items():
        if len(chosen) == n_words:
            break
        said = [part for term in chosen for part in term]
        if any(alike(word, part) for part in said):
            continue
        term = pair_of.get(word, word).split(" ")
        neighbors = [part for part in term if part != word]
        together = pairs.get(" ".join(term), 0.0) >= PAIR_SHARE * frequency
        is_news = not any(alike(neighbor, part) for neighbor in neighbors for part in [word, *said])
        chosen.append(term if neighbors and together and is_news else [word])
    return [joined(term) for term in chosen]


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
