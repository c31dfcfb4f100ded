"""Unigram: the most probable segmentation of a text (Kudo 2018), with the settings of sentencepiece.

A text is normalised with sentencepiece's default (`nmt_nfkc`): control characters are removed, and compatibility
characters are replaced. It is cut at white space, and "▁" is put before each word, also before the first, so that a
word has the same pieces everywhere.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any

from tokenizers import Encoding, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram
from typing_extensions import override

from domainbert.base.scripts import WITHOUT_SPACES
from domainbert.tokenization.kind import (
    META_SPACE,
    Bools,
    MarkedPieces,
    TokenizerKind,
    added_special_tokens,
    tokens_by_id,
)
from domainbert.tokenization.special_tokens import (
    TOKEN_NAMES,
    Template,
    entries_by_id,
    special_roles,
    template_of,
    usual_template,
)
from domainbert.tokenization.train import TrainingWords, VocabularySize, choose_alphabet, most_frequent
from domainbert.tokenization.words import WordCounter, count_words, normalized_words

_MAX_WORD_CHARACTERS = 32  # characters of a training string, so that its probability does not underflow in float64
_SPECIAL_SCORE = -1000.0  # score of special tokens, so that "<s>" in a text becomes "<", "s" and ">"


class _UnigramPieces(MarkedPieces):
    reads_pretokens = False

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """Return whether each piece begins a word, (pieces,).

        Words are runs of letters and digits, each other sign, and each piece of a script without spaces. A combining
        mark continues a word; after 16 pieces of a word, the next piece begins a new word.
        """
        import numpy as np  # imported here because checks of recipes do not need it

        begins, ends, begins_with_mark = self._roles  # by token id
        ids = np.asarray(encoding.ids, dtype=np.int64)
        starts = begins[ids]
        starts[:1] = True
        # a piece after the end of a word, unless a combining mark continues the word
        starts[1:] |= ends[ids[:-1]] & ~begins_with_mark[ids[1:]]
        # not a piece after "▁", a separate piece for the space before a word, with which the word has begun
        starts[1:] &= ids[:-1] != self.backend.token_to_id(META_SPACE)
        self._split_long_words(starts, may_start=~begins_with_mark[ids])
        return starts

    @cached_property
    def _roles(self) -> tuple[Bools, Bools, Bools]:
        """Whether each entry begins a word, ends a word, and begins with a combining mark: masks (vocab_size,)."""
        import numpy as np

        unknown = TOKEN_NAMES["unk_token"]
        # an unknown piece has no text, and so continues a word
        texts = ["" if token in unknown else token for token in tokens_by_id(self.backend)]
        first = [_character_class(text[0]) if text else "" for text in texts]
        # "▁" is a sign, so a piece with it begins a word; alone, it does not end the word
        last = [_character_class(text[-1]) if text and text != META_SPACE else "" for text in texts]
        separate = ("sign", "without spaces")  # classes of characters that are not joined with their neighbours
        return np.isin(first, separate), np.isin(last, separate), np.array(first) == "mark"


class UnigramKind(TokenizerKind):
    """Unigram; `special_tokens` as in `special_roles`. A lowercase vocabulary has no accents, unless `keep_accents`."""

    name = "Unigram"
    lowercases = False

    def __init__(self, special_tokens: Sequence[str], keep_accents: bool) -> None:
        self.special_tokens = special_roles(special_tokens)
        self._order = list(special_tokens)
        self._keep_accents = keep_accents

    @override
    def accepts(self, backend: Tokenizer) -> bool:
        return isinstance(backend.model, Unigram)

    def select(self, counter: WordCounter, lowercase: bool, min_character_count: int) -> TrainingWords:
        """Return the words, split at characters that are not in the alphabet."""
        strings = counter.words(self.word_splitter(self._backend(entries=[], lowercase=lowercase)))
        characters = count_words(strings, split=list)
        del characters[" "]  # the space before a word, which is "▁" in pieces
        alphabet, rare = choose_alphabet(characters, lowercase, min_character_count)
        parts = count_words(strings, lambda word: _parts_in_alphabet(self.entry(word), alphabet))
        counts, infrequent = most_frequent(parts)
        return TrainingWords(counts, sorted(alphabet), rare, infrequent_words=infrequent)

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """Return a trained tokenizer; ids are in the order of probability, and a string must occur `min_frequency`
        times to be a piece."""
        from domainbert.tokenization.kinds.unigram.learning import learn_pieces  # NumPy

        special = self.special_tokens.values()
        alphabet = [META_SPACE, *words.alphabet]
        target = VocabularySize(words, len(special) + len(alphabet), vocab_size, min_frequency)
        pieces = learn_pieces(words.counts, alphabet, target.size - len(special), min_frequency)
        target.check(len(special) + len(pieces))
        entries = entries_by_id(self._order, [piece for piece, _ in pieces])  # special tokens and pieces
        scores = {**dict.fromkeys(special, _SPECIAL_SCORE), **dict(pieces)}
        backend = self._backend([(entry, scores[entry]) for entry in entries], lowercase)
        template = usual_template(self.special_tokens, backend.get_vocab())
        backend.post_processor = self.post_processor(template, entries)
        return backend

    def _backend(self, entries: Sequence[tuple[str, float]], lowercase: bool) -> Tokenizer:
        """`entries` are (entry, score) in the order of their ids; [] for only the normalizer and pre-tokenizer."""
        ids = {entry: token_id for token_id, (entry, _) in enumerate(entries)}
        backend = Tokenizer(Unigram(list(entries), ids[self.special_tokens["unk_token"]]) if entries else Unigram())
        backend.normalizer = _normalizer(lowercase, self._keep_accents)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(META_SPACE, prepend_scheme="always")]
        )
        if entries:
            backend.add_special_tokens(added_special_tokens(self.special_tokens))
        return backend

    @override
    def pieces(self, backend: Tokenizer) -> MarkedPieces:
        return _UnigramPieces(backend)

    def word_splitter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Return a function that splits a string at white space and between letters, digits, signs and scripts without
        spaces, because trained pieces end there. "▁" becomes a space."""
        split_into_pretokens = normalized_words(backend)

        def split(string: str) -> list[str]:
            words = chain.from_iterable(map(_split_by_character_class, split_into_pretokens(string)))
            return [word.replace(META_SPACE, " ") for word in words]

        return split

    @override
    def entry(self, word: str) -> str:
        return word.replace(" ", META_SPACE)

    @override
    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """Add entries to `model` that are slightly more probable than the pieces they replace, also inside longer
        words. The pieces of all other text do not change, except around unknown characters, whose score depends on the
        lowest score of an entry."""
        scores = dict(map(tuple, model["vocab"]))  # a list of [entry, score]
        lowest = min(scores.values())
        unlisted = tokens_by_id(backend)[len(model["vocab"]) :]  # added tokens that are not entries of the model
        model["vocab"] += [[token, lowest] for token in unlisted]  # the ids of `entries` follow theirs
        for entry in entries:
            piece_scores = [scores.get(token.value, lowest) for token in backend.model.tokenize(entry)]
            # more per character for long entries, so that an added entry wins over shorter added entries inside it
            advantage = 1e-8 * len(entry) ** 2
            model["vocab"].append([entry, sum(piece_scores) + advantage])  # scores are log probabilities

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """Return settings with a class that reads everything from `tokenizer.json`: classes such as ALBERT's would
        replace the normalizer."""
        template = template_of(backend)
        has_types = template is not None and any(part.token_type for part in template.pair)
        inputs = ["input_ids", *(["token_type_ids"] if has_types else []), "attention_mask"]
        return {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}

    @override
    def template(self, cls_id: int, sep_id: int) -> Template:
        ids = {self.special_tokens["cls_token"]: cls_id, self.special_tokens["sep_token"]: sep_id}
        return usual_template(self.special_tokens, ids)

    @override
    def decoder(self, backend: Tokenizer) -> decoders.Decoder:
        return decoders.Metaspace()


