"""Contents, the inputs of models: texts, lists of words, pairs of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.fields import as_plain_list

Result = TypeVar("Result")


@runtime_checkable
class Composite(Protocol):
    """An input that is more than a plain text: a pair of texts, a text with marked spans."""

    @property
    def words(self) -> Sequence[str]:
        """All words, for statistics of the vocabulary."""

    @property
    def key(self) -> object:
        """A JSON value that is equal for inputs that a model cannot distinguish."""


Content = str | Sequence[str] | Composite
"""A text, a list of words, or another input of a task."""


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
        if not (isinstance(self.first, str) and isinstance(self.second, str)):
            raise DomainbertError(
                where="TextPair", found=f"{self.first!r:.80} and {self.second!r:.80}", expected="two strings"
            )

    @property
    def words(self) -> list[str]:
        """The words of both texts, split at white space."""
        return [*self.first.split(), *self.second.split()]

    @property
    def key(self) -> list[str]:
        """Both texts as a list, a JSON value."""
        return [self.first, self.second]


def words_of_content(content: Content) -> list[str]:
    """Return the words of an input; a text is split at white space."""
    if isinstance(content, str):
        return content.split()
    return list(content) if isinstance(content, Sequence) else list(content.words)


def text_in(content: Content) -> str:
    """Return an input as text: a text unchanged, the words of other inputs joined by spaces."""
    return content if isinstance(content, str) else " ".join(words_of_content(content))


def text_of(row: Mapping[str, Any], text_key: str) -> str:
    """Return the text of a row to predict; raise `DomainbertError` if `text_key` holds no string."""
    if not isinstance(row.get(text_key), str):
        raise DomainbertError(f"no string under {text_key!r}", expected="the text there, or text_key set to its key")
    text: str = row[text_key]
    return text


def key_of_content(content: Content) -> object:
    """Return a JSON value that is equal for inputs that a model cannot distinguish."""
    if isinstance(content, str):
        return content
    return list(content) if isinstance(content, Sequence) else content.key


class UnreadableContents(DomainbertError):
    """Invalid inputs of a model, with the error of each by its index."""

    def __init__(self, errors: Mapping[int, DomainbertError]) -> None:
        self.error_by_index = errors
        first = errors[min(errors)].within(f"text {min(errors) + 1:,}")
        facts = {
            name: fact for name in ("where", "problem", "found", "expected", "hint") if (fact := getattr(first, name))
        }
        if len(errors) > 1:
            facts[list(facts)[-1]] += f" (and {len(errors) - 1:,} more like this)"
        super().__init__(**facts)


def map_contents(function: Callable[..., Result], *arguments: Iterable[Any]) -> list[Result]:
    """Return the result of `function` for each input, as `map` does; raise one `UnreadableContents` for all inputs for
    which it raises `DomainbertError`."""
    results: list[Result] = []
    errors: dict[int, DomainbertError] = {}
    for index, values in enumerate(zip(*arguments, strict=True)):
        try:
            results.append(function(*values))
        except DomainbertError as error:
            errors[index] = error
    if errors:
        raise UnreadableContents(errors)
    return results


@contextmanager
def located_errors(locate: Callable[[int], str]) -> Iterator[None]:
    """Re-raise `UnreadableContents` with the location of each input, which `locate` returns for its index."""
    try:
        yield
    except UnreadableContents as error:
        problems = Problems("texts")
        for index, part in error.error_by_index.items():
            problems.add(part.within(locate(index)))
        problems.raise_if_any()


def as_contents(texts: Iterable[Content] | Content, only_words: bool = False) -> list[Any]:
    """Return the argument of a predictor as a list of inputs; a single string or pair becomes a list of one.

    Raise `DomainbertError` for another type; with `only_words` each input has to be a list of words.
    """
    expected = "a list of words" if only_words else "a string, a list of words or a TextPair"
    texts = as_plain_list(texts)
    if isinstance(texts, (str, Composite)):
        texts = [texts]
    if not isinstance(texts, Iterable) or isinstance(texts, (Mapping, bytes)):
        raise DomainbertError(where="texts", found=type(texts).__name__, expected=f"a list, each item {expected}")

    def checked(content: Any) -> Any:
        is_list = isinstance(content, Sequence) and not isinstance(content, (str, bytes))
        is_words = is_list and all(isinstance(word, str) for word in content)
        if not (is_words or (not only_words and isinstance(content, (str, Composite)))):
            raise DomainbertError(found=type(content).__name__, expected=expected)
        return content

    return map_contents(checked, texts)
