"""What a word is, in whatever language a text is written."""

from __future__ import annotations

import re

_PAIRED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han: no spaces between words
_MARKS = "\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u1000-\u109f"  # vowel signs: not in \w
_LETTER = rf"[^\W_{_PAIRED}]"
_WORD = re.compile(rf"[{_PAIRED}]+|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|'{_LETTER}+)*")
_IS_PAIRED = re.compile(f"[{_PAIRED}]")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; Han and kana as overlapping pairs of characters. Numbers are left out.

    Pairs do without a dictionary. Thai, Lao, Khmer and Burmese are read from space to space, often a whole phrase.

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
    """Whether it is of a script that is read in pairs of characters."""
    return _IS_PAIRED.match(word) is not None


def alike(a: str, b: str) -> bool:
    """Whether two words differ in a short ending alone, as most forms of a word do.

    >>> alike("card", "cards"), alike("delivery", "delivered"), alike("card", "care")
    (True, True, False)
    """
    short, long = sorted((len(a), len(b)))
    stem = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), short)
    return a == b or (long - stem <= 3 and (stem >= 4 or stem == short == 3))


def joined(words: list[str]) -> str:
    """One or two words as they are written; pairs of characters that overlap are one word.

    >>> joined(["top", "up"]), joined(["信用", "用卡"])
    ('top up', '信用卡')
    """
    first, *second = words
    if second and is_paired(first) and first[-1] == second[0][0]:
        return first + second[0][1:]
    return " ".join(words)
