"""Statistics of a vocabulary, and comparison of two vocabularies.

All tokenizers are measured on the words of `words.plain_words`, which do not depend on a tokenizer. Pieces per word is
the "fertility" of Rust et al. (2021), "How good is your tokenizer?", section 3.1; the share of continued words is their
second measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from domainbert.base.table import Cell, Table, number_cell
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.surfaces import Vocabulary, kind_shares, origins, vocabulary_of
from domainbert.tokenization.words import check_unicode, count_words, plain_words

_MAX_LISTED = 20  # words in `WordStatistics.longest_split` and in `transfer_view`
_MAX_PRINTED = 8  # words in `report_lines`
_BATCH_WORDS = 10_000


@dataclass(frozen=True)
class LongWord:
    """A word that is cut into many pieces."""

    word: str
    pieces: list[str]
    count: int  # occurrences


@dataclass(frozen=True)
class WordStatistics:
    """Statistics of the pieces of the words of a text, weighted by occurrences."""

    words: int  # occurrences
    distinct_words: int
    pieces_per_word: float
    share_unknown: float  # words with an [UNK] among their pieces
    share_continued: float  # words cut into more than one piece
    longest_split: list[LongWord]  # words with the most pieces, then the most frequent


def count_words_of_texts(texts: Iterable[str]) -> dict[str, int]:
    """Return the occurrences of each word of the texts."""
    text_counts = Counter(texts)
    check_unicode(text_counts)
    return count_words(text_counts, plain_words())


def word_statistics(tokenizer: DomainTokenizer, words: Mapping[str, int]) -> WordStatistics:
    """Return statistics of a tokenizer on words, given with their occurrences; all shares are 0 without words."""
    num_pieces = unknown = continued = 0  # weighted by the occurrences of the words
    longest: list[tuple[int, int, str]] = []  # (-number of pieces, -occurrences, word), sorted
    for batch in _batches(words):
        encoded = tokenizer.encode([tokenizer.pieces.inside_text(word) for word in batch])
        for word, ids in zip(batch, encoded, strict=True):
            count = words[word]
            num_pieces += count * len(ids)
            if tokenizer.unk_id in ids:
                unknown += count
            if len(ids) > 1:
                continued += count
            longest.append((-len(ids), -count, word))
        longest = sorted(longest)[:_MAX_LISTED]
    total = max(sum(words.values()), 1)
    split = [word for negative_length, _, word in longest if negative_length < -1]
    pieces_of_words = zip(split, vocabulary_of(tokenizer).cut(split), strict=True)
    return WordStatistics(
        words=sum(words.values()),
        distinct_words=len(words),
        pieces_per_word=num_pieces / total,
        share_unknown=unknown / total,
        share_continued=continued / total,
        longest_split=[LongWord(word, parts, words[word]) for word, parts in pieces_of_words],
    )


def vocabulary_overlap(ours: DomainTokenizer, theirs: DomainTokenizer) -> dict[str, float]:
    """Return the number of entries (text and role) that are in both vocabularies, without special tokens (`shared`),
    and its share of each vocabulary: `share_of_ours`, 42 % in Beltagy et al. (2019), "SciBERT", section 2, and
    `share_of_theirs`."""
    # the surface of a special token is None
    first, second = (set(filter(None, vocabulary_of(tokenizer).surfaces)) for tokenizer in (ours, theirs))
    shared = len(first & second)
    shares = {"share_of_ours": shared / max(len(first), 1), "share_of_theirs": shared / max(len(second), 1)}
    return {"shared": shared, **shares}


def transfer_view(new: Vocabulary, old: Vocabulary, words: Mapping[str, int]) -> dict[str, Any]:
    """Return the effects of a change from the vocabulary `old` to `new`, measured on `words` (word to occurrences).

    Returns:
        `shares` of the new entries that are copied, composed of old pieces, or new, see `origins`; `pieces_saved`
        (pieces per word, old - new); and `shortened_words`, the words that save the most pieces, (pieces before -
        pieces after) x occurrences, each with `word`, its pieces `before` and `after`, and its occurrences `count`.
    """
    saved: dict[str, int] = {}
    for batch in _batches(words):
        for word, before, after in zip(batch, old.cut(batch), new.cut(batch), strict=True):
            saved[word] = (len(before) - len(after)) * words[word]
    ranked = sorted((word for word in saved if saved[word] > 0), key=lambda word: (-saved[word], word))
    shortened = ranked[:_MAX_LISTED]
    pieces = zip(shortened, old.cut(shortened), new.cut(shortened), strict=True)
    return {
        "shares": kind_shares(origins(new, old)),
        "pieces_saved": sum(saved.values()) / max(sum(words.values()), 1),
        "shortened_words": [
            {"word": word, "before": before, "after": after, "count": words[word]} for word, before, after in pieces
        ],
    }


def transfer_lines(view: Mapping[str, Any], max_words: int = _MAX_LISTED) -> list[str]:
    """Format the result of `transfer_view` as lines of text, with at most `max_words` shortened words."""
    shares = ", ".join(f"{100 * share:.1f} % {kind}" for kind, share in view["shares"].items())
    shortened = (
        f"  {word['word']} ({word['count']:,} times): {' '.join(word['before'])} -> {' '.join(word['after'])}"
        for word in view["shortened_words"][:max_words]
    )
    return [f"entries: {shares}; {view['pieces_saved']:.4f} pieces per word fewer", *shortened]


def vocabulary_report(
    ours: DomainTokenizer, theirs: DomainTokenizer | None, words: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return the report of a vocabulary for `report.json`, compared with another vocabulary if it is given.

    `words` maps the name of a text (a split of the corpus, a labelled file) to the occurrences of its words.

    Returns:
        `vocab_size`; `compared` (`vocab_size` and overlap, or None); `transfer` (from theirs to ours, on the words of
        the first text, or None); and `texts`, by name `ours`, `theirs` and `difference` (pieces per word, ours -
        theirs).
    """
    texts: dict[str, Any] = {}
    for name, counts in words.items():
        statistics = word_statistics(ours, counts)
        texts[name] = {"ours": asdict(statistics)}
        if theirs is not None:
            other = word_statistics(theirs, counts)
            difference = statistics.pieces_per_word - other.pieces_per_word
            texts[name] |= {"theirs": asdict(other), "difference": difference}
    compared = transfer = None
    if theirs is not None:
        compared = {"vocab_size": theirs.vocab_size, **vocabulary_overlap(ours, theirs)}
        first = next(iter(words.values()), {})
        transfer = transfer_view(vocabulary_of(ours), vocabulary_of(theirs), first)
    return {"vocab_size": ours.vocab_size, "compared": compared, "transfer": transfer, "texts": texts}


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Format the result of `vocabulary_report` as lines of text: a table, the comparison with the other vocabulary (if
    there is one), and up to eight words of the first text, those with the most pieces."""
    rows: list[list[Cell]] = []
    for name, text in report["texts"].items():
        rows += [_table_row(name, side, text[side]) for side in ("ours", "theirs") if side in text]
        if "difference" in text:
            rows.append(["difference", "", number_cell(text["difference"], "{:+.4f}"), "", "", name])
    lines = Table(["tokenizer", "words", "pieces/word", "unknown", "continued", "text"], rows).lines()
    if report["compared"] is not None:
        overlap = report["compared"]
        ours = f"{100 * overlap['share_of_ours']:.1f} % of our {report['vocab_size']:,}"
        theirs = f"{100 * overlap['share_of_theirs']:.1f} % of their {overlap['vocab_size']:,}"
        lines.append(f"overlap: {overlap['shared']:,} entries, {ours} and {theirs} (without special tokens)")
        lines.append("change of a model from their vocabulary to ours:")
        lines += transfer_lines(report["transfer"], _MAX_PRINTED)
    if report["texts"]:
        name, text = next(iter(report["texts"].items()))
        longest = text["ours"]["longest_split"][:_MAX_PRINTED]
        lines.append(f"words of {name} with the most pieces:{'' if longest else ' no word is split'}")
        lines += [f"  {word['word']} ({word['count']:,} times): {' '.join(word['pieces'])}" for word in longest]
    return lines


def _table_row(name: str, side: str, row: Mapping[str, Any]) -> list[Cell]:
    shares = [number_cell(row[key], "{:.2f} %", 100) for key in ("share_unknown", "share_continued")]
    return [side, number_cell(row["words"]), number_cell(row["pieces_per_word"], "{:.4f}"), *shares, name]


def _batches(words: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(words)
    return (ordered[start : start + _BATCH_WORDS] for start in range(0, len(ordered), _BATCH_WORDS))
