"""`vocab`: from a corpus to a tokenizer folder and a report on its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.files import write_json
from domainbert.base.marks import TOKENIZER
from domainbert.base.paths import ModelPath
from domainbert.base.ranges import Length, PositiveInt, Range, SampleBytes
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.stages.warnings import say
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.kinds.wordpiece.config import WordPiece

if TYPE_CHECKING:
    from domainbert.stages.early_checks import Given
    from domainbert.tokenization.train import TrainingWords
    from domainbert.tokenization.words import WordCounter

_MANY_RARE = 1e-4  # of all characters: 0.0005 % of words in edited text, 0.04 to 0.4 % of characters in 1,800 tweets


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """Settings of `vocab`."""

    corpus: CorpusConfig
    """Text; only its training side is learnt from."""

    vocab_size: Annotated[int, Range(1, 10_000_000)] = 16384
    """Number of pieces, special tokens included; rounded up to a multiple of 64."""

    lowercase: bool | None = None
    """Lowercase all text and strip accents, unless `kind.keep_accents` keeps them. The default depends on the kind:
    true for WordPiece, false for byte-level BPE and Unigram."""

    min_frequency: PositiveInt = 2
    """Occurrences that a pair of pieces, or in Unigram a string, needs to become a piece."""

    model_max_length: Length = 512
    """Longest input of the models to come, special tokens included."""

    sample_bytes: SampleBytes = 1_000_000_000
    """Bytes of the sample to train on, at most; a hash of the documents chooses them."""

    compare_with: ModelPath | None = field(default=None, metadata=TOKENIZER)
    """Folder of another tokenizer, to compare the vocabularies and the pieces per word."""

    labelled: list[Path] | None = None
    """Labelled files whose words the report covers too: CoNLL (words in the first column), JSONL with "tokens" or
    "text", or CSV with "text" and "label"."""

    min_character_count: PositiveInt = 10
    """Occurrences in the corpus that a character beyond printable ASCII (a letter of another script, an emoji) needs to
    get a piece; WordPiece has at most 1,000 such characters, the most frequent. Where a rarer one stands, its word
    becomes [UNK], or in Unigram the character does; the stage warns if this affects more than 1 in 10,000 characters,
    as in a small corpus of tweets, where a count of 1 keeps the emoji. Byte-level BPE has a piece for every byte, and
    needs no such count."""

    kind: TokenizerKindConfig = WordPiece()
    """Kind of vocabulary: `wordpiece`, BERT's; `byte_bpe`, RoBERTa's, which cuts any text without [UNK]; or `unigram`,
    sentencepiece's. A name of a model is a kind with its special tokens, in their order."""


@stage
def vocab(out: Path, settings: Vocab, inputs: Inputs) -> dict[str, Any]:
    """Train a vocabulary on the training side of a corpus: the files of a Hugging Face tokenizer, and report.json."""
    from domainbert.tokenization.from_texts import train_tokenizer
    from domainbert.tokenization.report import report_lines, vocabulary_report
    from domainbert.tokenization.train import round_vocab_size
    from domainbert.tokenization.words import plain_words

    size, least = settings.vocab_size, settings.min_character_count
    theirs = inputs.tokenizer(settings.compare_with) if settings.compare_with is not None else None
    texts: dict[str, Mapping[str, int]] = {str(path): _labelled_words(path) for path in settings.labelled or []}
    if round_vocab_size(size) != size:
        print(f"vocab_size {size:,} rounded up to {round_vocab_size(size):,}, a multiple of 64")
    counters = count_words(settings.corpus, settings.sample_bytes, ["train", "validation"])
    unknown = settings.kind.build().special_tokens["unk_token"]
    facts: dict[str, Any] = {}

    def on_selected(words: TrainingWords) -> None:
        print("\n".join(_training_lines(counters["train"], words, least, unknown)))
        facts["training"] = _training_facts(counters["train"], words)
        facts["warnings"] = _warnings(words, least, unknown)
        say(facts["warnings"])

    tokenizer = train_tokenizer(
        counters["train"],
        settings.kind,
        size,
        lowercase=settings.lowercase,
        min_frequency=settings.min_frequency,
        min_character_count=least,
        on_selected=on_selected,
    )
    tokenizer.save(out, settings.model_max_length)
    sides = {f"corpus, {split}": counter.words(plain_words()) for split, counter in counters.items()}
    report = vocabulary_report(tokenizer, theirs, {side: counts for side, counts in sides.items() if counts} | texts)
    report |= facts
    write_json(out / "report.json", report, as_is=True)
    print("\n".join(report_lines(report)))
    found = report["texts"].items()
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": report["vocab_size"],
        "pieces_per_word": {name: text["ours"]["pieces_per_word"] for name, text in found},
        "difference": {name: text["difference"] for name, text in found if "difference" in text},
        "compared": report["compared"],
        "warnings": facts["warnings"],
    }


