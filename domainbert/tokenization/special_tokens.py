"""Roles of special tokens and their usual names. Does not import `tokenizers`.

Names in brackets imply BERT's template, `[CLS] A [SEP] B [SEP]`, in which B has token type 1; the others imply
RoBERTa's, `<s> A </s></s> B </s>`, with a single token type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from domainbert.base.errors import DomainbertError

TOKEN_NAMES: Mapping[str, tuple[str, str]] = {  # role -> (name in brackets, other name)
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
OTHER_ENTRIES = "..."  # in a list of special tokens: the position of all other entries


def special_roles(tokens: Sequence[str]) -> dict[str, str]:
    """Return the token of each role, in the order of a list such as `["<s>", "<pad>", "</s>", "<unk>", "...",
    "<mask>"]`.

    Raises:
        DomainbertError: the list does not have exactly one token per role, or contains `...` more than once.
    """
    role_of = {name: role for role, names in TOKEN_NAMES.items() for name in names}
    roles = [role_of.get(token, "") for token in tokens if token != OTHER_ENTRIES]
    if sorted(roles) != sorted(TOKEN_NAMES) or tokens.count(OTHER_ENTRIES) > 1:
        expected = ", ".join(" or ".join(names) for names in TOKEN_NAMES.values())
        raise DomainbertError(
            f"special_tokens: found {', '.join(tokens) or 'none'}; expected {expected} in the order of their ids, with "
            f"at most one {OTHER_ENTRIES} at the position of the other entries (default: at the end)"
        )
    return dict(zip(roles, (token for token in tokens if token != OTHER_ENTRIES), strict=True))


def ids_in_order(tokens: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """Return all entries in the order of their ids: special tokens, with the pieces in place of `...` or at the end."""
    index = list(tokens).index(OTHER_ENTRIES) if OTHER_ENTRIES in tokens else len(tokens)
    return [*tokens[:index], *pieces, *tokens[index + 1 :]]


def usual_special_tokens(entries: Collection[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the token of each role: the default token if it is an entry, else a usual name that is an entry, else the
    default.

    Used for folders that do not name their special tokens.
    """
    return {
        role: next((name for name in (token, *TOKEN_NAMES[role]) if name in entries), token)
        for role, token in defaults.items()
    }