def _normalizer(lowercase: bool, keep_accents: bool) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [normalizers.Nmt()]
    if lowercase and not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, normalizers.NFKC()])


def _split_by_character_class(text: str) -> Iterator[str]:
    """Yield the runs of characters of one class (letters, numbers, ...), each of at most 32 characters: "▁covid", "19"
    for "▁covid19". "▁" belongs to the next run, a combining mark to the previous run."""
    start, run_class = 0, ""
    for index, character in enumerate(text):
        character_class = _character_class(character)
        begins_run = character == META_SPACE or index - start == _MAX_WORD_CHARACTERS
        differs = character_class not in ("mark", run_class) and text[start:index] != META_SPACE  # not only "▁" so far
        if index > start and (begins_run or differs):
            yield text[start:index]
            start = index
        if character_class != "mark" or index == start:
            run_class = character_class
    if text[start:]:
        yield text[start:]


@cache
def _character_class(character: str) -> str:
    """Return "letter", "mark" (combining), "number", "sign", or "without spaces" for a script without spaces."""
    if any(first <= character <= last for first, last in WITHOUT_SPACES):
        return "without spaces"
    category = unicodedata.category(character)
    return {"L": "letter", "M": "mark", "N": "number"}.get(category[0], "sign")


def _parts_in_alphabet(word: str, alphabet: frozenset[str]) -> list[str]:
    """Split a word at characters outside the alphabet: "ab", "cd" for "ab#cd"; "▁" is kept."""
    return "".join(character if character in alphabet or character == META_SPACE else " " for character in word).split()
