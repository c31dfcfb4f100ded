"""Rules on a corpus for pretraining."""

from __future__ import annotations

from collections.abc import Iterator

from domainbert.base.errors import counted
from domainbert.checks.checked_corpus import CheckedCorpus
from domainbert.checks.finding import MOST_PLACES, Finding, Rule, rule
from domainbert.corpus.known_texts import MIN_WORDS, RUN_WORDS

_MIN_DOCUMENTS = 10  # with the same line, before the line counts as repeated


@rule("warning")
def labelled_text_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """A text of a test set occurs in the corpus: a run of 13 of its words, or the whole text if it has 8 to 12 words.

    Exclude these sentences: list the test set under `exclude` of the corpus. Or report the overlap with the scores,
    which may be higher than on text that the model has never seen.
    """
    if corpus.test is not None and corpus.found_items:
        share = f"{len(corpus.found_items):,} of {corpus.num_searched:,} texts of {corpus.test.name}"
        message = f"{share} with {MIN_WORDS} words or more occur in the corpus (compared by runs of {RUN_WORDS} words)"
        yield rule.finding(message, corpus.test.places(sorted(corpus.found_items)))


@rule("warning", threshold=0.01)
def repeated_lines(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """A line occurs in more than this share of the documents, and in at least ten: a notice, a header, a menu.

    Remove these lines; the model memorizes them.
    """
    repeated = corpus.lines.lines_in_more_than(max(_MIN_DOCUMENTS - 1, rule.limit * corpus.documents))
    if repeated:
        excerpts = [(line.first_document, f"in {line.documents:,} documents: {line.text}") for line in repeated]
        first = f"{repeated[0].text[:60]!r} is in {repeated[0].documents:,} of {corpus.documents:,}"
        lines = f"{counted(len(repeated), 'lines')} {'is' if len(repeated) == 1 else 'are'}"
        message = f"{lines} repeated in many documents; the line {first}"
        yield rule.finding(message, corpus.places(excerpts[:MOST_PLACES]), len(repeated))


@rule("warning", threshold=0.001)
def broken_characters_in_corpus(corpus: CheckedCorpus, rule: Rule[CheckedCorpus]) -> Iterator[Finding]:
    """More than this share of the documents contain U+FFFD or wrongly decoded UTF-8 ("Ã©", "â€™").

    Decode the source again with its real encoding; broken characters use up entries of the vocabulary.
    """
    if corpus.broken_documents > rule.limit * corpus.documents:
        message = f"{corpus.broken_documents:,} of {corpus.documents:,} documents have broken characters"
        yield rule.finding(message, corpus.places(corpus.broken_excerpts), corpus.broken_documents)


RULES = [labelled_text_in_corpus, repeated_lines, broken_characters_in_corpus]