def check_arguments(given: Given) -> None:
    """Check the labelled files."""
    for number, path in enumerate(given["labelled"] or []):
        if given.there(path):
            with given.under(f"labelled[{number}]"):
                _labelled_words(path)


def count_words(corpus: CorpusConfig, sample_bytes: int, splits: Sequence[str]) -> dict[str, WordCounter]:
    """The words of some splits, of about `sample_bytes` each; the corpus report is printed. The languages of the
    training side have the shares that `corpus.languages` gives them, by bytes."""
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.tokenization.words import WordCounter

    counters, read = {split: WordCounter(sample_bytes) for split in splits}, CorpusReport()
    names = corpus.language_names
    by_language = {name: WordCounter(sample_bytes // len(names)) for name in names}
    with Progress("count words") as progress:
        for document in read_documents(corpus, read):
            if document.split in counters:
                language = document.language if document.split == "train" else None
                counter = counters[document.split] if language is None else by_language[language]
                counter.add(document.text)
                progress.advance()
    print("\n".join(read.lines()))
    shares = corpus.language_shares({name: counter.bytes_read for name, counter in by_language.items()})
    if shares is not None:
        print("\n".join(shares.lines("bytes")))
        counters["train"] = WordCounter.of_languages(by_language, shares.read)
    return counters


def _labelled_words(path: Path) -> Mapping[str, int]:
    from domainbert.labelled.rows import read_words_or_texts
    from domainbert.tokenization.report import words_of

    return words_of(read_words_or_texts(path))


def _training_facts(counter: WordCounter, words: TrainingWords) -> dict[str, Any]:
    return {
        "documents": counter.documents_read,
        "bytes": counter.bytes_read,
        "sampled_documents": counter.documents,
        "sampled_bytes": counter.bytes,
        "forgotten_strings": counter.forgotten,
        "distinct_words": len(words.counts),
        "alphabet": "".join(words.alphabet),
        "rare_characters": words.rare_characters,
        "rare_character_occurrences": sum(words.rare_characters.values()),
        "rare_words": words.rare_words,
        "infrequent_words": words.infrequent_words,
        "long_words": words.long_words,
    }


def _training_lines(counter: WordCounter, words: TrainingWords, least: int, unknown: str) -> list[str]:
    return [
        f"training on {counter.documents:,} of {counter.documents_read:,} documents, {counter.bytes:,} of "
        f"{counter.bytes_read:,} bytes, {len(words.counts):,} distinct words",
        f"alphabet: {len(words.alphabet):,} characters; {_rare_characters(words, least, unknown)}",
        f"words left out: {words.rare_words:,} with a rare character, {words.long_words:,} over 100 characters, "
        f"{counter.forgotten + words.infrequent_words:,} too rare to hold in memory",
    ]


def _warnings(words: TrainingWords, least: int, unknown: str) -> list[str]:
    """A warning if many characters of the corpus have no piece."""
    if words.rare_share <= _MANY_RARE:
        return []
    share, rare = f"{100 * words.rare_share:.2f} % of the characters", _rare_characters(words, least, unknown)
    return [f"{share} of the corpus have no piece: {rare}; lower min_character_count or use kind byte_bpe to keep them"]


def _rare_characters(words: TrainingWords, least: int, unknown: str) -> str:
    from domainbert.tokenization.train import MAX_ALPHABET

    counts = words.rare_characters
    if not counts:
        return "none is too rare for a piece"
    why = f"occur less than {least:,} times (min_character_count)"
    if max(counts.values()) >= least:
        why = f"are not among the {MAX_ALPHABET:,} most frequent or {why}"
    shown = " ".join(list(counts)[:20])
    return f"{len(counts):,} more {why}, {sum(counts.values()):,} occurrences become {unknown}: {shown}"
