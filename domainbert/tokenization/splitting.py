"""Infer how a labelled file splits words, and split raw text in the same way.

Raw text is split at white space and around punctuation marks (`align.basic_words`). Marks that training words contain,
such as the hyphen in "savings-group", are then joined with their neighbours again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from domainbert.base.errors import DomainbertError
from domainbert.tokenization.align import AlignedText, align_text, basic_words
from domainbert.tokenization.load import DomainTokenizer

Span = tuple[int, int]  # characters, end exclusive
WordSplitting = str | Mapping[str, str]
"""`punctuation` splits at white space and around each mark, `whitespace` only at white space. A mapping lists the marks
that are joined to their neighbours: at the `begin` or `end` of a word; `inside_left` and `inside_right`: inside a word,
to the left or right neighbour; `repeated`: to the same mark."""

SPLITTING_KEY = "domainbert_word_splitting"  # in config.json
PLACES = ("begin", "end", "inside_left", "inside_right", "repeated")
_CLOSING, _OPENING = set(",.;:!?)]}%"), set("([{$")
_APOSTROPHES = ("'", "\u2019", "n'", "n\u2019")
_SAMPLE = 2_000  # sentences


def check_splitting(value: object) -> WordSplitting:
    """Return a value from `config.json` if it is a word splitting; `DomainbertError` otherwise."""
    is_marks = isinstance(value, Mapping) and all(key in PLACES and isinstance(value[key], str) for key in value)
    if not (is_marks or value in ("punctuation", "whitespace")):
        places = ", ".join(PLACES)
        raise DomainbertError(
            f"{SPLITTING_KEY}: found {value!r:.80}; expected punctuation, whitespace or marks by {places}"
        )
    return value  # type: ignore[return-value]


def running_text(words: Sequence[str]) -> tuple[str, list[Span]]:
    """Join words to running text; return it with the span of each word. There is no space before `,.;:!?)]}%` and
    endings such as "'s" or after `([{$`."""
    text, spans = "", []
    for number, word in enumerate(words):
        closes = set(word) <= _CLOSING or (word.startswith(_APOSTROPHES) and word[-1].isalpha() and len(word) < 4)
        opens = number > 0 and set(words[number - 1]) <= _OPENING
        text += "" if not number or closes or opens else " "
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, spans


def continues(text: str, pretokens: Sequence[Span], splitting: WordSplitting) -> list[bool]:
    """Whether each pre-token of a text belongs to the same word as the pre-token before it."""
    if splitting == "punctuation":
        return [False] * len(pretokens)
    if isinstance(splitting, str):
        return _touches(text, pretokens)
    return [
        bool(keys) and all(mark in splitting.get(place, "") for place, mark in keys)
        for keys in _borders(text, pretokens)
    ]


def align_raw(tokenizer: DomainTokenizer, texts: Sequence[str], splitting: WordSplitting | None) -> list[AlignedText]:
    """Align pieces with the words of a splitting (None: `punctuation`), as `align.align_text` does."""
    aligned = []
    for text, words in zip(texts, align_text(tokenizer, texts), strict=True):
        joined = continues(text, words.word_offsets, splitting or "punctuation")
        if not any(joined):
            aligned.append(words)
            continue
        word_of = [number - 1 for number in accumulate(not join for join in joined)]
        first = [piece for piece, join in zip(words.first_piece, joined, strict=True) if not join]
        index, offsets = [word_of[word] for word in words.word_index], merged(words.word_offsets, joined)
        aligned.append(replace(words, word_index=index, first_piece=first, word_offsets=offsets))
    return aligned


def split_words(texts: Sequence[str], splitting: WordSplitting | None) -> list[list[Span]]:
    """Return the spans of the words of each text; None is `punctuation`."""
    cuts = zip(texts, basic_words(texts), strict=True)
    return [merged(cut, continues(text, cut, splitting or "punctuation")) for text, cut in cuts]


def merged(pretokens: Sequence[Span], joined: Sequence[bool]) -> list[Span]:
    """Merge the spans of pre-tokens to spans of words, given the result of `continues`."""
    words: list[Span] = []
    for (start, stop), join in zip(pretokens, joined, strict=True):
        if join:
            start, _ = words.pop()
        words.append((start, stop))
    return words


def infer_splitting(sentences: Sequence[Sequence[str]]) -> WordSplitting:
    """Return the splitting that reproduces the words of the most sentences from their running text.

    A mapping lists the marks that belong to an adjacent word in the majority of cases.
    """
    texts, words = zip(*map(running_text, sentences[:_SAMPLE]), strict=True)
    pretokens, votes = basic_words(texts), Counter[tuple[str, str]]()
    for text, spans, cut in zip(texts, words, pretokens, strict=True):
        begins = {start for start, _ in spans}
        for (start, _), keys in zip(cut, _borders(text, cut), strict=True):
            votes.update(dict.fromkeys(keys, -1 if start in begins else 1))
    marks = {place: "".join(sorted(m for (p, m), n in votes.items() if p == place and n > 0)) for place in PLACES}
    candidates: list[WordSplitting] = ["punctuation", "whitespace", {place: m for place, m in marks.items() if m}]

    def reproduced(splitting: WordSplitting) -> int:
        cuts = zip(texts, pretokens, words, strict=True)
        return sum(merged(cut, continues(text, cut, splitting)) == spans for text, cut, spans in cuts)

    return max(candidates, key=reproduced)  # ties: the first


def _touches(text: str, pretokens: Sequence[Span]) -> list[bool]:
    gaps = (text[stop:start] for (_, stop), (start, _) in pairwise(pretokens))
    return [False, *(" " not in gap and not any(map(str.isspace, gap)) for gap in gaps)][: len(pretokens)]


def _borders(text: str, pretokens: Sequence[Span]) -> list[list[tuple[str, str]]]:
    """For each pre-token, (place, mark) of the marks on both sides of its left border; [] after white space."""
    strings = [text[start:stop] for start, stop in pretokens]
    begins = [number for number, touches in enumerate(_touches(text, pretokens)) if not touches]
    borders: list[list[tuple[str, str]]] = [[] for _ in strings]
    for begin, end in pairwise([*begins, len(strings)]):
        if end - begin > 1:
            borders[begin + 1 : end] = _inner_borders(strings[begin:end])
    return borders


def _inner_borders(strings: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """`_borders` of the pre-tokens of one string without white space, except the first."""
    inside = [number for number, string in enumerate(strings) if any(map(str.isalnum, string))]
    first, last = (inside[0], inside[-1]) if inside else (-1, -1)

    def place(number: int, side: str) -> list[tuple[str, str]]:
        if number in inside:
            return []
        return [("begin" if number < first else "end" if number > last else side, strings[number])]

    for number, (before, string) in enumerate(pairwise(strings), 1):
        if number not in inside and string == before:
            yield [("repeated", string)]
        else:
            yield [*place(number - 1, "inside_right"), *place(number, "inside_left")]
