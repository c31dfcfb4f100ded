"""Contents that models read: texts, lists of words, pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from domainbert.base.errors import DomainbertError, Problems


@runtime_checkable
class Composite(Protocol):
    """A content of a task's models that is more than one text: a pair of texts, a text with places marked in it."""

    @property
    def words(self) -> Sequence[str]:
        """All its words, for counts of what a vocabulary makes of them."""

    @property
    def key(self) -> object:
        """All of it as a value of JSON: equal for what a model cannot tell apart."""


Content = str | Sequence[str] | Composite
"""A text, a list of words, or what else a task reads."""


@dataclass(frozen=True)
class TextPair:
    """Two texts that a model reads together.

    >>> from domainbert import TextPair
    >>> TextPair("Who heard the case?", "The high court heard it.").first
    'Who heard the case?'
    """

    first: str
    second: str

    def __post_init__(self) -> None:
        """Check that both are strings."""
        if not (isinstance(self.first, str) and isinstance(self.second, str)):
            raise DomainbertError(f"TextPair: found {self.first!r:.80} and {self.second!r:.80}; expected two strings")

    @property
    def words(self) -> list[str]:
        """The words of both texts, as they stand between spaces."""
        return [*self.first.split(), *self.second.split()]

    @property
    def key(self) -> list[str]:
        """Both texts, as a value of JSON."""
        return [self.first, self.second]


def words_of_content(content: Content) -> list[str]:
    """The words of what a model reads; those of a text stand between spaces."""
    if isinstance(content, str):
        return content.split()
    return list(content) if isinstance(content, Sequence) else list(content.words)


def text_in(content: Content) -> str:
    """The text of a content, its words with a space between them where it is none."""
    return content if isinstance(content, str) else " ".join(words_of_content(content))


def text_of(row: Mapping[str, Any], text_key: str) -> str:
    """The text of a row to predict; `DomainbertError` if there is none."""
    if not isinstance(row.get(text_key), str):
        raise DomainbertError(f"no string under {text_key!r}; expected an object with one (text_key)")
    text: str = row[text_key]
    return text


def key_of_content(content: Content) -> object:
    """A content as a value of JSON."""
    if isinstance(content, str):
        return content
    return list(content) if isinstance(content, Sequence) else content.key


class UnreadableContents(DomainbertError):
    """Problems with some of the contents that a model was given: a sentence for each, by its place among them."""

    def __init__(self, found: Mapping[int, str]) -> None:
        self.found = found
        first, count = min(found), len(found)
        more = f" (and {count - 1:,} more like this)" if count > 1 else ""
        super().__init__(f"text {first + 1:,}: {found[first]}{more}")


@contextmanager
def told_where(where: Callable[[int], str]) -> Iterator[None]:
    """Say of contents that a model cannot read where each of them stands, such as path and line."""
    try:
        yield
    except UnreadableContents as error:
        problems = Problems("texts")
        for number, found in error.found.items():
            problems.add(f"{where(number)}: {found}")
        problems.raise_if_any()


def as_contents(texts: Iterable[Content] | Content, only_words: bool = False) -> list[Any]:
    """A list of what a predictor was given: any iterable of contents; a single string or pair is one content.

    With `only_words` each content is a list of words.

    Raises:
        UnreadableContents: an item is no content; the message has its position, from 1, and its type.
        DomainbertError: `texts` is not iterable, or is a mapping.
    """
    if isinstance(texts, (str, Composite)):
        texts = [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, (Mapping, bytes)):
        raise DomainbertError(f"texts: found {type(texts).__name__}; expected strings, such as a list of them")
    contents = list(texts)
    expected = "a list of words" if only_words else "a string, a list of words or a TextPair"
    wrong = {number: one for number, one in enumerate(contents) if not _is_content(one, only_words)}
    if wrong:
        raise UnreadableContents({n: f"found {type(one).__name__}; expected {expected}" for n, one in wrong.items()})
    return contents


def _is_content(value: object, only_words: bool) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return all(isinstance(word, str) for word in value)
    return not only_words and isinstance(value, (str, Composite))
