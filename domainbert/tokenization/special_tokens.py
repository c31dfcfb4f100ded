"""Special tokens by role, under the two names that each has in most vocabularies. Free of `tokenizers`.

Those in brackets stand around texts as in BERT, `[CLS] A [SEP] B [SEP]`, where B has token type 1; the others as in
RoBERTa, `<s> A </s></s> B </s>`, all of one type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from domainbert.base.errors import DomainbertError

NAMES: Mapping[str, tuple[str, str]] = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
PIECES = "..."  # in a list of special tokens: all other entries


def special_roles(tokens: Sequence[str]) -> dict[str, str]:
    """Role to token, in the order of a list such as `["<s>", "<pad>", "</s>", "<unk>", "...", "<mask>"]`.

    Raises:
        DomainbertError: the list does not hold one token of each role, or the pieces stand in it more than once.
    """
    role_of = {name: role for role, names in NAMES.items() for name in names}
    roles = [role_of.get(token, "") for token in tokens if token != PIECES]
    if sorted(roles) != sorted(NAMES) or tokens.count(PIECES) > 1:
        expected = ", ".join(" or ".join(names) for names in NAMES.values())
        raise DomainbertError(
            f"special_tokens: found {', '.join(tokens) or 'none'}; expected in the order of their ids {expected}, and "
            f"at most once {PIECES} where the other entries stand if it is not behind them"
        )
    return {role: token for role, token in zip(roles, (one for one in tokens if one != PIECES), strict=True)}


def ids_in_order(tokens: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """All entries in the order of their ids: the special tokens, with the pieces where the list has `...`, or last."""
    place = list(tokens).index(PIECES) if PIECES in tokens else len(tokens)
    return [*tokens[:place], *pieces, *tokens[place + 1 :]]


def usual_special_tokens(entries: Collection[str], own: Mapping[str, str]) -> dict[str, str]:
    """Role to special token, where a folder does not say: that of the kind, `own`, else a usual name that is an entry.

    The kind's stands for a role of which no name is an entry.
    """
    return {
        role: next((name for name in (token, *NAMES[role]) if name in entries), token) for role, token in own.items()
    }
