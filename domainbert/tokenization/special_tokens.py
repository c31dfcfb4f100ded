"""Special tokens: their roles and usual names, and templates, which put them around a text or a pair of texts.

Names in brackets imply BERT's template, `[CLS] A [SEP] B [SEP]`, in which B has token type 1; the others imply
RoBERTa's, `<s> A </s></s> B </s>`, with a single token type. Importing this module does not import `tokenizers`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from domainbert.base.errors import DomainbertError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer, processors

Ints: TypeAlias = "NDArray[np.int64]"

TOKEN_NAMES: Mapping[str, tuple[str, str]] = {  # role -> (name in brackets, other name)
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
OTHER_ENTRIES = "..."  # in a list of special tokens: the position of all other entries


def special_roles(tokens: Sequence[str]) -> dict[str, str]:
    """Return role to token, in the order of `tokens`, a list such as `["<s>", "<pad>", "</s>", "<unk>", "...",
    "<mask>"]`.

    Raises:
        DomainbertError: `tokens` does not have exactly one token per role, or contains `...` more than once.
    """
    role_of = {name: role for role, names in TOKEN_NAMES.items() for name in names}
    roles = [role_of.get(token, "") for token in tokens if token != OTHER_ENTRIES]
    if sorted(roles) != sorted(TOKEN_NAMES) or tokens.count(OTHER_ENTRIES) > 1:
        expected = ", ".join(" or ".join(names) for names in TOKEN_NAMES.values())
        raise DomainbertError(
            where="special_tokens",
            found=", ".join(tokens) or "none",
            expected=f"five tokens in the order of their ids: {expected}. One `{OTHER_ENTRIES}` may mark the "
            "place of all other entries (default: at the end)",
        )
    return dict(zip(roles, (token for token in tokens if token != OTHER_ENTRIES), strict=True))


def entries_by_id(tokens: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """Return all entries in the order of their ids: the special `tokens`, with `pieces` in place of `...`, or at the
    end if there is no `...`."""
    index = list(tokens).index(OTHER_ENTRIES) if OTHER_ENTRIES in tokens else len(tokens)
    return [*tokens[:index], *pieces, *tokens[index + 1 :]]


def usual_special_tokens(entries: Collection[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each role, for a folder that does not name its special tokens: the default token if it is an
    entry, else a usual name that is an entry, else the default token."""
    tokens = {}
    for role, default in defaults.items():
        candidates = (default, *TOKEN_NAMES[role])
        tokens[role] = next((token for token in candidates if token in entries), default)
    return tokens


class Part(NamedTuple):
    """Part of a template: a special token or the placeholder of a text."""

    token: int | str  # id of the special token; "A" and "B" are the placeholders of the first and second text
    token_type: int


