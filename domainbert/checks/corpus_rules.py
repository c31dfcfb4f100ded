"""Rules on a corpus that a model is to be pretrained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from domainbert.checks.checked_corpus import CheckedCorpus
from domainbert.checks.finding import MOST_PLACES, Finding, Rule, rule, with_thresholds
from domainbert.corpus.known_texts import LEAST, RUN

_LEAST_DOCUMENTS = 10  # that have a line before it counts as repeated


def corpus_findings(corpus: CheckedCorpus, thresholds: Mapping[str, float] | None = None) -> Iterator[Finding]:
    """The findings of the rules in a corpus that was read; thresholds by the names of rules take the place of
    theirs."""
    for one in with_thresholds(RULES, thresholds or {}):
        yield from one(corpus)


@rule("warning")
def labelled_text_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """A text of a test set shares a run of 13 words with the corpus, or stands there as a whole if it has 8 to 12.

    Say so beside the scores, which may be higher than on text that the model has never seen, or leave the
    sentences that have it out of the corpus: `exclude` of the corpus, with the test set.
    """
    for overlap in corpus.overlaps:
        if overlap.met:
            share = f"{len(overlap.met):,} of {overlap.looked_for:,} texts of {overlap.of.name}"
            message = f"{share} with {LEAST} words or more are in the corpus, by runs of {RUN} words"
            yield rule.finding(message, overlap.of.places(sorted(overlap.met)))


@rule("warning", threshold=0.01)
def repeated_lines(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """A line stands in more than this share of the documents, and in ten or more: a notice, a header, a menu.

    Remove such lines, or the model learns them by heart.
    """
    found = list(corpus.lines.over(max(_LEAST_DOCUMENTS - 1, rule.limit * corpus.documents)))
    if found:
        shown = [(line.first, f"in {line.documents:,} documents: {line.text}") for line in found]
        first = f"{found[0].text[:60]!r} in {found[0].documents:,} of {corpus.documents:,}"
        message = f"{len(found):,} lines are repeated in many documents, {first}"
        yield rule.finding(message, corpus.places(shown[:MOST_PLACES]), len(found))


@rule("warning", threshold=0.001)
def broken_characters_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents have U+FFFD or misread UTF-8 ("Ã©", "â€™").

    Read the source again in its own encoding; such characters take up pieces of the vocabulary.
    """
    if corpus.broken.documents > rule.limit * corpus.documents:
        message = f"{corpus.broken.documents:,} of {corpus.documents:,} documents have broken characters"
        yield rule.finding(message, corpus.places(corpus.broken.shown), corpus.broken.documents)


@rule("warning", threshold=0.01)
def unknown_words_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the words hold a piece that the vocabulary does not know: [UNK].

    Train a vocabulary on this corpus (`vocab`), or add the words (`transfer`).
    """
    pieces = corpus.pieces
    if pieces is not None and (share := pieces.share_unknown) > rule.limit:
        count = round(share * pieces.words)
        message = f"{100 * share:.1f} % of {pieces.words:,} words are unknown to the vocabulary"
        yield rule.finding(message, count=count)


@rule("warning", threshold=2)
def words_in_many_pieces(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """The vocabulary cuts the corpus's words into more pieces than this, on average.

    Train a vocabulary on this corpus (`vocab`), or add words (`transfer`): a window holds fewer words, and a model has
    to put the pieces together.
    """
    pieces = corpus.pieces
    if pieces is not None and pieces.pieces_per_word > rule.limit:
        shown = " ".join(pieces.longest_split[0].pieces) if pieces.longest_split else ""
        message = f"the vocabulary cuts words into {pieces.pieces_per_word:.2f} pieces on average, such as {shown}"
        yield rule.finding(message, count=pieces.words)


RULES = [
    labelled_text_in_corpus,
    repeated_lines,
    broken_characters_in_corpus,
    unknown_words_in_corpus,
    words_in_many_pieces,
]
