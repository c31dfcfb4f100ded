"""A page of any sections: escaped, allowed by its own policy, and the same bytes twice."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import DictLoader

from domainbert.report import page
from domainbert.report.page import Section, page_text, write_page

CROOKED = "</script><img src=x onerror=alert(1)> & \u2028 é"


class Read(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.within: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.within.setdefault(self._open, []).append(data)


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = page._environment()
    own = DictLoader({"words.html": "<p>{{ words }}</p>"})
    packaged = environment.get_template("page.html")
    monkeypatch.setattr(environment, "loader", own)
    monkeypatch.setattr(environment, "cache", {})
    monkeypatch.setattr(environment, "get_template", lambda name: {"page.html": packaged}.get(name) or own.load(environment, name))


@pytest.mark.usefixtures("templates")
def test_texts_stay_texts_wherever_they_stand(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", CROOKED, [Section(CROOKED, "words.html", {"words": CROOKED})])
    read = Read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [tag for tag, _ in read.tags if tag in ("img", "script")] == ["script"]
    for tag in ("title", "h1", "h2", "p"):
        assert CROOKED in "".join(read.within[tag]), tag


@pytest.mark.usefixtures("templates")
def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else() -> None:
    text = page_text("One", [Section("First words", "words.html", {"words": "a"})])
    read = Read(text)
    (policy,) = [found["content"] for tag, found in read.tags if found.get("http-equiv")]
    inside = {tag: "".join(read.within[tag]).rstrip("\n") for tag in ("style", "script")}
    hashes = {
        tag: base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for tag, one in inside.items()
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not [name for _, found in read.tags for name in found if name == "style" or name.startswith("on")]
    assert not re.search(r"(src|href)=\"?(?!#)", text.partition("<style>")[0])
    assert len(inside["script"].encode()) < 20_000


@pytest.mark.usefixtures("templates")
def test_the_contents_lead_to_every_section_and_pages_are_the_same_twice() -> None:
    sections = [Section("Where it goes wrong", "words.html", {"words": "a"}), Section("Data", "words.html", {"words": 1})]
    text = page_text("One", sections)
    assert text == page_text("One", sections)
    read = Read(text)
    links = [found["href"] for tag, found in read.tags if tag == "a"]
    ids = [found["id"] for _, found in read.tags if found.get("id")]
    assert links == ["#content", "#where-it-goes-wrong", "#data"]
    assert {link[1:] for link in links if link} <= set(ids) and len(ids) == len(set(ids))
    with pytest.raises(ValueError, match="titles that differ"):
        page_text("One", [sections[0], sections[0]])
