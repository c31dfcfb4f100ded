"""Unigram: of all ways to spell a text the most probable one (Kudo 2018), with the settings of sentencepiece.

A text is normalised as sentencepiece does by default (`nmt_nfkc`): control characters are left out, and compatibility
characters replaced by those they stand for. It is cut at white space, and each string between has the mark "▁" before
it, the first of a text too: so words are read the same in a corpus, in a text and in a labelled file.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram
from typing_extensions import override

from domainbert.tokenization.bert import tokens_by_id
from domainbert.tokenization.kind import Bools, TokenizerKind
from domainbert.tokenization.marked import META_SPACE, MarkedPieces
from domainbert.tokenization.special_tokens import NAMES, ids_in_order, special_roles
from domainbert.tokenization.template import Template, template_of, usual_template
from domainbert.tokenization.train import TrainingWords, Wanted, most_frequent
from domainbert.tokenization.words import WordCounter, count_words

_ASCII = frozenset(map(chr, range(33, 127)))
_MAX_WORD = 32  # characters of a string that is learnt from; its probability is still a float64
_NEVER = -1000.0  # score of a special token: a text that spells "<s>" is spelt by "<", "s" and ">"
_WITHOUT_SPACES = [  # first and last character of scripts whose words have none between them
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3005", "\u3007"),  # signs that stand for Chinese characters
    ("\u3040", "\u30ff"),  # Japanese syllables
    ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"),  # Chinese characters
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
]


class _UnigramPieces(MarkedPieces):
    """A piece begins a word that has the mark, is a sign or behind one, or is of a script without spaces."""

    reads_pretokens = False

    def word_starts(self, text: str, encoding: Encoding) -> Bools:
        """Words are letters and digits in a row, each sign, and each piece of a script without spaces; a combining mark
        continues what is before it. Of more than 16 pieces in a row the next one begins another word."""
        import numpy as np  # a recipe is checked without it

        begins, ends, continues = self._roles
        ids = np.asarray(encoding.ids, dtype=np.int64)
        starts = begins[ids]
        starts[:1] = True
        starts[1:] |= ends[ids[:-1]] & ~continues[ids[1:]]
        starts[1:] &= ids[:-1] != self.backend.token_to_id(META_SPACE)  # a space that has not merged with its word
        self._cap(starts, ~continues[ids])
        return starts

    @cached_property
    def _roles(self) -> tuple[Bools, Bools, Bools]:
        """(vocab_size,) each: whether an entry begins a word, ends one, and begins with a combining mark."""
        import numpy as np

        unknown = NAMES["unk_token"]  # continues what is before it
        texts = ["" if token in unknown else token for token in tokens_by_id(self.backend)]
        first = [_character_class(text[0]) if text else "" for text in texts]
        last = [_character_class(text[-1]) if text and text != META_SPACE else "" for text in texts]
        alone = ("sign", "without spaces")
        begins, ends, continues = (
            [one in alone for one in first],
            [one in alone for one in last],
            [one == "mark" for one in first],
        )
        return np.array(begins), np.array(ends), np.array(continues)


class UnigramKind(TokenizerKind):
    """Sentencepiece's kind, with special tokens in the order of their ids, as `special_roles` reads them.

    A lowercased vocabulary has no accents, unless they are kept.
    """

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
        """Words of the characters that get a piece: printable ASCII, and every other one that is frequent enough. A
        rare character is left out of its word, whose parts are kept."""
        cut = counter.words(self.cutter(self._backend([], lowercase)))
        characters = count_words(cut, list)
        usual = frozenset(map(str.lower, _ASCII)) if lowercase else _ASCII
        others = sorted(characters.keys() - usual - {" "}, key=lambda one: (-characters[one], one))
        alphabet = usual.union(one for one in others if characters[one] >= min_character_count)
        counts, infrequent = most_frequent(count_words(cut, lambda word: _known_parts(self.entry(word), alphabet)))
        return TrainingWords(
            counts,
            sorted(alphabet),
            rare_characters={one: characters[one] for one in others if one not in alphabet},
            infrequent_words=infrequent,
        )

    def train(self, words: TrainingWords, vocab_size: int, lowercase: bool, min_frequency: int) -> Tokenizer:
        """The more probable a piece is, the lower is its id; a string must occur `min_frequency` times to be one."""
        from domainbert.tokenization.kinds.unigram.learning import learn_pieces  # NumPy

        alphabet, special = [META_SPACE, *words.alphabet], self.special_tokens.values()
        wanted = Wanted(words, len(special) + len(alphabet), vocab_size, min_frequency)
        pieces = learn_pieces(words.counts, alphabet, wanted.size - len(special), min_frequency)
        wanted.check(len(special) + len(pieces))
        scores = {**dict.fromkeys(special, _NEVER), **dict(pieces)}
        entries = ids_in_order(self._order, [piece for piece, _ in pieces])
        backend = self._backend([(entry, scores[entry]) for entry in entries], lowercase)
        ids = {entry: number for number, entry in enumerate(entries)}
        backend.post_processor = self.post_processor(usual_template(self.special_tokens, ids), entries)
        return backend

    def _backend(self, entries: Sequence[tuple[str, float]], lowercase: bool) -> Tokenizer:
        unknown = next((n for n, (entry, _) in enumerate(entries) if entry == self.special_tokens["unk_token"]), None)
        backend = Tokenizer(Unigram(list(entries), unknown) if entries else Unigram())
        backend.normalizer = _normalizer(lowercase, self._keep_accents)
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(META_SPACE, prepend_scheme="always")]
        )
        backend.add_special_tokens(
            [  # "a <mask>" takes the space, as in the models that have it: what is hidden there has the mark of it
                AddedToken(token, special=True, normalized=False, lstrip=role == "mask_token")
                for role, token in self.special_tokens.items()
                if entries
            ]
        )
        return backend

    @override
    def pieces(self, backend: Tokenizer) -> MarkedPieces:
        return _UnigramPieces(backend)

    def cutter(self, backend: Tokenizer) -> Callable[[str], list[str]]:
        """Cuts where pieces of ours end: at white space, and between letters, digits, signs and scripts without spaces.
        What has the mark has a space before it."""
        normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer

        def cut(string: str) -> list[str]:
            text = string if normalizer is None else normalizer.normalize_str(string)
            parts = [text] if pre_tokenizer is None else [part for part, _ in pre_tokenizer.pre_tokenize_str(text)]
            return [word.replace(META_SPACE, " ") for part in parts for word in _words(part)]

        return cut

    @override
    def entry(self, word: str) -> str:
        return word.replace(" ", META_SPACE)

    @override
    def extend(self, backend: Tokenizer, model: dict[str, Any], entries: Mapping[str, int]) -> None:
        """A word is just more probable than the pieces it replaces: so it is one where
        these were, and all other text is spelt as before, as far as its characters are known: the least probable
        entry says how probable unknown ones are."""
        scores = dict(map(tuple, model["vocab"]))
        least = min(scores.values())  # what is unknown is scored by it
        behind = tokens_by_id(backend)[len(model["vocab"]) :]  # added tokens that are no entries of the model
        model["vocab"] += [[token, least] for token in behind]
        for entry in entries:
            pieces = [scores.get(token.value, least) for token in backend.model.tokenize(entry)]
            model["vocab"].append([entry, sum(pieces) + 1e-6])

    def hugging_face_config(self, backend: Tokenizer, special_tokens: Mapping[str, str]) -> dict[str, Any]:
        """A class that takes all from `tokenizer.json`: those of the families build their own normalizer."""
        frame = template_of(backend)
        types = ["token_type_ids"] if frame is not None and any(part.token_type for part in frame.pair) else []
        inputs = ["input_ids", *types, "attention_mask"]
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
    return normalizers.Sequence([*steps, *[normalizers.Lowercase()] * lowercase, normalizers.NFKC()])


def _words(text: str) -> Iterator[str]:
    """Runs of one class of characters; a mark of the space goes with what is behind it, a combining mark with what is
    before it. At most 32 characters."""
    start, previous = 0, ""
    for place, character in enumerate(text):
        found = _character_class(character)
        new = character == META_SPACE or place - start == _MAX_WORD
        if place > start and (new or (found not in ("mark", previous) and text[place - 1] != META_SPACE)):
            yield text[start:place]
            start = place
        previous = previous if found == "mark" and place > start else found
    yield from [text[start:]] if text[start:] else []


@cache
def _character_class(character: str) -> str:
    if any(first <= character <= last for first, last in _WITHOUT_SPACES):
        return "without spaces"
    category = unicodedata.category(character)
    return {"L": "letter", "M": "mark", "N": "number"}.get(category[0], "sign")


def _known_parts(word: str, alphabet: frozenset[str]) -> list[str]:
    """The longest parts of a word whose characters all have a piece."""
    return "".join(one if one in alphabet or one == META_SPACE else " " for one in word).split()
