"""Infer how a labelled file splits words, and split raw text in the same way; print words as raw text.

Raw text is split at white space and around punctuation marks (`align.basic_words`). Marks that training words contain,
such as the hyphen in "savings-group", are then joined with their neighbours again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from domainbert.base.errors import DomainbertError
from domainbert.labelled.char_spans import join_words
from domainbert.tokenization.align import TREEBANK, AlignedText, align_text, basic_words
from domainbert.tokenization.load import DomainTokenizer

Span = tuple[int, int]  # characters, end exclusive
WordSplitting = str | Mapping[str, str]
"""`punctuation` splits at white space and around each mark, `whitespace` only at white space. A mapping lists the marks
that are joined to their neighbours: at the `begin` or `end` of a word; `inside_left` and `inside_right`: inside a word,
to the left or right neighbour; `digit_left` and `digit_right`: the same beside a digit, by default like other marks
inside a word; `repeated`: to the same mark."""

SPLITTING_KEY = "domainbert_word_splitting"  # in config.json
PLACES = ("begin", "end", "inside_left", "inside_right", "digit_left", "digit_right", "repeated")
_SAMPLE = 2_000  # sentences from which a splitting is inferred
_CLOSING, _OPENING = set(",.;:!?)]}%\u2019\u201d"), set("([{$\u2018\u201c")  # no blank before, no blank after
_LOOSE = set("-/\\+=<>&*~_|\u00b1\u00d7\u2010\u2011\u2013\u2014\u2212")  # with blanks on both sides, or without
_ENDING = re.compile("n?['\u2019](s|t|d|m|ll|re|ve)", re.IGNORECASE)
_ELISION = re.compile("[^\\W\\d_]{1,4}['\u2019]")  # l', dell'


def check_splitting(value: object) -> WordSplitting:
    """Return `value`, from `config.json`, if it is a word splitting; `DomainbertError` otherwise."""
    is_marks = isinstance(value, Mapping) and all(key in PLACES and isinstance(value[key], str) for key in value)
    if not (is_marks or value in ("punctuation", "whitespace")):
        marks = f"an object with text under some of the keys {', '.join(PLACES)}"
        expected = f'"punctuation", "whitespace" or {marks}'
        raise DomainbertError(where=SPLITTING_KEY, found=f"{value!r:.80}", expected=expected)
    return value  # type: ignore[return-value]


def printed_texts(sentences: Sequence[Sequence[str]], compact: bool = True) -> list[tuple[str, list[Span]]]:
    """Join the words of each sentence as in print, and return the texts with the spans of the words.

    There is a blank between two words, except beside brackets, quotes, marks such as commas, and endings such as "'s".
    `compact` omits the blanks around a single `-`, `/` or similar mark, which print may have or not. The words of a
    file that is split only at white space contain their commas, and have a blank between any two words.
    """
    num_commas = Counter(len(word) > 1 for words in sentences for word in words if word.endswith(","))
    if num_commas[True] > num_commas[False]:
        return list(map(join_words, sentences))
    return [_print_words(words, compact) for words in sentences]


def _print_words(words: Sequence[str], compact: bool) -> tuple[str, list[Span]]:
    text, spans, joins, quotes = "", [], True, set[str]()  # joins: no blank before the next word
    for previous, word, following in zip(["", *words], words, [*words[1:], ""], strict=False):
        joins_left, joins_right = _joined_sides(previous, word, following, quotes, compact)
        text += "" if joins or joins_left else " "
        printed, joins = TREEBANK.get(word, word), joins_right
        spans.append((len(text), len(text) + len(printed)))
        text += printed
    return text, spans


def _joined_sides(previous: str, word: str, following: str, quotes: set[str], compact: bool) -> tuple[bool, bool]:
    """Return whether a word has no blank before and after it. Update `quotes`, the open quotation marks."""
    mark = TREEBANK.get(word, word)
    if mark in ("'", "\u2019") and previous[-1:].isalnum():
        begins_ending = bool(_ENDING.fullmatch(f"'{following}"))
        if begins_ending or (previous[-1] == "s" and mark not in quotes):
            return True, begins_ending  # "men's", "workers' rights"
    if mark in ("'", '"'):
        closes = word == "''" or (word != "``" and mark in quotes)
        if closes:
            quotes.discard(mark)
        else:
            quotes.add(mark)
        return closes, not closes
    if set(mark) <= _CLOSING or set(mark) <= _OPENING:
        return set(mark) <= _CLOSING, set(mark) <= _OPENING
    if compact and mark in _LOOSE and previous not in ("", ",", ";", ":"):
        return True, mark != "+"  # "CD4+ cells"
    is_affix = compact and mark[1:-1].isalpha()  # of a word that the file splits at an entity: "-induced", "anti-"
    before = bool(_ENDING.fullmatch(mark)) or (is_affix and mark[0] == "-")
    after = is_affix and mark[-1] == "-" and following not in ("and", "or", "to")
    return before, after or bool(_ELISION.fullmatch(mark))


def joins_previous(text: str, pretokens: Sequence[Span], splitting: WordSplitting) -> list[bool]:
    """Return whether each pre-token of a text belongs to the same word as the pre-token before it; (pre-tokens,).

    A mapping of places to marks joins two pre-tokens if it lists all marks at the border between them. With
    {"inside_left": "-", "inside_right": "-"} the words of "pre-war (T)" are "pre-war", "(", "T" and ")": of its
    pre-tokens `pre`, `-`, `war`, `(`, `T`, `)`, the second and the third join the one before.
    """
    if splitting == "punctuation":
        return [False] * len(pretokens)
    if isinstance(splitting, str):  # whitespace
        return _follow_directly(text, pretokens)
    marks_at = {place: splitting.get(place, _default_marks(place, splitting)) for place in PLACES}
    joined = []
    for marks in _border_marks(text, pretokens):
        follows_space = not marks
        joined.append(not follows_space and all(mark in marks_at[place] for place, mark in marks))
    return joined


def align_raw(tokenizer: DomainTokenizer, texts: Sequence[str], splitting: WordSplitting | None) -> list[AlignedText]:
    """Encode texts, and return the pieces of each text with its words. `splitting` defines the words; None is
    `punctuation`."""
    aligned = []
    for text, by_pretoken in zip(texts, align_text(tokenizer, texts), strict=True):
        joined = joins_previous(text, by_pretoken.word_offsets, splitting or "punctuation")
        if not any(joined):
            aligned.append(by_pretoken)
            continue
        # index of the word of each pre-token: 0, 1, 1, 2 if the third of four pre-tokens joins the second
        word_of = [count - 1 for count in accumulate(not join for join in joined)]
        aligned.append(
            replace(
                by_pretoken,
                word_index=[word_of[pretoken] for pretoken in by_pretoken.word_index],
                first_piece=[piece for piece, join in zip(by_pretoken.first_piece, joined, strict=True) if not join],
                word_offsets=merge_pretokens(by_pretoken.word_offsets, joined),
            )
        )
    return aligned


def split_words(texts: Sequence[str], splitting: WordSplitting | None) -> list[list[Span]]:
    """Return the spans of the words of each text; `splitting` None is `punctuation`."""
    return [
        merge_pretokens(pretokens, joins_previous(text, pretokens, splitting or "punctuation"))
        for text, pretokens in zip(texts, basic_words(texts), strict=True)
    ]


def merge_pretokens(pretokens: Sequence[Span], joined: Sequence[bool]) -> list[Span]:
    """Return the spans of words, merged from the spans of pre-tokens; `joined` is the result of `joins_previous`."""
    words: list[Span] = []
    for (start, stop), join in zip(pretokens, joined, strict=True):
        if join:
            start, _ = words.pop()
        words.append((start, stop))
    return words


def infer_splitting(sentences: Sequence[Sequence[str]]) -> WordSplitting:
    """Return the splitting that reproduces the most words from the text as it is printed.

    A mapping lists the marks that belong to an adjacent word in the majority of cases.
    """
    texts, words = zip(*printed_texts(sentences[:_SAMPLE]), strict=True)
    pretokens = basic_words(texts)
    candidates: list[WordSplitting] = ["punctuation", "whitespace", _majority_marks(texts, words, pretokens)]

    def num_reproduced(splitting: WordSplitting) -> int:
        return sum(
            len({*word_spans}.intersection(merge_pretokens(spans, joins_previous(text, spans, splitting))))
            for text, spans, word_spans in zip(texts, pretokens, words, strict=True)
        )

    return max(candidates, key=num_reproduced)  # ties: the first


def _majority_marks(
    texts: Sequence[str], words: Sequence[list[Span]], pretokens: Sequence[list[Span]]
) -> dict[str, str]:
    """Return the marks, such as "-", that belong to an adjacent word more often than not, by their place, such as
    `begin` of a word: a `WordSplitting`, without its defaults."""
    votes: Counter[tuple[str, str]] = Counter()  # (place, mark): times that it is joined - times that it is not
    for text, word_spans, pretoken_spans in zip(texts, words, pretokens, strict=True):
        word_starts = {start for start, _ in word_spans}
        for (start, _), marks in zip(pretoken_spans, _border_marks(text, pretoken_spans), strict=True):
            vote = -1 if start in word_starts else 1
            votes.update(dict.fromkeys(marks, vote))  # adds the vote to the count of each mark
    # a mark that occurs only beside digits is treated alike beside letters, and the reverse
    for (place, mark), total in list(votes.items()):
        votes.setdefault((place.replace("digit", "inside"), mark), total)
        votes.setdefault((place.replace("inside", "digit"), mark), total)
    marks_at = {place: "" for place in PLACES}
    for place, mark in sorted(votes):
        marks_at[place] += mark if votes[place, mark] > 0 else ""
    return {place: marks for place, marks in marks_at.items() if marks != _default_marks(place, marks_at)}


def _default_marks(place: str, marks_at: Mapping[str, str]) -> str:
    """Return the marks of a place that a `WordSplitting` does not have: beside digits, those inside other words."""
    return marks_at.get(place.replace("digit", "inside"), "") if place.startswith("digit") else ""


def _follow_directly(text: str, pretokens: Sequence[Span]) -> list[bool]:
    """Return whether there is no white space between each pre-token and the previous one; False for the first."""
    gaps = (text[stop:start] for (_, stop), (start, _) in pairwise(pretokens))
    follow = [" " not in gap and not any(map(str.isspace, gap)) for gap in gaps]  # the first test is fast
    return [False, *follow] if pretokens else []


def _border_marks(text: str, pretokens: Sequence[Span]) -> list[list[tuple[str, str]]]:
    """Return, for each pre-token, the (place, mark) of each punctuation mark beside the border between the previous
    pre-token and this one; [] if there is white space between them. A place is one of `PLACES`."""
    strings = [text[start:stop] for start, stop in pretokens]
    # a run of pre-tokens, with no white space between them, begins after white space
    run_starts = [index for index, follows in enumerate(_follow_directly(text, pretokens)) if not follows]
    border_marks: list[list[tuple[str, str]]] = [[] for _ in strings]
    for start, stop in pairwise([*run_starts, len(strings)]):
        if stop - start > 1:
            border_marks[start + 1 : stop] = _border_marks_of_run(strings[start:stop])
    return border_marks


def _border_marks_of_run(run: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield the (place, mark) of the marks beside each border in a run of pre-tokens, given as strings. A mark is a
    pre-token without letters and digits."""
    is_word = [any(map(str.isalnum, string)) for string in run]
    words = [index for index, word in enumerate(is_word) if word]
    first, last = (words[0], words[-1]) if words else (-1, -1)  # only marks: all are at the end

    def place_of(index: int, side: str) -> str:
        """Return the place of the mark `index`, whose `side` is at the border."""
        if index < first or index > last:
            return "begin" if index < first else "end"
        beside_digit = run[index - 1][-1].isdigit() or run[index + 1][0].isdigit()
        return f"digit_{side}" if beside_digit else f"inside_{side}"

    for index, (left, right) in enumerate(pairwise(run), 1):
        if left == right and not is_word[index]:
            yield [("repeated", right)]
            continue
        sides = ((index - 1, "right"), (index, "left"))  # the border is on the right side of `left`
        yield [(place_of(position, side), run[position]) for position, side in sides if not is_word[position]]
