"""A page as a browser without scripts reads it."""

from __future__ import annotations

import base64
from html.parser import HTMLParser

_APART = {"td", "th", "li", "p", "h2", "mark", "option"}
_ALONE = {"meta", "img", "br", "input"}
_IMAGE = "data:image/svg+xml;base64,"


class Read(HTMLParser):
    """The tags with their attributes, and the texts inside of tags of a name."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in _ALONE:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _APART:
            self.handle_data(" ")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self._texts.setdefault(tag, []).append(data)

    def within(self, tag: str) -> str:
        """All text inside of tags of this name, with single spaces."""
        return " ".join("".join(self._texts.get(tag, [])).split())

    def pictures(self) -> list[str]:
        """The SVG images of the page."""
        sources = [one["src"] or "" for tag, one in self.tags if tag == "img"]
        return [base64.b64decode(one.removeprefix(_IMAGE)).decode("utf-8") for one in sources if _IMAGE in one]