@dataclass(frozen=True)
class Template:
    """Template of a text and of a pair: `[CLS] A [SEP] B [SEP]` (BERT), `<s> A </s></s> B </s>` (RoBERTa).

    The template must begin with exactly one special token, whose output represents the text, followed by A.

    Raises:
        DomainbertError: another form, or a pair is requested and the tokenizer has no template for pairs.
    """

    single: tuple[Part, ...]
    pair: tuple[Part, ...]  # empty if the tokenizer does not define it

    def __post_init__(self) -> None:
        """Raise `DomainbertError` unless each template is one special token, then A (in a pair, later B), each once."""
        templates = [(self.single, ["A"])]
        if self.pair:
            templates.append((self.pair, ["A", "B"]))
        for parts, texts in templates:
            tokens = [part.token for part in parts]  # ids of special tokens are int
            if [token for token in tokens if isinstance(token, str)] != texts or tokens.index("A") != 1:
                found = f"the tokenizer's post-processor turns {' and '.join(texts)} into {' '.join(map(str, tokens))}"
                raise DomainbertError(found, expected="one special token, then text A, and each text once")

    def num_special_tokens(self, pair: bool = False) -> int:
        """Return the number of special tokens added to a text or a pair of texts."""
        return len(self.parts(pair)) - 1 - pair  # without the one or two placeholders

    @property
    def separators(self) -> list[int]:
        """Ids of the special tokens between the texts of a pair."""
        tokens = [part.token for part in self.parts(pair=True)]
        return [token for token in tokens[tokens.index("A") + 1 : tokens.index("B")] if isinstance(token, int)]

    def parts(self, pair: bool = False) -> tuple[Part, ...]:
        """Return the special tokens and placeholders, in order, of a text or a pair of texts. Raise `DomainbertError`
        if the tokenizer has no template for pairs."""
        if pair and not self.pair:
            raise DomainbertError(
                "the tokenizer's post-processor has no template for pairs", expected="another tokenizer"
            )
        return self.pair if pair else self.single

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the special tokens of the template."""
        return frozenset(part.token for part in (*self.single, *self.pair) if isinstance(part.token, int))

    def frame(
        self, first: NDArray[np.integer] | Sequence[int], second: NDArray[np.integer] | Sequence[int] | None = None
    ) -> tuple[Ints, Ints]:
        """Add special tokens to the ids of a text (n,), or of a pair (n,) and (m,). Return ids and token types, both
        (n + num_special_tokens(),) or (n + m + num_special_tokens(pair=True),)."""
        import numpy as np  # imported here because checks of recipes do not need it

        parts = self.parts(second is not None)
        texts = {"A": first, "B": () if second is None else second}
        pieces = [texts[token] if isinstance(token, str) else (token,) for token, _ in parts]
        ids = np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])
        return ids, np.repeat([part.token_type for part in parts], [len(piece) for piece in pieces])

    def processor(self, tokens: Sequence[str]) -> processors.TemplateProcessing:
        """Return the template as a post-processor for `tokenizer.json`; `tokens` are the entries by id.

        Raises:
            DomainbertError: a special id has no token.
        """
        from tokenizers import processors  # imported here because settings need only the names of special tokens

        missing = [n for n in sorted(self.special_ids) if not 0 <= n < len(tokens) or not tokens[n]]
        if missing:
            raise DomainbertError(
                f"the post-processor adds id {missing[0]}", expected=f"an id of the tokenizer's {len(tokens):,} entries"
            )
        names = {token_id: tokens[token_id] for token_id in sorted(self.special_ids)}
        state = {
            "type": "TemplateProcessing",
            "single": _state_of_parts(self.single, names),
            "pair": _state_of_parts(self.pair or (Part("A", 0), Part("B", 1)), names),  # the default of `tokenizers`
            "special_tokens": {name: {"id": name, "ids": [n], "tokens": [name]} for n, name in names.items()},
        }
        processor = processors.TemplateProcessing()
        processor.__setstate__(json.dumps(state).encode())  # the constructor would parse ":" and "$" in names
        return processor


def bert_template(cls_id: int, sep_id: int) -> Template:
    """Return `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, with token type 1 for B and the last [SEP]."""
    single = (Part(cls_id, 0), Part("A", 0), Part(sep_id, 0))
    return Template(single, (*single, Part("B", 1), Part(sep_id, 1)))


def roberta_template(cls_id: int, sep_id: int) -> Template:
    """Return `<s> A </s>` and `<s> A </s></s> B </s>`, with token type 0."""
    single = (Part(cls_id, 0), Part("A", 0), Part(sep_id, 0))
    return Template(single, (*single, Part(sep_id, 0), Part("B", 0), Part(sep_id, 0)))


def usual_template(special_tokens: Mapping[str, str], ids: Mapping[str, int]) -> Template:
    """Return the template that the special tokens (role to token) imply: BERT's for "[CLS]", else RoBERTa's."""
    cls, sep = special_tokens["cls_token"], special_tokens["sep_token"]
    make_template = bert_template if cls == "[CLS]" else roberta_template
    return make_template(ids[cls], ids[sep])


def template_of(backend: Tokenizer) -> Template | None:
    """Return the template of a tokenizer's post-processor, or None if it adds no special tokens."""
    if backend.post_processor is None:
        return None
    return _template_from_state(json.loads(backend.post_processor.__getstate__()))


def _template_from_state(state: Mapping[str, Any]) -> Template | None:
    processor_type = state["type"]
    if processor_type == "Sequence":  # usually of ByteLevel, which has no template, and TemplateProcessing
        templates = [*filter(None, map(_template_from_state, state["processors"]))]
        return templates[-1] if templates else None
    if processor_type in ("BertProcessing", "RobertaProcessing"):
        make_template = bert_template if processor_type == "BertProcessing" else roberta_template
        (_, cls_id), (_, sep_id) = state["cls"], state["sep"]  # (token, id)
        return make_template(cls_id, sep_id)
    if processor_type != "TemplateProcessing":
        return None
    ids = {name: token["ids"] for name, token in state["special_tokens"].items()}
    single, pair = (tuple(_parts_from_state(state[name], ids)) for name in ("single", "pair"))
    if not _has_special_tokens(single):
        return None
    return Template(single, pair if _has_special_tokens(pair) else ())


def _has_special_tokens(parts: Sequence[Part]) -> bool:
    return any(isinstance(part.token, int) for part in parts)


def _parts_from_state(pieces: Sequence[Mapping[str, Any]], ids: Mapping[str, Sequence[int]]) -> Iterator[Part]:
    for piece in pieces:
        ((piece_type, content),) = piece.items()  # one key
        tokens = [content["id"]] if piece_type == "Sequence" else ids[content["id"]]  # "Sequence": a placeholder
        yield from (Part(token, content["type_id"]) for token in tokens)


def _state_of_parts(parts: Sequence[Part], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Inverse of `_parts_from_state`."""
    return [
        {"Sequence": {"id": token, "type_id": token_type}}
        if isinstance(token, str)
        else {"SpecialToken": {"id": names[token], "type_id": token_type}}
        for token, token_type in parts
    ]
