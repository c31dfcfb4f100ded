"""Rules on a corpus that a model is to be pretrained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from domainbert.checks.checked_corpus import FEW_WORDS, CheckedCorpus, Hits
from domainbert.checks.finding import MOST_PLACES, Finding, Rule, rule, with_thresholds
from domainbert.corpus.known_texts import LEAST, RUN

_LEAST_DOCUMENTS = 10  # that have a line before it counts as repeated
_MIXED = 0.1  # of the documents in another alphabet, and a corpus is of several on purpose
_LEAST_LETTERS = 1_000
_NO_CAPITALS = 0.001  # of the letters
_LEAST_WORDS = 100


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


@rule("warning", threshold=0.1)
def short_documents(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents have fewer than 20 words.

    Join what belongs together: a model learns from the words around a word, in the same document. `documents` says how
    plain text is cut.
    """
    few = f"have fewer than {FEW_WORDS} words"
    yield from _share(corpus, rule, corpus.short, few)


@rule("warning", threshold=0.01)
def small_source(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """A source has less than this share of the corpus's characters.

    Give it a `weight`, or with `languages` all of them a lower `alpha`, if it is what the task is about; its text is
    hardly seen otherwise.
    """
    characters = [sum(one.characters.values()) for one in corpus.report.sources]
    for source, own in zip(corpus.report.sources, characters, strict=True):
        if own < rule.limit * sum(characters):
            share = f"{own:,} of {sum(characters):,} characters"
            yield rule.finding(f"{source.path} has {share}", count=1)


@rule("warning", threshold=0.01)
def markup_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents have tags of HTML or XML, or entities such as `&amp;`.

    Take the text out of the markup.
    """
    yield from _share(corpus, rule, corpus.markup, "have markup")


@rule("warning", threshold=0.001)
def broken_characters_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents have U+FFFD or misread UTF-8 ("Ã©", "â€™").

    Read the source again in its own encoding; such characters take up pieces of the vocabulary.
    """
    yield from _share(corpus, rule, corpus.broken, "have broken characters")


@rule("warning", threshold=0.001)
def other_alphabet(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents are in another alphabet than most, and no more than a tenth.

    Leave them out: they are too few to be learnt from, and their letters take up pieces of the vocabulary.
    """
    most = max(corpus.alphabets.values(), key=lambda hits: hits.documents, default=Hits())
    others = {name: hits for name, hits in sorted(corpus.alphabets.items()) if hits is not most}
    count = sum(hits.documents for hits in others.values())
    if rule.limit * corpus.documents < count <= _MIXED * corpus.documents:
        kinds = ", ".join(f"{hits.documents:,} {name}" for name, hits in others.items())
        shown = [one for hits in others.values() for one in hits.shown]
        message = f"{count:,} of {corpus.documents:,} documents are in another alphabet than the others: {kinds}"
        yield rule.finding(message, corpus.places(shown), count)


@rule("warning", threshold=0.05)
def repeated_documents(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents read are copies of others, and are dropped.

    Look where they come from: a file that is there twice, an error of what collected the text.
    """
    kinds = ("exact duplicates", "near duplicates")
    count = sum(corpus.report.dropped[kind] for kind in kinds)
    if count > rule.limit * corpus.report.read:
        yield rule.finding(f"{count:,} of {corpus.report.read:,} documents are copies of others", count=count)


@rule("warning", threshold=0.01)
def unknown_words_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the words hold a piece that the vocabulary does not know: [UNK].

    Train a vocabulary on this corpus (`vocab`), or add the words (`transfer`).
    """
    if corpus.vocabulary is not None and (share := corpus.vocabulary.pieces.share_unknown) > rule.limit:
        count = round(share * corpus.vocabulary.pieces.words)
        message = f"{100 * share:.1f} % of {corpus.vocabulary.pieces.words:,} words are unknown to the vocabulary"
        yield rule.finding(message, count=count)


@rule("warning", threshold=2)
def words_in_many_pieces(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """The vocabulary cuts the corpus's words into more pieces than this, on average.

    Train a vocabulary on this corpus (`vocab`), or add words (`transfer`): a window holds fewer words, and a model has
    to put the pieces together.
    """
    if corpus.vocabulary is not None and corpus.vocabulary.pieces.pieces_per_word > rule.limit:
        pieces = corpus.vocabulary.pieces
        shown = " ".join(pieces.longest_split[0].pieces) if pieces.longest_split else ""
        message = f"the vocabulary cuts words into {pieces.pieces_per_word:.2f} pieces on average, such as {shown}"
        yield rule.finding(message, count=pieces.words)


@rule("warning", threshold=0.7)
def corpus_in_one_case(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """The vocabulary is cased, and more than this share of the letters are capitals, or hardly one is.

    Take text as it was written, or an uncased vocabulary.
    """
    if corpus.vocabulary is None or corpus.vocabulary.is_uncased or corpus.cased_letters < _LEAST_LETTERS:
        return
    share = corpus.capitals / corpus.cased_letters
    if share > rule.limit or share < _NO_CAPITALS:
        message = f"{100 * share:.1f} % of the letters are capitals, and the vocabulary is cased"
        yield rule.finding(message, count=corpus.capitals)


@rule("warning", threshold=0.8)
def capitals_unknown(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """The vocabulary does not lowercase, and reads more than this share of the words with capitals worse than the same
    words without.

    Look at `do_lower_case` in its tokenizer_config.json: it seems to be made of text in lower case.
    """
    view = corpus.vocabulary
    if view is not None and view.with_capitals >= _LEAST_WORDS and view.read_worse > rule.limit * view.with_capitals:
        share = f"{view.read_worse:,} of {view.with_capitals:,} words with capitals"
        yield rule.finding(f"{share} are read worse than the same words in lower case", count=view.read_worse)


def _share(corpus: CheckedCorpus, rule: Rule[CheckedCorpus], hits: Hits, what: str) -> Iterator[Finding]:
    if hits.documents > rule.limit * corpus.documents:
        message = f"{hits.documents:,} of {corpus.documents:,} documents {what}"
        yield rule.finding(message, corpus.places(hits.shown), hits.documents)


RULES = [
    labelled_text_in_corpus,
    repeated_lines,
    short_documents,
    small_source,
    markup_in_corpus,
    broken_characters_in_corpus,
    other_alphabet,
    repeated_documents,
    unknown_words_in_corpus,
    words_in_many_pieces,
    corpus_in_one_case,
    capitals_unknown,
]
