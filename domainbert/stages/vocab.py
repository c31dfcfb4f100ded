"""The stage `vocab`: train a tokenizer on a corpus and report on its vocabulary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.fields import TOKENIZER, Length, PositiveInt, Range, SampleBytes
from domainbert.base.files import write_json
from domainbert.base.paths import ModelPath
from domainbert.base.redact import redact
from domainbert.corpus.config import CorpusConfig
from domainbert.stages.stage import Inputs, stage
from domainbert.stages.warnings import print_warnings
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.kinds.wordpiece.config import WordPiece

if TYPE_CHECKING:
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tokenization.load import DomainTokenizer
    from domainbert.tokenization.train import TrainingWords
    from domainbert.tokenization.words import WordCounter

_MAX_LOST_SHARE = 1e-3  # of the words
_OF_SCRIPTS = re.compile("[\u0900-\u17ff\u3099\u309a]")  # letters and marks from Devanagari to Khmer; Japanese marks
# share of all characters; measured: 0.0005 % of words in edited text, 0.04 to 0.4 % of characters in 1,800 tweets
_MAX_RARE_SHARE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """Settings of `vocab`."""

    corpus: CorpusConfig
    """Text; the tokenizer is trained on its training split only."""

    vocab_size: Annotated[int, Range(1, 10_000_000)] = 16384
    """Number of pieces, including special tokens; rounded up to a multiple of 64."""

    lowercase: bool | None = None
    """Lowercase all text, and strip accents unless `kind.keep_accents` is true. The default depends on the kind: true
    for WordPiece, false for byte-level BPE and Unigram."""

    min_frequency: PositiveInt = 2
    """Fewest occurrences for a pair of pieces (in Unigram, a string) to become a piece."""

    model_max_length: Length = 512
    """Largest input length of later models in tokens, including special tokens."""

    sample_bytes: SampleBytes = 1_000_000_000
    """Largest size of the training sample in bytes; documents are selected by hash."""

    compare_with: ModelPath | None = field(default=None, metadata=TOKENIZER)
    """Folder of another tokenizer with which to compare vocabulary and pieces per word."""

    labelled: list[Path] | None = None
    """Labelled files to include in the report: CoNLL (words in the first column, or of CoNLL-U), JSONL with "tokens" or
    "text", or CSV with "text" and "label"."""

    min_character_count: PositiveInt = 10
    """Fewest occurrences for a character beyond printable ASCII (a letter of another script, an emoji) to get a piece;
    WordPiece keeps at most the 1,000 most frequent. A word with a rarer character becomes [UNK]; in Unigram only the
    character does. The stage warns if this affects more than 1 in 10,000 characters, as in a small corpus of tweets,
    where a value of 1 keeps the emoji. Byte-level BPE has a piece for every byte and ignores this setting."""

    kind: TokenizerKindConfig = WordPiece()
    """Kind of tokenizer: `wordpiece` (BERT); `byte_bpe` (RoBERTa), which represents any text without [UNK]; or
    `unigram` (SentencePiece). The name of a model selects its kind with its special tokens in the same order."""


@stage
def vocab(out: Path, settings: Vocab, inputs: Inputs) -> dict[str, Any]:
    """Train a tokenizer on the training split of a corpus; write Hugging Face tokenizer files and report.json."""
    from domainbert.tokenization.from_texts import train_tokenizer
    from domainbert.tokenization.report import report_lines, vocabulary_report
    from domainbert.tokenization.train import round_vocab_size
    from domainbert.tokenization.words import plain_words

    vocab_size, min_count = settings.vocab_size, settings.min_character_count
    other = inputs.tokenizer(settings.compare_with) if settings.compare_with is not None else None
    labelled = settings.labelled or []
    texts: dict[str, Mapping[str, int]] = {redact(str(path)): _read_word_counts(path) for path in labelled}
    if round_vocab_size(vocab_size) != vocab_size:
        print(f"vocab_size {vocab_size:,} rounded up to {round_vocab_size(vocab_size):,}, a multiple of 64")
    counters = count_words(settings.corpus, settings.sample_bytes, ["train", "validation"])
    unknown = settings.kind.build().special_tokens["unk_token"]
    facts: dict[str, Any] = {}

    def on_selected(words: TrainingWords) -> None:
        """Print and record the words that are trained on, with warnings, before the training begins."""
        print("\n".join(_training_lines(counters["train"], words, min_count, unknown)))
        facts["training"] = _training_facts(counters["train"], words)
        facts["warnings"] = _rare_character_warnings(words, min_count, unknown)
        print_warnings(facts["warnings"])

    tokenizer = train_tokenizer(
        counters["train"],
        settings.kind,
        vocab_size,
        lowercase=settings.lowercase,
        min_frequency=settings.min_frequency,
        min_character_count=min_count,
        on_selected=on_selected,
    )
    tokenizer.save(out, settings.model_max_length)
    splits = {f"corpus, {split}": counter.words(plain_words()) for split, counter in counters.items()}
    lost = _lost_mark_warnings(splits["corpus, train"], tokenizer)
    facts["warnings"] += lost
    print_warnings(lost)
    report = vocabulary_report(tokenizer, other, {name: counts for name, counts in splits.items() if counts} | texts)
    report |= facts
    write_json(out / "report.json", report, unredacted=True)
    print("\n".join(report_lines(report)))
    measured = report["texts"].items()
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": report["vocab_size"],
        "pieces_per_word": {name: text["ours"]["pieces_per_word"] for name, text in measured},
        "difference": {name: text["difference"] for name, text in measured if "difference" in text},
        "compared": report["compared"],
        "warnings": facts["warnings"],
    }


def check_arguments(arguments: StageArguments) -> None:
    """Check that the labelled files can be read."""
    for number, path in enumerate(arguments["labelled"] or []):
        if arguments.is_ready(path):
            with arguments.record_problems(f"labelled[{number}]"):
                _read_word_counts(path)


def count_words(corpus: CorpusConfig, sample_bytes: int, splits: Sequence[str]) -> dict[str, WordCounter]:
    """Return a word counter for each of `splits`, from samples of about `sample_bytes`; print the corpus report.

    In the training split, the languages have the shares of bytes that `corpus.languages` sets, if set.
    """
    from domainbert.base.progress import Progress
    from domainbert.corpus.documents import read_documents
    from domainbert.corpus.report import CorpusReport
    from domainbert.tokenization.words import WordCounter

    counters, report = {split: WordCounter(sample_bytes) for split in splits}, CorpusReport()
    names = corpus.language_names
    by_language = {name: WordCounter(sample_bytes // len(names)) for name in names}
    with Progress("count words") as progress:
        for document in read_documents(corpus, report):
            if document.split in counters:
                language = document.language if document.split == "train" else None
                counter = counters[document.split] if language is None else by_language[language]
                counter.add(document.text)
                progress.advance()
    print("\n".join(report.lines()))
    shares = corpus.language_shares({name: counter.bytes_read for name, counter in by_language.items()})
    if shares is not None:
        print("\n".join(shares.lines("bytes")))
        counters["train"] = WordCounter.from_languages(by_language, shares.sampled)
    return counters


def _read_word_counts(path: Path) -> Mapping[str, int]:
    from domainbert.labelled.rows import read_words_or_texts
    from domainbert.tokenization.report import count_words_of_texts

    return count_words_of_texts(read_words_or_texts(path))


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


def _training_lines(counter: WordCounter, words: TrainingWords, min_count: int, unknown: str) -> list[str]:
    return [
        f"training on {counter.documents:,} of {counter.documents_read:,} documents, {counter.bytes:,} of "
        f"{counter.bytes_read:,} bytes, {len(words.counts):,} distinct words",
        f"alphabet: {len(words.alphabet):,} characters; {_rare_summary(words, min_count, unknown)}",
        f"words left out: {words.rare_words:,} with a rare character, {words.long_words:,} over 100 characters, "
        f"{counter.forgotten + words.infrequent_words:,} too rare to hold in memory",
    ]


def _rare_character_warnings(words: TrainingWords, min_count: int, unknown: str) -> list[str]:
    if words.rare_share <= _MAX_RARE_SHARE:
        return []
    share, rare = f"{100 * words.rare_share:.2f} % of the characters", _rare_summary(words, min_count, unknown)
    return [f"{share} of the corpus have no piece; {rare}; lower min_character_count or set kind: byte_bpe"]


def _lost_mark_warnings(words: Mapping[str, int], tokenizer: DomainTokenizer) -> list[str]:
    """Return a warning if many words lose a mark with which a script from Devanagari to Khmer, or Japanese, writes a
    vowel, a tone or another consonant: for accents of other scripts, `lowercase` says that they are stripped."""
    normalizer = tokenizer.backend.normalizer
    if normalizer is None:
        return []
    lost = 0
    for word, count in words.items():
        if not word.isascii():
            letters = _OF_SCRIPTS.findall(unicodedata.normalize("NFD", word))
            marks = {letter for letter in letters if unicodedata.category(letter).startswith("M")}
            lost += count * (not marks.issubset(unicodedata.normalize("NFD", normalizer.normalize_str(word))))
    if lost <= _MAX_LOST_SHARE * sum(words.values()):
        return []
    share = f"{100 * lost / sum(words.values()):.2f} % of the words lose vowel signs or other marks of their script"
    return [f"{share}, so that different words become equal; set kind.keep_accents: true or lowercase: false"]


def _rare_summary(words: TrainingWords, min_count: int, unknown: str) -> str:
    from domainbert.tokenization.train import MAX_ALPHABET

    counts = words.rare_characters
    if not counts:
        return "none is too rare for a piece"
    reason = f"fewer occurrences than min_character_count: {min_count:,}"
    if max(counts.values()) >= min_count:  # a character that is frequent enough was cut by the limit
        reason = f"not among the {MAX_ALPHABET:,} most frequent, or {reason}"
    examples = " ".join(list(counts)[:20])
    lost = f"{sum(counts.values()):,} occurrences become {unknown}"
    return f"rare characters: {len(counts):,} ({reason}), whose {lost}: {examples}"
